"""A bout with every parser of what comes from outside; `python tests/fuzz` goes on for longer."""

import pytest
from fuzz.bouts import bout
from fuzz.targets import SECONDS, TARGETS, Hung, Target
from hypothesis import strategies as st


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_from_outside_breaks_a_parser(name: str) -> None:
    """It gives a value or a documented error, never another amount than was written, and soon."""
    bout(TARGETS[name], {"workbooks": 3, "batch_files": 10}.get(name, 25))


def test_an_error_that_is_none_of_ours_is_found() -> None:
    """The control: a parser that lets one out among many examples."""
    found = Target(lambda number: 1 // (number - 17), (st.integers(0, 60),))
    with pytest.raises(ZeroDivisionError):
        bout(found, 400)


def test_an_example_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: it is interrupted, though the parser catches whatever is raised."""

    def parse(number: int) -> None:
        while True:
            try:
                pow(7, 7777, 10**50)
            except Exception:  # noqa: BLE001, S112 - a careless parser
                continue

    monkeypatch.setattr("fuzz.targets.SECONDS", 0.05)
    with pytest.raises(Hung):
        bout(Target(parse, (st.integers(),)), 1)
    assert SECONDS > 1
