"""What a user types wrong: every command says what, and what to type instead, without a traceback."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from vla_train.cli import main
from vla_train.cli.main import build_parser
from vla_train.config.files import datasets_below, nearest_path
from vla_train.launch.claim import FILE, claimed

SHIPPED = Path(__file__).parents[2] / "examples" / "data"


def failure(arguments: list[str], capsys) -> str:
    """The error that a command ends with; its code is 2."""
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "Traceback" not in error
    return error


def commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()):
    """Every command with its words, groups of commands included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield (*words, name), sub
                yield from commands(sub, (*words, name))


@pytest.mark.parametrize("words", [words for words, _ in commands(build_parser())], ids=" ".join)
def test_help_of_every_command_has_examples_or_says_where(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert f"examples:\n  vla {' '.join(words)}" in out or "COMMAND --help` shows examples" in out


@pytest.mark.parametrize("words", [words for words, _ in commands(build_parser())], ids=" ".join)
def test_examples_are_taken_by_their_parsers(words, capsys):
    parser = dict(commands(build_parser()))[words]
    for line in (parser.epilog or "").splitlines():
        command = line.split("#")[0].split("|")[0].split(">")[0].strip()
        if not command.startswith("vla ") or command.endswith("..."):
            continue
        rest = build_parser().parse_known_args(shlex.split(command)[1:])[1]
        assert all("=" in word or word.startswith("--") or rest[n - 1].startswith("--") for n, word in enumerate(rest))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there are: train, eval"),
        (["trian"], "did you mean train?"),
        (["data"], "there are: check, convert"),
        (["data", "chek", "here"], "did you mean check?"),
        (["backends", "--jsn"], "did you mean --json?"),
        (["train", "--zero", "4"], "choose from: 2, 3"),
        (["train", "--processes", "0"], "'0' is no whole number of at least 1"),
        (["setup", "ascend", "--machine", "x86"], "did you mean x86_64?"),
        (["serve", "--run", "runs/demo", "--port", "99999"], "99999 is no port"),
        (["config", "show"], "--config FILE, or --model NAME"),
        (["estimate"], "--config FILE, or --model NAME"),
        (["explain", "runs/demo"], "named with --run FOLDER"),
        (["doctor", "train.max_steps=3"], "give --config FILE"),
        (["data", "check", str(SHIPPED)], "it holds datasets: metaworld_button_press_topdown"),
        (["data", "check", __file__], "is a file"),
        (["data", "show", str(SHIPPED), "1", "--frames", "0"], "at least 1"),
        (["plugin", "check", "cpu", "--tier", "contrat"], "did you mean 'contract'?"),
        (["plugin", "check", "cpu", "--only", "cold_imprt"], "did you mean 'cold_import'?"),
    ],
)
def test_a_mistake_is_answered(arguments, said, capsys):
    assert said in failure(arguments, capsys)


def test_a_file_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    dataset = SHIPPED / "metaworld_button_press_topdown"
    for arguments in (
        ["data", "stats", str(dataset), "--out", f"{tmp_path}/file/statistics.json"],
        ["data", "convert", str(dataset), f"{tmp_path}/file/converted", "--to", "v3.0"],
        ["data", "show", str(dataset), "1", "--out", f"{tmp_path}/file/sheet.png"],
        ["plugin", "new", "paper", "--device-type", "paper", "--out", f"{tmp_path}/file/plugin"],
    ):
        assert f"{tmp_path}/file" in failure(arguments, capsys)


def test_quality_out_of_range(tmp_path, capsys):
    dataset = str(SHIPPED / "metaworld_button_press_topdown")
    error = failure(["data", "convert", dataset, str(tmp_path / "out"), "--gop", "2", "--crf", "99"], capsys)
    assert "use --crf 0 (best) to 51 (worst)" in error
    assert not (tmp_path / "out").exists()


def test_a_model_alone_shows_what_can_be_set(capsys):
    assert main(["config", "show", "--model", "groot"]) == 0
    assert "model.tune_llm: false" in capsys.readouterr().out


def test_the_nearest_path_exists_as_it_is_named(tmp_path):
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "demo.yaml").touch()
    assert nearest_path(tmp_path / "exmples" / "demo.yaml") == f"did you mean {tmp_path}/examples/demo.yaml?"
    assert nearest_path(tmp_path / "exmples" / "other.yaml") == f"did you mean {tmp_path}/examples?"
    assert nearest_path(tmp_path / "nope") == f"{tmp_path} holds: examples"
    assert nearest_path(tmp_path / "examples" / "demo.yaml" / "x") == f"{tmp_path}/examples/demo.yaml is a file"
    assert datasets_below(tmp_path) == ""


def test_one_launcher_per_run_folder(tmp_path):
    from vla_backend import BackendError

    with claimed(tmp_path) as warning:
        assert warning == ""
        with (
            pytest.raises(BackendError, match=r"Another `vla train` is running in .*: process ") as second,
            claimed(tmp_path),
        ):
            pass
        assert "run.id" in str(second.value)
    assert (tmp_path / FILE).read_text() == ""
    with claimed(tmp_path) as warning:
        assert warning == ""


def test_a_second_run_of_the_same_name_starts_nothing(config, tmp_path, capsys):
    run = tmp_path / "runs" / "demo"
    run.mkdir(parents=True)
    with claimed(run):
        assert "Another `vla train` is running" in failure(
            ["train", "--config", str(config), "--backend", "cpu"], capsys
        )
    assert not (run / "config.yaml").exists()


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch):
    import fcntl

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with claimed(tmp_path) as warning:
        assert "nothing stops a second run" in warning


@pytest.fixture
def no_hub(tmp_path, monkeypatch):
    """An empty folder as the hub's cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_weights_that_are_neither_a_folder_nor_downloaded_stop_the_launcher(config, no_hub, capsys):
    arguments = ["train", "--config", str(config), "--backend", "cpu", "--dry-run"]
    error = failure([*arguments, "model.backbone.path=nobody/nothing"], capsys)
    assert "no folder nobody/nothing here, and no repository nobody/nothing in" in error
    assert "`hf download nobody/nothing`" in error
    assert "python -m vla_dit4dit.tiny FOLDER" in error
    (no_hub / "models--nobody--nothing").mkdir(parents=True)
    assert main([*arguments, "model.backbone.path=nobody/nothing"]) == 0
    allowed = ["model.backbone.path=other/model", "model.backbone.local_files_only=false"]
    assert main([*arguments, *allowed]) == 0


def test_a_mixture_in_the_wrong_place_is_one_problem(config, tmp_path, capsys):
    there = tmp_path / "elsewhere"
    there.mkdir()
    overrides = ["data.datasets=[]", "data.mixture=libero_all", f"data.root={there}"]
    error = failure(["train", "--config", str(config), "--backend", "cpu", *overrides], capsys)
    assert f"4 of 4 datasets are not below {there}" in error
    assert error.count("libero_spatial") <= 1
    assert "set data.root to the folder that holds" in error


def test_a_full_disk_is_told_of_the_file_and_of_a_run_only_in_training(tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "out"))

    monkeypatch.setattr("vla_train.data.convert.convert_dataset", full)
    dataset = str(SHIPPED / "metaworld_button_press_topdown")
    error = failure(["data", "convert", dataset, str(tmp_path / "out"), "--to", "v3.0"], capsys)
    assert f"{tmp_path}/out: the disk is full." in error
    assert "checkpoint" not in error.lower()


def test_torch_save_on_a_full_disk_is_known():
    from vla_backend.explain import HOST, explain

    said = "[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"
    assert explain(RuntimeError(said), HOST).what == "The disk is full."


@pytest.mark.parametrize(
    ("module", "command", "install"),
    [
        ("matplotlib", ["data", "show", "{set}", "1"], 'pip install "matplotlib>='),
        ("av", ["data", "check", "{set}"], 'pip install "av>='),
        ("pyarrow", ["data", "stats", "{set}"], 'pip install "pyarrow>='),
    ],
)
def test_a_required_package_that_is_not_installed(tmp_path, module, command, install):
    """In a process of its own, for here the package is loaded already."""
    (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError('No module', name='{module}')")
    words = [word.format(set=SHIPPED / "metaworld_button_press_topdown") for word in command]
    # No cached statistics may make the package unnecessary.
    env = os.environ | {"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-m", "vla_train.cli", *words], capture_output=True, text=True, env=env)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: The package '{module}' is not installed")
    assert install in done.stderr


def test_other_failed_imports_keep_their_traceback():
    from vla_train.launch.missing import missing_package

    assert missing_package(ModuleNotFoundError("x", name="zmq")).fix.startswith('pip install "pyzmq>=')
    assert missing_package(ModuleNotFoundError("x", name="torch.no_such_part")) is None
    assert missing_package(ModuleNotFoundError("x", name="nobody_declares_this")) is None
    assert missing_package(ImportError("x", name="torch")) is None
