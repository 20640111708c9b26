"""The shared vectors, through each face, with and without an inbox."""

import asyncio
import base64
import json
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from ipn.faces import FACES
from multidict import CIMultiDict

from payments_async import Dialect
from payments_async.ipn import (
    HandlerPolicy,
    Receiver,
    ReceiverSettings,
    TransactionEvent,
    TransactionFailed,
    TransactionProcessing,
    TransactionSucceeded,
    TransactionUnrecognised,
)
from payments_async.ipn._senders import Senders
from payments_async.journal import SqliteJournal

SAMPLES = Path(__file__).parent.parent / "samples"
NOTIFICATIONS = json.loads((SAMPLES / "ipn_vectors.json").read_text(encoding="utf-8"))["vectors"]
ADDRESSES = json.loads((SAMPLES / "ip_vectors.json").read_text(encoding="utf-8"))["vectors"]
BY_ID = {vector["id"]: vector for vector in NOTIFICATIONS}
KINDS = {
    "success": TransactionSucceeded,
    "processing": TransactionProcessing,
    "error": TransactionFailed,
    "unknown": TransactionUnrecognised,
}


def body_of(request: dict[str, Any]) -> bytes:
    """The body that a vector describes."""
    if "body_text" in request:
        return str(request["body_text"]).encode()
    if "body_b64" in request:
        return base64.b64decode(request["body_b64"])
    made = request["body_gen"]
    if made["kind"] == "nest":
        return str(made["open"] * made["depth"] + made["close"] * made["depth"]).encode()
    return str(made["prefix"] + made["char"] * made["count"] + made["suffix"]).encode()


def claims(event: TransactionEvent, expected: dict[str, Any]) -> dict[str, Any]:
    """The event in the words of the vectors, for the claims that a vector makes."""
    said = {name: getattr(event, name, None) for name in expected}
    said["amount"] = None if event.amount is None else Decimal(event.amount)
    said["outcome"] = next(name for name, kind in KINDS.items() if type(event) is kind)
    reference = event.extra.get("requestReference")
    if reference is not None:
        reference = {"created_on": reference["createdOn"], "request_id": reference["requestId"]}
    return said | {"request_reference": reference}


def wanted(normalised: dict[str, Any]) -> dict[str, Any]:
    """What a vector claims, in our types; a moment without a zone is UTC."""
    wanted = dict(normalised)
    if wanted.get("created_on"):
        moment = datetime.fromisoformat(wanted["created_on"])
        wanted["created_on"] = moment if moment.tzinfo else datetime.fromisoformat(wanted["created_on"] + "+00:00")
    return wanted | {"amount": Decimal(wanted["amount"])}


@pytest.mark.parametrize("kept", [False, True], ids=["no-inbox", "inbox"])
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", BY_ID)
async def test_a_notification_vector_holds(name: str, face: str, kept: bool, tmp_path: Path) -> None:
    """Status, handler calls, every field and the time limit are as the vector says."""
    async with AsyncExitStack() as stack:
        inbox = await stack.enter_async_context(SqliteJournal(tmp_path / "inbox.sqlite")) if kept else None
        await hold(name, face, inbox)


async def hold(name: str, face: str, inbox: SqliteJournal | None) -> None:
    """Send what a vector says, after what must have come before it, and compare."""
    vector, heard = BY_ID[name], list[TransactionEvent]()
    receiver = Receiver(inbox, senders=["127.0.0.1"])
    receiver.on(TransactionEvent)(async_append(heard))
    async with FACES[face](receiver) as send:
        for earlier in vector.get("after", ()):
            request = BY_ID[earlier]["request"]
            await send(body_of(request), request["query"])
        if inbox is not None:
            await receiver.aclose()
        heard.clear()
        request, expect = vector["request"], vector["expect"]
        start = time.process_time()  # what the machine does meanwhile does not count
        got = await send(
            body_of(request),
            request["query"],
            method=request["method"],
            headers=request["headers"],
            chunked=request.get("chunked", False),
        )
        assert time.process_time() - start < expect["max_seconds"]
        await receiver.aclose()
    assert got.status == 200 if expect["outcome"] == "accept" else got.status == 200 or 400 <= got.status < 500
    if expect["outcome"] == "reject":
        assert (True, []) == (400 <= got.status < 500, heard)
    if expect["handler_calls"] is not None:
        assert expect["handler_calls"] == len(heard)
    if got.status == 200 and expect["normalised"] and heard:
        assert wanted(expect["normalised"]) == claims(heard[0], expect["normalised"])


def async_append(heard: list[TransactionEvent]) -> Any:
    """A handler that only listens."""

    async def hear(event: TransactionEvent) -> None:
        heard.append(event)

    return hear


@pytest.mark.parametrize("vector", ADDRESSES, ids=lambda vector: vector["id"])
def test_an_address_vector_holds(vector: dict[str, Any]) -> None:
    """The decision is the vector's, and it says why."""
    lines = vector["x_forwarded_for"]
    lines = [] if lines is None else [lines] if isinstance(lines, str) else lines
    senders = Senders(vector["allow"], vector["trusted_proxies"])
    sender = senders.check(vector["peer"], CIMultiDict([("X-Forwarded-For", line) for line in lines]))
    assert vector["expect"] == ("accept" if sender.is_known else "reject")
    assert sender.why.startswith("accepted: " if sender.is_known else "refused: ")


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=3))], ids=str)
@pytest.mark.parametrize("name", [name for name, vector in BY_ID.items() if vector["expect"]["outcome"] == "accept"])
async def test_an_inbox_gives_an_event_back_as_it_was_heard(name: str, zone: tzinfo, tmp_path: Path) -> None:
    """Also after a restart, and whether its text was kept or is read again from the delivery."""
    request, heard = BY_ID[name]["request"], list[TransactionEvent]()

    async def fail(event: TransactionEvent) -> None:
        heard.append(event)
        raise RuntimeError("no")

    async with SqliteJournal(tmp_path / "inbox.sqlite") as inbox:
        receiver = Receiver(
            inbox,
            ["127.0.0.1"],
            settings=ReceiverSettings(dialect=Dialect(timezone=zone)),
            policy=HandlerPolicy(attempts=1),
        )
        receiver.on(TransactionEvent)(fail)
        async with FACES["aiohttp"](receiver) as send:
            await send(body_of(request), request["query"], headers=request["headers"])
            async with asyncio.timeout(60):
                while not (await inbox.backlog()).dead:  # noqa: ASYNC110 - an inbox has no event to wait for
                    await asyncio.sleep(0.002)
    async with SqliteJournal(tmp_path / "inbox.sqlite") as inbox:
        dead = [letter.event async for letter in inbox.dead_letters()]
    assert heard == dead
    assert [event.created_on and event.created_on.isoformat() for event in heard] == [
        event.created_on and event.created_on.isoformat() for event in dead
    ]
