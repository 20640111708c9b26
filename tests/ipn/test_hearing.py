"""Several receivers on one journal: whoever waits at one hears what reached another, and does not look for it again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from ipn.notifications import notification
from journal import postgres

from payments_async._wire.events import TransactionEvent
from payments_async.ipn import HandlerPolicy, Receiver
from payments_async.journal import Journal, JournalUnavailable, PostgresJournal, SqliteJournal
from payments_async.journal.contract import Heard
from payments_async.testing import Notification, deliver

NEVER = HandlerPolicy(poll=3600)  # what is looked for again is looked for after the test
Opens = Callable[..., Journal]


class Counting:
    """Counts what a receiver asks its inbox, which may be broken for a while."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.looked = self.read_on = 0
        self.is_broken = False

    async def final_events(self, request_id: str, transaction_id: str | None = None) -> Sequence[TransactionEvent]:
        self.looked += 1
        self._check()
        return await super().final_events(request_id, transaction_id)  # type: ignore[misc,no-any-return]

    async def finals_since(
        self, heard: Heard | None, is_wanted: Callable[[str | None, str], bool]
    ) -> tuple[Heard, Sequence[TransactionEvent]]:
        self.read_on += 1
        self._check()
        return await super().finals_since(heard, is_wanted)  # type: ignore[misc,no-any-return]

    def _check(self) -> None:
        if self.is_broken:
            raise JournalUnavailable("broken")


class CountingSqlite(Counting, SqliteJournal):
    pass


class CountingPostgres(Counting, PostgresJournal):
    pass


@pytest.fixture(params=["sqlite", "postgres"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Gives a journal of the test's own, each time as another process would have it."""
    if request.param == "sqlite":
        yield lambda: CountingSqlite(tmp_path / "journal.db")
        return
    schema = postgres.new_schema()
    yield lambda: CountingPostgres(postgres.dsn(), schema=schema)
    postgres.give_back()


@pytest.fixture
async def two(opens: Callable[[], Any]) -> AsyncIterator[tuple[Any, Any]]:
    """Two journals in one database."""
    async with opens() as here, opens() as there:
        yield here, there


async def waiting(receiver: Receiver, *names: str, **options: Any) -> list[asyncio.Task[TransactionEvent]]:
    """Those who wait for the orders of some transactions, once they have looked for what came before."""
    inbox: Any = receiver.inbox
    looked = inbox.looked + len(names)
    tasks = [asyncio.ensure_future(receiver.wait_for(f"r-{name}", 60, **options)) for name in names]
    while inbox.looked < looked:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    return tasks


async def post(receiver: Receiver, body: bytes, sender: str = "127.0.0.1") -> None:
    """Have a receiver take a notification."""
    assert 200 == (await deliver(receiver, Notification(body=body, query=""), sender=sender)).status


async def test_what_reaches_another_receiver_is_heard_here(two: tuple[Any, Any]) -> None:
    """By request id or by transaction, and only what is final."""
    here = Receiver(two[0], policy=NEVER)
    async with Receiver(two[1], senders=["127.0.0.1"], policy=NEVER) as there:
        named, other = await waiting(here, "a", "b")
        (nameless,) = await waiting(here, "c", transaction_id="c")
        await post(there, notification("a", 1))
        await post(there, notification("b"))
        await post(there, notification("c", RequestId=None))
        assert [("b", 0), ("c", 0)] == [(one.transaction_id, one.status_code) for one in [await other, await nameless]]
        assert not named.done()
        await post(there, notification("a", 2))
        assert 2 == (await named).status_code


async def test_what_came_before_is_found_by_one_look(two: tuple[Any, Any]) -> None:
    """Also where somebody else waits already."""
    here = Receiver(two[0], policy=NEVER)
    async with Receiver(two[1], senders=["127.0.0.1"], policy=NEVER) as there:
        await post(there, notification("a"))
        (other,) = await waiting(here, "b")
        assert "a" == (await here.wait_for("r-a", 60)).transaction_id
        assert 2 == two[0].looked
        await post(there, notification("b"))
        await other


@pytest.mark.slow(covered=True)
async def test_those_who_wait_do_not_look_again_for_what_others_wait_for(two: tuple[Any, Any]) -> None:
    """However many they are: one of them reads on, for all."""
    here = Receiver(two[0], policy=NEVER)
    async with Receiver(two[1], senders=["127.0.0.1"], policy=NEVER) as there:
        tasks = await waiting(here, *(f"never-{n}" for n in range(500)))
        before, count = two[0].read_on, 20
        for number in range(count):
            (task,) = await waiting(here, f"t-{number}")
            await post(there, notification(f"t-{number}"))
            await task
        assert 500 + count == two[0].looked
        assert two[0].read_on - before <= 4 * count + 10  # a few for each commit, by whoever it was
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Service:
    """A session whose record bears out what it is asked for, once it may be asked."""

    def __init__(self) -> None:
        self.transactions = self
        self.may = asyncio.Event()

    async def get(self, transaction_id: str, /) -> Any:
        await self.may.wait()
        return Record()


class Record:
    transaction_id, request_id = "a", "r-a"
    amount = currency = status = None


async def test_what_another_receiver_confirms_is_heard_here(two: tuple[Any, Any]) -> None:
    """When it is confirmed, and not when it came."""
    here, service = Receiver(two[0], policy=NEVER), Service()
    async with Receiver(two[1], senders=["127.0.0.1"], confirm=service, policy=NEVER) as there:
        await post(there, notification("a", Amount=None))
        (task,) = await waiting(here, "a")
        looked = two[0].looked
        assert not task.done()
        service.may.set()
        assert "a" == (await task).transaction_id
        assert (looked, True) == (two[0].looked, two[0].read_on > 0)  # heard by reading on, not by another look


async def read_on_in_vain(inbox: Any) -> None:
    """Wait until it was tried again, and again."""
    before = inbox.read_on
    while inbox.read_on < before + 3:  # noqa: ASYNC110 - it is counted, and nobody is told
        await asyncio.sleep(0)


async def test_an_inbox_that_is_away_for_a_while(opens: Callable[[], Any]) -> None:
    """Whoever began to wait meanwhile, or before, hears what came."""
    often = HandlerPolicy(poll=0.01)
    async with opens() as mine, opens() as other:
        here = Receiver(mine, policy=often)
        async with Receiver(other, senders=["127.0.0.1"], policy=NEVER) as there:
            before = await waiting(here, "a")
            mine.is_broken = True
            meanwhile = await waiting(here, "b")
            await read_on_in_vain(mine)  # what had begun before it was away has ended
            for name in "ab":
                await post(there, notification(name))
            await read_on_in_vain(mine)
            assert not before[0].done()
            assert not meanwhile[0].done()
            mine.is_broken = False
            assert ["a", "b"] == [(await task).transaction_id for task in before + meanwhile]


async def test_a_connection_that_listened_and_was_lost() -> None:
    """What came while nobody listened is heard as soon as somebody does again."""
    schema = postgres.new_schema()
    async with (
        CountingPostgres(postgres.dsn(), schema=schema) as mine,
        PostgresJournal(postgres.dsn(), schema=schema) as other,
        Receiver(other, senders=["127.0.0.1"], policy=NEVER) as there,
    ):
        here = Receiver(mine, policy=NEVER)
        for number in range(3):
            (task,) = await waiting(here, f"t-{number}")
            await asyncio.to_thread(end_listeners)
            await post(there, notification(f"t-{number}"))
            assert f"t-{number}" == (await task).transaction_id
    postgres.give_back()


def end_listeners() -> None:
    """End the sessions that listen."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(
            """SELECT pg_terminate_backend(pid, 20000) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
        )
