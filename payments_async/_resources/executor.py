"""What a namespace needs of its session: somebody who executes calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from payments_async._dialect import Dialect
from payments_async._models import Acceptance, Transaction
from payments_async._retry import RetryPolicy
from payments_async._wire.call import Call

__all__ = ["Executor"]

T = TypeVar("T")
Item = TypeVar("Item")


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

    def map(
        self,
        function: Callable[[Item], Awaitable[T]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        concurrency: int = 20,
    ) -> AsyncGenerator[tuple[Item, T | Exception], None]:
        """Call a function over many items, and keep what was not handed over."""

    def note_evidence(self, request_id: str, found: Acceptance | Transaction | None = None) -> None:
        """The outcome of this order is known now; what was found shows that the service has it."""
