"""The checks of a plan: the catalogue and its validation, what the journal holds, and whom the service has listed."""

from __future__ import annotations

import asyncio
import re
import time
from calendar import month_abbr, month_name
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

import attrs

from payments_async._session.lists import Reader
from payments_async._session.session import PaymentsSession, executor_of
from payments_async._session.statuses import read_statuses
from payments_async._values.errors import AuthenticationFailed, PaymentsError, Rejected, UnreadableReply
from payments_async._values.fanout import fan_out
from payments_async._values.frozen import frozen
from payments_async._values.masking import redact
from payments_async._values.request_ids import plain_id
from payments_async._wire.kinds import item_of, reference_of
from payments_async._wire.models import Product, ProductItem, Transaction, TransactionStatus, Validation
from payments_async._wire.orders import BankAccount, CollectionOrder, Order, PayoutOrder
from payments_async.bulk._file._operators import WORKS_BY_NUMBER, operator_named_by, operator_of
from payments_async.bulk._problems import OrderIssue
from payments_async.bulk._retry_ids import Earlier, earlier_orders, paid_before, tries_before
from payments_async.journal import Journal
from payments_async.journal._records import ArchivedOrder, Entry, Holder, Run
from payments_async.journal._registered import RegisteredOrders
from payments_async.journal._states import CONFIRMED, UNPAID
from payments_async.outbox._scans import DateRange, account_of

_LONGEST_PATTERN = 200
_SLOW = re.compile(r"\)\s*[*+{]|\\[1-9]|\(\?P?[=<!]")  # may take for ever on a text that nearly matches
_REMEMBERED = 100_000  # answers
_Question: TypeAlias = tuple[str, str, Decimal]
_BANK_NAMED = "looks like the name of a bank; the service wants the bank's code, which its products tell: check it"
_LONGEST_WORD = 5  # capital letters that may be a code
SAME_AGAIN_DAYS = 6  # within which nobody means to pay the same to the same; wages are paid by the week
_MONTHS = frozenset(name.lower() for name in (*month_name, *month_abbr, "Sept") if name)
_WORD = re.compile(r"[^\W_]+")
_SAME_MONTH_DAYS = 45  # for which a batch is compared with another one of the same month
_SWIFT = (8, 11)  # letters and digits of a bank's code between banks

_NO_MONEY = (TransactionStatus.FAILED, TransactionStatus.REVERSED)
_ENDED_UNPAID = CONFIRMED.intersection(UNPAID)  # the service took it; a refusal was its own answer
_DAY = timedelta(days=1)
_LONG = 7 * 86_400.0  # seconds between sending and an end, at most in most cases

Before = Entry | ArchivedOrder

_UNPAID = (TransactionStatus.FAILED, TransactionStatus.REVERSED)
_DIGITS = 9  # at the end of a telephone number, which it has in every form
_KEPT = 3  # transactions of one payee and amount


@frozen(kw_only=True)
class _ItemRule:
    """What holds for every order of one item.

    Attributes:
        issues: Against all of them.
        price: The amount, where it is fixed.
        pattern: What references are said to look like.
    """

    issues: tuple[OrderIssue, ...] = ()
    price: Decimal | None = None
    pattern: re.Pattern[str] | None = None


class Catalogue:
    """What the service sells. ``read`` first; ``learn`` before ``issues``."""

    def __init__(self, payments: PaymentsSession) -> None:
        self._payments = payments
        self._products: dict[str, Product] = {}
        self._complete = False
        self._items: dict[str, dict[str, ProductItem] | None] = {}
        self._known: dict[tuple[str, str | None], _ItemRule] = {}
        self.note: str | None = None

    async def read(self) -> None:
        """Read the products.

        Raises:
            AuthenticationFailed, NotSent, ServiceFault: The read was refused for good, or failed for now.
        """
        try:
            listing = self._payments.products.iterate()
            self._products = {product.product_id: product async for product in listing}
        except AuthenticationFailed:
            raise
        except (Rejected, UnreadableReply) as error:
            self.note = f"the products could not be read, so none was checked: {error.message}"
            return
        self._complete = bool(self._products) and listing.incomplete is None
        if not self._complete:
            self.note = "the list of products is not complete, so an unknown product is only a warning"

    async def learn(self, orders: Iterable[PayoutOrder]) -> None:
        """Read what is still missing about the items that these orders name."""
        for order in orders:
            key = order.product_item_id, order.product_id
            if key not in self._known:
                self._known[key] = await self._rule_of(*key)

    def issues(self, order: PayoutOrder) -> list[OrderIssue]:
        """What the catalogue says against an order."""
        item = order.product_item_id
        rule = self._known[item, order.product_id]
        found = list(rule.issues)
        if rule.price is not None and order.amount != rule.price:
            remedy = f"{item} costs exactly {rule.price:f}; correct the amount"
            found.append(OrderIssue("amount", f"{order.amount:f}", remedy))
        if rule.pattern is not None and not _resembles(rule.pattern, reference_of(order)):
            remedy = f"does not look as {item} says its customers' references do; check a few, it may be its mistake"
            found.append(OrderIssue("destination", "", remedy, blocks=False))
        return found

    async def _rule_of(self, item_id: str, product_id: str | None) -> _ItemRule:
        """What the lists of products and items say of all orders of one item."""
        if not self._products:
            return _ItemRule()
        # Spec: "Identifier; composed of the product id, an underscore and an item code."
        owners = [one for one in self._products if item_id.startswith(f"{one}_")]
        owner = product_id or max(owners, key=len, default=None)
        if owner is None or owner not in self._products:
            field, value = ("product_id", product_id) if product_id else ("product_item_id", item_id)
            remedy = "the service lists no such product; correct the id (see `payments-async products`)"
            return _ItemRule(issues=(OrderIssue(field, value, remedy, blocks=self._complete),))
        if self._products[owner].is_active is False:
            remedy = "the service says that this product is not active; leave these orders out, or ask the service"
            return _ItemRule(issues=(OrderIssue("product_id", owner, remedy),))
        items = await self._items_of(owner)
        if items is None:
            remedy = "the items of this product could not be read, so they were not checked"
            return _ItemRule(issues=(OrderIssue("product_id", owner, remedy, blocks=False),))
        item = items.get(item_id)
        if item is None:
            remedy = f"{owner} has no such item; correct the id (see `payments-async products {owner}`)"
            return _ItemRule(issues=(OrderIssue("product_item_id", item_id, remedy),))
        if item.is_active is False:
            remedy = "the service says that this item is not active; leave these orders out, or ask the service"
            return _ItemRule(issues=(OrderIssue("product_item_id", item_id, remedy),))
        price = item.amount if item.is_amount_fixed and item.amount else None
        return _ItemRule(price=price, pattern=_pattern(item.product_regex or self._products[owner].product_regex))

    async def _items_of(self, product_id: str) -> dict[str, ProductItem] | None:
        if product_id not in self._items:
            listing = self._payments.products.items(product_id)
            try:
                found = {item.product_item_id: item async for item in listing}
            except AuthenticationFailed:
                raise
            except (Rejected, UnreadableReply):
                found = {}  # the path of this call is a guess, see Dialect.product_items_path
            self._items[product_id] = found if found and listing.incomplete is None else None
        return self._items[product_id]


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if not text or len(text) > _LONGEST_PATTERN or _SLOW.search(text):
        return None
    try:
        return re.compile(text)
    except re.error:
        return None


def _resembles(pattern: re.Pattern[str], reference: str) -> bool:
    """Whether the reference matches, with its plus or without: one published pattern refuses the plus."""
    return bool(pattern.search(reference) or pattern.search(reference.removeprefix("+")))


class Validations:
    """The service's validation of orders, asked once for each different item, reference and amount."""

    def __init__(self, payments: PaymentsSession, concurrency: int) -> None:
        self._payments = payments
        self._concurrency = concurrency
        self._answers: dict[_Question, OrderIssue | None] = {}

    async def ask(self, orders: Iterable[PayoutOrder]) -> None:
        """Ask about the orders nobody has asked about.

        Raises:
            AuthenticationFailed: Nothing will be answered.
        """
        questions = {_question(order): order for order in orders}
        if len(self._answers) + len(questions) > _REMEMBERED:
            self._answers.clear()
        new = [order for question, order in questions.items() if question not in self._answers]
        async for order, answer in fan_out(self._validate, new, self._concurrency):
            if isinstance(answer, AuthenticationFailed):
                raise answer
            if isinstance(answer, Exception) and not isinstance(answer, PaymentsError):
                raise answer
            self._answers[_question(order)] = _issue(order, answer)

    def issues(self, order: PayoutOrder) -> Iterator[OrderIssue]:
        """What the service said against an order."""
        if issue := self._answers[_question(order)]:
            yield issue

    async def _validate(self, order: PayoutOrder) -> Validation:
        return await self._payments.products.validate(*_question(order))


def _question(order: PayoutOrder) -> _Question:
    return order.product_item_id, reference_of(order), order.amount


def _issue(order: PayoutOrder, answer: Validation | Exception) -> OrderIssue | None:
    match answer:
        case Validation(ok=True):
            return None
        case Validation(message=message):
            person = order.beneficiary
            words = redact(message or "no reason was given", (reference_of(order), person.name, *person.name.split()))
            return OrderIssue(
                "destination", "", f"the service would refuse it: {words}; correct the order or leave it out"
            )
        case _:
            return OrderIssue("destination", "", "the service could not say whether it would take it", blocks=False)


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


def operator_fits(order: Order) -> OrderIssue | None:
    """What is to be said of an order through another operator than its number was given to. People keep numbers."""
    if order.kind not in WORKS_BY_NUMBER:
        return None
    item = item_of(order)
    if (named := operator_named_by(item)) is None:
        return None
    if (own := operator_of(reference_of(order))) is None or own == named:
        return None
    return OrderIssue(
        "product_item_id",
        item,
        f"an item of {named}, and the number was given out by {own}; correct one of them, unless the number was moved",
        blocks=False,
        concerns=True,
    )


@attrs.define(eq=False, repr=False)
class PriorOrders:
    """The journal as the plan of one batch sees it. ``begin`` first.

    Attributes:
        run: The batch itself, when the journal has it.
        forgotten: Batches that the journal has lost, since it was restored.
        complete: The other batches of which it has all orders.
        others: Of a journal that knows nothing, the latest batches of the account's others on this machine.
    """

    _payments: PaymentsSession
    _journal: Journal | None
    _batch_id: str | None
    _recent: float
    _registered: RegisteredOrders | None = None
    _is_empty: bool = attrs.field(init=False, default=True)
    run: Run | None = attrs.field(init=False, default=None)
    forgotten: Sequence[str] = attrs.field(init=False, default=())
    complete: Sequence[str] = attrs.field(init=False, default=())
    others: Sequence[Holder] = attrs.field(init=False, default=())
    _namesakes: Sequence[float] = attrs.field(init=False, default=())  # when batches of the same month began
    listed: ListedPayouts | None = attrs.field(init=False, default=None)
    _gone: Set[str] = attrs.field(init=False, default=frozenset())
    _earlier: Earlier = attrs.field(init=False, factory=dict)  # what some of them try again
    _shown: Mapping[str, TransactionStatus] = attrs.field(init=False, factory=dict)  # of these, by the service
    _elsewhere: Mapping[str, Holder] = attrs.field(init=False, factory=dict)

    async def begin(self) -> None:
        """Find out what there is."""
        runs = await self._journal.runs() if self._journal is not None else ()
        self._is_empty = not any(run.total for run in runs)
        self.run = next((run for run in runs if run.batch_id == self._batch_id), None)
        others = [run for run in runs if not run.is_outbox and run is not self.run]
        self.complete = [run.batch_id for run in others if run.ready]
        self._namesakes = [run.look_since for run in others if self.is_called_after(run.batch_id)]
        self.forgotten = await self._journal.forgotten() if self._journal is not None else ()
        journals = await asyncio.to_thread(self._journals)
        journal = self._journal
        if self._is_empty and (journal is None or not journal.second_journal):
            own = None if journal is None else journal.journal_id
            self.others = [holder for holder in journals if holder.journal != own]  # its outbox may hold nothing yet
        if self._is_empty or len(journals) > 1:  # what else the account has paid is not known here
            self.listed = ListedPayouts(SAME_AGAIN_DAYS)
            await self.listed.read(self._payments, self._journal, self._clock())

    def _journals(self) -> Sequence[Holder]:
        """The latest batch of each journal of the account that this machine knows."""
        if self._registered is not None:
            return self._registered.journals()
        folder = None if self._journal is None else self._journal.remembered_in
        if folder is None:
            return ()
        with closing(RegisteredOrders(folder, account_of(self._payments))) as registered:
            return registered.journals()

    def _clock(self) -> float:
        """Unix seconds by the clock that the journal's moments are of: this machine's may be days ahead of it."""
        return time.time() if self._journal is None else self._journal.now()

    def seconds_since(self, moment: float) -> float:
        """How long ago that was, in Unix seconds."""
        return self._clock() - moment

    def is_called_after(self, batch_id: str) -> bool:
        """Whether one of the two names is the other with words more, of the same month: ``nov-2026-corrected``."""
        own, other = (set(_WORD.findall(name.casefold())) for name in (self._batch_id or "", batch_id))
        dates = {word for word in own | other if word in _MONTHS or word.isdigit()}
        return bool(dates) and dates <= own & other and (own <= other or other <= own)

    @property
    def knows_nothing(self) -> bool:
        """Whether there is a journal, and nothing in it."""
        return self._journal is not None and self._is_empty

    async def has_batch(self, batch_id: str) -> bool:
        """Whether the journal holds a batch of that name."""
        return self._journal is not None and batch_id in [run.batch_id for run in await self._journal.runs()]

    async def entries(self, orders: Sequence[PayoutOrder]) -> Mapping[str, Entry]:
        """What the journal holds under these request ids."""
        request_ids = [order.request_id for order in orders]
        entries: Mapping[str, Entry] = {}
        known: Mapping[str, Entry | ArchivedOrder] = {}
        if self._journal is not None and not self._is_empty:
            known = await self._journal.orders_of(request_ids)
            entries = {one: order for one, order in known.items() if isinstance(order, Entry)}
            self._earlier = await earlier_orders(self._journal, request_ids, entries)
            self._shown = await shown_statuses(self._payments, self._earlier.values())
        self._gone = known.keys() - entries.keys()
        if self._registered is not None:
            unknown = [one for one in request_ids if one not in known]
            self._elsewhere = await asyncio.to_thread(self._registered.holders, unknown)
        return entries

    def close(self) -> None:
        """Close what was opened for it."""
        if self._registered is not None:
            self._registered.close()

    def has_left(self, order: PayoutOrder) -> bool:
        """Whether one of the orders that were asked for last has ended long ago, and is in an archive."""
        return order.request_id in self._gone

    def is_recorded(self, order: PayoutOrder, entry: Entry | None) -> bool:
        """Whether this very order is in this very batch already, which is complete.

        Of a load that broke off nothing can have been sent: what it left behind is judged like what is new.
        """
        is_begun = self.run is not None and self.run.ready
        return is_begun and self._is_same(order, entry)

    def _is_same(self, order: PayoutOrder, entry: Entry | None) -> bool:
        return entry is not None and entry.batch_id == self._batch_id and entry.order == order

    def issue(self, order: PayoutOrder, entry: Entry | None) -> OrderIssue | None:
        """Why the journal would refuse an order that is not recorded, or who is paid as much by another journal."""
        if self.has_left(order):
            return OrderIssue("request_id", "", "it ended long ago and is in an archive: it is not sent again")
        if (holder := self._elsewhere.get(order.request_id)) is not None:
            remedy = (
                f"it may have been sent already: the journal {holder.path or 'that was lost'} holds it in batch "
                f"{holder.batch_id}; go on with that one, or leave the order out"
            )
            return OrderIssue("request_id", "", remedy)
        if entry is None and self.run is not None and self.run.ready:
            remedy = (
                f"batch {self.run.batch_id} was begun without this order. Where it is a row of that batch that was "
                "changed since, it may be paid as it was: put back what stood there; only if it is one more payment, "
                "put it into a batch of its own"
            )
            return OrderIssue("request_id", "", remedy)
        if entry is None or self._is_same(order, entry):
            again = self._repeats(order, "leave the order out, or it may be paid twice")
            return again or (self.listed.issue(order) if self.listed is not None else None)
        if entry.request_id != order.request_id:
            remedy = (
                f"the journal holds {entry.request_id} in batch {entry.batch_id}, {entry.state}, and small and capital "
                "letters make no difference, for the service may not tell them apart; leave the order out, or give it "
                "another id"
            )
            return OrderIssue("request_id", order.request_id, remedy)
        if entry.batch_id != self._batch_id:
            remedy = f"the journal holds this id in batch {entry.batch_id}, {entry.state}; leave the order out"
        elif entry.amount != order.amount:
            remedy = f"this batch holds it with the amount {entry.amount:f}; restore it, or give the order a new id"
        else:
            remedy = "this batch holds it with other details; restore them, or give the order a new id"
        return OrderIssue("request_id", "", remedy)

    def doubt(self, order: PayoutOrder) -> OrderIssue | None:
        """What a person has to know of an order that is recorded, before it is sent."""
        again = self._repeats(order, "go on with the batch only if that was not paid, or it is paid twice")
        return None if again is None else again._replace(blocks=False, concerns=True)

    def _repeats(self, order: PayoutOrder, what: str) -> OrderIssue | None:
        """Why an order must not be tried again under another id: the one before may have been paid after all."""
        if not self._earlier:
            return None
        before = paid_before(order.request_id, self._earlier)
        if before is not None:
            earlier, stands = before
            remedy = f"it tries {earlier} again, which is {stands}; {what}"
            return OrderIssue("request_id", order.request_id, remedy)
        tries = tries_before(order.request_id, self._earlier)
        issues = [issue for one in tries if (issue := issue_of(one, self._shown.get(one.request_id)))]
        return max(issues, key=lambda issue: issue.blocks, default=None)  # a doubt about one hides no proof of another

    async def paid(self) -> AsyncIterator[Iterable[Entry]]:
        """Payouts of other batches that were paid of late, or may be paid yet, some hundreds at a time."""
        if self._journal is None or self._is_empty:
            return
        now = self._clock()
        since = min([now - self._recent, *(max(one, now - _SAME_MONTH_DAYS * 86_400.0) for one in self._namesakes)])
        async for entries in self._journal.paid_since(since, but=self._batch_id):
            yield (entry for entry in entries if not isinstance(entry.order, CollectionOrder))


def issue_of(before: Before, shown: TransactionStatus | None) -> OrderIssue | None:
    """What the service's lists have against trying an order again that ended unpaid.

    Args:
        before: The order, as the journal has it.
        shown: The status that the lists show of it, where they are believed.
    """
    again = f"it tries {before.request_id} again, which is"
    if shown is not None and shown not in _NO_MONEY:
        remedy = f"{again} {before.state} here and {shown} in the service's lists; leave the order out, and ask"
        return OrderIssue("request_id", "", remedy)
    if before.state in _ENDED_UNPAID and shown is None:
        remedy = f"{again} {before.state} as was told; the service's lists do not show that: ask it first"
        return OrderIssue("request_id", "", remedy, blocks=False, concerns=True)
    return None


def _sent_at(before: Before) -> float:
    """When it was sent, in Unix seconds; of what is in an archive alone it is known when it ended."""
    sent = before.permitted_at if isinstance(before, Entry) else None
    return before.updated_at - _LONG if sent is None else sent


async def shown_statuses(payments: PaymentsSession, orders: Iterable[Before | None]) -> Mapping[str, TransactionStatus]:
    """What the service's lists show, believed or not at all, of orders that ended unpaid: by request id.

    A notification that nobody confirmed may have told of that end, and it may have been forged.
    """
    ended = [one for one in orders if one is not None and one.state in _ENDED_UNPAID and one.transaction_id]
    if not ended:
        return {}
    executor = executor_of(payments)
    zone = executor.dialect.timezone
    first = datetime.fromtimestamp(min(map(_sent_at, ended)), UTC) - _DAY
    last = datetime.fromtimestamp(max(one.updated_at for one in ended), UTC) + _DAY
    reader = Reader(payments.transactions.page, clock=executor.clock, sleep=executor.sleep)
    wanted = {one.transaction_id.lower(): one.request_id for one in ended if one.transaction_id}
    try:
        statuses = await read_statuses(reader, first.astimezone(zone).date(), last.astimezone(zone).date(), wanted)
    except PaymentsError:
        return {}  # then nothing is shown, and somebody has to look
    found: dict[str, TransactionStatus] = {}
    for table in (statuses.found, statuses.under_way):
        found |= {wanted[id_]: status for id_, status in table.find(wanted).items()}
    return found


@attrs.define(eq=False, repr=False)
class ListedPayouts:
    """Payouts that the service's list of some days shows, and that the journal does not hold.

    Attributes:
        days: So many, until today.
        problem: Why a payee that is missing may have been paid all the same, or ``None``.
    """

    days: int
    problem: str | None = attrs.field(init=False, default=None)
    _request_ids: dict[int, list[str]] = attrs.field(init=False, factory=dict)  # by payee and amount

    async def read(self, payments: PaymentsSession, journal: Journal | None, now: float) -> None:
        """Read the list to its end.

        Raises:
            AuthenticationFailed: The service refused our credentials.
        """
        executor = executor_of(payments)
        reader = Reader(payments.transactions.page, clock=executor.clock, sleep=executor.sleep)
        first = now - timedelta(days=self.days).total_seconds()
        window = DateRange.to_now(first, now, payments.dialect.timezone)
        reading = reader.read(window.since, window.until)
        async for records in reading.pages():
            ids = [record.request_id for record in records if record.request_id is not None]
            known = {} if journal is None else await journal.entries_of(ids)
            for record in records:
                if record.request_id not in known:
                    self._take(record)
        self.problem = reading.problem

    def _take(self, record: Transaction) -> None:
        """Take down a payout, under each number that its record names."""
        payee, kind = record.beneficiary, (record.transaction_type or "").upper()
        if payee is None or record.amount is None or record.status in _UNPAID or kind.startswith("COLLECT"):
            return
        for number in {_plain(text) for text in (payee.customer_reference, payee.phone) if text}:
            found = self._request_ids.setdefault(hash((number, record.amount.copy_abs())), [])
            if len(found) < _KEPT:
                found.append(record.request_id or record.transaction_id)

    def issue(self, order: PayoutOrder) -> OrderIssue | None:
        """What a person has to look at before an order is sent: somebody has paid as much to the same payee."""
        if not self._request_ids:
            return None
        listed = self._request_ids.get(hash((_plain(reference_of(order)), order.amount)), ())
        other = next((one for one in listed if plain_id(one) != plain_id(order.request_id)), None)
        if other is None:
            return None
        remedy = (
            f"the service's list shows a payout of the same amount to the same payee within the last {self.days} days, "
            "and this journal does not hold it: is it the same payment under another id? It would be paid twice"
        )
        return OrderIssue("request_id", other, remedy, blocks=False, concerns=True)


def _plain(number: str) -> str:
    """The end of a number, however it is punctuated."""
    return "".join(filter(str.isalnum, number)).casefold()[-_DIGITS:]
