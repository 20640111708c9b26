"""Notifications without an inbox: handlers run before the answer, and a failure asks the service to send again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from payments_async._events import TransactionEvent
from payments_async.ipn import _answers as answers
from payments_async.ipn._answers import Answer
from payments_async.ipn._confirm import Confirming, difference
from payments_async.ipn._dispatch import conflict_of
from payments_async.ipn._handling import Handling
from payments_async.ipn._recent import Recent, Words, fact_of
from payments_async.ipn._router import Router, words
from payments_async.ipn._tasks import Tasks, Workers

__all__ = ["Unkept"]

_log = logging.getLogger("payments_async.ipn")
Key = tuple[str, str]  # transaction id, and what is said of it
Job = tuple[TransactionEvent, TransactionEvent, Words, Key]  # the event, and what handlers are told
_TRANSACTIONS = 10_000  # remembered, to know a duplicate
_FINALS = 1_000  # events remembered, for those who wait
_made = tuple.__new__  # what calling the class of a named tuple gives, in a tenth of the time


class Unkept:
    """Handles events at once and remembers the last transactions, in memory, to know a duplicate.

    Args:
        read: Gives the event of body and query again.
        believed: Told of every event that is new, confirmed where that is asked for, and contradicts nothing.
    """

    def __init__(
        self,
        router: Router,
        handling: Handling,
        *,
        read: Callable[[bytes, str], TransactionEvent],
        confirm: Confirming | None,
        believed: Callable[[TransactionEvent], None],
        tasks: Tasks,
    ) -> None:
        self._router = router
        self._handling = handling
        self._read = read
        self._confirm = confirm
        self._believed = believed
        self._recent = Recent(transactions=_TRANSACTIONS, finals=_FINALS)
        self._under_way: dict[Key, list[asyncio.Future[Answer | None]]] = {}
        self._workers = Workers(tasks, self._work, most=handling.concurrency)

    def take(self, event: TransactionEvent, body: bytes, query: str) -> asyncio.Future[Answer | None] | None:
        """Handle an event that is new, though its caller hangs up.

        Returns:
            The answer, if it is not 200, or ``None`` where there is nothing to wait for.
        """
        fact = fact_of(event)
        conflict, key = self._recent.note(event.transaction_id, fact), (event.transaction_id, fact)
        if conflict is None:
            self._note_again(event, fact, body, query)
            waiting = self._under_way.get(key) if self._under_way else None
            return None if waiting is None else _one_more(waiting)
        told, words = conflict_of(event, conflict) if conflict else event, _made(Words, (body, query))
        if self._confirm is None:
            if not conflict:
                self._believe(event, words)
            if not self._router.hears(told):
                return None
        self._under_way[key] = waiting = []
        self._workers.put((event, told, words, key))
        return _one_more(waiting)

    async def final_events(self, request_id: str, transaction_id: str | None = None) -> Sequence[TransactionEvent]:
        """The final events of an order, or of a transaction of it, as far as they are remembered."""
        return [self._read(*words) for words in self._recent.final_events(request_id, transaction_id)]

    def _note_again(self, event: TransactionEvent, fact: str, body: bytes, query: str) -> None:
        """A repeat may name the request id that the first left out."""
        if self._confirm is None and event.status_code in (0, 2) and self._recent.stands(event.transaction_id, fact):
            self._believe(event, _made(Words, (body, query)))

    def _believe(self, event: TransactionEvent, words: Words) -> None:
        self._recent.keep(event, words)
        self._believed(event)

    async def _work(self, job: Job) -> None:
        event, told, words, key = job
        refused: Answer | None = answers.FAILED
        try:
            refused = await self._handle(event, told, words)
        finally:
            if refused is not None:
                self._recent.forget(*key)
            for future in self._under_way.pop(key):
                if not future.done():  # its caller may have hung up
                    future.set_result(refused)

    async def _handle(self, event: TransactionEvent, told: TransactionEvent, words: Words) -> Answer | None:
        if self._confirm is not None:
            refused = await self._disputed(self._confirm, event)
            if refused is not None:
                return refused
            if told is event:
                self._believe(event, words)
        return answers.FAILED if await self._router.run(told) else None

    async def _disputed(self, payments: Confirming, event: TransactionEvent) -> Answer | None:
        facts = {"transaction_id": event.transaction_id}
        try:
            async with asyncio.timeout(self._handling.timeout):
                differs = await difference(payments, event)
        except Exception as error:  # noqa: BLE001 - whatever the reason, there is no record to believe yet
            _log.warning("a notification could not be confirmed", extra={**facts, "error": words(error)})
            return answers.FAILED
        if differs is None:
            return None
        _log.error("a notification is disputed", extra={**facts, "difference": differs})
        return answers.CONTRADICTED


def _one_more(waiting: list[asyncio.Future[Answer | None]]) -> asyncio.Future[Answer | None]:
    """A future of his own for everybody who waits: one who hangs up cancels his."""
    future: asyncio.Future[Answer | None] = asyncio.Future()
    waiting.append(future)
    return future
