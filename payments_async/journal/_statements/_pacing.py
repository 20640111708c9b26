"""The pace of all who send from one journal: turns at a rate, and a pause that the service asks for. One row has both.

The rate is kept by GCRA: the row says when the next turn is by the database's clock, and whoever asks for some moves it
on by as many intervals. A turn that nobody used is gone, and nothing is saved up. Who dies with turns in hand takes
these along, a fraction of a second of them, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from payments_async.journal._records import RateSlots, SharedRate
from payments_async.journal._statements import _leases
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit
from payments_async.journal._statements._leases import RATE
from payments_async.journal._statements._permits import end_leases_of_crashed_sessions

LONGEST_PAUSE = 900.0  # seconds that are believed when the service asks for a pause; then somebody asks again
AHEAD = 0.2  # seconds from now within which the first turn lies that is given; who asks for a later one asks again
AT_ONCE = 0.5  # seconds of turns that one may have at once; a single one may take longer
_SKEW = 5.0  # seconds by which a clock that goes back does not end a pause
_ROW = 1


def schedule(next_at: float, now: float, rate: float, count: int) -> tuple[float, int, float]:
    """Give turns out.

    Args:
        next_at: Unix seconds of the first turn that nobody has, as far as is written down.
        rate: Turns a second.
        count: So many are asked for.

    Returns:
        When the first of them is, how many there are, at intervals of ``1 / rate``, and when the next one is; without
        any, when they would begin, which is too far ahead.
    """
    interval = 1.0 / rate
    # later than this nobody has written: a clock went back since, or the rate was a lower one
    next_at = min(max(next_at, now), now + AHEAD + max(AT_ONCE, interval))
    if next_at > now + AHEAD or count < 1:
        return next_at, 0, next_at
    given = min(count, max(1, int(AT_ONCE * rate)))
    return next_at, given, next_at + given * interval


def pace(connection: Connection | Commit, now: float) -> SharedRate:
    """How fast all may send."""
    row = connection.execute("SELECT rate, cool_at, cool_for, cool_why FROM pace WHERE id = ?", (_ROW,)).fetchone()
    rate, cool_at, cool_for, why = row or (None, 0.0, 0.0, None)
    named = connection.execute(
        f"SELECT rate FROM lease WHERE kind = ? AND NOT {_leases.is_over('until', 'span')}",  # noqa: S608
        (RATE, now, now),
    ).fetchall()
    return _shared(rate, now, cool_at, cool_for, why, sorted({asked for (asked,) in named}))


def request_rate(
    commit: Commit, owner: str, holder: str | None, rate: float, lease: float, dead: Sequence[str]
) -> SharedRate:
    """Somebody at work says at which rate all may send; the lowest that anybody at work names counts.

    The rate that counts stays when nobody is at work any more, until another one is named.
    """
    end_leases_of_crashed_sessions(commit, dead)
    _leases.forget_ended(commit, RATE)
    _leases.take(commit, RATE, owner, owner, holder, lease, rate=rate)
    commit.execute(
        """INSERT INTO pace (id, rate) SELECT CAST(? AS BIGINT), min(rate) FROM lease WHERE kind = ?
        ON CONFLICT (id) DO UPDATE SET rate = excluded.rate""",
        (_ROW, RATE),
    )
    return pace(commit, commit.now)


def reserve_turns(commit: Commit, count: int) -> RateSlots:
    """Give out turns, if there are any within a moment."""
    now = commit.now
    row = commit.execute("SELECT rate, next_at, cool_at, cool_for, cool_why FROM pace WHERE id = ?", (_ROW,)).fetchone()
    rate, next_at, *cool = row or (None, 0.0, 0.0, 0.0, None)
    shared = _shared(rate, now, *cool)
    if shared.rate is None:
        return RateSlots(count=count, pace=shared)
    if shared.cools_for > 0.0:
        return RateSlots(count=0, again_in=shared.cools_for, pace=shared)
    first, given, after = schedule(next_at, now, shared.rate, count)
    if after != next_at:
        commit.execute("UPDATE pace SET next_at = ? WHERE id = ?", (after, _ROW))
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
    rate: float | None, now: float, cool_at: float, cool_for: float, why: str | None, named: Sequence[float] = ()
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
