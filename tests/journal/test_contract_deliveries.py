"""What every journal promises of what waits for handlers: notifications and changes of orders wait in one queue."""

from collections.abc import Callable, Sequence

import attrs
import pytest
from journal.conftest import Opens
from journal.factories import Clock, delivery, event, in_outbox, permitted, transaction_id

from payments_async.journal import Journal, Signal, State
from payments_async.journal.contract import Arrival, Doubt, Outcome

DAYS = 3e5  # seconds
LEASE = 90.0


@attrs.frozen
class Queue:
    """One of the two, of a journal: what waits there has an id, and handlers."""

    kind: str
    journal: Journal

    async def fill(self, count: int) -> None:
        """So many deliveries that are leased to nobody."""
        if self.kind == "inbox":
            for number in range(count):
                await self.journal.receive(delivery(b"%d" % number), event(0, number), owner="r", lease=0)
            return
        await self.journal.hear("shop", [State.ACCEPTED])
        chunk = await in_outbox(self.journal, count)
        for place in range(count):
            permit = await permitted(self.journal, chunk, place)
            named = transaction_id(place)
            await self.journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=named))

    async def claim(self, owner: str = "me") -> Sequence[int]:
        if self.kind == "inbox":
            return [one.event_id for one in await self.journal.claim(owner, lease=LEASE, limit=10)]
        claimed = await self.journal.claim_changes("shop", [State.ACCEPTED], owner, lease=LEASE, limit=10)
        return [one.id for one in claimed]

    async def handled(self, number: int) -> None:
        if self.kind == "inbox":
            await self.journal.receive_all((), owner="r", handled=[number])
        else:
            await self.journal.finish_changes([number])

    async def bury(self, number: int) -> None:
        if self.kind == "inbox":
            await self.journal.finish(number, "dead", error="no")
        else:
            await self.journal.finish_changes([number], "dead", error="no")

    async def retry(self, number: int, delay: float = 0.0) -> None:
        if self.kind == "inbox":
            await self.journal.retry_later(number, delay=delay, error="no")
        else:
            await self.journal.retry_change(number, delay=delay, error="no")

    async def note_done(self, number: int, handler: str) -> None:
        if self.kind == "inbox":
            await self.journal.note_done(number, handler)
        else:
            await self.journal.note_change_done(number, handler)

    async def revive(self) -> int:
        return await (self.journal.revive() if self.kind == "inbox" else self.journal.revive_changes())

    async def done(self) -> frozenset[str]:
        """Who has finished with the first that is due, which is claimed."""
        if self.kind == "inbox":
            return (await self.journal.claim("me", lease=LEASE, limit=1))[0].done
        return (await self.journal.claim_changes("shop", [State.ACCEPTED], "me", lease=LEASE, limit=1))[0].done

    async def left(self) -> tuple[int, int]:
        """How many wait, and how many are dead letters."""
        backlog = await (self.journal.backlog() if self.kind == "inbox" else self.journal.change_backlog("shop"))
        return backlog.pending, backlog.dead


@pytest.fixture(params=["inbox", "outbox"])
def of(request: pytest.FixtureRequest) -> Callable[[Journal], Queue]:
    """One of the queues, of a journal."""
    return lambda journal: Queue(request.param, journal)


async def test_who_has_lost_a_lease_ends_nothing(opens: Opens, clock: Clock, of: Callable[[Journal], Queue]) -> None:
    """Whatever it says late, about what another one has by now: that one has the next word, and hears who finished."""
    async with opens() as late_journal, opens() as journal:
        late, queue = of(late_journal), of(journal)
        await late.fill(1)
        (number,) = await late.claim()
        clock.pass_(LEASE + 1)
        assert [number] == await queue.claim()
        await late.note_done(number, "first")
        for end in (late.bury, late.retry, late.handled):
            await end(number)
            assert (1, 0) == await queue.left()
            assert [] == await queue.claim()  # nor is it anybody's
        await queue.retry(number)
        assert {"first"} == await queue.done()
        await queue.handled(number)
        assert (0, 0) == await queue.left()


async def test_a_lease_that_ran_out_is_its_holders_until_another_has_it(
    opens: Opens, clock: Clock, of: Callable[[Journal], Queue]
) -> None:
    """What its handlers have come to counts: nobody else has begun."""
    async with opens() as journal:
        queue = of(journal)
        await queue.fill(3)
        ended, failed, dead = await queue.claim()
        clock.pass_(LEASE + 1)
        await queue.handled(ended)
        await queue.retry(failed)
        await queue.bury(dead)
        assert (1, 1) == await queue.left()
        assert [failed] == await queue.claim()


async def test_what_ended_stays_ended(opens: Opens, of: Callable[[Journal], Queue]) -> None:
    """A dead letter is revived by a person alone, and what was handled comes back by nothing."""
    async with opens() as journal:
        queue = of(journal)
        await queue.fill(2)
        handled, dead = await queue.claim()
        await queue.handled(handled)
        await queue.bury(dead)
        for number in (handled, dead):
            for again in (queue.handled, queue.retry):
                await again(number)
        await queue.bury(handled)
        assert (0, 1) == await queue.left()
        assert [] == await queue.claim()
        assert 1 == await queue.revive()
        assert [dead] == await queue.claim()


async def test_what_was_leased_or_put_off_while_the_clock_was_ahead(
    opens: Opens, clock: Clock, of: Callable[[Journal], Queue]
) -> None:
    """Once the clock is right it waits for as long as it was to wait, and not until that time is reached."""
    async with opens() as journal:
        queue = of(journal)
        await queue.fill(2)
        clock.pass_(DAYS)
        leased, put_off = await queue.claim()
        await queue.retry(put_off, delay=600)
        clock.pass_(-DAYS)
        assert [] == await queue.claim()  # from now on it waits
        clock.pass_(LEASE + 1)
        assert [leased] == await queue.claim()
        await queue.handled(leased)
        clock.pass_(600)
        assert [put_off] == await queue.claim()


async def test_a_long_wait_that_was_asked_for_is_waited_for(
    opens: Opens, clock: Clock, of: Callable[[Journal], Queue]
) -> None:
    """However long: only what no clock that is right could have written is brought forward."""
    async with opens() as journal:
        queue = of(journal)
        await queue.fill(1)
        (number,) = await queue.claim()
        await queue.retry(number, delay=DAYS)
        clock.pass_(DAYS - 1)
        assert [] == await queue.claim()
        clock.pass_(2)
        assert [number] == await queue.claim()


async def test_a_dead_letter_that_a_better_delivery_bears_out_waits_again(opens: Opens) -> None:
    """Its rounds ran out while the service bore nothing out; now a sender tells of it whose word counts."""
    async with opens() as journal:
        doubted = Arrival(delivery=delivery(), event=event(0), lease=LEASE, doubt=Doubt.UNCONFIRMED)
        (receipt,) = await journal.receive_all([doubted], owner="r")
        assert not isinstance(receipt, Exception)
        await journal.finish(receipt.event_id, "dead", error="no such transaction")
        await journal.receive(delivery(), event(0), owner="r", lease=0)
        assert [(receipt.event_id, None)] == [
            (one.event_id, one.doubt) for one in await journal.claim("r", lease=LEASE, limit=10)
        ]
