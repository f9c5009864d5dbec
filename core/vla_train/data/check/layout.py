"""Checks that open no table and no video: metadata against metadata, and against what is on disk."""

from __future__ import annotations

import collections
import json

from vla_train.data.check.contents import Contents
from vla_train.data.check.findings import ERROR, NOTE, WARNING
from vla_train.data.modality import Modality, VectorPart

INFO, MODALITY = "meta/info.json", "meta/modality.json"


def check_layout(contents: Contents) -> None:
    """Episodes, files, features, `modality.json`, tasks; sets `contents.present`."""
    _episodes(contents)
    _files(contents)
    _features(contents)
    _parts(contents)
    _tasks(contents)


def _episodes(contents: Contents) -> None:
    info, listed, listing = contents.info, contents.listed, contents.files.listing
    if not listed:
        contents.add(ERROR, "no-episodes", listing, "no episode is listed", "download the file again")
    for index, count in collections.Counter(episode.index for episode in listed).items():
        if count > 1:
            contents.add(
                ERROR, "listed-twice", listing, f"episode {index} is listed {count} times", "keep one of the lines"
            )
    for episode in listed:
        if episode.length < 1:
            contents.add(
                ERROR, "no-steps", listing, f"episode {episode.index} has {episode.length} steps", "remove the episode"
            )
    totals = {"total_episodes": len(listed), "total_frames": sum(episode.length for episode in listed)}
    for key, found in totals.items():
        if key in info and info[key] != found:
            contents.add(
                WARNING,
                "totals",
                INFO,
                f"{key} is {info[key]}, {listing} adds up to {found}",
                "the list counts; correct info.json",
            )
    if info.get("total_chunks") == 0 and listed:
        contents.add(NOTE, "totals-unset", INFO, "total_chunks is 0; nothing depends on it")
    if "fps" not in info or not isinstance(info["fps"], (int, float)) or info["fps"] <= 0:
        contents.add(
            WARNING, "no-fps", INFO, f"fps is {info.get('fps')!r}", "set it to the recording's frames per second"
        )


def _files(contents: Contents) -> None:
    files, scope = contents.files, contents.scope
    features = list(contents.cameras().values())
    with_files = [feature for feature in features if files.has_videos(feature)]
    missing = {}
    for episode in contents.listed:
        absent = files.absent(episode.index, with_files)
        if absent is None:
            contents.present.append(episode)
        else:
            missing[episode.index] = absent
    severity = NOTE if scope.skip_missing and contents.present else ERROR
    for index, absent in missing.items():
        contents.add(
            severity,
            "missing-file",
            absent,
            f"does not exist (episode {index}; {len(missing)} of {len(contents.listed)} listed episodes lack files)",
            "download the rest, or set data.skip_missing_episodes=true to train on what is there",
        )
    for name, feature in contents.cameras().items():
        if feature in with_files:
            continue
        named = (contents.folder / MODALITY).is_file()
        contents.add(
            ERROR if named else WARNING,
            "camera-without-files",
            MODALITY if named else INFO,
            f"camera {name!r} ({feature}) has no video",
            "download the videos, or remove the key" if named else "nothing to do if no robot of yours needs it",
        )
    listed = {episode.index for episode in contents.listed}
    surplus = sorted(files.episodes_on_disk() - listed)
    if surplus:
        contents.add(
            WARNING,
            "unlisted-episode",
            files.listing,
            f"{len(surplus)} episodes on disk are not listed, e.g. {surplus[0]}; they count in the statistics only",
            "list them, or delete their files",
        )
    for what in files.oddities():
        contents.add(NOTE, "paths", INFO, f"{what}; the files are found by name")


def _features(contents: Contents) -> None:
    used = set(contents.modality.video.values())
    for name, feature in contents.info.get("features", {}).items():
        if feature.get("dtype") == "video" and name not in used and not contents.files.has_videos(name):
            contents.add(
                NOTE, "feature-without-files", INFO, f"{name} is listed but has no video; modality.json does not use it"
            )
        if feature.get("dtype") == "image":
            contents.add(
                WARNING,
                "images-in-tables",
                INFO,
                f"{name} holds images inside the tables, which are not read",
                "record or re-encode it as video",
            )


def _parts(contents: Contents) -> None:
    features, modality = contents.info.get("features", {}), contents.modality
    if not modality.action:
        contents.add(
            ERROR, "no-action", MODALITY, "no action part", "describe the action columns in meta/modality.json"
        )
    for group, name, part in contents.parts():
        if not 0 <= part.start < part.end:
            contents.add(
                ERROR, "modality", MODALITY, f"{group}.{name} is [{part.start}:{part.end}]", "start must be below end"
            )
        elif part.column not in features:
            _no_column(contents, f"{group}.{name}", part, features)
        elif (shape := features[part.column].get("shape")) and shape[-1] < part.end:
            contents.add(
                ERROR,
                "modality",
                MODALITY,
                f"{group}.{name} is {part.column}[{part.start}:{part.end}]; info.json says {shape[-1]} values",
                "correct the range",
            )
    _overlaps(contents, modality)
    for name, column in modality.language.items():
        if column not in features:
            contents.add(
                WARNING,
                "annotation",
                MODALITY if (contents.folder / MODALITY).is_file() else INFO,
                f"annotation {name!r} is column {column!r}, which info.json does not have; "
                "the task of the episode is used instead",
                f"correct the key; columns: {', '.join(features)}",
            )


def _no_column(contents: Contents, name: str, part: VectorPart, features: dict[str, object]) -> None:
    contents.add(
        ERROR,
        "modality",
        MODALITY,
        f"{name} is cut from column {part.column!r}, which info.json does not have",
        f"correct original_key; columns: {', '.join(features)}",
    )


def _overlaps(contents: Contents, modality: Modality) -> None:
    for group in ("state", "action"):
        taken: dict[tuple[str, int], str] = {}
        for name, part in getattr(modality, group).items():
            for i in range(part.start, part.end):
                other = taken.setdefault((part.column, i), name)
                if other != name:
                    contents.add(
                        WARNING,
                        "overlap",
                        MODALITY,
                        f"{group}.{name} and {group}.{other} both contain {part.column}[{i}]",
                        "correct the ranges unless this is meant",
                    )
                    break


def _tasks(contents: Contents) -> None:
    empty = [index for index, text in contents.tasks.items() if not text.strip()]
    if empty:
        contents.add(
            WARNING,
            "empty-instruction",
            "meta",
            f"task {empty[0]} has no text; episodes with it are left out",
            "write the instruction",
        )
    if not contents.tasks and not any(episode.tasks for episode in contents.listed):
        contents.add(WARNING, "no-instruction", "meta", "no task and no instruction", "write meta/tasks.jsonl")
    path = contents.folder / "meta" / "stats_gr00t.json"
    if path.is_file():
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            contents.add(WARNING, "statistics", path, f"is not JSON: {error}", "delete it; statistics are computed")
