"""Records of any number, a bucket at a time: those that are alike are in the same one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import IO

_BUCKETS = 256


class Buckets(ExitStack):
    """256 buckets of bytes. Up to so many stay in memory; then they go to a temporary file without a name.

    Args:
        memory: Bytes that are kept in memory.
    """

    def __init__(self, *, memory: int) -> None:
        super().__init__()
        self._memory = memory
        self._waiting = 0
        self._buckets = [bytearray() for _ in range(_BUCKETS)]
        self._spilled: list[list[tuple[int, int]]] = [[] for _ in range(_BUCKETS)]  # where in the file, how long
        self._file: IO[bytes] | None = None

    def add(self, records: Sequence[bytes], at: int = 0) -> None:
        """Put records into the buckets that their byte at this place tells."""
        buckets = self._buckets
        for record in records:
            buckets[record[at]] += record
            self._waiting += len(record)
        if self._waiting >= self._memory:
            self._spill()

    def each(self) -> Iterator[bytes]:
        """Each bucket, its records in the sequence in which they came."""
        return map(self._bucket, range(_BUCKETS))

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="payments-async-")  # noqa: SIM115  lives as long as self
            self.enter_context(self._file)
        for bucket, pieces in zip(self._buckets, self._spilled, strict=True):
            pieces.append((self._file.tell(), len(bucket)))
            self._file.write(bucket)
            bucket.clear()
        self._waiting = 0

    def _bucket(self, number: int) -> bytes:
        pieces = []
        for offset, length in self._spilled[number]:
            assert self._file is not None
            self._file.seek(offset)
            pieces.append(self._file.read(length))
        return b"".join([*pieces, self._buckets[number]])
