"""Those who wait for an order's final event, and what they hear of other receivers on the same inbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from payments_async._values.handlers import error_text
from payments_async._values.request_ids import plain_id
from payments_async._values.tasks import Tasks
from payments_async._wire.events import TransactionEvent
from payments_async._wire.status_codes import FINAL_CODES

if TYPE_CHECKING:
    from payments_async.journal import Journal
    from payments_async.journal._inbox import Heard

_log = logging.getLogger("payments_async.ipn")
_Predicate = Callable[[TransactionEvent], bool]
_BREATH = 0.01  # seconds for which commits that follow each other are heard of together


class Waiters:
    """They wait by request id, and by transaction id where they know it.

    Each looks once for what came before. Of what comes then one task hears for all of them, while anybody waits: it
    reads on in the inbox from where it was, whenever something was written there by whichever process.

    Args:
        inbox: Which other receivers may share.
        poll: Seconds after which it is read on though nothing was heard, and between two tries of what failed.
        sleep: Waits.
    """

    def __init__(
        self, inbox: Journal | None, *, poll: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._inbox = inbox
        self._poll = poll
        self._sleep = sleep
        self._waiters: dict[str, dict[asyncio.Future[TransactionEvent], _Predicate]] = {}
        self._tasks = Tasks("the receiver")
        self._heard: Heard | None = None  # how far it was read
        self._begun: asyncio.Future[None] | None = None  # done once nothing passes by any more; None while none hears
        self._again: asyncio.Future[None] | None = None  # done when everybody has to look once more

    def announce(self, event: TransactionEvent) -> None:
        """Wake those who wait for this event, if it is final."""
        if not self._waiters or event.status_code not in FINAL_CODES:
            return
        for key in {plain_id(event.request_id or ""), event.transaction_id}:
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
        look_up: Callable[[str, str | None], Awaitable[Sequence[TransactionEvent] | None]],
    ) -> TransactionEvent:
        """The final event, as soon as it is announced or found.

        Args:
            transaction_id: Only of this transaction; then the notification may leave the request id out.
            when: Says of an event whether it is the one.
            look_up: Gives the final events of an order, or of one transaction of it, that came before; ``None`` where
                that cannot be known now.
        """
        wanted = plain_id(request_id)

        def is_it(event: TransactionEvent) -> bool:
            if event.status_code not in FINAL_CODES:
                return False
            named = None if event.request_id is None else plain_id(event.request_id)
            if transaction_id is None:
                is_named = named == wanted
            else:
                is_named = event.transaction_id == transaction_id and named in (None, wanted)
            return is_named and (when is None or when(event))

        future: asyncio.Future[TransactionEvent] = asyncio.get_running_loop().create_future()
        key = wanted if transaction_id is None else transaction_id
        waiters = self._waiters.setdefault(key, {})
        waiters[future] = is_it  # before the first look: it may come while we look
        try:
            await self._heard_from_now_on(future)
            while not future.done():
                awaited: set[asyncio.Future[Any]] = {future} if self._again is None else {future, self._again}
                found = await look_up(request_id, transaction_id)
                for event in found or ():
                    if is_it(event):
                        return event
                patience = self._poll if found is None else None
                await asyncio.wait(awaited, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            return future.result()
        finally:
            del waiters[future]
            if not waiters and self._waiters.get(key) is waiters:
                del self._waiters[key]

    async def aclose(self) -> None:
        """Hear nothing more, unless somebody waits."""
        if not self._waiters:
            await self._tasks.aclose()
            self._begun = None

    async def _heard_from_now_on(self, future: asyncio.Future[TransactionEvent]) -> None:
        """Wait until nothing passes by that is written from now on, or what is waited for has come."""
        if self._inbox is None:
            return
        loop, begun = asyncio.get_running_loop(), self._begun
        if begun is None or begun.get_loop() is not loop:
            begun, self._again, self._heard = loop.create_future(), loop.create_future(), None
            self._begun = begun
            self._tasks.keep("hearing of other receivers", partial(self._hear, self._inbox, begun))
        awaited: set[asyncio.Future[Any]] = {future, begun}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)

    async def _hear(self, inbox: Journal, begun: asyncio.Future[None]) -> None:
        """Read on, as long as anybody waits."""
        seen, is_failing = 0, False
        while self._waiters:
            heard = self._heard
            try:
                seen = await inbox.committed(seen, timeout=self._poll)
                now, events = await inbox.finals_since(heard, self._is_awaited)
            except Exception as error:  # noqa: BLE001 - whatever the reason, those who wait go on waiting
                if not is_failing and self._waiters:  # else the inbox may have been closed meanwhile
                    why = error_text(error)
                    _log.warning("events of other receivers cannot be read: %s", why, extra={"error": why})
                is_failing = True
                await self._sleep(self._poll)
                continue
            for event in events:
                self.announce(event)
            if heard is not None and (now.event < heard.event or now.belief < heard.belief):
                self._look_again()
            self._heard, is_failing = now, False
            if not begun.done():
                begun.set_result(None)
            await self._sleep(_BREATH)
        self._begun = None

    def _is_awaited(self, request_key: str | None, transaction_id: str) -> bool:
        return request_key in self._waiters or transaction_id in self._waiters

    def _look_again(self) -> None:
        """The inbox was put back to what it was before: what is there now has other numbers."""
        again, self._again = self._again, asyncio.get_running_loop().create_future()
        if again is not None:
            again.set_result(None)
