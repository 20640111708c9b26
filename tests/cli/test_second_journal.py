"""A second journal of one account on the command line: the same people are not paid again without a person's word."""

from pathlib import Path

import pytest
from bulk.files import row, write_csv
from cli.commands import Run

from payments_async import Credentials, PaymentsSession
from payments_async.journal import SqliteJournal
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Sandbox

NOVEMBER = ("november.csv", "--batch-id", "november", "--journal", "payroll.sqlite")
AGAIN = ("again.csv", "--batch-id", "salaries", "--journal", "other.sqlite")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files for the same people, with other ids; one of them gets another amount."""
    monkeypatch.chdir(tmp_path)
    for name, last in (("november", "3000"), ("again", "3500")):
        rows = [
            row(request_id=f"{name}-{n}", amount=amount, phone_number=f"+25677200000{n}")
            for n, amount in enumerate(("1000", "2000", last), 1)
        ]
        write_csv(tmp_path / f"{name}.csv", *rows)


async def test_the_same_people_by_another_journal(run: Run, sandbox: Sandbox) -> None:
    """The plan names the other journal and who was paid as much; the run needs a look at it, and a word why."""
    assert 0 == (await run("bulk", "run", *NOVEMBER, "--new-journal", "--yes")).status
    plan = await run("bulk", "plan", *AGAIN)
    assert (2, True) == (
        plan.status,
        "this machine has another journal of this account, with batch november" in plan.said,
    )
    assert "payroll.sqlite" in plan.said
    assert ("november-1" in plan.said, "november-2" in plan.said, "november-3" in plan.said) == (True, True, False)
    assert "of the same amount to the same payee within the last 6 days" in plan.said
    blind = await run("bulk", "run", *AGAIN, "--new-journal", "--yes")
    assert (2, True) == (blind.status, "3 concerns" in blind.said or "concerns" in blind.said), blind.said
    refused = await run("bulk", "run", *AGAIN, "--new-journal", "--yes", "--acknowledge")
    assert (2, True) == (refused.status, "--second-journal WHY" in refused.said), refused.said
    assert 3 == len(sandbox.ledger)
    meant = ("--second-journal", "a bonus, kept apart")
    assert 0 == (await run("bulk", "run", *AGAIN, "--yes", "--acknowledge", *meant)).status
    assert 6 == len(sandbox.ledger)


async def test_a_single_payment_beside_a_payroll(
    run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the company's folder it is in the company's journal; elsewhere one of its own would be a second one."""
    assert 0 == (await run("bulk", "run", *NOVEMBER, "--new-journal", "--yes")).status
    pay = ("pay", "--request-id", "voucher-1", "--amount", "5000", "--wallet", "+256772000009", "--name", "G. Akello")
    pay = (*pay, "--item", "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG", "--yes")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    refused = await run(*pay)
    assert (2, 3, True) == (refused.status, len(sandbox.ledger), "payroll.sqlite" in refused.said), refused.said
    monkeypatch.chdir(tmp_path)
    paid = await run(*pay)
    assert (0, 4, True) == (paid.status, len(sandbox.ledger), "journal payroll.sqlite" in paid.said), paid.said


async def test_an_outbox_that_holds_nothing_yet(run: Run, sandbox: Sandbox) -> None:
    """Is in this very journal, and no other one."""
    who = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
    async with (
        PaymentsSession(sandbox.base_url, who) as payments,
        SqliteJournal("payroll.sqlite") as journal,
        Outbox(payments, journal, worker=WorkerSettings(sends=False)),
    ):
        pass
    plan = await run("bulk", "plan", *NOVEMBER)
    assert "another journal" not in plan.said
    assert 0 == (await run("bulk", "run", *NOVEMBER, "--yes")).status
    assert 3 == len(sandbox.ledger)
