"""The page of `payments-async bulk watch` as a server: for this machine, for whoever has its address.

Whoever may look is decided by the token in the address alone, so there is no cookie that another page could use. The
name that the browser asked for must be this machine's (a name of somebody else's that leads here is turned away), and
whatever decides comes from this very page: by its own address, and with a second token that is in its forms.
"""

import errno
import hashlib
import math
import os
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import attrs
from aiohttp import web

from payments_async._cli.agreement import signature
from payments_async._cli.screen import Screen, clean, command_line
from payments_async._cli.watch_state import NEEDS, Watch
from payments_async._cli.written import stem_of
from payments_async._pages.rendering import rendered, script, style
from payments_async.bulk import acknowledge, lift_quarantine, retry_file, send_again
from payments_async.journal import UNPAID, Journal, JournalError, JournalRefused

_LARGEST = 64 * 1024  # bytes of a form
_MOST_PAGES = 1000  # of ten orders
_LONGEST = 500  # characters of what somebody types
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, a browser would not say where a form comes from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@attrs.frozen(kw_only=True)
class Decision:
    """What somebody decided in a form: every part of it is there."""

    about: str
    who: str
    why: str


class WatchServer:
    """Serves the page of one journal.

    Args:
        place: What the journal is called on the page.
        decides: Whether the page may change anything.
        log: Hears of every decision, in words.
    """

    def __init__(self, journal: Journal, screen: Screen, *, place: str, decides: bool, log: Callable[[str], None]):
        self._journal = journal
        self._screen = screen
        self._watch = Watch(journal, screen)
        self._place = place
        self._decides = decides
        self._log = log
        self._token = secrets.token_urlsafe(24)
        self._form_token = secrets.token_urlsafe(24)
        self._hosts: frozenset[str] = frozenset()
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> str:
        """Serve on a port of this machine, 0 for a free one; tells the address.

        Raises:
            OSError: It is taken.
        """
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        if not self._runner.addresses:  # asyncio passes over an address for which it could open no socket
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        taken = int(self._runner.addresses[0][1])
        self._hosts = frozenset({f"127.0.0.1:{taken}", f"localhost:{taken}"})
        return f"http://127.0.0.1:{taken}/{self._token}/"

    async def aclose(self) -> None:
        """Serve no more."""
        await self._watch.aclose()
        if self._runner is not None:
            await self._runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._admit], client_max_size=_LARGEST)
        reads: Mapping[str, Handler] = {
            "": self._page,
            "live": self._live,
            "order": self._order,
            "orders": self._orders,
            "retry": self._retry,
            "quarantine": self._quarantine,
            "style.css": self._style,
            "watch.js": self._script,
        }
        for name, handler in reads.items():
            app.router.add_get(f"/{{token}}/{name}", handler)
        if self._decides:
            app.router.add_post("/{token}/send-again", self._send_again)
            app.router.add_post("/{token}/acknowledge", self._acknowledge)
            app.router.add_post("/{token}/retry-file", self._retry_file)
            app.router.add_post(
                "/{token}/replay", partial(self._replay, "event_id", self._journal.revive, "dead letter")
            )
            revived = partial(self._replay, "change_id", self._journal.revive_changes, "change")
            app.router.add_post("/{token}/replay-change", revived)
            app.router.add_post("/{token}/lift-quarantine", self._lift_quarantine)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._check(request)
            answer = await handler(request)
        except web.HTTPException as refusal:
            refusal.headers.update(_HEADERS)
            raise
        except JournalError as error:
            answer = self._refusal(409 if isinstance(error, JournalRefused) else 503, str(error))
        answer.headers.update(_HEADERS)
        return answer

    def _check(self, request: web.Request) -> None:
        """Turn away whoever this page is not for, with nothing said about why."""
        if request.headers.getall("Host", []) not in [[host] for host in self._hosts]:
            raise web.HTTPForbidden(text="this page is for this machine\n")
        # what is in the address comes as text of any kind, so it is compared as bytes
        if not secrets.compare_digest(request.match_info.get("token", "").encode(), self._token.encode()):
            raise web.HTTPNotFound(text="there is nothing here\n")
        if request.method == "POST" and request.headers.get("Origin") != f"http://{request.headers['Host']}":
            raise web.HTTPForbidden(text="this did not come from the page\n")

    async def _page(self, request: web.Request) -> web.Response:
        return _html(rendered("watch.html", await self._values(request)))

    async def _live(self, request: web.Request) -> web.Response:
        """What changes on the page; nothing where that is what the page shows already."""
        values = await self._values(request)
        text = rendered("watch_live.html", values)
        tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return _html(text, headers={"ETag": tag})

    async def _values(self, request: web.Request) -> dict[str, Any]:
        watched = await self._watch.look(request.query.get("batch") or None)
        return {**self._common(), "watched": watched}

    def _common(self) -> dict[str, Any]:
        return {
            "place": self._place,
            "decides": self._decides,
            "form_token": self._form_token if self._decides else "",
            "is_personal": self._screen.show_personal,
        }

    async def _order(self, request: web.Request) -> web.Response:
        found = await self._watch.order(request.query.get("id", ""))
        if found is None:
            return self._refusal(404, "The journal holds no such order.")
        return _html(rendered("watch_order.html", {**self._common(), "found": found, "seen": repr(found.seen)}))

    async def _orders(self, request: web.Request) -> web.Response:
        """Orders that are found by a person, or that need one: ten at a time."""
        text, need, number = (
            request.query.get("text", "").strip(),
            request.query.get("need", ""),
            request.query.get("page"),
        )
        page = min(int(number[:4]), _MOST_PAGES) if number and number.isdecimal() and int(number[:4]) else 1
        if text:
            found, query = await self._watch.found(text[:_LONGEST], page), {"text": text[:_LONGEST]}
        elif batch_id := request.query.get("batch", ""):
            reason = request.query.get("reason", "")
            shown = await self._watch.not_paid(batch_id, reason, page) if reason else []
            if not shown:
                return self._refusal(404, "No order of that batch is unpaid for that reason now.")
            found, query = shown[0], {"batch": batch_id, "reason": reason}
        elif need in NEEDS:
            found, query = await self._watch.needing(need, page), {"need": need}
        else:
            return self._refusal(404, "Name a person, a telephone number or a staff number.")
        return _html(rendered("watch_orders.html", {**self._common(), "found": found, "query": urlencode(query)}))

    async def _retry(self, request: web.Request) -> web.Response:
        name = request.query.get("batch", "")
        await self._journal.run(name)
        counts = (await self._journal.progress(name)).counts
        unpaid = {state.value: counts[state] for state in UNPAID if not state.meaning.was_paid}
        return _html(rendered("watch_retry.html", {**self._common(), "batch_id": name, "unpaid": unpaid}))

    async def _quarantine(self, request: web.Request) -> web.Response:
        found = await self._watch.quarantine(request.query.get("batch", ""))
        line = command_line("bulk reconcile", journal=self._place, batch_id=found.batch_id)
        values = {**self._common(), "found": found, "seen": repr(found.seen), "reconcile": line}
        return _html(rendered("watch_quarantine.html", values))

    async def _lift_quarantine(self, request: web.Request) -> web.Response:
        form = await self._form(request)
        made = _decision(form, "batch_id")
        found = await self._watch.quarantine(made.about)
        if found.awaits:
            return self._refusal(409, f"{found.awaits}: reconcile it until then. Nothing was changed.")
        lifted = await lift_quarantine(self._journal, made.about, signature(made.who), made.why, seen=_seen(form))
        if not lifted:
            return self._refusal(409, "Nothing of this batch is in quarantine, or it is in a newer one: look again.")
        self._tell(f"{lifted:,} chunks of {made.about} were let out of quarantine", made)
        raise web.HTTPSeeOther(f"./?batch={quote(made.about, safe='')}")

    async def _send_again(self, request: web.Request) -> web.Response:
        form = await self._form(request)
        made = _decision(form, "request_id")
        entry = await send_again(self._journal, made.about, signature(made.who), made.why, seen=_seen(form))
        self._tell(f"{entry.request_id} is {entry.state} again, and will be sent again", made)
        raise web.HTTPSeeOther(f"order?id={quote(entry.request_id, safe='')}")

    async def _acknowledge(self, request: web.Request) -> web.Response:
        form = await self._form(request)
        made = _decision(form, "request_id")
        entry = await acknowledge(self._journal, made.about, made.who, made.why, seen=_seen(form))
        self._tell(f"the contradiction about {entry.request_id} was acknowledged", made)
        raise web.HTTPSeeOther(f"order?id={quote(entry.request_id, safe='')}")

    async def _retry_file(self, request: web.Request) -> web.Response:
        """The file itself, for whoever said who they are: it names people in full."""
        made = _decision(await self._form(request), "batch_id")
        with tempfile.TemporaryDirectory() as folder:
            name = f"{stem_of(made.about)}-retry.csv"
            written = await retry_file(self._journal, made.about, Path(folder) / name)
            body = b"" if written.path is None else written.path.read_bytes()
        if written.path is None:
            return self._refusal(409, "Nothing to write: no order of this batch has surely stayed unpaid.")
        self._tell(f"{written.written.count:,} orders of {made.about} were taken as a retry file", made)
        disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        return web.Response(body=body, content_type="text/csv", headers={"Content-Disposition": disposition})

    async def _replay(
        self, field: str, revive: Callable[[int], Awaitable[int]], what: str, request: web.Request
    ) -> web.Response:
        """Have what handlers failed at handled again.

        Args:
            field: Of the form, with its number.
        """
        made = _decision(await self._form(request), field)
        if not made.about.isdecimal() or not await revive(int(made.about[:18])):
            return self._refusal(409, f"There is no such {what}; another person may have replayed it.")
        self._tell(f"the {what} {made.about} waits again", made)
        raise web.HTTPSeeOther("./")

    async def _form(self, request: web.Request) -> Mapping[str, str]:
        """What was typed, if it was typed on this page."""
        form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        if not secrets.compare_digest(form.get("form_token", "").encode(), self._form_token.encode()):
            raise web.HTTPForbidden(text="this did not come from the page\n")
        return form

    def _tell(self, what: str, made: Decision) -> None:
        self._log(f"{time.strftime('%H:%M:%S')}  {clean(what)}, as {clean(made.who)} states: {clean(made.why)}")

    def _refusal(self, status: int, words: str) -> web.Response:
        return _html(rendered("watch_refusal.html", {**self._common(), "words": words}), status=status)

    async def _style(self, request: web.Request) -> web.Response:
        return web.Response(text=style(), content_type="text/css")

    async def _script(self, request: web.Request) -> web.Response:
        return web.Response(text=script("watch.js"), content_type="text/javascript")


def _html(text: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", headers=headers)


def _decision(form: Mapping[str, str], about: str) -> Decision:
    """What a form says.

    Raises:
        HTTPBadRequest: It does not say who decides, or why, or about what.
    """
    made = Decision(about=form.get(about, ""), who=form.get("who", "").strip(), why=form.get("why", "").strip())
    if not made.about or not made.who or not made.why or max(len(made.who), len(made.why)) > _LONGEST:
        raise web.HTTPBadRequest(text="say who decides, and why; both are kept\n")
    return made


def _seen(form: Mapping[str, str]) -> float:
    """When the order that was looked at had last changed."""
    try:
        seen = float(form.get("seen", ""))
    except ValueError:
        seen = math.nan
    if not math.isfinite(seen):  # it would be equal to no moment, or later than all
        raise web.HTTPBadRequest(text="say what was seen\n")
    return seen
