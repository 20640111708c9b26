"""The receiver on a SQLite journal: what comes together is stored together, and each one keeps its own outcome."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from ipn.faces import aiohttp_face
from ipn.notifications import notification

from payments_async._values.tasks import Tasks
from payments_async.ipn import (
    HandlerPolicy,
    Receiver,
    ReceiverSettings,
    TransactionConflict,
    TransactionEvent,
    TransactionFailed,
)
from payments_async.ipn._durable import Batches
from payments_async.ipn._intake import NOT_STORED
from payments_async.journal import JournalUnavailable, SqliteJournal
from payments_async.journal.contract import Arrival, RawNotification, Receipt, StoredEvent

LOCAL = ["127.0.0.1"]
QUICK = HandlerPolicy(poll=0.01, wait_initial=0.001, wait_max=0.001, attempts=3, drain=1.0)


def arrival(transaction_id: str, code: int = 0, *, unheard: bool = False, **fields: Any) -> Arrival:
    """A delivery that came just now."""
    event = TransactionEvent(transaction_id=transaction_id, status_code=code, request_id="r", **fields)
    delivery = RawNotification(body=repr(event).encode(), query="", peer="127.0.0.1", received_at=time.time())
    return Arrival(delivery=delivery, event=event, lease=0, unheard=unheard)


async def until(condition: Callable[[], bool]) -> None:
    """Let the receiver work until something holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - handlers that write into lists have no event to set
            await asyncio.sleep(0.002)


async def pending(journal: SqliteJournal) -> list[int]:
    """Ids of events that anybody may claim."""
    return [stored.event_id for stored in await journal.claim("test", lease=0, limit=1000)]


async def test_what_comes_together_repeats_and_contradicts_itself(journal: SqliteJournal) -> None:
    """As if each had come alone: the first stands, also within one batch."""
    batch = [arrival("a"), arrival("a"), arrival("a", 2), arrival("b"), arrival("a", 2)]
    expected = [
        Receipt(event_id=1, is_new=True),
        Receipt(event_id=1, is_new=False),
        Receipt(event_id=2, is_new=True, conflict="status code 2 after the final 0"),
        Receipt(event_id=3, is_new=True),
        Receipt(event_id=2, is_new=False, conflict="status code 2 after the final 0"),
    ]
    assert expected == await journal.receive_all(batch, owner="test")
    assert [1, 2, 3] == await pending(journal)


async def test_one_that_cannot_be_stored_does_not_stop_the_others(journal: SqliteJournal) -> None:
    """Its place is taken by the reason."""
    batch = [arrival("a"), arrival("b", 2**70), arrival("c")]
    first, second, third = await journal.receive_all(batch, owner="test")
    assert isinstance(first, Receipt)
    assert isinstance(second, OverflowError)
    assert isinstance(third, Receipt)
    assert [first.event_id, third.event_id] == await pending(journal)


@pytest.mark.parametrize("count", [1, 39, 40, 41, 130])
async def test_batches_of_every_size_are_stored_and_handled(journal: SqliteJournal, count: int) -> None:
    """None is missing at the seams of the statements, and each receipt's id is that of its own event."""
    receipts = await journal.receive_all([arrival(f"t-{number}") for number in range(count)], owner="test")
    ids = [receipt.event_id for receipt in receipts if isinstance(receipt, Receipt)]
    claimed = await journal.claim("test", lease=0, limit=1000)
    assert {number: f"t-{place}" for place, number in enumerate(ids)} == {
        stored.event_id: stored.event.transaction_id for stored in claimed
    }
    assert () == await journal.receive_all((), owner="test", handled=ids)
    assert [] == await pending(journal)


async def test_what_nobody_hears_is_handled_at_once_unless_it_contradicts(journal: SqliteJournal) -> None:
    """A contradiction may be heard by others: it waits for a handler like any event."""
    await journal.receive_all([arrival("a", unheard=True)], owner="test")
    assert [] == await pending(journal)
    await journal.receive_all([arrival("a", 2, unheard=True)], owner="test")
    assert [2] == await pending(journal)


async def test_a_handler_of_conflicts_hears_what_no_other_handler_does(journal: SqliteJournal) -> None:
    """The success was of no interest, and neither is the failure; that they disagree is."""
    receiver, heard = Receiver(journal, senders=LOCAL, policy=QUICK), asyncio.Queue[TransactionEvent]()
    receiver.on(TransactionConflict)(heard.put)
    async with aiohttp_face(receiver) as send:
        await send(notification(code=0))
        await send(notification(code=2))
        async with asyncio.timeout(60):
            assert isinstance(await heard.get(), TransactionConflict)
    assert 0 == (await journal.backlog()).pending


class Counted(SqliteJournal):
    """A journal that tells how many notifications each commit was asked for."""

    sizes: list[int]

    async def receive_all(self, arrivals: Sequence[Arrival], **rest: Any) -> Sequence[Receipt | Exception]:
        self.sizes.append(len(arrivals))
        return await super().receive_all(arrivals, **rest)


async def _never() -> None:
    """Nothing fails here."""
    raise AssertionError("nothing is tried again")


async def store(path: Path, count: int, *, turns: int) -> list[int]:
    """Let so many notifications arrive, one after so many turns of the loop, and tell what was stored together."""
    async with Counted(path) as journal:
        journal.sizes = []
        batches = Batches(
            journal, owner=lambda: "test", stored=lambda arrival, receipt: None, tasks=Tasks("the test"), retry=_never
        )
        waiting = []
        for number in range(count):
            waiting.append(batches.put(arrival(f"t-{number}")))
            for _ in range(turns):
                await asyncio.sleep(0)
        assert [None] * count == await asyncio.gather(*waiting)
        return journal.sizes


async def test_what_is_still_on_its_way_through_the_loop_joins_the_batch(tmp_path: Path) -> None:
    """With a commit of its own it would be on disk later, and everybody after it too."""
    assert [4] == await store(tmp_path / "journal.sqlite", 4, turns=2)


async def test_a_batch_does_not_wait_for_ever_for_more(tmp_path: Path) -> None:
    """Under load something comes in every turn of the loop."""
    sizes = await store(tmp_path / "journal.sqlite", 200, turns=1)
    assert len(sizes) > 1
    assert sizes[0] <= 20


class Forgetful(SqliteJournal):
    """A journal that cannot write down, for a while, what was handled."""

    refused = 0
    fails = True

    async def receive_all(
        self, arrivals: Sequence[Arrival], *, owner: str, handled: Sequence[int] = ()
    ) -> Sequence[Receipt | Exception]:
        if handled and self.fails:
            self.refused += 1
            raise JournalUnavailable("the disk is full")
        return await super().receive_all(arrivals, owner=owner, handled=handled)


async def test_what_was_handled_and_cannot_be_written_down_keeps_nothing_from_being_stored(tmp_path: Path) -> None:
    """It is tried again until it can be, and no handler is run once more."""
    async with Forgetful(tmp_path / "journal.sqlite") as journal:
        receiver, heard = Receiver(journal, senders=LOCAL, policy=QUICK), []

        @receiver.on(TransactionEvent)
        async def note(event: TransactionEvent) -> None:
            heard.append(event.transaction_id)

        async with aiohttp_face(receiver) as send:
            await send(notification(transaction_id="t-0"))
            await until(lambda: journal.refused > 0)
            assert [200] * 5 == [(await send(notification(transaction_id=f"t-{n}"))).status for n in range(1, 6)]
            await until(lambda: len(heard) == 6)
            assert 6 == (await journal.backlog()).pending
            journal.fails = False
        assert 0 == (await journal.backlog()).pending
    assert [f"t-{n}" for n in range(6)] == sorted(heard)


class Stuck(SqliteJournal):
    """A journal that has begun to store something, and never says that it is done."""

    begun: asyncio.Event

    async def receive_all(self, arrivals: Sequence[Arrival], **rest: Any) -> Sequence[Receipt | Exception]:
        self.begun.set()
        return await asyncio.Future()


async def test_a_notification_whose_storing_is_broken_off(tmp_path: Path) -> None:
    """It is not answered 200, for it may not be stored: the service sends it again."""
    async with Stuck(tmp_path / "journal.sqlite") as journal:
        journal.begun, tasks = asyncio.Event(), Tasks("the test")
        batches = Batches(
            journal, owner=lambda: "test", stored=lambda arrival, receipt: None, tasks=tasks, retry=_never
        )
        waiting = batches.put(arrival("a"))
        await journal.begun.wait()
        await tasks.aclose()
        assert NOT_STORED == await waiting


async def test_many_at_once_are_handled_once_each(journal: SqliteJournal) -> None:
    """By a handler that waits for nothing and one that does; afterwards nothing is pending."""
    receiver = Receiver(journal, senders=LOCAL, policy=QUICK)
    quick: list[str] = []
    slow: list[str] = []

    @receiver.on(TransactionEvent)
    async def at_once(event: TransactionEvent) -> None:
        quick.append(event.transaction_id)

    @receiver.on(TransactionFailed)
    async def later(event: TransactionEvent) -> None:
        await asyncio.sleep(0.01)
        slow.append(event.transaction_id)

    async with aiohttp_face(receiver) as send:
        await asyncio.gather(*(send(notification(f"t-{n}", 2 * (n % 2))) for n in range(100)))
        await until(lambda: len(quick) == 100 and len(slow) == 50)
    assert sorted(f"t-{number}" for number in range(100)) == sorted(quick)
    assert sorted(f"t-{number}" for number in range(1, 100, 2)) == sorted(slow)
    assert 0 == (await journal.backlog()).pending


class Asked(SqliteJournal):
    """A journal that counts how often it was asked for what is free."""

    claims = 0

    async def claim(self, owner: str, *, lease: float, limit: int) -> Sequence[StoredEvent]:
        self.claims += 1
        return await super().claim(owner, lease=lease, limit=limit)


@pytest.mark.parametrize(("owner", "waits"), [("billing", False), (None, True)])
async def test_a_named_receiver_takes_back_what_it_held_before_it_died(
    tmp_path: Path, owner: str | None, waits: bool
) -> None:
    """At once; without a name it waits for the lease to end."""
    async with Asked(tmp_path / "journal.sqlite") as journal:
        held = arrival("a")
        await journal.receive(held.delivery, held.event, owner="billing", lease=1000)
        receiver, heard = (
            Receiver(journal, policy=QUICK, settings=ReceiverSettings(owner=owner)),
            list[TransactionEvent](),
        )

        @receiver.on(TransactionEvent)
        async def hear(event: TransactionEvent) -> None:
            heard.append(event)

        async with receiver:
            await until(lambda: journal.claims > 3)
        assert (0 if waits else 1) == len(heard)


@pytest.mark.parametrize("kinds", [[TransactionEvent], [TransactionEvent, TransactionFailed]])
async def test_no_more_handlers_run_at_once_than_are_allowed(
    journal: SqliteJournal, kinds: list[type[TransactionEvent]]
) -> None:
    """Whether an event has one handler or several, which run side by side."""
    receiver = Receiver(journal, senders=LOCAL, policy=attrs.evolve(QUICK, concurrency=3))
    under_way, most, ended = 0, 0, 0

    async def slow(_: TransactionEvent) -> None:
        nonlocal under_way, most, ended
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.003)
        under_way -= 1
        ended += 1

    for place, kind in enumerate(kinds):
        receiver.on(kind, name=f"slow {place}")(slow)
    async with aiohttp_face(receiver) as send:
        await asyncio.gather(*(send(notification(f"t-{n}", 2)) for n in range(20)))
        await until(lambda: ended == 20 * len(kinds))
    assert 3 == most
