"""The request ids of orders that are paid again after they surely were not, and what became of those before them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from payments_async._frozen import frozen
from payments_async.journal import Journal
from payments_async.journal._records import ArchivedOrder, Entry
from payments_async.journal._states import State

Earlier: TypeAlias = Mapping[str, Entry | ArchivedOrder]
_SURELY_UNPAID = (State.REJECTED, State.FAILED, State.REVERSED)

_AGAIN = re.compile(r"(?P<first>.+)-R(?P<time>[2-9]|[1-9][0-9]{1,3})", re.DOTALL)


@frozen(kw_only=True)
class LaterTry:
    """The order by which another one, that was not paid, was tried again.

    Attributes:
        batch_id: The batch it is in.
        may_be_paid: It was paid, or may be: nobody is to pay that person in another way as well.
    """

    request_id: str
    batch_id: str
    state: State
    may_be_paid: bool

    def __str__(self) -> str:
        warning = "; do not pay it in another way" if self.may_be_paid else ""
        return f"tried again as {self.request_id} of batch {self.batch_id}, which is {self.state}{warning}"


def retried_id(request_id: str) -> str:
    """The id under which an order is tried again; always the same, so that nobody pays it twice by trying twice.

    >>> retried_id("PAY-17"), retried_id("PAY-17-R2")
    ('PAY-17-R2', 'PAY-17-R3')
    """
    found = _AGAIN.fullmatch(request_id)
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


async def earlier_orders(journal: Journal, request_ids: Iterable[str]) -> Earlier:
    """All orders that these try again and the journal knows: those just before, those before them, and so on."""
    known: dict[str, Entry | ArchivedOrder] = {}
    wanted = set(filter(None, map(earlier_id, request_ids)))
    while wanted:
        found: dict[str, Entry | ArchivedOrder] = dict(await journal.entries_of([*wanted]))
        found |= await journal.archived_of([one for one in wanted if one not in found])
        known |= found
        wanted = set(filter(None, map(earlier_id, found))) - known.keys()
    return known


async def later_tries(journal: Journal, request_ids: Iterable[str]) -> Mapping[str, LaterTry]:
    """The last order by which each of these was tried again under another id, as ``retry_file`` names them.

    Returns:
        By the id of the order that was not paid. Those that nobody tried again are not in it.

    Raises:
        JournalUnavailable: The journal cannot be read.
    """
    last: dict[str, LaterTry] = {}
    wanted = {retried_id(one): one for one in request_ids}
    while wanted:
        found: dict[str, Entry | ArchivedOrder] = dict(await journal.entries_of([*wanted]))
        found |= await journal.archived_of([one for one in wanted if one not in found])
        last |= {wanted[one]: _later(order) for one, order in found.items()}
        wanted = {retried_id(one): wanted[one] for one in found}
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
        may_be_paid=is_doubted(order) or order.state not in _SURELY_UNPAID,
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
        if order.state not in _SURELY_UNPAID:
            return order.request_id, order.state
    return None
