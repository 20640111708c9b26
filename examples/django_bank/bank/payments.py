"""Debit and order in one transaction, and what happens when an order has ended."""

# mypy: disable-error-code="import-untyped"

from functools import cache
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F

from bank.models import Account, Withdrawal
from payments_async import (
    Beneficiary,
    Entry,
    MobileMoneyWallet,
    Outbox,
    Payments,
    PaymentsSession,
    PayoutOrder,
    PostgresJournal,
    Receiver,
    State,
)
from payments_async.ipn import DOCUMENTED_SENDERS
from payments_async.outbox import WorkerSettings


class TooLittleMoney(Exception):
    """The balance is lower than what was asked for."""


@cache
def payments(*, works: bool = False) -> Payments:
    """The payments of this process; another process works, that of the views only puts."""
    session = PaymentsSession.from_env(settings.PAYMENTS)
    return made_of(session, settings.PAYMENTS["PAYMENTS_JOURNAL"], works=works)


def made_of(session: PaymentsSession, dsn: str, *, works: bool) -> Payments:
    """Payments with the handlers of this application: plain functions, each in a transaction and a thread."""
    journal = PostgresJournal(dsn)
    is_sandbox = session.base_url.startswith("http://")  # the service itself has https alone
    receiver = Receiver(journal, ["127.0.0.1"] if is_sandbox else DOCUMENTED_SENDERS)
    outbox = Outbox(session, journal, worker=WorkerSettings() if works else None)
    made = Payments(session, journal, outbox=outbox, receiver=receiver)

    @made.on(State.SUCCESSFUL, name="paid", within=transaction.atomic)
    def paid(entry: Entry, _: Any) -> None:
        Withdrawal.objects.filter(pk=entry.request_id).update(state=entry.state)

    @made.on(State.FAILED, State.REJECTED, State.CANCELLED, name="credit again", within=transaction.atomic)
    def credit_again(entry: Entry, _: Any) -> None:
        withdrawal = Withdrawal.objects.get(pk=entry.request_id)
        Account.objects.filter(pk=withdrawal.account_id).update(balance=F("balance") + withdrawal.amount)
        Withdrawal.objects.filter(pk=entry.request_id).update(state=entry.state)

    return made


def withdraw(payments: Payments, request_id: str, name: str, amount: int) -> str:
    """Debit an account and put the order, in one transaction. The same id again changes nothing."""
    with transaction.atomic():
        account = Account.objects.select_for_update().get(pk=name)
        if not Withdrawal.objects.filter(pk=request_id).exists():
            if account.balance < amount:
                raise TooLittleMoney(name)
            Account.objects.filter(pk=name).update(balance=F("balance") - amount)
            Withdrawal.objects.create(id=request_id, account=account, amount=amount)
        order = PayoutOrder(
            request_id=request_id,
            amount=amount,
            product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
            beneficiary=Beneficiary(name=account.name),
            destination=MobileMoneyWallet(account.phone_number),
        )
        return str(payments.put_sync(order, connection=connection).state)  # sent once this is committed
