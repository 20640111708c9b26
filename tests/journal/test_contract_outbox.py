"""What every journal promises of orders: loading, leases, permits, outcomes, evidence, persons."""

import asyncio
from decimal import Decimal
from typing import Any

import attrs
import pytest
from journal.conftest import Opens
from journal.factories import (
    BATCH,
    IDENTITY,
    Clock,
    claimed,
    delivery,
    event,
    ids,
    loaded,
    order,
    orders,
    permitted,
    transaction_id,
    turn,
)

from payments_async._wire.orders import (
    AirtimeLine,
    BankAccount,
    Beneficiary,
    CollectionOrder,
    InternetLine,
    MobileMoneyWallet,
    Order,
    UtilityAccount,
)
from payments_async.journal import (
    Journal,
    LeaseLost,
    LoadBusy,
    NotParked,
    OrdersDiffer,
    OrderUnknown,
    RunUnknown,
    Signal,
    State,
    WrongAccount,
)
from payments_async.journal.contract import Chunks, Evidence, NotPermitted, Outcome, Permit


async def state_of(journal: Journal, number: int = 0) -> State:
    """Where the order of that number stands."""
    entry = await journal.entry(order(number).request_id)
    assert entry is not None
    return entry.state


async def counts(journal: Journal, batch: str | None = BATCH) -> dict[str, int]:
    """How many orders there are in each state that has any; what is counted agrees with what is there."""
    progress = await journal.progress(batch)
    found = {state: count for state, count in progress.counts.items() if count}
    there: dict[str, int] = {}
    total = Decimal(0)
    async for entry in journal.entries(batch):
        there[entry.state] = there.get(entry.state, 0) + 1
        total += entry.amount
    assert there == found
    assert total == sum(progress.sums.values())
    return found


def found(signal: Signal, number: int = 0, **changes: Any) -> Evidence:
    """Evidence of the order of that number that agrees with it."""
    about = order(number)
    return attrs.evolve(
        Evidence(
            signal=signal, source="list", request_id=about.request_id, transaction_id=transaction_id(number),
            amount=-about.amount, currency="ugx",
        ),
        **changes,
    )  # fmt: skip


# Loading


async def test_the_same_orders_again_change_nothing(journal: Journal) -> None:
    """In any sequence, from an iterator or an asynchronous one, by anybody."""
    await journal.open_run(BATCH, IDENTITY)
    assert 3 == (await journal.load(BATCH, orders(3), owner="one")).added
    again = await journal.load(BATCH, iter(orders(3)[::-1]), owner="two")
    assert (3, 0) == (again.total, again.added)
    assert ids(orders(3)) == [entry.request_id async for entry in journal.entries(BATCH)]


async def test_an_order_comes_back_as_it_went_in(journal: Journal) -> None:
    """Every kind of destination, every field, every digit."""
    person = Beneficiary(name="Ünal \U0001f600", phone_number="0772 000 017", email_address="a@b.example", id="B-1")
    wallet = order(0)
    kinds: list[Order] = [
        attrs.evolve(wallet, beneficiary=person, product_id="P", account_number="00123", metadata='{"a": "b\\n"}'),
        attrs.evolve(wallet, request_id="2", destination=BankAccount("0012", "STB"), amount=Decimal("0.10")),
        attrs.evolve(wallet, request_id="3", destination=AirtimeLine("0772000017"), batch_id=None, message=None),
        attrs.evolve(wallet, request_id="4", destination=InternetLine("0772000017"), amount=Decimal("1E+3")),
        attrs.evolve(wallet, request_id="5", destination=UtilityAccount("123", area="Kampala"), message=""),
        attrs.evolve(wallet, request_id="6", destination=UtilityAccount("123"), currency=None),
        attrs.evolve(wallet, request_id="7", amount=Decimal("123456789012345678901234567.891")),
        CollectionOrder(
            request_id="8", amount=Decimal(5), payer=MobileMoneyWallet("0772000017"), provider_item_id="I",
            beneficiary=person, batch_id="other", currency="UGX",
        ),
    ]  # fmt: skip
    await journal.open_run(BATCH, IDENTITY)
    await journal.load(BATCH, kinds, owner="loader")
    assert kinds == [entry.order async for entry in journal.entries(BATCH)]
    assert [format(o.amount, "f") for o in kinds] == [format(e.amount, "f") async for e in journal.entries(BATCH)]
    chunk = await journal.claim_chunk(BATCH, "worker")
    assert chunk is not None
    assert kinds == [claimed.order for claimed in chunk.orders]


@pytest.mark.parametrize(
    "change",
    [{"amount": Decimal(7)}, {"message": None}, {"destination": AirtimeLine("+256772000017")}, {"batch_id": None}],
)
async def test_the_same_request_id_with_another_body_is_refused(journal: Journal, change: dict[str, Any]) -> None:
    """It names the request id, and nothing of the batch is sent."""
    await journal.open_run(BATCH, IDENTITY)
    other = attrs.evolve(order(1), **change)
    with pytest.raises(OrdersDiffer, match="payroll-000001") as caught:
        await journal.load(BATCH, [*orders(3), other], owner="loader")
    assert (order(1).request_id,) == caught.value.request_ids
    with pytest.raises(RunUnknown):
        await journal.claim_chunk(BATCH, "worker")
    await journal.load(BATCH, orders(3), owner="loader")
    with pytest.raises(OrdersDiffer):
        await journal.load(BATCH, [order(0), other, order(2)], owner="loader")
    assert {"planned": 3} == await counts(journal)


async def test_a_request_id_of_another_batch_is_refused(journal: Journal) -> None:
    """The same order in two files would be two payments."""
    await loaded(journal)
    await journal.open_run("second", IDENTITY)
    with pytest.raises(OrdersDiffer, match="belongs to batch payroll"):
        await journal.load("second", orders(3), owner="loader")


@pytest.mark.parametrize("count", [2, 4])
async def test_a_complete_batch_holds_its_orders_for_good(journal: Journal, count: int) -> None:
    """A file with a line more or less is another batch: the journal says which lines."""
    await loaded(journal)
    with pytest.raises(OrdersDiffer, match="payroll-000002" if count == 2 else None) as caught:
        await journal.load(BATCH, orders(count), owner="loader")
    assert (order(count if count == 2 else 3).request_id,) == caught.value.request_ids
    assert {"planned": 3} == await counts(journal)


async def test_an_identical_line_counts_once(journal: Journal) -> None:
    """In one block or in two."""
    await journal.open_run(BATCH, IDENTITY)
    report = await journal.load(BATCH, [*orders(1200), order(0), order(1199)], owner="loader")
    assert (1200, 2) == (report.total, report.repeated)


async def test_an_interrupted_load_is_completed_by_the_next(journal: Journal, clock: Clock) -> None:
    """What the first had and the second has not is gone: nobody approved it."""
    await journal.open_run(BATCH, IDENTITY)

    def interrupted() -> object:
        yield from orders(1500)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await journal.load(BATCH, interrupted(), owner="one")  # type: ignore[arg-type]
    assert 1000 == (await journal.progress(BATCH)).total
    with pytest.raises(LoadBusy):
        await journal.load(BATCH, orders(900), owner="two")
    with pytest.raises(RunUnknown):
        await journal.claim_chunk(BATCH, "worker")
    clock.pass_(60)
    report = await journal.load(BATCH, [*orders(900), order(5000)], owner="two")
    assert (901, 1) == (report.total, report.added)
    assert {"planned": 901} == await counts(journal)
    assert (await journal.run(BATCH)).ready


async def test_two_loaders_do_not_mix(journal: Journal, clock: Clock) -> None:
    """The one who was taken for dead finds out, and adds nothing."""
    await journal.open_run(BATCH, IDENTITY)

    async def slow() -> object:
        for number, item in enumerate(orders(1001)):
            if number == 1000:
                clock.pass_(60)
                await journal.load(BATCH, orders(3), owner="two")
            yield item

    with pytest.raises(LoadBusy):
        await journal.load(BATCH, slow(), owner="one")  # type: ignore[arg-type]
    assert {"planned": 3} == await counts(journal)


@pytest.mark.parametrize("change", [{"base_address": "http://127.0.0.1:8080"}, {"user_id": "8"}])
async def test_a_journal_of_another_account_is_refused(journal: Journal, change: dict[str, str]) -> None:
    """The sandbox's journal is not continued with real money, nor one account's with another's."""
    await journal.open_run(BATCH, IDENTITY)
    with pytest.raises(WrongAccount):
        await journal.open_run("second", attrs.evolve(IDENTITY, **change))
    with pytest.raises(WrongAccount):
        await journal.open_run(BATCH, attrs.evolve(IDENTITY, **change))


async def test_an_empty_batch_is_done(journal: Journal) -> None:
    """There is nothing to claim in it."""
    await loaded(journal, 0)
    assert await journal.claim_chunk(BATCH, "worker") is None
    assert 0 == (await journal.progress(BATCH)).total


async def test_an_order_that_was_notified_before_it_was_loaded_is_not_sent(journal: Journal) -> None:
    """Somebody sent it from elsewhere, or it is forged: a person decides."""
    await journal.receive(delivery(), event(0, 1), owner="receiver", lease=0)
    chunk = await claimed(journal)
    assert [order(0).request_id, order(2).request_id] == [held.order.request_id for held in chunk.orders]
    assert [order(1).request_id] == [entry.request_id async for entry in journal.conflicts(BATCH)]
    assert {"planned": 2, "parked": 1} == await counts(journal)


# Chunks and leases


async def test_chunks_hold_500_orders_and_go_to_one_worker_each(journal: Journal) -> None:
    """Every order is in exactly one."""
    await loaded(journal, 1200)
    chunks = [await journal.claim_chunk(BATCH, f"worker {number}") for number in range(3)]
    assert [500, 500, 200] == [len(chunk.orders) for chunk in chunks if chunk]
    assert 1200 == len({held.id for chunk in chunks if chunk for held in chunk.orders})
    assert await journal.claim_chunk(BATCH, "another") is None
    assert Chunks(leased=3, next_expiry=30.0, next_owner="worker 0") == await journal.chunks(BATCH)


async def test_an_expired_lease_never_makes_an_order_planned(journal: Journal, clock: Clock) -> None:
    """Whoever takes over finds unknown what was under way, and planned what was not."""
    first = await claimed(journal)
    await permitted(journal, first)
    clock.pass_(31)
    second = await journal.claim_chunk(BATCH, "second")
    assert second is not None
    assert (first.token + 1, 1) == (second.token, second.taken_over)
    assert [order(1).request_id, order(2).request_id] == [held.order.request_id for held in second.orders]
    assert {"unknown": 1, "planned": 2} == await counts(journal)


@pytest.mark.parametrize("seconds", [29.9, 30.0, 31.0])
async def test_a_permit_needs_a_good_lease(journal: Journal, clock: Clock, seconds: float) -> None:
    """By the database's clock, to the end of it and no longer."""
    chunk = await claimed(journal)
    clock.pass_(seconds)
    answer = await journal.permit(chunk, chunk.orders[0])
    assert isinstance(answer, Permit) == (seconds < 30)
    if isinstance(answer, NotPermitted):
        assert (State.PLANNED, True) == (answer.state, answer.lease_lost)


async def test_a_stalled_worker_gets_no_permit_after_a_takeover(journal: Journal, clock: Clock) -> None:
    """Nor can it renew; and what it reports is taken all the same."""
    first = await claimed(journal)
    permit = await permitted(journal, first)
    clock.pass_(31)
    second = await journal.claim_chunk(BATCH, "second")
    assert second is not None
    refusal = await journal.permit(first, first.orders[1])
    assert isinstance(refusal, NotPermitted)
    assert refusal.lease_lost
    with pytest.raises(LeaseLost):
        await journal.renew_chunk(first)
    finding = await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(0)))
    assert (State.UNKNOWN, State.ACCEPTED) == (finding.before, finding.state)


async def test_the_same_worker_does_not_hold_what_it_claimed_before(journal: Journal, clock: Clock) -> None:
    """The token decides, not the name."""
    first = await claimed(journal)
    clock.pass_(31)
    await journal.claim_chunk(BATCH, "worker")
    assert isinstance(await journal.permit(first, first.orders[0]), NotPermitted)


async def test_a_lease_that_ran_out_can_be_renewed_until_somebody_takes_over(journal: Journal, clock: Clock) -> None:
    """Nobody else was given anything in between."""
    chunk = await claimed(journal)
    clock.pass_(40)
    chunk = await journal.renew_chunk(chunk, lease=5)
    assert clock.now + 5 == chunk.lease_until
    await permitted(journal, chunk)


async def test_a_released_chunk_is_free_at_once(journal: Journal) -> None:
    """A second release of it disturbs nobody."""
    first = await claimed(journal)
    await journal.release_chunk(first)
    second = await journal.claim_chunk(BATCH, "second")
    assert second is not None
    await journal.release_chunk(first)
    await permitted(journal, second)


async def test_releasing_a_chunk_with_an_order_under_way_makes_it_unknown(journal: Journal) -> None:
    """Nobody is left to say what became of it."""
    chunk = await claimed(journal)
    await permitted(journal, chunk)
    await journal.release_chunk(chunk)
    assert State.UNKNOWN is await state_of(journal)


async def test_a_chunk_with_nothing_left_is_done(journal: Journal) -> None:
    """And is opened again when a person writes an order of it off."""
    chunk = await claimed(journal, 1)
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.UNKNOWN))
    await journal.release_chunk(chunk)
    assert Chunks(done=1) == await journal.chunks(BATCH)
    await journal.park(order(0).request_id, detail="two list scans")
    await journal.send_again(order(0).request_id, who="Ann", why="the bank never saw it")
    assert Chunks(open=1) == await journal.chunks(BATCH)
    assert await journal.claim_chunk(BATCH, "worker") is not None


@pytest.mark.parametrize("batch", [None, BATCH])
async def test_expired_chunks_can_be_taken_over_for_nobody(journal: Journal, clock: Clock, batch: str | None) -> None:
    """So that reconciling finds the unknown ones without sending anything."""
    chunk = await claimed(journal)
    await permitted(journal, chunk)
    assert 0 == await journal.expire_chunks(batch)
    clock.pass_(31)
    assert 1 == await journal.expire_chunks(batch)
    assert Chunks(open=1) == await journal.chunks(BATCH)
    assert isinstance(await journal.permit(chunk, chunk.orders[1]), NotPermitted)


async def test_looking_for_leases_that_ran_out_writes_nothing(opens: Opens, clock: Clock) -> None:
    """Processes that share an outbox look every second for what another one left: no other process is woken by that."""
    points: list[str] = []
    async with opens() as one, opens(crash_at=points.append) as other:
        chunk = await claimed(one)
        await permitted(one, chunk)
        before = len(points)
        for _ in range(3):
            assert 0 == await other.expire_chunks()
        assert [] == points[before:]
        clock.pass_(31)
        assert 1 == await other.expire_chunks()


async def test_a_lease_that_ends_later_than_any_can_is_shortened_by_a_look(opens: Opens, clock: Clock) -> None:
    """A clock that was ahead has taken it: its own length is waited for, from the first look on."""
    async with opens() as one, opens() as other:
        clock.pass_(3600)
        chunk = await claimed(one)
        await permitted(one, chunk)
        clock.pass_(-3600)
        assert 0 == await other.expire_chunks()
        clock.pass_(31)
        assert 1 == await other.expire_chunks()


async def test_a_claim_whose_answer_was_lost(journal: Journal) -> None:
    """Whoever claimed has nothing in hand, and gives back what it does not know of: nothing of anybody else's."""
    await loaded(journal, 1200)
    lost, other = await journal.claim_chunk(BATCH, "worker"), await journal.claim_chunk(BATCH, "other")
    assert lost is not None
    assert other is not None
    assert 0 == await journal.expire_chunks(owner="worker")
    assert Chunks(open=2, leased=1) == attrs.evolve(await journal.chunks(BATCH), next_expiry=None, next_owner=None)
    assert isinstance(await journal.permit(lost, lost.orders[0]), NotPermitted)
    assert isinstance(await journal.permit(other, other.orders[0]), Permit)
    assert 1 == await journal.expire_chunks(owner="other")


# Permits and outcomes


async def test_an_order_gets_one_permit(journal: Journal) -> None:
    """However many ask at once."""
    chunk = await claimed(journal)
    answers = await asyncio.gather(*(journal.permit(chunk, chunk.orders[0]) for _ in range(20)))
    assert 1 == sum(isinstance(answer, Permit) for answer in answers)
    assert {State.SENDING} == {answer.state for answer in answers if isinstance(answer, NotPermitted)}


async def test_two_journals_on_one_database_give_one_permit(opens: Opens) -> None:
    """The database decides, not the process."""
    async with opens() as one, opens() as other:
        chunk = await claimed(one)
        answers = await asyncio.gather(
            *(journal.permit(chunk, chunk.orders[0]) for journal in (one, other) for _ in range(5))
        )
        assert 1 == sum(isinstance(answer, Permit) for answer in answers)


@pytest.mark.parametrize(
    ("signal", "state"),
    [
        (Signal.ACCEPTED, State.ACCEPTED),
        (Signal.REJECTED, State.REJECTED),
        (Signal.UNKNOWN, State.UNKNOWN),
        (Signal.NOT_SENT, State.PLANNED),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
async def test_an_outcome_is_written_down(journal: Journal, signal: Signal, state: State, beside: bool) -> None:
    """Alone, or in the commit of the next permit."""
    chunk = await claimed(journal)
    permit = await permitted(journal, chunk)
    outcome = Outcome(permit=permit, signal=signal, code=7, message="words")
    if beside:
        await permitted(journal, chunk, 1, after=outcome)
    else:
        assert (state, None) == attrs.astuple(await journal.record(outcome))[2:4]
    entry = await journal.entry(order(0).request_id)
    assert entry is not None
    assert (state, 1, 7, "words") == (entry.state, entry.attempt, entry.code, entry.message)
    assert 1 == (await counts(journal)).get(state, 0) - (2 - beside if state is State.PLANNED else 0)


async def test_an_outcome_is_kept_when_the_permit_beside_it_is_refused(journal: Journal, clock: Clock) -> None:
    """Losing the lease does not lose what was sent under it."""
    chunk = await claimed(journal)
    permit = await permitted(journal, chunk)
    clock.pass_(31)
    answer = await journal.permit(chunk, chunk.orders[1], after=Outcome(permit=permit, signal=Signal.ACCEPTED))
    assert isinstance(answer, NotPermitted)
    assert State.ACCEPTED is await state_of(journal)


async def test_an_order_that_was_not_sent_gets_another_permit(journal: Journal) -> None:
    """The attempt before stays in its history."""
    chunk = await claimed(journal)
    await journal.record(
        Outcome(permit=await permitted(journal, chunk), signal=Signal.NOT_SENT, message="no connection")
    )
    permit = await permitted(journal, chunk)
    assert (2, False) == (permit.attempt, permit.sent_before)
    await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id()))
    answers = [happening for happening in await journal.history(order(0).request_id) if happening.what == "answer"]
    assert [Signal.NOT_SENT, Signal.ACCEPTED] == [answer.signal for answer in answers]


async def test_each_attempt_keeps_what_the_service_calls_its_exchange(journal: Journal) -> None:
    """The entry has that of the last attempt, the history each one; where the service names none, there is none."""
    chunk = await claimed(journal, 3)
    outcomes = {"correlation_id": "c-1", "message": "come back later"}
    turned_away = Outcome(permit=await permitted(journal, chunk, 0), signal=Signal.NOT_SENT, **outcomes)
    await journal.record(turned_away)
    again = await journal.permit(chunk, attrs.evolve(chunk.orders[0], attempt=1))
    assert isinstance(again, Permit)
    accepted = Outcome(permit=again, signal=Signal.ACCEPTED, transaction_id=transaction_id(0), correlation_id="c-2")
    refused = Outcome(permit=await permitted(journal, chunk, 1), signal=Signal.REJECTED, correlation_id="c" * 1000)
    plain = Outcome(permit=await permitted(journal, chunk, 2), signal=Signal.ACCEPTED, transaction_id=transaction_id(2))
    await asyncio.gather(*map(journal.record, (accepted, refused, plain)))
    entries = [entry async for entry in journal.entries()]
    assert ["c-2", "c" * 200, None] == [entry.correlation_id for entry in entries]
    story = await journal.history(order(0).request_id)
    assert ["c-1", "c-2"] == [one.correlation_id for one in story if one.what == "answer"]
    assert {State.ACCEPTED} == {entry.state for entry in (entries[0], entries[2])}


async def test_a_late_answer_says_nothing_of_the_attempt_after_it(journal: Journal) -> None:
    """A refusal of the first attempt does not settle the second."""
    chunk = await claimed(journal)
    first = await permitted(journal, chunk)
    await journal.record(Outcome(permit=first, signal=Signal.NOT_SENT))
    await permitted(journal, chunk)
    for signal in (Signal.REJECTED, Signal.UNKNOWN, Signal.NOT_SENT):
        assert State.SENDING is (await journal.record(Outcome(permit=first, signal=signal))).state
    finding = await journal.record(Outcome(permit=first, signal=Signal.ACCEPTED, transaction_id=transaction_id()))
    assert State.ACCEPTED is finding.state


async def test_two_transactions_for_one_order_are_a_conflict(journal: Journal) -> None:
    """The worst there is: a person has to know."""
    chunk = await claimed(journal)
    permit = await permitted(journal, chunk)
    await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(1)))
    finding = await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(2)))
    assert finding.conflict is not None
    entry = await journal.entry(order(0).request_id)
    assert entry is not None
    assert (State.ACCEPTED, transaction_id(1)) == (entry.state, entry.transaction_id)


async def test_a_cancelled_caller_leaves_no_permit_behind(journal: Journal) -> None:
    """It never saw the permit, so it sent nothing: the order is planned, and can be sent by the next."""
    chunk = await claimed(journal)
    for ticks in range(4):
        task = asyncio.ensure_future(journal.permit(chunk, chunk.orders[0]))
        for _ in range(ticks):
            await asyncio.sleep(0)
        if not task.done():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    answer = await journal.permit(chunk, chunk.orders[0])
    assert isinstance(answer, Permit)


async def test_a_permit_that_is_committed_when_its_caller_is_cancelled_is_given_back(journal: Journal) -> None:
    """Even when its result is on its way to the caller."""
    chunk = await claimed(journal)
    task = asyncio.ensure_future(journal.permit(chunk, chunk.orders[0]))
    await asyncio.sleep(0)
    while State.SENDING is not await state_of(journal):  # noqa: ASYNC110 - looking is how the state becomes known
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task
        await permitted(journal, chunk)
    else:
        assert isinstance(task.result(), Permit)


async def test_a_cancelled_caller_does_not_take_back_what_it_reported(journal: Journal) -> None:
    """The money may have moved, whoever still waits for the pen."""
    chunk = await claimed(journal)
    outcomes = [
        Outcome(
            permit=await permitted(journal, chunk, place), signal=Signal.ACCEPTED, transaction_id=transaction_id(place)
        )
        for place in (0, 1)
    ]
    tasks = [
        asyncio.ensure_future(journal.record(outcomes[0])),
        asyncio.ensure_future(journal.permit(chunk, chunk.orders[2], after=outcomes[1])),
    ]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await journal.record(outcomes[0])  # what comes after it is written after it
    assert {"accepted": 2, "planned": 1} == await counts(journal)


async def test_an_operation_that_fails_fails_alone(journal: Journal) -> None:
    """Others share its commit, not its failure."""
    chunk = await claimed(journal)
    answers = await asyncio.gather(
        journal.permit(chunk, chunk.orders[0]),
        journal.permit(chunk, attrs.evolve(chunk.orders[1], id=chunk.orders[2].id + 100)),
        journal.send_again("nobody", who="Ann", why="because"),
        journal.permit(chunk, chunk.orders[2]),
        return_exceptions=True,
    )
    assert [Permit, OrderUnknown, OrderUnknown, Permit] == [type(answer) for answer in answers]
    assert {"sending": 2, "planned": 1} == await counts(journal)


async def test_what_no_database_keeps_fails_alone(journal: Journal) -> None:
    """A number beyond 64 bits costs its own caller an error and nobody else; half a character costs nobody one."""
    chunk = await claimed(journal)
    one, two, three = [await permitted(journal, chunk, place) for place in range(3)]
    answers = await asyncio.gather(
        journal.record(Outcome(permit=attrs.evolve(one, id=1 << 70), signal=Signal.UNKNOWN)),
        journal.record(Outcome(permit=two, signal=Signal.UNKNOWN, code=1 << 70, message="\ud800")),
        journal.record(Outcome(permit=three, signal=Signal.UNKNOWN)),
        return_exceptions=True,
    )
    assert [True, False, False] == [isinstance(answer, Exception) for answer in answers]
    assert {"sending": 1, "unknown": 2} == await counts(journal)


async def test_a_transaction_id_too_long_to_be_one(journal: Journal) -> None:
    """Ends nothing, and is known again: no other one is taken for it, and the whole of it is kept in words."""
    chunk = await claimed(journal, 2)
    long, other = "t" * 10_000, "t" * 9_999 + "u"
    for place in range(2):
        permit = await permitted(journal, chunk, place)
        await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=long))
    assert {"accepted": 2} == await counts(journal)
    for number, named in enumerate((long, other)):
        about = order(number)
        facts = {"request_id": about.request_id, "amount": about.amount, "currency": "UGX"}
        looked = Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="record", transaction_id=named, **facts)
        await journal.apply_evidence(looked)
    one, two = [await journal.entry(order(number).request_id) for number in range(2)]
    assert one is not None
    assert two is not None
    assert (State.SUCCESSFUL, None) == (one.state, one.conflict)
    assert (State.ACCEPTED, True) == (two.state, "another transaction" in (two.conflict or ""))
    assert one.transaction_id is not None
    assert len(one.transaction_id) < 256
    assert one.transaction_id.startswith("ttt")
    assert long in (one.message or "")
    await journal.apply_evidence(Evidence(signal=Signal.LOOKED_UP_REVERSED, source="record", transaction_id=long))


# Evidence


async def unknown(journal: Journal) -> None:
    """A batch of one order that is unknown."""
    chunk = await claimed(journal, 1)
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.UNKNOWN))
    await journal.release_chunk(chunk)


@pytest.mark.parametrize(
    ("signal", "state"),
    [
        (Signal.LOOKED_UP_SUCCESSFUL, State.SUCCESSFUL),
        (Signal.LOOKED_UP_FAILED, State.FAILED),
        (Signal.LOOKED_UP_REVERSED, State.REVERSED),
        (Signal.LOOKED_UP_PROCESSING, State.ACCEPTED),
    ],
)
async def test_evidence_settles_an_unknown_order(journal: Journal, signal: Signal, state: State) -> None:
    """Payouts are negative in records; the case of a currency says nothing."""
    await unknown(journal)
    finding = await journal.apply_evidence(found(signal))
    assert finding is not None
    assert (State.UNKNOWN, state, None) == (finding.before, finding.state, finding.conflict)
    entry = await journal.entry(order(0).request_id)
    assert entry is not None
    assert transaction_id(0) == entry.transaction_id


@pytest.mark.parametrize(
    "change",
    [
        {"amount": Decimal(1)},
        {"amount": None},
        {"currency": "KES"},
        {"request_id": None},
    ],
)
async def test_evidence_that_disagrees_is_kept_as_a_conflict(journal: Journal, change: dict[str, Any]) -> None:
    """It settles nothing; a person has to look."""
    chunk = await claimed(journal, 1)
    unsure = Outcome(permit=await permitted(journal, chunk), signal=Signal.UNKNOWN, transaction_id=transaction_id(0))
    await journal.record(unsure)
    finding = await journal.apply_evidence(found(Signal.LOOKED_UP_SUCCESSFUL, **change))
    assert finding is not None
    assert State.UNKNOWN is finding.state
    assert finding.conflict is not None
    assert 1 == (await journal.progress(BATCH)).conflicts
    assert finding.conflict in [happening.conflict for happening in await journal.history(order(0).request_id)]


async def test_a_confirmed_transaction_stands_for_its_request_id(journal: Journal) -> None:
    """The service confirmed it: evidence that names the transaction alone counts, but not one of another order."""
    chunk = await claimed(journal, 2)
    for place in (0, 1):
        outcome = Outcome(
            permit=await permitted(journal, chunk, place), signal=Signal.ACCEPTED, transaction_id=transaction_id(place)
        )
        await journal.record(outcome)
    bare: dict[str, Any] = {
        "request_id": None,
        "amount": None,
        "currency": None,
        "transaction_id": transaction_id(0).upper(),
    }
    finding = await journal.apply_evidence(found(Signal.LOOKED_UP_SUCCESSFUL, **bare))
    assert finding is not None
    assert (order(0).request_id, State.SUCCESSFUL) == (finding.request_id, finding.state)
    wrong = found(Signal.LOOKED_UP_SUCCESSFUL, 1, request_id="somebody-else")
    finding = await journal.apply_evidence(wrong)
    assert finding is not None
    assert (order(1).request_id, State.ACCEPTED) == (finding.request_id, finding.state)
    assert finding.conflict is not None


async def test_amounts_are_compared_digit_for_digit(journal: Journal) -> None:
    """Also beyond the 28 digits that arithmetic rounds to by default."""
    large = "123456789012345678901234567.891"
    await journal.open_run(BATCH, IDENTITY)
    await journal.load(BATCH, [order(0, large)], owner="loader")
    finding = await journal.apply_evidence(found(Signal.LOOKED_UP_FAILED, amount=Decimal("-" + large[:-1] + "2")))
    assert finding is not None
    assert State.PARKED is finding.state
    finding = await journal.apply_evidence(found(Signal.LOOKED_UP_FAILED, amount=Decimal("-" + large)))
    assert finding is not None
    assert State.FAILED is finding.state
    assert Decimal(large) == (await journal.progress(BATCH)).sums["failed"]


async def test_evidence_about_nobody_is_told_so(journal: Journal) -> None:
    """An order this journal never sent is the caller's to report."""
    assert await journal.apply_evidence(found(Signal.LOOKED_UP_FAILED)) is None


async def test_a_contradiction_is_kept_until_a_person_acknowledges_it(journal: Journal) -> None:
    """The first stands; the history forgets neither."""
    await unknown(journal)
    await journal.apply_evidence(found(Signal.LOOKED_UP_SUCCESSFUL))
    finding = await journal.apply_evidence(found(Signal.NOTIFIED_FAILED))
    assert finding is not None
    assert State.SUCCESSFUL is finding.state
    assert [order(0).request_id] == [entry.request_id async for entry in journal.conflicts()]
    entry = await journal.acknowledge(order(0).request_id, who="Ann", why="the service corrected itself")
    assert (State.SUCCESSFUL, None) == (entry.state, entry.conflict)
    assert 0 == (await journal.progress(BATCH)).conflicts
    assert "Ann" in [happening.by for happening in await journal.history(order(0).request_id)]


async def test_a_contradiction_that_was_acknowledged_is_not_raised_again(journal: Journal) -> None:
    """Every list scan shows the same list; another source, or other words, are another contradiction."""
    await unknown(journal)
    await journal.apply_evidence(found(Signal.LOOKED_UP_SUCCESSFUL))
    await journal.apply_evidence(found(Signal.LOOKED_UP_FAILED))
    await journal.acknowledge(order(0).request_id, who="Ann", why="the list is wrong")
    finding = await journal.apply_evidence(found(Signal.LOOKED_UP_FAILED))
    assert finding is not None
    assert finding.conflict is not None
    assert 0 == (await journal.progress(BATCH)).conflicts
    await journal.apply_evidence(found(Signal.LOOKED_UP_REVERSED, amount=Decimal(1)))
    assert 1 == (await journal.progress(BATCH)).conflicts


async def test_a_contradiction_that_comes_while_a_person_decides_stands(journal: Journal, clock: Clock) -> None:
    """They answer for what they saw."""
    await unknown(journal)
    await journal.apply_evidence(found(Signal.LOOKED_UP_SUCCESSFUL))
    clock.pass_(1)
    await journal.apply_evidence(found(Signal.LOOKED_UP_FAILED))
    clock.pass_(1)
    shown = await journal.entry(order(0).request_id)
    assert shown is not None
    await journal.apply_evidence(found(Signal.NOTIFIED_FAILED, amount=Decimal(1)))
    clock.pass_(1)
    now = await journal.acknowledge(order(0).request_id, who="Ann", why="the list is wrong", seen=shown.updated_at)
    assert now.conflict is not None
    assert "amount" in now.conflict
    again = await journal.acknowledge(order(0).request_id, who="Ann", why="both", seen=now.updated_at)
    assert again.conflict is None


async def test_the_same_evidence_again_takes_no_room(journal: Journal) -> None:
    """A list scan repeats itself every minute."""
    await unknown(journal)
    await journal.apply_evidence(found(Signal.LOOKED_UP_PROCESSING))
    for _ in range(50):
        await journal.apply_evidence(found(Signal.LOOKED_UP_PROCESSING))
    assert 7 > len(await journal.history(order(0).request_id))


@pytest.mark.parametrize(
    "signal", [Signal.PERMITTED, Signal.NOT_SENT, Signal.REJECTED, Signal.WRITTEN_OFF, Signal.LEASE_EXPIRED]
)
async def test_not_all_news_is_evidence(journal: Journal, signal: Signal) -> None:
    """Nobody brings a permit or a write-off through this door."""
    with pytest.raises(ValueError, match="not evidence"):
        await journal.apply_evidence(found(signal))


# Persons


async def test_only_an_unknown_order_is_parked(journal: Journal) -> None:
    """Absence says nothing of an order that is planned, sent or settled."""
    await loaded(journal, 1)
    assert State.PLANNED is (await journal.park(order(0).request_id, detail="two list scans")).state
    with pytest.raises(OrderUnknown):
        await journal.park("nobody", detail="two list scans")


async def test_lists_say_nothing_of_a_later_attempt(journal: Journal, clock: Clock) -> None:
    """An order is parked for the permit that the lists were read for; a later one has not had its period of grace."""
    chunk = await claimed(journal, 1)
    first = await permitted(journal, chunk)
    await journal.record(Outcome(permit=first, signal=Signal.NOT_SENT))
    clock.pass_(1.0)
    second = await permitted(journal, chunk)
    await journal.record(Outcome(permit=second, signal=Signal.UNKNOWN))
    ended = [
        (await journal.park(order(0).request_id, detail="two list scans", sent_at=permit.at)).state
        for permit in (first, second)
    ]
    assert [State.UNKNOWN, State.PARKED] == ended


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("of_before", [{"token": 0}, {"at": 1.0}])
async def test_an_answer_to_a_permit_of_another_time(journal: Journal, of_before: dict[str, Any], count: int) -> None:
    """A journal that was put back grants the same attempt again: what became of the first one says nothing of it."""
    chunk = await claimed(journal, count)
    permits = [await permitted(journal, chunk, place) for place in range(count)]
    forgotten = [attrs.evolve(permit, **of_before) for permit in permits]
    ended = [journal.record(Outcome(permit=permit, signal=Signal.REJECTED)) for permit in forgotten]
    assert {State.SENDING} == {finding.state for finding in await asyncio.gather(*ended)}
    ended = [journal.record(Outcome(permit=permit, signal=Signal.REJECTED)) for permit in permits]
    assert {State.REJECTED} == {finding.state for finding in await asyncio.gather(*ended)}


async def test_only_a_parked_order_is_written_off(journal: Journal) -> None:
    """By a named person, with a reason."""
    await unknown(journal)
    request_id = order(0).request_id
    await loaded(journal, 1, batch="second")
    for never in (request_id, order(0, batch="second").request_id):
        with pytest.raises(NotParked):
            await journal.send_again(never, who="Ann", why="never arrived")
    await journal.park(request_id, detail="two list scans")
    with pytest.raises(ValueError, match="who and why"):
        await journal.send_again(request_id, who=" ", why="never arrived")
    entry = await journal.send_again(request_id, who="Ann", why="never arrived")
    assert (State.PLANNED, True) == (entry.state, entry.sent_before)


async def test_an_order_that_was_written_off_is_sent_as_one_that_may_have_arrived(journal: Journal) -> None:
    """A refusal or a failure of one attempt proves nothing then, for the other may be paid; a success settles it."""
    await unknown(journal)
    await journal.park(order(0).request_id, detail="two list scans")
    await journal.send_again(order(0).request_id, who="Ann", why="never arrived")
    chunk = await journal.claim_chunk(BATCH, "worker")
    assert chunk is not None
    assert [True] == [held.sent_before for held in chunk.orders]
    permit = await permitted(journal, chunk)
    assert (2, True) == (permit.attempt, permit.sent_before)
    assert State.UNKNOWN is (await journal.record(Outcome(permit=permit, signal=Signal.REJECTED))).state
    for signal, state in (
        (Signal.LOOKED_UP_PROCESSING, State.ACCEPTED),
        (Signal.NOTIFIED_FAILED, State.PARKED),
        (Signal.LOOKED_UP_REVERSED, State.PARKED),
        (Signal.NOTIFIED_SUCCESSFUL, State.SUCCESSFUL),
    ):
        finding = await journal.apply_evidence(found(signal))
        assert finding is not None
        assert (state, state is State.PARKED) == (finding.state, finding.conflict is not None)


async def test_the_whole_story_of_an_order_can_be_told(journal: Journal, clock: Clock) -> None:
    """Planned, permit, takeover, parked, written off, sent again, answered, failed: who, when and by which rule."""
    chunk = await claimed(journal, 1)
    await permitted(journal, chunk)
    clock.pass_(31)
    await journal.expire_chunks()
    clock.pass_(1)
    await journal.park(order(0).request_id, detail="two list scans of March")
    clock.pass_(1)
    await journal.send_again(order(0).request_id, who="Ann", why="never arrived")
    clock.pass_(1)
    second = await journal.claim_chunk(BATCH, "second")
    assert second is not None
    permit = await permitted(journal, second)
    clock.pass_(1)
    await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(0)))
    clock.pass_(1)
    await journal.receive(delivery(at=clock.now), event(2, 0), owner="receiver", lease=0)
    story = await journal.history(order(0).request_id)
    assert [
        ("planned", None, State.PLANNED),
        ("permit", "worker", State.SENDING),
        ("takeover", "lease of worker", State.UNKNOWN),
        ("evidence", "sweep", State.PARKED),
        ("resolution", "Ann", State.PLANNED),
        ("permit", "second", State.SENDING),
        ("answer", "answer to attempt 2", State.ACCEPTED),
        ("delivery", "192.0.2.7", None),
        ("notification", "notification 192.0.2.7", State.FAILED),
    ] == [(happening.what, happening.by, happening.state) for happening in story]
    assert all(happening.rule for happening in story if happening.signal)
    with pytest.raises(OrderUnknown):
        await journal.history("nobody")


# Looking


async def test_entries_can_be_narrowed(journal: Journal) -> None:
    """By batch, by state, by both; in the sequence they were loaded in."""
    await loaded(journal, 3, batch="second")
    chunk = await claimed(journal, 3)
    await journal.record(Outcome(permit=await permitted(journal, chunk, 1), signal=Signal.REJECTED))
    assert 6 == len([entry async for entry in journal.entries()])
    assert [order(1).request_id] == [entry.request_id async for entry in journal.entries(BATCH, "rejected")]
    assert 5 == len([entry async for entry in journal.entries(state=State.PLANNED)])
    assert 6 == (await journal.progress()).total
    assert [("second", 3), (BATCH, 3)] == [(run.batch_id, run.total) for run in await journal.runs()]
    with pytest.raises(RunUnknown):
        await journal.progress("nobody")


async def test_entries_may_change_while_they_are_read(journal: Journal) -> None:
    """Settling what a stream of unknown orders shows is what reconciling does."""
    chunk = await claimed(journal, 600)
    for place in range(20):
        await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=Signal.UNKNOWN))
    seen = 0
    async for entry in journal.entries(BATCH, State.UNKNOWN):
        await journal.park(entry.request_id, detail="two list scans")
        seen += 1
    assert {"planned": 580, "parked": 20} == await counts(journal)
    assert 20 == seen


async def lives(journal: Journal, clock: Clock) -> None:
    """A batch of more than a chunk, in which every way to a state is to be found."""
    chunk = await claimed(journal, 600)
    answers = (Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN, Signal.NOT_SENT)
    for place in range(40):
        clock.pass_(0.001)
        permit = await permitted(journal, chunk, place)
        clock.pass_(0.001)
        if place % 5 < 4:
            id_ = transaction_id(place) if place % 5 == 0 else None
            await journal.record(Outcome(permit=permit, signal=answers[place % 5], transaction_id=id_, message="words"))
        if place % 5 == 3:
            again = await permitted(journal, chunk, place)
            await journal.record(Outcome(permit=again, signal=Signal.ACCEPTED, transaction_id=transaction_id(place)))
    clock.pass_(31)
    await journal.expire_chunks()
    shown = (
        Signal.LOOKED_UP_PROCESSING,
        Signal.LOOKED_UP_SUCCESSFUL,
        Signal.LOOKED_UP_FAILED,
        Signal.LOOKED_UP_REVERSED,
    )
    for place in range(35):
        for step in range(place % 4):
            clock.pass_(0.001 if place % 3 else 0.0)
            await journal.apply_evidence(found(shown[(place + step) % 4], place))
    for place in range(10):
        await journal.receive(delivery(b"%d" % place, at=clock.now), event(0, place), owner="receiver", lease=0)
    for place in range(15, 40, 2):
        await journal.park(order(place).request_id, detail="two list scans")
    async for entry in journal.entries(BATCH, State.PARKED):
        clock.pass_(0.001)
        await journal.send_again(entry.request_id, who="Ann", why="never arrived")
    await journal.acknowledge(order(2).request_id, who="Ann", why="known")


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("home", ["sqlite"], indirect=True)  # the statements are the same in a database
async def test_a_standing_is_an_order_with_the_turn_of_its_history(journal: Journal, clock: Clock) -> None:
    """For every kind of life: the entry as it is, and what its history says brought it there."""
    await loaded(journal, 2, batch="second")
    await lives(journal, clock)
    standings = [standing async for page in journal.standings(BATCH) for standing in page]
    assert [entry async for entry in journal.entries(BATCH)] == [standing.entry for standing in standings]
    assert {State.PLANNED, State.REJECTED, State.UNKNOWN, State.SUCCESSFUL, State.FAILED, State.REVERSED} <= {
        standing.entry.state for standing in standings
    }
    for standing in standings:
        expected = turn(standing.entry, await journal.history(standing.entry.request_id))
        assert expected == standing.decision, standing.entry.request_id
    with pytest.raises(RunUnknown):
        await anext(journal.standings("nobody"))


async def test_many_orders_can_be_asked_for_at_once(journal: Journal) -> None:
    """Those that there are, of whatever batch."""
    await loaded(journal, 600)
    await loaded(journal, 1, batch="second")
    asked = [*ids(orders(600)), "nobody", order(0, batch="second").request_id]
    entries = await journal.entries_of(asked)
    assert set(asked) - {"nobody"} == entries.keys()
    for request_id in (asked[599], asked[-1]):
        assert await journal.entry(request_id) == entries[request_id]
    assert {} == await journal.entries_of([])


async def test_orders_can_be_asked_for_in_other_letters(journal: Journal) -> None:
    """They are found by the ids that were asked for, and say how they are written."""
    await journal.open_run(BATCH, IDENTITY)
    names = ["Voucher-1", "vouCHER-2", "VOUCHER-3", "voucher-4"]
    await journal.load(BATCH, [attrs.evolve(order(), request_id=name) for name in names], owner="loader")
    asked = ["VOUCHER-1", "voucher-2", "Voucher-3", "Voucher-4", "VOUCHER-5"]
    entries = await journal.entries_of(asked)
    assert dict(zip(asked, names, strict=False)) == {one: entry.request_id for one, entry in entries.items()}
    for one in asked:
        assert entries.get(one) == await journal.entry(one)


async def test_who_was_paid_of_late_can_be_read_without_the_rest(journal: Journal, clock: Clock) -> None:
    """What may be paid yet counts whatever its age; what failed or was refused never does."""
    chunk = await claimed(journal, 4)
    for place, signal in enumerate((Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN)):
        await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=signal))
    clock.pass_(100)
    await loaded(journal, 2, batch="second")

    async def paid(since: float, but: str | None = None) -> list[str]:
        return [entry.request_id async for page in journal.paid_since(since, but=but) for entry in page]

    second = ids(orders(2, batch="second"))
    open_ = [order(2).request_id, order(3).request_id]
    assert [order(0).request_id, *open_, *second] == await paid(clock.now - 100)
    assert [*open_, *second] == await paid(clock.now - 99)
    assert second == await paid(0, but=BATCH)
    assert [order(0).request_id, *open_] == await paid(0, but="second")
    assert 5 == len(await paid(0, but="nobody"))


async def test_what_was_written_is_there_after_reopening(opens: Opens) -> None:
    """Nothing of it was in memory only."""
    async with opens() as journal:
        chunk = await claimed(journal)
        permit = await permitted(journal, chunk)
    async with opens() as journal:
        await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(0)))
        await permitted(journal, chunk, 1)
    async with opens() as journal:
        assert {"accepted": 1, "sending": 1, "planned": 1} == await counts(journal)


@pytest.mark.parametrize("stands", ["planned", "unknown"])
async def test_a_transaction_of_one_order_is_told_of_another_one(journal: Journal, stands: str) -> None:
    """As by a service that does not tell small from capital letters: that one must not count as paid by it.

    Nobody would ever pay it then. A person has to look, and what is planned is kept back until then.
    """
    chunk = await claimed(journal, 2)
    transaction = transaction_id(7)
    one = await permitted(journal, chunk)
    await journal.record(Outcome(permit=one, signal=Signal.ACCEPTED, transaction_id=transaction))
    if stands == "unknown":
        two = await permitted(journal, chunk, 1)
        await journal.record(Outcome(permit=two, signal=Signal.UNKNOWN))
    other = order(1)
    for signal, source in (
        (Signal.LOOKED_UP_SUCCESSFUL, "list"),
        (Signal.NOTIFIED_SUCCESSFUL, "notification 192.0.2.7"),
    ):
        await journal.apply_evidence(
            Evidence(
                signal=signal,
                source=source,
                request_id=other.request_id,
                transaction_id=transaction.upper(),
                amount=other.amount,
            )
        )
    entry = await journal.entry(other.request_id)
    assert entry is not None
    assert (State.PARKED if stands == "planned" else State.UNKNOWN) is entry.state
    assert f"transaction {transaction.upper()} is known to be that of order {order(0).request_id}" == entry.conflict
    assert entry.transaction_id is None


def listed(transaction: str, *, request_id: str = "order-1", amount: str = "1000", source: str = "list") -> Evidence:
    """A row of the list, cut off or not."""
    return Evidence(
        signal=Signal.LOOKED_UP_SUCCESSFUL,
        source=source,
        request_id=request_id,
        transaction_id=transaction,
        amount=Decimal(amount),
    )


async def lost(journal: Journal, *request_ids: str) -> None:
    """Orders of these ids, as much each, of whose outcome nothing is known."""
    await journal.open_run(BATCH, IDENTITY)
    both = [attrs.evolve(order(1, "1000"), request_id=request_id) for request_id in request_ids]
    await journal.load(BATCH, both, owner="loader")
    chunk = await journal.claim_chunk(BATCH, "worker")
    assert chunk is not None
    for place in range(len(request_ids)):
        await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=Signal.UNKNOWN))


async def stand(journal: Journal, *request_ids: str) -> list[tuple[State, bool]]:
    """How these stand, and whether something contradicts."""
    entries = [await journal.entry(request_id) for request_id in request_ids]
    return [(entry.state, entry.conflict is not None) for entry in entries if entry is not None]


@pytest.mark.parametrize("source", ["list", "list SUCCESSFULL"])
async def test_a_row_whose_id_may_be_cut_off_is_evidence_for_no_order(journal: Journal, source: str) -> None:
    """While the longer one is open neither moves; once it is parked a person is told of both."""
    await lost(journal, "order-1", "Order-15")
    row = listed(transaction_id(15), source=source)
    assert (await journal.apply_evidence(row)).conflict is not None  # type: ignore[union-attr]
    assert 2 * [(State.UNKNOWN, False)] == await stand(journal, "order-1", "order-15")
    await journal.park("Order-15", detail="nowhere")
    await journal.apply_evidence(row)
    assert 2 * [(State.PARKED, True)] == await stand(journal, "order-1", "order-15")
    assert {None} == {entry.transaction_id async for entry in journal.entries(BATCH)}
    await journal.send_again("Order-15", who="Grace", why="they have one payment")
    await journal.apply_evidence(row)
    assert [(State.SUCCESSFUL, True), (State.PLANNED, False)] == await stand(journal, "order-1", "order-15")


async def test_a_row_that_can_be_no_other_order_settles_its_own(journal: Journal) -> None:
    """No longer id is open any more, as soon as the longer ones were settled by their own rows."""
    await lost(journal, "order-1", "order-15", "order-2", "order-23")
    await journal.apply_evidence(listed(transaction_id(23), request_id="order-23"))
    for row in (listed(transaction_id(2), request_id="order-2"), listed(transaction_id(15), request_id="order-15")):
        await journal.apply_evidence(row)
    await journal.apply_evidence(listed(transaction_id(1)))
    names = ("order-1", "order-15", "order-2", "order-23")
    assert 4 * [(State.SUCCESSFUL, False)] == await stand(journal, *names)


async def test_a_planned_order_whose_row_may_be_cut_off_is_not_sent(journal: Journal) -> None:
    """As the first look may find it: it is kept back, for it may be the one that was sent."""
    await lost(journal, "order-15")
    await journal.open_run("more", IDENTITY)
    await journal.load("more", [attrs.evolve(order(1, "1000"), request_id="order-1")], owner="loader")
    await journal.apply_evidence(listed(transaction_id(15)))
    assert [(State.PARKED, True), (State.UNKNOWN, False)] == await stand(journal, "order-1", "order-15")
