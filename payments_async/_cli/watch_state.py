"""What a page shows of a journal: its batches, one of them over time, what needs a person, its dead letters."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress

import attrs

from payments_async._cli.batch_state import DIGITS, currency_of, first, order_currency, reasons
from payments_async._cli.finding import found_by
from payments_async._cli.next_steps import may_be_paid_again, meaning_of
from payments_async._cli.screen import Screen
from payments_async._cli.story import open_contradictions, sentence, service_words
from payments_async._pages.rendering import Course, Plot, plot
from payments_async.journal import FINAL, UNPAID, UNSETTLED, Entry, Journal, JournalError, Progress, Run, State
from payments_async.journal.contract import OrderEvent, StoredEvent
from payments_async.outbox import OutboxHealth

TEN = 10  # orders shown at a time
NEEDS = {
    "parked": "Not found: did it ever reach the service?",
    "conflict": "Evidence against evidence",
    "unknown": "Outcome unknown: reconcile looks for it",
}
_RUNS = 20  # batches on the page, the latest ones
_PATIENCE = 5.0  # seconds for which the journal may keep a page waiting
_FRESH = 1.0  # seconds for which what was read is shown to others who ask
_SPARING = 20  # a batch is walked through again after so many times the time that took


@attrs.frozen(kw_only=True)
class WatchedRun:
    """One batch on the page.

    Attributes:
        shares: State and number of its orders, of those states that there are.
        unpaid: How many were refused, failed or came back.
    """

    run: Run
    progress: Progress
    shares: Sequence[tuple[str, int]]
    unpaid: int


@attrs.frozen(kw_only=True)
class ShownOrder:
    """One order on the page, its beneficiary as the screen may show it."""

    request_id: str
    batch_id: str
    state: State
    amount: object
    currency: str | None
    beneficiary: str
    why: str


@attrs.frozen(kw_only=True)
class ShownOrders:
    """Orders that are shown for one reason, ten at a time.

    Attributes:
        key: Of the reason, in an address.
        count: How many there are.
        page: Which ten these are, from 1.
    """

    title: str
    orders: Sequence[ShownOrder]
    count: int
    key: str = ""
    page: int = 1

    @property
    def pages(self) -> int:
        """So many tens there are."""
        return -(-self.count // TEN)


@attrs.frozen(kw_only=True)
class Look:
    """Everything that one page shows.

    Attributes:
        chosen: The batch that is drawn; ``None`` without any.
        currency: Of that batch.
        more: Batches that are not shown.
        needs: Orders that need a person, by the reason, the first ten of each.
        needing: How many there are of them.
        unpaid: Orders of the batch that is drawn which were not paid, by the reason, the first ten of each.
        dead: Dead letters, the first ones.
        untold: Changes whose handlers failed too often, the first ones.
        outboxes: How each outbox does.
        quarantined: All batches that wait for a person since the journal was copied or restored.
        trouble: Why all of this is older than it looks, in words.
    """

    at: float
    runs: Sequence[WatchedRun] = ()
    more: int = 0
    chosen: WatchedRun | None = None
    currency: str | None = None
    plot: Plot | None = None
    needs: Sequence[ShownOrders] = ()
    needing: int = 0
    unpaid: Sequence[ShownOrders] = ()
    dead: Sequence[StoredEvent] = ()
    dead_count: int = 0
    untold: Sequence[OrderEvent] = ()
    untold_count: int = 0
    outboxes: Sequence[OutboxHealth] = ()
    quarantined: Sequence[Run] = ()
    trouble: str | None = None

    @property
    def is_fine(self) -> bool:
        """Whether nothing on the page waits for a person."""
        needs = self.trouble or self.needs or self.quarantined or self.dead or self.untold
        return not needs and not any(any(one.needs.values()) for one in self.outboxes)


@attrs.frozen(kw_only=True)
class OrderStory:
    """One order with all that happened to it.

    Attributes:
        seen: When it last changed, exactly, so that a decision is about what was seen.
        contradictions: What nobody has acknowledged.
        now, again: How it stands, and whether it may be paid once more, in words.
    """

    order: ShownOrder
    seen: float
    story: Sequence[tuple[float, str]]
    contradictions: Sequence[str]
    now: str
    again: str

    @property
    def is_parked(self) -> bool:
        """Whether a person may have it sent again."""
        return self.order.state is State.PARKED


@attrs.frozen(kw_only=True)
class Quarantine:
    """A batch that waits for a person since its journal was copied or restored.

    Attributes:
        seen: When that was found, so that a decision is about this quarantine and no later one.
        planned: Orders that are sent once it is lifted.
        awaits: What has to be seen before it may be lifted, in words; empty where it may be.
    """

    batch_id: str
    chunks: int
    seen: float
    planned: int
    awaits: str


@attrs.define
class _Walked:
    """A batch that was walked through: what came of it, when, and how long that took (seconds)."""

    progress: Progress
    plot: Plot | None
    at: float
    took: float


class Watch:
    """Reads a journal for a page, no oftener than it has to. Several who look at once cost what one does."""

    def __init__(self, journal: Journal, screen: Screen) -> None:
        self._journal = journal
        self._screen = screen
        self._known: dict[str | None, Look] = {}
        self._walked: dict[str, _Walked] = {}
        self._walk: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def look(self, batch_id: str | None) -> Look:
        """What there is now; where the journal cannot be read at the moment, what there was, and why."""
        async with self._turn:
            known = self._known.get(batch_id)
            if known is not None and known.trouble is None and time.time() - known.at < _FRESH:
                return known
            try:
                async with asyncio.timeout(_PATIENCE):
                    found = await self._read(batch_id)
            except TimeoutError:
                found = _older(known, f"the journal is busy, and has not answered for {_PATIENCE:g} s")
            except JournalError as error:
                found = _older(known, str(error))
            self._known = {batch_id: found}
            return found

    async def order(self, request_id: str) -> OrderStory | None:
        """One order and its story; ``None`` where the journal holds no such order."""
        entry = await self._journal.entry(request_id)
        if entry is None:
            return None
        story = await self._journal.history(request_id)
        return OrderStory(
            order=await self._shown(entry, service_words(entry)),
            seen=entry.updated_at,
            story=[(one.at, sentence(one)) for one in story],
            contradictions=open_contradictions(story) or ([entry.conflict] if entry.conflict else []),
            now=meaning_of(entry),
            again=await may_be_paid_again(self._journal, entry, story),
        )

    async def quarantine(self, batch_id: str) -> Quarantine:
        """A batch in quarantine. Raises ``RunUnknown``."""
        run, progress = await self._journal.run(batch_id), await self._journal.progress(batch_id)
        return Quarantine(
            batch_id=batch_id,
            chunks=run.quarantined,
            seen=run.quarantined_at or 0.0,
            planned=progress.counts[State.PLANNED],
            awaits="" if run.awaits is None else run.awaits.words(),
        )

    async def aclose(self) -> None:
        """Leave what is being read."""
        if self._walk is not None:
            self._walk.cancel()
            with suppress(asyncio.CancelledError):
                await self._walk

    async def _read(self, batch_id: str | None) -> Look:
        journal = self._journal
        runs = await journal.runs()
        shown = [await self._run(run) for run in reversed(runs[-_RUNS:])]
        chosen = await self._chosen(runs, shown, batch_id)
        overall, backlog, changes = await journal.progress(), await journal.backlog(), await journal.change_backlog()
        outboxes = [run.batch_id for run in runs if run.is_outbox]
        return Look(
            at=time.time(),
            runs=shown,
            more=max(0, len(runs) - _RUNS),
            chosen=chosen,
            currency=None if chosen is None else await currency_of(journal, chosen.run.batch_id),
            plot=None if chosen is None else self._drawn(chosen),
            needs=await self._needs(overall),
            needing=sum(overall.counts[state] for state in UNSETTLED) + overall.conflicts,
            unpaid=[] if chosen is None or not chosen.unpaid else await self.not_paid(chosen.run.batch_id),
            dead=await first(journal.dead_letters()),
            dead_count=backlog.dead,
            untold=await first(journal.dead_changes()) if changes.dead else [],
            untold_count=changes.dead,
            outboxes=[await OutboxHealth.of(journal, name) for name in outboxes],
            quarantined=[run for run in runs if run.quarantined],
        )

    async def _chosen(
        self, runs: Sequence[Run], shown: Sequence[WatchedRun], batch_id: str | None
    ) -> WatchedRun | None:
        """The batch that was asked for, also an old one; else the latest."""
        asked = [run for run in runs if run.batch_id == batch_id]
        if not asked:
            return shown[0] if shown else None
        return next((one for one in shown if one.run.batch_id == batch_id), None) or await self._run(asked[0])

    async def _run(self, run: Run) -> WatchedRun:
        progress = await self._journal.progress(run.batch_id)
        return WatchedRun(
            run=run,
            progress=progress,
            shares=[(state.value, progress.counts[state]) for state in State if progress.counts[state]],
            unpaid=sum(progress.counts[state] for state in UNPAID),
        )

    async def needing(self, key: str, page: int = 1, overall: Progress | None = None) -> ShownOrders:
        """Ten of the orders that need a person for one reason. Raises ``KeyError``."""
        journal, title = self._journal, NEEDS[key]
        overall = overall or await journal.progress()
        is_conflict = key == "conflict"
        walk = journal.conflicts() if is_conflict else journal.entries(None, State(key))
        found = (await first(walk, page * TEN))[(page - 1) * TEN :]
        return ShownOrders(
            title=title,
            orders=[await self._shown(entry, entry.conflict or service_words(entry)) for entry in found],
            count=overall.conflicts if is_conflict else overall.counts[State(key)],
            key=key,
            page=page,
        )

    async def found(self, text: str, page: int = 1) -> ShownOrders:
        """Ten of the orders that are found by a person, the latest first."""
        found = await found_by(self._journal, text)
        some = found[(page - 1) * TEN : page * TEN]
        return ShownOrders(
            title=f"Orders found by: {text}",
            orders=[await self._shown(entry, service_words(entry)) for entry in some],
            count=len(found),
            page=page,
        )

    async def _needs(self, overall: Progress) -> list[ShownOrders]:
        """Parked and contradicted orders first: only a person can do anything about them."""
        found = [await self.needing(key, overall=overall) for key in NEEDS]
        return [one for one in found if one.orders]

    async def not_paid(self, batch_id: str, key: str = "", page: int = 1) -> list[ShownOrders]:
        """Ten of the orders of a batch that were not paid, for each reason, or for the one named."""
        progress = await self._journal.progress(batch_id)
        found = await reasons(self._journal, batch_id, "not paid", progress, keep=page * TEN)
        shown = [
            ShownOrders(
                title=one.words,
                orders=[await self._shown(entry, service_words(entry)) for entry in one.first[(page - 1) * TEN :]],
                count=one.orders,
                key=hashlib.sha256(f"{one.state} {DIGITS.sub('0', one.words)}".encode()).hexdigest()[:16],
                page=page,
            )
            for one in found
        ]
        return [one for one in shown if key in ("", one.key)]

    async def _shown(self, entry: Entry, why: str) -> ShownOrder:
        return ShownOrder(
            request_id=entry.request_id,
            batch_id=entry.batch_id,
            state=entry.state,
            amount=entry.amount,
            currency=await order_currency(self._journal, entry),
            beneficiary=self._screen.person(entry.order.beneficiary.name),
            why=why,
        )

    def _drawn(self, chosen: WatchedRun) -> Plot | None:
        """The batch over time, as it was walked through last; where that is out of date it is done again beside."""
        name, known = chosen.run.batch_id, self._walked.get(chosen.run.batch_id)
        is_due = known is None or (
            known.progress != chosen.progress and time.monotonic() - known.at > known.took * _SPARING
        )
        if is_due and (self._walk is None or self._walk.done()):
            if self._walk is not None and not self._walk.cancelled():
                self._walk.result()  # what broke it is told
            self._walk = asyncio.create_task(self._follow(name, chosen.progress))
        return None if known is None else known.plot

    async def _follow(self, name: str, progress: Progress) -> None:
        """Walk through a batch: when each of its orders was sent, and when it ended."""
        begun = time.monotonic()
        sent, ended, unpaid = Course(), Course(), Course()
        with suppress(JournalError):  # the page says so, and looks again
            async for entry in self._journal.entries(name):
                if entry.permitted_at is not None:
                    sent.add(entry.permitted_at)
                if entry.state in FINAL:
                    (unpaid if entry.state in UNPAID else ended).add(entry.updated_at)
            drawn = plot({"sent": sent, "paid": ended, "not paid": unpaid}, top=progress.total)
            self._walked[name] = _Walked(progress, drawn, time.monotonic(), time.monotonic() - begun)


def _older(known: Look | None, trouble: str) -> Look:
    """What was read before, with the reason why it is not newer."""
    return attrs.evolve(known or Look(at=time.time()), trouble=trouble)
