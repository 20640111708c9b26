"""How long a caller waits while the journal does not answer: as long as it says, and no longer."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from bulk.worlds import payout, session
from journal import postgres
from outbox.desks import A_MINUTE, Desk, ids
from psycopg import sql

from payments_async.journal import JournalUnavailable, PostgresJournal, SqliteJournal
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Sandbox


async def test_a_file_that_another_process_writes(tmp_path: Path, service: Sandbox) -> None:
    """The caller hears that the order may be written down yet; it is, and it is sent."""
    path = tmp_path / "journal.db"
    async with (
        SqliteJournal(path, busy_timeout=A_MINUTE) as journal,
        session(service) as payments,
        Outbox(payments, journal) as outbox,
    ):
        here = Desk(service, payments, journal, outbox)
        await outbox.pay(payout(0), timeout=A_MINUTE)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(JournalUnavailable, match=r"order .* was not written down in time, and may be yet"):
                await outbox.pay(payout(1), timeout=1.1)
            other.execute("ROLLBACK")
        await here.comes_to({"accepted": 2})
        assert "accepted" == (await outbox.pay(payout(1), timeout=A_MINUTE)).state
        assert ids(range(2)) == here.executions()


async def test_a_server_that_does_not_answer(service: Sandbox) -> None:
    """Neither ``pay`` nor ``settled`` waits for its statements; all goes on once it answers."""
    dsn, schema = postgres.dsn(), postgres.new_schema()
    async with (
        PostgresJournal(dsn, schema=schema) as journal,
        session(service) as payments,
        Outbox(payments, journal, worker=WorkerSettings(settles=False)) as outbox,
    ):
        here = Desk(service, payments, journal, outbox)
        await outbox.pay(payout(0), timeout=A_MINUTE)
        async with await psycopg.AsyncConnection.connect(dsn) as other:
            table = sql.Identifier(schema, "outbox")
            await other.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
            with pytest.raises(JournalUnavailable, match="was not written down in time"):
                await outbox.pay(payout(1), timeout=0.1)
            with pytest.raises(TimeoutError, match="could not be looked up in time"):
                await outbox.settled(payout(0).request_id, timeout=0.1)
        await here.comes_to({"accepted": 2})
        assert ids(range(2)) == here.executions()
    postgres.give_back()
