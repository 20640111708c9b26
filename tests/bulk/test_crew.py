"""Many workers with little to do: nobody looks in vain, and after a pause they do not all go at once."""

import pytest
from bulk.worlds import BATCH, payouts, session

from payments_async.bulk import RunSettings, run_batch
from payments_async.journal import SqliteJournal
from payments_async.outbox._brakes import Backoff
from payments_async.outbox._worker_pool import WorkerPool
from payments_async.sandbox import Fault, Sandbox

WORKERS = 300


async def test_workers_that_wait_are_left_alone_until_they_can_go(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, service: Sandbox
) -> None:
    """Through a pause of the service's, with three orders for hundreds: each looks as it begins and as it ends."""
    looks = 0
    next_order = WorkerPool.next_order

    def looked(pool: WorkerPool) -> object:
        nonlocal looks
        looks += 1
        return next_order(pool)

    monkeypatch.setattr(WorkerPool, "next_order", looked)
    async with (
        session(service) as payments,
    ):
        service.script(Fault.RATE_LIMITED, on="money", seconds=1)
        done = await run_batch(payments, journal, BATCH, payouts(3), settings=RunSettings(concurrency=WORKERS))
    assert 3 == done.counts["accepted"]
    assert 2 * WORKERS <= looks < 2 * WORKERS + 50


def test_after_a_pause_more_and_more_of_those_who_wait_go_over_a_moment() -> None:
    """A thousand, looked at ten times a second: nobody within the pause, a tenth at its end, all a second later."""
    now = 0.0
    pace = Backoff(300.0, clock=lambda: now)
    pace.failed("slow down", retry_after=5.0)
    waiting, going = 1000, []
    for tick in range(40, 65):
        now = tick / 10
        going.append(pace.places(waiting))
        waiting -= going[-1]
    assert ([0] * 10, 0) == (going[:10], waiting)
    assert all(90 <= some <= 110 for some in going[10:19])


@pytest.mark.parametrize("is_answered", [True, False])
def test_while_one_feels_the_way_nobody_else_is_woken(is_answered: bool) -> None:
    """After many failures one goes; when it is answered the others follow over a moment."""
    now = 0.0
    pace = Backoff(300.0, clock=lambda: now, chance=lambda: 0.0)
    for _ in range(10):
        pace.failed("down")
    now = 10.0
    assert 1 == pace.places(1000)
    assert pace.may_go()
    assert 0 == pace.places(1000)
    if is_answered:
        pace.answered()
    else:
        pace.failed("down")
    assert pace.places(1000) == (100 if is_answered else 0)
