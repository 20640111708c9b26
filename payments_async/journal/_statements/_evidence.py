"""What is found out about an order, or decided on it by a person: written down, with what it changes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from itertools import islice

from payments_async._values.amounts import amount_text
from payments_async._values.request_ids import plain_id
from payments_async.journal._approvals import ApprovalRule, Proposal, Signature, decision_proposal
from payments_async.journal._faults import NotCancelled, NotLookedFor, NotParked, OrderUnknown
from payments_async.journal._records import (
    Evidence,
    Row,
    TransitionResult,
    check_named,
    pack_transaction_id,
    unpack_transaction_id,
)
from payments_async.journal._statements._approvals import check_decision
from payments_async.journal._statements._deliveries import INBOX, withdraw
from payments_async.journal._statements._entries import (
    ASKED_BACK,
    LIFTED,
    Commit,
    Work,
    awaited,
    batch_columns,
    bounds,
    change,
    chunk_of,
    open_beyond,
    row_by_request,
    row_here,
    rows_by_transaction,
    run_columns,
    run_of,
)
from payments_async.journal._statements._history import where_it_is
from payments_async.journal._states import CONFIRMED, EVIDENCE, FINAL, OPEN, SAID, Signal, State, next_state
from payments_async.journal._weighing import weigh

_log = logging.getLogger("payments_async.journal")
_SHOWN = 20  # orders named in a decision
_TOLD = EVIDENCE - {Signal.ACCEPTED, Signal.SWEPT_CLEAN_TWICE}  # notified or looked up
_UNPAID = {
    Signal.NOTIFIED_FAILED,
    Signal.NOTIFIED_REVERSED,
    Signal.LOOKED_UP_FAILED,
    Signal.LOOKED_UP_REVERSED,
}
_SILENT = {
    Signal.LEASE_EXPIRED,
    Signal.NOT_SENT,
    Signal.SWEPT_CLEAN_TWICE,
}  # none of it says that the service has the order


def find(commit: Commit, request_id: str | None, transaction_id: str | None) -> Row | None:
    """The order that evidence is about: by its request id, else by the transaction if only one order carries it.

    An archived order that carries it too does not count beside one that is here.
    """
    row = None if request_id is None else row_by_request(commit, request_id)
    if row is None and transaction_id is not None:
        rows = rows_by_transaction(commit, transaction_id)
        is_one = len(rows) == 1 or len({row.archive is None for row in rows}) > 1
        row = rows[0] if is_one else None
    return row


def apply(
    commit: Commit,
    row: Row,
    evidence: Evidence,
    *,
    event_id: int | None = None,
    against: str | None = None,
) -> TransitionResult:
    """Weigh evidence, and write it down with what it changes.

    Args:
        against: Words, where something else than the evidence itself speaks against it.
    """
    if row.archive is not None:
        return _apply_late(commit, row, evidence, event_id=event_id, against=against)
    if row.sent_before and _is_decided(commit, row, evidence):
        record_evidence(commit, row, evidence, row.state, None, event_id=event_id)
        return TransitionResult(request_id=row.request_id, before=row.state, state=row.state)
    against = against or _of_another(commit, row, evidence.transaction_id)
    parks = False
    if against is None and _is_of_one_attempt(commit, row, evidence):
        against = f"{SAID[evidence.signal]}, and the order was sent again: another attempt may be paid"
        parks = row.state in OPEN
    if against is None and (others := _may_be_meant(commit, row, evidence)):
        against = f"transaction {evidence.transaction_id} is listed as {row.request_id}, which may be the beginning of"
        against = f"{against} {others[0].request_id}"
        parked = [other for other in others if other.state is State.PARKED]
        if row.state is not State.PLANNED and not parked:  # one of them may be told of yet: nobody has to look
            return TransitionResult(request_id=row.request_id, before=row.state, state=row.state, conflict=against)
        parks = row.state is State.UNKNOWN
        for other in parked:
            apply(commit, other, evidence, against=against)
    unsent = is_unsent(commit, row)
    may_be_forgotten = unsent and _is_quarantined(commit, row)
    weighed = weigh(row, evidence, unsent=unsent, may_be_forgotten=may_be_forgotten, against=against, parks=parks)
    is_new = record_evidence(commit, row, evidence, weighed.state, weighed.conflict, event_id=event_id)
    flaw = weighed.conflict if is_new else None  # the same again was seen by whoever acknowledged it
    if weighed.state is not row.state or flaw is not None or weighed.transaction_id is not None:
        change(commit, row, weighed.state, transaction_id=weighed.transaction_id, conflict=flaw)
    return TransitionResult(request_id=row.request_id, before=row.state, state=weighed.state, conflict=weighed.conflict)


def _is_quarantined(commit: Commit, row: Row) -> bool:
    """Whether an order may have been sent, though it is planned: its journal was restored, copied, or took it over."""
    found = commit.execute(
        "SELECT 1 FROM chunk WHERE run = ? AND number = ? AND state = 'quarantined'", (run_of(row.id), chunk_of(row.id))
    )
    return found.fetchone() is not None


def _apply_late(
    commit: Commit, row: Row, evidence: Evidence, *, event_id: int | None, against: str | None
) -> TransitionResult:
    """Weigh what is told of an order that has left for an archive.

    What agrees with its end is not written down again. A reversal is, and the order counts as reversed from then on;
    so is what contradicts, which nobody has to acknowledge: it is in no list, so that an error in the log tells it.
    """
    weighed = weigh(row, evidence, unsent=False, against=against)
    if weighed.state is not row.state or weighed.conflict is not None:
        is_new = record_evidence(commit, row, evidence, weighed.state, weighed.conflict, event_id=event_id)
        if is_new:
            words = weighed.conflict or f"it is {weighed.state} now"
            facts = {"request_id": row.request_id, "why": words}
            _log.error("new evidence about an archived order: %s: %s", row.request_id, words, extra=facts)
    if weighed.state is not row.state:
        change(commit, row, weighed.state)
    return TransitionResult(request_id=row.request_id, before=row.state, state=weighed.state, conflict=weighed.conflict)


def _of_another(commit: Commit, row: Row, transaction_id: str | None) -> str | None:
    """Why a transaction that an order is not known to have cannot be its own: another order is known to have it.

    A service that does not tell small from capital letters, or cuts ids off, names one order where another is meant.
    """
    if transaction_id is None or pack_transaction_id(transaction_id) == row.transaction_id:
        return None
    for other in rows_by_transaction(commit, transaction_id):
        if other.id != row.id and (other.state in CONFIRMED or other.archive is not None):
            return f"transaction {transaction_id} is known to be that of order {other.request_id}"
    return None


def _is_of_one_attempt(commit: Commit, row: Row, evidence: Evidence) -> bool:
    """Whether an order that was sent again did not come to its end by this: another attempt may be paid.

    What the service answered to the last attempt names its transaction; a person has said that none before arrived.
    """
    if not row.sent_before or row.state in FINAL or evidence.signal not in _UNPAID:
        return False
    counts = """SELECT (SELECT count(*) FROM attempt WHERE order_id = ? AND outcome = ?),
        EXISTS (SELECT 1 FROM evidence WHERE order_id = ? AND news = ? AND source = ? AND conflict IS NULL)"""
    last = (row.id, Signal.ACCEPTED, f"answer to attempt {row.attempt}")
    proved, is_named = commit.execute(counts, (row.id, Signal.NOT_SENT, *last)).fetchone()
    is_of_last = is_named and pack_transaction_id(evidence.transaction_id) == row.transaction_id
    return bool(row.attempt - proved > 1 and not is_of_last)


def _may_be_meant(commit: Commit, row: Row, evidence: Evidence) -> list[Row]:
    """Open orders that a row of the list may be about as well: the list may cut ids off, and theirs begin with this.

    A transaction that is known to be the order's own needs no id, and another amount is another order's.
    """
    is_listed = evidence.source.startswith("list") and evidence.transaction_id is not None
    transaction = pack_transaction_id(evidence.transaction_id)
    if not is_listed or row.state in CONFIRMED or row.transaction_id == transaction:
        return []
    others = open_beyond(commit, row.request_id)
    amount = None if evidence.amount is None else evidence.amount.copy_abs()
    return [
        other
        for other in others
        if amount in (None, Decimal(other.amount))
        and (other.transaction_id == transaction or unpack_transaction_id(other.transaction_id) is None)
    ]


def is_unsent(commit: Commit, row: Row) -> bool:
    """Whether a planned or parked order was never sent: no attempt was made, or each is proved not to have left."""
    if row.state not in (State.PLANNED, State.PARKED) or not row.attempt:
        return row.state in (State.PLANNED, State.PARKED)
    (proved,) = commit.execute(
        "SELECT count(*) FROM attempt WHERE order_id = ? AND outcome = ?", (row.id, Signal.NOT_SENT)
    ).fetchone()
    return bool(proved == row.attempt)


def is_open_by_takeover(commit: Commit, row: Row) -> bool:
    """Whether an unknown or parked order is so because its last attempt was taken over, and for no other reason.

    Then the proof of that attempt's holder counts, however late. It does not where an earlier attempt is open, where
    anything else speaks of the order, or where the journal may have forgotten a later attempt since.
    """
    trail = commit.execute(
        "SELECT news, before, after FROM evidence WHERE order_id = ? ORDER BY +id", (row.id,)
    ).fetchall()
    turns = [signal for signal, before, after in trail if before != after and signal != Signal.SWEPT_CLEAN_TWICE]
    return turns[-1:] == [Signal.LEASE_EXPIRED] and is_silent(commit, row) and not is_forgotten(commit, row)


def is_forgotten(commit: Commit, row: Row) -> bool:
    """Whether the journal may have forgotten a later attempt of an order: it was in quarantine since the last one.

    A quarantine raises the token without a claim. No clock is asked, for it may have been set since.
    """
    (raised,) = commit.execute(
        """SELECT c.token - (SELECT count(*) FROM claim k WHERE k.run = c.run AND k.number = c.number AND k.token > ?)
        FROM chunk c WHERE c.run = ? AND c.number = ?""",
        (row.token, run_of(row.id), chunk_of(row.id)),
    ).fetchone()
    return bool(raised != row.token)


def is_silent(commit: Commit, row: Row) -> bool:
    """Whether only its last attempt says that the service may have an order: none before is open, nothing else told.

    An order is sent again without a proof of the attempt before by a person alone, and counts as sent before then.
    """
    if row.sent_before or unpack_transaction_id(row.transaction_id) is not None:
        return False
    told = commit.execute("SELECT DISTINCT news FROM evidence WHERE order_id = ?", (row.id,)).fetchall()
    (is_told,) = commit.execute(
        "SELECT EXISTS (SELECT 1 FROM ipn_event WHERE request_key IS NOT NULL AND request_key = ?)",
        (plain_id(row.request_id),),
    ).fetchone()
    return not is_told and _SILENT.issuperset(Signal(signal) for (signal,) in told)


def open_chunk_of(commit: Commit, row: Row) -> None:
    """An order may be sent again: its chunk may be claimed now, though nothing was left in it or due in it.

    A chunk that its holder goes on filling is asked back, for the holder does not have the order in hand.
    """
    if row.state is State.SENDING:
        return  # its holder has it in hand
    commit.execute(
        f"""UPDATE chunk SET state = 'open', due_at = CASE WHEN due_at > ? THEN ?
            WHEN owner IS NOT NULL AND due_at = 0 THEN {ASKED_BACK} ELSE due_at END
        WHERE run = ? AND number = ? AND state IN ('open', 'done')""",  # noqa: S608 - a number
        (commit.now, commit.now, run_of(row.id), chunk_of(row.id)),
    )


def record_evidence(
    commit: Commit,
    row: Row,
    evidence: Evidence,
    after: State,
    conflict: str | None,
    *,
    event_id: int | None = None,
) -> bool:
    """Write evidence down. The same again, when it changes nothing, is counted in one row: each list scan repeats it.

    Tells whether it is new.
    """
    amount = None if evidence.amount is None else amount_text(evidence.amount)
    at = commit.now if evidence.at is None else evidence.at
    if after is row.state and event_id is None:
        is_same, same = _equal(
            transaction_id=evidence.transaction_id,
            amount=amount,
            currency=evidence.currency,
            detail=evidence.detail,
            conflict=conflict,
        )
        again = (evidence.signal, evidence.source, row.state, after, *same)
        is_again = f"order_id = ? AND news = ? AND source = ? AND before = ? AND after = ? AND {is_same}"
        if commit.execute(f"SELECT 1 FROM evidence WHERE {is_again} LIMIT 1", (row.id, *again)).fetchone() is not None:  # noqa: S608
            counts = f"UPDATE evidence SET times = times + 1, last_at = ? WHERE {is_again}"  # noqa: S608
            commit.execute(counts, (at, row.id, *again))
            return False
    commit.execute(
        """INSERT INTO evidence (order_id, at, news, source, transaction_id, amount, currency, detail, before, after,
        before_at, conflict, event_id, last_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            row.id,
            at,
            evidence.signal,
            evidence.source,
            evidence.transaction_id,
            amount,
            evidence.currency,
            evidence.detail,
            row.state,
            after,
            row.updated_at,
            conflict,
            event_id,
            at,
        ),
    )
    return True


def _equal(**columns: str | None) -> tuple[str, list[str]]:
    """The condition that columns hold these texts, or nothing where there is none; and what it binds."""
    condition = " AND ".join(f"{name} IS NULL" if text is None else f"{name} = ?" for name, text in columns.items())
    return condition, [text for text in columns.values() if text is not None]


def _is_decided(commit: Commit, row: Row, evidence: Evidence) -> bool:
    """Whether a person knew of this very evidence when they wrote the order off, and so called it false."""
    if evidence.signal not in _TOLD:
        return False
    amount = None if evidence.amount is None else amount_text(evidence.amount)
    is_same, same = _equal(transaction_id=evidence.transaction_id, amount=amount, currency=evidence.currency)
    known = commit.execute(
        f"""SELECT 1 FROM evidence WHERE order_id = ? AND decided IS NOT NULL AND news = ?
        AND {is_same} LIMIT 1""",  # noqa: S608 - names of columns
        (row.id, evidence.signal, *same),
    ).fetchone()
    return known is not None


def apply_evidence(commit: Commit, evidence: Evidence) -> TransitionResult | None:
    """Weigh what somebody found out."""
    if evidence.signal not in EVIDENCE:
        raise ValueError(f"signal: {evidence.signal} is not evidence")
    row = find(commit, evidence.request_id, evidence.transaction_id)
    return None if row is None else apply(commit, row, evidence)


def apply_all(commit: Commit, works: Sequence[Work[TransitionResult | None]]) -> list[TransitionResult | None]:
    """Weigh what several found out, one after the other, without a savepoint around each."""
    return [work(commit) for work in works]


def send_again(
    commit: Commit,
    request_ids: Sequence[str],
    by: Signature,
    why: str,
    seen: Mapping[str, float],
    remembered: Sequence[ApprovalRule],
) -> None:
    """Parked orders never arrived, says a named person: all of them are planned again, or none.

    What contradicted that until now is thereby called false, and moves an order no more; what is new later counts.
    """
    rows = {request_id: named_row(commit, request_id) for request_id in sorted(request_ids)}
    for request_id, row in rows.items():
        verdict = next_state(
            row.state, Signal.WRITTEN_OFF, sent_before=bool(row.sent_before), unsent=is_unsent(commit, row)
        )
        if verdict.ignored or verdict.state is not State.PLANNED:
            raise NotParked(f"order {request_id} is {row.state}")
        if row.updated_at > seen.get(request_id, row.updated_at):
            raise NotParked(f"something more was learned of order {request_id} since it was looked at: look again")
    check_decision(commit, _sent_again(commit, rows, by, why), remembered)
    for row in rows.values():
        plan_again(commit, row, by.who, why, _about(commit, row))


def plan_again(commit: Commit, row: Row, who: str, why: str, about: str | None) -> None:
    """Plan an order that never arrived, as a person says."""
    if not is_unsent(commit, row):
        archive_attempt(commit, row, Signal.UNKNOWN, row.code, row.message, row.correlation_id, row.updated_at)
    decision = resolve(commit, Signal.WRITTEN_OFF, who, why, order_id=row.id, evidence=about)
    _dispute(commit, row, decision, who)
    change(commit, row, State.PLANNED, sent_before=True)
    open_chunk_of(commit, row)


def cancel(commit: Commit, request_id: str, who: str, why: str) -> None:
    """A planned order is not to be sent: it ends as cancelled, or is parked where it may have been sent before."""
    check_named(who, why)
    row = named_row(commit, request_id)
    if row.state is State.CANCELLED:
        return
    verdict = next_state(row.state, Signal.CANCELLED, sent_before=bool(row.sent_before), unsent=is_unsent(commit, row))
    if verdict.ignored:
        raise NotCancelled(f"order {request_id} is {row.state}: {row.state.meaning.now}")
    if (missing := awaited(commit, run_of(row.id))) is not None:  # it may have been sent, and that be forgotten
        raise NotLookedFor(f"order {request_id}: {missing.words()}")
    resolve(commit, Signal.CANCELLED, who, why, order_id=row.id)
    change(commit, row, verdict.state, message=f"cancelled by {who}: {why}")


def _sent_again(commit: Commit, rows: Mapping[str, Row], by: Signature, why: str) -> Proposal:
    """The decision to send orders again, each as it stands now: what is learned of one makes it another decision."""
    shown = ", ".join(islice(rows, _SHOWN)) + (f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else "")
    batches = {run_of(row.id): row for row in rows.values()}
    names = [batch_columns(commit, row)[0] for row in batches.values()]
    return decision_proposal(
        f"send again what never arrived: {shown} ({why})",
        ["send again", *(f"{name} {row.attempt} {row.updated_at!r} {row.conflict}" for name, row in rows.items())],
        batch_id=", ".join(names[:_SHOWN]),
        orders=len(rows),
        amount=sum((Decimal(row.amount) for row in rows.values()), Decimal(0)),
        by=by,
    )


def acknowledge(commit: Commit, request_id: str, who: str, why: str, seen: float | None) -> None:
    """A named person has seen a conflict; one that came after they looked stands."""
    check_named(who, why)
    row = named_row(commit, request_id)
    later = commit.execute(  # a sum has no order of its own, so that the few are sorted, and not all are read in order
        """SELECT conflict FROM evidence WHERE order_id = ? AND conflict IS NOT NULL AND before_at >= ?
        ORDER BY +id LIMIT 1""",
        (row.id, float("inf") if seen is None else seen),
    ).fetchone()
    commit.execute(
        "UPDATE outbox SET conflict = ?, updated_at = ? WHERE id = ?",
        (None if later is None else later[0], commit.now, row.id),
    )
    commit.changed = row.id
    resolve(commit, "acknowledged", who, why, order_id=row.id, evidence=row.conflict)


def lift_quarantine(
    commit: Commit,
    batch_id: str,
    by: Signature,
    why: str,
    seen: float | None,
    request_ids: Collection[str] | None,
    remembered: Sequence[ApprovalRule],
) -> int:
    """The orders of quarantined chunks were looked up, says a named person, and so do list scans on record.

    Args:
        request_ids: The planned orders of which the person says so by themselves, whatever was read: all of them.
    """
    run, quarantined_at = run_columns(commit, batch_id, "id, quarantined_at")
    waiting = commit.execute("SELECT 1 FROM chunk WHERE run = ? AND state = 'quarantined' LIMIT 1", (run,)).fetchone()
    open_, words = awaited(commit, run), ""
    if open_ is not None:
        if not request_ids:
            raise NotLookedFor(f"batch {batch_id}: {open_.words()}")
        if unnamed := _planned_in(commit, run) - set(request_ids):
            some = ", ".join(sorted(unnamed)[:_SHOWN])
            raise NotLookedFor(f"batch {batch_id}: of {len(unnamed):,} orders nothing was stated, such as {some}")
        words = f", without waiting for the list, of {', '.join(sorted(request_ids))}"
    if waiting is not None or open_ is not None:
        if seen is not None and quarantined_at is not None and quarantined_at > seen:
            raise NotLookedFor(f"batch {batch_id} was put into quarantine once more since it was looked at")
        planned = commit.execute("SELECT count, total FROM progress WHERE run = ? AND state = 'planned'", (run,))
        count, total = planned.fetchone() or (0, "0")
        decision = decision_proposal(
            f"lift the quarantine{words}: send what is planned ({why})",
            ["lift quarantine", batch_id, repr(quarantined_at), *sorted(request_ids or ())],
            batch_id=batch_id,
            orders=count,
            amount=Decimal(total),
            by=by,
        )
        check_decision(commit, decision, remembered)
    lifted = commit.execute("UPDATE chunk SET state = 'open' WHERE run = ? AND state = 'quarantined'", (run,)).rowcount
    resolve(commit, LIFTED, by.who, why, run=run, evidence=f"{lifted} chunks{words}")
    return lifted


def _planned_in(commit: Commit, run: int) -> set[str]:
    """The orders of a batch that would be sent once its quarantine is lifted; those that were put since, too."""
    planned = commit.execute(
        "SELECT request_id FROM outbox WHERE id BETWEEN ? AND ? AND state = 'planned'", bounds(run)
    )
    return {request_id for (request_id,) in planned.fetchall()}


def archive_attempt(
    commit: Commit,
    row: Row,
    outcome: Signal,
    code: int | None,
    message: str | None,
    correlation_id: str | None,
    done_at: float,
) -> None:
    """Write down an attempt whose place in the row of its order the next one will take."""
    commit.execute(
        """INSERT INTO attempt (order_id, n, token, permitted_at, outcome, code, message, correlation_id, done_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (row.id, row.attempt, row.token, row.permitted_at, outcome, code, message, correlation_id, done_at),
    )


def named_row(commit: Commit, request_id: str) -> Row:
    """An order that a person or a list scan names. Raises ``OrderUnknown``."""
    row = row_here(commit, request_id)
    if row is None:
        raise OrderUnknown(where_it_is(commit.connection, request_id))
    return row


def _about(commit: Commit, row: Row) -> str | None:
    """What sending an order again is about: every contradiction that nobody has decided on, and the list scans."""
    found = commit.execute(
        """SELECT coalesce(conflict, detail) FROM evidence WHERE order_id = ? AND decided IS NULL
        AND (conflict IS NOT NULL OR news = ?) ORDER BY id""",
        (row.id, Signal.SWEPT_CLEAN_TWICE),
    ).fetchall()
    return "; ".join(dict.fromkeys(words for (words,) in found if words)) or None


def _dispute(commit: Commit, row: Row, decision: int, who: str) -> None:
    """Note which contradictions a decision was about: what was notified is disputed, and no handler hears of it."""
    told = commit.execute(
        """UPDATE evidence SET decided = ? WHERE order_id = ? AND decided IS NULL
        AND (conflict IS NOT NULL OR news = ?) RETURNING event_id""",
        (decision, row.id, Signal.SWEPT_CLEAN_TWICE),
    ).fetchall()
    for (event_id,) in told:
        if event_id is not None:
            withdraw(commit, INBOX, event_id)
            commit.execute(
                "UPDATE ipn_event SET state = 'disputed', error = ? WHERE id = ?",
                (f"called false by {who}, who had the order sent again", event_id),
            )
    # whoever claims an order that still cannot be sent as it is holds it back anew, and shows it
    commit.execute("UPDATE outbox SET conflict = NULL, held_at = NULL WHERE id = ?", (row.id,))


def resolve(
    commit: Commit,
    kind: str,
    who: str,
    why: str,
    *,
    order_id: int | None = None,
    run: int | None = None,
    evidence: str | None = None,
) -> int:
    """Keep who decided what, and why; tells the number of the decision."""
    (number,) = commit.execute(
        """INSERT INTO resolution (order_id, run, kind, who, why, evidence, at) VALUES (?, ?, ?, ?, ?, ?, ?)
        RETURNING id""",
        (order_id, run, kind, who, why, evidence, commit.now),
    ).fetchone()
    return int(number)
