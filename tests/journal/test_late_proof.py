"""What every journal promises of a proof that comes late: it counts from the last attempt's holder, and alone."""

import asyncio
from collections.abc import Awaitable, Callable

import attrs
import pytest
from journal.conftest import Home
from journal.factories import BATCH, Clock, claimed, delivery, event, in_outbox, order, permitted, transaction_id

from payments_async.journal import Journal, Signal, State
from payments_async.journal._inbox import Arrival, Doubt
from payments_async.journal.contract import Chunk, Evidence, Outcome, Permit, TransitionResult

Meanwhile = Callable[[Journal, Permit], Awaitable[object]]
UNSENT = "no byte left"


async def state_of(journal: Journal, number: int = 0) -> State:
    """Where the order of that number stands."""
    entry = await journal.entry(order(number).request_id)
    assert entry is not None
    return entry.state


async def proves(journal: Journal, permit: Permit, **changes: object) -> TransitionResult:
    """What becomes of the order when the holder of this permit says that nothing left."""
    return await journal.record(Outcome(permit=attrs.evolve(permit, **changes), signal=Signal.NOT_SENT, message=UNSENT))


async def taken_over(journal: Journal, clock: Clock, owner: str = "second") -> Chunk:
    """The lease has run out, and somebody else holds the chunk."""
    clock.pass_(31)
    chunk = await journal.claim_chunk(BATCH, owner)
    assert chunk is not None
    return chunk


@pytest.mark.parametrize("is_parked", [False, True])
async def test_the_last_holder_is_believed_after_a_takeover(journal: Journal, clock: Clock, is_parked: bool) -> None:
    """It stalled past its lease, and nothing had left: the order is sent by the next holder, and its story says so."""
    permit = await permitted(journal, await claimed(journal))
    second = await taken_over(journal, clock)
    if is_parked:
        await journal.park(permit.request_id, detail="two list scans")
    clock.pass_(1)
    finding = await proves(journal, permit)
    assert (State.PARKED if is_parked else State.UNKNOWN, State.PLANNED) == (finding.before, finding.state)
    await journal.release_chunk(second)
    third = await taken_over(journal, clock, "third")
    assert permit.request_id in [held.request_id for held in third.orders]
    again = await permitted(journal, third)
    assert (2, False) == (again.attempt, again.sent_before)
    await journal.record(Outcome(permit=again, signal=Signal.ACCEPTED, transaction_id=transaction_id(0)))
    story = [one.what for one in await journal.history(permit.request_id)]
    swept = ["evidence"] if is_parked else []
    assert ["planned", "permit", "takeover", *swept, "answer", "permit", "answer"] == story
    await journal.check()


async def test_a_chunk_that_was_done_is_open_again(journal: Journal, clock: Clock) -> None:
    """Nothing was left in it, so nobody would have looked there any more."""
    permit = await permitted(journal, await claimed(journal, 1))
    clock.pass_(31)
    assert 1 == await journal.expire_chunks()
    assert 1 == (await journal.chunks(BATCH)).done
    await proves(journal, permit)
    assert 1 == (await journal.chunks(BATCH)).open
    assert (await taken_over(journal, clock)).orders
    await journal.check()


async def test_a_permit_that_reached_nobody_is_withdrawn_late(journal: Journal) -> None:
    """Its caller was cancelled while it was granted, and the chunk was given back in the same breath."""
    chunk = await claimed(journal, 2)
    before = Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED, transaction_id=transaction_id(0))
    asking = asyncio.ensure_future(journal.permit(chunk, chunk.orders[1], after=before))
    await asyncio.sleep(0)
    given_back = asyncio.ensure_future(journal.release_chunk(chunk))
    await asyncio.sleep(0)
    asking.cancel()
    await given_back
    with pytest.raises(asyncio.CancelledError):
        await asking
    await journal.expire_chunks()  # after what was queued before it
    assert State.PLANNED is await state_of(journal, 1)


# It is not believed


async def _said_unknown(journal: Journal, permit: Permit) -> None:
    await journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN, message="no answer in time"))


async def _named_a_transaction(journal: Journal, permit: Permit) -> None:
    unusable = Outcome(permit=permit, signal=Signal.UNKNOWN, transaction_id=transaction_id(0), message="another id")
    await journal.record(unusable)


async def _is_notified(journal: Journal, permit: Permit) -> None:
    """By a sender nobody has confirmed: no evidence, but it speaks of a transaction."""
    fact = attrs.evolve(event(0, 0), request_id=permit.request_id, amount=permit.amount)
    arrival = Arrival(delivery=delivery(), event=fact, lease=30.0, doubt=Doubt.UNCONFIRMED)
    await journal.receive_all((arrival,), owner="r")


async def _disagrees(journal: Journal, permit: Permit) -> None:
    """A list shows it with another amount."""
    seen = Evidence(
        signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", request_id=permit.request_id, amount=permit.amount + 1
    )
    await journal.apply_evidence(seen)


@pytest.mark.parametrize("meanwhile", [_said_unknown, _named_a_transaction, _is_notified, _disagrees])
@pytest.mark.parametrize("comes_first", [False, True])
async def test_nothing_else_may_speak_of_it(
    journal: Journal, clock: Clock, meanwhile: Meanwhile, comes_first: bool
) -> None:
    """Before the takeover or after it: then a person decides, and not the holder."""
    permit = await permitted(journal, await claimed(journal, 1))
    if comes_first:
        await meanwhile(journal, permit)
    clock.pass_(31)
    await journal.expire_chunks()
    if not comes_first:
        await meanwhile(journal, permit)
    assert State.UNKNOWN is await state_of(journal)
    finding = await proves(journal, permit)
    assert State.UNKNOWN is finding.state is await state_of(journal)


@pytest.mark.parametrize("changes", [{"attempt": 2}, {"token": 99}, {"at": 5.0}])
async def test_the_permit_is_compared_in_all_it_says(
    journal: Journal, clock: Clock, changes: dict[str, object]
) -> None:
    """A journal that was put back grants the same number again: its token and its moment tell them apart."""
    permit = await permitted(journal, await claimed(journal, 1))
    assert State.SENDING is (await proves(journal, permit, **changes)).state
    clock.pass_(31)
    await journal.expire_chunks()
    assert State.UNKNOWN is (await proves(journal, permit, **changes)).state
    assert State.PLANNED is (await proves(journal, permit)).state


async def test_an_earlier_holder_proves_nothing_of_the_last_attempt(journal: Journal, clock: Clock) -> None:
    """Its own attempt was proved before; the one after it may have left."""
    first = await permitted(journal, await claimed(journal, 1))
    clock.pass_(31)
    await journal.expire_chunks()
    await proves(journal, first)
    second = await permitted(journal, await taken_over(journal, clock))
    clock.pass_(31)
    await journal.expire_chunks()
    assert State.UNKNOWN is (await proves(journal, first)).state
    assert State.UNKNOWN is await state_of(journal)
    assert State.PLANNED is (await proves(journal, second)).state


async def test_a_proof_before_counts_for_no_attempt_after(journal: Journal, clock: Clock) -> None:
    """The second attempt had no usable answer, as its holder said: that the first was taken over is over."""
    first = await permitted(journal, await claimed(journal, 1))
    clock.pass_(31)
    await journal.expire_chunks()
    await proves(journal, first)
    second = await permitted(journal, await taken_over(journal, clock))
    await journal.record(Outcome(permit=second, signal=Signal.UNKNOWN))
    assert State.UNKNOWN is (await proves(journal, second)).state


async def test_an_order_that_a_person_had_sent_again_stays_unknown(journal: Journal, clock: Clock) -> None:
    """Its first attempt is open: the proof is about the second alone."""
    first = await permitted(journal, await claimed(journal, 1))
    clock.pass_(31)
    await journal.expire_chunks()
    await journal.park(first.request_id, detail="two list scans")
    await journal.send_again(first.request_id, who="Ann", why="never arrived")
    second = await permitted(journal, await taken_over(journal, clock))
    clock.pass_(31)
    await journal.expire_chunks()
    assert State.UNKNOWN is (await proves(journal, second)).state
    await journal.park(first.request_id, detail="two list scans")
    assert State.PARKED is (await proves(journal, first)).state
    assert State.PARKED is (await proves(journal, second)).state


async def test_a_journal_that_was_copied_believes_no_proof_of_before(home: Home, clock: Clock) -> None:
    """It may have forgotten a further attempt. A lift of the quarantine changes nothing about that."""
    async with home.opens(clock=clock) as journal:
        permit = await permitted(journal, await claimed(journal, 1))
        late = await permitted(journal, await in_outbox(journal, 1))
        clock.pass_(31)
        await journal.expire_chunks(BATCH)
    async with home.copied()(clock=clock) as copy:
        assert State.UNKNOWN is (await proves(copy, permit)).state
        assert State.UNKNOWN is (await proves(copy, late)).state


@pytest.mark.parametrize("signal", [Signal.ACCEPTED, Signal.REJECTED])
async def test_what_is_settled_stays_settled(journal: Journal, clock: Clock, signal: Signal) -> None:
    """A holder that contradicts what is known moves nothing."""
    permit = await permitted(journal, await claimed(journal, 1))
    clock.pass_(31)
    await journal.expire_chunks()
    told = transaction_id(0) if signal is Signal.ACCEPTED else None
    settled = await journal.record(Outcome(permit=permit, signal=signal, transaction_id=told))
    assert settled.state is (await proves(journal, permit)).state
