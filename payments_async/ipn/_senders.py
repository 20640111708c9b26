"""Who may send notifications: the sender behind the proxies, whether it is known, and further proof of it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, MutableMapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, NamedTuple, Protocol

from multidict import MultiMapping

from payments_async._values.frozen import field, frozen
from payments_async._values.handlers import error_text

# Spec: "sender addresses to whitelist are 41.2.2.10 and 41.2.2.11 in one description and 52.48.24.237 and
# 34.252.29.119 in another". The second pair was verified in 2026.
SENDERS_2026 = ("52.48.24.237", "34.252.29.119")
SENDERS_OLDER = ("41.2.2.10", "41.2.2.11")
DOCUMENTED_SENDERS = SENDERS_2026 + SENDERS_OLDER

UNIX_SOCKET = "unix:"  # the peer of a request that came through a Unix socket, and its name in trusted_proxies

_REMEMBERED = 1024
_LONGEST_REMEMBERED = 512
_LONGEST_SHOWN = 60

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Lines = tuple[tuple[str, ...], ...]

_WITH_PORT = re.compile(r"([0-9.]+):[0-9]{1,5}|\[([0-9A-Fa-f:.%\w]+)\](?::[0-9]{1,5})?", re.ASCII)
# RFC 7239: forwarded-pair = token "=" value, and a value is a token or a quoted string
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PAIR = re.compile(rf'\s*({_WORD})\s*=\s*(?:({_WORD})|"((?:[^"\\]|\\.)*)")\s*', re.ASCII)


class Sender(NamedTuple):
    """Who a notification is from, and whether it is one of those it is taken from.

    Attributes:
        is_known: Where it is false and a delivery is only reported, nothing believes what it says.
        address: Of the sender behind the proxies; as it came where it is not an address.
        why: In words, for a person who asks why.
    """

    is_known: bool
    address: str
    why: str


class Senders:
    """The addresses notifications are taken from; everything else is refused.

    Args:
        addresses: Addresses and networks (``"10.0.0.0/8"``), IPv4 and IPv6. None at all refuses everybody.
        trusted_proxies: Addresses and networks of your own proxies, or ``"unix:"`` for one that comes through a Unix
            socket. Only what they say of the hop before them is believed, walking from the socket's peer outwards.
        proxy_headers: Headers in which they say it. Where several are present, all must name the same sender: a proxy
            that writes one of them passes the others on as a stranger sent them.

    Raises:
        ValueError: For a text that is neither address nor network.
    """

    def __init__(
        self,
        addresses: Iterable[str] = DOCUMENTED_SENDERS,
        trusted_proxies: Iterable[str] = (),
        *,
        proxy_headers: Iterable[str] = ("X-Forwarded-For", "Forwarded"),
    ) -> None:
        for name, value in (("senders", addresses), ("trusted_proxies", trusted_proxies), ("headers", proxy_headers)):
            if isinstance(value, str):
                raise TypeError(f"{name}: pass a tuple of texts, not one text")
        proxies = tuple(trusted_proxies)
        self._allowed = tuple(map(_network, addresses))
        self._trust_socket = UNIX_SOCKET in proxies
        self._proxies = tuple(_network(text) for text in proxies if text != UNIX_SOCKET)
        self._headers = tuple(proxy_headers)
        self._peers: dict[str, Sender | None] = {}  # None: a trusted proxy, so that its headers decide
        self._chains: dict[tuple[str, Lines], Sender] = {}

    def check(self, peer: str, headers: MultiMapping[str]) -> Sender:
        """Accept or refuse, and say why. The same question again costs a look-up.

        Args:
            peer: Address of the socket's peer, or ``UNIX_SOCKET``; nothing that a header said.
            headers: Of the request; looked at only when the peer is a trusted proxy.
        """
        if peer in self._peers:
            sender = self._peers[peer]
        else:
            sender = None if self.trusts(peer) else self._judge(peer, _address_of(peer), "the peer")
            _make_room(self._peers)
            self._peers[peer] = sender
        return self._behind(peer, headers) if sender is None else sender

    def may_connect(self, peer: str) -> bool:
        """Whether a connection from this address can bring a notification at all: from a sender, or a trusted proxy."""
        address = _address_of(peer)
        return self.trusts(peer) or _within(address, self._allowed)

    def is_rewritten(self, peer: str, headers: MultiMapping[str]) -> bool:
        """Whether a server put an address out of the headers in the place of the socket's peer: the headers name it."""
        address = _address_of(peer)
        if address is None:
            return False
        for header in self._headers:
            for text in _hops(header, headers.getall(header, ())) or ():
                if _address_of(text) == address:
                    return True
        return False

    def trusts(self, peer: str) -> bool:
        """Whether the peer is one of the trusted proxies."""
        if peer == UNIX_SOCKET:
            return self._trust_socket
        return _within(_address_of(peer), self._proxies)

    def _behind(self, peer: str, headers: MultiMapping[str]) -> Sender:
        """Who is behind a trusted proxy; the same headers again cost a look-up."""
        lines = tuple(tuple(headers.getall(name, ())) for name in self._headers)
        known = self._chains.get((peer, lines))
        if known is not None:
            return known
        sender = self._walk_all(peer, lines)
        if sum(len(line) for header in lines for line in header) <= _LONGEST_REMEMBERED:
            _make_room(self._chains)
            self._chains[peer, lines] = sender
        return sender

    def _walk_all(self, peer: str, lines: Lines) -> Sender:
        """Who is behind it by every header; they must agree."""
        named = {header: found for header, found in zip(self._headers, lines, strict=True) if found}
        if not named:
            return self._judge(
                peer, _address_of(peer), f"the trusted proxy {_shown(peer)}, which names no address before it,"
            )
        senders = [self._walk(peer, header, found) for header, found in named.items()]
        if len({sender.address for sender in senders}) > 1:
            seen = " but ".join(f"{header} {_shown(d.address)}" for header, d in zip(named, senders, strict=True))
            return Sender(False, peer, f"refused: the proxies' headers disagree on the sender: {seen}")
        return next((sender for sender in senders if not sender.is_known), senders[0])

    def _walk(self, peer: str, header: str, lines: Iterable[str]) -> Sender:
        """From the peer outwards: the first address that is not a trusted proxy is the sender."""
        texts = _hops(header, lines)
        if texts is None:
            return Sender(False, peer, f"refused: {header} from {_shown(peer)} breaks its grammar")
        hop = peer
        for text in texts:
            address = _address_of(text)
            if address is None:
                return Sender(False, text, f"refused: {header} from {_shown(hop)} names {_shown(text)}, no address")
            if not _within(address, self._proxies):
                return self._judge(
                    str(address), address, f"the sender in {header} from the trusted proxy {_shown(hop)}"
                )
            hop = str(address)
        return self._judge(hop, _address_of(hop), f"the outermost hop in {header}, itself a trusted proxy,")

    def _judge(self, text: str, address: Address | None, role: str) -> Sender:
        """Whether the address is among those that are allowed."""
        shown = _shown(text)
        if address is None:
            return Sender(False, text, f"refused: {role} {shown} is not an address")
        if _within(address, self._allowed):
            return Sender(True, str(address), f"accepted: {role} {shown} is a known sender")
        if not self._allowed:
            return Sender(
                False, str(address), f"refused: {role} {shown} is unknown, for no sender is configured at all"
            )
        return Sender(False, str(address), f"refused: {role} {shown} is not among the known senders")


def _address_of(text: str) -> Address | None:
    """The address a text stands for, or ``None``.

    A port, brackets and an IPv6 zone are dropped, and an IPv4-mapped address is its IPv4 address.
    """
    text = text.strip()
    found = _WITH_PORT.fullmatch(text)
    if found is not None:
        text = found.group(1) or found.group(2)
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _hops(header: str, lines: Iterable[str]) -> list[str] | None:
    """The texts a header names, nearest hop first; ``None`` when its lines break its grammar."""
    return _forwarded(lines) if header.lower() == "forwarded" else _x_forwarded_for(lines)


def _x_forwarded_for(lines: Iterable[str]) -> list[str]:
    """Every entry of ``X-Forwarded-For``; the last line is the nearest."""
    return [entry for line in lines for entry in line.split(",")][::-1]


def _forwarded(lines: Iterable[str]) -> list[str] | None:
    """Every ``for=`` of ``Forwarded`` (RFC 7239); ``""`` for a hop that names none.

    Lines are read one by one: an open quotation mark in one that a stranger sent cannot swallow the next.
    """
    found: list[str] = []
    for line in lines:
        position = 0
        names = {"for": ""}
        while True:
            pair = _PAIR.match(line, position)
            if pair is None or (pair.group(1).lower() == "for" and names["for"]):
                return None
            names[pair.group(1).lower()] = pair.group(2) or pair.group(3) or ""
            position = pair.end()
            following = line[position : position + 1]
            if following not in ("", ",", ";"):
                return None
            if following != ";":
                found.append(names["for"])
                names = {"for": ""}
            if not following:
                break
            position += 1
    return found[::-1]


def _network(text: str) -> Network:
    """A network from its text; one of IPv4-mapped addresses is its IPv4 network."""
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: neither an address nor a network ({error})") from error
    start = network.network_address
    if isinstance(network, IPv6Network) and network.prefixlen >= 96 and (mapped := getattr(start, "ipv4_mapped", None)):
        return IPv4Network((mapped, network.prefixlen - 96))
    return network


def _within(address: Address | None, networks: Iterable[Network]) -> bool:
    return address is not None and any(address in network for network in networks)


def _make_room(memory: MutableMapping[Any, Any]) -> None:
    if len(memory) >= _REMEMBERED:
        memory.clear()


def _shown(text: str) -> str:
    """A text from outside, fit for one line of a log."""
    return ascii(text[:_LONGEST_SHOWN])[1:-1] or "nothing"


_log = logging.getLogger("payments_async.ipn")


@frozen(kw_only=True)
class Delivery:
    """One notification as it arrived, for a verifier to judge.

    Attributes:
        peer: Address of the socket's peer.
        sender: Address of the sender behind the trusted proxies.
        through_proxy: Whether the peer is a trusted proxy, so that headers it sets can be believed.
        headers: As they came.
        query: Raw query string, without the question mark.
        body: Raw.
        certificate: The client's TLS certificate (DER) where TLS ends in this process, else ``None``.
    """

    peer: str
    sender: str
    through_proxy: bool
    headers: MultiMapping[str] = field(repr=False)
    query: str = field(repr=False)
    body: bytes = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)


class Verifier(Protocol):
    """Judges one delivery. False is answered 403, and so is an exception: who cannot be verified is not believed."""

    async def __call__(self, delivery: Delivery) -> bool:
        """Whether the delivery is genuine."""


async def is_genuine(delivery: Delivery, verifiers: Iterable[Verifier], timeout: float) -> bool:
    """Whether every verifier says yes; the log tells which did not.

    Args:
        timeout: Seconds that each may take.
    """
    for verifier in verifiers:
        name = getattr(verifier, "__qualname__", type(verifier).__qualname__)
        try:
            async with asyncio.timeout(timeout):
                genuine = await verifier(delivery)
        except Exception as error:  # noqa: BLE001 - who cannot be verified is not believed
            facts = {"verifier": name, "error": error_text(error)}
            _log.error("a verifier failed: %s: %s", *facts.values(), extra=facts)
            return False
        if genuine is not True:
            facts = {"verifier": name, "sender": delivery.sender}
            _log.warning("a delivery is not genuine: %s says so of one from %s", *facts.values(), extra=facts)
            return False
    return True
