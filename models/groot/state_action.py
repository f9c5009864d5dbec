"""States and actions in the model's range and back: normalisation and relative actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vla_groot.errors import EmbodimentError, ProcessorError
from vla_groot.modality import ActionRepresentation, ActionType, Embodiment
from vla_groot.pose import read_pose, relative_pose, write_pose

Arrays = dict[str, np.ndarray]


def to_unit(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """2 (x - low) / (high - low) - 1 in the dtype of `values`; 0 where low and high are nearly equal."""
    varies = ~np.isclose(high, low)
    share = ((values - low) / np.where(varies, high - low, 1.0)).astype(values.dtype)
    return np.where(varies, 2 * share - 1, np.zeros((), values.dtype)).astype(values.dtype)


def from_unit(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The inverse of `to_unit` in float64, after clipping to [-1, 1]."""
    return (np.clip(values, -1.0, 1.0) + 1.0) / 2.0 * (high - low) + low


class StateActionProcessor:
    """Normalises states and actions of several embodiments.

    Per part: sine and cosine if the embodiment allows it and the setting asks for it; else mean and standard deviation
    if the embodiment says so; else the range from minimum to maximum, or from the 1st to the 99th percentile, becomes
    [-1, 1]. Relative actions use `statistics[tag]["relative_action"]`, and never its percentiles.

    Args:
        embodiments: modality configs by tag.
        statistics: {tag: {"state" | "action" | "relative_action": {part: {min, max, mean, std, q01, q99}}}}.
        use_percentiles: percentiles instead of minimum and maximum.
        clip_outliers: clip normalised values to [-1, 1] (states normalised with mean and deviation never are).
        apply_sincos_state_encoding: use sine and cosine where allowed.
        use_relative_action: convert actions marked as relative.
    """

    def __init__(
        self,
        embodiments: Mapping[str, Embodiment],
        statistics: Mapping[str, Any] | None = None,
        *,
        use_percentiles: bool = True,
        clip_outliers: bool = True,
        apply_sincos_state_encoding: bool = False,
        use_relative_action: bool = False,
    ) -> None:
        self.embodiments = dict(embodiments)
        self.statistics: dict[str, Any] = dict(statistics or {})
        self.use_percentiles = use_percentiles
        self.clip_outliers = clip_outliers
        self.apply_sincos_state_encoding = apply_sincos_state_encoding
        self.use_relative_action = use_relative_action

    def apply_state(self, state: Mapping[str, np.ndarray], tag: str) -> Arrays:
        """Parts (..., T, D) normalised, in the embodiment's order; sine and cosine double D."""
        result = {}
        for key in self._keys(tag, "state"):
            values = self._part(state, key, "state", tag)
            if self._sincos(tag, key):
                result[key] = np.concatenate([np.sin(values), np.cos(values)], axis=-1)
                continue
            result[key] = self._normalise(values, tag, "state", key)
            if self.clip_outliers and not self._mean_std(tag, "state", key):
                result[key] = np.clip(result[key], -1.0, 1.0)
        return result

    def unapply_state(self, state: Mapping[str, np.ndarray], tag: str) -> Arrays:
        """The inverse of `apply_state`.

        Raises:
            ProcessorError: a part was fed as sine and cosine, which is not undone.
        """
        for key in self._keys(tag, "state"):
            if self._sincos(tag, key):
                raise ProcessorError(
                    f"State part '{key}' cannot be turned back.",
                    why="it is fed as sine and cosine of an angle, which forget full turns",
                    fix="keep the raw state",
                )
        return {key: self._denormalise(state[key], tag, "state", key) for key in self._keys(tag, "state")}

    def apply_action(
        self, action: Mapping[str, np.ndarray], tag: str, state: Mapping[str, np.ndarray] | None = None
    ) -> Arrays:
        """Parts (..., H, D) normalised, in the embodiment's order.

        Args:
            action: raw parts.
            tag: embodiment.
            state: raw state (..., T, D); the last step is the reference of relative actions.
        """
        result = {}
        for key in self._keys(tag, "action"):
            values = self._part(action, key, "action", tag)
            if self.is_relative(tag, key):
                values = self._to_relative(values, tag, key, state)
            result[key] = self._normalise(values, tag, "action", key)
            if self.clip_outliers:
                result[key] = np.clip(result[key], -1.0, 1.0)
        return result

    def unapply_action(
        self, action: Mapping[str, np.ndarray], tag: str, state: Mapping[str, np.ndarray] | None = None
    ) -> Arrays:
        """The inverse of `apply_action`: the robot's units, relative actions made absolute with the raw `state`."""
        result = {}
        for key in self._keys(tag, "action"):
            values = self._denormalise(self._part(action, key, "action", tag), tag, "action", key)
            if self.is_relative(tag, key):
                values = self._to_absolute(values, tag, key, state)
            result[key] = values
        return result

    def is_relative(self, tag: str, key: str) -> bool:
        """Whether the action part is converted to relative values."""
        return self.use_relative_action and self._meaning(tag, key).rep is ActionRepresentation.RELATIVE

    def relative_action(
        self, action: Mapping[str, np.ndarray], tag: str, state: Mapping[str, np.ndarray] | None = None
    ) -> Arrays:
        """The action parts marked as relative, converted but not normalised; for statistics."""
        keys = [
            key for key in self._keys(tag, "action") if self._meaning(tag, key).rep is ActionRepresentation.RELATIVE
        ]
        return {key: self._to_relative(action[key], tag, key, state) for key in keys}

    def widths(self, tag: str, group: str) -> dict[str, int]:
        """Width of every part of "state" (as fed to the model) or "action"."""
        found = {}
        for key in self._keys(tag, group):
            width = self._values(tag, group, key, "min").shape[-1]
            found[key] = 2 * width if group == "state" and self._sincos(tag, key) else width
        return found

    def _to_relative(self, values: np.ndarray, tag: str, key: str, state: Mapping[str, Any] | None) -> np.ndarray:
        meaning, reference = self._meaning(tag, key), self._reference(tag, key, state)
        if meaning.type is ActionType.NON_EEF:
            return values.astype(np.float64) - reference
        pose = read_pose(reference, meaning.format)
        return write_pose(relative_pose(pose, read_pose(values, meaning.format)), meaning.format)

    def _to_absolute(self, values: np.ndarray, tag: str, key: str, state: Mapping[str, Any] | None) -> np.ndarray:
        meaning, reference = self._meaning(tag, key), self._reference(tag, key, state)
        if meaning.type is ActionType.NON_EEF:
            return values + reference
        return write_pose(read_pose(reference, meaning.format) @ read_pose(values, meaning.format), meaning.format)

    def _reference(self, tag: str, key: str, state: Mapping[str, Any] | None) -> np.ndarray:
        name = self._meaning(tag, key).state_key or key
        if state is None or name not in state:
            raise ProcessorError(
                f"Action part '{key}' of '{tag}' needs the state part '{name}'.",
                why="it is relative to the last state",
                fix="give the raw state along with the action",
            )
        return np.asarray(state[name], dtype=np.float64)[..., -1:, :]

    def _normalise(self, values: np.ndarray, tag: str, group: str, key: str) -> np.ndarray:
        if self._mean_std(tag, group, key):
            mean, std = self._pair(values, tag, group, key, ("mean", "std"))
            scaled = (values - mean) / np.where(std != 0, std, 1.0)
            return np.where(std != 0, scaled, values).astype(values.dtype)
        return to_unit(values, *self._pair(values, tag, group, key, self._bounds(tag, group, key)))

    def _denormalise(self, values: np.ndarray, tag: str, group: str, key: str) -> np.ndarray:
        if self._mean_std(tag, group, key):
            mean, std = self._pair(values, tag, group, key, ("mean", "std"))
            return np.where(std != 0, values * std + mean, values).astype(values.dtype)
        return from_unit(values, *self._pair(values, tag, group, key, self._bounds(tag, group, key)))

    def _bounds(self, tag: str, group: str, key: str) -> tuple[str, str]:
        return ("q01", "q99") if self.use_percentiles and not self._per_step(tag, group, key) else ("min", "max")

    def _pair(
        self, values: np.ndarray, tag: str, group: str, key: str, names: tuple[str, str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Two statistics that fit `values` (..., D), each (D,) or, per step, (H, D)."""
        low, high = (self._values(tag, group, key, name) for name in names)
        if low.ndim == 2:  # per step: a shorter chunk uses the first steps
            low, high = low[: values.shape[-2]], high[: values.shape[-2]]
        if low.shape[-1] != values.shape[-1] or (low.ndim == 2 and low.shape[0] != values.shape[-2]):
            raise ProcessorError(
                f"{group.capitalize()} part '{key}' of '{tag}' is {values.shape}.",
                why=f"its statistics are {low.shape}",
                fix="use the statistics and the modality configs of the same data",
            )
        return low, high

    def _per_step(self, tag: str, group: str, key: str) -> bool:
        return group == "action" and self.is_relative(tag, key)

    def _values(self, tag: str, group: str, key: str, name: str) -> np.ndarray:
        found = self._statistics(tag, group, key)
        if name not in found:
            raise EmbodimentError(
                f"The statistics of {group} '{key}' of '{tag}' lack '{name}'.",
                why=f"they have {', '.join(found)}",
                fix="add it to statistics.json, or normalise otherwise (use_percentiles, mean_std_embedding_keys)",
            )
        return np.asarray(found[name], dtype=np.float64)

    def _statistics(self, tag: str, group: str, key: str) -> Mapping[str, Any]:
        name = "relative_action" if self._per_step(tag, group, key) else group
        try:
            found: Mapping[str, Any] = self.statistics[tag][name][key]
        except KeyError as error:
            raise EmbodimentError(
                f"There are no statistics of {name} '{key}' of '{tag}'.",
                why=f"statistics exist for: {', '.join(self.statistics) or 'no embodiment'}",
                fix="choose an embodiment the checkpoint was trained on, or fine-tune it on data of this one first",
            ) from error
        return found

    def _keys(self, tag: str, group: str) -> tuple[str, ...]:
        if tag not in self.embodiments:
            raise EmbodimentError(
                f"There are no modality configs of '{tag}'.",
                why=f"described: {', '.join(self.embodiments) or 'none'}",
                fix="choose one of them, or describe it in a file named by model.modality_config",
            )
        config = self.embodiments[tag].get(group)
        return () if config is None else config.modality_keys

    def _part(self, parts: Mapping[str, np.ndarray], key: str, group: str, tag: str) -> np.ndarray:
        if key not in parts:
            raise ProcessorError(
                f"{group.capitalize()} part '{key}' is missing.",
                why=f"'{tag}' has {', '.join(self._keys(tag, group))}; given: {', '.join(parts) or 'none'}",
                fix="give every part",
            )
        return np.asarray(parts[key])

    def _meaning(self, tag: str, key: str) -> Any:
        return self.embodiments[tag]["action"].action(key)

    def _sincos(self, tag: str, key: str) -> bool:
        return self.apply_sincos_state_encoding and key in (self.embodiments[tag]["state"].sin_cos_embedding_keys or ())

    def _mean_std(self, tag: str, group: str, key: str) -> bool:
        return key in (self.embodiments[tag][group].mean_std_embedding_keys or ())
