"""Which parts of an observation an embodiment uses, and what its actions mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from vla_groot.errors import ConfigError

GROUPS = ("video", "state", "action", "language")


class ActionRepresentation(Enum):
    """Relative actions are taken relative to the last state; "delta" is not computed, the data holds it already."""

    RELATIVE = "relative"
    DELTA = "delta"
    ABSOLUTE = "absolute"


class ActionType(Enum):
    """End-effector poses are composed as rigid motions, everything else is subtracted."""

    EEF = "eef"
    NON_EEF = "non_eef"


class ActionFormat(Enum):
    """How an end-effector pose is written; the default is a 4x4 matrix, row by row."""

    DEFAULT = "default"
    XYZ_ROT6D = "xyz+rot6d"
    XYZ_ROTVEC = "xyz+rotvec"


_E = TypeVar("_E", bound=Enum)


@dataclass(frozen=True)
class ActionConfig:
    """Meaning of one action part.

    Attributes:
        rep, type, format: see the enumerations.
        state_key: state part that relative actions refer to; None takes the one of the same name.
    """

    rep: ActionRepresentation = ActionRepresentation.ABSOLUTE
    type: ActionType = ActionType.NON_EEF
    format: ActionFormat = ActionFormat.DEFAULT
    state_key: str | None = None

    @classmethod
    def parse(cls, raw: Any) -> ActionConfig:
        """From a mapping whose values are names ("RELATIVE") or values ("relative") of the enumerations."""
        if isinstance(raw, ActionConfig):
            return raw
        if not isinstance(raw, Mapping):
            raise ConfigError(f"An action config is {raw!r}.", fix="write {rep: ..., type: ..., format: ...}")
        return cls(
            _member(ActionRepresentation, raw.get("rep", "absolute")),
            _member(ActionType, raw.get("type", "non_eef")),
            _member(ActionFormat, raw.get("format", "default")),
            raw.get("state_key"),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "rep": self.rep.name,
            "type": self.type.name,
            "format": self.format.name,
            "state_key": self.state_key,
        }


@dataclass(frozen=True)
class ModalityConfig:
    """One of video, state, action and language of an embodiment.

    Attributes:
        delta_indices: step offsets.
        modality_keys: parts, in the order they are concatenated.
        sin_cos_embedding_keys: states that may be fed as sine and cosine.
        mean_std_embedding_keys: parts normalised with mean and standard deviation.
        action_configs: meaning of every action part; None for absolute ones.
    """

    delta_indices: tuple[int, ...]
    modality_keys: tuple[str, ...]
    sin_cos_embedding_keys: tuple[str, ...] | None = None
    mean_std_embedding_keys: tuple[str, ...] | None = None
    action_configs: tuple[ActionConfig, ...] | None = field(default=None)

    def __post_init__(self) -> None:
        for name in ("delta_indices", "modality_keys", "sin_cos_embedding_keys", "mean_std_embedding_keys"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else tuple(value))
        if self.action_configs is not None:
            parsed = tuple(ActionConfig.parse(entry) for entry in self.action_configs)
            object.__setattr__(self, "action_configs", parsed)
            if len(parsed) != len(self.modality_keys):
                raise ConfigError(
                    f"There are {len(parsed)} action configs for {len(self.modality_keys)} action parts.",
                    why=f"parts: {', '.join(self.modality_keys)}",
                    fix="write one action config per part, in the same order",
                )

    @classmethod
    def parse(cls, raw: Any) -> ModalityConfig:
        """From a mapping with the names of the attributes.

        Raises:
            ConfigError: a key is unknown or missing.
        """
        if isinstance(raw, ModalityConfig):
            return raw
        known = set(cls.__dataclass_fields__)
        if not isinstance(raw, Mapping) or not {"delta_indices", "modality_keys"} <= set(raw) <= known:
            given = ", ".join(raw) if isinstance(raw, Mapping) else repr(raw)
            raise ConfigError(
                "A modality config is incomplete or has unknown keys.",
                why=f"given: {given}",
                fix=f"write delta_indices and modality_keys, and if needed {', '.join(sorted(known))}",
            )
        return cls(**raw)

    def to_dict(self) -> dict[str, Any]:
        def listed(value: Sequence[Any] | None) -> list[Any] | None:
            return None if value is None else list(value)

        configs = self.action_configs
        return {
            "delta_indices": list(self.delta_indices),
            "modality_keys": list(self.modality_keys),
            "sin_cos_embedding_keys": listed(self.sin_cos_embedding_keys),
            "mean_std_embedding_keys": listed(self.mean_std_embedding_keys),
            "action_configs": None if configs is None else [entry.to_dict() for entry in configs],
        }

    def action(self, key: str) -> ActionConfig:
        """Meaning of the action part `key`."""
        if self.action_configs is None:
            return ActionConfig()
        return self.action_configs[self.modality_keys.index(key)]


Embodiment = dict[str, ModalityConfig]


def parse_embodiment(raw: Mapping[str, Any], tag: str) -> Embodiment:
    """Modality configs of one embodiment by group.

    Raises:
        ConfigError: a group is unknown or "action" is missing.
    """
    unknown = sorted(set(raw) - set(GROUPS))
    if unknown or "action" not in raw:
        raise ConfigError(
            f"The modality configs of '{tag}' are not complete.",
            why=f"unknown: {', '.join(unknown)}" if unknown else "there is no action",
            fix=f"describe {', '.join(GROUPS)}",
        )
    return {group: ModalityConfig.parse(raw[group]) for group in GROUPS if group in raw}


def _member(enum: type[_E], value: Any) -> _E:
    if isinstance(value, enum):
        return value
    text = str(getattr(value, "value", value)).lower()
    for member in enum:
        if text in (member.name.lower(), str(member.value)):
            return member
    raise ConfigError(
        f"{value!r} is no {enum.__name__}.", fix=f"use one of {', '.join(member.name for member in enum)}"
    )
