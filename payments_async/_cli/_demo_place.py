"""The directory of a demo: whose turn it is, and what an unfinished run left there. Sends nothing, starts nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import attrs

from payments_async._cli._demo_service import DemoService
from payments_async._cli._exits import BadInput
from payments_async._cli._screen import plain
from payments_async._cli._trouble import Faults

if sys.platform != "win32":
    import fcntl

__all__ = ["Place", "Trial", "held"]

_STATE = "demo.json"
_OURS = {".gitignore", f"{_STATE}.new"}  # what may be there before the first demo has written its state
_BESIDE = ("", "-wal", "-shm", "-mark")  # what belongs to a journal


@attrs.frozen(kw_only=True)
class Trial:
    """One demo from its beginning to its verdict: all that has to be known to go on with it.

    Attributes:
        file: The batch file as it was named, or ``None`` for the sample.
        digest: Of the file's bytes.
        began: When, as people read it.
        token: The last segment of the address for notifications; no other demo has it.
        port: Where notifications come to.
        service: The simulated service, or ``None`` as long as it was not started: then nothing was sent either.
        finished: The ledger has judged.
    """

    file: str | None
    digest: str
    seed: int
    faults: Faults = attrs.field(converter=Faults)
    began: str
    token: str
    port: int = 0
    service: DemoService | None = None
    finished: bool = False

    @classmethod
    def read(cls, text: str) -> Self:
        """What was written.

        Raises:
            ValueError, TypeError: It is something else.
        """
        told: dict[str, Any] = json.loads(text)
        service = told.pop("service")
        return cls(service=None if service is None else DemoService(**service), **told)


@attrs.frozen
class Place:
    """The directory, held by this process alone."""

    folder: Path

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.folder / "demo.sqlite"

    @property
    def csv(self) -> Path:
        """The report as a table."""
        return self.folder / "report.csv"

    @property
    def html(self) -> Path:
        """The report as a page."""
        return self.folder / "report.html"

    @property
    def log(self) -> Path:
        """What the simulated service says of itself."""
        return self.folder / "sandbox.log"

    def last(self) -> Trial | None:
        """The demo that was here last.

        Raises:
            BadInput: The file that tells cannot be read.
        """
        state = self.folder / _STATE
        try:
            return Trial.read(state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadInput(f"--dir: {state} tells of no demo of this program; name another directory") from error

    def note(self, trial: Trial) -> None:
        """Write down how far a demo is; all of it or nothing."""
        unfinished = self.folder / f"{_STATE}.new"
        unfinished.write_text(json.dumps(plain(trial), indent=2) + "\n", encoding="utf-8")
        unfinished.replace(self.folder / _STATE)

    def clear(self) -> None:
        """Take away what the last demo left."""
        for path in self._left():
            path.unlink()

    def keep_aside(self, began: str) -> Path:
        """Put what the last demo left into a directory of its own, and tell which."""
        name = f"unfinished-{''.join(filter(str.isdigit, began))}"
        aside, number = self.folder / name, 1
        while aside.exists():
            number += 1
            aside = self.folder / f"{name}-{number}"
        aside.mkdir()
        for path in self._left():
            path.rename(aside / path.name)
        return aside

    def _left(self) -> list[Path]:
        journal = [self.journal.with_name(self.journal.name + end) for end in _BESIDE]
        known = [*journal, self.csv, self.html, self.log, self.folder / _STATE]
        return [path for path in known if path.exists()]


@contextmanager
def held(folder: Path) -> Iterator[Place]:
    """Hold a directory, made if there is none, until the block ends or this process dies.

    Raises:
        BadInput: It cannot be made, is somebody else's, or another demo is under way in it.
    """
    place = Place(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _STATE).exists() and {path.name for path in folder.iterdir()} - _OURS:
            raise BadInput(f"--dir: {folder} holds other files; name an empty directory, or one that is not there yet")
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--dir: {folder} cannot be used ({error.strerror}); name another directory") from error
    with _locked(folder):
        yield place


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A lock that dies with the process. Windows has none, and nobody starts two demos at a time there."""
    if sys.platform == "win32":
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(
                f"--dir: another demo is under way in {folder}; wait for it, or name another directory"
            ) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(number)
