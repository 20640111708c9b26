"""Real nginx in front, with TLS, one hop and two: genuine senders pass, forged headers do not."""

import asyncio
import http.client
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from ipn.notifications import notification

from payments_async.ipn import ClientCertificateVerifier, Receiver, serving

NGINX = shutil.which("nginx") or ("/usr/sbin/nginx" if Path("/usr/sbin/nginx").exists() else None)
OPENSSL = shutil.which("openssl")
CONFIGURATION = Path(__file__).parents[2] / "examples" / "ipn_behind_nginx" / "nginx.conf"
# Loopback is a whole network: each part has an address of its own.
GENUINE, STRANGER, INNER, OUTER = "127.0.0.77", "127.0.0.66", "127.0.0.1", "127.0.0.2"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None or OPENSSL is None, reason="nginx or openssl is not installed"),
]


def free_port(host: str) -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def certificate(folder: Path, name: str) -> str:
    """Make a certificate and its key; gives its fingerprint."""
    key, pem = folder / f"{name}key.pem", folder / f"{name}certificate.pem"
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:127.0.0.2"]
    subprocess.run(
        [str(OPENSSL), *request, "-keyout", str(key), "-out", str(pem), *subject], check=True, capture_output=True
    )
    shown = ["x509", "-in", str(pem), "-noout", "-fingerprint", "-sha256"]
    made = subprocess.run([str(OPENSSL), *shown], check=True, capture_output=True)
    return made.stdout.decode().strip().partition("=")[2]


def started(folder: Path, port: int, upstream: int, listen: str, extra: str) -> subprocess.Popen[bytes]:
    """An nginx process with the example's configuration, its addresses changed."""
    folder.mkdir(exist_ok=True)
    certificate(folder, "")
    text = CONFIGURATION.read_text(encoding="utf-8")
    for old, new in (
        ("server 127.0.0.1:8080", f"server {INNER}:{upstream}"),
        ("listen 127.0.0.1:8443 ssl;", f"listen {listen}:{port} ssl; proxy_bind {listen}; {extra}"),
    ):
        assert old in text
        text = text.replace(old, new)
    if listen == OUTER:
        text = text.replace("proxy_pass http://", "proxy_pass https://")
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([str(NGINX), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"], stderr=log)


@asynccontextmanager
async def nginx(folder: Path, *, upstream: int, listen: str, extra: str = "") -> AsyncIterator[int]:
    """The example's nginx on a free port, in front of something on port ``upstream`` of the inner address."""
    port = free_port(listen)
    process = started(folder, port, upstream, listen, extra)
    try:
        async with asyncio.timeout(10):
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
        process.wait(10)


async def post(host: str, port: int, source: str, *headers: tuple[str, str], client: Path | None = None) -> int:
    """Send a notification over TLS from one of the loopback addresses."""

    def send() -> int:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if client is not None:
            context.load_cert_chain(client / "clientcertificate.pem", client / "clientkey.pem")
        connection = http.client.HTTPSConnection(host, port, context=context, source_address=(source, 0), timeout=10)
        body = notification(source)
        connection.putrequest("POST", "/ipn")
        for name, value in (("Content-Length", str(len(body))), *headers):
            connection.putheader(name, value)
        connection.endheaders(body)
        status = connection.getresponse().status
        connection.close()
        return status

    return await asyncio.to_thread(send)


FORGED = (
    (),
    (("X-Forwarded-For", GENUINE),),
    (("X-Forwarded-For", GENUINE), ("X-Forwarded-For", GENUINE)),
    (("Forwarded", f"for={GENUINE}"),),
    (("X-Forwarded-For", f"{GENUINE}, {INNER}"), ("Forwarded", f"for={GENUINE}"), ("X-Real-IP", GENUINE)),
)


async def test_one_hop(tmp_path: Path) -> None:
    """The address that connected to nginx decides, whatever it says of itself."""
    receiver = Receiver(senders=[GENUINE], trusted_proxies=[INNER])
    async with (
        serving(receiver, INNER, 0) as (_, behind),
        nginx(tmp_path / "one", upstream=behind, listen=INNER) as port,
    ):
        assert 200 == await post(INNER, port, GENUINE)
        assert 200 == await post(INNER, port, GENUINE, ("X-Forwarded-For", "6.6.6.6"))
        assert [403] * len(FORGED) == [await post(INNER, port, STRANGER, *headers) for headers in FORGED]


async def test_two_hops(tmp_path: Path) -> None:
    """The same through two proxies; who goes round the outer one is no proxy."""
    receiver = Receiver(senders=[GENUINE], trusted_proxies=[INNER, OUTER])
    async with (
        serving(receiver, INNER, 0) as (_, behind),
        nginx(tmp_path / "inner", upstream=behind, listen=INNER) as inner,
        nginx(tmp_path / "outer", upstream=inner, listen=OUTER) as port,
    ):
        assert 200 == await post(OUTER, port, GENUINE)
        assert [403] * len(FORGED) == [await post(OUTER, port, STRANGER, *headers) for headers in FORGED]
        assert [403] * len(FORGED) == [await post(INNER, inner, STRANGER, *headers) for headers in FORGED]


async def test_the_client_certificate_that_nginx_saw(tmp_path: Path) -> None:
    """Mutual TLS ends in nginx; a fingerprint or certificate in a forged header is overwritten."""
    fingerprint = certificate(tmp_path, "client")
    (tmp_path / "other").mkdir()
    certificate(tmp_path / "other", "client")
    verifier = ClientCertificateVerifier([fingerprint], header="X-Client-Certificate")
    receiver = Receiver(senders=[GENUINE], trusted_proxies=[INNER], verifiers=[verifier])
    async with (
        serving(receiver, INNER, 0) as (_, behind),
        nginx(tmp_path / "tls", upstream=behind, listen=INNER, extra="ssl_verify_client optional_no_ca;") as port,
    ):
        forged = ("X-Client-Certificate", fingerprint)
        assert [200, 403, 403, 403] == [
            await post(INNER, port, GENUINE, client=tmp_path),
            await post(INNER, port, GENUINE, client=tmp_path / "other"),
            await post(INNER, port, GENUINE, forged),
            await post(INNER, port, STRANGER, client=tmp_path),
        ]
