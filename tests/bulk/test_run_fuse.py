"""The fuse: each rule stops the run by itself, with its reason, and what is under way is finished."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from bulk.worlds import BATCH, World, payout, payouts, world

from payments_async.bulk import Fuse, RunSettings, run_batch
from payments_async.sandbox import Fault


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    """A service, a session and a journal."""
    async with world(tmp_path) as opened:
        yield opened


async def test_too_many_rejections_stop_the_run(here: World) -> None:
    """From the twentieth order on, more than a tenth rejected is too many."""
    here.sandbox.script(Fault.REFUSED, times=None, on="money")
    fuse = Fuse(max_error_rate=0.1)
    done = await run_batch(
        here.payments, here.journal, BATCH, payouts(300), settings=RunSettings(concurrency=4), fuse=fuse
    )
    assert done.stopped is not None
    assert "were rejected or are unknown" in done.stopped
    assert 20 <= done.counts["rejected"] <= 24
    await here.check(300)


@pytest.mark.slow(covered=True)
async def test_a_few_rejections_do_not(here: World) -> None:
    """Below the rate the batch goes through."""
    here.sandbox.script(Fault.REFUSED, times=5, on="money")
    done = await run_batch(here.payments, here.journal, BATCH, payouts(300), fuse=Fuse(max_error_rate=0.3))
    assert (None, 295) == (done.stopped, done.counts["accepted"])


async def test_unknown_orders_stop_the_run(here: World) -> None:
    """Two may be unknown at a time; the third stops it, with what was under way."""
    for number in (5, 25, 45, 65, 85, 105, 125):
        here.sandbox.script(Fault.LOST_AFTER, on="money", request_id=payout(number).request_id)
    done = await run_batch(
        here.payments, here.journal, BATCH, payouts(300), settings=RunSettings(concurrency=2), fuse=Fuse(max_unknown=2)
    )
    assert "3 orders are unknown, 2 may be" == done.stopped
    assert 3 == done.counts["unknown"]
    await here.check(300)


async def test_the_total_is_never_exceeded(here: World) -> None:
    """The order that would exceed it is not sent, whatever is under way, nor by the next run."""
    fuse = Fuse(max_total=Decimal(50_000))
    for _ in range(2):
        done = await run_batch(
            here.payments, here.journal, BATCH, payouts(300), settings=RunSettings(concurrency=20), fuse=fuse
        )
        assert done.stopped is not None
        assert "would bring the total to" in done.stopped
        assert Decimal(48_000) < done.sums["accepted"] <= Decimal(50_000)
    await here.check(300)


async def test_rejected_orders_do_not_count_into_the_total(here: World) -> None:
    """What was refused costs nothing."""
    here.sandbox.script(Fault.REFUSED, times=10, on="money")
    total = sum((order.amount for order in payouts(30)), Decimal(0))
    done = await run_batch(
        here.payments,
        here.journal,
        BATCH,
        payouts(30),
        settings=RunSettings(concurrency=1),
        fuse=Fuse(max_total=total - 10_000),
    )
    assert (None, 20, 10) == (done.stopped, done.counts["accepted"], done.counts["rejected"])


async def test_a_low_balance_stops_the_run(tmp_path: Path) -> None:
    """What has to be left on the account is left there."""
    async with world(tmp_path, balance=Decimal(100_000)) as here:
        fuse = Fuse(min_balance=Decimal(60_000))
        done = await run_batch(
            here.payments, here.journal, BATCH, payouts(300), settings=RunSettings(concurrency=5), fuse=fuse
        )
        assert done.stopped is not None
        assert "would leave a balance of" in done.stopped
        assert Decimal(38_000) < done.sums["accepted"] <= Decimal(40_000)
        await here.check(300)


async def test_a_balance_that_cannot_be_read_sends_nothing(here: World) -> None:
    """A fuse that cannot be asked does not let anything through."""
    here.sandbox.script(Fault.ERROR_BEFORE, times=None, on="account")
    fuse = Fuse(min_balance=Decimal(1))
    done = await run_batch(here.payments, here.journal, BATCH, payouts(30), fuse=fuse)
    assert done.stopped is not None
    assert "the balance could not be read" in done.stopped
    assert 30 == done.counts["planned"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"max_error_rate": 1.5}, ValueError), ({"max_unknown": -1}, ValueError), ({"max_total": 1.5}, TypeError)],
)
def test_a_fuse_that_cannot_be_right_is_refused(wrong: dict[str, object], error: type[Exception]) -> None:
    """The message names the setting."""
    with pytest.raises(error, match=next(iter(wrong))):
        Fuse(**wrong)  # type: ignore[arg-type]
