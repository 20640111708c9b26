"""Whether the service's own record bears a notification out."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Protocol

from payments_async._values.amounts import currency_key
from payments_async._values.request_ids import plain_id
from payments_async._wire.events import TransactionEvent
from payments_async._wire.models import TransactionStatus
from payments_async._wire.status_codes import STATUS_CODES

_ENDS = {code: TransactionStatus[row.status] for code, row in STATUS_CODES.items() if row.is_final and row.status}


class TransactionRecord(Protocol):
    """As much of a transaction's record as is compared."""

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


class TransactionRecords(Protocol):
    """Where a record is read."""

    async def get(self, transaction_id: str, /) -> TransactionRecord:
        """The record of a transaction; raises while there is none."""


class RecordSource(Protocol):
    """As much of a session as confirming needs: ``PaymentsSession`` is one."""

    @property
    def transactions(self) -> TransactionRecords:
        """The service's transactions."""


async def difference(source: RecordSource, event: TransactionEvent, timeout: float) -> str | None:
    """In words, where the record and the notification disagree; ``None`` when the record bears it out.

    Of the status only success and failure are compared: most records show none, and the service may not show a final
    one before its notification was answered.

    Args:
        timeout: Seconds that reading it may take.

    Raises:
        Exception: Whatever the session raises when the record cannot be read, or does not exist yet.
    """
    async with asyncio.timeout(timeout):
        record = await source.transactions.get(event.transaction_id)
    if record.transaction_id.strip().casefold() != event.transaction_id.casefold():
        raise LookupError("the record is of another transaction")
    if len({plain_id(one) for one in (event.request_id, record.request_id) if one is not None}) > 1:
        return "the record names another request id"
    # payouts are negative in records: magnitudes are compared
    if event.amount is not None and record.amount is not None and abs(event.amount) != abs(record.amount):
        return f"the record's amount is {abs(record.amount)}, the notification's {abs(event.amount)}"
    if event.currency_code and record.currency and currency_key(event.currency_code) != currency_key(record.currency):
        return "the record is in another currency"
    end = _ENDS.get(event.status_code)
    if end is not None and record.status in _ENDS.values() and record.status != end:
        return f"the record says {record.status}"
    return None
