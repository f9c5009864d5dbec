"""One exception class per mistake; every message says what happened, why, and what to do."""

from __future__ import annotations


class BackendError(Exception):
    """Base of all errors of the contract.

    Args:
        what: what went wrong, one sentence.
        why: the cause, quoting both sides where two things disagree.
        fix: what the reader can do about it.

    Attributes:
        chinese: the same once more, one paragraph, shown last; "" if nobody has written it.
    """

    chinese: str = ""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        lines = [what]
        if why:
            lines.append(f"  why: {why}")
        if fix:
            lines.append(f"  fix: {fix}")
        super().__init__("\n".join(lines))

    def __str__(self) -> str:
        return super().__str__() + (f"\n  中文: {self.chinese}" if self.chinese else "")

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments would be lost when the error crosses a process boundary.
        return (_rebuild, (type(self), self.what, self.why, self.fix, self.chinese))


def _rebuild(cls: type[BackendError], what: str, why: str, fix: str, chinese: str = "") -> BackendError:
    error = cls(what, why=why, fix=fix)
    if chinese:
        error.chinese = chinese
    return error


class UnknownBackend(BackendError):
    """The name asked for is not installed."""


class AmbiguousBackend(BackendError):
    """Two distributions claim one name, or automatic choice found several equally good backends."""


class BackendUnavailable(BackendError):
    """The chosen backend cannot run on this machine."""


class PluginLoadError(BackendError):
    """The chosen plugin failed to import; the original exception is chained."""


class ApiMismatch(BackendError):
    """The plugin was written for another generation of the contract."""


class HookNameError(BackendError):
    """A plugin implements a hook that does not exist (usually a misspelling)."""


class HookSignatureError(BackendError):
    """A plugin's hook takes an argument that the specification does not have."""


class MissingHook(BackendError):
    """A plugin lacks a hook that has no generic default."""


class BadAnswer(BackendError):
    """A hook answered `None` or a value of the wrong type."""


class PhaseError(BackendError):
    """A hook was called before its phase was reached."""


class UnsupportedError(BackendError):
    """The backend declared that it cannot do what was asked."""


class TranslatedError(BackendError):
    """An error of torch or of a vendor in the backend's words; the original is its cause, and its traceback stays."""
