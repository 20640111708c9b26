"""An order that may be sent again while an outbox runs: it is sent by that outbox, without a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bulk.worlds import payout
from outbox.desks import A_MINUTE, desk, until

from payments_async.journal import Signal, SqliteJournal
from payments_async.journal.contract import Evidence
from payments_async.sandbox import Fault, ManualClock


async def test_an_order_that_is_written_off_while_its_outbox_runs(tmp_path: Path) -> None:
    """By another process: it is sent, and what is put meanwhile as well."""
    async with desk(tmp_path, outbox={"settles": False}) as here, SqliteJournal(tmp_path / "journal.db") as office:
        await here.outbox.pay(payout(2), timeout=A_MINUTE)  # from now on it fills a chunk of its own
        here.sandbox.script(Fault.LOST_BEFORE, on="money")
        assert "unknown" == (await here.outbox.pay(payout(0), timeout=A_MINUTE)).state
        await office.park(payout(0).request_id, detail="not listed")
        await office.send_again(payout(0).request_id, who="Ann", why="it never arrived")
        await here.outbox.pay(payout(1), timeout=A_MINUTE)
        await here.comes_to({"accepted": 3})
        assert [1, 1, 1] == [here.executions().count(payout(number).request_id) for number in range(3)]


async def test_an_order_that_is_written_off_while_it_waits_for_its_turn(tmp_path: Path) -> None:
    """A notification told of it before it was sent: a refusal proves nothing then, to the session either."""
    settings = {"settles": False, "concurrency": 1}
    async with desk(tmp_path, outbox=settings, clock=ManualClock()) as here:
        here.sandbox.script(Fault.SLOW, on="money", seconds=1.0)
        before = asyncio.ensure_future(here.outbox.pay(payout(0), timeout=A_MINUTE))

        async def carried_out() -> int:
            return len(here.sandbox.ledger)

        await until(carried_out, 1)
        waiting = asyncio.ensure_future(here.outbox.pay(payout(1), timeout=A_MINUTE))
        await here.comes_to({"sending": 1, "planned": 1})
        told = Evidence(
            signal=Signal.NOTIFIED_PROCESSING, source="stored notification", request_id=payout(1).request_id,
            transaction_id="t-1", amount=payout(1).amount, currency="UGX",
        )  # fmt: skip
        await here.journal.apply_evidence(told)
        await here.journal.send_again(payout(1).request_id, who="Ann", why="the service has no such transaction")
        here.sandbox.script(Fault.REFUSED, on="money")
        await here.sandbox.advance(1.0)
        assert ["accepted", "unknown"] == [(await before).state, (await waiting).state]
        assert {payout(1).request_id} == here.payments.unsettled
