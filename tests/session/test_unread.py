"""Orders that were turned away unread, or perhaps read: only what surely was not read is sent again."""

import pytest
from session.conftest import Open
from session.wires import Request, Wire, payout

from payments_async import Acceptance, Dialect, NotSent, OutcomeUnknown
from payments_async._session.session import executor_of
from payments_async.sandbox import Fault, Sandbox


def payouts(sandbox: Sandbox) -> int:
    """How many payouts arrived, refused ones included."""
    return sum("/payouts/" in request.path for request in sandbox.requests)


async def test_a_refused_token_proves_nothing_where_the_dialect_says_so(opened: Open, sandbox: Sandbox) -> None:
    """A service that may look at an order before it looks at the token: the order is not sent again."""
    payments = await opened(sandbox, dialect=Dialect(turned_away_unread=frozenset({429})))
    sandbox.script(Fault.TOKEN_REVOKED, on="payout")
    with pytest.raises(OutcomeUnknown):
        await payments.payouts.send(payout())
    assert (1, {"r-1"}) == (payouts(sandbox), set(payments.unsettled))


async def test_what_was_open_before_stays_open_when_a_repetition_fails_here(opened: Open, sandbox: Sandbox) -> None:
    """The repetition surely did not leave. That says nothing of the order before it, which had no answer."""

    async def broken(seconds: float) -> None:
        raise LookupError("no clock")

    payments = await opened(sandbox, sleep=broken)
    sandbox.script(Fault.LOST_AFTER, on="payout")
    with pytest.raises(OutcomeUnknown):
        await payments.payouts.send(payout())
    sandbox.script(Fault.RATE_LIMITED, on="payout")
    with pytest.raises(NotSent):
        await payments.payouts.send(payout(), sent_before=True)
    assert {"r-1"} == set(payments.unsettled)


async def test_what_was_found_while_the_answer_was_awaited_stays_found(opened: Open, wire: Wire) -> None:
    """The connection breaks after its notification has come: the outcome is known, whatever the answer was."""
    payments = await opened(wire)
    accepted = Acceptance(request_id="r-1", transaction_id="t-1")

    async def lose(request: Request) -> bytes | None:
        executor_of(payments).note_evidence("r-1", accepted)
        return None

    wire.answer = lose
    with pytest.raises(OutcomeUnknown):
        await payments.payouts.send(payout())
    assert frozenset() == payments.unsettled
    assert accepted == await payments.payouts.send(payout())
    assert 1 == len(wire.orders)
