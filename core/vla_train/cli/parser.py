"""The argument parser of `vla`: its errors look like all others, name the nearest spelling and where help is."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from vla_train.launch.failure import MISTAKE

# "argument X: invalid choice: 'a' (choose from 'b', 'c')"; Python 3.12 and later leave the quotes of the choices out.
_CHOICE: Final = re.compile(
    r"(?:argument (?P<name>.+): )?invalid choice: '(?P<given>.*)' \(choose from (?P<known>.*)\)"
)


class Parser(argparse.ArgumentParser):
    """As argparse's; options must be written in full."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["allow_abbrev"] = False
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end with the code of a mistake."""
        choice = _CHOICE.fullmatch(message)
        what, why, near = message, "", ""
        if choice:
            known = [word.strip("' ") for word in choice["known"].split(",")]
            where = "" if choice["name"] in (None, "COMMAND") else f" for {choice['name']}"
            kind = "command" if choice["name"] == "COMMAND" else "value"
            what = f"there is no {kind} '{choice['given']}'{where}"
            why, near = f"choose from: {', '.join(known)}", nearest(choice["given"], known)
        elif message.startswith("the following arguments are required: COMMAND"):
            commands = next(action for action in self._actions if isinstance(action, argparse._SubParsersAction))
            what, why = "a command is missing", f"there are: {', '.join(commands.choices)}"
        self.stop(what, why, near)

    def unknown(self, arguments: Sequence[str]) -> NoReturn:
        """End because of `arguments` that this command does not take."""
        options = [name for action in self._actions for name in action.option_strings]
        first = next((word for word in arguments if word.startswith("-")), "")
        self.stop(f"does not take: {' '.join(arguments)}", "", nearest(first.partition("=")[0], options))

    def stop(self, what: str, why: str, near: str) -> NoReturn:
        """Print an error like those of `vla_backend.errors` and exit."""
        lines = [f"error: {self.prog}: {what}", *([f"  why: {why}"] if why else [])]
        lines.append(f"  fix: {f'did you mean {near}? ' if near else ''}`{self.prog} --help` shows what it takes")
        print("\n".join(lines), file=sys.stderr)
        self.exit(MISTAKE)


def nearest(given: str, known: Sequence[str]) -> str:
    """The name that `given` may have been meant to be, or ""."""
    found = difflib.get_close_matches(given, known, n=1)
    return found[0] if found else ""
