"""One login for all tasks: when there is none, when it grows old, when it is refused, and when it fails."""

import asyncio
from typing import Any

import pytest
from session.conftest import Open, OpenSandbox
from session.wires import HeldTimes, Request, Times, Wire, accept_everything, accepted, payout, reply, turns, until

from payments_async import (
    AuthenticationFailed,
    Dialect,
    Limits,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    PaymentsSession,
    Rejected,
    RetryPolicy,
    ServiceFault,
)
from payments_async.sandbox import Fault, Sandbox

REFUSED = reply({"success": False, "message": "wrong password"}, 401)


async def send(payments: PaymentsSession, count: int) -> list[Any]:
    """Send so many payouts at once; outcomes, exceptions included."""
    calls = (payments.payouts.send(payout(f"r-{number}")) for number in range(count))
    return await asyncio.gather(*calls, return_exceptions=True)


def taking(*good: str) -> Any:
    """An answer to orders that takes these values of the Authorization header only."""

    async def answer(request: Request) -> bytes | None:
        if request.headers.get("authorization") in good:
            return await accept_everything(request)
        return reply({"code": 9, "message": "Unauthorized"}, 401)

    return answer


def held(wire: Wire, answer: Any = None) -> asyncio.Event:
    """Hold all logins until the event is set."""
    event = asyncio.Event()

    async def late(request: Request) -> bytes | None:
        await event.wait()
        return await (answer or wire._honest_login)(request)

    wire.login = late
    return event


def failing(wire: Wire, answer: bytes | None) -> None:
    """Let every login be answered so."""

    async def fail(_: Request) -> bytes | None:
        return answer

    wire.login = fail


# --- single flight ----------------------------------------------------------------------------------------------------


async def test_the_first_fifty_tasks(payments: PaymentsSession, wire: Wire) -> None:
    """They share one login."""
    outcomes = await send(payments, 50)
    assert (1, 50, set()) == (wire.logins, len(wire.orders), {o for o in outcomes if isinstance(o, Exception)})


async def test_fifty_tasks_at_a_401(opened: Open, sandbox: Sandbox) -> None:
    """They cause one login, and everyone is paid once."""
    payments = await opened(sandbox)
    await payments.log_in()
    sandbox.script(Fault.TOKEN_REVOKED)
    outcomes = await send(payments, 50)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert (2, 50, []) == (sandbox.logins, len(sandbox.ledger), sandbox.duplicates())


async def test_a_leader_that_is_cancelled(payments: PaymentsSession, wire: Wire) -> None:
    """The next one logs in; nobody else notices."""
    event = held(wire)
    leader = asyncio.ensure_future(payments.payouts.send(payout("leader")))
    await until(lambda: wire.logins)
    others = asyncio.ensure_future(send(payments, 5))
    await turns()
    leader.cancel()
    await until(lambda: wire.logins == 2)
    event.set()
    outcomes = await others
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert leader.cancelled()
    assert (2, 5, frozenset()) == (wire.logins, len(wire.orders), payments.unsettled)


@pytest.mark.parametrize("late_ones", [0, 10])
@pytest.mark.parametrize(
    ("answer", "kind"), [(REFUSED, AuthenticationFailed), (None, NotSent), (reply({}, 503), NotSent)]
)
async def test_a_login_that_fails(
    opened: Open, wire: Wire, answer: bytes | None, kind: type[PaymentsError], late_ones: int
) -> None:
    """All who wait share the one attempt, those who came while it was under way too; each has an error of its own."""

    async def fail(_: Request) -> bytes | None:
        return answer

    payments = await opened(wire, retry=RetryPolicy(attempts=1))
    event = held(wire, fail)
    first = asyncio.ensure_future(send(payments, 10))
    await until(lambda: wire.logins)
    calls = [asyncio.ensure_future(payments.payouts.send(payout(f"late-{n}"))) for n in range(late_ones)]
    await turns()
    event.set()
    outcomes = await first + await asyncio.gather(*calls, return_exceptions=True)
    assert {kind} == {type(outcome) for outcome in outcomes}
    assert 10 + late_ones == len({outcome.request_id for outcome in outcomes}) == len({id(o) for o in outcomes})
    assert (1, 0, frozenset()) == (wire.logins, len(wire.orders), payments.unsettled)


async def test_a_failure_shared_with_one_who_has_no_order(opened: Open, wire: Wire) -> None:
    """What is shared carries nobody's request id."""

    async def fail(_: Request) -> bytes | None:
        return REFUSED

    payments = await opened(wire, retry=RetryPolicy(attempts=1))
    event = held(wire, fail)
    order = asyncio.ensure_future(payments.payouts.send(payout()))
    await until(lambda: wire.logins)
    plain = asyncio.ensure_future(payments.log_in())
    await turns()
    event.set()
    errors: list[Any] = list(await asyncio.gather(order, plain, return_exceptions=True))
    assert (["r-1", None], 1) == ([error.request_id for error in errors], wire.logins)


async def test_a_login_after_one_that_failed(opened: Open, wire: Wire) -> None:
    """A later call tries anew, and the error it never saw carries nobody else's request id."""
    payments = await opened(wire, retry=RetryPolicy(attempts=1))
    failing(wire, REFUSED)
    await send(payments, 3)
    with pytest.raises(AuthenticationFailed) as caught:
        await payments.log_in()
    assert caught.value.request_id is None
    wire.login = wire._honest_login
    await payments.payouts.send(payout())


# --- renewal ----------------------------------------------------------------------------------------------------------


async def test_renewal_before_the_hour(opened: Open, wire: Wire, times: Times) -> None:
    """With a margin of 5 to 7 minutes, so that the machines of a fleet do not renew together."""
    payments = await opened(wire)
    await payments.log_in()
    times.now += 3600 - 300 - 120 - 1
    await payments.log_in()
    assert 1 == wire.logins
    times.now += 122
    await payments.log_in()
    assert 2 == wire.logins


async def test_others_keep_the_old_token_meanwhile(opened: Open, wire: Wire, times: Times) -> None:
    """Nobody waits for a renewal but the one who makes it."""
    payments = await opened(wire)
    await payments.log_in()
    times.now += 3500
    event = held(wire)
    leader = asyncio.ensure_future(payments.payouts.send(payout("leader")))
    await until(lambda: wire.logins == 2)
    await send(payments, 5)
    assert {"Token token-1"} == {request.headers["authorization"] for request in wire.orders}
    event.set()
    await leader
    assert "Token token-2" == wire.orders[-1].headers["authorization"]


@pytest.mark.parametrize("answer", [None, REFUSED, reply({}, 500), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
async def test_a_renewal_that_fails(opened: Open, wire: Wire, times: Times, answer: bytes | None) -> None:
    """The old token serves as long as it lives; the next try comes a little later."""
    payments = await opened(wire)
    await payments.log_in()
    failing(wire, answer)
    times.now += 3500
    await send(payments, 5)
    assert (2, 5) == (wire.logins, len(wire.orders))
    wire.login = wire._honest_login
    times.now += 6
    await payments.payouts.send(payout("later"))
    assert (3, "Token token-2") == (wire.logins, wire.orders[-1].headers["authorization"])


async def test_a_renewal_that_fails_after_the_old_token_was_refused(opened: Open, wire: Wire, times: Times) -> None:
    """A token that was refused meanwhile is not taken up again."""
    payments = await opened(wire, retry=RetryPolicy(attempts=1))
    await payments.log_in()
    times.now += 3500

    async def fail(_: Request) -> bytes | None:
        return None

    event = held(wire, fail)
    leader = asyncio.ensure_future(payments.payouts.send(payout("leader")))
    await until(lambda: wire.logins == 2)
    wire.answer = taking()
    with pytest.raises(NotSent):
        await payments.payouts.send(payout("other"))
    event.set()
    with pytest.raises(NotSent):
        await leader
    wire.login, wire.answer = wire._honest_login, taking("Token token-2")
    await payments.payouts.send(payout("later"))


async def test_a_clock_that_jumps(opened: Open, wire: Wire, times: Times) -> None:
    """Forward: a login. Backward: the old token, and a 401 puts it right."""
    payments = await opened(wire)
    await payments.log_in()
    times.now += 10**9
    await payments.payouts.send(payout("r-1"))
    assert 2 == wire.logins
    times.now -= 10**9
    wire.answer = taking("Token token-3")
    await payments.payouts.send(payout("r-2"))
    assert 3 == wire.logins


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_a_late_401_for_an_older_token(payments: PaymentsSession, wire: Wire) -> None:
    """It takes the newer token and causes no login."""
    await payments.log_in()
    event = asyncio.Event()

    async def answer(request: Request) -> bytes | None:
        old = request.headers["authorization"] == "Token token-1"
        if old and request.request_id == "late":
            await event.wait()
        return reply({}, 401) if old else await accept_everything(request)

    wire.answer = answer
    late = asyncio.ensure_future(payments.payouts.send(payout("late")))
    await until(lambda: wire.orders)
    await payments.payouts.send(payout("soon"))
    event.set()
    await late
    assert 2 == wire.logins


async def test_a_fresh_token_that_is_refused(payments: PaymentsSession, wire: Wire) -> None:
    """One login more is tried, not a third; the order is turned away unread, so nothing is unsettled."""
    wire.answer = taking()
    with pytest.raises(AuthenticationFailed) as caught:
        await payments.payouts.send(payout())
    assert (401, "r-1", 2, 2) == (caught.value.status, caught.value.request_id, wire.logins, len(wire.orders))
    assert not payments.unsettled
    wire.answer = accept_everything
    await payments.payouts.send(payout())


async def test_tokens_revoked_again_and_again(payments: PaymentsSession, wire: Wire) -> None:
    """Each time one login puts it right, whatever the answers in between were."""
    refusal = reply({"code": 4, "message": "no"}, 400)
    for number in range(1, 6):
        wire.answer = taking(f"Token token-{number}")
        await payments.payouts.send(payout(f"r-{number}"))

        async def refuse(_: Request) -> bytes | None:
            return refusal

        wire.answer = refuse
        with pytest.raises(PaymentsError):
            await payments.accounts.get()
    assert 5 == wire.logins


async def test_tokens_revoked_between_refusals(payments: PaymentsSession, wire: Wire) -> None:
    """An order refused in the service's words shows that the token was good, so the next 401 is worth a login."""
    for number in range(1, 6):
        good = f"Token token-{number}"

        async def refuse(request: Request, good: str = good) -> bytes | None:
            known = request.headers["authorization"] == good
            return reply({"code": 4, "message": "no"}, 400 if known else 401)

        wire.answer = refuse
        with pytest.raises(Rejected) as caught:
            await payments.payouts.send(payout(f"r-{number}"))
        assert 400 == caught.value.status
    assert 5 == wire.logins


@pytest.mark.parametrize("money", [True, False])
async def test_one_attempt_at_a_stale_token(opened: Open, wire: Wire, money: bool) -> None:
    """It makes one try and tells that the next one logs in: credentials are not to blame."""
    payments = await opened(wire, retry=RetryPolicy(attempts=1))
    await payments.log_in()
    wire.answer = taking("Token token-2")
    with pytest.raises(NotSent if money else ServiceFault, match="the next try logs in"):
        await (payments.payouts.send(payout()) if money else payments.accounts.get())
    assert (1, 1) == (wire.logins, len(wire.orders))
    await payments.payouts.send(payout())


# --- schemes ----------------------------------------------------------------------------------------------------------


async def test_scheme_auto(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """It tries the other scheme once, after a fresh login was refused too, and remembers what worked."""
    sandbox = await opened_sandbox({"accepted_schemes": ("Bearer",)})
    payments = await opened(sandbox, dialect=Dialect(authorization_scheme="auto"), retry=RetryPolicy(attempts=2))
    await payments.payouts.send(payout("r-1"))
    assert 3 == sandbox.logins
    sandbox.script(Fault.TOKEN_REVOKED)
    await payments.payouts.send(payout("r-2"))
    assert (4, 2) == (sandbox.logins, len(sandbox.ledger))


async def test_scheme_auto_with_fifty_tasks(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """Together they find the scheme that works."""
    sandbox = await opened_sandbox({"accepted_schemes": ("Bearer",)})
    payments = await opened(sandbox, dialect=Dialect(authorization_scheme="auto"), retry=RetryPolicy(attempts=3))
    outcomes = await send(payments, 50)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert (3, []) == (sandbox.logins, sandbox.duplicates())


async def test_scheme_auto_where_none_works(opened: Open, wire: Wire) -> None:
    """It gives up, and sends each order no more than three times, always turned away."""
    payments = await opened(wire, dialect=Dialect(authorization_scheme="auto"))
    wire.answer = taking()
    with pytest.raises(AuthenticationFailed):
        await payments.payouts.send(payout())
    assert ["Token token-1", "Token token-2", "Bearer token-3"] == [o.headers["authorization"] for o in wire.orders]


async def test_a_fault_does_not_settle_the_scheme(opened: Open, wire: Wire) -> None:
    """A 503 of something in between says nothing of the scheme."""
    payments = await opened(wire, dialect=Dialect(authorization_scheme="auto"))

    async def down(_: Request) -> bytes | None:
        return reply({}, 503)

    wire.answer = down
    await send(payments, 1)
    wire.answer = taking("Bearer token-3")
    assert (await payments.payouts.send(payout("r-9"))).transaction_id == "t-r-9"


async def test_a_validation_that_wants_a_token(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """The words name the setting, which helps."""
    sandbox = await opened_sandbox({"validation_needs_token": True})
    payments = await opened(sandbox)
    with pytest.raises(AuthenticationFailed, match="validation_authorized=True"):
        await payments.products.validate("MTNAIRTIMEUG_MTNAIRTIMEUG", "0770000017", 1500)
    payments = await opened(sandbox, dialect=Dialect(validation_authorized=True))
    assert (await payments.products.validate("MTNAIRTIMEUG_MTNAIRTIMEUG", "0770000017", 1500)).ok


# --- the refresh call -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "logins"), [(None, 1), (Fault.REFUSED, 2), (Fault.LOST_BEFORE, 2), (Fault.HTML, 2)])
async def test_the_refresh_call(
    opened: Open, opened_sandbox: OpenSandbox, times: Times, fault: Fault | None, logins: int
) -> None:
    """It renews where the dialect names it; a login follows when it fails."""
    sandbox = await opened_sandbox({"refresh_path": "/api/auth/refresh"})
    payments = await opened(sandbox, dialect=Dialect(refresh_path="/auth/refresh"))
    await payments.log_in()
    times.now += 3500
    if fault is not None:
        sandbox.script(fault, on="login")
    await payments.payouts.send(payout())
    assert (logins, 1) == (sandbox.logins, sum(r.path == "/api/auth/refresh" for r in sandbox.requests))


# --- a login that fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", reply({}), reply({"Token": 7}), reply([])]
)
async def test_a_login_nobody_can_read(payments: PaymentsSession, wire: Wire, answer: bytes) -> None:
    """NotSent for money, a fault of the service for reads."""
    failing(wire, answer)
    with pytest.raises(NotSent, match="login"):
        await payments.payouts.send(payout())
    with pytest.raises(ServiceFault, match="login"):
        await payments.accounts.get()


async def test_wrong_credentials(payments: PaymentsSession, wire: Wire) -> None:
    """The service's words, and what to check."""
    failing(wire, REFUSED)
    for call in (payments.payouts.send(payout()), payments.accounts.get(), payments.log_in()):
        with pytest.raises(AuthenticationFailed, match=r"wrong password.* -> check app_key, app_password and user_id"):
            await call
    assert 3 == wire.logins


async def test_an_address_that_is_not_whitelisted(opened: Open, opened_sandbox: OpenSandbox) -> None:
    """It is told as what it may be."""
    payments = await opened(await opened_sandbox(allowed_peers=()))
    with pytest.raises(AuthenticationFailed, match="whitelisted in the portal") as caught:
        await payments.payouts.send(payout())
    assert 403 == caught.value.status


async def test_a_login_turned_away_by_429(opened: Open, wire: Wire, times: Times) -> None:
    """It is waited for as told, then tried again; without patience it is NotSent."""
    answers = [reply({}, 429, Retry_After="7")]

    async def busy(request: Request) -> bytes | None:
        return answers.pop() if answers else await wire._honest_login(request)

    wire.login = busy
    payments = await opened(wire)
    await payments.payouts.send(payout())
    assert (2, [7.0]) == (wire.logins, times.slept)
    impatient = await opened(wire, retry=RetryPolicy(attempts=1))
    answers.append(reply({}, 429, Retry_After="7"))
    with pytest.raises(NotSent) as caught:
        await impatient.payouts.send(payout())
    assert (429, 7.0) == (caught.value.status, caught.value.retry_after)


async def test_a_login_holds_no_more_than_its_own_place(opened: Open, wire: Wire) -> None:
    """With one place, the call that logs in is not in its own way."""
    payments = await opened(wire, limits=Limits(concurrency=1))
    wire.answer = taking("Token token-2")
    outcomes = await send(payments, 5)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]


async def test_a_login_while_others_are_cancelled(opened: Open, wire: Wire) -> None:
    """All places come back: as many calls as there are places get through afterwards."""
    payments = await opened(wire, limits=Limits(concurrency=3), clock=HeldTimes().clock)
    event = held(wire)
    tasks = [asyncio.ensure_future(payments.payouts.send(payout(f"c-{n}"))) for n in range(10)]
    await until(lambda: wire.logins)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    event.set()
    outcomes = await send(payments, 3)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert (3, accepted("r-0")[:8]) == (len(wire.orders), b"HTTP/1.1")


def told(code: object, **more: Any) -> bytes:
    """A refusal with HTTP 200, whose code says what HTTP says with its status."""
    return reply({"code": code, "message": "Unauthorized", "data": None} | more)


@pytest.mark.parametrize("code", [401, "401"])
async def test_an_expired_token_told_with_http_200(opened: Open, wire: Wire, code: object) -> None:
    """It leads to one login for all and to the same orders again, and rejects none of them."""
    payments = await opened(wire)
    await payments.log_in()

    async def answer(request: Request) -> bytes | None:
        if request.headers["authorization"] == "Token token-1":
            return told(code)
        return await accept_everything(request)

    wire.answer = answer
    outcomes = await send(payments, 20)
    assert [f"t-r-{number}" for number in range(20)] == [one.transaction_id for one in outcomes]
    assert 2 == wire.logins


async def test_an_expired_token_told_with_http_200_to_a_read(opened: Open, wire: Wire) -> None:
    """A read logs in again as well."""
    payments = await opened(wire)

    async def answer(request: Request) -> bytes | None:
        good = request.headers["authorization"] == "Token token-2"
        return reply({"code": 0, "data": {"accountNumber": 6, "balance": 5}}) if good else told(401)

    wire.answer = answer
    assert "6" == (await payments.accounts.get()).account_number


async def test_a_token_refused_beside_a_transaction(opened: Open, wire: Wire) -> None:
    """The order may have been carried out: it is not sent again with a new token."""
    data = {"requestId": "r-1", "transactionId": "t-1"}
    for answer in (told(401, data=data), reply({"code": 0, "data": data}, 401)):
        payments, before = await opened(wire), len(wire.orders)

        async def refuse(_: Request, answer: bytes = answer) -> bytes | None:
            return answer

        wire.answer = refuse
        with pytest.raises(OutcomeUnknown) as caught:
            await payments.payouts.send(payout())
        assert ("t-1", 1, {"r-1"}) == (caught.value.transaction_id, len(wire.orders) - before, payments.unsettled)


@pytest.mark.parametrize("code", [500, 503, 429])
async def test_a_login_that_fails_with_http_200(opened: Open, wire: Wire, code: int) -> None:
    """The credentials are not to blame, and nothing was sent."""
    failing(wire, told(code))
    payments = await opened(wire)
    with pytest.raises(NotSent):
        await payments.payouts.send(payout())
