"""`--notify`: a program or an address hears that a run has ended, was stopped or needs a person, or that a plan waits.

What they hear names no person and holds no secret; whether they hear it changes nothing about the run.
"""

import asyncio
import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Annotated

import typer
from yarl import URL

from payments_async import PaymentsError
from payments_async._cli.exit_codes import BadInput, Declined, Exit
from payments_async._cli.http import exchange
from payments_async._cli.remedies import exit_of
from payments_async._cli.screen import Screen, clean, plain

Notify = Annotated[
    str | None,
    typer.Option(
        "--notify",
        metavar="CMD|URL",
        help="Tell this program (JSON on its standard input) or address (POST) when it ends, stops or needs a person.",
    ),
]
NotifyApprover = Annotated[
    str | None,
    typer.Option(
        "--notify",
        metavar="CMD|URL",
        help="With --maker: tell this program (JSON on its standard input) or address (POST) that it waits.",
    ),
]
_PATIENCE = 10.0  # seconds for one telling
_EVENTS: Mapping[int, str] = {
    Exit.FINE: "ended",
    Exit.FAILED: "ended",
    Exit.UNKNOWN: "needs a person",
}


class Teller:
    """Tells one program, or one address.

    Attributes:
        facts: What is told beside the event: counts, sums, names of batches; no persons.
    """

    def __init__(self, screen: Screen, target: str, facts: Mapping[str, object]) -> None:
        self.facts = dict(facts)
        self._screen = screen
        self._target = target
        self._status: int | None = None
        self._needs: Mapping[str, int] = {}
        self._under_way: asyncio.Task[None] | None = None

    def ended(self, status: Exit) -> Exit:
        """Note how it has ended; it is told once the command is through."""
        self._status = status
        return status

    async def tell_end(self, error: BaseException | None = None) -> None:
        """Tell how it has ended, once."""
        await self._told()
        status = _status_of(error) if error is not None else self._status
        facts: dict[str, object] = {"exit_status": status}
        if error is not None:
            facts["error"] = type(error).__name__
            if isinstance(error, PaymentsError):
                facts["stopped"] = str(error)
        await self.tell("stopped" if status is None else _EVENTS.get(status, "stopped"), facts)

    def note_needs(self, needs: Mapping[str, int], *, hinders: str | None = None) -> None:
        """Tell, beside what goes on, that more needs a person than before.

        Args:
            needs: What needs one, and how much of it there is.
            hinders: What keeps it from going on, in words.
        """
        if self._under_way is not None and not self._under_way.done():
            return  # what has come up meanwhile is told with the next look
        more = {name: count for name, count in needs.items() if count > self._needs.get(name, 0)}
        self._needs = dict(needs)
        if more:
            found: dict[str, object] = {"needs": {name: count for name, count in needs.items() if count}}
            if hinders is not None:
                found["hinders"] = clean(hinders)
            self._under_way = asyncio.ensure_future(self.tell("needs a person", found))

    async def _told(self) -> None:
        """Wait for what is being told, which takes no longer than it may."""
        if self._under_way is not None:
            await self._under_way

    async def tell(self, event: str, facts: Mapping[str, object]) -> None:
        """Tell of an event; what hinders that is a note."""
        if not self._target:
            return
        known = {"event": event, "at": datetime.now(UTC), "machine": socket.gethostname(), **self.facts, **facts}
        body = json.dumps(plain(known)).encode()
        try:
            async with asyncio.timeout(_PATIENCE):
                problem = await (_post if _is_address(self._target) else _run)(self._target, body)
        except TimeoutError:
            problem = f"no end after {_PATIENCE:g} s"
        except (OSError, ValueError) as error:
            problem = str(error) or type(error).__name__
        if problem is not None:
            self._screen.note(f"--notify: {clean(problem)}; the notice may be lost that it {_WORDS.get(event, event)}")


_WORDS = {"ended": "has ended", "stopped": "was stopped"}


@asynccontextmanager
async def telling(screen: Screen, target: str | None, command: str, **facts: object) -> AsyncIterator[Teller]:
    """Tell somebody how the block ends: by what it says with ``ended``, or by what it raises.

    Raises:
        BadInput: The target is neither a program nor an address.
    """
    if target is not None:
        check_target(target)
    teller = Teller(screen, target or "", {"command": command, **facts})
    try:
        yield teller
    except BaseException as error:
        if isinstance(error, Declined):
            teller.ended(Exit.STOPPED)
        await teller.tell_end(None if isinstance(error, Declined) else error)
        raise
    await teller.tell_end()


async def tell_waiting(screen: Screen, target: str, command: str, **facts: object) -> None:
    """Tell once that something waits for an approval."""
    teller = Teller(screen, target, {"command": command, **facts})
    await teller.tell("waits for approval", {})


def check_target(target: str) -> None:
    """Raise ``BadInput`` where the target is neither a program nor an address."""
    try:
        is_good = URL(target).host is not None if _is_address(target) else bool(_words(target))
    except ValueError:
        is_good = False
    if not is_good:
        raise BadInput("--notify: name a program, with what it is given, or an address as in https://example.org/hear")


def printed(target: str | None) -> str | None:
    """What is told, fit for a command that is printed: an address often holds a secret, in its path or its password."""
    if target is None or not _is_address(target):
        return target
    return f"{URL(target).origin()}/***"


def _is_address(target: str) -> bool:
    return target.lower().startswith(("http://", "https://"))


def _status_of(error: BaseException) -> int:
    """The exit status that this error will be."""
    if isinstance(error, BadInput):
        return Exit.BAD_INPUT
    if isinstance(error, PaymentsError):
        return exit_of(error)
    return 1 if isinstance(error, Exception) else Exit.STOPPED


async def _post(address: str, body: bytes) -> str | None:
    """Post it; tells what went wrong."""
    answer = await exchange("POST", URL(address), body=body, timeout=_PATIENCE)
    return None if answer.status in range(200, 300) else f"the address answered {answer.status}"


def _words(command: str, *, system: str = sys.platform) -> list[str]:
    """The words of a command line; on Windows a backslash parts folders, and hides no letter."""
    if system == "win32":
        return [word.strip('"') for word in shlex.split(command, posix=False)]
    return shlex.split(command)


async def _run(command: str, body: bytes) -> str | None:
    """Run a program that reads it; tells what went wrong. It hears none of our settings, for some are secret."""
    words = _words(command)
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,  # ours may be read by a machine
        env={name: value for name, value in os.environ.items() if not name.startswith("PAYMENTS_")},
        start_new_session=True,  # Ctrl-C is for us, and a program that hangs is ended with all that it began
    )
    try:
        await process.communicate(body)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                if sys.platform == "win32":  # there are no groups of processes
                    process.kill()
                else:
                    os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return None if process.returncode == 0 else f"{words[0]} ended with status {process.returncode}"
