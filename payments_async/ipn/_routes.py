"""Which handlers of a receiver hear an event: those of its type and of the types above it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from payments_async._values.handlers import Handler, Route, Router
from payments_async._values.observing import Fact, Observer
from payments_async._wire.events import TransactionEvent

_Kind = type[TransactionEvent]


def check_kind(kind: object) -> None:
    """It is a type of events; a handler is none, which ``@receiver.on`` without parentheses hands over.

    Raises:
        TypeError: It is something else.
    """
    if not (isinstance(kind, type) and issubclass(kind, TransactionEvent)):
        raise TypeError(f"{kind!r} is not an event type: write @receiver.on(TransactionSucceeded), or another one")


class EventRouter(Router[_Kind, TransactionEvent]):
    """The handlers of one receiver.

    Args:
        concurrency, timeout, observer: As ``Router`` is given them.
    """

    def __init__(self, *, concurrency: int, timeout: float, observer: Observer | None = None) -> None:
        log = logging.getLogger("payments_async.ipn")
        super().__init__(concurrency=concurrency, timeout=timeout, log=log, observer=observer)
        self._hearing: dict[_Kind, tuple[Route[_Kind], ...]] = {}

    def add(self, kind: _Kind, when: Callable[[Any], bool] | None, call: Handler, name: str | None) -> None:
        """Register a handler for a kind of event and its subtypes.

        Raises:
            TypeError: For a kind that is not an event, or a handler that is not async.
            ValueError: For a name that is taken.
        """
        check_kind(kind)
        self._register(kind, when, call, name)
        self._hearing.clear()

    def _for(self, fact: TransactionEvent) -> tuple[Route[_Kind], ...]:
        kind = type(fact)
        routes = self._hearing.get(kind)
        if routes is None:
            routes = tuple(route for route in self._routes if issubclass(kind, route.kind))
            self._hearing[kind] = routes
        return routes

    def _overlap(self, one: _Kind, other: _Kind) -> bool:
        return issubclass(one, other) or issubclass(other, one)

    def _named(self, fact: TransactionEvent) -> Mapping[str, object]:
        return {"event_id": fact.event_id, "transaction_id": fact.transaction_id}

    def _shown(self, fact: TransactionEvent) -> tuple[str, Mapping[str, Fact]]:
        names = {"request_id": fact.request_id, "transaction_id": fact.transaction_id, "batch_id": fact.batch_id}
        return "handling", {"event": type(fact).__name__, "event_id": fact.event_id, **names}

    def _private(self, fact: TransactionEvent) -> Sequence[str]:
        return tuple(filter(None, (fact.status_message, fact.account_id)))
