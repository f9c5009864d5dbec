"""`vla sim` and `vla train --simulate` with a simulator that only says what it was asked for."""

from __future__ import annotations

import argparse
import json
import sys
import types
from importlib import metadata
from pathlib import Path

import pytest

from vla_train.cli import main, sim


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """A simulator named `toy`; what it is asked to start comes back in the list."""
    calls: list[dict] = []
    module = types.ModuleType("toy_simulator")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--devices", type=int, default=1)
        parser.add_argument("--fault", action="append", default=[])

    def start(options: argparse.Namespace, command: list[str]) -> int:
        calls.append({"devices": options.devices, "fault": options.fault, "command": command})
        return 7

    module.add_arguments, module.start = add_arguments, start  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "toy_simulator", module)
    entry = metadata.EntryPoint("toy", "toy_simulator", sim.GROUP)
    monkeypatch.setattr(sim, "simulators", lambda: {"toy": entry})
    return calls


def test_options_go_to_the_simulator_and_the_rest_is_the_command(asked) -> None:
    code = main(["sim", "toy", "--devices", "2", "--fault", "a", "--", "prog", "--devices", "3", "--", "x"])
    assert code == 7
    assert asked == [{"devices": 2, "fault": ["a"], "command": ["prog", "--devices", "3", "--", "x"]}]


def test_a_command_without_options_of_the_simulator(asked) -> None:
    assert main(["sim", "toy", "--", "python", "-c", "1"]) == 7
    assert asked == [{"devices": 1, "fault": [], "command": ["python", "-c", "1"]}]


def test_a_simulator_that_is_not_there(asked, capsys) -> None:
    assert main(["sim", "other", "--", "prog"]) == 2
    said = capsys.readouterr().err
    assert "No simulator for 'other'" in said
    assert "installed simulators: toy" in said
    assert not asked


def test_a_simulator_that_is_broken(monkeypatch, capsys) -> None:
    entry = metadata.EntryPoint("toy", "no_such_module", sim.GROUP)
    monkeypatch.setattr(sim, "simulators", lambda: {"toy": entry})
    assert main(["sim", "toy", "--", "prog"]) == 2
    assert "no_such_module" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["sim", "toy"], ["sim", "toy", "--devices", "2"], ["sim", "toy", "--"]])
def test_no_command(asked, capsys, words) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "no command; put it after --" in capsys.readouterr().err


def test_help_of_a_simulator(asked, capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["sim", "toy", "--help"])
    assert "--fault" in capsys.readouterr().out


def test_help_names_what_is_installed_and_shows_examples(asked, capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["sim", "--help"])
    said = capsys.readouterr().out
    assert "installed: toy" in said
    assert "examples:" in said


@pytest.mark.parametrize(
    ("flags", "devices", "fault"),
    [
        (["--simulate"], 2, []),  # one per process
        (["--simulate", "3"], 3, []),
        (["--simulate=3", "--simulate-options", "--fault 'die:rank=1'"], 3, ["die:rank=1"]),
        (["--simulate-options=--fault x --fault y", "--simulate"], 2, ["x", "y"]),
    ],
)
def test_train_starts_itself_again(asked, config: Path, flags, devices, fault) -> None:
    words = ["train", "--backend", "toy", *flags, "--config", str(config), "parallel.processes=2"]
    assert main(words) == 7
    inner = ["train", "--backend", "toy", "--config", str(config), "parallel.processes=2"]
    assert asked == [{"devices": devices, "fault": fault, "command": [sys.executable, "-m", "vla_train.cli", *inner]}]
    assert not (config.parent / "runs").exists()


def test_the_backend_comes_from_the_environment_too(asked, config: Path, monkeypatch) -> None:
    monkeypatch.setenv("VLA_BACKEND", "toy")
    assert main(["train", "--simulate", "--config", str(config)]) == 7


def test_train_needs_a_backend_that_has_a_simulator(asked, config: Path, capsys) -> None:
    assert main(["train", "--simulate", "--config", str(config)]) == 2
    assert "add --backend NAME; installed simulators: toy" in capsys.readouterr().err
    assert main(["train", "--backend", "cpu", "--simulate", "--config", str(config)]) == 2
    assert "No simulator for 'cpu'" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "train.max_steps=5"])
def test_a_count_that_is_none(asked, config: Path, capsys, count) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--backend", "toy", "--config", str(config), "--simulate", count])
    assert f"'{count}' is no number of devices" in capsys.readouterr().err


def test_the_shipped_simulator_is_registered() -> None:
    module, parser = sim.load("ascend")
    assert callable(module.start)
    options = parser.parse_args(["--devices", "2", "--fault", "oom"])
    assert json.dumps([options.devices, options.fault]) == '[2, ["oom"]]'
    assert "vla sim ascend" in parser.format_help()
