"""`payments-async bulk sign` and `approver`: an approval that is signed on another machine than the journal's."""

import asyncio
import os
import shlex
from pathlib import Path
from time import time
from typing import Annotated

import attrs
import typer

from payments_async._cli.agreement import show_file_orders, signature
from payments_async._cli.batch_file import read_payments
from payments_async._cli.batch_source import file_digest, options_of, show_proposal
from payments_async._cli.commands.bulk.decisions import Who, Yes, approved_by_others
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.journal import JournalFile, opened
from payments_async._cli.profiles import NO_HOME, user_folder
from payments_async._cli.screen import Screen, clean, command_line, quoted
from payments_async._cli.written import complaints, read_small
from payments_async.bulk import BatchChanged, orders_digest
from payments_async.journal import Approver, ApproverKey, NotApproved, Proposal, Signature, read_request
from payments_async.journal.contract import is_one_person


async def bulk_sign(
    screen: Screen,
    request: Annotated[Path | None, typer.Argument(help="The request; without one, your key is shown.")] = None,
    file: Annotated[Path | None, typer.Option(help="A copy of the batch file: it is checked, and shown.")] = None,
    who: Annotated[str | None, typer.Option(help="Your name, once: your key is made for it.")] = None,
    note: Annotated[str, typer.Option(help="What you looked at; signed, and kept.")] = "",
    answer: Annotated[Path | None, typer.Option(help="The file to write; beside the request by default.")] = None,
    yes: Yes = False,
) -> Exit:
    """Sign on your own machine that a batch may be sent. It needs no journal and no service.

    Your key stays on this machine: a person who can read its file can sign in your name. The journal's side registers
    its public half once (bulk approver), and takes your answer by `bulk approve --from ANSWER`.

    Pass the batch file with --file: the request is refused if that file makes other payments.

    Example: payments-async bulk sign nov-request.json --file nov.xlsx --who "B. Head" --note "compared with October"
    """
    key = await asyncio.to_thread(_own_key, screen, who)
    screen.fields([("name", key.name), ("public key", key.public_key), ("fingerprint", _fingerprint(key))])
    document: dict[str, object] = {"name": key.name, "public_key": key.public_key, "fingerprint": _fingerprint(key)}
    if request is None:
        screen.say("\nOnce, on the machine of the journal, after you told its keeper the fingerprint yourself:")
        screen.command(f"{command_line('bulk approver', key.name, key.public_key)} --who NAME --why REASON")
        return screen.ended(Exit.FINE, document)
    try:
        asked = read_request(await asyncio.to_thread(read_small, request))
    except ValueError as error:
        raise BadInput(f"{request}: {clean(str(error))}") from error
    by = attrs.evolve(signature(key.name), at=time())
    if is_one_person(by, asked.by, shared_logins=True):
        raise BadInput(f"{asked.by.who} proposed it: another person has to approve it")
    screen.say()
    show_proposal(screen, asked)
    looked = await _look(screen, asked, file)
    screen.confirm(f"Do you, {by.who}, approve exactly these payments?", yes=yes)
    path = answer or request.with_name(f"{request.stem}-signed.json")
    with complaints(path):
        text = key.sign(asked, by=by, note=f"{note} ({looked})".strip())
        await asyncio.to_thread(_write_new, path, text)
    screen.say(f"wrote {quoted(str(path))}. Send it back; on the machine of the journal:")
    screen.command(f"{command_line('bulk approve')} --from {shlex.quote(path.name)} --journal JOURNAL")
    return screen.ended(Exit.FINE, {**document, "digest": asked.digest, "answer": str(path), "looked_at": looked})


async def bulk_approver(
    screen: Screen,
    name: Annotated[str, typer.Argument(help="The person who signs on another machine.")],
    who: Who,
    why: Annotated[str, typer.Option(help="How you know that the key is theirs; kept.")],
    public_key: Annotated[str | None, typer.Argument(help="What `bulk sign` shows on their machine.")] = None,
    journal: JournalFile = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Count nothing more that they sign.")] = False,
    yes: Yes = False,
) -> Exit:
    """Have the journal count what a person signs on another machine (bulk sign).

    Compare the fingerprint with that person, by voice or face: a key of somebody else would approve in their name.
    Where the journal asks for approvals, others approve this decision. So register keys before you set that rule.
    The maker of a batch cannot register the key that approves it.

    Example: payments-async bulk approver "B. Head" 3b6a27bc... --who "C. Board" --why "she read it to me" --journal
    payroll.sqlite
    """
    if withdraw == (public_key is not None):
        raise BadInput("PUBLIC_KEY: the 64 digits that `bulk sign` shows on their machine, or --withdraw")
    by = signature(who)
    async with opened(journal) as held:
        if public_key is None:
            taken_back = await held.withdraw_approver(name, by=by, why=why)
            screen.say("withdrawn; what was approved before stands" if taken_back else "no such approver is registered")
            return screen.ended(Exit.FINE, {"withdrawn": taken_back})
        try:
            shown = Approver(name=name.strip(), public_key=public_key.strip(), by=by, why=why)
            screen.fields([("approver", shown.name), ("fingerprint", shown.fingerprint)])
        except ValueError as error:
            raise BadInput(f"PUBLIC_KEY: {clean(str(error).partition(': ')[2])}") from error
        screen.confirm(f"Did {shown.name} tell you this fingerprint?", yes=yes)
        with approved_by_others(journal):
            try:
                made = await held.register_approver(shown.name, shown.public_key, by=by, why=why)
            except NotApproved as error:
                if error.proposal is not None:
                    await held.propose(error.proposal)
                raise
    screen.say(f"what {quoted(made.name)} signs with this key counts, as {quoted(str(made.by))} states")
    return screen.ended(Exit.FINE, {"approver": made, "fingerprint": made.fingerprint})


async def _look(screen: Screen, asked: Proposal, file: Path | None) -> str:
    """Show what the file of a request pays; tells what was looked at.

    Raises:
        BadInput: It is another file, or makes other payments.
    """
    if not asked.file_digest:
        return "a decision, by its words"
    if file is None:
        screen.say("[bold yellow]You see sums alone:[/] pass a copy of the batch file (--file) to see whom it pays")
        return "without the file"
    if await asyncio.to_thread(file_digest, file) != asked.file_digest:
        raise BadInput(f"--file: {file} is not the file that was proposed; nothing was signed")
    rows, file_format, _ = options_of(asked)
    read = await read_payments(screen, file, asked.batch_id, rows, file_format, None, is_exact=True)
    orders = read.batch.orders
    try:
        digest = await asyncio.to_thread(orders_digest, orders)
        await show_file_orders(screen, orders, len(orders), asked.currency)
    except BatchChanged as error:
        raise BadInput(f"--file: {file} was changed while it was read; nothing was signed") from error
    if digest != asked.digest:
        raise BadInput(
            f"--file: {file} makes other payments than the request says; nothing was signed. Where rows were left out, "
            "have a file without them planned"
        )
    return "the file, with each payment"


def _own_key(screen: Screen, who: str | None) -> ApproverKey:
    """The key of this user on this machine; made for a name where there is none.

    Raises:
        BadInput: It cannot be read or made, or is for another name.
    """
    folder = user_folder("config")
    if folder is None:
        raise BadInput(f"there is no place for your key: {NO_HOME}")
    path = folder / "approver.key"
    try:
        if path.exists():
            name, _, private_key = read_small(path).decode().strip().rpartition("\n")
            key = ApproverKey(name=name, private_key=private_key)
        elif who is None or not who.strip():
            raise BadInput("--who: your name; a key is made for it, once")
        else:
            key = ApproverKey.create(" ".join(who.split()))
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_new(path, f"{key.name}\n{key.private_key}\n")
            screen.note(f"made your key: {path}; keep it to yourself")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise BadInput(f"{path}: your key cannot be read or made ({type(error).__name__})") from error
    except ModuleNotFoundError as error:
        raise BadInput(str(error)) from error
    if who is not None and not is_one_person(Signature(who=who), Signature(who=key.name), shared_logins=True):
        raise BadInput(f"--who: the key of this login is for {clean(key.name)}; sign under a login of your own")
    return key


def _write_new(path: Path, text: str) -> None:
    """Write a file that only its owner can read; one that is there stays as it is."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)


def _fingerprint(key: ApproverKey) -> str:
    return Approver(name=key.name, public_key=key.public_key, by=Signature(who=key.name), why="").fingerprint
