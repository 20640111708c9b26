"""Whether the service's own record bears a notification out. Waits for no final status and retries nothing."""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from payments_async._events import TransactionEvent
from payments_async._models import TransactionStatus

__all__ = ["Confirming", "difference"]

_CONTRADICTIONS = ((0, TransactionStatus.FAILED), (2, TransactionStatus.SUCCESSFUL))  # Spec: "0 success, 2 error"


class Record(Protocol):
    """As much of a transaction record as is compared."""

    @property
    def transaction_id(self) -> str: ...
    @property
    def request_id(self) -> str | None: ...
    @property
    def amount(self) -> Decimal | None: ...
    @property
    def currency(self) -> str | None: ...
    @property
    def status(self) -> TransactionStatus | None: ...


class Records(Protocol):
    """Where a record is read."""

    async def get(self, transaction_id: str, /) -> Record:
        """The record of a transaction; raises while there is none."""


class Confirming(Protocol):
    """As much of a session as confirming needs: ``PaymentsSession`` is one."""

    @property
    def transactions(self) -> Records:
        """The service's transactions."""


async def difference(payments: Confirming, event: TransactionEvent) -> str | None:
    """In words, where the record and the notification disagree; ``None`` when the record bears it out.

    Of the status only success and failure are compared: most records show none, and the service may not show a final
    one before its notification was answered.

    Raises:
        Exception: Whatever the session raises when the record cannot be read, or does not exist yet.
    """
    record = await payments.transactions.get(event.transaction_id)
    if record.transaction_id.strip().casefold() != event.transaction_id.casefold():
        raise LookupError("the record is of another transaction")
    if None not in (event.request_id, record.request_id) and event.request_id != record.request_id:
        return "the record names another request id"
    # payouts are negative in records: magnitudes are compared
    if event.amount is not None and record.amount is not None and abs(event.amount) != abs(record.amount):
        return f"the record's amount is {abs(record.amount)}, the notification's {abs(event.amount)}"
    if event.currency_code and record.currency and event.currency_code.upper() != record.currency.upper():
        return "the record is in another currency"
    if (event.status_code, record.status) in _CONTRADICTIONS:
        return f"the record says {record.status}"
    return None
