"""What became of a batch, for whoever files it: a table for spreadsheets and a page to print."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import IO

from payments_async._values.frozen import frozen
from payments_async.bulk._plan._plan import Share
from payments_async.bulk._problems import FORMULA
from payments_async.bulk._report._files import csv_lines, harmless_line, place_of, replacing
from payments_async.bulk._report._html import BEGINNING, ReportHead, ReportPage
from payments_async.bulk._report._lines import (
    ReportLine,
    decided,
    line_of,
    moment_text,
    need_of,
    standing_words,
)
from payments_async.bulk._retry_ids import LaterTry, later_tries
from payments_async.journal import Journal
from payments_async.journal._records import Happening, OutcomeWithHistory, Run
from payments_async.journal._states import UNPAID, State

_COLUMNS = {
    "request_id": "Request id",
    "kind": "Kind",
    "name": "Beneficiary",
    "payee": "Wallet, account or line",
    "bank_code": "Bank code",
    "amount": "Amount",
    "currency": "Currency",
    "item": "Item",
    "state": "Outcome",
    "at": "Since (UTC)",
    "evidence": "Evidence",
    "transaction_id": "Transaction",
    "attempts": "Attempts",
    "code": "Code",
    "message": "The service's words",
    "need": "What a person must do",
    "unpaid": "Not paid, and why",
    "decisions": "Decisions",
}
_AMOUNT, _AT, _ATTEMPTS = map(list(_COLUMNS).index, ("amount", "at", "attempts"))
_words = attrgetter(*(name if name not in ("amount", "at", "attempts") else "state" for name in _COLUMNS))
_RISKY = frozenset((*FORMULA, " "))  # a cell that begins so is looked at twice


_HEADER = csv_lines([_COLUMNS.values()], "utf-8-sig")  # what tells a report from any other table


@frozen(kw_only=True)
class Report:
    """What was written.

    Attributes:
        csv, html: The files, or ``None`` where none was asked for.
        by_state, by_kind: The orders and their sums.
        needing: Orders that need a person: unknown, parked, or with a contradiction.
        unpaid: Orders that ended without being paid: rejected, failed, reversed.
        tried_again: Of these, orders that were tried again under another id (``retry_file``) and are so paid or open.
        archived: Orders that have left the journal for an archive: they are in neither file, and in none of the counts.
    """

    batch_id: str
    csv: Path | None
    html: Path | None
    by_state: Mapping[State, Share]
    by_kind: Mapping[str, Share]
    needing: int
    unpaid: int
    tried_again: int = 0
    archived: int = 0

    @property
    def standing(self) -> str:
        """``"final"``, or what the batch still waits for, as in "not final yet: 9 accepted, not settled"."""
        return standing_words({state: share.count for state, share in self.by_state.items()})


async def report(
    journal: Journal,
    batch_id: str,
    *,
    csv: str | os.PathLike[str] | None = None,
    html: str | os.PathLike[str] | None = None,
    personal: bool = False,
    overwrite: bool = False,
    html_rows: int = 10_000,
    clock: Callable[[], float] = time.time,
    progress: Callable[[int], object] | None = None,
) -> Report:
    """Write the outcome of every order of a batch as CSV, as one self-contained HTML page, or both.

    The files appear when they are complete, readable by their owner alone. Memory stays the same for a batch of any
    length. Totals and rows are of one walk through the journal, so they agree even while the batch runs.

    Args:
        csv, html: Where to write. CSV is UTF-8 with a byte order mark, so that spreadsheets read it right; a cell that
            could be a formula has an apostrophe in front.
        personal: Names and numbers in full, not masked.
        overwrite: Replace reports that are there. Other files are never replaced, such as the journal or a batch file.
        html_rows: Most rows in each of the page's tables, so that a browser opens the page of a batch of any length
            (some 5 MB by default). The orders that need a person, those that were not paid, and what persons decided
            have tables of their own, above that of all orders; the totals are of all orders, and the CSV table has
            every row.
        clock: Unix seconds.
        progress: Called now and then with how many orders were written.

    Raises:
        RunUnknown: The journal holds no such batch.
        ValueError: A path is the journal's, both are the same, or what is there is no report; nothing was written.
        FileExistsError: A report is there, and ``overwrite`` is not set; nothing was written.
        OSError: A file cannot be written.
        JournalUnavailable: The journal cannot be read.
    """
    run, decisions = await journal.run(batch_id), await journal.decisions(batch_id)
    csv_path, html_path = (None if path is None else Path(path) for path in (csv, html))
    source = getattr(journal, "path", None)
    with ExitStack() as resources:
        places = [
            None if path is None else place_of(path, marker=marker, overwrite=overwrite, journal=source)
            for path, marker in ((csv_path, _HEADER), (html_path, BEGINNING))
        ]
        if places[0] is not None and places[0] == places[1]:
            raise ValueError(f"{csv_path} cannot be both the table and the page; name two files")
        sheet, page = (
            None if place is None else resources.enter_context(replacing(place, marker=marker, overwrite=overwrite))
            for place, marker in zip(places, (_HEADER, BEGINNING), strict=True)
        )
        written = _Writing(
            sheet, None if page is None else resources.enter_context(ReportPage(page, html_rows)), personal=personal
        )
        written.currency = await journal.account_currency(run.batch_id) or ""
        written.decided("the batch", decisions)
        async for standings in journal.standings(batch_id):
            some = await asyncio.to_thread(list, standings)
            unpaid = [one.entry.request_id for one in some if one.entry.state in UNPAID]
            written.take_later(await later_tries(journal, unpaid))
            await asyncio.to_thread(written.take, some)
            if progress is not None:
                progress(written.count)
        await asyncio.to_thread(written.close, run, datetime.fromtimestamp(clock(), UTC))
    return written.result(run, csv_path, html_path)


class _Writing:
    """Both files on their way, and the totals of what is in them.

    Attributes:
        count: How many orders were taken.
        currency: Of orders that name none.
    """

    def __init__(self, sheet: IO[bytes] | None, page: ReportPage | None, *, personal: bool) -> None:
        self._page = page
        self._personal = personal
        self._text = sheet and io.TextIOWrapper(sheet, encoding="utf-8-sig", newline="")
        self._sheet = self._text and csv.writer(self._text)
        self._shares: defaultdict[tuple[str, State], Share] = defaultdict(Share)
        self._currencies: set[str] = set()
        self._later: Mapping[str, LaterTry] = {}
        self._needing = self._unpaid = self._tried_again = 0
        self.count = 0
        self.currency = ""
        if self._sheet:
            self._sheet.writerow(_COLUMNS.values())

    def decided(self, about: str, happenings: Iterable[Happening]) -> None:
        """Write what persons decided about an order, or about the batch as a whole."""
        if self._page:
            for one in happenings:
                self._page.add_decision(decided(one, about, personal=self._personal))

    def take_later(self, later: Mapping[str, LaterTry]) -> None:
        """Take what became of the next orders under another id."""
        self._later = later

    def take(self, standings: Iterable[OutcomeWithHistory]) -> None:
        """Write some lines."""
        for standing in standings:
            entry = standing.entry
            key = entry.order.kind, entry.state
            self._shares[key] = self._shares[key].with_one(entry.amount)
            self._currencies.add(entry.order.currency or self.currency)
            is_needing, is_unpaid = bool(need_of(entry)), entry.state in UNPAID
            self._needing += is_needing
            self._unpaid += is_unpaid
            self.count += 1
            later = self._later.get(entry.request_id)
            self._tried_again += later is not None and later.may_be_paid
            if self._sheet is None and self._page and self._page.is_full and not is_needing and not is_unpaid:
                self._page.count()  # no line of it is made: of a long batch these are nearly all
            else:
                line = line_of(standing, personal=self._personal, later=later, currency=self.currency)
                if self._sheet:
                    self._sheet.writerow(_cells(line))
                if self._page:
                    self._page.add(line)
            self.decided(entry.request_id, standing.persons)

    def close(self, run: Run, made: datetime) -> None:
        """Finish both."""
        if self._text:
            self._text.flush()
            self._text.detach()
        if self._page:
            head = ReportHead(
                batch_id=run.batch_id,
                service=run.identity.base_address,
                digest=run.source_digest,
                made=made,
                shares=self._shares,
                currency=next(iter(self._currencies)) if len(self._currencies) == 1 else "",
                needing=self._needing,
                unpaid=self._unpaid,
                tried_again=self._tried_again,
                is_personal=self._personal,
                archived=run.archived,
            )
            self._page.finish(head)

    def result(self, run: Run, csv_path: Path | None, html_path: Path | None) -> Report:
        """What was written."""
        kinds: defaultdict[str, Share] = defaultdict(Share)
        states = dict.fromkeys(State, Share())
        for (kind, state), share in sorted(self._shares.items()):
            kinds[kind] += share
            states[state] += share
        return Report(
            batch_id=run.batch_id,
            csv=csv_path,
            html=html_path,
            by_state=states,
            by_kind=dict(kinds),
            needing=self._needing,
            unpaid=self._unpaid,
            tried_again=self._tried_again,
            archived=run.archived,
        )


def _cells(line: ReportLine) -> list[str]:
    cells = list(_words(line))
    if not "".join(cells).isprintable() or not _RISKY.isdisjoint([cell[:1] for cell in cells]):
        cells = list(map(harmless_line, cells))
    cells[_AMOUNT], cells[_ATTEMPTS] = f"{line.amount:f}", str(line.attempts)
    cells[_AT] = "" if line.at is None else moment_text(line.at)
    return cells
