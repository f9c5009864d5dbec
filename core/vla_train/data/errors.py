"""The error of the data path."""

from __future__ import annotations


class DataError(Exception):
    """Training data that cannot be read as asked.

    Args:
        what: what went wrong, one sentence.
        why: the cause, naming the file or the configuration key.
        fix: what the reader can do about it.
    """

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        lines = [what]
        if why:
            lines.append(f"  why: {why}")
        if fix:
            lines.append(f"  fix: {fix}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments would be lost when a data worker hands the error to the trainer.
        return (_rebuild, (type(self), self.what, self.why, self.fix))


def _rebuild(cls: type[DataError], what: str, why: str, fix: str) -> DataError:
    return cls(what, why=why, fix=fix)
