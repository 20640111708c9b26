"""Fixtures of the plugin on PostgreSQL: each test has a database of its own, with the application's tables."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest
from journal import postgres

from payments_async import Beneficiary, Entry, MobileMoneyWallet, Outbox, PayoutOrder, PostgresJournal, Receiver, State
from payments_async.ipn import TransactionSucceeded
from payments_async.sandbox import Sandbox
from payments_async.testing import VirtualClock, _copied, _template


@pytest.fixture(scope="session")
def payments_postgres_server() -> str:
    """The server of these tests."""
    return postgres.dsn()


@pytest.fixture(scope="session")
def payments_postgres_tables() -> str:
    """What an application would have."""
    return "CREATE TABLE balance (owner TEXT PRIMARY KEY, amount NUMERIC); INSERT INTO balance VALUES ('zoe', 2000)"


def order(request_id: str = "r-1") -> PayoutOrder:
    """A payout as any other."""
    return PayoutOrder(
        request_id=request_id,
        amount=Decimal(1500),
        destination=MobileMoneyWallet("+256772000017"),
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Grace Akello"),
    )


@pytest.mark.parametrize("time", ["first", "second"])
async def test_the_same_withdrawal_in_two_tests(
    payments_clock: VirtualClock,
    payments_postgres: str,
    payments_outbox: Outbox,
    payments_sandbox: Sandbox,
    time: str,
) -> None:
    """A test finds the tables as they were made, and nothing of the test before: it debits and pays once, again."""
    async with await psycopg.AsyncConnection.connect(payments_postgres) as connection:
        await connection.execute("UPDATE balance SET amount = amount - 1500 WHERE owner = 'zoe'")
        await payments_outbox.put(order(), connection=connection)
    settled = await payments_clock.until(payments_outbox.settled("r-1", timeout=600))
    with psycopg.connect(payments_postgres) as reading:
        row = reading.execute("SELECT amount FROM balance").fetchone()
    assert isinstance(payments_outbox.journal, PostgresJournal)
    assert (State.SUCCESSFUL, 1, (Decimal(500),)) == (settled.state, payments_sandbox.executions("r-1"), row)


def test_a_database_goes_with_its_test() -> None:
    """Neither the database nor its template is left on the server, although a connection is still open."""
    with psycopg.connect(postgres.dsn()) as server:
        with _template(postgres.dsn(), "") as original, _copied(postgres.dsn(), original) as dsn:
            left = psycopg.connect(dsn)
            names = [original, left.info.dbname]
        left.close()
        found = server.execute("SELECT datname FROM pg_database WHERE datname = ANY(%s)", (names,)).fetchall()
    assert [] == found
    assert 2 == len(set(names))


async def test_outbox_and_receiver_in_one_test(
    payments_clock: VirtualClock, payments_outbox: Outbox, payments_receiver: Receiver
) -> None:
    """Both hear of the order: a handler of notifications, and one of the outbox."""
    events: list[str | None] = []
    entries: list[str] = []

    @payments_receiver.on(TransactionSucceeded)
    async def notified(event: TransactionSucceeded) -> None:
        events.append(event.request_id)

    @payments_outbox.on(State.SUCCESSFUL)
    async def paid(entry: Entry) -> None:
        entries.append(entry.request_id)

    await payments_outbox.put(order())
    await payments_clock.until(payments_outbox.settled("r-1", timeout=600))
    await payments_clock.advance(60)
    assert (["r-1"], ["r-1"]) == (events, entries)
