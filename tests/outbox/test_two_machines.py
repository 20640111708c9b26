"""An outbox in PostgreSQL, shared by machines that know of each other by nothing but the database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from bulk.worlds import payout, session
from journal import postgres
from outbox.desks import A_MINUTE, ids

from payments_async.ipn import Receiver, serving
from payments_async.journal import Entry, PostgresJournal, State
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Fault, Sandbox


@pytest.fixture
def schema() -> Iterator[str]:
    """An empty namespace."""
    yield postgres.new_schema()
    postgres.give_back()


@pytest.fixture
def machines(schema: str, tmp_path: Path) -> list[PostgresJournal]:
    """The journal as two machines have it, each with a memory of its own."""
    return [PostgresJournal(postgres.dsn(), schema=schema, state_folder=tmp_path / name) for name in ("one", "two")]


async def test_what_one_machine_was_told_another_one_hears(machines: list[PostgresJournal], service: Sandbox) -> None:
    """One puts, pays and waits; the notification comes to the other one, and is the only way to hear of it."""
    one, two = machines
    async with one, two, session(service) as payments:
        receiver = Receiver(two, senders=["127.0.0.1"])
        async with (
            serving(receiver, port=0) as (host, port),
            Outbox(payments, one, worker=WorkerSettings(settles=False)) as outbox,
        ):
            service.ipn_url = f"http://{host}:{port}/ipn"
            paid = await outbox.pay(payout(0), timeout=A_MINUTE)
            assert paid.state in (State.ACCEPTED, State.SUCCESSFUL)
            waiting = asyncio.ensure_future(outbox.settled(payout(0).request_id, timeout=A_MINUTE))
            await service.settle()
            assert State.SUCCESSFUL is (await waiting).state


async def test_what_one_machine_puts_another_one_sends(machines: list[PostgresJournal], service: Sandbox) -> None:
    """Once, though both ask for the same; whoever waits for a change hears of it, by whomever it came."""
    one, two = machines
    async with one, two, session(service) as payments, session(service) as others:
        service.script(Fault.SLOW, on="money", seconds=0.2)
        told: asyncio.Queue[Entry] = asyncio.Queue()
        putting = Outbox(payments, one, worker=None)
        putting.on(State.ACCEPTED)(told.put)
        async with putting, Outbox(others, two, worker=WorkerSettings(settles=False)) as working:
            paid = await asyncio.gather(
                *(outbox.pay(payout(number), timeout=A_MINUTE) for outbox in (putting, working) for number in range(20))
            )
            assert {State.ACCEPTED} == {entry.state for entry in paid}
            async with asyncio.timeout(A_MINUTE):
                heard = [await told.get() for _ in range(20)]
        assert ids(range(20)) == sorted((entry.request_id for entry in heard), key=ids(range(20)).index)
        assert (20, []) == (len(service.ledger), service.duplicates())
