"""What a session knows of its orders: none is sent twice in it, whoever asks and however often."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from session.conftest import Open
from session.wires import Request, Wire, accept_everything, accepted, collection, payout, reply, turns, until

from payments_async import (
    Acceptance,
    AirtimeLine,
    InvalidOrder,
    Limits,
    NotSent,
    OutcomeUnknown,
    PaymentsSession,
    Rejected,
    RetryPolicy,
    Transaction,
)
from payments_async._session.session import executor_of
from payments_async.sandbox import Sandbox


class Held:
    """An answer that waits until it is let go."""

    def __init__(self, answer: bytes | None = None) -> None:
        self.release = asyncio.Event()
        self.answer = answer

    async def __call__(self, request: Request) -> bytes | None:
        await self.release.wait()
        return self.answer or await accept_everything(request)


async def cut(_: Request) -> bytes | None:
    """Hang up."""
    return None


async def test_the_same_order_twice(payments: PaymentsSession, wire: Wire) -> None:
    """It is sent once; who repeats it gets its acceptance."""
    first = await payments.payouts.send(payout())
    assert (first, first) == (await payments.payouts.send(payout()), await payments.payouts.send(payout()))
    assert first == await payments.payouts.send(payout(), sent_before=True)
    assert 1 == len(wire.orders)


async def test_a_further_try_that_never_left(wire: Wire, opened: Open) -> None:
    """It says nothing of the try before, whose outcome is unknown: who waited for it is told so."""
    payments = await opened(wire, retry=RetryPolicy(attempts=1))
    wire.answer = cut
    with pytest.raises(OutcomeUnknown):
        await payments.payouts.send(payout())
    held = Held(reply({"message": "later"}, status=429))
    wire.answer = held
    further = asyncio.create_task(payments.payouts.send(payout(), sent_before=True))
    await until(lambda: len(wire.orders) == 2)
    waits = asyncio.create_task(payments.payouts.send(payout()))
    await turns()
    held.release.set()
    with pytest.raises(NotSent):
        await further
    with pytest.raises(OutcomeUnknown, match="not sent again"):
        await waits
    assert 2 == len(wire.orders)


async def test_the_same_collection_twice(payments: PaymentsSession, wire: Wire) -> None:
    """It is requested once."""
    first = await payments.collections.request(collection())
    assert (first, 1) == (await payments.collections.request(collection()), len(wire.orders))


async def test_repeated_ids_among_many_orders(opened: Open, sandbox: Sandbox) -> None:
    """A hundred orders of which ten are said twice are ninety payments."""
    payments = await opened(sandbox)
    orders = [payout(f"r-{number % 90}") for number in range(100)]
    outcomes = [outcome async for _, outcome in payments.payouts.send_many(orders, concurrency=7)]
    assert [Acceptance] * 100 == [type(outcome) for outcome in outcomes]
    assert (90, []) == (len(sandbox.ledger), sandbox.duplicates())


async def test_two_different_orders_under_one_id(payments: PaymentsSession, wire: Wire) -> None:
    """The second is refused before anything is sent, by an error that carries the first one's transaction."""
    await payments.payouts.send(payout())
    others = [payout(amount=1501), payout(destination=AirtimeLine("+256772000017")), payout(message="again")]
    for order in others:
        with pytest.raises(InvalidOrder, match="another order under the same request id") as caught:
            await payments.payouts.send(order)
        assert isinstance(caught.value, ValueError)
        assert ("r-1", "t-r-1") == (caught.value.request_id, caught.value.transaction_id)
    with pytest.raises(InvalidOrder):
        await payments.collections.request(collection())
    assert 1 == len(wire.orders)


async def test_another_order_while_the_first_is_unknown(payments: PaymentsSession, wire: Wire) -> None:
    """It is refused as well, as it is while the first is under way."""
    wire.answer = held = Held()
    first = asyncio.ensure_future(payments.payouts.send(payout()))
    await until(lambda: wire.orders)
    with pytest.raises(InvalidOrder):
        await payments.payouts.send(payout(amount=1501))
    held.release.set()
    await first
    wire.answer = cut
    with pytest.raises(OutcomeUnknown):
        await payments.payouts.send(payout("r-2"))
    with pytest.raises(InvalidOrder):
        await payments.payouts.send(payout("r-2", amount=1501))
    with pytest.raises(OutcomeUnknown, match="not sent again"):
        await payments.payouts.send(payout("r-2"))
    assert 2 == len(wire.orders)


@pytest.mark.parametrize("answer", [None, accepted(), reply({"code": 7, "message": "no"}, 400), reply({}, 503)])
async def test_an_order_sent_by_many_at_once(payments: PaymentsSession, wire: Wire, answer: bytes | None) -> None:
    """They are one exchange, and all get its outcome, each an error of its own."""
    wire.answer = held = Held(answer or b"half")
    calls = [asyncio.ensure_future(payments.payouts.send(payout())) for _ in range(5)]
    await until(lambda: wire.orders)
    await turns()
    held.release.set()
    outcomes: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    assert (1, 1) == (len(wire.orders), len({type(outcome) for outcome in outcomes}))
    if not isinstance(outcomes[0], Acceptance):
        assert (5, {"r-1"}) == (len({id(one) for one in outcomes}), {one.request_id for one in outcomes})
    assert bool(payments.unsettled) == isinstance(outcomes[0], OutcomeUnknown)


async def test_one_of_those_who_wait_gives_up(payments: PaymentsSession, wire: Wire) -> None:
    """The exchange goes on for the others."""
    wire.answer = held = Held()
    first, second, third = (asyncio.ensure_future(payments.payouts.send(payout())) for _ in range(3))
    await until(lambda: wire.orders)
    second.cancel()
    held.release.set()
    assert "t-r-1" == (await first).transaction_id == (await third).transaction_id
    assert (True, 1) == (second.cancelled(), len(wire.orders))


async def test_the_one_who_sends_gives_up(payments: PaymentsSession, wire: Wire) -> None:
    """The order may have left: it is unknown to all who wait, and sent by nobody."""
    wire.answer = Held()
    first, second = (asyncio.ensure_future(payments.payouts.send(payout())) for _ in range(2))
    await until(lambda: wire.orders)
    first.cancel()
    with pytest.raises(OutcomeUnknown, match="broken off"):
        await second
    assert ({"r-1"}, 1) == (payments.unsettled, len(wire.orders))


async def test_the_one_who_sends_gives_up_before_anything_left(opened: Open, wire: Wire) -> None:
    """One of those who wait sends it then, once."""
    payments = await opened(wire, limits=Limits(concurrency=1))
    wire.answer = held = Held()
    other = asyncio.ensure_future(payments.payouts.send(payout("r-0")))
    await until(lambda: wire.orders)
    calls = [asyncio.ensure_future(payments.payouts.send(payout())) for _ in range(4)]
    await turns()
    calls[0].cancel()
    held.release.set()
    outcomes = await asyncio.gather(other, *calls[1:])
    assert (["t-r-0", *["t-r-1"] * 3], 2) == ([one.transaction_id for one in outcomes], len(wire.orders))


@pytest.mark.parametrize("answer", [reply({"code": 7, "message": "no"}, 400), reply({}, 429)])
async def test_what_was_not_taken_may_be_sent_again(opened: Open, wire: Wire, answer: bytes) -> None:
    """A refusal, or a proof that nothing was read, is not held against it."""
    payments = await opened(wire, retry=RetryPolicy(attempts=1))

    async def refuse(_: Request) -> bytes | None:
        return answer

    wire.answer = refuse
    with pytest.raises((Rejected, NotSent)):
        await payments.payouts.send(payout())
    wire.answer = accept_everything
    assert "t-r-1" == (await payments.payouts.send(payout())).transaction_id


async def test_an_accepted_order_is_never_told_as_refused(opened: Open, opened_sandbox: Any) -> None:
    """A service that refuses what it has already is not even asked."""
    sandbox = await opened_sandbox({"repeated_request_id": "refuse_400"})
    payments = await opened(sandbox)
    first = await payments.payouts.send(payout())
    assert first == await payments.payouts.send(payout())


async def test_only_the_latest_are_remembered(opened: Open, wire: Wire) -> None:
    """Memory is bounded: what came before so many others is forgotten."""
    payments = await opened(wire, limits=Limits(remembered=3))
    for number in (1, 2, 3, 4, 2, 3, 4, 1):
        await payments.payouts.send(payout(f"r-{number}"))
    assert ["r-1", "r-2", "r-3", "r-4", "r-1"] == [request.request_id for request in wire.orders]


async def test_what_was_found_is_not_sent_again(opened: Open, sandbox: Sandbox) -> None:
    """An order whose answer was lost and that the list shows is as good as accepted."""
    first, second = await opened(sandbox), await opened(sandbox)
    await first.payouts.send(payout())
    found = await second.transactions.find("r-1")
    assert found is not None
    assert found.transaction_id == (await second.payouts.send(payout())).transaction_id
    assert 1 == len(sandbox.ledger)


async def test_what_was_found_of_another_amount_is_another_order(opened: Open, sandbox: Sandbox) -> None:
    """It is not told as the acceptance of ours, which nobody has sent; ours is not sent beside it either."""
    other, payments = await opened(sandbox), await opened(sandbox)
    await other.payouts.send(payout(amount=999))
    assert await payments.transactions.find("r-1") is not None
    with pytest.raises(InvalidOrder, match="the service shows another order"):
        await payments.payouts.send(payout())
    assert "r-1" == (await payments.payouts.send(payout(amount=999))).request_id
    assert 1 == len(sandbox.ledger)


async def test_what_was_found_of_another_amount_settles_nothing(payments: PaymentsSession, wire: Wire) -> None:
    """An order whose answer was lost stays unsettled, until something of its own amount is found."""
    wire.answer = cut
    with pytest.raises(OutcomeUnknown):
        await payments.payouts.send(payout())
    executor_of(payments).note_evidence(
        "r-1", Transaction(transaction_id="t-9", request_id="r-1", amount=Decimal(-999))
    )
    assert {"r-1"} == payments.unsettled
    executor_of(payments).note_evidence(
        "r-1", Transaction(transaction_id="t-1", request_id="r-1", amount=Decimal("-1500.00"))
    )
    assert "t-1" == (await payments.payouts.send(payout())).transaction_id
    assert (1, set()) == (len(wire.orders), payments.unsettled)


async def test_evidence_that_overtakes_the_answer(payments: PaymentsSession, wire: Wire) -> None:
    """The order is still under way, and nobody else sends it."""
    wire.answer = held = Held()
    first = asyncio.ensure_future(payments.payouts.send(payout()))
    await until(lambda: wire.orders)
    executor_of(payments).note_evidence("r-1")
    second = asyncio.ensure_future(payments.payouts.send(payout()))
    await turns()
    held.release.set()
    assert (await first, 1) == (await second, len(wire.orders))
    assert not payments.unsettled


async def test_a_card_twice(payments: PaymentsSession, wire: Wire) -> None:
    """It has no request id: each call is made."""

    async def card(_: Request) -> bytes | None:
        return reply({"success": 1, "data": {"id": "c-1"}})

    wire.answer = card
    await payments.cards.enable("4000 **** **** 0001")
    await payments.cards.enable("4000 **** **** 0001")
    assert 2 == len(wire.orders)
