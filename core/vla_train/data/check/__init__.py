"""Finding everything that is wrong with a dataset before it is trained on."""

from __future__ import annotations

from vla_train.data.check.findings import Finding, Report
from vla_train.data.check.gate import check_before_training
from vla_train.data.check.run import Scope, check_dataset

__all__ = ["Finding", "Report", "Scope", "check_before_training", "check_dataset"]
