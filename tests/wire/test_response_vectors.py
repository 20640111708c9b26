"""The shared vectors of answers: every one is run through the session, with the wire faked below it."""

import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aioresponses import CallbackResult, aioresponses
from nested import for_session
from session.wires import SECRET, Times
from wire.orders import collection, payout
from yarl import URL

from payments_async import (
    AuthenticationFailed,
    Dialect,
    OutcomeUnknown,
    PaymentsError,
    PaymentsSession,
    Rejected,
    RetryPolicy,
    ServiceFault,
    UnreadableReply,
)
from payments_async._session.session import executor_of
from payments_async._wire.endpoints import list_product_items

BASE = "https://service.test"
FILE = Path(__file__).parent.parent / "samples" / "response_vectors.json"
CONTENT = json.loads(FILE.read_text(encoding="utf-8"))
VECTORS: list[dict[str, Any]] = CONTENT["vectors"]
LOGINS = [vector for vector in VECTORS if vector["operation"] == "login"]
CALLS = [vector for vector in VECTORS if vector["operation"] != "login"]

# operation: method, path, what the session does
OPERATIONS: dict[str, tuple[str, str, Callable[[PaymentsSession], Awaitable[object]]]] = {
    "payout": (
        "POST",
        "/api/transactions/payouts/mobilemoney",
        lambda payments: payments.payouts.send(payout(request_id="req-1")),
    ),
    "collection": (
        "POST",
        "/api/transactions/collections/mobilemoney",
        lambda payments: payments.collections.request(collection(request_id="req-1")),
    ),
    "account": ("GET", "/api/accounts", lambda payments: payments.accounts.get()),
    "get_transaction": ("GET", "/api/transactions/t", lambda payments: payments.transactions.get("t")),
    "list_transactions": (
        "GET",
        "/api/transactions?pageNumber=1&pageSize=50",
        lambda payments: payments.transactions.page(),
    ),
    "get_product": ("GET", "/api/products/DATAX", lambda payments: payments.products.get("DATAX")),
    "list_products": ("GET", "/api/products?pageNumber=1&pageSize=50", lambda payments: payments.products.page()),
    "list_items": (
        "GET",
        "/api/products/DATAX/items?pageNumber=1&pageSize=50",
        lambda payments: executor_of(payments).execute(  # a session's iterator shows no counts
            list_product_items("DATAX", number=1, size=50, dialect=payments.dialect)
        ),
    ),
    "get_card": ("GET", "/cards/?id=17", lambda payments: payments.cards.get("17")),
    "validate": (
        "POST",
        "/api/products/validation",
        lambda payments: payments.products.validate("DATAX_1001", "0770000017", 1),
    ),
}
MONEY = {"payout", "collection"}
RENAMED = {"valid": "ok"}  # the names of design.md win


@pytest.fixture
def faked() -> Iterator[aioresponses]:
    """The wire, faked."""
    with aioresponses() as faked:
        yield faked


def session(times: Times, **settings: Any) -> PaymentsSession:
    """A session that tries twice: a refused token is told only by the second 401."""
    plain: dict[str, Any] = {"retry": RetryPolicy(attempts=2), "clock": times.clock, "sleep": times.sleep}
    return PaymentsSession(BASE, SECRET, **for_session(plain | settings))


def answer(faked: aioresponses, method: str, path: str, vector: dict[str, Any]) -> None:
    """Let the service answer as the vector says, as often as it is asked."""
    http = vector["http"]
    headers = {"Content-Type": http["content_type"]} | http.get("headers", {})
    body = http["body_text"].encode()
    faked.add(URL(BASE + path), method, status=http["status"], body=body, headers=headers, repeat=True)


async def outcome(faked: aioresponses, vector: dict[str, Any]) -> object:
    """What the session makes of a vector: a result, or the error it raised."""
    faked.post(f"{BASE}/api/auth/login", payload={"Token": "abc", "success": True}, repeat=True)
    method, path, act = OPERATIONS[vector["operation"]]
    answer(faked, method, path, vector)
    async with session(Times()) as payments:
        try:
            return await act(payments)
        except PaymentsError as error:
            return error


def expected_class(name: str, operation: str) -> type[PaymentsError]:
    """The class of a failure, by the conventions of the file."""
    match name:
        case "auth":
            return AuthenticationFailed
        case "api":
            return Rejected
        case "server" | "rate_limit":
            return ServiceFault
        case "protocol" | "protocol_or_unknown_outcome":
            return OutcomeUnknown if operation in MONEY else UnreadableReply
        case _:
            raise AssertionError(f"unknown class {name}")


def differences(expected: object, seen: object, where: str = "") -> list[str]:
    """Where the outcome is not what a vector expects; members that are not listed are free."""
    match expected:
        case {"$decimal": text}:
            same = isinstance(seen, Decimal) and str(Decimal(text)) == str(seen)
        case {"$datetime": text}:
            same = datetime.fromisoformat(text).replace(tzinfo=UTC) == seen
        case dict() if not isinstance(seen, dict):
            members: dict[str, object] = expected
            return [
                found
                for name, value in members.items()
                for found in differences(value, getattr(seen, RENAMED.get(name, name), "missing"), f"{where}.{name}")
            ]
        case list():
            assert isinstance(seen, list | tuple)
            same = len(expected) == len(seen)
            pairs = enumerate(zip(expected, seen, strict=False))
            found = [line for number, pair in pairs for line in differences(*pair, f"{where}[{number}]")]
            return found if same else [*found, f"{where}: {len(expected)} rows expected, {len(seen)} seen"]
        case _:
            same = type(expected) is type(seen) and expected == seen if isinstance(expected, bool) else expected == seen
    return [] if same else [f"{where}: expected {expected!r}, seen {seen!r}"]


def failures(expected: dict[str, Any], seen: object, operation: str) -> list[str]:
    """Where an error is not what a vector expects."""
    kind = expected_class(expected["class"], operation)
    if type(seen) is not kind:
        return [f"expected {kind.__name__}, seen {seen!r}"]
    members = {"http": "status", "code": "code", "transaction_id": "transaction_id", "retry_after": "retry_after"}
    found = [
        f"{name}: expected {expected[name]!r}, seen {getattr(seen, member)!r}"
        for name, member in members.items()
        if name in expected and expected[name] != getattr(seen, member)
    ]
    return found if expected.get("message", "") in str(seen) else [*found, f"the words are missing in {seen}"]


def verdict(vector: dict[str, Any], seen: object) -> list[list[str]]:
    """For each alternative of a vector, where the outcome differs from it."""
    expect, operation = vector["expect"], vector["operation"]
    verdicts = []
    if "value" in expect:
        verdicts.append(differences(expect["value"], seen))
    if "error" in expect:
        verdicts.append(failures(expect["error"], seen, operation))
    for alternative in expect.get("either", []):
        if "$error" in alternative:
            verdicts.append(failures({"class": alternative["$error"]}, seen, operation))
        elif "error" not in expect:  # with one, design.md has chosen: another request's acceptance is none of ours
            verdicts.append(differences(alternative, seen))
    assert verdicts, "a vector without an expectation"
    return verdicts


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["id"]) for vector in CALLS])
async def test_an_answer_of_the_service(faked: aioresponses, vector: dict[str, Any]) -> None:
    """The session gives what the vector says, or one of its alternatives."""
    verdicts = verdict(vector, await outcome(faked, vector))
    assert [] in verdicts, verdicts


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["id"]) for vector in LOGINS])
async def test_an_answer_to_the_login(faked: aioresponses, vector: dict[str, Any]) -> None:
    """Its token authorises the next call, and its refresh token the renewal."""
    answer(faked, "POST", "/api/auth/login", vector)
    sent: list[str] = []

    def account(_: URL, **request: Any) -> CallbackResult:
        sent.append(request["headers"]["Authorization"])
        return CallbackResult(payload={"code": 0, "data": {"accountNumber": 6, "balance": 1}})

    def refresh(_: URL, **request: Any) -> CallbackResult:
        sent.append(json.loads(request["data"].decode())["refreshToken"])
        return CallbackResult(payload={"Token": "renewed", "success": True})

    faked.get(f"{BASE}/api/accounts", callback=account)
    faked.post(f"{BASE}/api/auth/refresh", callback=refresh)
    times = Times()
    async with session(times, dialect=Dialect(refresh_path="/auth/refresh", token_lifetime=100.0)) as payments:
        await payments.accounts.get()
        times.now += 90
        await payments.log_in()
    value = {"token": "abc", "refresh_token": "def"}
    assert value in (vector["expect"].get("value"), *vector["expect"].get("either", []))
    assert ["Token abc", "def"] == sent


def test_the_vectors_are_the_shared_ones() -> None:
    """None was dropped, and each names an operation of ours."""
    assert (39, 2) == (len(VECTORS), len(LOGINS))
    assert {vector["operation"] for vector in CALLS} == OPERATIONS.keys()


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        ({"$decimal": "1.10"}, Decimal("1.1")),
        ({"$decimal": "1.10"}, 1.10),
        ({"$datetime": "2024-01-01T00:00:00"}, datetime(2024, 1, 1, 1, tzinfo=UTC)),
        ({"name": "x"}, TimeoutError()),
        ([1, 2], [1]),
        (True, 1),
        (None, "x"),
    ],
)
def test_the_comparison_can_fail(expected: object, seen: object) -> None:
    """A scale, a moment, a missing member, a missing row: each is a difference."""
    assert [] != differences(expected, seen)
