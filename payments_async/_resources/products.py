"""Products, their items, and validation (sections 10 and 11)."""

from __future__ import annotations

from decimal import Decimal

from payments_async._executor import Executor
from payments_async._listing import Listing
from payments_async._models import Page, Product, ProductItem, Validation
from payments_async._wire import endpoints

__all__ = ["Products"]


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
