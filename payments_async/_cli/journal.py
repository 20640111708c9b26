"""The journal on the command line: where it is, which batch in it, and its complaints as those of an option."""

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import attrs
import typer

from payments_async._cli.agreement import login, signature
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.profiles import user_folder
from payments_async._cli.screen import Screen
from payments_async.journal import (
    Journal,
    JournalError,
    JournalUnavailable,
    RunIdentity,
    SqliteJournal,
    TakeoverAuthorisation,
    journal_at,
)


@attrs.frozen(repr=False)
class JournalPlace:
    """Where a journal is: a file, or a database. Shown without a password.

    Attributes:
        text: As somebody wrote it.
        second_journal: Who says why the account has a second journal on this machine.
    """

    text: str
    second_journal: TakeoverAuthorisation | None = None

    def __str__(self) -> str:
        return str(self.unopened().place)

    __repr__ = __str__

    def unopened(self) -> Journal:
        """The journal.

        Raises:
            BadInput: There can be none.
        """
        try:
            return journal_at(self.text, second_journal=self.second_journal)
        except ModuleNotFoundError as error:
            raise BadInput(f"--journal: {error}") from error
        except ValueError as error:
            raise BadInput(f"--journal: {str(error).partition(': ')[2]}") from error

    @property
    def reach(self) -> str:
        """From where others approve what it holds, in words; empty with a database, which has a network."""
        if getattr(self.unopened(), "path", None) is None:
            return ""
        return "Approve on this machine. For another one: bulk approvals --request FILE"

    async def exists(self) -> bool:
        """Whether there is a journal.

        Raises:
            BadInput: That cannot be found out.
        """
        try:
            return await self.unopened().exists()
        except JournalError as error:
            raise BadInput(f"--journal {self}: {str(error).removeprefix(f'{self}: ')}") from error


def journal_option(about: str = "The journal's file, or the DSN of its database (postgresql://...).") -> object:
    """The option that says where the journal is."""
    return typer.Option(envvar="PAYMENTS_JOURNAL", help=about, parser=JournalPlace, metavar="FILE|DSN")


SecondJournal = Annotated[
    str | None,
    typer.Option(metavar="WHY", help="Why this account has a second journal on this machine; kept, with your login."),
]
JournalFile = Annotated[JournalPlace | None, journal_option()]
AnyBatch = Annotated[str | None, typer.Option(help="Which batch; not needed where there is one.")]
WithoutLooking = Annotated[
    bool, typer.Option("--without-looking", help="Do not look in the service's list for what was sent before.")
]
OlderThan = Annotated[str, typer.Option(help="Age, as in 90d or 48h.")]
_SECONDS = {"d": 86_400.0, "h": 3600.0}
_HEADER = 72  # bytes at the beginning of a file, which end with what says that it is a journal
_NO_NAME = re.compile(r"[^a-z0-9.-]+")


def seconds_of(older_than: str) -> float:
    """An age in seconds.

    Raises:
        BadInput: It is written otherwise.
    """
    found = re.fullmatch(r"([0-9]{1,6})([dh])", older_than.strip())
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not seconds:
        raise BadInput("--older-than: write it as in 90d or 48h")
    return seconds


def seconded(place: JournalPlace | None, why: str | None) -> JournalPlace | None:
    """The place, with the word of whoever sits here that it may be a second journal of its account."""
    if place is None or why is None:
        return place
    if not why.strip():
        raise BadInput("--second-journal: say why there are two; it is kept")
    return attrs.evolve(place, second_journal=TakeoverAuthorisation(who=str(signature(login())), why=why))


@asynccontextmanager
async def opened(place: JournalPlace | None, *, new: bool = False) -> AsyncIterator[Journal]:
    """The journal in a place.

    Args:
        new: Make it, if there is none, and let ``JournalUnavailable`` through: a run that was under way says more.

    Raises:
        BadInput: No place was named, nothing is there, or the journal says no.
    """
    place = named(place)
    if not new and not await place.exists():
        what = "file" if isinstance(place.unopened(), SqliteJournal) else "journal in"
        raise BadInput(f"--journal: there is no {what} {place}; check the name")
    try:
        async with place.unopened() as journal:
            yield journal
    except JournalError as error:
        if new and isinstance(error, JournalUnavailable):
            raise
        raise BadInput(f"--journal {place}: {str(error).removeprefix(f'{place}: ')}") from error


def named(place: JournalPlace | None) -> JournalPlace:
    """The place that was named, or the only journal in this folder.

    Raises:
        BadInput: None was, and there is none here, or several.
    """
    here = [] if place is not None else _journals_here()
    if place is None and len(here) != 1:
        kept = f"; `pay` and `collect` keep theirs as {', '.join(map(str, _own_journals()))}" if _own_journals() else ""
        kept = f"; in this folder are {', '.join(map(str, here))}" if here else kept
        raise BadInput(f"--journal: name the journal's file, or set PAYMENTS_JOURNAL{kept}")
    return JournalPlace(str(here[0])) if place is None else place


def named_or_none(place: JournalPlace | None) -> JournalPlace | None:
    """The same, where a command can do without."""
    return place if place is not None or len(_journals_here()) != 1 else named(None)


def _journals_here() -> list[Path]:
    """The journals in the current folder, known by what stands in their headers."""
    return [path for path in sorted(Path().glob("*")) if path.is_file() and _is_journal(path)]


def _is_journal(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER)
    except OSError:
        return False
    return head.startswith(b"SQLite format 3\0") and head.endswith(b"PAYJ")


@asynccontextmanager
async def refused(place: JournalPlace) -> AsyncIterator[None]:
    """Let what the journal of a place says no to be bad input. Raises ``BadInput``."""
    try:
        yield
    except JournalError as error:
        raise BadInput(f"--journal {place}: {str(error).removeprefix(f'{place}: ')}") from error


@asynccontextmanager
async def existing(place: JournalPlace | None) -> AsyncIterator[Journal | None]:
    """The journal in a place, or ``None`` where there is none yet."""
    if place is None or not await place.exists():
        yield None
    else:
        async with opened(place) as journal:
            yield journal


async def chosen_batch(journal: Journal, batch_id: str | None) -> str:
    """The batch that was named, or the only one.

    Raises:
        BadInput: There is no such batch, or more than one to choose from.
    """
    names = [run.batch_id for run in await journal.runs()]
    if batch_id in names:
        return batch_id
    if batch_id is None and len(names) == 1:
        return names[0]
    held = f"the journal holds {', '.join(names[-10:])}" if names else "the journal holds no batch"
    raise BadInput(f"--batch-id: there is no batch {batch_id}; {held}" if batch_id else f"--batch-id: name one; {held}")


def introduce(screen: Screen, place: JournalPlace, journal: Journal) -> None:
    """Say what a journal that is about to be used does not know, or cannot notice."""
    if journal.is_new:
        screen.note(f"new journal {place}: it knows no earlier payment")
    if journal.remembered_in is None:
        screen.note(
            "this machine keeps no memory of the journal outside of its own folder (the user's state folder cannot "
            "be written): a journal that was restored, or a second one for these orders, is not noticed as surely"
        )


async def check_doubt(journal: Journal) -> None:
    """Refuse to send without looking from a journal that may have forgotten.

    Raises:
        BadInput: It was copied or restored, and nothing was looked for since.
    """
    is_doubted = any(run.quarantined_at is not None for run in await journal.runs())
    if is_doubted and not await journal.is_looked_for():
        raise BadInput(
            "--without-looking: the journal was copied or restored and may have forgotten what was sent; run it "
            "without that, so that the service's list is read first. Nothing was sent"
        )


def own_journal(identity: RunIdentity) -> JournalPlace:
    """The file of one account. A simulated service has another one than the real service, whatever it is called."""
    whose = "\0".join((identity.base_address, identity.user_id))
    host = _NO_NAME.sub("-", urlsplit(identity.base_address).netloc.lower())
    return JournalPlace(str(folder_of_user() / f"{host}-{hashlib.sha256(whose.encode()).hexdigest()[:12]}.sqlite"))


def _own_journals() -> list[Path]:
    """The files that there are, of all accounts."""
    try:
        return sorted(folder_of_user().glob("*.sqlite"))
    except BadInput:
        return []


async def may_be_made(screen: Screen, place: JournalPlace, *, is_wanted: bool) -> bool:
    """Whether a journal that was named is there, or may be made: its name may be mistyped.

    Args:
        is_wanted: The command says that it is to be made.

    Raises:
        BadInput: There is no terminal to ask at.
    """
    question = f"There is no journal {place} yet, and a new one knows no earlier payment. Make it?"
    is_there = is_wanted or await place.exists()
    return is_there or screen.confirmed(question, otherwise="nothing was sent", option="--new-journal")


def make_own_folder(place: JournalPlace) -> None:
    """Make the folder of an account's own journal.

    Raises:
        BadInput: It cannot be made.
    """
    folder = Path(place.text).parent
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadInput(f"--journal: {folder} cannot be made ({error.strerror}); name a file that lasts") from error


def folder_of_user() -> Path:
    """The folder of the accounts' own journals.

    Raises:
        BadInput: There is none.
    """
    folder = user_folder("data")
    if folder is None:  # below the current folder there would be another journal for each
        raise BadInput("--journal: this user has no home folder for the account's own; name a file that lasts")
    return folder
