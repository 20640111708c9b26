"""A standby that lagged behind takes the place of the server that died: what it does not know of is not sent again."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from bulk.worlds import payout, session
from journal.lines import Line, address_of, by_line, line_to_database
from journal.postgres import OwnServer, place_for
from nested import for_journal
from outbox.desks import A_MINUTE, Desk, until

from payments_async.bulk import ReconcileSettings, lift_quarantine, reconcile, send_again_all
from payments_async.journal import Journal, PostgresJournal, State
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Sandbox

pytestmark = pytest.mark.slow
COUNT = 400  # orders of the batch
SOME = 80  # carried out before the standby hears nothing any more, and as many before the other one dies


@pytest.fixture
def primary() -> Iterator[OwnServer]:
    """A server."""
    server = OwnServer(place_for("first"))
    yield server
    server.remove()


@pytest.fixture
def standby(primary: OwnServer) -> Iterator[OwnServer]:
    """Another one, which follows it."""
    server = primary.standby(place_for("second"))
    yield server
    server.remove()


@pytest.fixture
async def line(primary: OwnServer) -> AsyncIterator[Line]:
    """The line to whichever is in charge."""
    async with line_to_database(primary.dsn) as line:
        yield line


def receiver_of(standby: OwnServer) -> int:
    """The process that hears of commits."""
    with psycopg.connect(standby.dsn) as connection:
        found = connection.execute("SELECT pid FROM pg_stat_wal_receiver").fetchone()
    assert found is not None
    return int(found[0])


@asynccontextmanager
async def at_work(service: Sandbox, dsn: str, **options: Any) -> AsyncIterator[Desk]:
    """A machine that works the outbox."""
    async with (
        PostgresJournal(dsn, **for_journal(options)) as journal,
        session(service) as payments,
        Outbox(payments, journal, concurrency=8, worker=WorkerSettings(grace=0.0)) as outbox,
    ):
        yield Desk(service, payments, journal, outbox)


async def lose_some(primary: OwnServer, standby: OwnServer, here: Desk) -> None:
    """Have the standby lag behind by many orders, and the server die."""

    async def are_carried_out(count: int) -> None:
        assert count < COUNT
        while len(here.sandbox.ledger) < count:  # noqa: ASYNC110 - the service has no event to wait for
            await asyncio.sleep(0.01)

    receiver = await asyncio.to_thread(receiver_of, standby)  # before, for meanwhile all of them are carried out
    await here.outbox.put_batch("salaries", [payout(number) for number in range(COUNT)])
    await are_carried_out(SOME)
    os.kill(receiver, signal.SIGSTOP)
    await are_carried_out(len(here.sandbox.ledger) + SOME)
    await asyncio.to_thread(primary.stop, "immediate")
    os.kill(receiver, signal.SIGCONT)  # what it has not heard by now nobody tells it any more


async def end_well(here: Desk) -> None:
    """Nothing of the batch is sent before it was looked for; then the rest is, and each is carried out once.

    Where the server died between a permit and its answer the order never left, and the standby may know the permit: no
    list shows such an order, and a person has it sent.
    """
    assert SOME < len(here.executions()) < COUNT
    await until(lambda: _is_quarantined(here.journal), True)
    sent = here.executions()
    await here.outbox.pay(payout(COUNT), timeout=A_MINUTE)  # what is put from now on is sent
    assert [*sent, payout(COUNT).request_id] == here.executions()
    await reconcile(here.payments, here.journal, settings=ReconcileSettings(grace=0.0, interval=0.0))
    assert 1 == await lift_quarantine(here.journal, "salaries", "Ann", "looked for")
    await until(lambda: _in_hand(here), 0)
    parked = [entry.request_id async for entry in here.journal.entries("salaries", State.PARKED)]
    assert set(parked).isdisjoint(here.executions())
    await send_again_all(here.journal, parked, "Ann", "in no list of the service")
    await until(lambda: _count(here), COUNT + 1)
    await until(lambda: _in_hand(here), 0)
    await here.check(COUNT + 1)


async def _is_quarantined(journal: Journal) -> bool:
    return bool((await journal.run("salaries")).quarantined)


async def _in_hand(here: Desk) -> int:
    """How many orders are neither accepted, nor at their end, nor parked."""
    return sum([(await here.states()).get(state, 0) for state in ("planned", "sending", "unknown")])


async def _count(here: Desk) -> int:
    return len(here.sandbox.ledger)


async def test_whoever_worked_all_the_time(
    primary: OwnServer, standby: OwnServer, line: Line, service: Sandbox
) -> None:
    """Finds itself at a server that calls itself otherwise, and grants nothing more."""
    async with at_work(service, by_line(primary.dsn, line), busy_timeout=A_MINUTE) as here:
        await lose_some(primary, standby, here)
        await asyncio.to_thread(standby.promote)
        line.lead_to(address_of(standby.dsn))
        await end_well(here)


async def test_a_machine_that_remembers_nothing(primary: OwnServer, standby: OwnServer, service: Sandbox) -> None:
    """Sees it by what the journal itself remembers of its server."""
    async with at_work(service, primary.dsn, busy_timeout=0.1) as here:
        await lose_some(primary, standby, here)
    await asyncio.to_thread(standby.promote)
    async with at_work(service, standby.dsn, state_folder=None) as here:
        await end_well(here)
