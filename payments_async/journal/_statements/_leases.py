"""Leases by name: what one of all who share a journal does for now, and who that is; and when any lease is over."""

from __future__ import annotations

from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit

DUTY, LOAD, RATE = "duty", "load", "rate"  # what they are for: a duty, by its name; a batch; a rate, by who names it
_NAMED = "kind = ? AND key = ?"
_IS_MINE = "lease.owner = ? AND coalesce(lease.holder, '') = ?"


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
