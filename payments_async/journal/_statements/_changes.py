"""Changes of orders: the feed of them, of which handlers hear, and what they are given."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

import attrs

from payments_async.journal._changes import UNHEARD, OrderEvent, Subscription
from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._inbox import Backlog
from payments_async.journal._records import Entry, check_named
from payments_async.journal._statements import _deliveries
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._deliveries import OUTBOX
from payments_async.journal._statements._entries import (
    COLUMNS,
    IS_HERE,
    NO_DOUBTS,
    Commit,
    among,
    doubts_about,
    entry_of,
    row_of,
    run_columns,
    run_in,
)
from payments_async.journal._statements._evidence import resolve
from payments_async.journal._states import UNSENT, State

_log = logging.getLogger("payments_async.journal")
_NOTED_EVERY = 60.0  # seconds
_PAGE = 100  # dead letters in memory at once
_PRUNED_AT_ONCE = 500  # changes in one commit, so that nobody else waits for long
_FACTS = "change.id, o.request_id, change.outbox, change.state, change.at, coalesce(d.tries, 0), d.error"
_WIDTH = 7
_DELIVERED = "LEFT JOIN delivery d ON d.queue = 'outbox' AND d.about = change.id"
_FROM = f"FROM change LEFT JOIN outbox o ON o.id = change.order_id {_DELIVERED}"
_FEED = f"SELECT {_FACTS} {_FROM} WHERE change.id > ?"
_HEARD = f"""SELECT h.state FROM hearing h WHERE h.outbox = ?
    AND (h.at < ? OR {_deliveries.are_due(OUTBOX, "h.state || '/' || h.outbox")})"""  # noqa: S608 - no value in it
_ORDER = ", ".join(f"o.{name}" for name in COLUMNS.split(", "))
# a change may outlive its order: then it says so, and holds up nothing
_CLAIMED = f"""SELECT {_FACTS}, d.done, r.batch_id, {_ORDER} {_FROM}
    LEFT JOIN run r ON r.id = {run_in("change.order_id")} WHERE change.id IN ({{marks}}) ORDER BY change.id"""
_DEAD = f"SELECT {_FACTS} {_FROM} WHERE change.id IN ({{marks}}) ORDER BY change.id"
_STATUSES = frozenset({"handled", "dead"})
_GONE = "its order had left for an archive: no handler can be given it, so a person does what is to be done (`explain`)"
# Orders of outboxes that came to stand where they do without a change, since nothing was forgotten; each with its run.
# A join, for which either database indexes the changes by order: a subquery reads all of them for each order.
UNWRITTEN = f"""outbox o JOIN run r ON r.id = {run_in("o.id")} AND r.outbox IS NOT NULL
    LEFT JOIN change c ON c.order_id = o.id AND c.state = o.state
    WHERE o.state NOT {among(UNSENT)} AND o.{IS_HERE} AND c.order_id IS NULL
    AND o.updated_at >= coalesce((SELECT CAST(m.value AS DOUBLE PRECISION) FROM meta m
    WHERE m.key = 'changes_since'), 0)"""  # noqa: S608 - no value in it


def _topic(outbox: str, state: str) -> str:
    """What is heard of together."""
    return f"{State(state).value}/{outbox}"


def hear(commit: Commit, outbox: str, states: Collection[State]) -> None:
    """Let changes of an outbox to these states wait for handlers from now on."""
    if not {*UNSENT}.isdisjoint(states):
        raise ValueError(f"states: of {' and '.join(UNSENT)} no handler hears")
    commit.connection.executemany(
        """INSERT INTO hearing (outbox, state, at) VALUES (?, ?, ?)
        ON CONFLICT (outbox, state) DO UPDATE SET at = excluded.at""",
        [(outbox, State(state).value, commit.now) for state in states],
    )


def subscriptions(connection: Connection, outbox: str) -> Sequence[Subscription]:
    """Of which states handlers hear, or heard."""
    found = connection.execute(
        """SELECT h.state, h.at, (SELECT count(*) FROM delivery d
            WHERE d.status = 'pending' AND d.queue = 'outbox' AND d.topic = h.state || '/' || h.outbox)
        FROM hearing h WHERE h.outbox = ? ORDER BY h.state""",
        (outbox,),
    ).fetchall()
    return tuple(Subscription(state=State(state), at=at, pending=pending) for state, at, pending in found)


def forget(commit: Commit, outbox: str, state: State, who: str, why: str) -> int:
    """Let go what waits for handlers that no process has any more, says a named person; tells how much."""
    check_named(who, why)
    heard = commit.execute(
        "SELECT at FROM hearing WHERE outbox = ? AND state = ?", (outbox, State(state).value)
    ).fetchone()
    if heard is None:
        return 0
    if heard[0] > commit.now - UNHEARD:
        raise ValueError(f"state: a process with a handler for {state} asked for it a moment ago; end it first")
    run = run_columns(commit, outbox, "id")[0]
    resolve(commit, f"forgot {State(state).value}", who, why, run=run)
    commit.execute("DELETE FROM hearing WHERE outbox = ? AND state = ?", (outbox, State(state).value))
    return _deliveries.let_go(commit, OUTBOX, _topic(outbox, state))


def last(connection: Connection, states: Collection[State] = ()) -> int:
    """The newest id, of changes to these states or of all; 0 where there are none."""
    sql = "SELECT max(id) FROM change"
    if states:  # the newest rows are read until there is one, and the last answer is always near
        sql = f"SELECT id FROM change WHERE state {among(states)} ORDER BY id DESC LIMIT 1"  # noqa: S608 - names of states
    found = connection.execute(sql).fetchone()
    return 0 if found is None else found[0] or 0


def after(connection: Connection, outbox: str | None, number: int, limit: int) -> Sequence[OrderEvent]:
    """Changes that came after this one, of one outbox or of any."""
    if outbox is None:
        found = connection.execute(f"{_FEED} ORDER BY change.id LIMIT ?", (number, limit))
    else:
        found = connection.execute(f"{_FEED} AND change.outbox = ? ORDER BY change.id LIMIT ?", (number, outbox, limit))
    return tuple(map(_change, found))


def states_since(connection: Connection, outbox: str, number: int) -> tuple[int, frozenset[State]]:
    """The newest change of an outbox after this one, and to which states those were that came after it."""
    found = connection.execute(
        "SELECT state, max(id) FROM change WHERE id > ? AND outbox = ? GROUP BY state", (number, outbox)
    ).fetchall()
    return max((last for _, last in found), default=number), frozenset(State(state) for state, _ in found)


def is_due(connection: Connection, outbox: str, states: Collection[State], now: float) -> bool:
    """Whether there is anything to be claimed, or to be noted beside that."""
    found = connection.execute(_HEARD, (outbox, now - _NOTED_EVERY, *_deliveries.due_at(now))).fetchall()
    return any(state in states for (state,) in found)


def claim(
    commit: Commit,
    outbox: str,
    states: Collection[State],
    owner: str,
    holder: str,
    lease: float,
    limit: int,
) -> Sequence[OrderEvent]:
    """Lease due changes."""
    commit.connection.executemany(
        "UPDATE hearing SET at = ? WHERE outbox = ? AND state = ? AND at < ?",
        [(commit.now, outbox, State(state).value, commit.now - _NOTED_EVERY) for state in states],
    )
    topics = [_topic(outbox, state) for state in states]
    ids = _deliveries.claim(commit, OUTBOX, topics, owner, holder, lease, limit)
    return [
        told
        for sql, block in _deliveries.marked(_CLAIMED, ids)
        for told in _told(commit, commit.execute(sql, block).fetchall())
    ]


def finish(commit: Commit, change_ids: Sequence[int], status: str, holder: str, error: str | None) -> None:
    """Close changes that wait."""
    if status not in _STATUSES:
        raise ValueError(f"status: a change ends as one of {', '.join(sorted(_STATUSES))}")
    if status == "dead":
        _deliveries.bury(commit, OUTBOX, change_ids, holder, error)
    else:
        _deliveries.close(commit, OUTBOX, change_ids, holder)


def dead_after(connection: Connection, /, *, after: int) -> tuple[list[OrderEvent], int]:
    """A page of dead letters, oldest first."""
    ids = _deliveries.dead_after(connection, OUTBOX, after, _PAGE)
    page = [
        _change(row)
        for sql, block in _deliveries.marked(_DEAD, ids)
        for row in connection.execute(sql, block).fetchall()
    ]
    return page, ids[-1] if ids else after


def backlog(connection: Connection, outbox: str | None) -> Backlog:
    """How much waits, and since when."""
    topics = None if outbox is None else [_topic(outbox, state) for state in State]
    return _deliveries.count(connection, OUTBOX, topics)


def prune(commit: Commit, number: int, before: float) -> tuple[int, int | None]:
    """Forget what is old and waits for nobody, of a block after this one: how many, and its last; ``None`` at the end.

    Ids rise with time: a block without anything old is the end.
    """
    block = commit.execute(
        f"""SELECT id, at < ?, coalesce(d.status = 'done', TRUE) FROM change {_DELIVERED}
        WHERE id > ? AND id < (SELECT max(id) FROM change) ORDER BY id LIMIT {_PRUNED_AT_ONCE}""",  # noqa: S608
        (before, number),
    ).fetchall()
    if not any(is_old for _, is_old, _ in block):
        return 0, None
    ids = [found for found, is_old, is_over in block if is_old and is_over]
    if ids:
        known = commit.execute("SELECT value FROM meta WHERE key = 'changes_since'").fetchone()
        if known is None or float(known[0]) < before:
            remembers = """INSERT INTO meta (key, value) VALUES ('changes_since', ?)
                ON CONFLICT (key) DO UPDATE SET value = excluded.value"""
            commit.execute(remembers, (repr(before),))
        for sql, some in _deliveries.marked("DELETE FROM change WHERE id IN ({marks})", ids):
            commit.execute(sql, some)
        _deliveries.forget(commit, OUTBOX, ids)
    return len(ids), block[-1][0]


def mends(connection: Connection) -> tuple[str, ...]:
    """What ``write_unwritten`` would do, in words: triggers were kept from firing while orders moved."""
    (count,) = connection.execute(f"SELECT count(*) FROM {UNWRITTEN}").fetchone()  # noqa: S608 - no value in it
    return (f"write down what became of {count} orders, for handlers",) if count else ()


def write_unwritten(connection: Connection, now: float) -> None:
    """Write down what became of those, so that handlers hear of it."""
    found = connection.execute(f"SELECT o.id, r.outbox, o.state, o.updated_at FROM {UNWRITTEN} ORDER BY o.updated_at")  # noqa: S608
    heard = set(connection.execute("SELECT outbox, state FROM hearing").fetchall())
    newest = max(last(connection), int(now * 1_000_000))
    orders = found.fetchall()
    rows = [(newest + place, *order) for place, order in enumerate(orders, start=1)]
    connection.executemany("INSERT INTO change (id, order_id, outbox, state, at) VALUES (?, ?, ?, ?, ?)", rows)
    connection.executemany(
        "INSERT INTO delivery (queue, about, topic, order_id) VALUES ('outbox', ?, ?, ?)",
        [(row[0], _topic(row[2], row[3]), row[1]) for row in rows if (row[2], row[3]) in heard],
    )


def _told(commit: Commit, rows: Sequence[Sequence[Any]]) -> Sequence[OrderEvent]:
    """Claimed changes with their entries; what cannot be read is a dead letter."""
    width = _WIDTH
    doubts = doubts_about(commit.connection, [row[width + 2 :] for row in rows])
    told = []
    for row in rows:
        change, (done, batch_id, *stored) = _change(row[:width]), row[width:]
        try:
            if not stored or stored[0] is None:
                raise JournalCorrupt("its order is not in the journal any more")
            if (row := row_of(stored)).archive is not None:
                raise JournalCorrupt(_GONE)
            entry = entry_of(row, batch_id, doubts.get(change.request_id, NO_DOUBTS))
            finished = _deliveries.finished(done)
        except JournalCorrupt as error:
            _log.error(
                "change %s cannot be told: %s", change.id, error, extra={"change_id": change.id, "error": str(error)}
            )
            _deliveries.bury(commit, OUTBOX, (change.id,), None, str(error))
        else:
            told.append(attrs.evolve(change, entry=_as_changed(entry, change), done=finished))
    return tuple(told)


def _as_changed(entry: Entry, change: OrderEvent) -> Entry:
    """The order as a handler is told of it: who hears that it was paid must not read that it is reversed by now."""
    return attrs.evolve(entry, state=change.state, updated_at=change.at, change_id=change.id)


def _change(row: Sequence[Any]) -> OrderEvent:
    """A row of ``_FACTS``."""
    number, request_id, outbox, state, at, tries, error = row
    return OrderEvent(
        id=number, request_id=request_id or "", outbox=outbox, state=State(state), at=at, tries=tries, error=error
    )
