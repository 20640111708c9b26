"""A receiver in a Flask application. It sends itself one notification, shows what it got, and ends.

In a view of Django it is the same call; `receiver.wsgi()` is a whole application for any WSGI server. Under gunicorn
open the receiver in each worker, in `post_worker_init`, and close it in `worker_exit`:

    opened = contextlib.ExitStack()
    def post_worker_init(worker): opened.enter_context(receiver.in_thread(journal))
    def worker_exit(server, worker): opened.close()
"""

import json
import logging
import queue
import tempfile
import threading
import urllib.request
from pathlib import Path

from flask import Flask, Response, request
from werkzeug.serving import make_server

from payments_async.ipn import Receiver, TransactionSucceeded
from payments_async.journal import SqliteJournal

journal = SqliteJournal(Path(tempfile.mkdtemp()) / "payments.sqlite")
receiver = Receiver(journal, senders=["127.0.0.1"])  # the documented senders are the default; here it is this process
heard: queue.SimpleQueue[str] = queue.SimpleQueue()
app = Flask(__name__)


@receiver.on(TransactionSucceeded)
async def paid(event: TransactionSucceeded) -> None:
    """Money has moved."""
    heard.put(f"{event.request_id}: {event.amount} {event.currency_code} has moved")


@app.post("/ipn")
def ipn() -> Response:
    """Answered once the notification is on disk."""
    query = request.query_string.decode()
    answer = receiver.take_sync(request.get_data(), query, request.headers, request.remote_addr)
    return Response(answer.body, answer.status, dict(answer.headers))


def main() -> None:
    """Serve on a free port, notify once, stop."""
    body = {"transactionId": "t-1", "requestId": "r-1", "statusCode": 0, "amount": 150000, "currencyCode": "UGX"}
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # an access log would hold the query: accounts and amounts
    with receiver.in_thread(journal), make_server("127.0.0.1", 0, app, threaded=True) as server:
        threading.Thread(target=server.serve_forever).start()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/ipn", json.dumps(body).encode()) as answer:
            print(answer.status, answer.read().decode())
        print(heard.get(timeout=60))
        server.shutdown()


if __name__ == "__main__":
    main()
