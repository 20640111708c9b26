"""An outbox comes to its end: in whatever order things are closed, what is under way is finished, and the rest kept."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
from bulk.worlds import payout, session
from outbox.desks import A_MINUTE, Desk, desk, ids, until

from payments_async import PaymentsSession
from payments_async.journal import JournalClosed, SqliteJournal, State
from payments_async.journal.contract import Pause
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, Sandbox

COUNT = 30


@attrs.define
class Parts:
    """What is closed."""

    sandbox: Sandbox
    journal: SqliteJournal
    payments: PaymentsSession
    outbox: Outbox
    folder: Path

    async def states(self) -> dict[str, int]:
        """How many orders are in which state, by a journal of its own."""
        async with SqliteJournal(self.folder / "journal.db") as journal:
            progress = await journal.progress()
            return {state: count for state, count in progress.counts.items() if count}


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    """An outbox at work on slow orders, with more of them waiting."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox())
        journal = await stack.enter_async_context(SqliteJournal(tmp_path / "journal.db"))
        payments = await stack.enter_async_context(session(sandbox))
        outbox = await stack.enter_async_context(Outbox(payments, journal, concurrency=5))
        await outbox.pay(payout(99), timeout=A_MINUTE)
        sandbox.chaos({Fault.SLOW: 1.0}, seconds=0.3)
        await outbox.pause("Ann", "until all of them are there")  # else a busy machine would have sent the first ones
        for number in range(COUNT):
            await outbox.put(payout(number))
        await outbox.resume("Ann", "they are")
        here = Parts(sandbox, journal, payments, outbox, tmp_path)
        await until(lambda: _is_busy(journal), True)
        yield here


async def _is_busy(journal: SqliteJournal) -> bool:
    return (await journal.progress()).counts[State.SENDING] == 5


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize(
    ("order", "at_once"),
    [
        (("outbox", "outbox", "journal", "payments", "outbox"), False),
        (("journal", "payments", "outbox"), False),
        (("payments", "outbox", "journal"), False),
        (("payments", "journal", "outbox"), True),
    ],
)
async def test_everything_is_closed_in_any_order(parts: Parts, order: tuple[str, ...], at_once: bool) -> None:
    """One after the other, or all at once: what is under way is finished and written down, the rest is planned."""
    closing = [getattr(parts, name).aclose for name in order]
    async with asyncio.timeout(A_MINUTE):
        if at_once:
            await asyncio.gather(*(close() for close in closing))
        else:
            for close in closing:
                await close()
    states = await parts.states()
    assert {"planned", "accepted"} == set(states)
    assert len(parts.sandbox.ledger) == states["accepted"]
    async with SqliteJournal(parts.folder / "journal.db") as journal, session(parts.sandbox) as payments:
        chunks = await journal.chunks("outbox")
        assert 0 == chunks.leased, "a chunk was not given back"
        async with Outbox(payments, journal) as outbox:
            await asyncio.gather(*(outbox.pay(payout(number), timeout=A_MINUTE) for number in range(COUNT)))
    assert [] == parts.sandbox.duplicates()
    assert COUNT + 1 == len(parts.sandbox.ledger)


async def test_a_close_that_is_cancelled(parts: Parts) -> None:
    """Breaks off what is under way: it is unknown, and nothing of it is sent again."""
    closing = asyncio.ensure_future(parts.outbox.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await parts.journal.aclose()
    states = await parts.states()
    assert COUNT + 1 == sum(states.values())
    assert "sending" not in states
    assert states["unknown"] > 0
    async with SqliteJournal(parts.folder / "journal.db") as journal, session(parts.sandbox) as payments:
        async with Outbox(payments, journal) as outbox:
            for number in range(COUNT):
                await outbox.pay(payout(number), timeout=A_MINUTE)
        assert [] == parts.sandbox.duplicates()


async def test_puts_while_it_is_closed(parts: Parts) -> None:
    """Those that were begun are on disk, in nobody's hands, and the next one sends them; later ones are refused."""
    putting = [asyncio.ensure_future(parts.outbox.put(payout(100 + number))) for number in range(600)]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(parts.outbox.aclose())
    entries = await asyncio.gather(*putting)
    with pytest.raises(RuntimeError, match="not open"):
        await parts.outbox.put(payout(1))
    with pytest.raises(RuntimeError, match="not open"):
        await parts.outbox.pay(payout(1))
    await closing
    assert 600 == len(entries)
    assert COUNT + 601 == (await parts.journal.progress()).total
    assert 0 == (await parts.journal.chunks("outbox")).leased, "a chunk was not given back"


async def test_who_waits_while_it_is_closed(parts: Parts) -> None:
    """Hears so: a payment is told how its order stands, and who waits for its end that it is not known."""
    await parts.outbox.pause("Ann", "lunch")
    paying = asyncio.ensure_future(parts.outbox.pay(payout(200), timeout=A_MINUTE))
    waiting = asyncio.ensure_future(parts.outbox.settled(payout(29).request_id, timeout=A_MINUTE))
    await until(lambda: _is_there(parts.journal, 200), True)
    await parts.outbox.aclose()
    assert "planned" == (await asyncio.wait_for(paying, A_MINUTE)).state
    with pytest.raises(JournalClosed):
        await asyncio.wait_for(waiting, A_MINUTE)


async def _is_there(journal: SqliteJournal, number: int) -> bool:
    return await journal.entry(payout(number).request_id) is not None


async def test_a_pause_while_it_is_closed(parts: Parts) -> None:
    """Holds, also for whoever opens it next."""
    await asyncio.gather(parts.outbox.aclose(), parts.outbox.pause("Ann", "stop everything"))
    async with Outbox(parts.payments, parts.journal) as outbox:
        assert "planned" == (await outbox.pay(payout(300), timeout=0.01)).state
        assert await outbox.resume("Ann", "go on")
        assert "accepted" == (await outbox.pay(payout(300), timeout=A_MINUTE)).state


async def test_an_outbox_that_is_opened_again(tmp_path: Path) -> None:
    """Works as before, also in a journal that was closed and opened again meanwhile."""
    async with desk(tmp_path) as here:
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        with pytest.raises(RuntimeError, match="is open"):
            await here.outbox.start()
        await here.outbox.aclose()
        await here.outbox.aclose()
        await here.outbox.start()
        await here.outbox.pay(payout(1), timeout=A_MINUTE)
        await here.journal.aclose()
        await here.journal.__aenter__()
        async with here.outbox:
            await here.outbox.pay(payout(2), timeout=A_MINUTE)
        assert ids(range(3)) == here.executions()


async def test_an_outbox_that_is_open_twice(tmp_path: Path) -> None:
    """In one process, on one journal: as two processes, each order is sent by one of them."""
    async with desk(tmp_path) as here, Outbox(here.payments, here.journal) as other:
        await asyncio.gather(
            *(where.pay(payout(number), timeout=A_MINUTE) for number in range(50) for where in (here.outbox, other))
        )
        await other.aclose()
        await here.outbox.pay(payout(50), timeout=A_MINUTE)
        assert ids(range(51)) == sorted(here.executions())


async def test_two_outboxes_on_one_journal(tmp_path: Path) -> None:
    """An order belongs to the one it was put into first, each has its own pause, and closing one leaves the other."""
    async with desk(tmp_path) as here, Outbox(here.payments, here.journal, "refunds") as refunds:
        await here.outbox.pause("Ann", "lunch")
        assert "planned" == (await here.outbox.put(payout(0))).state
        assert "refunds" == (await refunds.pay(payout(1), timeout=A_MINUTE)).batch_id
        assert ("outbox", "planned") == attrs.astuple(
            await refunds.pay(payout(0), timeout=0.01), recurse=False, filter=attrs.filters.include("batch_id", "state")
        )
        await refunds.aclose()
        await here.outbox.resume("Ann", "back")
        assert "accepted" == (await here.outbox.pay(payout(0), timeout=A_MINUTE)).state
        assert sorted(ids(range(2))) == sorted(here.executions())


async def test_a_start_that_fails(tmp_path: Path, service: Sandbox) -> None:
    """Leaves nothing behind: the journal and the session close as if it had never been, and it may be tried again."""
    async with session(service) as payments:
        journal = SqliteJournal(tmp_path / "journal.db")
        outbox = Outbox(payments, journal)
        with pytest.raises(JournalClosed):
            await outbox.start()
        with pytest.raises(RuntimeError, match="not open"):
            await outbox.put(payout(0))
        await outbox.aclose()
        async with journal, outbox:
            assert "accepted" == (await outbox.pay(payout(0), timeout=A_MINUTE)).state


async def test_another_event_loop_of_the_process(tmp_path: Path) -> None:
    """Can neither close the outbox, or its session, nor wait with it; it hears so at once, and the work goes on."""

    async def tried(here: Desk) -> list[str]:
        said = []
        waits = lambda: here.outbox.settled(payout(0).request_id, timeout=A_MINUTE)  # noqa: E731
        async with asyncio.timeout(A_MINUTE / 2):
            for call in (here.outbox.aclose, here.payments.aclose, waits):
                with pytest.raises(RuntimeError, match="belongs to another event loop") as refused:
                    await call()
                said.append(str(refused.value).split(";")[0])
        return said

    async with desk(tmp_path) as here:
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        what = ("outbox", "session", "outbox")
        assert [f"this {one} belongs to another event loop" for one in what] == await asyncio.to_thread(
            asyncio.run, tried(here)
        )
        assert "accepted" == (await here.outbox.pay(payout(1), timeout=A_MINUTE)).state


async def test_a_process_that_was_forked_off(tmp_path: Path) -> None:
    """Cannot use its parent's outbox, and disturbs nothing by trying or by dying; it may open one of its own."""
    async with desk(tmp_path) as here:
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        told, tells = multiprocessing.Pipe(duplex=False)
        pid = os.fork()
        if not pid:
            code = 1
            try:
                tells.send(_in_a_child(here))
                code = 0
            finally:
                os._exit(code)
        said = await asyncio.to_thread(told.recv)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert (0, "JournalClosed") == (os.waitstatus_to_exitcode(status), said)
        await here.outbox.pay(payout(1), timeout=A_MINUTE)
        assert {"accepted": 2} == await here.states()
        assert ids(range(2)) == here.executions()


def _in_a_child(here: Any) -> str:
    """What becomes of a put in a process that was forked off."""

    async def put() -> str:
        try:
            await here.outbox.put(payout(7))
        except Exception as error:  # noqa: BLE001 - its name is what is asked for
            return type(error).__name__
        return "taken"

    asyncio._set_running_loop(None)  # the parent's, of which only this thread is here
    return asyncio.new_event_loop().run_until_complete(put())


async def test_an_outbox_that_is_paused_while_it_begins_to_work(journal: SqliteJournal, service: Sandbox) -> None:
    """Whoever was told that it is paused may rely on that, though its crew has just been told that it was not."""
    async with session(service) as payments:
        outbox, ask = Outbox(payments, journal), journal.paused

        async def paused(name: str) -> Pause | None:
            journal.paused = ask  # type: ignore[method-assign]
            before = await ask(name)
            await outbox.pause("Ann", "lunch")
            return before

        journal.paused = paused  # type: ignore[method-assign]
        async with outbox:
            entry = await outbox.pay(payout(0), timeout=2)
            assert ("planned", []) == (entry.state, list(service.ledger))
