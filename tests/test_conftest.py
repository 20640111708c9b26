"""That a faked wire can be trusted: aioresponses answers, and a caller sees what it would see of a real service."""

import aiohttp
import pytest
from aioresponses import CallbackResult, aioresponses
from yarl import URL

ADDRESS = "https://service.test/api/products"


async def test_a_faked_answer_is_read() -> None:
    """Status, headers and body arrive as they were given."""
    with aioresponses() as wire:
        wire.get(ADDRESS, status=201, payload={"code": 0}, headers={"X-Correlation-ID": "c-1"})
        async with aiohttp.ClientSession() as http, http.get(ADDRESS) as answer:
            seen = (answer.status, answer.headers["X-Correlation-ID"], await answer.json())
    assert (201, "c-1", {"code": 0}) == seen


async def test_a_faked_body_is_kept_byte_for_byte() -> None:
    """Digits that a float would lose are still there."""
    with aioresponses() as wire:
        wire.post(ADDRESS, body=b'{"amount":150000.10000000000000001}')
        async with aiohttp.ClientSession() as http, http.post(ADDRESS, data=b"{}") as answer:
            seen = await answer.read()
    assert b'{"amount":150000.10000000000000001}' == seen


async def test_what_was_sent_is_remembered() -> None:
    """A test can look at the exact bytes of a request."""
    sent: list[object] = []

    def remember(_: URL, **request: object) -> CallbackResult:
        sent.append(request["data"])
        return CallbackResult(status=200, body="{}")

    with aioresponses() as wire:
        wire.post(ADDRESS, callback=remember)
        async with aiohttp.ClientSession() as http, http.post(ADDRESS, data=b'{"requestId":"r-1"}') as answer:
            await answer.read()
    assert [b'{"requestId":"r-1"}'] == sent


async def test_a_faked_fault_is_raised() -> None:
    """A lost connection looks like one."""
    with aioresponses() as wire:
        wire.get(ADDRESS, exception=aiohttp.ServerDisconnectedError())
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await http.get(ADDRESS)
