"""What an answer must be beyond its type: one generator of complaints per hook before torch."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from vla_backend import BackendInfo, ConfigIssue, DeepSpeedTuning, Explanation, LoaderDefaults, Probe, VideoContext
from vla_backend.errors import UnsupportedError

#: Those that the engine can open.
DECODERS: Final = ("pyav", "torchcodec", "decord")


def complaints(hook: str, arguments: tuple[Any, ...], answer: Any) -> Iterator[tuple[str, str]]:
    """(what is wrong with the answer, what to do) for each mistake."""
    judge = _JUDGES.get(hook)
    if judge is not None and not isinstance(answer, UnsupportedError):
        yield from judge(answer, *arguments)


def _backend_info(answer: BackendInfo) -> Iterator[tuple[str, str]]:
    if not isinstance(answer.device_type, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", answer.device_type):
        yield f"device_type {answer.device_type!r} is no device type of torch", "answer what tensor.device.type says"
    if not answer.vendor:
        yield "vendor is empty", "name the maker of the chip"
    if not re.fullmatch(r"\d+\.\d+", str(answer.api)):
        yield f"api {answer.api!r} is no 'major.minor'", "state the API the plugin was written for"


def _probe(answer: Probe, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if not answer.reason:
        yield "a probe without a reason", "give the evidence, or say what is missing"
    if not answer.ok and not answer.remedy:
        yield "the probe says no without a remedy", "say in Probe.remedy what the reader can do"
    if answer.ok and answer.device_count < 1:
        yield f"ok with {answer.device_count} devices", "count the devices that are visible to this process"


def _env_defaults(answer: dict[str, str], config: Any, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in answer.items():
        if not isinstance(name, str) or not isinstance(value, str):
            yield f"the variable {name!r} is set to {value!r}, which is no text", "environment variables are strings"


def _visible_devices_env(answer: str) -> Iterator[tuple[str, str]]:
    if answer and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", answer):
        yield f"{answer!r} is no name of a variable", 'answer the name alone, or "" if the chip has none'


def _check_config(answer: list[ConfigIssue], config: Any, env: Any) -> Iterator[tuple[str, str]]:
    for issue in answer:
        if not isinstance(issue, ConfigIssue):
            yield f"{issue!r} is no ConfigIssue", "answer a list of ConfigIssue(level, key, message, remedy)"
        elif issue.level not in ("error", "warning"):
            yield f"a finding of the level {issue.level!r}", 'the levels are "error" and "warning"'
        elif not issue.key or not issue.message:
            yield f"a finding without key or message: {issue!r}", "name the setting and say what is wrong with it"
        elif issue.level == "error" and not issue.remedy:
            yield f"an error about {issue.key} without a remedy", "say what to set instead"


def _dataloader_defaults(answer: LoaderDefaults, cpu_count: int) -> Iterator[tuple[str, str]]:
    if answer.start_method not in ("fork", "spawn", "forkserver"):
        yield f"start_method {answer.start_method!r}", 'answer "spawn", "forkserver" or "fork"'
    if not 0 <= answer.num_workers <= max(1, cpu_count):
        yield f"{answer.num_workers} data workers for {cpu_count} processors", "leave a processor to the trainer"
    if answer.prefetch_factor < 1:
        yield f"prefetch_factor {answer.prefetch_factor}", "answer 1 or more"


def _video_ctx(answer: VideoContext, machine: str) -> Iterator[tuple[str, str]]:
    unknown = [name for name in answer.decoders if name not in DECODERS]
    if unknown or not answer.decoders:
        named = ", ".join(map(repr, unknown)) or "none"
        yield f"decoders that the engine does not have: {named}", f"choose among {', '.join(DECODERS)}"
    try:
        pickle.loads(pickle.dumps(answer))
    except Exception as error:
        yield f"a VideoContext that cannot go to a data worker ({error})", "use plain values"


def _translate_error(answer: Explanation, error: BaseException) -> Iterator[tuple[str, str]]:
    if answer.known and not (answer.what and answer.why and answer.remedy):
        yield "an explanation with an empty part", "say what happened, why, and what to do"


def _dist_backend(answer: str) -> Iterator[tuple[str, str]]:
    if not re.fullmatch(r"[a-z][a-z0-9_:,]*", answer):
        yield f"{answer!r} is no name of a process group's library", "answer what init_process_group takes"


def _tune_deepspeed(answer: DeepSpeedTuning, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    tuned = answer.config
    if not isinstance(tuned, Mapping):
        yield f"a configuration that is {type(tuned).__name__}", "answer the complete DeepSpeed configuration"
        return
    for path in ("zero_optimization.stage", "bf16.enabled", "fp16.enabled"):
        before, after = _lookup(config, path), _lookup(tuned, path)
        if before != after:
            yield (
                f"it changes {path} from {before!r} to {after!r}",
                "the ZeRO stage and the precision are the user's; report an error in check_config instead",
            )
    lost = sorted(set(config) - set(tuned))
    if lost:
        yield f"it loses the settings {', '.join(lost)}", "answer a changed copy of the whole configuration"
    if dict(tuned) != dict(config) and not answer.changes:
        yield "it changes settings without saying so", "add one sentence per change to DeepSpeedTuning.changes"


def _lookup(tree: Any, path: str) -> Any:
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


_JUDGES: Final[dict[str, Callable[..., Iterator[tuple[str, str]]]]] = {
    "backend_info": _backend_info,
    "probe": _probe,
    "env_defaults": _env_defaults,
    "visible_devices_env": _visible_devices_env,
    "check_config": _check_config,
    "dataloader_defaults": _dataloader_defaults,
    "video_ctx": _video_ctx,
    "translate_error": _translate_error,
    "dist_backend": _dist_backend,
    "tune_deepspeed": _tune_deepspeed,
}
