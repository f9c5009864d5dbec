"""Specifications, defaults, facade, documentation and tests are held equal here."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from vla_backend import Backend, reference
from vla_backend.activation import new_manager
from vla_backend.hookspecs import GROUPS, MODULES, SPECS
from vla_backend.markers import Phase

ROOT = Path(__file__).parents[2]
FACADE = Path(inspect.getsourcefile(Backend)).read_text()


def specs():
    for module in MODULES:
        for name in SPECS:
            if name in vars(module):
                yield pytest.param(module, name, id=name)


def facade_member(hook: str) -> str:
    """The member of `Backend` whose body calls the hook."""
    for function in ast.walk(ast.parse(FACADE)):
        if isinstance(function, ast.FunctionDef) and f'_calls["{hook}"]' in (
            ast.get_source_segment(FACADE, function) or ""
        ):
            return function.name
    raise AssertionError(f"no member of Backend calls {hook}")


@pytest.mark.parametrize(("module", "name"), specs())
def test_spec_says_everything(module, name) -> None:
    doc = inspect.getdoc(getattr(module, name))
    assert doc.splitlines()[0].endswith((".", ":", ";", "and")) or len(doc.splitlines()[0]) > 60
    for label in reference.LABELS:
        assert re.search(rf"^{label} \S", doc, re.M), f"{name} lacks '{label}'"
    assert SPECS[name].required == ("Default: none, every plugin implements it" in doc)


@pytest.mark.parametrize(("module", "name"), specs())
def test_default_exists_in_the_module_of_the_same_name(module, name) -> None:
    default = import_module(module.__name__.replace("hookspecs", "defaults"))
    assert hasattr(default, name) != SPECS[name].required


def test_defaults_fit_the_specifications() -> None:
    manager = new_manager()
    manager.check_pending()
    assert {name for name in SPECS if not getattr(manager.hook, name).get_hookimpls()} == {
        name for name, spec in SPECS.items() if spec.required
    }


@pytest.mark.parametrize("name", SPECS)
def test_facade_has_one_member_per_hook(name) -> None:
    assert FACADE.count(f'_calls["{name}"]') == 1
    facade_member(name)


@pytest.mark.parametrize("plugin", ["cpu", "cuda", "ascend"])
def test_built_in_plugins_use_the_file_names_of_the_groups(plugin) -> None:
    for group in GROUPS:
        path = ROOT / "plugins" / plugin / f"{group}.py"
        if not path.exists():
            continue
        tree = ast.parse(path.read_text())
        hooks = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and any("hookimpl" in ast.unparse(d) for d in node.decorator_list)
        }
        spec = import_module(f"vla_backend.hookspecs.{group}")
        assert hooks, f"{path} implements nothing"
        assert hooks <= {name for name in SPECS if name in vars(spec)}, f"{path} holds a hook of another group"


def test_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "hooks.md").read_text()
    assert page == reference.markdown(), "renew it: python -m vla_backend.reference docs"


@pytest.mark.parametrize("phase", Phase, ids=str)
def test_page_of_a_phase_is_up_to_date(phase) -> None:
    page = (ROOT / "docs" / "plugins" / f"{phase}.md").read_text()
    assert page == reference.renewed(page, phase), "renew it: python -m vla_backend.reference docs"
    held = set(re.findall(r"hooks\.md#(\w+)", page.split(reference.BEGIN)[1].split(reference.END)[0]))
    assert held == {name for name, spec in SPECS.items() if spec.phase is phase}
    for row in reference.phase_table(phase).splitlines()[2:]:
        assert all(cell.strip() for cell in row.split(" | ")), f"an empty cell: {row}"


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="pre-init lacks"):
        reference.renewed("no marks", Phase.PRE_INIT)


@pytest.mark.parametrize("page", sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
def test_links_of_the_pages_lead_somewhere(page) -> None:
    path = ROOT / page
    # Code blocks hold brackets that are no links.
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.S)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    missing = [t for t in targets if t and "://" not in t and not (path.parent / t).exists()]
    assert not missing, f"{page} links to {missing}"


@pytest.mark.parametrize("name", SPECS)
def test_hook_has_a_caller_outside_the_contract(name) -> None:
    """A hook that engine and models never ask is not needed."""
    member = facade_member(name)
    # `Backend.device_type` and the choice of a backend stand for these.
    if name in ("backend_info", "probe"):
        return
    if member == "_stack":
        member = "load_stack"
    alias = {"fp32_region": r"(fp32_region|autocast)", "autocast_device": r"autocast", "safe_dtype": "to_device"}
    pattern = re.compile(rf"\.{alias.get(name, member)}\b")
    callers = [
        path
        for folder in ("core/vla_train", "models")
        for path in (ROOT / folder).rglob("*.py")
        if pattern.search(path.read_text())
    ]
    assert callers, f"nothing in the engine or a model calls backend.{member}"


@pytest.mark.parametrize("name", SPECS)
def test_hook_has_a_test(name) -> None:
    member = facade_member(name).removeprefix("_")
    text = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__))
    names = {name, member, {"_stack": "load_stack"}.get(f"_{member}", member)}
    assert any(re.search(rf"\b{n}\b", text) for n in names)


@pytest.mark.parametrize("plugin", ["cpu", "cuda", "ascend"])
def test_every_built_in_implementation_says_why(plugin) -> None:
    """`vla explain` prints the first paragraph of its docstring as the reason for the decision."""
    silent = [
        f"{path.name}: {node.name}"
        for path in (ROOT / "plugins" / plugin).glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any("hookimpl" in ast.unparse(decorator) for decorator in node.decorator_list)
        and not ast.get_docstring(node)
    ]
    assert not silent
