"""Those who wait for an order's final event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import attrs

from payments_async._events import TransactionEvent
from payments_async._status_codes import FINAL_CODES

__all__ = ["Waiters"]


@attrs.frozen(kw_only=True)
class _Wanted:
    """Which final event is waited for.

    Attributes:
        transaction_id: Only of this transaction; then the notification may leave the request id out.
        when: Says of an event whether it is the one.
    """

    request_id: str
    transaction_id: str | None
    when: Callable[[TransactionEvent], bool] | None

    def fits(self, event: TransactionEvent) -> bool:
        """Whether it is the event."""
        if event.status_code not in FINAL_CODES:
            return False
        if self.transaction_id is None:
            is_named = event.request_id == self.request_id
        else:
            is_named = event.transaction_id == self.transaction_id and event.request_id in (None, self.request_id)
        return is_named and (self.when is None or self.when(event))


class Waiters:
    """They wait by request id, and by transaction id where they know it.

    Args:
        poll: Seconds between two looks into the inbox, for another process may have taken the notification.
    """

    def __init__(self, *, poll: float) -> None:
        self._poll = poll
        self._waiters: dict[str, dict[asyncio.Future[TransactionEvent], _Wanted]] = {}

    def announce(self, event: TransactionEvent) -> None:
        """Wake those who wait for this event, if it is final."""
        if not self._waiters or event.status_code not in FINAL_CODES:
            return
        for key in {event.request_id or "", event.transaction_id}:
            for future, wanted in self._waiters.get(key, {}).items():
                if not future.done():
                    _tell(future, wanted, event)

    async def wait(
        self,
        request_id: str,
        *,
        transaction_id: str | None,
        when: Callable[[TransactionEvent], bool] | None,
        look_up: Callable[[str, str | None], Awaitable[Sequence[TransactionEvent]]],
    ) -> TransactionEvent:
        """The final event, as soon as it is announced or found.

        Args:
            look_up: Gives the final events of an order, or of one transaction of it, that came before.
        """
        wanted = _Wanted(request_id=request_id, transaction_id=transaction_id, when=when)
        future: asyncio.Future[TransactionEvent] = asyncio.get_running_loop().create_future()
        key = request_id if transaction_id is None else transaction_id
        waiters = self._waiters.setdefault(key, {})
        waiters[future] = wanted  # before the first look: it may come while we look
        try:
            while True:
                for event in await look_up(request_id, transaction_id):
                    if wanted.fits(event):
                        return event
                if (await asyncio.wait({future}, timeout=self._poll))[0]:
                    return future.result()
        finally:
            del waiters[future]
            if not waiters and self._waiters.get(key) is waiters:
                del self._waiters[key]


def _tell(future: asyncio.Future[TransactionEvent], wanted: _Wanted, event: TransactionEvent) -> None:
    try:
        if wanted.fits(event):
            future.set_result(event)
    except Exception as error:  # noqa: BLE001 - it is the waiter's own predicate, and so the waiter's error
        future.set_exception(error)
