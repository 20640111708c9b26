"""A sweep: the list of a window read to its end, each row compared with the journal, and that put on record."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from decimal import Decimal
from typing import NamedTuple

import attrs

from payments_async._models import Transaction
from payments_async._resources.readings import Reader, Reading
from payments_async._session import PaymentsSession
from payments_async.journal._contract import Journal
from payments_async.journal._states import News, State
from payments_async.outbox._findings import LOOKED_UP, STATES, Findings, evidence_of
from payments_async.outbox._window import CONFIRMED, Wanted, Window, day_of

__all__ = ["Shown", "Sweeper"]

_log = logging.getLogger("payments_async")
_WRONG_CLOCK = "this machine's clock is days away from the service's: set it; the list of its days was read too"
_DATE_KEYS = "the service may not know days as they are written; compare Dialect.date_keys"


class Shown(NamedTuple):
    """A wanted order as the unfiltered list shows it."""

    request_id: str
    amount: Decimal | None
    currency: str | None


@attrs.define
class Sweeper:
    """Makes sweeps.

    Attributes:
        found: Orders that were planned as far as the journal knew, and that the list has shown.
    """

    payments: PaymentsSession
    journal: Journal
    findings: Findings
    reader: Reader
    found: int = 0
    _first: dict[str, str] = attrs.field(factory=dict)  # transactions of orders that have none by the journal
    _ours: int = 0  # orders of the journal that the last list has shown

    async def sweep(
        self, window: Window, batches: Sequence[str | None], *, tell: Callable[[Reading], object] | None = None
    ) -> tuple[Reading, dict[str, Shown]]:
        """Read a list, apply what each row says of any order of the journal, and note the sweep for these batches.

        Args:
            tell: Hears after each page how far it is.

        Returns:
            What the list is worth, and the wanted orders it showed, by transaction id.
        """
        begun = [
            await self.journal.begin_sweep(batch_id, since=window.since, until=window.until) for batch_id in batches
        ]
        requests, shown = self.reader.requests, dict[str, Shown]()
        window.listed.clear()
        window.days.clear()
        self._ours = 0
        reading = await self._read_window(window, shown, tell)
        if reading.problem is None and not self._ours and await self._is_beyond(window, shown):
            self.findings.note(f"the list of {window} shows no order of ours, the list of all days does: {_DATE_KEYS}")
            reading = self.reader.read(None, None, probes=True)
            await self._read(window, reading, shown, tell)
        for sweep in begun:
            ended = attrs.evolve(
                sweep, rows=reading.rows, requests=self.reader.requests - requests, counted=reading.counted,
                problem=reading.problem,
            )  # fmt: skip
            await self.journal.end_sweep(ended)
        return reading, shown

    async def _read_window(
        self, window: Window, shown: dict[str, Shown], tell: Callable[[Reading], object] | None
    ) -> Reading:
        """Read the list of its days, of those by the service's clock as well."""
        window.follow(self.payments.clock_difference)
        while True:
            reading = self.reader.read(window.since, window.until, probes=True)
            await self._read(window, reading, shown, tell)
            if not window.follow(self.payments.clock_difference):  # the first answer of a session tells of it
                break
        if window.earlier or window.later:
            self.findings.note(_WRONG_CLOCK)
            _log.warning(_WRONG_CLOCK, extra={"earlier": window.earlier, "later": window.later})
        return reading

    async def _read(
        self, window: Window, reading: Reading, shown: dict[str, Shown], tell: Callable[[Reading], object] | None
    ) -> None:
        async with aclosing(reading.pages()) as pages:
            async for rows in pages:
                await self._take(window, rows, shown)
                if tell is not None:
                    tell(reading)

    async def _is_beyond(self, window: Window, shown: dict[str, Shown]) -> bool:
        """Whether the list of all days shows orders that belong into this window, or that were never sent from here.

        A service may understand days in another way than they are written, and show nothing of any. So where a list
        shows no order of ours, the first and the last transactions of all days are looked at.
        """
        known = self.found
        window.days.clear()
        await self._take(window, await self.reader.edges(), shown)
        return self.found > known or any(window.since < day < window.until for day in window.days)

    async def _take(self, window: Window, rows: list[Transaction], shown: dict[str, Shown]) -> None:
        named = _grouped(rows)
        orders = {request_id: window.wanted[request_id] for request_id in named if request_id in window.wanted}
        window.listed |= orders.keys()
        others = await self.journal.entries_of([request_id for request_id in named if request_id not in orders])
        orders |= {request_id: Wanted.of(entry) for request_id, entry in others.items()}
        orders |= await self._written_otherwise(window, [one for one in named if one not in orders])
        self._ours += len(orders)
        await asyncio.gather(
            *(self._nameless(row) for row in rows if row.request_id not in orders),
            *(self._all_of(order, named[request_id], window, shown) for request_id, order in orders.items()),
        )

    async def _written_otherwise(self, window: Window, request_ids: Sequence[str]) -> dict[str, Wanted]:
        """Orders whose request id the list has in small or capital letters, or with spaces around it."""
        if not request_ids:
            return {}
        ways = {way: one for one in request_ids for way in _ways(one)}
        plain = {request_id.strip().lower(): request_id for request_id in request_ids}
        mixed = await self.journal.entries_of(list(plain), in_mixed_letters=True)
        ways |= {one: plain[one.lower()] for one in mixed if one.lower() in plain}
        found = {way: window.wanted[way] for way in ways if way in window.wanted}
        others = await self.journal.entries_of([way for way in ways if way not in found])
        found |= {way: Wanted.of(entry) for way, entry in others.items()}
        for way in found:
            self.findings.note(f"the list has request ids in other letters than they were sent in, such as {ways[way]}")
            break
        window.listed |= found.keys() & window.wanted.keys()
        return {ways[way]: order for way, order in found.items()}

    async def _all_of(
        self, order: Wanted, rows: Iterable[Transaction], window: Window, shown: dict[str, Shown]
    ) -> None:
        """All rows of one order, one after the other: more than one is more than one payment."""
        for row in rows:
            known = order.transaction_id if order.state in CONFIRMED else None
            first = known or self._first.setdefault(order.request_id, row.transaction_id)
            if first.lower() != row.transaction_id.lower():
                self.findings.double(order.request_id, first, row.transaction_id)
            if await self._is_about(order, row):
                window.days.add(day_of(order.at, self.payments.dialect.timezone))
                if order.request_id in window.wanted:
                    shown[row.transaction_id] = Shown(order.request_id, row.amount, row.currency)

    async def _is_about(self, order: Wanted, row: Transaction) -> bool:
        """Whether a row is about this order indeed, after taking from it what it says."""
        if order.state is State.SENDING:
            return False  # its own answer is under way
        final = row.status is not None and row.status.is_final
        same = order.state in CONFIRMED and _is_same(row, order) and _agrees(row, order)
        if same and (row.status is None or not final or STATES.get(row.status) is order.state):
            return True
        before = order.state
        named = attrs.evolve(row, request_id=order.request_id)  # in the letters in which it was sent
        agrees = await self.findings.apply_record(order, named, "list")
        if before is State.PLANNED and order.state is not State.PLANNED:
            self.found += 1
            self.findings.found += 1
        return agrees

    async def _nameless(self, row: Transaction) -> None:
        """A row whose request id the journal does not hold, or that has none."""
        finding = None
        if row.request_id is None:
            news = News.LOOKED_UP_PROCESSING if row.status is None else LOOKED_UP.get(row.status)
            finding = await self.journal.apply_evidence(evidence_of(row, news or News.LOOKED_UP_PROCESSING, "list"))
        if finding is None:
            self.findings.stranger(row)


def _ways(request_id: str) -> set[str]:
    plain = request_id.strip()
    return {plain, plain.lower(), plain.upper()} - {request_id}


def _grouped(rows: Iterable[Transaction]) -> dict[str, list[Transaction]]:
    groups: dict[str, list[Transaction]] = {}
    for row in rows:
        if row.request_id is not None:
            groups.setdefault(row.request_id, []).append(row)
    return groups


def _is_same(row: Transaction, order: Wanted) -> bool:
    return order.transaction_id is not None and row.transaction_id.lower() == order.transaction_id.lower()


def _agrees(row: Transaction, order: Wanted) -> bool:
    same_sum = order.currency is None or row.currency is None or row.currency.strip().upper() == order.currency.upper()
    return same_sum and (row.amount is None or row.amount.copy_abs() == order.amount)
