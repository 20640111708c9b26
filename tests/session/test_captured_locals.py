"""No secret is in the local variables of a traceback, whatever goes wrong: tools that report errors show those."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from session.captured import captured, taken_apart
from session.conftest import Open
from session.wires import LOGIN, SECRET, Request, Wire, accept_everything, payout, raw_reply, reply, until

from payments_async import Credentials, Dialect, HttpConnection, PaymentsSession, ServiceFault
from payments_async._values.masking import Secret

TOKEN = "token-gannet-5577-and-long-enough-to-be-cut-somewhere-" + "x" * 80
REFRESH = "refresh-dunlin-8899"
PROXY_PASSWORD = "proxy-osprey-password"
SECRETS = (SECRET.app_password, SECRET.app_key, TOKEN[:40], REFRESH, PROXY_PASSWORD)


def leaks(error: BaseException) -> set[str]:
    """The secrets that an error shows, and where."""
    text = captured(error)
    lines = text.splitlines()
    return {f"{secret} in {line[:200]}" for secret in SECRETS for line in lines if str(secret) in line}


async def failure(call: Awaitable[Any]) -> BaseException:
    """What a call ends with."""
    try:
        await call
    except BaseException as error:  # noqa: BLE001 - interruptions count too
        return error
    raise AssertionError("it should have failed")


def answering(value: bytes | None) -> Callable[[Request], Awaitable[bytes | None]]:
    """The same answer to all."""

    async def answer(_: Request) -> bytes | None:
        return value

    return answer


async def never(_: Request) -> bytes | None:
    """Do not answer."""
    await asyncio.Event().wait()
    return None


async def chatty(request: Request) -> bytes | None:
    """Say back all that came."""
    return reply({"code": 7, "message": f"{request.headers} {request.body!r} Token {TOKEN} is not valid"}, 400)


@pytest.fixture
async def telling(wire: Wire) -> Wire:
    """A wire with tokens that are easy to recognise."""
    wire.login = answering(reply({"Token": TOKEN, "refreshToken": REFRESH, "success": True}))
    return wire


ANSWERS: dict[str, Callable[[Request], Awaitable[bytes | None]]] = {
    "cut": answering(None),
    "refused": answering(reply({"code": 7, "message": "no"}, 400)),
    "token refused": answering(reply({"code": 7, "message": f"Token {TOKEN} is not valid"}, 401)),
    "busy": answering(reply({}, 429)),
    "fault": answering(reply({}, 500)),
    "redirect": answering(reply({}, 302, Location="/")),
    "garbage": answering(b"\x00\x01 no HTTP\r\n\r\n"),
    "half": answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
    "page": answering(raw_reply(b"<html>", 200, {"Content-Type": "text/html"})),
    "said back": chatty,
    "never": never,
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("where", ["order", "read", "login", "refresh"])
async def test_a_fault(opened: Open, telling: Wire, answer: str, where: str) -> None:
    """Of an order, a read, a login or its renewal."""
    settings: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=0.2)}
    if where == "refresh":
        settings |= {"dialect": Dialect(refresh_path="/auth/refresh", token_lifetime=1e-9)}
    payments = await opened(telling, **settings)
    while where == "refresh":  # until it is in time, however busy the machine is
        with suppress(ServiceFault):
            await payments.log_in()
            break
    if where in ("login", "refresh"):
        telling.login = ANSWERS[answer]
    telling.answer = ANSWERS[answer]
    call = payments.accounts.get() if where == "read" else payments.payouts.send(payout())
    assert set() == leaks(await failure(call))


async def test_a_connection_that_is_refused(opened: Open, telling: Wire) -> None:
    """Before and after the login."""
    payments = await opened(telling)
    await payments.log_in()
    await telling.stop()
    assert set() == leaks(await failure(payments.payouts.send(payout())))
    assert set() == leaks(await failure((await opened(telling)).payouts.send(payout())))


async def test_tls_that_fails(opened: Open, certificates: Path, stack: AsyncExitStack) -> None:
    """A certificate that nobody signed."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    wire = await stack.enter_async_context(Wire(tls=tls))
    assert set() == leaks(await failure((await opened(wire)).payouts.send(payout())))


async def test_a_proxy_that_fails(opened: Open, telling: Wire) -> None:
    """Its password is as secret."""
    payments = await opened(telling, proxy=f"http://user:{PROXY_PASSWORD}@127.0.0.1:1")
    assert set() == leaks(await failure(payments.payouts.send(payout())))


@pytest.mark.parametrize("where", ["order", "login"])
async def test_a_call_that_is_cancelled(opened: Open, telling: Wire, where: str) -> None:
    """Or interrupted."""
    payments = await opened(telling)
    if where == "login":
        telling.login = never
    telling.answer = never
    call = asyncio.ensure_future(payments.payouts.send(payout()))
    await until(lambda: telling.requests and (where == "login" or telling.orders))
    call.cancel()
    error = await failure(call)
    assert asyncio.CancelledError is type(error)
    assert set() == leaks(error)


@pytest.mark.parametrize("where", ["on_request_start", "on_request_headers_sent", "on_request_end"])
@pytest.mark.parametrize("path", [LOGIN, "/api/transactions/payouts/mobilemoney"])
@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt])
async def test_a_hook_that_breaks(telling: Wire, stack: AsyncExitStack, where: str, path: str, kind: Any) -> None:
    """It holds our headers in its hand, and its traceback is kept."""

    async def broken(_session: object, _context: object, params: Any) -> None:
        headers = getattr(params, "headers", None)  # what a hook of a user's own might hold
        if params.url.path == path:
            raise kind(repr(headers))

    trace = aiohttp.TraceConfig()
    getattr(trace, where).append(broken)
    http = await stack.enter_async_context(aiohttp.ClientSession(trace_configs=[trace]))
    payments = await stack.enter_async_context(
        PaymentsSession(telling.base_url, SECRET, connection=HttpConnection(http=http))
    )
    assert set() == leaks(await failure(payments.payouts.send(payout())))


async def test_a_token_of_an_earlier_login_said_back(opened: Open, wire: Wire) -> None:
    """It is masked in the words of the service, as the one of now is."""
    payments = await opened(wire)
    names = iter(f"grebe-{number}-q" for number in range(3))

    async def login(_: Request) -> bytes:
        return reply({"Token": next(names), "success": True})

    wire.login = login
    await payments.log_in()

    async def expired(request: Request) -> bytes | None:
        if request.headers["authorization"].endswith("grebe-0-q"):
            return reply({"message": "expired"}, 401)
        return await accept_everything(request)

    wire.answer = expired
    await payments.payouts.send(payout())
    wire.answer = answering(reply({"code": 7, "message": "Token grebe-0-q is not valid, nor is GREBE-1-Q"}, 400))
    error = await failure(payments.payouts.send(payout("r-2")))
    assert "Token *** is not valid, nor is ***" in str(error)


@pytest.mark.parametrize(
    "wrong",
    [
        {"app_password": " walrus"},
        {"app_password": "walrus\n"},
        {"app_key": ""},
        {"user_id": 17},
        {"app_password": "wal\x00rus"},
        {"app_password": "walrus\ud800"},
    ],
)
def test_credentials_that_cannot_be(wrong: dict[str, Any]) -> None:
    """The error shows none of them."""
    right = {"app_key": "zebra-key", "app_password": "walrus-password", "user_id": "quagga"}
    with pytest.raises((TypeError, ValueError)) as caught:
        Credentials(**(right | wrong))
    text = captured(caught.value)
    assert set() == {word for word in ("walrus", "zebra") if word in text}


def test_a_secret() -> None:
    """It is text, and shows itself to whoever asks for text, but not in a repr, whole or in part."""
    secret = Secret("abc" * 50)
    assert ("abc" * 50, 150, True) == (str(secret), len(secret), secret == "abc" * 50)
    assert {"'***'"} == {repr(secret), repr(secret[:80]), repr(secret[3]), *taken_apart({"key": [secret]})[-2:]}
