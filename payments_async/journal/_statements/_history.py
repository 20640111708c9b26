"""What is on record: the story of each order, what persons decided, and which lists of the service were read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import filterfalse
from typing import Any, NamedTuple

from payments_async._values.amounts import currency_key
from payments_async._values.request_ids import plain_id
from payments_async.journal._approvals import Signature
from payments_async.journal._faults import OrderUnknown
from payments_async.journal._records import LISTS, Happening, ListScan, OutcomeWithHistory, Row, unpack_transaction_id
from payments_async.journal._statements._approvals import approvals, proposals
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import (
    CLEAN,
    COLUMNS,
    IS_HERE,
    LOOK_SINCE,
    NO_DOUBTS,
    PAGE,
    Commit,
    PageReader,
    awaited,
    bounds_of,
    chunk_of,
    counted_from,
    doubts_about,
    entry_of,
    first_day,
    is_in_state,
    number_of,
    row_here,
    row_of,
    run_columns,
    run_of,
    snapshot,
)
from payments_async.journal._states import RULES, Signal, State

# what the answer was, when nothing but it has made of the order
_ANSWERED = {State(signal.value): signal for signal in (Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN)}
_ORDER = ("planned", "permit", "answer", "takeover", "delivery", "notification", "evidence", "resolution")
_RANKS = {what: rank for rank, what in enumerate(_ORDER)}
_STATES = {state.value: state for state in State}  # looking up takes a tenth of what asking the enumeration takes
_HANDLED = {
    "pending": "its handlers are still to be called",
    "handled": "its handlers are done",
    "dead": "its handlers failed too often, and it waits for `payments-async ipn replay`",
    "disputed": "the service's own record says otherwise",
}
_DOUBTED = {
    "unconfirmed": "notified, not confirmed: it moves nothing before the service's own record bears it out",
    "reported": "from an unknown sender: it settles nothing",
}
_NEWS = {signal.value: signal for signal in Signal}
_DECISIONS = {signal.value: signal for signal in (Signal.WRITTEN_OFF, Signal.CANCELLED)}  # that move an order
_UNFINISHED = "it was broken off"
_SWEEPS = "s.id, r.batch_id, s.since, s.until, s.begun_at, s.ended_at, s.rows, s.requests, s.counted, s.problem"
_MOST = 1000  # that are told of: whoever reconciles each minute makes half a million in a year
_TICK = 0.001  # seconds
RESTORED = "restored"  # a fact: when all of the journal was last found to be one, and since when that matters
# Whether a row of `attempt` may be older than the order's own permit. One attempt under the token of a lease was the
# first; an order that was sent before it was put, by a session or from another journal, has no token then.
_HAS_EARLIER = "o.attempt > 1 OR o.token = 0"
LAST_VOIDED = "(SELECT coalesce(max(quarantined_at), 0) FROM run)"


class _Attempt(NamedTuple):
    """The columns of an attempt, as stored."""

    order_id: int
    n: int
    token: int
    permitted_at: float
    outcome: str
    code: int | None
    message: str | None
    correlation_id: str | None
    done_at: float


class _Evidence(NamedTuple):
    """Those of evidence."""

    order_id: int
    at: float
    news: str
    source: str
    transaction_id: str | None
    amount: str | None
    detail: str | None
    before: str
    after: str
    before_at: float
    conflict: str | None
    event_id: int | None
    times: int
    last_at: float


class _Resolution(NamedTuple):
    """Those of a decision; one about a batch has no order."""

    order_id: int | None
    kind: str
    who: str
    why: str
    evidence: str | None
    at: float


class _Fact(NamedTuple):
    """One thing in the life of an order; the ``Happening`` is made only where somebody wants to see it."""

    at: float
    rank: int
    place: int
    state: State | None
    told: Callable[..., Happening]
    of: tuple[Any, ...]


class _Trails(NamedTuple):
    """What the tables know of orders of one run that lie side by side. Rows stay as they came, until one is needed.

    Attributes:
        batch_id, planned_at: Of the run.
        attempts, evidence, resolutions: By the number of the order, for those that have any.
        workers: By chunk and token.
    """

    batch_id: str
    planned_at: float
    attempts: Mapping[int, list[tuple[Any, ...]]]
    evidence: Mapping[int, list[tuple[Any, ...]]]
    resolutions: Mapping[int, list[tuple[Any, ...]]]
    workers: Mapping[tuple[int, int], str | None]


def _trails(connection: Connection, first: int, last: int) -> _Trails:
    """All that is needed to tell of the orders from one number to another of the same run."""
    run = run_of(first)
    batch_id, at = connection.execute(
        """SELECT batch_id, coalesce((SELECT put_at FROM outbox WHERE id = ?), ready_at, created_at)
        FROM run WHERE id = ?""",
        (first, run),
    ).fetchone()
    found = connection.execute(
        "SELECT number, token, owner FROM claim WHERE run = ? AND number BETWEEN ? AND ?",
        (run, chunk_of(first), chunk_of(last)),
    )
    return _Trails(
        batch_id,
        at,
        attempts=_by_order(connection, "attempt", _Attempt._fields, first, last),
        evidence=_by_order(connection, "evidence", _Evidence._fields, first, last),
        resolutions=_by_order(connection, "resolution", _Resolution._fields, first, last),
        workers={(number, token): owner for number, token, owner in found.fetchall()},
    )


def _by_order(
    connection: Connection, table: str, columns: Sequence[str], first: int, last: int
) -> dict[int, list[tuple[Any, ...]]]:
    """The rows of a table that belong to these orders, in the sequence they were written in."""
    rows: dict[int, list[tuple[Any, ...]]] = {}
    found = connection.execute(
        f"""SELECT {", ".join(columns)} FROM {table} WHERE order_id BETWEEN ? AND ?
        ORDER BY order_id, id""",  # noqa: S608 - names of columns and tables
        (first, last),
    )
    for row in found.fetchall():
        rows.setdefault(row[0], []).append(row)
    return rows


def history(connection: Connection, request_id: str) -> Sequence[Happening]:
    """All that is known of an order, oldest first.

    Raises:
        OrderUnknown: The journal holds no such order.
    """
    with snapshot(connection):
        row = row_here(connection, request_id)
        if row is None:
            raise OrderUnknown(where_it_is(connection, request_id))
        return story_of(connection, row)


def traces(connection: Connection, request_id: str) -> Sequence[Happening]:
    """What lists and notifications have told of an order that the journal does not hold."""
    with snapshot(connection):
        seen = connection.execute(
            "SELECT transaction_id, news, amount, currency, at FROM sighting WHERE request_key = ?",
            (plain_id(request_id),),
        ).fetchall()
        told = _delivered(
            connection, "SELECT id FROM ipn_event WHERE request_key = ? AND order_id IS NULL", (plain_id(request_id),)
        )
        found = [
            Happening(
                at=at,
                what="evidence",
                by="list",
                signal=Signal(signal),
                detail=", ".join(
                    [f"transaction {transaction}", *([f"{amount} {currency or ''}".strip()] * bool(amount))]
                ),
            )
            for transaction, signal, amount, currency, at in seen
        ]
        return sorted([*found, *told], key=lambda one: one.at)


def where_it_is(connection: Connection, request_id: str) -> str:
    """What to say of an order that is not here."""
    left = connection.execute(
        "SELECT o.state, a.path FROM outbox o JOIN archive a ON a.id = o.archive WHERE o.request_key = ?",
        (plain_id(request_id),),
    ).fetchone()
    if left is None:
        return f"the journal holds no order {request_id}"
    return f"order {request_id} ended long ago ({left[0]}) and left the journal for the archive {left[1]}"


def story_of(connection: Connection, row: Row) -> tuple[Happening, ...]:
    """All that is known of an order, oldest first; in one moment, if the caller sees to that."""
    facts = _facts(row, _trails(connection, row.id, row.id))
    found = [*(fact.told(*fact.of) for fact in facts), *_deliveries(connection, row)]
    return tuple(sorted(found, key=lambda happening: (happening.at, _RANKS[happening.what])))


def late_happenings(connection: Connection, order_id: int) -> tuple[Happening, ...]:
    """What was told of an order since it has left for an archive, oldest first."""
    found = _by_order(connection, "evidence", _Evidence._fields, order_id, order_id).get(order_id, [])
    return tuple(_seen(seen, _kind(seen)) for seen in map(_Evidence._make, found))


def decisions(connection: Connection, batch_id: str) -> Sequence[Happening]:
    """What named persons decided about a batch as a whole, in time. Raises ``RunUnknown``."""
    found = connection.execute(
        f"SELECT {', '.join(_Resolution._fields)} FROM resolution WHERE run = ? ORDER BY id",  # noqa: S608
        (number_of(connection, batch_id),),
    )
    decided = [_resolved(_Resolution._make(values)) for values in found.fetchall()]
    (digest,) = connection.execute("SELECT source_digest FROM run WHERE batch_id = ?", (batch_id,)).fetchone()
    return tuple(sorted([*decided, *_approvals_of(connection, digest)], key=lambda one: one.at))


def account_currency(connection: Connection, batch_id: str) -> str | None:
    """What orders of a batch that name no currency are in. Raises ``RunUnknown``."""
    first, last = bounds_of(connection, batch_id)
    (digest,) = connection.execute("SELECT source_digest FROM run WHERE batch_id = ?", (batch_id,)).fetchone()
    made = () if digest is None else proposals(connection, digest)
    if proposed := next((one.currency for one in made if one.batch_id == batch_id and one.currency), None):
        return proposed
    some = connection.execute(
        """SELECT currency FROM evidence WHERE order_id BETWEEN ? AND ? AND conflict IS NULL
        ORDER BY order_id LIMIT 500""",
        (first, last),
    ).fetchall()
    shown = {currency_key(text) for (text,) in some} - {""}
    return shown.pop() if len(shown) == 1 else None


def _approvals_of(connection: Connection, digest: str | None) -> Iterator[Happening]:
    """Who proposed the plan of a batch, who approved it, and who took that back."""
    if digest is None:
        return
    for proposal in proposals(connection, digest):
        yield _signed(proposal.by, "proposed", proposal.file)
    for approval in approvals(connection, digest):
        yield _signed(approval.by, "approved", approval.note)
        if approval.withdrawn is not None:
            yield _signed(approval.withdrawn, "approval withdrawn", approval.note)


def _signed(by: Signature, kind: str, why: str) -> Happening:
    return Happening(at=by.at, what="resolution", by=str(by), detail=f"{kind}: {why}")


def standings_after(batch_id: str) -> PageReader[OutcomeWithHistory]:
    """A reader of pages of the orders of a batch, each with what brought it to where it stands.

    An order is made of its row only when it is its turn: hundreds at once would wake the garbage collector.
    """
    sql = f"SELECT {COLUMNS} FROM outbox WHERE id > ? AND id <= ? AND {IS_HERE} ORDER BY id LIMIT {PAGE}"  # noqa: S608

    def read(connection: Connection, /, *, after: int) -> tuple[Iterable[OutcomeWithHistory], int]:
        with snapshot(connection):
            first, last = bounds_of(connection, batch_id)
            rows = connection.execute(sql, (max(after, first - 1), last)).fetchall()
            if not rows:
                return (), after
            trails, doubts = _trails(connection, rows[0][0], rows[-1][0]), doubts_about(connection, rows)
        found = (
            OutcomeWithHistory(
                entry=entry_of(row, batch_id, doubts.get(row.request_id, NO_DOUBTS)),
                decision=_decision(row, trails),
                persons=_persons(row, trails),
            )
            for row in map(row_of, rows)
        )
        return found, rows[-1][0]

    return read


def _decision(row: Row, trails: _Trails) -> Happening | None:
    """What brought an order to where it stands: the first happening after which it never stood elsewhere.

    ``None`` for an order that was never anything but planned.
    """
    evidence = list(map(_Evidence._make, trails.evidence.get(row.id, ())))
    if row.id not in trails.attempts and row.id not in trails.resolutions:
        if not evidence and not row.attempt:
            return None
        if evidence and (seen := _last_turn(row, evidence)) is not None:
            return _seen(seen, _kind(seen))
    found: _Fact | None = None
    for fact in sorted(_facts(row, trails)):
        if fact.state is not row.state and fact.state is not None:
            found = None
        elif fact.state is row.state and found is None:
            found = fact
    return None if found is None or found.told is _planned else found.told(*found.of)


def _persons(row: Row, trails: _Trails) -> tuple[Happening, ...]:
    """What named persons decided about an order, oldest first."""
    return tuple(_resolved(_Resolution._make(values)) for values in trails.resolutions.get(row.id, ()))


def _last_turn(row: Row, evidence: Sequence[_Evidence]) -> _Evidence | None:
    """The evidence that decided, where one glance tells: one attempt, and evidence in the sequence of its times."""
    if not row.permitted_at <= evidence[0].before_at <= evidence[0].at:
        return None
    turn: _Evidence | None = None
    stood, at = evidence[0].before, -1.0
    for seen in evidence:
        if seen.at <= at:
            return None
        if seen.after != stood:
            turn = seen
        stood, at = seen.after, seen.at
    return turn if stood == row.state else None


def _facts(row: Row, trails: _Trails) -> list[_Fact]:
    """Everything but deliveries, which never change an order. Not in time yet."""
    attempts = [one for one in map(_Attempt._make, trails.attempts.get(row.id, ())) if one.n]  # 0 was made elsewhere
    found = list[_Fact]()
    evidence = list(map(_Evidence._make, trails.evidence.get(row.id, ())))

    def add(at: float, what: str, state: State | None, told: Callable[..., Happening], *of: object) -> None:
        found.append(_Fact(at, _RANKS[what], len(found), state, told, of))

    def add_ours(
        what: str, at: float, worker: str | None, signal: Signal, state: State, words: str, named: str | None = None
    ) -> None:
        add(at, what, state, _ours, what, at, worker, signal, state, words, named)

    add(trails.planned_at, "planned", State.PLANNED, _planned, row.id, trails)
    for attempt in attempts:
        worker, signal = _worker(row, attempt.token, trails), _NEWS[attempt.outcome]
        add_ours("permit", attempt.permitted_at, worker, Signal.PERMITTED, State.SENDING, f"attempt {attempt.n}")
        until, words = _later(evidence, attempt.permitted_at), _words(attempt.n, attempt.code, attempt.message, None)
        if signal is Signal.NOT_SENT:
            add_ours("answer", attempt.done_at, worker, signal, State.PLANNED, words, attempt.correlation_id)
        elif until is not None and until[0] in _ANSWERED:
            state, at = until
            add_ours("answer", at, worker, _ANSWERED[state], state, words, attempt.correlation_id)
    if row.attempt and row.attempt not in [attempt.n for attempt in attempts]:
        # the attempt whose story is in the row itself; the others were put out of it by a later one or a decision
        worker = _worker(row, row.token, trails)
        add_ours("permit", row.permitted_at, worker, Signal.PERMITTED, State.SENDING, f"attempt {row.attempt}")
        state, at = _later(evidence, row.permitted_at) or (row.state, row.updated_at)
        if state in _ANSWERED:
            words = _words(row.attempt, row.code, row.message, row.transaction_id)
            add_ours("answer", at, worker, _ANSWERED[state], state, words, row.correlation_id)
    for seen in filterfalse(_is_late_proof, evidence):  # its attempt tells it
        what = _kind(seen)
        add(seen.at, what, _STATES[seen.after], _seen, seen, what)
    for resolution in map(_Resolution._make, trails.resolutions.get(row.id, ())):
        stands = State.PLANNED if resolution.kind == Signal.WRITTEN_OFF else None
        add(resolution.at, "resolution", stands, _resolved, resolution)
    return found


def _later(evidence: Sequence[_Evidence], permitted_at: float) -> tuple[State, float] | None:
    """Where an order stood when the first evidence after a permit came, and since when: what its answer was."""
    for seen in evidence:
        if seen.before_at >= permitted_at:
            return _STATES[seen.before], seen.before_at
    return None


def _worker(row: Row, token: int, trails: _Trails) -> str | None:
    return trails.workers.get((chunk_of(row.id), token))


def _is_late_proof(seen: _Evidence) -> bool:
    """Whether it is that nothing left of an order which was taken over before."""
    return seen.news == Signal.NOT_SENT and seen.after == State.PLANNED


def _kind(seen: _Evidence) -> str:
    if seen.event_id is not None:
        return "notification"
    if seen.news == Signal.LEASE_EXPIRED:
        return "takeover"
    return "answer" if seen.source.startswith("answer to ") else "evidence"


def _planned(order_id: int, trails: _Trails) -> Happening:
    detail = f"order {order_id} of batch {trails.batch_id}"
    return Happening(at=trails.planned_at, what="planned", state=State.PLANNED, detail=detail)


def _ours(
    what: str, at: float, worker: str | None, signal: Signal, state: State, words: str, named: str | None
) -> Happening:
    return Happening(
        at=at,
        what=what,
        by=worker,
        signal=signal,
        state=state,
        rule=RULES[signal],
        detail=words,
        correlation_id=named,
    )


def _seen(seen: _Evidence, what: str) -> Happening:
    signal, words = _NEWS[seen.news], []
    if seen.transaction_id:
        words.append(f"transaction {seen.transaction_id}")
    if seen.amount:
        words.append(f"amount {seen.amount}")
    if seen.detail:
        words.append(seen.detail)
    if seen.before == seen.after:
        words.append("which changed nothing")
    if seen.times > 1:
        last = datetime.fromtimestamp(seen.last_at, UTC).isoformat(" ", "seconds")[:19]
        words.append(f"told {seen.times} times, last on {last} UTC")
    return Happening(
        at=seen.at,
        what=what,
        by=seen.source,
        signal=signal,
        state=_STATES[seen.after],
        rule=RULES[signal],
        detail=", ".join(words) or None,
        conflict=seen.conflict,
    )


def _resolved(resolution: _Resolution) -> Happening:
    _, kind, who, why, evidence, at = resolution
    signal = _DECISIONS.get(kind)
    return Happening(
        at=at,
        what="resolution",
        by=who,
        signal=signal,
        state=State.PLANNED if signal is Signal.WRITTEN_OFF else None,
        rule=None if signal is None else RULES[signal],
        detail=f"{kind}: {why}" + (f" (on: {evidence})" if evidence else ""),
    )


def _deliveries(connection: Connection, row: Row) -> Iterator[Happening]:
    """Every delivery of the events about an order, with what became of them."""
    return _delivered(
        connection,
        """SELECT event_id FROM evidence WHERE order_id = ?
        UNION SELECT id FROM ipn_event WHERE doubt IS NOT NULL AND request_key = ?
        UNION SELECT id FROM ipn_event WHERE doubt IS NOT NULL AND request_key IS NULL AND transaction_id = ?""",
        (row.id, plain_id(row.request_id), unpack_transaction_id(row.transaction_id)),
    )


def _delivered(connection: Connection, chosen: str, values: Sequence[object]) -> Iterator[Happening]:
    """Every delivery of some events, which a statement chooses, with what became of them."""
    found = connection.execute(
        f"""WITH told AS (
            SELECT e.id, CASE WHEN q.status IN ('pending', 'dead') THEN q.status ELSE e.state END AS state,
            coalesce(q.tries, 0) AS tries, coalesce(e.error, q.error) AS error, e.status_code, e.peer, e.received_at,
            e.times, e.doubt FROM ipn_event e LEFT JOIN delivery q ON q.queue = 'inbox' AND q.about = e.id
            WHERE e.id IN ({chosen}))
        SELECT peer, received_at, times, id, state, tries, error, status_code, doubt FROM told UNION ALL
        SELECT d.peer, d.received_at, d.times, told.id, state, tries, error, status_code, doubt
        FROM told JOIN ipn_delivery d ON d.event_id = told.id ORDER BY 2, 4""",  # noqa: S608 - no value in it
        values,
    )
    for peer, at, times, event_id, state, tries, error, status_code, doubt in found:
        words = [f"stored as event {event_id}, with status code {status_code}"]
        words.append(_HANDLED.get(state, state) if doubt is None or state == "disputed" else _DOUBTED[doubt])
        if tries or error:
            words.append(f"{tries} rounds of them failed" + (f", the last one with: {error}" if error else ""))
        if times > 1:
            words.append(f"it came {times} times")
        yield Happening(at=at, what="delivery", by=peer, detail="; ".join(words))


def _words(n: int, code: int | None, message: str | None, transaction_id: bytes | None) -> str:
    words = [f"attempt {n}"]
    if (transaction := unpack_transaction_id(transaction_id)) is not None:
        words.append(f"transaction {transaction}")
    if code is not None:
        words.append(f"code {code}")
    if message is not None:
        words.append(message)
    return ", ".join(words)


def void_list_scans(commit: Commit, runs: Iterable[int] | None = None) -> None:
    """What was sent since may be unknown to this file: no reading of the list of before counts any more.

    Args:
        runs: Those of which that is true; all by default.
    """
    # later than every doubt before, also where the clock was set back since: readings are told apart by that alone
    (moment,) = commit.execute(
        f"SELECT CASE WHEN {LAST_VOIDED} > ? THEN {LAST_VOIDED} + {_TICK} ELSE ? END",
        (commit.now, commit.now),
    ).fetchone()
    if runs is None:
        commit.execute("UPDATE run SET quarantined_at = ?", (moment,))
    else:
        commit.connection.executemany("UPDATE run SET quarantined_at = ? WHERE id = ?", [(moment, run) for run in runs])


def begin_list_scan(commit: Commit, batch_id: str | None, since: date, until: date) -> ListScan:
    """A reading of the list begins; it counts once it has ended well, unless the journal is doubted meanwhile."""
    run = None if batch_id is None else number_of(commit, batch_id)
    (number,) = commit.execute(
        f"""INSERT INTO sweep (run, doubted_at, since, until, begun_at, problem)
        VALUES (?, {LAST_VOIDED}, ?, ?, ?, ?) RETURNING id""",  # noqa: S608 - no value in it
        (run, since.isoformat(), until.isoformat(), commit.now, _UNFINISHED),
    ).fetchone()
    return ListScan(id=number, batch_id=batch_id, since=since, until=until, begun=commit.now)


def end_list_scan(commit: Commit, scan: ListScan, grace: float, interval: float) -> None:
    """It has ended, as the one who read says."""
    counted = CLEAN if scan.clean and scan.is_whole and _may_count(commit, scan, grace, interval) else scan.counted
    commit.execute(
        "UPDATE sweep SET ended_at = ?, rows = ?, requests = ?, counted = ?, problem = ? WHERE id = ?",
        (commit.now, scan.rows, scan.requests, int(counted), scan.problem, scan.id),
    )
    if counted == CLEAN:  # two of one batch: from now on no list lacks what was sent before that was found
        _forget_restored(commit)


def _forget_restored(commit: Commit) -> None:
    """What is begun from now on waits no more, where enough lists of one batch have counted."""
    known = commit.execute("SELECT value FROM meta WHERE key = ?", (RESTORED,)).fetchone()
    if known is None:
        return
    found = commit.execute(
        f"""SELECT 1 FROM sweep WHERE counted = {CLEAN} AND doubted_at >= ?
        GROUP BY run HAVING count(*) >= {LISTS} LIMIT 1""",  # noqa: S608 - numbers only
        (float(known[0].split()[0]),),
    ).fetchone()
    if found is not None:
        commit.execute("DELETE FROM meta WHERE key = ?", (RESTORED,))


def _may_count(commit: Commit, scan: ListScan, grace: float, interval: float) -> bool:
    """Whether a list began late enough since the journal was found to be copied or restored, and since the one before.

    Args:
        grace, interval: Seconds.
    """
    run, begun, at = commit.execute(
        """SELECT s.run, s.begun_at, CASE WHEN s.run IS NULL THEN s.doubted_at ELSE coalesce(r.quarantined_at, 0) END
        FROM sweep s LEFT JOIN run r ON r.id = s.run WHERE s.id = ?""",
        (scan.id,),
    ).fetchone()
    if not at:
        return True
    after, since = counted_from(commit, run, at, begun)
    before = commit.execute(
        f"""SELECT 1 FROM sweep WHERE coalesce(run, -1) = ? AND counted = {CLEAN} AND doubted_at >= ?
        AND ended_at > ? AND id <> ? AND id > ? LIMIT 1""",  # noqa: S608 - a number only
        (-1 if run is None else run, at, begun - interval, scan.id, after),
    ).fetchone()
    return bool(begun >= since + (grace if since == at else max(grace, interval))) and before is None


def note_restored(commit: Commit, *, is_behind: bool) -> None:
    """All of the journal may have forgotten: what is begun from now on waits like the rest, until that was looked for.

    Not after what it knows last, which may be any time ago, but after the first moment that its own runs look from.
    One that knows of no run has nothing to forget, unless it is behind.
    """
    at, since = commit.execute("SELECT max(quarantined_at), min(look_since) FROM run").fetchone()
    if at is None and is_behind:
        at = commit.now
    if at is not None:
        value = f"{at!r} {at if since is None else since!r}"
        commit.execute(
            """INSERT INTO meta (key, value) VALUES (?, ?)
            ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
            (RESTORED, value),
        )


def list_scans(connection: Connection, batch_id: str | None) -> Sequence[ListScan]:
    """The latest readings that were made for a batch, or for any; oldest first."""
    sql = f"SELECT {_SWEEPS} FROM sweep s LEFT JOIN run r ON r.id = s.run"  # noqa: S608 - no value in it
    if batch_id is None:
        found = connection.execute(f"{sql} ORDER BY s.id DESC LIMIT ?", (_MOST,)).fetchall()
    else:
        run = number_of(connection, batch_id)
        found = connection.execute(f"{sql} WHERE s.run = ? ORDER BY s.id DESC LIMIT ?", (run, _MOST)).fetchall()
    return [_sweep(values) for values in reversed(found)]


def is_looked_for(connection: Connection | Commit, batch_id: str | None) -> bool:
    """Whether the list of all days since a batch was made was read for it, and nothing more is awaited.

    Args:
        batch_id: ``None`` for any list that was read since the journal was made, and since it was last doubted.
    """
    ended = "SELECT 1 FROM sweep WHERE ended_at IS NOT NULL AND problem IS NULL AND doubted_at >="
    if batch_id is None:
        found = connection.execute(f"{ended} {LAST_VOIDED} LIMIT 1").fetchone()
        return found is not None
    run, doubted_at, since = run_columns(
        connection,
        batch_id,
        f"id, coalesce(quarantined_at, 0), {LOOK_SINCE}",
    )
    if awaited(connection, run) is not None:
        return False
    values = (doubted_at, run, first_day(since))
    return connection.execute(f"{ended} ? AND run = ? AND since <= ? LIMIT 1", values).fetchone() is not None


def is_read_since(connection: Connection, batch_id: str, moment: float) -> bool:
    """Whether a list that was begun since then was read to its end for a batch."""
    run = number_of(connection, batch_id)
    sql = "SELECT 1 FROM sweep WHERE run = ? AND ended_at IS NOT NULL AND problem IS NULL AND begun_at >= ? LIMIT 1"
    return connection.execute(sql, (run, moment)).fetchone() is not None


def look_earlier(commit: Commit, run: int, since: float) -> None:
    """A batch has to be looked for from this moment on, or from an earlier one that was known before."""
    commit.execute(
        """UPDATE run SET look_since = CASE WHEN coalesce(look_since, created_at) < ?
        THEN coalesce(look_since, created_at) ELSE ? END WHERE id = ?""",
        (since, since, run),
    )


def sent_since(connection: Connection, batch_id: str | None, states: Sequence[State], after: float) -> float | None:
    """The first permit of any order in one of these states, of earlier attempts too; ``None`` where there is none.

    Args:
        after: Unix seconds; an order whose last permit is older is left out.
    """
    first, last = bounds_of(connection, batch_id)
    moments: list[float | None] = []
    for state in states:  # one at a time, for each has its partial index
        moments += connection.execute(
            f"""SELECT min(o.permitted_at), min(CASE WHEN {_HAS_EARLIER}
            THEN (SELECT min(a.permitted_at) FROM attempt a WHERE a.order_id = o.id) END) FROM outbox o
            WHERE {is_in_state("o", state)} AND o.attempt > 0 AND o.permitted_at > ? AND o.id BETWEEN ? AND ?""",  # noqa: S608 - states only
            (after, first, last),
        ).fetchone()
    return min((moment for moment in moments if moment is not None), default=None)


def _sweep(values: Sequence[Any]) -> ListScan:
    number, batch_id, since, until, begun, ended, rows, requests, counted, problem = values
    return ListScan(
        id=number,
        batch_id=batch_id,
        since=date.fromisoformat(since),
        until=date.fromisoformat(until),
        begun=begun,
        ended=ended,
        rows=rows,
        requests=requests,
        counted=bool(counted),
        clean=counted == CLEAN,
        problem=problem,
    )
