"""The public surface is pinned: a name appears, moves or disappears on purpose, in the change that edits this list."""

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import payments_async

PINNED = [
    "Acceptance",
    "Account",
    "Accounts",
    "AirtimeLine",
    "AuthenticationFailed",
    "BankAccount",
    "Beneficiary",
    "Card",
    "Cards",
    "CollectionOrder",
    "Collections",
    "Credentials",
    "Destination",
    "Dialect",
    "IncompleteListing",
    "InternetLine",
    "InvalidOrder",
    "Limits",
    "Listing",
    "MobileMoneyWallet",
    "NotSent",
    "Order",
    "OutcomeUnknown",
    "Page",
    "PaymentsError",
    "PaymentsSession",
    "PayoutOrder",
    "Payouts",
    "Product",
    "ProductItem",
    "Products",
    "Rejected",
    "RetryPolicy",
    "ServiceFault",
    "Settlement",
    "SeveralTransactions",
    "Transaction",
    "TransactionBeneficiary",
    "TransactionProduct",
    "TransactionStatus",
    "Transactions",
    "UnreadableReply",
    "UtilityAccount",
    "Validation",
    "request_id_for",
]
ROOT = Path(payments_async.__file__).parent
OTHER_PLACES = [
    f"payments_async.{place}"
    for place in ("journal", "bulk", "ipn", "sandbox", "testing")
    if (ROOT / place / "__init__.py").exists() or (ROOT / f"{place}.py").exists()
]


def undocumented(place: ModuleType) -> list[str]:
    """The public classes, functions and methods of a module that say nothing of themselves."""
    found = []
    for name in place.__all__:
        thing = getattr(place, name)
        if not (inspect.isclass(thing) or inspect.isroutine(thing)):
            continue
        if not own_docstring(thing):
            found.append(name)
        if inspect.isclass(thing):
            found += [
                f"{name}.{method}" for method in public_methods(thing) if not inspect.getdoc(getattr(thing, method))
            ]
    return found


def own_docstring(thing: object) -> str | None:
    """Its own, not its base class's: inspect.getdoc would take that."""
    return thing.__doc__ if "__doc__" not in getattr(thing, "__dict__", {}) else vars(thing)["__doc__"]


def public_methods(cls: type) -> list[str]:
    """Those that a class defines itself."""
    return [name for name, value in vars(cls).items() if not name.startswith("_") and inspect.isroutine(value)]


def test_the_public_names_are_the_pinned_ones() -> None:
    """A changed list is a changed promise."""
    assert PINNED == [name for name in payments_async.__all__ if name != "__version__"]


def test_the_public_names_are_sorted_and_exist() -> None:
    """A name is found by eye, and every listed one can be imported."""
    assert sorted(payments_async.__all__) == payments_async.__all__
    assert [] == [name for name in payments_async.__all__ if not hasattr(payments_async, name)]


@pytest.mark.parametrize("place", ["payments_async", *OTHER_PLACES])
def test_every_public_class_and_function_has_a_docstring(place: str) -> None:
    """What is promised is described."""
    assert [] == undocumented(importlib.import_module(place))


@pytest.mark.parametrize("place", OTHER_PLACES)
def test_a_name_has_one_home(place: str) -> None:
    """What is imported from one place is not offered in another."""
    assert [] == sorted(set(importlib.import_module(place).__all__) & set(payments_async.__all__))


def test_a_missing_docstring_is_noticed() -> None:
    """The check above can fail, also where a base class has a docstring."""
    place = ModuleType("place")
    bare = type("Bare", (ValueError,), {"act": lambda self: None})
    documented = type("Documented", (), {"__doc__": "Something."})
    vars(place).update(__all__=["Bare", "Documented", "bare"], Bare=bare, Documented=documented, bare=lambda: None)
    assert ["Bare", "Bare.act", "bare"] == undocumented(place)


def test_the_package_says_that_it_is_typed() -> None:
    """Type checkers read annotations only beside this file."""
    assert (ROOT / "py.typed").is_file()
