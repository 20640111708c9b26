"""Two receivers behind a splitter, on one database: each notification is one event, whichever of them it reaches."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ipn.balanced import Told, run
from journal.postgres import OwnServer, place_for

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[OwnServer]:
    """A server of this test alone."""
    server = OwnServer(place_for("balanced"))
    yield server
    server.remove()


def problems(told: Told) -> list[object]:
    """Whatever must not be."""
    return [told.missing, told.repeated, told.unhandled, told.renamed, told.pending]


async def test_receivers_that_nobody_disturbs(server: OwnServer, tmp_path: Path) -> None:
    """Three deliveries are one event, and one call of the handler."""
    told = await run(server, tmp_path / "handled", count=300)
    assert [set(), set(), set(), set(), 0] == problems(told)
    assert {1: 300} == told.handled


async def test_receivers_that_are_killed(server: OwnServer, tmp_path: Path) -> None:
    """Nothing that was answered is missing, and all is handled, under one id; what the dead held is free in seconds."""
    told = await run(server, tmp_path / "handled", count=600, kills=4, stops=2)
    assert [set(), set(), set(), set(), 0] == problems(told)
    assert 600 == sum(told.handled.values())
    assert 4 == len(told.takeovers)
