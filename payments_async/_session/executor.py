"""What executes the calls of one session: login, limits, retries, errors, and the books of what is unsettled."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import attrs
from multidict import CIMultiDict

from payments_async._session.auth import Authenticator, Credentials, Token
from payments_async._session.books import Books, telling
from payments_async._session.exchanges import AttemptHook, Exchanges, Listener, listening, tell_attempt
from payments_async._session.limits import Gate, RetryPolicy
from payments_async._session.quirks import MetQuirks
from payments_async._values.errors import AuthenticationFailed, NotSent, OutcomeUnknown, PaymentsError, ServiceFault
from payments_async._values.fanout import fan_out
from payments_async._values.masking import Secrets, redact
from payments_async._values.observing import Observer
from payments_async._wire import endpoints
from payments_async._wire.call import Call, Reply, TransportFailure, with_query
from payments_async._wire.dialect import Dialect
from payments_async._wire.models import Acceptance, Transaction
from payments_async._wire.replies import lost_reply, never_left, read_reply, told_status

if TYPE_CHECKING:
    from payments_async._session.transport import Outgoing, Patience, Transport

T = TypeVar("T")
Item = TypeVar("Item")

_log = logging.getLogger("payments_async")

_AT_THE_DOOR = frozenset({401, 403, 429})  # said perhaps before anybody looked at the token


@attrs.define(eq=False, repr=False)
class Lifetime:
    """From when a session is opened until it is closed, in one event loop: one for all that have its options changed.

    Attributes:
        loop: Which it was opened in; ``None`` until then.
        closing: It takes no further call.
        under_way: Calls that have not ended.
        drained: Set when the last of them ends while it is closing.
        before_close: What is to be finished first, the latest one first.
        blocks: Those that hear its exchanges.
        attempt_hooks: Told of each attempt.
    """

    loop: asyncio.AbstractEventLoop | None = None
    closing: bool = False
    under_way: int = 0
    drained: asyncio.Event = attrs.field(factory=asyncio.Event)
    before_close: list[Callable[[], Awaitable[object]]] = attrs.field(factory=list)
    blocks: list[Exchanges] = attrs.field(factory=list)
    attempt_hooks: list[AttemptHook] = attrs.field(factory=list)


class Executor:
    """Executes the calls of one session, from when it is opened until it is closed, in one event loop.

    With other options (``with_options``) it is another one, which has all but these in common with the first.

    Args:
        patience: How long an exchange may take.
        retry: How often and how patiently calls are repeated, where a call does not say.
        remembered: How many accepted orders are remembered.

    Attributes:
        credentials: What it logs in with.
        dialect: How requests are written.
        known_as: How the requests are written that the books know orders by, where that is not ``dialect``.
        quirks: Those that its answers have shown.
        lifetime: When it may be used; one for a session, whatever its options.
        books: What it knows of its orders.
        clock: Monotonic seconds.
        sleep: Waits for seconds.
        observer: Who watches, if anybody does.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        gate: Gate,
        auth: Authenticator,
        credentials: Credentials,
        dialect: Dialect,
        secrets: Secrets,
        quirks: MetQuirks,
        patience: Patience,
        retry: RetryPolicy,
        remembered: int,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self.transport = transport
        self.gate = gate
        self.auth = auth
        self.credentials = credentials
        self.dialect = dialect
        self.known_as: Dialect | None = None
        self.secrets = secrets
        self.quirks = quirks
        self.patience = patience
        self.books: Books = Books(remembered)
        self.clock = clock
        self.sleep = sleep
        self.observer: Observer | None = None
        self._retry = retry
        self.lifetime: Lifetime = Lifetime()
        self._token: Token | None = None  # that the headers are made with
        self._further: Mapping[str, str] | None = None  # headers of with_options
        self._query: Mapping[str, str] = {}  # parameters of with_options
        self._headers = transport.make_headers(None)

    async def open(self) -> None:
        """Connect it with the event loop it runs in.

        Raises:
            RuntimeError: It was opened before.
        """
        life = self.lifetime
        if life.loop is not None:
            raise RuntimeError("this session was opened before; make a new PaymentsSession")
        life.loop = asyncio.get_running_loop()
        await self.transport.open()

    def with_options(
        self,
        *,
        dialect: Dialect | None,
        retry: RetryPolicy | None,
        patience: Patience | None,
        headers: Mapping[str, str] | None,
        query: Mapping[str, str] | None = None,
    ) -> Self:
        """One that makes its calls with other options and shares all else; what is ``None`` stays as it is."""
        other = copy.copy(self)
        if dialect is not None and dialect != self.dialect:
            known_as = self.known_as or self.dialect
            other.dialect, other.known_as = dialect, None if dialect == known_as else known_as
        other._retry = retry or self._retry
        other.patience = patience or self.patience
        if query is not None:
            other._query = {**self._query, **query}
        if headers is not None:
            other._further = {**(self._further or {}), **headers}
            other._token, other._headers = None, self.transport.make_headers(None, other._further)
        return other

    def before_close(self, finish: Callable[[], Awaitable[object]]) -> Callable[[], None]:
        """Have something finished before the session takes no further call; what is returned takes that back."""
        waiting = self.lifetime.before_close
        waiting.append(finish)

        def take_back() -> None:
            if finish in waiting:
                waiting.remove(finish)

        return take_back

    async def aclose(self) -> None:
        """Finish what is to be finished before, take no further call, wait for those under way, and close.

        Closing twice is harmless.
        """
        life = self.lifetime
        if life.loop is not None and not life.loop.is_closed() and asyncio.get_running_loop() is not life.loop:
            raise RuntimeError("this session belongs to another event loop; close it there")
        while life.before_close:
            await life.before_close.pop()()
        life.closing = True
        try:
            while life.under_way:
                life.drained.clear()
                await life.drained.wait()
        finally:
            await self.transport.close()

    def check_usable(self) -> None:
        """Whether a call can be made now.

        Raises:
            RuntimeError: It cannot; the message tells why.
        """
        life = self.lifetime
        if life.loop is None:
            why = "this session is not open; use it within 'async with PaymentsSession(...)'"
        elif life.closing:
            why = "this session is closed; make a new PaymentsSession"
        elif asyncio.get_running_loop() is not life.loop:
            why = "this session belongs to another event loop; open one for each loop"
        elif self.transport.is_closed:
            why = "the ClientSession that was brought (http=...) is closed; open it for as long as this session"
        else:
            return
        raise RuntimeError(why)

    async def execute(
        self, call: Call[T], *, retry: RetryPolicy | None = None, may_leave: Callable[[], bool] | None = None
    ) -> T:
        """Make a call and read its answer. Every method of a session and of its namespaces comes here.

        Args:
            call: From ``payments_async._wire.endpoints``.
            retry: In place of the session's.
            may_leave: Asked at the last moment whether an order may still be sent; it is ``NotSent`` otherwise.
        """
        self.check_usable()
        if self._query:
            call = with_query(call, self._query)
        life = self.lifetime
        life.under_way += 1
        try:
            if not call.once:
                return await _Attempts(self, call, retry or self._retry).run()
            return await self._execute_once(call, retry or self._retry, may_leave)
        finally:
            life.under_way -= 1
            if life.closing and not life.under_way:
                life.drained.set()

    async def _execute_once(self, call: Call[T], retry: RetryPolicy, may_leave: Callable[[], bool] | None) -> T:
        """Make a call that must not be carried out twice, and enter in the books what becomes of it."""
        books, request_id, at = self.books, call.request_id, self.transport.wall_clock()
        unsettled = open_before = False
        if not books.begin(call):
            earlier: T | None = await books.earlier(call)
            if earlier is not None:
                _log.info("accepted before, not sent again: %s", request_id, extra={"request_id": request_id})
                return earlier
            at = books.sent_at(request_id or "") or at
            unsettled = open_before = books.begin_again(call)
        attempts = _Attempts(self, call, retry, may_leave)
        outcome: T | PaymentsError | None = None
        try:
            outcome = result = await attempts.run()
            unsettled = False
        except OutcomeUnknown as error:
            outcome, unsettled = error, True
            named = {"request_id": request_id, "correlation_id": error.correlation_id}
            _log.warning("outcome unknown: %s: %s", attempts.what, error.message, extra=named)
            raise
        except PaymentsError as error:
            outcome = error
            raise
        except Exception as error:
            # A clock or a sleep that was passed in has failed; a money call raises what it promised all the same.
            unsettled = open_before or attempts.left
            why = f"the call failed ({type(error).__name__})"
            outcome = (lost_reply if attempts.left else never_left)(call, why)
            facts = {"error": type(error).__name__, "request_id": request_id}
            _log.error("a call failed unforeseen: %s: %s", attempts.what, facts["error"], extra=facts)
            raise outcome from error
        except BaseException as error:
            unsettled = open_before or attempts.left
            if attempts.left:
                what = f"order {request_id}" if request_id else call.label
                error.add_note(f"payments_async: {what} may have left; its outcome is unknown")
                outcome = lost_reply(call, "broken off before the answer came")
            raise
        finally:
            books.end(call, outcome, unsettled=unsettled, at=at)
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

    def sends_written(self) -> endpoints.SendsWritten:
        """What describes the sending of orders that a journal holds."""
        return endpoints.sends_written(self.dialect, self.known_as)

    def note_evidence(self, request_id: str, found: Acceptance | Transaction | None = None) -> None:
        """The outcome of this order is known now, from elsewhere: it no longer counts as unsettled.

        Args:
            found: What shows that the service has the order: it is remembered, and the order is not sent again.
                Without it, the order may be.
        """
        self.books.settle(request_id, found)

    def headers(self, call: Call[T], token: Token | None) -> CIMultiDict[str]:
        """The headers of one call; made once for each token."""
        if token is not self._token:
            authorization = None if token is None else token.authorization
            self._token, self._headers = token, self.transport.make_headers(authorization, self._further)
        name, asks_first = self.dialect.correlation_header, self.dialect.expect_continue and call.once
        if call.request_id is None or (name is None and not asks_first):
            return self._headers
        headers = self._headers.copy()
        if name is not None:
            headers[name] = call.request_id
        if asks_first:
            headers["Expect"] = "100-continue"
        return headers


class _LogInAgain(Exception):
    """The token was refused, and a new one is worth a try."""

    def __init__(self, error: PaymentsError) -> None:
        super().__init__()
        self.error = error


class _Attempts(Generic[T]):
    """One call through all its attempts: place, token, exchange, answer, and whether to try again.

    Attributes:
        left: Whether a byte of the attempt in hand may have left.
    """

    def __init__(
        self, executor: Executor, call: Call[T], policy: RetryPolicy, may_leave: Callable[[], bool] | None = None
    ) -> None:
        self._executor = executor
        self._call = call
        self._policy = policy
        self._begun = 0.0
        self._made = 0
        self._refused = 0
        self._paused = False
        self._may_leave = may_leave
        self._outgoing: Outgoing | None = None
        self._reply: Reply | None = None  # to the attempt in hand

    @property
    def what(self) -> str:
        """What to call it in the log: a path may hold an account number."""
        call = self._call
        return call.request_id or redact(call.label, call.private())

    @property
    def left(self) -> bool:
        """Whether a byte of the attempt in hand may have left."""
        return self._outgoing is not None and self._outgoing.left

    async def run(self) -> T:
        """The result, after as many attempts as the policy and the errors allow."""
        hooks, clock = self._executor.lifetime.attempt_hooks, self._executor.clock
        while True:
            self._made += 1
            wait: float | None = 0.0
            begun = clock() if hooks else 0.0
            try:
                result = await self._attempt()
            except _LogInAgain as again:
                if hooks:
                    self._tell(again.error, clock() - begun, 0.0)
                _log.info("token refused, logging in again: %s", self.what, extra={"request_id": self._call.request_id})
            except PaymentsError as error:
                wait = self._wait_after(error)
                if hooks:
                    self._tell(error, clock() - begun, wait)
                if wait is None:
                    raise
                request_id = self._call.request_id
                facts = {
                    "attempt": self._made,
                    "wait": wait,
                    "status": error.status,
                    "request_id": request_id,
                    "correlation_id": error.correlation_id,
                }
                words = "trying again: %s: attempt %d, status %s, after %.3f s"
                _log.info(words, self.what, self._made, error.status, wait, extra=facts)
            else:
                if hooks:
                    self._tell(None, clock() - begun, None)
                return result
            self._reply = None
            self._outgoing = None  # it was turned away unread, or does no harm
            if wait:
                await self._executor.sleep(wait)

    def _tell(self, error: PaymentsError | None, seconds: float, again_in: float | None) -> None:
        """Tell hooks how the attempt in hand ended."""
        hooks = self._executor.lifetime.attempt_hooks
        tell_attempt(hooks, self._call, self._reply, error, number=self._made, seconds=seconds, again_in=again_in)

    async def _attempt(self) -> T:
        """Wait for a place, obtain a token, make one exchange and read what it brought."""
        executor, call = self._executor, self._call
        first = self._made == 1
        patience = self._policy.total  # what is left of it is waited for in a cool-down
        if pause := await executor.gate.enter(patience if first else patience - (executor.clock() - self._begun)):
            raise self._pause(pause)
        if first:
            self._begun = executor.clock()
        try:
            token = (executor.auth.good or await self._token()) if call.authorized else None
            if call.body is not None or call.once:  # an empty body is watched too
                self._outgoing = executor.transport.make_body(call.body or b"", self._may_leave)
            headers = executor.headers(call, token)
            reply = self._reply = await executor.transport.exchange(call, self._outgoing, headers, executor.patience)
        except TransportFailure as failure:
            surely_not = self._outgoing is not None and not self._outgoing.left
            error = (never_left if surely_not else lost_reply)(call, str(failure))
            if (listener := listening()) is not None:
                listener.hear(executor.lifetime, call, None, error)
            raise error from failure
        finally:
            executor.gate.leave()
        try:
            if (listener := listening()) is not None:
                return self._read_aloud(reply, token, listener)
            return self._read(reply, token)
        finally:
            quirks = executor.quirks
            if reply.is_unusual or not call.once:
                quirks.consider(call, reply)
            else:  # the usual case: half a microsecond less than by asking
                quirks.taken = taken = quirks.taken + 1
                if not taken & (taken - 1):
                    quirks.look_at_answer(call, reply)

    def _read_aloud(self, reply: Reply, token: Token | None, listener: Listener) -> T:
        """As ``_read`` does, heard by whoever listens."""
        whose = self._executor.lifetime
        try:
            result = self._read(reply, token)
        except Exception as error:
            listener.hear(whose, self._call, reply, error)
            raise
        listener.hear(whose, self._call, reply, result)
        return result

    def _read(self, reply: Reply, token: Token | None) -> T:
        """The result that an answer holds; an answer that cannot be read leaves the outcome unknown."""
        try:
            result = read_reply(self._call, reply, self._executor.dialect, self._executor.secrets)
        except PaymentsError as error:
            status = told_status(error)
            if status == 401:
                self._log_in_again(token, error)
            elif token is not None and error.code is not None and status not in _AT_THE_DOOR:
                self._executor.auth.was_accepted(token)
            raise
        except Exception as error:  # noqa: BLE001 - whatever a reader trips over, the order has left
            failure = lost_reply(self._call, f"the answer could not be read ({type(error).__name__})")
            facts = {"error": type(error).__name__, "request_id": self._call.request_id}
            _log.error("an answer could not be read: %s: %s", self.what, facts["error"], extra=facts)
        else:
            if token is not None:
                self._executor.auth.was_accepted(token)
            return result
        failure.status = reply.status
        raise failure  # here, so that what the reader tripped over does not hang on as its context

    async def _token(self) -> Token:
        """A token; where there is none to be had, the order was surely not sent."""
        try:
            return await self._executor.auth.token()
        except AuthenticationFailed as error:
            error.request_id = self._call.request_id
            raise
        except ServiceFault as error:
            if not self._call.once:
                raise
            raise NotSent(
                error.message,
                request_id=self._call.request_id,
                status=error.status,
                retry_after=error.retry_after,
            ) from error

    def _log_in_again(self, token: Token | None, error: PaymentsError) -> None:
        """Ask for an attempt with a new token where a login may help and nobody has read the call."""
        if token is None:
            raise AuthenticationFailed(
                f"{self._call.label}: refused without a token; set Dialect(validation_authorized=True)",
                request_id=self._call.request_id,
                status=401,
            )
        self._refused += 1
        worth_it = self._executor.auth.was_refused(token, self._refused)
        if not worth_it or not isinstance(error, AuthenticationFailed):  # else it may have been read all the same
            return
        if self._policy.attempts > 1:
            raise _LogInAgain(error)
        not_sent = never_left(self._call, "the token was refused; the next try logs in")
        not_sent.status = 401
        raise not_sent

    def _pause(self, seconds: float) -> PaymentsError:
        """What a call fails with that did not wait for the end of a cool-down."""
        self._paused = True
        error = never_left(self._call, f"the service asked for a pause that lasts {seconds:.0f} s more")
        error.status, error.retry_after = 429, seconds
        return error

    def _wait_after(self, error: PaymentsError) -> float | None:
        """Seconds until the next attempt, or ``None`` where there must be none."""
        if self._paused:
            return None
        elapsed = self._executor.clock() - self._begun
        wait = self._policy.wait(self._made, elapsed, retry_after=error.retry_after)
        if self._is_turned_away(error):
            # Everybody waits, this call included: the gate opens when the pause is over.
            self._executor.gate.cool_down(self._policy.wait_initial if error.retry_after is None else error.retry_after)
            return wait
        if not self._call.repeatable or not isinstance(error, ServiceFault):
            return None
        redirected = error.status is not None and 300 <= error.status < 400
        return None if redirected else wait

    def _is_turned_away(self, error: PaymentsError) -> bool:
        """Whether the service asked to come back later without having read the call."""
        status = told_status(error)
        if not isinstance(error, NotSent | ServiceFault) or status is None or status == 401:
            return False
        return status == 429 or (self._call.once and status in self._executor.dialect.turned_away_unread)
