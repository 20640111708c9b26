"""Large files and files that change: memory stays, the loop goes on, and no wrong row becomes an order."""

import asyncio
import gc
import os
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from bulk.files import csv_text, row, write_csv

from payments_async.bulk import BatchChanged, read_batch
from payments_async.bulk._file._batch import Repeats, read_in_threads
from payments_async.bulk._file._tables import BLOCK, fingerprint


def write_many(path: Path, count: int) -> Path:
    """A file of this many good rows."""
    header, line = csv_text(row(request_id="RUN-@")).splitlines(keepends=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(header)
        file.writelines(line.replace("@", f"{number:08d}") for number in range(count))
    return path


async def peak_of(path: Path) -> int:
    """Bytes at the peak of checking a file and walking through its orders."""
    gc.collect()
    tracemalloc.start()
    try:
        batch = await read_batch(path)
        assert batch.rows == len(batch.orders) == sum(1 for _ in batch.orders)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
async def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Half as many rows again cost 48 bytes more for each, which go to disk beyond 16 MiB; nothing else grows."""
    await peak_of(write_many(tmp_path / "warm.csv", 100))
    small, large = [await peak_of(write_many(tmp_path / f"{n}.csv", n)) for n in (8_000, 12_000)]  # more than one block
    assert large - small < 4_000 * 48 * 1.3 + 100_000  # bytearrays grow by an eighth at a time
    assert large < 16 * 2**20


@pytest.mark.slow
def test_ids_are_compared_from_disk_as_from_memory() -> None:
    """However early they leave the memory, the same repeats are found."""
    ids = [f"R{number % 700}" for number in range(2_000)]
    found = []
    for memory in (48, 4_800, 2**20):
        with Repeats(memory=memory) as repeats:
            for number, request_id in enumerate(ids):
                repeats.add(request_id, number, number, number // 1400, 0)
            found.append(sorted((r.row, r.first_row, r.difference) for r in repeats.found()))
    expected = [(n, n % 700, "amount" if n >= 1400 else "nothing") for n in range(700, 2_000)]
    assert [expected] * 3 == found


async def test_loop_goes_on_while_a_file_is_checked(tmp_path: Path) -> None:
    """Reading happens in another thread, so a task that waits for nothing gets its turns."""
    path = write_many(tmp_path / "b.csv", 3_000)
    reading = asyncio.ensure_future(read_batch(path))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    assert 3_000 == (await reading).rows
    assert turns > 3  # it would be two if reading kept the loop


@pytest.mark.slow(covered=True)
async def test_cancelled_reading_leaves_no_thread_at_work(tmp_path: Path) -> None:
    """The thread stops within a thousand rows, so that it costs a small part of what all rows cost."""
    path = write_many(tmp_path / "b.csv", 10_000)
    begun = time.process_time()
    await read_batch(path)
    whole = time.process_time() - begun
    begun = time.process_time()
    reading = asyncio.ensure_future(read_batch(path))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.get_running_loop().shutdown_default_executor()
    assert time.process_time() - begun < whole / 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")]


@pytest.mark.parametrize("keep_time", [True, False], ids=["time-stamp-kept", "time-stamp-new"])
@pytest.mark.parametrize("change", ["replace", "append", "shorten"])
async def test_changed_file_gives_no_order(tmp_path: Path, change: str, keep_time: bool) -> None:
    """One digit of one amount is enough, even where size and time stamp are as they were."""
    path = write_csv(tmp_path / "b.csv", row(), row(request_id="2"))
    batch = await read_batch(path)
    text, about = path.read_bytes(), path.stat()
    changed = {"replace": text.replace(b"150000", b"950000"), "append": text + b"\n", "shorten": text[:-2]}[change]
    path.write_bytes(changed)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns + (0 if keep_time else 10**9)))
    with pytest.raises(BatchChanged, match="read_batch"):
        next(iter(batch.orders))


async def test_copied_file_with_another_time_stamp_is_still_the_same(tmp_path: Path) -> None:
    """What counts is the content."""
    path = write_csv(tmp_path / "b.csv", row())
    batch = await read_batch(path)
    os.utime(path, ns=(0, 0))
    assert 1 == len(list(batch.orders))


@pytest.mark.slow(covered=True)
async def test_file_that_changes_under_the_reader_gives_no_wrong_order(tmp_path: Path) -> None:
    """Orders before the change are right, and the first block that differs raises in place of orders."""
    path = write_many(tmp_path / "b.csv", 2 * BLOCK // 120)
    batch = await read_batch(path)
    orders = iter(batch.orders)
    first = next(orders)
    with path.open("r+b") as file:
        file.seek(-200, os.SEEK_END)
        file.write(b"9")
    seen = [first]
    with pytest.raises(BatchChanged):
        seen.extend(orders)
    assert [f"RUN-{number:08d}" for number in range(len(seen))] == [order.request_id for order in seen]
    assert {row()["amount"]} == {str(order.amount) for order in seen}
    assert len(seen) < len(batch.orders)


async def test_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    """It names the file in an approval, and anybody can compute it."""
    path = tmp_path / "b.csv"
    path.write_bytes(b"")
    assert "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" == (await read_batch(path)).digest


def test_what_cannot_be_read_twice_is_refused(tmp_path: Path) -> None:
    """A device or a pipe is no batch file."""
    with pytest.raises(ValueError, match="regular file"):
        fingerprint(Path(os.devnull))


class Slow:
    """A file on a slow disk: from the second row on they come only once somebody lets them."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.is_let_go = threading.Event()
        self.readers: list[int] = []

    def __iter__(self) -> Iterator[int]:
        yield 1
        self.readers.append(threading.get_ident())
        self.is_reached.set()
        assert self.is_let_go.wait(60), "nothing else went on meanwhile"
        yield 2

    async def walk(self) -> list[int]:
        """All rows, read in threads."""
        return [number async for some in read_in_threads(self) for number in some]

    async def reached(self) -> None:
        """Wait until the second row is asked for."""
        assert await asyncio.to_thread(self.is_reached.wait, 60)


async def test_the_loop_goes_on_while_rows_are_read() -> None:
    """What would be read on the loop could never be let go by a task of it."""
    slow = Slow()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        walking = group.create_task(slow.walk())
        await slow.reached()
        slow.is_let_go.set()
    assert [1, 2] == walking.result()
    assert threading.get_ident() not in slow.readers


async def test_a_cancelled_walk_waits_for_the_thread_that_reads() -> None:
    """However often it is cancelled: nobody takes up the rows while they are still read, and no thread is left."""
    slow = Slow()
    walking = asyncio.ensure_future(slow.walk())
    async with asyncio.timeout(60):
        await slow.reached()
        for _ in range(5):
            walking.cancel()
            await asyncio.sleep(0)
        assert not walking.done()
        slow.is_let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await walking
    assert 1 == len(slow.readers)


@pytest.mark.slow(covered=True)
async def test_orders_of_a_file_come_the_same_way_awaited(tmp_path: Path) -> None:
    """The run of a batch awaits them, so that reading its file stops nobody else."""
    rows = (row(request_id=f"RUN-{number}") for number in range(1200))
    orders = (await read_batch(write_csv(tmp_path / "batch.csv", *rows))).orders
    assert list(orders) == [order async for order in orders]
    assert 1200 == len(list(orders))
