"""Loops over many orders that end early: what they learned and did not hand over is kept."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from session.wires import SECRET, Request, Wire, accept_everything, collection, payout, reply, turns, until

from payments_async import Acceptance, OutcomeUnknown, PaymentsSession, PayoutOrder, Rejected

COUNT = 100


def orders() -> list[PayoutOrder]:
    """More than are ever sent here."""
    return [payout(f"r-{number}") for number in range(COUNT)]


def sent(wire: Wire) -> set[str]:
    """The request ids that arrived."""
    return {request.request_id for request in wire.orders}


async def quiet(wire: Wire) -> None:
    """Wait until nothing more arrives."""
    before = -1
    while before < len(wire.orders):
        before = len(wire.orders)
        await turns()


Loop = Callable[[PaymentsSession], Any]
LOOPS: dict[str, Loop] = {
    "send_many": lambda payments: payments.payouts.send_many(orders(), concurrency=8),
    "map": lambda payments: payments.map(payments.payouts.send, orders(), concurrency=8),
    "map of numbers": lambda payments: payments.map(
        lambda number: payments.payouts.send(payout(f"r-{number}")), range(COUNT), concurrency=8
    ),
    "map of collections": lambda payments: payments.map(
        payments.collections.request, [collection(f"r-{number}") for number in range(COUNT)], concurrency=8
    ),
}


def outcome_of(pair: tuple[Any, Any]) -> str:
    """The request id that a pair is about."""
    return str(pair[1].request_id)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_loop_that_is_left(payments: PaymentsSession, wire: Wire, loop: str) -> None:
    """Every order that was carried out was yielded or can be taken, exactly one of both."""
    seen: list[str] = []
    async with aclosing(LOOPS[loop](payments)) as results:
        async for pair in results:
            seen.append(outcome_of(pair))
            if len(seen) == 3:
                break
    left = payments.undelivered
    assert sent(wire) == {*seen, *left}
    assert len(wire.orders) == len(seen) + len(left)
    assert left.keys() == payments.unsettled
    assert {Acceptance} == {type(outcome) for outcome in left.values()}
    assert left == payments.take_undelivered()
    assert (set(), {}) == (payments.unsettled, payments.undelivered)


@pytest.mark.parametrize("loop", LOOPS)
async def test_an_error_in_the_body(payments: PaymentsSession, wire: Wire, loop: str) -> None:
    """Nothing closes the loop then but the garbage collector: what was done is known at once, the rest when it is."""
    seen: list[str] = []

    async def body() -> None:
        async for pair in LOOPS[loop](payments):
            seen.append(outcome_of(pair))
            await turns(20)
            raise KeyError("a bug in the body")

    with pytest.raises(KeyError):
        await body()
    assert sent(wire) - set(seen) <= payments.unsettled
    gc.collect()
    await quiet(wire)
    await until(lambda: sent(wire) == {*seen, *payments.undelivered})
    assert sent(wire) - set(seen) == payments.unsettled


async def test_a_loop_that_is_cancelled(payments: PaymentsSession, wire: Wire) -> None:
    """What was under way is unknown, and is told as that."""
    done = 0

    async def answer(request: Request) -> bytes | None:
        nonlocal done
        done += 1
        if done > 12:
            await asyncio.Event().wait()
        return await accept_everything(request)

    wire.answer = answer
    seen: list[str] = []

    async def run() -> None:
        async for order, _ in payments.payouts.send_many(orders(), concurrency=8):
            seen.append(order.request_id)

    task = asyncio.ensure_future(run())
    await until(lambda: (len(wire.orders), len(seen)) == (20, 12))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    left = payments.undelivered
    assert sent(wire) - set(seen) == payments.unsettled == left.keys()
    assert [OutcomeUnknown] * 8 == [type(outcome) for outcome in left.values()]
    payments.take_undelivered()
    assert 8 == len(payments.unsettled), "what is unknown stays so, taken or not"


async def test_a_body_that_is_interrupted(wire: Wire) -> None:
    """KeyboardInterrupt ends the program's loop; the session still tells."""
    async with PaymentsSession(wire.base_url, SECRET) as payments:
        results = payments.payouts.send_many(orders(), concurrency=4)
        first = await anext(results)
        await quiet(wire)
        with pytest.raises(KeyboardInterrupt):
            await results.athrow(KeyboardInterrupt())
        assert sent(wire) - {outcome_of(first)} == payments.unsettled


async def test_refusals_that_nobody_took(payments: PaymentsSession, wire: Wire) -> None:
    """They are kept as well, and their orders may be sent again, which tells of them anew."""

    async def refuse(_: Request) -> bytes | None:
        return reply({"code": 7, "message": "no"}, 400)

    wire.answer = refuse
    async with aclosing(payments.payouts.send_many(orders(), concurrency=2)) as results:
        async for _ in results:
            break
    left = payments.undelivered
    assert {Rejected} == {type(outcome) for outcome in left.values()}
    wire.answer = accept_everything
    again = [payout(name) for name in left]
    assert len(left) == len([pair async for pair in payments.payouts.send_many(again)])
    assert not payments.undelivered


async def test_a_loop_that_is_finished(payments: PaymentsSession, wire: Wire) -> None:
    """Nothing is left over."""
    assert COUNT == len([pair async for pair in payments.payouts.send_many(orders(), concurrency=8)])
    assert (set(), {}) == (payments.unsettled, payments.undelivered)


async def test_a_session_that_is_closed_meanwhile(wire: Wire) -> None:
    """The loop ends with an error of the program; what was sent before is known."""
    async with PaymentsSession(wire.base_url, SECRET) as payments:
        seen: list[str] = []

        async def run() -> None:
            async for order, _ in payments.payouts.send_many(orders(), concurrency=2):
                seen.append(order.request_id)
                if len(seen) == 5:
                    await payments.aclose()

        with pytest.raises(RuntimeError, match="is closed"):
            await run()
        await quiet(wire)
        assert sent(wire) - set(seen) == payments.unsettled


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_session_that_is_not_open(loop: str) -> None:
    """``send_many`` says so at once and yields nothing that says "send it again"."""
    payments = PaymentsSession("https://payments.test", SECRET)
    results: Awaitable[Any] = anext(LOOPS[loop](payments))
    if loop == "send_many":
        with pytest.raises(RuntimeError, match="is not open"):
            await results
    else:
        assert isinstance((await results)[1], RuntimeError)
