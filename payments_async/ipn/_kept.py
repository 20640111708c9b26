"""Notifications with an inbox: stored before the answer, handled after it. Reads no body."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from payments_async._events import TransactionEvent
from payments_async.ipn import _answers as answers
from payments_async.ipn._answers import Answer
from payments_async.ipn._confirm import Confirming, difference
from payments_async.ipn._dispatch import Dispatcher, Job
from payments_async.ipn._router import words
from payments_async.ipn._tasks import Tasks
from payments_async.journal._inbox import Delivery, Inbox

__all__ = ["Kept"]

_log = logging.getLogger("payments_async.ipn")


class Kept:
    """Stores deliveries and hands new events to the dispatcher.

    Args:
        believed: Told of every new event that contradicts nothing; with ``confirm`` the dispatcher tells it instead.
    """

    def __init__(
        self,
        inbox: Inbox,
        dispatcher: Dispatcher,
        *,
        owner: str,
        confirm: Confirming | None,
        believed: Callable[[TransactionEvent], None],
        tasks: Tasks,
        clock: Callable[[], float],
    ) -> None:
        self._inbox = inbox
        self._dispatcher = dispatcher
        self._owner = owner
        self._confirm = confirm
        self._believed = believed
        self._tasks = tasks
        self._clock = clock

    def take(self, event: TransactionEvent, body: bytes, query: str, sender: str) -> asyncio.Task[Answer | None]:
        """Store a delivery: the task that does it."""
        delivery = Delivery(body=body, query=query, peer=sender, received_at=self._clock())
        return self._tasks.start(self._store(delivery, event))

    async def final_event(self, request_id: str) -> TransactionEvent | None:
        """The first final event of an order in the inbox; with ``confirm``, only if the record bears it out."""
        try:
            event = await self._inbox.final_event(request_id)
            if event is None or self._confirm is None or await difference(self._confirm, event) is None:
                return event
        except Exception as error:  # noqa: BLE001 - whoever waits goes on waiting
            _log.warning("a final event could not be looked up", extra={"error": words(error)})
        return None

    async def _store(self, delivery: Delivery, event: TransactionEvent) -> Answer | None:
        lease = self._dispatcher.lease
        try:
            receipt = await self._inbox.receive(delivery, event, owner=self._owner, lease=lease)
        except Exception as error:  # noqa: BLE001 - not stored, whatever the reason, so not answered 200
            facts = {"transaction_id": event.transaction_id, "error": words(error)}
            _log.error("a notification could not be stored", extra=facts)
            return answers.NOT_STORED
        if receipt.is_new:
            if receipt.conflict is None and self._confirm is None:
                self._believed(event)
            if lease:
                self._dispatcher.take(
                    Job(receipt.event_id, event, delivery.received_at + lease, receipt.conflict)
                )  # fmt: skip
        return None
