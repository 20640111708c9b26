"""What the service says of orders before they are sent: its list of products and items, and its validation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TypeAlias

import attrs

from payments_async._errors import AuthenticationFailed, PaymentsError, Rejected, UnreadableReply
from payments_async._fanout import fan_out
from payments_async._kinds import reference_of
from payments_async._masking import redact
from payments_async._models import Product, ProductItem, Validation
from payments_async._orders import PayoutOrder
from payments_async._session import PaymentsSession
from payments_async.bulk._problems import OrderIssue

__all__ = ["Catalogue", "Validations"]

_LONGEST_PATTERN = 200
_REMEMBERED = 100_000  # answers
_Question: TypeAlias = tuple[str, str, Decimal]
_SLOW = re.compile(r"\)\s*[*+{]|\\[1-9]|\(\?P?[=<!]")  # may take for ever on a text that nearly matches


@attrs.frozen(kw_only=True)
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

    def issues(self, order: PayoutOrder) -> Iterator[OrderIssue]:
        """What the catalogue says against an order."""
        item = order.product_item_id
        rule = self._known[item, order.product_id]
        yield from rule.issues
        if rule.price is not None and order.amount != rule.price:
            yield OrderIssue("amount", f"{order.amount:f}", f"{item} costs exactly {rule.price:f}; correct the amount")
        if rule.pattern is not None and not _resembles(rule.pattern, reference_of(order)):
            remedy = f"does not look as {item} says its customers' references do; check a few, it may be its mistake"
            yield OrderIssue("destination", "", remedy, blocks=False)

    async def _rule_of(self, item_id: str, product_id: str | None) -> _ItemRule:
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
        return _judged(items.get(item_id), item_id, owner, self._products[owner])

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


def _judged(item: ProductItem | None, item_id: str, product_id: str, product: Product) -> _ItemRule:
    if item is None:
        remedy = f"{product_id} has no such item; correct the id (see `payments-async products {product_id}`)"
        return _ItemRule(issues=(OrderIssue("product_item_id", item_id, remedy),))
    if item.is_active is False:
        remedy = "the service says that this item is not active; leave these orders out, or ask the service"
        return _ItemRule(issues=(OrderIssue("product_item_id", item_id, remedy),))
    price = item.amount if item.is_amount_fixed and item.amount else None
    return _ItemRule(price=price, pattern=_pattern(item.product_regex or product.product_regex))


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if not text or len(text) > _LONGEST_PATTERN or _SLOW.search(text):
        return None
    try:
        return re.compile(text)
    except re.error:
        return None


def _resembles(pattern: re.Pattern[str], reference: str) -> bool:
    """Whether the reference matches, with its plus or without: one published pattern refuses the plus."""
    return any(pattern.search(text) for text in (reference, reference.removeprefix("+")))


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
