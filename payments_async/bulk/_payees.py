"""Whom an order pays, as plans and reports speak of it: its kind, its reference, and a key to compare it by."""

from __future__ import annotations

from payments_async._orders import (
    AirtimeLine,
    BankAccount,
    CollectionOrder,
    InternetLine,
    MobileMoneyWallet,
    Order,
    UtilityAccount,
)
from payments_async._wire.written import kind_of

__all__ = ["item_of", "payee_key", "reference_of"]


def item_of(order: Order) -> str:
    """The item of the operator or provider."""
    return order.provider_item_id if isinstance(order, CollectionOrder) else order.product_item_id


def reference_of(order: Order) -> str:
    """The number of the wallet, account or line. Personal: mask it."""
    match order.payer if isinstance(order, CollectionOrder) else order.destination:
        case BankAccount(account_number=number) | UtilityAccount(customer_reference=number):
            return number
        case (
            MobileMoneyWallet(phone_number=number)
            | AirtimeLine(phone_number=number)
            | InternetLine(phone_number=number)
        ):
            return number


def payee_key(order: Order) -> str:
    """The same for orders that pay into the same wallet, account or line, however its number is punctuated.

    Salary and airtime for one telephone number are two destinations, and so is one number at two utilities.
    """
    kind, reference = kind_of(order), reference_of(order)
    match kind:
        case "bank_transfer":
            assert not isinstance(order, CollectionOrder)
            assert isinstance(order.destination, BankAccount)
            return f"{kind} {order.destination.bank_code} {reference}"
        case "utility":
            return f"{kind} {item_of(order)} {reference}"
        case _:
            return f"{kind} {''.join(filter(str.isdecimal, reference))}"
