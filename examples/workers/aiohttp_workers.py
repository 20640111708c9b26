"""A receiver in an aiohttp application with several worker processes, made before they are forked.

In this folder::

    gunicorn --preload --workers 2 --worker-class aiohttp.GunicornWebWorker --bind 127.0.0.1:8080 aiohttp_workers:app

Making a journal and a receiver opens nothing, so that both may be made before a fork; each worker opens them for
itself. They share the inbox: a notification is one event whichever worker it reaches, and one of them handles it. What
one held that dies, another one takes over. Put nginx in front (`ipn_behind_nginx`): how long headers may take is the
server's affair, and here nobody limits it.
"""

import os
from collections.abc import AsyncIterator

from aiohttp import web

from payments_async.ipn import DOCUMENTED_SENDERS, Receiver, TransactionSucceeded
from payments_async.journal import SqliteJournal

# What the environment says here is for trying it out: with the service, leave the senders alone.
senders = os.environ.get("SENDERS", "").split() or DOCUMENTED_SENDERS
journal = SqliteJournal(os.environ.get("INBOX", "notifications.sqlite"))
receiver = Receiver(journal, senders, trusted_proxies=["127.0.0.1"])


@receiver.on(TransactionSucceeded)
async def settled(event: TransactionSucceeded) -> None:
    """Money has moved. `event.fact_id` is the same if this runs again: write it down with what you do."""
    print(f"{event.request_id}: {event.amount} {event.currency_code} has moved", flush=True)


async def opened(_: web.Application) -> AsyncIterator[None]:
    """In each worker: open what was made before the fork; at its end, finish what is under way."""
    async with journal, receiver:
        yield


app = web.Application()
app.cleanup_ctx.append(opened)
app.add_subapp("/ipn", receiver.app())
