"""Failures from public issue trackers, those met less often."""

from __future__ import annotations

from typing import Final

from vla_backend.pitfalls import Pitfall

_ASCEND: Final = "tests/plugins/test_ascend.py"
_PROBE: Final = "tests/plugins/test_ascend_probe.py"
_RULES: Final = "tests/ascend_sim/test_rules.py"
_MESSAGES: Final = "tests/pitfalls/test_messages.py"

PUBLIC_REST: Final = (
    Pitfall(
        "C26",
        "float64",
        "`does not support DT_DOUBLE`, or float32 in silence.",
        "NPUs have no float64 in most operators.",
        "`to_device` narrows to float32 on the host; the models here make no float64 on the device.",
        code=("vla_backend_ascend.precision:safe_dtype", "vla_backend.backend:Backend.to_device"),
        errors=("float64-complex",),
        tests=(f"{_RULES}::test_refused", "tests/plugins/test_ascend_stack.py::test_every_phase"),
        source="LongCat-Image #21, pytorch #122602",
    ),
    Pitfall(
        "C27",
        "Conv3d of a patch embedding in bfloat16",
        "Fails on some releases, and is slow on all chips.",
        "A convolution whose stride is its kernel is a matrix product, which libraries do not notice.",
        "GR00T's patch embedding is computed as a matrix product, the VAE's first frame in two dimensions.",
        code=("vla_groot.backbone:_PatchProjection", "vla_dit4dit.wan:CausalConv3d"),
        tests=(
            "tests/models/dit4dit/test_wan.py::test_encoding_equals_the_library",
            "tests/models/dit4dit/test_wan.py::test_bfloat16_is_as_near_to_float32_as_the_library",
        ),
        source="LlamaFactory #6694, transformers #45750",
        limits="The failing kernel itself needs an NPU.",
    ),
    Pitfall(
        "C28",
        "Operators that fall back to the host unseen",
        "A step is slow for no visible reason, or fails later.",
        "torch_npu runs missing operators on the CPU.",
        "`vla plugin check ascend --tier census` names what fell back during a training step.",
        code=("vla_train.conformance.census:take",),
        tests=(
            "tests/conformance/test_builtin.py::test_cpu_passes_every_tier",
            "tests/ascend_sim/test_operators.py::test_unknown_operator_fails_by_name",
        ),
        source="Ascend/pytorch #40 and #51, MinerU #1695, vllm-omni PR #755",
    ),
    Pitfall(
        "C29",
        "Padding by replication in bfloat16",
        "`F.pad(mode='replicate')` fails.",
        "No kernel for bfloat16.",
        "Out of scope: no model here pads so. A model that does can pad in `fp32_region`.",
        source="Helios #71",
    ),
    Pitfall(
        "C30",
        "Sampling from a Beta distribution",
        "Fails or falls back on the device; other draws on each chip.",
        "The chip has no Dirichlet kernel, and `torch.tensor` follows a default device.",
        "`sampling_device` names where to draw; all draws of a model go through one object.",
        code=("vla_train.nn.draws:Draws.beta", "vla_backend.defaults.runtime:sampling_device"),
        tests=(
            "tests/models/dit4dit/test_draws.py::test_default_draws_are_torchs_own",
            "tests/ascend_sim/test_demo.py::test_one_npu",
        ),
        source="lerobot PR #4077",
    ),
    Pitfall(
        "C31",
        "numpy 2 and CANN",
        "Error 500001 at `set_device`.",
        "CANN's Python part was written for numpy 1.",
        "Not prevented: which CANN needs which numpy is not published. The error is explained.",
        errors=("operator-compiler", "numpy-2"),
        tests=(f"{_MESSAGES}::test_vendor_messages",),
        source="vllm-ascend #1875 and #2210",
        limits="Needs CANN.",
    ),
    Pitfall(
        "C32",
        "Packages that CANN needs and does not declare",
        "`No module named 'decorator'`, scipy, attrs, psutil.",
        "CANN's operator compiler imports them.",
        "Part of the extra `ascend`; the doctor looks for them.",
        code=("vla_backend_ascend.doctor:checks",),
        errors=("operator-compiler",),
        doctor=("its packages",),
        tests=(f"{_ASCEND}::test_errors",),
        source="DrivingSDK OpenVLA",
    ),
    Pitfall(
        "C33",
        "libgomp and static TLS on aarch64",
        "`cannot allocate memory in static TLS block`.",
        "Libraries loaded before libgomp used up the room for thread-local data.",
        "Not prevented: it depends on what a user's program loads first. The error names the remedy.",
        errors=("static-tls",),
        tests=(f"{_ASCEND}::test_errors",),
        source="LlamaFactory #8768, Ascend/pytorch #7",
        limits="Needs aarch64.",
    ),
    Pitfall(
        "C34",
        "Device strings in safetensors",
        "`device mps:0 is invalid`; 'cuda' loads onto the first card on every rank.",
        "The library has its own list of device names.",
        "All weights are loaded on the CPU and moved.",
        code=("vla_backend.defaults.sharded:load", "vla_train.train.setup:build_model"),
        errors=("safetensors-device",),
        tests=("tests/backend/test_sharded.py::test_round_trip_at_any_world_size",),
        source="safetensors #674, lerobot `resolve_safetensors_device`",
    ),
    Pitfall(
        "C35",
        "Random state is not restored",
        "A resumed run draws other numbers.",
        "The device's generator is forgotten, or a generator of the wrong device.",
        "`rng_state` and `set_rng_state` cover every generator that training uses, on each rank.",
        code=("vla_backend.defaults.runtime:rng_state", "vla_train.checkpoint.resume:restore_rng"),
        tests=(
            "tests/train/test_checkpoint.py::test_random_state_survives_exactly",
            "tests/ascend_sim/test_demo.py::test_resume_on_the_same_devices_is_exact",
        ),
        source="accelerate #4283 and PR #4308, open-instruct PR #1781",
    ),
    Pitfall(
        "C36",
        "FSDP2's checkpoint plan at thousands of devices",
        "Planning times out; bfloat16 parameters in FSDP2's preparation.",
        "Every rank plans with every other.",
        "Out of scope: data parallel and ZeRO are the strategies here, and their shards need no plan.",
        source="accelerate PR #4105, ms-swift `npu_patch/fsdp.py`",
    ),
    Pitfall(
        "C37",
        "Allocator options that exclude each other",
        "`max_split_size_mb ... cannot be enabled with expandable_segments` at the first tensor.",
        "Two options in PYTORCH_NPU_ALLOC_CONF.",
        "The launcher sets one option that works, and a user's pair that does not is an error before the start. Sleep "
        "mode of inference servers is out of scope.",
        code=("vla_backend_ascend.config_checks:issues",),
        errors=("allocator-settings",),
        checks=("PYTORCH_NPU_ALLOC_CONF",),
        doctor=("settings",),
        tests=("tests/pitfalls/test_stack.py::test_allocator_settings",),
        source="vllm-ascend PR #5855, SkyRL PR #1768",
    ),
    Pitfall(
        "C38",
        "Patches that rot",
        "`_sdpa_npu_redirect() got an unexpected keyword 'enable_gqa'` after an upgrade of transformers.",
        "A patch replaces a function of another release.",
        "Patches are data with a range of versions and a fingerprint of what they replace; a mismatch is reported and "
        "the patch left out.",
        code=("vla_backend_ascend.patch_table:objection",),
        tests=("tests/plugins/test_ascend_patches.py::test_a_patch_that_does_not_fit_is_reported_and_changes_nothing",),
        source="LlamaFactory PR #9368",
    ),
    Pitfall(
        "C39",
        "Hard-coded streams",
        "`torch.cuda.Stream` on another chip.",
        "Copies and computation are overlapped by hand.",
        "Engine and models use no streams and name no device; overlap is the loader's and DeepSpeed's business.",
        code=("vla_backend.backend:Backend.synchronize",),
        tests=("tests/test_layers.py::test_no_device_name_in_engine_and_models",),
        source="diffusers PR #14785, unsloth PR #10686",
    ),
    Pitfall(
        "C40",
        "An asynchronous error shows the wrong line",
        "`stacktrace may be inaccurate ... ASCEND_LAUNCH_BLOCKING=1`; also an environment that nobody sourced, and "
        "`os.getenv` that torch_npu has patched.",
        "Operators are launched ahead.",
        "The explanation says so and names the variable; with it set the launcher leaves the queue out; CANN's "
        "environment is probed before anything is imported, and the plugin reads `os.environ`.",
        code=("vla_backend_ascend.environment:defaults", "vla_backend_ascend.stack:problems"),
        errors=("507015 kernel", "cann-environment"),
        checks=("ASCEND_LAUNCH_BLOCKING",),
        doctor=("CANN", "variables"),
        tests=(f"{_ASCEND}::test_the_user_decides", f"{_PROBE}::test_cann_not_sourced", f"{_ASCEND}::test_errors"),
        source="Helios #62, ms-swift FAQ Q5 and `npu_patch/env.py`",
    ),
)
