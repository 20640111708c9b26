"""An approval that is signed on another machine: what counts in the journal, and what does not."""

import json
import platform
import re
from pathlib import Path

import pytest
from bulk.files import row, write_csv
from cli.commands import Ran, Run

from payments_async.sandbox import Sandbox

ANSWER = "asked-signed.json"
IN = ("--journal", "j.sqlite")
PLAN = ("bulk", "plan", "payroll.csv", "--batch-id", "november", *IN, "--maker", "A. Clerk", "--new-journal")
SENT = ("bulk", "run", *IN, "--yes", "--plan")
FROM = ("bulk", "approve", "--from", ANSWER, *IN)


@pytest.fixture(autouse=True)
def payroll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean file in a folder of our own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return write_csv(tmp_path / "payroll.csv", *rows("4000"))


def rows(last: str) -> list[dict[str, str]]:
    """Four payments, the last one of so much."""
    amounts = ("1000", "2000", "3000", last)
    return [row(request_id=f"RUN-{n}", amount=amounts[n], phone_number=f"+2567720000{n:02}") for n in range(4)]


class Company:
    """A maker at the journal's machine, and a head with a machine and a key of her own."""

    def __init__(self, run: Run, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._run, self._patch, self._folder = run, monkeypatch, folder

    async def run(self, *arguments: str) -> Ran:
        """A command on the machine of the journal."""
        return await self._run(*arguments)

    async def sign(self, *arguments: str, who: str = "B. Head") -> Ran:
        """`bulk sign` on the machine of a person, who has nothing but the files."""
        with self._patch.context() as elsewhere:
            elsewhere.setattr(platform, "node", lambda: f"laptop of {who}")
            return await self._run("bulk", "sign", *arguments, "--who", who, XDG_CONFIG_HOME=f"{self._folder}/{who}")

    async def register(self, who: str = "C. Board", name: str = "B. Head") -> Ran:
        """Have the journal know the key of a person."""
        key = json.loads((await self.sign("--json", who=name)).out)["public_key"]
        return await self._run("bulk", "approver", name, key, "--who", who, "--why", "she told me", *IN, "--yes")

    async def proposed(self, registered_by: str = "C. Board") -> str:
        """A proposal with a request, in a journal that has a key and a rule by names and logins; its digest."""
        made = await self._run(*PLAN, "--request", "asked.json", "--json")
        assert (0, 0) == (made.status, (await self.register(registered_by)).status), made.said
        rule = ("--needed", "1", "--who", "C. Board", "--why", "four eyes")
        assert 0 == (await self._run("bulk", "approvals", *IN, *rule)).status
        return str(json.loads(made.out)["digest"])

    async def signed(self) -> str:
        """... and signed by the head, who looked at the file; its digest."""
        digest = await self.proposed()
        ran = await self.sign("asked.json", "--file", "payroll.csv", "--note", "compared with October", "--yes")
        assert 0 == ran.status, ran.said
        return digest


@pytest.fixture
def company(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Company:
    """Two persons on two machines."""
    return Company(run, monkeypatch, tmp_path)


def words_of(name: str) -> str:
    """All of a file; nothing where there is none."""
    return Path(name).read_text(encoding="utf-8") if Path(name).exists() else ""


def write_words(name: str, words: str) -> None:
    """Have a file hold other words."""
    Path(name).write_text(words, encoding="utf-8")


def change(name: str, old: str, new: str) -> None:
    """Edit a file, in which the old words stand."""
    words = words_of(name)
    assert old in words
    Path(name).write_text(words.replace(old, new), encoding="utf-8")


async def refused(company: Company, sandbox: Sandbox, digest: str, words: str) -> None:
    """The answer does not count, for this reason, and nothing is sent."""
    taken = await company.run(*FROM)
    assert (2, True) == (taken.status, words in taken.said), taken.said
    ran = await company.run(*SENT, digest)
    assert (2, 0) == (ran.status, len(sandbox.ledger)), ran.said


async def test_a_colleague_approves_on_a_machine_of_her_own(company: Company, sandbox: Sandbox) -> None:
    """Her answer counts under a rule that wants another login, and the journal keeps who, where and by which key."""
    digest = await company.signed()
    taken = await company.run(*FROM)
    assert (0, True) == (taken.status, "B. Head" in taken.said and "laptop of B. Head" in taken.said), taken.said
    again = await company.run(*FROM)
    assert (0, True) == (again.status, "approvals that stand: 1: B. Head" in again.said), again.said
    ran = await company.run(*SENT, digest)
    assert (0, 4) == (ran.status, len(sandbox.ledger)), ran.said
    assert 0 == (await company.run("bulk", "report", *IN)).status
    assert "compared with October (the file, with each payment)" in words_of("november-report.html")


async def test_she_sees_whom_the_file_pays_before_she_signs(company: Company, sandbox: Sandbox) -> None:
    """Without journal and service; another file than the proposed one is refused."""
    await company.proposed()
    shown = await company.sign("asked.json", "--file", "payroll.csv", "--yes", "--show-personal")
    assert (0, True, True) == (shown.status, "+256772000003" in shown.said, "10,000 UGX" in shown.said), shown.said
    write_csv(Path("other.csv"), *rows("4001"))
    other = await company.sign("asked.json", "--file", "other.csv", "--answer", "other.json", "--yes")
    assert (2, "") == (other.status, words_of("other.json"))
    assert "is not the file that was proposed" in other.said


async def test_a_request_that_was_told_otherwise_than_it_is_proposed(company: Company, sandbox: Sandbox) -> None:
    """She signed a smaller sum than the journal's: her answer is for no proposal."""
    digest = await company.proposed()
    change("asked.json", '"amount":"10000"', '"amount":"100"')
    assert 0 == (await company.sign("asked.json", "--yes")).status
    await refused(company, sandbox, digest, "signed what is not proposed any more")


async def test_an_answer_that_was_changed(company: Company, sandbox: Sandbox) -> None:
    """A single letter of it, and the signature does not fit."""
    digest = await company.signed()
    change(ANSWER, "October", "october")
    await refused(company, sandbox, digest, "it was changed since")


async def test_a_proposal_that_is_another_one_since_it_was_signed(company: Company, sandbox: Sandbox) -> None:
    """Withdrawn; proposed again, which is another moment; or with a changed file."""
    digest = await company.signed()
    assert 0 == (await company.run("bulk", "approve", digest, "--who", "A. Clerk", "--withdraw", "--yes", *IN)).status
    await refused(company, sandbox, digest, "signed what is not proposed any more")
    assert 0 == (await company.run(*PLAN)).status
    await refused(company, sandbox, digest, "signed what is not proposed any more")


async def test_a_file_that_was_saved_again_since_it_was_signed(company: Company, sandbox: Sandbox) -> None:
    """The same payments in other bytes, proposed anew: she has not seen that file."""
    digest = await company.signed()
    change("payroll.csv", "RUN-3", " RUN-3")
    assert digest == json.loads((await company.run(*PLAN, "--json")).out)["digest"]
    await refused(company, sandbox, digest, "signed what is not proposed any more")


async def test_an_answer_that_was_taken_back(company: Company, sandbox: Sandbox) -> None:
    """The same answer does not count a second time."""
    digest = await company.signed()
    assert 0 == (await company.run(*FROM)).status
    back = await company.run("bulk", "approve", digest, "--who", "B. Head", "--withdraw", "--yes", *IN)
    assert 0 == back.status, back.said
    await refused(company, sandbox, digest, "was taken back; it takes a new one")


async def test_an_answer_signed_before_another_one_was_taken_back(company: Company, sandbox: Sandbox) -> None:
    """She signed twice; what she took back after both counts by neither."""
    digest = await company.signed()
    assert 0 == (await company.sign("asked.json", "--yes", "--answer", "second.json")).status
    assert 0 == (await company.run(*FROM)).status
    back = await company.run("bulk", "approve", digest, "--who", "B. Head", "--withdraw", "--yes", *IN)
    assert 0 == back.status, back.said
    write_words(ANSWER, words_of("second.json"))
    await refused(company, sandbox, digest, "was taken back; it takes a new one")


async def test_one_key_for_two_names(company: Company) -> None:
    """It would approve as two persons, also after the first name was withdrawn."""
    assert 0 == (await company.run(*PLAN)).status
    assert 0 == (await company.register()).status
    key = json.loads((await company.sign("--json")).out)["public_key"]
    second = ("bulk", "approver", "D. Deputy", key, "--who", "C. Board", "--why", "he told me", *IN, "--yes")
    for _ in range(2):
        ran = await company.run(*second)
        assert (2, True) == (ran.status, "was registered for B. Head" in ran.said), ran.said
        await company.run("bulk", "approver", "B. Head", "--withdraw", "--who", "C. Board", "--why", "left", *IN)


async def test_a_request_whose_sum_is_no_sum(company: Company) -> None:
    """One that would take all memory to be written out, and those that are no amount, are refused."""
    await company.proposed()
    words = words_of("asked.json")
    for amount in ("1e9999999999", "1e-300000000", "NaN", "-10000"):
        write_words("asked.json", words.replace('"amount":"10000"', f'"amount":"{amount}"'))
        ran = await company.sign("asked.json", "--yes")
        assert (2, True) == (ran.status, "amount: a sum of at most" in ran.said), ran.said
    write_words("asked.json", re.sub('"proposed_at":[^,}]+', '"proposed_at":1e308', words))
    assert "proposed_at: a count" in (await company.sign("asked.json", "--yes")).said


async def test_a_key_that_the_journal_does_not_count(company: Company, sandbox: Sandbox) -> None:
    """One that was never registered, the maker's own, and one that was withdrawn."""
    digest = await company.signed()
    stranger = await company.sign("asked.json", "--yes", "--answer", "other.json", who="D. Stranger")
    taken = await company.run("bulk", "approve", "--from", "other.json", *IN)
    assert (0, 2, True) == (stranger.status, taken.status, "is not registered for D. Stranger" in taken.said)
    own = await company.sign("asked.json", "--yes", "--answer", "own.json", who="A. Clerk")
    assert (2, True) == (own.status, "another person has to approve it" in own.said)
    gone = await company.run("bulk", "approver", "b head", "--withdraw", "--who", "C. Board", "--why", "left", *IN)
    assert 0 == gone.status, gone.said
    await refused(company, sandbox, digest, "is not registered for B. Head")


async def test_a_key_that_the_maker_registered(company: Company, sandbox: Sandbox) -> None:
    """It may be the maker's: another person has to answer for it."""
    digest = await company.proposed(registered_by="a clerk")
    assert 0 == (await company.sign("asked.json", "--yes")).status
    await refused(company, sandbox, digest, "another person has to register it")


async def test_a_key_for_a_journal_that_asks_for_approvals(company: Company, sandbox: Sandbox) -> None:
    """Another person approves the key first, also by a signed answer; the request names the decision."""
    await company.proposed()
    first = await company.register("A. Clerk", "D. Deputy")
    assert (2, True) == (first.status, "nothing was changed; it is proposed" in first.said), first.said
    digest = first.said.partition("bulk approve ")[2][:8]
    asked = await company.run("bulk", "approvals", digest, "--request", "asked.json", *IN)
    assert 0 == asked.status, asked.said
    signed = await company.sign("asked.json", "--yes")
    assert (0, True) == (signed.status, "count approvals signed by D. Deputy" in signed.said), signed.said
    assert 0 == (await company.run(*FROM)).status
    assert 0 == (await company.register("A. Clerk", "D. Deputy")).status
    assert "D. Deputy may sign on another machine" in (await company.run("bulk", "approvals", *IN)).said


async def test_options_that_an_answer_leaves_no_room_for(company: Company) -> None:
    """None is ignored."""
    for option in (("--note", "x"), ("--who", "B. Head"), ("--withdraw",), ("--file", "payroll.csv"), ("november",)):
        ran = await company.run(*FROM, *option)
        assert (2, True) == (ran.status, "leave out the other options" in ran.said), ran.said
    for arguments in (PLAN[:-3], ("bulk", "approvals", "november", *IN)):
        ran = await company.run(*arguments, *(("--request", "asked.json") if arguments[1] == "plan" else ()))
        assert (2, True) == (ran.status, "--request:" in ran.said), ran.said
    assert "--who: your name" in (await company.run("bulk", "approve", *IN)).said
