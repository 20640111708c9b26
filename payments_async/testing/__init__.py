"""A pytest plugin for users: sandbox, session, receiver, journal and outbox as fixtures, and made-up notifications.

The fixtures are ``payments_sandbox``, ``payments_session``, ``payments_receiver``, ``payments_journal``,
``payments_outbox``, ``payments_clock`` and ``payments_postgres``: names that no other plugin is likely to have.

A mark of the same name gives a fixture its settings: ``@pytest.mark.payments_sandbox(processing_delay=86_400)``.

Put ``pytest_plugins = ["payments_async.testing"]`` into your ``conftest.py``; it needs pytest-asyncio.

It asserts nothing that pytest would have to rewrite, and may be imported first (PYTEST_DONT_REWRITE).
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode

import attrs
import pytest
import pytest_asyncio
from multidict import CIMultiDict

from payments_async._session.auth import Credentials
from payments_async._session.session import PaymentsSession
from payments_async._values.amounts import amount_text
from payments_async._values.public import name_publicly
from payments_async._values.testing import Testing
from payments_async.ipn import Answer, Receiver, ServerLimits, serving
from payments_async.ipn._receiver import intake_of
from payments_async.journal import Journal, PostgresJournal, SqliteJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import Sandbox
from payments_async.testing._clock import VirtualClock
from payments_async.testing._pays_once import Simulation, assert_pays_once

if TYPE_CHECKING:
    import psycopg

__all__ = [
    "Notification",
    "Simulation",
    "Spelling",
    "Testing",
    "VirtualClock",
    "assert_paid_once",
    "assert_pays_once",
    "deliver",
    "mend_aioresponses",
    "notification",
    "payments_clock",
    "payments_journal",
    "payments_outbox",
    "payments_postgres",
    "payments_postgres_server",
    "payments_postgres_tables",
    "payments_receiver",
    "payments_sandbox",
    "payments_session",
]

Spelling = Literal["pascal", "camel", "snake", "mixed"]

_NAMES = (
    "AccountId",
    "SubscriptionId",
    "TransactionId",
    "BatchId",
    "RequestId",
    "StatusMessage",
    "StatusCode",
    "CorrelationId",
    "CreatedOn",
    "Amount",
    "CurrencyCode",
)
# The snake_case spelling is of an earlier edition, which called these differently.
_SNAKE = {"AccountId": "account_number", "RequestId": "client_referenceId"}
_SERVER = "PAYMENTS_TEST_POSTGRES"
_IDLE = 365 * 86_400.0  # seconds; no connection ends because the clock was moved ahead
_MESSAGES = {0: "Transaction successful", 1: "Processing", 2: "Failed"}


@attrs.frozen(kw_only=True)
class Notification:
    """A notification as the service would send it.

    Attributes:
        body: JSON.
        query: Raw query string, without the question mark.
    """

    body: bytes
    query: str


def notification(
    request_id: str = "order-1",
    *,
    transaction_id: str = "672b00f8-a02c-5e41-9fd0-4f0c4c74308d",
    status_code: int = 0,
    amount: Decimal | int = 500,
    currency_code: str = "UGX",
    account_id: str = "6",
    subscription_id: str = "77",
    batch_id: str = "batch-1",
    status_message: str | None = None,
    correlation_id: str = "correlation-1",
    created_on: str = "2024-02-27 14:06:41",
    spelling: Spelling = "pascal",
    number_ids: bool = False,
    query: bool = True,
    extra: Mapping[str, object] | None = None,
) -> Notification:
    """Make up a notification.

    Args:
        spelling: Of the members' names; ``"mixed"`` is half PascalCase, half camelCase. With camelCase comes a
            ``requestReference``.
        number_ids: Write account and subscription ids as numbers.
        query: Whether the query string is sent.
        extra: Further members.
    """
    message = _MESSAGES.get(status_code, "Unknown") if status_message is None else status_message
    texts = (account_id, subscription_id, transaction_id, batch_id, request_id, message)
    values = dict(zip(_NAMES, [*map(json.dumps, texts), str(status_code), "", "", "", ""], strict=True))
    values |= {"CorrelationId": json.dumps(correlation_id), "CreatedOn": json.dumps(created_on)}
    values |= {"Amount": amount_text(Decimal(amount)), "CurrencyCode": json.dumps(currency_code)}
    if number_ids:
        values |= {"AccountId": str(int(account_id)), "SubscriptionId": str(int(subscription_id))}
    members = {_spelled(name, place, spelling): value for place, (name, value) in enumerate(values.items())}
    if spelling == "camel":
        members["requestReference"] = json.dumps({"createdOn": created_on, "requestId": request_id})
    members |= {name: json.dumps(value) for name, value in (extra or {}).items()}
    parameters = {
        "transactionId": transaction_id,
        "subscriptionId": subscription_id,
        "accountId": account_id,
        "requestId": request_id,
        "Amount": amount_text(Decimal(amount)),
    }
    body = ", ".join(f"{json.dumps(name)}: {value}" for name, value in members.items())
    return Notification(body=f"{{{body}}}".encode(), query=urlencode(parameters) if query else "")


async def deliver(receiver: Receiver, notification: Notification, *, sender: str = "127.0.0.1") -> Answer:
    """Hand a notification to a receiver as if it had come from this address, without a server between."""
    headers = CIMultiDict({"Content-Type": "application/json"})
    intake = intake_of(receiver)
    return await receiver.take(notification.body, notification.query, headers, sender, token=intake.path_token)


def assert_paid_once(sandbox: Sandbox, *request_ids: str) -> None:
    """Check that each of these orders was carried out exactly once, however that ended, and no other one twice.

    Raises:
        AssertionError: It says how often the others were.
    """
    counts = {request_id: sandbox.executions(request_id) for request_id in (*request_ids, *sandbox.duplicates())}
    if wrong := [f"{request_id}: {count} times" for request_id, count in counts.items() if count != 1]:
        raise AssertionError(f"carried out, but not once: {', '.join(wrong)}")


def mend_aioresponses() -> None:
    """Let aioresponses answer under aiohttp 3.14 and later, whose answers want to know how their request was written.

    Call it once, in ``conftest.py``. Where nothing needs mending it does nothing.
    """
    import aioresponses.core
    from aiohttp import ClientResponse

    class Unwritten(ClientResponse):
        """An answer to a request without a writer: aiohttp 3.14 wants to know it, and aioresponses has none."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.setdefault("stream_writer", SimpleNamespace(output_size=0))
            super().__init__(*args, **kwargs)

    core = vars(aioresponses.core)
    asks = "stream_writer" in inspect.signature(ClientResponse.__init__).parameters
    is_told = "stream_writer" in inspect.getsource(aioresponses.core)  # by a later aioresponses
    if asks and not is_told and core["ClientResponse"] is ClientResponse:
        core["ClientResponse"] = Unwritten


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of our marks."""
    for name, made in _MARKS.items():
        config.addinivalue_line("markers", f"{name}(**settings): settings of the fixture {name}, as {made} takes them")


_MARKS = {
    "payments_sandbox": "Sandbox",
    "payments_session": "PaymentsSession",
    "payments_receiver": "Receiver",
    "payments_journal": "SqliteJournal or PostgresJournal",
    "payments_outbox": "Outbox",
}


def _settings(request: pytest.FixtureRequest, name: str, **usual: Any) -> dict[str, Any]:
    """With what a fixture is made: the mark of a test counts more than that of its class, and that of its module."""
    for mark in reversed(list(request.node.iter_markers(name))):
        if mark.args:
            raise TypeError(f"the mark {name} takes settings by name, such as the arguments of {_MARKS[name]}")
        usual |= mark.kwargs
    return usual


@pytest_asyncio.fixture
async def payments_clock() -> AsyncIterator[VirtualClock]:
    """The time of all these fixtures: it goes on as usual; ``await payments_clock.advance(3600)`` moves it ahead."""
    async with VirtualClock() as clock:
        yield clock


@pytest_asyncio.fixture
async def payments_sandbox(payments_clock: VirtualClock, request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """The service, simulated, on a loopback port."""
    async with Sandbox(**_settings(request, "payments_sandbox", clock=payments_clock)) as sandbox:
        yield sandbox


@pytest_asyncio.fixture
async def payments_session(
    payments_clock: VirtualClock, payments_sandbox: Sandbox, request: pytest.FixtureRequest
) -> AsyncIterator[PaymentsSession]:
    """A session with the sandbox."""
    sandbox = payments_sandbox
    credentials = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
    settings = _settings(request, "payments_session", testing=payments_clock.testing)
    async with PaymentsSession(sandbox.base_url, credentials, **settings) as session:
        yield session


@pytest.fixture
def _payments_inbox(request: pytest.FixtureRequest) -> Any:
    """The journal, where the test asks for an outbox; then receiver and outbox hear each other by it."""
    return request.getfixturevalue("payments_journal") if "payments_outbox" in request.fixturenames else None


@pytest_asyncio.fixture
async def payments_receiver(
    payments_clock: VirtualClock,
    payments_sandbox: Sandbox,
    _payments_inbox: Journal | None,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Receiver]:
    """A receiver served on a loopback port; the sandbox sends its notifications there.

    It has no inbox, unless the test asks for ``payments_outbox`` too: then it is the receiver of that outbox.
    """
    usual = {"inbox": _payments_inbox, "senders": ["127.0.0.1"], "testing": payments_clock.testing}
    receiver = Receiver(**_settings(request, "payments_receiver", **usual))
    async with _heard(payments_sandbox, receiver):
        yield receiver


@pytest.fixture(scope="session")
def payments_postgres_server() -> str:
    """DSN of a server for ``payments_postgres``, as a role that may create databases. Override it to start your own."""
    if (server := os.environ.get(_SERVER)) is None:
        pytest.fail(f"{_SERVER} is not set: name a PostgreSQL server, or write a fixture payments_postgres_server")
    return server


@pytest.fixture(scope="session")
def payments_postgres_tables() -> str:
    """SQL that makes the tables of your application, in each database of ``payments_postgres``. Override it."""
    return ""


@pytest.fixture(scope="session")
def _payments_template(payments_postgres_server: str, payments_postgres_tables: str) -> Iterator[str]:
    with _template(payments_postgres_server, payments_postgres_tables) as name:
        yield name


@pytest.fixture
def payments_postgres(payments_postgres_server: str, _payments_template: str) -> Iterator[str]:
    """DSN of a database of the test's own, with the tables of a journal and of your application.

    A test that asks for it has its ``payments_journal`` there. It is dropped after the test.
    """
    with _copied(payments_postgres_server, _payments_template) as dsn:
        yield dsn


@pytest.fixture
def _payments_place(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("payments_postgres") if "payments_postgres" in request.fixturenames else None


@pytest_asyncio.fixture
async def payments_journal(
    payments_clock: VirtualClock, _payments_place: str | None, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Journal]:
    """A journal of its own, which nothing outside of the test's folder remembers: the next test pays the same again.

    It is a file, or lies in the database of ``payments_postgres`` where the test asks for that.
    """
    settings = _settings(request, "payments_journal", state_folder=tmp_path / "state", testing=payments_clock.testing)
    made: Journal
    if _payments_place is None:
        made = SqliteJournal(tmp_path / "journal.sqlite", **settings)
    else:
        made = PostgresJournal(_payments_place, **settings)
    async with made as journal:
        payments_clock.watch(journal)
        yield journal


@pytest_asyncio.fixture
async def payments_outbox(
    payments_clock: VirtualClock,
    payments_session: PaymentsSession,
    payments_journal: Journal,
    payments_receiver: Receiver,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Outbox]:
    """An outbox that sends, in the journal. ``payments_receiver`` hears what the sandbox says of its orders."""
    settings = _settings(request, "payments_outbox", testing=payments_clock.testing)
    async with Outbox(payments_session, payments_journal, **settings) as outbox:
        yield outbox


@asynccontextmanager
async def _heard(sandbox: Sandbox, receiver: Receiver) -> AsyncIterator[None]:
    """Have the sandbox's notifications delivered to a receiver."""
    async with serving(receiver, port=0, limits=ServerLimits(keepalive=_IDLE)) as (host, port):
        sandbox.ipn_url = f"http://{host}:{port}/ipn"
        yield


def _spelled(name: str, place: int, spelling: Spelling) -> str:
    match spelling:
        case "pascal":
            return name
        case "camel":
            return name[0].lower() + name[1:]
        case "mixed":
            return name if place % 2 else name[0].lower() + name[1:]
        case "snake":
            return _SNAKE.get(name) or "".join(f"_{c.lower()}" if c.isupper() else c for c in name)[1:]


# Databases: one for each test, copied from a template that holds the tables of a journal and no order.


@contextmanager
def _template(server: str, tables: str) -> Iterator[str]:
    """Make a database with the tables of a journal, and with tables of the application.

    Args:
        server: DSN of a role that may create databases.
        tables: SQL that makes those of the application.

    Yields:
        Its name. It is dropped in the end.
    """
    with _made(server, "template1") as name:
        dsn = _place(server, name)
        journal = PostgresJournal(dsn, state_folder=None)
        asyncio.run(_migrated(journal))
        if tables.strip():
            with _connected(dsn) as connection:
                connection.execute(tables.encode())
        yield name


@contextmanager
def _copied(server: str, original: str) -> Iterator[str]:
    """Make a database like another one; yields its DSN. It is dropped in the end, also where it is in use then."""
    with _made(server, original) as name:
        yield _place(server, name)


async def _migrated(journal: PostgresJournal) -> None:
    await journal.migrate()


@contextmanager
def _made(server: str, original: str) -> Iterator[str]:
    name = f"payments_{secrets.token_hex(8)}"
    _command(server, "CREATE DATABASE {} TEMPLATE {}", name, original)
    try:
        yield name
    finally:
        _command(server, "DROP DATABASE {} WITH (FORCE)", name)


def _command(server: str, words: str, *names: str) -> None:
    from psycopg import sql

    with _connected(server) as connection:
        connection.execute(sql.SQL(words).format(*map(sql.Identifier, names)))


def _connected(dsn: str) -> psycopg.Connection:
    import psycopg

    return psycopg.connect(dsn, autocommit=True)


def _place(server: str, name: str) -> str:
    """The DSN of another database of a server, as an address, which every library reads."""
    from psycopg.conninfo import conninfo_to_dict

    known = {key: str(value) for key, value in conninfo_to_dict(server).items()}
    user, password = (quote(known.pop(key, ""), safe="") for key in ("user", "password"))
    known.pop("dbname", None)
    login = f"{user}{':' if password else ''}{password}@" if user or password else ""
    return f"postgresql://{login}/{name}?{urlencode(known)}"


name_publicly(globals())
