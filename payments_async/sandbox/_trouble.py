"""Faults of the answer, carried out on the wire. Does not choose whom they strike."""

from aiohttp import web

from ._endpoints import Endpoint
from ._faults import Fault, Strike
from ._refusals import Code, Refusal
from ._replies import Reply, page_reply, refused
from ._service import Service

_CHUNK = 65_536


def respond(reply: Reply) -> web.Response:
    """Turn a reply into what aiohttp sends."""
    return web.Response(
        status=reply.status, body=reply.body, content_type=reply.content_type, headers=dict(reply.headers)
    )


def turned_away(strike: Strike, service: Service, endpoint: Endpoint, request: web.Request) -> web.Response:
    """Answer a call that is not carried out."""
    options = strike.options
    match strike.fault:
        case Fault.LOST_BEFORE:
            return _hang_up(request)
        case Fault.REDIRECT:
            return web.Response(status=307, headers={"Location": request.path_qs})
        case Fault.ERROR_BEFORE:
            return respond(_error(strike, endpoint))
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
    return respond(refused(refusal, endpoint.envelope))


async def distorted(
    strike: Strike, reply: Reply, service: Service, endpoint: Endpoint, request: web.Request
) -> web.StreamResponse:
    """Answer a call that was carried out, in the way of the fault."""
    match strike.fault:
        case Fault.LOST_AFTER:
            return _hang_up(request)
        case Fault.ERROR_AFTER:
            return respond(_error(strike, endpoint))
        case Fault.SLOW:
            await service.scheduler.sleep(strike.options["seconds"])
            return respond(reply)
        case Fault.TRUNCATED:
            return await _truncated(reply, request)
        case Fault.HTML:
            return respond(page_reply(200))
        case Fault.GARBAGE:
            return respond(Reply(body=reply.body[: len(reply.body) // 2]))
        case Fault.HUGE:
            return await _huge(reply, int(strike.options["size"]), request)
        case Fault.WRONG_ECHO:
            return respond(reply)
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
