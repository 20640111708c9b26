"""One function per endpoint: a call as it was understood, to a reply."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import attrs

from . import _records
from ._cards import card_record
from ._catalogue import ITEMS, PRODUCTS, Channel
from ._faults import MONEY, Operation
from ._ledger import Execution, Status
from ._orders import OrderRules, read_amount, read_order
from ._records import Envelope, Reply, json_reply
from ._refusals import Code, Refusal, required_text
from ._service import Service
from ._spelling import read_boundary

UNREADABLE: Final = object()  # stands for a body that is no JSON


@attrs.frozen(kw_only=True)
class Exchange:
    """One call, read but not yet judged.

    Attributes:
        payload: The decoded body, None without one, `UNREADABLE` if it is no JSON.
        echo: What an acceptance echoes in place of the requestId.
    """

    query: Mapping[str, str]
    parameters: Mapping[str, str]
    content_type: str
    payload: object
    echo: str | None = None

    @property
    def request_id(self) -> str | None:
        """The requestId the body names, if it can be seen."""
        named = self.payload.get("requestId") if isinstance(self.payload, dict) else None
        return named if isinstance(named, str) else None

    def body(self) -> Mapping[str, object]:
        """Return the JSON object of the body.

        Raises:
            Refusal: There is none. # Spec: "All calls use HTTPS and JSON (`Content-Type: application/json`)."
        """
        if self.content_type != "application/json":
            raise Refusal(400, Code.UNREADABLE, "Content-Type must be application/json")
        if not isinstance(self.payload, dict):
            raise Refusal(400, Code.UNREADABLE, "the body must be a JSON object")
        return self.payload


Answer = Callable[[Service, Exchange], Reply]


@attrs.frozen(kw_only=True)
class Endpoint:
    """Where an endpoint is found and how it answers."""

    operation: Operation
    method: str
    paths: tuple[str, ...]
    answer: Answer
    needs_token: bool = True
    envelope: Envelope = "code"

    @property
    def is_money(self) -> bool:
        """Whether it carries orders out."""
        return self.operation in MONEY


def login(service: Service, exchange: Exchange) -> Reply:
    """Answer a login. # Spec: "Login: POST {base_url}/api/auth/login with JSON body"."""
    return json_reply(service.access.login(exchange.body()))


def refresh(service: Service, exchange: Exchange) -> Reply:
    """Answer a refresh, where the quirks offer one."""
    return json_reply(service.access.refresh(exchange.body()))


def place_order(channel: Channel, service: Service, exchange: Exchange) -> Reply:
    """Accept an order. # Spec: "Post endpoints answer with the acceptance response defined above."."""
    quirks = service.settings.quirks
    order = read_order(exchange.body(), OrderRules(channel), quirks, service.settings.account_number)
    execution, early = service.carry_out(order)
    payload = _records.acceptance(execution, exchange.echo or order.request_id, quirks)
    return json_reply(payload, status=quirks.acceptance_http, notify_first=early)


def list_transactions(service: Service, exchange: Exchange) -> Reply:
    """Answer one page of transactions. # Spec: "Query parameters: pageNumber (int), pageSize (int), ..."."""
    quirks = service.settings.quirks
    number, size = _paging(service, exchange)
    since, until = _dates(service, exchange)
    rows = _filtered(service, exchange, since, until)
    page = 1 if quirks.repeats_first_page else number
    start = max(0, (page - 1) * size + service.page_shift(number))
    chosen = rows[::-1][start : start + size] if quirks.newest_first else rows[start : start + size]
    members = [_records.listed(_record(service, service.ledger[row]), quirks) for row in chosen]
    data = _records.page(members, total=len(rows), number=number, size=size, lies=quirks.next_page_lies)
    if quirks.total_error is None:
        del data["totalCount"], data["totalPages"]
    elif quirks.total_error:
        data["totalCount"] = max(0, len(rows) + quirks.total_error)
    return json_reply(_records.read_envelope(data, quirks, status=True))


def get_transaction(service: Service, exchange: Exchange) -> Reply:
    """Answer one transaction."""
    return _one_transaction(service, service.ledger.find(exchange.parameters["id"]))


def get_by_request(service: Service, exchange: Exchange) -> Reply:
    """Answer the first transaction of a requestId, where the quirks offer that."""
    return _one_transaction(service, service.ledger.first_of(exchange.parameters["id"]))


def list_products(service: Service, exchange: Exchange) -> Reply:
    """Answer one page of products."""
    return _listing(service, exchange, [_records.product_record(product) for product in PRODUCTS.values()])


def get_product(service: Service, exchange: Exchange) -> Reply:
    """Answer one product. # Spec: "GET with product id in the path; response `data` = product."."""
    product = PRODUCTS.get(exchange.parameters["id"])
    if product is None:
        raise Refusal(404, Code.NOT_FOUND, "No product has this id")
    return json_reply(_records.read_envelope(_records.product_record(product), service.settings.quirks))


def list_items(service: Service, exchange: Exchange) -> Reply:
    """Answer one page of a product's items. # Spec: "The exact path or parameter ... not shown."."""
    product = PRODUCTS.get(exchange.parameters["id"])
    if product is None:
        raise Refusal(404, Code.NOT_FOUND, "No product has this id")
    return _listing(service, exchange, [_records.item_record(item) for item in product.items])


def validate(service: Service, exchange: Exchange) -> Reply:
    """Say whether an item takes this amount. A productRegex is never applied: some of them are wrong."""
    body = exchange.body()
    item_id = required_text(body, "productItemId")
    required_text(body, "customerReference")
    amount = read_amount(body)
    item = ITEMS.get(item_id)
    refusal = "productItemId is unknown" if item is None else item.refusal(amount)
    if refusal is None:
        return json_reply({"success": 1})  # Spec: "Response: `success` (number; 1 on success)."
    payload = {"success": 0, "message": refusal, "data": None}
    return json_reply(payload, status=service.settings.quirks.validation_refusal_http)


def get_account(service: Service, exchange: Exchange) -> Reply:
    """Answer the account with its balance."""
    settings = service.settings
    account = _records.account_record(settings.account_number, service.balance, settings.currency)
    return json_reply(_records.read_envelope(account, settings.quirks))


def get_card(service: Service, exchange: Exchange) -> Reply:
    """Answer a card, by its id or by the masked number of the body."""
    body = exchange.payload if isinstance(exchange.payload, dict) else {}
    return _card(service, card_record(service.cards.find(exchange.query.get("id"), body), service.settings.currency))


def patch_card(service: Service, exchange: Exchange) -> Reply:
    """Enable a card or reset its PIN."""
    return _card(service, card_record(service.cards.patch(exchange.body()), service.settings.currency))


def endpoints(service: Service) -> tuple[Endpoint, ...]:
    """Return every endpoint this service offers."""
    quirks = service.settings.quirks
    offered = [*_MONEY_ENDPOINTS, *_READS]
    if quirks.requests_path:
        path = "/api/transactions/Requests/{id}"
        offered.append(Endpoint(operation="transaction", method="GET", paths=(path,), answer=get_by_request))
    if quirks.refresh_path is not None:
        paths = (quirks.refresh_path,)
        offered.append(_login_endpoint(paths, refresh))
    validation = Endpoint(
        operation="validation",
        method="POST",
        paths=("/api/products/validation",),
        answer=validate,
        needs_token=quirks.validation_needs_token,
    )
    return (_login_endpoint(("/api/auth/login",), login), validation, *offered)


def _login_endpoint(paths: tuple[str, ...], answer: Answer) -> Endpoint:
    return Endpoint(operation="login", method="POST", paths=paths, answer=answer, needs_token=False, envelope="login")


def _money(channel: Channel, path: str) -> Endpoint:
    return Endpoint(
        operation="collection" if channel == "collections" else "payout",
        method="POST",
        paths=(f"/api/transactions/{path}",),
        answer=partial(place_order, channel),
    )


_MONEY_ENDPOINTS = (
    _money("mobilemoney", "payouts/mobilemoney"),
    _money("banktransfers", "payouts/banktransfers"),
    _money("airtime", "payouts/airtime"),
    _money("internet", "payouts/internet"),
    _money("utilities", "payouts/utilities"),
    _money("collections", "collections/mobilemoney"),
)


def _read(operation: Operation, answer: Answer, *paths: str) -> Endpoint:
    envelope: Envelope = "card" if operation == "card" else "code"
    return Endpoint(operation=operation, method="GET", paths=paths, answer=answer, envelope=envelope)


# Spec: "Some sample requests show paths without the `/api` prefix (`/transactions/{id}`, `/products/{id}`)."
_READS = (
    _read("transactions", list_transactions, "/api/transactions"),
    _read("transaction", get_transaction, "/api/transactions/{id}", "/transactions/{id}"),
    _read("products", list_products, "/api/products"),
    _read("product", get_product, "/api/products/{id}", "/products/{id}"),
    _read("items", list_items, "/api/products/{id}/items", "/products/{id}/items"),
    _read("account", get_account, "/api/accounts"),
    _read("card", get_card, "/cards/", "/cards", "/v2/cards/", "/v2/cards"),
    Endpoint(operation="card", method="PATCH", paths=("/cards", "/cards/"), answer=patch_card, envelope="card"),
)


def _one_transaction(service: Service, execution: Execution | None) -> Reply:
    if execution is None:
        raise Refusal(404, Code.NOT_FOUND, "No transaction has this id")
    quirks = service.settings.quirks
    payload = _records.read_envelope(_records.single(_record(service, execution), quirks), quirks)
    if quirks.single_record_names == "snake":
        payload["success"] = 1  # Spec: "also uses snake_case names (...) and a `success` number"
    return json_reply(payload)


def _record(service: Service, execution: Execution) -> dict[str, object]:
    settings = service.settings
    return _records.record(
        execution,
        settings.quirks,
        shown=service.ledger.shown_status(execution),
        account_number=settings.account_number,
        currency=settings.currency,
    )


def _listing(service: Service, exchange: Exchange, rows: Sequence[object]) -> Reply:
    quirks = service.settings.quirks
    number, size = _paging(service, exchange)
    start = (number - 1) * size
    data = _records.page(
        rows[start : start + size], total=len(rows), number=number, size=size, lies=quirks.next_page_lies
    )
    return json_reply(_records.read_envelope(data, quirks))


def _card(service: Service, card: Mapping[str, object]) -> Reply:
    return json_reply({"success": service.settings.quirks.card_success_flag, "data": card})


def _paging(service: Service, exchange: Exchange) -> tuple[int, int]:
    quirks = service.settings.quirks
    size = _count(exchange, "pageSize", quirks.default_page_size)
    return _count(exchange, "pageNumber", 1), min(size, quirks.max_page_size)


def _count(exchange: Exchange, name: str, default: int) -> int:
    text = exchange.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise Refusal(400, Code.WRONG_VALUE, f"{name} must be a number from 1")
    return int(text)


# words for a status that integrations have met in place of the documented ones
_OTHER_WORDS = {
    "PENDING": Status.PROCESSING,
    "FAILURE": Status.FAILED,
    "SUCCESS": Status.SUCCESSFULL,
    "REVERSED": Status.REVERSED,
    "ENQUEUED": Status.ENQUEUED,
}
_WORDS = {"documented": {str(status): status for status in Status}, "other": _OTHER_WORDS}


def _filtered(service: Service, exchange: Exchange, since: datetime | None, until: datetime | None) -> Sequence[int]:
    quirks, ledger = service.settings.quirks, service.ledger
    listed, text = service.listed(), exchange.query.get("transactionStatus")
    words = _WORDS[quirks.filter_words]
    if quirks.dates_show_nothing and not (since is until is None):
        return ()
    if text is None or quirks.ignores_status_filter or (text not in words and quirks.unknown_filter_word == "ignored"):
        rows = ledger.select(status=None, since=since, until=until)
    elif text in words:
        rows = ledger.select(status=words[text], since=since, until=until)
    elif quirks.unknown_filter_word == "empty":
        rows = ()
    else:
        raise Refusal(400, Code.WRONG_VALUE, f"transactionStatus must be one of {', '.join(words)}")
    return rows if listed == len(ledger) else [row for row in rows if row < listed]


def _dates(service: Service, exchange: Exchange) -> tuple[datetime | None, datetime | None]:
    quirks = service.settings.quirks
    if quirks.ignores_date_filter:
        return None, None
    since = until = None
    for earlier, later in quirks.date_keys:
        since = _boundary(exchange, earlier, after_the_day=False) or since
        until = _boundary(exchange, later, after_the_day=quirks.later_date_inclusive) or until
    return since, until


def _boundary(exchange: Exchange, name: str, *, after_the_day: bool) -> datetime | None:
    text = exchange.query.get(name)
    if text is None:
        return None
    try:
        return read_boundary(text, after_the_day=after_the_day)
    except (ValueError, OverflowError) as error:
        raise Refusal(400, Code.WRONG_VALUE, f"{name} must be a date shaped YYYY-MM-DD") from error
