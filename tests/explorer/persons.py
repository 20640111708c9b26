"""Small worlds of orders in doubt: what is told of them, true or not, and what persons decide about them.

What the service did with each attempt is kept beside the journal, and so is which news is true. What is not about the
order, or not about its money, moves nothing; a person decides on what they saw, and with the approvals that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import attrs
from explorer.desks import ANN, BEN, DORA, NOON, Desk, Step
from explorer.journals import at_once
from journal.factories import BATCH, IDENTITY, delivery, event, order, transaction_id

from payments_async.journal import (
    ApprovalRule,
    JournalError,
    JournalRefused,
    NotApproved,
    Signal,
    State,
)
from payments_async.journal._inbox import Arrival
from payments_async.journal.contract import Evidence, Outcome, Permit

ONE = order(1)
LONGER = attrs.evolve(order(1), request_id=ONE.request_id + "7")  # ONE's id is what a list may cut it off to
OURS, THEIRS, HINT = transaction_id(1), transaction_id(2), transaction_id(3)
PAID, TAKEN, NEVER, REFUSED, UNSENT = "paid, without an answer", "paid", "never arrived", "refused", "unsent"
ENDS: Mapping[str, Signal] = MappingProxyType(
    {
        PAID: Signal.UNKNOWN,
        TAKEN: Signal.ACCEPTED,
        NEVER: Signal.UNKNOWN,
        REFUSED: Signal.REJECTED,
        UNSENT: Signal.NOT_SENT,
    }
)
_ENDS = "a list shows it", "a list shows it failed, which is not so", "a list shows it, and it goes on"
_OPEN = State.UNKNOWN, State.PARKED
MOVED = {State.ACCEPTED, State.SUCCESSFUL, State.FAILED, State.REVERSED}


def told(signal: Signal = Signal.LOOKED_UP_SUCCESSFUL, **changes: object) -> Evidence:
    """A row of the list about order 1, in all that it says but these."""
    facts = {
        "signal": signal, "source": "list", "request_id": ONE.request_id, "amount": ONE.amount, "currency": "UGX",
        "transaction_id": OURS,
    }  # fmt: skip
    return Evidence(**(facts | changes))  # type: ignore[arg-type]


# What is not about order 1, or not about all of it.
MISTAKEN: Mapping[str, Evidence] = MappingProxyType({
    "another amount": told(amount=Decimal(3)),
    "another currency": told(currency="KES"),
    "another id, by the same transaction": told(request_id="payroll-999999", transaction_id=OURS),
    "no id, of a transaction that no answer has confirmed": told(request_id=None, transaction_id=HINT),
    "no amount": told(amount=None),
    "the transaction of another order": told(transaction_id=THEIRS),
    "another order, whose id is cut off": told(transaction_id=THEIRS),
    "a second transaction": told(transaction_id=transaction_id(9)),
    "it failed, which is not so": told(Signal.LOOKED_UP_FAILED),
    "it, and it goes on": told(Signal.LOOKED_UP_PROCESSING),
})  # fmt: skip


@attrs.frozen(kw_only=True)
class Known:
    """What is known beside the journal.

    Attributes:
        attempts: What became of each attempt of order 1.
        forgotten: How many of them were made before the journal was put back.
        seen, at: What a person saw when they looked at order 1, and how much was known of it then.
        word: How many attempts there were when a person said that it never arrived; -1 where none did.
        approved, proposed: Decisions, with what they were about.
        learned: How often something was learned of order 1.
        scans: Lists that were read whole since the journal was put back.
        restored: When it was put back last; ``shown`` when a person last saw that.
    """

    now: float = NOON
    attempts: tuple[str, ...] = ()
    forgotten: int = 0
    seen: float = -1.0
    at: tuple[int, int] = (-1, -1)
    word: int = -1
    proposed: tuple[tuple[str, tuple[int, int]], ...] = ()
    approved: frozenset[str] = frozenset()
    learned: int = 0
    scans: int = 0
    restored: float = 0.0
    shown: float = 0.0
    false: frozenset[str] = frozenset()
    acted: frozenset[str] = frozenset()
    state: str = State.PLANNED
    other: str = ""
    permit: Permit | None = None


Act: TypeAlias = Callable[[Known], "Known | None"]


class Doubts(Desk):
    """An order, another one whose id goes on, lists, and a person."""

    def __init__(
        self, name: str, *, may: Iterable[str] = (), ends: Iterable[str] = (NEVER,), sends: int = 1, needed: int = 0,
        other: str = "", news: Iterable[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._may, self._ends, self._sends, self._needed = tuple(may), tuple(ends), sends, needed
        self._other, self._news = other, tuple(news)
        self.did = ""

    def first(self) -> Known:
        """An outbox with an order, and perhaps another one that was sent before."""
        journal = self.journal
        at_once(journal.open_outbox(BATCH, IDENTITY))
        journal.connection.execute("UPDATE run SET uid = ''")
        if self._needed:
            at_once(journal.require_approvals(ApprovalRule(needed=self._needed, why="four eyes", by=DORA)))
        facts = Known()
        if self._other == "planned":
            at_once(journal.put(BATCH, order(2)))
        elif self._other:
            one = LONGER if self._other == "longer" else order(2)
            at_once(journal.put(BATCH, one))
            self._send(PAID, facts)
            if self._other == "confirmed":
                at_once(
                    journal.apply_evidence(told(request_id=one.request_id, amount=one.amount, transaction_id=THEIRS))
                )
        at_once(journal.put(BATCH, ONE))
        if self._other == "twins":  # both answers named it, and neither could be read
            facts = self._send(PAID, facts)
            packed = bytes.fromhex(OURS.replace("-", ""))
            journal.connection.execute("UPDATE outbox SET transaction_id = ?", (packed,))
        return attrs.evolve(facts, state=self.states()[ONE.request_id])

    def steps(self, facts: Known) -> Iterator[Step]:
        """All that may happen next."""
        for words, act in self._steps(facts):
            is_again = words in facts.acted
            if is_again and words in facts.false:  # what was called false may be told once more
                words, is_again = f"{words}, once more", f"{words}, once more" in facts.acted
            if not is_again or words in ("a person looks", "a person sends it again"):
                yield words, partial(self._done, words, act, facts)

    def _done(self, words: str, act: Act, facts: Known) -> Known | None:
        self.did, self.refusal, self.is_done = words.removesuffix(", once more"), None, False
        try:
            after = act(attrs.evolve(facts, acted=facts.acted | {words}))
        except (JournalRefused, ValueError):
            return None
        except JournalError:
            return None
        self.is_done = after is not None and self.refusal is None
        if after is None:
            return None
        states = self.states()
        return attrs.evolve(after, state=states[ONE.request_id], other=states.get(LONGER.request_id, ""))

    def _steps(self, facts: Known) -> Iterator[tuple[str, Act]]:
        if len(facts.attempts) < self._sends:
            for end in self._ends:
                yield f"order 1 is sent: {end}", partial(self._send_one, end)
        news = sum(one.startswith("a list shows ") for one in facts.acted)
        for words in self._news if news < 2 else ():
            yield f"a list shows {words}", partial(self._show, MISTAKEN[words])
        if any(one in (PAID, TAKEN) for one in facts.attempts):
            yield "a list shows it", partial(self._show, told())
        once: dict[str, Act] = {
            "lists miss it": self._miss, "a person looks": self._look, "a person sends it again": self._send_again,
            "a person cancels it": self._cancel, "the journal is put back": self._put_back,
            "it is put back once more": self._put_back,
            "a list is read": self._scan, "another list is read": self._scan,
            "a list is read too soon": partial(self._scan, after=1.0),
            "a list of later days is read": partial(self._scan, days=-2),
            "a person lifts": partial(self._lift, None),
            "a person lifts, and names one": partial(self._lift, (ONE.request_id,)),
            "it is approved": self._approve, "an answer is brought as evidence": self._bring,
            "it is notified as failed": partial(self._notify, 2),
            "it is notified as successful": partial(self._notify, 0),
            "a notification of its transaction": self._nameless,
            "its worker says that it was refused": partial(self._say, Signal.REJECTED),
            "its worker says that it never left": partial(self._say, Signal.NOT_SENT),
        }  # fmt: skip
        for words, act in once.items():
            if words in self._may:
                yield words, act

    # what happens

    def _send_one(self, end: str, facts: Known) -> Known | None:
        return self._send(end, facts)

    def _send(self, end: str, facts: Known) -> Known | None:
        journal = self.journal
        journal.moment.holder, journal.moment.now = "worker", facts.now + 1.0
        chunk = at_once(journal.claim_chunk(BATCH, "worker", lease=30.0))
        if chunk is None:
            return None
        permit = at_once(journal.permit(chunk, chunk.orders[0]))
        assert isinstance(permit, Permit)
        self.permit = permit
        is_ours = permit.request_id == ONE.request_id
        transaction = {TAKEN: OURS, PAID: HINT}.get(end) if is_ours else None  # what cannot be read may name any
        at_once(journal.record(Outcome(permit=permit, signal=ENDS[end], transaction_id=transaction)))
        at_once(journal.release_chunk(chunk))
        journal.moment.leases.clear()
        return attrs.evolve(self._learn(facts), attempts=(*facts.attempts, end), permit=permit)

    def _learn(self, facts: Known) -> Known:
        if self.did in facts.false:
            return facts  # a person knew it
        return attrs.evolve(facts, learned=facts.learned + 1, now=facts.now + 1.0)

    def _show(self, found: Evidence, facts: Known) -> Known:
        self.found = found
        self.journal.moment.now = facts.now + 1.0
        at_once(self.journal.apply_evidence(found))
        return self._learn(facts)

    def _notify(self, code: int, facts: Known) -> Known:
        self.journal.moment.now = facts.now + 1.0
        told_of = event(code, 1)
        arrival = Arrival(delivery=delivery(str(code).encode(), at=facts.now), event=told_of, lease=0.0, doubt=None)
        at_once(self.journal.receive_all((arrival,), owner="receiver"))
        return self._learn(facts)

    def _nameless(self, facts: Known) -> Known:
        arrival = Arrival(
            delivery=delivery(b"n", at=facts.now), event=event(0, 1, request_id=None), lease=0.0, doubt=None
        )
        at_once(self.journal.receive_all((arrival,), owner="receiver"))
        return self._learn(facts)

    def _say(self, signal: Signal, facts: Known) -> Known | None:
        """Against its own word before."""
        if facts.permit is None or facts.attempts[-1] != TAKEN:
            return None
        at_once(self.journal.record(Outcome(permit=facts.permit, signal=signal)))
        return facts

    def _bring(self, facts: Known) -> Known:
        at_once(self.journal.apply_evidence(told(Signal.REJECTED)))
        return facts

    def _miss(self, facts: Known) -> Known:
        self.journal.moment.now = facts.now + 1.0
        at_once(self.journal.park(ONE.request_id, detail="lists"))
        return self._learn(facts) if self.states()[ONE.request_id] != facts.state else facts

    def _look(self, facts: Known) -> Known:
        ((seen,),) = self.rows(f"SELECT updated_at FROM outbox WHERE request_id = '{ONE.request_id}'")
        shown = facts.restored
        return attrs.evolve(facts, seen=seen, at=(facts.learned, len(facts.attempts)), shown=shown)

    def _decided(self, do: Callable[[], object], facts: Known) -> bool:
        """Do what asks for approvals; whether it was done, or what was asked for instead."""
        try:
            do()
        except NotApproved as refusal:
            self.refusal = refusal
            return False
        return True

    def _propose(self, facts: Known) -> Known | None:
        refusal = self.refusal
        about = facts.learned, len(facts.attempts)
        if (
            refusal is None
            or refusal.proposal is None
            or any(refusal.proposal.digest == one for one, _ in facts.proposed)
        ):
            return None
        at_once(self.journal.propose(refusal.proposal))
        acted = facts.acted - {self.did, "it is approved"}
        return attrs.evolve(facts, proposed=(*facts.proposed, (refusal.proposal.digest, about)), acted=acted)

    def _approve(self, facts: Known) -> Known | None:
        for digest, _ in facts.proposed:
            if digest not in facts.approved:
                at_once(self.journal.approve(digest, by=BEN, note=""))
                return attrs.evolve(facts, approved=facts.approved | {digest})
        return None

    def _send_again(self, facts: Known) -> Known | None:
        seen = {ONE.request_id: facts.seen} if facts.seen >= 0 else {}
        self.journal.moment.now = facts.now + 1.0
        if not self._decided(
            lambda: at_once(self.journal.send_again_all((ONE.request_id,), who=ANN, why="no", seen=seen)), facts
        ):
            return self._propose(facts)
        named = frozenset(one for one in facts.acted if one.startswith(("a list shows", "it is notified")))
        return attrs.evolve(self._learn(facts), word=len(facts.attempts), false=named)

    def _cancel(self, facts: Known) -> Known:
        self.journal.moment.now = facts.now + 1.0
        at_once(self.journal.cancel(ONE.request_id, who="Ann", why="no"))
        return self._learn(facts)

    def _put_back(self, facts: Known) -> Known:
        """As of before anything was sent, as far as order 1 is concerned."""
        self.journal.moment.now = facts.now + 1.0
        self.journal.quarantine()
        return attrs.evolve(
            facts, forgotten=len(facts.attempts), restored=facts.now + 1.0, scans=0, now=facts.now + 1.0,
            learned=facts.learned + 1,
        )  # fmt: skip

    def _scan(self, facts: Known, *, after: float = 20.0, days: int = 365) -> Known:
        """Read a list that begins so many days ago; two count that are 15 seconds apart."""
        self.journal.moment.now = facts.now + after
        day = datetime.fromtimestamp(facts.now, UTC).date()
        scan = at_once(
            self.journal.begin_list_scan(BATCH, since=day - timedelta(days=days), until=day + timedelta(days=9))
        )
        ended = attrs.evolve(scan, rows=1, requests=1, counted=True, clean=True)
        at_once(self.journal.end_list_scan(ended, grace=10.0, interval=15.0))
        counts = after > 15.0 and days > 1
        return attrs.evolve(facts, scans=facts.scans + counts, now=facts.now + after)

    def _lift(self, named: tuple[str, ...] | None, facts: Known) -> Known | None:
        seen = facts.shown or None
        if not self._decided(
            lambda: at_once(self.journal.lift_quarantine(BATCH, who=ANN, why="no", request_ids=named, seen=seen)), facts
        ):
            return self._propose(facts)
        return facts

    # rules

    def wrong(self, before: Known, after: Known) -> Iterator[str]:
        """News of others moves nothing; a person decides on what they saw; what may have been paid is not over."""
        did, was, state = self.did, before.state, after.state
        may_be_there = any(one in (PAID, TAKEN, NEVER) for one in after.attempts)
        if did.startswith("a list shows "):
            yield from self._of_list(before, after)
        if did.startswith("it is notified"):
            if state == State.PLANNED and did not in before.false:
                yield f"order 1 may be sent, though {did}"
            if was == State.PLANNED and not before.attempts and state in MOVED:
                yield f"order 1 was never sent, and a notification alone makes it {state}"
        elif (
            was in {State.ACCEPTED, State.SUCCESSFUL} and state != was and not (was == State.ACCEPTED and did in _ENDS)
        ):
            yield f"order 1 was {was}, and is {state}: {did}"
        if did in before.false and state != was:
            yield f"a person has called it false that {did}, and it moves the order from {was} to {state}"
        if was == State.SUCCESSFUL and state == State.FAILED:
            yield "order 1 was paid, and is failed"
        if may_be_there and (state == State.REJECTED or state == State.CANCELLED != was):
            yield f"order 1 is {state}, and may have been paid"
        if did == "a person cancels it" and state != was and not self._is_free(before):
            yield "order 1 is cancelled, and nothing was looked for since the journal was put back"
        if after.restored and not self._is_free(after) and at_once(self.journal.is_looked_for(BATCH)):
            yield "it counts as looked for since the journal was put back, and lists are awaited"
        if did == "a person sends it again" and after.word != before.word and state == State.PLANNED:
            yield from self._of_word(before)
        if did.startswith("a person lifts") and self.is_done and before.restored and not self._is_free(before):
            yield from self._of_lift(before, did)
        is_shown = self._other == "twins" and self.rows("SELECT 1 FROM outbox WHERE conflict IS NOT NULL")
        if did == "a notification of its transaction" and (state != was or is_shown):
            yield "a transaction that two orders carry has moved one of them"
        if did == "an answer is brought as evidence" and self.is_done:
            yield "an answer was brought as evidence, and counts"
        if before.word >= 0 and len(after.attempts) > len(before.attempts) and not self.permit.sent_before:
            yield "order 1 is sent again by a person's word, and its permit does not say so"
        if was == State.PARKED and state == State.PLANNED and did != "a person sends it again":
            yield f"order 1 was parked, and may be sent: {did}"

    def _of_list(self, before: Known, after: Known) -> Iterator[str]:
        """What is true settles the order, and what is not shows itself to a person."""
        did, was, state = self.did, before.state, after.state
        is_about_it, is_true = " id, " not in did, did == "a list shows it"
        if is_true and was in _OPEN and state not in MOVED and not before.false and not self._other:
            yield f"a list shows what was paid, and the order is {state}"
        # nothing is known yet that speaks against these
        is_open = did in _ENDS and was != State.SUCCESSFUL
        is_open = is_open or (was not in MOVED and did.endswith("a second transaction"))
        if state in MOVED and state != was and not (is_true or is_open):
            yield f"order 1 was {was}, and is {state} by news of {did.removeprefix('a list shows ')}"
        if is_about_it and state == State.PLANNED and did not in before.false:
            yield f"order 1 may be sent, though {did}"
        shown = self.rows(f"SELECT 1 FROM outbox WHERE conflict IS NOT NULL AND request_id = '{ONE.request_id}'")
        is_news = is_about_it and did not in before.false
        if is_news and was == State.PLANNED and not (before.attempts or before.restored or shown):
            yield f"order 1 was never sent, and no person is shown that {did}"

    def _of_word(self, before: Known) -> Iterator[str]:
        if before.state != State.PARKED:
            yield f"a person has order 1 sent again, which is {before.state}"
        if before.seen >= 0 and before.at[0] != before.learned:
            yield "a person has order 1 sent again, and has not seen all that is known of it"
        stands = before.learned, len(before.attempts)
        if self._needed and not any(digest in before.approved and about == stands for digest, about in before.proposed):
            yield "order 1 is sent again, and nobody else has approved it as it stands"

    def _is_free(self, before: Known) -> bool:
        lifted = any(one.startswith("a person lifts") for one in before.acted)
        return not before.restored or before.scans >= 2 or lifted

    def _of_lift(self, before: Known, did: str) -> Iterator[str]:
        planned = {one for one, state in self.states().items() if state == State.PLANNED}
        named = {ONE.request_id} if did.endswith("names one") else set()
        if planned - named or not named:
            yield "a person lifts the quarantine, and has not named all that is sent then"
        if before.shown and before.shown < before.restored:
            yield "a person lifts the quarantine, and has not seen that it was put back once more"
        if self._needed and not before.approved:
            yield "a person lifts the quarantine alone"


def desks() -> tuple[Callable[[], Desk], ...]:
    """All worlds of doubts, to be made one by one."""
    parks = ("lists miss it", "a person looks", "a person sends it again")
    back, lifts = "the journal is put back", ("a person lifts", "a person lifts, and names one")
    scans = "a list is read", "another list is read"
    not_enough = "a list is read too soon", "a list of later days is read"
    failed, paid = "it is notified as failed", "it is notified as successful"
    says = "its worker says that it was refused", "its worker says that it never left"
    others = [one for one in MISTAKEN if "another order" not in one]
    return (
        partial(Doubts, "news of others", ends=(PAID,), news=others[:5], may=("an answer is brought as evidence",)),
        partial(Doubts, "news of what was taken", ends=(TAKEN,), news=(others[2], *others[5:]), may=says),
        partial(Doubts, "called false", news=("another amount",), may=parks),
        partial(
            Doubts, "the transaction of another", other="confirmed", ends=(PAID,),
            news=("the transaction of another order",),
        ),
        partial(
            Doubts, "an id that goes on", other="longer", may=("lists miss it",),
            news=("another order, whose id is cut off",),
        ),
        partial(Doubts, "a transaction of two", other="twins", sends=0, may=("a notification of its transaction",)),
        partial(
            Doubts, "sent again", ends=(NEVER, REFUSED, UNSENT), sends=2, may=(*parks, "a person cancels it"),
            news=("it, and it goes on",),
        ),
        partial(
            Doubts, "sent again with approvals", needed=1, news=("another amount",), may=(*parks, "it is approved"),
        ),
        partial(Doubts, "notified before it was sent", sends=0, may=(failed, paid, back), news=("it, and it goes on",)),
        partial(Doubts, "put back", sends=0, other="planned", may=(back, *scans, *lifts, "a person cancels it")),
        partial(Doubts, "put back, and looked for", sends=0, may=(back, *scans, *not_enough)),
        partial(
            Doubts, "put back twice", sends=0, may=(back, "it is put back once more", "a person looks", lifts[1]),
        ),
        partial(Doubts, "put back, with approvals", sends=0, needed=1, may=(back, lifts[1], "it is approved")),
    )  # fmt: skip
