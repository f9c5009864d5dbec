"""The `vla` command. Nothing here imports torch; a sub-command imports what it needs when it runs."""

from __future__ import annotations

from vla_train.cli.main import main

__all__ = ["main"]
