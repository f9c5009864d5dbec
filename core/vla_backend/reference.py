"""The reference pages of the hooks, written from the specifications so that they cannot drift from them."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Final

from vla_backend.hookspecs import MODULES
from vla_backend.markers import API, Phase, Spec

LABELS: Final = ("Called:", "Must not:", "Default:")
#: Between these lines of a phase's page stands what `phase_table` answers.
BEGIN: Final = "<!-- hooks of this phase: python -m vla_backend.reference docs -->"
END: Final = "<!-- end of hooks -->"


def markdown() -> str:
    """`docs/hooks.md` as text; `python -m vla_backend.reference docs` renews it."""
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


def phase_table(phase: Phase) -> str:
    """The hooks of one phase in the order of the specification, with their rules, as a table."""
    rows = ["| hook | answers | called | must not | default |", "|---|---|---|---|---|"]
    for module in MODULES:
        group = module.__name__.rpartition(".")[2]
        for name, function in vars(module).items():
            spec: Spec | None = getattr(function, "vla_spec", None)
            if spec is None or spec.phase is not phase:
                continue
            doc = inspect.getdoc(function) or ""
            rules = [re.search(rf"^{label} (.*(?:\n\S.*)*?)(?=\n[A-Z][\w ]*:|\Z)", doc, re.M) for label in LABELS]
            cells = [_cell(rule.group(1)) if rule else "" for rule in rules]
            cells[2] = "**required**" if spec.required else cells[2]
            link = f"[`{name}`](../hooks.md#{name}) ({group}.py)"
            rows.append(f"| {' | '.join((link, _answers(spec), *cells))} |")
    return "\n".join(rows)


def renewed(page: str, phase: Phase) -> str:
    """A phase's page with its table written anew; the text around it stays.

    Raises:
        ValueError: the page does not have the two marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page of the phase {phase} lacks '{BEGIN}' or '{END}'")
    return f"{before}{BEGIN}\n\n{phase_table(phase)}\n\n{END}{after}"


def write(docs: Path) -> None:
    """Renew `hooks.md` and the pages of the phases below the folder `docs`."""
    (docs / "hooks.md").write_text(markdown(), encoding="utf-8")
    for phase in Phase:
        path = docs / "plugins" / f"{phase}.md"
        path.write_text(renewed(path.read_text(encoding="utf-8"), phase), encoding="utf-8")


def _answers(spec: Spec) -> str:
    """The answer's type as a reader knows it."""
    if spec.returns is None:
        return "nothing, it acts"
    if spec.returns is object:
        return "a context or a value"
    return f"`{spec.returns if isinstance(spec.returns, str) else spec.returns.__name__}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write(Path(sys.argv[1]))
    else:
        print(markdown(), end="")
