"""The checks that need torch, each run as `python -m vla_train.doctor.child NAME`; the backend is that of VLA_BACKEND.

Every check prints one line of JSON for `children.py`.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any, Final

from vla_backend import Backend, activate, choose
from vla_backend.errors import BackendError
from vla_train.doctor.children import MARK

#: Elements of the test collective: large enough to leave the path for short messages.
_ELEMENTS: Final = 1 << 20
FRAMES: Final = 10


def main(arguments: list[str]) -> int:
    """Run one check and print its answer."""
    name, *rest = arguments
    try:
        found = CHECKS[name](*rest)
    except Exception as error:
        found = explained(error)
    print(MARK + json.dumps(found), flush=True)
    return 0


def explained(error: Exception) -> dict[str, Any]:
    """A failed check out of an error, in the backend's words where it knows them."""
    if isinstance(error, BackendError):
        return failed(f"{error.what} {error.why}".strip(), error.fix)
    text = f"{type(error).__name__}: {error}".strip()
    try:
        known = activate(choose(), check_available=False).translate_error(error)
    except Exception:
        known = None
    if known is not None and known.known:
        return failed(f"{known.what} {known.why} ({text})", known.remedy)
    line = traceback.extract_tb(error.__traceback__)[-1]
    return failed(f"{text} ({Path(line.filename).name}:{line.lineno})")


def ok(detail: str, **more: Any) -> dict[str, Any]:
    return {"outcome": "ok", "detail": detail, **more}


def failed(detail: str, remedy: str = "") -> dict[str, Any]:
    return {"outcome": "failed", "detail": " ".join(detail.split()), "remedy": " ".join(remedy.split())}


def _ready(local_rank: int = 0) -> Backend:
    backend = activate(choose())
    backend.load_stack()
    backend.local_device(local_rank)
    return backend


def stack() -> dict[str, Any]:
    """torch and the vendor's packages import, and the device takes a tensor; answers its free memory too."""
    backend = activate(choose(), check_available=False)
    loaded = backend.load_stack()
    import torch

    backend.local_device(0)
    total = float(torch.ones(1000, device=backend.device).sum().cpu())
    if total != 1000.0:
        return failed(f"1000 ones on {backend.device} add up to {total}", "the device computes wrongly: replace it")
    free, size = _memory(backend)
    return ok(f"{', '.join(loaded)} on {backend.device}", free=free, total=size)


def _memory(backend: Backend) -> tuple[int, int]:
    """(free, total) bytes of the device, other processes' use counted."""
    import torch

    module = torch.get_device_module(backend.device)
    if hasattr(module, "mem_get_info"):
        free, total = module.mem_get_info(backend.device)
        return int(free), int(total)
    total = backend.memory_stats().total
    if backend.device.type == "cpu":
        import psutil

        return min(int(psutil.virtual_memory().available), total), total
    return total - backend.memory_stats().reserved, total


def collective() -> dict[str, Any]:
    """One of two ranks: they sum a tensor of 4 MB and tell each other something."""
    import os

    from vla_train.train.world import join, leave

    rank = int(os.environ["LOCAL_RANK"])
    backend = _ready(rank)
    import torch

    world = join(backend, 40)
    try:
        summed = world.sum(torch.full((_ELEMENTS,), float(rank + 1), device=world.device))
        world.barrier()
        values = {float(value) for value in torch.stack([summed.min(), summed.max()]).tolist()}
        if values != {3.0}:
            return failed(f"1 + 2 over two ranks gave {sorted(values)}", "compare the versions of driver and libraries")
        return ok(f"two processes summed 4 MiB over {backend.dist_backend} on {world.device.type}")
    finally:
        leave()


def frames(decoder: str = "auto", video: str = "") -> dict[str, Any]:
    """Ten frames out of a video that was just made, and out of `video` if one is named."""
    from vla_train.doctor.video import decode_own, decode_theirs

    context = activate(choose(), check_available=False).video_ctx
    name, text = decode_own(decoder, context, FRAMES)
    if video:
        text += "; " + decode_theirs(name, context, Path(video), FRAMES)
    return ok(text)


def step(precision: str = "fp32") -> dict[str, Any]:
    """A training step of a small network on the device against float64 on the CPU."""
    from vla_train.doctor.step import compare

    backend = _ready()
    found = compare(backend, precision)
    text = ", ".join(f"{name} {value:.6f}" for name, value in found.cosines.items())
    line = f"a step in {precision} on {backend.device} against float64 on the CPU: cosine {text}"
    if found.good:
        return ok(line)
    return failed(
        f"{line}; at least {found.limit} is expected",
        "compare the version set; train.matmul_precision=highest switches short formats off",
    )


CHECKS: Final = {"stack": stack, "collective": collective, "frames": frames, "step": step}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
