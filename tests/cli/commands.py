"""What tests of the command line share: the environment a command runs in, and what it left behind."""

import os
import pty
import select
from collections.abc import Awaitable, Callable, Mapping

import attrs
from cli.forks import Started, forks

from payments_async import Credentials, PaymentsSession, PayoutOrder
from payments_async.sandbox import Sandbox

Run = Callable[..., Awaitable["Ran"]]
CTRL_C = "\x03"
NO_SERVICE = "http://127.0.0.1:9"  # the discard port: nobody is there


@attrs.frozen
class Ran:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """All of its words, on one line."""
        return " ".join(f"{self.out} {self.err}".split())


def surroundings(sandbox: Sandbox | None, more: Mapping[str, str | None]) -> dict[str, str]:
    """An environment with the sandbox's settings; None takes one away."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PAYMENTS_", "NO_COLOR"))}
    settings: dict[str, str | None] = {"PYTHONWARNINGS": "error", "COLUMNS": "110"}
    if sandbox is not None:
        settings |= {
            "PAYMENTS_BASE_URL": sandbox.base_url,
            "PAYMENTS_APP_KEY": sandbox.app_key,
            "PAYMENTS_APP_PASSWORD": sandbox.app_password,
            "PAYMENTS_USER_ID": sandbox.user_id,
        }
    return {**kept, **{name: value for name, value in {**settings, **more}.items() if value is not None}}


async def started(sandbox: Sandbox | None, *arguments: str, both: bool = False, **settings: str) -> Started:
    """The command in a process of its own; with ``both`` its errors come with what it says."""
    return await Started.by(arguments, surroundings(sandbox, settings), both=both)


def checked(sandbox: Sandbox, settings: Mapping[str, str | None], ran: Ran) -> Ran:
    """What a command left behind; its password must not be in it."""
    for secret in {sandbox.app_password, settings.get("PAYMENTS_APP_PASSWORD") or sandbox.app_password}:
        assert secret not in ran.out + ran.err
    return ran


def _read(terminal: int, insists: str) -> bytes:
    """What a terminal shows next; until it shows something, one may insist on what was typed."""
    while insists and not select.select([terminal], [], [], 5.0)[0]:
        os.write(terminal, insists.encode())
    return os.read(terminal, 65536)


def is_asked(shown: str) -> bool:
    """Whether a terminal shows a question, and waits for the answer."""
    return shown.endswith(("[y/N] ", "Type the sum "))


async def send(sandbox: Sandbox, order: PayoutOrder) -> None:
    """Let a program of somebody else send an order, which no journal here knows."""
    credentials = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
    async with PaymentsSession(sandbox.base_url, credentials) as payments:
        await payments.payouts.send(order)


def on_terminal(
    arguments: tuple[str, ...],
    typed: str,
    environment: Mapping[str, str],
    meanwhile: Callable[[], object] | None = None,
    when: Callable[[str], bool] = is_asked,
    ahead: str = "",
) -> Ran:
    """Run a command on a terminal of its own, where a person types a line at each question.

    Ctrl-C is typed until it is heard: between the question and the reading of its answer it is not.

    Args:
        meanwhile: What happens at the first question, before a line is typed.
        when: What the terminal shows then: by default a question.
        ahead: What is typed as soon as the command starts.
    """
    ours, theirs = pty.openpty()
    told = os.fdopen(forks().begin(arguments, environment, theirs), "rb", buffering=0)
    told.readline()
    os.close(theirs)
    os.write(ours, ahead.encode())
    shown, lines = b"", typed.splitlines(keepends=True)
    try:
        while piece := _read(ours, typed if typed == CTRL_C and not lines else ""):
            shown += piece
            if not when(shown.decode(errors="replace")):
                continue
            if meanwhile is not None:
                meanwhile()
                meanwhile = None
            if lines:
                os.write(ours, lines.pop(0).encode())
    except OSError:  # what Linux answers once the other end is closed
        pass
    finally:
        os.close(ours)
    with told:
        assert select.select([told], [], [], 60.0)[0], "the command closed its terminal, and did not end"
        return Ran(int(told.read()), shown.decode(), "")
