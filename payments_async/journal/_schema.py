"""The tables of a journal on SQLite, and how a file of an older version is brought up to date. Decides nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from payments_async.journal._faults import JournalTooNew, JournalUnavailable, NotAJournal

__all__ = ["APPLICATION_ID", "MIXED", "VERSION", "migrate"]

APPLICATION_ID = 0x5041594A  # "PAYJ", in the header of the file
_OLDEST_SQLITE = (3, 37, 0)  # RETURNING, STRICT

MIXED = "request_id <> lower(request_id) AND request_id <> upper(request_id)"
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
        quarantined_at REAL, look_since REAL) STRICT""",
    """CREATE TABLE outbox (
        id INTEGER PRIMARY KEY, request_id TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'planned',
        token INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT NULL DEFAULT 0, sent_before INTEGER NOT NULL DEFAULT 0,
        amount TEXT NOT NULL, body BLOB NOT NULL, body_sha256 BLOB NOT NULL,
        transaction_id ANY DEFAULT x'00000000000000000000000000000000',
        code INTEGER, message TEXT, conflict TEXT, permitted_at REAL NOT NULL, updated_at REAL NOT NULL) STRICT""",
    "CREATE UNIQUE INDEX outbox_request ON outbox(request_id)",
    # lists may be written in other letters; whatever is all small or all capital is found by the index above
    f"CREATE INDEX outbox_mixed ON outbox(lower(request_id)) WHERE {MIXED}",
    # none on sending, which every order passes: those under way are found by the numbers of their chunk
    "CREATE INDEX outbox_open ON outbox(state) WHERE state IN ('unknown', 'parked')",
    "CREATE INDEX outbox_accepted ON outbox(state) WHERE state = 'accepted'",
    "CREATE INDEX outbox_rejected ON outbox(state) WHERE state = 'rejected'",
    "CREATE INDEX outbox_conflict ON outbox(id) WHERE conflict IS NOT NULL",
    """CREATE INDEX outbox_transaction ON outbox(transaction_id)
        WHERE transaction_id <> x'00000000000000000000000000000000'""",
    """CREATE TABLE tally (
        run INTEGER NOT NULL, state TEXT NOT NULL, count INTEGER NOT NULL, total TEXT NOT NULL,
        PRIMARY KEY (run, state)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE chunk (
        run INTEGER NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'open', owner TEXT,
        holder TEXT,
        token INTEGER NOT NULL DEFAULT 0, lease_until REAL NOT NULL DEFAULT 0, lease REAL NOT NULL DEFAULT 0,
        PRIMARY KEY (run, number)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX chunk_open ON chunk(run, number) WHERE state = 'open'",
    "CREATE INDEX chunk_leased ON chunk(run, number) WHERE owner IS NOT NULL",  # a few of thousands
    """CREATE TABLE claim (
        run INTEGER NOT NULL, number INTEGER NOT NULL, token INTEGER NOT NULL, owner TEXT, at REAL NOT NULL,
        PRIMARY KEY (run, number, token)) STRICT, WITHOUT ROWID""",
    """CREATE TABLE attempt (
        order_id INTEGER NOT NULL, n INTEGER NOT NULL, token INTEGER NOT NULL, permitted_at REAL NOT NULL,
        outcome TEXT NOT NULL, code INTEGER, message TEXT, done_at REAL NOT NULL) STRICT""",
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
        request_id TEXT, event ANY NOT NULL, body BLOB NOT NULL, query TEXT NOT NULL, peer TEXT NOT NULL,
        received_at REAL NOT NULL, state TEXT NOT NULL DEFAULT 'handled', tries INTEGER NOT NULL DEFAULT 0, done TEXT,
        error TEXT, conflict TEXT, order_id INTEGER, times INTEGER NOT NULL DEFAULT 1, last_at REAL,
        doubt TEXT) STRICT""",
    # whatever its row says, an event is pending while it is here; so most rows are written once and never again
    """CREATE TABLE ipn_pending (
        event_id INTEGER PRIMARY KEY, owner TEXT NOT NULL, holder TEXT NOT NULL, due_at REAL NOT NULL,
        failed INTEGER NOT NULL DEFAULT 0) STRICT""",
    "CREATE INDEX ipn_pending_failed ON ipn_pending(event_id) WHERE failed",
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
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
)

# Step n brings a file from version n to n + 1. A step that was released is never edited: add another below it.
_STEPS: tuple[tuple[str, ...], ...] = (_FIRST,)
VERSION = len(_STEPS)


def migrate(connection: sqlite3.Connection, *, new: bool = False, steps: Sequence[Sequence[str]] = _STEPS) -> None:
    """Bring the tables of an older version up to date, in one transaction.

    Args:
        new: Make them, in a file that has none.

    Raises:
        NotAJournal, JournalTooNew: When the file is none of ours; it is left as it was.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise JournalUnavailable(f"SQLite {sqlite3.sqlite_version} is too old; 3.37 or later is needed")
    version = _version(connection, len(steps))
    if version == len(steps):
        return
    if version == 0 and not new:
        raise NotAJournal("the file is empty")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps[_version(connection, len(steps)) :]:  # asked again: another process may have been quicker
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _version(connection: sqlite3.Connection, newest: int) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise NotAJournal("the file is a database of something else")
    if version > newest:
        raise JournalTooNew(f"the journal is of version {version}, this package knows {newest}")
    return int(version)
