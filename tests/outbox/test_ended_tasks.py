"""Each task of an outbox ends before its time, by a mistake or a cancellation: it is noticed, and work goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bulk.worlds import payout, session
from journal import postgres
from outbox.desks import A_MINUTE, Desk, ids, until

from payments_async._values import tasks as _tasks
from payments_async.journal import Entry, PostgresJournal, SqliteJournal, State
from payments_async.outbox import HandlerPolicy, Outbox
from payments_async.sandbox import Sandbox

Task = asyncio.Task[Any]
STANDING = {
    "listener", "sender", "settler", "looking up", "look at what is due", "keeper of leases and of the pace",
    "keeper of turns", "claiming of chunks", "worker",
}  # fmt: skip


def cancelled(task: Task) -> None:
    """Something cancels it that does not own it."""
    task.cancel()


def broken(task: Task) -> None:
    """It raises what nobody foresaw."""
    coroutine = task.get_coro()
    assert coroutine is not None
    with suppress(ZeroDivisionError, StopIteration):  # the task raises as soon as it is woken
        coroutine.throw(ZeroDivisionError("a mistake of ours"))  # type: ignore[union-attr]
    task.cancel()


def running() -> dict[str, Task]:
    """The tasks of ours that run, one of each name."""
    found = {task.get_name(): task for task in asyncio.all_tasks() if not task.done()}
    return {name.removeprefix(_tasks.NAMED): task for name, task in found.items() if name.startswith(_tasks.NAMED)}


@pytest.fixture(params=["sqlite", "postgres"])
async def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Desk, set[str]]]:
    """An outbox that pays, settles and tells a handler; and the orders that the handler was told of."""
    monkeypatch.setattr(_tasks, "_AGAIN_INITIAL", 0.01)
    monkeypatch.setattr(_tasks, "_LASTED", 0.0)
    told: set[str] = set()
    dsn = postgres.dsn() if request.param == "postgres" else ""
    journal = PostgresJournal(dsn, schema=postgres.new_schema()) if dsn else SqliteJournal(tmp_path / "journal.db")
    async with Sandbox() as sandbox, journal, session(sandbox) as payments:
        outbox = Outbox(payments, journal, concurrency=2, policy=HandlerPolicy(poll=0.05))

        @outbox.on(State.ACCEPTED)
        async def accepted(entry: Entry) -> None:
            told.add(entry.request_id)

        async with outbox:
            yield Desk(sandbox, payments, journal, outbox), told
    postgres.give_back()


@pytest.mark.parametrize("end", [cancelled, broken])
async def test_each_task_ends_once(world: tuple[Desk, set[str]], end: Callable[[Task], None]) -> None:
    """Another takes its place. The next order is paid and its handler told, and the outbox is well."""
    here, told = world
    names = STANDING | ({"collector"} if here.journal.shares_transactions else set())
    await here.outbox.pay(payout(0), timeout=A_MINUTE)
    for number, name in enumerate(sorted(names), 1):
        await until(_names, names)
        ended = running()[name]
        end(ended)
        await asyncio.wait([ended], timeout=A_MINUTE)
        assert ended.done(), name
        await until(_names, names)
        assert "accepted" == (await here.outbox.pay(payout(number), timeout=A_MINUTE)).state, name
        await until(partial(_holds, told, payout(number).request_id), True)
    await until(partial(_is_well, here.outbox), True)
    assert ids(range(len(names) + 1)) == sorted(here.executions())


async def _names() -> set[str]:
    return {name for name in running() if name in STANDING or name == "collector"}


async def _holds(told: set[str], request_id: str) -> bool:
    return request_id in told


async def _is_well(outbox: Outbox) -> bool:
    return (await outbox.health()).is_well
