"""A notification's body and query, in every known spelling, to its event.

The two documented shapes, complete and without surprises, are read in one step; whatever is unusual, member by member.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol, get_type_hints
from urllib.parse import unquote_plus

import msgspec

from payments_async._values.amounts import read_amount
from payments_async._wire.codec import read_timestamp
from payments_async._wire.events import EVENT_TYPES, TransactionEvent, TransactionUnrecognised

# Spec: "Query string of the call: transactionId, subscriptionId, accountId, requestId, Amount (double)."
_QUERY = ("transaction_id", "subscription_id", "account_id", "request_id", "amount")
# Not in the specification: an earlier edition called these two differently.
_ALIASES = {"accountnumber": "account_id", "clientreferenceid": "request_id"}
_REFERENCE = "request_reference"

_BOM = b"\xef\xbb\xbf"
_MEMBERS = re.compile(rb'"[ \t\r\n]*:').findall  # never fewer than there are members, sometimes more
_LONGEST_NAME = 40  # of a member that could be one of ours
_LONGEST_ID = 256
_LONGEST_NUMBER = 64
_MOST_BITS = 212  # of a whole number: 64 digits
_LARGEST_EXPONENT = 400  # beyond every double, so that nothing needs gigabytes to be written out
_LONGEST_QUERY = 8192
_LONGEST_USUAL_QUERY = 256  # and so the longest id
_LONGEST_AMOUNT = 15
_LAST_CAPITAL = ord("Z")
_DEEPEST = 32
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_WHOLE = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_BACKSLASH, _TAB, _LF, _CR = b"\\\t\n\r"  # as numbers: looking for bytes within bytes makes, and drops, a TypeError
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", re.ASCII)


class UnreadableNotification(ValueError):
    """The notification cannot be read or contradicts itself. Its text names the member, never a value."""


def read_notification(body: bytes, query: str, timezone: tzinfo = UTC) -> TransactionEvent:
    """The event that a notification tells of (section "Events").

    Members are known in PascalCase, camelCase, snake_case and any mixture; the rest is kept in ``extra``. What the
    body leaves out is taken from the query: there it is less exact (``Amount`` is a double) but as much believed.
    It does not check the sender, or whether the notification came before: a ``Receiver`` does that, or you.

    Args:
        body: As it came, content coding undone. Its length is the caller's to limit.
        query: Raw query string, without the question mark; may be empty.
        timezone: Zone of a timestamp that names none.

    Raises:
        UnreadableNotification: Nothing else is ever raised, whatever the bytes.
    """
    return read_usual(body, query, timezone) or read_unusual(body, query, timezone)


class _Told(Protocol):
    """The members that every documented shape has."""

    account_id: str | int
    subscription_id: str | int
    transaction_id: str
    batch_id: str
    request_id: str
    status_message: str
    status_code: int
    correlation_id: str
    created_on: str
    amount: msgspec.Raw  # for a Decimal msgspec would take text too
    currency_code: str


class _Reference(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    created_on: str
    request_id: str


_TOLD = get_type_hints(_Told)
# the two complete shapes; the reference must not be missing in the second, or its members could not be counted
_PASCAL_COLONS, _CAMEL_COLONS = 11, 14
_decode_pascal = msgspec.json.Decoder(
    msgspec.defstruct(
        "Pascal", [*_TOLD.items(), (_REFERENCE, None, None)], rename="pascal", forbid_unknown_fields=True, gc=False
    )
).decode
_decode_camel = msgspec.json.Decoder(
    msgspec.defstruct(
        "Camel", [*_TOLD.items(), (_REFERENCE, _Reference)], rename="camel", forbid_unknown_fields=True, gc=False
    )
).decode
_decode_mixed = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal).decode
_Mixed = msgspec.defstruct(
    "Mixed",
    [
        *((field, kind | None, None) for field, kind in _TOLD.items() if field != "amount"),
        ("amount", Decimal | None, None),
        (_REFERENCE, _Reference, None),
    ],
    forbid_unknown_fields=True,
    gc=False,
)
_SPELLINGS = {
    spelling: field
    for field in _TOLD
    for pascal in [field.title().replace("_", "")]
    for spelling in (pascal, pascal[0].lower() + pascal[1:], field)
} | {"account_number": "account_id", "client_referenceId": "request_id", "requestReference": _REFERENCE}


def read_usual(body: bytes, query: str, timezone: tzinfo) -> TransactionEvent | None:
    """The event of a usual notification, exactly as ``read_notification`` gives it, or ``None`` for any other.

    Usual are the documented members in their known spellings, mixed or not, all of them or some.
    """
    # so that each member is followed by '":' and can be counted: none came twice
    if _BACKSLASH in body or _TAB in body or _LF in body or _CR in body or body.find(b" :") >= 0:
        return None
    colons = body.count(b'":')
    told: Any
    try:
        try:
            if colons == _PASCAL_COLONS and body[2] <= _LAST_CAPITAL:
                told = _decode_pascal(body)
            elif colons == _CAMEL_COLONS and body[2] > _LAST_CAPITAL:
                told = _decode_camel(body)
            else:
                told = _told_mixed(body, colons)
        except msgspec.ValidationError:
            told = _told_mixed(body, colons)
        return None if told is None else _usual_event(told, query, timezone)
    except (msgspec.DecodeError, ValueError, ArithmeticError, RecursionError, _Harmless):
        return None


def _told_mixed(body: bytes, colons: int) -> Any:
    """The members of a body in any spellings, or ``None`` where one came twice or is not as usual."""
    try:
        members = _decode_mixed(body)
        told = {_SPELLINGS.get(name): value for name, value in members.items()}
        are_all = len(told) == len(members) and colons == len(told) + 2 * (_REFERENCE in told)
        return msgspec.convert(told, _Mixed) if are_all and type(told.get("amount")) is not str else None
    except msgspec.ValidationError:
        return None


def _usual_event(told: Any, query: str, timezone: tzinfo) -> TransactionEvent | None:
    """The event of a usual body, or ``None`` where a member or the query is not as usual."""
    transaction_id, request_id, account_id = told.transaction_id, told.request_id, told.account_id
    subscription_id, batch_id, code, amount = told.subscription_id, told.batch_id, told.status_code, told.amount
    created_on, reference, digits = told.created_on, told.request_reference, ""
    extra: dict[str, Any] = {}
    if reference is not None:
        extra["requestReference"] = {"createdOn": reference.created_on, "requestId": reference.request_id}
        request_id = reference.request_id if request_id is None else request_id
    if type(account_id) is int:
        account_id = str(account_id)
    if type(subscription_id) is int:
        subscription_id = str(subscription_id)
    if type(amount) is msgspec.Raw:
        digits = str(amount, "ascii")
        amount = Decimal(digits)
    elif amount is not None:
        digits = str(amount)
    if (
        not transaction_id
        or code is None
        or (reference is not None and request_id != reference.request_id)
        or transaction_id != transaction_id.lower()
        or (batch_id is not None and (batch_id != batch_id.strip() or len(batch_id) > _LONGEST_ID))
        or not -(10**9) < code < 10**9
        or len(digits) > _LONGEST_AMOUNT
        or "e" in digits
        or "E" in digits
        or digits == "-0"  # a whole number, which has no sign
    ):
        return None
    if created_on is not None:
        created_on = _moment(created_on, timezone) or _read_created_on(created_on, timezone)
    event = object.__new__(EVENT_TYPES.get(code, TransactionUnrecognised))
    found = event.__dict__
    found.update(  # what calling its class does, in half the time
        transaction_id=transaction_id,
        status_code=code,
        request_id=request_id,
        account_id=account_id,
        subscription_id=subscription_id,
        batch_id=batch_id,
        status_message=told.status_message,
        correlation_id=told.correlation_id,
        created_on=created_on,
        amount=amount,
        currency_code=told.currency_code,
        extra=extra,
        event_id=None,
    )
    # Spec: "Query string of the call: transactionId, subscriptionId, accountId, requestId, Amount (double)."
    ids = (
        f"transactionId={transaction_id}&subscriptionId={subscription_id}&accountId={account_id}"
        f"&requestId={request_id}&Amount="
    )
    if (
        (query != ids + digits and not (digits and _is_same(digits, query.removeprefix(ids))))
        or query.count("&") != 4
        or len(query) > _LONGEST_USUAL_QUERY
        or not query.isascii()
        or " " in query
        or not (request_id and account_id and subscription_id)
    ):
        return event if _take_usual_query(found, query) else None
    return event


def _take_usual_query(found: dict[str, Any], query: str) -> bool:
    """Compare a query that is none or not as usual with the body, and tell whether all ids are as usual."""
    for field in ("transaction_id", "request_id", "account_id", "subscription_id"):
        text = found[field]
        if text is not None and (text != text.strip() or len(text) > _LONGEST_ID):
            return False
    if query:
        _take_query(found, query)
    return True


def _moment(text: str, timezone: tzinfo) -> datetime | None:
    """``YYYY-MM-DD HH:mm:ss`` with a space or a ``T``, or ``None``."""
    if len(text) != 19 or text[:2] != "20" or text[4] != "-":
        return None
    try:
        if timezone is UTC:
            return datetime.fromisoformat(text + "+00:00")  # half the time of replace()
        return datetime.fromisoformat(text).replace(tzinfo=timezone)
    except ValueError:
        return None


def read_unusual(body: bytes, query: str, timezone: tzinfo) -> TransactionEvent:
    """As ``read_notification``, member by member: what every notification can be read with."""
    found, extra = _members(_decoded(body), timezone)
    if query:
        _take_query(found, query)
    code = found.get("status_code")
    if code is None:
        raise UnreadableNotification("the status code is missing")
    if not found.get("transaction_id"):
        raise UnreadableNotification("the transaction id is missing")
    return EVENT_TYPES.get(code, TransactionUnrecognised)(**found, extra=extra)


def _decoded(body: bytes) -> dict[str, Any]:
    """The members of a body; numbers are exact, and none comes twice with different values."""
    try:
        if body[:3] == _BOM:  # JSON forbids it, some senders write it
            body = body[3:]
        value = _decode(body)
        if len(_MEMBERS(body)) != _count(value):
            _slow_decoder.decode(body.decode())  # a member may have come twice, which the fast one does not tell
    except UnreadableNotification:
        raise
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnreadableNotification("the body is not readable JSON") from error
    if type(value) is not dict:
        raise UnreadableNotification("the body is not a JSON object")
    if b"\\u" in body:
        _check_text(value)  # escapes can spell what no database keeps
    return value


def _count(value: Any) -> int:
    """How many members there are, at every depth."""
    if type(value) is dict:
        count = len(value)
        for member in value.values():
            if type(member) is dict or type(member) is list:
                count += _count(member)
        return count
    return sum(map(_count, value)) if type(value) is list else 0


def _members(members: dict[str, Any], timezone: tzinfo) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the members say by field, and those that stay as they came."""
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in members.items():
        field = _SPELLINGS.get(name) or _folded(name)
        if field is None or field == _REFERENCE:
            if field is not None and value is not None and type(value) is not dict:
                raise UnreadableNotification("the request reference is not an object")
            extra[name] = value
        elif value is not None:
            try:
                value = _READERS[field](value, timezone)
            except _Harmless:
                extra[name] = value
                continue
            if found.setdefault(field, value) != value:
                raise UnreadableNotification(f"{field} comes twice with different values")
    if extra:
        _check_size(extra, _DEEPEST)
        _take_reference(found, extra)
    return found, extra


def _take_reference(found: dict[str, Any], extra: dict[str, Any]) -> None:
    """Take the request id out of a request reference, or compare it."""
    # Spec: "requestReference | object | camelCase description only: createdOn (datetime), requestId (string)"
    for name, reference in extra.items():
        if type(reference) is dict and _folded(name) == _REFERENCE:
            for member, value in reference.items():
                if value is not None and _folded(member) == "request_id":
                    _complete(found, "request_id", _read_id(value))


def _complete(found: dict[str, Any], field: str, value: Any) -> None:
    """Take a value from elsewhere if the body left it out; otherwise the two must agree."""
    known = found.get(field)
    if known is None or known == "":
        found[field] = value
    elif known != value and not _COMPARED.get(field, _same_id)(known, value):
        raise UnreadableNotification(f"{field} differs between the body and the query or the request reference")


def _is_same(number: str, text: str) -> bool:
    """Whether a text is a plain number with more or fewer zeros after the point."""
    if not text[-1:].isdigit() or text.count(".") > 1 or len(text) > _LONGEST_AMOUNT:
        return False
    return _without_zeros(text) == _without_zeros(number)


def _without_zeros(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _same_double(left: Decimal, right: Decimal) -> bool:
    return float(left) == float(right)  # Spec: "Amount (double)" in the query


def _same_id(left: str, right: str) -> bool:
    # a plus in a query that was not encoded arrives as a space
    return left.casefold().replace("+", " ") == right.casefold().replace("+", " ")


def _same_long(left: str, right: str) -> bool:
    # Spec: "AccountId / accountId | string (long in the camelCase description)": a number has no zeros before it
    return _same_id(left.lstrip("0"), right.lstrip("0"))


_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "amount": _same_double,
    "account_id": _same_long,
    "subscription_id": _same_long,
}


def _take_query(found: dict[str, Any], query: str) -> None:
    """Compare the documented parameters with the body; unknown ones are nobody's business."""
    if len(query) > _LONGEST_QUERY:
        raise UnreadableNotification("the query is too long")
    if not query.isascii():
        _check_text(query)
    for pair in query.split("&"):
        name, _, text = pair.partition("=")
        field = _SPELLINGS.get(name) or _folded(name)
        if field is None or field not in _QUERY or not text or found.get(field) == text:
            continue
        if field == "amount" and _is_same(str(found.get(field)), text):
            continue
        if "%" in text or "+" in text:
            text = _unquoted(text)
        if field == "amount":
            _complete(found, field, _read_amount(text.strip().replace(" ", "+")))  # as in 1E+06
        else:
            _complete(found, field, _READERS[field](text, UTC))


def _unquoted(text: str) -> str:
    """A parameter of the query as text, percent-encoding undone."""
    try:
        text = unquote_plus(text, errors="strict")
    except ValueError as error:
        raise UnreadableNotification("the query is not UTF-8") from error
    _check_text(text)
    return text


class _Harmless(Exception):
    """An unreadable member that decides nothing; it stays in ``extra`` as it came and costs no notification."""


def _read_id(value: Any, _: object = None) -> str:
    if type(value) is str:
        text: str = value.strip()
    elif type(value) is int:
        text = str(value)
    elif type(value) is Decimal and value.adjusted() < _LONGEST_NUMBER and value == value.to_integral_value():
        text = str(int(value))
    else:
        raise UnreadableNotification("an id is neither text nor a whole number")
    if len(text) > _LONGEST_ID:
        raise UnreadableNotification("an id is too long")
    return text


def plain_transaction_id(text: str) -> str:
    """The transaction id as an event has it: lower case when it is a UUID."""
    return text.lower() if len(text) == 36 and _UUID.fullmatch(text) else text


def _read_transaction_id(value: Any, _: object) -> str:
    return plain_transaction_id(_read_id(value))


def _read_text(value: Any, _: object) -> str:
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    raise _Harmless


def _read_currency(value: Any, _: object) -> str:
    try:
        return _read_text(value, _)
    except _Harmless as error:  # read as none, it would agree with the currency of any order
        raise UnreadableNotification("the currency is not text") from error


def _read_status_code(value: Any, _: object) -> int:
    if type(value) is int and -(10**9) < value < 10**9:
        return value
    if type(value) is Decimal and value.adjusted() < 9 and value == value.to_integral_value():
        return int(value)
    if type(value) is str and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise UnreadableNotification("the status code is not a whole number")


def _read_amount(value: Any, _: object = None) -> Decimal:
    try:
        if type(value) is str:
            value = value.strip()
            if not _NUMBER.fullmatch(value):
                raise ValueError("no plain number")
        return read_amount(value)
    except ValueError as error:
        raise UnreadableNotification("the amount is not a finite number of a sensible size") from error


def _read_created_on(value: Any, timezone: tzinfo) -> datetime:
    try:
        moment = read_timestamp(value, timezone)
    except (ValueError, OverflowError) as error:
        raise _Harmless from error
    if not 1970 <= moment.year < 9999:  # the year 1 is how some senders write "not set"
        raise _Harmless
    return moment


def _folded(name: str) -> str | None:
    """The field a name stands for in whatever case, or ``None``."""
    return _FOLDED.get(name.replace("_", "").lower()) if len(name) <= _LONGEST_NAME else None


def _object(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object one of whose members comes twice with different values."""
    first: dict[str, Any] = {}
    for name, value in pairs:
        # == would take true for 1
        if repr(first.setdefault(name, value)) != repr(value):
            raise UnreadableNotification("a member comes twice with different values")


def _number(text: str) -> Decimal:
    """A JSON number that is not whole, digit for digit, unless it is out of all proportion."""
    if len(text) <= _LONGEST_NUMBER:
        try:
            number = Decimal(text)
        except InvalidOperation as error:
            raise UnreadableNotification("a number is out of range") from error
        if abs(number.adjusted()) <= _LARGEST_EXPONENT:
            return number
    raise UnreadableNotification("a number is out of range")


def _check_text(value: Any) -> None:
    """Refuse text that no database can keep: a NUL, or half of a surrogate pair."""
    if type(value) is str:
        if "\0" in value:
            raise UnreadableNotification("a text contains a NUL")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UnreadableNotification("a text is not Unicode") from error
    elif type(value) is dict:
        for name, member in value.items():
            _check_text(name)
            _check_text(member)
    elif type(value) is list:
        for item in value:
            _check_text(item)


def _check_size(value: Any, left: int) -> None:
    """Refuse what is nested too deeply, and whole numbers of hundreds of digits."""
    if type(value) is dict:
        value = value.values()
    elif type(value) is int and value.bit_length() > _MOST_BITS:
        raise UnreadableNotification("a number has too many digits")
    elif type(value) is not list:
        return
    if not left:
        raise UnreadableNotification("the body is nested too deeply")
    for item in value:
        _check_size(item, left - 1)


_READERS: Mapping[str, Callable[[Any, tzinfo], Any]] = {
    "account_id": _read_id,
    "subscription_id": _read_id,
    "transaction_id": _read_transaction_id,
    "batch_id": _read_id,
    "request_id": _read_id,
    "status_message": _read_text,
    "status_code": _read_status_code,
    "correlation_id": _read_text,
    "created_on": _read_created_on,
    "amount": _read_amount,
    "currency_code": _read_currency,
}
_decode = msgspec.json.Decoder(float_hook=_number).decode
_slow_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=str, parse_int=str)
_KNOWN = (*_READERS, _REFERENCE)
_FOLDED = {name.replace("_", ""): name for name in _KNOWN} | _ALIASES
