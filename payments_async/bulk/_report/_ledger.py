"""What was paid as lines of a ledger: debit and credit, for whoever keeps the books."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

from payments_async._values.frozen import frozen
from payments_async._values.masking import mask
from payments_async.bulk._plan._plan import Share
from payments_async.bulk._problems import begins_formula
from payments_async.bulk._report._files import harmless_line, place_of, replacing
from payments_async.bulk._report._lines import ReportLine, line_of
from payments_async.bulk._report._returned import header_of, lines_below
from payments_async.journal import Journal
from payments_async.journal._records import OutcomeWithHistory
from payments_async.journal._states import FINAL, State

_COLUMNS = ("Date", "Reference", "Account", "Debit", "Credit", "Currency", "Text", "Transaction")


@frozen(kw_only=True)
class Ledger:
    """What was written.

    Attributes:
        path: The file.
        paid, reversed: The orders that were paid, and those of them that came back; each has lines of its own.
        open: Orders whose outcome is not final: they are in no line yet.
    """

    path: Path
    paid: Share
    reversed: Share
    open: int


async def ledger(
    journal: Journal,
    batch_id: str,
    path: str | os.PathLike[str],
    *,
    debit: str,
    credit: str,
    personal: bool = False,
    overwrite: bool = False,
) -> Ledger:
    """Write two lines of a ledger for every order that was paid, as CSV or XLSX, and two more for one that came back.

    The day is that on which the outcome was learned, in UTC. What is not final is left for the next time: the number of
    those is told, and the same order always has the same lines, known by its request id in ``Reference``.

    Args:
        debit: The account that each payment is charged to, such as that of wages.
        credit: The account that the money leaves, such as that of the balance with the service.
        personal: Names in full, not masked.
        overwrite: Replace a file of this kind that is there; no other file is ever replaced.

    Raises:
        RunUnknown: The journal holds no such batch.
        ValueError: An account is empty; the path is the journal's, or what is there is no such file. Nothing was
            written.
        FileExistsError: Such a file is there, and ``overwrite`` is not set; nothing was written.
        OSError: The file cannot be written.
        JournalUnavailable: The journal cannot be read.
    """
    for name, account in (("debit", debit), ("credit", credit)):
        if not account.strip() or not account.isprintable() or begins_formula(account):
            raise ValueError(f"{name}: the number or name of an account, on one line and without a sign in front")
    if debit.strip() == credit.strip():
        raise ValueError("debit and credit: two different accounts")
    run = await journal.run(batch_id)
    currency = await journal.account_currency(run.batch_id) or ""
    header = header_of(path, _COLUMNS)
    place = place_of(Path(path), marker=header, overwrite=overwrite, journal=getattr(journal, "path", None))
    shares = dict.fromkeys(State, Share())
    with replacing(place, marker=header, overwrite=overwrite) as file, lines_below(file, header, _COLUMNS) as write:

        def take(standings: Iterable[OutcomeWithHistory]) -> None:
            for standing in standings:
                entry = standing.entry
                shares[entry.state] = shares[entry.state].with_one(entry.amount)
                if entry.state.meaning.was_paid:
                    line = line_of(standing, personal=personal, currency=currency)
                    name = line.name if personal else mask(entry.order.beneficiary.name)
                    write(list(map(list, _postings(line, name, debit.strip(), credit.strip()))))

        async for standings in journal.standings(batch_id):
            await asyncio.to_thread(take, standings)
    final = sum(share.count for state, share in shares.items() if state in FINAL)
    return Ledger(
        path=Path(path),
        paid=shares[State.SUCCESSFUL] + shares[State.REVERSED],
        reversed=shares[State.REVERSED],
        open=run.total - run.archived - final,
    )


def _postings(line: ReportLine, name: str, debit: str, credit: str) -> list[tuple[str, ...]]:
    """The lines of one order: a debit and a credit; and both once more, the other way round, where it came back."""
    day = f"{line.at:%Y-%m-%d}" if line.at else ""

    def pair(charged: str, left: str, text: str) -> list[tuple[str, ...]]:
        shared = (line.currency, harmless_line(f"{text} {name}"), line.transaction_id)
        amount = _digits(line.amount)
        return [
            (day, harmless_line(line.request_id), charged, amount, "", *shared),
            (day, harmless_line(line.request_id), left, "", amount, *shared),
        ]

    postings = pair(debit, credit, "Paid to")
    return postings + pair(credit, debit, "Came back from") if line.state is State.REVERSED else postings


def _digits(amount: Decimal) -> str:
    return format(amount, "f")
