"""Connections which the journals of a process share: one is lent for each commit, and for each read."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import ClassVar
from weakref import WeakSet, WeakValueDictionary

from payments_async.journal._postgres import _attendant
from payments_async.journal._postgres._connection import PgConnection

_KEPT = 10  # that are not lent; more are needed only where more threads work at once, and are closed then


class SessionPool:
    """Sessions that write and read. There are as many as work at once: each thread has one, and none waits for another.

    A few journals have a session each, and the server plans nothing anew for them. Where there are many, the one that
    was idle for longest enters another namespace.
    """

    _all: ClassVar[WeakValueDictionary[Hashable, SessionPool]] = WeakValueDictionary()

    def __init__(self) -> None:
        self._lock = Lock()
        self._users: set[object] = set()
        self._idle: list[PgConnection] = []  # that which was lent last at the end
        self._lent: WeakSet[PgConnection] = WeakSet()

    @classmethod
    def joined(cls, key: Hashable, user: object) -> SessionPool:
        """That of a process whose connections are alike, with one more journal."""
        pool = cls._all.setdefault((_attendant.sharing(), key), cls())
        with pool._lock:
            pool._users.add(user)
        return pool

    def leave(self, user: object) -> None:
        """One less; with the last one all are closed."""
        with self._lock:
            self._users.discard(user)
            idle = [] if self._users else self._emptied()
        for connection in idle:
            connection.close()

    def lent(self, schema: str) -> PgConnection | None:
        """One that lives, of this namespace if there is one; ``None`` where a new one is to be made."""
        while True:
            with self._lock:
                is_full = len(self._idle) + len(self._lent) >= _KEPT
                usual = [one for one in self._idle if one.namespace == schema or (is_full and one.knows(schema))]
                usual.sort(key=lambda one: one.namespace == schema)
                if not usual and not (is_full and self._idle):
                    return None
                connection = (usual or self._idle[:1])[-1]
                self._idle.remove(connection)
                self._lent.add(connection)
            if not connection.is_lost:
                return connection
            connection.close()

    def take_back(self, connection: PgConnection, *, is_lent: bool) -> bool:
        """Keep one for the next use; tells whether it was taken. One in a transaction, or lost, stays where it is.

        Args:
            is_lent: A pooler may have lent sessions on to others: none is kept.
        """
        is_of_use = connection.is_idle
        with self._lock:
            self._lent.discard(connection)
            is_kept = is_of_use and not is_lent and bool(self._users) and len(self._idle) < _KEPT
            if is_kept:
                self._idle.append(connection)
            gone = [] if is_of_use and not is_lent else self._emptied()  # they are as old, and may be lost as well
        if is_of_use and not is_kept:
            gone.append(connection)
        for one in gone:
            one.close()
        return is_of_use

    def _emptied(self) -> list[PgConnection]:
        idle, self._idle = self._idle, []
        return idle
