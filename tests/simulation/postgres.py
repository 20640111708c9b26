"""A real PostgreSQL server within a simulation: one statement is under way at a time, and the loop says which.

The server answers at its own speed; what comes of it does not depend on that. A statement that waits for a lock hands
over to the others until the lock is free. Nothing goes on before all that the server has under way is done, or waits
for a lock. Its clock is the simulation's, and so are its timeouts.
"""

from __future__ import annotations

import contextvars
import os
import re
import select
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import psycopg
from psycopg import conninfo, generators, sql
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait
from simulation.threads import executed

from payments_async.journal._postgres import _attendant, _connection
from payments_async.journal._postgres._attendant import JournalListener
from payments_async.journal._postgres._connection import PgConnection
from payments_async.testing._simulation.loops import SimulatedLoop
from payments_async.testing._simulation.processes import CURRENT, Process
from payments_async.testing._simulation.threads import SimulatedThread, running

TEMPLATE = "simulation_template"
_CLOCK = """SET allow_system_table_mods = on;
    ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO clock_timestamp_of_the_machine;
    CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    $$SELECT to_timestamp(pg_read_file({} || current_database())::float8)$$"""
_TIMEOUT = re.compile(r"SET (statement_timeout|lock_timeout|idle_in_transaction_session_timeout) = (\d+)")
# Those of these sessions that wait for a lock at one moment; ``pg_blocking_pids`` asks for each at a moment of its own.
_BLOCKED = "SELECT DISTINCT pid FROM pg_locks WHERE NOT granted AND pid = ANY(%s)"
_AWAITS_ITSELF = """WITH RECURSIVE awaited(pid) AS (SELECT unnest(pg_blocking_pids(%(pid)s))
    UNION SELECT unnest(pg_blocking_pids(pid)) FROM awaited) SELECT 1 FROM awaited WHERE pid = %(pid)s"""
_LIVES = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
_LONG = 60.0  # real seconds; whatever takes longer is a mistake of ours
_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


@attrs.define
class Trouble:
    """What the way to the server does to statements, as shares of them.

    Attributes:
        latency: Seconds that a statement or an answer travels at most.
        pause: The share of statements that travel at all; others, and those next to a commit, are done at once.
        vanish: The session is ended before the statement is done.
        lost: The statement is done, and its answer is lost with the connection.
        stall: The statement, or its answer, travels for up to ``stalled`` seconds.
        silent: Nothing comes any more, and nothing says so.
        notice: Seconds after which a commit is heard of at most.
    """

    latency: float = 0.002
    pause: float = 0.1
    vanish: float = 0.0
    lost: float = 0.0
    stall: float = 0.0
    stalled: float = 20.0
    silent: float = 0.0
    notice: float = 0.02


class Exchange:
    """What a session was asked, until its answer is there.

    Args:
        generator: Of psycopg: it asks, waits for the socket, and reads what is there.

    Attributes:
        awaits: What it waits for.
        is_done: An answer or an error is there.
    """

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self._answer: Any = None
        self._error: BaseException | None = None
        self.awaits = Wait.R
        self.is_done = False
        self.go_on(None)

    def go_on(self, ready: Ready | None) -> None:
        """Read and send what can be."""
        try:
            self.awaits = self._generator.send(ready)
        except StopIteration as end:
            self._answer, self.is_done = end.value, True
        except BaseException as error:  # noqa: BLE001 - the thread that has asked will raise it
            self._error, self.is_done = error, True

    def answer(self) -> Any:
        """What came of it. Raises what the generator did."""
        if self._error is not None:
            raise self._error
        return self._answer


@attrs.define(eq=False)
class Session:
    """A session of the server."""

    raw: Any
    pid: int
    owner: Process | None
    timeouts: dict[str, float] = attrs.field(factory=dict)
    thread: SimulatedThread | None = None  # that waits for a lock
    timed_out: bool = False  # the simulation has cancelled its statement
    is_gone: bool = False
    turns: int = 0  # exchanges that were begun
    text: str = ""  # of what is asked
    exchange: Exchange | None = None  # the last one


def _sleep(seconds: float) -> None:
    thread = running()
    assert thread is not None, "only a simulated thread sleeps"
    thread.sleep(seconds)


@cache
def _rewritten(text: str) -> tuple[str, dict[str, float]]:
    """A statement that waits for ever, and how long it wanted to wait."""
    timeouts = {name: int(milliseconds) / 1000 for name, milliseconds in _TIMEOUT.findall(text)}
    return _TIMEOUT.sub(r"SET \1 = 0", text), timeouts


def _told(method: Any) -> Any:
    """The same method, after which the session knows what is asked, and its timeouts are those of the simulation."""

    def asked(connection: Any, what: Any, *more: Any, **named: Any) -> Any:
        session: Session = connection.raw.simulated
        if isinstance(what, str):
            session.text, timeouts = _rewritten(what)
            what = session.text
            session.timeouts |= timeouts
        else:  # statements that leave together
            session.text = "; ".join(one.sql for one in what)
        try:
            return method(connection, what, *more, **named)
        except psycopg.errors.QueryCanceled as error:
            if session.timed_out:
                raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout") from error
            raise

    return asked


class Server:
    """The server of one simulation, with a database of its own.

    Args:
        dsn: Of the server; its user may do everything.
        folder: Where both can read and write: what the clock says lies there.
        name: Of the database.
    """

    def __init__(self, dsn: str, folder: Path, name: str) -> None:
        self._dsn, self._name = dsn, name
        self._monitor = psycopg.connect(dsn, autocommit=True)
        self._clock = os.open(folder / name, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644)
        self.loop: SimulatedLoop
        self.say: Callable[..., None] = lambda *_: None
        self.trouble = Trouble()
        self.sessions: dict[Session, None] = {}
        self.away_until = 0.0
        self.skew = 0.0  # seconds that its clock is ahead
        self.statements = 0
        self._listening: dict[Session, Any] = {}
        self._given_up: list[Any] = []  # exchanges whose end is not seen
        self._copies = 0
        self._drop(name)
        self._make(name, TEMPLATE)

    @staticmethod
    def prepare(dsn: str, folder: Path) -> None:
        """Make what every database of a simulation begins as; once for a server."""
        with psycopg.connect(dsn, autocommit=True) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone():
                return
            connection.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0".encode())
            # The server looks for deadlocks by the real clock; in their place ``_cancel`` does.
            connection.execute("ALTER ROLE ALL SET deadlock_timeout = '1h'")
        with psycopg.connect(conninfo.make_conninfo(dsn, dbname=TEMPLATE), autocommit=True) as connection:
            connection.execute(sql.SQL(_CLOCK).format(sql.Literal(f"{folder}/")))

    def install(self, loop: SimulatedLoop) -> None:
        """Let every connection of the journal to PostgreSQL, and every thread of it, be stepped by the loop."""
        self.loop = loop
        loop.threads = executed
        impatient: Any = _connection._Impatient
        connections: Any = PgConnection
        listeners: Any = JournalListener
        connect, hear = impatient.connect.__func__, listeners._hear

        def connected(cls: type[Any], *args: Any, **options: Any) -> Any:
            self.reach()
            return self.welcome(connect(cls, *args, **options))

        def heard(listener: Any, connection: Any) -> bool:
            self.flush(listener, connection.raw.simulated)
            return bool(hear(listener, connection))

        def waited(listener: Any, seconds: float, selector: Any = None) -> bool:
            return self.wait_for_notice(listener, seconds, hears=selector is not None)

        vars(time)["sleep"] = _sleep
        vars(_attendant)["threading"] = SimpleNamespace(Thread=SimulatedThread)
        impatient.connect = classmethod(connected)
        impatient.wait = lambda raw, generator, *_, **__: self.exchange(raw.simulated, generator)
        impatient.close = lambda raw: self.end(raw.simulated)
        for name in ("execute", "script", "exchange", "_asked"):
            setattr(connections, name, _told(getattr(connections, name)))
        listeners._wait = waited
        listeners.wake = lambda listener: listener._thread.wake()
        vars(_attendant)["sharing"] = CURRENT.get
        listeners._hear = heard

    @property
    def dsn(self) -> str:
        """Of its database."""
        return conninfo.make_conninfo(self._dsn, dbname=self._name)

    def close(self) -> None:
        """Drop the database, and whatever is connected to it."""
        for name in (self._name, *map(self._copy, range(self._copies))):
            self._drop(name)
        self._monitor.close()

    # sessions

    def reach(self) -> None:
        """Travel to the server. Raises ``OperationalError`` where it is away."""
        self._travel()
        if self.loop.time() < self.away_until:
            raise psycopg.OperationalError("connection failed: Connection refused")

    def welcome(self, raw: Any) -> Any:
        """A session has begun."""
        owner = CURRENT.get()
        raw.simulated = session = Session(raw, raw.info.backend_pid, owner)
        self.sessions[session] = None
        if owner is not None and not any(isinstance(done, _Death) for done in owner.on_death):
            owner.on_death.append(_Death(self, owner))
        return raw

    def end(self, session: Session) -> None:
        """Its client closes it; a transaction that is open is undone."""
        psycopg.Connection.close(session.raw)
        self._forget(session)

    def vanish(self, session: Session) -> None:
        """The server ends it, and its client hears of it with the next statement."""
        if session.is_gone:
            return
        self._monitor.execute("SELECT pg_terminate_backend(%s)", (session.pid,))
        poller = select.poll()
        poller.register(session.raw.pgconn.socket, 0)
        if not poller.poll(_LONG * 1000):
            raise RuntimeError(f"the server does not end a session: {session.text}")
        self._forget(session)

    def bury(self, owner: Process) -> None:
        """A process was killed: its connections are closed by its machine."""
        for session in [one for one in self.sessions if one.owner is owner]:
            if session.thread is not None:
                self._monitor.execute("SELECT pg_terminate_backend(%s)", (session.pid,))
                session.thread = None
            self.end(session)

    def _forget(self, session: Session) -> None:
        """A session is gone, with its locks."""
        if session.is_gone:
            return
        session.is_gone = True
        self.sessions.pop(session, None)
        self._really(lambda: self._monitor.execute(_LIVES, (session.pid,)).fetchone() is None, session.text)
        self._wake(session)
        if listener := self._listening.pop(session, None):
            _tell(listener)
        self._settle()

    # statements

    def exchange(self, session: Session, generator: Any) -> Any:
        """Ask the server something, and wait for its answer."""
        trouble, chance, text = self.trouble, self.loop.chance, session.text
        fault = self._drawn() if running() is not None else None
        is_commit = text.endswith("COMMIT")
        travels = is_commit or chance.random() < trouble.pause
        if fault == "silent":
            self._keep_silent(session, generator)
        if travels or fault == "stall":
            self._travel(stalls=fault == "stall" and chance.random() < 0.5)
        if fault == "vanish":
            self.say("session vanishes before:", _short(text))
            self.vanish(session)
        answer = self._drive(session, generator)
        is_over = session.raw.pgconn.transaction_status == TransactionStatus.IDLE
        if is_over and (is_commit or "notify" in text):
            self._announce()
        if fault == "lost" and not session.is_gone:
            self.say("answer lost of:", _short(text))
            self.end(session)
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        if travels or fault == "stall":
            self._travel(stalls=fault == "stall")
        return answer

    def _drawn(self) -> str | None:
        """The fault that strikes this statement."""
        drawn = self.loop.chance.random()
        for name in ("vanish", "lost", "stall", "silent"):
            drawn -= getattr(self.trouble, name)
            if drawn < 0:
                return name
        return None

    def _travel(self, *, stalls: bool = False) -> None:
        thread = running()
        if thread is not None:
            longest = self.trouble.stalled if stalls else self.trouble.latency
            thread.sleep(self.loop.chance.random() * longest)

    def _keep_silent(self, session: Session, generator: Any) -> None:
        """The line is dead from now on: the server ends the session after a while, the client after its patience."""
        self.say("silence at:", _short(session.text))
        if self.loop.chance.random() < 0.5:
            self._drive(session, generator)
        self._given_up.append(generator)
        self.after(5.0 + self.loop.chance.random() * 10, lambda: self.vanish(session))
        thread = running()
        assert thread is not None
        thread.sleep(session.raw.patience)
        if not session.is_gone:
            self.end(session)
        psycopg.Connection.close(session.raw)
        raise _connection.ServerSilent("the server says nothing")

    def _drive(self, session: Session, generator: Any) -> Any:
        """Let the server do it, really."""
        session.turns += 1
        session.timed_out = False
        self.statements += 1
        self._tell_time()
        exchange = session.exchange = Exchange(generator)
        self._until_still([session], 0.005 if self._is_held(session) else 0.2)
        while not exchange.is_done:
            self._wait_for_lock(session)
            self._until_still([session], 0.005)
        self._settle()  # also where it has failed: locks may be free
        self._watch(session)
        return exchange.answer()

    def _tell_time(self) -> None:
        os.pwrite(self._clock, f"{self.loop.wall_clock + self.skew:<30.6f}".encode(), 0)

    def _until_still(self, sessions: Iterable[Session], seconds: float) -> None:
        """Let the server go on, until each of these sessions has an answer, or waits for a lock.

        Args:
            seconds: Real ones without an answer, after which to look for locks.
        """
        until = vars(time)["real_monotonic"]() + _LONG
        while asking := [one for one in sessions if one.exchange is not None and not one.exchange.is_done]:
            if self._read(asking, seconds):
                continue
            if len(self._blocked(asking)) == len(asking):
                return
            if vars(time)["real_monotonic"]() > until:
                raise RuntimeError(f"the server takes too long: {[one.text for one in asking]}")
            seconds = 0.005

    @staticmethod
    def _read(sessions: Iterable[Session], seconds: float) -> bool:
        """Read what comes within some real seconds; tells whether something did."""
        poller, asked = select.poll(), dict[int, Exchange]()
        for session in sessions:
            assert session.exchange is not None
            socket, awaits = session.raw.pgconn.socket, session.exchange.awaits
            asked[socket] = session.exchange
            poller.register(socket, select.POLLIN * bool(awaits & Wait.R) | select.POLLOUT * bool(awaits & Wait.W))
        found = poller.poll(seconds * 1000)
        for socket, got in found:
            is_readable = got & (select.POLLIN | select.POLLHUP | select.POLLERR)
            asked[socket].go_on(Ready((Ready.R if is_readable else 0) | (Ready.W if got & select.POLLOUT else 0)))
        return bool(found)

    def _is_held(self, session: Session) -> bool:
        """Whether another session has a transaction open, and locks maybe."""
        return any(
            one is not session and not one.raw.closed and one.raw.pgconn.transaction_status in _OPEN
            for one in self.sessions
        )

    def _wait_for_lock(self, session: Session) -> None:
        """Hand over to the others, until the lock is free, or the time is up."""
        thread = running()
        assert thread is not None, f"the loop itself waits for a lock: {session.text}"
        session.thread, turn = thread, session.turns
        limits = [session.timeouts.get(name, 0.0) for name in ("lock_timeout", "statement_timeout")]
        if limit := min((one for one in limits if one), default=0.0):
            self.after(limit, lambda: self._cancel(session, turn))
        while session.thread is not None:
            thread.rest()

    def _cancel(self, session: Session, turn: int) -> None:
        """A statement has waited for too long."""
        if session.thread is not None and session.turns == turn:
            self.say("a lock was waited for too long:", _short(session.text))
            if self._monitor.execute(_AWAITS_ITSELF, {"pid": session.pid}).fetchone():
                self.loop.problems.append(f"a deadlock at {session.text}")
            session.timed_out = True
            self._monitor.execute("SELECT pg_cancel_backend(%s)", (session.pid,))
            self._really(lambda: not self._blocked([session]), session.text)
            self._settle()

    def _blocked(self, sessions: Sequence[Session]) -> set[int]:
        found = self._monitor.execute(_BLOCKED, ([one.pid for one in sessions],)).fetchall()
        return {pid for (pid,) in found}

    def _settle(self) -> None:
        """Locks may be free: let the server finish what waited for them, and wake who asked for it."""
        waiting = [one for one in self.sessions if one.thread is not None]
        if not waiting:
            return
        self._tell_time()
        self._until_still(waiting, 0.0)
        for session in waiting:
            if session.exchange is not None and session.exchange.is_done:
                self._wake(session)

    def _wake(self, session: Session) -> None:
        thread, session.thread = session.thread, None
        if thread is not None:
            thread.wake()

    def _watch(self, session: Session) -> None:
        """End a session that stands still within a transaction, as the server does."""
        limit = session.timeouts.get("idle_in_transaction_session_timeout", 0.0)
        if limit and session.raw.pgconn.transaction_status in _OPEN:
            turn = session.turns

            def check() -> None:
                if session.turns == turn and not session.is_gone:
                    self.say("a session stood still within a transaction:", _short(session.text))
                    self.vanish(session)

            self.after(limit, check)

    # notices

    def flush(self, listener: Any, session: Session) -> None:
        """Let whatever was committed before arrive where this session listens: an exchange of nothing does so."""
        self._listening[session] = listener
        listener.has_notice = False
        if not session.is_gone:
            session.raw.pgconn.send_query(b"")
            self._drive(session, generators.execute(session.raw.pgconn))

    def wait_for_notice(self, listener: Any, seconds: float, *, hears: bool) -> bool:
        """In place of ``JournalListener._wait``."""
        thread = running()
        assert thread is not None

        def is_told() -> bool:
            return hears and listener.has_notice

        def is_due() -> bool:
            attendants = listener._attendants
            is_new = any(one not in listener._held for one in attendants)
            return not attendants or listener._leaving or is_new or any(one.forgotten for one in listener._shown)

        thread.wait(seconds, lambda: is_told() or is_due())
        return is_told()

    def _announce(self) -> None:
        """A commit was made: listeners hear of it in a moment."""
        for listener in self._listening.values():
            self.after(self.loop.chance.random() * self.trouble.notice, partial(_tell, listener))

    # the whole server

    def restart(self, seconds: float) -> None:
        """End all sessions, and refuse new ones for a while."""
        self.say(f"the server is away for {seconds:g} s")
        self.away_until = max(self.away_until, self.loop.time() + seconds)
        for session in list(self.sessions):
            self.vanish(session)

    def fall_behind(self, seconds: float) -> Callable[[], None]:
        """Keep what a standby has that hears of nothing more; tells what promotes it."""
        self.restart(0.0)
        number, self._copies = self._copies, self._copies + 1
        self._drop(self._copy(number))
        self._make(self._copy(number), self._name)

        def promote(*, tells: bool = True) -> None:
            self.say("a standby is promoted" if tells else "a disk is put back", f"that is {seconds:g} s behind")
            self.restart(seconds=self.loop.chance.random() * 20)
            self._drop(self._name)
            names = map(sql.Identifier, (self._copy(number), self._name))
            self._monitor.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(*names))
            if not tells:
                self._keep_epoch()

        return promote

    def dump(self) -> Callable[[Collection[str]], None]:
        """Keep the rows of all tables of the journal; tells what puts those of some tables back into the same ones."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'payments'").fetchall()
            connection.execute("DROP SCHEMA IF EXISTS dumped CASCADE; CREATE SCHEMA dumped")
            for (table,) in found:
                name = sql.Identifier(table)
                connection.execute(sql.SQL("CREATE TABLE dumped.{} AS TABLE payments.{}").format(name, name))

        def restore(tables: Collection[str]) -> None:
            chosen = [table for (table,) in found if not tables or table in tables]
            self.say("put back from a dump:", ", ".join(sorted(chosen)))
            self.restart(0.0)
            with psycopg.connect(self.dsn) as connection:
                for table in chosen:
                    name = sql.Identifier(table)
                    connection.execute(sql.SQL("TRUNCATE payments.{}").format(name))
                    connection.execute(
                        sql.SQL("INSERT INTO payments.{} OVERRIDING SYSTEM VALUE TABLE dumped.{}").format(name, name)
                    )

        return restore

    def _keep_epoch(self) -> None:
        """Let the database have its number still: its files were put back, and nothing else."""
        with psycopg.connect(self.dsn, autocommit=True) as connection, suppress(psycopg.errors.UndefinedTable):
            connection.execute(
                """UPDATE payments.meta SET value = regexp_replace(value, '[0-9]+$', (SELECT oid::text FROM pg_database
                WHERE datname = current_database())) WHERE key = 'epoch'"""
            )

    def _make(self, name: str, template: str) -> None:
        names = map(sql.Identifier, (name, template))
        self._monitor.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))

    def _drop(self, name: str) -> None:
        self._monitor.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _copy(self, number: int) -> str:
        return f"{self._name}_{number}"

    # time

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call something later that belongs to no process."""
        self.loop.call_later(seconds, call, context=contextvars.Context())

    def _really(self, is_done: Callable[[], bool], what: str) -> None:
        """Wait for the server, by the computer's own clock."""
        until = vars(time)["real_monotonic"]() + _LONG
        while not is_done():
            if vars(time)["real_monotonic"]() > until:
                raise RuntimeError(f"the server takes too long: {what}")


class _Death:
    """What a process that is killed leaves to its machine."""

    def __init__(self, server: Server, owner: Process) -> None:
        self.server, self._owner = server, owner

    def __call__(self) -> None:
        with suppress(psycopg.Error):
            self.server.bury(self._owner)


def _tell(listener: Any) -> None:
    """There is something to be read for it."""
    listener.has_notice = True
    listener._thread.wake()


def _short(text: str) -> str:
    return re.sub(r"\d+", "#", " ".join(text.split()))[-60:]  # the server's numbers are others in each run
