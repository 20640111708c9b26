"""What evidence does to an order, from what is known and what was found alone: no journal is open here."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal.factories import event, order, transaction_id

from payments_async._wire.bodies import write_order
from payments_async._wire.events import contradiction_of_events
from payments_async.journal import Signal, State
from payments_async.journal._records import Row, pack_transaction_id
from payments_async.journal._weighing import evidence_of, weigh, weigh_answer
from payments_async.journal.contract import EVIDENCE, Evidence, next_state

ORDER = order(1)
STATES, EVIDENT = st.sampled_from(State), st.sampled_from(sorted(EVIDENCE))
TOLD = [signal for signal in sorted(EVIDENCE) if signal.startswith(("notified", "looked_up"))]
CONFIRMED = (State.ACCEPTED, State.SUCCESSFUL, State.FAILED, State.REVERSED)


def row(state: State = State.ACCEPTED, **changed: Any) -> Row:
    """The order of that number as a journal has it on disk."""
    plain = {
        "id": 1,
        "request_id": ORDER.request_id,
        "state": state,
        "token": 1,
        "attempt": 1,
        "sent_before": False,
        "amount": str(ORDER.amount),
        "body": write_order(ORDER),
        "body_sha256": b"",
        "transaction_id": pack_transaction_id(transaction_id(1)),
        "code": None,
        "message": None,
        "conflict": None,
        "permitted_at": 1.0,
        "updated_at": 2.0,
    }
    return Row(**plain | changed)


def evidence(signal: Signal = Signal.LOOKED_UP_SUCCESSFUL, **changed: Any) -> Evidence:
    """What agrees with the order in everything, but for what is changed."""
    plain = {
        "request_id": ORDER.request_id,
        "transaction_id": transaction_id(1),
        "amount": ORDER.amount,
        "currency": ORDER.currency,
    }
    return Evidence(signal=signal, source="record", **plain | changed)


@given(state=STATES, signal=EVIDENT, unsent=st.booleans(), sent_before=st.booleans(), signed=st.booleans())
def test_what_agrees_is_for_the_table_to_decide(
    state: State, signal: Signal, unsent: bool, sent_before: bool, signed: bool
) -> None:
    """Magnitudes are compared, and ids and currencies in whichever letters."""
    found = evidence(
        signal,
        amount=-ORDER.amount if signed else ORDER.amount,
        transaction_id=transaction_id(1).upper(),
        currency=" ugx ",
    )
    weighed = weigh(row(state, sent_before=sent_before), found, unsent=unsent)
    verdict = next_state(state, signal, sent_before=sent_before, unsent=unsent)
    assert (verdict.state, verdict.conflict) == (weighed.state, weighed.conflict is not None)
    assert weighed.transaction_id is None  # it is known


@given(
    state=STATES,
    signal=st.sampled_from(TOLD),
    unsent=st.booleans(),
    other=st.sampled_from([{"request_id": "another"}, {"amount": Decimal(1)}, {"currency": "KES"}]),
)
def test_what_is_of_another_order_moves_none(state: State, signal: Signal, unsent: bool, other: dict[str, Any]) -> None:
    """It is a contradiction and nothing else; one that was never sent waits for a person."""
    weighed = weigh(row(state, transaction_id=None), evidence(signal, **other), unsent=unsent)
    assert (State.PARKED if state is State.PLANNED else state) == weighed.state
    assert weighed.conflict is not None
    assert weighed.transaction_id is None


@given(state=STATES, signal=st.sampled_from(TOLD))
def test_what_names_no_request_id_counts_only_for_a_confirmed_transaction(state: State, signal: Signal) -> None:
    """Until the service has confirmed the order, a transaction id is a hint."""
    weighed = weigh(row(state), evidence(signal, request_id=None), unsent=False)
    assert (state in CONFIRMED) == (weighed.conflict is None or "names no request id" not in weighed.conflict)


def test_another_transaction_for_a_confirmed_order_is_a_contradiction() -> None:
    """Somebody paid twice, or one of the two is not ours."""
    weighed = weigh(row(State.SUCCESSFUL), evidence(transaction_id=transaction_id(2)), unsent=False)
    assert (State.SUCCESSFUL, None) == (weighed.state, weighed.transaction_id)
    assert f"another transaction, {transaction_id(2)}" in str(weighed.conflict)


def test_a_transaction_is_learned_of_what_is_believed() -> None:
    """An unknown order gets its name with its outcome; one that was never sent gets none of what contradicts that."""
    unknown = weigh(row(State.UNKNOWN, transaction_id=None), evidence(), unsent=False)
    planned = weigh(
        row(State.PLANNED, attempt=0, transaction_id=None), evidence(Signal.NOTIFIED_SUCCESSFUL), unsent=True
    )
    assert (State.SUCCESSFUL, None, transaction_id(1)) == unknown
    assert (State.PARKED, None) == (planned.state, planned.transaction_id)
    assert "it was never sent from here" in str(planned.conflict)


def test_what_something_else_speaks_against_moves_nothing() -> None:
    """The words are told as they are."""
    assert (State.ACCEPTED, "it was another's", None) == weigh(
        row(), evidence(), unsent=False, against="it was another's"
    )


@given(
    state=STATES, signal=st.sampled_from([Signal.REJECTED, Signal.UNKNOWN, Signal.NOT_SENT]), sent_before=st.booleans()
)
def test_an_answer_is_for_the_table_to_decide(state: State, signal: Signal, sent_before: bool) -> None:
    """With words where it contradicts what is known."""
    weighed = weigh_answer(row(state, sent_before=sent_before), signal, unsent=False)
    verdict = next_state(state, signal, sent_before=sent_before)
    assert (verdict.state, verdict.conflict) == (weighed.state, weighed.conflict is not None)


@pytest.mark.parametrize(
    ("status_code", "signal"),
    [
        (0, Signal.NOTIFIED_SUCCESSFUL),
        (1, Signal.NOTIFIED_PROCESSING),
        (2, Signal.NOTIFIED_FAILED),
        (3, Signal.NOTIFIED_UNRECOGNISED),
    ],
)
def test_a_notification_is_evidence_of_its_status_code(status_code: int, signal: Signal) -> None:
    """Any code that is not documented says only that the service knows the order."""
    found = evidence_of(event(status_code), peer="192.0.2.7", at=5.0)
    assert (signal, "notification 192.0.2.7", 5.0) == (found.signal, found.source, found.at)


@pytest.mark.parametrize(
    ("status_code", "magnitude", "words"),
    [
        (0, "100", None),
        (1, "100", None),
        (7, "", None),
        (2, "100", "status code 2 after the final 0"),
        (1, "99", "amount 99 after 100"),
        (0, "99", "amount 99 after 100"),
    ],
)
def test_an_event_contradicts_the_final_one(status_code: int, magnitude: str, words: str | None) -> None:
    """By another final code, or by another amount where both name one."""
    assert words == contradiction_of_events(status_code, magnitude, 0, "100")


@pytest.mark.parametrize(("attempt", "words"), [(0, "it was never sent from here"), (2, "it was known to be planned")])
def test_an_order_that_was_tried_is_not_called_never_sent(attempt: int, words: str) -> None:
    """Although its attempts are proved not to have left."""
    told = weigh(row(State.PLANNED, attempt=attempt), evidence(Signal.NOTIFIED_SUCCESSFUL), unsent=True)
    assert State.PARKED is told.state
    assert str(told.conflict).endswith(words)
