"""A journal in a database is named by its DSN wherever a file is, and its password is shown nowhere."""

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from bulk.files import row, write_csv
from bulk.worlds import session
from cli.commands import Ran, Run
from journal import postgres

from payments_async.journal import JournalUnavailable, PostgresJournal, SqliteJournal, journal_at
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Sandbox

ITEM = "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"
PAY = ("pay", "--request-id", "voucher-17", "--amount", "150000", "--item", ITEM, "--name", "Grace Akello",
       "--wallet", "+256772000017", "--yes")  # fmt: skip
PASSWORD = "correct-horse-battery"


@pytest.fixture
def dsn() -> str:
    """Of an empty database; nobody asks for the password."""
    return postgres.new_database().replace("postgres@", f"postgres:{PASSWORD}@")


def told(ran: Ran) -> Ran:
    """What a command said, which is not the password."""
    assert PASSWORD not in ran.out + ran.err
    return ran


async def test_an_order_is_paid_once(run: Run, sandbox: Sandbox, dsn: str) -> None:
    """The second time it is found in the database."""
    first = told(await run(*PAY, "--new-journal", PAYMENTS_JOURNAL=dsn))
    again = told(await run(*PAY, "--json", PAYMENTS_JOURNAL=dsn))
    assert (0, 0, 1) == (first.status, again.status, sandbox.executions("voucher-17"))
    document = json.loads(again.out)
    assert not document["sent_by_this_command"]
    assert document["journal"].startswith("postgresql://postgres:***@/payments_empty")
    explained = told(await run("explain", "voucher-17", PAYMENTS_JOURNAL=dsn))
    assert (0, True) == (explained.status, "a POST happens only after a committed permit" in explained.out)


async def test_a_batch_is_sent_and_told_of(
    run: Run, sandbox: Sandbox, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned, sent, shown, reconciled and reported on; the commands that it names hide the password."""
    monkeypatch.chdir(tmp_path)
    rows = [row(request_id=f"RUN-{n}", amount=f"{n}000", phone_number=f"+2567720000{n:02}") for n in range(1, 8)]
    file = write_csv(tmp_path / "payroll.csv", *rows).name
    planned = told(await run("bulk", "plan", file, "--batch-id", "november", "--journal", dsn))
    assert "--journal 'postgresql://postgres:***@" in planned.out
    sent = told(await run("bulk", "run", file, "--batch-id", "november", "--journal", dsn, "--new-journal", "--yes"))
    assert (0, 7) == (sent.status, len(sandbox.ledger))
    for command in (["status"], ["reconcile"], ["report", "--csv", "report.csv"]):
        assert 0 == told(await run("bulk", *command, "--journal", dsn)).status


@pytest.mark.slow(covered=True)
async def test_an_order_that_could_not_be_taken(run: Run, sandbox: Sandbox, dsn: str) -> None:
    """Is shown with its problem and what to do about it, and dropped by a named person."""
    assert 0 == told(await run(*PAY, "--new-journal", PAYMENTS_JOURNAL=dsn)).status
    async with (
        PostgresJournal(dsn) as journal,
        session(sandbox) as payments,
        Outbox(payments, journal, worker=WorkerSettings(sends=False)),
    ):
        with psycopg.connect(dsn) as connection:
            connection.execute(
                """INSERT INTO payments.tray
                (outbox, request_id, request_key, amount, body, body_sha256, not_before, priority, at, problem)
                VALUES ('outbox', 'W-17', 'w-17', '5', 'x', 'x', 0, 0, 0, 'it was edited')"""
            )
    status = told(await run("outbox", "status", "--journal", dsn))
    assert (4, True, True) == (
        status.status,
        "W-17 it was edited" in status.said,
        "outbox drop" in status.said,
    ), status
    document = json.loads(told(await run("outbox", "status", "--json", "--journal", dsn)).out)
    assert [{"request_id": "W-17", "amount": "5", "why": "it was edited"}] == document["untaken_orders"]
    drop = ("outbox", "drop", "W-17", "--who", "Ann", "--why", "credited again", "--journal", dsn)
    assert (0, 2) == (told(await run(*drop)).status, told(await run(*drop)).status)
    assert 0 == told(await run("outbox", "status", "--journal", dsn)).status


async def test_a_database_without_a_journal(run: Run, dsn: str) -> None:
    """Is told of, and none is made by looking."""
    for command in (["bulk", "status"], ["outbox", "status"], ["ipn", "list"]):
        ran = told(await run(*command, "--journal", dsn))
        assert (2, True) == (ran.status, "there is no journal in postgresql://" in ran.err), ran
    asked = told(await run(*PAY, "--journal", dsn))
    assert (2, True) == (asked.status, "--new-journal: needed" in asked.err), asked
    assert not await journal_at(dsn).exists()


@pytest.mark.parametrize("wrong", ["/nowhere", ":1/closed"])
async def test_a_database_that_is_not_there(run: Run, dsn: str, wrong: str) -> None:
    """Is told of in words; nothing was sent."""
    if wrong == "/nowhere":
        nowhere = dsn.replace("/payments_", "/no_")
    else:
        nowhere = f"postgresql://postgres:{PASSWORD}@127.0.0.1{wrong}"
    ran = told(await run(*PAY, "--journal", nowhere))
    assert (2, True) == (ran.status, "--journal postgresql://" in ran.err), ran


async def test_a_dsn_that_is_none(run: Run) -> None:
    """Is refused, and not repeated."""
    ran = told(await run("bulk", "status", "--journal", f"postgresql://postgres:{PASSWORD} x@/%%"))
    assert (2, True) == (ran.status, "libpq does not understand it" in ran.err), ran


def test_what_a_setting_names(tmp_path: Path) -> None:
    """A path is a file; what has a scheme is a database."""
    assert isinstance(journal_at(tmp_path / "a.sqlite"), SqliteJournal)
    assert isinstance(journal_at("postgresql"), SqliteJournal)
    assert "postgresql://u:***@h/d?sslmode=require" == journal_at("postgres://u:p@h/d?sslmode=require").place.replace(
        "postgres:", "postgresql:"
    )


def test_psycopg_is_imported_for_a_database_alone() -> None:
    """And where it is missing, the extra that brings it is named."""
    script = """
import sys
sys.modules["psycopg"] = None
import payments_async.journal
payments_async.journal.journal_at("file.sqlite")
try:
    payments_async.journal.PostgresJournal("postgresql://host/name")
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert "a journal in PostgreSQL needs psycopg: pip install 'payments-async[postgres]'\n" == done.stdout


async def test_a_journal_is_asked_for_in_vain(dsn: str) -> None:
    """Whether there is one cannot be told of a server that is not there."""
    with pytest.raises(JournalUnavailable):
        await journal_at("postgresql://127.0.0.1:1/closed").exists()
