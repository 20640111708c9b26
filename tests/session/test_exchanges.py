"""What came back, word for word: the exchanges of a block, and which of them told a result."""

import asyncio
import pickle
from contextlib import AsyncExitStack
from decimal import Decimal

import pytest
from session.conftest import Open
from session.test_known_orders import Held
from session.wires import CARD, NAME, PHONE, Request, Wire, accepted, payout, raw_reply, reply, until

from payments_async import (
    Acceptance,
    Exchange,
    Exchanges,
    NotSent,
    OutcomeUnknown,
    PaymentsSession,
    Rejected,
    RetryPolicy,
    UnreadableReply,
)
from payments_async.journal import SqliteJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import Sandbox

EXACT = b'{"code":0,"data":{"accountNumber":"0041","balance":1234567890123456.7800},"correlationId":"c-1"}'


async def test_an_acceptance_and_the_exchange_that_told_it(payments: PaymentsSession, wire: Wire) -> None:
    """Status, correlation id and the answer itself; the login is not among them."""

    async def accept(request: Request) -> bytes | None:
        return accepted(request.request_id, correlationId="c-4711")

    wire.answer = accept
    with payments.exchanges() as exchanges:
        acceptance = await payments.payouts.send(payout())
    (made,) = exchanges
    assert made is exchanges.of(acceptance) is exchanges[-1]
    assert ("POST", "/api/transactions/payouts/mobilemoney", "r-1") == (made.method, made.path, made.request_id)
    assert (200, "c-4711", "t-r-1") == (made.status, made.correlation_id, made.json()["data"]["transactionId"])
    assert accepted("r-1", correlationId="c-4711").endswith(made.body)
    assert [made] == list(exchanges[:5])


async def test_numbers_of_an_answer_are_exact(payments: PaymentsSession, wire: Wire) -> None:
    """Digit for digit, as the result has them."""

    async def show(_: Request) -> bytes | None:
        return raw_reply(EXACT)

    wire.answer = show
    with payments.exchanges() as exchanges:
        account = await payments.accounts.get()
    balance = exchanges[0].json()["data"]["balance"]
    assert (Decimal, "1234567890123456.7800") == (type(balance), str(balance))
    assert (balance, "c-1") == (account.balance, exchanges[0].correlation_id)


async def test_whatever_came_from_an_answer(opened: Open, sandbox: Sandbox) -> None:
    """Pages, rows of pages and of listings, records, validations and accounts name their exchange."""
    payments = await opened(sandbox)
    for number in range(30):
        await payments.payouts.send(payout(f"r-{number}"))
    with payments.exchanges() as exchanges:
        page = await payments.transactions.page(size=10)
        rows = [row async for row in payments.transactions.iterate(size=10)]
        record = await payments.transactions.get(rows[0].transaction_id)
        found = await payments.transactions.find("r-7")
        several = await payments.transactions.find_all("r-7")
        validation = await payments.products.validate("MTNAIRTIMEUG_MTNAIRTIMEUG", "0772000017", 1000)
        account = await payments.accounts.get()
        product = await anext(payments.products.iterate())
        anything = await payments.raw("GET", "/api/accounts")
    told = [page, page.collection[3], *rows, record, found, *several, validation, account, product, anything]
    assert [200] * len(told) == [exchange.status for exchange in map(exchanges.of, told) if exchange is not None]
    assert ["/api/transactions"] * 31 == [(exchanges.of(one) or exchanges[-1]).path for one in [page, *rows]]
    assert exchanges.of(rows[0]) is not exchanges.of(rows[-1])
    assert "/api/accounts" == exchanges[-1].path


async def test_errors_tell_their_exchange_too(opened: Open, wire: Wire) -> None:
    """Each attempt is one; one that was not answered has no status."""
    payments = await opened(wire, retry=RetryPolicy(attempts=3, wait_initial=0.0))
    no = reply({"code": 9, "message": "no", "correlationId": "c-3"}, 400)
    answers = [reply({"message": "busy"}, 503), no, None, reply({"code": 0}), reply([])]

    async def answer(_: Request) -> bytes | None:
        return answers.pop(0)

    wire.answer = answer
    with payments.exchanges() as exchanges:
        with pytest.raises(Rejected) as rejected:
            await payments.accounts.get()
        with pytest.raises(OutcomeUnknown) as cut_off:
            await payments.payouts.send(payout())
        with pytest.raises(OutcomeUnknown) as shapeless:
            await payments.payouts.send(payout("r-2"))
        with pytest.raises(UnreadableReply) as unreadable:
            await payments.with_options(retry=RetryPolicy(attempts=1)).accounts.get()
    assert [503, 400, None, 200, 200] == [exchange.status for exchange in exchanges]
    told = [exchanges.of(caught.value) for caught in (rejected, cut_off, shapeless, unreadable)]
    assert all(found is exchange for found, exchange in zip(told, exchanges[1:], strict=True))
    assert ("c-3", b"") == (exchanges[1].correlation_id, exchanges[2].body)
    with pytest.raises(ValueError, match="empty body"):
        exchanges[2].json()


async def test_an_order_that_could_not_leave(payments: PaymentsSession, wire: Wire) -> None:
    """It is an exchange that was tried, without an answer."""
    await payments.log_in()
    await wire.stop()
    with payments.exchanges() as exchanges, pytest.raises(NotSent) as caught:
        await payments.payouts.send(payout())
    assert exchanges.of(caught.value) == Exchange(
        method="POST", path="/api/transactions/payouts/mobilemoney", request_id="r-1"
    )


async def test_what_an_outbox_sends(sandbox: Sandbox, opened: Open, journal: SqliteJournal) -> None:
    """Its workers began before the block, and are heard all the same; other tasks that pay by themselves are not."""
    payments = await opened(sandbox)
    async with Outbox(payments, journal) as outbox:
        with payments.exchanges() as exchanges:
            entry = await outbox.pay(payout("r-1"), timeout=60)
        with payments.exchanges() as later, payments.exchanges() as inner:
            await outbox.pay(payout("r-2"), timeout=60)
        await outbox.pay(payout("r-3"), timeout=60)
    exchange = exchanges.of("r-1")
    assert exchange is not None
    assert entry.transaction_id == exchange.json()["data"]["transactionId"]
    assert ["r-1"] == [one.request_id for one in exchanges if one.request_id is not None]
    assert [["r-2"], ["r-2"]] == [[one.request_id for one in block if one.request_id] for block in (later, inner)]
    assert exchanges.of("r-2") is None


async def test_many_at_once(payments: PaymentsSession) -> None:
    """Tasks that are started within the block are heard, and each acceptance names its own exchange."""
    with payments.exchanges() as exchanges:
        outcomes = [outcome async for _, outcome in payments.payouts.send_many(map(payout, map(str, range(20))))]
    assert 20 == len(exchanges)
    for outcome in outcomes:
        exchange = exchanges.of(outcome)
        assert isinstance(outcome, Acceptance)
        assert exchange is not None
        assert outcome.request_id == exchange.json()["data"]["requestId"] == exchange.request_id


async def test_only_the_blocks_own_exchanges(opened: Open, payments: PaymentsSession, wire: Wire) -> None:
    """Neither what came before or after, nor another task's, nor another session's; a child's are."""
    other = await opened(wire)
    await payments.payouts.send(payout("before"))
    wire.answer = held = Held()
    elsewhere = asyncio.ensure_future(payments.payouts.send(payout("elsewhere")))
    await until(lambda: len(wire.orders) == 2)
    with payments.exchanges() as outer:
        held.release.set()
        await asyncio.gather(elsewhere, other.payouts.send(payout("other")))
        with payments.exchanges() as inner:
            await payments.with_options(timeout=30.0).payouts.send(payout("child"))
        known = await payments.payouts.send(payout("before"))
        await payments.payouts.send(payout("outer"))
    await payments.payouts.send(payout("after"))
    assert (["child"], ["child", "outer"]) == tuple([made.request_id for made in block] for block in (inner, outer))
    assert outer.of(known) is None


async def test_the_last_ones_are_kept(payments: PaymentsSession) -> None:
    """Whoever listens for long does not fill the memory; and no number is no limit."""
    with payments.exchanges(keep=2) as exchanges:
        first = await payments.payouts.send(payout("r-1"))
        await payments.payouts.send(payout("r-2"))
        await payments.payouts.send(payout("r-3"))
    assert (["r-2", "r-3"], None) == ([made.request_id for made in exchanges], exchanges.of(first))
    with pytest.raises(ValueError, match="keep: must be 1 or more"):
        payments.exchanges(keep=0)


async def test_they_are_listened_to_once(payments: PaymentsSession) -> None:
    """A second block would mix two stories."""
    exchanges = payments.exchanges()
    with exchanges:
        pass
    with pytest.raises(RuntimeError, match="listened to before"), exchanges:
        pass


async def test_a_block_that_is_left_elsewhere(payments: PaymentsSession) -> None:
    """As by a fixture, whose two halves may run in two contexts: it hears nothing any more."""
    async with AsyncExitStack() as stack:
        exchanges: Exchanges = await asyncio.create_task(_entered(stack, payments))
        await payments.payouts.send(payout("r-2"))
    await payments.payouts.send(payout("r-3"))
    assert ["r-1"] == [made.request_id for made in exchanges]


async def _entered(stack: AsyncExitStack, payments: PaymentsSession) -> Exchanges:
    exchanges = stack.enter_context(payments.exchanges())
    await payments.payouts.send(payout("r-1"))
    return exchanges


async def test_no_person_is_shown(payments: PaymentsSession, wire: Wire) -> None:
    """Neither of an answer nor of a path; a pickle has all of it."""

    async def show(request: Request) -> bytes | None:
        return reply({"code": 0, "data": {"name": NAME, "phone": PHONE, "card": CARD, "transactionId": "t-1"}})

    wire.answer = show
    with payments.exchanges() as exchanges:
        await payments.transactions.get("256772000017")
    assert [] == [text for text in (NAME, PHONE[1:], CARD) if text in repr(exchanges)]
    assert exchanges[0] == pickle.loads(pickle.dumps(exchanges[0]))  # noqa: S301 - it is ours
    assert NAME == exchanges[0].json()["data"]["name"]


async def test_the_headers_of_an_answer(payments: PaymentsSession, wire: Wire) -> None:
    """As they came, whatever their case; they are not shown, and a copy of an exchange keeps them."""

    async def accept(request: Request) -> bytes | None:
        return reply({"code": 0, "data": {"accountNumber": "6", "balance": 1}}, X_Server="bank-2")

    wire.answer = accept
    with payments.exchanges() as exchanges:
        await payments.accounts.get()
    (made,) = exchanges
    assert ("bank-2", "bank-2") == (made.headers["x-server"], pickle.loads(pickle.dumps(made)).headers["X-Server"])  # noqa: S301
    assert "bank-2" not in repr(made)
