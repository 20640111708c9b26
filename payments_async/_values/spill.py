"""Tables by text that leave memory for a temporary file where they grow long, so that long lists cost no more of it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from payments_async._values.errors import LocalFault

if TYPE_CHECKING:
    from sqlite3 import Connection

V = TypeVar("V")
Thing = TypeVar("Thing")
Columns: TypeAlias = tuple[Any, ...]  # numbers, texts and ``None``

MOST = 5_000  # rows that are kept in memory, for they are quicker there
PAGE = 500  # rows that are written or read at once
_CACHE = 1_000  # KiB of a table in a file that stay in memory


def paged(things: Iterable[Thing], size: int = PAGE) -> Iterator[list[Thing]]:
    """Things a page at a time."""
    waiting = iter(things)
    while page := list(islice(waiting, size)):
        yield page


class SpillTable(Mapping[str, V], Generic[V]):
    """Values by text, in the sequence in which their keys came. What is looked up may be a copy: put back what changes.

    The file has no name, belongs to this process alone, and is gone with it, however that ends. Texts are kept whole:
    what is found is what was put there.

    Args:
        pack: A value as numbers and texts, as many for each.
        unpack: The value of these; it is given the key as well.
        width: How many there are.

    Raises:
        LocalFault: By all that looks into it or writes: the file cannot be written or read, or it is the file of the
            process that this one was forked from. Nothing is known of the table from then on.
    """

    def __init__(self, pack: Callable[[V], Columns], unpack: Callable[[str, Columns], V], width: int) -> None:
        self._pack = pack
        self._unpack = unpack
        self._width = width
        self._rows: dict[str, V] = {}
        self._file: _File | None = None

    def __len__(self) -> int:
        return len(self._rows) if self._file is None else self._file.count

    def __iter__(self) -> Iterator[str]:
        for page in self.pages():
            yield from page

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and bool(self.find((key,)))

    def __getitem__(self, key: str) -> V:
        return self.find((key,))[key]

    def find(self, keys: Iterable[str]) -> dict[str, V]:
        """The values of those of these keys that there are, in the sequence of the keys."""
        if self._file is None:
            rows = self._rows
            return {key: rows[key] for key in keys if key in rows}
        found: dict[str, V] = {}
        for page in paged(keys):
            columns = {row[0]: row[1:] for row in self._file.find(page)}
            found |= {key: self._unpack(key, columns[key]) for key in page if key in columns}
        return found

    def put(self, values: Mapping[str, V]) -> None:
        """Put values there; those that a key had before are replaced."""
        if self._file is None:
            self._rows |= values
            if len(self._rows) <= MOST:
                return
            self._file, values, self._rows = _File(self._width), self._rows, {}
        for page in paged(values.items()):
            self._file.put([(key, *self._pack(value)) for key, value in page])

    def pages(self, *first: str) -> Iterator[dict[str, V]]:
        """All values, a page at a time. Meanwhile those of the same keys may be put back.

        Args:
            first: Only of values that are packed with one of these before the others.
        """
        if self._file is None:
            rows = self._rows.items()
            yield from map(dict, paged(row for row in rows if not first or self._pack(row[1])[0] in first))
            return
        after = 0
        while found := self._file.after(after, first):
            after = found[-1][0]
            yield {row[1]: self._unpack(row[1], row[2:]) for row in found}

    def each(self, *first: str) -> Iterator[V]:
        """All values, one after the other; see ``pages``."""
        for page in self.pages(*first):
            yield from page.values()


def ids() -> SpillTable[None]:
    """Texts that stand for themselves."""
    return SpillTable(lambda _: (), lambda _key, _columns: None, 0)


class _File:
    """A table in a temporary file.

    Attributes:
        count: Its rows.
    """

    def __init__(self, width: int) -> None:
        import sqlite3  # most lists are short

        columns = [f"c{number}" for number in range(width)]
        names = ", ".join(["key", *columns])
        changes = ", ".join(f"{column} = excluded.{column}" for column in columns)
        self._error = sqlite3.Error
        self.count = 0
        self._failure: str | None = None
        self._pid = os.getpid()
        self._names = names
        self._put = (
            f"INSERT INTO spill ({names}) VALUES ({', '.join('?' * (width + 1))}) "  # noqa: S608 - no value in it
            f"ON CONFLICT (key) DO {f'UPDATE SET {changes}' if columns else 'NOTHING'}"
        )
        setup = (
            f"PRAGMA cache_size = -{_CACHE}",
            "PRAGMA journal_mode = OFF",  # nothing is ever taken back
            "PRAGMA synchronous = OFF",
            f"CREATE TABLE spill (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE{', '.join(['', *columns])})",
            "BEGIN",
        )
        # without a name it is a file of its own where temporary files are kept, that no other process sees;
        # whichever thread drops the table closes it
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._connection.close)
        for statement in setup:
            self._rows(statement)

    def find(self, keys: Sequence[str]) -> list[tuple[Any, ...]]:
        """The rows of these keys."""
        marks = ", ".join("?" * len(keys))
        return self._rows(f"SELECT {self._names} FROM spill WHERE key IN ({marks})", keys)  # noqa: S608 - no value

    def after(self, number: int, first: Sequence[str]) -> list[tuple[Any, ...]]:
        """A page of rows, each with its number before it."""
        only = f"AND c0 IN ({', '.join('?' * len(first))})" if first else ""
        statement = f"SELECT number, {self._names} FROM spill WHERE number > ? {only} ORDER BY number LIMIT {PAGE}"  # noqa: S608
        return self._rows(statement, (number, *first))

    def put(self, rows: Iterable[Sequence[object]]) -> None:
        """Write rows, or write them anew."""
        self._run(lambda connection: connection.executemany(self._put, rows))
        ((self.count,),) = self._rows("SELECT max(number) FROM spill")  # none is ever deleted

    def _rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._run(lambda connection: connection.execute(statement, values).fetchall())

    def _run(self, work: Callable[[Connection], Thing]) -> Thing:
        if self._pid != os.getpid():
            raise LocalFault("a temporary file belongs to the process that this one was forked from")
        if self._failure is None:
            try:
                return work(self._connection)
            except self._error as error:
                self._failure = f"a temporary file for a long list cannot be used: {error}"
                raise LocalFault(self._failure) from error
        raise LocalFault(self._failure)
