"""No defaults: every plugin says who it is and whether it can run."""

from __future__ import annotations
