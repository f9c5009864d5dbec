"""Configurations in the layout of a model's upstream project: merged as that project does, then translated."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

from omegaconf import OmegaConf

from vla_backend.errors import BackendError
from vla_train import models
from vla_train.config.errors import ConfigError, raise_if
from vla_train.config.overrides import Override, apply
from vla_train.config.sources import Sources
from vla_train.config.typed import leaves
from vla_train.models import ModelEntry

File = tuple[str, str, dict[str, Any]]


def translate(
    files: Sequence[File], settings: Sequence[Override], model: str | None, sources: Sources
) -> tuple[ModelEntry, dict[str, Any]] | None:
    """The native tree for files in an upstream layout, or `None` if no installed model knows the layout.

    Args:
        files: path, text and content of each file, a later one wins.
        settings: overrides in the upstream layout; merged before the translation, as upstream does.
        model: the model asked for, else every installed one is asked.
        sources: filled with the origin of each translated value, and with a note per override without effect.

    Raises:
        ConfigError: the model knows the layout but not this content.
    """
    raw = OmegaConf.merge(*[OmegaConf.create(content) for _, _, content in files])
    whole = copy.deepcopy(raw)
    raise_if(apply(whole, settings))
    entry = _recognise(_plain(whole), model, sources)
    if entry is None:
        return None
    names = ", ".join(path for path, _, _ in files)
    before = _attempt(entry, raw)
    marks: dict[str, str] = {}
    for setting in settings:
        apply(raw, [setting])
        after = _attempt(entry, raw)
        changed = _changed(before, after)
        marks.update(dict.fromkeys(changed, f"override '{setting.token}', translated"))
        if not changed and not _is_read(entry, raw, setting.key, after):
            sources.notes.append(f"'{setting.token}' has no effect: {entry.name} does not read {setting.key}")
        before = after
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tree = _translated(entry, _plain(raw), names)
    sources.notes += [str(warning.message) for warning in said]
    for key, value in leaves(tree):
        sources.mark(key, marks.get(key, f"{names}, translated"), value)
    return entry, tree


def _recognise(raw: dict[str, Any], model: str | None, sources: Sources) -> ModelEntry | None:
    for name in [model] if model else sorted(models.entries()):
        try:
            entry = models.find(name)
        except BackendError:
            raise
        except Exception as error:  # Whatever is wrong with one package, it must not keep the others from being asked.
            sources.notes.append(f"the model '{name}' cannot be imported and was not asked: {error}")
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Collected by the translation that counts.
            if entry.translate is not None and _translated(entry, raw, "The configuration") is not None:
                return entry
    return None


def _translated(entry: ModelEntry, raw: dict[str, Any], names: str) -> Any:
    assert entry.translate is not None
    try:
        return entry.translate(raw)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{names} cannot be translated for the model '{entry.name}'.",
            why=str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}",
            fix="correct the file, or write the configuration in the native layout (docs/configuration.md)",
        ) from error


def _attempt(entry: ModelEntry, raw: Any) -> dict[str, Any]:
    """The translation, or nothing while the overrides applied so far do not make a valid whole."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _translated(entry, _plain(raw), "") or {}
    except BackendError:
        return {}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    old = dict(leaves(before))
    return [key for key, value in leaves(after) if key not in old or old[key] != value]


def _is_read(entry: ModelEntry, raw: Any, key: str, now: dict[str, Any]) -> bool:
    """Whether the translation looks at `key`: a value of no known type there must change it or make it fail."""
    probe = copy.deepcopy(_plain(raw))
    parent = probe
    *sections, last = key.split(".")
    for section in sections:
        parent = parent[section]
    parent[last] = object()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bool(entry.translate is not None and entry.translate(probe) != now)
        except Exception:
            return True


def _plain(raw: Any) -> dict[str, Any]:
    tree: dict[str, Any] = OmegaConf.to_container(raw, resolve=True)  # type: ignore[assignment]
    return tree
