"""Numerics: a block of a diffusion transformer and its optimizer against float32 on the host."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from vla_backend.errors import UnsupportedError
from vla_train.conformance.checks import Failure, Skip, check
from vla_train.conformance.subject import Subject

if TYPE_CHECKING:
    import torch
    from torch import nn

STEPS: Final = 20
#: Precision -> least cosine with float32 and greatest relative error (norm of the difference over the norm) of output
#: and gradient of one pass, and of the change of the weights after `STEPS` steps. Measured on a CPU: bf16 0.0011,
#: 0.0043 and 0.013; fp16 0.00014, 0.00054 and 0.0095; fp32 0 and, by the
#: order of sums, 0.0002. The bounds leave some seven times that, and for fp32 what another order of sums makes of it.
BOUNDS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "fp32": {"output": (0.999999, 1e-5), "gradient": (0.999999, 1e-4), "update": (0.9999, 1e-2)},
    "bf16": {"output": (0.9999, 8e-3), "gradient": (0.9995, 3e-2), "update": (0.995, 0.1)},
    "fp16": {"output": (0.999999, 1e-3), "gradient": (0.99999, 4e-3), "update": (0.997, 0.07)},
}
_LOSS_SCALE: Final = {"fp32": 1.0, "bf16": 1.0, "fp16": 128.0}


@check("device")
def block_in_float32(subject: Subject) -> str:
    """Outputs, gradients and 20 optimizer steps of a transformer block equal those of the host in float32."""
    return _compare(subject, "fp32")


@check("device")
def block_in_bfloat16(subject: Subject) -> str:
    """The same under autocast to bfloat16, within that format's rounding."""
    return _compare(subject, "bf16")


@check("device")
def block_in_float16(subject: Subject) -> str:
    """The same under autocast to float16, within that format's rounding."""
    return _compare(subject, "fp16")


@check("device")
def optimizer_follows_its_rule(subject: Subject) -> str:
    """fused_optimizer makes the update of torch's AdamW, weight decay included, with a state the plain one can read."""
    import torch

    from vla_train.config.schema import OptimizerConfig
    from vla_train.train.optimizer import build_optimizer

    start = torch.linspace(-1, 1, 24).reshape(4, 6)
    gradients = [torch.sin(start * (step + 1)) * 10 ** (step % 3 - 1) for step in range(STEPS)]
    config = OptimizerConfig(name="AdamW", weight_decay=0.1, fused=True)

    def holder(device: Any) -> nn.Linear:
        model = torch.nn.Linear(6, 4, bias=False)
        with torch.no_grad():
            model.weight.copy_(start)
        return model.to(device)

    ours, plain = holder(subject.device), holder("cpu")
    fused = build_optimizer(ours, {"base": 1e-2}, config, subject.ready)
    first, second = config.betas
    reference = torch.optim.AdamW(plain.parameters(), lr=1e-2, betas=(first, second), eps=config.eps, weight_decay=0.1)
    for gradient in gradients:
        ours.weight.grad, plain.weight.grad = gradient.to(subject.device), gradient.clone()
        fused.step()
        reference.step()
    name = f"{type(fused).__module__}.{type(fused).__qualname__}"
    error = (ours.weight.detach().cpu() - plain.weight.detach()).norm() / (plain.weight.detach() - start).norm()
    if not error < 1e-4:
        raise Failure(
            f"fused_optimizer('AdamW') makes another update than AdamW: {name}.",
            why=f"after {STEPS} steps weights differ by {error:.2g} of their change",
            fix="answer a class with the same rule, or torch.optim:AdamW",
        )
    here, there = (set(next(iter(one.state.values()))) for one in (fused, reference))
    if here != there:
        raise Failure(
            "The optimizer's state has other entries than AdamW's.",
            why=f"{', '.join(sorted(here))} instead of {', '.join(sorted(there))}",
            fix="answer a class whose checkpoints every other backend can read",
        )
    return f"{name}, {error:.1g} off"


def small_block() -> nn.Module:
    """One block of self-attention, the same weights everywhere."""
    import torch

    from vla_train.nn import DiTBlock, DiTSettings

    settings = DiTSettings(
        num_attention_heads=4, attention_head_dim=16, num_layers=1, cross_attention_dim=64, output_dim=8
    )
    torch.manual_seed(11)
    return DiTBlock(settings, cross=False)


def small_batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens (2, 12, 64), embedded times (2, 64) and a target (2, 12, 64)."""
    import torch

    generator = torch.Generator().manual_seed(5)
    return tuple(torch.randn(shape, generator=generator) for shape in ((2, 12, 64), (2, 64), (2, 12, 64)))  # type: ignore[return-value]


def _compare(subject: Subject, precision: str) -> str:
    import torch

    try:
        dtype = subject.ready.compute_dtype(precision)
    except UnsupportedError as error:
        raise Skip(error.why) from error
    block = small_block()
    reference = _train(copy.deepcopy(block), torch.device("cpu"), torch.optim.AdamW, {}, None)
    choice = subject.ready.fused_optimizer("AdamW")
    factory = _imported(choice.path)
    context = subject.ready.autocast(dtype)
    block, scale = block.to(subject.device), _LOSS_SCALE[precision]
    got = _train(block, subject.device, factory, dict(choice.kwargs), context, scale)
    said = []
    for name, (least, greatest) in BOUNDS[precision].items():
        cosine, distance = _distance(got[name], reference[name])
        said.append(f"{name} {distance:.1g}")
        if not (cosine >= least and distance <= greatest):
            raise Failure(
                f"In {precision} the {name} of a transformer block is not that of the host.",
                why=f"cosine {cosine:.6f} (at least {least}), relative error {distance:.2g} (at most {greatest})",
                fix="compare the operators of the block one by one with the CPU's: the census names them",
            )
    return "relative error: " + ", ".join(said)


def _train(
    block: nn.Module, device: torch.device, factory: Any, options: dict[str, Any], autocast: Any, scale: float = 1.0
) -> dict[str, torch.Tensor]:
    """Output and gradient of the first step, and how far the weights went in `STEPS` steps; each one long vector."""
    import contextlib

    import torch

    x, time, target = (tensor.to(device) for tensor in small_batch())
    before = _flat(block.parameters())
    optimizer = factory(block.parameters(), lr=1e-3, **options)
    found: dict[str, torch.Tensor] = {}
    for _ in range(STEPS):
        with autocast if autocast is not None else contextlib.nullcontext():
            out = block(x, time)
        (torch.nn.functional.mse_loss(out.float(), target) * scale).backward()
        for parameter in block.parameters():
            if parameter.grad is not None:
                parameter.grad /= scale
        found.setdefault("output", _flat([out]))
        found.setdefault("gradient", _flat(p.grad for p in block.parameters() if p.grad is not None))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    found["update"] = _flat(block.parameters()) - before
    return found


def _flat(tensors: Any) -> torch.Tensor:
    import torch

    return torch.cat([tensor.detach().cpu().double().flatten() for tensor in tensors])


def _distance(got: torch.Tensor, expected: torch.Tensor) -> tuple[float, float]:
    """Cosine of the angle between two vectors, and the norm of their difference over the norm of the second."""
    import torch

    cosine = torch.nn.functional.cosine_similarity(got, expected, dim=0).item()
    return cosine, ((got - expected).norm() / expected.norm()).item()


def _imported(path: str) -> Any:
    import importlib

    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
