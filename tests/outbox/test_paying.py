"""Paying from an application: each order once, whatever is asked for how often, and whatever fails meanwhile."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from bulk.worlds import payout, session
from outbox.desks import A_MINUTE, desk, ids, until
from yarl import URL

from payments_async import CollectionOrder, MobileMoneyWallet
from payments_async.bulk import Fuse
from payments_async.ipn import Receiver
from payments_async.journal import OrdersDiffer, Signal, SqliteJournal
from payments_async.journal.contract import Outcome, Permit
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Fault, Quirks, Sandbox, SandboxServer
from payments_async.testing import Testing, deliver, notification


async def test_an_order_is_paid(tmp_path: Path) -> None:
    """It is accepted, with the service's own id, and carried out once; later it is known how it ended."""
    async with desk(tmp_path) as here:
        entry = await here.outbox.pay(payout(0), timeout=A_MINUTE)
        (execution,) = here.sandbox.ledger
        assert ("accepted", execution.transaction_id, "outbox") == (
            entry.state,
            entry.transaction_id,
            entry.batch_id,
        )


class Safe(str):
    """Text as a template engine has it."""

    def __str__(self) -> str:
        return f"<b>{self}</b>"


async def test_texts_of_a_class_that_is_derived_from_text(tmp_path: Path) -> None:
    """What an enum or a template gives is sent as the text that it is."""
    told = attrs.evolve(payout(0), request_id=Safe("a-1"), batch_id=Safe("b"), message=Safe("hello"))
    async with desk(tmp_path) as here:
        for order in (told, attrs.evolve(told, request_id="a-1")):
            assert "accepted" == (await here.outbox.pay(order, timeout=A_MINUTE)).state
        (execution,) = here.sandbox.ledger
        assert ("a-1", "b", "hello") == (execution.request_id, execution.batch_id, execution.message)


async def test_what_certainty_costs(tmp_path: Path) -> None:
    """Two commits: one before the order leaves, with the right to send it, and one for how that ended."""
    async with desk(tmp_path, outbox={"settles": False}) as here:
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        before = _commits(tmp_path / "journal.db")
        await here.outbox.pay(payout(1), timeout=A_MINUTE)
        assert before + 2 == _commits(tmp_path / "journal.db")


def _commits(path: Path) -> int:
    """How many commits have moved an order."""
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("SELECT value FROM meta WHERE key = 'commits'").fetchone()[0])


async def test_support_finds_the_exchange_and_the_log_tells_the_life_of_a_payment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The entry has what the service calls the exchange. At INFO a line tells the answer, and one the end."""
    caplog.set_level(logging.INFO, "payments_async")
    async with (
        desk(tmp_path, quirks=Quirks(envelope_correlation_id=True)) as here,
        Receiver(here.journal, senders=["127.0.0.1"]) as receiver,
    ):
        with here.payments.exchanges() as exchanges:
            entry = await here.outbox.pay(payout(0), timeout=A_MINUTE)
        exchange = exchanges.of(entry.request_id)
        assert exchange is not None
        assert exchange.correlation_id == entry.correlation_id
        assert entry.correlation_id is not None
        assert entry == await here.outbox.entry(entry.request_id)
        about = {"request_id": entry.request_id, "amount": entry.amount, "transaction_id": entry.transaction_id or ""}
        await deliver(receiver, notification(**about))
        await here.outbox.settled(entry.request_id, timeout=A_MINUTE)
    said = {one.getMessage(): vars(one) for one in caplog.records if entry.request_id in one.getMessage()}
    answer, end = (
        f"order {entry.request_id} is accepted, by attempt 1",
        f"order {entry.request_id} is settled: successful",
    )
    assert [answer, end] == list(said)
    assert entry.correlation_id == said[answer]["correlation_id"]
    assert entry.transaction_id == said[answer]["transaction_id"] == said[end]["transaction_id"]


async def test_what_is_no_order(tmp_path: Path) -> None:
    """Is refused by its type, before anything is written down."""
    async with desk(tmp_path) as here:
        for give in (here.outbox.put, here.outbox.pay):
            with pytest.raises(TypeError, match="order: expected PayoutOrder or CollectionOrder, not str"):
                await give("withdrawal-17")  # type: ignore[arg-type]


async def test_the_same_order_many_times_at_once(tmp_path: Path) -> None:
    """In one process: one execution, and everybody is told the same."""
    async with desk(tmp_path) as here:
        here.sandbox.script(Fault.SLOW, on="money", seconds=0.2)
        entries = await asyncio.gather(*(here.outbox.pay(payout(0), timeout=A_MINUTE) for _ in range(50)))
        assert (50, {"accepted"}) == (len(entries), {entry.state for entry in entries})
        assert 1 == len({entry.transaction_id for entry in entries})
        assert ids(range(1)) == here.executions()


async def test_the_same_order_through_two_journals_of_one_file(tmp_path: Path) -> None:
    """As two processes have them: one execution, and both are told."""
    async with (
        desk(tmp_path) as here,
        SqliteJournal(tmp_path / "journal.db") as journal,
        session(here.sandbox) as payments,
        Outbox(payments, journal) as other,
    ):
        here.sandbox.script(Fault.SLOW, on="money", seconds=0.2)
        entries = await asyncio.gather(
            *(where.pay(payout(number), timeout=A_MINUTE) for number in range(10) for where in (here.outbox, other))
        )
        assert {"accepted"} == {entry.state for entry in entries}
        assert ids(range(10)) == sorted(here.executions())


async def test_another_order_under_the_same_id(tmp_path: Path) -> None:
    """Is refused, before and after the first was sent."""
    async with desk(tmp_path) as here:
        await here.outbox.put(payout(0))
        with pytest.raises(OrdersDiffer):
            await here.outbox.put(payout(0, amount=Decimal(7)))
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        with pytest.raises(OrdersDiffer):
            await here.outbox.pay(payout(0, amount=Decimal(7)), timeout=A_MINUTE)
        assert ids(range(1)) == here.executions()


async def test_an_order_that_the_service_refuses(tmp_path: Path) -> None:
    """Is rejected, with the service's words, also when it is asked for again."""
    async with desk(tmp_path) as here:
        here.sandbox.script(Fault.REFUSED, on="money", code=4711, message="the wallet is closed")
        for _ in range(2):
            entry = await here.outbox.pay(payout(0), timeout=A_MINUTE)
            assert ("rejected", 4711) == (entry.state, entry.code)
            assert entry.message is not None
            assert entry.message.endswith("the wallet is closed")
        assert not here.sandbox.ledger


async def test_an_order_whose_answer_is_lost(tmp_path: Path) -> None:
    """Is unknown, or known by now from the list; it is not sent again, however often it is paid."""
    async with desk(tmp_path) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="money")
        for _ in range(3):
            entry = await here.outbox.pay(payout(0), timeout=A_MINUTE)
            assert entry.state in ("unknown", "accepted", "successful")
        assert ids(range(1)) == here.executions()


@pytest.mark.parametrize("fault", [None, Fault.REFUSED, Fault.LOST_AFTER, Fault.TOKEN_REVOKED])
@pytest.mark.parametrize("timeout", [A_MINUTE, 4.0])
async def test_what_a_payment_tells(tmp_path: Path, fault: Fault | None, timeout: float) -> None:
    """The entry that the journal holds, word for word, though nobody has read it there."""
    async with desk(tmp_path, outbox={"settles": False}) as here:
        if fault is not None:
            here.sandbox.script(fault, on="money")
        paid = await here.outbox.pay(payout(0), timeout=timeout)
        assert await here.outbox.entry(payout(0).request_id) == paid


async def test_a_put_whose_caller_is_cancelled(tmp_path: Path) -> None:
    """Is sent all the same: whoever hangs up does not know whether it was written down."""
    async with desk(tmp_path) as here:
        for number in range(20):
            putting = asyncio.ensure_future(here.outbox.put(payout(number)))
            for _ in range(number):
                await asyncio.sleep(0)
            putting.cancel()
        await here.outbox.pay(payout(99), timeout=A_MINUTE)
        put = [number for number in range(20) if await here.outbox.entry(payout(number).request_id) is not None]
        assert put[-1:] == [19]
        await here.comes_to({"accepted": len(put) + 1})
        assert sorted([*(payout(number).request_id for number in put), payout(99).request_id]) == sorted(
            here.executions()
        )


async def test_a_payment_whose_caller_is_cancelled(tmp_path: Path) -> None:
    """Goes on, and the next caller hears of it."""
    async with desk(tmp_path) as here:
        here.sandbox.script(Fault.SLOW, on="money", seconds=0.3)
        paying = asyncio.ensure_future(here.outbox.pay(payout(0), timeout=A_MINUTE))
        await here.comes_to({"sending": 1})
        paying.cancel()
        assert "accepted" == (await here.outbox.pay(payout(0), timeout=A_MINUTE)).state
        assert ids(range(1)) == here.executions()


async def test_a_payment_that_takes_longer_than_its_caller_waits(tmp_path: Path) -> None:
    """Gives the entry as it stands, and goes on."""
    async with desk(tmp_path) as here:
        await here.outbox.pause("Ann", "lunch")
        assert "planned" == (await here.outbox.pay(payout(0), timeout=0.01)).state
        await here.outbox.resume("Ann", "back")
        assert "accepted" == (await here.outbox.pay(payout(0), timeout=A_MINUTE)).state


async def test_orders_put_while_it_is_paused(tmp_path: Path) -> None:
    """Are taken and wait, those of a process that only puts and those of a batch as well, until somebody resumes it."""
    async with (
        desk(tmp_path) as here,
        SqliteJournal(tmp_path / "journal.db") as journal,
        session(here.sandbox) as payments,
        Outbox(payments, journal, worker=WorkerSettings(sends=False)) as counter,
    ):
        await here.outbox.pause("Ann", "lunch")
        await here.outbox.pause("Ben", "the second reason")
        for number in range(5):
            await here.outbox.put(payout(number))
            await counter.put(payout(10 + number))
        await counter.put_batch("bonus", [payout(number) for number in range(20, 25)])
        health = await counter.health()
        paused = health.problems[0]
        assert (False, "paused", ("Ann",)) == (health.is_well, paused.code, paused.subjects)
        assert paused.what.endswith(" UTC: lunch")
        assert {"planned": 15} == await here.states()
        assert await counter.resume("Ben", "back")
        assert not await counter.resume("Ben", "back")
        await here.comes_to({"accepted": 15})
        assert (True, ()) == ((await here.outbox.health()).is_well, (await here.outbox.health()).problems)


@pytest.mark.slow
async def test_orders_put_while_the_service_is_down(tmp_path: Path) -> None:
    """Are taken, though not even its list can be read, and sent once it is up; each once, however often it was put."""
    async with Sandbox() as gone:
        port = URL(gone.base_url).port
        assert port is not None
        payments = session(gone)
    async with (
        SqliteJournal(tmp_path / "journal.db") as journal,
        payments,
        Outbox(payments, journal) as outbox,
    ):
        for _ in range(2):
            for number in range(5):
                await outbox.put(payout(number))
        await until(lambda: _is_well(outbox), False)
        async with Sandbox(server=SandboxServer(port=port)) as service:
            entries = await asyncio.gather(*(outbox.pay(payout(number), timeout=A_MINUTE) for number in range(5)))
            assert {"accepted"} == {entry.state for entry in entries}
            assert ids(range(5)) == await _sorted(service)
            await until(lambda: _is_well(outbox), True)


async def test_a_service_that_goes_down_in_the_middle(tmp_path: Path) -> None:
    """What it asks to come again for waits, and goes later."""
    async with desk(tmp_path) as here:
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        here.sandbox.script(Fault.RATE_LIMITED, on="money", times=30, seconds=0.05)
        await asyncio.gather(*(here.outbox.put(payout(number)) for number in range(1, 20)))
        await here.comes_to({"accepted": 20})
        assert ids(range(20)) == sorted(here.executions())


async def test_orders_put_while_the_credentials_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, service: Sandbox
) -> None:
    """Are taken; it is said aloud, and when the service takes them again everything goes on by itself."""
    service.script(Fault.REFUSED, on="login", times=2, code=401, message="no such key")
    async with (
        SqliteJournal(tmp_path / "journal.db") as journal,
        session(service) as payments,
        Outbox(payments, journal) as outbox,
    ):
        assert "accepted" == (await outbox.pay(payout(0), timeout=A_MINUTE)).state
        assert (await outbox.health()).is_well
    assert [payout(0).request_id] == [execution.request_id for execution in service.ledger]
    assert "the credentials were refused" in caplog.text


@pytest.mark.slow(covered=True)
async def test_credentials_that_are_refused_in_the_middle(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A token that is revoked, and then no new one for a while: nothing is lost, nothing is sent twice."""
    async with desk(tmp_path) as here:
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        here.sandbox.script(Fault.TOKEN_REVOKED, on="money")
        here.sandbox.script(Fault.REFUSED, on="login", times=2, code=401, message="no such key")
        await asyncio.gather(*(here.outbox.put(payout(number)) for number in range(1, 10)))
        await here.comes_to({"accepted": 10})
        assert ids(range(10)) == sorted(here.executions())
        await until(lambda: _is_well(here.outbox), True)


async def _is_well(outbox: Outbox) -> bool:
    return (await outbox.health()).is_well


async def test_collections(tmp_path: Path) -> None:
    """Are put and sent as payouts are."""
    async with desk(tmp_path) as here:
        wanted = CollectionOrder(
            request_id="collect-1",
            amount=Decimal(5000),
            payer=MobileMoneyWallet("+256772000017"),
            provider_item_id="MTNMOBILEMONEYUG_MTNMOBILEMONEYUG",
            beneficiary=payout(0).beneficiary,
        )
        entries = [await here.outbox.pay(wanted, timeout=A_MINUTE) for _ in range(2)]
        assert [wanted, wanted] == [entry.order for entry in entries]
        assert ["collect-1"] == here.executions()


@pytest.mark.parametrize("timeout", [None, "10", timedelta(seconds=10), True, float("nan")])
async def test_a_wait_that_is_no_number_of_seconds(tmp_path: Path, timeout: object) -> None:
    """Is refused before the order is taken: who hears of a wrong type may give the money back."""
    async with desk(tmp_path) as here:
        with pytest.raises((TypeError, ValueError), match=r"^timeout: "):
            await here.outbox.pay(payout(0), timeout=timeout)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError), match=r"^timeout: "):
            await here.outbox.settled(payout(0).request_id, timeout=timeout)  # type: ignore[arg-type]
        assert None is await here.outbox.entry(payout(0).request_id)


async def test_an_order_that_does_not_end_in_time(tmp_path: Path) -> None:
    """Who waits hears which it is and where it stands."""
    async with desk(tmp_path, processing_delay=3600.0) as here:
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        with pytest.raises(TimeoutError, match=f"order {payout(0).request_id} has not ended yet: it is accepted"):
            await here.outbox.settled(payout(0).request_id, timeout=0.01)


@pytest.mark.parametrize("moment", [1_800_000_000.0, timedelta(hours=1), "2026-11-23"])
async def test_what_is_no_moment(tmp_path: Path, moment: object) -> None:
    """Is refused by its type, and the order is not taken."""
    async with desk(tmp_path) as here:
        with pytest.raises(TypeError, match=r"^not_before: expected a datetime"):
            await here.outbox.put(payout(0), not_before=moment)  # type: ignore[arg-type]
        assert None is await here.outbox.entry(payout(0).request_id)


async def test_a_request_id_that_is_a_number(tmp_path: Path) -> None:
    """Is refused by name, as an order with such an id is."""
    async with desk(tmp_path) as here:
        with pytest.raises(TypeError, match=r"^request_id: expected text, not int"):
            await here.outbox.settled(17, timeout=1.0)  # type: ignore[arg-type]


async def test_an_order_that_is_not_to_go_before_a_moment(tmp_path: Path, service: Sandbox) -> None:
    """Waits for it; others go on, and it is not sent by the clock of another zone."""
    now = [datetime(2026, 11, 22, tzinfo=UTC)]

    def clock() -> float:
        return now[0].timestamp()

    async with (
        SqliteJournal(tmp_path / "journal.db", testing=Testing(now=clock)) as journal,
        session(service) as payments,
        Outbox(payments, journal, testing=Testing(now=clock)) as outbox,
    ):
        with pytest.raises(ValueError, match="time zone"):
            await outbox.put(payout(0), not_before=datetime(2026, 11, 23))  # noqa: DTZ001
        await outbox.put(payout(1), not_before=now[0] + timedelta(hours=2))
        await outbox.put(payout(2), not_before=now[0] + timedelta(hours=1))
        await outbox.put(payout(3), not_before=now[0] - timedelta(hours=1))
        await outbox.pay(payout(4), timeout=A_MINUTE)
        executed = lambda: _sorted(service)  # noqa: E731
        await until(executed, [payout(3).request_id, payout(4).request_id])
        now[0] += timedelta(hours=1)
        await until(executed, [payout(number).request_id for number in (2, 3, 4)])
        assert "planned" == (await outbox.pay(payout(1), timeout=0.0)).state
        now[0] += timedelta(hours=1)
        await until(executed, [payout(number).request_id for number in (1, 2, 3, 4)])


async def _sorted(sandbox: Sandbox) -> list[str]:
    return sorted(execution.request_id for execution in sandbox.ledger)


async def test_urgent_orders_first(tmp_path: Path) -> None:
    """Among those that wait in one process; those of the same urgency in the sequence they were put in."""
    async with desk(tmp_path, outbox={"concurrency": 1}) as here:
        here.sandbox.script(Fault.SLOW, on="money", seconds=0.5)
        await here.outbox.put(payout(99))
        await here.comes_to({"sending": 1})
        for number in range(6):
            await here.outbox.put(payout(number), priority=number % 3)
        await here.comes_to({"accepted": 7})
        assert [payout(number).request_id for number in (99, 2, 5, 1, 4, 0, 3)] == here.executions()


@pytest.mark.slow
async def test_single_orders_beside_a_batch(tmp_path: Path) -> None:
    """However large it is: of its chunk of 500 few go between a put and its sending, whoever put it."""
    size = 2000
    async with (
        desk(tmp_path, outbox={"concurrency": 5}) as here,
        SqliteJournal(tmp_path / "journal.db") as journal,
        session(here.sandbox) as payments,
        Outbox(payments, journal, worker=WorkerSettings(sends=False)) as counter,
    ):
        here.sandbox.chaos({Fault.SLOW: 1.0}, seconds=0.005)
        await here.outbox.put_batch("bonus", [payout(number) for number in range(size)])
        waited = []
        for number in range(size, size + 12):
            await until(partial(_has_sent, here.sandbox, len(here.sandbox.ledger) + 10), True)
            before = len(here.sandbox.ledger)
            await (counter if number % 2 else here.outbox).pay(payout(number), timeout=A_MINUTE)
            waited.append(here.executions().index(payout(number).request_id) - before)
        assert len(here.sandbox.ledger) < size, "the batch was through before the last single order"
        assert max(waited) <= 100, waited
        assert [] == here.sandbox.duplicates()


async def _has_sent(sandbox: Sandbox, count: int) -> bool:
    return len(sandbox.ledger) >= count


@pytest.mark.slow
async def test_more_orders_at_once_than_a_chunk_holds(tmp_path: Path) -> None:
    """501 puts in one commit, and as many more one by one: all are sent, once."""
    async with desk(tmp_path) as here:
        await asyncio.gather(*(here.outbox.put(payout(number)) for number in range(501)))
        await asyncio.gather(*(here.outbox.pay(payout(number), timeout=A_MINUTE) for number in range(501, 1002)))
        await here.comes_to({"accepted": 1002})
        assert ids(range(1002)) == sorted(here.executions())


# The fuse


@pytest.mark.parametrize(
    ("fuse", "fault", "words"),
    [
        (Fuse(max_error_rate=0.1), Fault.REFUSED, "were rejected or are unknown"),
        (Fuse(max_unknown=3), Fault.LOST_AFTER, "orders are unknown, 3 may be"),
        (Fuse(max_per_day=Decimal(22_000)), None, "would bring the total to"),
        (Fuse(min_balance=Decimal(980_000)), None, "would leave a balance of"),
    ],
)
async def test_a_rule_of_the_fuse(tmp_path: Path, fuse: Fuse, fault: Fault | None, words: str, caplog: Any) -> None:
    """Pauses it, for every process, aloud; orders are put all the same, and go when a person resumes it."""
    caplog.set_level(logging.ERROR)
    outbox = {"concurrency": 2, "fuse": fuse, "settles": False}
    async with desk(tmp_path, outbox=outbox, balance=Decimal(1_000_000)) as here:
        if fault is not None:
            here.sandbox.script(fault, on="money", times=None)
        for number in range(60):
            await here.outbox.put(payout(number))
        await until(lambda: _pauser(here.outbox), "fuse")
        health = await here.outbox.health()
        assert words in health.problems[0].what
        assert words in caplog.text
        sent = 60 - (await here.states()).get("planned", 0)
        assert 0 < sent < 60
        await here.outbox.put(payout(60))
        async with (
            SqliteJournal(tmp_path / "journal.db") as journal,
            session(here.sandbox) as payments,
            Outbox(payments, journal) as other,
        ):
            await other.put(payout(61))
            assert "planned" == (await other.pay(payout(62), timeout=0.01)).state
            assert not (await other.health()).is_well
        assert sent + (await here.states())["planned"] == 63
        here.sandbox.script(Fault.SLOW, on="money", seconds=0.0)
        if fuse.max_per_day is not None:
            assert await here.outbox.resume("Ann", "another day's money is there")
            await until(lambda: _has_sent(here.sandbox, sent + 1), True)
        if fuse.max_error_rate is not None:
            assert await here.outbox.resume("Ann", "the wallets are open")
            await until(lambda: _fewer_planned(here, 63 - sent), True)
        assert [] == here.sandbox.duplicates()


async def _pauser(outbox: Outbox) -> str | None:
    paused = (await outbox.health()).problem("paused")
    return None if paused is None else paused.subjects[0]


async def _fewer_planned(here: Any, count: int) -> bool:
    return (await here.states()).get("planned", 0) < count


async def test_an_outbox_that_was_renamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its orders wait in the one of before: whoever begins another beside it is told."""
    async with desk(tmp_path, outbox={"settles": False}) as here:
        await here.outbox.pause("Ann", "lunch")
        await here.outbox.put(payout(0))
        async with Outbox(here.payments, here.journal, "withdrawals", worker=WorkerSettings(settles=False)):
            assert "the journal has outbox outbox with 1 waiting orders" in caplog.text


async def test_an_order_that_ends_and_leaves_for_an_archive_while_it_is_waited_for(tmp_path: Path) -> None:
    """Whoever waits is told how it ended, and hears of no unknown order."""
    async with desk(tmp_path, outbox={"worker": None}) as here:
        journal = here.journal
        await journal.open_run("file", (await journal.run("outbox")).identity)
        await journal.load("file", [payout(0)], owner="loader")
        waiting = asyncio.ensure_future(here.outbox.pay(payout(0), timeout=A_MINUTE))
        await asyncio.sleep(0)
        chunk = await journal.claim_chunk("file", "worker")
        assert chunk is not None
        permit = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        await journal.record(Outcome(permit=permit, signal=Signal.REJECTED))
        await journal.release_chunk(chunk)
        number = await journal.begin_archive("old", who="Ann", why="it is old")
        async for page in journal.old_orders(older_than=1e-9):
            await journal.prune_orders(number, page)
        assert (None, "rejected") == (await journal.entry(payout(0).request_id), (await waiting).state)
