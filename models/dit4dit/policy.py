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
        if seed is not None and not isinstance(seed, int | np.integer):
            raise BatchError(f"seed is {seed!r}.", fix="send a whole number, or none")
        generator = None if seed is None else torch.Generator(backend.device).manual_seed(int(seed))
        with backend.evaluating(model), backend.autocast(dtype):
            actions = model.predict_action(backend.to_device(batch), generator)
        return {"normalized_actions": backend.to_numpy(actions)}

    return policy


def to_batch(examples: Any) -> dict[str, Any]:
    """A batch from upstream's list of examples, or from a single one.

    Raises:
        BatchError: no examples, a missing key, or frames of different sizes.
    """
    if isinstance(examples, Mapping):
        examples = [examples]
    if not isinstance(examples, Sequence) or not examples:
        raise BatchError("The request has no 'examples'.", fix="send a list of maps with image, lang and state")
    if not all(isinstance(example, Mapping) for example in examples):
        raise BatchError("An example is no map.", fix="send maps with image, lang and state")
    missing = {key for key in ("image", "lang") for example in examples if key not in example}
    if missing:
        raise BatchError(
            f"An example lacks {', '.join(sorted(missing))}.", fix="image is a list of frames, lang a text"
        )
    clips = [torch.stack([to_frame(frame) for frame in _frames(example["image"])]) for example in examples]
    if len({clip.shape for clip in clips}) > 1:
        raise BatchError("The examples' images differ in size or number.", why=str([tuple(c.shape) for c in clips]))
    batch: dict[str, Any] = {"images": torch.stack(clips), "lang": [str(example["lang"]) for example in examples]}
    with_state = [example.get("state") is not None for example in examples]
    if all(with_state):
        states = [_to_state(example["state"]) for example in examples]
        if len({state.shape for state in states}) > 1:
            raise BatchError("The examples' states differ in shape.", why=str([state.shape for state in states]))
        batch["state"] = torch.from_numpy(np.stack(states))
    elif any(with_state):
        raise BatchError("Some examples have a state and some have none.")
    return batch


def _to_state(state: Any) -> np.ndarray[Any, Any]:
    """A state as (steps, S) float32."""
    try:
        values = np.asarray(state, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise BatchError("A state is not made of numbers.", why=str(error), fix="send (1, S) numbers") from error
    if not 1 <= values.ndim <= 2:
        raise BatchError(f"A state has shape {values.shape}.", fix="send (1, S) numbers")
    return values.reshape(-1, values.shape[-1])


def _frames(image: Any) -> Sequence[Any]:
    """The frames of an example's `image`: a list of them, (T, H, W, 3), or one frame."""
    if isinstance(image, (str, bytes, Mapping)) or image is None:
        raise BatchError(f"'image' is a {type(image).__name__}.", fix="send a list of frames")
    frames = image if isinstance(image, (list, tuple)) or getattr(image, "ndim", 3) > 3 else [image]
    if not len(frames):
        raise BatchError("'image' holds no frame.", fix="send a list of frames, the observation first")
    return frames


def to_frame(frame: Any) -> torch.Tensor:
    """One frame, (H, W, 3), (3, H, W) or grey (H, W), as (3, H, W) float32 in [0, 1]; a fourth channel is dropped.

    Integers are taken as 0..255, and so are floating-point images with a value above 2.

    Raises:
        BatchError: another shape.
    """
    array = frame if isinstance(frame, torch.Tensor) else np.array(frame)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "uif":
        raise BatchError(f"A frame is made of {array.dtype}.", fix="send (height, width, 3) numbers")
    tensor = array if isinstance(array, torch.Tensor) else torch.from_numpy(array)
    if tensor.ndim == 2:
        tensor = tensor.expand(3, -1, -1)
    if tensor.ndim != 3 or not {3, 4} & {tensor.shape[0], tensor.shape[-1]}:
        raise BatchError(f"A frame has shape {tuple(tensor.shape)}.", fix="send (height, width, 3)")
    # A tensor has its channels first if it can, an array last.
    if tensor.shape[-1] in (3, 4) and (tensor is not array or tensor.shape[0] not in (3, 4)):
        tensor = tensor.permute(2, 0, 1)
    tensor, whole = tensor[:3], not tensor.is_floating_point()
    tensor = tensor.float()
    # [0, 1] may be exceeded a little by resizing.
    return tensor / 255 if whole or tensor.max() > 2 else tensor
