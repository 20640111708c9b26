"""Credentials, tokens, and logins: one for all tasks that need it, told without our secrets when it fails."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import attrs

from payments_async._session.quirks import MetQuirks
from payments_async._values.errors import (
    AuthenticationFailed,
    PaymentsError,
    Rejected,
    ServiceFault,
    UnreadableReply,
    again,
)
from payments_async._values.frozen import field, frozen
from payments_async._values.masking import Secret, Secrets, masked
from payments_async._wire import endpoints
from payments_async._wire.call import Call, TransportFailure
from payments_async._wire.dialect import Dialect
from payments_async._wire.replies import Login, read_reply

if TYPE_CHECKING:
    from payments_async._session.transport import Patience, Transport

_log = logging.getLogger("payments_async")

_MARGIN = 300.0  # seconds before the end of its life at which a token is renewed
# what of a dialect is the login's, which all calls of a session have in common
LOGIN_FIELDS = ("authorization_scheme", "include_refresh_token", "refresh_path", "token_lifetime")
_JITTER = 120.0  # at most so many seconds earlier, so that many processes do not renew together
_RENEWAL_PAUSE = 5.0  # seconds between failed renewals while the old token still serves


@attrs.frozen(kw_only=True, init=False)
class Credentials:
    """What a client application logs in with. Never shown in full.

    Attributes:
        app_key: Application key, from the portal.
        app_password: Application password, shown only once in the portal.
        user_id: The delegated user, under whose permissions transactions are processed.

    Raises:
        TypeError, ValueError: When one is not text, is empty, or has blanks around it (a common mistake when copying).

    >>> Credentials(app_key="key", app_password="secret", user_id="7")  # no secret is shown
    Credentials(app_key='***', user_id='***')
    """

    app_key: str = attrs.field(repr=masked)
    app_password: str = attrs.field(repr=False)
    user_id: str = attrs.field(repr=masked)

    def __init__(self, *, app_key: str, app_password: str, user_id: str) -> None:
        fault = _fault(app_key=app_key, app_password=app_password, user_id=user_id)
        if fault is None:
            self.__attrs_init__(app_key=Secret(app_key), app_password=Secret(app_password), user_id=Secret(user_id))
            return
        del self, app_key, app_password, user_id  # whoever reports the error shows the local variables of its frames
        raise fault


def _fault(**texts: object) -> Exception | None:
    """What is wrong with the first of these that cannot be right, without its text."""
    for name, text in texts.items():
        if not isinstance(text, str):
            return TypeError(f"{name}: expected text, not {type(text).__name__}")
        if not text.strip():
            return ValueError(f"{name}: must not be empty; the portal shows it under its applications menu")
        if text != text.strip():
            return ValueError(f"{name}: must not begin or end with blanks; copy it again")
        if not text.isprintable():
            return ValueError(f"{name}: must not contain control characters; copy it again")
    return None


@frozen(kw_only=True)
class Token:
    """A token as the session uses it.

    Attributes:
        authorization: Value of the Authorization header.
        generation: Counts logins; a late 401 for an older generation proves nothing of this one.
        renew_at, expires_at: Seconds of the monotonic clock.
        refresh_token: As the service gave it, or ``None``.
    """

    authorization: Secret = field(repr=False)
    generation: int
    renew_at: float
    expires_at: float
    refresh_token: Secret | None = field(default=None, repr=False)


class Authenticator:
    """Hands out the token of now; logs in when there is none, once for all who wait.

    Args:
        log_in: Makes the login call. Raises ``PaymentsError``.
        refresh: Makes the refresh call with a refresh token, or ``None`` where renewal is a login.
        clock: Monotonic seconds.
        secrets: Told of every token, so that none is shown in words that come back.
        chance: Draws from [0, 1).
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        log_in: Callable[[], Awaitable[Login]],
        refresh: Callable[[Secret], Awaitable[Login]] | None,
        clock: Callable[[], float],
        secrets: Secrets | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._lifetime = dialect.token_lifetime
        self._scheme_is_open = dialect.authorization_scheme == "auto"
        self._scheme: str = "Token" if self._scheme_is_open else dialect.authorization_scheme
        self._log_in = log_in
        self._refresh = refresh
        self._clock = clock
        self._secrets = secrets or Secrets()
        self._chance = chance
        self._lock = asyncio.Lock()
        self._logins = 0  # begun
        self._failed: tuple[int, PaymentsError] | None = None
        self._token: Token | None = None
        self._refused_in_row = 0  # tokens refused since one was taken

    @property
    def good(self) -> Token | None:
        """The token that there is, if it is not to be renewed yet."""
        token = self._token
        return token if token is not None and self._clock() < token.renew_at else None

    async def token(self) -> Token:
        """A token that is good by our clock.

        Raises:
            PaymentsError: When the login fails.
        """
        token, now = self._token, self._clock()
        if token is not None and (now < token.renew_at or (now < token.expires_at and self._lock.locked())):
            return token
        return await self._renew(token, keep=token is not None and now < token.expires_at)

    def was_accepted(self, token: Token) -> None:
        """The service took this token, and so the scheme it came in."""
        self._refused_in_row = 0
        if self._scheme_is_open:
            self._scheme_is_open = False
            self._scheme = token.authorization.partition(" ")[0]

    def was_refused(self, token: Token, times: int) -> bool:
        """The service answered 401 to this token. Tells whether another try makes sense.

        One login more is worth a try; when that fresh token is refused too, credentials, address or scheme are wrong.
        With the scheme open, the other one is tried then, once.

        Args:
            times: How often the call in hand has been refused by now.
        """
        if self._token is not None and self._token.generation == token.generation:
            self._token = None  # else it is a late answer for an older token: the newer one is as good as ever
            self._refused_in_row += 1
            if self._scheme_is_open and self._refused_in_row > 1:
                self._scheme = "Bearer" if self._scheme == "Token" else "Token"
        limit = 3 if self._scheme_is_open else 2
        return times < limit and self._refused_in_row < limit

    async def _renew(self, seen: Token | None, *, keep: bool) -> Token:
        """Log in, once for all who wait here.

        Args:
            seen: The token that was found not good enough.
            keep: It still serves, should no other be had.
        """
        begun = self._logins - self._lock.locked()  # a login under way now is ours too, whatever becomes of it
        async with self._lock:
            token = self._token
            if token is not None and (seen is None or token.generation != seen.generation):
                return token  # somebody else has renewed it meanwhile
            if self._failed is not None and self._failed[0] > begun:
                raise again(self._failed[1])  # the login we waited for has failed: its failure is ours
            self._logins += 1
            try:
                self._token = self._made(await self._obtain(seen))
            except PaymentsError as error:
                if keep and seen is not None and self._token is seen:  # not refused meanwhile
                    self._token = attrs.evolve(seen, renew_at=self._clock() + _RENEWAL_PAUSE)
                    return self._token
                self._failed = (self._logins, again(error))  # what is shared is never raised itself
                raise
            return self._token

    async def _obtain(self, seen: Token | None) -> Login:
        """What a refresh gives, or where there is none, a login."""
        if self._refresh is not None and seen is not None and seen.refresh_token is not None:
            try:
                return await self._refresh(seen.refresh_token)
            except PaymentsError:
                pass  # a login follows
        return await self._log_in()

    def _made(self, login: Login) -> Token:
        """The token of a login, to be renewed before it ends; from now on its text is masked everywhere."""
        self._secrets.add(login.token)
        if login.refresh_token is not None:
            self._secrets.add(login.refresh_token)
        now = self._clock()
        margin = min(_MARGIN + self._chance() * _JITTER, self._lifetime / 2)
        return Token(
            authorization=Secret(f"{self._scheme} {login.token}"),
            generation=self._logins,
            renew_at=now + self._lifetime - margin,
            expires_at=now + self._lifetime,
            refresh_token=login.refresh_token,
        )


class LoginCalls:
    """Logs in with the credentials of one session, or with a refresh token. Keeps neither."""

    def __init__(
        self,
        transport: Transport,
        patience: Patience,
        credentials: Credentials,
        dialect: Dialect,
        secrets: Secrets,
        quirks: MetQuirks,
    ) -> None:
        self._transport = transport
        self._quirks = quirks
        self._patience = patience
        self._credentials = credentials
        self._dialect = dialect
        self._secrets = secrets

    async def log_in(self) -> Login:
        """Log in.

        Raises:
            AuthenticationFailed: The service refused.
            ServiceFault: It could not be reached or read.
        """
        own = self._credentials
        _log.debug("logging in")
        return await self._make(endpoints.log_in(own.app_key, own.app_password, own.user_id, self._dialect))

    async def refresh(self, refresh_token: Secret) -> Login:
        """Renew by a refresh token. Raises as ``log_in``."""
        return await self._make(endpoints.refresh(refresh_token, self._dialect.refresh_path or "", self._dialect))

    async def _make(self, call: Call[Login]) -> Login:
        """Make a login call once. No error that it raises has our secrets in it."""
        transport = self._transport
        try:
            body = transport.make_body(call.body or b"")
            reply = await transport.exchange(call, body, transport.make_headers(None), self._patience)
        except TransportFailure as failure:
            raise ServiceFault(f"the login failed: {failure}") from failure
        self._quirks.look_at_answer(call, reply)
        try:
            return read_reply(call, reply, self._dialect, self._secrets)
        except PaymentsError as error:
            problem = _problem(error)
        except Exception as error:  # noqa: BLE001 - whatever a reader trips over
            problem = UnreadableReply(f"the login could not be read ({type(error).__name__})", status=reply.status)
        raise problem  # here, so that words with our secrets in them do not hang on as its context


def _problem(error: PaymentsError) -> PaymentsError:
    """The error of a login: whatever the service refused, it refused our credentials."""
    kind: type[PaymentsError] = AuthenticationFailed if isinstance(error, Rejected) else type(error)
    words = error.message
    if error.status in (404, 405):
        words += "; check the base address and Dialect.api_prefix"
    return kind(
        f"the login {'was refused' if kind is AuthenticationFailed else 'failed'}: {words}",
        status=error.status,
        code=error.code,
        correlation_id=error.correlation_id,
        retry_after=error.retry_after,
    )
