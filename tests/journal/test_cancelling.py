"""An order that is cancelled before it was sent: it ends, for good, and never leaves. What may have left goes on."""

import shutil
from pathlib import Path

import pytest
from journal.factories import BATCH, Clock, claimed, in_outbox, loaded, missed, order, permitted, transaction_id

from payments_async.journal import (
    Journal,
    NotCancelled,
    NotLookedFor,
    OrderUnknown,
    Signal,
    SqliteJournal,
    State,
)
from payments_async.journal.contract import Evidence, NotPermitted, Outcome

SIGNED = {"who": "Ann", "why": "ordered twice"}
FIRST = order(0).request_id


async def test_a_planned_order_is_never_sent(journal: Journal) -> None:
    """It has ended, with the word of who wanted it; to cancel it again changes nothing."""
    await loaded(journal, 2)
    entry = await journal.cancel(FIRST, **SIGNED)
    assert (State.CANCELLED, "cancelled by Ann: ordered twice", 0) == (entry.state, entry.message, entry.attempt)
    assert entry == await journal.cancel(FIRST, who="Ben", why="the same")
    chunk = await journal.claim_chunk(BATCH, "worker")
    assert chunk is not None
    assert [order(1).request_id] == [one.request_id for one in chunk.orders]
    assert {"planned": 1, "cancelled": 1} == {
        state.value: count for state, count in (await journal.progress(BATCH)).counts.items() if count
    }
    (told,) = [one for one in await journal.history(FIRST) if one.signal is Signal.CANCELLED]
    assert ("Ann", "cancelled: ordered twice") == (told.by, told.detail)


async def test_a_worker_that_has_it_in_hand_gets_no_permit(journal: Journal) -> None:
    """The order was claimed before; the others of its chunk are sent."""
    chunk = await claimed(journal)
    await journal.cancel(FIRST, **SIGNED)
    refused = await journal.permit(chunk, chunk.orders[0])
    assert isinstance(refused, NotPermitted)
    assert (State.CANCELLED, False) == (refused.state, refused.lease_lost)
    await permitted(journal, chunk, 1)


@pytest.mark.parametrize("signal", [None, Signal.UNKNOWN, Signal.ACCEPTED, Signal.REJECTED])
async def test_what_may_have_left_is_not_cancelled(journal: Journal, signal: Signal | None) -> None:
    """It is refused with the state, and changes nothing."""
    permit = await permitted(journal, await claimed(journal))
    if signal is not None:
        await journal.record(Outcome(permit=permit, signal=signal))
    before = await journal.entry(FIRST)
    assert before is not None
    with pytest.raises(NotCancelled, match=f"is {before.state}: "):
        await journal.cancel(FIRST, **SIGNED)
    assert before == await journal.entry(FIRST)


async def test_an_order_that_surely_did_not_leave(journal: Journal) -> None:
    """Its attempt is proved not to have left: it is cancelled as one that was never tried."""
    permit = await permitted(journal, await claimed(journal))
    await journal.record(Outcome(permit=permit, signal=Signal.NOT_SENT))
    assert State.CANCELLED is (await journal.cancel(FIRST, **SIGNED)).state


async def test_an_order_that_a_person_had_sent_again(journal: Journal) -> None:
    """The first time it may have been paid: it waits for evidence, and is not sent again."""
    permit = await permitted(journal, await claimed(journal, 1))
    await journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN))
    await journal.park(FIRST, detail="two lists")
    await journal.send_again(FIRST, who="Ben", why="their letter")
    assert State.PARKED is (await journal.cancel(FIRST, **SIGNED)).state
    with pytest.raises(NotCancelled, match="is parked"):
        await journal.cancel(FIRST, **SIGNED)
    found = Evidence(
        signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", request_id=FIRST, transaction_id=transaction_id(0),
        amount=-order(0).amount,
    )  # fmt: skip
    finding = await journal.apply_evidence(found)
    assert finding is not None
    assert State.SUCCESSFUL is finding.state


async def test_evidence_of_a_cancelled_order_is_a_contradiction(journal: Journal) -> None:
    """Somebody else sent it under its id: it is shown, and the order stays as it is."""
    await loaded(journal, 1)
    await journal.cancel(FIRST, **SIGNED)
    found = Evidence(
        signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", request_id=FIRST, transaction_id=transaction_id(0),
        amount=-order(0).amount,
    )  # fmt: skip
    finding = await journal.apply_evidence(found)
    assert finding is not None
    assert (State.CANCELLED, True) == (finding.state, bool(finding.conflict))


async def test_an_order_that_is_put_again(journal: Journal) -> None:
    """Stays cancelled: its id is used up."""
    await in_outbox(journal, 1)
    await journal.cancel(order(0, batch="shop").request_id, **SIGNED)
    placed = await journal.put("shop", order(0, batch="shop"))
    assert (State.CANCELLED, False) == (placed.entry.state, placed.is_new)


async def test_an_order_of_a_journal_that_was_restored(tmp_path: Path) -> None:
    """What it calls planned may have been sent: it is looked for before anybody says that it was not."""
    async with SqliteJournal(tmp_path / "journal.db") as journal:
        await loaded(journal, 1)
    copy = Path(shutil.copyfile(tmp_path / "journal.db", tmp_path / "copy.db"))
    async with SqliteJournal(copy) as journal:
        with pytest.raises(NotLookedFor, match=FIRST):
            await journal.cancel(FIRST, **SIGNED)
        await missed(journal)
        assert State.CANCELLED is (await journal.cancel(FIRST, **SIGNED)).state


async def test_an_order_that_nobody_knows(journal: Journal) -> None:
    """Is told, and so is a word without a name."""
    await loaded(journal, 1)
    with pytest.raises(OrderUnknown):
        await journal.cancel("another", **SIGNED)
    with pytest.raises(ValueError, match="who"):
        await journal.cancel(FIRST, who=" ", why="ordered twice")


async def test_a_batch_that_is_cancelled_is_done(journal: Journal, clock: Clock) -> None:
    """Nothing of it is claimed, and it leaves for an archive in its time."""
    await loaded(journal)
    for number in range(3):
        await journal.cancel(order(number).request_id, **SIGNED)
    assert await journal.claim_chunk(BATCH, "worker") is None
    assert 0 == (await journal.chunks(BATCH)).open
    clock.pass_(1e6)
    old = [one.request_id async for page in journal.old_orders(older_than=1.0) for one in page]
    assert 3 == len(old)
    assert not (await journal.examine()).flaws
