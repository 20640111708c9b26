"""`explain`: the story of one order, readable at night, and of nobody in particular."""

import contextlib
import json
import shutil
import sqlite3
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bulk.files import row, write_csv
from cli.commands import Run

from payments_async.ipn import TransactionEvent, TransactionFailed, TransactionSucceeded
from payments_async.journal import Signal, SqliteJournal
from payments_async.journal.contract import Evidence, RawNotification
from payments_async.sandbox import Fault, Sandbox

SENT = ("--journal", "j.sqlite", "--batch-id", "november")


@pytest.fixture
async def batch(run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three orders: one accepted, one refused, one without a usable answer."""
    monkeypatch.chdir(tmp_path)
    rows = [row(request_id=f"RUN-{n}", phone_number=f"+25677200000{n}") for n in (1, 2, 3)]
    write_csv(tmp_path / "p.csv", *rows)
    sandbox.script(Fault.REFUSED, on="payout", request_id="RUN-2")
    sandbox.script(Fault.LOST_AFTER, on="payout", request_id="RUN-3")
    await run("bulk", "run", "p.csv", *SENT, "--yes", "--new-journal")
    await sandbox.settle()


async def test_the_story_is_told_in_time_with_the_rules(run: Run, batch: None) -> None:
    """Written down, permitted, accepted, and what that means now."""
    ran = await run("explain", "RUN-1", PAYMENTS_JOURNAL="j.sqlite")
    assert 0 == ran.status
    steps = [
        "RUN-1, 150,000 UGX to ***ter, batch november: accepted",
        "Written down",
        "was permitted to send it",
        "rule: a POST happens only after a committed permit",
        "The service accepted it",
        "-> accepted",
        "Now The service has it; its end is not known yet",
    ]
    places = [ran.said.index(step) for step in steps]
    assert sorted(places) == places
    assert not [person for person in ("Amber", "772000001") if person in ran.said]


async def test_a_lost_answer_and_what_was_found_later_are_told(run: Run, batch: None) -> None:
    """First that nobody knew, then which list showed it."""
    unknown = await run("explain", "RUN-3", "--journal", "j.sqlite")
    assert "No usable answer: it may have been carried out" in unknown.said
    assert "never send it again under another id" in unknown.said
    await run("bulk", "reconcile", *SENT, "--interval", "0")
    found = await run("explain", "RUN-3", "--journal", "j.sqlite")
    assert "The list of SUCCESSFULL transactions shows that it was paid: transaction " in found.said
    assert "Now It was paid." in found.said


async def test_notifications_are_told_with_their_senders(run: Run, batch: None) -> None:
    """Also one that contradicts: it is kept, and the order stays what it was."""
    async with SqliteJournal("j.sqlite") as journal:
        await notified(journal, TransactionSucceeded, 0)
        await notified(journal, TransactionFailed, 2)
    ran = await run("explain", "RUN-1", "--journal", "j.sqlite")
    assert "came in from 192.0.2.7. It is stored as event 1, with status code 0; its handlers are still" in ran.said
    assert "A notification from 192.0.2.7 says that it was paid: transaction" in ran.said
    assert "A notification from 192.0.2.7 says that it failed: transaction" in ran.said
    words = "a notification from 192.0.2.7 says that it failed, but it was known to be successful"
    assert f"This contradicts what was known: {words}. It is kept, and never overwrites" in ran.said
    assert (0, True) == (ran.status, f"Now It was paid. Evidence contradicts: {words}." in ran.said)
    assert "Pay it again? No: the evidence is against itself." in ran.said
    assert "payments-async bulk acknowledge RUN-1 --journal j.sqlite --who NAME --why REASON" in ran.said
    status = await run("bulk", "status", "--journal", "j.sqlite")
    assert (4, True) == (status.status, "1 order with evidence against evidence." in status.said)


async def notified(journal: SqliteJournal, kind: type[TransactionEvent], status_code: int) -> None:
    """A notification about the first order."""
    entry = await journal.entry("RUN-1")
    assert entry is not None
    event = kind(
        transaction_id=entry.transaction_id or "",
        request_id="RUN-1",
        status_code=status_code,
        amount=entry.amount,
        currency_code="UGX",
    )
    delivery = RawNotification(body=str(status_code).encode(), query="", peer="192.0.2.7", received_at=time.time())
    await journal.receive(delivery, event, owner="test", lease=1.0)


async def test_a_refusal_is_told_in_the_services_words(run: Run, batch: None) -> None:
    """And that it was not paid; for machines too."""
    ran = await run("explain", "RUN-2", "--journal", "j.sqlite")
    assert "The service refused it" in ran.said
    assert "it was not paid" in ran.said
    document = json.loads((await run("explain", "RUN-2", "--journal", "j.sqlite", "--json")).out)
    assert ("rejected", ["planned", "permit", "answer"]) == (
        document["state"],
        [one["what"] for one in document["story"]],
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("RUN-1", "--journal", "x.sqlite"), "there is no file x.sqlite", id="no-file"),
        pytest.param(("RUN-99", "--journal", "j.sqlite"), "holds no order RUN-99; check the id", id="no-order"),
    ],
)
async def test_the_likeliest_mistakes_are_told(run: Run, batch: None, arguments: tuple[str, ...], words: str) -> None:
    """Status 2 and a remedy."""
    ran = await run("explain", *arguments)
    assert 2 == ran.status
    assert words in ran.said


async def test_each_end_says_whether_it_may_be_paid_again(run: Run, batch: None) -> None:
    """Accepted and unknown: no. Refused: yes, under a new id. And the command that goes on, as it can be typed."""
    told = {name: (await run("explain", name, "--journal", "j.sqlite")).said for name in ("RUN-1", "RUN-2", "RUN-3")}
    assert "Pay it again? No: the service has it." in told["RUN-1"]
    assert "payments-async bulk reconcile --journal j.sqlite --batch-id november" in told["RUN-1"]
    assert "Pay it again? Yes, once what it was refused for is mended; under a new request id." in told["RUN-2"]
    assert "payments-async bulk retry-file --journal j.sqlite --batch-id november" in told["RUN-2"]
    assert "Pay it again? No: it may have been paid." in told["RUN-3"]
    document = json.loads((await run("explain", "RUN-3", "--journal", "j.sqlite", "--json")).out)
    assert ("No: it may have been paid.", 1) == (document["pay_again"], len(document["next"]))


async def test_an_order_that_was_paid_again_already(run: Run, batch: None, tmp_path: Path) -> None:
    """Whoever asks about the first must not be told that it may be: a third person would pay it once more."""
    before = await run("explain", "RUN-2", "--journal", "j.sqlite")
    assert "Take RUN-2-R2: whoever does it too takes the same, and it is paid once." in before.said
    write_csv(tmp_path / "again.csv", row(request_id="RUN-2-R2", phone_number="+256772000002"))
    again = ("--journal", "j.sqlite", "--batch-id", "again")
    assert 0 == (await run("bulk", "run", "again.csv", *again, "--yes")).status
    after = await run("explain", "RUN-2", "--journal", "j.sqlite")
    assert "Pay it again? No: it was tried again as RUN-2-R2 of batch again, which is accepted; do not" in after.said
    document = json.loads((await run("explain", "RUN-2", "--journal", "j.sqlite", "--json")).out)
    assert document["pay_again"].startswith("No: it was tried again as RUN-2-R2")


async def test_an_order_that_failed_as_a_notification_alone_has_told(run: Run, batch: None) -> None:
    """It may have been forged: nobody is told to pay once more before the service itself says the same."""
    async with SqliteJournal("j.sqlite") as journal:
        await notified(journal, TransactionFailed, 2)
    told = await run("explain", "RUN-1", "--journal", "j.sqlite")
    assert "Now A notification alone says that it failed. Until the service's list shows the same it may" in told.said
    assert "looks for it in the service's list, and so does `bulk reconcile`" in told.said
    assert "Pay it again? Not before the service itself says that it failed: until now a notification" in told.said


async def test_an_order_whose_contradiction_a_person_has_let_rest(run: Run, batch: None, tmp_path: Path) -> None:
    """They may have learned that it was paid, and it is called failed all the same: it is in no file of new tries."""
    async with SqliteJournal("j.sqlite") as journal:
        await notified(journal, TransactionFailed, 2)
        await notified(journal, TransactionSucceeded, 0)
    signed = ("--who", "A. Clerk", "--why", "it was paid, says the bank")
    assert 0 == (await run("bulk", "acknowledge", "RUN-1", "--journal", "j.sqlite", *signed, "--yes")).status
    told = await run("explain", "RUN-1", "--journal", "j.sqlite")
    words = "evidence was against itself, and A. Clerk acknowledged: it was paid, says the bank"
    assert f"Pay it again? Only if it surely was not paid: {words}" in told.said
    wrote = await run("bulk", "retry-file", *SENT)
    written = (tmp_path / "november-retry.csv").read_text()
    assert (True, False) == ("RUN-2-R2" in written, "RUN-1-R2" in written)
    assert "A. Clerk acknowledged: it was paid, says the bank" in wrote.said + wrote.err


async def test_an_order_of_an_archive_that_was_paid_as_is_told_later(run: Run, batch: None) -> None:
    """It was refused as far as the archive knows, and a notification says otherwise: nobody is told to pay it again."""
    await run("bulk", "reconcile", *SENT, "--interval", "0")
    with contextlib.closing(sqlite3.connect("j.sqlite")) as file, file:
        file.execute("UPDATE outbox SET updated_at = updated_at - 8640000, permitted_at = permitted_at - 8640000")
    options = ("--older-than", "90d", "--archive", "old.jsonl.gz", "--who", "A. Clerk", "--why", "rule 7", "--yes")
    assert 0 == (await run("journal", "prune", "--journal", "j.sqlite", *options)).status
    before = await run("explain", "RUN-2", "--journal", "j.sqlite")
    assert "Pay it again? Yes, once what it was refused for is mended" in before.said
    async with SqliteJournal("j.sqlite") as journal:
        paid = TransactionSucceeded(
            transaction_id="t-9", request_id="RUN-2", status_code=0, amount=Decimal(150000), currency_code="UGX"
        )
        heard = RawNotification(body=b"paid", query="", peer="192.0.2.7", received_at=time.time())
        await journal.receive(heard, paid, owner="test", lease=1.0)
    told = await run("explain", "RUN-2", "--journal", "j.sqlite")
    assert "Pay it again? No: the evidence is against itself." in told.said


async def test_an_order_of_an_archive_that_failed_as_a_notification_alone_has_told(run: Run, batch: None) -> None:
    """It leaves only once a list was read a day later, and is called unpaid by nothing but its story even then."""
    async with SqliteJournal("j.sqlite") as journal:
        await notified(journal, TransactionFailed, 2)
        known: Any = {"request_id": "RUN-3", "transaction_id": "t-3", "amount": Decimal(150000)}
        await journal.apply_evidence(Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", **known))
    sql = "UPDATE outbox SET updated_at = updated_at - 8640000, permitted_at = permitted_at - 8640000"
    options = ("--older-than", "90d", "--archive", "old.jsonl.gz", "--who", "A. Clerk", "--why", "rule 7", "--yes")
    with contextlib.closing(sqlite3.connect("j.sqlite")) as file, file:
        file.execute(sql)
        file.execute("DELETE FROM delivery")
    await run("journal", "prune", "--journal", "j.sqlite", *options)
    stays = (await run("explain", "RUN-1", "--journal", "j.sqlite")).said
    assert "Pay it again? Not before the service itself says that it failed" in stays
    async with SqliteJournal("j.sqlite") as journal:
        await journal.park("RUN-1", detail="not in the list of a day later")
    with contextlib.closing(sqlite3.connect("j.sqlite")) as file, file:
        file.execute("UPDATE outbox SET updated_at = updated_at - 8640000 WHERE request_id = 'RUN-1'")
    again = ("--older-than", "90d", "--archive", "older.jsonl.gz", "--who", "A. Clerk", "--why", "rule 7", "--yes")
    assert 0 == (await run("journal", "prune", "--journal", "j.sqlite", *again)).status
    left = (await run("explain", "RUN-1", "--journal", "j.sqlite")).said
    assert "left the journal for the archive" in left
    assert "Pay it again? Only if its story in the archive has a list or a record that shows that it failed." in left


async def test_an_order_that_was_tried_again_from_another_journal(run: Run, batch: None, tmp_path: Path) -> None:
    """This machine knows that a second try was made, and from which one: a third is not asked for."""
    write_csv(tmp_path / "again.csv", row(request_id="RUN-2-R2", phone_number="+256772000002"))
    other = ("--journal", "other.sqlite", "--batch-id", "again", "--second-journal", "second tries", "--acknowledge")
    assert 0 == (await run("bulk", "run", "again.csv", *other, "--yes", "--new-journal")).status
    told = await run("explain", "RUN-2", "--journal", "j.sqlite")
    assert "Pay it again? No: RUN-2-R2 was heard of, which tries it again, though not from here." in told.said


async def test_orders_that_are_numbered_as_tries_are(
    run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NOV-R3 is the row after NOV-R2, and pays somebody else: who was not paid is paid, under an id of their own."""
    monkeypatch.chdir(tmp_path)
    people = [("1", "Amber Otim"), ("2", "Brian Okello"), ("3", "Grace Akello"), ("4", "Ruth Auma"), ("5", "Sam Opio")]
    rows = [row(request_id=f"NOV-R{n}", phone_number=f"+25677200000{n}", name=name) for n, name in people]
    write_csv(tmp_path / "p.csv", *rows)
    for refused in ("NOV-R2", "NOV-R4"):
        sandbox.script(Fault.REFUSED, on="payout", request_id=refused)
    await run("bulk", "run", "p.csv", *SENT, "--yes", "--new-journal")
    told = await run("explain", "NOV-R4", "--journal", "j.sqlite")
    assert "Pay it again? Yes, once what it was refused for is mended" in told.said
    assert "Take NOV-R4-R2: whoever does it too takes the same" in told.said
    assert "tried again" not in (await run("bulk", "status", *SENT)).said
    assert 0 == (await run("bulk", "retry-file", *SENT)).status
    assert 0 == (await run("bulk", "run", "november-retry.csv", *SENT[:2], "--batch-id", "again", "--yes")).status
    assert [1, 1, 1] == [sandbox.executions(f"NOV-R{which}") for which in ("2-R2", "4-R2", "5")]
    after = await run("explain", "NOV-R4", "--journal", "j.sqlite")
    assert "Pay it again? No: it was tried again as NOV-R4-R2 of batch again, which is accepted" in after.said


async def test_tries_that_were_loaded_together(
    run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They pay one person, by one of two numbers: a later one may have been paid, so nothing is offered."""
    monkeypatch.chdir(tmp_path)
    rows = [row(request_id=f"PAY-R{n}", phone_number=f"+25677200000{n}") for n in (2, 3)]
    write_csv(tmp_path / "p.csv", *rows)
    sandbox.script(Fault.REFUSED, on="payout", request_id="PAY-R2")
    await run("bulk", "run", "p.csv", *SENT, "--yes", "--new-journal")
    told = await run("explain", "PAY-R2", "--journal", "j.sqlite")
    assert "Pay it again? No: it was tried again as PAY-R3 of batch november, which is accepted" in told.said


async def test_an_order_that_waits_in_a_paused_outbox(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who paused it, when and why, and what lets it go: nobody remembers that at night."""
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "p.csv", row(request_id="RUN-1"))
    await run("outbox", "put", "p.csv", *SENT, "--yes", "--new-journal")
    await run("outbox", "pause", "--who", "A. Clerk", "--why", "the rates are wrong", "--journal", "j.sqlite")
    said = (await run("explain", "RUN-1", "--journal", "j.sqlite")).said
    assert "It was not sent, or surely did not arrive." in said
    assert "The outbox was paused by A. Clerk on " in said
    assert ": the rates are wrong. Once it may go on:" in said
    assert "payments-async outbox resume --journal j.sqlite --name outbox --who NAME --why REASON" in said
    assert "Pay it again? No: it lies here to be sent, once. Under another id it would be paid twice." in said


async def test_an_order_that_nobody_here_has_ordered(run: Run, batch: None) -> None:
    """A notification told of it: that is shown, and that it may have been paid; the inbox lists it."""
    async with SqliteJournal("j.sqlite") as journal:
        paid = TransactionSucceeded(
            transaction_id="t-9", request_id="STR-1", status_code=0, amount=5000, currency_code="UGX"
        )
        heard = RawNotification(body=b"paid", query="", peer="192.0.2.7", received_at=time.time())
        await journal.receive(heard, paid, owner="test", lease=1.0)
    ran = await run("explain", "STR-1", "--journal", "j.sqlite")
    assert (4, True) == (ran.status, "the journal holds no such order, and yet it was heard of" in ran.said), ran.said
    assert "A notification came in from 192.0.2.7. It is stored as event 1, with status code 0" in ran.said
    assert "payments-async transactions --request-id STR-1" in ran.said
    assert "Pay it again? No: it may have been paid. Find out who ordered it" in ran.said
    listed = await run("ipn", "list", "--unknown", "--journal", "j.sqlite")
    assert "1 are of orders that this journal does not hold" in listed.said
    assert "STR-1 t-9 code 0 5,000 UGX" in listed.said


async def test_an_order_that_a_list_has_shown(run: Run, batch: None) -> None:
    """The service's list had it before anybody here knew of it."""
    async with SqliteJournal("j.sqlite") as journal:
        seen = Evidence(
        source="list",
            request_id="str-2", transaction_id="t-8", signal=Signal.LOOKED_UP_SUCCESSFUL, amount=Decimal(700),
            currency="UGX",
        )  # fmt: skip
        await journal.note_observed([seen])
    ran = await run("explain", "STR-2", "--journal", "j.sqlite")
    words = "The list of transactions shows that it was paid: transaction t-8, 700 UGX."
    assert (4, True) == (ran.status, words in ran.said), ran.said


async def test_an_order_of_another_journal_of_this_machine(run: Run, batch: None, tmp_path: Path) -> None:
    """Whoever asks the wrong journal hears which one has it, and pays nothing again."""
    write_csv(tmp_path / "other.csv", row(request_id="OTHER-1", phone_number="+256772000009"))
    other = ("--journal", "other.sqlite", "--batch-id", "bonus", "--second-journal", "kept apart")
    assert 0 == (await run("bulk", "run", "other.csv", *other, "--yes", "--new-journal")).status
    ran = await run("explain", "OTHER-1", "--journal", "j.sqlite")
    assert (4, True) == (ran.status, "other.sqlite has it, in batch bonus (1 order, loaded" in ran.said), ran.said


async def test_an_id_in_other_letters(run: Run, batch: None) -> None:
    """It is the same order, and is shown in the letters in which it was put."""
    ran = await run("explain", "run-1", "--journal", "j.sqlite")
    assert (0, True) == (ran.status, ran.said.startswith("RUN-1, ")), ran.said


@pytest.mark.slow(covered=True)
async def test_an_order_that_a_restored_journal_has_forgotten(
    run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paid from here after the backup: who asks for it hears that, and does not pay it again."""
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        write_csv(tmp_path / f"{number}.csv", row(request_id=f"RUN-{number}", phone_number=f"+25677200000{number}"))
    batches = [("--journal", "j.sqlite", "--batch-id", name) for name in ("october", "november")]
    assert 0 == (await run("bulk", "run", "1.csv", *batches[0], "--yes", "--new-journal")).status
    shutil.copy("j.sqlite", "backup.sqlite")
    assert 0 == (await run("bulk", "run", "2.csv", *batches[1], "--yes")).status
    shutil.copy("backup.sqlite", "j.sqlite")
    ran = await run("explain", "RUN-2", "--journal", "j.sqlite")
    assert (4, True) == (ran.status, "This very journal had it, in batch november (1 order, loaded" in ran.said), (
        ran.said
    )
    assert "Pay it again? No: it may have been paid. Not under another id either" in ran.said
