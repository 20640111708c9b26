"""A sweep: the list of a window, read once as it is and once for each status. Says what was shown; decides nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import NamedTuple

import attrs

from payments_async._errors import AuthenticationFailed, PaymentsError
from payments_async._listing import Listing
from payments_async._models import Page, Transaction, TransactionStatus
from payments_async._session import PaymentsSession
from payments_async.bulk._window import Window

__all__ = ["Reading", "Shown", "read_list", "read_statuses"]

_PAGE = 50  # rows; the largest page the service takes is not documented


class Shown(NamedTuple):
    """A wanted order as the unfiltered list shows it."""

    request_id: str
    amount: Decimal | None
    currency: str | None


@attrs.define
class Reading:
    """One reading of the list.

    Attributes:
        problem: Why absence from it proves nothing, or ``None`` when all of it was read.
    """

    problem: str | None = "it was not read to the end"


async def read_list(
    payments: PaymentsSession, window: Window, reading: Reading, status: TransactionStatus | None = None
) -> AsyncIterator[list[Transaction]]:
    """The rows of a window, a page's worth at a time. ``reading`` tells afterwards what they are worth."""
    counted = False

    async def fetch(number: int) -> Page[Transaction]:
        nonlocal counted
        page = await payments.transactions.page(
            number=number, size=_PAGE, since=window.since, until=window.until, status=status
        )
        counted = counted or page.total_count is not None
        return page

    listing: Listing[Transaction] = Listing(fetch, lambda row: row.transaction_id, warns=False)
    block: list[Transaction] = []
    try:
        async for row in listing:
            block.append(row)
            if len(block) == _PAGE:
                yield block
                block = []
    except AuthenticationFailed:
        raise
    except PaymentsError as error:
        reading.problem = f"it could not be read: {error.message}"
    else:
        reading.problem = _gap(listing, counted=counted)
    if block:
        yield block


def _gap(listing: Listing[Transaction], *, counted: bool) -> str | None:
    if listing.incomplete is not None:
        return f"it showed {listing.incomplete.seen} of {listing.incomplete.expected} rows"
    return None if counted else "the service does not say how many rows there are"


async def read_statuses(
    payments: PaymentsSession, window: Window, shown: dict[str, Shown], note: Callable[[str], None]
) -> dict[str, TransactionStatus]:
    """The status of transactions that the unfiltered list has shown, by the one filtered list that shows them.

    A service that does not know the filter's name silently returns everything, and then every order would look
    failed: an id that is shown under two statuses has none. The same where a filtered list was not read to its end,
    since the id might have been in the part that is missing.

    Args:
        shown: By transaction id.
        note: Takes words about what hinders.
    """
    under: dict[str, TransactionStatus] = {}
    several: set[str] = set()
    complete = True
    for status in TransactionStatus:
        reading = Reading()
        async for rows in read_list(payments, window, reading, status):
            for row in rows:
                order = shown.get(row.transaction_id)
                if order is None or order.request_id != row.request_id:
                    continue
                if under.setdefault(row.transaction_id, status) is not status:
                    several.add(row.transaction_id)
        if reading.problem is not None:
            complete = False
            note(f"the list of {status} transactions from {window}: {reading.problem}")
    if several:
        note(f"{len(several)} transactions from {window} are listed under several statuses, so they have none")
    if not complete:
        return {}
    return {transaction_id: status for transaction_id, status in under.items() if transaction_id not in several}
