"""What a journal in a database relies on: the settings of the server, of the session, and the rights of its user."""

from __future__ import annotations

from collections.abc import Collection

from payments_async.journal._examination import IntegrityCheck
from payments_async.journal._postgres import _rights
from payments_async.journal._postgres._connection import PgConnection
from payments_async.journal._postgres._schema import changers, numbers_of, silent_triggers

_OLDEST = 130_000  # PostgreSQL 13
_LONG_AGO = 1_500_000_000  # transactions, of two thousand millions
# of each setting what it has to be, what is said where it is not, and whether the journal is not to be relied on then
_SETTINGS = (
    ("fsync", {"on"}, "turn it on: what was committed may be forgotten after a power cut", True),
    ("full_page_writes", {"on"}, "turn it on: a page may be torn after a power cut", True),
    (
        "synchronous_commit",
        {"on", "remote_write", "remote_apply", "local"},
        "the journal turns it on for its own sessions; other writers of this database may lose what they committed",
        False,
    ),
    ("server_encoding", {"UTF8", "SQL_ASCII"}, "make a database with ENCODING 'UTF8'", True),
    ("autovacuum", {"on"}, "turn it on: tables that are written all day grow without it", False),
)
_SHOWN = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "TimeZone", "plan_cache_mode")


def circumstances(
    connection: PgConnection, schema: str, ours: Collection[str], *, is_shared: bool
) -> tuple[IntegrityCheck, ...]:
    """What was found of each.

    Args:
        connection: As a session is by default, for whoever connects as this user.
        ours: The names of the journal's tables.
        is_shared: Something between us and the server gives one session to several of us.
    """
    found = [_version(connection), _replication(connection)]
    for name, wanted, remedy, is_wrong in _SETTINGS:
        value = _setting(connection, name)
        fits = value in wanted
        found.append(
            IntegrityCheck(name=name, found=value, is_wrong=is_wrong and not fits, remedy="" if fits else remedy)
        )
    found += [IntegrityCheck(name=name, found=_setting(connection, name)) for name in _SHOWN]
    found.append(_sessions(is_shared=is_shared))
    silent = ", ".join(silent_triggers(connection, schema))
    found.append(
        IntegrityCheck(
            name="triggers", found=f"{silent} may not fire" if silent else "fire always", is_wrong=bool(silent),
            remedy="no handler hears of what becomes of an order: `payments-async journal migrate`" if silent else "",
        )
    )  # fmt: skip
    found.append(_changers(connection, schema, ours))
    lacking = _rights.lacking(connection, schema, ours)
    found.append(
        IntegrityCheck(
            name="rights", found=lacking or "all that the journal needs", is_wrong=lacking is not None,
            remedy="" if lacking is None else "as said, by the owner of the tables",
        )
    )  # fmt: skip
    found.append(_age(connection))
    return tuple(found)


def _setting(connection: PgConnection, name: str) -> str:
    found = connection.execute("SELECT current_setting(?)", (name,)).fetchone()
    assert found is not None
    return str(found[0])


def _version(connection: PgConnection) -> IntegrityCheck:
    number, words = int(_setting(connection, "server_version_num")), _setting(connection, "server_version")
    if number < _OLDEST:
        return IntegrityCheck(name="server", found=words, is_wrong=True, remedy="PostgreSQL 13 or later is needed")
    return IntegrityCheck(name="server", found=f"PostgreSQL {words}")


def _replication(connection: PgConnection) -> IntegrityCheck:
    """Whether a standby has what was committed before we are told."""
    found = connection.execute(
        """SELECT pg_is_in_recovery(), current_setting('synchronous_standby_names'),
        (SELECT count(*) FROM pg_stat_replication)"""
    ).fetchone()
    assert found is not None
    is_standby, names, count = found
    if is_standby:
        return IntegrityCheck(name="replication", found="a standby, which only reads", remedy="name the primary")
    if names:
        return IntegrityCheck(name="replication", found=f"synchronous ({names}), {count} connected")
    if count:
        remedy = "after a failover the last commits may be missing: nothing is sent then before the list was read"
        return IntegrityCheck(name="replication", found=f"{count} connected, not synchronous", remedy=remedy)
    return IntegrityCheck(name="replication", found="none that this user sees")


def _sessions(*, is_shared: bool) -> IntegrityCheck:
    if is_shared:
        remedy = "pool_mode = session, or connect to the server itself"
        return IntegrityCheck(name="sessions", found="lent for one transaction only", is_wrong=True, remedy=remedy)
    return IntegrityCheck(name="sessions", found="our own")


def _changers(connection: PgConnection, schema: str, ours: Collection[str]) -> IntegrityCheck:
    """Whether another program may drop or change what is written."""
    found = connection.execute(f"SELECT {changers(numbers_of(ours, schema))}").fetchone()
    assert found is not None
    remedy = "nothing is written while it may drop or change rows: drop it, or have it fire after them"
    return IntegrityCheck(
        name="other programs", found="write beside it at most" if found[0] is None else str(found[0]),
        is_wrong=found[0] is not None, remedy=remedy if found[0] is not None else "",
    )  # fmt: skip


def _age(connection: PgConnection) -> IntegrityCheck:
    found = connection.execute(
        "SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()"
    ).fetchone()
    assert found is not None
    remedy = "VACUUM the database soon: it stops taking writes before it runs out of numbers"
    return IntegrityCheck(
        name="transactions since the last freeze", found=f"{found[0]:,}", remedy=remedy if found[0] > _LONG_AGO else ""
    )
