"""Reading a batch file: what is good becomes orders, and everything that is bad is told at once."""

import csv
import io
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from bulk.files import HEADER, KINDS, MTN, SAMPLES, csv_text, row, write_csv, write_workbook
from nested import for_read

from payments_async import (
    AirtimeLine,
    BankAccount,
    Beneficiary,
    InternetLine,
    MobileMoneyWallet,
    PayoutOrder,
    UtilityAccount,
)
from payments_async.bulk import Batch, FileFormat, Problem, read_batch, sample_payroll
from payments_async.bulk._file._rows import read_cells
from payments_async.bulk._file._tables import open_table


async def problems_of(tmp_path: Path, *rows: dict[str, str], **options: object) -> list[tuple[int, str]]:
    """Rows and columns that are told of a file with these rows."""
    batch = await read_batch(write_csv(tmp_path / "batch.csv", *rows), **for_read(options))
    return [(problem.row, problem.column) for problem in batch.problems]


async def exported() -> Batch:
    """The sample that a spreadsheet exported."""
    return await read_batch(SAMPLES / "exported.csv")


async def test_every_planted_fault_of_an_export_is_told() -> None:
    """Seventeen bad rows give nineteen problems: one row has three."""
    told = [(problem.row, problem.column, problem.remedy.partition(" ")[0]) for problem in (await exported()).problems]
    expected = [
        (11, "amount", "negative;"),
        (12, "amount", "more"),
        (13, "amount", "empty;"),
        (14, "amount", "not"),
        (15, "amount", "no"),
        (16, "phone_number", "ruined"),
        (17, "phone_number", "empty,"),
        (18, "kind", "no"),
        (19, "request_id", "empty;"),
        (20, "product_item_id", "empty;"),
        (21, "request_id", "repeats"),
        (22, "request_id", "row"),
        (23, "area", "empty,"),
        (24, "name", "a"),
        (25, "account_number", "ruined"),
        (26, "amount", "in"),
        (27, "amount", "ambiguous:"),
        (27, "phone_number", "no"),
        (27, "name", "empty;"),
    ]
    assert sorted(expected) == sorted(told)
    assert [row for row, _, _ in told] == sorted(row for row, _, _ in told)


async def test_every_good_row_of_an_export_is_read_right() -> None:
    """Blanks, thousands, currency words and the four ways to write a number do not change what is meant."""
    orders = {order.request_id: order for order in (await exported()).orders}
    assert [f"RUN-000{n}" for n in range(1, 9)] == list(orders)
    expected = PayoutOrder(
        request_id="RUN-0001",
        amount=Decimal(167000),
        destination=MobileMoneyWallet("+256772000001"),
        product_item_id=MTN,
        beneficiary=Beneficiary(name="Amber Brightwater", phone_number="+256772000001"),
        message="Sample salary",
        currency="UGX",
    )
    assert expected == orders["RUN-0001"]
    amounts = ["167000", "14500", "237000", "254000", "2887500.50", "500.50", "5000", "2000"]
    assert [Decimal(amount) for amount in amounts] == [order.amount for order in orders.values()]
    assert [
        MobileMoneyWallet("+256772000001"),
        MobileMoneyWallet("+256701000002"),
        UtilityAccount("1380750001", "Kampala"),
        MobileMoneyWallet("+256772000004"),
        MobileMoneyWallet("+256701000005"),
        BankAccount("0011195000016", "BANK01"),
        AirtimeLine("+256772000007"),
        InternetLine("+256701000008"),
    ] == [order.destination for order in orders.values()]
    assert ["Dahlia O'Fern", "Ñandú Evergreen"] == [orders[f"RUN-000{n}"].beneficiary.name for n in (4, 5)]
    assert ("+256701000006", "fern6@example.org") == (
        orders["RUN-0006"].beneficiary.phone_number,
        orders["RUN-0006"].beneficiary.email_address,
    )


async def test_what_is_read_again_is_what_was_checked(tmp_path: Path) -> None:
    """The second reading checks nothing. Numbers, accounts and currencies are rewritten alike."""
    rows = [row(request_id=f"R-{kind}", kind=kind) for kind in KINDS]
    rows += [
        row(request_id="R-1", kind="Mobile Money", currency="ugx", phone_number="0772 000-001", account_number="=1"),
        row(request_id="R-2", kind="bank", account_number="'0011", amount="UGX 1,500.50", currency=""),
        row(request_id="R-3", phone_number="12"),
        row(request_id="", product_item_id="", message="=1+1", email_address="a@example.org"),
    ]
    text = write_csv(tmp_path / "b.csv", *rows)
    header = list(rows[0])
    book = write_workbook(tmp_path / "b.xlsx", [header, *([one[name] for name in header] for one in rows)])
    book_of_numbers = write_workbook(
        tmp_path / "n.xlsx",
        [header, [row()[name] if name not in ("amount", "request_id") else 150000 for name in header]],
    )
    for path in (text, book, book_of_numbers):
        batch = await read_batch(path, derive_request_ids=True, guess_items=True, batch_id="b")
        layout, rules = batch.orders._layout, batch.orders._rules
        with open_table(path, layout) as table:
            checked = [read_cells(one.cells, rules).order for one in table.rows]
        again = list(batch.orders)
        assert list(filter(None, checked)) == again
        assert {str} == {type(order.request_id) for order in again} | {type(order.product_item_id) for order in again}
        assert len(again) == len(batch.orders)


async def test_orders_can_be_walked_through_again() -> None:
    """Each walk reads the file anew and gives the same orders; their number is known before."""
    batch = await exported()
    first = list(batch.orders)
    assert first == list(batch.orders)
    assert (8, 25) == (len(batch.orders), batch.rows)
    assert 8 == len(first)


async def test_repeated_row_and_reused_id_are_told_apart(tmp_path: Path) -> None:
    """The same row twice, another amount, and another beneficiary have a remedy each, and it names the first row."""
    other = row(phone_number="0772000002")
    path = write_csv(
        tmp_path / "b.csv", row(), row(amount="150,000.00"), row(amount="1"), other, row(request_id="RUN-2")
    )
    batch = await read_batch(path)
    assert [("nothing", 3), ("amount", 4), ("details", 5)] == [(r.difference, r.row) for r in batch.repeats]
    remedies = [problem.remedy for problem in batch.problems]
    assert 3 == len(set(remedies))
    assert all("row 2" in remedy for remedy in remedies)
    assert {"RUN-1"} == {problem.value for problem in batch.problems}
    assert [("RUN-1", Decimal(150000)), ("RUN-2", Decimal(150000))] == [(o.request_id, o.amount) for o in batch.orders]


async def test_id_of_a_bad_row_is_taken_too(tmp_path: Path) -> None:
    """A good row with the id of a bad one is no order: the mended row would meet it later."""
    batch = await read_batch(write_csv(tmp_path / "b.csv", row(amount="-1"), row(), row(amount="0")))
    assert 0 == len(batch.orders) == len(list(batch.orders))
    assert [2, 3, 4, 4] == [problem.row for problem in batch.problems]


async def test_row_without_request_id_is_refused_unless_ids_are_derived(tmp_path: Path) -> None:
    """A derived id is stable: it does not depend on place, spelling, or how the beneficiary is called."""
    first, second = row(request_id=""), row(request_id="", amount="1,000")
    assert [(2, "request_id"), (3, "request_id")] == await problems_of(tmp_path, first, second)
    one = await read_batch(write_csv(tmp_path / "1.csv", first, second), derive_request_ids=True, batch_id="2026-11")
    again = [second | {"amount": "1000.00", "name": "A. Brightwater", "phone_number": "0772000001"}, first]
    other = await read_batch(write_csv(tmp_path / "2.csv", *again), derive_request_ids=True, batch_id="2026-11")
    next_month = await read_batch(tmp_path / "2.csv", derive_request_ids=True, batch_id="2026-12")
    ids = [order.request_id for order in one.orders]
    assert ids == [order.request_id for order in other.orders][::-1]
    assert set(ids).isdisjoint(order.request_id for order in next_month.orders)
    assert {"2026-11"} == {order.batch_id for order in one.orders}
    assert () == one.problems == one.notes


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("mobile_money", {"amount": "7"}),
        ("mobile_money", {"currency": "KES"}),
        ("mobile_money", {"phone_number": "+256772000002"}),
        ("mobile_money", {"message": "Sample bonus"}),
        ("mobile_money", {"metadata": "staff 2"}),
        ("bank_transfer", {"account_number": "0011195000017"}),
        ("bank_transfer", {"bank_code": "BANK02"}),
        ("utility", {"customer_reference": "0138075002"}),
        ("utility", {"area": "Jinja"}),
    ],
)
async def test_derived_id_follows_the_business_fields(tmp_path: Path, kind: str, change: dict[str, str]) -> None:
    """Whatever makes it another payment makes it another id."""
    rows = row(kind=kind, request_id=""), row(kind=kind, request_id="", **change)
    batch = await read_batch(write_csv(tmp_path / "b.csv", *rows), derive_request_ids=True, batch_id="B")
    assert 2 == len({order.request_id for order in batch.orders})


async def test_alike_rows_with_derived_ids_are_told(tmp_path: Path) -> None:
    """Two rows that derive one id are a repeat, and a missing batch id is worth a note."""
    twice = row(request_id=""), row(request_id="")
    batch = await read_batch(write_csv(tmp_path / "b.csv", *twice), derive_request_ids=True)
    assert ["repeats row 2 exactly"] == [problem.remedy.partition(";")[0] for problem in batch.problems]
    assert ["request ids are derived without a batch id"] == [note.partition(":")[0] for note in batch.notes]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("mobile_money", "phone_number"),
        ("airtime", "phone_number"),
        ("internet", "phone_number"),
        ("bank_transfer", "account_number"),
        ("bank_transfer", "bank_code"),
        ("utility", "customer_reference"),
        ("utility", "area"),
    ],
)
async def test_each_kind_needs_its_destination(tmp_path: Path, kind: str, column: str) -> None:
    """An empty cell is one problem of that cell; a column that is not there is one problem of the header."""
    rows = [row(kind=kind, request_id=f"RUN-{n}", **{column: ""}) for n in range(3)]
    assert [(2, column), (3, column), (4, column)] == await problems_of(tmp_path, *rows)
    for cells in rows:
        del cells[column]
    assert [(1, column)] == await problems_of(tmp_path, *rows)


async def test_bank_row_names_the_receiving_account_and_may_lack_a_telephone(tmp_path: Path) -> None:
    """The account number of a bank row is where the money goes, never the account it is paid from."""
    [order] = (await read_batch(write_csv(tmp_path / "b.csv", row(kind="bank_transfer", phone_number="")))).orders
    assert BankAccount("0011195000016", "BANK01") == order.destination
    assert (None, None) == (order.account_number, order.beneficiary.phone_number)


@pytest.mark.parametrize("column", ["request_id", "kind", "amount", "name", "product_item_id"])
async def test_missing_column_is_one_problem(tmp_path: Path, column: str) -> None:
    """A thousand rows without an amount are one fault, of the header; nothing can be paid, and other faults show."""
    rows = [{name: cell for name, cell in row(request_id=f"R{n}").items() if name != column} for n in range(3)]
    rows[2]["phone_number"] = "12"
    batch = await read_batch(write_csv(tmp_path / "b.csv", *rows))
    assert [(1, column), (4, "phone_number")] == [(problem.row, problem.column) for problem in batch.problems]
    assert [] == list(batch.orders)


async def test_doubled_column_is_one_problem_that_names_both_headings(tmp_path: Path) -> None:
    """Which of two telephone columns is meant is not guessed."""
    path = write_csv(tmp_path / "b.csv", row() | {"Mobile No.": "0772000002"}, row(request_id="2") | {"Mobile No.": ""})
    batch = await read_batch(path)
    assert [(1, "phone_number", "phone_number / Mobile No.")] == [(p.row, p.column, p.value) for p in batch.problems]
    assert [] == list(batch.orders)


async def test_unknown_columns_are_told_not_dropped_in_silence(tmp_path: Path) -> None:
    """They are among the columns, in a form that is no formula."""
    batch = await read_batch(write_csv(tmp_path / "b.csv", row() | {"Shoe size": "43", "=1+1": ""}))
    assert ["Shoe size", "'=1+1"] == [one.heading for one in batch.columns if one.column is None]
    assert () == batch.problems


async def test_headings_are_matched_without_case_blanks_and_punctuation(tmp_path: Path) -> None:
    """Synonyms people use are understood."""
    headings = ["PAYMENT-REF.", "Type", " amt ", "CCY", "Full Name", "MSISDN", "e mail", "Product", "item"]
    headings += ["Acct. No", "bank", "Meter no", "AREA:", "Payment message", "meta data"]
    cells = row(kind="utility")
    path = write_csv(tmp_path / "b.csv", dict(zip(headings, cells.values(), strict=True)))
    plain = await read_batch(write_csv(tmp_path / "plain.csv", cells))
    assert list(plain.orders) == list((await read_batch(path)).orders)
    assert HEADER == list(cells)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("MOMO", "mobile_money"),
        ("Mobile_Money", "mobile_money"),
        ("mobile-money", "mobile_money"),
        ("Bank", "bank_transfer"),
        ("BANK TRANSFER", "bank_transfer"),
        ("Airtime", "airtime"),
        ("data", "internet"),
        ("Internet", "internet"),
        ("bill", "utility"),
        ("Utilities", "utility"),
    ],
)
async def test_kind_is_understood_in_peoples_words(tmp_path: Path, word: str, kind: str) -> None:
    """Case, blanks and underscores do not matter, and it may be given for the rows that name none."""
    plain = await read_batch(write_csv(tmp_path / "plain.csv", row(kind=kind)))
    worded = await read_batch(write_csv(tmp_path / "b.csv", row(kind=kind) | {"kind": word}))
    default = await read_batch(write_csv(tmp_path / "c.csv", row(kind=kind) | {"kind": ""}), kind=word)
    assert list(plain.orders) == list(worded.orders) == list(default.orders)
    assert 1 == len(plain.orders)


async def test_what_a_kind_has_no_use_for_is_noted(tmp_path: Path) -> None:
    """A bank account in a mobile money row is not sent, not even looked at, and not passed over in silence."""
    batch = await read_batch(write_csv(tmp_path / "b.csv", row(account_number="1.1E+12")))
    assert () == batch.problems
    assert ["account_number is filled in 1 rows whose kind has no use for it (first in row 2); it is not sent"] == [
        *batch.notes
    ]


async def test_currency_of_the_batch_holds_for_every_row(tmp_path: Path) -> None:
    """Rows without a currency take it; a row that says another is refused, wherever it says so."""
    rows = row(currency=""), row(request_id="2", currency="kes"), row(request_id="3", currency="", amount="KES 5")
    batch = await read_batch(write_csv(tmp_path / "b.csv", *rows), currency="UGX")
    assert [(3, "currency"), (4, "amount")] == [(problem.row, problem.column) for problem in batch.problems]
    assert ["UGX"] == [order.currency for order in batch.orders]


async def test_nothing_in_a_report_names_a_person_or_becomes_a_formula(tmp_path: Path) -> None:
    """Values of personal columns are masked, and none begins with a sign that a spreadsheet would run."""
    attack = "=cmd|'/C calc'!A1"
    secrets = {"name": "@SUM(A1)", "phone_number": "+2567720000019999", "email_address": "-amber.example.org"}
    rows = row(amount=attack, currency=attack, kind=attack, request_id=attack), row(request_id="2", **secrets)
    path = write_csv(tmp_path / "b.csv", *rows, row(kind="bank_transfer", account_number=attack, bank_code=attack))
    batch = await read_batch(path)
    assert 9 == len(batch.problems)
    shown = [str(field) for problem in batch.problems for field in attrs.astuple(problem)]
    assert not [text for text in shown if text[0:1] and text[0] in "=+-@\t\r"]
    assert not [text for text in [*shown, repr(batch)] if "772000001" in text or "amber" in text]
    written = io.StringIO()
    csv.writer(written).writerows(attrs.astuple(problem) for problem in batch.problems)
    assert 9 == len(list(csv.reader(io.StringIO(written.getvalue()))))


async def test_message_like_a_formula_is_data_and_kept_exactly(tmp_path: Path) -> None:
    """What goes to the service is what the file says; only reports are made harmless."""
    batch = await read_batch(write_csv(tmp_path / "b.csv", row(message="=1+1", metadata="- \u202e +x")))
    assert [("=1+1", "- \u202e +x")] == [(order.message, order.metadata) for order in batch.orders]


async def test_empty_file_and_empty_batch_are_problems(tmp_path: Path) -> None:
    """Nothing to pay is told: it is probably the wrong file."""
    for text in ("", "\n\n", csv_text(row()).splitlines()[0], "\ufeff"):
        (tmp_path / "b.csv").write_text(text, encoding="utf-8")
        batch = await read_batch(tmp_path / "b.csv")
        assert [(1, "")] == [(problem.row, problem.column) for problem in batch.problems]
        assert [] == list(batch.orders)


async def test_file_without_a_header_is_one_problem(tmp_path: Path) -> None:
    """Rows under no header are not read at all; what the first line holds is not shown whole."""
    (tmp_path / "b.csv").write_text("".join(csv_text(row()).splitlines(keepends=True)[1:]) * 3, encoding="utf-8")
    batch = await read_batch(tmp_path / "b.csv")
    assert [(1, "", "")] == [(problem.row, problem.column, problem.value) for problem in batch.problems]
    assert "header" in batch.problems[0].remedy


async def test_wrong_arguments_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    """The message names the argument."""
    path = write_csv(tmp_path / "b.csv", row())
    for name, value in {"region": "XX", "encoding": "klingon", "delimiter": ";;"}.items():
        with pytest.raises(ValueError, match=name):
            await read_batch(path, **for_read({name: value}))
    with pytest.raises(ValueError, match="no such kind"):
        await read_batch(path, kind="cheque")
    with pytest.raises(FileNotFoundError):
        await read_batch(tmp_path / "missing.csv")


async def test_an_encoding_that_there_is_not_with_a_workbook(tmp_path: Path) -> None:
    """It is refused by its name in every format."""
    (tmp_path / "b.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match="encoding: Python knows no 'klingon'"):
        await read_batch(tmp_path / "b.xlsx", file=FileFormat(encoding="klingon"))


async def test_a_tab_is_written_out(tmp_path: Path) -> None:
    """A terminal takes none that is typed."""
    (tmp_path / "b.csv").write_text(csv_text(row()).replace(",", "\t"), encoding="utf-8")
    assert 1 == len((await read_batch(tmp_path / "b.csv", file=FileFormat(delimiter="tab"))).orders)


async def test_problem_is_a_sentence() -> None:
    """A terminal can print it as it is."""
    problem = Problem(row=3, line=5, column="amount", value="1.500", remedy="ambiguous")
    assert "row 3 (line 5), amount '1.500': ambiguous" == str(problem)


async def test_sample_that_comes_with_the_package_is_clean() -> None:
    """It holds 200 payouts of every kind, to people who do not exist."""
    with sample_payroll() as path:
        batch = await read_batch(path)
        orders = list(batch.orders)
    assert (200, (), ()) == (batch.rows, batch.problems, batch.notes)
    assert {MobileMoneyWallet, BankAccount, AirtimeLine, InternetLine, UtilityAccount} == {
        type(order.destination) for order in orders
    }
    assert 150 == sum(isinstance(order.destination, MobileMoneyWallet) for order in orders)
    assert {Decimal("2000.00")} == {order.amount for order in orders if isinstance(order.destination, InternetLine)}
    assert [f"DEMO-{n:06d}" for n in range(1, 201)] == [order.request_id for order in orders]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("PAY-1", "pay-1"),
        ("PAY-1", "\uff30\uff21\uff39-1"),
        ("Jos\u00e9-1", "Jose\u0301-1"),
        ("STRASSE", "stra\u00dfe"),
    ],
)
async def test_ids_that_a_service_may_take_for_one(tmp_path: Path, one: str, other: str) -> None:
    """Nobody could tell their transactions apart in its list; one of them would never be paid, or twice."""
    batch = await read_batch(write_csv(tmp_path / "b.csv", row(request_id=one), row(request_id=other, amount="7")))
    assert [one] == [order.request_id for order in batch.orders]
    assert [(3, "request_id", other)] == [(found.row, found.column, found.value) for found in batch.problems]
    remedy = batch.problems[0].remedy
    assert remedy.startswith("row 2 has this id with another amount")
    assert remedy.endswith("small and capital letters make no difference, for the service may not tell them apart")
