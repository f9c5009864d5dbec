"""A backend that is another backend with every call written to a file; see README.md."""

from __future__ import annotations

from vla_backend_traced.wrapper import TracedPlugin

plugin = TracedPlugin()
