"""The transformer: image patches, state and instruction in; a chunk of actions out, by regression."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vla_backend import Backend
from vla_behaviour_cloning.config import BehaviourCloningConfig
from vla_train.config import Config
from vla_train.nn import Draws, LayerNorm, Linear, masked_mean_square


class Block(nn.Module):
    """A pre-norm transformer block on tokens (B, N, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = LayerNorm(width), LayerNorm(width)
        self.qkv, self.out = Linear(width, 3 * width), Linear(width, width)
        self.up, self.down = Linear(width, 4 * width), Linear(4 * width, width)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """`padding` (B, 1, N, N) bool is true where a token may be attended to."""
        batch, count, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=padding)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, count, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class BehaviourCloning(nn.Module):
    """Predicts normalised action chunks; the loss is their masked mean square error.

    Args:
        config: the `model:` section.
        backend: asked for the region in which the loss is computed.
        views, image_size: cameras and (height, width) of each in pixels.
        state_dim, action_dim: widths of state and action.

    Raises:
        ValueError: the patch size does not divide the image, or the heads not the width.
    """

    def __init__(
        self,
        config: BehaviourCloningConfig,
        backend: Backend,
        *,
        views: int,
        image_size: tuple[int, int],
        state_dim: int,
        action_dim: int,
    ) -> None:
        super().__init__()
        if any(side % config.patch_size for side in image_size):
            raise ValueError(f"model.patch_size={config.patch_size} does not divide data.image_size={image_size}")
        if config.width % config.heads:
            raise ValueError(f"model.heads={config.heads} does not divide model.width={config.width}")
        self.config, self.backend = config, backend
        self.draws = Draws()
        width, patches = config.width, (image_size[0] // config.patch_size) * (image_size[1] // config.patch_size)
        self.patches = nn.Conv2d(3, width, config.patch_size, stride=config.patch_size)
        self.positions = nn.Parameter(0.02 * torch.randn(views, patches, width))
        self.words = nn.Embedding(config.vocabulary, width)
        self.state = Linear(state_dim, width)
        self.queries = nn.Parameter(0.02 * torch.randn(config.action_horizon, width))
        self.blocks = nn.ModuleList(Block(width, config.heads) for _ in range(config.layers))
        self.norm = LayerNorm(width)
        self.head = Linear(width, action_dim)

    def forward(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """{"action_loss": scalar} of a batch as `data.collate` makes it."""
        state = batch["state"]
        state = state + self.config.state_noise * self.draws.randn_like(state)
        predicted = self._predict(batch, state)
        # A mean over many small squares: in bfloat16 the small ones would be lost beside the sum.
        with self.backend.fp32_region():
            loss = masked_mean_square(predicted.float(), batch["action"].float(), batch["action_mask"])
        return {"action_loss": loss}

    def predict_action(self, batch: dict[str, Any], generator: torch.Generator | None = None) -> torch.Tensor:
        """(B, action_horizon, action_dim) float32, normalised; nothing is drawn, so `generator` is not used."""
        return self._predict(batch, batch["state"]).float()

    def loss_counts(self, batch: dict[str, Any]) -> dict[str, float]:
        """How many elements the loss is the mean of, so that ranks and accumulated batches weigh equally."""
        return {"action_loss": float(batch["action_mask"].sum())}

    def _predict(self, batch: dict[str, Any], state: torch.Tensor) -> torch.Tensor:
        images = batch["images"]
        rows, views = images.shape[:2]
        seen = self.patches(images.flatten(0, 1)).flatten(2).transpose(1, 2)  # (B V, patches, width)
        seen = (seen.unflatten(0, (rows, views)) + self.positions).flatten(1, 2)
        tokens = [
            seen,
            self.words(batch["words"] % self.config.vocabulary),
            self.state(state),
            self.queries.expand(rows, -1, -1),
        ]
        there = [torch.ones(part.shape[:2], dtype=torch.bool, device=images.device) for part in tokens]
        there[1] = batch["word_mask"]
        x = torch.cat([part.to(seen.dtype) for part in tokens], dim=1)
        # Expanded to every query: not every chip's attention kernel broadcasts the mask over them.
        padding = torch.cat(there, dim=1)[:, None, None].expand(-1, 1, x.shape[1], -1)
        for block in self.blocks:
            x = block(x, padding)
        return self.head(self.norm(x[:, -self.config.action_horizon :]))


def build(config: Config, backend: Backend) -> BehaviourCloning:
    """The model a configuration describes, on the CPU with random weights."""
    from vla_behaviour_cloning.data import count_views

    data = config.data
    return BehaviourCloning(
        config.model,
        backend,
        views=count_views(config),
        image_size=(data.image_size[0], data.image_size[1]),
        state_dim=data.max_state_dim,
        action_dim=data.max_action_dim,
    )
