"""What is open is settled without being asked: soon, once for all that wait, and never more often than it helps."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from bulk.worlds import payout, session
from outbox.waiting import OUTBOX, Waiting, waiting

from payments_async.bulk import ReconcileSettings, reconcile
from payments_async.journal import Signal, SqliteJournal, State
from payments_async.journal.contract import Chunk, ClaimedOrder, Outcome, Permit
from payments_async.outbox._settling import Settler
from payments_async.sandbox import Fault

FIRST = payout(0).request_id
SWEEP = ["transactions 1", "transactions 2"]  # a short list, and what may lie beyond its end


async def looks(here: Waiting, until: float, step: float = 5.0) -> list[float]:
    """The ages at which anything is asked, while time passes in small steps."""
    began, ages, before = here.now(), [], len(here.asked())
    while here.now() < began + until:
        await here.pass_(step)
        if len(here.asked()) > before:
            ages.append(here.now() - began)
        before = len(here.asked())
    return ages


async def test_a_lost_answer_is_looked_up_after_seconds(tmp_path: Path) -> None:
    """The list shows the order: it is accepted, the session knows it, and the service was asked for a page."""
    async with waiting(tmp_path) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await here.send(0)
        await here.pass_(4.0)
        assert ([], {"unknown": 1}) == (here.asked(), await here.states())
        await here.pass_(1.0)
        assert (SWEEP, {"accepted": 1}) == (here.asked(), await here.states())
        assert frozenset() == here.payments.unsettled


async def test_an_accepted_order_is_left_to_its_notification(tmp_path: Path) -> None:
    """For a minute; then its record and the lists are asked how it ended."""
    async with waiting(tmp_path, processing_delay=30.0) as here:
        await here.send(0)
        assert [60.0] == await looks(here, 70.0)
        assert {"successful": 1} == await here.states()


async def test_pauses_grow(tmp_path: Path) -> None:
    """An order under way is looked up after a minute, each pause three times the last, up to an hour."""
    async with waiting(tmp_path) as here:
        await here.send(0)
        ages = await looks(here, 4 * 3600.0, step=20.0)
    assert [60.0, 240.0, 780.0, 2400.0, 6000.0, 9600.0, 13200.0] == ages


async def test_an_order_that_no_list_shows_is_parked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By two lists a minute apart once its period of grace is over; that is said aloud, and it is sent by nobody."""
    async with waiting(tmp_path, processing_delay=30.0) as here:
        await here.send(1)
        await here.pass_(60.0)  # it has ended, and shows what the list is worth
        await here.lose(0)
        assert [5.0, 20.0, 65.0, 200.0, 605.0, 900.0, 960.0] == await looks(here, 2000.0)
        assert {"successful": 1, "parked": 1} == await here.states()
        assert 0 == here.sandbox.executions(FIRST)
        assert (FIRST,) == (await here.settler.progress()).last.parked  # type: ignore[union-attr]
    (line,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert FIRST in line.getMessage()


async def test_sweeps_that_count_lie_apart(tmp_path: Path) -> None:
    """A list that is read for another order, seconds after the first that counted, is no second one."""
    async with waiting(tmp_path, settler={"grace": 5.0}) as here:
        await here.send(9)
        await here.lose(0)
        await here.pass_(5.0)
        await here.lose(1)
        for _ in range(3):
            await here.pass_(5.0)
        assert {"accepted": 1, "unknown": 2} == await here.states()
        await here.pass_(46.0)
        assert {"accepted": 1, "unknown": 1, "parked": 1} == await here.states()


async def test_lists_that_miss_an_order_follow_each_other(tmp_path: Path) -> None:
    """One that shows it, over another amount, takes back what the lists before it have counted."""
    async with waiting(tmp_path, settler={"grace": 5.0}) as here:
        await here.send(payout(9, request_id="nine"))  # shows what each list is worth
        await here.lose(0)
        await here.pass_(6.0)  # the first list that misses it
        async with session(here.sandbox) as elsewhere:
            await elsewhere.payouts.send(payout(0, amount=payout(1).amount))
        await here.pass_(60.0)
        assert 1 == (await here.journal.progress()).conflicts
        here.sandbox.switch("request_id_length", len("nine"))  # from here on no row names it
        await here.pass_(600.0)
        assert 1 == (await here.states())["unknown"]
        await looks(here, 3600.0, step=60.0)
        assert 1 == (await here.states())["parked"]


@pytest.mark.parametrize("quirks", [{"total_error": None}, {"total_error": 3}, {}])
async def test_an_order_is_parked_by_no_list_that_proves_nothing(tmp_path: Path, quirks: dict[str, Any]) -> None:
    """One that does not say how many rows it has, does not show them all, or shows no order of those days."""
    async with waiting(tmp_path, quirks) as here:
        await here.lose(0)
        if quirks:
            await here.send(1)
        await looks(here, 4 * 3600.0, step=60.0)
        assert 1 == (await here.states())["unknown"]
        last = (await here.settler.progress()).last
        assert last is not None
        assert any("proves nothing" in note for note in last.notes)


async def test_a_parked_order_that_turns_up(tmp_path: Path) -> None:
    """It is looked for every six hours, and settled by what the list shows."""
    async with waiting(tmp_path) as here:
        await here.send(1)
        await here.lose(0)
        await looks(here, 1000.0)
        assert 1 == (await here.states())["parked"]
        async with session(here.sandbox) as elsewhere:
            await elsewhere.payouts.send(payout(0))
        await here.pass_(6 * 3600.0)
        assert {"accepted": 2} == await here.states()


@pytest.mark.parametrize("count", [1, 1000])
async def test_one_pass_serves_all_that_wait(tmp_path: Path, count: int) -> None:
    """A thousand cost what one costs."""
    async with waiting(tmp_path) as here:
        await here.send(5000)
        await here.lose(*range(count))
        await here.pass_(5.0)
        progress = await here.settler.progress()
        assert (SWEEP, count) == (here.asked(), progress.unknown)
        assert progress.last is not None
        assert (count, count + 1, 2) == (progress.last.due, progress.last.looked_for, progress.last.requests)


async def test_those_that_are_not_due_are_served_by_the_way(tmp_path: Path) -> None:
    """The list that is read for one shows others that were sent since: they are not looked for again soon."""
    async with waiting(tmp_path) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="payout", times=2)
        await here.send(0)
        await here.pass_(3.0)
        await here.send(1)
        await here.pass_(2.0)
        assert (SWEEP, {"accepted": 2}) == (here.asked(), await here.states())


async def test_a_list_is_read_no_further_back_than_what_is_due(tmp_path: Path) -> None:
    """What was parked a week ago makes no list of today longer."""
    async with waiting(tmp_path) as here:
        await here.send(1)
        await here.lose(0)
        await looks(here, 1000.0)
        await here.pass_(7 * 86_400.0)
        before = len(here.sandbox.requests)
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await here.send(2)
        await here.pass_(5.0)
        days = {one.query["earlierDate"] for one in here.sandbox.requests[before:] if "pageNumber" in one.query}
        assert {"2026-01-11"} == days


async def test_a_few_are_asked_for_by_their_ids(tmp_path: Path) -> None:
    """Where records tell a status, an accepted order costs its record, and no list."""
    async with waiting(tmp_path, {"record_has_status": True}) as here:
        await here.send(0)
        assert 2 == len(await looks(here, 250.0))
        assert {f"transactions/{here.sandbox.ledger[0].transaction_id}"} == set(here.asked())


async def test_records_without_a_status_are_asked_for_once_in_an_hour(tmp_path: Path) -> None:
    """They say nothing: from then on the lists tell."""
    async with waiting(tmp_path) as here:
        await here.send(0)
        await looks(here, 3500.0, step=20.0)
        records = [path for path in here.asked() if not path.startswith(SWEEP[0])]
        assert 1 == sum(path.count("/") for path in records)


async def test_a_transaction_that_no_list_shows_yet(tmp_path: Path) -> None:
    """The answer that could not be read named it: its record says that the service has the order."""
    async with waiting(tmp_path, {"listed_after": 100}) as here:

        async def half_an_answer(chunk: Chunk, claimed: ClaimedOrder) -> None:
            permit = await here.journal.permit(chunk, claimed)
            assert isinstance(permit, Permit)
            accepted = await here.payments.payouts.send(payout(0))
            outcome = Outcome(permit=permit, signal=Signal.UNKNOWN, transaction_id=accepted.transaction_id)
            await here.journal.record(outcome)

        await here.work([0], half_an_answer)
        await here.pass_(5.0)
        assert {"accepted": 1} == await here.states()


async def test_orders_of_others_are_left_alone(tmp_path: Path) -> None:
    """Those of a batch that stands by itself belong to whoever runs it."""
    async with waiting(tmp_path) as here:
        await here.lose(0, outbox=None)
        await here.lose(1, outbox="another")
        assert [] == await looks(here, 100.0)


async def test_credentials_that_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Said once; asked again with growing pauses; everything is settled once they are good again."""
    async with waiting(tmp_path) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await here.send(0)
        here.sandbox.script(Fault.TOKEN_REVOKED, on="transactions", times=None)
        ages = await looks(here, 700.0)
        assert [5.0, 10.0, 25.0, 70.0, 205.0, 610.0] == ages
        progress = await here.settler.progress()
        assert (1, True) == (progress.unknown, progress.hinders is not None)
        warnings = [one for one in caplog.records if "cannot look up" in one.getMessage()]
        assert 1 == len(warnings)


async def test_a_service_that_is_away_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Said once when it goes and once when it is back; what waits is settled then."""
    async with waiting(tmp_path) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await here.send(0)
        here.sandbox.script(Fault.ERROR_BEFORE, on="transactions", times=20)
        caplog.set_level(logging.INFO)
        await looks(here, 1000.0)
        assert ({"accepted": 1}, None) == (await here.states(), (await here.settler.progress()).hinders)
        said = [one.getMessage() for one in caplog.records if "look up what is open" in one.getMessage()]
        said += [one.getMessage() for one in caplog.records if "looks up what is open" in one.getMessage()]
        assert 2 == len(said)


async def test_a_pass_takes_a_tenth_of_the_time_at_most(tmp_path: Path) -> None:
    """Where each page takes a minute, nothing is asked for nine minutes after it."""
    async with waiting(tmp_path) as here:
        paged = here.payments.transactions.page

        async def slow(**asked: Any) -> Any:
            here.clock.advance(60.0)
            return await paged(**asked)

        here.payments.transactions.page = slow  # type: ignore[method-assign]  # the world: a slow service
        settler = Settler(
            here.payments, here.journal, OUTBOX, owner="slow", clock=here.now, ticks=here.now, sleep=here.clock.sleep
        )
        await here.lose(0)
        here.clock.advance(5.0)
        began, pages = here.now(), len(here.asked())
        await settler.turn()
        took = here.now() - began
        assert 60.0 * (len(here.asked()) - pages) == took
        assert 9.0 * took == await settler.turn()


async def test_a_clock_that_is_set_back_stops_nothing(tmp_path: Path) -> None:
    """What is due is due by time that passed, whatever the wall says."""
    async with waiting(tmp_path) as here:
        ticks = 0.0
        settler = Settler(
            here.payments, here.journal, OUTBOX, owner="x", clock=lambda: here.now() - 7200.0, ticks=lambda: ticks
        )
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await here.send(0)
        await settler.turn()
        ticks += 5.0
        await settler.turn()
        assert {"accepted": 1} == await here.states()


async def test_an_order_from_after_now_is_not_looked_up_as_one_that_is_young(tmp_path: Path) -> None:
    """The clock was two hours ahead when it was sent: its pauses are those of an order two hours old, not seconds."""
    async with waiting(tmp_path) as here:
        settler = Settler(
            here.payments, here.journal, OUTBOX, owner="x", grace=1e6, clock=lambda: here.now() - 7200.0,
            ticks=here.now, sleep=here.clock.sleep,
        )  # fmt: skip
        here.sandbox.script(Fault.LOST_BEFORE, on="payout")
        await here.send(0)
        passes = 0
        for _ in range(360):  # an hour
            before = len(here.asked())
            await settler.turn()
            passes += len(here.asked()) > before
            here.clock.advance(10.0)
        assert 4 == passes  # after seconds, then every quarter of an hour


async def test_an_order_that_was_paid_twice_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However many passes see it."""
    async with waiting(tmp_path) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await here.send(0)
        async with session(here.sandbox) as elsewhere:
            await elsewhere.payouts.send(payout(0))
        await looks(here, 500.0)
        said = [one.getMessage() for one in caplog.records if "more than one transaction" in one.getMessage()]
        assert (1, True) == (len(said), FIRST in said[0])


async def test_who_takes_over_counts_from_the_beginning(tmp_path: Path) -> None:
    """A list scan that another process has made parks nothing."""
    async with waiting(tmp_path, settler={"grace": 0.0}) as here:
        await here.send(9)
        await here.lose(0)
        await here.pass_(5.0)
        here.clock.advance(100.0)
        next_ = Settler(
            here.payments, here.journal, OUTBOX, owner="next", grace=0.0, clock=here.now, ticks=here.now,
            sleep=here.clock.sleep,
        )  # fmt: skip
        await next_.turn()
        assert 1 == (await here.states())["unknown"]
        await here.settler.turn()
        assert 1 == (await here.states())["parked"]


async def test_progress_in_figures(tmp_path: Path) -> None:
    """What is open in every process, since when, and what the last pass came to."""
    async with waiting(tmp_path) as here:
        since = here.now()
        await here.lose(0, 1)
        here.clock.advance(2.0)
        await here.send(2)
        await here.pass_(3.0)
        progress = await here.settler.progress()
        assert (2, 0, 1, since) == (progress.unknown, progress.parked, progress.accepted, progress.oldest_unknown)
        assert progress.last is not None
        assert (here.now(), 2, {}) == (progress.last.at, progress.last.due, progress.last.settled)
        async with SqliteJournal(tmp_path / "journal.db") as journal:
            pages = [page async for page in journal.open_orders(OUTBOX, State.UNKNOWN)]
        assert [FIRST, payout(1).request_id] == [order.request_id for page in pages for order in page]


async def test_what_is_open_is_listed_once(tmp_path: Path) -> None:
    """From then on changes tell of it: many accepted orders that nothing settles cost no look after the first."""
    asked: list[str] = []
    async with waiting(tmp_path) as here:
        await here.send(0, 1, 2)
        await here.pass_(5.0)
        reader = here.journal._reader
        assert reader is not None
        reader.set_trace_callback(asked.append)
        for _ in range(5):
            await here.pass_(5.0)
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await here.send(3)
        await here.pass_(5.0)
        await here.pass_(5.0)
        assert {"accepted": 4} == await here.states()
        assert not [sql for sql in asked if "'accepted'" in sql and "attempt" in sql]


async def test_an_order_that_a_person_writes_off_meanwhile(tmp_path: Path) -> None:
    """Is open no more, and the list is not read for it again and again."""
    async with waiting(tmp_path) as here:
        await here.lose(0)
        await here.journal.park(FIRST, detail="two list scans")
        await here.pass_(5.0)
        await here.journal.send_again(FIRST, who="Ann", why="the bank never saw it")
        await here.pass_(22_000.0)
        asked = here.asked()
        await here.pass_(22_000.0)
        assert ({"planned": 1}, asked) == (await here.states(), here.asked())


async def test_an_order_that_is_being_sent_is_left_to_its_own_answer(tmp_path: Path) -> None:
    """A list that is read meanwhile shows it, and moves it no more than a notification does."""
    async with waiting(tmp_path) as here:
        await here.lose(1)  # so that there is something to look for

        async def send(chunk: Chunk, claimed: ClaimedOrder) -> None:
            permit = await here.journal.permit(chunk, claimed)
            assert isinstance(permit, Permit)
            accepted = await here.payments.payouts.send(payout(0))
            await reconcile(here.payments, here.journal, settings=ReconcileSettings(interval=0.0))
            assert {"sending": 1, "unknown": 1} == await here.states()
            outcome = Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=accepted.transaction_id)
            await here.journal.record(outcome)

        await here.work([0], send)
        assert {"accepted": 1, "unknown": 1} == await here.states()


async def test_lists_that_missed_an_earlier_attempt_say_nothing_of_the_next(tmp_path: Path) -> None:
    """What proved not to have left is sent again: two lists after that have to miss it, not one and one of before."""
    permits: list[Permit] = []
    async with waiting(tmp_path, settler={"grace": 100.0}) as here:

        async def stall(chunk: Chunk, claimed: ClaimedOrder) -> None:
            granted = await here.journal.permit(chunk, claimed)
            assert isinstance(granted, Permit)
            permits.append(granted)

        await here.send(9)
        await here.work([0], stall)  # and its lease ends
        await here.pass_(5.0)
        await here.pass_(100.0)  # one list has counted
        await here.journal.record(Outcome(permit=permits[0], signal=Signal.NOT_SENT))
        chunk = await here.journal.claim_chunk(f"run of {FIRST}", "test")
        assert chunk is not None
        await stall(chunk, chunk.orders[0])
        await here.journal.record(Outcome(permit=permits[1], signal=Signal.UNKNOWN))
        await here.pass_(5.0)
        await here.pass_(100.0)
        assert 1 == (await here.states())["unknown"]
        await here.pass_(60.0)
        assert 1 == (await here.states())["parked"]
