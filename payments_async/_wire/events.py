"""The typed events a notification becomes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import attrs

from payments_async._values.amounts import magnitude_text
from payments_async._values.masking import masked
from payments_async._wire.status_codes import FINAL_CODES, STATUS_CODES


# slots=False halves the time that creating a frozen event takes, and one is created for every notification
@attrs.frozen(kw_only=True, slots=False)
class TransactionEvent:
    """A notification about one transaction.

    Attributes:
        transaction_id: Lower case when it is a UUID.
        status_code: 0 success, 1 processing, 2 error; others are possible and undocumented.
        request_id: Ours; ``None`` when neither body nor query named one.
        amount: Exact, signed as it came, in units of ``currency_code``; ``None`` when it was not given.
        created_on: Aware; ``None`` when missing or unreadable (the text is in ``extra``).
        extra: Members beyond the documented ones, as they came.
        event_id: Its number in the inbox, as ``ipn replay`` takes it; ``None`` where no inbox keeps the event. Two
            equal events may differ in it. To do something once, remember ``fact_id``.
    """

    transaction_id: str
    status_code: int
    request_id: str | None = None
    account_id: str | None = attrs.field(default=None, repr=masked)
    subscription_id: str | None = None
    batch_id: str | None = None
    status_message: str | None = attrs.field(default=None, repr=masked)
    correlation_id: str | None = None
    created_on: datetime | None = None
    amount: Decimal | None = None
    currency_code: str | None = None
    extra: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    event_id: int | None = attrs.field(default=None, eq=False)

    @property
    def fact_id(self) -> str:
        """Names what it tells: transaction, status code and amount without its sign, such as ``t-1:0:500.25``.

        It is the same for every delivery and every run, in each process, with an inbox and without one. Write it down
        in the commit of what a handler does, to do it once.
        """
        return f"{self.transaction_id}:{self.status_code}:{magnitude_text(self.amount)}"


class TransactionSucceeded(TransactionEvent):
    """Status code 0: the money has moved."""


class TransactionProcessing(TransactionEvent):
    """Status code 1: not final."""


class TransactionFailed(TransactionEvent):
    """Status code 2: the service says it will not move."""


class TransactionUnrecognised(TransactionEvent):
    """Any other status code: neither success nor failure. A person should look at it."""


@attrs.frozen(kw_only=True, slots=False)
class TransactionConflict(TransactionEvent):
    """A notification that contradicts an earlier final one; the earlier one stands.

    Attributes:
        conflict: What contradicts what, in words.
    """

    conflict: str = ""


_BY_NAME = {kind.__name__: kind for kind in TransactionEvent.__subclasses__()}
EVENT_TYPES: Mapping[int, type[TransactionEvent]] = {code: _BY_NAME[row.event] for code, row in STATUS_CODES.items()}


def contradicting(event: TransactionEvent, conflict: str) -> TransactionConflict:
    """The event as one that contradicts an earlier final one."""
    fields = {field.name: getattr(event, field.name) for field in attrs.fields(type(event))}
    return TransactionConflict(**fields | {"conflict": conflict})


def contradiction_of_events(status_code: int, magnitude: str, final_code: int, final_magnitude: str) -> str | None:
    """What a notification contradicts of the final one that came before it, in words; ``None`` where nothing.

    Args:
        magnitude, final_magnitude: The amounts without their signs, written in full; empty where none is named.
    """
    if status_code in FINAL_CODES and status_code != final_code:
        return f"status code {status_code} after the final {final_code}"
    if magnitude and final_magnitude and magnitude != final_magnitude:
        return f"amount {magnitude} after {final_magnitude}"
    return None
