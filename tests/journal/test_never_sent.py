"""An order that was never sent and is told of all the same: it is not sent, not settled, and a person decides."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from journal.factories import (
    BATCH,
    Clock,
    claimed,
    delivery,
    event,
    final_event,
    in_outbox,
    loaded,
    order,
    permitted,
    transaction_id,
)

from payments_async._wire.events import TransactionEvent
from payments_async.journal import Journal, NotParked, Signal, State
from payments_async.journal.contract import Evidence, Outcome, Permit, Receipt

REQUEST_ID = order(0).request_id


async def notified(journal: Journal, about: TransactionEvent, body: bytes = b"{}", *, at: float = 1e6) -> Receipt:
    """A notification comes."""
    return await journal.receive(delivery(body, at=at), about, owner="receiver", lease=0)


async def written_off(journal: Journal) -> None:
    """Ann calls it false."""
    await journal.send_again(REQUEST_ID, who="Ann", why="the service has no such transaction")


def listed(signal: Signal = Signal.LOOKED_UP_PROCESSING, **changes: Any) -> Evidence:
    """A row of the list about the order."""
    fields: dict[str, Any] = {
        "signal": signal, "source": "list", "request_id": REQUEST_ID, "transaction_id": transaction_id(0),
        "amount": -order(0).amount, "currency": "UGX",
    }  # fmt: skip
    return Evidence(**fields | changes)


@pytest.mark.parametrize("status_code", [0, 1, 2, 9])
async def test_a_notification_of_an_order_never_sent_parks_it(journal: Journal, status_code: int) -> None:
    """It is neither sent nor taken for settled, and further ones do not settle it either."""
    await loaded(journal, 1)
    receipt = await notified(journal, event(status_code, 0))
    await notified(journal, event((status_code + 1) % 3, 0), b"another")
    entry = await journal.entry(REQUEST_ID)
    assert entry is not None
    assert (State.PARKED, receipt.conflict) == (entry.state, entry.conflict)
    assert "never sent from here" in str(entry.conflict)
    assert await journal.claim_chunk(BATCH, "worker") is None


async def test_an_order_proved_not_to_have_left_is_parked_by_a_notification(journal: Journal) -> None:
    """As one that no attempt was made for."""
    chunk = await claimed(journal, 1)
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.NOT_SENT))
    await notified(journal, event(0, 0))
    await notified(journal, event(1, 0), b"another")
    assert 1 == (await journal.progress(BATCH)).counts["parked"]


async def test_an_order_of_which_one_attempt_of_two_is_proved_not_to_have_left(journal: Journal) -> None:
    """The other attempt may have arrived: evidence is believed, as it is of any order that was sent."""
    chunk = await claimed(journal, 1)
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.NOT_SENT))
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.UNKNOWN))
    await journal.park(REQUEST_ID, detail="two list scans")
    receipt = await notified(journal, event(0, 0))
    entry = await journal.entry(REQUEST_ID)
    assert entry is not None
    assert (State.SUCCESSFUL, None, None) == (entry.state, entry.conflict, receipt.conflict)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_permit_says_what_was_written_off_since_the_claim(journal: Journal, count: int) -> None:
    """The claim did not know it; a refusal of this attempt would prove nothing of what was told of before."""
    chunk = await claimed(journal, count)
    await notified(journal, event(0, 0))
    await written_off(journal)
    answers = await asyncio.gather(*(journal.permit(chunk, held) for held in chunk.orders))
    permits = [answer for answer in answers if isinstance(answer, Permit)]
    assert [False] * count == [held.sent_before for held in chunk.orders]
    assert [True, *[False] * (count - 1)] == [permit.sent_before for permit in permits]
    await journal.record(Outcome(permit=permits[0], signal=Signal.REJECTED))
    entry = await journal.entry(REQUEST_ID)
    assert entry is not None
    assert State.UNKNOWN is entry.state


@pytest.mark.parametrize(
    "change", [{"amount": Decimal(7)}, {"currency": "KES"}, {"amount": None, "signal": Signal.LOOKED_UP_FAILED}]
)
async def test_a_row_that_disagrees_with_an_order_never_sent_parks_it(journal: Journal, change: dict[str, Any]) -> None:
    """Somebody may have sent it, so it must not stay planned."""
    await loaded(journal, 1)
    finding = await journal.apply_evidence(listed(**change))
    assert finding is not None
    assert State.PARKED is finding.state
    assert finding.conflict is not None


async def test_a_row_that_agrees_settles_an_order_never_sent_although_it_is_parked(journal: Journal) -> None:
    """The service's own list says that it has it; that is shown as a conflict."""
    await loaded(journal, 1)
    await notified(journal, event(0, 0))
    finding = await journal.apply_evidence(listed(Signal.LOOKED_UP_SUCCESSFUL))
    assert finding is not None
    assert State.SUCCESSFUL is finding.state
    assert finding.conflict is not None


async def test_a_forged_notification_can_be_called_false_and_the_order_is_paid(journal: Journal) -> None:
    """Neither it, nor a repeat, nor what reads it again moves the order any more; the handlers never hear of it."""
    await loaded(journal, 1)
    receipt = await notified(journal, event(0, 0, transaction=transaction_id(666)))
    await written_off(journal)
    entry = await journal.entry(REQUEST_ID)
    assert entry is not None
    assert (State.PLANNED, None, True) == (entry.state, entry.conflict, entry.sent_before)
    assert () == tuple(await journal.claim("receiver", lease=90, limit=10))
    again = await notified(journal, event(0, 0, transaction=transaction_id(666)), b"in other words")
    assert (receipt.event_id, False) == (again.event_id, again.is_new)
    assert await final_event(journal, REQUEST_ID) is None
    finding = await journal.apply_evidence(
        listed(Signal.NOTIFIED_SUCCESSFUL, source="stored notification", amount=order(0).amount,
               transaction_id=transaction_id(666))
    )  # fmt: skip
    assert finding is not None
    assert (State.PLANNED, None) == (finding.state, finding.conflict)
    chunk = await journal.claim_chunk(BATCH, "worker")
    assert chunk is not None
    permit = await permitted(journal, chunk)
    await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(0)))
    assert (await notified(journal, event(0, 0), b"the real one")).conflict is None
    assert 1 == (await journal.progress(BATCH)).counts["successful"]


async def test_what_is_new_after_a_write_off_counts(journal: Journal) -> None:
    """Another notification parks it again: it was still never sent from here."""
    await loaded(journal, 1)
    await notified(journal, event(0, 0, transaction=transaction_id(666)))
    await written_off(journal)
    await notified(journal, event(0, 0), b"another")
    assert 1 == (await journal.progress(BATCH)).counts["parked"]


async def test_a_row_that_was_called_false_stops_the_order_no_more(journal: Journal) -> None:
    """Every list scan shows it again; one with other news is looked at."""
    await loaded(journal, 1)
    await journal.apply_evidence(listed(amount=Decimal(7)))
    await written_off(journal)
    for _ in range(3):
        finding = await journal.apply_evidence(listed(amount=Decimal(7)))
        assert finding is not None
        assert (State.PLANNED, None) == (finding.state, finding.conflict)
    finding = await journal.apply_evidence(listed(Signal.LOOKED_UP_SUCCESSFUL, amount=Decimal(7)))
    assert finding is not None
    assert State.PARKED is finding.state


async def test_two_clean_sweeps_park_an_order_again_that_was_written_off(journal: Journal) -> None:
    """Not found is not evidence that a person could have called false."""
    chunk = await claimed(journal, 1)
    for _ in range(2):
        permit = await permitted(journal, chunk)
        await journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN))
        assert State.PARKED is (await journal.park(REQUEST_ID, detail="two list scans")).state
        await written_off(journal)


async def test_a_write_off_is_refused_when_more_was_learned_since(journal: Journal, clock: Clock) -> None:
    """The person did not know of it."""
    await loaded(journal, 1)
    await notified(journal, event(1, 0))
    shown = await journal.entry(REQUEST_ID)
    assert shown is not None
    clock.pass_(1)
    await notified(journal, event(0, 0), b"success")
    with pytest.raises(NotParked, match="look again"):
        await journal.send_again(REQUEST_ID, who="Ann", why="forged", seen=shown.updated_at)
    now = await journal.entry(REQUEST_ID)
    assert now is not None
    await journal.send_again(REQUEST_ID, who="Ann", why="both forged", seen=now.updated_at)
    assert 1 == (await journal.progress(BATCH)).counts["planned"]


async def test_the_decision_is_kept_with_what_it_was_about(journal: Journal) -> None:
    """Who, why, and which notification: for whoever explains the order and for its report."""
    await loaded(journal, 1)
    await notified(journal, event(0, 0))
    await written_off(journal)
    (standing,) = [standing async for page in journal.standings(BATCH) for standing in page]
    (decision,) = standing.persons
    assert ("Ann", "resolution", Signal.WRITTEN_OFF) == (decision.by, decision.what, decision.signal)
    assert "no such transaction" in str(decision.detail)
    assert "a notification from 192.0.2.7 says that it was paid" in str(decision.detail)
    assert decision in await journal.history(REQUEST_ID)


async def test_acknowledging_does_not_make_an_order_paid(journal: Journal) -> None:
    """It stays parked: somebody has seen the contradiction, and nobody has said that it was paid."""
    await loaded(journal, 1)
    await notified(journal, event(0, 0))
    entry = await journal.acknowledge(REQUEST_ID, who="Ann", why="looked into")
    assert (State.PARKED, None) == (entry.state, entry.conflict)
    await written_off(journal)
    assert 1 == (await journal.progress(BATCH)).counts["planned"]


async def test_what_came_before_the_batch_was_loaded_parks_its_order(journal: Journal) -> None:
    """And can be called false as well."""
    await notified(journal, event(0, 0))
    await loaded(journal, 1)
    assert 1 == (await journal.progress(BATCH)).counts["parked"]
    await written_off(journal)
    assert 1 == (await journal.progress(BATCH)).counts["planned"]


async def test_an_order_that_was_held_back_and_is_sent_again(journal: Journal) -> None:
    """A person calls what was told of it false: it is tried once more, and is not held back for ever, unseen."""
    chunk = await in_outbox(journal, 1)
    permit = await permitted(journal, chunk)
    await journal.record(Outcome(permit=permit, signal=Signal.NOT_SENT, message="cannot be sent", holds_back=True))
    await journal.release_chunk(chunk)
    assert await journal.claim_chunk("shop", "worker") is None
    told = event(0, 0, request_id=permit.request_id)
    await notified(journal, told)
    await journal.send_again(permit.request_id, who="Ann", why="a forgery")
    again = await journal.claim_chunk("shop", "worker")
    assert again is not None
    assert [permit.request_id] == [one.request_id for one in again.orders]
