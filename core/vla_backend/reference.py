"""The reference page of all hooks, written from the specifications so that it cannot drift from them."""

from __future__ import annotations

import inspect
from typing import Final

from vla_backend.hookspecs import MODULES
from vla_backend.markers import API, Spec

LABELS: Final = ("Called:", "Must not:", "Default:")


def markdown() -> str:
    """`docs/hooks.md` as text; `python -m vla_backend.reference > docs/hooks.md` renews it."""
    lines = [
        "# Hooks",
        "",
        f"Contract version {API}. A plugin implements the hooks its chip answers differently from the default; those "
        "without a default it must implement. A hook may be called in its phase and later: `pre-import` (torch is not "
        "imported yet), `pre-init` (torch is imported, the device untouched), `device-ready`.",
        "",
        "This page is generated from `core/vla_backend/hookspecs`.",
    ]
    for module in MODULES:
        group = module.__name__.rpartition(".")[2]
        lines += ["", f"## {group}", "", (module.__doc__ or "").strip()]
        for name, function in vars(module).items():
            spec: Spec | None = getattr(function, "vla_spec", None)
            if spec is None:
                continue
            signature = str(inspect.signature(function)).replace("'", "")
            lines += ["", f"### `{name}`", "", f"`{name}{signature}` · phase {spec.phase}", ""]
            lines += _paragraphs(inspect.getdoc(function) or "")
    return "\n".join(lines) + "\n"


def _paragraphs(doc: str) -> list[str]:
    out: list[str] = []
    for line in doc.splitlines():
        label = next((label for label in LABELS if line.startswith(label)), None)
        out.append(f"- **{label}**{line[len(label) :]}" if label else line)
    return out


if __name__ == "__main__":
    print(markdown(), end="")
