"""A private authority, a client certificate, a proxy and hooks: what stands between some applications and the service.

The service here is the sandbox behind TLS, which asks for a client certificate; the proxy is thirty lines of this file,
and sees no more than a host and a port. Needs the program `openssl`, for the certificates. Runs as it is.
"""

import asyncio
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import aiohttp

from payments_async import Credentials, HttpConnection, PaymentsError, PaymentsSession
from payments_async.sandbox import Sandbox, SandboxServer


def make_certificate(folder: Path, name: str) -> None:
    """A certificate that is its own authority, and its key."""
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    files = ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem"]
    about = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made.split(), *files, *about], check=True, capture_output=True)  # noqa: S603 - our own words


def tls_for_service(folder: Path) -> ssl.SSLContext:
    """What the service asks for: whoever comes shows a certificate that it knows."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "client.pem"))
    context.load_cert_chain(folder / "service.pem", folder / "service.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def tls_for_us(folder: Path) -> ssl.SSLContext:
    """Whom we believe, and who we are. A context that verifies nothing is refused by the session."""
    context = ssl.create_default_context(cafile=str(folder / "service.pem"))
    context.load_cert_chain(folder / "client.pem", folder / "client.key")
    return context


def hooks() -> aiohttp.TraceConfig:
    """Hears of each exchange: method, path and status hold no secret; headers and bodies do."""
    config = aiohttp.TraceConfig()

    async def answered(_: aiohttp.ClientSession, __: SimpleNamespace, end: aiohttp.TraceRequestEndParams) -> None:
        print(f"hook: {end.method} {end.url.path} {end.response.status}")

    config.on_request_end.append(answered)
    return config


@asynccontextmanager
async def proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that tunnels (CONNECT), and where it was asked to."""
    asked: list[str] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split()[1].decode()
        asked.append(head.split()[0].decode())
        host, _, port = target.rpartition(":")
        there, away = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(pass_on(reader, away))
            group.create_task(pass_on(there, writer))

    server = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand over what comes, until nothing does."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def main(folder: Path) -> None:
    """Ask for the account through all of it; then without the certificate that the service wants."""
    make_certificate(folder, "service")
    make_certificate(folder, "client")
    async with Sandbox(server=SandboxServer(ssl=tls_for_service(folder))) as service, proxy() as (address, asked):
        known = Credentials(app_key=service.app_key, app_password=service.app_password, user_id=service.user_id)
        # A session of your own for hooks; without them, `ssl=` and `proxy=` of HttpConnection are enough.
        async with (
            aiohttp.ClientSession(trace_configs=[hooks()], cookie_jar=aiohttp.DummyCookieJar()) as http,
            PaymentsSession(
                service.base_url, known, connection=HttpConnection(http=http, ssl=tls_for_us(folder), proxy=address)
            ) as payments,
        ):
            account = await payments.accounts.get()
            print(f"account in {account.currency}, through the proxy: {asked == ['CONNECT']}")
        stranger = ssl.create_default_context(cafile=str(folder / "service.pem"))
        async with PaymentsSession(service.base_url, known, connection=HttpConnection(ssl=stranger)) as payments:
            try:
                await payments.accounts.get()
            except PaymentsError as error:
                print(f"without a certificate: {type(error).__name__}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
