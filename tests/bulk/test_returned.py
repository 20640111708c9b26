"""A batch file that is given back with the outcome of each row."""

import csv
import io
import tempfile
from pathlib import Path

import pytest
from bulk.files import MTN, write_csv, write_workbook
from bulk.files import row as good_row
from bulk.worlds import World, world

from payments_async.bulk import Batch, read_batch, returned_file, run_batch
from payments_async.sandbox import Fault

PEOPLE = [good_row(request_id=f"RUN-{n}", phone_number=f"+25677200000{n}", amount=f"{n}000") for n in (1, 2, 3)]


async def paid(here: World, path: Path) -> Batch:
    """A file whose first row was paid, whose second was refused, and whose third was refused by the reader."""
    batch = await read_batch(path, item=MTN, batch_id="november")
    here.sandbox.script(Fault.REFUSED, on="payout", request_id="RUN-2")
    await run_batch(here.payments, here.journal, "november", batch.orders)
    return batch


def names_in(folder: Path) -> set[str]:
    """What lies in a folder."""
    return {path.name for path in folder.iterdir()}


async def test_a_table_comes_back_as_it_was_with_five_columns_more(tmp_path: Path) -> None:
    """Its title, its delimiter, its own columns and each of its rows; spreadsheets read its letters right."""
    path = tmp_path / "n.csv"
    lines = [f"RUN-{n};Åsa {n};{n}000;0772 00000{n};momo;Stores" for n in (1, 2)]
    lines = ["ACME", "id;name;net pay;phone;kind;Department", *lines, "RUN-3;Cy;-5;0772000003;momo;=1+1", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    async with world(tmp_path) as here:
        batch = await paid(here, path)
        written = await returned_file(here.journal, "november", batch, tmp_path / "back.csv")
        with pytest.raises(ValueError, match="never replaced"):
            await returned_file(here.journal, "november", batch, tmp_path / "back.csv")
    assert (3, 2) == (written.rows, written.found)
    text = written.path.read_bytes()
    assert text.startswith(b"\xef\xbb\xbf")
    title, header, first, second, third = csv.reader(io.StringIO(text.decode("utf-8-sig")), delimiter=";")
    assert (["ACME"], ["Outcome", "When (UTC)", "Transaction", "What is wrong", "Row"]) == (title, header[6:])
    assert (["RUN-1", "Åsa 1", "1000", "0772 000001", "momo", "Stores"], "accepted, not settled", "3") == (
        first[:6],
        first[6],
        first[10],
    )
    assert ("refused: not paid", "4") == (second[6], second[10])
    assert "The transaction was refused" in second[9]
    assert (["'-5", "'=1+1"], ["", "", "", "", "5"]) == ([third[2], third[5]], third[6:])


async def test_what_was_given_back_is_not_sent_again_by_mistake(tmp_path: Path) -> None:
    """Its rows would have other derived ids in a batch of another name: a person must have looked at it."""
    people = [{name: cell for name, cell in one.items() if name != "request_id"} for one in PEOPLE]
    path = write_csv(tmp_path / "n.csv", *people)
    async with world(tmp_path) as here:
        batch = await read_batch(path, batch_id="november", derive_request_ids=True)
        await run_batch(here.payments, here.journal, "november", batch.orders)
        written = await returned_file(here.journal, "november", batch, tmp_path / "back.csv")
    again = await read_batch(written.path, batch_id="back", derive_request_ids=True)
    assert ([], ["Outcome"]) == ([one.value for one in batch.concerns], [one.value for one in again.concerns])


async def test_a_workbook_comes_back_with_amounts_that_can_be_summed(tmp_path: Path) -> None:
    """Texts stay texts, also those that look like a formula."""
    pytest.importorskip("xlsxwriter")
    import python_calamine

    cells = [one | {"message": "=1+1"} for one in PEOPLE]
    path = write_workbook(tmp_path / "n.xlsx", [list(cells[0]), *(list(one.values()) for one in cells)])
    async with world(tmp_path) as here:
        batch = await paid(here, path)
        await returned_file(here.journal, "november", batch, tmp_path / "back.xlsx")
    header, first, second, _ = (
        python_calamine.CalamineWorkbook.from_path(tmp_path / "back.xlsx").get_sheet_by_index(0).to_python()
    )
    told = dict(zip(header, first, strict=True))
    assert (1000.0, "=1+1", "+256772000001", "accepted, not settled", 2.0) == tuple(
        told[name] for name in ("amount", "message", "phone_number", "Outcome", "Row")
    )
    assert told["Transaction"]
    assert "refused: not paid" in second


async def test_what_a_workbook_cannot_hold_is_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text too long for a cell, as a row too many: it is told, nothing is left, and a table holds all of it."""
    pytest.importorskip("xlsxwriter")
    (meanwhile := tmp_path / "meanwhile").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(meanwhile))
    path = tmp_path / "n.csv"
    write_csv(path, *(one | {"Department": "x" * 32_768} for one in PEOPLE))
    async with world(tmp_path) as here:
        batch = await paid(here, path)
        with pytest.raises(ValueError, match=r"row 2 is more than a workbook holds; name a file ending in \.csv"):
            await returned_file(here.journal, "november", batch, tmp_path / "back.xlsx")
        assert {"n.csv", "meanwhile"} == {name for name in names_in(tmp_path) if not name.startswith("j")}
        assert set() == names_in(meanwhile)
        written = await returned_file(here.journal, "november", batch, tmp_path / "back.csv")
    assert 3 * 32_768 < written.path.stat().st_size


async def test_json_lines_have_no_cells_to_stand_beside(tmp_path: Path) -> None:
    """It is told, and nothing is written."""
    path = tmp_path / "n.jsonl"
    path.write_text('{"request_id": "RUN-1", "kind": "momo", "amount": 5, "name": "A B", "phone": "+256772000001"}\n')
    async with world(tmp_path) as here:
        batch = await paid(here, path)
        with pytest.raises(ValueError, match="JSON lines"):
            await returned_file(here.journal, "november", batch, tmp_path / "back.csv")
    assert not (tmp_path / "back.csv").exists()


async def test_a_file_that_was_changed_is_not_given_back(tmp_path: Path) -> None:
    """Its rows are not those that were paid."""
    path = write_csv(tmp_path / "n.csv", *PEOPLE)
    async with world(tmp_path) as here:
        batch = await paid(here, path)
        write_csv(path, *PEOPLE[:2])
        with pytest.raises(RuntimeError, match="changed"):
            await returned_file(here.journal, "november", batch, tmp_path / "back.csv")
    assert not (tmp_path / "back.csv").exists()
