"""The report of a batch as one HTML page that needs nothing else: for screen, printer and file."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from decimal import Decimal
from html import escape
from typing import IO

from payments_async._frozen import frozen
from payments_async._pages.rendering import style
from payments_async.bulk._plan._plan import Share
from payments_async.bulk._report._lines import ReportDecision, ReportLine, moment_text, standing_words
from payments_async.journal._states import State

_OPENING = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="generator" content="payments-async report">'
)
BEGINNING = _OPENING.encode()  # what tells a report from any other page

_MEMORY = 2**20
# The order of a batch's life, as the totals show it, and what each state means to somebody who has to file it.
_MEANINGS: Mapping[State, str] = {
    State.SUCCESSFUL: "paid",
    State.ACCEPTED: "taken by the service, not yet final",
    State.PLANNED: "not sent",
    State.SENDING: "being sent",
    State.REJECTED: "refused by the service, not paid",
    State.FAILED: "taken by the service, then failed: not paid",
    State.REVERSED: "paid, and came back",
    State.UNKNOWN: "may have been paid: needs evidence",
    State.PARKED: "not found: needs a person",
}
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
        """Write the page."""
        self._write(_top(head))
        self._write(_banner(head))
        self._table("Needs a person", "need", _NEED, self._need)
        self._table("Not paid, and why", "unpaid", _UNPAID, self._unpaid)
        self._table("Decisions", "decisions", _DECISIONS, self._decisions)
        self._write("".join(_totals(head)))
        rows = self._rows
        title = "Every order" if rows.is_whole else f"The first {rows.shown:,} of {rows.count:,} orders"
        self._write_table(title, "rows", _ROWS, rows)
        if not rows.is_whole:
            self._write("<p>The table of the CSV file has all of them.</p>")
        self._write(_BOTTOM)

    def _table(self, title: str, name: str, columns: Iterable[str], rows: _Rows) -> None:
        if rows.count:
            first = "" if rows.is_whole else f", the first {rows.shown:,} of them"
            self._write_table(f"{title}: {rows.count:,}{first}", name, columns, rows)

    def _write_table(self, title: str, name: str, columns: Iterable[str], rows: _Rows) -> None:
        self._write(
            f'<section class="{name}"><h2>{title}</h2><table><thead><tr>{_heads(columns)}</tr></thead><tbody>\n'
        )
        rows.copy_to(self._file)
        self._write("</tbody></table></section>\n")

    def _write(self, text: str) -> None:
        self._file.write(text.encode())


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

    def copy_to(self, file: IO[bytes]) -> None:
        """Write down what is kept."""
        self._file.seek(0)
        shutil.copyfileobj(self._file, file)


def _banner(head: ReportHead) -> str:
    standing = standing_words({state: _share(head, state=state).count for state in State})
    if head.archived:
        return (
            f'<p class="open banner"><b>Not all of it.</b> Orders that ended long ago, are in an archive and not here: '
            f"{head.archived:,}. Of the others: {_safe(standing)}.</p>"
        )
    if standing != "final":
        return f'<p class="open banner"><b>{_safe(standing[:1].upper() + standing[1:])}.</b></p>'
    if head.needing or head.unpaid:
        return '<p class="ended banner"><b>Final.</b> Every order has ended; those that were not paid are below.</p>'
    return '<p class="fine banner"><b>Final.</b> Every order was paid, and none needs a person.</p>'


def _top(head: ReportHead) -> str:
    about = [
        ("Service", head.service),
        ("Written", f"{head.made:%d %B %Y, %H:%M} UTC"),
        ("Personal data", "in full: keep this page confidential" if head.is_personal else "masked"),
        ("Digest of the plan", head.digest or ""),
    ]
    facts = "".join(f"<div><dt>{name}</dt><dd>{_safe(value)}</dd></div>" for name, value in about if value)
    name = _safe(head.batch_id)
    return (
        f"{_OPENING}"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Payout report {name}</title><style>{style()}</style></head>\n<body><main>"
        f'<header><p class="over">Payout report</p><h1>{name}</h1><dl>{facts}</dl></header>\n{_figures(head)}'
    )


def _figures(head: ReportHead) -> str:
    paid, everything = _share(head, state=State.SUCCESSFUL), _share(head)
    figures = [
        ("Orders", f"{everything.count:,}", _money(everything.total, head.currency)),
        ("Paid", f"{paid.count:,}", _money(paid.total, head.currency)),
        ("Not paid", f"{head.unpaid:,}", "see below" if head.unpaid else "none has failed so far"),
        ("Need a person", f"{head.needing:,}", "see below" if head.needing else "none"),
    ]
    cells = "".join(f"<div><b>{count}</b><span>{name}</span><i>{note}</i></div>" for name, count, note in figures)
    return f'<div class="figures">{cells}</div>{_bar(head, everything.count)}\n'


def _bar(head: ReportHead, orders: int) -> str:
    parts = "".join(
        f'<span class="{state}" style="width:{100 * count / orders:.3f}%" title="{state}: {count:,}"></span>'
        for state in _MEANINGS
        if (count := _share(head, state=state).count)
    )
    return f'<div class="bar">{parts}</div>'


def _totals(head: ReportHead) -> Iterator[str]:
    unit = f" {_safe(head.currency)}" if head.currency else ""
    yield '<section class="totals"><div><h2>By outcome</h2><table><thead><tr>'
    yield f"{_heads(('Outcome', 'Orders', f'Sum{unit}', 'Meaning'))}</tr></thead><tbody>"
    for state, meaning in _MEANINGS.items():
        if (share := _share(head, state=state)).count:
            yield f"<tr><td>{_badge(state)}</td>{_numbers(share)}<td>{meaning}</td></tr>"
    yield f"</tbody><tfoot><tr><th>all</th>{_numbers(_share(head))}<td></td></tr></tfoot></table></div>"
    yield "<div><h2>By kind</h2><table><thead><tr>"
    yield f"{_heads(('Kind', 'Orders', f'Sum{unit}', 'Paid', f'Paid{unit}'))}</tr></thead><tbody>"
    for kind in sorted({kind for kind, _ in head.shares}):
        paid = _share(head, kind=kind, state=State.SUCCESSFUL)
        yield f"<tr><td>{_kind(kind)}</td>{_numbers(_share(head, kind=kind))}{_numbers(paid)}</tr>"
    yield "</tbody></table></div></section>\n"


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
        f"<td>{_when(line)}</td><td>{why}</td>"
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


def _numbers(share: Share) -> str:
    return f'<td class="number">{share.count:,}</td><td class="number">{share.total:,f}</td>'


def _heads(columns: Iterable[str]) -> str:
    right = ("Orders", "Sum", "Amount", "Paid")
    return "".join(
        f'<th class="number">{name}</th>' if name.startswith(right) and name != "Paid to" else f"<th>{name}</th>"
        for name in columns
    )


def _money(amount: Decimal, currency: str) -> str:
    return f"{amount:,f} {_safe(currency)}".strip()


def _safe(text: str) -> str:
    """Words from outside: no markup, and nothing that turns the direction of writing round."""
    if text.isprintable():
        return escape(text)
    return escape("".join(character if character.isprintable() else " " for character in text))


_BOTTOM = """<section class="signatures">
<div>Prepared by<span></span></div><div>Checked by<span></span></div><div>Date<span></span></div>
</section>
</main></body></html>
"""
