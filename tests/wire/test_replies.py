"""Which answer means what: the sorting table, every status of it, and what an error may say."""

import gzip
import json
import pickle
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from session.wires import Request, Wire, raw_reply
from wire.conftest import Open
from wire.orders import EMAIL, NAME, PHONE, WALLET, beneficiary, collection, payout

from payments_async import (
    Acceptance,
    AuthenticationFailed,
    BankAccount,
    Dialect,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    Rejected,
    ServiceFault,
    TransactionStatus,
    UnreadableReply,
    UtilityAccount,
)
from payments_async._wire.call import Call, Reply
from payments_async._wire.endpoints import (
    enable_card,
    get_account,
    list_transactions,
    log_in,
    raw,
    reset_card_pin,
    send_order,
    validate,
)
from payments_async._wire.replies import (
    lost_reply,
    never_left,
    read_acceptance,
    read_plain_acceptance,
    read_reply,
    retry_after,
    told_status,
)

DIALECT = Dialect()
MONEY = {
    "payout": send_order(payout(), DIALECT),
    "collection": send_order(collection(request_id="r-1"), DIALECT),
}
CARDS = {"card enable": enable_card("4000", DIALECT), "card PIN": reset_card_pin("4000", "0417", DIALECT)}
ONCE: dict[str, Call[Any]] = {**MONEY, **CARDS, "raw POST": raw("POST", "/api/any", query=None, body={})}
READS: dict[str, Call[Any]] = {
    "account": get_account(DIALECT),
    "validation": validate("I", "20551177", 1, DIALECT),
    "list": list_transactions(number=1, size=5, since=None, until=None, status=None, dialect=DIALECT),
    "raw GET": raw("GET", "/api/any", query=None, body=None),
}
SENT_BEFORE = send_order(payout(), DIALECT, sent_before=True)
REFUSAL = b'{"code": 17, "message": "Insufficient balance", "correlationId": "c-9"}'

# design.md, "Errors", word for word: the rest of a money call is unknown, the rest of a read a fault.
MONEY_TABLE: dict[int, type[PaymentsError]] = dict.fromkeys(range(100, 600), OutcomeUnknown)
MONEY_TABLE |= dict.fromkeys(range(200, 300), Rejected)  # a readable envelope with a code, and no transaction
MONEY_TABLE |= dict.fromkeys([400, 403, 404, 405, 406, *range(410, 418), 421, 422, 426, 431], Rejected)
MONEY_TABLE |= {401: AuthenticationFailed, 429: NotSent}
SENT_BEFORE_TABLE = {status: OutcomeUnknown if kind is Rejected else kind for status, kind in MONEY_TABLE.items()}
READ_TABLE: dict[int, type[PaymentsError]] = dict.fromkeys(range(100, 600), ServiceFault)
READ_TABLE |= dict.fromkeys(range(200, 300), Rejected) | dict.fromkeys(range(400, 500), Rejected)
READ_TABLE |= {401: AuthenticationFailed} | dict.fromkeys([407, 408, 409, 425, 429], ServiceFault)
TABLES: dict[str, tuple[Call[Any], dict[int, type[PaymentsError]]]] = {
    "payout": (MONEY["payout"], MONEY_TABLE),
    "sent before": (SENT_BEFORE, SENT_BEFORE_TABLE),
    "read": (READS["account"], READ_TABLE),
}


def failure(
    call: Call[Any], body: bytes, status: int = 200, wait: float | None = None, **dialect: Any
) -> PaymentsError:
    """The error an answer becomes."""
    with pytest.raises(PaymentsError) as caught:
        read_reply(call, Reply(status, body, wait), Dialect(**dialect))
    return caught.value


def acceptance(**members: Any) -> bytes:
    """An acceptance, with other members of ``data`` or, under ``code`` and ``message``, of the envelope."""
    envelope: dict[str, Any] = {"code": 0, "message": "ok"}
    envelope |= {name: members.pop(name) for name in ("code", "message") if name in members}
    data = {"requestId": "r-1", "transactionId": "t-1", "status": "PROCESSING"} | members
    return json.dumps({name: value for name, value in envelope.items() if value is not ...} | {"data": data}).encode()


@pytest.mark.parametrize("kind", TABLES)
def test_a_status_and_a_refusal(kind: str) -> None:
    """Each status of each kind of call is sorted as the table says, and the error carries the facts."""
    call, table = TABLES[kind]
    errors = {status: failure(call, REFUSAL, status) for status in table}
    assert {status: table[status] for status in errors} == {status: type(errors[status]) for status in errors}
    for status, error in errors.items():
        facts = (error.request_id, error.status, error.code, error.correlation_id)
        assert (call.request_id, status, 17, "c-9") == facts
        assert "Insufficient balance" in error.message


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"[]", b"null", b'"no"', b"\xff\xfe", b"Too many, my dear"])
@pytest.mark.parametrize("kind", TABLES)
def test_a_status_beside_no_envelope(kind: str, body: bytes) -> None:
    """Whatever the body: a refusal stays one, and a 2xx nobody can read proves nothing."""
    call, table = TABLES[kind]
    expected = table | dict.fromkeys(range(200, 300), OutcomeUnknown if call.once else UnreadableReply)
    seen = {status: type(failure(call, body, status)) for status in expected}
    assert expected == seen


@pytest.mark.parametrize("name", ONCE)
def test_every_call_that_must_be_made_once(name: str) -> None:
    """Cards and raw calls other than GET are sorted as money is."""
    refused = {status: kind for status, kind in MONEY_TABLE.items() if status // 100 != 2}
    assert refused == {status: type(failure(ONCE[name], REFUSAL, status)) for status in refused}
    assert (False, True) == (ONCE[name].repeatable, ONCE[name].once)


@pytest.mark.parametrize("name", READS)
def test_every_call_that_may_be_repeated(name: str) -> None:
    """Validation is a read although it is a POST."""
    refused = {status: kind for status, kind in READ_TABLE.items() if status // 100 != 2}
    assert refused == {status: type(failure(READS[name], REFUSAL, status)) for status in refused}
    assert (True, False) == (READS[name].repeatable, READS[name].once)


def test_the_login_is_neither() -> None:
    """It is not repeated by the retry policy, and moves no money."""
    call = log_in("key", "password", "user", DIALECT)
    assert (False, False, False) == (call.repeatable, call.once, call.authorized)


def test_statuses_believed_to_turn_away() -> None:
    """The set is the dialect's: more in it are not sent, and what is not in it is unknown."""
    believed: dict[str, Any] = {"turned_away_unread": {429, 423}}
    kinds = {status: type(failure(MONEY["payout"], REFUSAL, status, **believed)) for status in (401, 429, 500, 423)}
    assert {401: OutcomeUnknown, 429: NotSent, 500: OutcomeUnknown, 423: NotSent} == kinds


@pytest.mark.parametrize("name", MONEY)
@pytest.mark.parametrize("status", [200, 201, 202, 299])
def test_an_acceptance(name: str, status: int) -> None:
    """Any 2xx will do."""
    accepted = read_reply(MONEY[name], Reply(status, acceptance()), DIALECT)
    assert Acceptance(request_id="r-1", transaction_id="t-1", status=TransactionStatus.PROCESSING) == accepted


@pytest.mark.parametrize("code", [0, "0", " 0 ", 0.0, "-0", None, pytest.param(..., id="missing")])
def test_a_code_that_means_accepted(code: object) -> None:
    """Zero in any type, and none at all beside a complete acceptance that echoes our id."""
    accepted = read_reply(MONEY["payout"], Reply(200, acceptance(code=code)), DIALECT)
    assert "t-1" == accepted.transaction_id


@pytest.mark.parametrize("code", [False, True, "", "ok", "--0", "0x0", "1_0", 0.5, [], {}, [0]])
@pytest.mark.parametrize("data", [{"requestId": "r-1", "transactionId": "t-1"}, {}, None])
def test_a_code_that_is_no_number(code: object, data: dict[str, str] | None) -> None:
    """It is unreadable: with a transaction or without, nobody knows what became of the order."""
    body = json.dumps({"code": code, "message": "?", "data": data}).encode()
    for call in (MONEY["payout"], SENT_BEFORE):
        error = failure(call, body)
        assert (OutcomeUnknown, (data or {}).get("transactionId")) == (type(error), error.transaction_id)
    assert UnreadableReply is type(failure(READS["account"], body))
    refused = OutcomeUnknown if data else Rejected  # its code is not asked, but the transaction that it names is
    assert refused is type(failure(MONEY["payout"], body, 400))


@pytest.mark.parametrize(("code", "number"), [(17, 17), ("17", 17), (17.0, 17), (-3, -3), ("-3", -3), (1, 1)])
def test_a_code_beside_no_transaction(code: object, number: int) -> None:
    """The service said no."""
    nothing: list[object] = [None, {}, {"requestId": "r-1"}, {"transactionId": ""}, {"transactionId": None}, []]
    for data in nothing:
        error = failure(MONEY["payout"], json.dumps({"code": code, "message": "no", "data": data}).encode())
        assert (Rejected, number, None) == (type(error), error.code, error.transaction_id)


def test_a_code_beside_a_transaction() -> None:
    """Nobody knows what that means; the transaction is carried."""
    error = failure(MONEY["payout"], acceptance(code=17, message="no"))
    assert (OutcomeUnknown, 17, "t-1") == (type(error), error.code, error.transaction_id)


REFUSING = (400, 401, 403, 404, 422, 429)
NAMING = {
    "in data": {"code": 17, "message": "no", "data": {"requestId": "r-1", "transactionId": "t-1"}},
    "a whole acceptance": {"code": 0, "message": "ok", "data": {"requestId": "r-1", "transactionId": "t-1"}},
    "at the top": {"code": 17, "message": "no", "transactionId": "t-1"},
    "snake case": {"code": 17, "data": {"transaction_id": "t-1"}},
    "in a list": {"code": 17, "data": [{"transactionID": "t-1"}]},
    "deep inside": {"code": 17, "error": {"details": [{"duplicate_of": {"TransactionId": "t-1"}}]}},
    "a list": [{"transactionId": "t-1"}],
}


@pytest.mark.parametrize("name", NAMING)
@pytest.mark.parametrize("status", REFUSING)
def test_a_refusal_that_names_a_transaction(status: int, name: str) -> None:
    """It is no refusal, and nothing was turned away unread: the outcome is unknown, and the transaction is carried."""
    for call in (*MONEY.values(), SENT_BEFORE):
        error = failure(call, json.dumps(NAMING[name]).encode(), status)
        assert (OutcomeUnknown, "t-1", status) == (type(error), error.transaction_id, error.status)


@pytest.mark.parametrize("name", [name for name in NAMING if name not in ("a whole acceptance", "a list")])
def test_a_code_beside_a_transaction_elsewhere(name: str) -> None:
    """The same with HTTP 200, wherever the transaction is named."""
    error = failure(MONEY["payout"], json.dumps(NAMING[name]).encode())
    assert (OutcomeUnknown, "t-1") == (type(error), error.transaction_id)


@pytest.mark.parametrize("number", ["", " ", None, 0, "0", "00000000-0000-0000-0000-000000000000", {}, [], False])
def test_a_transaction_of_zeros(number: object) -> None:
    """An empty id names no transaction: a refusal stays one, and an acceptance of it is none."""
    data = {"requestId": "r-1", "transactionId": number}
    assert NotSent is type(failure(MONEY["payout"], json.dumps({"code": 17, "data": data}).encode(), 429))
    assert Rejected is type(failure(MONEY["payout"], json.dumps({"code": 17, "data": data}).encode()))
    assert OutcomeUnknown is type(failure(MONEY["payout"], acceptance(transactionId=number)))
    everything = {"batchId": "", "message": "", "createdOn": "2026-11-21 10:00:00"}
    assert OutcomeUnknown is type(failure(MONEY["payout"], acceptance(transactionId=number, **everything)))


@pytest.mark.parametrize(
    "body", [b'{"code":0,"data":{"transactionId":"t-', b"<p>TRANSACTION_ID t-1", b'\xff"transactionid"']
)
@pytest.mark.parametrize("status", REFUSING)
def test_half_a_refusal_that_seems_to_name_a_transaction(status: int, body: bytes) -> None:
    """What cannot be read, but speaks of a transaction, is not believed either."""
    assert OutcomeUnknown is type(failure(MONEY["payout"], body, status))


@pytest.mark.parametrize(
    "body",
    [
        b"{", b'{"code":0,"data":{"requestId":"r-1","tran', b'[{"a":"\xff"}]', b'{"code":429}{"code":0}',
        '{"data":{"transactionId":"t-1"}}'.encode("utf-16"), gzip.compress(acceptance(), mtime=0), b'"{}"',
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", REFUSING)
def test_half_a_refusal_or_a_garbled_one(status: int, body: bytes) -> None:
    """What may have been an acceptance before it was cut off or packed turns nothing away unread."""
    assert OutcomeUnknown is type(failure(MONEY["payout"], body, status))


@pytest.mark.parametrize(
    "words",
    [
        "Duplicate request id", "The requestId must be unique", "A transaction with this id already exists",
        "This request was already processed", "DUPLICATED", "already been submitted",
    ],
)  # fmt: skip
def test_a_refusal_of_what_the_service_has(words: str) -> None:
    """It tells of an earlier order under this id, which may have been ours: believed, it would be paid anew."""
    for status in (200, *REFUSING):
        error = failure(MONEY["payout"], json.dumps({"code": 17, "message": words}).encode(), status)
        assert (OutcomeUnknown, 17) == (type(error), error.code)
        assert words in error.message


@pytest.mark.parametrize(
    "words", ["Timeout at the provider", "The call timed out", "Your debit is being processed", "Status: PENDING"]
)
def test_a_refusal_of_what_goes_on(words: str) -> None:
    """It is no refusal; but who is turned away unread may be told that too much is pending."""
    for data in ({"message": words}, None):
        body = json.dumps({"code": 17, "message": words if data is None else "no", "data": data}).encode()
        assert [OutcomeUnknown] * 3 == [type(failure(MONEY["payout"], body, status)) for status in (200, 400, 403)]
        assert NotSent is type(failure(MONEY["payout"], body, 429))


@pytest.mark.parametrize("code", [200, 201, "202"])
def test_a_code_of_success(code: object) -> None:
    """One of HTTP's words for yes, without a transaction: neither accepted nor refused."""
    assert OutcomeUnknown is type(failure(MONEY["payout"], json.dumps({"code": code, "message": "ok"}).encode()))


CONTRADICTIONS: tuple[dict[str, Any], ...] = (
    {"code": 0},
    {"code": "200"},
    {"status": "received"},
    {"status": "PROCESSING"},
    {"status": "success"},
    {"data": {"status": "ENQUEUED"}},
    {"data": {"status": "pending", "requestId": "r-1"}},
    {"success": True},
    {"data": {"requestId": "r-2"}},
    {"data": {"requestId": 2}},
)


@pytest.mark.parametrize("said", CONTRADICTIONS)
def test_a_refusal_that_contradicts_itself(said: dict[str, Any]) -> None:
    """It says that the order was taken, or is about another one: unknown, with HTTP's word for no and with a code."""
    for status in (200, *REFUSING):
        error = failure(MONEY["payout"], json.dumps({"code": 17, "message": "no"} | said).encode(), status)
        assert (OutcomeUnknown, status) == (type(error), error.status)


PLAIN_REFUSALS: tuple[dict[str, Any], ...] = (
    {"requestId": "9f3c-of-a-balancer"},
    {"status": 400, "title": "Bad Request", "traceId": "00-4bf9"},
    {"status": "error"},
    {"success": False},
    {"data": {"requestId": "r-1", "status": "FAILED"}},
    {"data": []},
)


@pytest.mark.parametrize("said", PLAIN_REFUSALS)
def test_a_refusal_that_says_more(said: dict[str, Any]) -> None:
    """What does not speak against it leaves it a refusal."""
    body = json.dumps({"code": 17, "message": "no"} | said).encode()
    kinds = {status: type(failure(MONEY["payout"], body, status)) for status in (200, *REFUSING)}
    assert {status: MONEY_TABLE[status] for status in (200, *REFUSING)} == kinds


@pytest.mark.parametrize("said", [{"status": "error"}, {"success": False}, {"success": "false"}, {"status": "Failed"}])
def test_an_acceptance_that_says_no(said: dict[str, object]) -> None:
    """A transaction beside a no is not accepted and not refused; it is carried."""
    body = json.loads(acceptance(batchId="", message="", createdOn="2026-11-21 10:00:00")) | said
    error = failure(MONEY["payout"], json.dumps(body).encode())
    assert (OutcomeUnknown, "t-1") == (type(error), error.transaction_id)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("spelling", [int, str])
def test_a_status_told_as_a_code(kind: str, spelling: Any) -> None:
    """With HTTP 200 and such a code it is sorted as if the answer had that status."""
    call, table = TABLES[kind]
    for status in (code for code in MONEY_TABLE if code >= 400):
        error = failure(call, json.dumps({"code": spelling(status), "message": "no", "data": None}).encode())
        assert (table[status], 200, status) == (type(error), error.status, error.code)
        assert status == told_status(error)


@pytest.mark.parametrize("code", [401, 429, 500, 503, 599])
def test_a_validation_that_is_no_opinion(code: int) -> None:
    """No token, no time or a fault says nothing of the order."""
    error = failure(READS["validation"], json.dumps({"code": code, "message": "no"}).encode())
    assert READ_TABLE[code] is type(error)


@pytest.mark.parametrize("spelling", [str.capitalize, str.upper, str.lower])
def test_an_envelope_in_another_spelling(spelling: Any) -> None:
    """Its code counts as much: a refusal beside data is none the less a refusal, an acceptance one."""
    plain: dict[str, Any] = {"code": 17, "message": "no", "data": {"requestId": "r-1"}}
    error = failure(MONEY["payout"], json.dumps({spelling(name): item for name, item in plain.items()}).encode())
    assert (Rejected, 17) == (type(error), error.code)
    assert "no" in error.message
    plain = {"code": 17, "message": "no", "data": {"requestId": "r-1", "transactionId": "t-1"}}
    error = failure(MONEY["payout"], json.dumps({spelling(name): item for name, item in plain.items()}).encode())
    assert (OutcomeUnknown, "t-1") == (type(error), error.transaction_id)


def test_an_envelope_in_mixed_spellings() -> None:
    """A code is not overlooked because the data beside it are spelled as documented."""
    error = failure(MONEY["payout"], b'{"Code": 17, "Message": "no", "data": {}}')
    assert (Rejected, 17) == (type(error), error.code)
    body = acceptance(code=...).replace(b'"message"', b'"Code": 17, "message"')
    error = failure(MONEY["payout"], body)
    assert (OutcomeUnknown, 17, "t-1") == (type(error), error.code, error.transaction_id)


@pytest.mark.parametrize("echo", ["r-2", "R-1", "r-1 ", 1, 1.0])
def test_an_acceptance_with_another_echo(echo: object) -> None:
    """It is not ours; the transaction it names is carried."""
    error = failure(MONEY["payout"], acceptance(requestId=echo))
    assert (OutcomeUnknown, "t-1", "r-1") == (type(error), error.transaction_id, error.request_id)


def test_an_echo_that_is_a_number() -> None:
    """Ids are text, whatever JSON carried them."""
    call = send_order(payout(request_id="17"), DIALECT)
    assert "17" == read_reply(call, Reply(200, acceptance(requestId=17)), DIALECT).request_id


def test_an_acceptance_without_an_echo() -> None:
    """With a code of zero it is taken; without a code there is nothing to go by."""
    body = b'{"code": 0, "data": {"transactionId": "t-1"}}'
    assert "r-1" == read_reply(MONEY["payout"], Reply(200, body), DIALECT).request_id
    error = failure(MONEY["payout"], b'{"data": {"transactionId": "t-1"}}')
    assert (OutcomeUnknown, "t-1") == (type(error), error.transaction_id)


@pytest.mark.parametrize(
    "body",
    [b'{"code": 0}', b'{"code": 0, "data": null}', b'{"code": 0, "data": {}}', b'{"code": 0, "data": "t-1"}', b"{}"],
)
def test_an_acceptance_of_nothing(body: bytes) -> None:
    """Without a transaction it is unknown, not accepted and not refused."""
    assert OutcomeUnknown is type(failure(MONEY["payout"], body))


def test_an_acceptance_said_twice() -> None:
    """The first counts; the other is kept."""
    body = b'{"code": 0, "data": {"transactionId": "t-1", "TransactionId": "t-2", "requestId": "r-1", "fee": 1}}'
    accepted = read_reply(MONEY["payout"], Reply(200, body), DIALECT)
    assert ("t-1", {"TransactionId": "t-2", "fee": 1}) == (accepted.transaction_id, accepted.extra)


def test_an_acceptance_with_another_word_for_its_status() -> None:
    """It is understood, and the service's own word is kept."""
    accepted = read_reply(MONEY["payout"], Reply(200, acceptance(status="queued")), DIALECT)
    assert (TransactionStatus.ENQUEUED, {"status": "queued"}) == (accepted.status, accepted.extra)


TEXTS = st.sampled_from(["r-1", "r-2", "", "t-1", "PROCESSING", "SUCCESS", "2/27/2024 2:06:41 PM", "x", "é"])
MEMBERS = st.sampled_from(
    ["requestId", "batchId", "transactionId", "status", "message", "createdOn", "fee", "RequestId"]
)


@given(
    st.fixed_dictionaries(
        {"code": st.sampled_from([0, "0", 1, False, None])},
        optional={"data": st.dictionaries(MEMBERS, TEXTS, min_size=5), "message": TEXTS, "extra": TEXTS},
    )
)
@example(json.loads(acceptance(batchId="b-1", message="x", createdOn="2/27/2024 2:06:41 PM")))
def test_the_quick_way(value: dict[str, Any]) -> None:
    """Where it gives an acceptance, the thorough way gives the same."""
    quick = read_plain_acceptance(json.dumps(value).encode(), request_id="r-1", timezone=UTC)
    if quick is not None:
        assert read_acceptance(value, request_id="r-1", timezone=UTC) == quick


def test_the_quick_way_is_taken() -> None:
    """The documented sample takes it."""
    data = {"requestId": "r-1", "batchId": "b-1", "transactionId": "t-1", "status": "PROCESSING", "message": "x"}
    body = json.dumps({"code": 0, "data": data | {"createdOn": "2/27/2024 2:06:41 PM"}}).encode()
    quick = read_plain_acceptance(body, request_id="r-1", timezone=UTC)
    assert quick is not None
    assert ("t-1", datetime(2024, 2, 27, 14, 6, 41, tzinfo=UTC)) == (quick.transaction_id, quick.created_on)


@pytest.mark.parametrize("name", ["correlationId", "CorrelationId", "correlation_id"])
def test_a_correlation_id(name: str) -> None:
    """It is read in every spelling, from a refusal and from a 200."""
    body = json.dumps({"code": 17, "message": "no", name: "c-9"}).encode()
    assert ["c-9", "c-9", "c-9"] == [
        failure(MONEY["payout"], body, status).correlation_id for status in (200, 400, 500)
    ]


def test_an_error_in_another_process() -> None:
    """It arrives with all its facts and its class."""
    error = failure(MONEY["payout"], acceptance(code=17, message="no"), wait=7.0)
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(error), vars(error), str(error)) == (type(back), vars(back), str(back))
    assert ("t-1", 7.0) == (back.transaction_id, back.retry_after)


def test_a_refusal_without_words() -> None:
    """The status has a name; an unknown one is said to be unknown; a redirect tells where to look."""
    words = {status: failure(READS["account"], b"{}", status).message for status in (404, 599, 302)}
    assert "Not Found" in words[404]
    assert "undocumented HTTP status" in words[599]
    assert "redirect" in words[302]
    assert "base address" in words[302]


NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("2", 2.0),
        (" 120 ", 120.0),
        ("0", 0.0),
        (format_datetime(NOW.replace(minute=1), usegmt=True), 60.0),
        ("Saturday, 21-Nov-26 12:00:30 GMT", 30.0),
        ("Sat, 21 Nov 2026 12:00:30", 30.0),
        (format_datetime(NOW.replace(hour=11), usegmt=True), 0.0),
        ("-1", None),
        ("1.5", 1.5),
        ("", None),
        ("soon", None),
        ("٢", None),
        ("9" * 5000, None),
        ("Sat, 99 Nov 2026 12:00:30 GMT", None),
        (f"Sat, 21 Nov {'9' * 20} 12:00:30 GMT", None),
        (f"Sat, 21 Nov 2026 12:00:30 +{'9' * 20}", None),
    ],
)
def test_a_wait(header: str | None, seconds: float | None) -> None:
    """Seconds, even with a fraction, or a date; anything else is as if it had not been said."""
    assert seconds == retry_after(header, NOW.timestamp())


@pytest.mark.slow
@given(
    st.text(st.characters(max_codepoint=255), max_size=60)
    | st.from_regex(r"\A[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} -?\d+ \d+:\d+:\d+ [+-]\d+\Z")
)
def test_any_wait(header: str) -> None:
    """No header breaks the reading of an answer, and no wait is negative."""
    seconds = retry_after(header, NOW.timestamp())
    assert seconds is None or seconds >= 0


async def test_a_wait_on_the_wire(wire: Wire, opened: Open) -> None:
    """The header of a 429 reaches the error."""

    async def busy(_: Request) -> bytes | None:
        return raw_reply(b'{"code": 429, "message": "slow down"}', 429, {"Retry-After": "7"})

    wire.answer = busy
    payments = await opened()
    with pytest.raises(NotSent) as caught:
        await payments.payouts.send(payout())
    assert (429, 7.0, "r-1") == (caught.value.status, caught.value.retry_after, caught.value.request_id)


MESSAGE = "For my dear daughter"
METADATA = "employee Nalubega 17"
PERSONAL_ORDERS = {
    "wallet": payout(message=MESSAGE, metadata=METADATA),
    "bank": payout(BankAccount("0012345678", "104"), message=MESSAGE, metadata=METADATA, account_number="77123"),
    "bill": payout(UtilityAccount("20551177"), message=MESSAGE, metadata=METADATA),
    "name within the message": payout(message=f"{NAME} is paid", metadata=METADATA),
}
PERSONAL = (NAME, "Akello", EMAIL, PHONE, WALLET, "0012345678", "77123", "20551177", MESSAGE, METADATA, "is paid")


def leaks(error: BaseException) -> list[str]:
    """Personal texts that an error shows."""
    shown = f"{error} {error!r} {error.args!r}".lower()
    return [text for text in PERSONAL if text.lower() in shown]


def told(order: Any) -> list[str]:
    """What the service may say back of an order."""
    texts = [order.message, order.metadata, NAME, EMAIL, PHONE, WALLET, order.account_number or ""]
    place = order.destination
    texts.append(getattr(place, "account_number", None) or getattr(place, "customer_reference", ""))
    return texts


@pytest.mark.parametrize("spelling", [str, str.upper, str.lower])
@pytest.mark.parametrize("status", [200, 400, 429, 500])
@pytest.mark.parametrize("order", PERSONAL_ORDERS.values(), ids=PERSONAL_ORDERS)
def test_personal_words_in_an_error(order: Any, status: int, spelling: Any) -> None:
    """What the service says back of a person is hidden, in any case; its own words stay."""
    words = spelling(f"refused: {', '.join(told(order))}!")
    body = json.dumps({"code": 17, "message": words}).encode()
    for sent_before in (False, True):
        error = failure(send_order(order, DIALECT, sent_before=sent_before), body, status)
        assert [] == leaks(error)
        assert "refused: " in str(error).lower()


def test_a_part_of_a_name_in_an_error() -> None:
    """A service that says only the first or the last name says a name."""
    order = next(iter(PERSONAL_ORDERS.values()))
    for part in order.beneficiary.name.split():
        body = json.dumps({"code": 17, "message": f"no wallet of {part} there"}).encode()
        assert "no wallet of *** there" in str(failure(send_order(order, DIALECT), body, 400))


def test_personal_words_at_the_end_of_a_long_message() -> None:
    """A name is hidden before the message is cut, so that no half of it is left."""
    order = PERSONAL_ORDERS["wallet"]
    for length in range(480, 520):
        message = "x" * length + f" {NAME} {WALLET} " + "y" * 10000
        error = failure(send_order(order, DIALECT), json.dumps({"code": 17, "message": message}).encode())
        assert "Grace" not in str(error)
        assert "+2567" not in str(error)
        assert len(str(error)) < 1000


def test_a_collection_and_its_payer() -> None:
    """A payer is a person too."""
    call = send_order(collection(message=MESSAGE), DIALECT)
    body = json.dumps({"code": 17, "message": f"{NAME} {WALLET} {MESSAGE}"}).encode()
    assert [] == leaks(failure(call, body))


@pytest.mark.parametrize("pin", ["0417", "04171234"])
def test_a_pin_in_an_error(pin: str) -> None:
    """Not even its end is shown."""
    body = json.dumps({"code": 17, "message": f"the PIN {pin} is weak"}).encode()
    error = failure(reset_card_pin("4000", pin, DIALECT), body, 400)
    assert "the PIN *** is weak" in error.message


def test_numbers_of_other_people() -> None:
    """Telephone and account numbers and e-mail addresses are masked though they are in no order of ours."""
    words = "owner 0772 123 456 (256-772-123-456, other@example.org), transaction 41cc8f29-f3f4-45aa-148f-08dc315567d8"
    error = failure(READS["account"], json.dumps({"code": 17, "message": words}).encode())
    expected = "owner ***456 (***456, ***), transaction 41cc8f29-f3f4-45aa-148f-08dc315567d8"
    assert expected in error.message


def test_a_number_in_a_path() -> None:
    """A path of the caller's own making may hold one; it is masked as well."""
    call = raw("GET", "/api/customers/256772123456", query=None, body=None)
    errors = [failure(call, b"{}", 404), never_left(call, "no connection"), lost_reply(call, "timeout")]
    assert [] == [error for error in errors if "256772123456" in f"{error!s}{error!r}"]


@pytest.mark.parametrize("name", ONCE)
def test_a_call_in_a_log(name: str) -> None:
    """It shows where it goes, and nothing of what it carries."""
    assert f"<Call {ONCE[name].method} {ONCE[name].path}>" == repr(ONCE[name])


def test_no_byte_and_no_answer() -> None:
    """What never left was not sent; what was never answered is unknown; a read is a fault either way."""
    kinds = [
        (type(never_left(call, "why")), type(lost_reply(call, "why"))) for call in (MONEY["payout"], READS["list"])
    ]
    assert [(NotSent, OutcomeUnknown), (ServiceFault, ServiceFault)] == kinds
    assert ["r-1", "r-1"] == [tell(MONEY["payout"], "why").request_id for tell in (never_left, lost_reply)]


def test_an_order_with_short_personal_texts() -> None:
    """Words of one or two letters are left alone: hiding them would hide everything."""
    call = send_order(payout(beneficiary=beneficiary(name="Al"), message="no"), DIALECT)
    assert "totally no" in failure(call, b'{"code": 17, "message": "totally no"}').message


read_page = partial(read_reply, READS["list"], dialect=DIALECT)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"collection": [], "totalCount": 53, "nextPage": true}', (53, True, {})),
        ('{"collection": [], "totalCount": "53", "nextPage": "true"}', (53, True, {})),
        ('{"collection": [], "totalCount": 53.0, "nextPage": 1}', (53, True, {})),
        ('{"Collection": [], "total_count": 53, "NEXTPAGE": false}', (53, False, {})),
        ('{"collection": [], "totalCount": -1, "nextPage": "?"}', (None, None, {"totalCount": -1, "nextPage": "?"})),
        ('{"collection": [], "totalCount": null, "cursor": "c"}', (None, None, {"cursor": "c"})),
        ("[]", (None, None, {})),
    ],
)
def test_a_page(data: str, expected: tuple[int | None, bool | None, dict[str, object]]) -> None:
    """Counts and flags are read in every type; what is unknown or unreadable is kept."""
    page = read_page(reply=Reply(200, b'{"code": 0, "data": %s}' % data.encode()))
    assert expected == (page.total_count, page.next_page, page.extra)


@pytest.mark.parametrize(
    "body", [b'{"success": 0, "data": {}}', b'{"success": 0, "data": null}', b'{"success": false}']
)
def test_a_card_that_was_refused(body: bytes) -> None:
    """Nothing in the data means no, and for a patch as well."""
    assert Rejected is type(failure(CARDS["card enable"], body))


def test_a_card_beside_a_flag_that_says_no() -> None:
    """The service's own sample: present data beats the flag."""
    card = read_reply(CARDS["card PIN"], Reply(200, b'{"success": 0, "data": {"card_id": 17}}'), DIALECT)
    assert "17" == card.card_id


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"success": 1}', (True, None, {})),
        (b'{"success": 0, "message": "too low"}', (False, "too low", {})),
        (b'{"code": 0, "message": "ok", "status": "success"}', (True, "ok", {"code": 0, "status": "success"})),
        (b'{"code": 17, "message": "no"}', (False, "no", {"code": 17})),
        (b'{"Success": "true", "limit": 5}', (True, None, {"limit": 5})),
    ],
)
def test_a_validation(body: bytes, expected: tuple[bool, str | None, dict[str, object]]) -> None:
    """A no is an answer, and everything beside it is kept."""
    validation = read_reply(READS["validation"], Reply(200, body), DIALECT)
    assert expected == (validation.ok, validation.message, validation.extra)


LOGIN = log_in("key", "password", "user", DIALECT)


@pytest.mark.parametrize(
    "body",
    [
        b'{"Token": "a", "refreshToken": "b", "success": true}',
        b'{"token": "a", "refresh_token": "b"}',
        b'{"code": 0, "data": {"Token": "a", "RefreshToken": "b"}}',
        b'{"success": 1, "DATA": {"TOKEN": "a", "REFRESHTOKEN": "b"}}',
    ],
)
def test_a_login_in_another_spelling(body: bytes) -> None:
    """The token is found at the top and under data."""
    login = read_reply(LOGIN, Reply(200, body), DIALECT)
    assert ("a", "b") == (login.token, login.refresh_token)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"success": false, "message": "no"}', Rejected),
        (b'{"success": false, "Token": "a"}', Rejected),
        (b'{"success": 0}', Rejected),
        (b'{"code": 17, "message": "no"}', Rejected),
        (b'{"Token": "", "success": true}', UnreadableReply),
        (b'{"Token": null, "success": true}', UnreadableReply),
        (b'{"Token": 17}', UnreadableReply),
        (b'{"Token": "a b"}', UnreadableReply),
        (b'{"Token": "a\\r\\nX: y"}', UnreadableReply),
        (b'{"Token": "\xc3\xa9"}', UnreadableReply),
        (b'{"success": true}', UnreadableReply),
        (b"[]", UnreadableReply),
    ],
)
def test_a_login_without_a_token(body: bytes, kind: type[PaymentsError]) -> None:
    """No header is ever made of what is no token."""
    assert kind is type(failure(LOGIN, body))
