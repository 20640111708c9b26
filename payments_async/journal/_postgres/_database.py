"""PostgresDatabase: a namespace of a database while it is open here as a journal."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import psycopg

from payments_async.journal._engine._memory import Memory, StateFolder
from payments_async.journal._faults import JournalError, JournalLost, JournalUnavailable, NotAJournal
from payments_async.journal._postgres import _faults, _schema
from payments_async.journal._postgres._attendant import Attendant
from payments_async.journal._postgres._connection import PgConnection, connected, shown
from payments_async.journal._postgres._identity import IS_DURABLE, Identity, Server, server_of
from payments_async.journal._postgres._schema import literal, quoted
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit

DEFAULT_SCHEMA = "payments"
APPLICATION = "payments-async"
_AGAIN = 0.25  # seconds until a server that is not there is tried again
_ENCODINGS = {"UTF8", "SQL_ASCII"}  # the latter takes bytes as they come
_STANDSTILL = 5.0  # ... after which a process that stands still within a commit lets go of it
_NOW = "extract(epoch FROM clock_timestamp())::float8"
# Whatever is usual in this database or for this user: how our literals are read and our numbers written, and that the
# server notices within seconds when our machine is gone, which it else would not for hours.
_SESSION = (
    "SET standard_conforming_strings = on",
    "SET extra_float_digits = 3",
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
    "SET tcp_user_timeout = 15000",
)


class Tally:
    """A number that rises with everything that is heard of, which one thread tells and an event loop waits for."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._count = 1  # whoever has heard of nothing passes 0, and looks at once
        self._next: asyncio.Future[None] | None = None

    def rise(self) -> None:
        """Something was heard of."""
        self._count += 1
        if self._next is not None and self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self.loop.call_soon_threadsafe(self._tell)

    async def beyond(self, seen: int, timeout: float) -> int:
        """Wait until it is another one than this, for so many seconds at most; tells it."""
        until = time.monotonic() + timeout
        while self._count == seen and (left := until - time.monotonic()) > 0:
            if self._next is None or self._next.done():
                self._next = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._next], timeout=left)
        return self._count

    def _tell(self) -> None:
        waiting, self._next = self._next, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


class PostgresDatabase:
    """The namespace of one journal, for one opening of it.

    Args:
        dsn: Of the database.
        schema: The namespace.
        state_folder: Where it is remembered on this machine; ``None`` for nowhere.
        busy_timeout: Seconds to wait for another process, and for a server that is started anew.
        statement_timeout: Seconds that a statement may take.
        is_unsafe_allowed: Whether a server may forget what it called committed.
        clock: Unix seconds in place of the database's clock.
    """

    Error: type[Exception] = psycopg.Error

    def __init__(
        self,
        dsn: str,
        *,
        schema: str,
        state_folder: str | Path | StateFolder | None,
        busy_timeout: float,
        statement_timeout: float,
        is_unsafe_allowed: bool,
        clock: Callable[[], float] | None,
    ) -> None:
        self._dsn = dsn
        self._schema = schema
        self._state_folder = state_folder
        self._busy_timeout = busy_timeout
        self._statement_timeout = statement_timeout
        self._is_unsafe_allowed = is_unsafe_allowed
        self._clock = clock
        self._ahead = 0.0  # seconds that the clock of the database is ahead of this machine's
        self.named = shown(dsn) if schema == DEFAULT_SCHEMA else f"{shown(dsn)} ({schema})"
        self.is_new = False
        self.holder = ""
        self._identity = Identity(self, named=self.named, schema=schema)
        self._attendant: Attendant | None = None
        self._was_open = False
        # those who write wait for each other by this number; others in the database have other ones, or do no harm
        lock = hashlib.sha256(f"payments-async journal {schema}".encode()).digest()[:8]
        number = int.from_bytes(lock, "big", signed=True)
        # each statement sees what was committed before it, and not before the lock was asked for
        self._begin = (
            f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({number}); SELECT {_NOW}, {IS_DURABLE}"
        )
        self.commits = Tally()
        self.tray = Tally()  # of orders laid there

    @property
    def journal_id(self) -> str:
        """Whose identity it has."""
        return self._identity.journal_id

    @property
    def memory(self) -> Memory | None:
        """What remembers it on this machine, while it is open."""
        return self._identity.memory

    # opening

    def open(self) -> PgConnection:
        """The connection that writes."""
        connection = self._patiently(self._open_once)
        self._was_open = True
        return connection

    def _patiently(self, connect: Callable[[], PgConnection]) -> PgConnection:
        """A connection; a server that was there before, and is not, may take its time to come back."""
        until = time.monotonic() + (self._busy_timeout if self._was_open else 0.0)
        while True:
            try:
                return connect()
            except JournalUnavailable:
                if time.monotonic() >= until:
                    raise
                time.sleep(_AGAIN)

    def _open_once(self) -> PgConnection:
        """Open, with all that is looked at then. What this machine remembers stays open where it was."""
        memory, connection = self._identity.memory, None
        try:
            connection = self._connected(
                f"SET lock_timeout = {_milliseconds(self._busy_timeout)}",
                f"SET idle_in_transaction_session_timeout = {_milliseconds(_STANDSTILL)}",
            )
            if not self._was_open:
                memory = Memory.opened(self._state_folder, busy_timeout=self._busy_timeout)
            self._make_ready(connection, memory)
        except Exception as error:
            if connection is not None:
                connection.close()
            if not self._was_open:
                self._identity.close()
                if memory is not None:
                    memory.close()
            if isinstance(error, psycopg.Error):
                raise self.translated(error) from error
            raise
        connection.before_commit = f"SELECT pg_notify({literal(self._schema)}, ''); "
        return connection

    def _make_ready(self, connection: PgConnection, memory: Memory | None) -> None:
        """Make sure of the server, bring the tables up to date, and find out whether they are those that were here."""
        server = server_of(connection)
        self._check_safe(connection, server)
        now = self.begin(connection)
        _schema.migrate(connection, self._schema)
        known = connection.execute("SELECT value FROM meta WHERE key = 'journal_id'").fetchone()
        if self._was_open and (known is None or known[0] != self.journal_id):
            raise JournalLost(f"{self.named}: the tables of the journal were emptied or replaced while it was open")
        if not self._was_open:
            self.is_new = known is None
        if known is None:
            self._identity.make(
                connection, server, memory, journal_id=secrets.token_hex(16), remembers=self._state_folder is not None
            )
        done = self._identity.begin(connection, server, memory, now)
        connection.execute("COMMIT")
        done()

    def _check_safe(self, connection: PgConnection, server: Server) -> None:
        """Raise ``JournalUnavailable`` where a permit might be forgotten, or a lock is not ours for long."""
        self._check_durable(is_durable=server.is_durable)
        if server.encoding not in _ENCODINGS:
            raise JournalUnavailable(
                f"{self.named}: the database keeps its texts in {server.encoding}, which has no letters for some; make "
                "one with ENCODING 'UTF8'"
            )
        told = connection.raw.info.backend_pid
        if told == _pid_of(connection):
            return
        other = self._connected()  # something stands between: does it give one session to two of us?
        try:
            pids = {_pid_of(connection), _pid_of(other)}
        finally:
            other.close()
        if len(pids) == 1:
            raise JournalUnavailable(
                f"{self.named}: the pooler in between lends a session for one transaction only; the journal needs "
                "sessions of its own (pool_mode = session), or the server itself"
            )

    def _check_durable(self, *, is_durable: bool) -> None:
        if not is_durable and not self._is_unsafe_allowed:
            raise JournalUnavailable(
                f"{self.named}: the server runs with fsync or full_page_writes off and may forget what was sent; "
                "turn both on"
            )

    def exists(self) -> bool:
        """Whether there is a journal; for this alone nothing has to be open."""
        connection = self._connected()
        try:
            if not _schema.version_of(connection, self._schema):
                return False
            return connection.execute("SELECT 1 FROM meta WHERE key = 'journal_id'").fetchone() is not None
        except psycopg.Error as error:
            raise self.translated(error) from error
        finally:
            connection.close()

    def open_reader(self) -> PgConnection:
        """A connection that only reads."""
        settings = "SET default_transaction_read_only = on", "SET default_transaction_isolation = 'repeatable read'"
        return self._patiently(lambda: self._connected(*settings))

    def _connected(self, *settings: str) -> PgConnection:
        connection = connected(self._dsn, place=self.named, name=APPLICATION)
        try:
            timeout = f"SET statement_timeout = {_milliseconds(self._statement_timeout)}"
            path = f"SET search_path = {quoted(self._schema)}"
            connection.script("; ".join([path, timeout, *_SESSION, *settings]))
        except psycopg.Error as error:
            connection.close()
            raise self.translated(error) from error
        return connection

    def is_lost(self, connection: Connection, /) -> bool:
        """Whether a connection is of no use any more."""
        assert isinstance(connection, PgConnection)
        return connection.is_lost

    def closing(self, connection: Connection, /) -> None:
        """Nothing is to be put in order."""

    def close(self) -> None:
        """Live no more, and close what vouches for the database."""
        attendant, self._attendant = self._attendant, None
        if attendant is not None:
            attendant.end()
        self.holder = ""
        self._was_open = False
        self._identity.close()

    # commits

    def begin(self, connection: Connection, /) -> float:
        """Begin to write, when nobody else does; Unix seconds since then. Raises ``JournalUnavailable``."""
        assert isinstance(connection, PgConnection)
        found = connection.script(self._begin)
        assert found is not None
        now, is_durable = found
        self._check_durable(is_durable=is_durable)  # it may have been changed since
        self._ahead = float(now) - time.time()
        return self.now()

    def now(self) -> float:
        """Unix seconds by the database's clock, as it was when it was asked last."""
        return time.time() + self._ahead if self._clock is None else self._clock()

    def begin_changes(self, connection: Connection, /) -> None:
        """They are written from the beginning."""

    def seal(self, commit: Commit, /) -> Callable[[], None] | None:
        """Count a commit that moved an order. Raises ``JournalBehind``."""
        count = self._identity.seal(commit)
        if count is None:
            return None
        return partial(self._identity.hear_of, count)

    def stand_back(self, connection: Connection, /) -> None:
        """A copy has gone on."""
        self._identity.stand_back(connection)

    # others

    def begin_to_live(self) -> None:
        """Hold a lock as long as the journal is open here, and listen."""
        for tally in (self.commits, self.tray):
            tally.loop = asyncio.get_running_loop()
        self.holder = secrets.token_hex(8)
        self._attendant = Attendant(self._connected, schema=self._schema, holder=self.holder, heard=self._heard)
        self._attendant.start()

    @asynccontextmanager
    async def dead(self) -> AsyncIterator[Sequence[str]]:
        """The holders that died without an end."""
        attendant = self._attendant
        dead = [] if attendant is None else attendant.dead
        yield dead
        if attendant is not None and dead:
            attendant.forget(dead)

    def _heard(self, commits: int | None, is_laid: bool) -> None:
        """Somebody has committed something, or may have, or laid it in the tray; called by the attendant."""
        if commits is not None:
            self._identity.hear_of(commits)
            self.commits.rise()
        if is_laid:
            self.tray.rise()

    # errors

    def is_of_the_disk(self, error: Exception, /) -> bool:
        """Whether the database is in trouble."""
        return isinstance(error, psycopg.Error) and _faults.is_of_the_disk(error)

    def is_no_text(self, error: Exception, /) -> bool:
        """A text is one here, always."""
        return False

    def translated(self, error: Exception, /) -> JournalError:
        """The error of the journal that says the same, and of which database."""
        if isinstance(error, psycopg.errors.UndefinedTable):
            return NotAJournal(f"{self.named}: its tables are not there")
        assert isinstance(error, psycopg.Error)
        return _faults.translated(error, self.named)


def _pid_of(connection: PgConnection) -> int:
    found = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert found is not None
    return int(found[0])


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
