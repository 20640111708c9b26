"""A simulated process: what belongs to it, and what its death takes away."""

from __future__ import annotations

import contextvars
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from payments_async.testing._simulation.loops import SimulatedLoop
    from payments_async.testing._simulation.networks import End, Listener
    from payments_async.testing._simulation.threads import SimulatedThread

CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("simulated process", default=None)


class Killed(BaseException):
    """Ends a thread of a process that was killed while the thread was in the middle of something."""


class Process:
    """A simulated process.

    Tasks, callbacks, threads and connections that are made while one of its tasks runs belong to it. Once it is
    killed, none of them takes another step: no ``finally`` runs, no file is flushed.

    Attributes:
        is_dead: It was killed.
        is_stopped: It stands still, as by SIGSTOP.
        clocks: What its clocks show beside true time, all of them added.
        mute_until, deaf_until: Seconds at which what it sends arrives again, and what is sent to it.
        address: Of its machine, as others see it.
        doom: Decides at each point where it may die, which is named; ``None`` while it may not.
    """

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_stopped = False
        self.mute_until = self.deaf_until = 0.0
        self.address = "127.0.0.1"
        self.doom: Callable[[str], bool] | None = None
        self.ends: dict[End, None] = {}
        self.listeners: dict[Listener, None] = {}
        self.threads: list[SimulatedThread] = []
        self.databases: list[sqlite3.Connection] = []
        self.on_death: list[Callable[[], None]] = []
        self.clocks: tuple[Any, ...] = ()
        self.held: list[Any] = []  # handles that became due while it stood still
        self._loop = loop
        self._context = contextvars.copy_context()
        self._context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def start(self, work: Coroutine[Any, Any, Any], *, name: str | None = None) -> Any:
        """Run a coroutine as a task of this process."""
        return self._loop.create_task(work, name=name or self.name, context=self._context.copy())

    def dies_at(self, point: str) -> bool:
        """Kill it at this point if its doom says so; whether it is dead then."""
        if self.doom is not None and self.doom(point):
            self.kill()
        return self.is_dead

    def kill(self) -> None:
        """Let it end as by SIGKILL: nothing of it steps again, what was not committed is gone."""
        if self.is_dead:
            return
        self.is_dead = True
        self.held.clear()
        for done in self.on_death:
            done()
        for database in self.databases:
            with suppress(sqlite3.Error):
                database.rollback()  # it stays open: the last close would bring the log into the file
        for listener in list(self.listeners):
            listener.vanish()
        for end in list(self.ends):
            end.vanish()

    def stop(self) -> None:
        """Let it stand still, as by SIGSTOP."""
        self.is_stopped = True

    def go_on(self) -> None:
        """Let it go on, as by SIGCONT."""
        self.is_stopped = False
        held, self.held = self.held, []
        self._loop.release(held)
