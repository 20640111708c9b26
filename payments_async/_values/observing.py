"""Whoever watches the package at work: calls, batches, notifications, reconciliations. Nobody, unless one is named."""

from __future__ import annotations

import logging
import re
from asyncio import CancelledError
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

T = TypeVar("T")
_log = logging.getLogger("payments_async")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)

Fact = str | int | float | bool | None


class Watched(Protocol):
    """One piece of work while it is watched, from ``with`` to the end of it. An exception that ends it is its outcome.

    Where the end comes elsewhere than the beginning, ``close`` ends it.
    """

    def tell(self, **facts: Fact) -> None:
        """More is known of it."""

    def close(self) -> None:
        """It has ended. Only for what was begun by ``Observer.begin``."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Observer(Protocol):
    """Watches. It is called in the event loop, waits for nothing, and raises nothing.

    Facts are never secrets, and never tell of a person. What is watched and which facts there are is listed at
    ``payments_async.otel``.
    """

    def is_watching(self) -> bool:
        """Whether anybody would see what is told of a call now. It is asked before each, and must cost nothing."""

    def watch(self, what: str, /, **facts: Fact) -> Watched:
        """A piece of work, which other work that begins within it belongs to."""

    def begin(self, what: str, /, **facts: Fact) -> Watched:
        """A piece of work that ends elsewhere, by ``Watched.close``, and that nothing belongs to."""

    def note(self, what: str, /, **facts: Fact) -> None:
        """Something happened on the way of what is watched here and now."""

    def traceparent(self) -> str | None:
        """The trace context here and now, as W3C writes it: kept with an order that is put, and sent elsewhere."""

    def count(self, what: str, /, **facts: Fact) -> None:
        """One more of these."""

    def level(self, what: str, value: float, /, **facts: Fact) -> None:
        """How many there are of these now, or how old the oldest is in seconds."""


class GuardedObserver:
    """An observer whose failures end here: what it watches has happened, and no payment turns out otherwise by them."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._has_failed = False

    def is_watching(self) -> bool:
        """As the observer does; one that fails here watches."""
        return self.tried(self._observer.is_watching) is not False

    def watch(self, what: str, /, **facts: Fact) -> Watched:
        """As the observer does."""
        return self._guarded(self.tried(self._observer.watch, what, **facts))

    def begin(self, what: str, /, **facts: Fact) -> Watched:
        """As the observer does."""
        return self._guarded(self.tried(self._observer.begin, what, **facts))

    def note(self, what: str, /, **facts: Fact) -> None:
        """As the observer does."""
        self.tried(self._observer.note, what, **facts)

    def traceparent(self) -> str | None:
        """As the observer does."""
        found = self.tried(self._observer.traceparent)
        return found if isinstance(found, str) and _TRACEPARENT.fullmatch(found) else None

    def count(self, what: str, /, **facts: Fact) -> None:
        """As the observer does."""
        self.tried(self._observer.count, what, **facts)

    def level(self, what: str, value: float, /, **facts: Fact) -> None:
        """As the observer does."""
        self.tried(self._observer.level, what, value, **facts)

    def tried(self, tell: Callable[..., T], /, *what: Any, **facts: Any) -> T | None:
        """What the observer gives; ``None`` where it fails, which is its own affair, whatever it raises."""
        try:
            return tell(*what, **facts)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - what it watches has happened all the same
            self.failed(error)
        return None

    def failed(self, error: BaseException) -> None:
        """Say once that it fails, by the type of its error alone."""
        if not self._has_failed:
            self._has_failed = True
            words = "the observer fails, so traces or metrics are missing: %s"
            _log.warning(words, type(error).__name__, extra={"error": type(error).__name__})

    def _guarded(self, work: Watched | None) -> Watched:
        return _Unwatched() if work is None else _GuardedWork(work, self)


class _GuardedWork:
    """One piece of work, watched by an observer that may fail."""

    __slots__ = ("_guard", "_work")

    def __init__(self, work: Watched, guard: GuardedObserver) -> None:
        self._work = work
        self._guard = guard

    def tell(self, **facts: Fact) -> None:
        self._guard.tried(self._work.tell, **facts)

    def close(self) -> None:
        self._guard.tried(self._work.close)

    def __enter__(self) -> Self:
        self._guard.tried(self._work.__enter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._guard.tried(self._work.__exit__, kind, error, trace)


def guarded(observer: Observer | None) -> GuardedObserver | None:
    """An observer that raises nothing, as it is promised to those that are watched."""
    return observer if observer is None or isinstance(observer, GuardedObserver) else GuardedObserver(observer)


class _Unwatched:
    """What nobody watches."""

    def tell(self, **facts: Fact) -> None:
        """Nobody listens."""

    def close(self) -> None:
        """Nobody listens."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def watched(observer: Observer | None, what: str, /, **facts: Fact) -> Watched:
    """A piece of work, watched if anybody watches. For what is done rarely: a call asks first."""
    return _Unwatched() if observer is None else observer.watch(what, **facts)
