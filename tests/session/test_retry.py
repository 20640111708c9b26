"""Repeats: only what does no harm, within attempts and total, as the service asks, and a pause that everybody keeps."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from session.conftest import Open
from session.wires import HeldTimes, Request, Times, Wire, accept_everything, collection, payout, reply, turns, until

from payments_async import (
    Limits,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    RetryPolicy,
    ServiceFault,
    UnreadableReply,
)
from payments_async._session.session import executor_of
from payments_async._wire import endpoints

ACCOUNT = reply({"code": 0, "data": {"accountNumber": "6", "balance": 12.50}})


def answering(wire: Wire, *answers: bytes | None) -> None:
    """Answer one after the other; the last one for ever."""
    left = list(answers)

    async def answer(_: Request) -> bytes | None:
        return left.pop(0) if len(left) > 1 else left[0]

    wire.answer = answer


@pytest.mark.parametrize("fault", [reply({}, 500), reply({}, 503), reply({}, 408), reply({"code": 0})])
async def test_a_read_is_repeated(opened: Open, wire: Wire, times: Times, fault: bytes) -> None:
    """After a fault it is asked again, after a random part of a growing wait."""
    payments = await opened(wire, retry=RetryPolicy(attempts=4, wait_initial=1.0, wait_max=2.0))
    answering(wire, fault, fault, fault, ACCOUNT)
    assert "12.5" == str((await payments.accounts.get()).balance)
    assert 4 == len(wire.orders)
    assert [True] * 3 == [0 <= wait < most for wait, most in zip(times.slept, (1.0, 2.0, 2.0), strict=True)]


async def test_full_jitter(opened: Open, wire: Wire, times: Times) -> None:
    """The waits are drawn anew each time, evenly from the whole span."""
    payments = await opened(wire, retry=RetryPolicy(attempts=2, wait_initial=1.0))
    answering(wire, reply({}, 503))
    for _ in range(40):
        with pytest.raises(ServiceFault):
            await payments.accounts.get()
    assert len(set(times.slept)) > 35
    assert min(times.slept) < 0.3 < 0.7 < max(times.slept) < 1.0


async def test_attempts(opened: Open, wire: Wire, times: Times) -> None:
    """So many, and no more."""
    payments = await opened(wire, retry=RetryPolicy(attempts=5, wait_initial=0.0))
    answering(wire, reply({}, 500))
    with pytest.raises(ServiceFault):
        await payments.accounts.get()
    assert 5 == len(wire.orders)


async def test_the_total(opened: Open, wire: Wire, times: Times) -> None:
    """No attempt begins after it."""
    payments = await opened(wire, retry=RetryPolicy(attempts=100, total=10.0))
    answering(wire, reply({}, 503, Retry_After="4"))
    with pytest.raises(ServiceFault):
        await payments.accounts.get()
    assert (3, [4.0, 4.0]) == (len(wire.orders), times.slept)


async def test_the_wait_for_a_place_is_not_part_of_the_total(opened: Open, wire: Wire) -> None:
    """A read that queued for long is repeated as often as any other."""
    times = HeldTimes()
    payments = await opened(
        wire,
        limits=Limits(rate=0.01),
        retry=RetryPolicy(attempts=2, total=10.0, wait_initial=0.0),
        clock=times.clock,
        sleep=times.sleep,
    )
    answering(wire, ACCOUNT, reply({}, 503), ACCOUNT)
    calls = [asyncio.ensure_future(payments.accounts.get()) for _ in range(2)]
    for _ in range(4):
        await turns()
        await times.advance(100.0)
    await asyncio.gather(*calls)
    assert 3 == len(wire.orders)


@pytest.mark.parametrize("money", [True, False])
@pytest.mark.parametrize("fault", [None, reply({}, 503), reply({}, 429, Retry_After="1"), reply({}, 401)])
async def test_one_attempt(opened: Open, wire: Wire, fault: bytes | None, money: bool, times: Times) -> None:
    """It makes exactly one try, and does not wait."""
    payments = await opened(wire)
    await payments.log_in()
    answering(wire, fault)
    once = RetryPolicy(attempts=1)
    with pytest.raises(PaymentsError):
        await (payments.payouts.send(payout(), retry=once) if money else _get(payments, once))
    assert ([], 1) == (times.slept, wire.logins)
    assert len(wire.orders) <= (1 if money or fault else 2)  # aiohttp repeats a GET on a broken connection


async def test_a_number_is_no_policy(opened: Open, wire: Wire) -> None:
    """A mistake of the programmer is told as one, and nothing is sent."""
    payments = await opened(wire)
    wrong: Any = 3
    for call in (
        lambda: payments.payouts.send(payout(), retry=wrong),
        lambda: payments.collections.request(collection(), retry=wrong),
    ):
        with pytest.raises(TypeError, match=r"^retry: expected RetryPolicy\(attempts=\.\.\.\), not int$"):
            await call()
    assert [] == wire.orders


def _get(payments: Any, retry: RetryPolicy) -> Any:
    return executor_of(payments).execute(endpoints.get_account(payments.dialect), retry=retry)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_repeated(opened: Open, wire: Wire, status: int) -> None:
    """It would be answered the same."""
    payments = await opened(wire)
    answering(wire, reply({}, status, Location="/"))
    with pytest.raises(ServiceFault):
        await payments.accounts.get()
    assert 1 == len(wire.orders)


async def test_a_payout_is_not_repeated(opened: Open, wire: Wire) -> None:
    """However often the policy would."""
    payments = await opened(wire, retry=RetryPolicy(attempts=9))
    answering(wire, reply({}, 503, Retry_After="1"))
    with pytest.raises(OutcomeUnknown, match="never send it again"):
        await payments.payouts.send(payout())
    assert 1 == len(wire.orders)


# --- 429 --------------------------------------------------------------------------------------------------------------


async def test_retry_after_in_seconds(opened: Open, wire: Wire, times: Times) -> None:
    """It is waited for in full, once."""
    payments = await opened(wire)
    answering(wire, reply({}, 429, Retry_After="7"), reply({"code": 0, "data": {"transactionId": "t"}}))
    await payments.payouts.send(payout())
    assert [7.0] == times.slept


async def test_retry_after_as_a_date(opened: Open, wire: Wire, times: Times) -> None:
    """It is as good as seconds; one in the past is no wait."""
    payments = await opened(wire)
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(days=20), usegmt=True)
    answering(wire, reply({}, 429, Retry_After=soon), ACCOUNT)
    await payments.accounts.get()
    assert 17 < times.slept.pop() <= 20
    answering(wire, reply({}, 429, Retry_After=past), ACCOUNT)
    await payments.accounts.get()
    assert not times.slept


@pytest.mark.parametrize("text", ["soon", "-5", "1e9", "nan", "", "9" * 400, "Mon, 99 Foo 2026 99:99:99 GMT", "١٢"])
async def test_retry_after_that_is_none(opened: Open, wire: Wire, times: Times, text: str) -> None:
    """A wait of our own."""
    payments = await opened(wire, retry=RetryPolicy(attempts=2, wait_initial=0.5))
    answering(wire, reply({}, 429, Retry_After=text), ACCOUNT)
    await payments.accounts.get()
    assert sum(times.slept) <= 1.0


async def test_everybody_waits(opened: Open, wire: Wire) -> None:
    """A 429 to one is a pause for all: nothing arrives before it is over, and then everything."""
    times = HeldTimes()
    payments = await opened(wire, clock=times.clock, sleep=times.sleep)
    await payments.log_in()
    answering(wire, reply({}, 429, Retry_After="10"))
    first = asyncio.ensure_future(payments.payouts.send(payout("first")))
    await until(lambda: times.slept)
    wire.answer = accept_everything
    others = [asyncio.ensure_future(payments.payouts.send(payout(f"r-{n}"))) for n in range(5)]
    await turns()
    await times.advance(9.9)
    assert 1 == len(wire.orders)
    await times.advance(0.2)
    await asyncio.gather(first, *others)
    assert 7 == len(wire.orders)


async def test_patience_that_ends(opened: Open, wire: Wire, times: Times) -> None:
    """NotSent, with the pause the service asked for."""
    payments = await opened(wire, retry=RetryPolicy(attempts=5, total=10.0))
    answering(wire, reply({}, 429, Retry_After="60"))
    with pytest.raises(NotSent) as caught:
        await payments.payouts.send(payout())
    assert (429, 60.0, 1, []) == (caught.value.status, caught.value.retry_after, len(wire.orders), times.slept)
    with pytest.raises(NotSent, match="lasts 60 s more") as caught:
        await payments.payouts.send(payout("r-2"))
    assert (429, 60.0, 1, "r-2") == (
        caught.value.status, caught.value.retry_after, len(wire.orders), caught.value.request_id,
    )  # fmt: skip
    with pytest.raises(ServiceFault, match="lasts 60 s more"):
        await payments.accounts.get()
    assert not payments.unsettled


async def test_a_pause_is_not_prolonged_by_asking(opened: Open, wire: Wire, times: Times) -> None:
    """Calls that are turned away here, at once, do not push its end along."""
    payments = await opened(wire, retry=RetryPolicy(attempts=1, total=1.0))
    answering(wire, reply({}, 429, Retry_After="60"))
    for number in range(7):
        with pytest.raises(NotSent):
            await payments.payouts.send(payout(f"r-{number}"))
        times.now += 10.0
    assert 2 == len(wire.orders)


async def test_a_pause_ends_although_many_ask(opened: Open, wire: Wire) -> None:
    """Not even by the moments that asking takes is it prolonged."""
    now = 5000.0

    def ticking() -> float:
        nonlocal now
        now += 0.01
        return now

    payments = await opened(wire, retry=RetryPolicy(attempts=2, total=1.0), clock=ticking)
    await payments.log_in()
    answering(wire, reply({}, 429, Retry_After="10"))
    number, begun = 0, now
    while len(wire.orders) < 2 and now < begun + 100:
        number += 1
        with pytest.raises(NotSent):
            await payments.payouts.send(payout(f"r-{number}"))
    assert begun + 10 < now < begun + 11


async def test_a_huge_retry_after(opened: Open, wire: Wire) -> None:
    """It hangs nobody, not even who waited for a place when it came; and it is not believed for ever."""
    times = HeldTimes()
    payments = await opened(wire, limits=Limits(concurrency=1), clock=times.clock, sleep=times.sleep)
    await payments.log_in()
    answering(wire, reply({}, 429, Retry_After="99999999"))
    calls = [asyncio.ensure_future(payments.payouts.send(payout(f"r-{n}"))) for n in range(20)]
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert ({NotSent}, 1) == ({type(outcome) for outcome in outcomes}, len(wire.orders))
    wire.answer = accept_everything
    await times.advance(3600.0)
    await payments.payouts.send(payout("later"))


async def test_a_429_that_stays(opened: Open, wire: Wire) -> None:
    """A read that stays there is a fault of the service, with its status."""
    payments = await opened(wire)
    answering(wire, reply({}, 429))
    with pytest.raises(ServiceFault) as caught:
        await payments.accounts.get()
    assert (429, 2) == (caught.value.status, len(wire.orders))


async def test_an_unreadable_answer(opened: Open, wire: Wire) -> None:
    """A read is repeated, and tells what it saw."""
    payments = await opened(wire)
    answering(wire, reply([]))
    with pytest.raises(UnreadableReply):
        await payments.accounts.get()
    assert 2 == len(wire.orders)


@pytest.mark.parametrize(
    "change", [{"attempts": 0}, {"total": -1.0}, {"wait_initial": float("nan")}, {"wait_max": -0.1}]
)
def test_a_policy_that_cannot_be(change: dict[str, Any]) -> None:
    """The setting is named."""
    with pytest.raises(ValueError, match=f"^{next(iter(change))}: "):
        RetryPolicy(**change)


async def test_a_pause_told_with_http_200(opened: Open, wire: Wire, times: Times) -> None:
    """A code of 429 is a pause for all, as the status is, and the order is sent again after it."""
    answers = [reply({"code": 429, "message": "slow down", "data": None}, 200, Retry_After="3"), None]

    async def answer(request: Request) -> bytes | None:
        return answers.pop(0) or await accept_everything(request)

    wire.answer = answer
    payments = await opened(wire)
    assert "t-r-1" == (await payments.payouts.send(payout())).transaction_id
    assert (2, [3.0]) == (len(wire.orders), times.slept)


@pytest.mark.parametrize("status", [429, 401, 400])
async def test_a_refusal_beside_an_acceptance(opened: Open, wire: Wire, status: int) -> None:
    """It proves that the order was read: nothing is sent again, and its transaction is carried."""
    payments = await opened(wire, retry=RetryPolicy(attempts=5))
    data = {"requestId": "r-1", "transactionId": "t-1", "status": "PROCESSING"}
    answering(wire, reply({"code": 0, "status": "success", "data": data}, status))
    with pytest.raises(OutcomeUnknown) as caught:
        await payments.payouts.send(payout())
    assert ("t-1", 1, {"r-1"}) == (caught.value.transaction_id, len(wire.orders), payments.unsettled)
