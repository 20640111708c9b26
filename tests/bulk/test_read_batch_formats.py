"""Files as programs write them: delimiters, encodings, JSON lines, workbooks, and rows that keep their numbers."""

import json
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from bulk.files import csv_text, row, write_csv, write_workbook
from hypothesis import example, given
from hypothesis import strategies as st
from nested import for_read

from payments_async import PayoutOrder
from payments_async.bulk import Batch, FileFormat, read_batch
from payments_async.bulk._file._headings import Naming
from payments_async.bulk._file._tables import find_delimiter

ENCODINGS = {
    "utf-8": "utf-8",
    "utf-8-bom": "utf-8-sig",
    "utf-16": "utf-16",
    "utf-16-le-bare": "utf-16-le",
    "utf-16-be-bare": "utf-16-be",
    "utf-32": "utf-32",
    "cp1252": "cp1252",
}
GUESSED = {"utf-16-le-bare", "utf-16-be-bare", "cp1252"}


async def read_text(tmp_path: Path, text: str | bytes, **options: str) -> Batch:
    """Read a file with this in it."""
    path = tmp_path / "batch"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return await read_batch(path, **for_read(options))


async def one_order(tmp_path: Path) -> PayoutOrder:
    """The order that `row(name="Ñandú; Cloud|berry, B")` stands for."""
    [order] = (await read_batch(write_csv(tmp_path / "plain.csv", row(name="Ñandú; Cloud|berry, B")))).orders
    return order


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "~", "^"])
@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_encodings_and_delimiters_are_found_out(tmp_path: Path, encoding: str, delimiter: str, end: str) -> None:
    """Every pair of them is read to the same order; a guessed encoding is announced."""
    text = csv_text(row(name="Ñandú; Cloud|berry, B"), delimiter=delimiter, end=end)
    batch = await read_text(tmp_path, text.encode(ENCODINGS[encoding]))
    assert () == batch.problems
    assert [await one_order(tmp_path)] == list(batch.orders)
    assert (encoding in GUESSED) == bool(batch.notes)


async def test_what_was_told_is_not_guessed(tmp_path: Path) -> None:
    """A given encoding and delimiter are used, and need no note."""
    text = csv_text(row(name="Ñandú"), delimiter=";").encode("cp1252")
    batch = await read_text(tmp_path, text, encoding="cp1252", delimiter=";")
    assert (["Ñandú"], ()) == ([order.beneficiary.name for order in batch.orders], batch.notes)


async def test_separator_line_of_a_spreadsheet_is_obeyed(tmp_path: Path) -> None:
    """The line sep=; stands above the header in some exports."""
    batch = await read_text(tmp_path, "sep=;\r\n" + csv_text(row(), row(request_id="2", amount=""), delimiter=";"))
    assert [(4, "amount")] == [(problem.row, problem.column) for problem in batch.problems]
    assert 1 == len(batch.orders)


async def test_rows_keep_their_numbers(tmp_path: Path) -> None:
    """Blank rows count; a cell of three lines is one row of the spreadsheet and three lines of the file."""
    long = row(message="first\nsecond\r\nthird")
    header, good = csv_text(long).split("\n", 1)
    bad = csv_text(row(request_id="2", amount="x")).split("\n", 1)[1]
    batch = await read_text(tmp_path, f"\n{header}\n\n{good},,,,\n{bad}")
    assert [(6, 8, "amount")] == [(problem.row, problem.line, problem.column) for problem in batch.problems]
    assert ["first\nsecond\r\nthird"] == [order.message for order in batch.orders]
    assert 2 == batch.rows


async def test_amount_that_needed_quotes_is_one_problem(tmp_path: Path) -> None:
    """An unquoted 1,500,000 pushes the cells to the right; the row is refused, and its other cells are not judged."""
    text = csv_text(row(), row(request_id="2"))
    batch = await read_text(tmp_path, text.replace("2,mobile_money,150000", "2,mobile_money,1,500,000"))
    assert [(3, "")] == [(problem.row, problem.column) for problem in batch.problems]
    assert "quotation marks" in batch.problems[0].remedy
    assert 1 == len(list(batch.orders))


async def test_missing_quotation_mark_swallows_no_row_in_silence(tmp_path: Path) -> None:
    """The lines that could not be told apart are named, and what follows is read."""
    rows = [row(request_id=f"R{n}", name=f'"Amber {n}"') for n in range(4)]
    lines = csv_text(*rows).replace('"""', '"').splitlines(keepends=True)
    lines[2] = lines[2].replace('"Amber 1"', '"Amber 1')
    batch = await read_text(tmp_path, "".join(lines))
    assert [3] == [problem.row for problem in batch.problems]
    assert "lines 3 to 4 were not read" in batch.problems[0].remedy
    assert ["R0", "R3"] == [order.request_id for order in batch.orders]


async def test_row_swallowed_whole_by_a_message_is_found(tmp_path: Path) -> None:
    """A cell that contains a whole line of the file is no message."""
    swallowed = csv_text(row(request_id="2")).splitlines()[1]
    batch = await read_batch(write_csv(tmp_path / "b.csv", row(message=f"Salary\n{swallowed}")))
    assert [True] == ["a cell holds whole lines of the file" in problem.remedy for problem in batch.problems]


async def test_file_that_was_cut_off_is_found(tmp_path: Path) -> None:
    """A last row with too few cells and no line break is refused, good as it looks; with a line break it is fine."""
    text = csv_text(row(), row(request_id="2")).rstrip(",\n").removesuffix(",Sample salary")
    assert [3] == [problem.row for problem in (await read_text(tmp_path, text)).problems]
    batch = await read_text(tmp_path, text + "\n")
    assert ((), ["RUN-1", "2"]) == (batch.problems, [order.request_id for order in batch.orders])


async def test_damaged_encoding_is_a_problem_of_its_row(tmp_path: Path) -> None:
    """What comes before is checked; that the rest was not read is told."""
    rows = csv_text(*(row(request_id=f"R{n}") for n in range(200))).encode("utf-16")
    for text in (rows + b"\x00\xd8\x00\xd8", b"\xff\xfe\x00\xd8\x00\xd8" + rows):
        batch = await read_text(tmp_path, text)
        assert [True] == ["nothing from here on was read" in problem.remedy for problem in batch.problems]
        assert len(batch.orders) + 1 == batch.rows == batch.problems[0].row - (batch.rows > 1)
    assert 1 == batch.rows


async def test_endless_line_does_not_fill_the_memory(tmp_path: Path) -> None:
    """A file without line breaks is no batch."""
    batch = await read_text(tmp_path, csv_text(row()) + "x," * 2**20)
    assert [True] == ["endless line" in problem.remedy for problem in batch.problems]


async def test_json_lines_are_read_exactly(tmp_path: Path) -> None:
    """Numbers keep their digits, nested metadata stays JSON, and keys are matched as headings are."""
    good = {key: cell for key, cell in row().items() if cell}

    def heading(key: str) -> str:
        return {"request_id": "Request ID", "phone_number": "PHONE"}.get(key, key.title())

    lines = [
        json.dumps(good | {"request_id": "1"}),
        "",
        json.dumps(good | {"request_id": "2", "amount": 0}).replace('"amount": 0', '"amount": 1500.50'),
        json.dumps({heading(key): cell for key, cell in good.items()} | {"Request ID": None, "PHONE": 256772000001}),
        json.dumps(good | {"request_id": "4", "metadata": {"a": 0, "b": ["é"]}}).replace('"a": 0', '"a": 1.10'),
    ]
    batch = await read_text(tmp_path, "\n".join(lines))
    assert [(4, "request_id")] == [(problem.row, problem.column) for problem in batch.problems]
    orders = list(batch.orders)
    assert ["1", "2", "4"] == [order.request_id for order in orders]
    assert ["150000", "1500.50", "150000"] == [str(order.amount) for order in orders]
    assert '{"a":1.10,"b":["é"]}' == orders[2].metadata


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("[1]", ""),
        ("{", ""),
        ("17", ""),
        ("[" * 100_000, ""),
        ('{"request_id": "2", "request_id": "3"}', "request_id"),
        ('{"name": ["Amber"]}', "name"),
        ('{"name": {"first": "Amber"}}', "name"),
    ],
)
async def test_line_that_is_no_flat_object_is_one_problem(tmp_path: Path, line: str, column: str) -> None:
    """A list, half an object, a doubled key and nesting are told at their line."""
    good = json.dumps(row())
    batch = await read_text(tmp_path, f"{good}\n{line}\n")
    assert [(2, column)] == [(problem.row, problem.column) for problem in batch.problems]
    assert 1 == len(list(batch.orders))


async def test_json_numbers_that_lost_something_are_refused(tmp_path: Path) -> None:
    """An account as a number has lost its zeros, NaN is no amount, and unknown keys are noted."""
    bank = row(kind="bank_transfer") | {"account_number": 11195000016, "amount": float("nan"), "shoe": "43"}
    batch = await read_text(tmp_path, json.dumps(bank))
    assert ["amount", "account_number"] == [problem.column for problem in batch.problems]
    assert ["shoe"] == [one.heading for one in batch.columns if one.column is None]


async def test_json_array_is_told_to_be_written_in_lines(tmp_path: Path) -> None:
    """An array over several lines is a problem, not a crash."""
    batch = await read_text(tmp_path, json.dumps([row()], indent=1))
    assert batch.problems
    assert "on each line" in batch.problems[0].remedy


async def test_workbook_is_read_like_the_same_csv(tmp_path: Path) -> None:
    """Numbers of the sheet are amounts and telephone numbers, rows above the header count, other sheets are noted."""
    rows = [row(request_id="1"), row(request_id="2", amount="2887500.5"), row(kind="utility", request_id="3")]
    typed: list[list[object]] = [
        [
            float(cell) if column == "amount" else int(cell[1:]) if cell[:1] == "+" else cell
            for column, cell in c.items()
        ]
        for c in rows
    ]
    path = write_workbook(tmp_path / "b.xlsx", [[], list(rows[0]), typed[0], [], *typed[1:], ["4", "airtime"]], "Notes")
    batch = await read_batch(path)
    assert list((await read_batch(write_csv(tmp_path / "b.csv", *rows))).orders) == list(batch.orders)
    assert {7} == {problem.row for problem in batch.problems}
    assert ("only the sheet 'Payouts' is read; the workbook also has 'Notes'",) == batch.notes
    with pytest.raises(ValueError, match="no sheet 'Other'"):
        await read_batch(path, file=FileFormat(sheet="Other"))
    assert 1 == len((await read_batch(path, file=FileFormat(sheet="Notes"))).problems)


async def test_cells_a_workbook_ruined_are_refused(tmp_path: Path) -> None:
    """Account numbers as numbers, sums with a long tail, short and endless telephone numbers, true and false."""
    bank = row(kind="bank_transfer", request_id="1") | {"account_number": 11195000016.0, "amount": 0.1 + 0.2}
    wallet = row(request_id="2") | {"phone_number": 12345.0, "amount": 1e16}
    path = write_workbook(tmp_path / "b.xlsx", [list(bank), list(bank.values()), list(wallet.values())])
    told = [(problem.row, problem.column) for problem in (await read_batch(path)).problems]
    assert [(2, "amount"), (2, "account_number"), (3, "amount"), (3, "phone_number")] == told


async def test_workbook_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    """A damaged file; and an old one or a protected one, which look alike."""
    starts = {b"PK\x03\x04": "damaged, or no workbook", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "protected by a password"}
    for start, words in starts.items():
        with pytest.raises(ValueError, match=words):
            await read_text(tmp_path, start + b"x" * 2000)


@pytest.mark.parametrize(("module", "extra"), [("python_calamine", "xlsx"), ("phonenumbers", "cli")])
async def test_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, extra: str) -> None:
    """The error says what to install."""
    path = write_workbook(tmp_path / "b.xlsx", [list(row()), list(row().values())])
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"payments-async\[{extra}\]"):
        await read_batch(path)


@given(
    st.sampled_from(",;\t|"),
    st.lists(st.sampled_from(["request_id", "Amount (UGX)", "Full name", "phone", "a|b", "x;y", "c,d"]), min_size=3),
)
def test_delimiter_is_the_one_that_makes_sense_of_the_header(delimiter: str, headings: list[str]) -> None:
    """Signs within headings do not mislead, as long as the delimiter parts known columns."""
    headings = [*headings, "kind", "amount", "name"]
    line = csv_text(dict.fromkeys(headings, ""), delimiter=delimiter).splitlines()[0]
    assert delimiter == find_delimiter(line.encode(), "utf-8")


@given(st.lists(st.text(max_size=20), max_size=20))
@example(["ID", "I\x1fD"])
def test_any_header_can_be_matched(headings: list[str]) -> None:
    """Each heading is known, unknown, doubled or blank, and none is lost."""
    columns = Naming({}).columns(1, headings)
    known = sum(name is not None for name in columns.names) + sum(map(len, columns.doubled.values()))
    assert len(headings) == known + len(columns.unknown) + sum(not heading.strip() for heading in headings)


plain_text = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=30)


@pytest.mark.slow(covered=True)
@given(amount=st.decimals("0.01", "99999999", places=2), message=plain_text, name=plain_text)
async def test_order_survives_being_written_to_a_file(
    tmp_path_factory: pytest.TempPathFactory, amount: Decimal, message: str, name: str
) -> None:
    """What was written to CSV and to JSON lines is read back alike, but for surrounding blanks."""
    cells = row(amount=str(amount), message=message, name=f"A {name}")
    folder = tmp_path_factory.mktemp("trip")
    [order] = (await read_batch(write_csv(folder / "b.csv", cells))).orders
    [same] = (await read_text(folder, json.dumps(cells))).orders
    assert (amount, message.strip() or None, f"A {name}".strip()) == (
        order.amount,
        order.message,
        order.beneficiary.name,
    )
    assert order == same
