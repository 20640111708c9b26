"""Whom an order pays, as plans and reports speak of it: its reference, a key to compare it by, a bank that is named."""

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
from payments_async.bulk._concerns import Fault

__all__ = ["bank_named", "item_of", "payee_key", "reference_of"]

_BANK_NAMED = "looks like the name of a bank; the service wants the bank's code, which its products tell: check it"
_LONGEST_WORD = 5  # capital letters that may be a code
_SWIFT = (8, 11)  # letters and digits of a bank's code between banks


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


def bank_named(order: Order) -> Fault | None:
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
        return Fault("bank_code", code, _BANK_NAMED, blocks=False, concerns=is_name)
    return None


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
