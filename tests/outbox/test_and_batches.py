"""An outbox and batches in one journal: who sends what is never in doubt."""

from pathlib import Path

import pytest
from bulk.worlds import payouts, session

from payments_async.bulk import run_batch
from payments_async.journal import OrdersDiffer, SqliteJournal
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Sandbox


async def test_a_run_of_what_an_outbox_sends_is_refused(service: Sandbox, journal: SqliteJournal) -> None:
    """Else it would pass by the pause and the fuse of the outbox."""
    async with session(service) as payments:
        async with Outbox(payments, journal, worker=WorkerSettings(sends=False)) as outbox:
            await outbox.put_batch("bonus", payouts(3))
        for batch_id in ("outbox", "bonus"):
            with pytest.raises(OrdersDiffer, match="belongs to the outbox outbox, which sends it"):
                await run_batch(payments, journal, batch_id)
    assert not service.ledger


async def test_a_batch_that_somebody_runs_is_not_put(service: Sandbox, journal: SqliteJournal) -> None:
    """A run that its fuse has stopped is not finished by an outbox."""
    async with session(service) as payments:
        await run_batch(payments, journal, "payroll", payouts(3))
        async with Outbox(payments, journal) as outbox:
            with pytest.raises(OrdersDiffer, match="is there already, and whoever runs it sends it"):
                await outbox.put_batch("payroll", payouts(3))


async def test_an_outbox_named_as_a_batch_is_refused(service: Sandbox, journal: SqliteJournal) -> None:
    """It would have no end, and the batch would."""
    async with session(service) as payments:
        await run_batch(payments, journal, "payroll", payouts(3))
        with pytest.raises(OrdersDiffer, match="holds a batch payroll; give the outbox another name"):
            await Outbox(payments, journal, "payroll").start()


async def test_an_order_of_a_batch_that_is_paid_again_by_an_outbox(service: Sandbox, journal: SqliteJournal) -> None:
    """The same order gives the entry of the batch, and is not sent."""
    async with session(service) as payments:
        orders = payouts(3)
        await run_batch(payments, journal, "payroll", orders)
        async with Outbox(payments, journal) as outbox:
            entry = await outbox.pay(orders[0])
    assert ("payroll", "accepted", 3) == (entry.batch_id, entry.state, len(service.ledger))


async def test_a_batch_that_another_journal_has_sent_is_looked_for_before_it_is_sent(
    service: Sandbox, tmp_path: Path
) -> None:
    """On another machine, which this one's memory knows nothing of: what the service's list shows is not sent."""
    async with SqliteJournal(tmp_path / "one.db", state_folder=None) as one, session(service) as payments:
        await run_batch(payments, one, "payroll", payouts(3))
    async with (
        SqliteJournal(tmp_path / "other.db", state_folder=None) as other,
        session(service) as payments,
        Outbox(payments, other) as outbox,
    ):
        await outbox.put_batch("payroll", payouts(5))
        for order in payouts(5):
            await outbox.pay(order)
        assert 3 == (await outbox.health()).progress.conflicts
    assert 5 == len(service.ledger)


async def test_a_batch_that_another_journal_sends_while_an_outbox_is_open(service: Sandbox, tmp_path: Path) -> None:
    """What the outbox saw as it was opened does not show it: the list is read once more, for the batch alone."""
    async with (
        SqliteJournal(tmp_path / "one.db", state_folder=None) as one,
        SqliteJournal(tmp_path / "other.db", state_folder=None) as other,
        session(service) as elsewhere,
        session(service) as payments,
        Outbox(payments, other) as outbox,
    ):
        await run_batch(elsewhere, one, "payroll", payouts(3))
        await outbox.put_batch("payroll", payouts(5))
        for order in payouts(5):
            await outbox.pay(order)
    assert ([], 5) == (service.duplicates(), len(service.ledger))
