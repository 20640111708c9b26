"""The request ids of orders that are paid again after they surely were not, and what became of those before them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from payments_async._values.frozen import frozen
from payments_async._wire.kinds import reference_of
from payments_async._wire.orders import Order
from payments_async.journal import Journal
from payments_async.journal._records import ArchivedOrder, Entry
from payments_async.journal._states import AGAIN, State

Earlier: TypeAlias = Mapping[str, Entry | ArchivedOrder]

_AGAIN = re.compile(r"(?P<first>.+)-R(?P<time>[2-9]|[1-9][0-9]{1,3})", re.DOTALL)


@frozen(kw_only=True)
class LaterTry:
    """The order by which another one, that was not paid, was tried again.

    Attributes:
        batch_id: The batch it is in.
        may_be_paid: It was paid, or may be: do not pay that person in another way as well.
    """

    request_id: str
    batch_id: str
    state: State
    may_be_paid: bool

    def __str__(self) -> str:
        warning = "; do not pay it in another way" if self.may_be_paid else ""
        return f"tried again as {self.request_id} of batch {self.batch_id}, which is {self.state}{warning}"


def retried_id(request_id: str, *, is_row: bool = False) -> str:
    """The id under which an order is tried again; always the same, so a second try pays once.

    Args:
        is_row: The number at its end is that of a row, so that the next one is another order's.

    >>> retried_id("PAY-17"), retried_id("PAY-17-R2"), retried_id("PAY-R2", is_row=True)
    ('PAY-17-R2', 'PAY-17-R3', 'PAY-R2-R2')
    """
    found = None if is_row else _AGAIN.fullmatch(request_id)
    return f"{found['first']}-R{int(found['time']) + 1}" if found else f"{request_id}-R2"


def earlier_id(request_id: str) -> str | None:
    """The id of the order that this one tries again, if it is named so.

    >>> earlier_id("PAY-17-R3"), earlier_id("PAY-17-R2"), earlier_id("PAY-17")
    ('PAY-17-R2', 'PAY-17', None)
    """
    found = _AGAIN.fullmatch(request_id)
    if found is None:
        return None
    return found["first"] if found["time"] == "2" else f"{found['first']}-R{int(found['time']) - 1}"


class _Rows:
    """Knows orders that are numbered as tries are, and are none: rows of one batch, loaded together.

    An outbox has no rows: what is put into it later may try again what was put before. And who recovers a journal may
    load tries together: rows pay others, by name and by number, as a try never does that was mended in one of them.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._loaded: dict[str, bool] = {}

    async def are_beside(self, one: Entry | ArchivedOrder | None, other: Entry | ArchivedOrder) -> bool:
        """Whether two orders whose numbers follow each other are rows of a batch."""
        if not (isinstance(one, Entry) and isinstance(other, Entry)) or one.batch_id != other.batch_id:
            return False
        if not _are_numbered(one.request_id, other.request_id) or not _pay_different(one.order, other.order):
            return False
        name = one.batch_id
        if name not in self._loaded:
            self._loaded[name] = (await self._journal.run(name)).outbox != name
        return self._loaded[name]


def _are_numbered(*request_ids: str) -> bool:
    return all(_AGAIN.fullmatch(one) for one in request_ids)


def _pay_different(one: Order, other: Order) -> bool:
    """Whether two orders have neither the name nor the number in common that they pay to."""
    is_same_name = one.beneficiary.name.strip().casefold() == other.beneficiary.name.strip().casefold()
    return not is_same_name and reference_of(one) != reference_of(other)


async def earlier_orders(journal: Journal, request_ids: Iterable[str], held: Earlier | None = None) -> Earlier:
    """All orders that these try again and the journal knows: those just before, those before them, and so on.

    Args:
        held: Those of the orders themselves that the journal has.
    """
    rows, known = _Rows(journal), dict[str, Entry | ArchivedOrder]()
    after = dict(held or {})
    wanted = {before: one for one in request_ids if (before := earlier_id(one)) is not None}
    while wanted:
        found = {
            one: order
            for one, order in (await journal.orders_of(list(wanted))).items()
            if not await rows.are_beside(after.get(wanted[one]), order)
        }
        known |= found
        after = found
        wanted = {before: one for one in found if (before := earlier_id(one)) is not None and before not in known}
    return known


async def later_tries(journal: Journal, request_ids: Iterable[str]) -> Mapping[str, LaterTry]:
    """The last order by which each of these was tried again under another id, as ``retry_file`` names them.

    Returns:
        By the id of the order that was not paid. Orders without a later try are not in it.

    Raises:
        JournalUnavailable: The journal cannot be read.
    """
    last: dict[str, LaterTry] = {}
    rows, wanted = _Rows(journal), {retried_id(one): one for one in request_ids}
    tried = dict(await journal.orders_of(list(filter(_are_numbered, wanted.values()))))
    while wanted:
        following: dict[str, str] = {}
        for request_id, order in (await journal.orders_of(list(wanted))).items():
            first = wanted[request_id]
            if await rows.are_beside(tried.get(first), order):
                following[retried_id(first, is_row=True)] = first
            else:
                last[first], tried[first] = _later(order), order
                following[retried_id(request_id)] = first
        wanted = following
    return last


def is_doubted(order: Entry | ArchivedOrder) -> bool:
    """Whether something contradicts how an order stands: nobody has acknowledged it, or it was told after it left."""
    if isinstance(order, ArchivedOrder):
        return any(one.conflict is not None for one in order.late)
    return order.conflict is not None or bool(order.unconfirmed)


def _later(order: Entry | ArchivedOrder) -> LaterTry:
    return LaterTry(
        request_id=order.request_id,
        batch_id=order.batch_id,
        state=order.state,
        may_be_paid=is_doubted(order) or order.state not in AGAIN,
    )


def tries_before(request_id: str, earlier: Earlier) -> Iterator[Entry | ArchivedOrder]:
    """The orders that this one tries again, the latest first, as far as they are known."""
    before = earlier_id(request_id)
    while before is not None and (order := earlier.get(before)) is not None:
        yield order
        before = earlier_id(before)


def paid_before(request_id: str, earlier: Earlier) -> tuple[str, str] | None:
    """The latest of the orders before this one that may have been paid after all, and how it stands."""
    for order in tries_before(request_id, earlier):
        if is_doubted(order):
            return order.request_id, f"{order.state}, and something contradicts that"
        if order.state not in AGAIN:
            return order.request_id, order.state
    return None
