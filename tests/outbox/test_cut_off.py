"""A process whose own network is down: what it has not begun is sent by another one, and mended it goes on."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from bulk.worlds import payout, session
from outbox.desks import A_MINUTE, until

from payments_async.journal import SqliteJournal
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Fault, ManualClock, Sandbox


class Cable(aiohttp.TCPConnector):
    """The way of one process to the service, which can be cut."""

    is_cut = False

    async def connect(self, *asked: Any, **how: Any) -> Any:
        """No connection is had while it is cut."""
        if self.is_cut:
            raise aiohttp.ClientConnectionError("the network is unreachable")
        return await super().connect(*asked, **how)


class Clock:
    """Slow at first: however busy the machine is, ten seconds of silence go by when they are told to."""

    def __init__(self) -> None:
        self.began, self.ahead = time.monotonic(), 0.0

    def __call__(self) -> float:
        passed = time.monotonic() - self.began
        return passed + self.ahead if self.ahead else passed / 100


async def soon(seconds: float) -> None:
    """Wait for a part of the time."""
    await asyncio.sleep(seconds / 20)


async def test_a_process_without_a_network(tmp_path: Path) -> None:
    """Another one sends what it had put into its own hands, long before its leases end; mended, it sends again."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox())
        cable = Cable()
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=cable))
        journals = [await stack.enter_async_context(SqliteJournal(tmp_path / "journal.db")) for _ in range(2)]
        cut_off = await stack.enter_async_context(session(sandbox, http=http, clock=clock, sleep=soon))
        whole = await stack.enter_async_context(session(sandbox))
        one = await stack.enter_async_context(
            Outbox(cut_off, journals[0], worker=WorkerSettings(lease=3600.0, settles=False))
        )
        await one.pay(payout(0), timeout=A_MINUTE)
        cable.is_cut = True
        for number in range(1, 6):
            await one.put(payout(number))
        await until(lambda: _hears_nothing(one), True)
        other = await stack.enter_async_context(
            Outbox(whole, journals[1], worker=WorkerSettings(lease=3600.0, settles=False))
        )
        await other.pay(payout(6), timeout=A_MINUTE)
        assert 2 == len(sandbox.ledger)  # the others are leased, for an hour
        clock.ahead = 60.0
        for number in range(1, 6):
            assert "accepted" == (await other.pay(payout(number), timeout=A_MINUTE)).state
        assert "accepted" == (await one.pay(payout(7), timeout=A_MINUTE)).state
        assert "nothing was answered" in (await one.health()).problems[0].what
        await other.aclose()
        cable.is_cut = False
        assert "accepted" == (await one.pay(payout(8), timeout=A_MINUTE)).state
        assert (await one.health()).is_well
        assert [] == sandbox.duplicates()
        assert 9 == len(sandbox.ledger)


@pytest.mark.parametrize("is_gone", [False, True], ids=["one-answer-lost", "the-network-gone"])
async def test_silence_where_nothing_was_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture, is_gone: bool) -> None:
    """Once the last answer was lost, ten quiet seconds say nothing: a question of our own tells what is true."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox())
        cable = Cable()
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=cable))
        journal = await stack.enter_async_context(SqliteJournal(tmp_path / "journal.db"))
        payments = await stack.enter_async_context(session(sandbox, http=http, clock=clock, sleep=soon))
        one = await stack.enter_async_context(Outbox(payments, journal, worker=WorkerSettings(settles=False)))
        sandbox.script(Fault.LOST_AFTER, on="payout")
        await one.put(payout(1))
        await until(lambda: _hears_nothing(one), True)
        await until(lambda: _has_in_hand(one), 0)
        cable.is_cut, clock.ahead = is_gone, 60.0
        if is_gone:
            await until(lambda: _cut_off_in(caplog), True)
            assert "nothing was answered" in (await one.health()).problems[0].what
            cable.is_cut = False
        await until(lambda: _hears_nothing(one), False)
        assert "accepted" == (await one.pay(payout(2), timeout=A_MINUTE)).state
        assert is_gone is await _cut_off_in(caplog)
        assert [] == sandbox.duplicates()
        assert 2 == len(sandbox.ledger)


async def test_an_answer_that_comes_while_the_process_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To an order that was under way: the outbox sends again, though each question of its own came to nothing."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(clock=ManualClock()))
        cable = Cable()
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=cable))
        journal = await stack.enter_async_context(SqliteJournal(tmp_path / "journal.db"))
        payments = await stack.enter_async_context(session(sandbox, http=http, clock=clock, sleep=soon))
        one = await stack.enter_async_context(Outbox(payments, journal, worker=WorkerSettings(settles=False)))
        await one.pay(payout(0), timeout=A_MINUTE)
        sandbox.script(Fault.SLOW, on="payout", seconds=3.0)
        slow = asyncio.create_task(one.pay(payout(1), timeout=A_MINUTE))
        await until(lambda: _executions(sandbox), 2)
        cable.is_cut = True
        await one.put(payout(2))
        await until(lambda: _hears_nothing(one), True)
        clock.ahead = 60.0
        await until(lambda: _cut_off_in(caplog), True)
        await sandbox.advance(3.0)
        assert "accepted" == (await slow).state
        await until(lambda: _hears_nothing(one), False)
        cable.is_cut = False
        assert "accepted" == (await one.pay(payout(3), timeout=A_MINUTE)).state
        assert [] == sandbox.duplicates()


async def _executions(sandbox: Sandbox) -> int:
    await asyncio.sleep(0)
    return len(sandbox.ledger)


async def _cut_off_in(caplog: pytest.LogCaptureFixture) -> bool:
    await asyncio.sleep(0)
    return "sends nothing: nothing was answered" in caplog.text


async def _has_in_hand(outbox: Outbox) -> int:
    await asyncio.sleep(0)
    pool = outbox._sender.pool
    return -1 if pool is None else pool.leases.open


async def _hears_nothing(outbox: Outbox) -> bool:
    await asyncio.sleep(0)
    pool = outbox._sender.pool
    return pool is not None and pool.pace.silent_since is not None
