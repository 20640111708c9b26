"""Reconciling in doubt: list scans that do not count, and statuses that are not believed."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer
from bulk.worlds import BATCH, World, payout, payouts, world

from payments_async import Credentials, PaymentsSession, RetryPolicy
from payments_async.bulk import ReconcileSettings, acknowledge, reconcile, run_batch
from payments_async.journal import Signal, SqliteJournal
from payments_async.journal.contract import Evidence
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing

LOST = payout(4).request_id


async def one_lost(here: World) -> None:
    """Ten orders, one of which never arrived."""
    here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=LOST)
    await run_batch(here.payments, here.journal, BATCH, payouts(10))


class Slow:
    """A clock by which every list takes its time, and which moves by sleeping.

    Args:
        ahead: Seconds by which it runs ahead of the computer's.
        of_a_list: Seconds.
    """

    def __init__(self, here: World, ahead: float, *, of_a_list: float = 0.0) -> None:
        self._sandbox = here.sandbox
        self._ahead = ahead
        self._of_a_list = of_a_list
        self._before = self._lists()

    def _lists(self) -> int:
        return sum(call.path.endswith("/transactions") for call in self._sandbox.requests)

    def clock(self) -> float:
        """Unix seconds."""
        return time.time() + self._ahead + self._of_a_list * (self._lists() - self._before)

    async def sleep(self, seconds: float) -> None:
        """Move on."""
        self._ahead += seconds


async def test_a_sweep_that_begins_within_the_period_of_grace_does_not_count(tmp_path: Path) -> None:
    """Although it ends after it: the order may have arrived behind its back. One list scan alone is left then."""
    async with world(tmp_path, processing_delay=0.01) as here:
        await one_lost(here)
        await here.sandbox.settle()
        slow = Slow(here, 850.0, of_a_list=100.0)
        report = await reconcile(
            here.payments,
            here.journal,
            settings=ReconcileSettings(grace=900.0),
            testing=Testing(now=slow.clock, sleep=slow.sleep),
        )
        assert ((), (LOST,)) == (report.parked, report.unknown)
        later = Slow(here, 2000.0)
        report = await reconcile(
            here.payments,
            here.journal,
            settings=ReconcileSettings(grace=900.0),
            testing=Testing(now=later.clock, sleep=later.sleep),
        )
        assert (LOST,) == report.parked


async def test_two_sweeps_at_one_moment_are_one(tmp_path: Path) -> None:
    """Whoever waits between them is woken at once: no time has passed, so that nothing more was learned."""
    async with world(tmp_path, processing_delay=0.01) as here:
        await one_lost(here)
        await here.sandbox.settle()
        now = time.time() + 2000.0

        async def at_once(seconds: float) -> None:
            """Sleep no moment."""

        report = await reconcile(here.payments, here.journal, testing=Testing(now=lambda: now, sleep=at_once))
        assert ((), (LOST,)) == (report.parked, report.unknown)


OrderEvent = Callable[[web.Request, web.StreamResponse], web.StreamResponse]


@asynccontextmanager
async def lying(folder: Path, change: OrderEvent) -> AsyncIterator[World]:
    """A world whose service gives other answers than it should."""

    @web.middleware
    async def lie(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        return change(request, await handler(request))

    async with AsyncExitStack() as stack:
        sandbox = Sandbox(processing_delay=0.01)
        app = sandbox.app()
        app.middlewares.append(lie)
        server = await stack.enter_async_context(TestServer(app))
        who = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
        payments = await stack.enter_async_context(
            PaymentsSession(server.make_url("/"), who, retry=RetryPolicy(attempts=1))
        )
        journal = await stack.enter_async_context(SqliteJournal(folder / "journal.db"))
        yield World(sandbox, payments, journal)


def without_failures(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """It cannot list what has failed."""
    return web.Response(status=503) if "FAILED" in map(str.upper, request.query.values()) else answer


async def test_absence_from_a_list_of_unknown_length_proves_nothing(tmp_path: Path) -> None:
    """It may have ended early: nobody is asked to write the order off."""
    async with world(tmp_path, {"total_error": None}, processing_delay=0.01) as here:
        await one_lost(here)
        await here.sandbox.settle()
        later = Slow(here, 2000.0)
        report = await reconcile(here.payments, here.journal, testing=Testing(now=later.clock, sleep=later.sleep))
        assert ((), (LOST,)) == (report.parked, report.unknown)
        assert any("how many rows" in note for note in report.notes)


def with_other_amounts(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """Its list shows one amount in place of another."""
    if not request.path.endswith("/transactions") or not isinstance(answer, web.Response):
        return answer
    ours, theirs = f"{payout(1).amount}".encode(), b"77777"
    assert isinstance(answer.body, bytes)
    return web.Response(body=answer.body.replace(ours, theirs), content_type="application/json")


async def test_another_amount_in_the_record_of_an_accepted_order_is_a_difference(tmp_path: Path) -> None:
    """It has its transaction and its request id, and yet somebody has to look: it is told, and settles nothing."""
    async with lying(tmp_path, with_other_amounts) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(3))
        await here.sandbox.settle()
        later = Slow(here, 2000.0)
        report = await reconcile(here.payments, here.journal, testing=Testing(now=later.clock, sleep=later.sleep))
        order = payout(1)
        assert [(order.request_id, order.amount, Decimal(77777))] == [
            (one.request_id, one.ours, abs(one.theirs or 0)) for one in report.differences
        ]
        assert "accepted" == await here.state(1)


async def test_statuses_are_believed_only_when_every_list_was_read_to_its_end(tmp_path: Path) -> None:
    """An order is listed as paid; that it is not listed as failed as well, nobody could see."""
    async with lying(tmp_path, without_failures) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(3))
        await here.sandbox.settle()
        later = Slow(here, 2000.0)
        report = await reconcile(here.payments, here.journal, testing=Testing(now=later.clock, sleep=later.sleep))
        assert ({}, {"accepted": 3}) == (report.settled, await here.states())


async def test_a_named_person_acknowledges_a_contradiction(tmp_path: Path) -> None:
    """It is shown no more once somebody has seen the order as it stands; what came since they looked would stand."""
    async with world(tmp_path, processing_delay=0.01) as here:
        await run_batch(here.payments, here.journal, BATCH, payouts(1))
        await here.sandbox.settle()
        later = Slow(here, 2000.0)
        await reconcile(here.payments, here.journal, testing=Testing(now=later.clock, sleep=later.sleep))
        id_ = payout(0).request_id
        await here.journal.apply_evidence(
            Evidence(signal=Signal.LOOKED_UP_FAILED, source="statement", request_id=id_, amount=payout(0).amount)
        )
        report = await reconcile(here.payments, here.journal, testing=Testing(now=later.clock, sleep=later.sleep))
        assert (id_,) == report.conflicts
        entry = await here.journal.entry(id_)
        assert entry is not None
        now = await acknowledge(here.journal, id_, "Ann", "the statement was wrong", seen=entry.updated_at)
        report = await reconcile(here.payments, here.journal, testing=Testing(now=later.clock, sleep=later.sleep))
        assert (None, ()) == (now.conflict, report.conflicts)
