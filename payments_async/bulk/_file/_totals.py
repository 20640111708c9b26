"""The sums that a file states of its own amounts, against what they come to."""

from __future__ import annotations

from decimal import Context, Decimal

from payments_async.bulk._file._cells import SPOILED, Unusable, read_money

TOTAL = "total"  # the column of a problem with one, which is not a row's: leaving rows out does not do away with it
EXACT = Context(prec=100)  # the usual 28 digits could round a great sum


class ControlSums:
    """The amounts of a file so far.

    Attributes:
        agreed: The rows of totals that were right.
    """

    def __init__(self) -> None:
        self.agreed: list[int] = []
        self._all = self._since = _Sum()  # the same until there is a total

    def add(self, row: int, amount: Decimal | None, cell: str | None = None) -> None:
        """Take the amount of a row; ``None`` where it could not be read."""
        is_text = cell.__class__ is str
        self._all.add(row, amount, is_text=is_text)
        if self._since is not self._all:
            self._since.add(row, amount, is_text=is_text)

    def check(self, row: int, stated: str) -> str | None:
        """What is wrong with a row that states the sum of all above it, or of those since the total before."""
        since, self._since = self._since, _Sum()
        try:
            if stated.__class__ in SPOILED:
                raise Unusable(stated.remedy)  # type: ignore[attr-defined]  # all of these have one
            if not stated:
                raise Unusable("there is no amount; enter the sum, or delete the row")
            total, _ = read_money(stated)
        except Unusable as error:
            return f"the row of a total: {error}"
        if total in (self._all.amount, since.amount):
            self.agreed.append(row)
            return None
        words = self._all.compared(total, "the amounts above")
        if since.amount != self._all.amount:
            words += f"; {since.compared(total, 'those since the total before')}"
        return f"{words}; rows are missing, doubled or changed: find out which, or mend the total"


class _Sum:
    """The sum of some rows, and what of it stands as text: a spreadsheet's own SUM leaves that out."""

    def __init__(self) -> None:
        self.amount = self._as_text = Decimal(0)
        self._texts = self._unread = 0
        self._first = 0  # row of the first amount that is a text

    def add(self, row: int, amount: Decimal | None, *, is_text: bool) -> None:
        if amount is None:
            self._unread += 1
            return
        self.amount = EXACT.add(self.amount, amount)
        if is_text:
            self._first = self._first or row
            self._texts += 1
            self._as_text = EXACT.add(self._as_text, amount)

    def compared(self, total: Decimal, what: str) -> str:
        """How far the rows are from a total, and why, where their texts explain it."""
        difference = EXACT.subtract(self.amount, total)
        unread = f", and {self._unread:,} could not be read" if self._unread else ""
        words = f"{what} come to {self.amount:,f}{unread}: {abs(difference):,f} {'more' if difference > 0 else 'less'}"
        if self._texts and difference == self._as_text != self.amount:
            more = f" and of {self._texts - 1:,} more" if self._texts > 1 else ""
            words += f", which is the amount of row {self._first}{more}: a text, which a spreadsheet's SUM leaves out"
        return words
