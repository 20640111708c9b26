"""The sandbox's page for people: what it holds and has sent, and buttons for what its control interface can do."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs
from aiohttp import web

from ._faults import ANSWERS, ENDINGS, Fault
from ._ledger import Execution, Status
from ._notifications import DeliveryAttempt
from ._quirks import FIXED, Quirks, choices_of
from ._service import Service
from ._spelling import write_json

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
