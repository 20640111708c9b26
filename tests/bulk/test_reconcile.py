"""Reconciling: what the service shows settles an order; what it does not show never does, however it lies."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bulk.worlds import BATCH, World, payout, payouts, session, world
from nested import for_reconcile

from payments_async.bulk import ReconcileSettings, Reconciliation, RunSettings, reconcile, run_batch, send_again
from payments_async.journal import NotParked, OrderUnknown, Signal, WrongAccount
from payments_async.journal.contract import Evidence
from payments_async.outbox import _scans
from payments_async.sandbox import Fault, Sandbox

QUIRKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "record_has_status": {"record_has_status": True},
    "other_word": {"record_has_status": True, "success_word": "SUCCESSFUL"},
    "sign": {"record_amount_sign": "collections_negative"},
    "next_page_lies": {"next_page_lies": True},
    "newest_first": {"newest_first": True},
    "ignores_date_filter": {"ignores_date_filter": True},
    "other_date_keys": {"date_keys": (("startDate", "endDate"),)},
    "exclusive_day": {"later_date_inclusive": False},
    "swapped": {"list_swaps_product": True},
    "snake": {"single_record_names": "snake"},
    "small_pages": {"max_page_size": 7},
}
LIARS: dict[str, dict[str, Any]] = {
    "ignores_status_filter": {"ignores_status_filter": True},
    "unstable_pages": {"unstable_pages": True},
    "both": {"ignores_status_filter": True, "unstable_pages": True},
    "final_after_answer": {"final_after_answer": True},
    "ignores_everything": {"ignores_status_filter": True, "ignores_date_filter": True, "next_page_lies": True},
}
TROUBLE = {Fault.LOST_AFTER: 0.1, Fault.LOST_BEFORE: 0.1, Fault.FAILS: 0.15, Fault.REFUSED: 0.05}


class Later:
    """A clock that runs ahead of the computer's, and moves by sleeping."""

    def __init__(self, seconds: float = 1000.0) -> None:
        self.ahead = seconds
        self.slept: list[float] = []

    def clock(self) -> float:
        """Unix seconds."""
        return time.time() + self.ahead

    async def sleep(self, seconds: float) -> None:
        """Move on."""
        self.slept.append(seconds)
        self.ahead += seconds


async def look(here: World, later: Later | None = None, **settings: Any) -> Reconciliation:
    """Reconcile, a thousand seconds later by default, without waiting."""
    later = later or Later()
    return await reconcile(
        here.payments, here.journal, **for_reconcile({"now": later.clock, "sleep": later.sleep} | settings)
    )


@pytest.mark.parametrize("quirk", QUIRKS)
async def test_everything_is_settled_as_the_ledger_has_it(tmp_path: Path, quirk: str) -> None:
    """In every documented reading of the list: what was carried out ends as it ended, what was not is parked."""
    async with world(tmp_path, QUIRKS[quirk], processing_delay=0.01) as here:
        here.sandbox.chaos(TROUBLE, seed=3)
        await run_batch(here.payments, here.journal, BATCH, payouts(90))
        await here.sandbox.settle()
        report = await look(here)
        await here.check(90)
        states = await here.states()
        assert {"successful", "failed", "rejected", "parked"} == set(states)
        assert states["parked"] == len(report.parked)
        assert len(here.sandbox.ledger) == states["successful"] + states["failed"]
        assert len(here.sandbox.ledger) == sum(report.settled.values())
        assert () == (*report.conflicts, *report.unknown_transactions, *report.differences, *report.unknown)


@pytest.mark.parametrize("liar", LIARS)
async def test_a_list_that_lies_never_makes_up_a_status(tmp_path: Path, liar: str) -> None:
    """Filters that are ignored and pages that shift leave orders accepted or unknown: never failed."""
    async with world(tmp_path, LIARS[liar], processing_delay=0.01) as here:
        here.sandbox.chaos(TROUBLE, seed=3)
        await run_batch(here.payments, here.journal, BATCH, payouts(90))
        await here.sandbox.settle()
        here.sandbox.chaos({})
        reading = asyncio.ensure_future(look(here))
        async with session(here.sandbox) as neighbour:  # the list changes while it is read
            for number in range(1000, 1040):
                await neighbour.payouts.send(payout(number))
        report = await reading
        await here.check(90)
        assert () == (*report.differences, *report.conflicts)
        parked = {entry.request_id async for entry in here.journal.entries(state="parked")}
        assert not parked & {execution.request_id for execution in here.sandbox.ledger}


async def test_a_young_unknown_order_is_not_parked(tmp_path: Path) -> None:
    """Within its period of grace it may still arrive: one list scan, no waiting, still unknown."""
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(4).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(10))
        later = Later(600)
        report = await look(here, later)
        assert ((payout(4).request_id,), ()) == (report.unknown, report.parked)
        assert [] == later.slept


async def test_an_order_is_parked_after_two_clean_sweeps_an_interval_apart(tmp_path: Path) -> None:
    """The second is made a minute after the first; then a person has to decide, and nobody resends."""
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(4).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(10))
        later = Later()
        assert (payout(4).request_id,) == (await look(here, later)).parked
        assert {payout(4).request_id} == here.payments.unsettled  # that nobody found it is no outcome
        assert [60.0] == later.slept
        done = await run_batch(here.payments, here.journal, BATCH)
        assert (0, 1) == (done.sent, done.counts["parked"])


def lonely(number: int) -> list[Any]:
    """A batch of one."""
    return [payout(number)]


def hide_all(here: World) -> None:
    """The list fails for good."""
    here.sandbox.script(Fault.ERROR_BEFORE, times=None, on="transactions")


def hide_nothing(here: World) -> None:
    """The list is as it is."""


UNCLEAN: dict[str, tuple[list[Any], Callable[[World], None], dict[str, Any]]] = {
    "no order of ours is shown": (lonely(4), hide_nothing, {}),
    "the list cannot be read": (payouts(10), hide_all, {}),
}


@pytest.mark.parametrize("why", UNCLEAN)
async def test_absence_from_an_unclean_list_parks_nothing(tmp_path: Path, why: str) -> None:
    """An empty list, or one that was not read to its end, says nothing; the report says why."""
    orders, hide, quirks = UNCLEAN[why]
    async with world(tmp_path, quirks) as here:
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(4).request_id)
        await run_batch(here.payments, here.journal, BATCH, orders)
        hide(here)
        report = await look(here)
        assert ((payout(4).request_id,), ()) == (report.unknown, report.parked)
        assert any("proves nothing" in note for note in report.notes)


async def test_a_parked_order_is_sent_again_only_after_a_person_wrote_it_off(tmp_path: Path) -> None:
    """It goes out once more, marked as sent before; the journal names the person."""
    async with world(tmp_path, processing_delay=600.0) as here:  # else some are settled on a slow machine
        lost = payout(4).request_id
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=lost)
        await run_batch(here.payments, here.journal, BATCH, payouts(10))
        with pytest.raises(NotParked):
            await send_again(here.journal, lost, "J. Okello", "not on the statement")
        await look(here)
        entry = await send_again(here.journal, lost, "J. Okello", "not on the statement")
        assert ("planned", True) == (entry.state, entry.sent_before)
        done = await run_batch(here.payments, here.journal, BATCH)
        assert (1, 10) == (done.sent, done.counts["accepted"])
        assert 1 == here.sandbox.executions(lost)
        assert "J. Okello" in {happening.by for happening in await here.journal.history(lost)}


async def test_evidence_after_a_write_off_still_counts(tmp_path: Path) -> None:
    """The list shows it late, before it was sent again: it is accepted, and never sent again."""
    async with world(tmp_path) as here:
        lost = payout(4).request_id
        for number in (4, 5):
            here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(number).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(10))
        await look(here)
        await send_again(here.journal, lost, "J. Okello", "not on the statement")
        async with session(here.sandbox) as late:
            await late.payouts.send(payout(4))  # it was on its way all the time
        await here.sandbox.settle()
        await look(here)
        done = await run_batch(here.payments, here.journal, BATCH)
        assert (0, "accepted") == (done.sent, await here.state(4))
        await here.check(10)


async def test_strangers_and_other_amounts_are_reported(tmp_path: Path) -> None:
    """A record nobody sent, and a record of ours over another amount: both need a person, neither settles anything."""
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(4).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(10))
        async with session(here.sandbox) as other:
            stranger = await other.payouts.send(payout(77))
            await other.payouts.send(payout(4, amount=payout(5).amount))
        await here.sandbox.settle()
        report = await look(here)
        assert [stranger.transaction_id] == [record.transaction_id for record in report.unknown_transactions]
        assert [(payout(4).request_id, payout(4).amount, payout(5).amount)] == [
            (difference.request_id, difference.ours, difference.theirs) for difference in report.differences
        ]
        assert ((payout(4).request_id,), (payout(4).request_id,)) == (report.conflicts, report.unknown)


async def test_a_transaction_that_two_readings_show_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is read again for an order that it does not show; transactions beyond those kept count once as well."""
    monkeypatch.setattr(_scans, "_MOST", 2)
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(1).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(2))
        async with session(here.sandbox) as other:
            for number in range(70, 75):
                await other.payouts.send(payout(number))
        report = await look(here, Later(100_000))
        assert (2, 5) == (len(report.unknown_transactions), report.strangers_seen)


async def test_orders_stuck_in_processing_are_reported(tmp_path: Path) -> None:
    """Accepted more than a day ago, and still without an end."""
    async with world(tmp_path, processing_delay=3600.0) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(3))
        assert () == (await look(here)).stuck
        assert 3 == len((await look(here, Later(90_000))).stuck)


async def test_a_rejected_order_that_was_carried_out_is_a_conflict(tmp_path: Path) -> None:
    """The service said no and did it all the same: its list says so, and a person is told."""
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.REFUSED, on="money", request_id=payout(1).request_id)
        here.sandbox.script(Fault.LOST_AFTER, on="money", request_id=payout(2).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(5))
        async with session(here.sandbox) as other:
            await other.payouts.send(payout(1))
        await here.sandbox.settle()
        assert (payout(1).request_id,) == (await look(here)).conflicts


async def test_a_transaction_id_is_looked_up_where_the_list_fails(tmp_path: Path) -> None:
    """A record that carries a status settles its order without any list."""
    async with world(tmp_path, {"record_has_status": True}) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(5))
        await here.sandbox.settle()
        hide_all(here)
        assert {"successful": 5} == (await look(here)).settled


async def test_a_stored_notification_settles_an_order(tmp_path: Path) -> None:
    """What was heard counts without asking the service for anything but its list."""
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(1).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(3))
        order = payout(1)
        told = Evidence(
            signal=Signal.NOTIFIED_SUCCESSFUL,
            source="notification",
            request_id=order.request_id,
            transaction_id="t-1",
            amount=order.amount,
            currency="UGX",
        )
        await here.journal.apply_evidence(told)
        assert () == (await look(here)).parked
        assert "successful" == await here.state(1)


async def test_one_sweep_is_never_enough(tmp_path: Path) -> None:
    """Fewer than two are refused."""
    async with world(tmp_path) as here:
        with pytest.raises(ValueError, match="list_scans"):
            await reconcile(here.payments, here.journal, settings=ReconcileSettings(list_scans=1))


async def believed(here: World, count: int) -> None:
    """Orders that are successful by what we have heard until now."""
    for order in payouts(count):
        entry = await here.journal.entry(order.request_id)
        assert entry is not None
        signal = Evidence(
            signal=Signal.LOOKED_UP_SUCCESSFUL,
            source="record",
            request_id=order.request_id,
            amount=order.amount,
            transaction_id=entry.transaction_id,
        )
        await here.journal.apply_evidence(signal)


async def test_a_reversal_that_nobody_was_told_of_is_found_when_asked_for(tmp_path: Path) -> None:
    """Successful orders are looked at again only then; one the list shows as reversed is, the others stay so."""
    async with world(tmp_path, processing_delay=0.01) as here:
        here.sandbox.script(Fault.REVERSED, on="money", request_id=payout(3).request_id, seconds=0.1)
        await run_batch(here.payments, here.journal, BATCH, payouts(20))
        await believed(here, 20)
        await here.sandbox.settle()
        await look(here)
        assert {"successful": 20} == await here.states()
        report = await look(here, reversals=True)
        assert {"successful": 19, "reversed": 1} == await here.states()
        assert {"reversed": 1} == report.settled
        assert () == report.conflicts
        await here.check(20)
        assert {} == (await look(here, reversals=True)).settled


@pytest.mark.parametrize("quirk", ["ignores_status_filter", "both"])
async def test_a_service_that_ignores_filters_reverses_nothing(tmp_path: Path, quirk: str) -> None:
    """Every order is listed under every status then, which says nothing of any."""
    async with world(tmp_path, LIARS[quirk], processing_delay=0.01) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(20))
        await believed(here, 20)
        await here.sandbox.settle()
        await look(here, reversals=True)
        assert {"successful": 20} == await here.states()


# --- whose list it is -------------------------------------------------------------------------------------------------


async def test_another_account_is_not_asked_about_orders_of_this_one(tmp_path: Path, service: Sandbox) -> None:
    """A rehearsal of the same orders there settles nothing here, and its list lifts nothing here."""
    async with world(tmp_path) as here:
        here.sandbox.script(Fault.LOST_BEFORE, on="money", times=None)
        await run_batch(here.payments, here.journal, BATCH, payouts(3), settings=RunSettings(patience=0.0))
        before, list_scans = await here.states(), await here.journal.list_scans()
        async with session(service) as elsewhere:
            for order in payouts(3):
                await elsewhere.payouts.send(order)
            with pytest.raises(WrongAccount, match="the session is one of user"):
                await reconcile(elsewhere, here.journal, BATCH, settings=ReconcileSettings(interval=0.0))
            with pytest.raises(WrongAccount):
                await reconcile(elsewhere, here.journal, settings=ReconcileSettings(interval=0.0))
        assert before == await here.states()
        assert {"unknown"} & before.keys()
        assert list_scans == await here.journal.list_scans()


async def test_one_order_of_a_batch(tmp_path: Path) -> None:
    """It alone is looked for and settled: the batch it is of is left as it is, and costs nothing."""
    async with world(tmp_path, processing_delay=0.01) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="payout", request_id=payout(3).request_id)
        await run_batch(here.payments, here.journal, BATCH, payouts(20))
        await here.sandbox.settle()
        before = len(here.sandbox.requests)
        one = await look(here, request_id=payout(3).request_id)
        assert ({"accepted": 19, "successful": 1}, {"successful": 1}) == (await here.states(), one.settled)
        asked = [one.path for one in here.sandbox.requests[before:]]
        assert not [path for path in asked if path.startswith("/api/transactions/")]
        await look(here, request_id=payout(4).request_id)
        assert {"accepted": 18, "successful": 2} == await here.states()
        with pytest.raises(OrderUnknown):
            await look(here, request_id="nobody's")
