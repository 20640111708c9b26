"""A commit whose answer is lost was made all the same: what nobody sent for it is not left to a person."""

from typing import Any

import pytest
from journal.conftest import Opens
from journal.factories import BATCH, IDENTITY, Clock, claimed, order, permitted

from payments_async.journal import JournalUnavailable, Signal, SqliteJournal, State
from payments_async.journal.contract import Outcome, Permit


class Losing:
    """Loses the answer of the next commit when it is armed, once that was made."""

    def __init__(self) -> None:
        self.is_armed = False

    def __call__(self, point: str) -> None:
        if self.is_armed and point == "commit.done":
            self.is_armed = False
            raise ConnectionResetError


async def test_a_permit(opens: Opens) -> None:
    """The order is planned again as soon as the journal can be written: whoever asked sent nothing."""
    losing = Losing()
    async with opens(crash_at=losing) as journal:
        chunk = await claimed(journal)
        losing.is_armed = True
        with pytest.raises(JournalUnavailable):
            await journal.permit(chunk, chunk.orders[0])
        permit = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        assert 2 == permit.attempt
        progress = await journal.progress(BATCH)
        assert (2, 1) == (progress.counts["planned"], progress.counts["sending"])


async def test_a_permit_of_which_another_one_was_made_since(opens: Opens, clock: Clock) -> None:
    """What somebody sends by now is not taken back."""
    losing = Losing()
    async with opens(crash_at=losing) as journal, opens() as other:
        chunk = await claimed(journal)
        losing.is_armed = True
        with pytest.raises(JournalUnavailable):
            await journal.permit(chunk, chunk.orders[0])
        await journal.check_writable()
        clock.pass_(1)
        await permitted(other, chunk)
        await journal.check_writable()
        entry = await journal.entry(order(0).request_id)
        assert entry is not None
        assert (State.SENDING, 2) == (entry.state, entry.attempt)


async def test_the_outcome_that_came_with_it(opens: Opens) -> None:
    """Was written down, and is written down again without a trace."""
    losing = Losing()
    async with opens(crash_at=losing) as journal:
        chunk = await claimed(journal)
        accepted = Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED, transaction_id=None)
        losing.is_armed = True
        with pytest.raises(JournalUnavailable):
            await journal.permit(chunk, chunk.orders[1], after=accepted)
        await permitted(journal, chunk, 1, after=accepted)
        progress = await journal.progress(BATCH)
        assert (1, 1, 1) == tuple(progress.counts[state] for state in ("accepted", "sending", "planned"))


async def test_an_order_put_to_be_sent_at_once(opens: Opens) -> None:
    """Is there, and planned: whoever put it has no permit for it."""
    losing = Losing()
    async with opens(crash_at=losing) as journal:
        await journal.open_outbox("shop", IDENTITY)
        how: dict[str, Any] = {"owner": "worker", "permits": True}
        losing.is_armed = True
        with pytest.raises(JournalUnavailable):
            await journal.put("shop", order(1), **how)
        placed = await journal.put("shop", order(1), **how)
        assert (False, State.PLANNED) == (placed.is_new, placed.entry.state)
        await journal.expire_chunks(owner="worker")
        chunk = await journal.claim_chunk("shop", "worker")
        assert chunk is not None
        assert order(1).request_id == chunk.orders[0].request_id


async def test_a_transaction_that_the_database_has_undone(opens: Opens) -> None:
    """Its commit fails: what was written before is not there, though only a later statement said so."""
    async with opens() as journal:
        words = "INSERT OR ROLLBACK" if isinstance(journal, SqliteJournal) else "INSERT"
    database = journal.new_database()
    with database.retired() as connection:
        connection.execute("INSERT INTO meta (key, value) VALUES ('colour', 'red')")
        with pytest.raises(database.Error):
            connection.execute(f"{words} INTO meta (key, value) VALUES ('colour', 'blue')")
        with pytest.raises((database.Error, JournalUnavailable)):
            database.commit(connection)
    assert "colour" not in database.facts()
