"""The sender of notifications: delivers, tries again, gives up. Decides nothing about transactions."""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime

import aiohttp
import attrs

from . import _json
from ._clock import Clock
from ._notices import Notice, Sender, notification_body, notification_query
from ._quirks import Quirks
from ._scheduler import Scheduler

_HEADERS = {"Content-Type": "application/json", "User-Agent": "payments-sandbox"}


@attrs.frozen(kw_only=True)
class Delivery:
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


@attrs.frozen(kw_only=True)
class DeliveryPolicy:
    """How often and how patiently notifications are delivered.

    # Spec: "Delivery retries and timeouts: not shown."

    Attributes:
        attempts: Tries at one notification before it is given up.
        wait_initial: Seconds before the second try; every further wait is twice as long.
        wait_max: Seconds of the longest wait.
        timeout: Seconds, of the computer's clock, for an answer.
        concurrency: Deliveries under way at once.
    """

    attempts: int = 5
    wait_initial: float = 0.2
    wait_max: float = 60.0
    timeout: float = 5.0
    concurrency: int = 20


class Notifier:
    """Deliver notifications to the one IPN URL there is.

    # Spec: "A transaction counts as complete only when the client's IPN URL has answered with HTTP 200."
    """

    def __init__(
        self, *, clock: Clock, scheduler: Scheduler, quirks: Quirks, sender: Sender, policy: DeliveryPolicy,
        answered: Callable[[str], object], keep: int,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._scheduler = scheduler
        self._quirks = quirks
        self._sender = sender
        self._policy = policy
        self._answered = answered
        self._waiting: deque[Notice] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._http: aiohttp.ClientSession | None = None
        self.url: str | None = None
        self.deliveries: deque[Delivery] = deque(maxlen=keep)
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
        elif notice.attempt < self._policy.attempts:
            doubled = self._policy.wait_initial * 2.0 ** min(notice.attempt - 1, 60)
            wait = min(self._policy.wait_max, doubled)
            self._scheduler.after(wait, lambda: self.send(notice.again()))
            return
        if following := notice.next():
            self.send(following)

    async def join(self) -> None:
        """Wait until nothing is being delivered."""
        await self._idle.wait()

    async def start(self) -> None:
        """Open the HTTP session that carries the deliveries."""
        connector = aiohttp.TCPConnector(limit=self._policy.concurrency)
        timeout = aiohttp.ClientTimeout(total=self._policy.timeout)
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
        if len(self._workers) < self._policy.concurrency:
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
        body = _json.write(notification_body(notice, self._sender, self._quirks)).encode()
        query = notification_query(notice, self._sender, self._quirks)
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
                Delivery(
                    request_id=notice.execution.request_id,
                    url=sent_to,
                    body=body,
                    status=status,
                    at=at,
                    n=notice.number,
                )
            )
        return status
