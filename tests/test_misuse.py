"""A mistake in a call is told at once, with the argument that is wrong and what belongs there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest

from payments_async import (
    Acceptance,
    Beneficiary,
    MobileMoneyWallet,
    Outbox,
    Payments,
    PaymentsSession,
    PayoutOrder,
    Receiver,
    SqliteJournal,
)
from payments_async.bulk import BatchTerms, PlanSettings, RunSettings, plan, read_batch, reconcile, run_batch
from payments_async.journal import PostgresJournal
from payments_async.sandbox import Sandbox
from payments_async.testing import Testing


class Parts(NamedTuple):
    """What a program has at hand."""

    session: Any
    journal: Any


ORDER: Any = PayoutOrder(
    request_id="w-1",
    amount=1500,
    product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
    beneficiary=Beneficiary(name="Grace Akello"),
    destination=MobileMoneyWallet("+256772000017"),
)
PATH: Any = "payments.sqlite"
SESSION = "payments: expected a PaymentsSession, such as PaymentsSession.from_env(), not "
JOURNAL = "journal: expected a journal, such as SqliteJournal('payments.sqlite'), not "


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    """An open session and an open journal."""
    async with (
        Sandbox() as service,
        PaymentsSession.from_env(service.variables) as session,
        SqliteJournal.temporary() as journal,
    ):
        yield Parts(session, journal)


MADE: list[tuple[Callable[[Parts], object], str]] = [
    (lambda it: Outbox(it.journal, it.session), f"{SESSION}_TemporaryJournal"),
    (lambda it: Outbox(it.session, PATH), f"{JOURNAL}str"),
    (lambda it: Outbox(it.session, it.journal, 5), "name: expected text, not int"),  # type: ignore[arg-type]
    (lambda it: Outbox(it.session, it.journal, policy=5), "policy: expected HandlerPolicy(...), not int"),  # type: ignore[arg-type]
    (lambda it: Outbox(it.session, it.journal, fuse=5), "fuse: expected Fuse(...), not int"),  # type: ignore[arg-type]
    (
        lambda it: Outbox(it.session, it.journal, testing=Testing(now=5)),
        "now: expected a function that gives Unix seconds, not int",
    ),  # type: ignore[arg-type]
    (lambda it: Outbox(Payments(it.session, PATH), it.journal), f"{SESSION}Payments"),  # type: ignore[arg-type]
    (lambda it: Receiver(PATH), "inbox: expected a journal, such as SqliteJournal('payments.sqlite'), not str"),
    (lambda it: Receiver(SqliteJournal), "inbox: expected a journal, such as"),  # type: ignore[arg-type]
    (lambda it: Receiver(it.session), "not PaymentsSession"),
    (lambda it: Receiver(it.journal, confirm=True), "confirm: expected the PaymentsSession to ask, not bool"),  # type: ignore[arg-type]
    (lambda it: Receiver(it.journal, policy={}), "policy: expected HandlerPolicy(...), not dict"),  # type: ignore[arg-type]
    (
        lambda it: SqliteJournal(PATH, testing=Testing(now=5)),
        "now: expected a function that gives Unix seconds, not int",
    ),  # type: ignore[arg-type]
    (lambda it: PostgresJournal("postgresql:///", testing={}), "testing: expected Testing(now=...), not dict"),  # type: ignore[arg-type]
    (lambda it: RunSettings(testing={}), "testing: expected Testing(now=...), not dict"),  # type: ignore[arg-type]
    (lambda it: BatchTerms(approvals=None), "approvals: expected a whole number, not NoneType"),  # type: ignore[arg-type]
    (lambda it: PlanSettings(max_total=1.5), "max_total: pass a Decimal or a whole number, not float"),  # type: ignore[arg-type]
    (lambda it: BatchTerms(source_digest=7), "source_digest: expected text or None, not int"),  # type: ignore[arg-type]
    (lambda it: Sandbox(redelivery=5), "redelivery: expected Redelivery(...), not int"),  # type: ignore[arg-type]
    (lambda it: Sandbox(account={}), "account: expected SandboxAccount(...), not dict"),  # type: ignore[arg-type]
    (lambda it: Sandbox(clock=5), "clock: expected a clock, such as ManualClock(), not int"),  # type: ignore[arg-type]
]
AWAITED: list[tuple[Callable[[Parts], Any], str]] = [
    (lambda it: run_batch(it.journal, it.session, "november", []), f"{SESSION}_TemporaryJournal"),
    (lambda it: run_batch(it.session, PATH, "november", []), f"{JOURNAL}str"),
    (lambda it: run_batch(it.session, it.journal, [ORDER]), "batch_id: expected text, not list"),  # type: ignore[arg-type]
    (lambda it: run_batch(it.session, it.journal, "november", PATH), "pass (await read_batch(path)).orders"),
    (lambda it: reconcile(it.journal, it.session), f"{SESSION}_TemporaryJournal"),
    (lambda it: reconcile(it.session, PATH), f"{JOURNAL}str"),
    (lambda it: reconcile(it.session, it.journal, testing={}), "testing: expected Testing(now=...), not dict"),  # type: ignore[arg-type]
    (lambda it: plan(it.journal, []), f"{SESSION}_TemporaryJournal"),
    (lambda it: plan(it.session, PATH), "not a file's name: pass await read_batch(path)"),
    (lambda it: plan(it.session, [], settings=RunSettings()), "settings: expected PlanSettings(...), not RunSettings"),  # type: ignore[arg-type]
    (lambda it: read_batch(PATH, file=PATH), "file: expected FileFormat(...), not str"),  # type: ignore[arg-type]
    (lambda it: it.session.transactions.settled(ORDER), "acceptance: expected an Acceptance, or the request id, not"),
    (lambda it: Receiver(it.journal).wait_for(ORDER), "request_id: expected text, not PayoutOrder"),
]


@pytest.mark.parametrize(("call", "words"), MADE)
async def test_a_wrong_argument_is_told_where_something_is_made(
    call: Callable[[Parts], object], words: str, parts: Parts
) -> None:
    """Before it is opened, and before an order is in it."""
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        call(parts)


@pytest.mark.parametrize(("call", "words"), AWAITED)
async def test_a_wrong_argument_is_told_where_something_is_awaited(
    call: Callable[[Parts], Any], words: str, parts: Parts
) -> None:
    """Nothing was sent, and nothing written down."""
    with pytest.raises(TypeError, match=re.escape(words)):
        await call(parts)


async def test_a_final_status_that_does_not_come_in_time(parts: Parts) -> None:
    """The error names the order, and says that it must not be sent again."""
    acceptance: Acceptance = await parts.session.payouts.send(ORDER)
    with pytest.raises(TimeoutError, match="order w-1 has no final status after 0 s: wait again, never send it again"):
        await parts.session.transactions.settled(acceptance, timeout=0)
    with pytest.raises(TimeoutError, match="no final notification of order w-1 came within 0 s; it may come at any"):
        await Receiver(parts.journal).wait_for("w-1", timeout=0)


def test_an_amount_below_zero_is_called_so() -> None:
    """It is a number, so no other spelling of it is asked for."""
    for amount in ("-5", "-5.00", -5):
        with pytest.raises(ValueError, match="amount: must be above zero"):
            PayoutOrder(
                request_id="w-1",
                amount=amount,
                product_item_id="ITEM",
                beneficiary=Beneficiary(name="Grace Akello"),
                destination=MobileMoneyWallet("+256772000017"),
            )
