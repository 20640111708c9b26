"""PostgresDatabase: a namespace of a database while it is open here as a journal."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import psycopg

from payments_async.journal._engine._tally import Tally
from payments_async.journal._examination import IntegrityCheck
from payments_async.journal._faults import (
    JournalError,
    JournalLost,
    JournalReadOnly,
    JournalUnavailable,
    NotAJournal,
    NotMigrated,
    PlaceTaken,
)
from payments_async.journal._machine._memory import MachineState, StateFolder
from payments_async.journal._postgres import _circumstances, _faults, _rights, _schema
from payments_async.journal._postgres._attendant import Attendant
from payments_async.journal._postgres._connection import (
    HAS_ROOM,
    PgConnection,
    connected,
    shown,
    surroundings,
    without_nul,
)
from payments_async.journal._postgres._gathered import GatheredCommit
from payments_async.journal._postgres._identity import IS_DURABLE, Identity, Server, server_of
from payments_async.journal._postgres._pool import SessionPool
from payments_async.journal._postgres._schema import literal, quoted
from payments_async.journal._postgres._sessions import NOT_OURS, is_own, session_of
from payments_async.journal._statements import _changes
from payments_async.journal._statements._database import Connection, Gathered
from payments_async.journal._statements._entries import Commit
from payments_async.journal._statements._moving import TableShape, check_here, facts_of, write_facts
from payments_async.journal._versions import Migration, Step, Version, check_up_to_date

T = TypeVar("T")
DEFAULT_SCHEMA = "payments"
APPLICATION = "payments-async"
_AGAIN = 0.25  # seconds until a server that is not there is tried again
_BEYOND = 5.0  # ... that an answer may take beyond what its statement may; then the connection counts as lost
_SOON = 15.0  # ... that those of the attendant may take, who asks for next to nothing
_ENCODINGS = {"UTF8", "SQL_ASCII"}  # the latter takes bytes as they come
_MOMENT = 0.05  # ... until the attendant is asked again
_STANDSTILL = 5.0  # ... after which a process that stands still within a commit lets go of it
_NOW = "extract(epoch FROM clock_timestamp())::float8"
# Whatever is usual in this database or for this user: how our literals are read and our numbers written, and that the
# server notices within seconds when our machine is gone, which it else would not for hours.
_SESSION = (
    "SET standard_conforming_strings = on",
    "SET extra_float_digits = 3",
    # What is committed is on disk then, though the rest of the application may live without; and what is usual may
    # change while we are connected.
    """SELECT set_config('synchronous_commit', CASE WHEN setting = 'off' THEN 'on' ELSE setting END, FALSE)
    FROM current_setting('synchronous_commit') AS setting""",
    "SET row_security = off",  # a row that a policy hides from this user is an error, and not absent
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
    "SET tcp_user_timeout = 15000",
    # Every statement finds its few rows by an index, whatever the server knows of its tables: a plan made while they
    # were all but empty reads all that is in them, and is kept. What is to read whole tables says so. Plans
    # are made for any values, and anew every few seconds (``PgConnection``), by the size that tables have then.
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET enable_material = off",
    "SET jit = off",  # what is not to be read as a whole counts as so dear that it would be compiled first
    "SET plan_cache_mode = force_generic_plan",
)

# ... and for what reads whole tables, however long that takes.
_WHOLE_TABLES = (
    "SET statement_timeout = 0",
    *(f"RESET {name}" for name in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_material")),
    "RESET plan_cache_mode",
)
# by whoever made the same tables, and was quicker
_MADE_MEANWHILE = psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema, psycopg.errors.DuplicateFunction
_BEGIN, _LOCK = "BEGIN ISOLATION LEVEL READ COMMITTED", "LOCK TABLE {}archive IN SHARE ROW EXCLUSIVE MODE"
_JOURNAL_ID = "(SELECT value FROM meta WHERE key = 'journal_id')"
# The last of each commit: the tables are the same as when it began, though it may have waited for a lock on them; and
# nobody has dropped or changed what was written, else a text is no number. Who makes a trigger or a rule waits for all
# that has written to its table.
_END = """SELECT 1 / CAST(coalesce({id} = {{}}, FALSE) AS INT), CAST({changers} AS INT),
    CASE WHEN {room} THEN pg_notify(current_schema(), {{}}) END"""
# of a table in a namespace that the user may not use any more, a read says that it is not there
_UNSEEN = psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege
_Changed = psycopg.errors.InvalidTextRepresentation
_READ_ONLY = "SET default_transaction_read_only = on", "SET default_transaction_isolation = 'repeatable read'"


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
        steps: What this version of the package knows of the tables.
    """

    Error: type[Exception] = psycopg.Error
    within = 2.0
    seen_of_others = None
    takes_arrays = True

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
        steps: Sequence[Step] = _schema.STEPS,
    ) -> None:
        self._dsn = dsn
        self._schema = schema
        self._state_folder = state_folder
        self._busy_timeout = busy_timeout
        self._statement_timeout = statement_timeout
        self._is_unsafe_allowed = is_unsafe_allowed
        self._clock = clock
        self._steps = steps
        self._ours = _schema.names_of_tables(steps)
        self._ahead = 0.0  # seconds that the clock of the database is ahead of this machine's
        self.named = shown(dsn) if schema == DEFAULT_SCHEMA else f"{shown(dsn)} ({schema})"
        self.is_new = False
        self.holder = ""
        self._identity = Identity(self, named=self.named, schema=schema, steps=steps)
        self._attendant: Attendant | None = None
        self._ending: Attendant | None = None
        self._pool = SessionPool()
        self._key: Hashable = None
        self._was_open = False
        self._away_since: float | None = None  # monotonic seconds when the server was first found away, if it is
        self._server: Server | None = None  # by whose sessions it may write: the tables were looked at since it began
        self._mark = secrets.token_hex(8)  # of our own commits; another one where one was lost, which is not counted
        # Until when, in seconds that only grow, the server may still make a commit whose connection was lost: it may
        # arrive yet. What was not granted by that is given back afterwards.
        self._under_way = 0.0
        self._unseen: tuple[Exception | None, str | None] = (None, None)  # why tables were not seen the last time
        self._is_lent = False  # a pooler has taken a session for somebody else
        # Those who write wait for each other by a lock that takes the right to write; any user of the database could
        # take one that is a number. It is that of the table that is written least, so that no vacuum is in the way.
        # Each statement sees what was committed before the lock was granted, and the moment is one after that.
        begun = f"SELECT {_NOW}, {IS_DURABLE}, pg_backend_pid()"
        tables = ", ".join(f"CAST('{name}' AS regclass)" for name in sorted(self._ours))
        self._end = _END.format(id=_JOURNAL_ID, changers=_schema.changers(f"ARRAY[{tables}]"), room=HAS_ROOM)
        self._begin_new = f"{_BEGIN}; {begun}"
        lock = _LOCK.format(f"{quoted(schema)}.")
        changers = _schema.changers(_schema.numbers_of(self._ours, schema))
        # named with its namespace: a session that a pooler has lent may see another one, or none
        journal_id = _JOURNAL_ID.replace(" meta ", f" {quoted(schema)}.meta ")
        self._begin = f"{_BEGIN}; {lock}; {begun}, current_schema(), {journal_id}, {changers}"
        self.commits = Tally()
        self.tray = Tally()  # of orders laid there

    @property
    def journal_id(self) -> str:
        """Whose identity it has."""
        return self._identity.journal_id

    @property
    def unseen_at(self) -> float | None:
        """Unix seconds since when a machine has it that had not seen it before."""
        return self._identity.unseen_at

    @property
    def memory(self) -> MachineState | None:
        """What remembers it on this machine, while it is open."""
        return self._identity.memory

    @property
    def address(self) -> str:
        """The DSN, without a password."""
        return self.named

    # opening

    def open(self, *, gives_back: bool = False) -> PgConnection:
        """A connection that writes, lent to this journal alone until it is given back."""
        if not self._was_open:
            key = self._key = (surroundings(self._dsn), self._statement_timeout)  # whose connections are alike
            self._pool = SessionPool.joined((*key, self._busy_timeout), self)
        connection = self._patiently(self._open_once, since=self._away_since if gives_back else None)
        self._was_open = True
        connection.before_commit = self._end.format(literal(self.journal_id), literal(self._mark))
        return connection

    def _patiently(self, connect: Callable[[], PgConnection], *, since: float | None = None) -> PgConnection:
        """A connection; a server that was there before, and is not, may take its time to come back.

        Args:
            since: Monotonic seconds when that time began; now by default.
        """
        since = time.monotonic() if since is None else since
        until = since + self._busy_timeout if self._was_open else since
        while True:
            try:
                connection = connect()
            except JournalUnavailable:
                now = time.monotonic()
                self._away_since = now if self._away_since is None else self._away_since
                if now >= until:
                    raise
                time.sleep(_AGAIN)
            else:
                self._away_since = None
                return connection

    def _open_once(self) -> PgConnection:
        """Open, with all that is looked at then. What this machine remembers stays open where it was.

        By a session of the server that was looked at, nothing is to be looked at once more: each commit compares the
        namespace and the journal in it, and each that is counted, whether it stands as it was left.
        """
        memory = self._identity.memory
        borrowed = connection = self._borrowed()
        if connection is not None and connection.server is not None and connection.server == self._server:
            return connection
        try:
            connection = connection or self._begun_session(is_tried=True)
            if not self._was_open:
                memory = self.recall()
            self._made_once(connection, partial(self._make_ready, connection, memory))
        except Exception as error:
            was_lost = connection is not None and connection is borrowed and connection.is_lost
            if connection is not None:
                connection.close()
                if was_lost:  # the server was away since it was used last, and other sessions are as old
                    self._pool.take_back(connection, is_lent=True)
            if not self._was_open:
                self._identity.close()
                if memory is not None:
                    memory.close()
            if was_lost:
                return self._open_once()
            if isinstance(error, psycopg.Error):
                raise self.translated(error) from error
            raise
        return connection

    def _borrowed(self) -> PgConnection | None:
        """A connection that journals of this process share, if there is one that is ours surely."""
        connection = None if self._is_lent else self._pool.lent(self._schema)
        if connection is not None:
            connection.enter(self._schema)
            connection.before_commit = ""  # it was that of the journal before
        return connection

    def _make_ready(self, connection: PgConnection, memory: MachineState | None) -> None:
        """Make sure of the server, make the tables where there are none, and find out whether they are those of here.

        Raises:
            NotMigrated: They are of an older version: all machines would wait, and this user may not change them.
        """
        server = connection.server = server_of(connection)
        self._check_safe(connection, server)
        now = self._begin_alone(connection)
        version, facts = self._checked(connection)
        check_up_to_date(version, self._steps, self.named)
        if version.number and (silent := _schema.silent_triggers(connection, self._schema)):
            words = "may not fire, and no handler would hear of what becomes of an order"
            raise NotMigrated(f"{self.named}: its trigger {silent[0]} {words}")
        _schema.migrate(connection, self._schema, self._steps, found=version)
        is_new = "journal_id" not in facts
        if self._was_open and is_new:
            raise self._replaced()
        if not self._was_open:
            self.is_new = is_new
        if is_new:
            self._identity.make(
                connection, server, memory, journal_id=secrets.token_hex(16), remembers=self._state_folder is not None
            )
            facts = facts_of(connection)
        done = self._identity.begin(connection, server, memory, now, facts)
        connection.commit()
        done()
        self._server = server

    def _replaced(self) -> JournalLost:
        return JournalLost.of_tables(
            f"{self.named}: the tables of the journal were emptied or replaced while it was open"
        )

    def changed_by(self, changers: str) -> JournalUnavailable:
        """Nothing is written while triggers or rules of another program may drop or change it."""
        words = "of another program may drop or change rows: drop it, or have it fire after them"
        return JournalUnavailable(f"{self.named}: the {changers} {words}")

    def _checked(self, connection: PgConnection) -> tuple[Version, dict[str, str]]:
        """Of which version the tables are, and what they say of themselves. Raises ``JournalMoved`` if they moved."""
        version = _schema.version_of(connection, self._schema)
        facts = facts_of(connection) if version.number else {}
        check_here(facts, self.named)
        return version, facts

    def _check_safe(self, connection: PgConnection, server: Server) -> None:
        """Raise ``JournalUnavailable`` where a permit, or a text, might be forgotten."""
        self._check_durable(is_durable=server.is_durable)
        if server.encoding not in _ENCODINGS:
            raise JournalUnavailable(
                f"{self.named}: the database keeps its texts in {server.encoding}, which has no letters for some; make "
                "one with ENCODING 'UTF8'"
            )

    def _check_durable(self, *, is_durable: bool) -> None:
        if not is_durable and not self._is_unsafe_allowed:
            raise JournalUnavailable(
                f"{self.named}: the server runs with fsync or full_page_writes off and may forget what was sent; "
                "turn both on"
            )

    def exists(self) -> bool:
        """Whether there is a journal; for this alone nothing has to be open."""
        connection = self._connected(is_tried=True)
        try:
            if not _schema.version_of(connection, self._schema).number:
                return False
            return connection.execute("SELECT 1 FROM meta WHERE key = 'journal_id'").fetchone() is not None
        except psycopg.Error as error:
            raise self.translated(error) from error
        finally:
            connection.close()

    def open_reader(self) -> PgConnection:
        """A connection that journals of this process share, or a new one: one that has written reads as well."""
        return self._borrowed() or self._patiently(self._begun_session, since=self._away_since)

    def give_back(self, connection: Connection, /) -> bool:
        """Let another journal have a connection; tells whether it is given away."""
        assert isinstance(connection, PgConnection)
        is_taken = self._pool.take_back(connection, is_lent=self._is_lent)
        if not is_taken and connection.before_commit:  # it is lost, and so may be what was committed by it
            self._server, self._mark = None, secrets.token_hex(8)
        return is_taken

    def _bare(self, patience: float | None = None) -> PgConnection:
        """A connection on which nothing was set.

        Args:
            patience: Seconds without a sign of the server after which it is lost; by what a statement may take.
        """
        patience = self._statement_timeout + _BEYOND if patience is None else patience
        return connected(self._dsn, place=self.named, name=APPLICATION, patience=patience)

    def _connected(self, *settings: str, is_tried: bool = False, patience: float | None = None) -> PgConnection:
        """A connection with the settings of every session, and some more.

        Args:
            is_tried: Try first whether its session is one's own.
            patience: As for ``_bare``.
        """
        connection = self._bare(patience)
        try:
            if is_tried or self._is_lent:
                if not is_own(connection, self._bare):
                    raise JournalUnavailable(f"{self.named}: {NOT_OURS}")
                self._is_lent = False
            timeout = f"SET statement_timeout = {_milliseconds(self._statement_timeout)}"
            connection.enter(self._schema, timeout, *_SESSION, *settings)
        except (psycopg.Error, JournalUnavailable) as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise self.translated(error) from error
            raise
        return connection

    def _begun_session(self, *, is_tried: bool = False) -> PgConnection:
        """A connection to be shared; before it first writes, its server is looked at."""
        connection = self._connected(
            f"SET lock_timeout = {_milliseconds(self._busy_timeout)}",
            f"SET idle_in_transaction_session_timeout = {_milliseconds(_STANDSTILL)}",
            is_tried=is_tried,
        )
        if not connection.session:
            connection.session = session_of(connection)
        return connection

    def is_lost(self, connection: Connection, /) -> bool:
        """Whether a connection is of no use any more."""
        assert isinstance(connection, PgConnection)
        return connection.is_lost

    def end(self, connection: Connection, /) -> None:
        """Nothing is to be put in order."""
        connection.close()

    def close(self) -> None:
        """Live no more, and close what vouches for the database."""
        attendant, self._attendant = self._attendant, None
        if attendant is not None:
            attendant.end()
            self._ending = attendant
        self._pool.leave(self)
        self.holder = ""
        self._was_open, self._server = False, None
        self._identity.close()

    def wait_for_end(self) -> None:
        """Wait until nobody listens any more."""
        attendant, self._ending = self._ending, None
        if attendant is not None:
            attendant.join()

    # commits

    def begin(self, connection: Connection, /) -> float:
        """Begin to write, when nobody else does; Unix seconds since then. Raises ``JournalUnavailable``."""
        return self._begun(connection, self._begin)

    def _begin_alone(self, connection: PgConnection) -> float:
        """The same, also where there are no tables to be locked: then whoever makes them first has them.

        Raises:
            JournalReadOnly: This user may not use the tables, or make them.
        """
        _rights.check(connection, self._schema, self._ours, self.named)
        try:
            return self._begun(connection, self._begin)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            connection.rollback()
            return self._begun(connection, self._begin_new)

    def _made_once(self, connection: PgConnection, make: Callable[[], T]) -> T:
        """Do what makes the tables where there are none; once more where somebody else has made them meanwhile."""
        try:
            return make()
        except _MADE_MEANWHILE:
            connection.rollback()
            return make()

    def _begun(self, connection: Connection, begin: str) -> float:
        assert isinstance(connection, PgConnection)
        time.sleep(max(0.0, self._under_way - time.monotonic()))
        now, is_durable, session, *found = connection.exchange(begin)
        assert now is not None
        assert session is not None
        schema, journal_id, changers = found or (self._schema.encode(), None, None)
        if self._is_lent or int(session) != connection.session or schema != self._schema.encode():
            self._is_lent = True
            connection.close()  # so that the next one tries whether it is one's own
            raise JournalUnavailable(f"{self.named}: {NOT_OURS}")
        if self._was_open and found and journal_id != self.journal_id.encode():
            raise self._replaced()
        if changers is not None:
            assert isinstance(connection, PgConnection)
            connection.forget()
            raise self.changed_by(changers.decode(errors="replace"))
        self._check_durable(is_durable=is_durable == b"t")  # it may have been changed since
        self._ahead = float(now) - time.time()
        return self.now()

    def commit(self, connection: Connection, /) -> None:
        """Commit, and tell others. Raises ``JournalUnavailable``."""
        assert isinstance(connection, PgConnection)
        try:
            connection.commit()
        except (psycopg.errors.DivisionByZero, _Changed) as error:  # as `_END` says
            words = "another program has changed the tables meanwhile, and nothing was written"
            raise JournalUnavailable(f"{self.named}: {words}") from error

    def gathering(self, connection: Connection, /) -> GatheredCommit | None:
        """What gathers the statements of a commit, so that they leave together."""
        assert isinstance(connection, PgConnection)
        with suppress(psycopg.Error):  # one that is lost meanwhile shows it here, before anything was sent
            if not self._is_lent:
                connection.plan_anew()
        return None if self._is_lent or connection.is_lost else GatheredCommit(connection)

    def perform(self, commit: Commit, gathered: Gathered, /) -> Callable[[], None] | None:
        """Make a whole commit in one exchange; ``None`` where nothing was done, as something is out of the usual.

        Raises:
            psycopg.Error: As ``commit``.
        """
        assert isinstance(gathered, GatheredCommit)
        connection = gathered.by
        count = self._identity.gather_before_commit(commit, gathered)
        now = commit.now if self._clock is None else time.time() + self._ahead
        durable = "TRUE" if self._is_unsafe_allowed else IS_DURABLE
        in_time = f"{_NOW} BETWEEN CAST(? AS DOUBLE PRECISION) AND CAST(? AS DOUBLE PRECISION)"
        ours = f"pg_backend_pid() = ? AND current_schema() = ? AND {_JOURNAL_ID} = ?"
        check = f"SELECT {_NOW}, 1 / CAST(coalesce({durable} AND {in_time} AND {ours}, FALSE) AS INT)"
        values = (now - self.within, now + self.within, connection.session, self._schema, self.journal_id)
        told = " ".join((self._mark, *sorted(commit.entered or ())))
        end = self._end.format("?", "?"), (self.journal_id, told)
        under_way = time.monotonic() + self.within
        try:
            moment = gathered.perform(_BEGIN, _LOCK.format(""), (check, values), end=end)
        except psycopg.Error as error:
            if connection.is_lost:
                self._under_way = under_way
            elif not self.is_of_the_disk(error):
                if isinstance(error, _Changed):
                    connection.forget()
                return None
            raise
        self._ahead = moment - time.time()
        return _nothing if count is None else partial(self._identity.hear_of, count())

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

    def enter_quarantine(self, connection: Connection, /) -> None:
        """A copy has gone on."""
        self._identity.enter_quarantine(connection)

    # others

    def start_heartbeat(self) -> None:
        """Hold a lock as long as the journal is open here, and listen."""
        for tally in (self.commits, self.tray):
            tally.loop = asyncio.get_running_loop()
        self.holder = secrets.token_hex(8)
        connect = partial(self._connected, patience=min(_SOON, self._statement_timeout + _BEYOND))
        self._attendant = Attendant(
            connect,
            key=self._key,
            schema=self._schema,
            holder=self.holder,
            heard=self._heard,
            mark=lambda: self._mark,
            lent=self._lent,
        )
        self._attendant.start()

    @asynccontextmanager
    async def dead(self) -> AsyncIterator[Sequence[str]]:
        """The holders that died without an end."""
        attendant = self._attendant
        dead = [] if attendant is None else attendant.dead
        yield dead
        if attendant is not None and dead:
            attendant.forget(dead)

    @property
    def is_deaf(self) -> bool:
        """Whether no commit is told any more, and others are heard of each second alone."""
        return self._attendant is not None and self._attendant.is_deaf

    async def wait_for_liveness(self) -> None:
        """Wait until the attendant knows of everybody who seems to be dead, though not for ever."""
        until = time.monotonic() + self._busy_timeout
        while self._attendant is not None and self._attendant.is_unsure and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(_MOMENT)  # it comes to know by time going by

    def _heard(self, commits: int | None, is_laid: bool, entered: Collection[str] | None) -> None:
        """Another has committed something, or may have, or laid it in the tray; called by the attendant."""
        if commits is not None:
            self._identity.hear_of(commits)
            self.commits.rise_soon(entered)
        if is_laid:
            self.tray.rise_soon()

    def _lent(self) -> None:
        """A session is not ours any more; called by the attendant."""
        self._is_lent = True

    # bringing it up to date, and to another place

    def migration(self) -> Migration:
        """What bringing the tables up to date would do."""
        with self._alone() as connection:
            _rights.check(connection, self._schema, self._ours, self.named)
            todo = _schema.migration_of(connection, self._schema, self._steps)
            return todo if todo.steps else attrs.evolve(todo, steps=self._mends(connection))

    def migrate(self) -> Migration:
        """Do it, while nobody else writes."""
        with self._alone() as connection:
            self._check_safe(connection, server_of(connection))
            done = self._made_once(connection, partial(self._migrated, connection))
            connection.commit()
            return done

    def _migrated(self, connection: PgConnection) -> Migration:
        self._begin_alone(connection)
        version, _ = self._checked(connection)
        done = _schema.migrate(connection, self._schema, self._steps, found=version)
        if mends := self._mends(connection):
            _schema.let_fire(connection, self._schema, _schema.silent_triggers(connection, self._schema))
            _changes.write_unwritten(connection, self.now())
        return attrs.evolve(done, steps=(*done.steps, *mends))

    def _mends(self, connection: PgConnection) -> tuple[str, ...]:
        """What has to be put right in tables of this version, in words."""
        silent = _schema.silent_triggers(connection, self._schema)
        return (*(f"let the trigger {name} fire" for name in silent), *_changes.mends(connection))

    def recall(self) -> MachineState | None:
        """What this machine remembers."""
        return MachineState.opened(self._state_folder, busy_timeout=self._busy_timeout)

    def facts(self) -> dict[str, str]:
        """What the journal says of itself; nothing where there is none."""
        with self._alone() as connection:
            is_there = _schema.version_of(connection, self._schema).number
            facts = facts_of(connection) if is_there else {}
            return facts if "journal_id" in facts else {}

    def tables(self, connection: Connection, /) -> dict[str, TableShape]:
        """Its tables."""
        return _schema.tables_of(connection, self._schema, self._steps)

    def open_examiner(self) -> PgConnection:
        """A connection that only reads, for as long as that takes. Raises ``NotAJournal`` where there is none."""
        connection = self._connected(*_WHOLE_TABLES, *_READ_ONLY, patience=math.inf)
        try:
            _rights.check(connection, self._schema, self._ours, self.named)
            version = _schema.version_of(connection, self._schema)
            if not version.number:
                raise NotAJournal(f"{self.named}: there is no journal")
            check_up_to_date(version, self._steps, self.named)
            if version.number == len(_schema.STEPS):
                _schema.check_shape(connection, self._schema)
        except Exception as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise self.translated(error) from error
            raise
        return connection

    def circumstances(self, connection: Connection, /) -> tuple[IntegrityCheck, ...]:
        """What the server is like for whoever connects as this user."""
        plain = self._bare()
        try:
            is_shared = not is_own(plain, self._bare)
            return _circumstances.circumstances(plain, self._schema, self._ours, is_shared=is_shared)
        finally:
            plain.close()

    def storable(self, row: Sequence[Any], /) -> list[Any]:
        """A row without what a text of PostgreSQL cannot hold."""
        return list(without_nul(row))

    def make_read_only(self, connection: Connection, words: str, /) -> None:
        """Have whatever writes fail."""
        _schema.seal(connection, self._schema, words, self._steps)

    def make_writable(self, connection: Connection, /) -> None:
        """Take that back."""
        _schema.unseal(connection, self._schema)

    @contextmanager
    def retired(self) -> Iterator[Connection]:
        """A connection to a journal that is sealed, which keeps others from writing."""
        with self._alone() as connection:
            self.begin(connection)
            yield connection

    def note(self, _: Connection, key: str, value: str, /) -> None:
        """Commit it by a connection of its own: whoever waits for the lock would have it in between."""
        with self._alone() as connection:
            write_facts(connection, {key: value})

    def check_free(self) -> None:
        """Whether there can be a journal: makes one, and undoes it."""
        with self._alone() as connection:
            self._made_once(connection, partial(self._begin_whole, connection))

    def make_whole(self, fill: Callable[[Connection], dict[str, str]], *, placing: Callable[[], None]) -> None:
        """Make a journal whose rows come from elsewhere, in one transaction."""
        with self._alone() as connection:
            server = self._made_once(connection, partial(self._begin_whole, connection))
            write_facts(connection, fill(connection))
            _schema.go_on_after(connection, self._schema, self._steps)
            self._identity.vouch(connection, server)
            placing()
            connection.commit()

    def _begin_whole(self, connection: PgConnection) -> Server:
        """Begin to make a journal where there is none, with empty tables. Raises ``PlaceTaken`` or ``JournalLost``."""
        server = server_of(connection)
        self._check_safe(connection, server)
        self._begin_alone(connection)
        _schema.migrate(connection, self._schema, self._steps)
        if "journal_id" in facts_of(connection):
            raise PlaceTaken(f"{self.named}: there is a journal already")
        memory = self.recall()
        try:
            self._identity.check_absent(server, memory)
        finally:
            if memory is not None:
                memory.close()
        return server

    @contextmanager
    def _alone(self) -> Iterator[PgConnection]:
        """A connection for a while, however long a statement takes or is waited for; what it did not commit is undone.

        Nobody else waits for longer than we for them.
        """
        connection = self._connected(
            *_WHOLE_TABLES,
            "SET idle_in_transaction_session_timeout = 0",
            f"SET lock_timeout = {_milliseconds(self._busy_timeout)}",
            is_tried=True,
            patience=math.inf,
        )
        try:
            yield connection
        except psycopg.Error as error:
            raise self.translated(error) from error
        finally:
            connection.close()

    # errors

    def is_of_the_disk(self, error: Exception, /) -> bool:
        """Whether the database is in trouble."""
        return isinstance(error, psycopg.Error) and _faults.is_of_the_disk(error)

    def is_no_text(self, error: Exception, /) -> bool:
        """A text is one here, always."""
        return False

    def translated(self, error: Exception, /) -> JournalError:
        """The error of the journal that says the same, and of which database."""
        if isinstance(error, _UNSEEN):
            before, words = self._unseen
            if error is not before:  # all operations of a commit fail by one error
                words = self._lacking()
                self._unseen = error, words
            if words is not None:
                return JournalReadOnly(f"{self.named}: {words}")
        if isinstance(error, psycopg.errors.UndefinedTable):
            return NotAJournal(f"{self.named}: its tables are not there")
        assert isinstance(error, psycopg.Error)
        return _faults.translated(error, self.named)

    def _lacking(self) -> str | None:
        """What this user lacks of rights to tables that are there, as far as the server tells in this moment."""
        with suppress(JournalError, psycopg.Error):
            connection = self._connected()
            try:
                if _schema.shape_of(connection, self._schema):
                    return _rights.lacking(connection, self._schema, self._ours)
            finally:
                connection.close()
        return None


def _nothing() -> None:
    """Nobody is to hear of a commit that moved no order."""


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
