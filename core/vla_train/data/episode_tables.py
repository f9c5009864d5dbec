"""Tables of episodes, kept in memory up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from vla_train.data.files import EpisodeFiles
from vla_train.data.shared_files import SharedFiles
from vla_train.data.tables import Columns, SharedTable, read_columns

_BYTES_KEPT = 256 * 2**20  # per dataset and process
_FILES_OPEN = 16


class EpisodeTables:
    """The columns of single episodes. Pickling drops what was read.

    Args:
        files: where the tables are.
        names: columns wanted; null = all that can be read as arrays.
    """

    def __init__(self, files: EpisodeFiles | SharedFiles, names: Iterable[str] | None = None) -> None:
        self._files = files
        self._names = None if names is None else tuple(dict.fromkeys(names))
        self._forget()

    def __getstate__(self) -> dict[str, object]:
        return {"_files": self._files, "_names": self._names}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._forget()

    def read(self, index: int) -> Columns:
        """All rows of episode `index`.

        Raises:
            DataError: the file is missing or damaged, or does not hold the episode.
        """
        if index in self._kept:
            self._kept.move_to_end(index)
            return self._kept[index]
        path = self._files.table(index)
        if not self._files.shared:
            columns = read_columns(path, self._names)
        else:
            # Parquet is decoded by row groups: episodes that come along are kept as well.
            found = self._open(path).read(index)
            columns = found.pop(index)
            for other, rows in found.items():
                if other not in self._kept:
                    self._keep(other, rows)
        self._keep(index, columns)
        return columns

    def _open(self, path: Path) -> SharedTable:
        if path not in self._open_files:
            self._open_files[path] = SharedTable(path, self._names)
            while len(self._open_files) > _FILES_OPEN:
                self._open_files.popitem(last=False)
        self._open_files.move_to_end(path)
        return self._open_files[path]

    def _keep(self, index: int, columns: Columns) -> None:
        self._kept[index] = columns
        self._bytes += _size(columns)
        while self._bytes > _BYTES_KEPT and len(self._kept) > 1:
            self._bytes -= _size(self._kept.popitem(last=False)[1])

    def _forget(self) -> None:
        self._kept: OrderedDict[int, Columns] = OrderedDict()
        self._open_files: OrderedDict[Path, SharedTable] = OrderedDict()
        self._bytes = 0


def _size(columns: dict[str, np.ndarray]) -> int:
    return sum(values.nbytes for values in columns.values())
