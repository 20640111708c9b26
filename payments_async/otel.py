"""Traces and metrics by OpenTelemetry: what a session, an outbox and a receiver do, and how long it takes.

It needs the extra ``otel``, which brings OpenTelemetry's API alone; where the traces go is the affair of the SDK that
an application sets up. Nothing of it is sent to the service, and no header of a request changes.

What belongs to one order is joined by ``payments_async.request_id``, in all processes. The call that sends an order,
and the handlers of what became of it, are linked to where it was put: the journal keeps that trace context. Further
links, from a notification or a look-up to the call that sent the order, live in memory, for the last 10,000 orders.

No attribute holds a secret or tells of a person. Paths are shown with ``{id}`` in the place of what they name, and of
errors the type alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from types import TracebackType
from typing import NamedTuple, Self

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as _error:
    if (_error.name or "opentelemetry").partition(".")[0] != "opentelemetry":
        raise
    _REMEDY = "traces and metrics need OpenTelemetry's API: pip install 'payments-async[otel]'"
    raise ModuleNotFoundError(_REMEDY, name="opentelemetry") from _error

from payments_async._values.observing import Fact
from payments_async._values.public import name_publicly
from payments_async._version import __version__

__all__ = ["OpenTelemetry"]

_OURS = "payments_async"
_LOOKS_AGAIN = 1.0  # seconds; asking each time would cost as much as a span, for it looks into the environment
_REMEMBERED = 10_000  # orders and transactions whose spans are linked to
# What a fact is called. One that is not named here is told nobody, so that nothing personal gets in by mistake.
_ATTRIBUTES = {
    # as OpenTelemetry's semantic conventions call them
    "method": "http.request.method",
    "route": "url.template",
    "status": "http.response.status_code",
    "host": "server.address",
    "port": "server.port",
    "error": "error.type",
    # and what is ours
    **{
        name: f"{_OURS}.{name}"
        for name in (
            "answer",
            "attempt",
            "batch_id",
            "conflicts",
            "correlation_id",
            "event",
            "event_id",
            "found",
            "moves_money",
            "outcome",
            "parked",
            "quirk",
            "reason",
            "request_id",
            "settled",
            "state",
            "stopped",
            "transaction_id",
            "unknown",
        )
    },
}
# What metrics tell apart: facts of few values, and so of no single order.
_METRIC_ATTRIBUTES = {
    name: _ATTRIBUTES[name]
    for name in (
        "method",
        "route",
        "status",
        "host",
        "port",
        "error",
        "outcome",
        "event",
        "answer",
        "quirk",
        "reason",
        "state",
    )
}


class _Kind(NamedTuple):
    """A kind of work that is watched.

    Attributes:
        name: Of its span; of one without a name, the method and the path are.
        kind: Of its span.
        starts: Whether it belongs to nothing, wherever it is begun: what brings it about is linked.
    """

    name: str
    kind: SpanKind
    starts: bool = False


_KINDS = {
    "call": _Kind("", SpanKind.CLIENT),
    "login": _Kind("", SpanKind.CLIENT),
    "batch": _Kind("run batch", SpanKind.INTERNAL),
    "reconciliation": _Kind("reconcile", SpanKind.INTERNAL),
    "settling": _Kind("look up open orders", SpanKind.INTERNAL, starts=True),
    "notification": _Kind("take notification", SpanKind.INTERNAL),
    "handling": _Kind("process notification", SpanKind.CONSUMER, starts=True),
    "change": _Kind("process change", SpanKind.CONSUMER, starts=True),
}
_COUNTERS = {
    "quirk": ("quirks", "{quirk}", "Contradictions of the specification that were met in what the service sent."),
    "refusal": ("notifications.refused", "{request}", "Requests that a receiver refused."),
    "dead_letter": ("dead_letters", "{event}", "Events whose handlers failed again and again."),
}
_LEVELS = {
    "orders": ("orders", "{order}", "Orders of an outbox by state."),
    "changes": ("changes", "{change}", "Changes of an outbox that wait for a handler, and dead letters, by state."),
    "held_up": ("held_up", "1", "What of an outbox waits for a person, by reason."),
    "unknown_age": ("unknown.oldest_age", "s", "Seconds since which the oldest unknown order is unknown."),
    "inbox": ("notifications.pending", "{event}", "Notifications in the inbox that wait, by what for."),
    "inbox_age": ("notifications.oldest_age", "s", "Seconds for which the oldest notification waits for its handlers."),
}
_W3C = TraceContextTextMapPropagator()
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class OpenTelemetry:
    """Give the same one to ``PaymentsSession(observer=...)`` and ``Receiver(observer=...)``.

    The page "Traces and metrics" lists spans, attributes and metrics. ``payments_async.outcome`` is ``ok`` or the error
    in small letters, such as ``outcome_unknown``.

    While neither provider does anything, as where OpenTelemetry's API is there and no SDK, calls are made as without
    it. A global provider that is set later is noticed within a second.

    Args:
        tracer_provider: In place of the global one.
        meter_provider: In place of the global one.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.clock = clock
        self._providers = tracer_provider, meter_provider
        self._is_watching = False
        self._look_at = float("-inf")  # when to look next whether anybody has set one
        self._tracer = trace.get_tracer(_OURS, __version__, tracer_provider)
        meter = metrics.get_meter(_OURS, __version__, meter_provider)
        self._exchanges = meter.create_histogram(
            "http.client.request.duration", "s", "Duration of HTTP client requests."
        )
        self._durations = {
            what: meter.create_histogram(f"{_OURS}.{what}.duration", "s", f"Seconds that a {what} takes.")
            for what in _KINDS
        }
        self._counters = {
            what: meter.create_counter(f"{_OURS}.{name}", unit, words)
            for what, (name, unit, words) in _COUNTERS.items()
        }
        self._levels = {
            what: meter.create_gauge(f"{_OURS}.{name}", unit, words) for what, (name, unit, words) in _LEVELS.items()
        }
        self._spans: dict[str, tuple[SpanContext, ...]] = {}  # of one order or transaction, oldest first

    def __repr__(self) -> str:
        return "OpenTelemetry()"

    def is_watching(self) -> bool:
        """Whether a provider does anything with what it is given: that of the API alone does not."""
        if not self._is_watching and (now := self.clock()) >= self._look_at:
            self._look_at = now + _LOOKS_AGAIN
            tracers, meters = self._providers
            self._is_watching = _does_something(tracers or trace.get_tracer_provider()) or _does_something(
                meters or metrics.get_meter_provider()
            )
        return self._is_watching

    def watch(self, what: str, /, **facts: Fact) -> _Work:
        """A span, which is the current one until it ends."""
        return self._begin(what, facts, is_current=True)

    def begin(self, what: str, /, **facts: Fact) -> _Work:
        """A span that ends elsewhere."""
        return self._begin(what, facts, is_current=False)

    def note(self, what: str, /, **facts: Fact) -> None:
        """An event of the current span, linked to what is known of the order; of an exchange also its duration."""
        span = trace.get_current_span()
        seconds = facts.pop("seconds", None)
        if span.is_recording():
            span.add_event(what, _attributes(facts))
            if (status := facts.get("status")) is not None:
                span.set_attribute(_ATTRIBUTES["status"], status)
            for link in self.links(facts.get("request_id"), facts.get("transaction_id")):
                span.add_link(link.context)
        if what == "exchange" and isinstance(seconds, int | float):
            self._exchanges.record(seconds, _metric_attributes(facts))

    def traceparent(self) -> str | None:
        """The current span, as W3C writes it."""
        span = trace.get_current_span().get_span_context()
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else None

    def count(self, what: str, /, **facts: Fact) -> None:
        """Add one to a counter."""
        self._counters[what].add(1, _metric_attributes(facts))

    def level(self, what: str, value: float, /, **facts: Fact) -> None:
        """Set a gauge."""
        self._levels[what].set(value, _metric_attributes(facts))

    def keep(self, span: SpanContext, *names: Fact) -> None:
        """Remember a span of an order or a transaction, to link later ones to it."""
        if not span.is_valid:
            return
        for name in names:
            if isinstance(name, str):
                known = self._spans.pop(name, ())
                self._spans[name] = (*known[-3:], span)
        while len(self._spans) > _REMEMBERED:
            del self._spans[next(iter(self._spans))]

    def links(self, *names: Fact) -> Iterator[Link]:
        """Links to what is known of an order and its transaction."""
        known = {span.span_id: span for name in names if isinstance(name, str) for span in self._spans.get(name, ())}
        return map(Link, known.values())

    def _begin(self, what: str, facts: dict[str, Fact], *, is_current: bool) -> _Work:
        kind = _KINDS[what]
        names = (facts.get("request_id"), facts.get("transaction_id"))
        links = list(self.links(*names))
        if (put := _span_of(facts.pop("traceparent", None))) is not None:
            links.append(Link(put))
        span = self._tracer.start_span(
            kind.name or f"{facts.get('method')} {facts.get('route')}",
            context=context.Context() if kind.starts else None,
            kind=kind.kind,
            attributes=_attributes(facts),
            links=links,
        )
        if facts.get("moves_money") or what == "notification":
            self.keep(span.get_span_context(), *names)  # at once: a notification may overtake the answer
        return _Work(self, what, span, facts, is_current=is_current)

    def measure(self, what: str, seconds: float, facts: Mapping[str, Fact]) -> None:
        """A piece of work took so long."""
        self._durations[what].record(seconds, _metric_attributes(facts))


class _Work:
    """One span, with its measurement at its end."""

    def __init__(
        self, owner: OpenTelemetry, what: str, span: trace.Span, facts: dict[str, Fact], *, is_current: bool
    ) -> None:
        self._owner = owner
        self._what = what
        self._span = span
        self._facts = facts
        self._begun = owner.clock()
        self._token = context.attach(trace.set_span_in_context(span)) if is_current else None

    def tell(self, **facts: Fact) -> None:
        """Attributes of the span."""
        self._facts.update({name: value for name, value in facts.items() if value is not None})
        if self._span.is_recording():
            self._span.set_attributes(_attributes(facts))

    def close(self) -> None:
        """End the span."""
        self._end(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            context.detach(self._token)
        self._end(kind)

    def _end(self, kind: type[BaseException] | None) -> None:
        facts, span = self._facts, self._span
        if kind is not None:
            facts |= {"outcome": _WORDS.sub("_", kind.__name__).lower(), "error": kind.__qualname__}
        facts.setdefault("outcome", "failed" if "error" in facts else "ok")
        if span.is_recording():
            span.set_attributes(_attributes({name: facts.get(name) for name in ("outcome", "error")}))
            if "error" in facts:
                span.set_status(Status(StatusCode.ERROR))
        span.end()
        self._owner.measure(self._what, self._owner.clock() - self._begun, facts)
        if facts.get("moves_money"):
            self._owner.keep(span.get_span_context(), facts.get("transaction_id"))


def _span_of(traceparent: Fact) -> SpanContext | None:
    """The span that a trace context names, if it is one."""
    if not isinstance(traceparent, str):
        return None
    found = trace.get_current_span(_W3C.extract({"traceparent": traceparent})).get_span_context()
    return found if found.is_valid else None


def _does_something(provider: object) -> bool:
    """Whether it is a provider of an SDK: those of the API drop all, or stand for one that nobody has set yet."""
    return type(provider).__module__.split(".")[:2] not in (["opentelemetry", "trace"], ["opentelemetry", "metrics"])


def _attributes(facts: Mapping[str, Fact]) -> dict[str, str | int | float | bool]:
    found = {}
    for name, value in facts.items():
        if value is not None and (attribute := _ATTRIBUTES.get(name)) is not None:
            found[attribute] = value
    return found


def _metric_attributes(facts: Mapping[str, Fact]) -> dict[str, str | int | float | bool]:
    found = {}
    for name, value in facts.items():
        if value is not None and (attribute := _METRIC_ATTRIBUTES.get(name)) is not None:
            found[attribute] = value
    return found


name_publicly(globals())
