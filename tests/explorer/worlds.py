"""A small world: processes that work one journal, a service, persons, time, and every step that each may take next.

Whatever a process knows by itself is in the state; what it does is a call of the journal's own engine. The workers are
written here as the crew does it; who reads lists is the package's own ``reconcile`` (see ``lists``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import attrs
from explorer import lists
from explorer.journals import TABLES, Image, MemoryJournal, at_once
from explorer.lists import Lister
from journal.factories import BATCH, IDENTITY, delivery, event, order, transaction_id

from payments_async._wire.models import Transaction, TransactionStatus
from payments_async.journal import JournalError, LeaseLost, Signal, State
from payments_async.journal._inbox import Arrival, Doubt
from payments_async.journal._records import Remains, digest_of_owner
from payments_async.journal._statements._entries import CHUNK, chunk_of, run_of
from payments_async.journal.contract import Chunk, ClaimedOrder, Evidence, Outcome, Permit

LEASE = 30.0
NOON = 1_000_000 * 86_400.0 / 86_400.0 + 43_200.0
TICK = 0.01  # seconds that a step takes
_AMOUNT = "1000.50"
_PLACE = {table: place for place, table in enumerate(TABLES)}
PERSON, WHY = "Ann Example", "it never arrived"


def doubted_id(number: int) -> str:
    """The transaction of an order that is told of by a sender that nobody has confirmed."""
    return transaction_id(800 + number)


@attrs.frozen(kw_only=True)
class Plan:
    """What there is in a world, and what may happen in it.

    Attributes:
        workers, orders: How many.
        mates: The workers are tasks of one process: a lease of one is in the name of all.
        puts: Orders are put while the world is explored; else they are there at first.
        direct: A worker puts orders by itself, each permitted in the same commit.
        rejects, fails: The service may refuse an order, or have a transaction fail.
        unread: How often it may turn an order away unread, or cannot be reached.
        late: Lists that do not show a transaction yet.
        losses: Answers that may be lost, or requests.
        kills, power_cuts: Processes that may die, by themselves or all at once.
        stalls: A worker may stand still while it holds a permit, until its lease has run out, or much longer.
        lists: The list is read and orders are looked up.
        refused_lists: A list may fail.
        notifies: The service tells of each transaction.
        forged: What a stranger tells of each order: successful, failed, or the transaction of another order; doubted
            is a failure whose sender nobody has confirmed, and doubted again the same once more.
        write_offs, lifts, named_lifts, cancels: Decisions of persons.
        restores: The database may be put back to what it was at any moment before; once.
        survives: The processes go on then, as after a failover to a standby that lags.
        renews: Leases are prolonged.
        fine: What a list says is written down in several steps, not in one.
    """

    name: str
    workers: int = 1
    mates: bool = False
    orders: int = 1
    puts: bool = False
    direct: bool = False
    rejects: bool = False
    fails: bool = False
    unread: int = 0
    late: int = 0
    losses: int = 0
    kills: int = 0
    power_cuts: int = 0
    stalls: bool = True
    lists: bool = False
    refused_lists: int = 0
    notifies: bool = False
    forged: tuple[str, ...] = ()
    write_offs: int = 0
    cancels: int = 0
    lifts: int = 0
    named_lifts: int = 0
    restores: int = 0
    survives: bool = False
    renews: bool = False
    fine: bool = False


class Worker(NamedTuple):
    """A worker between two steps; its process has no other, or a mate.

    Attributes:
        name: Its process, which owns the leases; another one in each life.
        task: Tells it from its mate.
        at: What it does next.
        todo: Orders of its chunk that it has in hand.
        claimed, permit, outcome: The order that it sends.
        good_until: Until when its lease is good, as it knows.
        marks: Its departure record: by lease, which orders have left.
    """

    name: str
    task: str = ""
    life: int = 0
    at: str = "idle"
    chunk: Chunk | None = None
    todo: tuple[ClaimedOrder, ...] = ()
    claimed: ClaimedOrder | None = None
    permit: Permit | None = None
    outcome: Outcome | None = None
    good_until: float = 0.0
    marks: tuple[tuple[tuple[int, int, int], tuple[tuple[int, int], ...]], ...] = ()

    @property
    def owner(self) -> str:
        return f"{self.name}{self.life}"

    @property
    def who(self) -> str:
        return f"{self.owner}{self.task}"


class Flight(NamedTuple):
    """A request that has left, or its answer.

    Attributes:
        token: Of its permit.
        owner: Which worker waits for the answer; empty where that is over.
        answer: What the service made of it; ``None`` while it is on its way.
    """

    order: int
    attempt: int
    token: int
    owner: str
    answer: Signal | None = None
    transaction: int = 0


class Paid(NamedTuple):
    """A transaction of the service.

    Attributes:
        unlisted: Lists that do not show it yet.
        told: It was notified.
    """

    order: int
    number: int
    fails: bool
    unlisted: int
    told: bool


class World(NamedTuple):
    """One state. Whatever is not in it is lost."""

    image: Image
    now: float
    workers: tuple[Worker, ...]
    flights: tuple[Flight, ...] = ()
    ledger: tuple[Paid, ...] = ()
    lister: Lister | None = None
    looked: tuple[int, float] | None = None  # the parked order that a person has seen, and how it stood
    told: frozenset[tuple[int, str]] = frozenset()  # transactions that the journal was told of
    forged: frozenset[tuple[str, int]] = frozenset()
    words: tuple[int, ...] = ()  # how often persons said of each order that it never arrived
    dead: tuple[str, ...] = ()
    left: tuple[Remains, ...] = ()
    spent: tuple[tuple[str, int], ...] = ()  # how often each rare thing has happened
    backup: Image | None = None

    def table(self, name: str) -> tuple[tuple[Any, ...], ...]:
        return self.image[_PLACE[name]]


class Step(NamedTuple):
    """What may happen next.

    Attributes:
        words: What it is, plainly.
        is_fault: It need not ever happen.
        order: The order it is about, by number; 0 for none or all.
    """

    words: str
    do: Callable[[], World | None]
    is_fault: bool = False


class Impossible(Exception):
    """The step changes nothing."""


class Explored:
    """All steps of a world, on one journal in memory."""

    def __init__(self, plan: Plan) -> None:
        if plan.mates and (plan.kills or plan.restores):
            raise ValueError("a process dies with all its workers: mates are not killed one by one")
        self.plan = plan
        self.journal = MemoryJournal()
        self.numbers = range(1, plan.orders + 1)
        self.orders = {number: order(number, _AMOUNT) for number in range(plan.orders + 1)}
        self.ids = {one.request_id: number for number, one in self.orders.items()}
        columns = {}
        for table in TABLES:
            names = [name for name, *_ in self.journal.connection.execute(f"SELECT * FROM {table}").description]
            columns[table] = {name: place for place, name in enumerate(names)}
        self.columns = columns

    # the beginning

    def first(self) -> World:
        """An outbox with one order that was paid long ago, which every list shows."""
        journal, moment = self.journal, self.journal.moment
        moment.now, moment.holder = NOON, "opener"
        at_once(journal.open_outbox(BATCH, IDENTITY))
        at_once(journal.put(BATCH, self.orders[0]))
        chunk = at_once(journal.claim_chunk(BATCH, "opener", lease=LEASE))
        assert chunk is not None
        permit = at_once(journal.permit(chunk, chunk.orders[0]))
        assert isinstance(permit, Permit)
        known = transaction_id(1)
        at_once(journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=known)))
        evidence = Evidence(
            signal=Signal.LOOKED_UP_SUCCESSFUL, source="list", request_id=self.orders[0].request_id,
            transaction_id=known, amount=self.orders[0].amount, currency="UGX",
        )  # fmt: skip
        at_once(journal.apply_evidence(evidence))
        at_once(journal.release_chunk(chunk))
        moment.now += 3600.0
        if not (self.plan.puts or self.plan.direct):
            for number in self.numbers:
                at_once(journal.put(BATCH, self.orders[number]))
        moment.leases.clear()
        return World(
            image=journal.image(),
            now=moment.now + TICK,
            workers=tuple(Worker("a", task) if self.plan.mates else Worker(task) for task in "ab"[: self.plan.workers]),
            words=(0,) * (self.plan.orders + 1),
        )

    # reading a state

    def rows(self, world: World) -> dict[int, dict[str, Any]]:
        """The orders that the journal holds, by their numbers."""
        columns = self.columns["outbox"]
        found = {}
        for row in world.table("outbox"):
            number = self.ids[row[columns["request_id"]]]
            found[number] = {name: row[place] for name, place in columns.items()}
        return found

    def column(self, table: str, row: tuple[Any, ...], name: str) -> Any:
        return row[self.columns[table][name]]

    def spent(self, world: World, what: str) -> int:
        return dict(world.spent).get(what, 0)

    def may(self, world: World, what: str, most: int) -> bool:
        return self.spent(world, what) < most

    def spend(self, world: World, *whats: str) -> World:
        spent = dict(world.spent)
        for what in whats:
            spent[what] = spent.get(what, 0) + 1
        return world._replace(spent=tuple(sorted(spent.items())))

    # taking a step

    def take(self, world: World, step: Step) -> World | None:
        """The world after a step; ``None`` where it changes nothing."""
        journal, moment = self.journal, self.journal.moment
        journal.restore(world.image)
        moment.now, moment.holder, moment.is_told = world.now, "", False
        moment.dead, moment.left = world.dead, world.left
        moment.leases.clear()
        try:
            after = step.do()
        except Impossible:
            after = None
        if after is None:
            journal.touched()
            return None
        if moment.is_told:
            after = after._replace(dead=after.dead[len(world.dead) :], left=after.left[len(world.left) :])
        return after._replace(image=journal.image(), now=after.now + TICK)

    def steps(self, world: World) -> Iterator[Step]:
        """All that may happen next."""
        for place, worker in enumerate(world.workers):
            yield from self._of_worker(world, place, worker)
        yield from self._of_flights(world)
        yield from self._of_service(world)
        if self.plan.lists:
            yield from self._of_lister(world)
        yield from self._of_persons(world)
        yield from self._of_time(world)
        if self.plan.puts:
            held = self.rows(world)
            for number in self.numbers:
                if number not in held:
                    yield Step(f"the application puts order {number}", partial(self._put, world, number))
        if self.plan.restores:
            yield from self._of_restores(world)

    def _put(self, world: World, number: int) -> World:
        self.journal.moment.holder = "application"
        at_once(self.journal.put(BATCH, self.orders[number]))
        return world

    # workers

    def _with(self, world: World, place: int, worker: Worker) -> World:
        leases = self.journal.moment.leases
        for run, number, token, _ in leases:
            worker = worker._replace(marks=(*worker.marks, ((run, number, token), ())))
        leases.clear()
        return world._replace(workers=(*world.workers[:place], worker, *world.workers[place + 1 :]))

    def _of_worker(self, world: World, place: int, worker: Worker) -> Iterator[Step]:
        who = f"worker {worker.who}"

        def step(words: str, do: Callable[..., World | None], *arguments: Any, is_fault: bool = False) -> Step:
            def done() -> World | None:
                self.journal.moment.holder = f"{worker.owner}@"
                return do(world, place, worker, *arguments)

            return Step(f"{who} {words}", done, is_fault)

        match worker.at:
            case "dead":
                yield step("starts anew", self._start)
                return
            case "idle":
                yield step("claims a chunk", self._claim)
                if self.plan.direct:
                    held = self.rows(world)
                    for number in self.numbers:
                        if number not in held:
                            yield step(f"puts order {number}, with a permit", self._put_directly, number)
            case "holding":
                for claimed in worker.todo:
                    yield step(f"asks for a permit for order {self._number(claimed)}", self._permit, claimed, None)
                if not worker.todo:
                    yield step("gives its chunk back", self._release)
                if self.plan.direct:
                    held = self.rows(world)
                    for number in self.numbers:
                        if number not in held:
                            yield step(f"puts order {number}, with a permit", self._put_directly, number)
                if self.plan.renews and self._is_prolonged_by_renewal(world, worker):
                    yield step("prolongs its lease", self._renew)
            case "permitted":
                if world.now < worker.good_until:
                    yield step("marks the departure of its order", self._mark)
                else:
                    yield step("notices that its lease is over", self._end, Signal.NOT_SENT)
            case "going":
                yield step("lets its request leave", self._leave)
                if self.may(world, "unread", self.plan.unread):
                    yield step("cannot reach the service", self._cannot_reach, is_fault=True)
            case "waiting":
                yield from self._of_answers(world, worker, step)
            case "answered":
                assert worker.outcome is not None
                yield step(f"writes down that its attempt ended ({worker.outcome.signal})", self._record)
                for claimed in worker.todo:
                    if worker.claimed is None or claimed.id != worker.claimed.id:
                        outcome, number = worker.outcome.signal, self._number(claimed)
                        words = f"writes that down ({outcome}) with a permit for order {number}"
                        yield step(words, self._permit, claimed, worker.outcome)
        if self.may(world, "kill", self.plan.kills):
            yield step("is killed", self._kill, is_fault=True)

    def _number(self, claimed: ClaimedOrder) -> int:
        return self.ids[claimed.request_id]

    def _is_prolonged_by_renewal(self, world: World, worker: Worker) -> bool:
        return worker.good_until - world.now < LEASE / 2

    def _start(self, world: World, place: int, worker: Worker) -> World:
        return self._with(world, place, Worker(worker.name, worker.task, worker.life + 1))

    def _claim(self, world: World, place: int, worker: Worker) -> World:
        chunk = at_once(self.journal.claim_chunk(BATCH, worker.owner, lease=LEASE))
        if chunk is None:
            return self._with(world, place, worker)
        mine = worker._replace(at="holding", chunk=attrs.evolve(chunk, orders=()), todo=chunk.orders)
        return self._with(world, place, mine._replace(good_until=world.now + LEASE))

    def _put_directly(self, world: World, place: int, worker: Worker, number: int) -> World:
        placed = at_once(
            self.journal.put(
                BATCH, self.orders[number], owner=worker.owner, chunk=worker.chunk, lease=LEASE, permits=True
            )
        )
        if placed.chunk is None:
            return self._with(world, place, worker)
        if worker.chunk is None or worker.chunk.token != placed.chunk.token:
            todo = placed.chunk.orders
            good_until = world.now + LEASE
            worker = worker._replace(chunk=attrs.evolve(placed.chunk, orders=()), todo=todo, good_until=good_until)
        todo = tuple(one for one in worker.todo if one.id != (placed.claimed.id if placed.claimed else None))
        worker = worker._replace(at="holding", todo=todo)
        if placed.permit is not None:
            worker = worker._replace(at="permitted", claimed=placed.claimed, permit=placed.permit)
        elif placed.claimed is not None:
            worker = worker._replace(todo=(*worker.todo, placed.claimed))
        return self._with(world, place, worker)

    def _permit(self, world: World, place: int, worker: Worker, claimed: ClaimedOrder, after: Outcome | None) -> World:
        assert worker.chunk is not None
        granted = at_once(self.journal.permit(worker.chunk, claimed, after=after))
        world = self._recorded(world, after)
        todo = tuple(one for one in worker.todo if one.id != claimed.id)
        worker = worker._replace(todo=todo, outcome=None, claimed=None, permit=None)
        if isinstance(granted, Permit):
            mine = worker._replace(at="permitted", claimed=claimed, permit=granted)
        elif granted.lease_lost:
            mine = worker._replace(at="idle", chunk=None, todo=())
        else:
            mine = worker._replace(at="holding")
        return self._with(world, place, mine)

    def _release(self, world: World, place: int, worker: Worker) -> World:
        assert worker.chunk is not None
        at_once(self.journal.release_chunk(worker.chunk))
        return self._with(world, place, worker._replace(at="idle", chunk=None))

    def _renew(self, world: World, place: int, worker: Worker) -> World:
        assert worker.chunk is not None
        try:
            at_once(self.journal.renew_chunk(worker.chunk, lease=LEASE))
        except LeaseLost:
            return self._with(world, place, worker._replace(at="idle", chunk=None, todo=()))
        return self._with(world, place, worker._replace(good_until=world.now + LEASE))

    def _mark(self, world: World, place: int, worker: Worker) -> World:
        permit = worker.permit
        assert permit is not None
        lease = (run_of(permit.id), chunk_of(permit.id), permit.token)
        marks = tuple(
            (of, (*marks, (permit.id, permit.attempt)) if of == lease else marks) for of, marks in worker.marks
        )
        return self._with(world, place, worker._replace(at="going", marks=marks))

    def _leave(self, world: World, place: int, worker: Worker) -> World:
        assert worker.permit is not None
        flight = Flight(self.ids[worker.permit.request_id], worker.permit.attempt, worker.permit.token, worker.who)
        world = world._replace(flights=(*world.flights, flight))
        return self._with(world, place, worker._replace(at="waiting"))

    def _cannot_reach(self, world: World, place: int, worker: Worker) -> World:
        return self._end(self.spend(world, "unread"), place, worker, Signal.NOT_SENT)

    def _end(self, world: World, place: int, worker: Worker, signal: Signal, transaction: int = 0) -> World:
        assert worker.permit is not None
        named = transaction_id(transaction) if signal is Signal.ACCEPTED else None
        outcome = Outcome(permit=worker.permit, signal=signal, transaction_id=named)
        return self._with(world, place, worker._replace(at="answered", outcome=outcome))

    def _record(self, world: World, place: int, worker: Worker) -> World:
        assert worker.outcome is not None
        assert worker.claimed is not None
        finding = at_once(self.journal.record(worker.outcome))
        world = self._recorded(world, worker.outcome)
        todo = worker.todo
        if worker.outcome.signal is Signal.NOT_SENT and finding.state is State.PLANNED:
            todo = (*todo, worker.claimed)
        mine = worker._replace(at="holding", todo=todo, claimed=None, permit=None, outcome=None)
        return self._with(world, place, mine)

    def _recorded(self, world: World, outcome: Outcome | None) -> World:
        if outcome is None or outcome.transaction_id is None:
            return world
        told = (self.ids[outcome.permit.request_id], outcome.transaction_id)
        return world._replace(told=world.told | {told})

    def _kill(self, world: World, place: int, worker: Worker) -> World:
        return self.spend(self._dies(world, place, worker, leaves=True), "kill")

    def _dies(self, world: World, place: int, worker: Worker, *, leaves: bool) -> World:
        flights = tuple(one._replace(owner="") if one.owner == worker.who else one for one in world.flights)
        left = world.left
        if leaves:
            for (run, number, token), marks in worker.marks:
                marked = bytearray(CHUNK)
                for order_id, attempt in marks:
                    marked[order_id % CHUNK] = attempt
                left = (*left, Remains(run, number, token, digest_of_owner(worker.owner), bytes(marked)))
        world = world._replace(
            flights=tuple(one for one in flights if one.owner or one.answer is None),
            dead=(*world.dead, f"{worker.owner}@"),
            left=left,
        )
        return self._with(world, place, Worker(worker.name, worker.task, worker.life, at="dead"))

    # requests and answers

    def _of_flights(self, world: World) -> Iterator[Step]:
        for place, flight in enumerate(world.flights):
            if flight.answer is not None:
                continue
            words = f"order {flight.order} (attempt {flight.attempt})"
            yield Step(f"the service carries out {words}", partial(self._carry_out, world, place, fails=False))
            if self.plan.fails:
                yield Step(
                    f"the service takes {words}, which fails", partial(self._carry_out, world, place, fails=True)
                )
            if self.plan.rejects:
                yield Step(f"the service refuses {words}", partial(self._answer, world, place, Signal.REJECTED))
            if self.may(world, "unread", self.plan.unread):
                yield Step(
                    f"the service turns {words} away unread",
                    partial(self._answer, self.spend(world, "unread"), place, Signal.NOT_SENT),
                    is_fault=True,
                )
            if self.may(world, "loss", self.plan.losses):
                lost = self.spend(world, "loss")
                yield Step(
                    f"the request for {words} is lost",
                    partial(self._answer, lost, place, Signal.UNKNOWN),
                    is_fault=True,
                )

    def _carry_out(self, world: World, place: int, *, fails: bool) -> World:
        flight = world.flights[place]
        number = flight.order * 10 + sum(paid.order == flight.order for paid in world.ledger) + 10
        paid = Paid(flight.order, number, fails, self.plan.late, told=False)
        world = world._replace(ledger=(*world.ledger, paid))
        return self._answer(world, place, Signal.ACCEPTED, number)

    def _answer(self, world: World, place: int, signal: Signal, transaction: int = 0) -> World:
        flights = list(world.flights)
        flights[place] = flights[place]._replace(answer=signal, transaction=transaction)
        return world._replace(flights=tuple(one for one in flights if one.owner or one.answer is None))

    def _of_answers(self, world: World, worker: Worker, step: Callable[..., Step]) -> Iterator[Step]:
        for place, flight in enumerate(world.flights):
            if flight.owner != worker.who:
                continue
            if flight.answer is not None:
                yield step(f"is told what became of its request ({flight.answer})", self._hear, place)
            if flight.answer is not Signal.UNKNOWN and self.may(world, "loss", self.plan.losses):
                yield step("gets no answer", self._hear_nothing, place, is_fault=True)

    def _hear(self, world: World, place: int, worker: Worker, at: int) -> World:
        flight = world.flights[at]
        assert flight.answer is not None
        world = world._replace(flights=(*world.flights[:at], *world.flights[at + 1 :]))
        return self._end(world, place, worker, flight.answer, flight.transaction)

    def _hear_nothing(self, world: World, place: int, worker: Worker, at: int) -> World:
        flights = list(world.flights)
        flights[at] = flights[at]._replace(owner="")
        world = world._replace(flights=tuple(one for one in flights if one.owner or one.answer is None))
        return self._end(self.spend(world, "loss"), place, worker, Signal.UNKNOWN)

    # the service by itself

    def _of_service(self, world: World) -> Iterator[Step]:
        if self.plan.notifies:
            for place, paid in enumerate(world.ledger):
                if not paid.told:
                    what = "failed" if paid.fails else "successful"
                    yield Step(
                        f"the service notifies of transaction {paid.number} of order {paid.order}: {what}",
                        partial(self._notify, world, place),
                    )
        for number in self.numbers:
            for kind in self.plan.forged:
                is_told = {(kind, number), (f"late {kind}", number)} & world.forged
                if not is_told and self._may_be_forged(world, kind, number):
                    yield Step(
                        f"a notification about order {number} that is not true: {kind}",
                        partial(self._forge, world, kind, number),
                        is_fault=True,
                    )

    def _receive(self, number: int, *, fails: bool, transaction: str, doubt: Doubt | None = None) -> None:
        code = 2 if fails else 0
        told = event(code, number, amount=_AMOUNT, transaction=transaction)
        body = f"{code} {number} {transaction}".encode()
        self.journal.moment.holder = "receiver"
        at = self.journal.moment.now
        arrival = Arrival(delivery=delivery(body, at=at), event=told, lease=0.0, doubt=doubt)
        (receipt,) = at_once(self.journal.receive_all((arrival,), owner="receiver"))
        assert not isinstance(receipt, Exception), receipt

    def _notify(self, world: World, place: int) -> World:
        paid = world.ledger[place]
        self._receive(paid.order, fails=paid.fails, transaction=transaction_id(paid.number))
        ledger = (*world.ledger[:place], paid._replace(told=True), *world.ledger[place + 1 :])
        return world._replace(ledger=ledger, told=world.told | {(paid.order, transaction_id(paid.number))})

    def _may_be_forged(self, world: World, kind: str, number: int) -> bool:
        if kind == "doubted again":
            return ("doubted", number) in world.forged
        return kind != "crossed" or self._others(world, number) != []

    def _others(self, world: World, number: int) -> list[int]:
        """The transactions that the journal knows to be of other orders."""
        known = {bytes(row["transaction_id"] or b"").hex() for row in self.rows(world).values()}
        return [
            paid.number
            for paid in world.ledger
            if paid.order != number and transaction_id(paid.number).replace("-", "") in known
        ]

    def _forge(self, world: World, kind: str, number: int) -> World:
        transaction = transaction_id(900 + number)
        if kind == "crossed":
            transaction = transaction_id(self._others(world, number)[0])
        if kind.startswith("doubted"):
            self._receive(number, fails=True, transaction=doubted_id(number), doubt=Doubt.UNCONFIRMED)
            return world._replace(forged=world.forged | {(kind, number)})
        row = self.rows(world).get(number)
        is_known = row is not None and row["state"] in ("accepted", "successful", "failed", "reversed")
        self._receive(number, fails=kind == "failed", transaction=transaction)
        # once the service has confirmed an order, a notification of another transaction is a contradiction
        return world._replace(forged=world.forged | {(f"late {kind}" if is_known else kind, number)})

    # lists

    def _of_lister(self, world: World) -> Iterator[Step]:
        lister = world.lister
        if lister is None:
            if self._is_open(world):
                yield Step("a search for orders begins", partial(self._list, world, Lister(), refuses=False))
            return
        if lister.step == "sleep":
            if world.now >= lister.waits_until:
                yield Step("who looks orders up goes on", partial(self._list, world, lister, refuses=False))
            return
        words = {
            "page": "the service shows its list",
            "apply_evidence": "what the list shows is written down",
            "end_list_scan": "the end of the list is written down",
            "park": "an order is parked that no list has shown",
        }
        yield Step(words[lister.step or ""], partial(self._list, world, lister, refuses=False))
        if lister.step == "page" and self.may(world, "refused list", self.plan.refused_lists):
            refused = self.spend(world, "refused list")
            yield Step("the list cannot be read", partial(self._list, refused, lister, refuses=True), is_fault=True)
        if self.may(world, "kill", self.plan.kills):
            gone = partial(self._stop_listing, self.spend(world, "kill"))
            yield Step("who looks orders up is killed", gone, is_fault=True)

    def _stop_listing(self, world: World) -> World:
        return world._replace(lister=None)

    def _is_open(self, world: World) -> bool:
        """Whether anything is there to be looked up."""
        state = self.columns["outbox"]["state"]
        if any(row[state] in ("unknown", "parked", "accepted") for row in world.table("outbox")):
            return True
        if any(number and row["state"] == State.FAILED for number, row in self.rows(world).items()) and world.forged:
            return True
        return any(self.column("run", row, "quarantined_at") is not None for row in world.table("run"))

    def _list(self, world: World, lister: Lister, *, refuses: bool) -> World:
        shown: list[Transaction] = []
        ledger = world.ledger

        def page() -> list[Transaction] | None:
            nonlocal ledger
            ledger = tuple(paid._replace(unlisted=max(0, paid.unlisted - 1)) for paid in world.ledger)
            if refuses:
                return None
            shown.append(self._row(0, 1, fails=False))
            shown.extend(self._row(one.order, one.number, fails=one.fails) for one in world.ledger if not one.unlisted)
            return shown

        self.journal.moment.holder = "lister"
        after = lists.step(lister, self.journal, page, steps=lists.FINE_STEPS if self.plan.fine else lists.STEPS)
        return world._replace(ledger=ledger, lister=None if after.step is None else after)

    def _row(self, number: int, transaction: int, *, fails: bool) -> Transaction:
        return Transaction(
            transaction_id=transaction_id(transaction),
            request_id=self.orders[number].request_id,
            amount=-Decimal(_AMOUNT),
            currency="UGX",
            status=TransactionStatus.FAILED if fails else TransactionStatus.SUCCESSFUL,
        )

    # persons

    def _of_persons(self, world: World) -> Iterator[Step]:
        rows = self.rows(world)
        if world.looked is not None:
            number, _ = world.looked
            yield Step(
                f"a person says that order {number} never arrived", partial(self._send_again, world), is_fault=True
            )
        elif self.may(world, "write-off", self.plan.write_offs):
            for number, row in rows.items():
                if row["state"] == State.PARKED:
                    looked = world._replace(looked=(number, row["updated_at"]))
                    yield Step(
                        f"a person looks at order {number}, which is parked", partial(self._same, looked), is_fault=True
                    )
        if self.may(world, "cancel", self.plan.cancels):
            for number, row in rows.items():
                if row["state"] == State.PLANNED:
                    yield Step(f"a person cancels order {number}", partial(self._cancel, world, number), is_fault=True)
        quarantined = any(self.column("chunk", row, "state") == "quarantined" for row in world.table("chunk"))
        doubted = quarantined or any(self.column("run", row, "quarantined_at") for row in world.table("run"))
        if doubted and self.may(world, "lift", self.plan.lifts):
            yield Step("a person lifts the quarantine", partial(self._lift, world, None), is_fault=True)
        if doubted and self.may(world, "named lift", self.plan.named_lifts):
            planned = [row["request_id"] for row in rows.values() if row["state"] == State.PLANNED]
            if planned:
                yield Step(
                    f"a person lifts the quarantine and names {', '.join(planned)}",
                    partial(self._lift, world, planned),
                    is_fault=True,
                )

    def _same(self, world: World) -> World:
        return world

    def _says(self, world: World, numbers: list[int]) -> World:
        words = tuple(count + (number in numbers) for number, count in enumerate(world.words))
        return world._replace(words=words)

    def _send_again(self, world: World) -> World:
        assert world.looked is not None
        number, seen = world.looked
        request_id = self.orders[number].request_id
        try:
            at_once(self.journal.send_again_all((request_id,), who=PERSON, why=WHY, seen={request_id: seen}))
        except JournalError:
            return world._replace(looked=None)
        return self.spend(self._says(world, [number])._replace(looked=None), "write-off")

    def _cancel(self, world: World, number: int) -> World:
        try:
            at_once(self.journal.cancel(self.orders[number].request_id, who=PERSON, why=WHY))
        except JournalError as error:
            raise Impossible from error
        return self.spend(world, "cancel")

    def _lift(self, world: World, named: list[str] | None) -> World:
        try:
            at_once(self.journal.lift_quarantine(BATCH, who=PERSON, why=WHY, request_ids=named))
        except JournalError as error:
            raise Impossible from error
        if named is None:
            return self.spend(world, "lift")
        return self.spend(self._says(world, [self.ids[one] for one in named]), "named lift")

    # time

    def _of_time(self, world: World) -> Iterator[Step]:
        now = world.now
        is_held = any(
            self.column("chunk", row, "lease_until") > now and self.column("chunk", row, "state") == "open"
            for row in world.table("chunk")
        )
        stalled = any(worker.at in ("permitted", "going") for worker in world.workers)
        if is_held and (self.plan.stalls or not stalled):
            yield Step("31 seconds pass", partial(self._pass, world, 31.0))
        waits = world.lister.waits_until if world.lister is not None and world.lister.step == "sleep" else 0.0
        if waits > now:
            yield Step("61 seconds pass", partial(self._pass, world, 61.0))
        if self.plan.lists and not stalled and not world.flights and self._is_grace_awaited(world):
            yield Step("the period of grace passes", partial(self._pass, world, 901.0))

    def _is_grace_awaited(self, world: World) -> bool:
        recent = world.now - 900.0
        rows = self.rows(world).values()
        if any(row["state"] == State.UNKNOWN and row["permitted_at"] > recent for row in rows):
            return True
        return any((self.column("run", row, "quarantined_at") or 0.0) > recent for row in world.table("run"))

    def _pass(self, world: World, seconds: float) -> World:
        return world._replace(now=world.now + seconds)

    # copies

    def _of_restores(self, world: World) -> Iterator[Step]:
        if world.backup is None and not self.spent(world, "restore"):
            yield Step("a copy of the journal is made", partial(self._copy, world), is_fault=True)
        elif world.backup is not None and world.backup is not world.image:
            yield Step("the copy is put back", partial(self._restore, world), is_fault=True)

    def _copy(self, world: World) -> World:
        return world._replace(backup=world.image)

    def _restore(self, world: World) -> World:
        assert world.backup is not None
        for place, worker in enumerate(world.workers):
            if worker.at != "dead" and not self.plan.survives:
                world = self._dies(world, place, worker, leaves=True)
        self.journal.restore(world.backup)
        self.journal.quarantine()
        world = world._replace(backup=None, lister=None, looked=None, told=frozenset())
        return self.spend(world, "restore")
