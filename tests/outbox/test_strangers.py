"""Another journal, or another program, pays from the same account: that is noticed, and nothing of it is paid twice."""

from __future__ import annotations

import logging
from pathlib import Path

import attrs
import pytest
from bulk.worlds import payout, session
from outbox.waiting import OUTBOX, Waiting, waiting

from payments_async.outbox._scans import account_of
from payments_async.sandbox import Fault


async def looked_for(here: Waiting) -> None:
    """The outbox is there, and was looked for as one that begins to work is."""
    await here.journal.open_outbox(OUTBOX, account_of(here.payments))
    today = here.clock.now().date()
    scan = await here.journal.begin_list_scan(OUTBOX, since=today, until=today)
    await here.journal.end_list_scan(attrs.evolve(scan, counted=True))


async def test_an_order_that_another_machine_has_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A list that was read for another order shows it: it is told of once, and put here it is not sent again."""
    caplog.set_level(logging.WARNING, "payments_async")
    async with waiting(tmp_path) as here:
        await looked_for(here)
        async with session(here.sandbox) as other_machine:
            await other_machine.payouts.send(payout(5))
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await here.send(0)
        assert 0 == await here.journal.unknown_transactions(OUTBOX)
        await here.pass_(5.0)
        await here.pass_(3600.0)
        assert 1 == await here.journal.unknown_transactions(OUTBOX)
        assert 1 == sum("who sent them" in record.message for record in caplog.records)
        placed = await here.journal.put(OUTBOX, payout(5), owner="here", permits=True)
        assert ("accepted", None) == (placed.entry.state, placed.permit)
        assert placed.entry.conflict is not None
        assert 0 == await here.journal.unknown_transactions(OUTBOX)
