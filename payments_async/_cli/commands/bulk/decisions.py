"""What a person decides: `bulk send-again`, `cancel`, `listing-deadline`, `acknowledge`, `lift-quarantine`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from payments_async._cli.agreement import cancel_all, paid_to, signature
from payments_async._cli.batch_state import (
    DIGITS,
    currency_of,
    order_currency,
    order_money,
    reasons,
    show_progress,
    show_reasons,
)
from payments_async._cli.dates import day
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import AnyBatch, JournalFile, JournalPlace, chosen_batch, opened
from payments_async._cli.limits import read_limit
from payments_async._cli.screen import Screen, clean, command_line, counted, money, quoted
from payments_async._cli.story import open_contradictions
from payments_async.bulk import acknowledge, give_listing_deadline, lift_quarantine, send_again_all
from payments_async.journal import Entry, Journal, JournalRefused, ListingDeadline, NotApproved, Run, State

Who = Annotated[str, typer.Option(help="Your name: you answer for it.")]
IdsFile = Annotated[Path | None, typer.Option("--file", help="A text file with a request id on each line.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]
_IN_FULL, _LARGEST = 3, 10  # orders that are shown with all that there is of them; those of many


async def bulk_send_again(
    screen: Screen,
    who: Who,
    why: Annotated[str, typer.Option(help="What makes you sure, such as the service's letter.")],
    request_ids: Annotated[list[str] | None, typer.Argument(metavar="REQUEST_ID", help="Parked orders.")] = None,
    ids_file: IdsFile = None,
    journal: JournalFile = None,
    yes: Yes = False,
) -> Exit:
    """State that a parked order, or several, never reached the service. The next run sends them again.

    Ask the service first: if it has the order after all, it will be paid twice. A notification about it that was known
    until now is thereby called false. Nothing is sent again unless every one of them can be. Where the journal asks
    for approvals (bulk approvals), it is proposed, and as many others approve it by its digest (bulk approve).

    Example: payments-async bulk send-again PAY-17 --who "A. Clerk" --why "letter of 3 May" --journal payroll.sqlite
    """
    async with opened(journal) as held:
        entries = await _all_shown(screen, held, _chosen(request_ids, ids_file), is_asked=not yes)
        for entry in entries:
            if entry.state is not State.PARKED:
                raise BadInput(
                    f"{clean(entry.request_id)} is {entry.state}; only a parked order can be sent again: reconcile "
                    "first. Nothing was changed"
                )
            words = open_contradictions(await held.history(entry.request_id)) if entry.conflict is not None else []
            screen.listing("[bold red]called false by this[/]", words, len(words))
        question = "Did it surely never reach the service? It will be sent again."
        if len(entries) > 1:
            question = f"Did all {len(entries):,} surely never reach the service? They will be sent again."
        screen.confirm(question, yes=yes)
        seen = {entry.request_id: entry.updated_at for entry in entries}
        with approved_by_others(journal):
            done = await send_again_all(held, list(seen), signature(who), why, seen=seen)
    for now in done:
        screen.say(f"{quoted(now.request_id)} is {now.state} again, as {quoted(who)} states: {quoted(why)}")
    batches = ", ".join(sorted({now.batch_id for now in done}))
    screen.say(f"The next run of batch {quoted(batches)} sends {'it' if len(done) == 1 else 'them'}. The whole story:")
    screen.command(command_line("explain", done[0].request_id, journal=journal))
    orders = [{"request_id": now.request_id, "state": now.state} for now in done]
    return screen.ended(Exit.FINE, {**_one_or_all(orders), "who": who, "why": why})


async def bulk_listing_deadline(
    screen: Screen,
    who: Who,
    why: Annotated[str, typer.Option(help="What makes you sure, such as the service's contract.")],
    within: Annotated[float | None, typer.Option(help="Seconds in which the service lists what it did.")] = None,
    until: Annotated[datetime | None, day(help="The day on which your word ends, UTC.")] = None,
    orders: Annotated[int | None, typer.Option(min=1, help="How many orders may be sent again by it.")] = None,
    amount: Annotated[str | None, typer.Option(help="The most that one of them may be.")] = None,
    total: Annotated[str | None, typer.Option(help="The most that all of them may come to.")] = None,
    currency: Annotated[str | None, typer.Option(help="For orders that name it; else those that name none.")] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take back the word for that currency.")] = False,
    journal: JournalFile = None,
    yes: Yes = False,
) -> Exit:
    """State that the service lists in time what it carried out. What is not listed then is sent again by itself.

    If the service lists an order later than that, it is paid twice: that is the risk you take. An unknown order that
    two complete lists miss after that time is sent again once, and its story names you. Fewer than 900 seconds count as
    900. Where the journal asks for approvals, it is proposed, and others approve it (bulk approve).

    Example: payments-async bulk listing-deadline --within 7200 --until 2026-12-31 --orders 5 --amount 200000 --total
    500000 --currency UGX --who "A. Clerk" --why "letter of 3 May" --journal payroll.sqlite
    """
    async with opened(journal) as held:
        if withdraw:
            taken_back = await held.withdraw_listing_deadline(currency, who=signature(who), why=why)
            screen.say("withdrawn; what no list shows is parked again" if taken_back else "no such word was given")
            return screen.ended(Exit.FINE, {"withdrawn": taken_back})
        most, in_all = read_limit("--amount", amount), read_limit("--total", total)
        if within is None or until is None or orders is None or most is None or in_all is None:
            raise BadInput("--within, --until, --orders, --amount and --total: all of them, or --withdraw")
        try:
            deadline = ListingDeadline(
                within=within,
                until=until.timestamp(),
                orders=orders,
                amount=most,
                total=in_all,
                currency=currency,
            )
        except ValueError as error:
            raise BadInput(clean(str(error))) from error
        screen.say(f"What the service carries out is {quoted(str(deadline))}.")
        screen.confirm("Are you sure of it? An order that it lists later is paid twice.", yes=yes)
        with approved_by_others(journal):
            await give_listing_deadline(held, deadline, signature(who), why)
    screen.say(f"An order that is not listed then is sent again, as {quoted(who)} states: {quoted(why)}")
    return screen.ended(Exit.FINE, {"deadline": deadline, "who": who, "why": why})


async def bulk_cancel(
    screen: Screen,
    who: Who,
    why: Annotated[str, typer.Option(help="The reason; kept.")],
    request_ids: Annotated[
        list[str] | None, typer.Argument(metavar="REQUEST_ID", help="Orders; else all that were not sent.")
    ] = None,
    ids_file: IdsFile = None,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    yes: Yes = False,
) -> Exit:
    """Cancel the orders of a batch that were not sent yet, all or some: they are never sent.

    What may have left cannot be called back: it is named with its state, and the exit status is 3. Each order is
    decided by itself, also while the batch is sent.

    Example: payments-async bulk cancel --who "A. Clerk" --why "wrong month" --journal payroll.sqlite --batch-id NOV
    """
    async with opened(journal) as held:
        if request_ids or ids_file is not None:
            chosen = _chosen(request_ids, ids_file)
            await _all_shown(screen, held, chosen, is_asked=not yes)
        else:
            name = await chosen_batch(held, batch_id)
            show_progress(screen, await held.progress(name), await currency_of(held, name))
            chosen = [entry.request_id async for entry in held.entries(name, State.PLANNED)]
            if not chosen:
                raise BadInput(f"no order of batch {clean(name)} is planned; nothing was changed")
        screen.confirm(f"Should {counted(len(chosen), 'order')} never be sent?", yes=yes)
        return await cancel_all(screen, held, chosen, who=who, why=why)


async def bulk_acknowledge(
    screen: Screen,
    who: Who,
    why: Annotated[str, typer.Option(help="What is true, and how you know, such as the service's letter.")],
    request_ids: Annotated[
        list[str] | None, typer.Argument(metavar="REQUEST_ID", help="Orders with evidence against evidence.")
    ] = None,
    ids_file: IdsFile = None,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    reason: Annotated[
        str | None, typer.Option(help="All orders of the batch that need a person for this: words of bulk status.")
    ] = None,
    yes: Yes = False,
) -> Exit:
    """State that you have seen the contradiction about an order, or several. It counts no more; the story keeps it.

    Nothing is sent, and the orders stay as they are. Ask the service first what is true. Nothing is acknowledged unless
    something contradicts every one of them. With --reason it is all orders of a batch with that contradiction.

    Example: payments-async bulk acknowledge PAY-17 --who "A. Clerk" --why "letter of 3 May" --journal payroll.sqlite
    """
    async with opened(journal) as held:
        if reason is None:
            chosen = _chosen(request_ids, ids_file)
        elif request_ids or ids_file is not None:
            raise BadInput("--reason: it names the orders; leave out REQUEST_ID and --file")
        else:
            chosen = await _contradicted(screen, held, await chosen_batch(held, batch_id), reason)
        entries = await _all_shown(screen, held, chosen, is_asked=not yes)
        seen = await _contradictions(screen, held, entries)
        question = f"Do you know what is true, and may it stay {entries[0].state}?"
        if len(entries) > 1:
            question = f"Do you know what is true of all {len(entries):,}, and may they stay as they are?"
        screen.confirm(question, yes=yes)
        done = [await acknowledge(held, one.request_id, who, why, seen=one.updated_at) for one in entries]
    if len(done) > _IN_FULL:
        screen.say(f"{len(done):,} orders stay as they are, as {quoted(who)} states: {quoted(why)}")
    for now in done if len(done) <= _IN_FULL else ():
        screen.say(f"{quoted(now.request_id)} stays {now.state}, as {quoted(who)} states: {quoted(why)}")
    for now in done:
        if now.conflict is not None:
            screen.trouble(
                f"meanwhile there is another contradiction about {clean(now.request_id)}, to be acknowledged as well: "
                f"{clean(now.conflict)}"
            )
    status = Exit.FINE if all(now.conflict is None for now in done) else Exit.UNKNOWN
    orders = [
        {
            "request_id": now.request_id,
            "state": now.state,
            "contradictions": contradictions,
            "later_contradiction": now.conflict,
        }
        for now, contradictions in zip(done, seen, strict=True)
    ]
    return screen.ended(status, {**_one_or_all(orders), "who": who, "why": why})


async def bulk_lift_quarantine(
    screen: Screen,
    who: Who,
    why: Annotated[str, typer.Option(help="How the orders were looked up, such as the service's statement.")],
    request_ids: Annotated[
        list[str] | None, typer.Argument(metavar="REQUEST_ID", help="All planned orders, to release them at once.")
    ] = None,
    ids_file: IdsFile = None,
    journal: JournalFile = None,
    batch_id: AnyBatch = None,
    yes: Yes = False,
) -> Exit:
    """State that planned orders were looked up after their journal was copied or restored. Its batches may go on then.

    An older journal does not know what was sent since: an order that it calls planned may have been paid. So reconcile
    first. It asks for what parking an order asks for: two complete lists, 15 minutes after the journal was found to be
    restored. Then compare what is still planned with the service's own statement; what was paid after all is paid
    again.

    Without --batch-id it is about each batch in quarantine. Name every planned order of one, here or in a file, to
    release them without that wait. Your word is recorded.

    Example: payments-async bulk lift-quarantine --who "A. Clerk" --why "statement of 3 May" --journal payroll.sqlite
    """
    async with opened(journal) as held:
        named = _chosen(request_ids, ids_file) if request_ids or ids_file is not None else None
        runs = [run for run in await held.runs() if run.quarantined or run.awaits is not None]
        if batch_id is not None or named is not None or not runs:
            runs = [await held.run(await chosen_batch(held, batch_id))]
        planned = 0
        for run in runs:
            _check_looked_for(journal, run, is_named=named is not None)
            screen.fields([("batch", run.batch_id), ("chunks in quarantine", f"{run.quarantined:,}")])
            progress = await held.progress(run.batch_id)
            show_progress(screen, progress, await currency_of(held, run.batch_id))
            planned += progress.counts[State.PLANNED]
        question = f"Was none of these planned orders sent since: {planned:,}? The next run sends them."
        screen.confirm(question, yes=yes)
        lifted: list[Mapping[str, object]] = []
        for run in runs:
            seen, by = run.quarantined_at, signature(who)
            with approved_by_others(journal):
                chunks = await lift_quarantine(held, run.batch_id, by, why, seen=seen, request_ids=named)
            words = f"{quoted(run.batch_id)}: {counted(chunks, 'chunk')} may be sent again"
            screen.say(f"{words}, as {quoted(who)} states: {quoted(why)}")
            lifted.append({"batch_id": run.batch_id, "chunks": chunks})
    document = lifted[0] if len(lifted) == 1 else {"batches": lifted}
    return screen.ended(Exit.FINE, {**document, "who": who, "why": why})


def _check_looked_for(journal: JournalPlace | None, run: Run, *, is_named: bool) -> None:
    """Refuse a batch that is not in quarantine, or was not looked for since. Raises ``BadInput``."""
    name = run.batch_id
    if not run.quarantined and run.awaits is None:
        raise BadInput(f"no chunk of batch {clean(name)} is in quarantine; nothing was changed")
    if run.awaits is not None and not is_named:
        raise BadInput(
            f"batch {clean(name)} was not looked for since the journal was copied or restored: an order that it "
            f"calls planned may have been paid. Nothing was changed. {run.awaits.words()}. Look for them:\n"
            f"  {command_line('bulk reconcile', journal=journal, batch_id=name)}"
        )


def _chosen(request_ids: list[str] | None, file: Path | None) -> list[str]:
    """The orders that are named, each once, in the sequence given.

    Raises:
        BadInput: None is, or the file cannot be read.
    """
    chosen = list(request_ids or ())
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not a text file in UTF-8"
            raise BadInput(f"--file: {file} cannot be read: {clean(why or str(error))}") from error
        chosen += [line.strip() for line in lines if line.strip()]
    if not chosen:
        raise BadInput("REQUEST_ID: name an order, or a --file with an id on each line")
    return list(dict.fromkeys(chosen))


def _one_or_all(orders: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """For machines: one order by itself, several as a list."""
    return orders[0] if len(orders) == 1 else {"orders": orders}


@contextmanager
def approved_by_others(journal: JournalPlace | None) -> Iterator[None]:
    """Tell how others approve a decision that sends orders.

    Raises:
        BadInput: Too few have, or the journal says no.
    """
    try:
        yield
    except NotApproved as error:
        if error.proposal is None:
            raise BadInput(str(error)) from error
        approve = command_line("bulk approve", error.proposal.digest, journal=journal)
        raise BadInput(
            f"{error.message}\n  nothing was changed; it is proposed. Once others have approved it, the same command "
            f"does it: {approve} --who NAME\n  {'' if journal is None else journal.reach}".rstrip()
        ) from error
    except JournalRefused as error:
        raise BadInput(str(error)) from error


async def _contradictions(screen: Screen, journal: Journal, entries: Sequence[Entry]) -> list[list[str]]:
    """What contradicts each order, after it was shown, what is alike once. Raises ``BadInput`` where nothing does."""
    seen: list[list[str]] = []
    for entry in entries:
        if entry.conflict is None:
            raise BadInput(
                f"nothing contradicts {clean(entry.request_id)}, or a person has acknowledged it; see `explain`. "
                "Nothing was changed"
            )
        seen.append(open_contradictions(await journal.history(entry.request_id)) or [entry.conflict])
    alike = Counter(DIGITS.sub("0", words) for one in seen for words in one)
    for words in dict.fromkeys(words for one in seen for words in one):  # the first of each kind
        if count := alike.pop(DIGITS.sub("0", words), 0):
            screen.say(f"[bold red]contradiction[/]  {quoted(words)}{f' ({count:,} alike)' if count > 1 else ''}")
    return seen


async def _contradicted(screen: Screen, journal: Journal, batch_id: str, words: str) -> list[str]:
    """The orders of a batch with one contradiction. Raises ``BadInput`` where none or several have these words."""
    progress = await journal.progress(batch_id)
    found = await reasons(journal, batch_id, "needs a person", progress, keep=progress.total)
    found = [one for one in found if one.first and one.first[0].conflict is not None]
    meant = DIGITS.sub("0", words).casefold()
    chosen = [one for one in found if meant in DIGITS.sub("0", one.words).casefold()]
    kinds = {DIGITS.sub("0", one.words) for one in chosen}  # in whatever state its orders are
    if len(kinds) != 1:
        show_reasons(screen, found, (), room=len(found) + 2)
        many = f"{len(kinds)} reasons have these words; name one by more of them"
        raise BadInput(f"--reason: {many if kinds else 'nothing contradicts an order of the batch in these words'}")
    return [entry.request_id for one in chosen for entry in one.first]


async def _all_shown(screen: Screen, journal: Journal, request_ids: Sequence[str], *, is_asked: bool) -> list[Entry]:
    """The orders that are to be decided on, after they were shown: a few in full, of many the largest."""
    entries = [await _entry(journal, one) for one in request_ids]
    if len(entries) > _IN_FULL:
        batches = {entry.batch_id for entry in entries}
        currencies = {await order_currency(journal, entry) for entry in entries}
        total = sum((entry.amount for entry in entries), start=Decimal(0))
        stand = Counter(entry.state for entry in entries)
        screen.fields(
            [
                ("orders", f"{len(entries):,}"),
                ("sum", money(total, currencies.pop() if len(currencies) == 1 else None)),
                ("batch", ", ".join(sorted(batches))),
                ("stand", ", ".join(f"{count:,} {state}" for state, count in stand.items())),
            ]
        )
        lines = [
            f"{money(entry.amount):>12}  {screen.person(entry.order.beneficiary.name, is_asked=is_asked)}  "
            f"{entry.request_id}"
            for entry in sorted(entries, key=lambda entry: -entry.amount)
        ]
        screen.listing("The largest of them:", lines[:_LARGEST], min(len(lines), _LARGEST))
        return entries
    for entry in entries:
        screen.fields(
            [
                ("order", entry.request_id),
                ("amount", await order_money(journal, entry)),
                ("beneficiary", screen.person(entry.order.beneficiary.name, is_asked=is_asked)),
                ("account or line", paid_to(screen, entry.order, is_asked=is_asked)),
                ("batch", entry.batch_id),
                ("stands", entry.state),
            ]
        )
    return entries


async def _entry(journal: Journal, request_id: str) -> Entry:
    """An order of the journal. Raises ``BadInput``."""
    entry = await journal.entry(request_id)
    if entry is not None:
        return entry
    gone = (await journal.archived_of([request_id])).get(request_id)
    if gone is not None:
        raise BadInput(f"{clean(request_id)} ended long ago ({gone.state}), and is in an archive: see `explain`")
    raise BadInput(f"the journal holds no order {clean(request_id)}; check the id")
