"""How the orders of a batch get into the outbox: all of them, once, and never others."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import NamedTuple

import attrs

from payments_async._values.amounts import amount_text
from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import write_order
from payments_async._wire.orders import Order
from payments_async.journal._approvals import ApprovalRule
from payments_async.journal._faults import (
    HeldElsewhere,
    LoadBusy,
    NotCompared,
    OrdersArchived,
    OrdersDiffer,
    WrongAccount,
)
from payments_async.journal._records import Evidence, Loaded, RunIdentity, TakeoverAuthorisation, body_digest
from payments_async.journal._statements import _leases
from payments_async.journal._statements._approvals import check_approved
from payments_async.journal._statements._entries import (
    BATCH,
    IS_HERE,
    MOST_ORDERS,
    Commit,
    bounds,
    chunk_of,
    row_by_id,
    run_columns,
    run_of,
)
from payments_async.journal._statements._evidence import resolve
from payments_async.journal._statements._history import RESTORED, look_earlier, void_list_scans
from payments_async.journal._statements._leases import LOAD
from payments_async.journal._statements._notifications import apply_unmatched_events
from payments_async.journal._statements._permits import note_sent, quarantine
from payments_async.journal._states import State

_BLOCK = 1000  # orders in one commit while loading
_LEASE = 30.0  # seconds a load may take between two blocks
_WRITTEN = ("id", "request_key", "request_id", "amount", "body", "body_sha256", "permitted_at", "updated_at")
_SHOWN = 5  # request ids named in an error


@attrs.define(kw_only=True)
class Load:
    """One loading of one batch. Its memory is a bit for each order.

    Attributes:
        ready: The batch was complete before: it is compared, and nothing is added.
        total: Orders that the batch held before.
        next_id: Number of the next new order.
        resumed: An interrupted load left orders behind.
        source_digest: Of what the batch was made from, as was said before it was begun to be loaded.
    """

    run: int
    batch_id: str
    token: int
    ready: bool
    total: int
    first: int
    next_id: int
    resumed: bool
    source_digest: str | None
    added: int = 0
    repeated: int = 0
    seen: bytearray = attrs.field(factory=bytearray, repr=False)

    def see(self, order_id: int) -> bool:
        """Remember an order; tells whether it was seen before."""
        place, bit = divmod(order_id - self.first, 8)
        if place >= len(self.seen):
            self.seen.extend(bytes(place - len(self.seen) + 1024))
        before = self.seen[place] >> bit & 1
        self.seen[place] |= 1 << bit
        return bool(before)

    def has_seen(self, order_id: int) -> bool:
        """Whether an order was among those loaded."""
        place, bit = divmod(order_id - self.first, 8)
        return place < len(self.seen) and bool(self.seen[place] >> bit & 1)

    def count(self) -> int:
        """How many different orders were seen."""
        return int.from_bytes(self.seen, "little").bit_count()


class _Prepared(NamedTuple):
    """An order as it is stored."""

    request_id: str
    amount: str
    body: bytes
    digest: bytes


def begin_run(
    commit: Commit,
    batch_id: str,
    identity: RunIdentity,
    source_digest: str | None,
    policy: str | None,
    uid: str,
    outbox: str | None,
    approvals: int | None = None,
    remembered: Sequence[ApprovalRule] = (),
    compared: Collection[str] | None = None,
    *,
    kind: str = BATCH,
) -> None:
    """Begin a batch, unless it is there.

    Args:
        uid: Tells it from one of the same name that a restored file does not hold any more.
        outbox: Name of the outbox that sends it; ``None`` where whoever runs the batch does.
        approvals: How many persons must have approved it, if the journal asks for no more; ``None`` for what is no
            batch of anybody's, but the orders of an outbox one by one.
        remembered: Which rules this machine knows the journal, and the account's others, to have.
        compared: The batches that its plan was compared with; ``None`` compares none.
        kind: What it is.
    """
    _check_compared(commit, batch_id, compared)
    if approvals is not None:
        check_approved(commit, batch_id, source_digest, approvals, remembered)
    ours = (identity.base_address, identity.key_fingerprint, identity.user_id)
    others = commit.execute(
        "SELECT base_address, user_id FROM run WHERE base_address <> ? OR user_id <> ? LIMIT 1",
        (identity.base_address, identity.user_id),
    ).fetchone()
    if others is not None:
        raise WrongAccount(f"the journal belongs to user {others[1]} at {others[0]}")
    if outbox is not None:
        commit.database.begin_changes(commit.connection)
    facts = dict(commit.execute("SELECT key, value FROM meta WHERE key IN ('epoch', ?)", (RESTORED,)).fetchall())
    epoch, restored = facts["epoch"], facts.get(RESTORED)
    at, since = (None, None) if restored is None else map(float, restored.split())  # it waits like the rest
    commit.execute(
        """INSERT INTO run (batch_id, base_address, key_fingerprint, user_id, source_digest, policy, epoch, uid,
        created_at, kind, outbox, quarantined_at, look_since) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (batch_id) DO UPDATE SET source_digest = excluded.source_digest
        WHERE run.state = 'loading' AND excluded.source_digest IS NOT NULL""",
        (batch_id, *ours, source_digest, policy, epoch, uid, commit.now, kind, outbox, at, since),
    )


def begin(commit: Commit, batch_id: str, owner: str) -> Load:
    """Take the right to load a batch, for a while."""
    run, state, source_digest = run_columns(commit, batch_id, "id, state, source_digest")
    ready = state == "ready"
    token = 0 if ready else _leases.take(commit, LOAD, batch_id, owner, None, _LEASE)
    if token is None:
        loader, seconds = _leases.holder_of(commit, LOAD, batch_id, commit.now) or ("another process", 0.0)
        raise LoadBusy(f"batch {batch_id} is being loaded by {loader}", loader, seconds)
    first, highest = bounds(run)
    (last,) = commit.execute("SELECT max(id) FROM outbox WHERE id BETWEEN ? AND ?", (first, highest)).fetchone()
    return Load(
        run=run,
        batch_id=batch_id,
        token=token,
        ready=ready,
        total=_total(commit, run),
        first=first,
        next_id=first if last is None else last + 1,
        resumed=not ready and last is not None,
        source_digest=source_digest,
    )


def give_up(commit: Commit, load: Load) -> None:
    """Somebody else may load the batch at once: this load was refused, and adds nothing more."""
    _leases.free(commit, LOAD, load.batch_id, load.token)


def note_second_journal(commit: Commit, batch_id: str, word: TakeoverAuthorisation, other: str) -> None:
    """Keep who has said why an account has a second journal here."""
    (run,) = run_columns(commit, batch_id, "id")
    resolve(commit, "second journal", word.who, word.why, run=run, evidence=other)


def adopt(commit: Commit, load: Load, adoption: TakeoverAuthorisation, held: HeldElsewhere) -> None:
    """Orders that may have been sent from elsewhere are ours: nothing is sent before a person has looked."""
    _renew_lease(commit, load)
    found = commit.execute("SELECT run, number FROM chunk WHERE run = ? AND state = 'open'", (load.run,))
    quarantine(commit, found.fetchall(), "this journal, before its orders were adopted")
    void_list_scans(commit, (load.run,))
    look_earlier(commit, load.run, held.since)
    resolve(commit, "adopted", adoption.who, adoption.why, run=load.run, evidence=held.message)


def adopt_unknown(commit: Commit, load: Load, adoption: TakeoverAuthorisation) -> None:
    """Do the same where the machine knows of no other holder: it may have forgotten."""
    known = "SELECT 1 FROM resolution WHERE run = ? AND kind = 'adopted'"
    if commit.execute(known, (load.run,)).fetchone() is None:
        adopt(commit, load, adoption, HeldElsewhere.by_word(commit.now))


def add(commit: Commit, load: Load, orders: Sequence[Order], sent: Mapping[str, Evidence]) -> None:
    """Write down the new ones of a block, and compare the others.

    Args:
        sent: How those ended that the caller's session has sent by itself, by request id.
    """
    _renew_lease(commit, load)
    fresh: dict[str, _Prepared] = {}
    numbers: dict[str, int] = {}
    held = _held(commit, [order.request_id for order in orders])
    _check_not_archived(commit, orders, held)
    for order in orders:
        request_id, amount = order.request_id, amount_text(order.amount)
        body = write_order(order)
        prepared = _Prepared(request_id, amount, body, body_digest(request_id, amount, body))
        key = plain_id(request_id)
        if (known := held.get(key)) is not None:
            _compare(commit, load, known, prepared)
            load.repeated += load.see(known.order_id)
            numbers[request_id] = known.order_id
        elif key in fresh:
            _check_same(fresh[key], prepared)
            load.repeated += 1
        else:
            fresh[key] = prepared
    first = load.next_id
    _insert(commit, load, fresh)
    numbers |= {new.request_id: first + place for place, new in enumerate(fresh.values())}
    for request_id, ended in {} if load.ready else sent.items():
        # one that a load which broke off has left behind may have been sent since
        row = row_by_id(commit, numbers[request_id])
        if row is not None and row.state is State.PLANNED:
            note_sent(commit, row, ended)


def drop_unseen(commit: Commit, load: Load, after: int) -> int | None:
    """Drop a block of what an interrupted load left behind and this one did not bring; ``None`` when there is no more.

    None of it was ever permitted: nothing of a batch can be claimed before it is complete. But something may have told
    of an order meanwhile; it is not dropped, and who leaves it out hears of it.
    """
    _renew_lease(commit, load)
    found = commit.execute(
        "SELECT id, amount, request_id, state FROM outbox WHERE id > ? AND id <= ? ORDER BY id LIMIT 5000",
        (after, bounds(load.run)[1]),
    ).fetchall()
    for order_id, amount, request_id, state in found:
        if not load.has_seen(order_id):
            if state != State.PLANNED:
                raise _told_of(request_id, state)
            commit.execute("DELETE FROM outbox WHERE id = ?", (order_id,))
            commit.count(load.run, State.PLANNED, -1, Decimal(amount).copy_negate())
    return found[-1][0] if found else None


def complete(
    commit: Commit,
    batch_id: str,
    load: Load,
    remembered: Sequence[ApprovalRule] = (),
    compared: Collection[str] | None = None,
) -> Loaded:
    """Make a batch ready to be sent; or, if it was, make sure that nothing is missing from what was loaded.

    Another process may have begun it meanwhile, by another digest, or had approvals asked for: what counts is of which
    digest this load is. Of two batches that are loaded side by side, the second one to come here was not compared.
    """
    total = _total(commit, load.run)
    total += sum(count for run, _state, count, _amount in commit.moves if run == load.run)
    if load.ready:
        if load.count() != total:
            raise _missing(commit, batch_id, load, total - load.count())
        return Loaded(total=total, added=0, repeated=load.repeated)
    _renew_lease(commit, load)
    check_approved(commit, batch_id, load.source_digest, 0, remembered)
    _check_compared(commit, batch_id, compared)
    _apply_early_events(commit, load)
    commit.passed("load_complete.events_applied")
    chunks = chunk_of(load.next_id - 1) + 1 if load.next_id > load.first else 0
    commit.connection.executemany(
        """INSERT INTO chunk (run, number, state)
        SELECT id, ?, CASE WHEN quarantined_at IS NULL THEN 'open' ELSE 'quarantined' END FROM run WHERE id = ?""",
        ((number, load.run) for number in range(chunks)),
    )
    commit.is_milestone = True
    if commit.execute("SELECT quarantined_at FROM run WHERE id = ?", (load.run,)).fetchone()[0] is not None:
        void_list_scans(commit, (load.run,))  # a list that was read meanwhile was compared with a part of the batch
    commit.execute(
        "UPDATE run SET state = 'ready', ready_at = ?, source_digest = ? WHERE id = ?",
        (commit.now, load.source_digest, load.run),
    )
    _leases.forget(commit, LOAD, load.batch_id)
    return Loaded(total=total, added=load.added, repeated=load.repeated)


def _check_compared(commit: Commit, batch_id: str, compared: Collection[str] | None) -> None:
    """Refuse a batch that is not complete, and whose plan does not know one that is. Raises ``NotCompared``."""
    if compared is None:
        return
    sql = "SELECT batch_id FROM run WHERE kind = ? AND state = 'ready' ORDER BY ready_at, id"
    names = [name for (name,) in commit.execute(sql, (BATCH,)).fetchall()]
    new = [] if batch_id in names else [name for name in names if name not in compared]
    if new:
        raise NotCompared(f"batch {batch_id} was planned without batch {new[-1]}, which may pay the same people")


def _total(commit: Commit, run: int) -> int:
    """How many orders a batch holds."""
    (total,) = commit.execute("SELECT coalesce(sum(count), 0) FROM progress WHERE run = ?", (run,)).fetchone()
    return int(total)


async def blocks(orders: Iterable[Order] | AsyncIterable[Order]) -> AsyncIterator[Sequence[Order]]:
    """Orders, a commit's worth at a time. What can be awaited is: it stops nobody else."""
    if isinstance(orders, AsyncIterable):
        block: list[Order] = []
        async for order in orders:
            block.append(order)
            if len(block) == _BLOCK:
                yield block
                block = []
        if block:
            yield block
        return
    iterator = iter(orders)  # which may belong to this thread, as a cursor does
    while some := list(islice(iterator, _BLOCK)):
        yield some


def _renew_lease(commit: Commit, load: Load) -> None:
    """Go on loading, unless somebody else has taken over. Raises ``LoadBusy``."""
    if not load.ready and not _leases.renew(commit, LOAD, load.batch_id, load.token, _LEASE):
        raise LoadBusy("another process has taken over loading this batch")


class _Held(NamedTuple):
    """An order that the journal holds."""

    order_id: int
    request_id: str
    digest: bytes
    state: str
    archive: int | None


def _held(commit: Commit, request_ids: list[str]) -> dict[str, _Held]:
    """Those of these orders that the journal holds, by their keys."""
    marks = ",".join("?" * len(request_ids))
    found = commit.execute(
        f"SELECT request_key, id, request_id, body_sha256, state, archive FROM outbox WHERE request_key IN ({marks})",  # noqa: S608
        list(map(plain_id, request_ids)),
    )
    return {key: _Held(*facts) for key, *facts in found}


def _check_not_archived(commit: Commit, orders: Sequence[Order], held: Mapping[str, _Held]) -> None:
    """Refuse orders that ended long ago, whatever they say. Raises ``OrdersArchived``."""
    known = {order.request_id: held[key] for order in orders if (key := plain_id(order.request_id)) in held}
    gone = {request_id: one for request_id, one in known.items() if one.archive is not None}
    if not gone:
        return
    first = next(iter(gone.values()))
    (path,) = commit.execute("SELECT path FROM archive WHERE id = ?", (first.archive,)).fetchone()
    more = f" and {len(gone) - 1} or more" if len(gone) > 1 else ""
    raise OrdersArchived(
        f"request id {first.request_id}{more} of these orders ended long ago ({first.state}) and left the journal for "
        f"the archive {path}; nothing is sent again",
        list(gone)[:_SHOWN],
    )


def _compare(commit: Commit, load: Load, held: _Held, prepared: _Prepared) -> None:
    """An order that the journal holds is one of this batch, and the same. Raises ``OrdersDiffer`` otherwise."""
    request_id = prepared.request_id
    if held.request_id != request_id:
        raise OrdersDiffer.in_letters(request_id, held.request_id)
    if run_of(held.order_id) != load.run:
        other = commit.execute("SELECT batch_id FROM run WHERE id = ?", (run_of(held.order_id),)).fetchone()
        raise OrdersDiffer(f"request id {request_id} belongs to batch {other[0]} already", [request_id])
    if held.digest != prepared.digest:
        row = row_by_id(commit, held.order_id)
        assert row is not None
        _check_same(_Prepared(request_id, row.amount, row.body, held.digest), prepared)


def _insert(commit: Commit, load: Load, fresh: dict[str, _Prepared]) -> None:
    """Write new orders down, side by side behind the others of their batch."""
    if not fresh:
        return
    if load.ready:
        raise OrdersDiffer(
            f"the batch is complete and does not hold {len(fresh)} or more of these orders",
            [new.request_id for new in fresh.values()][:_SHOWN],
        )
    if load.next_id - load.first + len(fresh) > MOST_ORDERS:
        raise OrdersDiffer(f"a batch holds at most {MOST_ORDERS:,} orders")
    now, first = commit.now, load.next_id
    commit.inserts(_WRITTEN, [(first + place, key, *new, now, now) for place, (key, new) in enumerate(fresh.items())])
    for place, new in enumerate(fresh.values()):
        load.see(first + place)
        commit.count(load.run, State.PLANNED, 1, Decimal(new.amount))
    load.next_id += len(fresh)
    load.added += len(fresh)


def _check_same(one: _Prepared, other: _Prepared) -> None:
    """Refuse a second order under one id. Raises ``OrdersDiffer``."""
    if one.request_id != other.request_id:
        raise OrdersDiffer.in_letters(other.request_id, one.request_id)
    if one.digest != other.digest:
        what = OrdersDiffer.how(one.amount, other.amount)
        raise OrdersDiffer(
            f"request id {one.request_id} stands for two different orders: {what}, "
            f"digests {one.digest.hex()[:12]} and {other.digest.hex()[:12]}",
            [one.request_id],
        )


def _missing(commit: Commit, batch_id: str, load: Load, count: int) -> OrdersDiffer:
    shown: list[str] = []
    for order_id, request_id in commit.execute(
        f"SELECT id, request_id FROM outbox WHERE id BETWEEN ? AND ? AND {IS_HERE}",  # noqa: S608 - no value in it
        bounds(load.run),
    ):
        if not load.has_seen(order_id):
            shown.append(request_id)
            if len(shown) == _SHOWN:
                break
    if not shown:
        return OrdersArchived(f"batch {batch_id} ended long ago: {count} orders of it left the journal for an archive")
    return OrdersDiffer(f"batch {batch_id} holds {count} orders that are missing here, such as {shown[0]}", shown)


def _told_of(request_id: str, state: str) -> OrdersDiffer:
    return OrdersDiffer(
        f"request id {request_id} was written down by a load that broke off, is {state} by now, and is missing here; "
        "load it with the others",
        [request_id],
    )


def _apply_early_events(commit: Commit, load: Load) -> None:
    """Orders that notifications told of before they were loaded were sent by somebody: they are not sent again."""
    found = commit.execute(
        """SELECT DISTINCT o.id FROM ipn_event e CROSS JOIN outbox o
        WHERE o.request_key = e.request_key AND e.order_id IS NULL AND e.request_key IS NOT NULL
        AND o.id BETWEEN ? AND ?""",
        bounds(load.run),
    ).fetchall()
    for (order_id,) in found:
        row = row_by_id(commit, order_id)
        assert row is not None
        apply_unmatched_events(commit, row)
