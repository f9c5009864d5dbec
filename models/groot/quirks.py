"""Where upstream's GR00T N1.7 behaves oddly, what this package does instead, and how to get upstream's behaviour.

`python -m vla_groot.quirks` prints docs/groot_quirks.md.
"""

from __future__ import annotations

from vla_train.quirks import Quirk, page

QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        "ignored-model-settings",
        "Fine-tuning ignores most settings of the model section (`select_layer`, number of DiT layers, ...), yet "
        "writes them into its configuration file.",
        "`model.architecture` changes what it names; a change that the weights do not fit is an error.",
    ),
    Quirk(
        "dropped-processor-settings",
        "Fine-tuning from a checkpoint drops nine processor settings without a word, such as `use_percentiles`, "
        "`crop_fraction` and `formalize_language`.",
        "Every setting under `model.processor` takes effect; those not given stay as the checkpoint has them.",
    ),
    Quirk(
        "state-dropout",
        "States are dropped twice in fine-tuning, as zeros by the processor and as zero features by the head, with "
        "the same chance p: 1 - (1 - p)^2 of the samples in all. The processor draws in evaluation too.",
        "Only the head drops, in training. examples/groot_libero.yaml drops twice, for the published run did.",
        {"model.processor.state_dropout_prob": 0.2},
    ),
    Quirk(
        "padding-attended",
        "The self-attention on the features and the plain DiT see padding, so a result depends on the other samples "
        "of its batch.",
        "As the checkpoint has it, because published weights were trained so; a new head does not see padding.",
        {"model.architecture.mask_feature_padding": False},
    ),
    Quirk(
        "action-padding-attended",
        "Padded action steps and dimensions are fed to the DiT as noise, in training and in inference.",
        "As the checkpoint has it; a new head keeps them at zero and hides padded steps.",
        {"model.architecture.strict_action_padding_mask": False},
    ),
    Quirk(
        "features-by-version",
        "The features are the last of `hidden_states`, which is taken before the final norm in transformers 4 and "
        "after it in 5.",
        "Always before the final norm, as published weights were trained.",
    ),
    Quirk(
        "wasted-work",
        "The language head is computed over all positions and thrown away; every cross-attention projects all features "
        "to keys and values, those it may not attend to included, anew at every denoising step.",
        "None of that is computed. The numbers are the same.",
    ),
    Quirk(
        "unused-norm",
        "`tune_llm` with DDP fails in the second step, because the final norm never gets a gradient.",
        "It trains with every strategy.",
    ),
    Quirk(
        "local-loss-mean",
        "The loss is the mean over the action values of a device's own batch, so devices with fewer values weigh more.",
        "The mean over the values of the global batch, whatever the number of devices.",
    ),
    Quirk(
        "inexact-resume",
        "A resumed run draws other data and noise than the uninterrupted one.",
        "A resumed run continues to the bit.",
    ),
    Quirk(
        "video-wraps-round",
        "Frames before the start of an episode (DROID looks 15 steps back) are taken from its end.",
        "The first frame is repeated, as a robot that has just started would send it.",
    ),
    Quirk(
        "hash-order",
        "The order of embodiment_id.json and of the keys of a batch changes with Python's hash seed.",
        "Files are sorted, batches have a fixed order.",
    ),
    Quirk(
        "nested-download",
        "Loading a checkpoint downloads the gated backbone and reads its weights, only to overwrite them; a local copy "
        "works only below a path called like the repository.",
        "Nothing but the checkpoint is read for weights. Any folder works, and exported checkpoints carry the "
        "backbone's small files.",
    ),
    Quirk(
        "unreadable-configuration",
        "A saved configuration with modality configs cannot be loaded again.",
        "`config.yaml` of a run and exported checkpoints load again; enumerations are read by name and by value.",
    ),
    Quirk(
        "unreachable-chunking",
        "The policy drops its options, so real-time chunking cannot be used through it or the server.",
        "Options reach the model; the second answer of `get_action` holds the chunk to hand in next time.",
    ),
    Quirk(
        "unseeded-policy",
        "Two calls of the policy differ, and the noise of one seed depends on device and precision.",
        "`options={'seed': 3}` repeats a call, with the same noise everywhere.",
    ),
    Quirk(
        "rounded-positions",
        "The policy converts the frequencies of the rotary embeddings to bfloat16 with the weights, as DeepSpeed does "
        "in training; on one device they are trained in float32.",
        "The same for a published checkpoint; runs of `vla train` are served as trained, and "
        "`GrootPolicy.load(..., exact_positions=True)` does that with their exports.",
    ),
    Quirk(
        "inference-mode",
        "The policy runs in inference mode, whose tensors ZeRO-3 and some chips' plugins cannot handle.",
        "No gradient and evaluation mode, restored afterwards.",
    ),
    Quirk(
        "horizon-of-strangers",
        "Fine-tuning checks the action horizon of every embodiment in the checkpoint, also of those not trained.",
        "Only embodiments in the data are checked.",
    ),
    Quirk(
        "statistics-kept",
        "Statistics of an embodiment that the checkpoint knows win over those of the new data, with a warning.",
        "Those of the new data win.",
        {"model.statistics": "checkpoint"},
    ),
    Quirk(
        "negative-variance",
        "Merged statistics of a constant value can have the square root of a negative variance.",
        "Rounding below zero counts as zero.",
    ),
    Quirk(
        "mean-std-flag",
        "`use_mean_std` is stored and never used.",
        "The same; name parts in `mean_std_embedding_keys` of a modality config to normalise them so.",
    ),
    Quirk(
        "assumed-chip",
        "`bf16` and `tf32` are asked for on every machine and fail on most; flash attention is chosen because it is "
        "installed.",
        "The backend says what its chip can do, and why not.",
    ),
)


def render() -> str:
    """The table as Markdown."""
    introduction = (
        "Where upstream is wrong, this package is right by default. Where a published result may depend on upstream's",
        "behaviour, the default is upstream's or a setting brings it back.",
    )
    source = "Written by `python -m vla_groot.quirks`; edit models/groot/quirks.py."
    return page("Differences from upstream GR00T N1.7", source, introduction, QUIRKS)


if __name__ == "__main__":
    print(render(), end="")
