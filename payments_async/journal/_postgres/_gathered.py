"""A whole commit in one exchange with the server: every statement with the answer that it is usually given.

The work of a commit is done as ever, by the same statements. But none of them is done at first: a question is answered
as it usually is, or as the server answers it now, before the commit begins; and it goes along with that answer. Then
all of them leave together, from ``BEGIN`` to ``COMMIT``, and the server compares each with its answer. Where one is
answered otherwise, all of it is undone, and the work is done anew: first with every question asked, and at last
statement by statement. So what is committed is what would have been committed that way.

Machines wait for each other no longer than the server itself takes: no journey goes by while the lock is held.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq.abc import PGresult

from payments_async.journal._postgres._connection import PgConnection, Statement
from payments_async.journal._statements._database import Promised, Rows, Unforeseen

T = TypeVar("T")

_INT, _FLOAT, _BYTES, _INFERRED = 20, 701, 17, 0  # types, as the server numbers them
_TYPES: dict[type, int] = {int: _INT, bool: _INT, float: _FLOAT, bytes: _BYTES, bytearray: _BYTES}
_NAMES = {_INT: "BIGINT", _FLOAT: "DOUBLE PRECISION", _BYTES: "BYTEA", _INFERRED: "TEXT"}
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair
_ASKS, _WRITES = "SELECT ", ("INSERT ", "UPDATE ", "DELETE ")
# All rows of an answer in one text, by which it is known again.
_DIGEST = "(SELECT encode(sha256(convert_to(string_agg(CAST(answer AS TEXT), ','), 'UTF8')), 'hex') FROM answer)"
_AHEAD = f"WITH answer AS ({{}}) SELECT *, {_DIGEST} FROM answer"  # noqa: S608 - no value in it
_AS_BEFORE = f"WITH answer AS ({{}}) SELECT 1 / CAST(coalesce({_DIGEST} = ?, FALSE) AS INT)"
Question = tuple[str, tuple[Any, ...]]


class GatheredCommit:
    """The statements of one commit, as they are gathered.

    Attributes:
        by: The connection by which they leave.
        in_transaction: As of a connection: what fails has undone nothing yet.
    """

    in_transaction = True

    def __init__(self, by: PgConnection) -> None:
        self.by = by
        self._statements: list[Statement] = []
        self._later: list[tuple[int, PromisedRows[Any]]] = []  # what is told in the end, and by which statement
        self._answers: dict[Question, tuple[list[Any], str | None]] = {}  # of the server, and their digests
        self._asked: dict[Question, int] = {}  # and how much had been written when they were asked
        self._written = 0

    def gather(self, sql: str, parameters: Sequence[Any], answer: Sequence[Any] | int | None, /) -> None:
        """Let a statement go along with its answer."""
        values = list(parameters)
        self._written += sql.startswith(_WRITES)
        if isinstance(answer, int):
            sql = f"WITH answer AS ({sql} RETURNING 1) SELECT 1 / CAST((SELECT count(*) FROM answer) = ? AS INT)"  # noqa: S608
            values.append(answer)
        elif answer is not None and not answer:
            sql = f"WITH answer AS ({sql}) SELECT 1 / CAST(NOT EXISTS (SELECT 1 FROM answer) AS INT)"  # noqa: S608
        elif answer:
            names = [f"column{place}" for place in range(1, len(answer) + 1)]
            alike = " AND ".join(map(_compared, names, answer))
            sql = f"""WITH answer ({", ".join(names)}) AS ({sql}) SELECT 1 / CAST(
                (SELECT count(*) = 1 AND coalesce(bool_and({alike}), FALSE) FROM answer) AS INT)"""  # noqa: S608
            values += [value for value in answer if value is not None]
        self._statements.append(statement(sql, values))

    def look(self, sql: str, parameters: Sequence[Any], /) -> list[Any]:
        """The rows of a question, as the server answers it now; it goes along with them."""
        self.look_ahead([(sql, parameters)])
        rows, digest = self._answers[sql, tuple(parameters)]
        if digest is None:
            self.gather(sql, parameters, ())
        else:
            self.gather(_AS_BEFORE.format(sql), [*parameters, digest], None)
        return rows

    def look_ahead(self, questions: Sequence[tuple[str, Sequence[Any]]], /) -> None:
        """Ask several questions in one exchange, unless they were asked before."""
        asked = dict.fromkeys((sql, tuple(values)) for sql, values in questions).keys() - self._answers.keys()
        if not all(sql.startswith(_ASKS) for sql, _ in asked):
            raise Unforeseen
        if not asked:
            return
        before = [statement(*one) for one in self.by.entering]
        statements = [statement(_AHEAD.format(sql), values) for sql, values in asked]
        try:
            found = self.by.apart([*before, *statements])[len(before) :]
        except psycopg.Error as error:
            raise Unforeseen from error
        for question, result in zip(asked, found, strict=True):
            rows = rows_of(self.by, result)
            self._answers[question] = [row[:-1] for row in rows], rows[0][-1] if rows else None

    def tell(self, sql: str, parameters: Sequence[Any], read: Callable[[list[Any]], T], /) -> PromisedRows[T]:
        """Let a statement go along whose rows are told in the end; it fails by itself where it has to."""
        answer = PromisedRows(read)
        self._later.append((len(self._statements), answer))
        self.gather(sql, parameters, None)
        return answer

    def perform(self, begin: str, lock: str, check: Question, *, end: Question) -> float:
        """Do all of it; tells the first value of the check.

        Args:
            begin: Begins the transaction; what lets it see its namespace follows.
            lock: Keeps all others from writing.
            check: Fails where the session, its namespace or its clock is not as it usually is.
            end: Tells others, and fails where the namespace is another one meanwhile.

        Raises:
            psycopg.Error: Of the server, which has done nothing then; or of the connection, and who knows.
            JournalUnavailable: The server has undone it.
        """
        before = [(begin, ()), *self.by.entering, (lock, ()), check]
        first = [statement(*one) for one in before]
        results = self.by.together([*first, *self._statements, statement(*end)], statement("COMMIT"))
        self.by.entered()
        moment = results[len(first) - 1].get_value(0, 0)
        assert moment is not None
        for place, answer in self._later:
            answer.rows = rows_of(self.by, results[len(first) + place])
        return float(moment)

    # as of any connection

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        """Ask a question now; let anything else go along. What the server would answer to that is not foreseen."""
        if sql.startswith(_WRITES):
            self.gather(sql, parameters, None)
            return _UNTOLD
        question = (sql, tuple(parameters))
        if not sql.startswith(_ASKS) or self._asked.setdefault(question, self._written) != self._written:
            raise Unforeseen  # what was written since may have changed the answer, and nobody would go on by it
        return _Found(self.look(sql, parameters))

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Rows:
        """Let the same statement go along for many rows."""
        for values in parameters:
            self.gather(sql, values, None)
        return _UNTOLD

    def rollback(self) -> None:
        """Nothing was done yet."""

    def close(self) -> None:
        """There is nothing to be closed."""


class PromisedRows(Promised[T]):
    """What is told of a statement's rows, once they are there.

    Args:
        read: Tells it.
    """

    def __init__(self, read: Callable[[list[Any]], T]) -> None:
        self._read = read
        self.rows: list[Any] = []

    def __call__(self) -> T:
        """Tell it."""
        return self._read(self.rows)


class _Found:
    """Rows that a question was answered with."""

    rowcount = -1

    def __init__(self, rows: list[Any]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> Any:
        """The next row; ``None`` when there is none."""
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class _Untold:
    """What a statement that goes along will be answered with: nobody knows."""

    @property
    def rowcount(self) -> NoReturn:
        """Not known yet."""
        raise Unforeseen

    def fetchone(self) -> NoReturn:
        """As ``rowcount``."""
        raise Unforeseen

    def fetchall(self) -> NoReturn:
        """As ``rowcount``."""
        raise Unforeseen

    def __iter__(self) -> NoReturn:
        raise Unforeseen


_UNTOLD = _Untold()


def rows_of(connection: PgConnection, result: PGresult) -> list[Any]:
    """The rows of a result, as a cursor has them."""
    loads = Transformer(connection.raw)
    loads.set_pgresult(result)
    return loads.load_rows(0, result.ntuples, tuple)


def statement(sql: str, parameters: Sequence[Any] = ()) -> Statement:
    """A statement with its values as they leave."""
    types = tuple(_TYPES.get(type(value), _INFERRED) for value in parameters)
    return Statement(sql, types, list(map(_sent, parameters)), [int(kind == _BYTES) for kind in types])


def _sent(value: Any) -> bytes | None:
    """A value as it leaves: bytes as they are, everything else as a text. Raises ``Unforeseen`` for what cannot."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, int):
        return b"%d" % value  # a truth too
    if isinstance(value, list):
        return b"{%b}" % b",".join(map(_element, value))
    text = repr(value) if isinstance(value, float) else str.__str__(value)
    if "\0" in text or _HALF.search(text):
        raise Unforeseen
    return text.encode()


def _element(value: Any) -> bytes:
    """A value of an array, as the server reads it."""
    if value is None:
        return b"NULL"
    if isinstance(value, bytes | bytearray):
        return b'"\\\\x%b"' % value.hex().encode()
    sent = _sent(value)
    assert sent is not None
    return b'"%b"' % sent.replace(b"\\", b"\\\\").replace(b'"', b'\\"') if isinstance(value, str) else sent


def _compared(name: str, value: object) -> str:
    """The condition that a column of an answer is as it usually is."""
    if value is None:
        return f"{name} IS NULL"
    mark = f"CAST(? AS {_NAMES[_TYPES.get(type(value), _INFERRED)]})"
    return f"{name} = ({mark} <> 0)" if isinstance(value, bool) else f"{name} = {mark}"
