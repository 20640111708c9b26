"""The folder of a demo: held by one process at a time, with what an unfinished run left there."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from payments_async._cli.demo.service import DemoService
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.faults import FaultLevel
from payments_async._cli.screen import plain

if sys.platform != "win32":
    import fcntl

_STATE = "demo.json"
_OURS = {".gitignore", f"{_STATE}.new"}  # what may be there before the first demo has written its state
_BESIDE = ("", "-wal", "-shm", "-mark")  # what belongs to a journal


@attrs.frozen(kw_only=True)
class DemoState:
    """How far a demo is: all that has to be known to go on with it.

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
    faults: FaultLevel = attrs.field(converter=FaultLevel)
    began: str
    token: str
    port: int = 0
    service: DemoService | None = None
    finished: bool = False


class DemoFolder:
    """The folder, held by this process alone.

    Attributes:
        journal: The journal's file.
        csv, html: The report, as a table and as a page.
        log: What the simulated service says of itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "demo.sqlite"
        self.csv, self.html = path / "report.csv", path / "report.html"
        self.log = path / "sandbox.log"

    def last(self) -> DemoState | None:
        """The demo that was here last.

        Raises:
            BadInput: The file that tells cannot be read.
        """
        path = self.path / _STATE
        try:
            told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            service = told.pop("service")
            return DemoState(service=None if service is None else DemoService(**service), **told)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadInput(f"--dir: {path} tells of no demo of this program; name another directory") from error

    def note(self, state: DemoState) -> None:
        """Write down how far a demo is; all of it or nothing."""
        unfinished = self.path / f"{_STATE}.new"
        unfinished.write_text(json.dumps(plain(state), indent=2) + "\n", encoding="utf-8")
        unfinished.replace(self.path / _STATE)

    def clear(self) -> None:
        """Take away what the last demo left."""
        for path in self._left():
            path.unlink()

    def keep_aside(self, began: str) -> Path:
        """Put what the last demo left into a directory of its own, and tell which."""
        name = f"unfinished-{''.join(filter(str.isdigit, began))}"
        aside, number = self.path / name, 1
        while aside.exists():
            number += 1
            aside = self.path / f"{name}-{number}"
        aside.mkdir()
        for path in self._left():
            path.rename(aside / path.name)
        return aside

    def _left(self) -> list[Path]:
        journal = [self.journal.with_name(self.journal.name + end) for end in _BESIDE]
        known = [*journal, self.csv, self.html, self.log, self.path / _STATE]
        return [path for path in known if path.exists()]


@contextmanager
def held(folder: Path) -> Iterator[DemoFolder]:
    """Hold a folder, made if there is none, until the block ends or this process dies.

    Raises:
        BadInput: It cannot be made, is somebody else's, or another demo is under way in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _STATE).exists() and {path.name for path in folder.iterdir()} - _OURS:
            raise BadInput(f"--dir: {folder} holds other files; name an empty directory, or one that is not there yet")
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--dir: {folder} cannot be used ({error.strerror}); name another directory") from error
    with (folder / ".gitignore").open() as lock:  # it dies with this process
        if sys.platform != "win32":  # where there is none, and nobody starts two demos at a time
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BadInput(
                    f"--dir: another demo is under way in {folder}; wait for it, or name another directory"
                ) from error
            except OSError:
                pass  # a file system without locks
        yield DemoFolder(folder)
