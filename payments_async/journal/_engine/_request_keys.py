"""The keys of request ids, written into a journal of a version that had none: no database folds letters as Python."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from payments_async._values.request_ids import plain_id
from payments_async.journal._statements._database import Connection

SINCE = 2  # the version of the tables that have keys
_PAGE = 10_000  # rows in memory at once
_log = logging.getLogger("payments_async.journal")


def write_keys(connection: Connection, *, tables: Sequence[str], is_new: bool, prefix: str = "") -> None:
    """Write the key of each order and notification, and make those of orders unique.

    Two orders whose ids are one from now on may both have been sent. The second gets a key that no id has: it stands,
    and what is told of the id counts for the first.

    Args:
        tables: Those of orders.
        is_new: Nothing is in them.
        prefix: The namespace with its dot.
    """
    if not is_new:
        _write(connection, tables, prefix)
    for table in tables:
        connection.execute(f"CREATE UNIQUE INDEX {table}_request ON {prefix}{table}(request_key)")


def _write(connection: Connection, tables: Sequence[str], prefix: str) -> None:
    """Write all keys."""
    for table in (*tables, "ipn_event"):
        column = "request_key" if table == "ipn_event" else "request_id"
        _fill(connection, f"{prefix}{table}", column)
    for table in tables:
        _set_apart(connection, f"{prefix}{table}")
    for (old,) in connection.execute(f"SELECT request_key FROM {prefix}sighting").fetchall():  # noqa: S608 - a name
        if (key := plain_id(old)) != old:
            connection.execute(f"DELETE FROM {prefix}sighting WHERE request_key = ?", (key,))  # noqa: S608
            connection.execute(f"UPDATE {prefix}sighting SET request_key = ? WHERE request_key = ?", (key, old))  # noqa: S608


def _fill(connection: Connection, table: str, column: str) -> None:
    """Write the keys of the ids in a column."""
    after = -1
    sql = f"SELECT id, {column} FROM {table} WHERE id > ? ORDER BY id LIMIT {_PAGE}"  # noqa: S608 - names alone
    while rows := connection.execute(sql, (after,)).fetchall():
        after = rows[-1][0]
        connection.executemany(
            f"UPDATE {table} SET request_key = ? WHERE id = ?",  # noqa: S608 - a name
            [(plain_id(text), number) for number, text in rows if text is not None],
        )


def _set_apart(connection: Connection, name: str) -> None:
    """Give the second of two orders whose ids are one from now on a key of its own."""
    others = connection.execute(
        f"""SELECT o.id, o.request_id FROM {name} o JOIN (SELECT request_key, min(id) AS first FROM {name}
        GROUP BY request_key HAVING count(*) > 1) d ON d.request_key = o.request_key AND o.id <> d.first"""  # noqa: S608
    ).fetchall()
    for number, request_id in others:
        _log.warning(
            "request id %s differs from another in letters alone: compare both orders",
            request_id,
            extra={"request_id": request_id},
        )
        sql = f"UPDATE {name} SET request_key = ? WHERE id = ?"  # noqa: S608 - a name
        connection.execute(sql, (f"{request_id}\n{number}", number))
