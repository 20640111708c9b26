"""The demo: whatever the faults and the seed, journal and ledger agree, and it says so in every form."""

import asyncio
import json
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from cli.commands import Run
from cli.demos import HEADER, ITEM, batch


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of our own is the current one: the demo leaves a directory there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> set[str]:
    """What is in a folder."""
    return {path.name for path in folder.iterdir()}


def text(name: str) -> str:
    """What is in a file."""
    return Path(name).read_text(encoding="utf-8-sig")


@pytest.mark.parametrize(
    ("faults", "seed"),  # more of them are the simulation's: no order is carried out twice, none is lost
    [
        pytest.param("some", "1", marks=pytest.mark.slow(covered=True)),
        pytest.param("many", "77", marks=pytest.mark.slow),
    ],
)
async def test_every_run_ends_in_agreement(run: Run, faults: str, seed: str) -> None:
    """With any faults and any seed the ledger confirms the journal: paid once each, nothing lost."""
    ran = await run("demo", "--faults", faults, "--seed", seed, "--json")
    assert (0, "") == (ran.status, ran.err)
    told = json.loads(ran.out)
    ledger = told["ledger"]
    assert (True, 0, 0, []) == (ledger["agrees"], ledger["paid_twice"], ledger["lost"], ledger["disagreements"])
    assert 200 == told["orders"] == sum(outcome["orders"] for outcome in told["outcomes"].values())
    assert told["outcomes"]["successful"]["orders"] < 200


@pytest.mark.slow
async def test_the_same_seed_meets_the_same_trouble(run: Run, tmp_path: Path) -> None:
    """What became of each order depends on the seed, not on the moment; a finished demo is begun anew."""
    path = batch(tmp_path, 60)
    first, second = [json.loads((await run("demo", "--file", path, "--seed", "5", "--json")).out) for _ in range(2)]
    assert first["unknown"] == second["unknown"]
    assert [False, False] == [first["went_on"], second["went_on"]]
    assert {name: one["orders"] for name, one in first["outcomes"].items()} == {
        name: one["orders"] for name, one in second["outcomes"].items()
    }


@pytest.mark.slow
async def test_a_terminal_gets_bars(run_on_terminal: Run, tmp_path: Path) -> None:
    """On a terminal bars move and the table is in colour."""
    ran = await run_on_terminal("demo", "--file", batch(tmp_path, 40), "--faults", "none", TERM="xterm-256color")
    assert 0 == ran.status
    assert ["━", "\x1b[32m"] == [sign for sign in ("━", "\x1b[32m") if sign in ran.out]


@pytest.mark.slow
async def test_the_commands_it_prints_work_as_they_stand(run_process: Run, tmp_path: Path) -> None:
    """Status, a report with names, and the story of an order that had no usable answer, from the journal it left.

    In a pipe there is no bar, no colour and no blank at the end of a line.
    """
    ran = await run_process("demo", "--file", batch(tmp_path, 30), "--faults", "many", "--dir", "over here")
    assert (0, True) == (ran.status, "sent 30 of 30: accepted" in ran.out)
    assert not {"\x1b", "━", "\r"} & set(ran.out)
    assert [] == [line for line in ran.out.splitlines() if line != line.rstrip()]
    assert {"batch.csv", "over here"} == names(tmp_path)
    commands = [line for line in ran.out.splitlines() if "--journal" in line]
    assert "D-00001" in text("over here/report.csv")
    typed = [await asyncio.create_subprocess_shell(command, stdout=PIPE, stderr=PIPE) for command in commands]
    for process, words in zip(typed, ("demo: 30 payouts", "names.html", "No usable answer"), strict=True):
        out, err = await process.communicate()
        assert (True, b"", True) == (process.returncode in (0, 3, 4), err, words in out.decode())
    assert "Demo Person" in text("over here/names.html")


async def test_a_directory_of_somebody_else_is_left_alone(run: Run, tmp_path: Path) -> None:
    """What is in it may be a journal of real money."""
    file = tmp_path / "mine" / "demo.sqlite"
    file.parent.mkdir()
    file.write_bytes(b"precious")
    ran = await run("demo", "--dir", "mine")
    assert (2, b"precious") == (ran.status, file.read_bytes())
    assert "--dir: mine holds other files; name an empty directory" in ran.said
    file.rename(file.with_name("demo.json"))
    ran = await run("demo", "--dir", "mine")
    assert (2, True) == (ran.status, "tells of no demo of this program" in ran.said)
    assert 2 == (await run("demo", "--dir", "mine/demo.json")).status


async def test_a_bad_file_names_every_bad_row(run: Run, tmp_path: Path) -> None:
    """All problems are told at once, each with its row and the remedy, and nothing is sent."""
    path = batch(
        tmp_path,
        2,
        f"D-1,mobile_money,-5,UGX,Demo Person,+256772009998,,,{ITEM},,,,,,",
        f"D-2,mobile_money,5,UGX,Demo Person,2.56772E+11,,,{ITEM},,,,,,",
        f"D-00001,mobile_money,5,UGX,Demo Person,+256772009999,,,{ITEM},,,,,,",
    )
    ran = await run("demo", "--file", path)
    assert (2, "") == (ran.status, ran.out)
    for words in (
        "batch.csv has 3 problems; nothing was sent",
        "row 4, amount",
        "row 5, phone_number",
        "row 6, request_id",
    ):
        assert words in ran.err
    assert "+25677200999" not in ran.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "there is no file", id="missing"),
        pytest.param("", "batch.csv", id="empty"),
        pytest.param(HEADER, "there is no row to pay", id="header-only"),
    ],
)
async def test_a_file_without_orders_is_bad_input(run: Run, tmp_path: Path, content: str | None, words: str) -> None:
    """A file that is not there or holds nothing ends with 2, not with a table of nothing."""
    path = tmp_path / "batch.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    ran = await run("demo", "--file", str(path))
    assert (2, "") == (ran.status, ran.out)
    assert words in ran.said
    assert "Traceback" not in ran.err
