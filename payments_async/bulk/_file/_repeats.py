"""Request ids that a file uses twice, found in constant memory. Keeps digests on disk, never a row."""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Literal

import attrs

__all__ = ["Repeat", "Repeats"]

Difference = Literal["nothing", "amount", "details"]
_RECORD = struct.Struct("<16sQQqq")
_ID = 16
_BUCKETS = 256


@attrs.frozen(kw_only=True)
class Repeat:
    """A row that uses the request id of an earlier one.

    Attributes:
        row: The later row; it is not among the orders.
        line: The line of a text file where it begins.
        first_row: The row that used the id first.
        difference: What sets them apart: ``"nothing"``, the ``"amount"``, or other ``"details"`` of the payout.
    """

    row: int
    line: int
    first_row: int
    difference: Difference


class Repeats:
    """Collects the ids of a file of any length, and says at the end which came twice.

    Each id costs 48 bytes. Up to ``memory`` bytes they stay in memory; then they go to a temporary file without a
    name (480 MB for 10,000,000 rows), sorted into 256 buckets that are compared one at a time.

    Args:
        memory: Bytes of records kept in memory.
    """

    def __init__(self, *, memory: int = 16 * 2**20) -> None:
        self._limit = memory // _RECORD.size
        self._waiting = 0
        self._buckets = [bytearray() for _ in range(_BUCKETS)]
        self._spilled: list[list[tuple[int, int]]] = [[] for _ in range(_BUCKETS)]  # where in the file, how long
        self._resources = ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Repeats:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def add(self, request_id: str, row: int, line: int, amount: int, content: int) -> None:
        """Take down one row.

        Args:
            amount: Hash of the amount.
            content: Hash of all that the row says.
        """
        digest = hashlib.blake2b(request_id.encode("utf-8", "surrogatepass"), digest_size=_ID).digest()
        self._buckets[digest[0]] += _RECORD.pack(digest, row, line, amount, content)
        self._waiting += 1
        if self._waiting >= self._limit:
            self._spill()

    def found(self) -> Iterator[Repeat]:
        """Every row whose id an earlier row has, in no particular order."""
        for number in range(_BUCKETS):
            first: dict[bytes, tuple[int, int, int]] = {}
            for digest, row, line, amount, content in _RECORD.iter_unpack(self._bucket(number)):
                if (earlier := first.setdefault(digest, (row, amount, content)))[0] != row:
                    difference = _difference(earlier[1:], (amount, content))
                    yield Repeat(row=row, line=line, first_row=earlier[0], difference=difference)

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="payments-async-")  # noqa: SIM115  lives as long as self
            self._resources.enter_context(self._file)
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


def _difference(first: tuple[int, int], later: tuple[int, int]) -> Difference:
    if first == later:
        return "nothing"
    return "amount" if first[0] != later[0] else "details"
