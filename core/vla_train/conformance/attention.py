"""Numerics of the attention implementation that the plugin chooses: masks are what decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from vla_backend import AttentionNeeds
from vla_train.conformance.checks import Failure, check
from vla_train.conformance.subject import Subject
from vla_train.conformance.tour import short

if TYPE_CHECKING:
    import torch

_BATCH, _HEADS, _QUERIES, _KEYS, _WIDTH = 2, 3, 5, 7, 16
_TOLERANCE: Final = 1e-4


@check("device")
def attention_without_mask(subject: Subject) -> str:
    """The implementation chosen for plain and for causal attention computes it."""
    names = []
    for causal in (False, True):
        needs = AttentionNeeds(head_dim=_WIDTH, causal=causal)
        mask = None
        if causal:
            import torch

            mask = torch.ones(_QUERIES, _QUERIES, dtype=torch.bool).tril()
        names.append(_check(subject, needs, mask, "causal attention" if causal else "attention", causal=causal))
    return ", ".join(dict.fromkeys(names))


@check("device")
def bool_mask_is_true_where_attended(subject: Subject) -> str:
    """A bool mask is true at the keys to attend to, not at those to leave out."""
    return _check(subject, AttentionNeeds(head_dim=_WIDTH, mask="bool"), _some_keys(), "attention with a bool mask")


@check("device")
def masks_are_broadcast(subject: Subject) -> None:
    """Masks of one head or one sample hold for all of them; in the engine's own attention those of one query too."""
    import torch

    from vla_backend import FusedKernels
    from vla_train.nn.kernels import attend

    needs = AttentionNeeds(head_dim=_WIDTH, mask="bool")
    per_query = torch.ones(1, 1, _QUERIES, _KEYS, dtype=torch.bool).tril()
    per_sample = per_query.repeat(_BATCH, 1, 1, 1)
    per_sample[0, :, :, 1:3] = False
    per_key = torch.ones(_BATCH, 1, 1, _KEYS, dtype=torch.bool)
    per_key[0, :, :, 4:] = False
    for what, mask in (("(B, 1, L, S)", per_sample), ("(1, 1, L, S)", per_query), ("(L, S)", per_query[0, 0])):
        _check(subject, needs, mask, f"attention with a mask {what}")

    for kernels in (FusedKernels(), subject.ready.fused_kernels):

        def engine(query: Any, key: Any, value: Any, mask: Any, _: bool, kernels: Any = kernels) -> Any:
            return attend(kernels, query, key, value, mask)

        name = "the engine's attention with the chip's operator" if kernels.attention else "the engine's attention"
        _check(subject, needs, per_key, "attention with a mask (B, 1, 1, S)", engine=(name, engine))


@check("device")
def additive_mask_keeps_its_values(subject: Subject) -> str:
    """A mask that is added to the scores keeps its biases, not only its infinities."""
    import torch

    bias = torch.linspace(-2, 2, _QUERIES * _KEYS).reshape(1, 1, _QUERIES, _KEYS)
    bias = bias.masked_fill(~_some_keys(), torch.finfo(torch.float32).min).expand(_BATCH, 1, _QUERIES, _KEYS)
    needs = AttentionNeeds(head_dim=_WIDTH, mask="additive")
    return _check(subject, needs, bias, "attention with an additive mask")


@check("device")
def masked_rows_harm_no_others(subject: Subject) -> None:
    """A query without any key changes no other query, and the engine's own attention answers zeros for it."""
    import torch

    from vla_train.nn.dit import Attention, DiTSettings

    mask = _some_keys().expand(_BATCH, 1, _QUERIES, _KEYS).clone()
    mask[0, :, 2] = False
    _check(subject, AttentionNeeds(head_dim=_WIDTH, mask="bool"), mask, "attention beside a row without keys")

    torch.manual_seed(0)
    settings = DiTSettings(2, 8, 1, 16, 4)
    layer = Attention(settings, 16).to(subject.device)
    torch.nn.init.zeros_(cast("torch.nn.Linear", layer.to_out[0]).bias)
    layer.kernels = subject.ready.fused_kernels
    x, keys = torch.randn(2, 3, 16), torch.randn(2, 4, 16)
    no_key = torch.tensor([[True, True, False, True], [False] * 4])
    with torch.no_grad():
        out = layer(x.to(subject.device), layer.keys_values(keys.to(subject.device)), no_key.to(subject.device)).cpu()
    if not torch.isfinite(out).all() or out[1].abs().max() > 1e-6 or out[0].abs().max() < 1e-3:
        raise Failure(
            "The engine's attention does not answer zeros for a sample without keys.",
            why=f"largest value {out[1].abs().max().item():g}, of the other sample {out[0].abs().max().item():g}",
            fix="let fused_kernels.attention, or the chip's scaled_dot_product_attention, take a bool mask of all true",
        )


def _some_keys() -> torch.Tensor:
    """(1, 1, L, S): every query sees three or four of seven keys, and other ones."""
    import torch

    return (torch.arange(_KEYS)[None] + torch.arange(_QUERIES)[:, None])[None, None] % 2 == 0


def _check(
    subject: Subject,
    needs: AttentionNeeds,
    mask: torch.Tensor | None,
    what: str,
    causal: bool = False,
    engine: tuple[str, Any] | None = None,
) -> str:
    """Compare the chosen implementation, or the engine's own, with the definition; rows without keys are left out."""
    import torch

    name = subject.ready.attention_impl(needs)
    function = _implementation(name) if engine is None else engine[1]
    name = name if engine is None else engine[0]
    generator = torch.Generator().manual_seed(2)
    keys = _QUERIES if causal else _KEYS
    query = torch.randn(_BATCH, _HEADS, _QUERIES, _WIDTH, generator=generator)
    key, value = (torch.randn(_BATCH, _HEADS, keys, _WIDTH, generator=generator) for _ in range(2))
    expected = _definition(query, key, value, mask)
    there = [tensor.to(subject.device) for tensor in (query, key, value)]
    try:
        got = function(*there, None if mask is None else mask.to(subject.device), causal).cpu().double()
    except Exception as error:
        raise Failure(
            f"'{name}' fails at {what}.",
            why=f"attention_impl chose it for {needs}; {type(error).__name__}: {short(error)}",
            fix='answer another one for these needs: "eager" composes it of plain operators',
        ) from error
    rows = torch.isfinite(expected).all(dim=-1)
    error_ = (got - expected)[rows].abs().max().item()
    if not error_ < _TOLERANCE:
        raise Failure(
            f"'{name}' computes something else than {what}.",
            why=f"attention_impl chose it for {needs}; {_guess(query, key, value, mask, got)}, "
            f"largest error {error_:.2g}",
            fix='answer another one for these needs: "eager" composes it of plain operators',
        )
    return name


def _definition(query: Any, key: Any, value: Any, mask: torch.Tensor | None) -> torch.Tensor:
    """softmax(Q K^T / sqrt(d) + mask) V in float64 (Vaswani et al. 2017); NaN in rows without keys."""
    import torch

    scores = query.double() @ key.double().transpose(-1, -2) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask.double()
    return scores.softmax(dim=-1) @ value.double()


def _guess(query: Any, key: Any, value: Any, mask: torch.Tensor | None, got: torch.Tensor) -> str:
    """Which mistake gives exactly these values."""
    import torch

    if mask is None:
        return "it is not even attention without a mask"
    guesses = {"it ignores the mask": _definition(query, key, value, None)}
    if mask.dtype is torch.bool:
        guesses["it attends where the mask is false"] = _definition(query, key, value, ~mask)
        guesses["it adds the mask as numbers"] = _definition(query, key, value, mask.float())
    else:
        guesses["it takes the additive mask for a bool one"] = _definition(query, key, value, mask > -1e30)
    for says, values in guesses.items():
        rows = torch.isfinite(values).all(dim=-1)
        if rows.any() and (got - values)[rows].abs().max() < 1e-3:
            return says
    return "it uses the mask in some other way"


def _implementation(name: str) -> Any:
    """The function behind a name, as transformers calls it: (query, key, value, mask, causal) -> (B, heads, L, d)."""
    import torch

    if name == "eager":
        return _eager
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if name not in ALL_ATTENTION_FUNCTIONS:
        raise Failure(
            f"transformers knows no attention implementation '{name}'.",
            why=f"it has {', '.join(sorted(ALL_ATTENTION_FUNCTIONS))} and 'eager'",
            fix="answer one of these, or register yours with transformers in apply_patches",
        )
    function = ALL_ATTENTION_FUNCTIONS[name]

    def call(query: Any, key: Any, value: Any, mask: Any, causal: bool) -> torch.Tensor:
        module = torch.nn.Module()
        module.is_causal, module.num_key_value_groups = causal, 1  # type: ignore[assignment]
        module.train(False)
        # transformers hands masks over in full rank; (L, S) is the engine's own use.
        mask = mask if mask is None or mask.dim() == 4 else mask[None, None]
        out = function(module, query, key, value, None if causal else mask, dropout=0.0, is_causal=causal)[0]
        return out.transpose(1, 2)

    return call


def _eager(query: Any, key: Any, value: Any, mask: Any, causal: bool) -> torch.Tensor:
    """Composed of plain operators on the device, as transformers' models do it."""
    import torch

    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if mask is not None:
        if mask.dtype is torch.bool:
            mask = torch.zeros_like(scores).masked_fill(~mask, torch.finfo(query.dtype).min)
        scores = scores + mask
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype) @ value
