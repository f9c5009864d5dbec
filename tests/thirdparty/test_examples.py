"""The examples do what their pages say: the out-of-tree device trains, tracing traces, the model's own tests pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.thirdparty.install import CLONING, EXAMPLES, TRACED, environment, paper_runs

needs_paper = pytest.mark.skipif(not paper_runs(), reason="this torch has no Python registration of devices")
VLA = ("-m", "vla_train.cli")
TRAIN = (
    "train",
    "--config",
    str(CLONING / "config.yaml"),
    f"data.root={EXAMPLES / 'data'}",
    "data.batch_size=2",
    "data.check=off",
    "data.holdout_episodes=45",
    "model.layers=1",
    "model.width=32",
    "train.max_steps=3",
    "train.log_interval=1",
    "run.loggers=[jsonl]",
)


def losses(folder: Path) -> list[float]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record["total_loss"] for record in records if "total_loss" in record]


@pytest.fixture(scope="module")
def on_cpu(site: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of the example model on the CPU."""
    folder = tmp_path_factory.mktemp("cpu")
    command = [sys.executable, *VLA, *TRAIN, "--backend", "cpu", "run.root=.", "run.id=run"]
    done = subprocess.run(command, cwd=folder, env=environment(site), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return losses(folder / "run")


@needs_paper
def test_an_out_of_tree_device_trains_to_the_cpus_numbers(site: Path, run_in, tmp_path: Path, on_cpu) -> None:
    run_in(site, *VLA, *TRAIN, "--backend", "paper", "run.root=.", "run.id=run")
    decisions = json.loads((tmp_path / "run" / "decisions.json").read_text())
    assert decisions["device"] == "paper:0"
    assert losses(tmp_path / "run") == pytest.approx(on_cpu, rel=1e-5)


@needs_paper
def test_the_device_refuses_what_a_chip_would(site: Path, run_in) -> None:
    program = """
import torch, torch_paper
x = torch.ones(2, 3, device="paper")
window = lambda: torch.hann_window(4, device="paper")
for act in (lambda: x + torch.ones(2, 3), window, lambda: torch.paper.set_device(1)):
    try:
        act()
    except (RuntimeError, NotImplementedError) as error:
        print(type(error).__name__, str(error).splitlines()[0])
with torch.autocast("paper", dtype=torch.bfloat16):
    print((x @ x.T).dtype, (x + 1).dtype)
    with torch.autocast("paper", enabled=False):
        print((x @ x.T).dtype)
view = x.t()
view[0, 0] = 5
print(x[0, 0].item(), torch.paper.memory_allocated() > 0)
"""
    out = run_in(site, "-c", program).stdout.splitlines()
    assert "same device" in out[0]
    assert "would resize" in out[1]
    assert "one paper device" in out[2]
    assert out[3:] == ["torch.bfloat16 torch.float32", "torch.float32", "5.0 True"]


def test_zero_is_refused_before_the_start(site: Path, run_in) -> None:
    done = run_in(site, *VLA, *TRAIN, "--backend", "paper", "parallel.strategy=zero2", check=2)
    assert "has no accelerator for the device 'paper'" in done.stderr


def test_it_is_no_automatic_choice(site: Path, run_in) -> None:
    done = run_in(site, "-c", "from vla_backend import choose; print(choose(env={}).name)")
    assert done.stdout.strip() == "cpu"


def test_the_traced_backend_traces_launcher_and_worker(site: Path, run_in, tmp_path: Path, on_cpu) -> None:
    trace = tmp_path / "trace"
    run_in(site, *VLA, *TRAIN, "--backend", "traced", "run.root=.", "run.id=run", VLA_TRACE_DIR=str(trace))
    assert losses(tmp_path / "run") == pytest.approx(on_cpu, rel=1e-6)
    calls = [[json.loads(line)["hook"] for line in path.read_text().splitlines()] for path in trace.glob("*.jsonl")]
    launcher, worker = sorted(calls, key=lambda hooks: "local_device" in hooks)
    assert "env_defaults" in launcher
    assert "load_stack" not in launcher
    assert worker.index("load_stack") < worker.index("local_device") < worker.index("save_sharded")


def test_the_traced_backends_own_tests(site: Path, run_in) -> None:
    assert "4 passed" in run_in(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=TRACED).stdout


def test_the_models_own_tests_on_every_backend_here(site: Path, run_in) -> None:
    backends = ["cpu", "paper"] if paper_runs() else ["cpu"]
    options = ("-q", "-p", "no:cacheprovider", "--vla-backend", ",".join(backends))
    assert f"{6 * len(backends)} passed" in run_in(site, "-m", "pytest", *options, cwd=CLONING).stdout
