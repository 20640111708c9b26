"""Leases by name, of duties, loads and rates; and the rate of all who send, with its pauses.

The rate is kept by GCRA: a row says when the next turn is by the database's clock, and each process that asks for some
moves it on by as many intervals. A turn that was not used is gone, and nothing is saved up. A process that dies takes
its turns along, a fraction of a second of them, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from payments_async.journal._records import RateSlots, SharedRate
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit

DUTY, LOAD, RATE = "duty", "load", "rate"  # what they are for: a duty, by its name; a batch; a rate, by who names it
_NAMED = "kind = ? AND key = ?"
_IS_MINE = "lease.owner = ? AND coalesce(lease.holder, '') = ?"

LONGEST_PAUSE = 900.0  # seconds that are believed when the service asks for a pause; then somebody asks again
AHEAD = 0.2  # seconds from now within which the first turn lies that is given; who asks for a later one asks again
AT_ONCE = 0.5  # seconds of turns that one may have at once; a single one may take longer
_SKEW = 5.0  # seconds by which a clock that goes back does not end a pause
_ROW = 1


# How turns are given out: when the first of them is, and how many there are; without any, when they would begin, which
# is too far ahead. For ``asked_for``.
SCHEDULE = f"""SELECT first, CASE WHEN first <= ? THEN CAST(? AS BIGINT) ELSE 0 END AS given FROM (
    SELECT CASE WHEN next_at < ? THEN CAST(? AS DOUBLE PRECISION) WHEN next_at > ? THEN CAST(? AS DOUBLE PRECISION)
    ELSE next_at END AS first FROM pace WHERE id = {_ROW}) AS begun"""  # noqa: S608 - a number
_MOVE_ON = f"UPDATE pace SET next_at = (SELECT first + given * ? FROM ({SCHEDULE}) AS turns) WHERE id = ?"  # noqa: S608


def is_ahead(until: str, span: str) -> str:
    """The condition that a lease ends later than any can: a clock that was ahead has taken it; for ``(now,)``.

    Args:
        until: The column of its end, in Unix seconds.
        span: That of how long it was taken for, in seconds.
    """
    return f"{until} > ? + {span}"


def is_over(until: str, span: str) -> str:
    """The condition that another may have a lease; for ``(now, now)``."""
    return f"({until} <= ? OR {is_ahead(until, span)})"


def ends_at(until: str, span: str) -> str:
    """When a lease ends: one that a clock ahead has taken lasts for its own length from now on; for ``(now, now)``."""
    return f"CASE WHEN {is_ahead(until, span)} THEN ? + {span} ELSE {until} END"


_IS_OVER = is_over("until", "span")


def holder_of(connection: Connection | Commit, kind: str, key: str, now: float) -> tuple[str, float] | None:
    """Who has it, and for how many seconds."""
    found = connection.execute(
        f"SELECT owner, until FROM lease WHERE {_NAMED} AND NOT {_IS_OVER}",  # noqa: S608 - no value in it
        (kind, key, now, now),
    ).fetchone()
    return None if found is None else (found[0], found[1] - now)


def is_with_another(connection: Connection, kind: str, key: str, owner: str, holder: str | None, now: float) -> bool:
    """Whether somebody else has it: then there is nothing to write down."""
    found = connection.execute(
        f"SELECT 1 FROM lease WHERE {_NAMED} AND NOT {_IS_OVER} AND NOT ({_IS_MINE})",  # noqa: S608
        (kind, key, now, now, owner, holder or ""),
    ).fetchone()
    return found is not None


def take(
    commit: Commit, kind: str, key: str, owner: str, holder: str | None, lease: float, *, rate: float | None = None
) -> int | None:
    """Let somebody have it, if nobody else has, or prolong it; a token, higher than any before, or ``None``.

    Where the statements of a commit are gathered it is told later.
    """
    return commit.tell(
        f"""INSERT INTO lease (kind, key, owner, holder, token, until, span, rate) VALUES (?, ?, ?, ?, 1, ?, ?, ?)
        ON CONFLICT (kind, key) DO UPDATE SET owner = excluded.owner, holder = excluded.holder,
        token = lease.token + 1, until = excluded.until, span = excluded.span, rate = excluded.rate
        WHERE {is_over("lease.until", "lease.span")} OR ({_IS_MINE}) RETURNING token""",  # noqa: S608
        (kind, key, owner, holder, commit.now + lease, lease, rate, commit.now, commit.now, owner, holder or ""),
        lambda rows: int(rows[0][0]) if rows else None,
    )


def renew(commit: Commit, kind: str, key: str, token: int, lease: float) -> bool:
    """Prolong what was taken under a token; tells whether it is still with whoever took it then."""
    renewed = commit.execute(
        f"UPDATE lease SET until = ?, span = ? WHERE {_NAMED} AND token = ?",  # noqa: S608 - no value in it
        (commit.now + lease, lease, kind, key, token),
    )
    return bool(renewed.rowcount)


def free(commit: Commit, kind: str, key: str, token: int) -> None:
    """Free at once what was taken under a token."""
    commit.execute(f"UPDATE lease SET until = 0 WHERE {_NAMED} AND token = ?", (kind, key, token))  # noqa: S608


def leave(commit: Commit, kind: str, key: str, owner: str, holder: str | None) -> None:
    """Free it at once, unless somebody else has it."""
    commit.execute(f"UPDATE lease SET until = 0 WHERE {_NAMED} AND {_IS_MINE}", (kind, key, owner, holder or ""))  # noqa: S608


def leave_all(commit: Commit, holder: str) -> None:
    """Free at once whatever was taken through one opening of the journal."""
    commit.execute("UPDATE lease SET until = 0 WHERE holder = ? AND until > 0", (holder,))


def forget(commit: Commit, kind: str, key: str) -> None:
    """Remember it no more: it is never taken again."""
    commit.execute(f"DELETE FROM lease WHERE {_NAMED}", (kind, key))  # noqa: S608 - no value in it


def forget_ended(commit: Commit, kind: str) -> None:
    """Remember those no more that are over: no token of this kind is asked for."""
    commit.execute(f"DELETE FROM lease WHERE kind = ? AND {_IS_OVER}", (kind, commit.now, commit.now))  # noqa: S608


def asked_for(now: float, rate: float, count: int) -> tuple[float | int, ...]:
    """What is bound to ``SCHEDULE``.

    Args:
        rate: Turns a second.
        count: So many are asked for.
    """
    most = max(0, min(count, max(1, int(AT_ONCE * rate))))
    # later than this nobody has written: a clock went back since, or the rate was a lower one
    latest = now + AHEAD + max(AT_ONCE, 1.0 / rate)
    return now + AHEAD, most, now, now, latest, latest


# The row, beside each rate that somebody at work has named; for ``(RATE, now, now, _ROW)``.
_PACE = f"""SELECT p.rate, p.cool_at, p.cool_for, p.cool_why, l.rate FROM pace p
    LEFT JOIN lease l ON l.kind = ? AND NOT {is_over("l.until", "l.span")} WHERE p.id = ?"""  # noqa: S608


def pace(connection: Connection | Commit, now: float) -> SharedRate:
    """How fast all may send."""
    return _read(now, connection.execute(_PACE, (RATE, now, now, _ROW)).fetchall())


def _read(now: float, rows: Sequence[Sequence[Any]]) -> SharedRate:
    """The pace of all, in rows of ``_PACE``."""
    if not rows:
        return SharedRate()
    return _shared(*rows[0][:-1], now=now, named=sorted({named for *_, named in rows if named is not None}))


def request_rate(commit: Commit, owner: str, holder: str | None, rate: float, lease: float) -> SharedRate:
    """Somebody at work says at which rate all may send; the lowest that anybody at work names counts.

    The rate that counts stays when nobody is at work any more, until another one is named.
    """
    forget_ended(commit, RATE)
    take(commit, RATE, owner, owner, holder, lease, rate=rate)
    commit.execute(
        """INSERT INTO pace (id, rate) SELECT CAST(? AS BIGINT), min(rate) FROM lease WHERE kind = ?
        ON CONFLICT (id) DO UPDATE SET rate = excluded.rate""",
        (_ROW, RATE),
    )
    return commit.tell(_PACE, (RATE, commit.now, commit.now, _ROW), partial(_read, commit.now))


def reserve_turns(commit: Commit, count: int) -> RateSlots:
    """Give out turns, if there are any within a moment.

    Whoever else asks at the same time moves the next turn on, and nothing that is usual depends on when it is.
    """
    now = commit.now
    found = commit.finds_as_before("SELECT rate, cool_at, cool_for, cool_why FROM pace WHERE id = ?", (_ROW,))
    shared = SharedRate() if found is None else _shared(*found, now=now)
    if shared.rate is None:
        return RateSlots(count=count, pace=shared)
    if shared.cools_for > 0.0:
        return RateSlots(count=0, again_in=shared.cools_for, pace=shared)
    interval, asked = 1.0 / shared.rate, asked_for(now, shared.rate, count)
    turns = commit.tell(SCHEDULE, asked, partial(_turns, shared, now))
    commit.execute(_MOVE_ON, (interval, *asked, _ROW))
    return turns


def _turns(shared: SharedRate, now: float, rows: Sequence[tuple[float, int]]) -> RateSlots:
    """The turns that were given out."""
    ((first, given),) = rows
    assert shared.rate is not None
    if not given:
        return RateSlots(count=0, again_in=first - AHEAD - now, pace=shared)
    return RateSlots(count=given, starts_in=first - now, interval=1.0 / shared.rate, pace=shared)


def cool_down(commit: Commit, seconds: float, why: str) -> None:
    """Let nobody begin anything for a while, as the service asks; the longest of several counts."""
    now, seconds = commit.now, min(max(seconds, 0.0), LONGEST_PAUSE)
    if seconds > pace(commit, now).cools_for:
        commit.execute(
            """INSERT INTO pace (id, cool_at, cool_for, cool_why) VALUES (?, ?, ?, ?)
            ON CONFLICT (id) DO UPDATE SET cool_at = excluded.cool_at, cool_for = excluded.cool_for,
            cool_why = excluded.cool_why""",
            (_ROW, now, seconds, why),
        )


def _shared(
    rate: float | None, cool_at: float, cool_for: float, why: str | None, *, now: float, named: Sequence[float] = ()
) -> SharedRate:
    left = min(cool_for, cool_at + cool_for - now)
    if left <= 0.0 or now < cool_at - _SKEW:  # over; or the clock went back, and nobody knows how much of it is left
        left, why = 0.0, None
    return SharedRate(
        rate=None if rate is None or math.isinf(rate) else rate,
        named=tuple(named),
        cools_for=left,
        cools_until=now + left if left else None,
        why=why,
    )
