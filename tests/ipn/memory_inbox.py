"""An inbox in memory that keeps the contract, for tests that need no disk."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import attrs

from payments_async._wire.events import TransactionEvent
from payments_async.journal.contract import Arrival, Backlog, Doubt, Heard, RawNotification, Receipt, StoredEvent


@attrs.define
class _Row:
    stored: StoredEvent
    owner: str | None
    lease_until: float
    due: float


class MemoryInbox:
    """Keeps everything until the process ends."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.rows: dict[int, _Row] = {}
        self.deliveries: dict[bytes, RawNotification] = {}
        self.broken: Exception | None = None
        self.finishing: list[Callable[[], Awaitable[None]]] = []

    def state(self, event_id: int) -> str:
        return self.rows[event_id].stored.state

    async def receive_all(
        self, arrivals: Sequence[Arrival], *, owner: str, handled: Sequence[int] = ()
    ) -> Sequence[Receipt | Exception]:
        for event_id in handled:
            await self.finish(event_id, "handled")
        receipts = []
        for arrival in arrivals:
            receipt = await self.receive(arrival.delivery, arrival.event, owner=owner, lease=arrival.lease)
            row = self.rows[receipt.event_id]
            if receipt.is_new:
                row.stored = attrs.evolve(row.stored, doubt=arrival.doubt)
            if receipt.is_new and arrival.doubt == Doubt.REPORTED:
                await self.finish(receipt.event_id, "reported")
            if receipt.is_new and receipt.conflict is None and arrival.unheard:
                await self.finish(receipt.event_id, "handled")
            receipts.append(receipt)
        return receipts

    async def receive(self, delivery: RawNotification, event: TransactionEvent, *, owner: str, lease: float) -> Receipt:
        if self.broken is not None:
            raise self.broken
        self.deliveries[delivery.digest] = delivery
        conflict = None
        for row in self.rows.values():
            known = row.stored.event
            if known.transaction_id != event.transaction_id:
                continue
            if (known.status_code, known.amount) == (event.status_code, event.amount):
                return Receipt(event_id=row.stored.event_id, is_new=False, conflict=row.stored.conflict)
            if known.status_code in (0, 2) and row.stored.conflict is None and event.status_code in (0, 2):
                conflict = f"status code {event.status_code} after the final {known.status_code}"
        number = len(self.rows) + 1
        stored = StoredEvent(
            event_id=number,
            event=event,
            peer=delivery.peer,
            received_at=delivery.received_at,
            state="pending",
            conflict=conflict,
        )
        self.rows[number] = _Row(stored, owner, self.clock() + lease, 0.0)
        return Receipt(event_id=number, is_new=True, conflict=conflict)

    async def confirm(self, event_id: int) -> str | None:
        row = self.rows[event_id]
        row.stored = attrs.evolve(row.stored, doubt=None)
        return row.stored.conflict

    async def claim(self, owner: str, *, lease: float, limit: int) -> Sequence[StoredEvent]:
        now = self.clock()
        free = [
            row
            for row in self.rows.values()
            if row.stored.state == "pending" and row.due <= now and (row.owner is None or row.lease_until <= now)
        ][:limit]
        for row in free:
            row.owner, row.lease_until = owner, now + lease
        return [row.stored for row in free]

    async def release(self, owner: str) -> None:
        for row in self.rows.values():
            if row.owner == owner:
                row.owner = None

    async def note_done(self, event_id: int, handler: str) -> None:
        row = self.rows[event_id]
        row.stored = attrs.evolve(row.stored, done=row.stored.done | {handler})

    async def finish(self, event_id: int, state: str, *, error: str | None = None) -> None:
        row = self.rows[event_id]
        row.stored = attrs.evolve(row.stored, state=state, error=error)
        row.owner = None

    async def retry_later(self, event_id: int, *, delay: float, error: str) -> None:
        row = self.rows[event_id]
        row.stored = attrs.evolve(row.stored, tries=row.stored.tries + 1, error=error)
        row.owner, row.due = None, self.clock() + delay

    async def revive(self, event_id: int | None = None) -> int:
        dead = [
            row for row in self.rows.values() if row.stored.state == "dead" and event_id in (None, row.stored.event_id)
        ]
        for row in dead:
            row.stored = attrs.evolve(row.stored, state="pending", tries=0)
            row.due = 0.0
        return len(dead)

    async def dead_letters(self) -> AsyncIterator[StoredEvent]:
        for row in list(self.rows.values()):
            if row.stored.state == "dead":
                yield row.stored

    async def dubious(self) -> AsyncIterator[StoredEvent]:
        for row in list(self.rows.values()):
            if row.stored.doubt is not None or row.stored.state == "disputed":
                yield row.stored

    async def final_events(self, request_id: str, transaction_id: str | None = None) -> Sequence[TransactionEvent]:
        believed = [
            row.stored.event
            for row in self.rows.values()
            if row.stored.doubt is None and row.stored.state != "disputed" and row.stored.event.status_code in (0, 2)
        ]
        if transaction_id is None:
            return [event for event in believed if event.request_id == request_id]
        return [
            event
            for event in believed
            if event.transaction_id == transaction_id and event.request_id in (None, request_id)
        ]

    async def finals_since(
        self, heard: Heard | None, is_wanted: Callable[[str | None, str], bool]
    ) -> tuple[Heard, Sequence[TransactionEvent]]:
        """All of them are told again: nothing here says since when one is believed."""
        now = Heard(event=len(self.rows), belief=0)
        found = [row.stored.event for row in self.rows.values() if row.stored.doubt is None]
        return now, [one for one in found if is_wanted(one.request_id, one.transaction_id)]

    async def committed(self, seen: int, *, timeout: float) -> int:
        await asyncio.sleep(min(timeout, 0.01) if seen else 0)
        return seen + 1

    def before_close(self, finish: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        self.finishing.append(finish)
        return lambda: self.finishing.remove(finish) if finish in self.finishing else None

    async def check_writable(self) -> None:
        if self.broken is not None:
            raise self.broken

    async def backlog(self) -> Backlog:
        pending = [row.stored for row in self.rows.values() if row.stored.state == "pending"]
        dead = sum(row.stored.state == "dead" for row in self.rows.values())
        return Backlog(pending=len(pending), dead=dead, oldest=min((p.received_at for p in pending), default=None))
