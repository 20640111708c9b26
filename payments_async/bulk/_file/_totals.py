"""The sums that a file states of its own amounts, against what they come to."""

from __future__ import annotations

from decimal import Context, Decimal

from payments_async.bulk._file._cells import SPOILED, Unusable, read_money

TOTAL = "total"  # the column of a problem with one, which is no row's: leaving rows out does not do away with it
EXACT = Context(prec=100)  # the usual 28 digits could round a great sum


class ControlSums:
    """The amounts of a file so far.

    Attributes:
        agreed: The rows of totals that were right.
    """

    def __init__(self) -> None:
        self.agreed: list[int] = []
        self._all = self._since = Decimal(0)
        self._unread = 0

    def add(self, amount: Decimal | None) -> None:
        """Take the amount of a row; ``None`` where it could not be read."""
        if amount is None:
            self._unread += 1
        else:
            self._all, self._since = EXACT.add(self._all, amount), EXACT.add(self._since, amount)

    def check(self, row: int, stated: str) -> str | None:
        """What is wrong with a row that states the sum of all above it, or of those since the total before."""
        since, self._since = self._since, Decimal(0)
        try:
            if stated.__class__ in SPOILED:
                raise Unusable(stated.remedy)  # type: ignore[attr-defined]  # all of these have one
            if not stated:
                raise Unusable("there is no amount; enter the sum, or delete the row")
            total, _ = read_money(stated)
        except Unusable as error:
            return f"the row of a total: {error}"
        if total in (self._all, since):
            self.agreed.append(row)
            return None
        unread = f", and {self._unread:,} could not be read" if self._unread else ""
        return (
            f"the amounts above come to {self._all:,f}{unread}; rows are missing, doubled or changed: find out "
            "which, or mend the total"
        )
