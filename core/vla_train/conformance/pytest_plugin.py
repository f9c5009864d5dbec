"""The checks as tests: `pytest -p vla_train.conformance.pytest_plugin --vla-plugin NAME [--vla-tier TIER,...]`.

Without paths on the command line nothing else is collected. A tier runs as a whole, in processes of its own, when the
first of its selected tests does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vla_backend.errors import BackendError
from vla_train.conformance.checks import TIERS, Check, Result, select
from vla_train.conformance.runner import run

_RESULTS: pytest.StashKey[dict[str, Result]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vla", "conformance of a backend plugin")
    group.addoption("--vla-plugin", metavar="NAME", help="collect the conformance checks of this backend plugin")
    group.addoption("--vla-tier", metavar="TIER,...", default=",".join(TIERS), help="only these tiers (default: all)")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("vla_plugin") and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    name = config.getoption("vla_plugin")
    if not name:
        return
    try:
        checks = select(config.getoption("vla_tier").split(","))
    except BackendError as error:
        raise pytest.UsageError(str(error)) from error
    session.stash[_RESULTS] = {}
    items += [CheckItem.from_parent(session, name=f"{name}:{one.key}", plugin=name, check=one) for one in checks]


class CheckItem(pytest.Item):
    """One check of one plugin."""

    def __init__(self, *, plugin: str, check: Check, **options: Any) -> None:
        super().__init__(**options)
        self.plugin, self.check = plugin, check
        self._nodeid = f"conformance::{self.name}"

    def runtest(self) -> None:
        results = self.session.stash[_RESULTS]
        if self.check.key not in results:
            names = [item.check.name for item in self._siblings()]
            results.update({f"{one.tier}.{one.name}": one for one in run(self.plugin, [self.check.tier], names)})
        result = results[self.check.key]
        if result.message:
            self.add_report_section("call", "conformance", result.message)
        if result.outcome == "skipped":
            pytest.skip(result.message)
        if result.outcome == "failed":
            raise _Failed(result.message)

    def _siblings(self) -> Iterator[CheckItem]:
        """The selected tests of the same tier, this one included."""
        for item in self.session.items:
            if isinstance(item, CheckItem) and item.check.tier == self.check.tier and item.plugin == self.plugin:
                yield item

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The message alone: a traceback of the kit says nothing about the plugin."""
        return str(excinfo.value) if isinstance(excinfo.value, _Failed) else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return Path(__file__), None, self.name


class _Failed(Exception):
    """A failed check."""
