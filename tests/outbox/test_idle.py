"""An outbox with nothing to do: it asks its journal rarely, and is woken by what is written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bulk.worlds import payout, session

from payments_async.journal import Entry, SqliteJournal, State
from payments_async.outbox import HandlerPolicy, Outbox
from payments_async.sandbox import Sandbox

WHILE = 12.0  # seconds


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What all connections to databases are asked, by its first words."""
    asked: Counter[str] = Counter()
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(lambda text: asked.update([" ".join(text.split()[:4])]))
        return connection

    monkeypatch.setattr(sqlite3, "connect", connected)
    return asked


@pytest.mark.slow
async def test_an_outbox_with_nothing_to_do(tmp_path: Path, statements: Counter[str], service: Sandbox) -> None:
    """One statement a second at most, and an order that another process puts is sent within a second."""
    async with (
        SqliteJournal(tmp_path / "journal.db") as journal,
        session(service) as payments,
        Outbox(payments, journal, "shop") as outbox,
    ):
        await outbox.pay(payout(0))
        await asyncio.sleep(5.0)
        statements.clear()
        await asyncio.sleep(WHILE)
        assert statements.total() <= WHILE
        async with (
            SqliteJournal(tmp_path / "journal.db") as elsewhere,
            session(service) as other,
            Outbox(other, elsewhere, "shop", worker=None) as put_only,
        ):
            began = asyncio.get_running_loop().time()
            assert "accepted" == (await put_only.pay(payout(1), timeout=60.0)).state
            assert (
                asyncio.get_running_loop().time() - began < 30.0
            )  # of a busy machine; the look without a word is later


async def test_changes_while_no_caller_waits_for_one(
    tmp_path: Path, statements: Counter[str], service: Sandbox
) -> None:
    """Those that this process makes are hardly read, however many orders are paid."""
    async with (
        SqliteJournal(tmp_path / "journal.db") as journal,
        session(service) as payments,
        Outbox(payments, journal, "shop") as outbox,
    ):
        await outbox.pay(payout(0))
        began = asyncio.get_running_loop().time()
        statements.clear()
        for number in range(1, 100):
            assert "accepted" == (await outbox.pay(payout(number))).state
        took = asyncio.get_running_loop().time() - began
    assert statements["SELECT state, max(id) FROM"] <= took + 3.0


async def test_a_handler_of_what_this_process_pays(
    tmp_path: Path, service: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told by the commit, and not only when it is time to look again."""
    monkeypatch.setattr("payments_async.outbox._listening._LISTEN", 3600.0)
    told: asyncio.Queue[str] = asyncio.Queue()
    async with (
        SqliteJournal(tmp_path / "journal.db") as journal,
        session(service) as payments,
        Outbox(payments, journal, "shop", policy=HandlerPolicy(poll=3600.0)) as outbox,
    ):

        @outbox.on(State.ACCEPTED)
        async def accepted(entry: Entry) -> None:
            told.put_nowait(entry.request_id)

        for number in range(3):
            await outbox.pay(payout(number))
            assert payout(number).request_id == await asyncio.wait_for(told.get(), 60.0)
