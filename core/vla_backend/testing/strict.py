"""The strict mode: what a model does that works on the chip at hand only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from vla_backend.backend import Backend
from vla_backend.testing import device_names
from vla_backend.testing.callers import caller
from vla_backend.testing.regions import RegionObserver, Report


class StrictError(AssertionError):
    """A model that is bound to one kind of chip; lists every finding."""


@contextlib.contextmanager
def strict(model: Any, backend: Backend, observer: RegionObserver, precision: str) -> Iterator[None]:
    """Run a block strictly; see the fixture `strict_mode`.

    Args:
        model: the module under test; its top-level package is searched for names of devices.
        backend: device-ready.
        observer: of the backend's full-precision regions.
        precision: of the autocast around the block, "bf16", "fp16" or "fp32".

    Raises:
        StrictError: at the end of the block, or instead of an exception inside it when there are findings.
    """
    findings: dict[str, None] = {}  # in order, each once

    def report(sentence: str) -> None:
        findings.setdefault(sentence)

    for sentence in device_names.in_package(_package_folder(model)):
        report(sentence)
    observer.report = report
    failure: Exception | None = None
    try:
        autocast = backend.autocast(backend.compute_dtype(precision))
        with _watched_pinning(backend, report), _watched_calls(backend, report), autocast:
            yield
    except Exception as error:
        failure = error
    finally:
        observer.report = None
    if findings:
        listed = "\n".join(f"  {sentence}" for sentence in findings)
        raise StrictError(f"{type(model).__name__} on backend '{backend.name}':\n{listed}") from failure
    if failure is not None:
        raise failure


def _package_folder(model: Any) -> Path:
    """Folder of the model's top-level package; a model that is a single file is searched with its neighbours."""
    name = type(model).__module__
    package = sys.modules[name.partition(".")[0]]
    file = getattr(package, "__file__", None) or sys.modules[name].__file__
    return Path(str(file)).parent


@contextlib.contextmanager
def _watched_calls(backend: Backend, report: Report) -> Iterator[None]:
    """Report calls of torch with the name of a device, and pinned tensors."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = getattr(func, "__name__", str(func))
            for value in (*args, *kwargs.values()):
                if isinstance(value, str) and device_names.is_device_name(value):
                    report(f"{caller()}: names a device: {name}({value!r}); ask the backend instead")
            if name in device_names.NAMES:
                report(f"{caller()}: names a device: .{name}(); use .to(backend.device)")
            if (func is torch.Tensor.pin_memory or kwargs.get("pin_memory")) and not backend.pin_memory_ok:
                report(_pins(name, backend))
            return func(*args, **kwargs)

    with Watch():
        yield


@contextlib.contextmanager
def _watched_pinning(backend: Backend, report: Report) -> Iterator[None]:
    """Report data loaders that pin."""
    from torch.utils.data import DataLoader

    original: Callable[..., None] = DataLoader.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.pin_memory and not backend.pin_memory_ok:
            report(_pins("DataLoader(pin_memory=True)", backend))

    with mock.patch.object(DataLoader, "__init__", init):
        yield


def _pins(what: str, backend: Backend) -> str:
    return f"{caller()}: {what} pins memory, which backend '{backend.name}' cannot; ask backend.pin_memory_ok"
