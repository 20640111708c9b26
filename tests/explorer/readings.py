"""All lists of a small service, and all that it may show under a filter: what is believed of them is true.

A service has three transactions, of which each ended in its own way. It counts them rightly or not, fails at a page or
later, and knows all words of its filters, some, or none: then it shows everything, nothing, or refuses.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from decimal import Decimal
from typing import Any

import attrs
from explorer.desks import Report
from explorer.journals import MemoryJournal, run_in_a_loop
from explorer.lists import _PAYMENTS
from journal.factories import order

from payments_async import Page, Rejected, ServiceFault, Transaction, TransactionStatus
from payments_async._session.lists import Reader
from payments_async._session.statuses import read_statuses
from payments_async.journal import State
from payments_async.outbox._scans import DateRange, ListScanner, ReconcileTarget

DAYS = date(2026, 1, 4), date(2026, 1, 6)
TRUE = {"a": TransactionStatus.SUCCESSFUL, "b": TransactionStatus.FAILED, "c": TransactionStatus.PROCESSING}
ONE = order(1)
JOURNAL: list[MemoryJournal] = []
_ALL, _NONE, _REFUSES, _HONEST = "shows everything", "shows nothing", "is refused", "is known"


@attrs.frozen(kw_only=True)
class Service:
    """A service that lists.

    Attributes:
        words: What becomes of a filter by one of these statuses; of any other word ``unknown``.
        count: By how much it counts wrongly; ``None`` where it does not count.
        fails: At this page and all after it; 0 for none.
        size: Rows of a page.
    """

    words: dict[TransactionStatus, str] = attrs.field(factory=dict)
    unknown: str = _NONE
    count: int | None = 0
    fails: int = 0
    size: int = 500

    async def page(self, *, number: int, size: int, since: Any, until: Any, status: str | None) -> Page[Transaction]:
        """One page."""
        if self.fails and number >= self.fails:
            raise ServiceFault("not now")
        rows = list(TRUE)
        if status is not None:
            named = next((one for one in TransactionStatus if status in one.spellings), None)
            how = self.unknown if named is None else self.words.get(named, self.unknown)
            if how == _REFUSES:
                raise Rejected("no such status")
            rows = {_ALL: rows, _NONE: [], _HONEST: [id_ for id_ in rows if TRUE[id_] is named]}[how]
        shown = rows[(number - 1) * self.size : number * self.size]
        total = None if self.count is None else len(rows) + self.count
        return Page(collection=tuple(Transaction(transaction_id=id_) for id_ in shown), total_count=total)

    def reader(self) -> Reader:
        """Who reads it, without patience."""

        async def sleep(seconds: float) -> None:
            assert seconds >= 0

        return Reader(self.page, clock=lambda: 0.0, sleep=sleep)


def filtering() -> Iterator[Service]:
    """All that know a word for each of three statuses, or show everything under it, or nothing; and other words not."""
    statuses = TransactionStatus.SUCCESSFUL, TransactionStatus.FAILED, TransactionStatus.PROCESSING
    for unknown, *how in itertools.product((_ALL, _NONE, _REFUSES), *((_HONEST, _ALL, _NONE),) * 3):
        is_told = unknown == _ALL or sorted(how) in ([_HONEST] * 3, [_HONEST, _HONEST, _ALL])
        if is_told or _ALL not in how:  # else nothing tells it from one that filters
            words = dict(zip(statuses, how, strict=True)) | {TransactionStatus.ENQUEUED: how[2]}
            yield Service(words=words, unknown=unknown)


def filters(service: Service) -> Iterator[str]:
    """A status that is believed is the true one; one that filters is believed."""
    found = run_in_a_loop(read_statuses(service.reader(), *DAYS, TRUE)).found
    for id_, status in found.find(TRUE).items():
        if TRUE[id_] is not status:
            yield f"{service}: {id_} is believed to be {status}, and is {TRUE[id_]}"
    if {_HONEST} == set(service.words.values()) and service.unknown != _ALL and len(found) != 2:
        yield f"{service}: nothing of it is believed"


def listing() -> Iterator[Service]:
    """All that count, or not, and fail at some page, of some size."""
    for count, fails, size in itertools.product((None, -1, 0, 1), range(5), (1, 2, 500)):
        yield Service(count=count, fails=fails, size=size)


def lists(service: Service) -> Iterator[str]:
    """A list that counts has shown all that the service has; one of a service that does well counts."""
    reading, seen = service.reader().read(*DAYS, probes=True), set[str]()

    async def read() -> None:
        async for rows in reading.pages():
            seen.update(row.transaction_id for row in rows)

    run_in_a_loop(read())
    expected = len(TRUE) + (service.count or 0)
    if reading.counted and (service.count is None or len(seen) < expected or reading.failure is not None):
        yield f"{service}: it counts, and has shown {sorted(seen)}"
    if reading.problem is None and len(seen) < expected:
        yield f"{service}: absence from it is a proof, and it has shown {sorted(seen)}"
    if service.count == 0 and not service.fails and not reading.counted:
        yield f"{service}: it does not count: {reading.problem}"


def rows() -> Iterator[Transaction]:
    """Rows that name an order wrongly, or not at all, and those of others."""
    for request_id, amount in itertools.product(
        (None, ONE.request_id[:-1], ONE.request_id[:3], "x"), (None, 7, -ONE.amount)
    ):
        named = None if amount is None else Decimal(amount)
        yield Transaction(transaction_id="a", request_id=request_id, amount=named)


def unclaimed(row: Transaction) -> Iterator[str]:
    """An order counts as shown, perhaps, by a row that begins as its id does, or has its amount, or has none."""
    scanner = ListScanner(_PAYMENTS, JOURNAL[0], None)  # type: ignore[arg-type]
    scanner.notes_unclaimed = True
    target = ReconcileTarget(ONE.request_id, State.UNKNOWN, State.UNKNOWN, ONE.amount, None, None, 0.0)
    run_in_a_loop(scanner._take(DateRange(*DAYS), [row]))
    is_like = row.amount is None or abs(row.amount) == ONE.amount
    is_like = is_like or bool(row.request_id and ONE.request_id.startswith(row.request_id))
    if scanner.may_show(target) is not is_like:
        yield f"{row}: it {'may be' if is_like else 'is not'} that of the order, and counts otherwise"


def search() -> Report:
    """See all of them."""
    began, count = time.perf_counter(), 0
    JOURNAL[:] = [MemoryJournal()]
    with closing(JOURNAL[0].connection):
        for kinds, wrong in ((filtering, filters), (listing, lists), (rows, unclaimed)):
            for one in kinds():
                count += 1
                for words in wrong(one):
                    return Report(
                        name="lists that are read", states=count, seconds=time.perf_counter() - began, wrong=words
                    )
    return Report(name="lists that are read", states=count, seconds=time.perf_counter() - began)
