"""The action head: flow matching on action chunks, conditioned on the backbone's features and the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vla_groot.architecture import Architecture
from vla_groot.category import CategoryActionEncoder, CategoryMLP, Embodiments
from vla_groot.errors import BatchError
from vla_groot.features import Context, Features, FeatureSelfAttention, dit_settings, encode_context, feature_norm
from vla_groot.real_time import RealTimeChunk
from vla_train.nn import DiT, Draws, discretise, interpolate, velocity_target


@dataclass
class HeadLoss:
    """Loss of a batch.

    Attributes:
        loss: scalar, sum of `action_loss` / number of unmasked values.
        action_loss: (B, H, A) squared velocity error, zero where masked.
        hidden: (B, S, F) features after norm and self-attention.
        state: (B, 1, D) state token.
    """

    loss: torch.Tensor
    action_loss: torch.Tensor
    hidden: torch.Tensor
    state: torch.Tensor


@dataclass
class _Conditions:
    """What stays the same in all Euler steps."""

    embodiments: Embodiments
    features: Context
    state: torch.Tensor
    real: torch.Tensor | None  # (B, H, A), zero at padded values; None where they are not told apart


class ActionHead(nn.Module):
    """Predicts a chunk of H normalised actions of width A. Time runs from 0 (noise) to 1 (action).

    Arithmetic runs in the dtype of the inputs.
    """

    def __init__(self, config: Architecture) -> None:
        super().__init__()
        config.validate()
        self.config = config
        settings = dit_settings(config.diffusion_model_cfg, config.backbone_embedding_dim)
        slots, width = config.max_num_embodiments, config.input_embedding_dim
        self.model = DiT(settings)
        state_dim = config.max_state_dim * config.state_history_length
        self.state_encoder = CategoryMLP(slots, state_dim, config.hidden_size, width)
        self.action_encoder = CategoryActionEncoder(slots, config.max_action_dim, width)
        self.action_decoder = CategoryMLP(slots, config.hidden_size, config.hidden_size, config.max_action_dim)
        self.vlln = feature_norm(config)
        self.vl_self_attention: nn.Module = nn.Identity()
        if config.vl_layers:
            self.vl_self_attention = FeatureSelfAttention(config.vl_self_attention_cfg or {})
        self.position_embedding = None
        if config.add_pos_embed:
            self.position_embedding = nn.Embedding(config.max_seq_len, width)
            nn.init.normal_(self.position_embedding.weight, mean=0.0, std=0.02)
        self.num_inference_timesteps = config.num_inference_timesteps

    def loss(
        self,
        features: Features,
        state: torch.Tensor,
        action: torch.Tensor,
        action_mask: torch.Tensor,
        embodiment_id: torch.Tensor | Sequence[int],
        *,
        draws: Draws,
    ) -> HeadLoss:
        """Flow-matching loss.

        The loss is the squared error of the velocity at x_t = (1 - t) noise + t action against action - noise, summed
        where `action_mask` is one and divided by (sum of the mask + 1e-6).

        Args:
            features: from the backbone.
            state: (B, state_history_length, max_state_dim).
            action: (B, H, max_action_dim), normalised.
            action_mask: like `action`, one (or true) where an action counts.
            embodiment_id: (B,) slots.
            draws: in this order one uniform per sample (training with state dropout only), noise like `action`, and
                one Beta sample per sample are drawn.

        Raises:
            BatchError: a shape does not fit the configuration.
        """
        config = self.config
        self._check(features, state, action, action_mask)
        embodiments = Embodiments(embodiment_id, action.device, config.max_num_embodiments)
        hidden = self.process(features)
        token = self._state_token(state, embodiments)
        if self.training and config.state_dropout_prob > 0:
            kept = draws.rand((token.shape[0],), device=token.device) >= config.state_dropout_prob
            token = token * kept[:, None, None].to(token.dtype)
        noise = draws.randn(action.shape, device=action.device, dtype=action.dtype)
        time = self.sample_time(action.shape[0], action.device, draws)
        given = self._conditions(features, hidden, token, embodiments, action_mask)
        predicted = self._velocity(
            interpolate(noise, action, time.to(action.dtype)),
            discretise(time, config.num_timestep_buckets),
            given,
        )
        weight = action_mask.to(predicted.dtype)
        errors = (predicted - velocity_target(noise, action)).square() * weight
        return HeadLoss(errors.sum() / (weight.sum() + 1e-6), errors, hidden, token)

    def sample_time(self, count: int, device: torch.device, draws: Draws) -> torch.Tensor:
        """`count` training times (1 - Beta(alpha, beta)) * noise_s in [0, noise_s], float32."""
        config = self.config
        beta = draws.beta(config.noise_beta_alpha, config.noise_beta_beta, count, device=device)
        return (1 - beta) * config.noise_s

    @torch.no_grad()
    def sample(
        self,
        features: Features,
        state: torch.Tensor,
        embodiment_id: torch.Tensor | Sequence[int],
        *,
        draws: Draws,
        action_mask: torch.Tensor | None = None,
        previous: torch.Tensor | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> torch.Tensor:
        """Draw action chunks with Euler steps from noise (t = 0) to actions (t = 1).

        Args:
            features, state, embodiment_id: as in `loss`.
            draws: noise (B, H, A) is drawn, in the dtype of the features unless it has a generator.
            action_mask: (B, H, A) or (B, H); only looked at with `strict_action_padding_mask`.
            previous: the chunk that is being executed, (B, >= H', A) normalised, for real-time chunking.
            options: settings of real-time chunking (see `RealTimeChunk`); needed with `previous`.

        Returns:
            (B, H, A) normalised actions, not clipped.
        """
        config = self.config
        self._check(features, state)
        batch, device = features.hidden.shape[0], features.hidden.device
        embodiments = Embodiments(embodiment_id, device, config.max_num_embodiments)
        hidden = self.process(features)
        shape = (batch, config.action_horizon, config.max_action_dim)
        # With a generator of the caller's, one seed means the same noise in every precision.
        drawn = hidden.dtype if draws.generator is None else torch.float32
        actions = draws.randn(shape, device=device, dtype=drawn).to(hidden.dtype)
        strength: torch.Tensor | float = 1.0
        if previous is not None:
            chunk = RealTimeChunk.from_options(options, config.action_horizon)
            actions, strength = chunk.start(actions, previous), chunk.strength(actions)
        given = self._conditions(features, hidden, self._state_token(state, embodiments), embodiments, action_mask)
        steps = self.num_inference_timesteps
        for step in range(steps):
            bucket = int(step / float(steps) * config.num_timestep_buckets)
            time = torch.full((batch,), bucket, device=device, dtype=torch.int64)
            actions = actions + (1.0 / steps) * self._velocity(actions, time, given) * strength
        return actions

    def process(self, features: Features) -> torch.Tensor:
        """Norm and self-attention of the features, (B, S, F).

        The self-attention sees padding unless `mask_feature_padding` is set.
        """
        hidden = self.vlln(features.hidden)
        if isinstance(self.vl_self_attention, FeatureSelfAttention):
            hidden = self.vl_self_attention(
                hidden, features.attention_mask if self.config.mask_feature_padding else None
            )
        return hidden

    def _conditions(
        self,
        features: Features,
        hidden: torch.Tensor,
        state: torch.Tensor,
        embodiments: Embodiments,
        action_mask: torch.Tensor | None,
    ) -> _Conditions:
        real = steps = None
        if self.config.strict_action_padding_mask and action_mask is not None:
            real = action_mask.bool() if action_mask.ndim == 3 else action_mask.bool()[..., None]
            steps = real.any(-1)
        context = encode_context(self.config, self.model.transformer_blocks, features, hidden, steps)
        return _Conditions(embodiments, context, state, real)

    def _velocity(self, actions: torch.Tensor, time: torch.Tensor, given: _Conditions) -> torch.Tensor:
        horizon = actions.shape[1]
        if given.real is not None:
            actions = actions * given.real
        tokens = self.action_encoder(actions, time, given.embodiments)
        if self.position_embedding is not None:
            # Looked up through the module, so that a partitioned table is gathered first.
            positions = self.position_embedding(torch.arange(horizon, device=actions.device))
            tokens = tokens + positions.to(tokens.dtype)
        tokens = torch.cat([given.state.to(tokens.dtype), tokens], dim=1)
        output = self.model(tokens, time, given.features.keys_values, given.features.masks)
        return self.action_decoder(output[:, -horizon:], given.embodiments)

    def _state_token(self, state: torch.Tensor, embodiments: Embodiments) -> torch.Tensor:
        return self.state_encoder(state.reshape(state.shape[0], 1, -1), embodiments)

    def _check(
        self,
        features: Features,
        state: torch.Tensor,
        action: torch.Tensor | None = None,
        action_mask: torch.Tensor | None = None,
    ) -> None:
        config, batch = self.config, features.hidden.shape[0]
        problems = []
        if features.hidden.shape[-1] != config.backbone_embedding_dim:
            problems.append(
                f"features are {tuple(features.hidden.shape)}, width {config.backbone_embedding_dim} needed"
            )
        wanted = (batch, config.state_history_length, config.max_state_dim)
        if tuple(state.shape) != wanted:
            problems.append(f"state is {tuple(state.shape)}, {wanted} needed (state_history_length, max_state_dim)")
        if action is not None and action_mask is not None:
            if (action.ndim, action.shape[0], action.shape[-1]) != (3, batch, config.max_action_dim):
                problems.append(f"action is {tuple(action.shape)}, ({batch}, horizon, {config.max_action_dim}) needed")
            if action_mask.shape != action.shape:
                problems.append(f"action_mask is {tuple(action_mask.shape)}, action {tuple(action.shape)}")
        if problems:
            raise BatchError(
                "The batch does not fit the action head.",
                why="; ".join(problems),
                fix="prepare it with the processor of this checkpoint",
            )
