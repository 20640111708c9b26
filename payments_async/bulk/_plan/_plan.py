"""What a batch would do, before anything is sent: sums, problems, duplicates, balance and a digest."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from itertools import count, islice

import attrs

from payments_async._amounts import amount_text
from payments_async._frozen import field, frozen
from payments_async._masking import redact
from payments_async._models import Account
from payments_async._orders import PayoutOrder
from payments_async._session import PaymentsSession, executor_of
from payments_async._wire.orders import write_order
from payments_async.bulk._file._batch import Batch, BatchOrders, read_in_threads
from payments_async.bulk._plan._checks import (
    BitSet,
    Catalogue,
    Duplicates,
    Payees,
    PriorOrders,
    Validations,
    bank_named,
)
from payments_async.bulk._problems import Issue, OrderIssue, Problem, harmless
from payments_async.journal import Journal
from payments_async.journal._records import Entry, body_digest
from payments_async.journal._states import State

_AT_ONCE = 500  # orders
_SHOWN = 1000  # different issues; more are counted
_EXACT = Context(prec=100)  # the usual 28 digits could round a great sum
_VERSION = b"payments-async plan 1\0"
_REPEATED = OrderIssue("request_id", "", "an earlier order of this batch has this request id; leave one of them out")


@frozen(kw_only=True)
class Share:
    """So many orders, and the exact sum of their amounts."""

    count: int = 0
    total: Decimal = Decimal(0)

    def __add__(self, other: Share) -> Share:
        return Share(count=self.count + other.count, total=_EXACT.add(self.total, other.total))

    def with_one(self, amount: Decimal) -> Share:
        """One order more."""
        return Share(count=self.count + 1, total=_EXACT.add(self.total, amount))


@frozen(kw_only=True)
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
    problems: tuple[Issue, ...]
    problem_count: int
    concerns: tuple[Issue, ...]
    acknowledged: bool
    skipped: tuple[Issue, ...]
    warnings: tuple[Issue, ...]
    duplicates: Duplicates
    left_out: int
    recorded: int
    open_count: int
    open_total: Decimal
    balance: Decimal
    currency: str | None
    seconds: float
    digest: str
    orders: Iterable[PayoutOrder] = field(repr=False)

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
    recent: float = 7 * 86_400.0,
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
    account = await payments.accounts.get()
    prior = PriorOrders(journal, batch_id, recent)
    await prior.begin()
    catalogue = Catalogue(payments)
    # a file's reader has told repeated ids already, in constant memory
    ids: set[str] | None = None if isinstance(orders, Batch) else set()
    walk = _Walk(catalogue, account, prior, skip_bad=skip_bad, acknowledged=acknowledged, ids=ids)
    if isinstance(orders, Batch):
        walk.take_file(orders)
    clock = executor_of(payments).clock
    began = clock()
    await catalogue.read()
    wait = max(clock() - began, 0.001)  # one read stands for a payout
    speed = min(math.inf if rate is None else rate, concurrency / wait)
    validations = Validations(payments, concurrency) if validate else None
    with Payees() as payees:
        async for some in _some_at_once(source):
            await walk.take(some, payees, validations)
        return await walk.end(payees, source, speed)


class _Walk:
    """What was seen of a batch so far."""

    def __init__(
        self,
        catalogue: Catalogue,
        account: Account,
        prior: PriorOrders,
        *,
        skip_bad: bool,
        acknowledged: bool,
        ids: set[str] | None,
    ) -> None:
        self._catalogue = catalogue
        self._account = account
        self._prior = prior
        self._skip_bad = skip_bad
        self._acknowledged = acknowledged
        self._concerns = _Issues()
        self._file_concerns: tuple[Issue, ...] = ()
        self._problems, self._skipped, self._warnings = _Issues(), _Issues(), _Issues()
        self._kinds: defaultdict[str, Share] = defaultdict(Share)
        self._items: defaultdict[str, Share] = defaultdict(Share)
        self._open = Share()
        self._left_out = BitSet()
        self._digest = hashlib.sha256(_VERSION)
        self._currencies: set[str] = set()
        self._ids = ids
        self._number = self._recorded = self._rows_left_out = 0

    def take_file(self, batch: Batch) -> None:
        """Take what the reader of the file refused."""
        (self._skipped if self._skip_bad else self._problems).add_file(batch.problems)
        self._rows_left_out = batch.rows - len(batch.orders)
        self._file_concerns = batch.concerns

    async def take(self, orders: Sequence[PayoutOrder], payees: Payees, validations: Validations | None) -> None:
        """Judge and count some orders."""
        entries = await self._prior.entries(orders)
        new = [order for order in orders if not self._prior.is_recorded(order, entries.get(order.request_id))]
        await self._catalogue.learn(new)
        issues = {order.request_id: self._issues(order, entries.get(order.request_id)) for order in new}
        if validations is not None:
            fit = [order for order in new if not _blocked(issues[order.request_id])]
            await validations.ask(fit)
            for order in fit:
                issues[order.request_id] += validations.issues(order)
        for order in orders:
            entry = entries.get(order.request_id)
            repeats = self._ids is not None and order.request_id in self._ids
            self._take_one(order, [_REPEATED] if repeats else issues.get(order.request_id, []), entry, payees)

    def _issues(self, order: PayoutOrder, entry: Entry | None) -> list[OrderIssue]:
        """What speaks against a new order, or for a second look."""
        found = list(self._catalogue.issues(order))
        found += filter(None, (bank_named(order), self._prior.issue(order, entry)))
        ours = self._account.currency
        if order.currency and ours and order.currency != ours:
            found.append(
                OrderIssue("currency", order.currency, f"the account is kept in {ours}; leave these orders out")
            )
        return found

    def _take_one(self, order: PayoutOrder, issues: Sequence[OrderIssue], entry: Entry | None, payees: Payees) -> None:
        """Count one order with its issues, or leave it out."""
        number, self._number = self._number, self._number + 1
        leave_out = self._skip_bad and _blocked(issues)
        for issue in issues:
            against = self._skipped if leave_out else self._problems
            unblocked = self._concerns if issue.concerns else self._warnings
            (against if issue.blocks else unblocked).add(order.request_id, issue)
        if self._ids is not None:
            self._ids.add(order.request_id)
        if leave_out:
            self._left_out.add(number)
            return
        kind, item = order.kind, order.product_item_id
        self._kinds[kind] = self._kinds[kind].with_one(order.amount)
        self._items[item] = self._items[item].with_one(order.amount)
        self._recorded += self._prior.is_recorded(order, entry)
        if entry.state is State.PLANNED if entry is not None else not self._prior.has_left(order):
            self._open = self._open.with_one(order.amount)
        if order.currency:
            self._currencies.add(order.currency)
        self._digest.update(body_digest(order.request_id, amount_text(order.amount), write_order(order)))
        payees.add(order)

    async def end(self, payees: Payees, source: Iterable[PayoutOrder], speed: float) -> Plan:
        """The plan, after the last order.

        Args:
            speed: Orders a second.
        """
        async for entries in self._prior.paid():
            for entry in entries:
                payees.add_prior(entry.order, entry.batch_id, entry.state)
        everything = sum(self._kinds.values(), Share())
        self._judge_batch(everything.count)
        return Plan(
            count=everything.count,
            total=everything.total,
            by_kind=dict(sorted(self._kinds.items())),
            by_item=dict(sorted(self._items.items())),
            problems=self._problems.shown(),
            problem_count=self._problems.count,
            concerns=(*(self._file_concerns if self._recorded < everything.count else ()), *self._concerns.shown()),
            acknowledged=self._acknowledged,
            skipped=self._skipped.shown(),
            warnings=self._warnings.shown(),
            duplicates=await asyncio.to_thread(payees.found),
            left_out=self._left_out.count + (self._rows_left_out if self._skip_bad else 0),
            recorded=self._recorded,
            open_count=self._open.count,
            open_total=self._open.total,
            balance=self._account.balance,
            currency=self._account.currency or (self._currencies.pop() if len(self._currencies) == 1 else None),
            seconds=math.ceil(self._open.count / speed),
            digest=self._digest.hexdigest(),
            orders=_PlannedOrders(source, self._left_out),
        )

    def _judge_batch(self, count: int) -> None:
        """What speaks against the batch as a whole."""
        account, run = self._account, self._prior.run
        if not count:
            self._problems.add_batch("batch", "", "there is nothing to send")
        if self._open.total > account.balance:
            lacking = f"{self._open.total - account.balance:,f} {account.currency or ''}".strip()
            self._problems.add_batch("balance", "", f"{lacking} short of what is to be sent; fund the account first")
        held = 0 if run is None else run.total - run.archived
        if run is not None and run.ready and self._recorded < held:
            remedy = (
                f"orders that the journal holds in this batch, and that are not here: {held - self._recorded:,}; "
                "use the file it was begun with"
            )
            self._problems.add_batch("batch", run.batch_id, remedy)
        if account.currency is None and len(self._currencies) > 1:
            self._problems.add_batch("currency", ", ".join(sorted(self._currencies)), "make a batch for each currency")
        if self._catalogue.note:
            self._warnings.add_batch("products", "", self._catalogue.note)


class _Issues:
    """Issues as they come; those that are alike become one.

    Attributes:
        count: All of them, orders counted one by one.
    """

    def __init__(self) -> None:
        self.count = 0
        self._orders: dict[OrderIssue, tuple[str, int]] = {}
        self._others: list[Issue] = []

    def add(self, request_id: str, issue: OrderIssue) -> None:
        """Something about one order."""
        self.count += 1
        first, orders = self._orders.get(issue, (request_id, 0))
        if orders or len(self._orders) < _SHOWN:
            self._orders[issue] = first, orders + 1

    def add_batch(self, field: str, value: str, remedy: str) -> None:
        """Something about the batch as a whole."""
        self.count += 1
        self._others.append(Issue(field=field, value=value, remedy=remedy))

    def add_file(self, problems: Iterable[Problem]) -> None:
        """What the reader of a file refused."""
        for one in problems:
            self.count += 1
            if len(self._others) < _SHOWN:
                self._others.append(Issue(field=one.column, value=one.value, remedy=one.remedy, row=one.row))

    def shown(self) -> tuple[Issue, ...]:
        """All of them, or the first thousand: of the batch, then of rows, then of orders."""
        about_orders = (
            Issue(
                field=issue.field,
                value=harmless(redact(issue.value)),
                remedy=redact(issue.remedy),
                request_id=request_id,
                orders=orders,
            )
            for issue, (request_id, orders) in self._orders.items()
        )
        return (*sorted(self._others, key=lambda one: one.row or 0), *about_orders)


@attrs.frozen(eq=False)
class _PlannedOrders(Iterable[PayoutOrder], AsyncIterable[PayoutOrder]):
    """The orders of a plan, walked through anew each time; what was left out stays out."""

    _orders: Iterable[PayoutOrder]
    _left_out: BitSet

    def __iter__(self) -> Iterator[PayoutOrder]:
        return (order for number, order in enumerate(self._orders) if number not in self._left_out)

    async def __aiter__(self) -> AsyncIterator[PayoutOrder]:
        numbers = count()
        async for some in _some_at_once(self._orders):
            for order in some:
                if next(numbers) not in self._left_out:
                    yield order


async def _some_at_once(orders: Iterable[PayoutOrder]) -> AsyncIterator[list[PayoutOrder]]:
    """Lists of up to 500 orders, so that a long walk stops nobody else.

    A file is read in threads; anything else may belong to this one, so it stays.
    """
    if isinstance(orders, BatchOrders):
        async for some in read_in_threads(orders, _AT_ONCE):
            yield some
        return
    iterator = iter(orders)
    while some := list(islice(iterator, _AT_ONCE)):
        yield some
        await asyncio.sleep(0)


def _blocked(issues: Iterable[OrderIssue]) -> bool:
    return any(issue.blocks for issue in issues)
