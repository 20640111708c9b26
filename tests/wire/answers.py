"""Every call there is, and answers to it: of any shape, and nearly of the documented one."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from wire.orders import collection, payout

from payments_async import Dialect, PaymentsError
from payments_async._wire import endpoints
from payments_async._wire.call import Call, Reply
from payments_async._wire.replies import read_reply

DIALECT = Dialect()
PAYOUT = payout(request_id="r-1")
COLLECTION = collection(request_id="r-1")
PAGE: Mapping[str, Any] = {"number": 1, "size": 5, "dialect": DIALECT}
EVERY_CALL: dict[str, Call[Any]] = {
    "login": endpoints.log_in("key", "password", "user", DIALECT),
    "refresh": endpoints.refresh("refresh-1", "/auth/refresh", DIALECT),
    "payout": endpoints.send_order(PAYOUT, DIALECT),
    "payout again": endpoints.send_order(PAYOUT, DIALECT, sent_before=True),
    "collection": endpoints.send_order(COLLECTION, DIALECT),
    "transactions": endpoints.list_transactions(since=None, until=None, status=None, **PAGE),
    "transaction": endpoints.get_transaction("t-1", DIALECT),
    "transaction by request": endpoints.find_transaction("r-1", "/Requests/{request_id}", DIALECT),
    "products": endpoints.list_products(**PAGE),
    "product": endpoints.get_product("P", DIALECT),
    "items": endpoints.list_product_items("P", **PAGE),
    "validation": endpoints.validate("P_1", "20551177", 1, DIALECT),
    "account": endpoints.get_account(DIALECT),
    "card": endpoints.get_card("17", "4000", DIALECT),
    "card enable": endpoints.enable_card("4000", DIALECT),
    "card PIN": endpoints.reset_card_pin("4000", "0417", DIALECT),
    "raw GET": endpoints.raw("GET", "/api/any", query=None, body=None),
    "raw POST": endpoints.raw("POST", "/api/any", query=None, body={}),
}
DOCUMENTED = [
    *("code", "Code", "status", "message", "data", "Data", "success", "correlationId", "collection", "totalCount"),
    *("nextPage", "totalPages", "Token", "refreshToken", "requestId", "batchId", "transactionId", "createdOn"),
    *("amount", "product", "beneficiary", "accountNumber", "balance", "card_id", "productId", "productItemId"),
    *("isActive", "sortOrder", "memo", "attachments"),
]
WORDS = ["", "0", "-0", "--1", "1", "r-1", "t-1", "true", "PROCESSING", "SUCCESSFULL", "2/27/2024 2:06:41 PM", "NaN"]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(DOCUMENTED) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=12,
)
ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "code": st.sampled_from([0, "0", 1, 17, -1, "--1", True, 0.5, None]),
        "success": LEAVES,
        "message": LEAVES,
        "data": st.dictionaries(st.sampled_from(DOCUMENTED), ANYTHING, max_size=8) | ANYTHING,
        "Token": LEAVES,
    },
)


def outcome(call: Call[Any], body: bytes, status: int) -> Any:
    """What an answer is read as: a result, or the documented error it raised."""
    try:
        return read_reply(call, Reply(status, body), DIALECT)
    except PaymentsError as error:
        return error
