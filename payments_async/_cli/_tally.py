"""Where every order of a batch stands, and what says so, as the journal tells it. Judges nothing, shows nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

import attrs

from payments_async.journal import Entry, Happening, Journal, News, State

__all__ = ["Line", "Tally", "tally"]

_AT_ONCE = 200  # histories in memory
_SAID_BY = {"answer": "answer", "notification": "notification", "evidence": "list"}
_NOBODY = "no answer, in no list"
_DOUBTS = (News.UNKNOWN, News.LEASE_EXPIRED)


@attrs.frozen(kw_only=True)
class Line:
    """One order.

    Attributes:
        told_by: What its state rests on; empty while it is planned.
        was_doubtful: At some time it had no usable answer, or nobody was left who waited for one.
        conflict: Evidence against evidence, in words, or ``None``.
    """

    request_id: str
    amount: Decimal
    state: State
    told_by: str = ""
    was_doubtful: bool = False
    conflict: str | None = None


class Tally:
    """All orders of a batch."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = tuple(lines)
        self._zero = sum((line.amount for line in self), Decimal(0)) * 0  # with the decimals of the finest amount

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def count(self, *states: State) -> int:
        """How many orders stand so."""
        return sum(line.state in states for line in self)

    def total(self, *states: State) -> Decimal:
        """The sum of the orders that stand so; of all orders without an argument."""
        return sum((line.amount for line in self if line.state in (states or State)), self._zero)

    def ids(self, state: State) -> list[str]:
        """The request ids of the orders that stand so."""
        return [line.request_id for line in self if line.state is state]

    def evidence(self, state: State) -> Counter[str]:
        """How often each source told this state."""
        return Counter(line.told_by for line in self if line.state is state and line.told_by)

    @property
    def doubtful(self) -> list[Line]:
        """Orders that at some time had no usable answer."""
        return [line for line in self if line.was_doubtful]


async def tally(journal: Journal, batch_id: str) -> Tally:
    """Read all orders of a batch with their stories."""
    lines: list[Line] = []
    block: list[Entry] = []
    async for entry in journal.entries(batch_id):
        block.append(entry)
        if len(block) == _AT_ONCE:
            lines += await _lines(journal, block)
            block = []
    return Tally([*lines, *await _lines(journal, block)])


async def _lines(journal: Journal, entries: Sequence[Entry]) -> list[Line]:
    stories = await asyncio.gather(*(journal.history(entry.request_id) for entry in entries))
    return [_line(entry, story) for entry, story in zip(entries, stories, strict=True)]


def _line(entry: Entry, story: Sequence[Happening]) -> Line:
    return Line(
        request_id=entry.request_id,
        amount=entry.amount,
        state=entry.state,
        told_by=_told_by(entry.state, story),
        was_doubtful=any(happening.news in _DOUBTS and happening.state is State.UNKNOWN for happening in story),
        conflict=entry.conflict,
    )


def _told_by(state: State, story: Sequence[Happening]) -> str:
    """What brought an order to where it stands: the first happening after which it never stood elsewhere."""
    if state in (State.UNKNOWN, State.PARKED):
        return _NOBODY
    decided: Happening | None = None
    for happening in story:
        if happening.state is state:
            decided = decided or happening
        elif happening.state is not None:
            decided = None
    return "" if decided is None else _SAID_BY.get(decided.what, "")
