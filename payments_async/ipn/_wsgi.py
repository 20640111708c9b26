"""The receiver as a WSGI application: bytes in, answers out. A thread waits while the receiver's event loop works."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from multidict import CIMultiDict

from payments_async.ipn._intake import NOT_FOUND, UNREADABLE, Answer, Intake
from payments_async.ipn._senders import UNIX_SOCKET


class WsgiApp:
    """Made by ``Receiver.wsgi``.

    Open the receiver in each process that serves: ``with receiver.in_thread(journal):``. How slowly a body may come is
    the server's affair; let a proxy buffer requests, as servers of this kind ask for.
    """

    def __init__(self, intake: Intake, path: str, *, rewritten: bool, timeout: float) -> None:
        self._intake = intake
        self._path = path
        self._believes_rewritten = rewritten
        self._timeout = timeout

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request."""
        answer = self._answer(environ)
        headers = [*answer.headers.items(), ("Content-Length", str(len(answer.body)))]
        start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", headers)
        return [answer.body]

    def _answer(self, environ: Mapping[str, Any]) -> Answer:
        intake, method = self._intake, environ["REQUEST_METHOD"]
        token, below = intake.split(environ.get("PATH_INFO", "").removeprefix(self._path))
        if below:
            is_health = below == ["health"] and method in ("GET", "HEAD")
            return intake.in_loop(intake.health(token), self._timeout) if is_health else NOT_FOUND
        body = self._body(environ)
        if body is None:
            return UNREADABLE
        query = environ.get("QUERY_STRING", "").encode("latin-1").decode(errors="surrogateescape")
        peer, headers = environ.get("REMOTE_ADDR") or UNIX_SOCKET, headers_of(environ)
        rewritten = self._believes_rewritten
        taken = intake.receive(method, token, body, query, headers, peer, may_be_rewritten=not rewritten)
        return intake.in_loop(taken, self._timeout)

    def _body(self, environ: Mapping[str, Any]) -> bytes | None:
        """The body, and no more of it than shows that it is too long; ``None`` where its length is not a number."""
        most = self._intake.max_body + 1
        if not environ.get("wsgi.input_terminated"):
            length = environ.get("CONTENT_LENGTH") or "0"
            if not (length.isascii() and length.isdigit()):
                return None
            digits = length.lstrip("0") or "0"
            most = min(most, int(digits)) if len(digits) < 20 else most  # Python reads no number of thousands of digits
        body: bytes = environ["wsgi.input"].read(most)
        return body


def headers_of(environ: Mapping[str, Any]) -> CIMultiDict[str]:
    """The headers of a request; several of one name have been joined by the server."""
    return CIMultiDict(
        (name.removeprefix("HTTP_").replace("_", "-"), value)
        for name, value in environ.items()
        if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
    )
