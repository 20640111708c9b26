"""The sandbox as its users see it: a server to open, to trouble and to question, in Python and over HTTP."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs
from aiohttp import web

from ._app import application
from ._clock import Clock, ManualClock, SystemClock
from ._faults import ANSWERS, ENDINGS, Fault, Target
from ._ledger import Execution, Status
from ._notifications import DeliveryAttempt
from ._quirks import FIXED, Quirks, Redelivery, SandboxAccount, SandboxServer, Settings, choices_of, switched
from ._service import APP_KEY, APP_PASSWORD, USER_ID, Received, Service
from ._spelling import read_json, write_json

_PLAIN_READING = Quirks()
_IDLE = 365 * 86_400.0  # seconds


class Sandbox:
    """The whole service, simulated: `async with` serves it, `app()` mounts it elsewhere.

    Durations are seconds of the sandbox's clock, except `Redelivery.timeout`, which is of the computer's.

    Args:
        quirks: Which reading of the specification to follow.
        clock: A `ManualClock` for tests that must not sleep; the computer's clock by default.
        seed: Decides transaction ids, tokens and everything left to chance.
        processing_delay: From acceptance to the end of an order.
        ipn_url: Where notifications go; None sends none.
        redelivery: How often and how patiently a notification is tried.
        account: What it holds, and who may use it.
        server: Where it is served.
        fast: For load tests. Orders end at once, the ledger is compact (no beneficiary, no message), no request and no
            delivery is remembered.

    >>> sandbox = Sandbox(processing_delay=2.0)
    >>> sandbox.script(Fault.LOST_AFTER, on="money")
    """

    def __init__(
        self,
        *,
        quirks: Quirks = _PLAIN_READING,
        clock: Clock | None = None,
        seed: int = 0,
        processing_delay: float = 0.05,
        ipn_url: str | None = None,
        redelivery: Redelivery = Redelivery(),  # noqa: B008 - frozen
        account: SandboxAccount = SandboxAccount(),  # noqa: B008 - frozen
        server: SandboxServer = SandboxServer(),  # noqa: B008 - frozen
        fast: bool = False,
    ) -> None:
        for name, given, kind in (
            ("redelivery", redelivery, Redelivery),
            ("account", account, SandboxAccount),
            ("server", server, SandboxServer),
        ):
            if not isinstance(given, kind):
                raise TypeError(f"{name}: expected {kind.__name__}(...), not {type(given).__name__}")
        self._prefix = server.prefix.rstrip("/")
        self._host, self._port, self._tls = server.host, server.port, server.ssl
        if clock is not None and not hasattr(clock, "now"):
            raise TypeError(f"clock: expected a clock, such as ManualClock(), not {type(clock).__name__}")
        self._clock = SystemClock() if clock is None else clock
        settings = Settings(
            quirks=quirks,
            seed=seed,
            processing_delay=processing_delay,
            redelivery=redelivery,
            account=account,
            fast=fast,
        )
        self._service = Service(settings, self._clock)
        self._service.notifier.url = ipn_url
        self._runner: web.AppRunner | None = None
        self._end = asyncio.Event()

    async def __aenter__(self) -> Self:
        # a clock that is moved ahead by days must not hang up on whoever is about to use an idle connection again
        self._runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=0.1, keepalive_timeout=_IDLE)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        self._port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def app(self) -> web.Application:
        """Return an application to mount elsewhere. Only one application of a sandbox may run at a time."""
        return application(self._service, self._prefix, _control_routes(self, self._prefix), self._lifetime)

    @property
    def base_url(self) -> str:
        """Where the service is, with the prefix and without a trailing slash."""
        if self._runner is None:
            raise RuntimeError("the sandbox is not open: use `async with Sandbox() as sandbox`")
        scheme, host = "https" if self._tls else "http", f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self._port}{self._prefix}"

    @property
    def app_key(self) -> str:
        """The application key that may log in."""
        return APP_KEY

    @property
    def app_password(self) -> str:
        """The password of the application key."""
        return APP_PASSWORD

    @property
    def user_id(self) -> str:
        """The delegated user."""
        return USER_ID

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment of a program that is to use it: address and credentials, as ``from_env`` takes them."""
        return {
            "PAYMENTS_BASE_URL": self.base_url,
            "PAYMENTS_APP_KEY": self.app_key,
            "PAYMENTS_APP_PASSWORD": self.app_password,
            "PAYMENTS_USER_ID": self.user_id,
        }

    @property
    def ipn_url(self) -> str | None:
        """Where notifications go; may be set at any time, and holds for those not yet sent."""
        return self._service.notifier.url

    @ipn_url.setter
    def ipn_url(self, url: str | None) -> None:
        self._service.notifier.url = url

    @property
    def balance(self) -> Decimal:
        """What the account holds; what is reserved for orders under way is still in it."""
        return self._service.balance

    @balance.setter
    def balance(self, balance: Decimal) -> None:
        self._service.balance = balance

    @property
    def quirks(self) -> Quirks:
        """Which reading of the specification it follows."""
        return self._service.settings.quirks

    def switch(self, quirk: str, value: object) -> None:
        """Follow another reading in one point from now on.

        Raises:
            ValueError: There is no such quirk, it holds from the opening on, or has no such value.
        """
        self._service.settings.quirks = switched(self.quirks, quirk, value)

    def end_now(self, transaction_id: str, *, fails: bool = False) -> None:
        """End an order that is under way, well or not; it is notified as ever.

        Raises:
            ValueError: It is not under way.
        """
        self._service.end_now(transaction_id, fails=fails)

    def put_off(self, transaction_id: str, seconds: float) -> None:
        """Let an order that is under way end so many seconds from now.

        Raises:
            ValueError: It is not under way.
        """
        self._service.put_off(transaction_id, seconds)

    def reverse(self, transaction_id: str) -> None:
        """Reverse an order that has ended well.

        Raises:
            ValueError: It has not.
        """
        self._service.reverse_now(transaction_id)

    def notify_again(self, transaction_id: str) -> None:
        """Notify once more of how a transaction stands.

        Raises:
            ValueError: There is no such transaction, no address to notify, or no notification of its state.
        """
        self._service.notify_again(transaction_id)

    @property
    def ledger(self) -> Sequence[Execution]:
        """Everything carried out, oldest first."""
        return self._service.ledger

    @property
    def requests(self) -> list[Received]:
        """The latest requests, refused ones included, oldest first; none in fast mode."""
        return list(self._service.requests)

    @property
    def deliveries(self) -> list[DeliveryAttempt]:
        """The latest tries to deliver notifications, in the order they ended; none in fast mode."""
        return list(self._service.notifier.deliveries)

    @property
    def delivered(self) -> int:
        """How many notifications were answered with 200; counted in fast mode too."""
        return self._service.notifier.delivered

    @property
    def logins(self) -> int:
        """How often somebody logged in."""
        return self._service.access.logins

    @property
    def scripts_pending(self) -> int:
        """How many scripts have not yet struck as often as they were told to."""
        return self._service.faults.pending

    def executions(self, request_id: str) -> int:
        """Return how often this requestId was carried out, however that ended."""
        return self._service.ledger.executions(request_id)

    def duplicates(self) -> list[str]:
        """Return the requestIds that were carried out more than once."""
        return self._service.ledger.duplicates()

    def script(
        self,
        fault: Fault,
        *,
        times: int | None = 1,
        on: Target | None = None,
        request_id: str | None = None,
        **options: Any,
    ) -> None:
        """Let a fault strike the next calls that match.

        Args:
            times: How many of them; None is for ever.
            on: Which calls; "money" is payouts and collections, None is all.
            request_id: Only orders with this requestId.
            options: What the fault is told; see `Fault`.

        Raises:
            ValueError: There is no such operation or option, or the fault cannot strike there.
        """
        self._service.faults.script(fault, times=times, on=on, request_id=request_id, options=options)

    def chaos(self, rates: Mapping[Fault, float], *, seed: int | None = None, **options: Any) -> None:
        """Give faults a chance to strike orders; replaces what was said before, and `{}` ends it.

        An order is struck according to a hash of seed, fault and requestId, so the same orders meet the same trouble
        in whatever order they come. A fault of the answer strikes an order once: sent again, it gets through.

        Args:
            rates: The probability of each fault, from 0 to 1.
            seed: Another seed than the sandbox's.
            options: What the faults are told; each takes those it knows.

        Raises:
            ValueError: A rate is not a probability, or no fault knows the option.
        """
        self._service.faults.chaos(rates, seed=seed, options=options)

    def end(self) -> None:
        """Let `ended` return. It closes nothing itself."""
        self._end.set()

    async def ended(self, *, idle: float | None = None) -> None:
        """Wait until `end` is called, here or over HTTP.

        Args:
            idle: Seconds without any request, after which it is not waited for any longer.
        """
        if idle is None:
            await self._end.wait()
            return
        self._service.note_asked()
        loop = asyncio.get_running_loop()
        waits = {loop.create_task(self._end.wait()), loop.create_task(self._idle(idle))}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()

    async def reset(self) -> None:
        """Go back to the beginning; `ipn_url` and the clock stay."""
        await self._service.reset()

    async def settle(self, timeout: float = 10.0) -> None:
        """Wait until every order has ended and every notification was answered or given up.

        A `ManualClock` is moved forward as far as that takes.

        Args:
            timeout: Seconds of the computer's clock.

        Raises:
            TimeoutError: It took longer.
        """
        scheduler, notifier = self._service.scheduler, self._service.notifier
        async with asyncio.timeout(timeout):
            while scheduler.next_due is not None or not notifier.idle:
                await notifier.join()
                if not self._step():
                    await scheduler.join()

    async def advance(self, seconds: float) -> None:
        """Move the `ManualClock` forward, letting everything due on the way happen at its own time.

        Notifications that become due are delivered before the clock moves on.

        Raises:
            RuntimeError: The sandbox runs on another clock.
        """
        if not isinstance(self._clock, ManualClock):
            raise RuntimeError("only a ManualClock can be advanced: Sandbox(clock=ManualClock())")
        service, target = self._service, self._clock.after(seconds)
        await service.notifier.join()
        while (due := service.scheduler.next_due) is not None and due <= target:
            self._step()
            await service.notifier.join()
        self._clock.advance_to(target)

    async def _idle(self, seconds: float) -> None:
        """Wait until nobody has asked anything for so long."""
        while (left := seconds - (self._clock.now() - self._service.asked_at).total_seconds()) > 0:
            await self._clock.sleep(left)

    def _step(self) -> bool:
        """Move a ManualClock to whatever is due next, and let it happen."""
        if not isinstance(self._clock, ManualClock):
            return False
        if (due := self._service.scheduler.next_due) is not None:
            self._clock.advance_to(due)
            self._service.scheduler.run_due()
        return True

    async def _lifetime(self, app: web.Application) -> AsyncIterator[None]:
        service = self._service
        await service.notifier.start()
        scheduler = asyncio.get_running_loop().create_task(service.scheduler.run())
        yield
        scheduler.cancel()
        with suppress(asyncio.CancelledError):
            await scheduler
        await service.notifier.close()
        service.scheduler.clear()


# The control interface under /_sandbox/; what each of them takes and gives is in the docstring of the package.
_CONTROL = {
    "GET": ("state", "executions/{request_id}", "ledger", "quirks"),
    "POST": ("faults", "chaos", "ipn", "advance", "settle", "reset", "end", "quirks", "transactions/{transaction_id}"),
}


def _control_routes(sandbox: Sandbox, prefix: str) -> list[web.RouteDef]:
    """Return the routes of the control interface, which is not a part of the simulated service, and of its page."""
    page = Page(sandbox._service)
    shown = {"": page.whole, "live": page.live, "page.css": asset("page.css"), "page.js": asset("page.js")}
    return [
        web.RouteDef(method, f"{prefix}/_sandbox/{path}", _handler(sandbox, method, path.partition("/")[0]), {})
        for method, paths in _CONTROL.items()
        for path in paths
    ] + [web.RouteDef("GET", f"{prefix}/_sandbox/{path}", handler, {}) for path, handler in shown.items()]


def _handler(sandbox: Sandbox, method: str, command: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        sandbox._service.note_asked()
        if method == "POST" and not _is_welcome(request):
            return web.Response(status=403, text=write_json({"error": "this came from a page of another site"}))
        try:
            payload = read_json(await request.read() or b"{}")
            if not isinstance(payload, dict):
                raise TypeError("the body must be a JSON object")
            answer, status = await _answer(sandbox, f"{method} {command}", request, payload), 200
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            answer, status = {"error": str(error)}, 400
        return web.Response(status=status, text=write_json(answer), content_type="application/json")

    return handle


def _is_welcome(request: web.Request) -> bool:
    """Programs say no origin, and the page its own; a browser says that of any other page."""
    origin = request.headers.get("Origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("Host")


async def _answer(sandbox: Sandbox, command: str, request: web.Request, body: Mapping[str, Any]) -> object:
    """Answer a question, or carry out an order."""
    match command:
        case "GET state":
            return _state(sandbox)
        case "GET quirks":
            return attrs.asdict(sandbox.quirks)
        case "GET executions":
            return {"executions": sandbox.executions(request.match_info["request_id"])}
        case "GET ledger":
            return _ledger(sandbox, int(request.query.get("offset", "0")), int(request.query.get("limit", "1000")))
        case "POST transactions":
            _steer(sandbox, request.match_info["transaction_id"], body)
            return {}
        case "POST settle":
            return {"settled": await _is_settled(sandbox, float(body.get("timeout", 10.0)))}
        case _:
            await _obey(sandbox, command.removeprefix("POST "), body)
            return {}


async def _obey(sandbox: Sandbox, command: str, body: Mapping[str, Any]) -> None:
    match command:
        case "quirks":
            for name, value in body.items():
                sandbox.switch(name, value)
        case "faults":
            fault = Fault(str(body["fault"]).lower())
            which = {"on": body.get("on"), "request_id": body.get("request_id")}
            sandbox.script(fault, times=body.get("times", 1), **which, **_options(body))
        case "chaos":
            rates = {Fault(fault.lower()): float(rate) for fault, rate in body["rates"].items()}
            sandbox.chaos(rates, seed=body.get("seed"), **_options(body))
        case "ipn":
            if not isinstance(body["url"], str | None):
                raise TypeError("url must be a string or null")
            sandbox.ipn_url = body["url"]
        case "advance":
            await sandbox.advance(float(body["seconds"]))
        case "reset":
            await sandbox.reset()
        case "end":
            sandbox.end()
        case _:
            raise AssertionError(f"no command is called {command}")


def _steer(sandbox: Sandbox, transaction_id: str, body: Mapping[str, Any]) -> None:
    """Do something about one transaction."""
    match body["do"]:
        case "settle":
            sandbox.end_now(transaction_id)
        case "fail":
            sandbox.end_now(transaction_id, fails=True)
        case "delay":
            sandbox.put_off(transaction_id, float(body["seconds"]))
        case "reverse":
            sandbox.reverse(transaction_id)
        case "repeat":
            sandbox.notify_again(transaction_id)
        case other:
            raise ValueError(f"do is settle, fail, delay, reverse or repeat, not {other!r}")


async def _is_settled(sandbox: Sandbox, timeout: float) -> bool:
    try:
        await sandbox.settle(timeout)
    except TimeoutError:
        return False
    return True


def _state(sandbox: Sandbox) -> dict[str, object]:
    return {
        "executions": len(sandbox.ledger),
        "duplicates": sandbox.duplicates(),
        "balance": sandbox.balance,
        "logins": sandbox.logins,
        "requests": len(sandbox.requests),
        "deliveries": len(sandbox.deliveries),
        "delivered": sandbox.delivered,
        "scripts_pending": sandbox.scripts_pending,
        "ipn_url": sandbox.ipn_url,
    }


def _ledger(sandbox: Sandbox, offset: int, limit: int) -> dict[str, object]:
    if offset < 0 or limit < 0:
        raise ValueError("offset and limit count from 0")
    return {"total": len(sandbox.ledger), "executions": [_row(one) for one in sandbox.ledger[offset : offset + limit]]}


def _row(execution: Execution) -> dict[str, object]:
    return {
        "transaction_id": execution.transaction_id,
        "request_id": execution.request_id,
        "batch_id": execution.batch_id,
        "amount": execution.amount,
        "kind": execution.kind,
        "status": execution.status,
        "created_on": execution.created_on.isoformat(),
        "answered": execution.answered,
    }


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    # a duration that came as an exact number is needed as a plain one
    options = body.get("options") or {}
    return {name: float(value) if name == "seconds" else value for name, value in options.items()}


if TYPE_CHECKING:
    from jinja2 import Environment

_SHOWN = 50  # transactions, and notifications, the latest ones
_RATES = (0.0, 0.05, 0.25, 1.0)
_MISSING = "This page needs jinja2: pip install jinja2. The control interface works without.\n"
_TYPES = {"css": "text/css", "js": "text/javascript"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
Handler = Callable[[web.Request], Awaitable[web.Response]]


@attrs.frozen(kw_only=True)
class ShownExecution:
    """One transaction on the page, and what can be done about it."""

    execution: Execution
    times: int
    deeds: tuple[str, ...]


@attrs.frozen(kw_only=True)
class ShownDelivery:
    """One notification on the page."""

    attempt: DeliveryAttempt
    body: str


@attrs.frozen(kw_only=True)
class ShownQuirk:
    """One switch on the page.

    Attributes:
        choices: The values it has; none where it takes a number or a word.
    """

    name: str
    value: object
    choices: tuple[object, ...]
    is_changed: bool


class Page:
    """Shows one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def whole(self, request: web.Request) -> web.Response:
        """The page."""
        return self._answer(request, "page.html")

    async def live(self, request: web.Request) -> web.Response:
        """What changes on it; nothing where that is what it shows already."""
        return self._answer(request, "live.html")

    def _answer(self, request: web.Request, template: str) -> web.Response:
        self._service.note_asked()
        try:
            text = _environment().get_template(template).render(self._values())
        except ModuleNotFoundError:
            return web.Response(status=501, text=_MISSING)
        tag = f'"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"'
        headers = {**_HEADERS, "ETag": tag}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(text=text, content_type="text/html", headers=headers)

    def _values(self) -> Mapping[str, Any]:
        service = self._service
        ledger, notifier = service.ledger, service.notifier
        latest = [ledger[row] for row in range(len(ledger) - 1, max(-1, len(ledger) - 1 - _SHOWN), -1)]
        return {
            "balance": service.balance,
            "currency": service.settings.account.currency,
            "count": len(ledger),
            "twice": len(ledger.duplicates()),
            "executions": [self._shown(one) for one in latest],
            "deliveries": [_delivery(one) for one in islice(reversed(notifier.deliveries), _SHOWN)],
            "delivered": notifier.delivered,
            "ipn_url": notifier.url,
            "keeps_deliveries": bool(notifier.deliveries.maxlen),
            "faults": [(_family(fault), fault.value, service.faults.chances.get(fault, 0.0)) for fault in Fault],
            "rates": _RATES,
            "scripts": service.faults.scripts,
            "quirks": [one for field in attrs.fields(Quirks) if (one := self._quirk(field.name, field.default))],
        }

    def _shown(self, execution: Execution) -> ShownExecution:
        deeds: list[str] = []
        if self._service.is_under_way(execution.transaction_id):
            deeds += ["settle", "fail", "delay"]
        if execution.status is Status.SUCCESSFULL:
            deeds.append("reverse")
        if self._service.notifier.url is not None:
            deeds.append("repeat")
        times = self._service.ledger.executions(execution.request_id)
        return ShownExecution(execution=execution, times=times, deeds=tuple(deeds))

    def _quirk(self, name: str, default: object) -> ShownQuirk | None:
        value = getattr(self._service.settings.quirks, name)
        if name in FIXED or isinstance(default, tuple):
            return None
        return ShownQuirk(name=name, value=value, choices=choices_of(name), is_changed=value != default)


def asset(name: str) -> Handler:
    """What serves a style or a script of the page."""

    async def handle(request: web.Request) -> web.Response:
        text = files(f"{__package__}._templates").joinpath(name).read_text(encoding="utf-8")
        return web.Response(text=text, content_type=_TYPES[name.rpartition(".")[2]], headers=_HEADERS)

    return handle


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader(str(__package__), "_templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"money": _money, "moment": _moment, "json": write_json}
    return made


def _money(amount: object) -> str:
    return f"{amount:,f}"


def _moment(at: datetime) -> str:
    return f"{at:%H:%M:%S}"


def _delivery(attempt: DeliveryAttempt) -> ShownDelivery:
    return ShownDelivery(attempt=attempt, body=attempt.body.decode("utf-8", "replace"))


def _family(fault: Fault) -> str:
    if fault in ANSWERS:
        return "answer"
    return "ending" if fault in ENDINGS else "notification"
