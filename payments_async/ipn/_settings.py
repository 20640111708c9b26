"""Settings of a receiver that few applications need."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from payments_async._values.frozen import field, frozen
from payments_async._values.observing import Observer
from payments_async._wire.dialect import Dialect
from payments_async._wire.events import TransactionEvent

THIS_MACHINE = ("127.0.0.0/8", "::1")


@frozen(kw_only=True)
class ReceiverSettings:
    """What a receiver does beside taking notifications from its senders.

    Attributes:
        shadow: Answer 200 to senders that would be refused, and only report them: in the log, and in a journal
            (``journal.dubious()``). Their notifications settle no order and reach no handler.
        reported: Called in shadow for each such notification, with the address it came from.
        proxy_headers: Headers in which your proxies name the address that they forward for.
        max_body: Longest body in bytes. A body with a content coding is refused.
        body_time: Seconds that a body may take to arrive.
        dialect: Gives the zone of timestamps without one, and the ``ResponseCode`` of our answer.
        owner: Name of this receiver in a shared journal; random by default. On Windows, a name that stays the same
            after a restart takes back at once what the dead process held.
        observer: Watches what it does, such as ``payments_async.otel.OpenTelemetry()``. Use that of the session.

    >>> receiver = Receiver(JOURNAL, settings=ReceiverSettings(shadow=True, body_time=5.0))
    """

    shadow: bool = False
    reported: Callable[[TransactionEvent, str], object] = lambda event, sender: None
    proxy_headers: Iterable[str] = ("X-Forwarded-For", "Forwarded")
    max_body: int = 64 * 1024
    body_time: float = 10.0
    dialect: Dialect = field(factory=Dialect)
    owner: str | None = None
    observer: Observer | None = None


@frozen(kw_only=True)
class ServerLimits:
    """How much a server of notifications takes from anybody.

    Attributes:
        header_time: Seconds from a request's first byte, or a connection's beginning, to the end of its headers.
        keepalive: Seconds that a connection may be idle between two requests.
        connections: Most connections at once; a further one is closed.
        connections_each: Most of them from one address that is not a trusted proxy. By default a quarter of all; no
            limit for an application.
        visitors: Further addresses and networks whose connections are taken, such as that of a health check.

    >>> ServerLimits(connections=200, visitors=["10.0.0.0/8"]).connections
    200
    """

    header_time: float = 10.0
    keepalive: float = 75.0
    connections: int = 1000
    connections_each: int | None = None
    visitors: Iterable[str] = THIS_MACHINE

    def __attrs_post_init__(self) -> None:
        for name in ("header_time", "connections", "connections_each"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"{name}: must be above 0")
