"""What only a person, or proof of absence, decides: parking, writing off, acknowledging, lifting a quarantine."""

from __future__ import annotations

from payments_async.journal._evidence import apply, find, is_unsent
from payments_async.journal._faults import NotLookedFor, NotParked, OrderUnknown, RunUnknown
from payments_async.journal._leasing import reopen
from payments_async.journal._records import Evidence, Finding
from payments_async.journal._rows import Row, change, chunk_of, row_by_request, run_of
from payments_async.journal._states import EVIDENCE, News, State, next_state
from payments_async.journal._sweeping import is_looked_for
from payments_async.journal._transaction import Transaction, Work

__all__ = ["acknowledge", "apply_evidence", "lift_quarantine", "park", "resolve", "write_off"]


def apply_evidence(evidence: Evidence) -> Work[Finding | None]:
    """Weigh what somebody found out."""
    if evidence.news not in EVIDENCE:
        raise ValueError(f"news: {evidence.news} is no evidence")

    def work(transaction: Transaction) -> Finding | None:
        row = find(transaction, evidence.request_id, evidence.transaction_id)
        return None if row is None else apply(transaction, row, evidence)

    return work


def park(request_id: str, detail: str) -> Work[Finding]:
    """Two clean sweeps did not find an unknown order."""
    evidence = Evidence(news=News.SWEPT_CLEAN_TWICE, source="sweep", request_id=request_id, detail=detail)

    def work(transaction: Transaction) -> Finding:
        return apply(transaction, _row(transaction, request_id), evidence)

    return work


def write_off(request_id: str, who: str, why: str, seen: float | None = None) -> Work[None]:
    """A parked order never arrived, says a named person: it is planned again, as one that may have been sent.

    What contradicted that until now is thereby called false, and moves the order no more; what is new later counts.
    """
    _named(who, why)

    def work(transaction: Transaction) -> None:
        row = _row(transaction, request_id)
        unsent = is_unsent(transaction, row)
        verdict = next_state(row.state, News.WRITTEN_OFF, sent_before=bool(row.sent_before), unsent=unsent)
        if verdict.ignored or verdict.state is not State.PLANNED:
            raise NotParked(f"order {request_id} is {row.state}")
        if seen is not None and row.updated_at > seen:
            raise NotParked(f"something more was learned of order {request_id} since it was looked at: look again")
        if not unsent:
            transaction.execute(
                """INSERT INTO attempt (order_id, n, token, permitted_at, outcome, code, message, done_at)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
                (row.id, row.attempt, row.token, row.permitted_at, News.UNKNOWN, row.code, row.message, row.updated_at),
            )
        decision = resolve(transaction, News.WRITTEN_OFF, who, why, order_id=row.id, evidence=_about(transaction, row))
        _dispute(transaction, row, decision, who)
        change(transaction, row, verdict.state, sent_before=True)
        reopen(transaction, run_of(row.id), chunk_of(row.id))

    return work


def acknowledge(request_id: str, who: str, why: str, seen: float | None) -> Work[None]:
    """A named person has seen a conflict; one that came after they looked stands."""
    _named(who, why)

    def work(transaction: Transaction) -> None:
        row = _row(transaction, request_id)
        later = transaction.execute(
            """SELECT conflict FROM evidence WHERE order_id = ? AND conflict IS NOT NULL AND before_at >= ?
            ORDER BY id LIMIT 1""",
            (row.id, float("inf") if seen is None else seen),
        ).fetchone()
        transaction.execute(
            "UPDATE outbox SET conflict = ?, updated_at = ? WHERE id = ?",
            (None if later is None else later[0], transaction.now, row.id),
        )
        resolve(transaction, "acknowledged", who, why, order_id=row.id, evidence=row.conflict)

    return work


def lift_quarantine(batch_id: str, who: str, why: str) -> Work[int]:
    """The orders of quarantined chunks were looked up, says a named person, and so does a sweep on record."""
    _named(who, why)

    def work(transaction: Transaction) -> int:
        found = transaction.execute("SELECT id FROM run WHERE batch_id = ?", (batch_id,)).fetchone()
        if found is None:
            raise RunUnknown(f"the journal holds no batch {batch_id}")
        waiting = transaction.execute(
            "SELECT 1 FROM chunk WHERE run = ? AND state = 'quarantined' LIMIT 1", found
        ).fetchone()
        if waiting is not None and not is_looked_for(transaction, batch_id, counted=True):
            raise NotLookedFor(f"batch {batch_id} was not looked for in all days since it was made")
        lifted = transaction.execute(
            "UPDATE chunk SET state = 'open' WHERE run = ? AND state = 'quarantined'", found
        ).rowcount
        resolve(transaction, "quarantine lifted", who, why, run=found[0], evidence=f"{lifted} chunks")
        return lifted

    return work


def _row(transaction: Transaction, request_id: str) -> Row:
    row = row_by_request(transaction, request_id)
    if row is None:
        raise OrderUnknown(f"the journal holds no order {request_id}")
    return row


def _named(who: str, why: str) -> None:
    if not who.strip() or not why.strip():
        raise ValueError("who and why: a person's name and a reason, not an empty text")


def _about(transaction: Transaction, row: Row) -> str | None:
    """What a write-off is about: every contradiction that nobody has decided on, and the sweeps."""
    found = transaction.execute(
        """SELECT DISTINCT coalesce(conflict, detail) FROM evidence WHERE order_id = ? AND decided IS NULL
        AND (conflict IS NOT NULL OR news = ?) ORDER BY id""",
        (row.id, News.SWEPT_CLEAN_TWICE),
    ).fetchall()
    return "; ".join(words for (words,) in found if words) or None


def _dispute(transaction: Transaction, row: Row, decision: int, who: str) -> None:
    """Note which contradictions a decision was about: what was notified is disputed, and no handler hears of it."""
    told = transaction.execute(
        """UPDATE evidence SET decided = ? WHERE order_id = ? AND decided IS NULL
        AND (conflict IS NOT NULL OR news = ?) RETURNING event_id""",
        (decision, row.id, News.SWEPT_CLEAN_TWICE),
    ).fetchall()
    for (event_id,) in told:
        if event_id is not None:
            transaction.execute("DELETE FROM ipn_pending WHERE event_id = ?", (event_id,))
            transaction.execute(
                "UPDATE ipn_event SET state = 'disputed', error = ? WHERE id = ?", (f"written off by {who}", event_id)
            )
    transaction.execute("UPDATE outbox SET conflict = NULL WHERE id = ?", (row.id,))


def resolve(
    transaction: Transaction, kind: str, who: str, why: str, *, order_id: int | None = None, run: int | None = None,
    evidence: str | None = None,
) -> int:  # fmt: skip
    """Keep who decided what, and why; tells the number of the decision."""
    (number,) = transaction.execute(
        """INSERT INTO resolution (order_id, run, kind, who, why, evidence, at) VALUES (?, ?, ?, ?, ?, ?, ?)
        RETURNING id""",
        (order_id, run, kind, who, why, evidence, transaction.now),
    ).fetchone()
    return int(number)
