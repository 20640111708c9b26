"""Windows: the open orders that are looked for, and the days in which the list would show them. Asks nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal

import attrs

from payments_async.journal._contract import Journal
from payments_async.journal._records import Entry
from payments_async.journal._states import State

__all__ = ["CONFIRMED", "OPEN", "Window", "Wanted", "collect", "day_of", "windows"]

OPEN = (State.UNKNOWN, State.PARKED, State.ACCEPTED)
CONFIRMED = frozenset({State.ACCEPTED, State.SUCCESSFUL, State.FAILED, State.REVERSED})
_PORTION = 200_000  # orders looked for at once; an order costs some 300 bytes meanwhile
_MARGIN = timedelta(days=1)  # the service names no time zone, and its clock is not ours


@attrs.define(eq=False)
class Wanted:
    """An open order that is looked for.

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
        since, until: First and last day, in the service's time zone, with a margin around the permits.
        wanted: By request id.
        swept_at: Unix seconds at which the last clean sweep ended.
    """

    since: date
    until: date
    wanted: dict[str, Wanted] = attrs.field(factory=dict)
    swept_at: float | None = None

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
            found[entry.request_id] = _wanted(entry)
    if found:
        yield found


def windows(wanted: Iterable[Wanted], zone: tzinfo) -> list[Window]:
    """The days of the list in which these orders would be; days that touch are one window."""
    found: list[Window] = []
    for order in sorted(wanted, key=lambda order: order.at):
        day = day_of(order.at, zone)
        if not found or day - _MARGIN > found[-1].until:
            found.append(Window(day - _MARGIN, day + _MARGIN))
        found[-1].until = day + _MARGIN
        found[-1].wanted[order.request_id] = order
    return found


def _wanted(entry: Entry) -> Wanted:
    return Wanted(
        request_id=entry.request_id,
        first=entry.state,
        state=entry.state,
        amount=entry.amount,
        currency=entry.order.currency,
        transaction_id=entry.transaction_id,
        at=entry.updated_at if entry.permitted_at is None else entry.permitted_at,
    )
