"""PostgresJournal: the journal in a PostgreSQL database, for as many machines as use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
import psycopg

from payments_async._values.amounts import amount_text
from payments_async._values.checks import check_instance
from payments_async._values.request_ids import plain_id
from payments_async._values.testing import NOT_TESTING, Testing
from payments_async._wire.bodies import write_order
from payments_async._wire.orders import Order
from payments_async.journal._engine._journal import Journal
from payments_async.journal._faults import (
    JournalClosed,
    JournalRefused,
    JournalUnavailable,
    NotAJournal,
    OrdersDiffer,
    RunUnknown,
)
from payments_async.journal._machine._memory import StateFolder
from payments_async.journal._postgres import _tray
from payments_async.journal._postgres._borrowed import ask
from payments_async.journal._postgres._connection import connected_beside, is_whole
from payments_async.journal._postgres._database import APPLICATION, DEFAULT_SCHEMA, PostgresDatabase
from payments_async.journal._postgres._schema import STEPS, quoted
from payments_async.journal._records import Chunk, Entry, HeldUp, Placed, Staged, TakeoverAuthorisation, body_digest
from payments_async.journal._statements import _puts
from payments_async.journal._versions import Step

_LONGEST = 63  # bytes of a name in PostgreSQL
_LAID_AT_ONCE = 1000  # orders in one statement
_DEAF = (
    "the server's queue of notices is half full, and processes look for each other's commits once a second; end the "
    "session that listens within an open transaction (pg_stat_activity, the oldest xact_start)"
)


class PostgresJournal(Journal):
    """The durable outbox and inbox in a namespace of a PostgreSQL database. Any number of machines may share it.

    What a method returned is on disk there (``synchronous_commit``). The methods and what they promise are those of
    ``Journal``; all who write take turns, so that the database decides in one sequence, as a file does. A process that
    is stopped within a commit loses its turn after some seconds, and what it asked for is not granted. While the
    server restarts, calls raise ``JournalUnavailable``; everybody comes back by themselves.

    A database that was restored, copied or failed over is noticed by what the server says of itself, and by what the
    user's state folder remembers: then nothing is sent before the service's list was read.

    Args:
        dsn: As libpq has it, ``postgresql://user:password@host:5432/name?sslmode=verify-full``; also those of the
            ``PG...`` variables and of a password file that it leaves out. Sessions must be one's own: a pooler lends
            them for as long as they last (``pool_mode = session``).
        schema: The namespace of the tables; made if there is none.
        state_folder: In place of the user's; ``None`` keeps no memory on this machine.
        busy_timeout: Seconds to wait for another process before ``JournalLocked``, and for a server that is started
            anew.
        statement_timeout: Seconds that one statement may take. A server that is silent for five longer counts as gone,
            also where something in between still answers for it.
        allow_unsafe: Also a server whose ``fsync`` or ``full_page_writes`` is off, which may forget after a power cut
            what it sent: for tests.
        second_journal: Who says why the account has a second journal on this machine; kept. Otherwise an account has
            one, and orders of another are refused.
        testing: Another clock in place of the database's, and points to die at, for tests.

    Attributes:
        is_new: Opening it has made it: it knows no earlier payment.
        schema: The namespace.
    """

    _put_all = staticmethod(_tray.put_all)
    _cancel = staticmethod(_tray.cancel)
    _steps: ClassVar[Sequence[Step]] = STEPS

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        state_folder: str | Path | StateFolder | None = StateFolder.OF_USER,
        busy_timeout: float = 10.0,
        statement_timeout: float = 60.0,
        allow_unsafe: bool = False,
        second_journal: TakeoverAuthorisation | None = None,
        testing: Testing = NOT_TESTING,
    ) -> None:
        if not is_whole(dsn):
            raise ValueError(
                "dsn: libpq does not understand it; as in postgresql://user@host/name, with a @ : / of a password as "
                "%40 %3A %2F"
            )
        if not schema or "\0" in schema or len(schema.encode()) > _LONGEST:
            raise ValueError(f"schema: a name of at most {_LONGEST} bytes")
        check_instance("testing", testing, Testing, "Testing(now=...)")
        self.schema = schema
        self._dsn = dsn
        self._namespace = quoted(schema)
        self._pg = partial(
            PostgresDatabase,
            dsn,
            schema=schema,
            state_folder=state_folder,
            busy_timeout=busy_timeout,
            statement_timeout=statement_timeout,
            is_unsafe_allowed=allow_unsafe,
            clock=testing.now,
            steps=self._steps,
        )
        super().__init__(self._make, second_journal=second_journal, crash_at=testing.crash_at)

    def __repr__(self) -> str:
        return f"PostgresJournal({self.place!r})"

    def _make(self) -> PostgresDatabase:
        self._postgres = self._pg()
        return self._postgres

    @asynccontextmanager
    async def session(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """A further connection to its database, in its namespace, for what is kept beside it. Each statement commits.

        Raises:
            JournalUnavailable: The database cannot be reached, or is not any more.
            JournalReadOnly: This user may not do that.
        """
        raw = await connected_beside(self._dsn, schema=self.schema, place=self.place, name=APPLICATION)
        async with raw:
            try:
                yield raw
            except psycopg.Error as error:
                raise await asyncio.to_thread(self._postgres.translated, error) from error

    # Within transactions of the application's own

    @property
    def shares_transactions(self) -> bool:
        return True

    async def lay(
        self,
        name: str,
        order: Order,
        connection: object,
        *,
        not_before: float = 0.0,
        priority: int = 0,
        body: bytes | None = None,
        traceparent: str | None = None,
    ) -> Entry:
        request_id, amount = order.request_id, amount_text(order.amount)
        body = write_order(order) if body is None else body
        digest = body_digest(request_id, amount, body)
        values = (
            *(self._postgres.journal_id, name, request_id, plain_id(request_id), amount, body, digest),
            *(not_before, priority, traceparent),
        )
        answer = await self._ask(connection, _tray.LAY, values)
        verdict = answer["verdict"]
        if verdict == "laid":
            return _tray.planned(name, order, answer["laid_at"])
        if verdict == "no outbox":
            raise RunUnknown(f"the journal has no outbox {name}")
        if verdict == "stuck":
            raise JournalRefused(f"order {request_id} lies in the tray, and could not be taken: {answer['why']}")
        if answer["other_id"] != request_id:
            raise OrdersDiffer.in_letters(request_id, answer["other_id"])
        if bytes(answer["digest"]) != digest:
            what = OrdersDiffer.how(answer["other_amount"], amount)
            raise OrdersDiffer(f"request id {request_id} stands for two different orders: {what}", [request_id])
        return _tray.planned(name, order, answer["laid_at"]) if verdict == "there" else await self._held(order)

    async def lay_all(
        self,
        name: str,
        orders: Sequence[Order],
        connection: object,
        *,
        not_before: float = 0.0,
        priority: int = 0,
        bodies: Sequence[bytes] | None = None,
        traceparent: str | None = None,
    ) -> Sequence[Entry]:
        laid: dict[int, Entry] = {}
        bodies = list(map(write_order, orders)) if bodies is None else bodies
        keys = [plain_id(order.request_id) for order in orders]
        # by their keys, whatever the sequence: so of two transactions with the same orders, one waits for the other
        places = sorted(range(len(orders)), key=keys.__getitem__)
        for start in range(0, len(orders), _LAID_AT_ONCE):
            among = places[start : start + _LAID_AT_ONCE]
            some, written = [orders[place] for place in among], [bodies[place] for place in among]
            ids, amounts = [order.request_id for order in some], [amount_text(order.amount) for order in some]
            digests = list(map(body_digest, ids, amounts, written))
            values = (
                self._postgres.journal_id,
                name,
                ids,
                list(map(keys.__getitem__, among)),
                amounts,
                written,
                digests,
            )
            answer = await self._ask(connection, _tray.LAY_ALL, (*values, not_before, priority, traceparent))
            if answer["verdict"] == "laid":
                laid |= zip(among, (_tray.planned(name, order, answer["laid_at"]) for order in some), strict=True)
                continue
            when: dict[str, Any] = {"not_before": not_before, "priority": priority, "traceparent": traceparent}
            for place, order, body in zip(among, some, written, strict=True):
                laid[place] = await self.lay(name, order, connection, body=body, **when)
        return [laid[place] for place in range(len(orders))]

    async def _held(self, order: Order) -> Entry:
        """An order that was taken before, or put otherwise: as it stands, or as it ended."""
        entry = await self.entry(order.request_id)
        return await self._read(_puts.entry_as_put, order) if entry is None else entry

    async def entry(self, request_id: str) -> Entry | None:
        return (
            await super().entry(request_id)
            or await self._read(_tray.entry, request_id)
            or await super().entry(request_id)  # it was taken between
        )

    async def laid(self, name: str, *, after: int = 0, limit: int = 200, stuck: bool = False) -> Sequence[Staged]:
        return await self._read(partial(_tray.laid, stuck=stuck), name, after, limit)

    async def held_up(self, name: str) -> HeldUp:
        found = await super().held_up(name)
        return attrs.evolve(found, slowed=_DEAF) if self._postgres.is_deaf else found

    async def laid_since(self, seen: int, *, timeout: float) -> int:
        return await self._postgres.tray.beyond(seen, timeout)

    async def count_laid(self, name: str) -> tuple[int, int]:
        return await self._read(_tray.counted, name)

    async def take(
        self,
        name: str,
        numbers: Sequence[int],
        *,
        owner: str | None = None,
        chunk: Chunk | None = None,
        lease: float = 30.0,
        permits: Collection[int] = (),
    ) -> Mapping[int, Placed | Exception]:
        asked: list[_puts.PutRequest] = []

        def asks(number: int, outbox: str, order: Order, not_before: float, priority: int) -> _puts.PutRequest:
            request = _puts.PutRequest(
                outbox=outbox,
                order=order,
                body=write_order(order),
                not_before=not_before,
                priority=priority,
                owner=owner,
                holder=self._database.holder,
                chunk=chunk,
                lease=lease,
                permits=number in permits,
                register=self._registrars.get(name),
            )
            asked.append(request)
            return request

        if self._database.memory is not None and name not in self._registrars:
            raise RunUnknown(f"the outbox {name} was not opened")
        taken = self._submit("take", _tray.take, name, tuple(numbers), asks)
        try:
            return await taken
        except JournalUnavailable:
            for request in asked:
                if request.permits:
                    self._withdraw_unheard(request, taken)
            raise

    async def discard_staged(self, name: str, request_id: str, *, who: str, why: str) -> None:
        await self._submit("discard_staged", _tray.drop, name, request_id, who, why)

    async def mark_told(self, connection: object, change_id: int, handler: str) -> bool:
        values = (self._postgres.journal_id, change_id, handler)
        return bool((await self._ask(connection, _tray.MARK_TOLD, values))["verdict"] == "marked")

    async def was_told(self, change_id: int, handler: str) -> bool:
        return await self._read(_tray.was_told, change_id, handler)

    async def _ask(self, connection: object, sql: str, values: Sequence[object]) -> Mapping[str, Any]:
        """Ask by a connection of the application.

        Raises:
            NotAJournal: That leads to another journal.
            JournalUnavailable: Another program's trigger or rule may drop or change what is written.
        """
        if not self._postgres.journal_id:
            raise JournalClosed("the journal is not open in this process")
        answer = await ask(connection, sql, values, namespace=self._namespace, place=self._postgres.named)
        if answer["changers"] is not None:
            raise self._postgres.changed_by(answer["changers"])
        if answer["verdict"] == "elsewhere":
            raise NotAJournal(f"the connection leads to another journal than {self._postgres.named}")
        return answer
