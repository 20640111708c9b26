"""SqliteDatabase: a journal's file while it is open here, with what vouches for it and tells who lives."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from payments_async.journal._engine._memory import Memory, StateFolder
from payments_async.journal._faults import JournalError, JournalUnavailable, NotAJournal
from payments_async.journal._sqlite import _faults, _opening
from payments_async.journal._sqlite._identity import Epoch, Liveness
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit


class SqliteDatabase:
    """The file of one journal in one process.

    Args:
        path: As its user calls it.
        state_folder: Where it is remembered outside of its own folder; ``None`` for nowhere.
        busy_timeout: Seconds to wait for another process.
        clock: Unix seconds: the machine's, the same for every process on the file.

    Attributes:
        place: The file, as SQLite finds it, for what lies beside it.
        is_new: Opening it has made it.
    """

    Error: type[Exception] = sqlite3.Error

    def __init__(
        self,
        path: Path,
        *,
        state_folder: str | Path | StateFolder | None,
        busy_timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self._path = path
        self._state_folder = state_folder
        self._busy_timeout = busy_timeout
        self.now = clock
        self.place = Path(os.path.realpath(path))
        self.is_new = False
        self._epoch = Epoch(self.place, self, named=path, clock=clock)
        self._liveness = Liveness(self.place)

    @property
    def journal_id(self) -> str:
        """Whose identity the file has."""
        return self._epoch.journal_id

    @property
    def memory(self) -> Memory | None:
        """What remembers it outside of its folder, while it is open."""
        return self._epoch.memory

    @property
    def holder(self) -> str:
        """Name of this opening."""
        return self._liveness.holder

    @property
    def named(self) -> str:
        """As its user calls it."""
        return str(self._path)

    def exists(self) -> bool:
        """Whether there is a file."""
        return self.place.exists()

    def open(self) -> Connection:
        """Open the file, made where there is none, and find out whether it is the one it was."""
        memory: Memory | None = None
        connection: sqlite3.Connection | None = None
        try:
            memory = Memory.opened(self._state_folder, busy_timeout=self._busy_timeout)
            self.is_new = self._make(memory)
            has_log = _opening.has_log(self.place)
            connection = _opening.open_writer(self.place, busy_timeout=self._busy_timeout)
            try:
                _opening.migrate(connection)
            except NotAJournal:
                self._epoch.check_absent(memory)  # what was there says more
                raise
            if has_log:
                self._epoch.check_log(connection)
            self._epoch.begin(connection, memory)
        except Exception as error:
            if connection is not None:
                connection.close()
            self._epoch.close()
            if memory is not None:
                memory.close()
            if isinstance(error, OSError):
                raise JournalUnavailable(f"{self._path} cannot be opened ({error.strerror})") from error
            raise
        return connection

    def open_reader(self) -> Connection:
        """A connection that only reads."""
        return _opening.open_reader(self.place, busy_timeout=self._busy_timeout)

    def is_lost(self, _: Connection, /) -> bool:
        """A file is not."""
        return False

    def closing(self, connection: Connection, /) -> None:
        """Let the file alone be the journal, if nobody else has it open."""
        connection.execute("PRAGMA busy_timeout = 0")  # whoever reads or writes meanwhile is not waited for
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Live no more, and close what vouches for the file."""
        self._liveness.end()
        self._epoch.close()

    def begin(self, connection: Connection, /) -> float:
        """Begin to write, when nobody else does; Unix seconds since then."""
        connection.execute("BEGIN IMMEDIATE")
        return self.now()

    def begin_changes(self, connection: Connection, /) -> None:
        """Make the trigger that writes changes, unless it is there."""
        connection.execute(_opening.WRITES_CHANGES)

    def seal(self, commit: Commit, /) -> Callable[[], None]:
        """Count a commit that moved an order. Raises ``JournalBehind``."""
        return self._epoch.seal(commit)

    def stand_back(self, connection: Connection, /) -> None:
        """A copy has gone on."""
        self._epoch.stand_back(connection)

    def begin_to_live(self) -> None:
        """Hold a lock as long as the journal is open here."""
        self._liveness.begin()

    @asynccontextmanager
    async def dead(self) -> AsyncIterator[Sequence[str]]:
        """The holders that died without an end."""
        with self._liveness.dead() as dead:
            yield dead

    def is_of_the_disk(self, error: Exception, /) -> bool:
        """Whether the database is in trouble."""
        return _faults.is_of_the_disk(error)

    def is_no_text(self, error: Exception, /) -> bool:
        """Whether what is stored as a text is none: Python says so, whose errors have no code of SQLite's."""
        return isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", None) is None

    def translated(self, error: Exception, /) -> JournalError:
        """The error of the journal that says the same, and of which file."""
        return _faults.translated(error, self._path)

    def _make(self, memory: Memory | None) -> bool:
        """Make the journal where there is none; tells whether that was done."""
        if self.place.is_file() and not self.place.stat().st_size:
            self._epoch.check_absent(memory)
            raise NotAJournal(f"{self._path} is empty")
        if self.place.exists():
            return False
        self._epoch.check_absent(memory)
        return _opening.make(self.place, remembers=self._state_folder is not None)
