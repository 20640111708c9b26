"""Where chaos takes place: a journal in a file or in a database, and lines that lead there and to the service.

A line breaks each way or both, silently or with a reset, for a moment or for longer than anyone waits.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs
import psycopg
from journal.lines import Line, by_line, line_to_database
from journal.postgres import OwnServer, place_for
from yarl import URL

from payments_async.journal import JournalLocked, JournalUnavailable, PostgresJournal, SqliteJournal
from payments_async.sandbox import Sandbox

OWN = "postgres"
AGAIN = (JournalUnavailable, JournalLocked)  # what whoever keeps a process running starts it again for
_STATEMENT = 6.0  # seconds, longer than anybody may stand still within a commit; silent for five more, it is given up
_TOO_LONG = 13.0  # ... which is longer than that
_SOME_LONG = 0.15  # share of the partitions that last so long


@attrs.frozen(kw_only=True)
class Place:
    """What a process is told.

    Attributes:
        folder: Of the file, and of what the machine remembers.
        dsn: By a line of its own; empty for a file.
        schema: The namespace.
        base: Address of the service, the same for all, as one account has one.
        port: Of the line that really leads there.
    """

    folder: str
    dsn: str
    schema: str
    base: str
    port: int

    def journal(self) -> SqliteJournal | PostgresJournal:
        """The one journal, by the line of this process."""
        return _journal(Path(self.folder), self.dsn, self.schema)

    def lead(self) -> None:
        """Have the address of the service lead to the line of this process, as a name server or a router may."""
        ours, asks = URL(self.base).port, socket.getaddrinfo

        def answers(host: Any, port: Any, *more: Any, **named: Any) -> Any:
            return asks(host, self.port if port == ours else port, *more, **named)

        socket.getaddrinfo = answers


def _journal(folder: Path, dsn: str, schema: str) -> SqliteJournal | PostgresJournal:
    if not dsn:
        return SqliteJournal(folder / "journal.db", state_folder=folder / "state", busy_timeout=30.0)
    return PostgresJournal(
        dsn, schema=schema, state_folder=folder / "state", busy_timeout=30.0, statement_timeout=_STATEMENT
    )


class Ground:
    """The places of all processes, and what disturbs them. Use it with ``async with``.

    Args:
        folder: Of this run alone.
        journal: ``postgres`` for a server of its own, a DSN for another one, empty for a file.

    Attributes:
        partitions: How many there were, by what broke.
        restarts: Of the server.
        folder: Of this run.
    """

    def __init__(self, folder: Path, journal: str, sandbox: Sandbox, chance: random.Random) -> None:
        self.partitions: Counter[str] = Counter()
        self.restarts = 0
        self.folder = folder
        self._wanted = journal
        self._sandbox = sandbox
        self._chance = chance
        self._lines: dict[str, tuple[Line | None, Line]] = {}
        self._server: OwnServer | None = None
        self._dsn = ""
        self._schema = f"chaos_{secrets.token_hex(4)}"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._wanted == OWN:
                self._server = await asyncio.to_thread(OwnServer, place_for("chaos"))
                stack.callback(self._server.remove)
            self._dsn = self._server.dsn if self._server is not None else self._wanted
            if self._wanted not in ("", OWN):
                stack.callback(self._drop)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def journal(self) -> SqliteJournal | PostgresJournal:
        """The one journal, by no line."""
        return _journal(self.folder, self._dsn, self._schema)

    @property
    def base(self) -> str:
        """Address of the service, as its account calls it: by a name, which each process may have led elsewhere."""
        return str(URL(self._sandbox.base_url).with_host("localhost"))

    async def place(self, name: str) -> Place:
        """Where a process of that name finds everything."""
        if name not in self._lines:
            database = line_to_database(self._dsn) if self._dsn else None
            service = Line(("127.0.0.1", URL(self._sandbox.base_url).port or 0))
            for line in filter(None, (database, service)):
                await self._stack.enter_async_context(line)
            self._lines[name] = database, service
        database, service = self._lines[name]
        dsn = by_line(self._dsn, database) if database is not None else ""
        return Place(folder=str(self.folder), dsn=dsn, schema=self._schema, base=self.base, port=service.port)

    async def part(self, name: str, lease: float) -> None:
        """Break a line of a process in some way, for a while."""
        lines = dict(zip(("database", "service"), self._lines[name], strict=True))
        which = self._chance.choice([what for what, line in lines.items() if line is not None])
        line = lines[which]
        assert line is not None
        how = self._chance.choice(("lose up", "lose down", "lose both", "hold up", "hold down", "cut", "refuse"))
        match how.split():
            case ["lose", "up" | "down" as way]:
                line.swallow(way)
            case ["lose", "both"]:
                line.swallow("up", "down")
            case ["hold", "up" | "down" as way]:
                line.hold(way)
            case ["cut"]:
                line.cut()
            case ["refuse"]:
                line.refuse()
                line.cut()
        self.partitions[f"{which}, {how}"] += 1
        is_long = self._chance.random() < _SOME_LONG
        try:
            await asyncio.sleep(_TOO_LONG if is_long else self._chance.uniform(0.3, 2.5) * lease)
        finally:
            await line.mend()

    async def restart(self) -> None:
        """Stop the server as a power cut would, and start it again after a moment."""
        assert self._server is not None, "only a server of one's own can be stopped: --journal postgres"
        await asyncio.to_thread(self._server.stop, "immediate")
        await asyncio.sleep(self._chance.uniform(0, 2))
        await asyncio.to_thread(self._server.start)
        self.restarts += 1

    def _drop(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE".encode())
