"""A receiver in a FastAPI application with several worker processes, made before they are forked.

In this folder::

    gunicorn --preload --workers 2 --worker-class fastapi_workers.Worker --bind 127.0.0.1:8080 fastapi_workers:app

or, where each worker imports the application for itself::

    uvicorn --workers 2 --no-proxy-headers --no-access-log --port 8080 fastapi_workers:app

All else is as in `aiohttp_workers.py`. The receiver reads X-Forwarded-For itself, and only from the proxies it trusts;
an access log would hold the query string, which is accounts and amounts.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from fastapi import FastAPI
from starlette.routing import Route
from uvicorn_worker import UvicornWorker  # type: ignore[import-untyped] # it shows none

from payments_async.ipn import DOCUMENTED_SENDERS, Receiver, TransactionSucceeded
from payments_async.journal import SqliteJournal

# What the environment says here is for trying it out: with the service, leave the senders alone.
senders = os.environ.get("SENDERS", "").split() or DOCUMENTED_SENDERS
journal = SqliteJournal(os.environ.get("INBOX", "notifications.sqlite"))
receiver = Receiver(journal, senders, trusted_proxies=["127.0.0.1"])


class Worker(UvicornWorker):  # type: ignore[misc] # of no type
    """As gunicorn starts it; uvicorn's own command line has options for this."""

    CONFIG_KWARGS: ClassVar[dict[str, Any]] = {**UvicornWorker.CONFIG_KWARGS, "proxy_headers": False}


@receiver.on(TransactionSucceeded)
async def settled(event: TransactionSucceeded) -> None:
    """Money has moved. `event.fact_id` is the same if this runs again: write it down with what you do."""
    print(f"{event.request_id}: {event.amount} {event.currency_code} has moved", flush=True)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """In each worker: open what was made before the fork; at its end, finish what is under way."""
    async with journal, receiver:
        yield


app = FastAPI(lifespan=lifespan)
app.router.routes.append(Route("/ipn", receiver.asgi("/ipn")))
app.mount("/ipn", receiver.asgi())
