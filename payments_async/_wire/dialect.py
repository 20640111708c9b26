"""Dialect: one field for each contradiction or guess in what we send. What is received is read in every spelling."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Literal, cast

import attrs

from payments_async._values.checks import check_flag, check_number, check_text

_PLACEHOLDER = "{product_id}"
_CARD_NUMBER = "masked-card-number"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_OUR_HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "content-length", "content-type", "expect", "host", "user-agent"}
)
_FLAGS = ("include_refresh_token", "product_paging", "validation_authorized", "card_body_on_get", "expect_continue")
_PATHS = (
    "api_prefix",
    "refresh_path",
    "internet_path",
    "product_items_path",
    "cards_path",
    "card_patch_path",
    "find_by_request_path",
)
_TEXTS: Mapping[str, bool] = {  # whether None will do as well
    **{name: name in ("refresh_path", "find_by_request_path") for name in _PATHS},
    "correlation_header": True,
    "card_enable_member": False,
    "card_pin_member": False,
    "phone_country_code": False,
    "ipn_response_code": False,
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "authorization_scheme": ("Token", "Bearer", "auto"),
    "phone_format": ("as_given", "e164", "digits", "national"),
    "empty_members": ("omit", "null"),
}


def _zone(zone: tzinfo | str) -> tzinfo:
    """A zone by its name; anything else as it is, to be checked."""
    if not isinstance(zone, str):
        return zone
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # few name one

    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"timezone: no zone named {zone!r} is known here, as 'Africa/Kampala' is; if the name is right, "
            "this machine lacks the zones: install the package tzdata"
        ) from error


def _check_zone(_: object, __: object, zone: object) -> None:
    if not isinstance(zone, tzinfo):
        raise TypeError(f"timezone: expected a zone or its name, as in 'Africa/Kampala', not {type(zone).__name__}")
    if datetime(2026, 1, 1, tzinfo=zone).utcoffset() is None:
        raise ValueError("timezone: the zone names no offset from UTC")


def _statuses(statuses: Iterable[int]) -> frozenset[int]:
    """A set of them, from any collection; anything else as it is, to be checked."""
    try:
        return frozenset(statuses)
    except TypeError:
        return cast("frozenset[int]", statuses)


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
        timezone: The service names no time zone; three sample ids say UTC. A zone, or its name, such as
            ``"Africa/Kampala"``.
        phone_format: Samples show ``0770...``, ``256770...`` and ``+256770...``. ``"as_given"`` sends what the order
            holds, ``"e164"`` with plus and country code, ``"digits"`` without the plus, ``"national"`` with a
            leading 0.
        phone_country_code: Calling code that ``phone_format`` reads a number without one in.
        empty_members: Which members are required is not shown: ``"omit"`` leaves unset ones out, ``"null"`` sends null.
        find_by_request_path: An earlier edition answered ``/transactions/Requests/{request_id}``. With a path here,
            ``transactions.find`` asks it first.
        correlation_header: A header that carries the request id (``X-Correlation-ID`` was seen once), or ``None``.
        expect_continue: Whether an order's body waits for the service's ``100 Continue``. A dead line then shows itself
            before the order has left, so that it is ``NotSent``. It costs a round trip. A service that does not answer
            so gets no order at all: ``payments-async doctor`` finds out.
        turned_away_unread: HTTP statuses believed to mean that an order was turned away without being read. 401
            leads to a new login, any other to a wait. From 400 to 499; a server that fails (5xx) may have read it.
            An answer that names a transaction, or says that the order was taken, is never believed to mean that.
        ipn_response_code: The value of ``ResponseCode`` in our answer to a notification; its meaning is not shown.

    >>> session = PaymentsSession("https://service.example", CREDENTIALS, dialect=Dialect(timezone="Africa/Kampala"))
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
    timezone: tzinfo = attrs.field(default=UTC, converter=_zone, validator=_check_zone)
    phone_format: Literal["as_given", "e164", "digits", "national"] = "as_given"
    phone_country_code: str = "256"
    empty_members: Literal["omit", "null"] = "omit"
    find_by_request_path: str | None = None
    correlation_header: str | None = None
    expect_continue: bool = False
    turned_away_unread: frozenset[int] = attrs.field(default=frozenset({401, 429}), converter=_statuses)
    ipn_response_code: str = "0"

    def __attrs_post_init__(self) -> None:
        for name in _FLAGS:
            check_flag(name, getattr(self, name))
        for name, optional in _TEXTS.items():
            if not optional or getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        for name, allowed in _CHOICES.items():
            _check_choice(name, getattr(self, name), allowed)
        check_number("token_lifetime", self.token_lifetime, above_zero=True)
        if not _keys(self.bank_code_keys):
            raise ValueError("bank_code_keys: name at least one key, as in ('bankCode',)")
        if _keys(self.date_keys) != 2:
            raise ValueError("date_keys: name two keys, the first day's and the last day's")
        _check_words(self)
        _check_paths(self)
        _check_turned_away(self.turned_away_unread)


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: must be one of {', '.join(allowed)}, not {value!r}")


def _keys(value: object) -> int:
    """How many keys are named; 0 for anything but a tuple of names."""
    return len(value) if isinstance(value, tuple) and all(isinstance(key, str) and key for key in value) else 0


def _check_words(dialect: Dialect) -> None:
    for name in ("card_enable_member", "card_pin_member"):
        if not getattr(dialect, name):
            raise ValueError(f"{name}: must not be empty")
    if dialect.card_enable_member == _CARD_NUMBER or dialect.card_pin_member == _CARD_NUMBER:
        raise ValueError(f"card_enable_member, card_pin_member: must not be {_CARD_NUMBER!r}, which names the card")
    code = dialect.phone_country_code
    if not (code.isascii() and code.isdecimal() and 1 <= len(code) <= 4):
        raise ValueError("phone_country_code: expected 1 to 4 digits without a plus, such as '256'")
    header = dialect.correlation_header
    if header is not None and not _HEADER.fullmatch(header):
        raise ValueError("correlation_header: expected the name of a header, such as 'X-Correlation-ID', or None")
    if header is not None and header.lower() in _OUR_HEADERS:
        raise ValueError(f"correlation_header: {header} carries something else already")


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
    for name, path in ((name, getattr(dialect, name) or "") for name in _PATHS):
        if not path.isascii() or any(sign in path for sign in " ?#"):
            raise ValueError(f"{name}: must be written as it is sent: no blank, '?' or '#', and percent-encoded")
    if _PLACEHOLDER not in dialect.product_items_path:
        raise ValueError(f"product_items_path: must contain {_PLACEHOLDER}")
    if dialect.find_by_request_path is not None and "{request_id}" not in dialect.find_by_request_path:
        raise ValueError("find_by_request_path: must contain {request_id}")


def _check_turned_away(statuses: object) -> None:
    if not isinstance(statuses, frozenset):
        raise TypeError(f"turned_away_unread: expected a set such as {{401, 429}}, not {type(statuses).__name__}")
    for status in statuses:
        if isinstance(status, bool) or not isinstance(status, int):
            raise TypeError(f"turned_away_unread: expected whole numbers, not {type(status).__name__}")
        if not 400 <= status < 500:
            raise ValueError(
                f"turned_away_unread: {status} does not prove that an order was not read; only 400 to 499 may"
            )
