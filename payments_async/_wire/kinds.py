"""The kinds of orders: one table, with a row for each, of what the service and a batch file want to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from payments_async._values.frozen import frozen
from payments_async._wire.orders import (
    AirtimeLine,
    BankAccount,
    CollectionOrder,
    Destination,
    InternetLine,
    MobileMoneyWallet,
    Order,
    UtilityAccount,
    is_national_water,
)


@frozen(kw_only=True)
class Kind:
    """One kind of order. The fields of its destination are columns of a batch file, by the same names.

    Attributes:
        name: What batch files, tables and the journal call it: ``kind`` of the order.
        destination: Class of where the money goes; of a collection, where it comes from.
        path: Path of its endpoint, without the dialect's prefix; ``None`` for ``Dialect.internet_path``.
        members: For each field of the destination its member in ``beneficiary.data``, in the order they are sent. How
            telephone numbers and bank codes are spelled is the dialect's.
        reference: Field of the destination that says who is paid, such as the number of the account. Personal.
        unique_within: What the reference is unique within, where that is not the whole world: a field of the
            destination, or ``"product_item_id"``.
        area_needed_for: Tells by the ids of product and item whether the destination needs an ``area``.
        words: What people write for it in a batch file beside its name, with commas between.
    """

    name: str
    destination: type[Destination]
    path: str | None
    members: Mapping[str, str]
    reference: str
    unique_within: str | None = None
    area_needed_for: Callable[..., bool] | None = None
    words: str = ""

    @property
    def optional(self) -> frozenset[str]:
        """The fields of the destination that may be left out."""
        fields = attrs.fields(self.destination)
        return frozenset(field.name for field in fields if field.default is not attrs.NOTHING)


_ROWS = (
    Kind(
        name=MobileMoneyWallet.kind,
        destination=MobileMoneyWallet,
        path="/transactions/payouts/mobilemoney",
        members={"phone_number": "phoneNumber"},
        reference="phone_number",
        words="momo, mm, mobile wallet, wallet, mobile money payout, mobile money transfer, mtn mobile money, "
        "mtn momo, airtel money, airtel mobile money",
    ),
    Kind(
        name=BankAccount.kind,
        destination=BankAccount,
        path="/transactions/payouts/banktransfers",
        members={"account_number": "bankAccount", "bank_code": "bankCode"},
        reference="account_number",
        unique_within="bank_code",
        words="bank, bank account, bank payment, bank payout, eft, rtgs",
    ),
    Kind(
        name=AirtimeLine.kind,
        destination=AirtimeLine,
        path="/transactions/payouts/airtime",
        members={"phone_number": "phoneNumber"},
        reference="phone_number",
        words="air time, top up, airtime top up",
    ),
    Kind(
        name=InternetLine.kind,
        destination=InternetLine,
        path=None,  # the heading and the sample of the specification disagree
        members={"phone_number": "phoneNumber"},
        reference="phone_number",
        words="data, data bundle, data bundles, mobile data, internet bundle, internet data, bundle, bundles",
    ),
    Kind(
        name=UtilityAccount.kind,
        destination=UtilityAccount,
        path="/transactions/payouts/utilities",
        members={"customer_reference": "customerReference", "area": "area"},
        reference="customer_reference",
        unique_within="product_item_id",
        area_needed_for=is_national_water,
        words="utilities, bill, bills, bill payment, utility bill, utility payment, water, water bill, "
        "electricity, power",
    ),
    Kind(
        name=CollectionOrder.kind,
        destination=MobileMoneyWallet,
        path="/transactions/collections/mobilemoney",
        members={"phone_number": "phoneNumber"},
        reference="phone_number",
    ),
)
KINDS: Mapping[str, Kind] = {row.name: row for row in _ROWS}
PAYOUT_KINDS: Mapping[str, Kind] = {name: row for name, row in KINDS.items() if name != CollectionOrder.kind}


def destination_of(order: Order) -> Destination:
    """The wallet, account or line that the money of an order goes to, or of a collection comes from."""
    return order.payer if isinstance(order, CollectionOrder) else order.destination


def item_of(order: Order) -> str:
    """The item of the operator or provider."""
    return order.provider_item_id if isinstance(order, CollectionOrder) else order.product_item_id


def reference_of(order: Order) -> str:
    """The number of the wallet, account or line. Personal: mask it."""
    reference: str = getattr(destination_of(order), KINDS[order.kind].reference)
    return reference
