"""Debit and order are one transaction, and what is not paid is credited once. Run `pytest` in this folder."""

# mypy: disable-error-code="import-untyped"
# ruff: noqa: E402 - Django is set up before its models are imported

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import django
import pytest

pytest_plugins = ["payments_async.testing"]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bank.settings")
django.setup()

from bank.models import Account, Withdrawal
from bank.payments import made_of, withdraw
from bank.settings import database
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client

from payments_async import Payments, PaymentsSession
from payments_async.ipn import serving
from payments_async.sandbox import Fault, Sandbox


def in_thread(function: Callable[[], Any]) -> Awaitable[Any]:
    """Django blocks, so it is asked in a thread, which keeps no connection."""

    def asked() -> Any:
        try:
            return function()
        finally:
            connection.close()

    return asyncio.to_thread(asked)


@attrs.frozen
class Bank:
    """A bank with one customer, and the service."""

    payments: Payments
    service: Sandbox


@pytest.fixture
async def bank(payments_postgres: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bank]:
    """On a database of its own; the views and the worker are in this process."""

    def begin() -> None:
        connection.settings_dict.update(database(payments_postgres))
        call_command("migrate", run_syncdb=True, verbosity=0)
        Account.objects.create(name="Grace", phone_number="+256772000017", balance=10_000)

    await in_thread(begin)
    async with Sandbox() as service:
        made = made_of(PaymentsSession.from_env(service.variables), payments_postgres, works=True)
        monkeypatch.setattr("bank.views.payments", lambda: made)
        async with made, serving(made.receiver, port=0) as (host, port):
            service.ipn_url = f"http://{host}:{port}/ipn"
            yield Bank(made, service)


async def asked(**wish: object) -> tuple[int, str]:
    """What the application answers to somebody who withdraws."""
    answer = await in_thread(lambda: Client().post("/withdrawals/w-1", {"account": "Grace", **wish}))
    return answer.status_code, answer.content.decode()


async def balance() -> int:
    """What the customer has."""
    return int(await in_thread(lambda: Account.objects.get().balance))


async def test_a_withdrawal_is_debited_and_paid_once(bank: Bank) -> None:
    """However often it is asked for; another amount under its id is refused."""
    answers = await asyncio.gather(*(asked(amount=4000) for _ in range(3)))
    assert {200} == {status for status, _ in answers}
    await bank.payments.settled("w-1", timeout=60)
    assert await asked(amount=5000) == (409, "another withdrawal has this id")
    assert (await balance(), bank.service.executions("w-1")) == (6000, 1)


async def test_a_balance_that_is_too_low(bank: Bank) -> None:
    """Nothing is debited, and there is no order."""
    assert await asked(amount=10_001) == (422, "the balance is too low")
    assert (await balance(), await bank.payments.outbox.entry("w-1")) == (10_000, None)


async def test_a_transaction_that_is_undone(bank: Bank) -> None:
    """The debit is undone, and the order with it: nothing is sent."""

    def fails() -> None:
        with transaction.atomic():
            withdraw(bank.payments, "w-1", "Grace", 4000)
            raise LookupError

    with pytest.raises(LookupError):
        await in_thread(fails)
    assert (await balance(), await bank.payments.outbox.entry("w-1")) == (10_000, None)


async def test_a_payout_that_fails(bank: Bank) -> None:
    """The customer is credited again, once, in the transaction that notes it."""
    bank.service.script(Fault.FAILS)
    assert await asked(amount=4000) == (200, "planned")
    async with asyncio.timeout(60):
        while await balance() != 10_000:  # noqa: ASYNC110 - the handler runs in a thread of its own
            await asyncio.sleep(0.05)
    assert await in_thread(lambda: Withdrawal.objects.get().state) == "failed"
