"""Orders as they are kept on disk: nothing is lost on the way there and back, and what leaves is what was kept."""

from datetime import timedelta, timezone
from decimal import Decimal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.orders import collection, payout

from payments_async import AirtimeLine, BankAccount, Beneficiary, Dialect, InternetLine, MobileMoneyWallet, PayoutOrder
from payments_async._wire.bodies import currency_of, is_sent_as_written, read_order, write_order
from payments_async._wire.endpoints import send_order, sends_written
from payments_async._wire.orders import CollectionOrder, Order, UtilityAccount

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
IDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Z"]), min_size=1, max_size=36)
PHONES = st.from_regex(r"\+?[0-9]{7,15}", fullmatch=True)
AMOUNTS = st.decimals(min_value=Decimal("0.01"), max_value=Decimal(10**12), places=2)
PEOPLE = st.builds(
    Beneficiary,
    name=TEXTS.filter(str.strip),
    phone_number=st.none() | PHONES,
    email_address=st.none() | st.just("grace@example.org"),
    id=st.none() | IDS,
)
SHARED = {
    "request_id": IDS,
    "amount": AMOUNTS,
    "beneficiary": PEOPLE,
    "batch_id": st.none() | IDS,
    "account_number": st.none() | IDS,
    "message": st.none() | TEXTS,
    "metadata": st.none() | TEXTS,
    "currency": st.none() | st.sampled_from(["UGX", "kes"]),
}
PLACES = st.one_of(
    *(st.builds(kind, PHONES) for kind in (MobileMoneyWallet, AirtimeLine, InternetLine)),
    st.builds(BankAccount, IDS, IDS),
    st.builds(UtilityAccount, IDS, st.none() | IDS),
)
ITEMS = IDS.filter(lambda item: "NWSC" not in item.upper())  # these need an area
PAYOUTS = st.builds(
    PayoutOrder, destination=PLACES, product_item_id=ITEMS, product_id=st.none() | ITEMS, **SHARED
)  # fmt: skip
COLLECTIONS = st.builds(
    CollectionOrder, payer=st.builds(MobileMoneyWallet, PHONES), provider_item_id=IDS, **SHARED
)  # fmt: skip
ORDERS = PAYOUTS | COLLECTIONS
DIALECTS = {
    "standard": Dialect(),
    "other paths": Dialect(api_prefix="", internet_path="/transactions/payouts/mobilemoney"),
    "other numbers": Dialect(phone_format="digits"),
    "other banks": Dialect(bank_code_keys=("bankCode",)),
    "nulls": Dialect(empty_members="null"),
}

ANOTHER = {  # of every field of a dialect, a value that is not its own
    "authorization_scheme": "Bearer", "include_refresh_token": False, "refresh_path": "/refresh", "token_lifetime": 1.0,
    "api_prefix": "/v2", "internet_path": "/internet", "bank_code_keys": ("bank",), "date_keys": ("from", "to"),
    "product_items_path": "/{product_id}", "product_paging": False, "validation_authorized": True, "cards_path": "/c/",
    "card_patch_path": "/c", "card_body_on_get": False, "card_enable_member": "on", "card_pin_member": "PIN",
    "timezone": timezone(timedelta(hours=3)), "phone_format": "digits", "phone_country_code": "254",
    "empty_members": "null", "find_by_request_path": "/{request_id}", "correlation_header": "X-Id",
    "expect_continue": True, "turned_away_unread": frozenset({429}), "ipn_response_code": "1",
}  # fmt: skip


@pytest.mark.slow(covered=True)
@given(ORDERS)
def test_an_order_comes_back_as_it_was_written(order: Order) -> None:
    """Every member, every digit, every character; its currency can be asked for alone."""
    written = write_order(order)
    assert order == read_order(order.request_id, order.amount, written)
    assert order.currency == currency_of(written)


@pytest.mark.slow(covered=True)
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(order=ORDERS)
def test_what_is_sent_of_a_written_order_is_what_the_order_itself_would_send(dialect: Dialect, order: Order) -> None:
    """The same path and the same bytes, whatever the dialect."""
    expected = send_order(order, dialect, sent_before=True)
    call = sends_written(dialect)(
        order.request_id, order.amount, write_order(order), sent_before=True, private=expected.private
    )
    assert (expected.method, expected.path, expected.body) == (call.method, call.path, call.body)
    assert (expected.request_id, expected.sent_before, expected.once) == (call.request_id, call.sent_before, call.once)
    assert expected.private() == call.private()


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Dialect)])
def test_a_field_of_the_dialect_that_changes_a_body_has_orders_written_anew(name: str) -> None:
    """Whoever adds a field is asked here whether it does."""
    dialect = Dialect(**{name: ANOTHER[name]})
    for order in (payout(), payout(BankAccount("12", "104")), payout(message=None)):
        expected = send_order(order, dialect).body
        assert (expected == send_order(order, Dialect()).body) or not is_sent_as_written(dialect)
    order = payout(message=None)
    call = sends_written(dialect)(order.request_id, order.amount, write_order(order), sent_before=False, private=tuple)
    assert expected == call.body


@pytest.mark.slow(covered=True)
@given(ORDERS, ORDERS)
def test_two_orders_are_written_alike_only_when_they_are_alike(one: Order, other: Order) -> None:
    """But for the request id and the amount, which are kept beside what is written."""
    other = attrs.evolve(other, request_id=one.request_id, amount=one.amount)
    assert (one == other) == (write_order(one) == write_order(other))


@pytest.mark.parametrize("order", [payout(), collection()], ids=["payout", "collection"])
def test_what_is_kept_can_be_read_by_eye(order: Order) -> None:
    """It is JSON, and holds neither the request id nor the amount, which have columns of their own."""
    written = write_order(order)
    assert order.beneficiary.name.encode() in written
    assert order.request_id.encode() not in written
    assert str(order.amount).encode() not in written


BAD = [
    b"", b"[]", b"{}", b"[1,2,3]", b"\xff", b'["mobile_money",null,{}]', b'["mobile_money",null,[]]',
    b'["barter",null,{}]',
]  # fmt: skip


@pytest.mark.parametrize("written", [*BAD, pytest.param(b'["mobile_money",null,' + b'{"a":' * 4000, id="nested")])
def test_bytes_that_are_no_order_are_an_error(written: bytes) -> None:
    """Not an order with something missing; and what belongs to a kind that nobody knows is not sent."""
    with pytest.raises(ValueError, match="order of"):
        read_order("r-1", Decimal(1), written)
    if b"barter" in written or b"mobile" not in written:
        with pytest.raises(ValueError, match="order of"):
            sends_written(Dialect())("r-1", Decimal(1), written, sent_before=False, private=tuple)
