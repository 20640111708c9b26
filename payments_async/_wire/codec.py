"""JSON to models and back: every known spelling, exact numbers, timestamps, strict text and truth values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, get_args, get_origin

import attrs
import msgspec

from payments_async._values.amounts import read_amount
from payments_async._values.checks import exact_text
from payments_async._values.frozen import frozen
from payments_async._wire.call import Unreadable
from payments_async._wire.models import (
    Account,
    Card,
    Product,
    ProductItem,
    Transaction,
    TransactionBeneficiary,
    TransactionProduct,
    TransactionStatus,
)

if TYPE_CHECKING:
    import cattrs

T = TypeVar("T")


def _derived(value: object) -> str:
    """What msgspec does not know: text of a derived class."""
    if isinstance(value, str):
        return exact_text(value)
    raise NotImplementedError


encode = msgspec.json.Encoder(decimal_format="number", enc_hook=_derived).encode
_decoder = msgspec.json.Decoder(float_hook=Decimal)
_BOM = b"\xef\xbb\xbf"
_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)

# Other names of a field, folded: the earlier edition's and those of neighbouring descriptions.
_ALIASES: Mapping[type, Mapping[str, str]] = {
    Transaction: {"clientreferenceid": "request_id", "type": "transaction_type"},
    TransactionBeneficiary: {"customerphone": "phone", "phonenumber": "phone", "customeremail": "email"},
    ProductItem: {"itemid": "product_item_id", "itemname": "name", "itemprice": "amount"},
}
_MERGED: Mapping[type, str] = {TransactionBeneficiary: "data"}  # members of this member belong to the record itself


def decode(body: bytes) -> Any:
    """The JSON value of a body; numbers with a fraction or an exponent as ``Decimal``, digit for digit.

    Raises:
        Unreadable: When it is not JSON; the message says what it looks like instead.
    """
    try:
        return _decoder.decode(body.removeprefix(_BOM))
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidOperation, RecursionError) as error:
        start = body.lstrip()[:1]
        what = "a web page" if start == b"<" else "an empty body" if not start else "no readable JSON"
        raise Unreadable(f"the answer is {what}") from error


@lru_cache(maxsize=1024)
def fold(name: str) -> str:
    """A member's name without case, underscores and dashes: all spellings of one name fold to one."""
    return name.replace("_", "").replace("-", "").lower()


def read_text(value: object) -> str:
    """An id or text, whatever JSON type carried it.

    Raises:
        ValueError: For truth values, null, lists and objects.
    """
    match value:
        case str():
            return value
        case bool():
            raise ValueError("a truth value is not text")
        case int():
            return str(value)
        case Decimal():
            return format(read_amount(value), "f")
        case _:
            raise ValueError("no text")


def read_code(value: object) -> int | None:
    """The envelope's ``code``: ``None`` when missing.

    Raises:
        Unreadable: For a truth value, a text that is not a number and anything else.
    """
    if value is None:
        return None
    try:
        return read_int(value)
    except ValueError:
        raise Unreadable("the answer's code is not a number") from None


def read_record(kind: type[T], value: object, timezone: tzinfo) -> T:
    """One record in any spelling; what is optional and unreadable is ``None``, its text stays in ``extra``.

    Raises:
        Unreadable: When it is not an object or a required member is missing or unreadable.
    """
    return _converter(timezone).structure(value, kind)


_TWELVE_HOURS = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})\s+(\d{1,2}):(\d{2}):(\d{2})\s*([AaPp])\.?[Mm]\.?", re.ASCII)


@lru_cache(maxsize=256, typed=True)  # many answers carry the same second
def _moment(text: str, timezone: tzinfo) -> datetime:
    """The moment that a text names, in one of the three shapes."""
    found = _TWELVE_HOURS.fullmatch(text)
    if found is None:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone)
    month, day, year, hour, minute, second = map(int, found.groups()[:6])
    if not 1 <= hour <= 12:
        raise ValueError("no hour of a twelve-hour clock")
    afternoon = found.group(7) in "Pp"
    return datetime(year, month, day, hour % 12 + 12 * afternoon, minute, second, tzinfo=timezone)


def read_timestamp(value: object, timezone: tzinfo) -> datetime:
    """A moment, aware. Understands ``M/D/YYYY h:mm:ss AM|PM``, ``YYYY-MM-DD HH:mm:ss`` and ISO 8601.

    Args:
        value: The text as it came.
        timezone: Zone of a text that names none.

    Raises:
        ValueError: For anything else.
    """
    if not isinstance(value, str) or len(value) > 64:
        raise ValueError("no timestamp")
    return _moment(value.strip(), timezone)


def read_int(value: object) -> int:
    """A whole number, whatever JSON type carried it.

    Raises:
        ValueError: For a truth value, a fraction and anything else.
    """
    match value:
        case bool():
            raise ValueError("a truth value is not a number")
        case int():
            return value
        case Decimal() if (amount := read_amount(value)) == amount.to_integral_value():
            return int(amount)
        case str() if _WHOLE.fullmatch(value.strip()):
            return int(value)
        case _:
            raise ValueError("no whole number")


def _read_bool(value: object) -> bool:
    """A truth value, whatever JSON type carried it."""
    match value:
        case bool():
            return value
        case int() if value in (0, 1):
            return bool(value)
        case str() if value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        case _:
            raise ValueError("no truth value")


def _is_mapping(kind: Any) -> bool:
    origin: object = get_origin(kind)
    return origin is Mapping


def _read_mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


@lru_cache(maxsize=8)
def _converter(timezone: tzinfo) -> cattrs.Converter:
    """What reads the models, for one zone."""
    import cattrs  # at the first record that is read with thought: an import costs as much as three of our rooms

    converter = cattrs.Converter(detailed_validation=False)
    converter.register_structure_hook(str, lambda value, _: read_text(value))
    converter.register_structure_hook(bool, lambda value, _: _read_bool(value))
    converter.register_structure_hook(int, lambda value, _: read_int(value))
    converter.register_structure_hook(Decimal, lambda value, _: read_amount(value))
    converter.register_structure_hook(datetime, lambda value, _: read_timestamp(value, timezone))
    converter.register_structure_hook(TransactionStatus, lambda value, _: TransactionStatus(read_text(value)))
    converter.register_structure_hook_func(_is_mapping, lambda value, _: _read_mapping(value))
    for kind in (TransactionProduct, TransactionBeneficiary, Transaction, Product, ProductItem, Account, Card):
        converter.register_structure_hook(kind, _Record(kind, converter))
    return converter


@frozen
class _Field:
    """One field of a class, and how it is read."""

    name: str
    read: Callable[[Any, Any], Any]
    kind: Any


class _Record(Generic[T]):
    """Reads one class: a cattrs hook that knows spellings, and that nothing the service says may be dropped."""

    def __init__(self, kind: type[T], converter: cattrs.Converter) -> None:
        self._kind = kind
        self._merged = _MERGED.get(kind)
        self._fields: dict[str, _Field] = {}
        self._required: list[str] = []
        for attribute in attrs.fields(attrs.resolve_types(kind)):  # type: ignore[type-var, arg-type]
            if attribute.name != "extra":
                base = _without_none(attribute.type)
                read = (lambda value, _: value) if base is Any else converter.get_structure_hook(base)
                self._fields[attribute.name] = _Field(attribute.name, read, base)
                if attribute.default is attrs.NOTHING:
                    self._required.append(attribute.name)
        self._texts = {field.name for field in self._fields.values() if field.kind is str}
        self._names = {fold(name): name for name in self._fields} | dict(_ALIASES.get(kind, {}))

    def __call__(self, value: Any, _: Any) -> T:
        if not isinstance(value, dict):
            raise Unreadable(f"expected an object for {self._kind.__name__}")
        known: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        self._sort(value, known, extra)
        for name in self._required:
            if known.get(name) in (None, ""):
                raise Unreadable(f"{self._kind.__name__}: {name} is missing or unreadable")
        make: Callable[..., T] = self._kind
        return make(**known, extra=extra)

    def _sort(
        self, value: Mapping[str, Any], known: dict[str, Any], extra: dict[str, Any], *, inner: bool = False
    ) -> None:
        """Put each member under the field it spells, or aside; those of a merged member as if they stood here."""
        for key, item in value.items():
            folded = fold(key)
            name = self._names.get(folded)
            if folded == self._merged and isinstance(item, dict) and not inner:
                self._sort(item, known, extra, inner=True)
            elif name is None or (item is not None and known.get(name) is not None):
                extra[key] = item
            elif item is None:  # in a second spelling it says no more than in the first
                known.setdefault(name)
            elif type(item) is str and name in self._texts:  # the usual case, quickly
                known[name] = item
            else:
                self._read(self._fields[name], key, item, known, extra)

    def _read(self, field: _Field, key: str, item: Any, known: dict[str, Any], extra: dict[str, Any]) -> None:
        """Read one member; what is unreadable costs no record, and is kept as it came."""
        try:
            known[field.name] = value = field.read(item, field.kind)
        except (ValueError, ArithmeticError, Unreadable):
            known[field.name] = None
            extra[key] = item
            return
        if field.kind is TransactionStatus and value != item:
            extra[key] = item  # the service's own word for it is kept


def _without_none(kind: Any) -> Any:
    """The type of a field that may be ``None``, without that."""
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    return kind
