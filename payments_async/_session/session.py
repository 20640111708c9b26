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
from contextlib import aclosing
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from yarl import URL

from payments_async._session.auth import LOGIN_FIELDS, Authenticator, Credentials, LoginCalls
from payments_async._session.books import Outcome
from payments_async._session.exchanges import AttemptHook, Exchanges
from payments_async._session.executor import Executor
from payments_async._session.limits import Gate, Limits, RetryPolicy
from payments_async._session.lists import Listing
from payments_async._session.quirks import MetQuirks
from payments_async._session.transactions import Transactions
from payments_async._values.checks import check_callable, check_flag, check_instance, check_whole
from payments_async._values.deadlines import steady_seconds
from payments_async._values.errors import InvalidOrder, PaymentsError
from payments_async._values.frozen import field, frozen
from payments_async._values.log_lines import LOG, show_log
from payments_async._values.masking import Secret, Secrets
from payments_async._values.observing import Observer, guarded
from payments_async._values.public import Late
from payments_async._values.testing import NOT_TESTING, Testing
from payments_async._wire import endpoints
from payments_async._wire.call import Call
from payments_async._wire.dialect import Dialect
from payments_async._wire.models import Acceptance, Account, Card, Page, Product, ProductItem, Validation
from payments_async._wire.orders import CollectionOrder, Order, PayoutOrder

if TYPE_CHECKING:
    import aiohttp

    from payments_async._session.transport import Transport
else:
    aiohttp = Late("aiohttp")  # the first session brings it: who only puts orders, or asks for help, does without

T = TypeVar("T")
Item = TypeVar("Item")
A = TypeVar("A", bound=AttemptHook)

# whoever wants to read it says so; errors tell the rest
logging.getLogger("payments_async").addHandler(logging.NullHandler())


# Strict on purpose: a payout is answered in a second or two, and its outcome is unknown while nobody answers.
_TIMEOUT = 60.0
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
        if self.http is not None:
            remedy = "an aiohttp.ClientSession (one that repeats requests would pay twice)"
            check_instance("http", self.http, aiohttp.ClientSession, remedy)
        if self.ssl is not None:
            check_instance("ssl", self.ssl, tls.SSLContext, "an ssl.SSLContext, since TLS is never left unverified")
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
        timeout: aiohttp.ClientTimeout | float = _TIMEOUT,
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
        remedy = "Credentials(app_key=..., app_password=..., user_id=...)"
        check_instance("credentials", credentials, Credentials, remedy)
        check_instance("testing", testing, Testing, "Testing(now=...)")
        _check_kinds(dialect=dialect, retry=retry, limits=limits, connection=connection)
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
        patience = transport.make_patience(timeout)
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
        _check_kinds(dialect=dialect, retry=retry)
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
        patience = None if timeout is None else executor.transport.make_patience(timeout)
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
        from payments_async._session.transport import Transport

        return Transport, Executor
    from payments_async._session.observed import ObservedExecutor, ObservedTransport

    return ObservedTransport, ObservedExecutor


_KINDS: Mapping[str, tuple[type, str]] = {
    "dialect": (Dialect, "Dialect(...)"),
    "retry": (RetryPolicy, "RetryPolicy(attempts=...)"),
    "limits": (Limits, "Limits(concurrency=...)"),
    "connection": (HttpConnection, "HttpConnection(proxy=...)"),
}


def _check_kinds(**settings: object) -> None:
    for name, value in settings.items():
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


def _check_prefix(base_url: str, prefix: str) -> None:
    if prefix and URL(base_url).path.endswith(prefix):
        raise ValueError(
            f"base_url: leave out the final {prefix!r}: it is added to every path (or set Dialect(api_prefix=''))"
        )


class Payouts:
    """Money out: mobile money, bank transfer, airtime, internet, utilities."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def send(
        self, order: PayoutOrder, *, sent_before: bool = False, retry: RetryPolicy | None = None
    ) -> Acceptance:
        """Send one payout. Accepted is not paid: the final status comes as a notification.

        An order that this session has sent is not sent twice: who repeats it gets its first acceptance, or waits for
        the exchange that is under way and gets what that comes to. (When that one is cancelled, the outcome is
        unknown to all who wait, unless nothing had left: then one of them sends it.) What was rejected or not sent
        may be sent again. The last ``Limits.remembered`` accepted orders are remembered.

        Args:
            order: Its destination's class selects the endpoint.
            sent_before: The order may have been sent earlier, by any program: a refusal proves nothing then and is
                raised as ``OutcomeUnknown``. Without it, an order whose outcome this session does not know is not
                sent again. ``NotSent`` speaks of this try alone then. What this session knows to be accepted is
                not sent either way.
            retry: In place of the session's; ``RetryPolicy(attempts=1)`` makes exactly one try.

        Raises:
            NotSent: Surely not carried out; it is safe to send it again.
            OutcomeUnknown: It may have been carried out; look it up, never resend it.
            Rejected: The service said no (``AuthenticationFailed``: to our credentials or address).
            InvalidOrder: This session has sent another order under this request id. Also a ``ValueError``.
        """
        call = _sending(self._executor, order, PayoutOrder, sent_before, retry)
        return await self._executor.execute(call, retry=retry)

    async def send_many(
        self, orders: Iterable[PayoutOrder] | AsyncIterable[PayoutOrder], *, concurrency: int = 50
    ) -> AsyncGenerator[tuple[PayoutOrder, Acceptance | PaymentsError], None]:
        """Send many payouts and yield each order with its outcome, in the order they are done.

        One bad order never stops the others: an invalid order comes back with ``InvalidOrder``. Nothing is
        written down: for a batch that must survive a crash use ``payments_async.bulk.run_batch``. Memory stays
        bounded however many orders there are. Leaving the loop early sends no further order and waits for those under
        way; ``undelivered`` of the session holds every outcome that was not yielded, ``unsettled`` their request ids
        and those of orders whose outcome is not known.

        Args:
            orders: Taken only as they are sent.
            concurrency: Payouts under way at once; the session's ``Limits`` count too.

        Raises:
            RuntimeError: The session is not open, or closed meanwhile.
        """
        async with aclosing(self._executor.map(self.send, orders, concurrency=concurrency)) as results:
            async for order, result in results:
                yield order, _outcome(result)


class Collections:
    """Money in, on request, from a mobile money wallet."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def request(
        self, order: CollectionOrder, *, sent_before: bool = False, retry: RetryPolicy | None = None
    ) -> Acceptance:
        """Request one collection. Accepted is not collected: the payer may have to approve.

        It is requested only once in a session, as ``payouts.send`` tells.

        Args:
            order: Who pays, and how much.
            sent_before: As in ``payouts.send``.
            retry: As in ``payouts.send``.

        Raises:
            NotSent, OutcomeUnknown, Rejected, InvalidOrder: As ``payouts.send``.
        """
        call = _sending(self._executor, order, CollectionOrder, sent_before, retry)
        return await self._executor.execute(call, retry=retry)


class Products:
    """What can be bought and where money can be sent."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def get(self, product_id: str) -> Product:
        """One product.

        Raises:
            Rejected, ServiceFault: The read was refused (no such product), or failed for now.
        """
        return await self._executor.execute(endpoints.get_product(product_id, self._executor.dialect))

    async def page(self, *, number: int = 1, size: int = 50) -> Page[Product]:
        """One page of products; page numbers begin at 1."""
        return await self._executor.execute(
            endpoints.list_products(number=number, size=size, dialect=self._executor.dialect)
        )

    def iterate(self, *, size: int = 50) -> Listing[Product]:
        """All products, for ``async for``."""
        return Listing(lambda number: self.page(number=number, size=size), lambda product: product.product_id)

    def items(self, product_id: str, *, size: int = 50) -> Listing[ProductItem]:
        """All items of a product, for ``async for``. The path is a guess (``Dialect.product_items_path``)."""

        async def fetch(number: int) -> Page[ProductItem]:
            dialect = self._executor.dialect
            call = endpoints.list_product_items(product_id, number=number, size=size, dialect=dialect)
            return await self._executor.execute(call)

        return Listing(fetch, lambda item: item.product_item_id)

    async def validate(self, product_item_id: str, customer_reference: str, amount: Decimal | int | str) -> Validation:
        """Ask whether an order would be taken: the reference exists and the amount is in the provider's bounds.

        A "no" is an answer (``Validation.ok`` is false), not an error.

        Args:
            product_item_id: Item of the operator or provider.
            customer_reference: Account or telephone number of the customer.
            amount: Above zero, in units of the account's currency.

        Raises:
            Rejected, ServiceFault: The call was refused, or failed for now.
        """
        call = endpoints.validate(product_item_id, customer_reference, amount, self._executor.dialect)
        return await self._executor.execute(call)


class Accounts:
    """The client account."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def get(self) -> Account:
        """The account with its balance, exact, in units of its currency.

        Raises:
            Rejected, ServiceFault: The read was refused, or failed for now.
        """
        return await self._executor.execute(endpoints.get_account(self._executor.dialect))


class Cards:
    """Cards: read one, enable it, set its PIN anew."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def get(self, card_id: str, masked_number: str | None = None) -> Card:
        """One card. ``Dialect.cards_path`` selects the first or the v2 path.

        Args:
            card_id: Id of the card.
            masked_number: First and last four digits as the service masks them; the samples send it too.

        Raises:
            Rejected, ServiceFault: The read was refused, or failed for now.
        """
        return await self._executor.execute(endpoints.get_card(card_id, masked_number, self._executor.dialect))

    async def enable(self, masked_number: str) -> Card:
        """Enable a card to transact. The body is a guess (``Dialect.card_enable_member``).

        Raises:
            NotSent, OutcomeUnknown, Rejected: It is never repeated, as if it moved money.
        """
        return await self._executor.execute(endpoints.enable_card(masked_number, self._executor.dialect))

    async def reset_pin(self, masked_number: str, pin: str) -> Card:
        """Set a card's PIN anew. The body is a guess (``Dialect.card_pin_member``).

        Args:
            masked_number: Which card.
            pin: 4 to 12 digits; never shown anywhere.

        Raises:
            NotSent, OutcomeUnknown, Rejected: It is never repeated, as if it moved money.
        """
        return await self._executor.execute(endpoints.reset_card_pin(masked_number, pin, self._executor.dialect))


def _outcome(result: Acceptance | Exception) -> Acceptance | PaymentsError:
    match result:
        case Acceptance() | PaymentsError():
            return result
        case ValueError() | TypeError():
            error = InvalidOrder(f"not a valid order: {result}")
            error.__cause__ = result
            return error
        case _:  # a session that is not open: the next order would fare no better
            raise result


def _sending(
    executor: Executor, order: Order, kind: type[Order], sent_before: bool, retry: RetryPolicy | None
) -> Call[Acceptance]:
    """The sending of an order of this kind, once its arguments are what they should be."""
    if not isinstance(order, kind):
        raise TypeError(f"order: expected {kind.__name__}")
    if retry is not None:
        check_instance("retry", retry, RetryPolicy, "RetryPolicy(attempts=...)")
    return endpoints.send_order(order, executor.dialect, sent_before=sent_before, known_as=executor.known_as)
