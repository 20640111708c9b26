"""Chunks of orders, leased to one worker for a while and taken over when it falls silent. Grants no permit."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from decimal import Decimal

import attrs

from payments_async.journal._bodies import proved
from payments_async.journal._evidence import keep
from payments_async.journal._faults import LeaseLost, RunUnknown
from payments_async.journal._records import Chunk, Chunks, ClaimedOrder, Evidence
from payments_async.journal._rows import COLUMNS, change, chunk_bounds, loose
from payments_async.journal._states import News, next_state
from payments_async.journal._sweeping import doubt
from payments_async.journal._transaction import Transaction, Work

__all__ = [
    "chunks",
    "claim_chunk",
    "expire_chunks",
    "put_aside",
    "reopen",
    "ready_run",
    "release_chunk",
    "renew_chunk",
    "silence",
    "take_over",
]


def ready_run(connection: sqlite3.Connection | Transaction, batch_id: str) -> int:
    """The number of a batch that is complete.

    Raises:
        RunUnknown: It is not, or there is none.
    """
    found = connection.execute("SELECT id, state FROM run WHERE batch_id = ?", (batch_id,)).fetchone()
    if found is None:
        raise RunUnknown(f"the journal holds no batch {batch_id}")
    if found[1] != "ready":
        raise RunUnknown(f"loading batch {batch_id} was not finished")
    return int(found[0])


def claim_chunk(batch_id: str, owner: str, holder: str, lease: float, dead: Sequence[str]) -> Work[Chunk | None]:
    """Lease the first free chunk that has planned orders; close those that have none on the way."""

    def work(transaction: Transaction) -> Chunk | None:
        take_over(transaction, dead)
        run = ready_run(transaction, batch_id)
        _cap(transaction, run)
        while (free := _first_free(transaction, run)) is not None:
            number, token, last = free
            until = transaction.now + lease
            token, taken = _take_over(transaction, run, number, token, last, owner, until, holder)
            transaction.execute("UPDATE chunk SET lease = ? WHERE run = ? AND number = ?", (lease, run, number))
            planned = _planned(transaction, run, number)
            if planned:
                return Chunk(
                    batch_id=batch_id, run=run, number=number, owner=owner, token=token, lease_until=until,
                    orders=planned, taken_over=taken,
                )  # fmt: skip
            _give_back(transaction, run, number, token)
        return None

    return work


def renew_chunk(chunk: Chunk, lease: float) -> Work[float]:
    """Prolong a lease; tells until when."""

    def work(transaction: Transaction) -> float:
        until = transaction.now + lease
        transaction.known.clear()
        renewed = transaction.execute(
            """UPDATE chunk SET lease_until = ?, lease = ?
            WHERE run = ? AND number = ? AND token = ? AND owner = ? AND state = 'open'""",
            (until, lease, chunk.run, chunk.number, chunk.token, chunk.owner),
        )
        if not renewed.rowcount:
            raise LeaseLost(f"chunk {chunk.number} of batch {chunk.batch_id} was taken over")
        return until

    return work


def release_chunk(chunk: Chunk) -> Work[None]:
    """Give a chunk back, unless somebody has it already."""

    def work(transaction: Transaction) -> None:
        mine = transaction.execute(
            "SELECT 1 FROM chunk WHERE run = ? AND number = ? AND token = ? AND state = 'open'",
            (chunk.run, chunk.number, chunk.token),
        ).fetchone()
        if mine:
            silence(transaction, chunk.run, chunk.number, chunk.owner)
            _give_back(transaction, chunk.run, chunk.number, chunk.token)

    return work


def expire_chunks(batch_id: str | None, dead: Sequence[str]) -> Work[int]:
    """Take over, for nobody, every chunk whose lease ran out, or whose holder is dead."""

    def work(transaction: Transaction) -> int:
        take_over(transaction, dead)
        run = None if batch_id is None else ready_run(transaction, batch_id)
        _cap(transaction, run)
        silent = transaction.execute(
            """SELECT run, number, token, owner FROM chunk WHERE state = 'open' AND owner IS NOT NULL
            AND lease_until <= ? AND coalesce(? = run, TRUE)""",
            (transaction.now, run),
        ).fetchall()
        unknown = 0
        for number_of_run, number, token, last in silent:
            token, taken = _take_over(transaction, number_of_run, number, token, last, None, 0.0)
            _give_back(transaction, number_of_run, number, token)
            unknown += taken
        return unknown

    return work


def take_over(transaction: Transaction, dead: Sequence[str]) -> None:
    """End at once the leases of holders that are dead: of chunks and of events. Whoever claims next takes them over."""
    for holder in dead:
        transaction.known.clear()
        transaction.execute(
            "UPDATE chunk SET lease_until = ? WHERE holder = ? AND state = 'open' AND lease_until > ?",
            (transaction.now, holder, transaction.now),
        )
        transaction.execute(
            "UPDATE ipn_pending SET owner = '', holder = '', due_at = ? WHERE holder = ?", (transaction.now, holder)
        )


def reopen(transaction: Transaction, run: int, number: int) -> None:
    """Something in a chunk that was done is planned again."""
    transaction.execute(
        "UPDATE chunk SET state = 'open' WHERE run = ? AND number = ? AND state = 'done'", (run, number)
    )


def put_aside(transaction: Transaction, chunks: Sequence[tuple[int, int]], last: str) -> None:
    """Quarantine these chunks; what their last holder left under way is unknown."""
    for run, number in chunks:
        silence(transaction, run, number, last)
        # a raised token, so that no permit of before is worth anything
        transaction.execute(
            """UPDATE chunk SET state = 'quarantined', token = token + 1, owner = NULL, lease_until = 0
            WHERE run = ? AND number = ?""",
            (run, number),
        )
    runs = {run for run, _ in chunks}
    doubt(transaction, runs)
    transaction.connection.executemany(
        "UPDATE run SET look_since = coalesce(look_since, created_at) WHERE id = ?", [(run,) for run in runs]
    )


def chunks(connection: sqlite3.Connection, batch_id: str, now: float) -> Chunks:
    """How the chunks of a batch stand."""
    run = ready_run(connection, batch_id)
    open_, leased, done, quarantined, expiry = connection.execute(
        """SELECT count(*) FILTER (WHERE state = 'open' AND NOT held), count(*) FILTER (WHERE state = 'open' AND held),
        count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state = 'quarantined'),
        min(lease_until) FILTER (WHERE state = 'open' AND held)
        FROM (SELECT state, min(lease_until, ? + lease) AS lease_until, lease_until > ? AS held
        FROM chunk WHERE run = ?)""",
        (now, now, run),
    ).fetchone()
    standing = Chunks(open=open_, leased=leased, done=done, quarantined=quarantined)
    if expiry is None:
        return standing
    (owner,) = connection.execute(
        "SELECT owner FROM chunk WHERE run = ? AND state = 'open' AND min(lease_until, ? + lease) = ?",
        (run, now, expiry),
    ).fetchone() or (None,)
    return attrs.evolve(standing, next_expiry=expiry - now, next_owner=owner)


def _cap(transaction: Transaction, run: int | None) -> None:
    """A lease that ends later than any lease can was taken by a clock that was ahead: its own length is waited for."""
    transaction.execute(
        """UPDATE chunk INDEXED BY chunk_leased SET lease_until = ? + lease
        WHERE state = 'open' AND owner IS NOT NULL AND lease_until > ? + lease AND coalesce(? = run, TRUE)""",
        (transaction.now, transaction.now, run),
    )


def _first_free(transaction: Transaction, run: int) -> tuple[int, int, str | None] | None:
    found: tuple[int, int, str | None] | None = transaction.execute(
        """SELECT number, token, owner FROM chunk WHERE run = ? AND state = 'open' AND lease_until <= ?
        ORDER BY number LIMIT 1""",
        (run, transaction.now),
    ).fetchone()
    return found


def _take_over(
    transaction: Transaction, run: int, number: int, token: int, last: str | None, owner: str | None, until: float,
    holder: str | None = None,
) -> tuple[int, int]:  # fmt: skip
    """Raise the token, and make unknown what the last holder left under way. Tells the token and how many."""
    token += 1
    transaction.known.clear()
    transaction.execute(
        "UPDATE chunk SET owner = ?, holder = ?, token = ?, lease_until = ? WHERE run = ? AND number = ?",
        (owner, holder or None, token, until, run, number),
    )
    transaction.execute(
        "INSERT INTO claim (run, number, token, owner, at) VALUES (?, ?, ?, ?, ?)",
        (run, number, token, owner, transaction.now),
    )
    transaction.passed("claim_chunk.token_raised")
    return token, silence(transaction, run, number, last)


def silence(transaction: Transaction, run: int, number: int, last: str | None) -> int:
    """Make unknown what the last holder of a chunk left under way; tells how many orders."""
    found = transaction.execute(
        f"SELECT {COLUMNS} FROM outbox WHERE id BETWEEN ? AND ? AND state = 'sending'",  # noqa: S608 - no value in it
        chunk_bounds(run, number),
    ).fetchall()
    for row in map(loose, found):
        verdict = next_state(row.state, News.LEASE_EXPIRED, sent_before=bool(row.sent_before))
        change(transaction, row, verdict.state)
        evidence = Evidence(news=News.LEASE_EXPIRED, source=f"lease of {last}", request_id=row.request_id)
        keep(transaction, row, evidence, verdict.state, None)
    return len(found)


def _planned(transaction: Transaction, run: int, number: int) -> tuple[ClaimedOrder, ...]:
    found = transaction.execute(
        """SELECT id, request_id, amount, body, body_sha256, attempt, sent_before FROM outbox
        WHERE id BETWEEN ? AND ? AND state = 'planned' ORDER BY id""",
        chunk_bounds(run, number),
    ).fetchall()
    return tuple(
        ClaimedOrder(
            id=order_id, request_id=request_id, amount=Decimal(amount), body=proved(request_id, amount, body, digest),
            attempt=attempt, sent_before=bool(sent_before),
        )
        for order_id, request_id, amount, body, digest, attempt, sent_before in found
    )  # fmt: skip


def _give_back(transaction: Transaction, run: int, number: int, token: int) -> None:
    transaction.known.clear()
    (left,) = transaction.execute(
        "SELECT EXISTS (SELECT 1 FROM outbox WHERE id BETWEEN ? AND ? AND state IN ('planned', 'sending'))",
        chunk_bounds(run, number),
    ).fetchone()
    transaction.execute(
        "UPDATE chunk SET state = ?, owner = NULL, lease_until = 0 WHERE run = ? AND number = ? AND token = ?",
        ("open" if left else "done", run, number, token),
    )
