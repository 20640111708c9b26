"""Cancellation and closing: it always propagates, and what may have left is never forgotten."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from session.conftest import Open
from session.wires import (
    CARD,
    SECRET,
    HeldTimes,
    Request,
    Times,
    Wire,
    accept_everything,
    accepted,
    payout,
    reply,
    turns,
    under_way,
    until,
)

from payments_async import Limits, NotSent, OutcomeUnknown, PaymentsSession, RetryPolicy

NOTE = "payments_async: order r-1 may have left; its outcome is unknown"


async def never(_: Request) -> bytes | None:
    """Do not answer."""
    await asyncio.Event().wait()
    return None


async def half(request: Request) -> bytes | None:
    """Answer the first half."""
    request.writer.write(accepted()[:-20])
    return await never(request)


async def cancelled(call: asyncio.Future[Any]) -> asyncio.CancelledError:
    """Cancel it, and get what it raises."""
    call.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await call
    return caught.value


def notes(error: BaseException) -> list[str]:
    """What was noted on it."""
    return getattr(error, "__notes__", [])


# --- before anything left ---------------------------------------------------------------------------------------------


async def test_before_there_is_a_place(opened: Open, wire: Wire) -> None:
    """Nothing left, so nothing is unsettled and nothing noted."""
    payments = await opened(wire, limits=Limits(concurrency=1))
    await payments.log_in()
    wire.answer = never
    async with under_way(payments.payouts.send(payout("first")), lambda: wire.orders):
        async with under_way(payments.payouts.send(payout()), lambda: "r-1" in payments.unsettled) as call:
            await turns()
            assert [] == notes(await cancelled(call))
        assert {"first"} == payments.unsettled


async def test_during_the_login(payments: PaymentsSession, wire: Wire) -> None:
    """The order did not leave."""
    wire.login = never
    async with under_way(payments.payouts.send(payout()), lambda: wire.logins) as call:
        assert [] == notes(await cancelled(call))
    assert not payments.unsettled
    wire.login = wire._honest_login
    await payments.payouts.send(payout())


async def test_during_the_wait_after_429(opened: Open, wire: Wire) -> None:
    """It was turned away unread, so nothing is unsettled."""
    times = HeldTimes()
    payments = await opened(wire, clock=times.clock, sleep=times.sleep)

    async def busy(_: Request) -> bytes | None:
        return reply({}, 429, Retry_After="5")

    wire.answer = busy
    async with under_way(payments.payouts.send(payout()), lambda: times.slept) as call:
        assert [] == notes(await cancelled(call))
    assert not payments.unsettled


async def test_during_the_login_after_a_401(payments: PaymentsSession, wire: Wire) -> None:
    """It was turned away unread, so nothing is unsettled."""
    await payments.log_in()

    async def stale(_: Request) -> bytes | None:
        return reply({}, 401)

    wire.answer, wire.login = stale, never
    async with under_way(payments.payouts.send(payout()), lambda: wire.logins == 2) as call:
        assert [] == notes(await cancelled(call))
    assert not payments.unsettled


# --- after ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [never, half])
async def test_while_waiting_for_the_answer(payments: PaymentsSession, wire: Wire, answer: Any) -> None:
    """It may have left: the note says so, and the session does not send it again without being told."""
    wire.answer = answer
    async with under_way(payments.payouts.send(payout()), lambda: wire.orders) as call:
        await turns()
        assert [NOTE] == notes(await cancelled(call))
    assert {"r-1"} == payments.unsettled
    wire.answer = accept_everything
    with pytest.raises(OutcomeUnknown, match="not sent again"):
        await payments.payouts.send(payout())
    assert 1 == len(wire.orders)
    await payments.payouts.send(payout(), sent_before=True)
    assert (2, frozenset()) == (len(wire.orders), payments.unsettled)


async def test_a_card_while_waiting_for_the_answer(payments: PaymentsSession, wire: Wire) -> None:
    """It has no request id; the note names the call."""
    wire.answer = never
    async with under_way(payments.cards.enable(CARD), lambda: wire.orders) as call:
        assert ["payments_async: PATCH /cards may have left; its outcome is unknown"] == notes(await cancelled(call))
    assert not payments.unsettled


@pytest.mark.parametrize("logged_in", [True, False])
async def test_at_every_step(opened: Open, wire: Wire, logged_in: bool) -> None:
    """Wherever it strikes: what arrived is unsettled and noted, what is not unsettled never arrived."""
    finished = False
    for steps in range(200):
        payments = await opened(wire)
        if logged_in:
            await payments.log_in()
        del wire.requests[:]
        call = asyncio.ensure_future(payments.payouts.send(payout()))
        await turns(steps)
        if finished := call.done():
            break
        error = await cancelled(call)
        await turns()
        unsettled = "r-1" in payments.unsettled
        assert unsettled == (NOTE in notes(error)), steps
        assert unsettled or not wire.orders, steps
    assert finished


async def test_an_order_sent_again_on_purpose_stays_unsettled(payments: PaymentsSession, wire: Wire) -> None:
    """Nothing but an acceptance or evidence settles it, not even that the second try never left."""
    wire.answer = never
    async with under_way(payments.payouts.send(payout()), lambda: wire.orders) as call:
        await cancelled(call)
    await wire.stop()
    with pytest.raises(NotSent):
        await payments.payouts.send(payout(), sent_before=True)
    assert {"r-1"} == payments.unsettled


# --- asyncio's own tools ----------------------------------------------------------------------------------------------


async def test_asyncio_timeout(payments: PaymentsSession, wire: Wire) -> None:
    """It raises TimeoutError, as everywhere."""
    wire.answer = never
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await payments.payouts.send(payout())
    assert {"r-1"} == payments.unsettled


async def test_a_task_group(payments: PaymentsSession, wire: Wire) -> None:
    """A sibling that fails cancels the payout, and the group raises only what failed."""
    wire.answer = never

    async def fail() -> None:
        await until(lambda: wire.orders)
        raise KeyError("sibling")

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(payments.payouts.send(payout()))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert [KeyError] == [type(error) for error in caught.value.exceptions]
    assert {"r-1"} == payments.unsettled


async def test_a_sleep_of_the_callers_own_that_fails(opened: Open, wire: Wire) -> None:
    """Its error does not escape from a money call, and nothing is forgotten."""

    async def broken(_: float) -> None:
        raise ZeroDivisionError

    async def busy(_: Request) -> bytes | None:
        return reply({}, 429, Retry_After="5")

    wire.answer = busy
    payments = await opened(wire, sleep=broken)
    with pytest.raises(NotSent, match="ZeroDivisionError"):
        await payments.payouts.send(payout())
    assert not payments.unsettled


async def test_a_clock_of_the_callers_own_that_fails(opened: Open, wire: Wire) -> None:
    """Even that late nothing is forgotten: the order may have been carried out."""
    left = False

    def clock() -> float:
        return 1 / (not left)

    async def cut(_: Request) -> bytes | None:
        nonlocal left
        left = True
        return None

    wire.answer = cut
    payments = await opened(wire, clock=clock)
    with pytest.raises(OutcomeUnknown, match="ZeroDivisionError"):
        await payments.payouts.send(payout())
    assert {"r-1"} == payments.unsettled


# --- opening and closing ----------------------------------------------------------------------------------------------


async def test_closing_drains(wire: Wire) -> None:
    """It takes no new call, waits for those under way, and then closes the connections."""
    release = asyncio.Event()

    async def late(request: Request) -> bytes | None:
        await release.wait()
        return await accept_everything(request)

    wire.answer = late
    async with PaymentsSession(wire.base_url, SECRET) as payments:
        calls = [asyncio.ensure_future(payments.payouts.send(payout(f"r-{n}"))) for n in range(3)]
        await until(lambda: len(wire.orders) == 3)
        closings = [asyncio.ensure_future(payments.aclose()) for _ in range(2)]
        await turns()
        assert not any(closing.done() for closing in closings)
        with pytest.raises(RuntimeError, match="is closed"):
            await payments.payouts.send(payout("late"))
        release.set()
        await asyncio.gather(*calls, *closings)
    await payments.aclose()
    assert 3 == len(wire.orders)


async def test_leaving_by_an_error_drains_too(wire: Wire) -> None:
    """The error arrives, and the calls under way have ended before."""
    calls: list[asyncio.Future[Any]] = []

    async def leave() -> None:
        async with PaymentsSession(wire.base_url, SECRET) as payments:
            calls.append(asyncio.ensure_future(payments.payouts.send(payout())))
            await until(lambda: payments.unsettled)
            raise KeyError

    with pytest.raises(KeyError):
        await leave()
    assert calls[0].done()
    assert "t-r-1" == calls[0].result().transaction_id


async def test_closing_that_is_cancelled(wire: Wire) -> None:
    """The connections are closed at once; what was under way is unknown."""
    wire.answer = never
    payments = await PaymentsSession(wire.base_url, SECRET).__aenter__()
    call = asyncio.ensure_future(payments.payouts.send(payout()))
    await until(lambda: wire.orders)
    closing = asyncio.ensure_future(payments.aclose())
    await turns()
    await cancelled(closing)
    with pytest.raises(OutcomeUnknown):
        await call
    assert {"r-1"} == payments.unsettled


def _before() -> PaymentsSession:
    return PaymentsSession("https://payments.test", SECRET)


@pytest.mark.parametrize(
    "call",
    [
        lambda payments: payments.payouts.send(payout()),
        lambda payments: payments.accounts.get(),
        lambda payments: payments.log_in(),
        lambda payments: payments.raw("GET", "/x"),
    ],
)
async def test_before_opening(call: Callable[[PaymentsSession], Any]) -> None:
    """An error of the program, with the remedy, and no NotSent, which says "send it again"."""
    with pytest.raises(RuntimeError, match="not open; use it within 'async with"):
        await call(_before())


async def test_after_closing(wire: Wire) -> None:
    """An error of the program, and it cannot be opened again."""
    async with PaymentsSession(wire.base_url, SECRET) as payments:
        pass
    with pytest.raises(RuntimeError, match="is closed; make a new"):
        await payments.payouts.send(payout())
    with pytest.raises(RuntimeError, match="make a new"):
        await payments.__aenter__()


async def test_from_another_loop(payments: PaymentsSession, wire: Wire) -> None:
    """An error of the program, and nothing left."""
    caught: list[BaseException] = []

    async def send() -> None:
        try:
            await payments.payouts.send(payout())
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(send()))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "belongs to another event loop" in str(caught[0])
    assert not wire.requests


async def test_two_sessions_share_nothing(opened: Open, wire: Wire, times: Times) -> None:
    """What one does not know is not the other's."""
    first, second = await opened(wire), await opened(wire, retry=RetryPolicy(attempts=1))

    async def cut(_: Request) -> bytes | None:
        return None

    wire.answer = cut
    with pytest.raises(OutcomeUnknown):
        await first.payouts.send(payout())
    assert ({"r-1"}, set()) == (set(first.unsettled), set(second.unsettled))
