"""Permits and the outcomes of attempts: the only way to ``sending``, and the ways out of it. Opens no connection."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from functools import cache
from itertools import chain

from payments_async.journal._bodies import pack_transaction_id, unpack_transaction_id
from payments_async.journal._evidence import apply, apply_loose_events, is_unsent, keep
from payments_async.journal._faults import OrderUnknown
from payments_async.journal._records import Chunk, ClaimedOrder, Evidence, Finding, Outcome, Permit, Refusal
from payments_async.journal._rows import Row, change, chunk_bounds, chunk_of, row_by_id, run_of
from payments_async.journal._states import News, State, next_state
from payments_async.journal._transaction import EXACT, Transaction, Work

__all__ = ["Asking", "grant_all", "record", "withdraw"]

_NOTHING = Decimal(0)
_NO_ORDER = -1
_PERMITTED = State.SENDING
_ENDS = {  # of an attempt whose order is as its permit left it and was never written off: nearly always
    news: next_state(_PERMITTED, news).state for news in (News.ACCEPTED, News.REJECTED, News.UNKNOWN)
}


class Asking:
    """A request for the right to send: granted if the chunk is held, its lease good and the order planned.

    Args:
        after: The outcome of the order before, recorded first.
    """

    __slots__ = ("after", "chunk", "claimed")

    def __init__(self, chunk: Chunk, claimed: ClaimedOrder, after: Outcome | None) -> None:
        self.chunk = chunk
        self.claimed = claimed
        self.after = after

    def __call__(self, transaction: Transaction) -> Permit | Refusal:
        """Do it."""
        if self.after is not None:
            _record(transaction, self.after)
            transaction.passed("permit.after_recorded")
        chunk, claimed = self.chunk, self.claimed
        order_id, attempt, sent_before = claimed.id, claimed.attempt, claimed.sent_before
        good = self.is_good(transaction)
        if not good or not _grant(transaction, chunk, order_id, attempt, sent_before):
            row = row_by_id(transaction, order_id)
            if row is None:
                raise OrderUnknown(f"there is no order {order_id}")
            attempt, sent_before = row.attempt, bool(row.sent_before)  # it has changed since the chunk was claimed
            if not good or not _grant(transaction, chunk, order_id, attempt, sent_before):
                return Refusal(id=order_id, state=row.state, lease_lost=not good)
        _count(transaction, order_id, claimed.amount, State.PLANNED, _PERMITTED)
        return self.granted(attempt, sent_before=sent_before)

    def is_good(self, transaction: Transaction) -> bool:
        """Whether the chunk is ours, its lease good, and the order one of its."""
        chunk, order_id = self.chunk, self.claimed.id
        is_of_it = run_of(order_id) == chunk.run and chunk_of(order_id) == chunk.number
        return is_of_it and _is_held(transaction, chunk)

    def granted(self, attempt: int, *, sent_before: bool) -> Permit:
        """The permit after so many before it."""
        claimed = self.claimed
        return Permit(
            id=claimed.id, request_id=claimed.request_id, amount=claimed.amount, token=self.chunk.token,
            attempt=attempt + 1, sent_before=sent_before,
        )  # fmt: skip


def grant_all(transaction: Transaction, asking: Sequence[Asking]) -> list[Permit] | None:
    """Do that for many in a few statements; ``None`` when one of them is out of the ordinary.

    What is checked is the same. A statement of its own for each hands the interpreter to and fro between two threads,
    which costs more than the statement.
    """
    outcomes = [one.after for one in asking if one.after is not None]
    if outcomes:
        if not _record_all(transaction, outcomes):
            return None
        transaction.passed("permit.after_recorded")
    alike: dict[tuple[int, int, bool], list[Asking]] = {}  # those of one chunk with as many permits before
    for one in asking:
        key = (id(one.chunk), one.claimed.attempt, one.claimed.sent_before)
        if key in alike:
            alike[key].append(one)
        else:
            alike[key] = [one]
    if not all(_grant_alike(transaction, group) for group in alike.values()):
        return None
    return [one.granted(one.claimed.attempt, sent_before=one.claimed.sent_before) for one in asking]


def record(outcome: Outcome) -> Work[Finding]:
    """Write down how an attempt ended."""
    return lambda transaction: _record(transaction, outcome)


def withdraw(chunk: Chunk, claimed: ClaimedOrder) -> Work[None]:
    """Give back a permit that never reached its caller, who was cancelled: so nothing was sent under it."""

    def work(transaction: Transaction) -> None:
        row = row_by_id(transaction, claimed.id)
        if row is not None and row.state is State.SENDING and row.token == chunk.token:
            granted = Permit(
                id=row.id, request_id=row.request_id, amount=claimed.amount, token=row.token, attempt=row.attempt
            )
            _record(transaction, Outcome(permit=granted, news=News.NOT_SENT, message="cancelled before it was sent"))

    return work


def _is_held(transaction: Transaction, chunk: Chunk) -> bool:
    lease = (chunk.run, chunk.number, chunk.token, chunk.owner)
    held = transaction.known.get(lease)
    if held is None:
        found = transaction.execute(
            """SELECT 1 FROM chunk WHERE run = ? AND number = ? AND token = ? AND owner = ? AND state = 'open'
            AND lease_until > ?""",
            (*lease, transaction.now),
        ).fetchone()
        held = transaction.known[lease] = found is not None
    return held


def _grant(transaction: Transaction, chunk: Chunk, order_id: int, attempt: int, sent_before: bool) -> bool:
    now = transaction.now
    granted = transaction.execute(
        """UPDATE outbox SET state = 'sending', token = ?, attempt = ?, permitted_at = ?, updated_at = ?
        WHERE id = ? AND state = 'planned' AND attempt = ? AND sent_before = ?""",
        (chunk.token, attempt + 1, now, now, order_id, attempt, int(sent_before)),
    )
    return granted.rowcount == 1


def _grant_alike(transaction: Transaction, asking: Sequence[Asking]) -> bool:
    chunk, attempt, sent_before = asking[0].chunk, asking[0].claimed.attempt, asking[0].claimed.sent_before
    ids, now = [one.claimed.id for one in asking], transaction.now
    width = _rounded(len(ids))
    granted = transaction.execute(
        _marked(
            """UPDATE outbox SET state = 'sending', token = ?, attempt = attempt + 1, permitted_at = ?, updated_at = ?
            WHERE id IN ({marks}) AND id BETWEEN ? AND ? AND state = 'planned' AND attempt = ?
            AND sent_before = ? AND EXISTS (SELECT 1 FROM chunk WHERE run = ? AND number = ? AND token = ? AND owner = ?
            AND state = 'open' AND lease_until > ?)""",
            width, 1,
        ),
        (
            chunk.token, now, now, *ids, *[_NO_ORDER] * (width - len(ids)), *chunk_bounds(chunk.run, chunk.number),
            attempt, int(sent_before), chunk.run, chunk.number, chunk.token, chunk.owner, now,
        ),
    )  # fmt: skip
    if granted.rowcount != len(ids):
        return False
    _count_all(transaction, chunk.run, [one.claimed.amount for one in asking], State.PLANNED, _PERMITTED)
    return True


def _record_all(transaction: Transaction, outcomes: Sequence[Outcome]) -> bool:
    accepted: list[tuple[object, ...]] = []
    others: list[tuple[object, ...]] = []
    amounts: dict[int, list[Decimal]] = {}  # of those accepted, by run
    for outcome in outcomes:
        permit, packed = outcome.permit, pack_transaction_id(outcome.transaction_id)
        if permit.sent_before:
            return False
        if outcome.news is News.ACCEPTED and type(packed) is bytes and outcome.code is None and outcome.message is None:
            accepted.append((permit.id, permit.attempt, bytearray(packed)))
            amounts.setdefault(run_of(permit.id), []).append(permit.amount)
            continue
        state = _ENDS.get(outcome.news)
        if state is None or (packed is not None and _are_nameless(transaction)):
            return False
        others.append((permit.id, permit.attempt, state.value, packed, outcome.code, outcome.message))
        _count(transaction, permit.id, permit.amount, _PERMITTED, state)
    for run, those in amounts.items():
        _count_all(transaction, run, those, _PERMITTED, State.ACCEPTED)
    return _is_done_for_all(
        transaction,
        """UPDATE outbox SET state = 'accepted', transaction_id = given.column3, code = NULL, message = NULL,
        updated_at = ? FROM (VALUES {marks}) AS given
        WHERE id = given.column1 AND state = 'sending' AND attempt = given.column2 AND sent_before = 0
        AND NOT EXISTS (SELECT 1 FROM ipn_event WHERE order_id IS NULL AND request_id IS NULL)""",
        accepted,
    ) and _is_done_for_all(
        transaction,
        """UPDATE outbox SET state = given.column3, transaction_id = coalesce(given.column4, transaction_id),
        code = given.column5, message = given.column6, updated_at = ? FROM (VALUES {marks}) AS given
        WHERE id = given.column1 AND state = 'sending' AND attempt = given.column2 AND sent_before = 0""",
        others,
    )  # fmt: skip


def _is_done_for_all(transaction: Transaction, sql: str, rows: Sequence[tuple[object, ...]]) -> bool:
    """Change many orders in one statement, whose id is each row's first value; tells whether it found all of them.

    Numbers, texts and bytearrays are bound as they are; for anything else, None too, ``sqlite3`` looks for an adapter
    first, which takes longer than the rest. So rows of the usual kind hold nothing else.
    """
    if not rows:
        return True
    width, full = len(rows[0]), _rounded(len(rows))
    values = [transaction.now, *chain.from_iterable(rows), *[_NO_ORDER] * ((full - len(rows)) * width)]
    return bool(transaction.execute(_marked(sql, full, width), values).rowcount == len(rows))


def _rounded(count: int) -> int:
    return 1 << (count - 1).bit_length()  # few different statements, so that they are kept


@cache
def _marked(sql: str, rows: int, width: int) -> str:
    row = "?" if width == 1 else f"({', '.join('?' * width)})"
    return sql.format(marks=", ".join([row] * rows))


def _record(transaction: Transaction, outcome: Outcome) -> Finding:
    permit = outcome.permit
    state = None if permit.sent_before else _ENDS.get(outcome.news)
    if state is not None:
        packed = pack_transaction_id(outcome.transaction_id)
        done = transaction.execute(
            """UPDATE outbox SET state = ?, transaction_id = coalesce(?, transaction_id), code = ?, message = ?,
            updated_at = ? WHERE id = ? AND state = 'sending' AND attempt = ? AND sent_before = 0""",
            (state, packed, outcome.code, outcome.message, transaction.now, permit.id, permit.attempt),
        )
        if done.rowcount:
            _count(transaction, permit.id, permit.amount, _PERMITTED, state)
            if packed is not None and _are_nameless(transaction):
                state = _settle_early(transaction, outcome, state)
            return Finding(request_id=permit.request_id, before=_PERMITTED, state=state)
    return _record_unusual(transaction, outcome)


def _record_unusual(transaction: Transaction, outcome: Outcome) -> Finding:
    row = row_by_id(transaction, outcome.permit.id)
    if row is None:
        raise OrderUnknown(f"there is no order {outcome.permit.id}")
    evidence = Evidence(
        news=outcome.news, source=f"answer to attempt {outcome.permit.attempt}", request_id=row.request_id,
        transaction_id=outcome.transaction_id, detail=outcome.message,
    )  # fmt: skip
    if outcome.news is News.ACCEPTED and row.state is not State.SENDING:
        return apply(transaction, row, evidence)
    if row.attempt != outcome.permit.attempt and outcome.news is not News.ACCEPTED:
        keep(transaction, row, evidence, row.state, None)  # says nothing of the attempt under way
        return Finding(request_id=row.request_id, before=row.state, state=row.state)
    if outcome.news is News.ACCEPTED and row.attempt != outcome.permit.attempt:
        return apply(transaction, row, evidence)
    unsent = is_unsent(transaction, row)
    verdict = next_state(row.state, outcome.news, sent_before=bool(row.sent_before), unsent=unsent)
    words = f"{outcome.news} (own answer) for an order that is {row.state}" if verdict.conflict else None
    flaw = words
    if row.state is State.SENDING and verdict.state is State.PLANNED:
        _archive(transaction, row, outcome)
    elif not keep(transaction, row, evidence, verdict.state, words):
        flaw = None  # it was seen by whoever acknowledged it
    hint = outcome.transaction_id if verdict.state is not row.state else None
    change(
        transaction, row, verdict.state, transaction_id=hint, code=outcome.code, message=outcome.message, conflict=flaw
    )
    return Finding(request_id=row.request_id, before=row.state, state=verdict.state, conflict=words)


def _archive(transaction: Transaction, row: Row, outcome: Outcome) -> None:
    """Keep an attempt whose place in the row the next one will take."""
    transaction.execute(
        """INSERT INTO attempt (order_id, n, token, permitted_at, outcome, code, message, done_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            row.id, row.attempt, row.token, row.permitted_at, outcome.news, outcome.code, outcome.message,
            transaction.now,
        ),
    )  # fmt: skip


def _are_nameless(transaction: Transaction) -> bool:
    """Whether there are notifications without a request id, of transactions nobody knew when they came."""
    nameless = transaction.known.get("nameless")
    if nameless is None:
        found = transaction.execute(
            "SELECT 1 FROM ipn_event WHERE order_id IS NULL AND request_id IS NULL LIMIT 1"
        ).fetchone()
        nameless = transaction.known["nameless"] = found is not None
    return nameless


def _settle_early(transaction: Transaction, outcome: Outcome, state: State) -> State:
    """Apply a notification that named this transaction, but no request id, before its answer came."""
    text = unpack_transaction_id(pack_transaction_id(outcome.transaction_id))
    early = transaction.execute(
        "SELECT 1 FROM ipn_event WHERE transaction_id = ? AND order_id IS NULL AND request_id IS NULL LIMIT 1", (text,)
    ).fetchone()
    row = None if early is None else row_by_id(transaction, outcome.permit.id)
    if row is None:
        return state
    apply_loose_events(transaction, row)
    settled = row_by_id(transaction, outcome.permit.id)
    return state if settled is None else settled.state


def _count_all(transaction: Transaction, run: int, amounts: list[Decimal], before: State, after: State) -> None:
    """As ``_count``, for the amounts of many orders of a run."""
    with localcontext(EXACT):
        total = sum(amounts, _NOTHING)
        transaction.count(run, before, -len(amounts), -total)
        transaction.count(run, after, len(amounts), total)


def _count(transaction: Transaction, order_id: int, amount: Decimal, before: State, after: State) -> None:
    run = run_of(order_id)
    transaction.count(run, before, -1, amount.copy_negate())
    transaction.count(run, after, 1, amount)
