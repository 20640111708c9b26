"""Small worlds of single orders that are put: what was heard of them before, who holds them, what others keep of them.

The desk keeps what lists, notifications, the session and other journals know of an order, and who holds its chunk. An
order that any of them knows is not to be sent from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import attrs
from explorer.desks import NOON, Desk, Step
from explorer.journals import at_once
from journal.factories import BATCH, IDENTITY, delivery, event, order, transaction_id

from payments_async.journal import HeldElsewhere, JournalRefused, Signal, State, TakeoverAuthorisation
from payments_async.journal._inbox import Arrival
from payments_async.journal.contract import Chunk, Evidence, Permit, Placed

LEASE = 30.0
MINE = TakeoverAuthorisation(who="Ann", why="its disk burnt")
SHIFTED = attrs.evolve(order(1), request_id=order(1).request_id.upper())
HEARD = "a list shows order 1", "order 1 is notified", "the session sends order 1"


@attrs.frozen(kw_only=True)
class Known:
    """What is known beside the journal.

    Attributes:
        known: Why order 1 is not to be sent: all who know of it.
        chunks: Each that was given to who works the outbox; ``holder`` is the number of the one that stands.
        until: When its lease is over.
        answered: Orders that a put was answered with: id and amount.
        permits: Orders that were permitted.
        restored: The journal was put back.
    """

    now: float = NOON
    known: frozenset[str] = frozenset()
    chunks: tuple[tuple[str, Chunk], ...] = ()
    until: float = 0.0
    answered: frozenset[tuple[str, str]] = frozenset()
    permits: tuple[Permit, ...] = ()
    acted: frozenset[str] = frozenset()
    state: str = ""
    unlisted: bool = False


Act: TypeAlias = Callable[[Known], "Known | None"]


class Registry:
    """Another journal of this machine, and what this one registered before it was put back."""

    def __init__(self, desk: Puts) -> None:
        self._desk = desk

    def check(self) -> None:
        """All orders of the outbox may be another journal's."""
        if "another journal adopts all" in self._desk.acted:
            raise HeldElsewhere("another journal has adopted them")

    def __call__(
        self, request_ids: Sequence[str], adopted: Collection[str], doubted_at: float | None, of: object, /
    ) -> Mapping[str, HeldElsewhere]:
        """Those that another journal holds, or this one held before it was put back."""
        acted, one = self._desk.acted, order(1).request_id
        is_held = "another journal holds order 1" in acted
        is_held = is_held or ("it had order 1 before" in acted and doubted_at is not None)
        return {one: HeldElsewhere("another journal", [one])} if is_held and one in request_ids else {}


class Puts(Desk):
    """One outbox, two owners, and orders that are put in every way."""

    def __init__(
        self, name: str, *, may: Iterable[str], ways: Iterable[str] = ("planned", "permitted"), puts: int = 2
    ) -> None:
        super().__init__(name)
        self._may, self._ways, self._puts = tuple(may), tuple(ways), puts
        self.acted: frozenset[str] = frozenset()

    def first(self) -> Known:
        """An outbox without orders."""
        at_once(self.journal.open_outbox(BATCH, IDENTITY))
        self.journal.connection.execute("UPDATE run SET uid = ''")
        self.journal._registrars[BATCH] = Registry(self)  # type: ignore[assignment]
        return Known()

    def steps(self, facts: Known) -> Iterator[Step]:
        """All that may happen; most of it once."""
        for words, act in self._steps(facts):
            yield words, partial(self._done, words, act, facts)

    def _steps(self, facts: Known) -> Iterator[tuple[str, Act]]:
        orders = {"1": order(1)}
        orders |= {"1 of another amount": order(1, "7.00")} if "another amount" in self._may else {}
        orders |= {"1 in other letters": SHIFTED} if "other letters" in self._may else {}
        orders |= {"2": order(2)} if "two" in self._may else {}
        for words, one in orders.items():
            for way in self._ways:
                yield f"order {words} is put, {way}", partial(self._put, one, way)
        once: dict[str, Act] = {
            "a list shows order 1": self._show, "order 1 is notified": self._notify,
            "the session sends order 1": partial(self._hear, "the session"),
            "another journal holds order 1": partial(self._hear, "another journal"),
            "it had order 1 before": partial(self._hear, "this journal before"),
            "another journal adopts all": partial(self._hear, "another journal, of all"),
            "order 1 leaves for an archive": self._archive, "the journal is put back": self._put_back,
            "31 seconds pass": self._pass, "b claims the chunk": self._claim, "a gives its chunk back": self._release,
        }  # fmt: skip
        for words, act in once.items():
            if words in self._may and words not in facts.acted:
                yield words, act

    def _done(self, words: str, act: Act, facts: Known) -> Known | None:
        self.acted, self.put, self.moved_by = facts.acted, None, words
        if " is put, " not in words:
            facts = attrs.evolve(facts, acted=facts.acted | {words})
        elif sum(1 for one in facts.acted if " is put, " in one) >= self._puts and words not in facts.acted:
            return None
        else:
            facts = attrs.evolve(facts, acted=facts.acted | {words})
        try:
            after = act(facts)
        except JournalRefused as refusal:
            self.put = refusal if " is put, " in words else None
            after = facts
        return after and attrs.evolve(after, state=self.states().get(order(1).request_id, ""))

    # what is put

    def _put(self, one: object, way: str, facts: Known) -> Known | None:
        journal = self.journal
        journal.moment.holder = "a"
        chunk = next((held for who, held in reversed(facts.chunks) if who == "a"), None)
        sent = None
        if "the session" in facts.known and one.request_id == order(1).request_id:  # type: ignore[attr-defined]
            sent = Evidence(
                signal=Signal.ACCEPTED, source="session", request_id=order(1).request_id, amount=order(1).amount,
                transaction_id=transaction_id(1),
            )  # fmt: skip
        of = {"owner": "a", "chunk": chunk, "permits": True} if way in ("permitted", "later") else {}
        later = facts.now + 20.0 if way == "later" else 0.0
        adoption = MINE if way == "adopted" else None
        placed = at_once(
            journal.put(BATCH, one, sent=sent, lease=LEASE, not_before=later, adoption=adoption, **of)  # type: ignore[arg-type]
        )
        self.put = placed
        facts = attrs.evolve(facts, answered=facts.answered | {(one.request_id, str(one.amount))})  # type: ignore[attr-defined]
        if way == "adopted" and placed.is_new:
            facts = attrs.evolve(facts, known=facts.known | {"an adoption"})
        if placed.chunk is not None and placed.chunk != chunk:
            facts = attrs.evolve(
                facts, chunks=(*self._lapsed(facts), ("a", placed.chunk)), until=facts.now + LEASE
            )  # fmt: skip
        if placed.permit is not None:
            facts = attrs.evolve(facts, permits=(*facts.permits, placed.permit))
        return facts

    def _lapsed(self, facts: Known) -> tuple[tuple[str, Chunk], ...]:
        return facts.chunks

    # what is heard

    def _hear(self, who: str, facts: Known) -> Known:
        return attrs.evolve(facts, known=facts.known | {who})

    def _show(self, facts: Known) -> Known:
        one = order(1)
        shown = Evidence(
            signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", request_id=one.request_id, amount=one.amount,
            transaction_id=transaction_id(1), currency="UGX",
        )  # fmt: skip
        at_once(self.journal.note_observed([shown]))
        return self._hear("a list", facts)

    def _notify(self, facts: Known) -> Known:
        arrival = Arrival(delivery=delivery(b"1", at=facts.now), event=event(0, 1), lease=0.0, doubt=None)
        at_once(self.journal.receive_all((arrival,), owner="receiver"))
        return self._hear("a notification", facts)

    def _archive(self, facts: Known) -> Known | None:
        """By the statements that archive, all that may leave."""
        journal = self.journal
        journal.moment.now += 10.0
        pages = journal.old_orders(older_than=1.0)
        old = at_once(_first(pages))
        if not old:
            return None
        number = at_once(journal.begin_archive("old.db", who="Ann", why="room"))
        if not at_once(journal.prune_orders(number, old)):
            return None
        at_once(journal.end_archive(number))
        return attrs.evolve(facts, known=facts.known | {"an archive"})

    def _put_back(self, facts: Known) -> Known:
        self.journal.quarantine()
        return attrs.evolve(facts, until=0.0, unlisted=True)

    def _pass(self, facts: Known) -> Known:
        return attrs.evolve(facts, now=facts.now + LEASE + 1)

    def _claim(self, facts: Known) -> Known | None:
        self.journal.moment.holder = "b"
        chunk = at_once(self.journal.claim_chunk(BATCH, "b", lease=LEASE))
        if chunk is None:
            return None
        return attrs.evolve(facts, chunks=(*facts.chunks, ("b", chunk)), until=facts.now + LEASE)

    def _release(self, facts: Known) -> Known | None:
        held = [chunk for who, chunk in facts.chunks if who == "a"]
        if not held:
            return None
        at_once(self.journal.release_chunk(held[-1]))
        return facts

    # rules

    def wrong(self, before: Known, after: Known) -> Iterator[str]:
        """What is answered is stored, and is the same; what others know is never sent; permits are their holder's."""
        stored = dict(self.rows("SELECT request_id, amount FROM outbox"))
        for request_id, amount in after.answered:
            if stored.get(request_id) != amount:
                yield f"a put of {request_id}, {amount} was answered, and the journal holds {stored.get(request_id)}"
        if len({request_id.lower() for request_id in stored}) < len(stored):
            yield "two orders differ in letters alone"
        was_put = " is put, " in self.moved_by
        if after.state == State.PLANNED and self._must_stand(before, after):
            yield f"order 1 may be sent, and is known to {', '.join(sorted(after.known))}"
        if was_put and isinstance(self.put, Placed):
            yield from self._of_placed(before, after, self.put)
        elif was_put and isinstance(self.put, Exception) and not self._may_be_refused(before):
            yield f"an order is refused though nothing speaks against it: {self.put}"
        if before.state == State.SENDING != after.state and self.moved_by == "a list shows order 1":
            yield "order 1 was being sent, and a list has moved it"
        if "an archive" in before.known:
            if before.state != after.state:
                yield f"order 1 had left as {before.state}, and is {after.state}"
            if self.rows("SELECT 1 FROM outbox WHERE archive IS NOT NULL AND CAST(body AS TEXT) LIKE '%Grace%'"):
                yield "an order that had left is there again, and what it says of a person"

    def _must_stand(self, before: Known, after: Known) -> bool:
        """Whether the journal was told of order 1 by any way that reaches it."""
        told = after.known & {"a list", "a notification", "an archive", "an adoption"}
        by_put = self.moved_by.startswith("order 1 is put") and isinstance(self.put, Placed)
        if by_put and after.known & {"the session"}:
            return True
        # what another journal holds is refused as long as it is new
        new = not before.state and bool(after.state)
        held = {"another journal", "another journal, of all"} | ({"this journal before"} if after.unlisted else set())
        return bool(told or (new and after.known & held and not after.known & {"a list"}))

    def _of_placed(self, before: Known, after: Known, placed: Placed) -> Iterator[str]:
        permit, chunk = placed.permit, placed.chunk
        if placed.entry.request_id == order(1).request_id and permit is not None and before.known:
            reached = before.known - {"another journal", "another journal, of all", "this journal before"}
            if reached:
                yield f"order 1 is permitted, and known to {', '.join(sorted(reached))}"
        if permit is not None and self.moved_by.endswith("later"):
            yield "an order is permitted before its time"
        if permit is not None and "the journal is put back" in before.acted:
            yield "an order is permitted by a journal that was put back, and no list was read"
        if permit is not None and before.chunks and chunk == before.chunks[-1][1] and before.until <= before.now:
            yield "an order is permitted by a lease that is over"
        if chunk is not None and placed.is_new:
            at = self.rows(f"SELECT token, owner FROM chunk WHERE run = {chunk.run} AND number = {chunk.number}")
            if at != [(chunk.token, chunk.owner)]:
                yield "an order is put into a chunk that another holds"

    def _may_be_refused(self, before: Known) -> bool:
        if "amount" in self.moved_by or "letters" in self.moved_by or "two" in self._may:
            return bool(before.answered) or bool(before.known)
        return bool(before.known & {"another journal", "another journal, of all", "this journal before"}) or any(
            "amount" in one or "letters" in one for one in before.acted
        )


async def _first(pages: object) -> Sequence[object]:
    async for page in pages:  # type: ignore[attr-defined]
        return page  # type: ignore[no-any-return]
    return ()


def desks() -> tuple[Callable[[], Desk], ...]:
    """All worlds of puts, to be made one by one."""
    return (
        partial(Puts, "heard of before", may=HEARD),
        partial(Puts, "the same, and others", may=("another amount", "other letters", "31 seconds pass"), puts=3),
        partial(
            Puts, "archived", may=(HEARD[0], HEARD[2], "order 1 leaves for an archive", "two"), puts=3,
        ),
        partial(
            Puts, "held by another journal", ways=("planned", "permitted", "adopted"),
            may=(
                *("another journal holds order 1", "it had order 1 before", "the journal is put back"),
                "a list shows order 1",
            ),
        ),
        partial(Puts, "an outbox of another journal", may=("another journal adopts all", "two")),
        partial(
            Puts, "leases", ways=("permitted", "later"), puts=3,
            may=("two", "31 seconds pass", "b claims the chunk", "the journal is put back"),
        ),
    )  # fmt: skip
