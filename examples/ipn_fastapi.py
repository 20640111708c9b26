"""A receiver in a FastAPI application. It sends itself one notification, shows what it got, and ends.

Serve it with `uvicorn --no-proxy-headers --no-access-log examples.ipn_fastapi:app`: the receiver reads X-Forwarded-For
itself, and only from the proxies it trusts. An access log would hold the query string: accounts and amounts.
"""

import asyncio
import json

import aiohttp
import uvicorn
from fastapi import FastAPI

from payments_async.ipn import Receiver, TransactionSucceeded

# The documented senders are the default; here the sender is this process.
receiver = Receiver(senders=["127.0.0.1"])


@receiver.on(TransactionSucceeded)
async def settled(event: TransactionSucceeded) -> None:
    """Money has moved."""
    print(f"{event.request_id}: {event.amount} {event.currency_code} has moved")


app = FastAPI()
receiver.mount(app, "/ipn")  # it starts and ends with the application


async def main() -> None:
    """Serve on a free port, notify once, stop."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, proxy_headers=False, log_level="warning"))
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        body = {"transactionId": "t-1", "requestId": "r-1", "statusCode": 0, "amount": 150000, "currencyCode": "UGX"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"http://127.0.0.1:{port}/ipn", data=json.dumps(body)) as answer,
        ):
            print(answer.status, await answer.text())
        server.should_exit = True


if __name__ == "__main__":
    asyncio.run(main())
