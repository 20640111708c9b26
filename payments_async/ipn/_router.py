"""Which handlers hear an event, and running them: side by side, each within its time. Knows nothing of retries."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, NamedTuple

import attrs

from payments_async._deadlines import Deadlines
from payments_async._events import TransactionEvent
from payments_async._masking import redact

__all__ = ["Failure", "Handler", "Predicate", "Router", "words"]

Handler = Callable[[Any], Awaitable[object]]
Predicate = Callable[[Any], bool]
_log = logging.getLogger("payments_async.ipn")
_LONGEST_WORDS = 200


@attrs.frozen(kw_only=True)
class _Route:
    """One handler and what it hears.

    Attributes:
        name: The same after a restart; the inbox remembers by it who has finished with an event.
    """

    name: str
    kind: type[TransactionEvent]
    when: Predicate | None
    call: Handler


class Failure(NamedTuple):
    """A handler that did not finish, and why."""

    name: str
    why: str


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
        self._slots = asyncio.Semaphore(concurrency)
        self._deadlines = Deadlines(timeout)

    def add(self, kind: type[TransactionEvent], when: Predicate | None, call: Handler, name: str | None) -> None:
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
        self,
        event: TransactionEvent,
        *,
        skip: Collection[str] = (),
        done: Callable[[TransactionEvent, str], object] | None = None,
    ) -> Awaitable[Sequence[Failure]]:
        """Run the handlers of an event; one that fails does not stop the others.

        Args:
            skip: Names of those that have finished with it before.
            done: Told of each one that finishes, by its name, where there are several.
        """
        routes: Sequence[_Route] = self._for(type(event))
        if skip:
            routes = [route for route in routes if route.name not in skip]
        return self._run(routes[0], event, None) if len(routes) == 1 else self._run_all(routes, event, done)

    async def _run_all(
        self,
        routes: Sequence[_Route],
        event: TransactionEvent,
        done: Callable[[TransactionEvent, str], object] | None,
    ) -> Sequence[Failure]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run(route, event, done)) for route in routes]
        return [failure for task in tasks for failure in task.result()]

    def _for(self, kind: type[TransactionEvent]) -> tuple[_Route, ...]:
        routes = self._hearing.get(kind)
        if routes is None:
            routes = tuple(route for route in self._routes if issubclass(kind, route.kind))
            self._hearing[kind] = routes
        return routes

    async def _run(
        self, route: _Route, event: TransactionEvent, done: Callable[[TransactionEvent, str], object] | None
    ) -> Sequence[Failure]:
        try:
            if route.when is None or route.when(event):
                if self._are_shared:
                    async with self._slots:
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
            return _failed(route, event, words(error), _place(error))
        return ()


def words(error: BaseException) -> str:
    """An exception in one line fit for a log: long numbers and e-mail addresses masked."""
    return f"{type(error).__name__}: {redact(str(error))}"[:_LONGEST_WORDS]


def _failed(route: _Route, event: TransactionEvent, why: str, place: str) -> Sequence[Failure]:
    facts = {"handler": route.name, "event_id": event.event_id, "transaction_id": event.transaction_id}
    _log.warning("a handler failed", extra={**facts, "error": why, "place": place})
    return (Failure(route.name, why),)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _name(call: Handler, taken: Collection[str]) -> str:
    kind = call if hasattr(call, "__qualname__") else type(call)
    first = f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}"
    name, number = first, 1
    while name in taken:
        number += 1
        name = f"{first}#{number}"
    return name
