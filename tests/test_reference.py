"""Examples of the reference: what a docstring shows runs as it stands, and shows what comes of it."""

import doctest
import importlib
import inspect
import logging
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from test_public_names import PLACES, own_docstring, public_methods

from payments_async import Credentials, PaymentsSession, SqliteJournal

LEAST = 41  # examples; it may only grow
PARSER = doctest.DocTestParser()


def examples() -> Iterator[doctest.DocTest]:
    """Those of all public classes, functions and methods, each once."""
    names = {name: thing for place in PLACES for name, thing in vars(importlib.import_module(place)).items()}
    names |= {name: getattr(importlib.import_module(place), name) for place in PLACES for name in _offered(place)}
    for name in sorted(name for place in PLACES for name in _offered(place)):
        thing = names[name]
        if not (inspect.isclass(thing) or inspect.isroutine(thing)):
            continue
        methods = (
            [(f"{name}.{one}", getattr(thing, one)) for one in public_methods(thing)] if inspect.isclass(thing) else []
        )
        for path, documented in [(name, own_docstring(thing)), *((path, inspect.getdoc(one)) for path, one in methods)]:
            found = PARSER.get_doctest(documented or "", dict(names), path, None, 0)
            if found.examples:
                yield found


def _offered(place: str) -> list[str]:
    return list(getattr(importlib.import_module(place), "__all__", ()))


EXAMPLES = {one.name: one for one in examples()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_it_stands(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what comes of it; session, journal and credentials are at hand."""
    monkeypatch.chdir(tmp_path)
    credentials = Credentials(app_key="key", app_password="secret", user_id="7")
    session = PaymentsSession("https://service.example", credentials)
    ready = {"CREDENTIALS": credentials, "SESSION": session, "JOURNAL": SqliteJournal("shop.sqlite")}
    test, said = EXAMPLES[name], list[str]()
    test.globs.update(ready, Decimal=Decimal, logging=logging)
    outcome = doctest.DocTestRunner(verbose=False).run(test, out=said.append, clear_globs=False)
    assert 0 == outcome.failed, "".join(said)


def test_there_are_examples() -> None:
    """As many as there were, or more."""
    assert len(EXAMPLES) >= LEAST
