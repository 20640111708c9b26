"""The departure record: the next process sends what a dead one surely had not; what is doubtful proves nothing."""

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
from journal.conftest import Home, Opens
from journal.factories import BATCH, Clock, claimed, in_outbox, loaded, order, permitted, transaction_id

from payments_async.journal import Journal, Signal, State
from payments_async.journal._machine import _departures
from payments_async.journal._statements._permits import record_unsent
from payments_async.journal.contract import Chunk, Outcome, Permit

Tamper = Callable[[Path], object]


@attrs.define
class Life:
    """A process that has a journal open, and can die without closing it."""

    journal: Any
    stack: AsyncExitStack
    mark: Callable[[Permit], None]

    @property
    def file(self) -> Path:
        """Its departure record."""
        file = self.journal._departures._file
        assert file is not None
        return Path(file)

    def dies(self) -> None:
        """The system closes its files. What is said in its name later was written before it died."""
        fcntl.flock(self.journal._departures._lock, fcntl.LOCK_UN)
        self.journal._departures._lock = None  # and so it removes nothing when it is closed


@attrs.define
class World:
    """A journal, the state folder of a machine, and processes that come and go."""

    opens: Opens
    state: Path
    clock: Clock
    stack: AsyncExitStack

    async def live(self, owner: str = "worker") -> Life:
        """A process opens the journal, and follows its departures."""
        journal = await self.stack.enter_async_context(self.opens(state_folder=self.state))
        return Life(journal, self.stack, journal.follow_departures(owner))

    async def after(self) -> dict[int, State]:
        """Where the orders stand once another process has looked, and the lease is over."""
        async with self.opens(state_folder=self.state) as journal:
            await journal.expire_chunks()
            self.clock.pass_(31)
            await journal.expire_chunks()
            await journal.check()
            return await states(journal)


async def states(journal: Journal) -> dict[int, State]:
    """By the numbers of the orders."""
    return {int(entry.request_id[-6:]): entry.state async for entry in journal.entries()}


@pytest.fixture
async def world(opens: Opens, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The machine's temporary folder may lie on any file system."""
    monkeypatch.setattr(_departures, "mount_of", lambda _: (Path("/"), "ext4"))
    async with AsyncExitStack() as stack:
        yield World(opens, tmp_path / "state", clock, stack)


async def half_sent(life: Life) -> list[Permit]:
    """Three orders are permitted, of which the second has left."""
    chunk = await claimed(life.journal)
    permits = [await permitted(life.journal, chunk, place) for place in range(3)]
    life.mark(permits[1])
    return permits


async def test_what_had_not_left_is_sent_by_the_next(world: World) -> None:
    """One of three was let out: its outcome is unknown, and the others go on."""
    life = await world.live()
    await half_sent(life)
    life.dies()
    assert {0: State.PLANNED, 1: State.UNKNOWN, 2: State.PLANNED} == await world.after()
    assert not life.file.exists()
    again = await world.live("another")
    chunk = await again.journal.claim_chunk(BATCH, "another")
    assert 2 == len(chunk.orders)
    assert 2 == (await permitted(again.journal, chunk)).attempt


@pytest.mark.parametrize("is_parked", [False, True])
async def test_it_counts_also_after_a_takeover(world: World, is_parked: bool) -> None:
    """Another machine has taken the chunk over before this one was looked at."""
    life = await world.live()
    await half_sent(life)
    world.clock.pass_(31)
    await life.journal.expire_chunks()  # as from anywhere: this file is locked
    if is_parked:
        await life.journal.park(order(0).request_id, detail="two list scans")
    life.dies()
    assert {0: State.PLANNED, 1: State.UNKNOWN, 2: State.PLANNED} == await world.after()


async def test_a_second_attempt_is_told_from_the_first(world: World) -> None:
    """What was turned away unread has left a mark, and the permit after it has none."""
    life = await world.live()
    chunk = await claimed(life.journal, 2)
    for place in range(2):
        first = await permitted(life.journal, chunk, place)
        life.mark(first)
        await life.journal.record(Outcome(permit=first, signal=Signal.NOT_SENT, message="429"))
        second = await permitted(life.journal, chunk, place)
    life.mark(second)
    life.dies()
    assert {0: State.PLANNED, 1: State.UNKNOWN} == await world.after()


async def test_single_orders_are_followed_from_their_first(world: World) -> None:
    """The chunk is begun by the very put that permits the order."""
    life = await world.live()
    await in_outbox(life.journal, 1)
    life.dies()
    assert State.PLANNED is (await world.after())[0]


# Nothing is proved


async def test_a_holder_that_lives_is_asked_by_nobody(world: World) -> None:
    """It may let the order out in the next moment, whatever became of its lease."""
    life = await world.live()
    permits = await half_sent(life)
    assert dict.fromkeys(range(3), State.UNKNOWN) == await world.after()
    assert life.file.exists()
    life.mark(permits[0])
    life.dies()
    assert {0: State.UNKNOWN, 1: State.UNKNOWN, 2: State.PLANNED} == await world.after()


async def test_an_owner_that_notes_nothing_is_not_followed(world: World) -> None:
    """A program of one's own may send under permits, and never heard of departures."""
    life = await world.live("another")
    await permitted(life.journal, await claimed(life.journal, 1))
    life.dies()
    assert {0: State.UNKNOWN} == await world.after()


async def test_a_lease_taken_before_is_not_followed(world: World) -> None:
    """Something may have left under it already."""
    life = await world.live("another")
    chunk = await claimed(life.journal, 1)
    life.journal.follow_departures("worker")
    await permitted(life.journal, chunk)
    life.dies()
    assert {0: State.UNKNOWN} == await world.after()


async def test_a_lease_that_made_room_for_others_proves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its marks are gone, and so is its name."""
    monkeypatch.setattr(_departures, "_LEASES", 1)
    life = await world.live()
    await loaded(life.journal, 600)
    first, second = [await life.journal.claim_chunk(BATCH, "worker") for _ in range(2)]
    permits = [await permitted(life.journal, chunk) for chunk in (first, second)]
    life.mark(permits[0])
    life.dies()
    after = await world.after()
    assert (State.UNKNOWN, State.PLANNED) == (after[0], after[500])


async def test_more_attempts_than_a_byte_counts_prove_nothing() -> None:
    """The 255th and the 300th would have the same mark."""
    left = _departures.Remains(1, 0, 1, b"", bytes([254, 255, 0]))
    assert [True, False, False, False] == [
        left.is_unsent(2, 254),
        left.is_unsent(2, 255),
        left.is_unsent(1, 300),
        left.is_unsent(0, 254),
    ]


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def _emptied(file: Path) -> None:
    os.truncate(file, 0)


def _lost(file: Path) -> None:
    file.unlink()


def _copied(file: Path) -> None:
    """Somebody tidied up and put it back."""
    shutil.copy2(file, file.with_suffix(".copy"))
    file.unlink()
    file.with_suffix(".copy").rename(file)


def _of_another_boot(file: Path) -> None:
    _written(file, 16, b"0" * 36)


def _of_another_journal(file: Path) -> None:
    _written(file, 52, b"f" * 32)


def _written(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as open_:
        open_.seek(at)
        open_.write(data)


@pytest.mark.parametrize("tamper", [_cut, _emptied, _lost, _copied, _of_another_boot, _of_another_journal])
async def test_a_file_that_is_not_as_it_was_left_proves_nothing(world: World, tamper: Tamper) -> None:
    """Cut off, lost, copied, of another start of the machine or of another journal."""
    life = await world.live()
    await half_sent(life)
    life.dies()
    tamper(life.file)
    assert dict.fromkeys(range(3), State.UNKNOWN) == await world.after()


@pytest.mark.parametrize("has_its_number", [False, True])
async def test_a_copy_is_known_by_its_number_and_by_its_birth(
    world: World, monkeypatch: pytest.MonkeyPatch, has_its_number: bool
) -> None:
    """Where the clock was ahead when the file was made, the time of the copy tells nothing."""
    if not has_its_number:
        monkeypatch.setattr(_departures, "birth_of", lambda _: None)  # a file system that does not tell
    life = await world.live()
    await half_sent(life)
    life.dies()
    _copied(life.file)
    if has_its_number:
        about = life.file.stat()
        _written(life.file, 84, about.st_dev.to_bytes(8, "little") + about.st_ino.to_bytes(8, "little"))
    _written(life.file, 132, (1 << 62).to_bytes(8, "little"))
    assert dict.fromkeys(range(3), State.UNKNOWN) == await world.after()


@pytest.mark.parametrize("goes_on", [False, True])
async def test_an_older_state_that_is_written_over_it_is_noticed(world: World, goes_on: bool) -> None:
    """The inode is the same, and the mark of an order that has left is gone: a tool has put the folder back."""
    life = await world.live()
    chunk = await claimed(life.journal)
    permits = [await permitted(life.journal, chunk, place) for place in range(3)]
    before = life.file.read_bytes()
    life.mark(permits[0])
    await asyncio.sleep(0.1)  # longer than the clocks of files and ours may differ
    _written(life.file, 0, before)
    if goes_on:
        life.mark(permits[1])
    life.dies()
    assert dict.fromkeys(range(3), State.UNKNOWN) == await world.after()


async def test_a_copy_of_the_journal_takes_no_proof_of_the_other(world: World, home: Home) -> None:
    """Both have raised the token of one chunk to the same number, each for an owner of its own."""
    life = await world.live()
    await half_sent(life)
    life.dies()
    await world.stack.aclose()  # a database that is in use cannot be copied
    opens = home.copied()
    async with opens(state_folder=world.state, clock=world.clock) as copy:
        await copy.expire_chunks()
        assert {State.UNKNOWN} == set((await states(copy)).values())


async def test_what_the_next_holder_sends_is_not_proved_by_the_one_before(world: World) -> None:
    """A process that stalled dies after its chunk was taken over: its record says nothing of permits since then."""
    life = await world.live()
    await claimed(life.journal, 1)
    world.clock.pass_(31)
    async with world.opens(state_folder=world.state) as journal:
        second = await journal.claim_chunk(BATCH, "another")
        assert second is not None
        await permitted(journal, second)
        life.dies()
        await journal.expire_chunks()
        assert {0: State.SENDING} == await states(journal)


async def test_an_owner_of_the_same_number_is_another(world: World) -> None:
    """By its name, which no two processes share."""
    life = await world.live()
    await half_sent(life)
    life.dies()
    async with world.opens(state_folder=world.state) as journal:
        with _departures.remains(world.state, journal._database.journal_id) as left:  # type: ignore[attr-defined]
            others = [one._replace(owner=bytes(16)) for one in left]
            await journal._submit("expire_chunks", record_unsent, others)  # type: ignore[attr-defined]
            assert left
            assert {State.SENDING} == set((await states(journal)).values())


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_a_journal_that_was_closed_leaves_no_record(
    world: World, monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    """A program that closes it while it sends is a mistake, and must not be read as a death."""
    unlink = Path.unlink

    def refuses(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == "departures":
            raise PermissionError(path)
        unlink(path, missing_ok)

    if is_stuck:
        monkeypatch.setattr(Path, "unlink", refuses)
    async with world.opens(state_folder=world.state) as journal:
        mark = journal.follow_departures("worker")  # type: ignore[attr-defined]
        permit = await permitted(journal, await claimed(journal, 1))
    mark(permit)
    assert is_stuck == bool(list((world.state / "departures").iterdir()))
    assert {0: State.UNKNOWN} == await world.after()


@pytest.mark.parametrize("kind", ["nfs4", "btrfs", None])
async def test_a_file_system_that_may_fail_later_has_none(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str | None
) -> None:
    """Where what is allocated may not be writable, or is seen late by others, no record is kept."""
    monkeypatch.setattr(_departures, "mount_of", lambda _: kind and (Path("/"), kind))
    life = await world.live()
    permit = await permitted(life.journal, await claimed(life.journal, 1))
    life.mark(permit)
    assert not (world.state / "departures").exists()


async def test_a_full_disk_or_a_system_without_a_boot_id_has_none(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and orders are sent all the same."""

    def refuses(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuses)
    life = await world.live()
    life.mark(await permitted(life.journal, await claimed(life.journal, 1)))
    assert "no departure record" in caplog.text
    assert [] == list((world.state / "departures").iterdir())
    monkeypatch.setattr(_departures, "_BOOT", world.state / "none")
    assert b"" == _departures._boot_id()
    await world.live()
    assert [] == list((world.state / "departures").iterdir())


_FORKS = """
import os, pathlib, sys, time
from payments_async.journal._machine import _departures
from payments_async.journal._statements._entries import SHIFT
_departures.mount_of = lambda _: (pathlib.Path("/"), "ext4")
mine = _departures.Departures()
mine.begin(pathlib.Path(sys.argv[1]), "a" * 32, "worker")
mine.lease(1, 0, 1, "worker")
child = os.fork()
if child:
    print(os.getpid(), child, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_nothing_is_proved_as_long_as_a_forked_child_lives(tmp_path: Path) -> None:
    """It has the permit in its memory too. A kill -9 of both leaves a record that can be read."""
    command = [sys.executable, "-c", _FORKS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        _, child = map(int, parent.stdout.readline().split())
        parent.send_signal(signal.SIGKILL)
        parent.wait(60)
        with _departures.remains(tmp_path, "a" * 32) as left:
            assert [] == left
        os.kill(child, signal.SIGKILL)
        assert "" == parent.stdout.read()  # it is gone when its end of the line is
    with _departures.remains(tmp_path, "a" * 32) as left:
        assert [(1, 0, 1)] == [(one.run, one.number, one.token) for one in left]


_LEASES_TWICE = """
import os, pathlib, signal, sys
from decimal import Decimal
from payments_async.journal._machine._departures import Departures
from payments_async.journal._statements._entries import SHIFT
from payments_async.journal.contract import Permit

departures = Departures()
departures.begin(pathlib.Path(sys.argv[1]), "a" * 32, "worker")
departures.lease(2, 0, 5, "worker")
values = {"request_id": "x", "amount": Decimal(1), "token": 5, "attempt": 1, "sent_before": False, "at": 1.0}
departures.mark(Permit(id=(2 << SHIFT) + 3, **values))
departures.lease(2, 0, 5, "worker")
departures.lease(1, 0, 5, "worker")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_lease_that_is_taken_twice_keeps_its_marks(tmp_path: Path) -> None:
    """A journal whose rows were put back while it is open grants the same token again: what has left has left."""
    subprocess.run([sys.executable, "-c", _LEASES_TWICE, str(tmp_path)], check=False)
    with _departures.remains(tmp_path, "a" * 32) as left:
        assert {2: 1, 1: 0} == {one.run: sum(one.marks) for one in left}


async def test_what_is_known_otherwise_stands(world: World) -> None:
    """A notification came before the process died, or the order was accepted."""
    life = await world.live()
    chunk: Chunk = await claimed(life.journal, 2)
    permits = [await permitted(life.journal, chunk, place) for place in range(2)]
    await life.journal.record(Outcome(permit=permits[0], signal=Signal.ACCEPTED, transaction_id=transaction_id(0)))
    await life.journal.record(Outcome(permit=permits[1], signal=Signal.UNKNOWN, message="no answer"))
    life.dies()
    assert {0: State.ACCEPTED, 1: State.UNKNOWN} == await world.after()
