"""The pytest plugin for users, used as they would: the fixtures meet each other, and made-up notifications are read."""

from decimal import Decimal
from typing import Any, get_args

import pytest

from payments_async import Beneficiary, Credentials, MobileMoneyWallet, PaymentsSession, PayoutOrder
from payments_async.ipn import Receiver, TransactionFailed, TransactionSucceeded
from payments_async.journal import State
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import (
    Spelling,
    assert_paid_once,
    deliver,
    notification,
)

ORDER = PayoutOrder(
    request_id="r-1",
    amount=Decimal(1500),
    destination=MobileMoneyWallet("+256772000017"),
    product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
    beneficiary=Beneficiary(name="Grace Akello"),
)


@pytest.mark.parametrize("spelling", get_args(Spelling))
@pytest.mark.parametrize("number_ids", [False, True])
async def test_a_made_up_notification_is_read_in_every_spelling(spelling: Any, number_ids: bool) -> None:
    """The event is the same whatever the spelling."""
    mine = Receiver(senders=["127.0.0.1"])
    made = notification("r-1", amount=Decimal("500.10"), spelling=spelling, number_ids=number_ids, status_code=2)
    assert 200 == (await deliver(mine, made)).status
    event = await mine.wait_for("r-1", timeout=60)
    assert isinstance(event, TransactionFailed)
    assert ("6", "77", "500.10") == (event.account_id, event.subscription_id, str(event.amount))
    assert 403 == (await deliver(mine, made, sender="10.0.0.1")).status


async def test_the_fixtures_meet(
    payments_sandbox: Sandbox, payments_session: PaymentsSession, payments_receiver: Receiver
) -> None:
    """A payout through the session is notified by the sandbox and heard by the receiver."""
    heard: list[TransactionSucceeded] = []

    @payments_receiver.on(TransactionSucceeded)
    async def settled(event: TransactionSucceeded) -> None:
        heard.append(event)

    acceptance = await payments_session.payouts.send(ORDER)
    event = await payments_receiver.wait_for("r-1", timeout=60)
    assert acceptance.transaction_id == event.transaction_id
    assert isinstance(event, TransactionSucceeded)


async def test_the_outbox_pays_once(payments_sandbox: Sandbox, payments_outbox: Outbox) -> None:
    """Its orders are settled by what the sandbox notifies, also where the answer was lost."""
    payments_sandbox.script(Fault.LOST_AFTER)
    await payments_outbox.put(ORDER)
    await payments_outbox.put(ORDER)
    assert State.SUCCESSFUL == (await payments_outbox.settled("r-1", timeout=60)).state
    assert_paid_once(payments_sandbox, "r-1")


async def test_what_was_not_paid_once(payments_sandbox: Sandbox, payments_session: PaymentsSession) -> None:
    """The check fails for an order that was never carried out, and for any that was carried out twice."""
    with pytest.raises(AssertionError, match="not once: r-1: 0 times"):
        assert_paid_once(payments_sandbox, "r-1")
    credentials = Credentials(
        app_key=payments_sandbox.app_key, app_password=payments_sandbox.app_password, user_id=payments_sandbox.user_id
    )
    async with PaymentsSession(payments_sandbox.base_url, credentials) as another:  # nothing of ours keeps it from that
        for payments in (payments_session, another):
            await payments.payouts.send(ORDER)
    with pytest.raises(AssertionError, match="not once: r-1: 2 times"):
        assert_paid_once(payments_sandbox)
