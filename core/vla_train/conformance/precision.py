"""Semantics of number formats: autocast, full-precision regions, float32 products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vla_backend.errors import UnsupportedError
from vla_train.conformance.checks import Failure, Skip, check
from vla_train.conformance.subject import Subject

if TYPE_CHECKING:
    import torch


@check("device")
def autocast_computes_in_the_dtype(subject: Subject) -> str:
    """Products of float32 tensors inside autocast are in the dtype asked for, also nested, and float32 afterwards."""
    import torch

    backend = subject.ready
    left, right = _factors(subject)
    tried = []
    for dtype in _short_dtypes(subject):
        with backend.autocast(dtype):
            outer = (left @ right).dtype
            with backend.autocast(torch.float32):
                off = (left @ right).dtype
            with backend.autocast(dtype):
                inner = (left @ right).dtype
            again = (left @ right).dtype
        after = (left @ right).dtype
        for got, expected, where in (
            (outer, dtype, f"inside autocast({dtype})"),
            (off, torch.float32, f"inside autocast(torch.float32) inside autocast({dtype})"),
            (inner, dtype, "in a nested region"),
            (again, dtype, "after a nested region"),
            (after, torch.float32, "after the region"),
        ):
            if got is not expected:
                raise Failure(
                    f"A product of float32 tensors {where} is {got}, not {expected}.",
                    why=f"autocast_device answered '{backend.autocast_device}' for a '{backend.device_type}'",
                    fix="answer the device type that torch.autocast knows this device by",
                )
        tried.append(str(dtype).removeprefix("torch."))
    return ", ".join(tried)


@check("device")
def fp32_region_is_exact(subject: Subject) -> None:
    """Inside fp32_region products of float32 tensors are float32 and exact, also within autocast and backwards."""
    import torch

    backend = subject.ready
    left, right = _factors(subject)
    exact = left.cpu().double() @ right.cpu().double()
    for dtype in _short_dtypes(subject):
        with backend.autocast(dtype):
            with backend.fp32_region():
                weight = right.clone().requires_grad_()
                product = left @ weight
                with backend.autocast(dtype):
                    inside = (left @ right).dtype
                product.sum().backward()
            after = (left @ right).dtype
        if product.dtype is not torch.float32:
            raise Failure(
                f"A product of float32 tensors in fp32_region within autocast({dtype}) is {product.dtype}.",
                why="fp32_region leaves autocast on",
                fix="answer torch.autocast(autocast_device, enabled=False)",
            )
        _check_exact(product, exact, "A product in fp32_region within autocast")
        _check_exact(weight.grad, left.cpu().double().sum(0)[:, None].expand_as(exact), "Its gradient")
        if inside is not dtype or after is not dtype:
            raise Failure(
                "fp32_region does not end with its block.",
                why=f"products in autocast({dtype}) are {inside} inside it and {after} after it",
                fix="answer a context manager that puts back what it found",
            )
    with backend.fp32_region():
        if (left @ right).dtype is not torch.float32:
            raise Failure("fp32_region without autocast around it changes the dtype of products.")


@check("device")
def highest_precision_is_exact(subject: Subject) -> str:
    """matmul_precision("highest") gives exact float32 products of small whole numbers, in matrices and convolutions."""
    import torch

    backend = subject.ready
    before = torch.get_float32_matmul_precision()
    made = backend.matmul_precision("highest")
    try:
        left, right = _factors(subject)
        _check_exact(left @ right, left.cpu().double() @ right.cpu().double(), "With 'highest' a matrix product")
        image, kernel = left[None, None], right[None, None, :3, :3].contiguous()
        expected = torch.nn.functional.conv2d(image.cpu().double(), kernel.cpu().double())
        _check_exact(torch.nn.functional.conv2d(image, kernel), expected, "With 'highest' a convolution")
    finally:
        torch.set_float32_matmul_precision(before)
    return ", ".join(f"{name}={value}" for name, value in made.items())


@check("device")
def evaluating_leaves_training_possible(subject: Subject) -> None:
    """evaluating() records no gradients, puts every module back in its mode, and leaves tensors training can use."""
    import torch

    backend = subject.ready
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4)).to(subject.device)
    model.train()
    model[2].eval()
    x = torch.ones(2, 4, device=subject.device)
    with backend.evaluating(model):
        out = model(x)
        modes = [module.training for module in model.modules()]
    if any(modes):
        raise Failure("evaluating() leaves modules in training mode.", why=f"modes inside: {modes}")
    if out.requires_grad:
        raise Failure(
            "evaluating() records gradients.",
            why="an output made inside requires grad",
            fix="answer torch.no_grad() from zero3_safe_no_grad",
        )
    if out.is_inference():
        raise Failure(
            "evaluating() makes inference tensors.",
            why="zero3_safe_no_grad uses torch.inference_mode, whose tensors cannot enter autograd; ZeRO-3 keeps some",
            fix="answer torch.no_grad()",
        )
    (model(x) * out).sum().backward()
    try:
        with backend.evaluating(model):
            raise KeyError("an error inside")
    except KeyError:
        pass
    after = [module.training for module in model.modules()]
    if after != [True, True, True, False] or not torch.is_grad_enabled():
        raise Failure(
            "evaluating() does not put back what it found.",
            why=f"train modes after it: {after}, expected [True, True, True, False]; "
            f"gradients are {'on' if torch.is_grad_enabled() else 'off'}",
            fix="let zero3_safe_no_grad restore the grad mode, and leave train and eval to the facade",
        )


def _short_dtypes(subject: Subject) -> list[torch.dtype]:
    found = []
    for name in ("bf16", "fp16"):
        try:
            found.append(subject.ready.compute_dtype(name))
        except UnsupportedError:
            continue
    if not found:
        raise Skip("the chip computes in float32 only")
    return found


def _factors(subject: Subject) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers that neither bfloat16 nor a shortened float32 holds, with exact products in float32."""
    import torch

    left = (torch.arange(64).reshape(8, 8) % 7 + 4097).float()
    right = (torch.arange(64).reshape(8, 8) % 5 - 2).float()
    return left.to(subject.device), right.to(subject.device)


def _check_exact(got: Any, expected: Any, what: str) -> None:
    import torch

    host = got.detach().cpu().double()
    if not torch.equal(host, expected):
        error = (host - expected).abs().max().item()
        raise Failure(
            f"{what} is not exact.",
            why=f"whole numbers below 2^24 came out {error:g} off: it is computed in a shorter format",
            fix="switch TF32, HF32 or the like off there",
        )
