"""The report of a batch as one HTML page that needs nothing else: for screen, printer and file.

The page is a template as all pages are; the rows of its tables are not. There may be hundreds of thousands of them, and
a template takes eight times as long for a row, which makes the writing of the page half as fast.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from decimal import Decimal
from html import escape
from typing import IO, Any, get_args

from payments_async._pages.rendering import streamed
from payments_async._values.frozen import frozen
from payments_async.bulk._plan._plan import Share
from payments_async.bulk._report._lines import ReportDecision, ReportLine, moment_text, standing_words
from payments_async.journal._states import Figure, State

_OPENING = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="generator" content="payments-async report">'
)
BEGINNING = _OPENING.encode()  # what tells a report from any other page

_MEMORY = 2**20
_PART = 2**16  # bytes of rows that are in memory at a time
_UNPAID = ("Request id", "Outcome", "Amount", "Beneficiary", "Since (UTC)", "Why")
_DECISIONS = ("When (UTC)", "Who", "About", "Decision", "Why")
_NEED = ("Request id", "Outcome", "Amount", "Beneficiary", "Since (UTC)", "What to do")
_ROWS = ("Request id", "Kind", "Beneficiary", "Paid to", "Amount", "Outcome", "Since (UTC)", "Evidence", "Transaction")


@frozen(kw_only=True)
class ReportHead:
    """What the page says of the batch as a whole.

    Attributes:
        service: Its base address.
        digest: Of the plan it was made from, where the journal has it.
        made: When the report was written, in UTC.
        shares: The orders by kind and state.
        currency: Of all amounts; empty when they do not agree on one.
        needing: Orders that need a person.
        unpaid: Orders that ended without being paid.
        tried_again: Of these, orders that were or may be paid under another id.
        is_personal: Whether names and numbers are in full.
        archived: Orders that have left the journal for an archive, and are not in the page.
    """

    batch_id: str
    service: str
    digest: str | None
    made: datetime
    shares: Mapping[tuple[str, State], Share]
    currency: str
    needing: int
    unpaid: int
    tried_again: int
    is_personal: bool
    archived: int = 0


class ReportPage(ExitStack):
    """Collects lines, then writes the page with the totals above them. Use it with ``with``.

    Args:
        file: Where the page goes.
        most: Lines in each table.
    """

    def __init__(self, file: IO[bytes], most: int) -> None:
        super().__init__()
        self._file = file
        self._need, self._unpaid, self._decisions, self._rows = (_Rows(self, most) for _ in range(4))

    def add(self, line: ReportLine) -> None:
        """Take one line."""
        if line.need:
            self._need.add(lambda: _need_row(line))
        if line.unpaid:
            self._unpaid.add(lambda: _unpaid_row(line))
        self._rows.add(lambda: _row(line))

    @property
    def is_full(self) -> bool:
        """Whether the table of all orders shows no more of them."""
        return self._rows.count >= self._rows.most

    def count(self) -> None:
        """Take an order that no table shows: nobody is needed for it, and it did not stay unpaid."""
        self._rows.count += 1

    def add_decision(self, decision: ReportDecision) -> None:
        """Take one decision of a person."""
        self._decisions.add(lambda: _decision_row(decision))

    def finish(self, head: ReportHead) -> None:
        """Write the page, row by row."""
        for piece in streamed("report.html", self._values(head)):
            self._file.write(piece.encode())

    def _values(self, head: ReportHead) -> dict[str, Any]:
        everything = _share(head)
        rows = self._rows
        title = "Every order" if rows.is_whole else f"The first {rows.shown:,} of {rows.count:,} orders"
        tables = [
            _Table("Decisions", "decisions", _DECISIONS, self._decisions),
            _Table("Needs a person", "need", _NEED, self._need),
            _Table("Not paid, and why", "unpaid", _UNPAID, self._unpaid),
        ]
        unit = f" {head.currency}".rstrip()
        return {
            "head": head,
            "facts": _facts(head, everything),
            "figures": _figures(head),
            "everything": everything,
            "states": [(state.value, state.meaning.short, _share(head, state=state)) for state in State],
            "kinds": [
                (kind.replace("_", " "), _share(head, kind=kind), _share(head, kind=kind, state=State.SUCCESSFUL))
                for kind in sorted({kind for kind, _ in head.shares})
            ],
            "banner": _banner(head),
            "tables": [*(one for one in tables if one.rows.count), _Table(title, "rows", _ROWS, rows)],
            "is_whole": rows.is_whole,
            "sum": f"Sum{unit}",
            "paid": f"Paid{unit}",
            "right": ("Orders", "Amount", "Paid", f"Sum{unit}", f"Paid{unit}"),
        }


class _Rows:
    """The rows of one table on their way: the first of them are kept, all of them are counted."""

    def __init__(self, resources: ExitStack, most: int) -> None:
        file = tempfile.SpooledTemporaryFile(_MEMORY, prefix="payments-async-")  # noqa: SIM115  lives as long as self
        self._file = resources.enter_context(file)
        self.most = most
        self.count = 0

    @property
    def shown(self) -> int:
        """How many are kept."""
        return min(self.count, self.most)

    @property
    def is_whole(self) -> bool:
        """Whether all of them are kept."""
        return self.count <= self.most

    def add(self, row: Callable[[], str]) -> None:
        """Take a row, written only where it is kept."""
        self.count += 1
        if self.is_whole:
            self._file.write(row().encode())

    def parts(self) -> Iterator[str]:
        """What is kept, some of it at a time."""
        self._file.seek(0)
        while part := self._file.read(_PART):
            yield (part + self._file.readline()).decode()


@frozen
class _Table:
    """One table of the page."""

    what: str
    name: str
    columns: Sequence[str]
    rows: _Rows

    @property
    def title(self) -> str:
        """What it shows, how many of them there are, and how many it shows."""
        if self.name == "rows":
            return self.what
        first = "" if self.rows.is_whole else f", the first {self.rows.shown:,} of them"
        return f"{self.what}: {self.rows.count:,}{first}"

    def parts(self) -> Iterator[str]:
        """Its rows, some of them at a time."""
        return self.rows.parts()


@frozen(kw_only=True)
class _Banner:
    """Whether the batch has come to its end."""

    kind: str
    title: str
    words: str = ""


def _banner(head: ReportHead) -> _Banner:
    standing = standing_words({state: _share(head, state=state).count for state in State})
    if head.archived:
        words = (
            f"Orders that ended long ago, are in an archive and not here: {head.archived:,}. Of the others: {standing}."
        )
        return _Banner(kind="open", title="Not all of it.", words=words)
    if standing != "final":
        return _Banner(kind="open", title=f"{standing[:1].upper() + standing[1:]}.")
    if head.needing or head.unpaid:
        words = "Every order has ended; those that were not paid are below."
        return _Banner(kind="ended", title="Final.", words=words)
    return _Banner(kind="fine", title="Final.", words="Every order was paid, and none needs a person.")


def _facts(head: ReportHead, everything: Share) -> list[tuple[str, str]]:
    return [
        ("Orders", f"{everything.count:,}"),
        ("Sum", _money(everything.total, head.currency)),
        ("Service", head.service),
        ("Written", f"{head.made:%d %B %Y, %H:%M} UTC"),
        ("Personal data", "in full: keep this page confidential" if head.is_personal else "masked"),
        ("Digest of the plan", head.digest or ""),
    ]


def _figures(head: ReportHead) -> list[tuple[str, int, str]]:
    shares = {figure: Share() for figure in get_args(Figure)}
    for state in State:
        shares[state.meaning.figure] += _share(head, state=state)
    paid, going = shares["paid"], shares["on the way"]
    return [
        ("Paid", paid.count, _money(paid.total, head.currency)),
        ("On the way", going.count, _money(going.total, head.currency)),
        ("Not paid", shares["not paid"].count, _unpaid_words(head)),
        ("Need a person", head.needing, "see below" if head.needing else "none"),
    ]


def _unpaid_words(head: ReportHead) -> str:
    if not head.unpaid:
        return "none has failed so far"
    return f"see below; {head.tried_again:,} of them tried again" if head.tried_again else "see below"


def _share(head: ReportHead, *, kind: str | None = None, state: State | None = None) -> Share:
    """The orders of one kind, in one state; of all where none is named."""
    chosen = (share for (k, s), share in head.shares.items() if kind in (None, k) and state in (None, s))
    return sum(chosen, Share())


def _need_row(line: ReportLine) -> str:
    return _short_row(line, f"{_safe(line.need)}{_words(line)}")


def _unpaid_row(line: ReportLine) -> str:
    return _short_row(line, f"{_safe(line.unpaid)}<br><small>{_safe(line.evidence)}</small>")


def _short_row(line: ReportLine, why: str) -> str:
    cells = (
        f'<td class="id">{_safe(line.request_id)}</td><td>{_badge(line.state)}</td>'
        f'<td class="number">{line.amount:,f}</td><td>{_safe(line.name)}<br><small>{_safe(line.payee)}</small></td>'
        f'<td class="when">{_when(line)}</td><td>{why}</td>'
    )
    return f"<tr>{cells}</tr>\n"


def _decision_row(decision: ReportDecision) -> str:
    cells = (
        f"<td>{'' if decision.at is None else moment_text(decision.at)}</td><td>{_safe(decision.who)}</td>"
        f'<td class="id">{_safe(decision.about)}</td><td>{_safe(decision.what)}</td><td>{_safe(decision.why)}</td>'
    )
    return f"<tr>{cells}</tr>\n"


def _row(line: ReportLine) -> str:
    payee = f"{line.bank_code} {line.payee}".strip()
    cells = (
        f'<td class="id">{_safe(line.request_id)}</td><td>{_kind(line.kind)}</td><td>{_safe(line.name)}</td>'
        f'<td>{_safe(payee)}</td><td class="number">{line.amount:,f}</td><td>{_badge(line.state)}</td>'
        f'<td class="when">{_when(line)}</td><td>{_safe(line.evidence)}{_words(line)}</td>'
        f'<td class="id">{_safe(line.transaction_id)}</td>'
    )
    return f"<tr>{cells}</tr>\n"


def _words(line: ReportLine) -> str:
    said = " ".join(filter(None, (line.code and f"code {line.code}:", line.message)))
    return f"<br><small>{_safe(said)}</small>" if said else ""


def _badge(state: State) -> str:
    return f'<span class="badge {state}">{state}</span>'


def _kind(kind: str) -> str:
    return _safe(kind.replace("_", " "))


def _when(line: ReportLine) -> str:
    return moment_text(line.at) if line.at and line.evidence else ""


def _money(amount: Decimal, currency: str) -> str:
    return f"{amount:,f} {currency}".strip()


def _safe(text: str) -> str:
    """Words from outside: no markup, and nothing that turns the direction of writing round."""
    if text.isprintable():
        return escape(text)
    return escape("".join(character if character.isprintable() else " " for character in text))
