"""Batches and the journal: what goes by place and what by keyword, and what comes back."""

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import assert_type

from payments_async import PaymentsSession, PayoutOrder
from payments_async.bulk import (
    Batch,
    Comparison,
    FileFormat,
    Fuse,
    Guess,
    Plan,
    PlanSettings,
    ReconcileSettings,
    Reconciliation,
    RunSettings,
    plan,
    read_batch,
    reconcile,
    run_batch,
    send_again,
)
from payments_async.journal import Entry, Journal, SqliteJournal, State


async def run(payments: PaymentsSession, path: Path, orders: Iterable[PayoutOrder]) -> None:
    """Session, journal, batch and orders go by place, settings by keyword."""
    async with SqliteJournal(path) as journal:
        batch = await read_batch(path)
        assert_type(batch, Batch)
        assert_type(await plan(payments, batch, journal=journal), Plan)
        mapped = await read_batch(
            path, file=FileFormat(mapping={"name": "Employee Name"}), item="ITEM", guess_items=True
        )
        assert_type(mapped.guesses, tuple[Guess, ...])
        await read_batch(path, file=FileFormat(mapping=lambda headings: {"name": headings[0]}))
        await read_batch(path, file=FileFormat(mapping=["name"]))  # E: headings by column
        made = await plan(
            payments,
            batch,
            journal=journal,
            settings=PlanSettings(compare="october", max_each=Decimal(10**6), max_total=10**9),
        )
        assert_type(made.comparison, Comparison | None)
        PlanSettings(compare=mapped, compare_change=0.2)  # E: a float is not exact
        progress = await run_batch(payments, journal, "payroll", made, fuse=Fuse(max_total=Decimal(10**6)))
        assert_type(progress.counts[State.ACCEPTED], int)
        for state in progress.counts:
            assert_type(state, State)
        progress.counts["accepted"]  # E: a text is not a state
        await run_batch(payments, journal, "payroll", orders, settings=RunSettings(concurrency=5))
        await run_batch(payments, journal, "payroll", orders, 5)  # E: by keyword
        await run_batch(payments, "payroll", orders)  # E: no journal
        await run_batch(payments, journal, "payroll", [1, 2])  # E: numbers are no orders
        await plan(payments, batch, journal)  # E: by keyword
        assert_type(
            await reconcile(payments, journal, "payroll", settings=ReconcileSettings(grace=0.0)), Reconciliation
        )


async def looked_into(journal: Journal) -> None:
    """What is on disk."""
    assert_type(await journal.entry("r-1"), Entry | None)
    async for entry in journal.entries(state=State.PARKED):
        assert_type(entry.amount, Decimal)
        assert_type(await send_again(journal, entry.request_id, "G. Akello", "asked the service"), Entry)
    await send_again(journal, "r-1")  # E: who says so, and why
    assert (await journal.entry("r-1")).state  # E: it may hold no such order
