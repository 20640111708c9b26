"""An application with customers' balances in the database that its journal is in, by each library there is for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import attrs
import psycopg
import sqlalchemy
from journal import postgres
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

BALANCE = 1_000_000  # of the one customer
WORTH = 100  # of each order


@attrs.frozen
class Bank(ABC):
    """One customer's balance, and what was credited to it for which change."""

    dsn: str
    schema: str

    @abstractmethod
    def begin(self) -> AbstractAsyncContextManager[Any]:
        """A connection in a transaction, which is committed at its end."""

    @abstractmethod
    def committing(self) -> AbstractAsyncContextManager[Any]:
        """A connection that commits each statement by itself."""

    @abstractmethod
    async def run(self, connection: Any, sql: str) -> Any:
        """Do one statement; the first value that it answers with."""

    async def debit(self, connection: Any, request_id: str) -> None:
        """Take the worth of an order from the balance."""
        await self.run(connection, f"UPDATE {self.schema}.customer SET balance = balance - {WORTH}")  # noqa: S608
        await self.run(connection, f"INSERT INTO {self.schema}.withdrawal VALUES ('{request_id}')")  # noqa: S608

    async def credit(self, connection: Any, change_id: int | None) -> None:
        """Give it back."""
        await self.run(connection, f"UPDATE {self.schema}.customer SET balance = balance + {WORTH}")  # noqa: S608
        await self.run(connection, f"INSERT INTO {self.schema}.credit VALUES ({change_id})")  # noqa: S608

    @property
    def journal(self) -> str:
        """The namespace of the journal beside it."""
        return self.schema.removesuffix("_bank")

    def look(self, sql: str) -> list[Any]:
        """The first values of all rows that are committed, in the bank's tables or the journal's."""
        with psycopg.connect(self.dsn, options=f"-c search_path={self.schema},{self.journal}") as connection:
            return [first for first, *_ in connection.execute(sql.encode()).fetchall()]

    def do(self, sql: str) -> None:
        """Do something to these tables."""
        with psycopg.connect(self.dsn, options=f"-c search_path={self.schema},{self.journal}") as connection:
            connection.execute(sql.encode())

    @property
    def balance(self) -> int:
        """What the customer has."""
        return int(self.look("SELECT balance FROM customer")[0])

    @property
    def withdrawn(self) -> list[str]:
        """The request ids of what was taken from the balance."""
        return sorted(self.look("SELECT request_id FROM withdrawal"))


class ByAsyncpg(Bank):
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        async with self.committing() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def committing(self) -> AsyncIterator[Any]:
        async with asyncpg.create_pool(self.dsn, min_size=1, max_size=1) as pool, pool.acquire() as connection:
            yield connection

    async def run(self, connection: Any, sql: str) -> Any:
        return await connection.fetchval(sql)


class ByPsycopg(Bank):
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(self.dsn) as connection:
            yield connection

    @asynccontextmanager
    async def committing(self) -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            yield connection

    async def run(self, connection: Any, sql: str) -> Any:
        cursor = await connection.execute(sql)
        return (await cursor.fetchone() or [None])[0] if cursor.description else None


class BySqlalchemy(Bank):
    def engine(self, **options: Any) -> Any:
        """By asyncpg."""
        return create_async_engine(
            "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(self.dsn), poolclass=NullPool, **options
        )

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        engine = self.engine()
        async with engine.begin() as connection:
            yield connection
        await engine.dispose()

    @asynccontextmanager
    async def committing(self) -> AsyncIterator[Any]:
        engine = self.engine(isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            yield connection
        await engine.dispose()

    async def run(self, connection: Any, sql: str) -> Any:
        found = await connection.execute(sqlalchemy.text(sql))
        return found.scalar() if found.returns_rows else None


class BySqlalchemyAndPsycopg(BySqlalchemy):
    def engine(self, **options: Any) -> Any:
        return create_async_engine(
            "postgresql+psycopg://",
            async_creator=lambda: psycopg.AsyncConnection.connect(self.dsn),
            poolclass=NullPool,
            **options,
        )


class BySession(BySqlalchemy):
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        engine = self.engine()
        async with AsyncSession(engine) as session, session.begin():
            yield session
        await engine.dispose()

    @asynccontextmanager
    async def committing(self) -> AsyncIterator[Any]:
        engine = self.engine(isolation_level="AUTOCOMMIT")
        async with AsyncSession(engine) as session:
            yield session
        await engine.dispose()


LIBRARIES: dict[str, Callable[[str, str], Bank]] = {
    "asyncpg": ByAsyncpg,
    "psycopg": ByPsycopg,
    "sqlalchemy-asyncpg": BySqlalchemy,
    "sqlalchemy-psycopg": BySqlalchemyAndPsycopg,
    "session": BySession,
}


@contextmanager
def bank(library: str) -> Iterator[Bank]:
    """Its tables, beside a journal that has a namespace of its own: the bank's without ``_bank``."""
    dsn, schema = postgres.dsn(), f"{postgres.new_schema()}_bank"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f"""DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema};
            CREATE TABLE {schema}.customer (balance BIGINT NOT NULL);
            CREATE TABLE {schema}.withdrawal (request_id TEXT);
            CREATE TABLE {schema}.credit (change_id BIGINT);
            INSERT INTO {schema}.customer VALUES ({BALANCE})""".encode()  # noqa: S608
        )
    try:
        yield LIBRARIES[library](dsn, schema)
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
        postgres.give_back()
