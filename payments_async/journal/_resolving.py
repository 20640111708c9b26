"""What only a person, or proof of absence, decides: parking, writing off, acknowledging, lifting a quarantine."""

from __future__ import annotations

from payments_async.journal._evidence import apply, find
from payments_async.journal._faults import NotParked, OrderUnknown, RunUnknown
from payments_async.journal._leasing import reopen
from payments_async.journal._records import Evidence, Finding
from payments_async.journal._rows import Row, change, chunk_of, row_by_request, run_of
from payments_async.journal._states import EVIDENCE, News, State, next_state
from payments_async.journal._transaction import Transaction, Work

__all__ = ["acknowledge", "apply_evidence", "lift_quarantine", "park", "write_off"]


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


def write_off(request_id: str, who: str, why: str) -> Work[None]:
    """A parked order never arrived, says a named person: it is planned again, and was sent before."""
    _named(who, why)

    def work(transaction: Transaction) -> None:
        row = _row(transaction, request_id)
        verdict = next_state(row.state, News.WRITTEN_OFF, sent_before=bool(row.sent_before))
        if verdict.ignored or verdict.state is not State.PLANNED:
            raise NotParked(f"order {request_id} is {row.state}")
        shown = transaction.execute(
            "SELECT detail FROM evidence WHERE order_id = ? AND news = ? ORDER BY id DESC LIMIT 1",
            (row.id, News.SWEPT_CLEAN_TWICE),
        ).fetchone()
        transaction.execute(
            """INSERT INTO attempt (order_id, n, token, permitted_at, outcome, code, message, done_at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            (row.id, row.attempt, row.token, row.permitted_at, News.UNKNOWN, row.code, row.message, row.updated_at),
        )
        change(transaction, row, verdict.state, sent_before=True)
        _resolve(transaction, News.WRITTEN_OFF, who, why, order_id=row.id, evidence=shown[0] if shown else None)
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
        _resolve(transaction, "acknowledged", who, why, order_id=row.id, evidence=row.conflict)

    return work


def lift_quarantine(batch_id: str, who: str, why: str) -> Work[int]:
    """The orders of quarantined chunks were looked up, says a named person."""
    _named(who, why)

    def work(transaction: Transaction) -> int:
        found = transaction.execute("SELECT id FROM run WHERE batch_id = ?", (batch_id,)).fetchone()
        if found is None:
            raise RunUnknown(f"the journal holds no batch {batch_id}")
        lifted = transaction.execute(
            "UPDATE chunk SET state = 'open' WHERE run = ? AND state = 'quarantined'", found
        ).rowcount
        _resolve(transaction, "quarantine lifted", who, why, run=found[0], evidence=f"{lifted} chunks")
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


def _resolve(
    transaction: Transaction, kind: str, who: str, why: str, *, order_id: int | None = None, run: int | None = None,
    evidence: str | None = None,
) -> None:  # fmt: skip
    transaction.execute(
        "INSERT INTO resolution (order_id, run, kind, who, why, evidence, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (order_id, run, kind, who, why, evidence, transaction.now),
    )
