"""Duties: what one of all who share a journal does for the others, and who that is for now."""

from __future__ import annotations

from collections.abc import Sequence

from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit
from payments_async.journal._statements._permits import end_leases_of_the_dead

_IS_MINE = "duty.owner = ? AND coalesce(duty.holder, '') = ?"


def is_with_another(
    connection: Connection, name: str, owner: str, holder: str | None, lease: float, now: float
) -> bool:
    """Whether somebody else has it, for no longer than a lease: then there is nothing to write down."""
    found = connection.execute(
        f"SELECT 1 FROM duty WHERE name = ? AND until > ? AND until <= ? AND NOT ({_IS_MINE})",  # noqa: S608
        (name, now, now + lease, owner, holder or ""),
    ).fetchone()
    return found is not None


def take_duty(commit: Commit, name: str, owner: str, holder: str | None, lease: float, dead: Sequence[str]) -> bool:
    """Let somebody have it, if nobody else has, or prolong it; tells whether it is theirs.

    One that lasts longer than any lease was taken by a clock that was ahead: a lease is waited for.
    """
    end_leases_of_the_dead(commit, dead)
    taken = commit.execute(
        f"""INSERT INTO duty (name, owner, holder, until) VALUES (?, ?, ?, ?)
        ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, holder = excluded.holder, until = excluded.until
        WHERE duty.until <= ? OR ({_IS_MINE})""",  # noqa: S608 - no value in it
        (name, owner, holder, commit.now + lease, commit.now, owner, holder or ""),
    ).rowcount
    if not taken:
        until = commit.now + lease
        commit.execute("UPDATE duty SET until = ? WHERE name = ? AND until > ?", (until, name, until))
    return bool(taken)


def leave_duty(commit: Commit, name: str, owner: str, holder: str | None) -> None:
    """Free it at once, unless somebody else has it."""
    commit.execute(f"DELETE FROM duty WHERE name = ? AND {_IS_MINE}", (name, owner, holder or ""))  # noqa: S608


def leave_all(commit: Commit, holder: str) -> None:
    """Free at once whatever was taken through one opening of the journal."""
    commit.execute("DELETE FROM duty WHERE holder = ?", (holder,))
