"""What the inbox forgets of old notifications, what it never forgets, and how little room a large body takes."""

import json
from pathlib import Path

import pytest
from journal.factories import BATCH, Clock, claimed, delivery, event, order, permitted, transaction_id

from payments_async._wire.notifications import read_notification
from payments_async.journal import Journal, Pruned, Signal, SqliteJournal
from payments_async.journal.contract import Arrival, Doubt, Outcome, Receipt

DAY = 86_400.0


async def take(journal: Journal, number: int, code: int = 0, *, unheard: bool = True, body: bytes = b"{}") -> Receipt:
    """A notification, handled at once."""
    arrival = Arrival(delivery=delivery(body), event=event(code, number), lease=0, unheard=unheard)
    (receipt,) = await journal.receive_all((arrival,), owner="receiver")
    assert isinstance(receipt, Receipt)
    return receipt


async def test_old_notifications_that_nothing_needs_are_forgotten(journal: Journal, clock: Clock) -> None:
    """With the other words they came in; what they settled stays settled, and its history still tells by what."""
    chunk = await claimed(journal, 1)
    await journal.record(
        Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED, transaction_id=transaction_id(0))
    )
    for number in (0, 50, 51):
        for body in (b"{}", b"{ }"):
            await take(journal, number, body=body)
    clock.pass_(90 * DAY)
    await journal.receive(delivery(at=clock.now), event(0, 60), owner="receiver", lease=0)
    assert Pruned() == await journal.prune_inbox(older_than=91 * DAY)
    assert Pruned(events=3, deliveries=3) == await journal.prune_inbox(older_than=89 * DAY)
    assert 1 == (await journal.progress(BATCH)).counts["successful"]
    assert "notification" in [happening.what for happening in await journal.history(order(0).request_id)]


async def test_what_something_open_needs_is_kept_whatever_its_age(journal: Journal, clock: Clock) -> None:
    """Of an order that is not settled or is in conflict, what waits, a dead letter, and the newest."""
    chunk = await claimed(journal, 3)
    permits = [await permitted(journal, chunk, place) for place in range(3)]
    await take(journal, 0, 1)  # accepted, and not final
    await take(journal, 1)
    await take(journal, 1, 2)  # contradicts
    await take(journal, 50, unheard=False)  # waits
    dead = await take(journal, 51, unheard=False)
    await journal.finish(dead.event_id, "dead", error="no")
    arrival = Arrival(delivery=delivery(b"doubted"), event=event(0, 2), lease=0, doubt=Doubt.REPORTED)
    await journal.receive_all((arrival,), owner="receiver")
    newest = await take(journal, 52)
    clock.pass_(1000 * DAY)
    assert Pruned() == await journal.prune_inbox(older_than=DAY)
    await journal.record(Outcome(permit=permits[2], signal=Signal.REJECTED))
    assert Pruned(events=1) == await journal.prune_inbox(older_than=DAY)
    assert newest.event_id < (await take(journal, 53)).event_id


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("home", ["sqlite"], indirect=True)  # the statements are the same in a database
async def test_a_long_inbox_is_pruned_to_its_end(journal: Journal, clock: Clock) -> None:
    """Also where much of it is kept in between."""
    await claimed(journal, 3)
    arrivals = [
        Arrival(delivery=delivery(b"%d" % n), event=event(0, n), lease=0, unheard=n % 2 == 0) for n in range(10, 1210)
    ]
    await journal.receive_all(arrivals, owner="receiver")
    clock.pass_(90 * DAY)
    assert Pruned(events=600) == await journal.prune_inbox(older_than=DAY)
    assert 600 == (await journal.backlog()).pending


@pytest.mark.parametrize("older_than", [0, -1.0, float("nan")])
async def test_nothing_is_pruned_by_mistake(journal: Journal, older_than: float) -> None:
    """All of it, or what has not come yet, is no age."""
    with pytest.raises(ValueError, match="older_than"):
        await journal.prune_inbox(older_than=older_than)


async def test_a_large_body_takes_little_room_and_comes_back_as_it_was(tmp_path: Path) -> None:
    """Compressed from a kilobyte on; a repeat is known for one all the same."""
    path, bodies = tmp_path / "journal.db", []
    async with SqliteJournal(path) as journal:
        arrivals = []
        for number in range(200):
            members = {"TransactionId": f"t-{number}", "StatusCode": 1, "RequestId": f"r-{number}", "Amount": 5}
            body = json.dumps(members | {"Padding": "some words of no account, " * 2400}).encode()
            bodies.append(body)
            arrival = Arrival(
                delivery=delivery(body), event=read_notification(body, ""), lease=0, usual=number % 2 == 0
            )
            arrivals.append(arrival)
        receipts = await journal.receive_all(arrivals, owner="receiver")
        assert 200 == sum(isinstance(receipt, Receipt) and receipt.is_new for receipt in receipts)
        again = await journal.receive_all(arrivals, owner="receiver")
        assert not any(isinstance(receipt, Exception) or receipt.is_new for receipt in again)
        stored = await journal.claim("receiver", lease=0, limit=1000)
        assert [read_notification(body, "") for body in bodies] == [one.event for one in stored]
    assert sum(map(len, bodies)) > 10 * path.stat().st_size
