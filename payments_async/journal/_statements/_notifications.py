"""Notifications that come: stored once, counted when they come again, and settling their orders."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, NamedTuple

import attrs
import msgspec

from payments_async._values.amounts import magnitude_text
from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import account_of
from payments_async._wire.events import EVENT_TYPES, TransactionEvent, TransactionUnrecognised, contradiction_of_events
from payments_async._wire.notifications import UnreadableNotification, read_notification
from payments_async._wire.status_codes import FINAL_CODES
from payments_async.journal._faults import JournalCorrupt
from payments_async.journal._inbox import Arrival, Doubt, Heard, Receipt
from payments_async.journal._records import Evidence, Row, TransitionResult, unpack_transaction_id
from payments_async.journal._statements import _deliveries, _evidence
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._deliveries import INBOX
from payments_async.journal._statements._entries import Commit, Question, by_request, change, marks_for, row_by_request
from payments_async.journal._statements._evidence import apply, find
from payments_async.journal._states import CONFIRMED, State
from payments_async.journal._weighing import evidence_of

_log = logging.getLogger("payments_async.journal")
_made = tuple.__new__  # what calling the class of a named tuple gives, in a tenth of the time
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_LARGE = 1024  # bytes from which on a body is kept compressed
_COMPRESSED = b"\0z"  # what stands before it then; no JSON begins so
_USUAL = bytearray()  # of an event of which its delivery says all
_DECIMAL = "$decimal"  # how an exact number among the unknown members of an event is marked
_BLOCK = 40  # rows in one statement: every number of them is a statement of its own to prepare and to remember
_PAGE = 1000  # names in memory at once, for somebody to say whether they are wanted
_LAST = (1 << 63) - 1
_DOUBTS = (None, Doubt.UNCONFIRMED, Doubt.REPORTED)  # the more believed first
# What is bound is text, a number or a bytearray. Anything else, None and bytes included, goes through sqlite3's
# adapters: dearer than all the rest of the row.
_EVENT = """INSERT INTO ipn_event (transaction_id, status_code, amount, request_key, event, body, query, peer,
    received_at) VALUES """
_ONE_EVENT = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EVENTS = [
    f"{_EVENT}{','.join([_ONE_EVENT] * rows)} ON CONFLICT (transaction_id, status_code, amount) DO NOTHING"
    for rows in range(_BLOCK + 1)
]
_BELIEVED = "state <> 'disputed' AND doubt IS NULL AND conflict IS NULL"
_IS_FINAL = f"status_code IN ({', '.join(map(str, FINAL_CODES))})"
_CONFIRMED = ", ".join(f"'{state}'" for state in sorted(CONFIRMED))
_FINALS = f"SELECT id, transaction_id, status_code, event, body, query FROM ipn_event WHERE {_IS_FINAL} AND"  # noqa: S608
# How far it is, and a page of what came after: new events, or those believed later than they came.
_NEWEST = "SELECT (SELECT coalesce(max(id), 0) FROM ipn_event), (SELECT coalesce(max(id), 0) FROM ipn_believed)"
_NEW = f"""SELECT id, id, request_key, transaction_id FROM ipn_event
    WHERE id > ? AND {_IS_FINAL} AND {_BELIEVED} ORDER BY id LIMIT {_PAGE}"""  # noqa: S608 - no value in it
_NEWLY_BELIEVED = f"""SELECT b.id, e.id, e.request_key, e.transaction_id FROM ipn_believed b
    JOIN ipn_event e ON e.id = b.event_id WHERE b.id > ? ORDER BY b.id LIMIT {_PAGE}"""  # noqa: S608
# The newest event, and whether there are orders at all; and which of these transactions were told of before.
_STANDING = "SELECT (SELECT coalesce(max(id), 0) FROM ipn_event), EXISTS (SELECT 1 FROM outbox)"
_TOLD_OF = "SELECT DISTINCT transaction_id FROM ipn_event WHERE transaction_id IN ({marks})"
_LATEST_TIED = 20  # events of orders that are asked which account is ours
_ANOTHER_ACCOUNT = "it is about another account than those that orders of this journal are notified for"
# Of the latest events of orders, those of orders that the service's own answer or list had accepted before they came.
_CONFIRMED_EVENTS = f"""SELECT e.transaction_id, e.status_code, e.event, e.body, e.query FROM (
    SELECT id, order_id, transaction_id, status_code, event, body, query FROM ipn_event
    WHERE id > (SELECT max(id) - {_PAGE} FROM ipn_event) AND order_id > 0 AND {_BELIEVED}
    ORDER BY id DESC LIMIT {_LATEST_TIED}) e WHERE EXISTS (
    SELECT 1 FROM evidence v WHERE v.order_id = e.order_id AND v.event_id = e.id AND v.conflict IS NULL)
    AND NOT EXISTS (SELECT 1 FROM evidence v WHERE v.order_id = e.order_id AND v.conflict IS NULL
    AND v.event_id IS NOT NULL AND v.before NOT IN ({_CONFIRMED})) ORDER BY e.id DESC"""  # noqa: S608 - no value in it
_REFUSED = f"""SELECT id, peer, received_at, transaction_id, status_code, event, body, query FROM ipn_event
    WHERE request_key = ? AND transaction_id = ? AND order_id IS NULL AND state <> 'disputed' AND doubt IS NULL
    AND conflict = '{_ANOTHER_ACCOUNT}' ORDER BY id"""  # noqa: S608 - no value in it
_AGAIN = """INSERT INTO ipn_delivery (event_id, digest, body, query, peer, received_at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (event_id, digest) DO UPDATE SET times = ipn_delivery.times + 1, last_at = excluded.received_at"""
# two selects, for SQLite looks for an index for each; an OR would read the whole table
_UNMATCHED = """SELECT id, peer, received_at, transaction_id, status_code, event, body, query FROM ipn_event
    WHERE order_id IS NULL AND state <> 'disputed' AND doubt IS NULL AND request_key = ?
    UNION ALL SELECT id, peer, received_at, transaction_id, status_code, event, body, query FROM ipn_event
    WHERE order_id IS NULL AND state <> 'disputed' AND doubt IS NULL AND request_key IS NULL AND transaction_id = ?
    ORDER BY id"""


@attrs.define
class NotificationsStored:
    """Deliveries to be stored with their events, which settle their orders; and events to be closed.

    Attributes:
        holder: By which the owner's life is known.
        handled: The events to be closed.
    """

    arrivals: Sequence[Arrival]
    owner: str
    holder: str
    handled: Sequence[int]

    def __call__(self, commit: Commit) -> Sequence[Receipt | Exception]:
        """Store each arrival by itself: the failure of one is its own."""
        if self.handled:
            _deliveries.close(commit, INBOX, self.handled, self.holder)
        return [self._store_one(commit, arrival) for arrival in self.arrivals]

    def at_once(self, commit: Commit) -> Sequence[Receipt]:
        """Store all of them together; when one fails, all have failed."""
        if self.handled:
            _deliveries.close(commit, INBOX, self.handled, self.holder)
        return _store_all(commit, self.arrivals, self.owner, self.holder) if self.arrivals else ()

    def _store_one(self, commit: Commit, arrival: Arrival) -> Receipt | Exception:
        """Of several that cannot be stored together: by itself, so that its failure is its own."""
        try:
            return commit.undoing(partial(_store_all, commit, (arrival,), self.owner, self.holder))[0]
        except commit.database.Error as error:
            if not commit.goes_on(error):
                raise
            fault = commit.database.translated(error)
            fault.__cause__ = error
            return fault
        except Exception as error:  # noqa: BLE001 - each arrival's failure is its own
            return error


def receive_all(commit: Commit, receiving: Sequence[NotificationsStored]) -> Sequence[Sequence[Receipt]]:
    """Store in few statements what several asked for at once."""
    commit.look_ahead(question for one in receiving if one.arrivals for question in _questions(one.arrivals))
    return [one.at_once(commit) for one in receiving]


def final_events(
    connection: Connection, request_id: str, transaction_id: str | None, most: int
) -> list[TransactionEvent]:
    """The first final events of an order, or of a transaction of it, that are evidence and that nothing contradicts."""
    key = plain_id(request_id)
    sql: str = "request_key = ?"
    values: tuple[str, ...] = (key,)
    if transaction_id is not None:
        sql, values = "transaction_id = ? AND coalesce(request_key, ?) = ?", (transaction_id, key, key)
    found = connection.execute(f"{_FINALS} {sql} AND {_BELIEVED} ORDER BY +id", values)
    events: list[TransactionEvent] = []
    for event_id, *stored in found:
        try:
            events.append(read_event(*stored))
        except JournalCorrupt as error:  # it is made a dead letter when somebody wants to handle it
            _log.error(
                "a stored notification cannot be read: event %s: %s",
                event_id,
                error,
                extra={"event_id": event_id, "error": str(error)},
            )
        if len(events) == most:
            break
    return events


def first_finals(connection: Connection, request_ids: Sequence[str]) -> dict[str, TransactionEvent]:
    """The first of each of these orders that has any."""
    found = {request_id: final_events(connection, request_id, None, 1) for request_id in request_ids}
    return {request_id: events[0] for request_id, events in found.items() if events}


def finals_since(
    connection: Connection, heard: Heard | None, is_wanted: Callable[[str | None, str], bool]
) -> tuple[Heard, Sequence[TransactionEvent]]:
    """The final events that became evidence since, and how far that is: those of a moment between may come twice."""
    now = Heard(*connection.execute(_NEWEST).fetchone())
    if heard is None:
        return now, ()
    wanted: list[int] = []
    for sql, after, newest in ((_NEW, heard.event, now.event), (_NEWLY_BELIEVED, heard.belief, now.belief)):
        while after < newest:
            page = connection.execute(sql, (after,)).fetchall()
            wanted += [event_id for _, event_id, *names in page if is_wanted(*names)]
            after = page[-1][0] if len(page) == _PAGE else newest
    events = []
    for event_id in dict.fromkeys(wanted):
        for _, *stored in connection.execute(f"{_FINALS} id = ? AND {_BELIEVED}", (event_id,)):
            try:
                events.append(read_event(*stored))
            except JournalCorrupt as error:  # as above
                _log.error(
                    "a stored notification cannot be read: event %s: %s",
                    event_id,
                    error,
                    extra={"event_id": event_id, "error": str(error)},
                )
    return now, events


def unmatched(connection: Connection) -> int:
    """Events of orders the outbox does not hold."""
    (count,) = connection.execute(
        """SELECT (SELECT count(*) FROM ipn_event WHERE request_key IS NOT NULL AND order_id IS NULL)
        + (SELECT count(*) FROM ipn_event WHERE request_key IS NULL AND order_id IS NULL)
        - (SELECT count(*) FROM ipn_event WHERE doubt IS NOT NULL AND order_id IS NULL)"""
    ).fetchone()
    return int(count)


def _store_all(commit: Commit, arrivals: Sequence[Arrival], owner: str, holder: str) -> list[Receipt]:
    """A few statements for all: each one hands the interpreter over and back, which costs more than the row."""
    commit.nameless = None
    is_doubted = any(arrival.doubt is not None for arrival in arrivals)
    newest, has_orders = commit.finds_as_before(_STANDING)
    told_before = {transaction for (transaction,) in commit.execute(*_told_of(arrivals)).fetchall()}
    stored = 0
    for start in range(0, len(arrivals), _BLOCK):
        values: list[object] = []
        block = arrivals[start : start + _BLOCK]
        for arrival in block:
            delivery, event = arrival.delivery, arrival.event
            values += (
                event.transaction_id,
                event.status_code,
                magnitude_text(event.amount),
                _key(event),
                _USUAL if arrival.usual else _pack_event(event),
                _pack_body(delivery.body),
                delivery.query,
                delivery.peer,
                delivery.received_at,
            )
        stored += commit.writes(len(block), _EVENTS[len(block)], values)
    commit.will_find((newest + stored, has_orders), _STANDING, ())
    numbers: Sequence[int | None] = range(newest + 1, newest + stored + 1)  # nobody else writes meanwhile
    if stored < len(arrivals):
        numbers = _numbers(commit, arrivals, after=newest)
    if is_doubted:
        for number, arrival in zip(numbers, arrivals, strict=True):
            if arrival.doubt is not None and number is not None:
                commit.execute("UPDATE ipn_event SET doubt = ? WHERE id = ?", (arrival.doubt, number))
    commit.passed("receive.stored")
    again = _told_again(numbers, arrivals, told_before)
    conflicts: Mapping[int, str] = {}
    if again or has_orders:
        new = {
            number: arrival
            for number, arrival in zip(numbers, arrivals, strict=True)
            if number is not None and arrival.doubt is None
        }
        conflicts = _settle_orders(commit, new, again, has_orders=has_orders)
    _make_wanted_pending(commit, numbers, arrivals, conflicts, owner, holder)
    return [
        _repeat(commit, arrival, owner, holder)
        if number is None
        else _made(Receipt, (number, True, conflicts.get(number)))
        for number, arrival in zip(numbers, arrivals, strict=True)
    ]


def _numbers(commit: Commit, arrivals: Sequence[Arrival], *, after: int) -> Sequence[int | None]:
    """The event each arrival became, or ``None`` where one was known; of those that repeat each other, the first."""
    found = commit.execute("SELECT transaction_id, status_code, amount, id FROM ipn_event WHERE id > ?", (after,))
    new = {tuple(fact): number for *fact, number in found.fetchall()}
    return [new.pop(_fact_of(arrival.event), None) for arrival in arrivals]


def _questions(arrivals: Sequence[Arrival]) -> Iterator[Question]:
    """What is asked of these before they are stored: which transactions were told of before, and their orders."""
    yield _told_of(arrivals)
    for arrival in arrivals:
        if arrival.event.request_id is not None:
            yield by_request(arrival.event.request_id)


def _told_of(arrivals: Sequence[Arrival]) -> Question:
    """The question which of their transactions were told of before."""
    marks, named = marks_for([arrival.event.transaction_id for arrival in arrivals])
    return _TOLD_OF.format(marks=marks), named


def _told_again(numbers: Sequence[int | None], arrivals: Sequence[Arrival], told_before: Set[str]) -> Set[int]:
    """The new events whose transaction was told of before, be it by one of those beside them."""
    again, told = set(), set(told_before)
    for number, arrival in zip(numbers, arrivals, strict=True):
        if number is not None:
            transaction = arrival.event.transaction_id
            if transaction in told:
                again.add(number)
            told.add(transaction)
    return again


def _settle_orders(commit: Commit, new: Mapping[int, Arrival], again: Set[int], *, has_orders: bool) -> dict[int, str]:
    """Let new events settle their orders, and tell which of them contradict what.

    Args:
        again: Those whose transaction was told of before.
    """
    conflicts = {}
    for number in new if has_orders else sorted(again & new.keys()):
        (delivery, event, *_), is_again = new[number], number in again
        conflict = _settle_order(
            commit,
            number,
            event,
            delivery.peer,
            delivery.received_at,
            told_before=is_again,
            has_orders=has_orders,
            is_new=True,
        )
        if conflict is not None:
            conflicts[number] = conflict
    return conflicts


def _make_wanted_pending(
    commit: Commit,
    numbers: Sequence[int | None],
    arrivals: Sequence[Arrival],
    conflicts: Mapping[int, str],
    owner: str,
    holder: str,
) -> None:
    """Make pending what somebody would handle, and what contradicts."""
    waiting: dict[float, list[int]] = {}
    for number, arrival in zip(numbers, arrivals, strict=True):
        is_wanted = not arrival.unheard or number in conflicts
        if is_wanted and number is not None and arrival.doubt != Doubt.REPORTED:
            waiting.setdefault(arrival.lease, []).append(number)
    for lease, held in waiting.items():
        _deliveries.add(commit, held, owner, holder, lease)


class _KnownEvent(NamedTuple):
    """The event that a delivery tells of again."""

    id: int
    conflict: str | None
    state: str
    doubt: str | None
    request_key: str | None
    order_id: int | None
    is_same: bool


def _key(event: TransactionEvent) -> str | None:
    """What the request id that an event names is known by."""
    return None if event.request_id is None else plain_id(event.request_id)


def _fact_of(event: TransactionEvent) -> tuple[str, int, str]:
    """What makes an event the same event."""
    return event.transaction_id, event.status_code, magnitude_text(event.amount)


def _settle_order(
    commit: Commit,
    number: int,
    event: TransactionEvent,
    peer: str,
    at: float,
    *,
    told_before: bool = True,
    has_orders: bool = True,
    is_new: bool = False,
    is_confirmed: bool = False,
) -> str | None:
    """Let an event settle its order, and note and tell what it contradicts.

    Args:
        is_confirmed: The service's own record agrees with it, whatever account it names.
        told_before: Whether its transaction may have been told of before.
        has_orders: Whether there are any orders.
        is_new: Whether it came just now, so that only what came before it can be contradicted by it.
    """
    conflict = _contradiction(commit, event, number, is_new=is_new) if told_before else None
    row = find(commit, event.request_id, event.transaction_id) if has_orders else None
    if row is not None:
        against = None if is_confirmed else _of_another_account(commit, row, event)
        finding = _apply_event(commit, row, event, event_id=number, peer=peer, at=at, against=against)
        conflict = finding.conflict if conflict is None else conflict
    if conflict is not None:
        commit.execute("UPDATE ipn_event SET conflict = ? WHERE id = ?", (conflict, number))
    return conflict


def confirm(commit: Commit, event_id: int) -> str | None:
    """An event is evidence from now on."""
    found = commit.execute(
        """UPDATE ipn_event SET doubt = NULL WHERE id = ? AND doubt IS NOT NULL
        RETURNING peer, received_at, transaction_id, status_code, event, body, query""",
        (event_id,),
    ).fetchall()
    for peer, at, *stored in found:
        _deliveries.begin_anew(commit, INBOX, event_id)
        _note_believed(commit, event_id)
        return _settle_order(commit, event_id, read_event(*stored), peer, at, is_confirmed=True)
    known = commit.execute("SELECT conflict FROM ipn_event WHERE id = ?", (event_id,)).fetchone()
    return None if known is None else known[0]


def _repeat(commit: Commit, arrival: Arrival, owner: str, holder: str) -> Receipt:
    """A delivery of an event that is known: the same again is counted, other words for it are kept.

    Where it is believed more than the first, or names the request id that the first left out, it takes its place.
    """
    known = _known(commit, arrival)
    event, at = arrival.event, arrival.delivery.received_at
    is_better = _DOUBTS.index(arrival.doubt) < _DOUBTS.index(known.doubt)
    is_as_good = arrival.doubt == known.doubt
    key = _key(event)
    says_more = is_as_good and known.request_key is None and key is not None
    says_other = is_as_good and None not in (known.request_key, key) and known.request_key != key
    # the record spoke against those words, not against these; and it may have been mended since
    is_undisputed = is_as_good and known.state == "disputed" and known.doubt is not None
    if not (is_better or says_more or is_undisputed):
        _count(commit, arrival, known)
        conflict = _contest(commit, arrival, known) if says_other and arrival.doubt is None else known.conflict
        return Receipt(event_id=known.id, is_new=False, conflict=conflict)
    _replace(commit, arrival, known, anew=is_better or is_undisputed)
    conflict = known.conflict
    if arrival.doubt is None:
        _note_believed(commit, known.id)
        conflict = _settle_order(commit, known.id, event, arrival.delivery.peer, at)
    is_new = known.doubt == Doubt.REPORTED or is_undisputed
    if is_better:
        _deliveries.revive(commit, INBOX, known.id)  # as what nobody bore out it had come to its end
    if is_new and (conflict is not None or not arrival.unheard):
        _deliveries.forget(commit, INBOX, [known.id])  # what was done about other words
        _deliveries.add(commit, [known.id], owner, holder, arrival.lease)
    return Receipt(event_id=known.id, is_new=is_new, conflict=conflict)


def _note_believed(commit: Commit, event_id: int) -> None:
    """What was stored before is evidence from now on, or is so of another order: those who wait hear of it."""
    commit.execute(
        "INSERT INTO ipn_believed (id, event_id) SELECT coalesce(max(id), 0) + 1, ? FROM ipn_believed", (event_id,)
    )


def _known(commit: Commit, arrival: Arrival) -> _KnownEvent:
    """The event that says the same as this arrival."""
    delivery = arrival.delivery
    return _KnownEvent(
        *commit.execute(
            """SELECT id, conflict, state, doubt, request_key, order_id, body = ? AND query = ? FROM ipn_event
            WHERE transaction_id = ? AND status_code = ? AND amount = ?""",
            (_pack_body(delivery.body), delivery.query, *_fact_of(arrival.event)),
        ).fetchone()
    )


def _count(commit: Commit, arrival: Arrival, known: _KnownEvent) -> None:
    """The same words are counted, other words are kept beside the first."""
    delivery = arrival.delivery
    if known.is_same:
        commit.execute(
            "UPDATE ipn_event SET times = times + 1, last_at = ? WHERE id = ?", (delivery.received_at, known.id)
        )
    else:
        words = (delivery.digest, _pack_body(delivery.body), delivery.query, delivery.peer, delivery.received_at)
        commit.execute(_AGAIN, (known.id, *words))


def _replace(commit: Commit, arrival: Arrival, known: _KnownEvent, *, anew: bool) -> None:
    """Let a delivery take the place of the first; the words of the first are kept beside it."""
    delivery, event = arrival.delivery, arrival.event
    body, query, peer, at = commit.execute(
        "SELECT body, query, peer, received_at FROM ipn_event WHERE id = ?", (known.id,)
    ).fetchone()
    first = delivery._replace(body=_unpack_body(body), query=query)
    commit.execute(_AGAIN, (known.id, first.digest, bytearray(body), query, peer, at))
    commit.execute(
        """UPDATE ipn_event SET request_key = ?, event = ?, body = ?, query = ?, peer = ?, received_at = ?, doubt = ?,
        conflict = NULL, state = CASE WHEN ? = 1 THEN 'handled' ELSE state END,
        error = CASE WHEN ? = 1 THEN NULL ELSE error END WHERE id = ?""",
        (
            _key(event),
            _USUAL if arrival.usual else _pack_event(event),
            _pack_body(delivery.body),
            delivery.query,
            delivery.peer,
            delivery.received_at,
            arrival.doubt,
            anew,
            anew,
            known.id,
        ),
    )


def _contest(commit: Commit, arrival: Arrival, known: _KnownEvent) -> str | None:
    """The same notification under another request id: a contradiction, for the order it names now as well."""
    event, delivery = arrival.event, arrival.delivery
    row = None if event.request_id is None else row_by_request(commit, event.request_id)
    if row is None or row.id == known.order_id:
        return known.conflict
    said = commit.execute(
        "SELECT conflict FROM evidence WHERE order_id = ? AND event_id = ?", (row.id, known.id)
    ).fetchone()
    if said is not None:
        return str(said[0])
    words = f"transaction {event.transaction_id} was notified of before, as that of request id {known.request_key}"
    return _apply_event(
        commit, row, event, event_id=known.id, peer=delivery.peer, at=delivery.received_at, against=words
    ).conflict


def _contradiction(commit: Commit, event: TransactionEvent, event_id: int, *, is_new: bool) -> str | None:
    """What an event contradicts of the first final one of its transaction, in words."""
    final = commit.execute(
        f"""SELECT status_code, amount FROM ipn_event WHERE transaction_id = ? AND {_IS_FINAL}
        AND id <> ? AND id < ? AND {_BELIEVED} ORDER BY +id LIMIT 1""",  # noqa: S608 - no value in it
        (event.transaction_id, event_id, event_id if is_new else _LAST),
    ).fetchone()
    if final is None:
        return None
    return contradiction_of_events(event.status_code, magnitude_text(event.amount), *final)


def _apply_event(
    commit: Commit,
    row: Row,
    event: TransactionEvent,
    *,
    event_id: int,
    peer: str,
    at: float,
    against: str | None = None,
) -> TransitionResult:
    """A notification as evidence; ties the event to its order, unless something speaks against that."""
    if against is None:
        commit.execute("UPDATE ipn_event SET order_id = ? WHERE id = ?", (row.id, event_id))
    evidence = evidence_of(event, peer=peer, at=at)
    return apply(commit, row, evidence, event_id=event_id, against=against)


def _of_another_account(commit: Commit, row: Row, event: TransactionEvent) -> str | None:
    """Why an event that nothing else confirms is about another account: the latest confirmed ones all name others.

    Another account or environment that notifies the same address may use the same request ids. A client may have
    several accounts; the one that an order names is its own.
    """
    theirs = _plain_account(event.account_id)
    if theirs is None or row.state in CONFIRMED or theirs == _plain_account(account_of(row.body)):
        return None
    is_known = False
    for stored in commit.execute(_CONFIRMED_EVENTS).fetchall():
        try:
            named = _plain_account(read_event(*stored).account_id)
        except JournalCorrupt:  # it is made a dead letter where it is handled
            continue
        if named == theirs:
            return None
        is_known = is_known or named is not None
    return _ANOTHER_ACCOUNT if is_known else None  # without the ids, which no log may show


def _plain_account(account: str | None) -> str | None:
    """An account id as it is compared: one spelling writes text, another a number."""
    return (account or "").strip().casefold().lstrip("0") or None


def apply_evidence(commit: Commit, evidence: Evidence) -> TransitionResult | None:
    """Weigh what somebody found out, and what came before of a transaction that the service says is the order's."""
    found = _evidence.apply_evidence(commit, evidence)
    return None if found is None else apply_refused_events(commit, found)


def apply_refused_events(commit: Commit, found: TransitionResult) -> TransitionResult:
    """Once the service has said that it has an order, apply what came of that transaction for an unexpected account."""
    if found.state not in CONFIRMED or found.before in CONFIRMED:
        return found
    row = row_by_request(commit, found.request_id)
    if row is None or row.conflict is None:
        return found
    about = plain_id(row.request_id), unpack_transaction_id(row.transaction_id)
    for event_id, peer, at, *stored in commit.execute(_REFUSED, about).fetchall():
        try:
            event = read_event(*stored)
        except JournalCorrupt:  # it is made a dead letter where it is handled
            continue
        told = _apply_event(commit, row, event, event_id=event_id, peer=peer, at=at)
        commit.execute("UPDATE ipn_event SET conflict = ? WHERE id = ?", (told.conflict, event_id))
        _note_believed(commit, event_id)
        row = row_by_request(commit, row.request_id) or row
    return attrs.evolve(found, state=row.state)


def apply_unmatched_events(commit: Commit, row: Row) -> None:
    """Notifications that came before the journal knew whose they were."""
    found = commit.execute(
        _UNMATCHED,
        (plain_id(row.request_id), unpack_transaction_id(row.transaction_id)),
    ).fetchall()
    for event_id, peer, at, *stored in found:
        try:
            event = read_event(*stored)
        except JournalCorrupt as error:
            _set_aside(commit, row, event_id, error)
        else:
            against = _of_another_account(commit, row, event)
            finding = _apply_event(commit, row, event, event_id=event_id, peer=peer, at=at, against=against)
            if finding.conflict is not None:
                commit.execute(
                    "UPDATE ipn_event SET conflict = coalesce(conflict, ?) WHERE id = ?", (finding.conflict, event_id)
                )
        latest = row_by_request(commit, row.request_id)
        assert latest is not None
        row = latest


def part_numbers(commit: Commit) -> None:
    """Give no event a number that one may have had which this file has forgotten: handlers know events by them.

    The numbers of events are dense, so a row that tells of nothing lies between those of before and those to come.
    """
    number = int(commit.now * 1_000_000)  # more than there have ever been events
    commit.execute(
        """INSERT INTO ipn_event (id, transaction_id, status_code, amount, event, body, query, peer, received_at,
        order_id) SELECT CASE WHEN max(id) < ? THEN ? ELSE max(id) + 1 END, 'restored', -1, ?, ?, ?, '', '', ?, 0
        FROM ipn_event HAVING max(id) > 0""",
        (number, number, str(number), _USUAL, bytearray(), commit.now),
    )


def make_dead_letter(commit: Commit, event_id: int, error: Exception) -> None:
    """Make a dead letter of an event that cannot be read, so that it holds up nothing."""
    _log.error(
        "a stored notification cannot be read: event %s: %s",
        event_id,
        error,
        extra={"event_id": event_id, "error": str(error)},
    )
    _deliveries.bury_unread(commit, event_id, str(error))


def _set_aside(commit: Commit, row: Row, event_id: int, error: JournalCorrupt) -> None:
    """A notification that cannot be read says one thing all the same: somebody told of this order."""
    make_dead_letter(commit, event_id, error)
    commit.execute("UPDATE ipn_event SET order_id = ? WHERE id = ?", (row.id, event_id))
    state = State.PARKED if row.state is State.PLANNED else row.state
    change(commit, row, state, conflict=f"a notification about it (event {event_id}) cannot be read")


def _pack_body(body: bytes) -> bytearray:
    """A notification's body as it is stored: a large one compressed. The same gives the same."""
    if len(body) < _LARGE and not body.startswith(_COMPRESSED):
        return bytearray(body)  # None and bytes go through the adapters of sqlite3, which are dear
    packed = zlib.compress(body, 6)
    return bytearray(_COMPRESSED + packed if len(packed) < len(body) or body.startswith(_COMPRESSED) else body)


def _unpack_body(stored: bytes) -> bytes:
    """A body as it came.

    Raises:
        JournalCorrupt: It is not what was stored.
    """
    if not stored.startswith(_COMPRESSED):
        return stored
    try:
        return zlib.decompress(stored[len(_COMPRESSED) :])
    except zlib.error as error:
        raise JournalCorrupt("the body of a notification cannot be read") from error


def _pack_event(event: TransactionEvent) -> bytearray:
    """What an event says beyond its transaction and status code, as JSON; compressed where it says much."""
    members = event.__dict__.copy()  # half the time of going through its attributes
    del members["transaction_id"], members["status_code"], members["event_id"]
    members.pop("conflict", None)  # is told by the inbox, not by the service
    if extra := members.pop("extra"):
        members["extra"] = _marked(extra)
    packed = _encode(members)
    return bytearray(packed) if len(packed) < _LARGE else _pack_body(packed)


def read_event(transaction_id: str, status_code: int, packed: bytes, body: bytes, query: str) -> TransactionEvent:
    """The event in a row: what ``_pack_event`` wrote, or what the delivery says where nothing was written.

    Raises:
        JournalCorrupt: It does not say it, or cannot be read.
    """
    try:
        return _unpacked(transaction_id, status_code, packed) if packed else _read_again(
            transaction_id, status_code, body, query
        )  # fmt: skip
    except (msgspec.DecodeError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise JournalCorrupt(f"the notification of transaction {transaction_id} cannot be read") from error


def _unpacked(transaction_id: str, status_code: int, packed: bytes) -> TransactionEvent:
    members = _decode(_unpack_body(packed))
    if (text := members.get("created_on")) is not None:
        members["created_on"] = datetime.fromisoformat(text)
    if (text := members.get("amount")) is not None:
        members["amount"] = Decimal(text)
    if "extra" in members:
        members["extra"] = _unmarked(members["extra"])
    return EVENT_TYPES.get(status_code, TransactionUnrecognised)(
        transaction_id=transaction_id, status_code=status_code, **members
    )


def _read_again(transaction_id: str, status_code: int, body: bytes, query: str) -> TransactionEvent:
    cause: UnreadableNotification | None = None
    try:
        event = read_notification(_unpack_body(body), query)
        if (event.transaction_id, event.status_code) == (transaction_id, status_code):
            return event
    except UnreadableNotification as error:
        cause = error
    raise JournalCorrupt(f"the notification of transaction {transaction_id} is not what was stored") from cause


def _marked(value: Any) -> Any:
    match value:
        case Decimal():
            return {_DECIMAL: str(value)}
        case int() if not isinstance(value, bool) and value.bit_length() > 63:
            return {_DECIMAL: str(value), "int": True}
        case Mapping():
            return {name: _marked(member) for name, member in value.items()}
        case list() | tuple():
            return [_marked(member) for member in value]
        case str() | int() | float() | bool() | None:
            return value
        case _:
            return str(value)


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        text = value.get(_DECIMAL)
        if isinstance(text, str) and set(value) <= {_DECIMAL, "int"}:
            try:
                return int(text) if "int" in value else Decimal(text)
            except (ValueError, InvalidOperation):
                return value  # a sender's own member of that name
        return {name: _unmarked(member) for name, member in value.items()}
    return [_unmarked(member) for member in value] if isinstance(value, list) else value
