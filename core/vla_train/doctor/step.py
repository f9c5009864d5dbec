"""One training step of a small network on the device, compared with the same step in float64 on the CPU."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from vla_backend import Backend
from vla_train.nn import masked_mean_square
from vla_train.train.strategy import autocast_inside

#: Smallest cosine between gradients that counts as the same. Short float32 formats (TF32, HF32) keep 10 bits.
LIMITS: Final = {"fp32": 0.999, "bf16": 0.99, "fp16": 0.99}
_WIDTH, _HEADS, _BATCH = 64, 4, 4


@dataclass(frozen=True)
class Comparison:
    """Cosines of loss gradients by kind of layer, and of the changed weights; `limit` is the least good one."""

    cosines: dict[str, float]
    limit: float

    @property
    def good(self) -> bool:
        return all(value >= self.limit for value in self.cosines.values())


class SmallNet(nn.Module):
    """What training uses: patches by a 3-D convolution, norms, masked attention, feed-forward, a masked loss."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv3d(3, _WIDTH, (1, 4, 4), (1, 4, 4))
        self.norm = nn.LayerNorm(_WIDTH)
        self.qkv = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.feed = nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU("tanh"), nn.Linear(4 * _WIDTH, _WIDTH))
        self.scale = nn.RMSNorm(_WIDTH, eps=1e-6)
        self.out = nn.Linear(_WIDTH, 8)

    def forward(self, clip: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(clip).flatten(2).transpose(1, 2)
        query, key, value = (
            part.unflatten(-1, (_HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm(tokens)).chunk(3, dim=-1)
        )
        length = tokens.shape[1]
        seen = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril().expand(len(tokens), 1, -1, -1)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        tokens = tokens + mixed.transpose(1, 2).flatten(2)
        tokens = tokens + self.feed(self.scale(tokens))
        predicted = self.out(tokens)
        return masked_mean_square(predicted.to(target.dtype), target, mask)


def compare(backend: Backend, precision: str) -> Comparison:
    """Make the step twice and compare; leaves torch's random state as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = SmallNet()
        clip, target = torch.randn(_BATCH, 3, 2, 16, 16), torch.randn(_BATCH, 32, 8)
        mask = torch.rand(_BATCH, 32, 8) < 0.8
    truth = copy.deepcopy(net).double()
    expected = _step(truth, clip.double(), target.double(), mask)
    device, dtype = backend.device, backend.compute_dtype(precision)
    net.to(device)
    autocast_inside(net, backend, dtype)
    got = _step(net, clip.to(device), target.to(device), mask.to(device))
    return Comparison({name: _cosine(got[name], expected[name]) for name in expected}, LIMITS[precision])


def _step(net: nn.Module, *batch: torch.Tensor) -> dict[str, torch.Tensor]:
    before = [parameter.detach().clone() for parameter in net.parameters()]
    # Plain descent: an adaptive optimizer's first step is the sign of the gradient, noise included.
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(*batch).backward()
    out = {name: _flat([p.grad for p in part.parameters()]) for name, part in net.named_children()}
    optimizer.step()
    out["update"] = _flat([now.detach() - old for now, old in zip(net.parameters(), before, strict=True)])
    return out


def _flat(tensors: list[torch.Tensor | None]) -> torch.Tensor:
    return torch.cat([tensor.detach().cpu().double().flatten() for tensor in tensors if tensor is not None])


def _cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(functional.cosine_similarity(one, other, dim=0)) if bool(torch.isfinite(one).all()) else float("nan")
