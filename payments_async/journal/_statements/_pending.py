"""Events that wait to be handled: leased, retried, given back, closed, revived, and forgotten when they are old."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from payments_async._wire.events import TransactionUnrecognised
from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._inbox import Backlog, Doubt, Pruned, StoredEvent
from payments_async.journal._records import Evidence
from payments_async.journal._statements._database import AS_BYTES, Connection, Database
from payments_async.journal._statements._entries import Commit, PageReader, among, change, row_by_id
from payments_async.journal._statements._evidence import record_evidence
from payments_async.journal._statements._notifications import make_dead_letter, read_event
from payments_async.journal._statements._permits import end_leases_of_the_dead
from payments_async.journal._states import FINAL, News

_BEYOND = 1 << 63
_PAGE = 100  # events in memory at once
_FEW = 5_000  # due events: so many are sorted sooner than the oldest are looked for among all that wait
_COUNT_DUE = f"SELECT count(*) FROM (SELECT 1 FROM ipn_pending WHERE due_at <= ? LIMIT {_FEW}) AS due"  # noqa: S608
_CLAIM = """UPDATE ipn_pending SET owner = ?, holder = ?, due_at = ? WHERE event_id IN (
    SELECT event_id FROM ipn_pending WHERE due_at <= ? ORDER BY {oldest} LIMIT ?) RETURNING event_id"""
_CLAIM_OF_FEW = _CLAIM.format(oldest="+event_id")  # a sum has no order of its own, so that the index on due_at is used
_CLAIM_OF_MANY = _CLAIM.format(oldest="event_id")
_COLUMNS = "id, peer, received_at, tries, done, error, conflict, doubt, transaction_id, status_code, event, body, query"
_STATES = frozenset({"handled", "dead", "disputed"})
_names = msgspec.json.Decoder(list[str]).decode
_PRUNED_AT_ONCE = 500  # events in one commit, so that nobody else waits for long
# The newest event stays whatever its age: its number would be given again, and a handler knows events by their number.
_OLD = f"""SELECT e.id FROM ipn_event e WHERE e.id > ? AND coalesce(e.last_at, e.received_at) < ?
    AND e.id < (SELECT max(id) FROM ipn_event) AND e.state <> 'dead'
    AND NOT EXISTS (SELECT 1 FROM ipn_pending p WHERE p.event_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.id = e.order_id
        AND (o.state NOT {among(FINAL)} OR o.conflict IS NOT NULL))
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.request_key = e.request_key
        AND (o.state NOT {among(FINAL)} OR o.conflict IS NOT NULL))
    ORDER BY e.id LIMIT {_PRUNED_AT_ONCE}"""  # noqa: S608 - no value in it


def is_due(connection: Connection, now: float) -> bool:
    """Whether there is anything to be claimed."""
    return connection.execute("SELECT 1 FROM ipn_pending WHERE due_at <= ? LIMIT 1", (now,)).fetchone() is not None


def claim(
    commit: Commit, owner: str, holder: str, lease: float, limit: int, dead: Sequence[str]
) -> Sequence[StoredEvent]:
    """Lease due events, oldest first; those of holders that are dead are due."""
    end_leases_of_the_dead(commit, dead)
    (due,) = commit.execute(_COUNT_DUE, (commit.now,)).fetchone()
    if not due:
        return ()
    found = commit.execute(
        _CLAIM_OF_FEW if due < _FEW else _CLAIM_OF_MANY, (owner, holder, commit.now + lease, commit.now, limit)
    ).fetchall()
    claimed: list[StoredEvent] = []
    for (number,) in sorted(found):
        try:
            claimed.append(_read(commit, commit.database, number, "pending"))
        except JournalCorrupt as error:
            make_dead_letter(commit, number, error)
    return tuple(claimed)


def release(commit: Commit, holder: str, owner: str | None = None) -> None:
    """Give back what is leased through one opening of a journal, to one owner or to anybody."""
    commit.execute(
        """UPDATE ipn_pending SET owner = '', holder = '', due_at = ? WHERE holder = ? AND coalesce(? = owner, TRUE)""",
        (commit.now, holder, owner),
    )


def note_done(commit: Commit, event_id: int, handler: str) -> None:
    """Remember that one handler has finished."""
    row = commit.execute("SELECT done FROM ipn_event WHERE id = ?", (event_id,)).fetchone()
    if row is not None:
        done = sorted({handler, *_names(row[0] or "[]")})
        commit.execute("UPDATE ipn_event SET done = ? WHERE id = ?", (msgspec.json.encode(done).decode(), event_id))


def finish(commit: Commit, event_id: int, state: str, error: str | None) -> None:
    """Close a pending event; a disputed one is shown at its order too, which it may have settled wrongly."""
    if state not in _STATES:
        raise ValueError(f"state: an event ends as one of {', '.join(sorted(_STATES))}")
    if not commit.execute("DELETE FROM ipn_pending WHERE event_id = ?", (event_id,)).rowcount:
        return
    closed = commit.execute(
        "UPDATE ipn_event SET state = ?, error = ? WHERE id = ? RETURNING order_id, peer, transaction_id",
        (state, error, event_id),
    ).fetchall()
    for order_id, peer, transaction_id in closed:
        row = None if order_id is None else row_by_id(commit, order_id)
        if state == "disputed" and row is not None:
            words = f"the service's record disagrees with a notification: {error}"
            change(commit, row, row.state, conflict=words)
            disputed = Evidence(
                news=News.LOOKED_UP_PROCESSING,
                source=f"record against notification {peer}",
                request_id=row.request_id,
                transaction_id=transaction_id,
            )
            record_evidence(commit, row, disputed, row.state, words)


def retry_later(commit: Commit, event_id: int, delay: float, error: str) -> None:
    """Count a round and make the event due again later."""
    later = commit.execute(
        "UPDATE ipn_pending SET owner = '', holder = '', due_at = ?, failed = 1 WHERE event_id = ?",
        (commit.now + delay, event_id),
    )
    if later.rowcount:
        commit.execute("UPDATE ipn_event SET tries = tries + 1, error = ? WHERE id = ?", (error, event_id))


def revive(commit: Commit, event_id: int | None) -> int:
    """Make dead events pending again."""
    named = event_id if event_id is None or abs(event_id) < _BEYOND else -1  # no event has such a number
    commit.execute(
        """INSERT INTO ipn_pending (event_id, owner, holder, due_at, failed)
        SELECT id, '', '', ?, 1 FROM ipn_event WHERE state = 'dead' AND coalesce(? = id, TRUE)""",
        (commit.now, named),
    )
    return commit.execute(
        "UPDATE ipn_event SET state = 'handled', tries = 0 WHERE state = 'dead' AND coalesce(? = id, TRUE)",
        (named,),
    ).rowcount


def dead_after(database: Database) -> PageReader[StoredEvent]:
    """A reader of pages of dead events, oldest first."""
    return partial(_page, database=database, where="state = 'dead'")


def dubious_after(database: Database) -> PageReader[StoredEvent]:
    """A reader of pages of events that are no evidence, oldest first."""
    return partial(_page, database=database, where="(doubt IS NOT NULL OR state = 'disputed')")


def unmatched_after(database: Database) -> PageReader[StoredEvent]:
    """A reader of pages of events of orders that the outbox does not hold, oldest first."""
    return partial(_page, database=database, where="order_id IS NULL AND doubt IS NULL")


def backlog(connection: Connection) -> Backlog:
    """How much is waiting."""
    (pending,) = connection.execute("SELECT count(*) FROM ipn_pending").fetchone()
    (dead,) = connection.execute("SELECT count(*) FROM ipn_event WHERE state = 'dead'").fetchone()
    unconfirmed, reported = connection.execute(
        """SELECT count(*) FILTER (WHERE doubt = 'unconfirmed' AND state <> 'disputed'),
        count(*) FILTER (WHERE doubt = 'reported') FROM ipn_event WHERE doubt IS NOT NULL"""
    ).fetchone()
    oldest = connection.execute(
        "SELECT received_at FROM ipn_event WHERE id = (SELECT min(event_id) FROM ipn_pending)"
    ).fetchone()
    return Backlog(
        pending=pending,
        dead=dead,
        oldest=None if oldest is None else oldest[0],
        unconfirmed=unconfirmed,
        reported=reported,
    )


def prune(commit: Commit, after: int, before: float) -> tuple[Pruned, int | None]:
    """Forget a block of events after this one that came before a moment. Tells the last of them; ``None`` at the end.

    Kept are events that wait or are dead letters, and those about orders without a final outcome or with a
    contradiction that nobody has acknowledged.
    """
    ids = [number for (number,) in commit.execute(_OLD, (after, before)).fetchall()]
    if not ids:
        return Pruned(), None
    marks = ", ".join("?" * len(ids))
    deliveries = commit.execute(f"DELETE FROM ipn_delivery WHERE event_id IN ({marks})", ids).rowcount  # noqa: S608
    commit.execute(
        f"DELETE FROM ipn_believed WHERE event_id IN ({marks}) AND id < (SELECT max(id) FROM ipn_believed)",  # noqa: S608
        ids,
    )  # the newest stays: its number would be given again, and who has heard of it hears of higher ones alone
    events = commit.execute(f"DELETE FROM ipn_event WHERE id IN ({marks})", ids).rowcount  # noqa: S608
    return Pruned(events=events, deliveries=deliveries), ids[-1]


def check_writable(commit: Commit) -> None:
    """Write something that means nothing."""
    commit.execute(
        """INSERT INTO meta (key, value) VALUES ('touched', ?)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
        (str(commit.now),),
    )


def _page(connection: Connection, /, *, database: Database, where: str, after: int) -> tuple[list[StoredEvent], int]:
    found = connection.execute(
        f"SELECT id, state FROM ipn_event WHERE {where} AND id > ? ORDER BY id LIMIT {_PAGE}",  # noqa: S608
        (after,),
    ).fetchall()
    page = []
    for number, state in found:
        try:
            page.append(_read(connection, database, number, state))
        except JournalCorrupt as error:
            page.append(_unreadable(connection, number, state, error))
    return page, found[-1][0] if found else after


def _read(connection: Connection | Commit, database: Database, number: int, state: str) -> StoredEvent:
    """One event.

    Raises:
        JournalCorrupt: It cannot be read.
    """
    try:
        event_id, peer, received_at, tries, done, error, conflict, doubt, *stored = connection.execute(
            f"SELECT {_COLUMNS} FROM ipn_event WHERE id = ?",  # noqa: S608 - no value in it
            (number,),
        ).fetchone()
        finished = frozenset(_names(done or "[]"))
    except database.Error as error_:
        if not database.is_no_text(error_):
            raise
        raise JournalCorrupt(f"event {number} is no text ({error_})") from error_
    except (msgspec.DecodeError, ValueError) as error_:
        raise JournalCorrupt(f"what event {number} has come to cannot be read") from error_
    return StoredEvent(
        event_id=event_id,
        event=read_event(*stored),
        peer=peer,
        received_at=received_at,
        state=state,
        tries=tries,
        done=finished,
        error=error,
        conflict=conflict,
        doubt=None if doubt is None else Doubt(doubt),
    )


def _unreadable(connection: Connection, number: int, state: str, error: JournalCorrupt) -> StoredEvent:
    """What can be told of an event that cannot be read."""
    *texts, status_code, received_at, tries = connection.execute(
        f"""SELECT CAST(transaction_id {AS_BYTES}), CAST(request_key {AS_BYTES}), CAST(peer {AS_BYTES}), status_code,
        received_at, tries FROM ipn_event WHERE id = ?""",  # noqa: S608 - no value in it
        (number,),
    ).fetchone()
    transaction_id, request_id, peer = (None if text is None else text.decode(errors="replace") for text in texts)
    event = TransactionUnrecognised(
        transaction_id=transaction_id or "", status_code=status_code, request_id=request_id, event_id=number
    )
    return StoredEvent(
        event_id=number,
        event=event,
        peer=peer or "",
        received_at=received_at,
        state=state,
        tries=tries,
        error=str(error),
    )
