"""Some tables are put back from an older dump, and those that tell who the journal is stay as they are."""

from typing import Any

import pytest
from journal.conftest import Home, Opens
from journal.factories import BATCH, IDENTITY, Clock, claimed, order, permitted

from payments_async.journal import Journal, JournalBehind, Signal, State
from payments_async.journal.contract import Outcome


async def send_one(journal: Journal) -> None:
    """An order is accepted, of which the dump knows only that it was planned."""
    chunk = await journal.claim_chunk(BATCH, "worker")
    assert chunk is not None
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
    await journal.release_chunk(chunk)


@pytest.mark.parametrize("memory", ["remembered", "not remembered"])
async def test_a_dump_put_back_into_some_of_the_tables(opens: Opens, home: Home, clock: Clock, memory: str) -> None:
    """The journal counts on as if nothing had happened, and its rows are older: it is in quarantine."""
    how = {} if memory == "remembered" else {"state_folder": None}
    async with opens(**how) as journal:
        await journal.release_chunk(await claimed(journal))
    put_back = home.dumped("meta", "run")
    clock.pass_(1.0)
    async with opens(**how) as journal:
        await send_one(journal)
    put_back()
    async with opens(**how) as journal:
        assert 1 == (await journal.run(BATCH)).quarantined
        assert await journal.claim_chunk(BATCH, "worker") is None


async def test_rows_put_back_while_a_journal_is_open_in_postgresql(opens: Opens, home: Home, clock: Clock) -> None:
    """Whoever claims next finds them, grants nothing, and puts all of it into quarantine."""
    async with opens() as journal:
        if not journal.shares_transactions:
            pytest.skip("whoever writes into a file that is open does so beside its locks")
        await journal.release_chunk(await claimed(journal))
        put_back = home.dumped("meta", "run")
        clock.pass_(1.0)
        await send_one(journal)
        put_back()
        with pytest.raises(JournalBehind):
            await journal.claim_chunk(BATCH, "worker")
        assert 1 == (await journal.run(BATCH)).quarantined
        assert await journal.claim_chunk(BATCH, "worker") is None


@pytest.mark.parametrize(("was", "then"), [(State.PLANNED, State.PLANNED), (State.SENDING, State.UNKNOWN)])
async def test_orders_alone_are_put_back_whose_chunk_is_done(
    opens: Opens, home: Home, clock: Clock, was: State, then: State
) -> None:
    """One that was under way is unknown, one that was planned waits for a person; both are looked for since then."""
    sends: dict[str, Any] = {"owner": "worker", "permits": True} if was is State.SENDING else {}
    async with opens() as journal:
        await journal.open_outbox("shop", IDENTITY)
        began = clock.now
        first = await journal.put("shop", order(0), **sends)
        clock.pass_(1.0)
        second = await journal.put("shop", order(1), **sends)
        put_back = home.dumped(only="outbox")
        clock.pass_(1.0)
        for placed in (first, second):
            chunk = placed.chunk or await journal.claim_chunk("shop", "worker")
            assert chunk is not None
            permit = placed.permit or await permitted(journal, chunk)
            await journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN))
            await journal.release_chunk(chunk)
        assert [("done",)] == home.rows("SELECT DISTINCT state FROM chunk")
    put_back()
    async with opens() as journal:
        assert [("quarantined",)] == home.rows("SELECT DISTINCT state FROM chunk")
        assert began == (await journal.run("shop")).look_since
        assert [then, then] == [entry.state async for entry in journal.entries("shop")]


async def test_an_answer_whose_order_has_another_number_since(opens: Opens, home: Home, clock: Clock) -> None:
    """The answer is of the order that was sent, and says nothing of the one that has its number now."""
    async with opens(state_folder=None) as journal:
        await journal.open_outbox("shop", IDENTITY)
    put_back = home.dumped()
    async with opens(state_folder=None) as journal:
        await journal.open_outbox("shop", IDENTITY)
        permit = (await journal.put("shop", order(0), owner="worker", permits=True)).permit
        assert permit is not None
    put_back()
    clock.pass_(1.0)
    async with opens(state_folder=None) as journal:
        await journal.open_outbox("shop", IDENTITY)
        for number in (1, 0):
            await journal.put("shop", order(number))
        number_of = dict(home.rows("SELECT request_id, id FROM outbox"))
        assert permit.id == number_of[order(1).request_id]
        await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED))
        states = {entry.request_id: entry.state async for entry in journal.entries("shop")}
        assert {order(0).request_id} == {one for one, state in states.items() if state is State.ACCEPTED}


async def test_a_journal_that_forgot_nothing_is_not_taken_for_one_that_did(opens: Opens) -> None:
    """Whatever wrote its last order: a permit, an answer, a person who acknowledged a contradiction."""
    async with opens() as journal:
        await journal.release_chunk(await claimed(journal))
    async with opens() as journal:
        await send_one(journal)
    async with opens() as journal:
        await journal.acknowledge(order(0).request_id, who="Ann", why="seen")
    async with opens() as journal:
        assert 0 == (await journal.run(BATCH)).quarantined
