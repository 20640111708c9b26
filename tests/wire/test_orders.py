"""Orders: what the likely mistakes are told, what a repr shows, and ids that mean one payment."""

import pickle
import unicodedata
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from session.wires import Wire
from wire.conftest import Open
from wire.orders import beneficiary, collection, payout

from payments_async import (
    Acceptance,
    Account,
    AirtimeLine,
    BankAccount,
    Beneficiary,
    Card,
    Credentials,
    Dialect,
    InternetLine,
    MobileMoneyWallet,
    Page,
    Settlement,
    Transaction,
    TransactionStatus,
    UtilityAccount,
    Validation,
    request_id_for,
)
from payments_async._wire import orders as _orders
from payments_async._wire.endpoints import raw
from payments_async._wire.models import TransactionBeneficiary, TransactionProduct

PHONE: Any = "+256772000018"  # where a destination belongs

MISTAKES: list[tuple[str, Callable[[], object], type[Exception], str]] = [
    ("float amount", lambda: payout(amount=0.1), TypeError, r"amount: a float is not exact; pass decimal\.Decimal"),
    ("NaN", lambda: payout(amount=Decimal("NaN")), ValueError, r"amount: must be a finite number"),
    ("infinity", lambda: collection(amount=Decimal("Infinity")), ValueError, r"amount: must be a finite number"),
    ("no amount", lambda: payout(amount=Decimal(0)), ValueError, r"amount: must be above zero"),
    ("negative", lambda: collection(amount=Decimal(-5)), ValueError, r"amount: must be above zero"),
    ("amount with commas", lambda: payout(amount="1,500"), ValueError, r"amount: not a plain .* as in '1500\.50'"),
    ("no request id", lambda: payout(request_id=""), ValueError, r"request_id: must not be empty"),
    ("blank request id", lambda: payout(request_id=" "), ValueError, r"request_id: must not be empty"),
    ("request id None", lambda: payout(request_id=None), TypeError, r"request_id: expected text, not NoneType"),
    ("request id 17", lambda: collection(request_id=17), TypeError, r"request_id: expected text, not int"),
    ("blank around", lambda: payout(request_id="r-1 "), ValueError, r"request_id: must not begin or end with blanks"),
    ("line end", lambda: payout(request_id="r-1\n"), ValueError, r"request_id: must not begin or end with blanks"),
    ("line end within", lambda: payout(request_id="r\n1"), ValueError, r"request_id: .*control characters"),
    ("NUL", lambda: payout(batch_id="b\x001"), ValueError, r"batch_id: .*control characters"),
    ("half a character", lambda: payout(request_id="r\ud800"), ValueError, r"request_id: "),
    ("long request id", lambda: payout(request_id="r" * 129), ValueError, r"request_id: longer than 128 characters"),
    ("no batch id", lambda: payout(batch_id=""), ValueError, r"batch_id: must not be empty"),
    ("no item", lambda: payout(product_item_id=""), ValueError, r"product_item_id: must not be empty"),
    ("no product", lambda: payout(product_id=" "), ValueError, r"product_id: must not be empty"),
    ("no provider", lambda: collection(provider_item_id=""), ValueError, r"provider_item_id: must not be empty"),
    ("no account", lambda: payout(account_number=""), ValueError, r"account_number: must not be empty"),
    ("message 17", lambda: payout(message=17), TypeError, r"message: expected text, not int"),
    ("endless message", lambda: payout(message="x" * 4097), ValueError, r"message: longer than 4096 characters"),
    ("broken message", lambda: payout(message="\ud800"), ValueError, r"message: .*re-encode it as UTF-8"),
    ("metadata as a dict", lambda: payout(metadata={"a": 1}), TypeError, r"metadata: expected text, not dict"),
    ("currency", lambda: payout(currency="shillings"), ValueError, r"currency: expected .* such as 'UGX'"),
    ("currency 256", lambda: payout(currency=256), TypeError, r"currency: expected text, not int"),
    ("destination as text", lambda: payout(PHONE), TypeError, r"destination: expected MobileMoneyWallet or"),
    ("payer as an account", lambda: collection(payer=BankAccount("1", "2")), TypeError, r"payer: expected MobileMoney"),
    ("beneficiary as text", lambda: payout(beneficiary="Grace"), TypeError, r"beneficiary: expected Beneficiary"),
    ("empty phone", lambda: MobileMoneyWallet(""), ValueError, r"destination\.phone_number: must not be empty"),
    ("phone as a number", lambda: AirtimeLine(256772000018), TypeError, r"phone_number: .*loses its leading zero"),  # type: ignore[arg-type]
    ("short phone", lambda: InternetLine("077200"), ValueError, r"phone_number: not a telephone number; write 7 to 15"),
    ("long phone", lambda: MobileMoneyWallet("1" * 16), ValueError, r"phone_number: not a telephone number"),
    ("name for a phone", lambda: MobileMoneyWallet("Grace"), ValueError, r"phone_number: not a telephone number"),
    ("two phones", lambda: AirtimeLine("0772000018,0772000019"), ValueError, r"phone_number: not a telephone number"),
    ("other digits", lambda: AirtimeLine("\u0660" * 10), ValueError, r"phone_number: not a telephone number"),
    (
        "no account number",
        lambda: BankAccount("", "104"),
        ValueError,
        r"destination\.account_number: must not be empty",
    ),
    ("account 17", lambda: BankAccount(17, "104"), TypeError, r"account_number: expected text, not int"),  # type: ignore[arg-type]
    ("no bank", lambda: BankAccount("17", ""), ValueError, r"destination\.bank_code: must not be empty"),
    ("no reference", lambda: UtilityAccount(""), ValueError, r"destination\.customer_reference: must not be empty"),
    ("area 17", lambda: UtilityAccount("1", area=17), TypeError, r"destination\.area: expected text"),  # type: ignore[arg-type]
    ("no name", lambda: beneficiary(name=""), ValueError, r"beneficiary\.name: must not be empty"),
    ("blank name", lambda: beneficiary(name=" \t"), ValueError, r"beneficiary\.name: must not be empty"),
    ("name 17", lambda: beneficiary(name=17), TypeError, r"beneficiary\.name: expected text, not int"),
    ("empty e-mail", lambda: beneficiary(email_address=""), ValueError, r"email_address: .*leave it out \(None\)"),
    ("e-mail", lambda: beneficiary(email_address="grace"), ValueError, r"email_address: not an e-mail address"),
    ("e-mail 17", lambda: beneficiary(email_address=17), TypeError, r"email_address: expected text, not int"),
    ("empty own phone", lambda: beneficiary(phone_number=""), ValueError, r"beneficiary\.phone_number: must not be"),
    ("empty id", lambda: beneficiary(id=""), ValueError, r"beneficiary\.id: must not be empty"),
]


@pytest.mark.parametrize(("make", "kind", "words"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_a_mistake(make: Callable[[], object], kind: type[Exception], words: str) -> None:
    """The message names the field and the remedy."""
    with pytest.raises(kind, match=words):
        make()


@pytest.mark.parametrize("area", [None, "", "  "])
@pytest.mark.parametrize(
    ("product_id", "item"), [("NWSCWATERUG", "X_X"), (None, "NWSCWATERUG_NWSCWATERUG"), (None, "nwscwaterug_1")]
)
def test_national_water_without_an_area(product_id: str | None, item: str, area: str | None) -> None:
    """The specification requires one; blanks are none."""
    with pytest.raises(ValueError, match=r"^destination\.area: required for national water; pass .*area='Kampala'"):
        payout(UtilityAccount("20551177", area=area), product_id=product_id, product_item_id=item)


def test_electricity_without_an_area() -> None:
    """It is optional there."""
    destination = UtilityAccount("20551177")
    assert destination == payout(destination, product_id="UMEMEUG", product_item_id="UMEMEUG_UMEMEUG").destination


@pytest.mark.parametrize("number", ["+256772000018", "0772 000 018", "(0772) 000-018", "256.772.000.018", "1234567"])
def test_a_telephone_number_as_people_write_it(number: str) -> None:
    """It is kept as given."""
    assert number == MobileMoneyWallet(number).phone_number


def test_the_message_of_a_mistake() -> None:
    """It shows nothing of the person it is about."""
    for make in (lambda: MobileMoneyWallet("0772000018x"), lambda: beneficiary(email_address="grace.example.org")):
        with pytest.raises(ValueError, match="not a") as caught:
            make()
        assert not {"0772000018x", "grace.example.org"} & set(str(caught.value).split())


def test_an_order_is_a_value() -> None:
    """It cannot be changed, equals its like, can be a key, and survives pickling."""
    order = payout()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        order.amount = Decimal(1)  # type: ignore[misc]
    assert payout() == order
    assert 1 == len({payout(), order, pickle.loads(pickle.dumps(order))})  # noqa: S301 - our own bytes
    assert payout(AirtimeLine("0772000018")) != payout(MobileMoneyWallet("0772000018"))


PERSONAL = {
    "name": "Grace Nalubega Akello",
    "phone": "+256772000017",
    "e-mail": "grace.akello@example.org",
    "account": "00417730011982",
    "reference": "20551177",
    "message": "For my dear daughter",
    "metadata": "employee 4711 Akello",
    "password": "secret-walrus-password",
    "key": "key-4711-zebra",
}
PERSON = beneficiary(name=PERSONAL["name"], phone_number=PERSONAL["phone"], email_address=PERSONAL["e-mail"])
FREE = {"message": PERSONAL["message"], "metadata": PERSONAL["metadata"], "account_number": PERSONAL["account"]}
TOLD = f"sent to {PERSONAL['phone']}, {PERSONAL['e-mail']}"
SHOWN: list[object] = [
    PERSON,
    MobileMoneyWallet(PERSONAL["phone"]),
    BankAccount(PERSONAL["account"], "104"),
    AirtimeLine(PERSONAL["phone"]),
    InternetLine(PERSONAL["phone"]),
    UtilityAccount(PERSONAL["reference"]),
    payout(MobileMoneyWallet(PERSONAL["phone"]), beneficiary=PERSON, **FREE),
    payout(BankAccount(PERSONAL["account"], "104"), beneficiary=PERSON, **FREE),
    payout(UtilityAccount(PERSONAL["reference"]), beneficiary=PERSON, **FREE),
    collection(payer=MobileMoneyWallet(PERSONAL["phone"]), beneficiary=PERSON, **FREE),
    Credentials(app_key=PERSONAL["key"], app_password=PERSONAL["password"], user_id=PERSONAL["reference"]),
    Acceptance(request_id="r-1", transaction_id="t-1", message=TOLD, extra=PERSONAL),
    Account(
        account_number=PERSONAL["account"],
        balance=Decimal(1),
        name=PERSONAL["name"],
        description=PERSONAL["message"],
        extra=PERSONAL,
    ),
    Card(
        name=PERSONAL["name"],
        card_holder=PERSONAL["name"],
        transactions=[PERSONAL],
        statement=PERSONAL,
        extra=PERSONAL,
    ),
    Validation(ok=True, message=f"account of {PERSONAL['name']}", data=PERSONAL, extra=PERSONAL),
    TransactionProduct(id="P", name=PERSONAL["name"], extra=PERSONAL),
    transaction := Transaction(
        transaction_id="t-1",
        account_number=PERSONAL["account"],
        name=PERSONAL["name"],
        status_message=TOLD,
        initiator=PERSONAL["name"],
        approver=PERSONAL["name"],
        attachments=PERSONAL,
        beneficiary=TransactionBeneficiary(
            name=PERSONAL["name"],
            customer_reference=PERSONAL["reference"],
            phone=PERSONAL["phone"],
            email=PERSONAL["e-mail"],
            memo=PERSONAL["message"],
            extra=PERSONAL,
        ),
        extra=PERSONAL,
    ),
    Page(collection=(transaction,), extra=PERSONAL),
    Settlement(status=TransactionStatus.FAILED, evidence=transaction),
]


@pytest.mark.parametrize("value", SHOWN, ids=lambda value: type(value).__name__)
def test_a_value_in_a_log(value: object) -> None:
    """Neither a person nor a secret is in its repr or its text."""
    shown = f"{value!r} {value}"
    assert [] == [text for text in PERSONAL.values() if text in shown]


def test_an_order_in_a_log() -> None:
    """What is no secret is there: a row one knows is recognised."""
    shown = repr(payout(MobileMoneyWallet(PERSONAL["phone"])))
    expected = ("request_id='r-1'", "amount=Decimal('150000.50')", "MobileMoneyWallet(phone_number='***017')")
    assert [] == [piece for piece in expected if piece not in shown]


KEYS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda text: text.strip() != "")
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.dates(),
    min_size=1,
    max_size=4,
)


def plain(part: object) -> tuple[str, object]:
    """What two parts must share to be the same: a number's value, a text without blanks around it, a day."""
    match part:
        case str():
            return "text", unicodedata.normalize("NFC", part).strip()
        case int() | Decimal():
            return "number", Decimal(part)
        case _:
            return "day", part


@given(KEYS, KEYS)
@example(["ab", "c"], ["a", "bc"])
@example(["1"], [1])
@example(["s1:a"], ["s1", "a"])
@example(["2026-11-01"], [date(2026, 11, 1)])
@example([Decimal("1234567890123456789012345678901.5")], [Decimal("1234567890123456789012345678901.6")])
@example([10], [1, 0])
@example([Decimal("1.50")], [Decimal("1.5")])
@example([100], [Decimal("1E+2")])
@example([0], [Decimal("-0.00")])
def test_two_business_keys(one: list[Any], other: list[Any]) -> None:
    """Their ids are equal exactly when the keys are."""
    same = [plain(part) for part in one] == [plain(part) for part in other]
    assert same == (request_id_for(*one) == request_id_for(*other))


@given(KEYS, st.integers(min_value=1, max_value=9))
@example([Decimal("1234567.891")], 3)
def test_a_business_key_on_another_machine(key: list[Any], precision: int) -> None:
    """The decimal context of the moment changes nothing, and the id is a UUID an order takes."""
    request_id = request_id_for(*key)
    with localcontext() as context:
        context.prec = precision
        assert request_id == request_id_for(*key)
    assert request_id == str(uuid.UUID(request_id)) == payout(request_id=request_id).request_id


@pytest.mark.parametrize(
    ("key", "request_id"),
    [
        (("payroll", "2026-11", 17), "7afee095-dbc9-54df-a9bf-1bf6e10eeef6"),
        (("rent", Decimal("1500.50"), date(2026, 11, 1)), "febfd6a4-d7e3-57e9-b235-df9de7cbb972"),
        (("Zoë",), "d4bb3ec2-e710-5320-8fcd-1ea9339452c1"),
    ],
)
def test_a_business_key_in_another_year(key: tuple[Any, ...], request_id: str) -> None:
    """The id is pinned here: a release that changes it would pay everybody twice."""
    assert request_id == request_id_for(*key)


def test_two_ways_to_write_a_letter() -> None:
    """A composed and a decomposed letter are one name."""
    assert request_id_for("Zo\u00eb") == request_id_for("Zoe\u0308") == request_id_for(" Zo\u00eb ")


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ((), ValueError),
        (("",), ValueError),
        (("a", " "), ValueError),
        ((0.1,), TypeError),
        ((True,), TypeError),
        ((None,), TypeError),
        ((b"a",), TypeError),
        ((Decimal("NaN"),), TypeError),
        ((datetime(2026, 11, 1, tzinfo=UTC),), TypeError),
        ((("a", "b"),), TypeError),
    ],
)
def test_a_business_key_that_is_not_stable(key: tuple[Any, ...], kind: type[Exception]) -> None:
    """It is refused, with the name of the argument."""
    with pytest.raises(kind, match=r"^business_key: "):
        request_id_for(*key)


DISGUISES = [
    "/api/transactions/payouts/mobilemoney",
    "/api/transactions/collections/mobilemoney",
    "/transactions/payouts",
    "/api/Transactions/PAYOUTS/mobilemoney",
    "//api//transactions//payouts//airtime",
    "/api/./transactions/./payouts/airtime",
    "/api/products/../transactions/payouts/airtime",
    "/api/transactions/x/../payouts/airtime",
    "/api/transactions%2Fpayouts/airtime",
    "/api/transactions/p%61youts/airtime",
    "/api/transactions/p%2561youts/airtime",
    "/api/transactions/p%252525252561youts/airtime",
    "/api/products/%2e%2e/transactions/payouts/airtime",
    "/api/%2e/transactions/%2E/payouts/airtime",
    "/api\\transactions\\payouts\\airtime",
    "/api/transactions%5Cpayouts/airtime",
    "/api/transactions;v=1/payouts;w=2/airtime",
    "/api/transactions%3Bv=1/payouts/airtime",
    "/api/transactions./payouts/airtime",
    "/api/transactions%20/payouts/airtime",
    "/api/transactions /payouts/airtime",
    "/api/transactions/\uff50ayouts/airtime",
    "/api/tran\u017factions/payouts/airtime",
]


@pytest.mark.parametrize("path", DISGUISES)
@pytest.mark.parametrize("method", ["POST", "GET", "patch"])
def test_a_payout_in_disguise(method: str, path: str) -> None:
    """Orders go through the methods that are safe."""
    with pytest.raises(ValueError, match=r"^path: payouts and collections go through payouts\.send"):
        raw(method, path, query=None, body={})


@pytest.mark.slow(covered=True)
@given(
    st.sampled_from(["transactions/payouts/airtime", "transactions/collections/mobilemoney"]),
    st.randoms(use_true_random=False),
)
def test_any_disguise(path: str, chance: Any) -> None:
    """However the letters are written."""

    def disguised(letter: str) -> str:
        ways = [letter, letter.upper(), f"%{ord(letter):02x}", f"%25{ord(letter):02X}", f"%2525{ord(letter):02x}"]
        return str(chance.choice([*ways, "//", "/./", "\\", "%2f", "%5c"] if letter == "/" else ways))

    with pytest.raises(ValueError, match=r"^path: payouts and collections"):
        raw("POST", "/" + "".join(map(disguised, path)), query=None, body=None)


@pytest.mark.parametrize("path", ["/api/transactions", "/api/transactions/t-1", "/api/payouts", "/api/collections/x"])
def test_other_paths(path: str) -> None:
    """They are not ours to refuse."""
    assert path == raw("GET", path, query=None, body=None).path


@pytest.mark.parametrize("path", ["", "api/any", "/api/any?x=1", "/api/any#x", "https://other.test/api"])
def test_a_path_that_is_none(path: str) -> None:
    """The message says how to write it."""
    with pytest.raises(ValueError, match=r"^path: must start with '/' and hold no query; pass query="):
        raw("GET", path, query=None, body=None)


@pytest.mark.parametrize("method", ["", "TRACE", "CONNECT", "HEAD", "GET /x"])
def test_a_method_that_is_none(method: str) -> None:
    """Only five are known."""
    with pytest.raises(ValueError, match=r"^method: expected GET"):
        raw(method, "/api/any", query=None, body=None)


async def test_the_path_that_a_dialect_gave_a_payout_is_refused_too(wire: Wire, opened: Open) -> None:
    """An internet payout on a path of its own is a payout."""
    payments = await opened(dialect=Dialect(internet_path="/bundles/buy"))
    with pytest.raises(ValueError, match=r"^path: payouts"):
        await payments.raw("POST", "/api/Bundles//buy", body={"requestId": "r-1"})
    assert [] == wire.requests


async def test_a_payout_in_disguise_through_the_session(wire: Wire, opened: Open) -> None:
    """Nothing is sent, not even a login."""
    payments = await opened()
    with pytest.raises(ValueError, match=r"^path: payouts"):
        await payments.raw("POST", "/api/Transactions//payouts/mobilemoney", body={"requestId": "r-1"})
    assert [] == wire.requests


def test_a_beneficiary_with_only_a_name() -> None:
    """Nothing else must be known."""
    assert (None, None, None) == attrs.astuple(Beneficiary(name="Grace"))[1:]


ODD: st.SearchStrategy[Any] = st.one_of(
    st.text("ab 1-@.+\n\t\ud800\u00e9\u200b", max_size=6),
    st.sampled_from(
        ["0772000018", "a@b", "-", "x" * 128, "x" * 129, "x" * 4097, "", " ", None, 0, False, 17, b"a", ["a"]]
    ),
)
PLAIN = st.sampled_from(["r-1", "0772000018", "grace@example.org", "Grace Akello"])


@given(st.dictionaries(st.sampled_from([f.name for f in attrs.fields(_orders.PayoutOrder)]), ODD | PLAIN, max_size=4))
@example({"message": 0})
@example({"message": [], "metadata": ["a"]})
@example({"request_id": "a\nb"})
@example({"batch_id": ""})
@example({"destination": UtilityAccount("1"), "product_item_id": "NWSC"})
def test_a_look_at_the_whole_of_an_order_finds_what_a_look_at_each_field_finds(changes: dict[str, Any]) -> None:
    """It is made, or refused in the same words."""
    assert said(lambda: payout(**changes)) == thoroughly(lambda: payout(**changes))
    theirs = {
        name: value for name, value in changes.items() if name not in ("destination", "product_item_id", "product_id")
    }
    assert said(lambda: collection(**theirs)) == thoroughly(lambda: collection(**theirs))


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("name", "phone_number", "email_address", "id"), ODD | PLAIN)))
@example({"name": "Grace\nAkello"})
@example({"phone_number": "", "email_address": ""})
@example({"phone_number": "0772000018\na@b", "email_address": None})
def test_a_look_at_the_whole_of_a_person_finds_what_a_look_at_each_field_finds(changes: dict[str, Any]) -> None:
    """They are made, or refused in the same words."""
    assert said(lambda: beneficiary(**changes)) == thoroughly(lambda: beneficiary(**changes))


def said(make: Callable[[], object]) -> object:
    """What is made, or the words of the refusal."""
    try:
        return make()
    except (TypeError, ValueError) as error:
        return type(error), str(error)


def thoroughly(make: Callable[[], object]) -> object:
    """The same, where nothing is taken for the usual case."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_orders, "_is_plain", lambda *_: False)
        patch.setattr(_orders, "_is_plain_person", lambda _: False)
        return said(make)
