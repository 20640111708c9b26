"""Whether a journal agrees with itself: each order with its digest, its chunk and its story, all of them with the sums.

Everything is read as it was at one moment, however long that takes: nobody who works waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from payments_async.journal._examination import Inconsistency
from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._records import proved
from payments_async.journal._statements._changes import UNWRITTEN
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import EXACT, SHIFT, among, chunk_of, run_of
from payments_async.journal._states import FINAL, State

_PAGE = 1000  # orders at a time
_SHOWN = 5  # examples of one flaw
_MOST = 1000  # of one flaw that are counted where a statement finds them
_RESTORE = (
    "send nothing from it: put back the last copy that agrees with itself, and reconcile; keep this one to look at"
)
_REPORT = "send nothing of these until a person has looked at them; please report it: no version should write this"
_ORDERS = "SELECT id, request_id, state, token, attempt, amount, body, body_sha256, held_at, archive FROM outbox"
_NO_ORDER = """SELECT t.id FROM {table} t LEFT JOIN outbox o ON o.id = t.order_id
    WHERE t.order_id IS NOT NULL AND o.id IS NULL
    AND t.order_id <> 0"""  # of no order is the row that keeps the numbers of a restored journal apart
_OF_ORDERS = {
    "attempt": "attempts of",
    "evidence": "evidence about",
    "resolution": "decisions of persons about",
    "ipn_event": "notifications about",
    "change": "changes of",
}


class _Rule(NamedTuple):
    """What no row may be, and what is said of one that is."""

    about: str
    sql: str
    remedy: str = _REPORT


_RULES = (
    *(
        _Rule(f"{words} orders that are not there", _NO_ORDER.format(table=table))
        for table, words in _OF_ORDERS.items()
    ),
    _Rule(
        "what a file says beside orders that are not there",
        "SELECT t.order_id FROM particulars t LEFT JOIN outbox o ON o.id = t.order_id WHERE o.id IS NULL",
    ),
    _Rule(
        "attempts beyond those that their order counts",
        "SELECT o.request_id FROM attempt t JOIN outbox o ON o.id = t.order_id WHERE t.n > o.attempt",
    ),
    _Rule(
        "orders of batches that are not there",
        "SELECT o.request_id FROM outbox o LEFT JOIN run r ON r.id = o.id >> {shift} WHERE r.id IS NULL",
        _RESTORE,
    ),
    _Rule(
        "chunks of batches that are not there",
        "SELECT c.number FROM chunk c LEFT JOIN run r ON r.id = c.run WHERE r.id IS NULL",
        _RESTORE,
    ),
    _Rule(
        "claims of chunks that are not there, or beyond what the chunk counts",
        """SELECT k.number FROM claim k LEFT JOIN chunk c ON c.run = k.run AND c.number = k.number
        WHERE c.number IS NULL OR k.token > c.token""",
    ),
    _Rule(
        "orders that have left for an archive that is not there, or before they ended",
        f"""SELECT o.request_id FROM outbox o LEFT JOIN archive a ON a.id = o.archive
        WHERE o.archive IS NOT NULL AND (a.id IS NULL OR o.state NOT {among(FINAL)})""",  # noqa: S608 - no value in it
    ),
    _Rule(
        "archives that count other orders than have left for them",
        """SELECT a.path FROM archive a
        LEFT JOIN (SELECT archive, count(*) AS gone FROM outbox WHERE archive IS NOT NULL GROUP BY archive) o
        ON o.archive = a.id WHERE a.orders <> coalesce(o.gone, 0)""",
    ),
    _Rule(
        "batches that count other orders than have left them for an archive",
        """SELECT r.batch_id FROM run r
        LEFT JOIN (SELECT id >> {shift} AS run, count(*) AS gone FROM outbox WHERE archive IS NOT NULL GROUP BY 1) a
        ON a.run = r.id WHERE r.archived <> coalesce(a.gone, 0)""",
    ),
    _Rule(
        "notifications that wait for a handler and are not there",
        """SELECT d.about FROM delivery d LEFT JOIN ipn_event e ON e.id = d.about
        WHERE d.queue = 'inbox' AND e.id IS NULL""",
        _RESTORE,
    ),
    _Rule(
        "changes that wait for a handler and are not there",
        """SELECT d.about FROM delivery d LEFT JOIN change c ON c.id = d.about
        WHERE d.queue = 'outbox' AND c.id IS NULL""",
        _RESTORE,
    ),
    _Rule(
        "deliveries of notifications that are not there",
        "SELECT d.id FROM ipn_delivery d LEFT JOIN ipn_event e ON e.id = d.event_id WHERE e.id IS NULL",
    ),
    _Rule(
        "orders of outboxes whose last change was not written down, so that no handler hears of it",
        f"SELECT o.request_id FROM {UNWRITTEN}",  # noqa: S608 - no value in it
        "`payments-async journal migrate` writes it down, and handlers hear of it",
    ),
    _Rule(
        "sightings that say nothing that is known",
        "SELECT s.request_key FROM sighting s WHERE s.news = ''",
    ),
    _Rule(
        "readings of the service's list for batches that are not there",
        "SELECT w.id FROM sweep w LEFT JOIN run r ON r.id = w.run WHERE w.run IS NOT NULL AND r.id IS NULL",
    ),
)


def count_rows(connection: Connection) -> tuple[int, int, int]:
    """How many orders, notifications and changes there are."""
    orders, notifications, changes = connection.execute(
        "SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM ipn_event), (SELECT count(*) FROM change)"
    ).fetchone()
    return orders, notifications, changes


def flaws_of(connection: Connection, tell: Callable[[int], object]) -> list[Inconsistency]:
    """What does not agree with the rest, in a snapshot.

    Args:
        tell: Called with how many orders were read, now and then.
    """
    flaws = _flaws_of_facts(connection) + _flaws_of_orders(connection, tell)
    for rule in _RULES:
        found = connection.execute(f"{rule.sql.format(shift=SHIFT)} LIMIT {_MOST}").fetchall()
        if found:
            examples = tuple(str(one) for (one,) in found[:_SHOWN])
            flaws.append(Inconsistency(about=rule.about, count=len(found), examples=examples, remedy=rule.remedy))
    return flaws


class _Found:
    """Flaws of orders as they are come upon: how many of each, and the first."""

    def __init__(self) -> None:
        self._flaws: dict[tuple[str, str], list[Any]] = {}

    def note(self, about: str, example: str, remedy: str = _REPORT) -> None:
        """Come upon one."""
        count, examples = self._flaws.get((about, remedy), (0, ()))
        self._flaws[about, remedy] = [count + 1, (*examples, example)[:_SHOWN]]

    def flaws(self) -> list[Inconsistency]:
        """All of them."""
        return [
            Inconsistency(about=about, count=count, examples=examples, remedy=remedy)
            for (about, remedy), (count, examples) in self._flaws.items()
        ]


def _flaws_of_facts(connection: Connection) -> list[Inconsistency]:
    """Whether a journal knows who it is."""
    facts, found = dict(connection.execute("SELECT key, value FROM meta").fetchall()), _Found()
    if len(facts.get("journal_id", "")) != 32:
        found.note("the journal does not know its own name", "journal_id", _RESTORE)
    if not facts.get("commits", "").isdecimal():
        found.note("the journal does not count its commits", "commits", _RESTORE)
    return found.flaws()


def _flaws_of_orders(connection: Connection, tell: Callable[[int], object]) -> list[Inconsistency]:
    """Each order by itself and with its chunk, and all of them with the sums beside them."""
    found, read = _Found(), 0
    chunks, sums = _Chunks(connection, found), _Sums(connection, found)
    for page in _pages(connection, _ORDERS):
        for order_id, request_id, state, token, attempt, amount, body, digest, held_at, archive in page:
            sums.add(order_id, request_id, state, amount)
            if archive is not None:
                continue  # what it said is in the archive
            try:
                proved(request_id, amount, body, digest)
            except JournalCorrupt:
                found.note("orders that are not what they were when they were written down", request_id, _RESTORE)
            if state in (State.SENDING, State.REJECTED) and not attempt:
                found.note(f"orders that are {state} and were never permitted", request_id)
            chunks.compare(order_id, request_id, state, token, is_held_back=held_at is not None)
        read += len(page)
        tell(read)
    sums.compare()
    return found.flaws()


class _Chunks:
    """The chunks of all batches, with which each order is compared."""

    def __init__(self, connection: Connection, found: _Found) -> None:
        self._found = found
        loaded = connection.execute("SELECT id FROM run WHERE state = 'ready'").fetchall()
        self._loaded = {run for (run,) in loaded}
        chunks = connection.execute("SELECT run, number, state, token FROM chunk").fetchall()
        self._chunks = {(run, number): (state, token) for run, number, state, token in chunks}

    def compare(self, order_id: int, request_id: str, state: str, token: int, *, is_held_back: bool) -> None:
        """Whether somebody sends an order that is to be sent, by a permit that is worth something."""
        if (chunk := self._chunks.get((run_of(order_id), chunk_of(order_id)))) is None:
            if run_of(order_id) in self._loaded:
                self._found.note("orders outside of any chunk, which would never be sent", request_id, _RESTORE)
        elif state == State.SENDING and chunk != ("open", token):
            self._found.note("orders under way by a permit that is worth nothing any more", request_id)
        elif state == State.PLANNED and chunk[0] == "done" and not is_held_back:
            self._found.note("orders to be sent in a chunk that is done, which would never be sent", request_id)


class _Sums:
    """Counts and sums by batch and state, as they are and as they are written down."""

    def __init__(self, connection: Connection, found: _Found) -> None:
        self._found = found
        self._names = dict(connection.execute("SELECT id, batch_id FROM run").fetchall())
        told = connection.execute("SELECT run, state, count, total FROM progress").fetchall()
        self._told = {(run, state): (count, total) for run, state, count, total in told}
        self._counts: defaultdict[tuple[int, str], int] = defaultdict(int)
        self._sums: defaultdict[tuple[int, str], Decimal] = defaultdict(Decimal)

    def add(self, order_id: int, request_id: str, state: str, amount: str) -> None:
        """Count an order."""
        key = run_of(order_id), state
        self._counts[key] += 1
        try:
            self._sums[key] = EXACT.add(self._sums[key], Decimal(amount))
        except InvalidOperation:
            self._found.note("orders whose amount is none", request_id, _RESTORE)

    def compare(self) -> None:
        """Whether they are the same."""
        for key in sorted({*self._told, *self._counts}):
            run, state = key
            (count, total), orders, amount = self._told.get(key, (0, "0")), self._counts[key], self._sums[key]
            if (count, Decimal(total)) != (orders, amount):
                words = f"counts {count:,} {state} of {total}, and has {orders:,} of {amount:f}"
                self._found.note(
                    "sums that are not those of the orders", f"batch {self._names.get(run, run)} {words}", _RESTORE
                )


def _pages(connection: Connection, sql: str) -> Iterator[list[Any]]:
    """All rows by their numbers, some at a time."""
    last = -1
    while page := connection.execute(f"{sql} WHERE id > ? ORDER BY id LIMIT {_PAGE}", (last,)).fetchall():
        yield page
        last = page[-1][0]
