"""`vla plugin new` writes a package that is found, explains itself, and passes the conformance kit unchanged."""

from __future__ import annotations

import difflib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.thirdparty.install import PAPER, ROOT, install
from vla_train.cli import main
from vla_train.scaffold.names import Names, ScaffoldError, checked
from vla_train.scaffold.write import render, write

FILES = {
    ".github/workflows/ci.yml",
    ".gitignore",
    "README.md",
    "pyproject.toml",
    "tests/test_plugin.py",
    *(
        f"vla_backend_mychip/{name}"
        for name in (
            "__init__.py",
            "hardware.py",
            "identity.py",
            "launch.py",
            "precision.py",
            "py.typed",
            "runtime.py",
            "train.py",
        )
    ),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scaffold") / "vla-backend-mychip"
    assert (
        main(["plugin", "new", "mychip", "--device-type", "mychip", "--vendor", "My Company", "--out", str(out)]) == 0
    )
    return out


@pytest.fixture(scope="module")
def installed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("installed") / "site", package)


def test_files(package: Path) -> None:
    assert {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()} == FILES
    left = [path for path in package.rglob("*") if path.is_file() and re.search("@[A-Z_]+@", path.read_text())]
    assert not left


def test_it_keeps_the_style_of_this_repository(package: Path) -> None:
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "ruff",
                *command,
                "--no-cache",
                "--config",
                str(ROOT / "pyproject.toml"),
                str(package),
            ],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout


def test_it_is_listed_and_says_what_is_missing(installed: Path, run_in) -> None:
    rows = json.loads(run_in(installed, "-m", "vla_train.cli", "backends", "--json").stdout)
    row = next(row for row in rows if row["name"] == "mychip")
    assert row["distribution"] == "vla-backend-mychip"
    assert row["vendor"] == "My Company"
    assert not row["available"]
    assert "torch_mychip is not installed" in row["reason"]
    assert "pip install torch-mychip" in row["remedy"]
    assert 8 <= len(row["implemented"]) <= 10


def test_choosing_it_explains_the_absent_hardware(installed: Path, run_in) -> None:
    config = ROOT / "examples" / "demo.yaml"
    done = run_in(installed, "-m", "vla_train.cli", "train", "--backend", "mychip", "--config", str(config), check=2)
    assert "Backend 'mychip' cannot run here." in done.stderr
    assert "torch_mychip is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def test_its_own_tests_pass_with_the_contract_tier_unchanged(package: Path, installed: Path, run_in) -> None:
    done = run_in(installed, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", cwd=package)
    assert "5 passed, 1 skipped" in done.stdout
    assert "torch_mychip is not installed" in done.stdout


def test_nothing_is_overwritten(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in package.rglob("*") if path.is_file()}
    assert main(["plugin", "new", "mychip", "--device-type", "mychip", "--out", str(package)]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in package.rglob("*") if path.is_file()} == before
    file = tmp_path / "a_file"
    file.write_text("mine")
    assert main(["plugin", "new", "mychip", "--device-type", "mychip", "--out", str(file)]) == 2
    assert file.read_text() == "mine"


def test_an_empty_folder_is_taken_and_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "new"
    empty.mkdir()
    write(checked("mychip", "mychip"), empty)
    assert (empty / "pyproject.toml").exists()

    def full(*_: object, **__: object) -> int:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write(checked("mychip", "mychip"), tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("name", "device_type", "said"),
    [
        ("My-Chip", "mychip", "for example 'my_chip'"),
        ("3chip", "mychip", "a letter first"),
        ("class", "mychip", "no word of the language"),
        ("auto", "mychip", "automatic choice"),
        ("cpu", "cpu", "is installed"),
        ("mychip", "my:0", "The device type 'my:0' cannot be used"),
        ("m" * 41, "mychip", "at most 40 characters"),
    ],
)
def test_names_that_cannot_be_used(name: str, device_type: str, said: str) -> None:
    with pytest.raises(ScaffoldError, match=said):
        checked(name, device_type)


def test_a_vendor_that_would_break_the_source() -> None:
    with pytest.raises(ScaffoldError, match="cannot be written into source text"):
        checked("mychip", "mychip", vendor='My "Company"')
    assert (
        "O'Neill & Söhne"
        in render(checked("mychip", "mychip", vendor="O'Neill & Söhne"))[Path("vla_backend_mychip/identity.py")]
    )


def test_a_device_that_torch_knows_needs_no_extension() -> None:
    texts = render(checked("mygpu", "xpu", extension=""))
    assert 'EXTENSION: Final = ""' in texts[Path("vla_backend_mygpu/hardware.py")]


#: What the author of the example changed in the files that `vla plugin new paper` had written.
CHANGED = {"vla_backend_paper/hardware.py", "vla_backend_paper/identity.py", "vla_backend_paper/launch.py"}


def test_the_example_plugin_is_the_scaffold_with_a_few_changes() -> None:
    texts = render(Names("paper", "paper", "Paper Inc.", "torch_paper"))
    different = {path.as_posix() for path, text in texts.items() if (PAPER / path).read_text() != text}
    assert different == CHANGED


def test_the_tutorial_shows_these_changes() -> None:
    shown = (ROOT / "docs" / "plugins" / "tutorial.md").read_text().splitlines()
    texts = render(Names("paper", "paper", "Paper Inc.", "torch_paper"))
    for name in CHANGED:
        before, after = texts[Path(name)].splitlines(), (PAPER / name).read_text().splitlines()
        for line in difflib.ndiff(before, after):
            if line[:2] in ("+ ", "- "):
                assert f"{'>' if line[0] == '+' else '<'} {line[2:]}" in shown, f"{name}: {line}"
    for name in texts:
        if name.parts[0] != "vla_backend_paper":
            assert f"  wrote vla-backend-paper/{name}" in shown
