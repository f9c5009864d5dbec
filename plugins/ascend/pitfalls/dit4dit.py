"""What a port of DiT4DiT to Ascend 910B met under ZeRO-2 and ZeRO-3."""

from __future__ import annotations

from typing import Final

from vla_backend.pitfalls import Pitfall

_SIM: Final = "tests/ascend_sim/test_pitfalls.py"
_ZERO: Final = "tests/pitfalls/test_zero.py"
_STACK: Final = "tests/pitfalls/test_stack.py"
_MODELS: Final = "tests/pitfalls/test_models.py"

DIT4DIT: Final = (
    Pitfall(
        id="A1",
        title="More processes than cards",
        symptom="`hcom init failed: rank 8 assigned to same device as rank 0`, or EI0004",
        cause="With more processes than cards the ranks wrap around and two share a card.",
        guard="The number of processes is compared with the visible devices before anything starts, and a rank without "
        "a device of its own is refused.",
        code=("vla_train.launch.preflight:check_training", "vla_backend.defaults.launch:local_device"),
        errors=("EI0004 shared-device", "too-many-processes"),
        checks=("parallel.processes",),
        doctor=("devices", "npu nodes"),
        tests=(f"{_SIM}::test_more_ranks_than_devices",),
    ),
    Pitfall(
        id="A2",
        title="mx_driving changed its interface",
        symptom="`ImportError: cannot import name 'TransformersNPU' from 'mx_driving.tools.patch'`",
        cause="Its patcher has had three interfaces in three places; code written for one fails on the others.",
        guard="The plugin uses whichever is installed and reports every patch; absent or unknown is said, and nothing "
        "depends on it.",
        code=("vla_backend_ascend.patches:apply",),
        errors=("mx_driving-interface",),
        doctor=("mx_driving",),
        tests=(
            f"{_STACK}::test_mx_driving_moved_its_interface",
            "tests/plugins/test_ascend_patches.py::test_before_1_0",
            "tests/plugins/test_ascend_patches.py::test_builder",
        ),
        limits="Packages with the releases' names play mx_driving; its compiled part runs on NPUs only.",
    ),
    Pitfall(
        id="A3",
        title="Libraries of torch and torch_npu are not found",
        symptom="`OSError: libc10.so: cannot open shared object file`, the same with libtorch_npu.so",
        cause="The lib folders of the wheels are not on the linker's path.",
        guard="The launcher starts the processes with both folders in front of LD_LIBRARY_PATH.",
        code=("vla_backend_ascend.environment:library_path",),
        errors=("torch-library",),
        doctor=("libraries",),
        tests=(
            f"{_STACK}::test_library_folders_of_the_wheels",
            "tests/plugins/test_ascend.py::test_library_folders_come_in_front_of_the_users_path",
        ),
    ),
    Pitfall(
        id="A4",
        title="The card is full after loading the model",
        symptom="64 GB are used up: `NPU out of memory`",
        cause="The frozen text encoder lies on the card with gradients and optimizer state.",
        guard="Frozen networks are taken out of the model before optimizer and ZeRO see it; the text encoder may stay "
        "on "
        "the host, and prompts are kept on disk.",
        code=(
            "vla_train.train.setup:place_frozen",
            "vla_dit4dit.model:DiT4DiT.detach_frozen",
            "vla_dit4dit.prompt_store:PromptStore",
        ),
        errors=("EL0004 out-of-memory",),
        doctor=("memory",),
        tests=(f"{_SIM}::test_frozen_encoder_fills_the_card",),
        limits="An encoder of 60 MB on a simulated card of 200 MB, not the 7B one on 64 GB; `vla estimate` tells "
        "those.",
    ),
    Pitfall(
        id="A5",
        title="ZeRO-3 and parameters of two number formats",
        symptom="`RuntimeError: expected scalar type BFloat16 but found Float` in DeepSpeed's `defragment`; current "
        "releases raise a bare `AssertionError` there",
        cause="A bfloat16 transformer and a float32 head, VAE or text encoder among the parameters that ZeRO-3 "
        "manages. "
        "accelerate can make it worse: it registers its ZeRO-3 configuration with transformers, which then builds "
        "every model already sharded.",
        guard="Frozen networks stay out, in their own format (a VAE in bfloat16 shifts colours); trained weights get "
        "float32 masters; no DeepSpeed configuration is registered while a model is built.",
        code=("vla_train.train.strategy:float32_masters", "vla_train.train.setup:place_frozen"),
        errors=("zero3-two-dtypes", "zero3-sharded-at-birth"),
        tests=(
            f"{_ZERO}::test_parameters_of_two_dtypes",
            "tests/train/test_two_ranks.py::test_zero3_trains_weights_stored_in_two_dtypes_in_float32",
            "tests/train/test_two_ranks.py::test_recorded_steps_of_upstream_on_two_ranks",
        ),
    ),
    Pitfall(
        id="A6",
        title="Actions are cut in training and not in evaluation",
        symptom="`The size of tensor a (16) must match the size of tensor b (8)` at evaluation",
        cause="Actions and their mask are cut to the action horizon in one code path only.",
        guard="The head cuts both in one place, and evaluation compares with the recorded actions of the dataset's "
        "horizon.",
        code=("vla_dit4dit.action_head:FlowMatchingActionHead.loss", "vla_train.evaluate:evaluate_model"),
        errors=("action-horizon",),
        tests=(f"{_MODELS}::test_actions_longer_than_the_horizon",),
    ),
    Pitfall(
        id="A7",
        title="bfloat16 to numpy",
        symptom="`TypeError: Got unsupported ScalarType BFloat16`",
        cause="numpy has no bfloat16.",
        guard="Engine and models convert through the hook `to_numpy`, which widens to float32.",
        code=("vla_backend.defaults.data:to_numpy",),
        errors=("numpy-bfloat16",),
        tests=(f"{_SIM}::test_bfloat16_to_numpy", "tests/backend/test_backend.py::test_to_numpy_dtypes"),
    ),
    Pitfall(
        id="A8",
        title="Evaluation in inference mode under ZeRO-3",
        symptom="`AssertionError: tensor has no storage`; current releases: `RuntimeError: Inference tensors cannot be "
        "saved for backward` in the evaluation or in every later training step",
        cause="ZeRO-3 keeps what it gathered under `torch.inference_mode()`.",
        guard="Evaluation goes through `backend.evaluating` (no_grad, never inference mode), and the plugin switches "
        "`memory_efficient_linear` off, which keeps such tensors.",
        code=("vla_backend.backend:Backend.evaluating", "vla_backend_ascend.train:tune_deepspeed"),
        errors=("inference-tensors",),
        tests=(
            f"{_ZERO}::test_training_goes_on_after_an_evaluation",
            "tests/plugins/test_ascend.py::test_zero3_linear",
        ),
    ),
    Pitfall(
        id="A9",
        title="Saving under ZeRO-3 hangs",
        symptom="Rank 0 runs out of memory or waits, the others wait for ever",
        cause="The full state is gathered, on rank 0 alone.",
        guard="Every rank writes its own shard, nothing is gathered; `vla checkpoint export` puts the shards together "
        "later, without devices.",
        code=("vla_backend.defaults.sharded:save", "vla_train.checkpoint.weights:consolidated"),
        errors=("collective-timeout", "EI0002 collective-timeout"),
        tests=(f"{_ZERO}::test_saving_does_not_wait_for_a_gather",),
        limits="The wait is shown until a limit of 4 s; memory running out at rank 0 is not, the toy state is small.",
    ),
    Pitfall(
        id="A10",
        title="bf16 declared twice",
        symptom="`mixed_precision is set to 'bf16' in both accelerate config and DeepSpeed config`; current accelerate "
        "trains in float32 without a word if DeepSpeed's file says so",
        cause="Precision has two owners.",
        guard="`parallel.mixed_precision` alone decides; DeepSpeed's settings are made from it, and a contradiction "
        "is an "
        "error that names both.",
        code=("vla_train.config.precision:conflicts", "vla_train.train.deepspeed_config:deepspeed_config"),
        errors=("precision-twice",),
        checks=("parallel.deepspeed", "parallel.mixed_precision"),
        tests=(
            f"{_STACK}::test_precision_in_both_files",
            "tests/config/test_precision.py::test_contradictions",
            "tests/plugins/test_ascend.py::test_precision_has_one_owner",
        ),
    ),
    Pitfall(
        id="A11",
        title="The data loader asks for a GPU",
        symptom="`CUDA error: no CUDA-capable device is detected` from a data worker",
        cause="decord was told gpu(0).",
        guard="The hook `video_ctx` names decoders and their device; on NPUs that is the CPU.",
        code=("vla_backend_ascend.data:video_ctx", "vla_train.data.decoders:DecordReader"),
        errors=("asked-for-cuda", "video-decoder"),
        checks=("data.decoder",),
        doctor=("frames",),
        tests=(
            f"{_MODELS}::test_decoder_on_a_gpu_that_is_not_there",
            "tests/plugins/test_ascend.py::test_cuda_habits_in_the_configuration",
        ),
        limits="decord's CPU wheel says `CUDA not enabled` instead; the other message needs its CUDA build.",
    ),
    Pitfall(
        id="A12",
        title="hccl timeout after 1800 s",
        symptom="`hccl timeout after 1800s`, EI0002",
        cause="A dead or slow rank, or a network that loses packets; HCCL's times and torch's differ, and the shortest "
        "ends the job.",
        guard="`parallel.dist_timeout` sets HCCL's times and every process group's; buckets shrink from 5e8 to 1e8; "
        "the "
        "rank that failed first is named, and its peers are ended.",
        code=(
            "vla_backend_ascend.environment:timeouts",
            "vla_train.train.world:join",
            "vla_backend_ascend.train:tune_deepspeed",
            "vla_train.launch.failure:recorded",
        ),
        errors=("EI0002 collective-timeout", "EI0006 connect-timeout"),
        checks=("HCCL_EXEC_TIMEOUT", "HCCL_CONNECT_TIMEOUT"),
        doctor=("collective", "HCCL ports"),
        tests=(
            f"{_SIM}::test_one_rank_is_late",
            "tests/ascend_sim/test_hccl.py::test_dead_peer_is_named",
            "tests/train/test_loop.py::test_groups_made_by_deepspeed_get_the_jobs_timeout",
            "tests/cli/test_supervise.py::test_failing_rank_ends_the_others_and_is_shown_once",
        ),
        limits="A network that loses packets needs hardware; shown are late, hanging and dead ranks.",
    ),
)
