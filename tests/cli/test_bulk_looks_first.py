"""`bulk run` and `reconcile` beside a journal that forgot: what people see, and that nobody is paid twice."""

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from bulk.files import row, write_csv
from bulk.worlds import payout, session
from cli.commands import Run

from payments_async.journal import Signal, SqliteJournal
from payments_async.journal.contract import Evidence
from payments_async.sandbox import Fault, Sandbox

BATCH = ("--batch-id", "november")
SENT = ("--journal", "j.sqlite", *BATCH)
NEW = (*SENT, "--new-journal")
LIFT = ("bulk", "lift-quarantine", *SENT, "--who", "A. Clerk", "--why", "all looked up", "--yes")
ORDERS = 30


@pytest.fixture
def payroll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A clean file in a folder of our own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    rows = [
        row(request_id=f"RUN-{n}", amount=f"{n}000", phone_number=f"+2567720000{n:02}") for n in range(1, ORDERS + 1)
    ]
    return write_csv(tmp_path / "payroll.csv", *rows).name


@pytest.mark.slow(covered=True)
async def test_a_backup_from_before_the_run_is_restored(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Each command says what to do next; whoever follows it pays nobody again."""
    bonus = write_csv(Path("bonus.csv"), row(request_id="BONUS-1", amount="77"))
    other = ("bulk", "run", bonus.name, "--journal", "j.sqlite", "--batch-id", "bonus", "--yes")
    for begun in (("bulk", "run", payroll, *NEW, "--yes"), other):
        assert 5 == (await run(*begun, "--stop-at-total", "0")).status
    shutil.copyfile("j.sqlite", "backup.sqlite")
    ran = await run("bulk", "run", payroll, *SENT, "--yes")
    assert (0, ORDERS) == (ran.status, len(sandbox.ledger))
    await sandbox.settle()
    for name in ("j.sqlite", "j.sqlite-wal", "j.sqlite-shm"):
        Path(name).unlink(missing_ok=True)  # noqa: ASYNC240 - nothing else runs
    shutil.copyfile("backup.sqlite", "j.sqlite")

    stopped = await run("bulk", "run", payroll, *SENT, "--yes")
    assert (5, ORDERS) == (stopped.status, len(sandbox.ledger))
    reconcile = "payments-async bulk reconcile --journal j.sqlite --batch-id november"
    assert f"What it calls planned may have been sent. Look for all of it: {reconcile}" in stopped.said
    early = await run(*LIFT)
    assert (2, True) == (early.status, f"Look for them: {reconcile}" in early.said)
    looked = await run("bulk", "reconcile", *SENT, "--grace", "0", "--interval", "0")
    assert 4 == looked.status
    assert f"sent already, as the list shows, though this journal did not know: {ORDERS} orders" in looked.said
    assert "evidence" not in looked.said  # it is what a restored journal expects to be told
    assert f"settled: {ORDERS} successful" in looked.said
    assert "payments-async bulk lift-quarantine --journal j.sqlite --batch-id november --who NAME" in looked.said
    everything = [word for word in LIFT if word not in BATCH]
    waits = await run(*everything)
    assert (2, True) == (waits.status, "batch bonus was not looked for" in waits.said), "one lacks its proof: none is"
    await run("bulk", "reconcile", "--journal", "j.sqlite", "--grace", "0", "--interval", "0")
    lifted = json.loads((await run(*everything, "--json")).out)
    assert ["november", "bonus"] == [one["batch_id"] for one in lifted["batches"]]
    again = json.loads((await run("bulk", "run", payroll, *SENT, "--yes", "--json")).out)
    assert (0, None) == (again["sent"], again["stopped"])
    assert 0 == (await run("bulk", "status", *SENT)).status
    async with SqliteJournal("j.sqlite") as journal:  # what contradicts that is a contradiction as ever
        for signal in (Signal.NOTIFIED_FAILED, Signal.NOTIFIED_REVERSED):
            told = Evidence(signal=signal, source="notification 192.0.2.7", request_id="RUN-7", amount=Decimal(7001))
            await journal.apply_evidence(told)
    stands = await run("bulk", "status", *SENT)
    assert (4, True) == (stands.status, "1 order with evidence against evidence." in stands.said)
    assert (ORDERS, []) == (len(sandbox.ledger), sandbox.duplicates())


async def test_a_second_journal_for_the_same_batch(run: Run, sandbox: Sandbox, payroll: str, tmp_path: Path) -> None:
    """On another machine: the list is read first, what that cost is said, and nothing is sent again."""
    first = await run("bulk", "run", payroll, *NEW, "--yes")
    assert "looked first: 0 transactions of 10 days, 2 requests, " in first.said
    other = ("--journal", "k.sqlite", "--new-journal", *BATCH)
    ran = await run("bulk", "run", payroll, *other, "--yes", XDG_STATE_HOME=str(tmp_path / "another machine"))
    assert "looked first: 30 transactions of 10 days, 2 requests, " in ran.said
    assert "30 of these orders were there already and are not sent" in ran.said
    assert (4, ORDERS, []) == (ran.status, len(sandbox.ledger), sandbox.duplicates())


async def test_a_list_that_cannot_be_read(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Nothing is sent; the same command goes on; who knows better may say so."""
    sandbox.script(Fault.REFUSED, times=None, on="transactions")
    ran = await run("bulk", "run", payroll, *NEW, "--yes")
    assert (5, 0) == (ran.status, len(sandbox.ledger))
    assert "was not read to its end (it could not be read: " in ran.said
    assert "only if nothing of this was ever sent, from any journal: add --without-looking" in ran.said
    done = await run("bulk", "run", payroll, *SENT, "--yes", "--without-looking")
    assert (0, ORDERS) == (done.status, len(sandbox.ledger))


async def test_a_copied_journal_always_looks(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """--without-looking is refused where the journal may have forgotten, also for a batch that it does not know."""
    await run("bulk", "run", payroll, *NEW, "--yes", "--stop-at-total", "0")
    shutil.copyfile("j.sqlite", "k.sqlite")
    bonus = write_csv(Path("bonus.csv"), row(request_id="BONUS-1")).name
    for name, batch_id in ((payroll, "november"), (bonus, "december")):
        ran = await run(
            "bulk", "run", name, "--journal", "k.sqlite", "--batch-id", batch_id, "--yes", "--without-looking"
        )
        assert (2, 0) == (ran.status, len(sandbox.ledger))
        assert "--without-looking: the journal was copied or restored and may have forgotten what was sent" in ran.said


async def test_a_second_payment_is_told(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Both transactions are named; the machine's output has them too."""
    await run("bulk", "run", payroll, *NEW, "--yes")
    async with session(sandbox) as somebody:
        second = await somebody.payouts.send(payout(1, request_id="RUN-7", amount=Decimal(7000)))
    ran = await run("bulk", "reconcile", *SENT, "--interval", "0")
    assert 4 == ran.status
    assert "more than one transaction: it may have been paid twice; ask the service RUN-7: " in ran.said
    assert second.transaction_id in ran.said
    told = json.loads((await run("bulk", "reconcile", *SENT, "--interval", "0", "--reversals", "--json")).out)
    assert ["RUN-7"] == [double["request_id"] for double in told["doubles"]]


async def test_a_reconcile_that_did_not_read_everything(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """It says so at its end, and how to go on; the status says that it stopped."""
    await run("bulk", "run", payroll, *NEW, "--yes")
    sandbox.script(Fault.REFUSED, times=None, on="transactions")
    ran = await run("bulk", "reconcile", *SENT, "--interval", "0")
    assert 5 == ran.status
    assert "absence from the list of " in ran.err
    assert "go on with: payments-async bulk reconcile --journal j.sqlite --batch-id november" in " ".join(
        ran.err.split()
    )


async def test_a_session_of_another_account_reconciles_nothing(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Somebody's settings are those of a rehearsal still: they hear whose journal it is, and nothing is looked for."""
    assert 0 == (await run("bulk", "run", payroll, *NEW, "--yes")).status
    refused = await run("bulk", "reconcile", *SENT, PAYMENTS_USER_ID="somebody else")
    assert (2, True) == (refused.status, f"belongs to user {sandbox.user_id} at {sandbox.base_url}" in refused.said)
