"""Frozen data with the face of ``attrs.frozen`` at a tenth of its price: attrs outside, a ``msgspec.Struct`` inside.

A payout makes four such objects, and an import of the package dozens of such classes. attrs fills each field by a call
of its own, and compiles what it makes of a class; a ``Struct`` is filled in C. All else is as attrs has it: ``has``,
``fields``, ``evolve``, ``asdict``, converters, checks in ``__attrs_post_init__``, the ``repr`` of a field,
``FrozenInstanceError``. Type checkers see attrs itself.

Not for a class with private fields, with validators, or with fields that are not arguments or are not compared: attrs
makes those. A class that is derived from one of these adds methods, and no fields.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import attrs
import msgspec
from attrs.exceptions import FrozenInstanceError

from payments_async._values.public import without_locals

T = TypeVar("T")

# For checks alone: puts another value into a field of the object that is being made.
amend: Callable[[Any, str, Any], None] = msgspec.structs.force_setattr
_unchecked: dict[type, Any] = {}  # an object of each class, made before it had any checks
_NOT_OURS = frozenset({"__dict__", "__weakref__"})  # of the class as it was written


class _Field:
    """What a class says of one of its fields: some of what ``attrs.field`` takes."""

    def __init__(
        self,
        *,
        default: Any = attrs.NOTHING,
        factory: Callable[[], Any] | None = None,
        repr: bool | Callable[[Any], str] = True,  # noqa: A002 - as attrs calls it
        converter: Callable[[Any], Any] | None = None,
    ) -> None:
        self.default = default
        self.factory = factory
        self.repr = repr
        self.converter = converter

    def for_struct(self) -> Any:
        """What a ``Struct`` wants to know."""
        if self.factory is not None:
            return msgspec.field(default_factory=self.factory)
        return msgspec.field() if self.default is attrs.NOTHING else self.default

    def for_attrs(self) -> Any:
        """What attrs wants to know."""
        return attrs.field(default=self.default, factory=self.factory, repr=self.repr, converter=self.converter)


class _AttrsFields:
    """What ``attrs.fields`` tells of a class. attrs finds it out when somebody asks, which few programs do."""

    def __init__(self, written: type, *, kw_only: bool) -> None:
        self._written = written
        self._kw_only = kw_only
        self._found: tuple[attrs.Attribute[Any], ...] | None = None

    def __get__(self, instance: object, owner: type) -> tuple[attrs.Attribute[Any], ...]:
        if self._found is None:
            fields = {name: vars(self._written).get(name, _Field()) for name in _field_names(self._written)}
            members = {name: f.for_attrs() if isinstance(f, _Field) else f for name, f in fields.items()}
            kinds = {name: self._written.__annotations__[name] for name in fields}
            twin = type(owner.__name__, (), members | {"__annotations__": kinds, "__module__": owner.__module__})
            bare = attrs.frozen(kw_only=self._kw_only, slots=False, init=False, repr=False, eq=False)
            self._found = attrs.fields(bare(twin))
        return self._found


class _Frozen(msgspec.Struct, weakref=True):
    """What all of them have."""

    __attrs_attrs__: ClassVar[tuple[Any, ...]]  # of `attrs.Attribute`

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if _field_names(cls) and "__attrs_attrs__" not in vars(cls):
            raise TypeError(f"{cls.__qualname__}: a class derived from frozen data adds methods, and no fields")

    def __attrs_post_init__(self) -> None:
        """Check nothing."""

    # Not by the option of a Struct: its error is another one.
    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError

    def __hash__(self) -> int:
        return hash((type(self), msgspec.structs.astuple(self)))

    def __repr__(self) -> str:
        fields = [field for field in attrs.fields(type(self)) if field.repr is not False]
        values = [(repr if isinstance(field.repr, bool) else field.repr)(getattr(self, field.name)) for field in fields]
        members = ", ".join(f"{field.name}={value}" for field, value in zip(fields, values, strict=True))
        return f"{type(self).__qualname__.rpartition('>.')[2]}({members})"

    @property
    def __rich_repr__(self) -> Any:  # that of a Struct shows what is masked; where there is none, rich asks attrs
        raise AttributeError("__rich_repr__")

    def __replace__(self, /, **changes: Any) -> Any:
        return attrs.evolve(cast(Any, self), **changes)

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), {name: getattr(self, name) for name in self.__struct_fields__})


def restored(kind: type[T], members: Mapping[str, Any]) -> T:
    """Bring an object back as it was: it was checked when it was made, and a stricter check of today is none of its.

    Args:
        kind: Its class, which ``frozen`` made.
        members: Its fields; one that is missing is ``None``.
    """
    if kind not in _unchecked:  # it is derived from such a class
        return kind(**members)
    back: T = _unchecked[kind].__copy__()
    for name, value in members.items():
        if value is not None:
            amend(back, name, value)
    return back


def _field_names(written: type) -> list[str]:
    annotations: Mapping[str, object] = inspect.get_annotations(written)
    return [name for name, kind in annotations.items() if not str(kind).startswith(("ClassVar", "typing.ClassVar"))]


def _finishes(converters: Iterable[tuple[str, Callable[[Any], Any]]]) -> Callable[[Any], None]:
    """What is done with an object once it is filled; an error leaves without our local variables."""

    def __post_init__(self: Any) -> None:  # noqa: N807 - as msgspec calls it
        try:
            for name, convert in converters:
                given = getattr(self, name)
                if (value := convert(given)) is not given:
                    amend(self, name, value)
            self.__attrs_post_init__()
        except BaseException as error:
            without_locals(error)
            raise

    return __post_init__


if TYPE_CHECKING:
    from attrs import field as field  # noqa: PLC0414 - offered here
    from attrs import frozen as frozen  # noqa: PLC0414
else:
    field = _Field

    def frozen(written: type | None = None, *, kw_only: bool = False) -> Any:
        """Make frozen data of a class, as ``attrs.frozen`` does."""
        if written is None:
            return partial(frozen, kw_only=kw_only)
        names = _field_names(written)
        if any(name.startswith("_") for name in names) or issubclass(written, msgspec.Struct):
            raise TypeError(f"{written.__qualname__}: has private fields, or is derived from frozen data")
        members = {name: value for name, value in vars(written).items() if name not in _NOT_OURS}
        fields = {name: members[name] for name in names if isinstance(members.get(name), _Field)}
        members |= {name: each.for_struct() for name, each in fields.items()}
        members["__attrs_attrs__"] = _AttrsFields(written, kw_only=kw_only)
        check = members.pop("__attrs_post_init__", None)
        converters: list[tuple[str, Callable[[Any], Any]]] = []
        if check is not None or any(each.converter is not None for each in fields.values()):
            members["__post_init__"] = _finishes(converters)
        bases = (_Frozen, *(base for base in written.__bases__ if base is not object))
        made = types.new_class(written.__name__, bases, {"kw_only": kw_only}, lambda space: space.update(members))
        _unchecked[made] = made(**dict.fromkeys(names))
        converters += [(name, each.converter) for name, each in fields.items() if each.converter is not None]
        if check is not None:
            made.__attrs_post_init__ = check
        return made
