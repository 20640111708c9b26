"""The demo's judge can say no, and its tally takes news in any order."""

from decimal import Decimal

import pytest

from payments_async import (
    Acceptance,
    AuthenticationFailed,
    Beneficiary,
    Credentials,
    MobileMoneyWallet,
    NotSent,
    OutcomeUnknown,
    PaymentsError,
    PaymentsSession,
    PayoutOrder,
    Rejected,
    Transaction,
    TransactionStatus,
)
from payments_async._cli._tally import Outcome, Tally
from payments_async._cli._verdict import judge
from payments_async.ipn import TransactionEvent, TransactionFailed, TransactionProcessing, TransactionSucceeded
from payments_async.sandbox import Sandbox


def order(request_id: str = "D-1", amount: str = "1000") -> PayoutOrder:
    """A payout to nobody."""
    return PayoutOrder(
        request_id=request_id,
        amount=Decimal(amount),
        destination=MobileMoneyWallet("+256772000017"),
        product_item_id="MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
        beneficiary=Beneficiary(name="Demo Person"),
    )


def session(sandbox: Sandbox) -> PaymentsSession:
    """A session with it."""
    credentials = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
    return PaymentsSession(sandbox.base_url, credentials)


def event(kind: type[TransactionEvent], amount: str = "1000") -> TransactionEvent:
    """News of the order."""
    return kind(transaction_id="t-1", status_code=0, request_id="D-1", amount=Decimal(amount))


ACCEPTED = Acceptance(request_id="D-1", transaction_id="t-1")
SHOWN = Transaction(transaction_id="t-1", request_id="D-1", amount=Decimal("-1000"))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(ACCEPTED, Outcome.ACCEPTED, id="accepted"),
        pytest.param(Rejected("no"), Outcome.REJECTED, id="rejected"),
        pytest.param(OutcomeUnknown("?"), Outcome.UNKNOWN, id="unknown"),
        pytest.param(NotSent("later"), Outcome.NOT_SENT, id="not-sent"),
        pytest.param(AuthenticationFailed("who?"), Outcome.NOT_SENT, id="refused-unread"),
    ],
)
def test_an_answer_has_its_outcome(answer: Acceptance | PaymentsError, outcome: Outcome) -> None:
    """Only what was surely not carried out may be sent again; unknown orders never are."""
    tally = Tally([order()])
    tally.answer(order(), answer)
    assert [outcome] == [line.outcome for line in tally]


def test_a_notification_may_overtake_the_answer() -> None:
    """An early notification stands, whatever the answer says later; a stale one changes nothing."""
    tally = Tally([order()])
    tally.hear(event(TransactionSucceeded))
    tally.answer(order(), ACCEPTED)
    tally.answer(order(), OutcomeUnknown("lost"))
    tally.hear(event(TransactionProcessing))
    assert [Outcome.SUCCESSFUL] == [line.outcome for line in tally]
    assert [] == tally.conflicts


def test_an_unknown_order_is_settled_by_the_list() -> None:
    """A row of the list makes it accepted, a filtered list tells its end, a reversal follows a success."""
    tally = Tally([order()])
    tally.answer(order(), OutcomeUnknown("lost"))
    assert tally.show(SHOWN)
    assert tally.show(SHOWN, TransactionStatus.SUCCESSFUL)
    assert tally.show(SHOWN, TransactionStatus.REVERSED)
    assert (0, 1, Decimal(1000)) == (
        tally.count(Outcome.UNKNOWN),
        tally.count(Outcome.REVERSED),
        tally.total(Outcome.REVERSED),
    )


@pytest.mark.parametrize(
    "news",
    [
        pytest.param([event(TransactionSucceeded), event(TransactionFailed)], id="two-ends"),
        pytest.param([event(TransactionSucceeded, "999")], id="another-amount"),
    ],
)
def test_a_contradiction_is_kept(news: list[TransactionEvent]) -> None:
    """News that contradict what is known are conflicts and change nothing."""
    tally = Tally([order()])
    tally.answer(order(), ACCEPTED)
    for one in news:
        tally.hear(one)
    assert 1 == len(tally.conflicts)
    assert Outcome.FAILED not in [line.outcome for line in tally]


async def test_the_judge_agrees_with_what_happened() -> None:
    """A payout that was carried out once and known as successful is no point of disagreement."""
    tally = Tally([order()])
    async with Sandbox() as sandbox, session(sandbox) as payments:
        opening = sandbox.balance
        tally.answer(order(), await payments.payouts.send(order()))
        await sandbox.settle()
        tally.hear(event(TransactionSucceeded))
        verdict = judge(sandbox, tally, opening)
    assert (True, 1, Decimal(1000)) == (verdict.agrees, verdict.executed, verdict.paid)


async def test_the_judge_sees_a_second_payment() -> None:
    """The same order sent twice on purpose is found, and so is the missing money."""
    tally = Tally([order()])
    async with Sandbox() as sandbox, session(sandbox) as payments:
        opening = sandbox.balance
        for _ in range(2):
            tally.answer(order(), await payments.payouts.send(order(), sent_before=True))
        await sandbox.settle()
        tally.hear(event(TransactionSucceeded))
        verdict = judge(sandbox, tally, opening)
    assert ["D-1: carried out more than once", "the balance fell by 2,000, the successful orders are 1,000"] == list(
        verdict.disagreements
    )


async def test_the_judge_sees_what_was_lost_or_invented() -> None:
    """Unknown here but paid, successful here but never carried out, paid but not ours: each is named."""
    tally = Tally([order("D-1"), order("D-2")])
    async with Sandbox() as sandbox, session(sandbox) as payments:
        opening = sandbox.balance
        for request_id in ("D-2", "D-3"):
            await payments.payouts.send(order(request_id))
        tally.answer(order("D-2"), OutcomeUnknown("lost"))
        tally.hear(event(TransactionSucceeded))
        await sandbox.settle()
        verdict = judge(sandbox, tally, opening)
    assert not verdict.agrees
    assert {
        "D-1: successful here, but never carried out",
        "D-2: unknown here, but carried out",
        "D-3: carried out, but not in this batch",
    } <= set(verdict.disagreements)
