"""Who gets a connection at all: decided when it is accepted, before a byte of it is read. Speaks no HTTP."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial

from payments_async.ipn._tasks import Tasks

__all__ = ["Door", "Entrance"]

Left = Callable[[], None]


class Door:
    """Counts connections, and lets in only so many, of those it may.

    Args:
        admits: Whether an address may come in at all.
        counts: Whether the connections of an address are counted: those through a proxy are many people's.
        most: Connections at once.
        each: Connections at once of one address; ``None`` sets no limit.
        refuse: Told of each one that is hung up on, and why.
    """

    def __init__(
        self,
        *,
        admits: Callable[[str], bool],
        counts: Callable[[str], bool],
        most: int,
        each: int | None,
        refuse: Callable[[str, str], None],
    ) -> None:
        self._admits = admits
        self._counts = counts
        self._most = most
        self._each = each
        self._refuse = refuse
        self._all = 0
        self._by_address: dict[str, int] = {}

    def enter(self, address: str) -> Left | None:
        """Let somebody in: gives what is to be called once he has left, or ``None`` if he has to stay outside."""
        why = self._objection(address)
        if why is not None:
            self._refuse(address, why)
            return None
        self._all += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        return partial(self._leave, address)

    def _objection(self, address: str) -> str | None:
        if not self._admits(address):
            return "hung up on: neither a known sender nor a trusted proxy"
        if self._all >= self._most:
            return f"hung up on: there are {self._most} connections already"
        if self._each is not None and self._by_address.get(address, 0) >= self._each and self._counts(address):
            return f"hung up on: it has {self._each} connections already"
        return None

    def _leave(self, address: str) -> None:
        self._all -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]


class Entrance(asyncio.Protocol):
    """The first protocol of a connection: hangs up, or hands over to the one that serves it, after TLS if there is any.

    Args:
        make: Makes the protocol that serves; it calls its argument when the connection is lost.
    """

    def __init__(
        self,
        door: Door,
        make: Callable[[Left], asyncio.Protocol],
        *,
        tls: ssl.SSLContext | None,
        handshake_time: float,
        tasks: Tasks,
    ) -> None:
        self._door = door
        self._make = make
        self._tls = tls
        self._handshake_time = handshake_time
        self._tasks = tasks
        self._early: list[bytes] = []
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        left = None if peer is None else self._door.enter(str(peer[0]))  # None: it is gone already
        if left is None:
            transport.abort()
        elif self._tls is None:
            _hand_over(transport, self._make(left))
        else:
            self._tasks.start(self._secure(transport, self._tls, left))

    def data_received(self, data: bytes) -> None:
        self._early.append(data)  # what came with the end of the handshake

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext, left: Left) -> None:
        secured: asyncio.Transport | None = None
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=self._handshake_time
            )
        except (OSError, ssl.SSLError):  # no TLS, too slow, or gone
            transport.abort()
        finally:
            if secured is None or self._is_lost:
                left()
        if secured is not None and not self._is_lost:
            serving = self._make(left)
            _hand_over(secured, serving)
            for data in self._early:
                serving.data_received(data)


def _hand_over(transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
