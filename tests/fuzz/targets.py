"""Every parser of what comes from outside, and what may come of anything: a value, or one of our documented errors.

A target is a test of Hypothesis: `tests/fuzz/test_fuzz.py` runs each for a moment, `python tests/fuzz` for as long as
one likes. An amount that is read is the one that was written, by a second reading that is made here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import quote

import typer
from bulk.files import csv_text, row, write_workbook
from fuzz.mutations import BATCH, TRAPS, Batch, many_octets, many_texts, octets, texts
from hypothesis import example, given
from hypothesis import strategies as st
from journal.factories import order as journal_order
from machine import keep_files_in_memory
from multidict import CIMultiDict
from wire.answers import ANYTHING, ENVELOPES, EVERY_CALL, outcome

from payments_async import (
    Credentials,
    Dialect,
    MobileMoneyWallet,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    PaymentsSession,
    Rejected,
    request_id_for,
)
from payments_async._cli.dates import _read_day
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.journal import JournalPlace, seconds_of
from payments_async._cli.limits import read_limit
from payments_async._cli.profiles import read_profiles
from payments_async._session.quirks import quirks_of_answer, quirks_of_notification
from payments_async._values.amounts import amount_text, magnitude_text, order_amount, read_amount
from payments_async._values.request_ids import plain_id
from payments_async._wire import endpoints
from payments_async._wire.bodies import read_order, request_of, write_order
from payments_async._wire.call import Reply
from payments_async._wire.codec import Unreadable, read_timestamp
from payments_async._wire.replies import retry_after
from payments_async.bulk import read_batch
from payments_async.bulk._file._cells import PhoneReader, Unusable, read_money
from payments_async.ipn import (
    UNIX_SOCKET,
    TransactionEvent,
    UnreadableNotification,
    read_notification,
)
from payments_async.ipn._senders import Senders
from payments_async.journal import JournalCorrupt
from payments_async.journal._records import order_of, pack_transaction_id, unpack_transaction_id
from payments_async.journal._statements._notifications import _pack_event, read_event

TARGETS: dict[str, Target] = {}
SECONDS = 20.0  # of a processor; none takes a tenth of one
keep_files_in_memory()
_ROOM = tempfile.TemporaryDirectory()
_HERE = Path(_ROOM.name)
_NUMBERS = itertools.count()


class Hung(BaseException):
    """One example took more of a processor than any may."""


def _hung(*_: object) -> None:
    raise Hung(f"more than {SECONDS} seconds of a processor for one example")


class Target(NamedTuple):
    """A parser, and what it is given."""

    parse: Callable[..., None]
    strategies: tuple[st.SearchStrategy[Any], ...]

    def test(self) -> Callable[[], None]:
        """A test of it, in which nothing that it is given may go on for ever."""

        @wraps(self.parse)
        def timed(**given_: Any) -> None:
            several = any(isinstance(value, Batch) for value in given_.values())
            for number in range(BATCH if several else 1):
                self._once({n: value[number] if isinstance(value, Batch) else value for n, value in given_.items()})

        made: Callable[[], None] = given(*self.strategies)(timed)
        return made

    def _once(self, given_: dict[str, Any]) -> None:
        before = signal.signal(signal.SIGVTALRM, _hung)
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            self.parse(**given_)
        except BaseException as error:
            error.add_note(f"it was given {given_!r}")
            raise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)


def target(*strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One of the targets, and what it is given."""

    def decorated(parse: Callable[..., None]) -> Callable[..., None]:
        TARGETS[parse.__name__] = Target(parse, strategies)
        return parse

    return decorated


# --- the service's answers

_STATUSES = st.sampled_from([200, 201, 204, 302, 400, 401, 403, 404, 409, 429, 500, 503])
_TRANSACTION = {
    "transactionId": "t-1", "requestId": "r-1", "batchId": "b-1", "accountNumber": "6", "currency": "UGX",
    "amount": -500.25, "transactionType": "PAYOUT", "status": "PROCESSING", "createdOn": "2/27/2024 2:06:41 PM",
    "product": {"id": "P", "name": "Water"}, "beneficiary": {"id": "17", "data": {"customerPhone": "0772000017"}},
}  # fmt: skip
_PAGE = {"code": 0, "data": {"collection": [_TRANSACTION], "totalCount": 1, "totalPages": 1, "nextPage": None}}
_TAKEN = {"requestId": "r-1", "batchId": "b", "transactionId": "t-1", "status": "PROCESSING", "message": "ok"}
_ANSWERS = many_octets(
    json.dumps({"code": 0, "data": _TAKEN | {"createdOn": "2024-02-27 14:06:41"}}).encode(),
    json.dumps({"code": 17, "message": "Insufficient balance", "correlationId": "c-9"}).encode(),
    json.dumps({"code": 0, "data": _TRANSACTION}).encode(),
    json.dumps(_PAGE).encode(),
    json.dumps({"Token": "abc.def", "refreshToken": "r", "code": 0}).encode(),
    json.dumps({"success": True, "data": {"card_id": "17", "balance": "500.25"}}).encode(),
    b"<html><title>502 Bad Gateway</title></html>",
)


@target(
    st.sampled_from(sorted(EVERY_CALL)), (ANYTHING | ENVELOPES).map(lambda value: json.dumps(value).encode()), _STATUSES
)
@example("payout", b'{"code": "--1", "data": {"transactionId": "t-1"}}', 400)
@example(
    "transactions", b'{"code": 0, "data": {"collection": [{"transactionId": "t-1", "beneficiary": {"data": 1}}]}}', 200
)
@example("account", b"1" + b"0" * 5000, 200)
def answers(name: str, body: bytes, status: int) -> None:
    """A result or a documented error; where money moves, only one of those that say what became of it."""
    _answer(name, body, status)


@target(st.sampled_from(sorted(EVERY_CALL)), _ANSWERS, _STATUSES)
def damaged_answers(name: str, body: bytes, status: int) -> None:
    """The same, of answers that are nearly right."""
    _answer(name, body, status)


def _answer(name: str, body: bytes, status: int) -> None:
    call = EVERY_CALL[name]
    seen = outcome(call, body, status)
    quirks_of_answer(call, Reply(status, body))
    if isinstance(seen, PaymentsError):
        assert not call.once or isinstance(seen, NotSent | OutcomeUnknown | Rejected)
        assert str(status) in str(seen)
        return
    assert 200 <= status < 300
    assert call.request_id is None or call.request_id == seen.request_id


_NUMERALS = st.from_regex(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)


@target(_NUMERALS, st.booleans(), st.sampled_from(["amount", "Amount", "AMOUNT"]))
def amounts_of_transactions(numeral: str, is_text: bool, name: str) -> None:
    """The amount of a transaction is the number in the answer, digit for digit, or none at all."""
    member = json.dumps(numeral) if is_text else numeral
    body = b'{"code":0,"data":{"transactionId":"t-1","%b":%b}}' % (name.encode(), member.encode())
    page = b'{"code":0,"data":{"collection":[{"transactionId":"t-1","%b":%b}],"totalCount":1}}'
    one, many = outcome(EVERY_CALL["transaction"], body, 200), outcome(
        EVERY_CALL["transactions"], page % (name.encode(), member.encode()), 200
    )  # fmt: skip
    for found in (
        [] if isinstance(one, PaymentsError) else [one],
        [] if isinstance(many, PaymentsError) else many.collection,
    ):
        for transaction in found:
            assert transaction.amount in (None, Decimal(numeral))


_MOMENTS = many_texts(
    "2/27/2024 2:06:41 PM", "2024-02-27T14:06:41.1234567Z", "2024-02-27 14:06:41", "2024-02-27T14:06:41+03:00",
    "Tue, 27 Feb 2024 14:06:41 GMT", "Tuesday, 27-Feb-24 14:06:41 GMT", "120", "1.5", "27 Feb 2024 14:06 -0000",
)  # fmt: skip


@target(_MOMENTS)
def moments(text: str) -> None:
    """A moment is aware, and a time to wait is none or a number of seconds that is not below zero."""
    with suppress(ValueError, Unreadable):
        assert read_timestamp(text, UTC).tzinfo is not None
    wait = retry_after(text, 1_700_000_000.0)
    assert wait is None or wait >= 0


# --- notifications

_PASCAL = {
    "AccountId": "6", "SubscriptionId": "77", "TransactionId": "672b00f8-a02c-5e41-9fd0-4f0c4c74308d", "BatchId": "b",
    "RequestId": "r", "StatusMessage": "fine", "StatusCode": 0, "CorrelationId": "c",
    "CreatedOn": "2024-02-27 14:06:41", "Amount": 500.25, "CurrencyCode": "UGX",
}  # fmt: skip
_SNAKE = {
    "transaction_id": "t",
    "status_code": "2",
    "amount": "500.25",
    "request_id": "r",
    "created_on": "2024-02-27T14:06:41.1Z",
}
_NOTIFICATIONS = many_octets(
    json.dumps(_PASCAL).encode(),
    json.dumps(_SNAKE).encode(),
    json.dumps(_PASCAL | {"requestReference": {"requestId": "r", "createdOn": "2024-02-27T14:06:41"}}).encode(),
    traps=[b'"Amount":1', b'"amount":"1"', b'"StatusCode":2', b'"transactionId":"b"', b"\\u0041"],
)
_QUERIES = many_texts(
    "", "transactionId=t&requestId=r&Amount=500.25", "Amount=500.25&amount=500.250", "TransactionId=t&StatusCode=0",
    traps=["&Amount=1", "&requestId=b", "%2e", "%E2%82%AC", "+"],
)  # fmt: skip


@target(_NOTIFICATIONS, _QUERIES)
def notifications(body: bytes, query: str) -> None:
    """An event or the one parse error; kept in a journal it comes back as it was."""
    quirks_of_notification(body, query)
    try:
        event = read_notification(body, query)
    except UnreadableNotification:
        return
    packed = _pack_event(event)
    kept = read_event(event.transaction_id, event.status_code, bytes(packed), body, query)
    assert (event.amount, event.request_id, event.created_on) == (kept.amount, kept.request_id, kept.created_on)


@target(_NUMERALS, _NUMERALS, st.booleans())
def amounts_of_notifications(told: str, asked: str, is_text: bool) -> None:
    """The amount is the body's, and one in the query that differs is a contradiction."""
    member = json.dumps(told) if is_text else told
    body = b'{"TransactionId":"t","StatusCode":0,"Amount":%b}' % member.encode()
    with suppress(UnreadableNotification):
        assert Decimal(told) == read_notification(body, "").amount
    with suppress(UnreadableNotification):
        event = read_notification(body, f"Amount={quote(asked)}")
        assert Decimal(told) == event.amount
        assert float(told) == float(asked)


_HEADERS = texts(
    "52.48.24.237", "52.48.24.237, 10.0.0.1", "for=52.48.24.237;proto=https, for=10.0.0.1", 'for="[2001:db8::1]:443"',
    "::ffff:52.48.24.237", "ab" * 32,
    "fe80::1%eth0", "10.0.0.1:8080",
)  # fmt: skip


@target(_HEADERS | st.just(UNIX_SOCKET), st.lists(_HEADERS, max_size=3), st.lists(_HEADERS, max_size=2))
def senders(peer: str, forwarded_for: list[str], forwarded: list[str]) -> None:
    """A sender is known or not, with a reason that can be printed."""
    known = Senders(["52.48.24.237"], ["10.0.0.0/8", UNIX_SOCKET])
    lines = [("X-Forwarded-For", line) for line in forwarded_for] + [("Forwarded", line) for line in forwarded]
    sender = known.check(peer, CIMultiDict(lines))
    known.may_connect(peer)
    known.is_rewritten(peer, CIMultiDict(lines))
    assert sender.why.isprintable()
    if sender.is_known:
        assert "52.48.24.237" == sender.address


# --- files

_PLAIN = csv_text(row(), row(request_id="RUN-2", amount="1,500,000.50", kind="bank_transfer"))
_BATCHES = many_octets(
    _PLAIN.encode(),
    _PLAIN.encode("utf-16"),
    csv_text(row(), row(request_id="RUN-2"), delimiter=";", end="\r\n").encode("cp1252"),
    b"\n".join(json.dumps(row(request_id=f"R-{number}")).encode() for number in range(3)),
    b"Staff no,Employee name,Phone,Net pay\n1,Amber Brightwater,0772000017,UGX 150000\n,,Total,150000\n",
    traps=[b"150000", b'"150,000"', b"1.500,50", b"=1+1", b"\tUGX", b'"\n"', b"Total", b"0772000017"],
)


def _file(suffix: str, data: bytes) -> Path:
    path = _HERE / f"{next(_NUMBERS) % 100}{suffix}"
    path.write_bytes(data)
    return path


async def _orders(path: Path) -> list[Any]:
    """The orders of a file; none where it cannot be read at all."""
    try:
        batch = await read_batch(path)
        found = list(batch.orders)
    except ValueError:
        return []
    for problem in batch.problems:
        assert problem.remedy
    return found


@target(_BATCHES, st.sampled_from([".csv", ".jsonl", ".txt"]))
def batch_files(data: bytes, suffix: str) -> None:
    """Orders and problems, or a file that is refused; an amount has no digit that is not in the file."""
    for order in asyncio.run(_orders(_file(suffix, data))):
        assert order.amount > 0
        assert order == read_order(order.request_id, order.amount, write_order(order))


@target(
    st.decimals("0.01", "999999999", places=2),
    st.sampled_from(["{}", "{:,}", "UGX {:,}", "{}/="]),
    texts("November salary", "a,b", '"'),
)
def amounts_of_files(amount: Decimal, form: str, message: str) -> None:
    """An amount in a file is the amount of the order, whatever stands beside it, or the row is a problem."""
    cells = row(amount=form.format(amount), message=message)
    for data, suffix in ((csv_text(cells), ".csv"), (json.dumps(cells) + "\n", ".jsonl")):
        for order in asyncio.run(_orders(_file(suffix, data.encode(errors="replace")))):
            assert amount == order.amount


_BOOK = write_workbook(_HERE / "sample.xlsx", [list(row()), list(row().values()), list(row(request_id="R2").values())])
_BOOKS = octets(_BOOK.read_bytes(), traps=[b"<", b"/>", b"PK\x03\x04", b"&#0;", b"1048576", b"<!DOCTYPE a>"])


@target(_BOOKS)
def workbooks(data: bytes) -> None:
    """The same of a workbook, which a process of its own reads."""
    for order in asyncio.run(_orders(_file(".xlsx", data))):
        assert order.amount > 0


_MONEY = many_texts(
    "150000", "1,500,000.50", "UGX 500", "14500/=", "1 500", "(500)", "-5", "1E3", "0.5", "12,34", "1.500,50", "½"
)


@target(_MONEY)
def amounts(text: str) -> None:
    """A text is an amount that has its digits and no others, or it is refused; so are limits of commands."""
    for read in (
        order_amount,
        read_amount,
        lambda text: read_money(text)[0],
        lambda text: read_limit("--stop-at-total", text),
    ):
        try:
            amount = read(text)
        except (ValueError, BadInput):
            continue
        assert amount is not None
        assert amount == Decimal(amount_text(amount))
        assert not magnitude_text(amount).startswith("-")
        if "e" not in text.lower():
            assert _digits(text) == _digits(amount_text(amount)), (read, amount)


def _digits(text: str) -> str:
    """Its digits, from the first that counts, with the decimal point."""
    kept = "".join(sign for sign in re.sub(r"[A-Za-z]+\.", "", text) if sign in "0123456789.")
    whole, _, part = kept.partition(".")
    return f"{whole.lstrip('0')}.{part.rstrip('0')}"


_PHONES = PhoneReader("UG")


@target(
    many_texts(
        "+256772000017", "0772 000 017", "00256-772-000017", "(0)772000017", "256772000017", "772000017", "7.72E+08"
    )
)
def phone_numbers(text: str) -> None:
    """A number is one that a wallet takes, has the digits of the text at its end, and is read again as itself."""
    try:
        number = _PHONES(text)
    except Unusable:
        return
    MobileMoneyWallet(number)
    assert number == _PHONES(number)


@target(
    texts("payroll-2026-11-000017", "PAY-1", "\uff30\uff21\uff39", "ﬁx", "İ", "ß"),
    st.lists(texts("payroll", "2026-11") | st.integers() | st.decimals() | st.dates()),
)
def request_ids(text: str, key: list[Any]) -> None:
    """The key of an id is its own key, whatever the letters; a business key gives an id or is refused."""
    assert plain_id(text) == plain_id(plain_id(text)) == plain_id(text.upper() if text.isascii() else text)
    with suppress(ValueError, TypeError):
        assert request_id_for(*key) == request_id_for(*key)


# --- settings

_SECRET = "hushhush"


@target(many_texts(
    f"postgresql://me:{_SECRET}@db.example:5432/pay?sslmode=require", f"postgres:///pay?host=/tmp&password={_SECRET}",
    "postgresql://me@[::1]:5432,other:5433/pay", "journal.sqlite", "mysql://x", "~/payroll.sqlite", "host=a dbname=b",
))  # fmt: skip
def places_of_journals(text: str) -> None:
    """A journal or bad input, and the password is nowhere; a DSN that libpq understands can be shown."""
    try:
        place = JournalPlace(text)
        told = str(place)
    except BadInput as error:
        told = str(error)
    is_meant = f":{_SECRET}@" in text.partition("?")[0] or f"password={_SECRET}" in text
    if "://" in text and is_meant and text.count(_SECRET) == 1:  # a second may be a name by chance
        assert _SECRET not in told


@target(st.fixed_dictionaries({
    "PAYMENTS_BASE_URL": texts("https://service.example:8443/prefix", "http://127.0.0.1:9", "https://u:p@host/x?y#z"),
    "PAYMENTS_APP_KEY": texts("key"), "PAYMENTS_APP_PASSWORD": texts("word"), "PAYMENTS_USER_ID": texts("7"),
}))  # fmt: skip
def environments(variables: dict[str, str]) -> None:
    """A session that is not open yet, or what cannot be right."""
    with suppress(ValueError):
        PaymentsSession.from_env(variables)


_PROFILES = many_octets(
    b'[default]\nbase_url = "https://host:1/p"\nuser_id = "USER"\njournal = "~/payroll.sqlite"\n',
    b'[a]\njournal = "postgresql://me@db/pay"\nproxy = "http://proxy:3128"\n[b]\nca_file = "/etc/ca.pem"\n',
    traps=[b"app_password", b'"""', b"\\u0000", b"a.b.c", b"[[x]]", b"1979-05-27", b"inf"],
)


@target(_PROFILES)
def profiles(data: bytes) -> None:
    """Profiles or bad input, and each of them holds texts alone."""
    (_HERE / "payments-async").mkdir(exist_ok=True)
    (_HERE / "payments-async" / "profiles.toml").write_bytes(data)
    with mock.patch.dict(os.environ, XDG_CONFIG_HOME=str(_HERE)), suppress(BadInput):
        for profile in read_profiles():
            assert all(isinstance(value, str) and value for value in profile.values.values())
            if "journal" in profile.values:
                str(JournalPlace(profile.values["journal"]))


_DIALECT_FIELDS = {
    "api_prefix": texts("/api", ""),
    "cards_path": texts("/cards/"),
    "timezone": texts("Africa/Kampala", "UTC"),
    "product_items_path": texts("/products/{product_id}/items"),
    "phone_country_code": texts("256"),
    "find_by_request_path": texts("/transactions/Requests/{request_id}"),
    "correlation_header": texts("X-Correlation-ID"),
    "bank_code_keys": st.tuples(texts("bankName")),
    "date_keys": st.tuples(texts("a"), texts("b")),
    "phone_format": st.sampled_from(["as_given", "e164", "digits", "national"]),
    "internet_path": texts("/internet"),
    "card_pin_member": texts("pin"),
    "ipn_response_code": texts("0"),
    "turned_away_unread": st.sets(st.integers(0, 600)),
}


@target(st.fixed_dictionaries({}, optional=_DIALECT_FIELDS))
def dialects(fields: dict[str, Any]) -> None:
    """A dialect that writes an order and reads a list, or one that is refused when it is made."""
    try:
        dialect = Dialect(**fields)
    except (ValueError, TypeError):
        return
    call = endpoints.send_order(journal_order(1), dialect)
    assert Decimal("1001.50") == json.loads(call.body or b"", parse_float=Decimal)["amount"]
    with suppress(ValueError):
        endpoints.list_transactions(
            number=1, size=5, since=date(2026, 1, 1), until=datetime.now(UTC).date(), status=None, dialect=dialect
        )
    with suppress(ValueError):
        endpoints.find_transaction("r-1", dialect.find_by_request_path or "/x/{request_id}", dialect)


@target(many_texts("2026-11-22", "90d", "48h", "0d", "PROCESSING"))
def filters(text: str) -> None:
    """A day and an age, as commands take them, or bad input."""
    with suppress(typer.BadParameter):
        _read_day(text)
    with suppress(BadInput):
        assert seconds_of(text) > 0
    with suppress(ValueError, TypeError):
        Credentials(app_key=text, app_password=text, user_id=text)


# --- what a journal holds

_WRITTEN = [write_order(journal_order(number)) for number in range(3)]
_STORED = many_octets(*_WRITTEN, traps=[b'"payout"', b'"beneficiary"', b'"data":{}', b'"product":null'])


@target(many_texts("payroll-1"), _STORED)
def stored_orders(request_id: str, body: bytes) -> None:
    """An order, or a row that is damaged; what is sent of it holds the amount that is kept beside it."""
    with suppress(JournalCorrupt):
        order_of(request_id, Decimal("1001.50"), body)
    try:
        kind, request = request_of(request_id, Decimal("1001.50"), body)
    except ValueError:
        return
    assert kind
    with suppress(ValueError):  # members that are no JSON are as they were written
        assert Decimal("1001.50") == json.loads(request, parse_float=Decimal)["amount"] or b'"amount"' in body


@target(
    many_texts("t-1"),
    st.integers(-1, 5),
    many_octets(b"", json.dumps({"amount": "500.25", "extra": {"x": {"$": "1"}}}).encode()),
    many_octets(b""),
)
def stored_notifications(transaction_id: str, code: int, packed: bytes, body: bytes) -> None:
    """An event, or a row that is damaged."""
    with suppress(JournalCorrupt):
        assert isinstance(read_event(transaction_id, code, packed, body, ""), TransactionEvent)


@target(many_texts("672b00f8-a02c-5e41-9fd0-4f0c4c74308d", "t-1", "0" * 15), st.sampled_from(TRAPS))
def stored_transaction_ids(text: str, trap: str) -> None:
    """The text that was stored, but for the letters of a UUID."""
    with suppress(UnicodeEncodeError):
        for one in (text, text + trap):
            packed = pack_transaction_id(one)
            known = unpack_transaction_id(packed)
            assert one.lower() == (known or "").lower() or (packed is not None and len(packed) == 16)
