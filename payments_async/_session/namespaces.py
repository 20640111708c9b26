"""The namespaces of a session, all but transactions: a line and a docstring for each endpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import aclosing
from decimal import Decimal

from payments_async._session.executor import Executor
from payments_async._session.limits import RetryPolicy
from payments_async._session.lists import Listing
from payments_async._values.checks import check_instance
from payments_async._values.errors import InvalidOrder, PaymentsError
from payments_async._wire import endpoints
from payments_async._wire.call import Call
from payments_async._wire.models import Acceptance, Account, Card, Page, Product, ProductItem, Validation
from payments_async._wire.orders import CollectionOrder, Order, PayoutOrder


class Payouts:
    """Money out: mobile money, bank transfer, airtime, internet, utilities."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def send(
        self, order: PayoutOrder, *, sent_before: bool = False, retry: RetryPolicy | None = None
    ) -> Acceptance:
        """Send one payout. Accepted is not paid: the final status comes as a notification.

        An order that this session has sent is not sent twice: who repeats it gets its first acceptance, or waits for
        the exchange that is under way and gets what that comes to. (When that one is cancelled, the outcome is
        unknown to all who wait, unless nothing had left: then one of them sends it.) What was rejected or not sent
        may be sent again. The last ``Limits.remembered`` accepted orders are remembered.

        Args:
            order: Its destination's class selects the endpoint.
            sent_before: The order may have been sent earlier, by any program: a refusal proves nothing then and is
                raised as ``OutcomeUnknown``. Without it, an order whose outcome this session does not know is not
                sent again. ``NotSent`` speaks of this try alone then. What this session knows to be accepted is
                not sent either way.
            retry: In place of the session's; ``RetryPolicy(attempts=1)`` makes exactly one try.

        Raises:
            NotSent: Surely not carried out; it is safe to send it again.
            OutcomeUnknown: It may have been carried out; look it up, never resend it.
            Rejected: The service said no (``AuthenticationFailed``: to our credentials or address).
            InvalidOrder: This session has sent another order under this request id. Also a ``ValueError``.
        """
        call = _sending(self._executor, order, PayoutOrder, sent_before, retry)
        return await self._executor.execute(call, retry=retry)

    async def send_many(
        self, orders: Iterable[PayoutOrder] | AsyncIterable[PayoutOrder], *, concurrency: int = 50
    ) -> AsyncGenerator[tuple[PayoutOrder, Acceptance | PaymentsError], None]:
        """Send many payouts and yield each order with its outcome, in the order they are done.

        One bad order never stops the others: an invalid order comes back with ``InvalidOrder``. Nothing is
        written down: for a batch that must survive a crash use ``payments_async.bulk.run_batch``. Memory stays
        bounded however many orders there are. Leaving the loop early sends no further order and waits for those under
        way; ``undelivered`` of the session holds every outcome that was not yielded, ``unsettled`` their request ids
        and those of orders whose outcome is not known.

        Args:
            orders: Taken only as they are sent.
            concurrency: Payouts under way at once; the session's ``Limits`` count too.

        Raises:
            RuntimeError: The session is not open, or closed meanwhile.
        """
        async with aclosing(self._executor.map(self.send, orders, concurrency=concurrency)) as results:
            async for order, result in results:
                yield order, _outcome(result)


class Collections:
    """Money in, on request, from a mobile money wallet."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def request(
        self, order: CollectionOrder, *, sent_before: bool = False, retry: RetryPolicy | None = None
    ) -> Acceptance:
        """Request one collection. Accepted is not collected: the payer may have to approve.

        It is requested only once in a session, as ``payouts.send`` tells.

        Args:
            order: Who pays, and how much.
            sent_before: As in ``payouts.send``.
            retry: As in ``payouts.send``.

        Raises:
            NotSent, OutcomeUnknown, Rejected, InvalidOrder: As ``payouts.send``.
        """
        call = _sending(self._executor, order, CollectionOrder, sent_before, retry)
        return await self._executor.execute(call, retry=retry)


class Products:
    """What can be bought and where money can be sent."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def get(self, product_id: str) -> Product:
        """One product.

        Raises:
            Rejected, ServiceFault: The read was refused (no such product), or failed for now.
        """
        return await self._executor.execute(endpoints.get_product(product_id, self._executor.dialect))

    async def page(self, *, number: int = 1, size: int = 50) -> Page[Product]:
        """One page of products; page numbers begin at 1."""
        return await self._executor.execute(
            endpoints.list_products(number=number, size=size, dialect=self._executor.dialect)
        )

    def iterate(self, *, size: int = 50) -> Listing[Product]:
        """All products, for ``async for``."""
        return Listing(lambda number: self.page(number=number, size=size), lambda product: product.product_id)

    def items(self, product_id: str, *, size: int = 50) -> Listing[ProductItem]:
        """All items of a product, for ``async for``. The path is a guess (``Dialect.product_items_path``)."""

        async def fetch(number: int) -> Page[ProductItem]:
            dialect = self._executor.dialect
            call = endpoints.list_product_items(product_id, number=number, size=size, dialect=dialect)
            return await self._executor.execute(call)

        return Listing(fetch, lambda item: item.product_item_id)

    async def validate(self, product_item_id: str, customer_reference: str, amount: Decimal | int | str) -> Validation:
        """Ask whether an order would be taken: the reference exists and the amount is in the provider's bounds.

        A "no" is an answer (``Validation.ok`` is false), not an error.

        Args:
            product_item_id: Item of the operator or provider.
            customer_reference: Account or telephone number of the customer.
            amount: Above zero, in units of the account's currency.

        Raises:
            Rejected, ServiceFault: The call was refused, or failed for now.
        """
        call = endpoints.validate(product_item_id, customer_reference, amount, self._executor.dialect)
        return await self._executor.execute(call)


class Accounts:
    """The client account."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def get(self) -> Account:
        """The account with its balance, exact, in units of its currency.

        Raises:
            Rejected, ServiceFault: The read was refused, or failed for now.
        """
        return await self._executor.execute(endpoints.get_account(self._executor.dialect))


class Cards:
    """Cards: read one, enable it, set its PIN anew."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def get(self, card_id: str, masked_number: str | None = None) -> Card:
        """One card. ``Dialect.cards_path`` selects the first or the v2 path.

        Args:
            card_id: Id of the card.
            masked_number: First and last four digits as the service masks them; the samples send it too.

        Raises:
            Rejected, ServiceFault: The read was refused, or failed for now.
        """
        return await self._executor.execute(endpoints.get_card(card_id, masked_number, self._executor.dialect))

    async def enable(self, masked_number: str) -> Card:
        """Enable a card to transact. The body is a guess (``Dialect.card_enable_member``).

        Raises:
            NotSent, OutcomeUnknown, Rejected: It is never repeated, as if it moved money.
        """
        return await self._executor.execute(endpoints.enable_card(masked_number, self._executor.dialect))

    async def reset_pin(self, masked_number: str, pin: str) -> Card:
        """Set a card's PIN anew. The body is a guess (``Dialect.card_pin_member``).

        Args:
            masked_number: Which card.
            pin: 4 to 12 digits; never shown anywhere.

        Raises:
            NotSent, OutcomeUnknown, Rejected: It is never repeated, as if it moved money.
        """
        return await self._executor.execute(endpoints.reset_card_pin(masked_number, pin, self._executor.dialect))


def _outcome(result: Acceptance | Exception) -> Acceptance | PaymentsError:
    match result:
        case Acceptance() | PaymentsError():
            return result
        case ValueError() | TypeError():
            error = InvalidOrder(f"not a valid order: {result}")
            error.__cause__ = result
            return error
        case _:  # a session that is not open: the next order would fare no better
            raise result


def _sending(
    executor: Executor, order: Order, kind: type[Order], sent_before: bool, retry: RetryPolicy | None
) -> Call[Acceptance]:
    """The sending of an order of this kind, once its arguments are what they should be."""
    if not isinstance(order, kind):
        raise TypeError(f"order: expected {kind.__name__}")
    if retry is not None:
        check_instance("retry", retry, RetryPolicy, "RetryPolicy(attempts=...)")
    return endpoints.send_order(order, executor.dialect, sent_before=sent_before, known_as=executor.known_as)
