"""The pages and the commands agree: links lead somewhere, commands are taken, every option is explained somewhere."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from vla_train import models
from vla_train.cli.main import build_parser
from vla_train.cli.sim import load

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
FENCED = re.compile(r"```.*?```", re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """What a heading is called in a link, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{name(page)}: {link}"
        assert not anchor or anchor in anchors(target), f"{name(page)}: {link} has no such heading"


def commands(page: Path) -> list[str]:
    """The `vla` commands in a page's code blocks, continued lines joined, what follows the command cut off."""
    found = []
    for block in FENCED.findall(page.read_text(encoding="utf-8")):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            line = re.sub(r"^(\$ )?([A-Z_]+=\S+ )*", "", line.strip())
            if line.startswith("vla ") and "..." not in line and "$" not in line:
                found.append(re.split(r"\s+#\s|\s[|>]\s", line)[0])
    return found


def unexplained(words: list[str]) -> list[str]:
    """Options among the words left over that are neither settings nor a model's."""
    left = [word.partition("=")[0] for word in words if word.startswith("--")]
    known = {option for entry in models.entries() for option in models.find(entry).options}
    return [word for word in left if word.removeprefix("--") not in known and "." not in word]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_are_taken(page):
    for command in commands(page):
        words = shlex.split(command)[1:]
        try:
            options, rest = build_parser().parse_known_args(words)
        except SystemExit as ended:  # 0 is that of --help
            if ended.code:
                pytest.fail(f"{name(page)}: {command}")
            continue
        if words[0] == "sim":
            mark = words.index("--")
            load(words[1])[1].parse_args(words[2:mark])
            continue
        assert not rest or getattr(options, "takes_overrides", False), f"{name(page)}: {command}"
        assert not unexplained(rest), f"{name(page)}: {command}"


def test_the_pages_are_read():
    assert sum(len(commands(page)) for page in PAGES) > 60


def test_every_option_is_explained_on_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)

    def walk(parser: argparse.ArgumentParser):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for sub in action.choices.values():
                    yield from walk(sub)
            elif action.help != argparse.SUPPRESS:
                yield from (name for name in action.option_strings if name.startswith("--"))

    missing = {option for option in walk(build_parser()) if not re.search(rf"{option}(?![\w-])", text)}
    assert missing - {"--help"} == set()


def test_examples_named_on_pages_exist():
    for page in PAGES:
        for path in re.findall(r"(?<![\w/.-])(examples/[\w/.-]+?\.(?:yaml|py))", page.read_text(encoding="utf-8")):
            assert (ROOT / path).is_file(), f"{name(page)}: {path}"
