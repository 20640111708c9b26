"""Orders that cannot be sent or read as they are: they hold up no other, are shown, and go on once they are whole."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import attrs
from bulk.worlds import payout
from outbox.desks import Desk, desk
from outbox.waiting import waiting

from payments_async.journal import Signal, State
from payments_async.journal.contract import Evidence
from payments_async.outbox import Outbox, WorkerSettings

AMOUNT = "UPDATE outbox SET amount = '7' WHERE request_id = ?"
BODY = "UPDATE outbox SET body = x'7b7d' WHERE request_id = ?"
PLANNED_AGAIN = "UPDATE outbox SET state = 'planned', attempt = 0 WHERE request_id = ?"
WIPED = "UPDATE outbox SET state = 'planned', attempt = 0, transaction_id = zeroblob(16) WHERE request_id = ?"


def damage(path: Path, number: int, edit: str = AMOUNT) -> None:
    """Edit an order, as a bad disk or a clever person does."""
    with closing(sqlite3.connect(path)) as file:
        file.execute(edit, (payout(number).request_id,))
        file.commit()


async def test_a_planned_order_that_is_damaged(tmp_path: Path) -> None:
    """A person is told; put again it is as it was, and is sent. One that was sent is not sent again."""
    async with desk(tmp_path, outbox={"settles": False}) as here:
        await here.outbox.pause("Ann", "lunch")
        for number in range(3):
            await here.outbox.put(payout(number))
        await here.outbox.aclose()
        damage(tmp_path / "journal.db", 1)
        async with Outbox(here.payments, here.journal, worker=WorkerSettings(settles=False)) as outbox:
            await outbox.resume("Ann", "back")
            await here.comes_to({"planned": 1, "accepted": 2})
            health = await outbox.health()
            assert (True, 1) == (health.is_well, health.progress.conflicts)
            assert [] == [entry async for entry in here.journal.conflicts()]  # it is counted, and cannot be read
            await outbox.put(payout(1))
            await here.comes_to({"accepted": 3})
            assert "what was put" in ((await outbox.pay(payout(1))).conflict or "")
        damage(tmp_path / "journal.db", 0, WIPED)
        damage(tmp_path / "journal.db", 2, PLANNED_AGAIN)
        async with Outbox(here.payments, here.journal, worker=WorkerSettings(settles=False)) as outbox:
            await outbox.pay(payout(3))
            shown = [entry.conflict async for entry in here.journal.conflicts() if entry.state is State.PLANNED]
            assert 2 * ["it is planned, though it was sent before: the file was edited; do not pay it again"] == shown
        assert 4 == len(here.sandbox.ledger)


async def test_an_order_whose_id_the_session_has_used_for_another_one(tmp_path: Path) -> None:
    """It cannot be sent from here: it is held back and shown, and its chunk is done."""
    async with desk(tmp_path, outbox={"settles": False}) as here:
        await here.outbox.pay(payout(0), timeout=60.0)  # the list was read before
        await here.outbox.pause("Ann", "lunch")
        for number in (1, 2):
            await here.outbox.put(payout(number))
        await here.payments.payouts.send(attrs.evolve(payout(1), amount=77))
        await here.outbox.resume("Ann", "back")
        await here.comes_to({"planned": 1, "accepted": 2})
        (shown,) = [entry async for entry in here.journal.conflicts()]
        assert (payout(1).request_id, "it cannot be sent as it is (InvalidOrder)") == (shown.request_id, shown.conflict)
        await here.outbox.aclose()
        assert (0, 0) == await _free_and_leased(here)
    assert 3 == len(here.sandbox.ledger)


async def _free_and_leased(here: Desk) -> tuple[int, int]:
    chunks = await here.journal.chunks("outbox")
    return chunks.open, chunks.leased


async def test_an_open_order_that_is_damaged(tmp_path: Path) -> None:
    """The others are settled, and the list is not read for it again and again."""
    async with waiting(tmp_path, processing_delay=10.0) as here:
        await here.send(0, 1)
        damage(tmp_path / "journal.db", 0)
        await here.pass_(120.0)
        assert {"accepted": 1, "successful": 1} == await here.states()
        asked = here.asked()
        await here.pass_(1.0)
        assert asked == here.asked()


async def test_somebody_waits_for_an_order_that_is_damaged(tmp_path: Path) -> None:
    """Whoever waits for another one hears of it all the same."""
    async with desk(tmp_path, outbox={"settles": False}) as here:
        paid = await here.outbox.pay(payout(0), timeout=60.0)
        with here.outbox._listener.hearing(paid.request_id):
            damage(tmp_path / "journal.db", 0, BODY)
            seen = Evidence(
                signal=Signal.LOOKED_UP_SUCCESSFUL, source="record", request_id=paid.request_id, amount=paid.amount,
                transaction_id=paid.transaction_id,
            )  # fmt: skip
            assert State.SUCCESSFUL == (await here.journal.apply_evidence(seen)).state
            assert "accepted" == (await here.outbox.pay(payout(1), timeout=60.0)).state
            waiting = asyncio.create_task(here.outbox.settled(payout(1).request_id, timeout=60.0))
            seen = attrs.evolve(seen, request_id=payout(1).request_id, amount=payout(1).amount, transaction_id=None)
            await here.journal.apply_evidence(seen)
            assert State.SUCCESSFUL == (await waiting).state
