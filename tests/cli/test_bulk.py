"""`bulk plan`, `status`, `reconcile`, `report` and what persons decide: what people see, also when they err."""

import asyncio
import json
import re
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from bulk.files import row, write_csv
from cli.commands import NO_SERVICE, Run

from payments_async._cli import batch_state
from payments_async.bulk import sample_payroll
from payments_async.journal import Signal, SqliteJournal
from payments_async.journal.contract import Evidence
from payments_async.sandbox import Fault, Sandbox

BATCH = ("--batch-id", "november")
PEOPLE = ("Amber", "Brightwater", "772000001", "77200000")
CLERK = ("--who", "A. Clerk", "--why", "letter of 3 May", "--journal", "j.sqlite")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of our own, and the current one: file names are as short as people type them."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def payroll(here: Path) -> str:
    """A clean file of three rows."""
    rows = [row(request_id=f"RUN-{n}", amount=f"{n}000", phone_number=f"+25677200000{n}") for n in (1, 2, 3)]
    return write_csv(here / "payroll.csv", *rows).name


@pytest.fixture
def sent(run: Run, payroll: str) -> tuple[str, ...]:
    """The options that name the journal and the batch of that file."""
    return ("--journal", "j.sqlite", *BATCH)


def is_there(name: str) -> bool:
    """Whether there is such a file."""
    return Path(name).exists()


def text(name: str) -> str:
    """What is in a file."""
    return Path(name).read_text(encoding="utf-8")


def bytes_of(name: str) -> bytes:
    """What is in a file."""
    return Path(name).read_bytes()


def make_links(name: str) -> None:
    """Give a file two more names."""
    Path("link.csv").symlink_to(name)
    Path("hard.csv").hardlink_to(name)


async def test_a_clean_plan_ends_with_the_command_that_sends_it(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Sums, balance and digest are shown, nobody by name, and nothing is sent or written."""
    ran = await run("bulk", "plan", payroll, *BATCH, "--journal", "j.sqlite")
    assert (0, 0, "") == (ran.status, len(sandbox.ledger), ran.err)
    digest = json.loads((await run("bulk", "plan", payroll, *BATCH, "--json")).out)["digest"]
    command = (
        f"payments-async bulk run payroll.csv --journal j.sqlite --batch-id november --plan {digest} --new-journal"
    )
    assert command in ran.said
    assert "3 payouts, 6,000 UGX" in ran.said
    assert "balance 1,000,000,000 UGX" in ran.said
    assert not [person for person in PEOPLE if person in ran.out + ran.err]
    assert not is_there("j.sqlite")


async def test_every_problem_of_a_file_is_told_at_once(run: Run, sandbox: Sandbox, here: Path) -> None:
    """Those of its rows and those of the service, each with its remedy; the status is 2."""
    rows = [row(), row(request_id="RUN-2", amount="-5"), row(request_id="RUN-3", product_item_id="NOBODY_X")]
    name = write_csv(here / "bad.csv", *rows).name
    ran = await run("bulk", "plan", name, *BATCH)
    assert 2 == ran.status
    assert "2 problems: nothing can be sent as it is" in ran.said
    assert "1 amount: negative" in ran.said
    assert 'row 3 "\'-5"' in ran.said
    assert "1 product_item_id 'NOBODY_X': the service lists no such product" in ran.said
    assert "RUN-3 (row 4)" in ran.said
    assert "bulk run" not in ran.said
    skipping = await run("bulk", "plan", name, *BATCH, "--skip-bad")
    assert 0 == skipping.status
    assert "2 left out" in skipping.said
    assert "--skip-bad" in skipping.said


async def test_a_plan_asks_the_service_about_every_row(run: Run, here: Path) -> None:
    """--validate finds what only the service knows."""
    name = write_csv(here / "low.csv", row(amount="1")).name
    assert 0 == (await run("bulk", "plan", name, *BATCH)).status
    ran = await run("bulk", "plan", name, *BATCH, "--validate")
    assert 2 == ran.status
    assert "the service would refuse it: amount must be from 500" in ran.said


async def test_a_beneficiary_who_is_paid_twice_stands_out(run: Run, here: Path) -> None:
    """The two orders are named; whom they pay is masked."""
    name = write_csv(here / "twice.csv", row(), row(request_id="RUN-2")).name
    ran = await run("bulk", "plan", name, *BATCH)
    assert "Paid twice? Same beneficiary and amount: 1; same beneficiary, another amount: 0" in ran.said
    assert "RUN-2 (row 3): 150,000 to ***001, and the same amount by RUN-1 (row 2)" in ran.said


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        pytest.param(("plan", "no.csv", *BATCH), {}, "there is no file no.csv; check the name", id="no-file"),
        pytest.param(("run",), {"PAYMENTS_JOURNAL": "x.sqlite"}, "nothing is proposed; name the batch", id="run-what"),
        pytest.param(
            ("plan", "payroll.csv", *BATCH), {"PAYMENTS_APP_KEY": None}, "not set: PAYMENTS_APP_KEY", id="no-key"
        ),
        pytest.param(("run", "payroll.csv", *BATCH, "--yes"), {}, "--journal: name the journal's", id="run-nowhere"),
        pytest.param(
            ("run", "payroll.csv", *BATCH, "--journal", "j.sqlite"),
            {},
            "--new-journal: needed where there",
            id="run-no-journal",
        ),
        pytest.param(
            ("run", "payroll.csv", *BATCH, "--journal", "j.sqlite", "--new-journal"),
            {},
            "--yes: needed where there",
            id="run-not-asked",
        ),
        pytest.param(
            ("run", "payroll.csv", *BATCH, "--journal", "j.sqlite", "--plan", "d1635" * 13, "--yes"),
            {},
            "--plan: these are not the payments that were approved",
            id="run-not-approved",
        ),
        pytest.param(("status",), {}, "journal's file, or set PAYMENTS_JOURNAL", id="status-of-what"),
        pytest.param(("status", "--journal", "x.sqlite"), {}, "there is no file x.sqlite; check", id="status-typo"),
        pytest.param(("status", "--journal", "payroll.csv"), {}, "--journal payroll.csv:", id="status-no-database"),
        pytest.param(("reconcile",), {"PAYMENTS_JOURNAL": "x.sqlite"}, "no file x.sqlite", id="reconcile-typo"),
        pytest.param(("reconcile", "--sweeps", "1"), {}, "--sweeps", id="reconcile-one-sweep"),
        pytest.param(("report",), {}, "--journal: name the journal's file", id="report-no-journal"),
        pytest.param(
            ("send-again", "RUN-1", "--who", "A. Clerk"), {}, "Missing option '--why'", id="send-again-no-why"
        ),
        pytest.param(
            ("send-again", "RUN-1", "--who", " ", "--why", "x"), {}, "say who states it", id="send-again-nobody"
        ),
        pytest.param(("acknowledge", "RUN-1", "--why", "x"), {}, "Missing option '--who'", id="acknowledge-no-who"),
        pytest.param(("acknowledge", *CLERK, "RUN-1"), {}, "there is no file j.sqlite", id="acknowledge-no-journal"),
        pytest.param(("lift-quarantine", "--who", "A", "--why", " "), {}, "say who states it", id="lift-no-why"),
    ],
)
async def test_the_likeliest_mistakes_are_told_with_their_remedy(
    run: Run, sandbox: Sandbox, payroll: str, arguments: tuple[str, ...], settings: dict[str, str | None], words: str
) -> None:
    """Status 2, the option by its name, and nothing is sent."""
    ran = await run("bulk", *arguments, **settings)
    assert (2, 0) == (ran.status, len(sandbox.ledger))
    assert words in " ".join(ran.said.replace("│", " ").split())
    assert "Traceback" not in ran.said


async def test_no_service_is_no_plan(run: Run, payroll: str) -> None:
    """What could not be checked is not called clean."""
    ran = await run("bulk", "plan", payroll, *BATCH, PAYMENTS_BASE_URL=NO_SERVICE)
    assert 3 == ran.status
    assert "PAYMENTS_BASE_URL (--base-url)" in ran.said


async def test_rows_that_are_left_out_are_told_again_at_the_end(run: Run, here: Path, sent: tuple[str, ...]) -> None:
    """Who reads only the last lines must not take the file for paid; one of a thing is not called many."""
    name = write_csv(here / "bad.csv", row(), row(request_id="RUN-2", amount="-5")).name
    ran = await run("bulk", "run", name, *sent, "--yes", "--new-journal", "--skip-bad")
    assert 0 == ran.status
    assert "Left out of the file, and not paid: 1 row" in ran.said.partition("1 sent in")[2]
    assert "looked first: 0 transactions of" in ran.said
    assert "november: 1 payout," in (await run("bulk", "status", *sent)).said
    assert "Sum UGX" in (await run("bulk", "reconcile", *sent)).said


async def test_status_shows_how_a_batch_stands(run: Run, payroll: str, sent: tuple[str, ...]) -> None:
    """Counts and sums; the only batch need not be named; a batch that is not there names those that are."""
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    ran = await run("bulk", "status", PAYMENTS_JOURNAL="j.sqlite")
    assert 0 == ran.status
    assert "november: 3 payouts, 6,000 UGX" in ran.said
    assert "on the way 3 6,000 3 accepted" in ran.said
    typo = await run("bulk", "status", "--journal", "j.sqlite", "--batch-id", "nowember")
    assert 2 == typo.status
    assert "there is no batch nowember; the journal holds november" in typo.said


async def test_several_batches_are_listed(run: Run, payroll: str, sent: tuple[str, ...], here: Path) -> None:
    """Without a name all are shown, and the report asks which one."""
    other = write_csv(here / "other.csv", row(request_id="OTHER-1", phone_number="+256772000009")).name
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    await run("bulk", "run", other, "--journal", "j.sqlite", "--batch-id", "december", "--yes", "--new-journal")
    ran = await run("bulk", "status", "--journal", "j.sqlite")
    assert "november 3 6,000 UGX 3 accepted december 1 150,000 UGX 1 accepted" in ran.said
    asked = await run("bulk", "report", "--journal", "j.sqlite")
    assert 2 == asked.status
    assert "--batch-id: name one; the journal holds november, december" in asked.said


async def test_reconciling_settles_what_the_service_shows(
    run: Run, sandbox: Sandbox, payroll: str, sent: tuple[str, ...]
) -> None:
    """A lost answer is found in the list, a failed order is told by the status."""
    sandbox.script(Fault.LOST_AFTER, on="payout", request_id="RUN-1")
    sandbox.script(Fault.FAILS, on="payout", request_id="RUN-2")
    assert 4 == (await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")).status
    await sandbox.settle()
    ran = await run("bulk", "reconcile", *sent, "--interval", "0")
    assert 3 == ran.status
    assert "not paid 1 2,000 1 failed" in ran.said
    assert "paid 2 4,000 2 successful" in ran.said
    document = json.loads((await run("bulk", "reconcile", *sent, "--interval", "0", "--json")).out)
    assert (3, 2) == (document["exit_status"], document["progress"]["outcomes"]["successful"]["orders"])


async def test_reconciling_says_when_to_come_back(
    run: Run, sandbox: Sandbox, payroll: str, sent: tuple[str, ...]
) -> None:
    """What is accepted or unknown may be settled by a later look; once nothing is, no look is worth it."""
    sandbox.script(Fault.LOST_BEFORE, on="payout", request_id="RUN-1")
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    early = await run("bulk", "reconcile", *sent, "--interval", "0")
    assert (4, True) == (early.status, "Worth to look again: in " in early.said)
    await sandbox.settle()
    done = await run("bulk", "reconcile", *sent, "--interval", "0", "--grace", "0")
    assert (4, False) == (done.status, "Worth to look again" in done.said)


async def test_watching_until_all_is_settled(run: Run, sandbox: Sandbox, payroll: str, sent: tuple[str, ...]) -> None:
    """It looks again by itself, and tells what all looks together came to."""
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    watching = asyncio.ensure_future(run("bulk", "reconcile", *sent, "--interval", "0", "--watch", "--every", "1"))
    await asyncio.sleep(0)
    await sandbox.settle()
    done = await watching
    assert (0, True) == (done.status, "settled: 3 successful" in done.said), done.said


async def test_a_parked_order_is_written_off_by_name(
    run: Run, sandbox: Sandbox, payroll: str, sent: tuple[str, ...]
) -> None:
    """What nobody finds is parked; a person states that it never arrived; the next run sends it once."""
    sandbox.script(Fault.LOST_BEFORE, on="payout", request_id="RUN-2")
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    await sandbox.settle()
    who = ("--who", "A. Clerk", "--why", "letter of 3 May", "--journal", "j.sqlite")
    early = await run("bulk", "send-again", "RUN-2", *who, "--yes")
    assert (2, True) == (early.status, "RUN-2 is unknown; only a parked order can be sent again" in early.said)
    parked = await run("bulk", "reconcile", *sent, "--grace", "0", "--interval", "0")
    assert 4 == parked.status
    assert "parked now: not found, a person has to decide RUN-2" in parked.said
    asked = await run("bulk", "send-again", "RUN-2", *who)
    assert (2, True) == (asked.status, "--yes: needed" in asked.said)
    done = await run("bulk", "send-again", "RUN-2", *who, "--yes")
    assert (0, True) == (done.status, "RUN-2 is planned again, as A. Clerk states: letter of 3 May" in done.said)
    again = await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    assert (0, 1, []) == (again.status, sandbox.executions("RUN-2"), sandbox.duplicates())


async def test_several_parked_orders_are_written_off_at_once(
    run: Run, sandbox: Sandbox, payroll: str, sent: tuple[str, ...], tmp_path: Path
) -> None:
    """Named one by one or in a file; and none of them where one cannot be."""
    for request_id in ("RUN-2", "RUN-3"):
        sandbox.script(Fault.LOST_BEFORE, on="payout", request_id=request_id)
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    await sandbox.settle()
    await run("bulk", "reconcile", *sent, "--grace", "0", "--interval", "0")
    who = ("--who", "A. Clerk", "--why", "letter of 3 May", "--journal", "j.sqlite", "--yes")
    refused = await run("bulk", "send-again", "RUN-2", "RUN-1", *who)
    assert (2, True) == (refused.status, "RUN-1 is successful; only a parked order can be sent again" in refused.said)
    nothing = await run("bulk", "send-again", *who)
    assert (2, True) == (nothing.status, "REQUEST_ID: name an order" in nothing.said)
    ids = tmp_path / "ids.txt"
    ids.write_bytes("\ufeffRUN-3\r\n\r\nRUN-2\r\n".encode())
    done = await run("bulk", "send-again", "RUN-2", "--file", str(ids), *who, "--json")
    assert [{"request_id": "RUN-2", "state": "planned"}, {"request_id": "RUN-3", "state": "planned"}] == json.loads(
        done.out
    )["orders"]
    missing = await run("bulk", "send-again", "--file", "none.txt", *who)
    assert (2, True) == (missing.status, "--file: none.txt cannot be read" in missing.said)


@pytest.fixture
async def contradicted(run: Run, sandbox: Sandbox, payroll: str, sent: tuple[str, ...]) -> None:
    """All three orders were paid, and a notification says that the first one failed."""
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    await sandbox.settle()
    found = await run("bulk", "reconcile", *sent, "--interval", "0")
    assert "paid 3 6,000 3 successful" in found.said
    async with SqliteJournal("j.sqlite") as journal:
        failed = Evidence(
            signal=Signal.NOTIFIED_FAILED, source="notification 192.0.2.7", request_id="RUN-1", amount=Decimal(1000)
        )
        assert (await journal.apply_evidence(failed)) is not None


async def test_a_contradiction_is_acknowledged_by_name(run: Run, contradicted: None) -> None:
    """The order stays as it is, the batch is fine again, and the story keeps both."""
    status = await run("bulk", "status", "--journal", "j.sqlite")
    assert (4, True) == (status.status, "bulk acknowledge --journal j.sqlite REQUEST_ID --who" in status.said)
    asked = await run("bulk", "acknowledge", "RUN-1", *CLERK)
    assert (2, True) == (asked.status, "--yes: needed" in asked.said)
    done = await run("bulk", "acknowledge", "RUN-1", *CLERK, "--yes")
    assert 0 == done.status
    words = "a notification from 192.0.2.7 says that it failed, but it was known to be successful"
    assert f"contradiction {words}" in done.said
    assert "RUN-1 stays successful, as A. Clerk states: letter of 3 May" in done.said
    assert 0 == (await run("bulk", "status", "--journal", "j.sqlite")).status
    story = (await run("explain", "RUN-1", "--journal", "j.sqlite")).said
    assert words in story
    assert "A. Clerk decided: the contradiction is known, and may rest: letter of 3 May" in story
    again = await run("bulk", "acknowledge", "RUN-1", *CLERK, "--yes")
    assert (2, True) == (again.status, "nothing contradicts RUN-1" in again.said)


async def test_all_contradictions_of_one_reason_are_acknowledged_at_once(run: Run, contradicted: None) -> None:
    """By words of the reason, whatever the numbers in it; one document says which, who did it and why."""
    async with SqliteJournal("j.sqlite") as journal:
        for number, signal, source in (
            (2, Signal.NOTIFIED_FAILED, "notification 192.0.2.8"),
            (3, Signal.LOOKED_UP_FAILED, "list"),
        ):
            evidence = Evidence(signal=signal, source=source, request_id=f"RUN-{number}", amount=Decimal(1000 * number))
            assert (await journal.apply_evidence(evidence)) is not None
    command = ("bulk", "acknowledge", *CLERK, "--yes", "--reason")
    for words, refusal in (("orange", "in these words"), ("known to be successful", "2 reasons have these words")):
        refused = await run(*command, words)
        assert (2, True) == (refused.status, refusal in refused.said), refused.said
    done = json.loads((await run(*command, "a notification from 192.0.2.7 says that it FAILED", "--json")).out)
    assert [("RUN-1", "successful"), ("RUN-2", "successful")] == [(o["request_id"], o["state"]) for o in done["orders"]]
    assert ("A. Clerk", "letter of 3 May", 0) == (done["who"], done["why"], done["exit_status"])
    async with SqliteJournal("j.sqlite") as journal:
        assert 1 == (await journal.progress("november")).conflicts


@pytest.mark.slow
async def test_a_contradiction_that_comes_while_the_question_stands_is_not_acknowledged(
    run_on_terminal: Run, contradicted: None
) -> None:
    """The person answers for what was on the screen: the later one is shown, and is the next."""

    async def failed_too() -> None:
        async with SqliteJournal("j.sqlite") as journal:
            later = Evidence(signal=Signal.NOTIFIED_FAILED, source="notification 192.0.2.8", request_id="RUN-1")
            await journal.apply_evidence(later)

    ran = await run_on_terminal(
        "bulk", "acknowledge", "RUN-1", *CLERK, typed="y\n", meanwhile=lambda: asyncio.run(failed_too())
    )
    assert (4, True) == (ran.status, "meanwhile there is another contradiction" in ran.said)
    async with SqliteJournal("j.sqlite") as journal:
        assert 1 == (await journal.progress("november")).conflicts


@pytest.mark.slow(covered=True)
async def test_a_decision_can_be_left_alone(run_on_terminal: Run, contradicted: None) -> None:
    """Only a clear yes decides: status 5, and nothing was changed."""
    ran = await run_on_terminal("bulk", "acknowledge", "RUN-1", *CLERK, typed="n\n")
    assert (5, True) == (ran.status, "nothing was changed" in ran.said)
    assert "Do you know what is true, and may it stay successful? [y/N]" in ran.said
    async with SqliteJournal("j.sqlite") as journal:
        assert 1 == (await journal.progress("november")).conflicts


async def test_a_copied_journal_goes_on_once_somebody_has_looked_its_orders_up(
    run: Run, sandbox: Sandbox, payroll: str, sent: tuple[str, ...]
) -> None:
    """A copy does not know what was sent since: its batch stops, and a named person lets it go on."""
    assert 5 == (await run("bulk", "run", payroll, *sent, "--yes", "--new-journal", "--stop-at-total", "0")).status
    fine = await run("bulk", "lift-quarantine", *CLERK, "--yes")
    assert (2, True) == (fine.status, "no chunk of batch november is in quarantine" in fine.said)
    shutil.copyfile("j.sqlite", "k.sqlite")
    copied = ("--journal", "k.sqlite", "--batch-id", "november")
    stopped = await run("bulk", "run", payroll, *copied, "--yes", "--new-journal")
    assert (5, 0) == (stopped.status, len(sandbox.ledger))
    assert (
        "chunks in quarantine, since the journal was copied or restored, or its orders were adopted: 1;" in stopped.said
    )
    for asked_of in (copied, copied[:2]):  # one batch, and all of them
        status = await run("bulk", "status", *asked_of)
        assert (4, True) == (status.status, "in quarantine" in status.said)
    lift = ("bulk", "lift-quarantine", *copied, "--who", "A. Clerk", "--why", "statement of 3 May")
    assert "payments-async bulk lift-quarantine --journal k.sqlite --batch-id november --who NAME" in stopped.said
    early = await run(*lift, "--yes")
    assert (2, True) == (early.status, "was not looked for since the journal was copied or restored" in early.said)
    assert "payments-async bulk reconcile --journal k.sqlite --batch-id november" in early.said
    looked = await run("bulk", "reconcile", *copied)
    assert (4, True) == (
        looked.status, "november: in quarantine, since the journal was copied or restored" in looked.said
    )  # fmt: skip
    assert "Batch november stays in quarantine: 2 complete lists of the service that show orders of ours" in looked.said
    waits = await run(*lift, "--yes")
    assert (2, True) == (waits.status, "until now 0 were" in waits.said)
    some = await run(*lift, "RUN-1", "--yes")
    assert (True, True) == (some.status != 0, "of 2 orders nothing was stated, such as RUN-2" in some.said)
    lift = (*lift, "RUN-1", "RUN-2", "RUN-3")  # the list shows nothing of these days: so each is named
    asked = await run(*lift)
    assert (2, True) == (asked.status, "--yes: needed" in asked.said)
    done = await run(*lift, "--yes")
    assert (0, True) == (done.status, "november: 1 chunk may be sent again, as A. Clerk states: statement" in done.said)
    assert 0 == (await run("bulk", "run", payroll, *copied, "--yes", "--new-journal")).status
    assert (3, []) == (len(sandbox.ledger), sandbox.duplicates())
    assert 2 == (await run(*lift, "--yes", "--json")).status


async def test_a_listing_deadline_is_proposed_approved_shown_and_withdrawn(
    run: Run, payroll: str, sent: tuple[str, ...]
) -> None:
    """Its risk is asked about; others approve it; status shows it, and what has become of it."""
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    terms = ("--within", "7200", "--until", "2999-01-01", "--orders", "5", "--amount", "2000", "--currency", "UGX")
    give = ("bulk", "listing-deadline", *CLERK, *terms, "--total", "5,000")
    assert "all of them, or --withdraw" in (await run("bulk", "listing-deadline", *CLERK, *terms)).said
    assert (2, True) == ((asked := await run(*give)).status, "--yes: needed" in asked.said)
    board = ("--who", "C. Board", "--why", "four eyes", "--shared-logins", "--yes")
    assert 0 == (await run("bulk", "approvals", "--journal", "j.sqlite", "--needed", "1", *board)).status
    refused = await run(*give, "--yes")
    (digest,) = re.findall(r"bulk approve ([0-9a-f]{64})", refused.said)
    assert (2, True) == (refused.status, "1 person must approve it" in refused.said)
    approved = await run("bulk", "approve", digest, "--who", "B. Head", "--journal", "j.sqlite", "--yes")
    assert (0, True) == (approved.status, "send again by itself what the service has not listed" in approved.said)
    done = await run(*give, "--yes")
    assert (0, True) == (done.status, "is sent again, as A. Clerk states: letter of 3 May" in done.said)
    words = "listed within 7200 s, until 2999-01-01 00:00 UTC, for 5 orders, each of 2,000 at most, UGX 5,000 in all"
    assert (
        f"Listing deadline: {words}: A. Clerk (letter of 3 May), 0 orders sent again"
        in (await run("bulk", "status", *sent)).said
    )
    back = ("bulk", "listing-deadline", "--withdraw", "--currency", "UGX", *CLERK)
    assert ("withdrawn; what" in (await run(*back)).said, "no such word" in (await run(*back)).said) == (True, True)
    assert "over: A. Clerk has withdrawn it" in (await run("bulk", "status", *sent)).said


async def test_a_report_is_written_once(run: Run, payroll: str, sent: tuple[str, ...]) -> None:
    """Both files, named after the batch, masked; they are replaced only when told to."""
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    ran = await run("bulk", "report", *sent)
    assert 0 == ran.status
    assert "wrote november-report.csv wrote november-report.html 3 orders, not final yet: 3 accepted" in ran.said
    both = text("november-report.csv") + text("november-report.html")
    assert not [person for person in PEOPLE if person in both]
    again = await run("bulk", "report", *sent)
    assert 2 == again.status
    assert "november-report.csv is there already; nothing was written; --overwrite replaces it" in again.said
    assert 0 == (await run("bulk", "report", *sent, "--overwrite", "--show-personal")).status
    assert "Amber Brightwater" in text("november-report.csv")


@pytest.mark.parametrize("name", ["payroll.csv", "j.sqlite", "j.sqlite-wal", "J.SQLITE-MARK", "link.csv", "hard.csv"])
@pytest.mark.parametrize("option", ["--csv", "--html"])
async def test_a_report_never_replaces_what_is_no_report(
    run: Run, payroll: str, sent: tuple[str, ...], name: str, option: str
) -> None:
    """Not the file it was made from, not the journal, by no other name of theirs, with --overwrite or without."""
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    make_links(payroll)
    before = bytes_of(payroll)
    for more in ((), ("--overwrite",)):
        ran = await run("bulk", "report", *sent, option, name, *more)
        assert (2, True) == (ran.status, "name another file; nothing was written" in ran.said), ran.said
    assert before == bytes_of(payroll)
    assert 0 == (await run("bulk", "status", *sent)).status


async def test_a_batch_named_after_its_file_keeps_it(run: Run, payroll: str) -> None:
    """The report's own name is another one."""
    named = ("--batch-id", "payroll", "--journal", "j.sqlite")
    before = bytes_of(payroll)
    await run("bulk", "run", payroll, *named, "--yes", "--new-journal")
    assert 0 == (await run("bulk", "report", *named, "--overwrite")).status
    assert before == bytes_of(payroll)


async def test_what_was_not_paid_is_named_with_the_reason(
    run: Run, sandbox: Sandbox, payroll: str, sent: tuple[str, ...]
) -> None:
    """By status and report, to people and machines; nothing is green about it."""
    sandbox.script(Fault.REFUSED, on="payout")
    told = await run("bulk", "run", payroll, *sent, "--yes", "--new-journal", "--concurrency", "1")
    assert "1 order not paid. Which, and why: payments-async bulk status" in told.said
    for command in ("status", "report"):
        ran = await run("bulk", command, *sent)
        assert 3 == ran.status
        assert "not paid 1 1,000 1 rejected" in ran.said
        assert 'Not paid, and why: 1 1 rejected: the service says "code 4000: The transaction was refused"' in ran.said
    (unpaid,) = json.loads((await run("bulk", "status", *sent, "--json")).out)["not_paid"]
    assert ("rejected", 1, ["RUN-1"]) == (
        unpaid["state"],
        unpaid["orders"],
        [one["request_id"] for one in unpaid["first"]],
    )


@pytest.mark.slow(covered=True)
async def test_three_hundred_rows_fit_on_a_screen(run: Run, run_on_terminal: Run, sandbox: Sandbox, here: Path) -> None:
    """Of 25 lines with 80 columns, whatever is wrong with them: the plan, how the batch stands, and its report."""
    rows = [row(request_id=f"RUN-{n}", amount=f"{n + 500}", phone_number=f"+2567720{n:05}") for n in range(300)]
    wrong = [
        *(("amount", "-5"), ("phone_number", "123"), ("amount", "abc"), ("phone_number", "+256772000000")),
        *(("product_item_id", "NONE"), ("kind", "cheque"), ("name", ""), ("request_id", "RUN-0"), ("area", "9" * 400)),
    ]
    bad = [one | dict([wrong[n % len(wrong)]] if n % 12 else []) for n, one in enumerate(rows)]
    payroll, worse = (write_csv(here / name, *many).name for name, many in (("p.csv", rows), ("b.csv", bad)))
    for n in range(300):
        match n % 10:
            case 1 | 2:
                words = f"The wallet of kind {'abcdefg'[n % 7]} is not registered with this operator, nor with another"
                sandbox.script(Fault.REFUSED, on="payout", request_id=f"RUN-{n}", code=1 + n % 7, message=words)
            case 3:
                sandbox.script(Fault.FAILS, request_id=f"RUN-{n}")
            case 4 | 5:
                sandbox.script(Fault.LOST_AFTER, on="payout", request_id=f"RUN-{n}")
    of = ("--journal", "many.sqlite", "--batch-id", "many")
    seen = {"plan": await run_on_terminal("bulk", "plan", worse, *of, COLUMNS="80", LINES="25")}
    patient = ("--max-unknown", "300", "--max-error-rate", "1")
    assert 4 == (await run("bulk", "run", payroll, *of, "--new-journal", "--yes", *patient)).status
    async with SqliteJournal("many.sqlite") as journal:
        for n in (4, 14, 24):
            await journal.park(f"RUN-{n}", detail="two list scans")
    for command in ("status", "report"):
        seen[command] = await run_on_terminal("bulk", command, *of, COLUMNS="80", LINES="25")
    assert "for 4 other reasons; --all shows them" in seen["plan"].said
    assert all("Not paid, and why" in seen[one].said for one in ("status", "report"))
    assert {} == {one: ran.out for one, ran in seen.items() if ran.out.count("\n") > 25}


async def test_reasons_that_are_not_counted_are_told(
    run: Run, sandbox: Sandbox, payroll: str, sent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a state so many orders are looked at; how many there are beyond that is said, to people and machines."""
    monkeypatch.setattr(batch_state, "_LOOKED_AT", 2)
    sandbox.script(Fault.REFUSED, on="payout", times=3)
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    words = "after the first 2, with reasons that are not counted here"
    assert f"1 rejected: {words}" in (await run("bulk", "status", *sent)).said
    found = json.loads((await run("bulk", "status", *sent, "--json")).out)["not_paid"]
    assert [2, 1] == [one["orders"] for one in found]
    assert words == found[1]["why"]


async def test_each_help_has_an_example_and_the_group_its_exit_statuses(run: Run) -> None:
    """Who is stuck reads the help."""
    for name in ("plan", "run", "status", "reconcile", "report", "send-again", "acknowledge", "lift-quarantine"):
        said = (await run("bulk", name, "--help")).said
        assert f"Example: payments-async bulk {name}" in said
    group = (await run("bulk", "--help")).said
    assert "4 some unknown, parked, in conflict or in quarantine" in group
    assert "Example: payments-async explain" in (await run("explain", "--help")).said


async def test_a_sample_of_every_kind_can_be_planned(run: Run) -> None:
    """The file that ships with the package is clean."""
    with sample_payroll() as path:
        document = json.loads((await run("bulk", "plan", str(path), *BATCH, "--json")).out)
    assert (True, 200) == (document["clean"], document["count"])
    assert {"airtime", "bank_transfer", "internet", "mobile_money", "utility"} == set(document["by_kind"])


async def test_a_journal_is_left_as_it_was_by_who_only_looks(run: Run, payroll: str, sent: tuple[str, ...]) -> None:
    """Looking changes no order."""
    await run("bulk", "run", payroll, *sent, "--yes", "--new-journal")
    for command in (("status",), ("report",)):
        await run("bulk", *command, *sent)
    async with SqliteJournal("j.sqlite") as journal:
        assert 3 == (await journal.progress("november")).counts["accepted"]


async def test_a_concern_is_acknowledged_before_anything_is_sent(run: Run, sandbox: Sandbox, here: Path) -> None:
    """Plan and run name it; the command that sends the file says that it was looked at."""
    name = write_csv(here / "banks.csv", row(kind="bank_transfer", bank_code="Hilltop Bank")).name
    batch = ("--batch-id", "banks", "--journal", "b.sqlite")
    planned = await run("bulk", "plan", name, *batch)
    assert 2 == planned.status
    words = "1 concern: look at it; nothing is sent without --acknowledge 1 bank_code 'Hilltop Bank': looks"
    assert words in planned.said
    refused = await run("bulk", "run", name, *batch, "--yes", "--new-journal")
    assert (2, 0) == (refused.status, len(sandbox.ledger))
    assert "nothing was sent; look at them" in refused.said
    approved = await run("bulk", "plan", name, *batch, "--acknowledge")
    assert (0, True) == (approved.status, "--acknowledge --plan" in approved.said)
    sent = await run("bulk", "run", name, *batch, "--yes", "--acknowledge", "--new-journal")
    assert (0, 1) == (sent.status, len(sandbox.ledger))
