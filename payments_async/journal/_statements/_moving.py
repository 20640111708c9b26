"""How a journal leaves one place for another: what is sealed, what goes along, and what is compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from payments_async.journal._faults import JournalCorrupt, JournalMoved, StillWorked
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit

DOUBTED = "doubted"  # a fact: what was sent from here may be forgotten, whatever else says that nothing is
MOVED = "the journal was moved to "  # how every word on it begins
PLACING = "move_placing"  # a fact: somebody has begun to let it count there
_PAGE = 1000  # rows at a time
# what is known of this very place, and of no other
_OWN_FACTS = frozenset(
    {"epoch", "birth", "written", "version", "oldest", "moved_to", "moved_at", "move", "is_moved", "move_tries"}
    | {PLACING, DOUBTED}
    | {"came_by", "arrived", "filed"}
)
_STAYS = frozenset({"meta", "lease", "holder", "watch"})  # who is here now, and what is written by hand
_REMEMBER = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
# who has something in hand, and until when
_IN_HAND = (
    ("sends chunk {1} of a batch", "SELECT owner, number FROM chunk WHERE owner IS NOT NULL LIMIT 1"),
    ("loads batch {1}", "SELECT owner, key FROM lease WHERE kind = 'load' AND until > ? LIMIT 1"),
    (
        "{1}",
        """SELECT owner, CASE queue WHEN 'inbox' THEN 'handles notifications' ELSE 'tells handlers of changes' END
        FROM delivery WHERE owner <> '' AND due_at > ? LIMIT 1""",
    ),
    ("has the duty of {1}", "SELECT owner, key FROM lease WHERE kind = 'duty' AND until > ? LIMIT 1"),
)
_encode = msgspec.msgpack.Encoder().encode


class TableShape(NamedTuple):
    """The columns of a table, and those that a row is known by."""

    columns: tuple[str, ...]
    key: tuple[str, ...]


class Moved(NamedTuple):
    """Where a journal has gone.

    Attributes:
        move: What tells this move from any other.
        to: The place, in words.
        at: Unix seconds.
        is_done: The journal is whole there, as far as is known here.
    """

    move: str
    to: str
    at: float
    is_done: bool


class CopiedTable(NamedTuple):
    """A table that was copied: its rows, and the digest of all that is in them, the same at both ends."""

    rows: int
    digest: str


def tables_in(found: Iterable[Sequence[Any]]) -> dict[str, TableShape]:
    """Tables of rows that tell of each column its table, its name and its place in the key, or -1."""
    tables: dict[str, list[tuple[str, int]]] = {}
    for table, column, place in found:
        tables.setdefault(table, []).append((column, place))
    return {
        table: TableShape(
            tuple(column for column, _ in columns),
            tuple(column for column, place in sorted(columns, key=lambda one: one[1]) if place >= 0),
        )
        for table, columns in tables.items()
    }


# sealing


def moved_of(facts: Mapping[str, str]) -> Moved | None:
    """Where a journal has gone that says this of itself, if it has."""
    if "move" not in facts:
        return None
    return Moved(facts["move"], facts["moved_to"], float(facts["moved_at"]), facts.get("is_moved") == "yes")


def facts_of(connection: Connection | Commit) -> dict[str, str]:
    """What a journal says of itself."""
    return dict(connection.execute("SELECT key, value FROM meta").fetchall())


def check_here(facts: Mapping[str, str], named: str) -> None:
    """Raise ``JournalMoved`` where the journal has gone to another place, or is on its way."""
    moved = moved_of(facts)
    if moved is None:
        return
    words = f"{named}: {_words(moved)}"
    if not moved.is_done:
        words += ", and whether all of it has arrived is not known here: the same `journal copy` again makes sure of it"
    raise JournalMoved(words)


def retire(commit: Commit, move: str, to: str) -> None:
    """Seal a journal, in which nobody has anything in hand: nothing is ever written to it again.

    Raises:
        StillWorked: Somebody has.
    """
    for words, sql in _IN_HAND:
        found = commit.execute(sql, (commit.now,) * sql.count("?")).fetchone()
        if found is not None:
            raise StillWorked(f"{found[0] or 'somebody'} {words.format(*found)}")
    moved = Moved(move, to, commit.now, is_done=False)
    about = {"move": move, "moved_to": to, "moved_at": repr(commit.now), "is_moved": "no"}
    commit.connection.executemany(_REMEMBER, about.items())
    commit.database.make_read_only(commit.connection, _words(moved))
    commit.is_milestone = True
    commit.is_counted = True  # a backup of just before, put back into the same file, would count as many


def note_try(connection: Connection) -> None:
    """Somebody begins to copy a journal that is sealed."""
    connection.executemany(_REMEMBER, [("move_tries", str(tries_of(facts_of(connection)) + 1))])


def tries_of(facts: Mapping[str, str]) -> int:
    """How many have begun to copy it since it was sealed."""
    return int(facts.get("move_tries", "0"))


def note_arrived(connection: Connection) -> None:
    """The journal is whole in its new place."""
    connection.executemany(_REMEMBER, [("is_moved", "yes")])


def forget_move(connection: Connection) -> None:
    """Nothing came of it: the journal has not gone anywhere."""
    connection.execute(
        "DELETE FROM meta WHERE key IN ('move', 'moved_to', 'moved_at', 'is_moved', 'move_tries', 'move_placing')"
    )


def _words(moved: Moved) -> str:
    at = datetime.fromtimestamp(moved.at).astimezone()
    return f"{MOVED}{moved.to} on {at:%Y-%m-%d at %H:%M:%S %z}"


# copying


def facts_for(facts: Mapping[str, str]) -> dict[str, str]:
    """What the journal says of itself in its new place.

    Where it may have been there before, by somebody who did not live to say so, and is not any more, it may have sent
    something from there that nobody remembers.
    """
    moved = moved_of(facts)
    assert moved is not None
    came = {"came_by": moved.move} | ({DOUBTED: "yes"} if PLACING in facts else {})
    return {key: value for key, value in facts.items() if key not in _OWN_FACTS} | came


def write_facts(connection: Connection, facts: Mapping[str, str]) -> None:
    """Let a journal say this of itself."""
    connection.executemany(_REMEMBER, facts.items())


def tables_to_copy(
    source: Mapping[str, TableShape], destination: Mapping[str, TableShape], connection: Connection
) -> list[str]:
    """The tables whose rows go along.

    Raises:
        StillWorked: There are rows that the other database has no table for.
    """
    for table in source:
        if table in destination or table in _STAYS:
            continue
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - a name
        if count:
            raise StillWorked(_ONLY_THERE.get(table, "{0} rows of {1} have no place in a file").format(count, table))
    for table, (columns, _) in source.items():
        if table not in _STAYS and table in destination and set(columns) != set(destination[table].columns):
            raise JournalCorrupt(f"the table {table} has other columns in the other place")
    return [table for table in source if table in destination and table not in _STAYS]


_ONLY_THERE = {
    "tray": "{0} orders of applications' own transactions are still to be taken: work the outbox for a moment, or drop "
    "those that cannot be taken (`outbox status`)",
    "told": "{0} changes were handled within applications' own transactions, which is not noted down yet: work the "
    "outbox for a moment",
}


def copy_table(
    source: Connection,
    destination: Connection,
    name: str,
    table: TableShape,
    *,
    storable: Callable[[Sequence[Any]], Sequence[Any]],
    tell: Callable[[int], object],
) -> CopiedTable:
    """Copy the rows of a table, and read them again where they are then.

    Args:
        storable: A row as the other database can hold it.
        tell: Called with how many were written.

    Raises:
        JournalCorrupt: They are not the same there.
    """
    marks = ", ".join("?" * len(table.columns))
    insert = f"INSERT INTO {name} ({', '.join(table.columns)}) VALUES ({marks})"  # noqa: S608 - names and marks
    rows, digest = 0, hashlib.sha256()
    for page in _pages(source, name, table):
        some = [storable(row) for row in page]
        destination.executemany(insert, some)
        for row in some:
            digest.update(_encode(row))
        rows += len(some)
        tell(len(some))
    again, count = hashlib.sha256(), 0
    for page in _pages(destination, name, table):
        for row in page:
            again.update(_encode(list(row)))
        count += len(page)
    if (count, again.digest()) != (rows, digest.digest()):
        raise JournalCorrupt(
            f"the table {name} has {rows:,} rows, and what was read again of {count:,} is not the same"
        )
    return CopiedTable(rows, digest.hexdigest())


def _pages(connection: Connection, name: str, table: TableShape) -> Iterator[list[Sequence[Any]]]:
    """All rows in the sequence of what they are known by, some at a time."""
    key = ", ".join(table.key)
    places = [table.columns.index(column) for column in table.key]
    begin = f"SELECT {', '.join(table.columns)} FROM {name}"  # noqa: S608 - names
    end = f"ORDER BY {key} LIMIT {_PAGE}"
    page = connection.execute(f"{begin} {end}").fetchall()
    while page:
        yield page
        if len(page) < _PAGE:
            return
        last = [page[-1][place] for place in places]
        page = connection.execute(f"{begin} WHERE ({key}) > ({', '.join('?' * len(last))}) {end}", last).fetchall()
