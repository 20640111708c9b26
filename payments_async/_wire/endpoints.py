"""One function for each endpoint of the specification: typed arguments to a Call. Sections are the specification's."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date, datetime, tzinfo
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal, Protocol
from urllib.parse import quote, unquote, urlencode

import msgspec

from payments_async._values.amounts import order_amount, read_amount
from payments_async._values.checks import check_filled
from payments_async._wire.bodies import (
    is_sent_as_written,
    json_amount,
    order_members,
    private_texts,
    read_order,
    request_of,
)
from payments_async._wire.call import Call
from payments_async._wire.codec import encode, read_timestamp
from payments_async._wire.dialect import Dialect
from payments_async._wire.kinds import KINDS
from payments_async._wire.models import (
    Acceptance,
    Account,
    Card,
    Page,
    Product,
    ProductItem,
    Transaction,
    TransactionBeneficiary,
    TransactionProduct,
    TransactionStatus,
    Validation,
)
from payments_async._wire.orders import Order
from payments_async._wire.replies import (
    Login,
    read_acceptance,
    read_anything,
    read_login,
    read_plain_acceptance,
    read_validation,
    reads,
    reads_page,
)

_PIN = re.compile(r"[0-9]{4,12}", re.ASCII)
_MONEY_PATHS = ("transactions/payouts", "transactions/collections")

_STATUSES = {status.value: status for status in TransactionStatus}
_Count = Annotated[int, msgspec.Meta(ge=0)]


def log_in(app_key: str, app_password: str, user_id: str, dialect: Dialect) -> Call[Login]:
    """Obtain a token (section 1 and "Authentication")."""
    return Call(
        method="POST",
        path=f"{dialect.api_prefix}/auth/login",
        body=encode(
            {
                "appKey": str(app_key),
                "appPassword": str(app_password),
                "userId": str(user_id),
                "includeRefereshToken": dialect.include_refresh_token,  # Spec: "Spelled exactly so"
            }
        ),
        authorized=False,
        read=read_login,
        answer="login",
        private=lambda: (app_key, app_password, user_id),
    )


def refresh(refresh_token: str, path: str, dialect: Dialect) -> Call[Login]:
    """Renew a token by the refresh token; the call is a guess (section "Authentication", 4)."""
    return Call(
        method="POST",
        path=f"{dialect.api_prefix}{path}",
        body=encode({"refreshToken": str(refresh_token)}),
        authorized=False,
        read=read_login,
        answer="login",
        private=lambda: (refresh_token,),
    )


def send_order(
    order: Order, dialect: Dialect, *, sent_before: bool = False, known_as: Dialect | None = None
) -> Call[Acceptance]:
    """One order that no journal holds, and the session remembers; its class selects the endpoint (sections 2 to 7)."""
    body = encode(order_members(order, dialect))
    private = partial(private_texts, order)
    call = _money(order.kind, body, order.request_id, dialect, sent_before, private, remembered=True)
    if known_as is not None:
        call.known_as = _written(order, known_as)
    return call


class SendsWritten(Protocol):
    """Describes the sending of an order that ``write_order`` wrote, from what the journal holds of it."""

    def __call__(
        self,
        request_id: str,
        amount: Decimal,
        written: bytes,
        *,
        sent_before: bool,
        private: Callable[[], tuple[str, ...]],
    ) -> Call[Acceptance]:
        """One order.

        Args:
            request_id, amount, written: The order, as it is kept.
            sent_before: It may have left before this call.
            private: Gives its personal texts, to be masked in words that come back.

        Raises:
            ValueError: When the bytes are not an order.
        """
        ...


def sends_written(dialect: Dialect, known_as: Dialect | None = None) -> SendsWritten:
    """What describes the sending of an order that ``write_order`` wrote: byte for byte, where the dialect allows it.

    Args:
        known_as: The dialect of the requests that the session knows its orders by, where it is another one.
    """
    as_it_is = known_as is None and is_sent_as_written(dialect)

    def call_of(
        request_id: str,
        amount: Decimal,
        written: bytes,
        *,
        sent_before: bool,
        private: Callable[[], tuple[str, ...]],
    ) -> Call[Acceptance]:
        known = None
        if as_it_is:
            kind, body = request_of(request_id, amount, written)
        else:
            order = read_order(request_id, amount, written)
            kind, body = order.kind, encode(order_members(order, dialect))
            known = None if known_as is None else _written(order, known_as)
        call = _money(kind, body, request_id, dialect, sent_before, private)
        if known is not None:
            call.known_as = known
        return call

    return call_of


def list_transactions(
    *,
    number: int,
    size: int,
    since: date | None,
    until: date | None,
    status: str | None,
    dialect: Dialect,
) -> Call[Page[Transaction]]:
    """One page of transactions (section 8).

    Args:
        number: Page, from 1.
        size: Rows of a page.
        since, until: First and last day; a ``datetime`` counts as its day in ``Dialect.timezone``.
        status: Only transactions in this status.
    """
    query = _paging(number, size)
    first, last = dialect.date_keys
    query |= {first: _day(since, dialect), last: _day(until, dialect), "transactionStatus": status}
    read = reads_page(Transaction, dialect.timezone)
    quickly = reads_documented_page(dialect.timezone)
    return _read("/transactions", read, dialect, query=query, read_quickly=quickly, answer="transactions")


def get_transaction(transaction_id: str, dialect: Dialect) -> Call[Transaction]:
    """One transaction by the service's id (section 9)."""
    path = f"/transactions/{_segment('transaction_id', transaction_id)}"
    return _read(path, reads(Transaction, dialect.timezone), dialect, answer="transaction")


def find_transaction(request_id: str, path: str, dialect: Dialect) -> Call[Transaction]:
    """One transaction by our request id, on the path of an earlier edition (``Dialect.find_by_request_path``)."""
    path = path.replace("{request_id}", _segment("request_id", request_id))
    return _read(path, reads(Transaction, dialect.timezone), dialect, answer="transaction")


def list_products(*, number: int, size: int, dialect: Dialect) -> Call[Page[Product]]:
    """One page of products (section 10)."""
    query = _paging(number, size) if dialect.product_paging else {}
    return _read("/products", reads_page(Product, dialect.timezone), dialect, query=query)


def get_product(product_id: str, dialect: Dialect) -> Call[Product]:
    """One product (section 10)."""
    return _read(f"/products/{_segment('product_id', product_id)}", reads(Product, dialect.timezone), dialect)


def list_product_items(product_id: str, *, number: int, size: int, dialect: Dialect) -> Call[Page[ProductItem]]:
    """One page of a product's items (section 10); the path is a guess (``Dialect.product_items_path``)."""
    path = dialect.product_items_path.replace("{product_id}", _segment("product_id", product_id))
    query = _paging(number, size) if dialect.product_paging else {}
    return _read(path, reads_page(ProductItem, dialect.timezone), dialect, query=query)


def validate(
    product_item_id: str, customer_reference: str, amount: Decimal | int | str, dialect: Dialect
) -> Call[Validation]:
    """Ask whether an order would be taken (section 11). It moves nothing, so it is repeatable.

    Args:
        customer_reference: Account or telephone number of the customer.
        amount: Above zero, in units of the account's currency.
    """
    body = {
        "productItemId": _identifier("product_item_id", product_item_id),
        "customerReference": _identifier("customer_reference", customer_reference),
        "amount": json_amount(order_amount(amount)),
    }
    return Call(
        method="POST",
        path=f"{dialect.api_prefix}/products/validation",
        body=encode(body),
        repeatable=True,
        authorized=dialect.validation_authorized,  # Spec: "sent without an Authorization header in the sample"
        read=read_validation,
        answer="validation",
        private=lambda: (customer_reference,),
    )


def get_account(dialect: Dialect) -> Call[Account]:
    """The client account with its balance (section 12)."""
    return _read("/accounts", reads(Account, dialect.timezone), dialect)


def get_card(card_id: str, masked_number: str | None, dialect: Dialect) -> Call[Card]:
    """One card (section 13). The samples send the masked number as the body of the GET."""
    body = encode({"masked-card-number": masked_number}) if masked_number and dialect.card_body_on_get else None
    return Call(
        method="GET",
        path=dialect.cards_path,
        query=urlencode({"id": _identifier("card_id", card_id)}),
        body=body,
        repeatable=True,
        read=reads(Card, dialect.timezone),
        answer="card",
    )


def enable_card(masked_number: str, dialect: Dialect) -> Call[Card]:
    """Enable a card to transact (section 14); the member that says so is a guess."""
    return _patch_card({"masked-card-number": masked_number, dialect.card_enable_member: True}, dialect)


def reset_card_pin(masked_number: str, pin: str, dialect: Dialect) -> Call[Card]:
    """Set a card's PIN anew (section 14); the member that carries it is a guess."""
    if not _PIN.fullmatch(pin):
        raise ValueError("pin: expected a text of 4 to 12 digits")
    body = {"masked-card-number": masked_number, dialect.card_pin_member: pin}
    return _patch_card(body, dialect, private=(pin,))


def raw(
    method: str, path: str, *, query: Mapping[str, str] | None, body: Any, dialect: Dialect | None = None
) -> Call[Any]:
    """Any other endpoint. Only a GET is repeatable.

    Args:
        path: Below the base address, such as ``/api/anything``; ``query`` goes separately.
        body: What becomes the JSON body, or ``None``.
        dialect: May have given a payout a path of its own.

    Raises:
        ValueError: For the payout and collection paths, which have methods of their own that are safe.
    """
    method = method.upper()
    if method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        raise ValueError("method: expected GET, POST, PUT, PATCH or DELETE")
    if not path.startswith("/") or "?" in path or "#" in path:
        raise ValueError("path: must start with '/' and hold no query; pass query={...}")
    _refuse_money(path, (dialect or Dialect()).internet_path)
    return Call(
        method=method,
        path=quote(path, safe="/%:@!$&'()*+,;=~-._"),
        query=urlencode(query or {}),
        body=None if body is None else encode(body),
        repeatable=method == "GET",
        once=method != "GET",
        read=read_anything,
    )


def _refuse_money(path: str, internet_path: str) -> None:
    """Refuse a path that moves money, however it is written."""
    plain, encoded = unquote(path), path
    while plain != encoded:  # however often it was encoded
        plain, encoded = unquote(plain), plain
    plain = unicodedata.normalize("NFKC", plain).casefold().replace("\\", "/")
    # Some servers drop parameters (";..."), and blanks and dots at the end of a part.
    parts = [part.partition(";")[0].strip() for part in plain.split("/")]
    plain = "/".join(part.rstrip(". ") for part in parts if part.rstrip(". "))
    if ".." in parts or any(money in plain for money in (*_MONEY_PATHS, internet_path.strip("/").casefold())):
        raise ValueError("path: payouts and collections go through payouts.send() and collections.request()")


def _written(order: Order, dialect: Dialect) -> tuple[str, bytes]:
    """Path and body of an order's request."""
    path = KINDS[order.kind].path or dialect.internet_path
    return dialect.api_prefix + path, encode(order_members(order, dialect))


def _money(
    kind: str,
    body: bytes,
    request_id: str,
    dialect: Dialect,
    sent_before: bool,
    private: Callable[[], tuple[str, ...]],
    *,
    remembered: bool = False,
) -> Call[Acceptance]:
    """One POST that moves money: carried out once, and read as an acceptance of this request."""
    path, zone = KINDS[kind].path or dialect.internet_path, dialect.timezone
    return Call(
        method="POST",
        path=dialect.api_prefix + path,
        body=body,
        once=True,
        request_id=request_id,
        sent_before=sent_before,
        answer="acceptance",
        remembered=remembered,
        private=private,
        read=lambda value: read_acceptance(value, request_id=request_id, timezone=zone),
        read_quickly=lambda body: read_plain_acceptance(body, request_id=request_id, timezone=zone),
    )


def _read(
    path: str,
    read: Any,
    dialect: Dialect,
    *,
    query: Mapping[str, Any] | None = None,
    read_quickly: Any = None,
    answer: str = "reading",
) -> Call[Any]:
    """One GET, with the filters that are set."""
    shown = urlencode({name: value for name, value in (query or {}).items() if value is not None})
    path = dialect.api_prefix + path
    return Call(
        method="GET", path=path, query=shown, repeatable=True, read=read, read_quickly=read_quickly, answer=answer
    )


def _patch_card(body: dict[str, Any], dialect: Dialect, private: tuple[str, ...] = ()) -> Call[Card]:
    """One PATCH of a card, which harms when it is made twice."""
    _identifier("masked_number", body["masked-card-number"])
    return Call(
        method="PATCH",
        path=dialect.card_patch_path,
        body=encode(body),
        once=True,
        private=lambda: private,
        read=reads(Card, dialect.timezone),
        answer="card",
    )


def _paging(number: int, size: int) -> dict[str, Any]:
    """Number and size of a page, from 1."""
    if number < 1 or size < 1:
        raise ValueError("number and size: must be 1 or more")
    return {"pageNumber": number, "pageSize": size}


def _day(moment: date | None, dialect: Dialect) -> str | None:
    """The day of a moment, as a query has it."""
    if moment is not None and not isinstance(moment, date):
        raise TypeError(f"since/until: expected a date, not {type(moment).__name__}")
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError("since/until: a datetime must be aware; or pass a date")
        moment = moment.astimezone(dialect.timezone).date()
    return None if moment is None else moment.isoformat()


def _segment(name: str, value: str) -> str:
    """An id as one part of a path."""
    return quote(_identifier(name, value), safe="")


def _identifier(name: str, value: object) -> str:
    """An id that is asked for: not empty, and no step in a path."""
    if isinstance(value, str) and value.strip() and value not in (".", ".."):
        return value
    check_filled(name, value)
    raise ValueError(f"{name}: must not be empty")


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
    data: _Data  # where it is missing or null, that is not a documented beneficiary
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
        phone, memo = (data.PhoneNumber if phone is None else phone), (data.memo if memo is None else memo)
    return TransactionBeneficiary(
        id=beneficiary.id,
        name=beneficiary.name,
        customer_reference=data.CustomerReference,
        phone=phone,
        email=data.CustomerEmail,
        memo=memo,
    )
