"""Where upstream's DiT4DiT behaves oddly, what this package does instead, and how to get upstream's behaviour.

`python -m vla_dit4dit.quirks` prints docs/quirks.md.
"""

from __future__ import annotations

from vla_train.quirks import Quirk, page

QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        "modes",
        "Only `training: joint` runs; `video` and `action` raise.",
        "All three modes work. `action` freezes the video model and skips its loss, `video` builds no action head.",
    ),
    Quirk(
        "noise-scale",
        "The head's training time is Beta / `noise_s` with `noise_s` = 0.999, so it can exceed 1 slightly.",
        "The same by default, because published heads were trained so; `noise_s: 1.0` keeps it below 1.",
        {"model.action_head.noise_s": 0.999},
    ),
    Quirk(
        "two-repeat-keys",
        "`framework.action_model.repeated_diffusion_steps` is ignored; `trainer.repeated_diffusion_steps` counts.",
        "One key, `model.repeated_diffusion_steps`. The ineffective upstream key is accepted and has no effect.",
    ),
    Quirk(
        "misplaced-override",
        "The launch scripts pass `--trainer.framework.cosmos25.conditional_frame_timestep`, which nothing reads.",
        "Accepted without effect. Other unknown keys are an error that names the nearest key.",
    ),
    Quirk(
        "wasted-work",
        "The feature pass builds an autograd graph for a detached result and runs blocks after the feature block; "
        "the text encoder computes its language-model head.",
        "None of that is computed. The numbers are the same.",
    ),
    Quirk(
        "sampled-condition",
        "The observed frame enters as a random sample of the VAE posterior, in training and at test; "
        "the target of the video loss uses the posterior mean.",
        "The same, because published weights were trained so. Give `predict_action` a generator to repeat it.",
    ),
    Quirk(
        "unused-seed",
        "A fixed seed for inference exists in the code but is never applied.",
        "`predict_action(batch, generator)` is repeatable; evaluation seeds it with `eval.seed`.",
    ),
    Quirk(
        "evaluation-in-training",
        "Evaluation uses the next training batch, on one process only, with dropout active.",
        "Evaluation uses held-out episodes, on all processes, in evaluation mode.",
    ),
    Quirk(
        "rate-floor",
        "`min_lr` becomes a ratio of the base rate, so a group with a ten times higher rate ends ten times above it.",
        "Every group ends at `min_lr`.",
        {"train.scheduler.floor": "base"},
    ),
    Quirk(
        "checkpoint-deadlock",
        "Weights are gathered on the main process only, which hangs under ZeRO-3; files hold the frozen encoder; "
        "optimizer, schedule and random state are not saved.",
        "Every process writes its shard, frozen networks are left out, and a resumed run continues exactly. "
        "Upstream's complete file is written on export.",
    ),
    Quirk(
        "unguarded-collectives",
        "Nothing runs without a process group, and `dist.get_rank == 0` compares a function.",
        "One process needs no process group.",
    ),
    Quirk(
        "statistics-accessors",
        "`get_action_stats` reads an instance attribute from a class method; `trainable_module_keys` is a property "
        "with an argument.",
        "Statistics are an argument where they are needed.",
    ),
    Quirk("reread-tables", "The parquet file is read again for every sample.", "Tables stay open."),
    Quirk(
        "step-index-pickle",
        "The list of steps is a pickle inside the data set, never invalidated, and unpickling runs code.",
        "The list is computed; nothing is written into the data set and no pickle is read.",
    ),
    Quirk(
        "latent-mse-range",
        "`latent_mse` encodes future frames in [0, 1] although the VAE expects [-1, 1].",
        "Frames are mapped to [-1, 1] first.",
        {"model.backbone.latent_mse_unit_range": True},
    ),
    Quirk(
        "pixel-range-by-minimum",
        "Pixel losses take decoded frames to be in [0, 1] unless the batch holds a value below -0.5.",
        "Decoded frames are always mapped from [-1, 1] to [0, 1].",
        {"model.backbone.pixel_range_by_minimum": True},
    ),
    Quirk(
        "pixel-last-frames",
        "The VAE decodes a clip of 6 frames to 5; the pixel losses then compare the last 5 with the future, one step "
        "too early, and the observed frame alone if nothing else is decoded.",
        "Frames of the same time are compared, those that are not decoded are left out.",
        {"model.backbone.pixel_last_frames": True},
    ),
    Quirk(
        "statistics-of-several-tags",
        "Robots of several tags in one mixture are weighed with the first weights of the whole mixture, whose sum is "
        "not 1, so mean and standard deviation are wrong.",
        "The weights of a tag's own data sets count.",
    ),
    Quirk("bgr", "The opencv video backend returns BGR.", "There is no such decoder; all return RGB."),
    Quirk(
        "real-robot-evaluation",
        "The Real_G1 evaluation feeds min/max-normalised states while training uses sine and cosine; its script names "
        "a file that does not exist.",
        "Evaluation runs through the data path of training.",
    ),
    Quirk(
        "extra-cameras",
        "A second camera without `wrist` in its name is appended as if it were later frames.",
        "Cameras are put side by side.",
        {"data.extra_views": "as_frames"},
    ),
    Quirk(
        "broken-tools",
        "The debug client calls methods that do not exist; `build_model` reads keys that do not exist.",
        "Not carried over.",
    ),
    Quirk(
        "robot-tables",
        "Some robot configurations name unknown fields or classes that are not imported, and some data mixtures are "
        "defined twice or hold one data set.",
        "Only configurations that work are listed; an unknown name is an error with the nearest one.",
    ),
    Quirk(
        "image-scale-by-maximum",
        "An image is divided by 255 only if its maximum is above 1, so a black uint8 image is not.",
        "The dtype decides: uint8 is divided by 255, floating-point images are in [0, 1] unless a value is above 2.",
    ),
    Quirk(
        "requirements",
        "The pinned requirements contradict each other and list packages twice.",
        "Version ranges, tested at both ends.",
    ),
    Quirk(
        "resize",
        "Training resizes bilinearly without antialiasing to 224 x 224 whatever `image_size` says; "
        "clients use area averaging.",
        "`data.image_size` counts, with the same bilinear resize in training and evaluation.",
        {"data.image_size": [224, 224]},
    ),
    Quirk(
        "padded-actions",
        "Actions repeated beyond the end of an episode count fully in the loss.",
        "They are masked out.",
        {"data.mask_padded_actions": False},
    ),
    Quirk(
        "same-draws-every-epoch",
        "The epoch number stays 0, so every epoch repeats the same samples.",
        "Every epoch draws anew.",
        {"data.reshuffle_each_epoch": False},
    ),
    Quirk(
        "rounded-times",
        "Times fed to the video transformer are rounded to bfloat16, 0.99502 to 0.99609.",
        "Times stay float32.",
        {"model.backbone.time_dtype": "bfloat16"},
    ),
    Quirk(
        "dtype-fallback",
        "An unknown `torch_dtype` silently means bfloat16, an unknown `future_loss_type` pixel L1.",
        "An error in our layout. In upstream's layout upstream's meaning is kept, with a warning.",
    ),
    Quirk(
        "trained-encoders",
        "Text encoder and VAE are trained unless `trainer.freeze_modules` names them, as all joint launch scripts do.",
        "Both are always frozen; `model.backbone.train_text_encoder: true` trains the text encoder.",
        {"model.backbone.train_text_encoder": True},
    ),
    Quirk(
        "head-arithmetic",
        "Under DeepSpeed the head's times and noise are bfloat16, which merges time buckets above 512 in fours.",
        "Times and noise are float32 whatever the weights are stored in.",
    ),
    Quirk(
        "unnormalise",
        "`unnormalize_actions` uses the 1 % and 99 % quantiles although training normalises with minimum and maximum.",
        "Actions are un-normalised with the statistics that normalised them.",
    ),
)


def render() -> str:
    """The table as Markdown."""
    introduction = (
        "Where upstream is wrong, this package is right by default. Where a published result may depend on upstream's",
        "behaviour, a setting brings it back. A configuration in upstream's layout gets upstream's behaviour for the",
        "switches of data, schedule, times and losses without asking.",
    )
    source = "Written by `python -m vla_dit4dit.quirks`; edit models/dit4dit/quirks.py."
    return page("Differences from upstream DiT4DiT", source, introduction, QUIRKS)


if __name__ == "__main__":
    print(render(), end="")
