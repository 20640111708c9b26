"""Faults x calls: every fault ends in the documented error, and the ledger shows at most one execution."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from session.conftest import Open
from session.wires import CARD, collection, payout

from payments_async import (
    AuthenticationFailed,
    Limits,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    PaymentsSession,
    Rejected,
    ServiceFault,
    UnreadableReply,
)
from payments_async.sandbox import Fault, Sandbox

Kind = type[PaymentsError]

# fault: (money and patch card, reads, a login on the way to a payout, requests of money, of reads)
TABLE: dict[Fault, tuple[Kind, Kind, Kind, int, set[int]]] = {
    Fault.LOST_BEFORE: (OutcomeUnknown, ServiceFault, NotSent, 1, {2, 3, 4}),  # aiohttp repeats a GET by itself
    Fault.LOST_AFTER: (OutcomeUnknown, ServiceFault, NotSent, 1, {2, 3, 4}),
    Fault.ERROR_BEFORE: (OutcomeUnknown, ServiceFault, NotSent, 1, {2}),
    Fault.ERROR_AFTER: (OutcomeUnknown, ServiceFault, NotSent, 1, {2}),
    Fault.RATE_LIMITED: (NotSent, ServiceFault, NotSent, 2, {2}),
    Fault.SLOW: (OutcomeUnknown, ServiceFault, NotSent, 1, {2}),
    Fault.TRUNCATED: (OutcomeUnknown, ServiceFault, NotSent, 1, {2}),
    Fault.HTML: (OutcomeUnknown, UnreadableReply, NotSent, 1, {2}),
    Fault.GARBAGE: (OutcomeUnknown, UnreadableReply, NotSent, 1, {2}),
    Fault.HUGE: (OutcomeUnknown, ServiceFault, NotSent, 1, {2}),
    Fault.REDIRECT: (OutcomeUnknown, ServiceFault, NotSent, 1, {1}),
    Fault.TOKEN_REVOKED: (AuthenticationFailed, AuthenticationFailed, AuthenticationFailed, 2, {1, 2}),
    Fault.REFUSED: (Rejected, Rejected, AuthenticationFailed, 1, {1}),
    Fault.REFUSED_200: (Rejected, Rejected, AuthenticationFailed, 1, {1}),
}
MONEY: dict[str, Callable[[PaymentsSession], Awaitable[Any]]] = {
    "payout": lambda payments: payments.payouts.send(payout()),
    "collection": lambda payments: payments.collections.request(collection()),
    "card": lambda payments: payments.cards.enable(CARD),
}
READS: dict[str, Callable[[PaymentsSession], Awaitable[Any]]] = {
    "account": lambda payments: payments.accounts.get(),
    "transactions": lambda payments: payments.transactions.page(),
    "validation": lambda payments: payments.products.validate("MTNAIRTIMEUG_MTNAIRTIMEUG", "0770000017", 1500),
}


@pytest.fixture
async def payments(request: pytest.FixtureRequest, opened: Open, sandbox: Sandbox) -> PaymentsSession:
    """A session that is soon out of patience, but only where an answer never comes."""
    is_slow = f"[{Fault.SLOW}" in request.node.name
    timeout = aiohttp.ClientTimeout(total=3.0 if is_slow else 60.0)
    return await opened(sandbox, timeout=timeout, limits=Limits(reply_bytes=4096))


def trouble(sandbox: Sandbox, fault: Fault, on: Any) -> None:
    """Let a fault strike for ever."""
    options: dict[str, Any] = {"size": 20_000} if fault is Fault.HUGE else {}
    sandbox.script(fault, times=None, on=on, **options)


def arrived(sandbox: Sandbox) -> int:
    """Requests on the wire that are no logins."""
    return sum(not request.path.endswith("/auth/login") for request in sandbox.requests)


@pytest.mark.parametrize("call", MONEY)
@pytest.mark.parametrize("fault", TABLE)
async def test_a_fault_of_a_call_that_moves_money(
    payments: PaymentsSession, sandbox: Sandbox, fault: Fault, call: str
) -> None:
    """It ends in the documented error, which names the order and the next step; nothing was sent again blindly."""
    kind, _, _, sent, _ = TABLE[fault]
    trouble(sandbox, fault, call)
    with pytest.raises(PaymentsError) as caught:
        await MONEY[call](payments)
    error = caught.value
    assert (kind, None if call == "card" else "r-1") == (type(error), error.request_id)
    assert error.next_step
    assert error.next_step in str(error)
    assert sent == arrived(sandbox)
    assert sandbox.executions("r-1") <= 1
    assert (kind is OutcomeUnknown and call != "card") == ("r-1" in payments.unsettled)


@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize("fault", TABLE)
async def test_a_fault_of_a_read(payments: PaymentsSession, sandbox: Sandbox, fault: Fault, call: str) -> None:
    """It is repeated where that may help, and ends in the documented error."""
    _, kind, _, _, asked = TABLE[fault]
    trouble(sandbox, fault, call)
    if (fault, call) == (Fault.REFUSED_200, "validation"):
        assert not (await READS[call](payments)).ok, "a no is an answer"
        return
    with pytest.raises(PaymentsError) as caught:
        await READS[call](payments)
    assert kind is type(caught.value)
    assert caught.value.next_step in str(caught.value)
    assert arrived(sandbox) in asked
    assert not payments.unsettled


@pytest.mark.parametrize("fault", TABLE)
async def test_a_fault_of_the_login(payments: PaymentsSession, sandbox: Sandbox, fault: Fault) -> None:
    """The payout never left: no request arrived, nothing is unsettled, and the error says so."""
    kind = TABLE[fault][2]
    trouble(sandbox, fault, "login")
    with pytest.raises(PaymentsError) as caught:
        await payments.payouts.send(payout())
    assert (kind, "r-1") == (type(caught.value), caught.value.request_id)
    assert (0, 0, frozenset()) == (arrived(sandbox), sandbox.executions("r-1"), payments.unsettled)


@pytest.mark.parametrize("fault", TABLE)
async def test_a_fault_of_the_login_before_a_read(payments: PaymentsSession, sandbox: Sandbox, fault: Fault) -> None:
    """A login that cannot be reached or read is a fault of the service, one that is refused is ours."""
    kind = AuthenticationFailed if TABLE[fault][2] is AuthenticationFailed else ServiceFault
    trouble(sandbox, fault, "login")
    with pytest.raises(kind):
        await payments.accounts.get()
    assert 0 == arrived(sandbox)


async def test_another_echo_names_its_transaction(payments: PaymentsSession, sandbox: Sandbox) -> None:
    """The order was carried out, but whose acceptance that is nobody knows."""
    sandbox.script(Fault.WRONG_ECHO, on="payout")
    with pytest.raises(OutcomeUnknown) as caught:
        await payments.payouts.send(payout())
    assert (sandbox.ledger[0].transaction_id, "r-1") == (caught.value.transaction_id, caught.value.request_id)


@pytest.mark.parametrize("fault", [Fault.RATE_LIMITED, Fault.TOKEN_REVOKED])
async def test_an_order_turned_away_unread_gets_through(
    payments: PaymentsSession, sandbox: Sandbox, fault: Fault
) -> None:
    """It is sent again, and carried out once."""
    sandbox.script(fault, on="payout")
    assert "r-1" == (await payments.payouts.send(payout())).request_id
    assert (1, 2, frozenset()) == (sandbox.executions("r-1"), arrived(sandbox), payments.unsettled)


async def test_a_refusal_of_a_repeated_order_proves_nothing(opened: Open, sandbox: Sandbox) -> None:
    """It may mean "already have it"; the order stays unsettled."""
    payments = await opened(sandbox)
    sandbox.script(Fault.REFUSED, on="payout")
    with pytest.raises(OutcomeUnknown) as caught:
        await payments.payouts.send(payout(), sent_before=True)
    assert (400, {"r-1"}) == (caught.value.status, set(payments.unsettled))


async def test_an_unsettled_order_is_not_sent_again(payments: PaymentsSession, sandbox: Sandbox) -> None:
    """The same session refuses it until evidence came, and nothing more leaves."""
    sandbox.script(Fault.LOST_AFTER, on="payout")
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await payments.payouts.send(payout())
    assert (1, 1) == (arrived(sandbox), sandbox.executions("r-1"))
    found = await payments.transactions.find("r-1")
    assert found is not None
    assert not payments.unsettled
