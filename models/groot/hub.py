"""Finding a checkpoint or a backbone: a folder, or a hub id that is then downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vla_groot.errors import CheckpointError, GrootError

# Everything of a backbone but its weights.
SMALL_FILES = ("*.json", "*.jinja", "*.txt", "tokenizer.model")


def find_folder(name: str, near: Sequence[Path] = ()) -> Path | None:
    """The folder called `name`: an absolute path, or one relative to the working directory or to a folder of `near`."""
    given = Path(name).expanduser()
    return next((path for path in (given, *(folder / given for folder in near)) if path.is_dir()), None)


def on_this_host(name: str, near: Sequence[Path] = (), revision: str | None = None) -> Path | None:
    """The folder called `name`, or the hub's download of that repository if there is one; nothing is downloaded."""
    folder = find_folder(name, near)
    if folder is None and is_hub_id(name):
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, "config.json", revision=revision)
        folder = Path(found).parent if isinstance(found, str) else None
    return folder


def resolve(
    name: str,
    *,
    revision: str | None = None,
    near: Sequence[Path] = (),
    patterns: Sequence[str] | None = None,
    what: str = "checkpoint",
    error: type[GrootError] = CheckpointError,
) -> Path:
    """The folder that `name` means; a hub id is downloaded into the hub's cache.

    Args:
        name: folder or hub id.
        revision: hub revision.
        near: further folders that a relative path may start from.
        patterns: files wanted from the hub; all if None.
        what: "checkpoint" or "backbone", for messages.
        error: class of the error.

    Raises:
        GrootError (`error`): there is no such folder or repository, or it is gated.
    """
    folder = find_folder(name, near)
    if folder is not None:
        return folder
    if not is_hub_id(name):
        raise error(
            f"There is no {what} at {name}.",
            why="the folder does not exist, and it is no hub id (owner/name)",
            fix="correct the path",
        )
    return _download(name, revision, patterns, what, error)


def is_hub_id(name: str) -> bool:
    """Whether `name` has the form owner/name."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and all(name.split("/"))


def _download(
    name: str, revision: str | None, patterns: Sequence[str] | None, what: str, error: type[GrootError]
) -> Path:
    from huggingface_hub import errors, snapshot_download

    arguments: dict[str, Any] = {"revision": revision, "allow_patterns": list(patterns) if patterns else None}
    try:
        return Path(snapshot_download(name, **arguments))
    except errors.GatedRepoError as cause:
        raise error(
            f"The {what} {name} is gated.",
            why="its owner asks everybody to accept a licence first, and this machine's login has not",
            fix=f"accept it at https://huggingface.co/{name}, run `hf auth login`, or give a local folder instead",
        ) from cause
    except errors.RepositoryNotFoundError as cause:
        raise error(
            f"There is no {what} {name}.",
            why="neither a folder nor a public repository of the hub has this name",
            fix="correct the name; for a private repository run `hf auth login`",
        ) from cause
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError) as cause:
        raise error(
            f"The {what} {name} could not be downloaded.",
            why=f"{type(cause).__name__}: {str(cause).splitlines()[0] if str(cause) else ''}",
            fix="check the connection, or download it elsewhere and give the local folder",
        ) from cause
