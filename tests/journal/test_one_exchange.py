"""A usual commit is one exchange with PostgreSQL; whatever is not usual is done as it ever was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pytest
from journal import postgres
from journal.factories import BATCH, IDENTITY, Clock, delivery, event, loaded, order, permitted, transaction_id
from journal.lines import Line, by_line, line_to_database
from journal.test_together import Round, asked
from nested import for_journal

from payments_async.journal import Journal, JournalBehind, JournalUnavailable, PostgresJournal, Signal, State
from payments_async.journal._postgres import _connection
from payments_async.journal._postgres._database import PostgresDatabase
from payments_async.journal._statements._entries import Commit
from payments_async.journal.contract import Chunk, Evidence, NotPermitted, Outcome, Permit, Placed
from payments_async.testing import Testing

SHOP = "shop"
# A commit of the journal is under way: nobody else's is meanwhile.
LOCKED = """SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = 'archive' AND l.mode = 'ShareRowExclusiveLock' AND l.granted"""


@pytest.fixture
def schema() -> Iterator[str]:
    """An empty namespace."""
    yield postgres.new_schema()
    postgres.give_back()


async def server_has_begun() -> None:
    """Wait until the server has a transaction of a journal's open."""
    async with await psycopg.AsyncConnection.connect(postgres.dsn(), autocommit=True) as connection:
        asked = """SELECT 1 FROM pg_stat_activity
            WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"""
        while await (await connection.execute(asked)).fetchone() is None:  # noqa: ASYNC110 - it gives no event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def no_answer_while_locked(line: Line, schema: str) -> AsyncIterator[None]:
    """The journal hears no answer before it is free for others: what waits for one meanwhile waits to the end."""
    async with await psycopg.AsyncConnection.connect(postgres.dsn(), autocommit=True) as server:
        over = asyncio.Event()

        async def until_free() -> None:
            while not over.is_set() and await (await server.execute(LOCKED, (schema,))).fetchone() is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        line.before_answer = until_free
        try:
            async with asyncio.timeout(60):  # of one that waits for ever
                yield
        finally:
            over.set()
            line.before_answer = None


async def seconds_of(work: Awaitable[Any]) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


async def test_a_usual_commit_is_one_exchange(schema: str) -> None:
    """With a database far away, what is done for each order, or again and again, waits for one answer of it."""
    async with (
        line_to_database(postgres.dsn()) as line,
        PostgresJournal(by_line(postgres.dsn(), line), schema=schema) as journal,
    ):
        await loaded(journal)
        held = await journal.claim_chunk(BATCH, "worker")
        assert held is not None
        before = Outcome(permit=await permitted(journal, held), signal=Signal.UNKNOWN)
        await journal.open_outbox(SHOP, IDENTITY)
        chunk: Chunk | None = None
        for number in range(100, 103):  # the first ones ask what later ones know
            placed = await journal.put(SHOP, order(number), owner="worker", chunk=chunk, permits=True)
            chunk, permit = placed.chunk, placed.permit
            assert permit is not None
            ended = Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(number))
            if number < 102:
                await journal.record(ended)
        await journal.request_rate("worker", 1000.0, lease=30)
        await journal.reserve_turns(1)
        receipt = await journal.receive(delivery(b"1"), event(2, 55), owner="receiver", lease=30)
        for work in (
            lambda: journal.put(SHOP, order(103), owner="worker", chunk=chunk, permits=True),
            lambda: journal.record(ended),
            lambda: journal.permit(held, held.orders[1], after=before),
            lambda: journal.renew_chunk(held),
            lambda: journal.reserve_turns(1),
            lambda: journal.request_rate("worker", 1000.0, lease=30),
            lambda: journal.finish(receipt.event_id, "handled"),
            lambda: journal.leave_duty("settle", "worker"),
        ):
            line.exchanges = 0
            async with no_answer_while_locked(line, schema):
                await work()
            assert 1 == line.exchanges
        counts = (await journal.progress()).counts
        assert (2, 1, 3) == tuple(counts[state] for state in (State.SENDING, State.UNKNOWN, State.ACCEPTED))


async def test_what_has_to_be_asked_first(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim, a notification, an order that is put again, a new chunk: nobody else waits while questions are asked."""
    async with (
        line_to_database(postgres.dsn()) as line,
        PostgresJournal(by_line(postgres.dsn(), line), schema=schema) as journal,
    ):
        await loaded(journal, 3)
        await journal.open_outbox(SHOP, IDENTITY)
        await journal.put(SHOP, order(100), owner="worker", permits=True)
        line.exchanges = 0
        async with no_answer_while_locked(line, schema):
            await journal.claim_chunk(BATCH, "worker")
            await journal.receive(delivery(b"1"), event(2, 100), owner="receiver", lease=30)
            await journal.put(SHOP, order(100), owner="worker")
            await journal.put(SHOP, order(101), owner="another")
            await journal.claim("receiver", lease=30, limit=10)
            await journal.take_duty("settle", "worker", lease=30)
        assert line.exchanges > 6
        monkeypatch.setattr(PostgresDatabase, "gathering", lambda *_: None)
        async with no_answer_while_locked(line, schema):
            putting = asyncio.ensure_future(journal.put(SHOP, order(102), owner="worker"))
            await asyncio.sleep(0.3)
            assert not putting.done(), "a commit made statement by statement waits for answers while it is locked"
        await putting


Does = Callable[[Journal, Clock], Awaitable[object]]


async def puts_it_before(other: Journal, _: Clock) -> None:
    """The same order."""
    await other.put(SHOP, order(0))


async def puts_another_before(other: Journal, _: Clock) -> None:
    """Another order of the same id."""
    await other.put(SHOP, order(0, amount="7"))


async def is_shown_it(other: Journal, _: Clock) -> None:
    """A list shows it."""
    shown = Evidence(
        source="list",
        request_id=order(0).request_id,
        transaction_id=transaction_id(0),
        signal=Signal.LOOKED_UP_SUCCESSFUL,
        amount=order(0).amount,
        currency="UGX",
    )
    await other.note_observed([shown])


async def is_notified_of_it(other: Journal, _: Clock) -> None:
    """A notification tells of it."""
    await other.receive(delivery(b"x"), event(0), owner="receiver", lease=0)


async def takes_the_chunk_over(other: Journal, clock: Clock) -> None:
    """The lease runs out, and the chunk is anybody's."""
    clock.pass_(31)
    await other.expire_chunks()


async def puts_beside_it(other: Journal, _: Clock) -> None:
    """Something that is of no account."""
    await other.put(SHOP, order(9))


BETWEEN: list[Does] = [
    puts_it_before,
    puts_another_before,
    is_shown_it,
    is_notified_of_it,
    takes_the_chunk_over,
    puts_beside_it,
]


async def put_after(does: Does, schema: str, state: Path, *, gathered: bool) -> Any:
    """What comes of a put that is permitted, after another process has done something: all that is told of it.

    Args:
        gathered: It is done in the moment before the commit leaves as a whole, and not before the put.
    """
    clock, armed, loop = Clock(), [False], asyncio.get_running_loop()

    def crash_at(point: str) -> None:
        if point == "commit.begun" and armed[0]:
            armed[0] = False
            asyncio.run_coroutine_threadsafe(_wait(does(other, clock)), loop).result()

    async with (
        PostgresJournal(
            postgres.dsn(), schema=schema, state_folder=None, testing=Testing(now=clock, crash_at=crash_at)
        ) as journal,
        PostgresJournal(postgres.dsn(), schema=schema, state_folder=None, testing=Testing(now=clock)) as other,
    ):
        await journal.open_outbox(SHOP, IDENTITY)
        await other.open_outbox(SHOP, IDENTITY)
        chunk: Chunk | None = None
        for number in (5, 6):
            chunk = (await journal.put(SHOP, order(number), owner="worker", chunk=chunk, permits=True)).chunk
        armed[0] = gathered
        if not gathered:
            await does(other, clock)
        (placed,) = await asyncio.gather(
            journal.put(SHOP, order(0), owner="worker", chunk=chunk, permits=True), return_exceptions=True
        )
        assert not armed[0]
        entries = [entry async for entry in journal.entries()]
        stories = [await journal.history(entry.request_id) for entry in entries]
        kept = (placed.entry, placed.permit, placed.is_new) if isinstance(placed, Placed) else repr(placed)
        return kept, entries, stories, await journal.progress()


async def _wait(work: Awaitable[Any]) -> Any:
    return await work


@pytest.mark.parametrize("does", BETWEEN, ids=lambda does: does.__name__)
async def test_what_another_process_does_before_a_commit_leaves(
    does: Does, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is found as if it had been there when the put was asked for: the whole is undone, and each statement asks."""
    found = await put_after(does, schema, tmp_path, gathered=True)
    monkeypatch.setattr(PostgresDatabase, "gathering", lambda *_: None)
    assert await put_after(does, postgres.new_schema(), tmp_path, gathered=False) == found


async def test_an_answer_that_comes_before_the_notification_is_written_down(schema: str) -> None:
    """The order is settled as it stands then, and not as it stood when it was looked up for the notification."""
    loop, armed = asyncio.get_running_loop(), [False]
    ended: list[Outcome] = []

    def crash_at(point: str) -> None:
        if point == "commit.begun" and armed[0]:
            armed[0] = False
            asyncio.run_coroutine_threadsafe(_wait(other.record(ended[0])), loop).result()

    async with (
        PostgresJournal(postgres.dsn(), schema=schema, testing=Testing(crash_at=crash_at)) as journal,
        PostgresJournal(postgres.dsn(), schema=schema) as other,
    ):
        await loaded(journal, 1)
        chunk = await other.claim_chunk(BATCH, "other")
        assert chunk is not None
        permit = await permitted(other, chunk)
        ended.append(Outcome(permit=permit, signal=Signal.UNKNOWN))
        armed[0] = True
        await journal.receive(delivery(), event(0, 0), owner="receiver", lease=0)
        counts = (await other.progress(BATCH)).counts
        assert {State.SUCCESSFUL: 1} == {state: count for state, count in counts.items() if count}
        assert (await other.examine()).is_sound


async def test_whoever_stands_still_before_a_commit_leaves(schema: str) -> None:
    """Keeps nobody waiting; and what others have done meanwhile counts."""
    stands, goes_on = asyncio.Event(), asyncio.Event()
    loop, armed = asyncio.get_running_loop(), [False]

    def crash_at(point: str) -> None:
        if point == "commit.begun" and armed[0]:
            armed[0] = False
            loop.call_soon_threadsafe(stands.set)
            asyncio.run_coroutine_threadsafe(_wait(goes_on.wait()), loop).result()

    async with (
        PostgresJournal(postgres.dsn(), schema=schema, testing=Testing(crash_at=crash_at)) as still,
        PostgresJournal(postgres.dsn(), schema=schema, busy_timeout=1.0) as other,
    ):
        await loaded(still)
        chunk = await still.claim_chunk(BATCH, "worker")
        assert chunk is not None
        armed[0] = True
        asking = asyncio.ensure_future(still.permit(chunk, chunk.orders[0]))
        await stands.wait()
        assert isinstance(await other.permit(chunk, chunk.orders[0]), Permit)
        goes_on.set()
        assert isinstance(await asking, NotPermitted)
        assert 1 == (await still.progress(BATCH)).counts[State.SENDING]


@pytest.mark.slow(covered=True)
async def test_a_commit_that_leaves_late_is_judged_by_the_clock_of_then(schema: str) -> None:
    """A process that was stopped for longer than its lease is permitted nothing."""
    armed = [False]

    def crash_at(point: str) -> None:
        if point == "commit.begun" and armed[0]:
            armed[0] = False
            time.sleep(2.7)

    async with PostgresJournal(postgres.dsn(), schema=schema, testing=Testing(crash_at=crash_at)) as journal:
        await loaded(journal)
        chunk = await journal.claim_chunk(BATCH, "worker", lease=2.5)
        assert chunk is not None
        armed[0] = True
        found = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(found, NotPermitted)
        assert found.lease_lost


async def test_a_large_commit_is_as_safe(schema: str) -> None:
    """Two hundred orders, which do not leave in one go: a connection that ends then has granted nothing."""
    async with PostgresJournal(postgres.dsn(), schema=schema) as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        placed = await journal.put(SHOP, order(0), owner="worker", permits=True)
        await journal.put(SHOP, order(1), owner="worker", chunk=placed.chunk, permits=True)
        many = [journal.put(SHOP, order(n), owner="worker", chunk=placed.chunk, permits=True) for n in range(2, 202)]
        assert all(one.permit is not None for one in await asyncio.gather(*many))
        await asyncio.sleep(0)
        many = [journal.put(SHOP, order(n), owner="worker", chunk=placed.chunk, permits=True) for n in range(190, 402)]
        assert [False] * 12 + [True] * 200 == [one.is_new for one in await asyncio.gather(*many)]
        assert 402 == (await journal.progress()).counts[State.SENDING]


async def test_orders_that_are_put_again_and_again(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are not the usual, and cost the server no memory: what it prepared it uses again, or forgets."""
    async with PostgresJournal(postgres.dsn(), schema=schema) as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        first = await journal.put(SHOP, order(0), owner="worker", permits=True)

        async def rounds(numbers: range) -> int:
            for number in numbers:
                await journal.put(SHOP, order(number), owner="worker", chunk=first.chunk, permits=True)
                again = await journal.put(SHOP, order(0), owner="worker", chunk=first.chunk, permits=True)
                assert not again.is_new
            return int(await prepared(journal))

        few = await rounds(range(1, 20))
        assert few + 20 > await rounds(range(20, 60))
        monkeypatch.setattr(_connection, "_KEPT", 10)
        assert few + 20 > await rounds(range(60, 80))


async def prepared(journal: Journal) -> int:
    """Statements that the session keeps by which a journal writes."""

    def counted(commit: Commit) -> int:
        (count,) = commit.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        return int(count)

    return await journal._writer.submit("count", counted)


@pytest.mark.slow
async def test_whoever_stands_still_while_a_commit_leaves(schema: str) -> None:
    """Keeps nobody waiting for longer than some seconds: the server has begun, and lets go of it."""
    async with (
        line_to_database(postgres.dsn()) as line,
        PostgresJournal(by_line(postgres.dsn(), line), schema=schema) as still,
        PostgresJournal(postgres.dsn(), schema=schema, busy_timeout=10.0) as other,
    ):
        await still.open_outbox(SHOP, IDENTITY)
        first = await still.put(SHOP, order(0), owner="worker", permits=True)

        def puts(numbers: range) -> list[Awaitable[Placed]]:
            long = [attrs.evolve(order(n), message="November salary " * 100) for n in numbers]  # of 30 kB
            return [still.put(SHOP, one, owner="worker", chunk=first.chunk, permits=True) for one in long]

        await asyncio.gather(*puts(range(1, 17)))
        await asyncio.gather(*puts(range(17, 33)))
        line.hold("up", after=8192)
        asking = asyncio.gather(*puts(range(33, 49)), return_exceptions=True)
        await line.holds.wait()
        await server_has_begun()
        await other.pause(SHOP, who="a person", why="while it stands still")
        await line.mend()
        lost = sum(isinstance(one, JournalUnavailable) for one in await asking)
        assert lost  # all of them, or those after the first where these went in a commit of their own
        assert 33 + 16 - lost == (await other.progress()).counts[State.SENDING]


async def test_texts_that_the_server_does_not_take_as_they_are(schema: str) -> None:
    """A NUL, an apostrophe and a backslash in the words of an answer are kept as ever."""
    async with PostgresJournal(postgres.dsn(), schema=schema) as journal:
        await loaded(journal, 3)
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        kept = []
        for claimed, words in zip(chunk.orders, ("it's \\' done", "a\0b", "é\N{SNOWMAN}"), strict=True):
            permit = await journal.permit(chunk, claimed)
            assert isinstance(permit, Permit)
            await journal.record(Outcome(permit=permit, signal=Signal.REJECTED, code=7, message=words))
            entry = await journal.entry(claimed.request_id)
            assert entry is not None
            kept.append((entry.state, entry.code, entry.message))
        said = ["it's \\' done", "a\N{SYMBOL FOR NULL}b", "é\N{SNOWMAN}"]
        assert [(State.REJECTED, 7, words) for words in said] == kept


async def test_a_whole_commit_whose_answer_is_lost(schema: str) -> None:
    """Counts as not granted, and is given back."""
    async with line_to_database(postgres.dsn()) as line:
        opens = PostgresJournal(by_line(postgres.dsn(), line), schema=schema, statement_timeout=1.0)
        async with opens as journal, PostgresJournal(postgres.dsn(), schema=schema) as other:
            await loaded(other)
            chunk = await journal.claim_chunk(BATCH, "worker")
            assert chunk is not None
            await journal.permit(chunk, chunk.orders[0])
            line.swallow("down")
            asking = asyncio.ensure_future(journal.permit(chunk, chunk.orders[1]))
            await until_sending(other, 2)
            await line.swallowed()
            await asyncio.sleep(0.3)  # the answer, too, has vanished
            await line.mend()
            with pytest.raises(JournalUnavailable):
                await asking
            await until_sending(other, 1)


async def until_sending(journal: Journal, count: int) -> None:
    """Wait until so many orders of the batch are permitted."""
    seen = 0
    async with asyncio.timeout(30):
        while (await journal.progress(BATCH)).counts[State.SENDING] != count:
            seen = await journal.committed(seen, timeout=0.1)


@pytest.mark.slow(covered=True)
async def test_a_whole_commit_that_arrives_late(schema: str) -> None:
    """Is not made: by the moment that it was made for, a lease was good that may be over by now."""
    async with (
        line_to_database(postgres.dsn()) as line,
        PostgresJournal(by_line(postgres.dsn(), line), schema=schema) as journal,
    ):
        await loaded(journal)
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        await journal.permit(chunk, chunk.orders[0])
        line.hold("up")
        asking = asyncio.ensure_future(journal.permit(chunk, chunk.orders[1]))
        await line.holds.wait()
        await asyncio.sleep(2.5)
        arrives = time.time()
        await line.mend()
        permit = await asking
        assert isinstance(permit, Permit)
        assert permit.at > arrives - 1.0  # it was asked for anew, by a clock that an exchange may lag behind


async def test_a_whole_commit_that_arrives_after_its_connection_was_reset(schema: str) -> None:
    """The next commit waits for as long as the lost one could still be made; what came of that is given back."""
    async with (
        line_to_database(postgres.dsn()) as line,
        PostgresJournal(by_line(postgres.dsn(), line), schema=schema) as journal,
    ):
        await loaded(journal)
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        await journal.permit(chunk, chunk.orders[0])
        line.hold("up")
        asking = asyncio.ensure_future(journal.permit(chunk, chunk.orders[1]))
        await line.holds.wait()
        arrives = line.go_round()
        line.hang_up()
        with pytest.raises(JournalUnavailable):
            await asking
        again = asyncio.ensure_future(journal.permit(chunk, chunk.orders[1]))
        await asyncio.sleep(0.5)
        assert not again.done()
        arrives.set()  # now it commits, unless the server hears first that its connection is gone
        permit = await again
        entry = await journal.entry(chunk.orders[1].request_id)
        assert isinstance(permit, Permit)
        assert entry is not None
        assert (State.SENDING, entry.attempt, False) == (entry.state, permit.attempt, permit.sent_before)


async def test_a_clock_that_is_set_back_while_a_connection_is_lost(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next commit waits for the lost one no longer than that could be made."""
    async with (
        line_to_database(postgres.dsn()) as line,
        PostgresJournal(by_line(postgres.dsn(), line), schema=schema) as journal,
    ):
        await loaded(journal)
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        await journal.permit(chunk, chunk.orders[0])
        line.hold("up")
        asking = asyncio.ensure_future(journal.permit(chunk, chunk.orders[1]))
        await line.holds.wait()
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() - 20.0)
        line.cut()
        with pytest.raises(JournalUnavailable):
            await asking
        await line.mend()
        assert await seconds_of(journal.permit(chunk, chunk.orders[1])) < 10.0


async def test_another_process_has_found_that_the_journal_was_restored(schema: str, tmp_path: Path) -> None:
    """What was registered for a commit that the server has undone then is not taken for what was sent before."""
    opens = partial(PostgresJournal, postgres.dsn(), schema=schema, state_folder=tmp_path)
    async with opens() as finds, opens() as other:
        for journal in (finds, other):
            await journal.open_outbox(SHOP, IDENTITY)
        placed = await other.put(SHOP, order(0), owner="other", permits=True)
        for number in (1, 2):
            await other.put(SHOP, order(number), owner="other", chunk=placed.chunk, permits=True)
        for number in (10, 11, 12):
            await finds.put(SHOP, order(number))
        with psycopg.connect(postgres.dsn(), autocommit=True) as server:
            server.execute(
                f"""UPDATE "{schema}".meta SET value = CAST(CAST(value AS BIGINT) - 3 AS TEXT)
                WHERE key = 'commits'""".encode()  # noqa: S608 - a name of ours
            )
        with pytest.raises(JournalBehind):
            await finds.put(SHOP, order(13))
        placed = await other.put(SHOP, order(3), owner="other", chunk=placed.chunk, permits=True)
        assert (State.PLANNED, None) == (placed.entry.state, placed.permit)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_rounds_of_permits_in_whole_commits_and_statement_by_statement(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the journal says is the same."""
    import random

    chance = random.Random(seed)
    rounds = [
        Round(
            fresh=chance.randint(1, 4),
            again=[chance.randint(0, 5)] if chance.random() < 0.3 else [],
            answers=chance.choices(
                [Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN, Signal.NOT_SENT], [6, 1, 1, 1], k=6
            ),
            **{name: chance.random() < 0.15 for name in ("named", "late", "taken_over", "worded", "alone")},
        )
        for _ in range(6)
    ]

    def opens(**options: Any) -> PostgresJournal:
        return PostgresJournal(postgres.dsn(), schema=postgres.new_schema(), **for_journal(options))

    found = await asked(rounds, side_by_side=True, opens=opens)
    monkeypatch.setattr(PostgresDatabase, "gathering", lambda *_: None)
    assert await asked(rounds, side_by_side=True, opens=opens) == found
