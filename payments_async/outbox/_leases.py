"""The chunks that this process has leased, and their orders still to be sent."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

import attrs

from payments_async.journal import Journal
from payments_async.journal._faults import LeaseLost
from payments_async.journal._records import Chunk, ClaimedOrder

_MOST = 4000  # orders in hand beyond which no further chunk is claimed, whatever they wait for


@attrs.define(eq=False)
class Lease:
    """One chunk that is ours.

    Attributes:
        good_until: Monotonic seconds at which the lease has surely run out, by our clock.
        open: Orders of it whose end is not written down.
        lost: Somebody else has taken it over.
    """

    chunk: Chunk
    good_until: float
    open: int
    lost: bool = False


@attrs.define(eq=False, repr=False)
class LeasedOrder:
    """One order of a chunk in hand."""

    lease: Lease
    claimed: ClaimedOrder
    tries: int = 0


@attrs.define(eq=False, repr=False)
class Leases:
    """All chunks this process has leased.

    Attributes:
        owner: Who holds them; no other process or run may have the same name.
        seconds: How long a lease lasts.
        clock: Monotonic seconds.
        open: Orders in hand whose end is not written down.
    """

    _journal: Journal
    _batch_id: str
    _owner: str = attrs.field(kw_only=True)
    _seconds: float = attrs.field(kw_only=True)
    _clock: Callable[[], float] = attrs.field(kw_only=True)
    _held: dict[int, Lease] = attrs.field(init=False, factory=dict)
    _ready: deque[LeasedOrder] = attrs.field(init=False, factory=deque)
    _later: list[tuple[float, int, LeasedOrder]] = attrs.field(init=False, factory=list)
    _finished: list[Lease] = attrs.field(init=False, factory=list)
    _sequence: count[int] = attrs.field(init=False, factory=count)
    open: int = attrs.field(init=False, default=0)

    def __len__(self) -> int:
        """How many chunks are ours."""
        return len(self._held)

    def has_plenty(self, workers: int) -> bool:
        """Whether there is enough to do for so many workers, or already more in hand than should be."""
        return len(self._ready) >= workers or self.open >= _MOST + workers

    def count_ready(self) -> int:
        """How many orders in hand may go now."""
        now = self._clock()
        return len(self._ready) + sum(due <= now for due, _, _ in self._later)

    def take(self) -> LeasedOrder | None:
        """The next order that may go now, of a chunk that is still ours."""
        if self._later and self._later[0][0] <= self._clock():
            self._ready.append(heapq.heappop(self._later)[2])
        while self._ready:
            order = self._ready.popleft()
            if not order.lease.lost:
                return order
            self.open -= 1  # somebody else has it
            order.lease.open -= 1
        return None

    def put_back(self, order: LeasedOrder) -> None:
        """An order that was taken was not tried after all: it is the next."""
        self._ready.appendleft(order)

    def again(self, order: LeasedOrder, delay: float) -> None:
        """An order was surely not sent: it may go again after so many seconds."""
        heapq.heappush(self._later, (self._clock() + delay, next(self._sequence), order))

    def set_aside(self) -> None:
        """One order stays planned and is not tried again by this process, which keeps the chunk until its end."""
        self.open -= 1

    def done(self, order: LeasedOrder) -> bool:
        """The end of an order is written down. Tells whether its chunk is finished, and to be given back."""
        lease = order.lease
        self.open -= 1
        lease.open -= 1
        if lease.open or lease.lost:
            return False
        self._finished.append(lease)
        return True

    async def give_back_finished(self) -> None:
        """Give chunks back of which nothing is left to do."""
        while self._finished:
            await self._give_back(self._finished.pop())

    def drop(self, lease: Lease) -> None:
        """A chunk is somebody else's now: the rest of it is theirs."""
        lease.lost = True
        self._held.pop(lease.chunk.number, None)

    async def claim(self) -> bool:
        """Lease one more chunk, if there is one."""
        asked = self._clock()
        chunk = await self._journal.claim_chunk(self._batch_id, self._owner, lease=self._seconds)
        if chunk is None:
            return False
        if (mine := self._held.get(chunk.number)) is not None:
            self.drop(mine)  # its lease ran out, and we took it over from ourselves
        lease = Lease(attrs.evolve(chunk, orders=()), asked + self._seconds, len(chunk.orders))
        self._held[chunk.number] = lease
        self._ready.extend(LeasedOrder(lease, claimed) for claimed in chunk.orders)
        self.open += len(chunk.orders)
        return True

    async def renew(self) -> None:
        """Prolong every lease."""
        for lease in list(self._held.values()):
            asked = self._clock()
            try:
                lease.chunk = await self._journal.renew_chunk(lease.chunk, lease=self._seconds)
            except LeaseLost:
                self.drop(lease)
            else:
                lease.good_until = asked + self._seconds

    async def give_back_all(self) -> None:
        """Give every chunk back. To be called when nothing is under way any more."""
        self._ready.clear()
        self._later.clear()
        self._finished.clear()
        self.open = 0
        for lease in list(self._held.values()):
            await self._give_back(lease)

    async def _give_back(self, lease: Lease) -> None:
        """Let others have a chunk, with what of it is still planned."""
        self.drop(lease)
        await self._journal.release_chunk(lease.chunk)
