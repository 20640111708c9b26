"""What every journal promises of evidence in doubt: whose it is, or whether it is true, and it moves nothing."""

import pytest
from journal.factories import BATCH, Clock, claimed, delivery, event, loaded, order, permitted, transaction_id

from payments_async.journal import Journal, Signal, State
from payments_async.journal.contract import Arrival, Doubt, Evidence, Outcome, Receipt


async def states(journal: Journal) -> list[State]:
    """Where each order stands."""
    return [entry.state async for entry in journal.entries(BATCH)]


async def test_a_transaction_that_two_orders_carry_is_evidence_of_neither(journal: Journal) -> None:
    """One answer named it clearly, another that could not be used named it too: without a request id nobody knows."""
    chunk = await claimed(journal, 2)
    answers = (Signal.ACCEPTED, Signal.UNKNOWN)
    for place, signal in enumerate(answers):
        permit = await permitted(journal, chunk, place)
        await journal.record(Outcome(permit=permit, signal=signal, transaction_id=transaction_id(0)))
    nameless = Evidence(
        signal=Signal.LOOKED_UP_FAILED, source="list", transaction_id=transaction_id(0), amount=order(0).amount
    )
    assert await journal.apply_evidence(nameless) is None
    assert [State.ACCEPTED, State.UNKNOWN] == await states(journal)


async def test_an_order_that_never_left_and_of_which_a_list_shows_another_amount(journal: Journal) -> None:
    """Another system may have paid under its id: as with one that is planned, a person looks before it is sent."""
    chunk = await claimed(journal, 1)
    permit = await permitted(journal, chunk)
    one = order(0)
    about = {"source": "list", "request_id": one.request_id, "amount": one.amount + 1}
    await journal.apply_evidence(Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, **about))
    result = await journal.record(Outcome(permit=permit, signal=Signal.NOT_SENT))
    assert (State.PARKED, [State.PARKED]) == (result.state, await states(journal))
    await journal.release_chunk(chunk)
    assert await journal.claim_chunk(BATCH, "worker") is None
    await journal.send_again(one.request_id, who="Ann", why="the other system has its own ids")
    again = await journal.claim_chunk(BATCH, "worker")
    assert again is not None
    assert one.request_id == again.orders[0].request_id


async def test_a_notification_that_was_disputed_says_nothing_of_an_order_that_comes_later(journal: Journal) -> None:
    """The service's record disagreed with it: the order is sent as if it had never come."""
    receipt = await journal.receive(delivery(), event(0, 1), owner="receiver", lease=60)
    await journal.finish(receipt.event_id, "disputed", error="the record is over another amount")
    await loaded(journal)
    assert [State.PLANNED] * 3 == await states(journal)
    assert [] == [entry async for entry in journal.conflicts(BATCH)]


@pytest.mark.parametrize("lease", [0.0, 60.0])
async def test_a_notification_that_is_only_reported_waits_for_nobody(
    journal: Journal, clock: Clock, lease: float
) -> None:
    """It came from an unknown sender: no receiver ever claims it, also none that could ask the service about it."""
    reported = Arrival(delivery=delivery(), event=event(0, 1), lease=lease, doubt=Doubt.REPORTED)
    await journal.receive_all([reported], owner="receiver")
    clock.pass_(61)
    assert [] == list(await journal.claim("receiver", lease=60, limit=10))
    assert 0 == (await journal.backlog()).pending


@pytest.mark.parametrize("doubt", list(Doubt))
async def test_a_doubted_notification_without_a_request_id_settles_nothing_when_its_transaction_gets_known(
    journal: Journal, doubt: Doubt
) -> None:
    """It came before the answer, and nobody has confirmed it: the answer that names the transaction changes nothing."""
    chunk = await claimed(journal, 1)
    permit = await permitted(journal, chunk)
    early = Arrival(delivery=delivery(), event=event(2, 0, request_id=None), lease=0, doubt=doubt)
    await journal.receive_all([early], owner="receiver")
    await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(0)))
    assert [State.ACCEPTED] == await states(journal)


@pytest.mark.parametrize("again", list(Doubt))
async def test_a_confirmed_notification_is_not_doubted_by_its_own_repeat(journal: Journal, again: Doubt) -> None:
    """The service sends it again, or a stranger does: it was borne out once, and stays so."""
    first = Arrival(delivery=delivery(), event=event(0, 0), lease=0, doubt=Doubt.UNCONFIRMED)
    (receipt,) = await journal.receive_all([first], owner="receiver")
    assert isinstance(receipt, Receipt)
    await journal.confirm(receipt.event_id)
    await journal.receive_all([first._replace(delivery=delivery(b"{ }"), doubt=again)], owner="receiver")
    assert [transaction_id(0)] == [found.transaction_id for found in await journal.final_events(order(0).request_id)]


async def test_a_notification_that_is_believed_more_than_before_is_still_in_doubt(journal: Journal) -> None:
    """An unknown sender told of it first. The service's address does now, and nobody has confirmed it yet."""
    chunk = await claimed(journal, 1)
    permit = await permitted(journal, chunk)
    await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(0)))
    stranger = Arrival(delivery=delivery(b"1"), event=event(0, 0), lease=0, doubt=Doubt.REPORTED)
    known = stranger._replace(delivery=delivery(b"2"), doubt=Doubt.UNCONFIRMED)
    for arrival in (stranger, known):
        await journal.receive_all([arrival], owner="receiver")
    assert [State.ACCEPTED] == await states(journal)


@pytest.mark.parametrize("doubt", [Doubt.REPORTED, Doubt.UNCONFIRMED])
async def test_what_is_only_doubtful_makes_no_conflict_of_what_is_true(journal: Journal, doubt: Doubt) -> None:
    """A forged failure came first. The genuine success contradicts nothing that anybody believes."""
    forged = Arrival(delivery=delivery(b"1"), event=event(2, 0), lease=0, doubt=doubt)
    genuine = Arrival(delivery=delivery(b"2"), event=event(0, 0), lease=0)
    await journal.receive_all([forged], owner="receiver")
    (receipt,) = await journal.receive_all([genuine], owner="receiver")
    assert isinstance(receipt, Receipt)
    assert (True, None) == (receipt.is_new, receipt.conflict)
