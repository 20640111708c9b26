"""Notifications with an inbox: stored before the answer, handled after it. Reads no body."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from payments_async._events import TransactionEvent
from payments_async.ipn import _answers as answers
from payments_async.ipn._answers import Answer
from payments_async.ipn._confirm import Confirming
from payments_async.ipn._dispatch import Dispatcher, Job
from payments_async.ipn._router import Router, words
from payments_async.ipn._senders import Sender
from payments_async.ipn._storing import Storing
from payments_async.journal._inbox import Arrival, Doubt, Inbox, RawNotification, Receipt

__all__ = ["Kept"]

_log = logging.getLogger("payments_async.ipn")
_made = tuple.__new__  # what calling the class of a named tuple gives, in a tenth of the time


class Kept:
    """Stores deliveries and hands new events to the dispatcher.

    Args:
        believed: Told of every new event that contradicts nothing; with ``confirm`` the dispatcher tells it instead.
    """

    def __init__(
        self,
        inbox: Inbox,
        storing: Storing,
        dispatcher: Dispatcher,
        router: Router,
        *,
        confirm: Confirming | None,
        believed: Callable[[TransactionEvent], None],
        clock: Callable[[], float],
    ) -> None:
        self._inbox = inbox
        self._storing = storing
        self._dispatcher = dispatcher
        self._router = router
        self._confirm = confirm
        self._believed = believed
        self._clock = clock
        self._is_failing = False
        storing.tell(self._stored)

    async def stores(self) -> bool:
        """Whether a delivery that comes now would be stored, as far as one can know."""
        if self._is_failing:
            try:
                await self._inbox.check_writable()
            except Exception as error:  # noqa: BLE001 - whatever the reason, that is what is asked for
                _log.error("the inbox cannot be written", extra={"error": words(error)})
                return False
            self._is_failing = False
        return True

    def take(
        self, event: TransactionEvent, body: bytes, query: str, sender: Sender, is_usual: bool
    ) -> asyncio.Future[Answer | None]:
        """Store a delivery: the answer, if it is not 200. It is stored and handled though nobody waits for that.

        Args:
            is_usual: As ``Arrival.usual``.
        """
        delivery = _made(RawNotification, (body, query, sender.address, self._clock()))
        unheard = self._confirm is None and not self._router.hears(event)
        doubt = None if self._confirm is None else Doubt.UNCONFIRMED
        if not sender.is_known:
            doubt = Doubt.REPORTED
        return self._storing.arrive(_made(Arrival, (delivery, event, self._dispatcher.lease, unheard, is_usual, doubt)))

    async def final_events(self, request_id: str, transaction_id: str | None = None) -> Sequence[TransactionEvent]:
        """The final events in the inbox of an order, or of a transaction of it; none that waits to be confirmed."""
        try:
            return await self._inbox.final_events(request_id, transaction_id)
        except Exception as error:  # noqa: BLE001 - whoever waits goes on waiting
            _log.warning("a final event could not be looked up", extra={"error": words(error)})
        return ()

    def _stored(self, arrival: Arrival, receipt: Receipt | Exception) -> Answer | None:
        event = arrival.event
        if isinstance(receipt, Exception):  # whatever the reason, it is not answered 200
            facts = {"transaction_id": event.transaction_id, "error": words(receipt)}
            _log.error("a notification could not be stored", extra=facts)
            self._is_failing = True
            return answers.NOT_STORED
        if receipt.is_new and arrival.doubt != Doubt.REPORTED:
            if receipt.conflict is None and arrival.doubt is None:
                self._believed(event)
            if arrival.lease and (receipt.conflict is not None or not arrival.unheard):
                until = arrival.delivery.received_at + arrival.lease
                self._dispatcher.take(
                    _made(Job, (receipt.event_id, event, until, receipt.conflict, 0, frozenset(), arrival.doubt))
                )
        return None
