"""What a namespace needs of its session: somebody who executes calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from payments_async._dialect import Dialect
from payments_async._retry import RetryPolicy
from payments_async._wire.call import Call

__all__ = ["Executor"]

T = TypeVar("T")


class Executor(Protocol):
    """Executes calls: login, limits, retries and errors are its business."""

    @property
    def dialect(self) -> Dialect:
        """How requests are written."""

    @property
    def clock(self) -> Callable[[], float]:
        """Monotonic seconds."""

    @property
    def sleep(self) -> Callable[[float], Awaitable[object]]:
        """Waits for seconds."""

    async def execute(self, call: Call[T], *, retry: RetryPolicy | None = None) -> T:
        """Make a call and read its answer."""

    def note_evidence(self, request_id: str) -> None:
        """The outcome of this order is known now."""
