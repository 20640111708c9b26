"""An order within the application's own transaction, and a handler within one: both or nothing, whatever happens."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pytest
import sqlalchemy
from bulk.worlds import payout, session
from journal import postgres
from journal.factories import in_outbox, permitted
from nested import for_journal, for_outbox
from outbox.banks import BALANCE, LIBRARIES, WORTH, Bank, ByPsycopg, BySqlalchemy, bank
from outbox.desks import A_MINUTE, Desk, ids, until
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from payments_async import InvalidOrder, OutcomeUnknown, PayoutOrder
from payments_async.journal import (
    Entry,
    HeldElsewhere,
    JournalReadOnly,
    JournalRefused,
    NotAJournal,
    OrdersDiffer,
    OrderUnknown,
    PostgresJournal,
    Signal,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
)
from payments_async.journal.contract import Outcome
from payments_async.outbox import HandlerPolicy, Outbox, WorkerSettings
from payments_async.sandbox import Fault, Sandbox


@pytest.fixture(params=LIBRARIES)
def shop(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """An application, by each library."""
    with bank(request.param) as shop:
        yield shop


_TWO = TakeoverAuthorisation(who="Ann", why="a file beside the database")


@pytest.fixture
def till() -> Iterator[Bank]:
    """An application, by whichever library."""
    with bank("asyncpg") as shop:
        yield shop


def journal_of(shop: Bank, **options: Any) -> PostgresJournal:
    """The journal beside it."""
    return PostgresJournal(shop.dsn, schema=shop.journal, **for_journal(options))


@asynccontextmanager
async def desk(shop: Bank, service: Sandbox, **options: Any) -> AsyncIterator[Desk]:
    """A session, the journal and an outbox."""
    async with (
        journal_of(shop) as journal,
        session(service) as payments,
        Outbox(payments, journal, **for_outbox(options)) as outbox,
    ):
        yield Desk(service, payments, journal, outbox)


async def test_the_trace_context_of_a_transaction(shop: Bank, service: Sandbox) -> None:
    """It is kept with the order, from the staging on, by each library."""
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    async with desk(shop, service) as here:
        async with shop.begin() as connection:
            await here.journal.lay("outbox", payout(0), connection, traceparent=trace)
        await here.comes_to({"accepted": 1})
        entry = await here.outbox.entry(payout(0).request_id)
    assert entry is not None
    assert trace == entry.traceparent


async def test_an_order_of_a_committed_transaction_is_paid_once(shop: Bank, service: Sandbox) -> None:
    """It is planned when the transaction goes on, and sent when that is committed, with the debit."""
    async with desk(shop, service) as here:
        async with shop.begin() as connection:
            await shop.debit(connection, payout(0).request_id)
            entry = await here.outbox.put(payout(0), connection=connection)
            again = await here.outbox.put(payout(0), connection=connection)
            assert (State.PLANNED, "outbox", entry) == (entry.state, entry.batch_id, again)
            assert (BALANCE, None) == (shop.balance, await here.outbox.entry(entry.request_id))
        await here.comes_to({"accepted": 1})
        assert (ids(range(1)), BALANCE - WORTH) == (here.executions(), shop.balance)


@pytest.mark.slow(covered=True)
async def test_many_orders_of_one_transaction(shop: Bank, service: Sandbox) -> None:
    """Each is planned, and paid once; those that were put before tell how they stand."""
    many = 1100 if type(shop) is ByPsycopg else 20  # more than one statement takes, once
    async with desk(shop, service) as here:
        with suppress(ZeroDivisionError):
            async with shop.begin() as connection:
                await here.outbox.put_all(map(payout, range(1500, 1503)), connection=connection)
                raise ZeroDivisionError
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        async with shop.begin() as connection:
            assert [] == await here.outbox.put_all([], connection=connection)
            fresh = await here.outbox.put_all(map(payout, range(1, many)), connection=connection)
            assert {State.PLANNED} == {entry.state for entry in fresh}
            assert [payout(number).request_id for number in range(1, many)] == [entry.request_id for entry in fresh]
            mixed = await here.outbox.put_all(map(payout, (many, 0, 1, many)), connection=connection, priority=1)
        planned = State.PLANNED
        assert [planned, State.ACCEPTED, planned, planned] == [entry.state for entry in mixed]
        await here.comes_to({"accepted": many + 1})
        assert ids(range(many + 1)) == sorted(here.executions())


async def test_two_transactions_with_the_same_orders(till: Bank, service: Sandbox) -> None:
    """One waits for the other, in whichever sequence each puts them: neither is ended as a deadlock."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'"

    async def put_backwards() -> list[str]:
        async with till.begin() as connection:
            entries = await here.outbox.put_all(map(payout, (1, 0)), connection=connection)
            return [entry.request_id for entry in entries]

    async def waiting() -> list[int]:
        return till.look(waits)

    async with desk(till, service, sends=False) as here:
        async with till.begin() as connection:
            await here.outbox.put_all([payout(0)], connection=connection)
            other = asyncio.create_task(put_backwards())
            await until(waiting, [1])
            await here.outbox.put_all(map(payout, (0, 1)), connection=connection)
        assert ids(range(2))[::-1] == await other
    assert [2] == till.look("SELECT count(*) FROM tray")


async def test_one_of_many_orders_is_another_one(till: Bank, service: Sandbox) -> None:
    """Its transaction is undone, and none of them is there; a journal that is a file has no such transaction."""
    async with desk(till, service, sends=False) as here:
        await here.outbox.put(payout(1, amount=Decimal(7)))
        with pytest.raises(OrdersDiffer, match="amounts"):
            async with till.begin() as connection:
                await here.outbox.put_all(map(payout, range(3)), connection=connection)
        assert [0] == till.look("SELECT count(*) FROM tray")
        async with SqliteJournal.temporary() as file, Outbox(here.payments, file, worker=None) as outbox:
            with pytest.raises(ValueError, match="use a PostgresJournal"):
                await outbox.put_all([payout(0)], connection=connection)


@pytest.mark.parametrize("fault", [None, Fault.LOST_AFTER])
async def test_an_order_that_the_session_has_sent_by_itself(till: Bank, service: Sandbox, fault: Fault | None) -> None:
    """It is not a part of a transaction: another process would take it from the tray, and send it once more."""
    async with desk(till, service, sends=False) as here:
        if fault is not None:
            service.script(fault, on="money")
        with suppress(OutcomeUnknown):
            await here.payments.payouts.send(payout(0))
        with pytest.raises(InvalidOrder, match="without connection="):
            async with till.begin() as connection:
                await here.outbox.put(payout(0), connection=connection)
        assert (await here.outbox.put(payout(0))).attempt == 1
        async with till.begin() as connection:
            assert (await here.outbox.put(payout(0), connection=connection)).attempt == 1


async def test_an_order_of_a_transaction_that_was_rolled_back_never_was(shop: Bank, service: Sandbox) -> None:
    """Neither the debit nor the order is there."""
    async with desk(shop, service) as here:
        with suppress(ZeroDivisionError):
            async with shop.begin() as connection:
                await shop.debit(connection, payout(0).request_id)
                await here.outbox.put(payout(0), connection=connection)
                raise ZeroDivisionError
        await here.outbox.pay(payout(1), timeout=A_MINUTE)
        entry = await here.outbox.entry(payout(0).request_id)
        assert (BALANCE, None, ids(range(1, 2))) == (shop.balance, entry, here.executions())


async def test_an_order_that_is_cancelled_before_it_is_taken(till: Bank, service: Sandbox) -> None:
    """It leaves the tray and has ended, also for a transaction that puts it once more."""
    async with desk(till, service, sends=False) as here:
        async with till.begin() as connection:
            await here.outbox.put(payout(0), connection=connection)
        entry = await here.outbox.cancel(payout(0).request_id, who="shop", why="the customer has left")
        assert (State.CANCELLED, [0]) == (entry.state, till.look("SELECT count(*) FROM tray"))
        async with till.begin() as connection:
            assert State.CANCELLED is (await here.outbox.put(payout(0), connection=connection)).state
        assert [] == here.executions()


async def test_a_connection_without_a_transaction_is_refused(shop: Bank, service: Sandbox) -> None:
    """What belongs together would not be committed together."""
    async with desk(shop, service) as here, shop.committing() as connection:
        with pytest.raises(ValueError, match="no transaction is open on it"):
            await here.outbox.put(payout(0), connection=connection)
        assert ([0], None) == (
            shop.look("SELECT count(*) FROM tray"),
            await here.outbox.entry(payout(0).request_id),
        )


@pytest.mark.parametrize("library", sorted({*LIBRARIES} - {"sqlalchemy-psycopg"}))  # which cannot read its version
async def test_a_database_without_an_encoding(library: str) -> None:
    """Takes an order, finds another one under its id, and remembers who was told, by each library."""
    dsn = postgres.new_database("SQL_ASCII")
    shop = LIBRARIES[library](dsn, "payments")
    async with PostgresJournal(dsn, state_folder=None) as journal:
        chunk = await in_outbox(journal, 1)
        await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED))
        async with shop.begin() as connection:
            entry = await journal.lay("shop", payout(0), connection)
            assert (State.PLANNED, entry) == (entry.state, await journal.lay("shop", payout(0), connection))
            with pytest.raises(OrdersDiffer, match="amounts"):
                await journal.lay("shop", payout(0, amount=Decimal(7)), connection)
            change = await journal.last_change()
            assert [True, False] == [await journal.mark_told(connection, change, "credit") for _ in range(2)]


async def test_another_order_under_the_same_id_is_refused_before_anything_is_sent(shop: Bank, service: Sandbox) -> None:
    """Whether the first lies in the tray, was taken, or was put without a connection; the same one is its entry."""
    other = payout(0, amount=Decimal(7))
    async with desk(shop, service, sends=False) as here:
        async with shop.begin() as connection:
            await here.outbox.put(payout(0), connection=connection)
            with pytest.raises(OrdersDiffer, match="stands for two different orders: amounts"):
                await here.outbox.put(other, connection=connection)
        async with shop.begin() as connection:
            with pytest.raises(OrdersDiffer):
                await here.outbox.put(other, connection=connection)
        with pytest.raises(OrdersDiffer):
            await here.outbox.put(other)
        assert State.PLANNED == (await here.outbox.put(payout(0))).state  # taken with it
    async with desk(shop, service) as here:
        await here.comes_to({"accepted": 1})
        async with shop.begin() as connection:
            with pytest.raises(OrdersDiffer):
                await here.outbox.put(other, connection=connection)
        async with shop.begin() as connection:
            entry = await here.outbox.put(payout(0), connection=connection)
        assert (State.ACCEPTED, ids(range(1))) == (entry.state, here.executions())


async def test_an_id_that_differs_in_letters_alone_is_refused_in_that_statement(till: Bank, service: Sandbox) -> None:
    """Wherever the first one is: in the tray, taken, or put without a connection. The debit is undone with it."""
    async with desk(till, service, sends=False) as here:
        for first, again in (("Voucher-17", "voucher-17"), ("\u00c9a-1", "\u00e9a-1")):
            one, other = (attrs.evolve(payout(0), request_id=request_id) for request_id in (first, again))
            async with till.begin() as connection:
                await here.outbox.put(one, connection=connection)
            for _ in range(2):
                with pytest.raises(OrdersDiffer, match=f"request id {again} differs from {first}"):
                    await _withdraw(till, here, other)
                with pytest.raises(OrdersDiffer, match=f"request id {again} differs from {first}"):
                    await here.outbox.put(other)  # which takes the first
        assert ([0], BALANCE) == (till.look("SELECT count(*) FROM tray"), till.balance)
        assert ["Voucher-17", "\u00c9a-1"] == till.look("SELECT request_id FROM outbox ORDER BY id")


async def _withdraw(shop: Bank, here: Desk, one: PayoutOrder) -> None:
    """The debit and the order, or neither."""
    async with shop.begin() as connection:
        await shop.debit(connection, one.request_id)
        await here.outbox.put(one, connection=connection)


async def test_a_connection_to_another_database(shop: Bank, service: Sandbox) -> None:
    """Is refused with what is the matter: no journal there, or another one."""
    elsewhere = type(shop)(_empty_database(), shop.schema)
    async with desk(shop, service) as here:
        with pytest.raises(NotAJournal, match="leads to a database without the journal"):
            async with elsewhere.begin() as connection:
                await here.outbox.put(payout(0), connection=connection)
        async with journal_of(elsewhere), elsewhere.begin() as connection:
            with pytest.raises(NotAJournal, match="leads to another journal"):
                await here.outbox.put(payout(0), connection=connection)


def _empty_database() -> str:
    """The DSN of one."""
    name = "elsewhere"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        ours = connection.info.dbname
    return postgres.dsn().replace(f"/{ours}?", f"/{name}?")


async def test_what_no_connection_is(till: Bank, service: Sandbox, tmp_path: Path) -> None:
    """Is refused by its type; so is one beside a journal in a file, and a decision within a transaction."""
    async with desk(till, service) as here:
        with pytest.raises(TypeError, match="connection: expected an asyncpg Connection, a psycopg"):
            await here.outbox.put(payout(0), connection="postgresql://")
        with psycopg.connect(till.dsn) as connection, pytest.raises(TypeError, match="not Connection"):
            await here.outbox.put(payout(0), connection=connection)
        with pytest.raises(ValueError, match="adoption"):
            await here.outbox.put(
                payout(0), connection=connection, adoption=TakeoverAuthorisation(who="Ann", why="asked")
            )
    async with SqliteJournal(tmp_path / "journal.db", second_journal=_TWO) as journal, session(service) as payments:
        outbox = Outbox(payments, journal)
        async with outbox:
            with pytest.raises(ValueError, match="use a PostgresJournal"):
                await outbox.put(payout(0), connection=connection)
        with pytest.raises(ValueError, match="use a PostgresJournal"):
            outbox.on(State.ACCEPTED, within=till.begin)


async def test_a_journal_in_a_file_is_asked_itself(journal: SqliteJournal) -> None:
    """It takes no connection, and nothing ever lies in its tray."""
    with pytest.raises(ValueError, match="use a PostgresJournal"):
        await journal.lay("outbox", payout(0), object())
    with pytest.raises(ValueError, match="use a PostgresJournal"):
        await journal.mark_told(object(), 1, "handler")
    assert 7 == await journal.laid_since(7, timeout=0.0)
    assert ((), (0, 0)) == (await journal.laid("outbox"), await journal.count_laid("outbox"))


async def test_whoever_fails_sees_no_person(service: Sandbox) -> None:
    """An error of SQLAlchemy tells all that was given to the database: not here."""
    with bank("sqlalchemy-psycopg") as shop:
        async with desk(shop, service) as here, shop.begin() as connection:
            with pytest.raises(sqlalchemy.exc.DBAPIError):
                await shop.run(connection, "SELECT 1 / 0")
            with pytest.raises(sqlalchemy.exc.DBAPIError) as caught:
                await here.outbox.put(payout(0), connection=connection)
    person = payout(0).destination.phone_number  # type: ignore[union-attr]
    assert (False, True) == (person in str(caught.value), "[SQL: SELECT" in str(caught.value))


async def test_a_user_who_may_do_nothing_else(till: Bank, service: Sandbox) -> None:
    """Two rights are enough to put orders; without them, it is said which."""
    till.do("DROP ROLE IF EXISTS teller; CREATE ROLE teller")
    async with desk(till, service) as here:

        async def put() -> None:
            async with till.begin() as connection:
                await till.run(connection, "SET LOCAL ROLE teller")
                await here.outbox.put(payout(0), connection=connection)

        for right in (f"USAGE ON SCHEMA {till.journal}", f"EXECUTE ON FUNCTION {till.journal}.lay"):
            with pytest.raises(JournalReadOnly, match="GRANT USAGE ON SCHEMA, and EXECUTE"):
                await put()
            till.do(f"GRANT {right} TO teller")
        await put()
        await here.comes_to({"accepted": 1})
        till.do("DROP OWNED BY teller; DROP ROLE teller")


async def test_what_certainty_costs(till: Bank, service: Sandbox) -> None:
    """Two commits of ours: one that takes the order, with the right to send it, and one for how that ended."""
    async with desk(till, service, settles=False) as here:
        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        before = int(till.look("SELECT value FROM meta WHERE key = 'commits'")[0])
        async with till.begin() as connection:
            await here.outbox.put(payout(1), connection=connection)
        await here.comes_to({"accepted": 2})
        assert [str(before + 2)] == till.look("SELECT value FROM meta WHERE key = 'commits'")


async def test_who_waits_for_an_order_in_the_tray(till: Bank, service: Sandbox) -> None:
    """Hears of it as of any other: it is planned until then."""
    async with desk(till, service, sends=False) as here:
        async with till.begin() as connection:
            await here.outbox.put(payout(0), connection=connection)
        entry = await here.outbox.entry(payout(0).request_id)
        assert entry is not None
        assert State.PLANNED == entry.state
        with pytest.raises(TimeoutError):
            await here.outbox.settled(entry.request_id, timeout=0.01)


async def test_orders_keep_their_moment_and_their_priority(till: Bank, service: Sandbox) -> None:
    """What is due later is taken at once, and waits in nobody's hands."""
    later = datetime.now(UTC) + timedelta(hours=1)
    async with desk(till, service) as here:
        async with till.begin() as connection:
            await here.outbox.put(payout(0), connection=connection, not_before=later, priority=7)
        await here.comes_to({"planned": 1})
        assert [(later.timestamp(), 7)] == [
            (due, priority)
            for due in till.look("SELECT not_before FROM outbox")
            for priority in till.look("SELECT priority FROM outbox")
        ]
        assert not here.executions()


@pytest.mark.slow(covered=True)
async def test_many_transactions_at_once(till: Bank, service: Sandbox) -> None:
    """Two processes' outboxes take them; each order is paid once."""
    async with desk(till, service) as here, desk(till, service):

        async def one(number: int) -> None:
            async with till.begin() as connection:
                await here.outbox.put(payout(number), connection=connection)

        for first in range(0, 100, 20):
            await asyncio.gather(*(one(number) for number in range(first, first + 20)))
        await here.comes_to({"accepted": 100})
        assert ids(range(100)) == sorted(here.executions())


async def test_nobody_is_told_what_somebody_looks_for(till: Bank, service: Sandbox) -> None:
    """The first order is notified of; while somebody looks again and again, the next one is not, and is sent too."""
    async with desk(till, service) as here, till.committing() as listening:
        told: list[str] = []
        await listening.add_listener(till.journal, lambda *heard: told.append(heard[-1]))
        for number in range(2):
            async with till.begin() as connection:
                await here.outbox.put(payout(number), connection=connection)
            await here.comes_to({"accepted": number + 1})
            till.do("UPDATE watch SET until = until + 3600")  # else a machine that is slow has it end before the next
        await listening.execute("SELECT 1")
        assert ["tray"] == [one for one in told if one == "tray"]
        await listening.reset()


async def test_one_of_those_who_put_at_the_same_time_notifies(till: Bank, service: Sandbox) -> None:
    """Who comes beside somebody who will notify does not, and waits for nobody; the next one does; all are sent."""
    async with desk(till, service, sends=False) as here, till.committing() as listening:
        told: list[str] = []
        await listening.add_listener(till.journal, lambda *heard: told.append(heard[-1]))
        async with till.begin() as first:
            await here.outbox.put(payout(0), connection=first)
            async with till.begin() as second:
                await here.outbox.put(payout(1), connection=second)
        async with till.begin() as third:
            await here.outbox.put(payout(2), connection=third)
        await listening.execute("SELECT 1")
        assert ["tray", "tray"] == [one for one in told if one == "tray"]
        await listening.reset()
    async with desk(till, service) as here:
        await here.comes_to({"accepted": 3})
        assert ids(range(3)) == sorted(here.executions())


async def test_an_order_that_cannot_be_taken(
    till: Bank, service: Sandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Stays with its problem, which is shown; the others go on, and a person has the last word."""
    async with desk(till, service, sends=False):
        pass  # the account's journal
    async with (
        SqliteJournal(tmp_path / "journal.db", second_journal=_TWO) as file,
        session(service) as payments,
        Outbox(payments, file, worker=WorkerSettings(sends=False)) as first,
    ):
        await first.put(payout(0))
    async with desk(till, service, sends=False) as here:
        async with till.begin() as connection:
            for number in range(3):
                await here.outbox.put(payout(number), connection=connection)
        till.do(f"UPDATE tray SET amount = '7' WHERE request_id = '{payout(1).request_id}'")  # noqa: S608
    async with desk(till, service) as here:
        await here.comes_to({"accepted": 1})
        held, torn = await here.outbox.untaken()
        assert ids(range(2)) == [held.request_id, torn.request_id]
        assert f"order {torn.request_id} is not what was loaded" == torn.problem
        assert held.problem is not None
        assert str(tmp_path / "journal.db") in held.problem
        health = await here.outbox.health()
        assert (2, 0) == (health.counts["orders_untaken"], health.staged)
        assert 2 == sum("could not be ingested" in record.getMessage() for record in caplog.records)
        with pytest.raises(HeldElsewhere):
            await here.outbox.put(payout(0))
        with pytest.raises(JournalRefused, match="could not be taken"):
            async with till.begin() as connection:
                await here.outbox.put(payout(0), connection=connection)
        await here.outbox.drop(torn.request_id, "Ann", "it was edited")
        with pytest.raises(OrderUnknown):
            await here.outbox.drop(torn.request_id, "Ann", "again")
        await here.outbox.put(payout(0), adoption=TakeoverAuthorisation(who="Ann", why="the file is gone"))
        await here.comes_to({"accepted": 1, "unknown": 1})
        assert () == tuple(await here.outbox.untaken())
        assert ids(range(2, 3)) == here.executions()
    assert ["dropped"] == till.look("SELECT kind FROM resolution WHERE kind = 'dropped'")


async def test_what_could_not_be_taken_is_tried_again(till: Bank, service: Sandbox) -> None:
    """When somebody begins to work: what hindered may be over."""
    async with desk(till, service, sends=False) as here:
        async with till.begin() as connection:
            await here.outbox.put(payout(0), connection=connection)
        till.do("UPDATE tray SET problem = 'written by a newer version'")
    async with desk(till, service) as here:
        await here.comes_to({"accepted": 1})
        assert () == tuple(await here.outbox.untaken())


async def _count_lists(journal: PostgresJournal) -> int:
    return len([scan for scan in await journal.list_scans("outbox") if scan.ended is not None])


async def test_a_database_that_was_copied(till: Bank, service: Sandbox) -> None:
    """May have sent what lies in its tray: it waits for a person, with the rest."""
    async with desk(till, service, sends=False) as here, till.begin() as connection:
        await here.outbox.put(payout(0), connection=connection)
    copy = PostgresJournal(postgres.copied(), schema=till.journal)
    async with copy, session(service) as payments, Outbox(payments, copy) as outbox:
        await until(lambda: _count_lists(copy), 1)
        health = await outbox.health()
        assert (1, 0) == (health.counts["chunks_in_quarantine"], health.staged)
        assert 1 == health.progress.counts[State.PLANNED]
        assert not service.ledger


# The way back: a handler within a transaction of the application's own


async def test_a_handler_within_a_transaction_is_told_once(shop: Bank, service: Sandbox) -> None:
    """What it does and that it was told are one commit."""
    async with desk(shop, service) as here:

        @here.outbox.on(State.ACCEPTED, within=shop.begin, name="credit")
        async def credit(entry: Entry, connection: Any) -> None:
            await shop.credit(connection, entry.change_id)

        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        await until(_handled(shop), 1)
        assert (BALANCE + WORTH, ["credit"]) == (shop.balance, shop.look("SELECT handler FROM told"))


def _handled(shop: Bank) -> Callable[[], Awaitable[int]]:
    """Counts changes whose handlers have finished."""

    async def count() -> int:
        sql = """SELECT count(*) FROM change c JOIN hearing h ON h.outbox = c.outbox AND h.state = c.state
            WHERE NOT EXISTS (SELECT 1 FROM delivery d WHERE d.about = c.id AND d.status <> 'done')"""
        return int(shop.look(sql)[0])

    return count


@pytest.mark.slow(covered=True)
async def test_a_handler_that_fails_within_its_transaction(shop: Bank, service: Sandbox) -> None:
    """Has done nothing, and is told again."""
    tries = []
    async with desk(shop, service, policy=HandlerPolicy(wait_initial=0.01)) as here:

        @here.outbox.on(State.ACCEPTED, within=shop.begin)
        async def credit(entry: Entry, connection: Any) -> None:
            await shop.credit(connection, entry.change_id)
            tries.append(entry.change_id)
            if len(tries) < 3:
                raise ConnectionError

        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        await until(_handled(shop), 1)
        assert (3, 1, BALANCE + WORTH) == (len(tries), len(set(tries)), shop.balance)


async def test_a_handler_whose_end_was_never_written_down(till: Bank, service: Sandbox) -> None:
    """Committed, it is not called again: the transaction remembers it, whatever else was forgotten."""
    calls = []
    async with desk(till, service) as here:

        @here.outbox.on(State.ACCEPTED, within=till.begin)
        async def credit(entry: Entry, connection: Any) -> None:
            calls.append(entry.change_id)
            await till.credit(connection, entry.change_id)

        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        await until(_handled(till), 1)
        till.do(
            """INSERT INTO delivery (queue, about, topic, order_id)
            SELECT 'outbox', id, state || '/' || outbox, order_id FROM change"""
        )
        await until(_handled(till), 1)
        assert (1, BALANCE + WORTH) == (len(calls), till.balance)


async def test_two_processes_with_one_change(till: Bank, service: Sandbox) -> None:
    """One stalls over it until another one has it too: that one waits, and has nothing left to do."""
    calls, goes_on = [], asyncio.Event()
    policy = HandlerPolicy(timeout=2 * A_MINUTE)  # the one that stalls is not given up meanwhile
    async with (
        desk(till, service, policy=policy) as here,
        journal_of(till) as journal,
        session(service) as payments,
    ):
        other = Outbox(payments, journal, worker=None, policy=policy)
        for outbox in (here.outbox, other):

            @outbox.on(State.ACCEPTED, within=till.begin, name="credit")
            async def credit(entry: Entry, connection: Any) -> None:
                calls.append(entry.change_id)
                await till.credit(connection, entry.change_id)
                await goes_on.wait()

        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        async with asyncio.timeout(A_MINUTE):
            while not calls:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
            async with other:
                # for a transaction to end: a commit of the journal waits for a lock of a table
                waiting = """SELECT 1 FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event = 'transactionid'"""
                while not till.look(waiting):
                    # again and again: the one that stalls may take its change a second time, and keeps it then
                    till.do("UPDATE delivery SET owner = '', holder = '', due_at = 0")
                    await asyncio.sleep(0.1)
                await here.outbox.pay(payout(1), timeout=A_MINUTE)  # whoever writes the journal waits for neither
                goes_on.set()
                await until(_handled(till), 2)
        assert (2, BALANCE + 2 * WORTH) == (len(calls), till.balance)


async def test_a_transaction_that_commits_each_statement(till: Bank, service: Sandbox) -> None:
    """Is none: the handler is not called, and the mistake is told as that of any handler."""
    calls = []
    async with desk(till, service, policy=HandlerPolicy(attempts=1)) as here:

        @here.outbox.on(State.ACCEPTED, within=till.committing)
        async def credit(entry: Entry, connection: Any) -> None:
            calls.append(entry)

        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        await until(_dead(here), 1)
        (dead,) = [one async for one in here.journal.dead_changes()]
        assert "no transaction is open on it" in (dead.error or "")
        assert not calls


def _dead(here: Desk) -> Callable[[], Awaitable[int]]:
    async def count() -> int:
        return (await here.outbox.health()).handlers.dead

    return count


async def test_a_transaction_that_passes_over_errors(till: Bank, service: Sandbox) -> None:
    """Has committed nothing: the change is not handled."""

    @asynccontextmanager
    async def begin() -> AsyncIterator[Any]:
        with suppress(ConnectionError):
            async with till.begin() as connection:
                yield connection

    async with desk(till, service, policy=HandlerPolicy(attempts=1)) as here:

        @here.outbox.on(State.ACCEPTED, within=begin)
        async def credit(entry: Entry, connection: Any) -> None:
            raise ConnectionError

        await here.outbox.pay(payout(0), timeout=A_MINUTE)
        await until(_dead(here), 1)
        assert [] == till.look("SELECT handler FROM told")


async def test_what_opens_no_transaction_that_is_committed(service: Sandbox) -> None:
    """The handler was called and its work is undone: it failed, says how to commit, and its change is not handled."""

    @asynccontextmanager
    async def rolls_back() -> AsyncIterator[Any]:
        async with AsyncSession(engine) as opened, opened.begin() as transaction:
            yield opened
            await transaction.rollback()

    with bank("sqlalchemy-asyncpg") as shop:
        assert isinstance(shop, BySqlalchemy)
        engine = shop.engine()
        sessions = async_sessionmaker(engine)
        kinds: dict[str, Callable[[], Any]] = {
            "connect": engine.connect,
            "session": partial(AsyncSession, engine),
            "sessions": sessions,
            "rolls back": rolls_back,
        }
        called = []
        async with desk(shop, service, policy=HandlerPolicy(attempts=1)) as here:
            for name, kind in kinds.items():
                if name != "rolls back":  # which nobody sees before it is called
                    with pytest.raises(ValueError, match="commits nothing"):
                        here.outbox.on(State.ACCEPTED, within=kind)

                @here.outbox.on(State.ACCEPTED, within=lambda kind=kind: kind(), name=name)
                async def credit(entry: Entry, connection: Any) -> None:
                    called.append(entry.change_id)
                    await shop.credit(connection, entry.change_id)

            async def commits(entry: Entry, connection: Any) -> None:
                await shop.credit(connection, entry.change_id)

            with pytest.raises(TypeError, match="within"):
                here.outbox.on(State.ACCEPTED, within=engine)
            here.outbox.on(State.ACCEPTED, within=sessions.begin, name="commits")(commits)
            await here.outbox.pay(payout(0), timeout=A_MINUTE)
            await until(_dead(here), 1)
            (dead,) = [one async for one in here.journal.dead_changes()]
            assert 4 == (dead.error or "").count("its transaction was not committed. Pass within=engine.begin")
        assert (4, BALANCE + WORTH, ["commits"]) == (len(called), shop.balance, shop.look("SELECT handler FROM told"))
        await engine.dispose()


async def test_what_was_told_is_forgotten_with_its_change(till: Bank, service: Sandbox) -> None:
    """And a change that is not there any more is told to nobody."""
    async with desk(till, service) as here:
        here.outbox.on(State.ACCEPTED, within=till.begin, name="credit")(_credit)
        for number in range(2):
            await here.outbox.pay(payout(number), timeout=A_MINUTE)
        await until(_handled(till), 2)
        (first, last) = till.look("SELECT change_id FROM told ORDER BY change_id")
        till.do("UPDATE change SET at = 0")
        assert 1 == await here.journal.prune_changes(older_than=60.0)
        assert [last] == till.look("SELECT change_id FROM told")
        async with till.begin() as connection:
            assert not await here.journal.mark_told(connection, first, "credit")


async def _credit(entry: Entry, connection: Any) -> None: ...


_LIVES, _WORKERS = 4, 4


@pytest.mark.slow
async def test_processes_that_are_killed(till: Bank, service: Sandbox) -> None:
    """Whenever that is: each debit has its order and each acceptance its credit, once, and no order is sent twice."""
    who = (service.base_url, service.app_key, service.app_password, service.user_id)
    command = [sys.executable, str(Path(__file__).with_name("bank_process.py")), till.dsn, till.schema, *who]
    async with desk(till, service, worker=None):
        pass  # makes the journal
    for life in range(_LIVES):
        process = await asyncio.create_subprocess_exec(
            *command, str(life * 10_000), str(_WORKERS), stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert b"here\n" == await process.stdout.readline()
        before = len(till.withdrawn)
        async with asyncio.timeout(A_MINUTE):
            while len(till.withdrawn) < before + 5 * life:  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
    journal = journal_of(till)
    async with journal, session(service) as payments:
        outbox = Outbox(payments, journal)

        @outbox.on(State.ACCEPTED, within=till.begin, name="credit")
        async def credit(entry: Entry, connection: Any) -> None:
            await till.credit(connection, entry.change_id)

        async def left() -> list[int]:
            return till.look("""SELECT count(*) FROM tray UNION ALL SELECT count(*) FROM outbox
                WHERE state IN ('planned', 'sending')
                UNION ALL SELECT count(*) FROM delivery WHERE status = 'pending'""")

        async with outbox:
            await until(left, [0, 0, 0])
            credited = sorted(till.look("SELECT change_id FROM credit"))
            assert till.look("SELECT id FROM change WHERE state = 'accepted' ORDER BY id") == credited
            assert till.look("SELECT request_id FROM outbox ORDER BY request_id") == till.withdrawn
            assert BALANCE + WORTH * (len(credited) - len(till.withdrawn)) == till.balance
            sent = [execution.request_id for execution in service.ledger]
            assert (len(sent), set()) == (len(set(sent)), set(sent) - set(till.withdrawn))
            assert len(till.withdrawn) >= len(credited) >= len(till.withdrawn) - _LIVES * _WORKERS  # what was under way


async def test_a_namespace_with_each_mark_that_a_library_reads(shop: Bank) -> None:
    """An order is laid in it by each library."""
    schema = "o'brien \"% :v1 \\ $1"
    async with PostgresJournal(shop.dsn, schema=schema, state_folder=None) as journal:
        try:
            await in_outbox(journal, 1)
            async with shop.begin() as connection:
                await journal.lay("shop", payout(7), connection)
            assert (1, 0) == await journal.count_laid("shop")
        finally:
            with psycopg.connect(shop.dsn, autocommit=True) as connection:
                connection.execute(psycopg.sql.SQL("DROP SCHEMA {} CASCADE").format(psycopg.sql.Identifier(schema)))
