"""Calls, inside the package: what is written down is sent as it stands, or not at all."""

from decimal import Decimal
from typing import assert_type

from payments_async import Acceptance, Dialect, PaymentsSession, PayoutOrder
from payments_async._session.session import executor_of
from payments_async._wire.call import Call
from payments_async._wire.endpoints import send_order, sends_written


def written(dialect: Dialect, body: bytes) -> Call[Acceptance]:
    """The path of money takes each argument that it needs, and none that it does not know."""
    call_of = sends_written(dialect)
    call_of("one argument too few", nonsense=1)  # E: nonsense
    call_of("r-1", Decimal(1), body)  # E: whether it was sent before
    call_of("r-1", 1.5, body, sent_before=False, private=tuple)  # E: a float
    call_of("r-1", Decimal(1), "{}", sent_before=False, private=tuple)  # E: a text is no bytes
    return call_of("r-1", Decimal(1), body, sent_before=False, private=tuple)


async def executed(payments: PaymentsSession, order: PayoutOrder) -> None:
    """A call knows what it comes to."""
    call = send_order(order, payments.dialect)
    assert_type(await executor_of(payments).execute(call), Acceptance)
    await executor_of(payments).execute(order)  # E: an order is no call
