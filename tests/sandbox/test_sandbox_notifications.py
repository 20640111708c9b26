"""Notifications: what they say, when they come, and what the sender does when nobody answers 200."""

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from sandbox.calls import COLLECTION, Caller, Inbox, collection

from payments_async.sandbox import Fault, Sandbox, Status


async def test_a_notification_as_specified(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """It comes once, after the end, with the documented query and body."""
    _, answer = await caller.pay(amount=1500)
    assert [] == inbox.bodies
    await sandbox.settle()
    transaction_id = answer["data"]["transactionId"]
    assert [
        {
            "AccountId": "6",
            "SubscriptionId": "1",
            "TransactionId": transaction_id,
            "BatchId": "b-1",
            "RequestId": "r-1",
            "StatusMessage": "Transaction completed successfully",
            "StatusCode": 0,
            "CorrelationId": f"corr-{transaction_id}",
            "CreatedOn": "2026-01-05 08:00:00",
            "Amount": 1500,
            "CurrencyCode": "UGX",
        }
    ] == inbox.bodies
    ids = {"transactionId": transaction_id, "subscriptionId": "1", "accountId": "6", "requestId": "r-1"}
    assert [ids | {"Amount": "1500"}] == inbox.queries
    assert sandbox.ledger[0].answered


async def test_a_collection_that_is_notified(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """Its amount has its digits."""
    await caller.call("POST", COLLECTION, json=collection(amount=0.25))
    await sandbox.settle()
    assert Decimal("0.25") == inbox.bodies[0]["Amount"]


async def test_an_order_that_fails(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """It is notified with status code 2."""
    sandbox.script(Fault.FAILS)
    await caller.pay()
    await sandbox.settle()
    assert [2] == inbox.codes


@pytest.mark.parametrize(
    ("quirks", "seen"),
    [
        ({"ipn_spelling": "camel"}, lambda body, query: body["requestReference"]["requestId"] == body["requestId"]),
        ({"ipn_spelling": "snake"}, lambda body, query: body["client_referenceId"] == "r-1"),
        ({"ipn_ids": "number"}, lambda body, query: (body["AccountId"], body["SubscriptionId"]) == (6, 1)),
        ({"ipn_query": False}, lambda body, query: query == {}),
        ({"ipn_date": "iso"}, lambda body, query: body["CreatedOn"] == "2026-01-05T08:00:00Z"),
        (
            {"ipn_request_id": "reference", "ipn_spelling": "camel"},
            lambda body, query: "requestId" not in body and body["requestReference"]["requestId"] == "r-1",
        ),
        (
            {"ipn_request_id": "query", "ipn_query": False},
            lambda body, query: "RequestId" not in body and query == {"requestId": "r-1"},
        ),
    ],
    ids=["camel", "snake", "numbers", "without query", "iso date", "id in the reference", "id in the query"],
)
async def test_a_quirk_of_notifications(opened: Any, inbox: Inbox, quirks: Any, seen: Any) -> None:
    """Each switch shows in what is sent."""
    caller = await opened(quirks=quirks)
    await caller.pay()
    await caller.sandbox.settle()
    assert seen(inbox.bodies[0], inbox.queries[0])


async def test_an_inbox_that_fails_twice(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """The sender tries again with a growing wait until 200, and not after it."""
    inbox.statuses = [500, 302]
    await caller.pay()
    await sandbox.settle()
    deliveries = sandbox.deliveries
    assert [(500, 1), (302, 2), (200, 3)] == [(delivery.status, delivery.n) for delivery in deliveries]
    waits = [later.at - sooner.at for sooner, later in pairwise(deliveries)]
    assert [0.2, 0.4] == [wait.total_seconds() for wait in waits]


async def test_an_inbox_that_never_answers_200(opened: Any, inbox: Inbox) -> None:
    """The sender gives up, and the transaction is never marked as answered."""
    inbox.statuses = [500] * 9
    caller = await opened(attempts=3)
    await caller.pay()
    await caller.sandbox.settle()
    assert 3 == len(inbox.bodies)
    assert not caller.sandbox.ledger[0].answered


@pytest.mark.slow
async def test_a_wait_between_two_tries_has_an_end(opened: Any) -> None:
    """However often it was tried: who comes back after a long time hears of it soon."""
    caller = await opened(ipn_url="http://127.0.0.1:9/ipn", attempts=1200, wait_max=0.8)
    await caller.pay()
    await caller.sandbox.settle()
    tries = [delivery.at for delivery in caller.sandbox.deliveries]
    waits = [(later - sooner).total_seconds() for sooner, later in pairwise(tries)]
    assert [0.2, 0.4, *[0.8] * 1197] == waits


async def test_an_inbox_that_is_not_there(opened: Any) -> None:
    """Deliveries without an answer have no status."""
    caller = await opened(ipn_url="http://127.0.0.1:9/ipn", attempts=2)
    await caller.pay()
    await caller.sandbox.settle()
    assert [None, None] == [delivery.status for delivery in caller.sandbox.deliveries]


async def test_a_status_that_waits_for_the_answer(opened: Any, inbox: Inbox) -> None:
    """With the quirk an ended order shows as processing until its notification was answered 200."""
    inbox.statuses = [500]
    caller = await opened(quirks={"final_after_answer": True}, wait_initial=100)
    await caller.pay()
    await caller.sandbox.advance(50)
    assert ["r-1"] == await caller.listed(transactionStatus="PROCESSING")
    await caller.sandbox.advance(60)
    assert ["r-1"] == await caller.listed(transactionStatus="SUCCESSFULL")


async def test_a_notification_that_is_early(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """It is answered before the POST is."""
    sandbox.script(Fault.NOTIFY_EARLY)
    _, answer = await caller.pay()
    assert ([0], "PROCESSING") == (inbox.codes, answer["data"]["status"])
    assert [200] == [delivery.status for delivery in sandbox.deliveries]
    await sandbox.settle()
    assert [0] == inbox.codes


async def test_a_notification_that_is_late(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """The order ends first and is notified that much later."""
    sandbox.script(Fault.NOTIFY_LATE, seconds=600)
    await caller.pay()
    await sandbox.advance(600)
    assert (Status.SUCCESSFULL, []) == (sandbox.ledger[0].status, inbox.codes)
    await sandbox.advance(1)
    assert [0] == inbox.codes


async def test_a_notification_that_is_repeated(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """It comes that often although it was answered 200."""
    sandbox.script(Fault.NOTIFY_REPEATED, copies=4)
    await caller.pay()
    await sandbox.settle()
    assert [0, 0, 0, 0] == inbox.codes
    assert [1, 2, 3, 4] == [delivery.n for delivery in sandbox.deliveries]


async def test_notifications_out_of_order(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """The final one comes first, then a stale one that says processing."""
    sandbox.script(Fault.NOTIFY_REORDERED)
    await caller.pay()
    await sandbox.settle()
    assert [0, 1] == inbox.codes


async def test_a_notification_that_is_lost(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """It never comes; the order ends all the same."""
    sandbox.script(Fault.NOTIFY_LOST)
    await caller.pay()
    await sandbox.settle()
    assert (Status.SUCCESSFULL, []) == (sandbox.ledger[0].status, inbox.codes)


async def test_trouble_of_all_three_families(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """An order can meet one fault of each: of its answer, its ending and its notification."""
    for fault in (Fault.FAILS, Fault.NOTIFY_REPEATED, Fault.ERROR_AFTER):
        sandbox.script(fault)
    assert 500 == (await caller.pay())[0]
    await sandbox.settle()
    assert [2, 2, 2] == inbox.codes


async def test_an_order_that_was_turned_away(caller: Caller, sandbox: Sandbox) -> None:
    """It leaves the scripts for endings and notifications to the order that is carried out."""
    sandbox.script(Fault.FAILS)
    sandbox.script(Fault.REFUSED)
    await caller.pay()
    assert 1 == sandbox.scripts_pending
    await caller.pay()
    await sandbox.settle()
    assert [Status.FAILED] == [one.status for one in sandbox.ledger]


async def test_a_reversal_that_is_notified(opened: Any, inbox: Inbox) -> None:
    """With the quirk it is, with the code the quirk says; without, nobody hears of it."""
    for quirks, expected in (({"ipn_reversal_code": 3}, [0, 3]), ({}, [0])):
        inbox.bodies.clear()
        caller = await opened(quirks=quirks)
        caller.sandbox.script(Fault.REVERSED)
        await caller.pay()
        await caller.sandbox.settle()
        assert expected == inbox.codes


async def test_chaos_of_notifications(caller: Caller, sandbox: Sandbox, inbox: Inbox) -> None:
    """Chance strikes endings and notifications too."""
    sandbox.chaos({Fault.NOTIFY_REPEATED: 1.0, Fault.FAILS: 1.0}, copies=2)
    await caller.pay()
    await sandbox.settle()
    assert [2, 2] == inbox.codes


async def test_an_ipn_url_that_is_set_later(opened: Any, inbox: Inbox, ipn_url: str) -> None:
    """Orders that ended without one are never notified; those that end afterwards are."""
    caller = await opened(ipn_url=None)
    await caller.pay("r-1")
    await caller.sandbox.settle()
    caller.sandbox.ipn_url = ipn_url
    await caller.pay("r-2")
    await caller.sandbox.settle()
    assert ["r-2"] == [body["RequestId"] for body in inbox.bodies]


async def test_many_notifications_at_once(opened: Any, inbox: Inbox) -> None:
    """All of them arrive, however few may be under way."""
    caller = await opened(concurrency=2)
    for number in range(50):
        await caller.pay(f"r-{number}")
    await caller.sandbox.settle()
    assert {f"r-{number}" for number in range(50)} == {body["RequestId"] for body in inbox.bodies}
    assert 50 == caller.sandbox.delivered
