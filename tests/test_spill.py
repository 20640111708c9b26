"""Tables that grow out of memory: they hold the same in a file, and say so when it cannot be used."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payments_async import LocalFault, Page, Transaction
from payments_async._session.lists import Reader
from payments_async._values import spill as _spill
from payments_async._values.spill import SpillTable, ids

MANY = 20_000

keys = st.sampled_from(["", "a", "A", "á", "b\0", "b", " b", "'; --"]) | st.text(
    st.characters(codec="utf-8"), max_size=3
)
values = st.tuples(
    st.sampled_from(["one", "two", "three"]), st.floats(allow_nan=False), st.none() | keys, st.integers(0, 2**40)
)
steps = st.lists(st.dictionaries(keys, values, max_size=4) | st.lists(keys, max_size=4), max_size=8)


def table() -> SpillTable[Any]:
    """A table of values that are tuples of four."""
    return SpillTable(lambda value: value, lambda _, columns: tuple(columns), 4)


@given(steps, st.sets(st.sampled_from(["one", "two", "three", "four"])))
def test_a_table_holds_the_same_in_a_file(steps: list[Any], first: set[str]) -> None:
    """Whatever is put there and looked up, in whichever sequence: the file answers as a dictionary does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_spill, "MOST", 2)
        spilled, expected = table(), dict[str, Any]()
        for step in steps:
            if isinstance(step, dict):
                expected |= step
                spilled.put(step)
            else:
                assert {key: expected[key] for key in step if key in expected} == spilled.find(step)
            assert len(expected) == len(spilled)
    assert list(expected.items()) == [row for page in spilled.pages() for row in page.items()]
    assert [one for one in expected.values() if not first or one[0] in first] == list(spilled.each(*first))
    assert expected == spilled


def test_values_are_put_back_while_all_are_gone_through() -> None:
    """Each is met once, as it was when its page was read."""
    spilled = table()
    spilled.put({str(number): ("one", 0.0, None, number) for number in range(MANY)})
    for page in spilled.pages("one"):
        spilled.put({key: ("two", 1.0, key, number) for key, (_, _, _, number) in page.items()})
    assert [("two", 1.0, str(number), number) for number in range(MANY)] == list(spilled.each())


def test_a_long_table_takes_no_name_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kills the process, nothing of it stays; nor does it stay open once nobody holds the table."""
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    before = open_files()
    spilled = ids()
    spilled.put(dict.fromkeys(f"{number:0200}" for number in range(MANY)))
    assert [] == list(tmp_path.iterdir())
    assert before != open_files()
    del spilled
    gc.collect()
    assert before == open_files()


def open_files() -> set[str]:
    """What this process has open."""
    links = Path("/proc/self/fd")
    if not links.exists():
        pytest.skip("this system does not show what is open")
    return {str(link.readlink()) for link in links.iterdir() if link.is_symlink()}


@pytest.fixture
def small_disk() -> Iterator[None]:
    """A system on which no file grows beyond a megabyte or two."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**21, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_is_full() -> None:
    """Nothing more is said of the table, but for how many rows it had; the error says where room is missing."""
    spilled = ids()
    with pytest.raises(LocalFault, match=r"cannot be used: .* -> free some room where temporary files are kept"):
        fill(spilled)
    count = len(spilled)
    assert 500 <= count < MANY
    for use in (lambda: spilled.find(["1"]), lambda: spilled.put({"1": None}), lambda: list(spilled.pages())):
        with pytest.raises(LocalFault, match="cannot be used"):
            use()
    assert count == len(spilled)


@pytest.mark.usefixtures("small_disk")
async def test_a_list_that_has_no_room_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not read to its end: absence from it proves nothing, and the disk is named as the reason."""
    monkeypatch.setattr(_spill, "MOST", 100)
    pages: list[int] = []

    async def page(*, number: int, size: int, **_: Any) -> Page[Transaction]:
        pages.append(number)
        rows = range((number - 1) * size, number * size)
        return Page(
            collection=tuple(Transaction(transaction_id=f"{one:01000}") for one in rows), total_count=100 * size
        )

    async def sleep(_: float) -> None:
        raise AssertionError("it is read once")

    reading = Reader(page, clock=lambda: 0.0, sleep=sleep).read(None, None)
    seen = [row async for rows in reading.pages() for row in rows]
    assert "it could not be read: a temporary file for a long list cannot be used" in str(reading.problem)
    assert (LocalFault, True) == (type(reading.failure), len(seen) == reading.rows > 0)
    assert list(range(1, len(pages) + 1)) == pages
    assert len(pages) < 100


def fill(spilled: SpillTable[None]) -> None:
    """Ten megabytes, a page at a time."""
    for number in range(MANY // 500):
        spilled.put({f"{number}-{one:0500}": None for one in range(500)})


def test_a_process_that_was_forked_off() -> None:
    """Does not touch the file, which goes on being the other's."""
    spilled = ids()
    spilled.put(dict.fromkeys(map(str, range(MANY))))
    pid = os.fork()
    if not pid:
        code = 1
        try:
            spilled.put({"child": None})
        except LocalFault:
            code = 0
        finally:
            os._exit(code)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert (MANY, "child" in spilled, "7" in spilled) == (len(list(spilled)), False, True)
