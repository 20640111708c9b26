"""Settings are checked when they are made: the message names the field, and no setting costs a payment later."""

import math
import ssl
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp
import pytest
from nested import for_session
from session.wires import SECRET, Wire, accept_everything, reply
from wire.conftest import Open
from wire.orders import payout

from payments_async import Dialect, HttpConnection, Limits, PaymentsSession, RetryPolicy
from payments_async.bulk import Fuse


class NoOffset(tzinfo):
    """A zone that knows nothing."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None


WRONG: list[tuple[type, str, object]] = [
    (Dialect, "timezone", None),
    (Dialect, "timezone", 3),
    (Dialect, "timezone", "Africa/Nowhere"),
    (Dialect, "timezone", "../UTC"),
    (Dialect, "timezone", ""),
    (Dialect, "timezone", NoOffset()),
    (Dialect, "turned_away_unread", {500}),
    (Dialect, "turned_away_unread", {401, 503}),
    (Dialect, "turned_away_unread", {200}),
    (Dialect, "turned_away_unread", {"401"}),
    (Dialect, "turned_away_unread", {True}),
    (Dialect, "turned_away_unread", 429),
    (Dialect, "turned_away_unread", "429"),
    (Dialect, "turned_away_unread", None),
    (Dialect, "include_refresh_token", "false"),
    (Dialect, "product_paging", 1),
    (Dialect, "validation_authorized", None),
    (Dialect, "card_body_on_get", "yes"),
    (Dialect, "token_lifetime", 0),
    (Dialect, "token_lifetime", "3600"),
    (Dialect, "token_lifetime", math.nan),
    (Dialect, "token_lifetime", True),
    (Dialect, "authorization_scheme", "Basic"),
    (Dialect, "phone_format", None),
    (Dialect, "empty_members", "drop"),
    (Dialect, "phone_country_code", "+256"),
    (Dialect, "phone_country_code", 256),
    (Dialect, "phone_country_code", "٢٥٦"),
    (Dialect, "bank_code_keys", "bankCode"),
    (Dialect, "date_keys", ("one",)),
    (Dialect, "api_prefix", "api"),
    (Dialect, "api_prefix", None),
    (Dialect, "internet_path", "/a b"),
    (Dialect, "internet_path", "/a?b"),
    (Dialect, "internet_path", "/a\r\nX-Injected: 1"),
    (Dialect, "cards_path", "/c#"),
    (Dialect, "card_patch_path", 5),
    (Dialect, "refresh_path", "refresh"),
    (Dialect, "product_items_path", "/items"),
    (Dialect, "find_by_request_path", "/find"),
    (Dialect, "card_enable_member", ""),
    (Dialect, "card_pin_member", "masked-card-number"),
    (Dialect, "correlation_header", "X Correlation"),
    (Dialect, "correlation_header", "X\r\nY"),
    (Dialect, "correlation_header", "Authorization"),
    (Dialect, "correlation_header", 1),
    (Dialect, "ipn_response_code", 0),
    (Limits, "concurrency", 0),
    (Limits, "concurrency", 2.5),
    (Limits, "concurrency", True),
    (Limits, "concurrency", "5"),
    (Limits, "rate", 0),
    (Limits, "rate", math.nan),
    (Limits, "rate", "5"),
    (Limits, "reply_bytes", 10),
    (Limits, "reply_bytes", 1e6),
    (Limits, "remembered", 0),
    (Limits, "remembered", None),
    (RetryPolicy, "attempts", 0),
    (RetryPolicy, "attempts", 2.5),
    (RetryPolicy, "attempts", None),
    (RetryPolicy, "total", -1),
    (RetryPolicy, "total", math.nan),
    (RetryPolicy, "wait_initial", "0.2"),
    (RetryPolicy, "wait_max", False),
    (Fuse, "max_error_rate", 5),
    (Fuse, "max_error_rate", "0.05"),
    (Fuse, "max_error_rate", math.nan),
    (Fuse, "max_unknown", -1),
    (Fuse, "max_unknown", 0.5),
    (Fuse, "max_total", 5),
    (Fuse, "max_total", Decimal("NaN")),
    (Fuse, "min_balance", Decimal("Infinity")),
    (Fuse, "window", 5),
    (Fuse, "window", "100"),
]


@pytest.mark.parametrize(("kind", "name", "value"), WRONG)
def test_a_setting_that_cannot_be(kind: type, name: str, value: object) -> None:
    """It is refused at once, by its name."""
    with pytest.raises((TypeError, ValueError), match=rf"^[\w, ]*\b{name}: \S"):
        kind(**{name: value})


ARGUMENTS: dict[str, object] = {
    "timeout": "30",
    "retry": 3,
    "limits": 5,
    "dialect": {"timezone": "UTC"},
    "credentials": "key:password",
    "http": aiohttp.TCPConnector,
    "ssl": False,
    "clock": 5,
    "sleep": 1.0,
    "trust_env": "no",
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_of_a_session_that_cannot_be(name: str) -> None:
    """It is refused before the session is opened, by its name and with the way it is written."""
    arguments: dict[str, Any] = {"credentials": SECRET} | {name: ARGUMENTS[name]}
    with pytest.raises(TypeError, match=rf"^{name}: expected"):
        PaymentsSession("https://payments.test", **for_session(arguments))


@pytest.mark.parametrize("seconds", ["60", -1, True, math.nan])
def test_a_timeout_that_cannot_be(seconds: Any) -> None:
    """Its fields are looked at too."""
    with pytest.raises((TypeError, ValueError), match=r"^timeout\.total: "):
        PaymentsSession("https://payments.test", SECRET, timeout=aiohttp.ClientTimeout(total=seconds))


async def test_a_policy_of_one_call_that_cannot_be(opened: Open, wire: Wire) -> None:
    """An error of the program, and nothing is sent."""
    payments = await opened()
    wrong: Any = 3
    with pytest.raises(TypeError, match=r"^retry: "):
        await payments.payouts.send(payout(), retry=wrong)
    assert not wire.requests


def test_tls_that_is_not_verified() -> None:
    """There is no way to leave it out by accident."""
    wrong: Any = False
    with pytest.raises(TypeError, match=r"^ssl: expected an ssl\.SSLContext"):
        PaymentsSession("https://payments.test", SECRET, connection=HttpConnection(ssl=wrong))
    PaymentsSession("https://payments.test", SECRET, connection=HttpConnection(ssl=ssl.create_default_context()))


async def test_a_context_that_does_not_verify() -> None:
    """It is refused as well, ours or that of a client that was brought."""
    with pytest.raises(ValueError, match=r"^ssl: the context does not verify"):
        PaymentsSession(
            "https://payments.test", SECRET, connection=HttpConnection(ssl=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        )
    for wrong in (False, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=wrong)) as http:
            with pytest.raises(ValueError, match=r"^http: its connector does not verify"):
                PaymentsSession("https://payments.test", SECRET, connection=HttpConnection(http=http))
            PaymentsSession(
                "https://payments.test", SECRET, connection=HttpConnection(http=http, ssl=ssl.create_default_context())
            )


@pytest.mark.parametrize(
    ("zone", "offset"),
    [("Africa/Kampala", 3), (ZoneInfo("Africa/Kampala"), 3), (UTC, 0), ("UTC", 0), (timezone(timedelta(hours=1)), 1)],
)
async def test_a_zone(opened: Open, wire: Wire, zone: Any, offset: int) -> None:
    """By its name or itself: a timestamp that names none is read in it, and a paid order is accepted."""

    async def answer(request: Any) -> bytes:
        data = {"requestId": "r-1", "transactionId": "t-1", "createdOn": "2026-11-21 10:00:00"}
        return reply({"code": 0, "data": data})

    wire.answer = answer
    payments = await opened(dialect=Dialect(timezone=zone))
    moment = (await payments.payouts.send(payout())).created_on
    assert moment is not None
    assert ("2026-11-21 10:00:00", timedelta(hours=offset)) == (f"{moment:%Y-%m-%d %H:%M:%S}", moment.utcoffset())


def test_a_zone_that_this_machine_does_not_know() -> None:
    """The message tells that the zones themselves may be missing."""
    with pytest.raises(ValueError, match="install the package tzdata"):
        Dialect(timezone="Africa/Nowhere")


def test_statuses_in_any_collection() -> None:
    """They become a set."""
    assert frozenset({401, 423}) == Dialect(turned_away_unread=[401, 423, 401]).turned_away_unread  # type: ignore[arg-type]


async def test_an_endless_patience(opened: Open, wire: Wire) -> None:
    """Infinity is a number of seconds too."""
    wire.answer = accept_everything
    payments = await opened(retry=RetryPolicy(total=math.inf))
    assert "t-r-1" == (await payments.payouts.send(payout())).transaction_id
