"""The chunks that this process has leased, and their orders still to be sent: fair between batches."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, count

import attrs

from payments_async._wire.call import Call
from payments_async._wire.models import Acceptance
from payments_async.journal import Journal
from payments_async.journal._faults import JournalError, LeaseLost
from payments_async.journal._records import Chunk, ClaimedOrder, Outcome, Placed

_MOST = 4000  # orders in hand beyond which no further chunk is claimed, whatever they wait for
SOON = 60.0  # seconds: an order that is due later than that is given back meanwhile


@attrs.define(eq=False)
class Lease:
    """One chunk that is ours.

    Attributes:
        good_until: Monotonic seconds at which the lease has surely run out, by our clock.
        open: Orders of it whose end is not written down.
        lost: Somebody else has taken it over.
        fills: Further orders are put into it, so it is kept though nothing of it is left to do.
        ended: Set when it is ours no more.
    """

    chunk: Chunk
    good_until: float
    open: int
    lost: bool = False
    fills: bool = False
    ended: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)

    @property
    def key(self) -> tuple[int, int]:
        """Which chunk it is."""
        return self.chunk.run, self.chunk.number


@attrs.define(eq=False, repr=False)
class LeasedOrder:
    """One order of a chunk in hand.

    Attributes:
        call: What sends it for the first time, where whoever put it has made that.
        tell: Told how its try ended, and ``TransitionResult.ended_at``, once that is written down; without an outcome
            where it is not ours to send any more.
    """

    lease: Lease
    claimed: ClaimedOrder
    tries: int = 0
    call: Call[Acceptance] | None = None
    tell: Callable[[Outcome | None, float | None], None] | None = None


class ReadyOrders:
    """Orders that may go now: those of a higher priority first, and batch after batch in turn among equals."""

    def __init__(self) -> None:
        self._levels: dict[int, deque[int]] = {}  # runs whose turn it is, by priority
        self._lines: dict[tuple[int, int], deque[LeasedOrder]] = {}
        self._highest = 0
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(self._counts.values())

    def __bool__(self) -> bool:
        return bool(self._levels)

    def of(self, run: int) -> int:
        """How many there are of one batch."""
        return self._counts.get(run, 0)

    def put(self, order: LeasedOrder, *, first: bool = False) -> None:
        """Add an order behind those of its batch, or before them."""
        run, priority = order.lease.chunk.run, order.claimed.priority
        line = self._lines.get((priority, run))
        if line is None:
            line = self._lines[priority, run] = deque()
            turns = self._levels.setdefault(priority, deque())
            if first:
                turns.appendleft(run)
            else:
                turns.append(run)
            self._highest = max(self._levels)
        if first:
            line.appendleft(order)
        else:
            line.append(order)
        self._counts[run] = self._counts.get(run, 0) + 1

    def take(self) -> LeasedOrder | None:
        """The next one."""
        if not self._levels:
            return None
        turns = self._levels[self._highest]
        run = turns[0]
        line = self._lines[self._highest, run]
        order = line.popleft()
        self._counts[run] -= 1
        if len(turns) > 1:
            turns.rotate(-1)
        if not line:
            del self._lines[self._highest, run]
            turns.remove(run)
            if not self._counts[run]:
                del self._counts[run]
            if not turns:
                del self._levels[self._highest]
                self._highest = max(self._levels, default=0)
        return order

    def __iter__(self) -> Iterator[LeasedOrder]:
        return chain.from_iterable(self._lines.values())

    def clear(self) -> None:
        """Forget all of them."""
        self._levels.clear()
        self._lines.clear()
        self._counts.clear()


@attrs.define(eq=False, repr=False)
class Leases:
    """All chunks this process has leased.

    Attributes:
        owner: Who holds them; no other process or run may have the same name.
        seconds: How long a lease lasts.
        clock: Monotonic seconds.
        now: Unix seconds.
        ready: Orders that may go now.
        open: Orders in hand whose end is not written down.
    """

    _journal: Journal
    owner: str = attrs.field(kw_only=True)
    seconds: float = attrs.field(kw_only=True)
    _clock: Callable[[], float] = attrs.field(kw_only=True)
    _now: Callable[[], float] = attrs.field(kw_only=True, default=time.time)
    _held: dict[tuple[int, int], Lease] = attrs.field(init=False, factory=dict)
    ready: ReadyOrders = attrs.field(init=False, factory=ReadyOrders)
    _own: Lease | None = attrs.field(init=False, default=None)
    _later: list[tuple[float, int, LeasedOrder]] = attrs.field(init=False, factory=list)
    _finished: list[Lease] = attrs.field(init=False, factory=list)
    _sequence: count[int] = attrs.field(init=False, factory=count)
    open: int = attrs.field(init=False, default=0)
    _unreturned: list[Chunk] = attrs.field(init=False, factory=list)  # whose giving back could not be written down

    def __len__(self) -> int:
        """How many chunks are ours."""
        return len(self._held)

    def has_plenty(self, workers: int) -> bool:
        """Whether there is enough to do for so many workers, or already more in hand than should be.

        Enough is two orders for each: many come back at once, and leasing a chunk takes as long as their permits.
        """
        return len(self.ready) >= 2 * workers or self.is_full(workers)

    def is_full(self, workers: int) -> bool:
        """Whether more is in hand than should be, whatever it waits for."""
        return self.open >= _MOST + workers

    def held_of(self, run: int) -> int:
        """How many chunks of one batch are ours."""
        return sum(held == run for held, _ in self._held)

    def has_plenty_of(self, run: int, workers: int) -> bool:
        """Whether there is enough of one batch to do for so many workers, or already more in hand than should be."""
        return self.ready.of(run) >= 2 * workers or self.is_full(workers)

    def count_ready(self) -> int:
        """How many orders in hand may go now."""
        now = self._clock()
        return len(self.ready) + sum(due <= now for due, _, _ in self._later)

    def may_have_ready(self) -> bool:
        """Whether ``take`` may find an order: it is asked before anything else is, and mostly there is none."""
        return bool(self.ready) or (bool(self._later) and self._later[0][0] <= self._clock())

    def take(self) -> LeasedOrder | None:
        """The next order that may go now, of a chunk that is still ours."""
        if self._later and self._later[0][0] <= self._clock():
            self.ready.put(heapq.heappop(self._later)[2])
        while (order := self.ready.take()) is not None:
            if not order.lease.lost:
                return order
            self.open -= 1  # somebody else has it
            order.lease.open -= 1
            if order.tell is not None:
                order.tell(None, None)
        return None

    def put_back(self, order: LeasedOrder) -> None:
        """An order that was taken was not tried after all: it is the next."""
        self.ready.put(order, first=True)

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
        if lease.open or lease.lost or lease.fills:
            return False
        self._finished.append(lease)
        return True

    async def give_back_finished(self) -> bool:
        """Give chunks back of which nothing is left to do; tells whether there was one."""
        is_one_back = bool(self._finished)
        while self._finished:
            self._let_go(self._finished.pop())
            await self._return()
        return is_one_back

    def drop(self, lease: Lease) -> None:
        """A chunk is somebody else's now: the rest of it is theirs."""
        lease.lost = True
        lease.ended.set()
        if self._held.get(lease.key) is lease:
            del self._held[lease.key]
        if self._own is lease:
            self._own = None

    async def claim(self, batch_id: str) -> Lease | None:
        """Lease one more chunk of a batch, if there is one."""
        asked = self._clock()
        chunk = await self._journal.claim_chunk(batch_id, self.owner, lease=self.seconds)
        return None if chunk is None else self._take_in(chunk, asked)

    def count_own(self) -> int:
        """How many orders may go now of the batch that the chunk that is ours to be filled is of."""
        return 0 if self._own is None else self.ready.of(self._own.chunk.run)

    @property
    def own_chunk(self) -> Chunk | None:
        """The chunk that is ours to be filled, as far as we know."""
        return None if self._own is None else self._own.chunk

    def take_placed(self, placed: Placed, asked: float) -> LeasedOrder | None:
        """An order was put into the chunk that is ours to be filled, which may be another one than before.

        Args:
            asked: Monotonic seconds when it was asked for.

        Returns:
            The order, if it is in our hands now. Where it is permitted, it is not among those that wait.
        """
        chunk, claimed = placed.chunk, placed.claimed
        if chunk is None:
            return None
        lease = self._held.get((chunk.run, chunk.number))
        if lease is None or lease.chunk.token < chunk.token:
            before, lease = self._own, self._take_in(chunk, asked, fills=True)
            self._own = lease
            if before is not None and before is not lease and not before.lost:
                before.fills = False
                if not before.open:
                    self._finished.append(before)
        if claimed is None or lease.lost or lease.chunk.token != chunk.token:
            return None
        lease.open += 1
        self.open += 1
        order = LeasedOrder(lease, claimed)
        if placed.permit is None:
            self._line_up(order)
        return order

    def fill_no_more(self, run: int) -> None:
        """Give the chunks of a batch back that were only to be filled. What was just put there may be on its way yet.

        So one that was to be filled until now is given back the next time that this is asked for.
        """
        if self._own is not None and self._own.chunk.run == run:
            self._own.fills, self._own = False, None
            return
        idle = [one for one in self._held.values() if one.chunk.run == run and not one.open and not one.lost]
        self._finished += [one for one in idle if one not in self._finished]

    async def give_back_placed(self, chunk: Chunk) -> None:
        """A chunk was leased for an order, and nothing more is begun: anybody may have it, unless it is in hand."""
        lease = self._held.get((chunk.run, chunk.number))
        if lease is None or lease.chunk.token < chunk.token:
            with suppress(JournalError):  # else it is taken over when its lease has run out
                await self._journal.release_chunk(chunk)

    def _take_in(self, chunk: Chunk, asked: float, *, fills: bool = False) -> Lease:
        """A chunk is ours, with those of its orders that are due soon."""
        if (mine := self._held.get((chunk.run, chunk.number))) is not None:
            self.drop(mine)  # its lease ran out, and we took it over from ourselves
        horizon = self._now() + SOON
        orders = [claimed for claimed in chunk.orders if claimed.not_before <= horizon]
        lease = Lease(attrs.evolve(chunk, orders=()), asked + self.seconds, len(orders), fills=fills)
        self._held[lease.key] = lease
        self.open += len(orders)
        for claimed in orders:
            self._line_up(LeasedOrder(lease, claimed))
        if not orders and not fills:
            self._finished.append(lease)
        return lease

    def _line_up(self, order: LeasedOrder) -> None:
        """An order may go now, or in a moment."""
        due = order.claimed.not_before
        if due and (left := due - self._now()) > 0:
            self.again(order, left)
        else:
            self.ready.put(order)

    async def renew(self) -> None:
        """Prolong every lease."""
        for lease in list(self._held.values()):
            asked = self._clock()
            try:
                lease.chunk = await self._journal.renew_chunk(lease.chunk, lease=self.seconds)
            except LeaseLost:
                self.drop(lease)
            else:
                lease.good_until = asked + self.seconds
                if lease.lost:  # a permit was refused meanwhile, for it had run out: nobody here has it in hand
                    await self._journal.release_chunk(lease.chunk)

    async def give_back_unbegun(self) -> None:
        """Give back every chunk of which nothing is under way; of the others it may be done a moment later."""
        ready, later = list(self.ready), self._later
        waiting = Counter(order.lease.key for order in (*ready, *(order for _, _, order in later)))
        for lease in list(self._held.values()):
            if lease.open == waiting[lease.key]:
                self._let_go(lease)
        self.ready.clear()
        for order in ready:
            if not order.lease.lost:
                self.ready.put(order)
        self._later = [waits for waits in later if not waits[2].lease.lost]
        heapq.heapify(self._later)
        self.open -= len(ready) + len(later) - len(self.ready) - len(self._later)
        await self._return()

    def _let_go(self, lease: Lease) -> None:
        """Let others have a chunk, with what of it is still planned, once that is written down."""
        self.drop(lease)
        self._unreturned.append(lease.chunk)

    async def _return(self) -> None:
        """Write down that chunks are given back."""
        while self._unreturned:
            chunk = self._unreturned[-1]
            await self._journal.release_chunk(chunk)
            if chunk in self._unreturned:  # else somebody else has done so meanwhile
                self._unreturned.remove(chunk)

    async def give_back_all(self) -> None:
        """Give every chunk back. To be called when nothing is under way any more, and again where it failed."""
        self.ready.clear()
        self._later.clear()
        self._finished.clear()
        self.open = 0
        for lease in list(self._held.values()):
            self._let_go(lease)
        await self._return()
        await self._journal.expire_chunks(owner=self.owner)  # also those whose lease we never heard of
