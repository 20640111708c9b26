"""The service as an aiohttp application: routes, and the way of one call through them. Holds no state."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from aiohttp import web

from . import _json
from ._endpoints import UNREADABLE, Endpoint, Exchange, endpoints
from ._faults import NOT_CARRIED_OUT, Fault
from ._refusals import Code, Refusal
from ._replies import Reply, refused
from ._service import Received, Service
from ._trouble import distorted, respond, turned_away

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
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
            app.router.add_route(endpoint.method, prefix + path, handler)
    app.router.add_routes(control)
    app.router.add_route("*", "/{anything:.*}", _nowhere)
    app.cleanup_ctx.append(lifetime)
    return app


def _handler(service: Service, endpoint: Endpoint) -> Handler:
    needs_token = endpoint.needs_token
    keeps_evidence = not service.settings.fast

    async def handle(request: web.Request) -> web.StreamResponse:
        service.note_asked()
        body = await request.read()
        if keeps_evidence:
            service.requests.append(_received(service, request, body))
        try:
            service.access.admit(request.remote)
            if needs_token:
                service.access.authorise(request.headers.get("Authorization"))
        except Refusal as refusal:
            return respond(refused(refusal, endpoint.envelope))
        return await _answered(service, endpoint, request, _payload(body))

    return handle


async def _answered(service: Service, endpoint: Endpoint, request: web.Request, payload: object) -> web.StreamResponse:
    """Answer a call that was let in. Nothing is awaited between the fault's choice and the execution."""
    exchange = _exchange(request, payload, echo=None)
    strike = service.faults.answer(endpoint.operation, exchange.request_id if endpoint.is_money else None)
    if strike is None:
        return respond(await _reply(service, endpoint, exchange))
    if strike.fault in NOT_CARRIED_OUT:
        return turned_away(strike, service, endpoint, request)
    if strike.fault is Fault.WRONG_ECHO:
        exchange = _exchange(request, payload, echo=_WRONG_ECHO)
    reply = await _reply(service, endpoint, exchange)
    return await distorted(strike, reply, service, endpoint, request)


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
        return _json.read(body)
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
        return respond(refused(Refusal(404, Code.NOT_FOUND, "There is nothing at this path"), "code"))
    headers = {"Allow": ", ".join(sorted(allowed))}
    return respond(refused(Refusal(405, Code.WRONG_METHOD, "This path takes another method", headers), "code"))
