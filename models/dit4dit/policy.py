"""DiT4DiT behind a policy server: upstream's request in, normalised actions out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from vla_backend import Backend
from vla_dit4dit.errors import BatchError
from vla_dit4dit.model import DiT4DiT


def build_policy(
    model: DiT4DiT, backend: Backend, config: Any, statistics: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A policy that answers upstream's `predict_action` requests.

    Args:
        model: on its device.
        backend: the active backend.
        config: complete configuration; its precision is that of autocast.
        statistics: not used, for upstream's clients un-normalise actions themselves.

    Returns:
        `policy(request)`; the request holds `examples`, a list of maps with `image` (list of frames; the observation
        first), `lang` and, if the model was trained with one, `state` (1, S). `seed` makes the answer repeatable.
        Other keys are ignored, as upstream does. The answer holds `normalized_actions` (B, H, D) float32.

    Raises:
        BatchError: from the policy, when a request does not fit.
    """

    dtype = backend.compute_dtype(config.parallel.mixed_precision)

    def policy(request: Mapping[str, Any]) -> dict[str, Any]:
        batch = to_batch(request.get("examples"))
        seed = request.get("seed")
        generator = None if seed is None else torch.Generator(backend.device).manual_seed(int(seed))
        with backend.evaluating(model), backend.autocast(dtype):
            actions = model.predict_action(backend.to_device(batch), generator)
        return {"normalized_actions": backend.to_numpy(actions)}

    return policy


def to_batch(examples: Any) -> dict[str, Any]:
    """A batch from upstream's list of examples.

    Raises:
        BatchError: no examples, a missing key, or frames of different sizes.
    """
    if not isinstance(examples, Sequence) or not examples:
        raise BatchError("The request has no 'examples'.", fix="send a list of maps with image, lang and state")
    missing = {key for key in ("image", "lang") for example in examples if key not in example}
    if missing:
        raise BatchError(
            f"An example lacks {', '.join(sorted(missing))}.", fix="image is a list of frames, lang a text"
        )
    clips = [torch.stack([to_frame(frame) for frame in example["image"]]) for example in examples]
    if len({clip.shape for clip in clips}) > 1:
        raise BatchError("The examples' images differ in size or number.", why=str([tuple(c.shape) for c in clips]))
    batch: dict[str, Any] = {"images": torch.stack(clips), "lang": [str(example["lang"]) for example in examples]}
    with_state = [example.get("state") is not None for example in examples]
    if all(with_state):
        states = [np.asarray(example["state"], dtype=np.float32) for example in examples]
        batch["state"] = torch.from_numpy(np.stack([state.reshape(-1, state.shape[-1]) for state in states]))
    elif any(with_state):
        raise BatchError("Some examples have a state and some have none.")
    return batch


def to_frame(frame: Any) -> torch.Tensor:
    """One frame, (H, W, 3) or (3, H, W), as (3, H, W) float32 in [0, 1]; integers are taken as 0..255.

    Raises:
        BatchError: another shape.
    """
    tensor = frame if isinstance(frame, torch.Tensor) else torch.from_numpy(np.array(frame))
    if tensor.ndim != 3 or 3 not in (tensor.shape[0], tensor.shape[-1]):
        raise BatchError(f"A frame has shape {tuple(tensor.shape)}.", fix="send (height, width, 3)")
    if tensor.shape[-1] == 3:
        tensor = tensor.permute(2, 0, 1)
    return tensor.float() if tensor.is_floating_point() else tensor.float() / 255
