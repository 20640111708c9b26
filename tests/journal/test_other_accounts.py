"""Notifications of another account or environment that come to the same address: its request ids may be ours."""

import attrs
import pytest
from journal.factories import BATCH, IDENTITY, claimed, delivery, event, order, permitted, transaction_id

from payments_async.journal import Entry, Journal, Signal, State
from payments_async.journal._inbox import Arrival, Doubt
from payments_async.journal.contract import Chunk, Evidence, Outcome

OURS, ANOTHER = "6", "7"
FOREIGN = "it is about another account than those that orders of this journal are notified for"


async def told(
    journal: Journal, number: int, account: str | None, *, status_code: int = 0, transaction: str | None = None
) -> Entry:
    """A notification of an order comes; how the order stands then."""
    made = attrs.evolve(event(status_code, number, transaction=transaction), account_id=account)
    await journal.receive(delivery(f"{number} {account}".encode()), made, owner="receiver", lease=60)
    entry = await journal.entry(order(number).request_id)
    assert entry is not None
    return entry


async def sent(journal: Journal, *answers: Signal) -> None:
    """Orders are sent and answered so; an acceptance names its transaction."""
    await answered(journal, await claimed(journal, len(answers)), *answers)


async def answered(journal: Journal, chunk: Chunk, *answers: Signal) -> None:
    """The orders of a chunk are sent and answered so."""
    for place, signal in enumerate(answers):
        permit = await permitted(journal, chunk, place)
        transaction = transaction_id(place) if signal is Signal.ACCEPTED else None
        await journal.record(Outcome(permit=permit, signal=signal, transaction_id=transaction))


@pytest.mark.parametrize("status_code", [0, 1, 2])
async def test_an_unknown_order_is_not_settled_by_a_notification_of_another_account(
    journal: Journal, status_code: int
) -> None:
    """It has the same request id and amount. The order stays unknown and says why; our own account's settles it."""
    await sent(journal, Signal.ACCEPTED, Signal.UNKNOWN)
    await told(journal, 0, OURS)
    foreign = await told(journal, 1, ANOTHER, status_code=status_code, transaction="another")
    assert (State.UNKNOWN, FOREIGN) == (foreign.state, foreign.conflict)
    assert State.SUCCESSFUL == (await told(journal, 1, OURS)).state


async def test_a_notification_that_names_no_account_is_believed_as_before(journal: Journal) -> None:
    """Not every spelling of a notification has one."""
    await sent(journal, Signal.ACCEPTED, Signal.UNKNOWN)
    await told(journal, 0, OURS)
    assert State.SUCCESSFUL == (await told(journal, 1, None)).state


@pytest.mark.parametrize("status_code", [0, 1])
async def test_what_is_our_account_is_learned_from_accepted_orders_alone(journal: Journal, status_code: int) -> None:
    """What ended an unknown order may have been another account's, which has to keep nothing of ours out."""
    await sent(journal, Signal.UNKNOWN, Signal.UNKNOWN)
    await told(journal, 0, ANOTHER, status_code=status_code)
    await told(journal, 0, ANOTHER)
    ours = await told(journal, 1, OURS)
    assert (State.SUCCESSFUL, None) == (ours.state, ours.conflict)


async def test_an_accepted_order_is_settled_whatever_the_account(journal: Journal) -> None:
    """Its transaction is known from the service's own answer, which no other account has."""
    await sent(journal, Signal.ACCEPTED, Signal.ACCEPTED)
    await told(journal, 0, OURS)
    assert State.SUCCESSFUL == (await told(journal, 1, ANOTHER)).state


@pytest.mark.parametrize("spelled", ["0006", " 6", ""])
async def test_the_same_account_in_another_spelling_settles_an_unknown_order(journal: Journal, spelled: str) -> None:
    """One spelling of a notification writes the account as text, another as a number; an empty one names none."""
    await sent(journal, Signal.ACCEPTED, Signal.UNKNOWN)
    await told(journal, 0, OURS)
    ours = await told(journal, 1, spelled)
    assert (State.SUCCESSFUL, None) == (ours.state, ours.conflict)


async def test_orders_that_name_the_account_they_are_paid_from_are_notified_for_it(journal: Journal) -> None:
    """A client may have several accounts, and the first notification of one of them may be of an unknown order."""
    await journal.open_run(BATCH, IDENTITY)
    several = [attrs.evolve(order(number), account_number=name) for number, name in enumerate([OURS, ANOTHER])]
    await journal.load(BATCH, several, owner="loader")
    chunk = await journal.claim_chunk(BATCH, "worker")
    assert chunk is not None
    await answered(journal, chunk, Signal.ACCEPTED, Signal.UNKNOWN)
    await told(journal, 0, OURS)
    assert State.SUCCESSFUL == (await told(journal, 1, ANOTHER)).state


async def test_every_account_that_was_confirmed_lately_is_ours(journal: Journal) -> None:
    """Else what is notified for one of several accounts would keep out what is notified for the others."""
    await sent(journal, Signal.ACCEPTED, Signal.ACCEPTED, Signal.UNKNOWN)
    await told(journal, 0, OURS)
    await told(journal, 1, ANOTHER)
    assert State.SUCCESSFUL == (await told(journal, 2, OURS)).state


async def test_an_account_that_is_new_settles_an_order_once_its_answer_names_that_transaction(journal: Journal) -> None:
    """The notification came before the answer. Nobody sends it again, so it must not be lost; and the account counts.

    A person is told all the same that the account was not the usual one.
    """
    chunk = await claimed(journal, 3)
    await answered(journal, chunk, Signal.ACCEPTED)
    await told(journal, 0, OURS)
    permit = await permitted(journal, chunk, 1)
    assert State.SENDING == (await told(journal, 1, ANOTHER)).state
    accepted = Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(1))
    assert State.SUCCESSFUL == (await journal.record(accepted)).state
    entry = await journal.entry(order(1).request_id)
    assert entry is not None
    assert (State.SUCCESSFUL, FOREIGN) == (entry.state, entry.conflict)
    await permitted(journal, chunk, 2)
    assert State.SUCCESSFUL == (await told(journal, 2, ANOTHER)).state


@pytest.mark.parametrize(("listed", "state"), [(1, State.SUCCESSFUL), (5, State.ACCEPTED)])
async def test_an_account_that_is_new_settles_an_order_once_the_list_shows_that_transaction(
    journal: Journal, listed: int, state: State
) -> None:
    """The list shows no status. A transaction that it does not show stays another account's."""
    await sent(journal, Signal.ACCEPTED, Signal.UNKNOWN)
    await told(journal, 0, OURS)
    await told(journal, 1, ANOTHER)
    found = await journal.apply_evidence(
        Evidence(
            signal=Signal.LOOKED_UP_PROCESSING,
            source="list scan",
            request_id=order(1).request_id,
            transaction_id=transaction_id(listed),
            amount=order(1).amount,
        )
    )
    assert found is not None
    entry = await journal.entry(order(1).request_id)
    assert entry is not None
    assert (state, state) == (found.state, entry.state)


async def test_what_the_record_of_the_service_agrees_with_is_believed_whatever_the_account(journal: Journal) -> None:
    """With ``confirm=`` the transaction was looked up in our own account."""
    await sent(journal, Signal.ACCEPTED, Signal.UNKNOWN)
    await told(journal, 0, OURS)
    about = attrs.evolve(event(0, 1), account_id=ANOTHER)
    arrival = Arrival(delivery=delivery(b"1"), event=about, lease=60, doubt=Doubt.UNCONFIRMED)
    (receipt,) = await journal.receive_all((arrival,), owner="receiver")
    assert not isinstance(receipt, Exception)
    await journal.confirm(receipt.event_id)
    entry = await journal.entry(order(1).request_id)
    assert entry is not None
    assert (State.SUCCESSFUL, None) == (entry.state, entry.conflict)
