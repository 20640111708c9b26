"""The event loop of a simulation: virtual time, and a seed that decides which of several steps is the next."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import heapq
import itertools
import random
from asyncio import base_events
from collections import deque
from collections.abc import Callable
from typing import Any

from payments_async.testing._simulation.processes import CURRENT, Process

START = 1_767_600_000.0  # Unix seconds at which every simulation begins


class Stuck(Exception):
    """Nothing will ever happen again, and the simulation waits."""


class _Numbered:
    """Hashes by a number, so that a set of them has one order in every run."""

    _number: int

    def __hash__(self) -> int:
        return self._number


_numbers = itertools.count(1)


class SimulatedFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future whose hash is a number in sequence."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._number = next(_numbers)

    def __hash__(self) -> int:
        return self._number


class SimulatedTask(asyncio.Task):  # type: ignore[type-arg]
    """A task whose hash is a number in sequence. It never starts eagerly, so that the seed decides when."""

    def __init__(
        self, coro: Any, *, context: contextvars.Context | None = None, eager_start: bool = False, **options: Any
    ) -> None:
        self._number = next(_numbers)
        self.owner = CURRENT.get() if context is None else context.get(CURRENT)
        super().__init__(coro, context=context, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(base_events.BaseEventLoop):
    """Runs callbacks one by one, in a sequence that the seed draws, and lets time pass when nothing is due.

    Steps of tasks may overtake each other; whatever else was asked for keeps its sequence. Sleeping costs nothing.

    Args:
        chance: Draws every decision.
        laziness: The share of due steps that wait for another turn.
    """

    _scheduled: list[Any]
    _stopping: bool

    def __init__(self, chance: random.Random, *, laziness: float = 0.1) -> None:
        super().__init__()
        self.chance = chance
        self.laziness = laziness
        self.now = 0.0
        self.steps = 0
        self.trace = hashlib.blake2b(digest_size=8)
        self.problems: list[str] = []
        self.threads: Callable[..., Any] | None = None  # where what an executor does may wait
        self.every: list[SimulatedTask] = []  # task there was: none of a dead process may be collected
        self._ready: deque[asyncio.Handle] = deque()
        self.set_task_factory(_make_task)
        self.set_exception_handler(_note)

    # time

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self.now

    @property
    def wall_clock(self) -> float:
        """Unix seconds, as the running process has them."""
        return START + self.now + self._difference("wall")

    @property
    def ticks(self) -> float:
        """Seconds of the clock that only grows, as the running process has them."""
        return 1000.0 + self.now + self._difference("ticks")

    @property
    def boot_ticks(self) -> float:
        """The same of the clock that goes on while the machine sleeps."""
        return 1000.0 + self.now + self._difference("boot")

    @staticmethod
    def _difference(clock: str) -> float:
        process = CURRENT.get()
        if process is None or not process.clocks:
            return 0.0
        return float(sum(getattr(clocks, clock) for clocks in process.clocks))

    # what the base class asks for

    def create_future(self) -> SimulatedFuture:
        """Make a future."""
        return SimulatedFuture(loop=self)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """As ``call_soon``: of all threads one runs at a time."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """Run the function as a step of its own, a moment later."""
        if self.threads is not None:
            return self.threads(executor, func, args)
        future = self.create_future()

        def step() -> None:
            if future.done():
                return
            try:
                result = func(*args)
            except BaseException as error:  # noqa: BLE001 - as an executor does
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self.chance.random() * 0.002, step)
        return future

    def release(self, handles: list[Any]) -> None:
        """Let handles that were held back become due."""
        self._ready.extend(handles)

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass

    def _run_once(self) -> None:
        self._let_time_pass()
        turn, self._ready = self._ready, deque()
        for handle in self._shuffled(turn):
            if handle._cancelled:
                continue
            process: Process | None = handle._context.get(CURRENT)  # type: ignore[attr-defined]
            if process is None or not (process.is_dead or process.is_stopped):
                self.steps += 1
                handle._run()
            elif not process.is_dead:
                process.held.append(handle)

    def _let_time_pass(self) -> None:
        """Until the next timer where nothing else is due."""
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        self._timer_cancelled_count = 0
        if not self._ready and not self._stopping:
            if not scheduled:
                raise Stuck("nothing is due and nothing ever will be")
            self.now = max(self.now, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self.now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                self._ready.append(handle)

    def _shuffled(self, turn: deque[asyncio.Handle]) -> list[asyncio.Handle]:
        """The handles of one turn in the sequence that the seed draws; those of no task keep theirs."""
        chance = self.chance
        if len(turn) == 1 and not self.laziness:
            return list(turn)
        tasks = [handle for handle in turn if _is_step(handle)]
        if not tasks:
            return list(turn)
        drawn = []
        for handle in tasks:
            if chance.random() < self.laziness:
                self._ready.append(handle)  # in the next turn
            else:
                drawn.append(handle)
        chance.shuffle(drawn)
        others = [handle for handle in turn if not _is_step(handle)]
        if not others:
            return drawn
        marks = [True] * len(drawn) + [False] * len(others)
        chance.shuffle(marks)
        first, second = iter(drawn), iter(others)
        return [next(first) if mark else next(second) for mark in marks]

    def note(self, *facts: object) -> None:
        """Add facts to the trace; two runs of a seed have the same."""
        self.trace.update(repr((round(self.now, 9), *facts)).encode())


def _is_step(handle: asyncio.Handle) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined]


def _make_task(loop: Any, coro: Any, context: contextvars.Context | None = None, **more: Any) -> Any:
    task = SimulatedTask(coro, loop=loop, context=context, **more)
    loop.every.append(task)
    return task


def _note(loop: Any, context: dict[str, Any]) -> None:
    error = context.get("exception")
    loop.problems.append(f"{context.get('message')}: {error!r}")
