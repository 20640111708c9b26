"""`payments-async journal`: what is on disk, brought up to date, checked, moved, and old orders archived."""

import time
from pathlib import Path
from typing import Annotated

import typer

from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import JournalFile, JournalPlace, OlderThan, named, opened, refused, seconds_of
from payments_async._cli.screen import Screen, clean, counted, quoted
from payments_async._cli.working import working
from payments_async.journal import (
    JournalCorrupt,
    JournalError,
    JournalUnavailable,
    archive_orders,
    copy_journal,
)

_UNCOUNTED = 1000  # from so many on nobody counts


async def journal_migrate(
    screen: Screen,
    journal: JournalFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
) -> Exit:
    """Bring a journal up to date with this version, or make its tables. Others of the version before go on with it.

    A file is brought up to date by whatever opens it. A database is by this alone, as the role that its tables belong
    to: first migrate, then give one machine after the other the new version; a machine of the version before goes on
    meanwhile, unless what is shown says otherwise. Triggers that may not fire are made anew. All of it is one
    transaction, for which those who write wait. Where there are no tables yet, they are made, for workers of a role
    that may make none.

    Example: payments-async journal migrate --journal postgresql://owner@db.example/app --dry-run
    """
    place = named(journal)
    unopened = place.unopened()
    async with refused(place):
        done = await (unopened.migration() if dry_run else unopened.migrate())
    facts = {"version": done.before, "newest": done.after, "steps": done.steps, "statements": done.statements}
    screen.document({"journal": str(place), "dry_run": dry_run, **facts, "exit_status": Exit.FINE})
    if not done.steps:
        screen.say(f"{quoted(str(place))} is up to date, of version {done.after}; nothing is to be done")
        return Exit.FINE
    before = f"from version {done.before}" if done.before else "from nothing"
    screen.say(f"{quoted(str(place))}: {before} to {done.after}; {done.oldest} and later may use it then")
    for step in done.steps:
        screen.say(f"  {quoted(step)}")
    if dry_run:
        for statement in done.statements:
            screen.say()
            screen.say(quoted(statement.strip()))
    screen.say("nothing was done" if dry_run else "done")
    return Exit.FINE


async def journal_check(screen: Screen, journal: JournalFile = None) -> Exit:
    """Prove that a journal is whole and agrees with itself, and look at what it relies on. Changes nothing.

    Everything is read as it is at one moment: each order with its digest, its chunk and its permit, all of them with
    the sums beside them, the notifications, attempts and changes with their orders. Whoever works goes on meanwhile.
    Beside it, of a database its settings, its replication and the rights of this user; of a file whether SQLite finds
    it whole, its permissions, its disk and its folder. Status 3 where anything is wrong.

    Example: payments-async journal check --journal payments.sqlite
    """
    place = named(journal)
    if not await place.exists():
        raise BadInput(f"--journal: there is no journal {place}; check the name")
    began = time.monotonic()
    read = (0, 0)

    def tell(*counts: int) -> None:
        nonlocal read
        read = counts[0], counts[1]

    async with refused(place), working(screen, lambda: f"reading {place}: {read[0]:,} of {read[1]:,} orders"):
        try:
            found = await place.unopened().examine(progress=tell)
        except JournalCorrupt as error:
            screen.trouble(str(error))
            return screen.ended(Exit.FAILED, {"sound": False, "error": str(error)})
    took = f"{time.monotonic() - began:.1f} s"
    rows = [
        (one.name, "wrong" if one.is_wrong else "note" if one.remedy else "fine", one.found, one.remedy)
        for one in found.circumstances
    ]
    screen.table(("what", "", "how it is", "what to do"), rows)
    screen.say()
    rows_read = f"{counted(found.orders, 'order')}, {counted(found.notifications, 'notification')}"
    screen.say(f"read in {took}: {rows_read}, {counted(found.changes, 'change')}")
    for flaw in found.flaws:
        many = f"{flaw.count:,}" if flaw.count < _UNCOUNTED else f"{flaw.count:,} or more"
        screen.trouble(f"{flaw.about}: {many}, such as {', '.join(flaw.examples)}", flaw.remedy)
    status = Exit.FINE if found.is_sound else Exit.FAILED
    if found.is_sound:
        screen.say("every order, notification and change agrees with the rest")
    elif not found.flaws:
        screen.trouble("the orders agree with each other, but what the journal relies on is not as it has to be")
    return screen.ended(status, {"sound": found.is_sound, "examination": found})


async def journal_copy(
    screen: Screen,
    source: Annotated[
        JournalPlace, typer.Argument(help="Where it is: a file or a DSN.", parser=JournalPlace, metavar="FROM")
    ],
    destination: Annotated[
        JournalPlace,
        typer.Argument(help="Where it goes: a new file, or a DSN.", parser=JournalPlace, metavar="TO"),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> Exit:
    """Move a journal to another place, such as from a file into PostgreSQL, with all that it knows.

    Stop whoever works with it first. The old place is sealed before a row is copied: nothing is ever sent from there
    again, and whoever opens it hears where it went; so never two of them send. Every row is read again in the new
    place and compared, and all of it counts there at once or not at all. Where that fails, the old place is what it
    was; where this is killed, the same command goes on.

    Example: payments-async journal copy payments.sqlite postgresql://payments@db.example/app
    """
    if not await source.exists():
        raise BadInput(f"FROM: there is no journal {source}; check the name")
    question = f"Move the journal {source} to {destination}? Nothing is sent from {source} any more."
    screen.confirm(question, yes=yes)
    began, copied = time.monotonic(), 0

    def tell(rows: int) -> None:
        nonlocal copied
        copied = rows

    try:
        async with working(screen, lambda: f"moving {source}: {copied:,} rows are there"):
            done = await copy_journal(source.unopened(), destination.unopened(), progress=tell)
    except JournalUnavailable as error:
        screen.trouble(f"stopped: {clean(str(error))}", "the same command goes on with it")
        return screen.ended(Exit.STOPPED, {"copied": False, "stopped": str(error)})
    except JournalError as error:
        raise BadInput(str(error)) from error
    if done.was_there:
        screen.say("it had arrived before, and is there; nothing was to be copied")
    else:
        tables = [name for name in done.rows if done.rows[name]]
        rows = [(name, f"{done.rows[name]:,}", done.digests[name][:16]) for name in tables]
        screen.table(("table", "rows", "SHA-256 of both"), rows, right=("rows",))
        took = f"{time.monotonic() - began:.1f} s"
        screen.say(f"{counted(sum(done.rows.values()), 'row')} copied, read again and found the same, in {took}")
    screen.say(f"the journal is {quoted(done.destination)} now: name that one in PAYMENTS_JOURNAL and --journal")
    screen.document(
        {
            "copied": True, "was_there": done.was_there, "from": done.source, "to": done.destination,
            "rows": done.rows, "digests": done.digests, "exit_status": Exit.FINE,
        }
    )  # fmt: skip
    return Exit.FINE


async def journal_prune(
    screen: Screen,
    older_than: OlderThan,
    archive: Annotated[Path, typer.Option(help="A new file, as in old-2026.jsonl.gz; none is replaced.")],
    who: Annotated[str, typer.Option(help="Your name: you answer for it.")],
    why: Annotated[str, typer.Option(help="The reason, such as your rule on keeping data; kept.")],
    journal: JournalFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> Exit:
    """Move orders that ended long ago into an archive, so that the journal stays small. None of them is sent again.

    Each is on disk in the archive, with its whole story, before it leaves; killed in between, name another file and do
    it again. What is open, contradicted, or has still to be heard of by a handler stays; a batch leaves as a whole. The
    archive is compressed JSON, a line for each order, and names people: it is readable by you alone. Keep it as long
    as you have to be able to say what was paid. Old notifications are forgotten by `ipn prune`.

    Example: payments-async journal prune --older-than 90d --archive old.jsonl.gz --who "A. Clerk" --why "rule 7" --yes
    """
    seconds = seconds_of(older_than)
    async with opened(journal) as held:
        if archive.exists():
            raise BadInput(
                f"--archive: {clean(str(archive))} is there already, and is never replaced; name another file"
            )
        question = f"Move all orders that have not changed for {older_than} into {archive}?"
        screen.confirm(question, yes=yes)
        try:
            moved: list[int] = [0]
            async with working(screen, lambda: f"moving old orders: {moved[-1]:,} have left"):
                done = await archive_orders(held, archive, older_than=seconds, who=who, why=why, progress=moved.append)
        except FileExistsError as error:
            raise BadInput(f"--archive: {clean(str(error))}") from error
        except ValueError as error:
            raise BadInput(f"--older-than: {str(error).removeprefix('older_than: ')}") from error
        except (OSError, JournalUnavailable) as error:
            words = "what has left the journal is in the archive; once this is mended, go on with another file"
            screen.trouble(f"stopped: {clean(str(error))}", words)
            return screen.ended(Exit.STOPPED, {"stopped": str(error)})
    if done.path is None:
        screen.say("nothing is that old, or it is open, contradicted or of a batch that is: no archive was made")
    else:
        screen.say(f"{counted(done.orders, 'order')} moved into {quoted(str(done.path))}; none is sent again")
    if done.stayed:
        words = "more was learned of them meanwhile, or they left for another"
        screen.say(f"{counted(done.stayed, 'order')} in it did not leave the journal for it: {words}")
    path = None if done.path is None else str(done.path)
    known = {"orders": done.orders, "stayed": done.stayed, "changes": done.changes}
    return screen.ended(Exit.FINE, {"archive": path, **known})
