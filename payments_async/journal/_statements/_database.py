"""What the statements need of a database, and the words that no two databases spell alike.

The statements are written once, in the SQL that SQLite and PostgreSQL share:

* Values are bound to ``?``; a literal never holds one, nor a ``%``. Truth is 0 or 1 in a BIGINT: what is bound may be
  a ``bool``, and a column is compared (``failed <> 0``). A text may be a member of an enumeration.
* ``CASE`` for ``iif`` and for the greater or smaller of two; ``ON CONFLICT``; ``RETURNING``; ``FILTER``. What is
  selected from in brackets has a name, and a column that ``excluded`` has too has its table's before it.
* Where nothing else tells the type of what is bound, ``CAST(? AS BIGINT)``, ``DOUBLE PRECISION`` or ``TEXT`` does.
* The words below, which a connection of another database than SQLite puts its own for, once for each text.
* The numbers of events in ``ipn_event`` are dense within a commit: one that is not stored takes none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from payments_async.journal._faults import JournalError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
# The words, as SQLite has them. A partial index is used only where its literal stands in the condition.
NO_TRANSACTION = "x'00000000000000000000000000000000'"  # 16 bytes, which keep the place of a transaction id
SNAPSHOT = "BEGIN DEFERRED"  # all that is read until its end is of one moment
AMONG_LATER = "INDEXED BY chunk_later"  # PostgreSQL finds that index by itself
ADDED = "add_amounts(progress.total, excluded.total)"  # exactly; a function of ours where SQLite has none
AS_BYTES = "AS BLOB"  # in a CAST of a text: its bytes in UTF-8


def given(kinds: Sequence[str]) -> str:
    """Rows that a statement is given as an array for each column, where the database takes arrays.

    Args:
        kinds: The types of the columns, which are called ``given.column1`` and so on, as those of ``VALUES`` are.
    """
    arrays = ", ".join(f"CAST(? AS {kind}[])" for kind in kinds)
    return f"unnest({arrays}) AS given ({', '.join(f'column{place}' for place in range(1, len(kinds) + 1))})"


class Rows(Protocol):
    """What a statement answers."""

    @property
    def rowcount(self) -> int:
        """How many rows it wrote."""

    def fetchone(self) -> Any:
        """The next row; ``None`` when there is none."""

    def fetchall(self) -> list[Any]:
        """All rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection; each statement outside of a transaction is one of its own."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun, and neither end of it was seen; it may have failed."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """One statement."""

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Rows:
        """The same statement for many rows."""

    def rollback(self) -> None:
        """End the transaction, if there is one; nothing of it was done."""

    def close(self) -> None:
        """Close it."""


class Unforeseen(BaseException):
    """A statement has no usual answer, or not this time: the commit is made statement by statement.

    It is not an ``Exception``: whoever catches the failure of one operation lets it pass.
    """


class Promised(ABC, Generic[T_co]):
    """What an operation tells once its commit is made."""

    @abstractmethod
    def __call__(self) -> T_co:
        """Tell it."""


class Gathered(Connection, Protocol):
    """Statements that leave for the database together at last, each answered at once: as it usually is, or as now.

    What is asked of a connection is asked now; where the answer of anything else is asked for, it is ``Unforeseen``.
    """

    def gather(self, sql: str, parameters: Sequence[Any], answer: Sequence[Any] | int | None, /) -> None:
        """Let a statement go along. Where it is answered otherwise, nothing of the commit is done.

        Args:
            answer: The one row that it finds, or ``()`` for none; or how many rows it writes; ``None`` for any.
        """

    def look(self, sql: str, parameters: Sequence[Any], /) -> list[Any]:
        """The rows of a question, as it is answered now; it goes along with them. Raises ``Unforeseen``."""

    def look_ahead(self, questions: Sequence[tuple[str, Sequence[Any]]], /) -> None:
        """Ask in one exchange what will be asked in a moment. Raises ``Unforeseen``."""

    def tell(self, sql: str, parameters: Sequence[Any], read: Callable[[list[Any]], T], /) -> Promised[T]:
        """Let a statement go along whose rows are told once the commit is made."""


class Database(Protocol):
    """What the statements ask of the database itself."""

    @property
    def Error(self) -> type[Exception]:  # noqa: N802 - a class
        """Whatever its driver raises."""

    @property
    def takes_arrays(self) -> bool:
        """Whether a list can be bound. Then a statement for many rows has one plan, by which each is looked up."""

    def begin(self, connection: Connection, /) -> float:
        """Begin to write, when nobody else does; Unix seconds by the database's clock since then."""

    def commit(self, connection: Connection, /) -> None:
        """Commit what was written since; raises where none of it was kept, also if no statement failed."""

    def is_of_the_disk(self, error: Exception, /) -> bool:
        """Whether the database is in trouble, and not the one operation that met it."""

    def is_no_text(self, error: Exception, /) -> bool:
        """Whether what is stored as a text is none, so that its row cannot be read."""

    def translated(self, error: Exception, /) -> JournalError:
        """The error of the journal that says the same. Its text holds no value of a row."""

    def begin_changes(self, connection: Connection, /) -> None:
        """Have changes of orders of outboxes written down from now on, by whatever statement they come."""

    def make_read_only(self, connection: Connection, words: str, /) -> None:
        """Have every statement that would write fail with these words from the end of this transaction on."""

    def make_writable(self, connection: Connection, /) -> None:
        """Take that back."""
