"""Reading a configuration: files, then overrides, then types, then values; every problem is found before one error."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vla_train import models
from vla_train.config import upstream
from vla_train.config.checks import check_values
from vla_train.config.errors import ConfigError, Problem, raise_if
from vla_train.config.files import nearest_path
from vla_train.config.overrides import NATIVE, apply, expand, parse
from vla_train.config.schema import Config
from vla_train.config.sources import Sources, line_numbers, read_yaml
from vla_train.config.typed import Builder, defaults, leaves, plain
from vla_train.models import ModelEntry


def load_config(
    paths: Sequence[str | Path],
    overrides: Sequence[str] = (),
    model: str | None = None,
    unchecked: Sequence[str] = (),
) -> tuple[Config, Sources]:
    """Read and check a configuration.

    Args:
        paths: YAML files; a later one wins. Files in the layout of a model's upstream project are translated.
        overrides: `key=value`, or `--key value` as in DiT4DiT's scripts; they win over files.
        model: name of the model; wins over the files.
        unchecked: sections that will not be used, whose values may be anything of the right type.

    Returns:
        The configuration, and the source of every value that is not a default.

    Raises:
        ConfigError: lists every unknown key with the nearest known one, every wrong type, everything missing and every
            value that cannot work, each with the file and line or the override it came from.
        UnknownModel: no installed model has that name.
    """
    sources = Sources()
    problems: list[Problem] = []
    settings, stray = parse(overrides)
    files = [(str(path), _read(Path(path), problems)) for path in paths]
    raise_if(problems)  # Nothing sensible can be said about the rest of an unreadable file.
    named = model or next((name for _, (_, tree) in files if (name := _model_name(tree))), None)
    if named is not None and named in models.entries():
        settings = expand(settings, models.find(named).options)

    foreign = [(path, text, tree) for path, (text, tree) in files if not _native(tree)]
    entry: ModelEntry | None = None
    merged: dict[str, Any] = {}
    if foreign:
        translation = upstream.translate(foreign, [s for s in settings if not s.native], model, sources)
        if translation is not None:
            entry, merged = translation
            settings = [s for s in settings if s.native]
            files = [(path, file) for path, file in files if _native(file[1])]
            sources.notes += [f"'{token}' sets nothing and is ignored" for token in stray]
            stray = []
        else:
            problems += [Problem("", note) for note in sources.notes]
            installed = ", ".join(sorted(models.entries())) or "none"
            for path, _, content in foreign:
                # A file with some sections of ours only has a misspelt one.
                if not any(key in NATIVE for key in content):
                    problems.append(Problem("", f"{path} is in a layout that no model reads", f"asked: {installed}"))
    problems += [Problem("", f"'{token}' is not a setting", "write key=value") for token in stray]

    tree: Any = OmegaConf.create(merged)
    for path, (text, content) in files:
        lines = line_numbers(text)
        tree = OmegaConf.merge(tree, content)
        for key, value in leaves(content):
            sources.mark(key, f"{path}:{lines[key]}" if key in lines else path, value)
    problems += apply(tree, settings, sources)
    if model is not None:
        OmegaConf.update(tree, "model.name", model)
        sources.mark("model.name", "--model")

    entry = _model_entry(tree, entry, problems)
    sources.model = entry.name
    config, found = _typed(tree, entry, sources)
    problems += found
    broken = {problem.key.partition(".")[0] for problem in problems} | set(unchecked)
    for key, message, remedy in check_values(config, skip=broken):
        problems.append(Problem(key, message, remedy, sources.where(key)[0]))
    raise_if(problems)
    return config, sources


def save_config(config: Config, path: Path, header: str = "") -> None:
    """Write the complete configuration as YAML that `load_config` reads back to an equal one."""
    text = "".join(f"# {line}\n" for line in header.splitlines()) + yaml.safe_dump(plain(config), sort_keys=False)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _read(path: Path, problems: list[Problem]) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        content: Any = OmegaConf.to_container(read_yaml(text))
    except FileNotFoundError:
        problems.append(Problem("", f"there is no file {path}", nearest_path(path)))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem("", f"{path} cannot be read: {error}"))
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        problems.append(Problem("", f"{path} is not valid YAML: {' '.join(str(error).split())}"))
    else:
        if isinstance(content, dict):
            return text, content
        problems.append(Problem("", f"{path} holds {type(content).__name__}, not a mapping of sections"))
    return "", {}


def _native(content: Mapping[str, Any]) -> bool:
    return all(key in NATIVE for key in content)


def _model_name(content: Mapping[str, Any]) -> str | None:
    section = content.get("model")
    return section.get("name") if isinstance(section, dict) else None


def _model_entry(tree: Any, entry: ModelEntry | None, problems: list[Problem]) -> ModelEntry:
    section = tree.get("model")
    name = section.get("name") if OmegaConf.is_dict(section) else None
    if name is None:
        installed = sorted(models.entries())
        if entry is not None:
            return entry
        if len(installed) != 1:
            remedy = f"set it, or pass --model; installed: {', '.join(installed) or 'none'}"
            raise_if([*problems, Problem("model.name", "is not set", remedy)])
        name = installed[0]
    return models.find(str(name))


def _typed(tree: Any, entry: ModelEntry, sources: Sources) -> tuple[Config, list[Problem]]:
    """The tree over the defaults, as dataclasses."""
    base = defaults(Config)
    base = dict(OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(base), dict(entry.defaults))))  # type: ignore[arg-type]
    base["model"] = {**defaults(entry.config_class), "name": entry.name}
    keys = tuple(key for key, _ in leaves(base))
    builder = Builder(sources.where, keys)
    # A section written as `train:` with nothing below it is an empty section, not null.
    given: Any = OmegaConf.create({key: value for key, value in tree.items() if value is not None})
    wrong = [key for key in given if isinstance(base.get(key), dict) and not OmegaConf.is_dict(given[key])]
    for key in wrong:
        message = f"is {given.pop(key)!r}, expected a section of keys"
        builder.problems.append(Problem(str(key), message, source=sources.where(str(key))[0]))
    try:
        whole: Any = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(base), given), resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(
            "A reference in the configuration cannot be resolved.", why=str(error).strip(), fix="correct the ${...}"
        ) from error
    section = whole.pop("model")
    config = builder.build(Config, copy.deepcopy(whole))
    config.model = builder.build(entry.config_class, section, "model.")
    return config, builder.problems
