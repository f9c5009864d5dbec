from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[..., str]

MINIMAL = """
from vla_backend import BackendInfo, Probe, hookimpl

@hookimpl
def backend_info():
    return BackendInfo(device_type="cpu", vendor="test", priority=5)

@hookimpl
def probe(env):
    return Probe(ok=True, reason="test device", device_count=2)

@hookimpl
def dist_backend():
    return "gloo"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a distribution with one backend on `sys.path`, as pip would; answers the backend's name."""
    made: list[str] = []

    def install(
        name: str, code: str = "", *, base: str = MINIMAL, dist: str = "", files: dict[str, str] | None = None
    ) -> str:
        dist = dist or f"vla-{name}"
        folder = tmp_path / dist
        module = f"plugin_{dist}_{name}".replace("-", "_")
        info = folder / f"{dist.replace('-', '_')}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[vla_backend.plugins]\n{name} = {module}\n")
        if files is None:
            (folder / f"{module}.py").write_text(base + textwrap.dedent(code))
        else:
            (folder / module).mkdir()
            for file, text in files.items():
                (folder / module / file).write_text(textwrap.dedent(text))
        monkeypatch.syspath_prepend(str(folder))
        made.append(module)
        return name

    yield install
    for loaded in [name for name in sys.modules if name.split(".")[0] in made]:
        del sys.modules[loaded]
