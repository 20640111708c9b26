"""All answers to an order that a service may give, by what it did with the order, and what may be concluded of them.

A service that has the order shows that in some way, or breaks off; one that has not shows nothing of the kind. It is
never concluded of the first that the order may be sent again, nor of the second that it was accepted.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from explorer.desks import Report
from journal.factories import order, transaction_id

from payments_async._values.errors import AuthenticationFailed, NotSent, OutcomeUnknown, PaymentsError, Rejected
from payments_async._wire.call import Call, Reply
from payments_async._wire.dialect import Dialect
from payments_async._wire.endpoints import send_order
from payments_async._wire.models import Acceptance
from payments_async._wire.replies import read_reply

ONE, DIALECT = order(1), Dialect()
OURS = transaction_id(1)
STATUSES = (200, 202, 400, 401, 404, 409, 422, 429, 500, 503)
READ_AND_REFUSED = (400, 404, 422)  # of them; others prove nothing, or that it was not read
# By what a service shows that it has an order, each by itself, at the top of its answer or within.
SIGNS: dict[str, dict[str, Any]] = {
    "a transaction": {"data": {"transactionId": OURS}},
    "a transaction deep within": {"errors": [{"detail": {"transaction_id": OURS}}]},
    "a transaction of our request": {"data": {"transactionId": OURS, "requestId": ONE.request_id}},
    "its success": {"success": True},
    "code 0": {"code": 0},
    "that it was taken": {"status": "accepted"},
    "that it is under way": {"data": {"status": "PROCESSING"}},
    "that the id is used": {"message": "Duplicate request id"},
    "that it was received": {"message": "Your request was received and timed out"},
    "another request": {"data": {"requestId": "payroll-999999"}},  # the answer to ours is elsewhere
}
REFUSALS: dict[str, dict[str, Any]] = {
    "a refusal": {"code": 17, "message": "Insufficient balance"},
    "a refusal of our request": {"code": 17, "message": "No", "data": {"requestId": ONE.request_id}},
    "no success": {"success": False, "code": 17, "message": "No"},
}
FORMS: dict[str, Callable[[str], bytes]] = {
    "": lambda text: text.encode(),
    ", cut off": lambda text: text[: -len(text) // 3].encode(),
    ", packed into a text": lambda text: json.dumps(text).encode(),
    ", in words": lambda text: text.replace("{", "<").replace("[", "<").encode(),
}


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    data = {**one.get("data", {}), **other.get("data", {})}
    return {**one, **other, **({"data": data} if data else {})}


def concluded(call: Call[Any], status: int, body: bytes) -> str:
    """What the package makes of an answer."""
    try:
        result = read_reply(call, Reply(status, body), DIALECT)
    except PaymentsError as error:
        return type(error).__name__
    return type(result).__name__


AGAIN = {kind.__name__ for kind in (Rejected, NotSent, AuthenticationFailed)}
TAKEN, UNKNOWN = Acceptance.__name__, OutcomeUnknown.__name__


def answers() -> Iterator[tuple[str, int, bytes, bool]]:
    """What is shown, status, body, and whether a service says so that may have the order."""
    for (said, refusal), (shown, sign) in itertools.product({"": {}, **REFUSALS}.items(), SIGNS.items()):
        text = json.dumps(_merged(refusal, sign))
        for form, write in FORMS.items():
            # words are no envelope: there, a transaction alone is a sign
            if form != ", in words" or "transaction" in shown:
                for status in STATUSES:
                    yield f"{said or 'an answer'} beside {shown}{form}", status, write(text), True
    for said, refusal in REFUSALS.items():
        for status in STATUSES:
            yield f"{said}, cut off", status, FORMS[", cut off"](json.dumps(refusal)), True
            # a service that fails, or is confused, may have done anything before
            yield said, status, json.dumps(refusal).encode(), status in (409, 500, 503)


def wrong() -> Iterator[str]:
    """What is concluded of an answer, and must not be."""
    first, again = send_order(ONE, DIALECT), send_order(ONE, DIALECT, sent_before=True)
    for said, status, body, may_have_it in answers():
        it = concluded(first, status, body)
        # words such as "timed out" are about the session where a request is turned away unread
        unread = status in (401, 429) and said.endswith("received")
        if may_have_it and it in AGAIN and not unread:
            yield f"{status}, {said}: it is {it}, and the service may have the order"
        if not may_have_it and it == TAKEN:
            yield f"{status}, {said}: it is taken for an acceptance"
        if not may_have_it and status in (200, *READ_AND_REFUSED) and it != Rejected.__name__:
            yield f"{status}, {said}: it is {it}"
        if concluded(again, status, body) == Rejected.__name__:
            yield f"{status}, {said}: it is a refusal of an order that was sent before"
    whole = {"requestId": ONE.request_id, "batchId": "b", "transactionId": OURS, "status": "PROCESSING",
             "message": "queued", "createdOn": "2026-11-01T10:00:00"}  # fmt: skip
    taken = {"code": 0, "status": "success", "data": whole}
    mistakes: dict[str, dict[str, Any]] = {
        "no transaction": {"data": {**whole, "transactionId": ""}},
        "an id of zeros": {"data": {**whole, "transactionId": "0000-0000"}},
        "another request": {"data": {**whole, "requestId": "payroll-999999"}},
        "another request, in other words": {"data": {**whole, "requestId": "payroll-999999", "more": 1}},
        "no success": {"success": False},
        "a failure": {"status": "error"},
        "an error code": {"code": 17},
    }
    if concluded(first, 200, json.dumps(taken).encode()) != TAKEN:
        yield "an acceptance as documented is none"
    for name, changes in mistakes.items():
        if (it := concluded(first, 200, json.dumps({**taken, **changes}).encode())) != UNKNOWN:
            yield f"an acceptance, with {name}: it is {it}"


def search() -> Report:
    """See all answers; the first of which too much is concluded."""
    began = time.perf_counter()
    found = next(wrong(), "")
    return Report(name="answers", states=sum(1 for _ in answers()), seconds=time.perf_counter() - began, wrong=found)
