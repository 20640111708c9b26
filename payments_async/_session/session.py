"""PaymentsSession: our open connection to the service for one application key, as its users see it."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import os
import re
import ssl as tls
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

import aiohttp
from yarl import URL

from payments_async._session.attempts import AttemptHook
from payments_async._session.auth import LOGIN_FIELDS, Authenticator, Credentials, LoginCalls
from payments_async._session.books import Outcome
from payments_async._session.exchanges import Exchanges
from payments_async._session.executor import Executor
from payments_async._session.limits import Gate, Limits, RetryPolicy
from payments_async._session.namespaces import Accounts, Cards, Collections, Payouts, Products
from payments_async._session.quirks import MetQuirks
from payments_async._session.transactions import Transactions
from payments_async._session.transport import DEFAULT_TIMEOUT, Transport
from payments_async._values.checks import check_callable, check_flag, check_instance, check_number, check_whole
from payments_async._values.deadlines import steady_seconds
from payments_async._values.frozen import field, frozen
from payments_async._values.log_lines import LOG, show_log
from payments_async._values.masking import Secret, Secrets
from payments_async._values.observing import Observer, guarded
from payments_async._values.testing import NOT_TESTING, Testing
from payments_async._wire import endpoints
from payments_async._wire.dialect import Dialect

T = TypeVar("T")
Item = TypeVar("Item")
A = TypeVar("A", bound=AttemptHook)

# whoever wants to read it says so; errors tell the rest
logging.getLogger("payments_async").addHandler(logging.NullHandler())


_BASE_URL = "PAYMENTS_BASE_URL"
_CREDENTIALS = {"app_key": "PAYMENTS_APP_KEY", "app_password": "PAYMENTS_APP_PASSWORD", "user_id": "PAYMENTS_USER_ID"}


@frozen(kw_only=True)
class HttpConnection:
    """How a session reaches the service.

    Attributes:
        http: Your own ``aiohttp.ClientSession``; you open and close it.
        ssl: TLS settings, a client certificate included.
        proxy: Address of an HTTP proxy. The service whitelists addresses, so yours may need one.
        trust_env: Whether the proxy variables of the environment count (not with ``http``: set it there).

    >>> connection = HttpConnection(proxy="http://proxy.internal:3128")
    >>> session = PaymentsSession("https://service.example", CREDENTIALS, connection=connection)
    """

    http: aiohttp.ClientSession | None = None
    ssl: tls.SSLContext | None = None
    proxy: str | URL | None = field(default=None, repr=False)  # it may hold a password
    trust_env: bool = False

    def __attrs_post_init__(self) -> None:
        _check_kinds((("http", self.http), ("ssl", self.ssl)))
        check_flag("trust_env", self.trust_env)
        if self.http is not None and self.trust_env:
            raise ValueError("trust_env: set it on your own ClientSession when you bring one (http=...)")


class SessionSettings(TypedDict, total=False):
    """What ``PaymentsSession`` takes by name, beside address and credentials."""

    dialect: Dialect | None
    retry: RetryPolicy | None
    limits: Limits | None
    timeout: aiohttp.ClientTimeout | float
    connection: HttpConnection | None
    observer: Observer | None
    testing: Testing


class PaymentsSession:
    """An open connection to the service for one application key. Use it with ``async with``, in one event loop.

    Attributes:
        payouts, collections, transactions, products, accounts, cards: The endpoints.
    """

    payouts: Payouts
    collections: Collections
    transactions: Transactions
    products: Products
    accounts: Accounts
    cards: Cards

    def __init__(
        self,
        base_url: str | URL,
        credentials: Credentials,
        *,
        dialect: Dialect | None = None,
        retry: RetryPolicy | None = None,
        limits: Limits | None = None,
        timeout: aiohttp.ClientTimeout | float = DEFAULT_TIMEOUT,
        connection: HttpConnection | None = None,
        observer: Observer | None = None,
        testing: Testing = NOT_TESTING,
    ) -> None:
        """Describe a session; nothing is sent before its first call.

        Args:
            base_url: ``https://host:port/prefix``; a trailing slash does not matter. Plain ``http://`` only to a
                loopback host.
            credentials: Of the application and its delegated user.
            dialect: How requests are written where the specification leaves a choice.
            retry: How often and how patiently reads are repeated.
            limits: Concurrency, rate, largest answer.
            timeout: Of one HTTP exchange: 60 s in all, 10 s to connect. A number is seconds in all. The wait for a
                place is not part of it.
            connection: TLS, a proxy, or an HTTP client of your own.
            observer: Watches what it does, such as ``payments_async.otel.OpenTelemetry()``.
            testing: Another clock, for tests.

        Raises:
            TypeError, ValueError: When the address or a setting cannot be right; the message names it.
        """
        _check_settings(credentials, dialect, retry, limits, connection, testing)
        timeouts = _timeouts(timeout)
        clock, sleep = testing.clock or steady_seconds, testing.sleep or asyncio.sleep
        dialect = dialect or Dialect()
        limits = limits or Limits()
        connection = connection or HttpConnection()
        observer = guarded(observer)
        sending, executing = _parts(observer)
        transport = sending(
            base_url,
            http=connection.http,
            ssl=connection.ssl,
            proxy=connection.proxy,
            trust_env=connection.trust_env,
            reply_bytes=limits.reply_bytes,
            clock=clock,
            wall_clock=testing.now or time.time,
        )
        _check_prefix(transport.base_url, dialect.api_prefix)
        secrets = Secrets(Secret(credentials.app_password), Secret(credentials.app_key))
        patience = transport.make_patience(timeouts)
        quirks = MetQuirks(observer)
        logins = LoginCalls(transport, patience, credentials, dialect, secrets, quirks)
        renew = None if dialect.refresh_path is None else logins.refresh
        executor = executing(
            transport=transport,
            gate=Gate(limits, clock=clock, sleep=sleep),
            auth=Authenticator(dialect, log_in=logins.log_in, refresh=renew, clock=clock, secrets=secrets),
            credentials=credentials,
            dialect=dialect,
            secrets=secrets,
            quirks=quirks,
            patience=patience,
            retry=retry or RetryPolicy(),
            remembered=limits.remembered,
            clock=clock,
            sleep=sleep,
        )
        if observer is not None:
            from payments_async._session.observed import start_observing

            start_observing(executor, observer)
        self._made_from: PaymentsSession | None = None
        self._testing = testing
        self._take(executor)

    def _take(self, executor: Executor) -> None:
        """Have the calls of every namespace executed by this."""
        self._executor = executor
        self.payouts = Payouts(executor)
        self.collections = Collections(executor)
        self.transactions = Transactions(executor)
        self.products = Products(executor)
        self.accounts = Accounts(executor)
        self.cards = Cards(executor)

    @classmethod
    def from_env(cls, variables: Mapping[str, str] | None = None, **settings: Unpack[SessionSettings]) -> Self:
        """A session with the address and the credentials of the environment, where the command line has them too.

        They are ``PAYMENTS_BASE_URL``, ``PAYMENTS_APP_KEY``, ``PAYMENTS_APP_PASSWORD`` and ``PAYMENTS_USER_ID``. With
        ``PAYMENTS_LOG``, such as ``info``, the log of the package goes to standard error from this level on.

        Args:
            variables: In place of those of the process.
            settings: As ``PaymentsSession`` takes them.

        Raises:
            TypeError, ValueError: One is missing, or cannot be right; the message names it, and shows no value.
        """
        names = (_BASE_URL, *_CREDENTIALS.values())
        # secrets from the beginning: whoever reports an error shows the local variables of its frames
        found = {name: Secret((os.environ if variables is None else variables).get(name, "")) for name in names}
        level = (variables or {}).get(LOG) or os.environ.get(LOG)
        del variables
        show_log(level)
        if missing := [name for name in names if not found[name]]:
            raise ValueError(f"not set in the environment: {', '.join(missing)}")
        credentials = Credentials(
            app_key=found[_CREDENTIALS["app_key"]],
            app_password=found[_CREDENTIALS["app_password"]],
            user_id=found[_CREDENTIALS["user_id"]],
        )
        return cls(str(found[_BASE_URL]), credentials, **settings)

    def with_options(
        self,
        *,
        timeout: aiohttp.ClientTimeout | float | None = None,
        retry: RetryPolicy | None = None,
        dialect: Dialect | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        proxy: str | URL | None = None,
    ) -> Self:
        """This session for some calls, with another patience or dialect: ``payments.with_options(timeout=5.0)``.

        It shares all else: login and token, connections, limits and the pause after a 429, and what is known of each
        order, so that none is sent twice, by whichever of them. It is open for as long as this session, which alone is
        opened and closed, and whose closing waits for the calls of both. It may be made for a single call.

        Args:
            timeout: Of one HTTP exchange; a number is seconds in all. Logins, which serve all calls, keep that of the
                session. Who waits less for an order than the service takes learns ``OutcomeUnknown`` the more often.
            retry: How often and how patiently its calls are repeated.
            dialect: How its requests are written. What concerns the login is as in the session.
            headers: Further ones of each request, such as ``{"X-Trace": "..."}``; logins go without them.
            query: Further parameters of the query string of each request; those of a call itself count more. Logins
                go without them.
            proxy: Address of another HTTP proxy; logins keep that of the session.

        Raises:
            TypeError, ValueError: A setting cannot be right, or belongs to the login; the message names it.
        """
        _check_kinds((("dialect", dialect), ("retry", retry)))
        if headers is not None:
            _check_headers(headers)
        if query is not None and not all(isinstance(text, str) for pair in query.items() for text in pair):
            raise TypeError("query: names and values must be text")
        if dialect is not None:
            for name in LOGIN_FIELDS:
                if getattr(dialect, name) != getattr(self.dialect, name):
                    raise ValueError(f"dialect.{name}: belongs to the login, which is shared; open a session for it")
            _check_prefix(self.base_url, dialect.api_prefix)
        executor = self._executor
        patience = None if timeout is None else executor.transport.make_patience(_timeouts(timeout))
        if proxy is not None:
            patience = executor.transport.through(patience or executor.patience, proxy)
        other = copy.copy(self)
        other._made_from = self._made_from or self
        other._take(
            executor.with_options(dialect=dialect, retry=retry, patience=patience, headers=headers, query=query)
        )
        return other

    async def __aenter__(self) -> Self:
        self._check_own("opened")
        await self._executor.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<PaymentsSession {self._executor.transport.base_url}>"

    @property
    def base_url(self) -> str:
        """The base address, without a trailing slash."""
        return self._executor.transport.base_url

    @property
    def dialect(self) -> Dialect:
        """How requests are written."""
        return self._executor.dialect

    @property
    def unsettled(self) -> AbstractSet[str]:
        """Request ids of orders whose outcome you cannot know: under way, cancelled, unknown, or undelivered."""
        return self._executor.books.unsettled

    @property
    def undelivered(self) -> Mapping[str, Outcome]:
        """Outcomes that ``send_many`` or ``map`` learned and did not hand over, by request id.

        A loop that is left early, by ``break``, an error or cancellation, leaves here what it did not yield. Yielded
        is handed over; so while a loop goes on, this also shows what it will yield next. ``take_undelivered`` takes
        them out.
        """
        return dict(self._executor.books.undelivered)

    @property
    def is_logged_in(self) -> bool:
        """Whether the next call need not wait for a login: there is a token, and it is good by our clock."""
        return self._executor.auth.good is not None

    @property
    def clock_difference(self) -> float | None:
        """Seconds by which the service's clock is ahead of ours, by its last answer; ``None`` where none has told."""
        return self._executor.transport.clock_difference

    @property
    def silent_for(self) -> float:
        """Seconds since the first call that was followed by no usable answer to any; 0 where the service answers.

        Status 500 and above is not a usable answer. The number grows while calls wait, fail and are repeated.
        """
        return self._executor.transport.silent_for

    @property
    def quirks_met(self) -> Mapping[str, str]:
        """The contradictions of the specification that answers have shown, with the value of each.

        Under the ids of ``payments_async.sandbox.Quirks``; set there, a sandbox behaves as your service does. All of
        them are understood. Not all answers are looked at, but each that is in none of the usual shapes.
        """
        return dict(self._executor.quirks.met)

    async def aclose(self) -> None:
        """Take no further call, wait for those under way, and close. Closing twice is harmless.

        Raises:
            RuntimeError: It was made by ``with_options``; close the session that it was made from.
        """
        self._check_own("closed")
        await self._executor.aclose()

    async def log_in(self) -> None:
        """Make sure that there is a good token now, so that the next call need not wait for one.

        Raises:
            AuthenticationFailed: The service refused credentials or address.
            ServiceFault: It could not be reached or read.
        """
        self._executor.check_usable()
        await self._executor.auth.token()

    def take_undelivered(self) -> Mapping[str, Outcome]:
        """All of ``undelivered``, which count as handed over from now on."""
        return self._executor.books.take_undelivered()

    def knows(self, request_id: str) -> bool:
        """Whether the service has an order, as this session was told by its answer or by other evidence."""
        return self._executor.books.knows(request_id)

    async def raw(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Any = None) -> Any:
        """Call an endpoint this package does not know: authorised, decoded, untyped.

        Args:
            method: GET is repeatable; anything else is made once and fails as money does.
            path: Below the base address, such as ``/api/anything``.
            query: Parameters of the query string.
            body: What becomes the JSON body; write amounts as ``Decimal``.

        Raises:
            ValueError: For the payout and collection paths.
        """
        return await self._executor.execute(endpoints.raw(method, path, query=query, body=body, dialect=self.dialect))

    def exchanges(self, *, keep: int = 100) -> Exchanges:
        """What the service says, word for word, in the exchanges of a ``with`` block.

        ``with payments.exchanges() as exchanges:``, and then ``exchanges.of(acceptance)`` has HTTP status, correlation
        id, body and JSON of the answer that told it; ``exchanges[-1]`` is the last one. Outside of such a block nothing
        is kept.

        What an outbox of this session sends in this process meanwhile is among them: ``exchanges.of("withdrawal-17")``.

        Args:
            keep: The last so many are kept, each with its whole body.
        """
        check_whole("keep", keep, 1)
        return Exchanges(keep, of=self._executor.lifetime)

    def on_attempt(self, hook: A) -> A:
        """Register a function that is told of each attempt of a call once it has ended, retries included.

        Use it as a decorator, ``@payments.on_attempt``, for metrics or a log of your own. It is called in the event
        loop, also for orders that an outbox sends in this process. Logins are not told. What it raises is logged.

        Args:
            hook: Called with an ``Attempt``; it must not block.

        Raises:
            TypeError: It is not a plain function.
        """
        check_callable("hook", hook, "a function that is called with each Attempt")
        if inspect.iscoroutinefunction(hook):
            raise TypeError("hook: define it with 'def': it is called within the call that it is told of")
        self._executor.lifetime.attempt_hooks.append(hook)
        return hook

    def map(
        self,
        function: Callable[[Item], Awaitable[T]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        concurrency: int = 20,
    ) -> AsyncGenerator[tuple[Item, T | Exception], None]:
        """Call any function over many items: pairs of item and result or exception, as they are done.

        Leaving the loop early takes no further item and waits for the calls under way. The outcomes of orders that
        the function sent and that were not yielded are then in ``undelivered``.

        Args:
            function: Such as ``payments.transactions.get``.
            items: Taken only as they are worked on.
            concurrency: Calls under way at once; the session's ``Limits`` count too.
        """
        return self._executor.map(function, items, concurrency=concurrency)

    def _check_own(self, what: str) -> None:
        if self._made_from is not None:
            raise RuntimeError(f"made by with_options, this is {what} with the session that it was made from, alone")


def check_session(value: object) -> None:
    """It is a session: where a session and a journal are handed in, they are easily swapped. Raises ``TypeError``."""
    check_instance("payments", value, PaymentsSession, "a PaymentsSession, such as PaymentsSession.from_env()")


def executor_of(payments: PaymentsSession) -> Executor:
    """What executes the calls of a session: for the rooms of this package that need more of it than its users."""
    return payments._executor


def testing_of(payments: PaymentsSession) -> Testing:
    """The clock that a session was given, for what is made with it."""
    return payments._testing


def _parts(observer: Observer | None) -> tuple[type[Transport], type[Executor]]:
    """What sends and what executes; where nobody watches, what tells of it is not even imported."""
    if observer is None:
        return Transport, Executor
    from payments_async._session.observed import ObservedExecutor, ObservedTransport

    return ObservedTransport, ObservedExecutor


_KINDS: Mapping[str, tuple[type, str]] = {
    "dialect": (Dialect, "Dialect(...)"),
    "retry": (RetryPolicy, "RetryPolicy(attempts=...)"),
    "limits": (Limits, "Limits(concurrency=...)"),
    "http": (aiohttp.ClientSession, "an aiohttp.ClientSession (one that repeats requests would pay twice)"),
    "ssl": (tls.SSLContext, "an ssl.SSLContext, since TLS is never left unverified"),
    "connection": (HttpConnection, "HttpConnection(proxy=...)"),
}


def _check_settings(
    credentials: object, dialect: object, retry: object, limits: object, connection: object, testing: object
) -> None:
    check_instance("credentials", credentials, Credentials, "Credentials(app_key=..., app_password=..., user_id=...)")
    check_instance("testing", testing, Testing, "Testing(now=...)")
    _check_kinds((("dialect", dialect), ("retry", retry), ("limits", limits), ("connection", connection)))


def _check_kinds(settings: Iterable[tuple[str, object]]) -> None:
    for name, value in settings:
        if value is not None:
            check_instance(name, value, *_KINDS[name])


_OUR_HEADERS = {
    *("accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type"),
    *("expect", "host", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
}


def _check_headers(headers: Mapping[Any, Any]) -> None:
    """Further headers of a request.

    Raises:
        TypeError: A name or value is not text.
        ValueError: One belongs to the package, or cannot stand in a request. No value is shown.
    """
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError("headers: names and values must be text")
        if name.lower() in _OUR_HEADERS:
            raise ValueError(f"headers: {name} is written by the package itself")
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError("headers: a name must be a token, such as 'X-Trace'")
        if not (value.isascii() and value.isprintable()) or value != value.strip():
            raise ValueError(f"headers: the value of {name} must be printable ASCII, without spaces around it")


def _timeouts(timeout: aiohttp.ClientTimeout | float) -> aiohttp.ClientTimeout:
    """The timeouts of one exchange, where a number of seconds is that of all of it."""
    if isinstance(timeout, int | float) and not isinstance(timeout, bool):
        check_number("timeout", timeout, above_zero=True)
        return aiohttp.ClientTimeout(total=timeout, sock_connect=DEFAULT_TIMEOUT.sock_connect)
    remedy = "seconds, or aiohttp.ClientTimeout(total=60.0)"
    found = check_instance("timeout", timeout, aiohttp.ClientTimeout, remedy)
    for part in ("total", "connect", "sock_read", "sock_connect"):
        if (seconds := getattr(found, part)) is not None:
            check_number(f"timeout.{part}", seconds)
    return found


def _check_prefix(base_url: str, prefix: str) -> None:
    if prefix and URL(base_url).path.endswith(prefix):
        raise ValueError(
            f"base_url: leave out the final {prefix!r}: it is added to every path (or set Dialect(api_prefix=''))"
        )
