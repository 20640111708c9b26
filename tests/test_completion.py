"""An editor that reads the sources, as Jedi does, completes every public name and shows what it takes."""

import jedi
import pytest
from test_public_names import PINNED

import payments_async

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def parsed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache for each process that tests: Jedi reads a file that another process is still writing."""
    monkeypatch.setattr(jedi.settings, "cache_directory", str(tmp_path_factory.getbasetemp() / "jedi"))


def completed(code: str) -> set[str]:
    """What an editor offers at the end of a program."""
    return {one.name for one in jedi.Script(code).complete()}


def parameters(code: str) -> list[str]:
    """What an editor shows of a call that has just begun."""
    return [parameter.name for one in jedi.Script(code).get_signatures() for parameter in one.params]


def test_all_names_at_the_top_are_completed() -> None:
    """None of them is known only to a running program."""
    assert set() == set(payments_async.__all__) - completed("import payments_async\npayments_async.")
    assert {"Payments", "PaymentsSession"} <= completed("from payments_async import Pay")


@pytest.mark.parametrize("place", [place for place in PINNED if place != "payments_async"])
def test_all_names_of_a_public_place_are_completed(place: str) -> None:
    """So are those of the rooms."""
    assert set() == set(PINNED[place].split()) - completed(f"import {place} as it\nit.")


def test_the_methods_of_a_front_class_are_completed() -> None:
    """What can be done next is offered, on an object that a context manager has opened too."""
    made = "from payments_async import Payments\nasync def main():\n    async with Payments.from_env() as payments:\n"
    assert {"put", "pay", "settled", "cancel", "on", "mount", "session"} <= completed(f"{made}        payments.")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Payments", ["session", "journal", "outbox", "receiver"]),
        ("Payments.from_env", ["variables", "journal"]),
        ("SqliteJournal", ["path", "state_folder"]),
        ("MobileMoneyWallet", ["phone_number"]),
    ],
)
def test_the_parameters_of_a_call_are_shown(name: str, expected: list[str]) -> None:
    """They stand in the sources, also of what attrs or the machine makes."""
    shown = parameters(f"from payments_async import {name.partition('.')[0]}\n{name}(")
    assert expected == [one for one in shown if one in expected]
