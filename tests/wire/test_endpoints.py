"""Every row of the endpoint table: the exact bytes that leave, and a documented answer that is read."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeVar

import attrs
import pytest
from session.wires import Request, Wire, raw_reply
from wire.conftest import Open
from wire.orders import PHONE, beneficiary, collection, payout

from payments_async import (
    Acceptance,
    Account,
    AirtimeLine,
    BankAccount,
    Card,
    Dialect,
    InternetLine,
    MobileMoneyWallet,
    Page,
    PaymentsSession,
    PayoutOrder,
    Product,
    ProductItem,
    Transaction,
    TransactionStatus,
    UtilityAccount,
    Validation,
)
from payments_async._session.session import executor_of
from payments_async._wire.models import TransactionBeneficiary, TransactionProduct

T = TypeVar("T")

TRANSACTION_ID = "41cc8f29-f3f4-45aa-148f-08dc315567d8"
LOGGED_IN = b'{"Token": "token-1", "refreshToken": "refresh-1", "success": true, "message": "ok"}'
ACCEPTED = (
    b'{"code": 0, "status": "success", "message": "Transaction received, a notification follows", "data": {'
    b'"requestId": "%s", "batchId": "b-1", "transactionId": "41cc8f29-f3f4-45aa-148f-08dc315567d8",'
    b' "status": "PROCESSING", "message": "Processing", "createdOn": "2/27/2024 2:06:41 PM"}}'
)
RECORD = b"""{
    "transactionId": "41cc8f29-f3f4-45aa-148f-08dc315567d8", "requestId": "r-1", "batchId": "b-1",
    "accountNumber": "6", "name": null, "currency": "UGX", "amount": -150000.50, "transactionType": "PAYOUT",
    "product": {"id": "MTNMOBILEMONEYPAYOUTUG", "name": "Mobile money payout"},
    "beneficiary": {"id": "17", "name": "Grace Akello", "data": {"CustomerReference": "+256772000018",
        "CustomerPhone": "+256772000017", "CustomerEmail": "grace@example.org", "Memo": "November salary"}}}"""
TRANSACTION = Transaction(
    transaction_id=TRANSACTION_ID,
    request_id="r-1",
    batch_id="b-1",
    account_number="6",
    currency="UGX",
    amount=Decimal("-150000.50"),
    transaction_type="PAYOUT",
    product=TransactionProduct(id="MTNMOBILEMONEYPAYOUTUG", name="Mobile money payout"),
    beneficiary=TransactionBeneficiary(
        id="17",
        name="Grace Akello",
        customer_reference="+256772000018",
        phone="+256772000017",
        email="grace@example.org",
        memo="November salary",
    ),
)
PRODUCT = b"""{"productId": "NWSCWATERUG", "name": "National water", "imageUri": "https://images.test/water.png",
    "categoryId": "UTILITIES", "shortDescription": "Water", "longDescription": null, "countryCode": "256",
    "currencyCode": "UGX", "isActive": true, "isExternal": false, "sortOrder": 4, "productRegex": null}"""
WATER = Product(
    product_id="NWSCWATERUG",
    name="National water",
    image_uri="https://images.test/water.png",
    category_id="UTILITIES",
    short_description="Water",
    country_code="256",
    currency_code="UGX",
    is_active=True,
    is_external=False,
    sort_order=4,
)
CARD = b"""{"success": 1, "data": {"card_id": 17, "masked_card_number": "4000 **** **** 0001", "name": "Travel",
    "currency": "UGX", "balance": "150000.50", "status": "active", "card_holder": "Grace Akello",
    "transactions": [{"amount": 1.10}], "statement": null}}"""
TRAVEL_CARD = Card(
    card_id="17",
    masked_card_number="4000 **** **** 0001",
    name="Travel",
    currency="UGX",
    balance=Decimal("150000.50"),
    status="active",
    card_holder="Grace Akello",
    transactions=[{"amount": Decimal("1.10")}],
)


async def exchange(
    wire: Wire, opened: Open, answer: bytes, act: Callable[[PaymentsSession], Awaitable[T]], **dialect: Any
) -> tuple[T, Request]:
    """What a call gives for an answer, and what it sent."""

    async def tell(request: Request) -> bytes | None:
        return raw_reply(LOGGED_IN if request.path.endswith("/auth/login") else answer)

    wire.answer = wire.login = tell
    payments = await opened(dialect=Dialect(**dialect))
    result = await act(payments)
    return result, wire.orders[-1]


def one_of_a_list(record: T, *, rows: int, number: int) -> Page[T]:
    """A page of a list of so many rows, five on a page, of which it shows one."""
    pages = -(-rows // 5)
    return Page(
        collection=(record,),
        total_count=rows,
        page_size=5,
        current_page=number,
        total_pages=pages,
        previous_page=number > 1,
        next_page=number < pages,
    )


async def written(wire: Wire, opened: Open, order: PayoutOrder, **dialect: Any) -> bytes:
    """The body of a payout."""
    answer = ACCEPTED % order.request_id.encode()
    _, request = await exchange(wire, opened, answer, lambda payments: payments.payouts.send(order), **dialect)
    return request.body


def accepted(request_id: str) -> Acceptance:
    """What ``ACCEPTED`` is read as."""
    return Acceptance(
        request_id=request_id,
        transaction_id=TRANSACTION_ID,
        batch_id="b-1",
        status=TransactionStatus.PROCESSING,
        message="Processing",
        created_on=datetime(2024, 2, 27, 14, 6, 41, tzinfo=UTC),
    )


async def test_a_login(wire: Wire, opened: Open) -> None:
    """It carries the credentials, no Authorization, and the member whose name the service misspells."""
    payments = await opened()
    await payments.log_in()
    request = wire.requests[0]
    expected = (
        b'{"appKey":"key-4711-zebra","appPassword":"secret-walrus-password",'
        b'"userId":"user-0815-quagga","includeRefereshToken":true}'
    )
    assert ("POST", "/api/auth/login", expected) == (request.method, request.path, request.body)
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    ("order", "path", "body"),
    [
        pytest.param(
            payout(metadata="employee 17"),
            "/api/transactions/payouts/mobilemoney",
            b'{"requestId":"r-1","amount":150000.50,"batchId":"b-1","type":"DEBIT","message":"November salary",'
            b'"metadata":"employee 17","product":{"productItemId":"MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"},'
            b'"beneficiary":{"name":"Grace Akello","emailAddress":"grace@example.org","phoneNumber":"+256772000017",'
            b'"data":{"phoneNumber":"+256772000018"}}}',
            id="mobile money",
        ),
        pytest.param(
            payout(BankAccount("0012345678", "104"), product_item_id="BANKUG_BANKUG"),
            "/api/transactions/payouts/banktransfers",
            b'{"requestId":"r-1","amount":150000.50,"batchId":"b-1","type":"DEBIT","message":"November salary",'
            b'"product":{"productItemId":"BANKUG_BANKUG"},"beneficiary":{"name":"Grace Akello",'
            b'"emailAddress":"grace@example.org","phoneNumber":"+256772000017",'
            b'"data":{"bankAccount":"0012345678","bankName":"104","bankCode":"104"}}}',
            id="bank transfer",
        ),
        pytest.param(
            payout(AirtimeLine("0772000018"), product_id="MTNAIRTIMEUG", product_item_id="MTNAIRTIMEUG_MTNAIRTIMEUG"),
            "/api/transactions/payouts/airtime",
            b'{"requestId":"r-1","amount":150000.50,"batchId":"b-1","type":"DEBIT","message":"November salary",'
            b'"product":{"id":"MTNAIRTIMEUG","productItemId":"MTNAIRTIMEUG_MTNAIRTIMEUG"},"beneficiary":{'
            b'"name":"Grace Akello","emailAddress":"grace@example.org","phoneNumber":"+256772000017",'
            b'"data":{"phoneNumber":"0772000018"}}}',
            id="airtime",
        ),
        pytest.param(
            payout(
                InternetLine("256772000018"),
                product_id="AIRTELDATABUNDLESUG",
                product_item_id="AIRTELDATABUNDLESUG_24510766",
                amount=Decimal("2000.00"),
            ),
            "/api/transactions/payouts/internet",
            b'{"requestId":"r-1","amount":2000.00,"batchId":"b-1","type":"DEBIT","message":"November salary",'
            b'"product":{"id":"AIRTELDATABUNDLESUG","productItemId":"AIRTELDATABUNDLESUG_24510766"},"beneficiary":{'
            b'"name":"Grace Akello","emailAddress":"grace@example.org","phoneNumber":"+256772000017",'
            b'"data":{"phoneNumber":"256772000018"}}}',
            id="mobile internet",
        ),
        pytest.param(
            payout(
                UtilityAccount("20551177", area="Kampala"),
                product_id="NWSCWATERUG",
                product_item_id="NWSCWATERUG_NWSCWATERUG",
                account_number="6",
            ),
            "/api/transactions/payouts/utilities",
            b'{"requestId":"r-1","amount":150000.50,"batchId":"b-1","accountNumber":"6","type":"DEBIT",'
            b'"message":"November salary","product":{"id":"NWSCWATERUG","productItemId":"NWSCWATERUG_NWSCWATERUG"},'
            b'"beneficiary":{"name":"Grace Akello","emailAddress":"grace@example.org","phoneNumber":"+256772000017",'
            b'"data":{"customerReference":"20551177","area":"Kampala"}}}',
            id="bill",
        ),
    ],
)
async def test_a_payout(wire: Wire, opened: Open, order: PayoutOrder, path: str, body: bytes) -> None:
    """Its destination selects the path; the body is the documented one, to the byte; the answer is an acceptance."""
    acceptance, request = await exchange(wire, opened, ACCEPTED % b"r-1", lambda payments: payments.payouts.send(order))
    assert ("POST", path, body) == (request.method, request.path, request.body)
    assert ("Token token-1", "application/json") == (request.headers["authorization"], request.headers["content-type"])
    assert accepted("r-1") == acceptance


async def test_a_collection(wire: Wire, opened: Open) -> None:
    """It is a CREDIT with a provider; the sample of its answer lacks the status at the top."""
    answer = (ACCEPTED % b"r-2").replace(b'"status": "success", ', b"")
    acceptance, request = await exchange(
        wire, opened, answer, lambda payments: payments.collections.request(collection(metadata="term 3"))
    )
    expected = (
        b'{"requestId":"r-2","amount":2500,"batchId":"b-1","type":"CREDIT","message":"School fees",'
        b'"metadata":"term 3","provider":{"providerItemId":"AIRTELMONEYUG_AIRTELMONEYUG"},"beneficiary":{"id":"p-17",'
        b'"name":"Grace Akello","emailAddress":"grace@example.org","phoneNumber":"+256772000017",'
        b'"data":{"phoneNumber":"+256772000018"}}}'
    )
    assert ("POST", "/api/transactions/collections/mobilemoney", expected) == (
        request.method,
        request.path,
        request.body,
    )
    assert "Token token-1" == request.headers["authorization"]
    assert accepted("r-2") == acceptance


async def test_a_list_of_transactions(wire: Wire, opened: Open) -> None:
    """Paging, both days and the status are in the query; the page tells what the service told."""
    answer = b"""{"code": 0, "status": "success", "message": "ok", "data": {"collection": [%s], "totalCount": 53,
        "pageSize": 5, "currentPage": 2, "totalPages": 11, "previousPage": true, "nextPage": true}}"""
    page, request = await exchange(
        wire,
        opened,
        answer % RECORD,
        lambda payments: payments.transactions.page(
            number=2,
            size=5,
            since=date(2026, 11, 1),
            until=date(2026, 11, 30),
            status=TransactionStatus.SUCCESSFUL,
        ),
    )
    expected = (
        "/api/transactions?pageNumber=2&pageSize=5&earlierDate=2026-11-01&laterDate=2026-11-30"
        "&transactionStatus=SUCCESSFULL"
    )
    assert ("GET", expected, b"") == (request.method, request.path, request.body)
    assert "Token token-1" == request.headers["authorization"]
    assert one_of_a_list(TRANSACTION, rows=53, number=2) == page


async def test_a_list_without_filters(wire: Wire, opened: Open) -> None:
    """What is not asked for is not sent."""
    answer = b'{"code": 0, "message": "ok", "data": {"collection": []}}'
    page, request = await exchange(wire, opened, answer, lambda payments: payments.transactions.page())
    assert "/api/transactions?pageNumber=1&pageSize=50" == request.path
    assert Page[Transaction](collection=()) == page


async def test_one_transaction(wire: Wire, opened: Open) -> None:
    """Its id is one part of the path, whatever is in it."""
    answer = b'{"code": 0, "message": "ok", "data": %s}' % RECORD
    transaction, request = await exchange(wire, opened, answer, lambda payments: payments.transactions.get("a/b ?#%é"))
    assert ("GET", "/api/transactions/a%2Fb%20%3F%23%25%C3%A9", b"") == (request.method, request.path, request.body)
    assert "Token token-1" == request.headers["authorization"]
    assert TRANSACTION == transaction


async def test_one_product(wire: Wire, opened: Open) -> None:
    """Its id is in the path."""
    answer = b'{"code": 0, "message": "ok", "data": %s}' % PRODUCT
    product, request = await exchange(wire, opened, answer, lambda payments: payments.products.get("NWSCWATERUG"))
    assert ("GET", "/api/products/NWSCWATERUG", b"") == (request.method, request.path, request.body)
    assert "Token token-1" == request.headers["authorization"]
    assert WATER == product


async def test_a_list_of_products(wire: Wire, opened: Open) -> None:
    """It is paged as transactions are."""
    answer = b"""{"code": 0, "message": "ok", "data": {"collection": [%s], "totalCount": 1, "pageSize": 5,
        "currentPage": 1, "totalPages": 1, "previousPage": false, "nextPage": false}}"""
    page, request = await exchange(
        wire, opened, answer % PRODUCT, lambda payments: payments.products.page(number=1, size=5)
    )
    assert ("GET", "/api/products?pageNumber=1&pageSize=5", b"") == (request.method, request.path, request.body)
    assert one_of_a_list(WATER, rows=1, number=1) == page


async def test_the_items_of_a_product(wire: Wire, opened: Open) -> None:
    """The product's id is in the path, and the price is exact."""
    answer = b"""{"code": 0, "message": "ok", "data": {"collection": [{"productItemId": "AIRTELDATABUNDLESUG_24510766",
        "name": "Weekly", "category": "DATA", "amount": 2000.00, "isAmountFixed": true, "validityPeriod": "Weekly",
        "type": "DATA", "productId": "AIRTELDATABUNDLESUG", "shortDescription": null, "longDescription": null,
        "productRegex": null, "isActive": true, "productItemCode": "24510766", "sortOrder": 0}], "totalCount": 1,
        "pageSize": 50, "currentPage": 1, "totalPages": 1, "previousPage": false, "nextPage": false}}"""

    async def all_items(payments: PaymentsSession) -> list[ProductItem]:
        return [item async for item in payments.products.items("AIRTELDATABUNDLESUG")]

    items, request = await exchange(wire, opened, answer, all_items)
    expected = "/api/products/AIRTELDATABUNDLESUG/items?pageNumber=1&pageSize=50"
    assert ("GET", expected, b"") == (request.method, request.path, request.body)
    assert [
        ProductItem(
            product_item_id="AIRTELDATABUNDLESUG_24510766",
            name="Weekly",
            category="DATA",
            amount=Decimal("2000.00"),
            is_amount_fixed=True,
            validity_period="Weekly",
            type="DATA",
            product_id="AIRTELDATABUNDLESUG",
            is_active=True,
            product_item_code="24510766",
            sort_order=0,
        )
    ] == items
    assert "2000.00" == str(items[0].amount)


async def test_a_validation(wire: Wire, opened: Open) -> None:
    """It goes without Authorization, and needs no login."""
    validation, request = await exchange(
        wire,
        opened,
        b'{"success": 1}',
        lambda payments: payments.products.validate("NWSCWATERUG_NWSCWATERUG", "20551177", Decimal("1500.10")),
    )
    expected = b'{"productItemId":"NWSCWATERUG_NWSCWATERUG","customerReference":"20551177","amount":1500.10}'
    assert ("POST", "/api/products/validation", expected) == (request.method, request.path, request.body)
    assert ("application/json", 0) == (request.headers["content-type"], wire.logins)
    assert "authorization" not in request.headers
    assert Validation(ok=True) == validation


async def test_the_account(wire: Wire, opened: Open) -> None:
    """Its number is text although the service writes a number; its balance keeps its scale."""
    answer = b"""{"code": 0, "message": "ok", "data": {"accountNumber": 6, "name": "Invented Ltd",
        "description": "Operations", "balance": 1250000.70, "currency": "UGX"}}"""
    account, request = await exchange(wire, opened, answer, lambda payments: payments.accounts.get())
    assert ("GET", "/api/accounts", b"") == (request.method, request.path, request.body)
    assert "Token token-1" == request.headers["authorization"]
    assert (
        Account(
            account_number="6",
            name="Invented Ltd",
            description="Operations",
            balance=Decimal("1250000.70"),
            currency="UGX",
        )
        == account
    )
    assert "1250000.70" == str(account.balance)


@pytest.mark.parametrize("path", ["/cards/", "/v2/cards/"])
async def test_a_card(wire: Wire, opened: Open, path: str) -> None:
    """The id is in the query, the masked number in the body of the GET, and the dialect selects the version."""
    card, request = await exchange(
        wire, opened, CARD, lambda payments: payments.cards.get("17", "4000 **** **** 0001"), cards_path=path
    )
    assert ("GET", f"{path}?id=17") == (request.method, request.path)
    assert b'{"masked-card-number":"4000 **** **** 0001"}' == request.body
    assert "Token token-1" == request.headers["authorization"]
    assert TRAVEL_CARD == card


async def test_a_card_that_is_enabled(wire: Wire, opened: Open) -> None:
    """It is patched with a start instruction."""
    card, request = await exchange(wire, opened, CARD, lambda payments: payments.cards.enable("4000 **** **** 0001"))
    assert ("PATCH", "/cards") == (request.method, request.path)
    assert b'{"masked-card-number":"4000 **** **** 0001","start":true}' == request.body
    assert "Token token-1" == request.headers["authorization"]
    assert TRAVEL_CARD == card


async def test_a_card_with_a_new_pin(wire: Wire, opened: Open) -> None:
    """The PIN is text, so that its leading zero stays."""
    card, request = await exchange(
        wire, opened, CARD, lambda payments: payments.cards.reset_pin("4000 **** **** 0001", "0417")
    )
    assert ("PATCH", "/cards") == (request.method, request.path)
    assert b'{"masked-card-number":"4000 **** **** 0001","pin":"0417"}' == request.body
    assert TRAVEL_CARD == card


async def test_an_endpoint_nobody_knows(wire: Wire, opened: Open) -> None:
    """Path, query and body leave as they were given, a Decimal digit for digit."""
    answer, request = await exchange(
        wire,
        opened,
        b'{"any": 1.10}',
        lambda payments: payments.raw("post", "/api/any thing", query={"q": "a b&c"}, body={"sum": Decimal("0.10")}),
    )
    assert ("POST", "/api/any%20thing?q=a+b%26c", b'{"sum":0.10}') == (request.method, request.path, request.body)
    assert "Token token-1" == request.headers["authorization"]
    assert {"any": Decimal("1.10")} == answer


async def test_only_what_must_be(wire: Wire, opened: Open) -> None:
    """Unset members are left out, or null where the dialect says so; never empty texts."""
    order = payout(batch_id=None, message=None, beneficiary=beneficiary(email_address=None, phone_number=None))
    expected = (
        b'{"requestId":"r-1","amount":150000.50,"type":"DEBIT",'
        b'"product":{"productItemId":"MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"},'
        b'"beneficiary":{"name":"Grace Akello","data":{"phoneNumber":"+256772000018"}}}'
    )
    assert expected == await written(wire, opened, order)
    expected = (
        b'{"requestId":"r-1","amount":150000.50,"batchId":null,"type":"DEBIT","message":null,"metadata":null,'
        b'"product":{"productItemId":"MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"},'
        b'"beneficiary":{"name":"Grace Akello","emailAddress":null,"phoneNumber":null,'
        b'"data":{"phoneNumber":"+256772000018"}}}'
    )
    assert expected == await written(wire, opened, order, empty_members="null")


async def test_text_that_is_not_ascii(wire: Wire, opened: Open) -> None:
    """Names leave as UTF-8, quotes and line ends escaped."""
    order = payout(beneficiary=beneficiary(name='Zoë "Zo" Okello\n'))
    assert 'Zoë \\"Zo\\" Okello\\n"'.encode() in await written(wire, opened, order)


async def test_what_the_caller_means_by_the_amount(wire: Wire, opened: Open) -> None:
    """The currency of an order is never sent."""
    plain = await written(wire, opened, payout())
    assert plain == await written(wire, opened, payout(currency="UGX"))


PHONES = {
    "+256772000018": ("+256772000018", "256772000018", "0772000018"),
    "256772000018": ("+256772000018", "256772000018", "0772000018"),
    "0772000018": ("+256772000018", "256772000018", "0772000018"),
    "772000018": ("+256772000018", "256772000018", "0772000018"),
    "00256772000018": ("+256772000018", "256772000018", "0772000018"),
    "+256 (772) 000-018": ("+256772000018", "256772000018", "0772000018"),
    "+254700000018": ("+254700000018", "254700000018", "254700000018"),
}


@pytest.mark.parametrize("given", PHONES)
async def test_a_phone_number_in_every_format(wire: Wire, opened: Open, given: str) -> None:
    """The dialect's format is one and the same for the wallet and for the person; as given is as given."""
    order = payout(MobileMoneyWallet(given), beneficiary=beneficiary(phone_number=given))
    formats = dict(zip(("e164", "digits", "national"), PHONES[given], strict=True)) | {"as_given": given}
    for name, expected in formats.items():
        body = json.loads(await written(wire, opened, attrs.evolve(order), phone_format=name))
        who = body["beneficiary"]
        assert (name, expected, expected) == (name, who["phoneNumber"], who["data"]["phoneNumber"])


async def test_another_calling_code(wire: Wire, opened: Open) -> None:
    """A national number is read in the dialect's country."""
    body = await written(
        wire, opened, payout(MobileMoneyWallet("0700000018")), phone_format="e164", phone_country_code="254"
    )
    assert b'"data":{"phoneNumber":"+254700000018"}' in body


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("bankCode",), b'"data":{"bankAccount":"0012345678","bankCode":"104"}'),
        (("bankName",), b'"data":{"bankAccount":"0012345678","bankName":"104"}'),
    ],
)
async def test_the_key_of_a_bank(wire: Wire, opened: Open, keys: tuple[str, ...], expected: bytes) -> None:
    """The code is sent under the dialect's keys and no other."""
    body = await written(wire, opened, payout(BankAccount("0012345678", "104")), bank_code_keys=keys)
    assert expected in body


@pytest.mark.parametrize(
    ("dialect", "act", "expected"),
    [
        pytest.param({"api_prefix": ""}, lambda p: p.accounts.get(), "/accounts", id="api_prefix"),
        pytest.param(
            {"date_keys": ("startDate", "endDate")},
            lambda p: p.transactions.page(since=date(2026, 11, 1), until=date(2026, 11, 2)),
            "/api/transactions?pageNumber=1&pageSize=50&startDate=2026-11-01&endDate=2026-11-02",
            id="date_keys",
        ),
        pytest.param({"product_paging": False}, lambda p: p.products.page(), "/api/products", id="product_paging"),
        pytest.param(
            {"timezone": timezone(timedelta(hours=3))},
            lambda p: p.transactions.page(since=datetime(2026, 11, 1, 23, 0, tzinfo=UTC)),
            "/api/transactions?pageNumber=1&pageSize=50&earlierDate=2026-11-02",
            id="timezone",
        ),
    ],
)
async def test_a_dialect_of_reads(
    wire: Wire, opened: Open, dialect: dict[str, Any], act: Callable[[PaymentsSession], Awaitable[Any]], expected: str
) -> None:
    """Each field changes the path and query it is documented to change."""
    answer = (
        b'{"code": 0, "data": {"collection": []}}'
        if "?" in expected or "products" in expected
        else b'{"code": 0, "data": {"accountNumber": 6, "balance": 0}}'
    )
    _, request = await exchange(wire, opened, answer, act, **dialect)
    assert expected == request.path


async def test_the_path_of_items(wire: Wire, opened: Open) -> None:
    """The guess can be replaced; the product's id stays one part of the path."""

    async def all_items(payments: PaymentsSession) -> list[ProductItem]:
        return [item async for item in payments.products.items("A/B")]

    answer = b'{"code": 0, "data": {"collection": []}}'
    path = "/products/items/{product_id}"
    _, request = await exchange(wire, opened, answer, all_items, product_items_path=path, product_paging=False)
    assert "/api/products/items/A%2FB" == request.path


async def test_the_path_of_the_internet_bundle(wire: Wire, opened: Open) -> None:
    """The heading's path can be chosen."""
    _, request = await exchange(
        wire,
        opened,
        ACCEPTED % b"r-1",
        lambda payments: payments.payouts.send(payout(InternetLine(PHONE))),
        internet_path="/transactions/payouts/mobilemoney",
    )
    assert "/api/transactions/payouts/mobilemoney" == request.path


async def test_a_login_in_another_dialect(wire: Wire, opened: Open) -> None:
    """The scheme of Authorization and the wish for a refresh token are the dialect's."""
    answer = b'{"code": 0, "data": {"accountNumber": 6, "balance": 0}}'
    _, request = await exchange(
        wire,
        opened,
        answer,
        lambda payments: payments.accounts.get(),
        authorization_scheme="Bearer",
        include_refresh_token=False,
        api_prefix="/v3",
    )
    assert ("/v3/accounts", "Bearer token-1") == (request.path, request.headers["authorization"])
    login = wire.requests[0]
    assert "/v3/auth/login" == login.path
    assert login.body.endswith(b',"includeRefereshToken":false}')


async def test_a_validation_with_a_token(wire: Wire, opened: Open) -> None:
    """The dialect can send Authorization with it."""
    _, request = await exchange(
        wire,
        opened,
        b'{"success": 1}',
        lambda payments: payments.products.validate("I", "20551177", 1500),
        validation_authorized=True,
    )
    assert "Token token-1" == request.headers["authorization"]


async def test_a_card_without_a_body(wire: Wire, opened: Open) -> None:
    """A GET need not have one: by the dialect, or because no number is known."""
    _, request = await exchange(
        wire, opened, CARD, lambda payments: payments.cards.get("17", "4000"), card_body_on_get=False
    )
    assert b"" == request.body
    _, request = await exchange(wire, opened, CARD, lambda payments: payments.cards.get("17"))
    assert b"" == request.body


async def test_the_members_of_a_card_patch(wire: Wire, opened: Open) -> None:
    """The guessed names and the path can be replaced."""
    names = {"card_enable_member": "enable", "card_pin_member": "newPin", "card_patch_path": "/v2/cards"}
    _, request = await exchange(wire, opened, CARD, lambda payments: payments.cards.enable("4000"), **names)
    assert ("/v2/cards", b'{"masked-card-number":"4000","enable":true}') == (request.path, request.body)
    _, request = await exchange(wire, opened, CARD, lambda payments: payments.cards.reset_pin("4000", "1234"), **names)
    assert ("/v2/cards", b'{"masked-card-number":"4000","newPin":"1234"}') == (request.path, request.body)


async def test_a_correlation_header(wire: Wire, opened: Open) -> None:
    """An order carries its request id in it; nothing else does."""
    await written(wire, opened, payout(), correlation_header="X-Correlation-ID")
    assert "r-1" == wire.orders[-1].headers["x-correlation-id"]
    answer = b'{"code": 0, "data": {"accountNumber": 6, "balance": 0}}'
    _, request = await exchange(
        wire, opened, answer, lambda payments: payments.accounts.get(), correlation_header="X-Correlation-ID"
    )
    assert "x-correlation-id" not in request.headers


async def test_a_look_up_by_request_id(wire: Wire, opened: Open) -> None:
    """The earlier edition's path is asked first where the dialect names it."""
    answer = b'{"code": 0, "data": {"transaction_id": "t-1", "clientreference_id": "r/1"}}'
    found, request = await exchange(
        wire,
        opened,
        answer,
        lambda payments: payments.transactions.find("r/1"),
        find_by_request_path="/transactions/Requests/{request_id}",
    )
    assert ("GET", "/api/transactions/Requests/r%2F1") == (request.method, request.path)
    assert Transaction(transaction_id="t-1", request_id="r/1") == found


async def test_a_refresh(wire: Wire, opened: Open) -> None:
    """With a path for it, a token is renewed by the refresh token, without Authorization."""
    payments = await opened(dialect=Dialect(refresh_path="/auth/refresh", token_lifetime=100.0))
    answer = b'{"Token": "token-2", "refreshToken": "refresh-2", "success": true}'

    async def tell(_: Request) -> bytes | None:
        return raw_reply(answer)

    wire.answer = tell
    await payments.log_in()
    await executor_of(payments).sleep(90.0)
    await payments.log_in()
    request = wire.orders[0]
    assert ("POST", "/api/auth/refresh", b'{"refreshToken":"refresh-1"}') == (
        request.method,
        request.path,
        request.body,
    )
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    ("act", "error"),
    [
        pytest.param(lambda p: p.transactions.get(""), ValueError, id="empty id"),
        pytest.param(lambda p: p.transactions.get(".."), ValueError, id="the folder above"),
        pytest.param(lambda p: p.transactions.get(17), TypeError, id="number for an id"),
        pytest.param(lambda p: p.products.get("."), ValueError, id="this folder"),
        pytest.param(lambda p: p.transactions.page(number=0), ValueError, id="page 0"),
        pytest.param(lambda p: p.transactions.page(size=0), ValueError, id="no rows"),
        pytest.param(lambda p: p.transactions.page(since="2026-11-01"), TypeError, id="text for a day"),
        pytest.param(
            lambda p: p.transactions.page(since=datetime(2026, 11, 1)),  # noqa: DTZ001 - the mistake
            ValueError,
            id="naive time",
        ),
        pytest.param(lambda p: p.products.validate("I", "", 1), ValueError, id="nobody"),
        pytest.param(lambda p: p.products.validate("I", 256772000018, 1), TypeError, id="number for a reference"),
        pytest.param(lambda p: p.products.validate("I", "1", 0.1), TypeError, id="float"),
        pytest.param(lambda p: p.products.validate("I", "1", 0), ValueError, id="nothing"),
        pytest.param(lambda p: p.cards.get(""), ValueError, id="no card"),
        pytest.param(lambda p: p.cards.enable(""), ValueError, id="no card number"),
        pytest.param(lambda p: p.cards.reset_pin("4000", "12"), ValueError, id="short PIN"),
        pytest.param(
            lambda p: p.cards.reset_pin("4000", "\uff11\uff12\uff13\uff14"), ValueError, id="PIN of other digits"
        ),
        pytest.param(lambda p: p.payouts.send(collection()), TypeError, id="collection sent as a payout"),
        pytest.param(lambda p: p.collections.request(payout()), TypeError, id="payout requested as a collection"),
    ],
)
async def test_a_wrong_argument(
    wire: Wire, opened: Open, act: Callable[[PaymentsSession], Awaitable[Any]], error: type[Exception]
) -> None:
    """It is refused before anything is sent, the login too."""
    payments = await opened()
    with pytest.raises(error):
        await act(payments)
    assert [] == wire.requests


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("authorization_scheme", "token"),
        ("phone_format", "E164"),
        ("empty_members", "none"),
        ("token_lifetime", 0),
        ("token_lifetime", float("nan")),
        ("bank_code_keys", ()),
        ("bank_code_keys", "bankCode"),
        ("date_keys", ("startDate",)),
        ("product_items_path", "/products/items"),
        ("product_items_path", "products/{product_id}/items"),
        ("find_by_request_path", "/transactions/Requests"),
        ("refresh_path", "auth/refresh"),
        ("cards_path", "cards"),
        ("card_patch_path", ""),
        ("internet_path", "transactions/payouts/internet"),
        ("api_prefix", "/api/"),
        ("api_prefix", "api"),
    ],
)
def test_a_wrong_dialect(field: str, value: object) -> None:
    """It is refused when it is made, and the message names the field."""
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=rf"^{field}: "):
        Dialect(**wrong)
