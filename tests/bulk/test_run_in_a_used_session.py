"""A run in a session that has sent orders of its batch before: what the session knows is not sent again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bulk.worlds import BATCH, World, payout, payouts, world

from payments_async import InvalidOrder
from payments_async.bulk import ReconcileSettings, RunSettings, reconcile, run_batch
from payments_async.sandbox import Fault


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
    """The batch is refused while it is written down: nothing of it is sent."""
    await here.payments.payouts.send(payout(3, message="not the one of the batch"))
    with pytest.raises(InvalidOrder, match="has sent another order under the same request id"):
        await run_batch(here.payments, here.journal, BATCH, payouts(10), settings=RunSettings(look_first="never"))
    assert 1 == len(here.sandbox.ledger)


async def test_an_order_that_is_found_while_it_is_under_way(here: World) -> None:
    """Cancelled after that it is not planned again: somebody found it because it had left."""
    held = payout(3).request_id
    here.sandbox.script(Fault.SLOW, request_id=held, seconds=3600.0)
    run = asyncio.ensure_future(run_batch(here.payments, here.journal, BATCH, payouts(5)))
    async with asyncio.timeout(60):
        while {held} != here.payments.unsettled or len(here.sandbox.ledger) < 5:  # noqa: ASYNC110 - the other side's
            await asyncio.sleep(0.01)
        assert await here.payments.transactions.find(held) is not None
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert "unknown" == await here.state(3)
    await here.check(5)


async def test_an_order_that_a_reconcile_has_found(here: World) -> None:
    """The session that lost its answer gives back what was found of it, and sends nothing."""
    lost = payout(3)
    here.sandbox.script(Fault.LOST_AFTER, request_id=lost.request_id)
    await run_batch(here.payments, here.journal, BATCH, payouts(5))
    await reconcile(here.payments, here.journal, BATCH, settings=ReconcileSettings(interval=0))
    acceptance = await here.payments.payouts.send(lost)
    entry = await here.journal.entry(lost.request_id)
    assert entry is not None
    assert (entry.transaction_id, frozenset()) == (acceptance.transaction_id, here.payments.unsettled)
    await here.check(5)
