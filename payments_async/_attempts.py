"""One call through all its attempts: place, token, exchange, answer, and whether to try again. Keeps no books."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs
from multidict import CIMultiDict

from payments_async._auth import Authenticator, Token
from payments_async._dialect import Dialect
from payments_async._errors import AuthenticationFailed, NotSent, PaymentsError, ServiceFault
from payments_async._limits import Gate
from payments_async._masking import Secrets
from payments_async._retry import RetryPolicy
from payments_async._transport import Outgoing, Transport, TransportFailure, make_headers
from payments_async._wire.call import Call, Reply
from payments_async._wire.replies import lost_reply, never_left, read_reply, told_status

__all__ = ["Attempts", "Line"]

T = TypeVar("T")

_log = logging.getLogger("payments_async")

_AT_THE_DOOR = frozenset({401, 403, 429})  # said perhaps before anybody looked at the token


@attrs.define
class Line:
    """What all calls of a session share."""

    transport: Transport
    gate: Gate
    auth: Authenticator
    dialect: Dialect
    secrets: Secrets
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]]
    _token: Token | None = attrs.field(default=None, repr=False)
    _headers: CIMultiDict[str] = attrs.field(factory=lambda: make_headers(None), repr=False)

    def headers(self, call: Call[T], token: Token | None) -> CIMultiDict[str]:
        """The headers of one call; made once for each token."""
        if token is not self._token:
            self._token, self._headers = token, make_headers(None if token is None else token.authorization)
        name = self.dialect.correlation_header
        if name is None or call.request_id is None:
            return self._headers
        headers = self._headers.copy()
        headers[name] = call.request_id
        return headers


class _LogInAgain(Exception):
    """The token was refused, and a new one is worth a try."""


class Attempts(Generic[T]):
    """One call through all its attempts.

    Attributes:
        left: Whether a byte of the attempt in hand may have left.
    """

    def __init__(self, line: Line, call: Call[T], policy: RetryPolicy) -> None:
        self._line = line
        self._call = call
        self._policy = policy
        self._begun = 0.0
        self._made = 0
        self._refused = 0
        self._paused = False
        self._outgoing: Outgoing | None = None

    @property
    def left(self) -> bool:
        """Whether a byte of the attempt in hand may have left."""
        return self._outgoing is not None and self._outgoing.left

    async def run(self) -> T:
        """The result, after as many attempts as the policy and the errors allow."""
        while True:
            self._made += 1
            wait: float | None = 0.0
            try:
                return await self._attempt()
            except _LogInAgain:
                _log.info("token refused, logging in again")
            except PaymentsError as error:
                wait = self._wait_after(error)
                if wait is None:
                    raise
                _log.info("trying again", extra={"attempt": self._made, "wait": wait, "status": error.status})
            self._outgoing = None  # it was turned away unread, or does no harm
            if wait:
                await self._line.sleep(wait)

    async def _attempt(self) -> T:
        line, call = self._line, self._call
        first = self._made == 1
        patience = self._policy.total  # what is left of it is waited for in a cool-down
        if pause := await line.gate.enter(patience if first else patience - (line.clock() - self._begun)):
            raise self._pause(pause)
        if first:
            self._begun = line.clock()
        try:
            token = await self._token() if call.authorized else None
            if call.body is not None or call.once:  # an empty body is watched too
                self._outgoing = Outgoing(call.body or b"")
            reply = await line.transport.exchange(call, self._outgoing, line.headers(call, token))
        except TransportFailure as failure:
            surely_not = self._outgoing is not None and not self._outgoing.left
            raise (never_left if surely_not else lost_reply)(call, str(failure)) from failure
        finally:
            line.gate.leave()
        return self._read(reply, token)

    def _read(self, reply: Reply, token: Token | None) -> T:
        try:
            result = read_reply(self._call, reply, self._line.dialect, self._line.secrets)
        except PaymentsError as error:
            status = told_status(error)
            if status == 401:
                self._log_in_again(token, error)
            elif token is not None and error.code is not None and status not in _AT_THE_DOOR:
                self._line.auth.was_accepted(token)
            raise
        except Exception as error:  # noqa: BLE001 - whatever a reader trips over, the order has left
            failure = lost_reply(self._call, f"the answer could not be read ({type(error).__name__})")
            _log.error("an answer could not be read", extra={"error": type(error).__name__})
        else:
            if token is not None:
                self._line.auth.was_accepted(token)
            return result
        failure.status = reply.status
        raise failure  # here, so that what the reader tripped over does not hang on as its context

    async def _token(self) -> Token:
        try:
            return await self._line.auth.token()
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
        if token is None:
            raise AuthenticationFailed(
                f"{self._call.label}: refused without a token; set Dialect(validation_authorized=True)",
                request_id=self._call.request_id,
                status=401,
            )
        self._refused += 1
        worth_it = self._line.auth.was_refused(token, self._refused)
        if not worth_it or not isinstance(error, AuthenticationFailed):  # else it may have been read all the same
            return
        if self._policy.attempts > 1:
            raise _LogInAgain
        not_sent = never_left(self._call, "the token was refused; the next try logs in")
        not_sent.status = 401
        raise not_sent

    def _pause(self, seconds: float) -> PaymentsError:
        self._paused = True
        error = never_left(self._call, f"the service asked for a pause that lasts {seconds:.0f} s more")
        error.status, error.retry_after = 429, seconds
        return error

    def _wait_after(self, error: PaymentsError) -> float | None:
        if self._paused:
            return None
        elapsed = self._line.clock() - self._begun
        wait = self._policy.wait(self._made, elapsed, retry_after=error.retry_after)
        if self._is_turned_away(error):
            # Everybody waits, this call included: the gate opens when the pause is over.
            self._line.gate.cool_down(self._policy.wait_initial if error.retry_after is None else error.retry_after)
            return wait
        if not self._call.repeatable or not isinstance(error, ServiceFault):
            return None
        redirected = error.status is not None and 300 <= error.status < 400
        return None if redirected else wait

    def _is_turned_away(self, error: PaymentsError) -> bool:
        status = told_status(error)
        if not isinstance(error, NotSent | ServiceFault) or status is None or status == 401:
            return False
        return status == 429 or (self._call.once and status in self._line.dialect.turned_away_unread)
