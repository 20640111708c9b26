"""Proof of who sent a notification, beyond its address. No key exchange is documented: names are arguments."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import re
import ssl
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol
from urllib.parse import unquote

from multidict import MultiMapping

from payments_async._values.frozen import field, frozen
from payments_async._values.handlers import error_text

_log = logging.getLogger("payments_async.ipn")
_SHORTEST_KEY = 16
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


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


class HmacVerifier:
    """A keyed digest of the raw body in a header.

    Args:
        keys: Every key that is good now: during a rotation the new one and the old one.
        header: Header that carries the signature.
        algorithm: Name of a digest in ``hashlib``.
        encoding: How the signature is written.
        prefix: Text before the signature in the header, such as ``"sha256="``.
    """

    def __init__(
        self,
        keys: Sequence[bytes],
        *,
        header: str = "X-Signature",
        algorithm: str = "sha256",
        encoding: Literal["hex", "base64"] = "hex",
        prefix: str = "",
    ) -> None:
        self._keys = tuple(keys)
        if not all(isinstance(key, bytes) for key in self._keys):
            raise TypeError("keys: pass a tuple of bytes, not one key")
        if not self._keys or min(map(len, self._keys)) < _SHORTEST_KEY:
            raise ValueError("keys: at least one, and each of 16 bytes or more")
        hashlib.new(algorithm)  # an unknown name is found now, not at the first notification
        self._header = header
        self._algorithm = algorithm
        self._encoding = encoding
        self._prefix = prefix

    async def __call__(self, delivery: Delivery) -> bool:
        """Whether the header holds the digest of the body under any of the keys."""
        values = delivery.headers.getall(self._header, ())
        signature = self._decoded(values[0]) if len(values) == 1 else None
        if signature is None:
            return False
        genuine = False
        for key in self._keys:  # all of them, so that the time taken tells nothing
            genuine |= hmac.compare_digest(signature, hmac.digest(key, delivery.body, self._algorithm))
        return genuine

    def _decoded(self, value: str) -> bytes | None:
        if not value.startswith(self._prefix):
            return None
        text = value[len(self._prefix) :].strip()
        try:
            return bytes.fromhex(text) if self._encoding == "hex" else base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            return None


class ClientCertificateVerifier:
    """Mutual TLS: the client's certificate is one of those you know.

    The handshake proves that the client holds its key; ask for it with ``verify_mode = ssl.CERT_REQUIRED`` where TLS
    ends in this process, or let the proxy ask and set a header.

    Args:
        fingerprints: SHA-256 of each certificate (DER), in hex; colons do not matter.
        header: Header in which a trusted proxy passes the certificate on: its SHA-256 fingerprint, or the certificate
            itself as percent-encoded PEM (as nginx's ``$ssl_client_escaped_cert``). The proxy must overwrite what a
            stranger sends under this name. ``None`` believes the socket alone.
    """

    def __init__(self, fingerprints: Iterable[str], *, header: str | None = None) -> None:
        if isinstance(fingerprints, str):
            raise TypeError("fingerprints: pass a tuple of texts, not one text")
        self._known = frozenset(map(_plain, fingerprints))
        if not self._known or not all(map(_HEX.fullmatch, self._known)):
            raise ValueError("fingerprints: at least one, and each the 64 hex digits of a SHA-256")
        self._header = header

    async def __call__(self, delivery: Delivery) -> bool:
        """Whether the certificate of the socket, or the one a trusted proxy tells of, is known."""
        if delivery.certificate is not None and not delivery.through_proxy:
            return hashlib.sha256(delivery.certificate).hexdigest() in self._known
        if self._header is None or not delivery.through_proxy:
            return False
        values = delivery.headers.getall(self._header, ())
        return len(values) == 1 and _told(values[0]) in self._known


def _told(value: str) -> str:
    text = unquote(value).strip()
    if not text.startswith("-----BEGIN CERTIFICATE-----"):
        return _plain(text)
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text)).hexdigest()
    except (ValueError, binascii.Error):
        return ""


def _plain(fingerprint: str) -> str:
    return fingerprint.replace(":", "").strip().lower()
