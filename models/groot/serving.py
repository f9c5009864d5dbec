"""What `vla serve` asks of GR00T: the endpoints of the published policy server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vla_backend import Backend
from vla_groot.build import trained_processor
from vla_groot.config import GrootConfig
from vla_groot.errors import EmbodimentError, ProcessorError
from vla_groot.model import Groot
from vla_groot.observation import nested
from vla_groot.policy import GrootPolicy
from vla_groot.processor import GrootProcessor

ENDPOINTS = ("get_action", "reset", "get_modality_config")


def build_policy(
    model: Groot, backend: Backend, config: Any, statistics: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], Any]:
    """A policy that answers the endpoints of the published server.

    Args:
        model: on its device; it is converted to the configured precision, as the published policy does.
        backend: the active backend.
        config: complete configuration.
        statistics: of the run, {} for a base checkpoint.

    Returns:
        `policy(request)`; the request's `endpoint` is one of
        "get_action" (the default) with `observation` and `options` as in `GrootPolicy.get_action`, answered by
            [actions, info]; an observation with flat keys ("video.<view>", "state.<part>") gets "action.<part>",
        "reset" with `options`, answered by {},
        "get_modality_config", answered by {group: {"__ModalityConfig__": True, "as_json": ...}}.

    Raises:
        GrootError: the checkpoint's files cannot be read, or it knows no such embodiment.
    """
    section: GrootConfig = config.model
    processor = trained_processor(section, statistics)
    tag = served_tag(section.embodiment_tag, processor, list(statistics))
    dtype = backend.compute_dtype(config.parallel.mixed_precision)
    if not statistics:  # a run of `vla train` has had exact positions
        model.backbone.round_frequencies(dtype)
    policy = GrootPolicy(model.cast(dtype), processor, tag)

    def get_action(observation: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> list[Any]:
        flat = any(key.startswith(("video.", "state.")) for key in observation)
        found = nested(observation, policy.modality) if flat else observation
        actions, info = policy.get_action(found, options)
        return [{f"action.{key}": value for key, value in actions.items()} if flat else actions, info]

    def get_modality_config() -> dict[str, Any]:
        parts = policy.get_modality_config().items()
        return {group: {"__ModalityConfig__": True, "as_json": part.to_dict()} for group, part in parts}

    def answer(request: Mapping[str, Any]) -> Any:
        name = request.get("endpoint", "get_action")
        if name not in ENDPOINTS:
            raise ProcessorError(f"Unknown endpoint: {name}", fix=f"use {', '.join(ENDPOINTS)}, ping or kill")
        if name == "get_modality_config":
            return get_modality_config()
        if name == "reset":
            return policy.reset(request.get("options"))
        if not isinstance(request.get("observation"), Mapping):
            raise ProcessorError(
                "The request has no 'observation'.", fix="send {'video': {...}, 'state': {...}, 'language': {...}}"
            )
        return get_action(request["observation"], request.get("options"))

    return answer


def served_tag(asked: str, processor: GrootProcessor, trained: list[str]) -> str:
    """The embodiment to serve: the one configured, or the only one that a run was trained on.

    Raises:
        EmbodimentError: the run was trained on several others, or the tag is unknown.
    """
    tag = processor.tag(asked)
    if not trained or tag in trained:
        return tag
    if len(trained) == 1:
        return trained[0]
    raise EmbodimentError(
        f"The run was not trained on '{tag}'.",
        why=f"it was on {', '.join(trained)}",
        fix=f"choose one: model.embodiment_tag={trained[0]}",
    )
