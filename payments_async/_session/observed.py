"""The calls of a session that somebody watches. Without an observer nothing of this is in the way of a call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Self, TypeVar

from multidict import CIMultiDict
from yarl import URL

from payments_async._session.executor import Executor
from payments_async._session.limits import RetryPolicy
from payments_async._session.transport import Outgoing, Patience, Transport
from payments_async._values.errors import PaymentsError
from payments_async._values.observing import Fact, Observer
from payments_async._wire.call import Call, Reply, TransportFailure
from payments_async._wire.dialect import Dialect
from payments_async._wire.kinds import KINDS
from payments_async._wire.models import Acceptance, Transaction
from payments_async._wire.replies import read_login

T = TypeVar("T")

_WORDS = frozenset(["auth", "login", "transactions", "products", "validation", "accounts", "cards", "v1", "v2"])
_ANY = "{id}"


class FactsOfCalls:
    """What is told of each call to a service: where it goes, without whatever the path says of an order or a person."""

    def __init__(self, base_url: str, dialect: Dialect) -> None:
        url = URL(base_url)
        self._place: dict[str, Fact] = {"host": url.host, "port": url.port}
        self._words = set(_WORDS)
        self._known: dict[str, dict[str, Fact]] = {}  # of the paths that name nothing, which are few
        self.learn(dialect)

    def learn(self, dialect: Dialect) -> None:
        """The paths of this dialect are shown as well."""
        paths = [row.path or dialect.internet_path for row in KINDS.values()]
        paths += [dialect.api_prefix, dialect.internet_path, dialect.product_items_path, dialect.cards_path]
        paths += [dialect.card_patch_path, dialect.refresh_path or "", dialect.find_by_request_path or ""]
        self._words.update(word for path in paths for word in path.split("/") if "{" not in word)

    def __call__(self, call: Call[Any]) -> dict[str, Fact]:
        facts = self._known.get(call.label)
        if facts is not None:
            return facts
        route = "/".join(word if word in self._words else _ANY for word in call.path.split("/"))
        facts = {"method": call.method, "route": route, **self._place}
        if route == call.path:
            self._known[call.label] = facts
        return facts


class _Observed:
    """Told to an observer, once that has begun."""

    _observer: Observer
    _facts_of: FactsOfCalls

    def observe(self, observer: Observer, facts_of: FactsOfCalls) -> None:
        """Begin to tell."""
        self._observer = observer
        self._facts_of = facts_of


class ObservedTransport(_Observed, Transport):
    """Tells of each exchange, those of logins included."""

    def exchange(
        self, call: Call[Any], outgoing: Outgoing | None, headers: CIMultiDict[str], patience: Patience
    ) -> Coroutine[Any, Any, Reply]:
        """Send one call once, as ``Transport`` does, and tell what came back and how long it took."""
        if not self._observer.is_watching():
            return super().exchange(call, outgoing, headers, patience)
        if call.read is read_login:
            return self._told_login(call, outgoing, headers, patience)
        return self._told(call, outgoing, headers, patience)

    async def _told_login(
        self, call: Call[Any], outgoing: Outgoing | None, headers: CIMultiDict[str], patience: Patience
    ) -> Reply:
        with self._observer.watch("login", **self._facts_of(call)) as watched:
            reply = await self._told(call, outgoing, headers, patience)
            if reply.status >= 400:
                watched.tell(error=str(reply.status))
            return reply

    async def _told(
        self, call: Call[Any], outgoing: Outgoing | None, headers: CIMultiDict[str], patience: Patience
    ) -> Reply:
        begun = self._clock()
        status: int | None = None
        error: str | None = None
        try:
            reply = await super().exchange(call, outgoing, headers, patience)
            status = reply.status
            if status >= 400:
                error = str(status)
            return reply
        except TransportFailure as failure:
            error = "timeout" if "timeout" in str(failure) else "no_answer"
            raise
        except BaseException as failure:
            error = type(failure).__qualname__
            raise
        finally:
            seconds = self._clock() - begun
            self._observer.note("exchange", **self._facts_of(call), status=status, error=error, seconds=seconds)


class ObservedExecutor(_Observed, Executor):
    """Tells of each call, from when it asks for a place until its outcome is known."""

    def with_options(
        self,
        *,
        dialect: Dialect | None,
        retry: RetryPolicy | None,
        patience: Patience | None,
        headers: Mapping[str, str] | None,
        query: Mapping[str, str] | None = None,
    ) -> Self:
        """As ``Executor`` does; the paths of another dialect may be told too."""
        if dialect is not None:
            self._facts_of.learn(dialect)
        return super().with_options(dialect=dialect, retry=retry, patience=patience, headers=headers, query=query)

    def execute(
        self, call: Call[T], *, retry: RetryPolicy | None = None, may_leave: Callable[[], bool] | None = None
    ) -> Coroutine[Any, Any, T]:
        """Make a call and read its answer, watched if anybody watches now."""
        if self._observer.is_watching():
            return self._watched(call, retry, may_leave)
        return super().execute(call, retry=retry, may_leave=may_leave)

    async def _watched(self, call: Call[T], retry: RetryPolicy | None, may_leave: Callable[[], bool] | None) -> T:
        facts, observer = self._facts_of(call), self._observer
        if call.read_quickly is not None:
            call = _counted(call, observer, facts["route"])
        attempt = call.attempt if call.once and call.attempt > 1 else None
        with observer.watch(
            "call",
            request_id=call.request_id,
            moves_money=call.once,
            attempt=attempt,
            traceparent=call.traceparent,
            **facts,
        ) as watched:
            try:
                result = await super().execute(call, retry=retry, may_leave=may_leave)
            except PaymentsError as error:
                watched.tell(status=error.status, correlation_id=error.correlation_id)
                watched.tell(transaction_id=getattr(error, "transaction_id", None))
                raise
            if isinstance(result, Acceptance | Transaction):
                watched.tell(transaction_id=result.transaction_id)
            if isinstance(result, Acceptance):
                watched.tell(correlation_id=result.correlation_id)
            return result


def start_observing(executor: Executor, observer: Observer) -> None:
    """Have a session's calls and exchanges told."""
    facts_of = FactsOfCalls(executor.transport.base_url, executor.dialect)
    executor.observer = observer
    for part in (executor, executor.transport):
        if isinstance(part, _Observed):
            part.observe(observer, facts_of)


def _counted(call: Call[T], observer: Observer, route: Fact) -> Call[T]:
    """The call, with a note where its answer is none of the usual ones: that is a quirk of the service."""
    read = call.read

    def read_unusual(answer: Any) -> T:
        result = read(answer)
        observer.count("quirk", quirk="answer_in_another_shape", route=route)
        return result

    counted = copy.copy(call)
    counted.read = read_unusual
    return counted
