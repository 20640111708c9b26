"""Orders: an amount is exact, and a destination is one of those that exist."""

from decimal import Decimal
from typing import assert_type

from payments_async import (
    BankAccount,
    Beneficiary,
    CollectionOrder,
    Destination,
    MobileMoneyWallet,
    Order,
    PayoutOrder,
    request_id_for,
)

PAYEE = Beneficiary(name="Grace Akello")
WALLET = MobileMoneyWallet("+256772000017")


def payout(amount: Decimal | int | str, destination: Destination = WALLET) -> PayoutOrder:
    """What may come is what the order keeps exactly."""
    order = PayoutOrder(
        request_id="r-1", amount=amount, destination=destination, product_item_id="item", beneficiary=PAYEE
    )
    assert_type(order.amount, Decimal)
    return order


def amounts(rate: float) -> list[Order]:
    """A float is not exact, and nothing is no amount."""
    return [
        payout(Decimal("1500.50")),
        payout(1500),
        payout("1500.50"),
        payout(1.5),  # E: a float
        payout(rate * 3),  # E: a float that was computed
        payout(None),  # E: nothing
        PayoutOrder(
            request_id="r-1",
            amount=1.5,  # E: a float
            destination=WALLET,
            product_item_id="item",
            beneficiary=PAYEE,
        ),
        PayoutOrder(
            request_id="r-1",
            amount=None,  # E: nothing
            destination=WALLET,
            product_item_id="item",
            beneficiary=PAYEE,
        ),
        CollectionOrder(
            request_id="r-1",
            amount=1.5,  # E: a float
            payer=WALLET,
            provider_item_id="item",
            beneficiary=PAYEE,
        ),
    ]


def others() -> None:
    """Every other field is of its type, by keyword, and an order is never changed."""
    order = payout(1)
    order.amount = Decimal(2)  # E: an order is frozen
    payout(1, BankAccount("0012", bank_code="030147"))
    payout(1, "+256772000017")  # E: a text is no destination
    PayoutOrder("r-1", 1, WALLET, "item", PAYEE)  # E: by keyword
    PayoutOrder(amount=1, destination=WALLET, product_item_id="item", beneficiary=PAYEE)  # E: no request id
    CollectionOrder(
        request_id="r-1",
        amount=1,
        payer=BankAccount("0012", bank_code="030147"),  # E: a bank account is not collected from
        provider_item_id="item",
        beneficiary=PAYEE,
    )
    assert_type(request_id_for("payroll", "2026-11", 17), str)
    request_id_for("payroll", 1.5)  # E: a float has no stable text
