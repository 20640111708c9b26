"""Connections that only read, which the journals of a process share: one is lent for each read."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import ClassVar
from weakref import WeakValueDictionary

from payments_async.journal._postgres import _attendant
from payments_async.journal._postgres._connection import PgConnection

_KEPT = 4  # that are not lent; more are needed only where more threads read at once, and are closed then


class Readers:
    """There are as many as read at once: each thread that reads has one, and nobody waits for one of them."""

    _all: ClassVar[WeakValueDictionary[Hashable, Readers]] = WeakValueDictionary()

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._idle: list[PgConnection] = []

    @classmethod
    def joined(cls, key: Hashable) -> Readers:
        """Those of a process whose connections are alike, with one more journal."""
        readers = cls._all.setdefault((_attendant.sharing(), key), cls())
        with readers._lock:
            readers._users += 1
        return readers

    def leave(self) -> None:
        """One less; with the last one all are closed."""
        with self._lock:
            self._users -= 1
            idle = [] if self._users else self._emptied()
        for connection in idle:
            connection.close()

    def lent(self, schema: str) -> PgConnection | None:
        """One that lives, of this namespace if there is one; ``None`` where a new one is to be made."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                places = range(len(self._idle))
                connection = self._idle.pop(
                    max(places, key=lambda place: (self._idle[place].namespace == schema, place))
                )
            if not connection.is_lost:
                return connection
            connection.close()

    def take_back(self, connection: PgConnection, *, is_lent: bool) -> bool:
        """Keep one for the next read; tells whether it was taken. One in a transaction, or lost, stays where it is.

        Args:
            is_lent: A pooler may have taken sessions for somebody else: none is kept.
        """
        is_of_use = connection.is_idle
        with self._lock:
            is_kept = is_of_use and not is_lent and self._users > 0 and len(self._idle) < _KEPT
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
