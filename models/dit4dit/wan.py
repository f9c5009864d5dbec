"""Layers of the Wan VAE with less work for the same result."""

from __future__ import annotations

from typing import cast

import torch
from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d, WanRMS_norm
from torch import nn
from torch.nn import functional


def speed_up(vae: nn.Module) -> None:
    """Give the layers of an `AutoencoderKLWan` the classes of this file; weights and their names stay."""
    for module in vae.modules():
        replacement = REPLACEMENTS.get(type(module))
        if replacement is not None:
            module.__class__ = replacement


class CausalConv3d(WanCausalConv3d):
    """A causal convolution that multiplies nothing with the zeros before the first frame.

    A clip's first frame passes the encoder alone. Of a kernel of 3 frames only the last slice then meets anything but
    zeros: a 2-D convolution, a third of the work.
    """

    def forward(self, x: torch.Tensor, cache_x: torch.Tensor | None = None) -> torch.Tensor:
        columns, _, rows, _, history, _ = cast("tuple[int, ...]", self._padding)
        if x.shape[2] == 1 and cache_x is None and history == self.kernel_size[0] - 1:
            weight = self.weight[:, :, -1]
            return functional.conv2d(x[:, :, 0], weight, self.bias, self.stride[1:], (rows, columns)).unsqueeze(2)
        if cache_x is not None and history > 0:
            x = torch.cat([cache_x.to(x.device), x], dim=2)
            history -= cache_x.shape[2]
        if history > 0:
            x = functional.pad(x, (0, 0, 0, 0, history, 0))
        # Rows and columns are padded by the convolution itself, without a copy.
        return functional.conv3d(x, self.weight, self.bias, self.stride, (0, rows, columns))


class ChannelNorm(WanRMS_norm):
    """x / ||x|| over the channels, scaled; `functional.normalize` takes most of an encoding's time on a CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        axis = 1 if self.channel_first else -1
        # normalize()'s smallest norm is 1e-12.
        inverse = values.square().sum(dim=axis, keepdim=True).clamp_min(1e-24).rsqrt()
        return (values * inverse).to(x.dtype) * (self.scale * self.gamma) + self.bias


REPLACEMENTS = {WanCausalConv3d: CausalConv3d, WanRMS_norm: ChannelNorm}
