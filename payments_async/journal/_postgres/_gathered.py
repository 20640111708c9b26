"""A whole commit in one exchange with the server: every statement with the answer that it is usually given.

The work of a commit is done as ever, by the same statements. But none of them leaves at first: each is answered at once
as it usually is, and goes along with that answer. Then all of them leave together, from ``BEGIN`` to ``COMMIT``, and
the server compares each with its answer. Where one is answered otherwise, all of it is undone, and the work is done
anew, statement by statement. So what is committed is what would have been committed that way.

Machines wait for each other no longer than the server itself takes: no journey goes by while the lock is held.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

from payments_async.journal._postgres._connection import PgConnection, Statement
from payments_async.journal._statements._database import Unforeseen

_INT, _FLOAT, _BYTES, _INFERRED = 20, 701, 17, 0  # types, as the server numbers them
_TYPES: dict[type, int] = {int: _INT, bool: _INT, float: _FLOAT, bytes: _BYTES, bytearray: _BYTES}
_NAMES = {_INT: "BIGINT", _FLOAT: "DOUBLE PRECISION", _BYTES: "BYTEA", _INFERRED: "TEXT"}
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair


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
        self._told: int | None = None

    def gather(self, sql: str, parameters: Sequence[Any], answer: Sequence[Any] | int | None, /) -> None:
        """Let a statement go along with its answer."""
        values = list(parameters)
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
        self._statements.append(_statement(sql, values))

    def ask(self, sql: str, parameters: Sequence[Any]) -> None:
        """Let a statement go along whose first value is told in the end; it fails by itself where it has to."""
        self._told = len(self._statements)
        self._statements.append(_statement(sql, parameters))

    def perform(
        self, begin: Sequence[str], check: str, values: Sequence[Any], *, notify: str
    ) -> tuple[float, int | None]:
        """Do all of it; tells the first value of the check, and that of what was asked for.

        Args:
            begin: Begin the transaction.
            check: Fails where the session or its clock is not as it usually is.
            notify: Tells others.

        Raises:
            psycopg.Error: Of the server, which has done nothing then; or of the connection, and who knows.
            JournalUnavailable: The server has undone it.
        """
        first = [*map(_statement, begin), _statement(check, values)]
        results = self.by.together([*first, *self._statements, _statement(notify)], _statement("COMMIT"))
        moment = results[len(begin)].get_value(0, 0)
        assert moment is not None
        told = None if self._told is None else results[len(first) + self._told].get_value(0, 0)
        return float(moment), None if told is None else int(told)

    # what is not foreseen

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> NoReturn:
        """No statement has an answer before it was asked."""
        raise Unforeseen

    def executemany(self, sql: str, parameters: object, /) -> NoReturn:
        """As ``execute``."""
        raise Unforeseen

    def rollback(self) -> None:
        """Nothing was done yet."""

    def close(self) -> None:
        """There is nothing to be closed."""


def _statement(sql: str, parameters: Sequence[Any] = ()) -> Statement:
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
