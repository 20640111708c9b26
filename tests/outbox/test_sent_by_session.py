"""Orders that the session has sent by itself before they were put: the outbox asks its books, and parks none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import pytest
from bulk.worlds import payout, session
from journal import postgres
from journal.conftest import KINDS
from outbox.desks import A_MINUTE, Desk, ids

from payments_async import InvalidOrder, OutcomeUnknown
from payments_async.bulk import RunSettings, run_batch
from payments_async.ipn import Receiver, serving
from payments_async.journal import SqliteJournal, State
from payments_async.journal._machine import _departures
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Fault, Sandbox


@asynccontextmanager
async def shop(folder: Path) -> AsyncIterator[Desk]:
    """An outbox with one worker, whose journal hears the notifications."""
    async with SqliteJournal(folder / "journal.db") as journal:
        receiver = Receiver(journal, senders=["127.0.0.1"])
        async with (
            serving(receiver, port=0) as (host, port),
            Sandbox(processing_delay=0.0, ipn_url=f"http://{host}:{port}/ipn") as sandbox,
            session(sandbox) as payments,
            Outbox(payments, journal, concurrency=1, worker=WorkerSettings(settles=False)) as outbox,
        ):
            yield Desk(sandbox, payments, journal, outbox)


async def test_orders_that_were_notified_before_they_are_put(tmp_path: Path) -> None:
    """They end as the notification says, are not sent again, and leave nothing to a person."""
    async with shop(tmp_path) as here:
        for number in range(3):
            accepted = await here.payments.payouts.send(payout(number))
            entry = await here.outbox.put(payout(number))
            assert (accepted.transaction_id, 1) == (entry.transaction_id, entry.attempt)
        await here.comes_to({"successful": 3})
        assert (0, ids(range(3))) == ((await here.outbox.health()).progress.conflicts, here.executions())
        assert () == (await here.journal.examine()).flaws


async def test_a_notification_settles_the_doubts_of_the_session(tmp_path: Path) -> None:
    """An order whose answer was lost has a known outcome for the session once its notification came."""
    async with shop(tmp_path) as here:
        await here.outbox.pay(payout(99), timeout=A_MINUTE)
        here.sandbox.script(Fault.ERROR_AFTER, on="money", times=3)
        await asyncio.gather(*(here.outbox.pay(payout(number), timeout=A_MINUTE) for number in range(3)))
        await here.comes_to({"successful": 4})
        async with asyncio.timeout(A_MINUTE):
            while here.payments.unsettled:  # noqa: ASYNC110 - the outbox hears of it in a moment
                await asyncio.sleep(0.01)
        assert 4 == len(here.sandbox.ledger)


async def test_orders_that_are_under_way_when_they_are_put(tmp_path: Path) -> None:
    """The exchange is waited for, however many there are and however few workers."""
    async with shop(tmp_path) as here:
        await here.outbox.pay(payout(99), timeout=A_MINUTE)
        here.sandbox.script(Fault.SLOW, on="money", times=10, seconds=0.1)
        sending = [asyncio.ensure_future(here.payments.payouts.send(payout(number))) for number in range(10)]
        while len(here.payments.unsettled) < 10:  # noqa: ASYNC110 - it begins in a turn of the loop
            await asyncio.sleep(0)
        await asyncio.gather(*(here.outbox.pay(payout(number), timeout=A_MINUTE) for number in range(10)))
        await asyncio.gather(*sending)
        await here.comes_to({"successful": 11})
        assert (0, []) == ((await here.outbox.health()).progress.conflicts, here.sandbox.duplicates())


async def test_an_order_that_the_session_sends_before_its_time_is_marked_as_let_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker waits for that exchange, and may die: its departure record does not say that nothing left."""
    monkeypatch.setattr(_departures, "mount_of", lambda _: (Path("/"), "ext4"))
    async with shop(tmp_path) as here:
        await here.outbox.pay(payout(99), timeout=A_MINUTE)
        here.sandbox.ipn_url = None  # else it would be parked
        await here.outbox.put(payout(0), not_before=datetime.now(UTC) + timedelta(seconds=0.3))
        here.sandbox.script(Fault.SLOW, on="money", seconds=0.6)
        await here.payments.payouts.send(payout(0))
        await here.comes_to({"successful": 1, "accepted": 1})
        marks = sum(sum(lease.marks) for lease in here.journal._departures._leases.values())
        assert (2, []) == (marks, here.sandbox.duplicates())


async def test_an_order_whose_outcome_the_session_does_not_know(tmp_path: Path) -> None:
    """It is unknown in the journal too, and not sent again; its notification settles it."""
    async with shop(tmp_path) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="money")
        with pytest.raises(OutcomeUnknown):
            await here.payments.payouts.send(payout(0))
        assert (await here.outbox.put(payout(0))).state in (State.UNKNOWN, State.SUCCESSFUL)
        await here.comes_to({"successful": 1})
        assert ids(range(1)) == here.executions()


async def test_an_order_that_the_session_could_not_send(tmp_path: Path) -> None:
    """It is sent by the outbox, as any other."""
    async with shop(tmp_path) as here:
        here.sandbox.script(Fault.REFUSED, on="money", code=4711, message="not now")
        with pytest.raises(Exception, match="not now"):
            await here.payments.payouts.send(payout(0))
        await here.outbox.put(payout(0))
        await here.comes_to({"successful": 1})


async def test_an_order_with_capital_letters_whose_outcome_the_session_does_not_know(tmp_path: Path) -> None:
    """It is found in the session's books as any other."""
    async with shop(tmp_path) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="money")
        order = attrs.evolve(payout(0), request_id="Voucher-17")
        with pytest.raises(OutcomeUnknown):
            await here.payments.payouts.send(order)
        entry = await here.outbox.put(order)
        assert (entry.state in (State.UNKNOWN, State.SUCCESSFUL), entry.attempt) == (True, 1)


@pytest.mark.parametrize("fault", [None, Fault.LOST_AFTER])
async def test_an_order_that_the_session_has_sent_in_other_letters(tmp_path: Path, fault: Fault | None) -> None:
    """It is not taken: another process would send it once more."""
    async with shop(tmp_path) as here:
        if fault is not None:
            here.sandbox.script(fault, on="money")
        with suppress(OutcomeUnknown):
            await here.payments.payouts.send(attrs.evolve(payout(0), request_id="Voucher-17"))
        with pytest.raises(InvalidOrder, match="not sent"):
            await here.outbox.put(attrs.evolve(payout(0), request_id="voucher-17"))
        assert await here.journal.entry("voucher-17") is None


async def test_a_batch_with_orders_that_were_sent_before(tmp_path: Path) -> None:
    """Each is written down with how it ended, though its notification came first; the others are sent."""
    async with shop(tmp_path) as here:
        await here.payments.payouts.send(payout(0))
        here.sandbox.script(Fault.LOST_AFTER, on="money")
        with pytest.raises(OutcomeUnknown):
            await here.payments.payouts.send(payout(1))
        await here.outbox.put_batch("batch", [payout(number) for number in range(3)])
        await here.comes_to({"successful": 3})
        assert (0, ids(range(3))) == ((await here.outbox.health()).progress.conflicts, here.executions())
        assert () == (await here.journal.examine()).flaws


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_batch_that_another_process_goes_on_with(tmp_path: Path, kind: str) -> None:
    """What the first session has sent by itself is not sent by the second, which does not know of it."""
    home = KINDS[kind](tmp_path)
    try:
        async with home.opens() as journal, Sandbox() as sandbox, session(sandbox) as here, session(sandbox) as other:
            await here.payouts.send(payout(0))
            sandbox.script(Fault.LOST_AFTER, on="money")
            with pytest.raises(OutcomeUnknown):
                await here.payouts.send(payout(1))
            stop = asyncio.Event()
            stop.set()
            orders = [payout(number) for number in range(3)]
            await run_batch(here, journal, "batch", orders, stop=stop, settings=RunSettings(look_first="never"))
            await run_batch(other, journal, "batch", orders, settings=RunSettings(look_first="never"))
            assert ids(range(3)) == [execution.request_id for execution in sandbox.ledger]
            assert {1} == {entry.attempt async for entry in journal.entries()}
    finally:
        postgres.give_back()


async def test_a_batch_with_another_order_under_an_id_that_the_session_has_used(tmp_path: Path) -> None:
    """Nothing of it is sent, and it may be loaded at once when that is corrected."""
    async with shop(tmp_path) as here:
        await here.payments.payouts.send(payout(0))
        with pytest.raises(InvalidOrder, match="not sent"):
            await here.outbox.put_batch("batch", [payout(0, amount=7), payout(1)])
        await here.outbox.put_batch("batch", [payout(0), payout(1)])
        await here.comes_to({"successful": 2})
        assert ids(range(2)) == here.executions()
