"""Whether a tally agrees with the sandbox's ledger, the only judge of what was carried out. Changes neither."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import attrs

from payments_async._cli._tally import FINAL, Line, Outcome, Tally
from payments_async.sandbox import Execution, Sandbox

__all__ = ["Verdict", "judge"]

_CARRIED_OUT = FINAL | {Outcome.ACCEPTED}
_STATUS = {Outcome.SUCCESSFUL: "SUCCESSFULL", Outcome.FAILED: "FAILED", Outcome.REVERSED: "REVERSED"}


@attrs.frozen(kw_only=True)
class Verdict:
    """What the ledger says of a tally.

    Attributes:
        disagreements: One line for each; none if ledger and tally agree entirely.
        executed: Orders the ledger carried out, each counted as often as it was.
        paid: What left the account and did not come back.
    """

    disagreements: tuple[str, ...]
    executed: int
    paid: Decimal

    @property
    def agrees(self) -> bool:
        """Whether ledger and tally agree entirely."""
        return not self.disagreements


def judge(sandbox: Sandbox, tally: Tally, opening_balance: Decimal) -> Verdict:
    """Compare a tally with the ledger of the sandbox that its orders were sent to, and with nothing else in it."""
    ledger = {execution.request_id: execution for execution in sandbox.ledger}
    found = [f"{request_id}: carried out more than once" for request_id in sandbox.duplicates()]
    found += [fault for line in tally for fault in _faults(line, ledger.get(line.order.request_id))]
    ours = {line.order.request_id for line in tally}
    found += [f"{request_id}: carried out, but not in this batch" for request_id in ledger if request_id not in ours]
    paid = opening_balance - sandbox.balance
    if paid != tally.total(Outcome.SUCCESSFUL):
        found.append(f"the balance fell by {paid:,f}, the successful orders are {tally.total(Outcome.SUCCESSFUL):,f}")
    return Verdict(disagreements=(*found, *tally.conflicts), executed=len(sandbox.ledger), paid=paid)


def _faults(line: Line, execution: Execution | None) -> Iterator[str]:
    request_id, outcome = line.order.request_id, line.outcome
    if execution is None:
        if outcome in _CARRIED_OUT:
            yield f"{request_id}: {outcome} here, but never carried out"
        return
    if outcome not in _CARRIED_OUT:
        yield f"{request_id}: {outcome} here, but carried out"
    elif outcome in FINAL and execution.status != _STATUS[outcome]:
        yield f"{request_id}: {outcome} here, {execution.status} in the ledger"
    if execution.amount != line.order.amount:
        yield f"{request_id}: {line.order.amount} here, {execution.amount} in the ledger"
