"""What this machine remembers of its journals: how far each has come, where it was, and who holds which request ids.

A small file for each journal and a database of its own, in the user's state folder: they are there when a journal's
folder is lost, restored or mistyped.
"""

from __future__ import annotations

import enum
import hashlib
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import WeakSet

from payments_async._values.frozen import frozen
from payments_async._values.request_ids import plain_id
from payments_async.journal._approvals import ApprovalRule, kept_rule
from payments_async.journal._faults import (
    HeldElsewhere,
    JournalClosed,
    JournalError,
    JournalReadOnly,
    JournalUnavailable,
    LoadBusy,
    RegistryDamaged,
    SecondJournal,
)
from payments_async.journal._machine._sqlite_faults import FAULTS
from payments_async.journal._records import Holder, RunIdentity

_log = logging.getLogger("payments_async")
_SHOWN = 5  # request ids named in an error
_TABLES = (
    """CREATE TABLE IF NOT EXISTS journal (
        id TEXT PRIMARY KEY, path TEXT NOT NULL, seen_at REAL NOT NULL) STRICT, WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS journal_path ON journal(path)",
    "CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE) STRICT",
    # a batch as one journal holds it; adopted: it has orders of another one; taken_by: another one has some of its
    """CREATE TABLE IF NOT EXISTS batch (
        id INTEGER PRIMARY KEY, journal TEXT NOT NULL, run TEXT NOT NULL, account INTEGER NOT NULL,
        batch_id TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'loading', orders INTEGER NOT NULL DEFAULT 0,
        begun_at REAL NOT NULL, ready_at REAL, adopted INTEGER NOT NULL DEFAULT 0, taken_by INTEGER,
        UNIQUE (journal, run)) STRICT""",
    # request_id: its key, as `plain_id` makes it
    """CREATE TABLE IF NOT EXISTS request (
        account INTEGER NOT NULL, request_id TEXT NOT NULL, batch INTEGER NOT NULL,
        PRIMARY KEY (account, request_id)) STRICT, WITHOUT ROWID""",
    # how many must approve the batches of a journal, as it was set last
    """CREATE TABLE IF NOT EXISTS approval_rule (
        journal TEXT PRIMARY KEY, needed INTEGER NOT NULL, shared_logins INTEGER NOT NULL, why TEXT NOT NULL,
        who TEXT NOT NULL, login TEXT NOT NULL, machine TEXT NOT NULL, at REAL NOT NULL) STRICT, WITHOUT ROWID""",
)
HELD = """SELECT b.id, b.journal, b.batch_id, b.orders, b.begun_at, b.ready_at, j.path
    FROM batch b LEFT JOIN journal j ON j.id = b.journal"""
_FAULTS = {code: kind for code, (kind, _) in FAULTS.items()} | {
    sqlite3.SQLITE_CANTOPEN: JournalReadOnly,
    sqlite3.SQLITE_CORRUPT: RegistryDamaged,
    sqlite3.SQLITE_NOTADB: RegistryDamaged,
    sqlite3.SQLITE_ERROR: RegistryDamaged,  # other tables than ours
}
_UNFIT = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL}  # a network file system without locks, for one
_COUNT, _ID = 8, 16  # bytes
_FOLDED = 1  # the version of a registry that knows orders by the keys of their request ids
_ROWS = 64  # single orders that are registered in one statement
_MOMENT = 0.01  # seconds, until a registry that another process is making is tried again
_MOST_COMMITS = 1 << 62  # no journal comes near it: what says more is damaged


class CommitCounter:
    """How many commits of which journal were made, as far as this small file has heard.

    It is written after a commit and without an fsync: it may lag behind, and is never ahead.

    Args:
        path: Of the small file; made when it is opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None  # not every system has pread and pwrite

    def read(self) -> tuple[int, str] | None:
        """The count, and the journal's id or an empty text; ``None`` when there is nothing to be read."""
        try:
            if self._file is not None:
                return _understood(self._first(_COUNT + _ID))
            with self._path.open("rb") as file:
                return _understood(file.read(_COUNT + _ID))
        except FileNotFoundError:
            return None

    def count(self) -> int:
        """The count, or 0; the file is open."""
        return int.from_bytes(self._first(_COUNT), "big") % _MOST_COMMITS

    def open(self, journal_id: str, count: int) -> None:
        """Make the file that of a journal, and set its count.

        Raises:
            OSError: It cannot be written.
        """
        self._file = FileIO(self._path, "r+", opener=_made)
        try:
            self._file.write(count.to_bytes(_COUNT, "big") + bytes.fromhex(journal_id))
        except OSError:
            self.close()
            raise

    def follow(self, count: int) -> None:
        """Write the count down, if that can be done."""
        if self._file is not None:
            try:
                self._file.seek(0)
                self._file.write(count.to_bytes(_COUNT, "big"))
            except OSError:  # one that lags behind detects less, and stops nobody
                pass

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _first(self, size: int) -> bytes:
        assert self._file is not None
        self._file.seek(0)
        return self._file.read(size)


def _made(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)


def _understood(data: bytes) -> tuple[int, str] | None:
    count = int.from_bytes(data[:_COUNT], "big")
    if len(data) < _COUNT or count >= _MOST_COMMITS:
        return None
    return count, data[_COUNT:].hex() if len(data) == _COUNT + _ID else ""


@frozen(kw_only=True)
class Loading:
    """A batch that is being loaded here.

    Attributes:
        account: Whose money, as the registry numbers it.
        is_ready: It was registered to its end before.
        is_complete: ... and holds as many orders as the journal.
    """

    id: int
    journal: str
    account: int
    batch_id: str
    is_ready: bool
    is_complete: bool


class Registry:
    """The registry in a file.

    Args:
        path: Made, readable by its owner alone, if there is none.
        busy_timeout: Seconds to wait for another process.

    Attributes:
        place: Which file it is, by device and number.

    Raises:
        JournalUnavailable: Another process holds it for too long.
        JournalClosed: It was open in the process that this one was forked from.
        RegistryDamaged: It is damaged, or no registry.
        JournalReadOnly: It cannot be made or written, or not here.
    """

    def __init__(self, path: Path, *, busy_timeout: float) -> None:
        self._path = path
        self._translating = _Translating(path)
        self._is_durable = False
        self._written = 0  # by us, but for single orders of which no other batch knew
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError as error:
            if not os.access(path, os.R_OK | os.W_OK):
                raise JournalReadOnly(f"{path} cannot be written") from error
        except OSError as error:
            raise JournalReadOnly(f"{path} cannot be made ({error.strerror})") from error
        if self._there() in _OPEN_IN_PARENT:  # what is registered here would be lost when the parent closes it
            raise JournalClosed.by_fork(path)
        with self._translating:
            self._connection = sqlite3.connect(
                path, timeout=busy_timeout, isolation_level=None, check_same_thread=False
            )
        try:
            with self._translating:
                _prepare(self._connection, until=time.monotonic() + busy_timeout)
            self.place = self._there()
            _OPEN_HERE.add(self)
        except JournalError as error:
            self._connection.close()
            if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF in _UNFIT:
                raise JournalReadOnly(error.message) from error.__cause__
            raise

    def close(self) -> None:
        """Close it."""
        self._connection.close()
        _OPEN_HERE.discard(self)

    def _there(self) -> tuple[int, int] | None:
        """Which file is at its place now."""
        try:
            about = self._path.stat()
        except OSError:
            return None
        return about.st_dev, about.st_ino

    # journals

    def path_of(self, journal_id: str) -> str | None:
        """Where a journal was last."""
        found = self._rows("SELECT path FROM journal WHERE id = ?", journal_id)
        return str(found[0][0]) if found else None

    def journals_at(self, path: Path) -> list[str]:
        """The ids of the journals that were last seen at a path."""
        return [journal_id for (journal_id,) in self._rows("SELECT id FROM journal WHERE path = ?", str(path))]

    def note_place(self, journal_id: str, path: Path, now: float) -> None:
        """Write down where a journal is."""
        if self.path_of(journal_id) != str(path):
            self._rows(
                "INSERT OR REPLACE INTO journal (id, path, seen_at) VALUES (?, ?, ?)", journal_id, str(path), now
            )

    def batches_of(self, journal_id: str) -> list[Holder]:
        """The batches of a journal whose orders were all in it: some of them may have been sent."""
        return self._holders("b.journal = ? AND b.state = 'ready' ORDER BY b.id", journal_id)

    def has_sent_nothing(self, journal_id: str) -> bool:
        """Whether a journal is known to have had batches, and none of which anything may have been sent."""
        sql = "SELECT count(*), coalesce(sum(state = 'ready'), 0) FROM batch WHERE journal = ?"
        ((batches, ready),) = self._rows(sql, journal_id)
        return bool(batches and not ready)

    def holders_of(self, request_id: str) -> list[Holder]:
        """The batches that may have sent an order of this id, of whichever journal and account."""
        return self._holders(
            """b.state = 'ready' AND b.id IN (SELECT r.batch FROM account a
            JOIN request r ON r.account = a.id WHERE r.request_id = ?) ORDER BY b.id""",
            plain_id(request_id),
        )

    # approvals

    def rule_of(self, journal_id: str) -> ApprovalRule | None:
        """How many must approve the batches of a journal, as far as this machine has heard."""
        found = self._rows(
            "SELECT needed, shared_logins, why, who, login, machine, at FROM approval_rule WHERE journal = ?",
            journal_id,
        )
        return kept_rule(*found[0]) if found else None

    def rules_of(self, journal_id: str, identity: RunIdentity | None) -> list[ApprovalRule]:
        """The rules of a journal, and of the others of its account if that is known, oldest first."""
        digest = None if identity is None else account_digest(identity)
        found = self._rows(
            """SELECT journal FROM approval_rule WHERE journal = ? OR journal IN (
            SELECT b.journal FROM account a JOIN batch b ON b.account = a.id WHERE a.digest = ?) ORDER BY at""",
            journal_id,
            digest,
        )
        rules = [self.rule_of(journal) for (journal,) in found]
        return [rule for rule in rules if rule is not None]

    def note_rule(self, journal_id: str, rule: ApprovalRule) -> None:
        """Write down how many must approve the batches of a journal."""
        by = rule.by
        if by is None:
            return
        with self._writing(durable=True):
            self._connection.execute(
                "INSERT OR REPLACE INTO approval_rule VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (journal_id, rule.needed, rule.shared_logins, rule.why, by.who, by.login, by.machine, by.at),
            )

    # batches

    def version(self) -> tuple[int, int]:
        """What is another one whenever anything was written but single orders that no other batch knew."""
        ((of_others,),) = self._rows("PRAGMA data_version")
        return of_others, self._written

    def taken(self, journal_id: str, run: str) -> Holder | None:
        """Who holds orders of a batch now that some journal had ready before.

        An outbox has further names here: since its journal was restored, and for what it has adopted itself. Not this
        very outbox under one of those.
        """
        first, end = _since(run), _since(run, end=True)
        found = self._holders(
            """b.id IN (SELECT taken_by FROM batch
            WHERE journal = ? AND (run = ? OR (run > ? AND run < ?)) AND state = 'ready')
            AND NOT (b.journal = ? AND b.run > ? AND b.run < ?) ORDER BY b.id DESC LIMIT 1""",
            *(journal_id, run, first, end, journal_id, first, end),
        )
        return found[0] if found else None

    def begin(
        self, journal_id: str, run: str, batch_id: str, identity: RunIdentity, *, orders: int | None, now: float
    ) -> Loading:
        """Begin to register a batch, or find it again.

        Args:
            run: What tells this batch from one of the same name in the same journal before it was restored.
            orders: How many the journal holds, if it holds all of them.
        """
        with self._writing():
            execute = self._connection.execute
            digest = account_digest(identity)
            execute("INSERT INTO account (digest) VALUES (?) ON CONFLICT DO NOTHING", (digest,))
            (account,) = execute("SELECT id FROM account WHERE digest = ?", (digest,)).fetchone()
            execute(
                """INSERT INTO batch (journal, run, account, batch_id, begun_at) VALUES (?, ?, ?, ?, ?)
                ON CONFLICT DO NOTHING""",
                (journal_id, run, account, batch_id, now),
            )
            number, state, held, adopted = execute(
                "SELECT id, state, orders, adopted FROM batch WHERE journal = ? AND run = ?", (journal_id, run)
            ).fetchone()
            if state == "loading":
                execute("UPDATE batch SET taken_by = NULL WHERE id = ?", (number,))
                if held and not adopted:  # an interrupted load, which may bring others now; none of it was ever sent
                    execute("DELETE FROM request WHERE account = ? AND batch = ?", (account, number))
                    execute("UPDATE batch SET orders = 0 WHERE id = ?", (number,))
        return Loading(
            id=number,
            journal=journal_id,
            account=account,
            batch_id=batch_id,
            is_ready=state == "ready",
            is_complete=state == "ready" and held == orders,
        )

    def register(self, loading: Loading, request_ids: Sequence[str], *, adopt: bool = False) -> dict[str, Holder]:
        """Register orders, all or none. Tells which of them another batch holds that was ready: then it is none.

        Args:
            adopt: Take those over too.
        """
        mine = [(loading.account, key, loading.id) for key in set(map(plain_id, request_ids))]
        with self._writing(durable=adopt):
            added = self._connection.executemany(
                "INSERT INTO request (account, request_id, batch) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", mine
            ).rowcount
            if added < len(mine):
                others = self._others(loading, request_ids)
                ready = {request_id: holder for request_id, holder in others if holder.ready_at is not None}
                if ready and not adopt:
                    self._connection.execute("ROLLBACK")
                    return ready
                added += self._take(loading, others)
                if ready:  # what an adopter had before may have been taken from it: now all of it comes back
                    self._connection.execute(
                        "UPDATE batch SET adopted = 1, taken_by = NULL WHERE id = ?", (loading.id,)
                    )
            self._connection.execute("UPDATE batch SET orders = orders + ? WHERE id = ?", (added, loading.id))
        return {}

    def put(
        self, loading: Loading, request_ids: Sequence[str], undone: Undone | None = None
    ) -> tuple[dict[str, Holder], frozenset[str]]:
        """Register single orders that no other batch may have sent.

        Args:
            undone: What was registered first for a commit that was undone: it was never sent.

        Returns:
            Which batch holds those that others may have sent; and the keys of those that were not registered before,
            as far as that is known: all of them, or none.
        """
        keys = list(dict.fromkeys(map(plain_id, request_ids)))
        held: dict[str, Holder] = {}
        with self._writing(is_put=True):
            if undone is not None:
                self._rename(undone, loading)
            added = sum([self._add(loading, keys[at : at + _ROWS]) for at in range(0, len(keys), _ROWS)])
            taken = 0
            if added < len(keys):  # this batch has had some, or another one has them
                others = self._others(loading, request_ids)
                held = {request_id: holder for request_id, holder in others if holder.ready_at is not None}
                taken = self._take(loading, [one for one in others if one[0] not in held])
            self._connection.execute("UPDATE batch SET orders = orders + ? WHERE id = ?", (added + taken, loading.id))
        return held, frozenset(keys if added == len(keys) else ())

    def _rename(self, undone: Undone, loading: Loading) -> None:
        """Let orders that a batch has registered first, and never sent, be another one's of the same journal."""
        for key in undone.keys:
            moved = self._connection.execute(
                "UPDATE request SET batch = ? WHERE account = ? AND request_id = ? AND batch = ?",
                (loading.id, loading.account, key, undone.loading.id),
            ).rowcount
            for number, count in ((undone.loading.id, -moved), (loading.id, moved)):
                self._connection.execute("UPDATE batch SET orders = orders + ? WHERE id = ?", (count, number))

    def adopt(self, loading: Loading, request_ids: Sequence[str]) -> None:
        """Let orders that other batches may have sent be those of a batch for adopted ones, and as old as they are.

        Who holds them is asked here: another journal may have adopted them in this moment, and is to hear of it.
        """
        with self._writing(durable=True):
            others = self._others(loading, request_ids)
            first = min((holder.begun_at for _, holder in others), default=math.inf)
            self._connection.execute(
                "UPDATE batch SET orders = orders + ?, begun_at = min(begun_at, ?) WHERE id = ?",
                (self._take(loading, others), first, loading.id),
            )

    def other_journal(self, loading: Loading) -> Holder | None:
        """What another journal of the account had ready last, where this one has had, or adopted, nothing of it."""
        found = self._holders(
            """b.account = ? AND b.state = 'ready' AND b.journal <> ? AND NOT EXISTS (SELECT 1
            FROM batch m WHERE m.account = b.account AND m.journal = ? AND (m.state = 'ready' OR m.adopted))
            ORDER BY b.id DESC LIMIT 1""",
            *(loading.account, loading.journal, loading.journal),
        )
        return found[0] if found else None

    def ready(self, loading: Loading, now: float, *, may_be_second: bool = False) -> None:
        """All orders of a batch are registered, and any of them may be sent soon.

        Args:
            may_be_second: Also from a second journal of the account.

        Raises:
            LoadBusy: Meanwhile another load has taken some of them over.
            SecondJournal: Another journal of the account is known, and no person has said why there are two.
        """
        with self._writing(durable=True):
            other = None if may_be_second else self.other_journal(loading)
            done = self._connection.execute(
                "UPDATE batch SET state = 'ready', ready_at = coalesce(ready_at, ?) WHERE id = ? AND taken_by IS NULL",
                (now, loading.id),
            )
            if not done.rowcount:
                raise LoadBusy(f"another journal is loading orders of batch {loading.batch_id} at the same time")
            if other is not None:
                raise second_journal(other)

    def _add(self, loading: Loading, keys: Sequence[str]) -> int:
        """Register some orders that are not yet, in one statement; tells how many that were.

        Each statement hands the interpreter over, and whoever puts an order waits for it.
        """
        width = 1 << (len(keys) - 1).bit_length()  # few different statements, which are kept
        marks = ", ".join(["(?, ?, ?)"] * width)
        values: list[object] = []
        for key in (*keys, *[keys[-1]] * (width - len(keys))):
            values += (loading.account, key, loading.id)
        return self._connection.execute(
            f"INSERT INTO request (account, request_id, batch) VALUES {marks} ON CONFLICT DO NOTHING",  # noqa: S608
            values,
        ).rowcount

    def _others(self, loading: Loading, request_ids: Sequence[str]) -> list[tuple[str, Holder]]:
        """Which of these orders other batches hold, and which those are."""
        asked = {plain_id(request_id): request_id for request_id in request_ids}
        marks = ",".join("?" * len(asked))
        found = self._connection.execute(
            f"""SELECT request_id, batch FROM request
            WHERE account = ? AND batch <> ? AND request_id IN ({marks})""",  # noqa: S608 - marks only
            (loading.account, loading.id, *asked),
        ).fetchall()
        holders: dict[int, Holder] = {}
        for _, number in found:
            if number not in holders:
                (holders[number],) = self._holders("b.id = ?", number)
        return [(asked[key], holders[number]) for key, number in found]

    def _take(self, loading: Loading, others: Sequence[tuple[str, Holder]]) -> int:
        """Let orders be this batch's from now on; tells how many."""
        self._written += len(others)
        for request_id, holder in others:
            self._connection.execute(
                "UPDATE request SET batch = ? WHERE account = ? AND request_id = ?",
                (loading.id, loading.account, plain_id(request_id)),
            )
            self._connection.execute(
                "UPDATE batch SET orders = orders - 1, taken_by = ? WHERE id = ?", (loading.id, holder.id)
            )
        return len(others)

    def _rows(self, sql: str, *values: object) -> list[Any]:
        """What a statement finds."""
        with self._translating:
            return self._connection.execute(sql, values).fetchall()

    def _holders(self, condition: str, *values: object) -> list[Holder]:
        """The batches of which something holds."""
        return list(map(Holder._make, self._rows(f"{HELD} WHERE {condition}", *values)))

    @contextmanager
    def _writing(self, *, durable: bool = False, is_put: bool = False) -> Iterator[None]:
        """One transaction, undone when something is raised in it.

        Args:
            is_put: It registers single orders.

        Raises:
            JournalUnavailable: The file is not at its place any more: nobody else would learn what is written.
        """
        if self._there() != self.place:
            raise JournalUnavailable(
                f"{self._path}: what this machine remembers of its journals was moved, deleted or replaced while it is "
                "open, and no other journal would learn what is sent from here; put it back, or end whatever uses the "
                "journal and begin again"
            )
        with self._translating:
            execute = self._connection.execute
            self._written += not is_put
            if durable is not self._is_durable:
                execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")  # the log before it comes along
                self._is_durable = durable
            execute("BEGIN IMMEDIATE")
            try:
                yield
                if self._connection.in_transaction:
                    execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    execute("ROLLBACK")


class _Translating:
    """While it is entered, one thread at a time asks the registry, and errors of SQLite are those of the journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()  # loads ask from threads of their own

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._lock.release()
        if isinstance(error, sqlite3.Error):
            kind = _FAULTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, JournalUnavailable)
            raise kind(f"{self._path}: what this machine remembers of its journals ({error})") from error


def _prepare(connection: sqlite3.Connection, *, until: float) -> None:
    """Give a registry its tables, though another process may be doing the same.

    Two that turn on the log of a new file at once would wait for each other: SQLite lets one of them fail at once,
    whatever time it was given to wait.
    """
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # FULL only for what somebody relies on
            for statement in _TABLES:
                connection.execute(statement)
            _fold(connection)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_MOMENT)
        else:
            return


def _fold(connection: sqlite3.Connection) -> None:
    """Let orders be known by the keys of their request ids, where an older version wrote the ids themselves."""
    if connection.execute("PRAGMA user_version").fetchone()[0] < _FOLDED:
        connection.create_function("plain_id", 1, plain_id, deterministic=True)
        connection.execute("UPDATE OR IGNORE request SET request_id = plain_id(request_id)")
        connection.execute(f"PRAGMA user_version = {_FOLDED}")


def held_elsewhere(held: Mapping[str, Holder], journal_id: str) -> HeldElsewhere:
    """The error that says who holds these orders."""
    request_id, holder = next(iter(held.items()))
    many = f" and {len(held) - 1:,} more of these orders" if len(held) > 1 else ""
    where = f"the journal {holder.path or 'that was lost'}"
    if holder.journal == journal_id:
        where = "this very journal, which was restored from before that and has forgotten it"
    return HeldElsewhere(
        f"request id {request_id}{many} may have been sent already: {holder} of {where}",
        list(held)[:_SHOWN],
        path=holder.path,
        batch_id=holder.batch_id,
        since=min(holder.begun_at for holder in held.values()),
    )


def check_adopted(registry: Registry, journal_id: str, run: str, batch_id: str) -> None:
    """Raise ``HeldElsewhere`` where another journal has adopted orders of a batch."""
    taken = registry.taken(journal_id, run)
    if taken is not None:
        raise HeldElsewhere(
            f"orders of batch {batch_id} were adopted by {taken} of the journal {taken.path}",
            path=taken.path,
            batch_id=taken.batch_id,
            since=taken.begun_at,
        )


def second_journal(other: Holder) -> SecondJournal:
    """The error that names the account's other journal."""
    where = other.path or "that was lost"
    return SecondJournal(f"this machine has another journal of this account: {where}, with {other}", other.path)


def account_digest(identity: RunIdentity) -> bytes:
    """What the registry knows an account by."""
    words = "\0".join((identity.base_address, identity.user_id))
    return hashlib.sha256(words.encode()).digest()[:16]


def _since(run: str, *, end: bool = False) -> str:
    """How the names begin that an outbox has here since its journal was restored; or what comes after all of them."""
    return f"{run}{'A' if end else '@'}"


class Undone(NamedTuple):
    """What was registered first for a commit that may be undone.

    Attributes:
        of: What is done in that commit, as ``Commit.of``.
        keys: Of the orders, as they are registered.
    """

    of: object
    loading: Loading
    keys: frozenset[str]


class PutRegistrar:
    """Registers the single orders of an outbox, under another name since its journal was last found to be restored.

    So those that it registered before, and may have sent and forgotten, are held by another one. One that is registered
    under this name and got no further died with its process: it is put again.

    Args:
        uid: What tells the outbox from any other of the same name.
        clock: Gives Unix seconds.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        journal_id: str,
        uid: str,
        name: str,
        identity: RunIdentity,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._journal_id = journal_id
        self._uid = uid
        self._name = name
        self._identity = identity
        self._clock = clock
        self._loadings: dict[float | None, Loading] = {}
        self._last: Undone | None = None
        self._unadopted: tuple[int, int] | None = None  # the registry when no other journal had adopted any of these

    def __call__(
        self, request_ids: Sequence[str], adopted: Collection[str], doubted_at: float | None, of: object
    ) -> Mapping[str, HeldElsewhere]:
        """Register orders that the journal does not hold as its own; which of them may have been sent already.

        Args:
            adopted: Those that a person takes over from another batch. They are registered under a name of their own:
                where this journal forgets such an order, or never keeps it, it is still one that may have been sent.
            doubted_at: When the journal was last found to be copied or restored, if ever.
            of: What is done in the commit. Where it is done anew, as another process has found meanwhile that the
                journal was restored, what was registered first a moment ago was never sent.
        """
        loading, last = self.loading(doubted_at), self._last
        undone = last if last is not None and last.of is of is not None and last.loading.id != loading.id else None
        held, new = self._registry.put(loading, request_ids, undone)
        self._last = Undone(of, loading, new)
        if taken := [request_id for request_id in held if request_id in adopted]:
            adopting = self._begin(f"{_since(self._uid)}adopted")
            self._registry.adopt(self._made_ready(adopting), taken)
        return {
            request_id: held_elsewhere({request_id: holder}, loading.journal) for request_id, holder in held.items()
        }

    def check(self) -> None:
        """Raise ``HeldElsewhere`` where another journal has adopted orders of the outbox."""
        version = self._registry.version()  # before: what is written meanwhile is asked for once more
        if version != self._unadopted:
            check_adopted(self._registry, self._journal_id, self._uid, self._name)
            self._unadopted = version

    def begun(self, doubted_at: float | None) -> Loading:
        """What the outbox is to the registry, whether or not anything of it may be sent yet."""
        return self._begin(self._uid if doubted_at is None else f"{_since(self._uid)}{doubted_at!r}")

    def _made_ready(self, loading: Loading) -> Loading:
        if not loading.is_ready:
            self._registry.ready(loading, self._clock())
        return loading

    def _begin(self, run: str) -> Loading:
        now = self._clock()
        return self._registry.begin(self._journal_id, run, self._name, self._identity, orders=None, now=now)

    def loading(self, doubted_at: float | None) -> Loading:
        """What the outbox is to the registry. Raises ``JournalUnavailable`` or ``SecondJournal``."""
        if doubted_at not in self._loadings:
            self._loadings[doubted_at] = self._made_ready(self.begun(doubted_at))
        return self._loadings[doubted_at]


class StateFolder(enum.Enum):
    """Where a journal is remembered besides its own folder."""

    OF_USER = enum.auto()

    def path(self) -> Path:
        """The user's state folder, as the platform has it; on Linux ``XDG_STATE_HOME`` moves it.

        Raises:
            FileNotFoundError: The user has no home.
        """
        import platformdirs  # where no folder is given: it brings 2 % of what an import of the journal costs

        try:
            folder = platformdirs.user_state_path("payments-async", appauthor=False)
        except RuntimeError as error:
            raise FileNotFoundError(str(error)) from error
        if not folder.is_absolute():  # older versions of that library leave the ~ in it
            raise FileNotFoundError(f"there is no home folder for {folder}")
        return folder


class MachineState:
    """The state folder: the registry, and an anchor for each journal.

    Attributes:
        folder: Where it is.
        registry: Which journal was where, and which holds which request ids.
    """

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.folder = folder
        self.registry = registry

    @classmethod
    def opened(cls, place: str | Path | StateFolder | None, *, busy_timeout: float) -> Self | None:
        """The memory in a folder, made if there is none; ``None`` where none is wanted, or nothing can be written.

        Raises:
            JournalUnavailable: Another process holds it for too long, or it is damaged.
        """
        if place is None:
            return None
        try:
            folder = place.path() if isinstance(place, StateFolder) else Path(place)
            (folder / "anchors").mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)  # orders are named in it
            registry = Registry(folder / "registry.sqlite", busy_timeout=busy_timeout)
        except (OSError, JournalReadOnly) as error:
            _say_so(place, error)
            return None
        return cls(folder, registry)

    def anchor(self, journal_id: str) -> CommitCounter:
        """The anchor of a journal."""
        return CommitCounter(self.folder / "anchors" / journal_id)

    def followed(self, journal_id: str, path: Path, *, commits: int, now: float) -> CommitCounter | None:
        """The anchor of a journal that is here now, to count its commits; ``None``, and closed, where none can be."""
        anchor = self.anchor(journal_id)
        try:
            anchor.open(journal_id, commits)
        except OSError as error:
            _say_so(self.folder, error)
            self.close()
            return None
        self.registry.note_place(journal_id, path, now)
        return anchor

    def learn_rule(self, journal_id: str, rule: ApprovalRule) -> None:
        """Remember how many must approve the batches of a journal, unless a later rule is known."""
        known = self.registry.rule_of(journal_id)
        if rule.by is not None and (known is None or known.by is None or rule.by.at > known.by.at):
            self.registry.note_rule(journal_id, rule)

    def lost_at(self, path: Path, *, but: str | None = None) -> str | None:
        """What was at a path, in words, if it was another journal with orders that has not been seen elsewhere."""
        for journal_id in self.registry.journals_at(path):
            known = self.anchor(journal_id).read()
            if journal_id != but and known is not None and known[0] and not self.registry.has_sent_nothing(journal_id):
                batches = ", ".join(map(str, self.registry.batches_of(journal_id)))
                return f"a journal with {batches}" if batches else "a journal with orders"
        return None

    def close(self) -> None:
        """Close the registry."""
        self.registry.close()


def _say_so(folder: str | Path | StateFolder, error: Exception) -> None:
    _log.warning(
        "the state folder cannot be used; journals are remembered in their own folders only: %s",
        error,
        extra={"folder": str(folder), "why": str(error)},
    )


def _leave_to_the_parent() -> None:
    """In a forked child."""
    _OPEN_IN_PARENT.update(registry.place for registry in _OPEN_HERE if registry.place is not None)
    _OPEN_HERE.clear()


_OPEN_HERE: WeakSet[Registry] = WeakSet()  # in this process
_OPEN_IN_PARENT: set[tuple[int, int]] = set()  # when this process was forked
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
