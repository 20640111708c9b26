"""A network between a process and its database that loses, holds and cuts: nothing is granted that nobody heard of."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import pytest
from journal import postgres
from journal.factories import BATCH, claimed, delivery, event, permitted
from journal.lines import Line, Pipeline, by_line, line_to_database
from nested import for_journal

from payments_async.journal import JournalUnavailable, PostgresJournal, State
from payments_async.journal._postgres import _database
from payments_async.journal.contract import Permit

A_MINUTE = 60.0
LONGEST = 1.0 + 5.0  # seconds until a database that says nothing is given up, where a statement may take one


class Before:
    """Does something once, when a process passes a point after another one."""

    def __init__(self, operation: str, point: str, act: Callable[[], None]) -> None:
        self._left = [f"{operation}.written", point]
        self._act = act
        self.is_armed = False

    @property
    def has_happened(self) -> bool:
        """Whether it has been done."""
        return not self._left

    def __call__(self, point: str) -> None:
        if self.is_armed and self._left and point == self._left[0]:
            del self._left[0]
            if not self._left:
                self._act()


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    """A line to the database."""
    async with line_to_database(postgres.dsn()) as line:
        yield line


@pytest.fixture
def schema() -> Iterator[str]:
    """An empty namespace."""
    yield postgres.new_schema()
    postgres.give_back()


@pytest.fixture
def opens(line: Line, schema: str) -> Callable[..., PostgresJournal]:
    """Opens a journal through the line."""
    dsn = by_line(postgres.dsn(), line)
    return lambda **options: PostgresJournal(dsn, schema=schema, statement_timeout=1.0, **for_journal(options))


Opens = Callable[..., PostgresJournal]


async def until_committed(journal: PostgresJournal, state: State, count: int = 1) -> None:
    """Wait until so many orders of the batch are in a state."""
    seen = 0
    async with asyncio.timeout(60):
        while (await journal.progress(BATCH)).counts[state] != count:
            seen = await journal.committed(seen, timeout=0.1)


async def test_a_commit_whose_answer_is_lost(line: Line, opens: Opens, schema: str) -> None:
    """Was made, and has granted nothing: the order is planned again before anybody asks for it."""
    before = Before("permit", "commit.begun", lambda: line.swallow("down"))
    async with opens(crash_at=before) as journal, PostgresJournal(postgres.dsn(), schema=schema) as other:
        chunk = await claimed(journal)
        before.is_armed = True
        asking = asyncio.ensure_future(journal.permit(chunk, chunk.orders[0]))
        await until_committed(other, State.SENDING)
        await line.swallowed()
        await line.mend()
        with pytest.raises(JournalUnavailable):
            await asking
        await until_committed(other, State.PLANNED, 3)
        permit = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        assert (2, False) == (permit.attempt, permit.sent_before)


async def test_a_database_that_stays_away_after_such_a_commit(line: Line, opens: Opens, schema: str) -> None:
    """Has the order planned again as soon as it is back, though nobody asks for anything."""
    before = Before("permit", "commit.begun", lambda: line.swallow("down"))
    async with (
        opens(crash_at=before, busy_timeout=0.1) as journal,
        PostgresJournal(postgres.dsn(), schema=schema) as other,
    ):
        chunk = await claimed(journal)
        before.is_armed = True
        asking = asyncio.ensure_future(journal.permit(chunk, chunk.orders[0]))
        await until_committed(other, State.SENDING)
        await line.swallowed()
        line.refuse()
        line.cut()
        with pytest.raises(JournalUnavailable):
            await asking
        with pytest.raises(JournalUnavailable, match="cannot be reached"):  # so what was asked before has failed too
            await journal.check_writable()
        assert 1 == (await other.progress(BATCH)).counts["sending"]
        await line.mend()
        await until_committed(other, State.PLANNED, 3)


async def test_a_commit_that_arrives_after_its_connection_was_reset(line: Line, opens: Opens, schema: str) -> None:
    """The giving back waits for it: whoever begins to write waits until the server knows what became of it."""
    before = Before("permit", "commit.begun", lambda: line.hold("up"))
    async with opens(crash_at=before) as journal, PostgresJournal(postgres.dsn(), schema=schema) as other:
        chunk = await claimed(journal)
        before.is_armed = True
        beside = asyncio.ensure_future(journal.check_writable())  # so that each statement leaves alone
        asking = asyncio.ensure_future(journal.permit(chunk, chunk.orders[0]))
        await line.holds.wait()
        line.hang_up()
        with pytest.raises(JournalUnavailable):
            await beside
        with pytest.raises(JournalUnavailable):
            await asking
        assert 3 == (await other.progress(BATCH)).counts["planned"]
        await line.mend()  # and now it commits
        permit = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        assert (2, False) == (permit.attempt, permit.sent_before)


@pytest.mark.slow
async def test_a_commit_that_never_arrives(line: Line, opens: Opens, schema: str) -> None:
    """Was not made, and nobody else waits for it for longer than seconds."""
    before = Before("permit", "commit.begun", lambda: line.swallow("up"))
    async with opens(crash_at=before) as journal, PostgresJournal(postgres.dsn(), schema=schema) as other:
        chunk = await claimed(journal)
        before.is_armed = True
        asking = asyncio.ensure_future(journal.permit(chunk, chunk.orders[0]))
        while not before.has_happened:
            await other.committed(await other.committed(0, timeout=0), timeout=0.01)
        await permitted(other, chunk, 1)  # the server ends whoever stands still within a commit
        await line.mend()
        with pytest.raises(JournalUnavailable):
            await asking
        permit = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        assert (1, False) == (permit.attempt, permit.sent_before)


@pytest.mark.slow
@pytest.mark.parametrize("ways", [("up",), ("down",), ("up", "down")])
async def test_a_database_that_vanishes(line: Line, opens: Opens, ways: tuple[Pipeline, ...]) -> None:
    """Nobody hangs: whoever writes or reads is told within the time of a statement and five seconds more."""
    async with opens(busy_timeout=0.1) as journal:
        chunk = await claimed(journal)
        await journal.progress(BATCH)
        line.swallow(*ways)
        line.refuse()
        begun = time.monotonic()
        asked = (journal.permit(chunk, chunk.orders[0]), journal.progress(BATCH), journal.check_writable())
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [JournalUnavailable] * 3 == [type(one) for one in found]
        assert 2 * LONGEST > time.monotonic() - begun
        await line.mend()
        assert isinstance(await journal.permit(chunk, chunk.orders[0]), Permit)
        assert 1 == (await journal.progress(BATCH)).counts["sending"]


@pytest.mark.slow
async def test_who_listens_to_a_database_that_vanishes(
    line: Line, opens: Opens, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comes back by itself, hears of what was committed meanwhile, and is dead to nobody."""
    # a busy machine may need more than the usual two seconds to come back
    monkeypatch.setattr(_database, "Attendant", partial(_database.Attendant, grace=A_MINUTE))
    async with opens() as journal, PostgresJournal(postgres.dsn(), schema=schema) as other:
        await claimed(journal, lease=10 * A_MINUTE)
        seen = await journal.committed(0, timeout=60)
        while (now := await journal.committed(seen, timeout=1)) != seen:  # until nothing is under way any more
            seen = now
        line.swallow("down")
        await other.receive(delivery(), event(), owner="a", lease=0)
        assert seen == await journal.committed(seen, timeout=LONGEST + 2)
        await line.mend()
        assert seen != await journal.committed(seen, timeout=60)
        attendant = other._postgres._attendant
        assert attendant is not None
        async with asyncio.timeout(A_MINUTE - 5.0):
            while attendant.is_unsure:  # noqa: ASYNC110 - it comes to know by looking
                await asyncio.sleep(0.05)
        assert await other.claim_chunk(BATCH, "other") is None


@pytest.mark.slow
async def test_a_database_that_is_silent_from_the_beginning(line: Line, opens: Opens) -> None:
    """Is not waited for longer than a connection may take."""
    line.swallow("down")
    with pytest.raises(JournalUnavailable, match="cannot be reached"):
        await opens().__aenter__()


@pytest.mark.slow
async def test_a_journal_that_is_closed_while_the_database_is_silent(line: Line, opens: Opens) -> None:
    """Is closed in a bounded time."""
    journal = await opens(busy_timeout=0.1).__aenter__()
    await claimed(journal)
    line.swallow("up", "down")
    line.refuse()
    async with asyncio.timeout(4 * LONGEST):
        await journal.aclose()
