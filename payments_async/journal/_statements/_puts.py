"""Single orders: put into the journal one by one, into chunks that whoever works the outbox holds or will claim."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

import attrs

from payments_async._values.amounts import amount_text
from payments_async._values.request_ids import plain_id
from payments_async._wire.orders import LONGEST_ID, Order
from payments_async.journal._faults import (
    HeldElsewhere,
    JournalRefused,
    LoadBusy,
    OrdersDiffer,
    RunUnknown,
)
from payments_async.journal._records import (
    Chunk,
    ClaimedOrder,
    Entry,
    Evidence,
    HeldUp,
    Pause,
    Permit,
    Placed,
    Row,
    RunIdentity,
    TakeoverAuthorisation,
    Waiting,
    body_digest,
    check_named,
)
from payments_async.journal._statements._database import AMONG_LATER, Connection
from payments_async.journal._statements._entries import (
    CHUNK,
    COLUMNS,
    IS_OUTBOX,
    MOST_ORDERS,
    OUTBOX,
    Commit,
    among,
    awaited,
    batch_columns,
    bounds,
    chunk_bounds,
    chunk_lost,
    chunk_of,
    entry_of,
    marks_for,
    row_by_id,
    row_by_request,
    row_of,
    run_columns,
    sum_of,
    within_chunk,
)
from payments_async.journal._statements._evidence import apply, open_chunk_of, resolve
from payments_async.journal._statements._history import is_looked_for, look_earlier
from payments_async.journal._statements._leases import is_over
from payments_async.journal._statements._loading import begin_run
from payments_async.journal._statements._notifications import apply_unmatched_events
from payments_async.journal._statements._permits import (
    is_held,
    note_sent,
    note_sent_elsewhere,
    planned_in,
    take_over,
)
from payments_async.journal._states import UNSENT, UNSETTLED, Signal, State

_RECENT = 64  # chunks that are looked at for room; older ones keep theirs
_WRITTEN = (
    *("id", "request_key", "request_id", "state", "token", "attempt", "amount", "body", "body_sha256"),
    *("permitted_at", "updated_at", "put_at", "not_before", "priority"),
)
_TRACED = (*_WRITTEN, "traceparent")
_SIGHTING = "request_key, transaction_id, news, amount, currency"
# whatever the journal may know of an order that is put, in one question
_KNOWN = f"""SELECT 'list', {_SIGHTING} FROM sighting WHERE request_key IN ({{marks}})
    UNION ALL SELECT 'outbox', request_key, NULL, NULL, NULL, NULL FROM outbox WHERE request_key IN ({{marks}})
    UNION ALL SELECT 'notification', request_key, NULL, NULL, NULL, NULL FROM ipn_event
    WHERE order_id IS NULL AND request_key IN ({{marks}})"""  # noqa: S608 - no value in it
_HIGHEST = "SELECT max(id) FROM outbox WHERE id BETWEEN ? AND ?"
SOON = 60.0  # seconds: an order that is due later than that is in nobody's hands meanwhile


class Registrar(Protocol):
    """The machine's registry of request ids, as an outbox asks it."""

    def check(self) -> None:
        """Raise ``HeldElsewhere`` where another journal has adopted orders of the outbox."""

    def __call__(
        self, request_ids: Sequence[str], adopted: Collection[str], doubted_at: float | None, of: object, /
    ) -> Mapping[str, HeldElsewhere]:
        """Register new request ids; which of them may have been sent, adopted ones too.

        Args:
            adopted: Those of them that a person adopts.
            doubted_at: When the journal was last found to be copied or restored.
            of: As ``Commit.of``: what a commit that was undone has registered first is not held by another one.
        """


@attrs.define(kw_only=True, eq=False)
class PutRequest:
    """One order to be put.

    Attributes:
        outbox: Name of the outbox.
        order, not_before, priority: As ``Journal.put`` is given them.
        body: The order as ``write_order`` keeps it.
        owner, holder, chunk, lease: Who works the outbox, and holds which chunk; without an owner anybody claims it.
        permits: Whether it is permitted in the same commit.
        register: Tells the machine's registry of new request ids, and which of them may have been sent elsewhere.
        adoption: A named person's word that it is ours, though it may have been sent elsewhere.
        sent: How it ended where the caller's session has sent it by itself: it is never sent from here then.
        traceparent: The trace context of who puts it.
        permit: What was granted in the last commit that tried, whether or not that was made.
        elsewhere: With an adoption: who may have sent it, as the last commit that tried was told.
        together: Puts it, alone or with others, where a database has its own way; ``None`` for ``put_all``.
        key: What its request id is known by.
    """

    outbox: str
    order: Order
    body: bytes
    not_before: float
    priority: int
    owner: str | None
    holder: str
    chunk: Chunk | None
    lease: float
    permits: bool
    register: Registrar | None
    adoption: TakeoverAuthorisation | None = None
    sent: Evidence | None = None
    traceparent: str | None = None
    permit: Permit | None = None
    elsewhere: HeldElsewhere | None = None
    together: Callable[[Commit, Sequence[PutRequest]], list[Placed | Exception]] | None = None
    key: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.key = plain_id(self.order.request_id)

    def __call__(self, commit: Commit) -> Placed:
        """Put it by itself. Raises why it is not taken."""
        (placed,) = (self.together or put_all)(commit, [self])
        if isinstance(placed, Exception):
            raise placed
        return placed


@attrs.define
class _Filling:
    """A chunk that is being filled.

    Attributes:
        mine: As its holder knows it; ``None`` where it is anybody's.
    """

    run: int
    number: int
    next_id: int
    last_id: int
    mine: Chunk | None
    _is_good: bool | None = None

    def permits(self, commit: Commit) -> bool:
        """Whether what comes into it may be sent at once: its holder's lease is good."""
        if self._is_good is None:
            self._is_good = self.mine is not None and is_held(commit, self.mine)
        return self._is_good

    def is_filled(self, commit: Commit) -> None:
        """What came into it so far is written down: whoever asks for its highest number is told so."""
        bounds = chunk_bounds(self.run, self.number)
        commit.will_find((self.next_id - 1 if self.next_id > bounds[0] else None,), _HIGHEST, bounds)


def open_outbox(commit: Commit, name: str, identity: RunIdentity, uid: str) -> None:
    """Begin an outbox, unless it is there: a run that never ends. Raises ``WrongAccount``, ``OrdersDiffer``."""
    begin_run(commit, name, identity, None, None, uid, name, kind=OUTBOX)
    commit.execute(
        f"UPDATE run SET state = 'ready', ready_at = ? WHERE batch_id = ? AND {IS_OUTBOX} AND state = 'loading'",  # noqa: S608
        (commit.now, name),
    )
    if run_columns(commit, name, "kind")[0] != OUTBOX:
        raise OrdersDiffer(f"the journal holds a batch {name}; give the outbox another name", [])


def put_all(commit: Commit, requests: Sequence[PutRequest]) -> list[Placed | Exception]:
    """Put many orders in one commit: where each of them is now, or why it is not taken."""
    asked: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        asked.setdefault(request.key, []).append(place)
    fresh = {key: requests[places[0]] for key, places in asked.items()}
    known = _known(commit, list(fresh))
    for key in known.held:
        del fresh[key]
    refused: Mapping[str, JournalRefused] = {}
    results: dict[int, Placed | Exception] = {}
    if fresh:
        runs: dict[str, _OutboxRun] = {}
        refused = _refused(commit, fresh, known.sightings, runs)
        new = [request for key, request in fresh.items() if key not in refused]
        placed = _write(commit, new, known, runs)
        results |= {asked[request.key][0]: one for request, one in zip(new, placed, strict=True)}
    for place, request in enumerate(requests):  # the same id may come more than once, in one breath
        if request.key in refused:
            results[place] = refused[request.key]
        elif place not in results:
            results[place] = _compared(commit, request)
    return [results[place] for place in range(len(requests))]


class _Known(NamedTuple):
    """What the journal knows of orders that are put, by their keys.

    Attributes:
        held: Those that it holds.
        sightings: What a list has shown of others.
        told: Those that some notification named before they came.
    """

    held: Collection[str]
    sightings: Mapping[str, Evidence]
    told: Collection[str]


def _known(commit: Commit, keys: Sequence[str]) -> _Known:
    """Ask for all of it at once: of most orders nothing is known."""
    marks, values = marks_for(keys)
    found = commit.finds_none(_KNOWN.format(marks=marks), (*values, *values, *values))
    sightings = {key: _sighting(key, *about) for place, key, *about in found if place == "list"}
    held, told = ({key for where, key, *_ in found if where == place} for place in ("outbox", "notification"))
    return _Known(held, sightings, told)


def _write(commit: Commit, requests: Sequence[PutRequest], known: _Known, runs: dict[str, _OutboxRun]) -> list[Placed]:
    """Write new orders down, those that are to be sent at once as being sent."""
    if not requests:
        return []
    _, sightings, told = known
    sent = {request.key for request in requests if request.elsewhere is not None or request.sent is not None}
    arrivals = _Arrivals(commit, {*sightings, *told, *sent}, runs)
    places = [arrivals.add(request) for request in requests]
    arrivals.insert()
    if any(arrival.is_permitted for arrival in places):
        commit.passed("put.permitted")
    return [
        _placed(commit, request, arrival, sightings, told) for request, arrival in zip(requests, places, strict=True)
    ]


def _refused(
    commit: Commit,
    fresh: Mapping[str, PutRequest],
    sightings: Mapping[str, Evidence],
    runs: dict[str, _OutboxRun],
) -> Mapping[str, JournalRefused]:
    """Those of these orders that another journal may have sent, by their keys; all others are registered as ours.

    What a list has shown is not sent from here, so nobody is asked whose it is. An order that a person adopts is ours;
    who may have sent it is noted beside it.

    Raises:
        HeldElsewhere: Another journal has adopted orders of the outbox. To take one more would lease the others too.
        RunUnknown: There is no such outbox.
    """
    for asked in {request.register for request in fresh.values() if request.register is not None}:
        asked.check()
    registered: dict[str, list[PutRequest]] = {}
    for key, request in fresh.items():
        if request.register is not None and key not in sightings:
            registered.setdefault(request.outbox, []).append(request)
    refused: dict[str, JournalRefused] = {}
    for outbox, requests in registered.items():
        adopting = {one.order.request_id: one for one in requests if one.adoption is not None}
        if adopting:
            commit.goes_one_by_one()
        ids = [one.order.request_id for one in requests]
        # asked here: a copy may have gone on since the outbox was opened
        run = runs[outbox] = _outbox_run(commit, outbox)
        register = requests[-1].register
        assert register is not None
        for request_id, error in register(ids, adopting, run.doubted_at, commit.of).items():
            if (adopted := adopting.get(request_id)) is None:
                refused[plain_id(request_id)] = error
            else:
                adopted.elsewhere = error
    for key, request in fresh.items():  # a machine that remembers no holder may have forgotten it
        if request.adoption is not None and request.elsewhere is None and key not in sightings:
            request.elsewhere = HeldElsewhere.by_word(commit.now, [request.order.request_id])
    return refused


def _compared(commit: Commit, request: PutRequest) -> Placed | Exception:
    """An order that the journal knows: as it stands, or as it ended, if it is the same."""
    row = row_by_request(commit, request.order.request_id)
    assert row is not None
    if row.request_id != request.order.request_id:
        return OrdersDiffer.in_letters(request.order.request_id, row.request_id)
    amount = amount_text(request.order.amount)
    if row.body_sha256 != body_digest(row.request_id, amount, request.body):
        is_gone = row.archive is not None
        what = f"the other one is archived, {row.state}" if is_gone else OrdersDiffer.how(row.amount, amount)
        return OrdersDiffer(f"request id {row.request_id} stands for two different orders: {what}", [row.request_id])
    if row.archive is not None:  # of what it says the caller tells
        return Placed(entry=_entry_as_put(commit, row, request.order), is_new=False)
    batch_id, state = batch_columns(commit, row, "batch_id, state")
    row = _let_go(commit, request, row)
    if request.sent is not None and row.state is State.PLANNED and not row.attempt:
        note_sent(commit, row, request.sent)  # it was, since it was put
        row = _again(commit, row.id)
    if state != "ready" and row.state is State.PLANNED:  # it is dropped if that batch is loaded without it
        return LoadBusy(f"request id {row.request_id} is one of batch {batch_id}, whose loading was not finished")
    return Placed(entry=entry_of(row, batch_id), is_new=False)


def _let_go(commit: Commit, request: PutRequest, row: Row) -> Row:
    """The same order is put again: where it was held back it may go now, and where it was damaged it is whole again.

    Its digest, which is that of what is put, proves that.
    """
    amount = amount_text(request.order.amount)
    held_at, not_before = commit.execute("SELECT held_at, not_before FROM outbox WHERE id = ?", (row.id,)).fetchone()
    if held_at is None and (row.amount, row.body) == (amount, request.body):
        return row
    moment = not_before if held_at is None else request.not_before
    commit.execute(
        "UPDATE outbox SET amount = ?, body = ?, not_before = ?, held_at = NULL WHERE id = ?",
        (amount, request.body, moment, row.id),
    )
    open_chunk_of(commit, row)
    return _again(commit, row.id)


def entry_as_put(connection: Connection, order: Order) -> Entry:
    """The entry of an order that the journal knows and that says the same as this one."""
    row = row_by_request(connection, order.request_id)
    assert row is not None
    return _entry_as_put(connection, row, order)


def _entry_as_put(connection: Connection | Commit, row: Row, order: Order) -> Entry:
    (batch_id,) = batch_columns(connection, row)
    return entry_of(row, batch_id, order=order)


class _Arrival(NamedTuple):
    """A new order: its number, and its place."""

    number: int
    filling: _Filling
    is_permitted: bool


class _Arrivals:
    """New orders of one commit, which are written down with few statements: each one hands the interpreter over.

    Args:
        known: Those that something was heard of before they came: none of them is permitted.
        runs: The outboxes that were asked for already, by their names.
    """

    def __init__(self, commit: Commit, known: Collection[str], runs: dict[str, _OutboxRun]) -> None:
        self._commit = commit
        self._known = known
        self._runs = runs
        self._fillings: dict[tuple[str, str | None, bool], _Filling] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._traces: list[str | None] = []  # of these
        self._amounts: dict[tuple[int, State], list[Decimal]] = {}

    def add(self, request: PutRequest) -> _Arrival:
        """Find the place of an order."""
        commit, order, now = self._commit, request.order, self._commit.now
        is_later = request.not_before > now + SOON
        if (known := self._runs.get(request.outbox)) is None:
            known = self._runs[request.outbox] = _outbox_run(commit, request.outbox)
        run, _, waits = known
        owner = None if waits or is_later else request.owner  # anybody claims it, once that is allowed
        key = (request.outbox, owner, is_later)
        filling = self._fillings.get(key)
        if filling is None or filling.next_id > filling.last_id:
            self.insert()  # so that it is seen what room is left
            filling = self._fillings[key] = _filling(commit, run, request, owner, is_later=is_later)
        number, amount = filling.next_id, amount_text(order.amount)
        filling.next_id += 1
        is_permitted = request.permits and request.not_before <= now and request.key not in self._known
        state, token, attempt, permitted_at = State.PLANNED, 0, 0, now
        if is_permitted and filling.mine is not None and filling.permits(commit):
            state, token, attempt, permitted_at = State.SENDING, filling.mine.token, 1, commit.permit_at
            if permitted_at != now:
                look_earlier(commit, run, permitted_at)  # it was made by the same clock
        digest = body_digest(order.request_id, amount, request.body)
        place, moments = (
            (number, request.key, order.request_id, state.value, token, attempt),
            (*(permitted_at, now, now, request.not_before),),
        )
        # as bytearrays: for bytes sqlite3 looks for an adapter first, which takes longer than the rest
        self._rows.append((*place, amount, bytearray(request.body), bytearray(digest), *moments, request.priority))
        self._traces.append(request.traceparent)
        self._amounts.setdefault((run, state), []).append(order.amount)
        if is_later or (filling.mine is None and request.priority):
            commit.execute(
                """UPDATE chunk SET due_at = CASE WHEN due_at > 0 AND due_at > ? THEN ? ELSE due_at END,
                priority = CASE WHEN priority < ? THEN ? ELSE priority END WHERE run = ? AND number = ?""",
                (*[request.not_before] * 2, *[request.priority] * 2, run, filling.number),
            )
        return _Arrival(number, filling, attempt == 1)

    def insert(self) -> None:
        """Write down those that are not yet."""
        rows, traces, self._rows, self._traces = self._rows, self._traces, [], []
        columns: tuple[str, ...] = _WRITTEN
        if rows:
            self._commit.changed = rows[-1][0]
        if any(traces):
            columns, rows = _TRACED, [(*row, trace) for row, trace in zip(rows, traces, strict=True)]
        for filling in self._fillings.values():
            filling.is_filled(self._commit)
        self._commit.inserts(columns, rows)
        for (run, state), amounts in self._amounts.items():
            self._commit.count(run, state, len(amounts), sum_of(amounts))
        self._amounts.clear()


def _placed(
    commit: Commit,
    request: PutRequest,
    arrival: _Arrival,
    sightings: Mapping[str, Evidence],
    told: Collection[str],
) -> Placed:
    """Where a new order is, after what was heard of it before has told what it can."""
    order, mine = request.order, arrival.filling.mine
    if request.adoption is not None:
        resolve(commit, "adopted", request.adoption.who, request.adoption.why, order_id=arrival.number)
    if request.sent is not None:
        note_sent(commit, _again(commit, arrival.number), request.sent)
    if request.elsewhere is not None:
        note_sent_elsewhere(commit, _again(commit, arrival.number), request.elsewhere)
    if request.key in sightings:
        apply(commit, _again(commit, arrival.number), sightings[request.key])
    if request.key in told:
        apply_unmatched_events(commit, _again(commit, arrival.number))
    if request.key in sightings or request.key in told or request.sent or request.elsewhere:
        entry = entry_of(_again(commit, arrival.number), request.outbox)
    else:
        entry = Entry(
            request_id=order.request_id,
            batch_id=request.outbox,
            state=State.SENDING if arrival.is_permitted else State.PLANNED,
            order=order,
            amount=order.amount,
            attempt=int(arrival.is_permitted),
            permitted_at=commit.permit_at if arrival.is_permitted else None,
            updated_at=commit.now,
            traceparent=request.traceparent,
        )
    if mine is None or not (arrival.is_permitted or entry.state is State.PLANNED):
        return Placed(entry=entry, is_new=True, chunk=mine)
    claimed = ClaimedOrder(
        id=arrival.number,
        request_id=order.request_id,
        amount=order.amount,
        body=request.body,
        not_before=request.not_before,
        priority=request.priority,
        traceparent=request.traceparent,
    )
    if not arrival.is_permitted:
        return Placed(entry=entry, is_new=True, chunk=mine, claimed=claimed)
    request.permit = permit = Permit(
        id=claimed.id,
        request_id=claimed.request_id,
        amount=claimed.amount,
        token=mine.token,
        attempt=1,
        at=commit.permit_at,
    )
    return Placed(entry=entry, is_new=True, chunk=mine, claimed=claimed, permit=permit)


def _again(commit: Commit, number: int) -> Row:
    """An order as it stands now."""
    row = row_by_id(commit, number)
    assert row is not None
    return row


class _OutboxRun(NamedTuple):
    """The run that holds the single orders of an outbox.

    Attributes:
        doubted_at: When the journal was last found to be copied or restored, if ever.
        waits: It may send nothing yet.
    """

    id: int
    doubted_at: float | None
    waits: bool


def _outbox_run(commit: Commit, name: str) -> _OutboxRun:
    """Ask for an outbox.

    Raises:
        RunUnknown: There is none.
    """
    found = commit.finds_as_before(
        f"SELECT id, quarantined_at FROM run WHERE batch_id = ? AND {IS_OUTBOX}",  # noqa: S608 - no value in it
        (name,),
    )
    if found is None:
        raise RunUnknown(f"the journal has no outbox {name}")
    run, doubted_at = found
    return _OutboxRun(int(run), doubted_at, doubted_at is not None and awaited(commit, run) is not None)


def _filling(commit: Commit, run: int, request: PutRequest, owner: str | None, *, is_later: bool) -> _Filling:
    """A chunk with room: the one its worker holds, one that nobody holds, or a new one."""
    if owner is None:
        number = next(_with_room(commit, run, is_later=is_later), None)
        if number is None:
            number = _new(commit, run, due_at=request.not_before if is_later else 0.0)
        commit.execute("UPDATE chunk SET state = 'open' WHERE run = ? AND number = ?", (run, number))
        return _Filling(run, number, *_room(commit, run, number), None)
    if (mine := request.chunk) is not None:
        is_good = is_held(commit, mine, fills=True)
        next_id, last_id = _room(commit, run, mine.number)
        if next_id <= last_id and (is_good or _is_mine(commit, mine)):
            return _Filling(run, mine.number, next_id, last_id, mine, is_good)
    number = next(_with_room(commit, run, is_later=False), None)
    is_new = number is None
    if number is None:
        number = _new(commit, run)
    opened = "UPDATE chunk SET state = 'open', lease = ? WHERE run = ? AND number = ?"
    commit.execute(opened, (request.lease, run, number))
    token = 0
    if not is_new:
        found = commit.execute("SELECT token FROM chunk WHERE run = ? AND number = ?", (run, number))
        (token,) = found.fetchone()
    until = commit.now + request.lease
    token, _ = take_over(commit, run, number, token, None, owner, until, request.holder)
    mine = Chunk(
        batch_id=request.outbox,
        run=run,
        number=number,
        owner=owner,
        token=token,
        lease_until=until,
        orders=planned_in(commit, run, number),
    )
    return _Filling(run, number, *_room(commit, run, number), mine)


def _with_room(commit: Commit, run: int, *, is_later: bool) -> Iterator[int]:
    """Chunks among the latest that nobody holds, and that are not full."""
    latest = f"{AMONG_LATER} WHERE due_at > 0 AND" if is_later else "WHERE due_at = 0 AND"
    found = commit.execute(
        f"""SELECT number, state, owner FROM chunk {latest} run = ? ORDER BY number DESC LIMIT {_RECENT}""",  # noqa: S608
        (run,),
    )
    for number, state, owner in found.fetchall():
        if owner is None and state in ("open", "done"):
            next_id, last_id = _room(commit, run, number)
            if next_id <= last_id:
                yield number


def _room(commit: Commit, run: int, number: int) -> tuple[int, int]:
    """The next number in a chunk, and its last."""
    first, last = chunk_bounds(run, number)
    (highest,) = commit.finds_as_before(_HIGHEST, (first, last))
    return first if highest is None else highest + 1, last


def _new(commit: Commit, run: int, *, due_at: float = 0.0) -> int:
    """A new chunk, which nobody holds.

    Raises:
        JournalCorrupt: Another program has deleted chunks, and orders are left in them.
        OrdersDiffer: The outbox is full.
    """
    number, highest = commit.execute(
        f"SELECT (SELECT coalesce(max(number) + 1, 0) FROM chunk WHERE run = ?), ({_HIGHEST})",  # noqa: S608
        (run, *bounds(run)),
    ).fetchone()
    if highest is not None and chunk_of(highest) >= number:
        raise chunk_lost(_again(commit, highest).request_id)
    if (number + 1) * CHUNK > MOST_ORDERS:
        raise OrdersDiffer("the outbox is full; open one of another name", [])
    commit.execute("INSERT INTO chunk (run, number, due_at) VALUES (?, ?, ?)", (run, number, due_at))
    return int(number)


def _is_mine(commit: Commit, chunk: Chunk) -> bool:
    """Whether a chunk is still held by its owner, and not asked back; its lease may have run out, if none took it."""
    found = commit.finds(
        (1,),
        """SELECT 1 FROM chunk WHERE run = ? AND number = ? AND token = ? AND owner = ? AND state = 'open'
        AND due_at >= 0""",
        (chunk.run, chunk.number, chunk.token, chunk.owner),
    )
    return found is not None


def doubt(commit: Commit) -> None:
    """The file was copied or restored: from when on outboxes have to be looked for.

    From the first thing that is open by what the file knows, or the last thing that it knows of.
    """
    outboxes = commit.execute(f"SELECT id, batch_id FROM run WHERE {IS_OUTBOX}")  # noqa: S608 - no value in it
    for run, name in outboxes.fetchall():
        first, last = bounds(run)
        (since,) = commit.execute(
            f"""SELECT min(updated_at) FROM (
                SELECT updated_at FROM outbox WHERE id = (SELECT max(id) FROM outbox WHERE id BETWEEN ? AND ?)
                UNION ALL SELECT o.updated_at FROM chunk c JOIN outbox o ON o.id {within_chunk("c")}
                WHERE c.run = ? AND (c.state <> 'done' AND o.state {among(UNSETTLED)} OR o.state {among(UNSENT)})
            ) AS open""",  # noqa: S608 - numbers only
            (first, last, run),
        ).fetchone()
        if since is None or not is_looked_for(commit, name):
            look_earlier(commit, run, commit.now if since is None else since)
        else:
            commit.execute("UPDATE run SET look_since = ? WHERE id = ?", (since, run))


# What a list showed that the journal does not hold


def note_observed(commit: Commit, sightings: Sequence[Evidence]) -> None:
    """Remember what a list has shown and the journal does not hold: it may have forgotten it.

    An order that was put since that was asked is told of it at once: else it would be sent. What no order of ours can
    be called is somebody else's, and no index takes every length of it.
    """
    ours = [
        (plain_id(one.request_id), one)
        for one in sightings
        if one.request_id and len(one.request_id.strip()) <= LONGEST_ID
    ]
    if not ours:
        return
    commit.connection.executemany(
        """INSERT INTO sighting (request_key, transaction_id, news, amount, currency, at) VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT DO NOTHING""",
        (
            (
                *(key, one.transaction_id, one.signal),
                *(None if one.amount is None else format(one.amount, "f"), one.currency, commit.now),
            )
            for key, one in ours
            if one.transaction_id is not None
        ),
    )
    marks, keys = marks_for([key for key, _ in ours])
    held = commit.execute(f"SELECT {COLUMNS} FROM outbox WHERE request_key IN ({marks})", keys)  # noqa: S608 - marks
    rows = {plain_id(row.request_id): row for row in map(row_of, held.fetchall())}
    if not rows:
        return
    marks, keys = marks_for(list(rows))
    found = commit.execute(f"SELECT {_SIGHTING} FROM sighting WHERE request_key IN ({marks})", keys)  # noqa: S608
    for key, *about in found.fetchall():
        if rows[key].state is not State.SENDING:  # of that its own answer is under way
            apply(commit, rows[key], _sighting(key, *about))


def unknown_transactions(connection: Connection, name: str) -> int:
    """How many orders lists have shown that the journal does not hold, since an outbox was last looked for."""
    (count,) = connection.execute(
        """SELECT count(*) FROM sighting WHERE at > (SELECT max(s.ended_at) FROM sweep s JOIN run r ON r.id = s.run
            WHERE r.batch_id = ? AND s.problem IS NULL)
        AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.request_key = sighting.request_key)""",
        (name,),
    ).fetchone()
    return int(count)


def _sighting(key: str, transaction_id: str, signal: str, amount: str | None, currency: str | None) -> Evidence:
    """What a list has shown of an order before it was put."""
    return Evidence(
        signal=Signal(signal),
        source="list",
        request_id=key,
        transaction_id=transaction_id,
        amount=None if amount is None else Decimal(amount),
        currency=currency,
    )


# What there is to do, and whether it may be done


def held_up(connection: Connection, name: str, now: float) -> HeldUp:
    """What of an outbox goes on by itself no more."""
    (quarantined,) = connection.execute(
        """SELECT count(*) FROM run r JOIN chunk c ON c.run = r.id AND c.state = 'quarantined'
        WHERE r.outbox = ? AND r.quarantined_at IS NOT NULL""",
        (name,),
    ).fetchone()
    unloaded = connection.execute(
        f"""SELECT batch_id FROM run WHERE outbox = ? AND state = 'loading' AND NOT EXISTS (SELECT 1 FROM lease l
        WHERE l.kind = 'load' AND l.key = run.batch_id AND NOT {is_over("l.until", "l.span")}) ORDER BY id""",  # noqa: S608
        (name, now, now),
    ).fetchall()
    return HeldUp(quarantined=quarantined, unloaded=tuple(batch_id for (batch_id,) in unloaded))


def waiting(connection: Connection, name: str, now: float, owner: str | None) -> Sequence[Waiting]:
    """The runs of an outbox with chunks that are free to be claimed, or may be as soon as their holder dies."""
    found = connection.execute(
        f"""SELECT r.batch_id, r.id, max(c.priority), count(*) FILTER (WHERE c.lease_until <= ? AND c.due_at <= ?),
        count(*) FILTER (WHERE c.owner IS NOT NULL),
        r.{IS_OUTBOX} OR EXISTS (SELECT 1 FROM sweep s WHERE s.run = r.id AND s.ended_at IS NOT NULL
            AND s.problem IS NULL AND s.doubted_at >= coalesce(r.quarantined_at, 0)),
        min(c.due_at) FILTER (WHERE c.due_at > ?), count(*) FILTER (WHERE c.owner = ? AND c.due_at < 0)
        FROM run r JOIN chunk c ON c.run = r.id AND c.state = 'open'
        WHERE r.outbox = ? AND r.state = 'ready' GROUP BY r.id ORDER BY r.id""",  # noqa: S608 - no value in it
        (now, now, now, owner, name),
    ).fetchall()
    return tuple(
        Waiting(
            batch_id=batch_id,
            run=run,
            priority=priority,
            free=free,
            leased=leased,
            is_looked_for=bool(looked),
            due_at=due_at,
            asked_back=asked_back,
        )
        for batch_id, run, priority, free, leased, looked, due_at, asked_back in found
    )


def pause(commit: Commit, name: str, who: str, why: str) -> None:
    """Let nothing be sent from an outbox until somebody resumes it; the first reason stands."""
    check_named(who, why)
    run = _outbox_run(commit, name).id
    done = commit.execute(
        "UPDATE run SET paused_at = ?, paused_by = ?, paused_why = ? WHERE id = ? AND paused_at IS NULL",
        (commit.now, who, why, run),
    )
    if done.rowcount:
        resolve(commit, "paused", who, why, run=run)


def resume(commit: Commit, name: str, who: str, why: str) -> bool:
    """Let an outbox send again, says a named person; tells whether it was paused."""
    check_named(who, why)
    run = _outbox_run(commit, name).id
    done = commit.execute(
        """UPDATE run SET paused_at = NULL, paused_by = NULL, paused_why = NULL, day = NULL
        WHERE id = ? AND paused_at IS NOT NULL""",
        (run,),
    )
    if done.rowcount:
        resolve(commit, "resumed", who, why, run=run)
    return bool(done.rowcount)


def paused(connection: Connection, name: str) -> Pause | None:
    """Who paused an outbox, and why; ``None`` where it sends."""
    at, who, why = run_columns(connection, name, "paused_at, paused_by, paused_why")
    return None if at is None else Pause(at=at, who=who, why=why)


def begin_day(commit: Commit, name: str, day: str, spent: Decimal) -> Decimal:
    """What had been spent when a day began, by whoever saw that day first."""
    run = _outbox_run(commit, name).id
    commit.execute(  # a clock that is set back begins none
        "UPDATE run SET day = ?, day_spent = ? WHERE id = ? AND (day IS NULL OR day < ?)",
        (day, format(spent, "f"), run, day),
    )
    (before,) = commit.execute("SELECT day_spent FROM run WHERE id = ?", (run,)).fetchone()
    return Decimal(before)
