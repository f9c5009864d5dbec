"""Numerics of the chip's fused operators: each equals what it stands for, forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from vla_backend import FusedKernels
from vla_train.conformance.checks import Failure, Skip, check
from vla_train.conformance.subject import Subject
from vla_train.conformance.tour import short

if TYPE_CHECKING:
    import torch

#: dtype -> greatest relative error of an output or gradient against float64.
_BOUNDS: Final = {"float32": 1e-5, "bfloat16": 2e-2}


@check("device")
def fused_attention(subject: Subject) -> str:
    """fused_kernels.attention equals attention without, with a bool, a broadcast and an additive mask."""
    import torch

    kernel = _kernel(subject, "attention")
    shapes = (2, 3, 5, 16), (2, 3, 7, 16), (2, 3, 7, 16)
    some = (torch.arange(7)[None] + torch.arange(5)[:, None])[None, None] % 2 == 0
    per_key = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    per_key[0, :, :, 4:] = False
    masks = {
        "no mask": None,
        "a bool mask, true where attended": some,
        "a mask of one row for all queries": per_key,
        "an additive mask": torch.linspace(-2, 2, 35).reshape(1, 1, 5, 7),
    }
    for what, mask in masks.items():

        def reference(query: Any, key: Any, value: Any, mask: Any = mask) -> torch.Tensor:
            scores = query @ key.transpose(-1, -2) / 4.0
            if mask is not None:
                scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
            return scores.softmax(dim=-1) @ value

        def fused(*inputs: torch.Tensor, mask: Any = mask) -> torch.Tensor:
            there = mask if mask is None or mask.dtype is torch.bool else mask.to(inputs[0].dtype)
            return kernel(*inputs, None if there is None else there.to(subject.device))

        _compare(subject, f"attention with {what}", fused, reference, shapes)
    return f"{len(masks)} masks"


@check("device")
def fused_rms_norm(subject: Subject) -> None:
    """fused_kernels.rms_norm equals x / sqrt(mean(x^2) + eps) * weight, with a small and a large eps."""
    kernel = _kernel(subject, "rms_norm")
    for eps in (1e-6, 0.1):

        def reference(x: Any, weight: Any, eps: float = eps) -> torch.Tensor:
            normed: torch.Tensor = x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight
            return normed

        def fused(x: torch.Tensor, weight: torch.Tensor, eps: float = eps) -> torch.Tensor:
            return kernel(x, weight, eps)

        _compare(subject, f"root mean square norm with eps {eps:g}", fused, reference, ((2, 5, 32), (32,)))


@check("device")
def fused_rotary(subject: Subject) -> None:
    """fused_kernels.rotary turns pairs of the first and second half by the angle of their position."""
    import torch

    kernel = _kernel(subject, "rotary")
    angle = torch.outer(torch.arange(5.0), torch.tensor([1.0, 0.3, 0.1, 0.03])).repeat(1, 2)

    def reference(x: Any) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        turned: torch.Tensor = x * angle.cos().double() + torch.cat((-second, first), -1) * angle.sin().double()
        return turned

    def fused(x: torch.Tensor) -> torch.Tensor:
        return kernel(x, angle.cos().to(x.device, x.dtype), angle.sin().to(x.device, x.dtype))

    _compare(subject, "rotary embedding", fused, reference, ((2, 3, 5, 8),))


def _kernel(subject: Subject, name: str) -> Callable[..., Any]:
    kernels: FusedKernels = subject.ready.fused_kernels
    found: Callable[..., Any] | None = getattr(kernels, name)
    if found is None:
        raise Skip("the plugin has no such operator, models compose it")
    return found


def _compare(
    subject: Subject,
    what: str,
    fused: Callable[..., torch.Tensor],
    reference: Callable[..., torch.Tensor],
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    """Output and gradients of `fused` on the device against `reference` in float64."""
    import torch

    for name, bound in _BOUNDS.items():
        dtype = getattr(torch, name)
        generator = torch.Generator().manual_seed(4)
        values = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
        there = [value.to(subject.device, copy=True).requires_grad_() for value in values]
        exact = [value.double().requires_grad_() for value in values]
        try:
            out = fused(*there)
            out.float().square().sum().backward()
        except Exception as error:
            raise Failure(
                f"The fused {what} fails in {name}, forwards or backwards.",
                why=f"{type(error).__name__}: {short(error)}",
                fix="leave it out of fused_kernels (None), or compose what it does not take",
            ) from error
        expected = reference(*exact)
        expected.square().sum().backward()
        if out.dtype is not dtype:
            raise Failure(f"The fused {what} answers {out.dtype} for {name}.", fix="answer the dtype of the inputs")
        pairs: list[tuple[str, torch.Tensor | None, torch.Tensor | None]] = [("output", out, expected)]
        pairs += [(f"gradient {n + 1}", a.grad, b.grad) for n, (a, b) in enumerate(zip(there, exact, strict=True))]
        for part, got, right in pairs:
            if got is None:
                raise Failure(f"The fused {what} gives no {part}.", fix="register its backward pass")
            assert right is not None, "the reference depends on every input"
            error_ = ((got.detach().cpu().double() - right.detach()).norm() / right.detach().norm()).item()
            if not error_ <= bound:
                raise Failure(
                    f"The fused {what} computes something else ({part}, {name}).",
                    why=f"relative error {error_:.2g}, at most {bound:g}",
                    fix="compare its definition with FusedKernels: polarity of masks, scale, order of halves",
                )
