"""Frozen data is what attrs would make of the same class, to everybody who looks at it."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Generic, TypeVar

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

import payments_async
from payments_async import Acceptance, BankAccount, Beneficiary, MobileMoneyWallet, Page, PayoutOrder
from payments_async._values.frozen import field, frozen, restored
from payments_async._values.masking import masked

T = TypeVar("T")


def exact(value: Decimal | int) -> Decimal:
    """The amount as a Decimal."""
    return Decimal(value)


@frozen(kw_only=True)
class Made:
    """Data of every sort that the package has."""

    kind: ClassVar[str] = "made"
    name: str = field(repr=masked)
    amount: Decimal = field(converter=exact)
    note: str | None = None
    secret: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError("amount: below zero")

    @property
    def doubled(self) -> Decimal:
        """Twice the amount."""
        return self.amount * 2


@attrs.frozen(kw_only=True)
class OfAttrs:
    """The same, as attrs makes it."""

    kind: ClassVar[str] = "made"
    name: str = attrs.field(repr=masked)
    amount: Decimal = attrs.field(converter=exact)
    note: str | None = None
    secret: str | None = attrs.field(default=None, repr=False)
    extra: Mapping[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError("amount: below zero")


@frozen
class Pair(Generic[T]):
    """Data that is given by place."""

    first: T
    second: int = 2


texts = st.text(max_size=12)
members = st.fixed_dictionaries(
    {"name": texts, "amount": st.integers(0, 10**9) | st.decimals(0, 10**9)},
    optional={"note": texts | st.none(), "secret": texts, "extra": st.dictionaries(texts, texts, max_size=2)},
)


@given(members)
def test_an_object_shows_and_tells_what_that_of_attrs_does(given_: dict[str, Any]) -> None:
    """What is printed, what is taken apart, and what is changed in a copy are the same."""
    made, other = Made(**given_), OfAttrs(**given_)
    assert repr(other) == repr(made).replace("Made(", "OfAttrs(")
    assert pretty_repr(other, max_width=900) == pretty_repr(made, max_width=900).replace("Made(", "OfAttrs(")
    assert attrs.asdict(other) == attrs.asdict(made)
    assert attrs.asdict(attrs.evolve(other, note="other")) == attrs.asdict(attrs.evolve(made, note="other"))
    assert type(other.amount) is type(made.amount)


@given(members, members)
def test_two_objects_are_equal_when_those_of_attrs_are(one: dict[str, Any], two: dict[str, Any]) -> None:
    """So are their hashes, where there is one."""
    assert (OfAttrs(**one) == OfAttrs(**two)) == (Made(**one) == Made(**two))
    assert Made(**one) == Made(**one)
    assert Made(**one) != OfAttrs(**one)
    plain = {name: value for name, value in one.items() if name != "extra"} | {"extra": ()}
    assert hash(Made(**plain)) == hash(Made(**plain))


@given(members)
def test_an_object_is_the_same_after_every_way_of_copying(given_: dict[str, Any]) -> None:
    """Pickled, copied, copied in depth, or taken down by its members."""
    made = Made(**given_)
    pickled = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own bytes
    replaced: Any = made.__replace__()  # type: ignore[attr-defined] # what copy.replace calls
    assert [made] * 5 == [pickled, copy.copy(made), copy.deepcopy(made), replaced, restored(Made, attrs.asdict(made))]


def test_attrs_tells_the_same_of_the_class() -> None:
    """Names, defaults, converters, types and masks of the fields, in their order."""
    assert attrs.has(Made)
    told, expected = [
        [attrs.asdict(each) if attrs.has(type(each)) else repr(each) for each in attrs.fields(kind)]
        for kind in (Made, OfAttrs)
    ]
    assert expected == told
    assert [each.name for each in attrs.fields(Made)] == list(inspect.signature(Made).parameters)
    assert Decimal is attrs.fields(attrs.resolve_types(Made)).amount.type


@pytest.mark.parametrize("name", ["name", "extra", "unknown", "kind"])
def test_nothing_can_be_put_or_deleted(name: str) -> None:
    """With the error of attrs, in the class and in one that is derived from it."""

    class Derived(Made):
        """One with a method more."""

    for made in (Made(name="a", amount=1), Derived(name="a", amount=1)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(made, name, "other")
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            delattr(made, name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Made(name="a"),  # type: ignore[call-arg]
        lambda: Made(name="a", amount=1, other=2),  # type: ignore[call-arg]
        lambda: Made("a", amount=1),  # type: ignore[misc]
        lambda: Pair(1, 2, 3),  # type: ignore[call-arg]
        lambda: Pair(1, first=2),  # type: ignore[misc]
        Pair,
    ],
    ids=["missing", "unknown", "by place", "one too many", "given twice", "none"],
)
def test_a_wrong_argument_is_a_type_error(make: Callable[[], object]) -> None:
    """As of any function."""
    with pytest.raises(TypeError):
        make()


def test_a_check_is_made_whenever_an_object_is_made_and_never_when_it_comes_back() -> None:
    """What was kept is given back as it was, whatever is checked by then."""
    with pytest.raises(ValueError, match="below zero"):
        Made(name="a", amount=-1)
    with pytest.raises(ValueError, match="below zero"):
        attrs.evolve(Made(name="a", amount=1), amount=-1)
    back = restored(Made, {"name": "a", "amount": Decimal(-1)})
    assert (Decimal(-1), None) == (back.amount, back.note)
    assert back == pickle.loads(pickle.dumps(back))  # noqa: S301 - our own bytes


def test_a_derived_class_adds_methods_and_its_own_check() -> None:
    """A check that takes the place of the other one is asked, as attrs does it."""

    class Derived(Made):
        """One that takes everything but nothing."""

        def __attrs_post_init__(self) -> None:
            if not self.amount:
                raise ValueError("amount: nothing")

    assert Decimal(-2) == Derived(name="a", amount=-1).doubled
    assert attrs.fields(Made) == attrs.fields(Derived)
    with pytest.raises(ValueError, match="nothing"):
        Derived(name="a", amount=0)


def test_a_derived_class_with_a_field_more_is_refused() -> None:
    """At once, where it is written, and not where the field is missed."""
    with pytest.raises(TypeError, match=r"Derived: a class derived from frozen data adds methods, and no fields"):

        class Derived(Made):
            more: int = 0


def test_a_private_field_is_refused() -> None:
    """By attrs it would be taken by another name than a Struct does."""
    with pytest.raises(TypeError, match=r"Private: has private fields"):

        @frozen
        class Private:
            _inner: int


def test_a_mapping_that_is_not_given_is_nobody_elses() -> None:
    """Each object has its own."""
    assert Made(name="a", amount=1).extra is not Made(name="a", amount=1).extra


def test_an_object_can_be_referred_to_weakly() -> None:
    """As those of attrs can."""
    made = Made(name="a", amount=1)
    reference = weakref.ref(made)
    assert made is reference()
    del made
    gc.collect()
    assert reference() is None


def test_what_is_given_by_place_is_matched_by_place() -> None:
    """And what is given by name is matched by name alone."""
    match BankAccount("0011", "B1"):
        case BankAccount(account, bank):
            assert ("0011", "B1") == (account, bank)
        case _:
            pytest.fail("it has another shape")
    assert ((), ("first", "second")) == (Made.__match_args__, Pair.__match_args__)
    assert Pair(1, 2) == Pair[int](1)


@pytest.mark.parametrize("name", sorted(payments_async.__all__))
def test_every_public_class_of_data_is_as_attrs_reads_it(name: str) -> None:
    """Its fields are those that it is made of."""
    kind = getattr(payments_async, name)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        assert kind.__struct_fields__ == tuple(each.name for each in attrs.fields(kind))
        attrs.resolve_types(kind)


def test_tools_that_take_an_order_apart_see_no_person() -> None:
    """Neither by its repr nor in the way that rich looks into it."""
    order = PayoutOrder(
        request_id="r-1",
        amount=1500,
        destination=MobileMoneyWallet("+256772000017"),
        product_item_id="item",
        beneficiary=Beneficiary(name="Grace Akello", email_address="grace@example.org"),
    )
    acceptance = Acceptance(request_id="r-1", transaction_id="t-1", message="for +256772000017")
    shown = "".join([repr(each) + pretty_repr(each) for each in (order, acceptance, Page(collection=(order,)))])
    assert [] == [word for word in ("772000017", "Grace", "grace@") if word in shown]
