"""Whether the journal agrees with the service's own ledger, the only judge of what was carried out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal

import attrs

from payments_async._cli.demo.service import LedgerRow, ServiceBooks
from payments_async.journal import UNSETTLED, Entry, Journal, Signal, State

_SAID_BY = {"answer": "answer", "notification": "notification", "evidence": "list"}
_NOBODY = "no answer, in no list"
_DOUBTS = (Signal.UNKNOWN, Signal.LEASE_EXPIRED)
_STATUS = {State.SUCCESSFUL: "SUCCESSFULL"}  # as the service spells it


@attrs.frozen(kw_only=True)
class OrderOutcome:
    """Where an order stands.

    Attributes:
        told_by: What that rests on; empty while it is planned.
        was_doubtful: At some time it had no usable answer, or nobody was left who waited for one.
    """

    entry: Entry
    told_by: str
    was_doubtful: bool


@attrs.frozen(kw_only=True)
class LedgerVerdict:
    """What the ledger says of the orders of a batch.

    Attributes:
        carried_out: What the ledger carried out, each order counted as often as it was.
        paid_twice: Orders that were carried out more than once.
        lost: Orders that were carried out, and not known here to have been.
        paid: What left the account and did not come back.
        disagreements: One line for each; none if ledger and journal agree in every order.
    """

    carried_out: int
    paid_twice: int
    lost: int
    paid: Decimal
    disagreements: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether ledger and journal agree in every order."""
        return not self.disagreements


async def outcomes(journal: Journal, batch_id: str) -> list[OrderOutcome]:
    """Where every order of a batch stands, and what says so, as the journal tells it."""
    found: list[OrderOutcome] = []
    async for standings in journal.standings(batch_id):
        for standing in standings:
            entry, decision = standing.entry, standing.decision
            told_by = "" if decision is None else _SAID_BY.get(decision.what, "")
            story = await journal.history(entry.request_id)
            found.append(
                OrderOutcome(
                    entry=entry,
                    told_by=_NOBODY if entry.state in UNSETTLED else told_by,
                    was_doubtful=any(one.signal in _DOUBTS and one.state is State.UNKNOWN for one in story),
                )
            )
    return found


def judge(books: ServiceBooks, orders: Sequence[OrderOutcome], opening_balance: Decimal) -> LedgerVerdict:
    """Compare the outcomes with the books of the service that these orders were sent to, and nothing else ever was."""
    ledger = {row.request_id: row for row in books.ledger}
    times = Counter(row.request_id for row in books.ledger)
    known = {order.entry.request_id: order.entry.state.meaning.is_confirmed for order in orders}
    twice = [request_id for request_id, count in times.items() if count > 1]
    found = [f"{request_id}: carried out {times[request_id]} times" for request_id in twice]
    found += [words for order in orders for words in _differences(order.entry, ledger.get(order.entry.request_id))]
    found += [f"{request_id}: carried out, but not in this batch" for request_id in ledger if request_id not in known]
    paid = opening_balance - books.balance
    successful = sum((one.entry.amount for one in orders if one.entry.state is State.SUCCESSFUL), Decimal(0))
    if paid != successful:
        found.append(f"the balance fell by {paid:,f}, the successful orders are {successful:,f}")
    return LedgerVerdict(
        carried_out=len(books.ledger),
        paid_twice=len(twice),
        lost=sum(not known.get(request_id, False) for request_id in ledger),
        paid=paid,
        disagreements=tuple(found),
    )


def _differences(entry: Entry, row: LedgerRow | None) -> Iterator[str]:
    """What journal and ledger say differently of one order."""
    request_id, state = entry.request_id, entry.state
    if entry.conflict is not None:
        yield f"{request_id}: {entry.conflict}"
    if row is None:
        if state.meaning.is_confirmed:
            yield f"{request_id}: {state} here, but never carried out"
        return
    if not state.meaning.is_confirmed:
        yield f"{request_id}: {state} here, but carried out"
    elif row.status != _STATUS.get(state, state.upper()):
        yield f"{request_id}: {state} here, {row.status} in the ledger"
    if row.amount != entry.amount:
        yield f"{request_id}: {entry.amount} here, {row.amount} in the ledger"
