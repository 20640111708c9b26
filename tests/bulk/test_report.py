"""The report of a batch: a table and a page that agree with the journal, show no person, and cannot be misread."""

import csv
from collections.abc import AsyncIterator
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest
from browser import browsing, needs_browser

from payments_async import BankAccount, Beneficiary, MobileMoneyWallet, PayoutOrder
from payments_async.bulk import Report, report
from payments_async.bulk._report._files import replacing
from payments_async.journal import RunIdentity, RunUnknown, Signal, SqliteJournal, State
from payments_async.journal.contract import Evidence, Outcome, Permit

IDENTITY = RunIdentity(base_address="https://payments.example", key_fingerprint="0", user_id="u")
ITEM = "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"


def order(number: int, **changes: object) -> PayoutOrder:
    """A good order."""
    good: dict[str, object] = {
        "request_id": f"RUN-{number}",
        "amount": Decimal(1000 * number),
        "destination": MobileMoneyWallet(f"+2567720{number:05}"),
        "product_item_id": ITEM,
        "beneficiary": Beneficiary(name="Amber Brightwater"),
        "currency": "UGX",
    }
    return PayoutOrder(**{**good, **changes})  # type: ignore[arg-type]


ENDINGS: dict[int, tuple[Signal, Signal | None]] = {
    1: (Signal.ACCEPTED, Signal.LOOKED_UP_SUCCESSFUL),
    2: (Signal.ACCEPTED, Signal.LOOKED_UP_FAILED),
    3: (Signal.REJECTED, None),
    4: (Signal.UNKNOWN, None),
    5: (Signal.UNKNOWN, Signal.SWEPT_CLEAN_TWICE),
    6: (Signal.ACCEPTED, None),
}
ORDERS = [
    *map(order, range(1, 6)),
    order(6, destination=BankAccount("0011195000016", "BANK01"), beneficiary=Beneficiary(name='<b>"&Ñandú</b>')),
    order(7),
]


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    """A journal with one batch, in which every kind of end is to be found; order 7 was not sent."""
    async with SqliteJournal(tmp_path / "journal.sqlite") as held:
        await held.open_run("november", IDENTITY, source_digest="d1635")
        await held.load("november", ORDERS, owner="test")
        chunk = await held.claim_chunk("november", "test")
        assert chunk is not None
        for number, claimed in enumerate(chunk.orders[:6], start=1):
            permit = await held.permit(chunk, claimed)
            assert isinstance(permit, Permit)
            answer, later = ENDINGS[number]
            words = "=HYPERLINK(1) for +256772000003" if answer is Signal.REJECTED else None
            await held.record(Outcome(permit=permit, signal=answer, message=words))
            await end(held, number, later)
        yield held


async def end(journal: SqliteJournal, number: int, signal: Signal | None) -> None:
    """What is found out about an order."""
    if signal is Signal.SWEPT_CLEAN_TWICE:
        await journal.park(f"RUN-{number}", detail="two clean list scans")
    elif signal is not None:
        evidence = Evidence(
            signal=signal, source="list FAILED", request_id=f"RUN-{number}", amount=Decimal(1000 * number)
        )
        await journal.apply_evidence(evidence)


def names(folder: Path) -> set[str]:
    """What is in a folder."""
    return {path.name for path in folder.iterdir()}


def rows(path: Path) -> dict[str, dict[str, str]]:
    """The table, by request id."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {line["Request id"]: line for line in csv.DictReader(file)}


@attrs.define
class Seen(HTMLParser):
    """The tags, the addresses and the words of a page."""

    tags: set[str] = attrs.field(factory=set)
    addresses: list[str] = attrs.field(factory=list)
    words: list[str] = attrs.field(factory=list)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [f"{name}={value}" for name, value in attributes if name in ("src", "href", "action")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def seen(path: Path) -> Seen:
    """What a browser makes of a page."""
    page = Seen()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def moment() -> float:
    """Always the same."""
    return 1e9


async def written(journal: SqliteJournal, folder: Path, **options: object) -> Report:
    """Both files."""
    return await report(journal, "november", csv=folder / "r.csv", html=folder / "r.html", **options)  # type: ignore[arg-type]


async def test_every_order_has_a_row_with_its_outcome_and_evidence(journal: SqliteJournal, tmp_path: Path) -> None:
    """What happened, since when, and what says so; an order that was not sent has none of it."""
    await written(journal, tmp_path)
    table = rows(tmp_path / "r.csv")
    expected = ["successful", "failed", "rejected", "unknown", "parked", "accepted", "planned"]
    assert expected == [line["Outcome"] for line in table.values()]
    evidence = [line["Evidence"] for line in table.values()]
    look_up = "a look-up (list FAILED)"
    answer = "the service's answer"
    assert [look_up, look_up, answer, answer, "a look-up (sweep)", answer, ""] == evidence
    assert ["1000", "BANK01"] == [table["RUN-1"]["Amount"], table["RUN-6"]["Bank code"]]
    assert all(line["Since (UTC)"].startswith("20") for line in list(table.values())[:6])


async def test_totals_agree_with_the_journal(journal: SqliteJournal, tmp_path: Path) -> None:
    """By state and by kind, in the result and on the page."""
    result = await written(journal, tmp_path)
    progress = await journal.progress("november")
    assert progress.counts == {state: share.count for state, share in result.by_state.items()}
    assert progress.sums == {state: share.total for state, share in result.by_state.items()}
    assert {"bank_transfer": 1, "mobile_money": 6} == {kind: share.count for kind, share in result.by_kind.items()}
    assert "28,000 UGX" in seen(tmp_path / "r.html").words


async def test_the_page_begins_with_four_figures(journal: SqliteJournal, tmp_path: Path) -> None:
    """Paid, on the way, not paid, needs a person: each order is counted in one of them."""
    await written(journal, tmp_path)
    words = " ".join(" ".join(seen(tmp_path / "r.html").words).split())
    assert "1 Paid 1,000 UGX 2 On the way 13,000 UGX 2 Not paid see below 2 Need a person see below" in words
    figures = (await journal.progress("november")).figures
    assert {"paid": 1, "on the way": 2, "not paid": 2, "needs a person": 2} == {
        name: count for name, (count, _) in figures.items()
    }


async def test_the_heads_of_the_tables_are_plain_words(journal: SqliteJournal, tmp_path: Path) -> None:
    """The page is filed: whoever reads it knows none of our names."""
    await journal.send_again("RUN-5", who="A. Clerk", why="letter of 3 May")
    await written(journal, tmp_path)
    words = "|".join(seen(tmp_path / "r.html").words)
    assert "Outcome|Orders|Sum UGX|Meaning" in words
    assert "Kind|Orders|Sum UGX|Paid|Paid UGX" in words
    assert "When (UTC)|Who|About|Decision|Why" in words


async def test_what_needs_a_person_stands_at_the_top(journal: SqliteJournal, tmp_path: Path) -> None:
    """Unknown, parked and contradicted orders come before those that were not paid, each with what to do."""
    await end(journal, 1, Signal.LOOKED_UP_FAILED)  # after a success: evidence against evidence
    result = await written(journal, tmp_path)
    text = " ".join(seen(tmp_path / "r.html").words)
    top = text[: text.index("Every order")]
    assert 3 == result.needing
    need = top[top.index("Needs a person: 3") : top.index("Not paid, and why")]
    assert ["RUN-1", "RUN-4", "RUN-5"] == [one.request_id for one in ORDERS if one.request_id in need]
    assert "evidence contradicts" in top
    assert "never send it again" in top
    assert "" != rows(tmp_path / "r.csv")["RUN-5"]["What a person must do"]


async def test_nobody_can_be_recognised_by_default(journal: SqliteJournal, tmp_path: Path) -> None:
    """Names and numbers are masked, also in the service's words; asked for, they are in full."""
    await written(journal, tmp_path)
    both = (tmp_path / "r.csv").read_text() + (tmp_path / "r.html").read_text()
    people = ("Amber", "Brightwater", "Ñandú", "772000003", "77200000", "0011195000016")
    assert [] == [person for person in people if person in both]
    await written(journal, tmp_path, personal=True, overwrite=True)
    assert "Amber Brightwater" in (tmp_path / "r.html").read_text()
    assert ("'+256772000001", "0011195000016") == tuple(
        rows(tmp_path / "r.csv")[name]["Wallet, account or line"] for name in ("RUN-1", "RUN-6")
    )


async def test_no_cell_becomes_a_formula(journal: SqliteJournal, tmp_path: Path) -> None:
    """The service's words and everything else that begins like a formula is quoted."""
    await written(journal, tmp_path, personal=True)
    table = rows(tmp_path / "r.csv")
    assert table["RUN-3"]["The service's words"].startswith("'=HYPERLINK")
    assert [] == [cell for line in table.values() for cell in line.values() if cell[:1] in tuple("=+-@\t\r")]


async def test_the_page_needs_nothing_else_and_takes_no_markup(journal: SqliteJournal, tmp_path: Path) -> None:
    """No script, no picture, no link; a name with markup in it is a name."""
    await written(journal, tmp_path, personal=True)
    page = seen(tmp_path / "r.html")
    assert [] == page.addresses
    assert set() == page.tags & {"script", "link", "img", "iframe", "form", "b-"}
    assert '<b>"&Ñandú</b>' in "".join(page.words)
    assert "url(" not in (tmp_path / "r.html").read_text()


async def test_a_long_batch_has_its_first_rows_on_the_page_and_all_in_the_table(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    """The page says so, and what needs a person is on it all the same."""
    await written(journal, tmp_path, html_rows=2)
    text = " ".join(seen(tmp_path / "r.html").words)
    assert "The first 2 of 7 orders" in text
    assert "RUN-5" in text
    assert "RUN-7" not in text
    assert 7 == len(rows(tmp_path / "r.csv"))


@pytest.mark.parametrize("most", range(9))
async def test_the_page_is_the_same_with_the_table_and_without(
    journal: SqliteJournal, tmp_path: Path, most: int
) -> None:
    """Without it no line is made of an order that the page only counts, and that must not show."""
    both = await written(journal, tmp_path, html_rows=most, clock=moment)
    alone = await report(journal, "november", html=tmp_path / "alone.html", html_rows=most, clock=moment)
    assert (tmp_path / "r.html").read_bytes() == (tmp_path / "alone.html").read_bytes()
    assert attrs.evolve(both, csv=None, html=alone.html) == alone


async def test_a_batch_of_which_very_many_need_a_person_has_a_page_that_opens(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    """Its first rows, with how many there are in all; every one of them is in the table."""
    result = await written(journal, tmp_path, html_rows=1)
    text = " ".join(seen(tmp_path / "r.html").words)
    assert (2, True) == (result.needing, "Needs a person: 2, the first 1 of them" in text)
    assert ("RUN-4" in text, "RUN-5" in text) == (True, False)
    assert ["RUN-4", "RUN-5"] == [n for n, line in rows(tmp_path / "r.csv").items() if line["What a person must do"]]


async def test_a_report_that_is_there_is_kept(journal: SqliteJournal, tmp_path: Path) -> None:
    """It is replaced only when told to, and nothing half-written is left behind."""
    await report(journal, "november", html=tmp_path / "r.html", clock=lambda: 0.0)
    filed = (tmp_path / "r.html").read_text()
    with pytest.raises(FileExistsError, match="is there already"):
        await written(journal, tmp_path)
    assert filed == (tmp_path / "r.html").read_text()
    assert not (tmp_path / "r.csv").exists()
    await written(journal, tmp_path, overwrite=True)
    assert filed != (tmp_path / "r.html").read_text()
    await written(journal, tmp_path, overwrite=True)
    assert {"r.csv", "r.html"} == {name for name in names(tmp_path) if "journal" not in name}
    assert 0o600 == (tmp_path / "r.csv").stat().st_mode & 0o777


async def test_what_a_killed_process_left_of_a_report_is_removed_by_the_next(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    """It names persons. What somebody writes stays, as does a file of another name, another kind or other rights."""
    await written(journal, tmp_path)
    head = (tmp_path / "r.csv").read_bytes()[:100]
    kept = {".r.csv.abcdefg": head, ".r.csv.longer_one": head, ".s.csv.abcdefgh": head, ".r.csv.original": b"My notes"}
    for name, content in ({".r.csv.abc_efg1": head, ".r.csv.abcdefgh": b""} | kept).items():
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_bytes(content)
    (tmp_path / ".r.csv.readable").write_bytes(head)
    (tmp_path / ".r.csv.readable").chmod(0o644)
    with replacing(tmp_path / "r.csv", marker=head[:5], overwrite=True) as living:
        living.write(head)
        living.flush()
        (unfinished,) = {name for name in names(tmp_path) if name.startswith(".")} - {*kept, ".r.csv.readable"}
        await written(journal, tmp_path, overwrite=True)
        there = {name for name in names(tmp_path) if name.startswith(".")}
    assert {*kept, ".r.csv.readable", unfinished} == there


@pytest.mark.parametrize(
    "path", ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "JOURNAL.sqlite-Mark", "other.sqlite-wal"]
)
async def test_a_report_is_never_written_to_a_file_of_a_journal(
    journal: SqliteJournal, tmp_path: Path, path: str
) -> None:
    """Neither to one that is there nor to one that may come to be."""
    for kind in ("csv", "html"):
        with pytest.raises(ValueError, match="journal"):
            await report(journal, "november", **{kind: tmp_path / path}, overwrite=True)  # type: ignore[arg-type]
    assert 7 == (await journal.progress("november")).total


@pytest.mark.parametrize("content", ["request_id,kind,amount\n", "Request id,Kind,Amount\n", "<!doctype html>\n", "x"])
async def test_a_file_that_is_no_report_is_never_replaced(journal: SqliteJournal, tmp_path: Path, content: str) -> None:
    """Whatever it is called, by its own name or another; nothing is written of the other file either."""
    (tmp_path / "payroll.csv").write_text(content)
    (tmp_path / "link.csv").symlink_to(tmp_path / "payroll.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "payroll.csv")
    for name in ("payroll.csv", "link.csv", "hard.csv"):
        with pytest.raises(ValueError, match="is not a report: it is never replaced"):
            await report(journal, "november", csv=tmp_path / name, html=tmp_path / "r.html", overwrite=True)
        with pytest.raises(ValueError, match="is not a report"):
            await report(journal, "november", html=tmp_path / name, overwrite=True)
    assert content == (tmp_path / "payroll.csv").read_text()
    assert not (tmp_path / "r.html").exists()


async def test_the_table_and_the_page_are_two_files(journal: SqliteJournal, tmp_path: Path) -> None:
    """Else one would replace the other."""
    with pytest.raises(ValueError, match="cannot be both"):
        await report(journal, "november", csv=tmp_path / "r", html=tmp_path / "r")
    assert not (tmp_path / "r").exists()


async def test_a_link_to_a_report_stays_a_link(journal: SqliteJournal, tmp_path: Path) -> None:
    """The file it leads to is replaced; a device is not."""
    await report(journal, "november", csv=tmp_path / "r.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "r.csv")
    await report(journal, "november", csv=tmp_path / "link.csv", overwrite=True)
    assert (tmp_path / "link.csv").is_symlink()
    with pytest.raises(ValueError, match="not a regular file"):
        await report(journal, "november", csv="/dev/null", overwrite=True)


async def test_what_was_not_paid_is_named_with_the_reason(journal: SqliteJournal, tmp_path: Path) -> None:
    """Refused and failed orders have a table of their own, and a column; unknown ones may have been paid."""
    result = await written(journal, tmp_path)
    page = " ".join(seen(tmp_path / "r.html").words)
    unpaid = page[page.index("Not paid, and why: 2") : page.index("Every order")]
    assert ["RUN-2", "RUN-3"] == [one.request_id for one in ORDERS if one.request_id in unpaid]
    assert "the service refused it: =HYPERLINK(1)" in unpaid
    why = {name: line["Not paid, and why"] for name, line in rows(tmp_path / "r.csv").items()}
    assert ["RUN-2", "RUN-3"] == [name for name, words in why.items() if words]
    assert "the service took it, and then it failed" == why["RUN-2"]
    assert 2 == result.unpaid


async def test_a_banner_says_whether_the_batch_is_final(journal: SqliteJournal, tmp_path: Path) -> None:
    """What is only accepted is not final, and nothing on the page is green about it."""
    await written(journal, tmp_path)
    page = (tmp_path / "r.html").read_text()
    assert "Not final yet: 1 not sent, 1 accepted, not settled, 1 may have been paid, 1 not found." in page
    assert '<p class="fine' not in page


async def test_orders_that_are_only_accepted_are_not_final(tmp_path: Path) -> None:
    """Nine of nine: no word that all is well until they are paid; then there is one."""
    async with SqliteJournal(tmp_path / "nine.sqlite") as held:
        await held.open_run("nine", IDENTITY)
        await held.load("nine", map(order, range(1, 10)), owner="test")
        chunk = await held.claim_chunk("nine", "test")
        assert chunk is not None
        for claimed in chunk.orders:
            permit = await held.permit(chunk, claimed)
            assert isinstance(permit, Permit)
            await held.record(Outcome(permit=permit, signal=Signal.ACCEPTED))
        early = await report(held, "nine", html=tmp_path / "r.html")
        assert "not final yet: 9 accepted, not settled" == early.standing
        assert '<p class="fine' not in (tmp_path / "r.html").read_text()
        for number in range(1, 10):
            await end(held, number, Signal.LOOKED_UP_SUCCESSFUL)
        late = await report(held, "nine", html=tmp_path / "r.html", overwrite=True)
        assert ("final", 0, 0) == (late.standing, late.unpaid, late.needing)
        assert '<p class="fine banner"><b>Final.</b> Every order was paid' in (tmp_path / "r.html").read_text()


async def test_decisions_of_persons_are_in_the_report(journal: SqliteJournal, tmp_path: Path) -> None:
    """Who, when, why and about which order: on the page and in the table, whatever became of the order since."""
    await journal.send_again("RUN-5", who="A. Clerk", why="letter of 3 May, from +256772000005")
    await journal.lift_quarantine("november", who="B. Auditor", why="statement of 4 May")
    await written(journal, tmp_path)
    page = " ".join(seen(tmp_path / "r.html").words)
    decisions = page[page.index("Decisions: 2") : page.index("Every order")]
    for words in (
        "A. Clerk",
        "RUN-5",
        "sent again",
        "letter of 3 May",
        "B. Auditor",
        "the batch",
        "statement of 4 May",
    ):
        assert words in decisions
    cell = rows(tmp_path / "r.csv")["RUN-5"]["Decisions"]
    assert cell.startswith("sent again: a person states that it never reached the service, by A. Clerk on 20")
    assert "772000005" not in cell + page


async def test_a_batch_nobody_knows_is_told(journal: SqliteJournal, tmp_path: Path) -> None:
    """No empty report of a mistyped name."""
    with pytest.raises(RunUnknown):
        await report(journal, "nowember", csv=tmp_path / "r.csv")
    assert not (tmp_path / "r.csv").exists()


async def test_each_file_can_be_had_alone(journal: SqliteJournal, tmp_path: Path) -> None:
    """What is not asked for is not written."""
    assert None is (await report(journal, "november", csv=tmp_path / "only.csv")).html
    result = await report(journal, "november", html=tmp_path / "only.html")
    assert (None, 1) == (result.csv, result.by_state[State.PARKED].count)


async def test_rows_that_are_read_in_parts_are_all_there_and_whole(tmp_path: Path) -> None:
    """A page of some hundred kilobytes, with names of many bytes: none is torn, and each stands there once."""
    wide = Beneficiary(name="Żółć 的 😀")
    async with SqliteJournal(tmp_path / "long.db") as journal:
        await journal.open_run("long", IDENTITY)
        await journal.load("long", (order(number, beneficiary=wide) for number in range(1, 701)), owner="test")
        await report(journal, "long", html=tmp_path / "long.html", personal=True)
    page = (tmp_path / "long.html").read_text(encoding="utf-8")
    assert (700, 700) == (page.count("Żółć 的 😀"), page.count('<td class="when">'))
    assert [1] * 700 == [page.count(f'<td class="id">RUN-{number}</td>') for number in range(1, 701)]


@needs_browser
@pytest.mark.slow
async def test_a_long_report_on_paper(tmp_path: Path) -> None:
    """Some sixty orders to a page of A4, upright, each on a line of its own, with who, to where, how much and how."""
    async with SqliteJournal(tmp_path / "long.db") as journal:
        await journal.open_run("long", IDENTITY)
        await journal.load("long", map(order, range(1, 601)), owner="test")
        await report(journal, "long", html=tmp_path / "long.html", personal=True)
    async with browsing(tmp_path) as tab:
        await tab.open((tmp_path / "long.html").as_uri())
        assert await tab.pages_of_print(tmp_path / "long.pdf") <= 12
        assert [] == tab.complaints
        await tab.tell("Emulation.setEmulatedMedia", media="print")
        places = ", ".join(f"document.querySelector('.{one}').offsetTop" for one in ("totals", "signatures", "rows"))
        totals, signatures, every_order = await tab.value(f"[{places}]")
        assert totals < signatures < every_order, "what is signed is on the first sheet"
        shown = (
            "[...document.querySelectorAll('.rows th')].filter((one) => one.offsetWidth).map((one) => one.innerText)"
        )
        columns = ["Request id", "Beneficiary", "Paid to", "Amount", "Outcome", "Since (UTC)"]
        assert columns == await tab.value(shown)
