"""Durable handlers: told of each change at least once, whoever dies, and of no change for ever."""

import asyncio
import logging
import os
import re
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_asyncio
from journal.factories import order
from outbox.shops import SHOP, found, stocked

from payments_async.journal import Entry, Signal, SqliteJournal, State
from payments_async.journal.contract import Backlog
from payments_async.outbox import HandlerPolicy
from payments_async.outbox._changes import ChangeHandlers
from payments_async.testing import VirtualClock

QUICK = HandlerPolicy(poll=0.01, wait_initial=0.001, wait_max=0.001, attempts=3, drain=60.0)
PATIENT = attrs.evolve(QUICK, attempts=10_000)
TESTS = Path(__file__).parent.parent


def request_id(number: int) -> str:
    """Of the order of that number."""
    return order(number, batch=SHOP).request_id


async def never(seconds: float) -> None:
    """A wait for the next look by the clock that does not end."""
    await asyncio.Event().wait()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the journal."""
    return tmp_path / "journal.db"


@pytest_asyncio.fixture
async def journal(path: Path) -> AsyncIterator[SqliteJournal]:
    """With ten planned orders."""
    async with SqliteJournal(path, state_folder=None) as journal:
        await stocked(journal, 10)
        yield journal


@asynccontextmanager
async def running(dispatcher: ChangeHandlers) -> AsyncIterator[ChangeHandlers]:
    """Open for the length of a block, which may last a minute."""
    async with asyncio.timeout(60):
        await dispatcher.start()
        try:
            yield dispatcher
        finally:
            await dispatcher.aclose()


class Told:
    """A handler that notes what it is told, and fails as often as it is asked to."""

    def __init__(self, fails: int = 0) -> None:
        self.entries: list[Entry] = []
        self._fails = fails
        self._more = asyncio.Event()

    async def __call__(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._more.set()
        if len(self.entries) <= self._fails:
            raise ValueError("not in the mood")

    async def until(self, count: int) -> list[Entry]:
        """What it was told, once that is so much."""
        while len(self.entries) < count:
            self._more.clear()
            await self._more.wait()
        return self.entries


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Look until it is so."""
    while not await holds():  # noqa: ASYNC110 - looking is how it becomes known
        await asyncio.sleep(0.001)


async def over(journal: SqliteJournal, dead: int = 0) -> None:
    """Wait until no change waits for a handler and so many are dead letters."""

    async def is_over() -> bool:
        backlog = await journal.change_backlog(SHOP)
        return not backlog.pending and backlog.dead == dead

    await until(is_over)


async def test_a_handler_is_told_of_the_changes_it_hears_of(journal: SqliteJournal) -> None:
    """Each once, with the order, the state it came to, and one stable id for the fact; never of another state."""
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=QUICK), Told()
    assert told is dispatcher.on(State.SUCCESSFUL, State.REVERSED)(told)
    async with running(dispatcher):
        await found(journal, [1, 2])
        await found(journal, [1], Signal.LOOKED_UP_SUCCESSFUL)
        await found(journal, [1], Signal.LOOKED_UP_REVERSED)
        dispatcher.wake()
        entries = await told.until(2)
        await over(journal)
    assert [(request_id(1), State.SUCCESSFUL), (request_id(1), State.REVERSED)] == sorted(
        ((entry.request_id, entry.state) for entry in entries), key=lambda one: one[1] is State.REVERSED
    )
    changes = {change.state: change.id for change in await journal.changes_after(SHOP, 0)}
    assert {entry.state: entry.change_id for entry in entries} == {
        state: changes[state] for state in (State.SUCCESSFUL, State.REVERSED)
    }


async def test_a_change_is_told_without_waiting_for_the_next_look(journal: SqliteJournal) -> None:
    """Whoever hears that something was committed wakes it; before that, it looked once."""
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=QUICK, sleep=never), Told()
    dispatcher.on(State.ACCEPTED)(told)
    async with running(dispatcher):
        assert {State.ACCEPTED} == dispatcher.states
        for number in range(3):
            await found(journal, [number])
            dispatcher.wake()
            dispatcher.wake()
            await told.until(number + 1)


async def test_without_being_woken_it_looks_again_and_again(journal: SqliteJournal) -> None:
    """What another process committed, and retries."""
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=QUICK), Told(fails=1)
    dispatcher.on(State.ACCEPTED)(told)
    async with running(dispatcher):
        await found(journal, [1])
        assert 1 == len({entry.change_id for entry in await told.until(2)})
        await over(journal)


async def test_a_change_that_came_while_nobody_ran_is_told(path: Path) -> None:
    """Since its outbox has heard of such changes before; what came before that is not told."""
    async with SqliteJournal(path, state_folder=None) as journal:
        await stocked(journal, 3)
        await found(journal, [0])
        dispatcher = ChangeHandlers(journal, SHOP, policy=QUICK)
        dispatcher.on(State.ACCEPTED, name="told")(Told())
        async with running(dispatcher):
            pass
    async with SqliteJournal(path, state_folder=None) as journal:
        await found(journal, [1])
        dispatcher, told = ChangeHandlers(journal, SHOP, policy=QUICK), Told()
        dispatcher.on(State.ACCEPTED, name="told")(told)
        async with running(dispatcher):
            assert [request_id(1)] == [entry.request_id for entry in await told.until(1)]
            await over(journal)


async def test_a_handler_that_fails_is_run_again_alone(journal: SqliteJournal) -> None:
    """The others that hear of the same change have finished with it."""
    dispatcher, calm, moody = ChangeHandlers(journal, SHOP, policy=PATIENT), Told(), Told(fails=4)
    dispatcher.on(State.ACCEPTED, name="calm")(calm)
    dispatcher.on(State.ACCEPTED, name="moody")(moody)
    async with running(dispatcher):
        await found(journal, [1])
        await moody.until(5)
        await over(journal)
    assert (1, 5) == (len(calm.entries), len(moody.entries))


async def test_a_handler_that_succeeds_while_its_failure_is_counted(journal: SqliteJournal, path: Path) -> None:
    """The error is gone between two reads: the health is told without it."""
    dispatcher, moody = (
        ChangeHandlers(journal, SHOP, policy=attrs.evolve(QUICK, wait_initial=60.0, wait_max=60.0)),
        Told(fails=1),
    )
    dispatcher.on(State.ACCEPTED, name="moody")(moody)

    def succeeds(sql: str) -> None:
        if "SELECT error FROM delivery" in sql:
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("UPDATE delivery SET error = NULL")

    async with running(dispatcher):
        await found(journal, [1])
        await moody.until(1)

        async def has_failed() -> bool:
            return (await journal.change_backlog(SHOP)).failing == 1

        await until(has_failed)
        assert journal._reader is not None
        journal._reader.set_trace_callback(succeeds)
        assert 1 == (await journal.change_backlog(SHOP)).failing


async def test_no_person_is_in_what_a_handler_failed_with(
    journal: SqliteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """A name that the order has is masked in the words of the error, in the log and beside the dead letter."""
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=attrs.evolve(QUICK, attempts=1)), Told()

    @dispatcher.on(State.ACCEPTED)
    async def credit(entry: Entry) -> None:
        await told(entry)
        raise LookupError(f"no customer called {entry.order.beneficiary.name}")

    async with running(dispatcher):
        await found(journal, [1])
        await told.until(1)
        await over(journal, dead=1)
    (line,) = [one.getMessage() for one in caplog.records if "a handler failed" in one.getMessage()]
    assert "no customer called ***" in line
    assert told.entries[0].order.beneficiary.name not in line


async def test_what_a_handler_finished_with_is_known_after_a_restart(journal: SqliteJournal) -> None:
    """By its name: it is not run again though another one of that change failed."""
    later = attrs.evolve(QUICK, wait_initial=3600.0, wait_max=3600.0)
    dispatcher, failed = ChangeHandlers(journal, SHOP, policy=later, random=lambda: 1.0), Told(fails=1)
    dispatcher.on(State.ACCEPTED, name="calm")(Told())
    dispatcher.on(State.ACCEPTED, name="moody")(failed)
    async with running(dispatcher):
        await found(journal, [1])
        await failed.until(1)
    await journal.finish_changes([failed.entries[0].change_id or 0], "dead")
    dispatcher, calm, moody = ChangeHandlers(journal, SHOP, policy=QUICK), Told(), Told()
    dispatcher.on(State.ACCEPTED, name="calm")(calm)
    dispatcher.on(State.ACCEPTED, name="moody")(moody)
    async with running(dispatcher):
        assert 1 == await dispatcher.replay()
        await moody.until(1)
        await over(journal)
    assert [] == calm.entries


async def test_a_handler_that_never_finishes_leaves_a_dead_letter(
    journal: SqliteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """After its rounds, said aloud; replayed once it is mended, under the same id."""
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=QUICK), Told(fails=3)
    dispatcher.on(State.ACCEPTED, name="told")(told)
    async with running(dispatcher):
        await found(journal, [1])
        await over(journal, dead=1)
        (dead,) = [change async for change in journal.dead_changes()]
        assert 3 == len(told.entries)
        assert re.fullmatch(r"told: ValueError in test_changes\.py:\d+: not in the mood", dead.error or "")
        assert 0 == await dispatcher.replay(dead.id + 1)
        assert 1 == await dispatcher.replay(dead.id)
        await over(journal)
    assert 1 == len({entry.change_id for entry in await told.until(4)})
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [f"a change is a dead letter: order {request_id(1)}, accepted"] == said


async def test_a_change_that_fails_holds_up_no_other(journal: SqliteJournal) -> None:
    """Nor does one whose handler hangs: only its place is taken."""
    two = attrs.evolve(QUICK, concurrency=2, timeout=3600.0, drain=0.0)
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=two), list[str]()
    are_all = asyncio.Event()

    @dispatcher.on(State.ACCEPTED)
    async def note(entry: Entry) -> None:
        if entry.request_id == request_id(0):
            await asyncio.Event().wait()
        if entry.request_id == request_id(1):
            raise ValueError("never")
        told.append(entry.request_id)
        if len(told) == 8:
            are_all.set()

    await dispatcher.start()
    async with asyncio.timeout(60):
        await found(journal, range(10))
        await are_all.wait()
        await dispatcher.aclose()
    assert [request_id(number) for number in range(2, 10)] == sorted(told)


async def test_a_handler_that_hangs_is_cancelled_when_its_time_is_over(journal: SqliteJournal) -> None:
    """That is a failure like any other."""
    short = attrs.evolve(QUICK, timeout=0.01, attempts=1)
    dispatcher = ChangeHandlers(journal, SHOP, policy=short)

    @dispatcher.on(State.ACCEPTED, name="hangs")
    async def hang(entry: Entry) -> None:
        await asyncio.Event().wait()

    async with running(dispatcher):
        await found(journal, [1])
        await over(journal, dead=1)
    (error,) = [change.error async for change in journal.dead_changes()]
    assert re.fullmatch(r"hangs: TimeoutError in test_changes\.py:\d+: not done within 0\.01 s", error or ""), error


async def test_a_handler_that_lets_nothing_end_it(journal: SqliteJournal, caplog: pytest.LogCaptureFixture) -> None:
    """It holds its place, so others wait: the log says so, and its change counts as one whose handler fails."""
    policy, mended = attrs.evolve(QUICK, timeout=0.01, concurrency=1), asyncio.Event()
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=policy), list[str]()

    @dispatcher.on(State.ACCEPTED)
    async def endless(entry: Entry) -> None:
        while not mended.is_set():
            try:
                await mended.wait()
            except asyncio.CancelledError:  # as a bare `except:` around a call that is tried again takes it
                continue
        told.append(entry.request_id)

    async def is_failing() -> bool:
        return (await journal.change_backlog(SHOP)).failing == 1

    async with running(dispatcher):
        await found(journal, [1, 2])
        await until(is_failing)
        assert [] == told
        assert re.search(r"a handler does not end: \S+\.endless, delivery \d+: TimeoutError: ", caplog.text)
        mended.set()
        await over(journal)
    assert {request_id(1), request_id(2)} == set(told)


async def test_closing_leaves_a_handler_that_lets_nothing_end_it(
    journal: SqliteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing ends all the same and names handler and change: it is told again, to that handler alone."""
    dispatcher, both, go = ChangeHandlers(journal, SHOP, policy=attrs.evolve(QUICK, drain=0.0)), Told(), asyncio.Event()
    dispatcher.on(State.ACCEPTED, name="ends")(both)

    @dispatcher.on(State.ACCEPTED, name="endless")
    async def endless(entry: Entry) -> None:
        await both(entry)
        while not go.is_set():
            with suppress(asyncio.CancelledError):  # as a bare `except:` around a call that is tried again takes it
                await go.wait()

    async with VirtualClock() as clock:
        clock.watch(journal)
        try:
            await dispatcher.start()
            await found(journal, [1])
            entries = await both.until(2)
            await clock.until(dispatcher.aclose())
            (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
            (left,) = await journal.claim_changes(SHOP, [State.ACCEPTED], "another", lease=90, limit=10)
        finally:
            go.set()
    assert {left.id} == {entry.change_id for entry in entries}
    assert {"ends"} == set(left.done)
    assert said.startswith(f"a handler does not end: endless, delivery {left.id}: TimeoutError: ")


async def test_a_handler_that_cancels_the_task_it_runs_in(journal: SqliteJournal) -> None:
    """Each time is a round that failed, and the last one leaves a dead letter; another change is told meanwhile."""
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=attrs.evolve(QUICK, timeout=0.01)), Told()

    @dispatcher.on(State.ACCEPTED, when=lambda entry: entry.request_id == request_id(1))
    async def ends_itself(entry: Entry) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    dispatcher.on(State.ACCEPTED, when=lambda entry: entry.request_id != request_id(1))(told)
    async with running(dispatcher):
        await found(journal, [1, 2])
        await over(journal, dead=1)
    assert [request_id(2)] == [entry.request_id for entry in told.entries]


async def test_no_more_handlers_run_at_once_than_are_allowed(journal: SqliteJournal) -> None:
    """Also where two hear of the same change."""
    dispatcher = ChangeHandlers(journal, SHOP, policy=attrs.evolve(QUICK, concurrency=3))
    now, most = 0, 0

    async def count(entry: Entry) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1

    for name in ("one", "other"):
        dispatcher.on(State.ACCEPTED, name=name)(count)
    async with running(dispatcher):
        await found(journal, range(10))
        await over(journal)
    assert 3 == most


async def test_a_backlog_is_worked_off_as_fast_as_handlers_are(path: Path) -> None:
    """While there is more than there was room for it looks again at once, oldest first."""
    async with SqliteJournal(path, state_folder=None) as journal:
        await stocked(journal, 100)
        await journal.hear(SHOP, [State.ACCEPTED])
        await found(journal, range(100))
        policy = attrs.evolve(QUICK, concurrency=2)
        dispatcher, told = ChangeHandlers(journal, SHOP, policy=policy, sleep=never), Told()
        dispatcher.on(State.ACCEPTED)(told)
        async with running(dispatcher):
            entries = await told.until(100)
            await over(journal)
    assert [request_id(number) for number in range(100)] == [entry.request_id for entry in entries]


async def test_only_what_a_handler_wants_is_told(journal: SqliteJournal) -> None:
    """The rest is over without it."""
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=QUICK), Told()
    dispatcher.on(State.ACCEPTED, when=lambda entry: entry.request_id == request_id(3))(told)
    async with running(dispatcher):
        await found(journal, range(5))
        await over(journal)
    assert [request_id(3)] == [entry.request_id for entry in told.entries]


async def test_a_handler_that_is_registered_late_hears_from_then_on(journal: SqliteJournal) -> None:
    """An outbox that is open takes it up by itself."""
    dispatcher, early, late = ChangeHandlers(journal, SHOP, policy=QUICK), Told(), Told()
    async with running(dispatcher):
        await found(journal, [1])
        dispatcher.on(State.ACCEPTED)(early)
        dispatcher.on(State.SUCCESSFUL)(late)
        number = 2
        while not early.entries:
            await found(journal, [number])
            number += 1
            await asyncio.sleep(0)
        await found(journal, [2], Signal.LOOKED_UP_SUCCESSFUL)
        await late.until(1)
        await over(journal)
    assert request_id(1) not in {entry.request_id for entry in early.entries}


async def test_a_process_that_closes_lets_its_handlers_finish(journal: SqliteJournal) -> None:
    """What they finished with is over; what had not begun is another's at once, under the same id."""
    one = attrs.evolve(QUICK, concurrency=1)
    dispatcher, begun, go_on = ChangeHandlers(journal, SHOP, policy=one), asyncio.Event(), asyncio.Event()
    told: list[str] = []

    @dispatcher.on(State.ACCEPTED)
    async def note(entry: Entry) -> None:
        begun.set()
        await go_on.wait()
        told.append(entry.request_id)

    await journal.hear(SHOP, [State.ACCEPTED])
    await found(journal, range(4))
    await dispatcher.start()
    async with asyncio.timeout(60):
        await begun.wait()
        closing = asyncio.ensure_future(dispatcher.aclose())
        await asyncio.sleep(0)
        go_on.set()
        await closing
    assert [request_id(0)] == told
    left = await journal.claim_changes(SHOP, [State.ACCEPTED], "another", lease=90, limit=10)
    assert [request_id(number) for number in (1, 2, 3)] == [change.request_id for change in left]
    await dispatcher.aclose()


async def test_a_handler_that_outlasts_the_closing_is_told_again(journal: SqliteJournal) -> None:
    """It is cancelled and its change given back; those that had finished are over."""
    hasty = attrs.evolve(QUICK, drain=0.0)
    dispatcher, both = ChangeHandlers(journal, SHOP, policy=hasty), asyncio.Event()
    begun: list[str] = []

    @dispatcher.on(State.ACCEPTED, name="slow")
    async def slow(entry: Entry) -> None:
        begun.append(entry.request_id)
        if len(begun) == 2:
            both.set()
        if entry.request_id == request_id(0):
            await asyncio.Event().wait()

    await dispatcher.start()
    async with asyncio.timeout(60):
        await found(journal, range(2))
        await both.wait()
        await dispatcher.aclose()
    left = await journal.claim_changes(SHOP, [State.ACCEPTED], "another", lease=90, limit=10)
    assert [request_id(0)] == [change.request_id for change in left]


async def test_it_may_be_opened_again(journal: SqliteJournal) -> None:
    """As an application is started again within its tests."""
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=QUICK), Told()
    dispatcher.on(State.ACCEPTED)(told)
    for number in range(2):
        async with running(dispatcher):
            await dispatcher.start()
            await found(journal, [number])
            await told.until(number + 1)
            await over(journal)


async def test_two_processes_share_the_changes(path: Path) -> None:
    """Each change is told to one of them."""
    async with (
        SqliteJournal(path, state_folder=None) as one,
        SqliteJournal(path, state_folder=None) as other,
    ):
        await stocked(one, 60)
        policy = attrs.evolve(QUICK, concurrency=1)
        dispatchers, told = [ChangeHandlers(journal, SHOP, policy=policy) for journal in (one, other)], [Told(), Told()]
        for dispatcher, handler in zip(dispatchers, told, strict=True):
            dispatcher.on(State.ACCEPTED, name="told")(handler)
        async with running(dispatchers[0]), running(dispatchers[1]):
            await found(one, range(60))
            await over(one)
        heard = Counter(entry.request_id for handler in told for entry in handler.entries)
    assert {request_id(number): 1 for number in range(60)} == heard


@pytest.mark.parametrize("fails", [0, 1])
async def test_a_journal_that_is_away_for_a_while_costs_no_change(
    path: Path, caplog: pytest.LogCaptureFixture, fails: int
) -> None:
    """How a handler ended is written down as soon as it can be, and not told anew when a lease is over."""
    async with SqliteJournal(path, state_folder=None, busy_timeout=0.0) as journal:
        await stocked(journal, 1)
        dispatcher, told = ChangeHandlers(journal, SHOP, policy=QUICK), Told(fails)
        begun, locked = asyncio.Event(), asyncio.Event()

        @dispatcher.on(State.ACCEPTED)
        async def note(entry: Entry) -> None:
            begun.set()
            await locked.wait()
            await told(entry)

        async def is_said() -> bool:
            return any("cannot be recorded yet" in record.getMessage() for record in caplog.records)

        async with running(dispatcher):
            await found(journal, [0])
            await begun.wait()
            with closing(sqlite3.connect(path, isolation_level=None)) as holder:
                holder.execute("BEGIN IMMEDIATE")
                locked.set()
                await until(is_said)
                holder.execute("ROLLBACK")
            await over(journal)
    assert 1 + fails == len(told.entries)


async def test_a_change_whose_lease_is_about_to_end_is_left_to_another(journal: SqliteJournal) -> None:
    """As after this process stood still: what it would begin now could run twice."""
    seconds = 0.0

    def clock() -> float:
        nonlocal seconds
        seconds += 2 * QUICK.timeout  # between the claim and the work
        return seconds

    async def is_looked_at() -> bool:
        return seconds > 2 * QUICK.timeout  # once for the claim, and once more

    await journal.hear(SHOP, [State.ACCEPTED])
    await found(journal, [1])
    dispatcher, told = ChangeHandlers(journal, SHOP, policy=QUICK, clock=clock, sleep=never), Told()
    dispatcher.on(State.ACCEPTED)(told)
    async with running(dispatcher):
        await until(is_looked_at)
    assert [] == told.entries
    assert 1 == len(await journal.claim_changes(SHOP, [State.ACCEPTED], "another", lease=90, limit=10))


def _without_states(dispatcher: ChangeHandlers) -> None:
    dispatcher.on()(Told())


def _planned(dispatcher: ChangeHandlers) -> None:
    dispatcher.on(State.ACCEPTED, State.PLANNED)(Told())


def _twice(dispatcher: ChangeHandlers) -> None:
    dispatcher.on(State.ACCEPTED, name="told")(Told())
    dispatcher.on(State.REJECTED, name="told")(Told())


def _not_async(dispatcher: ChangeHandlers) -> None:
    def told(entry: Entry) -> Coroutine[Any, Any, None]:
        raise AssertionError

    dispatcher.on(State.ACCEPTED)(told)


def _of_no_state(dispatcher: ChangeHandlers) -> None:
    dispatcher.on("SUCCEEDED")  # type: ignore[arg-type]


def _without_parentheses(dispatcher: ChangeHandlers) -> None:
    dispatcher.on(Told())  # type: ignore[arg-type]  # as @outbox.on does over a function


def _of_nothing(dispatcher: ChangeHandlers) -> None:
    async def told() -> None:
        raise AssertionError

    dispatcher.on(State.ACCEPTED)(told)


def _of_a_connection(dispatcher: ChangeHandlers) -> None:
    async def told(entry: Entry, connection: object) -> None:
        raise AssertionError

    dispatcher.on(State.ACCEPTED)(told)


def _at_no_time(dispatcher: ChangeHandlers) -> None:
    dispatcher.on(State.ACCEPTED, when=True)(Told())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("registers", "kind", "words"),
    [
        (_of_no_state, TypeError, "'SUCCEEDED' is not a State"),
        (_without_parentheses, TypeError, "is not a State: write @outbox.on"),
        (_of_nothing, TypeError, r"takes \(\).*: it would be called with one value"),
        (_of_a_connection, TypeError, "it would be called with one value"),
        (_at_no_time, TypeError, "when: expected a function"),
        (_without_states, ValueError, "name one at least"),
        (_planned, ValueError, "of planned no handler is told"),
        (_twice, ValueError, "another handler has it"),
        (_not_async, TypeError, "is not async"),
    ],
)
async def test_a_handler_that_would_never_be_told_is_refused(
    journal: SqliteJournal, registers: Callable[[ChangeHandlers], None], kind: type[Exception], words: str
) -> None:
    """When it is registered, and not when its first order is paid."""
    with pytest.raises(kind, match=words):
        registers(ChangeHandlers(journal, SHOP))


@pytest.mark.slow
async def test_a_killed_process_leaves_no_change_untold(path: Path, tmp_path: Path) -> None:
    """What it had not finished with is told again, at once and under the same id, by whoever comes next."""
    written = tmp_path / "told"
    async with SqliteJournal(path) as journal:

        async def is_one_left() -> bool:
            return (await journal.change_backlog(SHOP)).pending == 1

        await stocked(journal, 200)
        await journal.hear(SHOP, [State.ACCEPTED])
        await found(journal, range(100))
        for hangs in (37, -1):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(TESTS / "outbox/told.py"), str(path), str(written), str(hangs)),
                env={**os.environ, "PYTHONPATH": str(TESTS)},
            )
            try:
                async with asyncio.timeout(60):
                    if hangs == 37:
                        await until(is_one_left)
                        await found(journal, range(100, 200))
                    else:
                        await over(journal)
            finally:
                process.send_signal(signal.SIGKILL)
                await process.wait()
        assert Backlog(pending=0, dead=0, oldest=None) == await journal.change_backlog(SHOP)
    lines = [line.split() for line in written.read_text(encoding="ascii").splitlines()]
    assert {request_id(number) for number in range(200)} == {told for _, told in lines}
    assert 200 == len({(number, told) for number, told in lines})
    assert 2 == Counter(told for _, told in lines)[request_id(37)]
