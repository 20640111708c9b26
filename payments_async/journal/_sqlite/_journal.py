"""SqliteJournal: the journal in one file, for one machine."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

from payments_async._values.checks import check_instance, check_number
from payments_async._values.testing import NOT_TESTING, Testing
from payments_async.journal._engine._journal import Journal
from payments_async.journal._engine._tally import Wanted
from payments_async.journal._faults import WrongAccount
from payments_async.journal._machine._memory import StateFolder
from payments_async.journal._records import Run, RunIdentity, TakeoverAuthorisation
from payments_async.journal._sqlite import _opening
from payments_async.journal._sqlite._database import SqliteDatabase
from payments_async.journal._versions import Step

# Seconds between two looks for what another process has committed: a twentieth of the time without any, within bounds
_LOOK_AGAIN, _LOOK_AGAIN_MAX, _OF_QUIET = 0.05, 0.5, 0.05
_HELD_UP = 1.0  # seconds of a commit of ours after which it is not waited for with a look


class SqliteJournal(Journal):
    """The durable outbox and inbox in one SQLite file. Several processes of one machine may share it.

    Write-ahead log, ``synchronous=FULL``: what a method returned survives a power cut. The methods and what they
    promise are those of ``Journal``. A process that is stopped within a commit holds the file: the others wait.

    What it is, and which request ids it holds, is remembered in the user's state folder too, so that a journal that was
    restored, lost or mistyped is noticed by the next one. A journal that was made without that stays without.

    Args:
        path: The file; made, readable by its owner alone, if there is none. Not on a network file system.
        state_folder: In place of the user's; ``None`` keeps no memory outside of the journal's own folder.
        busy_timeout: Seconds to wait for another process before ``JournalLocked``.
        second_journal: Who says why the account has a second journal on this machine; kept. Otherwise an account has
            one, and orders of another are refused.
        testing: Another clock, and points to die at, for tests.

    Attributes:
        is_new: Opening it has made it: it knows no earlier payment.

    >>> SqliteJournal("payments.sqlite").path.name
    'payments.sqlite'
    """

    _steps: ClassVar[Sequence[Step]] = _opening.STEPS

    def __init__(
        self,
        path: str | Path,
        *,
        state_folder: str | Path | StateFolder | None = StateFolder.OF_USER,
        busy_timeout: float = 10.0,
        second_journal: TakeoverAuthorisation | None = None,
        testing: Testing = NOT_TESTING,
    ) -> None:
        if str(path) in ("", ":memory:"):
            raise ValueError("path: a journal in memory forgets what was sent; name a file")
        if "://" in str(path):  # not shown: a password may be in it
            raise ValueError("path: an address is not a file; give it to journal_at, or to PostgresJournal")
        check_instance("testing", testing, Testing, "Testing(now=...)")
        check_number("busy_timeout", busy_timeout)
        self._path = Path(path)
        self._new_file = partial(
            SqliteDatabase,
            self._path,
            state_folder=state_folder,
            busy_timeout=busy_timeout,
            clock=testing.now or time.time,
            steps=self._steps,
        )
        super().__init__(self._make, second_journal=second_journal, crash_at=testing.crash_at)
        self._heard_at = 0.0  # by the clock of an event loop
        self._stamp: object = None  # of the log, up to which all that others have committed is known

    def _make(self) -> SqliteDatabase:
        self._file = self._new_file()
        return self._file

    @classmethod
    def temporary(cls) -> SqliteJournal:
        """Make a journal for trying things out: it is removed when it is closed.

        It takes orders for a service on this machine alone, such as the sandbox, since it forgets what was sent.
        """
        return _TemporaryJournal(Path(tempfile.gettempdir()) / f"payments-async-{secrets.token_hex(8)}" / "journal.db")

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def hears_every_commit(self) -> bool:
        return True

    async def committed(self, seen: int, *, timeout: float, wanted: Wanted | None = None) -> int:
        commits, time = self._database.commits, asyncio.get_running_loop().time
        until = time() + timeout
        while not commits.is_beyond(seen, wanted):
            await self._look_for_others()
            if (left := until - time()) <= 0:
                break
            pause = max(_LOOK_AGAIN, min(_LOOK_AGAIN_MAX, _OF_QUIET * (time() - self._heard_at)))
            await commits.beyond(seen, min(left, pause), wanted)
        return commits.count

    async def _look_for_others(self) -> None:
        """See whether another connection has committed: the one that writes here is asked, which leaves its own out."""
        stamp = _opening.stamp_of(self._path)  # before: what is committed meanwhile is asked for once more
        if stamp is not None and stamp == self._stamp:
            return  # nothing was written since
        asked = self._writer.ask(self._file.is_changed_by_others)
        asked.add_done_callback(partial(self._answered, stamp))
        await asyncio.wait([asked], timeout=_HELD_UP)
        if asked.done():
            asked.result()  # raises why it could not be asked
        else:  # a commit of ours waits for another process, which may have committed
            self._database.commits.rise()

    def _answered(self, stamp: object, asked: asyncio.Future[bool]) -> None:
        """What the connection that writes has answered, to one who waited for it or did not."""
        if asked.cancelled() or asked.exception() is not None:
            return
        self._stamp = stamp
        if asked.result():
            self._heard_at = asyncio.get_running_loop().time()
            self._database.commits.rise()


class _TemporaryJournal(SqliteJournal):
    """A journal in a folder of its own, which is removed when it is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, state_folder=None)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.path.parent.mkdir, mode=0o700)
        try:
            return await super().__aenter__()
        except BaseException:
            self._remove()
            raise

    async def aclose(self) -> None:
        is_ours = not self._writer.is_forked  # a child leaves it to its parent
        await super().aclose()
        if is_ours:
            await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        shutil.rmtree(self.path.parent, ignore_errors=True)

    async def open_run(
        self,
        batch_id: str,
        identity: RunIdentity,
        *,
        source_digest: str | None = None,
        policy: str | None = None,
        outbox: str | None = None,
        approvals: int = 0,
        compared: Collection[str] | None = None,
    ) -> Run:
        _check_local(identity)
        return await super().open_run(
            batch_id,
            identity,
            source_digest=source_digest,
            policy=policy,
            outbox=outbox,
            approvals=approvals,
            compared=compared,
        )

    async def open_outbox(self, name: str, identity: RunIdentity) -> Run:
        _check_local(identity)
        return await super().open_outbox(name, identity)


def _check_local(identity: RunIdentity) -> None:
    """Refuse orders for a service elsewhere: they may be real payments. Raises ``WrongAccount``."""
    host = urlsplit(identity.base_address).hostname or ""
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        words = f"a temporary journal forgets what was sent, and the service is at {identity.base_address}"
        raise WrongAccount(f"{words}: name a file, as in SqliteJournal('payments.sqlite')")
