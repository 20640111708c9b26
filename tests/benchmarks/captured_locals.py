"""How often secrets and persons are in what error reports show of failed payouts, by each tool that is installed.

    python tests/benchmarks/captured_locals.py

Twelve faults of an order and of a login are reported to sentry-sdk and structlog (``dict_tracebacks``) with their
defaults, where they are installed, and to a reader that takes apart the local variables of every frame. Each figure
should be 0. The last line is the control: the same reader on a frame that holds a token, which it must find.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parent.parent))

from session.captured import captured
from session.wires import EMAIL, NAME, PHONE, SECRET, Request, Wire, payout, reply

from payments_async import PaymentsSession, RetryPolicy

TOKEN = "-".join(["token", "gannet", "5577"])  # put together, so that a line of this file is no hit
HIDDEN = {
    "password": SECRET.app_password, "application key": SECRET.app_key, "token": TOKEN, "name": NAME,
    "telephone number": PHONE, "e-mail address": EMAIL,
}  # fmt: skip
Report = Callable[[BaseException], str]


def answering(value: bytes | None) -> Callable[[Request], Awaitable[bytes | None]]:
    """The same answer to all."""

    async def answer(_: Request) -> bytes | None:
        return value

    return answer


async def never(_: Request) -> bytes | None:
    """Do not answer."""
    await asyncio.Event().wait()
    return None


ANSWERS = (
    answering(None),
    answering(reply({"code": 7, "message": f"Token {TOKEN} is not valid"}, 400)),
    answering(reply({"code": 7, "message": f"{SECRET.app_key}, {SECRET.app_password}"}, 401)),
    answering(reply({}, 500)),
    answering(b"\x00 no HTTP\r\n\r\n"),
    never,
)


async def failures() -> AsyncIterator[BaseException]:
    """What payouts end with, when the answer to the order or to the login is one of these."""
    for answer in ANSWERS:
        for of_login in (False, True):
            async with Wire(answer) as wire:
                wire.login = answer if of_login else answering(reply({"Token": TOKEN, "success": True}))
                settings: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=0.2)}
                async with PaymentsSession(
                    wire.base_url, SECRET, retry=RetryPolicy(attempts=1), **settings
                ) as payments:
                    try:
                        await payments.payouts.send(payout())
                    except Exception as error:  # noqa: BLE001 - that is what is looked at
                        yield error


def sentry() -> Report:
    """What sentry-sdk would send."""
    import sentry_sdk

    events: list[Any] = []
    sentry_sdk.init(dsn="http://key@127.0.0.1/1", before_send=lambda event, _: events.append(event))

    def report(error: BaseException) -> str:
        sentry_sdk.capture_exception(error)
        return json.dumps(events.pop(), default=repr)

    return report


def structlog() -> Report:
    """What structlog would write."""
    import structlog as tool

    def report(error: BaseException) -> str:
        written = io.StringIO()
        processors = [tool.processors.dict_tracebacks, tool.processors.JSONRenderer()]
        tool.wrap_logger(tool.PrintLogger(written), processors=processors).error("failed", exc_info=error)
        return written.getvalue()

    return report


async def main() -> None:
    """Print a line for each tool."""
    tools: dict[str, Report] = {"every frame": captured}
    tools |= {name: make() for name, make in (("sentry_sdk", sentry), ("structlog", structlog)) if find_spec(name)}
    shown = dict.fromkeys(tools, "")
    count = 0
    async for error in failures():
        count += 1
        for name, report in tools.items():
            shown[name] += report(error)
    for name, text in shown.items():
        hits = ", ".join(f"{what} {text.count(str(hidden))}" for what, hidden in HIDDEN.items())
        print(f"{name:12s} {count} errors, {len(text)} characters: {hits}")
    print(f"control: token {captured(KeyError(TOKEN)).count(TOKEN)}")


if __name__ == "__main__":
    asyncio.run(main())
