"""A connection of the application itself, for one statement within the transaction that is open on it.

Which library it is of is told by the name of its class: none is imported that the application has not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from itertools import count
from typing import Any, TypeVar

from payments_async._values.threads import Lent
from payments_async.journal._faults import JournalReadOnly, NotAJournal

T = TypeVar("T")
_KNOWN = "an asyncpg Connection, a psycopg AsyncConnection, or an SQLAlchemy AsyncConnection or AsyncSession"
_KNOWN_IN_THREADS = "a psycopg Connection, an SQLAlchemy Connection or Session, or Django's connection"
_NO_TRANSACTION = (
    "connection: no transaction is open on it, so that what belongs together would not be committed together; "
    "pass it within 'async with connection.transaction()' or what your library has for that"
)
_NOT_THERE = frozenset({"3F000", "42883", "42P01"})  # no such namespace, function, table
_FORBIDDEN = "42501"
_BYTES = "digest"  # the one column of an answer that is not text


async def ask(
    connection: object, sql: str, values: Sequence[object], *, namespace: str, place: str
) -> Mapping[str, Any]:
    """Do one statement that answers with one row, in the transaction that is open on a connection.

    Args:
        sql: With ``?`` marks, each in a ``CAST``, and with ``{s}`` for the namespace; without a colon or a ``%``.
        place: What to call the journal in an error.

    Raises:
        TypeError: The connection is of no library that is known.
        ValueError: No transaction is open on it, nor does it begin one by itself.
        NotAJournal: Its database does not hold the journal.
        JournalReadOnly: Its user may not do that.
        Exception: Whatever else its library raises, as it is: whoever owns the transaction tries it again, or not.
    """
    asked = _asked_in_loop(connection) if not isinstance(connection, Lent) else _asked_in_thread(connection)
    try:
        found = await asked(sql, namespace, values)
    except Exception as error:
        state = _state_of(error)
        if state in _NOT_THERE:
            raise NotAJournal(f"the connection leads to a database without the journal {place}") from None
        if state == _FORBIDDEN:
            raise JournalReadOnly(
                f"the user of the connection may not put orders into the journal {place}: GRANT USAGE ON SCHEMA, and "
                "EXECUTE ON its functions lay, lay_all and mark_told"
            ) from None
        _hide(error)
        raise
    # of a database without an encoding (SQL_ASCII) psycopg has bytes for a text
    return {
        name: value.decode() if isinstance(value, bytes) and name != _BYTES else value for name, value in found.items()
    }


def _asked_in_loop(connection: object) -> _Asked:
    """How a connection is asked. Raises ``TypeError``."""
    asks = _found(_ASKS, connection)
    if asks is None:
        is_known = _found(_ASKS_IN_THREADS, connection) is not None
        why = ": call put_sync with it, from its thread" if is_known else ""
        raise TypeError(f"connection: expected {_KNOWN}, not {type(connection).__name__}{why}")
    return partial(asks, connection)


def _asked_in_thread(lent: Lent) -> _Asked:
    """How a connection of a thread that waits is asked: there. Raises ``TypeError``."""
    asks = _found(_ASKS_IN_THREADS, lent.connection)
    if asks is None:
        raise TypeError(f"connection: expected {_KNOWN_IN_THREADS}, not {type(lent.connection).__name__}")

    async def asked(sql: str, namespace: str, values: Sequence[object]) -> Mapping[str, Any]:
        return await lent.run(lambda: asks(lent.connection, sql, namespace, values))

    return asked


def _found(table: Mapping[tuple[str, str], T], connection: object) -> T | None:
    """What stands in a table for the class of a connection, or one above it."""
    return next((row for kind in type(connection).__mro__ if (row := table.get(_name_of(kind))) is not None), None)


async def _ask_asyncpg(connection: Any, sql: str, namespace: str, values: Sequence[object]) -> Mapping[str, Any]:
    if not connection.is_in_transaction():
        raise ValueError(_NO_TRANSACTION)
    return dict(await connection.fetchrow(_marked(sql, "${}", namespace), *values))


async def _ask_psycopg(connection: Any, sql: str, namespace: str, values: Sequence[object]) -> Mapping[str, Any]:
    import psycopg
    from psycopg.pq import TransactionStatus
    from psycopg.rows import dict_row

    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise ValueError(_NO_TRANSACTION)
    async with psycopg.AsyncCursor(connection, row_factory=dict_row) as cursor:
        await cursor.execute(_marked(sql, "%s", namespace.replace("%", "%%")).encode(), values)
        found = await cursor.fetchone()
    assert found is not None
    return found


async def _ask_session(session: Any, sql: str, namespace: str, values: Sequence[object]) -> Mapping[str, Any]:
    return await _ask_sqlalchemy(await session.connection(), sql, namespace, values)


async def _ask_sqlalchemy(connection: Any, sql: str, namespace: str, values: Sequence[object]) -> Mapping[str, Any]:
    if connection.dialect.name != "postgresql":
        raise TypeError(f"connection: its database is {connection.dialect.name}, and not PostgreSQL")
    if getattr((await connection.get_raw_connection()).dbapi_connection, "autocommit", False):
        raise ValueError(_NO_TRANSACTION)
    found = await connection.execute(_text(sql, namespace), {f"v{n}": value for n, value in enumerate(values, 1)})
    return dict(found.mappings().one())


def _ask_psycopg_in_thread(connection: Any, sql: str, namespace: str, values: Sequence[object]) -> Mapping[str, Any]:
    import psycopg
    from psycopg.pq import TransactionStatus
    from psycopg.rows import dict_row

    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise ValueError(_NO_TRANSACTION)
    with psycopg.Cursor(connection, row_factory=dict_row) as cursor:
        cursor.execute(_marked(sql, "%s", namespace.replace("%", "%%")).encode(), values)
        found = cursor.fetchone()
    assert found is not None
    return found


def _ask_session_in_thread(session: Any, sql: str, namespace: str, values: Sequence[object]) -> Mapping[str, Any]:
    return _ask_sqlalchemy_in_thread(session.connection(), sql, namespace, values)


def _ask_sqlalchemy_in_thread(connection: Any, sql: str, namespace: str, values: Sequence[object]) -> Mapping[str, Any]:
    if connection.dialect.name != "postgresql":
        raise TypeError(f"connection: its database is {connection.dialect.name}, and not PostgreSQL")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise ValueError(_NO_TRANSACTION)
    found = connection.execute(_text(sql, namespace), {f"v{n}": value for n, value in enumerate(values, 1)})
    return dict(found.mappings().one())


def _ask_django(connection: Any, sql: str, namespace: str, values: Sequence[object]) -> Mapping[str, Any]:
    """By the connection that Django's is made of: Django's own cursor writes values into its log."""
    if connection.vendor != "postgresql":
        raise TypeError(f"connection: its database is {connection.vendor}, and not PostgreSQL")
    connection.ensure_connection()
    if type(connection.connection).__module__.partition(".")[0] != "psycopg":
        raise TypeError("connection: Django works with psycopg2 here; install psycopg 3")
    with connection.wrap_database_errors:
        return _ask_psycopg_in_thread(connection.connection, sql, namespace, values)


_Asked = Callable[[str, str, Sequence[object]], Awaitable[Mapping[str, Any]]]
_ASKS_IN_THREADS: dict[tuple[str, str], Callable[[Any, str, str, Sequence[object]], Mapping[str, Any]]] = {
    ("psycopg", "Connection"): _ask_psycopg_in_thread,
    ("sqlalchemy", "Connection"): _ask_sqlalchemy_in_thread,
    ("sqlalchemy", "Session"): _ask_session_in_thread,
    ("sqlalchemy", "scoped_session"): _ask_session_in_thread,
    ("django", "ConnectionProxy"): _ask_django,
    ("django", "BaseDatabaseWrapper"): _ask_django,
}
_ASKS: dict[tuple[str, str], Callable[[Any, str, str, Sequence[object]], Awaitable[Mapping[str, Any]]]] = {
    ("asyncpg", "Connection"): _ask_asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _ask_asyncpg,
    ("psycopg", "AsyncConnection"): _ask_psycopg,
    ("sqlalchemy", "AsyncConnection"): _ask_sqlalchemy,
    ("sqlalchemy", "AsyncSession"): _ask_session,
    ("sqlalchemy", "async_scoped_session"): _ask_session,
}


def _name_of(kind: type) -> tuple[str, str]:
    """The library of a class, and its name there."""
    return kind.__module__.partition(".")[0], kind.__name__


@cache
def _marked(sql: str, mark: str, namespace: str) -> str:
    """A statement whose marks are those of a library."""
    first, *others = sql.split("?")
    numbers = count(1)
    marked = "".join([first, *(mark.format(next(numbers)) + part for part in others)])
    doubled = namespace.replace("'", "''")
    return marked.replace("'{s}.", f"'{doubled}.").replace("{s}", namespace)


@cache
def _text(sql: str, namespace: str) -> Any:
    import sqlalchemy

    return sqlalchemy.text(_marked(sql, ":v{}", namespace.replace(":", r"\:")))


def _state_of(error: BaseException) -> str | None:
    """What PostgreSQL calls an error, through whichever library it comes."""
    for one in (error, getattr(error, "orig", None), error.__cause__):
        state = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None)
        if isinstance(state, str):
            return state
    return None


def _hide(error: Exception) -> None:
    """Have no value of an order in the words of an error: SQLAlchemy writes down what it was given."""
    told: Any = error
    if getattr(told, "params", None) is not None and hasattr(told, "hide_parameters"):
        told.hide_parameters, told.params = True, None
