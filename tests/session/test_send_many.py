"""Many payouts: outcomes as they come, bounded memory, and one bad order never stops the others."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from session.conftest import Open
from session.wires import Request, Wire, accept_everything, payout, reply, turns, until

from payments_async import Acceptance, InvalidOrder, OutcomeUnknown, PaymentsSession, PayoutOrder, Rejected
from payments_async.sandbox import Fault, Sandbox


def orders(count: int) -> list[PayoutOrder]:
    """So many payouts."""
    return [payout(f"r-{number}") for number in range(count)]


async def test_every_order_has_one_outcome(payments: PaymentsSession, wire: Wire) -> None:
    """Each order comes back with its own."""
    pairs = [pair async for pair in payments.payouts.send_many(orders(120), concurrency=10)]
    assert {f"r-{number}": f"t-r-{number}" for number in range(120)} == {
        order.request_id: outcome.transaction_id for order, outcome in pairs if isinstance(outcome, Acceptance)
    }
    assert 120 == len(wire.orders)


async def test_outcomes_come_as_they_are_done(payments: PaymentsSession, wire: Wire) -> None:
    """A slow one holds up nobody."""
    release = asyncio.Event()

    async def answer(request: Request) -> bytes | None:
        if request.request_id == "r-0":
            await release.wait()
        return await accept_everything(request)

    wire.answer = answer
    done = []
    async for order, _ in payments.payouts.send_many(orders(10), concurrency=3):
        done.append(order.request_id)
        if len(done) == 9:
            assert "r-0" not in done
            release.set()
    assert "r-0" == done[-1]


async def test_trouble_for_some(opened: Open, sandbox: Sandbox) -> None:
    """Each ends in its own outcome, the others are paid, nobody twice."""
    payments = await opened(sandbox)
    for number, fault in enumerate(
        (Fault.REFUSED, Fault.LOST_AFTER, Fault.LOST_BEFORE, Fault.HTML, Fault.TOKEN_REVOKED)
    ):
        sandbox.script(fault, on="payout", request_id=f"r-{number}")
    outcomes = {o.request_id: outcome async for o, outcome in payments.payouts.send_many(orders(30), concurrency=8)}
    kinds = [type(outcomes[f"r-{number}"]) for number in range(30)]
    assert [Rejected, OutcomeUnknown, OutcomeUnknown, OutcomeUnknown, *[Acceptance] * 26] == kinds
    assert [] == sandbox.duplicates()
    assert {"r-1", "r-2", "r-3"} == payments.unsettled


async def test_what_is_no_order(payments: PaymentsSession, wire: Wire) -> None:
    """It is an outcome too, and none that says "send it again": it was not sent, and never can be."""
    bad: Any = [payout("r-0"), "r-1", None, payout("r-2")]
    outcomes = [outcome async for _, outcome in payments.payouts.send_many(bad, concurrency=1)]
    assert [Acceptance, InvalidOrder, InvalidOrder, Acceptance] == [type(outcome) for outcome in outcomes]


async def test_an_order_named_twice(payments: PaymentsSession, wire: Wire) -> None:
    """While one is under way or unknown, its double is not sent."""

    async def cut(_: Request) -> bytes | None:
        return None

    wire.answer = cut
    twice = [payout(), payout()]
    outcomes = [outcome async for _, outcome in payments.payouts.send_many(twice, concurrency=2)]
    assert ([OutcomeUnknown] * 2, 1) == ([type(outcome) for outcome in outcomes], len(wire.orders))


async def test_an_endless_source(payments: PaymentsSession, wire: Wire) -> None:
    """Orders are taken only as they are sent and looked at: memory stays bounded."""
    taken = 0

    def endless() -> Iterator[PayoutOrder]:
        nonlocal taken
        for taken in itertools.count(1):
            yield payout(f"r-{taken}")

    seen = 0
    async with aclosing(payments.payouts.send_many(endless(), concurrency=5)) as results:
        async for _ in results:
            seen += 1
            await turns(5)
            assert taken <= seen + 2 * 5 + 1
            if seen == 200:
                break
    assert taken <= 200 + 11


async def test_leaving_early(wire: Wire, payments: PaymentsSession) -> None:
    """No further order is sent; those under way are waited for, and their outcomes can be taken."""
    release = asyncio.Event()

    async def answer(request: Request) -> bytes | None:
        if request.request_id != "r-0":
            await release.wait()
        return await accept_everything(request)

    wire.answer = answer
    results = payments.payouts.send_many(orders(100), concurrency=4)
    async for _ in results:
        break
    await until(lambda: len(wire.orders) >= 4)
    closing = asyncio.ensure_future(results.aclose())
    await turns()
    assert not closing.done()
    sent = len(wire.orders)
    release.set()
    await closing
    assert sent == len(wire.orders) <= 5
    taken = {request.request_id for request in wire.orders} - {"r-0"}
    assert taken == payments.unsettled == payments.undelivered.keys() == payments.take_undelivered().keys()
    assert not payments.unsettled


async def test_leaving_early_while_the_source_is_silent(payments: PaymentsSession, wire: Wire) -> None:
    """A source that gives nothing more does not hold up who wants to leave; it is closed."""
    closed = False

    async def source() -> AsyncIterator[PayoutOrder]:
        nonlocal closed
        try:
            yield payout()
            await asyncio.Event().wait()
        finally:
            closed = True

    async with asyncio.timeout(60), aclosing(payments.payouts.send_many(source(), concurrency=3)) as results:
        async for _ in results:
            break
    assert closed


async def test_cancelling(payments: PaymentsSession, wire: Wire) -> None:
    """It cancels the calls under way; what may have left is unsettled."""
    release = asyncio.Event()

    async def hold(_: Request) -> bytes | None:
        await release.wait()
        return None

    wire.answer = hold

    async def run() -> None:
        async for _ in payments.payouts.send_many(orders(50), concurrency=4):
            pass

    task = asyncio.ensure_future(run())
    await until(lambda: len(wire.orders) == 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {f"r-{number}" for number in range(4)} == payments.unsettled


async def test_an_async_source(payments: PaymentsSession, wire: Wire) -> None:
    """It is as good as a plain one."""

    async def source() -> AsyncIterator[PayoutOrder]:
        for order in orders(20):
            await asyncio.sleep(0)
            yield order

    assert 20 == len([pair async for pair in payments.payouts.send_many(source(), concurrency=3)])


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_source_that_fails(payments: PaymentsSession, wire: Wire, asynchronous: bool) -> None:
    """Its error is raised after the outcomes of all that was taken before."""

    def plain() -> Iterator[PayoutOrder]:
        yield from orders(5)
        raise LookupError("line 6")

    async def awaited() -> AsyncIterator[PayoutOrder]:
        for order in plain():
            yield order

    seen = []
    with pytest.raises(LookupError, match="line 6"):  # noqa: PT012 - what came before it counts too
        async for order, _ in payments.payouts.send_many(awaited() if asynchronous else plain(), concurrency=2):
            seen.append(order.request_id)
    assert [f"r-{number}" for number in range(5)] == sorted(seen)


@pytest.mark.parametrize("source", [[], iter(())])
async def test_no_orders(payments: PaymentsSession, source: Any) -> None:
    """Nothing comes, and nothing waits."""
    assert [] == [pair async for pair in payments.payouts.send_many(source)]


async def test_map(payments: PaymentsSession, wire: Wire) -> None:
    """Any call over any items: results and exceptions with their items."""

    async def answer(request: Request) -> bytes | None:
        name = request.path.rpartition("/")[2]
        return reply({"code": 9, "message": "no"}, 404) if name == "2" else reply(_record(name))

    wire.answer = answer
    pairs = {item: result async for item, result in payments.map(payments.transactions.get, "123", concurrency=2)}
    assert isinstance(pairs["2"], Rejected)
    assert ["1", "3"] == [getattr(pairs[name], "transaction_id", None) for name in "13"]


def _record(name: str) -> dict[str, Any]:
    return {"code": 0, "data": {"transactionId": name}}
