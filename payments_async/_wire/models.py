"""What comes back from the service, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar

from payments_async._values.frozen import field, frozen
from payments_async._values.masking import escape, masked, redacted
from payments_async._values.spelled import Spelled

T = TypeVar("T")


class TransactionStatus(Spelled):
    """Status of a transaction. An undocumented status is kept as it came.

    It equals its text in any letter case, and the ``State`` of the same name.

    >>> TransactionStatus("SUCCESS") is TransactionStatus.SUCCESSFUL
    True
    >>> TransactionStatus.SUCCESSFUL == "SUCCESSFUL" == State.SUCCESSFUL
    True
    """

    ENQUEUED = "ENQUEUED"
    PROCESSING = "PROCESSING"
    FAILED = "FAILED"
    SUCCESSFUL = "SUCCESSFULL"  # Spec: "SUCCESSFULL (spelled exactly so)"
    REVERSED = "REVERSED"

    @classmethod
    def _missing_(cls, value: object) -> TransactionStatus | None:
        if not isinstance(value, str):
            return None
        known = _STATUS_SPELLINGS.get(value.strip().upper())
        if known is not None:
            return cls(known)
        unknown = str.__new__(cls, value)
        unknown._name_ = escape(value)
        unknown._value_ = value
        return unknown

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every word for it that was ever met, the documented one first."""
        met = [word for word, status in _STATUS_SPELLINGS.items() if status == self.value and word != self.value]
        return self.value, *met

    @property
    def is_final(self) -> bool:
        """Whether the money has moved or surely will not: successful, failed or reversed."""
        return self in _FINAL

    @property
    def is_successful(self) -> bool:
        """Whether the money was paid."""
        return self is TransactionStatus.SUCCESSFUL


_FINAL = frozenset({TransactionStatus.SUCCESSFUL, TransactionStatus.FAILED, TransactionStatus.REVERSED})
_STATUS_SPELLINGS = {
    "ENQUEUED": "ENQUEUED",
    "QUEUED": "ENQUEUED",
    "PROCESSING": "PROCESSING",
    "PENDING": "PROCESSING",
    "FAILED": "FAILED",
    "FAILURE": "FAILED",
    "SUCCESSFULL": "SUCCESSFULL",
    "SUCCESSFUL": "SUCCESSFULL",
    "SUCCESS": "SUCCESSFULL",
    "COMPLETED": "SUCCESSFULL",
    "REVERSED": "REVERSED",
}


@frozen(kw_only=True)
class Acceptance:
    """The service's "queued", which is not success.

    Attributes:
        request_id: Of the order.
        transaction_id: What the service calls it from now on.
        batch_id: As sent.
        status: ``PROCESSING`` right after acceptance.
        message: The service's words.
        created_on: When the service queued it; ``None`` when missing or unreadable.
        correlation_id: The service's own reference for the exchange, where its answer names one.
        extra: What the service said beyond that, and unreadable values, as they came.
    """

    request_id: str
    transaction_id: str
    batch_id: str | None = None
    status: TransactionStatus | None = None
    message: str | None = field(default=None, repr=redacted)
    created_on: datetime | None = None
    correlation_id: str | None = None
    extra: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class TransactionProduct:
    """Product of a transaction record: its id, with a name or an item id beside it."""

    id: str | None = None
    name: str | None = field(default=None, repr=masked)  # one sample has product and beneficiary swapped
    product_item_id: str | None = None
    extra: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class TransactionBeneficiary:
    """Beneficiary of a transaction record, flattened from the two documented spellings of its ``data``."""

    id: str | None = field(default=None, repr=masked)
    name: str | None = field(default=None, repr=masked)
    customer_reference: str | None = field(default=None, repr=masked)
    phone: str | None = field(default=None, repr=masked)
    email: str | None = field(default=None, repr=masked)
    memo: str | None = field(default=None, repr=masked)
    extra: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class Transaction:
    """What the service made of an order.

    Attributes:
        transaction_id: The service's id.
        request_id: Ours.
        amount: Signed as the service shows it: payouts are documented as negative. Compare magnitudes.
        status: Absent in every current sample; ``None`` then. The list filter tells it.
        fees: As the service writes it, a text.
        extra: What the service said beyond that, and unreadable values, as they came.
    """

    transaction_id: str
    request_id: str | None = None
    batch_id: str | None = None
    account_number: str | None = field(default=None, repr=masked)
    name: str | None = field(default=None, repr=masked)
    currency: str | None = None
    amount: Decimal | None = None
    transaction_type: str | None = None
    product: TransactionProduct | None = None
    beneficiary: TransactionBeneficiary | None = None
    status: TransactionStatus | None = None
    status_message: str | None = field(default=None, repr=redacted)
    created_on: datetime | None = None
    fees: str | None = None
    initiator: str | None = field(default=None, repr=masked)
    approver: str | None = field(default=None, repr=masked)
    attachments: Mapping[str, Any] | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(factory=dict, repr=False)

    @property
    def is_successful(self) -> bool:
        """Whether the record itself says that it was paid; most records carry no status."""
        return self.status is TransactionStatus.SUCCESSFUL


@frozen(kw_only=True)
class Product:
    """A product of the service.

    Attributes:
        product_regex: A hint of what customer references look like. Some are junk, so it never blocks an order.
    """

    product_id: str
    name: str | None = None
    image_uri: str | None = None
    category_id: str | None = None
    short_description: str | None = None
    long_description: str | None = None
    country_code: str | None = None
    currency_code: str | None = None
    is_active: bool | None = None
    is_external: bool | None = None
    sort_order: int | None = None
    product_regex: str | None = None
    extra: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class ProductItem:
    """An item of a product.

    Attributes:
        amount: Price in units of the product's currency; binding when ``is_amount_fixed``.
    """

    product_item_id: str
    name: str | None = None
    category: str | None = None
    amount: Decimal | None = None
    is_amount_fixed: bool | None = None
    validity_period: str | None = None
    type: str | None = None
    product_id: str | None = None
    short_description: str | None = None
    long_description: str | None = None
    product_regex: str | None = None
    is_active: bool | None = None
    product_item_code: str | None = None
    sort_order: int | None = None
    extra: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class Account:
    """The client account.

    Attributes:
        balance: Exact, in units of ``currency``.
    """

    account_number: str = field(repr=masked)
    balance: Decimal
    name: str | None = field(default=None, repr=masked)
    description: str | None = field(default=None, repr=masked)
    currency: str | None = None
    extra: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class Card:
    """A card.

    Attributes:
        masked_card_number: First and last four digits, as the service masks it.
        balance: Exact, in units of ``currency``; the service writes it as text.
        transactions, statement: As they came: their structure is not shown.
    """

    card_id: str | None = None
    masked_card_number: str | None = None
    name: str | None = field(default=None, repr=masked)
    currency: str | None = None
    balance: Decimal | None = None
    status: str | None = None
    card_holder: str | None = field(default=None, repr=masked)
    transactions: Any = field(default=None, repr=False)
    statement: Any = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class Validation:
    """The service's opinion of a product item, a customer reference and an amount.

    Attributes:
        ok: Whether the order would be taken.
        message: The reason, where one was given.
        data: The object beside it, as it came: its contents are not shown.
    """

    ok: bool
    message: str | None = field(default=None, repr=masked)  # it may name the customer
    data: Any = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class Page(Generic[T]):
    """One page of a listing.

    Attributes:
        collection: The rows of this page.
        total_count: Rows in the whole listing, as the service counts them.
        next_page: Whether it says that another page follows; not relied on.
    """

    collection: tuple[T, ...]
    total_count: int | None = None
    page_size: int | None = None
    current_page: int | None = None
    total_pages: int | None = None
    previous_page: bool | None = None
    next_page: bool | None = None
    extra: Mapping[str, Any] = field(factory=dict, repr=False)
