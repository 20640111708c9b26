"""An order that may be sent again while an outbox runs: it is sent by that outbox, without a restart."""

from __future__ import annotations

from pathlib import Path

from bulk.worlds import payout
from outbox.desks import A_MINUTE, desk

from payments_async.journal import SqliteJournal
from payments_async.sandbox import Fault


async def test_an_order_that_is_written_off_while_its_outbox_runs(tmp_path: Path) -> None:
    """By another process: it is sent, and what is put meanwhile as well."""
    async with desk(tmp_path, outbox={"settles": False}) as here, SqliteJournal(tmp_path / "journal.db") as office:
        await here.outbox.pay(payout(2), timeout=A_MINUTE)  # from now on it fills a chunk of its own
        here.sandbox.script(Fault.LOST_BEFORE, on="money")
        assert "unknown" == (await here.outbox.pay(payout(0), timeout=A_MINUTE)).state
        await office.park(payout(0).request_id, detail="not listed")
        await office.write_off(payout(0).request_id, who="Ann", why="it never arrived")
        await here.outbox.pay(payout(1), timeout=A_MINUTE)
        await here.comes_to({"accepted": 3})
        assert [1, 1, 1] == [here.executions().count(payout(number).request_id) for number in range(3)]
