"""A namespace of a database for each test of a fleet."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet.machines import DISPATCHES, Dispatch, journal_of
from journal import postgres

from payments_async.journal import PostgresJournal


@pytest.fixture
def schema() -> Iterator[str]:
    """An empty namespace."""
    yield postgres.new_schema()
    postgres.drop_lent()  # with the tables of PGQueuer, which no test of a journal expects there


@pytest.fixture
def journals(schema: str, tmp_path: Path) -> list[PostgresJournal]:
    """The journal as three machines have it, each with a memory of its own."""
    return [journal_of(schema, tmp_path, name) for name in ("one", "two", "three")]


@pytest.fixture(params=DISPATCHES)
def dispatch(request: pytest.FixtureRequest) -> Dispatch:
    """Who hands out the chunks of batches."""
    return DISPATCHES[request.param]
