"""A run notes each order that leaves, before its first byte does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from bulk.worlds import BATCH, payouts, session

from payments_async.bulk import RunSettings, run_batch
from payments_async.journal import SqliteJournal
from payments_async.journal._machine import _departures
from payments_async.sandbox import Sandbox

HEADER, LEASE, MARKS = 4096, 1024, slice(64, 564)


def marks(state: Path) -> int:
    """How many orders any process has marked, as whoever comes after it would read."""
    count = 0
    for file in (state / "departures").iterdir():
        data = file.read_bytes()
        for place in range(HEADER, len(data), LEASE):
            count += sum(mark > 0 for mark in data[place : place + LEASE][MARKS])
    return count


async def test_the_mark_is_there_before_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: Sandbox
) -> None:
    """Read from another place at the moment in which the HTTP client is handed the body; headers come with it."""
    monkeypatch.setattr(_departures, "mount_of", lambda _: (Path("/"), "ext4"))
    state, seen = tmp_path / "state", list[int]()

    async def sent(_: object, __: object, chunk: Any) -> None:
        if b'"requestId"' in chunk.chunk:
            seen.append(marks(state))

    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(sent)
    async with (
        aiohttp.ClientSession(trace_configs=[trace]) as http,
        SqliteJournal(tmp_path / "journal.db", state_folder=state) as journal,
        session(service, http=http) as payments,
    ):
        await run_batch(payments, journal, BATCH, payouts(3), settings=RunSettings(concurrency=1))
    assert [1, 2, 3] == seen


async def test_a_process_that_stands_still_once_it_has_marked_an_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: Sandbox
) -> None:
    """The clock is asked last: the lease has run out meanwhile, so the order does not leave under that permit."""
    monkeypatch.setattr(_departures, "mount_of", lambda _: (Path("/"), "ext4"))
    state = tmp_path / "state"

    stood_still = False

    def clock() -> float:
        nonlocal stood_still
        stood_still = stood_still or ((state / "departures").is_dir() and marks(state) > 0)  # and never goes back
        return time.monotonic() + (3600.0 if stood_still else 0.0)

    async with (
        SqliteJournal(tmp_path / "journal.db", state_folder=state) as journal,
        session(service, clock=clock) as payments,
    ):
        await run_batch(payments, journal, BATCH, payouts(1), settings=RunSettings(concurrency=1))
        history = await journal.history(payouts(1)[0].request_id)
    permits = [step for step in history if step.what == "permit"]
    assert (2, 1) == (len(permits), len(service.ledger))
