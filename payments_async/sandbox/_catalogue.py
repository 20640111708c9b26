"""What the sandbox sells: products and their items."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

import attrs

Channel = Literal["mobilemoney", "banktransfers", "airtime", "internet", "utilities", "collections"]


@attrs.frozen(kw_only=True)
class Item:
    """One thing to order.

    Attributes:
        item_id: The product id, an underscore and an item code.
        amount: The price where it is fixed, else zero.
        minimum: The least amount that validates.
        maximum: The greatest amount that validates.
    """

    item_id: str
    product_id: str
    name: str
    category: str
    amount: Decimal = Decimal("0.00")
    is_amount_fixed: bool = False
    validity_period: str = ""
    minimum: Decimal = Decimal(500)
    maximum: Decimal = Decimal(5_000_000)
    sort_order: int = 1

    def refusal(self, amount: Decimal) -> str | None:
        """Say what is wrong with an amount, or None."""
        if self.is_amount_fixed:
            return None if amount == self.amount else f"amount must be {self.amount}"
        if not self.minimum <= amount <= self.maximum:
            return f"amount must be from {self.minimum} to {self.maximum}"
        return None


@attrs.frozen
class Product:
    """A group of items, ordered at one endpoint.

    Attributes:
        channel: The endpoint that takes its items.
        regex: What the service publishes as the pattern of customer references. Never checked: some are wrong.
        needs_area: Whether `beneficiary.data.area` is required.
        items: What there is to order; by default one item without a fixed price.
    """

    product_id: str
    name: str
    category: str
    channel: Channel
    regex: str | None = attrs.field(default=None, kw_only=True)
    needs_area: bool = attrs.field(default=False, kw_only=True)
    is_external: bool = attrs.field(default=True, kw_only=True)
    sort_order: int = attrs.field(default=1, kw_only=True)
    items: tuple[Item, ...] = attrs.field(kw_only=True)

    @items.default
    def _open_item(self) -> tuple[Item, ...]:
        item_id = f"{self.product_id}_{self.product_id}"
        return (Item(item_id=item_id, product_id=self.product_id, name=self.name, category=self.category),)


def _bundle(code: str, amount: str, order: int) -> Item:
    return Item(
        item_id=f"AIRTELDATABUNDLESUG_{code}",
        product_id="AIRTELDATABUNDLESUG",
        name=f"Data bundle {code}",
        category="DATA",
        amount=Decimal(amount),
        is_amount_fixed=True,
        validity_period="Weekly",
        sort_order=order,
    )


_BUNDLES = (_bundle("24510766", "2000.00", 1), _bundle("24510767", "20000.00", 2))
# Two of the patterns are the kind the service really publishes: one rejects +256..., one is junk.
_TABLE = (
    Product("MTNMOBILEMONEYPAYOUTUG", "Mobile money payout M", "MOBILEMONEY", "mobilemoney"),
    Product("AIRTELMOBILEMONEYPAYOUTUG", "Mobile money payout A", "MOBILEMONEY", "mobilemoney"),
    Product("MTNMOBILEMONEYUG", "Mobile money collection M", "MOBILEMONEY", "collections"),
    Product("AIRTELMONEYUG", "Mobile money collection A", "MOBILEMONEY", "collections"),
    Product("MTNAIRTIMEUG", "Airtime", "AIRTIME", "airtime", regex=r"^(0|256)7\d{8}$"),
    Product("AIRTELDATABUNDLESUG", "Data bundles", "DATA", "internet", regex="123", items=_BUNDLES),
    Product("NWSCWATERUG", "Water", "UTILITIES", "utilities", needs_area=True),
    Product("ELECTRICITYUG", "Electricity", "UTILITIES", "utilities"),
    Product("KCCATAXUG", "City tax", "TAX", "utilities", is_external=False),
    Product("BANKTRANSFERUG", "Bank transfer", "BANKS", "banktransfers"),
)

PRODUCTS: Mapping[str, Product] = {
    product.product_id: attrs.evolve(product, sort_order=number) for number, product in enumerate(_TABLE, 1)
}
ITEMS: Mapping[str, Item] = {item.item_id: item for product in PRODUCTS.values() for item in product.items}
