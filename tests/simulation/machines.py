"""What becomes of the machine in a world: its disk, power, clocks and files; and the person who tends it."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from nested import for_journal
from simulation import clocks
from simulation.disks import Disk

from payments_async import PaymentsError, PaymentsSession, PayoutOrder
from payments_async.bulk import lift_quarantine, reconcile, send_again
from payments_async.journal import (
    Journal,
    JournalCorrupt,
    JournalError,
    JournalLost,
    NotAJournal,
    NotApproved,
    NotLookedFor,
    NotParked,
    RegistryDamaged,
    SecondJournal,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
)
from payments_async.outbox import Outbox
from payments_async.testing._simulation.processes import Process

if TYPE_CHECKING:
    from simulation.plans import Blow
    from simulation.worlds import World

DISK = ("disk_full", "disk_errors", "power_cut")
CLOCKS = ("clock", "own_clock", "suspend", "pause")
FILES = ("put_back", "copy", "lose", "replace")
MACHINE = (*DISK, *CLOCKS, *FILES)
SETS = {"file": ("", "-wal"), "bare": ("",), "folder": ("", "-wal", "-mark"), "log": ("-wal",), "mark": ("-mark",)}
ANN = TakeoverAuthorisation(who="Ann Example", why="the other journal is lost, and the service never had it")
_TENDS = 300.0  # seconds between two looks of the person
_WAITS = 1_000.0  # seconds of calm after which the person knows that nothing is under way any more


@attrs.frozen
class Drawn:
    """A blow to the machine, as ``plans`` make theirs of it."""

    at: float
    kind: str
    who: int
    seconds: float
    how: str


def drawn(seed: int, trouble: float) -> tuple[tuple[str, ...], list[Drawn]]:
    """Which faults of the machine exist in the world of a seed, and when they strike: in half of the worlds none."""
    chance = random.Random(f"machine {seed}")
    if chance.random() < 0.5:
        return (), []
    kinds = tuple(kind for kind in MACHINE if chance.random() < 0.25)
    blows = []
    for _ in range(chance.randint(1, 6) if kinds else 0):
        kind, at = chance.choice(kinds), round(chance.random() * trouble, 3)
        seconds, how = round(10 ** chance.uniform(-1, 2.5), 3), ""
        match kind:
            case "disk_full" | "disk_errors":
                how = chance.choice(["0.01", "0.1", "1"])
            case "clock" | "own_clock":
                seconds = round(chance.choice([-1, 1]) * 10 ** chance.uniform(0, 5.3), 3)
            case "put_back":
                what = chance.choice(["file", "bare", "folder", "state", "all"])
                how = f"{what} {chance.choice(['replaced', 'over', 'over with log left', 'replaced while open'])}"
                seconds = round(min(at, 10 ** chance.uniform(-2, 2.5)), 3)  # since the beginning: when it was copied
            case "replace":
                how = chance.choice(["remembered", "forgotten"])
            case "copy":
                how = chance.choice(["file", "bare"])
            case "lose":
                what = chance.choice(["file", "folder", "log", "mark", "state", "all", "content"])
                how = f"{what}{chance.choice(['', ' while open'])}"
            case _:
                pass
        blows.append(Drawn(at, kind, chance.randrange(4), seconds, how))
    return kinds, blows


class Machine:
    """The machine on which the processes of a world run, and the person who tends it.

    They do what errors say. A tired one only begins again, until the trouble is over.

    Attributes:
        place: Of the journal.
        extra: Seconds of patience beside the world's, for what clocks have put off.
        has_forgotten: Files were put back, copied or lost.
        known: Orders that the journal refuses, since they may have been sent, and a person knows that they were.
        is_asleep: Nothing is begun now.
        off_until: Nor before that moment.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"person {world.plan.seed}")
        self._is_tired = self._chance.random() < 0.3
        self._number = 1
        self._is_second = False  # a person has said that the account's other journal is lost
        self._elsewhere: dict[int, Path] = {}  # applications that go on in a copy
        self._everybody: list[Process] = []
        self._copies: dict[float, dict[Path, bytes]] = {}
        self._clocks = clocks.Clocks()
        self._own: dict[int, clocks.Clocks] = {}
        self._wake: Any = None
        self._calm_since: float | None = None
        self.is_asleep = False
        self.has_forgotten = False
        self.known: set[str] = set()
        self.off_until = 0.0
        self._rolled_back: list[str] = []  # what tells that a journal forgot, as blows took it away
        self.forgot_all_at: float | None = None
        self._cut_at: float | None = None  # the machine's memory of the last seconds was not on the disk
        self.extra = 0.0
        self.folder = world.folder / "data"
        self.state = world.folder / "state"
        self.folder.mkdir()
        self.exists = any(world.has(fault) for fault in MACHINE)
        self.disk = Disk(world.loop, world.folder) if self.exists else None

    # --- what worlds ask

    @property
    def place(self) -> Path:
        """Of the journal that counts."""
        return self.folder / ("journal.db" if self._number == 1 else f"journal-{self._number}.db")

    def journal(self, number: int | None, **options: Any) -> Journal:
        """The journal of an application."""
        place = self.place if number is None else self._elsewhere.get(number, self.place)
        return SqliteJournal(
            place, state_folder=self.state, second_journal=ANN if self._is_second else None, **for_journal(options)
        )

    def bear(self, process: Process, number: int) -> None:
        """A process begins on this machine."""
        if self.exists:
            process.clocks = (self._clocks, self._own.setdefault(number, clocks.Clocks()))
            self._everybody.append(process)

    def begin(self) -> None:
        """Copy what will be put back."""
        for blow in self._world.plan.blows:
            if blow.kind == "put_back":
                self._world.loop.call_later(blow.seconds, self._copy, blow.at)

    def end(self) -> None:
        """All is well from now on: clocks are set, copies given up, and all begin anew where files were touched."""
        self._calm_since = self._world.loop.now
        if self._wake is not None:
            self._wake()
        self.is_asleep = False
        if self.disk is not None:
            self.disk.share = 0.0
        for each in (self._clocks, *self._own.values()):
            self.extra = max(self.extra, abs(each.wall))
            each.wall = 0.0
        if self.has_forgotten:
            self.extra += 4_000.0
            self._elsewhere.clear()
            self._kill()

    def strike(self, blow: Blow) -> None:
        """Something happens to the machine."""
        world, loop = self._world, self._world.loop
        if self.disk is None or (self.is_asleep and blow.kind != "clock"):
            return
        world.say(blow.kind, blow.how, blow.seconds)
        match blow.kind:
            case "disk_full" | "disk_errors":
                self.disk.share = float(blow.how)
                self.disk.code = sqlite3.SQLITE_FULL if blow.kind == "disk_full" else sqlite3.SQLITE_IOERR
                loop.call_later(blow.seconds, vars(self.disk).update, {"share": 0.0})
            case "power_cut":
                gone = self.disk.cut_power(self._everybody)
                if any(one.startswith("commits of registry") for one in gone):
                    self._cut_at = world.loop.now
                world.say("gone:", ", ".join(gone) or "nothing")
                self._begin_again(blow)
            case "clock":
                self._clocks.wall += blow.seconds
                self.extra = max(self.extra, abs(self._clocks.wall))
            case "own_clock":
                own = self._own.setdefault(blow.who, clocks.Clocks())
                own.wall += blow.seconds
                self.extra = max(self.extra, abs(own.wall + self._clocks.wall))
            case "suspend" | "pause":
                self._sleep(blow.seconds, is_told=blow.kind == "suspend")
            case _:
                self.has_forgotten = True
                self._touch_files(blow)

    # --- sleep

    def _sleep(self, seconds: float, *, is_told: bool) -> None:
        self.is_asleep = True

        def alive() -> Sequence[Process]:
            return [process for process in self._everybody if not process.is_dead and not process.is_stopped]

        wake = clocks.sleep(self._world.loop, alive, seconds, self._clocks, is_told=is_told)
        if is_told:
            self._world.elsewhere.goes_on()

        def woken() -> None:
            wake()
            self._world.elsewhere.wakes()
            self.is_asleep, self._wake = False, None

        self._wake = woken
        self._world.loop.call_later(seconds, woken)

    # --- files

    def _touch_files(self, blow: Blow) -> None:
        what, _, how = blow.how.partition(" ")
        if blow.kind == "copy":
            place = self.folder / f"copy-{blow.at:g}.db"
            self._write({place.with_name(f"{place.name}{end}"): data for end, data in self._ends(what)})
            self._elsewhere[blow.who % len(self._world.lives)] = place
            self._world.lives[blow.who % len(self._world.lives)].kill()
            self._begin_again(blow)
            return
        is_open = how.endswith("while open")
        if not is_open:
            self._kill()
        match blow.kind:
            case "put_back":
                self._put_back(self._copies.get(blow.at, {}), what, how)
            case "lose":
                self._lose(what)
            case _:
                self._lose("folder")
                self._world.loop.create_task(self._make_another(is_remembered=what == "remembered"))
        self._begin_again(blow, is_open=is_open)

    async def _make_another(self, *, is_remembered: bool) -> None:
        async def make() -> None:
            async with SqliteJournal(self.folder / "other.db", state_folder=self.state if is_remembered else None):
                pass

        with suppress(JournalError):
            await Process(self._world.loop, "other").start(make())
        if not self.place.exists() and (self.folder / "other.db").exists():
            (self.folder / "other.db").rename(self.place)

    def _ends(self, what: str) -> list[tuple[str, bytes]]:
        found = [(end, self.place.with_name(f"{self.place.name}{end}")) for end in SETS[what]]
        return [(end, file.read_bytes()) for end, file in found if file.exists()]

    def _copy(self, key: float) -> None:
        if self._calm_since is None and self.place.exists():
            self._world.say("copied, to be put back at", key)
            files = [self.place.with_name(f"{self.place.name}{end}") for end in SETS["folder"]]
            files += [file for file in sorted(self.state.rglob("*")) if file.is_file()]
            self._copies[key] = {file: file.read_bytes() for file in files if file.exists()}

    def _put_back(self, copy: dict[Path, bytes], what: str, how: str) -> None:
        chosen = {}
        for file, data in copy.items():
            is_state = self.state in file.parents
            end = "" if is_state else file.name.removeprefix(self.place.name)
            if what == "all" or (what == "state" if is_state else end in SETS.get(what, ())):
                chosen[file] = data
        if not chosen:
            return
        if how.startswith("replaced"):
            self._lose("folder" if what in ("file", "bare") else what)
        elif what != "state" and "log left" not in how:
            self.place.with_name(f"{self.place.name}-wal").unlink(missing_ok=True)
        if how.startswith("over"):
            self._roll_back({"folder": ["mark"], "all": ["mark", "state"], "state": ["state"]}.get(what, []))
            if what == "all":  # within a minute nothing in this world could tell; after that the list is read once
                self.off_until = self._world.loop.now + 61.0
        elif what in ("state", "all"):
            self._roll_back(["state"])
        self._write(chosen)

    def _roll_back(self, parts: Sequence[str]) -> None:
        """What tells that a journal forgot is put back, as by a snapshot of the disk, or lost."""
        self._rolled_back += parts
        if parts and {"mark", "state"} <= set(self._rolled_back):
            self.forgot_all_at = self._world.loop.now

    @property
    def is_looked_for(self) -> bool:
        """Whether the list is surely read once all that can tell was put back: that happened in one blow.

        Where the parts were put back one after the other, the journal may have known something new within a minute.
        """
        return len(self._rolled_back) <= len({"mark", "state"})

    def _write(self, files: dict[Path, bytes]) -> None:
        for file, data in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            if self.disk is not None:
                self.disk.touch(file, self._world.loop.wall_clock + self._clocks.wall)

    def _lose(self, what: str) -> None:
        if what == "content":
            self.place.write_bytes(b"")
            what = "log"
        self._roll_back([part for part in ("state", "mark") if what in (part, "all")] + ["mark"] * (what == "folder"))
        if what in ("state", "all"):
            shutil.rmtree(self.state, ignore_errors=True)
        for end in SETS["folder" if what == "all" else what] if what != "state" else ():
            self.place.with_name(f"{self.place.name}{end}").unlink(missing_ok=True)
        if what not in ("state", "mark"):
            self.place.with_name(f"{self.place.name}-shm").unlink(missing_ok=True)

    def _kill(self) -> None:
        for process in self._everybody:
            process.kill()
        if self.disk is not None:
            with self.disk.closed(self._everybody):
                pass

    def _begin_again(self, blow: Blow, *, is_open: bool = False) -> None:
        loop = self._world.loop
        if is_open:  # all of them: what one has open is shared with the others here, as it is in no real machine
            loop.call_later(min(abs(blow.seconds), 100.0) + 5.0, self._kill)
        for number in self._world.lives:
            loop.call_later(min(abs(blow.seconds), 100.0) + 6.0, self._world.live, number)

    # --- the person

    def mend(self, error: BaseException) -> None:
        """Do what an error says."""
        found = errors_in(error)
        if not self.exists or (self._is_tired and self._calm_since is None):
            return
        if any(isinstance(one, JournalCorrupt) for one in found):
            is_mixed = any("-wal beside it" in str(one) for one in found)
            self._world.say("a person deletes the", "log" if is_mixed else "file")
            self.has_forgotten = True
            self._kill()
            self._lose("log" if is_mixed else "file")
        elif any(isinstance(one, JournalLost | NotAJournal) for one in found):
            self.has_forgotten = True
            self._kill()
            copies = [copy for copy in self._copies.values() if self.place in copy]
            if copies:
                self._world.say("a person puts the last backup back")
                self._put_back(copies[-1], "folder", "replaced")
                self._copies.clear()
            else:
                self._number, self._is_second = self._number + 1, True
                if self._cut_at is not None:
                    self.forgot_all_at = max(self._cut_at, self.forgot_all_at or 0.0)
                self._world.say("a person begins another journal:", self.place.name)
        elif any(isinstance(one, SecondJournal) for one in found):
            self._world.say("a person says why there is a second journal")
            self.has_forgotten = self._is_second = True
            self._kill()
        elif any(isinstance(one, RegistryDamaged) for one in found):
            self._world.say("a person moves the registry away")
            self._kill()
            for end in ("", "-wal", "-shm"):
                (self.state / f"registry.sqlite{end}").unlink(missing_ok=True)

    @asynccontextmanager
    async def tended(self, payments: PaymentsSession, journal: Journal, *, tends: bool) -> AsyncIterator[None]:
        """While it lasts, a person looks after quarantines."""
        if not tends or not self.exists:
            yield
            return
        task = asyncio.create_task(self._tend(payments, journal))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _tend(self, payments: PaymentsSession, journal: Journal) -> None:
        while True:
            await asyncio.sleep(_TENDS)
            if self._is_tired and self._calm_since is None:
                continue
            with suppress(JournalError, PaymentsError):
                for run in await journal.runs():
                    if run.quarantined or run.awaits:
                        await self._lift(payments, journal, run.batch_id)

    async def _lift(self, payments: PaymentsSession, journal: Journal, batch_id: str) -> None:
        await reconcile(payments, journal, batch_id)
        try:
            try:
                lifted = await lift_quarantine(journal, batch_id, ANN.who, "reconcile said so")
            except NotLookedFor:
                planned = [entry.request_id async for entry in journal.entries(batch_id, State.PLANNED)]
                if not planned or not self.knows_all or any(map(self._world.sandbox.executions, planned)):
                    return
                lifted = await lift_quarantine(journal, batch_id, ANN.who, "the statement", request_ids=planned)
        except NotApproved:
            self._world.is_asked = True
            raise
        self._world.say("a person lifts the quarantine of", batch_id, lifted)

    async def wait_to_put(self, request_id: str) -> None:
        """In half of the worlds orders come one after the other, so that a backup knows some of them."""
        chance = random.Random(f"put {self._world.plan.seed}")
        spread = chance.choice([0.0, 0.8 * self._world.plan.trouble]) if self.exists else 0.0
        moment = random.Random(f"put {self._world.plan.seed} {request_id}").random() * spread
        await asyncio.sleep(max(0.0, moment - self._world.loop.now))

    @property
    def knows_all(self) -> bool:
        """Whether it has been calm for so long that the statement of the service shows all there ever will be."""
        return self._calm_since is not None and self._world.loop.now - self._calm_since > _WAITS

    @property
    def word(self) -> TakeoverAuthorisation | None:
        """What the person says of a batch that another journal holds, once that is lost and nothing is under way."""
        return ANN if self.has_forgotten and self.knows_all else None

    async def adopt(self, outbox: Outbox, order: PayoutOrder) -> None:
        """An order is refused, for it may have been sent: wait, then say so where the service never had it.

        Where it had, the person has seen that it was paid: they know how it stands, and put it no more.
        """
        await asyncio.sleep(60.0)
        if not self.knows_all:
            return
        if self._world.sandbox.executions(order.request_id):
            self.known.add(order.request_id)
            self._world.say("a person knows", order.request_id)
        else:
            entry = await outbox.put(order, adoption=ANN)
            self._world.say("a person adopts", order.request_id)
            if entry.state is State.UNKNOWN:  # where the service has nothing of ours, its list never proves that
                await outbox.journal.park(order.request_id, detail="the service's statement does not show it")
                self._world.is_asked = True
                with suppress(NotParked, NotApproved):
                    await send_again(outbox.journal, order.request_id, ANN.who, ANN.why)


def errors_in(error: BaseException) -> list[BaseException]:
    """All that a group of errors holds."""
    if isinstance(error, BaseExceptionGroup):
        return [one for part in error.exceptions for one in errors_in(part)]
    return [error]


def is_of_the_journal(error: BaseException) -> bool:
    """Whether an application may end by it, to be begun again."""
    return all(isinstance(one, JournalError) for one in errors_in(error))
