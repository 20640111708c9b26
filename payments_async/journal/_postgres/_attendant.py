"""The attendant of an open journal: shows the others that it lives, sees which of them died, and hears of commits.

The attendants of a process share one session of the server and one thread, the listener.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, ClassVar

import psycopg
from psycopg.pq import PGnotify

from payments_async.journal._faults import JournalError, JournalUnavailable
from payments_async.journal._postgres._connection import HAS_ROOM, PgConnection
from payments_async.journal._postgres._gathered import rows_of, statement
from payments_async.journal._postgres._schema import TRAY, quoted

_log = logging.getLogger("payments_async.journal")
_LOOK = 1.0  # seconds between two looks for the dead
_AGAIN = 0.25  # ... until a server that cannot be reached is tried again
_BREATH = 0.02  # ... for which commits that follow each other are told as one
_SELDOM = 0.2  # ... between two of which all are to hear that only move orders
_PATIENCE = 5.0  # ... that closing waits for a server that does not answer
_LOCKED = "SET lock_timeout = 250"  # milliseconds: tables of one journal that are locked hold up none of the others
# Whoever has a row here, and no lock of the number in it, is gone, or on the way back from a server that was started
# anew. The number is drawn by each session, and half of it is the session's own: nobody can be kept from it, and nobody
# else's counts for it.
_NAME = "lpad(to_hex(CAST(l.classid AS BIGINT)), 8, '0') || lpad(to_hex(CAST(l.objid AS BIGINT)), 8, '0')"
_NUMBER = "(CAST(pg_backend_pid() AS BIGINT) << 32) | {drawn}"
_LOCK = f"""SELECT pg_advisory_lock_shared({_NUMBER}),
    pg_backend_pid(), lpad(to_hex(CAST(pg_backend_pid() AS BIGINT)), 8, '0') || lpad(to_hex({{drawn}}), 8, '0')"""
_MISSING = f"""SELECT h.name FROM {{holder}} h WHERE h.name <> ? AND NOT EXISTS (SELECT 1 FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND CAST(l.classid AS BIGINT) = l.pid AND {_NAME} = h.lock)"""  # noqa: S608 - no value in it
# Each second: whether the session is the one that holds the lock, whether notices have room, who is missing, and
# whether an order waits in the tray: its notice may have been part of a transaction that was undone.
_LOOKED = f"""SELECT EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    AND l.pid = pg_backend_pid() AND l.pid = ? AND {_NAME} = ?), {HAS_ROOM}, ARRAY({_MISSING}),
    EXISTS (SELECT 1 FROM {{tray}} WHERE problem IS NULL)"""  # noqa: S608


class Attendant:
    """Of one journal, what its listener does for it.

    A lock that the listener's session holds says that the holder lives: the server lets go of it when the process dies,
    and not when it only stands still. A commit of anybody is heard of through NOTIFY.

    Args:
        connect: Makes a connection.
        key: Attendants of one process with the same key share a listener: their connections are alike.
        schema: The namespace, which is the name of the channel too.
        holder: The name of this opening.
        heard: Called, in the listener's thread, when another journal has committed something, or may have: with the
            count of all commits that moved an order, or ``None`` where it is in the tray alone; with whether it may be
            there; and with the states that orders came to, where nothing else is to be heard of now, else ``None``.
        mark: Gives what our own commits are notified with, of which this journal knows.
        lent: Called when the session was found to be another one: a pooler lends them, since a moment ago.
        grace: Seconds that somebody has to be missing before they count as dead: as long as it takes to come back to
            a server that was started anew.

    Attributes:
        is_deaf: Nobody notifies, since the server's queue of notices has no room; commits are looked for each second.
        forgotten: Of the dead, those whose leases have ended: their rows may go.
    """

    def __init__(
        self,
        connect: Callable[[], PgConnection],
        *,
        key: Hashable,
        schema: str,
        holder: str,
        heard: Callable[[int | None, bool, Collection[str] | None], None],
        mark: Callable[[], str],
        lent: Callable[[], None],
        grace: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.connect = connect
        self.schema = schema
        self._key = key
        self._holder = holder
        self._table = f"{quoted(schema)}.holder"
        self._heard = heard
        self._mark = mark
        self.lent = lent
        self._grace = grace
        self._clock = clock
        self.is_deaf = False
        self.forgotten: set[str] = set()
        self._missing: dict[str, float] = {}
        self._looked = -math.inf  # when it was seen who is missing
        self._is_told = False
        self._is_laid = False
        self._entered: set[str] = set()  # states that orders came to by commits of others, which are not told of yet
        self._owes = False  # those who hear of other states have not been told of some of these
        self._told_all = -math.inf  # when everyone was told
        self._has_ended = False
        self._telling = Lock()
        self._drawn = 0
        self._lock = ""
        self._listener: JournalListener | None = None

    def start(self) -> None:
        """Begin to live."""
        self._listener = JournalListener.joined(self, self._key)

    def end(self) -> None:
        """Hear of nothing any more, and let go of what was held, though not at once while others share the session."""
        with self._telling:
            self._has_ended = True
        if self._listener is not None:
            self._listener.leave(self)

    def join(self) -> None:
        """In any other thread than the event loop's: wait for that, though not for a server that does not answer."""
        if self._listener is not None:
            self._listener.join()

    @property
    def dead(self) -> list[str]:
        """The holders that died without an end: a look has found them missing still, after so long."""
        looked = self._looked  # before what is told of by the next look
        return [name for name, since in list(self._missing.items()) if looked - since >= self._grace]

    @property
    def is_unsure(self) -> bool:
        """Whether somebody may be dead, which will be known in a moment."""
        looked = self._looked
        return looked == -math.inf or any(looked - since < self._grace for since in list(self._missing.values()))

    def forget(self, names: Iterable[str]) -> None:
        """What these had leased is free: nobody is to be told of them again."""
        for name in names:
            self._missing.pop(name, None)
            self.forgotten.add(name)
        if self._listener is not None:
            self._listener.wake()

    # by the listener, in its thread

    @property
    def has_news(self) -> bool:
        """Whether there is something to be told."""
        return self._is_told or self._is_laid or bool(self._entered) or self.owes_at <= self._clock()

    @property
    def owes_at(self) -> float:
        """When everyone is to hear of what some have heard of."""
        return self._told_all + _SELDOM if self._owes else math.inf

    @property
    def due_at(self) -> float:
        """When it is to look at the latest: a look finds out whether those who were missing still are after a while."""
        ends = [end for since in list(self._missing.values()) if (end := since + self._grace) > self._looked]
        return min(ends, default=math.inf) if self._looked > -math.inf and not self.forgotten else -math.inf

    def locking(self) -> tuple[str, Sequence[object]]:
        """The question that takes a lock, for a session that holds none of ours."""
        self._drawn = secrets.randbits(32)
        return _LOCK.format(drawn="CAST(? AS BIGINT)"), (self._drawn, self._drawn)

    def hold(self, lock: str) -> None:
        """The session holds it."""
        self._lock = lock

    def appearing(self) -> tuple[str, Sequence[object]]:
        """The question that leaves a row which tells of the lock."""
        sql = f"""INSERT INTO {self._table} (name, begun_at, lock) VALUES (?, ?, ?)
            ON CONFLICT (name) DO UPDATE SET lock = excluded.lock RETURNING 1"""  # noqa: S608
        return sql, (self._holder, time.time(), self._lock)

    def hear_all(self) -> None:
        """What was committed meanwhile is to be looked for."""
        self._is_told = self._is_laid = True

    def disappear(self, connection: PgConnection, *, listens: bool) -> None:
        """Have no row any more, and no lock.

        Args:
            listens: Another journal of the same namespace goes on with it.
        """
        try:
            connection.execute(f"DELETE FROM {self._table} WHERE name = ?", (self._holder,))  # noqa: S608
        finally:
            if not connection.is_lost:
                unlisten = "" if listens else f"UNLISTEN {quoted(self.schema)}; "
                number = _NUMBER.format(drawn=self._drawn)
                connection.script(f"{unlisten}SELECT pg_advisory_unlock_shared({number})")

    def looking(self, session: int) -> tuple[str, Sequence[object]]:
        """The question that a look asks."""
        tray = f"{quoted(self.schema)}.tray"
        return _LOOKED.format(holder=self._table, tray=tray), (session, self._lock, self._holder)

    def look(self, connection: PgConnection, found: tuple[Any, ...]) -> bool:
        """See who is missing, and forget those whose leases have ended; tells whether the session is still ours."""
        now = self._clock()
        is_own, has_room, missing, is_laid = found
        if not is_own:
            return False
        self._is_laid |= is_laid
        while self.forgotten:
            still = f"DELETE FROM {self._table} WHERE name = ? AND name IN ({_MISSING.format(holder=self._table)})"  # noqa: S608
            forgotten = self.forgotten.pop()
            missing = [name for name in missing if name != forgotten]
            connection.execute(still, (forgotten, self._holder))  # who is back meanwhile is not forgotten
        self._missing = {name: self._missing.get(name, now) for name in missing}
        self._looked = now
        self.is_deaf = not has_room
        if self.is_deaf:  # something may have been committed
            self.hear_all()
        return True

    def note(self, told: psycopg.Notify | PGnotify) -> None:
        """A notice of our channel has come."""
        words = told.payload if isinstance(told, psycopg.Notify) else told.extra.decode()
        mark, *entered = words.split(" ")
        if words == TRAY:
            self._is_laid = True
        elif mark != self._mark():
            self._entered.update(entered)
            self._is_told |= not entered

    def counting(self) -> tuple[str, Sequence[object]]:
        """The question how many commits there are: a notice does not say, for that may be anybody's."""
        table = f"{quoted(self.schema)}.meta"
        return f"SELECT coalesce(max(CAST(value AS BIGINT)), 0) FROM {table} WHERE key = 'commits'", ()  # noqa: S608

    def taken(self) -> tuple[bool, bool, Collection[str] | None]:
        """What is to be told from now on: of commits; of what is laid in the tray; to which states orders came.

        That is ``None`` where everyone is to be told. Who waits for other states hears seldom of commits that follow
        each other and only move orders: to look at what they have left takes more than they do.
        """
        now, is_told, is_laid, entered = self._clock(), self._is_told, self._is_laid, self._entered
        self._is_told, self._is_laid, self._entered = False, False, set()
        self._owes |= bool(entered)
        if not is_told and (not self._owes or now < self._told_all + _SELDOM):
            return bool(entered), is_laid, entered
        self._owes, self._told_all = False, now
        return True, is_laid, None

    def tell(self, commits: int | None, is_laid: bool, entered: Collection[str] | None) -> None:
        """Tell it, unless the journal was closed."""
        with self._telling:
            if not self._has_ended:
                self._heard(commits, is_laid, entered)

    def lose(self) -> None:
        """The session is gone: a holder counts as missing from our next look on."""
        self._missing = {}


class JournalListener:
    """A thread with a connection of its own, which it makes anew whenever that is lost.

    Args:
        key: Of those who share it.
    """

    _all: ClassVar[dict[Hashable, JournalListener]] = {}
    _joining: ClassVar[Any] = Lock()

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self._attendants: dict[Attendant, None] = {}
        self._leaving: list[Attendant] = []
        self._held: dict[Attendant, None] = {}  # those that the session holds a lock of
        self._shown: dict[Attendant, None] = {}  # ... and has its row
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="journal-attendant", daemon=True)
        self._connection: PgConnection | None = None

    @classmethod
    def joined(cls, attendant: Attendant, key: Hashable) -> JournalListener:
        """The listener of this key, with one more attendant."""
        key = (sharing(), key)
        with cls._joining:
            listener = cls._all.get(key)
            if listener is None:
                listener = cls(key)
                listener._attendants[attendant] = None
                listener._thread.start()
                cls._all[key] = listener
            listener._attendants[attendant] = None
        listener.wake()
        return listener

    def leave(self, attendant: Attendant) -> None:
        """One attendant less; with the last one the thread ends."""
        with self._joining:
            self._leaving.append(attendant)
            self._attendants.pop(attendant, None)
            if not self._attendants and self._all.get(self._key) is self:
                del self._all[self._key]
        self.wake()

    def join(self) -> None:
        """Wait for the end of the thread, once the last attendant has left."""
        if not self._attendants:
            self._thread.join(_PATIENCE)

    @classmethod
    def leave_all(cls) -> None:
        """In a forked child: the sessions are the parent's, and must not live on with us."""
        for listener in list(cls._all.values()):
            connection = listener._connection
            if connection is not None:
                with suppress(OSError, psycopg.Error):
                    os.close(connection.raw.pgconn.socket)
        cls._all, cls._joining = {}, Lock()

    def wake(self) -> None:
        """Have the thread look at once."""
        with suppress(OSError):
            self._ours.send(b"\0")

    def _run(self) -> None:
        """The life of the thread."""
        with self._ours, self._theirs, selectors.DefaultSelector() as self._selector:
            self._selector.register(self._theirs, selectors.EVENT_READ)
            self._live()

    def _live(self) -> None:
        clock = time.monotonic
        while attendants := list(self._attendants):
            begun = clock()
            try:
                self._connection = connection = attendants[0].connect()
                try:
                    self._attend(connection)
                finally:
                    connection.close()
            except Exception as error:  # noqa: BLE001 - lost, or not there yet; without a lock we count as dead
                if not isinstance(error, psycopg.Error | JournalError | OSError):
                    _log.exception("the listener of %s failed, and connects again", attendants[0].schema)
                for attendant in list(self._attendants):
                    attendant.lose()
                if clock() - begun < _LOOK:  # one that has lasted is made anew at once
                    self._wait(_AGAIN)

    def _attend(self, connection: PgConnection) -> None:
        with selectors.DefaultSelector() as selector:
            for one in (self._theirs.fileno(), connection.raw.pgconn.socket):
                selector.register(one, selectors.EVENT_READ)
            self._attend_by(connection, selector)

    def _attend_by(self, connection: PgConnection, selector: selectors.BaseSelector) -> None:
        self._held, self._shown = {}, {}
        connection.script(_LOCKED)
        connection.raw.add_notify_handler(self._note)
        looked = 0.0
        while attendants := self._those_who_stay(connection):
            now = time.monotonic()
            is_time = now >= looked + _LOOK  # as it waits: a difference of the two may be rounded below
            self._begin(connection, [one for one in attendants if one not in self._held], is_time=is_time)
            if not self._look(connection, [one for one in self._shown if is_time or one.due_at <= now]):
                for one in attendants:
                    one.lent()
                return
            looked = now if is_time else looked
            until = min([looked + _LOOK, *(min(one.due_at, one.owes_at) for one in self._shown)])
            while not self._hear(connection) and self._wait(max(0.0, until - time.monotonic()), selector):
                connection.raw.pgconn.consume_input()

    def _those_who_stay(self, connection: PgConnection) -> Sequence[Attendant]:
        """Let go of those who leave; tells who is left."""
        with self._joining:  # else one that is on the way out would be taken in again
            leaving, self._leaving = self._leaving, []
            staying = list(self._attendants)
        for one in leaving:
            self._shown.pop(one, None)
            if one in self._held:
                del self._held[one]
                try:
                    one.disappear(connection, listens=any(other.schema == one.schema for other in staying))
                except psycopg.Error:
                    self._set_apart(connection, one)
        return staying

    def _begin(self, connection: PgConnection, new: Sequence[Attendant], *, is_time: bool) -> None:
        """Listen, hold locks and have rows, for those without: few exchanges, so that none is missing for long."""
        if new:
            connection.script("; ".join(f"LISTEN {quoted(one.schema)}" for one in new))
        for one, row in self._answers(connection, {one: one.locking() for one in new}):
            _, connection.session, lock = row
            one.hold(lock)
            self._held[one] = None
        hidden = [one for one in self._held if one not in self._shown and (is_time or one in new)]
        for one, _ in self._answers(connection, {one: one.appearing() for one in hidden}):
            one.hear_all()
            self._shown[one] = None

    def _look(self, connection: PgConnection, attendants: Sequence[Attendant]) -> bool:
        """See who is missing, for several journals in one exchange; tells whether the session is still ours."""
        is_own = True
        questions = {one: one.looking(connection.session) for one in attendants}
        for one, row in self._answers(connection, questions):
            try:
                is_own &= one.look(connection, row)
            except psycopg.Error:
                self._set_apart(connection, one)
        return is_own

    def _hear(self, connection: PgConnection) -> bool:
        """Tell of commits of others, those of a moment together, if there are any."""
        self._drain(connection)
        if not any(one.has_news for one in self._shown):
            return False
        news = {one: one.taken() for one in self._shown if one.has_news}
        asked = {one: one.counting() for one, (is_told, *_) in news.items() if is_told}
        counts = {one: int(value) for one, (value,) in self._answers(connection, asked)}
        for one, (is_told, is_laid, entered) in news.items():
            if one in counts or not is_told:
                one.tell(counts.get(one), is_laid, entered)
        self._wait(_BREATH)
        return True

    def _answers(
        self, connection: PgConnection, questions: Mapping[Attendant, tuple[str, Sequence[object]]]
    ) -> Iterator[tuple[Attendant, tuple[Any, ...]]]:
        """The row that each journal has for its question, all asked in one exchange; none of one that is in trouble."""
        answers = connection.each([statement(*question) for question in questions.values()]) if questions else []
        for one, answer in zip(questions, answers, strict=True):
            if isinstance(answer, psycopg.Error):  # its tables are not there, or locked
                self._set_apart(connection, one)
            else:
                (row,) = rows_of(connection, answer)
                yield one, row

    def _drain(self, connection: PgConnection) -> None:
        while (told := connection.raw.pgconn.notifies()) is not None:
            self._note(told)

    def _note(self, told: psycopg.Notify | PGnotify) -> None:
        channel = told.channel if isinstance(told, psycopg.Notify) else told.relname.decode()
        for one in list(self._attendants):
            if one.schema == channel:
                one.note(told)

    def _set_apart(self, connection: PgConnection, one: Attendant) -> None:
        """The tables of one journal are in trouble, and not the session: it is shown again with the next look."""
        if connection.is_lost:
            raise JournalUnavailable("the session of the listener is lost")
        self._shown.pop(one, None)

    def _wait(self, seconds: float, selector: selectors.BaseSelector | None = None) -> bool:
        """Wait for what a selector waits for; tells whether there is something, and nobody has woken us meanwhile.

        Args:
            seconds: At most.
            selector: With the socket that wakes us, and another one; by default with the first alone.
        """
        readable = [key.fd for key, _ in (selector or self._selector).select(seconds)]
        if self._theirs.fileno() not in readable:
            return bool(readable)
        with suppress(OSError):
            self._theirs.recv(64)
        return False


sharing: Callable[[], Hashable] = os.getpid  # who shares; a simulation has several processes in one
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=JournalListener.leave_all)
