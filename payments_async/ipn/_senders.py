"""Who may send notifications: the sender behind the proxies, and whether it is one of the known ones. Reads no body."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, NamedTuple

from multidict import MultiMapping

from payments_async.ipn._forwarded import Address, address_of, hops

__all__ = ["DOCUMENTED_SENDERS", "SENDERS_2026", "SENDERS_OLDER", "UNIX_SOCKET", "Decision", "Sender", "Senders"]

# Spec: "sender addresses to whitelist are 41.2.2.10 and 41.2.2.11 in one description and 52.48.24.237 and
# 34.252.29.119 in another". The second pair was verified in 2026.
SENDERS_2026 = ("52.48.24.237", "34.252.29.119")
SENDERS_OLDER = ("41.2.2.10", "41.2.2.11")
DOCUMENTED_SENDERS = SENDERS_2026 + SENDERS_OLDER

UNIX_SOCKET = "unix:"  # the peer of a request that came through a Unix socket, and its name in trusted_proxies

_REMEMBERED = 1024
_LONGEST_REMEMBERED = 512
_LONGEST_SHOWN = 60

Network = IPv4Network | IPv6Network
Lines = tuple[tuple[str, ...], ...]


class Decision(NamedTuple):
    """Whether a sender is accepted, and why.

    Attributes:
        address: Of the sender behind the proxies; as it came where it is no address.
        why: In words, for a person who asks why.
    """

    accepted: bool
    address: str
    why: str


class Sender(NamedTuple):
    """Who a delivery is from.

    Attributes:
        is_known: False where it would have been refused and is only reported: nothing believes what it says.
    """

    address: str
    is_known: bool = True


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
        self._peers: dict[str, Decision | None] = {}  # None: a trusted proxy, so that its headers decide
        self._chains: dict[tuple[str, Lines], Decision] = {}

    def decide(self, peer: str, headers: MultiMapping[str]) -> Decision:
        """Accept or refuse, and say why. The same question again costs a look-up.

        Args:
            peer: Address of the socket's peer, or ``UNIX_SOCKET``; nothing that a header said.
            headers: Of the request; looked at only when the peer is a trusted proxy.
        """
        if peer in self._peers:
            decision = self._peers[peer]
        else:
            decision = None if self.trusts(peer) else self._judge(peer, address_of(peer), "the peer")
            _make_room(self._peers)
            self._peers[peer] = decision
        return self._behind(peer, headers) if decision is None else decision

    def may_bring(self, peer: str) -> bool:
        """Whether a connection from this address can bring a notification at all: from a sender, or a trusted proxy."""
        address = address_of(peer)
        return self.trusts(peer) or _within(address, self._allowed)

    def are_named(self, peer: str, headers: MultiMapping[str]) -> bool:
        """Whether the headers of proxies name the peer itself: then it is not the socket's, a server put it there."""
        address = address_of(peer)
        if address is None:
            return False
        for header in self._headers:
            for text in hops(header, headers.getall(header, ())) or ():
                if address_of(text) == address:
                    return True
        return False

    def trusts(self, peer: str) -> bool:
        """Whether the peer is one of the trusted proxies."""
        if peer == UNIX_SOCKET:
            return self._trust_socket
        return _within(address_of(peer), self._proxies)

    def _behind(self, peer: str, headers: MultiMapping[str]) -> Decision:
        lines = tuple(tuple(headers.getall(name, ())) for name in self._headers)
        known = self._chains.get((peer, lines))
        if known is not None:
            return known
        decision = self._walk_all(peer, lines)
        if sum(len(line) for header in lines for line in header) <= _LONGEST_REMEMBERED:
            _make_room(self._chains)
            self._chains[peer, lines] = decision
        return decision

    def _walk_all(self, peer: str, lines: Lines) -> Decision:
        named = {header: found for header, found in zip(self._headers, lines, strict=True) if found}
        if not named:
            return self._judge(
                peer, address_of(peer), f"the trusted proxy {_shown(peer)}, which names nobody before it,"
            )
        decisions = [self._walk(peer, header, found) for header, found in named.items()]
        if len({decision.address for decision in decisions}) > 1:
            seen = " but ".join(f"{header} {_shown(d.address)}" for header, d in zip(named, decisions, strict=True))
            return Decision(False, peer, f"refused: the proxies' headers disagree on the sender: {seen}")
        return next((decision for decision in decisions if not decision.accepted), decisions[0])

    def _walk(self, peer: str, header: str, lines: Iterable[str]) -> Decision:
        """From the peer outwards: the first address that is no trusted proxy is the sender."""
        texts = hops(header, lines)
        if texts is None:
            return Decision(False, peer, f"refused: {header} from {_shown(peer)} breaks its grammar")
        hop = peer
        for text in texts:
            address = address_of(text)
            if address is None:
                return Decision(False, text, f"refused: {header} from {_shown(hop)} names {_shown(text)}, no address")
            if not _within(address, self._proxies):
                return self._judge(
                    str(address), address, f"the sender in {header} from the trusted proxy {_shown(hop)}"
                )
            hop = str(address)
        return self._judge(hop, address_of(hop), f"the outermost hop in {header}, itself a trusted proxy,")

    def _judge(self, text: str, address: Address | None, role: str) -> Decision:
        shown = _shown(text)
        if address is None:
            return Decision(False, text, f"refused: {role} {shown} is no address")
        if _within(address, self._allowed):
            return Decision(True, str(address), f"accepted: {role} {shown} is a known sender")
        if not self._allowed:
            return Decision(
                False, str(address), f"refused: {role} {shown} is unknown, for no sender is configured at all"
            )
        return Decision(False, str(address), f"refused: {role} {shown} is not among the known senders")


def _network(text: str) -> Network:
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
