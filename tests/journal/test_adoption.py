"""What every journal promises of an order that a person takes over from another journal, which may have sent it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import attrs
import pytest
from journal.conftest import Home
from journal.factories import IDENTITY, Clock, order, transaction_id

from payments_async.bulk import send_again
from payments_async.journal import (
    HeldElsewhere,
    Journal,
    OrdersDiffer,
    Signal,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
    archive_orders,
)
from payments_async.journal._machine._memory import Loading, Registry
from payments_async.journal.contract import Evidence, Outcome, Permit
from payments_async.testing import Testing

ANN = TakeoverAuthorisation(who="Ann", why="the disk burnt")
DESK, SHOP, DAY = "desk", "shop", 86_400.0


@pytest.fixture
async def other(tmp_path: Path, clock: Clock) -> AsyncIterator[Journal]:
    """Another journal of this machine, with an outbox and three orders, an hour old."""
    async with SqliteJournal(tmp_path / "other.db", testing=Testing(now=clock)) as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        for number in range(3):
            await journal.put(SHOP, order(number))
        clock.pass_(3600.0)
        yield journal


@pytest.fixture
async def desk(home: Home, other: Journal, clock: Clock) -> AsyncIterator[Journal]:
    """A journal with an outbox, and a person's word that it is another one."""
    async with home.opens(clock=clock, second_journal=ANN) as journal:
        await journal.open_outbox(DESK, IDENTITY)
        yield journal


async def test_it_is_refused_and_then_looked_for(desk: Journal, clock: Clock) -> None:
    """From the time on at which the other journal began; nothing of it can be claimed, however often it is put."""
    with pytest.raises(HeldElsewhere):
        await desk.put(DESK, order(0))
    placed = await desk.put(DESK, order(0), adoption=ANN, owner="worker", permits=True)
    assert (True, State.UNKNOWN, None) == (placed.is_new, placed.entry.state, placed.permit)
    for adoption in (None, ANN):
        again = await desk.put(DESK, order(0), adoption=adoption)
        assert (False, State.UNKNOWN) == (again.is_new, again.entry.state)
    chunk = await desk.claim_chunk(DESK, "another")
    assert chunk is None or not chunk.orders
    since = await desk.sent_since(DESK, (State.UNKNOWN,))
    assert since is not None
    assert clock.now - 3600.0 >= since
    kept = (await desk.history(order(0).request_id))[-1]
    assert ("Ann", "adopted: the disk burnt") == (kept.by, kept.detail)


async def test_the_other_journal_sends_nothing_more_of_that_outbox(desk: Journal, other: Journal) -> None:
    """Though its process lives."""
    await desk.put(DESK, order(0), adoption=ANN)
    with pytest.raises(HeldElsewhere, match="adopted"):
        await other.claim_chunk(SHOP, "worker")


async def test_the_other_journal_gets_nothing_of_it_by_a_new_order(desk: Journal, other: Journal) -> None:
    """Which would lease it the chunk that the adopted one lies in."""
    await desk.put(DESK, order(0), adoption=ANN)
    for adoption in (None, ANN):
        with pytest.raises(HeldElsewhere, match="adopted"):
            await other.put(SHOP, order(9), owner="worker", permits=True, adoption=adoption)
    assert State.PLANNED is (await other.put(SHOP, order(1))).entry.state  # it is there, and is told of


async def test_of_what_a_third_journal_adopts_the_second_sends_nothing(
    desk: Journal, tmp_path: Path, clock: Clock
) -> None:
    """Though a person has written it off there too."""
    await desk.put(DESK, order(0), adoption=ANN)
    async with SqliteJournal(tmp_path / "third.db", testing=Testing(now=clock), second_journal=ANN) as third:
        await third.open_outbox("till", IDENTITY)
        assert State.UNKNOWN is (await third.put("till", order(0), adoption=ANN)).entry.state
        for journal in (desk, third):
            await journal.park(order(0).request_id, detail="not in two lists")
            await send_again(journal, order(0).request_id, "Ann", "the statement does not show it")
        with pytest.raises(HeldElsewhere, match="adopted"):
            await desk.claim_chunk(DESK, "worker")
        chunk = await third.claim_chunk("till", "worker")
        assert chunk is not None
        assert [order(0).request_id] == [one.request_id for one in chunk.orders]


async def test_two_journals_that_adopt_it_at_once(
    desk: Journal, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one has it, though both have seen it with the first: the other one sends nothing more."""
    adopt = Registry.adopt

    def both_have_seen_it(registry: Registry, loading: Loading, request_ids: Sequence[str]) -> None:
        both.wait(60.0)
        adopt(registry, loading, request_ids)

    both = threading.Barrier(2)
    async with SqliteJournal(tmp_path / "third.db", testing=Testing(now=clock), second_journal=ANN) as third:
        await third.open_outbox("till", IDENTITY)
        with monkeypatch.context() as patched:
            patched.setattr(Registry, "adopt", both_have_seen_it)
            placed = await asyncio.gather(
                desk.put(DESK, order(0), adoption=ANN), third.put("till", order(0), adoption=ANN)
            )
        assert {State.UNKNOWN} == {one.entry.state for one in placed}
        refused = 0
        for journal, name in ((desk, DESK), (third, "till")):
            try:
                await journal.claim_chunk(name, "worker")
            except HeldElsewhere:
                refused += 1
        assert 1 == refused


async def test_one_that_was_put_since_the_other_journal_was_restored(
    desk: Journal, tmp_path: Path, clock: Clock
) -> None:
    """It is registered there under a further name of its outbox, and is not sent from there either."""
    path, backup = tmp_path / "restored.db", b""
    for number in (20, 21):
        async with SqliteJournal(path, testing=Testing(now=clock), second_journal=ANN) as other:
            await other.open_outbox("till", IDENTITY)
            await other.put("till", order(number))
        backup = backup or path.read_bytes()
    path.write_bytes(backup)
    async with SqliteJournal(path, testing=Testing(now=clock), second_journal=ANN) as other:
        await other.open_outbox("till", IDENTITY)
        assert (await other.run("till")).quarantined_at is not None
        await other.put("till", order(22))
        assert State.UNKNOWN is (await desk.put(DESK, order(22), adoption=ANN)).entry.state
        with pytest.raises(HeldElsewhere, match="adopted"):
            await other.claim_chunk("till", "worker")


async def test_ids_in_other_letters_are_one(desk: Journal) -> None:
    """Whoever adopts it in other letters has it so."""
    shouted = attrs.evolve(order(0), request_id=order(0).request_id.upper())
    with pytest.raises(HeldElsewhere):
        await desk.put(DESK, shouted)
    assert State.UNKNOWN is (await desk.put(DESK, shouted, adoption=ANN)).entry.state
    with pytest.raises(OrdersDiffer):
        await desk.put(DESK, order(0), adoption=ANN)


async def test_new_orders_beside_it_are_sent(desk: Journal) -> None:
    """In one commit with those that are adopted, and with one that is refused."""
    asked = [desk.put(DESK, order(0), adoption=ANN), desk.put(DESK, order(7)), desk.put(DESK, order(1))]
    adopted, new, refused = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(refused, HeldElsewhere)
    assert not isinstance(adopted, BaseException)
    assert not isinstance(new, BaseException)
    assert (State.UNKNOWN, State.PLANNED) == (adopted.entry.state, new.entry.state)


async def test_one_that_a_list_shows(desk: Journal, clock: Clock, tmp_path: Path) -> None:
    """It was paid: it ends so, agrees with all that is checked, and leaves for an archive with its story."""
    await desk.put(DESK, order(0), adoption=ANN)
    about = order(0)
    seen = Evidence(
        signal=Signal.LOOKED_UP_SUCCESSFUL,
        source="list",
        request_id=about.request_id,
        transaction_id=transaction_id(),
        amount=about.amount,
        currency="UGX",
    )
    await desk.apply_evidence(seen)
    assert State.SUCCESSFUL is (await desk.put(DESK, order(0))).entry.state
    assert () == (await desk.examine()).flaws
    clock.pass_(91 * DAY)
    done = await archive_orders(desk, tmp_path / "old.jsonl.gz", older_than=90 * DAY, who="Ann", why="old")
    assert 1 == done.orders
    assert () == (await desk.examine()).flaws
    assert State.SUCCESSFUL is (await desk.put(DESK, order(0), adoption=ANN)).entry.state


async def test_one_that_no_list_shows(desk: Journal, clock: Clock) -> None:
    """It is parked, written off by a person, and sent once, when it is due."""
    await desk.put(DESK, order(0), adoption=ANN, not_before=clock.now + 100.0)
    await desk.park(order(0).request_id, detail="not in two lists")
    await send_again(desk, order(0).request_id, "Ann", "the statement does not show it")
    assert () == (await desk.examine()).flaws
    chunk = await desk.claim_chunk(DESK, "worker", lease=600.0)
    assert chunk is None or not [one for one in chunk.orders if one.not_before <= clock.now]
    clock.pass_(200.0)
    chunk = chunk or await desk.claim_chunk(DESK, "worker", lease=600.0)
    assert chunk is not None
    permit = await desk.permit(chunk, chunk.orders[0])
    assert isinstance(permit, Permit)
    assert (2, True) == (permit.attempt, permit.sent_before)
    await desk.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id()))
    assert State.ACCEPTED is (await desk.put(DESK, order(0))).entry.state
    assert () == (await desk.examine()).flaws


@pytest.mark.parametrize("remembers", ["a machine that forgot", "no state folder"])
async def test_what_only_a_person_knows_of_is_looked_for_too(home: Home, clock: Clock, remembers: str) -> None:
    """The machine knows of no other holder: with its state folder it may have lost what would tell."""
    places = {} if remembers == "a machine that forgot" else {"state_folder": None}
    async with home.opens(clock=clock, **places) as journal:
        await journal.open_outbox(DESK, IDENTITY)
        placed = await journal.put(DESK, order(0), adoption=ANN, owner="worker", permits=True)
        assert (State.UNKNOWN, None) == (placed.entry.state, placed.permit)
        since = await journal.sent_since(DESK, (State.UNKNOWN,))
        assert since is not None
        assert clock.now - 30 * DAY >= since
        await journal.open_run("payroll", IDENTITY)
        await journal.load("payroll", [order(1, batch="payroll")], owner="loader", adoption=ANN)
        run = await journal.run("payroll")
        assert run.quarantined
        assert run.look_since is not None
        assert clock.now - 30 * DAY >= run.look_since
