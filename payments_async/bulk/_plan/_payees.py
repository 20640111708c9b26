"""Who is paid by the orders of a batch: twice, otherwise than by another batch, under two names, or too much."""

from __future__ import annotations

import hashlib
import heapq
import re
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from decimal import Context, Decimal
from itertools import chain
from typing import Literal

from payments_async._values.amounts import amount_text
from payments_async._values.frozen import field, frozen
from payments_async._values.masking import mask
from payments_async._wire.kinds import KINDS as ORDER_KINDS
from payments_async._wire.kinds import destination_of, item_of
from payments_async._wire.orders import Order
from payments_async.bulk._file._buckets import Buckets
from payments_async.bulk._problems import OrderIssue
from payments_async.journal._records import Entry

ChangeKind = Literal["other account", "other name", "amount", "new", "gone"]
KINDS: tuple[ChangeKind, ...] = ("other account", "other name", "amount", "new", "gone")  # the odd ones first
_SHOWN = 200  # of each change
_SHOWN_DUPLICATES = 1000
_SHOWN_OF_BATCH = 100  # with one other batch
_EXAMPLES = 5
_NATIONAL = 9  # digits at the end of a telephone number, which it has in every form
_MEMORY = 4 * 2**20  # bytes for each of the heaps; the rest goes to temporary files
_SIEVE = 32 * 2**20  # bits, 4 MiB of them: one for each of 33,000,000 beneficiaries
_EXACT = Context(prec=100)
_RATIO = Context(prec=9)
_DIGEST = 16
# payee, name, which batch, where its line is, amount as text (an order's has 30 digits and a point at most)
_RECORD = struct.Struct("<16s16sBQ32s")
_PRIOR_BATCH = struct.Struct("<Qd")  # in place of the name: which other batch, and when its order was sent
_WORDS = re.compile(r"\w+")
_OWN, _OTHER, _PRIOR = range(3)  # of this batch, of the one it is compared with, of what the journal holds


def _payee_of(order: Order) -> tuple[str, str]:
    """Who is paid by an order: a key, and the number of the wallet, account or line as the order has it. Personal.

    The key is the same for all orders that pay into it, however its number is punctuated, and with which prefix of the
    country, if any. Salary and airtime for one telephone number are two destinations, and so is one number at two
    utilities.
    """
    destination = destination_of(order)
    kind = ORDER_KINDS[order.kind]
    number = reference = getattr(destination, kind.reference)
    if kind.reference == "phone_number":
        if not (number := reference.removeprefix("+")).isdecimal():
            number = "".join(filter(str.isdecimal, reference))
        number = number[-_NATIONAL:]
    match kind.unique_within:
        case None:
            key = f"{kind.name} {number}"
        case "product_item_id":
            key = f"{kind.name} {item_of(order)} {number}"
        case field:
            key = f"{kind.name} {getattr(destination, field)} {number}"
    return key, reference


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class DuplicateGroup:
    """Duplicates that are alike.

    Attributes:
        batch_id: Of the other orders, when the journal holds them in another batch.
        same_amount: Whether the amounts are alike too.
        count: How many pairs.
        latest: Unix seconds at which the last of these other orders was sent, likewise.
    """

    batch_id: str | None
    same_amount: bool
    count: int
    latest: float | None = None


@frozen(kw_only=True)
class Duplicates:
    """What was found.

    Attributes:
        same_amount: Pairs with the same beneficiary and amount.
        other_amount: Pairs with the same beneficiary and another amount.
        groups: The same by where the other order is, the odd ones first: those within the batch, then a few with some
            other batch before many, such as all of last month's.
        shown: The first thousand, in the sequence of the groups.
    """

    same_amount: int = 0
    other_amount: int = 0
    groups: tuple[DuplicateGroup, ...] = ()
    shown: tuple[Duplicate, ...] = ()


@frozen(kw_only=True)
class PayeeChange:
    """What is not as it was for one payee: one wallet, account or line.

    Attributes:
        kind: ``"other account"``: a person of that name was paid elsewhere, and is not any more; ``"other name"``;
            ``"amount"``, by more than was asked for; ``"new"``; ``"gone"``.
        request_id: Their first order: of this batch, or of the other one for who is gone.
        payee: The number of the wallet, account or line, masked.
        before, now: The sums of their orders; ``None`` where there is none.
        name: Of their first order; personal, as the next two are.
        account: The number in full.
        account_before: That of the other batch, where the name was paid elsewhere; else ``None``.
        name_before: That of the other batch, where the account was paid under another name; else ``None``. Personal.
    """

    kind: ChangeKind
    request_id: str
    payee: str
    before: Decimal | None
    now: Decimal | None
    name: str = field(default="", repr=False)
    account: str = field(default="", repr=False)
    account_before: str | None = field(default=None, repr=False)
    name_before: str | None = field(default=None, repr=False)


@frozen(kw_only=True)
class Comparison:
    """A batch against another one. One change is told of each payee, the first in the sequence of ``kind``.

    Attributes:
        other: What it was compared with.
        count, total: The orders of the other one, and the exact sum of their amounts.
        same: Payees without a difference.
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

    def add(self, side: int, name: bytes, line: int, amount: Decimal) -> None:
        before = self.sums[side]
        self.sums[side] = amount if before is None else _EXACT.add(before, amount)
        if self.lines[side] is None:
            self.lines[side] = line
        self.names[side].add(name)


class _Pairs:
    """Pairs of orders for one payee, of a kind.

    Attributes:
        count: All of them; the first are kept.
        latest: Unix seconds at which the last of the other orders was sent.
    """

    def __init__(self) -> None:
        self.count = 0
        self.latest = 0.0
        self._first: list[tuple[int, int, Decimal]] = []  # a heap, the last line on top

    def add(self, line: int, first: int, amount: Decimal, at: float, most: int) -> None:
        """Take one down, and keep so many."""
        self.count += 1
        self.latest = max(self.latest, at)
        keep = heapq.heappush if len(self._first) < most else heapq.heappushpop
        keep(self._first, (-line, first, amount))

    def first(self) -> list[tuple[int, int, Decimal]]:
        """Those that are kept, by the lines of the later orders."""
        return [(-line, first, amount) for line, first, amount in sorted(self._first, reverse=True)]


class PayeeLedger(ExitStack):
    """Who is paid how much by a batch, was by another one it is compared with, and was of late by the journal's others.

    Takes the orders of the batch first. Its memory does not grow with them. Of the journal's orders it keeps those
    that pay somebody the batch pays too: a bit for each beneficiary tells them apart.

    Attributes:
        other_count: Orders of the batch that it is compared with.
        prior_count: How many orders of the journal were looked at.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_payee = self.enter_context(Buckets(memory=_MEMORY))
        self._by_name = self.enter_context(Buckets(memory=_MEMORY))
        lines = tempfile.SpooledTemporaryFile(_MEMORY, prefix="payments-async-")  # noqa: SIM115  lives as long as self
        self._lines = self.enter_context(lines)
        self._place = 0
        self.other_count = self.prior_count = 0
        self._other_total = Decimal(0)
        self._paid = BitSet(_SIEVE)
        self._batches: dict[str, int] = {}

    def add(self, orders: Sequence[Order]) -> None:
        """Take down orders of the batch."""
        self._add_named(orders, _OWN)

    def add_other(self, orders: Sequence[Order]) -> None:
        """Take down orders of the batch that it is compared with."""
        self.other_count += len(orders)
        for order in orders:
            self._other_total = _EXACT.add(self._other_total, order.amount)
        self._add_named(orders, _OTHER)

    def add_prior(self, entries: Iterable[Entry]) -> None:
        """Take down orders that the journal holds in other batches, where they pay one of those."""
        found: list[Entry] = []
        payees: list[tuple[str, str]] = []
        for entry in entries:
            self.prior_count += 1
            payee = _payee_of(entry.order)
            if hash(payee[0]) % _SIEVE in self._paid:
                found.append(entry)
                payees.append(payee)
        batches = self._batches
        sent = [
            _PRIOR_BATCH.pack(batches.setdefault(one.batch_id, len(batches)), one.permitted_at or one.updated_at)
            for one in found
        ]
        about = [(one.batch_id, one.state) for one in found]
        self._add([one.order for one in found], payees, sent, _PRIOR, about)

    def _add_named(self, orders: Sequence[Order], side: int) -> None:
        payees = [_payee_of(order) for order in orders]
        if side == _OWN:
            for key, _ in payees:
                self._paid.add(hash(key) % _SIEVE)
        names = [_digest(f"{order.kind} {_plain_name(order.beneficiary.name)}") for order in orders]
        self._by_name.add(self._add(orders, payees, names, side, [()] * len(orders)), _DIGEST)

    def _add(
        self,
        orders: Sequence[Order],
        payees: Sequence[tuple[str, str]],
        names: Sequence[bytes],
        side: int,
        about: Iterable[tuple[str, ...]],
    ) -> list[bytes]:
        """Take down orders, and give back their records.

        Args:
            about: Of each order, what else is told of it.
        """
        told = [
            (order.request_id, *more, order.beneficiary.name, reference)
            for order, (_, reference), more in zip(orders, payees, about, strict=True)
        ]
        if not "".join(chain.from_iterable(told)).isprintable():
            told = [tuple(_CONTROLS.sub(" ", text) for text in one) for one in told]
        place, records, lines = self._place, [], []
        for order, (key, _), name, texts in zip(orders, payees, names, told, strict=True):
            records.append(_RECORD.pack(_digest(key), name, side, place, amount_text(order.amount).encode()))
            line = "\t".join((*texts, "\n")).encode()
            lines.append(line)
            place += len(line)
        self._place = place
        self._lines.writelines(lines)
        self._by_payee.add(records)
        return records

    def _payees(self) -> Iterator[tuple[bytes, _Paid]]:
        for records in self._by_payee.each():
            payees: dict[bytes, _Paid] = {}
            for key, name, side, line, amount in _RECORD.iter_unpack(records):
                if side != _PRIOR:
                    payees.setdefault(key, _Paid()).add(side, name, line, _amount(amount))
            yield from payees.items()

    def duplicates(self) -> Duplicates:
        """Which orders pay somebody whom an earlier one of the batch pays too. It takes a second for each million."""
        pairs: dict[tuple[int, bool], _Pairs] = {}
        for records in self._by_payee.each():
            if _are_different(records, 0):
                continue
            # the first order of a payee, and the first of each amount: its line and its amount as it was written
            firsts: dict[bytes, tuple[int, bytes]] = {}
            amounts: dict[bytes, dict[Decimal, tuple[int, Decimal]]] = {}
            for key, sent, side, line, packed in _RECORD.iter_unpack(records):
                if side == _OTHER:
                    continue
                if (known := firsts.get(key)) is None:
                    if side == _OWN:
                        firsts[key] = line, packed
                    continue
                amount, of_payee = _amount(packed), (known[0], _amount(known[1]))
                of_amounts = amounts.setdefault(key, {of_payee[1]: of_payee})
                first, own_amount = of_amounts.get(amount, of_payee)
                is_same = amount in of_amounts
                if side == _OWN:
                    pairs.setdefault((-1, is_same), _Pairs()).add(line, first, amount, 0.0, _SHOWN_DUPLICATES)
                    of_amounts.setdefault(amount, (line, amount))
                else:
                    batch, at = _PRIOR_BATCH.unpack(sent)
                    pairs.setdefault((batch, is_same), _Pairs()).add(line, first, own_amount, at, _SHOWN_OF_BATCH)
        return self._told(sorted(pairs.items(), key=_oddity))

    def _told(self, pairs: list[tuple[tuple[int, bool], _Pairs]]) -> Duplicates:
        names = {number: batch_id for batch_id, number in self._batches.items()}
        chosen = [(same, *one) for (_, same), found in pairs for one in found.first()][:_SHOWN_DUPLICATES]
        return Duplicates(
            same_amount=sum(found.count for (_, same), found in pairs if same),
            other_amount=sum(found.count for (_, same), found in pairs if not same),
            groups=tuple(
                DuplicateGroup(
                    batch_id=names.get(number), same_amount=same, count=found.count, latest=found.latest or None
                )
                for (number, same), found in pairs
            ),
            shown=tuple(self._duplicate(same, line, first, amount) for same, line, first, amount in chosen),
        )

    def _duplicate(self, same: bool, line: int, first: int, amount: Decimal) -> Duplicate:
        later, earlier = self._line(line), self._line(first)
        batch_id, state = later[1:3] if later[3:] else (None, None)
        ours, other = (earlier, later) if batch_id else (later, earlier)  # the later one is the journal's
        return Duplicate(
            request_id=ours[0],
            other=other[0],
            same_amount=same,
            amount=amount,
            payee=mask(ours[-1]),
            batch_id=batch_id,
            state=state,
        )

    def _accounts(self) -> Iterator[tuple[dict[bytes, int], dict[bytes, tuple[Decimal, int]]]]:
        """For each name its payees of the batch with their first lines, and those of the other one, with sums too."""
        for records in self._by_name.each():
            names: dict[bytes, tuple[dict[bytes, int], dict[bytes, tuple[Decimal, int]]]] = {}
            for payee, name, side, line, amount in _RECORD.iter_unpack(records):
                ours, others = names.setdefault(name, ({}, {}))
                if side == _OTHER:
                    before, first = others.get(payee, (Decimal(0), line))
                    others[payee] = _EXACT.add(before, _amount(amount)), first
                else:
                    ours.setdefault(payee, line)
            yield from names.values()

    def issues(self, most_each: Decimal | None) -> Iterator[tuple[OrderIssue, int, tuple[str, ...]]]:
        """What is odd about payees of the batch itself: the issue, how many, and the first orders of some.

        Args:
            most_each: What one payee may get, where there is a limit.
        """
        limit = f"one payee gets more than the {most_each or 0:,f} allowed to each"
        for lines, issue in (
            (() if most_each is None else self._above(most_each), OrderIssue("amount", "", limit)),
            (_of_several(self._by_payee, 0, 1), OrderIssue("name", "", _TWO_NAMES, blocks=False)),
            (_of_several(self._by_name, 1, 0), OrderIssue("name", "", _TWO_ACCOUNTS, blocks=False)),
        ):
            found = _First()
            for line in lines:
                found.add(line)
            if found.count:
                yield issue, found.count, tuple(self._line(line)[0] for line in found.lines())

    def _above(self, most: Decimal) -> Iterator[int]:
        """The first lines of the payees of the batch that get more than that."""
        for _, payee in self._payees():
            total, line = payee.sums[_OWN], payee.lines[_OWN]
            if total is not None and line is not None and total > most:
                yield line

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
            other_line = payee.lines[_OTHER] if kind == "other name" else None
            if kind == "gone" and key in left:
                continue  # told of the other account of that name
            if kind == "new" and now is not None and key in moved:
                kind, weight, (before, other_line) = "other account", now, moved[key]
            if kind is None:
                same += 1
                continue
            line = payee.lines[_OWN] if now is not None else payee.lines[_OTHER]
            assert line is not None
            first[kind].add(weight, line, before, now, other_line)
        return Comparison(
            other=other,
            count=self.other_count,
            total=self._other_total,
            same=same,
            counts={kind: found.count for kind, found in first.items()},
            shown=tuple(self._change(kind, *one) for kind, found in first.items() for one in found.sorted()),
        )

    def _change(
        self, kind: ChangeKind, line: int, before: Decimal | None, now: Decimal | None, other_line: int | None
    ) -> PayeeChange:
        request_id, *_, name, account = self._line(line)
        name_before, account_before = (None, None) if other_line is None else self._line(other_line)[-2:]
        return PayeeChange(
            kind=kind,
            request_id=request_id,
            payee=mask(account),
            before=before,
            now=now,
            name=name,
            account=account,
            account_before=account_before if kind == "other account" else None,
            name_before=name_before if kind == "other name" else None,
        )

    def _moved(self) -> tuple[dict[bytes, tuple[Decimal, int]], set[bytes]]:
        """Payees that are new, with what was paid before to their name elsewhere, and where; and who is gone."""
        moved: dict[bytes, tuple[Decimal, int]] = {}
        left: set[bytes] = set()
        for ours, others in self._accounts():
            new, gone = ours.keys() - others.keys(), others.keys() - ours.keys()
            if new and gone:
                before = Decimal(0)
                for payee in gone:
                    before = _EXACT.add(before, others[payee][0])
                moved |= dict.fromkeys(new, (before, min(others[payee][1] for payee in gone)))
                left |= gone
        return moved, left

    def _line(self, place: int) -> list[str]:
        self._lines.seek(place)
        return self._lines.readline().decode().split("\t")[:-1]


_CONTROLS = re.compile(r"[\t\n\r]")
_TWO_NAMES = "one wallet, account or line is paid under two names; ask whose it is"
_TWO_ACCOUNTS = "one name is paid at two wallets, accounts or lines; two people of one name, or one who is paid twice?"


def _oddity(group: tuple[tuple[int, bool], _Pairs]) -> tuple[bool, int, bool]:
    """What comes first: pairs within the batch, the same amount; then a few with another batch, and many at last."""
    (number, same), found = group
    return number >= 0, found.count if number >= 0 else 0, not same


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


def _of_several(buckets: Buckets, one: int, other: int) -> Iterator[int]:
    """The first lines of the payees of the batch that have several names, or of the names that have several payees.

    Args:
        one, other: Where a record has the payee or the name, and where the other of them.
    """
    for records in buckets.each():
        if _are_different(records, one * _DIGEST):
            continue
        firsts: dict[bytes, tuple[bytes, int]] = {}
        several: dict[bytes, int] = {}
        for record in _RECORD.iter_unpack(records):
            if record[2] == _OWN:
                first, line = firsts.setdefault(record[one], (record[other], record[3]))
                if first != record[other]:
                    several[record[one]] = line
        yield from several.values()


def _are_different(records: bytes, start: int) -> bool:
    """Whether no two records have the same digest at this place."""
    size = _RECORD.size
    return len({records[at : at + _DIGEST] for at in range(start, len(records), size)}) * size == len(records)


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
        self._heap: list[tuple[Decimal, int, Decimal | None, Decimal | None, int | None]] = []

    def add(
        self, weight: Decimal, line: int, before: Decimal | None, now: Decimal | None, elsewhere: int | None
    ) -> None:
        self.count += 1
        keep = heapq.heappush if len(self._heap) < _SHOWN else heapq.heappushpop
        keep(self._heap, (weight, -line, before, now, elsewhere))

    def sorted(self) -> list[tuple[int, Decimal | None, Decimal | None, int | None]]:
        found = sorted(self._heap, key=lambda one: one[:2], reverse=True)
        return [(-line, before, now, elsewhere) for _, line, before, now, elsewhere in found]


def _amount(packed: bytes) -> Decimal:
    return Decimal(packed.rstrip(b"\0").decode())


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


def _plain_name(name: str) -> str:
    """A name without regard to case, punctuation and the sequence of its words."""
    name = name.casefold()
    words = name.split() if name.replace(" ", "").isalnum() else _WORDS.findall(name)
    return " ".join(sorted(words))


class BitSet:
    """A set of numbers from 0, a bit for each.

    Args:
        size: Numbers below it need no more memory than is taken at once.
    """

    def __init__(self, size: int = 0) -> None:
        self._bits = bytearray(-(-size // 8))
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
