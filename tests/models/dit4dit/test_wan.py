"""The Wan VAE's faster layers against the library's."""

from __future__ import annotations

import copy

import pytest
import torch
from diffusers import AutoencoderKLWan
from torch.utils._python_dispatch import TorchDispatchMode

from vla_dit4dit import wan


class Convolutions(TorchDispatchMode):
    """Dimensions and operands' sizes of every convolution that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.dimensions: list[int] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.convolution.default:
            self.dimensions.append(args[0].ndim - 2)
        return function(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def pair():
    """(the library's, ours), same weights; the norms' scales are not all 1."""
    torch.manual_seed(0)
    library = AutoencoderKLWan(base_dim=8, z_dim=4, dim_mult=[1, 2, 2], num_res_blocks=1, temperal_downsample=[0, 1])
    for name, parameter in library.named_parameters():
        if name.endswith("gamma"):
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    library = library.eval().requires_grad_(False)
    ours = copy.deepcopy(library)
    wan.speed_up(ours)
    return library, ours


@pytest.mark.parametrize("frames", [1, 5, 9])
def test_encoding_equals_the_library(pair, frames):
    library, ours = pair
    clip = torch.rand(2, 3, frames, 32, 48) * 2 - 1
    expected, found = (vae.encode(clip).latent_dist.parameters for vae in pair)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert list(ours.state_dict()) == list(library.state_dict())


@pytest.mark.parametrize("frames", [1, 3])
def test_decoding_and_its_gradient_equal_the_library(pair, frames):
    gradients = []
    for vae in pair:
        latents = torch.linspace(-2, 2, 4 * frames * 8 * 12).view(1, 4, frames, 8, 12).requires_grad_()
        decoded = vae.decode(latents).sample
        decoded.square().mean().backward()
        gradients.append((decoded.detach(), latents.grad))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


def test_bfloat16_is_as_near_to_float32_as_the_library(pair):
    clip = torch.rand(1, 3, 5, 32, 48) * 2 - 1
    exact = pair[0].encode(clip).latent_dist.mean
    errors = [
        (copy.deepcopy(vae).bfloat16().encode(clip.bfloat16()).latent_dist.mean.float() - exact).abs().max().item()
        for vae in pair
    ]
    assert errors[1] < 1.5 * errors[0] + 1e-3


def test_silent_channels_stay_finite(pair):
    norm = next(module for module in pair[1].modules() if isinstance(module, wan.ChannelNorm))
    assert torch.equal(norm(torch.zeros(1, 8, 1, 4, 4)), torch.zeros(1, 8, 1, 4, 4))


def test_first_frame_runs_in_two_dimensions(pair):
    dimensions = []
    for vae in pair:
        with Convolutions() as ran:
            vae.encoder(torch.rand(1, 3, 1, 32, 32), feat_cache=[None] * 99, feat_idx=[0])
        dimensions.append(set(ran.dimensions))
    assert dimensions == [{2, 3}, {2}]
