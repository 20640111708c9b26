"""Notifications of another account or environment that come to the same address: its request ids may be ours."""

import attrs
import pytest
from journal.factories import claimed, delivery, event, order, permitted, transaction_id

from payments_async.journal import Entry, Journal, Signal, State
from payments_async.journal.contract import Outcome

OURS, ANOTHER = "6", "7"
FOREIGN = "it is about account 7, and orders of this journal are notified for account 6"


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
    chunk = await claimed(journal, len(answers))
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
