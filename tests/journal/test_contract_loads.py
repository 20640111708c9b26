"""What every journal promises of loads that broke off, or that two processes try at once."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from journal.factories import BATCH, IDENTITY, Clock, claimed, order, orders, permitted, transaction_id

from payments_async._wire.orders import Order
from payments_async.journal import Journal, LoadBusy, NotCompared, OrdersDiffer, RunUnknown, Signal, State
from payments_async.journal.contract import Evidence, Permit


def breaks_off(count: int) -> Iterator[Order]:
    """So many orders, and then nothing more."""
    yield from orders(count)
    raise ConnectionResetError


async def test_who_was_taken_for_dead_adds_nothing_to_a_load_under_way(journal: Journal, clock: Clock) -> None:
    """The one who took over is in the middle of it, and what is complete in the end is theirs alone."""
    await journal.open_run(BATCH, IDENTITY)
    under_way, go_on = asyncio.Event(), asyncio.Event()

    async def theirs() -> AsyncIterator[Order]:
        for number in range(1001):
            yield order(number)
        under_way.set()
        await go_on.wait()

    async def ours() -> AsyncIterator[Order]:
        for number in range(1000):
            yield order(number)
        yield order(5000)  # the block before it is on disk by now
        clock.pass_(60)
        taking_over.append(asyncio.ensure_future(journal.load(BATCH, theirs(), owner="two")))
        await under_way.wait()

    taking_over: list[asyncio.Future[object]] = []
    with pytest.raises(LoadBusy):
        await journal.load(BATCH, ours(), owner="one")
    go_on.set()
    await taking_over[0]
    assert [order(number).request_id for number in range(1001)] == [
        entry.request_id async for entry in journal.entries(BATCH)
    ]


async def test_a_lease_that_a_clock_ahead_has_given_is_waited_for_no_longer_than_a_lease(
    journal: Journal, clock: Clock
) -> None:
    """The clock was a day ahead while a worker took its chunk and died."""
    clock.pass_(86400)
    await claimed(journal)
    clock.pass_(-86400)
    assert await journal.claim_chunk(BATCH, "another") is None
    chunks = await journal.chunks(BATCH)
    assert (1, 30.0, "worker") == (chunks.leased, chunks.next_expiry, chunks.next_owner)
    clock.pass_(29)
    assert await journal.claim_chunk(BATCH, "another") is None
    clock.pass_(2)
    assert await journal.claim_chunk(BATCH, "another") is not None


async def test_a_lease_from_a_clock_ahead_expires_for_nobody_too(journal: Journal, clock: Clock) -> None:
    """What its holder left under way is unknown after a lease's time, and not after a day."""
    clock.pass_(86400)
    chunk = await claimed(journal)
    assert isinstance(await permitted(journal, chunk), Permit)
    clock.pass_(-86400)
    assert 0 == await journal.expire_chunks(BATCH)
    clock.pass_(31)
    assert 1 == await journal.expire_chunks(BATCH)


async def test_a_load_that_a_clock_ahead_has_begun_keeps_nobody_waiting(journal: Journal, clock: Clock) -> None:
    """Whoever comes next loads the batch at once, and the one who began can add nothing any more."""
    await journal.open_run(BATCH, IDENTITY)
    totals: list[int] = []

    async def stalls() -> AsyncIterator[Order]:
        yield order(0)
        clock.pass_(-86400)
        totals.append((await journal.load(BATCH, orders(3), owner="alive")).total)

    clock.pass_(86400)
    with pytest.raises(LoadBusy):
        await journal.load(BATCH, stalls(), owner="stalled")
    assert [3] == totals


async def test_a_load_that_a_clock_ahead_has_begun_is_told_of_as_unfinished(journal: Journal, clock: Clock) -> None:
    """The outbox that is to send the batch says so at once, and not a day later."""
    await journal.open_outbox("shop", IDENTITY)
    await journal.open_run(BATCH, IDENTITY, outbox="shop")
    told: list[Sequence[str]] = []

    async def stalls() -> AsyncIterator[Order]:
        told.append((await journal.held_up("shop")).unloaded)
        yield order(0)
        clock.pass_(-86400)
        told.append((await journal.held_up("shop")).unloaded)

    clock.pass_(86400)
    await journal.load(BATCH, stalls(), owner="stalled")
    assert [(), (BATCH,)] == told


async def test_a_load_that_was_refused_keeps_nobody_waiting(journal: Journal) -> None:
    """Whoever comes with the right orders need not wait until it might be dead."""
    await journal.open_run(BATCH, IDENTITY)
    with pytest.raises(OrdersDiffer):
        await journal.load(BATCH, [order(0), order(0, "7")], owner="one")
    assert 3 == (await journal.load(BATCH, orders(3), owner="two")).added


async def test_an_order_that_something_told_of_is_not_dropped_by_the_next_load(journal: Journal, clock: Clock) -> None:
    """It was written down by a load that broke off, and carried out from elsewhere: who leaves it out is told."""
    await journal.open_run(BATCH, IDENTITY)
    with pytest.raises(ConnectionResetError):
        await journal.load(BATCH, breaks_off(1500), owner="one")
    about = order(7)
    told = Evidence(
        signal=Signal.LOOKED_UP_SUCCESSFUL,
        source="list",
        request_id=about.request_id,
        transaction_id=transaction_id(7),
        amount=about.amount,
    )
    await journal.apply_evidence(told)
    clock.pass_(60)
    with pytest.raises(OrdersDiffer, match=about.request_id) as caught:
        await journal.load(BATCH, orders(5), owner="two")
    assert (about.request_id,) == caught.value.request_ids
    entry = await journal.entry(about.request_id)
    assert entry is not None
    assert State.PLANNED is not entry.state
    clock.pass_(60)
    assert 8 == (await journal.load(BATCH, orders(8), owner="three")).total
    counted = (await journal.progress(BATCH)).counts
    there = [entry.state async for entry in journal.entries(BATCH)]
    assert {state: there.count(state) for state in State} == dict(counted)


class Both:
    """Orders that can be awaited, and walked through by whoever does not mind who waits."""

    def __iter__(self) -> Iterator[Order]:
        raise AssertionError("everybody would have waited")

    async def __aiter__(self) -> AsyncIterator[Order]:
        for number in range(3):
            await asyncio.sleep(0)
            yield order(number)


async def test_a_load_that_is_cancelled_holds_up_nobody(journal: Journal) -> None:
    """Another owner loads the same orders at once: the lease of the first load need not run out."""
    begun, never = asyncio.Event(), asyncio.Event()

    async def stalled() -> AsyncIterator[Order]:
        yield order(0)
        begun.set()
        await never.wait()

    await journal.open_run(BATCH, IDENTITY)
    loading = asyncio.ensure_future(journal.load(BATCH, stalled(), owner="one"))
    await begun.wait()
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert 3 == (await journal.load(BATCH, orders(3), owner="two")).total


@pytest.mark.parametrize("turns", range(4))
async def test_a_load_that_is_cancelled_at_its_beginning(journal: Journal, turns: int) -> None:
    """The same, where nobody was told that it had begun."""
    await journal.open_run(BATCH, IDENTITY)
    loading = asyncio.ensure_future(journal.load(BATCH, orders(3), owner="one"))
    for _ in range(turns):
        await asyncio.sleep(0)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert 3 == (await journal.load(BATCH, orders(3), owner="two")).total


async def test_a_batch_whose_plan_does_not_know_one_that_is_complete(journal: Journal) -> None:
    """Of two that are begun at once, the one whose load ends last is refused; and of two in turn the second one."""

    async def slowly() -> AsyncIterator[Order]:
        yield order(0)
        await journal.load("other", orders(1, batch="other"), owner="two", compared=())

    for name in (BATCH, "other"):
        await journal.open_run(name, IDENTITY, compared=())
    with pytest.raises(NotCompared, match=f"batch {BATCH} was planned without batch other"):
        await journal.load(BATCH, slowly(), owner="one", compared=())
    with pytest.raises(RunUnknown):
        await journal.claim_chunk(BATCH, "worker")
    for name in (BATCH, "third"):
        with pytest.raises(NotCompared):
            await journal.open_run(name, IDENTITY, compared=["older"])
    await journal.open_run("other", IDENTITY, compared=())  # nothing of it can be held back any more
    await journal.open_run(BATCH, IDENTITY, compared=["other"])
    assert 1 == (await journal.load(BATCH, orders(1), owner="three", compared=["other"])).total


async def test_orders_that_can_be_awaited_are(journal: Journal) -> None:
    """As those of a file: it is read in threads then."""
    await journal.open_run(BATCH, IDENTITY)
    assert 3 == (await journal.load(BATCH, Both(), owner="one")).total


class Cursor:
    """Orders of a database, whose cursor belongs to the thread that opened it."""

    def __init__(self, readers: list[int]) -> None:
        self._readers = readers

    def __iter__(self) -> Iterator[Order]:
        for number in range(3):
            self._readers.append(threading.get_ident())
            yield order(number)


@pytest.mark.parametrize("is_begun", [False, True])
async def test_orders_stay_in_the_thread_they_come_from(journal: Journal, is_begun: bool) -> None:
    """A cursor of a database, for one, may not be used in another."""
    readers: list[int] = []
    told = Cursor(readers)
    await journal.open_run(BATCH, IDENTITY)
    assert 3 == (await journal.load(BATCH, iter(told) if is_begun else told, owner="one")).total
    assert [threading.get_ident()] * 3 == readers


async def test_an_order_that_the_session_has_sent_since_its_load_broke_off(journal: Journal) -> None:
    """The load that goes on is told so, and writes it down: no process sends it once more."""

    async def sent(one: Order) -> Evidence | None:
        if one.request_id != order(0).request_id:
            return None
        return Evidence(signal=Signal.ACCEPTED, source="session", request_id=one.request_id, amount=one.amount)

    await journal.open_run(BATCH, IDENTITY)
    with pytest.raises(ConnectionResetError):
        await journal.load(BATCH, breaks_off(1001), owner="one")
    await journal.load(BATCH, [*orders(1001), order(0)], owner="one", sent=sent)
    assert State.ACCEPTED is (await journal.entry(order(0).request_id)).state
    assert 1000 == (await journal.progress(BATCH)).counts[State.PLANNED]
    await journal.load(BATCH, orders(1001), owner="one", sent=sent)
    await journal.check()
