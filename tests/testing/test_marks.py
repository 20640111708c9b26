"""Marks say with which settings a fixture is made: nearer ones count more, and mistakes are told."""

from decimal import Decimal

import pytest

from payments_async import Dialect, PaymentsSession
from payments_async.journal import SqliteJournal
from payments_async.outbox import Fuse, Outbox, WorkerSettings
from payments_async.sandbox import Quirks, Sandbox, SandboxAccount

pytestmark = pytest.mark.payments_sandbox(
    quirks=Quirks(created_on="iso"), account=SandboxAccount(balance=Decimal(7), currency="KES")
)


@pytest.mark.payments_sandbox(account=SandboxAccount(balance=Decimal(8)))
async def test_a_mark_of_the_test_and_one_of_its_module(payments_sandbox: Sandbox) -> None:
    """What the test says counts more than what its module says; the rest of that stays."""
    assert (8, "iso") == (payments_sandbox.balance, payments_sandbox.quirks.created_on)


@pytest.mark.payments_session(dialect=Dialect(authorization_scheme="Bearer"))
@pytest.mark.payments_sandbox(quirks=Quirks(accepted_schemes=("Bearer",)))
async def test_a_session_in_another_dialect(payments_session: PaymentsSession) -> None:
    """The service takes another scheme alone, and the session uses it."""
    account = await payments_session.accounts.get()
    assert "KES" == account.currency


@pytest.mark.payments_outbox(name="refunds", worker=WorkerSettings(sends=False), fuse=Fuse(max_per_day=Decimal(1000)))
async def test_an_outbox_that_only_takes_orders(payments_outbox: Outbox, payments_journal: SqliteJournal) -> None:
    """Its settings are those of ``Outbox``; the journal is the one of the test."""
    assert ("refunds", True) == (payments_outbox.name, payments_outbox.journal is payments_journal)


@pytest.mark.parametrize(
    "fixture",
    ["payments_sandbox", "payments_session", "payments_receiver", "payments_journal", "payments_outbox"],
)
def test_each_of_these_marks_is_known(fixture: str, pytestconfig: pytest.Config) -> None:
    """``pytest --markers`` shows it, and ``--strict-markers`` admits it."""
    assert [line for line in pytestconfig.getini("markers") if line.startswith(f"{fixture}(**settings):")]
