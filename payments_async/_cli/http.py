"""One plain HTTP/1.1 exchange, to look at an address or to test one. It carries no credentials."""

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.parser import BytesParser
from email.utils import parsedate_to_datetime

import attrs
from yarl import URL

_LONGEST_HEAD = 64 * 1024
_LONGEST_BODY = 1024 * 1024


@attrs.frozen(kw_only=True)
class HttpAnswer:
    """What came back.

    Attributes:
        headers: Names in lower case.
        expires: When the certificate of a TLS connection ends; ``None`` without one.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    expires: datetime | None = None

    @property
    def date(self) -> datetime | None:
        """When the other side says it is."""
        try:
            moment = parsedate_to_datetime(self.headers.get("date", ""))
        except ValueError:
            return None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


async def exchange(
    method: str,
    url: URL,
    *,
    body: bytes = b"",
    tls: ssl.SSLContext | None = None,
    timeout: float = 10.0,
    asks_first: bool = False,
) -> HttpAnswer:
    """Send one request and read its answer.

    Args:
        asks_first: Wait with the body for ``100 Continue``, and send it never: the first answer is told.
        timeout: Seconds in all.

    Raises:
        OSError, TimeoutError, ValueError: Not reached, not in time, or no HTTP.
    """
    lines = [
        f"{method} {url.raw_path_qs or '/'} HTTP/1.1",
        f"Host: {url.raw_authority}",
        "User-Agent: payments-async",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(["Expect: 100-continue"] if asks_first else []),
    ]
    context = (tls or ssl.create_default_context()) if url.scheme == "https" else None
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(url.host, url.port, ssl=context, limit=_LONGEST_HEAD)
        try:
            writer.write("\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + (b"" if asks_first else body))
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            status_line, _, fields = head.partition(b"\r\n")
            version, _, rest = status_line.partition(b" ")
            if not version.startswith(b"HTTP/") or not rest[:3].isdigit():
                raise ValueError("the answer is not HTTP")
            headers = {name.lower(): value for name, value in BytesParser().parsebytes(fields).items()}
            content = b"" if method == "HEAD" or asks_first else await _body(reader, headers)
            return HttpAnswer(status=int(rest[:3]), headers=headers, body=content, expires=_expiry(writer))
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the connection was closed without an answer") from error
        except asyncio.LimitOverrunError as error:
            raise ValueError("the answer is not HTTP") from error
        finally:
            writer.transport.abort()  # closing would wait, beyond the time, for what has not left


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    """The body, cut at the longest; what has come so far where nobody says how long it is."""
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return await reader.read(_LONGEST_BODY)
    return await reader.readexactly(min(int(length), _LONGEST_BODY))


def _expiry(writer: asyncio.StreamWriter) -> datetime | None:
    end = (writer.get_extra_info("peercert") or {}).get("notAfter")
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(end), UTC) if end else None
