"""A journal's file: its tables, and how it is made and opened."""

from __future__ import annotations

import ctypes
import glob
import os
import secrets
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from payments_async.journal._engine._request_keys import SINCE, write_keys
from payments_async.journal._faults import (
    JournalOutdated,
    JournalReadOnly,
    JournalUnavailable,
    NotAJournal,
    PlaceTaken,
)
from payments_async.journal._sqlite._faults import translated
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import IS_UNSETTLED, SHIFT, among
from payments_async.journal._statements._moving import TableShape, tables_in
from payments_async.journal._states import UNSENT
from payments_async.journal._versions import Migration, Step, Version, migration

_AT_FDCWD, _STATX_BTIME = -100, 0x800
_SECONDS, _NANOSECONDS = 80, 88  # where the birth time lies in what statx(2) fills in
APPLICATION_ID = 0x5041594A  # "PAYJ", in the header of the file
_MIXED = "request_id <> lower(request_id) AND request_id <> upper(request_id)"
_ENDS = "", "-wal", "-shm"  # of the names of a journal's files
ARRIVED = "arrived"  # a fact: the journal came whole from elsewhere, and was not opened here yet, so nothing marks it
_SEALS = "moved_"  # how the names of triggers begin
_MOUNTS = Path("/proc/self/mountinfo")
_OLDEST_SQLITE = (3, 37, 0)  # RETURNING, STRICT

# The id of an order is its run's number, 28 bits higher, and its own number within the run: orders of one run lie side
# by side, and those of one chunk on a few neighbouring pages. Columns that are filled in later hold their place from
# the beginning (times as 8 bytes, the transaction as 16), so that a row keeps its size and its page.
_FIRST = (
    """CREATE TABLE run (
        id INTEGER PRIMARY KEY, batch_id TEXT NOT NULL UNIQUE,
        base_address TEXT NOT NULL, key_fingerprint TEXT NOT NULL, user_id TEXT NOT NULL,
        source_digest TEXT, policy TEXT, epoch TEXT NOT NULL,
        uid TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'loading', loader TEXT, load_token INTEGER NOT NULL DEFAULT 0,
        load_until REAL NOT NULL DEFAULT 0, created_at REAL NOT NULL, ready_at REAL,
        quarantined_at REAL, look_since REAL,
        outbox TEXT, paused_at REAL, paused_by TEXT, paused_why TEXT, day TEXT, day_spent TEXT,
        archived INTEGER NOT NULL DEFAULT 0) STRICT""",
    "CREATE INDEX run_outbox ON run(outbox) WHERE outbox IS NOT NULL",
    """CREATE TABLE outbox (
        id INTEGER PRIMARY KEY, request_id TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'planned',
        token INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT NULL DEFAULT 0, sent_before INTEGER NOT NULL DEFAULT 0,
        amount TEXT NOT NULL, body BLOB NOT NULL, body_sha256 BLOB NOT NULL,
        transaction_id BLOB DEFAULT x'00000000000000000000000000000000',
        code INTEGER, message TEXT, conflict TEXT, permitted_at REAL NOT NULL, updated_at REAL NOT NULL,
        put_at REAL, not_before REAL NOT NULL DEFAULT 0, priority INTEGER NOT NULL DEFAULT 0) STRICT""",
    "CREATE UNIQUE INDEX outbox_request ON outbox(request_id)",
    f"CREATE INDEX outbox_mixed ON outbox(lower(request_id)) WHERE {_MIXED}",
    # none on sending, which every order passes: those under way are found by the numbers of their chunk
    f"CREATE INDEX outbox_open ON outbox(state) WHERE {IS_UNSETTLED}",
    "CREATE INDEX outbox_accepted ON outbox(state) WHERE state = 'accepted'",
    "CREATE INDEX outbox_rejected ON outbox(state) WHERE state = 'rejected'",
    "CREATE INDEX outbox_failed ON outbox(state) WHERE state = 'failed'",
    "CREATE INDEX outbox_conflict ON outbox(id) WHERE conflict IS NOT NULL",
    """CREATE INDEX outbox_transaction ON outbox(transaction_id)
        WHERE transaction_id <> x'00000000000000000000000000000000'""",
    """CREATE TABLE progress (
        run INTEGER NOT NULL, state TEXT NOT NULL, count INTEGER NOT NULL, total TEXT NOT NULL,
        PRIMARY KEY (run, state)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE chunk (
        run INTEGER NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'open', owner TEXT,
        holder TEXT,
        token INTEGER NOT NULL DEFAULT 0, lease_until REAL NOT NULL DEFAULT 0, lease REAL NOT NULL DEFAULT 0,
        due_at REAL NOT NULL DEFAULT 0, priority INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (run, number)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX chunk_open ON chunk(run, priority DESC, number) WHERE state = 'open'",
    "CREATE INDEX chunk_later ON chunk(run, number) WHERE due_at > 0",
    "CREATE INDEX chunk_leased ON chunk(run, number) WHERE owner IS NOT NULL",  # a few of thousands
    """CREATE TABLE claim (
        run INTEGER NOT NULL, number INTEGER NOT NULL, token INTEGER NOT NULL, owner TEXT, at REAL NOT NULL,
        PRIMARY KEY (run, number, token)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE attempt (
        id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, n INTEGER NOT NULL, token INTEGER NOT NULL,
        permitted_at REAL NOT NULL, outcome TEXT NOT NULL, code INTEGER, message TEXT, done_at REAL NOT NULL) STRICT""",
    "CREATE INDEX attempt_order ON attempt(order_id)",
    """CREATE TABLE evidence (
        id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, at REAL NOT NULL, news TEXT NOT NULL, source TEXT NOT NULL,
        transaction_id TEXT, amount TEXT, currency TEXT, detail TEXT, before TEXT NOT NULL, after TEXT NOT NULL,
        before_at REAL NOT NULL, conflict TEXT, event_id INTEGER, decided INTEGER,
        times INTEGER NOT NULL DEFAULT 1, last_at REAL NOT NULL) STRICT""",
    "CREATE INDEX evidence_order ON evidence(order_id)",
    # readings of the service's list, each for one batch or, without a run, for none in particular
    """CREATE TABLE sweep (
        id INTEGER PRIMARY KEY, run INTEGER, doubted_at REAL NOT NULL, since TEXT NOT NULL, until TEXT NOT NULL,
        begun_at REAL NOT NULL, ended_at REAL, rows INTEGER NOT NULL DEFAULT 0, requests INTEGER NOT NULL DEFAULT 0,
        counted INTEGER NOT NULL DEFAULT 0, problem TEXT) STRICT""",
    """CREATE TABLE resolution (
        id INTEGER PRIMARY KEY, order_id INTEGER, run INTEGER, kind TEXT NOT NULL, who TEXT NOT NULL,
        why TEXT NOT NULL, evidence TEXT, at REAL NOT NULL) STRICT""",
    "CREATE INDEX resolution_order ON resolution(order_id)",
    # an event with the delivery that brought it, in one row: a second row and its index would cost a tenth of all that
    # taking a notification costs; so would the event's own text where the body says the same, and there it is empty
    """CREATE TABLE ipn_event (
        id INTEGER PRIMARY KEY, transaction_id TEXT NOT NULL, status_code INTEGER NOT NULL, amount TEXT NOT NULL,
        request_id TEXT, event BLOB NOT NULL, body BLOB NOT NULL, query TEXT NOT NULL, peer TEXT NOT NULL,
        received_at REAL NOT NULL, state TEXT NOT NULL DEFAULT 'handled', tries INTEGER NOT NULL DEFAULT 0, done TEXT,
        error TEXT, conflict TEXT, order_id INTEGER, times INTEGER NOT NULL DEFAULT 1, last_at REAL,
        doubt TEXT) STRICT""",
    # whatever its row says, an event is pending while it is here; so most rows are written once and never again
    """CREATE TABLE ipn_pending (
        event_id INTEGER PRIMARY KEY, owner TEXT NOT NULL, holder TEXT NOT NULL, due_at REAL NOT NULL,
        failed INTEGER NOT NULL DEFAULT 0) STRICT""",
    "CREATE INDEX ipn_pending_due ON ipn_pending(due_at)",
    "CREATE INDEX ipn_pending_failed ON ipn_pending(event_id) WHERE failed <> 0",
    "CREATE UNIQUE INDEX ipn_event_fact ON ipn_event(transaction_id, status_code, amount)",
    # the order's number beside it, so that those without one are found without reading their rows
    "CREATE INDEX ipn_event_request ON ipn_event(request_id, order_id) WHERE request_id IS NOT NULL",
    "CREATE INDEX ipn_event_dead ON ipn_event(id) WHERE state = 'dead'",
    "CREATE INDEX ipn_event_doubt ON ipn_event(doubt, request_id) WHERE doubt IS NOT NULL",
    "CREATE INDEX ipn_event_disputed ON ipn_event(id) WHERE state = 'disputed'",
    "CREATE INDEX ipn_event_nameless ON ipn_event(transaction_id) WHERE order_id IS NULL AND request_id IS NULL",
    # further deliveries of an event, in other words than the first
    """CREATE TABLE ipn_delivery (
        id INTEGER PRIMARY KEY, event_id INTEGER NOT NULL, digest BLOB NOT NULL, body BLOB NOT NULL,
        query TEXT NOT NULL, peer TEXT NOT NULL, received_at REAL NOT NULL, times INTEGER NOT NULL DEFAULT 1,
        last_at REAL) STRICT""",
    "CREATE UNIQUE INDEX ipn_delivery_once ON ipn_delivery(event_id, digest)",
    # the events that became evidence later than they were stored: whoever waits reads on from the last row of both
    "CREATE TABLE ipn_believed (id INTEGER PRIMARY KEY, event_id INTEGER NOT NULL) STRICT",
    "CREATE INDEX ipn_believed_event ON ipn_believed(event_id)",
    # what a list has shown of orders that a journal which may have forgotten some does not hold; ids in small letters
    """CREATE TABLE sighting (
        request_id TEXT PRIMARY KEY, transaction_id TEXT NOT NULL, news TEXT NOT NULL, amount TEXT, currency TEXT,
        at REAL NOT NULL) STRICT, WITHOUT ROWID""",
    "CREATE INDEX sighting_at ON sighting(at)",
    # of which states the handlers of an outbox hear, and when such a process asked last: it may be gone for good
    """CREATE TABLE hearing (
        outbox TEXT NOT NULL, state TEXT NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (outbox, state)) STRICT, WITHOUT ROWID""",
    # owner and holder are there while it is leased, and due_at is the end of the lease then; 0 for what never failed
    """CREATE TABLE change (
        id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, outbox TEXT NOT NULL, state TEXT NOT NULL, at REAL NOT NULL,
        status TEXT NOT NULL, owner TEXT, holder TEXT, due_at REAL NOT NULL DEFAULT 0,
        tries INTEGER NOT NULL DEFAULT 0, done TEXT, error TEXT) STRICT""",
    "CREATE INDEX change_due ON change(outbox, state, due_at) WHERE status = 'pending'",
    "CREATE INDEX change_leased ON change(holder) WHERE holder IS NOT NULL",  # a few of millions
    "CREATE INDEX change_dead ON change(id) WHERE status = 'dead'",
    # Changes are written by a trigger that is made with the first outbox (``WRITES_CHANGES``): to a journal of batches
    # alone it would cost a hundredth of each order. No run belongs to an outbox without it.
    *(
        f"""CREATE TRIGGER run_{event.split()[0].lower()} BEFORE {event} ON run WHEN NEW.outbox IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = 'outbox_changed')
        BEGIN SELECT RAISE(ABORT, 'the changes of this outbox would not be written down'); END"""  # noqa: S608
        for event in ("INSERT", "UPDATE OF outbox")
    ),
    "CREATE INDEX change_open ON change(order_id) WHERE status IN ('pending', 'dead')",  # keeps its order from leaving
    # Files that old orders have left for, and what stays of those: by what they are known again, so that none is sent
    # again, and how they ended. ``about`` is the beginning of the body, which names nobody.
    """CREATE TABLE archive (
        id INTEGER PRIMARY KEY, path TEXT NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL, begun_at REAL NOT NULL,
        ended_at REAL, orders INTEGER NOT NULL DEFAULT 0) STRICT""",
    """CREATE TABLE archived (
        id INTEGER PRIMARY KEY, request_id TEXT NOT NULL, state TEXT NOT NULL, attempt INTEGER NOT NULL,
        sent_before INTEGER NOT NULL, amount TEXT NOT NULL, about BLOB NOT NULL, body_sha256 BLOB NOT NULL,
        transaction_id BLOB, permitted_at REAL NOT NULL, updated_at REAL NOT NULL, archive INTEGER NOT NULL) STRICT""",
    "CREATE UNIQUE INDEX archived_request ON archived(request_id)",
    f"CREATE INDEX archived_mixed ON archived(lower(request_id)) WHERE {_MIXED}",
    """CREATE INDEX archived_transaction ON archived(transaction_id)
        WHERE transaction_id <> x'00000000000000000000000000000000'""",
    # a reversal that is told late; as the other one above
    f"""CREATE TRIGGER archived_changed AFTER UPDATE OF state ON archived
        WHEN NEW.state <> OLD.state AND EXISTS (SELECT 1 FROM run WHERE id = NEW.id >> {SHIFT} AND outbox IS NOT NULL)
        BEGIN
        INSERT INTO change (id, order_id, outbox, state, at, status)
        SELECT max((SELECT coalesce(max(id), 0) FROM change) + 1, CAST(NEW.updated_at * 1000000 AS INTEGER)),
            NEW.id, r.outbox, NEW.state, NEW.updated_at, iif(EXISTS (
            SELECT 1 FROM hearing h WHERE h.outbox = r.outbox AND h.state = NEW.state), 'pending', 'seen')
        FROM run r WHERE r.id = NEW.id >> {SHIFT};
        END""",  # noqa: S608 - no value in it
    # what one of all who share the journal does for the others
    "CREATE TABLE duty (name TEXT PRIMARY KEY, owner TEXT, holder TEXT, until REAL) STRICT",
    # who proposed what, who approved it, and who took that back; and how many have to, of which the latest counts
    """CREATE TABLE proposal (
        id INTEGER PRIMARY KEY, digest TEXT NOT NULL, batch_id TEXT NOT NULL, orders INTEGER NOT NULL,
        amount TEXT NOT NULL, currency TEXT, file TEXT NOT NULL, who TEXT NOT NULL, login TEXT NOT NULL,
        machine TEXT NOT NULL, at REAL NOT NULL) STRICT""",
    "CREATE INDEX proposal_digest ON proposal(digest)",
    """CREATE TABLE approval (
        id INTEGER PRIMARY KEY, digest TEXT NOT NULL, note TEXT NOT NULL, who TEXT NOT NULL, login TEXT NOT NULL,
        machine TEXT NOT NULL, at REAL NOT NULL, withdrawn_by TEXT, withdrawn_login TEXT, withdrawn_machine TEXT,
        withdrawn_at REAL) STRICT""",
    "CREATE INDEX approval_digest ON approval(digest)",
    """CREATE TABLE approval_rule (
        id INTEGER PRIMARY KEY, needed INTEGER NOT NULL, shared_logins INTEGER NOT NULL, why TEXT NOT NULL,
        who TEXT NOT NULL, login TEXT NOT NULL, machine TEXT NOT NULL, at REAL NOT NULL) STRICT""",
    # how fast all may send: when the next turn is, and a pause that the service asked for; and who names which rate
    """CREATE TABLE pace (
        id INTEGER PRIMARY KEY, rate REAL, next_at REAL NOT NULL DEFAULT 0, cool_at REAL NOT NULL DEFAULT 0,
        cool_for REAL NOT NULL DEFAULT 0, cool_why TEXT) STRICT""",
    "CREATE TABLE pace_named (owner TEXT PRIMARY KEY, holder TEXT, rate REAL NOT NULL, until REAL NOT NULL) STRICT",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
)

# A trigger, so that no statement moves an order of an outbox and nobody hears of it. None on inserting: an order enters
# as planned, always. Its condition is all that an order of another batch pays. Ids follow the clock, in microseconds: a
# journal that was restored, or is another one, gives none that a handler has seen before.
WRITES_CHANGES = f"""CREATE TRIGGER IF NOT EXISTS outbox_changed AFTER UPDATE OF state ON outbox
    WHEN NEW.state NOT {among(UNSENT)} AND NEW.state <> OLD.state
    AND EXISTS (SELECT 1 FROM run WHERE id = NEW.id >> {SHIFT} AND outbox IS NOT NULL)
    BEGIN
    INSERT INTO change (id, order_id, outbox, state, at, status)
    SELECT max((SELECT coalesce(max(id), 0) FROM change) + 1, CAST(NEW.updated_at * 1000000 AS INTEGER)),
        NEW.id, r.outbox, NEW.state, NEW.updated_at, iif(EXISTS (
        SELECT 1 FROM hearing h WHERE h.outbox = r.outbox AND h.state = NEW.state), 'pending', 'seen')
    FROM run r WHERE r.id = NEW.id >> {SHIFT};
    END"""  # noqa: S608 - no value in it

_BOUND = (
    # Ids that differ in letters alone are one: each is known by its key (`plain_id`), which `write_keys` fills in. Of
    # notifications and sightings the key alone is looked for.
    *(f"ALTER TABLE {table} ADD COLUMN request_key TEXT NOT NULL DEFAULT ''" for table in ("outbox", "archived")),
    *(f"ALTER TABLE {table} RENAME COLUMN request_id TO request_key" for table in ("ipn_event", "sighting")),
    *(f"DROP INDEX {table}_{what}" for table in ("outbox", "archived") for what in ("request", "mixed")),
    # since when every change is there: what was forgotten before is not known
    """INSERT INTO meta (key, value) SELECT 'changes_since', CAST(coalesce(
        (SELECT min(at) FROM change WHERE status IN ('seen', 'handled')), CAST(strftime('%s', 'now') AS REAL)) AS TEXT)
        WHERE EXISTS (SELECT 1 FROM run)""",
    "CREATE INDEX IF NOT EXISTS outbox_failed ON outbox(state) WHERE state = 'failed'",
)

# Step n brings a file from version n to n + 1.
STEPS: tuple[Step, ...] = (
    Step(about="make the tables", statements=_FIRST, oldest=1),
    Step(about="bind functions to their tables", statements=_BOUND, oldest=2),  # of which a file has none
)


def open_writer(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """The one connection that writes.

    Args:
        busy_timeout: Seconds to wait for another process.

    Raises:
        JournalError: With what to do about it.
    """
    # Not opened here: closing it would drop the locks of every other connection of this process.
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise JournalReadOnly(f"{path} cannot be opened for writing")
    if path.exists():
        _check_name(path)
    return _connect(path, busy_timeout, _make_durable)


def _check_name(path: Path) -> None:
    """Whether all who open a journal's file do so by this name, beside which its log lies.

    By another one they would have another log, and another lock: neither sees what the other writes, and both send.

    Raises:
        JournalUnavailable: It has another name: a hard link, or it is mounted here by itself.
    """
    if path.stat().st_nlink > 1:
        _remove_unfinished(path)  # whoever made it was killed before that lost its name
    links = path.stat().st_nlink
    if links > 1:
        raise JournalUnavailable(
            f"{path} has {links} names (hard links), and whoever opens it by another one would have a log of its own: "
            f"remove the others; `find -samefile {path}` shows them"
        )
    if _is_mounted(path):
        raise JournalUnavailable(
            f"{path} is mounted by itself, and whoever opens it elsewhere would have a log of its own: mount the folder"
        )


def _remove_unfinished(path: Path) -> None:
    """Take from a journal the names under which it was made."""
    for other in path.parent.glob(f".{glob.escape(path.name)}-*"):
        with suppress(OSError):
            if other.samefile(path):
                other.unlink()


def _is_mounted(path: Path) -> bool:
    """Whether a file is a mount point, as containers are given single files."""
    try:
        mounts = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False  # a system that has no such thing, or does not tell
    place = os.fsencode(path)
    for character in b"\\ \t\n":
        place = place.replace(bytes([character]), b"\\%03o" % character)
    return any(mount.split()[4] == place for mount in mounts)


def has_log(path: Path) -> bool:
    """Whether commits lie in the log beside the file: another process has it open, or one died."""
    _, log, _ = files_of(path)
    return log.exists() and log.stat().st_size > 0


def files_of(path: Path) -> list[Path]:
    """A journal's file, its log and its index, which SQLite itself deletes only when nobody has the file open."""
    return [path.with_name(f"{path.name}{end}") for end in _ENDS]


def open_reader(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """A connection that only reads."""
    return _connect(path, busy_timeout, lambda connection: connection.execute("PRAGMA query_only = ON"))


def version_of(connection: Connection) -> int:
    """A number that is another one after every commit of any other connection."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _connect(path: Path, busy_timeout: float, prepare: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
    """A connection that is prepared for its use, or none. Raises ``JournalError``."""
    try:
        connection = sqlite3.connect(
            path, timeout=busy_timeout, isolation_level=None, check_same_thread=False, cached_statements=256
        )
    except sqlite3.Error as error:
        raise translated(error, path) from error
    try:
        # kibibytes; more is slower, however large the file: it would not stay in the processor's own cache
        connection.execute("PRAGMA cache_size = -4000")
        connection.execute("PRAGMA temp_store = MEMORY")  # what a savepoint may undo, else a temporary file each time
        prepare(connection)
    except Exception as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise translated(error, path) from error
        raise
    return connection


def _make_durable(connection: sqlite3.Connection) -> None:
    """What was committed survives a power cut. Raises ``JournalUnavailable`` where that cannot be had."""
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # no database, or a damaged one: say so first
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise JournalUnavailable(f"the file system does not allow write-ahead logging (journal_mode is {mode})")
    connection.execute("PRAGMA synchronous = FULL")  # NORMAL can forget a permit after a power cut
    connection.execute("PRAGMA fullfsync = ON")  # on macOS an fsync is none without it
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")  # pages
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    if level != 2:
        raise JournalUnavailable("synchronous=FULL could not be set")


def migrate(connection: sqlite3.Connection, *, new: bool = False, steps: Sequence[Step] = STEPS) -> Migration:
    """Bring the tables of an older version up to date, in one transaction; tells what was done.

    No copy is made before: the version before may still use them, and whoever is killed in between has done nothing.

    Args:
        new: Make them, in a file that has none.

    Raises:
        NotAJournal, JournalTooNew, JournalOutdated: When the file is none of ours; it is left as it was.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise JournalUnavailable(f"SQLite {sqlite3.sqlite_version} is too old; 3.37 or later is needed")
    found = version_in(connection)
    if found.number == 0 and not new:
        raise NotAJournal("the file is empty")
    if found.number >= len(steps):
        todo = migration(found, steps)
        if found.number == len(steps):
            _check_tables(connection, steps)
        return todo
    connection.execute("BEGIN IMMEDIATE")
    try:
        todo = migration(version_in(connection), steps)  # asked again: another process may have been quicker
        for statement in todo.statements:
            connection.execute(statement)
        if todo.before < SINCE <= todo.after:
            write_keys(connection, tables=("outbox", "archived"), is_new=not todo.before)
        if todo.steps:
            about = str(todo.oldest)
            connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('oldest', ?)", (about,))
            connection.execute(f"PRAGMA user_version = {todo.after}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return todo


def version_in(connection: sqlite3.Connection) -> Version:
    """Of which version the tables of a file are. Raises ``NotAJournal``."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise NotAJournal("the file is a database of something else")
    if not version:
        return Version(0, 0)
    try:
        oldest = connection.execute("SELECT value FROM meta WHERE key = 'oldest'").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR:
            raise
        oldest = None  # no such table
    return Version(int(version), int(version) if oldest is None else int(oldest[0]))


def _check_tables(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    """Before the first release tables changed within one version: a file that lacks some is left alone."""
    lacking = _columns_after(tuple(steps)) - _columns(connection)
    if lacking:
        raise JournalOutdated(f"the journal has no {min(lacking)}, which one of version {len(steps)} has")


@cache
def _columns_after(steps: tuple[Step, ...]) -> set[str]:
    """Every column of a journal that these steps made."""
    with closing(sqlite3.connect(":memory:")) as pattern:
        pattern.deserialize(_pattern(steps))
        return _columns(pattern)


@cache
def _pattern(steps: tuple[Step, ...]) -> bytes:
    """The file of a journal that these steps made, and nobody has used: made once, for it takes longer than a use."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as pattern:
        migrate(pattern, new=True, steps=steps)
        return pattern.serialize()


def _columns(connection: sqlite3.Connection) -> set[str]:
    """Every column of every table, as ``table.column``."""
    found = connection.execute(
        "SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'"
    )
    return {name for (name,) in found}


def tables_of(connection: Connection) -> dict[str, TableShape]:
    """Every table, with its columns and those that a row is known by."""
    found = connection.execute(
        """SELECT m.name, c.name, c.pk - 1 FROM sqlite_master m, pragma_table_info(m.name) c
        WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid"""
    )
    return tables_in(found.fetchall())


def seal(connection: Connection, words: str) -> None:
    """Let nobody write any more."""
    quoted = words.replace("'", "''")
    for table in tables_of(connection):
        if table != "meta":
            for event in ("INSERT", "UPDATE", "DELETE"):
                connection.execute(
                    f"CREATE TRIGGER {_SEALS}{table}_{event} BEFORE {event} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{quoted}'); END"
                )


def unseal(connection: Connection) -> None:
    """Let everybody write again."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for (name,) in found:
        if name.startswith(_SEALS):
            connection.execute(f"DROP TRIGGER {name}")


def make(
    path: Path, *, remembers: bool, draw: Callable[[int], str] = secrets.token_hex, steps: Sequence[Step] = STEPS
) -> bool:
    """Make a journal; tells whether this call has made it, or another process was quicker.

    It is made under another name and then linked to its own: so nobody ever sees a journal without its tables, and
    what is found without them is none that was just being made.

    Args:
        remembers: Whether the state folder is to hear of it, now and whenever it is opened.
        draw: Gives so many random bytes as hexadecimal digits.

    Raises:
        JournalError: With what to do about it.
    """

    def identified(_: Connection) -> dict[str, str]:
        return {"journal_id": draw(16), "commits": "0", "remembers": "yes" if remembers else "no"}

    return _make(path.with_name(f".{path.name}-new-{draw(4)}"), path, identified, steps=steps, placing=lambda: None)


def make_filled(
    path: Path,
    fill: Callable[[Connection], dict[str, str]],
    *,
    placing: Callable[[], None],
    steps: Sequence[Step] = STEPS,
) -> None:
    """Make a journal whose rows come from elsewhere; what somebody who was killed has left of one is replaced.

    Args:
        fill: Writes them, and tells what the journal says of itself, beside what it knows of its own file.
        placing: Called when all of it is on disk, before it has its name.

    Raises:
        PlaceTaken: There is such a file by now.
        JournalError: With what to do about it.
    """

    def arriving(connection: Connection) -> dict[str, str]:
        return fill(connection) | {ARRIVED: "yes"}

    unfinished = path.with_name(f".{path.name}-arriving")
    for end in _ENDS:
        unfinished.with_name(f"{unfinished.name}{end}").unlink(missing_ok=True)
    if not _make(unfinished, path, arriving, steps=steps, placing=placing):
        raise PlaceTaken(f"{path} is there already")


def _make(
    unfinished: Path,
    path: Path,
    fill: Callable[[Connection], dict[str, str]],
    *,
    steps: Sequence[Step],
    placing: Callable[[], None],
) -> bool:
    """Make a journal under one name, and give it the other once it is whole; tells whether nobody was quicker."""
    try:
        # orders name people; the files beside it (-wal, -shm) take over its permissions
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except PermissionError as error:
        raise JournalReadOnly(f"{path} cannot be made") from error
    except OSError as error:
        raise JournalUnavailable(f"{path} cannot be made ({error.strerror})") from error
    try:
        unfinished.write_bytes(_pattern(tuple(steps)))  # the checkpoint brings it to the disk
        connection = open_writer(unfinished, busy_timeout=0.0)
        try:
            migrate(connection, steps=steps)
            about = fill(connection) | {"epoch": inode_of(unfinished), "birth": birth_of(unfinished) or ""}
            connection.execute("BEGIN")
            connection.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", about.items())
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the file alone is the journal
        finally:
            connection.close()
        placing()
        return _put_in_place(unfinished, path)
    except OSError as error:
        raise JournalUnavailable(f"{path} cannot be made ({error.strerror})") from error
    finally:
        for end in _ENDS:
            with suppress(OSError):
                unfinished.with_name(f"{unfinished.name}{end}").unlink(missing_ok=True)


def _put_in_place(unfinished: Path, path: Path) -> bool:
    """Give a file that is whole its name; tells whether nobody was quicker."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links: the empty file keeps everybody else away meanwhile
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        unfinished.replace(path)
    _sync(path.parent)
    return True


def _sync(folder: Path) -> None:
    with suppress(OSError):  # not every system lets a folder be opened
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def inode_of(path: Path) -> str:
    """The number of a file; another one may get it once this one is deleted."""
    return str(path.stat().st_ino)


def birth_of(path: Path) -> str | None:
    """When a file came to be, to the nanosecond where that is known; ``None`` where the file system does not tell.

    A restored file that got the inode of the one before it was born later. Renaming, writing and a restart of the
    machine change nothing.
    """
    born = getattr(path.stat(), "st_birthtime", None)
    if born is not None:
        return str(born)
    return _statx(path) if sys.platform == "linux" else None


def _statx(path: Path) -> str | None:
    try:
        statx = ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return None  # an old C library
    filled = ctypes.create_string_buffer(256)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, filled):
        return None
    if not int.from_bytes(filled.raw[:4], sys.byteorder) & _STATX_BTIME:
        return None
    seconds = int.from_bytes(filled.raw[_SECONDS : _SECONDS + 8], sys.byteorder, signed=True)
    nanoseconds = int.from_bytes(filled.raw[_NANOSECONDS : _NANOSECONDS + 4], sys.byteorder)
    return f"{seconds}.{nanoseconds:09}"
