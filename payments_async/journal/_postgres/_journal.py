"""PostgresJournal: the journal in a PostgreSQL database, for as many machines as use it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from payments_async.journal._engine._journal import StoredJournal
from payments_async.journal._engine._memory import StateFolder
from payments_async.journal._postgres._connection import is_whole
from payments_async.journal._postgres._database import DEFAULT_SCHEMA, PostgresDatabase
from payments_async.journal._postgres._schema import check

_LONGEST = 63  # bytes of a name in PostgreSQL


class PostgresJournal(StoredJournal):
    """The durable outbox and inbox in a namespace of a PostgreSQL database. Any number of machines may share it.

    What a method returned is on disk there (``synchronous_commit``). The methods and what they promise are those of
    ``Journal``; all who write take turns, so that the database decides in one sequence, as a file does. A process that
    is stopped within a commit loses its turn after some seconds, and what it asked for is not granted. When the server
    is started anew, whoever asked for something then hears ``JournalUnavailable``; everybody comes back by themselves.

    A database that was restored, copied or failed over is noticed by what the server says of itself, and by what the
    user's state folder remembers: then nothing is sent before the service's list was read.

    Args:
        dsn: As libpq has it, ``postgresql://user:password@host:5432/name?sslmode=verify-full``; also those of the
            ``PG...`` variables and of a password file that it leaves out. Sessions must be one's own: a pooler lends
            them for as long as they last (``pool_mode = session``).
        schema: The namespace of the tables; made if there is none.
        state_folder: In place of the user's; ``None`` keeps no memory on this machine.
        busy_timeout: Seconds to wait for another process before ``JournalLocked``, and for a server that is started
            anew.
        statement_timeout: Seconds that one statement may take.
        allow_unsafe: Also a server whose ``fsync`` or ``full_page_writes`` is off, which may forget after a power cut
            what it sent: for tests.
        clock: Gives Unix seconds in place of the database's clock, for tests of leases.
        crash_at: Called with the name of every point between two steps (``CRASH_POINTS``), for tests that kill there.

    Attributes:
        is_new: Opening it has made it: it knows no earlier payment.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        state_folder: str | Path | StateFolder | None = StateFolder.OF_USER,
        busy_timeout: float = 10.0,
        statement_timeout: float = 60.0,
        allow_unsafe: bool = False,
        clock: Callable[[], float] | None = None,
        crash_at: Callable[[str], None] | None = None,
    ) -> None:
        if not is_whole(dsn):
            raise ValueError(
                "dsn: libpq does not understand it; as in postgresql://user@host/name, with a @ : / of a password as "
                "%40 %3A %2F"
            )
        if not schema or "\0" in schema or len(schema.encode()) > _LONGEST:
            raise ValueError(f"schema: a name of at most {_LONGEST} bytes")
        self._pg = partial(
            PostgresDatabase,
            dsn,
            schema=schema,
            state_folder=state_folder,
            busy_timeout=busy_timeout,
            statement_timeout=statement_timeout,
            is_unsafe_allowed=allow_unsafe,
            clock=clock,
        )
        super().__init__(self._make, crash_at=crash_at)

    def __repr__(self) -> str:
        return f"PostgresJournal({self.place!r})"

    def _make(self) -> PostgresDatabase:
        self._postgres = self._pg()
        return self._postgres

    async def committed(self, seen: int, *, timeout: float) -> int:
        return await self._postgres.changed(seen, timeout)

    async def check(self) -> None:
        """Read every table once and raise ``JournalCorrupt`` if it is damaged. Takes minutes for millions of orders."""
        await self._read(check)
