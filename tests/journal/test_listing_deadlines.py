"""A person's word that the service lists in time: an order that is not listed then is sent again, once."""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import attrs
import pytest
from bulk.worlds import payout
from journal.conftest import Home
from journal.factories import BATCH, Clock, claimed, delivery, event, order, permitted, transaction_id
from journal.places import Place, opener

from payments_async.bulk import RunSettings, give_listing_deadline, run_batch
from payments_async.journal import ApprovalRule, Journal, ListingDeadline, NotApproved, Signal, Signature, State
from payments_async.journal._inbox import Arrival, Doubt
from payments_async.journal.contract import Evidence, Outcome
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.outbox._settling import Settler
from payments_async.sandbox import Fault
from payments_async.testing import Testing

WITHIN = 3600.0
WAITS = WITHIN + 60.0  # with a minute for clocks
CLERK = Signature(who="A. Clerk", login="clerk", machine="desk-1")
HEAD = Signature(who="B. Head", login="head", machine="desk-2")
WHY = "the service's letter of 3 May"
READINGS = 40  # after which a list shows what is new, where it lists late


def deadline(now: float, **changes: Any) -> ListingDeadline:
    """What the service lists within an hour, for a week from a moment on."""
    terms = {"within": WITHIN, "until": now + 7 * 86_400.0, "orders": 2, "amount": 1500, "total": 2500}
    return ListingDeadline(**{"currency": "UGX", **terms, **changes})


# --- as a whole: a service, a batch, a reconciliation -----------------------------------------------------------------


@pytest.fixture
def places(home: Home) -> Callable[..., Any]:
    """Opens everything."""
    return opener(home)


async def lost(here: Place, fault: Fault, number: int = 1, *, readings: int = 0) -> None:
    """An order whose request or answer is lost, beside one that the list shows after so many readings."""
    await here.send(9)
    async with here.session() as payments:
        for _ in range(readings):
            await payments.transactions.page()
        here.sandbox.script(fault, on="money", request_id=payout(number).request_id)
        await run_batch(
            payments,
            here.journal,
            "batch 1",
            [payout(number)],
            settings=RunSettings(testing=Testing(now=here.now), look_first="never"),
        )
    assert "unknown" == await here.state(number)


async def run_again(here: Place) -> int:
    """Run the batch once more; how often its order was carried out since ever."""
    async with here.session() as payments:
        await run_batch(
            payments,
            here.journal,
            "batch 1",
            [payout(1)],
            settings=RunSettings(testing=Testing(now=here.now), look_first="never"),
        )
    return here.sandbox.executions(payout(1).request_id)


async def given(here: Place, **changes: Any) -> None:
    """A clerk's word."""
    await give_listing_deadline(here.journal, deadline(here.now(), **changes), "A. Clerk", WHY)


async def story(journal: Journal, request_id: str) -> str:
    """All that is told of an order, in one text."""
    return "\n".join(f"{one.by} {one.detail}" for one in await journal.history(request_id))


async def test_nothing_is_sent_again_where_nobody_has_given_a_word(places: Any) -> None:
    """That is so by default: what two lists do not show is parked."""
    async with places() as here:
        await lost(here, Fault.LOST_BEFORE)
        await here.pass_(10 * WAITS)
        found = await here.look()
        assert ((payout(1).request_id,), ()) == (found.parked, found.sent_again)
        assert (0, "parked") == (await run_again(here), await here.state(1))


async def test_an_order_that_never_arrived_is_sent_again_once(places: Any) -> None:
    """Two lists that were read after that time miss it; its story tells by whose word, and why."""
    async with places() as here:
        await given(
            here,
        )
        await lost(here, Fault.LOST_BEFORE)
        await here.pass_(1000.0)
        found = await here.look()
        assert ((), (payout(1).request_id,)) == (found.parked, found.unknown)  # it may still be listed
        await here.pass_(WITHIN)
        found = await here.look()
        assert ((), (payout(1).request_id,)) == (found.parked, found.sent_again)
        told = await story(here.journal, payout(1).request_id)
        (word,) = await here.journal.listing_words()
        assert f"A. Clerk written_off: {WHY} (on: listing deadline {word.number}, listed within 3600 s" in told
        assert (1, "accepted") == (await run_again(here), await here.state(1))
        (word,) = await here.journal.listing_words()
        assert (1, payout(1).amount, None) == (word.sent, word.spent, word.over)


async def test_lists_that_are_asked_for_at_once_are_read_a_minute_apart(places: Any) -> None:
    """Reconciling in haste shortens nothing of what sends an order again."""
    async with places() as here:
        await given(here)
        await lost(here, Fault.LOST_BEFORE)
        await here.pass_(WAITS + 1.0)
        before = here.right()
        assert (payout(1).request_id,) == (await here.look(grace=0.0, interval=0.0)).sent_again
        assert here.right() >= before + 60.0


async def test_an_order_that_is_listed_in_time_is_paid_once(places: Any) -> None:
    """Its answer was lost, and the list shows it."""
    async with places() as here:
        await given(here)
        await lost(here, Fault.LOST_AFTER)
        await here.pass_(WAITS + 1.0)
        assert () == (await here.look()).sent_again
        assert 1 == await run_again(here)


@pytest.mark.slow(covered=True)
async def test_where_the_word_is_wrong_an_order_is_paid_twice(places: Any) -> None:
    """The service lists it later than that: the risk that the word takes, as the pages say."""
    async with places(listed_after=READINGS) as here:
        await given(here)
        await lost(here, Fault.LOST_AFTER, readings=READINGS + 1)
        await here.pass_(WAITS + 1.0)
        assert (payout(1).request_id,) == (await here.look()).sent_again
        assert 2 == await run_again(here)
        assert [payout(1).request_id] == here.sandbox.duplicates()


@pytest.mark.parametrize("length", [len(payout(1).request_id) - 1])
async def test_a_listed_id_that_is_cut_off_may_be_its_own(places: Any, length: int) -> None:
    """A transaction that no order is known to have, under the beginning of its id: a person decides."""
    async with places(request_id_length=length) as here:
        await given(here)
        here.sandbox.script(Fault.LOST_AFTER, on="money", request_id=payout(1).request_id)
        async with here.session() as payments:
            known = [payout(9, request_id="short-9")]
            await run_batch(
                payments,
                here.journal,
                "batch 9",
                known,
                settings=RunSettings(testing=Testing(now=here.now), look_first="never"),
            )
            await run_batch(
                payments,
                here.journal,
                "batch 1",
                [payout(1)],
                settings=RunSettings(testing=Testing(now=here.now), look_first="never"),
            )
        await here.pass_(WAITS + 1.0)
        found = await here.look()
        assert ((payout(1).request_id,), ()) == (found.parked, found.sent_again)
        assert "no known order's" in await story(here.journal, payout(1).request_id)
        assert 1 == await run_again(here)


@pytest.mark.parametrize(
    "listed", [{"request_id": "made-up"}, {"request_id": payout(1).request_id[:-1], "amount": Decimal(777)}]
)
async def test_a_transaction_of_no_known_order_may_be_its_own(places: Any, listed: dict[str, Any]) -> None:
    """It is listed with the same amount, or under the beginning of its id."""
    async with places() as here:
        await given(here)
        await lost(here, Fault.LOST_BEFORE)
        async with here.session() as payments:
            await payments.payouts.send(payout(1, **listed))
        await here.pass_(WAITS + 1.0)
        found = await here.look()
        assert ((payout(1).request_id,), ()) == (found.parked, found.sent_again)


@pytest.mark.parametrize("wrong", [7200.0, -7200.0])
async def test_a_clock_that_is_wrong_afterwards_shortens_nothing(places: Any, wrong: float) -> None:
    """The time is that of the service's own clock, which dates its list: not of the machine that reads it."""
    async with places() as here:
        await given(here)
        await lost(here, Fault.LOST_AFTER if wrong < 0 else Fault.LOST_BEFORE)
        here.wrong = wrong
        await here.pass_(WITHIN / 2)
        assert ((), "unknown" if wrong > 0 else "successful") == ((await here.look()).sent_again, await here.state(1))


async def test_a_clock_that_was_behind_while_an_order_was_sent_shortens_nothing(places: Any) -> None:
    """Its permit is dated by the service's clock."""
    async with places() as here:
        await given(here)
        here.wrong = -7200.0
        await lost(here, Fault.LOST_BEFORE)
        here.wrong = 0.0
        await here.pass_(WITHIN / 2)
        assert () == (await here.look()).sent_again
        await here.pass_(WITHIN)
        assert (payout(1).request_id,) == (await here.look()).sent_again


async def test_an_outbox_sends_it_again_by_itself(places: Any) -> None:
    """Its settler reads the lists, and its workers send what was planned again."""
    async with places() as here, here.session() as payments:
        await given(here)
        async with Outbox(
            payments, here.journal, "shop", testing=Testing(now=here.now), worker=WorkerSettings(settles=False)
        ) as outbox:
            await outbox.pay(payout(9), timeout=60.0)
            here.sandbox.script(Fault.LOST_BEFORE, on="money", request_id=payout(1).request_id)
            assert "unknown" == (await outbox.pay(payout(1), timeout=60.0)).state
            sent_at = await here.sent_at(1)
            settler = Settler(
                payments, here.journal, "shop", owner="test", clock=here.now, ticks=here.right, sleep=here.pass_
            )
            await settler.turn()
            for _ in range(40):
                await here.pass_(300.0)
                await settler.turn()
                if settler._last is not None and settler._last.sent_again:
                    break
            else:
                pytest.fail("it was never sent again")
            assert here.right() >= sent_at + WAITS  # a worker may have sent it again by now
            while "accepted" != await here.state(1):  # workers ask again now and then
                await here.pass_(1.0)
                await asyncio.sleep(0.01)
        assert 1 == here.sandbox.executions(payout(1).request_id)


# --- what the journal asks for ----------------------------------------------------------------------------------------


async def unknown(journal: Journal, clock: Clock, count: int = 1) -> None:
    """Orders without a usable answer, and lists that were read late enough."""
    chunk = await claimed(journal, count)
    for place in range(count):
        await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=Signal.UNKNOWN))
    clock.pass_(WAITS + 60.0)


async def parked(journal: Journal, clock: Clock, number: int = 0, *, early: float = 0.0) -> str:
    """What becomes of an order that two lists miss, with what is kept of why."""
    request_id = order(number).request_id
    found = await journal.park(request_id, detail="not in 2 lists", since=clock() - 60.0 - early)
    return f"{found.state}: {await story(journal, request_id)}"


async def give(journal: Journal, clock: Clock, **changes: Any) -> None:
    """A clerk's word."""
    await journal.give_listing_deadline(deadline(clock(), **changes), who=CLERK, why=WHY)


async def test_it_ends_and_is_withdrawn(journal: Journal, clock: Clock) -> None:
    """Then orders are parked again, and the reason is kept; a new word holds for those that become unknown."""
    await give(journal, clock, until=clock() + 60.0)
    await unknown(journal, clock, 3)
    kept = await parked(journal, clock)
    assert (True, True) == (kept.startswith("parked"), "it ended on" in kept)
    await give(journal, clock)
    assert await journal.withdraw_listing_deadline("ugx", who=HEAD, why="the letter is old")
    assert not await journal.withdraw_listing_deadline("UGX", who=HEAD, why="the letter is old")
    kept = await parked(journal, clock, 1)
    assert (True, True) == (kept.startswith("parked"), "B. Head has withdrawn it (the letter is old)" in kept)
    await give(journal, clock)
    assert (await parked(journal, clock, 2)).startswith("planned")
    await journal.check()


async def test_how_many_and_how_much_is_limited(journal: Journal, clock: Clock) -> None:
    """The amount of one, the sum of all, and how many they are."""
    await unknown(journal, clock, 5)
    await give(journal, clock, amount=1000)
    assert "it is for orders of 1,000 at most" in await parked(journal, clock, 0)
    await give(journal, clock, total=2000)
    assert (await parked(journal, clock, 1)).startswith("planned")
    assert "with 1,001.50 that were sent again by it, this would be more than 2,000" in await parked(journal, clock, 2)
    await give(journal, clock, orders=1)
    assert (await parked(journal, clock, 3)).startswith("planned")
    assert "1 orders were sent again by it, and it allows no more" in await parked(journal, clock, 4)
    assert 2 == (await journal.progress()).counts[State.PLANNED]
    await journal.check()


async def test_it_is_for_orders_of_its_currency(journal: Journal, clock: Clock) -> None:
    """Of another one nothing is sent again, and nothing is said either."""
    await give(journal, clock, currency="KES")
    await unknown(journal, clock)
    kept = await parked(journal, clock)
    assert (True, False) == (kept.startswith("parked"), "listing deadline" in kept)


async def test_lists_that_were_read_too_early(journal: Journal, clock: Clock) -> None:
    """A quarter of an hour at least, whatever a person says."""
    await give(journal, clock, within=1.0)
    chunk = await claimed(journal, 1)
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.UNKNOWN))
    sent_at = clock()
    clock.pass_(10 * WAITS)
    request_id = order(0).request_id
    found = await journal.park(request_id, detail="", since=sent_at + 900.0 + 59.0)
    assert State.PARKED is found.state
    assert "no two lists are known to be read" in await story(journal, request_id)


async def test_only_parking_with_lists_that_are_known(journal: Journal, clock: Clock) -> None:
    """Who parks an order without saying which lists were read parks it."""
    await give(journal, clock)
    await unknown(journal, clock)
    assert State.PARKED is (await journal.park(order(0).request_id, detail="by hand")).state


async def test_an_order_that_is_not_unknown_any_more(journal: Journal, clock: Clock) -> None:
    """A person has one that is parked before them, and the service has one that it accepted meanwhile."""
    await unknown(journal, clock, 2)
    assert (await parked(journal, clock)).startswith("parked")
    has_it = Evidence(
        signal=Signal.LOOKED_UP_PROCESSING, source="list", request_id=order(1).request_id, amount=order(1).amount
    )
    await journal.apply_evidence(has_it)
    await give(journal, clock)
    assert (await parked(journal, clock)).startswith("parked")
    assert (await parked(journal, clock, 1)).startswith("accepted")


async def _another_attempt(journal: Journal, clock: Clock) -> None:
    await parked(journal, clock)
    chunk = await journal.claim_chunk(BATCH, "another")
    assert chunk is not None
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.UNKNOWN))
    clock.pass_(2 * WAITS)


async def _names_a_transaction(journal: Journal, _: Clock) -> None:
    seen = Evidence(
        signal=Signal.LOOKED_UP_FAILED, source="list", request_id=order(0).request_id, amount=Decimal(1),
        transaction_id=transaction_id(0),
    )  # fmt: skip
    await journal.apply_evidence(seen)


async def _is_notified(journal: Journal, _: Clock, request_id: str | None = "order's") -> None:
    fact = event(0, 0, request_id=request_id)
    await journal.receive_all(
        (Arrival(delivery=delivery(), event=fact, lease=30.0, doubt=Doubt.UNCONFIRMED),), owner="r"
    )


async def _is_notified_by_its_beginning(journal: Journal, clock: Clock) -> None:
    await _is_notified(journal, clock, order(0).request_id[:-1])


async def _is_notified_without_an_id(journal: Journal, clock: Clock) -> None:
    await _is_notified(journal, clock, None)


Meanwhile = Callable[[Journal, Clock], Awaitable[None]]
SPEAKS: list[Meanwhile] = [
    _another_attempt, _names_a_transaction, _is_notified_by_its_beginning, _is_notified_without_an_id
]  # fmt: skip


@pytest.mark.parametrize("meanwhile", SPEAKS)
async def test_nothing_else_may_speak_of_it(journal: Journal, clock: Clock, meanwhile: Meanwhile) -> None:
    """Nor may it have been sent again by the word before: each order is, once."""
    await give(journal, clock)
    await unknown(journal, clock)
    await meanwhile(journal, clock)
    kept = await parked(journal, clock)
    assert (True, True) == (kept.startswith("parked"), "something else speaks of the order" in kept)


async def test_an_answer_that_named_a_transaction(journal: Journal, clock: Clock) -> None:
    """It could not be used otherwise, but the service may have that transaction: a person decides."""
    await give(journal, clock)
    permit = await permitted(journal, await claimed(journal, 1))
    await journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN, transaction_id=transaction_id(0)))
    clock.pass_(WAITS + 60.0)
    assert "parked: " in await parked(journal, clock)


async def test_it_needs_the_approvals_and_keeps_needing_them(journal: Journal, clock: Clock) -> None:
    """Others approve this very word; taking that back stops it, and the same word anew is another one."""
    await journal.require_approvals(ApprovalRule(needed=1, why="four eyes", by=HEAD))
    terms = deadline(clock())

    async def asked() -> str:
        with pytest.raises(NotApproved) as error:
            await give_listing_deadline(journal, terms, CLERK, WHY)
        assert error.value.proposal is not None
        assert (2, Decimal(2500)) == (error.value.proposal.orders, error.value.proposal.amount)
        return error.value.proposal.digest

    digest = await asked()
    assert [] == list(await journal.listing_words())
    await journal.approve(digest, by=HEAD, note="read the letter")
    await give_listing_deadline(journal, terms, CLERK, WHY)
    assert digest != await asked()
    await journal.require_approvals(ApprovalRule(needed=0, why="loaded without", by=HEAD))
    await unknown(journal, clock, 2)
    await journal.require_approvals(ApprovalRule(needed=1, why="four eyes", by=HEAD))
    assert (await parked(journal, clock)).startswith("planned")
    await journal.withdraw_approval(digest, by=HEAD)
    kept = await parked(journal, clock, 1)
    assert (True, True) == (kept.startswith("parked"), "1 person other than A. Clerk must approve it" in kept)


@pytest.mark.parametrize("ahead", [0.0, -10 * WAITS, 10 * WAITS])
async def test_a_journal_that_was_put_back_forgets_it(home: Home, clock: Clock, ahead: float) -> None:
    """It may have been withdrawn since the backup, and orders were sent: only a word that is given anew holds.

    That is so wherever the clock stands on the machine that it is put back on, and once that is right again.
    """
    async with home.opens(clock=clock) as journal:
        await give(journal, clock)
        await unknown(journal, clock, 2)
    copied = home.copied()
    clock.pass_(ahead)
    async with copied(clock=clock) as journal:
        await journal.runs()
        clock.pass_(-ahead)
        (word,) = await journal.listing_words()
        assert "give it again" in (word.over or "")
        kept = await parked(journal, clock)
        assert (True, True) == (kept.startswith("parked"), "give it again" in kept)
        clock.pass_(1.0)
        await give(journal, clock)
        kept = await parked(journal, clock, 1)
        assert (True, True) == (kept.startswith("parked"), "sent before the journal was copied" in kept)


@pytest.mark.parametrize(
    "wrong", [{"within": 0.0}, {"orders": 0}, {"until": float("inf")}, {"amount": 0}, {"currency": " UGX"}]
)
def test_a_word_without_a_limit_is_none(wrong: dict[str, Any]) -> None:
    """Each of them is a number above zero, and finite; it is for orders, which have codes of three letters."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        attrs.evolve(deadline(0.0), **wrong)
