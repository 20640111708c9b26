"""JSON to models: every spelling, exact numbers, moments, strict types, and whatever else may come."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wire.answers import ENVELOPES, EVERY_CALL, outcome

from payments_async import (
    Acceptance,
    Account,
    Card,
    Dialect,
    Product,
    ProductItem,
    Transaction,
    TransactionStatus,
)
from payments_async._wire.call import Unreadable
from payments_async._wire.codec import decode, read_code, read_int, read_record, read_text, read_timestamp
from payments_async._wire.models import TransactionBeneficiary, TransactionProduct

DIALECT = Dialect()

# Every member of every record, camelCase, and what it is read as.
RECORDS: dict[str, tuple[dict[str, Any], Any]] = {
    "transaction": (
        {
            "transactionId": "t-1",
            "requestId": "r-1",
            "batchId": "b-1",
            "accountNumber": "6",
            "name": "Invented Ltd",
            "currency": "UGX",
            "amount": Decimal("-500.00"),
            "transactionType": "PAYOUT",
            "product": {"id": "P", "name": "Water", "productItemId": "P_1"},
            "beneficiary": {
                "id": "17",
                "name": "Grace Akello",
                "data": {
                    "customerReference": "20551177",
                    "customerPhone": "0772000017",
                    "customerEmail": "grace@example.org",
                    "memo": "November",
                },
            },
            "status": "SUCCESSFULL",
            "statusMessage": "done",
            "createdOn": "2/27/2024 2:06:41 PM",
            "fees": "12.50",
            "initiator": "I",
            "approver": "A",
            "attachments": {"f": "1"},
        },
        Transaction(
            transaction_id="t-1",
            request_id="r-1",
            batch_id="b-1",
            account_number="6",
            name="Invented Ltd",
            currency="UGX",
            amount=Decimal("-500.00"),
            transaction_type="PAYOUT",
            product=TransactionProduct(id="P", name="Water", product_item_id="P_1"),
            beneficiary=TransactionBeneficiary(
                id="17",
                name="Grace Akello",
                customer_reference="20551177",
                phone="0772000017",
                email="grace@example.org",
                memo="November",
            ),
            status=TransactionStatus.SUCCESSFUL,
            status_message="done",
            created_on=datetime(2024, 2, 27, 14, 6, 41, tzinfo=UTC),
            fees="12.50",
            initiator="I",
            approver="A",
            attachments={"f": "1"},
        ),
    ),
    "product": (
        {
            "productId": "P",
            "name": "Water",
            "imageUri": "u",
            "categoryId": "TAX",
            "shortDescription": "s",
            "longDescription": "l",
            "countryCode": "256",
            "currencyCode": "UGX",
            "isActive": True,
            "isExternal": False,
            "sortOrder": 4,
            "productRegex": "123",
        },
        Product(
            product_id="P",
            name="Water",
            image_uri="u",
            category_id="TAX",
            short_description="s",
            long_description="l",
            country_code="256",
            currency_code="UGX",
            is_active=True,
            is_external=False,
            sort_order=4,
            product_regex="123",
        ),
    ),
    "item": (
        {
            "productItemId": "P_1",
            "name": "Weekly",
            "category": "DATA",
            "amount": Decimal("2000.00"),
            "isAmountFixed": True,
            "validityPeriod": "Weekly",
            "type": "DATA",
            "productId": "P",
            "shortDescription": "s",
            "longDescription": "l",
            "productRegex": "r",
            "isActive": False,
            "productItemCode": "1",
            "sortOrder": 0,
        },
        ProductItem(
            product_item_id="P_1",
            name="Weekly",
            category="DATA",
            amount=Decimal("2000.00"),
            is_amount_fixed=True,
            validity_period="Weekly",
            type="DATA",
            product_id="P",
            short_description="s",
            long_description="l",
            product_regex="r",
            is_active=False,
            product_item_code="1",
            sort_order=0,
        ),
    ),
    "account": (
        {"accountNumber": 6, "name": "N", "description": "D", "balance": Decimal("1.10"), "currency": "UGX"},
        Account(account_number="6", name="N", description="D", balance=Decimal("1.10"), currency="UGX"),
    ),
    "card": (
        {
            "cardId": 17,
            "maskedCardNumber": "4000 **** **** 0001",
            "name": "Travel",
            "currency": "UGX",
            "balance": "150000.50",
            "status": "active",
            "cardHolder": "Grace Akello",
            "transactions": [1],
            "statement": {"s": 1},
        },
        Card(
            card_id="17",
            masked_card_number="4000 **** **** 0001",
            name="Travel",
            currency="UGX",
            balance=Decimal("150000.50"),
            status="active",
            card_holder="Grace Akello",
            transactions=[1],
            statement={"s": 1},
        ),
    ),
}
NOT_OURS = {"attachments", "transactions", "statement"}  # kept as they came: their members are not spelled by us


def snake(name: str) -> str:
    """``camelCase`` as ``snake_case``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "camel": str,
    "Pascal": lambda name: name[0].upper() + name[1:],
    "snake": snake,
    "UPPER": str.upper,
    "lower": str.lower,
    "UPPER_SNAKE": lambda name: snake(name).upper(),
    "kebab": lambda name: snake(name).replace("_", "-"),
}


def spelled(value: Any, spelling: Callable[[str], str]) -> Any:
    """The same value with its members' names in another spelling."""
    if not isinstance(value, dict):
        return value
    return {spelling(name): item if name in NOT_OURS else spelled(item, spelling) for name, item in value.items()}


def read(kind: type[Any], value: object) -> Any:
    """One record."""
    return read_record(kind, value, UTC)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("record", RECORDS)
def test_a_record_in_another_spelling(record: str, spelling: str) -> None:
    """It reads equal, to the last member."""
    value, expected = RECORDS[record]
    assert expected == read(type(expected), spelled(value, SPELLINGS[spelling]))


@pytest.mark.parametrize("record", RECORDS)
def test_the_samples_above(record: str) -> None:
    """They leave no field of a record unset, so none is untested."""
    _, expected = RECORDS[record]
    assert [] == [name for name in attrs.asdict(expected, recurse=False) if getattr(expected, name) is None]


@given(st.lists(st.sampled_from(list(SPELLINGS)), min_size=18, max_size=18))
def test_a_record_in_mixed_spellings(choice: list[str]) -> None:
    """One description mixes them."""
    value, expected = RECORDS["transaction"]
    mixed = {SPELLINGS[choice[n]](name): item for n, (name, item) in enumerate(value.items())}
    assert expected == read(Transaction, mixed)


def test_the_earlier_edition() -> None:
    """Its other names are understood."""
    record = read(
        Transaction,
        {"transaction_id": "t-1", "clientreference_id": "r-1", "beneficiary": {"data": {"PhoneNumber": "0772000017"}}},
    )
    assert ("r-1", TransactionBeneficiary(phone="0772000017")) == (record.request_id, record.beneficiary)
    item = read(ProductItem, {"item_id": 17, "item_name": "Weekly", "item_price": 5, "availability": True})
    expected = ProductItem(product_item_id="17", name="Weekly", amount=Decimal(5), extra={"availability": True})
    assert expected == item


@given(st.dictionaries(st.text(min_size=1).map(lambda name: f"zz{name}"), st.integers() | st.text(), max_size=5))
def test_unknown_members(members: dict[str, object]) -> None:
    """They are kept as they came, under the names they came with."""
    assert members == read(Account, {"accountNumber": 6, "balance": 1} | members).extra


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("createdOn", "27.02.2024 14:06"),
        ("createdOn", 1709042801),
        ("createdOn", ""),
        ("amount", "lots"),
        ("amount", True),
        ("amount", []),
        ("amount", Decimal("1E+9999")),
        ("requestId", True),
        ("requestId", {"id": 1}),
        ("name", ["a"]),
        ("product", "P"),
        ("product", []),
        ("beneficiary", 17),
        ("status", False),
        ("attachments", "a file"),
    ],
)
def test_an_optional_member_nobody_can_read(member: str, value: object) -> None:
    """It is None, and the text is in extra: it never costs a record."""
    expected = Transaction(transaction_id="t-1", currency="UGX", extra={member: value})
    assert expected == read(Transaction, {"transactionId": "t-1", member: value, "currency": "UGX"})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Transaction, {}),
        (Transaction, {"transactionId": None}),
        (Transaction, {"transactionId": ""}),
        (Transaction, {"transactionId": True}),
        (Transaction, []),
        (Transaction, "t-1"),
        (Transaction, None),
        (Account, {"accountNumber": 6}),
        (Account, {"accountNumber": 6, "balance": "lots"}),
        (Product, {"name": "Water"}),
        (ProductItem, {"productId": "P"}),
    ],
)
def test_a_record_without_what_it_must_have(kind: type[object], value: object) -> None:
    """It is unreadable: a row without an id could be taken for another."""
    with pytest.raises(Unreadable):
        read(kind, value)


def test_a_member_said_twice() -> None:
    """The first that can be read counts; the other is kept."""
    record = read(Transaction, {"transactionId": "t-1", "TransactionId": "t-2", "amount": "?", "Amount": 5})
    assert ("t-1", Decimal(5)) == (record.transaction_id, record.amount)
    assert {"TransactionId": "t-2", "amount": "?"} == record.extra


def test_swapped_product_and_beneficiary() -> None:
    """One list sample has them so: nothing is lost."""
    record = read(
        Transaction,
        {
            "transactionId": "t-1",
            "product": {"id": "17", "name": "Grace", "data": {"Memo": "x"}},
            "beneficiary": {"id": "P", "productItemId": "P_1"},
        },
    )
    assert TransactionProduct(id="17", name="Grace", extra={"data": {"Memo": "x"}}) == record.product
    assert TransactionBeneficiary(id="P", extra={"productItemId": "P_1"}) == record.beneficiary


def test_data_within_data() -> None:
    """Only the documented level is opened, however deep it goes."""
    value: object = {"memo": "deep"}
    for _ in range(400):
        value = {"data": value}
    record = read(TransactionBeneficiary, value)
    assert ([None], ["data"]) == ([record.memo], list(record.extra))


@pytest.mark.parametrize(
    ("value", "text"), [("x", "x"), ("", ""), (6, "6"), (10**30, "1" + "0" * 30), (Decimal("1.10"), "1.10")]
)
def test_a_text(value: object, text: str) -> None:
    """Ids are text, whatever type carried them."""
    assert text == read_text(value)


@pytest.mark.parametrize("value", [None, True, False, [], {}, 1.5])
def test_what_is_no_text(value: object) -> None:
    """It never becomes 'None' or 'True'."""
    with pytest.raises(ValueError, match="text"):
        read_text(value)


BOOLS: list[tuple[object, bool | None]] = [
    (True, True),
    (False, False),
    (1, True),
    (0, False),
    ("true", True),
    ("False", False),
    ("no", None),
    ("", None),
    ("1", None),
    (2, None),
    (Decimal("1.0"), None),
    ([], None),
    ({}, None),
]


@pytest.mark.parametrize(("value", "expected"), BOOLS)
def test_a_truth_value(value: object, expected: bool | None) -> None:
    """Nothing is true only because it is not empty."""
    product = read(Product, {"productId": "P", "isActive": value})
    assert (expected, {} if expected is not None else {"isActive": value}) == (product.is_active, product.extra)


@pytest.mark.parametrize(
    ("value", "number"), [(5, 5), ("5", 5), (" -5 ", -5), (Decimal("5.00"), 5), (Decimal("1E+3"), 1000)]
)
def test_a_whole_number(value: object, number: int) -> None:
    """In every type it may come in."""
    assert (number, number) == (read_int(value), read_code(value))


@pytest.mark.parametrize("value", [True, "5.0", "--5", "- 5", "\u0665", "", "x", Decimal("0.5"), [], "9" * 30])
def test_what_is_no_whole_number(value: object) -> None:
    """It is refused with the one documented error."""
    with pytest.raises(ValueError, match="number"):
        read_int(value)
    with pytest.raises(Unreadable):
        read_code(value)


EAST = timezone(timedelta(hours=3))
MOMENTS = {
    "2/27/2024 2:06:41 PM": datetime(2024, 2, 27, 14, 6, 41, tzinfo=EAST),
    "2/27/2024 2:06:41 pm": datetime(2024, 2, 27, 14, 6, 41, tzinfo=EAST),
    "02/07/2024 02:06:41 AM": datetime(2024, 2, 7, 2, 6, 41, tzinfo=EAST),
    "1/1/2024 12:30:05 AM": datetime(2024, 1, 1, 0, 30, 5, tzinfo=EAST),
    "1/1/2024 12:30:05 PM": datetime(2024, 1, 1, 12, 30, 5, tzinfo=EAST),
    "2/29/2024 11:59:59 PM": datetime(2024, 2, 29, 23, 59, 59, tzinfo=EAST),
    "12/31/2024  1:00:00 a.m.": datetime(2024, 12, 31, 1, tzinfo=EAST),
    "2024-02-27 14:06:41": datetime(2024, 2, 27, 14, 6, 41, tzinfo=EAST),
    "2024-02-27T14:06:41": datetime(2024, 2, 27, 14, 6, 41, tzinfo=EAST),
    "2024-02-27T14:06:41Z": datetime(2024, 2, 27, 14, 6, 41, tzinfo=UTC),
    "2024-02-27T14:06:41+03:00": datetime(2024, 2, 27, 14, 6, 41, tzinfo=EAST),
    "2024-02-27T14:06:41.5": datetime(2024, 2, 27, 14, 6, 41, 500000, tzinfo=EAST),
    "2024-02-27T14:06:41.123456Z": datetime(2024, 2, 27, 14, 6, 41, 123456, tzinfo=UTC),
    "2024-02-27T14:06:41.1234567Z": datetime(2024, 2, 27, 14, 6, 41, 123456, tzinfo=UTC),
    " 2024-02-27 14:06:41 ": datetime(2024, 2, 27, 14, 6, 41, tzinfo=EAST),
}


@pytest.mark.parametrize("text", MOMENTS)
def test_a_moment(text: str) -> None:
    """Month first, noon is 12 PM, and a text without a zone stands in the dialect's."""
    moment = read_timestamp(text, EAST)
    assert (MOMENTS[text], MOMENTS[text].utcoffset()) == (moment, moment.utcoffset())


@pytest.mark.parametrize(
    "value",
    [
        "",
        "now",
        "27.02.2024 14:06",
        "27/2/2024 2:06:41 PM",
        "2/30/2024 2:06:41 PM",
        "2/27/2024 13:06:41 PM",
        "2/27/2024 0:06:41 AM",
        "2/27/2024 14:06:41",
        "0000-01-01T00:00:00",
        "\ud800",
        "1" * 1000,
        None,
        True,
        1709042801,
        [],
    ],
)
def test_what_is_no_moment(value: object) -> None:
    """It is a ValueError, never a moment that was guessed."""
    with pytest.raises(ValueError):  # noqa: PT011 - datetime's own words
        read_timestamp(value, UTC)


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001 - no zone, as sent
def test_any_moment_in_each_shape(moment: datetime) -> None:
    """All three shapes of one moment read equal."""
    moment = moment.replace(microsecond=0, fold=0)
    hour = moment.hour % 12 or 12
    half = "PM" if moment.hour >= 12 else "AM"
    sample = f"{moment.month}/{moment.day}/{moment.year:04} {hour}:{moment.minute:02}:{moment.second:02} {half}"
    aware = moment.replace(tzinfo=EAST)
    assert [aware, aware, aware] == [
        read_timestamp(text, EAST) for text in (sample, moment.isoformat(" "), moment.isoformat())
    ]


STATUSES = {
    "SUCCESSFULL": TransactionStatus.SUCCESSFUL,
    "successful": TransactionStatus.SUCCESSFUL,
    "Success": TransactionStatus.SUCCESSFUL,
    "COMPLETED": TransactionStatus.SUCCESSFUL,
    "processing": TransactionStatus.PROCESSING,
    "PENDING": TransactionStatus.PROCESSING,
    "ENQUEUED": TransactionStatus.ENQUEUED,
    "failed": TransactionStatus.FAILED,
    "FAILURE": TransactionStatus.FAILED,
    " REVERSED ": TransactionStatus.REVERSED,
}


@pytest.mark.parametrize("word", STATUSES)
def test_a_status(word: str) -> None:
    """Every spelling met is understood, and the service's own word is kept beside it."""
    record = read(Transaction, {"transactionId": "t-1", "status": word})
    assert STATUSES[word] is record.status
    assert ({} if word == STATUSES[word] else {"status": word}) == record.extra


@pytest.mark.parametrize("word", ["ON_HOLD", "", "not successful", "SUCCESSFULLY", "UNSUCCESSFUL"])
def test_a_status_nobody_documented(word: str) -> None:
    """It is kept as it came, equals its text, and is neither success nor failure."""
    status = TransactionStatus(word)
    assert (word, hash(word), False) == (status, hash(status), status.is_final)
    assert status not in set(TransactionStatus)
    assert [word] == [str(status)]


def test_a_status_that_is_no_text() -> None:
    """It is no status at all."""
    with pytest.raises(ValueError, match="17"):
        TransactionStatus(17)  # type: ignore[arg-type]


BODIES: dict[bytes, str] = {
    b"": "an empty body",
    b"  \n": "an empty body",
    b"<!DOCTYPE html><html>": "a web page",
    b"  <html>": "a web page",
    b'{"a": 1': "no readable JSON",
    b"NaN": "no readable JSON",
    b'{"a": "\xff"}': "no readable JSON",
    b"\xff\xfe{\x00}\x00": "no readable JSON",
    b"1e99999999999999999999": "no readable JSON",
    b"1" * 5000: "no readable JSON",
    b"[" * 5000: "no readable JSON",
    b'{"a":' * 200_000 + b"1" + b"}" * 200_000: "no readable JSON",
}


@pytest.mark.parametrize("body", BODIES, ids=[str(number) for number in range(len(BODIES))])
def test_a_body_that_is_no_json(body: bytes) -> None:
    """The message says what it looks like instead, and shows none of it."""
    with pytest.raises(Unreadable, match=f"^the answer is {BODIES[body]}$"):
        decode(body)


def test_a_body_with_a_mark_at_its_start() -> None:
    """A byte order mark is passed over."""
    assert {"a": Decimal("0.10")} == decode(b'\xef\xbb\xbf{"a": 0.10}')


@given(st.binary(max_size=60))
@example(b'"\xff"')
def test_any_bytes(body: bytes) -> None:
    """They are JSON or unreadable, and nothing else."""
    with suppress(Unreadable):
        decode(body)


@given(ENVELOPES)
def test_an_acceptance_of_anything(value: dict[str, Any]) -> None:
    """Whatever is accepted had no error code, and named a transaction."""
    seen = outcome(EVERY_CALL["payout"], json.dumps(value).encode(), 200)
    if isinstance(seen, Acceptance):
        assert read_code(value.get("code")) in (0, None)
        assert "transactionid" in {name.lower() for name in value["data"]}
