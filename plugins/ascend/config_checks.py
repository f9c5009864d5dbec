"""Settings that cannot work on Ascend, found before a process starts."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from vla_backend import ConfigIssue
from vla_backend.explain import HOST
from vla_backend.installed import package_folder
from vla_backend.settings import setting
from vla_backend_ascend import environment, hardware
from vla_backend_ascend.errors_table import ASCEND

_PRECISIONS: Final = ("bf16", "fp16")
_CHINESE: Final = {known.name: known.chinese for known in (*ASCEND, *HOST)}


def issues(config: Mapping[str, Any], env: Mapping[str, str]) -> list[ConfigIssue]:
    return [*_devices(config, env), *_precision(config), *_model(config), *_data(config), *_environment(config, env)]


def _devices(config: Mapping[str, Any], env: Mapping[str, str]) -> Iterator[ConfigIssue]:
    nodes = hardware.devices()
    mask = hardware.visible(env.get(hardware.MASK), len(nodes))
    if mask.problem and nodes:
        yield ConfigIssue("error", hardware.MASK, mask.problem, mask.remedy)
        return
    processes = int(setting(config, "parallel.processes", 1))
    if nodes and processes > mask.count:
        yield ConfigIssue(
            "error",
            "parallel.processes",
            f"{processes} processes for {mask.count} visible NPUs: two ranks would be assigned to the same device",
            f"set parallel.processes={mask.count}",
            _CHINESE["too-many-processes"],
        )
    container = env.get("ASCEND_VISIBLE_DEVICES")
    if container and hardware.MASK not in env:
        yield ConfigIssue(
            "warning",
            "ASCEND_VISIBLE_DEVICES",
            f"ASCEND_VISIBLE_DEVICES={container} chooses devices for a container when it starts, not for a process: "
            f"this job sees all {len(nodes)}",
            f"set {hardware.MASK} to choose among them",
        )
    if env.get("CUDA_VISIBLE_DEVICES") and hardware.MASK not in env:
        yield ConfigIssue(
            "warning",
            "CUDA_VISIBLE_DEVICES",
            "CUDA_VISIBLE_DEVICES has no effect on NPUs",
            f"set {hardware.MASK} instead",
        )


def deepspeed_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The user's own DeepSpeed settings, read from their file if they are a path."""
    given = setting(config, "parallel.deepspeed", {})
    if isinstance(given, str):
        try:
            given = json.loads(Path(given).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            # Reported where the file is used; here it only means that there is nothing to check.
            given = {}
    return given if isinstance(given, Mapping) else {}


def _precision(config: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Precision has one owner; DeepSpeed's file silently overrules accelerate's setting or is refused by it."""
    owner, deepspeed = setting(config, "parallel.mixed_precision"), deepspeed_settings(config)
    for precision in _PRECISIONS:
        enabled = setting(deepspeed, f"{precision}.enabled")
        if not isinstance(enabled, bool) or owner is None:
            continue
        if enabled == (owner == precision):
            level, effect = "warning", "says again"
        else:
            level, effect = "error", "contradicts"
        yield ConfigIssue(
            level,  # type: ignore[arg-type]
            f"parallel.deepspeed.{precision}",
            f"{precision}.enabled={str(enabled).lower()} {effect} what parallel.mixed_precision={owner} states",
            f"remove {precision} from the DeepSpeed settings; parallel.mixed_precision alone decides",
            _CHINESE["precision-twice"],
        )


def _model(config: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    for key, value in _leaves(config):
        if key.endswith("attn_implementation") and "flash" in str(value):
            yield ConfigIssue(
                "warning",
                key,
                f"{value} is CUDA code; on Ascend attention runs through the implementation this backend chooses",
                f"remove {key}",
                _CHINESE["flash-attn"],
            )


def _data(config: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    decoder = str(setting(config, "data.decoder", "auto"))
    if re.search("cuda|gpu|nvdec", decoder):
        yield ConfigIssue(
            "error",
            "data.decoder",
            f"'{decoder}' decodes on an NVIDIA GPU",
            "set data.decoder=auto or pyav",
            _CHINESE["asked-for-cuda"],
        )
    if decoder == "decord" and platform.machine() == "aarch64" and package_folder("decord") is None:
        yield ConfigIssue(
            "error",
            "data.decoder",
            "decord has no wheel for aarch64 and is not installed",
            "set data.decoder=pyav",
            _CHINESE["video-decoder"],
        )


def _environment(config: Mapping[str, Any], env: Mapping[str, str]) -> Iterator[ConfigIssue]:
    if env.get("TORCH_TRANSFER_TO_NPU") == "1":
        yield ConfigIssue(
            "error",
            "TORCH_TRANSFER_TO_NPU",
            "torch_npu would answer in the name of CUDA, and libraries would choose CUDA code and NCCL",
            "unset TORCH_TRANSFER_TO_NPU; nothing here needs it",
            "torch_npu 会冒充 CUDA，其他库会因此选择 CUDA 代码和 NCCL。请取消 TORCH_TRANSFER_TO_NPU，这里不需要它。",
        )
    if env.get("ASCEND_LAUNCH_BLOCKING") == "1":
        yield ConfigIssue(
            "warning",
            "ASCEND_LAUNCH_BLOCKING",
            "operators are launched one by one, which is for finding errors and slow",
            "unset ASCEND_LAUNCH_BLOCKING for training",
        )
    for name, wanted in environment.timeouts(config).items():
        if env.get(name, wanted) != wanted:
            yield ConfigIssue(
                "warning",
                name,
                f"{name}={env[name]} differs from {wanted}, which follows from parallel.dist_timeout; "
                "the shortest of HCCL's and torch's timeouts ends the job",
                f"unset {name} and set parallel.dist_timeout",
                _CHINESE["EI0002 collective-timeout"],
            )
    yield from _allocator(env.get("PYTORCH_NPU_ALLOC_CONF", ""))
    yield from _base_port(env.get("HCCL_IF_BASE_PORT", ""))


def _allocator(settings: str) -> Iterator[ConfigIssue]:
    """torch_npu refuses this pair when the first tensor is put on the NPU."""
    options = dict(part.strip().partition(":")[::2] for part in settings.split(",") if part.strip())
    others = sorted({"max_split_size_mb", "garbage_collection_threshold"} & set(options))
    if others and options.get("expandable_segments", "").lower() == "true":
        yield ConfigIssue(
            "error",
            "PYTORCH_NPU_ALLOC_CONF",
            f"expandable_segments:True excludes {' and '.join(others)}",
            f"remove {' and '.join(others)}, or unset PYTORCH_NPU_ALLOC_CONF",
            _CHINESE["allocator-settings"],
        )


def _base_port(port: str) -> Iterator[ConfigIssue]:
    """On a shared machine a fixed base port is taken sooner or later, or leaves no room below 65536."""
    if not port:
        return
    last = environment.LAST_BASE_PORT
    if not port.isdigit() or not 1024 <= int(port) <= last:
        found = (
            f"HCCL_IF_BASE_PORT={port} is not between 1024 and {last}: HCCL takes {environment.PORTS} ports from it on"
        )
    elif taken := environment.taken_ports(int(port)):
        found = f"HCCL_IF_BASE_PORT={port}, but port {taken[0]} of the {environment.PORTS} from there on is taken"
    else:
        return
    yield ConfigIssue(
        "error",
        "HCCL_IF_BASE_PORT",
        found,
        "unset HCCL_IF_BASE_PORT: the launcher finds a free block",
        _CHINESE["EJ0003 hccl-port"],
    )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping, with its dotted path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
