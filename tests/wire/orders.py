"""Orders with every member set, and with only what must be."""

from decimal import Decimal
from typing import Any

from payments_async import Beneficiary, CollectionOrder, MobileMoneyWallet, PayoutOrder
from payments_async._wire.orders import Destination

NAME = "Grace Akello"
EMAIL = "grace@example.org"
PHONE = "+256772000017"
WALLET = "+256772000018"


def beneficiary(**changes: Any) -> Beneficiary:
    """A person with a telephone and an e-mail address."""
    members: dict[str, Any] = {"name": NAME, "email_address": EMAIL, "phone_number": PHONE}
    return Beneficiary(**(members | changes))


def payout(destination: Destination | None = None, **changes: Any) -> PayoutOrder:
    """A payout of 150000.50 to a wallet, with batch and message."""
    members: dict[str, Any] = {
        "request_id": "r-1",
        "batch_id": "b-1",
        "amount": Decimal("150000.50"),
        "destination": destination or MobileMoneyWallet(WALLET),
        "product_item_id": "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        "beneficiary": beneficiary(),
        "message": "November salary",
    }
    return PayoutOrder(**(members | changes))


def collection(**changes: Any) -> CollectionOrder:
    """A collection of 2500 from a wallet, with batch and message."""
    members: dict[str, Any] = {
        "request_id": "r-2",
        "batch_id": "b-1",
        "amount": Decimal(2500),
        "payer": MobileMoneyWallet(WALLET),
        "provider_item_id": "AIRTELMONEYUG_AIRTELMONEYUG",
        "beneficiary": beneficiary(id="p-17"),
        "message": "School fees",
    }
    return CollectionOrder(**(members | changes))
