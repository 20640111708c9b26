"""An editor that reads the sources, as Jedi does, completes every public name and shows what it takes."""

from pathlib import Path

import jedi
import pytest
from test_public_names import PINNED

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of this test alone: Jedi reads a file that another process is still writing."""
    monkeypatch.setattr(jedi.settings, "cache_directory", str(tmp_path))


def completed(code: str) -> set[str]:
    """What an editor offers at the end of a program."""
    return {one.name for one in jedi.Script(code).complete()}


def parameters(name: str) -> list[str]:
    """What an editor shows of a call that has just begun."""
    code = f"from payments_async import {name.partition('.')[0]}\n{name}("
    return [parameter.name for one in jedi.Script(code).get_signatures() for parameter in one.params]


def test_an_editor_completes_all_names_and_shows_what_they_take() -> None:
    """None is known only to a running program. One test: Jedi takes seconds to read the package, in each process."""
    for place, names in PINNED.items():
        assert set() == set(names.split()) - completed(f"import {place} as it\nit."), place
    assert {"Payments", "PaymentsSession"} <= completed("from payments_async import Pay")
    opened = "from payments_async import Payments\nasync def main():\n    async with Payments.from_env() as payments:\n"
    assert {"put", "pay", "settled", "cancel", "on", "mount", "session"} <= completed(f"{opened}        payments.")
    for name, expected in {
        "Payments": ["session", "journal", "outbox", "receiver"],
        "Payments.from_env": ["variables", "journal"],
        "SqliteJournal": ["path", "state_folder"],
        "MobileMoneyWallet": ["phone_number"],
    }.items():
        assert expected == [one for one in parameters(name) if one in expected]
