"""What is believed of a notification: not before it is confirmed, never of a stranger, and more when it says more."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from journal.factories import BATCH, claimed, delivery, event, final_event, loaded, order, permitted, transaction_id

from payments_async._wire.events import TransactionEvent
from payments_async.journal import Journal, Signal, SqliteJournal, State
from payments_async.journal.contract import Arrival, Doubt, Outcome, Receipt

REQUEST_ID = order(0).request_id


async def take(
    journal: Journal, about: TransactionEvent, body: bytes = b"{}", *, doubt: Doubt | None = None, lease: float = 90
) -> Receipt:
    """Receive a notification."""
    arrival = Arrival(delivery=delivery(body), event=about, lease=lease, doubt=doubt)
    (receipt,) = await journal.receive_all((arrival,), owner="receiver")
    assert isinstance(receipt, Receipt)
    return receipt


async def unknown(journal: Journal) -> None:
    """An order that was sent, and nobody knows what became of it."""
    chunk = await claimed(journal, 1)
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.UNKNOWN))


async def state(journal: Journal) -> State:
    """Where it stands."""
    entry = await journal.entry(REQUEST_ID)
    assert entry is not None
    return entry.state


@pytest.mark.parametrize("doubt", list(Doubt))
async def test_what_is_doubted_moves_no_order_and_is_nobodys_final_event(journal: Journal, doubt: Doubt) -> None:
    """Neither when it comes nor when the order is looked for later."""
    await take(journal, event(2, 0), doubt=doubt)
    await unknown(journal)
    await take(journal, event(0, 0), b"another", doubt=doubt)
    assert State.UNKNOWN is await state(journal)
    assert await final_event(journal, REQUEST_ID) is None
    assert () == tuple(await journal.final_events(REQUEST_ID, transaction_id(0)))
    assert 0 == (await journal.progress(BATCH)).conflicts
    assert [doubt, doubt] == [stored.doubt async for stored in journal.dubious()]


async def test_a_confirmed_notification_settles_its_order(journal: Journal) -> None:
    """Once; a repeat is a repeat, and it is doubted no more."""
    await unknown(journal)
    receipt = await take(journal, event(0, 0), doubt=Doubt.UNCONFIRMED)
    assert 1 == (await journal.backlog()).unconfirmed
    assert await journal.confirm(receipt.event_id) is None
    assert await journal.confirm(receipt.event_id) is None
    assert State.SUCCESSFUL is await state(journal)
    assert not (await take(journal, event(0, 0), doubt=Doubt.UNCONFIRMED)).is_new
    assert 0 == (await journal.backlog()).unconfirmed
    assert event(0, 0) == await final_event(journal, REQUEST_ID)


async def test_a_confirmed_notification_may_contradict(journal: Journal) -> None:
    """What was confirmed before it stands."""
    await unknown(journal)
    first = await take(journal, event(2, 0), doubt=Doubt.UNCONFIRMED)
    second = await take(journal, event(0, 0), b"second", doubt=Doubt.UNCONFIRMED)
    assert await journal.confirm(second.event_id) is None
    assert "status code 2 after the final 0" == await journal.confirm(first.event_id)
    assert State.SUCCESSFUL is await state(journal)


async def test_a_notification_waits_for_its_confirmation_after_a_restart(journal: Journal) -> None:
    """It is claimed again, and says that it is not confirmed."""
    await unknown(journal)
    receipt = await take(journal, event(0, 0), doubt=Doubt.UNCONFIRMED)
    await journal.release("receiver")
    (stored,) = await journal.claim("another", lease=90, limit=10)
    assert (receipt.event_id, Doubt.UNCONFIRMED) == (stored.event_id, stored.doubt)
    await journal.finish(receipt.event_id, "dead", error="nobody answered")
    assert State.UNKNOWN is await state(journal)
    await journal.revive()
    (stored,) = await journal.claim("another", lease=90, limit=10)
    assert Doubt.UNCONFIRMED is stored.doubt


async def test_what_the_record_disputes_moves_nothing(journal: Journal) -> None:
    """And the same under another request id is asked about anew: the record spoke against the first words."""
    await unknown(journal)
    forged = await take(journal, event(0, 0, request_id="somebody-else"), doubt=Doubt.UNCONFIRMED)
    await journal.finish(forged.event_id, "disputed", error="the record names another request id")
    genuine = await take(journal, event(0, 0), b"genuine", doubt=Doubt.UNCONFIRMED)
    assert (forged.event_id, True) == (genuine.event_id, genuine.is_new)
    assert await journal.confirm(genuine.event_id) is None
    assert State.SUCCESSFUL is await state(journal)


@pytest.mark.parametrize("words", [b"forged", b"genuine"])
async def test_what_the_record_disputed_is_asked_about_whenever_it_is_told_again(
    journal: Journal, words: bytes
) -> None:
    """Else whoever told it first, with one wrong word, would have the genuine one taken for a repeat of his."""
    await unknown(journal)
    forged = await take(journal, event(0, 0, currency="KES"), b"forged", doubt=Doubt.UNCONFIRMED)
    await journal.finish(forged.event_id, "disputed", error="the record is in another currency")
    again = await take(journal, event(0, 0), words, doubt=Doubt.UNCONFIRMED)
    assert (forged.event_id, True) == (again.event_id, again.is_new)
    assert 1 == (await journal.backlog()).pending
    assert await journal.confirm(again.event_id) is None
    assert State.SUCCESSFUL is await state(journal)
    assert not (await take(journal, event(0, 0), b"forged", doubt=Doubt.UNCONFIRMED)).is_new


async def test_a_strangers_notification_is_shown_and_handled_by_nobody(journal: Journal) -> None:
    """It waits for nothing."""
    await take(journal, event(0, 0), doubt=Doubt.REPORTED)
    backlog = await journal.backlog()
    assert (0, 1) == (backlog.pending, backlog.reported)
    assert 0 == await journal.unmatched_events()


@pytest.mark.parametrize("doubt", [None, Doubt.UNCONFIRMED])
async def test_a_stranger_does_not_make_a_repeat_of_the_genuine_notification(
    journal: Journal, doubt: Doubt | None
) -> None:
    """It is new when a sender tells it, and its words count."""
    await unknown(journal)
    first = await take(journal, event(0, 0, request_id="somebody-else"), b"forged", doubt=Doubt.REPORTED)
    genuine = await take(journal, event(0, 0), b"genuine", doubt=doubt)
    assert (first.event_id, True) == (genuine.event_id, genuine.is_new)
    assert 1 == (await journal.backlog()).pending
    if doubt:
        await journal.confirm(genuine.event_id)
    assert State.SUCCESSFUL is await state(journal)
    assert event(0, 0) == await final_event(journal, REQUEST_ID)
    assert not (await take(journal, event(0, 0), b"forged", doubt=Doubt.REPORTED)).is_new


async def test_a_nameless_success_and_the_same_with_its_request_id_settle_the_order(journal: Journal) -> None:
    """The second says more than the first said, so it is looked at again."""
    await unknown(journal)
    nameless = await take(journal, event(0, 0, request_id=None), b"nameless")
    assert State.UNKNOWN is await state(journal)
    named = await take(journal, event(0, 0), b"named")
    assert Receipt(event_id=nameless.event_id, is_new=False) == named
    assert State.SUCCESSFUL is await state(journal)
    assert event(0, 0) == await final_event(journal, REQUEST_ID)
    assert 2 == len([one for one in await journal.history(REQUEST_ID) if one.what == "delivery"])


async def test_a_nameless_and_a_named_one_that_come_together_settle_the_order(journal: Journal) -> None:
    """In one commit as well, whichever comes first."""
    await unknown(journal)
    arrivals = [
        Arrival(delivery=delivery(b"%d" % place), event=event(0, 0, **fields), lease=0)
        for place, fields in enumerate(({"request_id": None}, {}))
    ]
    await journal.receive_all(arrivals, owner="receiver")
    assert State.SUCCESSFUL is await state(journal)


async def test_the_same_under_two_request_ids_is_a_conflict_for_both(journal: Journal) -> None:
    """The second is not passed over as a repeat."""
    await unknown(journal)
    await take(journal, event(0, 0, request_id="somebody-else"), b"first")
    for _ in range(2):
        receipt = await take(journal, event(0, 0), b"second")
    assert "as that of request id somebody-else" in str(receipt.conflict)
    assert 1 == (await journal.progress(BATCH)).conflicts
    assert State.UNKNOWN is await state(journal)


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE ipn_event SET event = CAST('{' AS BLOB) WHERE id = 1",
        "UPDATE ipn_event SET event = CAST('[]' AS BLOB) WHERE id = 1",
        "UPDATE ipn_event SET event = CAST('{\"amount\":\"x\"}' AS BLOB) WHERE id = 1",
        "UPDATE delivery SET done = '7' WHERE queue = 'inbox' AND about = 1",
        "UPDATE ipn_event SET transaction_id = CAST(x'ff' AS TEXT) WHERE id = 1",
        "UPDATE ipn_event SET event = CAST('{\"created_on\":7}' AS BLOB) WHERE id = 1",
    ],
)  # fmt: skip
async def test_one_row_that_cannot_be_read_holds_up_no_other(
    tmp_path: Path, edit: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a dead letter, the log says so with its number, and the others are handled; again after a revival."""
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        for number in range(3):
            await take(journal, event(0, number), b"%d" % number, lease=0)
    connection = sqlite3.connect(tmp_path / "journal.db")
    connection.execute(edit)
    connection.commit()
    connection.close()
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        for _ in range(2):
            assert [2, 3] == [stored.event_id for stored in await journal.claim("receiver", lease=0, limit=10)]
            assert [1] == [stored.event_id async for stored in journal.dead_letters()]
            assert 1 == await journal.revive(1)
    assert {1} == {record.event_id for record in caplog.records}  # type: ignore[attr-defined]


async def test_an_order_loaded_after_a_notification_that_cannot_be_read_is_parked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody told of it; the load goes on, and so does everything else."""
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        for number in range(2):
            await take(journal, event(0, number), b"%d" % number, lease=0)
    connection = sqlite3.connect(tmp_path / "journal.db")
    connection.execute("UPDATE ipn_event SET event = CAST('{' AS BLOB) WHERE id = 1")
    connection.commit()
    connection.close()
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        await loaded(journal, 3)
        counts = (await journal.progress(BATCH)).counts
        assert (2, 1) == (counts["parked"], counts["planned"])
        assert [1] == [stored.event_id async for stored in journal.dead_letters()]
    assert "cannot be read" in caplog.text


async def test_no_event_has_a_number_beyond_what_the_file_can_hold(journal: Journal) -> None:
    """Asked for, it is simply not there."""
    assert 0 == await journal.revive(10**30)


@pytest.mark.parametrize("code", [2**63, -(2**63) - 1, 10**5000], ids=["one", "less", "long"])
async def test_a_code_larger_than_the_file_can_hold_ends_nothing(journal: Journal, code: int) -> None:
    """It is kept in words, with what the service said."""
    chunk = await claimed(journal, 2)
    outcomes = [
        Outcome(permit=await permitted(journal, chunk, place), signal=Signal.REJECTED, code=code, message="no")
        for place in range(2)
    ]
    await journal.record(outcomes[0])
    await journal.permit(chunk, chunk.orders[1], after=outcomes[1])
    for place in range(2):
        entry: Any = await journal.entry(order(place).request_id)
        assert (State.REJECTED, None) == (entry.state, entry.code)
        assert entry.message.startswith("code ")
        assert entry.message.endswith(": no")
