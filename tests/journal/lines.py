"""A line between a process and a server, PostgreSQL or the service, which a test disturbs as networks do."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

import attrs
from psycopg import conninfo

Pipeline = Literal["up", "down"]  # to the server, and back
_AT_ONCE = struct.pack("ii", 1, 0)  # what is under way is dropped, and the other side hears of it


@attrs.define(eq=False)
class _Call:
    """One connection through the line.

    Attributes:
        ends: What writes to both sides.
        broken: The ways on which bytes of it were lost: nothing arrives there any more.
        over: Both ends were reset.
        listens: It is the connection of a journal's listener, which asks by the clock.
        went: Which way its last bytes went.
    """

    ends: tuple[asyncio.StreamWriter, ...]
    broken: set[Pipeline] = attrs.field(factory=set)
    over: asyncio.Event = attrs.field(factory=asyncio.Event)
    listens: bool = False
    went: Pipeline = "down"

    def reset(self, *ends: asyncio.StreamWriter) -> None:
        """End it with an RST."""
        if ends == self.ends:
            self.over.set()
        for end in ends:
            _reset(end)


def _reset(end: asyncio.StreamWriter) -> None:
    """End one end with an RST."""
    one = end.get_extra_info("socket")
    if one.family != socket.AF_UNIX:
        with suppress(OSError):  # it has ended already
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    end.transport.abort()


class Line:
    """Forwards until it is told otherwise; use it with ``async with``, and reach the server by ``port``.

    Args:
        server: Its host and port, or the path of its socket.

    Attributes:
        port: On this machine.
        delay: Seconds that bytes take, each way.
        holds: Set while some bytes are held.
        exchanges: How often a side has asked and was answered, on connections that are not a listener's.
        before_answer: Awaited before the bytes of such an answer go on.
    """

    def __init__(self, server: tuple[str, int] | str) -> None:
        self.port = 0
        self.delay = 0.0
        self.holds = asyncio.Event()
        self.exchanges = 0
        self.before_answer: Callable[[], Awaitable[object]] | None = None
        self._server = server
        self._calls: set[_Call] = set()
        self._lost: frozenset[Pipeline] = frozenset()
        self._held: frozenset[Pipeline] = frozenset()
        self._passes = 0  # bytes, of those that are held
        self._goes_on = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def swallow(self, *ways: Pipeline) -> None:
        """From now on bytes that go these ways vanish, the end of a connection too: nobody hears of anything."""
        self._lost = frozenset(ways)

    async def swallowed(self) -> None:
        """Wait until bytes have vanished: what was to be lost may be on its way yet."""
        while not any(call.broken for call in self._calls):  # noqa: ASYNC110 - a busy loop of some turns
            await asyncio.sleep(0.001)

    def hold(self, *ways: Pipeline, after: int = 0) -> None:
        """Bytes that go these ways arrive once the line is whole again, as those do that TCP sends again.

        Args:
            after: So many of them arrive before, as those of a process that is stopped while it sends.
        """
        self._held = frozenset(ways)
        self._passes = after
        self._goes_on = asyncio.Event()

    def go_round(self) -> asyncio.Event:
        """Forward again, but for what is held: that arrives once this event is set."""
        arrives, self._held, self._goes_on = self._goes_on, frozenset(), asyncio.Event()
        self.holds.clear()
        return arrives

    def cut(self) -> None:
        """End every connection with an RST, at both ends."""
        for call in list(self._calls):
            call.reset(*call.ends)

    def hang_up(self) -> None:
        """... at the end that is not the server's: what is held still arrives there."""
        for call in list(self._calls):
            call.reset(call.ends[0])

    def refuse(self) -> None:
        """Take no connection any more; those there are go on."""
        self._listening.close()

    def lead_to(self, server: tuple[str, int] | str) -> None:
        """New connections come to another server, as the address of one that is gone may do."""
        self._server = server

    async def mend(self) -> None:
        """Forward again; a connection that has lost bytes is reset, as one is that a firewall does not know."""
        self._lost = self._held = frozenset()
        self._goes_on.set()
        self.holds.clear()
        for call in list(self._calls):
            if call.broken:
                call.reset(*call.ends)
        if not self._listening.is_serving():
            await self._listen()

    async def _listen(self) -> None:
        self._listening = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lead a new connection on to the server, for as long as both of them want."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._lead_on(reader, writer)
        except (OSError, asyncio.CancelledError):  # there is no server, or no line any more
            _reset(writer)
        finally:
            self._tasks.discard(task)

    async def _lead_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._server, str):
            upper, upwards = await asyncio.open_unix_connection(self._server)
        else:
            upper, upwards = await asyncio.open_connection(*self._server)
        call = _Call((writer, upwards))
        self._calls.add(call)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(call, "up", reader, upwards))
                group.create_task(self._pump(call, "down", upper, writer))
        finally:
            self._calls.discard(call)
            for end in call.ends:
                end.close()

    async def _pump(
        self, call: _Call, way: Pipeline, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass on what comes this way, its end included, unless it is lost."""
        try:
            while not call.over.is_set():
                data = await self._read(reader)
                await asyncio.sleep(self.delay)
                await self._count(call, way, data)
                if way in self._held:
                    if data:
                        writer.write(data[: self._passes])
                        data, self._passes = data[self._passes :], max(0, self._passes - len(data))
                        if not data:
                            continue
                    self.holds.set()
                    await self._goes_on.wait()
                call.broken.update({way} & self._lost)
                if way in call.broken:
                    if not data:
                        await call.over.wait()
                elif data:
                    writer.write(data)
                    await writer.drain()
                elif data is None:
                    call.reset(*call.ends)
                else:
                    writer.write_eof()
                    return
        except OSError:  # whom it goes to is gone
            call.reset(*call.ends)

    async def _count(self, call: _Call, way: Pipeline, data: bytes | None) -> None:
        """See whether another exchange begins, or is answered."""
        call.listens |= way == "up" and b"LISTEN " in (data or b"")
        if data and not call.listens:
            if way == "down" and self.before_answer is not None:
                await self.before_answer()
            self.exchanges += way == "up" and call.went == "down"
            call.went = way

    async def _read(self, reader: asyncio.StreamReader) -> bytes | None:
        """Some bytes, none at the end, or ``None`` after a reset."""
        try:
            return await reader.read(65536)
        except OSError:
            return None


def address_of(dsn: str) -> tuple[str, int] | str:
    """Where the server of a DSN listens, as ``Line`` is told it."""
    known = conninfo.conninfo_to_dict(dsn)
    host, port = str(known.get("host") or "127.0.0.1"), int(known.get("port") or 5432)
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


def line_to_database(dsn: str) -> Line:
    """A line to the database of a DSN."""
    return Line(address_of(dsn))


def by_line(dsn: str, line: Line) -> str:
    """A DSN that leads through a line, unencrypted, so that it can look at what goes by."""
    return conninfo.make_conninfo(dsn, host="127.0.0.1", port=line.port, sslmode="disable", gssencmode="disable")
