"""What of the inbox may be forgotten when it is old, and forgetting it. Never what something open still needs."""

from __future__ import annotations

import attrs

from payments_async.journal._states import FINAL
from payments_async.journal._transaction import Transaction, Work

__all__ = ["Pruned", "prune", "touch"]

_BLOCK = 500  # events in one commit, so that nobody else waits for long
_FINAL = ", ".join(f"'{state.value}'" for state in sorted(FINAL))
# The newest event stays whatever its age: its number would be given again, and a handler knows events by their number.
_OLD = f"""SELECT e.id FROM ipn_event e WHERE e.id > ? AND coalesce(e.last_at, e.received_at) < ?
    AND e.id < (SELECT max(id) FROM ipn_event) AND e.state <> 'dead'
    AND NOT EXISTS (SELECT 1 FROM ipn_pending p WHERE p.event_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.id = e.order_id
        AND (o.state NOT IN ({_FINAL}) OR o.conflict IS NOT NULL))
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.request_id = e.request_id
        AND (o.state NOT IN ({_FINAL}) OR o.conflict IS NOT NULL))
    ORDER BY e.id LIMIT {_BLOCK}"""  # noqa: S608 - no value in it


@attrs.frozen(kw_only=True)
class Pruned:
    """What was forgotten.

    Attributes:
        events: Notifications.
        deliveries: Other words in which they came.
    """

    events: int = 0
    deliveries: int = 0


def prune(after: int, before: float) -> Work[tuple[Pruned, int | None]]:
    """Forget a block of events after this one that came before a moment. Tells the last of them; ``None`` at the end.

    Kept are events that wait or are dead letters, and those about orders without a final outcome or with a
    contradiction that nobody has acknowledged.
    """

    def work(transaction: Transaction) -> tuple[Pruned, int | None]:
        ids = [number for (number,) in transaction.execute(_OLD, (after, before)).fetchall()]
        if not ids:
            return Pruned(), None
        marks = ", ".join("?" * len(ids))
        deliveries = transaction.execute(f"DELETE FROM ipn_delivery WHERE event_id IN ({marks})", ids).rowcount  # noqa: S608
        events = transaction.execute(f"DELETE FROM ipn_event WHERE id IN ({marks})", ids).rowcount  # noqa: S608
        return Pruned(events=events, deliveries=deliveries), ids[-1]

    return work


def touch() -> Work[None]:
    """Write something that means nothing."""

    def work(transaction: Transaction) -> None:
        transaction.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('touched', ?)", (str(transaction.now),))

    return work
