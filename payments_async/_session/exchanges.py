"""What is told of calls: the exchanges within a block of code, word for word, and each attempt to hooks."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Protocol, Self, overload

from multidict import CIMultiDict

from payments_async._values.errors import PaymentsError
from payments_async._values.frozen import field, frozen
from payments_async._values.masking import redact
from payments_async._values.tracebacks import place_of
from payments_async._wire.call import Call, Reply, Unreadable
from payments_async._wire.codec import decode
from payments_async._wire.models import Page
from payments_async._wire.replies import correlation_id_of


@frozen(kw_only=True)
class Exchange:
    """One exchange with the service: what was asked, and what came back.

    Attributes:
        method, path: What was asked; of a path, what tells of a person is masked.
        request_id: Of the order, where there is one.
        status: The HTTP status, or ``None`` where no usable answer came.
        correlation_id: The service's own reference for the exchange, where its answer names one.
        headers: Of the answer; names have no case. They are not shown.
        body: The answer as it came. It may tell of persons, and is not shown.
    """

    method: str
    path: str
    request_id: str | None = None
    status: int | None = None
    correlation_id: str | None = None
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(factory=CIMultiDict, repr=False)

    def json(self) -> Any:
        """The answer's JSON; numbers with a fraction or an exponent are ``Decimal``, digit for digit.

        Raises:
            ValueError: It is not JSON.
        """
        try:
            return decode(self.body)
        except Unreadable as error:
            raise ValueError(error.message) from None


class HasBlocks(Protocol):
    """What a session is for these blocks.

    Attributes:
        blocks: Those that are open.
    """

    blocks: list[Exchanges]


class Exchanges(Sequence[Exchange]):
    """The exchanges that a session makes within a ``with`` block, the first one first; without those of logins.

    They are those of the task that the block runs in, of tasks that are started within it, and of the outboxes of the
    session in this process. Each attempt of a call is one, and so is each page of a list. After the block they stay.
    """

    def __init__(self, keep: int, *, of: HasBlocks) -> None:
        self._made: deque[tuple[Exchange, object]] = deque(maxlen=keep)
        self._whose = of
        self._outer: Exchanges | None = None
        self._token: Token[Listener | None] | None = None
        self._is_over = False

    @overload
    def __getitem__(self, index: int) -> Exchange: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Exchange]: ...
    def __getitem__(self, index: int | slice) -> Exchange | Sequence[Exchange]:
        if isinstance(index, slice):
            return [exchange for exchange, _ in list(self._made)[index]]
        return self._made[index][0]

    def __len__(self) -> int:
        return len(self._made)

    def __repr__(self) -> str:
        return f"<Exchanges {list(self)!r}>"

    def of(self, result: object) -> Exchange | None:
        """The exchange that told a result, a row of a page or an error, that very object; or the last one of an order.

        ``None`` where none of these did, as for an order that had been accepted before and was not sent again.

        Args:
            result: The object, or the request id of an order.
        """
        for exchange, told in reversed(self._made):
            if isinstance(result, str) and exchange.request_id == result:
                return exchange
            if told is result or (isinstance(told, Page) and any(row is result for row in told.collection)):
                return exchange
        return None

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError("these exchanges were listened to before; ask the session for new ones")
        outer = _listening.get()
        self._outer = outer if isinstance(outer, Exchanges) else None
        self._token = _listening.set(self)
        self._whose.blocks.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._whose.blocks[:] = [block for block in self._whose.blocks if block is not self]
        if self._token is not None:
            with suppress(ValueError):  # a generator may be left in another context than it was entered in
                _listening.reset(self._token)

    def hear(self, whose: HasBlocks, call: Call[Any], reply: Reply | None, told: object) -> None:
        """An exchange was made, by this session or another; the blocks around this one hear of it too."""
        block: Exchanges | None = self
        while block is not None:
            if block._whose is whose and not block._is_over:
                block._made.append((_exchange(call, reply), told))
            block = block._outer


class _EveryBlock:
    """What hears the exchanges of an outbox: every block of its session that is open."""

    def hear(self, whose: HasBlocks, call: Call[Any], reply: Reply | None, told: object) -> None:
        """An exchange was made."""
        for block in whose.blocks:
            block._made.append((_exchange(call, reply), told))


Listener = Exchanges | _EveryBlock
_listening: ContextVar[Listener | None] = ContextVar("payments_async_exchanges", default=None)


@contextmanager
def heard_by_every_block() -> Iterator[None]:
    """What is begun here makes exchanges for anybody: they are heard in every block of the session."""
    token = _listening.set(_EveryBlock())
    try:
        yield
    finally:
        _listening.reset(token)


listening = _listening.get  # who listens here and now: asked once for each exchange


def _exchange(call: Call[Any], reply: Reply | None) -> Exchange:
    path = redact(call.path, call.private())
    if reply is None:
        return Exchange(method=call.method, path=path, request_id=call.request_id)
    return Exchange(
        method=call.method,
        path=path,
        request_id=call.request_id,
        status=reply.status,
        correlation_id=correlation_id_of(reply),
        body=reply.body,
        headers=CIMultiDict(reply.headers or ()),
    )


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
