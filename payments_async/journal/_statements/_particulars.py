"""What a batch file says of its orders beside them, and orders found by the person they pay."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from payments_async._values.frozen import frozen
from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import person_in
from payments_async.journal._records import Entry, Particulars
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import (
    COLUMNS,
    IS_HERE,
    Commit,
    PageReader,
    bounds_of,
    readable,
    row_here,
)

_PAGE = 2000  # orders that are looked through at a time
_BODY = COLUMNS.split(", ").index("body")
_decode = msgspec.json.Decoder(dict[str, str]).decode


def note(commit: Commit, told: Sequence[tuple[str, Particulars]]) -> None:
    """Keep what a file says beside orders that the journal holds; the latest word counts."""
    for request_id, one in told:
        found = commit.execute(
            f"SELECT id FROM outbox WHERE request_key = ? AND {IS_HERE}",  # noqa: S608 - no value in it
            (plain_id(request_id),),
        ).fetchone()
        if found is not None:
            commit.execute(
                """INSERT INTO particulars (order_id, file_row, cells) VALUES (?, ?, ?) ON CONFLICT (order_id)
                DO UPDATE SET file_row = excluded.file_row, cells = excluded.cells""",
                (found[0], one.file_row, msgspec.json.encode(dict(one.cells)).decode()),
            )


def of(connection: Connection, request_id: str) -> Particulars | None:
    """What a file says beside an order, if that was kept."""
    row = row_here(connection, request_id)
    return None if row is None else of_order(connection, row.id)


def of_order(connection: Connection, order_id: int) -> Particulars | None:
    """The same, by the journal's own number of the order."""
    found = connection.execute("SELECT file_row, cells FROM particulars WHERE order_id = ?", (order_id,)).fetchone()
    return None if found is None else Particulars(file_row=found[0], cells=_decode(found[1]))


def found_by(text: str, batch_id: str | None) -> PageReader[Entry]:
    """A reader of pages of orders that pay a person of this name or number, or whose row in the file has this cell."""
    wanted = Wanted.by(text)
    columns = ", ".join(f"o.{name}" for name in COLUMNS.split(", "))
    sql = f"""SELECT {columns}, p.cells FROM outbox o LEFT JOIN particulars p ON p.order_id = o.id
        WHERE o.id > ? AND o.id <= ? AND o.{IS_HERE} ORDER BY o.id LIMIT {_PAGE}"""  # noqa: S608 - no value in it

    def read(connection: Connection, /, *, after: int) -> tuple[Iterable[Entry], int]:
        first, last = bounds_of(connection, batch_id)
        rows = connection.execute(sql, (max(after, first - 1), last)).fetchall()
        hits = [row[:-1] for row in rows if _is_meant(wanted, row[_BODY], _cells(row[-1]))]
        return readable(connection, hits), rows[-1][0] if rows else after

    return read


def _is_meant(wanted: Wanted, body: bytes, cells: Mapping[str, str]) -> bool:
    try:
        name, numbers = person_in(body)
    except ValueError:  # a damaged order is told elsewhere
        return False
    return wanted.is_name(name) or any(map(wanted.is_number, numbers)) or any(map(wanted.is_cell, cells.values()))


def _cells(text: str | None) -> Mapping[str, str]:
    return {} if text is None else _decode(text)


_FEWEST = 6  # digits of a number; a staff number may have fewer, and has to be whole


@frozen(kw_only=True)
class Wanted:
    """What a search asks for.

    Attributes:
        words: Its words, without regard to case and accents.
        whole: All of it, likewise.
        digits: Its digits without leading zeros, where it is a number; else empty.
    """

    words: frozenset[str]
    whole: str
    digits: str

    @classmethod
    def by(cls, text: str) -> Wanted:
        """What is typed so.

        >>> Wanted.by("Zoe Müller").is_name("MULLER, Zoe A."), Wanted.by("0772 100629").is_number("+256772100629")
        (True, True)
        """
        digits = "".join(filter(str.isdecimal, text))
        is_number = len(digits) >= _FEWEST and not any(map(str.isalpha, text))
        words = _words(text)
        return cls(words=frozenset(words), whole="".join(words), digits=digits.lstrip("0") if is_number else "")

    def is_name(self, name: str) -> bool:
        """Whether a name has all of the words."""
        return bool(self.words) and not self.digits and self.words <= frozenset(_words(name))

    def is_number(self, number: str) -> bool:
        """Whether a telephone or account number ends so."""
        return bool(self.digits) and "".join(filter(str.isdecimal, number)).endswith(self.digits)

    def is_cell(self, cell: str) -> bool:
        """Whether a cell says this and nothing else."""
        return bool(self.whole) and self.whole == "".join(_words(cell))


def _words(text: str) -> list[str]:
    """The words of a text, their letters and digits, without case and accents."""
    letters = unicodedata.normalize("NFKD", text).casefold()
    plain = (one if one.isalnum() else "" if unicodedata.combining(one) else " " for one in letters)
    return "".join(plain).split()
