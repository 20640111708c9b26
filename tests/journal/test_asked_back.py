"""An order that may be sent again, in a chunk that a process holds and fills: the chunk is asked back for it."""

from __future__ import annotations

import pytest
from journal.conftest import Home, Opens
from journal.factories import IDENTITY, Clock, order
from journal.test_contract_puts import NOW, SHOP, claim, held, put

from payments_async.journal import Journal, Signal, State
from payments_async.journal.contract import Chunk, Outcome, Permit


@pytest.fixture
async def shop(journal: Journal) -> Journal:
    """A journal with an outbox."""
    await journal.open_outbox(SHOP, IDENTITY)
    return journal


async def parked(journal: Journal, number: int) -> Chunk:
    """Send an order whose answer is lost and that no list shows; gives its chunk."""
    chunk, claimed = held(await put(journal, number))
    permit = await journal.permit(chunk, claimed)
    assert isinstance(permit, Permit)
    await journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN))
    await journal.park(order(number).request_id, detail="not listed")
    return chunk


async def held_back(journal: Journal) -> Chunk:
    """Have an order that cannot be sent as it is; gives its chunk."""
    chunk, claimed = held(await put(journal, 1))
    permit = await journal.permit(chunk, claimed)
    assert isinstance(permit, Permit)
    await journal.record(Outcome(permit=permit, signal=Signal.NOT_SENT, message="it cannot be sent", holds_back=True))
    return chunk


async def asked_back(journal: Journal, owner: str = "worker") -> int:
    """How many chunks of a worker are asked back."""
    return sum(run.asked_back for run in await journal.waiting(SHOP, owner=owner))


async def test_an_order_that_is_written_off(shop: Journal) -> None:
    """Its holder hears of it, fills another chunk, and gives this one back: anybody claims it."""
    chunk = await parked(shop, 1)
    await put(shop, 2, chunk=chunk)
    assert 0 == await asked_back(shop)
    await shop.send_again(order(1).request_id, who="Ann", why="it never arrived")
    assert (1, 0) == (await asked_back(shop), await asked_back(shop, "another"))
    assert chunk.number != held(await put(shop, 3, chunk=chunk))[0].number
    await shop.release_chunk(chunk)
    assert [order(1).request_id, order(2).request_id] == await claim(shop)
    assert 0 == await asked_back(shop, "another")


async def test_a_refusal_that_its_own_holder_hears(shop: Journal) -> None:
    """An order that was turned away unread is in its holder's hands: nothing is asked back."""
    placed = await put(shop, 1)
    permit = await shop.permit(*held(placed))
    assert isinstance(permit, Permit)
    await shop.record(Outcome(permit=permit, signal=Signal.NOT_SENT))
    assert 0 == await asked_back(shop)


async def test_an_order_in_a_chunk_whose_others_are_due_later(shop: Journal, clock: Clock) -> None:
    """It is claimed at once, and not only when they are due."""
    for number, seconds in ((1, 100), (2, 10_000)):
        await put(shop, number, not_before=NOW + seconds)
    clock.pass_(100)
    chunk = await shop.claim_chunk(SHOP, "another")
    assert chunk is not None
    permit = await shop.permit(chunk, chunk.orders[0])
    assert isinstance(permit, Permit)
    await shop.record(Outcome(permit=permit, signal=Signal.UNKNOWN))
    await shop.release_chunk(chunk)
    await shop.park(order(1).request_id, detail="not listed")
    assert await claim(shop) is None
    await shop.send_again(order(1).request_id, who="Ann", why="it never arrived")
    assert order(1).request_id in (await claim(shop) or ())


async def test_an_order_that_was_held_back_is_put_again(shop: Journal) -> None:
    """Its holder, which goes on filling the chunk, is asked for it."""
    await held_back(shop)
    assert State.PLANNED is (await put(shop, 1)).entry.state
    assert 1 == await asked_back(shop)


async def test_a_chunk_in_which_an_order_is_held_back(shop: Journal) -> None:
    """Its others are sent; then it is done, and nobody claims it in vain. Put again, the order is claimed at once."""
    chunk = await held_back(shop)
    await put(shop, 2, chunk=chunk)
    await shop.release_chunk(chunk)
    left = await shop.claim_chunk(SHOP, "another")
    assert left is not None
    assert [order(2).request_id] == [claimed.request_id for claimed in left.orders]
    permit = await shop.permit(left, left.orders[0])
    assert isinstance(permit, Permit)
    await shop.record(Outcome(permit=permit, signal=Signal.ACCEPTED))
    await shop.release_chunk(left)
    assert (0, 1) == ((found := await shop.chunks(SHOP)).open, found.done)
    assert (None, ()) == (await claim(shop), await shop.waiting(SHOP))
    assert {} == {state: at for state, at in (await shop.oldest(SHOP)).items() if state is State.PLANNED}
    assert () == (await shop.examine()).flaws
    await put(shop, 1, owner=None)
    assert [order(1).request_id] == await claim(shop)


async def test_an_order_that_was_held_back_in_a_copy(opens: Opens, home: Home) -> None:
    """It may have been put again and sent since: its chunk waits for a person with the others."""
    async with opens() as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        await journal.release_chunk(await held_back(journal))
    async with home.copied()(state_folder=None) as copy:
        assert 1 == (await copy.run(SHOP)).quarantined
        await put(copy, 1, owner=None)
        assert await claim(copy) is None
        assert 1 == (await copy.run(SHOP)).quarantined


async def test_an_order_that_was_held_back_and_cancelled_in_a_copy(opens: Opens, home: Home) -> None:
    """It is never sent: its chunk, which is done, waits for no person."""
    async with opens() as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        chunk = await held_back(journal)
        await journal.cancel(order(1).request_id, who="Ann", why="not any more")
        await journal.release_chunk(chunk)
    async with home.copied()(state_folder=None) as copy:
        assert 0 == (await copy.run(SHOP)).quarantined
