"""Who is paid: by which reference, how often in a batch, and of late as far as the journal tells."""

from __future__ import annotations

import heapq
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from decimal import Context, Decimal
from operator import attrgetter

import attrs

from payments_async._kinds import KINDS, destination_of, item_of, reference_of
from payments_async._masking import mask
from payments_async._orders import BankAccount, CollectionOrder, Order, PayoutOrder
from payments_async.bulk._file._batch import Repeat, Repeats
from payments_async.bulk._problems import OrderIssue
from payments_async.journal import Journal
from payments_async.journal._records import Entry, Run

__all__ = [
    "DAY",
    "BitSet",
    "Duplicate",
    "Duplicates",
    "Payees",
    "PriorOrders",
    "bank_named",
    "payee_key",
]

DAY = 86_400.0  # seconds
_SHOWN = 1000
_EXACT = Context(prec=40)  # the usual 28 digits could make two amounts alike
_SIEVE = 32 * 2**20  # bits, 4 MiB of them: one for each of 33,000,000 beneficiaries
_MEMORY = 4 * 2**20  # bytes for each of three heaps; the rest goes to temporary files
_BANK_NAMED = "looks like the name of a bank; the service wants the bank's code, which its products tell: check it"
_LONGEST_WORD = 5  # capital letters that may be a code
_SWIFT = (8, 11)  # letters and digits of a bank's code between banks


def bank_named(order: Order) -> OrderIssue | None:
    """What is to be said of a bank transfer that names the bank, where its code belongs.

    Somebody has to look at words; a long word in capitals may well be a code, and is only shown.
    """
    if isinstance(order, CollectionOrder) or not isinstance(order.destination, BankAccount):
        return None
    code = order.destination.bank_code
    if not any(map(str.isalpha, code)):
        return None
    is_name = any(map(str.isspace, code)) or (code.isalpha() and not code.isupper())
    if is_name or (code.isalpha() and len(code) > _LONGEST_WORD and len(code) not in _SWIFT):
        return OrderIssue("bank_code", code, _BANK_NAMED, blocks=False, concerns=is_name)
    return None


def payee_key(order: Order) -> str:
    """The same for orders that pay into the same wallet, account or line, however its number is punctuated.

    Salary and airtime for one telephone number are two destinations, and so is one number at two utilities.
    """
    kind, reference = KINDS[order.kind], reference_of(order)
    if kind.reference == "phone_number":
        reference = "".join(filter(str.isdecimal, reference))
    match kind.unique_within:
        case None:
            return f"{kind.name} {reference}"
        case "product_item_id":
            return f"{kind.name} {item_of(order)} {reference}"
        case field:
            return f"{kind.name} {getattr(destination_of(order), field)} {reference}"


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


class Payees(ExitStack):
    """Who is paid by which order. Takes the orders of the batch first, then those of the journal.

    Of the journal's orders it keeps those that pay somebody the batch pays too (of a batch of millions, a few more:
    a bit for each beneficiary tells them apart), so that a long journal costs no room.
    """

    def __init__(self) -> None:
        super().__init__()
        self._twice = self.enter_context(Repeats(memory=_MEMORY))
        self._alike = self.enter_context(Repeats(memory=_MEMORY))
        lines = tempfile.SpooledTemporaryFile(_MEMORY, prefix="payments-async-")  # noqa: SIM115  lives as long as self
        self._lines = self.enter_context(lines)
        self._count = 0
        self._ours = 0
        self._paid = BitSet()

    def add(self, order: Order) -> None:
        """Take down an order of the batch."""
        key = payee_key(order)
        self._paid.add(hash(key) % _SIEVE)
        self._add(key, order, "", "")
        self._ours = self._count

    def add_prior(self, order: Order, batch_id: str, state: str) -> None:
        """Take down an order that the journal holds in another batch, where it pays one of those."""
        key = payee_key(order)
        if hash(key) % _SIEVE in self._paid:
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
        alike, others = BitSet(), BitSet()
        same = heapq.nsmallest(_SHOWN, self._marked(self._alike, alike, without=BitSet()), key=attrgetter("row"))
        other = heapq.nsmallest(_SHOWN, self._marked(self._twice, others, without=alike), key=attrgetter("row"))
        return Duplicates(same_amount=alike.count, other_amount=others.count, shown=self._named(same, other))

    def _marked(self, repeats: Repeats, marks: BitSet, *, without: BitSet) -> Iterator[Repeat]:
        for repeat in repeats.found():
            if repeat.first_row < self._ours and repeat.row not in without:
                marks.add(repeat.row)
                yield repeat

    def _named(self, alike: list[Repeat], others: list[Repeat]) -> tuple[Duplicate, ...]:
        chosen = [*((repeat, True) for repeat in alike), *((repeat, False) for repeat in others)][:_SHOWN]
        wanted = {row for repeat, _ in chosen for row in (repeat.row, repeat.first_row)}
        self._lines.seek(0)
        lines = {n: line.decode().rstrip("\n").split("\t") for n, line in enumerate(self._lines) if n in wanted}
        found = []
        for repeat, same_amount in chosen:
            ours, other = lines[repeat.row], lines[repeat.first_row]
            if repeat.row >= self._ours:  # the later one is the journal's
                ours, other = other, ours
            found.append(
                Duplicate(
                    request_id=ours[0],
                    other=other[0],
                    same_amount=same_amount,
                    amount=Decimal(ours[2]),
                    payee=ours[1],
                    batch_id=other[3] or None,
                    state=other[4] or None,
                )
            )
        return tuple(found)


@attrs.define
class PriorOrders:
    """The journal as the plan of one batch sees it. ``begin`` first.

    Attributes:
        run: The batch itself, when the journal has it.
    """

    _journal: Journal | None
    _batch_id: str | None
    _recent: float
    _clock: Callable[[], float] = time.time
    _is_empty: bool = attrs.field(init=False, default=True)
    run: Run | None = attrs.field(init=False, default=None)

    async def begin(self) -> None:
        """Find out what there is."""
        runs = await self._journal.runs() if self._journal is not None else ()
        self._is_empty = not runs
        self.run = next((run for run in runs if run.batch_id == self._batch_id), None)

    async def entries(self, orders: Sequence[PayoutOrder]) -> Mapping[str, Entry]:
        """What the journal holds under these request ids."""
        if self._journal is None or self._is_empty:
            return {}
        return await self._journal.entries_of([order.request_id for order in orders])

    def is_recorded(self, order: PayoutOrder, entry: Entry | None) -> bool:
        """Whether this very order is in this very batch already."""
        return entry is not None and entry.batch_id == self._batch_id and entry.order == order

    def issue(self, order: PayoutOrder, entry: Entry | None) -> OrderIssue | None:
        """Why the journal would refuse an order that is not recorded."""
        if entry is None and self.run is not None and self.run.ready:
            remedy = f"batch {self.run.batch_id} was approved without this order; put it into a batch of its own"
            return OrderIssue("request_id", "", remedy)
        if entry is None:
            return None
        if entry.batch_id != self._batch_id:
            remedy = f"the journal holds this id in batch {entry.batch_id}, {entry.state}; leave the order out"
        elif entry.amount != order.amount:
            remedy = f"this batch holds it with the amount {entry.amount:f}; restore it, or give the order a new id"
        else:
            remedy = "this batch holds it with other details; restore them, or give the order a new id"
        return OrderIssue("request_id", order.request_id, remedy)

    async def paid(self) -> AsyncIterator[Iterable[Entry]]:
        """Payouts of other batches that were paid of late, or may be paid yet, some hundreds at a time."""
        if self._journal is None or self._is_empty:
            return
        since = self._clock() - self._recent
        async for entries in self._journal.paid_since(since, but=self._batch_id):
            yield (entry for entry in entries if not isinstance(entry.order, CollectionOrder))


class BitSet:
    """A set of numbers from 0, a bit for each."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self.count = 0

    def add(self, number: int) -> None:
        """Mark a number; ``count`` tells how many only where none is marked twice."""
        byte = number >> 3
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        self._bits[byte] |= 1 << (number & 7)
        self.count += 1

    def __contains__(self, number: int) -> bool:
        byte = number >> 3
        return byte < len(self._bits) and bool(self._bits[byte] >> (number & 7) & 1)
