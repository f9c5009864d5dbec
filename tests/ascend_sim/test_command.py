"""The command that starts a simulation: its errors are one line, and it hands on what the program answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vla_backend_ascend.cann_sim import Settings, build, report
from vla_backend_ascend.cann_sim.report import OperatorTime

pytestmark = pytest.mark.ascend_sim
COMMAND = [sys.executable, "-m", "vla_backend_ascend.cann_sim"]


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env={**os.environ, **env})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--devices", "99", "--", "true"), "--devices must be 1 to 16, not 99"),
        (("--memory", "0", "--", "true"), "--memory must be positive"),
        (("--fault", "melt", "--", "true"), "unknown fault 'melt'"),
        (("--devices", "2"), "no command"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_compiler_one_clear_line(tmp_path: Path) -> None:
    done = run("--", "true", XDG_CACHE_HOME=str(tmp_path), PATH="", CC="", CXX="")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("simulated CANN: no compiler (gcc, g++); install one")


def test_exit_code_and_environment() -> None:
    program = "import os, sys; print(os.environ['CANN_SIM_SESSION'], os.environ['ASCEND_HOME_PATH']); sys.exit(7)"
    done = run("--", "python", "-c", program)
    assert done.returncode == 7
    session, home = done.stdout.split()
    assert not Path(session).exists()  # cleaned up
    assert (Path(home) / "lib64" / "libascendcl.so").exists()
    assert run("--", "python", "-c", "import os; os.kill(os.getpid(), 9)").returncode == 137
    missing = run("--", "no-such-program")
    assert missing.returncode == 127
    assert "cannot start" in missing.stderr


def test_the_programs_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 'here'")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = run("--", "python", "-c", "print(mine)", PYTHONPATH=path)
    assert done.stdout.strip() == "here", done.stderr


def test_settings_reach_the_environment(tmp_path: Path) -> None:
    env = Settings(devices=3, memory_gb=0.5).environment(
        tmp_path, tmp_path / "kit", {"PATH": "/bin", "CANN_SIM_RULES": "warn"}
    )
    assert (env["CANN_SIM_DEVICES"], env["CANN_SIM_MEMORY"], env["CANN_SIM_RULES"]) == ("3", str(2**29), "refuse")
    assert env["PATH"] == f"{tmp_path / 'kit' / 'bin'}{os.pathsep}/bin"


def test_report(tmp_path: Path) -> None:
    program = "import torch; x = torch.ones(64, 64, device='npu')\nfor _ in range(200): y = x @ x"
    done = run("--report", str(tmp_path / "report.txt"), "--", "python", "-c", program)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "report.txt").read_text().splitlines()
    rows = {line.split()[0]: line.split() for line in lines[1:] if line}
    assert "simulated CANN" in lines[0]
    assert rows["mm"][1] == "200"
    assert float(rows["mm"][2]) >= float(rows["mm"][3]) > 0
    total = report.total([OperatorTime("a", 2, 10.0, 4.0), OperatorTime("b", 1, 5.0, 5.0)])
    assert total.overhead_us == pytest.approx(2.0)


def test_names_that_the_library_lists_are_refused_unless_defined() -> None:
    library = build._folder_of("torch_npu") / "lib" / "libtorch_npu.so"
    names = build._refused(library)
    assert "aclrtIpcMemClose" in names
    assert "aclrtMalloc" not in names
    assert not [name for name in names if name.startswith("aclnn")]
