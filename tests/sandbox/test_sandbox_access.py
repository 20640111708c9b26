"""Who is let in."""

from typing import Any

import pytest
from sandbox.calls import Caller

ACCOUNT = "/api/accounts"


async def test_a_login_with_the_right_credentials(opened: Any) -> None:
    """It answers with a token, a refresh token, success and a message, spelled as specified."""
    caller = await opened(login=False)
    status, answer = await caller.call("POST", "/api/auth/login", json=caller.credentials)
    assert (200, True) == (status, answer["success"])
    assert {"Token", "refreshToken", "success", "message"} == set(answer)
    assert 1 == caller.sandbox.logins


async def test_a_login_that_wants_no_refresh_token(caller: Caller) -> None:
    """It gets none, whether it says so or says nothing of it."""
    silent = {name: text for name, text in caller.credentials.items() if name != "includeRefereshToken"}
    for body in (silent, silent | {"includeRefereshToken": False}):
        status, answer = await caller.call("POST", "/api/auth/login", json=body)
        assert (200, False) == (status, "refreshToken" in answer)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"appPassword": "wrong"}, 401),
        ({"appKey": "wrong"}, 401),
        ({"userId": "somebody"}, 401),
        ({"userId": None}, 400),
        ({"includeRefereshToken": None}, 400),
        ({"includeRefereshToken": "true"}, 400),
    ],
)
async def test_a_login_that_is_wrong(opened: Any, changes: dict[str, Any], expected: int) -> None:
    """It is refused with success false, and is no login."""
    caller = await opened(login=False)
    status, answer = await caller.call("POST", "/api/auth/login", json=caller.credentials | changes)
    assert (expected, False, 0) == (status, answer["success"], caller.sandbox.logins)


@pytest.mark.parametrize("header", [None, "", "Token", "Token nonsense", "Bearer {}", "token {}", "{}"])
async def test_a_call_without_good_authorization(caller: Caller, header: str | None) -> None:
    """It is 401 with an envelope."""
    token = caller.headers["Authorization"].removeprefix("Token ")
    headers = {} if header is None else {"Authorization": header.format(token)}
    status, answer = await caller.call("GET", ACCOUNT, headers=headers)
    assert (401, 401) == (status, answer["code"])


async def test_a_scheme_that_is_accepted_by_quirk(opened: Any) -> None:
    """With Bearer accepted, Bearer is let in and Token is not."""
    caller = await opened(quirks={"accepted_schemes": ("Bearer",)})
    assert 401 == (await caller.call("GET", ACCOUNT))[0]
    caller.headers = {"Authorization": caller.headers["Authorization"].replace("Token", "Bearer")}
    assert 200 == (await caller.call("GET", ACCOUNT))[0]


async def test_a_token_after_its_hour(caller: Caller) -> None:
    """It is good for 60 minutes and not a moment longer."""
    await caller.sandbox.advance(3599)
    assert 200 == (await caller.call("GET", ACCOUNT))[0]
    await caller.sandbox.advance(1)
    assert 401 == (await caller.call("GET", ACCOUNT))[0]


@pytest.mark.parametrize(
    ("token_key", "found"),
    [("token", lambda answer: answer["token"]), ("data.token", lambda answer: answer["data"]["token"])],
)
async def test_another_place_of_the_token(opened: Any, token_key: str, found: Any) -> None:
    """The quirk moves the token, and it works."""
    caller = await opened(login=False, quirks={"token_key": token_key})
    _, answer = await caller.call("POST", "/api/auth/login", json=caller.credentials)
    headers = {"Authorization": f"Token {found(answer)}"}
    assert 200 == (await caller.call("GET", ACCOUNT, headers=headers))[0]


async def test_an_address_that_is_not_whitelisted(opened: Any) -> None:
    """Every call is 403, login included."""
    caller = await opened(login=False, allowed_peers=("192.0.2.1",))
    status, answer = await caller.call("POST", "/api/auth/login", json=caller.credentials)
    assert (403, False) == (status, answer["success"])
    assert 403 == (await caller.call("GET", ACCOUNT))[0]


async def test_an_address_that_is_whitelisted(opened: Any) -> None:
    """It is let in."""
    caller = await opened(allowed_peers=("127.0.0.1",))
    assert 200 == (await caller.call("GET", ACCOUNT))[0]


async def test_a_refresh_where_one_is_offered(opened: Any) -> None:
    """A refresh token buys a new token once; where none is offered there is no such path."""
    caller = await opened(login=False, quirks={"refresh_path": "/api/auth/refresh"})
    body = {"refreshToken": (await caller.login())["refreshToken"]}
    answers = [await caller.call("POST", "/api/auth/refresh", json=body) for _ in range(2)]
    assert [200, 401] == [status for status, _ in answers]
    headers = {"Authorization": f"Token {answers[0][1]['Token']}"}
    assert 200 == (await caller.call("GET", ACCOUNT, headers=headers))[0]
    plain = await opened()
    assert 404 == (await plain.call("POST", "/api/auth/refresh", json=body))[0]


async def test_validation_without_a_token(opened: Any) -> None:
    """It is answered, as its sample is; with the quirk it is 401."""
    body = {"productItemId": "MTNAIRTIMEUG_MTNAIRTIMEUG", "customerReference": "0770000001", "amount": 1000}
    for quirks, expected in (({}, 200), ({"validation_needs_token": True}, 401)):
        caller = await opened(login=False, quirks=quirks)
        assert expected == (await caller.call("POST", "/api/products/validation", json=body))[0]
