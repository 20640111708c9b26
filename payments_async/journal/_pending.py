"""Events that wait to be handled: leased, retried, given back, closed and revived. Stores no notification."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from payments_async._events import TransactionUnrecognised
from payments_async.journal._bodies import read_event
from payments_async.journal._evidence import bury, keep
from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._inbox import Backlog, Doubt, StoredEvent
from payments_async.journal._leasing import take_over
from payments_async.journal._opening import is_of_the_disk
from payments_async.journal._records import Evidence
from payments_async.journal._rows import change, row_by_id
from payments_async.journal._states import News
from payments_async.journal._transaction import Transaction, Work

__all__ = [
    "BLOCK",
    "backlog",
    "claim",
    "close",
    "dead_after",
    "dubious_after",
    "finish",
    "give_back",
    "hold",
    "note_done",
    "release",
    "retry_later",
    "revive",
]

_BEYOND = 1 << 63
BLOCK = 40  # rows in one statement: every number of them is a statement of its own to prepare and to remember
_COLUMNS = "id, peer, received_at, tries, done, error, conflict, doubt, transaction_id, status_code, event, body, query"
_STATES = frozenset({"handled", "dead", "disputed"})
_PENDING = "INSERT INTO ipn_pending (owner, holder, due_at, event_id) SELECT ?, ?, ?, column1 FROM (VALUES "
_PENDINGS = [f"{_PENDING}{','.join(['(?)'] * ids)})" for ids in range(BLOCK + 1)]
_CLOSE = "DELETE FROM ipn_pending WHERE event_id IN ("
_CLOSES = [f"{_CLOSE}{','.join('?' * ids)})" for ids in range(BLOCK + 1)]
_HAS_FAILED = "SELECT EXISTS (SELECT 1 FROM ipn_pending WHERE failed)"
_FORGET = (
    "UPDATE ipn_event SET error = NULL WHERE id IN (SELECT event_id FROM ipn_pending WHERE failed AND event_id = ?)"
)
_names = msgspec.json.Decoder(list[str]).decode


def hold(transaction: Transaction, numbers: Sequence[int], owner: str, holder: str, lease: float) -> None:
    """Make new events pending.

    Args:
        holder: By which the owner's life is known.
        lease: Seconds they are leased to ``owner`` for; 0 leaves them to anybody.
    """
    held = (owner, holder, transaction.now + lease) if lease > 0 else ("", "", transaction.now)
    for start in range(0, len(numbers), BLOCK):
        block = numbers[start : start + BLOCK]
        transaction.execute(_PENDINGS[len(block)], (*held, *block))


def close(transaction: Transaction, handled: Sequence[int]) -> None:
    """Events are handled; those that failed before have no error any more."""
    (has_failed,) = transaction.execute(_HAS_FAILED).fetchone()
    if has_failed:
        transaction.connection.executemany(_FORGET, [(number,) for number in handled])
    for start in range(0, len(handled), BLOCK):
        block = handled[start : start + BLOCK]
        transaction.execute(_CLOSES[len(block)], block)


def claim(owner: str, holder: str, lease: float, limit: int, dead: Sequence[str]) -> Work[Sequence[StoredEvent]]:
    """Lease due events, oldest first; those of holders that are dead are due."""

    def work(transaction: Transaction) -> Sequence[StoredEvent]:
        take_over(transaction, dead)
        found = transaction.execute(
            """UPDATE ipn_pending SET owner = ?, holder = ?, due_at = ? WHERE event_id IN (
            SELECT event_id FROM ipn_pending WHERE due_at <= ? ORDER BY event_id LIMIT ?) RETURNING event_id""",
            (owner, holder, transaction.now + lease, transaction.now, limit),
        ).fetchall()
        claimed: list[StoredEvent] = []
        for (number,) in sorted(found):
            try:
                claimed.append(_read(transaction, number, "pending"))
            except JournalCorrupt as error:
                bury(transaction, number, error)
        return tuple(claimed)

    return work


def release(owner: str, holder: str) -> Work[None]:
    """Give back the leases of an owner, and not those of a namesake in another process."""

    def work(transaction: Transaction) -> None:
        transaction.execute(
            "UPDATE ipn_pending SET owner = '', holder = '', due_at = ? WHERE owner = ? AND holder = ?",
            (transaction.now, owner, holder),
        )

    return work


def give_back(holder: str) -> Work[None]:
    """Give back whatever is leased through a journal that closes."""

    def work(transaction: Transaction) -> None:
        transaction.execute(
            "UPDATE ipn_pending SET owner = '', holder = '', due_at = ? WHERE holder = ?", (transaction.now, holder)
        )

    return work


def note_done(event_id: int, handler: str) -> Work[None]:
    """Remember that one handler has finished."""

    def work(transaction: Transaction) -> None:
        row = transaction.execute("SELECT done FROM ipn_event WHERE id = ?", (event_id,)).fetchone()
        if row is not None:
            done = sorted({handler, *_names(row[0] or "[]")})
            transaction.execute(
                "UPDATE ipn_event SET done = ? WHERE id = ?", (msgspec.json.encode(done).decode(), event_id)
            )

    return work


def finish(event_id: int, state: str, error: str | None) -> Work[None]:
    """Close a pending event; a disputed one is shown at its order too, which it may have settled wrongly."""
    if state not in _STATES:
        raise ValueError(f"state: an event ends as one of {', '.join(sorted(_STATES))}")

    def work(transaction: Transaction) -> None:
        if not transaction.execute("DELETE FROM ipn_pending WHERE event_id = ?", (event_id,)).rowcount:
            return
        closed = transaction.execute(
            "UPDATE ipn_event SET state = ?, error = ? WHERE id = ? RETURNING order_id, peer, transaction_id",
            (state, error, event_id),
        ).fetchall()
        for order_id, peer, transaction_id in closed:
            row = None if order_id is None else row_by_id(transaction, order_id)
            if state == "disputed" and row is not None:
                words = f"the service's record disagrees with a notification: {error}"
                change(transaction, row, row.state, conflict=words)
                disputed = Evidence(
                    news=News.LOOKED_UP_PROCESSING, source=f"record against notification {peer}",
                    request_id=row.request_id, transaction_id=transaction_id,
                )  # fmt: skip
                keep(transaction, row, disputed, row.state, words)

    return work


def retry_later(event_id: int, delay: float, error: str) -> Work[None]:
    """Count a round and make the event due again later."""

    def work(transaction: Transaction) -> None:
        later = transaction.execute(
            "UPDATE ipn_pending SET owner = '', holder = '', due_at = ?, failed = 1 WHERE event_id = ?",
            (transaction.now + delay, event_id),
        )
        if later.rowcount:
            transaction.execute("UPDATE ipn_event SET tries = tries + 1, error = ? WHERE id = ?", (error, event_id))

    return work


def revive(event_id: int | None) -> Work[int]:
    """Make dead events pending again."""
    named = event_id if event_id is None or abs(event_id) < _BEYOND else -1  # no event has such a number

    def work(transaction: Transaction) -> int:
        transaction.execute(
            """INSERT INTO ipn_pending (event_id, owner, holder, due_at, failed)
            SELECT id, '', '', ?, 1 FROM ipn_event WHERE state = 'dead' AND coalesce(? = id, TRUE)""",
            (transaction.now, named),
        )
        return transaction.execute(
            "UPDATE ipn_event SET state = 'handled', tries = 0 WHERE state = 'dead' AND coalesce(? = id, TRUE)",
            (named,),
        ).rowcount

    return work


def dead_after(connection: sqlite3.Connection, after: int, limit: int) -> list[StoredEvent]:
    """Dead events after this one, oldest first."""
    return _shown(connection, "state = 'dead'", after, limit)


def dubious_after(connection: sqlite3.Connection, after: int, limit: int) -> list[StoredEvent]:
    """Events after this one that are no evidence, oldest first."""
    return _shown(connection, "(doubt IS NOT NULL OR state = 'disputed')", after, limit)


def backlog(connection: sqlite3.Connection) -> Backlog:
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
        pending=pending, dead=dead, oldest=None if oldest is None else oldest[0], unconfirmed=unconfirmed,
        reported=reported,
    )  # fmt: skip


def _shown(connection: sqlite3.Connection, where: str, after: int, limit: int) -> list[StoredEvent]:
    found = connection.execute(
        f"SELECT id, state FROM ipn_event WHERE {where} AND id > ? ORDER BY id LIMIT ?",  # noqa: S608
        (after, limit),
    ).fetchall()
    shown = []
    for number, state in found:
        try:
            shown.append(_read(connection, number, state))
        except JournalCorrupt as error:
            shown.append(_unreadable(connection, number, state, error))
    return shown


def _read(connection: sqlite3.Connection | Transaction, number: int, state: str) -> StoredEvent:
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
    except sqlite3.OperationalError as error_:
        if is_of_the_disk(error_):
            raise
        raise JournalCorrupt(f"event {number} is no text ({error_})") from error_
    except ValueError as error_:
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


def _unreadable(connection: sqlite3.Connection, number: int, state: str, error: JournalCorrupt) -> StoredEvent:
    """What can be told of an event that cannot be read."""
    *texts, status_code, received_at, tries = connection.execute(
        """SELECT CAST(transaction_id AS BLOB), CAST(request_id AS BLOB), CAST(peer AS BLOB), status_code, received_at,
        tries FROM ipn_event WHERE id = ?""",
        (number,),
    ).fetchone()
    transaction_id, request_id, peer = (None if text is None else text.decode(errors="replace") for text in texts)
    event = TransactionUnrecognised(
        transaction_id=transaction_id or "", status_code=status_code, request_id=request_id, event_id=number
    )
    return StoredEvent(
        event_id=number, event=event, peer=peer or "", received_at=received_at, state=state, tries=tries,
        error=str(error),
    )  # fmt: skip
