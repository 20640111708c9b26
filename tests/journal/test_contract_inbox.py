"""What every journal promises of notifications: stored once, leased, handled, settled with their orders."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import attrs
import pytest
from journal.conftest import Opens
from journal.factories import (
    BATCH,
    Clock,
    claimed,
    delivery,
    event,
    final_event,
    loaded,
    order,
    permitted,
    transaction_id,
)

from payments_async._wire.events import TransactionEvent, TransactionUnrecognised
from payments_async.journal import Journal, Signal, State
from payments_async.journal.contract import Arrival, Doubt, Outcome, Receipt


async def take(
    journal: Journal, about: TransactionEvent, body: bytes = b"{}", *, owner: str = "receiver", lease: float = 90
) -> Receipt:
    """Receive a notification."""
    return await journal.receive(delivery(body), about, owner=owner, lease=lease)


async def test_an_event_is_new_once(journal: Journal) -> None:
    """By transaction, status code and magnitude of the amount, however often and in whatever words it comes."""
    first = await take(journal, event())
    assert first.is_new
    for again in (event(), event(amount="-1001.5"), event(amount="1001.500", request_id=None)):
        assert Receipt(event_id=first.event_id, is_new=False) == await take(journal, again, repr(again).encode())
    for other in (event(1), event(number=2), event(amount=None)):
        assert (await take(journal, other, repr(other).encode())).is_new
    assert 4 == (await journal.backlog()).pending


async def test_an_event_comes_back_as_it_was(journal: Journal) -> None:
    """With every field, every digit, and what nobody documented."""
    whole = TransactionUnrecognised(
        transaction_id="t-1",
        status_code=77,
        request_id="r",
        account_id="0012",
        subscription_id="s",
        batch_id="b",
        status_message="Ünal",
        correlation_id="c",
        created_on=datetime(2026, 11, 21, 9, 30, 0, 123000, UTC),
        amount=Decimal("123456789012345678901234567.8900"),
        currency_code="UGX",
        extra={
            "fee": Decimal("0.10"), "large": 10**40, "$decimal": "x", "deep": [{"a": None, "$decimal": "1"}, True, 1],
            "text": "1.5",
        },
    )  # fmt: skip
    await take(journal, whole, lease=0)
    (stored,) = await journal.claim("receiver", lease=90, limit=10)
    assert type(whole) is type(stored.event)
    assert attrs.asdict(whole) | {"extra": ...} == attrs.asdict(stored.event) | {"extra": ...}
    assert {name: value for name, value in whole.extra.items() if name != "deep"} == {
        name: value for name, value in stored.event.extra.items() if name != "deep"
    }
    assert "123456789012345678901234567.8900" == format(stored.event.amount or 0, "f")


async def test_an_event_is_leased_to_whoever_received_it(journal: Journal, clock: Clock) -> None:
    """And to anybody when the lease has run out."""
    receipt = await take(journal, event())
    assert () == tuple(await journal.claim("other", lease=90, limit=10))
    clock.pass_(90)
    assert [receipt.event_id] == [stored.event_id for stored in await journal.claim("other", lease=90, limit=10)]
    assert () == tuple(await journal.claim("third", lease=90, limit=10))


async def test_an_event_without_a_lease_is_anybodys(journal: Journal) -> None:
    """As when the receiver has no room for it."""
    await take(journal, event(), lease=0)
    assert 1 == len(await journal.claim("other", lease=90, limit=10))


async def test_the_oldest_are_claimed_first_and_no_more_than_asked(journal: Journal) -> None:
    """A backlog is worked off in its sequence."""
    numbers = [(await take(journal, event(number=number), lease=0)).event_id for number in range(5)]
    claimed_ = [[stored.event_id for stored in await journal.claim("a", lease=90, limit=2)] for _ in range(3)]
    assert [numbers[:2], numbers[2:4], numbers[4:]] == claimed_


async def test_two_receivers_share_an_inbox(opens: Opens) -> None:
    """Each event is leased to one of them."""
    async with opens() as one, opens() as other:
        for number in range(20):
            await take(one, event(number=number), lease=0)
        taken = await asyncio.gather(
            *(journal.claim(name, lease=90, limit=3) for name, journal in (("a", one), ("b", other)) for _ in range(5))
        )
        numbers = [stored.event_id for events in taken for stored in events]
        assert 20 == len(numbers) == len(set(numbers))


async def test_a_shutdown_gives_its_leases_back(journal: Journal) -> None:
    """Its own, not those of another."""
    await take(journal, event(number=1), owner="a")
    await take(journal, event(number=2), owner="b")
    await journal.release("a")
    assert [order(1).request_id] == [s.event.request_id for s in await journal.claim("c", lease=90, limit=10)]


async def test_a_handler_that_finished_is_not_run_again(journal: Journal, clock: Clock) -> None:
    """Its name comes back with the event, and the number of rounds."""
    receipt = await take(journal, event())
    await journal.note_done(receipt.event_id, "b")
    await journal.note_done(receipt.event_id, "a")
    await journal.note_done(receipt.event_id, "a")
    await journal.retry_later(receipt.event_id, delay=10, error="no connection")
    assert () == tuple(await journal.claim("other", lease=90, limit=10))
    clock.pass_(10)
    (stored,) = await journal.claim("other", lease=90, limit=10)
    assert (1, frozenset("ab"), "no connection") == (stored.tries, stored.done, stored.error)


@pytest.mark.parametrize("state", ["handled", "dead", "disputed"])
async def test_a_finished_event_is_not_claimed(journal: Journal, clock: Clock, state: str) -> None:
    """Nor does a second receiver that comes late change how it ended."""
    receipt = await take(journal, event())
    await journal.finish(receipt.event_id, state, error="why")
    await journal.finish(receipt.event_id, "handled")
    await journal.retry_later(receipt.event_id, delay=0, error="late")
    clock.pass_(1000)
    assert () == tuple(await journal.claim("other", lease=90, limit=10))
    assert (0, int(state == "dead")) == attrs.astuple(await journal.backlog())[:2]


async def test_dead_letters_are_shown_and_revived(journal: Journal) -> None:
    """One or all; their handlers that finished stay finished."""
    receipts = [await take(journal, event(number=number)) for number in range(3)]
    await journal.note_done(receipts[0].event_id, "a")
    for receipt in receipts:
        await journal.finish(receipt.event_id, "dead", error="no")
    assert [receipt.event_id for receipt in receipts] == [dead.event_id async for dead in journal.dead_letters()]
    assert 1 == await journal.revive(receipts[0].event_id)
    assert 0 == await journal.revive(receipts[0].event_id)
    assert 2 == await journal.revive()
    events = await journal.claim("other", lease=90, limit=10)
    assert [(0, frozenset("a")), (0, frozenset()), (0, frozenset())] == [
        (stored.tries, stored.done) for stored in events
    ]


async def test_an_event_that_contradicts_a_final_one_is_a_conflict(journal: Journal) -> None:
    """The earlier stands; a late processing with the same amount contradicts nothing."""
    assert (await take(journal, event(0))).conflict is None
    assert (await take(journal, event(1))).conflict is None
    receipt = await take(journal, event(2), b"2")
    assert receipt.conflict == "status code 2 after the final 0"
    assert receipt.conflict == (await take(journal, event(2), b"2")).conflict
    assert "amount" in str((await take(journal, event(0, amount="7"), b"3")).conflict)
    assert event(0) == await final_event(journal, order().request_id)


async def test_a_final_event_is_found_by_its_request_id(journal: Journal) -> None:
    """Unless there is none, it is not final, or the service's record disputes it."""
    assert await final_event(journal, order().request_id) is None
    await take(journal, event(1))
    assert await final_event(journal, order().request_id) is None
    receipt = await take(journal, event(2))
    assert event(2) == await final_event(journal, order().request_id)
    await journal.finish(receipt.event_id, "disputed", error="another amount")
    assert await final_event(journal, order().request_id) is None


async def test_the_backlog_tells_how_much_waits_and_since_when(journal: Journal) -> None:
    """Of the unhandled ones, also those that are leased."""
    assert (0, 0, None, 0, 0) == attrs.astuple(await journal.backlog())[:5]
    for number, at in ((1, 100.0), (2, 200.0)):
        await journal.receive(delivery(at=at), event(number=number), owner="a", lease=90)
    assert (2, 0, 100.0, 0, 0) == attrs.astuple(await journal.backlog())[:5]


# With the outbox


@pytest.mark.parametrize(
    ("status_code", "state"),
    [(0, State.SUCCESSFUL), (1, State.ACCEPTED), (2, State.FAILED), (9, State.ACCEPTED)],
)
async def test_a_notification_settles_its_order(journal: Journal, status_code: int, state: State) -> None:
    """Also when it overtakes the answer, which then changes nothing."""
    chunk = await claimed(journal)
    permit = await permitted(journal, chunk, 1)
    assert (await take(journal, event(status_code))).conflict is None
    entry = await journal.entry(order().request_id)
    assert entry is not None
    assert (state, transaction_id(), None) == (entry.state, entry.transaction_id, entry.conflict)
    finding = await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id()))
    assert (state, None) == (finding.state, finding.conflict)
    assert 0 == await journal.unmatched_events()


@pytest.mark.parametrize("change", [{"amount": "7"}, {"currency": "KES"}, {"amount": None}])
async def test_a_notification_that_disagrees_with_its_order_settles_nothing(
    journal: Journal, change: dict[str, str | None]
) -> None:
    """It is a conflict for the order and for the handlers, and the order keeps its state."""
    chunk = await claimed(journal)
    await permitted(journal, chunk, 1)
    receipt = await take(journal, event(0, **change))  # type: ignore[arg-type]
    assert receipt.conflict is not None
    assert receipt.is_new
    entry = await journal.entry(order().request_id)
    assert entry is not None
    assert (State.SENDING, receipt.conflict) == (entry.state, entry.conflict)
    assert await final_event(journal, order().request_id) is None


async def test_a_notification_without_a_request_id_waits_for_the_answer(journal: Journal) -> None:
    """Once the answer names its transaction, it settles the order in the same commit."""
    chunk = await claimed(journal)
    permit = await permitted(journal, chunk, 1)
    await take(journal, event(0, request_id=None))
    assert 1 == await journal.unmatched_events()
    finding = await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id()))
    assert State.SUCCESSFUL is finding.state
    assert 0 == await journal.unmatched_events()


@pytest.mark.parametrize("request_id", ["", None])
async def test_a_notification_without_a_request_id_finds_a_confirmed_transaction(
    journal: Journal, request_id: str | None
) -> None:
    """The usual sequence. An empty text contradicts no order."""
    chunk = await claimed(journal)
    outcome = Outcome(
        permit=await permitted(journal, chunk, 1), signal=Signal.ACCEPTED, transaction_id=transaction_id()
    )
    await journal.record(outcome)
    await take(journal, event(2, request_id=request_id))
    assert (1, 0) == ((await journal.progress(BATCH)).counts["failed"], (await journal.progress(BATCH)).conflicts)


async def test_a_notification_of_somebody_elses_order_is_kept(journal: Journal) -> None:
    """It is handled like any other, and counted as unmatched."""
    await loaded(journal)
    assert (await take(journal, event(number=77))).is_new
    assert 1 == await journal.unmatched_events()
    assert 3 == (await journal.progress(BATCH)).counts["planned"]


async def test_a_disputed_notification_is_shown_at_its_order(journal: Journal) -> None:
    """It may have settled it wrongly: the state stands, a person has to look."""
    chunk = await claimed(journal)
    await permitted(journal, chunk, 1)
    receipt = await take(journal, event(0))
    await journal.finish(receipt.event_id, "disputed", error="the record's amount is 5")
    entry = await journal.entry(order().request_id)
    assert entry is not None
    assert State.SUCCESSFUL is entry.state
    assert "the record's amount is 5" in str(entry.conflict)


async def test_a_caller_that_hangs_up_does_not_undo_a_delivery(journal: Journal) -> None:
    """The sender may never send it again."""
    task = asyncio.ensure_future(take(journal, event()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not (await take(journal, event())).is_new


async def test_every_delivery_of_an_event_is_told_with_its_sender(journal: Journal, clock: Clock) -> None:
    """The same again is counted where it came first; other words for it have a place of their own."""
    await loaded(journal)
    receipt = await journal.receive(delivery(peer="a", at=clock.now), event(0, 0), owner="r", lease=90)
    for body, peer in ((b"{ }", "b"), (b"{}", "c"), (b"{ }", "d"), (b"{  }", "e")):
        clock.now += 1
        assert not (
            await journal.receive(delivery(body, peer=peer, at=clock.now), event(0, 0), owner="r", lease=90)
        ).is_new
    story = [happening for happening in await journal.history(order(0).request_id) if happening.what == "delivery"]
    assert ["a", "b", "e"] == [happening.by for happening in story]
    assert [True, True, False] == ["it came 2 times" in (happening.detail or "") for happening in story]
    assert all(f"event {receipt.event_id}" in (happening.detail or "") for happening in story)


async def test_an_event_that_was_handled_after_all_has_no_error(journal: Journal) -> None:
    """Its failed rounds are told, and nothing else of them; a dead letter is not handled by word that comes late."""
    await loaded(journal)
    well = (await take(journal, event(0, 0))).event_id
    dead = (await take(journal, event(0, 1), b"1")).event_id
    for event_id in (well, dead):
        await journal.retry_later(event_id, delay=0, error="ValueError: no")
    await journal.finish(dead, "dead", error="ValueError: no")
    await journal.receive_all((), owner="receiver", handled=[well, dead])
    told = {
        happening.detail
        for number in (0, 1)
        for happening in await journal.history(order(number).request_id)
        if happening.what == "delivery"
    }
    assert [False, True] == sorted("ValueError" in (detail or "") for detail in told)
    assert all("1 rounds of them failed" in (detail or "") for detail in told)
    assert [dead] == [letter.event_id async for letter in journal.dead_letters()]
    assert 0 == (await journal.backlog()).pending


async def test_what_comes_together_is_leased_each_for_its_own_time(journal: Journal, clock: Clock) -> None:
    """Some for long, some for a moment, some to nobody, and some are handled already."""
    leases = (90.0, 0.0, 5.0, 90.0)
    arrivals = [
        Arrival(delivery=delivery(b"%d" % place), event=event(0, place), lease=lease, unheard=place == 3)
        for place, lease in enumerate(leases)
    ]
    await journal.receive_all(arrivals, owner="receiver")
    assert [2] == [stored.event_id for stored in await journal.claim("another", lease=1000, limit=10)]
    clock.now += 6
    assert [3] == [stored.event_id for stored in await journal.claim("another", lease=1000, limit=10)]
    clock.now += 90
    assert [1] == [stored.event_id for stored in await journal.claim("another", lease=1000, limit=10)]


def heard_by(*names: str) -> Callable[[str | None, str], bool]:
    """Whether one of these is waited for."""
    return lambda request_id, transaction: request_id in names or transaction in names


async def test_a_final_event_is_heard_once_by_who_reads_on(journal: Journal) -> None:
    """One that came before is not told again, one that is not final or not waited for is not told at all."""
    await take(journal, event(0, 0), b"0")
    heard, events = await journal.finals_since(None, heard_by(order(0).request_id))
    assert () == tuple(events)
    for number, code in ((1, 1), (2, 0), (3, 0), (4, 2)):
        await take(journal, event(code, number), str(number).encode())
    wanted = heard_by(order(0).request_id, order(1).request_id, order(2).request_id, transaction_id(4))
    heard, events = await journal.finals_since(heard, wanted)
    assert [transaction_id(2), transaction_id(4)] == [one.transaction_id for one in events]
    now, events = await journal.finals_since(heard, wanted)
    assert (heard, []) == (now, list(events))


async def test_many_final_events_at_once_are_all_heard(journal: Journal) -> None:
    """More than are read in one query."""
    heard, _ = await journal.finals_since(None, heard_by())
    arrivals = [Arrival(delivery(str(n).encode()), event(0, n), 0.0) for n in range(2100)]
    await journal.receive_all(arrivals, owner="receiver")
    _, events = await journal.finals_since(heard, lambda request_id, _: int((request_id or "0")[-6:]) % 700 == 699)
    assert [699, 1399, 2099] == [int((one.request_id or "")[-6:]) for one in events]


@pytest.mark.parametrize("doubt", list(Doubt))
async def test_an_event_is_heard_when_it_becomes_evidence(journal: Journal, doubt: Doubt) -> None:
    """Not when it was stored: it was confirmed later, or came again from somebody who is known."""
    wanted, first = heard_by(order(0).request_id), event(0, 0)
    heard, _ = await journal.finals_since(None, wanted)
    (receipt,) = await journal.receive_all([Arrival(delivery(), first, 0.0, doubt=doubt)], owner="receiver")
    assert isinstance(receipt, Receipt)
    heard, events = await journal.finals_since(heard, wanted)
    assert () == tuple(events)
    if doubt is Doubt.UNCONFIRMED:
        await journal.confirm(receipt.event_id)
    else:
        await take(journal, first)
    heard, events = await journal.finals_since(heard, wanted)
    assert [transaction_id(0)] == [one.transaction_id for one in events]
    now, events = await journal.finals_since(heard, wanted)
    assert (heard, []) == (now, list(events))


async def test_an_event_is_heard_when_its_request_id_gets_known(journal: Journal) -> None:
    """The first notification of it had left that out."""
    await take(journal, event(0, 0, request_id=None), b"1")
    wanted = heard_by(order(0).request_id)
    heard, _ = await journal.finals_since(None, wanted)
    await take(journal, event(0, 0), b"2")
    _, events = await journal.finals_since(heard, wanted)
    assert [order(0).request_id] == [one.request_id for one in events]


async def test_what_became_evidence_keeps_its_place_when_it_is_forgotten(journal: Journal, clock: Clock) -> None:
    """Who has heard of it hears of the next one."""
    doubted = [Arrival(delivery(str(n).encode()), event(0, n), 0.0, doubt=Doubt.UNCONFIRMED) for n in range(3)]
    receipts = await journal.receive_all(doubted, owner="receiver")
    first, second, _ = [receipt.event_id for receipt in receipts if isinstance(receipt, Receipt)]
    await journal.confirm(first)
    await journal.finish(first, "handled")
    heard, _ = await journal.finals_since(None, heard_by())
    clock.pass_(100)
    assert 1 == (await journal.prune_inbox(older_than=10)).events
    await journal.confirm(second)
    _, events = await journal.finals_since(heard, heard_by(order(1).request_id))
    assert [transaction_id(1)] == [one.transaction_id for one in events]


async def test_looking_for_what_is_due_writes_nothing(journal: Journal) -> None:
    """Receivers look again and again: nobody is told of that."""
    await take(journal, event(), lease=90)
    seen = await journal.committed(0, timeout=0)
    while seen != (seen := await journal.committed(seen, timeout=0.2)):
        pass
    assert () == tuple(await journal.claim("another", lease=90, limit=10))
    assert seen == await journal.committed(seen, timeout=0.2)
