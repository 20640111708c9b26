"""Bodies of orders: what an order looks like in the service's JSON (section "Transaction request")."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from payments_async._amounts import amount_text
from payments_async._dialect import Dialect
from payments_async._orders import (
    AirtimeLine,
    BankAccount,
    Beneficiary,
    CollectionOrder,
    Destination,
    InternetLine,
    MobileMoneyWallet,
    Order,
    PayoutOrder,
    UtilityAccount,
)

__all__ = ["collection_body", "json_amount", "payout_body", "private_texts"]


def payout_body(order: PayoutOrder, dialect: Dialect) -> dict[str, Any]:
    """The members of a payout (sections 2 to 6)."""
    members = _order_members(order, "DEBIT", dialect)
    product = {"productItemId": order.product_item_id}
    members["product"] = product if order.product_id is None else {"id": order.product_id} | product
    members["beneficiary"] = _beneficiary(order.beneficiary, _destination_data(order.destination, dialect), dialect)
    return members


def collection_body(order: CollectionOrder, dialect: Dialect) -> dict[str, Any]:
    """The members of a collection (section 7)."""
    members = _order_members(order, "CREDIT", dialect)
    members["provider"] = {"providerItemId": order.provider_item_id}
    data = {"phoneNumber": _phone(order.payer.phone_number, dialect)}
    members["beneficiary"] = _beneficiary(order.beneficiary, data, dialect)
    return members


def json_amount(amount: Decimal) -> msgspec.Raw:
    """The amount as a JSON number: all digits, its scale, no exponent."""
    return msgspec.Raw(amount_text(amount).encode())


def private_texts(order: Order) -> tuple[str, ...]:
    """The personal texts of an order, to be masked in words that come back."""
    place = order.destination if isinstance(order, PayoutOrder) else order.payer
    whereto = place.customer_reference if isinstance(place, UtilityAccount) else _number(place)
    who = order.beneficiary
    texts = (
        whereto,
        who.name,
        who.phone_number,
        who.email_address,
        who.id,
        order.account_number,
        order.message,
        order.metadata,
        *who.name.split(),  # words from outside may say only a part of it
    )
    return tuple(sorted(filter(None, texts), key=len, reverse=True))  # the longest first: it may hold a shorter one


def _number(place: MobileMoneyWallet | BankAccount | AirtimeLine | InternetLine) -> str:
    return place.account_number if isinstance(place, BankAccount) else place.phone_number


def _destination_data(destination: Destination, dialect: Dialect) -> dict[str, str]:
    match destination:
        case MobileMoneyWallet() | AirtimeLine() | InternetLine():
            return {"phoneNumber": _phone(destination.phone_number, dialect)}
        case BankAccount():
            codes = dict.fromkeys(dialect.bank_code_keys, destination.bank_code)
            return {"bankAccount": destination.account_number} | codes
        case UtilityAccount():
            data = {"customerReference": destination.customer_reference}
            return data | {"area": destination.area} if destination.area else data


def _order_members(order: Order, kind: str, dialect: Dialect) -> dict[str, Any]:
    null_too = dialect.empty_members == "null"
    members: dict[str, Any] = {"requestId": order.request_id, "amount": json_amount(order.amount)}
    if order.batch_id is not None or null_too:
        members["batchId"] = order.batch_id
    if order.account_number is not None:  # Spec: "described but absent from all sample requests"
        members["accountNumber"] = order.account_number
    members["type"] = kind
    if order.message is not None or null_too:
        members["message"] = order.message
    if order.metadata is not None or null_too:
        members["metadata"] = order.metadata
    return members


def _beneficiary(beneficiary: Beneficiary, data: dict[str, str], dialect: Dialect) -> dict[str, Any]:
    null_too = dialect.empty_members == "null"
    phone = beneficiary.phone_number
    members: dict[str, Any] = {} if beneficiary.id is None else {"id": beneficiary.id}
    members["name"] = beneficiary.name
    if beneficiary.email_address is not None or null_too:
        members["emailAddress"] = beneficiary.email_address
    if phone is not None or null_too:
        members["phoneNumber"] = phone and _phone(phone, dialect)
    members["data"] = data
    return members


def _phone(number: str, dialect: Dialect) -> str:
    if dialect.phone_format == "as_given":
        return number
    country = dialect.phone_country_code
    digits = "".join(filter(str.isdecimal, number))
    if number.strip().startswith("+"):
        full = digits
    elif digits.startswith("00"):
        full = digits[2:]
    elif digits.startswith("0"):
        full = country + digits[1:]
    else:
        full = digits if digits.startswith(country) and len(digits) > 9 else country + digits
    if dialect.phone_format == "e164":
        return f"+{full}"
    if dialect.phone_format == "digits" or not full.startswith(country):
        return full
    return f"0{full[len(country) :]}"
