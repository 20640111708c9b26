"""Traces and metrics, as OpenTelemetry's own SDK gets them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from bulk.worlds import BATCH, payout, payouts, session
from nested import for_sandbox

from payments_async import Dialect, OutcomeUnknown, PaymentsSession, Rejected
from payments_async.bulk import RunSettings, reconcile, run_batch
from payments_async.ipn import HandlerPolicy, Receiver, ReceiverSettings, TransactionSucceeded
from payments_async.journal import Entry, SqliteJournal, State
from payments_async.outbox import Outbox
from payments_async.sandbox import Fault, ManualClock, Quirks, Sandbox
from payments_async.testing import deliver, notification

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK comes with the extra 'test'")
from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from payments_async import otel
from payments_async._values.observing import guarded
from payments_async.otel import OpenTelemetry

PAYOUT = "POST /api/transactions/payouts/mobilemoney"


@attrs.define
class Telescope:
    """What was traced and measured, with an observer for it."""

    spans: InMemorySpanExporter
    metrics: InMemoryMetricReader
    observer: OpenTelemetry
    tracer: trace.Tracer

    def named(self, name: str) -> list[ReadableSpan]:
        """The finished spans of a name, the first one first."""
        return [span for span in self.spans.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only one of a name."""
        (span,) = self.named(name)
        return span

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """What a metric holds now: attributes and value; of a histogram its count."""
        data = self.metrics.get_metrics_data()
        metrics = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
        return [
            (dict(point.attributes), getattr(point, "value", getattr(point, "count", None)))
            for metric in metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


NEVER_SENDS: dict[str, Any] = {"worker": None}


def telescope_of() -> Telescope:
    """Providers of their own: the global ones can be set once in a process."""
    spans, metrics, tracers = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    observer = OpenTelemetry(tracers, MeterProvider([metrics]))
    return Telescope(spans, metrics, observer, tracers.get_tracer("application"))


@pytest.fixture
def telescope() -> Telescope:
    """What this process traces and measures."""
    return telescope_of()


@attrs.define
class Scene:
    """A service, and a session and a journal with it."""

    sandbox: Sandbox
    payments: PaymentsSession
    journal: SqliteJournal


@asynccontextmanager
async def scene(folder: Path, telescope: Telescope, **settings: Any) -> AsyncIterator[Scene]:
    """Open everything; settings are the sandbox's."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(**for_sandbox(settings)))
        payments = await stack.enter_async_context(session(sandbox, observer=telescope.observer))
        journal = await stack.enter_async_context(SqliteJournal(folder / "journal.db"))
        yield Scene(sandbox, payments, journal)


def linked(span: ReadableSpan) -> set[int]:
    """The ids of the spans that it is linked to."""
    return {link.context.span_id for link in span.links}


def everything(telescope: Telescope) -> str:
    """All that left the process, in one text."""
    data = telescope.metrics.get_metrics_data()
    return "".join(span.to_json() for span in telescope.spans.get_finished_spans()) + (
        "" if data is None else data.to_json()
    )


async def test_a_call_is_one_span(tmp_path: Path, telescope: Telescope) -> None:
    """It tells where it went, of which order, and how that ended; the login within it is a span of its own."""
    async with scene(tmp_path, telescope) as here:
        acceptance = await here.payments.payouts.send(payout(1))
    span = telescope.one(PAYOUT)
    login = telescope.one("POST /api/auth/login")
    attributes = dict(span.attributes or {})
    assert (SpanKind.CLIENT, StatusCode.UNSET) == (span.kind, span.status.status_code)
    assert "127.0.0.1" == attributes.pop("server.address")
    assert isinstance(attributes.pop("server.port"), int)
    assert {
        "http.request.method": "POST",
        "url.template": "/api/transactions/payouts/mobilemoney",
        "http.response.status_code": 200,
        "payments_async.request_id": payout(1).request_id,
        "payments_async.transaction_id": acceptance.transaction_id,
        "payments_async.moves_money": True,
        "payments_async.outcome": "ok",
    } == attributes
    assert login.parent is not None
    assert span.context.span_id == login.parent.span_id
    assert ["exchange"] == [event.name for event in span.events]


async def test_a_session_with_other_options_is_watched_too(tmp_path: Path, telescope: Telescope) -> None:
    """Its spans show the paths of its own dialect."""
    async with scene(tmp_path, telescope) as here:
        child = here.payments.with_options(dialect=Dialect(cards_path="/v2/plastic/"))
        with pytest.raises(Rejected):
            await child.cards.get("card-4711")
        await child.payouts.send(payout(1))
    assert [1, 1] == [len(telescope.named(name)) for name in ("GET /v2/plastic/", PAYOUT)]
    assert "card-4711" not in everything(telescope)


async def test_a_call_without_an_answer_is_an_error_by_its_type_alone(tmp_path: Path, telescope: Telescope) -> None:
    """The span says that the outcome is unknown, and shows no words of anybody."""
    async with scene(tmp_path, telescope) as here:
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        with pytest.raises(OutcomeUnknown):
            await here.payments.payouts.send(payout(1))
        here.sandbox.script(Fault.REFUSED, on="payout")
        with pytest.raises(Rejected):
            await here.payments.payouts.send(payout(2))
    lost, refused = telescope.named(PAYOUT)
    assert (StatusCode.ERROR, None) == (lost.status.status_code, lost.status.description)
    assert ("outcome_unknown", "OutcomeUnknown") == tuple(
        (lost.attributes or {})[name] for name in ("payments_async.outcome", "error.type")
    )
    assert ("rejected", 400) == tuple(
        (refused.attributes or {})[name] for name in ("payments_async.outcome", "http.response.status_code")
    )
    assert {"outcome_unknown": 1, "rejected": 1} == {
        attributes["payments_async.outcome"]: count
        for attributes, count in telescope.points("payments_async.call.duration")
    }


async def test_no_person_and_no_secret_is_in_a_trace(tmp_path: Path, telescope: Telescope) -> None:
    """Of paths those parts are shown that belong to the service, of errors the type, of orders their ids."""
    async with scene(tmp_path, telescope) as here:
        acceptance = await here.payments.payouts.send(payout(1))
        await here.payments.transactions.get(acceptance.transaction_id)
        with pytest.raises(Exception, match="HTTP 404"):
            await here.payments.raw("GET", "/api/people/Akello/0772000017")
        here.sandbox.script(Fault.GARBAGE, on="payout")
        with pytest.raises(OutcomeUnknown):
            await here.payments.payouts.send(payout(2))
        secrets = [here.sandbox.app_key, here.sandbox.app_password, here.sandbox.user_id]
    told = everything(telescope)
    assert 1 == len(telescope.named("GET /api/transactions/{id}"))
    assert 1 == len(telescope.named("GET /api/{id}/{id}/{id}"))
    assert [] == [text for text in (*secrets, "Akello", "772000017", "Authorization", "Token ") if text in told]


async def test_every_exchange_is_measured(tmp_path: Path, telescope: Telescope) -> None:
    """What the semantic conventions ask of a client: one duration for each request, by status and place."""
    async with scene(tmp_path, telescope) as here:
        here.sandbox.script(Fault.ERROR_BEFORE, on="account")
        await here.payments.accounts.get()
    points = {
        (attributes["url.template"], attributes["http.response.status_code"], attributes.get("error.type")): count
        for attributes, count in telescope.points("http.client.request.duration")
    }
    assert {
        ("/api/auth/login", 200, None): 1,
        ("/api/accounts", 503, "503"): 1,
        ("/api/accounts", 200, None): 1,
    } == points
    assert ["exchange", "exchange"] == [event.name for event in telescope.one("GET /api/accounts").events]


async def test_a_notification_is_joined_to_the_call_that_sent_its_order(tmp_path: Path, telescope: Telescope) -> None:
    """What takes it and what handles it are linked to the POST, and the handlers to what took it."""
    receiver = Receiver(senders=["127.0.0.1"], settings=ReceiverSettings(observer=telescope.observer))

    @receiver.on(TransactionSucceeded)
    async def paid(event: TransactionSucceeded) -> None:
        pass

    async with scene(tmp_path, telescope) as here:
        acceptance = await here.payments.payouts.send(payout(1))
    made = notification(payout(1).request_id, transaction_id=acceptance.transaction_id)
    assert 200 == (await deliver(receiver, made)).status
    await receiver.aclose()
    post, taken, handled = (telescope.one(name) for name in (PAYOUT, "take notification", "process notification"))
    assert post.context.span_id in linked(taken)
    assert {post.context.span_id, taken.context.span_id} <= linked(handled)
    assert (SpanKind.CONSUMER, None) == (handled.kind, handled.parent)
    assert (200, "TransactionSucceeded") == tuple(
        (taken.attributes or {})[f"payments_async.{name}"] for name in ("answer", "event")
    )


async def test_a_handler_that_fails_is_seen(journal: SqliteJournal, telescope: Telescope) -> None:
    """The round is an error; after the last one the dead letter is counted, and the inbox's backlog is told."""
    receiver = Receiver(
        journal,
        ["127.0.0.1"],
        policy=HandlerPolicy(attempts=1),
        settings=ReceiverSettings(observer=telescope.observer),
    )

    @receiver.on(TransactionSucceeded)
    async def paid(event: TransactionSucceeded) -> None:
        raise RuntimeError("Grace Akello")

    assert 200 == (await deliver(receiver, notification("r-1"))).status
    await receiver.aclose()
    await receiver.health()
    assert StatusCode.ERROR == telescope.one("process notification").status.status_code
    assert {"pending": 0, "unconfirmed": 0, "dead": 1} == {
        attributes["payments_async.state"]: value
        for attributes, value in telescope.points("payments_async.notifications.pending")
    }  # first: older SDKs tell a level once
    assert [({}, 1)] == telescope.points("payments_async.dead_letters")
    assert "Akello" not in everything(telescope)


async def test_who_is_refused_is_counted(telescope: Telescope) -> None:
    """By the reason, without the address, of which there may be any number."""
    receiver = Receiver(senders=["127.0.0.1"], settings=ReceiverSettings(observer=telescope.observer))
    assert 403 == (await deliver(receiver, notification("r-1"), sender="10.0.0.1")).status
    assert [({"payments_async.reason": "a sender is not known"}, 1)] == telescope.points(
        "payments_async.notifications.refused"
    )


async def test_quirks_are_counted(tmp_path: Path, telescope: Telescope) -> None:
    """A notification that contradicts an earlier one, and an answer of another shape; each known quirk once, by id."""
    receiver = Receiver(senders=["127.0.0.1"], settings=ReceiverSettings(observer=telescope.observer))

    @receiver.on(TransactionSucceeded)
    async def paid(event: TransactionSucceeded) -> None:
        pass

    for code in (0, 2):
        assert 200 == (await deliver(receiver, notification("r-1", status_code=code))).status
    await receiver.aclose()
    async with scene(tmp_path, telescope, quirks=Quirks(envelope_correlation_id=True)) as here:
        for _ in range(3):
            await here.payments.transactions.page(number=1, size=5)
    assert {"contradicting_notification": 1, "answer_in_another_shape": 3, "envelope_correlation_id": 1} == {
        attributes["payments_async.quirk"]: count for attributes, count in telescope.points("payments_async.quirks")
    }


async def test_a_batch_holds_its_calls_and_a_reconciliation_its_settled_orders(
    tmp_path: Path, telescope: Telescope
) -> None:
    """The calls are children of the batch; the reconciliation is linked to the call whose order it settled."""
    async with scene(tmp_path, telescope, clock=ManualClock()) as here:  # so no order ends meanwhile
        here.sandbox.script(Fault.LOST_AFTER, on="payout")
        await run_batch(
            here.payments, here.journal, BATCH, payouts(2), settings=RunSettings(concurrency=1, look_first="never")
        )
        done = await reconcile(here.payments, here.journal, BATCH)
    batch, reconciliation, (lost, accepted) = (
        telescope.one("run batch"),
        telescope.one("reconcile"),
        telescope.named(PAYOUT),
    )
    parents = [span.parent and span.parent.span_id for span in (lost, accepted)]
    assert [batch.context.span_id] * 2 == parents
    assert (BATCH, 1) == tuple((batch.attributes or {})[f"payments_async.{name}"] for name in ("batch_id", "unknown"))
    assert sum(done.settled.values()) == (reconciliation.attributes or {})["payments_async.settled"]
    assert {State.ACCEPTED: 1} == done.settled
    assert {lost.context.span_id} == linked(reconciliation)


async def test_an_order_that_is_put_is_sent_in_a_span_that_knows_where_it_was_put(
    tmp_path: Path, telescope: Telescope
) -> None:
    """A worker sends it, so the call is no child of the application's span: it is linked to it."""
    async with scene(tmp_path, telescope) as here, Outbox(here.payments, here.journal) as outbox:
        with telescope.tracer.start_as_current_span("checkout") as checkout:
            entry = await outbox.pay(payout(1), timeout=60)
    assert "accepted" == entry.state
    assert {checkout.get_span_context().span_id} == linked(telescope.one(PAYOUT))
    levels = {attributes["payments_async.state"] for attributes, _ in telescope.points("payments_async.orders")}
    assert {"accepted"} <= levels


async def test_an_order_that_another_process_sends(tmp_path: Path, telescope: Telescope) -> None:
    """The journal keeps where it was put: the call and the handlers elsewhere are linked to that, days later too."""
    async with scene(tmp_path, telescope) as here:
        async with Outbox(here.payments, here.journal, **NEVER_SENDS) as shop:
            with telescope.tracer.start_as_current_span("checkout") as checkout:
                put = await shop.put(payout(1))
            await shop.put(payout(2))
        elsewhere = telescope_of()
        async with session(here.sandbox, observer=elsewhere.observer) as payments:
            outbox = Outbox(payments, here.journal)
            handled = asyncio.Event()

            @outbox.on(State.ACCEPTED, when=lambda entry: entry.request_id == put.request_id)
            async def accepted(entry: Entry) -> None:
                assert put.traceparent == entry.traceparent
                handled.set()

            async with asyncio.timeout(60), outbox:
                await handled.wait()
                await outbox.pay(payout(2), timeout=60)
    span = checkout.get_span_context()
    assert (put.traceparent or "").startswith(f"00-{span.trace_id:032x}-{span.span_id:016x}-")
    for name in (PAYOUT, "process change"):
        found = {(one.attributes or {})["payments_async.request_id"]: linked(one) for one in elsewhere.named(name)}
        assert span.span_id in found.pop(put.request_id)
        assert not any(span.span_id in others for others in found.values())


def test_the_page_lists_all_there_is() -> None:
    """Spans, attributes and metrics are those of the code; another observer cannot write what is no trace context."""
    page = (Path(__file__).parent.parent / ".github" / "docs" / "otel.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    named = {f"payments_async.{name}" for name, _, _ in (*otel._COUNTERS.values(), *otel._LEVELS.values())}
    durations = {f"payments_async.{what}.duration" for what in otel._KINDS}
    spans = {kind.name for kind in otel._KINDS.values() if kind.name}
    metrics = named | durations | {"http.client.request.duration"}
    assert {*otel._ATTRIBUTES.values(), *spans, *metrics, "POST /transactions/payouts/..."} == rows
    assert guarded(Broken("none")).traceparent() is None  # type: ignore[union-attr,arg-type]


async def test_the_oldest_unknown_order_has_an_age(tmp_path: Path, telescope: Telescope) -> None:
    """Who settles tells it, for alarms: zero where none is unknown."""
    async with scene(tmp_path, telescope) as here, Outbox(here.payments, here.journal) as outbox:
        await outbox.pay(payout(1), timeout=60)
        settler = outbox._settler
        assert settler is not None
        await settler.turn()
    assert [({}, 0.0)] == telescope.points("payments_async.unknown.oldest_age")


async def test_what_of_an_outbox_waits_for_a_person(tmp_path: Path, telescope: Telescope) -> None:
    """Dead letters of its handlers, a pause, a quarantine: each is a level that an alarm can be set on."""
    async with scene(tmp_path, telescope) as here:
        outbox = Outbox(here.payments, here.journal, policy=HandlerPolicy(attempts=1))

        @outbox.on(State.ACCEPTED)
        async def accepted(entry: Entry) -> None:
            raise RuntimeError("the application's database is away")

        async with asyncio.timeout(60), outbox:
            await outbox.pay(payout(1), timeout=60)
            while not (await outbox.health()).handlers.dead:  # noqa: ASYNC110 - written down after the handler
                await asyncio.sleep(0.01)
            await outbox.pause("A. Clerk", "a look")  # who pauses has its crew look again
    assert ({"payments_async.state": "dead"}, 1) in telescope.points("payments_async.changes")
    held_up = {one["payments_async.reason"]: level for one, level in telescope.points("payments_async.held_up")}
    assert {"paused": 1, "failed_handlers": 1} == {reason: level for reason, level in held_up.items() if level}


async def test_only_the_last_orders_are_remembered(telescope: Telescope) -> None:
    """A process that runs for years does not grow by what it links."""
    with telescope.tracer.start_as_current_span("checkout") as checkout:
        for number in range(10_010):
            telescope.observer.keep(checkout.get_span_context(), f"r-{number}")
    assert [0, 1] == [len(list(telescope.observer.links(name))) for name in ("r-0", "r-10009")]


async def test_without_an_sdk_nothing_is_kept(tmp_path: Path, service: Sandbox) -> None:
    """OpenTelemetry's API alone, as a library finds it where an application traces nothing: all works the same."""
    observer = OpenTelemetry(trace.NoOpTracerProvider())
    async with session(service, observer=observer) as payments:
        acceptance = await payments.payouts.send(payout(1))
    assert payout(1).request_id == acceptance.request_id
    assert [] == list(observer.links(payout(1).request_id))


class Broken:
    """An observer that fails at whatever it is asked, or by whatever it gave."""

    def __init__(self, at: str) -> None:
        self.at = at

    def __getattr__(self, name: str) -> Any:
        def asked(*_: object, **__: object) -> Any:
            if self.at == "all" or self.at == name:
                raise RuntimeError("the disk of the traces is full: +256772000017")
            return self

        return asked

    def __enter__(self) -> Any:
        return self.__getattr__("enter")()

    def __exit__(self, *_: object) -> None:
        self.__getattr__("exit")()


@pytest.mark.parametrize(
    "at", ["all", "is_watching", "watch", "begin", "note", "traceparent", "count", "level", "tell", "enter", "exit"]
)
async def test_an_observer_that_breaks(at: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No payment turns out otherwise by it, nothing is sent twice, no notification is refused; and it is said once."""
    observer: Any = Broken(at)
    async with Sandbox(processing_delay=0.0) as sandbox, session(sandbox, observer=observer) as payments:
        sandbox.script(Fault.LOST_AFTER, on="money", request_id=payout(1).request_id)
        acceptance = await payments.payouts.send(payout(0))
        with pytest.raises(OutcomeUnknown):
            await payments.payouts.send(payout(1))
        async with SqliteJournal(tmp_path / "journal.db") as journal:
            receiver = Receiver(journal, senders=["127.0.0.1"], settings=ReceiverSettings(observer=observer))
            async with receiver, Outbox(payments, journal) as outbox:
                entry = await outbox.pay(payout(2), timeout=60)
                answer = await deliver(receiver, notification(request_id=payout(2).request_id))
                assert (State.ACCEPTED, 200) == (entry.state, answer.status)
        assert ([], 3) == (sandbox.duplicates(), len(sandbox.ledger))
        assert acceptance.request_id == payout(0).request_id
    said = [record for record in caplog.records if "the observer fails" in record.getMessage()]
    assert len(said) <= 2
    assert "256772000017" not in caplog.text


def test_with_the_api_alone_nobody_watches() -> None:
    """Neither where nothing is set up, nor with providers that do nothing; a provider of either kind is enough."""
    nobody = OpenTelemetry(trace.NoOpTracerProvider(), NoOpMeterProvider())
    traced = OpenTelemetry(TracerProvider(), NoOpMeterProvider())
    measured = OpenTelemetry(trace.NoOpTracerProvider(), MeterProvider())
    assert [False, True, True] == [observer.is_watching() for observer in (nobody, traced, measured)]


_SET_LATE = """
import asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from payments_async import Credentials, PaymentsSession
from payments_async.otel import OpenTelemetry
from payments_async.sandbox import ManualClock, Sandbox

async def main():
    now, spans, tracers = 0.0, InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    observer = OpenTelemetry(clock=lambda: now)
    async with Sandbox(clock=ManualClock()) as service:
        who = Credentials(app_key=service.app_key, app_password=service.app_password, user_id=service.user_id)
        async with PaymentsSession(service.base_url, who, observer=observer) as payments:
            await payments.accounts.get()
            trace.set_tracer_provider(tracers)
            now = 1.0
            await payments.accounts.get()
    print([span.name for span in spans.get_finished_spans()])

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_global_provider_that_is_set_late_is_noticed() -> None:
    """Within a second: the calls before it are made as if nobody watched, those after it are spans."""
    done = subprocess.run([sys.executable, "-c", _SET_LATE], capture_output=True, text=True, check=False)
    assert ("['GET /api/accounts']\n", "") == (done.stdout, done.stderr)


def test_without_the_extra_it_says_what_to_install() -> None:
    """In words, and not by the name of a module alone."""
    look = "import sys; sys.modules['opentelemetry'] = None; import payments_async.otel"
    told = subprocess.run([sys.executable, "-c", look], check=False, capture_output=True, text=True)
    assert "OpenTelemetry's API: pip install 'payments-async[otel]'" in told.stderr
