"""A configuration that passes every check: the shipped dataset and a folder that stands for a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

SHIPPED = Path(__file__).parents[2] / "examples" / "data"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLA_BACKEND", "VLA_DEBUG", "OMP_NUM_THREADS", "ACCELERATE_MIXED_PRECISION", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "pipeline").mkdir()
    path = tmp_path / "config.yaml"
    path.write_text(
        f"""\
run: {{id: demo, root: {tmp_path}/runs}}
model:
  name: dit4dit
  backbone: {{path: {tmp_path}/pipeline}}
data:
  root: {SHIPPED}
  datasets: [{{path: metaworld_button_press_topdown}}]
train: {{max_steps: 3}}
parallel: {{mixed_precision: fp32}}
"""
    )
    return path


@pytest.fixture
def checkpoint(tmp_path: Path):
    """Make a folder that looks like a checkpoint of the run in `config`."""

    def made(step: int, complete: bool = True) -> Path:
        folder = tmp_path / "runs" / "demo" / "checkpoints" / f"step_{step:08d}"
        folder.mkdir(parents=True)
        if complete:
            (folder / "manifest.json").write_text("{}")
        return folder

    return made
