"""The public surface is pinned: a name appears, moves or disappears on purpose, in the change that edits this list."""

import ast
import importlib
import inspect
import itertools
import pickle
import subprocess
import sys
import traceback
import typing
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import attrs
import pytest

import payments_async

PINNED = {
    "payments_async": """
        Acceptance Account Accounts AirtimeLine Attempt AuthenticationFailed BankAccount Beneficiary Card Cards
        CollectionOrder Collections Credentials Destination Dialect Entry Exchange Exchanges FactsFormatter
        HttpConnection IncompleteListing InternetLine InvalidOrder Limits Listing LocalFault MobileMoneyWallet NotSent
        Order Outbox OutcomeUnknown Page Payments PaymentsError PaymentsSession PayoutOrder Payouts PostgresJournal
        Product ProductItem Products Receiver Rejected RetryPolicy ServiceFault Settlement SeveralTransactions
        SqliteJournal State Transaction TransactionBeneficiary TransactionProduct TransactionStatus Transactions
        UnreadableReply UtilityAccount Validation request_id_for
    """,
    "payments_async.bulk": """
        Batch BatchChanged BatchTerms Comparison Difference Double Duplicate DuplicateGroup Duplicates FileColumn
        FileFormat FirstLook Fuse Guess Issue LaterTry Ledger PayeeChange Plan PlanProgress PlanSettings Problem
        ReconcileSettings Reconciliation Repeat Report Retries Returned RunProgress RunSettings SearchProgress Share
        acknowledge approval_sheet give_listing_deadline guess_item later_tries ledger lift_quarantine orders_digest
        particulars_in plan problems_file read_batch read_money receipt reconcile report retried_id retry_file
        returned_file run_batch sample_payroll send_again send_again_all
    """,
    "payments_async.fleet": """
        FleetNotReady FleetStatus Routine metrics run_schedule run_worker status submit
    """,
    "payments_async.ipn": """
        Answer DOCUMENTED_SENDERS Delivery HandlerFailure HandlerPolicy HealthProblem
        Receiver ReceiverHealth ReceiverSettings RecordSource Refusal Registration RequestRefused
        SENDERS_2026 SENDERS_OLDER ServerLimits THIS_MACHINE TransactionConflict TransactionEvent TransactionFailed
        TransactionProcessing TransactionSucceeded TransactionUnrecognised UNIX_SOCKET UnreadableNotification Verifier
        read_notification serve serving
    """,
    "payments_async.journal": """
        Approval ApprovalRule Approver ApproverKey Archive ArchivedOrder ArchivedOrders Copied Entry FINAL Happening
        HeldElsewhere Inconsistency IntegrityCheck Journal JournalBehind JournalClosed JournalCorrupt JournalError
        JournalFull JournalLocked JournalLost JournalMoved JournalReadOnly JournalRefused JournalTooNew
        JournalUnavailable JournalUnusable LeaseLost ListScan ListingDeadline LoadBusy Migration NotAJournal
        NotApproved NotCancelled NotCompared NotLookedFor NotMigrated NotParked OrderUnknown OrdersArchived OrdersDiffer
        OutcomeWithHistory Particulars PlaceTaken PostgresJournal Progress Proposal Pruned RegistryDamaged Run
        RunIdentity RunUnknown SecondJournal Signal Signature SqliteJournal State StateFolder StillWorked
        TakeoverAuthorisation UNPAID UNSETTLED VerificationReport WrongAccount approval_request archive_orders
        copy_journal journal_at read_request
    """,
    "payments_async.journal.contract": """
        Arrival Awaited Backlog CRASH_POINTS Chunk Chunks ClaimedOrder Doubt EVIDENCE Evidence Heard HeldUp
        ListingWord Loaded NotPermitted OldOrder OpenOrder OrderEvent Outcome Pause Permit Placed RULES RateSlots
        RawNotification Receipt SAID SharedRate Staged StoredEvent Subscription Transition TransitionResult Waiting
        is_one_person next_state why_not_approved
    """,
    "payments_async.otel": """
        OpenTelemetry
    """,
    "payments_async.outbox": """
        Fuse HandlerFailure HandlerPolicy HealthProblem Outbox OutboxHealth WorkerSettings
    """,
    "payments_async.sandbox": """
        Clock Counterparty DeliveryAttempt Execution Fault ManualClock Quirks Received Redelivery Sandbox
        SandboxAccount SandboxServer Status SystemClock
    """,
    "payments_async.testing": """
        Notification Simulation Spelling Testing VirtualClock assert_paid_once assert_pays_once deliver
        mend_aioresponses notification payments_clock payments_journal payments_outbox payments_postgres
        payments_postgres_server payments_postgres_tables payments_receiver payments_sandbox payments_session
    """,
}
ROOT = Path(payments_async.__file__).parent


def public_places() -> list[str]:
    """The modules that no part of their path marks as private."""
    paths = (path.relative_to(ROOT.parent).with_suffix("").parts for path in sorted(ROOT.rglob("*.py")))
    modules = (parts[:-1] if parts[-1] == "__init__" else parts for parts in paths)
    return [".".join(parts) for parts in modules if not any(part.startswith("_") for part in parts)]


PLACES = public_places()


def offered(place: str) -> dict[str, object]:
    """What a public place offers, by name."""
    module = importlib.import_module(place)
    return {name: getattr(module, name) for name in getattr(module, "__all__", ())}


def undocumented(place: ModuleType) -> list[str]:
    """The public classes, functions and methods of a module that say nothing of themselves."""
    found = []
    for name in getattr(place, "__all__", ()):
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


@pytest.mark.parametrize("place", PLACES)
def test_the_public_names_are_the_pinned_ones(place: str) -> None:
    """A changed list is a changed promise."""
    assert PINNED[place].split() == sorted(name for name in offered(place) if name != "__version__")


def test_the_public_places_are_the_pinned_ones() -> None:
    """A module whose name does not say that it is private is a promise too."""
    assert sorted(PINNED) == PLACES


@pytest.mark.parametrize("place", PLACES)
def test_the_public_names_are_sorted(place: str) -> None:
    """A name is found by eye."""
    names = list(offered(place))
    assert sorted(names) == names


@pytest.mark.parametrize("place", PLACES)
def test_every_public_class_and_function_has_a_docstring(place: str) -> None:
    """What is promised is described."""
    assert [] == undocumented(importlib.import_module(place))


@pytest.mark.parametrize(("place", "other"), list(itertools.combinations(PLACES, 2)))
def test_a_name_means_one_thing(place: str, other: str) -> None:
    """Whoever reads a name thinks of one thing: where two places offer it, it is the very same object."""
    ours, theirs = offered(place), offered(other)
    assert [] == sorted(name for name in ours.keys() & theirs.keys() if ours[name] is not theirs[name])


# At home in another public place, and offered at the top too, since most programs need them.
IN_FRONT = {"Entry", "Outbox", "PostgresJournal", "Receiver", "SqliteJournal", "State"}


@pytest.mark.parametrize("place", [place for place in PLACES if place != "payments_async"])
def test_a_name_at_the_top_is_offered_there_alone(place: str) -> None:
    """What is imported from the package itself is not offered in another place, but for a few that are named."""
    assert [] == sorted(offered(place).keys() & set(payments_async.__all__) - IN_FRONT)


def test_a_name_in_front_keeps_its_home() -> None:
    """A name that two places offer prints as the place where it is at home."""
    homes = {name: getattr(payments_async, name).__module__ for name in IN_FRONT}
    assert "payments_async" not in homes.values()
    assert set(homes.values()) <= set(PLACES)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_public_names_the_place_it_is_imported_from(place: str) -> None:
    """A reader of a traceback can import what it names, and a process can unpickle what another one sent."""
    for name, thing in offered(place).items():
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert (name, True) == (name, thing.__module__ in PLACES)
            assert thing is getattr(importlib.import_module(thing.__module__), name)
            assert thing is pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("place", PLACES)
def test_what_is_public_can_be_looked_into(place: str) -> None:
    """Tools that read annotations, or the source of functions and methods, find them where they are."""
    for thing in offered(place).values():
        if inspect.isclass(thing):
            typing.get_type_hints(thing)
            if attrs.has(thing):
                attrs.resolve_types(thing)
            own = [value for value in vars(thing).values() if inspect.isfunction(value)]
            assert all(map(inspect.getsourcefile, own))
        elif inspect.isfunction(thing):
            assert typing.get_type_hints(thing)
            assert inspect.getsource(thing)


def test_a_public_class_prints_as_users_import_it() -> None:
    """Nobody has to know which private module a thing was written in."""
    assert "<class 'payments_async.NotSent'>" == repr(payments_async.NotSent)
    assert traceback.format_exception_only(payments_async.NotSent("refused"))[0].startswith(
        "payments_async.NotSent: refused"
    )


def test_the_names_at_the_top_are_those_that_type_checkers_see() -> None:
    """They are imported when they are first used: what Python finds is what ``__init__.pyi`` names."""
    tree = ast.parse((ROOT / "__init__.pyi").read_text(encoding="utf-8"))
    seen = {
        str(alias.asname): getattr(importlib.import_module(str(node.module)), alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name: getattr(payments_async, name) for name in seen} == seen
    assert set(payments_async.__all__) == set(seen)


def modules_of(script: str) -> set[str]:
    """The modules that are imported when a script has run in a process of its own."""
    command = [sys.executable, "-c", f"{script}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_a_session_alone_brings_no_journal() -> None:
    """A program that needs the session imports neither the outbox, nor the receiver, nor SQLite."""
    brought = modules_of("from payments_async import PaymentsSession, PayoutOrder, NotSent")
    rooms = {f"payments_async.{room}" for room in ("_payments", "ipn", "journal", "outbox")}
    assert set() == brought & {"sqlite3", *rooms}


WITHOUT_POSTGRES = "import sys; sys.modules['psycopg'] = None\n"


@pytest.mark.parametrize("place", ["payments_async", "payments_async.journal"])
def test_all_names_can_be_imported_without_an_extra(place: str) -> None:
    """``import *`` works where psycopg is not installed: only making a ``PostgresJournal`` needs it, and says so."""
    script = f"""
from {place} import *
try:
    PostgresJournal("postgresql://host/name")
except ModuleNotFoundError as error:
    print(error)
"""
    command = [sys.executable, "-c", WITHOUT_POSTGRES + script]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "a journal in PostgreSQL needs psycopg: pip install 'payments-async[postgres]'\n" == said


def test_the_package_alone_brings_no_http_client() -> None:
    """Who imports the journal, or stops a command while it is being imported, does not wait for it."""
    assert set() == modules_of("import payments_async") & {"aiohttp", "msgspec"}


def test_a_name_that_is_not_there_is_told_as_ever() -> None:
    """A public name that nobody offers is an AttributeError, and an ImportError for who imports it."""
    with pytest.raises(AttributeError, match="has no attribute 'Client'"):
        payments_async.Client  # noqa: B018
    assert {"PaymentsSession", "OutcomeUnknown"} <= set(dir(payments_async))


@pytest.mark.slow
def test_no_class_name_is_given_twice() -> None:
    """Who reads a name in the code thinks of one class. The sandbox, a reading of its own, has its own names."""
    homes: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        module = path.relative_to(ROOT)
        if module.parts[0] != "sandbox":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, set()).add(str(module))
    assert {} == {name: sorted(modules) for name, modules in homes.items() if len(modules) > 1}


MANY = {  # the fields of an order, and those of a notification
    "payments_async.journal.Journal.put",
    "payments_async.testing.notification",
}


def many_arguments() -> set[str]:
    """Public functions and methods, and classes that are not data, with more arguments than a reader can hold."""
    found = set()
    for place, names in ((place, offered(place)) for place in PLACES):
        for name, thing in names.items():
            calls = {} if attrs.has(thing) or not callable(thing) else {f"{place}.{name}": thing}  # type: ignore[arg-type]
            if inspect.isclass(thing) and not issubclass(thing, BaseException):
                calls |= {f"{place}.{name}.{method}": getattr(thing, method) for method in public_methods(thing)}
            for path, call in calls.items():
                with suppress(ValueError):  # of some built-in classes nothing is known
                    if len(set(inspect.signature(call).parameters) - {"self"}) > 9:
                        found.add(path)
    return found


def test_what_is_called_takes_few_arguments() -> None:
    """The others stand in small values."""
    assert MANY == many_arguments()


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
