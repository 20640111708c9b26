"""What the post endpoints take, what they refuse, and what they do to the money."""

from decimal import Decimal
from typing import Any

import pytest
from sandbox.calls import COLLECTION, PAYOUT, Caller, collection, payout

from payments_async.sandbox import Fault, Sandbox, Status

BANK = {"bankAccount": "0101", "bankName": "31"}
ACCEPTED = [
    pytest.param("payouts/mobilemoney", payout(), id="mobile-money"),
    pytest.param("collections/mobilemoney", collection(), id="collection"),
    pytest.param(
        "payouts/banktransfers",
        payout(product={"productItemId": "BANKTRANSFERUG_BANKTRANSFERUG"}, beneficiary={"data": BANK}),
        id="bank-transfer",
    ),
    pytest.param(
        "payouts/airtime",
        payout(product={"id": "MTNAIRTIMEUG", "productItemId": "MTNAIRTIMEUG_MTNAIRTIMEUG"}),
        id="airtime",
    ),
    pytest.param(
        "payouts/internet",
        payout(product={"id": "AIRTELDATABUNDLESUG", "productItemId": "AIRTELDATABUNDLESUG_24510766"}),
        id="internet",
    ),
    pytest.param(
        "payouts/utilities",
        payout(
            product={"productItemId": "NWSCWATERUG_NWSCWATERUG"},
            beneficiary={"data": {"customerReference": "200", "area": "Kampala"}},
        ),
        id="water",
    ),
    pytest.param(
        "payouts/utilities",
        payout(
            product={"productItemId": "ELECTRICITYUG_ELECTRICITYUG"}, beneficiary={"data": {"customerReference": "200"}}
        ),
        id="electricity-without-area",
    ),
]


@pytest.mark.parametrize(("path", "body"), ACCEPTED)
async def test_an_order_as_specified(caller: Caller, path: str, body: dict[str, Any]) -> None:
    """Every post endpoint accepts its order, answers PROCESSING and carries it out once."""
    status, answer = await caller.call("POST", f"/api/transactions/{path}", json=body)
    data = answer["data"]
    assert (200, 0, "success") == (status, answer["code"], answer["status"])
    assert (body["requestId"], "b-1", "PROCESSING") == (data["requestId"], data["batchId"], data["status"])
    assert "1/5/2026 8:00:00 AM" == data["createdOn"]
    assert 1 == caller.sandbox.executions(body["requestId"])


REFUSED = [
    ({"requestId": None}, "requestId"),
    ({"requestId": 7}, "requestId"),
    ({"requestId": " "}, "requestId"),
    ({"batchId": 7}, "batchId"),
    ({"metadata": {"a": "b"}}, "metadata"),
    ({"accountNumber": "7"}, "accountNumber"),
    ({"amount": None}, "amount"),
    ({"amount": "1500"}, "amount"),
    ({"amount": True}, "amount"),
    ({"amount": 0}, "amount"),
    ({"amount": -1.5}, "amount"),
    ({"amount": 10**18}, "amount"),
    ({"type": "CREDIT"}, "type"),
    ({"type": None}, "type"),
    ({"product": None}, "product.productItemId"),
    ({"product": "MTN"}, "product"),
    ({"product": {"productItemId": "NOSUCH_NOSUCH"}}, "product.productItemId"),
    ({"product": {"productItemId": "MTNAIRTIMEUG_MTNAIRTIMEUG"}}, "product.productItemId"),
    ({"product": {"id": "KCCATAXUG", "productItemId": payout()["product"]["productItemId"]}}, "product.id"),
    ({"beneficiary": None}, "beneficiary.data.phoneNumber"),
    ({"beneficiary": {"name": 7, "data": {"phoneNumber": "0770"}}}, "beneficiary.name"),
    ({"beneficiary": {"data": {"phoneNumber": 770}}}, "beneficiary.data.phoneNumber"),
    ({"message": "\ud800"}, "message"),
]


@pytest.mark.parametrize(("changes", "field"), REFUSED, ids=str)
async def test_an_order_that_breaks_the_specification(caller: Caller, changes: dict[str, Any], field: str) -> None:
    """It is refused with 400 and an envelope whose message names the field, and nothing is carried out."""
    status, answer = await caller.pay(**changes)
    assert (400, None) == (status, answer["data"])
    assert 0 != answer["code"]
    assert field in answer["message"]
    assert 0 == len(caller.sandbox.ledger)


UTILITY = {"productItemId": "NWSCWATERUG_NWSCWATERUG"}
INCOMPLETE = [
    ("payouts/banktransfers", "BANKTRANSFERUG_BANKTRANSFERUG", {"bankName": "31"}, "bankAccount"),
    ("payouts/banktransfers", "BANKTRANSFERUG_BANKTRANSFERUG", {"bankAccount": "0101"}, "bankName or bankCode"),
    ("payouts/banktransfers", "BANKTRANSFERUG_BANKTRANSFERUG", BANK | {"bankCode": "32"}, "two different banks"),
    ("payouts/utilities", "NWSCWATERUG_NWSCWATERUG", {"customerReference": "200"}, "area"),
    ("payouts/utilities", "NWSCWATERUG_NWSCWATERUG", {"area": "Kampala"}, "customerReference"),
    ("payouts/internet", "AIRTELDATABUNDLESUG_24510766", {}, "phoneNumber"),
]


@pytest.mark.parametrize(("path", "item", "data", "field"), INCOMPLETE, ids=lambda value: str(value)[:30])
async def test_a_destination_that_is_incomplete(
    caller: Caller, path: str, item: str, data: dict[str, str], field: str
) -> None:
    """It is refused and the message names what is missing."""
    body = payout(product={"productItemId": item}, beneficiary={"data": data})
    status, answer = await caller.call("POST", f"/api/transactions/{path}", json=body)
    assert 400 == status
    assert field in answer["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"requestId": "r", "amount": NaN}', b'{"amount": 1e9999999999999999999}']
)
async def test_a_body_that_is_no_json_object(caller: Caller, body: bytes) -> None:
    """It is refused with 400 and an envelope."""
    headers = caller.headers | {"Content-Type": "application/json"}
    status, answer = await caller.call("POST", PAYOUT, data=body, headers=headers)
    assert 400 == status
    assert 0 != answer["code"]


async def test_another_content_type(caller: Caller) -> None:
    """A form is refused even if its text is JSON."""
    status, answer = await caller.call("POST", PAYOUT, data="{}")
    assert 400 == status
    assert "Content-Type" in answer["message"]


async def test_members_the_specification_does_not_know(caller: Caller) -> None:
    """They are ignored."""
    assert 200 == (await caller.pay(correlation={"deep": [1]}))[0]


@pytest.mark.parametrize("amount", ["0.10", "123456789012345.67", "1500.00", "1E+3"])
async def test_an_amount_with_its_digits(caller: Caller, amount: str) -> None:
    """It comes back digit for digit, negative for a payout."""
    text = (
        '{"requestId":"r","amount":%s,"type":"DEBIT","product":{"productItemId":"%s"},'
        '"beneficiary":{"data":{"phoneNumber":"0770"}}}'
    )
    caller.sandbox.balance = Decimal(10) ** 17
    headers = caller.headers | {"Content-Type": "application/json"}
    body = text % (amount, payout()["product"]["productItemId"])
    _, answer = await caller.call("POST", PAYOUT, data=body, headers=headers)
    _, read = await caller.call("GET", f"/api/transactions/{answer['data']['transactionId']}")
    assert f"-{amount}" == str(read["data"]["amount"])


async def test_a_payout_and_a_collection_to_their_end(caller: Caller, sandbox: Sandbox) -> None:
    """A payout leaves the balance, a collection enters it, both only when they end."""
    await caller.pay(amount=1500)
    await caller.call("POST", COLLECTION, json=collection(amount=200))
    assert Decimal(1_000_000_000) == sandbox.balance
    assert [Status.PROCESSING, Status.PROCESSING] == [one.status for one in sandbox.ledger]
    await sandbox.settle()
    assert Decimal(1_000_000_000 - 1500 + 200) == sandbox.balance
    assert [Status.SUCCESSFULL, Status.SUCCESSFULL] == [one.status for one in sandbox.ledger]


async def test_more_than_the_balance(opened: Any) -> None:
    """What is under way counts as spent: the payout that would overdraw the account is refused."""
    caller = await opened(balance=Decimal(2000))
    assert 200 == (await caller.pay("r-1", amount=1500))[0]
    status, answer = await caller.pay("r-2", amount=501)
    assert (400, "amount exceeds the available balance") == (status, answer["message"])
    assert 200 == (await caller.pay("r-3", amount=500))[0]


async def test_what_was_reserved_for_an_order_that_ended(opened: Any) -> None:
    """It is free again: spent once if the order succeeded, whole if it failed."""
    caller = await opened(balance=Decimal(2000))
    caller.sandbox.script(Fault.FAILS, request_id="r-1")
    for request_id, amount in (("r-1", 2000), ("r-2", 1500), ("r-3", 500)):
        assert 200 == (await caller.pay(request_id, amount=amount))[0]
        await caller.sandbox.settle()
    assert Decimal(0) == caller.sandbox.balance
    assert 400 == (await caller.pay("r-4", amount=1))[0]


async def test_a_request_id_used_twice(caller: Caller, sandbox: Sandbox) -> None:
    """It pays twice: no idempotency is documented, and the judge says so."""
    first, second = await caller.pay(), await caller.pay()
    assert first[1]["data"]["transactionId"] != second[1]["data"]["transactionId"]
    assert (2, ["r-1"]) == (sandbox.executions("r-1"), sandbox.duplicates())


async def test_a_request_id_that_is_refused_the_second_time(opened: Any) -> None:
    """With the quirk the second POST is 400 and carries nothing out."""
    caller = await opened(quirks={"repeated_request_id": "refuse_400"})
    assert [200, 400] == [(await caller.pay())[0], (await caller.pay())[0]]
    assert 1 == caller.sandbox.executions("r-1")


async def test_a_request_id_that_is_recognised(opened: Any) -> None:
    """With the quirk the second POST gets the first transaction and carries nothing out."""
    caller = await opened(quirks={"repeated_request_id": "same_transaction"})
    first, second = await caller.pay(), await caller.pay()
    assert first == second
    assert 1 == caller.sandbox.executions("r-1")


async def test_an_order_that_fails(caller: Caller, sandbox: Sandbox) -> None:
    """It is accepted, ends FAILED, and the money stays."""
    sandbox.script(Fault.FAILS, on="payout")
    await caller.pay()
    await sandbox.settle()
    assert (Status.FAILED, Decimal(1_000_000_000)) == (sandbox.ledger[0].status, sandbox.balance)


async def test_an_order_that_is_reversed(caller: Caller, sandbox: Sandbox) -> None:
    """It succeeds, and later the money comes back."""
    sandbox.script(Fault.REVERSED, seconds=60)
    await caller.pay()
    await sandbox.advance(59)
    assert Status.SUCCESSFULL == sandbox.ledger[0].status
    await sandbox.advance(2)
    assert (Status.REVERSED, Decimal(1_000_000_000)) == (sandbox.ledger[0].status, sandbox.balance)


@pytest.mark.parametrize(
    ("quirk", "value", "seen"),
    [
        ("acceptance_http", 201, lambda status, answer: status == 201),
        ("acceptance_top_status", False, lambda status, answer: "status" not in answer),
        ("envelope_correlation_id", True, lambda status, answer: answer["correlationId"]),
        ("created_on", "iso", lambda status, answer: answer["data"]["createdOn"] == "2026-01-05T08:00:00Z"),
        ("enforces_bounds", True, lambda status, answer: status == 400),
        ("bank_code_keys", ("bankCode",), lambda status, answer: status == 200),
    ],
)
async def test_a_quirk_of_acceptance(opened: Any, quirk: str, value: Any, seen: Any) -> None:
    """Each switch shows in the answer."""
    caller = await opened(quirks={quirk: value})
    assert seen(*await caller.pay(amount=100))
