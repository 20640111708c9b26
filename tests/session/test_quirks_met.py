"""Which contradictions of the specification were met: each told once, by its id, and none that was not there."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs
import pytest
from session.conftest import Open, OpenSandbox
from session.wires import Wire, collection, payout, raw_reply, reply

from payments_async import Dialect, PaymentsError, PaymentsSession, TransactionStatus
from payments_async._session.quirks import TOLD, MetQuirks
from payments_async._wire.call import Call, Reply
from payments_async.ipn import Receiver, serving
from payments_async.sandbox import Quirks, Sandbox
from payments_async.testing import deliver, notification

LINE = "the service shows the quirk"
# One value of each beyond its plain reading, with what else has to be so for it to be seen.
SHOWN: list[tuple[str, Any, dict[str, Any]]] = [
    ("token_key", "token", {}),
    ("token_key", "data.token", {}),
    ("acceptance_http", 201, {}),
    ("acceptance_top_status", False, {}),
    ("created_on", "spaced", {}),
    ("created_on", "iso", {}),
    ("envelope_correlation_id", True, {}),
    ("read_code", 1, {}),
    ("single_record_names", "snake", {}),
    ("next_page_lies", True, {}),
    ("total_error", 3, {}),
    ("total_error", None, {}),
    ("ignores_status_filter", True, {"record_has_status": True}),
    ("record_has_status", True, {}),
    ("success_word", "SUCCESSFUL", {"record_has_status": True}),
    ("success_word", "COMPLETED", {"record_has_status": True}),
    ("record_amount_sign", "collections_negative", {}),
    ("record_account_number", "number", {}),
    ("list_swaps_product", True, {}),
    ("record_product_key", "productItemId", {}),
    ("record_beneficiary_data", "phone", {}),
    ("validation_refusal_http", 400, {}),
    ("validation_needs_token", True, {}),
    ("card_success_flag", 0, {}),
    ("ipn_spelling", "camel", {}),
    ("ipn_spelling", "snake", {}),
    ("ipn_ids", "number", {}),
    ("ipn_query", False, {}),
    ("ipn_date", "iso", {}),
    ("ipn_date", "us", {}),
    ("ipn_request_id", "reference", {"ipn_query": False}),
    ("ipn_request_id", "query", {}),
]


async def tour(sandbox: Sandbox, payments: PaymentsSession) -> Mapping[str, str]:
    """Call what there is to call, hear of it, and tell what was met."""
    receiver = Receiver(senders=["127.0.0.1"])
    async with serving(receiver, port=0) as (host, port):
        sandbox.ipn_url = f"http://{host}:{port}/ipn"
        for number in range(3):
            acceptance = await payments.payouts.send(payout(f"r-{number}"))
        await payments.collections.request(collection("r-9"))
        await sandbox.settle()
        await payments.payouts.send(payout("r-10"))
        await payments.transactions.get(acceptance.transaction_id)
        await payments.transactions.page(size=2)
        await payments.transactions.page(size=20)
        for _ in range(2):  # the fourth page is looked at in any case
            await payments.transactions.page(size=20, status=TransactionStatus.SUCCESSFUL)
        for amount in (1000, 10**12):
            with suppress(PaymentsError):  # with some quirks it is refused
                await payments.products.validate("MTNAIRTIMEUG_MTNAIRTIMEUG", "0772000017", amount)
        await payments.cards.get("1", "4000 **** **** 0001")
        await payments.accounts.get()
        await anext(payments.products.iterate())
    return {**payments.quirks_met, **receiver.quirks_met}


def test_a_value_of_each_quirk_that_is_told_is_tried() -> None:
    """Those below are those of the table; and each is a quirk of the sandbox."""
    assert TOLD == {quirk for quirk, _, _ in SHOWN}
    assert TOLD <= {field.name for field in attrs.fields(Quirks)}


async def test_the_plain_reading_shows_none(opened: Open, sandbox: Sandbox) -> None:
    """Nothing is told of a service that answers as documented."""
    assert {} == await tour(sandbox, await opened(sandbox))


@pytest.mark.parametrize(("quirk", "value", "beside"), SHOWN)
async def test_a_quirk_is_met(
    opened: Open,
    opened_sandbox: OpenSandbox,
    quirk: str,
    value: object,
    beside: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By its id and its value, in a line of the log; and no other is."""
    caplog.set_level(logging.INFO, "payments_async")
    sandbox = await opened_sandbox({quirk: value, **beside})
    met = await tour(sandbox, await opened(sandbox))
    assert {quirk: str(value), **{name: str(shown) for name, shown in beside.items()}} == met
    said = [record for record in caplog.records if record.getMessage().startswith(LINE)]
    assert sorted(met.items()) == sorted((vars(record)["quirk"], vars(record)["value"]) for record in said)
    assert f"{LINE} {quirk}: {value}" in [record.getMessage() for record in said]


async def test_each_is_told_once(opened: Open, sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    """However often it is met, by the session and by those of it with other options; another session tells it again."""
    caplog.set_level(logging.INFO, "payments_async")
    sandbox.switch("read_code", 1)
    sandbox.switch("created_on", "iso")
    payments = await opened(sandbox)
    child = payments.with_options(dialect=Dialect(api_prefix="/api"))
    for number in range(9):
        await payments.payouts.send(payout(f"r-{number}"))
        await child.payouts.send(payout(f"c-{number}"))
        await payments.transactions.page()
    assert {"read_code": "1", "created_on": "iso"} == payments.quirks_met == child.quirks_met
    await (await opened(sandbox)).accounts.get()
    told = [vars(record)["quirk"] for record in caplog.records if record.getMessage().startswith(LINE)]
    assert ["created_on", "read_code", "read_code"] == told


async def test_a_quirk_that_comes_late_is_met_all_the_same(opened: Open, sandbox: Sandbox) -> None:
    """What is read at once is looked at ever more rarely; what has to be read with thought, each time."""
    payments = await opened(sandbox)
    for number in range(20):
        await payments.payouts.send(payout(f"r-{number}"))
        await payments.transactions.page(size=2)
    assert {} == payments.quirks_met
    sandbox.switch("read_code", 1)
    await payments.transactions.page(size=2)
    assert {"read_code": "1"} == payments.quirks_met
    sandbox.switch("created_on", "iso")
    for number in range(20, 32):
        await payments.payouts.send(payout(f"r-{number}"))
    assert {"read_code": "1", "created_on": "iso"} == payments.quirks_met


def test_how_many_are_looked_at() -> None:
    """Of what was read at once one of ever more; of what was not, a hundred, and then one of ever more."""
    quirks = MetQuirks()
    assert [1, 2, 4, 8, 16, 32, 64, 128] == [n for n in range(1, 200) if quirks.wants("a", is_unusual=False)]
    looked = [n for n in range(1, 1000) if quirks.wants("b", is_unusual=True)]
    assert (list(range(1, 107)), True) == (looked[:106], len(looked) < 115)


HOSTILE = [
    "[]", "null", "1", '""', '{"data":[]}', '{"data":{"collection":{}}}', '{"data":{"collection":[1,null,[],{}]}}',
    '{"data":{"collection":[{"status":{},"amount":[],"transactionType":[],"product":1,"beneficiary":{"data":7}}]}}',
    '{"data":{"collection":[{}],"totalPages":"x","currentPage":true,"nextPage":1,"totalCount":[]}}',
    '{"data":{"transactionId":{"a":1},"createdOn":9},"success":[],"code":{},"Token":{}}',
    '{"createdOn":{},"requestReference":[],"AccountId":{"x":1},"AccountID":true}', "{", "\x00",
]  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE)
def test_whatever_comes_shows_none(body: str, caplog: pytest.LogCaptureFixture) -> None:
    """No shape of an answer makes the rules trip."""
    quirks = MetQuirks()
    for kind in ("login", "acceptance", "transaction", "transactions", "reading", "validation", "card"):
        call: Call[Any] = Call(method="GET", path="/", read=str, answer=kind, query="transactionStatus=FAILED")
        quirks.look_at_answer(call, Reply(200, body.encode()))
    quirks.look_at_notification(body.encode(), "requestId=r-1")
    assert [] == [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]


async def test_a_rule_that_trips_costs_no_payment(
    payments: PaymentsSession, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    """The order was taken, and counts; that it could not be searched is said, without its words."""
    deep = b'{"code":0,"data":{"transactionId":"t-1","requestId":"r-1"},"x":' + b"[" * 900 + b"]" * 900 + b"}"

    async def answer(_: Any) -> bytes | None:
        return raw_reply(deep)

    def trips() -> Mapping[str, str]:
        raise RuntimeError("+256772000017")

    wire.answer = answer
    assert "t-1" == (await payments.payouts.send(payout())).transaction_id
    quirks = MetQuirks()
    quirks._tell(trips)
    assert ["an answer could not be searched for quirks: RuntimeError"] == [one.getMessage() for one in caplog.records]


async def test_no_words_of_the_service_are_told(opened: Open, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    """Values are words of ours, whatever stands in the answer."""
    caplog.set_level(logging.DEBUG, "payments_async")
    word = "Grace Akello +256772000017"
    row = {"transactionId": "t-1", "status": word, "createdOn": word, "transactionType": word, "accountNumber": [word]}
    receiver = Receiver(senders=["127.0.0.1"])
    payments = await opened(wire)

    async def answer(_: Any) -> bytes | None:
        return reply({"code": 1, "correlationId": word, "data": {"collection": [row], "nextPage": word}})

    wire.answer = answer
    await payments.transactions.page()
    odd = notification("r-1", created_on=word, spelling="snake", extra={word: word})
    await deliver(receiver, odd)
    shown = repr([*payments.quirks_met.items(), *receiver.quirks_met.items()])
    assert {"read_code", "record_has_status", "record_account_number"} <= payments.quirks_met.keys()
    assert [] == [text for text in (shown, caplog.text) if "Akello" in text or "256772000017" in text]
    assert "snake" in receiver.quirks_met["ipn_spelling"]
