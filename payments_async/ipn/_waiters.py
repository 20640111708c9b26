"""Those who wait for an order's final event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from payments_async._events import TransactionEvent
from payments_async._status_codes import FINAL_CODES

_Predicate = Callable[[TransactionEvent], bool]


class Waiters:
    """They wait by request id, and by transaction id where they know it.

    Args:
        poll: Seconds between two looks into the inbox, for another process may have taken the notification.
    """

    def __init__(self, *, poll: float) -> None:
        self._poll = poll
        self._waiters: dict[str, dict[asyncio.Future[TransactionEvent], _Predicate]] = {}

    def announce(self, event: TransactionEvent) -> None:
        """Wake those who wait for this event, if it is final."""
        if not self._waiters or event.status_code not in FINAL_CODES:
            return
        for key in {event.request_id or "", event.transaction_id}:
            for future, is_it in self._waiters.get(key, {}).items():
                if future.done():
                    continue
                try:
                    if is_it(event):
                        future.set_result(event)
                except Exception as error:  # noqa: BLE001 - it is the waiter's own predicate, and so the waiter's error
                    future.set_exception(error)

    async def wait(
        self,
        request_id: str,
        *,
        transaction_id: str | None,
        when: _Predicate | None,
        look_up: Callable[[str, str | None], Awaitable[Sequence[TransactionEvent]]],
    ) -> TransactionEvent:
        """The final event, as soon as it is announced or found.

        Args:
            transaction_id: Only of this transaction; then the notification may leave the request id out.
            when: Says of an event whether it is the one.
            look_up: Gives the final events of an order, or of one transaction of it, that came before.
        """

        def is_it(event: TransactionEvent) -> bool:
            if event.status_code not in FINAL_CODES:
                return False
            if transaction_id is None:
                is_named = event.request_id == request_id
            else:
                is_named = event.transaction_id == transaction_id and event.request_id in (None, request_id)
            return is_named and (when is None or when(event))

        future: asyncio.Future[TransactionEvent] = asyncio.get_running_loop().create_future()
        key = request_id if transaction_id is None else transaction_id
        waiters = self._waiters.setdefault(key, {})
        waiters[future] = is_it  # before the first look: it may come while we look
        try:
            while True:
                for event in await look_up(request_id, transaction_id):
                    if is_it(event):
                        return event
                if (await asyncio.wait({future}, timeout=self._poll))[0]:
                    return future.result()
        finally:
            del waiters[future]
            if not waiters and self._waiters.get(key) is waiters:
                del self._waiters[key]
