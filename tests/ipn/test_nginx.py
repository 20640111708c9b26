"""Real nginx in front, with TLS, one hop and two: genuine senders pass, forged headers do not."""

import asyncio
import ssl
from pathlib import Path

import pytest
from ipn.nginx import GENUINE, INNER, OUTER, STRANGER, needs_nginx, nginx, post

from payments_async.ipn import Receiver, ReceiverSettings, serving

pytestmark = [pytest.mark.slow, needs_nginx]

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


async def test_a_slow_body_is_cut_off_through_nginx(tmp_path: Path) -> None:
    """The receiver limits the whole body's time: nginx passes it on as it comes, and hangs up on its sender."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    receiver = Receiver(senders=[INNER], trusted_proxies=[INNER], settings=ReceiverSettings(body_time=0.3))
    async with (
        serving(receiver, INNER, 0) as (_, behind),
        nginx(tmp_path / "one", upstream=behind, listen=INNER) as port,
        asyncio.timeout(45),  # seconds: less than nginx lets a sender pause
    ):
        reader, writer = await asyncio.open_connection(INNER, port, ssl=context)
        writer.write(b"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n{")
        assert b"HTTP/1.1 408" == (await reader.read())[:12]
        writer.close()
