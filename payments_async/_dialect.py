"""Dialect: one field for each contradiction or guess in what we send. What is received is read in every spelling."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Literal

import attrs

__all__ = ["Dialect"]

_PLACEHOLDER = "{product_id}"


@attrs.frozen(kw_only=True)
class Dialect:
    """How this package writes what the specification leaves open or says twice.

    Every default follows the specification's samples, or is the guess said to be one here. Change a field when your
    installation of the service turns out to differ; nothing else needs to change.

    Attributes:
        authorization_scheme: The login description shows ``Bearer``, every endpoint sample ``Token``. ``"auto"``
            begins with ``Token``, tries the other once when a fresh login is refused and remembers what worked.
        include_refresh_token: The value of ``includeRefereshToken`` (spelled so) in the login.
        refresh_path: No refresh call is documented. A path here is posted ``{"refreshToken": ...}`` with the refresh
            token at renewal; a login follows when that fails. ``None`` renews by logging in.
        token_lifetime: Seconds a token is valid: 60 minutes by the specification.
        api_prefix: Some samples show paths without ``/api``.
        internet_path: The heading of the mobile internet endpoint says ``.../mobilemoney``, its sample
            ``.../internet``.
        bank_code_keys: The bank's code is ``bankName`` in the sample and ``bankCode`` in the field list; it is sent
            under every key named here.
        date_keys: First and last day of a listing: ``earlierDate``/``laterDate`` in the description,
            ``startDate``/``endDate`` in the sample.
        product_items_path: A guess: nothing tells which path lists the items of a product.
        product_paging: A guess: whether product lists take ``pageNumber`` and ``pageSize`` as transactions do.
        validation_authorized: Validation is the one sample without an Authorization header.
        cards_path: ``/cards/`` and ``/v2/cards/`` are both shown for reading a card.
        card_patch_path: Where a card is patched; shown without a trailing slash.
        card_body_on_get: The samples send ``masked-card-number`` as a JSON body of the GET.
        card_enable_member: A guess: the body member, with the value ``true``, that enables a card.
        card_pin_member: A guess: the body member that carries the new PIN.
        timezone: The service names no time zone; three sample ids say UTC.
        phone_format: Samples show ``0770...``, ``256770...`` and ``+256770...``. ``"as_given"`` sends what the order
            holds, ``"e164"`` with plus and country code, ``"digits"`` without the plus, ``"national"`` with a
            leading 0.
        phone_country_code: Calling code that ``phone_format`` reads a number without one in.
        empty_members: Which members are required is not shown: ``"omit"`` leaves unset ones out, ``"null"`` sends null.
        find_by_request_path: An earlier edition answered ``/transactions/Requests/{request_id}``. With a path here,
            ``transactions.find`` asks it first.
        correlation_header: A header that carries the request id (``X-Correlation-ID`` was seen once), or ``None``.
        turned_away_unread: HTTP statuses believed to mean that an order was turned away without being read. 401
            leads to a new login, any other to a wait.
        ipn_response_code: The value of ``ResponseCode`` in our answer to a notification; its meaning is not shown.
    """

    authorization_scheme: Literal["Token", "Bearer", "auto"] = "Token"
    include_refresh_token: bool = True
    refresh_path: str | None = None
    token_lifetime: float = 3600.0
    api_prefix: str = "/api"
    internet_path: str = "/transactions/payouts/internet"
    bank_code_keys: tuple[str, ...] = ("bankName", "bankCode")
    date_keys: tuple[str, str] = ("earlierDate", "laterDate")
    product_items_path: str = "/products/{product_id}/items"
    product_paging: bool = True
    validation_authorized: bool = False
    cards_path: str = "/cards/"
    card_patch_path: str = "/cards"
    card_body_on_get: bool = True
    card_enable_member: str = "start"
    card_pin_member: str = "pin"
    timezone: tzinfo = UTC
    phone_format: Literal["as_given", "e164", "digits", "national"] = "as_given"
    phone_country_code: str = "256"
    empty_members: Literal["omit", "null"] = "omit"
    find_by_request_path: str | None = None
    correlation_header: str | None = None
    turned_away_unread: frozenset[int] = attrs.field(default=frozenset({401, 429}), converter=frozenset)
    ipn_response_code: str = "0"

    def __attrs_post_init__(self) -> None:
        _one_of("authorization_scheme", self.authorization_scheme, ("Token", "Bearer", "auto"))
        _one_of("phone_format", self.phone_format, ("as_given", "e164", "digits", "national"))
        _one_of("empty_members", self.empty_members, ("omit", "null"))
        if not self.token_lifetime > 0:
            raise ValueError("token_lifetime: must be above zero seconds")
        if not _keys(self.bank_code_keys):
            raise ValueError("bank_code_keys: name at least one key, as in ('bankCode',)")
        if _keys(self.date_keys) != 2:
            raise ValueError("date_keys: name two keys, the first day's and the last day's")
        if _PLACEHOLDER not in self.product_items_path:
            raise ValueError(f"product_items_path: must contain {_PLACEHOLDER}")
        if self.find_by_request_path is not None and "{request_id}" not in self.find_by_request_path:
            raise ValueError("find_by_request_path: must contain {request_id}")
        _check_paths(self)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: must be one of {', '.join(allowed)}, not {value!r}")


def _keys(value: object) -> int:
    """How many keys are named; 0 for anything but a tuple of names."""
    return len(value) if isinstance(value, tuple) and all(isinstance(key, str) and key for key in value) else 0


def _check_paths(dialect: Dialect) -> None:
    for name in ("internet_path", "product_items_path", "cards_path", "card_patch_path"):
        if not getattr(dialect, name).startswith("/"):
            raise ValueError(f"{name}: must start with '/'")
    for name in ("refresh_path", "find_by_request_path"):
        path = getattr(dialect, name)
        if path is not None and not path.startswith("/"):
            raise ValueError(f"{name}: must start with '/' or be None")
    if dialect.api_prefix and (not dialect.api_prefix.startswith("/") or dialect.api_prefix.endswith("/")):
        raise ValueError("api_prefix: must be empty or start, and not end, with '/'")
