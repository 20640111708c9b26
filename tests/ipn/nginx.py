"""The example's nginx, with TLS, on a free port; and who sends through it, from an address of his own."""

import asyncio
import http.client
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from ipn.notifications import notification
from ipn.ports import free_port

NGINX = shutil.which("nginx") or ("/usr/sbin/nginx" if Path("/usr/sbin/nginx").exists() else None)
OPENSSL = shutil.which("openssl")
CONFIGURATION = Path(__file__).parents[2] / "examples" / "ipn_behind_nginx" / "nginx.conf"
# Loopback is a whole network: each part has an address of its own.
GENUINE, STRANGER, INNER, OUTER = "127.0.0.77", "127.0.0.66", "127.0.0.1", "127.0.0.2"

needs_nginx = pytest.mark.skipif(NGINX is None or OPENSSL is None, reason="nginx or openssl is not installed")


def certificate(folder: Path) -> None:
    """Make a certificate and its key."""
    key, pem = folder / "key.pem", folder / "certificate.pem"
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:127.0.0.2"]
    subprocess.run(
        [str(OPENSSL), *request, "-keyout", str(key), "-out", str(pem), *subject], check=True, capture_output=True
    )


def started(folder: Path, port: int, upstream: int, listen: str) -> subprocess.Popen[bytes]:
    """An nginx process with the example's configuration, its addresses changed."""
    folder.mkdir(exist_ok=True)
    certificate(folder)
    text = CONFIGURATION.read_text(encoding="utf-8")
    for old, new in (
        ("server 127.0.0.1:8080", f"server {INNER}:{upstream}"),
        ("listen 127.0.0.1:8443 ssl;", f"listen {listen}:{port} ssl; proxy_bind {listen};"),
    ):
        assert old in text
        text = text.replace(old, new)
    if listen == OUTER:
        text = text.replace("proxy_pass http://", "proxy_pass https://")
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([str(NGINX), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"], stderr=log)


@asynccontextmanager
async def nginx(folder: Path, *, upstream: int, listen: str) -> AsyncIterator[int]:
    """The example's nginx on a free port, in front of something on port ``upstream`` of the inner address."""
    port = free_port(listen)
    process = started(folder, port, upstream, listen)
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    (await asyncio.open_connection(listen, port))[1].close()
                    break
                except OSError:
                    assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")
                    await asyncio.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(60)


async def post(host: str, port: int, source: str, *headers: tuple[str, str], body: bytes | None = None) -> int:
    """Send a notification over TLS from one of the loopback addresses."""
    sent = notification(source) if body is None else body

    def send() -> int:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, context=context, source_address=(source, 0), timeout=60)
        connection.putrequest("POST", "/ipn")
        for name, value in (("Content-Length", str(len(sent))), *headers):
            connection.putheader(name, value)
        connection.endheaders(sent)
        status = connection.getresponse().status
        connection.close()
        return status

    return await asyncio.to_thread(send)
