"""The queue of what waits for handlers, notifications and changes of orders alike: leased, retried, buried, revived."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cache

import msgspec

from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._inbox import NOT_CONFIRMED, Backlog
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit
from payments_async.journal._statements._leases import is_ahead

INBOX, OUTBOX = "inbox", "outbox"  # the two queues: about events, by their id; about changes, by theirs
_BEYOND = 1 << 63
_NOTHING = -1  # no event and no change has this id
_BLOCK = 40  # rows in one statement: every number of them is a statement of its own to prepare and to remember
_MOST = 512  # ... that is made for a number of ids
_LONGEST = 900.0  # seconds; what is due later than that is looked at, whether a clock that was ahead made it so
_DUE = "queue = ? AND topic = ? AND status = 'pending' AND due_at"
_IS_AHEAD = is_ahead("due_at", "span")
_AHEAD = f"{_DUE} > ? AND {_IS_AHEAD}"
_ANY = "EXISTS (SELECT 1 FROM delivery WHERE queue = '{queue}' AND topic = {topic} AND status = 'pending' AND due_at"
_ARE_DUE = f"({_ANY} <= ?) OR {_ANY} > ? AND {_IS_AHEAD}))"
_OLDEST = f"SELECT due_at, about FROM delivery WHERE {_DUE} <= ? ORDER BY due_at, about LIMIT ?"  # noqa: S608
_LEASE = """UPDATE delivery SET owner = ?, holder = ?, due_at = ?, span = ?
    WHERE queue = ? AND about IN ({marks}) AND status = 'pending'"""
# What became of a delivery is written by the opening that has leased it, and by anybody where no one has: it is that
# of another one once its lease ran out and was taken over.
_OURS = "status = 'pending' AND (holder = '' OR coalesce(? = holder, TRUE))"
_FAILING = f"tries > 0 AND substr(error, 1, {len(NOT_CONFIRMED)}) <> '{NOT_CONFIRMED}'"
_FREE = "owner = '', holder = ''"
_CLOSE = f"DELETE FROM delivery WHERE queue = ? AND about IN ({{marks}}) AND tries = 0 AND {_OURS}"  # noqa: S608
_CLOSE_FAILED = f"""UPDATE delivery SET status = 'done', {_FREE}, error = NULL
    WHERE queue = ? AND about IN ({{marks}}) AND {_OURS}"""  # noqa: S608 - no value in it
_BURY = f"""UPDATE delivery SET status = 'dead', {_FREE}, error = ?
    WHERE queue = ? AND about IN ({{marks}}) AND {_OURS}"""  # noqa: S608 - no value in it
_ADD = """INSERT INTO delivery (queue, owner, holder, due_at, span, about)
    SELECT 'inbox', ?, ?, ?, ?, column1 FROM (VALUES """
_ADDS = [f"{_ADD}{','.join(['(?)'] * ids)}) AS given" for ids in range(_BLOCK + 1)]
_CAME = {
    INBOX: "SELECT received_at FROM ipn_event WHERE id = ?",
    OUTBOX: "SELECT at FROM change WHERE id = ?",
}
_names = msgspec.json.Decoder(list[str]).decode


def add(commit: Commit, event_ids: Sequence[int], owner: str, holder: str, lease: float) -> None:
    """Let events wait for handlers.

    Args:
        holder: By which the owner's life is known.
        lease: Seconds they are leased to ``owner`` for; 0 leaves them to anybody.
    """
    held = (owner, holder, commit.now + lease, lease) if lease > 0 else ("", "", 0.0, 0.0)
    for start in range(0, len(event_ids), _BLOCK):
        block = event_ids[start : start + _BLOCK]
        commit.execute(_ADDS[len(block)], (*held, *block))


def are_due(queue: str, topic: str) -> str:
    """The condition that something is to be claimed, for ``due_at(now)``.

    Args:
        topic: An expression.
    """
    return _ARE_DUE.format(queue=queue, topic=topic)


def due_at(now: float) -> tuple[float, float, float]:
    """What is bound to ``are_due``."""
    return now, now + _LONGEST, now


def claim(
    commit: Commit, queue: str, topics: Collection[str], owner: str, holder: str, lease: float, limit: int
) -> Sequence[int]:
    """Lease what is due, and tell what it is about: first what never failed, oldest first, then what waits longest."""
    due: list[tuple[float, int]] = []
    for topic in topics:  # each by its own place in the index: what nobody here handles is not read
        commit.execute(
            f"UPDATE delivery SET due_at = ? + span WHERE {_AHEAD}",  # noqa: S608 - no value in it
            (commit.now, queue, topic, commit.now + _LONGEST, commit.now),
        )
        due += commit.execute(_OLDEST, (queue, topic, commit.now, limit)).fetchall()
    numbers = sorted(number for _, number in sorted(due)[:limit])
    for sql, block in marked(_LEASE, numbers):
        commit.execute(sql, (owner, holder, commit.now + lease, lease, queue, *block))
    return numbers


def give_back(commit: Commit, holder: str, queue: str | None = None, owner: str | None = None) -> None:
    """Give back what is leased through one opening of a journal: all of it, or that of one owner in a queue."""
    commit.execute(
        f"""UPDATE delivery SET {_FREE}, due_at = 0, span = 0 WHERE holder = ? AND status = 'pending'
        AND coalesce(? = queue, TRUE) AND coalesce(? = owner, TRUE)""",  # noqa: S608 - no value in it
        (holder, queue, owner),
    )


def note_done(commit: Commit, queue: str, about: int, handler: str) -> None:
    """Remember that one handler has finished; that is true whose lease it is."""
    row = commit.execute("SELECT done FROM delivery WHERE queue = ? AND about = ?", (queue, about)).fetchone()
    if row is None:
        return
    with suppress(JournalCorrupt):  # it is made a dead letter when it is claimed
        done = msgspec.json.encode(sorted({handler, *finished(row[0])})).decode()
        commit.execute("UPDATE delivery SET done = ? WHERE queue = ? AND about = ?", (done, queue, about))


def finished(done: str | None) -> frozenset[str]:
    """The handlers that have finished. Raises ``JournalCorrupt`` where that cannot be read."""
    try:
        return frozenset(_names(done)) if done else frozenset()
    except (msgspec.DecodeError, ValueError) as error:
        raise JournalCorrupt("what it has come to cannot be read") from error


def close(commit: Commit, queue: str, abouts: Sequence[int], holder: str | None) -> int:
    """All handlers have finished with these; tells of how many that could be written down.

    Args:
        holder: By which the writer's life is known; ``None`` for a decision that counts whose lease it is.
    """
    closed = 0
    for start in range(0, len(abouts), _BLOCK):
        block = abouts[start : start + _BLOCK]
        closed += commit.writes(len(block), _filled(_CLOSE, len(block)), (queue, *block, holder))
    if closed < len(abouts):
        for sql, some in marked(_CLOSE_FAILED, abouts):
            closed += commit.execute(sql, (queue, *some, holder)).rowcount
    return closed


def retry(commit: Commit, queue: str, about: int, holder: str, delay: float, error: str) -> None:
    """Count a round, and make it due again later."""
    commit.execute(
        f"""UPDATE delivery SET {_FREE}, due_at = ?, span = ?, tries = tries + 1, error = ?
        WHERE queue = ? AND about = ? AND {_OURS}""",  # noqa: S608 - no value in it
        (commit.now + delay, delay, error, queue, about, holder),
    )


def bury(commit: Commit, queue: str, abouts: Sequence[int], holder: str | None, error: str | None) -> None:
    """Make dead letters of these."""
    for sql, block in marked(_BURY, abouts):
        commit.execute(sql, (error, queue, *block, holder))


def bury_unread(commit: Commit, event_id: int, error: str) -> None:
    """Make a dead letter of an event that cannot be read, whether it waits for a handler or not."""
    commit.execute(
        f"""INSERT INTO delivery (queue, about, status, error) VALUES (?, ?, 'dead', ?)
        ON CONFLICT (queue, about) DO UPDATE SET status = 'dead', {_FREE}, error = excluded.error""",  # noqa: S608
        (INBOX, event_id, error),
    )


def revive(commit: Commit, queue: str, about: int | None) -> int:
    """Make dead letters wait again."""
    named = about if about is None or abs(about) < _BEYOND else _NOTHING
    return commit.execute(
        """UPDATE delivery SET status = 'pending', tries = 0, due_at = 0, span = 0
        WHERE queue = ? AND status = 'dead' AND coalesce(? = about, TRUE)""",
        (queue, named),
    ).rowcount


def begin_anew(commit: Commit, queue: str, about: int) -> None:
    """What failed so far counts no more."""
    commit.execute(
        "UPDATE delivery SET tries = 0, error = NULL WHERE queue = ? AND about = ? AND status = 'pending'",
        (queue, about),
    )


def withdraw(commit: Commit, queue: str, about: int) -> None:
    """No handler is to hear of this any more, whatever has become of it."""
    commit.execute(
        f"UPDATE delivery SET status = 'done', {_FREE} WHERE queue = ? AND about = ?",  # noqa: S608 - no value in it
        (queue, about),
    )


def let_go(commit: Commit, queue: str, topic: str) -> int:
    """Let go what waits for handlers of a topic; tells how much."""
    return commit.execute(
        "DELETE FROM delivery WHERE queue = ? AND topic = ? AND status = 'pending'", (queue, topic)
    ).rowcount


def forget(commit: Commit, queue: str, abouts: Sequence[int]) -> None:
    """Nothing is known any more of what these are about."""
    for sql, block in marked("DELETE FROM delivery WHERE queue = ? AND about IN ({marks})", abouts):
        commit.execute(sql, (queue, *block))


def dead_after(connection: Connection, queue: str, after: int, limit: int) -> Sequence[int]:
    """What dead letters are about, of those after this one, so many at most."""
    found = connection.execute(
        "SELECT about FROM delivery WHERE queue = ? AND status = 'dead' AND about > ? ORDER BY about LIMIT ?",
        (queue, after, limit),
    ).fetchall()
    return [about for (about,) in found]


def count(connection: Connection, queue: str, topics: Sequence[str] | None = None) -> Backlog:
    """How much waits and since when, of topics or of all. What waits to be confirmed has failed with no handler."""
    among = "queue = ?" if topics is None else f"queue = ? AND topic IN ({', '.join('?' * len(topics))})"
    pending, first, failing, failed, dead = connection.execute(
        f"""SELECT count(*), min(about), count(*) FILTER (WHERE {_FAILING}), min(about) FILTER (WHERE {_FAILING}),
        (SELECT count(*) FROM delivery WHERE {among} AND status = 'dead')
        FROM delivery WHERE {among} AND status = 'pending'""",  # noqa: S608 - marks
        (queue, *(topics or ())) * 2,
    ).fetchone()  # one statement, for between two a change is buried, and counted twice
    of = "SELECT error FROM delivery WHERE queue = ? AND about = ? AND error IS NOT NULL"  # it may be over by now
    error = None if failed is None else connection.execute(of, (queue, failed)).fetchone()
    # anybody may be shown it: the words of an exception, which may name persons, stay in the row
    place = None if error is None else ": ".join(error[0].split(": ")[:2])
    oldest, failing_since = (
        None if found is None else found[0]
        for found in (connection.execute(_CAME[queue], (about,)).fetchone() for about in (first, failed))
    )
    return Backlog(
        pending=pending, dead=dead, oldest=oldest, failing=failing, failing_since=failing_since, failure=place
    )


def marked(sql: str, ids: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
    """A statement for some ids at a time: as many as a power of two, so that there are few and they are kept."""
    for start in range(0, len(ids), _MOST):
        block = ids[start : start + _MOST]
        width = 1 << (len(block) - 1).bit_length()
        yield _filled(sql, width), (*block, *[block[-1]] * (width - len(block)))


@cache
def _filled(sql: str, width: int) -> str:
    return sql.format(marks=", ".join("?" * width))
