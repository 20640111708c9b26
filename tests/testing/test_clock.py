"""The virtual clock: what takes days is seen at once, in the order in which it would happen."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from queue import SimpleQueue

import pytest

from payments_async import (
    Beneficiary,
    Credentials,
    Limits,
    MobileMoneyWallet,
    OutcomeUnknown,
    PaymentsSession,
    PayoutOrder,
    Rejected,
    RetryPolicy,
)
from payments_async.ipn import Receiver, TransactionSucceeded
from payments_async.journal import SqliteJournal, State
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing, VirtualClock, deliver, notification

DAY = 86_400.0


def order(request_id: str = "r-1") -> PayoutOrder:
    """A payout as any other."""
    return PayoutOrder(
        request_id=request_id,
        amount=Decimal(1500),
        destination=MobileMoneyWallet("+256772000017"),
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Grace Akello"),
    )


@pytest.mark.slow(covered=True)
@pytest.mark.payments_sandbox(processing_delay=2 * DAY)
async def test_a_notification_after_two_days(
    payments_clock: VirtualClock, payments_outbox: Outbox, payments_sandbox: Sandbox
) -> None:
    """Nothing is known an hour before, and all a moment after: it settles the order, and nobody was asked twice."""
    began = payments_clock.monotonic()
    await payments_outbox.put(order())
    await payments_clock.advance(2 * DAY - 3600)
    entry = await payments_outbox.journal.entry("r-1")
    assert entry is not None
    assert (State.ACCEPTED, []) == (entry.state, payments_sandbox.deliveries)
    assert State.SUCCESSFUL == (await payments_clock.until(payments_outbox.settled("r-1", timeout=DAY))).state
    assert 2 * DAY <= payments_clock.monotonic() - began < 2 * DAY + 600
    assert [200] == [delivery.status for delivery in payments_sandbox.deliveries]


async def test_an_order_that_never_arrived_is_parked_by_the_settler(
    payments_clock: VirtualClock, payments_outbox: Outbox, payments_sandbox: Sandbox
) -> None:
    """Quarter of an hour has to pass, and the list to be read more than once; then a person has the word."""
    await payments_outbox.put(order("r-0"))  # a list that shows nothing at all would prove nothing
    await payments_clock.until(payments_outbox.settled("r-0", timeout=60))
    payments_sandbox.script(Fault.LOST_BEFORE, on="money")
    await payments_outbox.put(order())
    await payments_clock.advance(600)
    unknown = await payments_outbox.journal.entry("r-1")
    await payments_clock.advance(1800)
    parked = await payments_outbox.journal.entry("r-1")
    assert unknown is not None
    assert parked is not None
    assert (State.UNKNOWN, State.PARKED) == (unknown.state, parked.state)


async def test_an_order_that_is_to_be_paid_tomorrow(
    payments_clock: VirtualClock, payments_outbox: Outbox, payments_sandbox: Sandbox
) -> None:
    """It is not sent before its moment, and then it is."""
    await payments_outbox.put(order(), not_before=payments_clock.now() + timedelta(days=1))
    await payments_clock.advance(DAY - 600)
    assert 0 == payments_sandbox.executions("r-1")
    settled = await payments_clock.until(payments_outbox.settled("r-1", timeout=DAY))
    assert (State.SUCCESSFUL, 1) == (settled.state, payments_sandbox.executions("r-1"))


async def test_a_token_that_expires(
    payments_clock: VirtualClock, payments_session: PaymentsSession, payments_sandbox: Sandbox
) -> None:
    """A token is good for an hour: after half of it there is no other login, and after the whole there is one."""
    await payments_session.accounts.get()
    await payments_clock.advance(1800)
    await payments_session.accounts.get()
    logins = payments_sandbox.logins
    await payments_clock.advance(1900)
    assert not payments_session.is_logged_in
    await payments_session.accounts.get()
    assert (1, 2) == (logins, payments_sandbox.logins)


async def test_the_service_asks_for_patience(
    payments_clock: VirtualClock, payments_session: PaymentsSession, payments_sandbox: Sandbox
) -> None:
    """A Retry-After of 20 seconds is waited for in full."""
    payments_sandbox.script(Fault.RATE_LIMITED, seconds=20)
    began = payments_clock.monotonic()
    await payments_clock.until(payments_session.payouts.send(order()))
    assert 20 <= payments_clock.monotonic() - began < 80


@pytest.mark.payments_session(limits=Limits(rate=0.1))
async def test_a_rate_of_six_a_minute(payments_clock: VirtualClock, payments_session: PaymentsSession) -> None:
    """The seventh call, after login and six others, begins a minute after the first."""
    began = payments_clock.monotonic()
    await payments_clock.until(asyncio.gather(*(payments_session.accounts.get() for _ in range(7))))
    assert 60 <= payments_clock.monotonic() - began < 180


@pytest.mark.payments_session(retry=RetryPolicy(attempts=1))
async def test_an_answer_that_comes_too_late(
    payments_clock: VirtualClock, payments_session: PaymentsSession, payments_sandbox: Sandbox
) -> None:
    """One exchange may take a minute: what takes 40 seconds is read, what takes two minutes is unknown after one."""
    payments_sandbox.script(Fault.SLOW, seconds=40, request_id="r-1")
    payments_sandbox.script(Fault.SLOW, seconds=120, request_id="r-2")
    accepted = await payments_clock.until(payments_session.payouts.send(order("r-1")))
    began = payments_clock.monotonic()
    with pytest.raises(OutcomeUnknown):
        await payments_clock.until(payments_session.payouts.send(order("r-2")))
    assert "r-1" == accepted.request_id
    assert 60 <= payments_clock.monotonic() - began < 110


async def test_a_receiver_that_was_away_for_an_hour(
    payments_clock: VirtualClock,
    payments_receiver: Receiver,
    payments_session: PaymentsSession,
    payments_sandbox: Sandbox,
) -> None:
    """The sandbox tries again, later and later, and the last try of five is heard."""
    away, payments_sandbox.ipn_url = payments_sandbox.ipn_url, "http://127.0.0.1:9/nobody"
    await payments_session.payouts.send(order())
    await payments_clock.advance(1.0)
    payments_sandbox.ipn_url = away
    event = await payments_clock.until(payments_receiver.wait_for("r-1", timeout=3600))
    assert isinstance(event, TransactionSucceeded)
    assert [None, 200] == [payments_sandbox.deliveries[0].status, payments_sandbox.deliveries[-1].status]


async def test_a_handler_that_fails_for_a_day(payments_clock: VirtualClock, payments_journal: SqliteJournal) -> None:
    """It is called again with growing pauses; after its last round the event is a dead letter, and replay heals it."""
    rounds: list[float] = []
    broken = True
    async with Receiver(payments_journal, ["127.0.0.1"], testing=Testing(now=payments_clock.time)) as receiver:

        @receiver.on(TransactionSucceeded)
        async def book(_: TransactionSucceeded) -> None:
            rounds.append(payments_clock.monotonic())
            if broken:
                raise ConnectionError

        await deliver(receiver, notification("r-1"))
        await payments_clock.advance(DAY, step=600)
        failed, broken = len(rounds), False
        assert (60, 1) == (failed, await receiver.replay())
        await payments_clock.advance(5)
    assert 61 == len(rounds)


async def test_your_own_code_waits_by_it_too(payments_clock: VirtualClock) -> None:
    """``asyncio.sleep`` and ``asyncio.timeout`` end when the clock says so, in their order."""
    ended: list[str] = []

    async def sleep(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        ended.append(name)

    async def time_out() -> None:
        try:
            async with asyncio.timeout(600):
                await asyncio.Event().wait()
        except TimeoutError:
            ended.append("timeout")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleep(3600, "an hour"))
        tasks.create_task(sleep(60, "a minute"))
        tasks.create_task(time_out())
        await payments_clock.advance(4000)
    assert ["a minute", "timeout", "an hour"] == ended


async def test_it_stops_where_somebody_sleeps_by_it(payments_clock: VirtualClock) -> None:
    """However long the steps are by then, who sleeps by the clock's own function wakes at his moment."""
    began, woken = payments_clock.monotonic(), 0.0

    async def sleep() -> None:
        nonlocal woken
        await payments_clock.sleep(DAY)
        woken = payments_clock.monotonic() - began

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleep())
        await payments_clock.advance(3 * DAY)
    assert DAY <= woken < DAY + 600


async def test_work_in_a_thread_is_waited_for(payments_clock: VirtualClock) -> None:
    """The clock does not move while a thread works, so that what has a minute for it does not run out of time."""
    began, released = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> str:
        loop.call_soon_threadsafe(began.set)
        released.wait(60)
        return "done"

    async def use() -> str:
        async with asyncio.timeout(60):
            return await asyncio.to_thread(work)

    async with asyncio.TaskGroup() as tasks:
        using = tasks.create_task(use())
        await began.wait()
        loop.call_later(0.0, released.set)
        await payments_clock.advance(DAY)
    assert "done" == using.result()


async def test_what_is_not_done_in_time_is_cancelled(payments_clock: VirtualClock) -> None:
    """``until`` has a limit of its own, for what would wait for ever."""
    never = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(TimeoutError, match="3600 seconds have passed by the clock"):
        await payments_clock.until(never, limit=3600)
    assert never.cancelled()


async def test_what_fails_says_so(payments_clock: VirtualClock, payments_session: PaymentsSession) -> None:
    """``until`` raises what the awaited raises."""
    with pytest.raises(Rejected):
        await payments_clock.until(payments_session.raw("GET", "/nowhere"))


async def test_time_does_not_go_back(payments_clock: VirtualClock) -> None:
    """A negative time is a mistake."""
    with pytest.raises(ValueError, match="time does not go back"):
        await payments_clock.advance(-1)


async def test_a_clock_of_ones_own(tmp_path: Path) -> None:
    """Without pytest's fixtures it is handed to each part; closed, it leaves the loop as it was."""
    loop = asyncio.get_running_loop()
    async with VirtualClock() as clock, Sandbox(clock=clock) as sandbox:
        credentials = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
        journal = SqliteJournal(
            tmp_path / "journal.sqlite", state_folder=tmp_path / "state", testing=Testing(now=clock.time)
        )
        clock.watch(journal)
        async with (
            PaymentsSession(
                sandbox.base_url, credentials, testing=Testing(clock=clock.monotonic, now=clock.time)
            ) as session,
            journal,
            Outbox(session, journal, testing=Testing(now=clock.time)) as outbox,
        ):
            began = clock.monotonic()
            await outbox.put(order())
            entry = await clock.until(outbox.settled("r-1", timeout=DAY))  # no notification: it is looked up
            passed = loop.time() - began
    assert State.SUCCESSFUL == entry.state
    assert 60 <= passed < 600
    assert abs(loop.time() - time.monotonic()) < 30


@contextmanager
def elsewhere() -> Iterator[Sandbox]:
    """A service in an event loop of another thread, which needs a moment of real time for each answer."""
    made: SimpleQueue[tuple[Sandbox, asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()

    async def serve() -> None:
        async with Sandbox() as sandbox:
            sandbox.script(Fault.SLOW, times=None, on="transactions", seconds=0.02)
            ended = asyncio.Event()
            made.put((sandbox, asyncio.get_running_loop(), ended))
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    sandbox, loop, ended = made.get(timeout=30)
    try:
        yield sandbox
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


async def test_pages_of_a_list_that_are_under_way(payments_clock: VirtualClock) -> None:
    """Reading a list in an asynchronous generator is an exchange under way: the clock never overtakes it."""
    with elsewhere() as sandbox:
        credentials = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
        async with PaymentsSession(
            sandbox.base_url, credentials, testing=Testing(clock=payments_clock.monotonic, now=payments_clock.time)
        ) as session:

            async def read() -> int:
                since = payments_clock.now().date()
                return len([one async for one in session.transactions.iterate(since=since, until=since)])

            began = payments_clock.monotonic()
            assert 0 == await payments_clock.until(read())
            assert payments_clock.monotonic() - began < 5  # of the computer's own time, and none of the clock's


async def test_a_clock_that_is_not_open() -> None:
    """It cannot be moved: nothing would hear of it."""
    with pytest.raises(RuntimeError, match="not open in this loop"):
        await VirtualClock().advance(1)


async def test_two_clocks_in_one_loop(payments_clock: VirtualClock) -> None:
    """A loop has one time."""
    with pytest.raises(RuntimeError, match="another virtual clock"):
        await VirtualClock().__aenter__()
