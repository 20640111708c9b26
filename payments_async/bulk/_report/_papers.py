"""Papers of one page each: the sheet on which a batch is approved, and the proof that one order was paid."""

from __future__ import annotations

import asyncio
import heapq
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import attrs

from payments_async._pages.rendering import rendered
from payments_async._values.frozen import frozen
from payments_async._values.masking import mask
from payments_async._wire.kinds import reference_of
from payments_async._wire.orders import Order, PayoutOrder
from payments_async.bulk._file._batch import Guess
from payments_async.bulk._file._headings import FileColumn, GoesTo
from payments_async.bulk._plan._payees import ChangeKind, Comparison, PayeeChange
from payments_async.bulk._plan._plan import Plan
from payments_async.bulk._problems import Issue
from payments_async.bulk._report._files import place_of, replacing
from payments_async.bulk._report._lines import evidence_words, line_of, moment_text
from payments_async.journal import Journal
from payments_async.journal._faults import OrderUnknown
from payments_async.journal._records import Entry, Happening, OutcomeWithHistory
from payments_async.journal._states import State

_LARGEST = 10  # orders that the sheet names
_CHANGED: Mapping[ChangeKind, str] = {
    "other account": "paid to another account than then",
    "other name": "the same account under another name",
    "amount": "another amount",
    "new": "new",
    "gone": "gone",
}
_GOES_TO: Sequence[tuple[str, GoesTo | None]] = (
    ("To the service and the beneficiary", "beneficiary"),
    ("To the service", "service"),
    ("Not sent", None),
)
_EXAMPLES = 3  # of each
_SHOWN = 4  # issues of a kind, so that the sheet stays one page
_OPENING = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="payments-async '
)
_SHEET, _RECEIPT = f"{_OPENING}approval sheet".encode(), f"{_OPENING}receipt".encode()


@frozen(kw_only=True)
class _Payee:
    """One order on the sheet."""

    request_id: str
    name: str
    payee: str
    message: str
    amount: object


async def approval_sheet(
    plan: Plan,
    batch_id: str,
    path: str | os.PathLike[str],
    *,
    file: str = "",
    maker: str = "",
    personal: bool = True,
    overwrite: bool = False,
    clock: Callable[[], float] = time.time,
) -> None:
    """Write one page on which a plan is approved: its totals, its largest orders, what was found, its digest.

    Args:
        path: Of an HTML page, which prints on one A4.
        file: What the batch was made from.
        maker: Who proposes it.
        personal: Names and numbers in full: the person who signs has to check them. Otherwise they are masked.
        overwrite: Replace such a sheet that is there; no other file is ever replaced.
        clock: Unix seconds.

    Raises:
        BatchChanged: The file was changed since it was planned; nothing was written.
        ValueError: What is there is no such sheet; nothing was written.
        FileExistsError: A sheet is there, and ``overwrite`` is not set; nothing was written.
        OSError: The file cannot be written.
        ModuleNotFoundError: The extra ``pages`` is not installed.
    """
    shown: Callable[[str], str] = str if personal else mask
    greatest = await _largest(plan)
    issued: list[Issue] = [*plan.problems, *plan.concerns, *plan.skipped, *plan.warnings]
    ids = {one.request_id for one in issued if one.request_id} | {one.request_id for one in greatest}
    ids |= set() if plan.comparison is None else {one.request_id for one in plan.comparison.shown}
    names = await asyncio.to_thread(plan.named, ids)
    largest = [
        _Payee(
            request_id=names.get(order.request_id, order.request_id),
            name=shown(order.beneficiary.name),
            payee=" ".join(filter(None, (_bank_of(order), shown(reference_of(order))))),
            message=shown(order.message) if order.message else "",
            amount=order.amount,
        )
        for order in greatest
    ]
    found = plan.duplicates
    doubles = [f"same beneficiary and amount: {found.same_amount:,}"] if found.same_amount else []
    issues: list[tuple[str, str, Sequence[Issue | str]]] = [
        ("Problems: nothing can be sent as it is", "unpaid", plan.problems),
        ("Concerns: looked at" if plan.acknowledged else "Concerns: to be looked at", "need", plan.concerns),
        ("Left out", "need", plan.skipped),
        ("Paid twice?", "need", doubles),
        ("Guessed by the operators of telephone numbers", "need", [_guessed(one) for one in plan.guesses]),
        ("Look at this", "notes", plan.warnings),
    ]
    values = {
        "plan": plan,
        "batch_id": batch_id,
        "file": file,
        "maker": maker,
        "largest": largest,
        "has_messages": any(one.message for one in largest),
        "columns": _columns(plan.columns),
        "changes": [] if plan.comparison is None else _changes(plan.comparison, names, shown),
        "issues": [(title, style, *_first(lines, names)) for title, style, lines in issues if lines],
        "made": clock(),
        "is_personal": personal,
    }
    await asyncio.to_thread(_write, Path(path), "approval.html", values, _SHEET, None, overwrite)


async def receipt(
    journal: Journal,
    request_id: str,
    path: str | os.PathLike[str],
    *,
    payer: str = "",
    personal: bool = True,
    overwrite: bool = False,
    clock: Callable[[], float] = time.time,
) -> None:
    """Write the proof that one order was paid, as a page of its own.

    Args:
        path: Of an HTML page, which prints on one A4.
        payer: Who paid, such as a company's name.
        personal: Names and numbers in full: the person who signs has to check them. Otherwise they are masked.
        overwrite: Replace a receipt that is there; no other file is ever replaced.
        clock: Unix seconds.

    Raises:
        OrderUnknown: The journal holds no such order; one that has left for an archive is told of there.
        ValueError: It was not paid, or evidence contradicts that it was; or what is there is no receipt. Nothing was
            written.
        FileExistsError: A receipt is there, and ``overwrite`` is not set; nothing was written.
        OSError: The file cannot be written.
        JournalUnavailable: The journal cannot be read.
        ModuleNotFoundError: The extra ``pages`` is not installed.
    """
    entry = await journal.entry(request_id)
    if entry is None:
        raise OrderUnknown(f"the journal holds no order {request_id}")
    if entry.state is not State.SUCCESSFUL:
        raise ValueError(f"{request_id} is {entry.state}: there is no proof but of what was paid, and is final")
    if entry.conflict is not None:
        raise ValueError(f"{request_id}: evidence contradicts ({entry.conflict}); acknowledge what is true first")
    run, story = await journal.run(entry.batch_id), await journal.history(request_id)
    turn = next((one for one in story if one.state is State.SUCCESSFUL), None)
    currency = await journal.account_currency(run.batch_id) or ""
    line = line_of(OutcomeWithHistory(entry=entry, decision=turn), personal=personal, currency=currency)
    values = {
        "line": line,
        "day": "" if turn is None else _day(turn.at),
        "payer": payer,
        "facts": [("Paid by", payer), *_facts(entry, line.name, line.payee, turn, run.source_digest)],
        "story": [(_when(one), evidence_words(one)) for one in story if one.state is not None],
        "service": run.identity.base_address,
        "made": clock(),
        "is_personal": personal,
    }
    held = getattr(journal, "path", None)
    await asyncio.to_thread(_write, Path(path), "receipt.html", values, _RECEIPT, held, overwrite)


def _columns(columns: Sequence[FileColumn]) -> list[tuple[str, str]]:
    """Who gets what stands in the columns of the file, and which columns those are."""
    return [
        (words, ", ".join(_read_as(one) for one in columns if one.goes_to == goes_to))
        for words, goes_to in _GOES_TO
        if any(one.goes_to == goes_to for one in columns)
    ]


def _read_as(one: FileColumn) -> str:
    return one.heading if one.column in {None, one.heading} else f"{one.heading} as {one.column}"


def _guessed(guess: Guess) -> str:
    return f"{guess.product_item_id} for {guess.orders:,} numbers of {guess.operator}, {guess.total:,f} in all"


def _changes(found: Comparison, names: Mapping[str, str], shown: Callable[[str], str]) -> list[tuple[str, int, str]]:
    """What is not as in the other batch: in words, of how many payees, and the first of them."""
    rows = []
    for kind, words in _CHANGED.items():
        if count := found.counts.get(kind, 0):
            first = [one for one in found.shown if one.kind == kind][:_EXAMPLES]
            rows.append(
                (
                    words,
                    count,
                    "; ".join(_changed(one, names, shown) for one in first) + (" ..." if count > len(first) else ""),
                )
            )
    return rows


def _changed(change: PayeeChange, names: Mapping[str, str], shown: Callable[[str], str]) -> str:
    sums = " → ".join(f"{amount:,f}" for amount in (change.before, change.now) if amount is not None)
    accounts = " → ".join(map(shown, filter(None, (change.account_before, change.account))))
    people = " → ".join(map(shown, filter(None, (change.name_before, change.name))))
    return f"{names.get(change.request_id, change.request_id)} {people}, {accounts}: {sums}"


def _facts(
    entry: Entry, name: str, payee: str, turn: Happening | None, digest: str | None
) -> list[tuple[str, str | None]]:
    order = entry.order
    return [
        ("Order", entry.request_id),
        ("Paid to", name),
        ("Wallet, account or line", " ".join(filter(None, (_bank_of(order), payee)))),
        ("Kind", order.kind.replace("_", " ")),
        ("Batch", entry.batch_id),
        ("Transaction of the service", entry.transaction_id),
        ("Final since (UTC)", "" if turn is None else _when(turn)),
        ("Evidence", "" if turn is None else evidence_words(turn)),
        ("SHA-256 of the plan it was in", digest),
    ]


def _bank_of(order: Order) -> str | None:
    """The code of the bank, where the money goes into an account."""
    return getattr(getattr(order, "destination", None), "bank_code", None)


def _day(at: float) -> str:
    day = datetime.fromtimestamp(at, UTC)
    return f"{day.day} {day:%B %Y}"


def _when(happening: Happening) -> str:
    return moment_text(datetime.fromtimestamp(happening.at, UTC)) if happening.at else ""


async def _largest(plan: Plan) -> list[PayoutOrder]:
    """The largest orders of a plan, the first of equal ones first, in constant memory."""
    kept: list[tuple[Any, int, PayoutOrder]] = []
    numbers = count(0, -1)
    async for order in plan:
        heapq.heappush(kept, (order.amount, next(numbers), order))
        if len(kept) > _LARGEST:
            heapq.heappop(kept)
    return [order for _, _, order in sorted(kept, reverse=True, key=lambda one: one[:2])]


def _first(lines: Sequence[Issue | str], names: Mapping[str, str]) -> tuple[list[str], int]:
    """The first of many, and how many more there are."""
    return [_line(line, names) for line in lines[:_SHOWN]], max(len(lines) - _SHOWN, 0)


def _line(line: Issue | str, names: Mapping[str, str]) -> str:
    if isinstance(line, str) or line.request_id is None:
        return str(line)
    return str(attrs.evolve(line, request_id=names.get(line.request_id, line.request_id)))


def _write(
    path: Path, template: str, values: Mapping[str, object], marker: bytes, journal: Path | None, overwrite: bool
) -> None:
    place = place_of(path, marker=marker, overwrite=overwrite, journal=journal)
    page = rendered(template, values).encode()
    with replacing(place, marker=marker, overwrite=overwrite) as file:
        file.write(page)
