"""What every journal promises of those who hold a chunk no longer: they can do nothing more to what others hold."""

import asyncio

import attrs
import pytest
from journal.factories import BATCH, Clock, claimed, delivery, event, loaded, order, permitted, transaction_id

from payments_async.journal import Journal, LeaseLost, Signal, State
from payments_async.journal.contract import Evidence, NotPermitted, Outcome, Permit


async def state_of(journal: Journal, number: int = 0) -> State:
    """Where the order of that number stands."""
    entry = await journal.entry(order(number).request_id)
    assert entry is not None
    return entry.state


async def test_a_cancelled_caller_takes_back_no_permit_of_somebody_else(journal: Journal, clock: Clock) -> None:
    """It was taken for dead, and asks and is cancelled while the next holder is sending the order."""
    first = await claimed(journal)
    clock.pass_(31)
    second = await journal.claim_chunk(BATCH, "second")
    assert second is not None
    await permitted(journal, second)
    asking = asyncio.ensure_future(journal.permit(first, first.orders[0]))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert isinstance(await journal.permit(second, second.orders[0]), NotPermitted)  # written after what was cancelled
    assert State.SENDING is await state_of(journal)


async def test_a_permit_is_for_an_order_of_the_chunk(journal: Journal) -> None:
    """Whoever holds one chunk gets nothing of another, asked for alone or beside others."""
    await loaded(journal, 600)
    mine, theirs = [await journal.claim_chunk(BATCH, name) for name in ("me", "them")]
    assert mine is not None
    assert theirs is not None
    alone = await journal.permit(mine, theirs.orders[0])
    beside = await asyncio.gather(journal.permit(mine, mine.orders[0]), journal.permit(mine, theirs.orders[1]))
    assert [NotPermitted, Permit, NotPermitted] == [type(answer) for answer in (alone, *beside)]


async def test_only_who_claimed_a_chunk_holds_it(journal: Journal) -> None:
    """By name and token: another name with the right token can send nothing, and prolong nothing."""
    chunk = await claimed(journal)
    other = attrs.evolve(chunk, owner="somebody else")
    assert isinstance(await journal.permit(other, chunk.orders[0]), NotPermitted)
    with pytest.raises(LeaseLost):
        await journal.renew_chunk(other)
    assert State.PLANNED is await state_of(journal)


async def test_an_earlier_claim_of_the_same_worker_is_over(journal: Journal, clock: Clock) -> None:
    """Its name is the same, its token is not: nothing is prolonged, given back or made unknown by it."""
    first = await claimed(journal)
    clock.pass_(31)
    second = await journal.claim_chunk(BATCH, "worker")
    assert second is not None
    await permitted(journal, second)
    with pytest.raises(LeaseLost):
        await journal.renew_chunk(first)
    await journal.release_chunk(first)
    assert State.SENDING is await state_of(journal)
    await permitted(journal, second, 1)


@pytest.mark.parametrize("is_parked", [False, True])
async def test_what_may_have_been_carried_out_gets_no_further_permit(journal: Journal, is_parked: bool) -> None:
    """Its holder asks once more, and its lease is good."""
    chunk = await claimed(journal, 1)
    first = await permitted(journal, chunk)
    await journal.record(Outcome(permit=first, signal=Signal.UNKNOWN))
    if is_parked:
        await journal.park(first.request_id, detail="two list scans")
    state = State.PARKED if is_parked else State.UNKNOWN
    refused = await journal.permit(chunk, chunk.orders[0])
    assert NotPermitted(id=first.id, state=state, lease_lost=False) == refused


async def test_what_became_known_after_the_claim_is_not_sent(journal: Journal) -> None:
    """The order was planned when it was claimed; a list has shown it since. Its holder gets no permit."""
    chunk = await claimed(journal)
    about = order(0)
    told = Evidence(
        signal=Signal.LOOKED_UP_SUCCESSFUL,
        source="list",
        request_id=about.request_id,
        transaction_id=transaction_id(0),
        amount=about.amount,
    )
    await journal.apply_evidence(told)
    after = await state_of(journal)
    assert State.PLANNED is not after
    answers = await asyncio.gather(*(journal.permit(chunk, held) for held in chunk.orders))
    assert [NotPermitted, Permit, Permit] == [type(answer) for answer in answers]
    assert after is await state_of(journal)


@pytest.mark.parametrize("signal", [Signal.REJECTED, Signal.UNKNOWN, Signal.NOT_SENT])
async def test_a_late_answer_beside_a_permit_says_nothing_of_the_attempt_after_it(
    journal: Journal, signal: Signal
) -> None:
    """Written down in the commit of the next permit, an answer is still that of its own attempt."""
    chunk = await claimed(journal)
    first = await permitted(journal, chunk)
    await journal.record(Outcome(permit=first, signal=Signal.NOT_SENT))
    await permitted(journal, chunk)
    await permitted(journal, chunk, 1, after=Outcome(permit=first, signal=signal))
    assert State.SENDING is await state_of(journal)


@pytest.mark.parametrize("beside", [False, True])
async def test_a_refusal_of_what_was_written_off_proves_nothing(journal: Journal, beside: bool) -> None:
    """The order before it may have arrived: a second one that is refused leaves it open."""
    chunk = await claimed(journal)
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.UNKNOWN))
    await journal.park(order(0).request_id, detail="two list scans")
    await journal.send_again(order(0).request_id, who="Ann", why="the bank never saw it")
    again = await permitted(journal, chunk)
    assert again.sent_before
    refused = Outcome(permit=again, signal=Signal.REJECTED)
    if beside:
        await permitted(journal, chunk, 1, after=refused)
    else:
        await journal.record(refused)
    assert State.UNKNOWN is await state_of(journal)


@pytest.mark.parametrize("beside", [False, True])
async def test_a_notification_that_named_only_the_transaction_waits_for_its_answer(
    journal: Journal, beside: bool
) -> None:
    """It came before the answer said whose transaction that is; then it counts, however the answer is written down."""
    chunk = await claimed(journal)
    permit = await permitted(journal, chunk)
    await journal.receive(delivery(), event(0, 0, request_id=None), owner="receiver", lease=0)
    answer = Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(0))
    if beside:
        await permitted(journal, chunk, 1, after=answer)
    else:
        await journal.record(answer)
    assert State.SUCCESSFUL is await state_of(journal)
