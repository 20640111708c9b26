"""Small worlds of leases and permits, in which whoever once held something may use it again at any time.

Each lease and each permit that was ever given may be brought again, in any sequence, also after the journal was put
back; what workers say of their attempts is true. The desk keeps who holds what, and what the service carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import partial
from typing import TypeAlias

import attrs
from explorer.desks import NOON, Desk, Step
from explorer.journals import Image, at_once
from journal.factories import BATCH, IDENTITY, delivery, event, order, transaction_id

from payments_async._wire.bodies import write_order
from payments_async.journal import JournalError, Signal, State
from payments_async.journal._inbox import Arrival, Doubt
from payments_async.journal._records import Remains, digest_of_owner
from payments_async.journal._statements import _permits
from payments_async.journal._statements._entries import chunk_of, run_of
from payments_async.journal.contract import Chunk, ClaimedOrder, Evidence, Outcome, Permit

LEASE = 30.0
DAY = 86_400.0
OTHER = "shop"
HELD, UNSENT, REFUSED, PAID = "held", "unsent", "refused", "paid"  # what became of a permit
SAID = {UNSENT: (Signal.NOT_SENT, Signal.UNKNOWN), REFUSED: (Signal.REJECTED,), PAID: (Signal.ACCEPTED, Signal.UNKNOWN)}
_EDITS = ("the amount is edited", "the order is edited")


@attrs.frozen
class Lease:
    """A lease that was given: the chunk as its owner knows it, until when it is good, and whether it is the last."""

    chunk: Chunk
    until: float
    stands: bool = True


@attrs.frozen
class Given:
    """A permit that was granted, what became of it, and how often its end was written down."""

    permit: Permit
    lease: int
    fate: str = HELD
    said: tuple[Signal, ...] = ()
    stands: bool = True  # it is the last of its order, as far as the journal remembers


@attrs.frozen(kw_only=True)
class Leased:
    """What is known beside the journal.

    Attributes:
        now: The journal's clock; ``passed`` are the seconds that have gone by in truth.
        leases, given: All there ever were, the oldest first.
        copied: The number of a copy of the journal that was made, with what stood then.
        acted: What happened, each once.
        words: A person said that the order never arrived.
        told: Somebody else has sent order 1 under our id, and the journal was told so.
        held_back: The order cannot be sent as it is, and was not put again.
        state: How order 1 stands.
    """

    now: float = NOON
    passed: float = 0.0
    leases: tuple[Lease, ...] = ()
    given: tuple[Given, ...] = ()
    copied: int = -1
    acted: frozenset[str] = frozenset()
    words: int = 0
    told: bool = False
    archived: bool = False
    held_back: bool = False
    state: str = ""


Act: TypeAlias = Callable[[Leased], "Leased | None"]


class Leases(Desk):
    """One order, its outbox, another outbox, two owners, and all that they ever held."""

    def __init__(
        self, name: str, *, may: Iterable[str] = (), claims: int = 2, permits: int = 2, passes: int = 1, says: int = 2,
        fates: Iterable[str] = (UNSENT, PAID), owners: Iterable[str] = ("a", "b"),
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._may, self._claims, self._permits, self._passes, self._says = frozenset(may), claims, permits, passes, says
        self._fates, self._owners = tuple(fates), tuple(owners)
        self._copies: list[Image] = []
        self._put = {one.request_id: one for one in (order(1), order(1, batch=OTHER))}

    def first(self) -> Leased:
        """Two outboxes, each with an order that was put."""
        for name in (BATCH, OTHER) if "stray" in self._may else (BATCH,):
            at_once(self.journal.open_outbox(name, IDENTITY))
            at_once(self.journal.put(name, order(1, batch=name)))
        self.journal.connection.execute("UPDATE run SET uid = ''")
        return Leased(state=State.PLANNED)

    def steps(self, facts: Leased) -> Iterator[Step]:
        """All that may happen next."""
        for words, act in self._steps(facts):
            yield words, partial(self._done, act, facts)

    def _done(self, act: Act, facts: Leased) -> Leased | None:
        self.refused, self.told, self.is_misplaced = False, None, False
        try:
            after = act(facts)
        except JournalError:
            return None
        return after and attrs.evolve(after, state=self.states()[order(1).request_id])

    def _steps(self, facts: Leased) -> Iterator[tuple[str, Act]]:
        may = self._may
        if len(facts.leases) < self._claims:
            for owner in self._owners:
                yield f"{owner} claims a chunk", partial(self._claim, owner, BATCH)
            if "stray" in may and not any(one.chunk.batch_id == OTHER for one in facts.leases):
                yield "a claims a chunk of the other outbox", partial(self._claim, "a", OTHER)
        for place, lease in enumerate(facts.leases):
            who = f"{lease.chunk.owner}, by lease {place}"
            if len(facts.given) < self._permits:
                yield f"{who}, asks for a permit", partial(self._permit, place)
            if "release" in may:
                yield f"{who}, gives its chunk back", partial(self._release, place)
            if "renew" in may:
                yield f"{who}, prolongs it", partial(self._renew, place)
            if "die" in may and not any(self._is_of(facts, lease, one) for one in facts.given):
                yield f"{who}, died, and nothing had left", partial(self._die, place)
        for place, given in enumerate(facts.given):
            yield from self._of_permit(facts, place, given)
        if facts.held_back:
            yield "the order is put again", self._put_again
        if facts.passed < self._passes * (LEASE + 1):
            yield "31 seconds pass", partial(self._pass, LEASE + 1)
        if "expire" in may:
            yield "chunks are given up", self._expire
        once: dict[str, Act] = {
            "the clock is a day ahead": partial(self._set, DAY), "the clock is right": partial(self._set, -DAY),
            "copy": self._copy, "put back": self._put_back,
            "put back unnoticed": partial(self._put_back, is_noticed=False), "lift": self._lift,
            "archive": self._archive, "the amount is edited": partial(self._edit, "amount", "9.00"),
            "the order is edited": partial(self._edit, "body", write_order(order(2))),
            "a list shows another amount": partial(self._tell, by="list"),
            "a list shows it": partial(self._tell, by="list", amount=order(1).amount),
            "a sender that nobody knows tells of it": partial(self._tell, by="sender"),
        }  # fmt: skip
        for words, act in once.items():
            if words in may and words not in facts.acted:
                yield words, partial(self._once, words, act)

    def _is_of(self, facts: Leased, lease: Lease, given: Given) -> bool:
        """Whether a permit that may have left is one of a lease, by its owner and number."""
        by = facts.leases[given.lease].chunk
        return given.fate != UNSENT and (by.owner, by.token) == (lease.chunk.owner, lease.chunk.token)

    def _of_permit(self, facts: Leased, place: int, given: Given) -> Iterator[tuple[str, Act]]:
        who = f"permit {place}"
        if given.fate == HELD:
            for fate in self._fates:
                yield f"{who}: {fate}", partial(self._end, place, fate)
            if "cancel" in self._may:
                yield f"{who} never reached its caller", partial(self._withdraw, place)
            return
        if "hold back" in self._may and given.fate == UNSENT and not given.said:
            yield f"{who} cannot be used for the order as it is", partial(self._hold_back, place)
        for signal in SAID[given.fate]:
            # who has said that a request may have left says so only once, unless it proves the contrary
            if len(given.said) < self._says and (signal not in given.said or given.fate == UNSENT):
                yield f"{who} is said to be {signal}", partial(self._say, place, signal)
        if given.said == (Signal.UNKNOWN,) and given.fate == PAID and "contradict" in self._may:
            yield f"{who} is said to be not_sent after all", partial(self._say, place, Signal.NOT_SENT)

    def _once(self, words: str, act: Act, facts: Leased) -> Leased | None:
        return act(attrs.evolve(facts, acted=facts.acted | {words}))

    # leases

    def _claim(self, owner: str, batch: str, facts: Leased) -> Leased | None:
        self.journal.moment.holder = owner
        chunk = at_once(self.journal.claim_chunk(batch, owner, lease=LEASE))
        self.refused = chunk is None
        if chunk is None:
            return self._looked(facts)
        facts = self._taken(facts, batch)
        return attrs.evolve(facts, leases=(*facts.leases, Lease(chunk, facts.passed + LEASE)))

    def _taken(self, facts: Leased, batch: str = "") -> Leased:
        """Those leases of an outbox stand no more, or of all."""
        leases = (
            attrs.evolve(one, stands=one.stands and batch not in ("", one.chunk.batch_id)) for one in facts.leases
        )
        return attrs.evolve(facts, leases=tuple(leases))

    def _looked(self, facts: Leased) -> Leased:
        """A lease by a clock that was ahead is good for its own length from when that is noticed."""
        until = facts.passed + LEASE
        leases = (attrs.evolve(one, until=min(one.until, until)) for one in facts.leases)
        return attrs.evolve(facts, leases=tuple(leases))

    def _change(self, facts: Leased, place: int, **changes: object) -> Leased:
        leases = list(facts.leases)
        leases[place] = attrs.evolve(leases[place], **changes)  # type: ignore[arg-type]
        return attrs.evolve(facts, leases=tuple(leases))

    def _release(self, place: int, facts: Leased) -> Leased:
        at_once(self.journal.release_chunk(facts.leases[place].chunk))
        return self._change(facts, place, stands=False)

    def _renew(self, place: int, facts: Leased) -> Leased:
        at_once(self.journal.renew_chunk(facts.leases[place].chunk, lease=LEASE))
        return self._change(facts, place, until=facts.passed + LEASE)

    def _expire(self, facts: Leased) -> Leased:
        at_once(self.journal.expire_chunks(BATCH))
        facts = self._looked(facts)
        leases = (attrs.evolve(one, stands=one.stands and one.until > facts.passed) for one in facts.leases)
        return attrs.evolve(facts, leases=tuple(leases))

    def _die(self, place: int, facts: Leased) -> Leased:
        """What its departure record says is written down by the next process."""
        chunk = facts.leases[place].chunk
        left = Remains(chunk.run, chunk.number, chunk.token, digest_of_owner(chunk.owner), bytes(8))
        self.journal._submit("record_unsent", _permits.record_unsent, [left]).result()
        return facts

    # permits

    def _permit(self, place: int, facts: Leased) -> Leased | None:
        chunk = facts.leases[place].chunk
        (number, body, amount) = self.rows("SELECT id, body, amount FROM outbox ORDER BY id LIMIT 1")[0]
        claimed = next(iter(chunk.orders), None)
        if claimed is None or chunk.batch_id == OTHER:
            one = order(1)
            claimed = ClaimedOrder(id=number, request_id=one.request_id, amount=Decimal(amount), body=body, attempt=0)
        permit = at_once(self.journal.permit(chunk, claimed))
        if not isinstance(permit, Permit):
            return None
        before = (attrs.evolve(one, stands=False) for one in facts.given)
        return attrs.evolve(facts, given=(*before, Given(permit, place)))

    def _mend(self, facts: Leased, place: int, **changes: object) -> Leased:
        given = list(facts.given)
        given[place] = attrs.evolve(given[place], **changes)  # type: ignore[arg-type]
        return attrs.evolve(facts, given=tuple(given))

    def _end(self, place: int, fate: str, facts: Leased) -> Leased:
        return self._mend(facts, place, fate=fate)

    def _withdraw(self, place: int, facts: Leased) -> Leased:
        given, before = facts.given[place], self._trail()
        self.journal._submit("withdraw", _permits.withdraw, given.permit, "cancelled").result()
        self.is_misplaced = not given.stands and self._trail() != before
        return self._mend(facts, place, fate=UNSENT, said=(Signal.NOT_SENT,) * self._says)

    def _trail(self) -> list[tuple[int, ...]]:
        """How much is on record of all attempts."""
        return self.rows("SELECT (SELECT count(*) FROM evidence), (SELECT count(*) FROM attempt)")

    def _say(self, place: int, signal: Signal, facts: Leased) -> Leased:
        given = facts.given[place]
        transaction = transaction_id(1 + place) if signal is Signal.ACCEPTED else None
        outcome = Outcome(permit=given.permit, signal=signal, transaction_id=transaction)
        self.told = at_once(self.journal.record(outcome))
        return self._mend(facts, place, said=(*given.said, signal))

    def _hold_back(self, place: int, facts: Leased) -> Leased | None:
        permit = facts.given[place].permit
        at_once(
            self.journal.record(Outcome(permit=permit, signal=Signal.NOT_SENT, message="too long", holds_back=True))
        )
        if self.states()[order(1).request_id] != State.PLANNED:
            return None
        return self._mend(attrs.evolve(facts, held_back=True), place, said=(Signal.NOT_SENT,))

    def _put_again(self, facts: Leased) -> Leased:
        at_once(self.journal.put(BATCH, order(1)))
        return attrs.evolve(facts, held_back=False)

    # time, files and what others say

    def _pass(self, seconds: float, facts: Leased) -> Leased:
        return attrs.evolve(facts, now=facts.now + seconds, passed=facts.passed + seconds)

    def _set(self, seconds: float, facts: Leased) -> Leased | None:
        if seconds < 0 and "the clock is a day ahead" not in facts.acted:
            return None
        now = facts.now + seconds
        leases = (
            attrs.evolve(one, until=float("inf")) if one.chunk.lease_until > now + LEASE else one
            for one in facts.leases
        )
        return attrs.evolve(facts, now=now, leases=tuple(leases))

    def _copy(self, facts: Leased) -> Leased | None:
        if facts.leases and "put back unnoticed" in self._may:
            return None  # then nothing stands that stood before
        image = self.journal.image()
        if image not in self._copies:
            self._copies.append(image)
        return attrs.evolve(facts, copied=self._copies.index(image))

    def _put_back(self, facts: Leased, *, is_noticed: bool = True) -> Leased | None:
        if facts.copied < 0:
            return None
        self.journal.restore(self._copies[facts.copied])
        self.journal.touched()
        if is_noticed:
            self.journal.quarantine()
        given = (attrs.evolve(one, stands=False) for one in facts.given)
        # what was granted before is as unknown to a journal that notices nothing as to a person whose word is wrong
        facts = facts if is_noticed else attrs.evolve(self._pass(1.0, facts), words=facts.words + 1)
        return attrs.evolve(self._taken(facts), copied=-1, given=tuple(given))

    def _lift(self, facts: Leased) -> Leased | None:
        if "put back" not in facts.acted:
            return None
        planned = [one for one, state in self.states().items() if state == State.PLANNED]
        at_once(self.journal.lift_quarantine(BATCH, who="Ann", why="they never had it", request_ids=planned))
        return attrs.evolve(facts, words=facts.words + 1)

    def _archive(self, facts: Leased) -> Leased | None:
        is_shown = self.rows("SELECT 1 FROM outbox WHERE conflict IS NOT NULL")
        if is_shown or facts.state not in (State.SUCCESSFUL, State.REJECTED, State.FAILED):
            return None
        connection = self.journal.connection
        connection.execute("INSERT INTO archive (id, path, who, why, begun_at) VALUES (1, 'old.db', 'a', 'b', 0)")
        connection.execute("UPDATE outbox SET archive = 1 WHERE request_id = ?", (order(1).request_id,))
        return attrs.evolve(facts, archived=True)

    def _edit(self, column: str, value: object, facts: Leased) -> Leased:
        self.journal.connection.execute(f"UPDATE outbox SET {column} = ?", (value,))
        return facts

    def _tell(self, facts: Leased, *, by: str, amount: Decimal = Decimal(3)) -> Leased:
        """Somebody else has sent an order under our id."""
        if by == "list":
            one = order(1)
            found = Evidence(
                signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", request_id=one.request_id, amount=amount,
                transaction_id=transaction_id(77),
            )  # fmt: skip
            at_once(self.journal.apply_evidence(found))
        else:
            told = event(0, 1, transaction=transaction_id(78))
            arrival = Arrival(delivery=delivery(b"x", at=facts.now), event=told, lease=0.0, doubt=Doubt.UNCONFIRMED)
            at_once(self.journal.receive_all((arrival,), owner="receiver"))
        return attrs.evolve(facts, told=True)

    # rules

    def wrong(self, before: Leased, after: Leased) -> Iterator[str]:
        """A permit is one at a time, for its holder alone; what may have arrived is neither planned nor refused."""
        was, state = before.state, after.state
        may_be_there = [one for one in after.given if one.fate in (HELD, PAID)]
        is_shown = bool(self.rows("SELECT 1 FROM outbox WHERE conflict IS NOT NULL"))
        if len(after.given) > len(before.given):
            yield from self._of_grant(before, after.given[-1])
        is_read_anew = not {"put back", "put back unnoticed"}.isdisjoint(after.acted - before.acted)
        if state == State.PLANNED != was and before.words == after.words and not is_read_anew:
            if any(one.stands or not after.words for one in may_be_there):
                yield "the order is planned again, and may have arrived"
            if "a list shows another amount" in after.acted or (after.told and was != State.SENDING):
                yield "the order is planned again, and somebody else has sent it"
        if self.is_misplaced:
            yield "a permit that is not the last is given back, and the order's trail says so of the last one"
        if state == State.REJECTED != was and may_be_there and not after.words:
            yield "the order is refused, and may have arrived"
        last = next((one for one in after.given if one.stands), None)
        if state == State.SENDING and (last is None or not self._holds(after, last)):
            yield "the order is being sent by a lease that stands no more"
        if was == State.SENDING and state == State.UNKNOWN and not self._is_due(before, after):
            yield "the order is unknown, and nothing was said of its permit, whose lease is good"
        are_over = all(one.until <= after.passed or not one.stands for one in after.leases)
        is_free = are_over and state == State.PLANNED and not after.held_back
        if self.refused and is_free and not after.acted & {"put back", *_EDITS}:
            yield "the order is planned, and cannot be claimed though each lease is over"
        for one in (one for lease in after.leases[len(before.leases) :] for one in lease.chunk.orders):
            as_put = self._put[one.request_id]
            if before.held_back:
                yield "an order is given out that cannot be sent as it is"
            if (one.amount, one.body) != (as_put.amount, write_order(as_put)):
                yield "an order is given out that is not as it was put"
        if is_shown and self.told is not None and self.told.ended_at is not None:
            yield "a worker is told that its attempt ended as usual, and a person is asked to look at the order"
        if before.archived and (state != was or is_shown):
            yield f"the order had left as {was}, and is {state}, or asks for a person"

    def _holds(self, facts: Leased, given: Given) -> bool:
        """Whether the lease of a permit stands, or its owner holds the chunk again by the same number."""
        return any(one.stands for one in self._alike(facts, facts.leases[given.lease]))

    def _alike(self, facts: Leased, lease: Lease) -> list[Lease]:
        """Leases of the same name and number: who was given the one may use the other."""
        chunk = lease.chunk
        return [one for one in facts.leases if (one.chunk.token, one.chunk.owner) == (chunk.token, chunk.owner)]

    def _of_grant(self, before: Leased, given: Given) -> Iterator[str]:
        lease, permit = before.leases[given.lease], given.permit
        if (run_of(permit.id), chunk_of(permit.id)) != (lease.chunk.run, lease.chunk.number):
            yield "an order was permitted by a lease of another chunk"
        if not any(one.stands and one.until > before.passed for one in self._alike(before, lease)):
            yield "an order was permitted by a lease that is over, or held by another"
        # by a person's word it is sent again, and what was granted since counts
        if any(one.fate in (HELD, PAID) and (one.stands or not before.words) for one in before.given):
            yield "an order was permitted that may have arrived"

    def _is_due(self, before: Leased, after: Leased) -> bool:
        """Whether something was said of the permit that stands, or its lease ended."""
        last = next((place for place, one in enumerate(before.given) if one.stands), None)
        if last is None or after.given[last].said != before.given[last].said:
            return True
        lease = after.leases[before.given[last].lease]
        return min(lease.until - after.passed, lease.chunk.lease_until - after.now) <= 0 or not lease.stands


def desks() -> tuple[Callable[[], Desk], ...]:
    """All worlds of leases, to be made one by one."""
    return (
        partial(Leases, "a permit that is used again", owners=("a",), may=("release", "cancel"), says=1, passes=1),
        partial(Leases, "leases of before", may=("release", "renew", "expire"), says=1, fates=(PAID,)),
        partial(Leases, "a lease of another outbox", may=("stray",), permits=1, passes=0, says=0, fates=()),
        partial(
            Leases, "a clock that was ahead", may=("the clock is a day ahead", "the clock is right", "expire"),
            owners=("a",), permits=1, says=0, fates=(), passes=2,
        ),
        partial(Leases, "edited", may=("the amount is edited", "the order is edited"), claims=1, permits=0, passes=0),
        partial(
            Leases, "put back, and held by another", may=("copy", "put back", "lift", "die"), claims=3, permits=1,
            says=0, fates=(PAID,),
        ),
        partial(
            Leases, "held back", may=("release", "hold back"), permits=1, passes=0, owners=("a",), says=1,
            fates=(UNSENT,),
        ),
        partial(
            Leases, "put back, and answered", may=("copy", "put back", "lift"), claims=2, permits=2, says=1, passes=0,
        ),
        partial(
            Leases, "put back, and proved", may=("copy", "put back"), claims=1, permits=2, passes=0, owners=("a",),
        ),
        partial(
            Leases, "sent by others", may=("a list shows another amount", "a sender that nobody knows tells of it"),
            permits=1, says=1, fates=(UNSENT,),
        ),
        partial(
            Leases, "a word against its own", may=("contradict", "a list shows another amount"), permits=1, passes=0,
            fates=(PAID,), owners=("a",),
        ),
        partial(
            Leases, "a word against its own, once it was taken over", may=("contradict", "expire"), claims=1, permits=1,
            fates=(PAID,), owners=("a",),
        ),
        partial(
            Leases, "put back, and no one has noticed", may=("copy", "put back unnoticed", "cancel"), says=1,
            passes=0, fates=(UNSENT,), owners=("a",),
        ),
        partial(
            Leases, "an answer to what has left", may=("archive", "a list shows it", "a list shows another amount"),
            claims=1, permits=1, fates=(REFUSED,),
        ),
    )  # fmt: skip
