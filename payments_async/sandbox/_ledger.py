"""Every order that was carried out, and how often: the judge."""

import array
import bisect
import enum
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Protocol, overload

import attrs

from ._catalogue import ITEMS, PRODUCTS
from ._orders import Counterparty, Kind, Order


class Status(enum.StrEnum):
    """# Spec: "Transaction statuses: `ENQUEUED`, `PROCESSING`, `FAILED`, `SUCCESSFULL` (spelled exactly so), ..."."""

    ENQUEUED = "ENQUEUED"
    PROCESSING = "PROCESSING"
    FAILED = "FAILED"
    SUCCESSFULL = "SUCCESSFULL"
    REVERSED = "REVERSED"


@attrs.frozen(kw_only=True)
class Execution:
    """One carrying out of one order, as it stands now.

    Attributes:
        amount: As ordered, never negative.
        created_on: When it was accepted.
        answered: Whether the IPN URL has answered a notification of its end with 200.
    """

    transaction_id: str
    request_id: str
    batch_id: str
    amount: Decimal
    kind: Kind
    item_id: str
    status: Status
    created_on: datetime
    answered: bool = False
    message: str = ""
    beneficiary: Counterparty = Counterparty()


class _Rows(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> Execution: ...
    def __setitem__(self, row: int, execution: Execution, /) -> None: ...
    def append(self, execution: Execution, /) -> None: ...


_STATUSES = tuple(Status)


class CompactRows:
    """Executions in columns, for a million of them: no beneficiary, no message, texts and amounts shared.

    About 25 bytes for an order beside its request id; an `Execution` is made when somebody looks.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._created = array.array("d")
        self._states = bytearray()
        self._shared: dict[tuple[str, str, str], tuple[str, Decimal, str]] = {}
        self._request_ids: list[str] = []
        self._bodies: list[tuple[str, Decimal, str]] = []

    def __len__(self) -> int:
        return len(self._request_ids)

    def __getitem__(self, row: int, /) -> Execution:
        batch_id, amount, item_id = self._bodies[row]
        state = self._states[row]
        return Execution(
            transaction_id=transaction_id_of(row, self._seed),
            request_id=self._request_ids[row],
            batch_id=batch_id,
            amount=amount,
            kind=kind_of(item_id),
            item_id=item_id,
            status=_STATUSES[state & 0x7F],
            created_on=datetime.fromtimestamp(self._created[row], UTC),
            answered=bool(state & 0x80),
        )

    def __setitem__(self, row: int, execution: Execution, /) -> None:
        self._states[row] = self._state(execution)

    def append(self, execution: Execution, /) -> None:
        """Add a row at the end."""
        key = (execution.batch_id, str(execution.amount), execution.item_id)
        body = self._shared.get(key) or (execution.batch_id, execution.amount, execution.item_id)
        if len(self._shared) < 10_000:  # beyond, the table of what is shared would outgrow what it saves
            self._shared[key] = body
        self._bodies.append(body)
        self._request_ids.append(execution.request_id)
        self._created.append(execution.created_on.timestamp())
        self._states.append(self._state(execution))

    @staticmethod
    def _state(execution: Execution) -> int:
        return _STATUSES.index(execution.status) | (0x80 if execution.answered else 0)


class Ledger(Sequence[Execution]):
    """All executions, oldest first.

    Attributes:
        version: Grows with every change.
    """

    def __init__(self, *, seed: int = 0, compact: bool = False, holds_until_answered: bool = False) -> None:
        self._seed = seed
        self._rows: _Rows = CompactRows(seed) if compact else list[Execution]()
        self._holds = holds_until_answered
        self._first: dict[str, int] = {}
        self._repeats: dict[str, list[int]] = {}
        self._selected: tuple[object, Sequence[int]] = (None, ())
        self.version = 0

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> Execution: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Execution]: ...
    def __getitem__(self, row: int | slice) -> Execution | Sequence[Execution]:
        if isinstance(row, slice):
            return [self._rows[one] for one in range(*row.indices(len(self)))]
        return self._rows[row]

    def __iter__(self) -> Iterator[Execution]:
        return (self._rows[row] for row in range(len(self)))

    def add(self, order: Order, *, at: datetime) -> Execution:
        """Write down that an order is carried out. Every call is one more execution."""
        row = len(self._rows)
        execution = Execution(
            transaction_id=transaction_id_of(row, self._seed),
            request_id=order.request_id,
            batch_id=order.batch_id,
            amount=order.amount,
            kind=order.kind,
            item_id=order.item_id,
            status=Status.PROCESSING,
            created_on=at,
            message=order.message,
            beneficiary=order.beneficiary,
        )
        self._rows.append(execution)
        self.version += 1
        if order.request_id in self._first:
            self._repeats.setdefault(order.request_id, []).append(row)
        else:
            self._first[order.request_id] = row
        return execution

    def find(self, transaction_id: str) -> Execution | None:
        """Return the execution with this transaction id."""
        row = self._row_of(transaction_id)
        return None if row is None else self._rows[row]

    def first_of(self, request_id: str) -> Execution | None:
        """Return the first execution of this request id."""
        row = self._first.get(request_id)
        return None if row is None else self._rows[row]

    def executions(self, request_id: str) -> int:
        """Return how often this request id was carried out."""
        return (request_id in self._first) + len(self._repeats.get(request_id, ()))

    def duplicates(self) -> list[str]:
        """Return the request ids that were carried out more than once."""
        return list(self._repeats)

    def change(self, transaction_id: str, *, status: Status | None = None, answered: bool | None = None) -> Execution:
        """Write down news of an execution and return how it stands now."""
        row = self._row_of(transaction_id)
        if row is None:
            raise KeyError(transaction_id)
        old = self._rows[row]
        new = attrs.evolve(
            old,
            status=old.status if status is None else status,
            answered=old.answered if answered is None else answered,
        )
        self._rows[row] = new
        self.version += 1
        return new

    def shown_status(self, execution: Execution) -> Status:
        """Return the status a reader is shown."""
        held = self._holds and not execution.answered and execution.status != Status.REVERSED
        return Status.PROCESSING if held else execution.status

    def select(self, *, status: Status | None, since: datetime | None, until: datetime | None) -> Sequence[int]:
        """Return the rows accepted from `since` to before `until` that show this status, oldest first."""
        key = (status, since, until, self.version)
        if key != self._selected[0]:
            self._selected = (key, self._select(status, since, until))
        return self._selected[1]

    def _select(self, status: Status | None, since: datetime | None, until: datetime | None) -> Sequence[int]:
        start = 0 if since is None else bisect.bisect_left(self, since, key=_created_on)
        stop = len(self) if until is None else bisect.bisect_left(self, until, key=_created_on)
        rows = range(start, max(start, stop))
        return rows if status is None else [row for row in rows if self.shown_status(self._rows[row]) == status]

    def _row_of(self, transaction_id: str) -> int | None:
        try:
            row = int(transaction_id[-12:], 16)
        except ValueError:
            return None
        known = 0 <= row < len(self) and transaction_id == transaction_id_of(row, self._seed)
        return row if known else None


def transaction_id_of(row: int, seed: int) -> str:
    """Return the id of a row. # Spec: "Unique identifier of the transaction (UUID-shaped)"."""
    return f"{seed & 0xFFFFFFFF:08x}-5a4d-4b0c-8000-{row:012x}"


def kind_of(item_id: str) -> Kind:
    """Return whether an item is paid out or collected."""
    return "collection" if PRODUCTS[ITEMS[item_id].product_id].channel == "collections" else "payout"


def _created_on(execution: Execution) -> datetime:
    return execution.created_on
