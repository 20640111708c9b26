"""Small worlds, each to its end: whatever happens in whatever sequence, no rule of money is broken."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from explorer import absences, arrivals, departures, desks, files, readings, replies, servers, sessions, workers
from explorer.judges import Judges
from explorer.plans import DEFAULT, DESKS, LONG, TINY
from explorer.searches import search
from explorer.worlds import Explored, Plan
from machine import HAS_MANY

PLANS = (*DEFAULT, LONG) if HAS_MANY else DEFAULT


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """What the journal says aloud would be said in thousands of states."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def states_after(plan: Plan, *words: str) -> dict[int, str]:
    """The states of the orders after these steps; each one is looked at by the judges."""
    explored = Explored(plan)
    judges, world = Judges(explored), explored.first()
    for said in words:
        step = {one.words: one for one in explored.steps(world)}[said]
        after = explored.take(world, step)
        assert after is not None
        assert [] == [*judges.of_step(world, after, said), *judges.of_state(after)]
        world = after
    explored.journal.connection.close()
    return {number: row["state"] for number, row in explored.rows(world).items() if number}


@pytest.mark.parametrize(
    "plan",
    [pytest.param(plan, id=plan.name, marks=() if plan is TINY else pytest.mark.slow) for plan in PLANS],
)
def test_every_state_of_a_small_world(plan: Plan) -> None:
    """Each order is carried out once at most, nothing is forgotten, and from every state all of it ends."""
    report = search(plan)
    assert ("", True) == (report.wrong, report.is_whole), str(report)


@pytest.mark.parametrize("make", [pytest.param(make, marks=pytest.mark.slow) for make in DESKS])
def test_every_state_of_a_desk(make: Callable[[], desks.Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever persons, workers and files bring again, an order is sent once, and what was answered is stored."""
    monkeypatch.setattr("payments_async.journal._statements._loading._BLOCK", 1)
    report = desks.search(make())
    assert ("", ()) == (report.wrong, report.history), str(report)


def test_every_answer_of_a_service() -> None:
    """Of one that has the order it is never concluded that it may be sent again; of another, that it was accepted."""
    assert [] == list(replies.wrong())


def test_every_list_of_a_small_service() -> None:
    """A status that is believed is the true one, and a list that proves something has shown all."""
    assert "" == readings.search().wrong


def test_every_way_in_which_a_notification_comes() -> None:
    """One that is answered 200 is stored; handlers hear of one that is believed, until they have handled it."""
    assert "" == arrivals.search().wrong


@pytest.mark.slow
def test_every_sequence_of_a_few_lists() -> None:
    """An order is parked by complete lists of after its grace, an interval apart, in a row; none fewer."""
    report = absences.search()
    assert ("", ()) == (report.wrong, report.history), str(report)


@pytest.mark.skipif(sys.platform != "linux", reason="a departure record is kept on Linux")
def test_every_history_of_a_departure_record() -> None:
    """One that was copied, torn, put back or outlived proves of nothing that left that it did not."""
    report = departures.search()
    assert ("", ()) == (report.wrong, report.history), str(report)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a file that is open is not replaced there")
def test_every_history_of_a_journals_files() -> None:
    """Copied, put back, lost, named twice or adopted, at whatever moment: what was sent is never sent again."""
    report = files.search()
    assert ("", ()) == (report.wrong, report.history), str(report)


@pytest.mark.slow
def test_every_history_of_a_journal_on_a_server() -> None:
    """Whatever becomes of an exchange or of its tables, an order leaves once, and none that was put is lost."""
    report = servers.search()
    assert ("", ()) == (report.wrong, report.history), str(report)


@pytest.mark.slow
def test_every_way_in_which_a_worker_sends_an_order() -> None:
    """It leaves once for a permit, marked, under a good lease; what may have been carried out is not sent again."""
    report = workers.search()
    assert ("", ()) == (report.wrong, report.history), str(report)


@pytest.mark.slow
def test_every_history_of_a_session() -> None:
    """Whatever becomes of requests, callers and what is found out elsewhere, an order leaves once, or is known."""
    report = sessions.search()
    assert ("", ()) == (report.wrong, report.history), str(report)


def test_a_rule_that_is_broken_is_told_with_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that is wrong is told with the fewest steps that lead there."""
    monkeypatch.setattr("explorer.judges.FORWARD", {"planned": set()})
    report = search(Plan(name="no permits"))
    assert "order 1 went from planned to sending" == report.wrong
    assert ("worker a0 claims a chunk", "worker a0 asks for a permit for order 1") == report.history


def test_lists_that_missed_an_attempt_that_is_proved_unsent() -> None:
    """They park no order that was sent again since, whose request is on its way."""
    plan = Plan(name="two workers", workers=2, lists=True)
    states = states_after(
        plan,
        "worker a0 claims a chunk",
        "worker a0 asks for a permit for order 1",
        "31 seconds pass",
        "worker a0 notices that its lease is over",
        "worker b0 claims a chunk",
        "the period of grace passes",
        "a search for orders begins",
        "worker a0 writes down that its attempt ended (not_sent)",
        "worker a0 asks for a permit for order 1",
        "worker a0 claims a chunk",
        "worker a0 asks for a permit for order 1",
        "worker a0 marks the departure of its order",
        "worker a0 lets its request leave",
        "the service shows its list",
        "61 seconds pass",
        "worker b0 claims a chunk",
        "who looks orders up goes on",
        "the service shows its list",
        "an order is parked that no list has shown",
    )
    assert {1: "unknown"} == states


def test_a_refusal_of_an_attempt_that_a_failover_has_forgotten() -> None:
    """It says nothing of the attempt that was made since, whose request is on its way."""
    plan = Plan(name="a failover", workers=2, rejects=True, restores=1, named_lifts=1, survives=True)
    words = (
        "worker a0 claims a chunk",
        "a copy of the journal is made",
        "worker a0 asks for a permit for order 1",
        "worker a0 marks the departure of its order",
        "worker a0 lets its request leave",
        "the service refuses order 1 (attempt 1)",
        "worker a0 is told what became of its request (rejected)",
        "the copy is put back",
        "a person lifts the quarantine and names payroll-000001",
        "worker b0 claims a chunk",
        "worker b0 asks for a permit for order 1",
        "worker a0 writes down that its attempt ended (rejected)",
        "worker b0 marks the departure of its order",
        "worker b0 lets its request leave",
    )
    assert {1: "sending"} == states_after(plan, *words)
