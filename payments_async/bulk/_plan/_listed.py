"""Whom the account has paid of late, by the service's list: for a journal that does not know all of it."""

from __future__ import annotations

from datetime import timedelta

import attrs

from payments_async._session.lists import Reader
from payments_async._session.session import PaymentsSession, executor_of
from payments_async._values.request_ids import plain_id
from payments_async._wire.kinds import reference_of
from payments_async._wire.models import Transaction, TransactionStatus
from payments_async._wire.orders import PayoutOrder
from payments_async.bulk._problems import OrderIssue
from payments_async.journal import Journal
from payments_async.outbox._scans import DateRange

_UNPAID = (TransactionStatus.FAILED, TransactionStatus.REVERSED)
_DIGITS = 9  # at the end of a telephone number, which it has in every form
_KEPT = 3  # transactions of one payee and amount


@attrs.define(eq=False, repr=False)
class ListedPayouts:
    """Payouts that the service's list of some days shows, and that the journal does not hold.

    Attributes:
        days: So many, until today.
        problem: Why a payee that is missing may have been paid all the same, or ``None``.
    """

    days: int
    problem: str | None = attrs.field(init=False, default=None)
    _request_ids: dict[int, list[str]] = attrs.field(init=False, factory=dict)  # by payee and amount

    async def read(self, payments: PaymentsSession, journal: Journal | None, now: float) -> None:
        """Read the list to its end.

        Raises:
            AuthenticationFailed: The service refused our credentials.
        """
        executor = executor_of(payments)
        reader = Reader(payments.transactions.page, clock=executor.clock, sleep=executor.sleep)
        first = now - timedelta(days=self.days).total_seconds()
        window = DateRange.to_now(first, now, payments.dialect.timezone)
        reading = reader.read(window.since, window.until)
        async for records in reading.pages():
            ids = [record.request_id for record in records if record.request_id is not None]
            known = {} if journal is None else await journal.entries_of(ids)
            for record in records:
                if record.request_id not in known:
                    self._take(record)
        self.problem = reading.problem

    def _take(self, record: Transaction) -> None:
        """Take down a payout, under each number that its record names."""
        payee, kind = record.beneficiary, (record.transaction_type or "").upper()
        if payee is None or record.amount is None or record.status in _UNPAID or kind.startswith("COLLECT"):
            return
        for number in {_plain(text) for text in (payee.customer_reference, payee.phone) if text}:
            found = self._request_ids.setdefault(hash((number, record.amount.copy_abs())), [])
            if len(found) < _KEPT:
                found.append(record.request_id or record.transaction_id)

    def issue(self, order: PayoutOrder) -> OrderIssue | None:
        """What a person has to look at before an order is sent: somebody has paid as much to the same payee."""
        if not self._request_ids:
            return None
        listed = self._request_ids.get(hash((_plain(reference_of(order)), order.amount)), ())
        other = next((one for one in listed if plain_id(one) != plain_id(order.request_id)), None)
        if other is None:
            return None
        remedy = (
            f"the service's list shows a payout of the same amount to the same payee within the last {self.days} days, "
            "and this journal does not hold it: is it the same payment under another id? It would be paid twice"
        )
        return OrderIssue("request_id", other, remedy, blocks=False, concerns=True)


def _plain(number: str) -> str:
    """The end of a number, however it is punctuated."""
    return "".join(filter(str.isalnum, number)).casefold()[-_DIGITS:]
