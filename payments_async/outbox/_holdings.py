"""The chunks this process holds, and their orders still to be sent. Asks for no permit and sends nothing."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

import attrs

from payments_async.journal._contract import Journal
from payments_async.journal._faults import LeaseLost
from payments_async.journal._records import Chunk, ClaimedOrder

__all__ = ["Holding", "Holdings", "Job"]

_MOST = 4000  # orders in hand beyond which no further chunk is claimed, whatever they wait for


@attrs.define(eq=False)
class Holding:
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


class Job:
    """One order of a chunk in hand."""

    __slots__ = ("claimed", "holding", "tries")

    def __init__(self, holding: Holding, claimed: ClaimedOrder) -> None:
        self.holding = holding
        self.claimed = claimed
        self.tries = 0


class Holdings:
    """All chunks this process holds.

    Args:
        owner: Who holds them; no other process or run may have the same name.
        lease: Seconds.
        clock: Monotonic seconds.
    """

    def __init__(
        self, journal: Journal, batch_id: str, *, owner: str, lease: float, clock: Callable[[], float]
    ) -> None:
        self._journal = journal
        self._batch_id = batch_id
        self._owner = owner
        self._lease = lease
        self._clock = clock
        self._held: dict[int, Holding] = {}
        self._ready: deque[Job] = deque()
        self._later: list[tuple[float, int, Job]] = []
        self._finished: list[Holding] = []
        self._order = count()
        self.open = 0

    @property
    def held(self) -> int:
        """How many chunks are ours."""
        return len(self._held)

    def has_plenty(self, slots: int) -> bool:
        """Whether there is enough to do for so many slots, or already more in hand than should be."""
        return len(self._ready) >= slots or self.open >= _MOST + slots

    def take(self) -> Job | None:
        """The next order that may go now, of a chunk that is still ours."""
        if self._later and self._later[0][0] <= self._clock():
            self._ready.append(heapq.heappop(self._later)[2])
        while self._ready:
            job = self._ready.popleft()
            if not job.holding.lost:
                return job
            self.open -= 1  # somebody else has it
            job.holding.open -= 1
        return None

    def put_back(self, job: Job) -> None:
        """An order that was taken was not tried after all: it is the next."""
        self._ready.appendleft(job)

    def again(self, job: Job, delay: float) -> None:
        """An order was surely not sent: it may go again after so many seconds."""
        heapq.heappush(self._later, (self._clock() + delay, next(self._order), job))

    def set_aside(self) -> None:
        """One order stays planned and is not tried again by this process, which keeps the chunk until its end."""
        self.open -= 1

    def done(self, job: Job) -> bool:
        """The end of an order is written down. Tells whether its chunk is finished, and to be given back."""
        holding = job.holding
        self.open -= 1
        holding.open -= 1
        if holding.open or holding.lost:
            return False
        self._finished.append(holding)
        return True

    async def give_back_finished(self) -> None:
        """Give chunks back of which nothing is left to do."""
        while self._finished:
            await self._give_back(self._finished.pop())

    def drop(self, holding: Holding) -> None:
        """A chunk is somebody else's now: the rest of it is theirs."""
        holding.lost = True
        self._held.pop(holding.chunk.number, None)

    async def claim(self) -> bool:
        """Lease one more chunk, if there is one."""
        asked = self._clock()
        chunk = await self._journal.claim_chunk(self._batch_id, self._owner, lease=self._lease)
        if chunk is None:
            return False
        if (mine := self._held.get(chunk.number)) is not None:
            self.drop(mine)  # its lease ran out, and we took it over from ourselves
        holding = Holding(attrs.evolve(chunk, orders=()), asked + self._lease, len(chunk.orders))
        self._held[chunk.number] = holding
        self._ready.extend(Job(holding, claimed) for claimed in chunk.orders)
        self.open += len(chunk.orders)
        return True

    async def renew(self) -> None:
        """Prolong every lease."""
        for holding in list(self._held.values()):
            asked = self._clock()
            try:
                holding.chunk = await self._journal.renew_chunk(holding.chunk, lease=self._lease)
            except LeaseLost:
                self.drop(holding)
            else:
                holding.good_until = asked + self._lease

    async def give_back_all(self) -> None:
        """Give every chunk back. To be called when nothing is under way any more."""
        self._ready.clear()
        self._later.clear()
        self._finished.clear()
        self.open = 0
        for holding in list(self._held.values()):
            await self._give_back(holding)

    async def _give_back(self, holding: Holding) -> None:
        self.drop(holding)
        await self._journal.release_chunk(holding.chunk)
