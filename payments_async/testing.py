"""A pytest plugin for users: sandbox, session, receiver, journal and outbox as fixtures, and made-up notifications.

The fixtures are ``payments_sandbox``, ``payments_session``, ``payments_receiver``, ``payments_journal`` and
``payments_outbox``: names that no other plugin, and no fixture of yours, is likely to have.

Put ``pytest_plugins = ["payments_async.testing"]`` into your ``conftest.py``; it needs pytest-asyncio.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

import attrs
import pytest_asyncio
from multidict import CIMultiDict

from payments_async._amounts import amount_text
from payments_async._auth import Credentials
from payments_async._session import PaymentsSession
from payments_async.ipn import Answer, Receiver, serving
from payments_async.ipn._receiver import intake_of
from payments_async.journal import SqliteJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import Sandbox

__all__ = [
    "Notification",
    "Spelling",
    "assert_paid_once",
    "deliver",
    "notification",
    "payments_journal",
    "payments_outbox",
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
    screened = intake.screen("POST", intake.path_token, sender, headers)
    if isinstance(screened, Answer):
        return screened
    return await intake.take(screened, sender, headers, notification.query, notification.body)


def assert_paid_once(sandbox: Sandbox, *request_ids: str) -> None:
    """Check that each of these orders was carried out exactly once, however that ended, and no other one twice.

    Raises:
        AssertionError: It says how often the others were.
    """
    counts = {request_id: sandbox.executions(request_id) for request_id in (*request_ids, *sandbox.duplicates())}
    if wrong := [f"{request_id}: {count} times" for request_id, count in counts.items() if count != 1]:
        raise AssertionError(f"carried out, but not once: {', '.join(wrong)}")


@pytest_asyncio.fixture
async def payments_sandbox() -> AsyncIterator[Sandbox]:
    """The service, simulated, on a loopback port."""
    async with Sandbox() as sandbox:
        yield sandbox


@pytest_asyncio.fixture
async def payments_session(payments_sandbox: Sandbox) -> AsyncIterator[PaymentsSession]:
    """A session with the sandbox."""
    sandbox = payments_sandbox
    credentials = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
    async with PaymentsSession(sandbox.base_url, credentials) as session:
        yield session


@pytest_asyncio.fixture
async def payments_receiver(payments_sandbox: Sandbox) -> AsyncIterator[Receiver]:
    """A receiver without an inbox, served on a loopback port; the sandbox sends its notifications there."""
    receiver = Receiver(senders=["127.0.0.1"])
    async with serving(receiver, port=0) as (host, port):
        payments_sandbox.ipn_url = f"http://{host}:{port}/ipn"
        yield receiver


@pytest_asyncio.fixture
async def payments_journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    """A journal of its own, which nothing outside of the test's folder remembers: the next test pays the same again."""
    async with SqliteJournal(tmp_path / "journal.sqlite", state_folder=tmp_path / "state") as journal:
        yield journal


@pytest_asyncio.fixture
async def payments_outbox(
    payments_sandbox: Sandbox, payments_session: PaymentsSession, payments_journal: SqliteJournal
) -> AsyncIterator[Outbox]:
    """An outbox that sends, in the journal, and a receiver of its own that hears what the sandbox says of its orders.

    Not in one test with ``payments_receiver``: the sandbox has one address for its notifications.
    """
    receiver = Receiver(payments_journal, ["127.0.0.1"])
    async with (
        serving(receiver, port=0) as (host, port),
        Outbox(payments_session, payments_journal, receiver=receiver) as outbox,
    ):
        payments_sandbox.ipn_url = f"http://{host}:{port}/ipn"
        yield outbox


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
