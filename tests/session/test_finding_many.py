"""Many orders found for one reading of the list, and the end of an order of which only the request id is left."""

import asyncio
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from session.conftest import Open, OpenSandbox
from session.wires import Request, Wire, payout, reply, turns

from payments_async import (
    Dialect,
    InvalidOrder,
    Limits,
    OutcomeUnknown,
    PaymentsSession,
    ServiceFault,
    SeveralTransactions,
    Transaction,
    TransactionStatus,
)
from payments_async._session.session import executor_of
from payments_async._values.errors import IncompleteListing
from payments_async.ipn import TransactionSucceeded
from payments_async.sandbox import Fault, ManualClock, Sandbox

DAY = date(2026, 1, 5)  # the sandbox's clock stands there
TODAY = {"clock": None}  # the computer's, where what is looked for was sent today


async def pay(payments: PaymentsSession, *request_ids: str) -> list[str]:
    """Orders of these ids, one after the other; the ids of their transactions."""
    return [(await payments.payouts.send(payout(request_id))).transaction_id for request_id in request_ids]


def asked(sandbox: Sandbox, before: int = 0) -> list[str]:
    """The lists and records that were asked for since so many requests."""
    paths = [one.path for one in sandbox.requests[before:]]
    return [path for path in paths if path.startswith("/api/transactions") and "payouts" not in path]


def transactions(found: Mapping[str, Transaction]) -> dict[str, str]:
    """The ids of the transactions that were found."""
    return {request_id: one.transaction_id for request_id, one in found.items()}


# --- many -------------------------------------------------------------------------------------------------------------


async def test_many_orders_cost_one_reading(opened: Open, sandbox: Sandbox) -> None:
    """As many pages as one order would cost; what the list does not show is left out."""
    payments = await opened(sandbox)
    sent = [f"r-{number}" for number in range(120)]
    transaction_ids = await pay(payments, *sent)
    before = len(sandbox.requests)
    await payments.transactions.find("never", since=DAY, until=DAY)
    alone = len(asked(sandbox, before))
    found = await payments.transactions.find_many([*sent[::2], "never"], since=DAY, until=DAY)
    assert dict(zip(sent[::2], transaction_ids[::2], strict=True)) == {
        id_: one.transaction_id for id_, one in found.items()
    }
    assert (3, 2 * alone) == (alone, len(asked(sandbox, before)))


async def test_none_are_asked_for(opened: Open, sandbox: Sandbox) -> None:
    """Then nothing is read."""
    assert {} == await (await opened(sandbox)).transactions.find_many([], since=DAY, until=DAY)
    assert [] == asked(sandbox)


async def test_one_text_is_not_many_ids(opened: Open, sandbox: Sandbox) -> None:
    """Its letters are not looked for."""
    with pytest.raises(TypeError, match="there is find"):
        await (await opened(sandbox)).transactions.find_many("r-1")
    assert [] == asked(sandbox)


async def test_ids_in_other_letters(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """Found as they are asked for, however the list and whoever asks write them, also twice."""
    payments = await opened(await opened_sandbox({"request_id_case": "upper"}))
    first, second = await pay(payments, "r-one", "r-Two")
    found = await payments.transactions.find_many(["r-one", " R-ONE ", "r-two"], since=DAY, until=DAY)
    assert {"r-one": first, " R-ONE ": first, "r-two": second} == {
        id_: one.transaction_id for id_, one in found.items()
    }


async def test_many_orders_are_settled_in_the_session(opened: Open, sandbox: Sandbox) -> None:
    """What was found is no longer of unknown outcome, and is not sent again; what was not found stays so."""
    payments = await opened(sandbox)
    for fault, request_id in ((Fault.LOST_AFTER, "after"), (Fault.LOST_BEFORE, "before")):
        sandbox.script(fault, on="payout")
        with pytest.raises(OutcomeUnknown):
            await payments.payouts.send(payout(request_id))
    found = await payments.transactions.find_many(["after", "before"], since=DAY, until=DAY)
    assert ({"after"}, {"before"}) == (set(found), payments.unsettled)
    assert found["after"].transaction_id == (await payments.payouts.send(payout("after"))).transaction_id
    assert 1 == sandbox.executions("after")


async def test_an_order_that_was_paid_twice_among_many(opened: Open, sandbox: Sandbox) -> None:
    """The first is given, and a warning names both, where the caller stands."""
    payments = await opened(sandbox)
    (first,) = await pay(payments, "twice")
    (second,) = await pay(await opened(sandbox), "twice")
    await pay(payments, "once")
    with pytest.warns(SeveralTransactions, match=f"{first}, {second}") as told:
        found = await payments.transactions.find_many(["once", "twice"], since=DAY, until=DAY)
    assert (first, [__file__]) == (found["twice"].transaction_id, [warning.filename for warning in told])


@pytest.mark.parametrize(("request_ids", "warned"), [(["r-1"], 0), (["r-1", "r-2"], 1)])
async def test_many_orders_where_rows_are_missing(
    opened: Open, wire: Wire, request_ids: list[str], warned: int
) -> None:
    """A list that was not shown to its end is told of once, unless it showed all that was asked for."""

    async def answer(_: Request) -> bytes | None:
        return reply(
            {"code": 0, "data": {"collection": [{"transactionId": "t-1", "requestId": "r-1"}], "totalCount": 2}}
        )

    wire.answer = answer
    payments = await opened(wire)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = await payments.transactions.find_many(request_ids)
    assert ["r-1"] == list(found)
    assert [IncompleteListing] * warned == [warning.category for warning in told]


async def test_many_orders_where_the_list_fails(opened: Open, sandbox: Sandbox) -> None:
    """An error, as of one order: nobody takes a part of the list for all of it."""
    payments = await opened(sandbox)
    await pay(payments, "r-1")
    sandbox.script(Fault.ERROR_BEFORE, on="transactions", times=None)
    with pytest.raises(ServiceFault):
        await payments.transactions.find_many(["r-1"], since=DAY, until=DAY)


@pytest.mark.parametrize("offered", [True, False])
async def test_many_orders_that_are_older_than_the_list(
    opened: Open, opened_sandbox: OpenSandbox, offered: bool
) -> None:
    """Where orders have a path, those that the list does not show are asked for by it."""
    sandbox = await opened_sandbox({"requests_path": offered})
    payments = await opened(sandbox, dialect=Dialect(find_by_request_path="/transactions/Requests/{request_id}"))
    await pay(payments, "old", "new")
    found = await payments.transactions.find_many(["old", "never"], since=DAY + timedelta(days=3))
    assert (["old"] if offered else []) == list(found)
    by_path = [path.rpartition("/")[2] for path in asked(sandbox) if "Requests" in path]
    assert (["never", "old"] if offered else []) == sorted(by_path)  # what it does not offer it notes nothing of


# --- settled, by a request id -----------------------------------------------------------------------------------------


class Receiver:
    """Hears one event, and remembers for whom it was asked."""

    def __init__(self, event: Any) -> None:
        self.event = event
        self.asked: list[tuple[str, str | None]] = []

    async def wait_for(
        self,
        request_id: str,
        timeout: float | None = None,
        *,
        transaction_id: str | None = None,
        when: Callable[[Any], bool] | None = None,
    ) -> Any:
        self.asked.append((request_id, transaction_id))
        if when is not None and not when(self.event):
            await asyncio.get_running_loop().create_future()
        return self.event


async def lost(payments: PaymentsSession, sandbox: Sandbox, request_id: str = "lost") -> None:
    """An order whose acceptance is lost on the way."""
    sandbox.script(Fault.LOST_AFTER, on="payout")
    with pytest.raises(OutcomeUnknown):
        await payments.payouts.send(payout(request_id))


@pytest.mark.parametrize("path", [None, "/transactions/Requests/{request_id}"])
async def test_an_order_whose_acceptance_was_lost(opened: Open, opened_sandbox: OpenSandbox, path: str | None) -> None:
    """It is found by its request id, and the filtered list tells how it ended; the session knows it from then on."""
    sandbox = await opened_sandbox({"requests_path": True}, **TODAY, processing_delay=0.0)
    payments = await opened(sandbox, dialect=Dialect(find_by_request_path=path))
    await lost(payments, sandbox)
    await sandbox.settle()
    settlement = await payments.transactions.settled("lost")
    assert (TransactionStatus.SUCCESSFUL, frozenset()) == (settlement.status, payments.unsettled)


async def test_an_order_that_the_session_remembers(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """Its transaction is known: the record tells, and no list is read."""
    sandbox = await opened_sandbox({"record_has_status": True})
    payments = await opened(sandbox)
    (transaction_id,) = await pay(payments, "r-0")
    await sandbox.settle()
    await payments.transactions.settled("r-0")
    assert [f"/api/transactions/{transaction_id}"] == asked(sandbox)


async def test_an_order_of_an_earlier_day(opened: Open, sandbox: Sandbox) -> None:
    """It is found where the days name it, and not before: whoever does not say reads from yesterday."""
    payments = await opened(sandbox)
    await lost(payments, sandbox)
    await sandbox.settle()
    with pytest.raises(TimeoutError):
        await payments.transactions.settled("lost", timeout=0.2)
    assert TransactionStatus.SUCCESSFUL == (await payments.transactions.settled("lost", since=DAY)).status


async def test_a_notification_of_a_request_id(opened: Open, sandbox: Sandbox) -> None:
    """It is heard by the request id, before any list shows the order; the session knows the transaction then."""
    payments = await opened(sandbox)
    sandbox.script(Fault.LOST_BEFORE, on="payout")
    with pytest.raises(OutcomeUnknown):
        await payments.payouts.send(payout("r-1"))
    receiver = Receiver(
        TransactionSucceeded(transaction_id="t-1", status_code=0, request_id="r-1", amount=Decimal(1500))
    )
    settlement = await payments.transactions.settled("r-1", receiver=receiver, order=payout("r-1"))
    assert (TransactionStatus.SUCCESSFUL, [("r-1", None)]) == (settlement.status, receiver.asked)
    assert "t-1" == (await payments.payouts.send(payout("r-1"))).transaction_id
    assert 0 == sandbox.executions("r-1")


@pytest.mark.parametrize("changes", [{"amount": Decimal(1501)}, {"currency": "KES"}])
async def test_what_is_of_another_order_does_not_count(
    opened: Open, opened_sandbox: OpenSandbox, changes: dict[str, Any]
) -> None:
    """Neither a notification nor a record of another amount or currency ends the order that was sent."""
    sandbox = await opened_sandbox({"record_has_status": True}, **TODAY, processing_delay=0.0)
    await pay(await opened(sandbox), "r-1")
    await sandbox.settle()
    ours = payout("r-1", **changes)
    theirs = TransactionSucceeded(
        transaction_id="t-1", status_code=0, request_id="r-1", amount=Decimal(-1500), currency_code="UGX"
    )
    waiting = (await opened(sandbox)).transactions.settled("r-1", receiver=Receiver(theirs), order=ours, timeout=0.3)
    with pytest.raises(TimeoutError):
        await waiting


async def test_an_order_that_was_paid_twice_is_told_of(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """Whoever waits for its end by its request id hears that it has two."""
    sandbox = await opened_sandbox({"record_has_status": True}, **TODAY, processing_delay=0.0)
    for _ in range(2):
        await pay(await opened(sandbox), "twice")
    await sandbox.settle()
    with pytest.warns(SeveralTransactions):
        settlement = await (await opened(sandbox)).transactions.settled("twice")
    assert TransactionStatus.SUCCESSFUL == settlement.status


async def test_a_record_that_tells_costs_no_list(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """One that is under way by its record is asked again, and nothing else is; another service's lists are read."""
    sandbox = await opened_sandbox({"record_has_status": True}, clock=ManualClock())
    payments = await opened(sandbox)
    acceptance = await payments.payouts.send(payout("r-0"))
    waiting = asyncio.ensure_future(payments.transactions.settled(acceptance))
    while len(asked(sandbox)) < 4:
        await turns()
    await sandbox.settle()
    assert TransactionStatus.SUCCESSFUL == (await waiting).status
    assert {f"/api/transactions/{acceptance.transaction_id}"} == set(asked(sandbox))


async def test_days_are_those_of_the_service(opened: Open, wire: Wire) -> None:
    """A request id without a day is looked for from the day before yesterday's midnight at most until tomorrow."""
    dates: list[str] = []

    async def answer(request: Request) -> bytes | None:
        dates.append(request.path)
        row = {"transactionId": "t-1", "requestId": "r-1", "status": "SUCCESSFULL"}
        return reply({"code": 0, "data": {"collection": [row], "totalCount": 1}})

    wire.answer = answer
    payments = await opened(wire)
    before = datetime.now(UTC)
    await payments.transactions.settled("r-1")
    days = {(now + timedelta(days=back)).date() for now in (before, datetime.now(UTC)) for back in (-1, -2)}
    assert any(f"earlierDate={day}" in dates[0] for day in days)


async def test_what_was_accepted_since_somebody_was_looked_for(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """Whose a transaction is, is found out once, not anew for each look-up, and kept up with each order since."""
    sandbox = await opened_sandbox({"request_id_case": "upper"})
    payments = await opened(sandbox, limits=Limits(remembered=2))
    books = executor_of(payments).books
    first, second = await pay(payments, "pay-1", "pay-2")
    owners = books.owners()
    assert {first: "pay-1", second: "pay-2"} == owners
    (third,) = await pay(payments, "pay-3")
    found = await payments.transactions.find("PAY-3", since=DAY, until=DAY)
    assert found is not None
    assert third == found.transaction_id
    assert ({second: "pay-2", third: "pay-3"}, True) == (owners, owners is books.owners())


@pytest.mark.parametrize("case", ["as_given", "upper"])
async def test_an_order_whose_id_differs_from_another_ones_in_letters_alone(
    opened: Open, opened_sandbox: OpenSandbox, case: str
) -> None:
    """It is the same order: the second is not sent, and either id finds the transaction of the first."""
    sandbox = await opened_sandbox({"request_id_case": case})
    payments = await opened(sandbox)
    (accepted,) = await pay(payments, "pay-1")
    sandbox.script(Fault.LOST_AFTER, request_id="\u00e9a")
    with pytest.raises(OutcomeUnknown):
        await payments.payouts.send(payout("\u00e9a"))
    for other in ("PAY-1", "\u00c9a", "\uff50ay-1"):
        with pytest.raises(InvalidOrder, match="another order under the same request id"):
            await payments.payouts.send(payout(other))
    found = await payments.transactions.find_many(["PAY-1", "pay-1"], since=DAY, until=DAY)
    assert {"PAY-1": accepted, "pay-1": accepted} == transactions(found)
    assert {"\u00e9a"} == payments.unsettled
    assert 2 == len(sandbox.ledger)


async def test_a_row_whose_id_may_have_been_cut_off_finds_nothing(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """Two orders whose outcome is unknown, one id the beginning of the other: the shorter one was never carried out."""
    sandbox = await opened_sandbox({"request_id_length": 7})
    payments = await opened(sandbox)
    (known,) = await pay(payments, "order-2")
    sandbox.script(Fault.LOST_BEFORE, request_id="order-1")
    sandbox.script(Fault.LOST_AFTER, request_id="order-15")
    for request_id in ("order-1", "order-15"):
        with pytest.raises(OutcomeUnknown):
            await payments.payouts.send(payout(request_id))
    assert await payments.transactions.find("order-1", since=DAY, until=DAY) is None
    with pytest.raises(TimeoutError):
        await payments.transactions.settled("order-1", since=DAY, timeout=0.5)
    asked_for = ["order-1", "order-15", "order-2"]
    found = await payments.transactions.find_many(asked_for, since=DAY, until=DAY)
    assert {"order-2": known} == transactions(found)
    assert {"order-1", "order-15"} == payments.unsettled
    other = await opened(sandbox)  # which has sent none of them
    assert {"order-2": known} == transactions(await other.transactions.find_many(asked_for, since=DAY, until=DAY))
