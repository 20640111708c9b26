"""`bulk plan` and `bulk run` with files as people have them, and against last month's: what people see."""

import json
import shutil
from pathlib import Path

import pytest
from bulk.files import MTN
from cli.commands import Ran, Run

from payments_async.sandbox import Sandbox

HEADER = "Jina;Simu;Mshahara;Idara"
MAPPED = ("--map", "name=Jina", "--map", "phone_number=Simu", "--map", "amount=Mshahara")
HOW = ("--kind", "mobile_money", "--derive-request-ids")
OCTOBER = ("october.csv", "--batch-id", "october")
NOVEMBER = ("november.csv", "--batch-id", "november")
KEPT = ("--journal", "j.sqlite")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of our own, and the current one, with the payrolls of two months."""
    monkeypatch.chdir(tmp_path)
    people = ["Amber B;0772000001;150000;A", "Basil C;0752000002;90,000;A", "Cora D;0772000003;5000;B"]
    write("october.csv", *people, ";TOTAL;245000;")
    write("november.csv", "Amber B;0772000001;300000;A", people[1], "Dina E;0752000004;1;B", ";TOTAL;390,001;")
    return tmp_path


def text_of(name: str) -> str:
    """What stands in a file for spreadsheets."""
    return Path(name).read_text(encoding="utf-8-sig")


def write(name: str, *rows: str) -> None:
    """A file with a title and that header."""
    Path(name).write_text("\n".join(["ACME - net pay", "", HEADER, *rows, ""]), encoding="utf-8")


def write_remarks(name: str) -> None:
    """A file with a column that people write for themselves."""
    row = f"PAY-1,momo,1000,Amber B,0772000001,{MTN},dismissed - last pay"
    Path(name).write_text(f"id,kind,net pay,name,phone,item,Remarks\n{row}\n", encoding="utf-8")


def is_there(name: str) -> bool:
    """Whether there is such a file."""
    return Path(name).exists()


def mode_of(name: str) -> int:
    """Who may read a file."""
    return Path(name).stat().st_mode & 0o777


def words_of(name: str) -> str:
    """All of a file."""
    return Path(name).read_text(encoding="utf-8")


def damage(name: str) -> None:
    """Leave half of a file."""
    Path(name).write_text("{", encoding="utf-8")


async def digest_of(run: Run, *arguments: str) -> str:
    """What is to be approved of a plan."""
    digest: str = json.loads((await run("bulk", "plan", *arguments, "--json")).out)["digest"]
    return digest


async def sent_october(run: Run) -> Ran:
    """October's payroll is sent, with guesses that were approved."""
    arguments = (*OCTOBER, *KEPT, *MAPPED, *HOW, "--guess-items")
    approved = ("--plan", await digest_of(run, *arguments))
    return await run("bulk", "run", *arguments, *approved, "--yes", "--new-journal")


async def test_columns_are_said_once(run: Run, here: Path) -> None:
    """They are kept beside the journal by the header, shown where they are used, and mean nothing for another one."""
    first = await run("bulk", "plan", *OCTOBER, *KEPT, *MAPPED, *HOW, "--guess-items")
    assert (0, True) == (first.status, is_there("j.sqlite.columns.json"))
    assert "j.sqlite.columns.json: a file with this header is read so from now on" in first.said
    assert "--map name=Jina --map phone_number=Simu --map amount=Mshahara" in first.said
    assert not is_there("j.sqlite")
    next_month = await run("bulk", "plan", *NOVEMBER, *KEPT, *HOW, "--guess-items")
    assert 0 == next_month.status
    assert "read as on 20" in next_month.said
    for line in (
        "Jina as name (--map)",
        "Mshahara as amount (--map)",
        "not read Idara",
    ):
        assert line in next_month.said
    other = await run("bulk", "plan", *NOVEMBER, "--journal", "k.sqlite", *HOW, "--guess-items")
    assert (2, True) == (other.status, "no header" in other.said)
    assert 0o600 == mode_of("j.sqlite.columns.json")


async def test_how_a_file_was_read_is_said_once(run: Run, here: Path) -> None:
    """Next month's file needs no option: those of this header are kept, and told; --forget begins anew."""
    await run("bulk", "plan", *OCTOBER, *KEPT, *MAPPED, *HOW, "--guess-items")
    later = await run("bulk", "plan", *NOVEMBER, *KEPT, "--currency", "UGX")
    assert 0 == later.status
    assert "read as on 20" in later.said
    told = "--kind mobile_money --guess-items --derive-request-ids --map "
    assert told in later.said.partition("--forget forgets that")[0]
    next_step = later.out.partition("To send exactly this")[2]
    for option in ("--kind mobile_money", "--guess-items", "--derive-request-ids", "--currency UGX"):
        assert option in next_step
    other = await run("bulk", "plan", *NOVEMBER, *KEPT, *MAPPED, "--kind", "mobile_money", "--forget")
    assert (2, True) == (other.status, "(--guess-items)" in other.said)
    assert 2 == (await run("bulk", "plan", *NOVEMBER, *KEPT)).status


async def test_the_file_comes_back_with_the_outcome_of_each_row(run: Run, here: Path) -> None:
    """By the report, which knows how it was read; no file is replaced."""
    await sent_october(run)
    back = ("bulk", "report", *KEPT, "--batch-id", "october", "--file", "october.csv", "--xlsx", "back.csv")
    told = await run(*back)
    assert "wrote back.csv: 3 of 3 rows with an outcome" in told.said
    shown = text_of("back.csv")
    assert ("ACME - net pay", 3) == (shown.splitlines()[0], shown.count("accepted, not settled"))
    again = await run(*back, "--overwrite")
    assert (2, True) == (again.status, "back.csv is there, and is not a report: it is never replaced" in again.said)


async def test_what_was_kept_of_columns_can_be_damaged(run: Run, here: Path) -> None:
    """The remedy names the file."""
    damage("j.sqlite.columns.json")
    ran = await run("bulk", "plan", *OCTOBER, *KEPT, *HOW)
    assert (2, True) == (ran.status, "j.sqlite.columns.json: what was kept of columns cannot be read" in ran.said)


@pytest.mark.parametrize("said", ["name", "name=", "=Jina", "shoe=Jina"])
async def test_columns_that_cannot_be_meant_are_refused(run: Run, here: Path, said: str) -> None:
    """With what is wrong, and nothing is kept."""
    ran = await run("bulk", "plan", *OCTOBER, *KEPT, *HOW, "--map", said)
    assert (2, False) == (ran.status, is_there("j.sqlite.columns.json"))
    assert "--map" in ran.err


async def test_guesses_are_shown_and_never_sent_unseen(run: Run, sandbox: Sandbox, here: Path) -> None:
    """Without a digest that was approved, or somebody to ask, nothing is sent."""
    arguments = (*OCTOBER, *KEPT, *MAPPED, *HOW)
    bare = await run("bulk", "plan", *arguments)
    assert (2, True) == (bare.status, "have it guessed by the numbers' operators (--guess-items)" in bare.said)
    shown = await run("bulk", "plan", *arguments, "--guess-items")
    assert "Guessed by the operators that numbers were given to" in shown.said
    assert "MTN mobile_money MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG 2 155,000" in shown.said
    unseen = await run("bulk", "run", *arguments, "--guess-items", "--yes", "--new-journal")
    assert (2, 0) == (unseen.status, len(sandbox.ledger))
    assert "a person has to look at the guesses" in unseen.said
    sent = await sent_october(run)
    assert (0, 3) == (sent.status, len(sandbox.ledger))


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "status", "words"), [("y\n", 0, "--guess-items"), ("n\n", 2, "no such column")])
async def test_guesses_are_offered_where_somebody_can_be_asked(
    run_on_terminal: Run, here: Path, typed: str, status: int, words: str
) -> None:
    """A no leaves the file as it was."""
    ran = await run_on_terminal("bulk", "plan", *OCTOBER, *KEPT, *MAPPED, *HOW, typed=typed)
    assert (status, True) == (ran.status, words in ran.said)
    assert "Rows name no item. Take these guesses? [y/N]" in ran.said


@pytest.mark.slow
async def test_a_plan_is_compared_with_last_month(run: Run, here: Path) -> None:
    """By the batch of the journal or its file; nobody is named."""
    await sent_october(run)
    for other in ("october", "october.csv"):
        ran = await run("bulk", "plan", *NOVEMBER, *KEPT, *HOW, "--guess-items", "--compare", other)
        assert 0 == ran.status
        assert f"Compared with {other} (3 payouts, 245,000 UGX): 1 payee as before" in ran.said
        assert "150,000 -> 300,000 (+100 %) to ***001" in ran.said
        assert "1 new:" in ran.said
        assert "1 gone:" in ran.said
        assert not [person for person in ("Amber", "Dina", "772000") if person in ran.out + ran.err]
    found = json.loads(
        (await run("bulk", "plan", *NOVEMBER, *KEPT, *HOW, "--guess-items", "--compare", "october", "--json")).out
    )
    assert {"new": 1, "gone": 1, "amount": 1} == {kind: n for kind, n in found["comparison"]["counts"].items() if n}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--compare", "september"), "neither a batch in the journal (it has none) nor a file september"),
        (("--compare-change", "much"), "--compare-change: much is not a percentage"),
        (("--max-each", "x"), "--max-each: x: no amount"),
        (("--max-total", "-5"), "--max-total: -5: negative"),
    ],
)
async def test_checks_that_cannot_be_meant_are_refused(
    run: Run, here: Path, options: tuple[str, ...], words: str
) -> None:
    """With the option that is wrong."""
    ran = await run("bulk", "plan", *OCTOBER, *KEPT, *MAPPED, *HOW, "--guess-items", *options)
    assert (2, True) == (ran.status, words in ran.said)


async def test_limits_keep_a_batch_from_being_sent(run: Run, sandbox: Sandbox, here: Path) -> None:
    """For each and in total; a run keeps that for each too."""
    arguments = (*OCTOBER, *KEPT, *MAPPED, *HOW, "--guess-items")
    ran = await run("bulk", "plan", *arguments, "--max-each", "100,000", "--max-total", "245,000")
    assert (2, True) == (ran.status, "more than the 100,000 allowed to each" in ran.said)
    assert "allowed to all" not in ran.said
    ran = await run("bulk", "plan", *arguments, "--max-total", "244,999")
    assert (2, True) == (ran.status, "1 above the 244,999 allowed to all of it" in ran.said)
    approved = ("--plan", await digest_of(run, *arguments))
    ran = await run("bulk", "run", *arguments, *approved, "--max-each", "100,000", "--yes", "--new-journal")
    assert (2, 0) == (ran.status, len(sandbox.ledger))


async def test_orders_of_derived_ids_are_named_by_their_rows(run: Run, here: Path) -> None:
    """An id that nobody has ever seen says nothing; machines are given it."""
    write("october.csv", "Amber B;0772000001;1;A", "Basil C;0772000002;2;A", "Cora D;0772000002;3;A")
    arguments = (*OCTOBER, *KEPT, *MAPPED, *HOW, "--guess-items", "--max-each", "4")
    ran = await run("bulk", "plan", *arguments, "--approval-sheet", "sheet.html")
    assert "1 amount: one payee gets more than the 4 allowed to each row 5" in ran.said
    assert "row 6: 3 to ***002, and another amount by row 5" in ran.said
    sheet = words_of("sheet.html")
    assert ("row 6" in sheet, "row 5, amount: one payee gets more" in sheet) == (True, True)
    document = json.loads((await run("bulk", "plan", *arguments, "--json")).out)
    assert 36 == len(document["problems"][0]["request_id"])


@pytest.mark.slow
async def test_who_is_asked_finds_the_rows(run_on_terminal: Run, sandbox: Sandbox, here: Path) -> None:
    """Before money moves the orders are named so that they can be found in the file, and the concerns once more."""
    with_ids = ("october.csv", "--batch-id", "october", *KEPT, *MAPPED[:2], "--map", "request_id=Idara", *MAPPED[2:])
    write("october.csv", "Amber B;0772000001;1000;A-1", "Basil C;0772000002;2000;A-2")
    how = ("--kind", "mobile_money", "--guess-items")
    assert 0 == (await run_on_terminal("bulk", "run", *with_ids, *how, "--new-journal", typed="y\n")).status
    write("october.csv", "Amber B;0772000001;1000;B-1", "Basil C;0772000002;2000;B-2")
    again = ("october.csv", "--batch-id", "again", *KEPT, *how, "--acknowledge")
    asked = await run_on_terminal("bulk", "run", *again, typed="n\n")
    assert (5, 2) == (asked.status, len(sandbox.ledger))
    shown = asked.said.partition("To be sent")[2]
    assert "the batch: 2 of 2 orders pay whom batch october paid within the last hour" in shown
    assert ("B-1 (row 4)" in shown, "B-2 (row 5)" in shown) == (True, True)


async def test_what_is_alike_is_told_once(run: Run, here: Path) -> None:
    """The rare problem comes first, of the frequent one some rows; --all shows each."""
    people = [f"Person {n};07720000{n:02};{'' if n % 2 else 1000};A" for n in range(40)]
    write("october.csv", *people, "Zed;077200000;1000;A")
    ran = await run("bulk", "plan", *OCTOBER, *KEPT, *MAPPED, *HOW, "--guess-items")
    assert ran.out.index("no such telephone number") < ran.out.index("empty; fill it in")
    assert "row 5, row 7, row 9 and 17 more" in ran.said
    assert 1 == ran.out.count("empty; fill it in")
    everything = await run("bulk", "plan", *OCTOBER, *KEPT, *MAPPED, *HOW, "--guess-items", "--all")
    assert "row 41, row 43" in everything.said


async def test_last_months_payees_do_not_hide_the_one_who_is_paid_twice(run: Run, here: Path) -> None:
    """They are a line with a count and some examples, after the one that is odd."""
    people = [f"Person {chr(65 + n)};07720000{n:02};{n + 1}000;A" for n in range(20)]
    write("october.csv", *people)
    write("november.csv", *people, "Person Z;0772000007;5;A")
    await sent_october(run)
    ran = await run("bulk", "plan", *NOVEMBER, *KEPT, *HOW, "--guess-items")
    assert ran.out.index("1 twice within this batch, another amount") < ran.out.index(
        "20 paid by batch october of late"
    )
    assert "and 17 more" in ran.said


async def test_the_same_month_under_another_name_is_not_sent_by_itself(run: Run, sandbox: Sandbox, here: Path) -> None:
    """All of it was paid just now by another batch: somebody has to say that it is meant."""
    await sent_october(run)
    again = ("october.csv", "--batch-id", "october-again", *KEPT, *HOW, "--guess-items")
    planned = await run("bulk", "plan", *again)
    assert 2 == planned.status
    assert "1 concern: look at it; nothing is sent without --acknowledge 3 of 3 orders pay" in planned.said
    refused = await run("bulk", "run", *again, "--plan", await digest_of(run, *again), "--yes")
    assert (2, 3) == (refused.status, len(sandbox.ledger))
    assert "is it the same once more, under another name? It would be paid twice" in refused.said


async def test_a_backup_that_has_forgotten_a_batch_is_told_to_who_plans_the_next(
    run: Run, sandbox: Sandbox, here: Path
) -> None:
    """Under new ids nothing else would tell that the same people were paid: not the ids, and not the journal."""
    write("first.csv", "Zed Y;0772000009;700;A")
    first = ("first.csv", "--batch-id", "first", *KEPT, *MAPPED, *HOW, "--guess-items")
    await run("bulk", "run", *first, "--plan", await digest_of(run, *first), "--yes", "--new-journal")
    shutil.copy("j.sqlite", "backup.sqlite")
    await sent_october(run)
    shutil.copy("backup.sqlite", "j.sqlite")
    again = ("october.csv", "--batch-id", "october-again", *KEPT, *MAPPED, *HOW, "--guess-items")
    planned = await run("bulk", "plan", *again)
    assert (2, True) == (planned.status, "journal: it has forgotten batch october (3 orders" in planned.said)
    refused = await run("bulk", "run", *again, "--plan", await digest_of(run, *again), "--yes")
    assert (2, 4) == (refused.status, len(sandbox.ledger))


async def test_a_row_that_was_changed_after_the_run_is_no_new_payment(run: Run, here: Path) -> None:
    """The message leads back to what stood there, and names what is wrong with the batch before all else."""
    await sent_october(run)
    write("october.csv", "Amber B;0772000001;150000;A", "Basil C;0752000002;90,001;A", "Cora D;0772000003;5000;B")
    ran = await run("bulk", "plan", *OCTOBER, *KEPT, *HOW, "--guess-items")
    assert "it may be paid as it was: put back what stood there" in ran.said


async def test_a_plan_says_when_no_earlier_payment_is_known(run: Run, here: Path) -> None:
    """Where there is no journal yet, and where it is named but empty of payments; not once there is one."""
    words = "No earlier payment is known."
    for journal in ((), KEPT):
        ran = await run("bulk", "plan", *OCTOBER, *journal, *MAPPED, *HOW, "--guess-items")
        assert words in ran.said
        assert ("PAYMENTS_JOURNAL" if not journal else "There is no journal j.sqlite yet.") in ran.said
    await sent_october(run)
    assert words not in (await run("bulk", "plan", *NOVEMBER, *KEPT, *HOW, "--guess-items")).said


async def test_a_plan_with_a_new_journal_knows_what_another_one_sent(run: Run, here: Path) -> None:
    """The mistyped name of a journal shows before anything is approved."""
    await sent_october(run)
    ran = await run("bulk", "plan", *OCTOBER, "--journal", "typo.sqlite", *MAPPED, *HOW, "--guess-items")
    assert 2 == ran.status
    assert "it may have been sent already: the journal" in ran.said
    assert "j.sqlite holds it in batch october" in ran.said


@pytest.mark.slow(covered=True)
async def test_free_text_is_sent_only_where_it_is_mapped(run: Run, sandbox: Sandbox, here: Path) -> None:
    """Plan, sheet, document and run say so before it is sent, and the option is named that sends it."""
    write_remarks("march.csv")
    arguments = ("march.csv", "--batch-id", "march", *KEPT)
    bare = await run("bulk", "plan", *arguments, "--approval-sheet", "bare.html")
    assert ("not read Remarks" in bare.said, "--map message=Remarks" in bare.said) == (True, True)
    assert "<b>Not sent:</b> Remarks." in words_of("bare.html")
    mapped = ("--map", "message=Remarks")
    shown = await run("bulk", "plan", *arguments, *mapped, "--approval-sheet", "mapped.html")
    assert "seen by the beneficiary Remarks" in shown.said
    assert "<b>To the service and the beneficiary:</b> Remarks as message." in words_of("mapped.html")
    document = json.loads((await run("bulk", "plan", *arguments, *mapped, "--json")).out)
    assert ("Remarks", "message", True, "beneficiary") == tuple(
        document["columns"][-1][name] for name in ("heading", "column", "is_mapped", "goes_to")
    )
    sent = await run("bulk", "run", *arguments, *mapped, "--yes", "--new-journal")
    assert (0, ["dismissed - last pay"]) == (sent.status, [one.message for one in sandbox.ledger])
    assert "Remarks as message (--map)" in sent.said


@pytest.mark.slow
async def test_who_is_asked_sees_the_messages(run_on_terminal: Run, sandbox: Sandbox, here: Path) -> None:
    """In full, beside whom they go to, and with the number that the money goes to."""
    write("october.csv", "Amber B;0772000001;1000;dismissed - last pay")
    mapped = (*MAPPED, "--map", "message=Idara", *HOW, "--guess-items", "--new-journal")
    ran = await run_on_terminal("bulk", "run", *OCTOBER, *KEPT, *mapped, typed="n\n")
    assert (5, 0) == (ran.status, len(sandbox.ledger))
    shown = ran.said.partition("To be sent")[2]
    for words in ("dismissed - last pay", "+256772000001", "Amber B"):
        assert words in shown


@pytest.mark.slow(covered=True)
async def test_who_is_asked_sees_the_numbers_of_what_is_doubtful(
    run: Run, run_on_terminal: Run, sandbox: Sandbox, here: Path
) -> None:
    """A payee with another amount, or paid twice, is checked by the number: in full at a question."""
    await sent_october(run)
    how = (*NOVEMBER, *KEPT, *HOW, "--guess-items", "--compare", "october")
    asked = await run_on_terminal("bulk", "run", *how, typed="n\n")
    assert (5, True) == (asked.status, "row 4, +256772000001 Amber B: 150,000 -> 300,000" in asked.said)
    piped = await run("bulk", "plan", *how)
    assert (True, False) == ("row 4: 150,000 -> 300,000" in piped.said, "772000001" in piped.said)
