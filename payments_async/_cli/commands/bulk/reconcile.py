"""`payments-async bulk reconcile`: what is open, settled by what the service shows."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated

import attrs
import typer

from payments_async._cli.batch_state import (
    UNFORTUNATE,
    currency_of,
    exit_after,
    progress_document,
    show_progress,
    tell_next,
)
from payments_async._cli.exit_codes import Exit
from payments_async._cli.journal import AnyBatch, JournalFile, chosen_batch, opened
from payments_async._cli.program import command_line
from payments_async._cli.screen import Screen, counted, money, quoted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.working import working
from payments_async.bulk import Reconciliation, SearchProgress, reconcile
from payments_async.journal import Journal, JournalError, Progress, State

_LOOKED_FOR = (State.ACCEPTED, State.UNKNOWN, State.PARKED)
_LOOK = 1.0  # seconds between two looks into the journal


async def bulk_reconcile(
    screen: Screen,
    settings: ConnectionSettings,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds in which a sent order may still show up.")] = 900.0,
    sweeps: Annotated[int, typer.Option(min=2, help="Clean looks through the list before an order is parked.")] = 2,
    interval: Annotated[float, typer.Option(min=0, help="Seconds between them.")] = 60.0,
    reversals: Annotated[bool, typer.Option("--reversals", help="Also look for successful orders reversed.")] = False,
) -> Exit:
    """Settle what is open by what the service shows. Sends nothing; what it cannot find is parked for a person.

    Example: payments-async bulk reconcile --journal payroll.sqlite --batch-id payroll-2026-11
    """
    async with opened(journal) as held, settings.session() as payments:
        name = None if batch_id is None else await chosen_batch(held, batch_id)
        before = await held.progress(name)
        runs = await held.runs()
        quarantined = [run.batch_id for run in runs if run.quarantined and name in (None, run.batch_id)]
        if quarantined:
            screen.note(
                f"{', '.join(quarantined)}: in quarantine, since the journal was copied or restored; all "
                "orders are looked for in all days since they were written down, also those that seem not to be sent"
            )
        screen.note(
            f"looking for {before.counts[State.ACCEPTED]:,} accepted and {before.counts[State.UNKNOWN]:,} unknown "
            f"orders; an order that is not found is looked for {sweeps} times, {interval:g} s apart"
        )
        view = _Search(before)
        async with working(screen, view.words, payments), view.following(held, name):
            found = await reconcile(
                payments,
                held,
                name,
                grace=grace,
                sweeps=sweeps,
                interval=interval,
                reversals=reversals,
                progress=view.take,
            )
        progress = await held.progress(name)
        only = name or (runs[0].batch_id if len(runs) == 1 else None)
        currency = None if only is None else await currency_of(held, only)
        liftable = [one for one in quarantined if await held.is_looked_for(one, counted=True)]
    _show(screen, found)
    show_progress(screen, progress, currency)
    assert journal is not None
    if progress.conflicts or any(progress.counts[state] for state in (State.PARKED, *UNFORTUNATE)):
        tell_next(screen, progress, journal, name)
    for one in liftable:
        screen.say(f"\nBatch {quoted(one)} was looked for; what the list did not show may be sent again:")
        screen.command(f"{command_line('bulk lift-quarantine', journal=journal, batch_id=one)} --who NAME --why REASON")
        screen.say("A list may show an order minutes late: if one may have been sent just now, reconcile again first.")
    status = exit_after(progress, quarantined=len(quarantined))
    if found.unread:
        status = Exit.STOPPED
        screen.trouble(
            "; ".join(found.unread), f"go on with: {command_line('bulk reconcile', journal=journal, batch_id=name)}"
        )
    strangers = [{"transaction_id": one.transaction_id, "request_id": one.request_id} for one in found.strangers]
    known = {**attrs.asdict(found, recurse=False), "strangers": strangers}  # whose records name people
    screen.document({**known, "progress": progress_document(progress), "exit_status": status})
    return status


class _Search:
    """How far a reconciliation is, in words."""

    def __init__(self, before: Progress) -> None:
        self._before = self._now = _open(before)
        self._search = SearchProgress()
        self._waits_until = 0.0

    def take(self, search: SearchProgress) -> None:
        """Take news of the search."""
        self._search = search
        self._waits_until = time.monotonic() + search.waits

    @asynccontextmanager
    async def following(self, journal: Journal, name: str | None) -> AsyncIterator[None]:
        """Look into the journal how many orders are left, for as long as the block runs."""

        async def follow() -> None:
            while True:
                await asyncio.sleep(_LOOK)
                with suppress(JournalError):  # whoever needs the journal complains of it
                    self._now = _open(await journal.progress(name))

        task = asyncio.create_task(follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()  # a broken display says so

    def words(self) -> str:
        """What is done now, and how much of it."""
        if self._search.waits:
            return f"reading the list again in {max(0.0, self._waits_until - time.monotonic()):.0f} s"
        done = [counted(self._search.pages, "page"), counted(self._search.records, "transaction")]
        return f"looking: {done[0]} of lists, {done[1]} one by one; {self._now:,} of {self._before:,} orders open"


def _open(progress: Progress) -> int:
    return sum(progress.counts[state] for state in _LOOKED_FOR)


def _show(screen: Screen, found: Reconciliation) -> None:
    settled = ", ".join(f"{count:,} {state}" for state, count in found.settled.items() if count)
    screen.say(f"settled: {settled or 'nothing'}\n")
    if found.found:
        screen.say(f"already there, unknown to this journal, and not sent: {counted(found.found, 'order')}\n")
    differences = [
        f"{one.request_id}: {money(one.ours, one.our_currency)} here, {money(one.theirs, one.their_currency)} there"
        for one in found.differences
    ]
    doubles = [f"{one.request_id}: {', '.join(one.transaction_ids)}" for one in found.doubles]
    strangers = [f"{one.transaction_id} ({one.request_id or 'no request id'})" for one in found.strangers]
    lists: Mapping[str, Sequence[str]] = {
        "parked now: not found, a person has to decide": found.parked,
        "still unknown: never send them again": found.unknown,
        "in conflict: evidence contradicts": found.conflicts,
        "accepted long ago and not final: ask the service": found.stuck,
        "amounts that differ": differences,
        "more than one transaction: it may have been paid twice; ask the service": doubles,
        f"{counted(found.strangers_seen, 'transaction')} that this journal never sent": strangers,
    }
    for title, lines in lists.items():
        if lines:
            screen.listing(f"[bold]{title}[/]", lines, len(lines))
            screen.say()
    for note in found.notes:
        if note not in found.unread:  # that is said at the end
            screen.note(note)
