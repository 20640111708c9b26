"""The journal of orders sent one by one: each account has one of its own, which is made by itself. Sends nothing."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import platformdirs
import typer

from payments_async._cli._exits import BadInput
from payments_async._cli._question import confirmed
from payments_async._cli._screen import Screen
from payments_async.journal import RunIdentity

__all__ = ["NewJournal", "OtherJournal", "may_be_made", "own_journal", "own_journals"]

OtherJournal = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        envvar="PAYMENTS_JOURNAL",
        help="The journal's file; by default the account has one of its own, in the user's data folder.",
        show_default=False,
    ),
]
NewJournal = Annotated[
    bool, typer.Option("--new-journal", help="Make the file that --journal names. It knows no earlier payment.")
]
_NO_NAME = re.compile(r"[^a-z0-9.-]+")


def own_journal(identity: RunIdentity) -> Path:
    """The file of one account. A simulated service has another one than the real service, whatever it is called."""
    whose = "\0".join((identity.base_address, identity.user_id))
    host = _NO_NAME.sub("-", urlsplit(identity.base_address).netloc.lower())
    return _folder() / f"{host}-{hashlib.sha256(whose.encode()).hexdigest()[:12]}.sqlite"


def own_journals() -> list[Path]:
    """The files that there are, of all accounts."""
    try:
        return sorted(_folder().glob("*.sqlite"))
    except BadInput:
        return []


def may_be_made(screen: Screen, path: Path, *, named: bool, is_wanted: bool) -> bool:
    """Whether a journal may be made: the account's own by itself, a file that somebody named when they say so.

    Args:
        named: Somebody named the file, and may have mistyped it.
        is_wanted: They said that it is to be made.

    Raises:
        BadInput: Nobody can be asked, or the folder of the account's own journal cannot be made.
    """
    if named:
        question = f"There is no journal {path} yet, and a new one knows no earlier payment. Make it?"
        return is_wanted or confirmed(screen, question, otherwise="nothing was sent", option="--new-journal")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadInput(f"--journal: {path.parent} cannot be made ({error.strerror}); name a file that lasts") from error
    return True


def _folder() -> Path:
    try:
        folder = platformdirs.user_data_path("payments-async", appauthor=False)
    except RuntimeError:
        folder = Path()
    if not folder.is_absolute():  # below the current folder there would be another journal for each
        raise BadInput("--journal: this user has no home folder for the account's own; name a file that lasts")
    return folder
