"""A run in a session that has sent orders of its batch before: what the session knows is not sent again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bulk.worlds import BATCH, World, payout, payouts, world

from payments_async.bulk import run_batch


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    """A service, a session and a journal."""
    async with world(tmp_path) as opened:
        yield opened


async def test_an_order_that_the_session_has_sent(here: World) -> None:
    """The journal gets its acceptance, and the service no second order."""
    first = await here.payments.payouts.send(payout(3))
    done = await run_batch(here.payments, here.journal, BATCH, payouts(10))
    entry = await here.journal.entry(first.request_id)
    assert entry is not None
    assert (10, first.transaction_id) == (done.counts["accepted"], entry.transaction_id)
    await here.check(10)


async def test_another_order_under_one_of_its_ids(here: World) -> None:
    """It stays planned and is told, and the others are sent."""
    await here.payments.payouts.send(payout(3, message="not the one of the batch"))
    done = await run_batch(here.payments, here.journal, BATCH, payouts(10), look_first="never")
    assert {"accepted": 9, "planned": 1} == await here.states()
    assert done.stopped is not None
    assert "has sent another order under the same request id" in done.stopped
