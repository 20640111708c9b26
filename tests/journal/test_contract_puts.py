"""What every journal promises of single orders: one row for each request id, in the hands of one worker at a time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from journal.conftest import Home, Opens
from journal.factories import BATCH, IDENTITY, Clock, delivery, event, missed, order, orders, swept, transaction_id

from payments_async.journal import (
    HeldElsewhere,
    Journal,
    LeaseLost,
    LoadBusy,
    OrdersDiffer,
    RunUnknown,
    Signal,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
    WrongAccount,
)
from payments_async.journal._records import Placed, RunIdentity, ended
from payments_async.journal.contract import (
    Arrival,
    Chunk,
    ClaimedOrder,
    Doubt,
    Evidence,
    NotPermitted,
    Outcome,
    Permit,
)

SHOP = "shop"
NOW = 1_000_000.0  # what the clock of a test says at first


@pytest.fixture
async def shop(journal: Journal) -> Journal:
    """A journal with an outbox."""
    await journal.open_outbox(SHOP, IDENTITY)
    return journal


async def put(journal: Journal, number: int = 1, *, owner: str | None = "worker", **how: Any) -> Placed:
    """Put the order of that number."""
    return await journal.put(SHOP, order(number), owner=owner, **how)


async def many(journal: Journal, numbers: range, *, owner: str | None = "worker") -> list[Placed]:
    """Put many orders in one commit."""
    return list(await asyncio.gather(*(put(journal, number, owner=owner) for number in numbers)))


async def claim(journal: Journal, owner: str = "another") -> list[str] | None:
    """What somebody else is given to do."""
    chunk = await journal.claim_chunk(SHOP, owner)
    return None if chunk is None else [claimed.request_id for claimed in chunk.orders]


async def send(journal: Journal, placed: Placed, signal: Signal = Signal.ACCEPTED) -> None:
    """Send what was put, with this end."""
    permit = await journal.permit(*held(placed))
    assert isinstance(permit, Permit), permit
    await journal.record(Outcome(permit=permit, signal=signal, transaction_id=transaction_id()))


def held(placed: Placed) -> tuple[Chunk, ClaimedOrder]:
    """What a worker has in hand."""
    assert placed.chunk is not None
    assert placed.claimed is not None
    return placed.chunk, placed.claimed


async def counted(journal: Journal) -> dict[str, int]:
    """How many orders the outbox has in which state."""
    progress = await journal.progress(outbox=SHOP)
    return {state.value: count for state, count in progress.counts.items() if count}


# The outbox


async def test_an_outbox_that_is_there_is_found_again(shop: Journal) -> None:
    """It is ready, holds nothing, and belongs to itself."""
    run = await shop.open_outbox(SHOP, IDENTITY)
    assert (True, 0, SHOP, SHOP) == (run.ready, run.total, run.outbox, run.batch_id)
    assert 1 == len(await shop.runs())


async def test_an_outbox_of_the_name_of_a_batch(journal: Journal) -> None:
    """Is refused, whether the batch is loaded, half loaded, or of another outbox."""
    await journal.open_run("loading", IDENTITY)
    await journal.open_run("loaded", IDENTITY)
    await journal.load("loaded", orders(2), owner="loader")
    await journal.open_outbox(SHOP, IDENTITY)
    await journal.open_run("put", IDENTITY, outbox=SHOP)
    for name in ("loading", "loaded", "put"):
        with pytest.raises(OrdersDiffer, match="give the outbox another name"):
            await journal.open_outbox(name, IDENTITY)
    assert not (await journal.run("loading")).ready


async def test_an_outbox_of_another_account(shop: Journal) -> None:
    """Is refused: the list of one account shows none of the orders of the other."""
    another = RunIdentity(base_address=IDENTITY.base_address, key_fingerprint="f" * 16, user_id="8")
    with pytest.raises(WrongAccount):
        await shop.open_outbox("another", another)


async def test_a_put_into_an_outbox_that_is_not_there(journal: Journal) -> None:
    """Is refused, and leaves nothing behind."""
    with pytest.raises(RunUnknown):
        await put(journal)
    assert await journal.entry(order().request_id) is None


# Once for each request id


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("3f2504e0-4f89", "3F2504E0-4F89"),
        ("3F2504E0-4F89", "3f2504e0-4f89"),
        ("3f2504E0-4F89", "3F2504e0-4f89"),
        ("3f2504E0-4F89", "3f2504e0-4f89"),
        ("3f2504e0-4f89", "3f2504E0-4F89"),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
async def test_the_same_payment_whose_id_is_written_in_other_letters(
    shop: Journal, first: str, again: str, at_once: bool
) -> None:
    """One part of an application writes a GUID in small letters and another in capitals: it is not paid twice."""
    two = [attrs.evolve(order(), request_id=request_id) for request_id in (first, again)]
    puts = (shop.put(SHOP, one, owner="worker") for one in two)
    if at_once:
        done = await asyncio.gather(*puts, return_exceptions=True)
    else:
        done = [(await asyncio.gather(one, return_exceptions=True))[0] for one in puts]
    assert isinstance(done[0], Placed)
    assert isinstance(done[1], OrdersDiffer)
    assert f"request id {again} differs from {first}" in done[1].message
    assert {"planned": 1} == await counted(shop)
    assert not (await shop.put(SHOP, two[0], owner="worker")).is_new


async def test_an_order_that_is_put_again_is_the_same(shop: Journal) -> None:
    """By anybody, with another moment or priority, whatever became of it: one row, and only the first has to send."""
    first = await put(shop)
    again = await put(shop, owner="another", priority=3, not_before=NOW + 900)
    assert (True, False) == (first.is_new, again.is_new)
    assert (None, None, first.entry) == (again.chunk, again.claimed, again.entry)
    await send(shop, first)
    assert State.ACCEPTED is (await put(shop, owner=None)).entry.state
    assert {"accepted": 1} == await counted(shop)


async def test_an_order_that_the_session_has_sent_since_it_was_put(shop: Journal) -> None:
    """It is written down as sent when it is put again, and no worker sends it."""
    await put(shop, owner=None)
    one = order(1)
    about = {"source": "session", "request_id": one.request_id, "transaction_id": transaction_id()}
    sent = Evidence(signal=Signal.ACCEPTED, **about)
    placed = await put(shop, owner=None, sent=sent)
    assert (False, State.ACCEPTED, 1) == (placed.is_new, placed.entry.state, placed.entry.attempt)
    assert await shop.claim_chunk(SHOP, "worker") is None
    assert State.ACCEPTED == (await put(shop, sent=sent)).entry.state  # once more


async def test_the_same_order_many_times_in_one_commit(shop: Journal) -> None:
    """One of them is new."""
    placed = await asyncio.gather(*(put(shop, owner=owner) for owner in ("a", "b", None) * 10))
    assert [True] + 29 * [False] == [one.is_new for one in placed]
    assert {"planned": 1} == await counted(shop)


async def test_another_order_under_the_same_id(shop: Journal) -> None:
    """Is refused, and the first one stands; also within one commit, where its neighbours are taken."""
    puts = [shop.put(SHOP, one, owner="worker") for one in (order(1), order(1, "7.00"), order(3))]
    mine, others, third = await asyncio.gather(*puts, return_exceptions=True)
    assert isinstance(mine, Placed)
    assert isinstance(others, OrdersDiffer)
    assert isinstance(third, Placed)
    with pytest.raises(OrdersDiffer, match="two different orders"):
        await shop.put(SHOP, order(1, "7.00"), owner="another")
    assert Decimal("1001.50") == (await put(shop)).entry.amount
    assert {"planned": 2} == await counted(shop)


async def test_the_same_amount_in_other_digits(shop: Journal) -> None:
    """Is another order, as a column of two decimals makes it; it says so, and sends nobody to another request id."""
    await put(shop)
    with pytest.raises(
        OrdersDiffer, match=r"amounts 1001\.50 and 1001\.500: the same number in other digits"
    ) as refused:
        await shop.put(SHOP, order(1, "1001.500"), owner="another")
    assert "if it is the same payment, put it as it was put first" in str(refused.value)


async def test_an_order_of_a_batch_that_is_put(shop: Journal) -> None:
    """Stays that of the batch."""
    await shop.open_run(BATCH, IDENTITY)
    await shop.load(BATCH, orders(3), owner="loader")
    placed = await put(shop, 1)
    assert (BATCH, False, None) == (placed.entry.batch_id, placed.is_new, placed.claimed)
    assert {} == await counted(shop)


async def test_a_batch_with_an_order_that_was_put(shop: Journal) -> None:
    """Is refused whole."""
    await put(shop, 1)
    await shop.open_run(BATCH, IDENTITY)
    with pytest.raises(OrdersDiffer, match="belongs to batch shop already"):
        await shop.load(BATCH, orders(3), owner="loader")


async def test_an_order_of_a_batch_that_is_half_loaded(shop: Journal) -> None:
    """Is refused until that is finished: loading the batch again without it would drop what was promised."""

    async def broken() -> AsyncIterator[Any]:
        for one in orders(1500):
            yield one
        raise ConnectionResetError

    await shop.open_run(BATCH, IDENTITY)
    with pytest.raises(ConnectionResetError):
        await shop.load(BATCH, broken(), owner="loader")
    with pytest.raises(LoadBusy, match="one of batch payroll"):
        await put(shop, 1)
    await shop.load(BATCH, [order(7)], owner="loader")
    assert (await put(shop, 1)).is_new
    assert not (await put(shop, 7)).is_new


# In whose hands


async def test_orders_of_one_worker_lie_in_one_chunk(shop: Journal) -> None:
    """Nobody else claims it as long as its lease is good; a process that does not work puts into another one."""
    placed = await many(shop, range(5))
    chunk = placed[0].chunk
    assert chunk is not None
    assert {chunk} == {one.chunk for one in placed}
    assert await claim(shop) is None
    loose = await put(shop, 9, owner=None)
    assert (None, None) == (loose.chunk, loose.claimed)
    assert [order(9).request_id] == await claim(shop)
    assert isinstance(await shop.permit(chunk, held(placed[0])[1]), Permit)


@pytest.mark.parametrize("many_at_once", [True, False])
async def test_a_chunk_that_is_full(shop: Journal, many_at_once: bool) -> None:
    """Is followed by another one; every order is in the chunk that its number says."""
    if many_at_once:
        placed = await many(shop, range(1001))
    else:
        placed = await many(shop, range(499))
        for number in range(499, 502):
            placed.append(await put(shop, number, chunk=placed[-1].chunk))
    numbers = [one.chunk.number for one in placed if one.chunk is not None]
    assert [place // 500 for place in range(len(placed))] == numbers
    assert [number * 500 for number in sorted(set(numbers))] == [
        min(one.claimed.id & 0xFFFFFFF for one in placed if one.claimed and one.chunk and one.chunk.number == number)
        for number in sorted(set(numbers))
    ]
    for one in (placed[0], placed[499], placed[500], placed[-1]):
        await send(shop, one)


async def test_two_commits_of_a_worker_without_a_chunk(shop: Journal) -> None:
    """The second does not know of the chunk of the first: each has a lease of its own, and both may send."""
    first, second = await put(shop, 1), await put(shop, 2)
    assert (0, 1) == (first.chunk and first.chunk.number, second.chunk and second.chunk.number)
    await send(shop, first)
    await send(shop, second)


async def test_a_chunk_that_was_lost_while_a_put_was_on_its_way(shop: Journal, clock: Clock) -> None:
    """The order is put into another chunk, which is leased for it; what was lost is the other's."""
    first = await put(shop, 1)
    clock.pass_(31)
    assert [order(1).request_id] == await claim(shop)
    second = await put(shop, 2, chunk=first.chunk)
    assert second.chunk is not None
    assert (1, True) == (second.chunk.number, second.is_new)
    assert isinstance(await shop.permit(*held(first)), NotPermitted)
    await send(shop, second)


async def test_a_put_after_the_lease_ran_out(shop: Journal, clock: Clock) -> None:
    """It is taken, nothing is permitted, and whoever claims the chunk has all of it: a process that was stopped."""
    first = await put(shop, 1)
    clock.pass_(31)
    second = await put(shop, 2, chunk=first.chunk)
    assert second.chunk == first.chunk
    refused = await shop.permit(held(first)[0], held(second)[1])
    assert isinstance(refused, NotPermitted)
    assert refused.lease_lost
    assert [order(1).request_id, order(2).request_id] == await claim(shop)


async def test_what_was_under_way_is_never_planned_again(shop: Journal, clock: Clock) -> None:
    """Whoever takes the chunk of a dead worker over finds it unknown, and sends the others."""
    first, second = await put(shop, 1), await put(shop, 2)
    await shop.permit(*held(first))
    clock.pass_(31)
    assert [order(2).request_id] == await claim(shop)
    assert second.is_new
    assert State.UNKNOWN is (await put(shop, 1)).entry.state


async def test_a_chunk_that_was_given_back_is_filled_again(shop: Journal) -> None:
    """So that chunks do not grow in number; what was left in it comes along."""
    first = await put(shop, 1)
    await shop.release_chunk(held(first)[0])
    second = await put(shop, 2, owner="another")
    assert second.chunk is not None
    assert (0, [order(1).request_id, order(2).request_id]) == (
        second.chunk.number,
        [claimed.request_id for claimed in (*second.chunk.orders, held(second)[1])],
    )
    with pytest.raises(LeaseLost):
        await shop.renew_chunk(held(first)[0])


async def test_a_cancelled_put_is_on_disk(shop: Journal) -> None:
    """Who hangs up does not undo what was promised to nobody yet: it is sent all the same."""
    putting = asyncio.ensure_future(put(shop, owner=None))
    await asyncio.sleep(0)
    putting.cancel()
    await put(shop, 2, owner=None)
    assert [order(1).request_id, order(2).request_id] == await claim(shop)


# Permitted at once


async def test_an_order_that_is_permitted_as_it_is_put(shop: Journal) -> None:
    """Is on disk as being sent, once: whoever puts it again has no right to send it, and its chunk is nobody else's."""
    first, again = await asyncio.gather(put(shop, permits=True), put(shop, permits=True))
    assert first.permit is not None
    assert (State.SENDING, 1, None) == (first.entry.state, first.permit.attempt, again.permit)
    assert first.entry == await shop.entry(order().request_id)
    assert isinstance(await shop.permit(*held(first)), NotPermitted)
    await shop.record(Outcome(permit=first.permit, signal=Signal.ACCEPTED, transaction_id=transaction_id()))
    assert {"accepted": 1} == await counted(shop)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("permits", [False, True])
@pytest.mark.parametrize(
    ("signal", "about"),
    [
        (Signal.ACCEPTED, {"transaction_id": transaction_id().upper()}),
        (Signal.ACCEPTED, {"transaction_id": "not a UUID"}),
        (Signal.REJECTED, {"code": 4711, "message": "no such wallet"}),
        (Signal.UNKNOWN, {"message": "broken off"}),
    ],
)
async def test_the_end_of_a_put_that_nothing_else_is_known_of(
    shop: Journal, clock: Clock, signal: Signal, about: dict[str, Any], permits: bool, beside: bool
) -> None:
    """Whoever wrote it down knows the entry, word for word, without reading it; alone, or beside a permit."""
    placed, other = await put(shop, 1, permits=permits), await put(shop, 2)
    clock.pass_(1)
    permit = placed.permit or await shop.permit(*held(placed))
    assert isinstance(permit, Permit)
    clock.pass_(1)
    outcome = Outcome(permit=permit, signal=signal, **about)
    if beside:
        following = await shop.permit(*held(other), after=outcome)
        assert isinstance(following, Permit)
        at = following.after_ended_at
    else:
        at = (await shop.record(outcome)).ended_at
    assert NOW + 2 == at
    assert await shop.entry(order(1).request_id) == ended(placed.entry, outcome, at)


@pytest.mark.parametrize("beside", [False, True])
async def test_the_end_of_a_put_that_more_is_known_of(shop: Journal, beside: bool) -> None:
    """Has to be read: a notification waits to be confirmed, or contradicts, or has told the end before."""
    await put(shop, 9)
    doubted, contradicted, settled = [await put(shop, number, permits=True) for number in (1, 2, 3)]
    unconfirmed = Arrival(delivery=delivery(), event=event(0, 1), lease=90, doubt=Doubt.UNCONFIRMED)
    for placed, tell in (
        (contradicted, lambda: shop.receive(delivery(), event(0, 2, amount="7"), owner="receiver", lease=90)),
        (settled, lambda: shop.receive(delivery(), event(0, 3), owner="receiver", lease=90)),
        (doubted, lambda: shop.receive_all([unconfirmed], owner="receiver")),
    ):
        await tell()
        assert placed.permit is not None
        outcome = Outcome(permit=placed.permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(placed.permit.id))
        if beside:
            following = await shop.permit(*held(await put(shop, 10 + placed.permit.id)), after=outcome)
            assert isinstance(following, Permit)
            assert following.after_ended_at is None
        else:
            assert (await shop.record(outcome)).ended_at is None


async def test_an_order_that_was_permitted_as_it_was_put_by_a_dead_process(shop: Journal, clock: Clock) -> None:
    """Is unknown, as any other that was permitted: it may have been sent."""
    await put(shop, 1, permits=True)
    second = await put(shop, 2)
    clock.pass_(31)
    await shop.expire_chunks()
    assert second.is_new
    assert {"unknown": 1, "planned": 1} == await counted(shop)


async def test_what_is_put_into_a_journal_that_was_copied_is_not_permitted(home: Home, clock: Clock) -> None:
    """It may have been sent before: until two lists have missed it, whoever puts it holds no chunk and no permit."""
    async with home.opens(clock=clock) as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        await put(journal, 0)
    async with home.copied()(clock=clock) as copy:
        await copy.open_outbox(SHOP, IDENTITY)
        early = await put(copy, 1, permits=True)
        assert (State.PLANNED, None, None) == (early.entry.state, early.chunk, early.permit)
        await missed(copy, SHOP)
        late = await put(copy, 2, permits=True)
        assert State.SENDING is late.entry.state


async def test_a_copied_outbox_is_looked_for_from_the_first_order_that_is_open(home: Home, clock: Clock) -> None:
    """What has ended before that is known: its lists need not be read again."""
    async with home.opens(clock=clock) as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        await swept(journal, batch=SHOP)
        await send(journal, await put(journal, 0), Signal.REJECTED)
        clock.pass_(30 * 86_400.0)
        await put(journal, 1)
        since = clock.now
        clock.pass_(1.0)
    async with home.copied()(clock=clock) as copy:
        assert since == (await copy.run(SHOP)).look_since


async def test_orders_that_are_not_permitted_as_they_are_put(shop: Journal, clock: Clock) -> None:
    """Those that are due later, that something was heard of, that anybody may send, or whose lease has run out."""
    await shop.note_observed([sighting(3, amount="1003.50")])
    soon, later, seen, loose = (
        await put(shop, 1, permits=True, not_before=NOW + 5),
        await put(shop, 2, permits=True, not_before=NOW + 500),
        await put(shop, 3, permits=True),
        await put(shop, 4, permits=True, owner=None),
    )
    clock.pass_(31)
    late = await put(shop, 5, permits=True, chunk=held(soon)[0])
    assert [None] * 5 == [one.permit for one in (soon, later, seen, loose, late)]
    assert {"planned": 4, "successful": 1} == await counted(shop)


# When


async def test_an_order_that_is_due_later(shop: Journal, clock: Clock) -> None:
    """Is in nobody's hands until then; one that is due within a minute is."""
    soon, later = await put(shop, 1, not_before=NOW + 50), await put(shop, 2, not_before=NOW + 100)
    assert (True, False) == (soon.claimed is not None, later.claimed is not None)
    (waiting,) = await shop.waiting(SHOP)
    assert (0, 1, NOW + 100) == (waiting.free, waiting.leased, waiting.due_at)
    assert await claim(shop) is None
    clock.pass_(100)
    await shop.renew_chunk(held(soon)[0])
    assert [order(2).request_id] == await claim(shop)


async def test_a_chunk_is_due_when_the_first_of_its_orders_is(shop: Journal, clock: Clock) -> None:
    """And when that is done, with the next."""
    for number, seconds in ((1, 300), (2, 100), (3, 200)):
        await put(shop, number, not_before=NOW + seconds)
    due = []
    while (chunk := await shop.claim_chunk(SHOP, "another")) is not None or clock.now < NOW + 400:
        if chunk is None:
            clock.pass_(10)
            continue
        ready = [claimed for claimed in chunk.orders if claimed.not_before <= clock.now]
        due += [(claimed.request_id, clock.now - NOW) for claimed in ready]
        for claimed in ready:
            permit = await shop.permit(chunk, claimed)
            assert isinstance(permit, Permit)
            await shop.record(Outcome(permit=permit, signal=Signal.ACCEPTED))
        await shop.release_chunk(chunk)
    assert [(order(2).request_id, 100.0), (order(3).request_id, 200.0), (order(1).request_id, 300.0)] == due


async def test_a_clock_that_is_set_back(shop: Journal, clock: Clock) -> None:
    """A chunk whose orders are due in an hour by then is no work for anybody meanwhile, and hides no other one."""
    soon = await put(shop, 1, not_before=NOW + 30)
    clock.pass_(-3600)
    await shop.release_chunk(held(soon)[0])
    await put(shop, 2, owner=None)
    (waiting,) = await shop.waiting(SHOP)
    assert (1, NOW + 30) == (waiting.free, waiting.due_at)
    assert [order(2).request_id] == await claim(shop)
    assert await claim(shop) is None
    clock.pass_(3631)
    await shop.expire_chunks()
    assert {order(1).request_id, order(2).request_id} == {one for _ in range(2) for one in await claim(shop) or ()}


async def test_a_lease_that_is_from_the_future(shop: Journal, clock: Clock) -> None:
    """A clock that was set back does not leave the orders of a dead worker alone for an hour: only for their lease."""
    await put(shop, 1)
    clock.pass_(-3600)
    assert await claim(shop) is None
    clock.pass_(31)
    assert [order(1).request_id] == await claim(shop)


async def test_an_urgent_order_that_anybody_may_send(shop: Journal) -> None:
    """Has its chunk claimed first."""
    await many(shop, range(500), owner=None)
    await put(shop, 600, owner=None, priority=5)
    assert 5 == (await shop.waiting(SHOP))[0].priority
    assert [order(600).request_id] == await claim(shop)


# What was heard before it was put


async def test_a_notification_that_came_first(shop: Journal) -> None:
    """Somebody sent it: it is parked, and not sent."""
    await shop.receive(delivery(), event(0, 1), owner="receiver", lease=0)
    placed = await put(shop)
    assert (State.PARKED, None) == (placed.entry.state, placed.claimed)
    assert await claim(shop) is None
    assert {"parked": 1} == await counted(shop)


def sighting(number: int = 1, *, amount: str | None = "1001.50", request_id: str | None = None) -> Evidence:
    """What a list shows of the order of that number."""
    return Evidence(
        source="list",
        request_id=request_id or order(number).request_id,
        transaction_id=transaction_id(number),
        signal=Signal.LOOKED_UP_SUCCESSFUL,
        amount=None if amount is None else Decimal(amount),
        currency="UGX",
    )


@pytest.mark.parametrize("first", ["the list", "the order"])
@pytest.mark.parametrize("way", [str.lower, str.upper])
async def test_an_order_that_a_list_has_shown(shop: Journal, first: str, way: Any) -> None:
    """Is not sent, in whichever letters it was listed, and whichever of both came first by a moment."""
    seen = sighting(request_id=way(order().request_id))
    if first == "the list":
        await shop.note_observed([sighting(2), seen])
        placed = await put(shop, owner=None)
        assert placed.claimed is None
    else:
        await put(shop, owner=None)
        await shop.note_observed([sighting(2), seen])
    entry = await shop.entry(order().request_id)
    assert entry is not None
    assert (State.SUCCESSFUL, transaction_id(), True) == (entry.state, entry.transaction_id, entry.conflict is not None)
    assert await claim(shop) is None
    assert {"successful": 1} == await counted(shop)


async def test_an_order_of_which_a_list_shows_another_amount(shop: Journal) -> None:
    """Is parked: a person decides."""
    await shop.note_observed([sighting(amount="7.00")])
    assert State.PARKED is (await put(shop)).entry.state


async def test_an_order_that_is_under_way_while_a_list_is_noted(shop: Journal) -> None:
    """Its own answer says what became of it."""
    placed = await put(shop)
    permit = await shop.permit(*held(placed))
    assert isinstance(permit, Permit)
    await shop.note_observed([sighting()])
    await shop.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id()))
    entry = await shop.entry(order().request_id)
    assert entry is not None
    assert (State.ACCEPTED, None) == (entry.state, entry.conflict)


# Pause, days


async def test_a_pause(shop: Journal, clock: Clock) -> None:
    """The first reason stands, orders are put all the same, and only a person ends it, once."""
    await shop.pause(SHOP, who="fuse", why="too many unknown")
    await shop.pause(SHOP, who="Ann", why="lunch")
    paused = await shop.paused(SHOP)
    assert paused is not None
    assert (NOW, "fuse", "too many unknown") == (paused.at, paused.who, paused.why)
    assert (await put(shop)).is_new
    assert await shop.resume(SHOP, who="Ann", why="looked at")
    assert await shop.paused(SHOP) is None
    assert not await shop.resume(SHOP, who="Ann", why="looked at")
    for nobody in (("", "why"), ("Ann", " ")):
        with pytest.raises(ValueError, match=r"who|why"):
            await shop.pause(SHOP, who=nobody[0], why=nobody[1])
        with pytest.raises(ValueError, match=r"who|why"):
            await shop.resume(SHOP, who=nobody[0], why=nobody[1])
    assert ["fuse", "Ann"] == [one.by for one in await shop.decisions(SHOP)]


async def test_a_pause_of_what_is_no_outbox(shop: Journal) -> None:
    """A batch is stopped by whoever runs it."""
    await shop.open_run(BATCH, IDENTITY)
    with pytest.raises(RunUnknown):
        await shop.pause(BATCH, who="Ann", why="lunch")


async def test_a_day_begins_once(shop: Journal) -> None:
    """With what had been spent by whoever saw it first; a person who resumes lets it begin anew."""
    assert Decimal(5) == await shop.begin_day(SHOP, "2026-11-22", Decimal(5))
    assert Decimal(5) == await shop.begin_day(SHOP, "2026-11-22", Decimal(900))
    assert Decimal(900) == await shop.begin_day(SHOP, "2026-11-23", Decimal(900))
    await shop.pause(SHOP, who="fuse", why="spent")
    await shop.resume(SHOP, who="Ann", why="it is payday")
    assert Decimal(950) == await shop.begin_day(SHOP, "2026-11-23", Decimal(950))


async def test_a_clock_that_is_set_back_a_day(shop: Journal) -> None:
    """Gives nobody a second day's money."""
    await shop.begin_day(SHOP, "2026-11-23", Decimal(5))
    assert Decimal(5) == await shop.begin_day(SHOP, "2026-11-22", Decimal(900))
    assert Decimal(5) == await shop.begin_day(SHOP, "2026-11-23", Decimal(1800))


# Progress, news


async def test_progress_of_one_outbox(shop: Journal) -> None:
    """Its single orders and its batches, and nothing of another's."""
    await shop.open_outbox("other", IDENTITY)
    await put(shop, 1)
    await shop.put("other", order(2))
    await shop.open_run("bonus", IDENTITY, outbox=SHOP)
    await shop.load("bonus", orders(3, batch="bonus"), owner="loader")
    await shop.open_run(BATCH, IDENTITY)
    await shop.load(BATCH, [order(5)], owner="loader")
    assert {"planned": 4} == await counted(shop)
    assert Decimal("1001.50") + 3 * Decimal("1001.50") == (await shop.progress(outbox=SHOP)).sums[State.PLANNED]
    assert 6 == (await shop.progress()).total
    assert ["bonus", SHOP] == sorted(run.batch_id for run in await shop.waiting(SHOP))


async def test_who_waits_hears_of_a_commit(opens: Opens, shop: Journal) -> None:
    """Of one's own at once, of another's soon, and of each once; nothing written is told after the time."""
    seen = await shop.committed(0, timeout=0)
    assert seen == await shop.committed(seen, timeout=0)
    waiting = asyncio.ensure_future(shop.committed(seen, timeout=60))
    await put(shop, 1)
    seen = await asyncio.wait_for(waiting, 60)
    seen = await shop.committed(seen, timeout=0)
    async with opens() as other:
        await other.open_outbox(SHOP, IDENTITY)
        seen = await shop.committed(seen, timeout=0)
        waiting = asyncio.ensure_future(shop.committed(seen, timeout=60))
        await other.put(SHOP, order(2))
        assert seen != await asyncio.wait_for(waiting, 60)


async def test_who_waits_for_states_hears_of_no_own_put_and_permit(
    shop: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an own outcome at once, where its state is one of them, and of what else the journal does; of each once."""
    monkeypatch.setattr("payments_async.journal._sqlite._journal._HELD_UP", 60.0)
    seen = await heard_of_all(shop)
    waiting = asyncio.ensure_future(shop.committed(seen, timeout=60, wanted={State.ACCEPTED, State.REJECTED}.copy))
    placed = await put(shop, 1, permits=True)
    other = await put(shop, 2)
    permit = await shop.permit(*held(other))
    assert isinstance(permit, Permit)
    await shop.record(Outcome(permit=permit, signal=Signal.UNKNOWN))
    seen = await heard_of_all(shop)
    assert placed.permit is not None
    await shop.record(Outcome(permit=placed.permit, signal=Signal.ACCEPTED, transaction_id=transaction_id()))
    assert seen < await asyncio.wait_for(waiting, 60) == await shop.committed(seen, timeout=60)
    seen = await heard_of_all(shop)
    waiting = asyncio.ensure_future(shop.committed(seen, timeout=60, wanted=frozenset))
    await shop.pause(SHOP, who="A. Clerk", why="lunch")
    assert seen < await asyncio.wait_for(waiting, 60)


async def test_another_journal_commits_between_two_own_commits(opens: Opens, shop: Journal) -> None:
    """Whoever waits hears of it, though all that this journal has done meanwhile is not told."""
    async with opens() as other:
        await other.open_outbox(SHOP, IDENTITY)
        for number in (1, 4):
            seen = await heard_of_all(shop)
            await put(shop, number)
            await other.put(SHOP, order(number + 1))
            await put(shop, number + 2)
            assert seen + 2 < await shop.committed(seen, timeout=60, wanted=frozenset)


async def heard_of_all(journal: Journal) -> int:
    """What was committed, once all of that was heard of."""
    seen = await journal.committed(0, timeout=0)
    while seen != (seen := await journal.committed(seen, timeout=0.2)):
        pass
    return seen


# Two journals, a journal opened again


async def test_an_order_that_another_journal_of_the_machine_holds(shop: Journal, tmp_path: Path) -> None:
    """Is refused: it may have been sent from there. A named person may say that it was not."""
    meant = TakeoverAuthorisation(who="A. Clerk", why="two shops")
    async with SqliteJournal(tmp_path / "other.db", second_journal=meant) as other:
        await other.open_outbox(SHOP, IDENTITY)
        await other.put(SHOP, order(1))
    with pytest.raises(HeldElsewhere, match="may have been sent already"):
        await put(shop, 1)
    refused, taken = await asyncio.gather(put(shop, 1), put(shop, 2), return_exceptions=True)
    assert isinstance(refused, HeldElsewhere)
    assert isinstance(taken, Placed)


async def test_a_journal_that_is_opened_again(opens: Opens) -> None:
    """Its outbox is as well."""
    journal: Any = opens()
    for number in range(2):
        async with journal:
            await journal.open_outbox(SHOP, IDENTITY)
            assert (await put(journal, number)).is_new


async def test_what_the_tables_hold_adds_up(shop: Journal, home: Home) -> None:
    """The sums beside the orders are those of the orders."""
    placed = await many(shop, range(7))
    await send(shop, placed[0])
    await send(shop, placed[1], Signal.REJECTED)
    await put(shop, 1)
    assert dict(home.rows("SELECT state, count(*) FROM outbox GROUP BY state")) == await counted(shop)


@pytest.mark.parametrize("named", [secrets.token_hex(9000), "half \ud800"], ids=["long", "half"])
async def test_a_list_that_shows_what_no_order_of_ours_can_be_called(shop: Journal, named: str) -> None:
    """It is somebody else's; what else the list shows is noted."""
    strange = sighting(3, request_id=named)
    await shop.note_observed([strange, sighting(2, amount="1002.50"), strange])
    await shop.note_observed([strange])
    assert State.SUCCESSFUL == (await put(shop, 2)).entry.state
