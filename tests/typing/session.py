"""A session: what its calls take and give, and what it does not offer."""

from collections.abc import AsyncIterator, Mapping
from datetime import date
from decimal import Decimal
from typing import assert_type

from aiohttp import ClientTimeout

from payments_async import (
    Acceptance,
    CollectionOrder,
    Collections,
    Credentials,
    Dialect,
    Exchange,
    Exchanges,
    Limits,
    Listing,
    Page,
    PaymentsError,
    PaymentsSession,
    PayoutOrder,
    Payouts,
    Product,
    RetryPolicy,
    Settlement,
    Transaction,
    Transactions,
    TransactionStatus,
)
from payments_async.ipn import Receiver, TransactionEvent


async def opened(credentials: Credentials) -> None:
    """Whatever is beyond address and credentials goes by keyword."""
    async with PaymentsSession("https://host", credentials, dialect=Dialect(), retry=RetryPolicy()) as payments:
        assert_type(payments, PaymentsSession)
        assert_type(payments.payouts, Payouts)
        assert_type(payments.collections, Collections)
    PaymentsSession("https://host", credentials, Dialect())  # E: by keyword
    PaymentsSession("https://host")  # E: no credentials
    PaymentsSession("https://host", credentials, retry=3)  # E: a policy is not a number


async def sent(payments: PaymentsSession, order: PayoutOrder, collection: CollectionOrder) -> None:
    """One order, and what became of it."""
    assert_type(await payments.payouts.send(order), Acceptance)
    assert_type(await payments.payouts.send(order, sent_before=True, retry=RetryPolicy(attempts=1)), Acceptance)
    await payments.payouts.send(collection)  # E: a collection is no payout
    await payments.collections.request(order)  # E: a payout is no collection
    await payments.payouts.send(order, True)  # E: by keyword
    await payments.payouts.send(order, retry=1)  # E: a policy is not a number


async def sent_many(payments: PaymentsSession, orders: AsyncIterator[PayoutOrder], collection: CollectionOrder) -> None:
    """Each order comes back with its outcome, which is an acceptance or says what went wrong."""
    async for order, outcome in payments.payouts.send_many(orders, concurrency=50):
        assert_type(order, PayoutOrder)
        assert_type(outcome, Acceptance | PaymentsError)
        outcome.transaction_id.upper()  # E: there may be none
        if isinstance(outcome, Acceptance):
            assert_type(outcome.transaction_id, str)
    payments.payouts.send_many([collection])  # E: a collection is no payout


async def mapped(payments: PaymentsSession, ids: list[str], numbers: list[int]) -> None:
    """Any function over many items: item and result belong together."""
    async for item, result in payments.map(payments.transactions.get, ids, concurrency=20):
        assert_type(item, str)
        assert_type(result, Transaction | Exception)
    payments.map(payments.transactions.get, numbers)  # E: it is called with texts


async def read(payments: PaymentsSession) -> None:
    """Pages and listings know what is in them."""
    assert_type(await payments.transactions.page(number=1, since=date(2026, 1, 1)), Page[Transaction])
    assert_type(payments.products.iterate(), Listing[Product])
    async for transaction in payments.transactions.iterate(status=TransactionStatus.FAILED):
        assert_type(transaction.amount, Decimal | None)
    await payments.products.validate("item", "0772000017", Decimal("1500"))
    await payments.products.validate("item", "0772000017", 1.5)  # E: a float


async def settled(payments: PaymentsSession, receiver: Receiver, acceptance: Acceptance) -> None:
    """What says how an order ended is one of three things."""
    transactions: Transactions = payments.transactions
    settlement = await transactions.settled(acceptance, receiver=receiver, timeout=60)
    assert_type(settlement, Settlement)
    assert_type(settlement.evidence, TransactionEvent | Transaction | str)
    settlement.evidence.amount.is_finite()  # E: a text has no amount
    await transactions.settled("r-1", receiver=receiver, since=date(2026, 1, 5))
    await transactions.settled(1)  # E: neither an acceptance nor an id
    assert_type(await transactions.find_many(["r-1"]), Mapping[str, Transaction])
    await transactions.find_many([1])  # E: an id is a text


async def hidden(payments: PaymentsSession) -> None:
    """What the rooms of the package need of a session is no offer to its users."""
    assert payments.execute  # E: private
    assert payments.clock  # E: private
    assert payments.sleep  # E: private
    assert payments.note_evidence  # E: private
    assert payments.credentials  # E: the password is nobody's business
    assert payments.settled  # E: never was


async def with_options(payments: PaymentsSession, order: PayoutOrder) -> None:
    """It is a session like the other, and is taken wherever one is."""
    child = payments.with_options(timeout=5.0, retry=RetryPolicy(attempts=1), dialect=Dialect())
    assert_type(child, PaymentsSession)
    assert_type(await child.payouts.send(order), Acceptance)
    assert_type(payments.with_options().with_options(timeout=ClientTimeout(total=5)), PaymentsSession)
    payments.with_options(5.0)  # E: by keyword
    payments.with_options(timeout="5")  # E: seconds are no text
    payments.with_options(limits=Limits())  # E: limits are shared


async def exchanges(payments: PaymentsSession, order: PayoutOrder) -> None:
    """What came back, and which exchange told a result, if one did."""
    with payments.exchanges(keep=5) as made:
        acceptance = await payments.payouts.send(order)
    assert_type(made, Exchanges)
    assert_type(made[0], Exchange)
    assert_type(made.of(acceptance), Exchange | None)
    assert_type(made[0].body, bytes)
    made.of(acceptance).json()  # E: perhaps none did
    payments.exchanges(5)  # E: by keyword
    made[0].status = 200  # E: frozen


async def what_was_met(payments: PaymentsSession) -> None:
    """Ids and values are texts, for whoever reads."""
    assert_type(payments.quirks_met, Mapping[str, str])
    payments.quirks_met["read_code"] = "1"  # E: to be read only


async def from_the_environment() -> None:
    """The same type of session, and settings that are checked as the class checks them."""
    async with PaymentsSession.from_env(retry=RetryPolicy(attempts=1)) as payments:
        assert_type(payments, PaymentsSession)
    PaymentsSession.from_env({"PAYMENTS_BASE_URL": "https://host"}, retries=3)  # E: no such setting
