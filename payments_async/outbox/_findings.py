"""What a reconciliation comes to: the report, and the evidence that goes into the journal. Asks the service nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal

import attrs

from payments_async._models import Transaction, TransactionStatus
from payments_async.journal._contract import Journal
from payments_async.journal._records import Evidence
from payments_async.journal._states import News, State
from payments_async.outbox._window import Wanted

__all__ = ["LOOKED_UP", "STATES", "Difference", "Double", "Findings", "Reconciliation", "evidence_of"]

_MOST = 1000  # records nobody sent that are kept in the report; the others are counted

LOOKED_UP: Mapping[TransactionStatus, News] = {
    TransactionStatus.ENQUEUED: News.LOOKED_UP_PROCESSING,
    TransactionStatus.PROCESSING: News.LOOKED_UP_PROCESSING,
    TransactionStatus.SUCCESSFUL: News.LOOKED_UP_SUCCESSFUL,
    TransactionStatus.FAILED: News.LOOKED_UP_FAILED,
    TransactionStatus.REVERSED: News.LOOKED_UP_REVERSED,
}

STATES: Mapping[TransactionStatus, State] = {
    TransactionStatus.SUCCESSFUL: State.SUCCESSFUL,
    TransactionStatus.FAILED: State.FAILED,
    TransactionStatus.REVERSED: State.REVERSED,
}


@attrs.frozen(kw_only=True)
class Difference:
    """A record of the service that carries the request id of an order, and another amount or currency.

    Attributes:
        ours, theirs: Magnitudes.
    """

    request_id: str
    transaction_id: str
    ours: Decimal
    theirs: Decimal | None
    our_currency: str | None = None
    their_currency: str | None = None


@attrs.frozen(kw_only=True)
class Double:
    """An order of which the service shows more than one transaction: it may have been paid more than once.

    Attributes:
        transaction_ids: Those that were seen, the one we knew first.
    """

    request_id: str
    transaction_ids: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Reconciliation:
    """What became of open orders, and what needs a person.

    Attributes:
        found: How many orders the list showed that were planned as far as the journal knew: they are not sent.
        settled: How many orders left ``unknown``, ``parked`` or ``accepted``, by their state now.
        unknown: Request ids of orders that are still unknown.
        parked: Request ids of orders parked by this very call.
        conflicts: Request ids with a contradiction that nobody has acknowledged.
        stuck: Request ids accepted longer ago than ``stuck_after`` and without an end.
        strangers: Records in the list whose request id the journal does not hold, at most 1,000 of them.
        strangers_seen: How many there were, counted once for each time the days they are in were read.
        differences: Records whose amount or currency is not the order's.
        doubles: Orders with more than one transaction.
        unread: What is not settled because a list could not be read to its end; reconcile again when it can be.
        notes: What hindered, that included: filters the service ignores, lists that show too little to prove anything.
    """

    settled: Mapping[str, int]
    found: int = 0
    unknown: tuple[str, ...] = ()
    parked: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    strangers: tuple[Transaction, ...] = ()
    strangers_seen: int = 0
    differences: tuple[Difference, ...] = ()
    doubles: tuple[Double, ...] = ()
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Findings:
    """Puts evidence into the journal and remembers what there is to report."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.settled: Counter[str] = Counter()
        self.found = 0
        self.unknown: list[str] = []
        self.parked: list[str] = []
        self.stuck: list[str] = []
        self.strangers: dict[str, Transaction] = {}
        self.strangers_seen = 0
        self.differences: dict[str, Difference] = {}
        self.doubles: dict[str, dict[str, None]] = {}  # transaction ids, in the order they were seen in
        self.unread: dict[str, None] = {}
        self.notes: dict[str, None] = {}

    def note(self, words: str) -> None:
        """Something that hinders."""
        self.notes[words] = None

    async def apply(self, order: Wanted, evidence: Evidence) -> bool:
        """Write evidence about an order down; tells whether it agrees with the order."""
        finding = await self._journal.apply_evidence(evidence)
        if finding is None or finding.request_id != order.request_id:
            return False
        order.state = finding.state
        if (finding.conflict is None or finding.state is not finding.before) and evidence.transaction_id is not None:
            order.transaction_id = evidence.transaction_id
        return finding.conflict is None

    async def apply_record(self, order: Wanted, record: Transaction, source: str) -> bool:
        """Write down what a record says of an order, at least that the service has it."""
        self.compare(order.request_id, order.amount, order.currency, record)
        news = News.LOOKED_UP_PROCESSING if record.status is None else LOOKED_UP.get(record.status)
        return await self.apply(order, evidence_of(record, news or News.LOOKED_UP_PROCESSING, source))

    async def park(self, order: Wanted, detail: str) -> None:
        """Nothing shows an order: a person has to decide."""
        finding = await self._journal.park(order.request_id, detail=detail)
        order.state = finding.state
        if finding.state is State.PARKED and finding.before is not State.PARKED:
            self.parked.append(order.request_id)

    def double(self, request_id: str, *transaction_ids: str) -> None:
        """More than one transaction of one order."""
        self.doubles.setdefault(request_id, {}).update(dict.fromkeys(transaction_ids))

    def stranger(self, record: Transaction) -> None:
        """A record nobody here has sent."""
        if record.transaction_id not in self.strangers:
            self.strangers_seen += 1
            if len(self.strangers) < _MOST:
                self.strangers[record.transaction_id] = record

    def sum_up(self, order: Wanted, before: float) -> None:
        """An order has been looked for everywhere.

        Args:
            before: Unix seconds; one accepted earlier than that should have ended by now.
        """
        if order.state is not order.first and order.state is not State.PARKED:
            self.settled[order.state.value] += 1
        if order.state is State.UNKNOWN:
            self.unknown.append(order.request_id)
        if order.state is State.ACCEPTED and order.at <= before:
            self.stuck.append(order.request_id)

    async def report(self, batch_id: str | None) -> Reconciliation:
        """All of it."""
        return Reconciliation(
            settled=dict(self.settled), found=self.found, unknown=tuple(self.unknown), parked=tuple(self.parked),
            conflicts=tuple([entry.request_id async for entry in self._journal.conflicts(batch_id)]),
            stuck=tuple(self.stuck), strangers=tuple(self.strangers.values()), strangers_seen=self.strangers_seen,
            differences=tuple(self.differences.values()), unread=tuple(self.unread), notes=(*self.unread, *self.notes),
            doubles=tuple(Double(request_id=id_, transaction_ids=tuple(seen)) for id_, seen in self.doubles.items()),
        )  # fmt: skip

    def compare(self, request_id: str, amount: Decimal, currency: str | None, record: Transaction) -> None:
        """Note where a record is about another amount."""
        same = record.amount is None or record.amount.copy_abs() == amount
        if currency is not None and record.currency is not None:
            same = same and currency.upper() == record.currency.strip().upper()
        if not same:
            self.differences[record.transaction_id] = Difference(
                request_id=request_id, transaction_id=record.transaction_id, ours=amount,
                theirs=None if record.amount is None else record.amount.copy_abs(),
                our_currency=currency, their_currency=record.currency,
            )  # fmt: skip


def evidence_of(record: Transaction, news: News, source: str) -> Evidence:
    """What a record says, word for word."""
    return Evidence(
        news=news, source=source, request_id=record.request_id, transaction_id=record.transaction_id,
        amount=record.amount, currency=record.currency,
    )  # fmt: skip
