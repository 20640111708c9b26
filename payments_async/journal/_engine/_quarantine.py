"""The quarantine of a journal that may have forgotten what it sent."""

from __future__ import annotations

from collections.abc import Mapping

from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit, among, within_chunk
from payments_async.journal._statements._history import note_restored, void_list_scans
from payments_async.journal._statements._notifications import part_numbers
from payments_async.journal._statements._permits import quarantine
from payments_async.journal._statements._puts import doubt
from payments_async.journal._states import UNSENT, UNSETTLED

UNSEEN = "unseen"  # a fact: Unix seconds when a machine opened the journal that had not seen it before
LAST = "last"  # a fact: the order whose row the last counted commit wrote, and the time that stands in it
_UNFINISHED = f"""SELECT run, number FROM chunk c WHERE state = 'open' OR EXISTS (
    SELECT 1 FROM outbox o WHERE o.id {within_chunk("c")} AND o.state {among((*UNSENT, *UNSETTLED))})
    ORDER BY run, number"""  # noqa: S608 - numbers only


def are_rows_older(connection: Connection, last: str) -> bool:
    """Whether the order that the last counted commit wrote stands otherwise: rows were put back from a copy.

    Args:
        last: As the journal remembers it; empty where nothing was written yet.
    """
    if not last:
        return False
    number, at = last.split()
    found = connection.execute("SELECT updated_at FROM outbox WHERE id = ?", (int(number),)).fetchone()
    return found is None or bool(found[0] != float(at))


def quarantine_all(commit: Commit, *, is_behind: bool) -> None:
    """Let nothing be sent from any unfinished chunk, nor from a batch that is being loaded, before a person has looked.

    Nor from one that is done but for an order that a person may decide on, or that is put again to let it go: that may
    have been done already. A chunk may be done, and an order of it under way, where orders alone were put back.

    Args:
        is_behind: It has forgotten commits, perhaps with the batches that they were of.
    """
    found = commit.execute(_UNFINISHED).fetchall()
    doubt(commit)
    quarantine(commit, found, "whoever wrote the file before it was copied or restored")
    commit.execute("UPDATE run SET look_since = coalesce(look_since, created_at) WHERE state = 'loading'")
    void_list_scans(commit)  # those that are done, too: what was sent since may be of a batch that this file never had
    note_restored(commit, is_behind=is_behind)
    part_numbers(commit)
    commit.write_progress()


def unseen_at(connection: Connection, known: Mapping[str, str], now: float, *, is_new_here: bool) -> float | None:
    """Unix seconds since when a machine has a journal that had not seen it before; ``None`` where none is known.

    Args:
        known: Its facts.
        is_new_here: This machine does not remember it. One that nothing was begun in has nothing to forget.
    """
    if is_new_here and connection.execute("SELECT 1 FROM run LIMIT 1").fetchone() is not None:
        return now
    return float(known[UNSEEN]) if UNSEEN in known else None
