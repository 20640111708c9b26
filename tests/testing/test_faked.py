"""The wire, faked by aioresponses: with whatever aiohttp is installed, a session reads what was made up."""

from decimal import Decimal

import aiohttp
import pytest
from aioresponses import aioresponses, core

from payments_async import Credentials, PaymentsSession
from payments_async.testing import mend_aioresponses

ADDRESS = "https://service.test"
CREDENTIALS = Credentials(app_key="key", app_password="password", user_id="user")


async def test_a_session_reads_what_was_made_up() -> None:
    """A login and an answer, without a server; digits that a float would lose are still there."""
    mend_aioresponses()
    with aioresponses() as wire:
        wire.post(f"{ADDRESS}/api/auth/login", payload={"Token": "t", "success": True})
        wire.get(f"{ADDRESS}/rates", body=b'{"rate": 1.10}')
        async with PaymentsSession(ADDRESS, CREDENTIALS) as payments:
            assert {"rate": Decimal("1.10")} == await payments.raw("GET", "/rates")


def test_mending_twice_is_mending_once() -> None:
    """A second call changes nothing, wherever it comes from."""
    mend_aioresponses()
    answer = core.ClientResponse
    mend_aioresponses()
    assert answer is core.ClientResponse


def test_what_needs_no_mending_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An aiohttp that asks for no writer keeps its own answers."""

    class Plain(aiohttp.ClientResponse):
        def __init__(self, method: str, url: object) -> None: ...

    monkeypatch.setattr(aiohttp, "ClientResponse", Plain)
    monkeypatch.setattr(core, "ClientResponse", Plain)
    mend_aioresponses()
    assert Plain is core.ClientResponse
