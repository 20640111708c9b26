"""Orders that pay the same beneficiary, in a batch and in what was paid lately; in constant memory. Judges nothing."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Context, Decimal
from types import TracebackType

import attrs

from payments_async._masking import mask
from payments_async._orders import Order
from payments_async.bulk._concerns import Marks
from payments_async.bulk._file._repeats import Repeat, Repeats
from payments_async.bulk._plan._payees import payee_key, reference_of

__all__ = ["Duplicate", "Duplicates", "Payees"]

_KEPT = 1000
_EXACT = Context(prec=40)  # the usual 28 digits could make two amounts alike
_SIEVE = 4 * 2**20  # bytes: a bit for each of 33,000,000 beneficiaries
_MEMORY = 4 * 2**20  # bytes for each of three heaps; the rest goes to temporary files


@attrs.frozen(kw_only=True)
class Duplicate:
    """Two orders for one wallet, account or line. It may be meant; a person has to say so.

    Attributes:
        request_id: The order of this batch; the later one, when both are of it.
        other: Request id of the other order.
        same_amount: Whether the amounts are alike too.
        amount: Of the order.
        payee: The number of the wallet, account or line, masked.
        batch_id: Of the other order, when the journal holds it in another batch.
        state: Where the other order stands, likewise.
    """

    request_id: str
    other: str
    same_amount: bool
    amount: Decimal
    payee: str
    batch_id: str | None = None
    state: str | None = None


@attrs.frozen(kw_only=True)
class Duplicates:
    """What was found.

    Attributes:
        same_amount: Pairs with the same beneficiary and amount.
        other_amount: Pairs with the same beneficiary and another amount.
        shown: The first thousand, those with the same amount first.
    """

    same_amount: int = 0
    other_amount: int = 0
    shown: tuple[Duplicate, ...] = ()


class Payees:
    """Who is paid by which order. Takes the orders of the batch first, then those of the journal.

    Of the journal's orders it keeps those that pay somebody the batch pays too (of a batch of millions, a few more:
    a bit for each beneficiary tells them apart), so that a long journal costs no room.
    """

    def __init__(self) -> None:
        self._resources = ExitStack()
        self._twice = self._resources.enter_context(Repeats(memory=_MEMORY))
        self._alike = self._resources.enter_context(Repeats(memory=_MEMORY))
        lines = tempfile.SpooledTemporaryFile(_MEMORY, prefix="payments-async-")  # noqa: SIM115  lives as long as self
        self._lines = self._resources.enter_context(lines)
        self._count = 0
        self._ours = 0
        self._paid = bytearray(_SIEVE)

    def __enter__(self) -> Payees:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def add(self, order: Order) -> None:
        """Take down an order of the batch."""
        key = payee_key(order)
        byte, bit = divmod(hash(key) % (8 * _SIEVE), 8)
        self._paid[byte] |= 1 << bit
        self._add(key, order, "", "")
        self._ours = self._count

    def add_earlier(self, order: Order, batch_id: str, state: str) -> None:
        """Take down an order that the journal holds in another batch, where it pays one of those."""
        key = payee_key(order)
        byte, bit = divmod(hash(key) % (8 * _SIEVE), 8)
        if self._paid[byte] >> bit & 1:
            self._add(key, order, batch_id, state)

    def _add(self, key: str, order: Order, batch_id: str, state: str) -> None:
        amount = order.amount
        digest = hash(amount)
        self._twice.add(key, self._count, 0, digest, digest)
        self._alike.add(f"{key} {_EXACT.normalize(amount)}", self._count, 0, digest, digest)
        cells = (order.request_id, mask(reference_of(order)), str(amount), batch_id, state)
        self._lines.write("\t".join(cells).encode() + b"\n")
        self._count += 1

    def found(self) -> Duplicates:
        """What was found. It takes a second for each million of orders."""
        alike, others = Marks(), Marks()
        same = heapq.nsmallest(_KEPT, self._marked(self._alike, alike, without=Marks()), key=_row)
        other = heapq.nsmallest(_KEPT, self._marked(self._twice, others, without=alike), key=_row)
        return Duplicates(same_amount=alike.count, other_amount=others.count, shown=self._named(same, other))

    def _marked(self, repeats: Repeats, marks: Marks, *, without: Marks) -> Iterator[Repeat]:
        for repeat in repeats.found():
            if repeat.first_row < self._ours and repeat.row not in without:
                marks.add(repeat.row)
                yield repeat

    def _named(self, alike: list[Repeat], others: list[Repeat]) -> tuple[Duplicate, ...]:
        chosen = [(repeat, True) for repeat in alike] + [(repeat, False) for repeat in others]
        chosen = chosen[:_KEPT]
        wanted = {row for repeat, _ in chosen for row in (repeat.row, repeat.first_row)}
        self._lines.seek(0)
        lines = {n: line.decode().rstrip("\n").split("\t") for n, line in enumerate(self._lines) if n in wanted}
        return tuple(
            _duplicate(lines[repeat.row], lines[repeat.first_row], repeat.row >= self._ours, same)
            for repeat, same in chosen
        )


def _row(repeat: Repeat) -> int:
    return repeat.row


def _duplicate(later: list[str], first: list[str], journaled: bool, same_amount: bool) -> Duplicate:
    ours, other = (first, later) if journaled else (later, first)
    return Duplicate(
        request_id=ours[0],
        other=other[0],
        same_amount=same_amount,
        amount=Decimal(ours[2]),
        payee=ours[1],
        batch_id=other[3] or None,
        state=other[4] or None,
    )
