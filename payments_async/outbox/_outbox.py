"""The outbox: pays once, whatever happens, and tells what became of it."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar, overload

import attrs

from payments_async._session.exchanges import heard_by_every_block
from payments_async._session.session import PaymentsSession, check_session, executor_of
from payments_async._values.checks import (
    check_filled,
    check_instance,
    check_number,
    check_patience,
    check_whole,
)
from payments_async._values.deadlines import Deadlines
from payments_async._values.errors import InvalidOrder
from payments_async._values.handlers import ErrorHook, HandlerPolicy
from payments_async._values.tasks import Tasks
from payments_async._values.testing import NOT_TESTING, Testing
from payments_async._values.threads import HomeLoop, Lent, in_thread
from payments_async._wire.bodies import private_texts, write_order
from payments_async._wire.call import Call
from payments_async._wire.models import Acceptance
from payments_async._wire.orders import CollectionOrder, Order, PayoutOrder
from payments_async.journal import Journal
from payments_async.journal._faults import JournalClosed, JournalUnavailable, OrdersDiffer, OrderUnknown
from payments_async.journal._places import check_journal
from payments_async.journal._records import (
    INTERVAL,
    Entry,
    Evidence,
    Loaded,
    Outcome,
    Placed,
    Staged,
    TakeoverAuthorisation,
    ended,
)
from payments_async.journal._states import FINAL, UNSENT, State
from payments_async.outbox._brakes import Fuse
from payments_async.outbox._changes import ChangeHandlers
from payments_async.outbox._health import OutboxHealth, in_order, problem
from payments_async.outbox._listening import SOON, ChangeListener
from payments_async.outbox._scans import account_of
from payments_async.outbox._sending import Collector, OrderSender
from payments_async.outbox._sent_by_session import is_held, may_have_sent, sent_by_session
from payments_async.outbox._settings import IDLE, WorkerSettings, plan_of
from payments_async.outbox._settling import Settler
from payments_async.outbox._standing import ChunkEnd, OutboxWorker
from payments_async.outbox._worker_pool import Handed

C = TypeVar("C")
H = TypeVar("H", bound=Callable[[Entry], Awaitable[object]])
R = TypeVar("R")
T = TypeVar("T")
X = TypeVar("X", bound=ErrorHook)
_log = logging.getLogger("payments_async")

_SENDER = "sender"
_LAST_LOOK = 0.25  # seconds that the journal has to tell how an order stands whose caller waits no longer
_LOOKING = "it has just begun: what the journal may have forgotten is looked for before anything is sent"
_PAGE = 1000  # changes read at once


class Outbox:
    """Pays once from an application: an order is on disk when ``put`` returns, and a worker of the journal sends it.

    Idempotent by request id. The same order again gives the same entry, from any process of the journal; another order
    under the same id is refused. An answer, a notification or the service's list settles it; otherwise it is parked for
    a person. An order that may have reached the service is never sent again.

    Use it as ``async with Outbox(...)``, while its session and its journal are open. ``Payments`` opens all three.
    A session or a journal that is closed before it lets it finish first.

    Args:
        payments: An open session when the outbox is opened.
        journal: An open journal then; the receiver's inbox too, so that notifications settle orders.
        name: Of the outbox in the journal. Processes with the same name on one journal share the work.
        concurrency: Orders under way at once in this process. Keep the session's ``Limits`` at least as high.
        rate: Orders a second that may be begun by all together who send from this journal, on any machine. The lowest
            counts that any of them asks for; the journal keeps it for those that ask for none, until another one is
            asked for. Infinity asks for no limit. Nothing else waits for it: no notification, no look-up.
        fuse: Rules that pause the outbox until a person resumes it; never by default.
        policy: How patiently handlers are run, and how many at once. Its ``poll`` is also how often this process looks
            for what another one left behind: chunks, while it has any, and the duty of looking up what is open.
        worker: The work of this process. ``None``: it puts and waits, and another process sends.
        testing: Another clock, for tests.

    >>> outbox = Outbox(SESSION, JOURNAL, "refunds", concurrency=20)
    >>> outbox.name
    'refunds'
    """

    _loop: asyncio.AbstractEventLoop | None = None  # that it was opened in

    def __init__(
        self,
        payments: PaymentsSession,
        journal: Journal,
        name: str = "outbox",
        *,
        concurrency: int = 50,
        rate: float | None = None,
        fuse: Fuse | None = None,
        policy: HandlerPolicy = HandlerPolicy(),  # noqa: B008 - frozen
        worker: WorkerSettings | None = WorkerSettings(),  # noqa: B008 - frozen
        testing: Testing = NOT_TESTING,
    ) -> None:
        check_session(payments)
        check_journal(journal)
        check_filled("name", name)
        check_instance("policy", policy, HandlerPolicy, "HandlerPolicy(...)")
        check_instance("testing", testing, Testing, "Testing(now=...)")
        worker = IDLE if worker is None else check_instance("worker", worker, WorkerSettings, "WorkerSettings(...)")
        check_whole("concurrency", concurrency, 1)
        if rate is not None:
            check_number("rate", rate, above_zero=True, unit="orders a second")
        if fuse is not None and check_instance("fuse", fuse, Fuse, "Fuse(...)").max_total is not None:
            raise ValueError("max_total: an outbox has no end; use max_per_day")
        now = testing.now or time.time
        self._payments = payments
        self._journal = journal
        self._name = name
        self._worker, self._poll = worker, policy.poll
        self._interval = min(INTERVAL, worker.grace)
        self._now = now
        self._owner = ""
        self._sender = OrderSender(
            payments=payments,
            journal=journal,
            name=name,
            concurrency=concurrency,
            rate=rate,
            fuse=fuse or Fuse(),
            lease=worker.lease,
            poll=policy.poll,
            claims_batches=worker.claims_batches,
            look_back=worker.look_back,
            grace=worker.grace,
            interval=self._interval,
            now=now,
        )
        self._listener = ChangeListener(
            payments, journal, name, moved=self._moved, look=self._sender.look, heeds=self._heeded
        )
        self._tasks = Tasks(f"the outbox {name}")
        self._putting: set[asyncio.Future[Placed]] = set()
        self._unhook: list[Callable[[], None]] = []
        self._moments = Deadlines(SOON)
        self._home = HomeLoop("the outbox", "await outbox.put(...)")
        self._is_open = False
        self._closing: asyncio.Task[None] | None = None
        self._settler: Settler | None = None
        observer = executor_of(payments).observer
        work = {State.PLANNED: worker.sends, State.UNKNOWN: worker.settles}
        self._work = [state for state in State if observer is not None or work.get(state)]
        self._handlers = ChangeHandlers(journal, name, policy=policy, observer=observer, clock=now)
        self._writes = executor_of(payments).sends_written()

    @property
    def name(self) -> str:
        """Its name in the journal."""
        return self._name

    @property
    def session(self) -> PaymentsSession:
        """What it sends its orders through."""
        return self._payments

    @property
    def journal(self) -> Journal:
        """What its orders are written in."""
        return self._journal

    @property
    def claims_batches(self) -> bool:
        """Whether this process takes chunks of batches by itself."""
        return self._sender.claims_batches

    # Its life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Begin to work.

        Raises:
            WrongAccount: The journal is about another account or service.
            OrdersDiffer: A batch of the journal has the outbox's name.
        """
        if self._is_open:
            raise RuntimeError("this outbox is open")
        if self._closing is not None:
            await asyncio.wait([self._closing])  # what it did before is finished first
        await self._journal.open_outbox(self._name, account_of(self._payments))
        self._loop = asyncio.get_running_loop()
        self._home.note()
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"  # no two share a name
        self._sender.begin(self._owner)
        self._listener.last = await self._journal.last_change()
        await self._warn_of_others()
        await self._handlers.start()
        self._is_open, self._closing = True, None
        self._unhook = [
            self._journal.before_close(self.aclose),
            executor_of(self._payments).before_close(self.aclose),
        ]
        self._listener.is_open = True
        with heard_by_every_block():
            self._begin_tasks()

    def _begin_tasks(self) -> None:
        """Begin what goes on until it is closed."""
        self._tasks.keep("listener", self._listener.run)
        if self._worker.sends:
            self._tasks.keep(_SENDER, self._sender.run)
        if self._worker.sends and self._journal.shares_transactions:
            collector = Collector(
                self._journal,
                self._name,
                owner=self._owner,
                lease=self._worker.lease,
                pool=self._sender.crew_with_room,
                start=partial(self._tasks.start, "taking of orders"),
            )
            self._tasks.keep("collector", collector.run)
        ticks = executor_of(self._payments).clock
        self._settler = Settler(
            self._payments,
            self._journal,
            self._name,
            owner=self._owner,
            grace=self._worker.grace,
            interval=self._interval,
            standby=self._poll,
            clock=self._now,
            ticks=ticks,
        )
        if self._worker.settles:
            self._tasks.keep("settler", self._settler.run)

    async def _warn_of_others(self) -> None:
        """Say what waits in outboxes of other names: who renames one leaves its orders to nobody."""
        for run in await self._journal.runs():
            if not run.is_outbox or run.batch_id == self._name:
                continue
            waiting = (await self._journal.progress(outbox=run.batch_id)).counts[State.PLANNED]
            if waiting:
                words = "beside outbox %s the journal has outbox %s with %d waiting orders: run a worker for it too"
                facts = {"outbox": self._name, "other": run.batch_id, "waiting": waiting}
                _log.warning(words, self._name, run.batch_id, waiting, extra=facts)

    async def aclose(self) -> None:
        """Begin nothing more, finish what is under way, and give back what others may do. Twice is harmless.

        Cancelled, it breaks off what is under way; what may have left is written down as unknown.
        """
        self._check_loop("close it there")
        if self._is_open:
            self._is_open = False
            self._closing = asyncio.get_running_loop().create_task(self._close())
        if self._closing is None:
            return
        try:
            await asyncio.shield(self._closing)  # a journal that is closed meanwhile waits for the same
        except asyncio.CancelledError:
            self._tasks.stop(_SENDER)  # what has left is written down as unknown
            await asyncio.wait([self._closing])
            raise

    async def _close(self) -> None:
        self._sender.end()
        await self._tasks.returned(_SENDER)
        while self._putting:
            await asyncio.wait(self._putting)
        await self._tasks.aclose(float("inf"))
        self._listener.is_open = False
        await self._handlers.aclose()
        for waiter in self._sender.told:
            if not waiter.done():
                waiter.set_result(None)
        self._listener.close()
        self._moments.close()
        for unhook in self._unhook:
            unhook()

    async def cleanup_ctx(self, _: object) -> AsyncIterator[None]:
        """Open and close with an aiohttp application that has opened session and journal before.

        Write ``app.cleanup_ctx.append(outbox.cleanup_ctx)`` below theirs, or append ``payments.cleanup_ctx`` of a
        ``Payments``, which opens all of them.
        """
        async with self:
            yield

    @asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncIterator[None]:
        """Open and close within a lifespan of your own that has opened session and journal before.

        Write ``FastAPI(lifespan=payments.lifespan)`` with a ``Payments``, which opens all of them.
        """
        async with self:
            yield

    @overload
    def on(
        self, *states: State, when: Callable[[Entry], bool] | None = ..., name: str | None = ..., within: None = ...
    ) -> Callable[[H], H]: ...

    @overload
    def on(
        self,
        *states: State,
        when: Callable[[Entry], bool] | None = ...,
        name: str | None = ...,
        within: Callable[[], AbstractAsyncContextManager[C]],
    ) -> Callable[[Callable[[Entry, C], Awaitable[R]]], Callable[[Entry, C], Awaitable[R]]]: ...

    @overload
    def on(
        self,
        *states: State,
        when: Callable[[Entry], bool] | None = ...,
        name: str | None = ...,
        within: Callable[[], AbstractContextManager[C]],
    ) -> Callable[[Callable[[Entry, C], R]], Callable[[Entry, C], R]]: ...

    def on(
        self,
        *states: State,
        when: Callable[[Entry], bool] | None = None,
        name: str | None = None,
        within: Callable[[], AbstractAsyncContextManager[Any] | AbstractContextManager[Any]] | None = None,
    ) -> Callable[[Any], Any]:
        """Register an async handler, to be told when an order of this outbox comes to one of these states.

        It is durable: what is to be told is written in the commit that moved the order, and told at least once, also
        where the process dies in the middle; with retries, dead letters and ``replay``. ``entry.change_id`` is the
        same for one fact each time, so remember it with what you do. ``entry.state`` is the state that it came to.
        Changes of one order may be told side by side, and one whose handler failed after the next one: the higher id is
        the later. A success may be reversed; only ``reconcile(..., reversals=True)`` finds that.
        Every process that registers handlers for a state registers the same ones.

        With ``within`` it is told exactly once, as far as its database is concerned: it is called with the entry and
        the connection, and that it was told is a part of the same transaction. Leave committing to ``within``.

        Args:
            when: Says of an entry whether this handler wants it.
            name: Kept in the journal; its module and qualified name by default. Keep it when you move the function.
            within: Opens a transaction in the database that a ``PostgresJournal`` is in, yields its connection, as
                ``put`` takes one, and commits; such as SQLAlchemy's ``engine.begin`` or psycopg's ``pool.connection``.
                For a plain function it is a synchronous one, such as Django's ``transaction.atomic``: both run in a
                thread, and the connection is one that ``put_sync`` takes.

        Raises:
            TypeError: A state is of another kind, or the handler is not async or cannot be called with an entry.
            ValueError: For no state, one that no handler hears of, a name that is taken, ``within`` beside a file, or
                one that commits nothing.
        """
        return self._handlers.on(*states, when=when, name=name, within=within)

    def error(self, hook: X) -> X:
        """Register a function, async or not, that is told of each handler that failed (``HandlerFailure``).

        It is told at once, of every round, within the time of a handler. What it raises is logged, and changes nothing.
        """
        return self._handlers.error(hook)

    async def replay(self, change_id: int | None = None) -> int:
        """Have one dead letter handled again, or all of them, and tell how many."""
        return await self._handlers.replay(change_id)

    # Paying

    async def put(
        self,
        order: Order,
        *,
        not_before: datetime | None = None,
        priority: int = 0,
        adoption: TakeoverAuthorisation | None = None,
        connection: object = None,
    ) -> Entry:
        """Write an order down, to be sent once. It is on disk when this returns, also where that was cancelled.

        The same order again changes nothing and gives its entry, whatever became of it.

        With a connection of the application's own it is part of the transaction that is open there: it is sent if that
        is committed, and discarded otherwise. It waits only for another transaction that puts the same order.

        Args:
            not_before: An aware moment before which it is not sent.
            priority: Higher ones go first among those that wait.
            adoption: A named person's word that it is this journal's, though another one holds it, or this one held it
                before it was restored. It may have been sent, so it is ``unknown``: the service's list is read for it,
                and once that has missed it, it is parked. A person has it sent by ``Journal.send_again``. The list is
                read from when the other one began; from 30 days ago where this machine knows nothing of it.
            connection: To the database that a ``PostgresJournal`` is in: an asyncpg ``Connection``, a psycopg
                ``AsyncConnection``, or an SQLAlchemy ``AsyncConnection`` or ``AsyncSession``, within a transaction.

        Raises:
            OrdersDiffer: The journal holds another order under this request id. Where that came at the same moment, or
                after what a REPEATABLE READ sees, it shows only when this one is taken: ``untaken`` tells.
            HeldElsewhere: Another journal of this machine may have sent it, or this one before it was restored. With a
                connection it shows only when it is taken.
            InvalidOrder: The session has sent another order under this request id, or, with a connection, this one by
                itself; a ``ValueError``.
            ValueError, TypeError: It cannot be written as the service wants it; or the connection is none of these, or
                in no transaction, or the journal is a file.
            NotAJournal: The connection leads to a database without this journal.
            JournalUnavailable: It could not be written down. Whether it was is unknown: put it again.
            Exception: What the library of a connection raises, as it is, such as a serialization failure.
        """
        if connection is not None:
            (entry,) = await self._lay([order], not_before, priority, adoption, connection)
            return entry
        sent = await self._sent_by_session(order)
        return (await asyncio.shield(self._put(order, not_before, priority, adoption, sent).written)).entry

    async def put_all(
        self,
        orders: Iterable[Order],
        *,
        connection: object,
        not_before: datetime | None = None,
        priority: int = 0,
    ) -> list[Entry]:
        """Write orders down within a transaction of yours, as ``put`` does, a thousand of them with one statement.

        Args:
            orders: A list or another iterable of orders.
            connection: As of ``put``.
            not_before, priority: Of all of them, as of ``put``.

        Returns:
            Their entries, in the same sequence.

        Raises:
            Exception: As of ``put``. Some of the orders may be part of the transaction then: undo it.
        """
        return list(await self._lay(list(orders), not_before, priority, None, connection))

    def put_sync(
        self,
        order: Order,
        *,
        not_before: datetime | None = None,
        priority: int = 0,
        connection: object = None,
        timeout: float = 60.0,
    ) -> Entry:
        """As ``put``, from a thread without an event loop, while the outbox is open in another (``in_thread``).

        Args:
            not_before, priority: As of ``put``.
            connection: To the database that a ``PostgresJournal`` is in: a psycopg ``Connection``, an SQLAlchemy
                ``Connection`` or ``Session``, or ``django.db.connection``, within a transaction. It is used in this
                thread alone.
            timeout: Seconds without a word from the loop.

        Raises:
            JournalUnavailable: It took too long. Whether it was written down is unknown: put it again, in a new
                transaction.
            RuntimeError: The outbox is not open in this process, or this thread runs an event loop.
            Exception: As of ``put``.
        """
        check_patience("timeout", timeout)
        lent = None if connection is None else Lent(connection)
        work = self.put(order, not_before=not_before, priority=priority, connection=lent)
        try:
            return self._home.run(work, timeout, lent)
        except TimeoutError as error:
            raise JournalUnavailable(f"{error}: put order {order.request_id} again") from error

    def put_all_sync(
        self,
        orders: Iterable[Order],
        *,
        connection: object,
        not_before: datetime | None = None,
        priority: int = 0,
        timeout: float = 60.0,
    ) -> list[Entry]:
        """As ``put_all``, from a thread without an event loop, with a connection that ``put_sync`` takes.

        Args:
            timeout: Seconds without a word from the loop.

        Raises:
            JournalUnavailable: It took too long: put them again, in a new transaction.
            Exception: As of ``put_all``, and as of ``put_sync``.
        """
        check_patience("timeout", timeout)
        lent = Lent(connection)
        work = self.put_all(orders, connection=lent, not_before=not_before, priority=priority)
        try:
            return self._home.run(work, timeout, lent)
        except TimeoutError as error:
            raise JournalUnavailable(f"{error}: put the orders again") from error

    def in_loop(self, work: Coroutine[Any, Any, T], *, timeout: float = 60.0) -> T:
        """What a method of this outbox gives, for a thread without an event loop: ``outbox.in_loop(outbox.entry(id))``.

        Args:
            timeout: Seconds.

        Raises:
            TimeoutError: It took too long. It may be done all the same.
            RuntimeError: The outbox is not open in this process, or this thread runs an event loop.
        """
        return self._home.run(work, timeout)

    @contextmanager
    def in_thread(self, *before: AbstractAsyncContextManager[Any]) -> Iterator[Self]:
        """Open the outbox in an event loop in a thread of its own, for a synchronous application.

        Args:
            before: What is opened before it, in this sequence, and closed after it: its journal, its session.
        """
        with in_thread(*before, self):
            yield self

    async def put_batch(
        self,
        batch_id: str,
        orders: Iterable[Order] | AsyncIterable[Order],
        *,
        source_digest: str | None = None,
        approvals: int = 0,
    ) -> Loaded:
        """Write all orders of a batch down, to be sent beside the single ones; all of them or none is sent.

        Args:
            orders: A plan, or all orders of the batch, read once. Payees are compared by a plan only.
            source_digest, approvals: As of ``BatchTerms``.

        Raises:
            NotApproved: Too few have approved it. Nothing was written down or sent.
            NotCompared: Its plan does not know another batch of the journal. Nothing was sent.
            InvalidOrder: The session has sent another order under one of its request ids. Nothing was sent.
            OrdersDiffer: As ``Journal.load``; or the batch is there, and another process sends it. Nothing was sent.
            HeldElsewhere, LoadBusy: As ``Journal.load``. Nothing was sent.
        """
        self._check_open()
        digest, compared = plan_of(orders, source_digest)
        run = await self._journal.open_run(
            batch_id,
            account_of(self._payments),
            source_digest=digest,
            outbox=self._name,
            approvals=approvals,
            compared=compared,
        )
        if run.outbox != self._name:
            whose = "whoever runs it sends it" if run.outbox is None else f"the outbox {run.outbox} sends it"
            raise OrdersDiffer(f"batch {batch_id} is there already, and {whose}")
        loaded = await self._journal.load(
            batch_id, orders, owner=self._owner, sent=self._sent_by_session, compared=compared
        )
        self._sender.look()
        return loaded

    async def pay(
        self,
        order: Order,
        *,
        timeout: float = 10.0,
        not_before: datetime | None = None,
        priority: int = 0,
    ) -> Entry:
        """Put an order, and wait for what comes of sending it.

        Args:
            timeout: Seconds in all. Writing the order down is given a second at least.

        Returns:
            Its entry: accepted, which is not paid yet; rejected; unknown, and being looked up; final, where it was
            sent before; or planned or sending still, when the time was over.

        Raises:
            JournalUnavailable: As ``put``; or the order was not written down in time. It may be yet: put it again.
            OrdersDiffer, HeldElsewhere, ValueError, TypeError: As ``put``.
        """
        check_patience("timeout", timeout)  # before it is put: who hears a TypeError takes it for an order not taken
        deadline, sent = asyncio.get_running_loop().time() + timeout, None
        if may_have_sent(self._payments, getattr(order, "request_id", "")):
            with suppress(TimeoutError):  # it is put all the same: a worker hears of the exchange as well
                async with asyncio.timeout_at(deadline) if self._is_with_session(order) else nullcontext():
                    sent = await self._sent_by_session(order)
        putting = self._put(order, not_before, priority, sent=sent)
        with suppress(OrderUnknown):  # it ended, and has left for an archive meanwhile: as it is put once more below
            if (ended := await self._ended(putting, deadline)) is not None:
                return ended
        entry = putting.entry
        assert entry is not None
        # where everything is being closed, or the journal does not answer: it is on disk, and goes on later
        with suppress(JournalUnavailable, TimeoutError):
            async with asyncio.timeout(_LAST_LOOK):
                known = await self._journal.entry(entry.request_id)
            return known or await self._written(self._put(order, not_before, priority), deadline)
        return entry

    async def settled(self, request_id: str | Acceptance, *, timeout: float) -> Entry:
        """Wait until an order has its final outcome, from whatever tells first.

        Raises:
            TimeoutError: It has none yet; it may come at any time.
            JournalClosed: The outbox was closed meanwhile.
            OrderUnknown: The journal holds no such order.
        """
        self._check_open()
        # in another loop nobody would wake who waits
        self._check_loop("hand the call over to that one (asyncio.run_coroutine_threadsafe)")
        check_patience("timeout", timeout)
        wanted = check_filled("request_id", getattr(request_id, "request_id", request_id))
        return await self._listener.until(wanted, FINAL.__contains__, timeout)

    async def cancel(self, request_id: str | Acceptance, *, who: str, why: str, connection: object = None) -> Entry:
        """Let an order that was not sent yet never be sent, also one with ``not_before``: it ends as cancelled.

        To cancel it once more changes nothing. One that a person had sent again is parked: it may have been paid the
        first time.

        Args:
            who, why: Who wants that, a person or a part of the application, and the reason; kept in its history.
            connection: Refused. Until your transaction is committed nothing keeps the order from being sent, or all
                orders would wait for it. Cancel first; write your rows in
                ``@outbox.on(State.CANCELLED, within=engine.begin)``, which is told once.

        Raises:
            ValueError: A connection was given.
            NotCancelled: It may have left, or has ended: the message says how it stands.
            NotLookedFor: The journal was copied or restored, and the order may have been sent before.
            OrderUnknown: The journal holds no such order.
        """
        if connection is not None:
            raise ValueError(
                "connection: an order may be sent until your transaction is committed, so it is not cancelled there; "
                "cancel it first, and write your rows in @outbox.on(State.CANCELLED, within=engine.begin)"
            )
        wanted = check_filled("request_id", getattr(request_id, "request_id", request_id))
        return await self._journal.cancel(wanted, who=who, why=why)

    async def entry(self, request_id: str) -> Entry | None:
        """How an order stands, or ``None``."""
        return await self._journal.entry(request_id)

    # Operating it

    async def untaken(self) -> Sequence[Staged]:
        """Orders of committed transactions that could not be taken, each with its problem, a thousand at most.

        They are tried again when a worker starts; ``drop`` removes those that must not be sent.
        """
        return await self._journal.laid(self._name, limit=_PAGE, stuck=True)

    async def drop(self, request_id: str, who: str, why: str) -> None:
        """Forget an order that could not be taken, as a named person: what was done for it is undone by them.

        Raises:
            OrderUnknown: There is no such order among those that could not be taken.
        """
        await self._journal.discard_staged(self._name, request_id, who=who, why=why)

    async def pause(self, who: str, why: str) -> None:
        """Stop sending, in all processes, until a person resumes it. It still takes orders."""
        await self._journal.pause(self._name, who=who, why=why)
        await self._refresh()

    async def resume(self, who: str, why: str) -> bool:
        """Send again, as a named person; returns whether it was paused."""
        was_paused = await self._journal.resume(self._name, who=who, why=why)
        await self._refresh()
        self._sender.look()
        return was_paused

    async def health(self) -> OutboxHealth:
        """Its health, for load balancers, dashboards and scripts.

        Raises:
            JournalUnavailable: The journal cannot be read, and so no order can be taken.
        """
        found = await OutboxHealth.of(self._journal, self._name, now=self._now)
        # which may take long, or fail in a moment
        is_looking = self._is_open and self._worker.sends and self._sender.pool is None
        hinders = self._sender.why_not() or self._tasks.trouble or (_LOOKING if is_looking else None)
        settling = None if self._settler is None else await self._settler.progress()
        problems = in_order([*found.problems, *([] if hinders is None else [problem("hindered", hinders)])])
        return attrs.evolve(found, is_open=self._is_open, problems=problems, settling=settling)

    # Within

    async def work_chunk(self, batch_id: str) -> ChunkEnd:
        """Work one chunk of this batch, if there is one, for programs that hand out chunks. Any number at once.

        Raises:
            JournalError: The journal could not be read or written.
        """
        pool = self._sender.pool
        return ChunkEnd.NOT_NOW if pool is None else await pool.work_chunk(batch_id)

    async def _refresh(self) -> None:
        """The outbox was paused or resumed: the workers here ask at once."""
        if (pool := self._sender.pool) is not None:
            await pool.refresh()

    def _moved(self, states: Collection[State]) -> None:
        """Orders came to these states: wake the handlers and the settler."""
        if not self._handlers.states.isdisjoint(states):
            self._handlers.wake()
        if State.UNKNOWN in states and self._settler is not None:
            self._settler.kick()

    def _heeded(self) -> Collection[State]:
        """The states of orders that handlers, workers, the settler or an observer here have to hear of at once."""
        return {*self._handlers.states, *self._work}

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("this outbox is not open; use it within 'async with Outbox(...)'")

    def _check_loop(self, remedy: str) -> None:
        """Whether it is the event loop that opened it, as long as that is there."""
        loop = self._loop
        if loop is not None and loop is not asyncio.get_running_loop() and not loop.is_closed():
            raise RuntimeError(f"this outbox belongs to another event loop; {remedy}")

    def _checked(self, order: Order, not_before: datetime | None, priority: int) -> float:
        """Whether an order may be put; the Unix seconds before which it is not sent."""
        self._check_open()
        _check_order(order)
        moment = 0.0
        if not_before is not None:
            check_instance("not_before", not_before, datetime, "a datetime with its time zone")
            if not_before.tzinfo is None:
                raise ValueError("not_before: name its time zone, as in datetime.now(UTC)")
            moment = not_before.timestamp()
        check_whole("priority", priority, -1000)
        return moment

    def _traceparent(self) -> str | None:
        """The trace context here and now, where somebody watches."""
        observer = executor_of(self._payments).observer
        return None if observer is None else observer.traceparent()

    async def _lay(
        self,
        orders: Sequence[Order],
        not_before: datetime | None,
        priority: int,
        adoption: TakeoverAuthorisation | None,
        connection: object,
    ) -> Sequence[Entry]:
        """Put orders within a transaction of the application's own."""
        moment, bodies = 0.0, []
        books = executor_of(self._payments).books
        for order in orders:
            moment = self._checked(order, not_before, priority)
            if not self._journal.shares_transactions:
                raise ValueError("connection: the journal is not a part of its database; use a PostgresJournal")
            if adoption is not None:
                raise ValueError("adoption: what a person decides is not a part of a transaction; put it by itself")
            body = write_order(order)
            self._writes(order.request_id, order.amount, body, sent_before=False, private=partial(private_texts, order))
            request_id = order.request_id
            if (books.is_open(request_id) or books.knows(request_id)) and not await is_held(self._journal, request_id):
                raise InvalidOrder(
                    "this session has sent it by itself; put it without connection=, which writes down how that ended",
                    request_id=request_id,
                )
            bodies.append(body)
        when: dict[str, Any] = {"not_before": moment, "priority": priority, "traceparent": self._traceparent()}
        if len(orders) == 1:
            return [await self._journal.lay(self._name, orders[0], connection, body=bodies[0], **when)]
        return await self._journal.lay_all(self._name, orders, connection, bodies=bodies, **when)

    def _put(
        self,
        order: Order,
        not_before: datetime | None,
        priority: int,
        adoption: TakeoverAuthorisation | None = None,
        sent: Evidence | None = None,
    ) -> _Putting:
        """Begin to put an order into the chunk of this process, if it works and has not too much to do.

        What has to be done once it is written down is done also where nobody waits for it any more. That is not a task:
        one for each order would cost a fifth of what sending it costs.
        """
        moment = self._checked(order, not_before, priority)
        pool = self._sender.crew_with_room()
        body = write_order(order)
        private = partial(private_texts, order)
        # raises where it cannot be written as a request: it would wait for ever
        call = self._writes(order.request_id, order.amount, body, sent_before=False, private=private)
        putting = _Putting(order, pool, call)
        if pool is not None:
            putting.asked = pool.executor.clock()
            if moment <= self._now() and sent is None:
                putting.worker = pool.reserve(order.amount)
        try:
            written = putting.written = asyncio.ensure_future(
                self._journal.put(
                    self._name,
                    order,
                    not_before=moment,
                    priority=priority,
                    owner=None if pool is None else self._owner,
                    chunk=None if pool is None else pool.leases.own_chunk,
                    lease=self._worker.lease,
                    permits=putting.worker is not None,
                    adoption=adoption,
                    sent=sent,
                    body=body,
                    traceparent=self._traceparent(),
                )
            )
        except BaseException as error:
            putting.give_up(error)
            raise
        self._putting.add(written)
        written.add_done_callback(partial(self._is_put, putting))
        return putting

    def _is_with_session(self, order: Order) -> bool:
        """Whether the session sends an order now that no worker here has asked it to send."""
        is_ours = self._sender.is_under_way(order.request_id)
        return executor_of(self._payments).books.is_under_way(order.request_id) and not is_ours

    async def _sent_by_session(self, order: Order) -> Evidence | None:
        """How an order ended that this session has sent by itself, as by ``payouts.send``; one under way is waited for.

        ``None`` where it surely was not carried out, or was never sent.
        """
        self._check_open()
        _check_order(order)
        is_ours = self._sender.is_under_way(order.request_id)
        return await sent_by_session(self._payments, self._journal, order, is_ours=is_ours)

    def _is_put(self, putting: _Putting, written: asyncio.Future[Placed]) -> None:
        """An order is written down, or was not."""
        self._putting.discard(written)
        try:
            placed = written.result()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            putting.give_up(error)  # the caller hears why
            return
        if (rest := putting.succeeded(placed)) is not None:
            self._tasks.start("giving back", rest)

    async def _written(self, putting: _Putting, deadline: float) -> Entry:
        """Wait until an order is on disk, for a second at least. Raises why it is not."""
        with suppress(TimeoutError), self._moments.stay():
            return (await asyncio.shield(putting.written)).entry
        try:
            async with asyncio.timeout_at(deadline):
                return (await asyncio.shield(putting.written)).entry
        except TimeoutError as error:
            words = f"order {putting.order.request_id} was not written down in time, and may be yet: put it again"
            raise JournalUnavailable(words) from error

    async def _ended(self, putting: _Putting, deadline: float) -> Entry | None:
        """How sending an order ended, from a worker here or as it is written down; ``None`` in no time."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Entry | None] = loop.create_future()
        putting.ended = ended
        self._sender.told.add(ended)
        try:
            is_soon = deadline - loop.time() > SOON  # nearly always: one wait for what is written, and what is sent
            if is_soon and (told := await self._soon(ended)) is not None:
                return told
            entry = await self._written(putting, deadline)
            if entry.state not in UNSENT:
                return entry
            if putting.is_in_hand and not is_soon:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        if (told := await ended) is not None:
                            return told
        finally:
            self._sender.told.discard(ended)
        # it is in other hands, or will take long: it is heard of like any other
        with suppress(TimeoutError, JournalClosed):
            return await self._listener.until(
                entry.request_id, lambda state: state not in UNSENT, deadline - loop.time()
            )
        return None

    async def _soon(self, ended: asyncio.Future[Entry | None]) -> Entry | None:
        """Wait for a moment at most; ``None`` where it is over."""
        told: Entry | None = None
        with suppress(TimeoutError), self._moments.stay():
            told = await ended
        return told


class _Putting:
    """One order on its way into the journal, and into the hands of a worker.

    Attributes:
        pool: That is to send it; ``None`` where another process is, or it has to wait its turn.
        asked: Monotonic seconds when that began.
        worker: Who is to send it at once.
        written: What the journal makes of it. Callers wait behind a shield, so none of them cancels it.
        entry: The order as it was written down; ``None`` until then.
        is_in_hand: Our workers have it.
        ended: What the caller of ``pay`` waits for: how the order ended, or ``None`` where the journal has to be read;
            or why it was not written down.
    """

    def __init__(self, order: Order, pool: OutboxWorker | None, call: Call[Acceptance]) -> None:
        self.order = order
        self.pool = pool
        self._call = call
        self.asked = 0.0
        self.worker: asyncio.Future[Handed | None] | None = None
        self.written: asyncio.Future[Placed]
        self.entry: Entry | None = None
        self.is_in_hand = False
        self.ended: asyncio.Future[Entry | None] | None = None

    def give_up(self, error: BaseException) -> None:
        """It was not written down, or nobody knows."""
        if self.pool is not None and self.worker is not None:
            self.pool.is_not_put(self.worker, self.order.amount, error)
        if self.ended is not None and not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # a caller who is gone is told nothing, and nothing is to be logged

    def succeeded(self, placed: Placed) -> Coroutine[Any, Any, None] | None:
        """It is on disk: a worker gets it. Gives what has to be written where none does."""
        self.entry, rest = placed.entry, None
        if self.pool is not None:
            leased, rest = self.pool.place(placed, self.asked, self.worker, self.order.amount)
            if leased is not None:
                leased.call = self._call
                if self.ended is not None:
                    self.is_in_hand, leased.tell = True, self._has_ended
        if not self.is_in_hand and self.ended is not None and not self.ended.done():
            self.ended.set_result(None if placed.entry.state in UNSENT else placed.entry)
        return rest

    def _has_ended(self, outcome: Outcome | None, at: float | None) -> None:
        """A worker has written down how it ended, or has it in hand no more."""
        if self.ended is None or self.ended.done():
            return
        entry = None
        if self.entry is not None and outcome is not None and at is not None and outcome.permit.attempt == 1:
            entry = ended(self.entry, outcome, at)
        self.ended.set_result(entry)


def _check_order(order: object) -> None:
    """It is an order. Raises ``TypeError``."""
    if not isinstance(order, PayoutOrder | CollectionOrder):
        raise TypeError(f"order: expected PayoutOrder or CollectionOrder, not {type(order).__name__}")
