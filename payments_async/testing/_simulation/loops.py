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
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from payments_async.testing._simulation.processes import CURRENT, Killed, Process

START = 1_767_600_000.0  # Unix seconds at which every simulation begins


class Stuck(Exception):
    """Nothing will ever happen again, and the simulation waits."""


_numbers = itertools.count(1)


class SimulatedFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future whose hash is a number in sequence, from the first time that it is asked for."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = next(_numbers)
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


class _Handle(asyncio.Handle):
    """A handle that a loop fills in: most of what a loop does is to make some."""

    __slots__ = ()

    def cancel(self) -> None:
        """Let nothing come of it."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class _TimerHandle(asyncio.TimerHandle):
    """The same with a moment."""

    __slots__ = ()
    cancel = _Handle.cancel


_new = object.__new__


class SimulatedLoop(base_events.BaseEventLoop):
    """Runs callbacks one by one, in a sequence that the seed draws, and lets time pass when nothing is due.

    Steps of tasks may overtake each other; whatever else was asked for keeps its sequence. Sleeping costs nothing.

    Args:
        chance: Draws every decision.
        laziness: The share of due steps that wait for another turn.
    """

    _stopping: bool
    get_debug = staticmethod(bool)  # futures and tasks ask it, each of them

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
        self.after_turn: Callable[[], None] | None = None  # a judge
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._asked = itertools.count()
        self._turn: deque[asyncio.Handle] = deque()  # what is left of the turn that runs
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
        difference = 0.0
        for clocks in process.clocks:
            difference += getattr(clocks, clock)
        return difference

    # what the base class asks for

    def create_future(self) -> SimulatedFuture:
        """Make a future."""
        return SimulatedFuture(loop=self)

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Ask for a callback in the next turn."""
        handle: Any = _new(_Handle)
        handle._callback, handle._args, handle._loop = callback, args, self
        handle._context = contextvars.copy_context() if context is None else context
        handle._cancelled = False
        handle._repr = handle._source_traceback = None
        self._ready.append(handle)
        return handle  # type: ignore[no-any-return]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Ask for a callback at a moment; those of one moment keep their sequence."""
        timer: Any = _new(_TimerHandle)
        timer._callback, timer._args, timer._loop = callback, args, self
        timer._context = contextvars.copy_context() if context is None else context
        timer._cancelled = timer._scheduled = False
        timer._repr = timer._source_traceback = None
        timer._when = when
        heapq.heappush(self._timers, (when, next(self._asked), timer))
        return timer  # type: ignore[no-any-return]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Ask for a callback after seconds."""
        return self.call_at(self.now + delay, callback, *args, context=context)

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

    def go_on_without_it(self) -> NoReturn:
        """In a step of a process that died in the middle of it: go on with all the others, until all of it ends.

        Raises:
            Killed: The simulation has ended.
        """
        task = asyncio.current_task(self)
        if task is not None:
            asyncio.tasks._leave_task(self, task)
        self._run_turn()
        while not self._stopping:
            self._run_once()
        raise Killed

    def _run_once(self) -> None:
        self._let_time_pass()
        if len(self._ready) > 1:
            turn, self._ready = self._ready, deque()
            self._turn.extend(self._shuffled(turn))
        else:  # as in most turns
            self._turn, self._ready = self._ready, self._turn
        self._run_turn()

    def _run_turn(self) -> None:
        while self._turn:
            handle = self._turn.popleft()
            if handle._cancelled:
                continue
            process: Process | None = handle._context.get(CURRENT)  # type: ignore[attr-defined]
            if process is None or not (
                process.is_dead or process.is_stopped or (process.doom is not None and process.dies_at("step"))
            ):
                self.steps += 1
                try:  # as ``handle._run`` does
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - whatever a callback raises is noted
                    self.problems.append(f"{handle!r} failed: {error!r}")
            elif not process.is_dead:
                process.held.append(handle)
        if self.after_turn is not None:
            self.after_turn()

    def _let_time_pass(self) -> None:
        """Until the next timer where nothing else is due."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not self._ready and not self._stopping:
            if not timers:
                raise Stuck("nothing is due and nothing ever will be")
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            _, _, timer = heapq.heappop(timers)
            if not timer._cancelled:
                self._ready.append(timer)

    def _shuffled(self, turn: deque[asyncio.Handle]) -> Iterable[asyncio.Handle]:
        """The handles of one turn in the sequence that the seed draws; those of no task keep theirs."""
        if len(turn) == 1:
            return turn
        chance, tasks, others = self.chance, list[asyncio.Handle](), list[asyncio.Handle]()
        for handle in turn:
            (tasks if _is_step(handle) else others).append(handle)
        if not tasks:
            return others
        drawn = []
        for handle in tasks:
            if chance.random() < self.laziness:
                self._ready.append(handle)  # in the next turn
            else:
                drawn.append(handle)
        chance.shuffle(drawn)
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
