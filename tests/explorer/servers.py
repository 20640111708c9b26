"""A small world of one journal on a real server: what becomes of each exchange with it, and of its tables.

Two processes share the journal, and an application puts orders within transactions of its own. An action of one process
is taken again and again. Each time something else becomes of one of its exchanges: another process comes first, the
answer is lost, the commit arrives late, the session shows other tables. Then everything goes on to its end. Clocks are
ours: that of the server is a sequence in its database. What was sent is counted beside the journal.

A disk that is put back is imitated: all rows are those of before, and each says that nothing else wrote it.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, TypeVar

import attrs
import psycopg
from explorer.desks import Report
from explorer.files import FileWriter, _here
from explorer.journals import at_once
from journal import postgres
from journal.factories import BATCH, IDENTITY, delivery, event, order, orders, transaction_id
from machine import keep_files_in_memory
from psycopg import sql
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.waiting import Ready, Wait

from payments_async._values.amounts import amount_text
from payments_async._values.threads import Lent
from payments_async._wire.bodies import write_order
from payments_async.journal import JournalError, JournalUnavailable, PostgresJournal, Signal
from payments_async.journal._engine._journal import _withdraw
from payments_async.journal._engine._writer import _Opening
from payments_async.journal._inbox import Arrival
from payments_async.journal._postgres import _connection, _database, _pool
from payments_async.journal._postgres._connection import PgConnection
from payments_async.journal._records import body_digest
from payments_async.journal._statements._entries import chunk_of, run_of
from payments_async.journal.contract import Chunk, Evidence, Outcome, Permit, Placed

T = TypeVar("T")
SHOP, HERE, THERE = "shop", "payments", "elsewhere"
_BEGUN = 1_000_000  # Unix seconds
_LEASE = 30.0
_MOMENT = 20  # real milliseconds without an answer, after which it is asked whether a lock is waited for
_SOONEST = 5
_CLOCK = f"""SET allow_system_table_mods = on;
    ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO clock_timestamp_of_the_machine;
    CREATE SEQUENCE public.tick START {_BEGUN * 1000};
    CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    $$SELECT to_timestamp(nextval('public.tick') / 1000.0)$$"""
_LIVES = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
_BLOCKED = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
ONE, OTHER = order(0, batch=SHOP), order(0, "7.00", batch=SHOP)
_WORK = (
    "outbox",
    "chunk",
    "claim",
    "progress",
    "attempt",
    "evidence",
    "tray",
)  # tables that a dump of orders puts back


class Died(BaseException):
    """A process is killed."""


class Here(Lent):
    """A connection of the application, asked in the thread that asks."""

    async def run(self, work: Callable[[], T]) -> T:
        return work()


class ServerWriter(FileWriter):
    """Commits each operation by itself, without a thread, and lends its session to others between two commits."""

    def begin(self) -> None:
        self._opening.database = self._database
        self._opening.borrow()
        self._opening.is_open = True
        self._opening.give_back()

    def submit(self, name: str, work: Any, **options: Any) -> Any:
        done = super().submit(name, work, **options)
        self._opening.give_back()
        return done


class ServerJournal(PostgresJournal):
    """A journal in a database, in the thread that asks.

    Args:
        number: Of the process, which has sessions of its own.
    """

    def __init__(self, number: int, schema: str = HERE, state: Path | None = None) -> None:
        self.number = number
        super().__init__(f"{_server()}&connect_timeout={60 + number}", schema=schema, state_folder=state)
        self._writer: ServerWriter = ServerWriter(self._database)
        self.owed: list[tuple[Any, str]] = []  # permits that nobody heard of, to be given back

    def begin(self) -> None:
        """Open it. Raises ``JournalError``."""
        self._registrars, self._uids = {}, {}
        self._writer._opening = _Opening()
        try:
            self._writer.begin()
        except BaseException:
            self._database.close()
            raise
        self._unseen_at = self._database.unseen_at
        self._postgres.holder = f"process {self.number}"

    async def _read(self, read: Callable[..., T], *arguments: Any) -> T:
        opening = self._writer._opening
        try:
            return read(opening.borrow(), *arguments)
        except psycopg.Error as error:
            raise self._database.translated(error) from error
        finally:
            opening.give_back()

    def _give_back(self, request: Any, why: str) -> None:
        """What could not be given back is tried again later."""
        self.owed.append((request, why))
        self.pay_debts()

    def pay_debts(self) -> None:
        """Give back what nobody heard of."""
        debts, self.owed = self.owed, []
        for request, why in debts:
            done = self._submit("withdraw", _withdraw, request, why)
            if isinstance(done.exception(), JournalUnavailable):
                self.owed.append((request, why))

    def end(self) -> None:
        """Close it."""
        self._writer.end()
        self._database.close()


@cache
def _server() -> str:
    """A database of this search alone, in the server of the tests, whose user may do everything there."""
    name = f"explored_{os.getpid()}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    return str(postgres.dsn().replace(psycopg.conninfo.conninfo_to_dict(postgres.dsn())["dbname"], name))


class Clock:
    """Stands until time passes; for the server as well."""

    def __init__(self, beside: psycopg.Connection) -> None:
        self._beside = beside
        self.now = float(_BEGUN)

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        passed = int(seconds * 1000)
        self._beside.execute("SELECT setval('public.tick', last_value + %s) FROM public.tick", [passed])


Do: TypeAlias = Callable[["World"], None]
Fate: TypeAlias = Callable[["World", Any, Any], Any]


@attrs.define(eq=False)
class World:
    """Two processes, an application beside them, and what was sent.

    Attributes:
        at, fate: Which exchange of the first process is struck, counted from when it is armed, and what becomes of it.
        sent: How often each order was.
        put, laid: The digests of orders that a process was told it has put, and of those that an application committed.
        shown: Orders that a list has shown before they were put.
        unsaid: Outcomes that are not written down yet.
        is_whole: All that was put is to be sent in the end.
    """

    beside: psycopg.Connection
    clock: Clock
    state: Path | None = None
    acting: int = 0
    at: int = -1
    fate: Fate | None = None
    seen: list[TransactionStatus] = attrs.field(factory=list)
    commits: int = 0
    sent: Counter[str] = attrs.field(factory=Counter)
    put: dict[str, bytes] = attrs.field(factory=dict)
    laid: dict[str, bytes] = attrs.field(factory=dict)
    shown: set[str] = attrs.field(factory=set)
    notified: set[str] = attrs.field(factory=set)
    unsaid: list[Outcome] = attrs.field(factory=list)
    wants: list[Any] = attrs.field(factory=list)
    chunks: dict[tuple[int, str], Chunk] = attrs.field(factory=dict)
    late: list[tuple[Any, Any]] = attrs.field(factory=list)
    processes: dict[int, ServerJournal] = attrs.field(factory=dict)
    is_whole: bool = True
    is_exchanged: bool = False
    refused: list[JournalError] = attrs.field(factory=list)
    kept: list[Outcome] = attrs.field(factory=list)  # what another process has to write down
    wrong: str = ""

    # the wire

    def cut(self, raw: Any) -> None:
        """A connection is lost, and the server has noticed it."""
        if raw.pgconn.status != ConnStatus.OK:
            return
        session = raw.pgconn.backend_pid
        raw.pgconn.finish()
        while self.beside.execute(_LIVES, [session]).fetchone() is not None:
            pass

    def exchange(self, raw: Any, asked: Any) -> Any:
        """One exchange with the server, and what becomes of it."""
        if _is_late(self, raw):
            raise psycopg.OperationalError("the connection was lost")
        if self.acting == 1 and self.fate is not None and self.fate is not _failed:
            self.seen.append(raw.pgconn.transaction_status)
            if len(self.seen) == self.at + 1:
                return self.fate(self, raw, asked)
        return self.wait(raw, asked)

    def commit(self, connection: Any, commit: Callable[[Any], None]) -> None:
        """The commit of what was done statement by statement."""
        if self.acting == 1 and self.fate is not None:
            self.commits += 1
            if self.fate is _failed and self.commits == self.at + 1:
                connection.raw.pgconn.exec_(b"SELECT 1 / 0")
        commit(connection)

    def wait(self, raw: Any, asked: Any, *, blocked: Callable[[], object] | None = None) -> Any:
        """Let the server answer; one that waits for a lock, which nobody would let go of, gives up at once.

        Args:
            blocked: What is done in place of that, the first time.
        """
        try:
            awaited = next(asked)
            while True:
                poller = select.poll()
                poller.register(
                    raw.pgconn.socket,
                    (select.POLLIN if awaited & Wait.R else 0) | (select.POLLOUT if awaited & Wait.W else 0),
                )
                while not (found := poller.poll(_MOMENT)):
                    if self.beside.execute(_BLOCKED, [raw.pgconn.backend_pid]).fetchone() == (True,):
                        if blocked is None:
                            self.beside.execute("SELECT pg_cancel_backend(%s)", [raw.pgconn.backend_pid])
                        else:
                            blocked()
                            blocked = None
                got = found[0][1]
                is_readable = got & (select.POLLIN | select.POLLHUP | select.POLLERR)
                awaited = asked.send(Ready((Ready.R if is_readable else 0) | (Ready.W if got & select.POLLOUT else 0)))
        except StopIteration as end:
            return end.value
        except psycopg.errors.QueryCanceled as error:
            raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout") from error

    def by(self, number: int, do: Callable[[ServerJournal], Coroutine[Any, Any, T]]) -> T | None:
        """Let a process do something; what is refused is not done."""
        acting, self.acting = self.acting, number
        try:
            return at_once(do(self.processes[number])) if number in self.processes else None
        except JournalError as error:
            self.refused.append(error)
            return None
        finally:
            self.acting = acting

    def rows(self, text: str, *values: Any, schema: str = HERE) -> list[tuple[Any, ...]]:
        """Read the tables."""
        self.beside.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        return self.beside.execute(text.encode(), values).fetchall()

    # what processes do

    def begin(self, number: int, schema: str = HERE, *, of: int = 0) -> None:
        """A process begins, which may be a further journal of another one."""
        acting, self.acting = self.acting, number
        journal = ServerJournal(of or number, schema, self.state)
        try:
            journal.begin()
        except JournalError:
            return
        finally:
            self.acting = acting
        self.processes[number] = journal
        self.by(number, lambda journal: journal.open_outbox(SHOP, IDENTITY))

    def end(self, number: int) -> None:
        """A process ends."""
        if (journal := self.processes.pop(number, None)) is not None:
            journal.end()

    def kill(self, number: int) -> None:
        """A process is killed: its machine closes its connections."""
        journal = self.processes.pop(number)
        pool = journal._postgres._pool
        for one in (*pool._idle, *pool._lent):
            self.cut(one.raw)
        journal._database.close()

    async def load(self, journal: ServerJournal) -> None:
        await journal.open_run(BATCH, IDENTITY)
        await journal.load(BATCH, orders(2), owner="loader")

    async def pay(self, journal: ServerJournal, one: Any = ONE) -> None:
        """Put an order, to be sent at once."""
        if one not in self.wants:
            self.wants.append(one)
        key = journal.number, SHOP
        placed = await journal.put(
            SHOP, one, owner=f"worker {journal.number}", chunk=self.chunks.get(key), lease=_LEASE, permits=True
        )
        await self._placed(journal, one, placed)

    async def _placed(self, journal: ServerJournal, one: Any, placed: Placed) -> None:
        digest = _digest(one)
        if self.put.setdefault(one.request_id, digest) != digest:
            self.wrong = f"two orders were put under the id {one.request_id}"
        if placed.chunk is not None:
            self.chunks[journal.number, SHOP] = placed.chunk
        if placed.permit is not None:
            await self._leaves(journal, placed.permit)

    async def _leaves(self, journal: ServerJournal, permit: Permit) -> None:
        """Send what was permitted, and write down what became of it."""
        found = self.rows(
            "SELECT state, attempt FROM outbox WHERE request_id = %s", permit.request_id, schema=journal.schema
        )
        if found != [("sending", permit.attempt)]:
            self.wrong = self.wrong or f"order {permit.request_id} was permitted, and stands as {found}"
        if permit.request_id in self.shown:
            self.wrong = self.wrong or f"order {permit.request_id} was permitted, and a list has shown it"
        if not self._is_leased(permit, journal.schema):
            self.wrong = self.wrong or f"order {permit.request_id} was permitted under a lease that is over"
        self.sent[permit.request_id] += 1
        if self.sent[permit.request_id] > 1:
            self.wrong = self.wrong or f"order {permit.request_id} was sent twice"
        number = int(permit.request_id.rpartition("-")[2])
        self.unsaid.append(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(number)))

    def _is_leased(self, permit: Permit, schema: str) -> bool:
        found = self.rows(
            """SELECT c.lease_until > extract(epoch FROM clock_timestamp()) FROM outbox o
            JOIN chunk c ON c.run = %s AND c.number = %s WHERE o.id = %s AND c.token = o.token""",
            run_of(permit.id), chunk_of(permit.id), permit.id, schema=schema,
        )  # fmt: skip
        return bool(found) and bool(found[0][0])

    async def record(self, journal: ServerJournal) -> None:
        """Write down what became of what was sent."""
        while self.unsaid:
            await journal.record(self.unsaid[0])
            del self.unsaid[0]

    async def answer(self, journal: ServerJournal) -> None:
        """Write down what another process was answered."""
        while self.kept:
            await journal.record(self.kept[0])
            del self.kept[0]

    async def claim(self, journal: ServerJournal, batch: str = BATCH) -> Chunk | None:
        """Take orders that others may send."""
        owner = f"worker {journal.number}"
        chunk = await journal.claim_chunk(batch, owner, lease=_LEASE)
        if chunk is not None:
            self.chunks[journal.number, batch] = chunk
        return chunk

    async def permit(self, journal: ServerJournal, batch: str = BATCH) -> None:
        """Send the first order of what was claimed."""
        chunk = self.chunks.get((journal.number, batch))
        for claimed in chunk.orders[:1] if chunk is not None else ():
            permit = await journal.permit(chunk, claimed)
            if isinstance(permit, Permit):
                await self._leaves(journal, permit)

    async def send(self, journal: ServerJournal, batch: str) -> None:
        """Claim orders, and send all of them."""
        while (chunk := await self.claim(journal, batch)) is not None:
            for claimed in chunk.orders:
                permit = await journal.permit(chunk, claimed)
                if isinstance(permit, Permit):
                    await self._leaves(journal, permit)
                    await self.record(journal)
            await journal.release_chunk(chunk)
            del self.chunks[journal.number, batch]

    async def take(self, journal: ServerJournal) -> None:
        """Take what applications have laid, and send it."""
        numbers = [one.id for one in await journal.laid(SHOP)]
        if not numbers:
            return
        key = journal.number, SHOP
        taken = await journal.take(
            SHOP, numbers, owner=f"worker {journal.number}", chunk=self.chunks.get(key), lease=_LEASE, permits=numbers
        )
        for placed in taken.values():
            if isinstance(placed, Placed):
                if placed.chunk is not None:
                    self.chunks[key] = placed.chunk
                if placed.permit is not None:
                    await self._leaves(journal, placed.permit)

    async def hear(self, journal: ServerJournal, number: int = 20) -> None:
        """A notification comes."""
        arrival = Arrival(
            delivery=delivery(b"%d" % number, at=self.clock.now), event=_event(number), lease=0.0, doubt=None
        )
        (receipt,) = await journal.receive_all((arrival,), owner="receiver")
        if not isinstance(receipt, Exception):
            self.notified.add(_event(number).request_id or "")

    async def show(self, journal: ServerJournal) -> None:
        """A list shows an order that the journal does not hold."""
        shown = Evidence(
            signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", request_id=ONE.request_id, amount=ONE.amount,
            transaction_id=transaction_id(0), currency="UGX",
        )  # fmt: skip
        await journal.note_observed([shown])
        self.shown.add(ONE.request_id)

    async def take_over(self, journal: ServerJournal) -> None:
        """A lease is over, and another process has the orders."""
        self.clock.sleep(_LEASE + 1.0)
        await journal.expire_chunks()
        for batch in (BATCH, SHOP):
            await self.send(journal, batch)

    # what the application does

    def lay(self, one: Any, *, body: bytes | None = None, ends: str = "COMMIT") -> psycopg.Connection | None:
        """Put an order within a transaction that is committed, undone or left open, which is returned then."""
        connection = psycopg.connect(_server())
        journal = next(iter(self.processes.values()))
        try:
            at_once(journal.lay(SHOP, one, Here(connection), body=body))
        except JournalError:
            ends = "ROLLBACK"
        if not ends:
            return connection
        connection.execute(ends.encode())
        connection.close()
        if ends == "COMMIT":
            self.laid[one.request_id] = _digest(one, body)
        return None

    def close(self) -> None:
        """Nothing of it is left."""
        for number in list(self.processes):
            self.end(number)
        if self.state is not None:
            shutil.rmtree(self.state, ignore_errors=True)

    # rules

    def arrive(self) -> None:
        """What was on its way arrives now, and nobody is there any more who would hear an answer."""
        for raw, asked in self.late:
            with suppress(psycopg.Error):
                self.wait(raw, asked)
            self.cut(raw)
        self.late.clear()

    def finish(self) -> None:
        """All that is wanted is asked for again, by processes to which nothing happens any more."""
        self.fate = None
        self.arrive()
        for _ in range(3):
            self.clock.sleep(_LEASE + 1.0)
            if 1 not in self.processes:
                self.begin(1)
            before = len(self.refused)
            if 1 in self.processes:
                self._goes_on(1)
                if len(self.refused) == before:
                    break

    def _goes_on(self, number: int) -> None:
        self.processes[number].pay_debts()
        self.chunks = {}
        for do in (
            self.record, lambda journal: journal.expire_chunks(), self.take, self.record,
            *(partial(self._again, one) for one in self.wants), self.record, self.release,
            partial(self.send, batch=BATCH), partial(self.send, batch=SHOP),
        ):  # fmt: skip
            self.by(number, do)

    async def release(self, journal: ServerJournal) -> None:
        """Give back what is held."""
        chunks, self.chunks = self.chunks, {}
        for chunk in chunks.values():
            await journal.release_chunk(chunk)

    async def _again(self, one: Any, journal: ServerJournal) -> None:
        await self.pay(journal, one)

    def judge(self) -> None:
        """What must hold in the end."""
        found = {
            request_id: (bytes(digest), state)
            for request_id, digest, state in self.rows("SELECT request_id, body_sha256, state FROM outbox")
        }
        staged = dict(self.rows("SELECT request_id, body_sha256 FROM tray"))
        counts = dict(
            self.rows("SELECT state, CAST(sum(count) AS BIGINT) FROM progress GROUP BY state HAVING sum(count) <> 0")
        )
        if counts != Counter(state for _, state in found.values()):
            self.wrong = self.wrong or f"the journal counts {counts}, and its orders are {found}"
        for request_id, digest in self.put.items():
            if found.get(request_id, (b"", ""))[0] != digest:
                self.wrong = self.wrong or f"order {request_id} was put, and is not there as it was"
        for request_id, digest in self.laid.items():
            if digest not in (found.get(request_id, (b"", ""))[0], staged.get(request_id)):
                self.wrong = self.wrong or f"order {request_id} was laid, and is not there as it was"
        for request_id, (_, state) in found.items():
            if state == "sending":
                self.wrong = self.wrong or f"order {request_id} is being sent by nobody"
            if request_id in self.notified and state != "successful":
                self.wrong = self.wrong or f"order {request_id} is {state}, and a notification says that it succeeded"
            if self.is_whole and request_id not in self.shown and not self.sent[request_id]:
                self.wrong = self.wrong or f"order {request_id} is {state}, and is never sent"


def _event(number: int) -> Any:
    return event(0, number)


def _digest(one: Any, body: bytes | None = None) -> bytes:
    return body_digest(one.request_id, amount_text(one.amount), write_order(one) if body is None else body)


# What becomes of an exchange


def _first(do: Do) -> Fate:
    """Something is done elsewhere before it."""

    def fate(world: World, raw: Any, asked: Any) -> Any:
        world.fate = None
        do(world)
        return world.wait(raw, asked)

    return fate


def _by_another(do: Callable[[World, ServerJournal], Coroutine[Any, Any, object]]) -> Fate:
    """Another process does something before it, and writes down what it has sent."""

    def done(world: World) -> None:
        kept, world.unsaid = world.unsaid, []
        world.by(2, partial(do, world))
        world.by(2, world.record)
        world.unsaid = kept + world.unsaid

    return _first(done)


def _lost(world: World, raw: Any, asked: Any) -> Any:
    """It is done, and its answer is lost."""
    world.wait(raw, asked)
    world.cut(raw)
    raise psycopg.OperationalError("the connection was lost")


def _ended(world: World, raw: Any, _: Any) -> Any:
    """The session is ended before it."""
    world.cut(raw)
    raise psycopg.OperationalError("the connection was lost")


def _delayed(world: World, raw: Any, asked: Any) -> Any:
    """The connection is lost, and it arrives all the same, later."""
    world.late.append((raw, asked))
    raise psycopg.OperationalError("the connection was lost")


def _failed(world: World, raw: Any, asked: Any) -> Any:
    """Before a commit, a statement of its transaction has failed, of which nobody has heard."""
    raise AssertionError("commits are struck, and not exchanges")


def _turned(world: World, raw: Any, asked: Any) -> Any:
    """A stranger has turned the session to the tables of another journal."""
    _make_alike(world)
    raw.pgconn.exec_(f"SET search_path = {THERE}".encode())
    return world.wait(raw, asked)


def _exchanged(world: World, raw: Any, asked: Any) -> Any:
    """While it waits for a lock, the tables are exchanged for those of another journal."""
    _make_alike(world)
    with psycopg.connect(_server()) as other:
        other.execute(f"LOCK TABLE {HERE}.outbox".encode())

        def exchange() -> None:
            _rename(other)
            other.commit()
            world.is_exchanged = True

        try:
            return world.wait(raw, asked, blocked=exchange)
        finally:
            other.rollback()


def _make_alike(world: World) -> None:
    """Have the other journal hold the same rows: only its id is another one."""
    put_back(world, into=THERE, as_disk=True, of=HERE)
    world.beside.execute(f"UPDATE {THERE}.meta SET value = 'another' WHERE key = 'journal_id'".encode())


def _rename(connection: psycopg.Connection) -> None:
    for old, new in ((HERE, "free"), (THERE, HERE), ("free", THERE)):
        connection.execute(f"ALTER SCHEMA {old} RENAME TO {new}".encode())


def _died(_: World, raw: Any, __: Any) -> Any:
    """The process is killed before it."""
    raise Died


NOTHING, FAILED = "nothing", "a statement before its commit has failed"
FATES: dict[str, Fate] = {
    NOTHING: World.wait,
    "another process puts it before": _by_another(World.pay),
    "another process puts another order of its id before": _by_another(lambda world, other: world.pay(other, OTHER)),
    "a list shows it before": _by_another(World.show),
    "another process takes over before": _by_another(World.take_over),
    "another process writes an answer down before": _by_another(World.answer),
    "an application lays it before": _first(lambda world: world.lay(ONE)),
    "an application lays another order of its id before": _first(lambda world: world.lay(OTHER)),
    "its answer is lost": _lost,
    "the session is ended before it": _ended,
    "the connection is lost, and it arrives later": _delayed,
    "it arrives three seconds later": _first(lambda world: world.clock.sleep(3.0)),
    "it arrives when the lease is over": _first(lambda world: world.clock.sleep(_LEASE + 1.0)),
    FAILED: _failed,
    "the session is turned to another journal": _turned,
    "the tables are exchanged meanwhile": _exchanged,
    "the process is killed": _died,
}
HEARD = "a notification comes"
OF_HEARD = "another process writes an answer down before", "its answer is lost", "the tables are exchanged meanwhile"
ACTIONS: dict[str, Callable[[World, ServerJournal], Coroutine[Any, Any, object]]] = {
    "an order is put": World.pay,
    "orders are taken": World.take,
    "an order is permitted": World.permit,
    "an answer is written down": World.record,
    HEARD: World.hear,
}


def _prepared(world: World) -> None:
    """A process that has paid before, with a batch that it holds, an order of another one, and one that waits."""
    world.begin(1)
    world.by(1, world.load)
    for number in (7, 8):
        world.by(1, partial(world.pay, one=order(number, batch=SHOP)))
    world.by(1, world.record)
    world.by(1, world.claim)
    world.lay(order(30, batch=SHOP))


def _with_another(world: World) -> None:
    """Another process has sent an order, and the first one as well: both have no answer yet."""
    world.begin(2)
    world.by(2, partial(world.pay, one=order(20)))
    world.kept, world.unsaid = world.unsaid, []
    world.by(1, partial(world.pay, one=order(9, batch=SHOP)))


def struck(world: World, first: str, fate: str, at: int) -> None:
    """An action, one exchange of which is struck."""
    _prepared(world)
    _with_another(world)
    world.at, world.fate = at, FATES[fate]
    try:
        world.by(1, partial(ACTIONS[first], world))
    except Died:
        world.is_whole = False
        world.kill(1)
    world.fate = None
    if world.is_exchanged:
        _rename(world.beside)
    world.unsaid = world.kept + world.unsaid
    world.finish()
    world.judge()


def places(fate: Fate, seen: World) -> Iterator[int]:
    """Which exchanges of an action fate strikes: what comes of those within a transaction shows with its last one."""
    if fate is _failed:
        yield from range(seen.commits)
        return
    for at, status in enumerate(seen.seen):
        is_last = (*seen.seen, TransactionStatus.IDLE)[at + 1] == TransactionStatus.IDLE
        if status == TransactionStatus.IDLE or (fate is _lost and is_last):
            yield at


# What becomes of tables


def _tables(world: World) -> list[str]:
    return [name for (name,) in world.rows("SELECT tablename FROM pg_tables WHERE schemaname = %s", HERE)]


def save(world: World) -> None:
    """Keep all rows."""
    world.beside.execute("DROP SCHEMA IF EXISTS saved CASCADE; CREATE SCHEMA saved")
    for table in _tables(world):
        world.beside.execute(f"CREATE TABLE saved.{table} AS TABLE {HERE}.{table}".encode())


def put_back(
    world: World, tables: Sequence[str] = (), *, into: str = HERE, as_disk: bool = False, of: str = "saved"
) -> None:
    """Put rows back, into all tables or some; as a disk that is put back has them, or as from a dump."""
    with psycopg.connect(_server()) as connection:
        connection.execute("SET session_replication_role = replica")
        for table in tables or _tables(world):
            connection.execute(f"DELETE FROM {into}.{table}".encode())
            connection.execute(f"INSERT INTO {into}.{table} OVERRIDING SYSTEM VALUE TABLE {of}.{table}".encode())
        if as_disk:
            itself = "CAST(txid_current() & 4294967295 AS TEXT)"
            connection.execute(f"UPDATE {into}.meta SET value = {itself} WHERE key = 'written'".encode())


def _disk(world: World) -> None:
    put_back(world, as_disk=True)


def _promoted(world: World) -> None:
    """Another server is promoted, which is behind: it says so, and the machine is new."""
    put_back(world, as_disk=True)
    assert world.state is not None
    shutil.rmtree(world.state)
    world.beside.execute(f"UPDATE {HERE}.meta SET value = value || ' promoted' WHERE key = 'epoch'".encode())


def _copy_goes_on(world: World) -> None:
    """A copy of the server, which is behind, is used elsewhere on the machine."""
    put_back(world, into=THERE, as_disk=True)
    world.begin(2, THERE)
    for _ in range(2):
        world.by(2, partial(world.send, batch=BATCH))
        world.by(2, world.take)
        world.by(2, world.record)
    world.end(2)


TOUCHES: dict[str, Do] = {
    "the disk of its server is put back": _disk,
    "its orders are put back from a dump": lambda world: put_back(world, _WORK),
    "all of its rows are put back from a dump": put_back,
    "a server that is behind is promoted": _promoted,
    "a copy of it goes on elsewhere": _copy_goes_on,
}
OPENINGS = (FAILED,)  # what becomes of the opening that follows
LEFT_OPEN = "a copy of it goes on elsewhere"


def restored(world: World, first: str, fate: str, at: int) -> None:
    """What was sent since a copy was made is not sent again."""
    world.is_whole = False
    world.state = Path(tempfile.mkdtemp(prefix="servers-"))
    world.begin(1)
    world.by(1, world.load)
    world.lay(order(30, batch=SHOP))
    save(world)
    if first == LEFT_OPEN:
        TOUCHES[first](world)
    else:
        for do in (world.claim, world.permit, world.take, world.record):
            world.by(1, do)
        world.end(1)
        TOUCHES[first](world)
        world.at, world.fate = at, FATES[fate]
        world.begin(1)
    world.finish()
    world.judge()


def _undone(world: World) -> None:
    """A transaction is undone, and another one is open while orders are taken."""
    world.lay(ONE, ends="ROLLBACK")
    other = order(1, batch=SHOP)
    open_one = world.lay(other, ends="")
    assert open_one is not None
    world.by(1, world.take)
    open_one.commit()
    open_one.close()
    world.laid[other.request_id] = _digest(other)


def _put_beside(world: World) -> None:
    """Another order of the same id is put while the transaction is open."""
    open_one = world.lay(ONE, ends="")
    assert open_one is not None
    world.by(1, partial(world.pay, one=OTHER))
    open_one.commit()
    open_one.close()
    world.laid[ONE.request_id] = _digest(ONE)
    world.by(1, world.take)


def _put_after(world: World) -> None:
    """Another order of the same id is put afterwards."""
    world.lay(ONE)
    world.by(1, partial(world.pay, one=OTHER))


def _of_another_version(world: World) -> None:
    """What lies there was written otherwise than by this version of the package."""
    world.lay(ONE, body=write_order(ONE).replace(b"{", b"{ ", 1))
    world.by(1, world.take)


def _tenants(world: World) -> None:
    """Two journals of one process take turns by one session."""
    postgres._empty(world.beside, THERE)
    world.begin(3, THERE, of=1)
    for number in range(3):
        for process in (1, 3):
            world.by(process, lambda journal, number=number: journal.put(SHOP, order(40 + number, batch=SHOP)))
    if world.refused:
        world.wrong = (
            world.wrong or f"nothing hinders two journals, and it is refused ({type(world.refused[0]).__name__})"
        )


SCENES: dict[str, Do] = {
    "transactions are undone, and open for long": _undone,
    "another order is put beside an open transaction": _put_beside,
    "another order is put after one that was laid": _put_after,
    "an order is laid by another version": _of_another_version,
    "two journals take turns": _tenants,
}


def played(world: World, scene: str) -> None:
    """A scene, after which all goes on."""
    _prepared(world)
    SCENES[scene](world)
    world.finish()
    world.judge()


def histories(made: Sequence[World]) -> Iterator[tuple[tuple[str, ...], Callable[[World], object]]]:
    """All of them, in words, and what plays each."""
    for scene in SCENES:
        yield (scene,), partial(played, scene=scene)
    plays: tuple[tuple[Any, Any, Any], ...] = ((restored, TOUCHES, OPENINGS), (struck, ACTIONS, FATES))
    for play, firsts, fates in plays:
        for first in firsts:
            yield (first,), partial(play, first=first, fate=NOTHING, at=-1)
            seen = made[-1]
            for fate in fates if first != HEARD else OF_HEARD:
                for at in places(FATES[fate], seen):
                    yield (first, f"exchange {at + 1}", fate), partial(play, first=first, fate=fate, at=at)


def search() -> Report:
    """See all histories."""
    began, count, wrong, history = time.perf_counter(), 0, "", ()
    keep_files_in_memory()
    impatient: Any = _connection._Impatient
    kept = {name: impatient.__dict__.get(name) for name in ("wait", "close", "closed")}
    close, commit = impatient.close, PgConnection.commit
    modules = [(_database, "time"), (_connection, "_PLANNED_ANEW"), (_pool, "_KEPT"), (asyncio, "to_thread")]
    was = [(module, name, vars(module)[name]) for module, name in modules]
    made: list[World] = []
    with psycopg.connect(_server(), autocommit=True) as beside:
        beside.execute(_CLOCK.encode())
        clock = Clock(beside)
        try:
            impatient.wait = lambda raw, asked, *_, **__: made[-1].exchange(raw, asked)
            impatient.close = lambda raw: None if _is_late(made[-1], raw) else close(raw)
            PgConnection.commit = lambda connection: made[-1].commit(connection, commit)
            impatient.closed = property(lambda raw: _is_late(made[-1], raw) or psycopg.Connection.closed.fget(raw))
            vars(_database)["time"] = SimpleNamespace(time=clock.time, monotonic=clock.monotonic, sleep=clock.sleep)
            vars(_connection)["_PLANNED_ANEW"], vars(_pool)["_KEPT"] = math.inf, 1
            asyncio.to_thread = _here  # type: ignore[assignment]
            made.append(World(beside, clock))
            keeping = [ServerJournal(number, schema) for number in (1, 2) for schema in (HERE, THERE)]
            for journal in keeping:
                journal.begin()
                if journal.schema == HERE:
                    journal.end()  # the other one stays, so that sessions do
            for words, play in histories(made):
                count += 1
                postgres._empty(beside, HERE)
                world = World(beside, clock)
                made.append(world)
                try:
                    play(world)
                finally:
                    world.close()
                if world.wrong:
                    wrong, history = world.wrong, words
                    break
            for journal in keeping[1::2]:
                journal.end()
        finally:
            PgConnection.commit = commit
            for name, value in kept.items():
                if value is None:
                    delattr(impatient, name)
                else:
                    setattr(impatient, name, value)
            for module, name, before in was:
                vars(module)[name] = before
    return Report(name="servers", states=count, seconds=time.perf_counter() - began, wrong=wrong, history=history)


def _is_late(world: World, raw: Any) -> bool:
    return any(one is raw for one, _ in world.late)
