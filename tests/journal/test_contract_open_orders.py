"""What every journal tells of the orders that an outbox has open: which they are, and since when."""

import pytest
from journal.factories import BATCH, IDENTITY, Clock, order, orders

from payments_async.journal import Journal, Signal, State
from payments_async.journal.contract import OpenOrder, Outcome, Permit

OUTBOX = "shop"


async def unknown(
    journal: Journal, clock: Clock, count: int, *, batch: str = BATCH, outbox: str | None = OUTBOX
) -> None:
    """Orders of a batch, each permitted a second after the one before it, and unknown a second later."""
    await journal.open_run(batch, IDENTITY, outbox=outbox)
    await journal.load(batch, orders(count, batch=batch), owner="loader")
    chunk = await journal.claim_chunk(batch, "worker", lease=1e6)
    assert chunk is not None
    for claimed in chunk.orders:
        permit = await journal.permit(chunk, claimed)
        assert isinstance(permit, Permit)
        clock.pass_(1)
        await journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN))


async def told(journal: Journal, state: State = State.UNKNOWN) -> list[OpenOrder]:
    """All of them."""
    return [one async for page in journal.open_orders(OUTBOX, state) for one in page]


async def test_open_orders_of_all_runs_of_an_outbox(journal: Journal, clock: Clock) -> None:
    """With the moments they were sent at and are so since; those of others are left out."""
    began = clock.now
    await unknown(journal, clock, 2)
    await unknown(journal, clock, 1, batch="second")
    await unknown(journal, clock, 1, batch="alone", outbox=None)
    await unknown(journal, clock, 1, batch="theirs", outbox="another")
    ids = [order(0).request_id, order(1).request_id, order(0, batch="second").request_id]
    expected = [OpenOrder(id_, State.UNKNOWN, began + n + 1, began + n) for n, id_ in enumerate(ids)]
    assert expected == await told(journal)
    assert [] == await told(journal, State.ACCEPTED)


async def test_the_first_permit_counts(journal: Journal, clock: Clock) -> None:
    """What was written off and sent again may have arrived the first time."""
    began = clock.now
    await unknown(journal, clock, 1)
    await journal.park(order(0).request_id, detail="nowhere")
    (parked,) = await told(journal, State.PARKED)
    await journal.send_again(order(0).request_id, who="Ann", why="asked them")
    clock.pass_(1e7)
    chunk = await journal.claim_chunk(BATCH, "worker")
    assert chunk is not None
    permit = await journal.permit(chunk, chunk.orders[0])
    assert isinstance(permit, Permit)
    await journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN))
    (again,) = await told(journal)
    assert (began, began, clock.now) == (parked.sent_at, again.sent_at, again.since)


@pytest.mark.slow
async def test_open_orders_by_the_thousands(journal: Journal) -> None:
    """A page and its next one, each order once."""
    await journal.open_run(BATCH, IDENTITY, outbox=OUTBOX)
    ids = [one.request_id for one in orders(5_001)]
    await journal.load(BATCH, orders(5_001), owner="loader")
    assert ids == [one.request_id for one in await told(journal, State.PLANNED)]
