"""`bulk watch`: who may see its page and who may decide on it, and what it shows."""

import asyncio
import html
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from browser import browsing, needs_browser
from bulk.files import row, write_csv
from cli.commands import Run, started
from journal.factories import missed
from yarl import URL

from payments_async._cli.screen import Screen
from payments_async._cli.watch_server import WatchServer
from payments_async.ipn import TransactionSucceeded
from payments_async.journal import ApprovalRule, JournalUnavailable, Signal, Signature, SqliteJournal, State
from payments_async.journal.contract import Evidence, RawNotification
from payments_async.sandbox import Fault, Sandbox

SENT = ("--batch-id", "november", "--journal", "j.sqlite")
DECISION = {"who": "A. Clerk", "why": "letter of 3 May"}


class Page:
    """The page, as a browser without a window would ask for it.

    Attributes:
        said: What the command wrote about decisions.
    """

    def __init__(self, address: str, http: aiohttp.ClientSession, journal: SqliteJournal, said: list[str]) -> None:
        self.address = URL(address)
        self.journal = journal
        self.said = said
        self._http = http

    async def get(self, path: str = "", **headers: str) -> tuple[int, str]:
        """Status and words of one page."""
        async with self._http.get(self.address.join(URL(path)), headers=headers) as answer:
            return answer.status, html.unescape(await answer.text())

    async def headers(self) -> Mapping[str, str]:
        """What the page tells the browser."""
        async with self._http.get(self.address) as answer:
            return answer.headers

    async def form(self, path: str) -> dict[str, str]:
        """The hidden parts of the first form on a page."""
        _, words = await self.get(path)
        return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', words))

    async def post(self, action: str, form: Mapping[str, str], **headers: str) -> tuple[int, str]:
        """Send a form as the page would, but for what is said otherwise; status and words."""
        sent = {"Origin": str(self.address.origin()), **headers}
        async with self._http.post(self.address.join(URL(action)), data=form, headers=sent) as answer:
            return answer.status, html.unescape(await answer.text())


@asynccontextmanager
async def watched(*, decides: bool = True, personal: bool = False) -> AsyncIterator[Page]:
    """The page of the journal in the current folder."""
    said: list[str] = []
    async with SqliteJournal("j.sqlite") as journal, aiohttp.ClientSession() as http:
        screen = Screen(show_personal=personal)
        server = WatchServer(journal, screen, place="j.sqlite", decides=decides, log=said.append)
        try:
            yield Page(await server.start(0), http, journal, said)
        finally:
            await server.aclose()


@pytest.fixture
async def payroll(run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch in the current folder: one order paid, one refused, one parked, one contradicted; and a dead letter."""
    monkeypatch.chdir(tmp_path)
    names = ("Amber <b>Bold", "Basil Ng", "Cora Did", "Dina Eng")
    rows = [
        row(request_id=f"RUN-{n}", amount=f"{n}000", phone_number=f"+25677200000{n}", name=name)
        for n, name in enumerate(names, 1)
    ]
    write_csv(tmp_path / "payroll.csv", *rows)
    sandbox.script(Fault.REFUSED, on="payout", request_id="RUN-2")
    sandbox.script(Fault.LOST_BEFORE, on="payout", request_id="RUN-3")
    await run("bulk", "run", "payroll.csv", *SENT, "--yes", "--new-journal")
    await sandbox.settle()
    await run("bulk", "reconcile", *SENT, "--grace", "0", "--interval", "0")
    async with SqliteJournal("j.sqlite") as journal:
        failed = Evidence(
            signal=Signal.NOTIFIED_FAILED, source="notification 192.0.2.7", request_id="RUN-4", amount=Decimal(4000)
        )
        await journal.apply_evidence(failed)
        event = TransactionSucceeded(transaction_id="t-1", status_code=0, request_id="v-3")
        delivery = RawNotification(body=b"{}", query="", peer="192.0.2.7", received_at=1.0)
        receipt = await journal.receive(delivery, event, owner="me", lease=5.0)
        await journal.finish(receipt.event_id, "dead", error="no room")


async def test_what_the_page_shows(payroll: None) -> None:
    """Batches, what needs a person, what was not paid and why, dead letters; a person's name is masked."""
    async with watched() as page:
        status, words = await page.get()
        assert 200 == status
        wanted = (
            "november",
            "RUN-3",
            "RUN-4",
            "Evidence against evidence (1)",
            "code 4000",
            "Dead letters: 1",
            "no room",
        )
        assert [] == [one for one in wanted if one not in words]
        assert ("Needs a person or a look: 2" in words, "Dina Eng" in words) == (True, False)
        parts = ("Find", 'class="shares whole"', "Paid<", "On the way<", "Not paid<", "Needs a person<", "Not found:")
        places = [words.index(name) for name in (*parts, "How it went", "Batches")]
        assert sorted(places) == places


async def test_a_person_is_searched_for(payroll: None) -> None:
    """By a name or a telephone number; what is found is shown masked, and leads to its order."""
    async with watched() as page:
        for text in ("Dina%20Eng", "0772000004"):
            status, words = await page.get(f"orders?text={text}")
            assert (200, True, False) == (status, "order?id=RUN-4" in words, "RUN-3" in words)
            assert "<td>Dina Eng" not in words
        assert "None is here." in (await page.get("orders?text=Zoe"))[1]
        assert [404, 404] == [(await page.get(f"orders?{query}"))[0] for query in ("text=", "need=paid")]


@pytest.mark.parametrize(
    ("fault", "title"),
    [
        (Fault.LOST_BEFORE, "Outcome unknown: reconcile looks for it (12)"),
        (Fault.REFUSED, "code 4000: The transaction was refused"),
    ],
    ids=["unknown", "not-paid"],
)
async def test_orders_are_shown_by_reason_ten_at_a_time(
    run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, title: str
) -> None:
    """Twelve orders of which no answer came, or that the service refused: ten on the page, and two on the next."""
    monkeypatch.chdir(tmp_path)
    rows = [row(request_id=f"RUN-{n}", amount=f"{n}000", phone_number=f"+2567720000{n}") for n in range(10, 22)]
    write_csv(tmp_path / "payroll.csv", *rows)
    sandbox.script(fault, times=12, on="payout")
    await run("bulk", "run", "payroll.csv", *SENT, "--yes", "--new-journal", "--max-error-rate", "1")
    async with watched(decides=False) as page:
        _, words = await page.get()
        assert (title in words, 10) == (True, words.count("order?id="))
        (more,) = re.findall(r'href="(orders\?[^"]+)"', words)
        _, words = await page.get(html.unescape(more))
        assert ("page 2 of 2" in words, "The ten before" in words, 2) == (True, True, words.count("order?id="))


async def test_names_in_full_are_text_and_nothing_else(payroll: None) -> None:
    """With --show-personal they are there, and what looks like a tag in one is none."""
    async with watched(personal=True) as page, aiohttp.ClientSession() as http:
        async with http.get(page.address.join(URL("order?id=RUN-1"))) as answer:
            raw = await answer.text()
        assert ("Amber &lt;b&gt;Bold" in raw, "<b>Bold" in raw) == (True, False)


async def test_an_order_and_its_story(payroll: None) -> None:
    """All that happened to it; and without --decide no button."""
    async with watched(decides=False) as page:
        _, words = await page.get("order?id=RUN-3")
        assert ("It is not to be found" in words, "<button>" in words) == (True, False)
        assert 404 == (await page.get("order?id=nobody"))[0]
        assert 404 == (await page.post("send-again", DECISION))[0]


async def test_a_parked_order_is_written_off(payroll: None) -> None:
    """By whoever says who they are and why; the journal and the terminal say so."""
    async with watched() as page:
        form = await page.form("order?id=RUN-3")
        status, words = await page.post("send-again", {**form, **DECISION})
        entry = await page.journal.entry("RUN-3")
        assert entry is not None
        assert (200, State.PLANNED) == (status, entry.state)
        assert "A. Clerk decided: it never reached the service" in words
        assert ["RUN-3 is planned again, and will be sent again, as A. Clerk states: letter of 3 May"] == [
            one.split("  ", 1)[1] for one in page.said
        ]


@pytest.mark.slow
async def test_a_decision_that_somebody_else_has_to_approve(payroll: None) -> None:
    """Where the journal asks for approvals the page sends nothing again: it proposes, and does it once approved."""
    async with watched() as page:
        chair = Signature(who="C. Board")
        await page.journal.require_approvals(ApprovalRule(needed=1, why="four eyes", by=chair))
        form = {**await page.form("order?id=RUN-3"), **DECISION}
        status, words = await page.post("send-again", form)
        *_, made = await page.journal.proposals()  # before it, that of the run
        entry = await page.journal.entry("RUN-3")
        assert entry is not None
        assert (409, True, State.PARKED, "A. Clerk") == (status, made.digest in words, entry.state, made.by.who)
        await page.journal.approve(made.digest, by=Signature(who="B. Head"), note="read the letter")
        assert 200 == (await page.post("send-again", form))[0]


async def test_a_contradiction_is_acknowledged(payroll: None) -> None:
    """It stays in the story, and counts no more."""
    async with watched() as page:
        form = await page.form("order?id=RUN-4")
        assert 200 == (await page.post("acknowledge", {**form, **DECISION}))[0]
        assert 0 == (await page.journal.progress()).conflicts


async def test_what_was_learned_since_the_page_was_read(payroll: None) -> None:
    """A decision is about what was seen: once something else is known it is refused."""
    async with watched() as page:
        form = await page.form("order?id=RUN-3")
        paid = Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="record", request_id="RUN-3", amount=Decimal(3000))
        await page.journal.apply_evidence(paid)
        status, words = await page.post("send-again", {**form, **DECISION})
        assert (409, True, []) == (status, "Nothing was changed" in words, page.said)


async def test_a_dead_letter_waits_again(payroll: None) -> None:
    """Replayed once; the second time there is none."""
    async with watched() as page:
        form = {**await page.form(""), **DECISION}
        assert [200, 409] == [(await page.post("replay", form))[0] for _ in range(2)]
        assert (1, 0) == ((await page.journal.backlog()).pending, (await page.journal.backlog()).dead)


async def test_a_retry_file_is_handed_over(payroll: None) -> None:
    """It holds what surely was not paid, for whoever says who they are."""
    async with watched() as page:
        form = await page.form("retry?batch=november")
        status, words = await page.post("retry-file", {**form, **DECISION})
        assert (200, True, False) == (status, "RUN-2-R2" in words, "RUN-3" in words)
        assert "1 orders of november were taken as a retry file" in page.said[0]


@pytest.mark.parametrize(
    "forged",
    [
        {"form_token": ""},
        {"form_token": "x" * 32},
        {"who": " "},
        {"why": ""},
        {"why": "x" * 501},
        {"seen": "now"},
        {"seen": "inf"},
        {"seen": "nan"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
    ],
)
async def test_a_form_that_is_none_of_the_page(payroll: None, forged: dict[str, str]) -> None:
    """Another site's, one without its token, one that nobody answers for: nothing is changed."""
    headers = {name: value for name, value in forged.items() if name.istitle()}
    async with watched() as page:
        form = {**await page.form("order?id=RUN-3"), **DECISION}
        status, _ = await page.post("send-again", {**form, **forged}, **headers)
        entry = await page.journal.entry("RUN-3")
        assert entry is not None
        assert (True, State.PARKED, []) == (status in (400, 403), entry.state, page.said)


async def test_whoever_does_not_know_the_address(payroll: None) -> None:
    """Another token finds nothing; another name for this machine is turned away, as a rebound one would be."""
    async with watched() as page:
        assert 404 == (await page.get("/wrong/"))[0]
        assert 404 == (await page.get("/"))[0]
        assert 403 == (await page.get(Host="evil.example"))[0]
        port = page.address.port
        assert 200 == (await page.get(Host=f"localhost:{port}"))[0]


@pytest.mark.slow(covered=True)
async def test_what_the_browser_is_told(payroll: None) -> None:
    """No script but the page's own, no frame around it, nothing kept, nothing said to others."""
    async with watched() as page:
        told = await page.headers()
        policy = told["Content-Security-Policy"]
        assert ("default-src 'none'" in policy, "script-src 'self'" in policy, "unsafe" in policy) == (
            True,
            True,
            False,
        )
        assert ("no-store", "same-origin") == (told["Cache-Control"], told["Referrer-Policy"])


@pytest.mark.slow(covered=True)
async def test_a_page_that_shows_it_already_is_not_sent_again(payroll: None) -> None:
    """What asks every two seconds costs nothing on the wire while nothing changes."""
    async with watched() as page, aiohttp.ClientSession() as http:
        live = page.address.join(URL("live"))
        tag = ""
        async with asyncio.timeout(60):
            for status in (200, 304):
                while True:  # the plot comes once the batch was walked through
                    async with http.get(live, headers={"If-None-Match": tag}) as answer:
                        tag = answer.headers["ETag"]
                        if answer.status == status and ("polyline" in await answer.text() or status == 304):
                            break


@pytest.mark.slow(covered=True)
async def test_a_journal_that_cannot_be_read_now(payroll: None) -> None:
    """The page says so, and shows what it knew."""

    class Unreadable:
        def __init__(self, journal: Any) -> None:
            self._journal = journal
            self.is_broken = False

        def __getattr__(self, name: str) -> Any:
            if self.is_broken and name == "runs":
                raise JournalUnavailable("the disk does not answer")
            return getattr(self._journal, name)

    async with SqliteJournal("j.sqlite") as journal, aiohttp.ClientSession() as http:
        held: Any = Unreadable(journal)
        server = WatchServer(held, Screen(), place="j.sqlite", decides=False, log=[].append)
        try:
            page = Page(await server.start(0), http, journal, [])
            await page.get()
            held.is_broken = True
            async with asyncio.timeout(60):
                while "the disk does not answer" not in (found := await page.get())[1]:
                    pass
            assert (200, True) == (found[0], "RUN-3" in found[1])
        finally:
            await server.aclose()


async def test_there_is_no_journal(run: Run, tmp_path: Path) -> None:
    """As of every other command: it is bad input."""
    ran = await run("bulk", "watch", "--journal", str(tmp_path / "none.sqlite"))
    assert (2, True) == (ran.status, "there is no file" in ran.said)


@pytest.mark.slow
async def test_the_command_serves_until_stopped(payroll: None, sandbox: Sandbox) -> None:
    """It tells its address, which is of this machine; stopping it is no failure."""
    process = await started(sandbox, "bulk", "watch", "--journal", "j.sqlite")
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while not (
                found := re.search(rb"http://127\.0\.0\.1:\d+/\S{32}/", line := await process.stdout.readline())
            ):
                assert line, "it ended without an address"
            async with aiohttp.ClientSession() as http, http.get(found[0].decode()) as answer:
                assert (200, True) == (answer.status, "read only" in await answer.text())
            process.send_signal(signal.SIGINT)
            assert 0 == await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@needs_browser
@pytest.mark.slow
async def test_a_person_decides_in_a_browser(payroll: None, tmp_path: Path) -> None:
    """By the keyboard alone: an order is found, its story read, who and why typed, and it is sent again."""
    async with watched() as page, browsing(tmp_path) as tab:
        await tab.looks(width=1200)
        await tab.open(str(page.address))
        await tab.until("document.querySelectorAll('polyline').length")  # it updates itself
        await tab.value("document.querySelector('[data-key=\"order RUN-3\"]').focus()")
        await tab.press("Enter")
        await tab.until("location.pathname.endsWith('/order') && document.readyState === 'complete'")
        await tab.value("document.querySelector('[name=who]').focus()")
        await tab.type("A. Clerk")
        await tab.press("Tab")
        await tab.type("letter of 3 May")
        for key in ("Tab", " ", "Tab", "Enter"):
            await tab.press(key)
        await tab.until("document.body.innerText.includes('A. Clerk decided')")
        entry = await page.journal.entry("RUN-3")
        assert entry is not None
        assert (State.PLANNED, []) == (entry.state, tab.complaints)


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False), (390, True)])
async def test_the_page_on_every_screen(payroll: None, tmp_path: Path, width: int, dark: bool) -> None:
    """Nothing sticks out on a phone, the colours follow the system, and the policy refuses nothing of its own."""
    async with watched() as page, browsing(tmp_path) as tab:
        await tab.looks(width=width, dark=dark)
        await tab.open(str(page.address))
        await tab.until("document.querySelectorAll('polyline').length")
        await tab.screenshot(tmp_path / "page.png")
        assert width >= await tab.value("document.documentElement.scrollWidth")
        background = await tab.value("getComputedStyle(document.querySelector('main')).backgroundColor")
        assert ("rgb(26, 32, 40)" if dark else "rgb(255, 255, 255)") == background
        await tab.open(str(page.address.join(URL("order?id=RUN-3"))))
        await tab.screenshot(tmp_path / "order.png")
        assert width >= await tab.value("document.documentElement.scrollWidth")
        await tab.open(str(page.address.join(URL("orders?need=parked"))))
        assert width >= await tab.value("document.documentElement.scrollWidth")
        assert [] == tab.complaints


@needs_browser
@pytest.mark.slow
async def test_the_program_behind_the_page_ends(payroll: None, tmp_path: Path) -> None:
    """The page says that what it shows is old."""
    async with browsing(tmp_path) as tab:
        async with watched() as page:
            await tab.open(str(page.address))
        await tab.until("!document.getElementById('lost').hidden")
        assert "does not answer" in await tab.words()


def put_back(file: Path) -> None:
    """Restore a file from a backup, without the mark beside it."""
    whole = file.read_bytes()
    for one in (file, file.with_name(f"{file.name}-mark")):
        one.unlink()
    file.write_bytes(whole)


@pytest.fixture
async def restored(run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch put into an outbox, of which a copy was put back after a pause: it is in quarantine."""
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "payroll.csv", *[row(request_id=f"RUN-{n}", phone_number=f"+25677200000{n}") for n in (1, 2)])
    assert 0 == (await run("outbox", "put", "payroll.csv", *SENT, "--yes", "--new-journal")).status
    put_back(Path("j.sqlite"))
    async with SqliteJournal("j.sqlite") as journal:
        await journal.pause("outbox", who="A. Clerk", why="it was restored")


async def test_a_quarantine_is_lifted_on_the_page(restored: None) -> None:
    """Not before it was looked for; then by a named person, who has seen how much of it is sent."""
    async with watched() as page:
        _, words = await page.get()
        assert "In quarantine: november" in words
        assert "Paused: outbox" in words
        assert "No order needs a person" not in words
        assert "by A. Clerk since" in words
        _, words = await page.get("quarantine?batch=november")
        assert "Nobody may lift it yet: 2 complete lists" in words
        assert "payments-async bulk reconcile --journal j.sqlite --batch-id november" in words
        form = {"form_token": (await page.form("retry?batch=november"))["form_token"], "batch_id": "november"}
        early = await page.post("lift-quarantine", {**form, **DECISION, "seen": "0"})
        assert (409, True) == (early[0], "reconcile it until then" in early[1])
        assert (await page.journal.run("november")).quarantined
    async with SqliteJournal("j.sqlite") as journal:
        await missed(journal, "november")
    async with watched() as page:
        form = await page.form("quarantine?batch=november")
        stale = await page.post("lift-quarantine", {**form, **DECISION, "seen": "1.5"})
        assert (409, True) == (stale[0], bool((await page.journal.run("november")).quarantined)), stale
        nameless = await page.post("lift-quarantine", {**form, "who": " ", "why": "x"})
        assert 400 == nameless[0]
        lifted = await page.post("lift-quarantine", {**form, **DECISION})
        assert (200, 0) == (lifted[0], (await page.journal.run("november")).quarantined), lifted
        assert "1 chunks of november were let out of quarantine" in page.said[0]
        assert "A. Clerk" in page.said[0]


async def test_a_quarantine_on_a_page_that_only_reads(restored: None) -> None:
    """It is shown, and nobody can lift it there."""
    async with watched(decides=False) as page:
        _, words = await page.get("quarantine?batch=november")
        assert "Nobody may lift it yet: 2 complete lists" in words
        assert 404 == (await page.post("lift-quarantine", {"batch_id": "november", **DECISION, "seen": "0"}))[0]


async def test_handlers_that_failed_too_often_are_replayed_on_the_page(restored: None) -> None:
    """Which order, what it came to and why nobody could be told; once the application is mended it hears of it."""
    async with SqliteJournal("j.sqlite") as journal:
        await journal.hear("outbox", [State.SUCCESSFUL])
        paid = Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", request_id="RUN-1", amount=Decimal(150000))
        await journal.apply_evidence(paid)
        (change,) = await journal.claim_changes("outbox", [State.SUCCESSFUL], "me", lease=60, limit=1)
        await journal.finish_changes([change.id], "dead", error="the shop is away")
    async with watched() as page:
        _, words = await page.get()
        assert "Handlers that failed too often: 1" in words
        assert "the shop is away" in words
        form = {"form_token": (await page.form("retry?batch=november"))["form_token"], "change_id": str(change.id)}
        assert 200 == (await page.post("replay-change", {**form, **DECISION}))[0]
        assert 0 == (await page.journal.change_backlog("outbox")).dead
        assert 409 == (await page.post("replay-change", {**form, **DECISION}))[0]
