"""What each guard is for: journals that forget, with all guards, and with one of them taken out at a time.

    python tests/benchmarks/ablation.py                      the table, then the cells that pay twice without each guard
    python tests/benchmarks/ablation.py --guard none         the table alone
    python tests/benchmarks/ablation.py --guard request-ids  without that guard alone; --help names them
    python tests/benchmarks/ablation.py --late 8 --scene mistyped --way batch    some cells

A batch, or an outbox, pays 12 orders; then the journal's file is put back, copied, lost or mistyped, and the same
orders are sent again. An account may also have two journals, which a person has declared: the orders that one has paid
are given to the other one ("of two"), or a lost one is found again and goes on ("lost and found"). The service lists a
transaction late by so many readings. Where the package refuses and asks for a person's word, the person gives it.

A cell tells how many of the 12 were paid twice by the service's ledger, how many never, how many orders the last
journal still holds back at the end, and which refusals there were: L lost journal, S second journal, H held elsewhere,
Q quarantine, and ! where it came to no end. Held back is not a defect by itself: another journal may have paid them.

Each guard is taken out in a process of its own. The exit code is 1 when the table of all guards has a cell that pays
twice or never. A cell that no guard is meant for has a star, and is not judged: the state folder is gone, or was put
back with the whole disk, so that only a list that is late could tell; other request ids.

Two rows tell what would happen without the registry of request ids, if a second journal waited like a restored one
once a person has said why there are two. "request-ids, word waits": it never gets out, since no list can show an
order of a journal that has sent none. "request-ids, let out": two lists that show nothing of its own let it out, and
orders that are listed late are paid twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from decimal import Decimal
from itertools import groupby, product
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.chaos_copies import Place, all_lost, mistyped, put_in_place
from bulk.worlds import payout, session
from mutation import mutants
from mutation.__main__ import environment
from mutation.mutants import MUTANTS, Mutant
from nested import for_run

import payments_async
from payments_async import PaymentsSession, PayoutOrder
from payments_async.bulk import Fuse, lift_quarantine, reconcile, run_batch, send_again_all
from payments_async.journal import (
    HeldElsewhere,
    JournalLost,
    NotLookedFor,
    SecondJournal,
    SqliteJournal,
    TakeoverAuthorisation,
)
from payments_async.outbox import Outbox, WorkerSettings
from payments_async.sandbox import Quirks, Sandbox
from payments_async.testing import Testing

ROOT = Path(__file__).parent.parent.parent
COUNT, HALF, PUT = 12, 6, 9  # orders; those that are sent, and those that are in the outbox, at the half
OLDER = 99  # an order that was paid before all others
LATE = (0, 3, 8)  # readings after which a transaction is listed
WAYS = ("batch", "outbox")
TICK = 25.0  # seconds that an outbox waits at a time: less than what it takes for a jump of its clock
TICKS = 60  # of an outbox, until an operator comes: more than the grace
TURNS = 20  # of a person, before they give up
WORD = TakeoverAuthorisation(who="Ann", why="yes, yes")
AT_ONCE = 8  # cells of one process
PROCESSES = 2
PATIENCE = 300.0  # seconds for one cell, which takes some on a machine that does nothing else


# --- the scenes -------------------------------------------------------------------------------------------------------


def put_over(place: Place) -> str:
    """The contents of each file come back into the file that is there, as by the snapshot of a disk."""
    for file in list(place.folder.iterdir()):
        saved = place.backup / file.name
        if saved.exists():
            file.write_bytes(saved.read_bytes())
        else:
            file.unlink()
    return "journal.db"


def copied(place: Place) -> str:
    """``cp -a`` of the folder: the copy goes on."""
    shutil.copytree(place.backup, place.folder / "copy", copy_function=shutil.copy2)
    return "copy/journal.db"


def put_aside(place: Place) -> str:
    """The folder is not there, as where a disk is not mounted."""
    for file in list(place.folder.iterdir()):
        file.rename(place.folder.with_name(f"aside-{file.name}"))
    return "journal.db"


def found(place: Place) -> str:
    """It is there again, beside what was begun meanwhile, and is gone on with."""
    for file in place.folder.parent.glob("aside-*"):
        file.rename(place.folder / file.name.removeprefix("aside-"))
    return "journal.db"


@attrs.frozen(kw_only=True)
class Scene:
    """What happens to a journal.

    Attributes:
        backup: When the folder is copied: when the journal is ``empty``, all is ``planned``, or ``half`` of it is sent.
        strike: Tells which journal is gone on with.
        memories: What becomes of the state folder: ``kept``, ``gone``, or put ``back`` to the moment of the backup.
        batch: Its name the second time.
        prefix: Of the request ids the second time.
        gap: Seconds until somebody goes on.
        hasty: The person lifts a quarantine before anything was read.
        stops: Half of the orders are still planned when it happens.
        second: The account has had another journal before, where its orders were paid too, and that is gone on with.
        then: What happens once all is paid; tells which journal is gone on with then.
        limits: With which memories no guard is meant for it where the list is late; ``always`` also where it is not.
    """

    backup: str = "half"
    strike: Callable[[Place], str]
    memories: tuple[str, ...] = ("kept", "gone")
    batch: str = "pay"
    prefix: str = ""
    gap: float = 0.0
    hasty: bool = False
    stops: bool = False
    second: bool = False
    then: Callable[[Place], str] | None = None
    limits: tuple[str, ...] = ()


_BACK = ("kept", "gone", "back")
SCENES: Mapping[str, Scene] = {
    "put back, empty": Scene(backup="empty", strike=put_in_place, memories=_BACK),
    "put back, planned": Scene(backup="planned", strike=put_in_place, memories=_BACK),
    "put back, half": Scene(strike=put_in_place, memories=_BACK),
    "operator, planned": Scene(backup="planned", strike=put_in_place, hasty=True),
    "operator, half": Scene(strike=put_in_place, hasty=True),
    "put over, planned": Scene(backup="planned", strike=put_over, limits=("gone",)),
    "cp -a, planned": Scene(backup="planned", strike=copied, memories=_BACK),
    "cp -a, half": Scene(strike=copied, memories=_BACK),
    "lost": Scene(strike=all_lost, limits=("gone",)),
    "mistyped": Scene(strike=mistyped, batch="pay again", limits=("gone",)),
    "mistyped, other ids": Scene(strike=mistyped, batch="pay again", prefix="x", limits=("always",)),
    "of two, same batch": Scene(strike=mistyped, second=True, limits=("gone",)),
    "of two, other batch": Scene(strike=mistyped, second=True, batch="pay again", limits=("gone",)),
    "lost and found": Scene(strike=put_aside, stops=True, then=found, limits=("gone",)),
    "disk put back": Scene(backup="planned", strike=put_over, memories=("back",), gap=300.0, limits=("back",)),
    "disk, within a minute": Scene(backup="planned", strike=put_over, memories=("back",), limits=("always",)),
}


@attrs.frozen
class Cell:
    """One of the table."""

    scene: str
    way: str
    memory: str
    late: int

    @property
    def is_limit(self) -> bool:
        """Whether no guard is meant for it."""
        limits = SCENES[self.scene].limits
        return "always" in limits or (self.late > 0 and self.memory in limits)

    @property
    def row(self) -> str:
        """What it shares with the same of other readings."""
        return f"{self.scene:22} {self.way:7} {self.memory:5}"


@attrs.frozen
class Told:
    """What a cell came to.

    Attributes:
        early: Paid twice when a word was first asked for.
        said: The first letters of the refusals.
        held: Orders that the journal which is gone on with still holds back at the end.
    """

    twice: int
    never: int
    early: int
    said: str
    held: int = 0

    def __str__(self) -> str:
        never = f" never {self.never}" if self.never else ""
        early = f" early {self.early}" if self.early else ""
        held = f" held {self.held}" if self.held else ""
        return f"{self.twice}{never}{early}{held} {self.said}".rstrip()


def cells(scenes: Sequence[str] = tuple(SCENES), late: Sequence[int] = LATE, ways: Sequence[str] = WAYS) -> list[Cell]:
    """Those of some scenes."""
    return [
        Cell(scene, way, memory, readings)
        for scene in scenes
        for way, memory, readings in product(ways, SCENES[scene].memories, late)
    ]


# --- playing them -----------------------------------------------------------------------------------------------------


@attrs.define
class Stage:
    """One cell being played, by a clock that everybody in it goes by."""

    place: Place
    sandbox: Sandbox
    payments: PaymentsSession
    scene: Scene
    ahead: float = 0.0
    early: int | None = None
    at: Path | None = None
    said: dict[str, None] = attrs.field(factory=dict)

    def clock(self) -> float:
        """Unix seconds."""
        return time.time() + self.ahead

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.ahead += seconds

    def say(self, letter: str) -> None:
        """The package refuses."""
        if self.early is None:
            self.early = self.twice()
        self.said[letter] = None

    def paid(self) -> Counter[int]:
        """How often each of the persons was paid, who have an amount of their own."""
        return Counter(int(execution.amount) for execution in self.sandbox.ledger)

    def twice(self) -> int:
        """How many were paid more than once."""
        return sum(count > 1 for count in self.paid().values())

    def never(self) -> int:
        """How many were not paid."""
        paid = self.paid()
        return sum(not paid[int(payout(number).amount)] for number in range(COUNT))

    def held(self) -> int:
        """How many orders are planned in the journal that was opened last."""
        if self.at is None or not self.at.exists():
            return 0
        with closing(sqlite3.connect(self.at)) as journal:
            return int(journal.execute("SELECT count(*) FROM outbox WHERE state = 'planned'").fetchone()[0])

    def orders(self, prefix: str = "") -> list[PayoutOrder]:
        """The 12."""
        return [attrs.evolve(order, request_id=f"{prefix}{order.request_id}") for order in map(payout, range(COUNT))]

    def journal(self, path: Path, second: TakeoverAuthorisation | None = None) -> SqliteJournal:
        """Of this machine."""
        self.at = path
        return SqliteJournal(
            path, state_folder=self.place.state, testing=Testing(now=self.clock), second_journal=second
        )

    def save(self) -> None:
        """Copy the folder, and what the machine remembers."""
        shutil.copytree(self.place.folder, self.place.backup, copy_function=shutil.copy2)
        shutil.copytree(self.place.state, self._state_backup, copy_function=shutil.copy2)

    def strike(self, memory: str) -> Path:
        """It happens; tells which journal is gone on with."""
        path = self.place.folder / self.scene.strike(self.place)
        if memory != "kept":
            shutil.rmtree(self.place.state)
        if memory == "back":
            shutil.copytree(self._state_backup, self.place.state, copy_function=shutil.copy2)
        return path

    @property
    def _state_backup(self) -> Path:
        return self.place.backup.with_name("state-backup")

    async def look(self, journal: SqliteJournal, name: str) -> None:
        """Reconcile with its defaults, and lift."""
        if self.scene.hasty:
            with suppress(NotLookedFor):
                await lift_quarantine(journal, name, "Ann", "in haste")
                return
        await reconcile(self.payments, journal, name, testing=Testing(now=self.clock, sleep=self.sleep))
        try:
            await lift_quarantine(journal, name, "Ann", "reconcile said nothing")
        except NotLookedFor:
            self.ahead += 300.0

    async def begin_second(self, way: str) -> None:
        """Begin the account's other journal, pay an order from it, and wait until nothing holds it back."""
        if self.scene.second:
            path = self.place.folder / self.scene.strike(self.place)
            await self.again(way, path, [payout(OLDER + 1)], "other")
            self.said.clear()
            self.early = None

    # by batch

    async def run(self, journal: SqliteJournal, name: str, orders: Sequence[PayoutOrder], **how: object) -> None:
        """Run a batch."""
        await run_batch(
            self.payments,
            journal,
            name,
            orders,
            **for_run({"testing": Testing(now=self.clock), "concurrency": 1} | how),
        )

    async def batch(self) -> None:
        """Pay all, with a backup made on the way."""
        orders, stop = self.orders(), asyncio.Event()
        stop.set()
        async with self.journal(self.place.journal) as journal:
            await self.run(journal, "older", [payout(OLDER)])
        await self.begin_second("batch")
        async with self.journal(self.place.journal) as journal:
            if self.scene.backup == "planned":
                await self.run(journal, "pay", orders, stop=stop)
            if self.scene.backup == "half":
                amount = sum((order.amount for order in orders[:HALF]), Decimal(0))
                await self.run(journal, "pay", orders, fuse=Fuse(max_total=amount))
        self.save()
        if self.scene.stops:
            return
        async with self.journal(self.place.journal) as journal:
            await self.run(journal, "pay", orders)

    async def batch_again(self, path: Path, orders: Sequence[PayoutOrder], name: str) -> None:
        """Do what is asked for until the batch is through."""
        adoption: TakeoverAuthorisation | None = None
        for _ in range(TURNS):
            try:
                async with self.journal(path, WORD if "S" in self.said else None) as journal:
                    await self.run(journal, name, orders, adoption=adoption)
                    if (await journal.chunks(name)).quarantined:
                        self.say("Q")
                        await self.look(journal, name)
                    elif not (await journal.progress(name)).counts["planned"]:
                        return
            except HeldElsewhere:
                self.say("H")
                adoption = WORD
            except SecondJournal:
                self.say("S")
            except JournalLost:
                self.say("L")
                path = path.with_name("new.db")

    # by outbox

    def outbox(self, journal: SqliteJournal) -> Outbox:
        """An outbox on a journal."""
        return Outbox(self.payments, journal, testing=Testing(now=self.clock), worker=WorkerSettings(settles=False))

    async def pay(self) -> None:
        """Pay all, with a backup made on the way."""
        orders, moment = self.orders(), self.scene.backup
        async with self.journal(self.place.journal) as journal, self.outbox(journal) as outbox:
            await outbox.pay(payout(OLDER), timeout=PATIENCE)
        await self.begin_second("outbox")
        async with self.journal(self.place.journal) as journal, self.outbox(journal) as outbox:
            for order in orders[: HALF if moment == "half" else 0]:
                await outbox.pay(order, timeout=PATIENCE)
            await outbox.pause("Ann", "lunch")
            for order in orders[: {"empty": 0, "planned": COUNT, "half": PUT}[moment]]:
                await outbox.put(order)
            if moment == "empty":
                await outbox.resume("Ann", "back")
        self.save()
        if self.scene.stops:
            return
        async with self.journal(self.place.journal) as journal, self.outbox(journal) as outbox:
            await outbox.resume("Ann", "back")
            for order in orders:
                await outbox.pay(order, timeout=PATIENCE)

    async def pay_again(self, path: Path, orders: Sequence[PayoutOrder]) -> None:
        """Put all again, and do what is asked for, until nothing is planned."""
        if self.scene.hasty:
            async with self.journal(path) as journal:
                if (await journal.chunks("outbox")).quarantined:
                    await self.look(journal, "outbox")
        for _ in range(TURNS):
            try:
                async with self.journal(path, WORD if "S" in self.said else None) as journal:
                    async with self.outbox(journal) as outbox:
                        await outbox.resume("Ann", "back")
                        for order in orders:
                            await self.put(outbox, order)
                        if await self.is_sent(journal):
                            await self.send_parked(journal)
                            return
                    await self.look_why(journal)
            except HeldElsewhere:  # another journal has adopted its orders: that one is gone on with
                self.say("H")
                return
            except SecondJournal:
                self.say("S")
            except JournalLost:
                self.say("L")
                path = path.with_name("new.db")

    async def again(self, way: str, path: Path, orders: Sequence[PayoutOrder], name: str) -> None:
        """Pay some orders, and do what is asked for until nothing is planned."""
        await (self.batch_again(path, orders, name) if way == "batch" else self.pay_again(path, orders))

    async def look_why(self, journal: SqliteJournal) -> None:
        """Look for orders of an outbox that are not sent. Raises ``HeldElsewhere`` where another journal has them."""
        if (await journal.chunks("outbox")).quarantined:
            self.say("Q")
            await self.look(journal, "outbox")
        elif (chunk := await journal.claim_chunk("outbox", "Ann")) is not None:
            await journal.release_chunk(chunk)

    async def put(self, outbox: Outbox, order: PayoutOrder) -> None:
        """Put an order, with a person's word where one is asked for."""
        try:
            await outbox.put(order)
        except HeldElsewhere:
            self.say("H")
            await outbox.put(order, adoption=WORD)

    async def send_parked(self, journal: SqliteJournal) -> None:
        """Look for what was adopted until nothing is unknown, and have all sent that the lists do not show."""
        for _ in range(TURNS):
            await reconcile(self.payments, journal, "outbox", testing=Testing(now=self.clock, sleep=self.sleep))
            parked = [entry.request_id async for entry in journal.entries("outbox", "parked")]
            if parked:
                await send_again_all(journal, parked, "Ann", "reconcile said nothing")
                await self.is_sent(journal)
            if not (await journal.progress("outbox")).counts["unknown"]:
                return
            self.ahead += 300.0

    async def is_sent(self, journal: SqliteJournal) -> bool:
        """Whether nothing is planned after a while."""
        for _ in range(TICKS):
            counts = (await journal.progress("outbox")).counts
            if not counts["planned"] and not counts["sending"]:
                return True
            await asyncio.sleep(0.04)
            self.ahead += TICK
        return False


async def play(cell: Cell, folder: Path) -> Told:
    """One cell."""
    scene = SCENES[cell.scene]
    place = Place(folder=folder / "journal", backup=folder / "backup", state=folder / "state")
    place.folder.mkdir(parents=True)
    async with Sandbox(quirks=Quirks(listed_after=cell.late)) as sandbox, session(sandbox) as payments:
        stage = Stage(place, sandbox, payments, scene)
        await (stage.batch() if cell.way == "batch" else stage.pay())
        open_orders = COUNT - HALF if scene.stops else 0
        assert (0, open_orders) == (stage.twice(), stage.never()), "it goes wrong before anything has happened"
        path = stage.strike(cell.memory)
        stage.ahead += scene.gap
        orders = stage.orders(scene.prefix)
        try:
            async with asyncio.timeout(PATIENCE):
                await stage.again(cell.way, path, orders, scene.batch)
                if scene.then is not None:
                    await stage.again(cell.way, place.folder / scene.then(place), orders, scene.batch)
        except TimeoutError:
            stage.say("!")
        return Told(stage.twice(), stage.never(), stage.early or 0, "".join(stage.said), stage.held())


async def play_all(wanted: Sequence[Cell], folder: Path) -> dict[Cell, Told]:
    """Some cells side by side."""
    told: dict[Cell, Told] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, cell: Cell) -> None:
        async with places:
            told[cell] = await play(cell, folder / str(number))

    async with asyncio.TaskGroup() as group:
        for number, cell in enumerate(wanted):
            group.create_task(one(number, cell))
    return {cell: told[cell] for cell in wanted}


# --- the guards -------------------------------------------------------------------------------------------------------


def _listed(*names: str) -> tuple[Mutant, ...]:
    """Mutants of the list."""
    known = {mutant.name: mutant for mutant in MUTANTS}
    return tuple(known[name] for name in names)


def _changed(file: str, old: str, new: str) -> tuple[Mutant, ...]:
    """A change that is made for this table alone."""
    return (Mutant("ablation", file, "", old, new),)


_DOUBTS = "if is_another or is_unmarked or is_behind or DOUBTED in known:"
_REQUEST_IDS = _changed(
    mutants.MEMORY,
    "        asked = {plain_id(request_id): request_id for request_id in request_ids}\n        marks",
    "        return []\n        marks",
)
# what would stand in its place: a second journal, once a person has said why, waits like one that was restored
_WORD_WAITS = _changed(
    mutants.LOADING,
    '    (run,) = run_columns(commit, batch_id, "id")\n    resolve(commit, "second journal"',
    """    (run,) = run_columns(commit, batch_id, "id")
    found = commit.execute("SELECT run, number FROM chunk WHERE run = ? AND state = 'open'", (run,))
    quarantine(commit, found.fetchall(), "another journal")
    void_list_scans(commit, (run,))
    look_earlier(commit, run, commit.now)
    at, since = commit.execute("SELECT quarantined_at, look_since FROM run WHERE id = ?", (run,)).fetchone()
    commit.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (RESTORED, f"{at!r} {since!r}"))
    resolve(commit, "second journal\"""",
)
# ... and is let out by lists that show nothing of its own: it has nothing that a list could show
_LET_OUT = _changed("outbox/_scans.py", "clean=bool(window.days),", "clean=True,")
_SECOND = _listed("second-journal-unsaid")
_COUNT = _listed("copy-that-went-on-goes-unnoticed", "count-goes-unnoticed")
_GRACE = _changed(
    "journal/_statements/_history.py",
    "begun >= since + (grace if since == at else max(grace, interval))",
    "begun >= since",
) + _listed("parks-within-the-grace")
_SECOND_LIST = _changed("journal/_statements/_entries.py", "if clean >= LISTS or", "if clean >= 1 or")
GUARDS: Mapping[str, tuple[Mutant, ...]] = {
    "none": (),
    "request-ids": _REQUEST_IDS,
    "second-journal": _SECOND,
    "both-registries": _REQUEST_IDS + _SECOND,
    "count-outside": _listed("count-beside-the-file-alone"),
    "both-counts": _COUNT,
    "file-identity": _listed("copy-goes-unnoticed"),
    "counts-and-identity": _listed("copy-that-went-on-goes-unnoticed")
    + _changed(mutants.IDENTITY, _DOUBTS, "if DOUBTED in known:"),
    "lost-journal": _listed("lost-journal-goes-unnoticed", "lost-folder-goes-unnoticed"),
    "first-look": _listed("run-never-looks", "outbox-goes-on-after-a-doubt", "outbox-claims-batches-unlooked-for")
    + _changed(
        mutants.SENDING,
        "        elif await self.journal.is_looked_for(batch_id):\n            is_known",
        "        else:\n            return None\n            is_known",
    ),
    "lists-before-lifting": _listed("lift-without-lists", "put-permits-before-the-lists"),
    "grace": _GRACE,
    "second-list": _SECOND_LIST,
    "grace-and-list": _GRACE + _SECOND_LIST,
    "sightings": _listed("outbox-keeps-no-sightings", "settler-keeps-no-sightings", "put-ignores-sightings"),
    "adoption-waits": _changed(
        mutants.LOADING,
        '    quarantine(commit, found.fetchall(), "this journal, before its orders were adopted")\n'
        "    void_list_scans(commit, (load.run,))\n",
        "",
    ),
    "request-ids, word waits": _REQUEST_IDS + _WORD_WAITS,
    "request-ids, let out": _REQUEST_IDS + _WORD_WAITS + _LET_OUT,
}


def take_out(guard: str, tree: Path) -> None:
    """Copy the package, and let the copy be without a guard."""
    shutil.copytree(ROOT / "payments_async", tree / "payments_async", copy_function=shutil.copy2)
    for mutant in GUARDS[guard]:
        place = tree / "payments_async" / mutant.file
        text = place.read_text()
        if text.count(mutant.old) != 1:
            raise ValueError(f"{guard}: the text of {mutant.name} does not stand once in {mutant.file}")
        place.write_text(text.replace(mutant.old, mutant.new))


# --- the tables -------------------------------------------------------------------------------------------------------


async def without(guard: str, arguments: Sequence[str]) -> dict[Cell, Told]:
    """The table without a guard, by a process of its own that imports a package without it."""
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.to_thread(take_out, guard, Path(folder))
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, *arguments, "--child", folder, stdout=asyncio.subprocess.PIPE,
            env=environment(Path(folder)),
        )  # fmt: skip
        said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"without {guard} the table cannot be made")
    return {Cell(*cell): Told(*told) for cell, told in json.loads(said)}


def rows(table: Mapping[Cell, Told]) -> Iterator[str]:
    """The lines of a table."""
    late = sorted({cell.late for cell in table})
    yield f"{'paid twice, late by':36} " + " ".join(f"{readings:<10}" for readings in late)
    for row, same in groupby(table, key=lambda cell: cell.row):
        yield f"{row} " + " ".join(f"{str(table[cell]) + '*' * cell.is_limit:10}" for cell in same)


def wrong(table: Mapping[Cell, Told]) -> list[str]:
    """The cells that go wrong with all guards."""
    return [
        f"{cell.row} late by {cell.late}: {told}"
        for cell, told in table.items()
        if (told.twice or told.never or told.early) and not cell.is_limit
    ]


def worse(table: Mapping[Cell, Told], than: Mapping[Cell, Told]) -> dict[Cell, Told]:
    """The cells in which more are paid twice, or never."""
    return {
        cell: told for cell, told in table.items() if told.twice > than[cell].twice or told.never > than[cell].never
    }


def stuck(table: Mapping[Cell, Told], than: Mapping[Cell, Told]) -> dict[Cell, Told]:
    """The cells in which more orders are held back to the end: nothing is paid twice where nothing is paid."""
    return {cell: told for cell, told in table.items() if told.held > than[cell].held}


def unasked(table: Mapping[Cell, Told], than: Mapping[Cell, Told]) -> dict[Cell, Told]:
    """The cells in which a person was asked for a word, pays twice with it, and is not asked for any any more."""
    return {cell: told for cell, told in table.items() if told.twice and than[cell].said and not told.said}


def lines_of(some: Mapping[Cell, Told]) -> Iterator[str]:
    """A line for each row of which some cells are named."""
    for row, same in groupby(some, key=lambda cell: cell.row):
        yield f"  {row} " + ", ".join(f"late {cell.late}: {some[cell]}" for cell in same)


async def compare(guards: Sequence[str], arguments: Sequence[str]) -> int:
    """Print the table, and what each guard is for."""
    places = asyncio.Semaphore(PROCESSES)

    async def one(guard: str) -> dict[Cell, Told]:
        async with places:
            return await without(guard, arguments)

    async with asyncio.TaskGroup() as group:
        tables = {guard: group.create_task(one(guard)) for guard in guards}
        whole = await tables.pop("none")
        print("\n".join(rows(whole)), flush=True)
        for guard, making in tables.items():
            table = await making
            more, fewer = worse(table, whole), worse(whole, table)
            print(f"\nwithout {guard}: more are paid twice in {len(more)} of {len(table)} cells")
            print("\n".join(lines_of(more)) or "  none")
            if silent := unasked(table, whole):
                print("  no word is asked for any more in")
                print("\n".join(lines_of(silent)))
            if held := stuck(table, whole):
                print("  more are held back to the end in")
                print("\n".join(lines_of(held)))
            if fewer:
                print("  fewer in these, which then are")
                print("\n".join(lines_of({cell: table[cell] for cell in fewer})))
            sys.stdout.flush()
    bad = wrong(whole)
    print("\n" + ("\n".join(bad) or "with all guards all is well"))
    return 1 if bad else 0


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guard", action="append", choices=GUARDS)
    parser.add_argument("--scene", action="append", choices=SCENES)
    parser.add_argument("--late", action="append", type=int)
    parser.add_argument("--way", action="append", choices=WAYS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is None:
        guards = dict.fromkeys(["none", *(arguments.guard or GUARDS)])
        return asyncio.run(compare(list(guards), sys.argv[1:]))
    logging.disable(logging.CRITICAL)
    if not Path(payments_async.__file__).is_relative_to(arguments.child):
        raise RuntimeError("another package was imported than the one without the guard")
    wanted = cells(arguments.scene or tuple(SCENES), arguments.late or LATE, arguments.way or WAYS)
    with tempfile.TemporaryDirectory() as folder:
        table = asyncio.run(play_all(wanted, Path(folder)))
    print(json.dumps([[attrs.astuple(cell), attrs.astuple(told)] for cell, told in table.items()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
