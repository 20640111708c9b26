"""The right to send: chunks leased to one worker, permits for their orders, and how each attempt ended."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from itertools import chain

import attrs

from payments_async.journal._faults import HeldElsewhere, JournalCorrupt, LeaseLost, OrderUnknown, RunUnknown
from payments_async.journal._records import (
    Chunk,
    Chunks,
    ClaimedOrder,
    Evidence,
    NotPermitted,
    Outcome,
    Permit,
    Remains,
    Row,
    TransitionResult,
    digest_of_owner,
    pack_transaction_id,
    proved,
    unpack_transaction_id,
)
from payments_async.journal._statements._database import NO_TRANSACTION, Connection, given
from payments_async.journal._statements._deliveries import give_back
from payments_async.journal._statements._entries import (
    COLUMNS,
    IS_SENDABLE,
    Commit,
    among,
    awaited,
    change,
    chunk_bounds,
    chunk_of,
    hold_back,
    row_by_id,
    row_by_request,
    row_of,
    run_columns,
    run_of,
    sum_of,
)
from payments_async.journal._statements._evidence import (
    apply,
    archive_attempt,
    is_open_by_takeover,
    is_unsent,
    open_chunk_of,
    record_evidence,
)
from payments_async.journal._statements._history import look_earlier, void_list_scans
from payments_async.journal._statements._leases import ends_at, is_ahead, is_over, leave_all
from payments_async.journal._statements._notifications import apply_refused_events, apply_unmatched_events
from payments_async.journal._states import IN_DOUBT, UNSENT, Signal, State, next_state
from payments_async.journal._weighing import weigh_answer

_log = logging.getLogger("payments_async.journal")
_NO_ORDER = -1
_NONE = bytes(16)  # no transaction
_DIED = "its process died before a byte of it left"
_ENDS = {  # of an attempt whose order is as its permit left it and a person never had sent again: nearly always
    signal: next_state(State.SENDING, signal).state for signal in (Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN)
}
_LEASE = ("lease_until", "lease")  # of a chunk: its end, and how long it was taken for
_IS_AHEAD, _IS_OVER, _ENDS_AT = is_ahead(*_LEASE), is_over(*_LEASE), ends_at(*_LEASE)
_OF_PERMIT = ("BIGINT", "BIGINT", "BIGINT", "DOUBLE PRECISION")  # the types of what names it
_OF_ACCEPTED, _OF_ENDED = (*_OF_PERMIT, "BYTEA"), (*_OF_PERMIT, "TEXT", "BYTEA", "BIGINT", "TEXT", "TEXT")
# The rules of a permit, and of the usual end of an attempt. They are written nowhere else.
_MARK = re.compile(r"\?|given\.column(\d)")
_HELD = "run = ? AND number = ? AND token = ? AND owner = ? AND lease_until > ?"  # only an open chunk has an owner
_NOT_AS_PUT = "what the file holds of it is not what was put; it was not sent: put it again"
_EDITED = "it is planned, though it was sent before: the file was edited; do not pay it again"
# No attempt is ever taken back, so that a row without one has never had the token of a permit.
_WAS_SENT = f"(sent_before = 0 AND transaction_id <> {NO_TRANSACTION}) OR (attempt = 0 AND token <> 0)"
_PERMIT = f"""UPDATE outbox SET state = 'sending', token = ?, attempt = attempt + 1, permitted_at = ?, updated_at = ?
    WHERE id IN ({{marks}}) AND id BETWEEN ? AND ? AND state = 'planned' AND attempt = ? AND sent_before = ?
    AND EXISTS (SELECT 1 FROM chunk WHERE {_HELD})"""  # noqa: S608 - no value in it
_AS_PERMITTED = "id = {0} AND state = 'sending' AND attempt = {1} AND token = {2} AND permitted_at = {3}"
_EACH_AS_PERMITTED = _AS_PERMITTED.format(*(f"given.column{place}" for place in range(1, 5)))
_ENDED_ALONE = f"""UPDATE outbox SET state = ?, transaction_id = coalesce(?, transaction_id), code = ?, message = ?,
    correlation_id = ?, updated_at = ? WHERE {_AS_PERMITTED.format(*"????")} RETURNING conflict"""  # noqa: S608 - no value in it
_ENDED = f"""UPDATE outbox SET state = given.column5, transaction_id = CASE WHEN given.column6 = {NO_TRANSACTION}
    THEN transaction_id ELSE given.column6 END, code = CAST(given.column7 AS BIGINT),
    message = CAST(given.column8 AS TEXT), correlation_id = CAST(given.column9 AS TEXT), updated_at = ? FROM {{given}}
    WHERE {_EACH_AS_PERMITTED} AND conflict IS NULL"""  # noqa: S608 - no value in it
# a notification without a request id that came before may be about one of these: then each is looked at by itself
_ACCEPTED = f"""UPDATE outbox SET state = 'accepted', transaction_id = given.column5, code = NULL, message = NULL,
    updated_at = ? FROM {{given}} WHERE {_EACH_AS_PERMITTED} AND conflict IS NULL
    AND NOT EXISTS (SELECT 1 FROM ipn_event WHERE order_id IS NULL AND request_key IS NULL)"""  # noqa: S608


def _ready_run(connection: Connection | Commit, batch_id: str) -> int:
    """The number of a batch that is complete.

    Raises:
        RunUnknown: It is not, or there is none.
    """
    number, state = run_columns(connection, batch_id, "id, state")
    if state != "ready":
        raise RunUnknown(f"loading batch {batch_id} was not finished")
    return int(number)


def claim_chunk(commit: Commit, batch_id: str, owner: str, holder: str, lease: float) -> Chunk | None:
    """Lease the first free chunk that has planned orders; close those that have none on the way."""
    run = _ready_run(commit, batch_id)
    if awaited(commit, run) is not None:
        return None
    _cap_leases(commit, run)
    while (free := _first_free(commit, run)) is not None:
        number, token, last = free
        until = commit.now + lease
        token, taken = take_over(commit, run, number, token, last, owner, until, holder)
        commit.execute("UPDATE chunk SET lease = ? WHERE run = ? AND number = ?", (lease, run, number))
        planned = planned_in(commit, run, number)
        if planned:
            return Chunk(
                batch_id=batch_id,
                run=run,
                number=number,
                owner=owner,
                token=token,
                lease_until=until,
                orders=planned,
                taken_over=taken,
            )
        _give_back(commit, run, number, token)
    return None


def renew_chunk(commit: Commit, chunk: Chunk, lease: float) -> float:
    """Prolong a lease; tells until when."""
    until = commit.now + lease
    renewed = commit.writes(
        1,
        "UPDATE chunk SET lease_until = ?, lease = ? WHERE run = ? AND number = ? AND token = ? AND owner = ?",
        (until, lease, chunk.run, chunk.number, chunk.token, chunk.owner),
    )
    if not renewed:
        raise LeaseLost(f"chunk {chunk.number} of batch {chunk.batch_id} was taken over")
    return until


def release_chunk(commit: Commit, chunk: Chunk) -> None:
    """Give a chunk back, unless somebody has it already."""
    mine = commit.finds(
        (1,),
        "SELECT 1 FROM chunk WHERE run = ? AND number = ? AND token = ? AND state = 'open'",
        (chunk.run, chunk.number, chunk.token),
    )
    if mine:
        _make_unknown(commit, chunk.run, chunk.number, chunk.owner)
        _give_back(commit, chunk.run, chunk.number, chunk.token)


def is_expired(connection: Connection, now: float) -> bool:
    """Whether the lease of any chunk ran out, or ends later than any lease can."""
    found = connection.execute(
        f"SELECT 1 FROM chunk WHERE state = 'open' AND owner IS NOT NULL AND {_IS_OVER} LIMIT 1",  # noqa: S608
        (now, now),
    ).fetchone()
    return found is not None


def expire_chunks(commit: Commit, batch_id: str | None) -> int:
    """Take over, for nobody, every chunk whose lease ran out."""
    run = None if batch_id is None else _ready_run(commit, batch_id)
    _cap_leases(commit, run)
    expired = commit.execute(
        """SELECT run, number, token, owner FROM chunk WHERE state = 'open' AND owner IS NOT NULL
        AND lease_until <= ? AND coalesce(? = run, TRUE)""",
        (commit.now, run),
    ).fetchall()
    unknown = 0
    for number_of_run, number, token, last in expired:
        token, taken = take_over(commit, number_of_run, number, token, last, None, 0.0)
        _give_back(commit, number_of_run, number, token)
        unknown += taken
    return unknown


def give_back_all(commit: Commit, owner: str) -> int:
    """Take over, for nobody, every chunk that somebody holds who has nothing in hand; tells how many were unknown."""
    held = commit.execute(
        "SELECT run, number, token FROM chunk WHERE state = 'open' AND owner IS NOT NULL AND owner = ?", (owner,)
    ).fetchall()
    unknown = 0
    for run, number, token in held:
        token, taken = take_over(commit, run, number, token, owner, None, 0.0)
        _give_back(commit, run, number, token)
        unknown += taken
    return unknown


def end_leases_of_crashed_sessions(commit: Commit, dead: Sequence[str]) -> None:
    """End at once what dead holders have: chunks, deliveries, leases by name. Others may have them."""
    for holder in dead:
        commit.execute(
            "UPDATE chunk SET lease_until = ? WHERE holder = ? AND state = 'open' AND lease_until > ?",
            (commit.now, holder, commit.now),
        )
        give_back(commit, holder)
        leave_all(commit, holder)


def quarantine(commit: Commit, chunks: Sequence[tuple[int, int]], last: str) -> None:
    """Quarantine these chunks; what their last holder left under way is unknown."""
    for run, number in chunks:
        _make_unknown(commit, run, number, last)
        # a raised token, so that no permit of before is worth anything
        commit.execute(
            """UPDATE chunk SET state = 'quarantined', token = token + 1, owner = NULL, lease_until = 0
            WHERE run = ? AND number = ?""",
            (run, number),
        )
    runs = {run for run, _ in chunks}
    void_list_scans(commit, runs)
    commit.connection.executemany(
        "UPDATE run SET look_since = coalesce(look_since, created_at) WHERE id = ?", [(run,) for run in runs]
    )


def chunks(connection: Connection, batch_id: str, now: float) -> Chunks:
    """How the chunks of a batch stand."""
    run = _ready_run(connection, batch_id)
    open_, leased, done, quarantined, expiry = connection.execute(
        f"""SELECT count(*) FILTER (WHERE state = 'open' AND NOT held), count(*) FILTER (WHERE state = 'open' AND held),
        count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state = 'quarantined'),
        min(ends) FILTER (WHERE state = 'open' AND held)
        FROM (SELECT state, {_ENDS_AT} AS ends, lease_until > ? AS held FROM chunk WHERE run = ?) AS chunks""",  # noqa: S608
        (now, now, now, run),
    ).fetchone()
    standing = Chunks(open=open_, leased=leased, done=done, quarantined=quarantined)
    if expiry is None:
        return standing
    (owner,) = connection.execute(
        f"SELECT owner FROM chunk WHERE run = ? AND state = 'open' AND {_ENDS_AT} = ? ORDER BY number LIMIT 1",  # noqa: S608
        (run, now, now, expiry),
    ).fetchone() or (None,)
    return attrs.evolve(standing, next_expiry=expiry - now, next_owner=owner)


def _cap_leases(commit: Commit, run: int | None) -> None:
    """Let leases that a clock ahead has taken end after their own length."""
    commit.execute(
        f"""UPDATE chunk SET lease_until = ? + lease
        WHERE owner IS NOT NULL AND {_IS_AHEAD} AND coalesce(? = run, TRUE)""",  # noqa: S608 - only open ones have one
        (commit.now, commit.now, run),
    )


def _first_free(commit: Commit, run: int) -> tuple[int, int, str | None] | None:
    """Number, token and last owner of the first chunk that nobody holds."""
    found: tuple[int, int, str | None] | None = commit.execute(
        """SELECT number, token, owner FROM chunk WHERE run = ? AND state = 'open' AND lease_until <= ?
        AND due_at <= ? ORDER BY priority DESC, number LIMIT 1""",
        (run, commit.now, commit.now),
    ).fetchone()
    return found


def take_over(
    commit: Commit,
    run: int,
    number: int,
    token: int,
    last: str | None,
    owner: str | None,
    until: float,
    holder: str | None = None,
) -> tuple[int, int]:
    """Raise the token, and make unknown what the last holder left under way. Tells the token and how many."""
    token += 1
    commit.execute(
        """UPDATE chunk SET owner = ?, holder = ?, token = ?, lease_until = ?,
        due_at = CASE WHEN due_at < 0 THEN 0 ELSE due_at END WHERE run = ? AND number = ?""",
        (owner, holder or None, token, until, run, number),
    )
    commit.execute(
        "INSERT INTO claim (run, number, token, owner, at) VALUES (?, ?, ?, ?, ?)",
        (run, number, token, owner, commit.now),
    )
    if owner is not None and commit.leased is not None:
        commit.leased(run, number, token, owner)
    commit.has_claimed = True
    commit.passed("claim_chunk.token_raised")
    return token, _make_unknown(commit, run, number, last)


def _make_unknown(commit: Commit, run: int, number: int, last: str | None) -> int:
    """Make unknown what the last holder of a chunk left under way; tells how many orders."""
    found = commit.finds_none(
        f"SELECT {COLUMNS} FROM outbox WHERE id BETWEEN ? AND ? AND state = 'sending'",  # noqa: S608 - no value in it
        chunk_bounds(run, number),
    )
    for row in map(row_of, found):
        verdict = next_state(row.state, Signal.LEASE_EXPIRED, sent_before=bool(row.sent_before))
        change(commit, row, verdict.state)
        evidence = Evidence(signal=Signal.LEASE_EXPIRED, source=f"lease of {last}", request_id=row.request_id)
        record_evidence(commit, row, evidence, verdict.state, None)
    return len(found)


def planned_in(commit: Commit, run: int, number: int) -> tuple[ClaimedOrder, ...]:
    """The planned orders of a chunk that can be sent as they are, each proved to be what was loaded and not sent yet.

    One of an outbox that is not is held back, and holds up no other. Of a batch that a person runs, none is sent then.

    Raises:
        JournalCorrupt: Of a batch.
    """
    found = commit.execute(
        f"""SELECT id, request_id, amount, body, body_sha256, attempt, sent_before, not_before, priority, traceparent,
        CASE WHEN {_WAS_SENT} THEN 1 ELSE 0 END
        FROM outbox WHERE id BETWEEN ? AND ? AND state = 'planned' AND {IS_SENDABLE} ORDER BY id""",  # noqa: S608 - no value in it
        chunk_bounds(run, number),
    ).fetchall()
    claimed = []
    for order_id, request_id, amount, body, digest, attempt, again, not_before, priority, trace, is_sent in found:
        why = _NOT_AS_PUT
        try:
            proved(request_id, amount, body, digest)
            if is_sent:
                why = _EDITED
                raise JournalCorrupt(f"order {request_id}: {why}")
        except JournalCorrupt as error:
            _hold_back_damaged(commit, run, order_id, error, why)
            continue
        claimed.append(
            ClaimedOrder(
                id=order_id,
                request_id=request_id,
                amount=Decimal(amount),
                body=body,
                attempt=attempt,
                sent_before=bool(again),
                not_before=not_before,
                priority=priority,
                traceparent=trace,
            )
        )
    return tuple(claimed)


def _hold_back_damaged(commit: Commit, run: int, order_id: int, error: JournalCorrupt, why: str) -> None:
    """Hold back an order of an outbox that is not what was put; raise the error where it is one of another batch."""
    (outbox,) = commit.execute("SELECT outbox FROM run WHERE id = ?", (run,)).fetchone()
    if outbox is None:
        raise error
    _log.error("an order is held back: %s", error.message, extra={"outbox": outbox})
    hold_back(commit, order_id, why)


def _give_back(commit: Commit, run: int, number: int, token: int) -> None:
    """Let a chunk be claimed by anybody, or be done where nothing is sending in it or planned, but for what is held."""
    # due when the first of its orders is; what is due already needs no place among those that wait
    commit.execute(
        f"""UPDATE chunk SET state = CASE WHEN EXISTS (SELECT 1 FROM outbox WHERE id BETWEEN ? AND ?
            AND state {among(UNSENT)} AND {IS_SENDABLE}) THEN 'open' ELSE 'done' END,
            owner = NULL, lease_until = 0, due_at = (SELECT
            CASE WHEN chunk.due_at > 0 THEN coalesce(min(not_before), chunk.due_at)
            WHEN min(not_before) > ? THEN min(not_before) ELSE 0 END
            FROM outbox WHERE id BETWEEN ? AND ? AND state = 'planned' AND {IS_SENDABLE})
        WHERE run = ? AND number = ? AND token = ?""",  # noqa: S608 - no value in it
        (*chunk_bounds(run, number), commit.now, *chunk_bounds(run, number), run, number, token),
    )


@attrs.define
class PermitRequest:
    """A request for the right to send: granted if the chunk is held, its lease good and the order planned.

    Attributes:
        after: The outcome of the order before, recorded first.
        permit: What was granted in the last commit that tried, whether or not that was made.
    """

    chunk: Chunk
    claimed: ClaimedOrder
    after: Outcome | None
    permit: Permit | None = None

    def __call__(self, commit: Commit) -> Permit | NotPermitted:
        """Grant it by itself, or say why not."""
        after_ended_at = None
        if self.after is not None:
            after_ended_at = record(commit, self.after).ended_at
            commit.passed("permit.after_recorded")
        chunk, claimed = self.chunk, self.claimed
        attempt, sent_before = claimed.attempt, claimed.sent_before
        if not _grant(commit, chunk, [claimed], attempt, sent_before=sent_before):
            row = row_by_id(commit, claimed.id)
            if row is None:
                raise OrderUnknown(f"there is no order {claimed.id}")
            attempt, sent_before = row.attempt, bool(row.sent_before)  # it may have changed since it was claimed
            if not _grant(commit, chunk, [claimed], attempt, sent_before=sent_before):
                is_ours = (run_of(row.id), chunk_of(row.id)) == (chunk.run, chunk.number) and is_held(commit, chunk)
                return NotPermitted(id=row.id, state=row.state, lease_lost=not is_ours)
        return self.granted(commit.permit_at, attempt, sent_before=sent_before, after_ended_at=after_ended_at)

    def granted(self, now: float, attempt: int, *, sent_before: bool, after_ended_at: float | None) -> Permit:
        """The permit after so many before it."""
        claimed = self.claimed
        self.permit = Permit(
            id=claimed.id,
            request_id=claimed.request_id,
            amount=claimed.amount,
            token=self.chunk.token,
            attempt=attempt + 1,
            sent_before=sent_before,
            at=now,
            after_ended_at=after_ended_at,
        )
        return self.permit


def grant_all(commit: Commit, requests: Sequence[PermitRequest]) -> list[Permit] | None:
    """Grant many permits in a few statements; ``None`` when one request is out of the ordinary.

    A statement of its own for each hands the interpreter to and fro between two threads, which costs more than the
    statement.
    """
    outcomes = [request.after for request in requests if request.after is not None]
    ended_at = None
    if outcomes:
        if not _record_all(commit, outcomes):
            return None
        commit.passed("permit.after_recorded")
        ended_at = _plainly_now(commit)
    alike: dict[tuple[int, int, bool], list[PermitRequest]] = {}  # those of one chunk with as many permits before
    for request in requests:
        key = (id(request.chunk), request.claimed.attempt, request.claimed.sent_before)
        if key in alike:
            alike[key].append(request)
        else:
            alike[key] = [request]
    for (_, attempt, sent_before), group in alike.items():
        if not _grant(commit, group[0].chunk, [one.claimed for one in group], attempt, sent_before=sent_before):
            return None
    at = commit.permit_at
    return [
        request.granted(
            at,
            request.claimed.attempt,
            sent_before=request.claimed.sent_before,
            after_ended_at=None if request.after is None else ended_at,
        )
        for request in requests
    ]


@attrs.define
class EndedAttempt:
    """A request to write down how an attempt ended, by itself: no permit is asked for with it."""

    outcome: Outcome

    def __call__(self, commit: Commit) -> TransitionResult:
        """Write it down."""
        return record(commit, self.outcome)


def record_all(commit: Commit, ended: Sequence[EndedAttempt]) -> list[TransitionResult] | None:
    """Write down how many attempts ended in a statement or two; ``None`` when one of them is out of the ordinary."""
    outcomes = [one.outcome for one in ended]
    if not _record_all(commit, outcomes):
        return None
    at, before = _plainly_now(commit), State.SENDING
    return [
        TransitionResult(request_id=outcome.permit.request_id, before=before, state=_ENDS[outcome.signal], ended_at=at)
        for outcome in outcomes
    ]


def withdraw(commit: Commit, permit: Permit, why: str) -> None:
    """Give back a permit that never reached its caller: so nothing was sent under it. Another one stands."""
    row = row_by_id(commit, permit.id)
    if row is not None and row.state in IN_DOUBT and _is_of(row, permit):
        record(commit, Outcome(permit=permit, signal=Signal.NOT_SENT, message=why))


def record_unsent(commit: Commit, remains: Sequence[Remains]) -> None:
    """Write down for processes that died what they surely have not sent.

    A lease is known by its owner too: a copy of a journal may have raised a token to the same number.
    """
    for left in remains:
        lease = (left.run, left.number, left.token)
        (owner,) = commit.execute(
            "SELECT owner FROM claim WHERE run = ? AND number = ? AND token = ?", lease
        ).fetchone() or (None,)
        if owner is None or digest_of_owner(owner) != left.owner:
            continue
        found = commit.execute(
            f"""SELECT {COLUMNS} FROM outbox WHERE id BETWEEN ? AND ? AND token = ?
            AND state {among(IN_DOUBT)}""",  # noqa: S608 - no value in it
            (*chunk_bounds(left.run, left.number), left.token),
        ).fetchall()
        for row in map(row_of, found):
            if left.is_unsent(row.id, row.attempt):
                permit = Permit(
                    id=row.id,
                    request_id=row.request_id,
                    amount=Decimal(row.amount),
                    token=row.token,
                    attempt=row.attempt,
                    sent_before=bool(row.sent_before),
                    at=row.permitted_at,
                )
                record(commit, Outcome(permit=permit, signal=Signal.NOT_SENT, message=_DIED))


def _row_of(commit: Commit, permit: Permit) -> Row:
    """The order of a permit. A journal that was put back may have given its number to another one since.

    Raises:
        OrderUnknown: There is none.
    """
    row = row_by_id(commit, permit.id)
    if row is None or row.request_id != permit.request_id:
        row = row_by_request(commit, permit.request_id)
    if row is None:
        raise OrderUnknown(f"there is no order {permit.id}")
    return row


def _is_of(row: Row, permit: Permit) -> bool:
    """Whether this permit is the order's last one. A journal that was put back grants the same number again."""
    return (row.id, row.attempt, row.token, row.permitted_at) == _named(permit)


def _named(permit: Permit) -> tuple[int, int, int, float]:
    """What tells a permit from any other: its order, attempt and token, and when it was granted."""
    return permit.id, permit.attempt, permit.token, permit.at


def is_held(commit: Commit, chunk: Chunk, *, fills: bool = False) -> bool:
    """Whether a chunk is held as its holder says, and the lease good: what is planned in it may be permitted.

    Args:
        fills: It is also to be filled yet: open, and not asked back.
    """
    lease = (chunk.run, chunk.number, chunk.token, chunk.owner, commit.latest)
    more = " AND state = 'open' AND due_at >= 0" if fills else ""
    return commit.finds((1,), f"SELECT 1 FROM chunk WHERE {_HELD}{more}", lease) is not None  # noqa: S608


def _grant(commit: Commit, chunk: Chunk, claimed: Sequence[ClaimedOrder], attempt: int, *, sent_before: bool) -> bool:
    """Permit orders of a chunk that had so many permits before; tells whether that was done for all of them."""
    ids, now, at = [order.id for order in claimed], commit.now, commit.permit_at
    width = _rounded(len(ids))
    values = (
        *(chunk.token, at, now),
        *ids,
        *[_NO_ORDER] * (width - len(ids)),
        *chunk_bounds(chunk.run, chunk.number),
        *(attempt, int(sent_before)),
        *(chunk.run, chunk.number, chunk.token, chunk.owner, commit.latest),
    )
    if commit.writes(len(ids), _marked(_PERMIT, width, 1), values) != len(ids):
        return False
    if at != now:
        look_earlier(commit, chunk.run, at)  # it was made by the same clock
    commit.changed = ids[-1]
    amount = sum_of([order.amount for order in claimed])
    commit.move(chunk.run, State.PLANNED, State.SENDING, amount, len(claimed))
    return True


def _record_all(commit: Commit, outcomes: Sequence[Outcome]) -> bool:
    """Write down the usual ends of many attempts; tells whether all of them were usual."""
    accepted: list[tuple[object, ...]] = []
    others: list[tuple[object, ...]] = []
    amounts: dict[int, list[Decimal]] = {}  # of those accepted, by run
    for outcome in outcomes:
        permit, packed = outcome.permit, pack_transaction_id(outcome.transaction_id)
        if permit.sent_before:
            return False
        if (
            outcome.signal is Signal.ACCEPTED
            and packed is not None
            and outcome.code is None
            and outcome.message is None
            and outcome.correlation_id is None
        ):
            accepted.append((*_named(permit), bytearray(packed)))
            amounts.setdefault(run_of(permit.id), []).append(permit.amount)
            continue
        state = _ENDS.get(outcome.signal)
        if state is None or (packed is not None and _are_nameless(commit)):
            return False
        words = (outcome.code, outcome.message, outcome.correlation_id)
        others.append((*_named(permit), state.value, packed or _NONE, *words))
        commit.move(run_of(permit.id), State.SENDING, state, permit.amount)
    for run, those in amounts.items():
        commit.move(run, State.SENDING, State.ACCEPTED, sum_of(those), len(those))
    commit.changed = outcomes[-1].permit.id
    return _is_done_for_all(commit, _ACCEPTED, _OF_ACCEPTED, accepted) and _is_done_for_all(
        commit, _ENDED, _OF_ENDED, others
    )


def _is_done_for_all(commit: Commit, sql: str, kinds: Sequence[str], rows: Sequence[tuple[object, ...]]) -> bool:
    """Change many orders in one statement, whose id is each row's first value; tells whether it found all of them.

    Numbers, texts and bytearrays are bound as they are; for anything else, None too, ``sqlite3`` looks for an adapter
    first, which takes longer than the rest. So rows of the usual kind hold nothing else.
    """
    if not rows:
        return True
    if commit.database.takes_arrays:
        arrays = [commit.now, *map(list, zip(*rows, strict=True))]
        return commit.writes(len(rows), _for_arrays(sql, kinds), arrays) == len(rows)
    if len(rows) == 1:
        (row,), (alone, places) = rows, _alone(sql)
        values = (commit.now, *row)
        return commit.writes(1, alone, [values[place] for place in places]) == 1
    width, full = len(rows[0]), _rounded(len(rows))
    all_values = [commit.now, *chain.from_iterable(rows), *(_NO_ORDER, *rows[0][1:]) * (full - len(rows))]
    return commit.writes(len(rows), _marked(sql, full, width), all_values) == len(rows)


def _rounded(count: int) -> int:
    """A power of two, so that there are few different statements, and they are kept."""
    return 1 << (count - 1).bit_length()


@cache
def _alone(sql: str) -> tuple[str, Sequence[int]]:
    """A statement for a single row, and which of its values each mark is: 0 for what all rows share.

    Of rows that are given SQLite makes a table first, which takes as long as the rest.
    """
    places = tuple(int(mark[1] or 0) for mark in _MARK.finditer(sql))
    return _MARK.sub("?", sql.replace(" FROM {given}", "")), places


@cache
def _marked(sql: str, rows: int, width: int) -> str:
    """A statement for so many rows."""
    row = "?" if width == 1 else f"({', '.join('?' * width)})"
    marks = ", ".join([row] * rows)
    return sql.format(marks=marks, given=f"(VALUES {marks}) AS given")


@cache
def _for_arrays(sql: str, kinds: Sequence[str]) -> str:
    """A statement for any number of rows, which is given an array for each column."""
    return sql.format(given=given(kinds))


def note_sent(commit: Commit, row: Row, sent: Evidence) -> None:
    """Write down the attempt that a session has made by itself before the order was put, and how that ended.

    One of unknown outcome is kept as what was told, for it may be more than one: no listing deadline is for it.
    """
    at = row.permitted_at if sent.at is None else min(row.permitted_at, sent.at)
    commit.execute("UPDATE outbox SET state = 'sending', attempt = 1, permitted_at = ? WHERE id = ?", (at, row.id))
    if at < row.permitted_at:
        look_earlier(commit, run_of(row.id), at)  # else it is looked for in days in which it was not sent
    amount = Decimal(row.amount)
    commit.move(run_of(row.id), State.PLANNED, State.SENDING, amount)
    if sent.signal is Signal.UNKNOWN:
        record_evidence(commit, row, sent, State.SENDING, None)
    permit = Permit(id=row.id, request_id=row.request_id, amount=amount, token=row.token, attempt=1, at=at)
    record(commit, Outcome(permit=permit, signal=sent.signal, transaction_id=sent.transaction_id, message=sent.detail))


def note_sent_elsewhere(commit: Commit, row: Row, held: HeldElsewhere) -> None:
    """Keep an order that a person has adopted as unknown: its former holder may have sent it until this moment.

    It is looked for from the moment on at which that holder began. Once the lists have missed it, it is parked.
    """
    commit.execute(
        """INSERT INTO attempt (order_id, n, token, permitted_at, outcome, message, done_at)
        VALUES (?, 0, 0, ?, ?, ?, ?)""",
        (row.id, held.since, Signal.UNKNOWN, held.message, commit.now),
    )
    if row.state is not State.PLANNED:
        return  # this process has sent it by itself, and knows more
    at = commit.permit_at
    commit.execute("UPDATE outbox SET attempt = 1, permitted_at = ? WHERE id = ?", (at, row.id))
    evidence = Evidence(signal=Signal.UNKNOWN, source="another journal", request_id=row.request_id, detail=held.message)
    record_evidence(commit, row, evidence, State.UNKNOWN, None)
    change(commit, row, State.UNKNOWN, message=held.message, sent_before=True)


def record(commit: Commit, outcome: Outcome) -> TransitionResult:
    """Write down how an attempt ended."""
    permit, packed = outcome.permit, pack_transaction_id(outcome.transaction_id)
    state = None if permit.sent_before else _ENDS.get(outcome.signal)
    if state is None:
        return apply_refused_events(commit, _record_unusual(commit, outcome))
    words = (outcome.code, outcome.message, outcome.correlation_id)
    values = (state, packed, *words, commit.now, *_named(permit))
    found = commit.execute(_ENDED_ALONE, values).fetchall()
    if not found:
        return apply_refused_events(commit, _record_unusual(commit, outcome))
    commit.changed = permit.id
    commit.move(run_of(permit.id), State.SENDING, state, permit.amount)
    at = _plainly_now(commit) if found == [(None,)] else None
    if packed is not None and _are_nameless(commit):
        settled = _settle_early(commit, outcome, state)
        at, state = at if settled is state else None, settled
    result = TransitionResult(request_id=permit.request_id, before=State.SENDING, state=state, ended_at=at)
    return result if found == [(None,)] else apply_refused_events(commit, result)


def _record_unusual(commit: Commit, outcome: Outcome) -> TransitionResult:
    """Write down how an attempt ended that was turned away unread, or whose order is not as its permit left it."""
    permit = outcome.permit
    row = _row_of(commit, permit)
    evidence = Evidence(
        signal=outcome.signal,
        source=f"answer to attempt {permit.attempt}",
        request_id=row.request_id,
        transaction_id=outcome.transaction_id,
        detail=outcome.message,
    )
    if row.archive is not None:
        return apply(commit, row, evidence)
    is_the_last = _is_of(row, permit)
    if outcome.signal is Signal.NOT_SENT and row.state in IN_DOUBT:
        is_the_last = is_the_last and (row.state is State.SENDING or is_open_by_takeover(commit, row))
    if outcome.signal is Signal.ACCEPTED and not (is_the_last and row.state is State.SENDING):
        return apply(commit, row, evidence)
    if not is_the_last:
        record_evidence(commit, row, evidence, row.state, None)  # says nothing of what is open
        return TransitionResult(request_id=row.request_id, before=row.state, state=row.state)
    words_of_it = outcome.code, outcome.message, outcome.correlation_id
    state, words, _ = weigh_answer(row, outcome.signal, unsent=is_unsent(commit, row))
    flaw = words
    is_planned_again = row.state is not state is State.PLANNED
    if is_planned_again:
        archive_attempt(commit, row, outcome.signal, *words_of_it, commit.now)
        if row.conflict is None:
            open_chunk_of(commit, row)
        else:
            state = State.PARKED  # another system may have sent it under our id: a person looks first
    is_told_by_attempt = is_planned_again and row.state is State.SENDING
    if not is_told_by_attempt and not record_evidence(commit, row, evidence, state, words):
        flaw = None  # it was seen by whoever acknowledged it
    hint = outcome.transaction_id if state is not row.state else None
    code, message, correlation_id = words_of_it
    change(
        commit,
        row,
        state,
        transaction_id=hint,
        code=code,
        message=message,
        conflict=flaw,
        correlation_id=correlation_id,
    )
    if is_planned_again and state is State.PLANNED and outcome.holds_back:
        hold_back(commit, row.id, outcome.message or "it cannot be sent as it is")
    return TransitionResult(request_id=row.request_id, before=row.state, state=state, conflict=words)


def _plainly_now(commit: Commit) -> float | None:
    """When an attempt ended, if no notification says of any order what its row does not: now."""
    (are_there,) = commit.finds_as_before("SELECT EXISTS (SELECT 1 FROM ipn_event WHERE doubt = 'unconfirmed')")
    return None if are_there else commit.now


def _are_nameless(commit: Commit) -> bool:
    """Whether there are notifications without a request id, of transactions nobody knew when they came."""
    if commit.nameless is None:
        found = commit.finds_as_before("SELECT 1 FROM ipn_event WHERE order_id IS NULL AND request_key IS NULL LIMIT 1")
        commit.nameless = found is not None
    return commit.nameless


def _settle_early(commit: Commit, outcome: Outcome, state: State) -> State:
    """Apply a notification that named this transaction, but no request id, before its answer came."""
    text = unpack_transaction_id(pack_transaction_id(outcome.transaction_id))
    early = commit.execute(
        "SELECT 1 FROM ipn_event WHERE transaction_id = ? AND order_id IS NULL AND request_key IS NULL LIMIT 1", (text,)
    ).fetchone()
    row = None if early is None else row_by_id(commit, outcome.permit.id)
    if row is None:
        return state
    apply_unmatched_events(commit, row)
    settled = row_by_id(commit, outcome.permit.id)
    return state if settled is None else settled.state
