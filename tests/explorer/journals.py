"""The journal's own engine on a database in memory: each call is one commit, done at once, in the thread that asks."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from payments_async.journal._engine._journal import Journal
from payments_async.journal._engine._quarantine import quarantine_all
from payments_async.journal._engine._writer import Writer, _deliver, _Operation
from payments_async.journal._records import Remains
from payments_async.journal._sqlite import _opening
from payments_async.journal._sqlite._database import SqliteDatabase
from payments_async.journal._statements._entries import Commit, add_amounts

T = TypeVar("T")
Image: TypeAlias = tuple[tuple[tuple[Any, ...], ...], ...]  # the rows of each table of ``TABLES``

# What the rules of money read. ``change`` is left out, and emptied: handlers are not explored.
TABLES = (
    *("run", "outbox", "progress", "chunk", "claim", "attempt", "evidence", "sweep", "resolution"),
    *("ipn_event", "delivery", "ipn_delivery", "ipn_believed", "sighting", "meta"),
)


class Moment:
    """What a process sees of the world while it asks the journal for something.

    Attributes:
        now: Unix seconds.
        holder: The opening that asks.
        dead, left: What is told of processes that died; ``is_told`` once it was taken note of.
        leases: Each lease that began: run, chunk, token and owner.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.holder = ""
        self.dead: Sequence[str] = ()
        self.left: Sequence[Remains] = ()
        self.is_told = False
        self.leases: list[tuple[int, int, int, str]] = []


class MemoryDatabase(SqliteDatabase):
    """Tables as in a file, in memory; nothing vouches for it."""

    def __init__(self, moment: Moment) -> None:
        super().__init__(Path("explored.db"), state_folder=None, busy_timeout=0.0, clock=lambda: moment.now)
        self._moment = moment
        self.connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=1000)
        self.connection.create_function("add_amounts", 2, add_amounts, deterministic=True)
        _opening.migrate(self.connection, new=True)
        self.connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('epoch', ''), ('commits', '0')")
        self.begin_changes(self.connection)

    @property
    def holder(self) -> str:
        return self._moment.holder

    def seal(self, commit: Commit, /) -> Callable[[], None] | None:
        return None

    @asynccontextmanager
    async def dead(self) -> AsyncIterator[Sequence[str]]:
        yield self._moment.dead
        self._moment.is_told = True


class Done:
    """What an operation gives, at once."""

    _result: Any = None
    _error: BaseException | None = None
    _is_done = False

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return False

    def set_result(self, result: Any) -> None:
        self._result, self._is_done = result, True

    def set_exception(self, error: BaseException) -> None:
        self._error, self._is_done = error, True

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        callback(self)

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self.result()


class MemoryWriter(Writer):
    """Commits each operation by itself, without a thread."""

    def submit(
        self, name: str, work: Any, *, together: Any = None, droppable: bool = False, at_once: bool = False,
        gives_back: bool = False, only_moves: bool = False,
    ) -> Any:  # fmt: skip
        done = Done()
        connection: sqlite3.Connection = self._database.connection  # type: ignore[attr-defined]
        now = self._database.begin(connection)
        hears: Any = done
        operation = _Operation(name, work, hears, together, droppable, at_once, gives_back, only_moves)
        _deliver(self._commit(connection, now, [operation])[0])
        return done


class MemoryJournal(Journal):
    """The engine of every journal; whose process asks, and when, is said by ``moment``.

    Args:
        whole: An image is of every table but ``change``, not of ``TABLES`` alone.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self.moment = Moment()
        super().__init__(partial(MemoryDatabase, self.moment))
        self.connection: sqlite3.Connection = self._database.connection  # type: ignore[attr-defined]
        self._writer = MemoryWriter(self._database)
        self._writer.leased = lambda *lease: self.moment.leases.append(lease)
        self._held: Image = ()
        found = self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'change'")
        self._tables = tuple(name for (name,) in found if not name.startswith("sqlite_")) if whole else TABLES
        self._selects = [f"SELECT * FROM {table}" for table in self._tables]
        self._inserts = []
        for table in self._tables:
            width = len(self.connection.execute(f"SELECT * FROM {table}").description)
            self._inserts.append(f"INSERT INTO {table} VALUES ({', '.join('?' * width)})")
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    async def _read(self, read: Callable[..., T], *arguments: Any) -> T:
        return read(self.connection, *arguments)

    @asynccontextmanager
    async def _left_behind(self) -> AsyncIterator[tuple[Sequence[str], Sequence[Remains]]]:
        yield self.moment.dead, self.moment.left
        self.moment.is_told = True

    def quarantine(self) -> None:
        """What opening a file does that was put back."""
        self._writer.submit("quarantine", partial(quarantine_all, is_behind=True)).result()

    def image(self) -> Image:
        """All that is in the tables; equal rows are one object."""
        known, execute = self._known, self.connection.execute
        found = []
        for select in self._selects:
            rows = tuple(execute(select).fetchall())
            found.append(known.setdefault(rows, rows))
        self._held = tuple(found)
        return self._held

    def restore(self, image: Image) -> None:
        """Have this in the tables, and nothing else."""
        held, execute = self._held, self.connection.execute
        if held is image:
            return
        self._held = ()
        execute("BEGIN")
        execute("DELETE FROM change")
        for place, rows in enumerate(image):
            if not held or held[place] is not rows:
                execute(f"DELETE FROM {self._tables[place]}")
                if rows:
                    self.connection.executemany(self._inserts[place], rows)
        execute("COMMIT")
        self._database.seen_of_others += 1  # type: ignore[attr-defined]
        self._held = image

    def touched(self) -> None:
        """Something may have been written since the image was taken."""
        self._held = ()


def at_once(asked: Coroutine[Any, Any, T] | Done) -> T:
    """What a call of the journal gives; it waits for nothing."""
    if isinstance(asked, Done):
        return asked.result()  # type: ignore[no-any-return]
    try:
        asked.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("the journal waits for something")


def run_in_a_loop(asked: Any) -> Any:
    """Run something to its end in a loop of its own; ``asyncio.run`` also closes generators and threads, each time."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(asked)
    finally:
        loop.close()
