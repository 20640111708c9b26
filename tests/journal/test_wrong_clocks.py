"""A clock that was wrong while an order was sent, and is right since: it is looked for in the days it was sent in."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from bulk.worlds import payout
from journal.conftest import Home
from journal.places import AHEAD, DAY, DatedClock, Place, opener

from payments_async.bulk import RunSettings, run_batch
from payments_async.journal import Signal
from payments_async.journal._records import GRACE, LISTS
from payments_async.journal.contract import Outcome, Permit
from payments_async.outbox import Outbox
from payments_async.outbox._scans import account_of
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing


@pytest.fixture
def places(home: Home) -> Callable[..., Any]:
    """Opens everything."""
    return opener(home)


async def test_an_order_sent_while_the_clock_was_days_ahead_is_found_once_it_is_right(places: Any) -> None:
    """Its answer was lost. The moment that its permit names has passed since; the list of that day does not show it."""
    async with places() as here:
        here.wrong = AHEAD
        await here.send(1, lost=True)
        here.wrong = 0.0
        await here.pass_(AHEAD)
        await here.send(2)
        await here.pass_(DAY)
        found = await here.look()
        assert () == found.parked
        assert await here.state(1) in {"accepted", "successful"}


async def test_an_order_paid_from_an_outbox_is_dated_by_the_service(places: Any) -> None:
    """A permit that comes with the order itself is dated as any other, and so is the first day of the outbox."""
    async with places() as here:
        here.wrong = AHEAD
        async with (
            here.session() as payments,
            Outbox(payments, here.journal, "shop", testing=Testing(now=here.now)) as outbox,
        ):
            await outbox.pay(payout(1))
        assert here.right() == await here.sent_at(1)
        assert here.right() >= (await here.journal.run("shop")).look_since


async def test_a_clock_set_ahead_between_two_orders_dates_none_of_them_wrong(places: Any) -> None:
    """No answer has come since it was set: what the last one told goes on with seconds that only grow."""
    async with places() as here, here.session() as payments:
        await payments.log_in()
        here.wrong = AHEAD
        await run_batch(
            payments,
            here.journal,
            "batch 1",
            [payout(1)],
            settings=RunSettings(testing=Testing(now=here.now), look_first="never"),
        )
        assert here.right() == await here.sent_at(1)


@pytest.mark.parametrize("wrong", [-AHEAD, -30.0, 600.0, 36_000.0])
async def test_a_clock_that_is_hours_ahead_dates_permits_itself(places: Any, wrong: float) -> None:
    """With a day around each order, the list shows it; and what is dated too late is missed by no list too early."""
    async with places() as here:
        here.wrong = wrong
        await here.send(1)
        assert here.now() == await here.sent_at(1)


@pytest.mark.parametrize("wrong", [-600.0, -36_000.0])
async def test_a_clock_that_is_behind_dates_no_permit(places: Any, wrong: float) -> None:
    """The service's does: else a time that a person gave it would be over too early once the clock is right."""
    async with places() as here:
        here.wrong = wrong
        await here.send(1)
        assert here.right() == await here.sent_at(1)


async def test_a_list_read_while_the_clock_was_ahead_ends_the_search_for_no_rejected_order(places: Any) -> None:
    """It did not begin a day after the order was turned away, though its moment says so: that is looked for still."""
    async with places() as here:
        for number in (1, 2):
            here.sandbox.script(Fault.REFUSED, on="money", request_id=payout(number).request_id)
        here.wrong = AHEAD
        await here.send(1)
        await here.look()
        here.wrong = 0.0
        await here.pass_(3600.0)
        await here.send(2)
        assert "rejected" == await here.state(2)
        before = await here.journal.list_scans()
        await here.pass_(3600.0)
        await here.look()
        (scan,) = (await here.journal.list_scans())[len(before) :]
        assert (True, 1) == (before[-1].is_complete, len(before))
        assert scan.since <= datetime.fromtimestamp(await here.sent_at(2), UTC).date()


@asynccontextmanager
async def doubted(home: Home, wrong: float) -> AsyncIterator[Place]:
    """A journal that was copied, and opened while the clock was wrong: an order of its batch waits."""
    clock = DatedClock()
    async with Sandbox(clock=clock) as sandbox:
        here = Place(sandbox, clock, None)  # type: ignore[arg-type]  # it needs the clock of the place
        async with home.opens(clock=here.now) as here.journal:
            await here.send(1)
            async with here.session() as payments:
                await here.journal.open_run("waits", account_of(payments))
            await here.journal.load("waits", [payout(2)], owner="test")
        copied = home.copied()
        here.wrong = wrong
        async with copied(clock=here.now) as here.journal:
            await here.journal.runs()
            yield here


async def lists_counted(here: Place) -> int:
    """How many of the two lists have counted, after one more look."""
    await here.look(batch_id="waits")
    awaits = (await here.journal.run("waits")).awaits
    return LISTS if awaits is None else awaits.lists


@pytest.mark.parametrize("is_read", [False, True])
async def test_a_journal_that_was_doubted_while_the_clock_was_ahead(home: Home, is_read: bool) -> None:
    """It is released after two lists and the time of grace all the same, counted from when the clock was right."""
    async with doubted(home, AHEAD) as here:
        if is_read:
            await here.look(batch_id="waits")
        here.wrong = 0.0
        counted = [await lists_counted(here)]
        for seconds in (GRACE - 300.0, 300.0):
            await here.pass_(seconds)
            counted.append(await lists_counted(here))
        assert [0, 0, LISTS] == counted


async def test_an_order_of_a_moment_that_is_yet_to_come_is_not_parked_and_it_says_why(places: Any) -> None:
    """Nobody heard the service's clock while it was sent; the clock was set back, so the list may lack its day."""
    async with places() as here:
        async with here.session() as payments:
            await here.journal.open_run("lost", account_of(payments))
        await here.journal.load("lost", [payout(2)], owner="test")
        here.wrong = AHEAD
        chunk = await here.journal.claim_chunk("lost", "test")
        assert chunk is not None
        permit = await here.journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        await here.journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN))
        here.wrong = 0.0
        await here.send(1)
        await here.pass_(DAY)
        found = await here.look()
        assert ((), (payout(2).request_id,)) == (found.parked, found.unknown)
        assert any("moments that are yet to come by this machine's clock" in note for note in found.notes)
