"""The table of pitfalls, the page, the code it names and the tests it names are held equal here."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from pathlib import Path

import pytest

from vla_backend import pitfalls

ROOT = Path(__file__).parents[2]
PITFALLS, ERRORS = pitfalls.collect()
KNOWN = {error.name: error for table in ERRORS.values() for error in table}
MARK = {"ids": [pitfall.id for pitfall in PITFALLS]}
#: Where findings before the start are made.
CHECKS = ("plugins/ascend/config_checks.py", "plugins/ascend/environment.py", "plugins/ascend/hardware.py")
CHECKS = (*CHECKS, "core/vla_train/config/precision.py", "core/vla_train/launch/preflight.py")
DOCTOR = "\n".join(
    path.read_text(encoding="utf-8")
    for path in (*(ROOT / "core/vla_train/doctor").glob("*.py"), ROOT / "plugins/ascend/doctor.py")
)


def test_every_failure_has_one_row() -> None:
    expected = [f"A{n}" for n in range(1, 13)] + [f"B{n}" for n in range(1, 9)] + [f"C{n}" for n in range(1, 41)]
    assert [pitfall.id for pitfall in PITFALLS] == expected


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "pitfalls.md").read_text(encoding="utf-8")
    assert page == pitfalls.markdown(), "renew it: python -m vla_backend.pitfalls > docs/pitfalls.md"


@pytest.mark.parametrize("pitfall", PITFALLS, **MARK)
def test_the_guard_is_in_the_code(pitfall) -> None:
    assert pitfall.guard
    for name in pitfall.code:
        module, _, path = name.partition(":")
        functools.reduce(getattr, path.split("."), importlib.import_module(module))
    if not pitfall.in_scope:
        assert "Out of scope" in pitfall.guard
        assert not pitfall.tests


@pytest.mark.parametrize("pitfall", PITFALLS, **MARK)
def test_the_tests_exist(pitfall) -> None:
    assert pitfall.tests or not pitfall.in_scope
    for node in pitfall.tests:
        path, *names = node.split("::")
        body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        for name in names:
            found = [item for item in body if getattr(item, "name", "") == name]
            assert found, f"{path} has no {name}"
            body = getattr(found[0], "body", [])


@pytest.mark.parametrize("pitfall", PITFALLS, **MARK)
def test_the_detector_speaks_both_languages(pitfall) -> None:
    # The 20 that ports met are named in words; the rest at least where a check or a table knows them.
    assert pitfall.errors or pitfall.id.startswith("C")
    for name in pitfall.errors:
        assert re.search("[\u4e00-\u9fff]", KNOWN[name].chinese), name
    sources = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in CHECKS)
    for key in pitfall.checks:
        assert key in sources, f"no check reports {key}"
    for name in pitfall.doctor:
        assert f'"{name}"' in DOCTOR, f"vla doctor has no line {name}"


@pytest.mark.parametrize("table", ERRORS)
def test_tables_are_complete(table) -> None:
    names = [error.name for found in ERRORS.values() for error in found]
    assert all(names)
    assert len(set(names)) == len(names)
    for error in ERRORS[table]:
        re.compile(error.pattern)
        for text in (error.what, error.why, error.remedy):
            assert text.endswith("."), text
            assert not re.search("[\u4e00-\u9fff]", text)
        assert error.chinese.endswith("。"), error.name
