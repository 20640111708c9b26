"""What a batch would do, before anything is sent: sums, problems, duplicates, balance and a digest."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections import defaultdict
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from contextlib import closing
from decimal import Context, Decimal
from itertools import count as counted_up
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import attrs

from payments_async._session.session import PaymentsSession, check_session, executor_of
from payments_async._values.amounts import amount_text, currency_key
from payments_async._values.checks import check_instance, check_number, check_whole
from payments_async._values.frozen import field, frozen
from payments_async._values.masking import redact
from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import write_order
from payments_async._wire.kinds import reference_of
from payments_async._wire.models import Account
from payments_async._wire.orders import PayoutOrder
from payments_async.bulk._file._batch import Batch, BatchOrders, Guess, read_in_threads
from payments_async.bulk._file._headings import FileColumn
from payments_async.bulk._file._totals import TOTAL
from payments_async.bulk._plan._checks import (
    SAME_AGAIN_DAYS,
    Catalogue,
    PriorOrders,
    Validations,
    bank_named,
    operator_fits,
)
from payments_async.bulk._plan._payees import BitSet, Comparison, Duplicates, PayeeLedger
from payments_async.bulk._problems import Issue, OrderIssue, Problem, harmless
from payments_async.journal import Journal, StateFolder
from payments_async.journal._records import Entry, body_digest
from payments_async.journal._registered import RegisteredOrders
from payments_async.journal._states import State
from payments_async.outbox._scans import account_of

_AT_ONCE = 500  # orders
_SHOWN = 1000  # different issues; more are counted
_EXACT = Context(prec=100)  # the usual 28 digits could round a great sum
_VERSION = b"payments-async plan 1\0"
_DERIVED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-R\d+)?")  # by request_id_for, or tried again
_EXAMPLES = 5  # orders named of those that an issue concerns
_NOTHING_KNOWN = (
    "the journal is new and knows no earlier payment, so nobody can be told who was paid before; where an older one "
    "exists, use that: one journal for all that a company pays"
)
_ANOTHER = (
    "this machine has another journal of this account, with {other}: go on with that one, which knows whom it has "
    "paid; only where two are meant, say so to the run (--second-journal WHY)"
)
_UNLISTED = (
    "who was paid of late by another journal is not known: the service's list was not read to its end ({problem})"
)
_RESTORED = (
    "a backup of it was put back, or it is a copy. That batch was or may have been sent, and whom it paid is not told "
    "here. Go on with the newer file; without one, look at that batch in the service's list first"
)
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
class PlanProgress:
    """How far a plan is.

    Attributes:
        step: ``"orders"`` are judged; those ``"paid of late"`` and those of the ``"other batch"`` are read; what all of
            it comes to is ``"summed up"``.
        done: Orders of this step.
        total: ... and how many there are, where that is known.
    """

    step: Literal["orders", "paid of late", "other batch", "summed up"]
    done: int = 0
    total: int | None = None


@attrs.frozen(kw_only=True)
class Plan(Iterable[PayoutOrder], AsyncIterable[PayoutOrder]):
    """What a batch comes to. Pass it to ``run_batch``, ``Outbox.put_batch`` or ``fleet.submit``.

    It is walked through, as often as needed, for the orders that would be sent. Nothing else in it is personal.

    Attributes:
        count, total: The orders that would be sent, and the exact sum of their amounts without any fees.
        by_kind, by_item: The same by kind, and by the item of the operator or provider.
        problems: What speaks against sending it; the first thousand different ones. See ``problem_count``.
        problem_count: All problems, orders counted one by one; 0 means that the batch may be sent.
        concerns: What a person must acknowledge before it is sent; see ``acknowledged``. Of these, of
            ``skipped`` and of ``warnings`` the first thousand different ones as well.
        concern_count, skipped_count, warning_count: All of them, orders counted one by one.
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
            same payments; an item that was guessed is part of it.
        guesses: Items that were guessed by the operators of telephone numbers; see ``read_batch``.
        columns: Those of the file, with what becomes of each, and who gets what stands there.
        comparison: With the batch that it was compared with.
        compared: The other complete batches of the journal. Where it has one more when the plan is sent, which may
            pay the same people, nothing is sent.
    """

    count: int
    total: Decimal
    by_kind: Mapping[str, Share]
    by_item: Mapping[str, Share]
    problems: tuple[Issue, ...]
    problem_count: int
    concerns: tuple[Issue, ...]
    concern_count: int
    acknowledged: bool
    skipped: tuple[Issue, ...]
    skipped_count: int
    warnings: tuple[Issue, ...]
    warning_count: int
    duplicates: Duplicates
    left_out: int
    recorded: int
    open_count: int
    open_total: Decimal
    balance: Decimal
    currency: str | None
    seconds: float
    digest: str
    guesses: tuple[Guess, ...]
    columns: tuple[FileColumn, ...]
    comparison: Comparison | None
    compared: tuple[str, ...]
    _orders: _PlannedOrders = attrs.field(repr=False, eq=False)

    def __iter__(self) -> Iterator[PayoutOrder]:
        return iter(self._orders)

    def __aiter__(self) -> AsyncIterator[PayoutOrder]:
        return aiter(self._orders)

    @property
    def is_clean(self) -> bool:
        """Whether nothing speaks against sending it."""
        return not self.problem_count and (self.acknowledged or not self.concerns)

    def named(self, request_ids: Collection[str], *, personal: bool = False) -> Mapping[str, str]:
        """What to call some orders for people who look for them in the file: ``PAY-17 (row 18)``.

        An id that was derived says nothing to anybody, so the row stands for it. The file is read again, which is best
        done in a thread; of orders that are of no file nothing is told.

        Args:
            personal: Add the number that the money goes to: ``PAY-17 (row 18, +256772000017)``.

        Raises:
            BatchChanged: The file was changed since.
        """
        found = self._orders.found(request_ids) if request_ids else {}
        places = {
            one: f"row {row}, {reference_of(order)}" if personal else f"row {row}"
            for one, (row, order) in found.items()
        }
        return {one: place if _DERIVED.fullmatch(one) else f"{one} ({place})" for one, place in places.items()}


def _walkable(orders: Batch | Iterable[PayoutOrder]) -> Iterable[PayoutOrder]:
    """The orders, which can be walked through more than once. Raises ``TypeError``."""
    if isinstance(orders, str | bytes | Path):
        raise TypeError("orders: expected a batch or orders, not a file's name: pass await read_batch(path)")
    if isinstance(orders, Iterator):
        raise TypeError("orders: an iterator would be used up by planning; pass a list, or what read_batch gave")
    return orders.orders if isinstance(orders, Batch) else orders


@frozen(kw_only=True)
class PlanSettings:
    """What a plan compares a batch with, its limits, and the speed of the run.

    Attributes:
        compare: Another batch, such as last month's: its name in the journal, a ``Batch``, or orders.
        compare_change: Per cent by which a payee's sum must differ to be shown.
        max_each: The most that all orders together may pay one payee. More is a problem.
        max_total: The most that all orders may come to. More is a problem.
        recent: Seconds back in which an order of another batch to the same payee counts as a duplicate.
        state_folder: This machine's memory of its journals. An order that another journal holds, and may have sent, is
            a problem. By default ``run_batch`` checks that.
        concurrency: Calls under way at once: of the validation, and of the run in the estimate.
        rate: Orders a second of the run, for the estimate. A lower rate of the journal or of the session counts too.

    >>> PlanSettings(compare="october", max_total=50_000_000).compare_change
    20
    """

    compare: str | Batch | Iterable[PayoutOrder] | None = field(default=None, repr=False)
    compare_change: Decimal | int = 20
    max_each: Decimal | int | None = None
    max_total: Decimal | int | None = None
    recent: float = 7 * 86_400.0
    state_folder: str | Path | StateFolder | None = None
    concurrency: int = 20
    rate: float | None = None

    def __attrs_post_init__(self) -> None:
        _check_exact("compare_change", self.compare_change)
        for name in ("max_each", "max_total"):
            if getattr(self, name) is not None:
                _check_exact(name, getattr(self, name))
        check_whole("concurrency", self.concurrency, 1)
        if self.rate is not None:
            check_number("rate", self.rate, above_zero=True, unit="orders a second")


def _check_exact(name: str, value: object) -> None:
    """It is an exact number, not below zero."""
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise TypeError(f"{name}: pass a Decimal or a whole number, not {type(value).__name__}")
    if not 0 <= Decimal(value) < Decimal("Infinity"):
        raise ValueError(f"{name}: expected a number from 0, not {value}")


async def plan(
    payments: PaymentsSession,
    orders: Batch | Iterable[PayoutOrder],
    *,
    batch_id: str | None = None,
    journal: Journal | None = None,
    validate: bool = False,
    skip_bad: bool = False,
    acknowledged: bool = False,
    settings: PlanSettings = PlanSettings(),  # noqa: B008 - frozen
    progress: Callable[[PlanProgress], object] | None = None,
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
        acknowledged: A person has looked at the concerns: hidden rows and columns of a workbook that would be paid, and
            what looks like the name of a bank in place of its code.
        settings: What the batch is compared with, its limits, and the speed of the run.
        progress: Called now and then.

    Raises:
        TypeError: The orders can be walked through only once, or an argument is a ``float``.
        ValueError: There is no such batch to compare with.
        BatchChanged: The file was changed since it was read.
        Rejected, NotSent, ServiceFault: The account or the products could not be read.
        JournalUnavailable: The journal could not be read.
    """
    check_session(payments)
    check_instance("settings", settings, PlanSettings, "PlanSettings(...)")
    source = _walkable(orders)
    account = await payments.accounts.get()
    compare, folder = settings.compare, settings.state_folder
    registered = None if folder is None else RegisteredOrders(folder, account_of(payments))
    prior = PriorOrders(payments, journal, batch_id, settings.recent, registered)
    await prior.begin()
    if isinstance(compare, str) and (journal is None or not await prior.has_batch(compare)):
        raise ValueError(f"compare: the journal holds no batch {compare}")
    catalogue = Catalogue(payments)
    # a file's reader has told repeated ids already, in constant memory
    ids: set[str] | None = None if isinstance(orders, Batch) else set()
    walk = _Walk(catalogue, account, prior, skip_bad=skip_bad, acknowledged=acknowledged, ids=ids, limits=settings)
    if isinstance(orders, Batch):
        walk.take_file(orders)
    clock = executor_of(payments).clock
    began = clock()
    await catalogue.read()
    wait = max(clock() - began, 0.001)  # one read stands for a payout
    kept = None if journal is None else (await journal.pace()).rate
    at_most = (settings.rate, kept, executor_of(payments).gate.rate)
    speed = min(one for one in (settings.concurrency / wait, *at_most) if one is not None)
    validations = Validations(payments, settings.concurrency) if validate else None
    tell = progress or (lambda _: None)
    count = len(source) if isinstance(source, Sized) else None
    with PayeeLedger() as ledger, closing(prior):
        async for some in _some_at_once(source):
            await walk.take(some, ledger, validations)
            tell(PlanProgress(step="orders", done=walk.number, total=count))
        if compare is not None:
            async for others in _orders_of(compare, journal):
                await asyncio.to_thread(ledger.add_other, others)
                tell(PlanProgress(step="other batch", done=ledger.other_count))
        async for entries in prior.paid():
            ledger.add_prior(entries)
            tell(PlanProgress(step="paid of late", done=ledger.prior_count))
        tell(PlanProgress(step="summed up", total=count))
        comparison = None
        if compare is not None:
            comparison = await asyncio.to_thread(ledger.compared, _name_of(compare), Decimal(settings.compare_change))
        return await walk.end(ledger, source, speed, comparison)


def orders_digest(orders: Iterable[PayoutOrder]) -> str:
    """The digest that a plan of exactly these orders has. It needs no service and no journal.

    >>> orders_digest([])[:8]
    'c80bc617'
    """
    digest = hashlib.sha256(_VERSION)
    for order in orders:
        digest.update(_digest_of(order))
    return digest.hexdigest()


def _digest_of(order: PayoutOrder) -> bytes:
    return body_digest(order.request_id, amount_text(order.amount), write_order(order))


def _name_of(compare: str | Batch | Iterable[PayoutOrder]) -> str:
    match compare:
        case str():
            return compare
        case Batch():
            return compare.path.name
        case _:
            return "other orders"


async def _orders_of(
    compare: str | Batch | Iterable[PayoutOrder], journal: Journal | None
) -> AsyncIterator[Sequence[PayoutOrder]]:
    """The payouts of a batch that is compared with, some at a time."""
    if not isinstance(compare, str):
        async for orders in _some_at_once(compare.orders if isinstance(compare, Batch) else compare):
            yield orders
        return
    assert journal is not None
    some: list[PayoutOrder] = []
    async for entry in journal.entries(compare):
        if isinstance(entry.order, PayoutOrder):
            some.append(entry.order)
        if len(some) == _AT_ONCE:
            yield some
            some = []
    yield some


class _Walk:
    """What was seen of a batch so far.

    Attributes:
        number: How many orders.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        account: Account,
        prior: PriorOrders,
        *,
        skip_bad: bool,
        acknowledged: bool,
        ids: set[str] | None,
        limits: PlanSettings,
    ) -> None:
        self._max_each = None if limits.max_each is None else Decimal(limits.max_each)
        self._max_total = None if limits.max_total is None else Decimal(limits.max_total)
        self._guesses: tuple[Guess, ...] = ()
        self._columns: tuple[FileColumn, ...] = ()
        self._catalogue = catalogue
        self._account = account
        self._prior = prior
        self._skip_bad = skip_bad
        self._acknowledged = acknowledged
        self._concerns = _Issues()
        self._file_concerns: tuple[Issue, ...] = ()
        self._problems, self._skipped, self._warnings = _Issues(), _Issues(), _Issues()
        self._tallies: defaultdict[tuple[str, str], list[Any]] = defaultdict(
            lambda: [0, Decimal(0)]
        )  # by kind and item
        self._open_total = Decimal(0)
        self._left_out = BitSet()
        self._digest = hashlib.sha256(_VERSION)
        self._currencies: set[str] = set()
        self._ids = ids
        self.number = self._recorded = self._open_count = self._rows_left_out = 0

    def take_file(self, batch: Batch) -> None:
        """Take what the reader of the file refused."""
        against = self._skipped if self._skip_bad else self._problems
        against.add_file(one for one in batch.problems if one.column != TOTAL)
        self._problems.add_file(one for one in batch.problems if one.column == TOTAL)
        self._guesses, self._columns = batch.guesses, batch.columns
        self._rows_left_out = batch.rows - len(batch.orders)
        self._file_concerns = batch.concerns

    async def take(
        self,
        orders: Sequence[PayoutOrder],
        ledger: PayeeLedger,
        validations: Validations | None,
    ) -> None:
        """Judge and count some orders."""
        entries = await self._prior.entries(orders)
        new = [order for order in orders if not self._prior.is_recorded(order, entries.get(order.request_id))]
        await self._catalogue.learn(new)
        issues = {order.request_id: self._issues(order, entries.get(order.request_id)) for order in new}
        for order in orders:  # it is in the batch, and nobody can take it out; but it need not be sent
            entry = entries.get(order.request_id)
            if order.request_id not in issues and entry is not None and entry.state is State.PLANNED:
                issues[order.request_id] = list(filter(None, [self._prior.doubt(order)]))
        if validations is not None:
            fit = [order for order in new if not _blocked(issues[order.request_id])]
            await validations.ask(fit)
            for order in fit:
                issues[order.request_id] += validations.issues(order)
        kept = []
        for order in orders:
            repeats = self._ids is not None and plain_id(order.request_id) in self._ids
            if self._is_kept(order, [_REPEATED] if repeats else issues.get(order.request_id, ())):
                kept.append(order)
        self._count(kept, entries)
        ledger.add(kept)

    def _issues(self, order: PayoutOrder, entry: Entry | None) -> list[OrderIssue]:
        """What speaks against a new order, or for a second look."""
        found = self._catalogue.issues(order)
        for issue in (bank_named(order), operator_fits(order), self._prior.issue(order, entry)):
            if issue is not None:
                found.append(issue)
        ours = self._account.currency
        named = order.currency
        if named and ours and named != ours and currency_key(named) != currency_key(ours):
            found.append(OrderIssue("currency", named, f"the account is kept in {ours}; leave these orders out"))
        return found

    def _is_kept(self, order: PayoutOrder, issues: Sequence[OrderIssue]) -> bool:
        """Note the issues of an order, and whether it is left out because of them."""
        number, self.number = self.number, self.number + 1
        leave_out = self._skip_bad and _blocked(issues)
        for issue in issues:
            against = self._skipped if leave_out else self._problems
            unblocked = self._concerns if issue.concerns else self._warnings
            (against if issue.blocks else unblocked).add(order.request_id, issue)
        if self._ids is not None:
            self._ids.add(plain_id(order.request_id))
        if leave_out:
            self._left_out.add(number)
        return not leave_out

    def _count(self, orders: Sequence[PayoutOrder], entries: Mapping[str, Entry]) -> None:
        """Count some orders that are not left out."""
        add, prior = _EXACT.add, self._prior
        for order in orders:
            entry, amount = entries.get(order.request_id), order.amount
            tally = self._tallies[order.kind, order.product_item_id]
            tally[0] += 1
            tally[1] = add(tally[1], amount)
            if entry is not None:
                self._recorded += prior.is_recorded(order, entry)
            if entry.state is State.PLANNED if entry is not None else not prior.has_left(order):
                self._open_count += 1
                self._open_total = add(self._open_total, amount)
            if order.currency:
                self._currencies.add(order.currency)
        self._digest.update(b"".join(map(_digest_of, orders)))

    async def end(
        self,
        ledger: PayeeLedger,
        source: Iterable[PayoutOrder],
        speed: float,
        comparison: Comparison | None,
    ) -> Plan:
        """The plan, after the last order.

        Args:
            speed: Orders a second.
        """
        kinds, items = (self._shares(place) for place in (0, 1))
        everything = sum(kinds.values(), Share())
        self._judge_batch(everything)
        duplicates = await asyncio.to_thread(ledger.duplicates)
        self._judge_repeats(duplicates, everything)
        for issue, payee_count, examples in await asyncio.to_thread(lambda: list(ledger.issues(self._max_each))):
            (self._problems if issue.blocks else self._warnings).add_payees(issue, payee_count, examples)
        file_concerns = self._file_concerns if self._recorded < everything.count else ()
        return Plan(
            count=everything.count,
            total=everything.total,
            by_kind=kinds,
            by_item=items,
            problems=self._problems.shown(),
            problem_count=self._problems.count,
            concerns=(*file_concerns, *self._concerns.shown(by_weight=True)),
            concern_count=len(file_concerns) + self._concerns.count,
            acknowledged=self._acknowledged,
            skipped=self._skipped.shown(),
            skipped_count=self._skipped.count,
            warnings=self._warnings.shown(by_weight=True),
            warning_count=self._warnings.count,
            duplicates=duplicates,
            left_out=self._left_out.count + (self._rows_left_out if self._skip_bad else 0),
            recorded=self._recorded,
            open_count=self._open_count,
            open_total=self._open_total,
            balance=self._account.balance,
            currency=self._account.currency or (self._currencies.pop() if len(self._currencies) == 1 else None),
            seconds=math.ceil(self._open_count / speed),
            digest=self._digest.hexdigest(),
            guesses=self._guesses,
            columns=self._columns,
            comparison=comparison,
            compared=tuple(self._prior.complete),
            orders=_PlannedOrders(source, self._left_out),
        )

    def _shares(self, place: int) -> dict[str, Share]:
        """The orders by kind (0) or by item (1)."""
        shares: defaultdict[str, Share] = defaultdict(Share)
        for key, (number, total) in sorted(self._tallies.items()):
            shares[key[place]] += Share(count=number, total=total)
        return dict(sorted(shares.items()))

    def _judge_repeats(self, duplicates: Duplicates, everything: Share) -> None:
        """Whether it is what another batch has paid just now: the same month again, under another name."""
        if self._recorded == everything.count:
            return  # nobody can take it back any more
        for forgotten in self._prior.forgotten:
            self._concerns.add_batch("journal", "", f"it has forgotten {forgotten}: {_RESTORED}")
        for group in duplicates.groups:
            is_much = group.same_amount and 2 * group.count >= everything.count
            if group.batch_id is None or not is_much or group.latest is None:
                continue
            ago = self._prior.seconds_since(group.latest)
            if ago <= SAME_AGAIN_DAYS * 86_400.0 or self._prior.is_called_after(group.batch_id):
                remedy = (
                    f"{group.count:,} of {everything.count:,} orders pay whom batch {group.batch_id} paid {_ago(ago)}, "
                    "and as much: is it the same once more, under another name? It would be paid twice"
                )
                self._concerns.add_batch("batch", "", remedy)

    def _judge_batch(self, everything: Share) -> None:
        """What speaks against the batch as a whole."""
        account, run = self._account, self._prior.run
        if not everything.count and not self._problems.count:  # else they say why
            self._problems.add_batch("batch", "", "there is nothing to send")
        if self._max_total is not None and everything.total > self._max_total:
            excess = everything.total - self._max_total
            self._problems.add_batch("batch", "", f"{excess:,f} above the {self._max_total:,f} allowed to all of it")
        for other in self._prior.others:
            where = other.path or "a place that is not known"
            self._concerns.add_batch("journal", where, _ANOTHER.format(other=other))
        if self._prior.listed is not None and self._prior.listed.problem is not None:
            self._warnings.add_batch("journal", "", _UNLISTED.format(problem=self._prior.listed.problem))
        if self._prior.knows_nothing:
            self._warnings.add_batch("journal", "", _NOTHING_KNOWN)
        if self._open_total > account.balance:
            lacking = f"{self._open_total - account.balance:,f} {account.currency or ''}".strip()
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


def _ago(seconds: float) -> str:
    hours = round(seconds / 3600)
    if hours < 1:
        return "within the last hour"
    return f"{hours} h ago" if hours < 48 else f"{round(hours / 24)} days ago"


class _Issues:
    """Issues as they come; those that are alike become one.

    Attributes:
        count: All of them, orders counted one by one.
    """

    def __init__(self) -> None:
        self.count = 0
        self._orders: dict[OrderIssue, tuple[tuple[str, ...], int]] = {}
        self._others: list[Issue] = []

    def add(self, request_id: str, issue: OrderIssue) -> None:
        """Something about one order."""
        self.count += 1
        examples, orders = self._orders.get(issue, ((), 0))
        if orders or len(self._orders) < _SHOWN:
            self._orders[issue] = examples if orders >= _EXAMPLES else (*examples, request_id), orders + 1

    def add_payees(self, issue: OrderIssue, count: int, examples: tuple[str, ...]) -> None:
        """Something about so many payees, with an order of some of them."""
        self.count += count
        self._orders[issue] = examples, count

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

    def shown(self, *, by_weight: bool = False) -> tuple[Issue, ...]:
        """All of them, or the first thousand: of the batch, then of rows, then of orders.

        Args:
            by_weight: What concerns few orders comes before what concerns many: it may be a mistake, and not a habit.
        """
        found = list(self._orders.items())
        if by_weight:
            found.sort(key=lambda one: one[1][1])
        about_orders = (
            Issue(
                field=issue.field,
                value=harmless(redact(issue.value)),
                remedy=redact(issue.remedy),
                request_id=examples[0],
                orders=orders,
                examples=examples,
            )
            for issue, (examples, orders) in found
        )
        return (*sorted(self._others, key=lambda one: one.row or 0), *about_orders)


@attrs.frozen(eq=False)
class _PlannedOrders(Iterable[PayoutOrder], AsyncIterable[PayoutOrder]):
    """The orders of a plan, walked through anew each time; what was left out stays out."""

    _orders: Iterable[PayoutOrder]
    _left_out: BitSet

    def found(self, request_ids: Collection[str]) -> Mapping[str, tuple[int, PayoutOrder]]:
        """Some orders with their rows, where they are of a file."""
        return self._orders.found(request_ids) if isinstance(self._orders, BatchOrders) else {}

    def __iter__(self) -> Iterator[PayoutOrder]:
        return (order for number, order in enumerate(self._orders) if number not in self._left_out)

    async def __aiter__(self) -> AsyncIterator[PayoutOrder]:
        numbers = counted_up()
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
