"""Raw calls to a running sandbox, as a client would make them that knows only the specification."""

import asyncio
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import aiohttp
from aiohttp import web

from payments_async.sandbox import Sandbox

MOBILE = "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"
COLLECT = "MTNMOBILEMONEYUG_MTNMOBILEMONEYUG"
PAYOUT = "/api/transactions/payouts/mobilemoney"
COLLECTION = "/api/transactions/collections/mobilemoney"


def payout(request_id: str = "r-1", **changes: Any) -> dict[str, Any]:
    """Return the body of a mobile money payout, with top-level members changed; None removes one."""
    body = {
        "requestId": request_id,
        "batchId": "b-1",
        "amount": 1500,
        "type": "DEBIT",
        "message": "November",
        "product": {"productItemId": MOBILE},
        "beneficiary": {"name": "Grace", "phoneNumber": "0770000001", "data": {"phoneNumber": "0770000017"}},
    } | changes
    return {name: value for name, value in body.items() if value is not None}


def collection(request_id: str = "c-1", **changes: Any) -> dict[str, Any]:
    """Return the body of a mobile money collection."""
    ours = {"type": "CREDIT", "product": None, "provider": {"providerItemId": COLLECT}}
    return payout(request_id, **(ours | changes))


class Caller:
    """A client without any cleverness: one token, no retries, no redirects."""

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.http = http
        self.headers: dict[str, str] = {}

    @property
    def credentials(self) -> dict[str, Any]:
        return {
            "appKey": self.sandbox.app_key,
            "appPassword": self.sandbox.app_password,
            "userId": self.sandbox.user_id,
            "includeRefereshToken": True,
        }

    async def login(self) -> dict[str, Any]:
        """Log in and use the token from now on."""
        _, answer = await self.call("POST", "/api/auth/login", json=self.credentials)
        self.headers = {"Authorization": f"Token {answer['Token']}"}
        return answer

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """Return the HTTP status and the decoded JSON, numbers as Decimal or int."""
        async with self.send(method, path, **more) as answer:
            return answer.status, await answer.json(loads=exact, content_type=None)

    def send(self, method: str, path: str, **more: Any) -> Any:
        """Return the exchange itself, for a closer look."""
        more.setdefault("headers", self.headers)
        return self.http.request(method, self.sandbox.base_url + path, allow_redirects=False, **more)

    async def pay(self, request_id: str = "r-1", **changes: Any) -> tuple[int, Any]:
        """Order a mobile money payout."""
        return await self.call("POST", PAYOUT, json=payout(request_id, **changes))

    async def listed(self, **query: Any) -> list[str]:
        """Return the request ids of one page of transactions."""
        _, answer = await self.call("GET", "/api/transactions", params=query)
        return [row["requestId"] for row in answer["data"]["collection"]]


def exact(text: str) -> Any:
    """Decode JSON with exact numbers."""
    return json.loads(text, parse_float=Decimal)


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop turn until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the sandbox has no event for every state a test may wait for
            await asyncio.sleep(0)


class Inbox:
    """An IPN URL that remembers what came and answers as it is told."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.bodies: list[dict[str, Any]] = []
        self.queries: list[dict[str, str]] = []

    @property
    def codes(self) -> list[int]:
        return [body["StatusCode"] for body in self.bodies]

    async def receive(self, request: web.Request) -> web.Response:
        """Take one notification; answer the next of `statuses`, or 200."""
        self.bodies.append(exact(await request.text()))
        self.queries.append(dict(request.query))
        return web.Response(status=self.statuses.pop(0) if self.statuses else 200)
