"""The only HTTP client: sends one Call once, and knows whether a byte of it has left."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl as tls
import time
import traceback
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from types import FrameType
from typing import Any

import aiohttp
from aiohttp import hdrs
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from payments_async._values.checks import check_instance, check_number
from payments_async._values.deadlines import Deadlines
from payments_async._values.masking import Secret, redact
from payments_async._values.public import blank, without_locals
from payments_async._version import __version__
from payments_async._wire.call import Call, Reply, TransportFailure
from payments_async._wire.replies import correlation_id_of, retry_after, seconds_ahead

_CONNECT = 10.0  # seconds, where all of an exchange is given as a number
_CHUNK = 2**16
_UNREAD = frozenset({401, 429})  # said without a look at the body, and worth an answer of ours
_NOT_KNOWN = object()
# aiohttp repeats what it holds for idempotent when a kept-alive connection breaks. Before 3.13 the headers are out
# again before the body is asked; there it knows such methods by their capitals, and writes all methods in capitals.
_METHODS = {"PUT": "put", "DELETE": "delete"}
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"payments-async/{__version__}",
}
_MOST_LOGGED = 100
_EARLY = "an answer had come before the request left; it belongs to another one, and the connection was given up"

_log = logging.getLogger("payments_async")


class ForeignError(Exception):
    """What code that is not ours raised: a middleware, a hook, a client that was brought. Its words stay out.

    It has the traceback, the place and the type of the error, and stands in its place as a cause: words and arguments
    may hold our headers, or what an order says of a person.
    """

    def __init__(self, error: BaseException) -> None:
        place = _place(error)
        super().__init__(f"{type(error).__qualname__} in {place}; its words are left out")
        self.place = place
        self.__traceback__ = blank(error.__traceback__)
        if error.__cause__ is not None:
            self.__cause__ = ForeignError(error.__cause__)


class Outgoing(aiohttp.BytesPayload):
    """The body of one attempt, which knows whether a byte of it may have left, and leaves only once.

    The headers wait for the body (before aiohttp 3.13 they precede it, which carries nothing out), so this is the
    first byte that counts.

    Args:
        may_leave: Asked at that moment, once, and notes it where that is kept: what took long before it, such as
            connecting, may have taken too long.
    """

    # One set for all bodies. What aiohttp would make of each with its own ``__init__`` costs two percent of a payout.
    _encoding = None
    _filename = None
    _headers = CIMultiDict({"Content-Type": "application/json"})

    def __init__(self, body: bytes, may_leave: Callable[[], bool] | None = None) -> None:
        self._value = body
        self._size = len(body)
        self._may_leave = may_leave
        self.left: bool = False

    def leave(self) -> None:
        """Note that it leaves. Whoever repeats requests below us (a middleware, a redirect) must not repeat these."""
        if self.left:
            raise TransportFailure("something tried to send the same request twice")
        if self._may_leave is not None and not self._may_leave():
            raise TransportFailure("what allowed it to leave has run out meanwhile")
        self.left = True

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body, once: what aiohttp calls before 3.12."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the body, once; noting first that it leaves, unless the connection is gone already."""
        transport: Any = getattr(writer, "transport", _NOT_KNOWN)  # None once the connection is lost
        if not self.left:
            _check_unanswered(getattr(writer, "_protocol", None))
        if self.left or transport is _NOT_KNOWN or (transport is not None and not transport.is_closing()):
            self.leave()
        await writer.write(self._value if content_length is None else self._value[:content_length])


class AnotherMachine(OSError):
    """A name that should lead to this machine does not."""


class ThisMachine(AbstractResolver):
    """Resolves names for plain http: each address must be one of this machine, at the moment of connecting."""

    def __init__(self, names: AbstractResolver | None = None) -> None:
        self._names = names or aiohttp.DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name.

        Raises:
            AnotherMachine: One of them is of another machine.
        """
        found = await self._names.resolve(host, port, family)
        if not all(_is_loopback_address(row["host"]) for row in found):
            raise AnotherMachine("plain http:// to a name that leads to another machine")
        return found

    async def close(self) -> None:
        """Let the resolver go."""
        await self._names.close()


class _Request(aiohttp.ClientRequest):
    """A request of the client that is ours: it goes out only on a connection without an answer to read."""

    def update_headers(self, headers: Any) -> None:
        """Take the headers of the client and of the call, all at once; none of them names the host."""
        super().update_headers(None)
        self.headers.extend(headers or ())

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Send it."""
        _check_unanswered(conn.protocol)
        return await super().send(conn)


async def _logged(call: Call[Any], exchange: Coroutine[Any, Any, Reply]) -> Reply:
    """An exchange, with a line in the log of what was asked and what came back."""
    clock = asyncio.get_running_loop().time
    begun, came, named = clock(), "nothing", None
    try:
        reply = await exchange
        came, named = str(reply.status), correlation_id_of(reply)
        return reply
    except TransportFailure as failure:
        came = str(failure)
        raise
    finally:
        seconds = round(clock() - begun, 3)
        path = redact(call.path, call.private())
        facts = {
            "method": call.method,
            "path": path,
            "status": came,
            "seconds": seconds,
            "request_id": call.request_id,
            "correlation_id": named,
        }
        _log.debug("%s %s: %s after %s s", call.method, path, came, seconds, extra=facts)


class Patience:
    """How long one exchange may take, as the HTTP client is told of it: a value of the call's way.

    Attributes:
        options: What each request of this patience is made with; a proxy's address may hold its password.
        deadlines: What keeps the total, where there is one.
    """

    __slots__ = ("deadlines", "options")

    def __init__(self, options: dict[str, Any], deadlines: Deadlines | None) -> None:
        self.options: dict[str, Any] = options
        self.deadlines: Deadlines | None = deadlines


class Transport:
    """One HTTP client below one base address.

    Attributes:
        make_body: Makes the body of one attempt.
    """

    make_body = Outgoing

    def __init__(
        self,
        base_url: str | URL,
        *,
        http: aiohttp.ClientSession | None,
        ssl: tls.SSLContext | None,
        proxy: str | URL | None,
        trust_env: bool,
        reply_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        url = check_base_url(base_url)
        self._base = str(url).rstrip("/")
        self._is_plain = url.scheme == "http"
        if self._is_plain and http is not None and not _is_loopback_address(url.host or ""):
            raise ValueError(
                "base_url: with a ClientSession of your own, plain http:// is allowed to an address such as 127.0.0.1 "
                "only, since a name could lead to another machine"
            )
        self._http = http
        self._is_brought = http is not None
        self._theirs: tuple[Any, ...] = tuple(getattr(http, "_middlewares", None) or ())
        self._own: aiohttp.ClientSession | None = None
        self._trust_env = trust_env and not self._is_plain  # a proxy would take it off this machine
        self._reply_bytes = reply_bytes
        self._clock = clock
        self.wall_clock = wall_clock
        self._asked_at: float | None = None  # when the first call was made that no usable answer has followed
        self._dated: tuple[str, float] | None = None  # the Date of the last answer that had one, and when it came
        self._urls: dict[str, URL] = {}
        self._logged: set[str] = set()  # places whose failure was logged; the errors tell each one
        self._deadlines: weakref.WeakSet[Deadlines] = weakref.WeakSet()  # a timer that runs holds its own
        self._options: dict[str, Any] = {
            "allow_redirects": False,  # a redirected payout would be sent twice
            "raise_for_status": False,
        }
        _check_verified(ssl, http)
        if ssl is not None:
            self._options["ssl"] = ssl
        if proxy is not None:
            self._options["proxy"] = _check_proxy(proxy, is_plain=self._is_plain)

    @property
    def base_url(self) -> str:
        """The base address, without a trailing slash."""
        return self._base

    @property
    def other_clock(self) -> float | None:
        """Unix seconds by the clock at the other end, by its last answer; ``None`` where no answer has told.

        They go on with the seconds that only grow: when ours is set, they are right all the same.
        """
        if self._dated is None:
            return None
        moment, came_at = self._dated
        then = seconds_ahead(moment, 0.0)
        return None if then is None else then + (self._clock() - came_at)

    @property
    def clock_difference(self) -> float | None:
        """Seconds by which the clock at the other end is ahead of ours; ``None`` where no answer has told."""
        other = self.other_clock
        return None if other is None else other - self.wall_clock()

    @property
    def silent_for(self) -> float:
        """Seconds since the first call that was followed by no usable answer to any; 0 where there is none."""
        return 0.0 if self._asked_at is None else self._clock() - self._asked_at

    async def open(self) -> None:
        """Make the HTTP client, unless one was brought."""
        if self._http is None:
            self._own = self._http = aiohttp.ClientSession(
                # the gate limits; a wait for a connection would eat timeouts
                connector=aiohttp.TCPConnector(limit=0, resolver=ThisMachine() if self._is_plain else None),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=_HEADERS,
                request_class=_Request,
                trust_env=self._trust_env,
            )

    @property
    def is_closed(self) -> bool:
        """Whether there is no HTTP client to send with."""
        return self._http is None or self._http.closed

    async def close(self) -> None:
        """Close the HTTP client, unless it was brought."""
        for deadlines in self._deadlines:
            deadlines.close()
        if self._own is not None:
            await self._own.close()

    def make_patience(self, timeout: aiohttp.ClientTimeout | float) -> Patience:
        """How long the exchanges of some calls may take; the total is the caller's, and kept for all of them together.

        One timer for all of these exchanges costs less than aiohttp's one for each.

        Args:
            timeout: Of one exchange, where a number of seconds is that of all of it.

        Raises:
            TypeError, ValueError: It cannot be right.
        """
        timeout = _timeouts(timeout)
        deadlines = Deadlines(timeout.total) if timeout.total else None
        if deadlines is not None:
            self._deadlines.add(deadlines)
        return Patience(self._options | {"timeout": _without_total(timeout)}, deadlines)

    def through(self, patience: Patience, proxy: str | URL) -> Patience:
        """The same patience, through another proxy."""
        return Patience(patience.options | {"proxy": _check_proxy(proxy, is_plain=self._is_plain)}, patience.deadlines)

    def make_headers(self, authorization: Secret | None, further: Mapping[str, str] | None = None) -> CIMultiDict[str]:
        """The headers of a call, with the token's authorization; without those that the client that is ours adds."""
        headers = CIMultiDict(_HEADERS if self._is_brought else {})
        if further is not None:
            headers.update(further)
        if authorization is not None:
            headers["Authorization"] = authorization
        return headers

    def exchange(
        self, call: Call[Any], outgoing: Outgoing | None, headers: CIMultiDict[str], patience: Patience
    ) -> Coroutine[Any, Any, Reply]:
        """Send one call once and read its whole answer. Where the log is at DEBUG, a line tells of it.

        Args:
            patience: What ``make_patience`` gave.

        Raises:
            TransportFailure: Without a usable answer; says why, naming no person and no secret.
        """
        if self._asked_at is None:
            self._asked_at = self._clock()
        made = self._exchanged(call, outgoing, headers, patience)
        return _logged(call, made) if _log.isEnabledFor(logging.DEBUG) else made

    async def _exchanged(
        self, call: Call[Any], outgoing: Outgoing | None, headers: CIMultiDict[str], patience: Patience
    ) -> Reply:
        http = self._http
        if http is None:
            raise TransportFailure("the HTTP client is closed")
        url = self._urls.get(call.path) if not call.query else None
        if url is None:
            url = self._url(call)
        cause: Exception | None = None
        try:
            method = _METHODS.get(call.method, call.method) if call.once else call.method
            if self._theirs and outgoing is not None:
                request = self._watched(http, method, url, outgoing, headers, patience)
            else:  # the options never are a local variable: a proxy's address may hold its password
                request = http.request(method, url, data=outgoing, headers=headers, **patience.options)
            if patience.deadlines is None:
                return await self._ask(request, outgoing)
            with patience.deadlines.stay():
                return await self._ask(request, outgoing)
        except Exception as error:  # noqa: BLE001 - a caller's middlewares and hooks raise whatever they like
            why, cause = self._explained(error)
        except BaseException as error:  # noqa: BLE001 - whatever ends it, its frames stay out
            task = asyncio.current_task()
            if not isinstance(error, asyncio.CancelledError) or task is None or task.cancelling():
                raise without_locals(error)  # noqa: B904 - it is the same one
            why = "the HTTP client was closed under way"  # its waiters are cancelled then, though nobody cancelled us
        raise TransportFailure(why) from cause  # here, so that no other error hangs on as its context

    def _watched(
        self,
        http: aiohttp.ClientSession,
        method: str,
        url: URL,
        outgoing: Outgoing,
        headers: CIMultiDict[str],
        patience: Patience,
    ) -> Any:
        """A request through the middlewares of a client that was brought, with ours as the innermost."""
        ours = {"middlewares": (*self._theirs, partial(_watch, outgoing))}
        return http.request(method, url, data=outgoing, headers=headers, **(patience.options | ours))

    def _explained(self, error: Exception) -> tuple[str, Exception | None]:
        """Why there is no answer, in our words, and the cause that may be shown."""
        if isinstance(error, TransportFailure):
            return str(error), None
        if isinstance(error, OSError):
            return _words(error), without_locals(error)
        if isinstance(error, aiohttp.ClientError):
            return _words(error), None  # it carries our headers, or words of the answer
        if self.is_closed:
            return "the HTTP client is closed", None
        foreign = ForeignError(error)
        if foreign.place not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(foreign.place)
            _log.error("a middleware, a hook or the HTTP client failed: %s", foreign, extra={"error": str(foreign)})
        return f"a middleware, a hook or the HTTP client failed ({type(error).__name__}); mend it first", foreign

    async def _ask(self, request: Awaitable[aiohttp.ClientResponse], outgoing: Outgoing | None) -> Reply:
        """Make the request and read the whole of its answer."""
        answer = await request
        if (moment := answer.headers.get(hdrs.DATE)) is not None:
            self._dated = (moment, self._clock())
        if outgoing is not None and not outgoing.left and answer.version is not None:
            answer.close()  # in the same turn, so that what was told to continue does not leave after all
            return self._unasked(answer)
        try:
            body = await self._read(answer)
        except BaseException:
            answer.close()
            raise
        if answer.status < 500:
            self._asked_at = None
        if answer.status < 300 and hdrs.RETRY_AFTER not in answer.headers:
            return Reply(answer.status, body, None, False, answer.headers)
        wait = retry_after(answer.headers.get(hdrs.RETRY_AFTER), self.wall_clock())
        return Reply(answer.status, body, wait, False, answer.headers)

    def _unasked(self, answer: aiohttp.ClientResponse) -> Reply:
        """What an answer says that came before the body was asked for: that it was turned away unread, or nothing.

        Raises:
            TransportFailure: It says nothing of the request, of which no byte of the body left.
        """
        if hdrs.EXPECT not in answer.request_info.headers:
            raise TransportFailure(_EARLY)
        if answer.status not in _UNREAD:
            raise TransportFailure(f"the service answered {answer.status} before it asked for the order")
        return Reply(answer.status, b"", retry_after(answer.headers.get(hdrs.RETRY_AFTER), self.wall_clock()))

    def _url(self, call: Call[Any]) -> URL:
        """Where a call goes; remembered for those with a body, which go to a few paths alone."""
        if call.query:
            return URL(f"{self._base}{call.path}?{call.query}", encoded=True)
        url = URL(self._base + call.path, encoded=True)
        if len(self._urls) < 64 and call.body is not None:
            self._urls[call.path] = url
        return url

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        """The body of an answer, up to the limit."""
        length = answer.content_length
        if length is not None and length <= self._reply_bytes and hdrs.CONTENT_ENCODING not in answer.headers:
            return await answer.read()
        pieces, size = [], length or 0
        if size <= self._reply_bytes:
            size = 0
            while size <= self._reply_bytes and (piece := await answer.content.read(_CHUNK)):
                pieces.append(piece)
                size += len(piece)
        if size > self._reply_bytes:
            answer.close()
            raise TransportFailure(f"the answer is larger than Limits.reply_bytes ({self._reply_bytes} bytes)")
        return b"".join(pieces)


def _check_unanswered(protocol: object) -> None:
    """Refuse a kept-alive connection on which more came than was asked for: it would be read as the next answer."""
    if getattr(protocol, "_buffer", None) or getattr(protocol, "_tail", None):  # aiohttp looks at them on release only
        raise TransportFailure(_EARLY)


def _timeouts(timeout: aiohttp.ClientTimeout | float) -> aiohttp.ClientTimeout:
    if isinstance(timeout, int | float) and not isinstance(timeout, bool):
        check_number("timeout", timeout, above_zero=True)
        return aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT)
    remedy = "seconds, or aiohttp.ClientTimeout(total=60.0)"
    found = check_instance("timeout", timeout, aiohttp.ClientTimeout, remedy)
    for part in ("total", "connect", "sock_read", "sock_connect"):
        if (seconds := getattr(found, part)) is not None:
            check_number(f"timeout.{part}", seconds)
    return found


def _without_total(timeout: aiohttp.ClientTimeout) -> aiohttp.ClientTimeout:
    """The timeouts that aiohttp keeps: all but the total."""
    return aiohttp.ClientTimeout(
        total=None,
        connect=timeout.connect,
        sock_read=timeout.sock_read,
        sock_connect=timeout.sock_connect,
        ceil_threshold=timeout.ceil_threshold,
    )


async def _watch(outgoing: Outgoing, request: Any, handler: Callable[[Any], Any]) -> Any:
    """The innermost middleware, where a caller's own ones may have put another body in place of ours."""
    if request.body is not outgoing:
        outgoing.leave()
    return await handler(request)


def _check_verified(ssl: tls.SSLContext | None, http: aiohttp.ClientSession | None) -> None:
    """Refuse what would send payments to whoever says that he is the service."""
    remedy = "let it verify, with load_verify_locations() for a certificate that no public authority signed"
    if ssl is not None and ssl.verify_mode is not tls.CERT_REQUIRED:
        raise ValueError(f"ssl: the context does not verify the service's certificate; {remedy}")
    theirs = getattr(None if http is None else http.connector, "_ssl", None)
    if ssl is None and (
        theirs is False or (isinstance(theirs, tls.SSLContext) and theirs.verify_mode == tls.CERT_NONE)
    ):
        raise ValueError(f"http: its connector does not verify the service's certificate; {remedy}")


def _check_proxy(proxy: str | URL, *, is_plain: bool) -> URL:
    """The address of a proxy, when payments may be sent through it."""
    try:
        url = URL(proxy)
        right = url.scheme in ("http", "https") and bool(url.host)
    except (ValueError, TypeError):
        right = False
    if not right:
        raise ValueError("proxy: must begin with http:// and name a host, as in 'http://host:port'")
    if is_plain and not _is_loopback(URL(proxy).host or ""):
        raise ValueError("proxy: a base_url with plain http:// must not leave this machine; use https://")
    return URL(proxy)


def check_base_url(base_url: str | URL) -> URL:
    """The base address, when payments may be sent there.

    Raises:
        ValueError: When it is not an absolute address, holds credentials or a query, or is plain ``http://`` to another
            machine.
    """
    try:
        url = URL(base_url)
        host = url.host
    except (ValueError, TypeError) as error:
        raise ValueError("base_url: not an address; write it as in 'https://host:port/prefix'") from error
    if url.scheme not in ("https", "http") or not host or any(map(str.isspace, host)):
        raise ValueError("base_url: must begin with https:// and name a host, as in 'https://host:port/prefix'")
    if url.user is not None or url.password is not None:
        raise ValueError("base_url: must not contain a user or a password; pass Credentials")
    if url.query_string or url.fragment:
        raise ValueError("base_url: must not contain a query or a fragment")
    if url.scheme == "http" and not _is_loopback(host):
        # Spec: "All requests must use HTTPS."
        raise ValueError("base_url: plain http:// is allowed to this machine only; use https://")
    return url


def _is_loopback(host: str) -> bool:
    """Whether it is an address of this machine, or a name that must lead to one: ``ThisMachine`` sees to that."""
    return _is_loopback_address(host) or host == "localhost" or host.endswith(".localhost")


def _is_loopback_address(host: str) -> bool:
    """Whether it is an address of this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _place(error: BaseException) -> str:
    """Where it was raised: the innermost line that is neither aiohttp's nor ours, if there is one."""
    lines = [(frame, number) for frame, number in traceback.walk_tb(error.__traceback__)]
    theirs = [line for line in lines if _room(line[0]) not in ("aiohttp", "payments_async", "asyncio")]
    if not lines:
        return "an unknown place"
    frame, number = (theirs or lines)[-1]
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{number})"


def _room(frame: FrameType) -> str:
    """The package whose code a frame runs."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _words(error: Exception) -> str:
    """Why there was no answer, without the words of an error that may hold what was sent."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | tls.SSLError():
            return "the TLS connection failed; check the address, the certificate and the ssl setting"
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return "the proxy could not be used; check the proxy setting"
        case aiohttp.ClientConnectorDNSError() if isinstance(error.os_error, AnotherMachine):
            return "plain http:// is allowed to this machine only, and the name leads to another one; use https://"
        case aiohttp.ClientConnectorDNSError():
            return "the host's name could not be resolved; check the base address"
        case aiohttp.ConnectionTimeoutError():
            return "no connection in time; check the base address and the network"
        case aiohttp.ClientConnectorError() if error.os_error.errno in (errno.EMFILE, errno.ENFILE):
            return "this process or machine has too many open files; raise its limit (ulimit -n)"
        case aiohttp.ClientConnectorError():
            return "the connection was refused or failed; check the base address and the network"
        case TimeoutError():
            return "no answer in time (timeout)"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | aiohttp.ClientPayloadError():
            return "the connection broke before the whole answer had come"
        case _:
            return f"the exchange failed ({type(error).__name__})"
