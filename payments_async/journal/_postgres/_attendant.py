"""The attendant of an open journal: shows the others that it lives, sees which of them died, and hears of commits."""

from __future__ import annotations

import logging
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from weakref import WeakSet

import psycopg
from psycopg.pq import PGnotify

from payments_async.journal._faults import JournalError
from payments_async.journal._postgres._connection import HAS_ROOM, PgConnection
from payments_async.journal._postgres._schema import TRAY, quoted

_log = logging.getLogger("payments_async.journal")
_LOOK = 1.0  # seconds between two looks for the dead
_AGAIN = 0.25  # ... until a server that cannot be reached is tried again
_BREATH = 0.02  # ... for which commits that follow each other are told as one
_PATIENCE = 5.0  # ... that closing waits for a server that does not answer
# Whoever has a row here, and no lock of the number in it, is gone, or on the way back from a server that was started
# anew. The number is drawn by each session, and half of it is the session's own: nobody can be kept from it, and nobody
# else's counts for it.
_NAME = "lpad(to_hex(CAST(l.classid AS BIGINT)), 8, '0') || lpad(to_hex(CAST(l.objid AS BIGINT)), 8, '0')"
_LOCK = """SELECT pg_advisory_lock_shared((CAST(pg_backend_pid() AS BIGINT) << 32) | {drawn}),
    pg_backend_pid(), lpad(to_hex(CAST(pg_backend_pid() AS BIGINT)), 8, '0') || lpad(to_hex({drawn}), 8, '0')"""
_MISSING = f"""SELECT h.name FROM {{holder}} h WHERE h.name <> ? AND NOT EXISTS (SELECT 1 FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND CAST(l.classid AS BIGINT) = l.pid AND {_NAME} = h.lock)"""  # noqa: S608 - no value in it
# Each second: whether the session is the one that holds the lock, whether notices have room, and who is missing.
_LOOKED = f"""SELECT EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    AND l.pid = pg_backend_pid() AND l.pid = ? AND {_NAME} = ?), {HAS_ROOM}, ARRAY({_MISSING})"""  # noqa: S608


class Attendant:
    """A thread with a connection of its own, which it makes anew whenever that is lost.

    A lock that the session holds says that the holder lives: the server lets go of it when the process dies, and not
    when it only stands still. A commit of anybody is heard of through NOTIFY.

    Args:
        connect: Makes a connection.
        schema: The namespace, which is the name of the channel too.
        holder: The name of this opening.
        heard: Called, in this thread, when somebody has committed something, or may have: with the count of all commits
            that moved an order, or 0 where only we have, or ``None`` where it is in the tray alone; and with whether it
            may be there.
        writer: Gives the number that the server has for our own session that writes. What we commit ourselves is
            counted already, and the server is not asked for it.
        lent: Called when the session was found to be another one: a pooler lends them, since a moment ago.
        grace: Seconds that somebody has to be missing before they count as dead: as long as it takes to come back to
            a server that was started anew.

    Attributes:
        is_deaf: Nobody notifies, since the server's queue of notices has no room; commits are looked for each second.
    """

    def __init__(
        self,
        connect: Callable[[], PgConnection],
        *,
        schema: str,
        holder: str,
        heard: Callable[[int | None, bool], None],
        writer: Callable[[], int],
        lent: Callable[[], None],
        grace: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._schema = schema
        self._holder = holder
        self._heard = heard
        self._writer = writer
        self._lent = lent
        self._grace = grace
        self._clock = clock
        self.is_deaf = False
        self._missing: dict[str, float] = {}
        self._has_looked = False
        self._forgotten: set[str] = set()
        self._is_told = False
        self._is_told_of_others = False
        self._is_laid = False
        self._is_ending = False
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="journal-attendant", daemon=True)
        _ALL.add(self)
        self._connection: PgConnection | None = None

    def start(self) -> None:
        """Begin to live."""
        self._thread.start()

    def end(self) -> None:
        """Hold nothing any more; waits for the thread, though not for a server that does not answer."""
        self._is_ending = True
        self._wake()
        self._thread.join(_PATIENCE)
        _ALL.discard(self)

    @property
    def dead(self) -> list[str]:
        """The holders that died without an end, as far as is known."""
        now = self._clock()
        return [name for name, since in list(self._missing.items()) if now - since >= self._grace]

    @property
    def is_unsure(self) -> bool:
        """Whether somebody may be dead, which will be known in a moment."""
        now = self._clock()
        return not self._has_looked or any(now - since < self._grace for since in list(self._missing.values()))

    def forget(self, names: Iterable[str]) -> None:
        """What these had leased is free: nobody is to be told of them again."""
        for name in names:
            self._missing.pop(name, None)
            self._forgotten.add(name)
        self._wake()

    def leave(self) -> None:
        """In a forked child: the session is the parent's, and must not live on with us."""
        connection = self._connection
        if connection is not None:
            with suppress(OSError, psycopg.Error):
                os.close(connection.raw.pgconn.socket)

    def _wake(self) -> None:
        with suppress(OSError):
            self._ours.send(b"\0")

    def _run(self) -> None:
        """The life of the thread."""
        with self._ours, self._theirs:
            self._live()

    def _live(self) -> None:
        while not self._is_ending:
            begun = self._clock()
            try:
                self._connection = self._connect()
                try:
                    self._attend(self._connection)
                finally:
                    self._connection.close()
            except Exception as error:  # noqa: BLE001 - lost, or not there yet; without a lock we count as dead
                if not isinstance(error, psycopg.Error | JournalError | OSError):
                    _log.exception("the listener of %s failed, and connects again", self._schema)
                self._missing = {}  # whoever is missing is so from our next look on
                if self._clock() - begun < _LOOK:  # one that has lasted is made anew at once
                    self._wait([], _AGAIN)

    def _attend(self, connection: PgConnection) -> None:
        table, channel = f"{quoted(self._schema)}.holder", quoted(self._schema)
        begun = connection.script(f"LISTEN {channel}; {_LOCK.format(drawn=secrets.randbits(32))}")
        assert begun is not None
        _, connection.session, lock = begun
        connection.execute(
            f"""INSERT INTO {table} (name, begun_at, lock) VALUES (?, ?, ?)
            ON CONFLICT (name) DO UPDATE SET lock = excluded.lock""",  # noqa: S608
            (self._holder, time.time(), lock),
        )
        connection.raw.add_notify_handler(self._note)
        self._is_told = self._is_told_of_others = self._is_laid = True  # what was committed meanwhile
        looked = 0.0
        while not self._is_ending:
            if self._clock() - looked >= _LOOK or self._forgotten:
                if not self._look(connection, table, lock):
                    self._lent()
                    return
                looked = self._clock()
            if self._is_told or self._is_laid or self._wait([connection.raw.pgconn.socket], _LOOK):
                self._hear(connection)
        connection.execute(f"DELETE FROM {table} WHERE name = ?", (self._holder,))  # noqa: S608

    def _look(self, connection: PgConnection, table: str, lock: str) -> bool:
        """See who is missing, and forget those whose leases have ended; tells whether the session is still ours."""
        now = self._clock()
        values = (connection.session, lock, self._holder)
        is_own, has_room, missing = connection.execute(_LOOKED.format(holder=table), values).fetchone() or (False,) * 3
        if not is_own:
            return False
        while self._forgotten:
            still = f"DELETE FROM {table} WHERE name = ? AND name IN ({_MISSING.format(holder=table)})"  # noqa: S608
            forgotten = self._forgotten.pop()
            missing = [name for name in missing if name != forgotten]
            connection.execute(still, (forgotten, self._holder))  # who is back meanwhile is not forgotten
        self._missing = {name: self._missing.get(name, now) for name in missing}
        self._has_looked = True
        self.is_deaf = not has_room
        if self.is_deaf:  # something may have been committed
            self._is_told = self._is_told_of_others = self._is_laid = True
        return True

    def _hear(self, connection: PgConnection) -> None:
        """Tell of commits, those of a moment together."""
        pgconn = connection.raw.pgconn
        pgconn.consume_input()
        while (told := pgconn.notifies()) is not None:
            self._note(told)
        is_told, is_laid = self._is_told, self._is_laid
        if is_told or is_laid:
            commits = 0 if is_told else None
            is_of_others = self._is_told_of_others
            self._is_told = self._is_told_of_others = self._is_laid = False
            if is_of_others:
                found = connection.execute("SELECT value FROM meta WHERE key = 'commits'").fetchone()
                commits = 0 if found is None else int(found[0])  # not by the notice: that may be anybody's
            self._heard(commits, is_laid)
            self._wait([], _BREATH)

    def _note(self, told: psycopg.Notify | PGnotify) -> None:
        if (told.payload if isinstance(told, psycopg.Notify) else told.extra.decode()) == TRAY:
            self._is_laid = True
        else:
            self._is_told = True
            pid = told.pid if isinstance(told, psycopg.Notify) else told.be_pid
            self._is_told_of_others |= pid != self._writer()

    def _wait(self, sockets: list[int], seconds: float) -> bool:
        """Wait for one of these, for so long at most, unless somebody wakes us; tells whether there is something."""
        with selectors.DefaultSelector() as selector:
            for one in (self._theirs.fileno(), *sockets):
                selector.register(one, selectors.EVENT_READ)
            readable = {key.fd for key, _ in selector.select(seconds)}
        if self._theirs.fileno() in readable:
            with suppress(OSError):
                self._theirs.recv(64)
        return any(one in readable for one in sockets)


def _leave_all() -> None:
    for attendant in list(_ALL):
        attendant.leave()
    _ALL.clear()


_ALL: WeakSet[Attendant] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
