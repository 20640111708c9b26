"""A small world of one notification, which is believed more or less each time it comes, and of its order.

And one of two accounts that notify the same address. Believed is what needs no record to bear it out, or what the
record has borne out; what it contradicts is believed no more, until other words for it are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs
from explorer.desks import NOON, Desk, Step
from explorer.journals import at_once
from journal.factories import BATCH, IDENTITY, delivery, event, order, transaction_id

from payments_async.journal import JournalError, Signal, State
from payments_async.journal._inbox import Arrival, Doubt
from payments_async.journal.contract import Evidence, Outcome, Permit

ONE = order(1)
DOUBTS = (None, Doubt.UNCONFIRMED, Doubt.REPORTED)  # the more believed first
_MOST = 3  # times that it comes
_OURS, _ANOTHER = "6", "7"
_LISTED = "list"  # in place of an account
_THEIRS = 3  # the order that names the other account
_MOST_TOLD = 3  # notifications in a world of two accounts, and lists
_TOLD = (
    *((number, _OURS, 0) for number in range(3)),
    *((number, _ANOTHER, code) for number in (1, 2, _THEIRS) for code in (0, 1, 2)),
    (1, _LISTED, 0),
)


@attrs.frozen(kw_only=True)
class Told:
    """What is known beside the journal.

    Attributes:
        level: How far it is believed, as in ``DOUBTS``; -1 before it came.
        disputed: The record has contradicted it.
        dead: No handler has borne it; a person may have it handled again.
        put: The order was put, and sent.
        times: How often it came.
    """

    now: float = NOON
    level: int = -1
    disputed: bool = False
    dead: bool = False
    put: bool = False
    times: int = 0

    @property
    def is_believed(self) -> bool:
        """Whether it is evidence."""
        return self.level == 0 and not self.disputed


class Notifications(Desk):
    """A receiver, the service's record, handlers, and an application."""

    def first(self) -> Told:
        """An outbox without an order."""
        at_once(self.journal.open_outbox(BATCH, IDENTITY))
        self.journal.connection.execute("UPDATE run SET uid = ''")
        return Told()

    def steps(self, facts: Told) -> Iterator[Step]:
        """All that may happen next."""
        acts: dict[str, Callable[[Told], Told | None]] = {}
        if facts.times < _MOST:
            for level, doubt in enumerate(DOUBTS):
                acts[f"it comes, {doubt or 'believed'}"] = partial(self._receive, level)
        if facts.level == 1 and not (facts.disputed or facts.dead):
            acts["the record bears it out"] = self._confirm
        is_pending = facts.level == 1 or (facts.level == 0 and facts.times == 1 and not facts.put)
        if is_pending and not (facts.disputed or facts.dead):
            acts["the record contradicts it"] = self._dispute
        if facts.level == 1 and not (facts.disputed or facts.dead):
            acts["its handlers give up"] = self._give_up
        if not facts.put:
            acts["the order is put, and sent"] = self._put
        for words, act in acts.items():
            yield words, partial(self._done, act, facts)

    @staticmethod
    def _done(act: Callable[[Told], Told | None], facts: Told) -> Told | None:
        try:
            return act(facts)
        except JournalError:
            return None

    def _receive(self, level: int, facts: Told) -> Told:
        arrival = Arrival(delivery=delivery(at=facts.now), event=event(0, 1), lease=0.0, doubt=DOUBTS[level])
        at_once(self.journal.receive_all((arrival,), owner="receiver"))
        is_better = facts.level < 0 or level < facts.level
        is_mended = level == facts.level > 0 and facts.disputed
        return attrs.evolve(
            facts, times=facts.times + 1, level=level if is_better else facts.level,
            disputed=facts.disputed and not (is_better or is_mended),
            dead=facts.dead and not is_better,
        )  # fmt: skip

    @property
    def _number(self) -> int:
        ((number,),) = self.rows("SELECT id FROM ipn_event")
        return int(number)

    def _confirm(self, facts: Told) -> Told:
        at_once(self.journal.confirm(self._number))
        return attrs.evolve(facts, level=0)

    def _dispute(self, facts: Told) -> Told:
        at_once(self.journal.finish(self._number, "disputed", error="another amount"))
        return attrs.evolve(facts, disputed=True)

    def _give_up(self, facts: Told) -> Told:
        at_once(self.journal.finish(self._number, "dead", error="no record"))
        return attrs.evolve(facts, dead=True)

    def _put(self, facts: Told) -> Told:
        journal = self.journal
        journal.moment.holder = "worker"
        at_once(journal.put(BATCH, ONE))
        chunk = at_once(journal.claim_chunk(BATCH, "worker", lease=30.0))
        if chunk is not None:
            permit = at_once(journal.permit(chunk, chunk.orders[0]))
            assert isinstance(permit, Permit)
            at_once(journal.record(Outcome(permit=permit, signal=Signal.UNKNOWN)))
            at_once(journal.release_chunk(chunk))
        journal.moment.leases.clear()
        return attrs.evolve(facts, put=True)

    def wrong(self, before: Told, after: Told) -> Iterator[str]:
        """What is not believed settles nothing and ends no wait; what is believed does."""
        state = self.states().get(ONE.request_id)
        if after.put and not after.is_believed and not before.is_believed and state != State.UNKNOWN:
            yield f"a notification that is not believed makes the order {state}"
        if after.put and after.is_believed and state in (State.UNKNOWN, State.PLANNED):
            yield f"a notification that is believed leaves the order {state}"
        is_heard = bool(at_once(self.journal.final_events_of([ONE.request_id])))
        if is_heard and not after.is_believed:
            yield "those who wait for the order's end hear of a notification that is not believed"
        if after.is_believed and not (is_heard or after.put):
            yield "those who wait for the order's end hear of no notification"
        is_dead = bool(self.rows("SELECT 1 FROM delivery WHERE status = 'dead'"))
        if is_dead and not after.dead:
            yield "a notification that is believed more since stays a dead letter"


@attrs.frozen(kw_only=True)
class Accounts:
    """What is known beside the journal.

    Attributes:
        ours: Our account has notified of an order that the service's answer accepted.
        told: Of which order who has told what.
    """

    now: float = NOON
    ours: bool = False
    told: frozenset[tuple[int, str, int]] = frozenset()


class TwoAccounts(Desk):
    """A receiver that two accounts notify, whose request ids are the same: the first order is accepted, others unknown.

    The last one names the other account as the one that pays it.
    """

    def first(self) -> Accounts:
        """Four orders that were sent."""
        journal = self.journal
        at_once(journal.open_outbox(BATCH, IDENTITY))
        journal.moment.holder = "worker"
        for number in range(_THEIRS + 1):
            account = _ANOTHER if number == _THEIRS else None
            at_once(journal.put(BATCH, attrs.evolve(order(number), account_number=account)))
        chunk = at_once(journal.claim_chunk(BATCH, "worker", lease=30.0))
        assert chunk is not None
        for number, claimed in enumerate(chunk.orders):
            permit = at_once(journal.permit(chunk, claimed))
            assert isinstance(permit, Permit)
            answer = {"signal": Signal.UNKNOWN}
            if number == 0:
                answer = {"signal": Signal.ACCEPTED, "transaction_id": transaction_id(0)}
            at_once(journal.record(Outcome(permit=permit, **answer)))
        at_once(journal.release_chunk(chunk))
        journal.moment.leases.clear()
        journal.connection.execute("UPDATE run SET uid = ''")
        return Accounts()

    def steps(self, facts: Accounts) -> Iterator[Step]:
        """All that may happen next."""
        if len(facts.told) == _MOST_TOLD:
            return
        for said in (one for one in _TOLD if one not in facts.told):
            number, account, code = said
            if account == _LISTED:
                yield f"a list shows what another account told of {number}", partial(self._list, said, facts)
            else:
                yield f"account {account} tells {code} of {number}", partial(self._tell, said, facts)

    def _tell(self, said: tuple[int, str, int], facts: Accounts) -> Accounts:
        number, account, code = said
        transaction = transaction_id(number if account == _OURS else number + 10)
        made = attrs.evolve(event(code, number, transaction=transaction), account_id=account)
        arrival = Arrival(delivery=delivery(at=facts.now), event=made, lease=0.0, doubt=None)
        at_once(self.journal.receive_all((arrival,), owner="receiver"))
        return attrs.evolve(facts, ours=facts.ours or number == 0, told=facts.told | {said})

    def _list(self, said: tuple[int, str, int], facts: Accounts) -> Accounts:
        shown = Evidence(
            signal=Signal.LOOKED_UP_PROCESSING, source="list", request_id=order(said[0]).request_id,
            transaction_id=transaction_id(said[0] + 10), amount=order(said[0]).amount,
        )  # fmt: skip
        at_once(self.journal.apply_evidence(shown))
        return attrs.evolve(facts, told=facts.told | {said})

    def wrong(self, before: Accounts, after: Accounts) -> Iterator[str]:
        """Once our account is known, another one settles nothing; before and after, ours settles what is open.

        What another one told of a transaction counts once the list shows that, and of an order that names it, at once.
        """
        [(number, account, code)] = after.told - before.told
        state = self.states().get(order(number).request_id)
        said = {one for one in after.told if one[0] == number}
        if said == {(number, _ANOTHER, 0), (number, _LISTED, 0)} and state != State.SUCCESSFUL:
            yield f"another account told of order {number}, which the list shows, and it is {state}"
        if number == _THEIRS and said == {(number, _ANOTHER, code)} and state == State.UNKNOWN:
            yield f"the account that order {number} names leaves it {state}"
        if number == _THEIRS or any(one[1] == _LISTED for one in after.told):
            return  # by the list the other account is ours
        others = {one for one in before.told if one[:2] == (number, _ANOTHER)}
        is_open = not others and (number, _OURS, 0) not in before.told
        if account == _ANOTHER and before.ours and is_open and state != State.UNKNOWN:
            yield f"another account makes order {number} {state}"
        if account == _OURS and not others and state != State.SUCCESSFUL:
            yield f"our own account leaves order {number} {state}"


def desks() -> tuple[Callable[[], Desk], ...]:
    """The worlds of notifications."""
    return (partial(Notifications, "a notification"), partial(TwoAccounts, "two accounts"))
