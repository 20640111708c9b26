"""What executes the calls of one session: login, limits, retries, errors, and the books of what is unsettled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import TypeVar

from payments_async._attempts import Attempts, Line
from payments_async._auth import Credentials
from payments_async._books import Books, telling
from payments_async._dialect import Dialect
from payments_async._errors import OutcomeUnknown, PaymentsError
from payments_async._fanout import fan_out
from payments_async._models import Acceptance, Transaction
from payments_async._retry import RetryPolicy
from payments_async._settings import check_instance
from payments_async._wire.call import Call
from payments_async._wire.replies import lost_reply, never_left

__all__ = ["Executor"]

T = TypeVar("T")
Item = TypeVar("Item")

_log = logging.getLogger("payments_async")


class Executor:
    """Executes the calls of one session, from when it is opened until it is closed, in one event loop.

    Attributes:
        line: What all its calls share.
        credentials: What it logs in with.
        dialect: How requests are written.
        books: What it knows of its orders.
        clock: Monotonic seconds.
        sleep: Waits for seconds.
    """

    def __init__(self, line: Line, *, credentials: Credentials, retry: RetryPolicy, remembered: int) -> None:
        self.line = line
        self.credentials = credentials
        self.dialect: Dialect = line.dialect
        self.books = Books(remembered)
        self.clock: Callable[[], float] = line.clock
        self.sleep: Callable[[float], Awaitable[object]] = line.sleep
        self._retry = retry
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._under_way = 0
        self._drained = asyncio.Event()

    async def open(self) -> None:
        """Connect it with the event loop it runs in.

        Raises:
            RuntimeError: It was opened before.
        """
        if self._loop is not None:
            raise RuntimeError("this session was opened before; make a new PaymentsSession")
        self._loop = asyncio.get_running_loop()
        await self.line.transport.open()

    async def aclose(self) -> None:
        """Take no further call, wait for those under way, and close. Closing twice is harmless."""
        self._closing = True
        try:
            while self._under_way:
                self._drained.clear()
                await self._drained.wait()
        finally:
            await self.line.transport.close()

    def check_usable(self) -> None:
        """Whether a call can be made now.

        Raises:
            RuntimeError: It cannot; the message tells why.
        """
        if self._loop is None:
            why = "this session is not open; use it within 'async with PaymentsSession(...)'"
        elif self._closing:
            why = "this session is closed; make a new PaymentsSession"
        elif asyncio.get_running_loop() is not self._loop:
            why = "this session belongs to another event loop; open one for each loop"
        elif self.line.transport.is_closed:
            why = "the ClientSession that was brought (http=...) is closed; open it for as long as this session"
        else:
            return
        raise RuntimeError(why)

    async def execute(self, call: Call[T], *, retry: RetryPolicy | None = None) -> T:
        """Make a call and read its answer. Every method of a session and of its namespaces comes here.

        Args:
            call: From ``payments_async._wire.endpoints``.
            retry: In place of the session's.
        """
        self.check_usable()
        if retry is not None:
            check_instance("retry", retry, RetryPolicy, "RetryPolicy(attempts=...)")
        self._under_way += 1
        try:
            if not call.once:
                return await Attempts(self.line, call, retry or self._retry).run()
            return await self._execute_once(call, retry or self._retry)
        finally:
            self._under_way -= 1
            if self._closing and not self._under_way:
                self._drained.set()

    async def _execute_once(self, call: Call[T], retry: RetryPolicy) -> T:
        books, request_id = self.books, call.request_id
        unsettled = open_before = False
        if not books.begin(call):
            earlier: T | None = await books.earlier(call)
            if earlier is not None:
                _log.info("accepted before, not sent again", extra={"request_id": request_id})
                return earlier
            unsettled = open_before = books.begin_again(call)
        attempts = Attempts(self.line, call, retry)
        outcome: T | PaymentsError | None = None
        try:
            outcome = result = await attempts.run()
            unsettled = False
        except OutcomeUnknown as error:
            outcome, unsettled = error, True
            _log.warning("outcome unknown", extra={"request_id": request_id})
            raise
        except PaymentsError as error:
            outcome = error
            raise
        except Exception as error:
            # A clock or a sleep that was passed in has failed; a money call raises what it promised all the same.
            unsettled = open_before or attempts.left
            why = f"the call failed ({type(error).__name__})"
            outcome = (lost_reply if attempts.left else never_left)(call, why)
            _log.error("a call failed unforeseen", extra={"error": type(error).__name__, "request_id": request_id})
            raise outcome from error
        except BaseException as error:
            unsettled = open_before or attempts.left
            if attempts.left:
                what = f"order {request_id}" if request_id else call.label
                error.add_note(f"payments_async: {what} may have left; its outcome is unknown")
                outcome = lost_reply(call, "broken off before the answer came")
            raise
        finally:
            books.end(call, outcome, unsettled=unsettled)
        return result

    async def map(
        self,
        function: Callable[[Item], Awaitable[T]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        concurrency: int = 20,
    ) -> AsyncGenerator[tuple[Item, T | Exception], None]:
        """Call a function over many items, and keep what was not handed over (``PaymentsSession.map``)."""
        async with aclosing(fan_out(telling(function), items, concurrency)) as results:
            async for item, told in results:
                if isinstance(told, Exception):
                    raise told  # never: what the function raises is told
                yield item, told.deliver()

    def note_evidence(self, request_id: str, found: Acceptance | Transaction | None = None) -> None:
        """The outcome of this order is known now, from elsewhere: it no longer counts as unsettled.

        Args:
            found: What shows that the service has the order: it is remembered, and the order is not sent again.
                Without it, the order may be.
        """
        self.books.settle(request_id, found)
