"""Threads of which one runs at a time: a thread works when the loop says so, until it waits for its queue again."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from payments_async.testing._simulation.loops import SimulatedLoop
from payments_async.testing._simulation.processes import CURRENT, Process


class SimulatedQueue:
    """A queue that a simulated thread waits for."""

    def __class_getitem__(cls, _: Any) -> type[SimulatedQueue]:
        return cls

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self.reader: SimulatedThread | None = None

    def put(self, item: Any) -> None:
        """Add an item, and let its reader work in a moment."""
        self._items.append(item)
        if self.reader is not None:
            self.reader.wake()

    def get(self) -> Any:
        """Take an item; waits for one."""
        thread = _RUNNING.get()
        assert thread is not None, "only a simulated thread waits here"
        self.reader = thread
        while not self._items:
            thread.rest()
        return self._items.popleft()


class SimulatedThread:
    """In place of ``threading.Thread``."""

    def __init__(
        self, *, target: Callable[..., None], args: tuple[Any, ...] = (), name: str = "", daemon: bool = True
    ) -> None:
        self._loop = _loop()
        self._context = contextvars.copy_context()
        self._process: Process | None = CURRENT.get()
        self._target, self._args = target, args
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._has_ended = False
        self._is_due = False
        self._real = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Let it begin in a moment."""
        if self._process is not None:
            self._process.threads.append(self)
        self._real.start()
        self.wake()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        while not self._has_ended:
            self.work()

    def wake(self) -> None:
        """Let it work in a moment."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(self._loop.chance.random() * 0.004, self.work)

    def work(self) -> None:
        """Hand over to it, until it waits or ends."""
        self._is_due = False
        if not self._has_ended:
            self._mine.release()
            self._theirs.acquire()

    def rest(self) -> None:
        """In the thread: hand over to the loop."""
        self._theirs.release()
        self._mine.acquire()

    def rest_for_ever(self) -> None:
        """In the thread: its process was killed."""
        self._theirs.release()
        threading.Semaphore(0).acquire()

    def _run(self) -> None:
        self._mine.acquire()
        try:
            self._context.run(self._work)
        finally:
            self._has_ended = True
            self._theirs.release()

    def _work(self) -> None:
        _RUNNING.set(self)
        self._target(*self._args)


_RUNNING: contextvars.ContextVar[SimulatedThread | None] = contextvars.ContextVar("simulated thread", default=None)


def _loop() -> SimulatedLoop:
    import asyncio

    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


def crash_point(decide: Callable[[str], bool]) -> Callable[[str], None]:
    """What a journal calls between two steps: kills the process there where ``decide`` says so."""

    def reached(name: str) -> None:
        process, thread = CURRENT.get(), _RUNNING.get()
        if process is not None and not process.is_dead and decide(name):
            process.kill()
            if thread is not None:
                thread.rest_for_ever()

    return reached
