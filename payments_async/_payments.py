"""Payments: one object that opens session, journal, outbox and receiver, in the right order."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack, overload

from payments_async._session.session import PaymentsSession, SessionSettings, executor_of, testing_of
from payments_async._values.checks import check_instance
from payments_async._values.handlers import ErrorHook
from payments_async._values.threads import in_thread
from payments_async._wire.models import Acceptance
from payments_async._wire.orders import Order
from payments_async.ipn import DOCUMENTED_SENDERS, Receiver, ReceiverSettings
from payments_async.journal import Entry, Journal, State, journal_at
from payments_async.outbox import Outbox

C = TypeVar("C")
H = TypeVar("H", bound=Callable[[Entry], Awaitable[object]])
R = TypeVar("R")
X = TypeVar("X", bound=ErrorHook)

_JOURNAL = "PAYMENTS_JOURNAL"


class Payments:
    """Pay once from an application, and hear what became of it.

    It opens journal, session, receiver and outbox, and closes them again. It has no state beyond these four. Use it as
    ``async with payments:``, as ``FastAPI(lifespan=payments.lifespan)``, or in aiohttp as
    ``app.cleanup_ctx.append(payments.cleanup_ctx)``. Like its session, it can be opened once.

    Attributes:
        session: The connection to the service, with all endpoints.
        journal: The orders and notifications on disk.
        outbox: Sends the orders and settles them.
        receiver: Takes the notifications of the service.

    >>> payments = Payments(SESSION, "payments.sqlite")
    >>> payments.outbox.name
    'outbox'
    """

    session: PaymentsSession
    journal: Journal
    outbox: Outbox
    receiver: Receiver

    def __init__(
        self,
        session: PaymentsSession,
        journal: Journal | str | Path,
        *,
        outbox: Outbox | None = None,
        receiver: Receiver | None = None,
        senders: Iterable[str] = DOCUMENTED_SENDERS,
    ) -> None:
        """Put the parts together. Nothing is opened or sent before ``async with``.

        Args:
            session: Not open yet. Outbox and receiver share its ``testing``, if you pass none.
            journal: A journal that is not open yet, the path of its file, or a DSN such as ``postgresql://host/name``.
            outbox: One with settings of your own, made of this session and this journal.
            receiver: One with settings of your own, made of this journal.
            senders: Addresses and networks of notifications, if you pass no receiver. Name ``127.0.0.1`` for a
                simulated service on this machine.

        Raises:
            TypeError, ValueError: A part is of another kind, or belongs to another journal or session.
        """
        check_instance("session", session, PaymentsSession, "a PaymentsSession, such as PaymentsSession.from_env()")
        check_instance("journal", journal, (Journal, str, Path), "a journal, the path of its file, or a DSN")
        journal = journal if isinstance(journal, Journal) else journal_at(journal)
        if receiver is None:
            settings = ReceiverSettings(dialect=session.dialect, observer=executor_of(session).observer)
            receiver = Receiver(journal, senders, settings=settings, testing=testing_of(session))
        elif check_instance("receiver", receiver, Receiver, "Receiver(journal, ...)").inbox is not journal:
            raise ValueError("receiver: make it of this journal, as in Receiver(journal, ...)")
        if outbox is None:
            outbox = Outbox(session, journal, testing=testing_of(session))
        elif check_instance("outbox", outbox, Outbox, "Outbox(session, journal, ...)").journal is not journal:
            raise ValueError("outbox: make it of this journal, as in Outbox(session, journal, ...)")
        elif outbox.session is not session:
            raise ValueError("outbox: make it of this session, as in Outbox(session, journal, ...)")
        self.session, self.journal, self.outbox, self.receiver = session, journal, outbox, receiver

    @classmethod
    def from_env(
        cls,
        variables: Mapping[str, str] | None = None,
        *,
        journal: Journal | str | Path | None = None,
        senders: Iterable[str] = DOCUMENTED_SENDERS,
        **settings: Unpack[SessionSettings],
    ) -> Self:
        """Take address, credentials and journal from the environment, as the command line does.

        The variables are ``PAYMENTS_BASE_URL``, ``PAYMENTS_APP_KEY``, ``PAYMENTS_APP_PASSWORD``, ``PAYMENTS_USER_ID``
        and ``PAYMENTS_JOURNAL``, a path or a DSN.

        Args:
            variables: In place of those of the process.
            journal: In place of ``PAYMENTS_JOURNAL``.
            senders: Addresses and networks of notifications.
            settings: As ``PaymentsSession`` takes them.

        Raises:
            TypeError, ValueError: A variable is missing or wrong. The message names it and shows no value.
        """
        place = journal or (os.environ if variables is None else variables).get(_JOURNAL)
        if not place:
            raise ValueError(f"not set in the environment: {_JOURNAL}; or pass journal='payments.sqlite'")
        return cls(PaymentsSession.from_env(variables, **settings), place, senders=senders)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            for part in (self.journal, self.session, self.receiver, self.outbox):
                await opened.enter_async_context(part)
            opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Payments {self.session.base_url}, journal {self.journal.place}>"

    async def aclose(self) -> None:
        """Finish what is under way, then close all four. Closing twice is harmless."""
        async with AsyncExitStack() as closing:
            for part in (self.journal, self.session, self.receiver, self.outbox):  # the outbox closes first
                closing.push_async_callback(part.aclose)

    async def cleanup_ctx(self, _: object) -> AsyncIterator[None]:
        """Open and close with an aiohttp application: ``app.cleanup_ctx.append(payments.cleanup_ctx)``."""
        async with self:
            yield

    @asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncIterator[None]:
        """Open and close with an application of FastAPI or Starlette: ``FastAPI(lifespan=payments.lifespan)``."""
        async with self:
            yield

    def mount(self, app: Any, path: str = "/ipn") -> None:
        """Take notifications at a path of an application, as ``Receiver.mount`` does. Call it before the start.

        Args:
            app: An application of aiohttp, FastAPI or Starlette. Its lifespan or ``cleanup_ctx`` opens this object.
            path: Give the service this path as your IPN address. It works with and without a trailing slash.

        Raises:
            TypeError, ValueError: The application or the path is of another kind.
        """
        self.receiver.mount(app, path)

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
        within: Any = None,
    ) -> Callable[[Any], Any]:
        """Register an async handler for orders that reach one of these states, as ``Outbox.on`` does.

        Each change is handled at least once, also after a crash. Use ``entry.change_id`` to skip duplicates.

        Args:
            when: Says of an entry whether this handler wants it.
            name: Its name in the journal, by default module and qualified name. Keep it when you move the function.
            within: Opens a transaction in the database of a ``PostgresJournal``; the handler also gets its connection.
                A plain function, which runs in a thread, takes a synchronous one, such as ``transaction.atomic``.

        Raises:
            TypeError, ValueError: The states, the handler or the name cannot be registered.
        """
        return self.outbox.on(*states, when=when, name=name, within=within)

    def error(self, hook: X) -> X:
        """Register a function, async or not, that is told of each handler that failed, as ``Outbox.error`` does.

        Notifications have hooks of their own: ``payments.receiver.error``.
        """
        return self.outbox.error(hook)

    async def put(
        self, order: Order, *, not_before: datetime | None = None, priority: int = 0, connection: object = None
    ) -> Entry:
        """Write an order down, to be sent once, as ``Outbox.put`` does. It is on disk when this returns.

        Putting the same order again changes nothing and returns its entry.

        Args:
            not_before: An aware moment before which it is not sent.
            priority: Waiting orders of a higher number are sent first.
            connection: A connection of yours to the database of a ``PostgresJournal``. The order becomes part of the
                transaction that is open there.

        Raises:
            OrdersDiffer: The journal holds another order under this request id.
            JournalUnavailable: It could not be written. Put it again: that is safe.
            ValueError, TypeError: The order or an argument is wrong; nothing was written.
        """
        return await self.outbox.put(order, not_before=not_before, priority=priority, connection=connection)

    async def put_all(
        self,
        orders: Iterable[Order],
        *,
        connection: object,
        not_before: datetime | None = None,
        priority: int = 0,
    ) -> list[Entry]:
        """Write many orders down within a transaction of yours, as ``Outbox.put_all`` does.

        Args:
            connection: As of ``put``.
            not_before, priority: Of all orders, as of ``put``.

        Raises:
            OrdersDiffer: The journal holds another order under a request id. Undo the transaction.
            ValueError, TypeError: An order or an argument is wrong; nothing was written.
        """
        return await self.outbox.put_all(orders, connection=connection, not_before=not_before, priority=priority)

    def put_sync(
        self,
        order: Order,
        *,
        not_before: datetime | None = None,
        priority: int = 0,
        connection: object = None,
        timeout: float = 60.0,
    ) -> Entry:
        """Write an order down from a thread without an event loop, as ``Outbox.put_sync`` does.

        Args:
            not_before, priority: As of ``put``.
            connection: A psycopg ``Connection``, an SQLAlchemy ``Connection`` or ``Session``, or
                ``django.db.connection``, within a transaction.
            timeout: Seconds without a word from the loop.

        Raises:
            JournalUnavailable: It took too long. Put it again, in a new transaction: that is safe.
            RuntimeError: This object is not open in this process, or this thread runs an event loop.
        """
        return self.outbox.put_sync(
            order, not_before=not_before, priority=priority, connection=connection, timeout=timeout
        )

    def put_all_sync(
        self,
        orders: Iterable[Order],
        *,
        connection: object,
        not_before: datetime | None = None,
        priority: int = 0,
        timeout: float = 60.0,
    ) -> list[Entry]:
        """Write many orders down within a transaction of this thread, as ``Outbox.put_all_sync`` does.

        Args:
            connection: As of ``put_sync``.
            not_before, priority: Of all orders, as of ``put``.
            timeout: Seconds without a word from the loop.

        Raises:
            JournalUnavailable: It took too long. Put them again, in a new transaction: that is safe.
        """
        return self.outbox.put_all_sync(
            orders, connection=connection, not_before=not_before, priority=priority, timeout=timeout
        )

    @contextmanager
    def in_thread(self) -> Iterator[Self]:
        """Open it in an event loop in a thread of its own, for a synchronous application: ``put_sync`` and the rest.

        What an async method gives, ``payments.outbox.in_loop(payments.settled(request_id, timeout=60))`` gives there.
        """
        with in_thread(self):
            yield self

    async def pay(self, order: Order, *, timeout: float = 10.0) -> Entry:
        """Write an order down and wait for the answer of the service, as ``Outbox.pay`` does.

        Args:
            timeout: Seconds in all. The order is sent even if they run out.

        Returns:
            Its entry. ``accepted`` is not paid yet: wait with ``settled``, or register a handler.

        Raises:
            OrdersDiffer: The journal holds another order under this request id.
            JournalUnavailable: It could not be written in time. Pay it again: that is safe.
            ValueError, TypeError: The order or an argument is wrong; nothing was written.
        """
        return await self.outbox.pay(order, timeout=timeout)

    async def settled(self, request_id: str | Acceptance, *, timeout: float) -> Entry:
        """Wait until an order has its final outcome, as ``Outbox.settled`` does.

        Args:
            timeout: Seconds.

        Raises:
            TimeoutError: It has no final outcome yet. It stays in the journal, and may end at any time.
            OrderUnknown: The journal holds no such order.
        """
        return await self.outbox.settled(request_id, timeout=timeout)

    async def cancel(self, request_id: str | Acceptance, *, who: str, why: str) -> Entry:
        """Cancel an order that was not sent yet, as ``Outbox.cancel`` does.

        Args:
            who: The person, or the part of your application, that wants it; kept in the history.
            why: The reason; kept too.

        Raises:
            NotCancelled: It may have been sent, or has ended. The message tells its state.
            OrderUnknown: The journal holds no such order.
        """
        return await self.outbox.cancel(request_id, who=who, why=why)
