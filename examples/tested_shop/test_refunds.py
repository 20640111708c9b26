"""What the service may do to a refund, and what the customer is told. Run it with `pytest`, in this folder."""

import asyncio

import pytest
from refunds import refund

from payments_async import PaymentsSession
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import VirtualClock, assert_paid_once

PHONE = "+256772000017"


@pytest.mark.parametrize(
    "fault", [Fault.LOST_AFTER, Fault.ERROR_AFTER, Fault.GARBAGE, Fault.RATE_LIMITED, Fault.NOTIFY_REPEATED]
)
async def test_whatever_goes_wrong_on_the_way_the_customer_gets_it_once(
    payments_sandbox: Sandbox, payments_outbox: Outbox, fault: Fault
) -> None:
    """An answer that is lost, late or garbled is none of the customer's business."""
    payments_sandbox.script(fault)
    assert await refund(payments_outbox, "17", PHONE, 5000) == "refunded"
    assert_paid_once(payments_sandbox, "refund-17")


async def test_two_who_ask_at_once_get_one_refund(payments_sandbox: Sandbox, payments_outbox: Outbox) -> None:
    """A second click, or a second process, is the same refund."""
    answers = await asyncio.gather(*(refund(payments_outbox, "17", PHONE, 5000) for _ in range(5)))
    assert set(answers) == {"refunded"}
    assert_paid_once(payments_sandbox, "refund-17")


async def test_a_number_that_takes_no_money(payments_sandbox: Sandbox, payments_outbox: Outbox) -> None:
    """It was accepted and failed, and a customer is not told that it was paid."""
    payments_sandbox.script(Fault.FAILS)
    assert await refund(payments_outbox, "17", PHONE, 5000) == "not refunded: ask for another number"


async def test_a_service_that_says_nothing(
    payments_sandbox: Sandbox, payments_outbox: Outbox, payments_clock: VirtualClock
) -> None:
    """What is not known is on its way: neither paid nor failed, and not sent again."""
    payments_sandbox.script(Fault.LOST_AFTER, on="money")
    payments_sandbox.script(Fault.NOTIFY_LOST)
    assert await payments_clock.until(refund(payments_outbox, "17", PHONE, 5000, patience=3)) == "on its way"
    assert_paid_once(payments_sandbox, "refund-17")


@pytest.mark.payments_sandbox(processing_delay=2 * 86_400)
async def test_a_bank_that_takes_two_days(
    payments_sandbox: Sandbox, payments_outbox: Outbox, payments_clock: VirtualClock
) -> None:
    """The customer hears in time that it is on its way, and in the end that it is done."""
    assert await payments_clock.until(refund(payments_outbox, "17", PHONE, 5000)) == "on its way"
    await payments_clock.advance(2 * 86_400)
    assert await payments_clock.until(refund(payments_outbox, "17", PHONE, 5000)) == "refunded"
    assert_paid_once(payments_sandbox, "refund-17")


async def test_a_refund_of_another_amount(payments_outbox: Outbox, payments_session: PaymentsSession) -> None:
    """One purchase is refunded once: another amount under its number is refused before anything is sent."""
    from payments_async.journal import OrdersDiffer

    await refund(payments_outbox, "17", PHONE, 5000)
    with pytest.raises(OrdersDiffer):
        await refund(payments_outbox, "17", PHONE, 6000)
    assert payments_session.unsettled == set()
