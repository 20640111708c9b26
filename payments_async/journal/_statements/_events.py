"""Events of the inbox as they stand: claimed for handlers, closed, shown to people, and forgotten when they are old."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs

from payments_async._wire.events import TransactionUnrecognised
from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._inbox import Backlog, Doubt, Pruned, StoredEvent
from payments_async.journal._records import Evidence
from payments_async.journal._statements import _deliveries
from payments_async.journal._statements._database import AS_BYTES, Connection, Database
from payments_async.journal._statements._deliveries import INBOX
from payments_async.journal._statements._entries import (
    Commit,
    PageReader,
    among,
    bounds_of,
    change,
    is_in_state,
    row_by_id,
)
from payments_async.journal._statements._evidence import record_evidence
from payments_async.journal._statements._notifications import make_dead_letter, read_event
from payments_async.journal._states import FINAL, Signal, State

_PAGE = 100  # events in memory at once
_STANDS = "CASE WHEN d.status IN ('pending', 'dead') THEN d.status ELSE e.state END"
_STANDING = "ipn_event e LEFT JOIN delivery d ON d.queue = 'inbox' AND d.about = e.id"
_COLUMNS = f"""e.id, e.peer, e.received_at, {_STANDS}, coalesce(d.tries, 0), d.done, coalesce(e.error, d.error),
    e.conflict, e.doubt, e.transaction_id, e.status_code, e.event, e.body, e.query"""
_ONE = f"SELECT {_COLUMNS} FROM {_STANDING} WHERE e.id = ?"  # noqa: S608 - no value in it
_STATES = frozenset({"handled", "dead", "disputed"})
_PRUNED_AT_ONCE = 500  # events in one commit, so that nobody else waits for long
# The newest event stays whatever its age: its number would be given again, and a handler knows events by their number.
_OLD = f"""SELECT e.id FROM ipn_event e WHERE e.id > ? AND coalesce(e.last_at, e.received_at) < ?
    AND e.id < (SELECT max(id) FROM ipn_event)
    AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.queue = 'inbox' AND d.about = e.id AND d.status <> 'done')
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.id = e.order_id
        AND (o.state NOT {among(FINAL)} OR o.conflict IS NOT NULL))
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.request_key = e.request_key
        AND (o.state NOT {among(FINAL)} OR o.conflict IS NOT NULL))
    ORDER BY e.id LIMIT {_PRUNED_AT_ONCE}"""  # noqa: S608 - no value in it
_IS_DUE = "SELECT " + _deliveries.are_due(INBOX, "''")


def is_due(connection: Connection, now: float) -> bool:
    """Whether there is anything to be claimed."""
    return bool(connection.execute(_IS_DUE, _deliveries.due_at(now)).fetchone()[0])


def claim(commit: Commit, owner: str, holder: str, lease: float, limit: int) -> Sequence[StoredEvent]:
    """Lease due events."""
    claimed: list[StoredEvent] = []
    numbers = _deliveries.claim(commit, INBOX, ("",), owner, holder, lease, limit)
    commit.look_ahead((_ONE, (number,)) for number in numbers)
    for number in numbers:
        try:
            claimed.append(_read(commit, commit.database, number))
        except JournalCorrupt as error:
            make_dead_letter(commit, number, error)
    return tuple(claimed)


def finish(commit: Commit, event_id: int, state: str, holder: str, error: str | None) -> None:
    """Close a pending event; a disputed one is shown at its order too, which it may have settled wrongly."""
    if state not in _STATES:
        raise ValueError(f"state: an event ends as one of {', '.join(sorted(_STATES))}")
    if state == "dead":
        _deliveries.bury(commit, INBOX, (event_id,), holder, error)
    elif _deliveries.close(commit, INBOX, (event_id,), holder) and state == "disputed":
        _dispute(commit, event_id, error)


def _dispute(commit: Commit, event_id: int, error: str | None) -> None:
    """The service's record disagrees with an event."""
    ((order_id, peer, transaction_id),) = commit.execute(
        "UPDATE ipn_event SET state = 'disputed', error = ? WHERE id = ? RETURNING order_id, peer, transaction_id",
        (error, event_id),
    ).fetchall()
    row = None if order_id is None else row_by_id(commit, order_id)
    if row is not None and row.archive is None:
        words = f"the service's record disagrees with a notification: {error}"
        change(commit, row, row.state, conflict=words)
        disputed = Evidence(
            signal=Signal.LOOKED_UP_PROCESSING,
            source=f"record against notification {peer}",
            request_id=row.request_id,
            transaction_id=transaction_id,
        )
        record_evidence(commit, row, disputed, row.state, words)


def dead_after(database: Database) -> PageReader[StoredEvent]:
    """A reader of pages of dead events, oldest first."""
    return partial(_page, database=database, chosen=partial(_deliveries.dead_after, queue=INBOX))


def dubious_after(database: Database) -> PageReader[StoredEvent]:
    """A reader of pages of events that are not evidence, oldest first."""
    return partial(_page, database=database, chosen=_where("(doubt IS NOT NULL OR state = 'disputed')"))


def unmatched_after(database: Database) -> PageReader[StoredEvent]:
    """A reader of pages of events of orders that the outbox does not hold, oldest first."""
    return partial(_page, database=database, chosen=_where("order_id IS NULL AND doubt IS NULL"))


def unheard_since(connection: Connection, batch_id: str | None) -> float | None:
    """Since when an accepted order waits without any notification having come, about whatever order."""
    (since,) = connection.execute(
        f"SELECT min(o.updated_at) FROM outbox o WHERE {is_in_state('o', State.ACCEPTED)} AND o.id BETWEEN ? AND ?",  # noqa: S608
        bounds_of(connection, batch_id),
    ).fetchone()
    heard = connection.execute(
        "SELECT coalesce(last_at, received_at) FROM ipn_event WHERE id = (SELECT max(id) FROM ipn_event)"
    ).fetchone()
    return None if since is None or (heard is not None and heard[0] >= since) else float(since)


def backlog(connection: Connection) -> Backlog:
    """How much is waiting."""
    unconfirmed, reported = connection.execute(
        """SELECT count(*) FILTER (WHERE doubt = 'unconfirmed' AND state <> 'disputed'),
        count(*) FILTER (WHERE doubt = 'reported') FROM ipn_event WHERE doubt IS NOT NULL"""
    ).fetchone()
    return attrs.evolve(_deliveries.count(connection, INBOX), unconfirmed=unconfirmed, reported=reported)


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
    _deliveries.forget(commit, INBOX, ids)
    events = commit.execute(f"DELETE FROM ipn_event WHERE id IN ({marks})", ids).rowcount  # noqa: S608
    return Pruned(events=events, deliveries=deliveries), ids[-1]


def check_writable(commit: Commit) -> None:
    """Write something that means nothing."""
    commit.execute(
        """INSERT INTO meta (key, value) VALUES ('touched', ?)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
        (str(commit.now),),
    )


def _where(condition: str) -> Callable[..., Sequence[int]]:
    """The events of which something holds, of those after one."""

    def chosen(connection: Connection, *, after: int, limit: int) -> Sequence[int]:
        found = connection.execute(
            f"SELECT id FROM ipn_event WHERE {condition} AND id > ? ORDER BY id LIMIT ?",  # noqa: S608 - no value in it
            (after, limit),
        ).fetchall()
        return [number for (number,) in found]

    return chosen


def _page(
    connection: Connection, /, *, database: Database, chosen: Callable[..., Sequence[int]], after: int
) -> tuple[list[StoredEvent], int]:
    numbers = chosen(connection, after=after, limit=_PAGE)
    page = []
    for number in numbers:
        try:
            page.append(_read(connection, database, number))
        except JournalCorrupt as error:
            page.append(_unreadable(connection, number, error))
    return page, numbers[-1] if numbers else after


def _read(connection: Connection | Commit, database: Database, number: int) -> StoredEvent:
    """One event.

    Raises:
        JournalCorrupt: It cannot be read.
    """
    try:
        event_id, peer, received_at, state, tries, done, error, conflict, doubt, *stored = connection.execute(
            _ONE, (number,)
        ).fetchone()
        finished = _deliveries.finished(done)
    except database.Error as error_:
        if not database.is_no_text(error_):
            raise
        raise JournalCorrupt(f"event {number} is not text ({error_})") from error_
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


def _unreadable(connection: Connection, number: int, error: JournalCorrupt) -> StoredEvent:
    """What can be told of an event that cannot be read."""
    *texts, status_code, received_at, state, tries = connection.execute(
        f"""SELECT CAST(e.transaction_id {AS_BYTES}), CAST(e.request_key {AS_BYTES}), CAST(e.peer {AS_BYTES}),
        e.status_code, e.received_at, {_STANDS}, coalesce(d.tries, 0)
        FROM {_STANDING} WHERE e.id = ?""",  # noqa: S608 - no value in it
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
