"""`payments-async bulk reconcile`: what is open, settled by what the service shows."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import attrs
import typer

from payments_async import PaymentsSession
from payments_async._cli.batch_state import (
    common_currency,
    exit_after,
    progress_document,
    show_progress,
    tell_next,
)
from payments_async._cli.exit_codes import Exit
from payments_async._cli.journal import AnyBatch, JournalFile, JournalPlace, chosen_batch, named, opened
from payments_async._cli.screen import LISTED, Screen, command_line, counted, duration, money, quoted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.telling import Notify, telling
from payments_async._cli.working import beside, working
from payments_async.bulk import ReconcileSettings, Reconciliation, SearchProgress, reconcile
from payments_async.journal import UNPAID, UNSETTLED, Journal, JournalError, Progress, Run, State

_SETTLED_BY_LOOKING = (State.ACCEPTED, State.UNKNOWN)  # a parked one waits for a person
_AGAIN = 900.0  # seconds after which an accepted order is worth another look
_ENOUGH = 1000  # unknown orders that are asked when they are due
_SOONEST, _LATEST = 2.0, 300.0  # seconds before the first look into the lists, and between two of them
_LOOK = 1.0  # seconds between two looks into the journal
_ROOM = 9  # lines of a screen of 25 for ids
_STRANGERS = "transactions that this journal never sent"


async def bulk_reconcile(
    screen: Screen,
    settings: ConnectionSettings,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds in which a sent order may still show up.")] = 900.0,
    list_scans: Annotated[int, typer.Option(min=2, help="Clean looks through the list before an order is parked.")] = 2,
    interval: Annotated[float, typer.Option(min=0, help="Seconds between them.")] = 60.0,
    reversals: Annotated[bool, typer.Option("--reversals", help="Also look for successful orders reversed.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again and again until all is settled, or Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option(min=1, help="With --watch: seconds between two looks.")] = 300.0,
    notify: Notify = None,
) -> Exit:
    """Settle what is open by what the service shows. Sends nothing; what it cannot find is parked for a person.

    It says when it is worth to come back. With --watch it does that by itself, until nothing is open that time or the
    service could settle; what needs a person stays.

    Example: payments-async bulk reconcile --journal payroll.sqlite --batch-id payroll-2026-11
    """
    journal = named(journal)
    told = telling(screen, notify, "bulk reconcile", batch_id=batch_id, journal=str(journal))
    async with told as teller, opened(journal) as held, settings.session() as payments:
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
            f"orders; an order that is not found is looked for {list_scans} times, {interval:g} s apart"
        )
        look = partial(
            reconcile,
            payments,
            held,
            name,
            settings=ReconcileSettings(grace=grace, list_scans=list_scans, interval=interval),
            reversals=reversals,
        )
        found = await _looked(screen, payments, held, name, look)
        while watch and (open_ := await _count_open(held, name)):
            teller.note_needs(await _needs(held, name))
            wait = _Wait(open_, every)
            async with working(screen, wait.words, payments):
                await asyncio.sleep(every)
            found = _together(found, await _looked(screen, payments, held, name, look))
        progress = await held.progress(name)
        again = await _come_back(held, name, grace, interval)
        currency = await common_currency(held, [run for run in runs if name in (None, run.batch_id)])
        looked_for = [await held.run(one) for one in quarantined]
        status = teller.ended(Exit.STOPPED if found.unread else exit_after(progress, quarantined=len(quarantined)))
        teller.facts |= {"stopped": "; ".join(found.unread) or None, "progress": progress_document(progress)}
    _show(screen, found)
    show_progress(screen, progress, currency)
    if again is not None:
        screen.say(f"\nWorth to look again: {_moment(again)}, or let it do that by itself with --watch.")
    if progress.conflicts or any(progress.counts[state] for state in (State.PARKED, *UNPAID)):
        tell_next(screen, progress, journal, name)
    _tell_quarantine(screen, looked_for, journal, grace, interval)
    if found.unread:
        screen.trouble(
            "; ".join(found.unread), f"go on with: {command_line('bulk reconcile', journal=journal, batch_id=name)}"
        )
    unknown_transactions = [
        {"transaction_id": one.transaction_id, "request_id": one.request_id} for one in found.unknown_transactions
    ]
    known = {
        **attrs.asdict(found, recurse=False),
        "strangers": unknown_transactions,  # whose records name people
        "progress": progress_document(progress),
        "look_again": None if again is None else datetime.fromtimestamp(again, UTC),
    }
    return screen.ended(status, known)


async def settle(
    screen: Screen, payments: PaymentsSession, journal: Journal, batch_id: str, stop: asyncio.Event
) -> None:
    """Wait for notifications, and look into the lists now and then, until no order of a batch may end by itself."""
    wait = _SOONEST
    while open_ := await _count_open(journal, batch_id):
        view, until = _Wait(open_, wait), time.monotonic() + wait
        async with working(screen, view.words, payments):
            while open_ and not stop.is_set() and time.monotonic() < until:
                await asyncio.sleep(min(_LOOK, max(0.0, until - time.monotonic())))
                view.open = open_ = await _count_open(journal, batch_id)
        if stop.is_set() or not open_:
            return
        await _looked(screen, payments, journal, batch_id, partial(reconcile, payments, journal, batch_id))
        wait = min(2 * wait, _LATEST)


async def _looked(
    screen: Screen,
    payments: PaymentsSession,
    journal: Journal,
    name: str | None,
    look: Callable[..., Awaitable[Reconciliation]],
) -> Reconciliation:
    """One reconciliation, while it is shown how far it is."""
    view = _Search(await journal.progress(name))
    async with working(screen, view.words, payments), view.following(journal, name):
        return await look(progress=view.take)


def _tell_quarantine(screen: Screen, runs: Sequence[Run], journal: JournalPlace, grace: float, interval: float) -> None:
    """Say which quarantines may be lifted now, or what is awaited."""
    awaiting: dict[str, list[str]] = {}
    for run in runs:
        if run.awaits is not None:
            awaiting.setdefault(run.awaits.words(grace, interval), []).append(run.batch_id)
            continue
        screen.say(f"\nBatch {quoted(run.batch_id)} was looked for; what the list did not show may be sent again:")
        line = command_line("bulk lift-quarantine", journal=journal, batch_id=run.batch_id)
        screen.command(f"{line} --who NAME --why REASON")
    for words, names in awaiting.items():
        which = f"Batch {names[0]} stays" if len(names) == 1 else f"Batches {', '.join(names)} stay"
        screen.say(f"\n{quoted(which)} in quarantine: {words}.")


async def _count_open(journal: Journal, name: str | None) -> int:
    """How many orders another look may settle."""
    counts = (await journal.progress(name)).counts
    waits = [run for run in await journal.runs() if run.quarantined and run.awaits and name in (None, run.batch_id)]
    return sum(counts[state] for state in _SETTLED_BY_LOOKING) + (counts[State.PLANNED] if waits else 0)


async def _needs(journal: Journal, name: str | None) -> dict[str, int]:
    """What no look will settle."""
    progress = await journal.progress(name)
    return {"parked": progress.counts[State.PARKED], "conflicts": progress.conflicts}


async def _come_back(journal: Journal, name: str | None, grace: float, interval: float) -> float | None:
    """When another look may settle more (Unix seconds): at once is of no use, for a list shows what is new late.

    ``None`` where no look can: all of it is final, or waits for a person.
    """
    moments = [time.time() + _AGAIN] if (await journal.progress(name)).counts[State.ACCEPTED] else []
    runs = await journal.runs()
    moments += [run.awaits.due(grace, interval) for run in runs if run.awaits and name in (None, run.batch_id)]
    async for entry in journal.entries(name, State.UNKNOWN):
        moments.append((entry.permitted_at or entry.updated_at) + grace)
        if len(moments) > _ENOUGH:
            break
    return max(min(moments), time.time() + 1.0) if moments else None


def _moment(at: float) -> str:
    """A moment as somebody here reads a clock."""
    return f"in {duration(at - time.time())}, at {datetime.fromtimestamp(at).astimezone():%H:%M}"


def _together(first: Reconciliation, then: Reconciliation) -> Reconciliation:
    """What two reconciliations came to: the later one, and what both of them did."""
    settled = {state: first.settled.get(state, 0) + then.settled.get(state, 0) for state in State}
    return attrs.evolve(
        then,
        settled=settled,
        found=first.found + then.found,
        sent_again=(*first.sent_again, *then.sent_again),
        parked=(*first.parked, *(one for one in then.parked if one not in first.parked)),
        differences=then.differences or first.differences,
        doubles=then.doubles or first.doubles,
    )


class _Wait:
    """Until when nothing is done, in words."""

    def __init__(self, count: int, seconds: float) -> None:
        self.open = count
        self._until = time.monotonic() + seconds

    def words(self) -> str:
        """How long it still is."""
        left = max(0.0, self._until - time.monotonic())
        return f"{counted(self.open, 'order')} open; looking again in {left:.0f} s"


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

        async with beside(follow()):
            yield

    def words(self) -> str:
        """What is done now, and how much of it."""
        if self._search.waits:
            return f"reading the list again in {max(0.0, self._waits_until - time.monotonic()):.0f} s"
        done = [counted(self._search.pages, "page"), counted(self._search.records, "transaction")]
        return f"looking: {done[0]} of lists, {done[1]} one by one; {self._now:,} of {self._before:,} orders open"


def _open(progress: Progress) -> int:
    return sum(progress.counts[state] for state in (State.ACCEPTED, *UNSETTLED))


def _show(screen: Screen, found: Reconciliation) -> None:
    settled = ", ".join(f"{count:,} {state}" for state, count in found.settled.items() if count)
    screen.say(f"settled: {settled or 'nothing'}\n")
    if found.found:
        screen.say(
            f"sent already, as the list shows, though this journal did not know: {counted(found.found, 'order')}\n"
        )
    differences = [
        f"{one.request_id}: {money(one.ours, one.our_currency)} here, {money(one.theirs, one.their_currency)} there"
        for one in found.differences
    ]
    doubles = [f"{one.request_id}: {', '.join(one.transaction_ids)}" for one in found.doubles]
    unknown_transactions = [
        f"{one.transaction_id} ({one.request_id or 'no request id'})" for one in found.unknown_transactions
    ]
    lists: Mapping[str, Sequence[str]] = {
        "parked now: not found, a person has to decide": found.parked,
        "not found, and sent again by the next run, as a person has stated (listing-deadline)": found.sent_again,
        "still unknown: never send them again": found.unknown,
        "in conflict: evidence contradicts": found.conflicts,
        "accepted long ago and not final: ask the service": found.stuck,
        "amounts that differ": differences,
        "more than one transaction: it may have been paid twice; ask the service": doubles,
        _STRANGERS: unknown_transactions,
    }
    counts = {title: len(lines) for title, lines in lists.items()} | {_STRANGERS: found.strangers_seen}

    def write(most: int) -> None:
        for title, lines in lists.items():
            screen.listing(f"[bold]{title}[/]", lines, counts[title], most=most)
        if any(lists.values()):
            screen.say()

    screen.fit(_ROOM, [partial(write, most) for most in (LISTED, 5, 1, 0)])
    for note in found.notes:
        if note not in found.unread:  # that is said at the end
            screen.note(note)
