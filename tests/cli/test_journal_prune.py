"""`payments-async journal prune`: old orders leave, and every other command knows of them still."""

import contextlib
import gzip
import json
import sqlite3
from pathlib import Path

import pytest
from bulk.files import row, write_csv
from cli.commands import Run

from payments_async.sandbox import Sandbox

IN = ("--journal", "j.sqlite")
BATCH = (*IN, "--batch-id", "november")
ORDERS = 12
SIGNED = ("--who", "A. Clerk", "--why", "rule 7")
PRUNE = ("journal", "prune", *IN, "--older-than", "90d", "--archive", "old.jsonl.gz", *SIGNED)


def grow_old() -> None:
    """A hundred days pass for every order."""
    with contextlib.closing(sqlite3.connect("j.sqlite")) as file, file:
        file.execute("UPDATE outbox SET updated_at = updated_at - 8640000")


def archived() -> list[str]:
    """The request ids in the archive."""
    with gzip.open("old.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [line["request_id"] for line in map(json.loads, lines) if "request_id" in line]


@pytest.fixture
async def payroll(run: Run, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file that was sent and has ended."""
    monkeypatch.chdir(tmp_path)
    rows = [
        row(request_id=f"OLD-{n}", amount=f"{n}000", phone_number=f"+2567720000{n:02}") for n in range(1, 1 + ORDERS)
    ]
    name = write_csv(tmp_path / "payroll.csv", *rows).name
    assert 0 == (await run("bulk", "run", name, *BATCH, "--yes", "--new-journal")).status
    await sandbox.settle()
    assert 0 == (await run("bulk", "reconcile", *BATCH, "--interval", "0")).status
    return name


@pytest.mark.slow(covered=True)
async def test_old_orders_leave_and_are_known_still(run: Run, sandbox: Sandbox, payroll: str) -> None:
    """Counted, explained by where their story is, and never sent again."""
    before = json.loads((await run("bulk", "status", *BATCH, "--json")).out)["progress"]
    grow_old()
    ran = await run(*PRUNE, "--yes")
    assert (0, True) == (ran.status, f"{ORDERS} orders moved into " in ran.said), ran.said
    assert [f"OLD-{n}" for n in range(1, 1 + ORDERS)] == archived()
    told = json.loads((await run("bulk", "status", *BATCH, "--json")).out)
    assert (before, ORDERS) == (told["progress"], told["archived"])
    assert "old.jsonl.gz: 12, 20" in (await run("bulk", "status", *BATCH)).said
    story = await run("explain", "OLD-3", *IN)
    assert 0 == story.status
    assert "successful since " in story.said
    assert "old.jsonl.gz | grep -F" in story.said
    assert "It is never sent again." in story.said
    document = json.loads((await run("explain", "OLD-3", *IN, "--json")).out)
    assert ("successful", "3000", "A. Clerk") == (document["state"], document["amount"], document["archive"]["who"])
    off = await run("bulk", "send-again", "OLD-3", *IN, *SIGNED, "--yes")
    assert (2, True) == (off.status, "OLD-3 ended long ago (successful), and is in an archive" in off.said)
    again = await run("bulk", "run", payroll, *BATCH, "--yes")
    assert (2, ORDERS) == (again.status, len(sandbox.ledger))
    assert "is in an archive: it is not sent again" in again.said
    wrote = await run("bulk", "report", *BATCH)
    assert (0, True) == (wrote.status, "not in the report, but in archives: 12 orders" in wrote.said)
    nothing = await run("journal", "prune", *IN, "--older-than", "90d", "--archive", "b.gz", *SIGNED, "--yes", "--json")
    assert (0, None) == (nothing.status, json.loads(nothing.out)["archive"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "status", "left"), [pytest.param("y\n", 0, ORDERS, id="yes"), pytest.param("n\n", 5, 0, id="no")]
)
async def test_a_terminal_is_asked_first(
    run_on_terminal: Run, run: Run, payroll: str, typed: str, status: int, left: int
) -> None:
    """A no changes nothing."""
    grow_old()
    ran = await run_on_terminal(*PRUNE, typed=typed)
    assert status == ran.status
    assert "Move all orders that have not changed for 90d into old.jsonl.gz? [y/N]" in ran.out
    assert left == json.loads((await run("bulk", "status", *BATCH, "--json")).out)["archived"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"--older-than": "ninety"}, "--older-than: write it as in 90d or 48h", id="no-age"),
        pytest.param({"--older-than": "7d"}, "--older-than: at least eight days", id="too-young"),
        pytest.param(
            {"--archive": "payroll.csv"}, "--archive: payroll.csv is there already, and is never replaced", id="there"
        ),
        pytest.param({"--archive": "no/such/folder.gz"}, "stopped: ", id="no-folder"),
        pytest.param({"--who": " "}, "--who and --why: say who states it", id="nobody"),
        pytest.param({"--journal": "other.sqlite"}, "--journal: there is no file other.sqlite", id="no-journal"),
    ],
)
async def test_bad_input_changes_nothing(run: Run, payroll: str, change: dict[str, str], words: str) -> None:
    """The option is named."""
    grow_old()
    options = dict(zip(PRUNE[2::2], PRUNE[3::2], strict=True)) | change
    ran = await run("journal", "prune", *(text for pair in options.items() for text in pair), "--yes")
    assert (5 if words == "stopped: " else 2, True) == (ran.status, words in ran.said), ran.said
    assert 0 == json.loads((await run("bulk", "status", *BATCH, "--json")).out)["archived"]


async def test_nobody_is_asked_in_a_pipe(run: Run, payroll: str) -> None:
    """Without --yes nothing leaves."""
    grow_old()
    ran = await run(*PRUNE)
    assert (2, True) == (ran.status, "--yes: needed where there is no terminal to ask at" in ran.said)
