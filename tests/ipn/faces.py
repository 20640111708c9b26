"""A receiver behind each of its faces, asked the same way: through real aiohttp, bare ASGI, and bare WSGI."""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from payments_async.ipn import Receiver


class Got(NamedTuple):
    """An answer."""

    status: int
    body: bytes


class Face(Protocol):
    """Sends one request."""

    async def __call__(
        self,
        body: bytes = b"",
        query: str = "",
        *,
        method: str = "POST",
        path: str = "/ipn",
        headers: Mapping[str, str] | list[tuple[str, str]] = ...,
        chunked: bool = False,
    ) -> Got: ...


@asynccontextmanager
async def aiohttp_face(receiver: Receiver) -> AsyncIterator[Face]:
    """The sub-app at /ipn of an aiohttp application, with the test server that cancels handlers of callers who left."""
    outer = web.Application()
    outer.add_subapp("/ipn", receiver.app())
    async with TestClient(TestServer(outer)) as client:

        async def send(body=b"", query="", *, method="POST", path="/ipn", headers=(), chunked=False):  # type: ignore[no-untyped-def]
            url = URL(f"{path}?{query}" if query else path, encoded=True)
            data = _pieces(body) if chunked else io.BytesIO(body) if len(body) > 500_000 else body
            async with client.request(method, url, data=data, headers=headers, allow_redirects=False) as answer:
                return Got(answer.status, await answer.read())

        yield send


@asynccontextmanager
async def asgi_face(receiver: Receiver, peer: str = "127.0.0.1") -> AsyncIterator[Face]:
    """The ASGI application, called directly."""
    application = receiver.asgi()
    async with receiver:

        async def send(body=b"", query="", *, method="POST", path="/ipn", headers=(), chunked=False):  # type: ignore[no-untyped-def]
            pairs = headers.items() if isinstance(headers, Mapping) else headers
            scope = {
                "type": "http",
                "method": method,
                "path": path,
                "root_path": "/ipn",
                "client": (peer, 50000),
                "query_string": query.encode(),
                "headers": [(n.lower().encode(), v.encode()) for n, v in pairs],
            }
            return await asgi_call(application, scope, body)

        yield send


@asynccontextmanager
async def wsgi_face(receiver: Receiver, peer: str = "127.0.0.1") -> AsyncIterator[Face]:
    """The WSGI application, called in threads while the receiver is open in this loop."""
    application = receiver.wsgi()
    async with receiver:

        async def send(body=b"", query="", *, method="POST", path="/ipn", headers=(), chunked=False):  # type: ignore[no-untyped-def]
            pairs = headers.items() if isinstance(headers, Mapping) else headers
            environ = {
                "REQUEST_METHOD": method,
                "SCRIPT_NAME": "/ipn",
                "PATH_INFO": path.removeprefix("/ipn"),
                "QUERY_STRING": query.encode().decode("latin-1"),
                "REMOTE_ADDR": peer,
                "wsgi.input": io.BytesIO(body),
                **({"wsgi.input_terminated": True} if chunked else {"CONTENT_LENGTH": str(len(body))}),
            }
            for name, value in pairs:  # servers join what comes twice
                key = f"HTTP_{name.upper().replace('-', '_')}"
                environ[key] = f"{environ[key]}, {value}" if key in environ else value
            return await asyncio.to_thread(wsgi_call, application, environ)

        yield send


def wsgi_call(application: Any, environ: dict[str, Any]) -> Got:
    """One request and its answer."""
    told: list[tuple[str, list[tuple[str, str]]]] = []
    body = b"".join(application(environ, lambda status, headers: told.append((status, headers))))
    return Got(int(told[0][0].partition(" ")[0]), body)


async def asgi_call(application: Any, scope: dict[str, Any], body: bytes) -> Got:
    """One request and its answer."""
    pieces = [body[start : start + 65536] for start in range(0, len(body), 65536)] or [b""]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not pieces:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    return Got(sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]))


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 100):
        yield body[start : start + 100]


FACES = {"aiohttp": aiohttp_face, "asgi": asgi_face, "wsgi": wsgi_face}
