"""What slows a pool of workers and what stops it: backoff, turns of the rate of all, a fuse, and a sleep."""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Callable
from decimal import Context, Decimal
from functools import reduce
from itertools import islice, takewhile
from math import ceil

import attrs

from payments_async._values.checks import check_number, check_whole
from payments_async._values.deadlines import waking_clock
from payments_async._values.frozen import frozen
from payments_async.journal._records import Progress, RateSlots
from payments_async.journal._states import AGAIN, Signal, State

_log = logging.getLogger("payments_async")

_EXACT = Context(prec=100)  # the usual 28 digits would round a sum of large amounts
_FEWEST = 20  # sends before a rate of errors means anything
_BALANCE_EVERY = 200  # sends between two readings of the balance
# money that has left, or may have
_SPENT = tuple(state for state in State if state not in (State.PLANNED, *AGAIN))
_ERRORS = (Signal.REJECTED, Signal.UNKNOWN)

_TOLERANCE = 10  # failures in a row, then one order at a time feels its way
_IN_VAIN = 3  # orders that felt their way and failed, after which nothing is expected of the next
_WAIT_INITIAL = 0.5  # seconds, doubled with every order that felt its way and failed
_WAIT_MAX = 30.0
_TURNED_AWAY = 1.0  # seconds of pause where the service takes no more and does not say for how long; doubled each time
_MOMENT = 1.0  # seconds over which those who wait are let go again after a pause
_FIRST_SHARE = 0.1  # of them, go at its end
_LONGEST_PAUSE = 900.0  # seconds that are believed when the service asks for a pause; then somebody asks again

MOMENT = 0.25  # seconds for which a turn is good; later ones of others are near, and both would be a burst
_SPELL = 0.1  # seconds for which turns are kept in hand, beside what a reservation takes
_MOST = 0.2  # ... however long that is: the last of them must be used in its moment
_SHORTEST = 0.02  # seconds over which use is measured at least
_JUMP = 60.0  # seconds by which the clock may run ahead from one look to the next
_AGAIN = 0.5  # seconds until turns are asked for again at most: the rate may be another one by then


@frozen(kw_only=True)
class Fuse:
    """When a run stops by itself. What is under way is finished; the same command goes on afterwards.

    Attributes:
        max_error_rate: Of the last ``window`` orders sent, the share from 0 to 1 that may have been rejected or be
            unknown. Asked from the 20th order on.
        max_unknown: Orders of the batch that may be unknown at a time; 0 stops at the first.
        max_total: What the batch may come to: orders under way, accepted, successful, unknown and parked. An order
            that would exceed it is not sent. Other processes on the batch are counted about once a second.
        max_per_day: The same for all that an outbox sends in one day, by the clock of the service's time zone. What
            failed since counts no more.
        min_balance: What has to be left on the account after each order, by the balance read at the start and after
            every 200 orders.
        window: Orders that ``max_error_rate`` looks back at.

    >>> fuse = Fuse(max_per_day=Decimal(5_000_000), max_error_rate=0.2)
    >>> outbox = Outbox(SESSION, JOURNAL, fuse=fuse)
    """

    max_error_rate: float | None = None
    max_unknown: int | None = None
    max_total: Decimal | None = None
    max_per_day: Decimal | None = None
    min_balance: Decimal | None = None
    window: int = 100

    def __attrs_post_init__(self) -> None:
        if self.max_error_rate is not None:
            check_number("max_error_rate", self.max_error_rate, unit="a share, from 0 to 1")
            if self.max_error_rate > 1:
                raise ValueError("max_error_rate: a share from 0 to 1, such as 0.05")
        if self.max_unknown is not None:
            check_whole("max_unknown", self.max_unknown, 0)
        for name in ("max_total", "max_per_day", "min_balance"):
            amount: object = getattr(self, name)
            if amount is not None and not isinstance(amount, Decimal):
                raise TypeError(f"{name}: expected Decimal, not {type(amount).__name__}")
            if amount is not None and not amount.is_finite():
                raise ValueError(f"{name}: must be a finite amount")
        check_whole("window", self.window, _FEWEST)


class Budget:
    """What a batch has come to, from the journal now and then and from our own orders at once.

    Args:
        before: How the batch stood before the first of our own orders.

    Attributes:
        lacks_balance: Nothing may be sent, because the balance was never read.
    """

    def __init__(self, fuse: Fuse, before: Progress) -> None:
        self._fuse = fuse
        self._counts_money = fuse.max_total is not None or fuse.min_balance is not None
        self._limits = self._counts_money or fuse.max_error_rate is not None or fuse.max_unknown is not None
        self._recent: deque[bool] = deque(maxlen=fuse.window)
        self._errors = 0
        self._first = spent_in(before)
        self._others = Decimal(0)
        self._own = Decimal(0)
        self._unknown = before.counts[State.UNKNOWN]
        self._unwritten = 0  # unknown orders of ours that the journal has not heard of
        self._balance: Decimal | None = None
        self.lacks_balance = fuse.min_balance is not None
        self._since_balance = Decimal(0)
        self._sends = 0

    def limit(self, before: Decimal, most: Decimal) -> None:
        """Let no more than so much be spent beside what had been before."""
        self._fuse = attrs.evolve(self._fuse, max_total=_EXACT.add(before, most))
        self._counts_money = self._limits = True

    def forgive(self) -> None:
        """A person has seen what failed, and it counts no more."""
        self._recent.clear()
        self._errors = 0

    @property
    def wants_balance(self) -> bool:
        """Whether it is time to read the balance."""
        return self._fuse.min_balance is not None and (self._balance is None or self._sends >= _BALANCE_EVERY)

    def read_balance(self, balance: Decimal | None) -> None:
        """The balance as it is now, or ``None`` when it could not be read: the last one counts on then."""
        self._sends = 0
        if balance is not None:
            self._balance, self._since_balance = balance, Decimal(0)
            self.lacks_balance = False

    def refresh(self, progress: Progress) -> None:
        """How the batch stands by the journal, other processes included."""
        beyond = _EXACT.subtract(spent_in(progress), _EXACT.add(self._first, self._own))
        self._others = max(beyond, Decimal(0))
        self._unknown = progress.counts[State.UNKNOWN]

    def reserve(self, amount: Decimal) -> str | None:
        """Count an order that is about to be sent; or why none may be sent any more, and count nothing."""
        why = self._blown(amount) if self._limits else None
        if why is None and self._counts_money:
            self._own = _EXACT.add(self._own, amount)
            self._since_balance = _EXACT.add(self._since_balance, amount)
            self._sends += 1
        return why

    def ended(self, signal: Signal) -> None:
        """An order of ours was sent; the journal does not know it yet."""
        self._unwritten += signal is Signal.UNKNOWN
        if self._fuse.max_error_rate is None:
            return
        if len(self._recent) == self._fuse.window:
            self._errors -= self._recent[0]
        is_error = signal in _ERRORS
        self._recent.append(is_error)
        self._errors += is_error

    def written(self, signal: Signal, amount: Decimal) -> None:
        """The journal knows how an order of ours ended."""
        if signal is Signal.UNKNOWN:
            self._unwritten -= 1
            self._unknown += 1
        elif signal is not Signal.ACCEPTED:
            self.give_back(amount)

    def give_back(self, amount: Decimal) -> None:
        """An order that was counted did not cost anything."""
        if not self._counts_money:
            return
        self._own = _EXACT.subtract(self._own, amount)
        self._since_balance = _EXACT.subtract(self._since_balance, amount)

    def _blown(self, amount: Decimal) -> str | None:
        """Why no order of this amount may be sent, where a rule forbids it."""
        fuse = self._fuse
        sent = len(self._recent)
        if fuse.max_error_rate is not None and sent >= _FEWEST and self._errors > fuse.max_error_rate * sent:
            return f"{self._errors} of the last {sent} orders were rejected or are unknown"
        unknown = self._unknown + self._unwritten
        if fuse.max_unknown is not None and unknown > fuse.max_unknown:
            return f"{unknown} orders are unknown, {fuse.max_unknown} may be"
        if fuse.max_total is not None:
            total = _EXACT.add(_EXACT.add(self._first, self._others), _EXACT.add(self._own, amount))
            if total > fuse.max_total:
                return f"the next order would bring the total to {total:f}, {fuse.max_total:f} is allowed"
        if fuse.min_balance is not None and self._balance is not None:
            left = _EXACT.subtract(self._balance, _EXACT.add(self._since_balance, amount))
            if left < fuse.min_balance:
                return f"the next order would leave a balance of {left:f}, {fuse.min_balance:f} has to be left"
        return None


def spent_in(progress: Progress) -> Decimal:
    """What has left the account by the journal, or may have."""
    return reduce(_EXACT.add, (progress.sums[state] for state in _SPENT), Decimal(0))


class Backoff:
    """How fast orders may go.

    Nobody is held up by a failure now and then. After ten in a row, without one answer in between, one order at a
    time goes, after growing pauses, until one is answered. So a service that is down is not flooded, and one that
    swallows orders makes a handful unknown, not all. A pause that the service asks for is kept by everybody.

    Args:
        patience: Seconds without any answer after which ``gave_up`` says why.
        clock: Monotonic seconds.
        chance: Draws from [0, 1).

    Attributes:
        gave_up: Why nothing more should be tried, or ``None``.
        silent_since: Monotonic seconds since which not one exchange has brought an answer of any kind; ``None`` while
            the service is heard.
        asked: A pause that the service asked us for, of which the others are to hear: until when, in monotonic seconds,
            and in whose words.
    """

    def __init__(
        self, patience: float, *, clock: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._chance = chance
        self._in_row = 0
        self._rounds = 0
        self._troubled_since: float | None = None
        self._until = 0.0
        self._resumed = -_MOMENT  # when a pause, or the feeling of the way, ended last
        self._probing = False
        self._turned_away = 0  # times in a row that the service took no more, and did not say for how long
        self.gave_up: str | None = None
        self.silent_since: float | None = None
        self.asked: tuple[float, str] | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether many failed in a row, and after growing pauses some alone as well."""
        return self._rounds > _IN_VAIN

    @property
    def is_answered(self) -> bool:
        """Whether nothing came to nothing since the service has answered last."""
        return self._troubled_since is None

    def may_go(self) -> bool:
        """Whether an order may go now. While the service does badly, one that may is the only one."""
        if not self._in_row and not self._until:
            return True
        if self._until:
            if self._clock() < self._until:
                return False
            self._resumed, self._until = self._until, 0.0
        if self._in_row < _TOLERANCE:
            return True
        if self._probing:
            return False
        self._probing = True
        return True

    def places(self, waiting: int) -> int:
        """How many of so many who wait may go now: after a pause more and more of them, over a moment."""
        now, resumed = self._clock(), self._until or self._resumed
        if now < resumed:
            return 0
        if self._in_row >= _TOLERANCE:
            return 0 if self._probing else min(1, waiting)
        left = 1.0 - (now - resumed) / _MOMENT
        return waiting if left <= _FIRST_SHARE else ceil(waiting * _FIRST_SHARE / left)

    def did_not_go(self) -> None:
        """An order that might have gone was kept back: another may go in its place."""
        self._probing = False

    def answered(self) -> None:
        """The service answered an order, with yes or no."""
        if self._in_row >= _TOLERANCE:
            self._resumed = self._clock()
        self._in_row = self._rounds = self._turned_away = 0
        self._troubled_since = self.silent_since = None
        self._probing = False

    def hold(self, seconds: float) -> None:
        """Another process heard that the service asks for a pause."""
        if seconds > 0.0:
            self._until = max(self._until, self._clock() + min(seconds, _LONGEST_PAUSE))

    def failed(
        self, words: str, *, retry_after: float | None = None, silent: bool = False, turned_away: bool = False
    ) -> None:
        """An order, or the login before it, came to nothing.

        Args:
            words: What happened.
            silent: Nothing was answered at all.
            retry_after: Seconds of pause for everybody here.
            turned_away: The service takes no more for now, and everybody anywhere has to hear of it.
        """
        now = self._clock()
        self._probing = False
        if self._troubled_since is None:
            self._troubled_since = now
        if not silent:
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = now
        if retry_after is not None:  # it is up, and says when to come again
            self._until = max(self._until, now + min(retry_after, _LONGEST_PAUSE))
        elif turned_away:
            if now >= self._until:  # else it left before the pause, with many others
                self._until = now + min(_WAIT_MAX, _TURNED_AWAY * 2.0 ** min(self._turned_away, 60))
                self._turned_away += 1
        else:
            self._in_row += 1
            self._feel_the_way(now, self._troubled_since + self._patience - now)
        if turned_away:
            self.asked = self._until, words
        seconds = now - self._troubled_since
        if seconds >= self._patience:
            self.gave_up = f"nothing was answered for {seconds:.0f} seconds: {words}"

    def _feel_the_way(self, now: float, left: float) -> None:
        """After many failures in a row, have one order at a time go, after a pause that grows."""
        if self._in_row < _TOLERANCE or now < self._until:
            return  # a failure now and then; or it left before the pause, with many others
        grown = min(_WAIT_MAX, _WAIT_INITIAL * 2.0 ** min(self._rounds, 60)) * (0.5 + self._chance() / 2)
        self._until = now + max(0.0, min(grown, left))  # when patience ends, somebody tries for the last time
        self._rounds += 1

    def again_after(self, tries: int, retry_after: float | None) -> float:
        """Seconds until one order that was not sent is tried again, with full jitter."""
        own = self._chance() * min(_WAIT_MAX, _WAIT_INITIAL * 2.0 ** min(tries - 1, 60))
        return max(own, min(retry_after or 0.0, _LONGEST_PAUSE))


class Reserve:
    """Turns in hand: one for each order that is begun, at its moment or not at all.

    As many are asked for as are used in a moment: what one has and does not use, nobody has.

    Args:
        clock: Monotonic seconds.

    Attributes:
        rate: Orders a second of all together; infinity without a limit.
        missed: Orders that could have gone at once if there had been a turn, since some were asked for last.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.rate = math.inf
        self.is_limited = False  # an attribute: it is asked for with every order
        self.missed = 0
        self._turns: deque[float] = deque()  # monotonic seconds of those in hand, the next one first
        self._low = 0  # so few are left that it is time to ask for more
        self._used = 0  # since some were asked for last
        self._asked_at = clock()
        self._took = 0.0  # seconds that a reservation took of late
        self._not_before = 0.0  # when it is worth asking again

    def follow(self, rate: float | None) -> None:
        """This is the rate of all from now on; ``None`` without a limit."""
        rate = math.inf if rate is None else rate
        if rate != self.rate:
            self.rate, self.is_limited = rate, math.isfinite(rate)
            self._not_before = 0.0
            if not self.is_limited:
                self._turns.clear()

    @property
    def runs_low(self) -> bool:
        """Whether it is time to ask for more, if orders go on as they did."""
        return len(self._turns) <= self._low

    def is_due(self) -> bool:
        """Whether a turn in hand is good now."""
        now = self._clock()
        self._forget(now)
        return bool(self._turns) and self._turns[0] <= now

    def take(self) -> None:
        """An order is begun in the turn that is due."""
        self._turns.popleft()
        self._used += 1

    def count_due(self) -> int:
        """How many turns are good now."""
        now = self._clock()
        self._forget(now)
        return sum(1 for _ in takewhile(lambda at: at <= now, self._turns))

    def wanted(self, waiting: int) -> int:
        """How many to ask for now, if any.

        Args:
            waiting: Orders that wait for a turn and for nothing else.
        """
        now = self._clock()
        if now < self._not_before:
            return 0
        self._forget(now)
        speed = self._used / max(now - self._asked_at, _SHORTEST)
        expected = int(speed * min(_SPELL + self._took, _MOST))
        at_once = min(max(waiting, self.missed), math.ceil(self.rate * _SPELL))
        return max(0, expected + at_once - len(self._turns))

    def add(self, turns: RateSlots, asked_at: float) -> None:
        """Turns were reserved, or none yet.

        Args:
            asked_at: Monotonic seconds.
        """
        now = self._clock()
        self.follow(turns.pace.rate)
        self._took = max(now - asked_at, self._took * 0.9)
        self._used = self.missed = 0
        self._asked_at = now
        if not self.is_limited:
            return
        if turns.count:
            first = now + turns.starts_in
            self._turns.extend(first + place * turns.interval for place in range(turns.count))
            self._low = len(self._turns) // 2
        else:
            self._not_before = now + min(turns.again_in, _AGAIN)

    def next_in(self) -> float | None:
        """Seconds until the next turn in hand, or until it is worth asking for some; ``None`` where it is now."""
        now = self._clock()
        self._forget(now)
        times = list(islice(self._turns, 1))
        if self._not_before > now:
            times.append(self._not_before)
        return max(0.0, min(times) - now) if times else None

    def _forget(self, now: float) -> None:
        """Let turns go whose moment is over."""
        while self._turns and self._turns[0] < now - MOMENT:
            self._turns.popleft()


class SleepWatch:
    """Notices that the machine stood still, as it does asleep, or when a snapshot of it is put back.

    Then what it has in memory may have been sent by it before, and nothing here tells.

    Args:
        outbox, batch_id: Whose orders, for the log.
        now: Unix seconds.
        clock: Seconds that only grow.

    Attributes:
        sleeps: How many it had noticed when it was last asked.
        slept_since: Unix seconds when it was last seen awake before a sleep after which no list was read yet.
    """

    def __init__(
        self,
        *,
        outbox: str | None = None,
        batch_id: str | None = None,
        now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._outbox = outbox
        self._batch_id = batch_id
        self._now = now
        self._waking = waking_clock(clock)
        self._seen = now()
        self._ahead = self._seen - self._waking()
        self.sleeps = 0
        self.slept_since = float("inf")

    def count(self) -> int:
        """How often it stood still until now."""
        seen, self._seen = self._seen, self._now()
        before, self._ahead = self._ahead, self._seen - self._waking()
        if self._ahead - before > _JUMP:
            self.sleeps, self.slept_since = self.sleeps + 1, min(self.slept_since, seen)
            facts = {"outbox": self._outbox, "batch_id": self._batch_id}
            whose = f"batch {self._batch_id}" if self._outbox is None else f"outbox {self._outbox}"
            _log.warning("clock jumped: %s checks the service before it sends", whose, extra=facts)
        return self.sleeps
