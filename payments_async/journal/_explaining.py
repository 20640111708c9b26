"""The whole story of one order in time, from every table that knows a part of it. Reads only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from payments_async.journal._bodies import unpack_transaction_id
from payments_async.journal._faults import OrderUnknown
from payments_async.journal._records import Happening
from payments_async.journal._rows import Row, chunk_of, row_by_request, run_of
from payments_async.journal._states import RULES, News, State

__all__ = ["history"]

_ANSWERED = {  # what the answer was, when nothing but it has made of the order
    State.ACCEPTED: News.ACCEPTED,
    State.REJECTED: News.REJECTED,
    State.UNKNOWN: News.UNKNOWN,
}
_ORDER = ("planned", "permit", "answer", "takeover", "delivery", "notification", "evidence", "resolution")


def history(connection: sqlite3.Connection, request_id: str) -> Sequence[Happening]:
    """All that is known of an order, oldest first.

    Raises:
        OrderUnknown: The journal holds no such order.
    """
    row = row_by_request(connection, request_id)
    if row is None:
        raise OrderUnknown(f"the journal holds no order {request_id}")
    found = [
        *_planned(connection, row),
        *_attempts(connection, row),
        *_current(connection, row),
        *_evidence(connection, row),
        *_deliveries(connection, row),
        *_resolutions(connection, row),
    ]
    return tuple(sorted(found, key=lambda happening: (happening.at, _ORDER.index(happening.what))))


def _planned(connection: sqlite3.Connection, row: Row) -> Iterator[Happening]:
    batch_id, at = connection.execute(
        "SELECT batch_id, coalesce(ready_at, created_at) FROM run WHERE id = ?", (run_of(row.id),)
    ).fetchone()
    yield Happening(at=at, what="planned", state=State.PLANNED, detail=f"order {row.id} of batch {batch_id}")


def _attempts(connection: sqlite3.Connection, row: Row) -> Iterator[Happening]:
    """Attempts that a later one, or a write-off, has put out of the row."""
    found = connection.execute(
        "SELECT n, token, permitted_at, outcome, code, message, done_at FROM attempt WHERE order_id = ?", (row.id,)
    )
    for n, token, permitted_at, outcome, code, message, done_at in found.fetchall():
        worker, news = _worker(connection, row, token), News(outcome)
        yield _permit(permitted_at, worker, n)
        until = _later(connection, row, permitted_at)
        if news is News.NOT_SENT:
            yield _answer(done_at, worker, news, State.PLANNED, _words(n, code, message, None))
        elif until is not None and until[0] in _ANSWERED:
            state, at = until
            yield _answer(at, worker, _ANSWERED[state], state, _words(n, code, message, None))


def _current(connection: sqlite3.Connection, row: Row) -> Iterator[Happening]:
    """The attempt whose story is in the row itself."""
    archived = connection.execute(
        "SELECT 1 FROM attempt WHERE order_id = ? AND n = ?", (row.id, row.attempt)
    ).fetchone()
    if not row.attempt or archived:
        return
    worker = _worker(connection, row, row.token)
    yield _permit(row.permitted_at, worker, row.attempt)
    state, at = _later(connection, row, row.permitted_at) or (row.state, row.updated_at)
    if state in _ANSWERED:
        words = _words(row.attempt, row.code, row.message, unpack_transaction_id(row.transaction_id))
        yield _answer(at, worker, _ANSWERED[state], state, words)


def _later(connection: sqlite3.Connection, row: Row, permitted_at: float) -> tuple[State, float] | None:
    """Where an order stood when the first evidence after a permit came, and since when: what its answer was."""
    found = connection.execute(
        """SELECT before, before_at FROM evidence WHERE order_id = ? AND before_at >= ? ORDER BY id LIMIT 1""",
        (row.id, permitted_at),
    ).fetchone()
    return None if found is None else (State(found[0]), found[1])


def _answer(at: float, worker: str | None, news: News, state: State, detail: str) -> Happening:
    return Happening(at=at, what="answer", by=worker, news=news, state=state, rule=RULES[news], detail=detail)


def _evidence(connection: sqlite3.Connection, row: Row) -> Iterator[Happening]:
    found = connection.execute(
        """SELECT at, news, source, transaction_id, amount, detail, before, after, conflict, event_id, times, last_at
        FROM evidence WHERE order_id = ? ORDER BY id""",
        (row.id,),
    )
    for at, name, source, transaction_id, amount, detail, before, after, conflict, event_id, times, last_at in found:
        news, words = News(name), []
        if transaction_id:
            words.append(f"transaction {transaction_id}")
        if amount:
            words.append(f"amount {amount}")
        if detail:
            words.append(detail)
        if before == after:
            words.append("changed nothing")
        if times > 1:
            words.append(f"{times} times, last at {last_at:.3f}")
        yield Happening(
            at=at, what=_kind(news, source, event_id), by=source, news=news, state=State(after), rule=RULES[news],
            detail=", ".join(words) or None, conflict=conflict,
        )  # fmt: skip


def _kind(news: News, source: str, event_id: int | None) -> str:
    if event_id is not None:
        return "notification"
    if news is News.LEASE_EXPIRED:
        return "takeover"
    return "answer" if source.startswith("answer to ") else "evidence"


def _deliveries(connection: sqlite3.Connection, row: Row) -> Iterator[Happening]:
    found = connection.execute(
        """SELECT d.peer, d.received_at, d.times, e.id, e.state, e.tries, e.error, e.status_code FROM ipn_delivery d
        JOIN ipn_event e ON e.id = d.event_id WHERE e.order_id = ? ORDER BY d.id""",
        (row.id,),
    )
    for peer, at, times, event_id, state, tries, error, status_code in found:
        words = f"event {event_id}, status code {status_code}, {state} after {tries} failed rounds"
        words += f" ({error})" if error else ""
        yield Happening(at=at, what="delivery", by=peer, detail=words + (f", {times} times" if times > 1 else ""))


def _resolutions(connection: sqlite3.Connection, row: Row) -> Iterator[Happening]:
    found = connection.execute("SELECT kind, who, why, evidence, at FROM resolution WHERE order_id = ?", (row.id,))
    for kind, who, why, evidence, at in found:
        written_off = kind == News.WRITTEN_OFF
        yield Happening(
            at=at, what="resolution", by=who, news=News.WRITTEN_OFF if written_off else None,
            state=State.PLANNED if written_off else None, rule=RULES[News.WRITTEN_OFF] if written_off else None,
            detail=f"{kind}: {why}" + (f" (on: {evidence})" if evidence else ""),
        )  # fmt: skip


def _permit(at: float, worker: str | None, n: int) -> Happening:
    return Happening(
        at=at, what="permit", by=worker, news=News.PERMITTED, state=State.SENDING, rule=RULES[News.PERMITTED],
        detail=f"attempt {n}",
    )  # fmt: skip


def _worker(connection: sqlite3.Connection, row: Row, token: int) -> str | None:
    found = connection.execute(
        "SELECT owner FROM claim WHERE run = ? AND number = ? AND token = ?", (run_of(row.id), chunk_of(row.id), token)
    ).fetchone()
    return None if found is None else found[0]


def _words(n: int, code: int | None, message: str | None, transaction_id: str | None) -> str:
    words = [f"attempt {n}"]
    if transaction_id is not None:
        words.append(f"transaction {transaction_id}")
    if code is not None:
        words.append(f"code {code}")
    if message is not None:
        words.append(message)
    return ", ".join(words)
