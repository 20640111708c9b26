"""How fast an outbox and a batch go: at one rate for all on the journal, and not while the service wants none."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest
from bulk.worlds import BATCH, payout, payouts, session
from outbox.desks import A_MINUTE, desk, until

from payments_async.bulk import RunSettings, run_batch
from payments_async.ipn import Receiver, serving
from payments_async.journal import SqliteJournal, State
from payments_async.journal.contract import SharedRate
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.outbox._brakes import Backoff
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing

NEXT_YEAR = 0.00001  # orders a second: after the first one, none in this test
SOME = 40


@attrs.define
class Process:
    """One of several that share a journal, as far as the journal knows."""

    journal: SqliteJournal
    outbox: Outbox


@asynccontextmanager
async def process(sandbox: Sandbox, folder: Path, rate: float | None = None) -> AsyncIterator[Process]:
    """With an opening of the journal and a session of its own."""
    async with (
        SqliteJournal(folder / "journal.db") as journal,
        session(sandbox) as payments,
        Outbox(payments, journal, worker=WorkerSettings(settles=False), rate=rate) as outbox,
    ):
        await until(lambda: is_at_work(outbox), True)
        yield Process(journal, outbox)


async def is_at_work(outbox: Outbox) -> bool:
    """Whether its workers wait for orders: before they do, it has named its rate, and heard of that of all."""
    return outbox._sender.pool is not None and bool(outbox._sender.pool._idle)


async def is_there(one: Process, number: int) -> bool:
    """Whether an order was put."""
    return await one.outbox.entry(payout(number).request_id) is not None


async def holds(one: Process) -> bool:
    """Whether it has heard that nothing is to be sent."""
    assert one.outbox._sender.pool is not None
    return one.outbox._sender.pool.pace.places(1) == 0


async def pace_of(one: Process) -> SharedRate:
    """The pace of all, as its health shows it."""
    return (await one.outbox.health()).pace


async def is_overruled(one: Process) -> bool:
    """Whether it has heard that others ask for less."""
    assert one.outbox._sender.pool is not None
    return one.outbox._sender.pool._overruled is not None


async def test_a_batch_at_a_rate(tmp_path: Path) -> None:
    """Each order has its turn: the last one of 40 at 200 a second comes 39 turns after the first, or later."""
    async with desk(tmp_path, outbox={"worker": None}) as here:
        begun = time.monotonic()
        done = await run_batch(here.payments, here.journal, BATCH, payouts(SOME), settings=RunSettings(rate=200.0))
        assert (SOME - 1) / 200.0 <= time.monotonic() - begun
        assert SOME == done.counts[State.ACCEPTED]
        await here.check(SOME)


async def test_an_outbox_at_a_rate(tmp_path: Path) -> None:
    """Orders that are put one by one, all at once: each has its turn, and is sent once."""
    async with desk(tmp_path, outbox={"rate": 200.0, "settles": False}) as here:
        begun = time.monotonic()
        paid = await asyncio.gather(*(here.outbox.pay(order, timeout=A_MINUTE) for order in payouts(SOME)))
        assert (SOME - 1) / 200.0 <= time.monotonic() - begun
        assert {State.ACCEPTED} == {entry.state for entry in paid}
        assert SharedRate(rate=200.0, named=(200.0,)) == (await here.outbox.health()).pace
        await here.check(SOME)


async def test_two_processes_at_a_rate(tmp_path: Path, service: Sandbox) -> None:
    """Together they are no faster than one; the one that asks for no rate has its turns from the other's."""
    async with process(service, tmp_path, 200.0) as one, process(service, tmp_path) as two:
        begun = time.monotonic()
        await asyncio.gather(
            *((one, two)[number % 2].outbox.pay(payout(number), timeout=A_MINUTE) for number in range(SOME))
        )
        assert (SOME - 1) / 200.0 <= time.monotonic() - begun
        assert (SOME, []) == (len(service.ledger), service.duplicates())


async def test_a_rate_that_is_no_limit_costs_no_turns(tmp_path: Path, service: Sandbox) -> None:
    """Nobody waits, and nothing is reserved."""
    points: list[str] = []
    async with (
        SqliteJournal(tmp_path / "journal.db", testing=Testing(crash_at=points.append)) as journal,
        session(service) as payments,
    ):
        await run_batch(payments, journal, BATCH, payouts(SOME), settings=RunSettings(rate=math.inf))
    assert [] == [point for point in points if point.startswith("reserve_turns")]


async def test_what_is_under_way_does_not_wait_for_the_rate(tmp_path: Path) -> None:
    """An order waits for its turn, a year from now; a notification about the one before is heard at once."""
    async with desk(tmp_path, outbox={"rate": NEXT_YEAR, "settles": False}) as here:
        receiver = Receiver(here.journal, senders=["127.0.0.1"])
        async with serving(receiver, port=0) as (host, port):
            here.sandbox.ipn_url = f"http://{host}:{port}/ipn"
            paid = await here.outbox.pay(payout(0), timeout=A_MINUTE)
            assert paid.state in (State.ACCEPTED, State.SUCCESSFUL)  # on a busy machine its end may be heard already
            await here.outbox.put(payout(1))
            settled = asyncio.ensure_future(here.outbox.settled(payout(0).request_id, timeout=A_MINUTE))
            await here.sandbox.settle()
            assert State.SUCCESSFUL is (await settled).state
        assert "planned" == await here.state(1)


async def test_a_rate_that_is_changed_by_another_process(tmp_path: Path, service: Sandbox) -> None:
    """It is heard of while an order waits for its turn, a year from now, and that goes at once."""
    async with process(service, tmp_path, NEXT_YEAR) as before:
        await before.outbox.pay(payout(0), timeout=A_MINUTE)
    async with process(service, tmp_path) as one:
        waiting = asyncio.ensure_future(one.outbox.pay(payout(1), timeout=A_MINUTE))
        await until(lambda: is_there(one, 1), True)
        async with SqliteJournal(tmp_path / "journal.db") as another:
            await another.request_rate("another", math.inf, lease=30)
        assert State.ACCEPTED is (await waiting).state


async def test_two_processes_that_ask_for_different_rates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, service: Sandbox
) -> None:
    """The lower one counts; the other one says so, once, and both show it."""
    caplog.set_level(logging.WARNING)
    async with (
        process(service, tmp_path, 50.0) as slow,
        process(service, tmp_path, 400.0) as fast,
    ):
        at_odds = SharedRate(rate=50.0, named=(50.0, 400.0))
        for one in (slow, fast):
            await until(lambda one=one: pace_of(one), at_odds)
        await until(lambda: is_overruled(fast), True)
    said = "others on the journal ask for 50 orders a second, which counts, and not the 400 asked for here"
    assert 1 == caplog.messages.count(said)


@pytest.mark.parametrize("rate", [None, 1000.0])
async def test_one_of_two_processes_is_told_to_wait(tmp_path: Path, rate: float | None, service: Sandbox) -> None:
    """The other one hears of it, and sends nothing either, with or without a rate; what was put waits."""
    async with process(service, tmp_path, rate) as one, process(service, tmp_path) as other:
        service.script(Fault.RATE_LIMITED, on="money", seconds=600)
        await one.outbox.put(payout(0))
        await until(lambda: holds(other), True)
        pace = (await other.outbox.health()).pace
        assert 500 < pace.cools_for <= 600
        assert pace.cools_until is not None
        await other.outbox.put(payout(1))
        requests = [one for one in service.requests if one.method == "POST" and "payouts" in one.path]
        states = [(await other.journal.entry(payout(number).request_id)) for number in (0, 1)]
        assert [State.PLANNED, State.PLANNED] == [entry.state for entry in states if entry is not None]
        assert 1 == len(requests)


async def test_a_pause_that_is_over(tmp_path: Path, service: Sandbox) -> None:
    """All that waited is sent, by both."""
    async with process(service, tmp_path) as one, process(service, tmp_path) as other:
        service.script(Fault.RATE_LIMITED, on="money", seconds=1)
        paid = await asyncio.gather(
            *(who.outbox.pay(payout(number), timeout=A_MINUTE) for number, who in enumerate([one, other] * 10))
        )
        assert {State.ACCEPTED} == {entry.state for entry in paid}
        assert [] == service.duplicates()


async def test_a_process_that_begins_while_the_others_wait(tmp_path: Path, service: Sandbox) -> None:
    """It hears of the pause before it sends anything."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(process(service, tmp_path))
        await one.journal.cool_down(600.0, why="slow down")
        late = await stack.enter_async_context(process(service, tmp_path))
        await late.outbox.put(payout(0))
        assert await holds(late)
        entry = await late.journal.entry(payout(0).request_id)
        assert entry is not None
        assert (State.PLANNED, 0) == (entry.state, len(service.ledger))


def test_a_service_that_takes_no_more_and_does_not_say_for_how_long() -> None:
    """Everybody waits for a second, for two, for four; an answer ends that. Who left before the pause adds none."""
    now = 100.0
    pace = Backoff(300.0, clock=lambda: now)
    pauses = []
    for _ in range(3):
        for _ in range(20):  # all who were under way
            pace.failed("Too many requests", turned_away=True)
        assert pace.asked is not None
        until_, words = pace.asked
        pauses.append(until_ - now)
        now = until_
    pace.answered()
    pace.failed("Too many requests", turned_away=True)
    assert ([1.0, 2.0, 4.0], "Too many requests") == (pauses, words)
    assert pace.asked is not None
    assert 1.0 == pace.asked[0] - now


def test_a_failure_that_is_no_wish_for_a_pause() -> None:
    """Is nobody else's concern: credentials that were refused, a service that is silent."""
    pace = Backoff(300.0, clock=lambda: 100.0)
    pace.failed("the credentials were refused", retry_after=5.0)
    pace.failed("nothing was answered", silent=True)
    assert pace.asked is None
    assert not pace.may_go()


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, "fast"])
async def test_what_is_no_rate(tmp_path: Path, rate: float) -> None:
    """Is refused before anything is done."""
    async with desk(tmp_path, outbox={"worker": None}) as here:
        with pytest.raises((ValueError, TypeError), match="rate"):
            Outbox(here.payments, here.journal, rate=rate)
        with pytest.raises((ValueError, TypeError), match="rate"):
            await run_batch(here.payments, here.journal, BATCH, payouts(1), settings=RunSettings(rate=rate))
