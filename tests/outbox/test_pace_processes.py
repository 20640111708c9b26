"""The pace of all, with processes of their own: three at one rate, one that is killed, one that is told to wait."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta

import attrs
import pytest
from bulk.worlds import payout
from journal import postgres
from outbox import pace_process
from outbox.desks import A_MINUTE, until

from payments_async.journal import Journal, PostgresJournal
from payments_async.journal.contract import SharedRate
from payments_async.outbox._brakes import MOMENT
from payments_async.sandbox import Fault, Sandbox

pytestmark = pytest.mark.slow


@pytest.fixture
def place() -> Iterator[tuple[str, str]]:
    """The database and the namespace of the journal; a file's statements are the same: `test_contract_pace.py`."""
    yield postgres.dsn(), postgres.new_schema()
    postgres.give_back()


def journal_at(place: tuple[str, str]) -> PostgresJournal:
    """The journal, as this process opens it."""
    dsn, schema = place
    return PostgresJournal(dsn, schema=schema)


@attrs.define
class Payer:
    """A process that pays."""

    process: asyncio.subprocess.Process

    async def says(self, word: str) -> None:
        """Wait until it has come so far."""
        assert self.process.stdout is not None
        async with asyncio.timeout(2 * A_MINUTE):
            assert f"{word}\n".encode() == await self.process.stdout.readline()

    def go_on(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")


@asynccontextmanager
async def payer(
    sandbox: Sandbox, place: tuple[str, str], *, rate: float = 0.0, first: int = 0, count: int = 0
) -> AsyncIterator[Payer]:
    """One that is ready; it is killed in the end."""
    who = (sandbox.base_url, sandbox.app_key, sandbox.app_password, sandbox.user_id)
    begun = await asyncio.create_subprocess_exec(
        *(sys.executable, pace_process.__file__, *who, str(rate), str(first), str(count), *place),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        one = Payer(begun)
        await one.says("here")
        yield one
    finally:
        if begun.returncode is None:
            begun.kill()
        await begun.wait()


def sent_at(sandbox: Sandbox) -> list[datetime]:
    """When each payout came to the service."""
    return [one.at for one in sandbox.requests if one.method == "POST" and "payouts" in one.path]


async def paused(journal: Journal) -> SharedRate:
    """The pace, once all were told to wait."""

    async def cools() -> bool:
        return (await journal.pace()).cools_until is not None

    await until(cools, True)
    return await journal.pace()


async def test_three_processes_at_one_rate(place: tuple[str, str], service: Sandbox) -> None:
    """Each order has its turn of the same row, whoever sends it: 150 at 75 a second take two seconds or longer."""
    rate, count = 75.0, 50
    async with AsyncExitStack() as stack:
        payers = [
            await stack.enter_async_context(payer(service, place, rate=rate, first=count * number, count=count))
            for number in range(3)
        ]
        begun = time.monotonic()
        for one in payers:
            one.go_on()
        for one in payers:
            await one.says("done")
        seconds = time.monotonic() - begun
        assert (3 * count - 1) / rate - MOMENT <= seconds
        assert (3 * count, []) == (len(service.ledger), service.duplicates())


async def test_a_process_that_is_killed_with_turns_in_hand(place: tuple[str, str], service: Sandbox) -> None:
    """Nobody waits for it, and the rate that it asked for counts no more as soon as it is known to be dead."""
    async with journal_at(place) as journal:
        async with payer(service, place, rate=20.0, first=0, count=60) as killed:
            killed.go_on()
            await until(lambda: asyncio.to_thread(lambda: len(service.ledger) > 0), True)
            killed.process.kill()
            await killed.process.wait()

        async def rate() -> float | None:
            return (await journal.request_rate("here", 300.0, lease=30.0)).rate

        await until(rate, 300.0)
        async with payer(service, place, rate=300.0, first=2000, count=20) as other:
            other.go_on()
            await other.says("done")
        assert [] == service.duplicates()


async def test_a_process_that_is_told_to_wait(place: tuple[str, str], service: Sandbox) -> None:
    """The other process sends nothing from a moment later on until the pause is over; then both go on."""
    pause = timedelta(seconds=3)
    async with (
        journal_at(place) as journal,
        payer(service, place, first=0, count=1) as one,
        payer(service, place, rate=50.0, first=1000, count=250) as other,
    ):
        other.go_on()
        await until(lambda: asyncio.to_thread(lambda: len(service.ledger) > 20), True)
        service.script(Fault.RATE_LIMITED, on="money", seconds=pause.total_seconds(), request_id=payout(0).request_id)
        one.go_on()
        pace = await paused(journal)
        assert pace.cools_until is not None
        end = datetime.fromtimestamp(pace.cools_until).astimezone()
        await one.says("done")
        await until(lambda: asyncio.to_thread(lambda: any(at > end for at in sent_at(service))), True)
        within = [at for at in sent_at(service) if end - pause / 2 < at < end - timedelta(seconds=0.5)]
    assert [] == within
    assert [] == service.duplicates()
