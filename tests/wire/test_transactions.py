"""Pages of transactions: what is read at once is what the reader of any spelling makes of it."""

import json
from datetime import timedelta, timezone
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from payments_async import Page, Transaction
from payments_async._wire.call import Refused, Unreadable
from payments_async._wire.codec import decode
from payments_async._wire.endpoints import reads_documented_page
from payments_async._wire.replies import reads_page

ZONE = timezone(timedelta(hours=3))
quickly, thoroughly = reads_documented_page(ZONE), reads_page(Transaction, ZONE)


class Written(str):
    """JSON as it goes over the wire, such as a number with its scale."""


def written(value: object) -> str:
    """A value as JSON; an object is a list of pairs, so that a name can come twice."""
    match value:
        case Written():
            return value
        case dict():
            return written(tuple(value.items()))
        case tuple():
            return "{" + ",".join(f"{json.dumps(name)}:{written(item)}" for name, item in value) + "}"
        case list():
            return "[" + ",".join(map(written, value)) + "]"
        case _:
            return json.dumps(value)


def answer(*records: object, **more: object) -> bytes:
    """The body of an answer whose page holds these records."""
    return written(
        {"code": 0, "status": "success", "message": "ok", "data": {"collection": list(records)} | more}
    ).encode()


def everything(page: Page[Transaction]) -> str:
    """All that a page holds, the scale of its amounts and the types of what is extra among it."""
    return repr(attrs.astuple(page))


RECORD: dict[str, Any] = {
    "transactionId": "t-1",
    "requestId": "r-1",
    "batchId": "b-1",
    "accountNumber": "6",
    "name": None,
    "currency": "UGX",
    "amount": Written("-500.00"),
    "transactionType": "PAYOUT",
    "product": {"id": "P", "name": "Water"},
    "beneficiary": {
        "id": "17",
        "name": "Grace Akello",
        "data": {"CustomerReference": "2", "CustomerPhone": "0772", "CustomerEmail": "g@example.org", "Memo": "m"},
    },
}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"product": {"id": "P", "productItemId": "P_1"}},
        {"beneficiary": {"id": "17", "name": "G", "data": {"PhoneNumber": "0772", "memo": "m"}}},
        {"status": "SUCCESSFULL", "statusMessage": "done", "createdOn": "2/27/2024 2:06:41 PM"},
        {"fees": "12.50", "initiator": "I", "approver": "A", "attachments": {"f": [1, Written("2.50")]}},
    ],
)
def test_the_documented_page_is_read_at_once(members: dict[str, Any]) -> None:
    """Every documented shape of a record is read quickly, to the same records."""
    counts = {"totalCount": 1, "pageSize": 10, "currentPage": 1, "totalPages": 1}
    body = answer(RECORD | members, RECORD, **counts, previousPage=False, nextPage=False)
    page = quickly(body)
    assert page is not None
    assert (thoroughly(decode(body)), everything(thoroughly(decode(body)))) == (page, everything(page))


texts = st.sampled_from(["", " ", "x", "0", "é", "\u202e", " t-1 "]) | st.text(max_size=4)
exact = "0 -0 -0.00 1500.250 1e3 1E-6 -2.50e+2 0e5 123456789012345678901234567890 0.12345678901234567890123456789"
wild = "1e999999999 1e-30 1e30 0e-40 1234567890123456789012345678901 0.123456789012345678901234567890 01 NaN -"
numbers = st.sampled_from([*exact.split(), "1.0", "9223372036854775808", "18446744073709551616"]).map(Written)
wild_numbers = st.sampled_from(wild.split()).map(Written) | st.decimals(allow_nan=False, allow_infinity=False).map(
    lambda number: Written(f"{number}")
)
odd = st.sampled_from([None, True, False, [], {}, ["x"], {"x": None}, Written('"\\ud800"'), Written("[[")])
dates = st.sampled_from(["2/27/2024 2:06:41 PM", "2024-02-27 14:06:41", "2024-02-27T14:06:41Z"])
statuses = st.sampled_from(["SUCCESSFULL", "PROCESSING", "FAILED"])
open_words = st.sampled_from(
    ["13/1/2024 1:00:00 AM", "2/30/2024", "9", "successful", "COMPLETED", "ON_HOLD", " FAILED"]
)
met = """
    transactionId transaction_id TransactionId requestId clientreference_id batchId batch_id accountNumber name Name
    account_number currency amount Amount transactionType type product beneficiary status statusMessage createdOn phone
    created_on fees initiator approver attachments extra unknown id data memo Memo PhoneNumber CustomerPhone
    CustomerEmail CustomerReference customerReference productItemId"""
spelled = st.sampled_from(met.split())
anything = texts | numbers | wild_numbers | odd | dates | statuses | open_words
others = st.integers(0, 31).flatmap(lambda chance: st.lists(st.tuples(spelled, anything), max_size=2 * (chance == 5)))


def objects(names: list[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with some of the documented members, each as documented or not, and now and then another member."""
    documented = st.fixed_dictionaries({}, optional=dict.fromkeys(names, values))
    return st.tuples(documented, others).map(lambda parts: (*parts[0].items(), *parts[1]))


def mostly(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """These values, and now and then any other: only a page that is documented throughout is read at once."""
    return st.integers(0, 63).flatmap(lambda chance: anything if chance == 7 else values)


words = mostly(texts | st.none())
products = objects(["id", "name", "productItemId"], words)
data = objects(["CustomerReference", "CustomerPhone", "CustomerEmail", "Memo", "PhoneNumber", "memo"], words)
people = st.fixed_dictionaries({}, optional={"id": words, "name": words, "data": mostly(data), "memo": words})
records = st.fixed_dictionaries(
    {"transactionId": mostly(st.sampled_from(["t-1", "t-2", "0"]))},
    optional={
        **dict.fromkeys(["requestId", "batchId", "accountNumber", "name", "currency", "transactionType"], words),
        **dict.fromkeys(["statusMessage", "fees", "initiator", "approver"], words),
        "amount": mostly(numbers),
        "product": mostly(products | st.none()),
        "beneficiary": mostly(people | st.none()),
        "status": mostly(statuses),
        "createdOn": mostly(dates),
        "attachments": mostly(st.dictionaries(texts, anything, max_size=2)),
    },
)
spelled_records = st.tuples(records, others).map(lambda parts: (*parts[0].items(), *parts[1]))
counts = mostly(st.integers(0, 2**63).map(lambda number: Written(str(number))))
flags = mostly(st.booleans())
pages = st.fixed_dictionaries(
    {"collection": mostly(st.lists(spelled_records, max_size=3))},
    optional={
        **dict.fromkeys(["totalCount", "pageSize", "currentPage", "totalPages"], counts),
        **dict.fromkeys(["previousPage", "nextPage"], flags),
    },
)
answers = st.fixed_dictionaries(
    {"code": mostly(st.just(0)), "data": mostly(pages)}, optional={"status": words, "message": words}
)


@pytest.mark.slow(covered=True)
@given(answers.map(written))
@example('{"code": 0, "data": {"collection": [{"transactionId": "t", "amount": "1_000"}]}}')
@example('{"code": 0, "data": {"collection": [{"transactionId": "t", "amount": 1e-25, "amount": 1.50}]}}')
@example('{"code": 0, "data": {"collection": [{"transactionId": "", "requestId": "r"}]}}')
@example('{"code": 0, "data": {"collection": [{"transactionId": "t", "beneficiary": {"data": null}}]}}')
@example(
    '{"code": 0, "data": {"collection": [{"transactionId": "t", "beneficiary": {"data": '
    '{"PhoneNumber": "7", "CustomerPhone": null}}}]}}'
)
@example(
    '{"code": 0, "data": {"collection": [{"transactionId": "t", "beneficiary": {"data": '
    '{"Memo": "", "PhoneNumber": ""}}}]}}'
)
@example('{"code": 0, "data": {"collection": [], "totalCount": 1e2, "pageSize": 1.0, "currentPage": -1}}')
def test_read_at_once_or_thoroughly_it_is_the_same_page(body: str) -> None:
    """What the quick reader gives is what the thorough one makes of it; what that one refuses, it leaves alone."""
    page = quickly(body.encode())
    try:
        expected = thoroughly(decode(body.encode()))
    except (Unreadable, Refused):
        assert page is None
        return
    if page is not None:
        assert (expected, everything(expected)) == (page, everything(page))


@given(answers.map(written), st.integers(0, 400))
def test_half_a_page_is_left_alone(body: str, length: int) -> None:
    """What was cut off is no page."""
    assert quickly(body.encode()[: min(length, len(body) - 1)]) is None
