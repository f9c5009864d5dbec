"""One line of a table that translates errors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KnownError:
    """One line of a table.

    Attributes:
        pattern: regular expression searched, ignoring case, in the messages of the exception and its causes.
        what, why, remedy: see `Explanation`; a remedy of several steps gives them in the order to try them.
        chinese: the same three in Chinese, one paragraph; "" if nobody has written it.
        name: what documentation and checks call this line, unique within all tables of a backend.
    """

    pattern: str
    what: str
    why: str
    remedy: str
    chinese: str = ""
    name: str = ""
