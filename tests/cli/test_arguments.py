"""Arguments that no command can use, refused at one place."""

import pytest
from cli.conftest import Run


@pytest.mark.parametrize("command", [["explain"], ["bulk", "check"], ["outbox", "status", "--name"], []], ids=" ".join)
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
async def test_an_argument_that_is_no_utf_8_is_refused_in_one_sentence(
    run_process: Run, command: list[str], locale: str
) -> None:
    """Whatever the command and the language: no journal keeps such a text, and it cannot be printed."""
    ran = await run_process(*command, "M\udcfcller", LC_ALL=locale)
    said = f"payments-async: argument {len(command) + 1} is not UTF-8; "
    assert (2, "", True, 1) == (ran.status, ran.out, ran.err.startswith(said), len(ran.err.splitlines()))


@pytest.mark.slow
async def test_an_argument_in_utf_8_is_none_of_these_in_any_language(run_process: Run) -> None:
    """An order whose id has an umlaut is looked for."""
    ran = await run_process("explain", "Müller", LC_ALL="C")
    assert "is not UTF-8" not in ran.err
    assert "Traceback" not in ran.err
