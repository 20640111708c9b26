"""A network within one process: connections that are slow, cut, half open or refused, as the seed says."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable
from typing import Any

import attrs

from payments_async.testing._simulation.loops import SimulatedLoop
from payments_async.testing._simulation.processes import CURRENT, Process

_LONGEST_STALL = 60.0  # seconds


@attrs.define
class Weather:
    """What the network does to connections that are made from now on.

    Attributes:
        latency: Seconds that bytes travel at most.
        cut: The share of connections that break after some bytes.
        swallow: The share of connections of which one direction loses all bytes from some byte on, unsaid.
        stall: The share of connections of which one direction stands still for up to a minute, and then goes on.
        twice: The share of connections on which what the server wrote last comes twice.
        refuse: The share of connections that are refused.
        reach: The bytes of one direction within which a connection is struck.
    """

    latency: float = 0.003
    cut: float = 0.0
    swallow: float = 0.0
    stall: float = 0.0
    twice: float = 0.0
    refuse: float = 0.0
    reach: int = 3000


class Address:
    """What stands for a socket."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)
        self.family, self.type, self.proto = 2, 1, 6

    def getsockname(self) -> tuple[str, int]:
        """Where it is."""
        return self._name

    def fileno(self) -> int:
        """No file."""
        return -1

    def close(self) -> None:
        """Nothing is held."""


class End(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, owner: Process | None, here: tuple[str, int], there: tuple[str, int]) -> None:
        super().__init__({"peername": there, "sockname": here})
        self._network = network
        self._loop = network.loop
        self._owner = owner
        self.peer: End
        self.protocol: Any = None
        self._is_closing = False
        self._is_lost = False
        self._is_paused = False
        self._held: list[bytes | None] = []
        self._free_at = 0.0  # when the last bytes that were sent from here will have arrived
        self.budget = 0  # bytes from here until the weather strikes
        self.strike: str | None = None  # how, or that it does not
        self._is_mute = False  # what is written arrives no more
        if owner is not None:
            owner.ends[self] = None

    # what protocols call

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_paused

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        held, self._held = self._held, []
        for data in held:
            self._loop.call_soon(self._take, data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._send(None)

    def write(self, data: Any) -> None:
        if not data or self._is_lost or self._is_closing:
            return
        data = bytes(data)
        if self._is_mute:
            return
        if self.strike is not None and len(data) > self.budget:
            data = self._struck(data)
        self.budget -= len(data)
        if data:
            self._send(data)

    def _struck(self, data: bytes) -> bytes:
        """The weather strikes within these bytes; those that go on."""
        strike, self.strike = self.strike, None
        match strike:
            case "stall":
                self._free_at = max(self._free_at, self._loop.time()) + self._loop.chance.random() * _LONGEST_STALL
            case "twice":
                self._send(data)
            case _:
                data, self._is_mute = data[: self.budget], True
                if strike == "cut":
                    self._loop.call_later(self._network.delay(), self._break)
        return data

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._send(None)
        self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self._is_closing = True
        self._tell_peer(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        self._loop.call_soon(self._lose, None)

    # what happens to it

    def vanish(self) -> None:
        """Its process died: the kernel resets the connection."""
        self._is_lost = True
        self._tell_peer(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        self._forget()

    def _break(self) -> None:
        """The line breaks: both ends hear of it, each at a moment of its own."""
        self._tell_peer(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        self.peer._tell_peer(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _tell_peer(self, error: Exception | None) -> None:
        peer = self.peer
        when = self._arrival()
        self._network.in_context_of(peer._owner, self._loop.call_at, when, peer._lose, error)

    def _arrival(self) -> float:
        """When bytes that are sent now arrive: after those before them, and after the line between is whole again."""
        whole_at = self._network.whole_at(self._owner, self.peer._owner)
        return max(self._free_at, whole_at, self._loop.time() + self._network.delay())

    def _send(self, data: bytes | None) -> None:
        when = self._free_at = self._arrival()
        self._network.in_context_of(self.peer._owner, self._loop.call_at, when, self.peer._take, data)

    def _take(self, data: bytes | None) -> None:
        if self._is_lost or self.protocol is None:
            return
        if self._is_paused:
            self._held.append(data)
        elif data is None:
            keeps = self.protocol.eof_received()
            if not keeps and not self._is_closing:
                self.close()
        elif not self._is_closing:
            self.protocol.data_received(data)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._forget()
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    def _forget(self) -> None:
        if self._owner is not None:
            self._owner.ends.pop(self, None)


class Listener:
    """A server that listens."""

    def __init__(self, network: Network, owner: Process | None, factory: Callable[[], Any], port: int) -> None:
        self._network = network
        self.owner = owner
        self.factory = factory
        self.port = port
        self.sockets = (Address("127.0.0.1", port),)
        if owner is not None:
            owner.listeners[self] = None

    def close(self) -> None:
        """Accept nothing more."""
        self.vanish()

    def vanish(self) -> None:
        """As ``close``."""
        if self._network.listeners.get(self.port) is self:
            del self._network.listeners[self.port]
        if self.owner is not None:
            self.owner.listeners.pop(self, None)

    async def wait_closed(self) -> None:
        """Nothing is to be waited for."""

    async def start_serving(self) -> None:
        """It serves."""

    def is_serving(self) -> bool:
        """Whether it accepts."""
        return self._network.listeners.get(self.port) is self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop."""
        return self._network.loop

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Network:
    """All connections of a simulation."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.weather = Weather()
        self.listeners: dict[int, Listener] = {}
        self.connections = 0
        self._ports = itertools.count(20000)
        vars(loop).update(create_server=self._create_server, create_connection=self._create_connection)

    def delay(self) -> float:
        """Seconds until bytes that are sent now arrive."""
        return self.loop.chance.random() * self.weather.latency

    @staticmethod
    def whole_at(sender: Process | None, receiver: Process | None) -> float:
        """When bytes from one process reach another one again."""
        mute = 0.0 if sender is None else sender.mute_until
        return mute if receiver is None else max(mute, receiver.deaf_until)

    def in_context_of(self, process: Process | None, call: Callable[..., Any], *args: Any) -> None:
        """Ask for a callback that belongs to a process."""
        if process is None:
            call(*args)
        else:
            process._context.run(call, *args)

    async def start_connection(self, addr_infos: Any, **_: Any) -> Address:
        """In place of aiohappyeyeballs: reach the other machine, or not."""
        host, port = addr_infos[0][4][:2]
        here, listener = CURRENT.get(), self.listeners.get(port)
        there = None if listener is None else listener.owner
        whole_at = max(self.whole_at(here, there), self.whole_at(there, here))
        await asyncio.sleep(max(self.delay(), whole_at - self.loop.time()))
        if port not in self.listeners or self.loop.chance.random() < self.weather.refuse:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ('{host}', {port})")
        return Address(host, port)

    async def _create_server(self, factory: Any, host: Any = None, port: int = 0, **_: Any) -> Listener:
        chosen = port or next(self._ports)
        if chosen in self.listeners:
            raise OSError(errno.EADDRINUSE, "address already in use")
        self.listeners[chosen] = listener = Listener(self, CURRENT.get(), factory, chosen)
        return listener

    async def _create_connection(
        self, factory: Any, host: Any = None, port: Any = None, *, sock: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        if sock is not None:
            _, port = sock.getsockname()
        listener = self.listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed")
        process = CURRENT.get()
        there = "127.0.0.1", port
        here = "127.0.0.1" if process is None else process.address, next(self._ports) + 20000
        self.connections += 1
        near, far = End(self, process, here, there), End(self, listener.owner, there, here)
        near.peer, far.peer = far, near
        self._draw(near, far)
        near.protocol = factory()
        near.protocol.connection_made(near)

        def accepted() -> None:
            far.protocol = listener.factory()
            far.protocol.connection_made(far)

        self.in_context_of(listener.owner, self.loop.call_soon, accepted)
        return near, near.protocol

    def _draw(self, near: End, far: End) -> None:
        chance, weather = self.loop.chance, self.weather
        drawn = chance.random()
        for strike in ("cut", "swallow", "stall", "twice"):
            share = getattr(weather, strike)
            if drawn < share:
                struck = far if strike == "twice" or chance.random() < 0.5 else near
                struck.strike, struck.budget = strike, chance.randrange(weather.reach)
                return
            drawn -= share
