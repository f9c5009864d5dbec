"""The conformance kit: whether a backend plugin keeps the contract, and whether its chip computes what it should.

`vla plugin check NAME` and `pytest -p vla_train.conformance.pytest_plugin --vla-plugin NAME` run it;
docs/plugins/conformance.md says what each tier proves. Importing this package imports no torch.
"""

from __future__ import annotations

from vla_train.conformance.checks import TIERS, Check, Failure, Result, Skip, catalogue, select
from vla_train.conformance.runner import run

__all__ = ["TIERS", "Check", "Failure", "Result", "Skip", "catalogue", "run", "select"]
