"""The kit fails every plugin with a mistake on the device, at the check that is about it, and names the mistake."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

from tests.conformance.broken import arithmetic, with_torch
from tests.conformance.broken.sound import Present
from vla_backend import Candidate
from vla_train.conformance import select
from vla_train.conformance.census import has_kernel
from vla_train.conformance.session import run_here
from vla_train.conformance.subject import Subject

#: Starting a process takes seconds; the built-in backends are checked with it.
LEFT_OUT = ("workers_start_beside_the_device",)

FUSED = ("fused_attention", "fused_rms_norm", "fused_rotary")

#: Class -> tier, the check that fails, what its message says, and checks that the same mistake fails as well.
MISTAKES = {
    "SaysNothingLoaded": ("contract", "load_stack", r"does not say what it imported(.|\n)*\(\)"),
    "EarlyDevice": ("contract", "hooks_before_the_device", r"apply_patches initialises the device(.|\n)*'mychip'", "*"),
    "OtherPrecision": ("contract", "precision_is_what_was_asked", r"another precision than.*bf16(.|\n)*float32"),
    "ChangesDefaultPrecision": ("contract", "default_precision_changes_nothing", r"changes settings(.|\n)*'high'"),
    "UnknownOptimizer": ("contract", "fused_optimizers_exist", r"cannot be made(.|\n)*MyChipAdamW"),
    "SharesDevices": ("contract", "one_device_per_rank", r"rank 1 a device although 1 are visible(.|\n)*cpu"),
    "StumblesOverRanks": ("contract", "one_device_per_rank", r"AttributeError: 'NoneType' object has no attribute"),
    "OtherDevice": ("contract", "one_device_per_rank", r"device of the type 'meta'(.|\n)*says 'cpu'", "*"),
    "NoContext": ("contract", "hooks_with_the_device", r"'fp32_region'.*answered None"),
    "EmptyRegion": ("semantics", "fp32_region_is_exact", r"within autocast\(torch.bfloat16\) is torch.bfloat16", "*"),
    "ShortRegion": ("semantics", "fp32_region_is_exact", r"leaves autocast on", "*"),
    "AutocastElsewhere": ("semantics", "autocast_computes_in_the_dtype", r"answered 'cuda' for a 'cpu'", "*"),
    "InferenceMode": ("semantics", "evaluating_leaves_training_possible", r"inference_mode"),
    "EvaluatesWithGradients": ("semantics", "evaluating_leaves_training_possible", r"records gradients"),
    "HalvesNumbers": ("semantics", "to_numpy_keeps_values", r"changes the values(.|\n)*float16"),
    "PlainNumpy": ("semantics", "to_numpy_keeps_values", r"to_numpy fails for a tensor that is bfloat16"),
    "NarrowsFloat64": ("semantics", "safe_dtype_narrows_nothing", r"narrows float64(.|\n)*torch.float32"),
    "PinsInVain": ("semantics", "pinned_batch_arrives", r"pin_memory_ok answers true where pinning"),
    "ForgetsGenerator": ("semantics", "rng_state_restores_draws", r"draws other numbers(.|\n)*holds nothing"),
    "DrawsForState": ("semantics", "rng_state_advances_nothing", r"rng_state advances the generator of 'cpu'"),
    "SeedForState": ("semantics", "rng_state_restores_draws", r"no CPU tensor of bytes"),
    "StrictGenerators": (
        "semantics",
        "rng_state_of_another_chip",
        r"refuses the states of another chip",
    ),
    "SamplesNowhere": ("semantics", "sampling_device_can_draw", r"cannot be drawn on meta"),
    "Mebibytes": ("semantics", "memory_is_counted_in_bytes", r"for an allocation of 67108864 bytes(.|\n)*answer bytes"),
    "ForgetsWeights": ("semantics", "sharded_checkpoint_comes_back", r"does not bring back 'model.0.weight'"),
    "StumblesOverFiles": ("semantics", "sharded_checkpoint_comes_back", r"AttributeError: 'NoneType' object"),
    "DropsOptimizer": ("semantics", "sharded_checkpoint_comes_back", r"does not bring back 'optimizer\."),
    "NamesNoFiles": ("semantics", "sharded_checkpoint_comes_back", r"does not answer the files it wrote(.|\n)*\[\]"),
    "HostInDisguise": (
        "census",
        "operators_run_on_the_device",
        r"The host computes .*attention(.|\n)*addmm \(no XPU",
    ),
    "OtherRule": ("numerics", "optimizer_follows_its_rule", r"another update than AdamW: torch.optim.adam.Adam"),
    "OtherState": ("numerics", "optimizer_follows_its_rule", r"other entries than AdamW's(.|\n)*merged"),
    "UnknownAttention": (
        "numerics",
        "attention_without_mask",
        r"no attention implementation 'flash_mychip'",
        "*",
    ),
    "InvertsMask": ("numerics", "bool_mask_is_true_where_attended", r"it attends where the mask is false", "*"),
    "DropsMask": ("numerics", "additive_mask_keeps_its_values", r"it ignores the mask", "*"),
    "ReducesBias": ("numerics", "additive_mask_keeps_its_values", r"takes the additive mask for a bool one"),
    "FusedMaskInverted": ("numerics", "fused_attention", r"fused attention with a bool mask.*something else", "*"),
    "FusedWithoutBackward": ("numerics", "fused_rms_norm", r"fused root mean square norm.*gives no gradient 1"),
    "FusedInterleaved": ("numerics", "fused_rotary", r"fused rotary embedding computes something else"),
    "CoarseArithmetic": ("numerics", "block_in_float32", r"In fp32 the output.*is not that of the host(.|\n)*relative"),
}


def outcomes(plugin: type, tier: str, folder) -> dict[str, tuple[str, str]]:
    """Every check of a tier that needs no second process: outcome and message by name."""
    target = f"{plugin.__module__}:{plugin.__name__}"
    checks = [one for one in select([tier]) if one.stage == "device" and one.name not in LEFT_OUT]
    subject = Subject(Candidate(plugin.__name__, "vla-broken", "1.0", target), folder)
    return {one.name: (one.outcome, one.message) for one in run_here(subject, checks)}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_found_and_named(name, tmp_path) -> None:
    tier, check, says, *also = MISTAKES[name]
    plugin = getattr(with_torch, name, None) or getattr(arithmetic, name)
    try:
        found = outcomes(plugin, tier, tmp_path)
    finally:
        # What `EarlyDevice` leaves behind.
        vars(torch).pop("mychip", None)
    failed = {name: message for name, (outcome, message) in found.items() if outcome == "failed"}
    assert check in failed, found
    assert re.search(says, failed[check]), failed[check]
    assert "*" in also or set(failed) == {check}, failed


@pytest.mark.parametrize("tier", ["contract", "semantics", "numerics"])
def test_sound_plugin_passes(tier, tmp_path) -> None:
    found = outcomes(Present, tier, tmp_path)
    assert {outcome for outcome, _ in found.values()} <= {"passed", "skipped"}, found
    skipped = {name for name, (outcome, _) in found.items() if outcome == "skipped"}
    assert skipped <= {"pinned_batch_arrives", "memory_is_counted_in_bytes", *FUSED}, found


def test_every_broken_plugin_is_tried() -> None:
    own = {
        name
        for module in (with_torch, arithmetic)
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Present) and value.__module__ == module.__name__
    }
    assert own == set(MISTAKES)


def test_kernels_of_a_device_are_looked_up() -> None:
    for operator in ("aten::addmm", "aten::view", "aten::native_layer_norm_backward"):
        assert has_kernel(operator, "CPU")
        assert not has_kernel(operator, "PrivateUse1")
    assert has_kernel("aten::dropout", "PrivateUse1"), "composed of other operators"
    library = torch.library.Library("aten", "IMPL")
    library.impl("addmm.out", lambda *arguments, **options: options["out"], "PrivateUse1")
    assert has_kernel("aten::addmm", "PrivateUse1"), "the functional form is made of the one with out"
