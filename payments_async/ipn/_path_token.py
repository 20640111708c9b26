"""The unguessable last segment of the IPN URL: what it may be, and whether a caller knows it."""

from __future__ import annotations

import hmac

__all__ = ["checked", "knows"]

_SHORTEST = 16


def checked(token: str | None) -> str | None:
    """The token, if it can stand in a URL and is long enough not to be guessed.

    Raises:
        ValueError: It is not.
    """
    if token is not None and (len(token) < _SHORTEST or not token.isascii() or not token.isprintable()):
        raise ValueError("path_token: at least 16 printable ASCII characters, such as secrets.token_urlsafe() gives")
    if token is not None and set(token) & set("/?#% "):
        raise ValueError("path_token: without '/', '?', '#', '%' and spaces")
    return token


def knows(ours: str | None, theirs: str | None) -> bool:
    """Compare in constant time; without a token of ours, none is right."""
    if theirs is None or ours is None:
        return theirs is ours
    return hmac.compare_digest(theirs.encode(errors="surrogateescape"), ours.encode())
