"""The sandbox's own HTTP interface, for tests in any language. No part of the simulated service.

Everything is under `/_sandbox/` (after the prefix, if there is one), takes and gives JSON, and asks for no token:

| call | body | answer |
|---|---|---|
| `GET /_sandbox/state` | | counts of executions, duplicates, logins, deliveries and pending scripts, and the balance |
| `GET /_sandbox/executions/{requestId}` | | `{"executions": n}` |
| `GET /_sandbox/ledger?offset=0&limit=1000` | | `{"total": n, "executions": [...]}`, oldest first |
| `POST /_sandbox/faults` | `fault`, `times`, `on`, `request_id`, `options` | `{}` |
| `POST /_sandbox/chaos` | `rates`: fault to probability, `seed`, `options` | `{}` |
| `POST /_sandbox/ipn` | `url` (null stops notifications) | `{}` |
| `POST /_sandbox/advance` | `seconds` | `{}`; needs a manual clock |
| `POST /_sandbox/settle` | `timeout` in seconds, optional | `{"settled": bool}` |
| `POST /_sandbox/reset` | | `{}` |
| `POST /_sandbox/end` | | `{}`; whoever serves it stops |

A call that makes no sense is answered 400 with `{"error": "..."}`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from . import _json
from ._faults import Fault
from ._ledger import Execution

if TYPE_CHECKING:
    from ._sandbox import Sandbox

Command = Callable[["Sandbox", web.Request, Mapping[str, Any]], Awaitable[object]]


def control_routes(sandbox: "Sandbox", prefix: str) -> list[web.RouteDef]:
    """Return the routes of the control interface."""
    return [
        web.RouteDef(method, f"{prefix}/_sandbox/{path}", _handler(sandbox, command), {})
        for method, path, command in _COMMANDS
    ]


def _handler(sandbox: "Sandbox", command: Command) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        sandbox._service.note_asked()
        try:
            payload = _json.read(await request.read() or b"{}")
            if not isinstance(payload, dict):
                raise TypeError("the body must be a JSON object")
            answer, status = await command(sandbox, request, payload), 200
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            answer, status = {"error": str(error)}, 400
        return web.Response(status=status, text=_json.write(answer), content_type="application/json")

    return handle


async def _state(sandbox: "Sandbox", request: web.Request, body: Mapping[str, Any]) -> object:
    duplicates = sandbox.duplicates()
    return {
        "executions": len(sandbox.ledger),
        "duplicates": duplicates,
        "balance": sandbox.balance,
        "logins": sandbox.logins,
        "requests": len(sandbox.requests),
        "deliveries": len(sandbox.deliveries),
        "delivered": sandbox.delivered,
        "scripts_pending": sandbox.scripts_pending,
        "ipn_url": sandbox.ipn_url,
    }


async def _executions(sandbox: "Sandbox", request: web.Request, body: Mapping[str, Any]) -> object:
    return {"executions": sandbox.executions(request.match_info["request_id"])}


async def _ledger(sandbox: "Sandbox", request: web.Request, body: Mapping[str, Any]) -> object:
    offset, limit = int(request.query.get("offset", "0")), int(request.query.get("limit", "1000"))
    if offset < 0 or limit < 0:
        raise ValueError("offset and limit count from 0")
    return {"total": len(sandbox.ledger), "executions": [_row(one) for one in sandbox.ledger[offset : offset + limit]]}


async def _faults(sandbox: "Sandbox", request: web.Request, body: Mapping[str, Any]) -> object:
    sandbox.script(
        Fault(str(body["fault"]).lower()),
        times=body.get("times", 1),
        on=body.get("on"),
        request_id=body.get("request_id"),
        **_options(body),
    )
    return {}


async def _chaos(sandbox: "Sandbox", request: web.Request, body: Mapping[str, Any]) -> object:
    rates = {Fault(fault.lower()): float(rate) for fault, rate in body["rates"].items()}
    sandbox.chaos(rates, seed=body.get("seed"), **_options(body))
    return {}


async def _ipn(sandbox: "Sandbox", request: web.Request, body: Mapping[str, Any]) -> object:
    url = body["url"]
    if url is not None and not isinstance(url, str):
        raise TypeError("url must be a string or null")
    sandbox.ipn_url = url
    return {}


async def _advance(sandbox: "Sandbox", request: web.Request, body: Mapping[str, Any]) -> object:
    await sandbox.advance(float(body["seconds"]))
    return {}


async def _settle(sandbox: "Sandbox", request: web.Request, body: Mapping[str, Any]) -> object:
    try:
        await sandbox.settle(float(body.get("timeout", 10.0)))
    except TimeoutError:
        return {"settled": False}
    return {"settled": True}


async def _reset(sandbox: "Sandbox", request: web.Request, body: Mapping[str, Any]) -> object:
    await sandbox.reset()
    return {}


async def _end(sandbox: "Sandbox", request: web.Request, body: Mapping[str, Any]) -> object:
    sandbox.end()
    return {}


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    # a duration that came as an exact number is needed as a plain one
    options = body.get("options") or {}
    return {name: float(value) if name == "seconds" else value for name, value in options.items()}


def _row(execution: Execution) -> dict[str, object]:
    return {
        "transaction_id": execution.transaction_id,
        "request_id": execution.request_id,
        "batch_id": execution.batch_id,
        "amount": execution.amount,
        "kind": execution.kind,
        "status": execution.status,
        "created_on": execution.created_on.isoformat(),
        "answered": execution.answered,
    }


_COMMANDS: tuple[tuple[str, str, Command], ...] = (
    ("GET", "state", _state),
    ("GET", "executions/{request_id}", _executions),
    ("GET", "ledger", _ledger),
    ("POST", "faults", _faults),
    ("POST", "chaos", _chaos),
    ("POST", "ipn", _ipn),
    ("POST", "advance", _advance),
    ("POST", "settle", _settle),
    ("POST", "reset", _reset),
    ("POST", "end", _end),
)
