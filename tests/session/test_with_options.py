"""A session with other options for some calls: what it shares with the one it was made from, and what is its own."""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from bulk.worlds import BATCH, payouts
from session.conftest import Open
from session.test_known_orders import Held, cut
from session.wires import PAYOUTS, SECRET, Request, Times, Wire, accepted, collection, payout, reply, turns, until

from payments_async import (
    BankAccount,
    Dialect,
    InvalidOrder,
    Limits,
    NotSent,
    OutcomeUnknown,
    PaymentsSession,
    PayoutOrder,
    RetryPolicy,
    ServiceFault,
)
from payments_async.bulk import run_batch
from payments_async.journal import SqliteJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing

SHORT = 1.0  # long enough to log in and to send, on any machine
PLAIN = Dialect()
BY_NAME = Dialect(bank_code_keys=("bankName",), empty_members="null", correlation_header="X-Correlation-ID")


def transfer(request_id: str = "r-1", **changes: Any) -> PayoutOrder:
    """A bank transfer, which dialects spell differently."""
    return payout(request_id, destination=BankAccount("00417730011982", "BANK01"), **changes)


def bank_keys(request: Request) -> set[str]:
    """Under which keys a request names the bank."""
    return set(json.loads(request.body)["beneficiary"]["data"]) & {"bankName", "bankCode"}


async def show_nothing(request: Request) -> bytes | None:
    """Take every order, and show none."""
    if request.method == "GET":
        return reply({"code": 0, "status": "success", "data": {"collection": [], "totalCount": 0}})
    return accepted(request.request_id)


async def test_one_login_for_all(payments: PaymentsSession, wire: Wire) -> None:
    """Whoever needs a token first logs in, and a token that is refused is renewed once for all."""
    several = [payments, payments.with_options(timeout=30.0), payments.with_options(dialect=BY_NAME)]
    await asyncio.gather(*(one.payouts.send(payout(f"r-{number}")) for number, one in enumerate(several)))
    assert (1, 3, 1) == (wire.logins, len(wire.orders), wire.connections - 2)
    refused = {"token-1"}

    async def refuse_old(request: Request) -> bytes | None:
        is_old = request.headers["authorization"].split()[1] in refused
        return reply({"message": "expired"}, 401) if is_old else await Wire().answer(request)

    wire.answer = refuse_old
    for number, one in enumerate(several, 10):
        await one.payouts.send(payout(f"r-{number}"))
    assert (2, "Token token-2") == (wire.logins, wire.orders[-1].headers["authorization"])


@pytest.mark.parametrize("dialect", [None, BY_NAME])
@pytest.mark.parametrize("is_childs", [False, True])
async def test_an_order_is_sent_once_by_whichever(
    payments: PaymentsSession, wire: Wire, dialect: Dialect | None, is_childs: bool
) -> None:
    """Whoever asks again gets its acceptance, in whatever dialect; another order under its id is refused."""
    child = payments.with_options(timeout=30.0, dialect=dialect)
    grandchild = child.with_options(retry=RetryPolicy(attempts=1), dialect=Dialect(bank_code_keys=("bankCode",)))
    family = [payments, child, grandchild]
    first = await family[is_childs].payouts.send(transfer())
    assert [first] * 3 == [await one.payouts.send(transfer()) for one in family]
    for one in family:
        assert one.knows("r-1")
        with pytest.raises(InvalidOrder, match="another order under the same request id"):
            await one.payouts.send(transfer(amount=1501))
    assert 1 == len(wire.orders)


async def test_a_collection_is_requested_once_by_whichever(payments: PaymentsSession, wire: Wire) -> None:
    """As a payout is."""
    first = await payments.with_options(dialect=BY_NAME).collections.request(collection())
    assert (first, 1) == (await payments.collections.request(collection()), len(wire.orders))


@pytest.mark.parametrize("is_childs", [False, True])
async def test_an_order_under_way_is_waited_for_by_whichever(
    payments: PaymentsSession, wire: Wire, is_childs: bool
) -> None:
    """They are one exchange, though the two write it in different dialects."""
    family = [payments, payments.with_options(dialect=BY_NAME)]
    wire.answer = held = Held()
    first = asyncio.ensure_future(family[is_childs].payouts.send(transfer()))
    await until(lambda: wire.orders)
    second = asyncio.ensure_future(family[not is_childs].payouts.send(transfer()))
    await turns()
    held.release.set()
    assert (await first, 1) == (await second, len(wire.orders))


@pytest.mark.parametrize("is_childs", [False, True])
async def test_an_unknown_outcome_is_unknown_to_all(payments: PaymentsSession, wire: Wire, is_childs: bool) -> None:
    """Nobody sends it again, and all of them count it as unsettled."""
    family = [payments, payments.with_options(dialect=BY_NAME)]
    wire.answer = cut
    with pytest.raises(OutcomeUnknown):
        await family[is_childs].payouts.send(transfer())
    for one in family:
        assert {"r-1"} == one.unsettled
        with pytest.raises(OutcomeUnknown, match="not sent again"):
            await one.payouts.send(transfer())
        with pytest.raises(InvalidOrder):
            await one.payouts.send(transfer(amount=1501))
    assert 1 == len(wire.orders)


async def test_what_a_loop_of_the_child_leaves_is_undelivered_in_the_session(
    payments: PaymentsSession, wire: Wire
) -> None:
    """And is taken out by whichever, once."""
    child = payments.with_options(timeout=30.0)
    async with AsyncExitStack() as stack:
        outcomes = child.payouts.send_many([payout(f"r-{number}") for number in range(3)], concurrency=3)
        stack.push_async_callback(outcomes.aclose)
        async for _ in outcomes:
            await until(lambda: len(payments.undelivered) == 2)
            break
    assert (2, 2) == (len(payments.undelivered), len(child.take_undelivered()))
    assert {} == payments.undelivered


@pytest.mark.parametrize("timeout", [SHORT, aiohttp.ClientTimeout(total=SHORT)])
async def test_the_timeout_is_of_the_childs_calls_alone(
    payments: PaymentsSession, wire: Wire, timeout: aiohttp.ClientTimeout | float
) -> None:
    """Who is less patient learns that the outcome is unknown, while the other goes on waiting."""
    await payments.log_in()
    wire.answer = held = Held()
    patient = asyncio.ensure_future(payments.payouts.send(payout()))
    await until(lambda: wire.orders)
    hasty = payments.with_options(timeout=timeout)
    calls = [
        one.payouts.send(payout(f"r-{n}")) for n, one in enumerate((hasty, hasty.with_options(dialect=BY_NAME)), 2)
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [True, True] == [isinstance(one, OutcomeUnknown) and "in time" in one.message for one in outcomes]
    held.release.set()
    assert "t-r-1" == (await patient).transaction_id
    assert {"r-2", "r-3"} == payments.unsettled


async def test_a_timeout_in_seconds_of_the_session_itself(opened: Open, wire: Wire) -> None:
    """It is that of the whole exchange; a child may be more patient."""
    payments = await opened(wire, timeout=SHORT)
    wire.answer = held = Held()
    with pytest.raises(OutcomeUnknown, match="in time"):
        await payments.payouts.send(payout())
    patient = asyncio.ensure_future(payments.with_options(timeout=60).payouts.send(payout("r-2")))
    await until(lambda: len(wire.orders) == 2)
    held.release.set()
    assert "t-r-2" == (await patient).transaction_id


async def test_the_retries_are_of_the_childs_calls_alone(opened: Open, wire: Wire) -> None:
    """What a call says for itself counts more."""
    payments = await opened(wire, retry=RetryPolicy(attempts=2, wait_initial=0.5))
    patient = payments.with_options(retry=RetryPolicy(attempts=4, wait_initial=0.5))

    async def fail(_: Request) -> bytes | None:
        return reply({"message": "busy"}, 503)

    wire.answer = fail
    tries = []
    for one in (payments, patient, patient.with_options(timeout=30.0)):
        begun = len(wire.orders)
        with pytest.raises(ServiceFault):
            await one.accounts.get()
        tries.append(len(wire.orders) - begun)
    assert [2, 4, 4] == tries


async def test_the_dialect_is_of_the_childs_calls_alone(payments: PaymentsSession, wire: Wire) -> None:
    """Each writes its own requests; the login and its path stay those of the session."""
    child = payments.with_options(dialect=Dialect(bank_code_keys=("bankName",), api_prefix=""))
    await child.payouts.send(transfer("r-1"))
    await payments.payouts.send(transfer("r-2"))
    await child.with_options(dialect=PLAIN).payouts.send(transfer("r-3"))
    assert [{"bankName"}, {"bankName", "bankCode"}, {"bankName", "bankCode"}] == list(map(bank_keys, wire.orders))
    assert [False, True, True] == [request.path.startswith("/api/") for request in wire.orders]
    assert 1 == wire.logins


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorization_scheme", "auto"),
        ("include_refresh_token", False),
        ("refresh_path", "/auth/refresh"),
        ("token_lifetime", 60.0),
    ],
)
async def test_what_concerns_the_login_cannot_differ(payments: PaymentsSession, name: str, value: Any) -> None:
    """It is refused by the name of its field."""
    with pytest.raises(ValueError, match=rf"dialect\.{name}: .*login.*open a session for it"):
        payments.with_options(dialect=Dialect(**{name: value}))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"timeout": "5"}, TypeError, "timeout: expected seconds, or aiohttp.ClientTimeout"),
        ({"timeout": True}, TypeError, "timeout: expected seconds"),
        ({"timeout": 0}, ValueError, "timeout: "),
        ({"timeout": float("nan")}, ValueError, "timeout: "),
        ({"timeout": aiohttp.ClientTimeout(total=-1)}, ValueError, "timeout.total: "),
        ({"retry": 3}, TypeError, "retry: expected RetryPolicy"),
        ({"dialect": {"api_prefix": ""}}, TypeError, "dialect: expected Dialect"),
    ],
)
async def test_options_that_cannot_be_right(
    payments: PaymentsSession, options: Any, error: type[Exception], words: str
) -> None:
    """They are refused where they are named, by their name."""
    with pytest.raises(error, match=words):
        payments.with_options(**options)


async def test_closing_waits_for_the_childs_calls(wire: Wire, times: Times) -> None:
    """And neither takes a further one, with the same words."""
    payments = PaymentsSession(wire.base_url, SECRET, testing=Testing(clock=times.clock, sleep=times.sleep))
    child = payments.with_options(timeout=30.0)
    with pytest.raises(RuntimeError, match="is not open"):
        await child.payouts.send(payout())
    async with payments:
        wire.answer = held = Held()
        call = asyncio.ensure_future(child.payouts.send(payout()))
        await until(lambda: wire.orders)
        closing = asyncio.ensure_future(payments.aclose())
        await turns()
        assert not closing.done()
        held.release.set()
        assert "t-r-1" == (await call).transaction_id
        await closing
    for one in (payments, child, child.with_options(dialect=BY_NAME)):
        with pytest.raises(RuntimeError, match="this session is closed; make a new PaymentsSession"):
            await one.payouts.send(payout("r-2"))
    assert 1 == len(wire.orders)


async def test_only_the_session_itself_is_opened_and_closed(payments: PaymentsSession) -> None:
    """Whoever closed a child would close it for everybody."""
    child = payments.with_options(timeout=30.0)
    with pytest.raises(RuntimeError, match="is closed with the session that it was made from"):
        await child.with_options().aclose()
    with pytest.raises(RuntimeError, match="is opened with the session that it was made from"):
        async with child:
            pass
    assert "t-r-1" == (await child.payouts.send(payout())).transaction_id


async def test_limits_and_pauses_are_those_of_all(opened: Open, wire: Wire, times: Times) -> None:
    """A child has no place of its own, and waits when the service has asked another for a pause."""
    payments = await opened(wire, limits=Limits(concurrency=1))
    child = payments.with_options(timeout=30.0, retry=RetryPolicy(attempts=1))
    wire.answer = held = Held()
    first = asyncio.ensure_future(payments.payouts.send(payout("r-1")))
    await until(lambda: wire.orders)
    second = asyncio.ensure_future(child.payouts.send(payout("r-2")))
    await turns()
    assert 1 == len(wire.orders)
    held.release.set()
    await asyncio.gather(first, second)

    async def pause(_: Request) -> bytes | None:
        return reply({"message": "slow down"}, 429, Retry_After="7")

    honest, wire.answer = Wire().answer, pause
    with pytest.raises(NotSent):
        await child.payouts.send(payout("r-3"))
    wire.answer, before = honest, times.now
    await payments.payouts.send(payout("r-4"))
    assert 7.0 == times.now - before


async def test_an_outbox_and_a_batch_of_a_child(
    opened: Open, wire: Wire, sandbox: Sandbox, journal: SqliteJournal, tmp_path: Path
) -> None:
    """They write in its dialect, their calls count for the session, and closing that ends the outbox first."""
    payments = await opened(wire, clock=time.monotonic, sleep=asyncio.sleep)
    wire.answer = show_nothing
    child = payments.with_options(dialect=Dialect(bank_code_keys=("bankName",)))
    async with Outbox(child, journal) as outbox:
        entry = await outbox.pay(transfer())
        await payments.aclose()
        with pytest.raises(RuntimeError, match="this outbox is not open"):
            await outbox.pay(transfer("r-2"))
    posted = [bank_keys(request) for request in wire.orders if request.method == "POST"]
    assert ("t-r-1", [{"bankName"}]) == (entry.transaction_id, posted)
    payments = await opened(sandbox, clock=Times().clock)
    sandbox.script(Fault.LOST_AFTER, on="payout")
    async with SqliteJournal(tmp_path / "batch.db") as journal:
        await run_batch(payments.with_options(retry=RetryPolicy(attempts=1)), journal, BATCH, payouts(20))
    assert (1, 20, []) == (len(payments.unsettled), len(sandbox.ledger), sandbox.duplicates())


async def test_a_class_of_ones_own(wire: Wire) -> None:
    """What is made of it is of its class, and has what it has."""

    class Ours(PaymentsSession):
        tenant = "nobody"

    async with Ours(wire.base_url, SECRET) as payments:
        payments.tenant = "somebody"
        child = payments.with_options(timeout=5.0)
        assert (Ours, "somebody", Decimal(1500)) == (type(child), child.tenant, payout().amount)
        await child.payouts.send(payout())
    assert PAYOUTS == wire.orders[0].path


async def test_timers_of_children_do_not_outlive_the_session(wire: Wire) -> None:
    """A child for every call leaves no timer behind once the session is closed."""
    loop = asyncio.get_running_loop()
    async with PaymentsSession(wire.base_url, SECRET) as payments:
        for number in range(20):
            await payments.with_options(timeout=3600.0 + number).payouts.send(payout(f"r-{number}"))
    due: list[asyncio.TimerHandle] = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    assert [] == [timer for timer in due if timer.when() > loop.time() + 1800]


async def test_further_headers_of_some_calls(payments: PaymentsSession, wire: Wire) -> None:
    """They come beside ours, on orders and reads, from one derived session to the next; the login goes without them."""
    traced = payments.with_options(headers={"X-Trace": "t-1"})
    both = traced.with_options(headers={"X-Shop": "kampala"}, timeout=30.0)
    for number, one in enumerate((payments, traced, both)):
        await one.payouts.send(payout(f"r-{number}"))
    seen = [(r.headers.get("x-trace"), r.headers.get("x-shop"), r.headers["authorization"]) for r in wire.orders]
    assert [(None, None), ("t-1", None), ("t-1", "kampala")] == [pair[:2] for pair in seen]
    assert 1 == len({authorization for *_, authorization in seen})
    assert 1 == wire.logins
    assert not any("x-trace" in request.headers for request in wire.requests if "login" in request.path)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Authorization": "Token x"}, "written by the package"),
        ({"content-length": "1"}, "written by the package"),
        ({"Expect": "100-continue"}, "written by the package"),
        ({"X Trace": "1"}, "must be a token"),
        ({"X-Trace": "1\r\nHost: elsewhere"}, "printable"),
        ({"X-Trace": " 1"}, "printable"),
    ],
)
def test_headers_that_cannot_be_right(payments: PaymentsSession, headers: dict[str, str], words: str) -> None:
    """Those that decide how an order goes out are not the caller's, and no value is quoted."""
    with pytest.raises(ValueError, match=words) as refused:
        payments.with_options(headers=headers)
    assert "elsewhere" not in str(refused.value)


async def test_another_proxy_for_some_calls(payments: PaymentsSession, wire: Wire) -> None:
    """It is checked as that of the session; where it does not answer, nothing left."""
    for wrong in ("proxy.example:3128", "ftp://127.0.0.1"):
        with pytest.raises(ValueError, match="proxy: must begin with"):
            payments.with_options(proxy=wrong)
    with pytest.raises(ValueError, match="must not leave this machine"):
        payments.with_options(proxy="http://proxy.example:3128")
    await payments.log_in()
    through = payments.with_options(proxy="http://127.0.0.1:1", retry=RetryPolicy(attempts=1))
    with pytest.raises(NotSent):
        await through.payouts.send(payout("r-1"))
    await payments.payouts.send(payout("r-1"))
    assert ["r-1"] == [request.request_id for request in wire.orders]


async def test_further_parameters_of_the_query(payments: PaymentsSession, wire: Wire) -> None:
    """They stand in each request but logins; a parameter that a call has by itself stays as it is."""

    async def answer(request: Request) -> bytes | None:
        if "payouts" in request.path:
            return accepted(request.request_id)
        return reply({"code": 0, "data": {"collection": []}})

    wire.answer = answer
    traced = payments.with_options(query={"trace": "a b"}).with_options(query={"pageNumber": "7", "shop": "1"})
    await traced.payouts.send(payout())
    await traced.transactions.page(number=2, size=10)
    first, second = [request.path.partition("?")[2] for request in wire.orders]
    assert "trace=a+b&pageNumber=7&shop=1" == first
    assert {"trace": ["a b"], "shop": ["1"]}.items() <= parse_qs(second).items()
    assert ["2"] == parse_qs(second)["pageNumber"]
    with pytest.raises(TypeError, match="query: names and values must be text"):
        payments.with_options(query={"page": 1})  # type: ignore[dict-item]
