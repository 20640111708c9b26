"""`payments-async journal prune`: old orders moved from a journal into an archive."""

from pathlib import Path
from typing import Annotated

import typer

from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import JournalFile, OlderThan, opened, seconds_of
from payments_async._cli.screen import Screen, clean, counted, quoted
from payments_async._cli.working import working
from payments_async.journal import JournalUnavailable, archive_orders


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
    if not who.strip() or not why.strip():
        raise BadInput("--who and --why: say who wants it, and why; both are kept")
    async with opened(journal) as held:
        if archive.exists():
            raise BadInput(
                f"--archive: {clean(str(archive))} is there already, and is never replaced; name another file"
            )
        question = f"Move all orders that have not changed for {older_than} into {archive}?"
        if not yes and not screen.confirmed(question, otherwise="nothing was changed"):
            screen.trouble("nothing was changed")
            screen.document({"orders": 0, "exit_status": Exit.STOPPED})
            return Exit.STOPPED
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
            screen.document({"stopped": str(error), "exit_status": Exit.STOPPED})
            return Exit.STOPPED
    if done.path is None:
        screen.say("nothing is that old, or it is open, contradicted or of a batch that is: no archive was made")
    else:
        screen.say(f"{counted(done.orders, 'order')} moved into {quoted(str(done.path))}; none is sent again")
    if done.stayed:
        words = "more was learned of them meanwhile, or they left for another"
        screen.say(f"{counted(done.stayed, 'order')} in it did not leave the journal for it: {words}")
    path = None if done.path is None else str(done.path)
    known = {"orders": done.orders, "stayed": done.stayed, "changes": done.changes}
    screen.document({"archive": path, **known, "exit_status": Exit.FINE})
    return Exit.FINE
