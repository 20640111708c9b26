"""One process settles for all: whoever has the duty, until it stops, hangs or dies."""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest
from bulk.worlds import session
from outbox.waiting import OUTBOX, Waiting, waiting

from payments_async.journal import SqliteJournal, State
from payments_async.outbox._settling import Settler
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing

TESTS = Path(__file__).parent.parent


async def lose_an_answer(here: Waiting, number: int) -> None:
    """An order that the service has, and of which nobody knows."""
    here.sandbox.script(Fault.LOST_AFTER, on="payout")
    await here.send(number)


async def until(is_so: Callable[[], Awaitable[bool]], here: Waiting | None = None) -> None:
    """Wait for something to be so; where everything goes by a clock of its own, that goes on meanwhile."""
    async with asyncio.timeout(60):
        while not await is_so():
            if here is not None:
                here.clock.advance(0.25)
            await asyncio.sleep(0.01)


def settler_of(here: Waiting, journal: SqliteJournal, name: str) -> Settler:
    """Another one for the same outbox, by the same clock."""
    return Settler(
        here.payments, journal, OUTBOX, owner=name, clock=here.now, ticks=here.now, sleep=here.clock.sleep,
        chance=lambda: 0.5,
    )  # fmt: skip


@asynccontextmanager
async def running(*settlers: Settler) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Let them run."""
    tasks = [asyncio.ensure_future(settler.run()) for settler in settlers]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_settles_for_all_and_the_next_when_it_stops(tmp_path: Path) -> None:
    """Two run on one journal: one of them asks the service. Once that one is gone, the other does."""
    async with (
        waiting(tmp_path) as here,
        SqliteJournal(tmp_path / "journal.db", testing=Testing(now=here.now)) as first,
        SqliteJournal(tmp_path / "journal.db", testing=Testing(now=here.now)) as second,
    ):
        one, other = settler_of(here, first, "one"), settler_of(here, second, "other")

        async def has_settled(*settlers: Settler) -> bool:
            passes = [(await settler.progress()).last for settler in settlers]
            return {State.ACCEPTED: 1} in [one.settled for one in passes if one is not None]

        async with running(one, other) as tasks:
            await lose_an_answer(here, 0)
            await until(partial(has_settled, one, other), here)
            facts = [await settler.progress() for settler in (one, other)]
            assert [(False, True), (True, False)] == sorted((fact.is_here, fact.last is None) for fact in facts)
            busy = facts[1].is_here
            tasks[busy].cancel()
            await asyncio.gather(tasks[busy], return_exceptions=True)
            await lose_an_answer(here, 1)
            next_ = (one, other)[not busy]
            await until(partial(has_settled, next_), here)
            assert (await next_.progress()).is_here
            assert {"accepted": 2} == await here.states()


async def test_a_duty_that_was_lost_ends_the_work(tmp_path: Path) -> None:
    """Who hung for longer than its lease finds it with another, and asks no more until it is free again."""
    async with waiting(tmp_path) as here, running(here.settler):

        async def is_here() -> bool:
            return (await here.settler.progress()).is_here

        async def is_gone() -> bool:
            return not await is_here()

        await until(is_here, here)
        await here.journal.leave_duty(f"settling {OUTBOX}", "here")
        async with SqliteJournal(tmp_path / "journal.db", testing=Testing(now=here.now)) as journal:
            assert await journal.take_duty(f"settling {OUTBOX}", "another", lease=1e6)
            await until(is_gone, here)
        await until(is_here, here)


async def test_a_kick_wakes_it(tmp_path: Path) -> None:
    """An order that became unknown in this process is not waited for by the look at the journal."""
    async with waiting(tmp_path) as here:

        async def sleep(seconds: float) -> None:
            if seconds > 1.0:
                await asyncio.Event().wait()

        settler = Settler(here.payments, here.journal, OUTBOX, owner="x", clock=here.now, ticks=here.now, sleep=sleep)

        async def has_looked() -> bool:
            settler.kick()
            return (await settler.progress()).last is not None

        await lose_an_answer(here, 0)
        here.clock.advance(5.0)
        async with running(settler):
            await until(has_looked)
        assert {"accepted": 1} == await here.states()


async def test_a_journal_that_is_closed_ends_it(tmp_path: Path) -> None:
    """Whoever closes the journal first waits for nobody, and meets no error."""
    async with waiting(tmp_path) as here, running(here.settler) as (task,):

        async def is_over() -> bool:
            return task.done()

        await here.journal.aclose()
        await until(is_over, here)
        assert task.exception() is None


@pytest.mark.slow
async def test_a_journal_that_is_held_for_a_while(tmp_path: Path) -> None:
    """Somebody else writes for minutes: that is said, and what waits is settled when the file is free again."""
    path = tmp_path / "journal.db"
    async with (
        waiting(tmp_path) as here,
        SqliteJournal(path, testing=Testing(now=here.now), busy_timeout=0.01) as journal,
    ):
        settler = settler_of(here, journal, "hindered")
        await lose_an_answer(here, 0)

        async def is_hindered() -> bool:
            return (await settler.progress()).hinders is not None

        async def is_off_duty() -> bool:
            return not (await settler.progress()).is_here

        async def is_settled() -> bool:
            return "unknown" not in await here.states()

        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with running(settler):
                await until(is_hindered, here)
                other.execute("ROLLBACK")
                await until(is_settled, here)
                await lose_an_answer(here, 1)
                other.execute("BEGIN IMMEDIATE")
                await until(is_off_duty, here)  # what it cannot prolong may be another's soon
                other.execute("ROLLBACK")
                await until(is_settled, here)


@asynccontextmanager
async def settling(path: Path, sandbox: Sandbox) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that has the duty for an hour; killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(TESTS / "outbox/settling_process.py"), str(path), sandbox.base_url, sandbox.app_key,
        sandbox.app_password, sandbox.user_id, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert b"here\n" == await process.stdout.readline()
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


@pytest.mark.slow
async def test_another_process_goes_on_when_one_is_killed(tmp_path: Path) -> None:
    """It settles as long as it lives; the next one takes over long before its lease ends."""
    path = tmp_path / "journal.db"
    async with (
        Sandbox(processing_delay=3600.0) as sandbox,
        SqliteJournal(path) as journal,
        session(sandbox) as payments,
    ):
        settler = Settler(payments, journal, OUTBOX, owner="the next")
        here = Waiting(sandbox, payments, journal, None, settler)  # type: ignore[arg-type]  # the computer's clock

        async def is_settled() -> bool:
            return "unknown" not in await here.states()

        async with running(settler):
            pass  # nobody has it
        async with settling(path, sandbox), running(settler):
            await lose_an_answer(here, 0)
            await until(is_settled)
            assert (False, None) == (
                (await settler.progress()).is_here, (await settler.progress()).last
            )  # fmt: skip
        await lose_an_answer(here, 1)
        async with running(settler):
            await until(is_settled)
            assert (await settler.progress()).is_here
