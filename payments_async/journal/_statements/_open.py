"""Open orders of an outbox, told in few words: which they are, and since when they wait."""

from __future__ import annotations

from payments_async.journal._records import OpenOrder
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import FAILED_BY_NOTIFICATION, PageReader, is_in_state, run_in
from payments_async.journal._states import State

_PAGE = 5000  # a few hundred kilobytes


def open_after(outbox: str, state: State) -> PageReader[OpenOrder]:
    """A reader of pages of orders in one state, of all runs of an outbox; of failed ones, those that are looked for."""
    chosen = FAILED_BY_NOTIFICATION if state is State.FAILED else is_in_state("o", state)
    sql = f"""SELECT o.id, o.request_id, o.updated_at,
        CASE WHEN o.attempt > 0 THEN o.permitted_at ELSE o.updated_at END,
        coalesce((SELECT min(a.permitted_at) FROM attempt a WHERE a.order_id = o.id), o.updated_at)
        FROM outbox o WHERE {chosen} AND o.id > ?
        AND EXISTS (SELECT 1 FROM run WHERE run.id = {run_in("o.id")} AND run.outbox = ?)
        ORDER BY o.id LIMIT {_PAGE}"""  # noqa: S608 - a state, and numbers

    def read(connection: Connection, /, *, after: int) -> tuple[list[OpenOrder], int]:
        rows = connection.execute(sql, (after, outbox)).fetchall()
        page = [OpenOrder(request_id, state, since, min(last, first)) for _, request_id, since, last, first in rows]
        return page, rows[-1][0] if rows else after

    return read
