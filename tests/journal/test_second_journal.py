"""One journal for an account on one machine; a second one has a person's word, and the approvals of the first."""

import asyncio
from pathlib import Path
from typing import Any

import attrs
import pytest
from journal.conftest import Home
from journal.factories import BATCH, IDENTITY, orders

from payments_async.journal import (
    ApprovalRule,
    Journal,
    NotApproved,
    SecondJournal,
    Signature,
    SqliteJournal,
    TakeoverAuthorisation,
)

WORD = TakeoverAuthorisation(who="Ann", why="two departments")
SECOND = "december"


async def loaded(journal: Journal, batch_id: str = BATCH, **changes: Any) -> int:
    """A batch of three of its own."""
    await journal.open_run(batch_id, attrs.evolve(IDENTITY, **changes))
    return (await journal.load(batch_id, orders(3, batch=batch_id), owner="loader")).total


async def test_a_second_journal_needs_a_persons_word(home: Home, tmp_path: Path) -> None:
    """Nothing of it can be sent without; with it, who said why is kept, and asked for no more."""
    async with home.opens() as first:
        await loaded(first)
    second = tmp_path / "second.db"
    async with SqliteJournal(second) as journal:
        with pytest.raises(SecondJournal, match="has another journal of this account") as refused:
            await loaded(journal, SECOND)
        assert (True, False) == (refused.value.path is not None, (await journal.run(SECOND)).ready)
        with pytest.raises(SecondJournal):
            await journal.open_outbox("shop", IDENTITY)
    async with SqliteJournal(second, second_journal=WORD) as journal:
        assert 3 == await loaded(journal, SECOND)
        (kept,) = await journal.decisions(SECOND)
        assert ("Ann", True, True) == (kept.by, "two departments" in str(kept), "batch payroll" in str(kept))
    async with SqliteJournal(second) as journal:
        assert 3 == await loaded(journal, "january")
    async with home.opens() as first:
        assert 3 == await loaded(first, "february")


async def test_a_journal_that_was_refused_leaves_its_place_free(tmp_path: Path) -> None:
    """Nothing was ever sent from it: the account's own journal, put back from a backup, is opened there."""
    place, moved = tmp_path / "journal.db", tmp_path / "moved.db"
    async with SqliteJournal(place) as first:
        await loaded(first)
    backup = place.read_bytes()
    place.rename(moved)
    async with SqliteJournal(moved) as journal:
        await loaded(journal, SECOND)
    async with SqliteJournal(place) as journal:
        with pytest.raises(SecondJournal):
            await loaded(journal, "january")
    place.write_bytes(backup)
    async with SqliteJournal(place) as journal:
        assert [BATCH] == [one.batch_id for one in await journal.runs()]


async def test_an_outbox_of_a_second_journal(home: Home, tmp_path: Path) -> None:
    """It is opened with a person's word alone."""
    async with SqliteJournal(tmp_path / "first.db") as first:
        await first.open_outbox("shop", IDENTITY)
    async with home.opens() as journal:
        with pytest.raises(SecondJournal, match=r"first\.db"):
            await journal.open_outbox("desk", IDENTITY)
    async with home.opens(second_journal=WORD) as journal:
        await journal.open_outbox("desk", IDENTITY)
        assert ["Ann"] == [one.by for one in await journal.decisions("desk")]


@pytest.mark.parametrize("other", [{"user_id": "8"}, {"base_address": "https://other.example/"}])
async def test_the_journal_of_another_account(tmp_path: Path, other: dict[str, str]) -> None:
    """Another user, or another service: nobody is asked."""
    async with SqliteJournal(tmp_path / "first.db") as first, SqliteJournal(tmp_path / "second.db") as second:
        await loaded(first)
        assert 3 == await loaded(second, SECOND, **other)


async def test_two_journals_that_are_loaded_at_once(tmp_path: Path) -> None:
    """One of them becomes ready, whichever is first."""
    async with SqliteJournal(tmp_path / "first.db") as first, SqliteJournal(tmp_path / "second.db") as second:
        done = await asyncio.gather(loaded(first), loaded(second, SECOND), return_exceptions=True)
    assert [3, "SecondJournal"] == sorted((one if one == 3 else type(one).__name__ for one in done), key=str)


@pytest.mark.parametrize("needed", [0, 2])
async def test_a_new_journal_asks_for_the_approvals_of_the_accounts_other_one(
    home: Home, tmp_path: Path, needed: int
) -> None:
    """Also where a person has said why there are two; the latest rule of a journal counts."""
    chair = Signature(who="C. Board")
    async with SqliteJournal(tmp_path / "first.db") as first:
        await loaded(first)
        for number in (1, needed):
            await first.require_approvals(ApprovalRule(needed=number, why="four eyes", by=chair))
    async with home.opens(second_journal=WORD) as second:
        if needed:
            with pytest.raises(NotApproved, match=r"2 persons must approve it.*C\. Board has set: four eyes"):
                await second.open_run(SECOND, IDENTITY, source_digest="a" * 64)
        else:
            assert 3 == await loaded(second, SECOND)
            assert 0 == (await second.approval_rule()).needed
