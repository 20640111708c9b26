"""What a user of the database may do with the tables of a journal, and what has to be granted for the rest."""

from __future__ import annotations

from collections.abc import Collection

from payments_async.journal._faults import JournalReadOnly
from payments_async.journal._postgres._connection import PgConnection
from payments_async.journal._postgres._schema import quoted

_TABLES = """SELECT ARRAY[CAST(c.relname AS TEXT), string_agg(p.what, ', ' ORDER BY p.what)]
    FROM pg_class c CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS p(what)
    WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND NOT has_table_privilege(c.oid, p.what)
    GROUP BY c.relname ORDER BY c.relname"""
_FUNCTIONS = """SELECT CAST(p.proname AS TEXT) FROM pg_proc p
    WHERE p.pronamespace = n.oid AND p.proname = 'next_id' AND NOT has_function_privilege(p.oid, 'EXECUTE')"""
_HIDDEN = """SELECT CAST(c.relname AS TEXT) FROM pg_class c
    WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p') AND row_security_active(c.oid) ORDER BY c.relname"""
_PLACE = f"""SELECT current_user, has_database_privilege(current_database(), 'CREATE'),
    has_schema_privilege(n.oid, 'USAGE'), has_schema_privilege(n.oid, 'CREATE')
    OR EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid), ARRAY({_TABLES}), ARRAY({_FUNCTIONS}),
    ARRAY({_HIDDEN})
    FROM (VALUES (CAST(? AS TEXT))) AS asked (name) LEFT JOIN pg_namespace n ON n.nspname = asked.name"""  # noqa: S608
_SHOWN = 3  # tables that are named


def check(connection: PgConnection, schema: str, ours: Collection[str], named: str) -> None:
    """Whether this user may use the tables, or make them where there are none.

    Args:
        ours: The names of the tables; others beside them are none of the journal's.

    Raises:
        JournalReadOnly: They may not; it says what is to be granted.
    """
    if words := lacking(connection, schema, ours):
        raise JournalReadOnly(f"{named}: {words}")


def lacking(connection: PgConnection, schema: str, ours: Collection[str]) -> str | None:
    """What this user lacks, and the statements that grant it; ``None`` where nothing is lacking."""
    found = connection.execute(_PLACE, (schema,)).fetchone()
    assert found is not None
    user, may_make, may_use, may_fill, tables, functions, hidden = found
    if may_use is None:
        return None if may_make else f"there is no namespace {schema}, and the user {user} may not make one: {_MAKE}"
    if not may_fill:
        return f"there are no tables in the namespace {schema}, and the user {user} may not make any: {_MAKE}"
    s, u = quoted(schema), quoted(user)
    grants = [f"GRANT USAGE ON SCHEMA {s} TO {u}"] if not may_use else []
    words = [f"use the namespace {schema}"] if not may_use else []
    if tables := [table for table in tables if table[0] in ours]:
        words += [f"{rights} {table}" for table, rights in tables[:_SHOWN]]
        words += [f"{len(tables) - _SHOWN} tables more"] if len(tables) > _SHOWN else []
        grants.append(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {s} TO {u}")
    if hidden := [table for table in hidden if table in ours]:
        words.append(f"see all rows of {', '.join(hidden)}")
        grants += [f"ALTER TABLE {s}.{table} DISABLE ROW LEVEL SECURITY" for table in hidden]
    if functions:
        words.append(f"EXECUTE {', '.join(functions)}")
        grants += [f"GRANT EXECUTE ON FUNCTION {s}.{name} TO {u}" for name in functions]
    if not grants:
        return None
    return f"the user {user} may not {'; '.join(words)}. As the owner of the tables: {'; '.join(grants)}"


_MAKE = "let the owner do so once, by `payments-async journal migrate`, and grant the use of the tables"
