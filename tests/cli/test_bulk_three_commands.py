"""A month in three commands and a colleague's approval in one: what a person types, and what is shown."""

import asyncio
import json
import re
import shlex
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter  # type: ignore[import-untyped]
from cli.commands import Run

from payments_async import Credentials, PaymentsSession
from payments_async._cli import batch_state
from payments_async.bulk import FileFormat, RunProgress, read_batch, run_batch
from payments_async.journal import SqliteJournal, State
from payments_async.sandbox import Fault, Sandbox

FIRST = ("--sheet", "Staff", "--map", "name=Jina", "--kind", "mobile_money", "--guess-items", "--derive-request-ids")
RULE = ("bulk", "approvals", "--needed", "1", "--shared-logins", "--who", "C. Board", "--why", "four eyes")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of our own, with two months of one payroll."""
    monkeypatch.chdir(tmp_path)
    write("Payroll October 2026.xlsx", 150_000)
    write("Payroll November 2026.xlsx", 160_000)
    return tmp_path


def write(name: str, pay: int, wallet: str = "0772000001") -> None:
    """A workbook as an office has it: a sheet of notes, a title, a total, a line to sign."""
    with xlsxwriter.Workbook(name) as book:
        book.add_worksheet("Notes").write(0, 0, "internal")
        staff = book.add_worksheet("Staff")
        staff.write(0, 0, "ACME - net pay")
        rows = [
            ["Staff No", "Jina", "Mobile Number", "Net Pay", "Department"],
            ["E1017", "Zoe Müller", wallet, pay, "Field"],
            ["E1018", "Basil Cole", "0752000002", 90_000, "Field"],
            ["", "TOTAL", "", pay + 90_000, ""],
            ["Prepared by: A. Clerk"],
        ]
        for number, row in enumerate(rows):
            staff.write_row(2 + number, 0, row)


def text_of(path: Path) -> str:
    """What stands in a file."""
    return path.read_text(encoding="utf-8-sig")


def change(path: Path, old: str, new: str) -> None:
    """Mend a file."""
    path.write_text(text_of(path).replace(old, new), encoding="utf-8-sig")


def put_back(here: Path, backup: Path) -> None:
    """The journal is that of the backup again, and nothing else of it is left."""
    for one in here.glob("pay.sqlite*"):
        one.unlink()
    shutil.copyfile(backup / "pay.sqlite", here / "pay.sqlite")


async def proposed(run: Run) -> str:
    """The first month is proposed, where all is said once; its digest."""
    plan = ("bulk", "plan", "Payroll October 2026.xlsx", "--journal", "pay.sqlite", "--new-journal", *FIRST)
    made = await run(*plan, "--maker", "A. Clerk", "--json")
    assert 0 == made.status
    return str(json.loads(made.out)["digest"])


async def october(run: Run, *options: str) -> str:
    """It is sent; its digest."""
    digest = await proposed(run)
    sent = await run("bulk", "run", "--yes", *options)
    assert (0, True) == (sent.status, f"2 {'successful' if options else 'accepted'}" in sent.said)
    return digest


@pytest.mark.slow(covered=True)
async def test_a_month(run: Run, sandbox: Sandbox, here: Path) -> None:
    """Plan, approve, run: no option that October's file has said, no name of a batch, no digest, no file twice."""
    sandbox.script(Fault.LOST_AFTER, on="money")
    await proposed(run)
    assert 4 == (await run("bulk", "run", "--yes")).status  # one of them is unknown, and hinders no later month
    assert 0 == (await run(*RULE)).status
    planned = await run("bulk", "plan", "Payroll November 2026.xlsx", "--maker", "A. Clerk", "--acknowledge")
    assert 0 == planned.status
    for words in (
        "batch payroll-november-2026",
        "read as on 20",
        "only the sheet 'Staff' is read",
        "Compared with payroll-october-2026",
    ):
        assert words in planned.said
    refused = await run("bulk", "run", "--yes")
    assert (2, 2) == (refused.status, len(sandbox.ledger))
    digest = json.loads((await run("bulk", "approvals", "--json")).out)["proposals"][-1]["digest"]
    approved = await run("bulk", "approve", digest[:8], "--who", "B. Head", "--yes")
    assert (0, True) == (approved.status, "250,000" in approved.said)
    sent = await run("bulk", "run", "--yes")
    assert (0, True) == (sent.status, "2 accepted" in sent.said)
    assert (4, []) == (len(sandbox.ledger), sandbox.duplicates())


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("before", [(), ("Cover",)])
async def test_a_workbook_with_a_sheet_for_each_month(run: Run, sandbox: Sandbox, before: tuple[str, ...]) -> None:
    """The sheet that was named for one month is not read for the next one unseen: the right one has to be named."""
    with xlsxwriter.Workbook("both.xlsx") as book:
        for name in before:
            book.add_worksheet(name).write(0, 0, "internal")
        for name, pay in (("October", 150_000), ("November", 160_000)):
            sheet = book.add_worksheet(name)
            sheet.write_row(0, 0, ["name", "phone", "amount"])
            sheet.write_row(1, 0, ["Zoe Cole", "0772000001", pay])
    how = ("--journal", "pay.sqlite", "--kind", "mobile_money", "--guess-items", "--derive-request-ids", "--json")
    first = await run("bulk", "plan", "both.xlsx", *how, "--sheet", "October", "--maker", "A. Clerk", "--new-journal")
    assert (0, "150000") == (first.status, json.loads(first.out)["total"])
    second = await run("bulk", "plan", "both.xlsx", *how, "--batch-id", "second")
    planned = json.loads(second.out)
    asked = planned["problems"] if before else planned["concerns"]
    assert ([2, True], 1) == ([second.status, "(--sheet)" in asked[0]["remedy"]], len(asked)), second.said


@pytest.mark.slow(covered=True)
async def test_the_currency_of_the_account_is_on_each_paper(run: Run, sandbox: Sandbox, here: Path) -> None:
    """A file that names no currency pays in that of its account: its proposal keeps it for later papers."""
    sandbox.script(Fault.REFUSED, on="money")
    digest = await proposed(run)
    ran = await run("bulk", "run", "--yes", "--settle", "--concurrency", "1")
    assert 3 == ran.status, ran.said
    batch = ("--batch-id", "payroll-october-2026")
    assert 3 == (await run("bulk", "status", *batch)).status
    async with SqliteJournal(here / "pay.sqlite") as journal:
        (paid,) = [one.request_id async for one in journal.entries("payroll-october-2026", State.SUCCESSFUL)]
        assert digest == (await journal.run("payroll-october-2026")).source_digest
    for papers in (
        ("report", *batch, "--html", "report.html", "--csv", "report.csv"),
        ("retry-file", *batch, "--csv", "retry.csv"),
        ("export", *batch, "--debit", "6000", "--credit", "1200", "--csv", "ledger.csv"),
        ("receipt", paid, "--payer", "ACME Ltd", "--html", "receipt.html"),
    ):
        assert (await run("bulk", *papers)).status in (0, 3), papers
    for name in ("report.html", "report.csv", "retry.csv", "ledger.csv", "receipt.html"):
        assert "UGX" in text_of(here / name), name
    assert 2 == text_of(here / "receipt.html").count("ACME Ltd")


@pytest.mark.slow(covered=True)
async def test_the_same_file_on_another_day_is_the_same_batch(run: Run, sandbox: Sandbox) -> None:
    """By its bytes, whatever it is called by then: what was sent is not sent again under a new name."""
    digest = await october(run)
    shutil.copyfile("Payroll October 2026.xlsx", "pay.xlsx")
    again = await run("bulk", "run", "pay.xlsx", "--yes", "--plan", digest[:8])
    assert "batch payroll-october-2026, which this very file has made before" in again.said
    assert (0, 2) == (again.status, len(sandbox.ledger))


async def test_a_file_that_was_changed_after_its_approval(run: Run, sandbox: Sandbox) -> None:
    """It is not sent, and the journal does not even begin it."""
    await proposed(run)
    write("Payroll October 2026.xlsx", 950_000)
    ran = await run("bulk", "run", "--yes")
    assert (2, 0) == (ran.status, len(sandbox.ledger))
    assert "these are not the payments that were approved" in ran.said


@pytest.mark.slow(covered=True)
async def test_what_is_begun_goes_on_by_its_own_digest_alone(run: Run, sandbox: Sandbox) -> None:
    """Whatever else --plan names, nothing is sent, though the proposal of what was begun has been taken back."""
    digest = await proposed(run)
    assert 5 == (await run("bulk", "run", "--yes", "--stop-at-total", "100000")).status
    assert 0 == (await run("bulk", "approve", digest, "--withdraw", "--who", "A. Clerk", "--yes")).status
    other = await run("bulk", "run", "--yes", "--plan", "deadbeef")
    assert (2, 0) == (other.status, len(sandbox.ledger)), other.said
    assert "--plan deadbeef: it names none of what can be sent: payroll-october-2026: " in other.said
    assert (0, 2) == ((await run("bulk", "run", "--yes", "--plan", digest[:8])).status, len(sandbox.ledger))


@pytest.mark.slow(covered=True)
async def test_what_a_batch_may_come_to_counts_without_its_file_too(run: Run, sandbox: Sandbox) -> None:
    """Before it is begun and when it goes on; an option that needs the file is refused, and not passed over."""
    await proposed(run)
    send = ("bulk", "run", "--yes")
    for limit in (("--max-total", "100000"), ("--max-each", "100000"), ("--skip-bad",), ("--map", "name=Jina")):
        refused = await run(*send, *limit)
        assert (2, 0) == (refused.status, len(sandbox.ledger)), refused.said
    assert 5 == (await run(*send, "--stop-at-total", "100000")).status
    for limit in (("--max-total", "100000"), ("--max-each", "100000")):
        refused = await run(*send, *limit)
        assert (2, True, 0) == (refused.status, limit[0] in refused.said, len(sandbox.ledger)), refused.said
    assert (0, 2) == ((await run(*send, "--max-total", "240000")).status, len(sandbox.ledger))


@pytest.mark.slow(covered=True)
async def test_a_concern_that_came_up_after_the_proposal(run: Run, sandbox: Sandbox) -> None:
    """A colleague has paid the same persons meanwhile: whoever proposed it has not looked at that."""
    plan = ("bulk", "plan", "Payroll October 2026.xlsx", "--journal", "pay.sqlite", "--new-journal", *FIRST)
    assert 0 == (await run(*plan, "--maker", "A. Clerk", "--acknowledge")).status
    shutil.copyfile("Payroll October 2026.xlsx", "copy.xlsx")
    copy = json.loads((await run("bulk", "plan", "copy.xlsx", "--batch-id", "copy", "--json")).out)["digest"]
    assert 0 == (await run("bulk", "run", "copy.xlsx", "--batch-id", "copy", "--yes", "--plan", copy)).status
    send = ("bulk", "run", "--batch-id", "payroll-october-2026", "--yes")
    refused = await run(*send)
    assert (2, 2) == (refused.status, len(sandbox.ledger)), refused.said
    assert "It would be paid twice" in refused.said
    assert (0, 4) == ((await run(*send, "--acknowledge")).status, len(sandbox.ledger))


@pytest.mark.slow
async def test_a_batch_that_is_sent_while_another_one_waits_for_its_yes(
    run: Run, run_on_terminal: Run, sandbox: Sandbox, here: Path
) -> None:
    """The question was about a plan that did not know it: a yes sends nothing, and the next plan compares the two."""
    await proposed(run)

    async def colleague() -> None:
        file = FileFormat(sheet="Staff", mapping={"name": "Jina"})
        how = {"kind": "mobile_money", "guess_items": True, "derive_request_ids": True}
        batch = await read_batch(here / "Payroll October 2026.xlsx", batch_id="copy", file=file, **how)
        who = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
        async with SqliteJournal(here / "pay.sqlite") as journal, PaymentsSession(sandbox.base_url, who) as payments:
            await run_batch(payments, journal, "copy", batch.orders)

    asked = await run_on_terminal("bulk", "run", typed="y\n", meanwhile=lambda: asyncio.run(colleague()))
    assert (2, 2) == (asked.status, len(sandbox.ledger)), asked.said
    assert "batch payroll-october-2026 was planned without batch copy" in asked.said
    again = await run("bulk", "run", "--yes", "--batch-id", "payroll-october-2026")
    assert (2, True) == (again.status, "It would be paid twice" in again.said)


@pytest.mark.slow(covered=True)
async def test_a_plan_that_is_proposed_fits_on_a_screen(run: Run, run_on_terminal: Run, here: Path) -> None:
    """Of 25 lines with 80 columns: with notes, a concern, who is paid twice, a comparison, and the two commands."""
    await october(run)
    write("Payroll November 2026.xlsx", 150_000, "0772000009")
    how = ("Payroll November 2026.xlsx", "--maker", "A. Clerk", "--acknowledge")
    shown = await run_on_terminal("bulk", "plan", *how, COLUMNS="80", LINES="25")
    for words in ("read as on", "1 concern: looked at", "Paid twice?", "1 to another account", "Proposed."):
        assert words in shown.said
    assert shown.out.count("\n") <= 25, shown.out


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("maker", [(), ("--maker", "A. Clerk")])
async def test_the_command_that_follows_concerns_is_printed_whole(
    run: Run, run_on_terminal: Run, sandbox: Sandbox, maker: tuple[str, ...]
) -> None:
    """On 25 lines of 80 columns, with the digest; pasted, it proposes or sends what was looked at."""
    await october(run)
    shutil.copyfile("Payroll October 2026.xlsx", "copy.xlsx")
    plan = ("copy.xlsx", "--batch-id", "copy", *maker)
    shown = await run_on_terminal("bulk", "plan", *plan, COLUMNS="80", LINES="25")
    text = re.sub(r"\x1b\[[0-9;]*m|\S+ -m (?=payments_async)", "", shown.out)
    assert 25 >= sum(max(1, -(-len(line) // 80)) for line in text.splitlines()), text
    digest = json.loads((await run("bulk", "plan", *plan, "--json")).out)["digest"]
    assert re.search(f"digest +{digest}", text)
    _, *pasted = shlex.split(text.splitlines()[-1])
    done = await run(*pasted, *(() if maker else ("--yes",)))
    assert (0, bool(maker)) == (done.status, "Proposed." in done.said), done.said
    assert (2 if maker else 4) == len(sandbox.ledger)


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_file_that_is_changed_while_it_is_sent(
    run: Run, sandbox: Sandbox, here: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """Its orders were loaded before: they are told as sent, and nobody is asked to plan them again."""
    digest = await proposed(run)

    async def changed_meanwhile(*parts: Any, **named: Any) -> RunProgress:
        sent = await run_batch(*parts, **named)
        (here / "Payroll October 2026.xlsx").unlink()
        if not is_gone:
            write("Payroll October 2026.xlsx", 950_000)
        return sent

    monkeypatch.setattr("payments_async._cli.commands.bulk.run.run_batch", changed_meanwhile)
    ran = await run("bulk", "run", "--yes", "--plan", digest)
    assert (0, 2) == (ran.status, len(sandbox.ledger)), ran.said
    assert ("2 accepted" in ran.said, "nothing was sent" in ran.said) == (True, False)


async def test_a_proposal_that_is_taken_back(run: Run, sandbox: Sandbox) -> None:
    """There is nothing to send any more, and nothing to approve."""
    digest = await proposed(run)
    back = await run("bulk", "approve", digest, "--withdraw", "--who", "A. Clerk", "--yes")
    assert (0, True) == (back.status, "withdrawn by A. Clerk" in back.said)
    ran = await run("bulk", "run", "--yes")
    assert (2, True, 0) == (ran.status, "nothing is proposed" in ran.said, len(sandbox.ledger))
    assert 2 == (await run("bulk", "approve", digest, "--who", "B. Head", "--yes")).status


@pytest.mark.slow(covered=True)
async def test_it_stays_until_all_is_settled(run: Run, sandbox: Sandbox) -> None:
    """With --settle, by the service's list, where no notification comes."""
    await october(run, "--settle")


@pytest.mark.slow(covered=True)
async def test_notifications_are_heard_while_it_is_sent(run: Run, sandbox: Sandbox) -> None:
    """In the same command, until each order is settled; nothing is looked up that a notification has told."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    sandbox.ipn_url = f"http://{address}/ipn"
    await october(run, "--listen", address, "--sender", "127.0.0.1")
    async with SqliteJournal("pay.sqlite") as journal:
        stories = [await journal.history(entry.request_id) async for entry in journal.entries()]
    assert [True, True] == [any(one.what == "notification" for one in story) for story in stories]


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("words", ["Zoe Müller", "muller", "0772 000001", "E1017"])
async def test_a_person_is_found_by_what_the_office_calls_them(run: Run, words: str) -> None:
    """Name, telephone or staff number lead to the story of her order, with her row in the file."""
    await october(run)
    told = await run("explain", words, "--show-personal")
    assert 0 == told.status
    assert "150,000" in told.said
    assert "row 4 of Payroll October 2026.xlsx: Staff No E1017, Department Field" in told.said
    masked = await run("explain", words)
    assert ("E1017" in masked.out, "Müller" in masked.out) == (False, False)


@pytest.mark.slow(covered=True)
async def test_several_persons_are_shown_to_choose_from(run: Run) -> None:
    """With their orders, and the command that tells of one; `bulk status --find` shows the same."""
    await october(run)
    for command in (("explain", "Field"), ("bulk", "status", "--find", "field")):
        told = await run(*command, "--show-personal")
        assert ("Zoe Müller" in told.said, "Basil Cole" in told.said) == (True, True)
    assert 2 == (await run("explain", "Nobody Here")).status


@pytest.mark.slow(covered=True)
async def test_a_sum_that_is_unusual_is_typed(run: Run, run_on_terminal: Run, sandbox: Sandbox) -> None:
    """A yes is not enough for much more than any month before; and the change is shown with name, amounts, accounts."""
    await october(run)
    write("Payroll November 2026.xlsx", 1_600_000)
    send = ("bulk", "run", "Payroll November 2026.xlsx", "--acknowledge")
    refused = await run_on_terminal(*send, typed="y\n")
    assert (5, 2) == (refused.status, len(sandbox.ledger))
    for words in ("No batch before it was more than", "240,000 UGX", "that is not the sum"):
        assert words in refused.said
    assert "Zoe Müller: 150,000 -> 1,600,000 (+967 %) to +256772000001" in refused.said
    sent = await run_on_terminal(*send, typed="1,690,000\n")
    assert (0, 4) == (sent.status, len(sandbox.ledger))


@pytest.mark.slow(covered=True)
async def test_the_silence_of_notifications_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes after the first acceptance, by the status and by the doctor, with what to look at."""
    await october(run)
    assert "No notification heard" not in (await run("bulk", "status")).said
    monkeypatch.setattr(batch_state, "_SILENT", 0)
    for command in (("bulk", "status"), ("doctor", "--journal", "pay.sqlite")):
        told = await run(*command)
        assert ("No notification heard" in told.said, "see that a receiver runs" in told.said) == (True, True)


@pytest.mark.slow
async def test_a_report_of_open_orders_says_how_to_settle_them(run: Run) -> None:
    """A report right after the run shows accepted orders: the service's list tells whether they were paid."""
    await october(run)
    early = await run("bulk", "report")
    assert "2 orders without a final outcome yet. Look them up, then report again:" in early.said
    assert "bulk reconcile --journal pay.sqlite --batch-id" in early.said
    await run("bulk", "run", "--settle", "--yes")
    assert "Look them up" not in (await run("bulk", "report", "--overwrite")).said


@pytest.mark.slow
async def test_the_silence_of_notifications_under_a_wrong_clock(run: Run) -> None:
    """It is told in days, and that the clock may be wrong; an acceptance that is yet to come proves that it is."""
    await october(run)
    async with SqliteJournal("pay.sqlite") as journal:
        ahead = await batch_state.silence(journal, clock=lambda: time.time() + 365 * 86_400)
        behind = await batch_state.silence(journal, clock=lambda: time.time() - 365 * 86_400)
        assert None is await batch_state.silence(journal, clock=lambda: time.time() - 60)
    assert "for 365 days" in str(ahead)
    assert "this machine's clock is right" in str(ahead)
    assert "clock is or was wrong: by it, orders were accepted 365 days from now" in str(behind)


@pytest.mark.slow(covered=True)
async def test_the_status_of_a_backup_that_was_put_back(run: Run, here: Path) -> None:
    """It says which batch it has forgotten, with status 4, and what to do: nothing looks like an empty journal."""
    await proposed(run)
    backup = shutil.copytree(here, here / "kept")
    assert 0 == (await run("bulk", "run", "--yes")).status
    put_back(here, backup)
    told = await run("bulk", "status")
    assert (4, True) == (told.status, "This journal has forgotten batch payroll-october-2026" in told.said), told.said
    assert 2 == (await run("bulk", "run", "--yes")).status


@pytest.mark.slow(covered=True)
async def test_problems_come_back_as_the_sheet_to_mend(run: Run, here: Path) -> None:
    """What is wrong stands beside each row; the mended file is read as the first one was, without an option."""
    await october(run)
    write("Payroll November 2026.xlsx", 160_000, wallet="07720001")
    planned = await run("bulk", "plan", "Payroll November 2026.xlsx", "--problems", "mend.csv")
    assert (2, True) == (planned.status, "wrote mend.csv: 1 row to mend" in planned.said), planned.said
    text = text_of(here / "mend.csv")
    assert "phone_number: " in next(line for line in text.splitlines() if "Zoe" in line)
    change(here / "mend.csv", "07720001", "0772000001")
    again = await run("bulk", "plan", "mend.csv", "--batch-id", "payroll-november-2026", "--acknowledge")
    assert (0, True) == (again.status, "2 payouts, 250,000 UGX" in again.said), again.said
