"""Lists that shift, lie and ignore their filters; finding an order in them, and telling how it ended."""

import asyncio
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from session.conftest import Open, OpenSandbox
from session.wires import Request, Times, Wire, payout, reply, turns

from payments_async import (
    Acceptance,
    AuthenticationFailed,
    Dialect,
    OutcomeUnknown,
    PaymentsSession,
    ServiceFault,
    SeveralTransactions,
    TransactionStatus,
)
from payments_async._values.errors import IncompleteListing
from payments_async.ipn import Receiver as IpnReceiver
from payments_async.journal import SqliteJournal
from payments_async.sandbox import Fault, ManualClock, Sandbox
from payments_async.testing import deliver, notification

DAY = date(2026, 1, 5)  # the sandbox's clock stands there
QUIRKS: list[dict[str, Any]] = [
    {},
    {"next_page_lies": True},
    {"newest_first": True},
    {"ignores_date_filter": True},
    {"list_swaps_product": True},
    {"record_product_key": "productItemId"},
    {"record_beneficiary_data": "phone"},
    {"record_amount_sign": "collections_negative"},
    {"record_account_number": "number"},
    {"read_code": 1},
    {"max_page_size": 7},
    {"next_page_lies": True, "max_page_size": 3, "newest_first": True},
]


async def pay(payments: PaymentsSession, count: int) -> list[Acceptance]:
    """So many payouts, one after the other."""
    return [await payments.payouts.send(payout(f"r-{number}")) for number in range(count)]


async def looks(payments: PaymentsSession, acceptance: Acceptance, times: Times, sandbox: Sandbox) -> list[int]:
    """What eight looks for an outcome ask the service; there is none yet."""
    looking = asyncio.ensure_future(payments.transactions.settled(acceptance, timeout=60))
    asked = [len(sandbox.requests)]
    while len(asked) <= 8:
        await asyncio.sleep(0)
        assert not looking.done()
        if len(times.slept) >= len(asked):
            asked.append(len(sandbox.requests))
    looking.cancel()
    await asyncio.wait([looking])
    return [after - before for before, after in pairwise(asked)]


@pytest.mark.parametrize("quirks", QUIRKS)
@pytest.mark.parametrize("count", [0, 1, 10, 23])
async def test_every_row_once(opened: Open, opened_sandbox: OpenSandbox, quirks: dict[str, Any], count: int) -> None:
    """Whatever the pages claim of themselves."""
    payments = await opened(await opened_sandbox(quirks))
    await pay(payments, count)
    rows = [row async for row in payments.transactions.iterate(since=DAY, until=DAY, size=5)]
    assert sorted(f"r-{number}" for number in range(count)) == sorted(str(row.request_id) for row in rows)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_that_shift(opened: Open, opened_sandbox: OpenSandbox, newest_first: bool, seed: int) -> None:
    """While the list grows below the reader no row comes twice, and rows that went missing are told of."""
    sandbox = await opened_sandbox({"unstable_pages": True, "newest_first": newest_first}, seed=seed)
    payments = await opened(sandbox)
    await pay(payments, 20)
    listing = payments.transactions.iterate(since=DAY, until=DAY, size=4)
    seen: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async for row in listing:
            seen.append(row.transaction_id)
            if len(seen) in (4, 9):
                await payments.payouts.send(payout(f"more-{len(seen)}"))
    assert len(seen) == len(set(seen))
    missing = {execution.transaction_id for execution in sandbox.ledger} - set(seen)
    if missing:
        assert listing.incomplete is not None
        assert [IncompleteListing] == [warning.category for warning in told]
        assert listing.incomplete.expected - listing.incomplete.seen <= len(missing)


async def test_rows_that_went_missing(opened: Open, wire: Wire) -> None:
    """A service that counts more than it shows: the listing ends, and says that absence is not proof."""
    rows = [{"transactionId": f"t-{number}", "requestId": f"r-{number}"} for number in range(4)]

    async def answer(request: Request) -> bytes | None:
        shown = rows[:2] if "pageNumber=1&" in request.path else rows[3:] if "pageNumber=2&" in request.path else []
        return reply({"code": 0, "data": {"collection": shown, "totalCount": 4, "nextPage": True}})

    wire.answer = answer
    payments = await opened(wire)
    listing = payments.transactions.iterate(size=2)
    with pytest.warns(IncompleteListing, match="counted 4 rows but showed 3"):
        assert ["t-0", "t-1", "t-3"] == [row.transaction_id async for row in listing]
    assert listing.incomplete is not None
    with pytest.warns(IncompleteListing):
        assert await payments.transactions.find("r-2") is None


async def test_a_page_that_never_ends(opened: Open, wire: Wire) -> None:
    """A service that ignores the page number does not hold a reader for ever."""

    async def answer(_: Request) -> bytes | None:
        row = {"transactionId": "t-1", "requestId": "r-1"}
        return reply({"code": 0, "data": {"collection": [row], "nextPage": True}})

    wire.answer = answer
    payments = await opened(wire)
    assert ["t-1"] == [row.transaction_id async for row in payments.transactions.iterate()]
    assert len(wire.orders) < 5


async def test_the_window_is_pinned(opened: Open, wire: Wire) -> None:
    """Every page asks for the same last day, also without one."""

    async def answer(_: Request) -> bytes | None:
        return reply({"code": 0, "data": {"collection": []}})

    wire.answer = answer
    payments = await opened(wire)
    _ = [row async for row in payments.transactions.iterate(since=DAY)]
    today = datetime.now(UTC).date()
    assert any(f"laterDate={day}" in wire.orders[0].path for day in (today, today - timedelta(days=1)))
    assert "earlierDate=2026-01-05" in wire.orders[0].path


async def test_a_fault_in_the_middle(opened: Open, sandbox: Sandbox) -> None:
    """A page is asked for again; when it stays away the reader is told, and nothing is passed over."""
    payments = await opened(sandbox)
    await pay(payments, 9)
    seen = []
    async for row in payments.transactions.iterate(since=DAY, until=DAY, size=3):
        seen.append(row.request_id)
        if len(seen) == 3:
            sandbox.script(Fault.ERROR_BEFORE, on="transactions")
    assert 9 == len(seen)
    sandbox.script(Fault.ERROR_BEFORE, on="transactions", times=None)
    with pytest.raises(ServiceFault):
        _ = [row async for row in payments.transactions.iterate(since=DAY, until=DAY)]


# --- find -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [None, "/transactions/Requests/{request_id}"])
@pytest.mark.parametrize("offered", [True, False])
async def test_find(opened: Open, opened_sandbox: OpenSandbox, path: str | None, offered: bool) -> None:
    """It finds an order whose answer was lost, which settles it; one that is not shown proves nothing."""
    sandbox = await opened_sandbox({"requests_path": offered})
    payments = await opened(sandbox, dialect=Dialect(find_by_request_path=path))
    await pay(payments, 3)
    sandbox.script(Fault.LOST_AFTER, on="payout")
    sandbox.script(Fault.LOST_BEFORE, on="payout")
    for name in ("after", "before"):
        with pytest.raises(OutcomeUnknown):
            await payments.payouts.send(payout(name))
    found = await payments.transactions.find("after", since=DAY, until=DAY)
    assert found is not None
    assert sandbox.ledger[3].transaction_id == found.transaction_id
    assert await payments.transactions.find("before", since=DAY, until=DAY) is None
    assert {"before"} == payments.unsettled


async def test_all_transactions_of_an_order(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """One that was paid twice has two, and all are given; find gives the first and warns of the others."""
    sandbox = await opened_sandbox()
    payments = await opened(sandbox)
    first = await payments.payouts.send(payout("twice"))
    second = await (await opened(sandbox)).payouts.send(payout("twice"))
    found = await payments.transactions.find_all("twice", since=DAY, until=DAY)
    assert [first.transaction_id, second.transaction_id] == [one.transaction_id for one in found]
    with pytest.warns(SeveralTransactions, match=f"{first.transaction_id}, {second.transaction_id}") as told:
        one = await payments.transactions.find("twice", since=DAY, until=DAY)
    assert one is not None
    assert first.transaction_id == one.transaction_id
    assert [__file__] == [warning.filename for warning in told]
    assert () == await payments.transactions.find_all("never", since=DAY, until=DAY)


async def test_all_transactions_where_rows_are_missing(opened: Open, wire: Wire) -> None:
    """There may be more: what was found is given, with a warning."""

    async def answer(_: Request) -> bytes | None:
        rows = [{"transactionId": "t-1", "requestId": "r-1"}]
        return reply({"code": 0, "data": {"collection": rows, "totalCount": 2}})

    wire.answer = answer
    payments = await opened(wire)
    with pytest.warns(IncompleteListing):
        assert 1 == len(await payments.transactions.find_all("r-1"))


LOCAL = ["127.0.0.1"]

# --- settled ----------------------------------------------------------------------------------------------------------


class Receiver:
    """Hears of an order when it is told to."""

    def __init__(self) -> None:
        self.told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def wait_for(
        self,
        request_id: str,
        timeout: float | None = None,
        *,
        transaction_id: str | None = None,
        when: Callable[[Any], bool] | None = None,
    ) -> Any:
        return await self.told


class Event:
    status_code = 0


@pytest.fixture
async def accepted_order(opened: Open, sandbox: Sandbox) -> tuple[PaymentsSession, Acceptance]:
    """A session, and what it was told of its one order."""
    payments = await opened(sandbox)
    return payments, (await pay(payments, 1))[0]


@pytest.mark.parametrize(
    ("fault", "status"), [(None, TransactionStatus.SUCCESSFUL), (Fault.FAILS, TransactionStatus.FAILED)]
)
async def test_settled_by_the_lists(
    opened: Open, opened_sandbox: OpenSandbox, fault: Fault | None, status: TransactionStatus
) -> None:
    """Records carry no status; the filtered list that shows the id tells it."""
    sandbox = await opened_sandbox()
    payments = await opened(sandbox)
    if fault is not None:
        sandbox.script(fault, on="payout")
    (acceptance,) = await pay(payments, 1)
    await sandbox.settle()
    settlement = await payments.transactions.settled(acceptance)
    assert (status, f"the list of {status} transactions") == (settlement.status, settlement.evidence)


async def test_settled_by_the_record(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """Where the service shows a status in the record, that is enough."""
    sandbox = await opened_sandbox({"record_has_status": True})
    payments = await opened(sandbox)
    (acceptance,) = await pay(payments, 1)
    await sandbox.settle()
    assert "r-0" == (await payments.transactions.settled(acceptance)).evidence.request_id


async def test_not_settled_by_the_record_of_another_transaction(payments: PaymentsSession, wire: Wire) -> None:
    """Whatever end a balancer's mistaken answer shows, it is not that of the order."""
    acceptance = await payments.payouts.send(payout())
    asked: list[str] = []

    async def mistaken(request: Request) -> bytes | None:
        asked.append(request.path)
        if len(asked) > 2:
            record = {"transactionId": "T-R-1", "requestId": "r-1", "status": "FAILED"}  # capitals do not matter
        else:
            record = {"transactionId": "t-r-2", "requestId": "r-2", "status": "SUCCESSFULL"}
        return reply({"code": 0, "data": record})

    wire.answer = mistaken
    assert TransactionStatus.FAILED == (await payments.transactions.settled(acceptance)).status


async def test_settled_by_a_notification(accepted_order: tuple[PaymentsSession, Acceptance]) -> None:
    """Whichever tells first; the lists still say processing."""
    payments, acceptance = accepted_order
    receiver = Receiver()
    waiting = asyncio.ensure_future(payments.transactions.settled(acceptance, receiver=receiver))
    await turns()
    receiver.told.set_result(Event())
    settlement = await waiting
    assert TransactionStatus.SUCCESSFUL == settlement.status
    assert isinstance(settlement.evidence, Event)


async def test_settled_although_the_lists_fail(
    accepted_order: tuple[PaymentsSession, Acceptance], sandbox: Sandbox
) -> None:
    """A service that cannot be asked now is asked again, and a notification counts all the same."""
    payments, acceptance = accepted_order
    sandbox.script(Fault.ERROR_BEFORE, on="transaction", times=5)
    sandbox.script(Fault.REFUSED, on="transactions", times=2)
    await sandbox.settle()
    assert TransactionStatus.SUCCESSFUL == (await payments.transactions.settled(acceptance)).status
    sandbox.script(Fault.ERROR_BEFORE, on="transaction", times=None)
    receiver = Receiver()
    waiting = asyncio.ensure_future(payments.transactions.settled(acceptance, receiver=receiver))
    await turns()
    receiver.told.set_result(Event())
    assert isinstance((await waiting).evidence, Event)


async def test_settled_with_wrong_credentials(
    accepted_order: tuple[PaymentsSession, Acceptance], sandbox: Sandbox
) -> None:
    """That is an error of its own, and no group of errors."""
    payments, acceptance = accepted_order
    sandbox.script(Fault.TOKEN_REVOKED, on="transaction", times=None)
    for receiver in (None, Receiver()):
        with pytest.raises(AuthenticationFailed):
            await payments.transactions.settled(acceptance, receiver=receiver)


async def test_a_notification_nobody_understands(
    accepted_order: tuple[PaymentsSession, Acceptance], sandbox: Sandbox
) -> None:
    """An undocumented status code is no failure: the lists decide."""
    payments, acceptance = accepted_order
    receiver, event = Receiver(), Event()
    event.status_code = 3
    receiver.told.set_result(event)
    waiting = asyncio.ensure_future(payments.transactions.settled(acceptance, receiver=receiver))
    await turns()
    assert not waiting.done()
    await sandbox.settle()
    assert TransactionStatus.SUCCESSFUL == (await waiting).status


async def test_settled_in_time(accepted_order: tuple[PaymentsSession, Acceptance]) -> None:
    """Nothing final in time is a TimeoutError."""
    payments, acceptance = accepted_order
    for receiver in (None, Receiver()):
        with pytest.raises(TimeoutError):
            await payments.transactions.settled(acceptance, receiver=receiver, timeout=0.05)


async def test_looks_at_what_is_not_settled(accepted_order: tuple[PaymentsSession, Acceptance], times: Times) -> None:
    """They come with growing pauses."""
    payments, acceptance = accepted_order
    looking = asyncio.ensure_future(payments.transactions.settled(acceptance, timeout=60))
    while len(times.slept) < 3:  # noqa: ASYNC110 - a turn of the loop each, and no time
        await asyncio.sleep(0)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    assert [1.0, 2.0, 4.0] == times.slept[:3]


async def test_a_filter_that_is_ignored(opened: Open, opened_sandbox: OpenSandbox, times: Times) -> None:
    """An id that every list shows has no status."""
    sandbox = await opened_sandbox({"ignores_status_filter": True})
    payments = await opened(sandbox)
    (acceptance,) = await pay(payments, 1)
    await sandbox.settle()
    await looks(payments, acceptance, times, sandbox)


async def test_a_word_that_the_filter_does_not_know(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """A service that says FAILURE and shows everything for FAILED: an order under way has not failed."""
    payments = await opened(await opened_sandbox({"filter_words": "other", "unknown_filter_word": "ignored"}))
    (acceptance,) = await pay(payments, 1)
    with pytest.raises(TimeoutError):
        await payments.transactions.settled(acceptance, timeout=0.3)


@pytest.mark.parametrize("late", range(1, 24))
async def test_a_list_that_is_late(opened: Open, opened_sandbox: OpenSandbox, times: Times, late: int) -> None:
    """An order that turns up while one filtered list after the other is read has no status because of that."""
    sandbox = await opened_sandbox({"ignores_status_filter": True, "listed_after": late})
    payments = await opened(sandbox)
    (acceptance,) = await pay(payments, 1)
    await looks(payments, acceptance, times, sandbox)


@pytest.mark.parametrize("quirks", [{"filter_words": "other"}, {"unknown_filter_word": "empty"}])
async def test_the_words_of_the_service(opened: Open, opened_sandbox: OpenSandbox, quirks: dict[str, Any]) -> None:
    """Every word that was ever met is asked for."""
    sandbox = await opened_sandbox(quirks)
    payments = await opened(sandbox)
    sandbox.script(Fault.FAILS, on="payout")
    failed, paid = await pay(payments, 2)
    await sandbox.settle()
    assert TransactionStatus.FAILED == (await payments.transactions.settled(failed)).status
    assert TransactionStatus.SUCCESSFUL == (await payments.transactions.settled(paid)).status


async def test_what_looking_at_an_order_under_way_costs(
    opened: Open, opened_sandbox: OpenSandbox, times: Times
) -> None:
    """Whether the service filters is asked once a minute, and the lists of those under way only in case of an end."""
    sandbox = await opened_sandbox()
    payments = await opened(sandbox)
    (acceptance,) = await pay(payments, 1)
    costs = await looks(payments, acceptance, times, sandbox)
    final = sum(len(status.spellings) for status in TransactionStatus if status.is_final)
    assert [3 + final, 2 + final, 2 + final] == costs[:3]  # one asks for the record


async def test_many_at_once_leave_the_warnings_alone(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """Looking at the lists in several tasks must not switch off warnings for the whole process."""
    sandbox = await opened_sandbox(clock=ManualClock())
    payments = await opened(sandbox)
    acceptances = await pay(payments, 5)
    await sandbox.settle()
    before = list(warnings.filters)
    await asyncio.gather(*(payments.transactions.settled(acceptance) for acceptance in acceptances))
    assert before == list(warnings.filters)


@pytest.mark.parametrize(("kept", "before"), [(True, True), (True, False), (False, True), (False, False)])
async def test_settled_takes_the_notification_of_its_own_transaction(
    accepted_order: tuple[PaymentsSession, Acceptance], tmp_path: Path, kept: bool, before: bool
) -> None:
    """Another transaction with the same request id is passed over, and so is what is not final."""
    payments, acceptance = accepted_order
    request_id, transaction_id = acceptance.request_id, acceptance.transaction_id
    told = [
        notification(request_id, status_code=2, transaction_id="another", amount=1500),
        notification(request_id, status_code=1, transaction_id=transaction_id, amount=1500),
        notification(request_id, status_code=0, transaction_id=transaction_id.upper(), amount=1500),
    ]
    async with SqliteJournal(tmp_path / "inbox.db") as inbox, IpnReceiver(inbox if kept else None, LOCAL) as receiver:
        settled = payments.transactions.settled(acceptance, receiver=receiver, timeout=60)
        waiting = None if before else asyncio.ensure_future(settled)
        await turns()
        for one in told:
            assert 200 == (await deliver(receiver, one)).status
        settlement = await (waiting or settled)
    assert (TransactionStatus.SUCCESSFUL, transaction_id) == (settlement.status, settlement.evidence.transaction_id)


@pytest.mark.parametrize("differs", [{"amount": 7}, {"amount": 1500, "currency_code": "KES"}])
async def test_settled_compares_the_order_where_it_is_told_it(
    accepted_order: tuple[PaymentsSession, Acceptance], sandbox: Sandbox, differs: dict[str, Any]
) -> None:
    """A failure of another sum is not this order's: the lists decide."""
    payments, acceptance = accepted_order
    receiver = IpnReceiver(None, LOCAL)
    forged = notification(acceptance.request_id, status_code=2, transaction_id=acceptance.transaction_id, **differs)
    assert 200 == (await deliver(receiver, forged)).status
    await sandbox.settle()
    order = payout(acceptance.request_id, currency="UGX")
    settlement = await payments.transactions.settled(acceptance, receiver=receiver, order=order)
    assert TransactionStatus.SUCCESSFUL == settlement.status
    assert TransactionStatus.FAILED == (await payments.transactions.settled(acceptance, receiver=receiver)).status
