"""A clock that goes as usual and can be moved ahead: two days pass while a test takes milliseconds."""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from types import AsyncGeneratorType, CoroutineType
from typing import Any, Protocol, Self, TypeVar

from payments_async._values.testing import Testing

T = TypeVar("T")

_STEP = 0.2  # seconds of the shortest step
_SHARE = 10.0  # each step is such a part of what has passed: who waits for long may wake a little late
_QUIET = 25  # turns of the loop in a row that bring nothing: everything is at rest
_PATIENCE = 0.05  # seconds of our own processor time after which an exchange without an answer waits for the clock too
_LIMIT = 30 * 86_400.0

_MOMENT = 0.001  # seconds between two looks whether a commit is done
_STUCK = 60.0  # seconds of the computer's clock after which it is no use to wait any longer

# Whoever is inside of one of these waits for somebody at the other end of a socket.
_WIRES = ("aiohttp.client", "aiohttp.connector")
# what is awaited in place of a coroutine, or of a generator that awaits
_STEPS = ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow")
_STEPPED = (CoroutineType, AsyncGeneratorType)


class Writes(Protocol):
    """A journal: its commits are made by a thread, which no loop can see."""

    @property
    def is_writing(self) -> bool:
        """Whether a commit is under way or waits."""


class VirtualClock:
    """Time for a test: it goes on at its usual pace, and ``advance`` and ``until`` move it ahead.

    While it is open, all that waits in this event loop waits by it: ``asyncio.sleep`` and ``asyncio.timeout``, yours
    too. Each part is given it::

        async with VirtualClock() as clock, Sandbox(clock=clock) as sandbox:
            session = PaymentsSession(sandbox.base_url, credentials, testing=clock.testing)
            journal = SqliteJournal(path, testing=clock.testing)
            clock.watch(journal)
            receiver = Receiver(journal, ["127.0.0.1"], testing=clock.testing)
            outbox = Outbox(session, journal, testing=clock.testing)

    Sockets and threads take the time that they take, so it never moves while something is on its way: not while an
    aiohttp client waits for an answer, work of ``asyncio.to_thread`` is under way, or a journal that is watched
    commits. An exchange that is not answered though nothing else happens waits for the clock as well, as where the
    sandbox is slow. What else a test waits for, such as another process, it cannot see: await that before you move it.

    Only asyncio's own event loop can be moved. A clock is for one test: it is opened and closed in the same loop.
    """

    def __init__(self) -> None:
        self._ahead = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._journals: list[Writes] = []
        self._moments: list[tuple[float, int]] = []
        self._tickets = itertools.count()
        self._gone: set[int] = set()  # tickets of moments that nobody waits for any more
        self._jobs: set[asyncio.Future[Any]] = set()  # what threads are at
        self._asleep: frozenset[object] = frozenset()  # what waits on a wire, and for the clock

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if isinstance(loop, asyncio.BaseEventLoop):  # else it goes as any other, and says so when it is to be moved
            if "time" in vars(loop):
                raise RuntimeError("another virtual clock is open in this event loop")
            vars(loop).update(time=self.monotonic, run_in_executor=self._counted(loop.run_in_executor))
            self._loop = loop
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            for name in ("time", "run_in_executor"):
                vars(self._loop).pop(name, None)
            self._loop = None

    @property
    def testing(self) -> Testing:
        """This clock, as sessions, journals, receivers and outboxes take it."""
        return Testing(clock=self.monotonic, now=self.time)

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return time.monotonic() + self._ahead

    def time(self) -> float:
        """Unix seconds."""
        return time.time() + self._ahead

    def now(self) -> datetime:
        """The present moment, aware, in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds. However far the clock is moved, it stops there first, as for a sandbox."""
        ticket = next(self._tickets)
        heapq.heappush(self._moments, (self.monotonic() + seconds, ticket))
        try:
            await asyncio.sleep(seconds)
        finally:
            self._gone.add(ticket)

    def watch(self, *journals: Writes) -> None:
        """Let no time pass while these commit."""
        self._journals.extend(journals)

    async def advance(self, seconds: float, *, step: float = _LIMIT) -> None:
        """Let so many seconds pass, with all that is due in them, and return when all of it has come to rest.

        It goes by steps, which grow: timers never fire too early, and at most a tenth of the passed time late. Events
        of the sandbox happen at their own moment, and from there the steps are small again.

        Args:
            step: Seconds of the longest step, where it counts how often something recurs.
        """
        if seconds < 0:
            raise ValueError("seconds: time does not go back")
        if step <= 0:
            raise ValueError("step: must be above zero")
        target = self.monotonic() + seconds
        await self._rest()
        for due in self._steps(target, step):
            self._move(due)
            await self._rest()

    async def until(self, awaitable: Awaitable[T], *, limit: float = _LIMIT) -> T:
        """Let time pass until something is done, and give what comes of it.

        Args:
            awaitable: Such as ``outbox.settled(...)``; its own timeout is one of this clock.
            limit: Seconds of this clock after which it is cancelled.

        Raises:
            TimeoutError: The limit has passed.
        """
        done = asyncio.ensure_future(awaitable)
        try:
            await self._rest(done)
            for due in self._steps(self.monotonic() + limit, limit):
                if done.done():
                    break
                self._move(due)
                await self._rest(done)
            if not done.done():
                raise TimeoutError(f"{limit:g} seconds have passed by the clock, and it is not done")
        finally:
            if not done.done():
                done.cancel()
                await asyncio.wait([done])
        return await done

    def _steps(self, target: float, longest: float) -> Iterator[float]:
        """Where the clock stops on its way, as it is moved along."""
        begun = self.monotonic()
        while (now := self.monotonic()) < target:
            due = min(target, now + longest, now + max(_STEP, (now - begun) / _SHARE))
            while self._moments and (self._moments[0][1] in self._gone or self._moments[0][0] <= now):
                self._gone.discard(heapq.heappop(self._moments)[1])
            if self._moments and self._moments[0][0] <= due:
                begun = due = self._moments[0][0]
                self._asleep = frozenset()  # somebody may be answered now
            yield due

    def _move(self, due: float) -> None:
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError("the clock is not open in this loop, or it is none of asyncio's own, as uvloop's")
        self._ahead += max(0.0, due - self.monotonic())

    async def _rest(self, done: asyncio.Future[Any] | None = None) -> None:
        """Let everything happen that can without the clock, or until something is done."""
        quiet, before, patience = 0, frozenset[object](), 0.0
        while not (done is not None and done.done()):
            await asyncio.sleep(0)
            if await self._was_busy():
                quiet = 0
            elif (quiet := quiet + 1) >= _QUIET:
                waiting = self._on_the_wire()
                if waiting <= self._asleep:
                    return
                if waiting != before:
                    before, patience = waiting, time.thread_time() + _PATIENCE
                elif time.thread_time() > patience:
                    self._asleep |= waiting
                    return
                quiet = 0

    async def _was_busy(self) -> bool:
        """Wait for what threads are at; tells whether there was anything."""
        was_busy, stuck = False, time.monotonic() + _STUCK
        while (is_writing := any(journal.is_writing for journal in self._journals)) or self._jobs:
            was_busy = True
            if time.monotonic() > stuck:
                raise RuntimeError(f"the clock cannot be moved: a thread has not come to rest for {_STUCK:g} s")
            if is_writing:
                await asyncio.sleep(_MOMENT)
            else:
                await asyncio.wait(self._jobs, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        return was_busy

    def _on_the_wire(self) -> frozenset[object]:
        """All that tasks of this loop wait for at the other end of a socket."""
        return frozenset(waits for task in asyncio.all_tasks() if (waits := _wire_of(task.get_coro())) is not None)

    def _counted(self, run: Callable[..., asyncio.Future[Any]]) -> Callable[..., asyncio.Future[Any]]:
        """What runs functions in threads, so that it is known which are under way."""

        def run_in_executor(*arguments: Any) -> asyncio.Future[Any]:
            job = run(*arguments)
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)
            return job

        return run_in_executor


def _wire_of(waiting: Any) -> object | None:
    """What a coroutine waits for in the end, if that is at the other end of a socket."""
    is_wire = False
    while (inside := _inside(waiting)) is not None:
        module, waiting = inside
        is_wire = is_wire or module.startswith(_WIRES)
    return waiting if is_wire else None


def _inside(waiting: Any) -> tuple[str, object] | None:
    """In which module a coroutine or a generator stands, and what it awaits there; ``None`` for anything else."""
    if type(waiting).__name__ in _STEPS:  # which tells the collector alone whose step it is
        waiting = next((one for one in gc.get_referents(waiting) if isinstance(one, _STEPPED)), waiting)
    for kind, awaited in (("cr", "cr_await"), ("ag", "ag_await"), ("gi", "gi_yieldfrom")):
        if (frame := getattr(waiting, f"{kind}_frame", None)) is not None:
            return str(frame.f_globals.get("__name__", "")), getattr(waiting, awaited)
    return None
