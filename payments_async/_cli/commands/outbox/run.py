"""`payments-async outbox run`: works an outbox until it is stopped."""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import attrs
import typer
from aiohttp import web
from rich.table import Table
from rich.text import Text

from payments_async._cli.batch_state import in_words, progress_document
from payments_async._cli.exit_codes import BadInput, Declined, Exit
from payments_async._cli.journal import (
    JournalFile,
    JournalPlace,
    SecondJournal,
    introduce,
    may_be_made,
    opened,
    seconded,
)
from payments_async._cli.limits import OutboxLimits, session_limits
from payments_async._cli.live_view import Display, line_of
from payments_async._cli.outbox_state import (
    NewJournal,
    OutboxName,
    check_new_outbox,
    health_document,
    metrics_of,
    moment,
)
from payments_async._cli.screen import Screen, clean, command_line, plain, quoted
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.signals import Stop, draining
from payments_async._cli.telling import Notify, Teller, printed, telling
from payments_async.journal import JournalError, JournalUnavailable, State
from payments_async.outbox import HealthProblem, Outbox, OutboxHealth, WorkerSettings

_LOOK = 0.5  # seconds between two looks
_QUIET = 10.0  # seconds between two lines in a pipe, unless it is paused, hindered, or goes on again
_RATE_OVER = 10.0  # seconds over which the speed is told
_HEALTH_WITHIN = 5.0  # seconds in which a question for the health is answered
_SILENT = 2.0  # seconds after which it is told that the journal does not answer
_LONG = 60.0  # seconds for which something hinders it before somebody is told


@attrs.frozen(kw_only=True)
class Work:
    """Which outbox is worked, and who hears of it."""

    journal: JournalFile = None
    name: OutboxName = "outbox"
    health: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Answer GET /health, /ready, /metrics at this port of this machine; 0: a free one."
        ),
    ] = None
    new_journal: NewJournal = False
    new_outbox: Annotated[
        bool, typer.Option("--new-outbox", help="Begin a further outbox in a journal that holds others.")
    ] = False
    second_journal: SecondJournal = None
    notify: Notify = None


@attrs.frozen(kw_only=True)
class Dispatch:
    """What hands out the chunks of batches, where the outbox does not take them by itself.

    Attributes:
        check: Refuses a journal that lacks what it needs.
        run: Hands them out until it is to stop.
        metrics: What it tells Prometheus.
        host: Where the health is asked for.
    """

    check: Callable[[Any], Awaitable[object]]
    run: Callable[[Outbox, asyncio.Event], Awaitable[None]]
    metrics: Callable[[Any], Awaitable[str]]
    host: str


async def outbox_run(
    screen: Screen,
    settings: ConnectionSettings,
    work: Work = Work(),
    limits: OutboxLimits = OutboxLimits(),
) -> Exit:
    """Work an outbox: send each of its orders once, and settle it, until Ctrl-C or SIGTERM.

    Orders come from applications that share the journal and from `outbox put`. Several processes may work one outbox;
    what one that died was sending is looked up, never sent again. A rule such as --max-per-day pauses it, for every
    process, until a person resumes it. The first Ctrl-C finishes what is under way; a second one breaks it off.

    With --health PORT, GET /health is 200 for as long as the process works, also while it is paused, and so for who
    would start it anew; GET /ready is 200 while orders are sent, for who has to be called. Both tell the same JSON. GET
    /metrics is for Prometheus.

    Example: payments-async outbox run --journal shop.sqlite --max-per-day 5000000 --health 8081
    """
    if (journal := seconded(work.journal, work.second_journal)) is None:
        raise BadInput("--journal: name the journal's file, or set PAYMENTS_JOURNAL; it is made if there is none")
    return await work_outbox(screen, settings, journal, work, limits, command="outbox run")


async def work_outbox(
    screen: Screen,
    settings: ConnectionSettings,
    journal: JournalPlace,
    work: Work,
    limits: OutboxLimits,
    *,
    command: str,
    dispatch: Dispatch | None = None,
) -> Exit:
    """Work an outbox until it is stopped, and tell what is left.

    Args:
        command: By which it goes on.
    """
    fuse, name = limits.fuse(), work.name
    session = settings.session(session_limits(limits))
    if not await may_be_made(screen, journal, is_wanted=work.new_journal):
        raise Declined("nothing was sent")
    async with telling(screen, work.notify, command, outbox=name, journal=str(journal)) as teller:
        try:
            async with opened(journal, new=True) as held, session as payments:
                introduce(screen, journal, held)
                await check_new_outbox(held, name, is_wanted=work.new_outbox)
                if dispatch is not None:
                    await dispatch.check(held)  # says now what it lacks
                outbox = Outbox(
                    payments,
                    held,
                    name,
                    concurrency=limits.concurrency,
                    rate=limits.rate,
                    fuse=fuse,
                    worker=WorkerSettings(claims_batches=dispatch is None),
                )
                stop = await _work_until_stopped(screen, outbox, work.health, dispatch, teller)
                left = await OutboxHealth.of(held, name)
        except JournalUnavailable as error:
            teller.facts["stopped"] = str(error)
            again = command_line(command, journal=journal, name=name, notify=printed(work.notify))
            screen.trouble(f"stopped: {error}", f"go on with: {again}")
            return teller.ended(_last_line(screen, Exit.STOPPED, {"stopped": str(error)}))
        progress = teller.facts["progress"] = progress_document(left.progress)
        how = "broken off: what was under way may have arrived, and is looked up" if stop.is_hard else "stopped"
        screen.say(f"{how}; {quoted(name)} holds {in_words(left.progress)}")
        status = Exit.STOPPED if stop.is_hard else Exit.FINE
        return teller.ended(_last_line(screen, status, {"stopped": how, "progress": progress}))


def _last_line(screen: Screen, status: Exit, facts: Mapping[str, object]) -> Exit:
    """Write how it ended, with ``--json`` on a line as all before; tells the exit status."""
    if screen.as_json:
        screen.line(json.dumps(plain({**facts, "exit_status": status})))
    return status


async def _work_until_stopped(
    screen: Screen, outbox: Outbox, port: int | None, dispatch: Dispatch | None, teller: Teller
) -> Stop:
    """Work until it is stopped, and finish what is under way."""
    host = "127.0.0.1" if dispatch is None else dispatch.host
    with draining(screen) as stop:
        try:
            async with _answering(outbox, host, port, dispatch) as at:
                await outbox.start()
                helping = None if dispatch is None else asyncio.ensure_future(dispatch.run(outbox, stop.drain))
                where = "" if at is None else f"; its health at http://{host}:{at}/health"
                screen.note(f"working the outbox {clean(outbox.name)}{where}; Ctrl-C stops")
                hindered = Hindrance()
                with _View(screen, outbox.name) as view:
                    while not stop.drain.is_set() and (helping is None or not helping.done()):
                        try:
                            async with asyncio.timeout(_SILENT):
                                now = await outbox.health()
                            view.show(now)
                            found = now.problem("hindered")
                            teller.note_needs(
                                {**now.needs, **hindered.needs(now)}, hinders=found.what if found else None
                            )
                        except JournalError as error:  # the outbox itself goes on trying
                            view.say_trouble(error.message)
                        except TimeoutError:
                            view.say_trouble(f"the journal has not answered for {_SILENT:g} s")
                        with suppress(TimeoutError):
                            async with asyncio.timeout(_LOOK):
                                await stop.drain.wait()
                await (outbox.aclose() if helping is None else helping)
        except asyncio.CancelledError:
            await _break_off(outbox)  # also where it was not being closed yet
            raise
        finally:
            await outbox.aclose()
    return stop


async def _break_off(outbox: Outbox) -> None:
    """Close an outbox without waiting for what is under way; what may have left is written down as unknown."""
    closing = asyncio.ensure_future(outbox.aclose())
    await asyncio.sleep(0)  # it has begun
    closing.cancel()
    await asyncio.wait([closing])


@asynccontextmanager
async def _answering(
    outbox: Outbox, host: str, port: int | None, dispatch: Dispatch | None
) -> AsyncIterator[int | None]:
    """Answer questions for the health; tells the port."""
    if port is None:
        yield None
        return

    async def answer(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_HEALTH_WITHIN):
                health = await outbox.health()
        except (JournalError, TimeoutError) as error:
            why = error.message if isinstance(error, JournalError) else "the journal does not answer"
            found = HealthProblem(code="hindered", count=1, what=why, what_to_do="look at the journal", stops=True)
            return web.json_response({"well": False, "problems": [found.document()]}, status=503)
        is_fine = request.path == "/health" or health.is_well
        return web.json_response(_document(health), status=200 if is_fine else 503)

    async def measure(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_HEALTH_WITHIN):
                jobs = "" if dispatch is None else f"{await dispatch.metrics(outbox.journal)}\n"
                return web.Response(text=f"{jobs}{metrics_of(await OutboxHealth.of(outbox.journal, outbox.name))}\n")
        except (JournalError, TimeoutError):
            return web.Response(status=503)

    app = web.Application()
    app.router.add_get("/metrics", measure)
    app.router.add_get("/health", answer)
    app.router.add_get("/ready", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            why = f"port {port} cannot be listened on ({error.strerror}); name another one"
            raise BadInput(f"--health: {why}") from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _document(health: OutboxHealth) -> dict[str, object]:
    """The health of an outbox, and what this process makes of it, for machines."""
    own = {"well": health.is_well, "settling": health.settling}
    return plain({**own, **health_document(health)})  # type: ignore[no-any-return]


class _View(Display):
    """Shows how an outbox does: a line that stays on a terminal, a line now and then in a pipe, JSON on request."""

    def __init__(self, screen: Screen, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(screen)
        self._name = name
        self._clock = clock
        self._health: OutboxHealth | None = None
        self._trouble: str | None = None
        self._told: tuple[str, str | None] = ("", None)
        self._told_at = float("-inf")
        self._ended: deque[tuple[float, int]] = deque()

    def show(self, health: OutboxHealth) -> None:
        """Take news."""
        self._health = health
        now, ended = self._clock(), health.progress.total - health.progress.counts[State.PLANNED]
        self._ended.append((now, ended))
        while self._ended[0][0] < now - _RATE_OVER:
            self._ended.popleft()
        self.say_trouble(_trouble_of(health))

    def say_trouble(self, why: str | None) -> None:
        """Say what hinders it, or that nothing does any more; in a pipe, now and then, how it stands as well."""
        self._trouble = why
        if self._live is not None:
            return
        words = self._words()
        is_due = words != self._told[0] and self._clock() - self._told_at >= _QUIET
        if why == self._told[1] and not is_due:
            return
        self._told, self._told_at = (words, why), self._clock()
        if self._screen.as_json:
            known = {} if self._health is None else _document(self._health)
            self._screen.line(json.dumps({"at": time.time(), **known, "trouble": why}))
        else:
            at = datetime.now(UTC).strftime("%H:%M:%S")
            self._screen.line(f"{at}  {words}{'' if why is None else f'; {why}'}")

    def _words(self) -> str:
        if self._health is None:
            return "beginning"
        return in_words(self._health.progress)

    def _draw(self) -> Table:
        whole = Table.grid()
        words = [(clean(self._name), "bold")]
        if self._health is not None:
            counts = self._health.progress.counts
            words += [(f"{state} {counts[state]:,}", state.meaning.colour) for state in State if counts[state]]
            words.append((f"{self._rate():,.0f}/s", "dim"))
        whole.add_row(line_of(words))
        if self._trouble is not None:
            whole.add_row(Text(clean(self._trouble), "yellow"))
        return whole

    def _rate(self) -> float:
        """Orders sent in a second, of late."""
        (first, before), (last, now) = self._ended[0], self._ended[-1]
        return max(now - before, 0) / (last - first) if last > first else 0.0


class Hindrance:
    """Knows since when an outbox is hindered: for a moment it often is, and nobody has to be called for that."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def needs(self, health: OutboxHealth) -> dict[str, int]:
        """Whether somebody has to see to it: the service is away, or refuses the credentials or this address."""
        if health.problem("hindered") is None:
            self._since = None
        elif self._since is None:
            self._since = self._clock()
        return {"hindered": int(self._since is not None and self._clock() - self._since >= _LONG)}


_TROUBLES = {
    "chunks_in_quarantine": "{} in quarantine",
    "batches_not_loaded": "not loaded whole: {}",
    "orders_untaken": "{}",
    "slowed": "{}",
}


def _trouble_of(health: OutboxHealth) -> str | None:
    """Why nothing is sent, in words."""
    if (paused := health.problem("paused")) is not None:
        return f"paused {paused.what}; `payments-async outbox resume` goes on"
    if (hindered := health.problem("hindered")) is not None:
        return hindered.what
    if health.pace.cools_until is not None:
        return f"the service asked for a pause: nothing is sent before {moment(health.pace.cools_until)}"
    for code, words in _TROUBLES.items():
        if (found := health.problem(code)) is not None:
            return f"{words.format(found.what)}: {found.what_to_do}"
    return None
