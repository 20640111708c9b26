"""Files that are traps: each is bad input with a remedy, soon told and in little memory, and never an error of ours."""

import asyncio
import os
import sys
import zipfile
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest
import xlsxwriter  # type: ignore[import-untyped]
from bulk.files import MTN, edit_workbook
from bulk.traps import (
    GOOD,
    HEADER,
    SHEET,
    bomb,
    definitions,
    endless,
    far_cell,
    many_cells,
    sound_workbook,
    spoiled_workbooks,
)

from payments_async.bulk import Batch, read_batch
from payments_async.bulk._file import _workbooks

# The largest memory of a process that getrusage tells counts what its parent had when it was started.
_MEMORY = """
import asyncio, re, resource, sys
from pathlib import Path
from payments_async.bulk import read_batch
try:
    batch = asyncio.run(read_batch(sys.argv[1]))
    print("problems", len(batch.problems))
except ValueError as error:
    print(error)
own = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) // 1024)
"""


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell it")


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    """A workbook of three payouts."""
    return sound_workbook(tmp_path / "b.xlsx")


async def read_apart(path: Path) -> tuple[str, int]:
    """What reading a file says, and the mebibytes it takes, in a process of its own and those it starts."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _MEMORY, str(path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert 0 == process.returncode, err.decode()[-2000:]
    *said, memory = out.decode().splitlines()
    return "\n".join(said), int(memory)


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("cell", ["XFD1048576", "A1048576"])
async def test_a_cell_far_away_is_told(workbook: Path, cell: str) -> None:
    """A sheet that reaches too far is not read: its place is named, with what to do."""
    said, memory = await read_apart(far_cell(workbook, cell))
    assert "the sheet reaches to row 1,048,576" in said
    assert "delete what stands far away from the payments" in said
    assert memory < 200


async def test_empty_cells_far_away_do_no_harm(workbook: Path) -> None:
    """Many programs format whole columns, and say a dimension that is too large."""
    styled = '<row r="1048576"><c r="XFD1048576" s="1"/></row></sheetData>'
    edit_workbook(workbook, SHEET, "</sheetData>", styled)
    edit_workbook(workbook, SHEET, "<sheetData>", '<dimension ref="A1:XFD1048576"/><sheetData>')
    batch = await read_batch(workbook)
    assert (3, ()) == (len(list(batch.orders)), batch.problems)


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize(
    ("part", "fill"),
    [
        pytest.param(SHEET, b" ", id="sheet"),
        pytest.param("docProps/anything", b"\0", id="another-part"),
    ],
)
async def test_a_bomb_is_told(workbook: Path, part: str, fill: bytes) -> None:
    """A few hundred kilobytes that unpack to hundreds of megabytes are not unpacked."""
    said, memory = await read_apart(bomb(workbook, part, 300, fill))
    assert (True, True) == ("too large to be read as one; export the sheet as CSV" in said, memory < 200)


async def test_definitions_are_refused(workbook: Path) -> None:
    """No spreadsheet writes a DOCTYPE; whoever does may let it grow without end."""
    with pytest.raises(ValueError, match="DOCTYPE"):
        await read_batch(definitions(workbook))


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        pytest.param(SHEET, "</sheetData>", "", id="sheet"),
        pytest.param("xl/workbook.xml", "<sheets>", "<sheets", id="book"),
        pytest.param("xl/_rels/workbook.xml.rels", "sheet1.xml", "sheet9.xml", id="part-missing"),
        pytest.param("_rels/.rels", "officeDocument", "other", id="no-workbook"),
    ],
)
async def test_a_damaged_part_is_told(workbook: Path, part: str, old: str, new: str) -> None:
    """With what to do about it."""
    with zipfile.ZipFile(workbook) as book:
        last = old if part != "_rels/.rels" else 'relationships/officeDocument"'
        assert last.encode() in book.read(part)
    edit_workbook(workbook, part, last, new + last.removeprefix(old) if part != "_rels/.rels" else 'relationships/x"')
    with pytest.raises(ValueError, match="open it in a spreadsheet and save it as XLSX again"):
        await read_batch(workbook)


async def test_an_archive_that_is_no_workbook_is_told(tmp_path: Path) -> None:
    """Whatever it is called."""
    with zipfile.ZipFile(tmp_path / "b.xlsx", "w") as archive:
        archive.writestr("payroll.csv", "request_id,kind\n")
    with pytest.raises(ValueError, match="damaged, or no workbook"):
        await read_batch(tmp_path / "b.xlsx")


async def test_a_workbook_that_shows_each_amount_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is asked what it shows once, however many formats there are: else each row took time for all of them."""
    asked, at = list[int](), _workbooks._Stretches.at

    def counted(self: _workbooks._Stretches, row: int, width: int) -> Iterable[tuple[int, str]]:
        asked.append(row)
        return at(self, row, width)

    monkeypatch.setattr(_workbooks._Stretches, "at", counted)
    with xlsxwriter.Workbook(str(tmp_path / "b.xlsx")) as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, ["request_id", "name", "phone_number", "amount"])
        for row, letters in enumerate(product("ABCD", repeat=3), 1):
            sheet.write_row(row, 0, [f"r-{row}", "Amber Brightwater", f"+2567720000{row:02}"])
            sheet.write(row, 3, 1500, book.add_format({"num_format": f'"{"".join(letters)}" 0'}))
    batch = await read_batch(tmp_path / "b.xlsx", currency="UGX", kind="mobile_money", item=MTN)
    assert {f"shown as {''.join(one)} in" for one in product("ABCD", repeat=3)} == {
        problem.remedy[:15] for problem in batch.problems if problem.remedy.startswith("shown as")
    }
    assert len(asked) == 3 * 65  # its marks, where it is rounded, and its formulas


async def test_a_reader_that_is_ended_is_told(workbook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system may end it in the middle of a row: nothing that came before is taken for the whole."""
    reader = workbook.with_name("reader.py")
    reader.write_text(
        "import os, sys\nsys.stdin.buffer.read()\n"
        'print(\'{"name": "a", "others": [], "shown": "a", "is_hidden": false, "rows": [], "columns": [], '
        '"marks": {}, "rounded": {}, "formulas": {}}\', '
        "flush=True)\n"
        'print(\'[["request_id","kind","amount","name"]]\', flush=True)\nos.kill(os.getpid(), 9)\n'
    )
    monkeypatch.setattr(_workbooks, "_READER", reader)
    with pytest.raises(ValueError, match="takes too much memory or time"):
        await read_batch(workbook)


@pytest.mark.slow
async def test_a_workbook_that_takes_too_much_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system ends the reading at a limit of memory or time, here a low one, and of nothing else."""
    source, reader = _workbooks._READER.read_text(), tmp_path / "reader.py"
    workbook = many_cells(tmp_path / "b.xlsx", 100_000, 40)
    monkeypatch.setattr(_workbooks, "_READER", reader)
    for limit, less in (("_MEMORY = 3 * 2**30", "_MEMORY = 100 * 2**20"), ("_SECONDS = 240", "_SECONDS = 1")):
        assert limit in source
        reader.write_text(source.replace(limit, less))
        with pytest.raises(ValueError, match="export the sheet as CSV"):
            await read_batch(workbook)


@pytest.mark.parametrize("name", ["uwsgi", ""], ids=["of-a-server", "unknown"])
async def test_a_program_that_is_no_python_is_not_started(
    workbook: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The Python of its library reads the workbook: the program itself might begin its work again."""
    program = workbook.with_name("uwsgi")
    program.write_text(f"#!/bin/sh\ntouch '{workbook.parent}/began'\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(workbook.with_name(name)) if name else "")
    assert 3 == len((await read_batch(workbook)).orders)
    assert not workbook.with_name("began").exists()


@pytest.mark.parametrize("is_frozen", [True, False])
async def test_a_program_without_a_python_names_the_remedy(
    workbook: Path, monkeypatch: pytest.MonkeyPatch, is_frozen: bool
) -> None:
    """A frozen one, or one that carries Python within itself: a workbook of one row is not too large."""
    monkeypatch.setattr(sys, "executable", str(workbook.with_name("payroll")))
    if is_frozen:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    else:
        monkeypatch.setattr(sys, "prefix", str(workbook.parent))
        monkeypatch.setattr(sys, "base_prefix", str(workbook.parent))
    with pytest.raises(ValueError, match="this program comes without one: export the sheet as CSV"):
        await read_batch(workbook)


@pytest.mark.parametrize(("script", "words"), [("exit 3", "ended with status 3"), (None, "cannot be started")])
async def test_a_python_that_is_broken_is_told(
    workbook: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, words: str
) -> None:
    """It is not the workbook that is too large, nor its file that is missing."""
    python = workbook.with_name("python3")
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ValueError, match=f"{words}.*export the sheet as CSV"):
        await read_batch(workbook)


async def test_a_library_beside_the_program_reads_a_workbook(workbook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that this program found it in is told to the reader, whose own Python may not have it."""
    python = workbook.with_name("python-bare")
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    assert 3 == len((await read_batch(workbook)).orders)


async def test_nothing_in_the_current_folder_reads_a_workbook(workbook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is called like a library is not run."""
    monkeypatch.chdir(workbook.parent)
    for name in ("python_calamine", "zipfile", "json"):
        (workbook.parent / f"{name}.py").write_text("raise SystemExit('run')\n")
    assert 3 == len((await read_batch(workbook)).orders)


@pytest.mark.slow
async def test_no_damage_to_a_workbook_is_an_error_of_ours(workbook: Path) -> None:
    """Bytes changed, cut off and repeated, in the archive and within its parts: read, or bad input with a remedy."""
    told = 0
    for path in spoiled_workbooks(workbook, 30, seed=16):
        try:
            batch = await read_batch(path)
        except ValueError as error:
            told += bool(str(error))
        else:
            assert isinstance(batch, Batch)
    assert told > 8


@pytest.mark.parametrize("name", ["pipe", "folder", "/dev/zero"])
async def test_what_is_no_file_is_told_at_once(tmp_path: Path, name: str) -> None:
    """A pipe that nobody writes to, a folder, a device without end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="not a regular file"):
        await asyncio.wait_for(read_batch(tmp_path / name), 30)


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize(
    ("start", "fill", "words"),
    [
        pytest.param(HEADER + GOOD, b"x", "the file has an endless line", id="csv-line"),
        pytest.param(HEADER + GOOD + b'"', b"xxxxxxx\n", "look for a quotation mark", id="csv-cell"),
        pytest.param(b'{"request_id": "', b"x", "the file has an endless line", id="json-line"),
        pytest.param(b'{"metadata": ', b"[", "the file has an endless line", id="json-depth"),
    ],
)
async def test_a_line_without_end_is_told(tmp_path: Path, start: bytes, fill: bytes, words: str) -> None:
    """In little memory, however long it is."""
    batch = await read_batch(endless(tmp_path / "batch", start, fill, 60))
    assert (0, True) == (len(batch.orders), words in batch.problems[0].remedy)


@pytest.mark.slow(covered=True)
async def test_a_file_that_is_wrong_from_end_to_end_is_not_read_to_it(tmp_path: Path) -> None:
    """After very many problems it is given up: no row of it is an order, not even a good one."""
    path = tmp_path / "batch.csv"
    path.write_bytes(HEADER + GOOD + b"\n" + b"x\n" * 60_000 + GOOD.replace(b"R-1", b"R-2") + b"\n")
    batch = await read_batch(path)
    assert (0, 0) == (len(batch.orders), len(list(batch.orders)))
    assert "more than 100,000 problems: the rest was not read, and no row is taken" in batch.problems[-1].remedy
    assert len(batch.problems) < 101_000


@pytest.mark.parametrize(
    "metadata", ["9" * 900_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 400 + "1" + "}" * 400, "1e999999999", "-0"]
)
async def test_strange_json_is_a_row_like_another(tmp_path: Path, metadata: str) -> None:
    """Digits and brackets without end: the row is taken or told, and the next one is read."""
    good = '{"request_id": "R-%d", "kind": "airtime", "amount": 1500, "name": "Amber", "phone": "+256772000001", '
    good += '"product_id": "MTN", "product_item_id": "MTN_MTN", "metadata": {"a": %s}}\n'
    path = tmp_path / "batch.jsonl"
    path.write_text(good % (1, metadata) + good % (2, "1"))
    batch = await read_batch(path)
    assert "R-2" in [order.request_id for order in batch.orders]
    assert {problem.row for problem in batch.problems} <= {1}


async def test_a_byte_of_zero_is_a_problem_of_its_row(tmp_path: Path) -> None:
    """In a name or an id; the other rows are read."""
    path = tmp_path / "batch.csv"
    bad = GOOD.replace(b"Amber", b"Am\0ber")
    path.write_bytes(HEADER + bad + b"\n" + GOOD.replace(b"R-1", b"R-2") + b"\n")
    batch = await read_batch(path)
    assert ([2], ["R-2"]) == ([one.row for one in batch.problems], [order.request_id for order in batch.orders])
