"""What a list is believed: filters that prove nothing, second payments, rejected orders, and days that went by."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bulk.worlds import BATCH, World, payout, payouts, session, world
from nested import for_reconcile, for_run

from payments_async.bulk import Reconciliation, RunProgress, RunSettings, reconcile, run_batch, send_again
from payments_async.journal import SqliteJournal
from payments_async.sandbox import Fault, ManualClock, Quirks, Sandbox
from payments_async.testing import Testing

DAY = 86_400.0
PENDING = {"processing_delay": 3600.0}


async def look(here: World, **settings: Any) -> Reconciliation:
    """Reconcile, without waiting."""
    return await reconcile(here.payments, here.journal, BATCH, **for_reconcile({"interval": 0.0} | settings))


# --- filters ----------------------------------------------------------------------------------------------------------


async def test_words_that_a_filter_does_not_know_settle_nothing(tmp_path: Path) -> None:
    """The service says PENDING and FAILURE, and shows everything for FAILED: three pending orders stay accepted."""
    quirks = {"filter_words": "other", "unknown_filter_word": "ignored"}
    async with world(tmp_path, quirks, **PENDING) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(3))
        report = await look(here)
        assert {"accepted": 3} == await here.states()
        assert any("of a status that does not exist" in note for note in report.notes)


@pytest.mark.parametrize("late", range(1, 20))
async def test_a_late_list_without_filters_settles_nothing(tmp_path: Path, late: int) -> None:
    """An order that turns up while list after list is read stands in the last ones alone, and has no status."""
    async with world(tmp_path, {"ignores_status_filter": True, "listed_after": late}, **PENDING) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(3))
        await look(here)
        assert {"accepted": 3} == await here.states()


@pytest.mark.parametrize("late", range(0, 30, 2))
async def test_a_late_list_with_filters_settles_as_the_ledger_has_it(tmp_path: Path, late: int) -> None:
    """However late it shows an order, it never shows it under a status that it has not."""
    async with world(tmp_path, {"listed_after": late}, processing_delay=0.01) as here:
        here.sandbox.script(Fault.FAILS, on="money", request_id=payout(1).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(3), settings=RunSettings(look_first="never"))
        await here.sandbox.settle()
        await look(here)
        await here.check(3)


@pytest.mark.parametrize("unknown", ["refused", "empty"])
@pytest.mark.parametrize("words", ["documented", "other"])
async def test_every_word_that_was_ever_met_is_asked_for(tmp_path: Path, words: str, unknown: str) -> None:
    """Whatever the service calls success and failure, as long as it shows nothing for what it does not know."""
    quirks = {"filter_words": words, "unknown_filter_word": unknown}
    async with world(tmp_path, quirks, processing_delay=0.01) as here:
        here.sandbox.script(Fault.FAILS, on="money", request_id=payout(1).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(3))
        await here.sandbox.settle()
        report = await look(here)
        assert {"successful": 2, "failed": 1} == report.settled
        assert () == (*report.notes, *report.unread)


async def test_what_a_filter_costs_where_the_service_has_none(tmp_path: Path) -> None:
    """One page for a status that does not exist, and no list more."""
    async with world(tmp_path, {"ignores_status_filter": True}, **PENDING) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(300))
        before = len(here.sandbox.requests)
        await look(here)
        asked = [one.query for one in here.sandbox.requests[before:] if one.path == "/api/transactions"]
        assert 1 == len([query for query in asked if "transactionStatus" in query])


# --- days -------------------------------------------------------------------------------------------------------------


class Calendar:
    """Days that pass for the service, the journal and whoever reconciles alike; nobody waits for them."""

    def __init__(self) -> None:
        self.clock = ManualClock()

    def now(self) -> float:
        """Unix seconds."""
        return self.clock.now().timestamp()

    async def sleep(self, seconds: float) -> None:
        """They have passed."""
        self.clock.advance(seconds)

    async def run(self, here: World, count: int = 0, **settings: Any) -> RunProgress:
        """Run the batch, or go on with it."""
        orders = payouts(count) if count else None
        return await run_batch(
            here.payments, here.journal, BATCH, orders, **for_run({"testing": Testing(now=self.now)} | settings)
        )

    async def look(self, here: World) -> Reconciliation:
        """Reconcile."""
        return await look(here, now=self.now, sleep=self.sleep)

    async def pay(self, here: World, number: int) -> str:
        """Somebody sends an order of the batch past the journal."""
        async with session(here.sandbox) as somebody:
            return (await somebody.payouts.send(payout(number))).transaction_id


@asynccontextmanager
async def calendar(folder: Path) -> AsyncIterator[tuple[World, Calendar]]:
    """A world whose days pass as told."""
    days = Calendar()
    async with (
        Sandbox(quirks=Quirks(), clock=days.clock, processing_delay=1.0) as sandbox,
        SqliteJournal(folder / "journal.db", testing=Testing(now=days.now)) as journal,
        session(sandbox) as payments,
    ):
        yield World(sandbox, payments, journal), days


async def test_an_order_that_arrived_before_it_was_written_off_is_shown(tmp_path: Path) -> None:
    """Two transactions, five days apart: both are told, whatever is known of the second."""
    async with calendar(tmp_path) as (here, days):
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(4).request_id)
        await days.run(here, 10)
        days.clock.advance(3600)
        assert (payout(4).request_id,) == (await days.look(here)).parked
        first = await days.pay(here, 4)  # it was on its way all the time
        days.clock.advance(5 * DAY)
        await send_again(here.journal, payout(4).request_id, "A. Clerk", "not on the statement of the first day")
        assert 1 == (await days.run(here, look_first="never")).sent
        days.clock.advance(60)
        report = await days.look(here)
        (double,) = report.doubles
        entry = await here.journal.entry(payout(4).request_id)
        assert entry is not None
        assert (payout(4).request_id, {first, entry.transaction_id}) == (double.request_id, set(double.transaction_ids))
        assert (payout(4).request_id,) == report.conflicts


async def test_an_order_that_arrived_before_it_was_written_off_is_not_sent_again(tmp_path: Path) -> None:
    """The run that would send it looks first: the statement came too early, and the list knows better."""
    async with calendar(tmp_path) as (here, days):
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(4).request_id)
        await days.run(here, 10)
        days.clock.advance(3600)
        assert (payout(4).request_id,) == (await days.look(here)).parked
        await days.pay(here, 4)
        await send_again(here.journal, payout(4).request_id, "A. Clerk", "not on the statement")
        done = await days.run(here)
        assert (0, 1, []) == (done.sent, done.looked and done.looked.found, here.sandbox.duplicates())


async def test_a_second_payment_of_a_later_day_is_shown(tmp_path: Path) -> None:
    """As long as any order is open, the list is read until today, and tells of the others too."""
    async with calendar(tmp_path) as (here, days):
        await days.run(here, 3)
        days.clock.advance(8 * DAY)
        await days.pay(here, 1)
        report = await days.look(here)
        assert [payout(1).request_id] == [double.request_id for double in report.doubles]
        assert (payout(1).request_id,) == report.conflicts


async def test_an_order_that_was_rejected_and_carried_out_later_is_a_conflict(tmp_path: Path) -> None:
    """Nothing is open any more, and the days of the rejected are read all the same: until a list that began later."""
    async with calendar(tmp_path) as (here, days):
        for number in (0, 1):
            here.sandbox.script(Fault.REFUSED, on="money", request_id=payout(number).request_id)
        await days.run(here, 2)
        days.clock.advance(3 * DAY)
        await days.pay(here, 1)
        report = await days.look(here)
        assert ((payout(1).request_id,), {"rejected": 2}) == (report.conflicts, await here.states())
        before = len(here.sandbox.requests)
        await days.look(here)
        assert before == len(here.sandbox.requests)  # it is on record now


async def test_two_transactions_of_a_rejected_order_are_told(tmp_path: Path) -> None:
    """The service refused it, and has it twice."""
    async with calendar(tmp_path) as (here, days):
        here.sandbox.script(Fault.REFUSED, on="money", request_id=payout(0).request_id)
        await days.run(here, 1)
        twice = [await days.pay(here, 0), await days.pay(here, 0)]
        report = await days.look(here)
        assert [tuple(twice)] == [double.transaction_ids for double in report.doubles]


async def test_absence_says_nothing_of_days_that_the_list_does_not_show(tmp_path: Path) -> None:
    """A list that shows orders of today and none of that day may have forgotten that day: nothing is parked."""
    async with calendar(tmp_path) as (here, days):
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(0).request_id)
        await days.run(here, 1)
        days.clock.advance(10 * DAY)
        await run_batch(
            here.payments, here.journal, "bonus", [payout(77)], settings=RunSettings(testing=Testing(now=days.now))
        )
        report = await days.look(here)
        assert ((payout(0).request_id,), ()) == (report.unknown, report.parked)
        assert any("no order known to be of these days" in note for note in report.notes)


# --- lists that show it otherwise -------------------------------------------------------------------------------------


async def test_request_ids_in_capitals(tmp_path: Path) -> None:
    """The list has them so: what arrived is settled and not parked, and the report says why."""
    async with world(tmp_path, {"request_id_case": "upper"}, processing_delay=0.01) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="money", request_id=payout(1).request_id)
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(2).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(5))
        await here.sandbox.settle()
        report = await look(here, grace=0.0)
        assert {"successful": 4, "parked": 1} == await here.states()
        assert () == (*report.unknown_transactions, *report.conflicts)
        assert any("in other letters than they were sent in" in note for note in report.notes)


async def test_request_ids_that_the_list_cuts_off(tmp_path: Path) -> None:
    """Of two lost orders the longer was carried out, and is listed as the shorter: a person has to look at both."""
    lost = [payout(1, request_id=one, amount=Decimal(500)) for one in ("order-1", "order-15")]
    async with world(tmp_path, {"request_id_length": 7}, processing_delay=0.01) as here:
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id="order-1")
        here.sandbox.script(Fault.LOST_AFTER, on="money", request_id="order-15")
        await run_batch(here.payments, here.journal, BATCH, [*lost, payout(2, request_id="order-2")])
        await here.sandbox.settle()
        for _ in range(2):
            await look(here, grace=0.0)
        assert {"parked": 2, "successful": 1} == await here.states()
        conflicts = [entry.conflict async for entry in here.journal.conflicts()]
        assert 2 == sum("listed as order-1, which may be the beginning of order-15" in str(one) for one in conflicts)


async def test_request_ids_that_begin_alike(tmp_path: Path) -> None:
    """Where the list shows them in full each is settled by its own row, on whichever page that is."""
    sent = [payout(number, request_id=f"order-{number}", amount=Decimal(500)) for number in range(60)]
    async with world(tmp_path, {"max_page_size": 20}, processing_delay=0.01) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="money", times=30)
        await run_batch(here.payments, here.journal, BATCH, sent)
        await here.sandbox.settle()
        report = await look(here, grace=0.0)
        assert ({"successful": 60}, ()) == (await here.states(), report.conflicts)


async def test_days_that_the_service_does_not_understand(tmp_path: Path) -> None:
    """The list of any days is empty and complete: it proves nothing, and the list of all days is read."""
    async with world(tmp_path, {"dates_show_nothing": True}) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="money", request_id=payout(1).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(5))
        report = await look(here, grace=0.0)
        assert {"accepted": 5} == await here.states()
        assert any("compare Dialect.date_keys" in note for note in report.notes)


async def test_orders_of_earlier_days_are_no_reason_to_read_everything(tmp_path: Path) -> None:
    """The list of these days shows none of ours, that of all days some of last month: as it should be."""
    async with calendar(tmp_path) as (here, days):
        await days.run(here, 250)
        days.clock.advance(40 * DAY)
        done = await run_batch(
            here.payments, here.journal, "bonus", [payout(500)], settings=RunSettings(testing=Testing(now=days.now))
        )
        assert done.looked is not None
        assert (0, 3) == (done.looked.rows, done.looked.requests)


# --- lists that fail --------------------------------------------------------------------------------------------------


@pytest.mark.slow(covered=True)
async def test_a_page_that_fails_again_and_again_is_asked_for_again(tmp_path: Path) -> None:
    """Forty reads fail in a row, retries included: everything is settled all the same, in smaller pages."""
    async with world(tmp_path, {"max_page_size": 20}, processing_delay=0.01) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(300))
        await here.sandbox.settle()
        here.sandbox.script(Fault.ERROR_BEFORE, times=40, on="transactions")
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        report = await look(here, sleep=sleep, now=lambda: 2_000_000_000.0 + sum(slept))
        assert ({"successful": 300}, ()) == (report.settled, report.unread)
        assert slept


async def test_a_list_that_stays_away_is_told(tmp_path: Path) -> None:
    """After all patience: what is missing is said, apart from what else hinders."""
    async with world(tmp_path) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(3))
        here.sandbox.script(Fault.ERROR_BEFORE, times=None, on="transactions")
        (words,) = (await look(here, patience=0.0)).unread
        assert words.startswith("absence from the list of ")
        assert "it could not be read" in words


async def test_all_sweeps_are_on_record(tmp_path: Path) -> None:
    """Those of reconcile as well as the look before a run."""
    async with world(tmp_path) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(3))
        await asyncio.gather(look(here), look(here))
        today = datetime.now(UTC).date()
        found = await here.journal.list_scans(BATCH)
        assert [True, True, True] == [scan.is_complete for scan in found]
        assert [0, 3, 3] == [scan.rows for scan in found]
        assert {today - timedelta(days=8), today - timedelta(days=1)} == {scan.since for scan in found}
