"""Orders that have left the journal for an archive: whoever runs, plans, reconciles or reports meets them again."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from bulk.worlds import BATCH, World, payout, payouts, world

from payments_async.bulk import ReconcileSettings, plan, reconcile, report, run_batch
from payments_async.journal import OrdersArchived, OrderUnknown, State, archive_orders
from payments_async.outbox import Outbox, WorkerSettings

DAY = 86_400.0


def grow_old(journal: Path, days: float = 100) -> None:
    """Let so many days pass for every order."""
    with contextlib.closing(sqlite3.connect(journal)) as file, file:
        file.execute("UPDATE outbox SET updated_at = updated_at - ?", (days * DAY,))


async def archived(here: World, file: Path) -> int:
    """All that is in the journal grows old and leaves; tells how many orders."""
    grow_old(here.journal.path)
    return (await archive_orders(here.journal, file, older_than=90 * DAY, who="Ann", why="rule 7")).orders


async def paid(here: World, count: int = 3) -> None:
    """A batch that was paid."""
    await run_batch(here.payments, here.journal, BATCH, payouts(count))
    await here.sandbox.settle()
    await reconcile(here.payments, here.journal, BATCH, settings=ReconcileSettings(interval=0.0))


async def test_a_batch_that_has_left_is_not_run_again(tmp_path: Path) -> None:
    """The same call, and the same orders under another name: where they are is said, and nothing is sent."""
    async with world(tmp_path, processing_delay=0.01) as here:
        await paid(here)
        assert 3 == await archived(here, tmp_path / "old.gz")
        for batch_id in (BATCH, "again"):
            with pytest.raises(OrdersArchived, match=r"ended long ago \(successful\).*old\.gz; nothing is sent again"):
                await run_batch(here.payments, here.journal, batch_id, payouts(3))
        through = await run_batch(here.payments, here.journal, BATCH)
        assert (3, 0, None) == (through.counts[State.SUCCESSFUL], through.sent, through.stopped)
        assert (3, []) == (len(here.sandbox.ledger), here.sandbox.duplicates())


async def test_a_plan_says_which_orders_have_left(tmp_path: Path) -> None:
    """They block it, or are left out; what is left of the file may be sent in a batch of its own."""
    async with world(tmp_path, processing_delay=0.01) as here:
        await paid(here)
        await archived(here, tmp_path / "old.gz")
        made = await plan(here.payments, payouts(4), batch_id="more", journal=here.journal)
        assert (3, 1) == (made.problem_count, made.open_count)
        assert "is in an archive: it is not sent again" in str(made.problems[0])
        again = await plan(here.payments, payouts(3), batch_id=BATCH, journal=here.journal)
        assert (3, 0, 0) == (again.problem_count, again.open_count, again.recorded)
        rest = await plan(here.payments, payouts(4), batch_id="more", journal=here.journal, skip_bad=True)
        assert (True, 1, 3) == (rest.is_clean, rest.count, rest.left_out)
        done = await run_batch(here.payments, here.journal, "more", rest)
        assert 1 == done.sent
        await here.sandbox.settle()
        assert [] == here.sandbox.duplicates()


async def test_what_has_left_is_no_stranger_in_a_list(tmp_path: Path) -> None:
    """Transactions of archived orders are ours; one of somebody else is not."""
    async with world(tmp_path, processing_delay=0.01) as here:
        await paid(here)
        await archived(here, tmp_path / "old.gz")
        await here.payments.payouts.send(payout(77))
        await run_batch(here.payments, here.journal, "next", [payout(5)])
        await here.sandbox.settle()
        found = await reconcile(here.payments, here.journal, "next", settings=ReconcileSettings(interval=0.0))
        assert [payout(77).request_id] == [one.request_id for one in found.unknown_transactions]
        assert {"successful": 4} == await here.states()


async def test_what_a_list_contradicts_of_an_order_that_has_left_is_told(tmp_path: Path) -> None:
    """While another batch is reconciled: another amount than the one that was archived."""
    async with world(tmp_path, processing_delay=0.01) as here:
        await paid(here)
        await archived(here, tmp_path / "old.gz")
        with contextlib.closing(sqlite3.connect(here.journal.path)) as file, file:
            file.execute("UPDATE outbox SET amount = '7' WHERE request_id = ?", (payout(1).request_id,))
        await run_batch(here.payments, here.journal, "next", [payout(5)])
        await here.sandbox.settle()
        found = await reconcile(here.payments, here.journal, "next", settings=ReconcileSettings(interval=0.0))
        (note,) = [note for note in found.notes if payout(1).request_id in note]
        assert ((), True) == (found.unknown_transactions, "old.gz: its amount is 1001, the order's 7" in note)


async def test_a_report_says_what_is_not_in_it(tmp_path: Path) -> None:
    """It would say that all was paid else, of what it does not show."""
    async with world(tmp_path, processing_delay=0.01) as here:
        await paid(here)
        await archived(here, tmp_path / "old.gz")
        page = tmp_path / "page.html"
        written = await report(here.journal, BATCH, html=page)
        assert 3 == written.archived
    told = page.read_text(encoding="utf-8")
    assert "are in an archive and not here: 3" in told
    assert "Every order was paid" not in told


async def test_an_outbox_is_asked_for_what_has_left(tmp_path: Path) -> None:
    """Paid again it is there as it ended, and nothing is sent; who waits for it hears where it is."""
    async with world(tmp_path, processing_delay=0.01) as here:
        async with Outbox(here.payments, here.journal, worker=WorkerSettings(settles=False)) as outbox:
            await outbox.pay(payout(1), timeout=60)
            await here.sandbox.settle()
            await reconcile(here.payments, here.journal, "outbox", settings=ReconcileSettings(interval=0.0))
            assert 1 == await archived(here, tmp_path / "old.gz")
            entry = await outbox.pay(payout(1), timeout=60)
            assert (State.SUCCESSFUL, payout(1)) == (entry.state, entry.order)
            with pytest.raises(OrderUnknown, match=r"ended long ago \(successful\) and left the journal .*old\.gz"):
                await outbox.settled(payout(1).request_id, timeout=60)
        assert (1, []) == (len(here.sandbox.ledger), here.sandbox.duplicates())
