"""With ``confirm`` the service's own record decides: what differs from it is never believed."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import attrs
import pytest
from ipn.faces import aiohttp_face
from ipn.notifications import notification

from payments_async import TransactionStatus
from payments_async.ipn import Receiver, TransactionEvent


@attrs.frozen
class Record:
    """As much of a transaction as is compared."""

    transaction_id: str = "a"
    request_id: str | None = "r-a"
    amount: Decimal | None = Decimal(-500)
    currency: str | None = "UGX"
    status: TransactionStatus | None = None


class Payments:
    """A session that knows one transaction."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.transactions = self

    async def get(self, transaction_id: str, /) -> Any:
        """The record."""
        return self.record


async def taken(record: Record, code: int = 0) -> tuple[int, Sequence[TransactionEvent]]:
    """What a notification over 500 UGX is answered, and who heard of it."""
    receiver, heard = Receiver(senders=["127.0.0.1"], confirm=Payments(record)), list[TransactionEvent]()

    @receiver.on(TransactionEvent)
    async def hear(event: TransactionEvent) -> None:
        heard.append(event)

    async with aiohttp_face(receiver) as send:
        return (await send(notification("a", CurrencyCode="ugx", StatusCode=code))).status, heard


@pytest.mark.parametrize(
    "change",
    [{"request_id": "r-b"}, {"amount": Decimal(-501)}, {"amount": Decimal("500.1")}, {"currency": "KES"}],
    ids=["another request id", "another amount", "a little more", "another currency"],
)
async def test_a_record_that_differs_refuses_the_notification(change: dict[str, Any]) -> None:
    """No handler hears of it."""
    assert (400, []) == await taken(Record(**change))


async def test_a_record_of_another_transaction_says_nothing() -> None:
    """It neither bears the notification out nor disputes it: it has to be sent again."""
    assert (500, []) == await taken(Record(transaction_id="b"))
    status, heard = await taken(Record(transaction_id="A"))
    assert (200, 1) == (status, len(heard))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"amount": Decimal("500.00")},
        {"currency": "ugx"},
        {"request_id": None},
        {"amount": None},
        {"currency": None},
    ],
    ids=["the same", "more digits", "other case", "no request id", "no amount", "no currency"],
)
async def test_a_record_that_agrees_bears_the_notification_out(change: dict[str, Any]) -> None:
    """A payout is negative in records, and what a record does not say contradicts nothing."""
    status, heard = await taken(Record(**change))
    assert (200, ["a"]) == (status, [event.transaction_id for event in heard])


@pytest.mark.parametrize(
    ("code", "status"),
    [(0, TransactionStatus.FAILED), (2, TransactionStatus.SUCCESSFUL), (2, TransactionStatus("SUCCESS"))],
)
async def test_a_record_of_the_other_end(code: int, status: TransactionStatus) -> None:
    """A failure is not believed of what the record shows as paid, nor a payment of what failed."""
    assert (400, []) == await taken(Record(status=status), code)


@pytest.mark.parametrize(
    "status", [TransactionStatus.PROCESSING, TransactionStatus.REVERSED, TransactionStatus("HELD")]
)
@pytest.mark.parametrize("code", [0, 2])
async def test_a_record_that_is_late_or_moved_on(code: int, status: TransactionStatus) -> None:
    """The service may show the end only after its notification was answered, and a payment may be reversed since."""
    answered, heard = await taken(Record(status=status), code)
    assert (200, 1) == (answered, len(heard))
