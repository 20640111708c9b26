"""Running a batch: each order is sent once, whatever goes wrong, and the same command goes on."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import aiohttp
import attrs
import pytest
from bulk.worlds import BATCH, World, payout, payouts, session, world

from payments_async import PayoutOrder
from payments_async.bulk import RunProgress, RunSettings, run_batch
from payments_async.journal import LoadBusy, OrdersDiffer, RunUnknown, Signal, SqliteJournal, WrongAccount
from payments_async.outbox._scans import account_of
from payments_async.sandbox import Fault, ManualClock, Sandbox
from payments_async.testing import Testing

PLACES = 10  # orders under way at once


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    """A service, a session and a journal."""
    async with world(tmp_path) as opened:
        yield opened


def seen_by(here: World) -> list[bytes]:
    """The payouts that the service received, refused ones included."""
    return [call.body for call in here.sandbox.requests if "/payouts/" in call.path]


async def carried_out(here: World, count: int) -> None:
    """Wait until so many orders were carried out."""
    async with asyncio.timeout(120):
        while len(here.sandbox.ledger) < count:  # noqa: ASYNC110 - the sandbox tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_batch_is_sent_once_and_the_same_command_changes_nothing(here: World) -> None:
    """A second and a third run of the same orders send nothing."""
    first = await run_batch(here.payments, here.journal, BATCH, payouts(600))
    again = await run_batch(here.payments, here.journal, BATCH, reversed(payouts(600)))
    continued = await run_batch(here.payments, here.journal, BATCH)
    assert (600, 0, 0) == (first.sent, again.sent, continued.sent)
    assert 600 == first.counts["accepted"] == continued.counts["accepted"]
    assert first.stopped is None
    assert 600 == len(here.sandbox.ledger)
    await here.check(600)


# fault of the answer -> state of the struck order, and how often it is carried out
FAULTS = {
    Fault.LOST_BEFORE: ("unknown", 0),
    Fault.LOST_AFTER: ("unknown", 1),
    Fault.ERROR_BEFORE: ("unknown", 0),
    Fault.ERROR_AFTER: ("unknown", 1),
    Fault.RATE_LIMITED: ("accepted", 1),
    Fault.TRUNCATED: ("unknown", 1),
    Fault.HTML: ("unknown", 1),
    Fault.GARBAGE: ("unknown", 1),
    Fault.HUGE: ("unknown", 1),
    Fault.REDIRECT: ("unknown", 0),
    Fault.TOKEN_REVOKED: ("accepted", 1),
    Fault.REFUSED: ("rejected", 0),
    Fault.REFUSED_200: ("rejected", 0),
    Fault.WRONG_ECHO: ("unknown", 1),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_leaves_one_order_in_the_state_it_proves(here: World, fault: Fault) -> None:
    """The struck order is unknown unless the answer proves more; all others are accepted."""
    struck, (state, carried_out) = payout(7).request_id, FAULTS[fault]
    options = {Fault.RATE_LIMITED: {"seconds": 0.05}}.get(fault, {})
    here.sandbox.script(fault, on="money", request_id=struck, **options)
    await run_batch(here.payments, here.journal, BATCH, payouts(20), settings=RunSettings(concurrency=5))
    assert state == await here.state(7)
    assert carried_out == here.sandbox.executions(struck)
    assert 19 == sum(here.sandbox.executions(payout(n).request_id) for n in range(20) if n != 7)
    await here.check(20)


async def test_each_try_has_a_permit_of_its_own(here: World) -> None:
    """An order that is turned away unread is not sent again under the same permit, whose lease may be over by then."""
    here.sandbox.script(Fault.RATE_LIMITED, on="money", seconds=0.05)
    await run_batch(here.payments, here.journal, BATCH, payouts(1))
    story = await here.journal.history(payout(0).request_id)
    answers = [happening.signal for happening in story if happening.what == "answer"]
    assert [Signal.NOT_SENT, Signal.ACCEPTED] == answers
    assert 2 == len(seen_by(here))


async def test_an_answer_that_does_not_come_in_time_leaves_an_order_unknown(here: World) -> None:
    """It was carried out, and nobody was told."""
    here.sandbox.script(Fault.SLOW, on="money", seconds=3600.0)
    async with session(here.sandbox, timeout=aiohttp.ClientTimeout(total=0.5)) as hurried:
        done = await run_batch(hurried, here.journal, BATCH, payouts(1))
    assert (1, 1) == (done.counts["unknown"], len(here.sandbox.ledger))
    await here.check(1)


async def test_a_changed_order_is_refused_before_anything_is_sent(here: World) -> None:
    """One amount of a batch that began already differs: nothing more goes out, and the order is named."""
    stop = asyncio.Event()
    stop.set()
    await run_batch(here.payments, here.journal, BATCH, payouts(50), stop=stop)
    changed = [attrs.evolve(order, amount=Decimal(7)) if order == payout(31) else order for order in payouts(50)]
    with pytest.raises(OrdersDiffer, match=payout(31).request_id):
        await run_batch(here.payments, here.journal, BATCH, changed)
    assert [] == seen_by(here)
    assert {"planned": 50} == await here.states()


async def test_a_load_that_is_taken_over_in_the_middle(here: World, tmp_path: Path) -> None:
    """Orders that can be read only once are not loaded again from there: that would be a part of the batch."""
    async with SqliteJournal(tmp_path / "other.db") as other:

        async def orders() -> AsyncIterator[PayoutOrder]:
            for number in range(1500):
                yield payout(number)
            await other.open_run(BATCH, account_of(here.payments))
            with suppress(ConnectionResetError):
                await other.load(BATCH, broken(), owner="somebody else")

        async def broken() -> AsyncIterator[PayoutOrder]:
            for number in range(1000):
                yield payout(number)
            raise ConnectionResetError

        with pytest.raises(LoadBusy):
            await run_batch(here.payments, here.journal, BATCH, orders())
    assert not (await here.journal.run(BATCH)).ready
    assert [] == seen_by(here)


async def test_a_batch_nobody_loaded_cannot_be_continued(here: World) -> None:
    """A mistyped name makes no new batch."""
    with pytest.raises(RunUnknown):
        await run_batch(here.payments, here.journal, "salaries-2026-12")
    assert () == await here.journal.runs()


async def test_a_journal_of_another_service_is_refused(here: World, service: Sandbox) -> None:
    """What was run against one address is not continued against another."""
    await run_batch(here.payments, here.journal, BATCH, payouts(3))
    async with session(service) as payments:
        with pytest.raises(WrongAccount):
            await run_batch(payments, here.journal, BATCH)
        assert 0 == len(service.ledger)


@pytest.mark.slow
async def test_cancelling_at_random_moments_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """A run that is cancelled again and again gets through, with each order sent at most once."""
    chance = random.Random(11)
    async with world(tmp_path) as here:
        for _ in range(12):
            running = asyncio.ensure_future(
                run_batch(here.payments, here.journal, BATCH, payouts(900), settings=RunSettings(concurrency=30))
            )
            await asyncio.wait([running], timeout=chance.uniform(0.0, 0.25))
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            assert "sending" not in await here.states()
            await here.check(900 if await here.states() else 0)
        done = await run_batch(here.payments, here.journal, BATCH, payouts(900))
        assert 0 == done.counts["planned"]
        await here.check(900)


async def test_a_run_that_is_broken_off_while_it_waits_for_an_answer(here: World) -> None:
    """The order has left: it is unknown, and the next process that runs the batch does not send it again."""
    here.sandbox.script(Fault.SLOW, on="money", seconds=3600.0)
    running = asyncio.ensure_future(run_batch(here.payments, here.journal, BATCH, payouts(1)))
    await carried_out(here, 1)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert {"unknown": 1} == await here.states()
    async with session(here.sandbox) as payments:
        await run_batch(payments, here.journal, BATCH)
    assert 1 == here.sandbox.executions(payout(0).request_id)
    await here.check(1)


@pytest.mark.slow
async def test_two_processes_share_a_batch(tmp_path: Path) -> None:
    """Two runs on one file at once divide the chunks; each returns when all is through."""
    async with (
        world(tmp_path, clock=ManualClock()) as here,
        SqliteJournal(tmp_path / "journal.db") as second,
        session(here.sandbox) as too,
    ):
        # no answer comes before all places of both are taken, so that neither is through before the other begins
        here.sandbox.script(Fault.SLOW, times=2 * PLACES, on="money", seconds=1.0)
        running = [
            asyncio.ensure_future(
                run_batch(payments, journal, BATCH, payouts(2500), settings=RunSettings(concurrency=PLACES))
            )
            for payments, journal in ((here.payments, here.journal), (too, second))
        ]
        await carried_out(here, 2 * PLACES)
        await here.sandbox.advance(1.0)
        one, other = await asyncio.gather(*running)
        assert 2500 == one.sent + other.sent
        assert min(one.sent, other.sent) > 0
        assert 2500 == one.counts["accepted"] == other.counts["accepted"]
        await here.check(2500)


async def test_the_chunks_of_a_silent_process_are_taken_over(tmp_path: Path) -> None:
    """What a dead process had permits for is unknown, and what it only held is sent by the next."""
    late = SqliteJournal(tmp_path / "journal.db", testing=Testing(now=lambda: time.time() + 60))
    async with world(tmp_path) as here, late:
        stop = asyncio.Event()
        stop.set()
        await run_batch(here.payments, here.journal, BATCH, payouts(40), stop=stop)
        chunk = await here.journal.claim_chunk(BATCH, "gone", lease=30.0)
        assert chunk is not None
        await here.journal.permit(chunk, chunk.orders[3])
        done = await run_batch(here.payments, late, BATCH)
        assert (39, 1) == (done.counts["accepted"], done.counts["unknown"])
        assert 0 == here.sandbox.executions(payout(3).request_id)
        await here.check(40)


async def test_a_lease_that_is_lost_drops_the_rest_of_the_chunk(tmp_path: Path) -> None:
    """Somebody else took the chunk over while we ran: they send the rest, and nothing goes out twice."""
    late = SqliteJournal(
        tmp_path / "journal.db", testing=Testing(now=lambda: 4e9)
    )  # believes that all leases have run out
    async with world(tmp_path) as here, late:
        here.sandbox.script(Fault.SLOW, times=None, on="money", seconds=0.05)
        running = asyncio.ensure_future(
            run_batch(here.payments, here.journal, BATCH, payouts(60), settings=RunSettings(concurrency=3, lease=1.5))
        )
        await carried_out(here, 1)
        assert 0 < await late.expire_chunks(BATCH)
        done = await running
        assert 0 == done.counts["planned"]
        await here.check(60)


@pytest.mark.slow(covered=True)
async def test_a_storm_of_429_is_waited_out_by_everybody(here: World) -> None:
    """The service turns away the first forty orders: all are sent later, each once, and no order is hammered."""
    here.sandbox.script(Fault.RATE_LIMITED, times=40, on="money", seconds=0.2)
    done = await run_batch(here.payments, here.journal, BATCH, payouts(200), settings=RunSettings(concurrency=20))
    assert (200, None) == (done.counts["accepted"], done.stopped)
    await here.check(200)


async def test_a_service_that_is_down_ends_the_run_and_not_the_orders(tmp_path: Path) -> None:
    """Nobody listens: the run gives up after its patience, a handful of tries later, and all is still planned."""
    async with world(tmp_path) as here:
        await here.payments.log_in()
        await here.sandbox.__aexit__(None, None, None)
        done = await run_batch(
            here.payments, here.journal, BATCH, payouts(500), settings=RunSettings(patience=1.0, look_first="never")
        )
        assert done.stopped is not None
        assert "nothing was answered" in done.stopped
        assert (500, 0) == (done.counts["planned"], done.sent)
        tries = [len(await here.journal.history(payout(n).request_id)) for n in range(0, 500, 50)]
        assert max(tries) < 12


async def test_a_service_that_swallows_orders_makes_a_handful_unknown(here: World) -> None:
    """Every answer is lost: after ten in a row one order at a time feels its way, so most stay planned."""
    here.sandbox.script(Fault.LOST_BEFORE, times=None, on="money")
    done = await run_batch(
        here.payments, here.journal, BATCH, payouts(500), settings=RunSettings(concurrency=20, patience=1.5)
    )
    assert done.stopped is not None
    assert "nothing was answered" in done.stopped
    assert done.counts["unknown"] < 45
    assert 500 == done.counts["planned"] + done.counts["unknown"]


@pytest.mark.slow
async def test_refused_credentials_stop_the_run_and_fail_no_order(here: World) -> None:
    """In the middle of a run the key is withdrawn: it stops, says so, and the rest is still planned."""

    def withdraw(progress: RunProgress) -> None:
        here.sandbox.script(Fault.TOKEN_REVOKED, times=None)

    done = await run_batch(
        here.payments, here.journal, BATCH, payouts(5000), settings=RunSettings(concurrency=5), progress=withdraw
    )
    assert done.stopped is not None
    assert "credentials were refused" in done.stopped
    assert 0 == done.counts["rejected"]
    assert 5000 == done.counts["planned"] + done.counts["accepted"] + done.counts["unknown"]
    assert 0 < done.counts["planned"]
    await here.check(5000)


@pytest.mark.slow(covered=True)
async def test_tokens_that_are_revoked_again_and_again_stop_nothing(here: World) -> None:
    """As where each login of another process ends the token of this one: every order gets through, once."""
    here.sandbox.chaos({Fault.TOKEN_REVOKED: 0.1}, seed=5)
    done = await run_batch(here.payments, here.journal, BATCH, payouts(120))
    assert (None, 120) == (done.stopped, done.counts["accepted"])
    assert 120 == len(here.sandbox.ledger)
    await here.check(120)


@pytest.mark.slow
async def test_stop_finishes_what_is_under_way(here: World) -> None:
    """Asked to stop, a run begins nothing more and leaves nothing unknown; the next one goes on at once."""
    here.sandbox.script(Fault.SLOW, times=None, on="money", seconds=0.05)
    stop = asyncio.Event()
    running = asyncio.ensure_future(run_batch(here.payments, here.journal, BATCH, payouts(400), stop=stop))
    await carried_out(here, 60)
    stop.set()
    done = await running
    assert "it was asked to stop" == done.stopped
    assert 0 == done.counts["unknown"] + done.counts["sending"]
    assert 0 < done.counts["planned"]
    assert 400 == (await run_batch(here.payments, here.journal, BATCH)).counts["accepted"]
    await here.check(400)


async def test_what_an_earlier_run_left_unknown_is_looked_up_first(here: World) -> None:
    """The list shows an order whose answer was lost: the next run settles it before it sends anything."""
    here.sandbox.script(Fault.LOST_AFTER, on="money", request_id=payout(2).request_id)
    await run_batch(here.payments, here.journal, BATCH, payouts(10))
    assert "unknown" == await here.state(2)
    await here.sandbox.settle()
    done = await run_batch(here.payments, here.journal, BATCH)
    assert (0, 10) == (done.counts["unknown"], done.counts["accepted"])
    await here.check(10)


@pytest.mark.slow(covered=True)
async def test_a_broken_display_breaks_off_nothing(here: World) -> None:
    """The callback raises: what is under way is finished and written down, then the error is raised."""

    def show(progress: RunProgress) -> None:
        raise RuntimeError("no terminal")

    here.sandbox.script(Fault.SLOW, times=None, on="money", seconds=0.02)
    with pytest.raises(RuntimeError, match="no terminal"):
        await run_batch(
            here.payments, here.journal, BATCH, payouts(3000), settings=RunSettings(concurrency=5), progress=show
        )
    assert {"planned", "accepted"} == set(await here.states())
    await here.check(3000)
