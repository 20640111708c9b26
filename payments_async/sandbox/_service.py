"""The service itself: who may log in, and the life of an order from acceptance to its last notification."""

import hashlib
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Context, Decimal
from functools import partial
from random import Random

import attrs

from ._cards import Cards
from ._clock import Clock, Scheduler
from ._faults import Fault, FaultPlan, Strike
from ._ledger import Execution, Ledger, Status
from ._notifications import ERROR, PROCESSING, SUCCESS, Notice, Notifier
from ._orders import Order
from ._quirks import Settings
from ._spelling import Code, Refusal, required_text

EXACT = Context(prec=100)  # the default of 28 digits would round a great balance
_KEPT = 100_000  # requests and deliveries remembered as evidence
_CODES: Mapping[Status, int | None] = {Status.SUCCESSFULL: SUCCESS, Status.FAILED: ERROR}

APP_KEY = "demo-app-key"
APP_PASSWORD = "demo-app-password"
USER_ID = "demo-user"


@attrs.frozen(kw_only=True)
class _UnderWay:
    """An order that was accepted and has not ended: what will strike it, and the ticket of its end."""

    ending: Strike | None
    noticing: Strike | None
    ticket: int


@attrs.frozen(kw_only=True)
class Received:
    """One request as it came over the wire."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    at: datetime


class Service:
    """All state of the sandbox, and what happens to an order.

    No method that touches the ledger or the money waits for anything, so an execution and its bookkeeping are one step
    of the event loop.

    Attributes:
        asked_at: When the last request came.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        kept = 0 if settings.fast else _KEPT
        self.settings = settings
        self.clock = clock
        self.scheduler = Scheduler(clock)
        self.faults = FaultPlan(settings.seed)
        self.cards = Cards()
        self.access = Access(settings, clock)
        self.notifier = Notifier(settings, clock, self.scheduler, answered=self._answered, keep=kept)
        self.requests: deque[Received] = deque(maxlen=kept)
        self.asked_at = clock.now()
        self._begin()

    def _begin(self) -> None:
        settings = self.settings
        self.balance = settings.account.balance
        self._reserved = Decimal(0)
        self._under_way: dict[str, _UnderWay] = {}
        self.ledger = Ledger(
            seed=settings.seed, compact=settings.fast, holds_until_answered=settings.quirks.final_after_answer
        )
        self._first_page_version = 0
        self._shifts = Random(settings.seed)
        self._readings = 0  # of a list of transactions
        self._young: deque[tuple[int, int]] = deque()  # rows no list shows yet, and the readings when they came

    def note_asked(self) -> None:
        """A request has come."""
        self.asked_at = self.clock.now()

    async def reset(self) -> None:
        """Go back to the beginning: no orders, no faults, no tokens, no evidence, the first balance."""
        self.scheduler.clear()
        await self.notifier.clear()
        self.scheduler.clear()  # a delivery that was just stopped may have arranged its next try
        self.faults.clear()
        self.access.reset()
        self.cards.reset()
        self.requests.clear()
        self._begin()

    def carry_out(self, order: Order) -> tuple[Execution, Notice | None]:
        """Accept an order, and arrange everything that follows from it.

        Returns:
            The execution, and a notification that must be answered before the order is.

        Raises:
            Refusal: The requestId was used before (as the quirks say), or the balance does not suffice.
        """
        if earlier := self.ledger.first_of(order.request_id):
            match self.settings.quirks.repeated_request_id:
                case "refuse_400":
                    raise Refusal(400, Code.REPEATED, "requestId was used before")
                case "same_transaction":
                    return earlier, None
                case "accept":
                    pass
        self._reserve(order)
        if self.settings.quirks.listed_after:
            self._young.append((len(self.ledger), self._readings))
        execution = self.ledger.add(order, at=self.clock.now())
        ending = self.faults.ending(order.kind, order.request_id)
        noticing = self.faults.notice(order.kind, order.request_id)
        if self.settings.fast or (noticing and noticing.fault is Fault.NOTIFY_EARLY):
            return execution, self._end(execution.transaction_id, ending, noticing)
        self._end_after(execution.transaction_id, self.settings.processing_delay, ending, noticing)
        return execution, None

    def is_under_way(self, transaction_id: str) -> bool:
        """Whether an order was accepted and has not ended."""
        return transaction_id in self._under_way

    def end_now(self, transaction_id: str, *, fails: bool = False) -> None:
        """End an order that is under way, well or not; it is notified as ever.

        Raises:
            ValueError: It is not under way.
        """
        order = self._taken(transaction_id)
        self._end(transaction_id, Strike(Fault.FAILS, {}) if fails else None, order.noticing)

    def put_off(self, transaction_id: str, seconds: float) -> None:
        """Let an order that is under way end so many seconds from now.

        Raises:
            ValueError: It is not under way.
        """
        if seconds < 0:
            raise ValueError("seconds count from 0")
        order = self._taken(transaction_id)
        self._end_after(transaction_id, seconds, order.ending, order.noticing)

    def reverse_now(self, transaction_id: str) -> None:
        """Reverse an order that has ended well.

        Raises:
            ValueError: It has not.
        """
        execution = self.ledger.find(transaction_id)
        if execution is None or execution.status is not Status.SUCCESSFULL:
            raise ValueError("only a transaction that has succeeded can be reversed")
        self._reverse(transaction_id)

    def notify_again(self, transaction_id: str) -> None:
        """Notify once more of how a transaction stands.

        Raises:
            ValueError: There is no such transaction, no address to notify, or no notification of its state.
        """
        execution = self.ledger.find(transaction_id)
        if execution is None:
            raise ValueError("there is no such transaction")
        if self.notifier.url is None:
            raise ValueError("there is no IPN URL; set one first")
        code = _CODES.get(execution.status, PROCESSING)
        if execution.status is Status.REVERSED:
            code = self.settings.quirks.ipn_reversal_code
        if code is None:
            raise ValueError("a reversal has no notification; the quirk ipn_reversal_code gives it one")
        earlier = [one.n for one in self.notifier.deliveries if one.request_id == execution.request_id]
        self.notifier.send(Notice(execution=execution, status_code=code, number=max(earlier, default=0) + 1))

    def _taken(self, transaction_id: str) -> _UnderWay:
        order = self._under_way.get(transaction_id)
        if order is None:
            raise ValueError("this transaction is not under way")
        self.scheduler.drop(order.ticket)
        return order

    def _end_after(self, transaction_id: str, seconds: float, ending: Strike | None, noticing: Strike | None) -> None:
        ticket = self.scheduler.after(seconds, partial(self._end, transaction_id, ending, noticing))
        self._under_way[transaction_id] = _UnderWay(ending=ending, noticing=noticing, ticket=ticket)

    def page_shift(self, number: int) -> int:
        """Return by how many rows this page of transactions begins too late: -1, 0 or 1."""
        if number == 1:
            self._first_page_version = self.ledger.version
        unstable = self.settings.quirks.unstable_pages and self.ledger.version != self._first_page_version
        return self._shifts.choice((-1, 1)) if unstable else 0

    def listed(self) -> int:
        """Return how many transactions a list shows that is read now, the oldest first."""
        self._readings += 1
        late = self.settings.quirks.listed_after
        while self._young and self._young[0][1] + late < self._readings:
            self._young.popleft()
        return self._young[0][0] if self._young else len(self.ledger)

    def _reserve(self, order: Order) -> None:
        if order.kind == "collection":
            return
        if order.amount > EXACT.subtract(self.balance, self._reserved):
            raise Refusal(400, Code.BALANCE, "amount exceeds the available balance")
        self._reserved = EXACT.add(self._reserved, order.amount)

    def _end(self, transaction_id: str, ending: Strike | None, noticing: Strike | None) -> Notice | None:
        self._under_way.pop(transaction_id, None)
        failed = ending is not None and ending.fault is Fault.FAILS
        ended = self.ledger.change(transaction_id, status=Status.FAILED if failed else Status.SUCCESSFULL)
        if ended.kind == "payout":
            self._reserved = EXACT.subtract(self._reserved, ended.amount)
        if not failed:
            self._move(ended, forward=True)
        if ending is not None and ending.fault is Fault.REVERSED:
            self.scheduler.after(ending.options["seconds"], partial(self._reverse, transaction_id))
        return self._announce(Notice(execution=ended, status_code=ERROR if failed else SUCCESS), noticing)

    def _reverse(self, transaction_id: str) -> None:
        reversed_ = self.ledger.change(transaction_id, status=Status.REVERSED)
        self._move(reversed_, forward=False)
        if (code := self.settings.quirks.ipn_reversal_code) is not None:
            self.notifier.send(Notice(execution=reversed_, status_code=code, number=2))

    def _move(self, execution: Execution, *, forward: bool) -> None:
        out = (execution.kind == "payout") is forward
        self.balance = (EXACT.subtract if out else EXACT.add)(self.balance, execution.amount)

    def _announce(self, final: Notice, noticing: Strike | None) -> Notice | None:
        match noticing:
            case None:
                self.notifier.send(final)
            case Strike(fault=Fault.NOTIFY_EARLY):
                return final
            case Strike(fault=Fault.NOTIFY_LATE, options=options):
                self.scheduler.after(options["seconds"], partial(self.notifier.send, final))
            case Strike(fault=Fault.NOTIFY_REPEATED, options=options):
                self.notifier.send(_repeated(final, int(options["copies"])))
            case Strike(fault=Fault.NOTIFY_REORDERED):
                self.notifier.send(attrs.evolve(final, then=attrs.evolve(final, status_code=PROCESSING)))
            case Strike(fault=Fault.NOTIFY_LOST):
                pass
            case Strike(fault=fault):
                raise AssertionError(f"{fault.name} is no fault of a notification")
        return None

    def _answered(self, transaction_id: str) -> None:
        self.ledger.change(transaction_id, answered=True)


def _repeated(notice: Notice, copies: int) -> Notice:
    chain = notice
    for _ in range(copies - 1):
        chain = attrs.evolve(notice, then=chain)
    return chain


class Access:
    """The door of the service.

    # Spec: "The token is valid for 60 minutes"
    # Spec: "A request without authentication fails with HTTP 401 Unauthorized."

    Attributes:
        logins: How often somebody logged in.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._issued = 0
        self._expiry: dict[str, datetime] = {}
        self._refresh_tokens: set[str] = set()
        self.logins = 0

    def reset(self) -> None:
        """Forget every token and every login."""
        self.revoke()
        self.logins = 0

    def revoke(self) -> None:
        """Make every token issued so far invalid."""
        self._expiry.clear()
        self._refresh_tokens.clear()

    def admit(self, peer: str | None) -> None:
        """Let a call from this address in. # Spec: "The application's IP address must be whitelisted".

        Raises:
            Refusal: The address is not whitelisted; login is refused like everything else.
        """
        if self._settings.account.allowed_peers is not None and peer not in self._settings.account.allowed_peers:
            raise Refusal(403, Code.FORBIDDEN, "This address is not whitelisted")

    def authorise(self, header: str | None) -> None:
        """Let a call with this Authorization header in.

        Raises:
            Refusal: There is none, its scheme is not accepted, or its token is unknown or too old.
        """
        scheme, _, token = (header or "").partition(" ")
        expiry = self._expiry.get(token)
        if scheme not in self._settings.quirks.accepted_schemes or expiry is None or expiry <= self._clock.now():
            raise Refusal(401, Code.UNAUTHORISED, "Unauthorized", {"WWW-Authenticate": "Token"})

    def login(self, body: Mapping[str, object]) -> dict[str, object]:
        """Exchange credentials for a token.

        Raises:
            Refusal: A member is missing (400), or the credentials are wrong (401).
        """
        given = tuple(required_text(body, name) for name in ("appKey", "appPassword", "userId"))
        # Spec: "Spelled exactly so; true requests a refresh token." Nothing says that it is required.
        wants_refresh = body.get("includeRefereshToken", False)
        if not isinstance(wants_refresh, bool):
            raise Refusal(400, Code.MISSING, "includeRefereshToken must be a boolean")
        if given != (APP_KEY, APP_PASSWORD, USER_ID):
            raise Refusal(401, Code.UNAUTHORISED, "The application key, its password or the user is wrong")
        self.logins += 1
        return self._grant(wants_refresh)

    def refresh(self, body: Mapping[str, object]) -> dict[str, object]:
        """Exchange a refresh token, once, for a token.

        Raises:
            Refusal: The refresh token is missing (400) or unknown (401).
        """
        used = required_text(body, "refreshToken")
        if used not in self._refresh_tokens:
            raise Refusal(401, Code.UNAUTHORISED, "The refresh token is unknown")
        self._refresh_tokens.discard(used)
        return self._grant(wants_refresh=True)

    def _grant(self, wants_refresh: bool) -> dict[str, object]:
        now = self._clock.now()
        self._expiry = {token: expiry for token, expiry in self._expiry.items() if expiry > now}
        token = self._token("token")
        self._expiry[token] = now + timedelta(seconds=self._settings.account.token_lifetime)
        tokens: dict[str, object] = {"Token" if self._settings.quirks.token_key == "Token" else "token": token}
        if wants_refresh:
            refresh_token = self._token("refresh")
            self._refresh_tokens.add(refresh_token)
            tokens["refreshToken"] = refresh_token
        answer: dict[str, object] = {"data": tokens} if self._settings.quirks.token_key == "data.token" else tokens
        return {**answer, "success": True, "message": "Login was successful"}

    def _token(self, purpose: str) -> str:
        self._issued += 1
        digest = hashlib.blake2b(f"{self._settings.seed}:{purpose}:{self._issued}".encode(), digest_size=12).hexdigest()
        return f"demo-{purpose}-{self._issued}-{digest}"
