"""The receiver's order of work and its answers, the same through every face."""

import asyncio
import json
import logging
import subprocess
import sys
import time
from decimal import Decimal
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from ipn.faces import FACES, aiohttp_face, asgi_call
from ipn.memory_inbox import MemoryInbox
from ipn.notifications import is_signed, notification
from multidict import CIMultiDict

from payments_async.ipn import (
    Answer,
    Delivery,
    HandlerPolicy,
    Receiver,
    ReceiverSettings,
    TransactionConflict,
    TransactionEvent,
    TransactionFailed,
    TransactionProcessing,
    TransactionSucceeded,
)
from payments_async.journal.contract import RawNotification
from payments_async.testing import Notification, Testing, deliver

LOCAL = ["127.0.0.1"]
QUICK = HandlerPolicy(poll=0.01, wait_initial=0.001, wait_max=0.001, attempts=3, drain=1.0)
TOKEN = "n0tGuessable-0123456789"


@pytest.fixture(params=list(FACES))
def face(request: pytest.FixtureRequest) -> Any:
    """Each face in turn."""
    return FACES[request.param]


def listening(receiver: Receiver, kind: type[TransactionEvent] = TransactionEvent) -> list[TransactionEvent]:
    """What a handler of this kind hears."""
    heard: list[TransactionEvent] = []

    @receiver.on(kind)
    async def hear(event: TransactionEvent) -> None:
        heard.append(event)

    return heard


async def until(condition: Any, seconds: float = 60.0) -> None:
    """Let the receiver work until something holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition belongs to the inbox, which has no event to set
            await asyncio.sleep(0.002)


async def test_the_answer_is_the_response_message(face: Any) -> None:
    """Keys and spelling are the specification's, and everything is text."""
    receiver = Receiver(senders=LOCAL, testing=Testing(now=lambda: 1_700_000_000.0))
    async with face(receiver) as send:
        got = await send(notification(AccountId=6))
    assert 200 == got.status
    assert {
        "TransactionId": "t-1",
        "AccountId": "6",
        "createdOn": "2023-11-14 22:13:20",
        "SubscriptionId": "",
        "ResponseCode": "0",
        "RequestId": "r-t-1",
        "ReferenceId": "r-t-1",
        "ResponseMessage": "received",
    } == json.loads(got.body)


@pytest.mark.parametrize(
    ("expected", "changed"),
    [
        (200, {"path": "/ipn/"}),
        (405, {"method": "GET"}),
        (405, {"method": "PUT"}),
        (404, {"path": "/ipn/elsewhere"}),
        (413, {"body": b"x" * 2000}),
        (413, {"body": b"x" * 2000, "chunked": True}),
        (400, {"body": b"{"}),
        (400, {"query": "transactionId=other"}),
        (415, {"headers": {"Content-Encoding": "gzip"}}),
        (415, {"headers": {"Content-Encoding": "x-unheard-of"}}),
        (200, {"headers": {"Content-Encoding": "identity"}}),
        (200, {"chunked": True}),
    ],
)
async def test_a_status_for_each_trouble(face: Any, expected: int, changed: dict[str, Any]) -> None:
    """What is wrong decides the status, and none of it is a 5xx."""
    async with face(Receiver(senders=LOCAL, settings=ReceiverSettings(max_body=1000))) as send:
        got = await send(**{"body": notification()} | changed)
    assert expected == got.status


async def test_an_unknown_sender_is_refused_before_anything_is_read(face: Any) -> None:
    """403 comes first: a stranger learns nothing of paths, methods or sizes."""
    async with face(Receiver(path_token=TOKEN)) as send:
        answers = [await send(b"{", path="/ipn/x"), await send(b"", method="GET", path=f"/ipn/{TOKEN}")]
    assert [403, 403] == [answer.status for answer in answers]


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded"])
async def test_a_forged_header_gets_nobody_in(face: Any, header: str) -> None:
    """A peer that is not a trusted proxy is not asked whom it forwards for."""
    value = "41.2.2.10" if header == "X-Forwarded-For" else "for=41.2.2.10"
    async with face(Receiver()) as send:
        got = await send(notification(), headers={header: value})
    assert 403 == got.status


async def test_a_wrong_path_token_is_not_found(face: Any) -> None:
    """Only the path with the whole token answers."""
    async with face(Receiver(senders=LOCAL, path_token=TOKEN)) as send:
        statuses = [
            (await send(notification(), path=path)).status
            for path in (
                f"/ipn/{TOKEN}",
                f"/ipn/{TOKEN}/",
                "/ipn",
                "/ipn/",
                f"/ipn/{TOKEN[:-1]}",
                "/ipn/wrong-token-here",
            )
        ]
        health = [(await send(method="GET", path=f"/ipn{path}/health")).status for path in (f"/{TOKEN}", "", "/wrong")]
    assert [200, 200, 404, 404, 404, 404] == statuses
    assert [200, 404, 404] == health


@pytest.mark.parametrize("token", ["short", "with/a/slash/in/it/somewhere", "ünicode-ünicode-ünicode"])
def test_a_token_that_protects_nothing_is_refused(token: str) -> None:
    """A short token could be guessed; others could not be matched."""
    with pytest.raises(ValueError, match="path_token"):
        Receiver(path_token=token)


async def test_shadow_mode_only_reports(face: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever would have been refused is let in, and named in the log with the reason."""
    receiver = Receiver(senders=[], settings=ReceiverSettings(shadow=True), verifiers=[is_signed])
    async with face(receiver) as send:
        assert 200 == (await send(notification())).status
    said = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("a sender is not known: 127.0.0.1: ") for line in said)
    assert any(line.startswith("a delivery is not genuine: is_signed") for line in said)


async def test_nothing_personal_is_logged(face: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a good notification nor a bad one, nor a failing handler, puts a person into the log."""
    caplog.set_level(logging.DEBUG)
    receiver = Receiver(senders=LOCAL)

    @receiver.on(TransactionEvent)
    async def fail(event: TransactionEvent) -> None:
        raise RuntimeError(f"no account 256772000017 of grace@example.org ({event.status_message})")

    private: dict[str, Any] = {"AccountId": "256772000017", "StatusMessage": "for Grace Akello +256772000017"}
    async with face(receiver) as send:
        await send(notification(**private))
        await send(notification(**private, accountId="256772000018"))
    logged = " ".join(str(vars(record)) for record in caplog.records if record.name.startswith("payments_async"))
    assert "a handler failed" in logged
    assert [] == [secret for secret in ("256772", "Akello", "grace@") if secret in logged]


async def test_a_base_type_hears_its_subtypes_and_a_predicate_chooses() -> None:
    """In registration order, each handler hears what it asked for."""
    receiver, order = Receiver(senders=LOCAL), []

    for name, kind, when in (
        ("all", TransactionEvent, None),
        ("good", TransactionSucceeded, None),
        ("bad", TransactionFailed, None),
        ("large", TransactionEvent, lambda event: event.amount > 1000),
    ):

        @receiver.on(kind, when=when, name=name)
        async def hear(event: TransactionEvent, name: str = name) -> None:
            order.append(name)

    async with aiohttp_face(receiver) as send:
        await send(notification("a"))
        await send(notification("b", 2, Amount=5000))
    assert ["all", "good", "all", "bad", "large"] == order


def test_a_handler_that_could_never_run_is_refused() -> None:
    """A plain function, a kind that is not an event and a name that is taken are mistakes found at once."""
    receiver = Receiver()
    with pytest.raises(TypeError, match="async"):
        receiver.on(TransactionEvent)(lambda event: None)  # type: ignore[type-var]

    async def hear(event: TransactionEvent) -> None:
        """Take it."""

    with pytest.raises(TypeError, match="event type"):
        receiver.on(str)(hear)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="event type"):  # as @receiver.on does without parentheses
        receiver.on(hear)  # type: ignore[arg-type]

    async def hear_of_a_connection(event: TransactionEvent, connection: object) -> None:
        """Nobody gives it one."""

    with pytest.raises(TypeError, match="one value"):
        receiver.on(TransactionEvent)(hear_of_a_connection)  # type: ignore[type-var]
    receiver.on(TransactionEvent, name="one")(hear)
    with pytest.raises(ValueError, match="another handler"):
        receiver.on(TransactionEvent, name="one")(hear)


async def test_without_an_inbox_a_failure_asks_for_another_delivery(face: Any) -> None:
    """500 while a handler fails or takes too long; the delivery that succeeds is the last one handled."""
    receiver, runs = Receiver(senders=LOCAL, policy=HandlerPolicy(timeout=0.02)), []

    @receiver.on(TransactionEvent)
    async def settle(event: TransactionEvent) -> None:
        runs.append(event)
        if len(runs) == 1:
            raise RuntimeError("the database is away")
        if len(runs) == 2:
            await asyncio.Event().wait()

    heard = listening(receiver)
    async with face(receiver) as send:
        statuses = [(await send(notification())).status for _ in range(4)]
    assert [500, 500, 200, 200] == statuses
    assert (3, 3) == (len(runs), len(heard))


async def test_a_handler_that_raises_what_is_no_exception(face: Any) -> None:
    """Some tools end their work so; it is a failure as any other, and whoever waits behind it is answered."""

    class Abandoned(BaseException):
        """No ``Exception``."""

    receiver = Receiver(senders=LOCAL, policy=HandlerPolicy(concurrency=1))

    @receiver.on(TransactionEvent)
    async def abandon(event: TransactionEvent) -> None:
        await asyncio.sleep(0)
        if event.transaction_id == "t-1":
            raise Abandoned

    async with face(receiver) as send, asyncio.timeout(60):
        answers = await asyncio.gather(*(send(notification(f"t-{number}")) for number in (1, 2, 3)))
    assert [500, 200, 200] == [answer.status for answer in answers]


async def test_the_same_notification_twice_at_once_runs_once(face: Any) -> None:
    """The second waits for what becomes of the first."""
    receiver, runs, go = Receiver(senders=LOCAL), [], asyncio.Event()

    @receiver.on(TransactionEvent)
    async def settle(event: TransactionEvent) -> None:
        runs.append(event)
        await go.wait()

    async with face(receiver) as send, asyncio.TaskGroup() as group:
        first = group.create_task(send(notification()))
        second = group.create_task(send(notification(Amount=500.0)))
        await until(lambda: runs)
        await asyncio.sleep(0.01)
        go.set()
    assert (200, 200, 1) == (first.result().status, second.result().status, len(runs))


@pytest.mark.parametrize("kept", [False, True])
async def test_what_contradicts_a_final_event_is_a_conflict(face: Any, kept: bool) -> None:
    """An error after a success is heard as a conflict, not as a failure; a late processing downgrades nothing."""
    receiver = Receiver(MemoryInbox(time.time) if kept else None, senders=LOCAL, policy=QUICK)
    heard, failures = listening(receiver), listening(receiver, TransactionFailed)
    async with face(receiver) as send:
        for code in (0, 1, 2, 0):
            assert 200 == (await send(notification(code=code))).status
        await until(lambda: len(heard) == 3)
        final = await receiver.wait_for("r-t-1", timeout=60)
    assert {TransactionSucceeded, TransactionProcessing, TransactionConflict} == set(map(type, heard))
    assert ([], TransactionSucceeded) == (failures, type(final))


async def test_another_amount_is_a_conflict() -> None:
    """The sign is no contradiction: payouts are negative in records."""
    receiver = Receiver(senders=LOCAL)
    heard = listening(receiver, TransactionConflict)
    async with aiohttp_face(receiver) as send:
        for amount in (500, -500, 501):
            await send(notification(Amount=amount))
    assert ["amount 501 after 500"] == [event.conflict for event in heard if isinstance(event, TransactionConflict)]


async def test_a_caller_who_hangs_up_stops_nothing() -> None:
    """The server cancels the handler of a connection that is gone; storing and handling go on."""
    inbox, receiver_ready, go = MemoryInbox(time.time), asyncio.Event(), asyncio.Event()
    store = inbox.receive

    async def slowly(*args: Any, **kwargs: Any) -> Any:
        receiver_ready.set()
        await go.wait()
        return await store(*args, **kwargs)

    inbox.receive = slowly  # type: ignore[method-assign]
    receiver = Receiver(inbox, senders=LOCAL, policy=QUICK)
    heard = listening(receiver)
    outer = web.Application()
    outer.add_subapp("/ipn", receiver.app())
    async with TestServer(outer, handler_cancellation=True) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = notification()
        writer.write(b"POST /ipn HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await receiver_ready.wait()
        writer.transport.abort()
        await asyncio.sleep(0.02)
        go.set()
        await until(lambda: heard)
    assert [1] == [event.event_id for event in heard]


async def test_what_cannot_be_stored_is_not_answered_200(face: Any) -> None:
    """503 asks the service to send again, and no handler has heard of it."""
    inbox = MemoryInbox(time.time)
    inbox.broken = OSError("the disk is full")
    receiver = Receiver(inbox, senders=LOCAL, policy=QUICK)
    heard = listening(receiver)
    async with face(receiver) as send:
        assert 503 == (await send(notification())).status
        inbox.broken = None
        assert 200 == (await send(notification())).status
        await until(lambda: heard)
    assert 1 == len(heard)


async def test_a_failing_handler_is_run_again_alone() -> None:
    """The one that finished is not run again, and the event id stays the same."""
    inbox, tries = MemoryInbox(time.time), []
    receiver = Receiver(inbox, senders=LOCAL, policy=QUICK, testing=Testing(random=lambda: 0.0))
    heard = listening(receiver)

    @receiver.on(TransactionEvent)
    async def fail_once(event: TransactionEvent) -> None:
        tries.append(event.event_id)
        if len(tries) == 1:
            raise RuntimeError("not yet")

    async with aiohttp_face(receiver) as send:
        await send(notification())
        await until(lambda: inbox.rows and inbox.state(1) == "handled")
    assert ([1], [1, 1]) == ([event.event_id for event in heard], tries)


async def test_a_dead_letter_waits_for_a_replay() -> None:
    """When its tries run out an event is dead; replay runs it again."""
    inbox, broken = MemoryInbox(time.time), True
    receiver = Receiver(inbox, senders=LOCAL, policy=QUICK)

    @receiver.on(TransactionEvent)
    async def settle(event: TransactionEvent) -> None:
        if broken:
            raise RuntimeError("still down")

    async with aiohttp_face(receiver) as send:
        await send(notification())
        await until(lambda: inbox.state(1) == "dead")
        health = json.loads((await send(method="GET", path="/ipn/health")).body)
        broken = False
        assert (0, 1) == (await receiver.replay(99), await receiver.replay())
        await until(lambda: inbox.state(1) == "handled")
    expected = {"status": "ok", "pending": 0, "dead": 1, "oldest_seconds": None, "unconfirmed": 0, "reported": 0}
    (problem,) = health.pop("problems")
    assert expected | {"failing": 0} == health
    assert ("dead_letters", 1, True) == (problem["code"], problem["count"], problem["needs_person"])


async def test_a_restart_handles_what_was_left() -> None:
    """Events that were stored but not handled are handled by the next receiver on the same inbox."""
    inbox = MemoryInbox(time.time)
    first, second = (Receiver(inbox, senders=LOCAL, policy=HandlerPolicy(poll=0.01, drain=0.01)) for _ in range(2))

    @first.on(TransactionEvent)
    async def hang(event: TransactionEvent) -> None:
        await asyncio.Event().wait()

    async with aiohttp_face(first) as send:
        for name in "abc":
            await send(notification(name))
    heard = listening(second)
    async with second:
        await until(lambda: len(heard) == 3)
    assert {1, 2, 3} == {event.event_id for event in heard}


async def test_a_shutdown_drains() -> None:
    """Handlers under way finish before the application ends."""
    inbox, finished, started = MemoryInbox(time.time), [], asyncio.Event()
    receiver = Receiver(inbox, senders=LOCAL)

    @receiver.on(TransactionEvent)
    async def settle(event: TransactionEvent) -> None:
        started.set()
        await asyncio.sleep(0.05)
        finished.append(event)

    async with aiohttp_face(receiver) as send:
        await send(notification())
        await started.wait()
    assert (1, "handled") == (len(finished), inbox.state(1))


async def test_waiting_finds_what_came_before_and_after(face: Any) -> None:
    """Processing does not end the wait; a notification that came first is found."""
    receiver = Receiver(senders=LOCAL)
    async with face(receiver) as send:
        await send(notification(code=1))
        waiting = asyncio.ensure_future(receiver.wait_for("r-t-1", timeout=60))
        await asyncio.sleep(0)
        await send(notification(code=0))
        assert 0 == (await waiting).status_code
        assert 0 == (await receiver.wait_for("r-t-1", 60)).status_code
        with pytest.raises(TimeoutError):
            await receiver.wait_for("another", timeout=0.01)


async def test_waiting_hears_what_another_process_stored() -> None:
    """The inbox is looked into again and again."""
    inbox = MemoryInbox(time.time)
    here, there = Receiver(inbox, policy=QUICK), Receiver(inbox, senders=LOCAL, policy=QUICK)
    async with aiohttp_face(there) as send, asyncio.TaskGroup() as group:
        waiting = group.create_task(here.wait_for("r-t-1", timeout=60))
        await asyncio.sleep(0.01)
        await send(notification())
    assert "t-1" == waiting.result().transaction_id


class Records:
    """A session that knows some transactions."""

    def __init__(self, **records: Any) -> None:
        self.records = records
        self.transactions = self
        self.asked = 0

    async def get(self, transaction_id: str, /) -> Any:
        self.asked += 1
        record = self.records[transaction_id]
        record.transaction_id = transaction_id
        return record


class Record:
    transaction_id = ""

    def __init__(self, request_id: str, amount: int, currency: str = "UGX") -> None:
        self.request_id, self.amount, self.currency, self.status = request_id, Decimal(amount), currency, None


async def test_confirming_believes_the_record(face: Any) -> None:
    """An event is heard once the record exists and agrees; one that differs is disputed and heard by nobody."""
    inbox, payments = MemoryInbox(time.time), Records(a=Record("r-a", -500), b=Record("r-b", 400))
    receiver = Receiver(inbox, senders=LOCAL, confirm=payments, policy=QUICK, testing=Testing(random=lambda: 0.0))
    heard = listening(receiver)
    async with face(receiver) as send:
        for name in "ab":
            assert 200 == (await send(notification(name, CurrencyCode="ugx"))).status
        await until(lambda: inbox.state(1) == "handled" and inbox.state(2) == "disputed")
        await send(notification("late"))
        await until(lambda: payments.asked > 2)
        payments.records["late"] = Record("r-late", 500)
        await until(lambda: inbox.state(3) in ("handled", "dead"))
        with pytest.raises(TimeoutError):
            await receiver.wait_for("r-b", timeout=0.02)
        assert "a" == (await receiver.wait_for("r-a", timeout=60)).transaction_id
    assert {"a", "late"} >= {event.transaction_id for event in heard} >= {"a"}
    assert "amount" in str(inbox.rows[2].stored.error)


async def test_confirming_without_an_inbox(face: Any) -> None:
    """No record yet asks for another delivery; a record that differs refuses this one."""
    payments = Records(b=Record("somebody-else", 500))
    receiver = Receiver(senders=LOCAL, confirm=payments)
    heard = listening(receiver)
    async with face(receiver) as send:
        assert [500, 400] == [(await send(notification(name))).status for name in "ab"]
        payments.records["a"] = Record("r-a", 500)
        assert 200 == (await send(notification("a"))).status
    assert ["a"] == [event.transaction_id for event in heard]


async def test_a_verifier_that_fails_believes_nobody(face: Any) -> None:
    """An exception is no yes, and neither is a truthy answer."""

    async def broken(delivery: Delivery) -> bool:
        raise OSError("the key server is away")

    async def vague(delivery: Delivery) -> Any:
        return "yes"

    for verifier in (broken, vague):
        async with face(Receiver(senders=LOCAL, verifiers=[verifier])) as send:
            assert 403 == (await send(notification())).status


@pytest.mark.parametrize(
    "make",
    [
        lambda: HandlerPolicy(timeout=0),
    ],
)
def test_a_setting_that_protects_nothing_is_refused(make: Any) -> None:
    """At construction, not at the first notification."""
    with pytest.raises(ValueError, match=r".+"):
        make()


async def test_health_tells_the_backlog(face: Any) -> None:
    """Pending, dead and the age of the oldest; 503 when the inbox cannot be read."""
    now = time.time()
    inbox = MemoryInbox(time.time)
    receiver = Receiver(inbox, senders=LOCAL, policy=QUICK, testing=Testing(now=lambda: now))

    @receiver.on(TransactionEvent)
    async def hang(event: TransactionEvent) -> None:
        await asyncio.sleep(0.05)

    async with face(receiver) as send:
        await send(notification())
        got = await send(method="GET", path="/ipn/health")
        told = {"pending": 1, "dead": 0, "oldest_seconds": 0.0, "unconfirmed": 0, "reported": 0}
        told |= {"failing": 0, "problems": []}
        assert {"status": "ok"} | told == json.loads(got.body)
        inbox.backlog = None  # type: ignore[method-assign, assignment]
        assert 503 == (await send(method="GET", path="/ipn/health")).status


async def test_explain_takes_what_one_has() -> None:
    """An aiohttp request, an ASGI scope and a delivery are all explained in words."""
    receiver, said = Receiver(senders=["10.0.0.0/8"]), []

    async def ask(request: web.Request) -> web.Response:
        said.append(receiver.explain(request))
        return web.Response()

    app = web.Application()
    app.router.add_get("/", ask)
    async with TestClient(TestServer(app)) as client:
        await client.get("/")
    said.append(receiver.explain({"client": ("10.1.2.3", 1), "headers": []}))
    unix = Delivery(
        peer="unix:",
        sender="41.2.2.10",
        through_proxy=True,
        headers=CIMultiDict(),
        query="",
        body=b"",
        certificate=None,
    )
    said.append(receiver.explain(unix))
    assert [
        "refused: the peer 127.0.0.1 is not",
        "accepted: the peer 10.1.2.3 is a",
        "refused: the peer unix: is not",
    ] == [
        " ".join(text.split()[:7]).removesuffix(" known") if text.startswith("accepted") else " ".join(text.split()[:6])
        for text in said
    ]


async def test_it_is_nested_behind_a_prefix() -> None:
    """A sub-application of a sub-application answers the same."""
    receiver, outer, inner = Receiver(senders=LOCAL), web.Application(), web.Application()
    inner.add_subapp("/ipn", receiver.app())
    outer.add_subapp("/payments", inner)
    async with TestClient(TestServer(outer)) as client:
        for path in ("/payments/ipn", "/payments/ipn/"):
            async with client.post(path, data=notification(), allow_redirects=False) as answer:
                assert 200 == answer.status


async def test_an_application_around_it_can_still_change_the_answer() -> None:
    """Middlewares and signals see it, and what they add is sent; the connection stays or closes as asked."""
    seen: list[int] = []

    @web.middleware
    async def stamp(request: web.Request, handler: Any) -> web.StreamResponse:
        response: web.StreamResponse = await handler(request)
        if "stamp" in request.query:
            response.headers["X-Stamp"] = "yes"
        return response

    async def watch(request: web.Request, response: web.StreamResponse) -> None:
        seen.append(response.status)

    for watched in (False, True):
        outer = web.Application(middlewares=[stamp])
        outer.add_subapp("/ipn", Receiver(senders=LOCAL).app())
        if watched:
            outer.on_response_prepare.append(watch)
        async with TestClient(TestServer(outer)) as client:
            for query, headers in (("?stamp=1", {}), ("", {"Connection": "close"}), ("", {})):
                async with client.post(f"/ipn{query}", data=notification(), headers=headers) as answer:
                    assert 200 == answer.status
                    assert "application/json" == answer.content_type
                    assert ("yes" if query else None) == answer.headers.get("X-Stamp")
                    assert headers.get("Connection") == answer.headers.get("Connection")
                    assert "Date" in answer.headers
                    assert "t-1" == (await answer.json())["TransactionId"]
    assert [200, 200, 200] == seen


async def test_the_asgi_lifespan_starts_and_drains() -> None:
    """A server that speaks lifespan needs nothing else."""
    inbox = MemoryInbox(time.time)
    receiver = Receiver(inbox, policy=QUICK)
    kinds, sent = ["lifespan.startup", "lifespan.shutdown"], []

    async def receive() -> dict[str, Any]:
        return {"type": kinds.pop(0)}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await receiver.asgi()({"type": "lifespan"}, receive, send)
    assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == sent


async def test_starlette_routes_it_with_and_without_a_slash() -> None:
    """In FastAPI a route and a mount together answer both paths; neither redirects."""
    fastapi, routing = pytest.importorskip("fastapi"), pytest.importorskip("starlette.routing")
    receiver, app = Receiver(senders=LOCAL), fastapi.FastAPI()
    app.router.routes.append(routing.Route("/ipn", receiver.asgi("/ipn")))
    app.mount("/ipn", receiver.asgi())
    for path, method, expected in (
        ("/ipn", "POST", 200),
        ("/ipn/", "POST", 200),
        ("/ipn", "GET", 405),
        ("/ipn/health", "GET", 200),
        ("/ipn/x", "POST", 404),
    ):
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [],
            "client": ("127.0.0.1", 1),
            "server": ("x", 80),
            "scheme": "http",
            "http_version": "1.1",
        }
        assert (path, expected) == (path, (await asgi_call(app, scope, notification())).status)


def test_an_answer_is_a_plain_value() -> None:
    """A status, headers, a body, and whether the connection ends with it, or at once."""
    assert (200, {}, b"{}", False, False) == Answer(200, {}, b"{}")


async def test_a_receiver_that_was_closed_before_it_began_begins_all_the_same() -> None:
    """As where an application's start failed once and is tried again."""
    inbox = MemoryInbox(time.time)
    stored = TransactionSucceeded(transaction_id="t-1", status_code=0)
    first = RawNotification(body=b"{}", query="", peer="127.0.0.1", received_at=time.time())
    await inbox.receive(first, stored, owner="a dead one", lease=0.0)
    receiver = Receiver(inbox, senders=LOCAL, policy=QUICK)
    heard = listening(receiver)
    await receiver.aclose()
    async with receiver:
        await until(lambda: heard)
    assert ["t-1"] == [event.transaction_id for event in heard]


async def test_a_handler_of_every_event_is_given_back_as_it_is() -> None:
    """So it can be registered for several kinds, one above the other, and called like any function."""
    receiver, heard = Receiver(senders=LOCAL), list[int]()

    @receiver.on(TransactionSucceeded)
    @receiver.on(TransactionFailed)
    async def settle(event: TransactionEvent) -> str:
        heard.append(event.status_code)
        return event.transaction_id

    for code in (0, 1, 2):
        await deliver(receiver, Notification(body=notification(f"t-{code}", code), query=""))
    assert [0, 2] == heard
    assert "t-9" == await settle(event=TransactionEvent(transaction_id="t-9", status_code=0))


async def test_without_an_inbox_there_are_no_dead_letters() -> None:
    """To ask for one is a mistake of the program."""
    with pytest.raises(ValueError, match="there is no inbox"):
        await Receiver().replay()


@pytest.mark.parametrize(("inbox", "brings"), [("", "False"), ("inbox=type('Inbox', (), {'receive': None})()", "True")])
def test_a_receiver_brings_the_journal_only_where_it_has_an_inbox(inbox: str, brings: str) -> None:
    """Half of what the import would cost is the journal's."""
    look = (
        f"import sys, payments_async.ipn as ipn; ipn.Receiver({inbox}); print('payments_async.journal' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert brings == done.stdout.strip()
