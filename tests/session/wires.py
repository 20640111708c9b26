"""A world for the session: orders, a clock that moves only by sleeping, and a server that lies as it is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from ssl import SSLContext
from typing import Any, Self

import attrs

from payments_async import Beneficiary, CollectionOrder, Credentials, MobileMoneyWallet, PayoutOrder
from payments_async.sandbox import Sandbox

PHONE = "+256772000017"
NAME = "Grace Akello"
EMAIL = "grace.akello@example.org"
ACCOUNT = "00417730011982"
CARD = "4000 **** **** 0001"
PAYOUTS = "/api/transactions/payouts/mobilemoney"
LOGIN = "/api/auth/login"
SECRET = Credentials(app_key="key-4711-zebra", app_password="secret-walrus-password", user_id="user-0815-quagga")

Answer = Callable[["Request"], Awaitable[bytes | None]]


def payout(request_id: str = "r-1", **changes: Any) -> PayoutOrder:
    """One payout of 1500."""
    members: dict[str, Any] = {
        "request_id": request_id,
        "amount": Decimal(1500),
        "destination": MobileMoneyWallet(PHONE),
        "product_item_id": "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        "beneficiary": Beneficiary(name=NAME, phone_number=PHONE, email_address=EMAIL),
    }
    return PayoutOrder(**(members | changes))


def collection(request_id: str = "r-1") -> CollectionOrder:
    """One collection of 1500."""
    return CollectionOrder(
        request_id=request_id,
        amount=Decimal(1500),
        payer=MobileMoneyWallet(PHONE),
        provider_item_id="MTNMOBILEMONEYUG_MTNMOBILEMONEYUG",
        beneficiary=Beneficiary(name=NAME),
    )


def credentials(sandbox: Sandbox) -> Credentials:
    """What the sandbox lets in."""
    return Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)


def accepted(request_id: str = "r-1", **more: Any) -> bytes:
    """The service's "queued"."""
    data = {"requestId": request_id, "transactionId": f"t-{request_id}", "status": "PROCESSING"}
    return reply({"code": 0, "status": "success", "message": "queued", "data": data} | more)


def reply(value: object, status: int = 200, **headers: str) -> bytes:
    """A JSON answer as bytes; ``Retry_After`` becomes ``Retry-After``."""
    return raw_reply(json.dumps(value).encode(), status, {name.replace("_", "-"): v for name, v in headers.items()})


def raw_reply(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    """An answer with its length."""
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body))} | dict(headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + body


@attrs.frozen
class Request:
    """One request as it came over the wire, and the connection to lie on."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def request_id(self) -> str:
        return str(json.loads(self.body)["requestId"])


async def accept_everything(request: Request) -> bytes | None:
    """An honest answer to any payout."""
    return accepted(request.request_id)


class Wire:
    """A server written by hand. It remembers what came and answers whatever it is told.

    Attributes:
        answer: Bytes for one request; ``None`` cuts the connection without a word.
        login: The same for logins, which have honest answers by default.
        requests: Everything that arrived whole, logins too.
        started: How many requests began to arrive.
    """

    def __init__(self, answer: Answer = accept_everything, *, tls: SSLContext | None = None) -> None:
        self.answer = answer
        self.login: Answer = self._honest_login
        self.requests: list[Request] = []
        self.started = 0
        self.connections = 0
        self.tokens = 0
        self._tls = tls
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def base_url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def orders(self) -> list[Request]:
        """Everything but the logins."""
        return [request for request in self.requests if request.path != LOGIN]

    @property
    def logins(self) -> int:
        return len(self.requests) - len(self.orders)

    async def hang_up(self) -> None:
        """Close every connection, as a server does with idle ones; returns when the other side knows."""
        for writer in list(self._writers):
            writer.close()
        await turns()

    async def stop(self) -> None:
        """Listen no more."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.hang_up()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._exchange(reader, writer):
                pass
        self._tasks.discard(task)
        self._writers.discard(writer)
        writer.close()
        with suppress(ConnectionError, OSError):
            await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await self._read(reader, writer)
        self.requests.append(request)
        answer = await (self.login if request.path == LOGIN else self.answer)(request)
        if answer is None:
            writer.transport.abort()
            return False
        writer.write(answer)
        await writer.drain()
        return True

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
        line = await reader.readuntil(b"\r\n")
        self.started += 1
        method, path, _ = line.decode().split(" ", 2)
        headers: dict[str, str] = {}
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            name, _, value = line.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        if "100-continue" in headers.get("expect", ""):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Request(method, path, headers, body, writer)

    async def _honest_login(self, _: Request) -> bytes:
        self.tokens += 1
        return reply({"Token": f"token-{self.tokens}", "refreshToken": "refresh-1", "success": True, "message": "ok"})


class Times:
    """A clock that moves when somebody sleeps, or when it is told."""

    def __init__(self) -> None:
        self.now = 5000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class HeldTimes(Times):
    """A clock that stands still: whoever sleeps is woken when the test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved so far."""
        self.slept.append(seconds)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Move the clock and let everybody run who is due."""
        self.now += seconds
        for due, woken in self._sleepers:
            if due <= self.now and not woken.done():
                woken.set_result(None)
        self._sleepers = [sleeper for sleeper in self._sleepers if not sleeper[1].done()]
        await turns()


async def turns(count: int = 50) -> None:
    """Let the event loop go round; the loopback needs a few rounds."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop go round until something is so."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the condition is of the other side
            await asyncio.sleep(0)


@asynccontextmanager
async def under_way(call: Awaitable[Any], condition: Callable[[], object]) -> AsyncIterator[asyncio.Future[Any]]:
    """A call that has come as far as the condition says."""
    task = asyncio.ensure_future(call)
    try:
        await until(condition)
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
