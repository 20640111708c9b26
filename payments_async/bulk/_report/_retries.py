"""A batch file of the orders that surely were not paid, to be mended, planned and run as a batch of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import attrs

from payments_async._values.frozen import frozen
from payments_async._wire.kinds import PAYOUT_KINDS
from payments_async._wire.orders import CollectionOrder, PayoutOrder
from payments_async.bulk._file._headings import COLUMNS
from payments_async.bulk._file._rows import Rules, read_cells
from payments_async.bulk._plan._plan import Share
from payments_async.bulk._report._files import place_of, replacing
from payments_async.bulk._report._returned import NEVER, header_of, lines_below
from payments_async.bulk._retry_ids import Earlier, earlier_orders, later_tries, paid_before, retried_id
from payments_async.journal import Journal
from payments_async.journal._records import Entry, Happening
from payments_async.journal._states import UNPAID

_EARLIER, _WHY = "earlier_request_id", "why_not_paid"
_COLUMNS = (*COLUMNS, _EARLIER, _WHY)
_NUMBERS = ("phone_number", "account_number", "bank_code", "customer_reference")  # spreadsheets would ruin them


@frozen(kw_only=True)
class Retries:
    """What was written.

    Attributes:
        path: The file, or ``None`` where there was nothing to write.
        written: The orders in it, and their sum.
        left_out: Request id and reason of orders that ended without being paid, and are not in it.
    """

    path: Path | None
    written: Share
    left_out: tuple[tuple[str, str], ...]


async def retry_file(
    journal: Journal,
    batch_id: str,
    path: str | os.PathLike[str],
    *,
    reversed_too: bool = False,
    overwrite: bool = False,
) -> Retries:
    """Write a batch file of the orders of a batch that surely were not paid: rejected, or failed.

    Orders with a contradiction are left out: they may have been paid.

    Each has a new request id, always the same for one order (``PAY-17-R2``, then ``PAY-17-R3``), so that a second file
    of the same orders pays nothing twice. ``plan`` refuses one whose earlier order has turned out to be paid since.
    Names and numbers are in full: the file is readable by its owner alone. Columns beside those of a batch file name
    the earlier order, and say why it was not paid.

    Args:
        path: Of a CSV file, or of a workbook (``.xlsx``), which is never replaced.
        reversed_too: Also what was paid, and came back.
        overwrite: Replace a file of this kind that is there; no other file is ever replaced.

    Raises:
        RunUnknown: The journal holds no such batch.
        ValueError: The path is the journal's, or what is there is no such file; nothing was written.
        FileExistsError: Such a file is there, and ``overwrite`` is not set; nothing was written.
        OSError: The file cannot be written.
        JournalUnavailable: The journal cannot be read.
    """
    run = await journal.run(batch_id)
    currency = await journal.account_currency(run.batch_id) or ""
    header = header_of(path, _COLUMNS)
    place = place_of(Path(path), marker=header, overwrite=overwrite, journal=getattr(journal, "path", None))
    states = [state for state in UNPAID if reversed_too or not state.meaning.was_paid]
    left_out: list[tuple[str, str]] = []
    orders: list[tuple[Entry, PayoutOrder]] = []
    ended = [entry for state in states async for entry in journal.entries(batch_id, state)]
    held = {entry.request_id: entry for entry in ended}
    earlier, later = await earlier_orders(journal, held, held), await later_tries(journal, held)
    taken = await journal.entries_of([retried_id(one) for one in held if one not in later])
    for entry in ended:
        again = later.get(entry.request_id)
        why = _why_not(entry, earlier) if again is None else str(again)
        why = why or _acknowledged(await journal.history(entry.request_id))
        order = None if why else _again(entry, taken)
        if order is not None:
            orders.append((entry, order))
        else:
            left_out.append((entry.request_id, why or "it is not a payout that a batch file can hold"))
    rows = [(entry, order, _cells(order)) for entry, order in orders]
    good = [row for row in rows if _is_read_as(row[2], row[1])]
    unwritable = "a row of a batch file cannot hold it exactly: enter it by hand, with care"
    left_out += [(entry.request_id, unwritable) for entry, order, cells in rows if not _is_read_as(cells, order)]
    if not good:
        return Retries(path=None, written=Share(), left_out=tuple(left_out))
    await asyncio.to_thread(
        _write,
        place,
        header,
        [(entry, {"currency": currency} | cells) for entry, _, cells in good],
        overwrite=overwrite,
    )
    total = sum((Share(count=1, total=order.amount) for _, order, _ in good), Share())
    return Retries(path=Path(path), written=total, left_out=tuple(left_out))


def _why_not(entry: Entry, earlier: Earlier) -> str | None:
    """Why an order that ended unpaid may have been paid all the same."""
    if entry.conflict is not None:
        return f"evidence contradicts: {entry.conflict}; acknowledge what is true first"
    if entry.unconfirmed:
        return "a notification about it is not confirmed yet; reconcile first"
    if (before := paid_before(entry.request_id, earlier)) is not None:
        return f"it tried {before[0]} again, which is {before[1]}"
    return None


def _acknowledged(story: Iterable[Happening]) -> str | None:
    """Why an order of which a person knows what is true may have been paid: only their words tell."""
    said = [f"{one.by} {one.detail}" for one in story if one.is_acknowledgement]
    return f"evidence was against itself ({said[-1]}): enter it by hand if it surely was not paid" if said else None


def _again(entry: Entry, taken: Container[str]) -> PayoutOrder | None:
    """The order under its next id, if it can have one; where other rows have such ids, under one of its own."""
    if isinstance(entry.order, CollectionOrder):
        return None
    request_id = retried_id(entry.request_id, is_row=retried_id(entry.request_id) in taken)
    try:
        return attrs.evolve(entry.order, request_id=request_id, batch_id=None)
    except ValueError:  # the id would be too long
        return None


def _write(place: Path, header: bytes, rows: Iterable[tuple[Entry, dict[str, str]]], *, overwrite: bool) -> None:
    mark = "" if header == NEVER else "'"  # in a workbook a text stays one
    with replacing(place, marker=header, overwrite=overwrite) as file, lines_below(file, header, _COLUMNS) as write:
        write([_row(entry, cells, mark) for entry, cells in rows])


def _row(entry: Entry, cells: Mapping[str, str], mark: str) -> list[str]:
    """The cells of an order; those that a spreadsheet would take for numbers, with a mark in front."""
    why = [entry.state, "" if entry.code is None else f"code {entry.code}:", entry.message or ""]
    own = {name: f"{mark}{cell}" if name in _NUMBERS else cell for name, cell in cells.items()}
    more = {_EARLIER: entry.request_id, _WHY: " ".join(" ".join(why).split())}
    return [(own | more).get(name, "") for name in _COLUMNS]


def _cells(order: PayoutOrder) -> dict[str, str]:
    """What the row of an order says, by column."""
    destination = {name: getattr(order.destination, name) for name in PAYOUT_KINDS[order.kind].members}
    cells = {
        "request_id": order.request_id,
        "kind": order.kind,
        "amount": format(order.amount, "f"),
        "currency": order.currency,
        "name": order.beneficiary.name,
        "phone_number": order.beneficiary.phone_number,
        "email_address": order.beneficiary.email_address,
        "product_id": order.product_id,
        "product_item_id": order.product_item_id,
        "message": order.message,
        "metadata": order.metadata,
        **destination,
    }
    return {name: cell for name, cell in cells.items() if cell}


def _is_read_as(cells: dict[str, str], order: PayoutOrder) -> bool:
    """Whether the reader of batch files makes the same order of a row, of which it takes no blanks at an end."""
    if any(cell != cell.strip() or "\r" in cell for cell in cells.values()):
        return False
    rules = Rules(kind=None, currency=None, batch_id=None, derive_request_ids=False, phone=str)
    read = read_cells(cells, rules).order
    return read is not None and _plain(read) == _plain(order)


def _plain(order: PayoutOrder) -> PayoutOrder:
    """An order but for what a row cannot tell: a number of the beneficiary's own beside that of the wallet."""
    beneficiary = attrs.evolve(order.beneficiary, phone_number=None, id=None)
    return attrs.evolve(order, beneficiary=beneficiary)
