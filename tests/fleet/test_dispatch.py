"""What is promised of whoever hands out the chunks of batches: the outboxes by themselves, or PGQueuer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from bulk.worlds import payout
from fleet.machines import Dispatch, clerk
from outbox.desks import until

from payments_async import PayoutOrder
from payments_async.journal import PostgresJournal, State
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, Sandbox


def batch(number: int, size: int = 5) -> list[PayoutOrder]:
    """The orders of one batch."""
    return [payout(number * 1000 + one) for one in range(size)]


async def put(dispatch: Dispatch, outbox: Outbox, *numbers: int) -> None:
    """Put batches."""
    for number in numbers:
        await dispatch.put(outbox, f"batch {number}", batch(number))


def accepted(journal: PostgresJournal) -> Callable[[], Awaitable[int]]:
    """How many orders were accepted."""

    async def look() -> int:
        return (await journal.progress(outbox="outbox")).counts[State.ACCEPTED]

    return look


@pytest.mark.slow(covered=True)
async def test_two_machines_share_what_a_third_one_puts(
    dispatch: Dispatch, journals: list[PostgresJournal], service: Sandbox
) -> None:
    """Before they begin and while they work: each order is sent once."""
    one, two, three = journals
    async with clerk(service, three) as putting:
        await put(dispatch, putting, 0, 1, 2)
        async with dispatch.machine(service, one), dispatch.machine(service, two):
            await put(dispatch, putting, 3, 4, 5)
            await until(accepted(three), 30)
    assert (30, []) == (len(service.ledger), service.duplicates())


async def test_single_orders_are_sent_beside(
    dispatch: Dispatch, journals: list[PostgresJournal], service: Sandbox
) -> None:
    """By a machine that hears of them, whoever put them."""
    one, two, _ = journals
    async with clerk(service, two) as putting, dispatch.machine(service, one) as machine:
        await put(dispatch, putting, 0)
        await putting.put(payout(9001))
        await machine.outbox.put(payout(9002))
        await until(accepted(two), 7)
    assert (7, []) == (len(service.ledger), service.duplicates())


@pytest.mark.slow
async def test_what_a_machine_leaves_behind_another_one_sends(
    dispatch: Dispatch, journals: list[PostgresJournal]
) -> None:
    """It finishes what is under way and gives back the rest, which nobody waits for a lease for."""
    one, two, three = journals
    async with Sandbox() as sandbox:
        async with clerk(sandbox, three) as putting:
            await dispatch.put(putting, "batch", batch(0, 40))
            sandbox.script(Fault.SLOW, on="money", seconds=0.05)
            async with dispatch.machine(sandbox, one, concurrency=1) as machine:
                while len(sandbox.ledger) < 3:  # noqa: ASYNC110 - the service tells nobody
                    await asyncio.sleep(0.01)
                await machine.leave()
            left = 40 - len(sandbox.ledger)
            assert (True, left) == (left > 0, (await three.progress("batch")).counts[State.PLANNED])
            async with dispatch.machine(sandbox, two):
                await until(accepted(three), 40)
        assert (40, []) == (len(sandbox.ledger), sandbox.duplicates())


@pytest.mark.slow
async def test_a_paused_outbox_waits_for_a_person(
    dispatch: Dispatch, journals: list[PostgresJournal], service: Sandbox
) -> None:
    """Batches that come meanwhile as well."""
    one, _, three = journals
    async with clerk(service, three) as putting:
        await put(dispatch, putting, 0)
        await putting.pause("A. Clerk", "the account is checked")
        async with dispatch.machine(service, one) as machine:
            await put(dispatch, putting, 1)
            await until(lambda: _paused(machine.outbox), "A. Clerk")
            assert 0 == len(service.ledger)
            await putting.resume("A. Clerk", "it was checked")
            await until(accepted(three), 10)
    assert (10, []) == (len(service.ledger), service.duplicates())


async def _paused(outbox: Outbox) -> str | None:
    paused = (await outbox.health()).problem("paused")
    return None if paused is None else paused.subjects[0]
