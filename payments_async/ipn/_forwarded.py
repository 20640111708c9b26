"""What proxies wrote down of those before them, nearest first. Believes nothing and decides nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

__all__ = ["Address", "address_of", "forwarded", "hops", "x_forwarded_for"]

Address = IPv4Address | IPv6Address

_WITH_PORT = re.compile(r"([0-9.]+):[0-9]{1,5}|\[([0-9A-Fa-f:.%\w]+)\](?::[0-9]{1,5})?", re.ASCII)
# RFC 7239: forwarded-pair = token "=" value, and a value is a token or a quoted string
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PAIR = re.compile(rf'\s*({_WORD})\s*=\s*(?:({_WORD})|"((?:[^"\\]|\\.)*)")\s*', re.ASCII)


def address_of(text: str) -> Address | None:
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


def hops(header: str, lines: Iterable[str]) -> list[str] | None:
    """The texts a header names, nearest hop first; ``None`` when its lines break its grammar."""
    return forwarded(lines) if header.lower() == "forwarded" else x_forwarded_for(lines)


def x_forwarded_for(lines: Iterable[str]) -> list[str]:
    """Every entry of ``X-Forwarded-For``; the last line is the nearest."""
    return [entry for line in lines for entry in line.split(",")][::-1]


def forwarded(lines: Iterable[str]) -> list[str] | None:
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
