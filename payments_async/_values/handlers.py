"""Handlers of what happens: registered under stable names, run side by side, not too many at once, each in its time."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

import attrs

from payments_async._values.checks import check_callable
from payments_async._values.deadlines import Deadlines
from payments_async._values.frozen import field, frozen
from payments_async._values.masking import redact
from payments_async._values.observing import Fact, Observer
from payments_async._values.tasks import Tasks
from payments_async._values.tracebacks import masked_traceback, place_of, words_of

K = TypeVar("K")
T = TypeVar("T")
Handler = Callable[[Any], Awaitable[object]]
LEAVES = 5.0  # seconds that closing waits for handlers which it has cancelled
_LONGEST_ERROR = 200


def _above_zero(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name}: must be above zero")


@attrs.frozen(kw_only=True)
class HandlerPolicy:
    """How patiently handlers are run, and how many at once.

    A handler that fails is run again, alone, after a wait with full jitter:
    ``random() * min(wait_max, wait_initial * 2 ** tries)``. By default that is up to 1, 2, 4 ... 512 and then up to 900
    seconds, half of it on average: an event, or an outbox's change, becomes a dead letter some six hours after its
    first failure (at most twelve and a half), so that an outage of your database costs none. A receiver without an
    inbox asks the service to send again.

    Attributes:
        concurrency: Handlers running at once.
        timeout: Seconds for one handler and one event or change.
        attempts: Rounds before it becomes a dead letter. Where the service cannot be asked to confirm an event, no
            round counts: the event waits.
        wait_initial: Longest wait before the second round, in seconds.
        wait_max: Longest wait before any round, in seconds.
        poll: Seconds between two looks for what is due: retries, and what another process left behind. While there is
            more than could be taken at once, it is looked for as soon as there is room.
        drain: Seconds that a shutdown waits for handlers under way. Then it cancels them. Those that still have not
            ended five seconds later are logged and left; their event or change comes again.

    >>> HandlerPolicy(attempts=5, wait_max=60.0).wait(3, chance=0.5)
    4.0
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
        """Seconds that an event or change belongs to one process: time to queue, and to run every handler once."""
        return 3 * self.timeout

    def wait(self, tries: int, chance: float) -> float:
        """Seconds before the next round, after so many; ``chance`` is in [0, 1)."""
        longest = min(self.wait_max, self.wait_initial * 2.0 ** min(tries, 60))
        return chance * longest


@frozen(kw_only=True)
class Route(Generic[K]):
    """One handler and what it hears.

    Attributes:
        name: The same after a restart; the journal remembers by it who has finished with what.
        kind: Of what it hears.
        when: Says of one of that kind whether it wants it.
    """

    name: str
    kind: K
    when: Callable[[Any], bool] | None
    call: Handler


@frozen(kw_only=True)
class HandlerFailure:
    """A handler that failed, as an error hook gets it.

    Attributes:
        handler: Its name.
        error: Type, place and words, masked.
        place: File and line of your own code, such as ``shop.py:31``.
        traceback: Types, files, lines and functions; masked, without local variables.
        fact: What it was told: an event, or an entry. It holds personal data.
        cause: The exception itself. Its words, and the local variables of its traceback, may hold personal data.
    """

    handler: str
    error: str
    place: str
    traceback: str
    fact: Any = field(repr=False)
    cause: BaseException = field(repr=False)


ErrorHook = Callable[[HandlerFailure], object]


class Router(ABC, Generic[K, T]):
    """The handlers of one place, in the order in which they were registered. What happens is a fact to them.

    Args:
        concurrency: Handlers running at once. No more facts than that may be run at once.
        timeout: Seconds for one handler and one fact.
        log: Where a handler that failed is told of.
        observer: Told of each round of the handlers of a fact, if anybody watches.
    """

    def __init__(
        self, *, concurrency: int, timeout: float, log: logging.Logger, observer: Observer | None = None
    ) -> None:
        self.error_hooks: list[ErrorHook] = []  # told of each handler that failed
        self._routes: list[Route[K]] = []
        self._are_shared = False  # whether a fact may have several handlers, so that facts do not bound handlers
        self._places = asyncio.Semaphore(concurrency)
        self._deadlines = Deadlines(timeout)
        self._log = log
        self._observer = observer

    @abstractmethod
    def _for(self, fact: T) -> Sequence[Route[K]]:
        """The handlers that hear of this."""

    @abstractmethod
    def _overlap(self, one: K, other: K) -> bool:
        """Whether a fact may be of both kinds."""

    @abstractmethod
    def _named(self, fact: T) -> Mapping[str, object]:
        """What a log says of it, without personal data."""

    @abstractmethod
    def _shown(self, fact: T) -> tuple[str, Mapping[str, Fact]]:
        """What an observer is told of a round of its handlers."""

    @abstractmethod
    def _private(self, fact: T) -> Sequence[str]:
        """Its personal texts, to be masked in the words of a handler that failed."""

    def _register(
        self,
        kind: K,
        when: Callable[[Any], bool] | None,
        call: Handler,
        name: str | None,
        *,
        given: int = 1,
        is_plain: bool = False,
    ) -> None:
        """Register a handler, which is called with so many values; a plain one by what runs it in a thread.

        Raises:
            TypeError: It is not async, or cannot be called so; or ``when`` cannot be called.
            ValueError: For a name that is taken.
        """
        if not is_plain and not inspect.iscoroutinefunction(call) and inspect.isroutine(call):
            raise TypeError(f"{call!r} is not async: define it with 'async def'")
        _check_takes(call, given)
        if when is not None:
            check_callable("when", when, "a function that says whether the handler wants it")
        taken = {route.name for route in self._routes}
        if name in taken:
            raise ValueError(f"name={name!r}: another handler has it")
        if any(self._overlap(kind, route.kind) for route in self._routes):
            self._are_shared = True
        self._routes.append(Route(name=name or _name(call, taken), kind=kind, when=when, call=call))

    def close(self) -> None:
        """Stop the timer."""
        self._deadlines.close()

    @property
    def has_handlers(self) -> bool:
        """Whether there is any handler."""
        return bool(self._routes)

    def hears(self, fact: T) -> bool:
        """Whether any handler may want it."""
        return bool(self._routes) and bool(self._for(fact))

    def unfinished(self, fact: T, done: Collection[str]) -> Sequence[str]:
        """Names of the handlers that hear of this, but for those that have finished with it."""
        return [route.name for route in self._for(fact) if route.name not in done]

    def run(
        self, fact: T, *, skip: Collection[str] = (), done: Callable[[T, str], object] | None = None
    ) -> Awaitable[Sequence[str]]:
        """Run the handlers of a fact, and tell which failed and why; one that fails does not stop the others.

        Args:
            skip: Names of those that have finished with it before.
            done: Told of each one that finishes, by its name, where there are several.
        """
        routes = self._for(fact)
        if skip:
            routes = [route for route in routes if route.name not in skip]
        round_ = self._run(routes[0], fact, None) if len(routes) == 1 else self._run_all(routes, fact, done)
        return round_ if self._observer is None else self._watched(self._observer, fact, round_)

    async def _watched(self, observer: Observer, fact: T, round_: Awaitable[Sequence[str]]) -> Sequence[str]:
        """Run handlers while an observer watches."""
        what, facts = self._shown(fact)
        with observer.watch(what, **facts) as work:
            if failures := await round_:
                work.tell(error="handler_failed")
        return failures

    async def _run_all(
        self, routes: Sequence[Route[K]], fact: T, done: Callable[[T, str], object] | None
    ) -> Sequence[str]:
        """Run them side by side, and tell which failed and why."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run(route, fact, done)) for route in routes]
        return [failure for task in tasks for failure in task.result()]

    async def _run(self, route: Route[K], fact: T, done: Callable[[T, str], object] | None) -> Sequence[str]:
        """Run one handler within its time; tell that it failed and why, or nothing."""
        try:
            if route.when is None or route.when(fact):
                if self._are_shared:
                    async with self._places:
                        with self._deadlines.stay():
                            await route.call(fact)
                else:
                    with self._deadlines.stay():
                        await route.call(fact)
            if done is not None:
                done(fact, route.name)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return await self._failed(route, fact, error, "something it waited for was cancelled")
        except (KeyboardInterrupt, GeneratorExit):
            raise  # the end of the process, or of this very handler
        except BaseException as error:  # noqa: BLE001 - whatever else a handler raises, the others go on
            return await self._failed(route, fact, error, words_of(error))
        return ()

    async def _failed(self, route: Route[K], fact: T, error: BaseException, words: str) -> Sequence[str]:
        """Say in the log that a handler failed, and where, and tell who asked to be told."""
        names, private, place = self._named(fact), self._private(fact), place_of(error)
        why = f"{type(error).__name__}{f' in {place}' if place else ''}: {redact(words, private)}"[:_LONGEST_ERROR]
        said = ", ".join(f"{name} {value}" for name, value in names.items() if value is not None)
        trace = masked_traceback(error, private)
        facts = {"handler": route.name, **names, "error": why, "place": place, "traceback": trace}
        self._log.warning("a handler failed: %s, %s: %s", route.name, said, why, extra=facts)
        for hook in self.error_hooks:
            failure = HandlerFailure(
                handler=route.name, error=why, place=place, traceback=trace, fact=fact, cause=error
            )
            await self._tell(hook, failure)
        return (f"{route.name}: {why}",)

    async def _tell(self, hook: ErrorHook, failure: HandlerFailure) -> None:
        """Tell somebody of a failure, within the time of a handler; what fails there changes nothing."""
        try:
            with self._deadlines.stay():
                told = hook(failure)
                if inspect.isawaitable(told):
                    await told
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # whatever the reason, the handler is run again all the same
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            why = error_text(error, self._private(failure.fact))
            self._log.error("an error hook failed: %s", why, extra={"handler": failure.handler, "error": why})


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
                self._tasks.start("handler", self._run()).add_done_callback(self._ended)
            # after their first steps: twice as many, should those have to wait
            asyncio.get_running_loop().call_soon(self._start, 2 * count)

    async def _run(self) -> None:
        while self.jobs:
            await self._work(self.jobs.popleft())

    def _ended(self, _: asyncio.Task[None]) -> None:
        """A task has ended, whatever ended it: others go on with what it has left."""
        self._count -= 1
        if self.jobs and not self._starting and not self._tasks.is_ending:
            self._start(1)


def error_text(error: BaseException, private: Sequence[str] = ()) -> str:
    """An exception in one line fit for a log: long numbers, e-mail addresses and these texts masked."""
    return f"{type(error).__name__}: {redact(words_of(error), private)}"[:_LONGEST_ERROR]


def _check_takes(call: Callable[..., object], given: int) -> None:
    """It can be called with so many values: one that cannot would fail for hours, each time something is told.

    Raises:
        TypeError: It cannot.
    """
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # made in C, and it does not say
        return
    try:
        signature.bind(*range(given))
    except TypeError as error:
        what = "one value, what it is told of" if given == 1 else "two values, the entry and the connection"
        raise TypeError(f"{call!r} takes {signature}: it would be called with {what}") from error


def _name(call: Handler, taken: Collection[str]) -> str:
    """A name for a handler that stays the same after a restart: where it is defined, numbered if that is taken."""
    kind = call if hasattr(call, "__qualname__") else type(call)
    first = f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}"
    name, number = first, 1
    while name in taken:
        number += 1
        name = f"{first}#{number}"
    return name
