"""Send a few payouts, and settle every one: accepted, refused, or lost on the way. Runs on the sandbox as it is."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from payments_async import (
    Acceptance,
    AirtimeLine,
    Beneficiary,
    Credentials,
    NotSent,
    OutcomeUnknown,
    PaymentsSession,
    PayoutOrder,
    Rejected,
    request_id_for,
)
from payments_async.sandbox import Fault, Sandbox


def order_for(employee: str, phone_number: str) -> PayoutOrder:
    """The same employee and month give the same request id, however often this runs."""
    return PayoutOrder(
        request_id=request_id_for("airtime", "2026-11", employee),
        amount=Decimal(5000),
        product_id="MTNAIRTIMEUG",
        product_item_id="MTNAIRTIMEUG_MTNAIRTIMEUG",
        beneficiary=Beneficiary(name=employee),
        destination=AirtimeLine(phone_number),
        message="Field airtime",
    )


async def send(payments: PaymentsSession, order: PayoutOrder) -> str:
    """What became of one order, in words."""
    try:
        acceptance: Acceptance = await payments.payouts.send(order)
    except Rejected as error:
        return f"refused: {error.message}"
    except NotSent as error:
        return f"not sent, try again later: {error.message}"
    except OutcomeUnknown:
        yesterday = datetime.now(UTC) - timedelta(days=1)
        found = await payments.transactions.find(order.request_id, since=yesterday)
        if found is None:
            return "unknown, and not in the list yet: look again later, never send it again"
        return f"the answer was lost, and the service has it as {found.transaction_id}"
    settlement = await payments.transactions.settled(acceptance, timeout=30)
    return f"{settlement.status}, says {settlement.evidence}"


async def main() -> None:
    """Three payouts, of which the second loses its answer after the money moved."""
    orders = [order_for(f"Employee {number}", f"+25677200001{number}") for number in range(3)]
    async with Sandbox() as service:
        service.script(Fault.LOST_AFTER, request_id=orders[1].request_id)
        credentials = Credentials(app_key=service.app_key, app_password=service.app_password, user_id=service.user_id)
        async with PaymentsSession(service.base_url, credentials) as payments:
            outcomes = await asyncio.gather(*(send(payments, order) for order in orders))
        for order, outcome in zip(orders, outcomes, strict=True):
            print(order.request_id, outcome)
        assert [service.executions(order.request_id) for order in orders] == [1, 1, 1]


if __name__ == "__main__":
    asyncio.run(main())
