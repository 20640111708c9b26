"""A small world of one notification that waits for its handlers: two receivers, of which one may be late, and a person.

Who has its lease by right, and until when, is kept beside the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs
from explorer.desks import NOON, Desk, Step
from explorer.journals import at_once
from journal.factories import delivery, event

from payments_async.journal._inbox import Arrival

LEASE, DELAY, AHEAD = 90.0, 30.0, 3e5  # seconds
PENDING, DONE, DEAD = "pending", "done", "dead"


@attrs.frozen(kw_only=True)
class Handed:
    """What is known beside the journal.

    Attributes:
        state: How it stands.
        holder: Which receiver has it by right.
        due: Unix seconds when it is anybody's.
        had: Receivers that have claimed it at some time, and may speak late.
        is_ahead: The clock is, by days.
        steps: How many were taken.
    """

    now: float = NOON + AHEAD
    state: str = PENDING
    holder: str = ""
    due: float = 0.0
    had: frozenset[str] = frozenset()
    is_ahead: bool = True
    steps: int = 0


class Deliveries(Desk):
    """Two receivers of one inbox."""

    def first(self) -> Handed:
        """A notification that waits for its handlers."""
        self.journal.moment.now = Handed().now
        arrival = Arrival(delivery=delivery(at=NOON), event=event(0, 1), lease=0.0)
        at_once(self.journal.receive_all((arrival,), owner="a"))
        return Handed()

    def steps(self, facts: Handed) -> Iterator[Step]:
        """All that may happen next, so often at most."""
        if facts.steps == 6:
            return
        for who in ("a", "b"):
            yield f"{who} looks for what is due", partial(self._done, facts, partial(self._claim, who))
            if who in facts.had:
                yield f"{who} has handled it", partial(self._done, facts, partial(self._end, who, DONE))
                yield f"{who} gives it up", partial(self._done, facts, partial(self._end, who, DEAD))
                yield f"{who} failed", partial(self._done, facts, partial(self._end, who, PENDING))
        yield "a lease passes", partial(self._done, facts, self._pass)
        if facts.is_ahead:
            yield "the clock is set right", partial(self._done, facts, self._set_right)
        if facts.state == DEAD:
            yield "a person lets it be handled again", partial(self._done, facts, self._revive)

    @staticmethod
    def _done(facts: Handed, act: Callable[[Handed], Handed | None]) -> Handed | None:
        after = act(facts)
        return None if after is None else attrs.evolve(after, steps=facts.steps + 1)

    def _claim(self, who: str, facts: Handed) -> Handed | None:
        self.journal.moment.holder = who
        claimed = at_once(self.journal.claim(who, lease=LEASE, limit=1))
        if facts.state == PENDING and facts.due > facts.now + AHEAD / 2:  # it waits for its own time from now on
            return attrs.evolve(facts, due=facts.now + (LEASE if facts.holder else DELAY))
        is_due = facts.state == PENDING and facts.due <= facts.now
        if bool(claimed) is not is_due:
            return attrs.evolve(facts, holder="not given out when it is due" if is_due else "given out too early")
        if not is_due:
            return None
        return attrs.evolve(facts, holder=who, due=facts.now + LEASE, had=facts.had | {who})

    def _end(self, who: str, state: str, facts: Handed) -> Handed | None:
        self.journal.moment.holder = who
        if state == DONE:
            at_once(self.journal.receive_all((), owner=who, handled=[1]))
        elif state == DEAD:
            at_once(self.journal.finish(1, "dead", error="no"))
        else:
            at_once(self.journal.retry_later(1, delay=DELAY, error="no"))
        if facts.state != PENDING or facts.holder not in ("", who):
            return facts
        due = facts.now + DELAY if state == PENDING else 0.0
        return attrs.evolve(facts, state=state, holder="", due=due)

    def _pass(self, facts: Handed) -> Handed:
        return attrs.evolve(facts, now=facts.now + LEASE)

    def _set_right(self, facts: Handed) -> Handed:
        return attrs.evolve(facts, now=facts.now - AHEAD, is_ahead=False)

    def _revive(self, facts: Handed) -> Handed:
        at_once(self.journal.revive(1))
        return attrs.evolve(facts, state=PENDING, due=0.0)

    def wrong(self, before: Handed, after: Handed) -> Iterator[str]:
        """It stands as who had it by right has said."""
        if " " in after.holder:
            yield f"it is {after.holder}"
        found = self.rows("SELECT status FROM delivery")
        stands = found[0][0] if found else DONE
        if stands != after.state:
            yield f"it is {stands}, and was to be {after.state}"


def desks() -> tuple[Callable[[], Desk], ...]:
    """The world of deliveries."""
    return (partial(Deliveries, "deliveries"),)
