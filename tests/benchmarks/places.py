"""Where a benchmark keeps its journal: in a new file, or in a new namespace of a database, gone afterwards."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from payments_async.journal import PostgresJournal, SqliteJournal


@contextmanager
def new_journal(folder: Path, dsn: str | None) -> Iterator[SqliteJournal | PostgresJournal]:
    """A journal that is not open yet.

    Args:
        folder: For the file, and for what the machine remembers.
        dsn: Of a database in place of the file.
    """
    if dsn is None:
        yield SqliteJournal(folder / "journal.db", state_folder=folder / "state")
        return
    schema = f"bench_{secrets.token_hex(4)}"
    try:
        yield PostgresJournal(dsn, schema=schema, state_folder=folder / "state")
    finally:
        drop(dsn, schema)


def drop(dsn: str, schema: str) -> None:
    """Remove a namespace and all that is in it."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def size_of(folder: Path, dsn: str | None) -> int:
    """Bytes that the one journal in a place takes, with everything beside it."""
    if dsn is None:
        return sum(part.stat().st_size for part in folder.iterdir())
    import psycopg

    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            """SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname LIKE 'bench\\_%' AND c.relkind = 'r'"""
        ).fetchone()
    assert found is not None
    return int(found[0])


def tables_of(dsn: str | None) -> Sequence[str]:
    """A line for each table of the one journal in a database: its bytes, those of its indexes, and how it was kept."""
    if dsn is None:
        return ()
    import psycopg

    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            """SELECT s.relname, s.n_live_tup, s.n_dead_tup, pg_relation_size(s.relid), s.n_tup_upd, s.n_tup_hot_upd,
            s.autovacuum_count, (SELECT string_agg(i.indexrelname || ' ' || pg_relation_size(i.indexrelid), ', '
                ORDER BY pg_relation_size(i.indexrelid) DESC) FROM pg_stat_user_indexes i WHERE i.relid = s.relid)
            FROM pg_stat_user_tables s WHERE s.schemaname LIKE 'bench\\_%' AND pg_total_relation_size(s.relid) > 100000
            ORDER BY pg_total_relation_size(s.relid) DESC"""
        ).fetchall()
    return [
        f"{table}: {live:,} rows, {dead:,} dead, {size:,} bytes; {updated:,} updated, {hot:,} of them in place; "
        f"vacuumed {times} times; {indexes}"
        for table, live, dead, size, updated, hot, times, indexes in found
    ]


def processor_of(dsn: str | None) -> Callable[[], tuple[float, float, int]]:
    """What was used until it is asked: seconds of the processor by this process and by the server; bytes of its WAL.

    The server's are those of its processes that live and that have ended, where it runs on this machine.
    """
    if dsn is None:
        return lambda: (time.process_time(), 0.0, 0)
    import psycopg

    connection = psycopg.connect(dsn, autocommit=True)

    def used() -> tuple[float, float, int]:
        found = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()
        assert found is not None
        return time.process_time(), _server_time(connection.info.backend_pid), int(found[0])

    return used


def _server_time(backend: int) -> float:
    """Seconds of the processor that the server of a process has used."""
    ticks, parents = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(place.name)] = int(fields[1])
        ticks[int(place.name)] = sum(map(int, fields[11:13])), sum(map(int, fields[11:15]))
    if backend not in parents:
        return 0.0
    postmaster = parents[backend]
    used = sum(own for pid, (own, _) in ticks.items() if parents[pid] == postmaster)
    return (used + ticks[postmaster][1]) / os.sysconf("SC_CLK_TCK")
