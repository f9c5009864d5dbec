"""Failures from public issue trackers, those met most."""

from __future__ import annotations

from typing import Final

from vla_backend.pitfalls import Pitfall

_ASCEND: Final = "tests/plugins/test_ascend.py"
_PROBE: Final = "tests/plugins/test_ascend_probe.py"
_BACKEND: Final = "tests/backend/test_backend.py"
_SIM: Final = "tests/ascend_sim/test_pitfalls.py"

PUBLIC: Final = (
    Pitfall(
        "C1",
        "The plugin does not load, and the job runs on the CPU without a word",
        'DeepSpeed logs "Setting accelerator to CPU", or one actor of many is slow.',
        "A broad `except: pass` around loading, and a default that is the CPU.",
        "An explicit backend that cannot load or run is an error with the original traceback; the automatic choice "
        "says "
        "what it passed over and why; the run's first lines name the backend.",
        code=("vla_backend.discovery:choose", "vla_backend.activation:activate"),
        tests=(
            "tests/backend/test_discovery.py::test_import_failure_is_chained",
            "tests/backend/test_discovery.py::test_automatic_passes_over_a_broken_plugin_with_its_reason",
            "tests/cli/test_train.py::test_explicit_backend_that_cannot_run_is_an_error",
        ),
        source="vllm #48277, DeepSpeed #7281, Open-Reasoner-Zero #73",
    ),
    Pitfall(
        "C2",
        "`transfer_to_npu` makes libraries believe in CUDA",
        "`torch.cuda.is_available()` is true on an NPU, so libraries choose NCCL and CUDA code.",
        "A package imports torch_npu's stand-in for CUDA.",
        "Never imported by the plugin; kept away while mx_driving is imported; one that is active already is said at "
        "the "
        "start and kept in the run's ledger.",
        code=("vla_backend_ascend.patches:_without_spoof", "vla_backend.coexistence:rewrites"),
        checks=("TORCH_TRANSFER_TO_NPU",),
        tests=(
            "tests/plugins/test_ascend_patches.py::test_release_26",
            "tests/plugins/test_ascend_patches.py::test_an_active_spoof_is_reported",
            "tests/backend/test_coexistence.py::test_known_packages_are_named",
        ),
        source="accelerate #3020",
    ),
    Pitfall(
        "C3",
        "Rewriting strings breaks paths and numbers",
        "'cuda' in any argument becomes 'npu', jit.script is off, float64 becomes float32 in silence.",
        "`transfer_to_npu` rewrites arguments.",
        "No argument is ever rewritten: models ask for the device, and `to_device` casts only what the chip lacks.",
        code=("vla_backend.backend:Backend.to_device", "vla_backend_ascend.precision:safe_dtype"),
        checks=("TORCH_TRANSFER_TO_NPU",),
        tests=(
            f"{_BACKEND}::test_to_device_moves_nested_batches",
            "tests/plugins/test_ascend_stack.py::test_every_phase",
        ),
        source="ktransformers #1536, vllm-ascend #397",
    ),
    Pitfall(
        "C4",
        "An integer device means CUDA",
        "`.to(0)`: `Torch not compiled with CUDA enabled`.",
        "torch gives bare integers to the accelerator it was compiled for.",
        "`local_device` answers a torch.device with type and index, and engine and models contain no device name.",
        code=("vla_backend.defaults.launch:local_device",),
        errors=("asked-for-cuda",),
        tests=(
            "tests/backend/test_defaults.py::test_default_device_is_refused_when_there_are_too_few",
            "tests/test_layers.py::test_no_device_name_in_engine_and_models",
            f"{_ASCEND}::test_errors",
        ),
        source="Ascend/pytorch #16, transformers #38468, DeepSpeed PR #5464",
    ),
    Pitfall(
        "C5",
        "Autocast silently off, or the float32 island silently lost",
        "Mixed precision has no effect off CUDA, or a head computes in bfloat16.",
        "A hard-coded 'cuda'; `nullcontext` is not off; leaving autocast does not cast what was computed in it.",
        "`autocast` and `fp32_region` of the backend; the head casts its inputs, and its layers follow them.",
        code=("vla_backend.backend:Backend.autocast", "vla_backend.backend:Backend.fp32_region"),
        errors=("mixed-dtypes",),
        tests=(
            f"{_BACKEND}::test_autocast_and_fp32_region_really_switch",
            "tests/ascend_sim/test_demo.py::test_float32_regions_are_float32_under_bfloat16",
        ),
        source="Lightning #21815, Real-ESRGAN #12, lerobot PR #3912",
    ),
    Pitfall(
        "C6",
        "torch_npu on a node without NPUs crashes unrelated imports",
        "`libascend_hal.so: cannot open shared object file` from accelerate or diffusers.",
        "The vendor's stack is imported to find out whether it is there.",
        "Probing reads files and metadata only; another backend hides torch_npu from libraries that would import it.",
        code=("vla_backend_ascend.identity:probe", "vla_backend_cpu.launch:load_stack"),
        errors=("driver-library",),
        doctor=("driver", "libraries"),
        tests=(
            f"{_BACKEND}::test_probing_all_backends_imports_no_torch",
            "tests/backend/test_extensions.py::test_hidden_from_libraries_yet_known_to_be_installed",
        ),
        source="accelerate #3754, vllm-ascend #262 and #166",
    ),
    Pitfall(
        "C7",
        "Versions that do not belong together",
        "`undefined symbol`, `No module named 'tbe.common'`.",
        "torch, torch_npu, CANN and the driver are one set.",
        "Compared before torch is imported, from metadata; the remedy is the pip line.",
        code=("vla_backend_ascend.stack:problems",),
        errors=("version-set", "operator-compiler"),
        doctor=("torch_npu", "CANN", "driver"),
        tests=(f"{_PROBE}::test_versions_agree_to_the_patch_level",),
        source="sglang #28628, Ascend/pytorch #29, #35 and #99, triton-ascend #328",
    ),
    Pitfall(
        "C8",
        "Autoload hides the cause",
        "`Failed to load the backend extension: torch_npu`.",
        "torch imports torch_npu while it is imported itself, and wraps the error; with triton first it is circular.",
        "The launcher switches autoload off, and the plugin imports torch_npu after torch, keeping the cause.",
        code=("vla_backend_ascend.launch:load_stack", "vla_backend_ascend.environment:defaults"),
        errors=("autoload",),
        tests=(
            "tests/plugins/test_ascend_stack.py::test_a_broken_torch_npu_is_explained",
            f"{_ASCEND}::test_environment",
        ),
        source="torch-spyre PR #3659, FlagTree #1024",
    ),
    Pitfall(
        "C9",
        "Visible devices shrink in silence",
        '`ASCEND_RT_VISIBLE_DEVICES=1,0` shows none, "0,7,1" one of two.',
        "The runtime stops at the first index that does not exist or does not ascend.",
        "The mask is read as the runtime reads it, and anything it would drop is an error with a mask that works.",
        code=("vla_backend_ascend.hardware:visible",),
        checks=("ASCEND_RT_VISIBLE_DEVICES",),
        doctor=("npu nodes",),
        tests=(
            f"{_PROBE}::test_masks_that_the_runtime_shrinks_in_silence_are_refused",
            "tests/ascend_sim/test_runtime.py::test_visible_devices",
        ),
        source="vllm-ascend PR #10227, Trinity-RFT PR #618, gpustack #3352",
    ),
    Pitfall(
        "C10",
        "Physical and logical numbers",
        "`107001 invalid device id` under a scheduler.",
        "Schedulers give physical numbers, `set_device` wants positions among the visible; there are two variables.",
        "Ranks take positions; ASCEND_VISIBLE_DEVICES, which is for containers, is explained when it stands alone.",
        code=("vla_backend.defaults.launch:local_device", "vla_backend_ascend.config_checks:issues"),
        errors=("107001 invisible-device",),
        checks=("ASCEND_VISIBLE_DEVICES",),
        doctor=("npu nodes",),
        tests=(f"{_ASCEND}::test_masks", f"{_PROBE}::test_container_nodes_start_anywhere"),
        source="verl PR #7507, HAMi #1894, lmdeploy PR #4722, vllm-ascend #2879",
    ),
    Pitfall(
        "C11",
        "Early initialisation freezes the devices and poisons fork",
        "`Cannot re-initialize NPU in forked subprocess`; a later device mask has no effect.",
        "A name or version query, or an import, initialises the runtime.",
        "Hooks have phases: none before `local_device` may touch the device, and a test and the conformance kit watch.",
        code=("vla_backend.resolve:call_for", "vla_train.conformance.watch:watching"),
        errors=("forked-device",),
        tests=(f"{_BACKEND}::test_phases", "tests/plugins/test_ascend_stack.py::test_every_phase"),
        source="vllm-ascend #4502 and #3133, xinference PR #1408",
    ),
    Pitfall(
        "C12",
        "Forked workers break decoders",
        "Decoding errors or hangs with several workers.",
        "Open decoders, file offsets and thread pools are shared with the parent.",
        "Workers are spawned, and each opens its own videos.",
        code=("vla_backend.defaults.data:dataloader_defaults", "vla_train.data.video:read_frames"),
        errors=("unpicklable",),
        tests=("tests/data_path/test_loader.py::test_workers_return_what_the_trainer_would_load",),
        source="lerobot #2488, PR #3520 and PR #4526",
    ),
    Pitfall(
        "C13",
        "pin_memory crashes or is silently off",
        "`torch.cuda.current_device()` from a data loader on another chip.",
        "The API's default is CUDA, and every repository copies its own test.",
        "One place builds the loader and asks `pin_memory_ok`.",
        code=("vla_train.data.loader:build_loader", "vla_backend.defaults.data:pin_memory_ok"),
        errors=("pinned-npu-tensor",),
        tests=(f"{_SIM}::test_pinning_what_is_on_the_device",),
        source="VeOmni PR #211, pytorch #159740",
    ),
)
