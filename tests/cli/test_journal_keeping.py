"""`payments-async journal migrate|check|copy`: what is shown, and with which status it ends."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli.commands import Run
from journal import postgres
from journal.factories import claimed, loaded

from payments_async.journal import SqliteJournal
from payments_async.journal._postgres._schema import STEPS

PASSWORD = "correct-horse-battery"
WHOLE = "every order, notification and change agrees with the rest"


@pytest.fixture
def dsn() -> str:
    """Of an empty database; nobody asks for the password."""
    return postgres.new_database().replace("postgres@", f"postgres:{PASSWORD}@")


@pytest.fixture
async def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A journal with a batch, by the name that a command has for it."""
    monkeypatch.chdir(tmp_path)
    async with SqliteJournal("j.sqlite") as journal:
        await loaded(journal, 3)
    return "j.sqlite"


async def test_a_journal_moves_into_a_database_and_back(run: Run, file: str, dsn: str) -> None:
    """Every other command finds it in its new place, and is told so in the old one."""
    there = await run("journal", "copy", file, dsn, "--yes")
    assert (0, True) == (there.status, "read again and found the same" in there.said), there.said
    assert PASSWORD not in there.said
    old = await run("bulk", "status", "--journal", file)
    assert (2, True) == (old.status, "the journal was moved to postgresql://postgres:***@" in old.said), old.said
    assert 0 == (await run("bulk", "status", "--journal", dsn)).status
    again = await run("journal", "copy", file, dsn, "--yes")
    assert (2, True) == (again.status, "the journal was moved to" in again.said)
    back = await run("journal", "copy", dsn, "back.sqlite", "--yes", "--json")
    told = json.loads(back.out)
    assert (0, True, 3, "back.sqlite") == (back.status, told["copied"], told["rows"]["outbox"], told["to"])
    assert 64 == len(told["digests"]["outbox"])


async def test_a_journal_that_is_worked_stays(run: Run, file: str, dsn: str) -> None:
    """The command says who works, and that nothing was done."""
    async with SqliteJournal(file) as journal:
        await claimed(journal, 3)
        ran = await run("journal", "copy", file, dsn, "--yes")
        assert (2, True) == (ran.status, "worker sends chunk 0 of a batch" in ran.said), ran.said
    assert 2 == (await run("bulk", "status", "--journal", dsn)).status


@pytest.mark.slow(covered=True)
async def test_a_terminal_is_asked_first(run_on_terminal: Run, run: Run, file: str, dsn: str) -> None:
    """A no changes nothing; without a terminal --yes is needed."""
    ran = await run_on_terminal("journal", "copy", file, "new.sqlite", typed="n\n")
    assert (5, True) == (ran.status, "Nothing is sent from j.sqlite any more. [y/N]" in ran.out)
    ran = await run("journal", "copy", file, "new.sqlite")
    assert (2, True) == (ran.status, "--yes: needed where there is no terminal" in ran.said)
    assert not await SqliteJournal("new.sqlite").exists()
    nothing = await run("journal", "copy", "none.sqlite", "new.sqlite", "--yes")
    assert (2, True) == (nothing.status, "FROM: there is no journal none.sqlite" in nothing.said)


@pytest.mark.parametrize("is_database", [False, True])
async def test_a_sound_journal(run: Run, file: str, dsn: str, is_database: bool) -> None:
    """Is said to be; with all that it relies on."""
    if is_database:
        assert 0 == (await run("journal", "copy", file, dsn, "--yes")).status
    ran = await run("journal", "check", "--journal", dsn if is_database else file)
    assert (0, True) == (ran.status, WHOLE in ran.said), ran.said
    assert ("synchronous_commit" if is_database else "permissions") in ran.said
    assert "3 orders, 0 notifications, 0 changes" in ran.said


async def test_a_journal_that_does_not_agree_with_itself(run: Run, file: str) -> None:
    """Status 3, what is wrong, where, and what to do; as a document too."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE outbox SET amount = '7' WHERE id & 1")
    ran = await run("journal", "check", "--journal", file)
    assert 3 == ran.status
    assert "orders that are not what they were when they were written down: 1, such as payroll-000001" in ran.said
    assert "put back the last copy" in ran.said
    told = json.loads((await run("journal", "check", "--journal", file, "--json")).out)
    assert (False, 3) == (told["sound"], told["exit_status"])
    assert ["payroll-000001"] in [flaw["examples"] for flaw in told["examination"]["flaws"]]
    nothing = await run("journal", "check", "--journal", "none.sqlite")
    assert (2, True) == (nothing.status, "there is no journal none.sqlite" in nothing.said)


async def test_a_file_that_cannot_be_read(run: Run, file: str) -> None:
    """Is as wrong as one that does not agree with itself."""
    with closing(sqlite3.connect(file)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'outbox'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    await asyncio.to_thread(_overwrite, Path(file), (page - 1) * size)
    ran = await run("journal", "check", "--journal", file)
    assert (3, True) == (ran.status, "damaged" in ran.said), ran.said


def _overwrite(file: Path, place: int) -> None:
    with file.open("r+b") as content:
        content.seek(place)
        content.write(b"\xff" * 64)


async def test_the_tables_are_made_once(run: Run, dsn: str) -> None:
    """The steps are shown before; afterwards nothing is to be done."""
    shown = await run("journal", "migrate", "--journal", dsn, "--dry-run")
    assert (0, True) == (shown.status, "CREATE TABLE" in shown.out), shown.said
    assert "nothing was done" in shown.said
    for expected in (f"from nothing to {len(STEPS)}", f"is up to date, of version {len(STEPS)}"):
        ran = await run("journal", "migrate", "--journal", dsn)
        assert (0, True, False) == (ran.status, expected in ran.said, PASSWORD in ran.said), ran.said
    told = json.loads((await run("journal", "migrate", "--journal", dsn, "--json")).out)
    assert ([], len(STEPS)) == (told["steps"], told["newest"])
    named = await run("journal", "migrate")
    assert (2, True) == (named.status, "--journal: name the journal's file" in named.said)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        pytest.param(f" postgresql://u:{PASSWORD}@127.0.0.1:1/d ", "postgresql://u:***@127.0.0.1:1/d", id="blanks"),
        pytest.param(f"mysql://u:{PASSWORD}@h/d", "those are known whose DSN begins with postgresql://", id="another"),
        pytest.param(f"POSTGRESQL://u:{PASSWORD}@h/d", "whose DSN begins with postgresql://", id="capitals"),
    ],
)
async def test_a_dsn_is_taken_for_no_file(run: Run, place: str, words: str) -> None:
    """Its password would be shown, and a file made of that name."""
    ran = await run("journal", "check", "--journal", place)
    assert (2, True, False) == (ran.status, words in ran.said, PASSWORD in ran.said), ran.said
