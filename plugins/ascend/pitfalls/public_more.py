"""Failures from public issue trackers, more that were met often."""

from __future__ import annotations

from typing import Final

from vla_backend.pitfalls import Pitfall

_ASCEND: Final = "tests/plugins/test_ascend.py"
_BACKEND: Final = "tests/backend/test_backend.py"
_SIM: Final = "tests/ascend_sim/test_pitfalls.py"
_RULES: Final = "tests/ascend_sim/test_rules.py"
_KERNELS: Final = "tests/ascend_sim/test_kernels.py"

PUBLIC_MORE: Final = (
    Pitfall(
        "C14",
        "No decoder on aarch64, or no frames",
        "decord has no wheel for ARM; a decoder reports 0 frames.",
        "Ascend hosts are mostly aarch64.",
        "Decoders in an order per architecture; PyAV is always there; a truncated video is an error; the doctor "
        "decodes "
        "ten frames; all decoders give the same frames.",
        code=("vla_backend_ascend.data:video_ctx", "vla_train.data.decoders:defect"),
        errors=("video-decoder",),
        checks=("data.decoder",),
        doctor=("frames",),
        tests=(
            f"{_ASCEND}::test_decoders_by_architecture",
            "tests/data_path/test_video.py::test_same_frames_from_every_decoder",
            "tests/data_path/test_video.py::test_truncated_file_is_an_error_not_another_frame",
        ),
        source="torchcodec #1251 and #569, NeMo RL #2035, cosmos-reason1 #78",
    ),
    Pitfall(
        "C15",
        "flash-attn as a hard dependency",
        "`No module named 'flash_attn'`, or the model's default is flash_attention_2.",
        "Import at the top, an assertion on CUDA, a default in the published configuration.",
        "`attention_impl` answers what exists and computes the same; nothing imports flash-attn.",
        code=("vla_backend_ascend.train:attention_impl",),
        errors=("flash-attn",),
        checks=("attn_implementation",),
        tests=(
            f"{_ASCEND}::test_cuda_habits_in_the_configuration",
            "tests/plugins/test_ascend_stack.py::test_every_phase",
        ),
        source="Isaac-GR00T #309, flash-attention #1781, LlamaFactory #4361, starVLA PR #336",
    ),
    Pitfall(
        "C16",
        "Masks mean something else: wrong numbers, no error",
        "True keeps in torch's attention and drops in `npu_fusion_attention`; additive masks lose their bias.",
        "Opposite polarity, dropped bias, rows that are masked completely, another corner for causal masks.",
        "Models use torch's meaning; the hook turns it into the chip's; an additive mask gets an implementation that "
        "keeps it; the conformance kit compares polarity, broadcast and fully masked rows.",
        code=("vla_backend_ascend.train:attention_impl", "vla_train.nn.kernels:attend"),
        tests=(f"{_KERNELS}::test_attention", f"{_KERNELS}::test_positional_bias_is_scaled_with_the_scores"),
        source="diffusers #14397, transformers PR #48843, sglang PR #24582, vllm-omni PR #7324",
    ),
    Pitfall(
        "C17",
        "A mask is not broadcast",
        "`unsupported atten_mask shape` for (B, 1, 1, S).",
        "The kernel takes (B, N, S, S), (B, 1, S, S), (1, 1, S, S) and (S, S) only.",
        "Expanded in one place, as a view.",
        code=("vla_train.nn.kernels:attend",),
        errors=("mask-shape",),
        tests=(f"{_RULES}::test_refused", f"{_KERNELS}::test_attention"),
        source="diffusers PR #13490 and #13451, vllm-ascend #12623",
    ),
    Pitfall(
        "C18",
        "Complex rotary embeddings",
        "`aclnnIndex does not support DT_COMPLEX64`, or complex128 on the slow scalar processor.",
        "Complex operators are missing.",
        "The models here rotate in real numbers; `safe_dtype` narrows complex128; the conformance kit's census counts "
        "what "
        "falls back.",
        code=("vla_backend_ascend.precision:safe_dtype", "vla_train.conformance.census:operators_run_on_the_device"),
        errors=("float64-complex",),
        tests=(f"{_RULES}::test_refused", f"{_KERNELS}::test_rotary"),
        source="vllm-omni #4911 and PR #6571, DiffSynth PR #1191",
    ),
    Pitfall(
        "C19",
        "Inference mode between training steps under ZeRO-3",
        "`Inference tensors cannot be saved for backward`.",
        "As A8; also train mode without gradients confuses DeepSpeed's order of parameters.",
        "`backend.evaluating`: no_grad, evaluation mode, and every module's own mode restored.",
        code=("vla_backend.backend:Backend.evaluating",),
        errors=("inference-tensors", "zero3-not-gathered"),
        tests=(
            "tests/pitfalls/test_zero.py::test_training_goes_on_after_an_evaluation",
            f"{_BACKEND}::test_evaluating_restores_every_modules_mode",
        ),
        source="ms-swift #3237, ArcticTraining PR #265, DeepSpeed #4922",
    ),
    Pitfall(
        "C20",
        "bfloat16 to numpy",
        "`Got unsupported ScalarType BFloat16`.",
        "As A7.",
        "`to_numpy`: detached, on the host, float32.",
        code=("vla_backend.defaults.data:to_numpy",),
        errors=("numpy-bfloat16",),
        tests=(f"{_BACKEND}::test_to_numpy_dtypes", f"{_SIM}::test_bfloat16_to_numpy"),
        source="pytorch #110285, mteb #1297, vllm #393",
    ),
    Pitfall(
        "C21",
        "DeepSpeed's compiled operators",
        "`'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'`, in a destructor; offload that never frees.",
        "Compiled at first use, and a failure surfaces late.",
        "No compiled optimizer is asked for, also with offload; the shared-memory operator is never built; the doctor "
        "looks for a compiler.",
        code=("vla_backend_ascend.train:tune_deepspeed", "vla_train.train.zero:load_deepspeed"),
        errors=("deepspeed-op",),
        doctor=("compiler",),
        tests=(
            f"{_ASCEND}::test_offload_needs_no_compiled_optimizer",
            "tests/train/test_two_ranks.py::test_nothing_is_compiled_and_nobody_warns_each_step",
        ),
        source="DeepSpeed #7061 and #5677, LlamaFactory #6816, #5322, #5291 and #5347",
        limits="That offload buffers are given back on an NPU is not shown.",
    ),
    Pitfall(
        "C22",
        "Fused optimizers: names and state",
        "`adamw_torch_npu_fused` is unknown; a state that only its own device reads.",
        "A name per device, and merged tensors as state.",
        "`fused_optimizer` answers a class whose state is plain; runs continue on another device.",
        code=("vla_backend.defaults.train:fused_optimizer",),
        errors=("fused-optimizer",),
        tests=(
            "tests/ascend_sim/test_training.py::test_runs_continue_on_the_other_device",
            "tests/plugins/test_cpu.py::test_optimizer_takes_its_options_and_keeps_the_plain_state",
        ),
        source="ms-swift #7327, VeOmni PR #349",
    ),
    Pitfall(
        "C23",
        "Collectives that HCCL lacks or hangs in",
        "`hccl does not support dist.gather`; `all_gather_object` hangs; no average.",
        "NCCL is taken for granted.",
        "The engine uses sums on `collective_device` alone, and divides itself; DDP and DeepSpeed bring theirs, all of "
        "which run on the simulated HCCL.",
        code=("vla_train.train.world:World.sum", "vla_train.train.world:World.mean"),
        errors=("EI0001 hccl-setting", "EI0005 ranks-disagree"),
        doctor=("collective",),
        tests=(
            "tests/ascend_sim/test_hccl.py::test_collectives",
            "tests/ascend_sim/test_hccl.py::test_ranks_that_disagree",
        ),
        source="sgl-kernel-npu #669, twinkle PR #153, verl PR #7917, pytorch #162237",
    ),
    Pitfall(
        "C24",
        "HCCL's ports and timeouts",
        "EJ0003 (port 60000 bound), EI0002 after 1800 s, EI0006 after 120 s, a port above 65535.",
        "Fixed base ports, and three different timeouts.",
        "The launcher finds a free block of ports above those that Linux hands out, and sets all times from one.",
        code=("vla_backend_ascend.environment:free_base_port", "vla_backend_ascend.environment:timeouts"),
        errors=("EJ0003 hccl-port", "EI0002 collective-timeout", "EI0006 connect-timeout"),
        checks=("HCCL_IF_BASE_PORT", "HCCL_EXEC_TIMEOUT"),
        doctor=("HCCL ports",),
        tests=(
            f"{_ASCEND}::test_ports_lie_above_those_that_linux_hands_out",
            f"{_ASCEND}::test_one_timeout_sets_all",
            "tests/pitfalls/test_stack.py::test_base_port",
        ),
        source="vllm-ascend #405, #4725, #3413, #486 and PR #12318, ROLL PR #421, dlrover PR #1171, Ascend/pytorch #54",
    ),
    Pitfall(
        "C25",
        "CUDA capabilities as feature flags",
        "Falls to fp16 in silence, or a TypeError at import.",
        "As B8.",
        "`compute_dtype` says whether the chip has bfloat16, and otherwise why not.",
        code=("vla_backend_ascend.precision:compute_dtype", "vla_backend_cuda.precision:compute_dtype"),
        errors=("device-capability",),
        tests=(f"{_SIM}::test_cuda_capability", "tests/plugins/test_ascend_stack.py::test_every_phase"),
        source="LlamaFactory PR #5193, FlagGems PR #1549, vllm-plugin-FL #159, FastChat PR #2422",
    ),
)
