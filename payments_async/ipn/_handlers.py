"""The handlers of a receiver: which of them hear an event, and running them, side by side and not too many at once."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, Generic, TypeVar

import attrs

from payments_async._deadlines import Deadlines
from payments_async._events import TransactionEvent
from payments_async._masking import redact

T = TypeVar("T")
Handler = Callable[[Any], Awaitable[object]]
_Done = Callable[[TransactionEvent, str], object]
_log = logging.getLogger("payments_async.ipn")
_LONGEST_ERROR = 200


def _above_zero(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name}: must be above zero")


@attrs.frozen(kw_only=True)
class HandlerPolicy:
    """How patiently handlers are run, and how many at once.

    With an inbox, a handler that fails is run again, alone, after a wait with full jitter:
    ``random() * min(wait_max, wait_initial * 2 ** tries)``. By default that is up to 1, 2, 4 ... 512 and then up to 900
    seconds, half of it on average: an event becomes a dead letter some six hours after its first failure (at most
    twelve and a half), so that an outage of your database costs none. Without an inbox, the service is asked to send
    again.

    Attributes:
        concurrency: Handlers running at once.
        timeout: Seconds for one handler and one event.
        attempts: Rounds before an event becomes a dead letter. Where the service cannot be asked to confirm an event,
            no round counts: the event waits.
        wait_initial: Longest wait before the second round, in seconds.
        wait_max: Longest wait before any round, in seconds.
        poll: Seconds between two looks for events that are due: retries, and what another receiver left behind. While
            there is more than could be taken at once, it is looked for as soon as there is room.
        drain: Seconds that a shutdown waits for handlers under way.
    """

    concurrency: int = attrs.field(default=100, validator=_above_zero)
    timeout: float = attrs.field(default=30.0, validator=_above_zero)
    attempts: int = attrs.field(default=60, validator=_above_zero)
    wait_initial: float = attrs.field(default=1.0, validator=_above_zero)
    wait_max: float = attrs.field(default=900.0, validator=_above_zero)
    poll: float = attrs.field(default=1.0, validator=_above_zero)
    drain: float = 10.0

    @property
    def lease(self) -> float:
        """Seconds that an event belongs to one receiver: time to queue, and to run every handler once."""
        return 3 * self.timeout

    def wait(self, tries: int, chance: float) -> float:
        """Seconds before the next round, after so many; ``chance`` is in [0, 1)."""
        longest = min(self.wait_max, self.wait_initial * 2.0 ** min(tries, 60))
        return chance * longest


@attrs.frozen(kw_only=True)
class _Route:
    """One handler and what it hears.

    Attributes:
        name: The same after a restart; the inbox remembers by it who has finished with an event.
    """

    name: str
    kind: type[TransactionEvent]
    when: Callable[[Any], bool] | None
    call: Handler


class Router:
    """The handlers of one receiver, in the order in which they were registered.

    Args:
        concurrency: Handlers running at once. No more events than that may be run at once.
        timeout: Seconds for one handler and one event.
    """

    def __init__(self, *, concurrency: int, timeout: float) -> None:
        self._routes: list[_Route] = []
        self._are_shared = False  # whether an event may have several handlers, so that events do not bound handlers
        self._hearing: dict[type[TransactionEvent], tuple[_Route, ...]] = {}
        self._places = asyncio.Semaphore(concurrency)
        self._deadlines = Deadlines(timeout)

    def add(
        self, kind: type[TransactionEvent], when: Callable[[Any], bool] | None, call: Handler, name: str | None
    ) -> None:
        """Register a handler for a kind of event and its subtypes.

        Raises:
            TypeError: For a kind that is no event, or a handler that is not async.
            ValueError: For a name that is taken.
        """
        if not issubclass(kind, TransactionEvent):
            raise TypeError(f"{kind!r} is no event type, such as TransactionSucceeded")
        if not inspect.iscoroutinefunction(call) and inspect.isroutine(call):
            raise TypeError(f"{call!r} is not async: define it with 'async def'")
        taken = {route.name for route in self._routes}
        if name in taken:
            raise ValueError(f"name={name!r}: another handler has it")
        if any(issubclass(kind, route.kind) or issubclass(route.kind, kind) for route in self._routes):
            self._are_shared = True
        self._routes.append(_Route(name=name or _name(call, taken), kind=kind, when=when, call=call))
        self._hearing.clear()

    def close(self) -> None:
        """Stop the timer."""
        self._deadlines.close()

    def hears(self, event: TransactionEvent) -> bool:
        """Whether any handler may want the event."""
        return bool(self._routes) and bool(self._for(type(event)))

    def run(
        self, event: TransactionEvent, *, skip: Collection[str] = (), done: _Done | None = None
    ) -> Awaitable[Sequence[str]]:
        """Run the handlers of an event, and tell which failed and why; one that fails does not stop the others.

        Args:
            skip: Names of those that have finished with it before.
            done: Told of each one that finishes, by its name, where there are several.
        """
        routes: Sequence[_Route] = self._for(type(event))
        if skip:
            routes = [route for route in routes if route.name not in skip]
        return self._run(routes[0], event, None) if len(routes) == 1 else self._run_all(routes, event, done)

    async def _run_all(self, routes: Sequence[_Route], event: TransactionEvent, done: _Done | None) -> Sequence[str]:
        """Run them side by side, and tell which failed and why."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run(route, event, done)) for route in routes]
        return [failure for task in tasks for failure in task.result()]

    def _for(self, kind: type[TransactionEvent]) -> tuple[_Route, ...]:
        """The handlers that hear events of this type."""
        routes = self._hearing.get(kind)
        if routes is None:
            routes = tuple(route for route in self._routes if issubclass(kind, route.kind))
            self._hearing[kind] = routes
        return routes

    async def _run(self, route: _Route, event: TransactionEvent, done: _Done | None) -> Sequence[str]:
        """Run one handler within its time; tell that it failed and why, or nothing."""
        try:
            if route.when is None or route.when(event):
                if self._are_shared:
                    async with self._places:
                        with self._deadlines.stay():
                            await route.call(event)
                else:
                    with self._deadlines.stay():
                        await route.call(event)
            if done is not None:
                done(event, route.name)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return _failed(route, event, "CancelledError: something it waited for was cancelled", "")
        except (KeyboardInterrupt, GeneratorExit):
            raise  # the end of the process, or of this very handler
        except BaseException as error:  # noqa: BLE001 - whatever else a handler raises, the others go on
            return _failed(route, event, error_text(error), _place(error))
        return ()


class Tasks:
    """The tasks of one receiver. Unlike a ``TaskGroup`` it may be opened in one task and closed in another."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run it; a caller who gives up waiting for it does not stop it."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def aclose(self, drain: float = 0.0) -> None:
        """Wait for all of them, those they start included, for so many seconds; cancel whatever still runs then."""
        now = asyncio.get_running_loop().time
        deadline = now() + drain
        while self._running and (left := deadline - now()) > 0:
            await asyncio.wait(self._running, timeout=left)
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Workers(Generic[T]):
    """As many tasks as there are jobs that wait for something: a job that waits for nothing costs none.

    Args:
        work: Does one job, and raises nothing.
        most: Jobs under way at once.
    """

    def __init__(self, tasks: Tasks, work: Callable[[T], Awaitable[None]], *, most: int) -> None:
        self.jobs: deque[T] = deque()
        self._tasks = tasks
        self._work = work
        self._most = most
        self._count = 0
        self._starting = False

    def put(self, job: T) -> None:
        """Do a job as soon as those before it are done or wait for something."""
        self.jobs.append(job)
        if not self._starting:
            self._start(1)

    def _start(self, count: int) -> None:
        """Start so many workers, if there are jobs for them and places."""
        count = min(count, len(self.jobs), self._most - self._count)
        self._starting = count > 0
        if self._starting:
            self._count += count
            for _ in range(count):
                self._tasks.start(self._run())
            # after their first steps: twice as many, should those have to wait
            asyncio.get_running_loop().call_soon(self._start, 2 * count)

    async def _run(self) -> None:
        try:
            while self.jobs:
                await self._work(self.jobs.popleft())
        finally:
            self._count -= 1


def error_text(error: BaseException) -> str:
    """An exception in one line fit for a log: long numbers and e-mail addresses masked."""
    return f"{type(error).__name__}: {redact(str(error))}"[:_LONGEST_ERROR]


def _failed(route: _Route, event: TransactionEvent, why: str, place: str) -> Sequence[str]:
    facts = {"handler": route.name, "event_id": event.event_id, "transaction_id": event.transaction_id}
    _log.warning("a handler failed", extra={**facts, "error": why, "place": place})
    return (f"{route.name}: {why}",)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _name(call: Handler, taken: Collection[str]) -> str:
    """A name for a handler that stays the same after a restart: where it is defined, numbered if that is taken."""
    kind = call if hasattr(call, "__qualname__") else type(call)
    first = f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}"
    name, number = first, 1
    while name in taken:
        number += 1
        name = f"{first}#{number}"
    return name
