"""Chaos by restores: journals are restored, copied, lost, emptied and made twice while a batch is sent and killed.

    python tests/benchmarks/chaos_copies.py                  20 rounds of every strike, with clocks a day off in a third
    python tests/benchmarks/chaos_copies.py --rounds 2       a shorter one
    python tests/benchmarks/chaos_copies.py --late 3         the list shows what is new three readings late
    python tests/benchmarks/chaos_copies.py --forgets        the machine's own memory is taken away as well
    python tests/benchmarks/chaos_copies.py --unguarded      the control: a journal that forgot does not know it

In each round processes run one batch and are killed with ``kill -9``; then the journal is struck, and another process
does what the errors and the documentation tell a person to do until the batch is through. A sandbox in this process is
the judge: the exit code is 1 when anything was carried out twice or is lost. With ``--unguarded`` it is 1 when nothing
was carried out twice.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import aiohttp
import attrs

sys.path.insert(0, str(Path(__file__).parent.parent))

from bulk.nursery import Child, Nursery, say
from bulk.worlds import contradiction, payout

from payments_async import Credentials, PaymentsSession, PayoutOrder
from payments_async.bulk import BatchTerms, RunSettings, reconcile, run_batch
from payments_async.journal import (
    HeldElsewhere,
    JournalBehind,
    JournalCorrupt,
    JournalLost,
    NotAJournal,
    NotLookedFor,
    SecondJournal,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
)
from payments_async.journal._machine import _memory
from payments_async.journal._sqlite import _identity
from payments_async.sandbox import Fault, Quirks, Sandbox
from payments_async.testing import Testing

BATCH = "copies"
LEASE = 1.0  # seconds
DELAY = 0.03  # seconds the service takes to answer an order
DAY = 86_400.0
QUARTER = 900.0
GIVES_UP = 12  # times that a person comes back
AT_REST = 1.3 * LEASE  # seconds after which a process that lost its orders to another journal has stopped
PATIENCE = 60.0  # seconds for one process
TURNS = 30  # what a person does before they give up


# --- what is struck ---------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Place:
    """Where a round lies.

    Attributes:
        folder: Of the journal.
        backup: Of that folder.
        state: What the machine remembers.
    """

    folder: Path
    backup: Path
    state: Path

    @property
    def journal(self) -> Path:
        """The journal that the batch began in."""
        return self.folder / "journal.db"

    def beside(self, end: str) -> Path:
        """A file that belongs to it."""
        return self.journal.with_name(f"{self.journal.name}{end}")

    def lose(self, *ends: str) -> None:
        """Delete some of it."""
        for end in ends:
            self.beside(end).unlink(missing_ok=True)


def copied_over(place: Place) -> str:
    """``cp -a backup/. folder/``, with the log of later left where it was."""
    _run("cp", "-a", f"{place.backup}/.", f"{place.folder}/")
    return "journal.db"


def copied_over_clean(place: Place) -> str:
    """The same, after the log was deleted."""
    place.lose("-wal", "-shm")
    return copied_over(place)


def put_in_place(place: Place) -> str:
    """``rm -rf folder && cp -a backup folder``."""
    shutil.rmtree(place.folder)
    _run("cp", "-a", str(place.backup), str(place.folder))
    return "journal.db"


def put_in_place_without_mark(place: Place) -> str:
    """The same, and the mark was in no backup."""
    put_in_place(place)
    place.lose("-mark")
    return "journal.db"


def unpacked_over(place: Place) -> str:
    """``tar -x`` over the folder, after the log was deleted."""
    place.lose("-wal", "-shm")
    with subprocess.Popen(["tar", "-C", str(place.backup), "-c", "."], stdout=subprocess.PIPE) as packing:
        subprocess.run(["tar", "-C", str(place.folder), "-x"], stdin=packing.stdout, check=True)
    return "journal.db"


def machine_forgot(place: Place) -> str:
    """The state folder is lost, and the backup was put in place."""
    shutil.rmtree(place.state, ignore_errors=True)
    return put_in_place(place)


def state_lost(place: Place) -> str:
    """The state folder alone is lost."""
    shutil.rmtree(place.state, ignore_errors=True)
    return "journal.db"


def copy_goes_on(place: Place) -> str:
    """``cp journal.db copy.db``, perhaps while it is open; the batch goes on in the copy."""
    shutil.copyfile(place.journal, place.folder / "copy.db")
    return "copy.db"


def log_lost(place: Place) -> str:
    """The ``-wal`` is gone."""
    place.lose("-wal", "-shm")
    return "journal.db"


def file_lost(place: Place) -> str:
    """The file is gone, and its mark is there."""
    place.lose("", "-wal", "-shm")
    return "journal.db"


def all_lost(place: Place) -> str:
    """The folder is empty."""
    place.lose("", "-wal", "-shm", "-mark")
    return "journal.db"


def emptied(place: Place) -> str:
    """The file is there, with nothing in it."""
    place.lose("-wal", "-shm")
    place.journal.write_bytes(b"")
    return "journal.db"


def mark_lost(place: Place) -> str:
    """The mark is gone."""
    place.lose("-mark")
    return "journal.db"


def mistyped(_: Place) -> str:
    """The same batch in another journal."""
    return "jounral.db"


STRIKES: dict[str, Callable[[Place], str]] = {
    "cp -a over": copied_over,
    "cp -a over, no log": copied_over_clean,
    "rm, cp -a": put_in_place,
    "rm, cp -a, no mark": put_in_place_without_mark,
    "tar over": unpacked_over,
    "rm, cp -a, no state": machine_forgot,
    "state folder lost": state_lost,
    "copy goes on": copy_goes_on,
    "copy, both run": copy_goes_on,
    "log lost": log_lost,
    "file lost": file_lost,
    "folder emptied": all_lost,
    "file of 0 bytes": emptied,
    "mark lost": mark_lost,
    "two journals": mistyped,
    "two journals at once": mistyped,
}
ALIVE = {"copy, both run", "two journals at once"}  # the process that is at work goes on


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


# --- what the processes do --------------------------------------------------------------------------------------------


@attrs.define(kw_only=True)
class Worker:
    """A process of the nursery.

    Attributes:
        does: ``load`` the batch; ``run`` it; run ``some`` of it and close the journal; do what a ``person`` would.
        ahead: Seconds its clock is ahead.
        turns: How often a person has come back to a quarantine.
    """

    number: int
    does: str
    path: str
    state: str
    base: str
    who: Mapping[str, str]
    orders: int
    ahead: float = 0.0
    unguarded: bool = False
    turns: int = 0

    def clock(self) -> float:
        """Unix seconds, as this process has them."""
        return time.time() + self.ahead

    def payouts(self) -> list[PayoutOrder]:
        """All of the batch."""
        return [payout(number, batch_id=BATCH) for number in range(self.orders)]

    def journal(self, path: Path) -> SqliteJournal:
        """One of the journals."""
        state = None if self.unguarded else self.state
        return SqliteJournal(path, state_folder=state, testing=Testing(now=self.clock))

    async def work(self) -> None:
        """Do it."""
        limit = aiohttp.ClientTimeout(total=2.0)
        async with PaymentsSession(self.base, Credentials(**self.who), timeout=limit) as payments:
            if self.does == "person":
                await self.see_to_it(payments)
                return
            stop = asyncio.Event()
            if self.does == "load":
                stop.set()
            async with self.journal(Path(self.path)) as journal:
                if self.does == "some":
                    asyncio.get_running_loop().call_later(8 * DELAY, stop.set)
                await self.send(payments, journal, stop=stop)

    async def send(
        self,
        payments: PaymentsSession,
        journal: SqliteJournal,
        *,
        adoption: TakeoverAuthorisation | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Run the batch."""
        await run_batch(
            payments,
            journal,
            BATCH,
            self.payouts(),
            settings=RunSettings(
                concurrency=4,
                lease=LEASE,
                look_first="never" if self.unguarded else "always",
                testing=Testing(now=self.clock),
            ),
            terms=BatchTerms(adoption=adoption),
            stop=stop,
        )

    async def see_to_it(self, payments: PaymentsSession) -> None:
        """Do what is told until the batch is through: look for orders, lift, adopt, begin another journal."""
        path, adoption = Path(self.path), None
        for turn in range(TURNS):
            try:
                async with self.journal(path) as journal:
                    if await self.goes_on(payments, journal, adoption):
                        return
            except (JournalLost, JournalCorrupt, NotAJournal) as error:
                say(self.number, type(error).__name__)
                path = path.with_name(f"new {turn}.db")
            except (HeldElsewhere, SecondJournal) as error:
                say(self.number, type(error).__name__)
                adoption = TakeoverAuthorisation(who="Ann", why="the other one is lost")
            except JournalBehind as error:
                say(self.number, type(error).__name__)
        raise RuntimeError("the batch does not come to an end")

    async def goes_on(
        self, payments: PaymentsSession, journal: SqliteJournal, adoption: TakeoverAuthorisation | None
    ) -> bool:
        """One turn with one journal; tells whether the batch is through."""
        await self.send(payments, journal, adoption=adoption)
        if (await journal.run(BATCH)).quarantined:
            say(self.number, "quarantine")
            await asyncio.sleep(AT_REST)  # whoever is still at work has heard of it, and what they sent has arrived
            before = await journal.progress(BATCH)
            await self.look(payments, journal)
            found = before.counts[State.PLANNED] - (await journal.progress(BATCH)).counts[State.PLANNED]
            say(self.number, f"found {found}")
            with suppress(NotLookedFor):
                await journal.lift_quarantine(BATCH, who="Ann", why="all looked for")
                return False
            self.ahead += QUARTER  # she comes back, and the list shows nothing all the same: the statement has it all
            self.turns += 1
            if self.turns >= GIVES_UP:
                planned = [entry.request_id async for entry in journal.entries(BATCH, State.PLANNED)]
                await journal.lift_quarantine(BATCH, who="Ann", why="the statement", request_ids=planned)
            return False
        counts = (await journal.progress(BATCH)).counts
        if counts[State.PLANNED] or counts[State.SENDING]:
            return False
        await self.look(payments, journal)
        say(self.number, f"at {journal.path.resolve()}")
        return True

    async def look(self, payments: PaymentsSession, journal: SqliteJournal) -> None:
        """Reconcile as a person does, whose time passes while they wait."""

        async def sleep(seconds: float) -> None:
            self.ahead += seconds

        await reconcile(payments, journal, BATCH, testing=Testing(now=self.clock, sleep=sleep))


def begin(**told: object) -> None:
    """What a child of the nursery does."""
    worker = Worker(**told)  # type: ignore[arg-type]
    if worker.unguarded:
        switch_off()
    try:
        asyncio.run(asyncio.wait_for(worker.work(), PATIENCE))
    except (HeldElsewhere, JournalBehind, SecondJournal):
        if worker.does != "run":  # whoever is at work while another journal goes on is told to end
            raise


def switch_off() -> None:
    """Switch the guards off. Never outside of the control."""
    assert "quarantine_all" in vars(_identity)  # else there would be nothing to switch off, and nothing to prove
    vars(_identity)["quarantine_all"] = lambda *_, **__: None

    def count(_: object) -> int:
        return 0

    def read(_: object) -> None:
        return None

    _memory.CommitCounter.count = count  # type: ignore[method-assign]
    _memory.CommitCounter.read = read  # type: ignore[method-assign]


# --- the rounds -------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Plan:
    """How much chaos.

    Attributes:
        rounds: Of each strike.
        strikes: Which.
        orders: In each batch.
        at_once: Rounds side by side.
        late: Readings after which the list shows a transaction.
        forgets: The state folder is taken away with every strike.
    """

    rounds: int = 20
    strikes: tuple[str, ...] = tuple(STRIKES)
    orders: int = 60
    unguarded: bool = False
    at_once: int = 16
    seed: int = 1
    late: int = 0
    forgets: bool = False


@attrs.define
class Toll:
    """What the rounds of one strike came to.

    Attributes:
        kills: With ``kill -9``.
        heeded: Rounds in which the journal said something.
        said: What it said, and how often.
        found: Orders that it had planned and the list showed.
        twice: Orders carried out more than once.
        wrong: Lost orders, and states that contradict the ledger.
    """

    rounds: int = 0
    kills: int = 0
    heeded: int = 0
    found: int = 0
    said: Counter[str] = attrs.field(factory=Counter)
    twice: list[str] = attrs.field(factory=list)
    wrong: list[str] = attrs.field(factory=list)


class Round:
    """One batch, struck once."""

    def __init__(self, plan: Plan, strike: str, place: Place, nursery: Nursery, sandbox: Sandbox, seed: int) -> None:
        self.plan = plan
        self.strike = strike
        self.place = place
        self.nursery = nursery
        self.sandbox = sandbox
        self.toll = Toll(rounds=1)
        self.chance = random.Random(seed)

    async def run(self) -> Toll:
        """All of it."""
        place, chance = self.place, self.chance
        await asyncio.to_thread(place.folder.mkdir, parents=True)
        ahead = [0.0, 0.0, 0.0]  # of the loader, of who runs it, of the person
        if chance.random() < 1 / 3:
            ahead[chance.randrange(3)] = chance.choice((-DAY, DAY))
        await self.ended(self.child("load", ahead=ahead[0]))
        backs_up = chance.randrange(3)
        if not backs_up:
            await self.back_up()
        if chance.random() < 0.5:
            await self.ended(self.child("some", ahead=ahead[1]))
        if backs_up == 1:
            await self.back_up()
        await self.killed(self.child("run", ahead=ahead[1]))
        if backs_up == 2:
            await self.back_up()
        worker = self.child("run", ahead=ahead[1])
        if self.strike in ALIVE:
            await self.carried_out(chance.randint(1, 8), worker)
        else:
            await self.killed(worker)
        if self.plan.forgets:
            await asyncio.to_thread(shutil.rmtree, place.state, ignore_errors=True)
        path = await asyncio.to_thread(STRIKES[self.strike], place)
        person = self.child("person", ahead=ahead[2], path=place.folder / path)
        await self.ended(person, worker)
        await self.listen(person)
        return self.toll

    def child(self, does: str, *, ahead: float = 0.0, path: Path | None = None) -> Child:
        """Start a process."""
        sandbox = self.sandbox
        who = {"app_key": sandbox.app_key, "app_password": sandbox.app_password, "user_id": sandbox.user_id}
        return self.nursery.begin(
            does=does, path=str(path or self.place.journal), state=str(self.place.state), base=sandbox.base_url,
            who=who, orders=self.plan.orders, ahead=ahead, unguarded=self.plan.unguarded,
        )  # fmt: skip

    async def ended(self, *children: Child) -> None:
        """Wait until processes have ended, one way or the other but by themselves."""
        codes = [await child.code for child in children]
        if set(codes) - {0, -signal.SIGKILL}:
            self.toll.wrong.append(f"the processes ended with {codes}")

    async def killed(self, child: Child) -> None:
        """Kill a process when it has sent some."""
        await self.carried_out(self.chance.randint(1, 8), child)
        await child.send(signal.SIGKILL)
        self.toll.kills += await child.code == -signal.SIGKILL

    async def carried_out(self, more: int, child: Child) -> None:
        """Wait until some more orders are carried out, or the process has ended."""
        enough = len(self.sandbox.ledger) + more
        while len(self.sandbox.ledger) < enough and not child.code.done():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.003)

    async def back_up(self) -> None:
        """Copy the folder as it is."""
        await asyncio.to_thread(_run, "cp", "-a", str(self.place.folder), str(self.place.backup))

    async def listen(self, person: Child) -> None:
        """What the person heard, and whether the ledger agrees with the journal they ended with."""
        journal = self.place.journal
        while not person.said.empty():
            what, _, more = person.said.get_nowait().partition(" ")
            match what:
                case "found":
                    self.toll.found += int(more)
                case "at":
                    journal = Path(more)
                case _:
                    self.toll.said[what] += 1
        self.toll.heeded = int(bool(self.toll.said))
        self.toll.twice += self.sandbox.duplicates()
        await self.judge(journal)

    async def judge(self, path: Path) -> None:
        """Every order is there, and none stands where it cannot."""
        if self.plan.unguarded:
            return
        executions = {execution.request_id: execution for execution in self.sandbox.ledger}
        async with SqliteJournal(path, state_folder=self.place.state) as journal:
            async for entry in journal.entries(BATCH):
                why = contradiction(entry.state, executions.pop(entry.request_id, None))
                if why is not None and not (entry.state == "rejected" and entry.conflict):
                    self.toll.wrong.append(f"{entry.request_id} {why}")
            if (await journal.progress(BATCH)).total != self.plan.orders:
                self.toll.wrong.append("orders are missing")
        self.toll.wrong += [f"{request_id} is in no journal" for request_id in executions]


async def wreak(plan: Plan, folder: Path) -> dict[str, Toll]:
    """Every strike, as often as the plan says."""
    tolls = {strike: Toll() for strike in plan.strikes}
    places = asyncio.Semaphore(plan.at_once)
    async with Nursery("benchmarks.chaos_copies") as nursery:

        async def one(number: int, strike: str) -> None:
            home = folder / f"round {number}"
            place = Place(folder=home / "journal", backup=home / "backup", state=home / "state")
            quirks = Quirks(listed_after=plan.late)
            async with places, Sandbox(seed=plan.seed + number, processing_delay=0.01, quirks=quirks) as sandbox:
                sandbox.chaos({Fault.SLOW: 1.0, Fault.LOST_AFTER: 0.03}, seconds=DELAY)
                toll = await Round(plan, strike, place, nursery, sandbox, plan.seed + number).run()
            add(tolls[strike], toll, f"round {number}")

        async with asyncio.TaskGroup() as group:
            for turn in range(plan.rounds):
                for place, strike in enumerate(plan.strikes):
                    group.create_task(one(turn * len(plan.strikes) + place, strike))
    return tolls


def add(total: Toll, toll: Toll, name: str) -> None:
    """Add up what one round came to."""
    total.rounds += toll.rounds
    total.kills += toll.kills
    total.heeded += toll.heeded
    total.found += toll.found
    total.said += toll.said
    total.twice += [f"{name}: {request_id}" for request_id in toll.twice]
    total.wrong += [f"{name}: {words}" for words in toll.wrong]


def verdict(plan: Plan, tolls: Mapping[str, Toll]) -> list[str]:
    """What went wrong."""
    twice = [f"{strike}: {words} was carried out twice" for strike, toll in tolls.items() for words in toll.twice]
    if plan.unguarded:
        return [] if twice else ["every guard was off and nothing was carried out twice: this proves nothing"]
    return twice + [f"{strike}: {words}" for strike, toll in tolls.items() for words in toll.wrong]


def show(tolls: Mapping[str, Toll]) -> None:
    """Print the table."""
    print(f"{'strike':22} rounds  kills heeded  found  twice  wrong  said")
    for strike, toll in tolls.items():
        said = ", ".join(f"{what} {count}" for what, count in sorted(toll.said.items()))
        counts = (toll.rounds, toll.kills, toll.heeded, toll.found, len(toll.twice), len(toll.wrong))
        row = " ".join(f"{count:6}" for count in counts)
        print(f"{strike:22} {row}  {said}")


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--orders", type=int, default=60)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--late", type=int, default=0)
    parser.add_argument("--forgets", action="store_true")
    parser.add_argument("--strike", action="append", choices=STRIKES)
    parser.add_argument("--unguarded", action="store_true")
    arguments = parser.parse_args()
    plan = Plan(
        rounds=arguments.rounds, orders=arguments.orders, at_once=arguments.at_once, seed=arguments.seed,
        strikes=tuple(arguments.strike or STRIKES), unguarded=arguments.unguarded, late=arguments.late,
        forgets=arguments.forgets,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        tolls = asyncio.run(wreak(plan, Path(folder)))
    show(tolls)
    problems = verdict(plan, tolls)
    print("\n".join(problems[:20]) or "all is well")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
