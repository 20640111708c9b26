"""Those who wait for an order's final event. Decides nothing about what is final or believed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from payments_async._events import TransactionEvent

__all__ = ["Waiting"]


class Waiting:
    """Waiters by request id.

    Args:
        poll: Seconds between two looks into the inbox, for another process may have taken the notification.
    """

    def __init__(self, *, poll: float) -> None:
        self._poll = poll
        self._futures: dict[str, set[asyncio.Future[TransactionEvent]]] = {}

    def announce(self, event: TransactionEvent) -> None:
        """Wake those who wait for this event."""
        if self._futures and event.request_id is not None:
            for future in self._futures.get(event.request_id, ()):
                if not future.done():
                    future.set_result(event)

    async def wait(
        self, request_id: str, look_up: Callable[[str], Awaitable[TransactionEvent | None]]
    ) -> TransactionEvent:
        """The final event of an order, as soon as it is announced or found."""
        future: asyncio.Future[TransactionEvent] = asyncio.get_running_loop().create_future()
        futures = self._futures.setdefault(request_id, set())
        futures.add(future)  # before the first look: it may come while we look
        try:
            while True:
                event = await look_up(request_id)
                if event is not None:
                    return event
                if (await asyncio.wait({future}, timeout=self._poll))[0]:
                    return future.result()
        finally:
            futures.discard(future)
            if not futures and self._futures.get(request_id) is futures:
                del self._futures[request_id]
