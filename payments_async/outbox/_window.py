"""Windows: the open orders that are looked for, and the days in which the list would show them. Asks nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal

import attrs

from payments_async.journal._contract import Journal
from payments_async.journal._records import Entry
from payments_async.journal._states import State

__all__ = ["CONFIRMED", "OPEN", "Wanted", "Window", "collect", "day_of"]

OPEN = (State.UNKNOWN, State.PARKED, State.ACCEPTED)
CONFIRMED = frozenset({State.ACCEPTED, State.SUCCESSFUL, State.FAILED, State.REVERSED})
_PORTION = 200_000  # orders looked for at once; an order costs some 300 bytes meanwhile
_MOST_DAYS = 25_000  # that a clock may be wrong by: one that begins in 1970 is
_MARGIN = timedelta(days=1)  # the service names no time zone, and its clock is not ours


@attrs.define(eq=False)
class Wanted:
    """An order that is looked for, or that the list shows.

    Attributes:
        first, state: When it was looked for, and as far as we know it by now.
        at: Unix seconds of its last permit.
        clean: Clean sweeps in a row that began after its period of grace and did not show it.
    """

    request_id: str
    first: State
    state: State
    amount: Decimal
    currency: str | None
    transaction_id: str | None
    at: float
    clean: int = 0

    @classmethod
    def of(cls, entry: Entry) -> Wanted:
        """An order as the journal has it."""
        return cls(
            request_id=entry.request_id,
            first=entry.state,
            state=entry.state,
            amount=entry.amount,
            currency=entry.order.currency,
            transaction_id=entry.transaction_id,
            at=entry.updated_at if entry.permitted_at is None else entry.permitted_at,
        )

    @property
    def is_open(self) -> bool:
        """Whether it still has no final outcome."""
        return self.state in OPEN

    @property
    def may_change(self) -> bool:
        """Whether the list under each status has something to say: it is open, or it is looked at again."""
        return self.is_open or self.first is State.SUCCESSFUL


@attrs.define(eq=False)
class Window:
    """Days of the list, and what is looked for in them.

    Attributes:
        since, until: First and last day, in the service's time zone, with a margin around them.
        wanted: By request id.
        swept_at: Unix seconds at which the last clean sweep ended.
        listed: Wanted orders that the last sweep has shown, whatever it says of them.
        days: Those of orders that the last sweep has shown, and that are known to be of these days.
        earlier, later: How many days were taken in before and after, since the service's clock is not ours.
    """

    since: date
    until: date
    wanted: dict[str, Wanted] = attrs.field(factory=dict)
    swept_at: float | None = None
    listed: set[str] = attrs.field(factory=set)
    days: set[date] = attrs.field(factory=set)
    earlier: int = 0
    later: int = 0

    @classmethod
    def to_now(cls, first: float, now: float, zone: tzinfo, wanted: Iterable[Wanted] = ()) -> Window:
        """All days from a moment until today: what was sent once may turn up on any day after, and twice.

        Args:
            first, now: Unix seconds.
        """
        return cls(
            since=day_of(min(first, now), zone) - _MARGIN,
            until=day_of(now, zone) + _MARGIN,
            wanted={order.request_id: order for order in wanted},
        )

    def follow(self, difference: float | None) -> bool:
        """Take in what these days are by the service's clock as well. Tells whether they were not in it already.

        Args:
            difference: Seconds by which that is ahead of ours.
        """
        days = max(-_MOST_DAYS, min(_MOST_DAYS, round((difference or 0.0) / 86_400.0)))
        earlier, later = min(days, self.earlier), max(days, self.later)
        if (earlier, later) == (self.earlier, self.later):
            return False
        self.since += timedelta(days=earlier - self.earlier)
        self.until += timedelta(days=later - self.later)
        self.earlier, self.later = earlier, later
        return True

    def shows(self, day: date) -> bool:
        """Whether the last sweep has shown an order of ours of about this day, so that absence says something."""
        return any(abs(day - known) <= _MARGIN for known in self.days)

    def __str__(self) -> str:
        return f"{self.since.isoformat()} to {self.until.isoformat()}"


def day_of(at: float, zone: tzinfo) -> date:
    """The day of a moment where the service is."""
    return datetime.fromtimestamp(at, UTC).astimezone(zone).date()


async def collect(
    journal: Journal, batch_id: str | None, *, states: Sequence[State] = OPEN, portion: int = _PORTION
) -> AsyncIterator[dict[str, Wanted]]:
    """Orders of some states, so many at a time: unknown and parked ones all at first, then the others."""
    found: dict[str, Wanted] = {}
    for state in states:
        async for entry in journal.entries(batch_id, state):
            if state in CONFIRMED and len(found) >= portion:
                yield found
                found = {}
            found[entry.request_id] = Wanted.of(entry)
    if found:
        yield found
