"""Whether the process that took a lease still runs: a locked file that no process outlives. Takes nothing over."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

__all__ = ["Liveness"]

Lock = Callable[[int], None]
_TRIES = 8


def _of_the_system() -> Lock | None:
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # Windows: there a lease waits for its end
        return None
    return lambda file: flock(file, LOCK_EX | LOCK_NB)


class _Dead(NamedTuple):
    holder: str
    lock: int
    file: Path


class Liveness:
    """A file beside the journal, locked as long as the journal is open here; the system unlocks it when we die.

    It says that a holder is dead, and never that a lease is good: that is the journal's own clock's to say. Where files
    cannot be locked there is no holder at all, and leases are taken over when their time is over.

    Args:
        path: Of the journal.
        flock: Locks an open file for whoever opened it, and raises ``OSError`` at once where it cannot; ``None`` where
            the system has no such thing.

    Attributes:
        holder: Name of this opening of the journal; empty where there is no lock.
    """

    def __init__(self, path: Path, *, flock: Lock | None = _of_the_system()) -> None:  # noqa: B008 - always the same
        self._flock = flock
        self._folder = path.parent
        self._prefix = f"{path.name}-alive-"
        self._lock: int | None = None
        self.holder = ""

    def begin(self) -> None:
        """Be alive from now on, under a new name: drawn here, so that processes forked before have one each."""
        if self._flock is None:
            return
        for _ in range(_TRIES):
            holder = secrets.token_hex(8)
            file = self._folder / f"{self._prefix}{holder}"
            try:
                lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except OSError:
                return
            try:
                self._flock(lock)
            except BlockingIOError:  # somebody looked at it between two steps of ours, and took it for a dead one's
                os.close(lock)
                continue
            except OSError:  # a file system without locks
                os.close(lock)
                file.unlink(missing_ok=True)
                return
            if _is_at(lock, file):
                self._lock, self.holder = lock, holder
                _ALIVE.add(self)
                return
            os.close(lock)

    def end(self) -> None:
        """Hold nothing any more."""
        lock, self._lock = self._lock, None
        if lock is not None:
            _ALIVE.discard(self)
            with suppress(OSError):
                (self._folder / f"{self._prefix}{self.holder}").unlink()
            os.close(lock)
        self.holder = ""

    @contextmanager
    def dead(self) -> Iterator[list[str]]:
        """The holders that died without an end. Once the block has ended well, nobody is told of them again."""
        found = self._find()
        try:
            yield [dead.holder for dead in found]
            for dead in found:
                with suppress(OSError):
                    dead.file.unlink()
        finally:
            for dead in found:
                os.close(dead.lock)

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, and must not live on with us."""
        lock, self._lock, self.holder = self._lock, None, ""
        if lock is not None:
            os.close(lock)  # the parent's own descriptor keeps it locked

    def _find(self) -> list[_Dead]:
        found: list[_Dead] = []
        if self._lock is None or self._flock is None:
            return found
        with suppress(OSError), os.scandir(self._folder) as files:
            for entry in files:
                holder = entry.name.removeprefix(self._prefix)
                if holder in (entry.name, self.holder):
                    continue
                file = self._folder / entry.name
                with suppress(OSError):
                    lock = os.open(file, os.O_RDWR)
                    try:
                        self._flock(lock)
                        found.append(_Dead(holder, lock, file))
                    except OSError:
                        os.close(lock)
        return found


def _is_at(lock: int, file: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(lock), file.stat())
    return False


def _forget_all() -> None:
    for liveness in list(_ALIVE):
        liveness.forget()
    _ALIVE.clear()


_ALIVE: WeakSet[Liveness] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
