"""What a hook is told of each attempt of a call, and whether there will be another one."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterable
from typing import Any

from payments_async._values.errors import PaymentsError
from payments_async._values.frozen import frozen
from payments_async._values.masking import redact
from payments_async._values.tracebacks import place_of
from payments_async._wire.call import Call, Reply
from payments_async._wire.replies import correlation_id_of

_log = logging.getLogger("payments_async")


@frozen(kw_only=True)
class Attempt:
    """One attempt of a call, once it has ended.

    Attributes:
        method, path: What was asked; of a path, what tells of a person is masked.
        request_id: Of the order, where there is one.
        number: 1 for the first. An outbox counts on with each permit of an order.
        status: The HTTP status, or ``None`` where no usable answer came.
        correlation_id: The service's own reference for the exchange, where its answer names one.
        error: The class of the error that it ended with, such as ``OutcomeUnknown``; ``None`` where it succeeded.
        seconds: How long it took, with the wait for a place and for a login.
        again_in: Seconds until the call is tried again by itself, or ``None``. An outbox tries later by itself.
    """

    method: str
    path: str
    request_id: str | None = None
    number: int = 1
    status: int | None = None
    correlation_id: str | None = None
    error: str | None = None
    seconds: float = 0.0
    again_in: float | None = None


AttemptHook = Callable[[Attempt], object]


def tell_attempt(
    hooks: Iterable[AttemptHook],
    call: Call[Any],
    reply: Reply | None,
    error: PaymentsError | None,
    *,
    number: int,
    seconds: float,
    again_in: float | None,
) -> None:
    """Tell hooks of an attempt. What they raise is logged and changes nothing."""
    attempt = Attempt(
        method=call.method,
        path=redact(call.path, call.private()),
        request_id=call.request_id,
        number=call.attempt + number - 1,
        status=reply.status if reply is not None else None if error is None else error.status,
        correlation_id=None if reply is None else correlation_id_of(reply),
        error=None if error is None else type(error).__name__,
        seconds=seconds,
        again_in=again_in,
    )
    for hook in hooks:
        try:
            hook(attempt)
        except (Exception, CancelledError) as failure:  # noqa: BLE001 - the call has ended so, whatever a hook makes of it
            facts = {"error": type(failure).__name__, "place": place_of(failure), "request_id": call.request_id}
            _log.error("a hook of attempts failed: %s", facts["error"], extra=facts)
