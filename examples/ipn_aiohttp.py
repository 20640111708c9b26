"""A receiver mounted in an aiohttp application. It sends itself one notification, shows what it got, and ends."""

import asyncio
import json

from aiohttp import ClientSession, web

from payments_async.ipn import Receiver, TransactionFailed, TransactionSucceeded, serving

# The documented senders are the default; here the sender is this process.
receiver = Receiver(senders=["127.0.0.1"])


@receiver.on(TransactionSucceeded)
async def settled(event: TransactionSucceeded) -> None:
    """Money has moved: without an inbox the service hears 200 only after this has returned."""
    print(f"{event.request_id}: {event.amount} {event.currency_code} has moved")


@receiver.on(TransactionFailed, when=lambda event: event.amount is not None and event.amount >= 1_000_000)
async def large_failure(event: TransactionFailed) -> None:
    """Only the large ones."""
    print(f"{event.request_id} failed: call the customer")


def application() -> web.Application:
    """Yours, with the receiver at /ipn; `asyncio.run(serve(application()))` serves it.

    So does `web.run_app(application(), access_log=None)`, without a limit on how long headers may take. An access log
    would hold the query string: accounts and amounts.
    """
    app = web.Application()
    receiver.mount(app, "/ipn")
    return app


async def main() -> None:
    """Serve on a free port, notify once, stop."""
    body = {
        "TransactionId": "672b00f8-a02c-5e41-9fd0-4f0c4c74308d", "RequestId": "payroll-2026-11-000017",
        "StatusCode": 0, "Amount": 150000, "CurrencyCode": "UGX",
    }  # fmt: skip
    async with serving(application(), "127.0.0.1", 0) as (host, port):
        async with ClientSession() as http, http.post(f"http://{host}:{port}/ipn", data=json.dumps(body)) as answer:
            print(answer.status, await answer.text())
        event = await receiver.wait_for("payroll-2026-11-000017", timeout=5.0)
        print(type(event).__name__)


if __name__ == "__main__":
    asyncio.run(main())
