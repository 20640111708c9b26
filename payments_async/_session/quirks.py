"""The contradictions of the specification that were met, each told once: in the log, and to whoever watches."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from payments_async._values.observing import Observer
from payments_async._wire.call import Call, Reply, Unreadable
from payments_async._wire.codec import decode, fold, read_code
from payments_async._wire.models import TransactionStatus

_log = logging.getLogger("payments_async")

_MOST_UNUSUAL = 100  # answers of one kind, read with thought, that are all looked at; then ever fewer of them


class MetQuirks:
    """What one session, or one receiver, has met.

    To look costs a second reading. So each answer that was read with thought is looked at, up to a hundred of a kind,
    and of all others the first, the second, the fourth, the eighth and so on.

    Attributes:
        met: The value that each shows itself by, under its id.
        observer: Who hears of each, if anybody does.
        taken: Orders whose acceptance was read at once; whoever reads those counts them.
    """

    def __init__(self, observer: Observer | None = None) -> None:
        self.met: dict[str, str] = {}
        self.observer = observer
        self.taken = 0
        self._seen: dict[str, int] = {}  # no Counter: to count one is an assignment by way of Python's own methods
        self._unusual: dict[str, int] = {}

    def wants(self, kind: str, *, is_unusual: bool) -> bool:
        """Whether to look at an answer of this kind, which was read with thought, or at once."""
        self._seen[kind] = seen = self._seen.get(kind, 0) + 1
        if not seen & (seen - 1):
            return True
        if not is_unusual:
            return False
        self._unusual[kind] = unusual = self._unusual.get(kind, 0) + 1
        return unusual <= _MOST_UNUSUAL or not unusual & (unusual - 1)

    def consider(self, call: Call[Any], reply: Reply) -> None:
        """Look at an answer, unless enough of its kind were looked at."""
        if call.answer and self.wants(call.answer, is_unusual=reply.is_unusual):
            self.look_at_answer(call, reply)

    def look_at_answer(self, call: Call[Any], reply: Reply) -> None:
        """Tell what an answer shows."""
        self._tell(lambda: quirks_of_answer(call, reply))

    def look_at_notification(self, body: bytes, query: str) -> None:
        """Tell what a notification shows."""
        self._tell(lambda: quirks_of_notification(body, query))

    def _tell(self, look: Callable[[], Mapping[str, str]]) -> None:
        try:
            shown = look()
        except Exception as error:  # noqa: BLE001 - whatever it trips over, what it was has been read and counts
            _log.error("an answer could not be searched for quirks: %s", type(error).__name__)
            return
        for quirk, value in shown.items():
            if quirk not in self.met:
                self.met[quirk] = value
                facts = {"quirk": quirk, "value": value}
                _log.info("the service shows the quirk %s: %s", quirk, value, extra=facts)
                if self.observer is not None:
                    self.observer.count("quirk", quirk=quirk)


# A quirk's id, and the value that it shows itself by: a word of ours, never one of the service's.
Shown: TypeAlias = Iterator[tuple[str, str]]

_MOST_ROWS = 100  # of a page that are looked at
_US = re.compile(r"\d{1,2}/\d{1,2}/\d{4} .*[AaPp]\.?[Mm]\.?", re.ASCII)
_SPACED = re.compile(r"\d{4}-\d{2}-\d{2} .*", re.ASCII)
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}T.*", re.ASCII)
_IPN_NAMES = frozenset(
    {"accountid", "subscriptionid", "transactionid", "batchid", "requestid", "statusmessage", "statuscode"}
    | {"correlationid", "createdon", "currencycode", "accountnumber", "clientreferenceid"}
)


def quirks_of_answer(call: Call[Any], reply: Reply) -> Mapping[str, str]:
    """The quirks that an answer shows, with the value of each."""
    try:
        value = decode(reply.body)
    except Unreadable:
        value = None
    rules = _ANSWERS.get(call.answer, ())
    return {quirk: shown for rule in rules for quirk, shown in rule(call, reply.status, _members(value))}


def quirks_of_notification(body: bytes, query: str) -> Mapping[str, str]:
    """The quirks that a notification shows, with the value of each."""
    try:
        members = _members(decode(body))
    except Unreadable:
        return {}
    return dict(_notification(members, query))


def _members(value: Any) -> dict[str, Any]:
    """The members of an object; of anything else, none."""
    return value if isinstance(value, dict) else {}


def _folded(value: Any) -> dict[str, Any]:
    return {fold(name): member for name, member in _members(value).items()}


def _login(_: Call[Any], status: int, value: dict[str, Any]) -> Shown:
    if status < 300 and not value.get("Token"):
        if _folded(value.get("data")).get("token"):
            yield "token_key", "data.token"
        elif _folded(value).get("token"):
            yield "token_key", "token"


def _envelope(_: Call[Any], __: int, value: dict[str, Any]) -> Shown:
    if _folded(value).get("correlationid") is not None:
        yield "envelope_correlation_id", "True"


def _acceptance(_: Call[Any], status: int, value: dict[str, Any]) -> Shown:
    data = _folded(value.get("data"))
    if status >= 300 or not data.get("transactionid"):
        return
    if status != 200:
        yield "acceptance_http", str(status)
    if "status" not in _folded(value):
        yield "acceptance_top_status", "False"
    shape = _shape(data.get("createdon"))
    if shape not in (None, "us"):
        yield "created_on", str(shape)


def _read(_: Call[Any], status: int, value: dict[str, Any]) -> Shown:
    folded = _folded(value)
    if status < 300 and folded.get("data") is not None and _code(folded.get("code")) == 1:
        yield "read_code", "1"


def _single(_: Call[Any], __: int, value: dict[str, Any]) -> Shown:
    data = _members(_folded(value).get("data"))
    if any("_" in name for name in data):
        yield "single_record_names", "snake"
    yield from _record(data)


def _page(call: Call[Any], _: int, value: dict[str, Any]) -> Shown:
    data = _folded(_folded(value).get("data"))
    rows = data.get("collection")
    if not isinstance(rows, list):
        return
    for row in rows[:_MOST_ROWS]:
        yield from _record(_members(row))
    total, pages, number = (data.get(name) for name in ("totalcount", "totalpages", "currentpage"))
    if isinstance(pages, int) and isinstance(number, int) and isinstance(data.get("nextpage"), bool) and rows:
        if data["nextpage"] is not (number < pages):
            yield "next_page_lies", "True"
        if isinstance(total, int) and pages == number == 1 and total != len(rows):
            yield "total_error", str(total - len(rows))
    if rows and total is None:
        yield "total_error", "None"
    asked = parse_qs(call.query).get("transactionStatus", [None])[0]
    shown = {_status(row) for row in rows[:_MOST_ROWS]} - {None}
    if asked is not None and any(TransactionStatus(asked) != status for status in shown):
        yield "ignores_status_filter", "True"


def _record(row: dict[str, Any]) -> Shown:
    """What one transaction shows, of a list or alone."""
    members = _folded(row)
    status = _status(row)
    if status is not None:
        yield "record_has_status", "True"
        if status is TransactionStatus.SUCCESSFUL and members["status"] != TransactionStatus.SUCCESSFUL.value:
            yield "success_word", str(members["status"]).strip().upper()  # one of those that are known
    kind, amount = members.get("transactiontype"), members.get("amount")
    negative = amount < 0 if isinstance(amount, int | Decimal) and amount != 0 else None
    if kind in ("PAYOUT", "COLLECTION") and negative is (kind != "PAYOUT"):
        yield "record_amount_sign", "collections_negative"
    number = members.get("accountnumber")
    if number is not None and not isinstance(number, str):
        yield "record_account_number", "number"
    product = _folded(members.get("product"))
    if "data" in product:
        yield "list_swaps_product", "True"
        return
    if "productitemid" in product:
        yield "record_product_key", "productItemId"
    if {"PhoneNumber", "memo"} & _members(_folded(members.get("beneficiary")).get("data")).keys():
        yield "record_beneficiary_data", "phone"


def _validation(call: Call[Any], status: int, _: dict[str, Any]) -> Shown:
    if status == 400:
        yield "validation_refusal_http", "400"
    if status == 401 and not call.authorized:
        yield "validation_needs_token", "True"


def _card(_: Call[Any], status: int, value: dict[str, Any]) -> Shown:
    folded = _folded(value)
    if status < 300 and folded.get("data") and str(folded.get("success")).lower() in ("0", "false"):
        yield "card_success_flag", "0"


def _notification(members: dict[str, Any], query: str) -> Shown:
    folded = _folded(members)
    spellings = {_spelling(name) for name in members if fold(name) in _IPN_NAMES} - {"pascal"}
    if spellings:
        yield "ipn_spelling", " and ".join(sorted(spellings))
    ids = (folded.get(name) for name in ("accountid", "accountnumber", "subscriptionid"))
    if any(isinstance(number, int) and not isinstance(number, bool) for number in ids):
        yield "ipn_ids", "number"
    if not query:
        yield "ipn_query", "False"
    shape = _shape(folded.get("createdon"))
    if shape not in (None, "spaced"):
        yield "ipn_date", str(shape)
    if not (folded.get("requestid") or folded.get("clientreferenceid")):
        if _folded(folded.get("requestreference")).get("requestid"):
            yield "ipn_request_id", "reference"
        elif "requestid=" in query.lower():
            yield "ipn_request_id", "query"


def _spelling(name: str) -> str:
    if "_" in name:
        return "snake"
    return "pascal" if name[:1].isupper() else "camel"


def _shape(moment: Any) -> str | None:
    """How a timestamp is written, by the words of the quirks; ``None`` where it is in no known way."""
    if not isinstance(moment, str):
        return None
    shapes = {"us": _US, "spaced": _SPACED, "iso": _ISO}
    return next((name for name, shape in shapes.items() if shape.fullmatch(moment)), None)


def _status(row: Any) -> TransactionStatus | None:
    word = _folded(row).get("status")
    return TransactionStatus(word) if isinstance(word, str) and word else None


def _code(value: Any) -> int | None:
    try:
        return read_code(value)
    except Unreadable:
        return None


_Rule: TypeAlias = Callable[[Call[Any], int, dict[str, Any]], Shown]
_ANSWERS: Mapping[str, tuple[_Rule, ...]] = {  # by ``Call.answer``
    "login": (_login,),
    "acceptance": (_envelope, _acceptance),
    "transaction": (_envelope, _read, _single),
    "transactions": (_envelope, _read, _page),
    "reading": (_envelope, _read),
    "validation": (_envelope, _validation),
    "card": (_card,),
}
# Which can be told of one answer or one notification; the page of quirks names them.
TOLD = frozenset(
    {"token_key", "envelope_correlation_id", "acceptance_http", "acceptance_top_status", "created_on", "read_code"}
    | {"single_record_names", "next_page_lies", "total_error", "ignores_status_filter", "record_has_status"}
    | {"success_word", "record_amount_sign", "record_account_number", "list_swaps_product", "record_product_key"}
    | {"record_beneficiary_data", "validation_refusal_http", "validation_needs_token", "card_success_flag"}
    | {"ipn_spelling", "ipn_ids", "ipn_query", "ipn_date", "ipn_request_id"}
)
