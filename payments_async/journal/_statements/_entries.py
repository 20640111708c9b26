"""Orders in the journal: their rows, the commit in which they change, and what is shown of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Context, Decimal, localcontext
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from payments_async._values.request_ids import plain_id
from payments_async._wire.orders import Order
from payments_async.journal._faults import JournalCorrupt, JournalUnavailable, RunUnknown
from payments_async.journal._records import (
    CLOCKS_DIFFER,
    LATE,
    LISTS,
    Awaited,
    Entry,
    OpenOrder,
    Progress,
    Row,
    Run,
    RunIdentity,
    order_of,
    pack_transaction_id,
    proved,
    unpack_transaction_id,
)
from payments_async.journal._statements._database import (
    ADDED,
    NO_TRANSACTION,
    SNAPSHOT,
    Connection,
    Database,
    Gathered,
    Rows,
    Unforeseen,
    given,
)
from payments_async.journal._states import FINAL, IN_DOUBT, UNSENT, UNSETTLED, State

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Question = tuple[str, Sequence[Any]]  # a statement that changes nothing, and its values
_log = logging.getLogger("payments_async.journal")
EXACT = Context(prec=100)  # the usual 28 digits would round a sum of large amounts
CHUNK = 500  # orders in one lease
PAGE = 500  # entries in memory at once
_LONG_PAGE = 5000  # open orders, which are told in few words: a few hundred kilobytes
SHIFT = 28
MOST_ORDERS = 1 << SHIFT
ASKED_BACK = -1  # what a leased chunk is due at, once an order in it may be sent again that its holder does not have
_HIGHEST = (1 << 63) - 1
_FAR_AHEAD = 43_200.0  # seconds; by less than a day a list of the days around is wrong by none
_LOOKED_AT = 8  # chunks of a run in which the oldest order that waits is looked for
_MOST_KNOWN = 1000  # answers of questions that are kept
_STATES = {state.value: state for state in State}  # a tenth of the time that asking the enumeration takes
_OF_OUTBOX = "{run} IN (SELECT id FROM run WHERE outbox = ?)"


def among(states: Collection[State]) -> str:
    """The condition that a state is one of these, after the name of the column."""
    names = ", ".join(f"'{state.value}'" for state in State if state in states)
    return f"IN ({names})"


# what a run is: a batch, or the single orders of an outbox, which never end
BATCH, OUTBOX = "batch", "outbox"
IS_OUTBOX = f"kind = '{OUTBOX}'"
IS_HERE = "archive IS NULL"  # an order whose story is not in an archive
IS_SENDABLE, IS_HELD = "held_at IS NULL", "held_at IS NOT NULL"  # an order that can be sent as it is, or cannot
IS_UNSETTLED = f"state {among(UNSETTLED)}"  # few at any time, and looked for
# an order that failed, as a notification alone has told; a list that was read late enough ends the search
FAILED_BY_NOTIFICATION = f"""o.state = 'failed' AND o.{IS_HERE}
    AND NOT EXISTS (SELECT 1 FROM evidence v WHERE v.order_id = o.id
    AND (v.news IN ('looked_up_successful', 'looked_up_failed', 'looked_up_reversed')
    OR (v.news IN ('looked_up_processing', 'swept_clean_twice') AND v.last_at >= o.permitted_at + {LATE})))"""  # noqa: S608
_FAILED_AMONG = f"SELECT o.request_id, 1 FROM outbox o WHERE o.id IN ({{marks}}) AND {FAILED_BY_NOTIFICATION}"  # noqa: S608
_UNCONFIRMED_AMONG = """SELECT request_key, count(*) FROM ipn_event WHERE doubt = 'unconfirmed' AND state <> 'disputed'
    AND request_key IN ({marks}) GROUP BY request_key"""
COLUMNS = (
    "id, request_id, state, token, attempt, sent_before, amount, body, body_sha256, transaction_id, code, message, "
    "conflict, permitted_at, updated_at, archive, correlation_id, traceparent"
)
_BY_ID = f"SELECT {COLUMNS} FROM outbox WHERE id = ?"  # noqa: S608 - no value in it
_BY_REQUEST = f"SELECT {COLUMNS} FROM outbox WHERE request_key = ?"  # noqa: S608
# the second condition, written out, lets SQLite use the index of those that have one
_BY_TRANSACTION = f"""SELECT {COLUMNS} FROM outbox WHERE transaction_id = ?
    AND transaction_id <> {NO_TRANSACTION} ORDER BY CASE WHEN {IS_HERE} THEN 0 ELSE 1 END LIMIT 2"""  # noqa: S608
_SIZES = (64, 16, 4, 1)  # new orders in one statement
_KINDS = dict.fromkeys(("id", "token", "attempt", "priority"), "BIGINT") | {"body": "BYTEA", "body_sha256": "BYTEA"}
_KINDS |= dict.fromkeys(("permitted_at", "updated_at", "put_at", "not_before"), "DOUBLE PRECISION")
_SETTLED = FINAL - {State.REJECTED}  # by more than an answer
_CHANGE = """UPDATE outbox SET state = ?, transaction_id = coalesce(?, transaction_id), code = coalesce(?, code),
    message = coalesce(?, message), conflict = coalesce(conflict, ?),
    correlation_id = CASE WHEN ? = 1 THEN NULL ELSE coalesce(?, correlation_id) END,
    sent_before = CASE WHEN sent_before = 1 THEN 1 ELSE ? END, updated_at = ? WHERE id = ?"""
# what an outbox has sent is known from its last sight on: it may be years old
LOOK_SINCE = (
    f"CASE WHEN {IS_OUTBOX} OR look_since < created_at THEN coalesce(look_since, created_at) ELSE created_at END"
)
CLEAN = 2  # of ``sweep.counted``: 1 is a list that showed as many rows as the service counted
LIFTED = "quarantine lifted"  # a decision
_LIFTED = "SELECT 1 FROM resolution WHERE run = ? AND kind = ? AND at >= ? LIMIT 1"
_RUNS = (
    "id, batch_id, base_address, key_fingerprint, user_id, state, source_digest, policy, quarantined_at, "
    f"{LOOK_SINCE}, kind, outbox, archived"
)


class Commit:
    """One commit while it is being made: what every operation in it works with.

    Attributes:
        execute: Of the connection.
        now: Unix seconds by the database's clock, read after the write lock was granted.
        permit_at: The moment of a permit: ``now``, or that by the service's clock where the database's is far ahead of
            it, or somewhat behind.
        nameless: Whether there are notifications without a request id whose orders nobody knows; ``None`` where
            that was not asked since the last one was stored.
        database: What is asked of the database itself.
        is_milestone: What is written has to be in the file itself soon, and not only in the log beside it.
        leased: Told of each lease that begins, before anything is permitted under it: run, chunk, token and owner.
        is_counted: A journal that lacks it has forgotten something, though it moves no order.
        has_claimed: A chunk came into other hands, who send what its rows call planned.
        changed: An order whose row it wrote, the last of them; it names ``now`` as the time of that.
        latest: The latest moment that it can be by the database's clock: a lease that is good then is good.
        entered: The states that orders came to by it, where others hear of nothing else; ``None`` where they may.
        settled: Orders whose final outcome it brings, for the log: request id, state, transaction.
        of: What is done in it; of two commits the same where the first was undone, and the second does it anew.

    Args:
        gathered: In place of the connection, where the statements are to leave for the database together.
        known: Rows that questions were answered with, over all commits of a connection; ``None`` where they are of no
            use.
        guesses: Where statements are gathered, questions are answered as usual; otherwise each is asked.
        knows: What is known holds without being asked again: nobody has written since but in usual statements.
        within: Seconds after ``now`` in which the commit is made, or not at all.
    """

    __slots__ = (
        *("_crash_at", "_gathered", "_guesses", "_known", "_knows", "connection", "database", "execute"),
        *("latest", "leased"),
        *(
            "changed",
            "entered",
            "has_claimed",
            "is_counted",
            "is_milestone",
            "moves",
            "nameless",
            "now",
            "of",
            "permit_at",
            "settled",
        ),
    )

    def __init__(
        self,
        connection: Connection,
        database: Database,
        now: float,
        crash_at: Callable[[str], None] | None = None,
        *,
        service_clock: Callable[[], float | None] | None = None,
        leased: Callable[[int, int, int, str], None] | None = None,
        gathered: Gathered | None = None,
        known: MutableMapping[Hashable, Any] | None = None,
        guesses: bool = True,
        knows: bool = False,
        within: float = 0.0,
        of: object = None,
    ) -> None:
        self.leased = leased
        self.of = of
        self.now = now
        self.latest = now + within
        self._gathered = gathered
        self._known = known
        self._guesses = guesses and gathered is not None
        told = None if service_clock is None else service_clock()
        is_slow = told is not None and CLOCKS_DIFFER < told - now < _FAR_AHEAD
        self.permit_at = now if told is None or (told > now - _FAR_AHEAD and not is_slow) else told
        self._knows = knows
        self.connection = connection
        self.execute = self._executed if knows else connection.execute
        self._crash_at = crash_at
        self.database = database
        self.nameless: bool | None = None
        self.is_milestone = False
        self.is_counted = False
        self.has_claimed = False
        self.changed: int | None = None
        self.entered: Collection[str] | None = None
        self.moves: list[tuple[int, str, int, Decimal]] = []
        self.settled: list[tuple[str, State, str | None]] = []

    def count(self, run: int, state: str, count: int, amount: Decimal) -> None:
        """Orders that entered a state (or left it, below zero), with the sum of their amounts."""
        self.moves.append((run, state, count, amount))

    def move(self, run: int, before: str, after: str, amount: Decimal, count: int = 1) -> None:
        """Orders that went from one state into another, with the sum of their amounts."""
        self.count(run, before, -count, amount.copy_negate())  # exact: unary minus would round
        self.count(run, after, count, amount)

    # Statements that are usually answered in one way. Where statements are gathered, that answer counts until the
    # database gives another one; then nothing was done, and it is done anew.

    def finds_none(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """The rows of a statement that usually finds none."""
        if self._gathered is not None and (self._guesses or not sql.startswith("SELECT ")):
            self._gathered.gather(sql, values, ())
            return []
        return self._found(sql, values)

    def finds(self, row: Sequence[Any], sql: str, values: Sequence[Any]) -> Any:
        """The only row of a statement, which is usually this one; ``None`` for none. Any other is found one by one."""
        if self._gathered is None:
            return self.execute(sql, values).fetchone()
        self._gathered.gather(sql, values, row)
        return row

    def finds_as_before(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The only row of a question, which is usually the one it was answered with last; ``None`` for none."""
        key = (sql, *values)
        if self._known is not None and key in self._known and (self._knows or self._gathered is not None):
            if self._gathered is not None:
                self._gathered.gather(sql, values, self._known[key] or ())
            return self._known[key]
        row = next(iter(self._found(sql, values)), None)
        self.will_find(row, sql, values)
        return row

    def _found(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """The rows of a question that is asked now."""
        return self.execute(sql, values).fetchall() if self._gathered is None else self._gathered.look(sql, values)

    def will_find(self, row: Any, sql: str, values: Sequence[Any]) -> None:
        """How a question is to be answered from now on, if this commit is made."""
        if self._known is not None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[(sql, *values)] = row

    def _executed(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """Any other statement: where it writes, what was known is asked again."""
        if self._known is not None and not sql.startswith("SELECT "):
            self._known.clear()
        return self.connection.execute(sql, values)

    def look_ahead(self, questions: Iterable[Question]) -> None:
        """Questions that are asked in a moment: where statements are gathered, in one exchange for all of them."""
        if self._gathered is not None:
            self._gathered.look_ahead(list(questions))

    def writes(self, count: int, sql: str, values: Sequence[Any]) -> int:
        """How many rows a statement writes, which are usually so many."""
        if self._gathered is None:
            return self.connection.execute(sql, values).rowcount
        self._gathered.gather(sql, values, count)
        return count

    def inserts(self, columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> None:
        """Write new orders down, with few statements: each one hands the interpreter over.

        Raises:
            JournalUnavailable: Something in the database leaves some of them out: none is to be called stored.
        """
        written = done = 0
        if rows and self.database.takes_arrays:
            arrays = [list(column) for column in zip(*rows, strict=True)]
            written, done = self.writes(len(rows), _inserting(columns, 0), arrays), len(rows)
        for size in _SIZES:
            while len(rows) - done >= size:
                values = list(chain.from_iterable(rows[done : done + size]))
                written += self.writes(size, _inserting(columns, size), values)
                done += size
        if written != len(rows):
            raise JournalUnavailable("the table outbox drops rows: remove the trigger or rule that others put on it")

    def tell(self, sql: str, values: Sequence[Any], read: Callable[[list[Any]], T]) -> T:
        """What an operation tells of a statement's rows; nothing else that is done depends on them.

        Where statements are gathered it is ``Promised``, which is what the operation returns then.
        """
        if self._gathered is None:
            return read(self.execute(sql, values).fetchall())
        return cast(T, self._gathered.tell(sql, values, read))

    def goes_one_by_one(self) -> None:
        """What follows is out of the usual, and is to be done once: statement by statement."""
        if self._gathered is not None:
            raise Unforeseen

    @property
    def last(self) -> str | None:
        """The order whose row it wrote last, and when, as the journal remembers it; ``None`` where it wrote none."""
        return None if self.changed is None else f"{self.changed} {self.now!r}"

    def passed(self, point: str) -> None:
        """A named point between two steps, at which a test may kill the process."""
        if self._crash_at is not None:
            self._crash_at(point)

    def undoing(self, part: Callable[[], T], *, is_first: bool = False) -> T:
        """What a part returns; when it raises, what it did is undone, and the rest of the commit stands.

        Args:
            is_first: Nothing was done before it: then it needs no savepoint, which is two statements less.
        """
        if self._gathered is not None:
            try:
                return part()
            except Exception as error:
                raise Unforeseen from error
        moved, changed, settled = len(self.moves), self.changed, len(self.settled)
        if not is_first:
            self.connection.execute("SAVEPOINT part")
        try:
            result = part()
        except Exception as error:
            if not isinstance(error, self.database.Error) or self.goes_on(error):
                self._undo(moved, is_first=is_first)
                self.changed = changed
                del self.settled[settled:]
            raise
        if not is_first:
            self.connection.execute("RELEASE part")
        return result

    def _undo(self, moved: int, *, is_first: bool) -> None:
        """Undo a part of the commit, before which so many orders had moved."""
        if is_first:
            self.execute("ROLLBACK")
            try:
                self.now = self.database.begin(self.connection)
            except Exception:
                self.connection.rollback()  # it has begun what must not be committed: nothing of the commit can be done
                raise
        else:
            self.execute("ROLLBACK TO part")
            self.execute("RELEASE part")
        del self.moves[moved:]
        self.nameless = None
        if self._known is not None:
            self._known.clear()

    def goes_on(self, error: Exception) -> bool:
        """Whether an error is that of one operation alone: neither the disk's nor the end of the transaction."""
        return self.connection.in_transaction and not self.database.is_of_the_disk(error)

    def write_progress(self) -> None:
        """Add up what moved; once for each commit, however many orders moved."""
        changes: dict[tuple[int, str], tuple[int, Decimal]] = {}
        for run, state, count, amount in self.moves:
            known = changes.get((run, state))
            changes[run, state] = (count, amount) if known is None else (known[0] + count, EXACT.add(known[1], amount))
        values: list[object] = []
        for key, (count, amount) in changes.items():
            if count or amount:
                values += (*key, count, format(amount, "f"))
        if values:
            marks = ", ".join(["(?, ?, ?, ?)"] * (len(values) // 4))
            self.connection.execute(
                f"""INSERT INTO progress (run, state, count, total) VALUES {marks} ON CONFLICT (run, state)
                DO UPDATE SET count = progress.count + excluded.count, total = {ADDED}""",  # noqa: S608 - marks only
                values,
            )


Work = Callable[[Commit], T]
# Does one or more neighbouring works at once, in few statements, and tells their results. ``None`` when one of them is
# out of the ordinary: then what it did is undone, and each is done by itself.
Together = Callable[[Commit, Sequence[Any]], Sequence[Any] | None]


@cache
def _inserting(columns: tuple[str, ...], count: int) -> str:
    """The statement that writes so many orders; with 0, as many as its arrays hold."""
    into = f"INSERT INTO outbox ({', '.join(columns)})"
    if not count:
        return f"{into} SELECT * FROM {given([_KINDS.get(name, 'TEXT') for name in columns])}"  # noqa: S608 - no value
    row = f"({', '.join('?' * len(columns))})"
    return f"{into} VALUES {', '.join([row] * count)}"


def asked(connection: Connection | Commit, sql: str, values: Sequence[Any]) -> Any:
    """The only row of a question; within a commit one that is usually answered as before."""
    if isinstance(connection, Commit):
        return connection.finds_as_before(sql, values)
    return connection.execute(sql, values).fetchone()


def add_amounts(one: str, other: str) -> str:
    """The exact sum of two amounts, as they are stored: what SQLite has no function for."""
    return format(EXACT.add(Decimal(one), Decimal(other)), "f")


def marks_for(values: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The marks for ``IN`` and the values, of which the last is repeated up to a power of two.

    So there are few different statements, and SQLite keeps them: to read one of hundreds of marks anew takes as long as
    carrying it out.
    """
    width = 1 << (len(values) - 1).bit_length()
    return ",".join("?" * width), (*values, *[values[-1]] * (width - len(values)))


def sum_of(amounts: Sequence[Decimal]) -> Decimal:
    """The exact sum of the amounts of many orders."""
    if len(amounts) == 1:
        return EXACT.plus(amounts[0])
    with localcontext(EXACT):
        return sum(amounts, Decimal(0))


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Let several statements of a reader see the same moment."""
    connection.execute(SNAPSHOT)
    try:
        yield
    finally:
        connection.rollback()  # nothing was written; an error may have ended it already


def bounds(run: int) -> tuple[int, int]:
    """First and last number an order of this run can have."""
    return run << SHIFT, ((run + 1) << SHIFT) - 1


def chunk_bounds(run: int, number: int) -> tuple[int, int]:
    """First and last number an order of this chunk can have."""
    first = (run << SHIFT) + number * CHUNK
    return first, first + CHUNK - 1


def run_of(order_id: int) -> int:
    """The run an order belongs to."""
    return order_id >> SHIFT


def run_in(order_id: str) -> str:
    """The number of an order's run, within a statement.

    >>> run_in("o.id")
    'o.id >> 28'
    """
    return f"{order_id} >> {SHIFT}"


def within_chunk(chunk: str) -> str:
    """The condition that a number is of an order of a chunk, within a statement and after the name of the column."""
    first = f"({chunk}.run << {SHIFT}) + {chunk}.number * {CHUNK}"
    return f"BETWEEN {first} AND {first} + {CHUNK - 1}"


def chunk_of(order_id: int) -> int:
    """The number of its chunk within the run."""
    return (order_id & (MOST_ORDERS - 1)) // CHUNK


def is_in_state(table: str, state: State | str) -> str:
    """The condition that an order is in a state, written so that SQLite sees which partial index covers it.

    It compares words and does not conclude: that ``state = 'unknown'`` lies within ``IS_UNSETTLED`` it has to be told.
    Archived orders are left out.
    """
    name = State(state)
    condition = f"{table}.state = '{name.value}'"
    if name in FINAL:
        return f"{condition} AND {table}.{IS_HERE}"
    return f"{condition} AND {table}.{IS_UNSETTLED}" if name in UNSETTLED else condition


def row_of(values: Sequence[Any]) -> Row:
    """A row of ``COLUMNS``."""
    return Row(values[0], values[1], _STATES[values[2]], *values[3:])


def row_by_id(connection: Connection | Commit, order_id: int) -> Row | None:
    """One order by its number."""
    found = connection.execute(_BY_ID, (order_id,)).fetchone()
    return None if found is None else row_of(found)


def open_beyond(commit: Commit, request_id: str) -> list[Row]:
    """Orders that may have been carried out, and whose ids begin with this one and go on."""
    key = plain_id(request_id)
    found = commit.execute(
        f"""SELECT {COLUMNS} FROM outbox WHERE request_key > ? AND request_key < ?
        AND state {among(IN_DOUBT)} ORDER BY request_key""",  # noqa: S608 - no value in it
        (key, f"{key}\U0010ffff"),
    )
    return list(map(row_of, found.fetchall()))


def by_request(request_id: str) -> Question:
    """The question for one order by its request id."""
    return _BY_REQUEST, (plain_id(request_id),)


def row_by_request(connection: Connection | Commit, request_id: str) -> Row | None:
    """One order by its request id."""
    found = connection.execute(*by_request(request_id)).fetchone()
    return None if found is None else row_of(found)


def row_here(connection: Connection | Commit, request_id: str) -> Row | None:
    """One order by its request id, unless its story is in an archive."""
    row = row_by_request(connection, request_id)
    return None if row is None or row.archive is not None else row


def rows_by_transaction(connection: Connection | Commit, transaction_id: str) -> list[Row]:
    """The orders that carry a transaction id: one, none, or two where the service contradicts itself.

    An archived one comes after one that is here.
    """
    return list(map(row_of, connection.execute(_BY_TRANSACTION, (pack_transaction_id(transaction_id),))))


class Doubts(NamedTuple):
    """What a notification alone says of an order; as in ``Entry``."""

    unconfirmed: int = 0
    failed_by_notification: bool = False


NO_DOUBTS = Doubts()


def entry_of(row: Row, batch_id: str, doubts: Doubts = NO_DOUBTS, *, order: Order | None = None) -> Entry:
    """A row as an entry, with what a notification alone says of it.

    Args:
        order: What it says, where that is known to be the same: of an archived one the row does not tell.
    """
    amount = Decimal(row.amount)
    if order is None:
        order = order_of(row.request_id, amount, proved(row.request_id, row.amount, row.body, row.body_sha256))
    return Entry(
        request_id=row.request_id,
        batch_id=batch_id,
        state=row.state,
        order=order,
        amount=amount,
        attempt=row.attempt,
        transaction_id=unpack_transaction_id(row.transaction_id),
        code=row.code,
        message=row.message,
        conflict=row.conflict,
        sent_before=bool(row.sent_before),
        permitted_at=row.permitted_at if row.attempt else None,
        updated_at=row.updated_at,
        unconfirmed=doubts.unconfirmed,
        failed_by_notification=doubts.failed_by_notification,
        correlation_id=row.correlation_id,
        traceparent=row.traceparent,
    )


def change(
    commit: Commit,
    row: Row,
    state: State,
    *,
    transaction_id: str | None = None,
    code: int | None = None,
    message: str | None = None,
    conflict: str | None = None,
    correlation_id: str | None = None,
    sent_before: bool = False,
) -> None:
    """Write down what the table of states answered. ``None`` leaves a column as it is; the first conflict stands."""
    packed = pack_transaction_id(transaction_id)
    begins_anew = state is State.PLANNED  # the exchange of before is kept with its attempt
    values = (state, packed, code, message, conflict, begins_anew, correlation_id, sent_before, commit.now, row.id)
    commit.execute(_CHANGE, values)
    commit.changed = row.id
    if state is not row.state:
        commit.move(run_of(row.id), row.state, state, Decimal(row.amount))
        if state in _SETTLED and _log.isEnabledFor(logging.INFO):
            commit.settled.append((row.request_id, state, unpack_transaction_id(packed or row.transaction_id)))


def hold_back(commit: Commit, order_id: int, why: str) -> None:
    """An order of an outbox cannot be sent as it is: it is in nobody's hands until it is put again, and is shown."""
    held = commit.execute(
        """UPDATE outbox SET held_at = ?, conflict = coalesce(conflict, ?), updated_at = ?
        WHERE id = ? AND state = 'planned'""",
        (commit.now, why, commit.now, order_id),
    )
    if held.rowcount:
        commit.changed = order_id


class PageReader(Protocol[T_co]):
    """Reads a page: given the number of the last order before it, what is in it and the number of its last order."""

    def __call__(self, connection: Connection, /, *, after: int) -> tuple[Iterable[T_co], int]: ...


def run_columns(connection: Connection | Commit, batch_id: str, columns: str) -> Sequence[Any]:
    """Some columns of a batch.

    Raises:
        RunUnknown: There is none of that name.
    """
    found: Sequence[Any] | None = connection.execute(
        f"SELECT {columns} FROM run WHERE batch_id = ?",  # noqa: S608 - no value in it
        (batch_id,),
    ).fetchone()
    if found is None:
        raise RunUnknown(f"the journal holds no batch {batch_id}")
    return found


def batch_columns(connection: Connection | Commit, row: Row, columns: str = "batch_id") -> Sequence[Any]:
    """Some columns of an order's batch. Raises ``JournalCorrupt`` where another program has deleted it."""
    found: Sequence[Any] | None = connection.execute(
        f"SELECT {columns} FROM run WHERE id = ?",  # noqa: S608 - no value in it
        (run_of(row.id),),
    ).fetchone()
    if found is None:
        raise _lost("run", "batch", row.request_id)
    return found


def chunk_lost(request_id: str) -> JournalCorrupt:
    """Another program has deleted the chunk of an order: nothing in it would ever be sent."""
    return _lost("chunk", "chunk", request_id)


def _lost(table: str, what: str, request_id: str) -> JournalCorrupt:
    return JournalCorrupt(f"the journal has lost the {what} of order {request_id}: rows of its table {table} are gone")


def number_of(connection: Connection | Commit, batch_id: str) -> int:
    """The number of a batch. Raises ``RunUnknown``."""
    return int(run_columns(connection, batch_id, "id")[0])


def bounds_of(connection: Connection, batch_id: str | None) -> tuple[int, int]:
    """First and last number an order of a batch, or of any, can have. Raises ``RunUnknown``."""
    return (0, _HIGHEST) if batch_id is None else bounds(number_of(connection, batch_id))


def runs(connection: Connection) -> Sequence[Run]:
    """All batches, oldest first."""
    found = connection.execute(f"SELECT {_RUNS} FROM run ORDER BY id").fetchall()  # noqa: S608 - no value in it
    return tuple(_run(connection, values) for values in found)


def run(connection: Connection, batch_id: str) -> Run:
    """One batch.

    Raises:
        RunUnknown: There is none of that name.
    """
    return _run(connection, run_columns(connection, batch_id, _RUNS))


def awaited(connection: Connection | Commit, run: int) -> Awaited | None:
    """What has to be seen before anything of a batch is sent: as before an unknown order is parked, or a person's word.

    ``None`` where the journal was not found to be copied or restored, or it was seen since.
    """
    at, since = asked(connection, f"SELECT quarantined_at, {LOOK_SINCE} FROM run WHERE id = ?", (run,))  # noqa: S608
    if at is None:
        return None
    lists = f"""FROM sweep WHERE run = ? AND ended_at IS NOT NULL AND problem IS NULL AND doubted_at >= ?
        AND since <= ? AND counted >= {CLEAN}"""
    values = (run, at, first_day(since))
    (clean,) = asked(connection, f"SELECT count(*) FROM (SELECT 1 {lists} LIMIT {LISTS}) AS seen", values)  # noqa: S608
    if clean >= LISTS or asked(connection, _LIFTED, (run, LIFTED, at)) is not None:
        return None
    after, at = counted_from(connection, run, at)
    (read_at,) = connection.execute(
        "SELECT max(ended_at) FROM sweep WHERE run = ? AND problem IS NULL AND doubted_at >= ? AND id > ?",
        (run, values[1], after),
    ).fetchone()
    return Awaited(at=at, lists=clean, read_at=read_at)


def counted_from(
    connection: Connection | Commit, run: int | None, at: float, begun: float | None = None
) -> tuple[int, float]:
    """From which moment on a doubt is counted: its own, or, where the clock was set back since, that of the first list.

    Args:
        run: The batch whose lists are asked for; ``None`` for those of none.
        at: Unix seconds of the doubt.
        begun: Unix seconds at which the list began that is judged; by default the latest.

    Returns:
        The number of the last list before the clock was set back, or 0, and that moment.
    """
    lists, values = "FROM sweep WHERE coalesce(run, -1) = ? AND doubted_at >= ?", (-1 if run is None else run, at)
    if begun is None:
        latest = connection.execute(f"SELECT begun_at {lists} ORDER BY id DESC LIMIT 1", values).fetchone()
        begun = at if latest is None else float(latest[0])
    (after,) = connection.execute(f"SELECT coalesce(max(id), 0) {lists} AND begun_at > ?", (*values, begun)).fetchone()
    if not after and at <= begun:
        return 0, at
    (first,) = connection.execute(f"SELECT min(begun_at) {lists} AND id > ?", (*values, after)).fetchone()
    return int(after), at if first is None else float(first)  # one that was begun before the doubt knows none after it


def first_day(since: float) -> str:
    """The day on which a list has to begin, or before; one begins a day earlier, whatever the time zone."""
    return datetime.fromtimestamp(since, UTC).date().isoformat()


def entry(connection: Connection, request_id: str) -> Entry | None:
    """One order."""
    row = row_here(connection, request_id)
    return None if row is None else next(_entries_in(connection, [row]))


def readable(connection: Connection, rows: Sequence[Sequence[Any]]) -> list[Entry]:
    """These rows as entries, without those that are damaged: they must not keep anybody from the others."""
    try:
        return list(_entries_in(connection, rows))
    except JournalCorrupt:
        pass
    entries: list[Entry] = []
    for row in rows:
        try:
            entries += _entries_in(connection, [row])
        except JournalCorrupt as error:
            _log.error("order %s cannot be read: %s", row[1], error.message, extra={"request_id": row[1]})
    return entries


def paid_after(since: float, but: str | None) -> PageReader[Entry]:
    """A reader of pages of orders that may be paid yet, or were paid since then, of all batches but one."""
    paid = among((State.ACCEPTED, State.SUCCESSFUL))
    sql = f"""SELECT {COLUMNS} FROM outbox WHERE id > ? AND id NOT BETWEEN ? AND ? AND {IS_HERE}
        AND (state {among((*UNSENT, *UNSETTLED))} OR (state {paid} AND updated_at >= ?))
        ORDER BY id LIMIT {PAGE}"""  # noqa: S608 - no value in it

    def read(connection: Connection, /, *, after: int) -> tuple[Iterable[Entry], int]:
        first, last = next((bounds(run) for run, name in _batches(connection).items() if name == but), (-1, -1))
        start = last if first <= after + 1 <= last else after  # the others of that batch need not be looked at
        rows = connection.execute(sql, (start, first, last, since)).fetchall()
        return _entries_in(connection, rows), rows[-1][0] if rows else after

    return read


def uid(connection: Connection, batch_id: str) -> str:
    """What tells a batch from one of the same name that a restored file does not hold any more.

    Raises:
        RunUnknown: There is none of that name.
    """
    return str(run_columns(connection, batch_id, "uid")[0])


def entries_after(batch_id: str | None, state: str | None, *, conflicts: bool = False) -> PageReader[Entry]:
    """A reader of pages of entries, in the sequence they were loaded in."""
    where = ["o.id > ?", "o.id <= ?", f"o.{IS_HERE}"]
    if state is not None:
        where.append(is_in_state("o", state))
    if conflicts:
        where.append("o.conflict IS NOT NULL")
    sql = f"SELECT {COLUMNS} FROM outbox o WHERE {' AND '.join(where)} ORDER BY o.id LIMIT {PAGE}"  # noqa: S608

    def read(connection: Connection, /, *, after: int) -> tuple[list[Entry], int]:
        first, last = bounds_of(connection, batch_id)
        rows = connection.execute(sql, (max(after, first - 1), last)).fetchall()
        entries = readable(connection, rows) if conflicts else list(_entries_in(connection, rows))
        return entries, rows[-1][0] if rows else after

    return read


def open_after(outbox: str, state: State) -> PageReader[OpenOrder]:
    """A reader of pages of orders in one state, of all runs of an outbox; of failed ones, those that are looked for."""
    chosen = FAILED_BY_NOTIFICATION if state is State.FAILED else is_in_state("o", state)
    sql = f"""SELECT o.id, o.request_id, o.updated_at,
        CASE WHEN o.attempt > 0 THEN o.permitted_at ELSE o.updated_at END,
        coalesce((SELECT min(a.permitted_at) FROM attempt a WHERE a.order_id = o.id), o.updated_at)
        FROM outbox o WHERE {chosen} AND o.id > ?
        AND EXISTS (SELECT 1 FROM run WHERE run.id = {run_in("o.id")} AND run.outbox = ?)
        ORDER BY o.id LIMIT {_LONG_PAGE}"""  # noqa: S608 - a state, and numbers

    def read(connection: Connection, /, *, after: int) -> tuple[list[OpenOrder], int]:
        rows = connection.execute(sql, (after, outbox)).fetchall()
        page = [OpenOrder(request_id, state, since, min(last, first)) for _, request_id, since, last, first in rows]
        return page, rows[-1][0] if rows else after

    return read


def progress(connection: Connection, batch_id: str | None, outbox: str | None = None) -> Progress:
    """Counts and sums by state, of a batch, of what an outbox sends, or of all."""
    counts = dict.fromkeys(State, 0)
    sums = dict.fromkeys(State, Decimal(0))
    first, last = 0, _HIGHEST
    sql: str = "SELECT state, count, total FROM progress"
    values: tuple[int | str, ...] = ()
    if outbox is not None:
        sql, values = f"{sql} WHERE {_OF_OUTBOX.format(run='run')}", (outbox,)
    if batch_id is not None:
        number = number_of(connection, batch_id)
        first, last = bounds(number)
        sql, values = f"{sql} WHERE run = ?", (number,)
    for name, count, total in connection.execute(sql, values):
        state = _STATES[name]
        counts[state] += count
        sums[state] = EXACT.add(sums[state], Decimal(total))
    of_outbox = "TRUE" if outbox is None else _OF_OUTBOX.format(run=run_in("o.id"))
    of = () if outbox is None else (outbox,)
    (conflicts,) = connection.execute(
        f"SELECT count(*) FROM outbox o WHERE conflict IS NOT NULL AND id BETWEEN ? AND ? AND {of_outbox}",  # noqa: S608
        (first, last, *of),
    ).fetchone()
    (unconfirmed,) = connection.execute(
        f"""SELECT count(DISTINCT o.id) FROM ipn_event e CROSS JOIN outbox o
        WHERE o.request_key = e.request_key AND e.doubt = 'unconfirmed' AND e.state <> 'disputed' AND o.{IS_HERE}
        AND o.id BETWEEN ? AND ? AND {of_outbox}""",  # noqa: S608
        (first, last, *of),
    ).fetchone()
    return Progress(counts=counts, sums=sums, conflicts=conflicts, unconfirmed=unconfirmed)


def oldest(connection: Connection, outbox: str, now: float) -> Mapping[State, float]:
    """Since when orders of an outbox that are due wait to be sent, and since when others are unknown or parked.

    Of those that wait the first chunks are looked at, in which the oldest are.
    """
    since: dict[State, float] = {}
    of_outbox = _OF_OUTBOX.format(run=run_in("o.id"))
    for state in (State.UNKNOWN, State.PARKED):
        (at,) = connection.execute(
            f"SELECT min(o.updated_at) FROM outbox o WHERE {is_in_state('o', state)} AND {of_outbox}",  # noqa: S608
            (outbox,),
        ).fetchone()
        if at is not None:
            since[state] = at
    looked: dict[int, int] = {}
    chunks = connection.execute(
        """SELECT r.id, c.number FROM run r CROSS JOIN chunk c
        WHERE c.run = r.id AND c.state = 'open' AND r.outbox = ? AND r.state = 'ready' AND c.due_at <= ?
        ORDER BY r.id, +c.number""",
        (outbox, now),
    ).fetchall()
    for run, number in chunks:
        if looked.get(run, 0) < _LOOKED_AT:
            (at,) = connection.execute(
                f"""SELECT min(CASE WHEN coalesce(put_at, updated_at) > not_before THEN coalesce(put_at, updated_at)
                ELSE not_before END) FROM outbox WHERE id BETWEEN ? AND ? AND state = 'planned' AND {IS_SENDABLE}
                AND not_before <= ?""",  # noqa: S608 - no value in it
                (*chunk_bounds(run, number), now),
            ).fetchone()
            if at is not None:
                looked[run] = looked.get(run, 0) + 1
                since[State.PLANNED] = min(at, since.get(State.PLANNED, at))
    return since


def _entries_in(connection: Connection, rows: Sequence[Sequence[Any]]) -> Iterator[Entry]:
    """Rows of ``COLUMNS`` as entries. What lies beside them is read at once; each entry is made when it is its turn."""
    names, doubts = _batches(connection), doubts_about(connection, rows)

    def named(row: Row) -> str:
        if (name := names.get(run_of(row.id))) is None:
            raise _lost("run", "batch", row.request_id)
        return name

    return (entry_of(row, named(row), doubts.get(row.request_id, NO_DOUBTS)) for row in map(row_of, rows))


def doubts_about(connection: Connection, rows: Sequence[Sequence[Any]]) -> Mapping[str, Doubts]:
    """What a notification alone says of these orders; only of those that there is anything of."""
    failed = [row[0] for row in rows if row[2] == State.FAILED]
    notified = _asked(connection, _FAILED_AMONG, failed) if failed else {}
    (are_there,) = connection.execute("SELECT EXISTS (SELECT 1 FROM ipn_event WHERE doubt = 'unconfirmed')").fetchone()
    keys = {row[1]: plain_id(row[1]) for row in rows if row[1] is not None}  # of a change without an order
    counts = _asked(connection, _UNCONFIRMED_AMONG, list(keys.values())) if are_there and keys else {}
    doubted = [one for one, key in keys.items() if key in counts or one in notified]
    return {one: Doubts(counts.get(keys[one], 0), one in notified) for one in doubted}


def _asked(connection: Connection, sql: str, values: Sequence[object]) -> dict[str, int]:
    """What a statement tells of these."""
    return dict(connection.execute(sql.format(marks=", ".join("?" * len(values))), values).fetchall())


def _run(connection: Connection, values: Sequence[Any]) -> Run:
    """A row of ``_RUNS`` as a run."""
    number, batch_id, address, fingerprint, user_id, state, source_digest, policy, *doubts, kind, outbox, archived = (
        values
    )
    quarantined_at, since = doubts
    total, amount = 0, Decimal(0)
    for count, part in connection.execute("SELECT count, total FROM progress WHERE run = ?", (number,)):
        total, amount = total + count, EXACT.add(amount, Decimal(part))
    (quarantined,) = connection.execute(
        "SELECT count(*) FROM chunk WHERE run = ? AND state = 'quarantined'", (number,)
    ).fetchone()
    return Run(
        batch_id=batch_id,
        identity=RunIdentity(base_address=address, key_fingerprint=fingerprint, user_id=user_id),
        ready=state == "ready",
        total=total,
        amount=amount,
        source_digest=source_digest,
        policy=policy,
        quarantined=quarantined,
        quarantined_at=quarantined_at,
        awaits=None if quarantined_at is None else awaited(connection, number),
        look_since=since,
        is_outbox=kind == OUTBOX,
        outbox=outbox,
        archived=archived,
    )


def _batches(connection: Connection) -> dict[int, str]:
    """The names of all batches, by their numbers."""
    return dict(connection.execute("SELECT id, batch_id FROM run"))
