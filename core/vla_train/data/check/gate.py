"""The quick check that training runs before it starts."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from vla_backend import VideoContext
from vla_train.data.cache import all_files, content_file, load, store
from vla_train.data.check.findings import ERROR, WARNING, Report, describe
from vla_train.data.check.run import Scope, check_dataset
from vla_train.data.errors import DataError
from vla_train.data.lerobot import LeRobotDataset
from vla_train.data.robot import Robot

log = logging.getLogger(__name__)

_VERSION = 1  # of the checks: a cached result of another version is not used
_LINES = 30  # of findings in the error


def check_before_training(members: Sequence[tuple[LeRobotDataset, Robot]], context: VideoContext) -> None:
    """Stop a run whose data would kill or falsify it; on rank 0 only, and once per state of the files.

    Args:
        members: the datasets of the mixture and what is read from them.
        context: the decoders of the run.

    Raises:
        DataError: everything that is wrong, and how to put it right.
    """
    if int(os.environ.get("RANK", "0")) != 0:
        return
    reports = [_report(dataset, robot, context) for dataset, robot in members]
    for report in reports:
        warnings = report.count(WARNING)
        if warnings:
            log.warning("%s: warnings: %d; `vla data check %s` lists them", report.path, warnings, report.path)
    wrong = [report for report in reports if report.errors]
    if not wrong:
        return
    lines = [line for report in wrong for line in [f"{report.path}:", *describe(report.errors)]]
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], "..."]
    count = sum(report.count(ERROR) for report in wrong)
    raise DataError(
        f"{count} error{'s' * (count != 1)} in the data of this run",
        why="\n       ".join(lines),
        fix=f"as said above; `vla data check {wrong[0].path}` shows everything, data.check=off trains in spite of it",
    )


def _report(dataset: LeRobotDataset, robot: Robot, context: VideoContext) -> Report:
    scope = Scope(
        state=tuple(part.name for part in robot.state),
        action=tuple(part.name for part in robot.action),
        cameras=robot.cameras,
        skip_missing=dataset.skip_missing,
    )
    file = content_file("checks", dataset.folder, all_files(dataset.folder), _VERSION, scope, context.decoders)
    cached = load(file)
    if cached is not None:
        return Report.from_json(cached)
    log.info("checking %s", dataset.folder)
    report = check_dataset(dataset.folder, scope=scope, context=context)
    store(file, report.as_json())
    return report
