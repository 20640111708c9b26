"""The receiver as an ASGI application: bytes in, answers out."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from multidict import CIMultiDict

from payments_async.ipn._intake import NOT_FOUND, TOO_LARGE, TOO_SLOW, UNREADABLE, Answer, Intake
from payments_async.ipn._senders import UNIX_SOCKET

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_DISCARDED = 16 * 1024 * 1024  # bytes of a refused body that are read, so that its sender reads the refusal


class AsgiApp:
    """Made by ``Receiver.asgi``.

    A mounted application hears of no start and no end: open the receiver (``async with receiver:``) in the lifespan of
    yours. Let the server not rewrite the client's address from headers (``uvicorn --no-proxy-headers``): the receiver
    does that itself, for the proxies it trusts, and refuses who comes with an address that a server put there.
    """

    def __init__(self, intake: Intake, path: str, *, rewritten: bool = False) -> None:
        self._intake = intake
        self._path = path
        self._believes_rewritten = rewritten

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            answer = await self._answer(scope, receive)
            headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
            headers.append((b"content-length", b"%d" % len(answer.body)))
            if answer.closes:
                headers.append((b"connection", b"close"))
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": answer.body})
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            kind = (await receive())["type"]
            if kind == "lifespan.startup":
                self._intake.start()
            elif kind == "lifespan.shutdown":
                await self._intake.way.aclose()
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        """Answer a request, as the paths of the aiohttp sub-app do."""
        intake = self._intake
        token, below = intake.split(scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(self._path))
        method, peer, headers = scope["method"], peer_of(scope), headers_of(scope)
        if below:
            is_health = below == ["health"] and method in ("GET", "HEAD")
            return await intake.health(token) if is_health else NOT_FOUND
        sender = intake.screen(method, token, peer, headers, may_be_rewritten=not self._believes_rewritten)
        if isinstance(sender, Answer):
            if not sender.hang_up:
                await _discard(receive, intake.body_time)
            return sender
        body = await _body(receive, intake.max_body, intake.body_time)
        if isinstance(body, Answer):
            return body
        query = scope["query_string"].decode(errors="surrogateescape")
        taken = await intake.take(sender, body, query, headers, peer, lambda: _certificate(scope))
        return taken if isinstance(taken, Answer) else intake.answer(taken)


def mount(app: Any, path: str, alone: AsgiApp, below: AsgiApp, running: AbstractAsyncContextManager[object]) -> None:
    """Have an application of Starlette's kind answer at a path, and run something for as long as it lives.

    Args:
        alone: For the path itself, which a mount would redirect to the one with a slash.
        below: For whatever is below it.
    """
    router = app.router
    router.add_route(path, alone, include_in_schema=False)
    app.mount(path, below)
    theirs = router.lifespan_context

    @asynccontextmanager
    async def lifespan(it: Any) -> AsyncIterator[Any]:
        async with theirs(it) as state, running:
            yield state

    router.lifespan_context = lifespan


def peer_of(scope: Mapping[str, Any]) -> str:
    """Address of the client as the server tells it."""
    client = scope.get("client")
    return str(client[0]) if client and client[0] else UNIX_SOCKET


def headers_of(scope: Mapping[str, Any]) -> CIMultiDict[str]:
    """The headers of a scope."""
    return CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])


async def _body(receive: Receive, longest: int, seconds: float) -> bytes | Answer:
    """The body, or why there is none."""
    message = await _first(receive, seconds)
    if message is None:
        return TOO_SLOW
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        try:
            async with asyncio.timeout(seconds):
                while message.get("more_body") and len(body) <= longest:
                    message = await receive()
                    body += message.get("body", b"")
        except TimeoutError:
            return TOO_SLOW
    if len(body) > longest:
        await _discard(receive, seconds) if message.get("more_body") else None
        return TOO_LARGE
    return UNREADABLE if message["type"] == "http.disconnect" else body


async def _first(receive: Receive, seconds: float) -> MutableMapping[str, Any] | None:
    """The first message of a request, or ``None`` where it takes too long."""
    try:
        async with asyncio.timeout(seconds):
            return await receive()
    except TimeoutError:
        return None


async def _discard(receive: Receive, seconds: float) -> None:
    """Read on for a while: a connection closed under a sender who still writes loses the answer too."""
    left = _DISCARDED
    try:
        async with asyncio.timeout(seconds):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    return
    except TimeoutError:
        return


def _certificate(scope: Scope) -> bytes | None:
    chain = ((scope.get("extensions") or {}).get("tls") or {}).get("client_cert_chain") or ()
    for pem in chain:
        return ssl.PEM_cert_to_DER_cert(pem)
    return None
