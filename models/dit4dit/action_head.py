"""The action diffusion transformer: flow matching on action chunks, conditioned on video features."""

from __future__ import annotations

import torch
from torch import nn

from vla_dit4dit.config import ActionHeadConfig
from vla_dit4dit.encoders import ActionEncoder, TwoLayer
from vla_dit4dit.errors import BatchError
from vla_train.nn import (
    DiT,
    DiTSettings,
    Draws,
    KeyValue,
    discretise,
    euler_times,
    interpolate,
    masked_mean_square,
    velocity_target,
)


class FlowMatchingActionHead(nn.Module):
    """Predicts a chunk of H normalised actions of width D from features (B, S, C) and, if built so, a state.

    All arithmetic runs in the dtype of the inputs; give float32, because time and noise need it.
    """

    def __init__(self, config: ActionHeadConfig, cross_attention_dim: int | None = None) -> None:
        super().__init__()
        context_dim = config.cross_attention_dim or cross_attention_dim
        if context_dim is None:
            raise ValueError("the action head needs cross_attention_dim, the width of the video features")
        settings = DiTSettings(
            num_attention_heads=config.heads,
            attention_head_dim=config.head_dim,
            num_layers=config.num_layers,
            cross_attention_dim=context_dim,
            output_dim=config.output_dim,
            dropout=config.dropout,
            final_dropout=config.final_dropout,
            interleave_self_attention=config.interleave_self_attention,
            norm_type=config.norm_type,
            positional_embeddings=config.positional_embeddings,
            max_num_positional_embeddings=config.max_num_positional_embeddings,
            attention_bias=config.attention_bias,
            activation_fn=config.activation_fn,
            norm_elementwise_affine=config.norm_elementwise_affine,
            norm_eps=config.norm_eps,
        )
        self.config = config
        self.context_dim = context_dim
        self.model = DiT(settings)
        self.state_encoder = None
        if config.state_dim:
            self.state_encoder = TwoLayer(config.state_dim, config.hidden_size, settings.width)
        self.action_encoder = ActionEncoder(config.action_dim, settings.width)
        self.action_decoder = TwoLayer(config.output_dim, config.hidden_size, config.action_dim)
        self.position_embedding = None
        if config.add_pos_embed:
            self.position_embedding = nn.Embedding(config.max_seq_len, settings.width)
            nn.init.normal_(self.position_embedding.weight, mean=0.0, std=0.02)

    def loss(
        self,
        features: torch.Tensor,
        actions: torch.Tensor,
        action_mask: torch.Tensor,
        state: torch.Tensor | None = None,
        *,
        draws: Draws,
        repeats: int = 1,
    ) -> torch.Tensor:
        """Flow-matching loss over `repeats` copies of the batch, each copy with its own noise and time.

        Args:
            features: (B, S, C).
            actions: (B, A, D), normalised; the last H steps are the target.
            action_mask: (B, A, D) or (B, H, D), true where an action counts.
            state: (B, 1, state_dim); not used by a head without state encoder.
            draws: noise (R * B, H, D) and then R * B Beta samples are drawn.
            repeats: R.

        Returns:
            Scalar: sum of the masked squared velocity error / number of unmasked values.

        Raises:
            BatchError: a shape does not fit the configuration.
        """
        config = self.config
        self._check(features, state)
        expected = (features.shape[0], config.action_dim)
        if (actions.shape[0], actions.shape[-1]) != expected or actions.shape[1] < config.action_horizon:
            raise BatchError(
                f"actions are {tuple(actions.shape)}; the head needs ({expected[0]}, at least {config.action_horizon}, "
                f"{expected[1]}) from batch, action_horizon and action_dim",
                fix="set data.max_action_dim and model.action_head.action_dim to one value",
            )
        if action_mask.shape not in (actions.shape, actions[:, -config.action_horizon :].shape):
            raise BatchError(f"action_mask is {tuple(action_mask.shape)}, actions are {tuple(actions.shape)}")
        actions = actions[:, -config.action_horizon :].repeat(repeats, 1, 1)
        action_mask = action_mask[:, -config.action_horizon :].repeat(repeats, 1, 1)

        noise = draws.randn(actions.shape, device=actions.device, dtype=actions.dtype)
        beta = draws.beta(config.noise_beta_alpha, config.noise_beta_beta, actions.shape[0], device=actions.device)
        time = beta / config.noise_s
        noisy = interpolate(actions, noise, time.to(actions.dtype))
        predicted = self._velocity(
            noisy,
            discretise(time, config.num_timestep_buckets),
            self.model.encode_context(features),
            self._state_token(state, repeats),
        )
        return masked_mean_square(predicted, velocity_target(actions, noise), action_mask)

    @torch.no_grad()
    def sample(self, features: torch.Tensor, state: torch.Tensor | None = None, *, draws: Draws) -> torch.Tensor:
        """Draw action chunks with Euler steps from noise (t = 1) to data (t = 0).

        Args:
            features: (B, S, C).
            state: (B, 1, state_dim); not used by a head without state encoder.
            draws: noise (B, H, D) is drawn.

        Returns:
            (B, H, D) normalised actions, not clipped.
        """
        config = self.config
        self._check(features, state)
        batch, device = features.shape[0], features.device
        shape = (batch, config.action_horizon, config.action_dim)
        actions = draws.randn(shape, device=device, dtype=features.dtype)
        context, state_token = self.model.encode_context(features), self._state_token(state, 1)
        for bucket in euler_times(config.num_inference_timesteps, config.num_timestep_buckets):
            time = torch.full((batch,), bucket, device=device, dtype=torch.int64)
            velocity = self._velocity(actions, time, context, state_token)
            actions = actions - velocity / config.num_inference_timesteps
        return actions

    def _velocity(
        self,
        actions: torch.Tensor,
        time: torch.Tensor,
        context: list[KeyValue | None],
        state_token: torch.Tensor | None,
    ) -> torch.Tensor:
        horizon = actions.shape[1]
        tokens = self.action_encoder(actions, time)
        if self.position_embedding is not None:
            # Looked up through the module, so that a partitioned table is gathered first.
            positions = self.position_embedding(torch.arange(horizon, device=actions.device))
            tokens = tokens + positions.to(tokens.dtype)
        if state_token is not None:
            tokens = torch.cat([state_token, tokens], dim=1)
        return self.action_decoder(self.model(tokens, time, context)[:, -horizon:])

    def _state_token(self, state: torch.Tensor | None, repeats: int) -> torch.Tensor | None:
        if state is None or self.state_encoder is None:
            return None
        return self.state_encoder(state).repeat(repeats, 1, 1)

    def _check(self, features: torch.Tensor, state: torch.Tensor | None) -> None:
        if features.ndim != 3 or features.shape[-1] != self.context_dim:
            raise BatchError(
                f"features are {tuple(features.shape)}; the head needs (batch, tokens, {self.context_dim})",
                fix="set model.action_head.cross_attention_dim to the video transformer's width, or to null",
            )
        wanted = (features.shape[0], 1, self.config.state_dim)
        if state is not None and self.state_encoder is not None and tuple(state.shape) != wanted:
            raise BatchError(
                f"state is {tuple(state.shape)}; the head needs {wanted} from batch and state_dim",
                fix="set data.max_state_dim and model.action_head.state_dim to one value",
            )
