"""What can be read: transactions, products, items, the account, validation, cards."""

from decimal import Decimal
from typing import Any

import pytest
from sandbox.calls import COLLECTION, Caller, collection

from payments_async.sandbox import Fault

LIST = "/api/transactions"


async def paid(caller: Caller, count: int) -> list[str]:
    """Order payouts r-0, r-1, ... and let them end; return their request ids."""
    request_ids = [f"r-{number}" for number in range(count)]
    for request_id in request_ids:
        await caller.pay(request_id)
    await caller.sandbox.settle()
    return request_ids


async def test_a_transaction_as_specified(caller: Caller) -> None:
    """Its record has the documented members, a negative amount and no status, at both paths."""
    _, answer = await caller.pay()
    transaction_id = answer["data"]["transactionId"]
    for path in (f"/api/transactions/{transaction_id}", f"/transactions/{transaction_id}"):
        status, read = await caller.call("GET", path)
        assert (200, 0) == (status, read["code"])
    assert {
        "transactionId": transaction_id,
        "requestId": "r-1",
        "batchId": "b-1",
        "accountNumber": "6",
        "name": None,
        "currency": "UGX",
        "amount": -1500,
        "transactionType": "PAYOUT",
        "product": {"id": "MTNMOBILEMONEYPAYOUTUG", "name": "Mobile money payout M"},
        "beneficiary": {
            "id": "",
            "name": "Grace",
            "data": {
                "CustomerReference": "0770000017",
                "CustomerPhone": "0770000001",
                "CustomerEmail": "",
                "Memo": "November",
            },
        },
    } == read["data"]


async def test_a_collection_in_the_list(caller: Caller) -> None:
    """Its amount is positive and its type says collection."""
    await caller.call("POST", COLLECTION, json=collection())
    _, answer = await caller.call("GET", LIST)
    row = answer["data"]["collection"][0]
    assert ("COLLECTION", 1500) == (row["transactionType"], row["amount"])


@pytest.mark.parametrize("path", ["/api/transactions/nonsense", "/api/products/NOSUCH", "/api/products/NOSUCH/items"])
async def test_an_id_nobody_knows(caller: Caller, path: str) -> None:
    """It is 404 with an envelope."""
    status, answer = await caller.call("GET", path)
    assert (404, 404) == (status, answer["code"])


async def test_pages_of_transactions(caller: Caller) -> None:
    """Every row is on one page, and the page says where it stands."""
    request_ids = await paid(caller, 5)
    pages = [await caller.listed(pageNumber=number, pageSize=2) for number in (1, 2, 3, 4)]
    assert [request_ids[:2], request_ids[2:4], request_ids[4:], []] == pages
    _, answer = await caller.call("GET", LIST, params={"pageNumber": 2, "pageSize": 2})
    data = answer["data"]
    assert "success" == answer["status"]
    assert (5, 2, 2, 3, True, True) == tuple(
        data[name] for name in ("totalCount", "pageSize", "currentPage", "totalPages", "previousPage", "nextPage")
    )


@pytest.mark.parametrize(
    "query",
    [
        {"pageSize": "0"},
        {"pageNumber": "x"},
        {"pageNumber": "-1"},
        {"transactionStatus": "DONE"},
        {"laterDate": "5.1.26"},
    ],
    ids=str,
)
async def test_a_query_that_makes_no_sense(caller: Caller, query: dict[str, str]) -> None:
    """It is refused and the message names the parameter."""
    status, answer = await caller.call("GET", LIST, params=query)
    assert 400 == status
    assert next(iter(query)) in answer["message"]


async def test_transactions_of_one_status(caller: Caller) -> None:
    """The filter is the documented way to read a status."""
    caller.sandbox.script(Fault.FAILS, request_id="r-1")
    await paid(caller, 3)
    await caller.pay("r-9")
    assert ["r-0", "r-2"] == await caller.listed(transactionStatus="SUCCESSFULL")
    assert ["r-1"] == await caller.listed(transactionStatus="FAILED")
    assert ["r-9"] == await caller.listed(transactionStatus="PROCESSING")
    assert [] == await caller.listed(transactionStatus="REVERSED")


async def test_transactions_of_some_days(caller: Caller) -> None:
    """A later date without a time includes its day."""
    await caller.pay("r-0")
    await caller.sandbox.advance(86_400)
    await caller.login()
    await caller.pay("r-1")
    assert ["r-0"] == await caller.listed(laterDate="2026-01-05")
    assert ["r-1"] == await caller.listed(earlierDate="2026-01-06", laterDate="2026-01-06")
    assert ["r-0"] == await caller.listed(earlierDate="2026-01-05T07:00:00Z", laterDate="2026-01-05T09:00:00Z")
    assert ["r-0", "r-1"] == await caller.listed(startDate="2026-01-06")


@pytest.mark.parametrize(
    ("quirks", "query", "expected"),
    [
        ({"date_keys": (("startDate", "endDate"),)}, {"startDate": "2026-01-06"}, []),
        ({"ignores_date_filter": True}, {"earlierDate": "2026-01-06"}, ["r-0", "r-1"]),
        ({"ignores_status_filter": True}, {"transactionStatus": "FAILED"}, ["r-0", "r-1"]),
        ({"later_date_inclusive": False}, {"laterDate": "2026-01-05"}, []),
        ({"newest_first": True}, {}, ["r-1", "r-0"]),
        ({"max_page_size": 1}, {"pageSize": "50"}, ["r-0"]),
        ({"default_page_size": 1}, {}, ["r-0"]),
    ],
    ids=str,
)
async def test_a_quirk_of_the_list(opened: Any, quirks: Any, query: Any, expected: list[str]) -> None:
    """Each switch changes which rows are shown."""
    caller = await opened(quirks=quirks)
    await paid(caller, 2)
    assert expected == await caller.listed(**query)


async def test_a_next_page_that_lies(opened: Any) -> None:
    """The last page claims that there is another."""
    caller = await opened(quirks={"next_page_lies": True})
    _, answer = await caller.call("GET", LIST)
    assert answer["data"]["nextPage"]


async def test_pages_of_a_list_that_grows(opened: Any) -> None:
    """With the quirk rows repeat or go missing while it grows, and a quiet list is whole."""
    caller = await opened(quirks={"unstable_pages": True})
    await paid(caller, 9)
    await caller.listed(pageNumber=1, pageSize=3)
    await caller.pay("r-9")
    second = await caller.listed(pageNumber=2, pageSize=3)
    assert second in (["r-2", "r-3", "r-4"], ["r-4", "r-5", "r-6"])
    await caller.sandbox.settle()
    scan = [await caller.listed(pageNumber=number, pageSize=5) for number in (1, 2)]
    assert [f"r-{number}" for number in range(10)] == scan[0] + scan[1]


@pytest.mark.parametrize(
    ("quirks", "seen"),
    [
        ({"record_has_status": True, "success_word": "SUCCESS"}, lambda row: row["status"] == "SUCCESS"),
        ({"record_amount_sign": "collections_negative"}, lambda row: row["amount"] == 1500),
        ({"record_account_number": "number"}, lambda row: row["accountNumber"] == 6),
        ({"record_product_key": "productItemId"}, lambda row: row["product"]["productItemId"].endswith("PAYOUTUG")),
        ({"record_beneficiary_data": "phone"}, lambda row: row["beneficiary"]["data"]["memo"] == "November"),
        ({"list_swaps_product": True}, lambda row: row["product"]["name"] == "Grace"),
    ],
    ids=["status", "signed amount", "account number", "product key", "data of the beneficiary", "swapped product"],
)
async def test_a_quirk_of_the_record(opened: Any, quirks: Any, seen: Any) -> None:
    """Each switch shows in the listed record."""
    caller = await opened(quirks=quirks)
    await paid(caller, 1)
    _, answer = await caller.call("GET", LIST)
    assert seen(answer["data"]["collection"][0])


async def test_a_single_transaction_in_snake_case(opened: Any) -> None:
    """With the quirk its own members are spelled so, beside a success number."""
    caller = await opened(quirks={"single_record_names": "snake", "read_code": 1})
    _, accepted = await caller.pay()
    _, answer = await caller.call("GET", f"{LIST}/{accepted['data']['transactionId']}")
    assert (1, 1, "r-1") == (answer["code"], answer["success"], answer["data"]["clientreference_id"])


async def test_a_transaction_by_its_request_id(opened: Any) -> None:
    """The path is there with the quirk alone."""
    for quirks, expected in (({}, 404), ({"requests_path": True}, 200)):
        caller = await opened(quirks=quirks)
        await caller.pay()
        assert expected == (await caller.call("GET", f"{LIST}/Requests/r-1"))[0]


async def test_products_and_their_items(caller: Caller) -> None:
    """They are listed in pages, and found by id with and without the prefix of the paths."""
    _, answer = await caller.call("GET", "/api/products", params={"pageNumber": 1, "pageSize": 50})
    products = {product["productId"]: product for product in answer["data"]["collection"]}
    assert {"KCCATAXUG", "NWSCWATERUG", "BANKTRANSFERUG", "AIRTELMONEYUG"} < set(products)
    tax = products["KCCATAXUG"]
    assert (False, None, "TAX", "256", "UGX") == tuple(
        tax[name] for name in ("isExternal", "productRegex", "categoryId", "countryCode", "currencyCode")
    )
    for path in ("/api/products/KCCATAXUG", "/products/KCCATAXUG"):
        assert tax == (await caller.call("GET", path))[1]["data"]
    _, answer = await caller.call("GET", "/api/products/AIRTELDATABUNDLESUG/items")
    items = answer["data"]["collection"]
    assert ["AIRTELDATABUNDLESUG_24510766", "AIRTELDATABUNDLESUG_24510767"] == [item["productItemId"] for item in items]
    assert ("2000.00", True, "Weekly", "24510766") == (
        str(items[0]["amount"]), items[0]["isAmountFixed"], items[0]["validityPeriod"], items[0]["productItemCode"]
    )  # fmt: skip


async def test_every_item_of_every_product(caller: Caller) -> None:
    """Each item names its product, and its id begins with it."""
    _, answer = await caller.call("GET", "/api/products")
    for product in answer["data"]["collection"]:
        product_id = product["productId"]
        _, items = await caller.call("GET", f"/products/{product_id}/items")
        for item in items["data"]["collection"]:
            assert product_id == item["productId"] == item["productItemId"].partition("_")[0]


async def test_the_account(caller: Caller) -> None:
    """Its number is a number and its balance exact."""
    caller.sandbox.balance = Decimal("12345678901234567.89")
    _, answer = await caller.call("GET", "/api/accounts")
    assert (6, "UGX", Decimal("12345678901234567.89")) == tuple(
        answer["data"][name] for name in ("accountNumber", "currency", "balance")
    )


VALID = {"productItemId": "AIRTELDATABUNDLESUG_24510766", "customerReference": "+256752000001", "amount": 2000}


async def test_a_reference_and_an_amount_that_validate(caller: Caller) -> None:
    """The answer is success 1 and nothing else, although the product's pattern is junk."""
    assert (200, {"success": 1}) == await caller.call("POST", "/api/products/validation", json=VALID)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"amount": 1999}, "amount must be 2000.00"),
        ({"productItemId": "KCCATAXUG_KCCATAXUG", "amount": 1}, "amount must be from 500 to 5000000"),
        ({"productItemId": "NOSUCH_NOSUCH"}, "productItemId is unknown"),
    ],
)
async def test_what_does_not_validate(opened: Any, changes: dict[str, Any], message: str) -> None:
    """The answer is success 0 with the reason, with the HTTP status the quirk says."""
    for quirks, expected in (({}, 200), ({"validation_refusal_http": 400}, 400)):
        caller = await opened(quirks=quirks)
        status, answer = await caller.call("POST", "/api/products/validation", json=VALID | changes)
        assert (expected, 0, message) == (status, answer["success"], answer["message"])


@pytest.mark.parametrize("name", VALID)
async def test_a_validation_that_is_incomplete(caller: Caller, name: str) -> None:
    """It is refused and the message names the field."""
    body = {key: value for key, value in VALID.items() if key != name}
    status, answer = await caller.call("POST", "/api/products/validation", json=body)
    assert 400 == status
    assert name in answer["message"]


SECOND = {"masked-card-number": "4000 **** **** 0002"}


@pytest.mark.parametrize("path", ["/cards/", "/cards", "/v2/cards/"])
async def test_a_card(caller: Caller, path: str) -> None:
    """It is found by its id, or by the masked number in the body."""
    by_id = await caller.call("GET", path, params={"id": "2"})
    by_number = await caller.call("GET", path, json=SECOND)
    assert by_id == by_number
    assert (1, 2, "0.00") == (by_id[1]["success"], by_id[1]["data"]["card_id"], by_id[1]["data"]["balance"])


async def test_a_card_with_a_false_flag(opened: Any) -> None:
    """The quirk shows success 0 beside the full card, as the sample does."""
    caller = await opened(quirks={"card_success_flag": 0})
    _, answer = await caller.call("GET", "/cards/", params={"id": "1"})
    assert (0, "active") == (answer["success"], answer["data"]["status"])


async def test_a_card_that_is_enabled_and_gets_a_pin(caller: Caller) -> None:
    """A start instruction makes it active; a PIN of four digits is taken."""
    _, answer = await caller.call("PATCH", "/cards", json=SECOND | {"start": True})
    assert (1, "active") == (answer["success"], answer["data"]["status"])
    assert 200 == (await caller.call("PATCH", "/cards", json=SECOND | {"pin": "1234"}))[0]


@pytest.mark.parametrize(
    "changes",
    [{}, {"start": False}, {"start": "true"}, {"pin": "12"}, {"pin": 1234}, {"start": True, "pin": "1234"}],
    ids=str,
)
async def test_a_card_patch_that_is_neither(caller: Caller, changes: dict[str, Any]) -> None:
    """It is refused with success 0 and nothing changes."""
    status, answer = await caller.call("PATCH", "/cards", json=SECOND | changes)
    assert (400, 0, None) == (status, answer["success"], answer["data"])
    assert "inactive" == (await caller.call("GET", "/cards", params={"id": "2"}))[1]["data"]["status"]


@pytest.mark.parametrize(("more", "expected"), [({"params": {"id": "9"}}, 404), ({}, 400)], ids=str)
async def test_a_card_nobody_knows(caller: Caller, more: dict[str, Any], expected: int) -> None:
    """It is refused in the card's own envelope."""
    status, answer = await caller.call("GET", "/cards/", **more)
    assert (expected, 0) == (status, answer["success"])
