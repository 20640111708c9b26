"""Threads that the journals of one event loop share; the work of each journal is done in its own sequence."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from payments_async.journal._faults import JournalUnavailable

T = TypeVar("T")
_log = logging.getLogger("payments_async.journal")
_MOST = 6  # threads, while they are not held up
_MOST_HELD_UP = 64  # ... and where databases are locked or away, which must not hold up the others
_HELD_UP = 0.1  # seconds of one piece of work after which a thread counts as held up


class Threads:
    """As many threads as there are sequences of work, and a few at most.

    Attributes:
        process: Which began them: a process that was forked off has none of them.
    """

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Threads]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.process = os.getpid()
        self._waiting: queue.SimpleQueue[Sequencer | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._users = 0
        self._begun: dict[int, float] = {}  # since when each thread is at work

    @classmethod
    def joined(cls) -> Threads:
        """Those of this event loop, with one more sequence of work.

        Raises:
            JournalUnavailable: There is no thread, and none can be started.
        """
        loop = asyncio.get_running_loop()
        threads = cls._of.get(loop)
        if threads is None or threads.process != os.getpid() or not threads._users:
            threads = cls._of[loop] = cls()
        if threads._count < min(_MOST, threads._users + 1):
            threads._begin()
        threads._users += 1
        return threads

    def leave(self) -> None:
        """One sequence less; with the last one all threads end."""
        self._users -= 1
        if not self._users:
            with self._lock:
                for _ in range(self._count):
                    self._waiting.put(None)

    def run(self, sequencer: Sequencer) -> None:
        """Have a thread do what waits there; a further one where all of them are held up."""
        self._waiting.put(sequencer)
        try:
            if len(self._begun) >= self._count:
                self._begin_where_held_up()
        except MemoryError:  # it is put all the same, and those that there are do the work of all
            pass

    def _begin_where_held_up(self) -> None:
        """All threads are at work: begin another one where they have been for long, and something waits."""
        first = min(list(self._begun.values()), default=0.0)
        if self._count < _MOST_HELD_UP and first < time.monotonic() - _HELD_UP and not self._waiting.empty():
            self._begin()

    def _begin(self) -> None:
        with self._lock:
            self._count += 1
        try:
            threading.Thread(target=self._work, name="journal", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # those that there are do the work of all
            with self._lock:
                self._count -= 1
            if not self._count:
                words = f"no thread can be started ({error}): the memory or the threads of this process are limited"
                raise JournalUnavailable(words) from error

    def _work(self) -> None:
        number, begun = threading.get_ident(), self._begun
        while (sequencer := self._waiting.get()) is not None:
            while True:
                try:
                    begun[number] = time.monotonic()
                    if len(begun) >= self._count > _MOST:
                        self._begin_where_held_up()  # what waits behind this may be of a database that is free
                    sequencer.work()
                    break
                except MemoryError:  # what is to be done stays where it is: a thread that ends would leave it there
                    time.sleep(_HELD_UP)
            del begun[number]
            if self._count > _MOST:  # the others are not held up any more, or this one is not needed in a moment
                with self._lock:
                    if self._count > _MOST and self._waiting.empty():
                        self._count -= 1
                        return


class Sequencer:
    """Does what it is given one after the other, each in a thread of those that are shared.

    Make it in the event loop, and end it there.
    """

    def __init__(self) -> None:
        self._threads = Threads.joined()
        self._lock = threading.Lock()
        self._todo: deque[Callable[[], object]] = deque()
        self._is_due = False  # a thread is at it, or will be

    def put(self, work: Callable[[], object]) -> None:
        """Do it after all that was put before. What it raises is logged, and hinders nothing that is put later."""
        with self._lock:
            self._todo.append(work)
            if self._is_due:
                return
            self._is_due = True
        try:
            self._threads.run(self)
        except MemoryError:  # no thread has heard of it: the next one that is put brings it along
            self._is_due = False
            raise

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call a function, as an executor does."""
        future: Future[T] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*args))
                except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                    future.set_exception(error)

        self.put(call)
        return future

    async def end(self) -> None:
        """In the event loop: wait until all that was put is done, also where this is cancelled. Nothing more is put."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        done.add_done_callback(lambda _: self._threads.leave())
        self.put(partial(loop.call_soon_threadsafe, done.set_result, None))
        await asyncio.shield(done)

    def work(self) -> None:
        """In a thread: do what there is, until nothing is left."""
        while True:
            with self._lock:
                if not self._todo:
                    self._is_due = False
                    return
                work = self._todo.popleft()
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the thread goes on: else all who wait would wait for ever
                _log.exception("a thread of a journal failed at one piece of work (%s)", type(error).__name__)
