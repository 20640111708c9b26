"""What a batch would do, before anything is sent: sums, problems, duplicates, balance and a digest. Moves no money."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import reduce

import attrs

from payments_async._amounts import amount_text
from payments_async._models import Account
from payments_async._orders import PayoutOrder
from payments_async._session import PaymentsSession
from payments_async._wire.written import kind_of, write_order
from payments_async.bulk._concerns import Concern, Concerns, Fault, Marks
from payments_async.bulk._file._batch import Batch
from payments_async.bulk._plan._catalogue import Catalogue
from payments_async.bulk._plan._duplicates import Duplicates, Payees
from payments_async.bulk._plan._earlier import DAY, Earlier
from payments_async.bulk._plan._opinions import Opinions
from payments_async.bulk._plan._payees import bank_named
from payments_async.bulk._plan._pieces import Planned, in_pieces
from payments_async.journal._bodies import body_digest
from payments_async.journal._contract import Journal
from payments_async.journal._records import Entry
from payments_async.journal._states import State

__all__ = ["Plan", "Share", "plan"]

_EXACT = Context(prec=100)  # the usual 28 digits could round a great sum
_VERSION = b"payments-async plan 1\0"
_REPEATED = Fault("request_id", "", "an earlier order of this batch has this request id; leave one of them out")


@attrs.frozen(kw_only=True)
class Share:
    """So many orders, and the exact sum of their amounts."""

    count: int
    total: Decimal


@attrs.frozen(kw_only=True)
class Plan:
    """What a batch comes to. Nothing in it is personal but ``orders``.

    Attributes:
        count, total: The orders that would be sent, and the exact sum of their amounts without any fees.
        by_kind, by_item: The same by kind, and by the item of the operator or provider.
        problems: What speaks against sending it; the first thousand different ones. See ``problem_count``.
        problem_count: All problems, orders counted one by one; 0 means that the batch may be sent.
        concerns: What somebody must have looked at, and said so, before it is sent; see ``acknowledged``.
        acknowledged: Whether they said so.
        skipped: Why rows and orders were left out, with ``skip_bad``.
        warnings: What a person should look at.
        duplicates: Orders that pay the same beneficiary, in the batch and in what the journal shows of late.
        left_out: Rows and orders that are not in it because of a problem of their own (``skip_bad``).
        recorded: Orders of it that the journal holds in this batch already.
        open_count, open_total: What is still to be sent.
        balance: Of the account, in units of ``currency``.
        currency: Of the account; what the orders say when it names none.
        seconds: How long the sending may take: a guess from how fast the service answered.
        digest: SHA-256 over all that the orders say, in their sequence, in hexadecimal digits. The same digest is the
            same payments.
        orders: What would be sent, to be walked through as often as needed; pass it to ``run_batch``.
    """

    count: int
    total: Decimal
    by_kind: Mapping[str, Share]
    by_item: Mapping[str, Share]
    problems: tuple[Concern, ...]
    problem_count: int
    concerns: tuple[Concern, ...]
    acknowledged: bool
    skipped: tuple[Concern, ...]
    warnings: tuple[Concern, ...]
    duplicates: Duplicates
    left_out: int
    recorded: int
    open_count: int
    open_total: Decimal
    balance: Decimal
    currency: str | None
    seconds: float
    digest: str
    orders: Iterable[PayoutOrder] = attrs.field(repr=False)

    @property
    def is_clean(self) -> bool:
        """Whether nothing speaks against sending it."""
        return not self.problem_count and (self.acknowledged or not self.concerns)


async def plan(
    payments: PaymentsSession,
    orders: Batch | Iterable[PayoutOrder],
    *,
    batch_id: str | None = None,
    journal: Journal | None = None,
    validate: bool = False,
    skip_bad: bool = False,
    acknowledged: bool = False,
    concurrency: int = 20,
    rate: float | None = None,
    recent: float = 7 * DAY,
) -> Plan:
    """Look at a batch from all sides; nothing is sent and nothing is written down. Memory does not grow with it.

    Products and their items are read once. A ``productRegex`` may warn and never blocks. Orders that the journal holds
    in this batch word for word were approved before: they are counted, and not judged again.

    Args:
        orders: What ``read_batch`` gave, or orders that can be walked through again; no iterator.
        batch_id: The batch they are or become in the journal.
        journal: Tells which request ids are taken, and who was paid of late.
        validate: Ask the service about every order (once for each item, reference and amount).
        skip_bad: Leave out orders with a problem of their own, in place of calling the batch unfit.
        acknowledged: Somebody has looked at the concerns: hidden rows and columns of a workbook that would be paid, and
            what looks like the name of a bank in place of its code.
        concurrency: Calls under way at once, of the validation now and of the run in the estimate.
        rate: Orders a second that the run allows itself, for the estimate.
        recent: Seconds back in which an order of another batch to the same beneficiary counts as a duplicate.

    Raises:
        TypeError: The orders can be walked through only once.
        BatchChanged: The file was changed since it was read.
        Rejected, NotSent, ServiceFault: The account or the products could not be read.
        JournalUnavailable: The journal could not be read.
    """
    source: Iterable[PayoutOrder] = orders.orders if isinstance(orders, Batch) else orders
    if isinstance(source, Iterator):
        raise TypeError("orders: an iterator would be used up by planning; pass a list, or what read_batch gave")
    pace = _Pace(payments, concurrency, rate)
    account = await payments.accounts.get()
    earlier = Earlier(journal, batch_id, recent)
    await earlier.begin()
    # a file's reader has told repeated ids already, in constant memory
    walk = _Walk(
        payments,
        account,
        earlier,
        skip_bad=skip_bad,
        acknowledged=acknowledged,
        ids=None if isinstance(orders, Batch) else set(),
    )
    if isinstance(orders, Batch):
        walk.take_file(orders)
    await pace.time(walk.catalogue.read())
    opinions = Opinions(payments, concurrency) if validate else None
    with Payees() as payees:
        async for piece in in_pieces(source):
            await walk.take(piece, payees, opinions)
        return await walk.end(payees, source, pace)


class _Walk:
    """What was seen of a batch so far."""

    def __init__(
        self,
        payments: PaymentsSession,
        account: Account,
        earlier: Earlier,
        *,
        skip_bad: bool,
        acknowledged: bool,
        ids: set[str] | None,
    ) -> None:
        self.catalogue = Catalogue(payments)
        self._account = account
        self._earlier = earlier
        self._skip_bad = skip_bad
        self._acknowledged = acknowledged
        self._concerns = Concerns()
        self._file_concerns: tuple[Concern, ...] = ()
        self._problems, self._skipped, self._warnings = Concerns(), Concerns(), Concerns()
        self._kinds: dict[str, Share] = {}
        self._items: dict[str, Share] = {}
        self._open = Share(count=0, total=Decimal(0))
        self._left_out = Marks()
        self._digest = hashlib.sha256(_VERSION)
        self._currencies: set[str] = set()
        self._ids = ids
        self._number = self._recorded = self._rows_left_out = 0

    def take_file(self, batch: Batch) -> None:
        """Take what the reader of the file refused."""
        (self._skipped if self._skip_bad else self._problems).add_file(batch.problems)
        self._rows_left_out = batch.rows - len(batch.orders)
        self._file_concerns = batch.concerns

    async def take(self, piece: Sequence[PayoutOrder], payees: Payees, opinions: Opinions | None) -> None:
        """Judge and count some orders."""
        entries = await self._earlier.entries(piece)
        new = [order for order in piece if not self._earlier.is_recorded(order, entries.get(order.request_id))]
        await self.catalogue.learn(new)
        faults = {order.request_id: self._faults(order, entries.get(order.request_id)) for order in new}
        if opinions is not None:
            fit = [order for order in new if not _blocked(faults[order.request_id])]
            await opinions.ask(fit)
            for order in fit:
                faults[order.request_id] += opinions.faults(order)
        for order in piece:
            entry = entries.get(order.request_id)
            repeats = self._ids is not None and order.request_id in self._ids
            self._take_one(order, [_REPEATED] if repeats else faults.get(order.request_id, []), entry, payees)

    def _faults(self, order: PayoutOrder, entry: Entry | None) -> list[Fault]:
        found = list(self.catalogue.faults(order))
        if named := bank_named(order):
            found.append(named)
        if earlier := self._earlier.fault(order, entry):
            found.append(earlier)
        ours = self._account.currency
        if order.currency and ours and order.currency != ours:
            found.append(Fault("currency", order.currency, f"the account is kept in {ours}; leave these orders out"))
        return found

    def _take_one(self, order: PayoutOrder, faults: Sequence[Fault], entry: Entry | None, payees: Payees) -> None:
        number, self._number = self._number, self._number + 1
        leave_out = self._skip_bad and _blocked(faults)
        for fault in faults:
            against = self._skipped if leave_out else self._problems
            unblocked = self._concerns if fault.concerns else self._warnings
            (against if fault.blocks else unblocked).add(order.request_id, fault)
        if self._ids is not None:
            self._ids.add(order.request_id)
        if leave_out:
            self._left_out.add(number)
            return
        kind = kind_of(order)
        self._kinds[kind] = _more(self._kinds.get(kind), order.amount)
        self._items[order.product_item_id] = _more(self._items.get(order.product_item_id), order.amount)
        self._recorded += self._earlier.is_recorded(order, entry)
        if entry is None or entry.state is State.PLANNED:
            self._open = _more(self._open, order.amount)
        if order.currency:
            self._currencies.add(order.currency)
        self._digest.update(body_digest(order.request_id, amount_text(order.amount), write_order(order)))
        payees.add(order)

    async def end(self, payees: Payees, source: Iterable[PayoutOrder], pace: _Pace) -> Plan:
        """The plan, after the last order."""
        async for entries in self._earlier.paid():
            for entry in entries:
                payees.add_earlier(entry.order, entry.batch_id, entry.state)
        shares = self._kinds.values()
        count = sum(share.count for share in shares)
        total = reduce(_EXACT.add, (share.total for share in shares), Decimal(0))
        self._judge_batch(count)
        return Plan(
            count=count,
            total=total,
            by_kind=dict(sorted(self._kinds.items())),
            by_item=dict(sorted(self._items.items())),
            problems=self._problems.told(),
            problem_count=self._problems.count,
            concerns=(*(self._file_concerns if self._recorded < count else ()), *self._concerns.told()),
            acknowledged=self._acknowledged,
            skipped=self._skipped.told(),
            warnings=self._warnings.told(),
            duplicates=await asyncio.to_thread(payees.found),
            left_out=self._left_out.count + (self._rows_left_out if self._skip_bad else 0),
            recorded=self._recorded,
            open_count=self._open.count,
            open_total=self._open.total,
            balance=self._account.balance,
            currency=self._account.currency or (self._currencies.pop() if len(self._currencies) == 1 else None),
            seconds=pace.estimate(self._open.count),
            digest=self._digest.hexdigest(),
            orders=Planned(source, self._left_out),
        )

    def _judge_batch(self, count: int) -> None:
        account, run = self._account, self._earlier.run
        if not count:
            self._problems.add_batch("batch", "", "there is nothing to send")
        if self._open.total > account.balance:
            lacking = f"{self._open.total - account.balance:,f} {account.currency or ''}".strip()
            self._problems.add_batch("balance", "", f"{lacking} short of what is to be sent; fund the account first")
        if run is not None and run.ready and self._recorded < run.total:
            remedy = (
                f"orders that the journal holds in this batch, and that are not here: {run.total - self._recorded:,}; "
                "use the file it was begun with"
            )
            self._problems.add_batch("batch", run.batch_id, remedy)
        if account.currency is None and len(self._currencies) > 1:
            self._problems.add_batch("currency", ", ".join(sorted(self._currencies)), "make a batch for each currency")
        if self.catalogue.note:
            self._warnings.add_batch("products", "", self.catalogue.note)


class _Pace:
    """How fast the service answers, for the estimate."""

    def __init__(self, payments: PaymentsSession, concurrency: int, rate: float | None) -> None:
        self._clock = payments.clock
        self._concurrency = concurrency
        self._rate = math.inf if rate is None else rate
        self._wait = 0.0

    async def time(self, read: Awaitable[object]) -> None:
        """Let one read stand for a payout."""
        began = self._clock()
        await read
        self._wait = max(self._clock() - began, 0.001)

    def estimate(self, orders: int) -> float:
        """Seconds that so many orders take."""
        return math.ceil(orders / min(self._rate, self._concurrency / self._wait))


def _blocked(faults: Sequence[Fault]) -> bool:
    return any(fault.blocks for fault in faults)


def _more(share: Share | None, amount: Decimal) -> Share:
    if share is None:
        return Share(count=1, total=amount)
    return Share(count=share.count + 1, total=_EXACT.add(share.total, amount))
