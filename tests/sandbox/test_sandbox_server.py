"""The server around the service: paths, evidence, clock, control interface, load."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from sandbox.calls import PAYOUT, Caller, Inbox, payout, until

from payments_async.sandbox import Fault, ManualClock, Quirks, Sandbox, SandboxServer, Status, SystemClock


async def test_a_path_that_is_not_there(caller: Caller) -> None:
    """It is 404 with an envelope."""
    status, answer = await caller.call("GET", "/api/nothing")
    assert (404, 404) == (status, answer["code"])


async def test_a_method_that_does_not_fit(caller: Caller) -> None:
    """It is 405 and Allow says what would."""
    async with caller.send("DELETE", PAYOUT) as answer:
        assert (405, "POST") == (answer.status, answer.headers["Allow"])
        assert 405 == (await answer.json())["code"]


async def test_a_prefix(opened: Any) -> None:
    """Everything moves below it, the control interface too."""
    caller = await opened(prefix="/bank/")
    assert caller.sandbox.base_url.endswith("/bank")
    assert 200 == (await caller.pay())[0]
    _, answer = await caller.call("GET", "/_sandbox/executions/r-1")
    assert {"executions": 1} == answer


async def test_a_sandbox_mounted_elsewhere(stack: AsyncExitStack) -> None:
    """Its app works as part of another."""
    sandbox, app = Sandbox(), web.Application()
    app.add_subapp("/service", sandbox.app())
    server = await stack.enter_async_context(TestServer(app))
    http = await stack.enter_async_context(aiohttp.ClientSession())
    body = {"appKey": sandbox.app_key, "appPassword": sandbox.app_password, "userId": sandbox.user_id}
    async with http.post(
        server.make_url("/service/api/auth/login"), json=body | {"includeRefereshToken": False}
    ) as answer:
        assert 200 == answer.status
    async with http.get(server.make_url("/service/api/nothing")) as answer:
        assert 404 == answer.status


async def test_a_sandbox_that_is_not_open() -> None:
    """It has no address yet, and says what to do."""
    with pytest.raises(RuntimeError, match="async with"):
        assert Sandbox().base_url


async def test_a_port_that_is_taken(sandbox: Sandbox) -> None:
    """Opening fails, and leaves nothing behind."""
    taken = int(sandbox.base_url.rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        async with Sandbox(server=SandboxServer(port=taken)):
            pytest.fail("two servers on one port")


async def test_closing_while_a_call_waits(stack: AsyncExitStack) -> None:
    """The sandbox hangs up and closes at once."""
    http = await stack.enter_async_context(aiohttp.ClientSession())
    async with asyncio.TaskGroup() as tasks, Sandbox(clock=ManualClock()) as sandbox:
        caller = Caller(sandbox, http)
        await caller.login()
        sandbox.script(Fault.SLOW, seconds=1000)
        waiting = tasks.create_task(_outcome(caller))
        await until(lambda: sandbox.executions("r-1"))
    assert isinstance(waiting.result(), aiohttp.ClientError)


async def _outcome(caller: Caller) -> object:
    try:
        return await caller.pay()
    except aiohttp.ClientError as error:
        return error


async def test_the_evidence(caller: Caller, sandbox: Sandbox) -> None:
    """Every request is remembered as it came, refused ones included."""
    await caller.call("POST", PAYOUT, data=b"{", headers={"X-Correlation-ID": "42"})
    last = sandbox.requests[-1]
    assert ("POST", PAYOUT, b"{", "42") == (last.method, last.path, last.body, last.headers["X-Correlation-ID"])
    assert datetime(2026, 1, 5, 8, tzinfo=UTC) == last.at


async def test_a_clock_that_cannot_be_moved(opened: Any) -> None:
    """Advancing it is an error that says which clock to use."""
    caller = await opened(clock=SystemClock())
    with pytest.raises(RuntimeError, match="ManualClock"):
        await caller.sandbox.advance(1)


async def test_the_computers_clock(opened: Any, inbox: Inbox) -> None:
    """Orders end and notifications are tried again by themselves; settle waits for that."""
    inbox.statuses = [500]
    caller = await opened(clock=None, processing_delay=0.01, wait_initial=0.01)
    await caller.pay()
    await caller.sandbox.settle()
    assert ([0, 0], Status.SUCCESSFULL) == (inbox.codes, caller.sandbox.ledger[0].status)


async def test_settling_that_takes_too_long(opened: Any) -> None:
    """It is a TimeoutError."""
    caller = await opened(clock=None, processing_delay=60)
    await caller.pay()
    with pytest.raises(TimeoutError):
        await caller.sandbox.settle(timeout=0.01)


async def test_an_order_that_is_due_sooner(opened: Any, inbox: Inbox) -> None:
    """The scheduler wakes for it although it sleeps for a later one."""
    caller = await opened(clock=None, processing_delay=0.01)
    caller.sandbox.script(Fault.NOTIFY_LATE, seconds=3600)
    await caller.pay("r-1")
    await until(lambda: caller.sandbox.ledger[0].status is Status.SUCCESSFULL)
    await caller.pay("r-2")
    await until(lambda: inbox.bodies)
    assert ["r-2"] == [body["RequestId"] for body in inbox.bodies]


async def test_whoever_else_sleeps_on_the_clock() -> None:
    """They wake in the order of their time once it has come."""
    clock, woken = ManualClock(), []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as tasks:
        for seconds in (3, 1, 2, 0):
            tasks.create_task(sleeper(seconds))
        await asyncio.sleep(0)
        clock.advance(2)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [0, 1, 2] == sorted(woken)
        clock.advance(1)


async def test_a_start_without_a_zone() -> None:
    """It is refused."""
    with pytest.raises(ValueError, match="aware"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


async def test_a_quirk_that_is_misspelled() -> None:
    """It is refused when it is chosen."""
    with pytest.raises(ValueError, match="ipn_spelling"):
        Quirks(ipn_spelling="kebab")  # type: ignore[arg-type]


async def test_the_control_interface(caller: Caller, sandbox: Sandbox, inbox: Inbox, ipn_url: str) -> None:
    """Whatever a test in Python can do, one in another language can do over HTTP."""
    assert 200 == (await caller.call("POST", "/_sandbox/ipn", json={"url": ipn_url}, headers={}))[0]
    fault = {"fault": "NOTIFY_LATE", "on": "payout", "request_id": "r-1", "options": {"seconds": 60}}
    assert 200 == (await caller.call("POST", "/_sandbox/faults", json=fault))[0]
    await caller.pay()
    await caller.call("POST", "/_sandbox/advance", json={"seconds": 59.5})
    assert [] == inbox.bodies
    assert (200, {"settled": True}) == await caller.call("POST", "/_sandbox/settle", json={"timeout": 5})
    assert 1 == len(inbox.bodies)
    assert (200, {"executions": 1}) == await caller.call("GET", "/_sandbox/executions/r-1")
    _, state = await caller.call("GET", "/_sandbox/state")
    assert (1, [], 1, 1) == tuple(state[name] for name in ("executions", "duplicates", "logins", "deliveries"))
    _, ledger = await caller.call("GET", "/_sandbox/ledger")
    assert ("r-1", "SUCCESSFULL", True) == tuple(
        ledger["executions"][0][name] for name in ("request_id", "status", "answered")
    )
    await caller.call("POST", "/_sandbox/chaos", json={"rates": {"refused": 1.0}, "seed": 3})
    assert 400 == (await caller.pay("r-2"))[0]


async def test_whoever_serves_it_learns_when_to_end(caller: Caller, sandbox: Sandbox) -> None:
    """After a while without a request, and when somebody asks for it; every request counts."""
    async with asyncio.TaskGroup() as group:
        idle = group.create_task(sandbox.ended(idle=10))
        for path in ("/_sandbox/state", "/api/accounts"):
            await caller.call("GET", path)
            await sandbox.advance(9)
        await caller.call("GET", "/_sandbox/state")
        assert not idle.done()
        await sandbox.advance(10)
        await asyncio.wait_for(idle, 60)
        waiting = [group.create_task(sandbox.ended()), group.create_task(sandbox.ended(idle=10))]
        assert (200, {}) == await caller.call("POST", "/_sandbox/end")
        await asyncio.wait_for(asyncio.gather(*waiting), 60)


async def test_a_sandbox_that_is_reset(caller: Caller, sandbox: Sandbox) -> None:
    """Nothing of before is left: no order, no money moved, no fault, no token."""
    await caller.pay()
    sandbox.script(Fault.HTML)
    assert (200, {}) == await caller.call("POST", "/_sandbox/reset")
    assert (0, 0, 0, []) == (sandbox.executions("r-1"), sandbox.scripts_pending, sandbox.logins, sandbox.requests)
    assert 401 == (await caller.pay())[0]
    await sandbox.settle()
    assert Decimal(1_000_000_000) == sandbox.balance


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("faults", {"fault": "no such fault"}),
        ("faults", {}),
        ("faults", []),
        ("chaos", {"rates": {"html": 2}}),
        ("advance", {"seconds": "x"}),
        ("ipn", {"url": 7}),
    ],
    ids=str,
)
async def test_a_command_that_makes_no_sense(caller: Caller, path: str, body: object) -> None:
    """It is 400 and says why."""
    status, answer = await caller.call("POST", f"/_sandbox/{path}", json=body)
    assert 400 == status
    assert answer["error"]


async def test_a_sandbox_for_load(opened: Any, inbox: Inbox) -> None:
    """Orders end at once, are judged, listed and notified; no evidence is kept."""
    caller = await opened(fast=True)
    caller.sandbox.script(Fault.FAILS, request_id="r-1")
    for number in (0, 1, 2, 0):
        await caller.pay(f"r-{number}", amount=1500.5)
    await caller.sandbox.settle()
    assert (2, 1, ["r-0"]) == (
        caller.sandbox.executions("r-0"),
        caller.sandbox.executions("r-1"),
        caller.sandbox.duplicates(),
    )
    assert (4, 4, [], []) == (
        len(inbox.bodies), caller.sandbox.delivered, caller.sandbox.requests, caller.sandbox.deliveries
    )  # fmt: skip
    assert ["r-0", "r-2", "r-0"] == await caller.listed(transactionStatus="SUCCESSFULL")
    assert [("r-1", Status.FAILED, True, Decimal("1500.5"))] == [
        (one.request_id, one.status, one.answered, one.amount) for one in caller.sandbox.ledger[1:2]
    ]
    assert Decimal("1000000000") - 3 * Decimal("1500.5") == caller.sandbox.balance


@pytest.mark.slow(covered=True)
async def test_many_orders_at_once(opened: Any) -> None:
    """Each is carried out once, and the money adds up."""
    caller = await opened(ipn_url=None)
    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(caller.call("POST", PAYOUT, json=payout(f"r-{number}", amount=10)))
    await caller.sandbox.settle()
    assert (200, []) == (len(caller.sandbox.ledger), caller.sandbox.duplicates())
    assert Decimal(1_000_000_000 - 2000) == caller.sandbox.balance
