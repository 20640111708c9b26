"""A temporary journal: for trying things out, and for nothing that may be real."""

from __future__ import annotations

import os

import pytest

from payments_async import Beneficiary, MobileMoneyWallet, Payments, PayoutOrder, SqliteJournal, State
from payments_async.journal import JournalLost, RunIdentity, SecondJournal, WrongAccount
from payments_async.sandbox import Sandbox

ORDER = PayoutOrder(
    request_id="w-1",
    amount=1500,
    product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
    beneficiary=Beneficiary(name="Grace Akello"),
    destination=MobileMoneyWallet("+256772000017"),
)


async def test_a_program_that_is_tried_again_and_again() -> None:
    """Each run has a sandbox and a journal of its own: the same request id is a new payment in each."""
    for _ in range(2):
        async with Sandbox() as service:
            payments = Payments.from_env(service.variables, journal=SqliteJournal.temporary())
            async with payments:
                assert State.ACCEPTED is (await payments.pay(ORDER)).state
            assert 1 == service.executions("w-1")


async def test_it_leaves_nothing_behind() -> None:
    """Its folder is there while it is open, for its owner alone, and gone when it is closed."""
    journal = SqliteJournal.temporary()
    folder = journal.path.parent
    assert not folder.exists()
    async with journal:
        assert journal.path.is_file()
        assert 0o700 == folder.stat().st_mode & 0o777 or os.name == "nt"
    assert not folder.exists()
    await journal.aclose()


async def test_two_of_them_are_two_journals() -> None:
    """They have places of their own."""
    async with SqliteJournal.temporary() as one, SqliteJournal.temporary() as other:
        assert one.path != other.path


@pytest.mark.parametrize("address", ["https://payments.example", "https://10.0.0.7:8443/api", "https://localhost.evil"])
async def test_a_service_on_another_machine_is_refused(address: str) -> None:
    """What would forget a real payment takes none, neither of an outbox nor of a batch."""
    identity = RunIdentity.of(address, app_key="key", user_id="user")
    async with SqliteJournal.temporary() as journal:
        with pytest.raises(WrongAccount, match=r"name a file, as in SqliteJournal\('payments.sqlite'\)"):
            await journal.open_outbox("outbox", identity)
        with pytest.raises(WrongAccount, match="forgets what was sent"):
            await journal.open_run("november", identity)


@pytest.mark.parametrize("address", ["http://localhost:7027", "http://127.0.0.1:7027", "https://[::1]:7027/x"])
async def test_a_service_on_this_machine_is_taken(address: str) -> None:
    """A simulated service is reached by a loopback address."""
    async with SqliteJournal.temporary() as journal:
        await journal.open_outbox("outbox", RunIdentity.of(address, app_key="key", user_id="user"))


@pytest.mark.parametrize("error", [JournalLost, SecondJournal, WrongAccount])
def test_errors_that_a_restart_of_the_sandbox_brings_name_it(error: type[Exception]) -> None:
    """A person who tries things out reads there how to go on."""
    assert str(error("...")).endswith("on a simulated service, use SqliteJournal.temporary()")
