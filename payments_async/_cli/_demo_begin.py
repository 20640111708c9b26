"""How a demo begins: with what an unfinished one left, if that can still be judged, or anew. Sends nothing."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path

import attrs
from rich.markup import escape

from payments_async._cli._demo_place import Place, Trial
from payments_async._cli._demo_service import DemoService, Started
from payments_async._cli._exits import BadInput
from payments_async._cli._program import command_line
from payments_async._cli._rehearsal import BATCH, Setup
from payments_async._cli._screen import Screen
from payments_async._cli._trouble import Faults
from payments_async.ipn import Receiver, serving
from payments_async.journal import SqliteJournal, State

__all__ = ["CONCURRENCY", "FAULTS", "FOLDER", "SEED", "Begun", "begun", "go_on_with", "new_trial", "unfinished"]

SEED, FAULTS, CONCURRENCY, FOLDER = 1, Faults.SOME, 50, Path("payments-async-demo")
_HOST = "127.0.0.1"
_GONE = (
    "The simulated service of the unfinished run is gone: it ends with this machine, or when nobody has asked it for "
    "ten minutes. What it did is gone with it, so that run cannot be judged any more."
)


@attrs.frozen(kw_only=True)
class Begun:
    """A demo with all it needs.

    Attributes:
        started: The service, where this process has started it; it lives on after us.
    """

    journal: SqliteJournal
    trial: Trial
    service: DemoService
    started: Started | None


def new_trial(setup: Setup, file: Path | None) -> Trial:
    """A demo of which nothing has happened yet."""
    return Trial(
        file=None if file is None else str(file), digest=setup.digest, seed=setup.seed, faults=setup.faults,
        began=f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}", token=secrets.token_urlsafe(18),
    )  # fmt: skip


async def unfinished(screen: Screen, place: Place, setup: Setup, *, fresh: bool) -> Trial | None:
    """The demo to go on with; ``None`` when one is to begin anew, and there is room for it.

    Raises:
        BadInput: There is one, and it is not the one that was asked for.
    """
    last = place.last()
    if last is None:
        return None
    service = last.service
    if last.finished or service is None or not (fresh or await _is_loaded(place)):
        await _end(service)
        place.clear()  # it was judged, or nothing of it was sent
        return None
    if not fresh and await service.is_there():
        _check(place, last, setup)
        await _say_standing(screen, place, last)
        return last
    await _end(service)
    aside = place.keep_aside(last.began)
    screen.say(f"[bold yellow]{'An unfinished run was there.' if fresh else _GONE}[/]")
    screen.say(f"Beginning anew; its journal is kept in {escape(str(aside))}.")
    return None


@asynccontextmanager
async def begun(screen: Screen, setup: Setup, place: Place, trial: Trial) -> AsyncIterator[Begun]:
    """Open the journal, listen for notifications at the address of this demo, and have a service.

    Raises:
        BadInput: Somebody else has the port for notifications by now.
    """
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(SqliteJournal(place.journal, state_folder=None))
        receiver = Receiver(journal, senders=[_HOST], path_token=trial.token, owner="payments-async demo")
        try:
            _, port = await stack.enter_async_context(serving(receiver, _HOST, trial.port))
        except OSError as error:
            raise BadInput(
                f"port {trial.port}, where the notifications of the unfinished run come to, cannot be listened on "
                f"({error.strerror}); end what listens there, or begin anew with --fresh"
            ) from error
        started = None
        if trial.service is None:
            url = f"http://{_HOST}:{port}/ipn/{trial.token}"
            screen.say("[dim]starting the service, in a process of its own[/]")
            started = _start(setup, place, url)
            stack.callback(started.leave)
            trial = attrs.evolve(trial, service=await started.introduced(), port=port)
            place.note(trial)
        assert trial.service is not None
        yield Begun(journal=journal, trial=trial, service=trial.service, started=started)


def go_on_with(file: str | None, *, seed: int, faults: Faults, concurrency: int, folder: Path) -> str:
    """The command that goes on with a demo, without what it does by itself."""
    chosen: dict[str, object] = {"seed": seed, "faults": faults, "concurrency": concurrency, "dir": folder}
    usual: dict[str, object] = {"seed": SEED, "faults": FAULTS, "concurrency": CONCURRENCY, "dir": FOLDER}
    return command_line(
        "demo", file=file, **{name: None if value == usual[name] else value for name, value in chosen.items()}
    )


def _start(setup: Setup, place: Place, ipn_url: str) -> Started:
    return Started(
        seed=setup.seed, faults=setup.faults, balance=setup.opening_balance, currency=setup.currency, ipn_url=ipn_url,
        log=place.log,
    )  # fmt: skip


async def _is_loaded(place: Place) -> bool:
    """Whether anything can have been sent: what is not loaded as a whole never is."""
    if not place.journal.exists():
        return False
    async with SqliteJournal(place.journal, state_folder=None) as journal:
        return any(run.batch_id == BATCH and run.ready for run in await journal.runs())


async def _end(service: DemoService | None) -> None:
    if service is not None:
        await service.end()


def _check(place: Place, last: Trial, setup: Setup) -> None:
    differing = {
        "--file": last.digest != setup.digest,
        "--seed": last.seed != setup.seed,
        "--faults": last.faults is not setup.faults,
    }
    if names := [name for name, differs in differing.items() if differs]:
        again = go_on_with(
            last.file, seed=last.seed, faults=last.faults, concurrency=setup.concurrency, folder=place.folder
        )
        raise BadInput(
            f"{', '.join(names)}: not as in the run of {last.began} that is unfinished in {place.folder}. To finish "
            f"that:\n  {again}\n  or begin anew with --fresh; its journal is kept then"
        )


async def _say_standing(screen: Screen, place: Place, last: Trial) -> None:
    async with SqliteJournal(place.journal, state_folder=None) as journal:
        counts = (await journal.progress(BATCH)).counts
    standing = ", ".join(f"{counts[state]:,} {state}" for state in State if counts[state])
    screen.say(f"[bold yellow]Going on with the unfinished run of {last.began}:[/] {standing}")
