"""Notifications without an inbox: handlers run before the answer, and a failure asks the service to send again.

Memory alone knows a duplicate, a contradiction, and the final event of one who asks for it later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

import attrs

from payments_async._values.amounts import magnitude_text
from payments_async._values.handlers import LEAVES, HandlerPolicy, Workers, error_text
from payments_async._values.observing import Observer
from payments_async._values.request_ids import plain_id
from payments_async._values.tasks import Tasks
from payments_async._wire.events import TransactionEvent, contradicting, contradiction_of_events
from payments_async._wire.status_codes import FINAL_CODES
from payments_async.ipn._confirm import RecordSource, difference
from payments_async.ipn._health import ReceiverHealth
from payments_async.ipn._intake import CONTRADICTED, FAILED, Answer
from payments_async.ipn._routes import EventRouter
from payments_async.ipn._senders import Sender

V = TypeVar("V")
_log = logging.getLogger("payments_async.ipn")
_TRANSACTIONS = 10_000  # remembered, to know a duplicate
_FINALS = 1_000  # events remembered, for those who wait
_MOST_FACTS = 32  # about one transaction
_MOST_FINALS = 8  # of one order
_FINAL = tuple(f"{code} " for code in FINAL_CODES)
_made = tuple.__new__  # what calling the class of a named tuple gives, in a tenth of the time


class _Words(NamedTuple):
    """A notification as it came: body and query."""

    body: bytes
    query: str


_Key = tuple[str, str]  # transaction id, and what is said of it
_UnderWay = tuple[TransactionEvent, list[asyncio.Future[Answer | None]]]  # what handlers are told, and who waits
_Job = tuple[TransactionEvent, TransactionEvent, _Words, _Key]  # the event, and what handlers are told


@attrs.define(eq=False, repr=False, kw_only=True)
class InlinePipeline:
    """Handles events at once and remembers the last transactions, in memory.

    Attributes:
        read: Gives the event of body and query again.
        believed: Told of every event that is new, confirmed where that is asked for, and contradicts nothing.
    """

    _router: EventRouter
    _policy: HandlerPolicy
    _read: Callable[[bytes, str], TransactionEvent]
    _confirm: RecordSource | None
    _believed: Callable[[TransactionEvent], None]
    _observer: Observer | None = None
    _memory: _Memory = attrs.field(init=False)
    _under_way: dict[_Key, _UnderWay] = attrs.field(factory=dict, init=False)
    _tasks: Tasks = attrs.field(factory=lambda: Tasks("the receiver"), init=False)
    _workers: Workers[_Job] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._memory = _Memory(transactions=_TRANSACTIONS, finals=_FINALS)
        self._workers = Workers(self._tasks, self._work, most=self._policy.concurrency)

    def start(self) -> None:
        """Nothing was left over."""

    async def aclose(self) -> None:
        """Wait for handlers under way; one that goes on though it was cancelled is left."""
        await self._tasks.aclose(self._policy.drain, leaves=LEAVES)
        for told, _ in self._under_way.values():
            facts = {"handler": ", ".join(self._router.unfinished(told, ())), "transaction_id": told.transaction_id}
            _log.error("a handler does not end, so closing leaves it: %s, transaction %s", *facts.values(), extra=facts)
        self._router.close()

    def take(
        self, event: TransactionEvent, body: bytes, query: str, sender: Sender, is_usual: bool
    ) -> asyncio.Future[Answer | None] | None:
        """Handle an event that is new, though its caller hangs up; one that is only reported is not believed."""
        if not sender.is_known:
            return None
        fact = f"{event.status_code} {magnitude_text(event.amount)}"
        conflict, key = self._memory.note(event.transaction_id, fact), (event.transaction_id, fact)
        if conflict is None:
            self._note_again(event, fact, body, query)
            waiting = self._under_way.get(key) if self._under_way else None
            return None if waiting is None else _one_more(waiting[1])
        if conflict and self._observer is not None:
            self._observer.count("quirk", quirk="contradicting_notification")
        told, words = contradicting(event, conflict) if conflict else event, _made(_Words, (body, query))
        if self._confirm is None:
            if not conflict:
                self._believe(event, words)
            if not self._router.hears(told):
                return None
        self._under_way[key] = waiting = (told, [])
        self._workers.put((event, told, words, key))
        return _one_more(waiting[1])

    async def final_events(self, request_id: str, transaction_id: str | None = None) -> Sequence[TransactionEvent]:
        """The final events of an order, or of a transaction of it, as far as they are remembered."""
        return [self._read(*words) for words in self._memory.final_events(request_id, transaction_id)]

    async def replay(self, event_id: int | None) -> int:
        """Refuse.

        Raises:
            ValueError: Always.
        """
        raise ValueError("there is no inbox, so there are no dead letters")

    async def health(self) -> ReceiverHealth:
        """Nothing waits."""
        return ReceiverHealth()

    def _note_again(self, event: TransactionEvent, fact: str, body: bytes, query: str) -> None:
        """A repeat may name the request id that the first left out."""
        if (
            self._confirm is None
            and event.status_code in FINAL_CODES
            and self._memory.stands(event.transaction_id, fact)
        ):
            self._believe(event, _made(_Words, (body, query)))

    def _believe(self, event: TransactionEvent, words: _Words) -> None:
        """Remember what is final, and tell those who wait."""
        self._memory.keep(event, words)
        self._believed(event)

    async def _work(self, job: _Job) -> None:
        """Handle one event and answer everybody who sent it; what was refused is new again next time."""
        event, told, words, key = job
        refused: Answer | None = FAILED
        try:
            refused = await self._handle(event, told, words)
        finally:
            if refused is not None:
                self._memory.forget(*key)
            for future in self._under_way.pop(key)[1]:
                if not future.done():  # its caller may have hung up
                    future.set_result(refused)

    async def _handle(self, event: TransactionEvent, told: TransactionEvent, words: _Words) -> Answer | None:
        """Have it confirmed where that is asked for, then run its handlers: the answer, if it is not 200."""
        if self._confirm is not None:
            refused = await self._disputed(self._confirm, event)
            if refused is not None:
                return refused
            if told is event:
                self._believe(event, words)
        return FAILED if await self._router.run(told) else None

    async def _disputed(self, records: RecordSource, event: TransactionEvent) -> Answer | None:
        """The answer where the service's record does not bear the event out, or cannot be read."""
        facts = {"transaction_id": event.transaction_id}
        try:
            differs = await difference(records, event, self._policy.timeout)
        except Exception as error:  # noqa: BLE001 - whatever the reason, there is no record to believe yet
            facts["error"] = error_text(error)
            _log.warning("a notification could not be confirmed: transaction %s: %s", *facts.values(), extra=facts)
            return FAILED
        if differs is None:
            return None
        facts["difference"] = differs
        _log.error("a notification is disputed: transaction %s: %s", *facts.values(), extra=facts)
        return CONTRADICTED


def _one_more(waiting: list[asyncio.Future[Answer | None]]) -> asyncio.Future[Answer | None]:
    """A future of his own for everybody who waits: one who hangs up cancels his."""
    future: asyncio.Future[Answer | None] = asyncio.Future()
    waiting.append(future)
    return future


class _Memory:
    """The last transactions that were notified of.

    What lies long in memory is paid for by every notification, with memory that is not in the processor's cache. So
    one short text is kept of a transaction, and of a final event the words it can be read from again.

    Args:
        transactions: How many are kept, at least.
        finals: How many final events are kept, at least, for those who ask for one later.
    """

    def __init__(self, *, transactions: int, finals: int) -> None:
        self._said: _Latest[str] = _Latest(transactions)  # facts, oldest first
        self._finals: _Latest[tuple[_Words, ...]] = _Latest(2 * finals)  # by request id, and by transaction

    def note(self, transaction_id: str, fact: str) -> str | None:
        """Remember what is said of a transaction: its status code and magnitude.

        Returns:
            ``None`` when the same was said before, otherwise what it contradicts in words, or ``""``.
        """
        said = self._said.get(transaction_id)
        if said is None:
            self._said.put(transaction_id, fact)
            return ""
        if fact == said:
            return None
        facts = said.split(",")
        if fact in facts:
            return None
        self._said.put(transaction_id, ",".join((*facts[:_MOST_FACTS], fact)))
        return _contradiction(facts, fact)

    def forget(self, transaction_id: str, fact: str) -> None:
        """Forget what was said: the next delivery that says it is new again."""
        said = self._said.pop(transaction_id)
        rest = [] if said is None else [known for known in said.split(",") if known != fact]
        if rest:
            self._said.put(transaction_id, ",".join(rest))

    def stands(self, transaction_id: str, fact: str) -> bool:
        """Whether this is the first final thing that was said of a transaction."""
        said = self._said.get(transaction_id)
        return said is not None and next((f for f in said.split(",") if f.startswith(_FINAL)), None) == fact

    def keep(self, event: TransactionEvent, words: _Words) -> None:
        """Keep an event that is believed, if it is final."""
        if event.status_code not in FINAL_CODES:
            return
        by_transaction, by_request = f"t{event.transaction_id}", f"r{plain_id(event.request_id or '')}"
        for key in (by_transaction,) if event.request_id is None else (by_request, by_transaction):
            known = self._finals.get(key) or ()
            if len(known) < _MOST_FINALS and words not in known:
                self._finals.put(key, (*known, words))

    def final_events(self, request_id: str, transaction_id: str | None = None) -> tuple[_Words, ...]:
        """The words of the final events of an order or a transaction that are remembered, oldest first."""
        key = f"r{plain_id(request_id)}" if transaction_id is None else f"t{transaction_id}"
        return self._finals.get(key) or ()


class _Latest(Generic[V]):
    """The last values that were put, from ``most`` to twice as many.

    Half are dropped at once: one after the other would leave memory full of small holes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._new: dict[str, V] = {}
        self._old: dict[str, V] = {}

    def get(self, key: str) -> V | None:
        value = self._new.get(key)
        return self._old.get(key) if value is None else value

    def put(self, key: str, value: V) -> None:
        if len(self._new) >= self._most:
            self._old, self._new = self._new, {}
        self._new[key] = value

    def pop(self, key: str) -> V | None:
        old = self._old.pop(key, None)
        return self._new.pop(key, old)


def _contradiction(said: Iterable[str], fact: str) -> str:
    """What a fact contradicts of those before it, in words, or ``""``."""
    final = next((known for known in said if known.startswith(_FINAL)), None)
    if final is None:
        return ""
    (code, amount), (final_code, final_amount) = fact.split(" "), final.split(" ")
    return contradiction_of_events(int(code), amount, int(final_code), final_amount) or ""
