"""Maker and checker on the command line: nothing is sent before somebody else has approved exactly that."""

import json
import shutil
from pathlib import Path

import pytest
from bulk.files import row, write_csv
from cli.commands import Run

from payments_async.sandbox import Fault, Sandbox

PLAN = ("bulk", "plan", "payroll.csv", "--batch-id", "november", "--journal", "j.sqlite")
RUN = ("bulk", "run", "payroll.csv", "--batch-id", "november", "--journal", "j.sqlite", "--yes")
IN = ("--journal", "j.sqlite")
RULE = ("--who", "C. Board", "--why", "four eyes", "--shared-logins")


@pytest.fixture(autouse=True)
def payroll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean file in a folder of our own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    rows = [row(request_id=f"RUN-{n}", amount=f"{n}000", phone_number=f"+2567720000{n:02}") for n in range(1, 5)]
    return write_csv(tmp_path / "payroll.csv", *rows)


def change(path: Path, old: str, new: str) -> None:
    """Edit a file."""
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def words_of(name: str) -> str:
    """All of a file."""
    return Path(name).read_text(encoding="utf-8")


async def proposed(run: Run) -> str:
    """A journal that asks for one approval, and a plan that was proposed in it; its digest."""
    made = await run(*PLAN, "--maker", "A. Clerk", "--new-journal", "--json")
    assert (0, True) == (made.status, json.loads(made.out)["proposed"])
    assert 0 == (await run("bulk", "approvals", *IN, "--needed", "1", *RULE)).status
    return str(json.loads(made.out)["digest"])


async def test_a_batch_goes_from_its_maker_by_its_checker_to_the_service(run: Run, sandbox: Sandbox) -> None:
    """Refused, approved, sent; and the report says who did what."""
    digest = await proposed(run)
    refused = await run(*RUN)
    assert (2, 0) == (refused.status, len(sandbox.ledger))
    assert f"1 person other than A. Clerk must approve it; nobody has so far. Its digest: {digest}" in refused.said
    approved = await run("bulk", "approve", digest, "--who", "B. Head", "--note", "compared", *IN, "--yes")
    assert (0, True) == (approved.status, "10,000 UGX" in approved.said)
    assert (0, 4) == ((await run(*RUN)).status, len(sandbox.ledger))
    assert 0 == (await run("bulk", "report", *IN)).status
    page = words_of("november-report.html")
    assert ("A. Clerk" in page, "B. Head" in page, "compared" in page) == (True, True, True)


async def test_a_plan_tells_whether_its_journal_asks_for_an_approval(run: Run) -> None:
    """Where it asks for none, a run sends the batch at once; that is said, with the command that tells the rule."""
    told = []
    for _ in range(2):
        shown = await run(*PLAN, "--maker", "A. Clerk", "--new-journal")
        told.append(("no approval is needed" in shown.said, "once it is approved" in shown.said))
        assert 0 == (await run("bulk", "approvals", *IN, "--needed", "1", *RULE)).status
    assert [(True, False), (False, True)] == told


async def test_eight_digits_of_a_digest_name_it(run: Run, sandbox: Sandbox) -> None:
    """People compare the first eight; nobody types sixty-four."""
    digest = await proposed(run)
    approved = await run("bulk", "approve", digest[:8].upper(), "--who", "B. Head", *IN, "--yes")
    assert (0, True) == (approved.status, f"digest {digest}" in approved.said)
    assert (0, 4) == ((await run(*RUN)).status, len(sandbox.ledger))


@pytest.mark.slow
@pytest.mark.parametrize("named", [(), ("november",)], ids=["the-open-one", "by-its-batch"])
async def test_who_is_asked_needs_no_digest(
    run: Run, run_on_terminal: Run, sandbox: Sandbox, named: tuple[str, ...]
) -> None:
    """The proposal that was not begun is shown, with its digest, before the question."""
    digest = await proposed(run)
    approved = await run_on_terminal("bulk", "approve", *named, "--who", "B. Head", *IN, typed="y\n")
    assert (0, True) == (approved.status, digest in approved.said)
    assert (0, 4) == ((await run(*RUN)).status, len(sandbox.ledger))


async def test_two_plans_of_a_batch_are_told_apart_by_their_digests(run: Run, payroll: Path) -> None:
    """A plan that was changed is another one: each is named by its first eight digits."""
    first = await proposed(run)
    change(payroll, "4000", "4001")
    second = json.loads((await run(*PLAN, "--maker", "A. Clerk", "--json")).out)["digest"]
    said = await run("bulk", "approve", "--who", "B. Head", *IN)
    assert (2, True) == (said.status, "several are proposed: name one by its digest" in said.said)
    assert (first[:8] in said.said, second[:8] in said.said) == (True, True)


async def test_a_file_that_was_changed_after_it_was_approved(run: Run, sandbox: Sandbox, payroll: Path) -> None:
    """It is another digest, and nobody has approved it."""
    digest = await proposed(run)
    await run("bulk", "approve", digest, "--who", "B. Head", *IN, "--yes")
    change(payroll, "4000", "4001")
    refused = await run(*RUN)
    assert (2, 0, True) == (refused.status, len(sandbox.ledger), "it was not proposed" in refused.said)


async def test_an_outbox_asks_for_the_same(run: Run, sandbox: Sandbox) -> None:
    """A file that is put into an outbox is a batch like any other."""
    await proposed(run)
    refused = await run("outbox", "put", "payroll.csv", "--batch-id", "november", *IN, "--yes")
    assert (2, True) == (refused.status, "must approve it" in refused.said), refused.said


async def test_an_approval_that_was_taken_back(run: Run, sandbox: Sandbox) -> None:
    """The run is refused again."""
    digest = await proposed(run)
    for option in ((), ("--withdraw",)):
        done = await run("bulk", "approve", digest, "--who", "B. Head", *IN, "--yes", *option)
        assert 0 == done.status
    assert (2, 0) == ((await run(*RUN)).status, len(sandbox.ledger))
    shown = await run("bulk", "approvals", *IN)
    assert "B. Head (withdrawn)" in shown.said


async def test_an_approval_that_is_taken_back_too_late(run: Run) -> None:
    """The batch lies in an outbox: whoever takes the approval back is told that it is sent all the same."""
    digest = await proposed(run)
    await run("bulk", "approve", digest, "--who", "B. Head", *IN, "--yes")
    before = await run("bulk", "approve", digest, "--who", "B. Head", *IN, "--yes", "--withdraw")
    assert "goes on sending" not in before.said
    await run("bulk", "approve", digest, "--who", "B. Head", *IN, "--yes")
    await run("outbox", "put", "payroll.csv", "--batch-id", "november", *IN, "--yes")
    late = await run("bulk", "approve", digest, "--who", "B. Head", *IN, "--yes", "--withdraw")
    assert (0, True, True) == (late.status, "goes on sending it" in late.said, "outbox pause" in late.said), late.said


async def test_a_run_may_ask_for_an_approval_by_itself(run: Run, sandbox: Sandbox) -> None:
    """Without a rule in the journal."""
    refused = await run(*RUN, "--needs-approval", "1", "--new-journal")
    assert (2, 0, True) == (refused.status, len(sandbox.ledger), "it was not proposed" in refused.said)


async def test_a_maker_who_says_in_the_environment_to_be_somebody_else(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose process it is, the system says: a variable makes no second person of the maker."""
    digest = await proposed(run)
    await run("bulk", "approvals", *IN, "--needed", "1", "--who", "C. Board", "--why", "each with a login of their own")
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "bhead")
    refused = await run("bulk", "approve", digest, "--who", "B. Head", *IN, "--yes")
    assert (2, True) == (refused.status, "cannot approve what A. Clerk" in refused.said), refused.said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("approve", "f" * 64, "--who", "B. Head", "--yes"), "no plan was proposed"),
        (("approve", "DIGEST", "--who", "a  clerk", "--yes"), "cannot approve what A. Clerk"),
        (("approve", "SHORT", "--who", "B. Head", "--yes"), "no plan was proposed"),
        (("approve", "--who", "B. Head", "--yes"), "--yes: name the digest that you looked at"),
        (("approve", "november", "--who", "B. Head", "--yes"), "--yes: name the digest that you looked at"),
        (("approve", "DIGEST", "--who", " ", "--yes"), "--who: your name"),
        (("approve", "DIGEST", "--who", "B. Head", "--withdraw", "--yes"), "has not approved"),
        (("approve", "DIGEST", "--who", "B. Head"), "--yes: needed where there is no terminal"),
        (("approvals", "--needed", "1"), "--needed: say --who sets the rule"),
        (("approvals", "--who", "B. Head"), "they go with --needed"),
    ],
)
async def test_what_is_no_approval(run: Run, arguments: tuple[str, ...], words: str) -> None:
    """It says what is wrong with it, and changes nothing."""
    digest = await proposed(run)
    said = await run("bulk", *(word.replace("DIGEST", digest).replace("SHORT", digest[:7]) for word in arguments), *IN)
    assert (2, True) == (said.status, words in said.said)
    assert [] == json.loads((await run("bulk", "approvals", *IN, "--json")).out)["proposals"][0]["approvals"]


async def test_a_plan_with_problems_is_not_proposed(run: Run, payroll: Path) -> None:
    """Nobody could approve it as it is."""
    change(payroll, "4000", "no amount")
    said = await run(*PLAN, "--maker", "A. Clerk", "--new-journal")
    assert (2, True) == (said.status, "it was not proposed" in said.said)


async def test_a_proposal_needs_a_journal(run: Run) -> None:
    """And says so."""
    said = await run("bulk", "plan", "payroll.csv", "--batch-id", "november", "--maker", "A. Clerk")
    assert (2, True) == (said.status, "--maker: what is proposed is kept in the journal" in said.said)


async def test_from_a_refusal_to_the_books(run: Run, sandbox: Sandbox) -> None:
    """One order is refused; it is tried again under a new id, proved and booked; no other is sent twice."""
    sandbox.script(Fault.REFUSED, on="money")
    await run(*RUN, "--new-journal")
    wrote = await run("bulk", "retry-file", *IN)
    assert (0, True) == (wrote.status, "november-retry.csv: 1 order" in wrote.said), wrote.said
    again = await run("bulk", "run", "november-retry.csv", "--batch-id", "again", *IN, "--yes", "--acknowledge")
    assert (0, 4) == (again.status, len(sandbox.ledger)), again.said
    for batch in ("november", "again"):
        await run("bulk", "reconcile", *IN, "--batch-id", batch)
    (retried,) = (one for one in sandbox.ledger if one.request_id.endswith("-R2"))
    assert 0 == (await run("bulk", "receipt", retried.request_id, *IN)).status
    booked = await run("bulk", "export", "--debit", "6000", "--credit", "1200", *IN, "--batch-id", "again")
    assert (0, True) == (booked.status, "again-ledger.csv: 1 payment" in booked.said)
    no_proof = await run("bulk", "receipt", retried.request_id.removesuffix("-R2"), *IN)
    assert (2, True) == (no_proof.status, "there is no proof" in no_proof.said)


@pytest.mark.slow(covered=True)
async def test_what_was_tried_again_is_not_paid_in_another_way(run: Run, sandbox: Sandbox) -> None:
    """Status and report of the first batch say so: who reads "not paid" there would pay it by hand."""
    sandbox.script(Fault.REFUSED, on="money")
    await run(*RUN, "--new-journal")
    await run("bulk", "retry-file", *IN)
    await run("bulk", "run", "november-retry.csv", "--batch-id", "again", *IN, "--yes", "--acknowledge")
    for command in ("status", "report"):
        told = await run("bulk", command, *IN, "--batch-id", "november")
        assert "tried again in batch again, where it is accepted; do not pay it in another way" in told.said
    found = json.loads((await run("bulk", "status", *IN, "--batch-id", "november", "--json")).out)
    refused = found["not_paid"][0]["first"][0]
    explained = await run("explain", refused["request_id"], *IN)
    assert f"No: it was tried again as {refused['request_id']}-R2 of batch again, which is accepted" in explained.said
    assert "Of those not paid, 1 were tried again, and are paid so or not settled" in told.said
    second = await run("bulk", "retry-file", *IN, "--batch-id", "november", "--csv", "second.csv")
    assert (True, "-R2 of batch again" in second.said) == ("nothing to write" in second.said, True)


@pytest.mark.slow
async def test_four_eyes_from_the_first_day(run: Run, run_on_terminal: Run) -> None:
    """The rule may be set before anything is paid: the journal is made for it, once somebody says so."""
    rule = ("bulk", "approvals", *IN, "--needed", "1", *RULE)
    refused = await run(*rule)
    assert (2, True) == (refused.status, "--new-journal: needed where there is no terminal" in refused.said)
    assert "nothing was changed" in (await run_on_terminal(*rule, typed="n\n")).said
    assert 0 == (await run(*rule, "--new-journal")).status
    assert "1 approval needed for each batch" in (await run("bulk", "approvals", *IN)).said


@pytest.mark.slow
async def test_a_rule_is_not_given_up_in_a_hurry(run: Run, run_on_terminal: Run) -> None:
    """Who asks for less is shown whose rule it was, and asked; a rule as strict as before is set at once."""
    strict = ("--needed", "1", "--who", "C. Board", "--why", "four eyes")
    assert 0 == (await run("bulk", "approvals", *IN, *strict, "--new-journal")).status
    for less in (("--needed", "0"), ("--needed", "1", "--shared-logins")):
        lifted = ("bulk", "approvals", *IN, *less, "--who", "A. Clerk", "--why", "in a hurry")
        assert 2 == (await run(*lifted)).status
        asked = await run_on_terminal(*lifted, typed="n\n")
        assert 5 == asked.status
        assert "1 approval needed for each batch, as C. Board" in asked.said
        assert "in a hurry" not in (await run("bulk", "approvals", *IN)).said
    assert 0 == (await run("bulk", "approvals", *IN, *strict)).status
    assert 0 == (await run(*lifted, "--yes")).status
    assert "in a hurry" in (await run("bulk", "approvals", *IN)).said


async def test_another_login_in_the_environment(run: Run) -> None:
    """Is no other login: the maker cannot pass for somebody else by setting a variable."""
    digest = await proposed(run)
    assert 0 == (await run("bulk", "approvals", *IN, "--needed", "1", "--who", "C. Board", "--why", "strict")).status
    said = await run("bulk", "approve", digest, "--who", "B. Head", *IN, "--yes", LOGNAME="head", USER="head")
    assert (2, True) == (said.status, "with a login of their own" in said.said), said.said


async def test_a_backup_of_before_the_rule_is_put_back(run: Run, sandbox: Sandbox) -> None:
    """Nothing is sent from it without the second pair of eyes: the machine remembers who asks for it."""
    made = await run(*PLAN, "--maker", "A. Clerk", "--new-journal")
    assert 0 == made.status, made.said
    shutil.copy("j.sqlite", "backup.sqlite")
    rule = ("bulk", "approvals", "--needed", "1", *RULE, *IN)
    assert 0 == (await run(*rule)).status
    shutil.copy("backup.sqlite", "j.sqlite")
    refused = await run(*RUN)
    assert (2, 0, True) == (refused.status, len(sandbox.ledger), "must approve it; nobody has so far" in refused.said)
    assert "as C. Board has set: four eyes" in refused.said
    shown = await run("bulk", "approvals", *IN)
    assert (0, True) == (shown.status, "1 approval needed for each batch, as C. Board" in shown.said), shown.said


@pytest.mark.slow(covered=True)
async def test_what_one_person_alone_would_send_again(run: Run, sandbox: Sandbox) -> None:
    """After a batch that two have agreed to: writing orders off is proposed, and done once somebody else approves."""
    digest = await proposed(run)
    await run("bulk", "approve", digest, "--who", "B. Head", *IN, "--yes")
    for request_id in ("RUN-1", "RUN-2"):
        sandbox.script(Fault.LOST_BEFORE, on="payout", request_id=request_id)
    await run(*RUN)
    await sandbox.settle()
    await run("bulk", "reconcile", *IN, "--grace", "0", "--interval", "0")
    again = ("bulk", "send-again", "RUN-1", "RUN-2", "--who", "A. Clerk", "--why", "letter", *IN, "--yes")
    refused = await run(*again)
    assert (2, True) == (refused.status, "nothing was changed; it is proposed" in refused.said), refused.said
    decision = json.loads((await run("bulk", "approvals", *IN, "--json")).out)["proposals"][-1]
    assert ("A. Clerk", 2, True) == (decision["by"]["who"], decision["orders"], decision["digest"] in refused.said)
    await run(*RUN)
    assert 2 == len(sandbox.ledger)
    own = await run("bulk", "approve", decision["digest"], "--who", "A. Clerk", *IN, "--yes")
    assert (2, True) == (own.status, "cannot approve what A. Clerk" in own.said), own.said
    approved = await run("bulk", "approve", decision["digest"], "--who", "B. Head", *IN, "--yes")
    assert (0, True) == (approved.status, "RUN-1, RUN-2 (letter)" in approved.said), approved.said
    assert 0 == (await run(*again)).status
    assert 0 == (await run(*RUN)).status
    assert (4, []) == (len(sandbox.ledger), sandbox.duplicates())


@pytest.mark.slow(covered=True)
async def test_who_approves_sees_whom_it_pays(run: Run, run_on_terminal: Run, payroll: Path) -> None:
    """In full and with its columns, where the file is what was proposed; where it is not here that is said."""
    change(payroll, "Sample salary", "dismissed - last pay")
    digest = await proposed(run)
    approve = ("bulk", "approve", digest, "--who", "B. Head", *IN)
    shutil.move(payroll, "moved.csv")
    bare = await run_on_terminal(*approve, typed="n\n")
    assert (5, True) == (bare.status, "The payees are not on this machine" in bare.said)
    shutil.move("moved.csv", payroll)
    seen = await run_on_terminal(*approve, typed="n\n")
    assert 5 == seen.status
    for words in ("+256772000001", "Amber Brightwater", "dismissed - last pay", "seen by the beneficiary"):
        assert words in seen.said
    piped = await run(*approve, "--file", "payroll.csv", "--yes")
    assert (0, False) == (piped.status, "Amber" in piped.said or "dismissed" in piped.said)
    change(payroll, "3000", "3001")
    other = await run(*approve, "--file", "payroll.csv", "--yes")
    assert (2, True) == (other.status, "does not hold the payments that were proposed" in other.said)
