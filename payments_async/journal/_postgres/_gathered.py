"""A whole commit in one exchange with the server: every statement with the answer that it is usually given.

The work of a commit is done as ever, by the same statements. But none of them is done at first: a question is answered
as it usually is, or as the server answers it now, before the commit begins; and it goes along with that answer. Then
all of them leave together, from ``BEGIN`` to ``COMMIT``, and the server compares each with its answer. Where one is
answered otherwise, all of it is undone, and the work is done anew: first with every question asked, and at last
statement by statement. So what is committed is what would have been committed that way.

Machines wait for each other no longer than the server itself takes: no journey goes by while the lock is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
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
_KEPT = 1000  # statements
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
            sql = _that_writes(sql)
            values.append(answer)
        elif answer is not None and not answer:
            sql = _that_finds_none(sql)
        elif answer:
            sql = _that_finds(sql, tuple(map(type, answer)))
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
    types = tuple([_TYPES.get(type(value), _INFERRED) for value in parameters])
    sent = [_SENT.get(type(value), _sent_as_its_kind)(value) for value in parameters]
    return Statement(sql, types, sent, _formats(types))


@lru_cache(_KEPT)
def _formats(types: tuple[int, ...]) -> Sequence[int]:
    return [int(kind == _BYTES) for kind in types]


def _text(value: str) -> bytes:
    """A text as it leaves. Raises ``Unforeseen`` for what cannot."""
    try:
        sent = str.encode(value)
    except UnicodeEncodeError as error:  # a half of a surrogate pair
        raise Unforeseen from error
    if b"\0" in sent:
        raise Unforeseen
    return sent


def _quoted(value: str) -> bytes:
    """A text of an array."""
    return b'"%b"' % _text(value).replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _sent_as_its_kind(value: Any) -> bytes | None:
    """A value of a class that is derived from one of these, such as a member of an enumeration."""
    return _SENT[_kind_of(value)](value)


def _element_as_its_kind(value: Any) -> bytes:
    return _ELEMENTS[_kind_of(value)](value)


def _kind_of(value: Any) -> type:
    return next(kind for kind in (str, int, float, bytes) if isinstance(value, kind))


# How values leave: bytes as they are, everything else as a text; and how they are written in an array.
_SENT: dict[type, Callable[[Any], bytes | None]] = {
    type(None): lambda _: None,
    bytes: lambda value: value,
    bytearray: bytes,
    int: b"%d".__mod__,
    bool: b"%d".__mod__,
    float: lambda value: repr(value).encode(),
    str: _text,
    list: lambda values: b"{%b}" % b",".join([_ELEMENTS.get(type(one), _element_as_its_kind)(one) for one in values]),
}
_ELEMENTS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"NULL",
    bytes: lambda value: b'"\\\\x%b"' % value.hex().encode(),
    bytearray: lambda value: b'"\\\\x%b"' % value.hex().encode(),
    int: b"%d".__mod__,
    bool: b"%d".__mod__,
    float: lambda value: repr(value).encode(),
    str: _quoted,
}


# Few different ones, each made once: to make such a text, and to find what was prepared by it, takes long.


@lru_cache(_KEPT)
def _that_writes(sql: str) -> str:
    """A statement that has to write so many rows."""
    return f"WITH answer AS ({sql} RETURNING 1) SELECT 1 / CAST((SELECT count(*) FROM answer) = ? AS INT)"  # noqa: S608


@lru_cache(_KEPT)
def _that_finds_none(sql: str) -> str:
    """A statement that has to find nothing."""
    return f"WITH answer AS ({sql}) SELECT 1 / CAST(NOT EXISTS (SELECT 1 FROM answer) AS INT)"  # noqa: S608


@lru_cache(_KEPT)
def _that_finds(sql: str, kinds: tuple[type, ...]) -> str:
    """A statement that has to find one row, of values of these kinds."""
    names = [f"column{place}" for place in range(1, len(kinds) + 1)]
    alike = " AND ".join(map(_compared, names, kinds))
    return f"""WITH answer ({", ".join(names)}) AS ({sql}) SELECT 1 / CAST(
        (SELECT count(*) = 1 AND coalesce(bool_and({alike}), FALSE) FROM answer) AS INT)"""  # noqa: S608


def _compared(name: str, kind: type) -> str:
    """The condition that a column of an answer is as it usually is."""
    if kind is type(None):
        return f"{name} IS NULL"
    mark = f"CAST(? AS {_NAMES[_TYPES.get(kind, _INFERRED)]})"
    return f"{name} = ({mark} <> 0)" if issubclass(kind, bool) else f"{name} = {mark}"
