"""`assert_pays_once`: a right application passes, and each kind of wrong one is found, with what happened."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from testing import shops

from payments_async.testing import Simulation, assert_pays_once

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="it forks, and fixes the addresses of objects")


def failure(
    application: Callable[[Simulation], Awaitable[None]], *, seeds: int | range = 200, checks: bool = True
) -> str:
    """What is said of a wrong application."""
    with pytest.raises(AssertionError) as caught:
        assert_pays_once(application, owes=shops.DEBTS, check=shops.check if checks else None, seeds=seeds)
    return str(caught.value)


@needs_linux
def test_a_right_application() -> None:
    """It passes."""
    assert_pays_once(shops.right, owes=shops.DEBTS, check=shops.check, seeds=2)


@needs_linux
@pytest.mark.slow
def test_a_right_application_many_times() -> None:
    """It passes, with a web application of aiohttp and customers too."""
    assert_pays_once(shops.right, owes=shops.DEBTS, check=shops.check, seeds=range(3, 8))
    assert_pays_once(shops.web_shop, owes=shops.DEBTS, customers=shops.customers, check=shops.check, seeds=3)


@needs_linux
@pytest.mark.slow
@pytest.mark.parametrize(
    ("application", "checks", "words"),
    [
        (shops.new_id_at_each_try, True, "times, owed once: "),
        (shops.sends_until_answered, False, "times, owed once: "),
        (shops.marks_it_paid_itself, True, "AssertionError: "),
        (shops.gives_back_twice, True, "AssertionError: "),
        (shops.handler_fails, False, "handlers were not told of "),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_wrong_application(application: Callable[[Simulation], Awaitable[None]], checks: bool, words: str) -> None:
    """It is found within a few seeds."""
    rare = application is shops.gives_back_twice  # the first seed that finds it is 21
    said = failure(application, seeds=range(18, 200) if rare else 200, checks=checks)
    assert words in said
    assert f"{application.__name__} does not pay once, in seed " in said
    assert len(said[said.index("    seconds what happened") :].splitlines()) <= 41


@needs_linux
@pytest.mark.slow
def test_a_seed_is_repeated() -> None:
    """What an application lost that puts only what is new is found, and the same seed says the same."""
    first = failure(shops.puts_only_what_is_new)
    assert "lost: " in first
    (seed,) = [line for line in first.splitlines() if line.startswith("repeat it: ")]
    number = int(seed.partition("seeds=[")[2].rstrip("])"))
    with pytest.raises(AssertionError) as caught:
        assert_pays_once(shops.puts_only_what_is_new, owes=shops.DEBTS, check=shops.check, seeds=[number])
    assert first == str(caught.value)


@pytest.mark.slow(covered=True)
@needs_linux
def test_a_thread_of_its_own() -> None:
    """It is said that it cannot be simulated, and what to use."""
    assert "cannot be simulated; use asyncio.to_thread" in failure(shops.with_a_thread, seeds=1, checks=False)


def test_a_function_without_a_name() -> None:
    """It is refused before anything runs: another interpreter cannot import it."""

    async def inner(simulation: Simulation) -> None:
        await asyncio.Event().wait()

    for application in (inner, partial(shops.right), lambda _: asyncio.sleep(1)):
        with pytest.raises(TypeError, match=r"application: .* cannot be imported by its name"):
            assert_pays_once(application, owes=[], seeds=1)


def test_a_system_that_is_not_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, with the reason."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match="assert_pays_once needs Linux"):
        assert_pays_once(shops.right, owes=[], seeds=1)
