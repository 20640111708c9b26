"""Whether a tally agrees with the service's own ledger, the only judge of what was carried out. Changes neither."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import attrs

from payments_async._cli._demo_service import Books, Carried
from payments_async._cli._tally import Line, Tally
from payments_async.journal import State

__all__ = ["Verdict", "judge"]

_STATUS = {State.SUCCESSFUL: "SUCCESSFULL", State.FAILED: "FAILED", State.REVERSED: "REVERSED"}
_CARRIED_OUT = {State.ACCEPTED, *_STATUS}


@attrs.frozen(kw_only=True)
class Verdict:
    """What the ledger says of a tally.

    Attributes:
        disagreements: One line for each; none if ledger and tally agree in every order.
        twice: Orders that were carried out more than once.
        lost: Orders that were carried out, and not known here to have been.
        executed: What the ledger carried out, each order counted as often as it was.
        paid: What left the account and did not come back.
    """

    disagreements: tuple[str, ...]
    twice: int
    lost: int
    executed: int
    paid: Decimal

    @property
    def agrees(self) -> bool:
        """Whether ledger and tally agree in every order."""
        return not self.disagreements


def judge(books: Books, tally: Tally, opening_balance: Decimal) -> Verdict:
    """Compare a tally with the books of the service that its orders were sent to, and nothing else ever was."""
    ledger = {carried.request_id: carried for carried in books.ledger}
    times = Counter(carried.request_id for carried in books.ledger)
    known = {line.request_id: line.state in _CARRIED_OUT for line in tally}
    twice = [request_id for request_id, count in times.items() if count > 1]
    found = [f"{request_id}: carried out {times[request_id]} times" for request_id in twice]
    found += [fault for line in tally for fault in _faults(line, ledger.get(line.request_id))]
    found += [f"{request_id}: carried out, but not in this batch" for request_id in ledger if request_id not in known]
    paid = opening_balance - books.balance
    if paid != tally.total(State.SUCCESSFUL):
        found.append(f"the balance fell by {paid:,f}, the successful orders are {tally.total(State.SUCCESSFUL):,f}")
    return Verdict(
        disagreements=tuple(found),
        twice=len(twice),
        lost=sum(not known.get(request_id, False) for request_id in ledger),
        executed=len(books.ledger),
        paid=paid,
    )


def _faults(line: Line, carried: Carried | None) -> Iterator[str]:
    request_id, state = line.request_id, line.state
    if line.conflict is not None:
        yield f"{request_id}: {line.conflict}"
    if carried is None:
        if state in _CARRIED_OUT:
            yield f"{request_id}: {state} here, but never carried out"
        return
    if state not in _CARRIED_OUT:
        yield f"{request_id}: {state} here, but carried out"
    elif carried.status != _STATUS.get(state):
        yield f"{request_id}: {state} here, {carried.status} in the ledger"
    if carried.amount != line.amount:
        yield f"{request_id}: {line.amount} here, {carried.amount} in the ledger"
