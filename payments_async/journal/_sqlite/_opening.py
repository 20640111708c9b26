"""A journal's file: its tables, and how it is made and opened."""

from __future__ import annotations

import glob
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from payments_async.journal._engine._request_keys import SINCE, write_keys
from payments_async.journal._engine._tables import IN_PLACE, KEYED, LEASED, QUEUED, SOURCED, SPELT_OUT, TABLES, TRACED
from payments_async.journal._faults import (
    JournalCorrupt,
    JournalError,
    JournalReadOnly,
    JournalUnavailable,
    NotAJournal,
    PlaceTaken,
)
from payments_async.journal._machine._files import birth_of, inode_of, size_of
from payments_async.journal._machine._sqlite_faults import translated
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import add_amounts, among, run_in
from payments_async.journal._statements._moving import TableShape, tables_in
from payments_async.journal._states import UNSENT
from payments_async.journal._versions import Migration, Step, Version, migration

APPLICATION_ID = 0x5041594A  # "PAYJ", in the header of the file
_ENDS = "", "-wal", "-shm"  # of the names of a journal's files
FILED = "filed"  # a fact: how many commits the file alone held, before those that lie in its log
ARRIVED = "arrived"  # a fact: the journal came whole from elsewhere, and was not opened here yet, so nothing marks it
_SEALS = "moved_"  # how the names of triggers begin
_OURS = {"run_insert", "run_update", "outbox_changed", "archived_changed"}  # the other triggers that steps make
_MOUNTS = Path("/proc/self/mountinfo")
_COARSE, _BELIEVED = 0.1, 60.0  # seconds: how coarse the time of a file may be, and how old it is believed to be
_OLDEST_SQLITE = (3, 37, 0)  # RETURNING, STRICT

_SUMS = f"""SELECT 1 FROM (SELECT run, state, count FROM progress
    UNION ALL SELECT {run_in("id")}, state, -count(*) FROM {{orders}} GROUP BY 1, 2)
    GROUP BY run, state HAVING sum(count) <> 0 LIMIT 1"""  # noqa: S608 - no value in it
_BEFORE_4 = "(SELECT id, state FROM outbox UNION ALL SELECT id, state FROM archived)"
_FIRST = (
    *TABLES,
    # Changes are written by a trigger that is made with the first outbox (``WRITES_CHANGES``): to a journal of batches
    # alone it would cost a hundredth of each order. No run belongs to an outbox without it.
    *(
        f"""CREATE TRIGGER run_{event.split()[0].lower()} BEFORE {event} ON run WHEN NEW.outbox IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = 'outbox_changed')
        BEGIN SELECT RAISE(ABORT, 'the changes of this outbox would not be written down'); END"""  # noqa: S608
        for event in ("INSERT", "UPDATE OF outbox")
    ),
    # a reversal that is told late; as the other one above
    f"""CREATE TRIGGER archived_changed AFTER UPDATE OF state ON archived
        WHEN NEW.state <> OLD.state AND EXISTS (SELECT 1 FROM run WHERE id = {run_in("NEW.id")} AND outbox IS NOT NULL)
        BEGIN
        INSERT INTO change (id, order_id, outbox, state, at, status)
        SELECT max((SELECT coalesce(max(id), 0) FROM change) + 1, CAST(NEW.updated_at * 1000000 AS INTEGER)),
            NEW.id, r.outbox, NEW.state, NEW.updated_at, iif(EXISTS (
            SELECT 1 FROM hearing h WHERE h.outbox = r.outbox AND h.state = NEW.state), 'pending', 'seen')
        FROM run r WHERE r.id = {run_in("NEW.id")};
        END""",  # noqa: S608 - no value in it
)

# A trigger, so that no statement moves an order of an outbox and nobody hears of it. None on inserting: an order enters
# as planned, always. Its condition is all that an order of another batch pays. Ids follow the clock, in microseconds: a
# journal that was restored, or is another one, gives none that a handler has seen before.
_WRITE_CHANGE = f"""BEGIN
    INSERT INTO change (id, order_id, outbox, state, at)
    SELECT max((SELECT coalesce(max(id), 0) FROM change) + 1, CAST(NEW.updated_at * 1000000 AS INTEGER)),
        NEW.id, r.outbox, NEW.state, NEW.updated_at FROM run r WHERE r.id = {run_in("NEW.id")};
    INSERT INTO delivery (queue, about, topic, order_id)
    SELECT 'outbox', (SELECT max(id) FROM change), NEW.state || '/' || h.outbox, NEW.id
    FROM run r JOIN hearing h ON h.outbox = r.outbox AND h.state = NEW.state WHERE r.id = {run_in("NEW.id")};
    END"""  # noqa: S608 - no value in it
WRITES_CHANGES = f"""CREATE TRIGGER IF NOT EXISTS outbox_changed AFTER UPDATE OF state ON outbox
    WHEN NEW.state NOT {among(UNSENT)} AND NEW.state <> OLD.state
    AND EXISTS (SELECT 1 FROM run WHERE id = {run_in("NEW.id")} AND outbox IS NOT NULL)
    {_WRITE_CHANGE}"""  # noqa: S608 - no value in it

_BOUND = (
    *KEYED,
    # since when every change is there: what was forgotten before is not known
    """INSERT INTO meta (key, value) SELECT 'changes_since', CAST(coalesce(
        (SELECT min(at) FROM change WHERE status IN ('seen', 'handled')), CAST(strftime('%s', 'now') AS REAL)) AS TEXT)
        WHERE EXISTS (SELECT 1 FROM run)""",
    "CREATE INDEX IF NOT EXISTS outbox_failed ON outbox(state) WHERE state = 'failed'",
)

_QUEUED = (
    "DROP TRIGGER IF EXISTS outbox_changed",  # made again by `migrate`, where an outbox is there
    "DROP TRIGGER archived_changed",
    *QUEUED,
    f"""CREATE TRIGGER archived_changed AFTER UPDATE OF state ON archived
        WHEN NEW.state <> OLD.state AND EXISTS (SELECT 1 FROM run WHERE id = {run_in("NEW.id")} AND outbox IS NOT NULL)
        {_WRITE_CHANGE}""",  # noqa: S608 - no value in it
)

# Step n brings a file from version n to n + 1.
STEPS: tuple[Step, ...] = (
    Step(about="make the tables", statements=_FIRST, oldest=1),
    Step(about="bind functions to their tables", statements=_BOUND, oldest=2),  # of which a file has none
    Step(about="one queue for all handlers", statements=_QUEUED, oldest=3),
    Step(about="leave archived orders where they are", statements=IN_PLACE, oldest=4),
    Step(about="one table of leases by name", statements=LEASED, oldest=5),
    Step(about="say what an outbox is, and what cannot be sent as it is", statements=SPELT_OUT, oldest=6),
    Step(about="where a proposal comes from, and what a file says beside its orders", statements=SOURCED, oldest=6),
    Step(about="keep correlation ids, and trace contexts", statements=TRACED, oldest=6),
    Step(about="write changes down by statements, and lay many orders at once", statements=(), oldest=6),  # elsewhere
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
        mounts = _MOUNTS.read_bytes()
    except OSError:
        return False  # a system that has no such thing, or does not tell
    place = os.fsencode(path)
    for character in b"\\ \t\n":
        place = place.replace(bytes([character]), b"\\%03o" % character)
    return place in mounts and any(mount.split()[4] == place for mount in mounts.splitlines())


def check_whole(path: Path, named: str, *, busy_timeout: float) -> None:
    """Whether file and log are of one time, before anything brings the log into the file.

    A backup that is put back beside the log of later is a mixture: the count of commits is that of the log, and what
    was written before the log began is that of the backup. The log tells how many commits the file alone held when it
    began. Otherwise it shows in the sums, or in an index that lacks the orders of later, by which none would be found.
    One that was put back while a process had the journal open, and began another log, is such a mixture once that has
    closed it. To read it takes 0.1 s for 100,000 orders.

    Raises:
        JournalCorrupt: They are not. Both are left as they are.
    """
    if not size_of(path):
        return
    flaw, has_log = "", _has_log(path)
    try:
        with closing(open_examiner(path, busy_timeout=busy_timeout)) as connection:
            (flaw,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            is_before_4 = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'archived'").fetchone()
            orders = _BEFORE_4 if is_before_4 else "outbox"
            if flaw == "ok" and has_log and connection.execute(_SUMS.format(orders=orders)).fetchone() is not None:
                flaw = "the sums are those of other orders"
            if flaw == "ok" and has_log and is_older(path, connection, busy_timeout=busy_timeout):
                flaw = "the file alone counts fewer commits than it did when that log began"
    except (sqlite3.Error, JournalError) as error:  # whatever else is wrong, opening it says
        is_damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
        flaw = str(error) if is_damaged or isinstance(error, JournalCorrupt) else "ok"
    if flaw == "ok":
        return
    if has_log:
        raise JournalCorrupt(
            f"{named}: the file was restored, and the -wal beside it is that of another time; without that it is the "
            f"backup, and in quarantine ({flaw})"
        )
    raise JournalCorrupt(f"{named}: a part of the file is of another time, or damaged ({flaw})")


def is_older(path: Path, connection: Connection, *, busy_timeout: float) -> bool:
    """Whether a file without its log counts fewer commits than it did when that log began: a backup was put over it.

    Args:
        connection: To file and log.
    """
    known = connection.execute("SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?", (FILED,)).fetchone()
    if known is None:
        return False  # as an older version left it
    try:  # asked after: meanwhile commits may come from the log into the file, and none leaves it
        with closing(_connect(path, busy_timeout, lambda _: None, mode="ro&immutable=1")) as alone:
            found = alone.execute("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'commits'").fetchone()
    except (sqlite3.Error, JournalError):
        return False  # another process writes to it in this moment
    return found is not None and bool(found[0] < known[0])


def bring_in(connection: Connection) -> int | None:
    """Bring the log into the file; tells how many commits that holds now at least, ``None`` where it is not known."""
    found = connection.execute("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'commits'").fetchone()
    busy, pages, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return None if found is None or busy or pages != done else int(found[0])


def _has_log(path: Path) -> bool:
    """Whether commits lie in the log beside the file: another process has it open, or one died."""
    _, log, _ = files_of(path)
    return size_of(log) > 0


def files_of(path: Path) -> list[Path]:
    """A journal's file, its log and its index, which SQLite itself deletes only when nobody has the file open."""
    return [path.with_name(f"{path.name}{end}") for end in _ENDS]


def open_reader(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """A connection that only reads."""
    return _connect(path, busy_timeout, lambda connection: connection.execute("PRAGMA query_only = ON"))


def open_examiner(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """A connection that cannot write: closing it does not bring the log into the file, as closing any other does."""
    return _connect(path, busy_timeout, lambda _: None, mode="ro")


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """What of a file's log every commit changes, without opening it.

    ``None`` where it was written so lately that another commit might leave it the same, or where its time says nothing.
    """
    try:
        about = path.with_name(f"{path.name}-wal").stat()
    except OSError:
        return None
    is_settled = _COARSE < time.time() - about.st_mtime < _BELIEVED
    return (about.st_ino, about.st_size, about.st_mtime_ns) if is_settled else None


def version_of(connection: Connection) -> int:
    """A number that is another one after every commit of any other connection."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _connect(
    path: Path, busy_timeout: float, prepare: Callable[[sqlite3.Connection], object], *, mode: str = "rwc"
) -> sqlite3.Connection:
    """A connection that is prepared for its use, or none. Raises ``JournalError``."""
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=busy_timeout, isolation_level=None,
            check_same_thread=False, cached_statements=256,
        )  # fmt: skip
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
    connection.create_function("add_amounts", 2, add_amounts, deterministic=True)
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
        NotAJournal, JournalTooNew, JournalCorrupt: The file is none of ours, or lacks tables; it is left as it was.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise JournalUnavailable(f"SQLite {sqlite3.sqlite_version} is too old; 3.37 or later is needed")
    found = version_in(connection)
    if found.number == 0 and not new:
        raise NotAJournal("the file is empty")
    if found.number >= len(steps):
        todo = migration(found, steps)
        if found.number == len(steps):
            check_shape(connection, steps)
        return todo
    connection.execute("BEGIN IMMEDIATE")
    try:
        todo = migration(version_in(connection), steps)  # asked again: another process may have been quicker
        _make_steps(connection, todo, steps)
        if todo.steps and connection.execute("SELECT 1 FROM run WHERE outbox IS NOT NULL LIMIT 1").fetchone():
            connection.execute(WRITES_CHANGES)
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


def _make_steps(connection: sqlite3.Connection, todo: Migration, steps: Sequence[Step]) -> None:
    """Make the steps that are left, one after the other."""
    for number, step in enumerate(steps[todo.before :], todo.before + 1):
        for statement in step.statements:
            connection.execute(statement)
        if number == SINCE:
            write_keys(connection, tables=("outbox", "archived"), is_new=not todo.before)


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


def check_shape(connection: Connection, steps: Sequence[Step]) -> None:
    """A file that lacks a column or a unique index of its version is left alone. Raises ``JournalCorrupt``."""
    if _words(connection) >= _words_after(tuple(steps)):
        return  # as most are: columns take longer
    if lacking := _shape_after(tuple(steps)) - _shape(connection):
        raise JournalCorrupt(f"the journal has no {min(lacking)} as version {len(steps)} makes it")


@cache
def _shape_after(steps: tuple[Step, ...]) -> set[str]:
    """Every column and unique index of a journal that these steps made."""
    with closing(sqlite3.connect(":memory:")) as pattern:
        pattern.deserialize(_pattern(steps))
        return _shape(pattern)


@cache
def _words_after(steps: tuple[Step, ...]) -> set[str]:
    """The words that made the tables and unique indexes of a journal which these steps made."""
    with closing(sqlite3.connect(":memory:")) as pattern:
        pattern.deserialize(_pattern(steps))
        return _words(pattern)


@cache
def _pattern(steps: tuple[Step, ...]) -> bytes:
    """The file of a journal that these steps made, before its first use: made once, for that takes longer."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as pattern:
        migrate(pattern, new=True, steps=steps)
        return pattern.serialize()


def _shape(connection: Connection) -> set[str]:
    """Every column of every table, as ``table.column``, and every unique index that is not of a table's own words."""
    found = connection.execute(
        """SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'
        UNION ALL SELECT 'unique index ' || name FROM sqlite_master WHERE sql LIKE 'CREATE UNIQUE INDEX%'"""
    )
    return {name for (name,) in found.fetchall()}


def _words(connection: Connection) -> set[str]:
    """The words that made each table and each unique index, as the database keeps them."""
    found = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table' OR sql LIKE 'CREATE UNIQUE INDEX%'")
    return {sql for (sql,) in found.fetchall()}


def tables_of(connection: Connection) -> dict[str, TableShape]:
    """Every table, with its columns and those that a row is known by."""
    found = connection.execute(
        """SELECT m.name, c.name, c.pk - 1 FROM sqlite_master m, pragma_table_info(m.name) c
        WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid"""
    )
    return tables_in(found.fetchall())


def changers(connection: Connection) -> str:
    """The triggers of another program, which may drop or change rows, in words; empty where there are none."""
    found = connection.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
    others = [(name, table) for name, table in found if name not in _OURS and not name.startswith(_SEALS)]
    return ", ".join(f"trigger {name} on {table}" for name, table in others)


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
