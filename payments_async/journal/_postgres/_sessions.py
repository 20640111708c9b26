"""Whether a session is one's own: a pooler may lend another one for each transaction, or for each statement."""

from __future__ import annotations

import secrets
import selectors
import time
from collections.abc import Callable
from typing import Any

from payments_async.journal._postgres._connection import HAS_ROOM, PgConnection

NOT_OURS = (
    "the pooler in between does not lend a session for as long as it is wanted, and clean it then; the journal needs "
    "that (pgbouncer: pool_mode = session, with its usual server_reset_query), or the server itself"
)
_PATIENCE = 10.0  # seconds; what is to be seen is there within a millisecond, unless the machine has no time
_AGAIN = 0.001  # ... between the first two looks, and twice as long between any two more
_IS_HELD = """SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid = {} AND objsubid = 1
    AND (classid::bigint << 32) + objid::bigint = {})"""


def is_own(one: PgConnection, connect: Callable[[], PgConnection]) -> bool:
    """Try what a journal relies on: that a session which does nothing hears, and holds a lock until it is closed.

    What the pooler says of itself proves nothing, nor do the numbers of sessions alone: one that lends them in turn
    gives two of us two of them. But who has no session between two transactions hears nothing then, and a lock that it
    took stays with a session which nobody closes. Nothing of either session is set before that, and of what is lent
    after all, a lock by a random number is all that stays.

    Args:
        one: A connection on which nothing was set yet; whose session it is, is noted there.
        connect: Makes another one.
    """
    number = secrets.randbits(62)
    other = connect()
    try:
        one.session, other.session = session_of(one), session_of(other)
        if one.session == other.session:
            return False
        for connection in (one, other):
            _asked(connection, "TRUE")
        if not _hears(other, one, f"payments_{number:x}"):
            return False
        _asked(other, f"pg_catalog.pg_advisory_lock_shared({number})")
        if not _is_held(one, other.session, number):
            return False
        other.close()
        return _is_let_go(one, other.session, number)
    except _OtherSession:
        return False
    finally:
        other.close()


def session_of(connection: PgConnection) -> int:
    """The process of the server that answers."""
    found = connection.script("SELECT pg_catalog.pg_backend_pid()")
    assert found is not None
    return int(found[0])


class _OtherSession(Exception):
    """Another session has answered than before."""


def _asked(connection: PgConnection, what: str) -> Any:
    """What the session of a connection says, in a transaction of its own. Raises ``_OtherSession``."""
    found = connection.script(f"SELECT pg_catalog.pg_backend_pid(), {what}")
    assert found is not None
    if int(found[0]) != connection.session:
        raise _OtherSession
    return found[1]


def _hears(listener: PgConnection, teller: PgConnection, channel: str) -> bool:
    """Whether one hears what the other tells while it asks for nothing; where nothing can be told, the lock shows."""
    pgconn, until = listener.raw.pgconn, time.monotonic() + _PATIENCE
    listener.script(f"LISTEN {channel}")
    if _asked(teller, f"CASE WHEN {HAS_ROOM} THEN pg_catalog.pg_notify('{channel}', '') END") is None:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(pgconn.socket, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            if selector.select(left):
                pgconn.consume_input()
                while (told := pgconn.notifies()) is not None:
                    if told.relname == channel.encode():
                        return True
    return False


def _is_held(connection: PgConnection, session: int, number: int) -> bool:
    return bool(_asked(connection, f"({_IS_HELD.format(session, number)})"))


def _is_let_go(connection: PgConnection, session: int, number: int) -> bool:
    """Whether a lock is free soon after its holder has closed its connection."""
    until, delay = time.monotonic() + _PATIENCE, _AGAIN
    while _is_held(connection, session, number):
        if time.monotonic() >= until:
            return False
        time.sleep(delay)
        delay *= 2
    return True
