"""A connection to PostgreSQL that takes the statements of the journal as they are written for both databases."""

from __future__ import annotations

import math
import re
import secrets
import selectors
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import psycopg
from psycopg import generators, pq
from psycopg.abc import RV, Buffer, PQGen
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier
from psycopg.types.numeric import Int8Dumper
from psycopg.waiting import Ready, Wait

from payments_async.journal._faults import JournalUnavailable
from payments_async.journal._postgres._faults import translated
from payments_async.journal._statements import _database

# What TCP does not tell by itself within hours: that the other side is gone. A DSN that names them says otherwise.
_LIVELY = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
_SECRETS = frozenset(
    {"password", "sslpassword", "passfile", "oauth_client_secret", "scram_client_key", "scram_server_key"}
)
_HIDDEN = "***"
_KEPT = 500  # prepared statements; there are about two hundred texts
_NAMES = count(1)  # of prepared statements
_OURS = secrets.token_hex(4).encode()  # in them: a pooler may lend a session that knows those of another process
_FORGOTTEN = psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported  # what they are, or their form
_AT_ONCE = 8192  # bytes that leave in one go: libpq keeps no more for later
_FRAME = 80  # bytes of the protocol around one statement
_PLANNED_ANEW = 5.0  # seconds; in one, a batch grows by ten thousand orders, and all plans are made in a hundredth
# PostgreSQL's text holds no NUL. Notifications with one are refused; in the words of an answer or of an error, which
# are there to be read, its picture stands for it.
_NUL, _ITS_PICTURE = "\0", "\N{SYMBOL FOR NULL}"
# Whether the server's queue of notices has room. Once it is full, because some session listens and reads none, each
# commit that notifies fails; the server itself warns from half on.
HAS_ROOM = "pg_catalog.pg_notification_queue_usage() < 0.5"
# See the tables of a namespace, also where the transaction goes on; never in a session that a pooler has lent on.
_ENTER = "SELECT set_config('search_path', ?, FALSE) WHERE ? IN (0, pg_backend_pid())"
NO_TRANSACTION = f"'\\x{'00' * 16}'::bytea"
# what stands in a statement as SQLite has it, and what PostgreSQL has for it
_WORDS = (
    (_database.NO_TRANSACTION, NO_TRANSACTION),
    (_database.ADDED, "CAST(CAST(progress.total AS NUMERIC) + CAST(excluded.total AS NUMERIC) AS TEXT)"),
    (_database.AMONG_LATER, ""),
    (_database.SNAPSHOT, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
)
_CAST_TO_BYTES = re.compile(rf"CAST\((\w+) {_database.AS_BYTES}\)")


class Statement(NamedTuple):
    """One of several that leave together.

    Attributes:
        types: Of its values, as the server numbers them; 0 where it infers them.
        formats: 1 for bytes, 0 for a text.
    """

    sql: str
    types: tuple[int, ...]
    values: Sequence[bytes | None]
    formats: Sequence[int]


class PgConnection:
    """A connection beyond the statements' wishes: ``?`` marks, numbers of one size, texts with a NUL.

    A transaction begins where a statement says so. What was prepared once is not prepared again, though
    planned again now and then: a plan is made by the size that tables have at that moment, and the server would keep it
    until somebody looks at them, which without autovacuum is never.

    Args:
        clock: Seconds, by which plans grow old.

    Attributes:
        raw: The connection of psycopg.
        before_commit: A statement that goes with each commit, in the same exchange.
        namespace: Whose tables it sees, from the next exchange on.
        session: The process of the server that this connection is one's own session with, once that was tried.
        server: What the server said of itself when that was looked at; ``None`` where it was not.
    """

    __slots__ = (
        *("__weakref__", "_clock", "_planned", "_prepared", "_seen"),
        *("before_commit", "namespace", "raw", "server", "session"),
    )

    def __init__(self, raw: psycopg.Connection, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.raw = raw
        self.before_commit = self.namespace = ""
        self.session = 0
        self.server: Hashable = None
        self._seen = ""  # the namespace that the session sees; empty where that is not known
        # Of those that leave together, by namespace: the server plans a statement anew that has entered another one.
        self._prepared: dict[str, dict[tuple[str, tuple[int, ...]], bytes]] = {}
        self._clock = clock
        self._planned = clock()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, one that failed included."""
        return self.raw.pgconn.transaction_status in _OPEN

    @property
    def is_idle(self) -> bool:
        """Whether it is open, and in no transaction."""
        return not self.raw.closed and self.raw.pgconn.transaction_status == pq.TransactionStatus.IDLE

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be asked by it any more, as nobody may have noticed yet."""
        pgconn = self.raw.pgconn
        try:
            while self.raw.closed is False and _has_input(pgconn.socket):
                pgconn.consume_input()
        except psycopg.Error:
            return True
        return self.raw.closed or pgconn.transaction_status == pq.TransactionStatus.UNKNOWN

    def execute(self, sql: str, parameters: Sequence[object] = (), /) -> psycopg.RawCursor[tuple[Any, ...]]:
        """Do one statement."""
        self.plan_anew()
        self._enter()
        cursor = psycopg.RawCursor(self.raw)
        try:
            cursor.execute(_numbered(sql), parameters or None)
        except psycopg.DataError as error:
            if error.sqlstate is not None:
                raise
            cursor.execute(_numbered(sql), without_nul(parameters))  # nothing was sent yet
        return cursor

    def executemany(self, sql: str, parameters: Iterable[Sequence[object]], /) -> psycopg.RawCursor[tuple[Any, ...]]:
        """Do one statement for many rows, without waiting for each."""
        cursor = psycopg.RawCursor(self.raw)
        cursor.executemany(_numbered(sql), map(without_nul, parameters))
        return cursor

    def script(self, sql: str) -> tuple[Any, ...] | None:
        """Do several statements without values in one exchange; tells the row that the last one found, if any."""
        self.plan_anew()
        self._enter()
        cursor = self.raw.cursor()
        cursor.execute(sql, prepare=False)
        while cursor.nextset():
            pass
        return cursor.fetchone() if cursor.description else None

    def enter(self, schema: str, *settings: str) -> None:
        """See the tables of a namespace from the next exchange on; with settings of the session, at once."""
        self.namespace = schema
        if settings:
            self._seen = schema
            self.script("; ".join([f"SET search_path = {Identifier(schema).as_string(None)}", *settings]))

    @property
    def entering(self) -> Sequence[tuple[str, Sequence[object]]]:
        """The statement that is needed first, within or before a transaction; none where the namespace is seen."""
        if self._seen == self.namespace:
            return []
        return [(_ENTER, (Identifier(self.namespace).as_string(None), self.session))]

    def entered(self) -> None:
        """What ``entering`` says was done, and committed."""
        self._seen = self.namespace

    def _enter(self) -> None:
        for sql, values in self.entering:
            psycopg.RawCursor(self.raw).execute(_numbered(sql), values)
            self.entered()

    def exchange(self, sql: str) -> Sequence[bytes | None]:
        """Do several statements without values in one exchange, as ``script`` does, in a third of its time.

        Returns:
            The first row of the last one as the server wrote it, or its status where it finds no rows.
        """
        self.plan_anew()
        self._enter()
        result = self.raw.wait(_exchanged(self.raw.pgconn, sql))[-1]
        if result.status == pq.ExecStatus.TUPLES_OK:
            return [result.get_value(0, column) for column in range(result.nfields)]
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result)
        return [result.command_status]

    def together(self, statements: Sequence[Statement], end: Statement) -> list[pq.abc.PGresult]:
        """Do the statements of a transaction in one exchange; where one of them fails, its end undoes them.

        The first of them begins the transaction. Many of them are more than leaves at once: in an exchange of its own
        it begins before them then. So the server lets go of the lock, as ever, where a process stands still meanwhile.

        Returns:
            What each was answered with.

        Raises:
            psycopg.Error: Nothing was done, if the connection is still there.
            JournalUnavailable: The server has undone it.
        """
        is_large = self._size_of([*statements, end]) > _AT_ONCE
        begun = [self._answers(statements[:1], is_apart=False)[0]] if is_large else []
        results = begun + self._answers([*statements[len(begun) :], end], is_apart=is_large)
        _check_committed(results[-1].command_status)
        return results

    def apart(self, statements: Sequence[Statement]) -> list[pq.abc.PGresult]:
        """Do statements in one exchange, ``entering`` among them; each is a transaction.

        Returns:
            What each was answered with.
        """
        results = self._answers(statements, is_apart=True)
        self.entered()
        return results

    def each(self, statements: Sequence[Statement]) -> list[pq.abc.PGresult | psycopg.Error]:
        """Do statements in one exchange; each is a transaction, whatever becomes of the others.

        Returns:
            What each was answered with, or why it failed.
        """
        self.plan_anew()
        new, results = self._asked(statements, is_apart=True)
        known = {key: result for key, result in zip(new, results, strict=False) if result.status not in _DONE}
        answers = zip(statements, results[len(new) :], strict=True)
        return [self._failure(known.get((one.sql, one.types), answer)) or answer for one, answer in answers]

    def knows(self, schema: str) -> bool:
        """Whether statements of a namespace are prepared here."""
        return schema in self._prepared

    def _answers(self, statements: Sequence[Statement], *, is_apart: bool) -> list[pq.abc.PGresult]:
        """What statements that leave together are answered with. Raises why the first of them failed."""
        new, results = self._asked(statements, is_apart=is_apart)
        for result in results:
            if (error := self._failure(result)) is not None:
                raise error
        return results[len(new) :]

    def _failure(self, result: pq.abc.PGresult) -> psycopg.Error | None:
        """Why a statement failed, if it did."""
        if result.status in _DONE:
            return None
        error = psycopg.errors.error_from_result(result)
        if isinstance(error, _FORGOTTEN):
            self._prepared.clear()
        return error

    def _asked(
        self, statements: Sequence[Statement], *, is_apart: bool
    ) -> tuple[Collection[tuple[str, tuple[int, ...]]], list[pq.abc.PGresult]]:
        """What the server is told of first, as it does not know it; and the answers to that, and to all statements.

        Args:
            is_apart: The server answers each by itself, also after one that has failed.
        """
        new: dict[tuple[str, tuple[int, ...]], bytes] = {}
        prepared = self._prepared.setdefault(self.namespace, {})
        for one in statements:
            if (key := (one.sql, one.types)) not in prepared:
                new.setdefault(key, b"usual_%b_%d" % (_OURS, next(_NAMES)))
        try:
            results = self.raw.wait(_together(self.raw.pgconn, statements, prepared, new, is_apart=is_apart))
        except BaseException:
            self.raw.close()  # what the server makes of it is not to be known
            raise
        for (key, name), result in zip(new.items(), results, strict=False):
            if result.status == pq.ExecStatus.COMMAND_OK:
                prepared[key] = name  # the server keeps it, whatever becomes of the transaction
        return new, results

    def _size_of(self, statements: Sequence[Statement]) -> int:
        """Bytes that leave for these, at most."""
        new = {(one.sql, one.types) for one in statements} - self._prepared.get(self.namespace, {}).keys()
        parsed = sum(len(sql.encode()) + 6 * len(types) + _FRAME for sql, types in new)  # each mark grows to a number
        return parsed + sum(_FRAME + sum(6 + len(value or b"") for value in one.values) for one in statements)

    def plan_anew(self) -> None:
        """Let go of the plans made a while ago, between two transactions."""
        now = self._clock()
        is_idle = self.raw.pgconn.transaction_status == pq.TransactionStatus.IDLE
        if is_idle and sum(map(len, self._prepared.values())) >= _KEPT:
            self.forget()
        if is_idle and now - self._planned > _PLANNED_ANEW:
            self._planned = now
            self.raw.cursor().execute("DISCARD PLANS", prepare=False)

    def forget(self) -> None:
        """Let the server forget what was prepared for ``together``: it would keep that as long as the connection.

        A statement that was prepared while a rule made nothing of it writes nothing ever after.
        """
        names = [name.decode() for known in self._prepared.values() for name in known.values()]
        self._prepared = {}
        with suppress(*_FORGOTTEN):  # it has forgotten them already
            self.raw.cursor().execute("; ".join(f"DEALLOCATE {name}" for name in names), prepare=False)

    def commit(self) -> None:
        """Commit, with what goes with each commit.

        Raises:
            JournalUnavailable: The database has undone it, though nothing was raised: what failed was passed over.
        """
        (status,) = self.exchange(f"{self.before_commit}; COMMIT")
        _check_committed(status)

    def rollback(self) -> None:
        """Undo what is not committed."""
        if self.in_transaction:
            self.raw.cursor().execute("ROLLBACK", prepare=False)

    def close(self) -> None:
        """End it."""
        self.raw.close()


def _together(
    pgconn: pq.abc.PGconn,
    statements: Sequence[Statement],
    known: Mapping[tuple[str, tuple[int, ...]], bytes],
    new: Mapping[tuple[str, tuple[int, ...]], bytes],
    *,
    is_apart: bool,
) -> PQGen[list[pq.abc.PGresult]]:
    """Statements that leave without waiting for each other's answer, the last one by itself, and what each came to."""
    results: list[pq.abc.PGresult] = []
    pgconn.enter_pipeline_mode()
    for (sql, types), name in new.items():
        pgconn.send_prepare(name, _numbered(sql), types)
        if is_apart:
            pgconn.pipeline_sync()
    left = len(new) if is_apart else 0
    for place, one in enumerate(statements, start=1):
        key = (one.sql, one.types)
        pgconn.send_query_prepared(new.get(key) or known[key], one.values, one.formats)
        if is_apart or place >= len(statements) - 1:  # the last one ends the transaction whatever came before it
            pgconn.pipeline_sync()
            left += 1
    yield from _received(pgconn, left, results)
    pgconn.exit_pipeline_mode()
    return results


def _received(pgconn: pq.abc.PGconn, left: int, results: list[pq.abc.PGresult]) -> PQGen[None]:
    """What the server answers, up to so many ends of transactions."""
    while left:
        ready = yield Wait.RW if pgconn.flush() else Wait.R
        if not ready & Ready.R:
            continue
        pgconn.consume_input()
        is_between = False
        while left and not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None and is_between:
                break
            is_between = result is None
            if result is not None and result.status == pq.ExecStatus.PIPELINE_SYNC:
                left -= 1
            elif result is not None:
                results.append(result)


def _check_committed(status: bytes | None) -> None:
    if status != b"COMMIT":
        raise JournalUnavailable(f"the database answered a commit with {(status or b'nothing').decode()}")


def _exchanged(pgconn: pq.abc.PGconn, sql: str) -> PQGen[list[pq.abc.PGresult]]:
    """Statements that leave once their answer is waited for, as those of a cursor do."""
    pgconn.send_query(sql.encode())
    found: list[pq.abc.PGresult] = yield from generators.execute(pgconn)
    return found


class _Impatient(psycopg.Connection):
    """A connection that is closed when the server says nothing for too long.

    TCP notices within 15 seconds that the other side is gone, and a proxy in between, which answers for it, never.

    Attributes:
        patience: Seconds.
    """

    patience = math.inf

    def wait(self, gen: PQGen[RV], *arguments: Any, **named: Any) -> RV:
        """Wait for an answer, as long as something comes."""
        try:
            return super().wait(_heard(gen, self.patience), *arguments, **named)
        except ServerSilent:
            self.close()  # what the server makes of it, and when, is not to be known
            raise


class ServerSilent(psycopg.OperationalError):
    """The server says nothing."""


def _heard(gen: PQGen[RV], patience: float) -> PQGen[RV]:
    """The same exchange, which fails once nothing has moved for so many seconds."""
    try:
        awaited = next(gen)
        until = time.monotonic() + patience
        while True:
            if ready := (yield awaited):
                until = time.monotonic() + patience
            elif time.monotonic() >= until:
                raise ServerSilent("the server says nothing")
            awaited = gen.send(ready)
    except StopIteration as end:
        found: RV = end.value
        return found


def connected(dsn: str, *, place: str, name: str, patience: float) -> PgConnection:
    """A connection on which every statement is a transaction of its own until one is begun.

    Args:
        place: What to call the database in an error.
        name: What the database shows as its application.
        patience: Seconds without a sign of the server after which it is lost; longer than a statement may take.

    Raises:
        JournalError: With what to do about it.
    """
    try:
        raw = _Impatient.connect(_whole(dsn, name), autocommit=True)
    except psycopg.Error as error:
        raise _refusal(error, place) from error
    raw.patience, raw.prepare_threshold, raw.prepared_max = patience, 2, _KEPT
    raw.adapters.register_dumper(bool, _BoolDumper)
    raw.adapters.register_dumper(int, Int8Dumper)  # of one size, so that a statement is prepared once
    return PgConnection(raw)


async def connected_beside(dsn: str, *, schema: str, place: str, name: str) -> psycopg.AsyncConnection:
    """A connection for an event loop, as psycopg has it: each statement is a transaction of its own.

    Args:
        schema: The namespace whose tables it sees.

    Raises:
        JournalError: With what to do about it.
    """
    try:
        raw = await psycopg.AsyncConnection.connect(_whole(dsn, name), autocommit=True)
        await raw.execute(SQL("SET search_path = {}").format(Identifier(schema)))
    except psycopg.Error as error:
        raise _refusal(error, place) from error
    return raw


def _whole(dsn: str, name: str) -> str:
    """A DSN with what it does not say itself."""
    known = conninfo_to_dict(dsn)
    more = {key: value for key, value in _LIVELY.items() if key not in known}
    if "," in str(known.get("host") or known.get("hostaddr") or ""):  # a standby among them is not for us
        more.setdefault("target_session_attrs", str(known.get("target_session_attrs", "read-write")))
    more |= {"application_name": name, "client_encoding": "UTF8"}
    return make_conninfo(dsn, **more)


def surroundings(dsn: str) -> Hashable:
    """A DSN with what libpq takes from the environment now, where it leaves something out: alike where both are."""
    return dsn, tuple((one.keyword, one.val) for one in pq.Conninfo.get_defaults())


def is_whole(dsn: str) -> bool:
    """Whether libpq understands a DSN; of one that it does not, it repeats parts, a password maybe.

    One with an ``@``, a ``/`` or a ``:`` of the password that is not written as ``%40`` and the like it understands,
    and otherwise than was meant: a part of the password is a host or a port then. A DSN that stands where the name of
    a database does is such a name, and the server repeats it. Parameters that no ``?`` begins are a part of the host.
    """
    try:
        known = conninfo_to_dict(dsn)
    except psycopg.Error:
        return False
    if any(mark in str(known.get("dbname") or "") for mark in ("://", "=")):
        return False
    if any(f"{secret}=" in str(known.get(part) or "") for part in ("host", "user", "port") for secret in _SECRETS):
        return False
    scheme, is_address, rest = dsn.partition("://")
    if is_address and "=" not in scheme:
        user, at, place = rest.partition("@")
        if "@" in (rest if not at or "/" in user else place).partition("?")[0]:
            return False
    return all(not port or port.isdecimal() for port in str(known.get("port") or "").split(","))


def shown(dsn: str) -> str:
    """A DSN as libpq understands it, and without its passwords."""
    known = {key: _HIDDEN if key in _SECRETS else str(value) for key, value in conninfo_to_dict(dsn).items()}
    if "://" not in dsn.partition("=")[0]:
        return make_conninfo("", **known)
    user, password, name = (quote(known.pop(key, ""), safe="*") for key in ("user", "password", "dbname"))
    who = f"{user}{f':{password}' if password else ''}@" if user or password else ""
    place = known.pop("host", "")
    if "/" in place or ("port" in known and "," in f"{place}{known['port']}"):
        known, place = {"host": place, **known}, ""
    else:
        port = known.pop("port", "")
        place = f"{f'[{place}]' if ':' in place else place}{f':{port}' if port else ''}"
    more = f"?{urlencode(known, safe='/*,')}" if known else ""
    return f"postgresql://{who}{place}/{name}{more}"


def _refusal(error: psycopg.Error, place: str) -> Exception:
    """Why no connection came to be, in the words of the server, which name the user and the host, and no secret."""
    error._pgconn = None  # it holds the whole DSN, which tools show that take errors apart
    if error.sqlstate is not None:
        return translated(error, place)
    words = " ".join(str(error).split())
    return JournalUnavailable(f"{place}: the database cannot be reached ({words})")


@cache
def _numbered(sql: str) -> bytes:
    """A statement whose ``?`` marks are PostgreSQL's: ``$1``, ``$2``, ... No literal holds one."""
    for ours, theirs in _WORDS:
        sql = sql.replace(ours, theirs)
    sql = _CAST_TO_BYTES.sub(r"convert_to(\1, 'UTF8')", sql)
    numbers = count(1)
    first, *others = sql.split("?")
    return "".join([first, *(f"${next(numbers)}{part}" for part in others)]).encode()


class _BoolDumper(Dumper):
    """A condition as a number, as it is kept."""

    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: bool) -> Buffer:
        return b"1" if obj else b"0"


def without_nul(parameters: Sequence[object]) -> Sequence[object]:
    """Values among which no text has a NUL."""
    if not any((isinstance(value, str) and _NUL in value) or isinstance(value, list) for value in parameters):
        return parameters
    return list(map(_without_nul, parameters))


def _without_nul(value: object) -> object:
    if isinstance(value, list):
        return list(map(_without_nul, value))
    return value.replace(_NUL, _ITS_PICTURE) if isinstance(value, str) else value


def _has_input(socket: int) -> bool:
    """Whether there is something to be read, the end included."""
    with selectors.DefaultSelector() as selector:
        selector.register(socket, selectors.EVENT_READ)
        return bool(selector.select(0))


_DONE = frozenset({pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK})
_OPEN = frozenset({pq.TransactionStatus.ACTIVE, pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR})
