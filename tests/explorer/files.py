"""A small world of one journal's files: they are copied, put back, lost or named twice, and its process goes on.

Files, openings and commits are real, on a real file system; the log is brought into the file at each commit, as a long
life does. The number of a file and its birth are the system's, but for a file that is born with another's number. What
was sent is counted beside the journal: the service lists nothing yet, so the journal alone knows.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import attrs
from explorer.desks import Report
from explorer.journals import Done, at_once
from journal.factories import BATCH, IDENTITY, order, orders, transaction_id
from machine import keep_files_in_memory

from payments_async.journal import HeldElsewhere, JournalError, Signal, TakeoverAuthorisation
from payments_async.journal._engine._journal import Journal
from payments_async.journal._engine._writer import Writer, _deliver, _Opening, _Operation
from payments_async.journal._machine._memory import Loading, Registry
from payments_async.journal._sqlite import _identity, _opening
from payments_async.journal._sqlite._database import SqliteDatabase
from payments_async.journal._statements._entries import SHIFT, within_chunk
from payments_async.journal.contract import Evidence, Outcome, Permit

T = TypeVar("T")
SHOP, SECOND = "shop", "second"
ANN = TakeoverAuthorisation(who="Ann", why="the disk is broken")
_ROWS = ("outbox", "chunk", "attempt", "evidence", "progress", "claim")
_YEARS = 1e8  # seconds
# Since when an order is looked for: its batch, or its former holder.
_LOOKED_FOR = """SELECT min(coalesce(r.look_since, r.created_at),
  coalesce((SELECT min(a.permitted_at) FROM attempt a WHERE a.order_id = o.id), 1e18))
  FROM outbox o JOIN run r ON r.id = o.id >> ? WHERE o.request_id = ?"""
_FORGOTTEN = f"""SELECT o.request_id FROM chunk c JOIN outbox o ON o.id {within_chunk("c")} JOIN run r ON r.id = c.run
  WHERE o.state IN ('planned', 'sending') AND c.state = 'done' AND r.state <> 'loading'"""
_NOT_LOOKED_FOR = """SELECT batch_id FROM run WHERE kind = 'outbox' AND look_since IS NULL
  AND EXISTS (SELECT 1 FROM chunk WHERE state = 'quarantined')"""
_MANY = 200  # batches
_TICKS = itertools.count(1_000_000.0, 0.001)  # Unix seconds: no two moments are one


class FileWriter(Writer):
    """Commits each operation by itself, without a thread.

    Attributes:
        pages: Of the log, that SQLite brings into the file by itself.
    """

    pages = 1

    def begin(self) -> None:
        """Open the file, as a writer's thread does."""
        self._opening.database = self._database
        connection = self._opening.borrow()
        connection.execute(f"PRAGMA wal_autocheckpoint = {self.pages}")
        self._opening.is_open = True

    def submit(
        self, name: str, work: Any, *, together: Any = None, droppable: bool = False, at_once: bool = False,
        gives_back: bool = False, only_moves: bool = False,
    ) -> Any:  # fmt: skip
        done: Any = Done()
        is_alone = at_once or together is not None
        operation = _Operation(name, work, done, together, droppable, is_alone, gives_back, only_moves)
        _deliver(self._done(self._opening, [operation])[0])
        return done

    def end(self) -> None:
        """Close it, as that thread does."""
        self._opening.end()


class FileJournal(Journal):
    """A journal in a file, in the thread that asks.

    Attributes:
        later: Seconds by which it is later for all of them than their operations take.
    """

    later: ClassVar[float] = 0.0

    def __init__(self, path: Path, state: Path | None, *, second: TakeoverAuthorisation | None = None) -> None:
        self.path = path
        database = partial(SqliteDatabase, path, state_folder=state, busy_timeout=0.0, clock=self._ticks)
        super().__init__(database, second_journal=second)
        self._writer: FileWriter = FileWriter(self._database)

    def _ticks(self) -> float:
        return next(_TICKS) + self.later

    def begin(self) -> None:
        """Open it. Raises ``JournalError``."""
        self._registrars, self._uids = {}, {}
        self._writer._opening = _Opening()
        try:
            self._writer.begin()
        except BaseException:
            self._database.close()
            raise
        self._unseen_at = self._database.unseen_at
        self._database.start_heartbeat()

    async def _read(self, read: Callable[..., T], *arguments: Any) -> T:
        return read(self._writer._opening.connection, *arguments)

    def _give_back(self, request: object, why: str) -> None:
        """It ends before that is tried again."""

    def end(self) -> None:
        """Close it."""
        self._writer.end()
        self._database.close()

    def die(self) -> None:
        """Kill its process: the file and its log stay as they are."""
        files = [file for file in _opening.files_of(self.path)[:2] if file.exists()]
        left = [(file, file.read_bytes()) for file in files]
        with suppress(sqlite3.Error):
            self._writer._opening.connection.close()  # type: ignore[union-attr]
        self._database.close()
        for file, content in left:
            _write(file, content)


def _write(file: Path, content: bytes) -> None:
    """Write over a file, or make it."""
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(content)
        opened.truncate()


Files: TypeAlias = dict[str, bytes]


@attrs.define(eq=False)
class World:
    """A folder with a journal, what a machine remembers of it, and what was sent.

    Attributes:
        sent: How often each order was.
        began: When each was first permitted by the journal that was there first.
        stored: Orders whose outcome was written down since the files were last touched.
        looks: Who sends asks first whether this machine knows the journal.
        is_lost: There is nothing that goes on.
        is_wide: The file has so many batches that what one commit writes lies in few of its pages.
        pages: Of the log, that SQLite brings into the file by itself.
    """

    top: Path
    sent: Counter[str] = attrs.field(factory=Counter)
    began: dict[str, float] = attrs.field(factory=dict)
    stored: set[str] = attrs.field(factory=set)
    looks: bool = False
    is_lost: bool = False
    is_wide: bool = False
    pages: int = 1
    is_open: bool = False
    backup: Files = attrs.field(factory=dict)
    journal: FileJournal = attrs.field(init=False)
    other: FileJournal | None = None
    wrong: str = ""
    reborn: dict[int, int] = attrs.field(factory=dict)  # the number that the system tells of a file, by its own

    def first(self) -> None:
        """A batch of two orders, and an outbox; in a wide file after many others."""
        FileJournal.later = 0.0
        for place in (self.here, self.there):
            place.mkdir()
        self.journal = FileJournal(self.here / "journal.db", self.state)
        self.journal._writer.pages = self.pages
        self.open()
        for batch in (*map(str, range(_MANY if self.is_wide else 0)), BATCH):
            at_once(self._load(self.journal, batch))
        at_once(self.journal.open_outbox(SHOP, IDENTITY))

    @property
    def here(self) -> Path:
        return self.top / "here"

    @property
    def there(self) -> Path:
        return self.top / "there"

    @property
    def kept(self) -> Path:
        return self.top / "kept"

    @property
    def state(self) -> Path:
        return self.top / "state"

    def inode_of(self, path: Path | str) -> str:
        """What the system says of a file's number."""
        number = Path(path).stat().st_ino
        return str(self.reborn.get(number, number))

    def birth_of(self, path: Path) -> str:
        """And of its birth."""
        return "later" if path.stat().st_ino in self.reborn else "once"

    # what a process does

    def open(self) -> None:
        """The process begins."""
        self.journal.begin()
        self.is_open = True

    def close(self) -> None:
        """It ends."""
        if self.is_open:
            self.journal.end()
            self.is_open = False

    def kill(self) -> None:
        """It is killed."""
        self.journal.die()
        self.is_open = False

    async def _load(self, journal: Journal, batch: str, **options: Any) -> None:
        await journal.open_run(batch, IDENTITY)
        await journal.load(batch, orders(2, batch=batch), owner="loader", **options)

    async def _send(self, journal: FileJournal, batch: str, most: int) -> None:
        """Send orders of a batch, each with a permit, and write down what became of it."""
        if self.looks and not await journal.is_known_here(batch):
            return
        chunk = await journal.claim_chunk(batch, "worker")
        if chunk is None:
            return
        try:
            for claimed in chunk.orders[:most]:
                permit = await journal.permit(chunk, claimed)
                if isinstance(permit, Permit):
                    await self._leaves(journal, permit)
        finally:
            with suppress(JournalError):
                await journal.release_chunk(chunk)

    async def _leaves(self, journal: FileJournal, permit: Permit) -> None:
        self.sent[permit.request_id] += 1
        if self.sent[permit.request_id] > 1:
            self.wrong = f"order {permit.request_id} was sent twice"
        await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED))
        if journal is self.journal:
            self.began.setdefault(permit.request_id, permit.at)
            self.stored.add(permit.request_id)

    async def send_one(self, journal: FileJournal) -> None:
        """The first order of the batch."""
        await self._send(journal, BATCH, 1)

    async def send_early(self, journal: FileJournal) -> None:
        """Send an order of the first of many batches, which is refused, and one of the last, whose answer is open."""
        await self.send_first(journal, "0", Signal.REJECTED)
        await self.send_last(journal)

    async def send_last(self, journal: FileJournal) -> None:
        """Send an order of the last batch, whose answer is open."""
        chunk = await journal.claim_chunk(BATCH, "worker")
        assert chunk is not None
        permit = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        self.sent[permit.request_id] += 1

    async def send_first(self, journal: FileJournal, batch: str, answer: Signal) -> None:
        """Send the first order of one of many batches."""
        chunk = await journal.claim_chunk(batch, "worker")
        assert chunk is not None
        permit = await journal.permit(chunk, chunk.orders[0])
        assert isinstance(permit, Permit)
        self.sent[permit.request_id] += 1
        await journal.record(Outcome(permit=permit, signal=answer))
        await journal.release_chunk(chunk)

    async def pay(self, journal: FileJournal, **options: Any) -> None:
        """Put a single order, to be sent at once."""
        if self.looks and not await journal.is_known_here(SHOP):
            return
        placed = await journal.put(SHOP, order(9, batch=SHOP), owner="worker", permits=True, **options)
        if placed.permit is not None:
            await self._leaves(journal, placed.permit)
        if placed.chunk is not None:
            await journal.release_chunk(placed.chunk)

    async def send_second(self, journal: FileJournal) -> None:
        """Load another batch, and send it."""
        await self._load(journal, SECOND)
        await self._send(journal, SECOND, 2)

    async def send_all(self, journal: FileJournal) -> None:
        """Everything that the application wants, again."""
        for do in (
            partial(self._send, journal, BATCH, 2), partial(journal.open_outbox, SHOP, IDENTITY),
            partial(self.pay, journal), partial(self.send_second, journal),
        ):  # fmt: skip
            for _ in range(2):  # it is tried again where a journal has to stand back first
                with suppress(JournalError):
                    await do()

    def do(self, what: Callable[[FileJournal], Coroutine[Any, Any, object]]) -> None:
        """As the process that has the journal open; what is refused is not done."""
        if not self.is_open:
            with suppress(JournalError):
                self.open()
        if self.is_open:
            with suppress(JournalError):
                at_once(what(self.journal))

    # what becomes of files

    def save(self) -> None:
        """A backup of the whole disk."""
        self.backup = {file.name: file.read_bytes() for file in self._files()}
        shutil.copytree(self.state, self.kept)

    def _files(self) -> Iterator[Path]:
        for file in sorted(self.here.iterdir()):
            if "-alive-" not in file.name and not file.name.endswith("-shm"):
                yield file

    def restore(self, names: Sequence[str], how: str, *, state: str = "") -> None:
        """Put some of a backup back.

        Args:
            names: How the names of files end.
            how: Whether it is written over what is there, or all else is gone and it has files of its own; these may be
                born with the number of those before.
            state: What becomes of what the machine remembers.
        """
        self.stored.clear()
        wanted = {name: content for name, content in self.backup.items() if name in names}
        was = (self.here / "journal.db").stat().st_ino
        if how != "over":
            for file in self._files():
                if file.name in wanted or len(names) > 1:
                    file.unlink()
            for file in self.here.glob("*-shm"):
                file.unlink()
            if len(names) == 1:
                (self.here / "journal.db-wal").unlink(missing_ok=True)
        for name, content in wanted.items():
            _write(self.here / name, content)
        if how == "reborn":
            self.reborn[(self.here / "journal.db").stat().st_ino] = was
        if state:
            shutil.rmtree(self.state)
        if state == "back":
            shutil.copytree(self.kept, self.state)

    def restore_unmarked(self) -> None:
        """The file is put back over itself alone, where neither its folder nor the machine remembers anything."""
        self.restore(FILE, "over", state="lost")
        (self.here / "journal.db-mark").unlink()

    def restore_and_send(self) -> None:
        """The file is put back over itself while it is open, and an order in other pages of it is accepted."""
        self.restore(FILE, "over")
        self.do(partial(self.send_first, batch=str(_MANY // 2), answer=Signal.ACCEPTED))

    def send_in_two_lives(self) -> None:
        """An order of the first of many batches is sent and refused, and by the next life one of the last."""
        self.do(partial(self.send_first, batch="0", answer=Signal.REJECTED))
        self.close()
        self.do(self.send_last)

    def restore_elsewhere(self) -> None:
        """The disk is put back over itself, and the machine is new: who sends asks it first."""
        self.restore(FOLDER, "over", state="lost")
        self.looks = True

    def rows(self, tables: Sequence[str]) -> None:
        """Orders are put back from a copy, in the tables that are there."""
        if self.is_open:
            return
        self.stored.clear()
        saved = self.top / "saved.db"
        for name, content in self.backup.items():
            if name.startswith("journal.db") and not name.endswith("mark"):
                _write(saved.with_name(name.replace("journal", "saved")), content)
        with closing(sqlite3.connect(self.here / "journal.db", isolation_level=None)) as file:
            file.execute("ATTACH ? AS saved", (str(saved),))
            file.execute("BEGIN")
            for table in tables:
                file.execute(f"DELETE FROM {table}")
                file.execute(f"INSERT INTO {table} SELECT * FROM saved.{table}")
            file.execute("COMMIT")

    def lose(self, what: str) -> None:
        """A file is gone."""
        self.stored.clear()
        for end in ("", "-wal", "-shm"):
            (self.here / f"journal.db{end}").unlink(missing_ok=True)
        if what == "and state":
            shutil.rmtree(self.state)

    def undo_commits(self) -> None:
        """SQLite undoes a transaction by itself, as where its disk is full, for a while."""
        if not self.is_open:
            return
        database: Any = self.journal._database
        commit = database.commit

        def undone(connection: Any) -> None:
            connection.execute("ROLLBACK")
            commit(connection)

        for what in (self.send_one, self.pay):
            for good in (2, 1, 0):  # commits that are made before
                counted = itertools.count()

                def fails(connection: Any, good: int = good, counted: Iterator[int] = counted) -> None:
                    (undone if next(counted) >= good else commit)(connection)

                database.commit = fails
                self.do(what)
                database.commit = commit

    # a second one

    def copy_goes_on(self) -> None:
        """The backup is opened elsewhere; a person looks, and it goes on."""
        for name, content in self.backup.items():
            _write(self.there / name, content)
        self._begin_other(FileJournal(self.there / "journal.db", self.state))
        self._looked_for(BATCH)

    def second_name(self) -> None:
        """The file gets another name, under which another process opens it."""
        (self.there / "journal.db").hardlink_to(self.here / "journal.db")
        self._begin_other(FileJournal(self.there / "journal.db", self.state))
        self.do_other(self.send_all)

    def second_journal(self) -> None:
        """Another journal begins, for which no person has given a reason."""
        self._begin_other(FileJournal(self.there / "journal.db", self.state))
        assert self.other is not None
        with suppress(JournalError):
            at_once(self.other.open_outbox("kiosk", IDENTITY))
            self.wrong = "a second journal of the account begins without a person's word"

    def adopt(self) -> None:
        """Another journal takes the batch over, by a person's word; once looked for, it goes on there."""
        self._begin_other(FileJournal(self.there / "journal.db", self.state, second=ANN))
        self.do_other(partial(self._load, batch=BATCH, adoption=ANN))
        self.do_other(partial(self._send, batch=BATCH, most=2))
        self.do_other(lambda other: other.open_outbox(SHOP, IDENTITY))
        self.do_other(partial(self.pay, adoption=ANN))
        self._looked_for(BATCH)

    def adopt_late(self) -> None:
        """Another journal does so years later: what was sent is looked for from when it was sent on."""
        FileJournal.later = _YEARS
        self.adopt()
        if self.other is None:
            return
        for request_id, at in self.began.items():
            found = self.other._writer._opening.connection.execute(_LOOKED_FOR, (SHIFT, request_id))
            for (since,) in found:
                if since > at:
                    self.wrong = f"order {request_id} was adopted, and is looked for from later on than it was sent"

    def adopt_lost(self) -> None:
        """A disk is lost, with what the machine remembers: the other journal alone knows that it adopts."""
        self.close()
        self.lose("and state")
        (self.here / "journal.db-mark").unlink()
        self.is_lost = True
        self.adopt()

    def adopt_twice(self) -> None:
        """Two other journals take a single order over at once: both have seen it with the first, and one has it."""
        self.do(lambda journal: journal.put(SHOP, order(9, batch=SHOP)))
        others = [FileJournal(self.there / f"{name}.db", self.state, second=ANN) for name in ("one", "two")]
        adopt = Registry.adopt

        def adopt_late(registry: Registry, loading: Loading, request_ids: Sequence[str]) -> None:
            Registry.adopt = adopt  # type: ignore[method-assign]
            at_once(others[1].put(SHOP, order(9, batch=SHOP), adoption=ANN))
            adopt(registry, loading, request_ids)

        for one in others:
            one.begin()
            at_once(one.open_outbox(SHOP, IDENTITY))
        Registry.adopt = adopt_late  # type: ignore[method-assign]
        at_once(others[0].put(SHOP, order(9, batch=SHOP), adoption=ANN))
        refused = 0
        for one in others:
            try:
                at_once(one.claim_chunk(SHOP, "worker"))
            except HeldElsewhere:
                refused += 1
            one.end()
        if refused != 1:
            self.wrong = f"of two journals that adopted an order at once {refused} are refused"

    def _begin_other(self, other: FileJournal) -> None:
        with suppress(JournalError):
            other.begin()
            self.other = other

    def do_other(self, what: Callable[[FileJournal], Coroutine[Any, Any, object]]) -> None:
        """As the process elsewhere."""
        if self.other is not None:
            with suppress(JournalError):
                at_once(what(self.other))

    def _looked_for(self, batch: str) -> None:
        """A person looks orders up, and lets those go on that the service never had."""
        if self.other is None:
            return
        other = self.other

        async def looked() -> None:
            for number, one in enumerate(orders(2, batch=batch)):
                if self.sent[one.request_id]:
                    shown = Evidence(
                        signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", request_id=one.request_id,
                        amount=one.amount, transaction_id=transaction_id(number), currency="UGX",
                    )  # fmt: skip
                    await other.apply_evidence(shown)
            never = [one.request_id for one in orders(2, batch=batch) if not self.sent[one.request_id]]
            planned = [one.request_id async for one in other.entries(batch, "planned")]
            if set(planned) <= set(never):
                await other.lift_quarantine(batch, who="Ann", why="looked up", request_ids=planned)
            await self._send(other, batch, 2)

        with suppress(JournalError):
            at_once(looked())

    # rules

    def finish(self) -> None:
        """Everything goes on; what was written down is there."""
        if self.is_open:
            if not self.is_wide:  # else an index shows what lies in other pages
                self.do(self.send_all)
            self.close()
            self._check_stored()
        if self.is_wide:
            self.do(partial(self._send, batch="0", most=2))
        if not self.is_lost:
            self.do(self.send_all)
            self.do_other(self.send_all)
            self.do(self.check_under_way)

    async def check_under_way(self, journal: FileJournal) -> None:
        """Who sends comes by at what is under way; a journal that may have forgotten something looks for it."""
        connection = journal._writer._opening.connection
        for (request_id,) in connection.execute(_FORGOTTEN):
            self.wrong = self.wrong or f"{request_id} is under way, and its chunk is done"
        for (name,) in connection.execute(_NOT_LOOKED_FOR):
            self.wrong = self.wrong or f"{name} is not looked for in a journal that is in quarantine"

    def _check_stored(self) -> None:
        file = self.here / "journal.db"
        if not file.exists():
            held = set()
        else:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as read:
                held = {name for (name,) in read.execute("SELECT request_id FROM outbox WHERE state = 'accepted'")}
        if lost := self.stored - held:
            self.wrong = self.wrong or f"{', '.join(sorted(lost))}: it was written down, and is not there"

    def end(self) -> None:
        """Nothing of it is left."""
        self.close()
        if self.other is not None:
            self.other.end()
        shutil.rmtree(self.top)


FILE, FOLDER = ("journal.db",), ("journal.db", "journal.db-wal", "journal.db-mark")
Do: TypeAlias = Callable[[World], None]
BEFORE: dict[str, tuple[Do, Do]] = {  # a copy is made between the two
    "a copy is made, and an order of a batch is sent": (
        lambda _: None,
        lambda world: world.do(world.send_one),
    ),
    "an order is sent, a copy is made, and a single order is sent": (
        lambda world: world.do(world.send_one),
        lambda world: world.do(world.pay),
    ),
    "a copy is made, and a new batch is sent": (
        lambda _: None,
        lambda world: world.do(world.send_second),
    ),
}
THEN: dict[str, Do] = {
    "it goes on": lambda _: None,
    "its process ends": World.close,
    "its process is killed": World.kill,
}
TOUCHES: dict[str, Do] = {
    "the file is put back over it": lambda world: world.restore(FILE, "over"),
    "the folder is put back over it": lambda world: world.restore(FOLDER, "over"),
    "the disk is put back over it, on a machine that never saw it": World.restore_elsewhere,
    "the file is put back in its place": lambda world: world.restore(FILE, "placed"),
    "the disk is put back in its place": lambda world: world.restore(FOLDER, "placed", state="back"),
    "the disk is put back with its numbers": lambda world: world.restore(FOLDER, "reborn", state="back"),
    "the file is put back over it, and state is lost": lambda world: world.restore(FILE, "over", state="lost"),
    "the file is put back over it, and nothing else is left": World.restore_unmarked,
    "its rows are put back": lambda world: world.rows(_ROWS),
    "it is lost": lambda world: world.lose(""),
    "it is lost, and what the machine remembers": lambda world: world.lose("and state"),
    "all of it is lost, and another journal adopts the batch": World.adopt_lost,
    "its copy goes on elsewhere": World.copy_goes_on,
    "it gets a second name": World.second_name,
    "its commits are undone": World.undo_commits,
    "a second journal begins": World.second_journal,
    "another journal adopts the batch": World.adopt,
    "another journal adopts the batch years later": World.adopt_late,
}
_WIDE = "a copy is made, and orders of the first and the last of many batches are sent"
_LIVES = "a copy is made, and orders of the first and the last of many batches are sent in two lives"
_SENT = "a copy is made, and all of the batch is sent"
# Logs that began after the copy, in whose pages neither sums nor indices show that the file is older. By the pages of a
# log that SQLite brings into the file by itself, and the commits after which the journal does.
WIDE = {
    (_WIDE, "its process is killed", "the file is put back over it"): (4000, 1),
    (_WIDE, "it goes on", "the file is put back over it, and an order is sent"): (20, 1),
    (_LIVES, "it goes on", "the file is put back over it"): (4000, 500),
}
_ONCE: dict[str, tuple[Do, Do]] = {
    _WIDE: (lambda _: None, lambda world: world.do(world.send_early)),
    _LIVES: (lambda _: None, World.send_in_two_lives),
    _SENT: (lambda _: None, lambda world: world.do(partial(world._send, batch=BATCH, most=2))),
}
_ONCE_TOUCHED: dict[str, Do] = {
    "the file is put back over it, and an order is sent": World.restore_and_send,
    "its orders alone are put back": lambda world: world.rows(("outbox",)),
    "two other journals adopt an order at once": World.adopt_twice,
}
APART = (
    *((_SENT, then, "its orders alone are put back") for then in THEN),
    (_SENT, "it goes on", "two other journals adopt an order at once"),
)
_REPLACED: dict[Any, tuple[str, ...]] = {
    _identity: ("inode_of", "birth_of", "_OFTEN"),
    _opening: ("inode_of", "birth_of"),
    asyncio: ("to_thread",),
}


async def _here(do: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """In place of a thread."""
    return do(*arguments, **options)


def search() -> Report:
    """See all histories."""
    began, count, wrong = time.perf_counter(), 0, ""
    keep_files_in_memory()
    replaced = [(module, {name: vars(module)[name] for name in names}) for module, names in _REPLACED.items()]
    try:
        for history in (*WIDE, *APART, *itertools.product(BEFORE, THEN, TOUCHES)):
            world, count = World(Path(tempfile.mkdtemp(prefix="files-"))), count + 1
            asyncio.to_thread = _here  # type: ignore[assignment]
            world.pages, often = WIDE.get(history, (1, 1))
            vars(_identity).update(inode_of=world.inode_of, birth_of=world.birth_of, _OFTEN=often)
            vars(_opening).update(inode_of=world.inode_of, birth_of=world.birth_of)
            before, between = (BEFORE | _ONCE)[history[0]]
            world.is_wide = history in WIDE
            try:
                world.first()
                before(world)
                world.save()
                for do in (between, THEN[history[1]], (TOUCHES | _ONCE_TOUCHED)[history[2]]):
                    do(world)
                world.finish()
            finally:
                world.end()
            if world.wrong:
                wrong = world.wrong
                break
    finally:
        for module, was in replaced:
            vars(module).update(was)
    return Report(
        name="files", states=count, seconds=time.perf_counter() - began, wrong=wrong, history=history if wrong else ()
    )
