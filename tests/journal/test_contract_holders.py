"""What every journal promises of those who hold a chunk no longer: they can do nothing more to what others hold."""

import asyncio

import pytest
from journal.factories import BATCH, Clock, claimed, order, permitted

from payments_async.journal import Journal, Refusal, State


async def state_of(journal: Journal, number: int = 0) -> State:
    """Where the order of that number stands."""
    entry = await journal.entry(order(number).request_id)
    assert entry is not None
    return entry.state


async def test_a_cancelled_caller_takes_back_no_permit_of_somebody_else(journal: Journal, clock: Clock) -> None:
    """It was taken for dead, and asks and is cancelled while the next holder is sending the order."""
    first = await claimed(journal)
    clock.pass_(31)
    second = await journal.claim_chunk(BATCH, "second")
    assert second is not None
    await permitted(journal, second)
    asking = asyncio.ensure_future(journal.permit(first, first.orders[0]))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert isinstance(await journal.permit(second, second.orders[0]), Refusal)  # written after what was cancelled
    assert State.SENDING is await state_of(journal)
