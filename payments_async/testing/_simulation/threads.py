"""Threads of which one runs at a time: a thread works when the loop says so, until it waits for its queue again."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent import futures
from typing import Any

from payments_async.testing._simulation.loops import SimulatedLoop
from payments_async.testing._simulation.processes import CURRENT, Process

try:
    greenlet: Any = importlib.import_module("greenlet")  # it has no types
except ImportError:
    greenlet = None


class SimulatedQueue:
    """A queue that a simulated thread waits for."""

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
        thread = running()
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
        self.loop = _loop()
        self._context = contextvars.copy_context()
        self.process: Process | None = CURRENT.get()
        self._target, self._args = target, args
        self._hands = _Greenlet(self._run, self._context) if greenlet else _Thread(self._run, self._context)
        self._name = name
        self.has_ended = False
        self._is_due = False
        self._hurries = False
        self._waiting: list[SimulatedThread] = []  # for its end
        self._own = contextvars.copy_context()  # in which the loop lets it work; its other one is in use then

    def start(self) -> None:
        """Let it begin in a moment."""
        if self.process is not None:
            self.process.threads.append(self)
        _EVERY.append(self)
        self.wake()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end. A caller outside of a simulated thread stops the whole loop meanwhile; no time passes."""
        waiting = running()
        if waiting is not None:
            self._waiting.append(waiting)
            waiting.wait(timeout, lambda: self.has_ended)
            return
        self._hurries = True
        for _ in range(_STEPS):
            if self.has_ended:
                return
            self.work()
            if self.process is not None and self.process.is_dead:
                self.loop.go_on_without_it()
        self._hurries = False
        if timeout is None:
            raise RuntimeError(f"{self._name} does not end")

    def wake(self) -> None:
        """Let it work in a moment."""
        if not self._is_due:
            self._is_due = True
            self.loop.call_later(self.loop.chance.random() * 0.004, self.work, context=self._own)

    def wake_after(self, seconds: float) -> None:
        """Let it work after so many seconds."""
        self.loop.call_later(seconds, self.work, context=self._own)

    def sleep(self, seconds: float) -> None:
        """In the thread: let time pass."""
        self.wait(seconds, lambda: False)

    def wait(self, seconds: float | None, is_done: Callable[[], bool]) -> None:
        """In the thread: wait until something is so, for so many seconds at most; who makes it so wakes the thread."""
        until = None if seconds is None else self.loop.time() + seconds
        if seconds is not None and not self._hurries:
            self.wake_after(seconds)
        while not (self._hurries or is_done() or (until is not None and self.loop.time() >= until)):
            self.rest()

    def work(self) -> None:
        """Hand over to it, until it waits or ends."""
        self._is_due = False
        if not self.has_ended:
            before, _RUNNING[0] = _RUNNING[0], self
            self._hands.work()
            _RUNNING[0] = before

    def rest(self) -> None:
        """In the thread: hand over to the loop; for ever, where its process was killed."""
        self._hands.rest()

    def _run(self) -> None:
        try:
            self._target(*self._args)
        except Exception:  # noqa: BLE001 - a thread of ours that fails, fails the simulation
            self.loop.problems.append(f"{self._name} failed: {traceback.format_exc()}")
        finally:
            self.has_ended = True
            for thread in self._waiting:
                thread.wake()


_RUNNING: list[SimulatedThread | None] = [None]
_EVERY: list[SimulatedThread] = []  # none may be collected: that would run what a killed process does no more


class SimulatedSequencer:
    """In place of a sequence of work in shared threads: it has a thread of its own."""

    def __init__(self) -> None:
        self._todo = SimulatedQueue()
        self._thread: SimulatedThread | None = None

    def put(self, work: Callable[[], object]) -> None:
        """Let the thread do it, after all that was put before."""
        if self._thread is None:
            self._thread = SimulatedThread(target=self._run, name="journal")
            self._thread.start()
        self._todo.put(work)

    def submit(self, function: Callable[..., Any], *args: Any) -> futures.Future[Any]:
        """Call a function in the thread."""
        future: futures.Future[Any] = futures.Future()

        def work() -> None:
            try:
                future.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 - as an executor does
                future.set_exception(error)

        self.put(work)
        return future

    async def end(self) -> None:
        """Let it finish what it has, and wait for that."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._todo.put(None)
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, thread.join))

    def _run(self) -> None:
        while (work := self._todo.get()) is not None:
            work()


class _Greenlet:
    """Work that is handed over to and back, on a stack of its own."""

    def __init__(self, run: Callable[[], None], context: contextvars.Context) -> None:
        self._own = greenlet.greenlet(run)
        self._own.gr_context = context
        self._caller: Any = None

    def work(self) -> None:
        self._own.parent = self._caller = greenlet.getcurrent()
        self._own.switch()

    def rest(self) -> None:
        self._caller.switch()


class _Thread:
    """The same without greenlet."""

    def __init__(self, run: Callable[[], None], context: contextvars.Context) -> None:
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)

        def work() -> None:
            self._mine.acquire()
            try:
                context.run(run)
            finally:
                self._theirs.release()

        threading.Thread(target=work, daemon=True).start()

    def work(self) -> None:
        self._mine.release()
        self._theirs.acquire()

    def rest(self) -> None:
        self._theirs.release()
        self._mine.acquire()


_STEPS = 1000  # that a thread may take until its waiter goes on


def running() -> SimulatedThread | None:
    """The simulated thread that runs now, if one does."""
    return _RUNNING[0]


def _loop() -> SimulatedLoop:
    thread = running()
    loop = asyncio.get_running_loop() if thread is None else thread.loop
    assert isinstance(loop, SimulatedLoop)
    return loop


def reach(point: str) -> None:
    """Kill the process that runs here, if its doom says so. Then this never returns, and all others go on."""
    process = CURRENT.get()
    if process is None or process.is_dead or process.doom is None or not process.dies_at(point):
        return
    thread = running()
    while thread is not None:
        thread.rest()
    _loop().go_on_without_it()
