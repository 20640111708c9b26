"""What every journal promises of changes: none is lost, none is made up, each is told until its handlers are done."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from journal.conftest import Home, Opens
from journal.factories import (
    IDENTITY,
    Clock,
    claimed,
    delivery,
    event,
    in_outbox,
    order,
    orders,
    permitted,
    transaction_id,
)

from payments_async.journal import Journal, Signal, SqliteJournal, State
from payments_async.journal.contract import Backlog, Chunk, Evidence, OrderEvent, Outcome

SHOP = "shop"
TOLD = tuple(state for state in State if state not in (State.PLANNED, State.SENDING))


async def told(journal: Journal, outbox: str | None = SHOP, after: int = 0) -> list[tuple[int, State]]:
    """Which order came to stand where, in the sequence of the feed."""
    return [(int(change.request_id[-6:]), change.state) for change in await journal.changes_after(outbox, after)]


async def taken(
    journal: Journal, owner: str = "worker", *, states: Sequence[State] = TOLD, lease: float = 90, limit: int = 10
) -> Sequence[OrderEvent]:
    """Changes that wait for a handler, leased."""
    return await journal.claim_changes(SHOP, states, owner, lease=lease, limit=limit)


async def end(journal: Journal, chunk: Chunk, place: int = 0, signal: Signal = Signal.ACCEPTED) -> None:
    """Send one order, with this end."""
    named = transaction_id(place) if signal is Signal.ACCEPTED else None
    await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=signal, transaction_id=named))


async def found(journal: Journal, number: int, signal: Signal, *, amount: str | None = None) -> None:
    """Evidence about one order."""
    about = order(number, amount, batch=SHOP)
    await journal.apply_evidence(
        Evidence(signal=signal, source="record", request_id=about.request_id, amount=about.amount, currency="UGX")
    )


async def waiting(journal: Journal, count: int = 3) -> list[int]:
    """So many changes that wait for a handler; their ids, oldest first."""
    await journal.hear(SHOP, [State.ACCEPTED])
    chunk = await in_outbox(journal, count)
    for place in range(count):
        await end(journal, chunk, place)
    return [change.id for change in await journal.changes_after(SHOP, 0)]


async def test_what_becomes_of_an_order_is_told_in_its_sequence(journal: Journal, clock: Clock) -> None:
    """Each fact once, under an id of its own that is higher than those before, with the moment it was written."""
    chunk = await in_outbox(journal)
    assert 0 == await journal.last_change()
    await end(journal, chunk, 0)
    await end(journal, chunk, 1, Signal.REJECTED)
    clock.pass_(5)
    await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL)
    await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL)
    await found(journal, 0, Signal.LOOKED_UP_REVERSED)
    first, *others = await journal.changes_after(SHOP, 0)
    assert [
        (0, State.ACCEPTED), (1, State.REJECTED), (0, State.SUCCESSFUL), (0, State.REVERSED),
    ] == await told(journal)  # fmt: skip
    assert (clock.now - 5, {clock.now - 5, clock.now}) == (first.at, {change.at for change in others})
    assert sorted({change.id for change in others}) == [change.id for change in others]
    assert others[-1].id == await journal.last_change()
    assert [(0, State.REVERSED)] == await told(journal, after=others[-2].id)
    assert [first] == list(await journal.changes_after(SHOP, 0, limit=1))


async def test_who_waits_for_no_order_in_particular(journal: Journal, clock: Clock) -> None:
    """Is told to which states orders of an outbox came since, however many, and where to go on."""
    chunk = await in_outbox(journal)
    assert (0, frozenset()) == await journal.states_since(SHOP, 0)
    await end(journal, chunk, 0)
    await end(journal, chunk, 1, Signal.REJECTED)
    last = await journal.last_change()
    assert (last, {State.ACCEPTED, State.REJECTED}) == await journal.states_since(SHOP, 0)
    assert (last, frozenset()) == await journal.states_since(SHOP, last)
    clock.pass_(5)
    await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL)
    assert (await journal.last_change(), {State.SUCCESSFUL}) == await journal.states_since(SHOP, last)
    assert (7, frozenset()) == await journal.states_since("another", 7)


async def test_a_restored_journal_gives_no_id_again(home: Home, opens: Opens, clock: Clock, tmp_path: Path) -> None:
    """A handler that remembers ids would take another fact for one that it knows, and leave it out."""
    async with opens() as journal:
        await in_outbox(journal)
    reopens = home.copied()
    async with opens() as journal:
        await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL)
        before = await journal.last_change()
    clock.pass_(1)
    async with reopens(clock=clock, state_folder=tmp_path / "state") as restored:
        await found(restored, 1, Signal.LOOKED_UP_SUCCESSFUL)
        assert [(1, State.SUCCESSFUL)] == await told(restored)
        assert before < await restored.last_change()


async def test_an_order_of_no_outbox_has_no_changes(journal: Journal) -> None:
    """Whoever runs a batch by itself pays for none."""
    await end(journal, await claimed(journal), 0)
    assert (0, []) == (await journal.last_change(), await told(journal, None))


async def test_outboxes_hear_of_their_own_orders(journal: Journal) -> None:
    """Of all runs that belong to one; who names none hears of all."""
    await end(journal, await in_outbox(journal, 1))
    await end(journal, await in_outbox(journal, 2, batch="file"), 1)
    await end(journal, await in_outbox(journal, 1, batch="other", outbox="other"))
    assert [(0, State.ACCEPTED), (1, State.ACCEPTED)] == await told(journal)
    assert ["shop", "shop", "other"] == [change.outbox for change in await journal.changes_after(None, 0)]


async def _notified(journal: Journal, chunk: Chunk) -> None:
    await journal.receive(
        delivery(), event(0, 0, request_id=chunk.orders[0].request_id, amount="1000.50"), owner="r", lease=0
    )


async def _many_at_once(journal: Journal, chunk: Chunk) -> None:
    first, second = [await permitted(journal, chunk, place) for place in range(2)]
    outcomes = [Outcome(permit=first, signal=Signal.ACCEPTED, transaction_id=transaction_id(0)), Outcome(
        permit=second, signal=Signal.REJECTED, code=7, message="no"
    )]  # fmt: skip
    third = [journal.permit(chunk, chunk.orders[place], after=outcomes[place - 2]) for place in (2, 3)]
    await asyncio.gather(*third)


async def _taken_over(journal: Journal, chunk: Chunk) -> None:
    await permitted(journal, chunk)
    await journal.release_chunk(chunk)


async def _not_sent(journal: Journal, chunk: Chunk) -> None:
    await end(journal, chunk, 0, Signal.NOT_SENT)


async def _written_off(journal: Journal, chunk: Chunk) -> None:
    await end(journal, chunk, 0, Signal.UNKNOWN)
    await journal.park(chunk.orders[0].request_id, detail="nowhere")
    await journal.send_again(chunk.orders[0].request_id, who="Ann", why="never arrived")


async def _known_though_never_sent(journal: Journal, chunk: Chunk) -> None:
    await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL)


async def _contradicted(journal: Journal, chunk: Chunk) -> None:
    await end(journal, chunk, 0, Signal.REJECTED)
    await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL)


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        (_notified, [(0, State.PARKED)]),
        (_many_at_once, [(0, State.ACCEPTED), (1, State.REJECTED)]),
        (_taken_over, [(0, State.UNKNOWN)]),
        (_not_sent, []),
        (_written_off, [(0, State.UNKNOWN), (0, State.PARKED)]),
        (_known_though_never_sent, [(0, State.SUCCESSFUL)]),
        (_contradicted, [(0, State.REJECTED)]),
    ],
)
async def test_whatever_moves_an_order_is_told(
    journal: Journal, happens: Callable[[Journal, Chunk], object], expected: list[tuple[int, State]]
) -> None:
    """By whichever way it came to stand where it does; being planned or under way, or contradicted, is no change."""
    chunk = await in_outbox(journal, 4)
    await happens(journal, chunk)  # type: ignore[misc]
    assert expected == await told(journal)


async def test_what_is_undone_was_never_told(opens: Opens) -> None:
    """A change and what it tells of are on disk together, or neither is."""

    def crash_at(point: str) -> None:
        if point == "apply_evidence.written":
            raise ValueError("a mistake of ours")

    async with opens(crash_at=crash_at) as journal:
        await in_outbox(journal, 2)
        with pytest.raises(ValueError, match="a mistake of ours"):
            await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL)
        entry = await journal.entry(order(0, batch=SHOP).request_id)
        assert entry is not None
        assert (State.PLANNED, []) == (entry.state, await told(journal))


async def test_a_change_waits_if_its_state_is_heard_of(journal: Journal) -> None:
    """Not what came before; not what nobody hears; whoever asks for one state gets none of another."""
    chunk = await in_outbox(journal)
    await end(journal, chunk, 0)
    assert () == tuple(await taken(journal))
    await journal.hear(SHOP, [State.ACCEPTED, State.REJECTED])
    await end(journal, chunk, 1)
    await end(journal, chunk, 2, Signal.REJECTED)
    await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL)
    assert (2, 0) == ((await journal.change_backlog(SHOP)).pending, (await journal.change_backlog("other")).pending)
    assert [State.REJECTED] == [change.state for change in await taken(journal, states=[State.REJECTED])]
    assert [State.ACCEPTED] == [change.state for change in await taken(journal)]
    assert () == tuple(await journal.claim_changes("other", TOLD, "worker", lease=90, limit=10))


async def test_looking_for_changes_that_are_due_writes_nothing(journal: Journal) -> None:
    """Every process with handlers looks each second: no other process is woken by that."""
    await journal.hear(SHOP, TOLD)
    await end(journal, await in_outbox(journal))
    assert 1 == len(await taken(journal))
    seen = await journal.committed(0, timeout=0)
    while seen != (seen := await journal.committed(seen, timeout=0.2)):
        pass
    assert () == tuple(await taken(journal, "another"))
    assert seen == await journal.committed(seen, timeout=0.2)


async def test_what_another_outbox_hears_of_waits_for_nobody_here(journal: Journal) -> None:
    """Each has handlers of its own."""
    await journal.hear("other", [State.ACCEPTED])
    await end(journal, await in_outbox(journal, 1))
    assert Backlog(pending=0, dead=0, oldest=None) == await journal.change_backlog()


async def test_what_an_outbox_hears_of_outlives_its_processes(opens: Opens) -> None:
    """A change that comes while no handler runs waits for one; so does one of a batch that is put later."""
    async with opens() as journal:
        await journal.hear(SHOP, [State.ACCEPTED])
        await journal.hear(SHOP, [State.REJECTED])
    async with opens() as journal:
        await end(journal, await in_outbox(journal, 1, batch="file"))
        assert [State.ACCEPTED] == [change.state for change in await taken(journal)]


async def test_what_nobody_hears_of_any_more_can_be_let_go(journal: Journal, clock: Clock) -> None:
    """It is shown since when nobody has asked for it; a process that asks is not deprived of what it hears of."""
    await journal.hear(SHOP, [State.ACCEPTED, State.SUCCESSFUL])
    chunk = await in_outbox(journal, 3)
    await end(journal, chunk, 0)
    await end(journal, chunk, 1)
    clock.pass_(200)
    assert 2 == len(await journal.claim_changes(SHOP, [State.ACCEPTED], "app", lease=1, limit=10))
    clock.pass_(200)
    accepted, successful = await journal.subscriptions(SHOP)
    assert (2, False) == (accepted.pending, accepted.is_orphaned(clock.now))
    assert (0, False) == (successful.pending, successful.is_orphaned(clock.now))
    with pytest.raises(ValueError, match="asked for it a moment ago"):
        await journal.forget_changes(SHOP, State.ACCEPTED, who="Ann", why="it was removed")
    clock.pass_(101)
    assert (await journal.subscriptions(SHOP))[0].is_orphaned(clock.now)
    assert 2 == await journal.forget_changes(SHOP, State.ACCEPTED, who="Ann", why="it was removed")
    await found(journal, 2, Signal.ACCEPTED)
    assert 0 == (await journal.change_backlog(SHOP)).pending
    assert [State.SUCCESSFUL] == [one.state for one in await journal.subscriptions(SHOP)]


@pytest.mark.parametrize("state", [State.PLANNED, State.SENDING])
async def test_nobody_hears_that_nothing_happened_yet(journal: Journal, state: State) -> None:
    """That an order is planned or under way is told to nobody, so nobody may wait for it."""
    with pytest.raises(ValueError, match="planned and sending"):
        await journal.hear(SHOP, [State.ACCEPTED, state])


async def test_a_claimed_change_brings_its_order_as_it_then_was(journal: Journal, clock: Clock) -> None:
    """Who hears that it was paid does not read that it is reversed by now; the rest is as it stands."""
    await journal.hear(SHOP, [State.SUCCESSFUL])
    await end(journal, await in_outbox(journal, 1))
    await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL)
    clock.pass_(5)
    await found(journal, 0, Signal.LOOKED_UP_REVERSED)
    (change,) = await taken(journal)
    entry = await journal.entry(order(0, batch=SHOP).request_id)
    assert change.entry is not None
    assert entry is not None
    assert (order(0, batch=SHOP), transaction_id(0), "shop") == (
        change.entry.order, change.entry.transaction_id, change.entry.batch_id,
    )  # fmt: skip
    assert (State.SUCCESSFUL, clock.now - 5, change.id) == (
        change.entry.state, change.entry.updated_at, change.entry.change_id,
    )  # fmt: skip
    assert (State.REVERSED, clock.now, None) == (entry.state, entry.updated_at, entry.change_id)


async def test_a_change_is_leased_to_one(journal: Journal, clock: Clock) -> None:
    """Oldest first, no more than asked for; to another once the lease has run out or was given back."""
    first, second, third = await waiting(journal)
    assert [first, second] == [change.id for change in await taken(journal, "a", limit=2)]
    assert [third] == [change.id for change in await taken(journal, "b")]
    assert () == tuple(await taken(journal, "c"))
    await journal.release_changes("a")
    assert [first, second] == [change.id for change in await taken(journal, "c")]
    clock.pass_(90)
    assert [first, second, third] == [change.id for change in await taken(journal, "d")]


async def test_a_finished_change_is_told_no_more(journal: Journal, clock: Clock) -> None:
    """However it ended; the end that was written first stands."""
    first, second, third = await waiting(journal)
    await taken(journal)
    await journal.finish_changes([first, second])
    await journal.finish_changes([third], "dead", error="no")
    await journal.finish_changes([third])
    await journal.finish_changes([])
    await journal.retry_change(first, delay=0, error="late")
    clock.pass_(1000)
    assert () == tuple(await taken(journal))
    assert Backlog(pending=0, dead=1, oldest=None) == await journal.change_backlog()
    assert [(third, "no")] == [(change.id, change.error) async for change in journal.dead_changes()]


async def test_a_change_ends_well_or_as_a_dead_letter(journal: Journal) -> None:
    """There is no third way."""
    with pytest.raises(ValueError, match="dead, handled"):
        await journal.finish_changes([1], "pending")


async def test_the_oldest_are_claimed_first_whatever_their_state(journal: Journal) -> None:
    """No more than asked for, though each of several states has as many."""
    await journal.hear(SHOP, TOLD)
    chunk = await in_outbox(journal, 4)
    for place, signal in enumerate((Signal.REJECTED, Signal.ACCEPTED, Signal.REJECTED, Signal.ACCEPTED)):
        await end(journal, chunk, place, signal)
    first, second, third, fourth = [change.id for change in await journal.changes_after(SHOP, 0)]
    assert [first, second] == [change.id for change in await taken(journal, limit=2)]
    assert [third, fourth] == [change.id for change in await taken(journal, limit=2)]


async def test_a_failed_change_comes_again_behind_the_fresh_ones(journal: Journal, clock: Clock) -> None:
    """After its wait, with its tries, its error and who has finished; it holds up nothing that never failed."""
    first, second, third = await waiting(journal)
    await taken(journal, limit=1)
    await journal.note_change_done(first, "mail")
    await journal.note_change_done(first, "books")
    await journal.retry_change(first, delay=5, error="away")
    assert [second] == [change.id for change in await taken(journal, limit=1)]
    clock.pass_(5)
    assert [third] == [change.id for change in await taken(journal, limit=1)]
    (again,) = await taken(journal)
    assert (first, 1, "away", {"mail", "books"}) == (again.id, again.tries, again.error, again.done)


async def test_dead_letters_are_revived(journal: Journal) -> None:
    """One of them, or all; those that never died are left alone. Who had finished has finished."""
    first, second, third = await waiting(journal)
    await taken(journal)
    await journal.note_change_done(first, "mail")
    await journal.finish_changes([first, second], "dead", error="no")
    assert (0, 0, 1) == tuple([await journal.revive_changes(one) for one in (third, 10**30, second)])
    assert [second] == [change.id for change in await taken(journal)]
    assert 1 == await journal.revive_changes()
    (again,) = await taken(journal)
    assert (first, 0, {"mail"}) == (again.id, again.tries, again.done)


async def test_the_backlog_tells_since_when_somebody_waits(journal: Journal, clock: Clock) -> None:
    """Leased ones and retries included."""
    begun = clock.now
    first, *_ = await waiting(journal)
    clock.pass_(7)
    await taken(journal, limit=2)
    await journal.retry_change(first, delay=100, error="no")
    failed = Backlog(pending=3, dead=0, oldest=begun, failing=1, failing_since=begun, failure="no")
    assert failed == await journal.change_backlog(SHOP)


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("home", ["sqlite"], indirect=True)  # the statements are the same in a database
async def test_old_changes_that_wait_for_nobody_are_forgotten(journal: Journal, clock: Clock) -> None:
    """Those that wait, dead letters and what is young stay, and no id is given again."""
    chunk = await in_outbox(journal, 1003)
    await asyncio.gather(*(end(journal, chunk, place) for place in range(500)))
    await journal.release_chunk(chunk)
    await journal.hear(SHOP, [State.SUCCESSFUL])
    for number in range(3):
        await found(journal, number, Signal.LOOKED_UP_SUCCESSFUL)
    waits, dead, done = await taken(journal)
    await journal.finish_changes([dead.id], "dead", error="no")
    await journal.finish_changes([done.id])
    clock.pass_(100)
    assert 0 == await journal.prune_changes(older_than=200)
    await found(journal, 3, Signal.LOOKED_UP_FAILED)
    newest = await journal.last_change()
    clock.pass_(1000)
    assert 501 == await journal.prune_changes(older_than=1050)
    assert [waits.id, dead.id, newest] == [change.id for change in await journal.changes_after(None, 0)]
    assert 0 == await journal.prune_changes(older_than=1)
    await found(journal, 4, Signal.LOOKED_UP_FAILED)
    assert newest < await journal.last_change()


async def test_only_what_is_old_is_forgotten(journal: Journal, clock: Clock) -> None:
    """Of changes that were written one after the other."""
    await in_outbox(journal, 3)
    for number in range(3):
        await found(journal, number, Signal.LOOKED_UP_FAILED)
        clock.pass_(10)
    assert 1 == await journal.prune_changes(older_than=25)
    assert [1, 2] == [number for number, _ in await told(journal)]


@pytest.mark.parametrize("older_than", [0, -1.0, float("nan")])
async def test_no_change_is_forgotten_by_mistake(journal: Journal, older_than: float) -> None:
    """All of them, or what has not come yet, is no age."""
    with pytest.raises(ValueError, match="older_than"):
        await journal.prune_changes(older_than=older_than)


async def test_a_run_belongs_to_the_outbox_it_began_with(journal: Journal) -> None:
    """A batch that was stopped by its fuse is not taken up by an outbox because somebody names it."""
    await journal.open_run(SHOP, IDENTITY)
    await journal.open_run(SHOP, IDENTITY, outbox=SHOP)
    await journal.load(SHOP, orders(1, batch=SHOP), owner="loader")
    await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL)
    assert [] == await told(journal, None)


@pytest.mark.parametrize("stray", ["UPDATE run SET {outbox}", "INSERT INTO run SELECT * FROM copy"])
async def test_no_run_belongs_to_an_outbox_whose_changes_are_not_written(tmp_path: Path, stray: str) -> None:
    """A journal that never had an outbox writes no changes; whoever makes one in another way is refused."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path, state_folder=None) as journal:
        await journal.open_run("file", IDENTITY)
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TEMP TABLE copy AS SELECT * FROM run")
        file.execute("UPDATE copy SET id = 2, batch_id = 'other', outbox = 'shop'")
        with pytest.raises(sqlite3.IntegrityError, match="not be written down"):
            file.execute(stray.format(outbox="outbox = 'shop'"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE outbox SET amount = '7' WHERE request_id = 'shop-000001'", "is not what was loaded"),
        ("DELETE FROM outbox WHERE request_id = 'shop-000001'", "not in the journal any more"),
        ("UPDATE delivery SET done = '{' WHERE about = (SELECT id FROM change LIMIT 1 OFFSET 1)", "cannot be read"),
    ],
)
async def test_a_change_that_cannot_be_told_is_a_dead_letter(tmp_path: Path, damage: str, words: str) -> None:
    """It holds up none of the others."""
    path = tmp_path / "journal.db"
    async with SqliteJournal(path, state_folder=None) as journal:
        first, second, third = await waiting(journal)
        with closing(sqlite3.connect(path)) as file:
            file.execute(damage)
            file.commit()
        assert [first, third] == [change.id for change in await taken(journal)]
        (dead,) = [change async for change in journal.dead_changes()]
        assert (second, True) == (dead.id, words in (dead.error or "")), dead
        assert 1 == (await journal.change_backlog(SHOP)).dead
