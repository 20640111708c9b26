"""The simulated service of a demo, in a process that outlives it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
from yarl import URL

from payments_async import Credentials, Limits, PaymentsSession
from payments_async._cli.faults import SECONDS
from payments_async._cli.http import exchange

_IDLE = 600.0  # seconds without a request, after which it ends by itself
_TRIES = 350  # at one notification, 2 seconds apart: longer than that
_ROWS = 1000  # of the ledger at once
_GOODBYE = 5.0  # seconds


class ServiceGone(Exception):
    """The simulated service is not there any more, and what it knew is lost with it."""


@attrs.frozen(kw_only=True)
class LedgerRow:
    """One carrying out of one order, as the ledger has it."""

    request_id: str
    amount: Decimal
    status: str


@attrs.frozen(kw_only=True)
class ServiceBooks:
    """What the service has done.

    Attributes:
        ledger: All that was carried out, oldest first.
        balance: What is left in the account.
        notified: Notifications that were answered with 200.
    """

    ledger: tuple[LedgerRow, ...]
    balance: Decimal
    notified: int = 0


@attrs.frozen(kw_only=True)
class DemoService:
    """A sandbox in another process.

    Attributes:
        ipn_url: Where it was told to send notifications. It holds an unguessable word: whoever answers with it is it.
        pid: Of its process; for people, who may want to look.
    """

    base_url: str
    app_key: str
    app_password: str = attrs.field(repr=False)
    user_id: str
    ipn_url: str
    pid: int

    def session(self, concurrency: int) -> PaymentsSession:
        """An unopened session with it."""
        credentials = Credentials(app_key=self.app_key, app_password=self.app_password, user_id=self.user_id)
        return PaymentsSession(self.base_url, credentials, limits=Limits(concurrency=max(100, concurrency)))

    async def is_there(self) -> bool:
        """Whether it answers, and not somebody else who has its port by now."""
        try:
            return bool((await self._ask("GET", "state")).get("ipn_url") == self.ipn_url)
        except ServiceGone:
            return False

    async def books(self) -> ServiceBooks:
        """What it has done until now."""
        state, rows = await self._ask("GET", "state"), list[LedgerRow]()
        while True:
            page = await self._ask("GET", f"ledger?offset={len(rows)}&limit={_ROWS}")
            rows += [
                LedgerRow(request_id=one["request_id"], amount=Decimal(one["amount"]), status=one["status"])
                for one in page["executions"]
            ]
            if len(rows) >= page["total"] or not page["executions"]:
                return ServiceBooks(ledger=tuple(rows), balance=Decimal(state["balance"]), notified=state["delivered"])

    async def settled(self, seconds: float) -> bool:
        """Wait a while until every order has ended and every notification was answered; tells whether they have."""
        return bool((await self._ask("POST", "settle", {"timeout": seconds}))["settled"])

    async def end(self) -> None:
        """Let it stop, if it is there."""
        with suppress(ServiceGone):
            if await self.is_there():
                await self._ask("POST", "end")

    async def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        sent = b"" if body is None else json.dumps(body).encode()
        try:
            answer = await exchange(method, URL(f"{self.base_url}/_sandbox/{path}"), body=sent)
            told = json.loads(answer.body, parse_float=Decimal)
        except (OSError, ValueError) as error:
            raise ServiceGone(f"{self.base_url} does not answer ({type(error).__name__})") from error
        if answer.status != 200 or not isinstance(told, dict):
            raise ServiceGone(f"{self.base_url} is something else now")
        return told


def _program() -> list[str]:
    """This very program, as a command; a frozen one is one file."""
    return [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "payments_async"]


class ServiceProcess:
    """A simulated service that this process has started, in a session of its own: no signal for us reaches it.

    Args:
        log: What it has to say.
        options: Of the command that it is.
    """

    def __init__(self, log: Path, *, ipn_url: str, **options: object) -> None:
        self._log = log
        self._ipn_url = ipn_url
        usual = {"port": 0, "processing_delay": SECONDS / 2, "ipn_attempts": _TRIES, "idle": _IDLE}
        chosen = {**usual, "ipn_url": ipn_url, **options}
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
        with log.open("wb") as said:
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                [*_program(), "sandbox", "--json", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },  # it may be unpacked
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )

    async def introduced(self) -> DemoService:
        """Wait until it listens, and learn where."""
        try:
            text = await asyncio.to_thread(self._document)
        except BaseException:
            self._process.kill()  # nobody knows of it yet
            self._process.wait()
            raise
        if not text:
            raise RuntimeError(f"the simulated service did not start; {self._log} says why")
        told = json.loads(text)
        settings = {name.removeprefix("PAYMENTS_").lower(): value for name, value in told["settings"].items()}
        return DemoService(**settings, ipn_url=self._ipn_url, pid=told["pid"])

    async def over(self) -> None:
        """Wait for the end of its process, which was told to end."""
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, _GOODBYE)

    def leave(self) -> None:
        """Let it live on without us."""
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._process.poll() is None:
            self._process.returncode = 0  # it outlives us on purpose; Python would warn of that

    def _document(self) -> bytes:
        """Its one JSON document, which ends with a brace at the beginning of a line."""
        lines = []
        for line in self._process.stdout or ():
            lines.append(line)
            if line.rstrip() == b"}":
                return b"".join(lines)
        return b""
