"""`Payments`: one object opens session, journal, outbox and receiver, and closes them, as an application has it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from fastapi import FastAPI
from starlette.applications import Starlette

from payments_async import (
    Beneficiary,
    Dialect,
    Entry,
    MobileMoneyWallet,
    Outbox,
    Payments,
    PaymentsSession,
    PayoutOrder,
    Receiver,
    SqliteJournal,
    State,
)
from payments_async._values.threads import in_thread
from payments_async.ipn import serving
from payments_async.journal import NotCancelled
from payments_async.outbox import HandlerFailure, WorkerSettings
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import VirtualClock

ITEM = "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"
WALLET = MobileMoneyWallet("+256772000017")


def payout(request_id: str = "withdrawal-1") -> PayoutOrder:
    """A payout of a withdrawal."""
    return PayoutOrder(
        request_id=request_id,
        amount=1500,
        product_item_id=ITEM,
        beneficiary=Beneficiary(name="Grace Akello"),
        destination=WALLET,
    )


@pytest.fixture
def service_in_thread() -> Iterator[Sandbox]:
    """A simulated service whose loop is in a thread of its own."""
    with in_thread(service := Sandbox()):
        yield service


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the journal is."""
    return tmp_path / "payments.sqlite"


def local(service: Sandbox, place: Path) -> Payments:
    """Payments that take notifications of this machine."""
    session, journal = PaymentsSession.from_env(service.variables), SqliteJournal(place)
    return Payments(session, journal, senders=["127.0.0.1"])


@pytest.mark.slow(covered=True)
async def test_a_clock_of_the_session_moves_all_of_it(place: Path) -> None:
    """An order that takes two days, and no notification: the outbox looks it up when the clock says so."""
    async with VirtualClock() as clock, Sandbox(clock=clock, processing_delay=2 * 86_400.0) as service:
        journal = SqliteJournal(place, testing=clock.testing)
        clock.watch(journal)
        async with Payments.from_env(service.variables, journal=journal, testing=clock.testing) as payments:
            await payments.put(payout())
            entry = await clock.until(payments.settled("withdrawal-1", timeout=3 * 86_400.0))
    assert State.SUCCESSFUL is entry.state


async def test_the_first_durable_payment(service: Sandbox, place: Path) -> None:
    """One object, opened once, pays through a lost answer, and the notification settles the order."""
    service.script(Fault.LOST_AFTER, on="money")
    payments, told = local(service, place), list[str]()

    @payments.on(State.SUCCESSFUL)
    async def paid(entry: Entry) -> None:
        told.append(entry.request_id)

    async with payments, serving(payments.receiver, port=0) as (host, port):
        service.ipn_url = f"http://{host}:{port}/ipn"
        assert "withdrawal-1" == (await payments.put(payout())).request_id
        assert (await payments.pay(payout())).state in {State.UNKNOWN, State.SUCCESSFUL}
        assert State.SUCCESSFUL is (await payments.settled("withdrawal-1", timeout=60)).state
    assert 1 == service.executions("withdrawal-1")
    assert ["withdrawal-1"] == told


async def test_an_order_that_was_not_sent_can_be_cancelled(service: Sandbox, place: Path) -> None:
    """What is put with a higher number of seconds to wait never leaves."""
    async with Payments.from_env(service.variables, journal=place) as payments:
        await payments.put(payout(), not_before=datetime.now(UTC) + timedelta(hours=1))
        assert State.CANCELLED is (await payments.cancel("withdrawal-1", who="Ada", why="a typo")).state
        await payments.pay(payout("withdrawal-2"))
        with pytest.raises(NotCancelled):
            await payments.cancel("withdrawal-2", who="Ada", why="a typo")
    assert 0 == service.executions("withdrawal-1")


async def test_a_second_run_goes_on_with_the_journal(service: Sandbox, place: Path) -> None:
    """The same order in the next run is the same payment, and its outcome is known."""
    for possible in ((State.ACCEPTED, State.SUCCESSFUL), (State.SUCCESSFUL,)):
        payments = local(service, place)
        async with payments, serving(payments.receiver, port=0) as (host, port):
            service.ipn_url = f"http://{host}:{port}/ipn"
            assert (await payments.pay(payout())).state in possible
            assert State.SUCCESSFUL is (await payments.settled("withdrawal-1", timeout=60)).state
    assert 1 == service.executions("withdrawal-1")


async def test_all_settings_come_from_the_environment(service: Sandbox, place: Path) -> None:
    """Address, credentials and journal are read from variables; what else a session takes is given by name."""
    variables = {**service.variables, "PAYMENTS_JOURNAL": str(place)}
    async with Payments.from_env(variables, dialect=Dialect(ipn_response_code="00")) as payments:
        assert State.ACCEPTED is (await payments.pay(payout())).state
        assert place == payments.journal.path  # type: ignore[attr-defined]
        assert str(place) in repr(payments)
        assert service.base_url in repr(payments)


def test_a_journal_that_is_named_nowhere(service: Sandbox) -> None:
    """The message names the variable and the argument."""
    with pytest.raises(ValueError, match=r"PAYMENTS_JOURNAL; or pass journal='payments.sqlite'"):
        Payments.from_env(service.variables)


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """An ASGI application in a real server, which runs its lifespan; gives its address."""
    settings = uvicorn.Config(app, port=0, proxy_headers=False, log_config=None, access_log=False)
    server = uvicorn.Server(settings)
    running = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


@pytest.mark.parametrize("framework", [Starlette, FastAPI])
async def test_an_application_of_starlettes_kind(framework: Any, service: Sandbox, place: Path) -> None:
    """Its lifespan opens and closes everything; a notification that comes to its path settles an order."""
    payments = local(service, place)
    app = framework(lifespan=payments.lifespan)
    payments.mount(app)
    async with served(app) as address:
        service.ipn_url = f"{address}/ipn"
        await payments.put(payout())
        assert State.SUCCESSFUL is (await payments.settled("withdrawal-1", timeout=60)).state
        assert "withdrawal-1" == (await payments.receiver.wait_for("withdrawal-1", timeout=60)).request_id
    with pytest.raises(RuntimeError, match="not open"):
        await payments.put(payout())


async def test_an_aiohttp_application(service: Sandbox, place: Path) -> None:
    """The same two lines for the other framework."""
    payments, app = local(service, place), web.Application()
    app.cleanup_ctx.append(payments.cleanup_ctx)
    payments.mount(app)
    async with TestClient(TestServer(app)) as client:
        service.ipn_url = str(client.make_url("/ipn"))
        await payments.put(payout())
        assert State.SUCCESSFUL is (await payments.settled("withdrawal-1", timeout=60)).state
        assert "withdrawal-1" == (await payments.receiver.wait_for("withdrawal-1", timeout=60)).request_id


@pytest.mark.parametrize("first", ["session", "journal", "outbox", "receiver"])
async def test_its_parts_may_be_closed_in_any_sequence(first: str, service: Sandbox, place: Path) -> None:
    """A part that is closed by hand lets the others finish; closing everything afterwards is harmless."""
    payments = Payments.from_env(service.variables, journal=place)
    async with payments:
        await payments.pay(payout())
        await getattr(payments, first).aclose()
        await payments.aclose()
        await payments.aclose()
    assert 1 == service.executions("withdrawal-1")


async def test_what_was_opened_is_closed_where_the_rest_cannot_be(service: Sandbox, place: Path) -> None:
    """A session that was open before refuses; the journal that was opened before it is closed again."""
    payments = Payments.from_env(service.variables, journal=place)
    async with payments.session:
        with pytest.raises(RuntimeError, match="opened before"):
            async with payments:
                raise AssertionError
    async with payments.journal:  # it is not open, or this would be refused
        pass


def _strange_receiver(session: PaymentsSession, journal: SqliteJournal) -> Any:
    return Payments(session, journal, receiver=Receiver())


def _strange_outbox(session: PaymentsSession, journal: SqliteJournal) -> Any:
    return Payments(session, journal, outbox=Outbox(session, SqliteJournal("other.sqlite")))


def _strange_session(session: PaymentsSession, journal: SqliteJournal) -> Any:
    return Payments(session, journal, outbox=Outbox(session.with_options(), journal))


def _swapped(session: Any, journal: Any) -> Any:
    return Payments(journal, session)


def _no_journal(session: PaymentsSession, journal: SqliteJournal) -> Any:
    return Payments(session, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "kind", "words"),
    [
        (_strange_receiver, ValueError, "receiver: make it of this journal"),
        (_strange_outbox, ValueError, "outbox: make it of this journal"),
        (_strange_session, ValueError, "outbox: make it of this session"),
        (_swapped, TypeError, r"session: expected a PaymentsSession, .* not SqliteJournal"),
        (_no_journal, TypeError, "journal: expected a journal, the path of its file, or a DSN, not NoneType"),
    ],
)
def test_parts_that_do_not_belong_together(
    made: Callable[[PaymentsSession, SqliteJournal], Any],
    kind: type[Exception],
    words: str,
    place: Path,
) -> None:
    """A mistake is told where the parts are put together, with the argument and the remedy."""
    variables = dict.fromkeys(("PAYMENTS_APP_KEY", "PAYMENTS_APP_PASSWORD", "PAYMENTS_USER_ID"), "x")
    session = PaymentsSession.from_env({**variables, "PAYMENTS_BASE_URL": "https://service.example"})
    with pytest.raises(kind, match=words):
        made(session, SqliteJournal(place))


async def test_parts_with_settings_of_their_own_are_kept(service: Sandbox, place: Path) -> None:
    """An outbox of another name, which pays nothing by itself, stays what it is."""
    session, journal = PaymentsSession.from_env(service.variables), SqliteJournal(place)
    outbox = Outbox(session, journal, "refunds", worker=WorkerSettings(sends=False))
    async with Payments(session, journal, outbox=outbox) as payments:
        assert outbox is payments.outbox
        assert State.PLANNED is (await payments.put(payout())).state
        with pytest.raises(TimeoutError):
            await payments.settled("withdrawal-1", timeout=0)


async def test_two_of_them_on_one_journal(service: Sandbox, place: Path) -> None:
    """They share the work: what both put is paid once, and either of them hears of its outcome."""
    one, other = local(service, place), local(service, place)
    async with one, other, serving(one.receiver, port=0) as (host, port):
        service.ipn_url = f"http://{host}:{port}/ipn"
        await one.put(payout())
        await other.put(payout())
        assert State.SUCCESSFUL is (await other.settled("withdrawal-1", timeout=60)).state
    assert 1 == service.executions("withdrawal-1")


def test_a_synchronous_application(service_in_thread: Sandbox, place: Path) -> None:
    """It opens all of them in a thread, puts, waits, and hears of a handler that fails."""
    payments = local(service_in_thread, place)
    failed: list[str] = []
    heard = threading.Event()

    @payments.on(State.ACCEPTED)
    async def accepted(entry: Entry) -> None:
        raise KeyError(entry.request_id)

    @payments.error
    def told(failure: HandlerFailure) -> None:
        failed.append(failure.handler)
        heard.set()

    with payments.in_thread() as opened:
        assert opened is payments
        entry = payments.put_sync(payout())
        assert entry.request_id == payout().request_id
        assert "accepted" == payments.outbox.in_loop(payments.pay(payout(), timeout=60)).state
        assert heard.wait(60)
    assert ["accepted"] == [name.rpartition(".")[2] for name in failed]
    with pytest.raises(RuntimeError, match="outbox is not open"):
        payments.put_sync(payout("withdrawal-2"))
