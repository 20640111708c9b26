"""A number outside of a journal's file that follows its commits: a file that counts fewer has forgotten some."""

from __future__ import annotations

import os
from contextlib import suppress
from io import FileIO
from pathlib import Path

__all__ = ["Anchor"]

_COUNT, _ID = 8, 16  # bytes
_MOST = 1 << 62  # no journal comes near it: what says more is damaged


class Anchor:
    """How many commits of which journal were made, as far as this small file has heard.

    It is written after a commit and without an fsync: it may lag behind, and is never ahead.

    Args:
        path: Of the small file; made when it is opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None  # not every system has pread and pwrite

    def read(self) -> tuple[int, str] | None:
        """The count, and the journal's id or an empty text; ``None`` when there is nothing to be read."""
        try:
            if self._file is not None:
                return _understood(self._first(_COUNT + _ID))
            with self._path.open("rb") as file:
                return _understood(file.read(_COUNT + _ID))
        except FileNotFoundError:
            return None

    def count(self) -> int:
        """The count, or 0; the file is open."""
        return int.from_bytes(self._first(_COUNT), "big") % _MOST

    def open(self, journal_id: str, count: int) -> None:
        """Make the file that of a journal, and set its count.

        Raises:
            OSError: It cannot be written.
        """
        self._file = FileIO(self._path, "r+", opener=_made)
        try:
            self._file.write(count.to_bytes(_COUNT, "big") + bytes.fromhex(journal_id))
        except OSError:
            self.close()
            raise

    def follow(self, count: int) -> None:
        """Write the count down, if that can be done."""
        if self._file is not None:
            with suppress(OSError):  # one that lags behind detects less, and stops nobody
                self._file.seek(0)
                self._file.write(count.to_bytes(_COUNT, "big"))

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _first(self, size: int) -> bytes:
        assert self._file is not None
        self._file.seek(0)
        return self._file.read(size)


def _made(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)


def _understood(data: bytes) -> tuple[int, str] | None:
    count = int.from_bytes(data[:_COUNT], "big")
    if len(data) < _COUNT or count >= _MOST:
        return None
    return count, data[_COUNT:].hex() if len(data) == _COUNT + _ID else ""
