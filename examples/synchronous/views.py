"""A synchronous application that pays: a WSGI view here; those of Django and Flask, and jobs of Celery, do the same.

    payments-async sandbox --ipn-url http://127.0.0.1:8080/ipn
    python examples/synchronous/worker.py
    gunicorn --preload --workers 2 --threads 8 --chdir examples/synchronous views:application
    curl -X POST '127.0.0.1:8000/?id=w-1&phone_number=%2B256772000017&amount=5000'
    curl '127.0.0.1:8000/?id=w-1'

A view needs no event loop of its own that lives on: it opens the journal, puts the order, and closes it. `worker.py`
sends. Nothing is open between two calls, so threads, forks and `--preload` are of no concern. Opening costs some 15 ms
in a file, and 50 ms and three sessions in PostgreSQL; who puts more than some tens of orders a second writes that part
with asyncio.

With a database of your own, write your row first and put the order once that is committed (in Django:
`transaction.on_commit(lambda: put(order))`), and again, for each row whose end you do not know, when you start:
`../withdrawals/ledger.py`. Where the journal is in your own PostgreSQL database, both are one transaction:
`outbox.put_sync(order, connection=django.db.connection)` within `transaction.atomic()`.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs

from payments_async import Beneficiary, MobileMoneyWallet, Order, PaymentsSession, PayoutOrder
from payments_async.journal import Entry, OrdersDiffer, journal_at
from payments_async.outbox import Outbox

SANDBOX = {
    "PAYMENTS_BASE_URL": "http://127.0.0.1:7027",
    "PAYMENTS_APP_KEY": "demo-app-key",
    "PAYMENTS_APP_PASSWORD": "demo-app-password",
    "PAYMENTS_USER_ID": "demo-user",
}
"""For trying it out. With the service, each of them comes from the environment."""


def settings() -> Mapping[str, str]:
    """Those of the environment; untold, those of the sandbox."""
    return {"PAYMENTS_JOURNAL": "payments.sqlite", **SANDBOX, **os.environ}


def put(order: Order) -> Entry:
    """Write an order down, to be sent once by `worker.py`; the same order again changes nothing.

    Not where an event loop runs already, such as in an async view: there, `await` it.
    """
    return asyncio.run(_put(order))


def entry_of(request_id: str) -> Entry | None:
    """How an order stands."""
    return asyncio.run(_entry_of(request_id))


async def _put(order: Order) -> Entry:
    told = settings()
    journal = journal_at(told["PAYMENTS_JOURNAL"])
    payments = PaymentsSession.from_env(told)  # says whose account it is; it sends nothing here, and does not log in
    async with journal, payments, Outbox(payments, journal, worker=None) as outbox:
        return await outbox.put(order)


async def _entry_of(request_id: str) -> Entry | None:
    async with journal_at(settings()["PAYMENTS_JOURNAL"]) as journal:
        return await journal.entry(request_id)


def order_for(asked: Mapping[str, str]) -> PayoutOrder:
    """What a customer asks for. The id comes with it: whoever asks again for the same uses the same."""
    return PayoutOrder(
        request_id=asked.get("id", ""),
        amount=asked.get("amount", ""),
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Customer"),
        destination=MobileMoneyWallet(asked.get("phone_number", "")),
    )


def answer(method: str, asked: Mapping[str, str]) -> tuple[str, str]:
    """POST asks for a withdrawal, GET tells where it stands. Who may ask for whose money is yours to say."""
    if method != "POST":
        entry = entry_of(asked.get("id", ""))
        return ("200 OK", entry.state) if entry is not None else ("404 Not Found", "nobody asked for that")
    try:
        order = order_for(asked)
    except ValueError as error:
        return "422 Unprocessable Content", str(error)
    try:
        return "200 OK", put(order).state
    except OrdersDiffer:
        return "409 Conflict", "another withdrawal has this id"


def application(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """As WSGI has it."""
    asked = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
    status, words = answer(environ["REQUEST_METHOD"], asked)
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [words.encode()]
