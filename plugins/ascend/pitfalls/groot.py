"""What a port of GR00T N1.7 to Ascend 910B met."""

from __future__ import annotations

from typing import Final

from vla_backend.pitfalls import Pitfall

_SIM: Final = "tests/ascend_sim/test_pitfalls.py"
_STACK: Final = "tests/pitfalls/test_stack.py"
_MODELS: Final = "tests/pitfalls/test_models.py"

GROOT: Final = (
    Pitfall(
        id="B1",
        title="The published mx_driving lacks classes",
        symptom="`ImportError: TransformersNPU`",
        cause="The wheel is older than the sources that the port was written against.",
        guard="As A2: the plugin looks for what the installed release has and says what it lacks.",
        code=("vla_backend_ascend.patches:apply",),
        errors=("mx_driving-interface",),
        doctor=("mx_driving",),
        tests=(
            f"{_STACK}::test_mx_driving_lacks_classes",
            "tests/plugins/test_ascend_patches.py::test_unknown_interface",
        ),
        limits="Packages with the releases' names play mx_driving.",
    ),
    Pitfall(
        id="B2",
        title="Two accelerators: npu and npu",
        symptom="`Two accelerators cannot be used at the same time in PyTorch: npu and npu`",
        cause="torch_npu is imported again, by mx_driving or `transfer_to_npu`, after a first import that failed "
        "half-way "
        "and whose error nobody saw.",
        guard="The plugin owns the import order: torch, then torch_npu, each once; the first failure is kept and "
        "repeated. "
        "Nothing ever poses as CUDA, also not while mx_driving is imported.",
        code=("vla_backend_ascend.launch:load_stack", "vla_backend_ascend.patches:_without_spoof"),
        errors=("npu-twice",),
        checks=("TORCH_TRANSFER_TO_NPU",),
        doctor=("torch_npu", "variables"),
        tests=(
            f"{_STACK}::test_second_import_of_torch_npu",
            f"{_STACK}::test_settings_that_bring_it_about_are_refused",
            "tests/plugins/test_ascend_patches.py::test_release_26",
        ),
        limits="A package with the check of torch_npu 2.7.1 plays it; torch_npu 2.13 lets a second import pass.",
    ),
    Pitfall(
        id="B3",
        title="Embodiment tags changed",
        symptom="`Unknown tag: fourier_gr1`",
        cause="Release 1.7 has other tags than 1.6.",
        guard="The error lists the known tags and the nearest; published aliases are understood.",
        code=("vla_groot.embodiments:resolve_tag",),
        errors=("embodiment-tag",),
        tests=(f"{_MODELS}::test_tag_of_another_release",),
    ),
    Pitfall(
        id="B4",
        title="A gated repository on the hub",
        symptom="403 for Cosmos-Reason2-2B",
        cause="Its owner asks everybody to accept a licence.",
        guard="A local folder works wherever a hub id does, without asking the hub; the error says which page to "
        "accept.",
        code=("vla_groot.hub:resolve", "vla_dit4dit.cosmos:load_parts"),
        errors=("hub-gated", "hub-unreachable"),
        doctor=("files",),
        tests=(f"{_MODELS}::test_gated_repository", "tests/models/groot/test_checkpoint.py::TestErrors::test_hub"),
        limits="The hub's answer is played by its own exception.",
    ),
    Pitfall(
        id="B5",
        title="A collective on CPU tensors",
        symptom="`No backend type associated with device type cpu`",
        cause="The code relied on a CPU group beside the device's.",
        guard="The engine's tensors for collectives are made on `collective_device`; its sums move theirs there.",
        code=("vla_train.train.world:World.sum", "vla_backend.defaults.train:collective_device"),
        errors=("cpu-collective",),
        doctor=("collective",),
        tests=(f"{_SIM}::test_collective_on_a_cpu_tensor",),
    ),
    Pitfall(
        id="B6",
        title="Forked data workers",
        symptom="`Cannot re-initialize NPU in forked subprocess`",
        cause="Workers are forked after the NPU was initialised.",
        guard="The backend says how workers start (spawn), so that there can be workers at all.",
        code=("vla_train.data.loader:build_loader", "vla_backend.defaults.data:dataloader_defaults"),
        errors=("forked-device", "107002 no-context"),
        tests=(
            f"{_SIM}::test_forked_workers",
            "tests/ascend_sim/test_runtime.py::test_child_of_fork_cannot_use_the_device",
        ),
    ),
    Pitfall(
        id="B7",
        title="Pinning what is on the device",
        symptom="`cannot pin 'npuFloatType'`",
        cause="pin_memory is on, and samples lie on the NPU already.",
        guard="The loader pins only where the backend says so, and samples stay on the CPU until `to_device`.",
        code=("vla_train.data.loader:build_loader", "vla_backend.defaults.data:pin_memory_ok"),
        errors=("pinned-npu-tensor",),
        tests=(f"{_SIM}::test_pinning_what_is_on_the_device",),
    ),
    Pitfall(
        id="B8",
        title="CUDA's compute capability as a feature flag",
        symptom="`cannot unpack non-iterable NoneType object`, `'NoneType' object is not subscriptable`",
        cause="`get_device_capability()` is None on an NPU.",
        guard="Models ask for what they mean: `compute_dtype`, `attention_impl`; no module of engine and models names "
        "a "
        "device.",
        code=("vla_backend_ascend.precision:compute_dtype", "vla_backend_ascend.train:attention_impl"),
        errors=("device-capability",),
        tests=(f"{_SIM}::test_cuda_capability", "tests/test_layers.py::test_no_device_name_in_engine_and_models"),
    ),
)
