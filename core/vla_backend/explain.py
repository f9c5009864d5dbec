"""From the text of an exception to an explanation, by tables of known errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from vla_backend.host_errors import HOST
from vla_backend.known_error import KnownError
from vla_backend.types import Explanation

__all__ = ["HOST", "KnownError", "explain"]


def explain(error: BaseException, table: Iterable[KnownError]) -> Explanation:
    """The first line of `table` that matches; put the particular before the general.

    The causes of `error` are asked before the error itself, the root cause first: a late error is often only the echo
    of an early one.
    """
    lines = tuple(table)
    for link in _chain(error):
        text = _text(link)
        for known in lines:
            if re.search(known.pattern, text, re.IGNORECASE | re.MULTILINE):
                return Explanation(True, known.what, known.why, known.remedy, known.chinese)
    return Explanation(known=False)


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, root cause first; failed imports that were only being handled come last."""
    found: list[BaseException] = []
    asides: list[BaseException] = []
    current: BaseException | None = error
    was_stated = True
    while current is not None and all(current is not seen for seen in (*found, *asides)):
        stated = current.__cause__
        hidden = None if current.__suppress_context__ else current.__context__
        # `try: import fast except ImportError: ...` leaves its trace on everything that fails in the second branch.
        is_aside = bool(found) and not was_stated and isinstance(current, ImportError)
        (asides if is_aside else found).append(current)
        current, was_stated = stated or hidden, stated is not None
    return [*reversed(found), *asides]


def _text(error: BaseException) -> str:
    """What is searched: type and message, notes, and where it was raised, for errors that say nothing else."""
    try:
        message = str(error)
    except Exception:
        # Some libraries build their messages late and fail at it.
        message = ""
    lines = [f"{type(error).__name__}: {message}", *getattr(error, "__notes__", ())]
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is not None:
        code = traceback.tb_frame.f_code
        lines.append(f"raised in {'/'.join(PurePath(code.co_filename).parts[-3:])}:{code.co_name}")
    return "\n".join(map(str, lines))
