"""The service as an aiohttp application: its endpoints, the way of one call to them, and the trouble on that way."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from email.utils import format_datetime
from functools import partial
from typing import Final

import attrs
from aiohttp import web

from . import _records
from ._cards import card_record
from ._catalogue import ITEMS, PRODUCTS, Channel
from ._clock import Clock, ManualClock, SystemClock
from ._faults import MONEY, NOT_CARRIED_OUT, Fault, Operation, Strike
from ._ledger import Execution, Status
from ._orders import OrderRules, read_amount, read_order
from ._records import Envelope, Reply, json_reply, page_reply, refused
from ._service import Received, Service
from ._spelling import Code, Refusal, read_boundary, read_json, required_text

UNREADABLE: Final = object()  # stands for a body that is not JSON


@attrs.frozen(kw_only=True)
class Exchange:
    """One call, read but not yet judged.

    Attributes:
        payload: The decoded body, None without one, `UNREADABLE` if it is not JSON.
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
    order = read_order(exchange.body(), OrderRules(channel), quirks, service.settings.account.number)
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
    account = _records.account_record(settings.account.number, service.balance, settings.account.currency)
    return json_reply(_records.read_envelope(account, settings.quirks))


def get_card(service: Service, exchange: Exchange) -> Reply:
    """Answer a card, by its id or by the masked number of the body."""
    body = exchange.payload if isinstance(exchange.payload, dict) else {}
    return _card(
        service, card_record(service.cards.find(exchange.query.get("id"), body), service.settings.account.currency)
    )


def patch_card(service: Service, exchange: Exchange) -> Reply:
    """Enable a card or reset its PIN."""
    return _card(service, card_record(service.cards.patch(exchange.body()), service.settings.account.currency))


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
        account_number=settings.account.number,
        currency=settings.account.currency,
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


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_CHUNK = 65_536
_WRONG_ECHO = "echo-of-another-request"


def application(
    service: Service,
    prefix: str,
    control: Iterable[web.RouteDef],
    lifetime: Callable[[web.Application], AsyncIterator[None]],
) -> web.Application:
    """Return the application that serves this service under a path prefix."""
    app = web.Application()
    for endpoint in endpoints(service):
        handler = _handler(service, endpoint)
        for path in endpoint.paths:
            app.router.add_route(endpoint.method, prefix + path, handler, expect_handler=partial(_expected, service))
    app.router.add_routes(control)
    app.router.add_route("*", "/{anything:.*}", _nowhere)
    app.cleanup_ctx.append(lifetime)
    if not isinstance(service.clock, SystemClock | ManualClock):  # whose day is its own, and no session's
        app.on_response_prepare.append(partial(_date, service.clock))
    return app


async def _date(clock: Clock, _: web.BaseRequest, answer: web.StreamResponse) -> None:
    """Let an answer be dated by the sandbox's clock: whoever compares clocks finds one time at both ends."""
    answer.headers["Date"] = format_datetime(clock.now(), usegmt=True)


async def _expected(service: Service, request: web.Request) -> None:
    """Tell a request that waits with its body to go on, unless a quirk says otherwise."""
    says = service.settings.quirks.expect_continue
    if says == "refused":
        raise web.HTTPExpectationFailed
    if says == "answered" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def _handler(service: Service, endpoint: Endpoint) -> Handler:
    needs_token = endpoint.needs_token
    keeps_evidence = not service.settings.fast

    async def handle(request: web.Request) -> web.StreamResponse:
        service.note_asked()
        try:
            body = await request.read()
        except ConnectionResetError:  # nobody is there any more, as where it waited to be told to go on
            return web.Response(status=400)
        if keeps_evidence:
            service.requests.append(_received(service, request, body))
        try:
            service.access.admit(request.remote)
            if needs_token:
                service.access.authorise(request.headers.get("Authorization"))
        except Refusal as refusal:
            return _respond(refused(refusal, endpoint.envelope))
        return await _answered(service, endpoint, request, _payload(body))

    return handle


async def _answered(service: Service, endpoint: Endpoint, request: web.Request, payload: object) -> web.StreamResponse:
    """Answer a call that was let in. Nothing is awaited between the fault's choice and the execution."""
    exchange = _exchange(request, payload, echo=None)
    strike = service.faults.answer(endpoint.operation, exchange.request_id if endpoint.is_money else None)
    if strike is None:
        return _respond(await _reply(service, endpoint, exchange))
    if strike.fault in NOT_CARRIED_OUT:
        return _turned_away(strike, service, endpoint, request)
    if strike.fault is Fault.WRONG_ECHO:
        exchange = _exchange(request, payload, echo=_WRONG_ECHO)
    reply = await _reply(service, endpoint, exchange)
    return await _distorted(strike, reply, service, endpoint, request)


async def _reply(service: Service, endpoint: Endpoint, exchange: Exchange) -> Reply:
    try:
        reply = endpoint.answer(service, exchange)
    except Refusal as refusal:
        return refused(refusal, endpoint.envelope)
    if reply.notify_first is not None:
        await service.notifier.deliver(reply.notify_first)
    return reply


def _exchange(request: web.Request, payload: object, echo: str | None) -> Exchange:
    return Exchange(
        query=request.query,
        parameters=request.match_info,
        content_type=request.content_type,
        payload=payload,
        echo=echo,
    )


def _payload(body: bytes) -> object:
    if not body:
        return None
    try:
        return read_json(body)
    except ValueError:
        return UNREADABLE


def _received(service: Service, request: web.Request, body: bytes) -> Received:
    return Received(
        method=request.method,
        path=request.path,
        query=dict(request.query),
        headers=dict(request.headers),
        body=body,
        at=service.clock.now(),
    )


async def _nowhere(request: web.Request) -> web.Response:
    """Answer 405 where another method would do, 404 where none would."""
    allowed: set[str] = set()
    for resource in request.app.router.resources():
        _, methods = await resource.resolve(request)
        allowed |= methods
    allowed.discard("*")
    if not allowed:
        return _respond(refused(Refusal(404, Code.NOT_FOUND, "There is nothing at this path"), "code"))
    headers = {"Allow": ", ".join(sorted(allowed))}
    return _respond(refused(Refusal(405, Code.WRONG_METHOD, "This path takes another method", headers), "code"))


def _respond(reply: Reply) -> web.Response:
    """Turn a reply into what aiohttp sends."""
    return web.Response(
        status=reply.status, body=reply.body, content_type=reply.content_type, headers=dict(reply.headers)
    )


def _turned_away(strike: Strike, service: Service, endpoint: Endpoint, request: web.Request) -> web.Response:
    """Answer a call that is not carried out."""
    options = strike.options
    match strike.fault:
        case Fault.LOST_BEFORE:
            return _hang_up(request)
        case Fault.REDIRECT:
            return web.Response(status=307, headers={"Location": request.path_qs})
        case Fault.ERROR_BEFORE:
            return _respond(_error(strike, endpoint))
        case Fault.RATE_LIMITED:
            wait = {"Retry-After": f"{options['seconds']:g}"}
            refusal = Refusal(429, Code.TOO_MANY, "Too many requests", wait)
        case Fault.TOKEN_REVOKED:
            service.access.revoke()
            refusal = Refusal(401, Code.UNAUTHORISED, "Unauthorized", {"WWW-Authenticate": "Token"})
        case Fault.REFUSED:
            refusal = Refusal(400, options["code"], options["message"])
        case Fault.REFUSED_200:
            refusal = Refusal(200, options["code"], options["message"])
        case fault:
            raise AssertionError(f"{fault.name} does not turn a call away")
    return _respond(refused(refusal, endpoint.envelope))


async def _distorted(
    strike: Strike, reply: Reply, service: Service, endpoint: Endpoint, request: web.Request
) -> web.StreamResponse:
    """Answer a call that was carried out, in the way of the fault."""
    match strike.fault:
        case Fault.LOST_AFTER:
            return _hang_up(request)
        case Fault.ERROR_AFTER:
            return _respond(_error(strike, endpoint))
        case Fault.SLOW:
            await service.scheduler.sleep(strike.options["seconds"])
            return _respond(reply)
        case Fault.TRUNCATED:
            return await _truncated(reply, request)
        case Fault.HTML:
            return _respond(page_reply(200))
        case Fault.GARBAGE:
            return _respond(Reply(body=reply.body[: len(reply.body) // 2]))
        case Fault.HUGE:
            return await _huge(reply, int(strike.options["size"]), request)
        case Fault.WRONG_ECHO:
            return _respond(reply)
        case fault:
            raise AssertionError(f"{fault.name} does not distort an answer")


def _error(strike: Strike, endpoint: Endpoint) -> Reply:
    status = int(strike.options["status"])
    if strike.options["html"]:
        return page_reply(status)
    return refused(Refusal(status, Code.FAILURE, "Something went wrong, please try again later"), endpoint.envelope)


def _hang_up(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()  # aiohttp wants one; the connection it would go to is gone


async def _truncated(reply: Reply, request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": reply.content_type, "Content-Length": str(len(reply.body))})
    await answer.prepare(request)
    await answer.write(reply.body[: len(reply.body) // 2])
    if request.transport is not None:
        request.transport.close()  # unlike abort, this lets the first half leave
    return answer


async def _huge(reply: Reply, size: int, request: web.Request) -> web.StreamResponse:
    """Send the reply followed by blanks, which JSON allows, so that only its size is wrong."""
    left = max(0, size - len(reply.body))
    length = str(len(reply.body) + left)
    answer = web.StreamResponse(headers={"Content-Type": reply.content_type, "Content-Length": length})
    try:
        await answer.prepare(request)
        await answer.write(reply.body)
        while left:
            chunk = min(left, _CHUNK)
            await answer.write(b" " * chunk)
            left -= chunk
    except ConnectionError:
        pass  # a caller with a limit hangs up in the middle, as it should
    return answer
