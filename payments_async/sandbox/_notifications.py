"""Notifications (IPN): one in every documented spelling, and who delivers them, tries again and gives up."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime

import aiohttp
import attrs

from ._clock import Clock, Scheduler
from ._ledger import Execution
from ._quirks import Quirks, Settings
from ._spelling import write_date, write_json

_HEADERS = {"Content-Type": "application/json", "User-Agent": "payments-sandbox"}
# Spec: "StatusCode | integer | 0 success, 1 processing, 2 error, others possible."
SUCCESS, PROCESSING, ERROR = 0, 1, 2
MESSAGES = {
    SUCCESS: "Transaction completed successfully",
    PROCESSING: "Transaction is being processed",
    ERROR: "Transaction failed",
}
_SNAKE = {
    "AccountId": "account_number",
    "SubscriptionId": "subscription_id",
    "TransactionId": "transaction_id",
    "BatchId": "batch_id",
    "RequestId": "client_referenceId",
    "StatusMessage": "status_message",
    "StatusCode": "status_code",
    "CorrelationId": "correlation_id",
    "CreatedOn": "created_on",
    "Amount": "amount",
}


@attrs.frozen(kw_only=True)
class Notice:
    """One notification to deliver.

    Attributes:
        status_code: 0 success, 1 processing, 2 error.
        attempt: Which try this is at this notification, from 1.
        number: Which delivery this is for its transaction, from 1.
        then: The notification that follows once this one was answered or given up.
    """

    execution: Execution
    status_code: int
    attempt: int = 1
    number: int = 1
    then: "Notice | None" = None

    def again(self) -> "Notice":
        """Return the same notification for another try."""
        return attrs.evolve(self, attempt=self.attempt + 1, number=self.number + 1)

    def next(self) -> "Notice | None":
        """Return what follows this notification, numbered on."""
        return None if self.then is None else attrs.evolve(self.then, number=self.number + 1)


def notification_query(notice: Notice, settings: Settings) -> dict[str, str]:
    """Return the query string. # Spec: "transactionId, subscriptionId, accountId, requestId, Amount (double)"."""
    execution, quirks = notice.execution, settings.quirks
    if not quirks.ipn_query:
        return {"requestId": execution.request_id} if quirks.ipn_request_id == "query" else {}
    return {
        "transactionId": execution.transaction_id,
        "subscriptionId": str(settings.subscription_id),
        "accountId": str(settings.account.number),
        "requestId": execution.request_id,
        "Amount": f"{execution.amount:f}",
    }


def notification_body(notice: Notice, settings: Settings) -> dict[str, object]:
    """Return the JSON body in the spelling the quirks ask for."""
    execution, quirks = notice.execution, settings.quirks
    members: dict[str, object] = {
        "AccountId": _id(settings.account.number, quirks),
        "SubscriptionId": _id(settings.subscription_id, quirks),
        "TransactionId": execution.transaction_id,
        "BatchId": execution.batch_id,
        "RequestId": execution.request_id,
        "StatusMessage": MESSAGES.get(notice.status_code, "Transaction was reversed"),
        "StatusCode": notice.status_code,
        "CorrelationId": correlation_id(execution.transaction_id),
        "CreatedOn": write_date(execution.created_on, quirks.ipn_date),
        "Amount": execution.amount,
        "CurrencyCode": settings.account.currency,
    }
    if quirks.ipn_request_id != "body":
        del members["RequestId"]
    return _spelled(members, execution, quirks)


def correlation_id(transaction_id: str) -> str:
    """Return what ties the answers about one transaction together."""
    return f"corr-{transaction_id}"


def _spelled(members: Mapping[str, object], execution: Execution, quirks: Quirks) -> dict[str, object]:
    body: dict[str, object] = {}
    match quirks.ipn_spelling:
        case "pascal":
            body = dict(members)
        case "camel":
            body = {name[0].lower() + name[1:]: value for name, value in members.items()}
        case "snake":
            body = {_SNAKE[name]: value for name, value in members.items() if name in _SNAKE}
    if quirks.ipn_request_id == "reference" or (quirks.ipn_spelling == "camel" and quirks.ipn_request_id == "body"):
        created_on = write_date(execution.created_on, "iso")
        body["requestReference"] = {"createdOn": created_on, "requestId": execution.request_id}
    return body


def _id(number: int, quirks: Quirks) -> str | int:
    return str(number) if quirks.ipn_ids == "string" else number


@attrs.frozen(kw_only=True)
class DeliveryAttempt:
    """One try to deliver a notification.

    Attributes:
        url: With the query string.
        status: The HTTP status of the answer, or None without one.
        n: Which delivery it was for its transaction, from 1.
    """

    request_id: str
    url: str
    body: bytes
    status: int | None
    at: datetime
    n: int


class Notifier:
    """Deliver notifications to the one IPN URL there is.

    # Spec: "A transaction counts as complete only when the client's IPN URL has answered with HTTP 200."
    # Spec: "Delivery retries and timeouts: not shown."
    """

    def __init__(
        self, settings: Settings, clock: Clock, scheduler: Scheduler, *, answered: Callable[[str], object], keep: int
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._scheduler = scheduler
        self._answered = answered
        self._waiting: deque[Notice] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._http: aiohttp.ClientSession | None = None
        self.url: str | None = None
        self.deliveries: deque[DeliveryAttempt] = deque(maxlen=keep)
        self.delivered = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is being delivered. What waits for its next try is the scheduler's business."""
        return self._idle.is_set()

    def send(self, notice: Notice) -> None:
        """Deliver a notification as soon as there is room; without an IPN URL it is dropped."""
        if self.url is None or self._http is None:
            return
        self._waiting.append(notice)
        self._idle.clear()
        self._hire()

    async def deliver(self, notice: Notice) -> None:
        """Try once to deliver a notification, and arrange what follows from the answer."""
        if (url := self.url) is None:
            return
        status = await self._post(url, notice)
        if status == 200:
            self.delivered += 1
            if notice.status_code != 1:
                self._answered(notice.execution.transaction_id)
        elif notice.attempt < self._settings.redelivery.attempts:
            doubled = self._settings.redelivery.wait_initial * 2.0 ** min(notice.attempt - 1, 60)
            wait = min(self._settings.redelivery.wait_max, doubled)
            self._scheduler.after(wait, lambda: self.send(notice.again()))
            return
        if following := notice.next():
            self.send(following)

    async def join(self) -> None:
        """Wait until nothing is being delivered."""
        await self._idle.wait()

    async def start(self) -> None:
        """Open the HTTP session that carries the deliveries."""
        connector = aiohttp.TCPConnector(limit=self._settings.redelivery.concurrency)
        timeout = aiohttp.ClientTimeout(total=self._settings.redelivery.timeout)
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=_HEADERS)

    async def close(self) -> None:
        """Drop whatever is still to be delivered and close the HTTP session."""
        await self.clear()
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def clear(self) -> None:
        """Stop all deliveries and forget those made."""
        self._waiting.clear()
        workers = tuple(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self.deliveries.clear()
        self.delivered = 0

    async def _work(self) -> None:
        while self._waiting:
            await self.deliver(self._waiting.popleft())

    def _hire(self) -> None:
        if len(self._workers) < self._settings.redelivery.concurrency:
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._finished)

    def _finished(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if self._waiting:  # it came after this worker had looked for the last time
            self._hire()
        elif not self._workers:
            self._idle.set()

    async def _post(self, url: str, notice: Notice) -> int | None:
        if self._http is None:
            return None
        body = write_json(notification_body(notice, self._settings)).encode()
        query = notification_query(notice, self._settings)
        at, sent_to, status = self._clock.now(), url, None
        try:
            # a redirect is no 200, and following one would hide that from whoever runs the receiver
            async with self._http.post(url, params=query, data=body, allow_redirects=False) as answer:
                await answer.read()
                sent_to, status = str(answer.request_info.url), answer.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            status = None
        if self.deliveries.maxlen:
            self.deliveries.append(
                DeliveryAttempt(
                    request_id=notice.execution.request_id,
                    url=sent_to,
                    body=body,
                    status=status,
                    at=at,
                    n=notice.number,
                )
            )
        return status
