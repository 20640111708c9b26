"""The parser: everything it may be given is an event or the one parse error, in time."""

import itertools
import json
import random
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payments_async._wire.notifications import read_unusual, read_usual
from payments_async.ipn import TransactionEvent, TransactionSucceeded, UnreadableNotification, read_notification
from payments_async.testing import notification

LEAST = b'"TransactionId":"a","StatusCode":0'
PASCAL = {
    "AccountId": "6",
    "SubscriptionId": "77",
    "TransactionId": "672b00f8-a02c-5e41-9fd0-4f0c4c74308d",
    "BatchId": "b",
    "RequestId": "r",
    "StatusMessage": "fine",
    "StatusCode": 0,
    "CorrelationId": "c",
    "CreatedOn": "2024-02-27 14:06:41",
    "Amount": 500.25,
    "CurrencyCode": "UGX",
}


def read(members: bytes, query: str = "") -> TransactionEvent:
    """The event of the least notification with further members."""
    return read_notification(b"{%b,%b}" % (LEAST, members) if members else b"{%b}" % LEAST, query)


def outcome(body: bytes, query: str) -> Any:
    """The event, or that it cannot be read."""
    try:
        return read_notification(body, query)
    except UnreadableNotification:
        return None


@pytest.mark.parametrize(
    "members",
    [
        pytest.param(b'"x":' + b"9" * 5000, id="integer-of-thousands-of-digits"),
        pytest.param(b'"x":1' + b"0" * 400, id="integer-of-hundreds-of-digits"),
        pytest.param(b'"x":1e999999999', id="exponent-bomb"),
        pytest.param(b'"x":1e-999999999', id="negative-exponent-bomb"),
        pytest.param(b'"x":1e99999999999999999999999', id="exponent-out-of-range"),
        pytest.param(b'"Amount":1e29,"amount":1e30', id="two-amounts"),
        pytest.param(b'"Amount":1e31', id="amount-of-no-sensible-size"),
        pytest.param(b'"Amount":"NaN"', id="nan-as-text"),
        pytest.param(b'"Amount":"-Infinity"', id="infinity-as-text"),
        pytest.param(b'"Amount":"1_000"', id="underscore-in-amount"),
        pytest.param('"Amount":"١٢"'.encode(), id="foreign-digits"),
        pytest.param(b'"Amount":true', id="amount-is-true"),
        pytest.param(b'"Amount":{}', id="amount-is-object"),
        pytest.param(b'"x":NaN', id="nan-anywhere"),
        pytest.param(b'"x":-Infinity', id="infinity-anywhere"),
        pytest.param(b'"x":"\\ud800"', id="half-a-surrogate"),
        pytest.param(b'"x\\udfff":1', id="half-a-surrogate-in-a-name"),
        pytest.param(b'"x":"\\u0000"', id="nul"),
        pytest.param(b'"x":"\xff"', id="no-utf-8"),
        pytest.param(b'"x":' + b"[" * 60 + b"]" * 60, id="nested"),
        pytest.param(b'"x":' + b'{"a":' * 9000 + b"1" + b"}" * 9000, id="nested-deeply"),
        pytest.param(b'"TransactionId" : "b"', id="repeated-with-spaces"),
        pytest.param(b'"z":":x","TransactionId" :"b"', id="repeated-and-hidden"),
        pytest.param(b'"Transaction\\u0049d":"b"', id="repeated-with-an-escape"),
        pytest.param(b'"transaction_id":"b"', id="another-spelling"),
        pytest.param(b'"x":{"a":1,"a":true}', id="one-and-true"),
        pytest.param(b'"x":[{"a":1,"a":2}]', id="repeated-in-a-list"),
        pytest.param(b'"RequestId":"a","requestReference":{"requestId":"b"}', id="reference-differs"),
        pytest.param(b'"StatusCode":false', id="repeated-as-false"),
        pytest.param(b'"RequestId":["a"]', id="id-is-a-list"),
        pytest.param(b'"RequestId":"' + b"a" * 300 + b'"', id="id-too-long"),
        pytest.param(b'"AccountId":6.5', id="id-is-a-fraction"),
    ],
)
def test_what_cannot_be_trusted_is_refused(members: bytes) -> None:
    """A contradiction, or a value nobody can mean, is the one parse error."""
    with pytest.raises(UnreadableNotification):
        read(members)


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'"x"', b"{}", b"{", b"\xff\xfe{\x00}\x00", b"{}{}", b"\xef\xbb\xbf"]
)
def test_what_is_no_notification_is_refused(body: bytes) -> None:
    """Nothing without a transaction id and a status code is an event."""
    with pytest.raises(UnreadableNotification):
        read_notification(body, "")


@pytest.mark.parametrize(
    "query",
    [
        "Amount=inf",
        "Amount=nan",
        "Amount=1_0",
        "requestId=%ff",
        "requestId=%00",
        "requestId=\udcff",
        "requestId=a&requestId=b",
        "transaction_id=b",
        "Amount=1&Amount=2",
        "x=" + "a" * 9000,
    ],
)
def test_a_query_that_cannot_be_trusted_is_refused(query: str) -> None:
    """The query is read as strictly as the body."""
    with pytest.raises(UnreadableNotification):
        read(b"", query)


@pytest.mark.parametrize("text", ["500.25.0", "500.25.", "500..25", "500.25.00"])
def test_an_amount_in_the_query_with_two_points_is_refused(text: str) -> None:
    """Zeros at its end may differ from the body's; it is a number all the same."""
    with pytest.raises(UnreadableNotification):
        read(b'"Amount":500.25', f"Amount={text}")


def test_a_parameter_without_a_value_is_none() -> None:
    """An empty one contradicts nothing."""
    assert Decimal(5) == read(b'"Amount":5', "Amount=&requestId=").amount


def test_the_query_fills_in_what_the_body_leaves_out() -> None:
    """Ids come from the query when the body has none, and the body's request reference before it."""
    query = "transactionId=t&subscriptionId=77&accountId=6&requestId=r%201&Amount=1E+06"
    event = read_notification(b'{"statusCode":"2"}', query)
    assert ("t", "77", "6", "r 1", Decimal("1E+6")) == (
        event.transaction_id,
        event.subscription_id,
        event.account_id,
        event.request_id,
        event.amount,
    )
    assert "x" == read(b'"requestReference":{"requestId":"x"}').request_id


def test_an_unencoded_plus_in_the_query_is_no_contradiction() -> None:
    """A sender that does not encode a plus still agrees with its body."""
    assert "a+b" == read(b'"RequestId":"a+b"', "requestId=a+b").request_id


@pytest.mark.parametrize("spelling", ["pascal", "camel", "snake"])
def test_an_account_that_is_a_number_in_the_body_and_text_in_the_query_is_no_contradiction(spelling: Any) -> None:
    """A number has no zeros before it. Another account is a contradiction as before."""
    told = notification(account_id="0006", subscription_id="077", spelling=spelling, number_ids=True)
    event = read_notification(told.body, told.query)
    assert ("6", "77") == (event.account_id, event.subscription_id)
    with pytest.raises(UnreadableNotification, match="account_id differs"):
        read_notification(told.body, told.query.replace("0006", "0007"))


def test_the_earlier_edition_is_read() -> None:
    """Its two other names are known, and ids are text whatever carried them."""
    event = read(b'"client_referenceId":"r","account_number":6.0,"subscription_id":77')
    assert ("r", "6", "77") == (event.request_id, event.account_id, event.subscription_id)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-27T14:06:41.1234567Z", datetime(2024, 2, 27, 14, 6, 41, 123456, tzinfo=UTC)),
        ("2/27/2024 2:06:41 PM", datetime(2024, 2, 27, 14, 6, 41, tzinfo=UTC)),
        ("2024-02-27 14:06:41", datetime(2024, 2, 27, 14, 6, 41, tzinfo=UTC)),
        ("0001-01-01T00:00:00", None),
        ("yesterday", None),
        (20240227, None),
    ],
)
def test_a_date_never_costs_a_notification(text: object, expected: datetime | None) -> None:
    """Three shapes are read; anything else is kept in extra."""
    event = read(b'"CreatedOn":' + json.dumps(text).encode())
    assert (expected, {} if expected else {"CreatedOn": text}) == (event.created_on, event.extra)


def test_nothing_that_is_said_is_dropped() -> None:
    """Members nobody documented are kept as they came, numbers exact."""
    event = read(b'"New":{"a":[1,{"b":0.10}]},"StatusMessage":["odd"]')
    assert {"New": {"a": [1, {"b": Decimal("0.10")}]}, "StatusMessage": ["odd"]} == event.extra
    assert str(event.extra["New"]["a"][1]["b"]) == "0.10"


def test_no_person_is_in_a_repr() -> None:
    """An event can be logged."""
    event = read(b'"AccountId":"1234567890","StatusMessage":"Grace Akello was paid","x":"+256772000017"')
    assert [] == [secret for secret in ("1234567890", "Akello", "Grace", "256772") if secret in repr(event)]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
ids = st.one_of(st.text("abcABC0123456789-+ %&=é", max_size=12), st.integers(-5, 10**20))
notifications = st.fixed_dictionaries(
    {"TransactionId": ids, "StatusCode": st.integers(-3, 10)},
    optional={
        "AccountId": ids,
        "SubscriptionId": ids,
        "BatchId": ids,
        "RequestId": ids,
        "StatusMessage": texts,
        "CorrelationId": texts,
        "CurrencyCode": texts,
        "Amount": st.sampled_from([1, 500.25, -3, "7.50", 1e21]),
        "CreatedOn": st.one_of(texts, st.datetimes(timezones=st.just(UTC)).map(str)),
    },
)


def spelled(members: dict[str, Any], spelling: str) -> dict[str, Any]:
    """The same members under other names."""
    snake = {name: "".join("_" + c.lower() if c.isupper() else c for c in name)[1:] for name in members}
    names = {
        "pascal": {name: name for name in members},
        "camel": {name: name[0].lower() + name[1:] for name in members},
        "snake": snake,
        "upper": {name: name.upper() for name in members},
    }
    return {names[spelling][name]: value for name, value in members.items()}


@settings(deadline=None)
@given(notifications, st.sampled_from(["camel", "snake", "upper"]))
def test_the_spelling_makes_no_difference(members: dict[str, Any], spelling: str) -> None:
    """Every spelling of a notification is the same event, or as unreadable as the others."""
    known = outcome(json.dumps(members).encode(), "")
    other = outcome(json.dumps(spelled(members, spelling)).encode(), "")
    if known is not None and known.extra:
        known = other = None if other is None else known
    assert known == other


JSON_VALUES = {
    **{name: st.one_of(st.just(value), ids, texts, st.none()).map(json.dumps) for name, value in PASCAL.items()},
    "StatusCode": st.sampled_from(["0", "1", "7", '"0"', "0.0", "true", "null", "1000000000000", "-0", "[]"]),
    "Amount": st.sampled_from(
        [
            "500.25",
            "500.250",
            "500",
            "-1.5",
            "-0",
            "-0.0",
            "1e3",
            "1E3",
            "99999999999999999999",
            "0.0000001",
            '"5"',
            '"1_000"',
            '"١٢"',
            '"NaN"',
            "null",
            "false",
        ]
    ),
    "CreatedOn": st.sampled_from(
        [
            "2024-02-27 14:06:41",
            "2024-02-27T14:06:41.1234567Z",
            "2024-02-27T14:06:41+03:00",
            "2/27/2024 2:06:41 PM",
            "2024-02-30 14:06:41",
            "0001-01-01T00:00:00",
            "x",
        ]
    ).map(json.dumps),
}
USUAL_VALUES = {
    **{name: st.just(json.dumps(value)) for name, value in PASCAL.items()},
    **dict.fromkeys(["AccountId", "SubscriptionId"], st.sampled_from(['"6"', "6"])),
    "Amount": st.sampled_from(["500.25", "500.250", "500.0", "500", "-1.5"]),
    "StatusMessage": st.sampled_from(['""', '"fine"', '":"', '"a: b"', '"Réussi"']),
}
REFERENCES = st.sampled_from(
    [
        '{"createdOn": "x", "requestId": "r"}',
        '{"requestId": "r"}',
        '{"createdOn": "x", "requestId": "other"}',
        '{"createdOn": 5, "requestId": "r"}',
        '{"createdOn": "x", "requestId": "r", "requestId": "s"}',
        "null",
        "[]",
    ]
)


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[bytes, str]:
    """The body and the query of a notification of a documented shape, or of one with something odd about it."""
    odd = draw(st.sampled_from([None, None, "query", "reference", "again", "Amount", "StatusCode", *PASCAL]))
    names = draw(st.lists(st.sampled_from(sorted(PASCAL)), unique=True)) if draw(st.booleans()) else list(PASCAL)
    names = list(dict.fromkeys([*names, "TransactionId", "StatusCode"]))
    said = {name: draw((JSON_VALUES if name == odd else USUAL_VALUES)[name]) for name in names}
    spelling, mixed = draw(st.sampled_from(["pascal", "camel", "snake", "upper", None])), ["pascal", "camel", "snake"]
    spellings = [spelling or draw(st.sampled_from(mixed)) for _ in said]
    members = [(next(iter(spelled({name: 0}, how))), said[name]) for name, how in zip(said, spellings, strict=True)]
    if odd == "reference":
        members.append((draw(st.sampled_from(["requestReference", "RequestReference"])), draw(REFERENCES)))
    elif draw(st.booleans()):
        members.append(("requestReference", '{"createdOn": "x", "requestId": "r"}'))
    if odd == "again":
        members.append(draw(st.sampled_from([*members, ("New", "1"), ("Amount", "5"), ("account_number", '"6"')])))
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", ":  "), (",\n", ": "), (",", " :")]))
    body = comma.join(f'"{name}"{colon}{value}' for name, value in members)
    return f"{{{body}}}".encode(), draw(queries(said, is_usual=odd != "query"))


def queries(said: dict[str, str], *, is_usual: bool) -> st.SearchStrategy[str]:
    """No query, the documented one, a part of it in any order, and one that says something else."""
    documented = ("TransactionId", "SubscriptionId", "AccountId", "RequestId", "Amount")
    names = dict(zip(documented, [*(name[0].lower() + name[1:] for name in documented[:4]), "Amount"], strict=True))
    pairs = {name: f"{names[name]}={said.get(name, '').strip(chr(34))}" for name in documented}
    exact = "&".join(pairs.values())
    some = st.lists(st.sampled_from(list(pairs.values())), max_size=6).map("&".join)
    usual = st.one_of(st.sampled_from(["", exact, f"{exact}0", f"{exact}.0"]), some)
    if is_usual:
        return usual
    more = ["Amount=5", "Amount=", "accountId=7", "New=1", "requestId=r", f"{pairs['Amount']}{'0' * 40}"]
    return st.one_of(usual, st.lists(st.sampled_from([*pairs.values(), *more]), max_size=6).map("&".join))


def everything(event: TransactionEvent) -> dict[str, Any]:
    """What an event says, to the last zero of a number."""
    return event.__dict__ | {"kind": type(event), "text": str(event.amount), "moment": str(event.created_on)}


_WITHOUT_AMOUNT = b'{"transactionId":"t","subscriptionId":"s","accountId":"a","RequestId":"r","StatusCode":0}'
_IDS = "transactionId=t&subscriptionId=s&accountId=a&requestId=r"


@pytest.mark.slow
@settings(deadline=None, max_examples=500)
@given(deliveries(), st.sampled_from([UTC, ZoneInfo("Africa/Kampala")]))
def test_the_quick_way_and_the_thorough_way_agree(delivery: tuple[bytes, str], timezone: Any) -> None:
    """What is usual is read quickly; the result is the one that reading member by member gives."""
    quick = read_usual(*delivery, timezone)
    if quick is not None:
        assert everything(read_unusual(*delivery, timezone)) == everything(quick)


@pytest.mark.parametrize("text", [".0", ".", "0", "", "5.0"])
def test_an_amount_that_only_the_query_has_is_read_the_thorough_way(text: str) -> None:
    """No digits at all are not the same as none that count."""
    query = f"{_IDS}&Amount={text}"
    try:
        expected = everything(read_unusual(_WITHOUT_AMOUNT, query, UTC))
    except UnreadableNotification:
        assert read_usual(_WITHOUT_AMOUNT, query, UTC) is None
    else:
        quick = read_usual(_WITHOUT_AMOUNT, query, UTC)
        assert quick is None or expected == everything(quick)


@pytest.mark.parametrize(
    "said",
    [
        '"Amount":-0',
        '"Amount":1.5',
        '"Amount":"1_000"',
        '"Amount":1e3',
        '"StatusCode":0,"Amount":5,"Amount":6',
        '"Amount":1.5,"requestReference":{"createdOn":"x","requestId":"s"}',
        '"Amount":1.5,"Amount" :2',
        '"batchId":" b"',
        '"Amount":1.5,"amount":2',
        '"RequestReference":{"createdOn":"x","requestId":"r"}',
        '"requestReference":null',
    ],
)
@pytest.mark.parametrize("query", ["", "Amount=1000", f"Amount=1.5{'0' * 40}", "Amount=1.50", "requestId=r&Amount=1.5"])
def test_what_only_looks_usual_is_read_the_thorough_way(said: str, query: str) -> None:
    """Nothing is taken quickly that would be refused, or read otherwise, member by member."""
    body = (
        b'{"transactionId":"t","RequestId":"r",%b}' % (said if "Status" in said else f'"StatusCode":0,{said}').encode()
    )
    event = outcome(body, query)
    try:
        thorough = read_unusual(body, query, UTC)
    except UnreadableNotification:
        assert event is None
    else:
        assert everything(thorough) == everything(event)


@pytest.mark.parametrize("amount", ["-0", "-0.0", "1e3", "1E400", "1e400", '"5"', '"1_000"', "null", "true", "1" * 31])
def test_an_odd_amount_of_a_complete_body_is_read_the_thorough_way(amount: str) -> None:
    """Down to the sign of nothing."""
    body = json.dumps(PASCAL).replace("500.25", amount).encode()
    event = outcome(body, "")
    if event is None:
        with pytest.raises(UnreadableNotification):
            read_unusual(body, "", UTC)
    else:
        assert everything(read_unusual(body, "", UTC)) == everything(event)


def test_an_amount_of_too_many_zeros_is_refused_in_the_query_as_in_the_body() -> None:
    """That it is the same number does not make it one of a sensible size."""
    with pytest.raises(UnreadableNotification):
        read(b'"Amount":1.5', f"Amount=1.5{'0' * 40}")


DOCUMENTED_QUERY = (
    "transactionId=672b00f8-a02c-5e41-9fd0-4f0c4c74308d&subscriptionId=77&accountId=6&requestId=r&Amount=500.25"
)


@pytest.mark.parametrize(
    "query", [DOCUMENTED_QUERY, f"{DOCUMENTED_QUERY}0", "", "&".join(reversed(DOCUMENTED_QUERY.split("&")))]
)
@pytest.mark.parametrize("spelling", ["pascal", "camel", "snake", "mixed", "incomplete", "numbers", "instant"])
def test_a_usual_notification_goes_the_quick_way(spelling: str, query: str) -> None:
    """Every documented shape does, or the quick way would be dead."""
    reference = {"requestReference": {"createdOn": "2024-02-27T14:06:00", "requestId": "r"}}
    shapes: dict[str, dict[str, Any]] = {
        "pascal": PASCAL,
        "camel": spelled(PASCAL, "camel") | reference,
        "snake": spelled(PASCAL, "snake"),
        "mixed": spelled(dict(list(PASCAL.items())[::2]), "camel") | dict(list(PASCAL.items())[1::2]),
        "incomplete": {name: PASCAL[name] for name in ("TransactionId", "RequestId", "StatusCode", "Amount")},
        "numbers": PASCAL | {"AccountId": 6, "SubscriptionId": 77},
        "instant": PASCAL | {"CreatedOn": "2024-02-27T14:06:41.1234567Z"},
    }
    assert isinstance(read_usual(json.dumps(shapes[spelling]).encode(), query, UTC), TransactionSucceeded)


@pytest.mark.parametrize("text", ["1_000", "1000", " 1000"])
def test_an_amount_that_is_text_is_read_by_its_letters(text: str) -> None:
    """The quick way leaves it to the thorough one, which takes plain digits alone."""
    body = json.dumps(PASCAL | {"Amount": text}).encode()
    query = DOCUMENTED_QUERY.replace("500.25", "1000")
    assert read_usual(body, query, UTC) is None
    event = outcome(body, query)
    assert ("1000" == text.strip()) == (event is not None)


@settings(deadline=None)
@given(st.binary(max_size=200), st.text(max_size=60))
def test_no_bytes_break_the_parser(body: bytes, query: str) -> None:
    """Nothing but an event or the one parse error."""
    outcome(body, query)


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.sampled_from([*PASCAL, "x"]), inner))
)


DECIDING = [name for name in PASCAL if name not in ("StatusMessage", "CorrelationId", "CreatedOn")]
ODD = [{}, {"a": "UGX"}, [], ["UGX"], [None], True, False, 1.5, -0.0, 0, -1, 10**30, "", " ", "x"]


@pytest.mark.parametrize("name", [*DECIDING, "RequestReference"])
def test_a_wrong_type_is_never_read_as_absent(name: str) -> None:
    """What an order is compared with is refused in a wrong JSON type: absent, it would agree with any order."""
    field = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)[1:]
    for spelling, value in itertools.product(("pascal", "camel", "snake", "upper"), ODD):
        event = outcome(json.dumps(spelled({**PASCAL, name: value}, spelling)).encode(), "")
        is_absent = not isinstance(value, dict) if name == "RequestReference" else getattr(event, field, "") is None
        assert event is None or not is_absent, (spelling, value)


@pytest.mark.slow
@settings(deadline=None)
@given(values)
def test_no_json_breaks_the_parser(value: Any) -> None:
    """Nor does any JSON value, in any member."""
    outcome(json.dumps(value).encode(), "")
    outcome(json.dumps({**PASCAL, "x": value, "requestReference": value}).encode(), "")
    for name in PASCAL:
        outcome(json.dumps({**PASCAL, name: value}).encode(), "")


def reading_time(body: bytes) -> float:
    """Seconds of the processor that one reading takes, whatever comes of it."""
    start = time.thread_time()
    outcome(body, "transactionId=672b00f8-a02c-5e41-9fd0-4f0c4c74308d")
    return time.thread_time() - start


@settings(max_examples=1, deadline=None)
@given(st.integers(0, 2**32))
def test_mutations_of_a_notification_break_nothing(seed: int) -> None:
    """A bounded fuzz run: flipped, cut, doubled and spliced bytes, each read within a tenth of a second."""
    chance = random.Random(seed)
    whole = json.dumps(PASCAL).encode()
    pieces = [
        b'"',
        b"{",
        b"[",
        b":",
        b",",
        b"\\u0000",
        b"\\ud800",
        b"1e999",
        b"-",
        b"NaN",
        b"\xff",
        b"9" * 500,
        b"[" * 3000,
    ]
    for _ in range(3000):
        body = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(body) + 1)
            match chance.randrange(4):
                case 0:
                    body[at:at] = chance.choice(pieces)
                case 1:
                    del body[at : at + chance.randint(1, 20)]
                case 2 if at < len(body):
                    body[at] = chance.randrange(256)
                case _:
                    body[at:at] = body[chance.randrange(len(body) + 1) :][:50]
        # what is slow is slow again; a machine that stood still, or a collection of garbage, is over
        assert reading_time(bytes(body)) < 0.1 or reading_time(bytes(body)) < 0.1
