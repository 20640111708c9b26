"""Any framework receives: what came is handed to `take`, from a coroutine or a thread, and its answer is sent."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, make_server

import attrs
import pytest
from flask import Flask, Response, request
from ipn.django_site import client_of
from ipn.notifications import is_signed, notification, signed

from payments_async.ipn import (
    Receiver,
    ReceiverSettings,
    RequestRefused,
    TransactionEvent,
    read_notification,
)
from payments_async.journal import SqliteJournal

US = ["127.0.0.1"]


@attrs.define
class Heard:
    """What a handler was told, whichever thread asks."""

    events: list[TransactionEvent] = attrs.field(factory=list)
    _some: threading.Event = attrs.field(factory=threading.Event)

    def by(self, receiver: Receiver) -> Heard:
        @receiver.on(TransactionEvent)
        async def hear(event: TransactionEvent) -> None:
            self.events.append(event)
            self._some.set()

        return self

    def ids(self) -> list[str]:
        """The transactions, once there is one."""
        assert self._some.wait(60)
        return [event.transaction_id for event in self.events]


def test_a_view_of_flask(tmp_path: Path) -> None:
    """It is answered once the notification is stored; its handler runs after that."""
    receiver, app = Receiver(journal := SqliteJournal(tmp_path / "j.db"), US), Flask("shop")
    heard = Heard().by(receiver)

    @app.post("/ipn")
    def ipn() -> Response:
        query = request.query_string.decode()
        answer = receiver.take_sync(request.get_data(), query, request.headers, request.remote_addr)
        return Response(answer.body, answer.status, dict(answer.headers))

    with receiver.in_thread(journal):
        taken = app.test_client().post("/ipn?transactionId=t-1", data=notification())
        stranger = app.test_client().post("/ipn", data=notification("t-2"), environ_base={"REMOTE_ADDR": "10.9.9.9"})
        assert (200, "application/json", 403) == (taken.status_code, taken.content_type, stranger.status_code)
        assert ["t-1"] == heard.ids()


def test_a_view_of_django(tmp_path: Path) -> None:
    """As one of Flask, with Django's own headers and environment."""
    receiver = Receiver(journal := SqliteJournal(tmp_path / "j.db"), US, ["10.0.0.5"])
    heard, client = Heard().by(receiver), client_of(receiver)
    with receiver.in_thread(journal):
        one, two, three = (
            client.post(
                "/ipn", notification(f"t-{place}"), "application/json", REMOTE_ADDR=peer, HTTP_X_FORWARDED_FOR=by
            )
            for place, (peer, by) in enumerate([("10.0.0.5", "127.0.0.1"), ("10.0.0.5", "10.9.9.9"), ("10.9.9.9", "")])
        )
        assert (200, 403, 403) == (one.status_code, two.status_code, three.status_code)
        assert ["t-0"] == heard.ids()


class Quiet(WSGIRequestHandler):
    """Logs no request."""

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def served(application: Any) -> Iterator[str]:
    """A WSGI server of the standard library; gives its address."""
    with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def asked(url: str, body: bytes | None = None) -> tuple[int, Mapping[str, str]]:
    """Status and headers of an answer."""
    place = urlsplit(url)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=60)
    with closing(connection):
        target = f"{place.path}?{place.query}" if place.query else place.path
        connection.request("GET" if body is None else "POST", target, body)
        answer = connection.getresponse()
        answer.read()
        return answer.status, dict(answer.headers)


def test_a_wsgi_server(tmp_path: Path) -> None:
    """The receiver is a whole WSGI application: token, path, method, size and health are as behind any other server."""
    receiver = Receiver(journal := SqliteJournal(tmp_path / "j.db"), US, path_token="0123456789abcdef")
    heard = Heard().by(receiver)
    with receiver.in_thread(journal), served(receiver.wsgi("/ipn")) as url:
        below = f"{url}/ipn/0123456789abcdef"
        assert 200 == asked(f"{below}?transactionId=t-1", notification())[0]
        assert 404 == asked(f"{url}/ipn", notification("t-2"))[0]
        assert 404 == asked(f"{below}/elsewhere", notification("t-2"))[0]
        assert 413 == asked(below, notification("t-2", StatusMessage="x" * 70_000))[0]
        assert (405, "POST") == ((found := asked(below))[0], found[1]["Allow"])
        assert 400 == asked(f"{below}?transactionId=another", notification("t-2"))[0]
        assert (200, 404) == (asked(f"{below}/health")[0], asked(f"{url}/ipn/health")[0])
        assert ["t-1"] == heard.ids()


def test_a_length_that_no_body_has() -> None:
    """A WSGI server hands over whatever number came: it is too large, or unreadable, and raises nothing."""
    receiver = Receiver(senders=US)
    told: list[str] = []

    def answered(length: str) -> str:
        body = io.BytesIO(b"x" * 70_000)
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "", "REMOTE_ADDR": US[0], "wsgi.input": body}
        list(receiver.wsgi()(environ | {"CONTENT_LENGTH": length}, lambda status, _: told.append(status[:3])))
        return told[-1]

    with receiver.in_thread():
        lengths = ("9" * 5000, "0" * 5000 + "70000", "-1", "1_0")
        assert ["413", "413", "400", "400"] == [answered(one) for one in lengths]


async def test_a_body_that_is_no_bytes() -> None:
    """A text that a framework has read: it is told which one is meant."""
    receiver = Receiver(senders=US)
    for taken in (receiver.take, receiver.verify_sender):
        with pytest.raises(TypeError, match="body: expected the raw body, in bytes"):
            await taken(notification().decode(), "", {}, "127.0.0.1")  # type: ignore[operator]


def test_many_threads_hand_in_at_once(tmp_path: Path) -> None:
    """What they hand in is stored together, and each gets its own answer."""
    receiver = Receiver(journal := SqliteJournal(tmp_path / "j.db"), US)

    def one(number: int) -> bool:
        answer = receiver.take_sync(notification(f"t-{number % 25}"), "", {}, "127.0.0.1")
        return answer.status == 200 and f'"t-{number % 25}"'.encode() in answer.body

    with receiver.in_thread(journal), ThreadPoolExecutor(8) as threads:
        assert all(threads.map(one, range(100)))
        health = receiver.wsgi()({"REQUEST_METHOD": "GET", "PATH_INFO": "/health"}, lambda *_: None)
    assert b'"status": "ok"' in b"".join(health)

    async def stored() -> int:
        async with journal:
            return len([event async for event in journal.unmatched()])

    assert 25 == asyncio.run(stored())


async def test_a_coroutine_hands_in() -> None:
    """Whatever web framework runs the loop: bytes, query, headers and peer are all that is needed."""
    receiver = Receiver(senders=US)
    heard = Heard().by(receiver)
    async with receiver:
        answer = await receiver.take(notification(), "", [("Content-Type", "application/json")], "127.0.0.1")
        assert (200, {"Content-Type": "application/json"}) == (answer.status, dict(answer.headers))
        assert 415 == (await receiver.take(notification(), "", {"content-encoding": "gzip"}, "127.0.0.1")).status
    assert ["t-1"] == heard.ids()


async def test_the_sequence_is_sender_size_words() -> None:
    """A stranger learns nothing of size and words; a body too large is not read."""
    receiver = Receiver(senders=US)
    statuses = [
        (await receiver.take(body, "", {}, peer)).status
        for peer in ("10.9.9.9", "127.0.0.1")
        for body in (b"x" * 70_000, b"no json", notification())
    ]
    assert [403, 403, 403, 413, 400, 200] == statuses


async def test_the_parts_alone() -> None:
    """An application checks the sender, reads the event, stores it as it likes, and then sends the answer."""
    receiver = Receiver(senders=US, verifiers=[is_signed])
    body = notification()
    proved = {"X-Signature": signed(body)}
    assert "127.0.0.1" == await receiver.verify_sender(body, "", proved, "127.0.0.1")
    event = read_notification(body, "transactionId=t-1")
    answer = receiver.answer(event)
    assert (200, True) == (answer.status, b'"TransactionId":"t-1"' in answer.body)
    for headers, peer in (({}, "127.0.0.1"), (proved, "10.9.9.9")):
        with pytest.raises(RequestRefused, match="403") as refused:
            await receiver.verify_sender(body, "", headers, peer)
        assert 403 == refused.value.answer.status


async def test_in_shadow_the_parts_alone_refuse() -> None:
    """What only watches a receiver must not become proof for an application's own code."""
    receiver = Receiver(senders=US, settings=ReceiverSettings(shadow=True))
    with pytest.raises(RequestRefused):
        await receiver.verify_sender(notification(), "", {}, "10.9.9.9")


async def test_an_address_that_a_server_took_out_of_the_headers() -> None:
    """It is refused, for anybody may have written them; who trusts that server says so."""
    receiver, headers = Receiver(senders=US), {"X-Forwarded-For": "127.0.0.1"}
    assert 403 == (await receiver.take(notification(), "", headers, "127.0.0.1")).status
    assert 200 == (await receiver.take(notification(), "", headers, "127.0.0.1", rewritten=True)).status


async def test_a_thread_that_runs_an_event_loop() -> None:
    """It would stand still, so it is told to await."""
    async with Receiver(senders=US) as receiver:
        with pytest.raises(RuntimeError, match="await receiver"):
            receiver.take_sync(notification(), "", {}, "127.0.0.1")


def test_a_receiver_that_is_not_open() -> None:
    """A thread would wait for a loop that does not run; before it was opened, and after it was closed."""
    receiver = Receiver(senders=US)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="in_thread"):
            receiver.take_sync(notification(), "", {}, "127.0.0.1")
        with receiver.in_thread():
            assert 200 == receiver.take_sync(notification(), "", {}, "127.0.0.1").status


def test_what_takes_too_long_is_answered_503() -> None:
    """The service sends it again; the thread is free meanwhile."""
    receiver = Receiver(senders=US)
    let_go = threading.Event()

    @receiver.on(TransactionEvent)
    async def slow(event: TransactionEvent) -> None:
        await asyncio.to_thread(let_go.wait, 60)

    with receiver.in_thread():
        begun = time.monotonic()
        assert 503 == receiver.take_sync(notification(), "", {}, "127.0.0.1", timeout=0.05).status
        assert time.monotonic() - begun < 30
        let_go.set()


FORKED = """
import os, sys
from payments_async.ipn import Receiver
with (receiver := Receiver(senders=["127.0.0.1"])).in_thread():
    if os.fork() == 0:
        try:
            receiver.take_sync(b"{}", "", {}, "127.0.0.1")
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it forks")
def test_a_process_that_was_forked_after_it_was_opened() -> None:
    """Threads do not survive a fork, so a worker that was preloaded is told to open its own."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, check=True, text=True, timeout=60)
    assert "opened before this process was forked" in done.stdout


async def test_the_same_fact_has_one_id_with_an_inbox_and_without(journal: SqliteJournal) -> None:
    """Each delivery and each way to receive tells the same one; another status or amount is another fact."""
    once, twice = notification(Amount=-500.250), notification(Amount="500.25", StatusMessage="sent again")
    others = [notification(code=2, Amount=500.25), notification(Amount=500.26), notification("t-2", Amount=500.25)]
    assert "t-1:0:500.25" == read_notification(once, "").fact_id == read_notification(twice, "").fact_id
    assert 4 == len({read_notification(body, "").fact_id for body in (once, *others)})
    for receiver in (Receiver(senders=US), Receiver(journal, US)):
        heard = Heard().by(receiver)
        async with receiver:
            for body in (once, twice):
                assert 200 == (await receiver.take(body, "", {}, "127.0.0.1")).status
            await asyncio.to_thread(heard.ids)
        assert ["t-1:0:500.25"] == [event.fact_id for event in heard.events]
