"""The kit itself: crashes and hangs are one check's, the command, JSON, the pytest plugin."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from vla_backend import Candidate
from vla_backend.errors import BackendError
from vla_backend.hookspecs import SPECS
from vla_backend.markers import Phase
from vla_train.conformance import TIERS, catalogue, report, run, runner, samples, select
from vla_train.conformance.checks import Result


def command(*arguments: str, cwd=None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, timeout=120)


def test_every_hook_has_sample_arguments() -> None:
    import torch

    asked = {
        Phase.PRE_IMPORT: set(samples.pre_import()),
        Phase.PRE_INIT: set(samples.pre_init("cpu")),
        Phase.DEVICE_READY: set(samples.device_ready(torch.device("cpu"))),
    }
    for hook, spec in SPECS.items():
        assert (hook in asked[spec.phase]) != (hook in samples.ELSEWHERE), hook


def test_every_check_says_what_it_proves() -> None:
    assert {one.tier for one in catalogue().values()} == set(TIERS)
    for one in catalogue().values():
        assert one.says.endswith("."), one.key


def test_importing_the_kit_imports_no_torch() -> None:
    code = "import sys; from vla_train.conformance import catalogue; catalogue(); assert 'torch' not in sys.modules"
    done = command("-c", code)
    assert done.returncode == 0, done.stderr


def test_a_crash_is_one_checks_and_the_rest_goes_on(child_path) -> None:
    candidate = Candidate("crashes", "vla-broken", "1.0", "tests.conformance.broken.processes:Crashes")
    results = run(candidate, ["semantics"], ["synchronize_waits", "translate_error_never_raises"])
    assert [one.outcome for one in results] == ["failed", "passed"], results
    assert "the process ended with exit code -11" in results[0].message


@pytest.mark.parametrize(
    ("key", "cut", "outcome"),
    [
        ("distributed.timeout_strikes", "", "passed"),
        ("distributed.timeout_strikes", "its process did not end", "failed"),
        ("distributed.clean_teardown", "", "failed"),
    ],
)
def test_an_abort_at_exit_counts_where_the_process_must_live(tmp_path, key, cut, outcome) -> None:
    """gloo aborts at exit when a thread of it still waits for a peer that never came."""
    (one,) = select(["distributed"], [key.partition(".")[2]])
    session = runner._Session(Candidate("any", "any-dist", "1.0", "any"), [one], "ranks", None, tmp_path)
    lines = [{"begin": key}, {"result": asdict(Result(one.tier, one.name, "passed", "in time", 5.0))}]
    (tmp_path / "results-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = session._judge(0, -6, cut)
    assert found.outcome == outcome


def test_a_hang_is_one_checks(child_path, monkeypatch) -> None:
    candidate = Candidate("hangs", "vla-broken", "1.0", "tests.conformance.broken.processes:Hangs")
    monkeypatch.setattr(runner, "select", lambda *names: [replace(one, seconds=2.0) for one in select(*names)])
    results = run(candidate, ["contract"], ["registers", "absent_hardware"])
    assert [one.outcome for one in results] == ["passed", "failed"], results
    assert "it did not finish within 2 s" in results[1].message


def test_unknown_names_are_refused() -> None:
    with pytest.raises(BackendError, match=r"no tier 'speed'(.|\n)*contract"):
        run("cpu", ["speed"])
    with pytest.raises(BackendError, match="No check is called warm_import"):
        run("cpu", ["contract"], ["warm_import"])


def test_a_plugin_that_cannot_be_asked_is_a_failure_in_every_tier(child_path) -> None:
    candidate = Candidate("misspelt", "vla-broken", "1.0", "tests.conformance.broken.before_torch:MisspeltHook")
    results = run(candidate, ["numerics"])
    assert [one.outcome for one in results[:2]] == ["failed", "skipped"]
    assert "pin_memry_ok" in results[0].message


def test_command_prints_a_table_and_writes_json(installed) -> None:
    out = installed / "results.json"
    done = command("-m", "vla_train.cli", "plugin", "check", "broken", "--tier", "contract", "--json", str(out))
    assert done.returncode == 1, done.stderr
    assert "FAILED" in done.stdout
    assert "does not conform" in done.stdout.splitlines()[-1]
    written = json.loads(out.read_text())
    assert (written["plugin"], written["distribution"], written["version"]) == ("broken", "vla-broken", "1.0")
    assert written["conforms"] is False
    failed = [one for one in written["results"] if one["outcome"] == "failed"]
    assert [one["name"] for one in failed] == ["answers"]
    assert set(failed[0]) == {"tier", "name", "outcome", "message", "seconds"}
    done = command("-m", "vla_train.cli", "plugin", "check", "sound", "--tier", "contract", "--only", "answers")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("sound: 1 passed, 0 failed")
    done = command("-m", "vla_train.cli", "plugin", "check", "nothing")
    assert done.returncode == 2
    assert "no backend named 'nothing'" in done.stderr


def test_checks_as_tests(installed) -> None:
    (installed / "test_of_the_project.py").write_text("def test_other():\n    assert True\n")
    arguments = ["-m", "pytest", "-p", "vla_train.conformance.pytest_plugin", "-p", "no:cacheprovider", "--vla-tier"]
    arguments += ["contract", "-q", "-rs", "--vla-plugin"]
    done = command(*arguments, "broken", cwd=installed)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "'pin_memory_ok'" in done.stdout
    assert "answered None" in done.stdout
    assert "1 failed, 9 passed, 7 skipped" in done.stdout, done.stdout
    assert "no hardware: no mychip here" in done.stdout
    done = command(*arguments, "sound", "-k", "answers or stable", "test_of_the_project.py", cwd=installed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed, " in done.stdout


def test_report_says_what_came_of_it() -> None:
    passed, failed = Result("contract", "a", "passed", "", 0.1), Result("contract", "b", "failed", "no\n  why: x", 0.1)
    skipped = Result("contract", "c", "skipped", "no hardware", 0.0)
    assert report.summary("x", [passed]) == "x: 1 passed, 0 failed, 0 skipped; the plugin conforms"
    assert "in all that could be checked here" in report.summary("x", [passed, skipped])
    assert "could not be checked here" in report.summary("x", [skipped])
    assert "does not conform" in report.summary("x", [passed, failed])
    assert report.row(failed).splitlines()[1].strip() == "why: x"


def test_page_lists_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs/plugins/conformance.md").read_text()
    again = "python -m vla_train.conformance.report docs/plugins/conformance.md"
    assert report.reference() in page, f"renew the page: {again}"
