"""A journal in quarantine: what a person decides of one order lets nothing else out."""

import shutil
from pathlib import Path

from journal.factories import BATCH, claimed, order, permitted

from payments_async.journal import SqliteJournal


async def test_writing_an_order_off_does_not_lift_its_quarantine(tmp_path: Path) -> None:
    """Its neighbours may have been sent since the copy was made: only who lifts the quarantine says of all."""
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    async with SqliteJournal(path) as journal:
        chunk = await claimed(journal)
        await permitted(journal, chunk)
    shutil.copyfile(path, copy)
    async with SqliteJournal(copy) as journal:
        await journal.park(order(0).request_id, detail="two sweeps")
        await journal.write_off(order(0).request_id, who="Ann", why="the bank never saw it")
        assert 1 == (await journal.run(BATCH)).quarantined
        assert await journal.claim_chunk(BATCH, "worker") is None
