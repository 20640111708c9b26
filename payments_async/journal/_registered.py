"""What the journals of this machine hold of request ids, for who only looks: nothing is made, and nothing written."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from payments_async._values.request_ids import plain_id
from payments_async.journal._machine._memory import HELD, StateFolder, account_digest
from payments_async.journal._records import Holder, RunIdentity


class RegisteredOrders:
    """The orders of one account that some journal had ready to be sent. ``close`` it at the end.

    Args:
        state_folder: Where this machine remembers its journals. Where it remembers nothing, nothing is known.
    """

    def __init__(self, state_folder: str | Path | StateFolder, identity: RunIdentity) -> None:
        self._account = account_digest(identity)
        self._connection: sqlite3.Connection | None = None
        with suppress(OSError, sqlite3.Error):
            folder = state_folder.path() if isinstance(state_folder, StateFolder) else Path(state_folder)
            place = (folder / "registry.sqlite").resolve()
            self._connection = sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True, check_same_thread=False)

    def holders(self, request_ids: Sequence[str]) -> dict[str, Holder]:
        """Who holds which of these. What cannot be read is not known: whoever sends them looks again, and insists."""
        if self._connection is None or not request_ids:
            return {}
        asked = {request_id: plain_id(request_id) for request_id in request_ids}
        marks = ", ".join("?" * len(asked))
        try:
            found = self._connection.execute(
                f"""SELECT request_id, batch FROM request WHERE account = (SELECT id FROM account WHERE digest = ?)
                AND request_id IN ({marks})""",  # noqa: S608 - marks only
                (self._account, *asked.values()),
            ).fetchall()
            batches = {number: self._batch(number) for number in {number for _, number in found}}
        except sqlite3.Error:
            return {}
        holders = {key: batches[number] for key, number in found}
        return {request_id: holder for request_id, key in asked.items() if (holder := holders.get(key)) is not None}

    def journals(self) -> list[Holder]:
        """The latest batch of each journal of the account; nothing where that cannot be read."""
        if self._connection is None:
            return []
        try:
            found = self._connection.execute(
                f"""{HELD} WHERE b.id IN (SELECT max(id) FROM batch WHERE state = 'ready'
                AND account = (SELECT id FROM account WHERE digest = ?) GROUP BY journal) ORDER BY b.id""",  # noqa: S608
                (self._account,),
            ).fetchall()
        except sqlite3.Error:
            return []
        return list(map(Holder._make, found))

    def _batch(self, number: int) -> Holder | None:
        assert self._connection is not None
        row = self._connection.execute(f"{HELD} WHERE b.id = ? AND b.state = 'ready'", (number,)).fetchone()
        return None if row is None else Holder._make(row)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
