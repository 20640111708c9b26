"""The documented page of transactions, read at once; whatever differs from it is for the reader of any spelling."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from payments_async._values.amounts import read_amount
from payments_async._wire.codec import read_timestamp
from payments_async._wire.models import Page, Transaction, TransactionBeneficiary, TransactionProduct, TransactionStatus

_STATUSES = {status.value: status for status in TransactionStatus}
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Documented(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What has the documented members alone, spelled as they are."""


class _Product(_Documented):
    id: str | None = None
    name: str | None = None
    productItemId: str | None = None  # noqa: N815 - the service's own spelling, here and below


class _Data(_Documented):
    CustomerReference: str | None = None
    CustomerPhone: str | None = None
    CustomerEmail: str | None = None
    Memo: str | None = None
    # Spec: "Another description lists `PhoneNumber` and `memo` in `data`."
    PhoneNumber: str | None = None
    memo: str | None = None


class _Beneficiary(_Documented):
    data: _Data  # where it is missing or null, that is no documented beneficiary
    id: str | None = None
    name: str | None = None


class _Record(_Documented):
    transactionId: Annotated[str, msgspec.Meta(min_length=1)]  # noqa: N815
    requestId: str | None = None  # noqa: N815
    batchId: str | None = None  # noqa: N815
    accountNumber: str | None = None  # noqa: N815
    name: str | None = None
    currency: str | None = None
    amount: Any = None  # as ``decode`` reads a number: digit for digit
    transactionType: str | None = None  # noqa: N815
    product: _Product | None = None
    beneficiary: _Beneficiary | None = None
    status: str | None = None
    statusMessage: str | None = None  # noqa: N815
    createdOn: str | None = None  # noqa: N815
    fees: str | None = None
    initiator: str | None = None
    approver: str | None = None
    attachments: dict[str, Any] | None = None


class _Collection(_Documented):
    collection: list[_Record]
    totalCount: _Count | None = None  # noqa: N815
    pageSize: _Count | None = None  # noqa: N815
    currentPage: _Count | None = None  # noqa: N815
    totalPages: _Count | None = None  # noqa: N815
    previousPage: bool | None = None  # noqa: N815
    nextPage: bool | None = None  # noqa: N815


class _Answer(_Documented):
    code: Literal[0]
    data: _Collection
    # Spec: "Present on the post endpoints and the list-of-transactions endpoint."
    status: str | None = None
    message: str | None = None


_decode = msgspec.json.Decoder(_Answer, float_hook=Decimal).decode


def reads_documented_page(timezone: tzinfo) -> Callable[[bytes], Page[Transaction] | None]:
    """A reader of the documented page, which is the usual case, quickly; it gives ``None`` when anything differs."""
    return partial(_read_page, timezone=timezone)


def _read_page(body: bytes, *, timezone: tzinfo) -> Page[Transaction] | None:
    """The page, or ``None`` where it is not documented so."""
    try:
        page = _decode(body).data
        rows = tuple([_transaction(record, timezone) for record in page.collection])
    except (msgspec.DecodeError, ValueError, ArithmeticError, LookupError, RecursionError):
        return None
    return Page(
        collection=rows,
        total_count=page.totalCount,
        page_size=page.pageSize,
        current_page=page.currentPage,
        total_pages=page.totalPages,
        previous_page=page.previousPage,
        next_page=page.nextPage,
    )


def _transaction(record: _Record, timezone: tzinfo) -> Transaction:
    """One record.

    Raises:
        ValueError, LookupError: When a text in it has to be weighed, and may have to be kept as it came.
    """
    product, beneficiary, amount = record.product, record.beneficiary, record.amount
    status, moment = record.status, record.createdOn
    return Transaction(
        transaction_id=record.transactionId,
        request_id=record.requestId,
        batch_id=record.batchId,
        account_number=record.accountNumber,
        name=record.name,
        currency=record.currency,
        amount=None if amount is None else read_amount(amount),
        transaction_type=record.transactionType,
        product=None if product is None else _product(product),
        beneficiary=None if beneficiary is None else _beneficiary(beneficiary),
        status=None if status is None else _STATUSES[status],
        status_message=record.statusMessage,
        created_on=None if moment is None else read_timestamp(moment, timezone),
        fees=record.fees,
        initiator=record.initiator,
        approver=record.approver,
        attachments=record.attachments,
    )


def _product(product: _Product) -> TransactionProduct:
    """The product."""
    return TransactionProduct(id=product.id, name=product.name, product_item_id=product.productItemId)


def _beneficiary(beneficiary: _Beneficiary) -> TransactionBeneficiary:
    """The beneficiary, whose ``data`` spells a telephone number and a memo in one of two ways.

    Raises:
        ValueError: When it spells one of them in both.
    """
    data = beneficiary.data
    phone, memo = data.CustomerPhone, data.Memo
    if data.PhoneNumber is not None or data.memo is not None:
        if (phone is not None and data.PhoneNumber is not None) or (memo is not None and data.memo is not None):
            raise ValueError("said twice")
        phone, memo = phone or data.PhoneNumber, memo or data.memo
    return TransactionBeneficiary(
        id=beneficiary.id,
        name=beneficiary.name,
        customer_reference=data.CustomerReference,
        phone=phone,
        email=data.CustomerEmail,
        memo=memo,
    )
