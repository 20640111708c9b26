"""A synchronous application puts orders from its threads, within its own transactions, by each library there is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from bulk.worlds import payout, session
from django.db import connections, transaction
from ipn.django_site import set_up
from outbox.banks import BALANCE, WORTH, Bank, bank
from outbox.desks import Desk, ids, until
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from payments_async import Credentials, PaymentsSession
from payments_async.journal import Entry, OrdersDiffer, OrderUnknown, PostgresJournal, SqliteJournal, State
from payments_async.outbox import HandlerPolicy, Outbox
from payments_async.sandbox import Sandbox

Run = Callable[[str], object]
Begins = Callable[[Bank], AbstractContextManager[tuple[Any, Run]]]


@contextmanager
def by_psycopg(shop: Bank, *, autocommit: bool = False) -> Iterator[tuple[Any, Run]]:
    """By psycopg's Connection."""
    with psycopg.connect(shop.dsn, autocommit=autocommit) as connection:
        yield connection, lambda sql: connection.execute(sql.encode())


def _engine(shop: Bank, **options: Any) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(shop.dsn), poolclass=NullPool, **options
    )


@contextmanager
def by_sqlalchemy(shop: Bank, *, autocommit: bool = False) -> Iterator[tuple[Any, Run]]:
    """By SQLAlchemy's Connection."""
    engine = _engine(shop, **({"isolation_level": "AUTOCOMMIT"} if autocommit else {}))
    with engine.begin() as connection:
        yield connection, lambda sql: connection.execute(sqlalchemy.text(sql))


@contextmanager
def by_session(shop: Bank, *, autocommit: bool = False) -> Iterator[tuple[Any, Run]]:
    """By its Session."""
    engine = _engine(shop, **({"isolation_level": "AUTOCOMMIT"} if autocommit else {}))
    with Session(engine) as opened, opened.begin():
        yield opened, lambda sql: opened.execute(sqlalchemy.text(sql))


@contextmanager
def by_scoped_session(shop: Bank, *, autocommit: bool = False) -> Iterator[tuple[Any, Run]]:
    """By its scoped session."""
    engine = _engine(shop, **({"isolation_level": "AUTOCOMMIT"} if autocommit else {}))
    scoped = scoped_session(sessionmaker(engine))
    with scoped.begin():
        yield scoped, lambda sql: scoped.execute(sqlalchemy.text(sql))
    scoped.remove()


def tell_django(shop: Bank) -> None:
    """Let Django know a further database, by the name of its schema."""
    set_up()
    about = conninfo_to_dict(shop.dsn)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    told = {name: about[key] for name, key in names.items() if key in about}
    settings = {"default": {}, shop.schema: {"ENGINE": "django.db.backends.postgresql", **told}}
    connections.settings[shop.schema] = connections.configure_settings(settings)[shop.schema]


@contextmanager
def by_django(shop: Bank, *, autocommit: bool = False) -> Iterator[tuple[Any, Run]]:
    """By the connection of a further database of Django's."""
    tell_django(shop)
    connection = connections[shop.schema]

    def run(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    try:
        if autocommit:
            yield connection, run
        else:
            with transaction.atomic(using=shop.schema):
                yield connection, run
    finally:
        connection.close()
        del connections[shop.schema]


LIBRARIES: dict[str, Any] = {
    "psycopg": by_psycopg,
    "SQLAlchemy": by_sqlalchemy,
    "its Session": by_session,
    "its scoped session": by_scoped_session,
    "Django": by_django,
}


@pytest.fixture(params=LIBRARIES)
def begin(request: pytest.FixtureRequest) -> Any:
    """What opens a transaction, and commits it at its end."""
    return LIBRARIES[request.param]


@pytest.fixture
def shop() -> Iterator[Bank]:
    """An application's tables, beside the journal's."""
    with bank("psycopg") as shop:
        yield shop


@asynccontextmanager
async def desk(shop: Bank, **options: Any) -> AsyncIterator[Desk]:
    """A service, a session, the journal and an outbox, open in the loop of the test."""
    async with (
        Sandbox() as service,
        PostgresJournal(shop.dsn, schema=shop.journal) as journal,
        session(service) as payments,
        Outbox(payments, journal, **options) as outbox,
    ):
        yield Desk(service, payments, journal, outbox)


def debit(shop: Bank, run: Run, request_id: str) -> None:
    """Take the worth of an order from the balance."""
    run(f"UPDATE {shop.schema}.customer SET balance = balance - {WORTH}")  # noqa: S608
    run(f"INSERT INTO {shop.schema}.withdrawal VALUES ('{request_id}')")  # noqa: S608


async def test_an_order_is_part_of_the_transaction(begin: Any, shop: Bank) -> None:
    """With the debit it is committed and paid once; undone with the debit, there was never anything."""
    async with desk(shop) as here:

        def view(number: int, *, fails: bool) -> State:
            order = payout(number)
            with begin(shop) as (connection, run):
                debit(shop, run, order.request_id)
                entry = here.outbox.put_sync(order, connection=connection)
                assert [entry] == here.outbox.put_all_sync([order], connection=connection)
                if fails:
                    raise LookupError("the application has second thoughts")
            return entry.state

        with pytest.raises(LookupError):
            await asyncio.to_thread(view, 1, fails=True)
        assert State.PLANNED is await asyncio.to_thread(view, 0, fails=False)
        await here.comes_to({"accepted": 1})
        assert (ids(range(1)), BALANCE - WORTH) == (here.executions(), shop.balance)
        assert State.ACCEPTED is await asyncio.to_thread(again, begin, shop, here.outbox)
        assert ids(range(1)) == here.executions()


def again(begin: Any, shop: Bank, outbox: Outbox) -> State:
    """The same order once more, and another one under its id."""
    with begin(shop) as (connection, _):
        entry = outbox.put_sync(payout(0), connection=connection)
        with pytest.raises(OrdersDiffer):
            outbox.put_all_sync([payout(0), payout(0, amount=Decimal(7))], connection=connection)
    return entry.state


@pytest.mark.slow(covered=True)
async def test_a_plain_function_is_told_once_in_its_own_transaction(begin: Any, shop: Bank) -> None:
    """It runs in a thread. What it does is undone with what notes that it was told, and done once in the end."""
    tried: list[str] = []

    @contextmanager
    def within() -> Iterator[Any]:
        with begin(shop) as (connection, run):
            runs.append(run)
            yield connection

    runs: list[Run] = []
    async with desk(shop) as here:

        @here.outbox.on(State.ACCEPTED, within=within)
        def accepted(entry: Entry, connection: Any) -> None:
            assert connection is not None
            runs[-1](f"UPDATE {shop.schema}.customer SET balance = balance + {WORTH}")  # noqa: S608
            tried.append(threading.current_thread().name)
            if len(tried) == 1:
                raise LookupError("the first time it fails")

        await here.outbox.pay(payout(0), timeout=60)
        async with asyncio.timeout(60):
            while shop.balance == BALANCE:  # noqa: ASYNC110 - it commits in a thread
                await asyncio.sleep(0.01)
    assert (BALANCE + WORTH, 2) == (shop.balance, len(tried))
    assert threading.current_thread().name not in tried


async def test_the_thread_of_a_plain_function_keeps_no_connection_of_django(shop: Bank) -> None:
    """Django closes one when a request ends. Here none does, and a connection that broke would stay broken."""
    used: list[Any] = []
    tell_django(shop)
    async with desk(shop) as here:

        @here.outbox.on(State.ACCEPTED, within=partial(transaction.atomic, using=shop.schema))
        def accepted(entry: Entry, connection: Any) -> None:
            connection.cursor().execute(f"UPDATE {shop.schema}.customer SET balance = balance + {WORTH}")  # noqa: S608
            used.append(connection)

        await here.outbox.pay(payout(0), timeout=60)
        await until(lambda: asyncio.to_thread(lambda: shop.balance == BALANCE + WORTH), True)
        await until(lambda: asyncio.sleep(0, [one.connection for one in used]), [None])


@pytest.mark.slow(covered=True)
async def test_a_plain_function_that_never_ends(shop: Bank) -> None:
    """It keeps one of four places, also when it is not waited for any more: the other threads are there for others."""
    begun, may_end = [], threading.Event()

    @contextmanager
    def within() -> Iterator[Any]:
        with by_psycopg(shop) as (connection, _):
            yield connection

    policy = HandlerPolicy(timeout=0.2, wait_initial=0.01, wait_max=0.01)
    async with desk(shop, policy=policy) as here:

        @here.outbox.on(State.ACCEPTED, within=within)
        def accepted(entry: Entry, connection: Any) -> None:
            begun.append(entry.request_id)
            if entry.request_id == payout(0).request_id:
                raise StopIteration  # which no future takes
            may_end.wait(60)

        failures: list[str] = []
        here.outbox.error(lambda failure: failures.append(failure.error))
        try:
            await here.outbox.pay(payout(0), timeout=60)
            await until(lambda: asyncio.sleep(0, any("StopIteration" in one for one in failures)), True)
            for number in range(1, 9):
                await here.outbox.put(payout(number))
            await until(lambda: asyncio.sleep(0, len(failures) > 20), True)
            assert 4 == len([one for one in begun if one != payout(0).request_id])
            await asyncio.wait_for(asyncio.to_thread(int), 10)
        finally:
            may_end.set()


async def test_what_a_plain_function_cannot_be_called_in(shop: Bank) -> None:
    """Without a transaction of its own, or in one that only a loop can open; and one that nothing commits."""
    async with desk(shop) as here:

        def plain(entry: Entry, connection: Any) -> None: ...

        with pytest.raises(TypeError, match="is not async"):
            here.outbox.on(State.ACCEPTED)(plain)  # type: ignore[type-var]
        with pytest.raises(ValueError, match=r"Engine\.connect opens a connection and commits nothing"):
            here.outbox.on(State.ACCEPTED, within=_engine(shop).connect)
        failures: list[str] = []
        here.outbox.error(lambda failure: failures.append(failure.error))
        here.outbox.on(State.ACCEPTED, within=shop.begin)(plain)  # type: ignore[arg-type]
        await here.outbox.pay(payout(0), timeout=60)
        async with asyncio.timeout(60):
            while not failures:  # noqa: ASYNC110 - the handler runs soon after
                await asyncio.sleep(0.01)
    assert "a plain function needs one that is entered by 'with'" in failures[0]


async def test_what_an_async_handler_cannot_be_called_in(shop: Bank) -> None:
    """A transaction that only a thread may open: the failure says what to do."""
    async with desk(shop) as here:
        failures: list[str] = []
        here.outbox.error(lambda failure: failures.append(failure.error))

        @here.outbox.on(State.ACCEPTED, within=_engine(shop).begin)
        async def accepted(entry: Entry, connection: Any) -> None: ...

        await here.outbox.pay(payout(0), timeout=60)
        async with asyncio.timeout(60):
            while not failures:  # noqa: ASYNC110 - the handler runs soon after
                await asyncio.sleep(0.01)
    assert "needs one that is entered by 'async with'" in failures[0]


async def test_a_connection_that_commits_each_statement(begin: Any, shop: Bank) -> None:
    """What belongs together would not be committed together, so it is refused."""
    async with desk(shop) as here:

        def view() -> None:
            with begin(shop, autocommit=True) as (connection, _):
                here.outbox.put_sync(payout(0), connection=connection)

        with pytest.raises(ValueError, match="no transaction is open on it"):
            await asyncio.to_thread(view)
        assert {} == await here.states()


async def test_a_transaction_that_waits_keeps_nobody_else_waiting(begin: Any, shop: Bank) -> None:
    """Two put the same order: the second waits for the first in its own thread, and the loop goes on paying."""
    async with desk(shop) as here:
        is_put, may_commit = threading.Event(), threading.Event()

        def first() -> None:
            with begin(shop) as (connection, _):
                here.outbox.put_sync(payout(0), connection=connection)
                is_put.set()
                assert may_commit.wait(60)

        def second() -> State:
            with begin(shop) as (connection, _):
                return here.outbox.put_sync(payout(0), connection=connection).state

        one = asyncio.create_task(asyncio.to_thread(first))
        assert await asyncio.to_thread(is_put.wait, 60)
        other = asyncio.create_task(asyncio.to_thread(second))
        await here.outbox.pay(payout(1), timeout=60)
        assert (False, ids(range(1, 2))) == (other.done(), here.executions())
        may_commit.set()
        await asyncio.gather(one, other)
        await here.comes_to({"accepted": 2})
        assert sorted(ids(range(2))) == sorted(here.executions())


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_a_thread_that_is_interrupted_within_a_statement(
    interrupt: type[BaseException], shop: Bank, tmp_path: Path
) -> None:
    """Ctrl-C, or a server that ends its worker, is raised there alone: the outbox works on, and closes."""

    class Interrupted(psycopg.Connection):
        def wait(self, *_: object, **__: object) -> Any:
            raise interrupt

    who = Credentials(app_key="key", app_password="password", user_id="user")
    payments, journal = PaymentsSession("http://127.0.0.1:1", who), PostgresJournal(shop.dsn, schema=shop.journal)
    outbox = Outbox(payments, journal, worker=None)
    with outbox.in_thread(journal, payments):
        with psycopg.connect(shop.dsn) as connection:
            connection.execute("SELECT 1")
            connection.__class__ = Interrupted
            with pytest.raises(interrupt):
                outbox.put_sync(payout(0), connection=connection)
            connection.__class__ = psycopg.Connection
        assert State.PLANNED is outbox.put_sync(payout(0), timeout=10.0).state


async def test_a_connection_in_the_wrong_place(shop: Bank, journal: SqliteJournal, service: Sandbox) -> None:
    """Each kind names where the other one goes; a file has no transactions to share."""
    async with desk(shop) as here:
        with psycopg.connect(shop.dsn) as connection:
            with pytest.raises(TypeError, match="call put_sync with it"):
                await here.outbox.put(payout(0), connection=connection)
            with pytest.raises(TypeError, match="expected a psycopg Connection"):
                await asyncio.to_thread(here.outbox.put_sync, payout(0), connection=object())
            with pytest.raises(RuntimeError, match=r"await outbox\.put"):
                here.outbox.put_sync(payout(0), connection=connection)
            with pytest.raises(ValueError, match=r"State\.CANCELLED, within="):
                await here.outbox.cancel("W-1", who="Ann", why="a mistake", connection=connection)
    async with (
        session(service) as payments,
        Outbox(payments, journal) as outbox,
    ):
        with pytest.raises(ValueError, match="PostgresJournal"):
            await asyncio.to_thread(outbox.put_sync, payout(0), connection=psycopg)


def test_an_application_without_any_loop(tmp_path: Path) -> None:
    """It opens the outbox in a thread of its own, puts, looks, and cancels."""
    who = Credentials(app_key="key", app_password="password", user_id="user")
    payments, journal = PaymentsSession("http://127.0.0.1:1", who), SqliteJournal(tmp_path / "j.db")
    outbox = Outbox(payments, journal, worker=None)
    with pytest.raises(RuntimeError, match="outbox is not open"):
        outbox.put_sync(payout(0))
    with outbox.in_thread(journal, payments):
        put = outbox.put_sync(payout(0))
        cancelled = outbox.in_loop(outbox.cancel(put.request_id, who="Ann", why="too much"))
        assert (State.PLANNED, State.CANCELLED) == (put.state, cancelled.state)
        assert cancelled == outbox.in_loop(outbox.entry(put.request_id))
        with pytest.raises(OrderUnknown):
            outbox.in_loop(outbox.cancel("W-unknown", who="Ann", why="too much"))
