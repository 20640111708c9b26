"""Concurrency and rate: on a clock that stands still, and outside the HTTP timeout."""

import asyncio
from typing import Any

import aiohttp
import pytest
from session.conftest import Open
from session.wires import HeldTimes, Request, Wire, accept_everything, payout, reply, turns, until

from payments_async import Limits, OutcomeUnknown, PaymentsSession
from payments_async._session.session import executor_of


class Crowd:
    """Holds orders at the server and counts how many are there at once."""

    def __init__(self, wire: Wire) -> None:
        self.here = self.most = 0
        self.go = asyncio.Event()
        wire.answer = self._answer

    async def _answer(self, request: Request) -> bytes | None:
        self.here += 1
        self.most = max(self.most, self.here)
        await self.go.wait()
        self.here -= 1
        return await accept_everything(request)


def send(payments: PaymentsSession, count: int) -> list[asyncio.Future[Any]]:
    """Send so many payouts at once."""
    return [asyncio.ensure_future(payments.payouts.send(payout(f"r-{number}"))) for number in range(count)]


async def test_concurrency(opened: Open, wire: Wire) -> None:
    """No more calls are under way at once; all of them come to their turn."""
    payments = await opened(wire, limits=Limits(concurrency=3))
    crowd = Crowd(wire)
    calls = send(payments, 20)
    await until(lambda: crowd.here == 3)
    await turns()
    crowd.go.set()
    await asyncio.gather(*calls)
    assert (3, 20) == (crowd.most, len(wire.orders))


async def test_the_wait_for_a_place_is_outside_the_timeout(opened: Open, wire: Wire) -> None:
    """Whoever waits in line longer than a call may take is served all the same."""
    payments = await opened(wire, limits=Limits(concurrency=1), timeout=aiohttp.ClientTimeout(total=1.2))
    await payments.log_in()

    async def slow(request: Request) -> bytes | None:
        await asyncio.sleep(0.25)
        return await accept_everything(request)

    wire.answer = slow
    await asyncio.gather(*send(payments, 6))
    assert 6 == len(wire.orders)


async def test_every_place_comes_back(opened: Open, wire: Wire) -> None:
    """After faults, timeouts, refusals and cancellations at any point there are as many places as before."""
    payments = await opened(wire, limits=Limits(concurrency=2), timeout=aiohttp.ClientTimeout(total=0.8))
    await payments.log_in()
    crowd = Crowd(wire)
    calls = send(payments, 6)
    await until(lambda: crowd.here == 2)
    calls[0].cancel()
    calls[5].cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {asyncio.CancelledError, OutcomeUnknown} == {type(outcome) for outcome in outcomes}
    crowd = Crowd(wire)
    executor_of(payments).note_evidence("r-1")
    calls = [asyncio.ensure_future(payments.payouts.send(payout(f"s-{number}"))) for number in range(2)]
    await until(lambda: crowd.here == 2)
    crowd.go.set()
    await asyncio.gather(*calls)


async def test_rate(opened: Open, wire: Wire) -> None:
    """So many calls begin in a second, evenly spread, however many wait."""
    times = HeldTimes()
    payments = await opened(wire, limits=Limits(rate=2.0), clock=times.clock, sleep=times.sleep)
    await payments.log_in()
    calls = send(payments, 6)
    arrived = []
    for _ in range(6):
        await turns()
        arrived.append(len(wire.orders))
        await times.advance(0.5)
    await asyncio.gather(*calls)
    assert [1, 2, 3, 4, 5, 6] == arrived


async def test_rate_after_a_quiet_hour(opened: Open, wire: Wire) -> None:
    """Unused turns are not saved up for a burst."""
    times = HeldTimes()
    payments = await opened(wire, limits=Limits(rate=2.0), clock=times.clock, sleep=times.sleep)
    await payments.payouts.send(payout("first"))
    await times.advance(1000.0)
    calls = send(payments, 4)
    await turns()
    assert 2 == len(wire.orders)
    for _ in range(3):
        await times.advance(0.5)
    await asyncio.gather(*calls)


async def test_rate_after_a_pause(opened: Open, wire: Wire) -> None:
    """Turns that went by in a cool-down are not taken all at once when it ends."""
    times = HeldTimes()
    payments = await opened(wire, limits=Limits(rate=2.0), clock=times.clock, sleep=times.sleep)
    await payments.log_in()

    async def busy(_: Request) -> bytes | None:
        return reply({}, 429, Retry_After="20")

    wire.answer = busy
    calls = send(payments, 8)
    await until(lambda: wire.orders)
    await turns()
    wire.answer = accept_everything
    await times.advance(19.0)
    assert 1 == len(wire.orders)
    await times.advance(1.1)
    await turns()
    assert len(wire.orders) <= 3
    for _ in range(9):
        await times.advance(0.5)
        await turns()
    await asyncio.gather(*calls)
    assert 9 == len(wire.orders)


async def test_cancellation_while_waiting_for_a_turn(opened: Open, wire: Wire) -> None:
    """The place comes back, and nothing is unsettled."""
    times = HeldTimes()
    payments = await opened(wire, limits=Limits(rate=1.0, concurrency=1), clock=times.clock, sleep=times.sleep)
    await payments.payouts.send(payout("first"))
    (waiting,) = send(payments, 1)
    await until(lambda: times.slept)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not payments.unsettled
    await times.advance(5.0)
    await payments.payouts.send(payout("second"))
    assert 2 == len(wire.orders)


@pytest.mark.parametrize("change", [{"concurrency": 0}, {"rate": 0}, {"rate": float("nan")}, {"reply_bytes": 1}])
def test_limits_that_cannot_be(change: dict[str, Any]) -> None:
    """The setting is named."""
    with pytest.raises(ValueError, match=f"^{next(iter(change))}: "):
        Limits(**change)
