"""The reference in the documentation is what the dataclasses say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from vla_dit4dit.config import DiT4DiTConfig
from vla_train.config import Config
from vla_train.config.reference import attributes, fill, rows, table

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_page_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page) == page, "run `make docs`"
    for section in ("run", "data", "train", "parallel", "eval", "model"):
        assert f"| `{section}." in page


@pytest.mark.parametrize(
    "cls", [field.default_factory for field in dataclasses.fields(Config) if field.name not in ("backend", "model")]
)
def test_every_field_is_described(cls):
    assert [key for key, _, _, text in rows(cls) if not text] == []


def test_every_field_of_the_model_is_described():
    assert [key for key, _, _, text in rows(DiT4DiTConfig) if not text] == []


def test_docstrings_are_read():
    @dataclasses.dataclass
    class Example:
        """Summary.

        Attributes:
            a, b: two numbers,
                over two lines.
            c: a | b.

        Notes:
            d: not a field.
        """

        a: int = 1
        b: float = 0.5
        c: str | None = None

    assert attributes(Example) == {
        "a": "two numbers, over two lines.",
        "b": "two numbers, over two lines.",
        "c": "a | b.",
    }
    assert "| `x.c` | text or null | `null` | a \\| b. |" in table(Example, "x.")
