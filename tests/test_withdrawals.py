"""The applications of `examples/withdrawals`, asked over HTTP: whatever goes wrong, each withdrawal is paid once.

What is in the customer's balance is read from the application's own database, and what was paid from the ledger of the
simulated service, which is the judge.
"""

import asyncio
import importlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest
import uvicorn
from ipn.ports import free_port

from payments_async import Credentials, PaymentsSession
from payments_async.bulk import reconcile
from payments_async.ipn import serving
from payments_async.journal import Entry, SqliteJournal, State
from payments_async.sandbox import Fault, Redelivery, Sandbox

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "withdrawals"
BALANCE = 100_000  # of the one customer there is at first
ENDS = {State.SUCCESSFUL, State.FAILED, State.REJECTED, State.REVERSED}


def wish(number: int = 1, **other: object) -> dict[str, object]:
    """What a customer asks for."""
    return {"id": f"w-{number}", "customer": "grace", "phone_number": "+256772000017", "amount": 5000} | other


@attrs.frozen
class Settings:
    """Where an application keeps its files, and where the service is."""

    folder: Path
    service: Sandbox

    @property
    def environment(self) -> dict[str, str]:
        """As the application reads them; the credentials are those of any sandbox."""
        return {
            "PAYMENTS_BASE_URL": self.service.base_url,
            "PAYMENTS_JOURNAL": str(self.folder / "payments.sqlite"),
            "WITHDRAWALS_DATABASE": str(self.folder / "withdrawals.sqlite"),
        }

    def read(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of the application's database."""
        with closing(sqlite3.connect(self.folder / "withdrawals.sqlite", timeout=60)) as db, db:
            return db.execute(query).fetchall()

    @property
    def balance(self) -> int:
        """What the customer has."""
        return int(self.read("SELECT balance FROM customer")[0][0])


@attrs.frozen
class Customer:
    """Asks an application, over HTTP."""

    http: aiohttp.ClientSession
    address: str

    async def ask(self, body: Mapping[str, object]) -> int:
        """Ask for a withdrawal; the status of the answer."""
        async with self.http.post(f"{self.address}/withdrawals", json=body) as answer:
            await answer.read()
            return answer.status

    async def state(self, request_id: str) -> str:
        """Where a withdrawal stands."""
        async with self.http.get(f"{self.address}/withdrawals/{request_id}") as answer:
            return str((await answer.json())["state"]) if answer.status == 200 else str(answer.status)

    async def health(self) -> dict[str, Any]:
        """What a load balancer hears."""
        async with self.http.get(f"{self.address}/health") as answer:
            assert 200 == answer.status
            return dict(await answer.json())

    async def until(self, request_id: str, state: str) -> None:
        """Wait until a withdrawal stands there."""
        async with asyncio.timeout(60):
            while state != await self.state(request_id):  # noqa: ASYNC110 - over HTTP there is no event to wait for
                await asyncio.sleep(0.01)


@asynccontextmanager
async def by_uvicorn(app: Any) -> AsyncIterator[tuple[str, int]]:
    """A FastAPI application, served as its command line serves it."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, proxy_headers=False, log_level="warning", ws="none"))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.serve())
        try:
            while not server.started:
                assert not running.done(), "it ended without listening"
                await asyncio.sleep(0.01)
            yield server.servers[0].sockets[0].getsockname()
        finally:
            server.should_exit = True


SERVERS: dict[str, Callable[[Any], AbstractAsyncContextManager[tuple[str, int]]]] = {
    "with_aiohttp": lambda app: serving(app, port=0),
    "with_fastapi": by_uvicorn,
}


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the examples is where their modules are found."""
    monkeypatch.syspath_prepend(FOLDER)


@pytest.fixture(params=SERVERS)
def name(request: pytest.FixtureRequest) -> str:
    """Which of the applications."""
    return str(request.param)


@pytest.fixture
async def service() -> AsyncIterator[Sandbox]:
    """The service, simulated; a notification that nobody takes is tried again soon."""
    async with Sandbox(
        processing_delay=0.02, redelivery=Redelivery(attempts=99, wait_initial=0.05, wait_max=0.2)
    ) as service:
        yield service


@pytest.fixture
def settings(tmp_path: Path, service: Sandbox) -> Settings:
    """Files of its own."""
    return Settings(tmp_path, service)


@asynccontextmanager
async def opened(name: str, settings: Settings) -> AsyncIterator[Customer]:
    """An application that runs, in this process, and its customer."""
    app = importlib.import_module(name).application(settings.environment)
    async with SERVERS[name](app) as (host, port), aiohttp.ClientSession() as http:
        settings.service.ipn_url = f"http://{host}:{port}/ipn"
        yield Customer(http, f"http://{host}:{port}")


@pytest.fixture
async def customer(name: str, settings: Settings) -> AsyncIterator[Customer]:
    """Of an application that runs."""
    async with opened(name, settings) as customer:
        yield customer


async def test_a_withdrawal_is_paid(customer: Customer, settings: Settings) -> None:
    """Taken at once, paid soon, and the balance is less by its amount."""
    assert 202 == await customer.ask(wish())
    await customer.until("w-1", State.SUCCESSFUL)
    assert 1 == settings.service.executions("w-1")
    assert BALANCE - 5000 == settings.balance
    assert {"sends": True, "problems": {}} == {key: (await customer.health())[key] for key in ("sends", "problems")}


async def test_who_asks_often_is_paid_once(customer: Customer, settings: Settings) -> None:
    """Side by side, again afterwards, and again once it was paid."""
    assert {202} == set(await asyncio.gather(*(customer.ask(wish()) for _ in range(10))))
    assert 202 == await customer.ask(wish())
    await customer.until("w-1", State.SUCCESSFUL)
    assert 202 == await customer.ask(wish())
    assert State.SUCCESSFUL == await customer.state("w-1")
    assert [("w-1", 1)] == [(one.request_id, settings.service.executions("w-1")) for one in settings.service.ledger]
    assert BALANCE - 5000 == settings.balance


@pytest.mark.parametrize("other", [{"amount": 5001}, {"phone_number": "+256772000018"}, {"customer": "peter"}])
async def test_another_withdrawal_under_the_same_id(
    customer: Customer, settings: Settings, other: dict[str, object]
) -> None:
    """It is refused, and the first stands."""
    assert [202, 409] == [await customer.ask(wish()), await customer.ask(wish(**other))]
    await customer.until("w-1", State.SUCCESSFUL)
    assert [5000] == [one.amount for one in settings.service.ledger]
    assert BALANCE - 5000 == settings.balance


@pytest.mark.parametrize("much", [{"amount": BALANCE + 1}, {"customer": "nobody"}])
async def test_a_balance_that_does_not_cover_it(
    customer: Customer, settings: Settings, much: dict[str, object]
) -> None:
    """Nothing is written down, and nothing is sent; what the balance does cover is paid afterwards under this id."""
    assert 409 == await customer.ask(wish(**much))
    assert ["404", BALANCE] == [await customer.state("w-1"), settings.balance]
    assert 202 == await customer.ask(wish(amount=BALANCE))
    await customer.until("w-1", State.SUCCESSFUL)
    assert [[BALANCE], 0] == [[one.amount for one in settings.service.ledger], settings.balance]


async def test_more_at_once_than_the_balance_covers(customer: Customer, settings: Settings) -> None:
    """As many as it covers are paid, however close together they come."""
    answers = await asyncio.gather(*(customer.ask(wish(number, amount=30_000)) for number in range(10)))
    assert [202] * 3 + [409] * 7 == sorted(answers)
    for number, answer in enumerate(answers):
        if answer == 202:
            await customer.until(f"w-{number}", State.SUCCESSFUL)
    assert [3, 10_000] == [len(settings.service.ledger), settings.balance]


@pytest.mark.parametrize(
    "wrong",
    [{"amount": 0}, {"amount": -5}, {"amount": 10**20}, {"amount": 1.5}, {"amount": None}, {"id": ""}, {"id": "a\nb"},
     {"id": 7}, {"customer": ""}, {"customer": ["grace"]}, {"phone_number": "soon"}],
    ids=str,
)  # fmt: skip
async def test_what_is_no_withdrawal(customer: Customer, settings: Settings, wrong: dict[str, object]) -> None:
    """It is refused before anything is written down."""
    assert 422 == await customer.ask(wish(**wrong))
    assert [[], BALANCE] == [settings.read("SELECT id FROM withdrawal"), settings.balance]


@pytest.mark.parametrize(
    ("fault", "state"), [(Fault.FAILS, State.FAILED), (Fault.REFUSED, State.REJECTED)], ids=["fails", "is refused"]
)
async def test_a_withdrawal_that_is_not_paid(
    customer: Customer, settings: Settings, fault: Fault, state: State
) -> None:
    """The customer has the money back: once, though the service says it four times, and though they ask again."""
    settings.service.script(fault, request_id="w-1")
    settings.service.script(Fault.NOTIFY_REPEATED, request_id="w-1")
    assert 202 == await customer.ask(wish())
    await customer.until("w-1", state)
    await settings.service.settle(60)
    assert [202, state] == [await customer.ask(wish()), await customer.state("w-1")]
    assert BALANCE == settings.balance
    assert settings.service.executions("w-1") == (state is State.FAILED)


@pytest.mark.parametrize("fault", [Fault.LOST_AFTER, Fault.ERROR_AFTER, Fault.TRUNCATED, Fault.NOTIFY_EARLY], ids=str)
async def test_an_answer_that_is_lost(customer: Customer, settings: Settings, fault: Fault) -> None:
    """The money moved, and nobody was told: it is not sent again, and settled by what is heard."""
    settings.service.script(fault, request_id="w-1")
    assert 202 == await customer.ask(wish())
    await customer.until("w-1", State.SUCCESSFUL)
    assert [1, BALANCE - 5000] == [settings.service.executions("w-1"), settings.balance]


async def test_two_servers_with_the_same_files(name: str, settings: Settings) -> None:
    """Who asks both of them for the same is paid once, and each knows what became of it."""
    async with opened(name, settings) as one, opened(name, settings) as other:
        bodies = [wish(number) for number in range(5)]
        asked = [customer.ask(body) for body in bodies for customer in (one, other)]
        assert {202} == set(await asyncio.gather(*asked))
        for body in bodies:
            for customer in (one, other):
                await customer.until(str(body["id"]), State.SUCCESSFUL)
    assert [5, [], BALANCE - 25_000] == [len(settings.service.ledger), settings.service.duplicates(), settings.balance]


async def test_a_withdrawal_that_is_reversed_later(customer: Customer, settings: Settings) -> None:
    """No notification tells it. Where somebody reconciles, from time to time, the customer has the money back."""
    settings.service.script(Fault.REVERSED, request_id="w-1", seconds=0.02)
    assert 202 == await customer.ask(wish())
    await customer.until("w-1", State.SUCCESSFUL)
    await settings.service.settle(60)
    credentials = Credentials(
        app_key=settings.service.app_key, app_password=settings.service.app_password, user_id=settings.service.user_id
    )
    async with (
        SqliteJournal(settings.folder / "payments.sqlite") as journal,
        PaymentsSession(settings.service.base_url, credentials) as payments,
    ):
        await reconcile(payments, journal, "outbox", reversals=True)
    await customer.until("w-1", State.REVERSED)
    assert BALANCE == settings.balance


async def test_a_death_between_the_two_databases(name: str, settings: Settings) -> None:
    """What was written down and never put is put by the next start, what was put already is not paid again."""
    ledger_of = importlib.import_module("ledger")
    with closing(ledger_of.Ledger(settings.environment["WITHDRAWALS_DATABASE"])) as ledger:
        ledger.request(ledger_of.Withdrawal(**wish(1)))
    async with opened(name, settings) as customer:
        await customer.until("w-1", State.SUCCESSFUL)
        settings.service.script(Fault.NOTIFY_LOST, request_id="w-2")
        assert 202 == await customer.ask(wish(2))
        async with asyncio.timeout(60):
            while not settings.service.executions("w-2"):  # noqa: ASYNC110 - the service tells nobody
                await asyncio.sleep(0.01)
    async with opened(name, settings) as customer:
        assert "requested" == await customer.state("w-2")
        assert 202 == await customer.ask(wish(3))
        await customer.until("w-3", State.SUCCESSFUL)
    assert [1, 1, 1] == [settings.service.executions(f"w-{number}") for number in (1, 2, 3)]


def test_a_handler_that_is_told_twice(settings: Settings) -> None:
    """The second time changes nothing, and neither does what is older than what is known."""
    ledger_of = importlib.import_module("ledger")
    asked = ledger_of.Withdrawal(**wish())

    def told(state: State, change_id: int) -> Entry:
        order = asked.order()
        return Entry(
            request_id="w-1", batch_id="outbox", state=state, order=order, amount=order.amount, change_id=change_id
        )

    with closing(ledger_of.Ledger(settings.environment["WITHDRAWALS_DATABASE"])) as ledger:
        ledger.request(asked)
        assert BALANCE - 5000 == settings.balance
        for _ in range(2):
            ledger.note(told(State.FAILED, 7))
            ledger.note(told(State.PARKED, 4))
        assert [State.FAILED, BALANCE] == [ledger.state_of("w-1"), settings.balance]


# Killed


def command(name: str, port: int) -> list[str]:
    """How its docstring says that an application is started, on another port."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    told = re.search(r"^    (python|uvicorn) (.+)$", text, re.MULTILINE)
    assert told is not None
    if told[1] == "uvicorn":
        return [sys.executable, "-m", "uvicorn", *told[2].split(), "--port", str(port)]
    return [sys.executable, *told[2].replace("8000", str(port)).split()]


@attrs.define
class Server:
    """An application in a process of its own, which is killed and started again."""

    name: str
    settings: Settings
    port: int = attrs.field(factory=free_port)
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {**os.environ, **self.settings.environment}
        self.process = await asyncio.create_subprocess_exec(
            *command(self.name, self.port), cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
        )
        while True:
            assert self.process.returncode is None, "it ended without listening"
            try:
                (await asyncio.open_connection("127.0.0.1", self.port))[1].close()
            except OSError:
                await asyncio.sleep(0.02)
            else:
                return

    async def end(self, number: signal.Signals) -> int:
        """Send it a signal, and wait for its end."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()


async def insist(customer: Customer, wishes: Iterator[dict[str, object]], answered: list[str]) -> None:
    """Ask for one withdrawal after the other, for each until it was taken."""
    for body in wishes:
        while True:
            try:
                status = await customer.ask(body)
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.02)  # nobody is there
                continue
            assert 202 == status
            break
        answered.append(str(body["id"]))


async def at_rest(customer: Customer, service: Sandbox, ids: Sequence[str]) -> dict[str, str]:
    """How the withdrawals stand, once each that was carried out or refused has its end, and nothing waits."""
    while True:
        counts = (await customer.health())["counts"]
        states = {request_id: await customer.state(request_id) for request_id in ids}
        waits = counts["planned"] + counts["sending"] + counts["accepted"]
        waits += counts["rejected"] - list(states.values()).count(State.REJECTED)  # not told yet
        if not waits and all(states[one] in ENDS or not service.executions(one) for one in ids):
            return states
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_killed_in_the_middle(name: str, settings: Settings, service: Sandbox) -> None:
    """Each withdrawal is paid once, or given back; what may have left and never arrived is held, and none is lost."""
    count, kills = 150, 3
    service.chaos(
        {Fault.LOST_AFTER: 0.05, Fault.ERROR_AFTER: 0.05, Fault.FAILS: 0.1, Fault.REFUSED: 0.05, Fault.SLOW: 0.2,
         Fault.NOTIFY_REPEATED: 0.1, Fault.NOTIFY_REORDERED: 0.1},
        seconds=0.2,
    )  # fmt: skip
    amounts = {f"w-{number}": 100 + number for number in range(count)}
    deadly = [f"w-{count * (place + 1) // (kills + 1)}" for place in range(kills)]
    for request_id in deadly:  # the service has it, and its answer is on the way when the process dies
        service.script(Fault.SLOW, request_id=request_id, seconds=30.0)
    wishes = (wish(number, amount=amounts[f"w-{number}"]) for number in range(count))
    answered: list[str] = []
    server = Server(name, settings)
    async with asyncio.timeout(300), aiohttp.ClientSession() as http:
        customer = Customer(http, f"http://127.0.0.1:{server.port}")
        service.ipn_url = f"{customer.address}/ipn"
        await server.start()
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(insist(customer, wishes, answered))
            for request_id in deadly:
                while not service.executions(request_id):  # noqa: ASYNC110 - the service tells nobody
                    await asyncio.sleep(0.005)
                assert -signal.SIGKILL == await server.end(signal.SIGKILL)
                await server.start()
        states = await at_rest(customer, service, sorted(amounts))
        assert await server.end(signal.SIGTERM) in (0, -signal.SIGTERM)  # uvicorn hands the signal on
    assert [[], sorted(amounts)] == [service.duplicates(), sorted(answered)]
    ended = {one.request_id: State.FAILED if one.status == "FAILED" else State.SUCCESSFUL for one in service.ledger}
    assert ended == {one: state for one, state in states.items() if one in ended}
    others = {one: state for one, state in states.items() if one not in ended}  # never carried out
    async with SqliteJournal(settings.folder / "payments.sqlite") as journal:
        for one, state in others.items():
            entry = await journal.entry(one)
            assert entry is not None
            assert (state, entry.state) in {
                (State.REJECTED, State.REJECTED), (State.PARKED, State.PARKED),
                ("requested", State.UNKNOWN), ("requested", State.PARKED),  # looked for, or about to be told
            }  # fmt: skip
    gone = sum(amounts[one] for one, state in states.items() if state not in {State.FAILED, State.REJECTED})
    assert BALANCE - gone == settings.balance
    assert len(ended) > count // 2
