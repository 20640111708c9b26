"""What the service answers: replies and their envelopes, pages, records."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal

import attrs

from ._catalogue import ITEMS, PRODUCTS, Item, Product
from ._ledger import Execution, Status
from ._notifications import Notice, correlation_id
from ._orders import Counterparty
from ._quirks import Quirks
from ._spelling import Refusal, write_date, write_json

Envelope = Literal["code", "login", "card"]
# Spec: "Example value `PAYOUT`. Other values: not shown."
_TYPES = {"payout": "PAYOUT", "collection": "COLLECTION"}
_SNAKE = {
    "transactionId": "transaction_id",
    "requestId": "clientreference_id",
    "batchId": "batch_id",
    "accountNumber": "account_number",
}


@attrs.frozen(kw_only=True)
class Reply:
    """One answer, not yet sent.

    Attributes:
        notify_first: A notification that must have been answered before this reply leaves.
    """

    status: int = 200
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = attrs.field(factory=dict)
    notify_first: Notice | None = None


def json_reply(payload: object, *, status: int = 200, notify_first: Notice | None = None) -> Reply:
    """Write a payload as it is."""
    return Reply(status=status, body=write_json(payload).encode(), notify_first=notify_first)


def page_reply(status: int) -> Reply:
    """Answer as a proxy in front of the service would: with a page for people."""
    page = b"<!DOCTYPE html><html><head><title>Service</title></head><body><h1>Please try again</h1></body></html>"
    return Reply(status=status, body=page, content_type="text/html")


def refused(refusal: Refusal, envelope: Envelope) -> Reply:
    """Write a refusal in the envelope of the endpoint that was called."""
    message = refusal.message
    payload: dict[str, object]
    match envelope:
        case "login":  # Spec: "success (boolean), message (string)"
            payload = {"Token": None, "refreshToken": None, "success": False, "message": message}
        case "card":  # Spec: "Card endpoints use a different envelope: `success` (number, ...) and `data`."
            payload = {"success": 0, "message": message, "data": None}
        case "code":
            payload = {"code": int(refusal.code), "status": "failed", "message": message, "data": None}
    return attrs.evolve(json_reply(payload, status=refusal.status), headers=refusal.headers)


def read_envelope(data: object, quirks: Quirks, *, status: bool = False) -> dict[str, object]:
    """Wrap the answer of a read; the list of transactions also carries `status`."""
    envelope: dict[str, object] = {"code": quirks.read_code, "message": "Request was successful"}
    if status:
        envelope["status"] = "success"
    if quirks.envelope_correlation_id:
        envelope["correlationId"] = "corr-read"
    return {**envelope, "data": data}


def acceptance(execution: Execution, request_id: str, quirks: Quirks) -> dict[str, object]:
    """Return the answer of a post endpoint; `request_id` is the one to echo."""
    # Spec: "The text of the acceptance message says a debit transaction is being processed." (of a collection)
    text = "Your debit transaction has been received and is being processed. You will be notified shortly"
    envelope: dict[str, object] = {"code": 0, "message": text}
    if quirks.acceptance_top_status:
        envelope["status"] = "success"
    if quirks.envelope_correlation_id:
        envelope["correlationId"] = correlation_id(execution.transaction_id)
    envelope["data"] = {
        "requestId": request_id,
        "batchId": execution.batch_id,
        "transactionId": execution.transaction_id,
        "status": Status.PROCESSING,  # Spec: "A newly accepted transaction reports `PROCESSING`."
        "message": "Transaction is being processed",
        "createdOn": write_date(execution.created_on, quirks.created_on),
    }
    return envelope


def record(
    execution: Execution, quirks: Quirks, *, shown: Status, account_number: int, currency: str
) -> dict[str, object]:
    """Return one transaction record, as the list shows it."""
    negative = (execution.kind == "payout") == (quirks.record_amount_sign == "payouts_negative")
    product = ITEMS[execution.item_id].product_id
    named = PRODUCTS[product].name if quirks.record_product_key == "name" else execution.item_id
    members: dict[str, object] = {
        "transactionId": execution.transaction_id,
        "requestId": execution.request_id,
        "batchId": execution.batch_id,
        "accountNumber": str(account_number) if quirks.record_account_number == "string" else account_number,
        "name": None,
        "currency": currency,
        "amount": execution.amount.copy_negate() if negative else execution.amount,
        "transactionType": _TYPES[execution.kind],
        "product": {"id": product, quirks.record_product_key: named},
        "beneficiary": _beneficiary(execution.beneficiary, execution.message, quirks),
    }
    if quirks.record_has_status:
        word = status_word(shown, quirks)
        members |= {"status": word, "statusMessage": f"Transaction is {word.lower()}"}
    return members


def listed(members: dict[str, object], quirks: Quirks) -> dict[str, object]:
    """Return a record as a list shows it."""
    shown = str(members["requestId"])[: quirks.request_id_length]
    members = {**members, "requestId": shown.upper() if quirks.request_id_case == "upper" else shown}
    if not quirks.list_swaps_product:
        return members
    return {**members, "product": members["beneficiary"], "beneficiary": members["product"]}


def single(members: dict[str, object], quirks: Quirks) -> dict[str, object]:
    """Return a record as the read of one transaction shows it."""
    if quirks.single_record_names == "camel":
        return members
    return {_SNAKE.get(name, name): value for name, value in members.items()}


def status_word(status: Status, quirks: Quirks) -> str:
    """Return how a status is spelled."""
    return quirks.success_word if status is Status.SUCCESSFULL else str(status)


def page(rows: Sequence[object], *, total: int, number: int, size: int, lies: bool) -> dict[str, object]:
    """Return a paged collection of rows that are already cut to the page."""
    pages = -(-total // size)
    return {
        "collection": list(rows),
        "totalCount": total,
        "pageSize": size,
        "currentPage": number,
        "totalPages": pages,
        "previousPage": number > 1,
        "nextPage": (number < pages) is not lies,
    }


def product_record(product: Product) -> dict[str, object]:
    """Return a product."""
    return {
        "productId": product.product_id,
        "name": product.name,
        "imageUri": f"https://images.invalid/{product.product_id.lower()}.png",
        "categoryId": product.category,
        "shortDescription": None,
        "longDescription": None,
        "countryCode": "256",
        "currencyCode": "UGX",
        "isActive": True,
        "isExternal": product.is_external,
        "sortOrder": product.sort_order,
        "productRegex": product.regex,
    }


def item_record(item: Item) -> dict[str, object]:
    """Return a product item."""
    product = PRODUCTS[item.product_id]
    return {
        "productItemId": item.item_id,
        "name": item.name,
        "category": item.category,
        "amount": item.amount,
        "isAmountFixed": item.is_amount_fixed,
        "validityPeriod": item.validity_period,
        "type": "BUNDLE" if item.is_amount_fixed else "OPEN",
        "productId": item.product_id,
        "shortDescription": None,
        "longDescription": None,
        "productRegex": product.regex,
        "isActive": True,
        "productItemCode": item.item_id.partition("_")[2],
        "sortOrder": item.sort_order,
    }


def account_record(account_number: int, balance: Decimal, currency: str) -> dict[str, object]:
    """Return the account."""
    return {
        "accountNumber": account_number,  # Spec: "accountNumber | number"
        "name": "Sandbox account",
        "description": "Demo money only",
        "balance": balance,
        "currency": currency,
    }


def _beneficiary(beneficiary: Counterparty, memo: str, quirks: Quirks) -> dict[str, object]:
    data: dict[str, object]
    if quirks.record_beneficiary_data == "customer":
        data = {
            "CustomerReference": beneficiary.reference,
            "CustomerPhone": beneficiary.phone_number,
            "CustomerEmail": beneficiary.email_address,
            "Memo": memo,
        }
    else:
        data = {"PhoneNumber": beneficiary.phone_number, "memo": memo}
    return {"id": beneficiary.id, "name": beneficiary.name, "data": data}
