"""A batch against another one, such as last month's: who is new or gone, gets more or less, or by another name."""

from __future__ import annotations

import hashlib
import heapq
import re
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Context, Decimal
from typing import Literal

from payments_async._values.frozen import frozen
from payments_async._wire.orders import Order
from payments_async.bulk._file._buckets import Buckets
from payments_async.bulk._plan._checks import Payee
from payments_async.bulk._problems import OrderIssue

ChangeKind = Literal["other account", "other name", "amount", "new", "gone"]
KINDS: tuple[ChangeKind, ...] = ("other account", "other name", "amount", "new", "gone")  # the odd ones first
_SHOWN = 200  # of each
_EXAMPLES = 5
_MEMORY = 4 * 2**20  # bytes for each of the heaps; the rest goes to temporary files
_EXACT = Context(prec=100)
_RATIO = Context(prec=9)
_DIGEST = 16
# payee, name, which batch, where its line is, amount as text (an order's has 30 digits and a point at most)
_RECORD = struct.Struct("<16s16s?Q32s")
_WORDS = re.compile(r"\w+")
_OWN, _OTHER = False, True


@frozen(kw_only=True)
class PayeeChange:
    """What is not as it was for one payee: one wallet, account or line.

    Attributes:
        kind: ``"other account"``: somebody of that name was paid elsewhere, and is not any more; ``"other name"``;
            ``"amount"``, by more than was asked for; ``"new"``; ``"gone"``.
        request_id: Their first order: of this batch, or of the other one for who is gone.
        payee: The number of the wallet, account or line, masked.
        before, now: The sums of their orders; ``None`` where there is none.
    """

    kind: ChangeKind
    request_id: str
    payee: str
    before: Decimal | None
    now: Decimal | None


@frozen(kw_only=True)
class Comparison:
    """A batch against another one. One change is told of each payee, the first in the sequence of ``kind``.

    Attributes:
        other: What it was compared with.
        count, total: The orders of the other one, and the exact sum of their amounts.
        same: Payees of whom there is nothing to tell.
        counts: How many payees by kind of change.
        shown: The first 200 of each kind, the odd kinds first: of amounts the greatest ratio, of others the greatest
            sum.
    """

    other: str
    count: int
    total: Decimal
    same: int
    counts: dict[ChangeKind, int]
    shown: tuple[PayeeChange, ...]


class _Paid:
    """All orders of one payee."""

    __slots__ = ("lines", "names", "sums")

    def __init__(self) -> None:
        self.sums: list[Decimal | None] = [None, None]  # of the batch, and of the other one
        self.lines: list[int | None] = [None, None]
        self.names: tuple[set[bytes], set[bytes]] = (set(), set())

    def add(self, side: bool, name: bytes, line: int, amount: Decimal) -> None:
        before = self.sums[side]
        self.sums[side] = amount if before is None else _EXACT.add(before, amount)
        if self.lines[side] is None:
            self.lines[side] = line
        self.names[side].add(name)


class PayeeLedger(ExitStack):
    """What each payee gets by a batch, and got by another one. Its memory does not grow with them."""

    def __init__(self) -> None:
        super().__init__()
        self._by_payee = self.enter_context(Buckets(memory=_MEMORY))
        self._by_name = self.enter_context(Buckets(memory=_MEMORY))
        lines = tempfile.SpooledTemporaryFile(_MEMORY, prefix="payments-async-")  # noqa: SIM115  lives as long as self
        self._lines = self.enter_context(lines)
        self._place = 0
        self.other_count = 0
        self._other_total = Decimal(0)

    def add(self, order: Order, payee: Payee) -> None:
        """Take down an order of the batch."""
        self._add(order, payee, _OWN)

    def add_other(self, order: Order, payee: Payee) -> None:
        """Take down an order of the batch that it is compared with."""
        self.other_count += 1
        self._other_total = _EXACT.add(self._other_total, order.amount)
        self._add(order, payee, _OTHER)

    def _add(self, order: Order, payee: Payee, side: bool) -> None:
        key = _digest(payee.key)
        name = _digest(f"{order.kind} {_plain_name(order.beneficiary.name)}")
        record = _RECORD.pack(key, name, side, self._place, f"{order.amount:f}".encode())
        self._by_payee.add(key[0], record)
        self._by_name.add(name[0], record)
        self._place += self._lines.write(f"{order.request_id}\t{payee.masked}\n".encode())

    def _payees(self) -> Iterator[tuple[bytes, _Paid]]:
        for records in self._by_payee.each():
            payees: dict[bytes, _Paid] = {}
            for key, name, side, line, amount in _RECORD.iter_unpack(records):
                payees.setdefault(key, _Paid()).add(side, name, line, _amount(amount))
            yield from payees.items()

    def _accounts(self) -> Iterator[tuple[dict[bytes, int], dict[bytes, Decimal]]]:
        """For each name its payees of the batch with their first lines, and those of the other one with their sums."""
        for records in self._by_name.each():
            names: dict[bytes, tuple[dict[bytes, int], dict[bytes, Decimal]]] = {}
            for payee, name, side, line, amount in _RECORD.iter_unpack(records):
                ours, others = names.setdefault(name, ({}, {}))
                if side is _OTHER:
                    others[payee] = _EXACT.add(others.get(payee, Decimal(0)), _amount(amount))
                else:
                    ours.setdefault(payee, line)
            yield from names.values()

    def issues(self, most_each: Decimal | None) -> Iterator[tuple[OrderIssue, int, tuple[str, ...]]]:
        """What is odd about payees of the batch itself: the issue, how many, and the first orders of some.

        Args:
            most_each: What one payee may get, where there is a limit.
        """
        too_much, two_names, two_accounts = _First(), _First(), _First()
        for _, payee in self._payees():
            total, line = payee.sums[_OWN], payee.lines[_OWN]
            if total is None or line is None:
                continue
            if most_each is not None and total > most_each:
                too_much.add(line)
            if len(payee.names[_OWN]) > 1:
                two_names.add(line)
        for ours, _ in self._accounts():
            if len(ours) > 1:
                two_accounts.add(min(ours.values()))
        for found, issue in (
            (too_much, OrderIssue("amount", "", f"one payee gets more than the {most_each or 0:,f} allowed to each")),
            (two_names, OrderIssue("name", "", _TWO_NAMES, blocks=False)),
            (two_accounts, OrderIssue("name", "", _TWO_ACCOUNTS, blocks=False)),
        ):
            if found.count:
                yield issue, found.count, tuple(self._line(line)[0] for line in found.lines())

    def compared(self, other: str, change: Decimal) -> Comparison:
        """The batch against the other one.

        Args:
            other: What it is called.
            change: By how many per cent an amount has to change to be told.
        """
        moved, left = self._moved()
        first = {kind: _Greatest() for kind in KINDS}
        same = 0
        for key, payee in self._payees():
            now, before = payee.sums
            kind, weight = _kind_of(payee, change / 100)
            if kind == "gone" and key in left:
                continue  # told of the other account of that name
            if kind == "new" and now is not None and key in moved:
                kind, weight, before = "other account", now, moved[key]
            if kind is None:
                same += 1
                continue
            line = payee.lines[_OWN] if now is not None else payee.lines[_OTHER]
            assert line is not None
            first[kind].add(weight, line, before, now)
        return Comparison(
            other=other,
            count=self.other_count,
            total=self._other_total,
            same=same,
            counts={kind: found.count for kind, found in first.items()},
            shown=tuple(
                PayeeChange(kind=kind, request_id=request_id, payee=payee, before=before, now=now)
                for kind, found in first.items()
                for line, before, now in found.sorted()
                for request_id, payee in [self._line(line)]
            ),
        )

    def _moved(self) -> tuple[dict[bytes, Decimal], set[bytes]]:
        """Payees that are new, with what was paid before to somebody of their name who is gone; and those who are."""
        moved: dict[bytes, Decimal] = {}
        left: set[bytes] = set()
        for ours, others in self._accounts():
            new, gone = ours.keys() - others.keys(), others.keys() - ours.keys()
            if new and gone:
                before = Decimal(0)
                for payee in gone:
                    before = _EXACT.add(before, others[payee])
                moved |= dict.fromkeys(new, before)
                left |= gone
        return moved, left

    def _line(self, place: int) -> tuple[str, str]:
        self._lines.seek(place)
        request_id, _, payee = self._lines.readline().decode().rstrip("\n").partition("\t")
        return request_id, payee


_TWO_NAMES = "one wallet, account or line is paid under two names; ask whose it is"
_TWO_ACCOUNTS = "one name is paid at two wallets, accounts or lines; two people of one name, or one who is paid twice?"


def _kind_of(payee: _Paid, ratio: Decimal) -> tuple[ChangeKind | None, Decimal]:
    """What is to be told of a payee, and how much it weighs."""
    now, before = payee.sums
    if before is None:
        return "new", now or Decimal(0)
    if now is None:
        return "gone", before
    if payee.names[_OWN].isdisjoint(payee.names[_OTHER]):
        return "other name", now
    difference = _EXACT.subtract(now, before).copy_abs()
    if difference > _EXACT.multiply(before, ratio):
        return "amount", _RATIO.divide(max(now, before), min(now, before))
    return None, Decimal(0)


class _First:
    """The first of many."""

    def __init__(self) -> None:
        self.count = 0
        self._heap: list[int] = []

    def add(self, line: int) -> None:
        self.count += 1
        (heapq.heappush if len(self._heap) < _EXAMPLES else heapq.heappushpop)(self._heap, -line)

    def lines(self) -> list[int]:
        return sorted(-line for line in self._heap)


class _Greatest:
    """Those of the greatest weight."""

    def __init__(self) -> None:
        self.count = 0
        self._heap: list[tuple[Decimal, int, Decimal | None, Decimal | None]] = []

    def add(self, weight: Decimal, line: int, before: Decimal | None, now: Decimal | None) -> None:
        self.count += 1
        keep = heapq.heappush if len(self._heap) < _SHOWN else heapq.heappushpop
        keep(self._heap, (weight, -line, before, now))

    def sorted(self) -> list[tuple[int, Decimal | None, Decimal | None]]:
        found = sorted(self._heap, key=lambda one: one[:2], reverse=True)
        return [(-line, before, now) for _, line, before, now in found]


def _amount(packed: bytes) -> Decimal:
    return Decimal(packed.rstrip(b"\0").decode())


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


def _plain_name(name: str) -> str:
    """A name without regard to case, punctuation and the sequence of its words."""
    return " ".join(sorted(_WORDS.findall(name.casefold())))
