"""Whoever watches the package at work: calls, batches, notifications, reconciliations. Nobody, unless one is named."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

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

    def watch(self, what: str, /, **facts: Fact) -> Watched:
        """A piece of work, which other work that begins within it belongs to."""

    def begin(self, what: str, /, **facts: Fact) -> Watched:
        """A piece of work that ends elsewhere, by ``Watched.close``, and that nothing belongs to."""

    def note(self, what: str, /, **facts: Fact) -> None:
        """Something happened on the way of what is watched here and now."""

    def remember(self, request_id: str) -> None:
        """An order is put here and now, and sent elsewhere."""

    def count(self, what: str, /, **facts: Fact) -> None:
        """One more of these."""

    def level(self, what: str, value: float, /, **facts: Fact) -> None:
        """How many there are of these now, or how old the oldest is in seconds."""


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
