"""The service as an aiohttp application: routes, the way of one call through them, and the trouble on that way."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from email.utils import format_datetime
from functools import partial

from aiohttp import web

from ._clock import Clock, ManualClock, SystemClock
from ._endpoints import UNREADABLE, Endpoint, Exchange, endpoints
from ._faults import NOT_CARRIED_OUT, Fault, Strike
from ._records import Reply, page_reply, refused
from ._refusals import Code, Refusal
from ._service import Received, Service
from ._spelling import read_json

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
