"""Small worlds of persons and files: who approves, what is loaded, by whose word an order is sent again.

Each step is a call of the journal's engine. What persons did is kept beside the journal, and judged by that alone.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, TypeAlias

import attrs
from explorer.journals import Image, MemoryJournal, at_once
from journal.factories import BATCH, IDENTITY, delivery, event, order, transaction_id

from payments_async.journal import (
    ApprovalRule,
    JournalError,
    ListingDeadline,
    NotApproved,
    Proposal,
    RunIdentity,
    Signal,
    Signature,
    State,
)
from payments_async.journal._inbox import Arrival, Doubt
from payments_async.journal._statements import _loading
from payments_async.journal._statements._entries import run_of
from payments_async.journal.contract import Evidence, Outcome, Permit

NOON = 1_000_000.0
DIGEST = "d" * 64
ANN = Signature(who="Ann Clerk", login="ann", machine="desk-1")
BEN = Signature(who="Ben Head", login="ben", machine="desk-2")
BEN_TOO = Signature(who="ben head.", login="guest", machine="desk-3")  # the same name, written otherwise
CY = Signature(who="Cy Deputy", login="ben", machine="desk-2")  # another name under Ben's login
DORA = Signature(who="Dora Audit", login="dora", machine="desk-4")
WITHIN = 3600.0
_PATIENCE = 1_000  # times 10,000 instructions of the database: no step takes as many

Facts: TypeAlias = Any
Step: TypeAlias = tuple[str, Callable[[], "Facts | None"]]


def are_one(one: Signature, other: Signature) -> bool:
    """Whether the same name or the same login signed twice."""
    names = ["".join(filter(str.isalnum, signature.who)).lower() for signature in (one, other)]
    return names[0] == names[1] or (one.login, one.machine) == (other.login, other.machine)


class RememberingJournal(MemoryJournal):
    """A journal whose machine remembers rules that the journal may have lost."""

    remembered: tuple[ApprovalRule, ...] = ()

    async def _remembered_rules(self, identity: RunIdentity | None = None) -> Sequence[ApprovalRule]:
        return self.remembered


class Desk(ABC):
    """What may be done next, and what must hold after it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.journal = RememberingJournal(whole=True)
        self.journal.moment.now = NOON

    @abstractmethod
    def first(self) -> Facts:
        """Prepare the journal; what is known of it."""

    @abstractmethod
    def steps(self, facts: Facts) -> Iterator[Step]:
        """All that may be done next. A step that is refused gives ``None``, and one that changes facts gives them."""

    @abstractmethod
    def wrong(self, before: Facts, after: Facts) -> Iterator[str]:
        """What must not have come of a step."""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Read the journal."""
        return self.journal.connection.execute(sql).fetchall()

    def states(self) -> dict[str, str]:
        """How each order stands."""
        return dict(self.rows("SELECT request_id, state FROM outbox"))


@attrs.frozen(kw_only=True)
class Report:
    """What came of a search.

    Attributes:
        done: Which steps were taken at least once; one that never is would prove nothing.
        wrong, history: What is wrong, and the steps that lead there.
    """

    name: str
    states: int
    seconds: float
    done: frozenset[str] = frozenset()
    wrong: str = ""
    history: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = f"{self.name}: {self.states} states, all of it, {self.seconds:.1f} s"
        if not self.wrong:
            return said
        return "\n".join([f"{said}: WRONG: {self.wrong}", *self.history])


def search(desk: Desk) -> Report:
    """See all states of a desk, unless one of them is wrong."""
    _loading._BLOCK = 1  # a load is several commits
    began, journal, done = time.perf_counter(), desk.journal, set[str]()
    facts = desk.first()
    first = journal.image(), facts
    known: dict[tuple[Image, Facts], tuple[tuple[Image, Facts] | None, str]] = {first: (None, "")}
    line = [first]

    def ended(wrong: str = "", last: str = "", place: tuple[Image, Facts] | None = None) -> Report:
        history = [last] if last else []
        while place is not None:
            place, words = known[place]
            history.insert(0, words)
        seconds = time.perf_counter() - began
        journal.connection.close()
        return Report(
            name=desk.name, states=len(known), seconds=seconds, done=frozenset(done), wrong=wrong,
            history=tuple(filter(None, history)),
        )  # fmt: skip

    patience = 0

    def ends() -> bool:
        """Asked now and then while statements run: a step that goes on and on is broken off."""
        nonlocal patience
        patience -= 1
        return patience < 0

    journal.connection.set_progress_handler(ends, 10_000)
    for world in line:
        image, facts = world
        for words, do in desk.steps(facts):
            patience = _PATIENCE
            journal.restore(image)
            journal.touched()
            journal.moment.now = facts.now
            after = do()
            if patience < 0:
                return ended("it never ends", words, world)
            if after is None:
                after = facts
            else:
                done.add(words)
            journal.connection.execute(
                "DELETE FROM lease"
            )  # no load is under way between two steps; else it counts them
            for wrong in desk.wrong(facts, after):
                return ended(wrong, words, world)
            reached = journal.image(), after
            if reached not in known:
                known[reached] = world, words
                line.append(reached)
    return ended()


# Approvals


@attrs.frozen(kw_only=True)
class Asked:
    """What persons did about one batch.

    Attributes:
        needed: What the rule asks for.
        remembered: As the machine knows it.
        made, given: Whose proposals and approvals stand.
        acted: Who did what, each once.
        begun, ready: The batch is begun, or loaded.
    """

    now: float = NOON
    needed: int = 0
    remembered: tuple[ApprovalRule, ...] = ()
    made: frozenset[Signature] = frozenset()
    given: frozenset[Signature] = frozenset()
    acted: frozenset[str] = frozenset()
    begun: bool = False
    ready: bool = False


class Approvals(Desk):
    """A batch that others must approve, and persons of whom some are one."""

    def __init__(
        self, name: str, *, needed: int, makers: Sequence[Signature], others: Sequence[Signature], changes: bool
    ) -> None:
        super().__init__(name)
        self._needed, self._makers, self._others, self._changes = needed, makers, others, changes

    def first(self) -> Asked:
        """A rule from the beginning, or none yet."""
        facts = Asked()
        return facts if self._changes else self._require(facts)

    def _require(self, facts: Asked) -> Asked:
        rule = ApprovalRule(needed=self._needed, why="four eyes", by=attrs.evolve(DORA, at=facts.now))
        at_once(self.journal.require_approvals(rule))
        return attrs.evolve(facts, needed=self._needed, remembered=(rule,))

    def steps(self, facts: Asked) -> Iterator[Step]:
        """Each person acts once of each kind."""
        for words, act in self._acts(facts):
            if words not in facts.acted:
                yield words, partial(self._done, facts, words, act)
        if not facts.ready:
            yield "the batch is loaded", partial(self._load, facts)

    def _done(self, facts: Asked, words: str, act: Callable[[Asked], Asked]) -> Asked | None:
        self.journal.remembered = facts.remembered if "the rule is lost" in facts.acted else ()
        try:
            return act(attrs.evolve(facts, acted=facts.acted | {words}))
        except JournalError:
            return None

    def _acts(self, facts: Asked) -> Iterator[tuple[str, Callable[[Asked], Asked]]]:
        for maker in self._makers:
            yield f"{maker.who} proposes", partial(self._propose, maker)
        for one in self._others:
            yield f"{one.who} approves", partial(self._approve, one)
        if not facts.begun:
            yield "the batch is begun", self._begin
        if self._changes:
            yield "the rule is set", self._require
            if facts.needed:
                yield "the rule is lost", self._lose
            yield f"{self._others[0].who} withdraws", partial(self._withdraw, self._others[0])
            yield f"{self._makers[0].who} takes the proposal back", partial(self._take_back, self._makers[0])

    def _propose(self, maker: Signature, facts: Asked) -> Asked:
        made = Proposal(
            digest=DIGEST, batch_id=BATCH, orders=1, amount=Decimal(1), currency=None, file="pay.csv", by=maker
        )
        at_once(self.journal.propose(made))
        return attrs.evolve(facts, made=facts.made | {maker})

    def _approve(self, one: Signature, facts: Asked) -> Asked:
        at_once(self.journal.approve(DIGEST, by=one, note=""))
        return attrs.evolve(facts, given=facts.given | {one})

    def _withdraw(self, one: Signature, facts: Asked) -> Asked:
        at_once(self.journal.withdraw_approval(DIGEST, by=one))
        return attrs.evolve(facts, given=facts.given - {one})

    def _take_back(self, maker: Signature, facts: Asked) -> Asked:
        at_once(self.journal.withdraw_proposal(DIGEST, by=maker))
        made = facts.made - {maker}
        return attrs.evolve(facts, made=made, given=facts.given if made else frozenset())

    def _lose(self, facts: Asked) -> Asked:
        """A copy from before the rule is put back, as far as the rule is concerned."""
        self.journal.connection.execute("DELETE FROM approval_rule")
        return facts

    def _begin(self, facts: Asked) -> Asked:
        at_once(self.journal.open_run(BATCH, IDENTITY, source_digest=DIGEST))
        self.journal.connection.execute("UPDATE run SET uid = ''")
        return attrs.evolve(facts, begun=True)

    def _load(self, facts: Asked) -> Asked | None:
        self.journal.remembered = facts.remembered if "the rule is lost" in facts.acted else ()
        try:
            at_once(self.journal.load(BATCH, [order(1)], owner="loader"))
        except JournalError:
            return None
        return attrs.evolve(facts, ready=True)

    def wrong(self, before: Asked, after: Asked) -> Iterator[str]:
        """What is begun or ready has as many approvals as the rule asks for, of different persons, none a maker."""
        goes = "begun" if after.begun and not before.begun else "ready" if after.ready and not before.ready else ""
        if not goes or not before.needed:
            return
        free = [one for one in before.given if not any(are_one(one, maker) for maker in before.made)]
        most = max(
            size
            for size in range(len(free) + 1)
            for some in itertools.combinations(free, size)
            if not any(are_one(*pair) for pair in itertools.combinations(some, 2))
        )
        if most < before.needed or not before.made:
            yield f"the batch is {goes}, and {most} of {before.needed} persons have approved it"


# Loading


@attrs.frozen(kw_only=True)
class Brought:
    """What was loaded, and told.

    Attributes:
        answered: By batch, the orders that a load was answered with: id and amount.
        told, archived: Orders that a notification told of; that left for an archive.
        kept: Those that the journal held as it was told of them. What came before stays a notification of its own.
        sent: The session has sent order 1 by itself, before a load was answered.
        acted: What happened, each once.
        held: The orders that the journal holds.
        outlived: Who loaded was answered after another one had taken over.
    """

    now: float = NOON
    answered: frozenset[tuple[str, frozenset[tuple[str, str]]]] = frozenset()
    told: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    archived: frozenset[str] = frozenset()
    sent: bool = False
    restored: bool = False
    acted: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    outlived: bool = False


class _Turn:
    """Lets another one go on."""

    def __await__(self) -> Iterator[None]:
        yield


class BrokeOff(Exception):
    """A load ends in the middle."""


class Loading(Desk):
    """Two batches, two orders, and files that do not agree."""

    ELSE: ClassVar = RunIdentity(base_address="https://service.example/", key_fingerprint="fedcba", user_id="8")

    def first(self) -> Brought:
        """Two batches that are begun; of each order a block."""
        for batch in ("p", "q"):
            at_once(self.journal.open_run(batch, IDENTITY))
        self.journal.connection.execute("UPDATE run SET uid = batch_id")
        self.orders = {"1": order(1), "1 of another amount": order(1, "7.00"), "2": order(2), "3": order(3)}
        return Brought()

    def steps(self, facts: Brought) -> Iterator[Step]:
        """Loads of either batch, and what comes between."""
        files = (("1",), ("2",), ("1", "2"), ("1 of another amount", "2"), ("1", "1 of another amount"))
        for batch, file in [*(("p", file) for file in files), ("q", ("1",))]:
            words = f"{batch} is loaded from a file of {' and '.join(file)}"
            yield words, partial(self._load, facts, batch, file)
        once: dict[str, Callable[[Brought], Brought | None]] = {
            "a load of 1 into p breaks off": self._break_off,
            "one who loads 1 and 2 into p stands still, and another loads 1 and 3 meanwhile": self._load_in_turns,
            "order 1 is notified as successful": self._notify,
            "the session sends order 1 by itself": lambda facts: attrs.evolve(facts, sent=not facts.answered),
            "the journal is put back": self._put_back,
            "order 1 leaves for an archive": self._archive,
            "a batch of another account is begun": self._open_elsewhere,
        }
        for words, act in once.items():
            if words not in facts.acted:
                acted = attrs.evolve(facts, acted=facts.acted | {words})
                yield words, partial(self._held, act, acted)

    def _held(self, act: Callable[[Brought], Brought | None], facts: Brought) -> Brought | None:
        try:
            after = act(facts)
        except JournalError:
            return None
        return after and attrs.evolve(after, held=frozenset(self.states()))

    def _load(self, facts: Brought, batch: str, file: Sequence[str]) -> Brought | None:
        async def sent(one: Any) -> Evidence | None:
            if not facts.sent or one.request_id != order(1).request_id:
                return None
            return Evidence(signal=Signal.ACCEPTED, source="session", request_id=one.request_id, amount=one.amount)

        try:
            at_once(self.journal.load(batch, self._each(file), owner="loader", sent=sent))
        except JournalError:
            return attrs.evolve(facts, held=frozenset(self.states()))
        brought = frozenset((self.orders[one].request_id, str(self.orders[one].amount)) for one in file)
        if facts.archived & {request_id for request_id, _ in brought}:
            brought |= {("an archived order", "0")}
        return attrs.evolve(facts, answered=facts.answered | {(batch, brought)}, held=frozenset(self.states()))

    def _each(self, file: Sequence[str], breaks_off: bool = False) -> Iterator[Any]:
        yield from (self.orders[one] for one in file)
        if breaks_off:
            raise BrokeOff

    def _break_off(self, facts: Brought) -> Brought | None:
        try:
            at_once(self.journal.load("p", self._each(("1",), breaks_off=True), owner="loader"))
        except BrokeOff:
            return facts
        return None

    def _load_in_turns(self, facts: Brought) -> Brought | None:
        """The lease of the first ends as it has read an order, and it goes on in the middle of the other load."""
        if facts.sent or self.rows("SELECT 1 FROM run WHERE batch_id = 'p' AND state = 'ready'"):
            return None
        files = {"one": ("1", "2"), "two": ("1", "3")}
        loads = {
            owner: self.journal.load("p", self._in_steps(file), owner=owner).__await__()
            for owner, file in files.items()
        }
        answered = set[str]()
        for turn in ("one", "time", "two", "one", "two", "two", "one"):
            if turn == "time":
                self.journal.moment.now += 60.0
                continue
            try:
                if turn in loads:
                    next(loads[turn])
            except StopIteration:
                answered.add(turn)
                del loads[turn]
            except JournalError:
                del loads[turn]
        brought = {
            ("p", frozenset((self.orders[one].request_id, str(self.orders[one].amount)) for one in files[owner]))
            for owner in answered
        }
        return attrs.evolve(facts, answered=facts.answered | brought, outlived=facts.outlived or "one" in answered)

    async def _in_steps(self, file: Sequence[str]) -> AsyncIterator[Any]:
        for one in file:
            yield self.orders[one]
            await _Turn()

    def _notify(self, facts: Brought) -> Brought:
        arrival = Arrival(delivery=delivery(b"1", at=facts.now), event=event(0, 1), lease=0.0, doubt=None)
        at_once(self.journal.receive_all((arrival,), owner="receiver"))
        told = {order(1).request_id}
        return attrs.evolve(facts, told=facts.told | told, kept=facts.kept | (told & facts.held))

    def _put_back(self, facts: Brought) -> Brought:
        self.journal.quarantine()
        return attrs.evolve(facts, restored=True)

    def _archive(self, facts: Brought) -> Brought | None:
        """As an archive leaves it; only what is ready and final."""
        request_id = order(1).request_id
        if self.states().get(request_id) != State.SUCCESSFUL or not facts.answered:
            return None
        connection = self.journal.connection
        connection.execute("INSERT INTO archive (id, path, who, why, begun_at) VALUES (1, 'old.db', 'a', 'b', 0)")
        connection.execute("UPDATE outbox SET archive = 1 WHERE request_id = ?", (request_id,))
        return attrs.evolve(facts, archived=facts.archived | {request_id})

    def _open_elsewhere(self, facts: Brought) -> Brought:
        at_once(self.journal.open_run("r", self.ELSE))
        return facts

    def wrong(self, before: Brought, after: Brought) -> Iterator[str]:
        """A load that was answered is in the journal, all of it and nothing else, and may be sent only where it may."""
        if len(self.rows("SELECT DISTINCT user_id FROM run")) > 1:
            yield "the journal holds batches of two accounts"
        if after.outlived:
            yield "a load that another one has taken over goes on"
        batches = dict(self.rows("SELECT id, batch_id FROM run"))
        held = [
            (batches[run_of(number)], *row) for number, *row in self.rows("SELECT id, request_id, amount FROM outbox")
        ]
        for batch, brought in after.answered:
            stored = {(request_id, amount) for of, request_id, amount in held if of == batch}
            if stored != brought:
                yield f"a load of {batch} was answered with {sorted(brought)}, and the journal holds {sorted(stored)}"
        states = self.states()
        for request_id in before.kept - states.keys():
            yield f"order {request_id} was told of, and the journal holds it no more"
        ready = [batch for batch, _ in after.answered]
        for batch, request_id, _ in held:
            if batch not in ready or states[request_id] != State.PLANNED:
                continue
            if request_id in after.told:
                yield f"order {request_id} was told of, and may be sent"
            if request_id == order(1).request_id and after.sent:
                yield f"order {request_id} was sent by the session, and may be sent again"
        if after.restored and self.rows("SELECT 1 FROM chunk WHERE state = 'open'"):
            yield "a batch may be sent from a journal that was put back"


# Listing deadlines


@attrs.frozen(kw_only=True)
class Word:
    """What a person has answered for; ``number`` tells two that say the same."""

    number: int
    orders: int
    amount: int
    total: int
    until: float
    is_of_now: bool = True  # nothing was put back since
    digest: str = ""


@attrs.frozen(kw_only=True)
class Listed:
    """What is known of the service's lists and of what persons said.

    Attributes:
        sent: When each order had its last permit, and of its attempts before.
        again: Orders that were sent again by a word, with its number, each time.
        forgotten: Orders that were sent before the journal was put back.
        told: Something was told that may be about order 1, or about any.
        proposed, approved, used: Digests; those of words that were given.
        stand: How the orders do.
        misses: How often lists have missed an order.
    """

    now: float = NOON
    word: Word | None = None
    given: int = 0
    sent: tuple[tuple[int, tuple[float, ...]], ...] = ()
    again: tuple[tuple[int, int], ...] = ()
    forgotten: frozenset[int] = frozenset()
    told: frozenset[str] = frozenset()
    proposed: frozenset[str] = frozenset()
    approved: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    acted: tuple[str, ...] = ()
    stand: tuple[tuple[str, str], ...] = ()
    misses: int = 0


class Deadlines(Desk):
    """Orders without an answer, lists that miss them, and a person's word."""

    def __init__(
        self, name: str, *, words: Sequence[tuple[int, int, int]], orders: int = 1, may: Iterable[str] = (),
        needed: int = 0, gives: int = 1, passes: int = 1, misses: int = 2, hours: int = 3, unsent: int = 0,
        names: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._named = transaction_id(1) if names else None  # what an answer says that could not be used otherwise
        self._words, self._orders, self._may, self._needed = words, range(1, orders + 1), frozenset(may), needed
        self._gives, self._passes, self._misses, self._hours, self._unsent = gives, passes, misses, hours, unsent

    def first(self) -> Listed:
        """Orders that were sent, and have no answer; the last ones may not have been sent yet."""
        journal = self.journal
        at_once(journal.open_outbox(BATCH, IDENTITY))
        journal.connection.execute("UPDATE run SET uid = ''")
        if self._needed:
            rule = ApprovalRule(needed=self._needed, why="four eyes", by=DORA)
            at_once(journal.require_approvals(rule))
        for number in self._orders:
            at_once(journal.put(BATCH, order(number)))
        facts = Listed()
        for _ in self._orders[self._unsent :]:
            facts = self._send(facts)
        return attrs.evolve(facts, stand=tuple(sorted(self.states().items())))

    def _send(self, facts: Listed) -> Listed:
        journal = self.journal
        journal.moment.holder = "worker"
        chunk = at_once(journal.claim_chunk(BATCH, "worker", lease=30.0))
        if chunk is None:
            raise JournalError("nothing can be claimed")
        claimed = chunk.orders[0]
        permit = at_once(journal.permit(chunk, claimed))
        assert isinstance(permit, Permit)
        at_once(journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN, transaction_id=self._named)))
        at_once(journal.release_chunk(chunk))
        journal.moment.leases.clear()
        told = facts.told | {"an answer"} if self._named else facts.told
        number = next(one for one in self._orders if order(one).request_id == claimed.request_id)
        sent = dict(facts.sent)
        sent[number] = (*sent.get(number, ()), permit.at)
        return attrs.evolve(facts, sent=tuple(sorted(sent.items())), forgotten=facts.forgotten - {number}, told=told)

    def steps(self, facts: Listed) -> Iterator[Step]:
        """All that may happen, the rarer things once."""
        for words, do in self._steps(facts):
            yield words, partial(self._done, do, facts)

    def _done(self, do: Callable[[Listed], Listed | None], facts: Listed) -> Listed | None:
        self._tried: tuple[int, float, float] | None = None  # an order, since when lists miss it, and of which permit
        try:
            after = do(facts)
        except JournalError:
            return None
        return after and attrs.evolve(after, stand=tuple(sorted(self.states().items())))

    def _steps(self, facts: Listed) -> Iterator[tuple[str, Callable[[Listed], Listed | None]]]:
        for number, sent in facts.sent if facts.misses < self._misses else ():
            for at in sent:
                for since in sorted({facts.now - 60.0, sent[-1] + WITHIN}):
                    if since <= facts.now:
                        yield (
                            f"lists from {since:.0f} on miss order {number}, sent at {at:.0f}",
                            partial(self._miss, number, since, at),
                        )
        if facts.given < self._gives:
            for terms in self._words:
                yield f"a clerk answers for lists: {terms}", partial(self._give, terms)
        if facts.acted.count("pass") < self._passes:
            yield "hours pass", self._pass
        if "planned" in self.states().values() and max(len(sent) for _, sent in facts.sent) < 2:
            yield "an order is sent, and has no answer", self._send
        kinds: dict[str, Callable[[Listed], Listed | None]] = {
            "withdraw": self._withdraw, "accept": self._accept, "by its beginning": partial(self._notify, "cut"),
            "without an id": partial(self._notify, "none"), "by its id": partial(self._notify, "id"),
            "put back": self._put_back, "lift": self._lift, "approve": self._approve, "disapprove": self._disapprove,
        }  # fmt: skip
        for words, do in kinds.items():
            if words in self._may and words not in facts.acted:
                yield words, partial(self._once, words, do)

    def _once(self, words: str, do: Callable[[Listed], Listed | None], facts: Listed) -> Listed | None:
        return do(attrs.evolve(facts, acted=tuple(sorted((*facts.acted, words)))))

    def _miss(self, number: int, since: float, at: float, facts: Listed) -> Listed:
        request_id = order(number).request_id
        before = self.states()[request_id]
        after = at_once(self.journal.park(request_id, detail="", sent_at=at, since=since)).state
        self._tried, facts = (number, since, at), attrs.evolve(facts, misses=facts.misses + 1)
        if after == State.PLANNED != before:
            assert facts.word is not None or not self._gives
            used = facts.word.number if facts.word else 0
            return attrs.evolve(facts, again=(*facts.again, (number, used)))
        return facts

    def _give(self, terms: tuple[int, int, int], facts: Listed) -> Listed | None:
        orders, amount, total = terms
        until = NOON + self._hours * WITHIN
        deadline = ListingDeadline(
            within=WITHIN, until=until, orders=orders, amount=Decimal(amount), total=Decimal(total), currency="UGX"
        )
        try:
            at_once(self.journal.give_listing_deadline(deadline, who=ANN, why="a letter"))
        except NotApproved as refusal:
            if refusal.proposal is None or refusal.proposal.digest in facts.proposed:
                return None
            at_once(self.journal.propose(refusal.proposal))
            return attrs.evolve(facts, proposed=facts.proposed | {refusal.proposal.digest})
        given = facts.given + 1
        # each approval is of one word: of those that were given, this one takes one that no other has taken
        free = sorted(facts.approved - facts.used)
        digest = free[0] if free else ""
        word = Word(number=given, orders=orders, amount=amount, total=total, until=until, digest=digest)
        return attrs.evolve(facts, word=word, given=given, used=facts.used | {digest})

    def _withdraw(self, facts: Listed) -> Listed | None:
        if not at_once(self.journal.withdraw_listing_deadline("UGX", who=BEN, why="it is old")):
            return None
        return attrs.evolve(facts, word=None)

    def _pass(self, facts: Listed) -> Listed:
        return attrs.evolve(facts, now=facts.now + 2 * WITHIN, acted=tuple(sorted((*facts.acted, "pass"))))

    def _accept(self, facts: Listed) -> Listed:
        one = order(1)
        found = Evidence(
            signal=Signal.LOOKED_UP_PROCESSING, source="list", request_id=one.request_id, amount=one.amount,
            transaction_id=transaction_id(1),
        )  # fmt: skip
        at_once(self.journal.apply_evidence(found))
        return attrs.evolve(facts, told=facts.told | {"id"})

    def _notify(self, kind: str, facts: Listed) -> Listed:
        request_id = {"cut": order(1).request_id[:-1], "none": None, "id": order(1).request_id}[kind]
        told = event(1, 1, request_id=request_id)
        arrival = Arrival(
            delivery=delivery(kind.encode(), at=facts.now), event=told, lease=0.0, doubt=Doubt.UNCONFIRMED
        )
        at_once(self.journal.receive_all((arrival,), owner="receiver"))
        return attrs.evolve(facts, told=facts.told | {kind})

    def _put_back(self, facts: Listed) -> Listed:
        self.journal.quarantine()
        word = facts.word and attrs.evolve(facts.word, is_of_now=False)
        return attrs.evolve(facts, word=word, forgotten=frozenset(number for number, _ in facts.sent))

    def _lift(self, facts: Listed) -> Listed:
        planned = [one for one, state in self.states().items() if state == State.PLANNED]
        at_once(self.journal.lift_quarantine(BATCH, who=BEN, why="looked", request_ids=planned))
        return facts

    def _approve(self, facts: Listed) -> Listed | None:
        free = sorted(facts.proposed - facts.approved)
        if not free:
            return None
        at_once(self.journal.approve(free[0], by=BEN, note=""))
        return attrs.evolve(facts, approved=facts.approved | {free[0]})

    def _disapprove(self, facts: Listed) -> Listed | None:
        if facts.word is None or not facts.word.digest:
            return None
        digest = facts.word.digest
        at_once(self.journal.withdraw_approval(digest, by=BEN))
        return attrs.evolve(facts, approved=facts.approved - {digest})

    def wrong(self, before: Listed, after: Listed) -> Iterator[str]:
        """An order is sent again by a word that holds, once, and where nothing else speaks of it."""
        if self._needed and after.given > before.given and not (after.word and after.word.digest):
            yield "a word was given that no one has approved, or by the approval of another"
        if self._tried is None:
            return
        number, since, at = self._tried
        sent, one = dict(after.sent)[number], order(number)
        stood = dict(before.stand)[one.request_id]
        if after.again == before.again:
            state = self.states()[one.request_id]
            if at != sent[-1] and state == State.PARKED != stood:
                yield f"order {number} is parked by lists that are about an earlier attempt"
            return
        word = before.word
        if word is None:
            yield f"order {number} is sent again, and no word holds"
            return
        reasons = {
            "the word is of before the journal was put back": not word.is_of_now,
            "the word is over": after.now >= word.until,
            "the order is of more than the word allows": one.amount > word.amount,
            "all are more than the word allows": sum(order(of).amount for of, by in after.again if by == word.number)
            > word.total,
            "they are more than the word allows": [by for _, by in after.again].count(word.number) > word.orders,
            "the lists were read too early": since < sent[-1] + WITHIN + 60.0,
            "lists are about an earlier attempt": at != sent[-1],
            "it was sent again by a word before": [of for of, _ in before.again].count(number) > 0,
            "it was sent before the journal was put back": number in before.forgotten,
            "something was told of it": bool(before.told) and number == 1,
            "its approval was taken back": bool(self._needed) and word.digest not in before.approved,
            "it was not unknown": stood != State.UNKNOWN,
        }
        for why, is_so in reasons.items():
            if is_so:
                yield f"order {number} is sent again by a word, and {why}"


def desks() -> tuple[Callable[[], Desk], ...]:
    """All worlds of persons and files, to be made one by one."""
    one = (1, 5000, 5000)
    return (
        partial(Approvals, "two approvals", needed=2, makers=(ANN,), others=(BEN, BEN_TOO, CY, DORA), changes=False),
        partial(Approvals, "one approval", needed=1, makers=(ANN, BEN), others=(BEN, DORA), changes=True),
        partial(Loading, "files"),
        partial(Deadlines, "limits of a word", words=(one, (2, 500, 5000), (2, 5000, 1500)), orders=2, passes=2),
        partial(Deadlines, "a word and an end", words=(one,), may=("withdraw", "accept"), gives=1, passes=2),
        partial(
            Deadlines, "told beside a word", words=((3, 5000, 5000),),
            may=("by its beginning", "without an id", "by its id"), passes=2, hours=5,
        ),
        partial(Deadlines, "an answer that named a transaction", words=((3, 5000, 5000),), hours=5, names=True),
        partial(
            Deadlines, "a word, and put back", words=((3, 5000, 5000),), orders=2, may=("put back", "lift"), misses=1,
            hours=5, unsent=1,
        ),
        partial(
            Deadlines, "a word that is approved", words=(one,), may=("withdraw", "approve", "disapprove"), needed=1,
            gives=2,
        ),
    )  # fmt: skip
