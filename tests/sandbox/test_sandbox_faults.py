"""Trouble with the answer: what it looks like on the wire, and whether the order was carried out."""

import asyncio
from typing import Any

import aiohttp
import pytest
from sandbox.calls import PAYOUT, Caller, payout, until

from payments_async.sandbox import Fault, Sandbox


@pytest.mark.parametrize(
    ("fault", "options", "expected", "carried_out"),
    [
        (Fault.ERROR_BEFORE, {}, 503, 0),
        (Fault.ERROR_BEFORE, {"html": True, "status": 502}, 502, 0),
        (Fault.ERROR_AFTER, {}, 500, 1),
        (Fault.RATE_LIMITED, {"seconds": 7}, 429, 0),
        (Fault.HTML, {}, 200, 1),
        (Fault.GARBAGE, {}, 200, 1),
        (Fault.HUGE, {"size": 100_000}, 200, 1),
        (Fault.REDIRECT, {}, 307, 0),
        (Fault.TOKEN_REVOKED, {}, 401, 0),
        (Fault.REFUSED, {"code": 77}, 400, 0),
        (Fault.REFUSED_200, {}, 200, 0),
        (Fault.WRONG_ECHO, {}, 200, 1),
    ],
)
async def test_a_fault_that_answers(
    caller: Caller, sandbox: Sandbox, fault: Fault, options: dict[str, Any], expected: int, carried_out: int
) -> None:
    """It answers with its status, and the judge knows whether the order was carried out."""
    sandbox.script(fault, **options)
    async with caller.send("POST", PAYOUT, json=payout()) as answer:
        await answer.read()
        assert expected == answer.status
    assert (carried_out, 0) == (sandbox.executions("r-1"), sandbox.scripts_pending)


@pytest.mark.parametrize(
    ("fault", "carried_out"), [(Fault.LOST_BEFORE, 0), (Fault.LOST_AFTER, 1), (Fault.TRUNCATED, 1)]
)
async def test_a_fault_that_breaks_the_connection(
    caller: Caller, sandbox: Sandbox, fault: Fault, carried_out: int
) -> None:
    """No whole answer arrives, and the next call is answered again."""
    sandbox.script(fault)
    with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)):
        await caller.pay()
    assert carried_out == sandbox.executions("r-1")
    assert 200 == (await caller.pay("r-2"))[0]


async def test_a_refusal_with_200(caller: Caller, sandbox: Sandbox) -> None:
    """Its envelope has a code that is not 0 and no data."""
    sandbox.script(Fault.REFUSED_200, code=77, message="no")
    assert (200, {"code": 77, "status": "failed", "message": "no", "data": None}) == await caller.pay()


async def test_being_told_to_wait(caller: Caller, sandbox: Sandbox) -> None:
    """Retry-After says how long."""
    sandbox.script(Fault.RATE_LIMITED, seconds=7)
    async with caller.send("GET", "/api/accounts") as answer:
        assert "7" == answer.headers["Retry-After"]


async def test_a_redirect(caller: Caller, sandbox: Sandbox) -> None:
    """It leads to the same path."""
    sandbox.script(Fault.REDIRECT)
    async with caller.send("POST", PAYOUT, json=payout()) as answer:
        assert PAYOUT == answer.headers["Location"]


async def test_garbage(caller: Caller, sandbox: Sandbox) -> None:
    """It claims to be JSON and is none."""
    sandbox.script(Fault.GARBAGE)
    with pytest.raises(ValueError, match=r"Unterminated|Expecting|delimiter"):
        await caller.pay()


async def test_a_huge_answer(caller: Caller, sandbox: Sandbox) -> None:
    """It is of the asked size and otherwise a good acceptance."""
    sandbox.script(Fault.HUGE, size=200_000)
    async with caller.send("POST", PAYOUT, json=payout()) as answer:
        assert 200_000 == len(await answer.read())
        assert "r-1" == (await answer.json())["data"]["requestId"]


async def test_a_huge_answer_to_a_caller_who_hangs_up(caller: Caller, sandbox: Sandbox) -> None:
    """The sandbox takes it in its stride."""
    sandbox.script(Fault.HUGE)
    async with caller.send("GET", "/api/accounts") as answer:
        answer.close()
    assert 200 == (await caller.call("GET", "/api/accounts"))[0]


async def test_another_echo(caller: Caller, sandbox: Sandbox) -> None:
    """The acceptance names another requestId, but the order is ours."""
    sandbox.script(Fault.WRONG_ECHO)
    _, answer = await caller.pay()
    assert "r-1" != answer["data"]["requestId"]
    assert answer["data"]["transactionId"] == sandbox.ledger[0].transaction_id


async def test_a_slow_answer(caller: Caller, sandbox: Sandbox) -> None:
    """It is carried out at once and answered when the clock has moved far enough."""
    sandbox.script(Fault.SLOW, seconds=20)
    async with asyncio.TaskGroup() as tasks:
        answer = tasks.create_task(caller.pay())
        await until(lambda: sandbox.executions("r-1"))
        await sandbox.advance(19)
        assert not answer.done()
        await sandbox.advance(1)
    assert 200 == answer.result()[0]


async def test_a_revoked_token(caller: Caller) -> None:
    """All tokens issued so far are bad from then on; a new login is good."""
    caller.sandbox.script(Fault.TOKEN_REVOKED)
    assert [401, 401] == [(await caller.pay())[0], (await caller.pay())[0]]
    await caller.login()
    assert 200 == (await caller.pay())[0]


@pytest.mark.parametrize(
    ("on", "path"),
    [
        ("transactions", "/api/transactions"),
        ("transaction", "/api/transactions/x"),
        ("products", "/api/products"),
        ("product", "/products/KCCATAXUG"),
        ("items", "/api/products/KCCATAXUG/items"),
        ("account", "/api/accounts"),
        ("card", "/cards/"),
    ],
)
async def test_a_script_for_one_operation(caller: Caller, sandbox: Sandbox, on: Any, path: str) -> None:
    """It strikes that operation, as often as it was told, and no other."""
    sandbox.script(Fault.ERROR_BEFORE, on=on, times=2)
    assert 200 == (await caller.pay())[0]
    statuses = [(await caller.call("GET", path))[0] for _ in range(3)]
    assert [503, 503] == statuses[:2]
    assert 503 != statuses[2]


async def test_a_script_for_logins(caller: Caller, sandbox: Sandbox) -> None:
    """It strikes them in their own envelope."""
    sandbox.script(Fault.ERROR_BEFORE, on="login")
    status, answer = await caller.call("POST", "/api/auth/login", json=caller.credentials)
    assert (503, False) == (status, answer["success"])


async def test_a_script_for_one_order(caller: Caller, sandbox: Sandbox) -> None:
    """It waits for that requestId."""
    sandbox.script(Fault.REFUSED, on="money", request_id="r-2")
    assert [200, 400, 200] == [(await caller.pay(request_id))[0] for request_id in ("r-1", "r-2", "r-2")]


async def test_a_script_for_ever(caller: Caller, sandbox: Sandbox) -> None:
    """It never wears off."""
    sandbox.script(Fault.REFUSED, times=None)
    assert {400} == {(await caller.pay(f"r-{number}"))[0] for number in range(5)}


async def test_a_call_that_is_not_let_in(caller: Caller, sandbox: Sandbox) -> None:
    """It uses no script up."""
    sandbox.script(Fault.REFUSED)
    assert 401 == (await caller.call("POST", PAYOUT, json=payout(), headers={}))[0]
    assert 1 == sandbox.scripts_pending


@pytest.mark.parametrize(
    ("fault", "more"),
    [
        (Fault.SLOW, {"size": 1}),
        (Fault.FAILS, {"on": "login"}),
        (Fault.HTML, {"on": "everything"}),
        (Fault.HTML, {"times": 0}),
    ],
    ids=str,
)
async def test_a_script_that_makes_no_sense(sandbox: Sandbox, fault: Fault, more: dict[str, Any]) -> None:
    """It is refused when it is written, not when it should strike."""
    with pytest.raises(ValueError, match=r"option|only strike|no operation|times"):
        sandbox.script(fault, **more)


async def test_chaos_in_another_order(opened: Any) -> None:
    """The same orders meet the same trouble, whatever their order of arrival."""
    struck = []
    for names in (range(60), reversed(range(60))):
        caller = await opened(seed=4)
        caller.sandbox.chaos({Fault.REFUSED: 0.2, Fault.ERROR_AFTER: 0.2})
        struck.append({name: (await caller.pay(f"r-{name}"))[0] for name in names})
    assert struck[0] == struck[1]
    assert {200, 400, 500} == set(struck[0].values())


async def test_chaos_with_another_seed(caller: Caller, sandbox: Sandbox) -> None:
    """Other orders are struck."""
    struck = []
    for seed in (1, 2):
        sandbox.chaos({Fault.REFUSED: 0.5}, seed=seed)
        struck.append([(await caller.pay(f"r-{number}"))[0] for number in range(40)])
    assert struck[0] != struck[1]


async def test_chaos_and_an_order_sent_again(caller: Caller, sandbox: Sandbox) -> None:
    """A fault of the answer strikes an order once; reads are never struck."""
    sandbox.chaos({Fault.RATE_LIMITED: 1.0}, seconds=0)
    assert [429, 200] == [(await caller.pay())[0], (await caller.pay())[0]]
    assert 200 == (await caller.call("GET", "/api/accounts"))[0]
    sandbox.chaos({})
    assert 200 == (await caller.pay("r-2"))[0]


@pytest.mark.parametrize(("rates", "options"), [({Fault.HTML: 1.5}, {}), ({Fault.HTML: 0.5}, {"seconds": 1})])
async def test_chaos_that_makes_no_sense(sandbox: Sandbox, rates: Any, options: Any) -> None:
    """It is refused."""
    with pytest.raises(ValueError, match=r"probability|option"):
        sandbox.chaos(rates, **options)
