"""Any transactions of an application, against a model: an order exists if, and only if, its debit does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress

import asyncpg
import attrs
import pytest
from bulk.worlds import payout, session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outbox.banks import BALANCE, WORTH, Bank, bank
from outbox.desks import Desk, until

from payments_async.journal import OrdersDiffer, PostgresJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import Sandbox

ORDERS = 5  # that the transactions of one example are about
ABREAST = 4
ISOLATION = ("read_committed", "repeatable_read", "serializable")


@attrs.frozen
class Step:
    """An order that is put: kept, or undone with its savepoint; as itself, or as another one under its id."""

    number: int
    is_kept: bool
    has_savepoint: bool
    is_forged: bool


@attrs.frozen
class Transaction:
    """What an application does in one go, and how it ends."""

    steps: Sequence[Step]
    isolation: str
    end: str


step = st.builds(
    Step,
    number=st.integers(0, ORDERS - 1),
    is_kept=st.sampled_from([True, True, False]),
    has_savepoint=st.booleans(),
    is_forged=st.sampled_from([False, False, False, True]),
)
transaction = st.builds(
    Transaction,
    # in one sequence, so that two do not wait for each other
    steps=st.lists(step, min_size=1, max_size=3, unique_by=lambda one: one.number).map(
        lambda some: sorted(some, key=lambda one: one.number)
    ),
    isolation=st.sampled_from(ISOLATION),
    end=st.sampled_from(["commit", "commit", "commit", "rollback", "killed", "hung up"]),
)


@attrs.define
class Life:
    """A service, an outbox that works all the time, and an event loop for all examples."""

    shop: Bank
    desk: Desk
    runner: asyncio.Runner
    stack: AsyncExitStack
    examples: int = 0

    async def play(self, transactions: Sequence[Transaction]) -> None:
        """Do these, some of them at once, and compare."""
        self.examples += 1
        first = self.examples * ORDERS
        todo, committed = list(reversed(transactions)), set[str]()

        async def lane() -> None:
            while todo:
                committed.update(await self.do(todo.pop(), first))

        await asyncio.gather(*(lane() for _ in range(ABREAST)))
        mine = {payout(number).request_id for number in range(first, first + ORDERS)}
        there = self.shop.look("SELECT request_id FROM tray UNION SELECT request_id FROM outbox")
        assert (self.shop.withdrawn, committed) == (sorted(there), set(self.shop.withdrawn) & mine)
        assert [] == self.shop.look("SELECT request_id FROM tray WHERE problem IS NOT NULL")
        await until(self.paid, self.shop.withdrawn)
        assert BALANCE - WORTH * len(self.shop.withdrawn) == self.shop.balance

    async def paid(self) -> list[str]:
        """What the service has carried out, each as often as it was."""
        return sorted(self.desk.executions())

    async def do(self, one: Transaction, first: int) -> set[str]:
        """One transaction; the request ids of what it has surely committed."""
        connection = await asyncpg.connect(self.shop.dsn)
        kept = set()
        try:
            running = connection.transaction(isolation=one.isolation)
            await running.start()
            for step in one.steps:
                if await self.put(connection, step, first):
                    kept.add(payout(first + step.number).request_id)
            for request_id in sorted(kept):
                await self.shop.debit(connection, request_id)
            match one.end:
                case "rollback":
                    await running.rollback()
                case "killed":
                    pid = connection.get_server_pid()
                    self.shop.do(f"SELECT pg_terminate_backend({pid})")
                    await running.commit()
                case "hung up":
                    connection.terminate()
                case _:
                    await running.commit()
                    return kept
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, OrdersDiffer):
            pass  # serialization failures, orders that were withdrawn before, connections that were lost
        finally:
            with suppress(OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
                await connection.close(timeout=5)
        return set()

    async def put(self, connection: asyncpg.Connection, step: Step, first: int) -> bool:
        """Put one order; whether it stays a part of the transaction."""
        order = payout(first + step.number)
        if step.is_forged:
            order = attrs.evolve(order, amount=order.amount + 1)
        if not step.has_savepoint:
            await self.desk.outbox.put(order, connection=connection)
            return True
        inner = connection.transaction()
        await inner.start()
        await self.desk.outbox.put(order, connection=connection)
        await (inner.commit() if step.is_kept else inner.rollback())
        return step.is_kept


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    """Opened once."""
    with bank("asyncpg") as shop, asyncio.Runner() as runner:
        shop.do("ALTER TABLE withdrawal ADD PRIMARY KEY (request_id)")
        stack = AsyncExitStack()
        desk = runner.run(opened(shop, stack))
        yield Life(shop, desk, runner, stack)
        runner.run(stack.aclose())


async def opened(shop: Bank, stack: AsyncExitStack) -> Desk:
    """A service and an outbox that works."""
    service = await stack.enter_async_context(Sandbox())
    journal = await stack.enter_async_context(PostgresJournal(shop.dsn, schema=shop.journal, state_folder=None))
    payments = await stack.enter_async_context(session(service))
    outbox = await stack.enter_async_context(Outbox(payments, journal))
    return Desk(service, payments, journal, outbox)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(transactions=st.lists(transaction, min_size=1, max_size=10))
def test_an_order_exists_if_and_only_if_its_debit_does(life: Life, transactions: Sequence[Transaction]) -> None:
    """Committed, rolled back, undone to a savepoint, killed before the end, or refused by the database.

    And each is paid once: all that any of these transactions has committed, and nothing else, as the balance says too.
    """
    life.runner.run(life.play(transactions))
