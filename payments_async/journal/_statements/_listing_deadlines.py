"""An unknown order that no list shows: parked, or sent again by a person's standing word about the service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import attrs

from payments_async._values.amounts import amount_text, currency_key
from payments_async._values.request_ids import plain_id
from payments_async._wire.bodies import currency_of
from payments_async.journal._approvals import ApprovalRule, NotApproved, Signature, decision_proposal
from payments_async.journal._records import Evidence, ListingDeadline, ListingWord, Row, TransitionResult
from payments_async.journal._statements._approvals import check_approvals, check_decision
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit, among, marks_for
from payments_async.journal._statements._evidence import (
    apply,
    is_forgotten,
    is_silent,
    named_row,
    plan_again,
    record_evidence,
    resolve,
)
from payments_async.journal._statements._history import LAST_VOIDED
from payments_async.journal._states import IN_DOUBT, Signal, State

_GIVEN, _WITHDRAWN = "listing deadline", "listing deadline withdrawn"


def park(
    commit: Commit,
    request_id: str,
    detail: str,
    sent_at: float | None,
    since: float | None,
    remembered: Sequence[ApprovalRule],
) -> TransitionResult:
    """Two clean list scans did not find an unknown order: it is parked, or sent again where a person's word says so.

    Args:
        sent_at: Unix seconds of the permit that the list scans were about; they say nothing of another one.
        since: Unix seconds by the service's clock at which the first of these list scans began; ``None`` for no word.
    """
    row = named_row(commit, request_id)
    if sent_at is not None and row.attempt and row.permitted_at != sent_at:
        return TransitionResult(request_id=row.request_id, before=row.state, state=row.state)
    word, why_not = None, None
    if since is not None and row.state is State.UNKNOWN:
        word, why_not = _word_for(commit, row, since, remembered)
    if why_not is not None:
        detail = f"{detail}; it is not sent again by the listing deadline: {why_not}"
    evidence = Evidence(signal=Signal.SWEPT_CLEAN_TWICE, source="sweep", request_id=request_id, detail=detail)
    if word is None:
        return apply(commit, row, evidence)
    record_evidence(commit, row, evidence, State.PARKED, None)
    plan_again(commit, row, word.who, word.why, f"listing deadline {word.number}, {word.deadline}: {detail}")
    used = {"sent": word.sent + 1, "spent": amount_text(word.spent + Decimal(row.amount))}
    kept = json.dumps(_kept(commit, word.number) | used)
    commit.execute("UPDATE resolution SET evidence = ? WHERE id = ?", (kept, word.number))
    return TransitionResult(request_id=row.request_id, before=row.state, state=State.PLANNED)


def give(
    commit: Commit, deadline: ListingDeadline, by: Signature, why: str, remembered: Sequence[ApprovalRule]
) -> None:
    """Keep a person's standing word; for its currency it takes the place of the one before.

    What was decided on the same currency last is a part of it, so that no approval counts for two of them.
    """
    last = _last(commit).get(currency := currency_key(deadline.currency), (0,))[0]
    terms = {
        "within": repr(float(deadline.within)),
        "until": repr(float(deadline.until)),
        "orders": deadline.orders,
        "amount": amount_text(deadline.amount),
        "total": amount_text(deadline.total),
    }
    decision = decision_proposal(
        f"send again by itself what the service has not {deadline} ({why})",
        ["listing deadline", currency, str(last), *map(str, terms.values())],
        batch_id="",
        orders=deadline.orders,
        amount=deadline.total,
        by=by,
    )
    check_decision(commit, decision, remembered)
    kept = json.dumps({"currency": currency, "digest": decision.digest, "voided": _voided(commit), **terms})
    resolve(commit, _GIVEN, by.who, why, evidence=kept)


def withdraw(commit: Commit, currency: str | None, by: Signature, why: str) -> bool:
    """Take back the word for a currency; tells whether there was one."""
    number, kind, *_ = _last(commit).get(key := currency_key(currency), (0, _WITHDRAWN))
    if kind == _GIVEN:
        resolve(commit, _WITHDRAWN, by.who, why, evidence=json.dumps({"currency": key, "of": number}))
    return bool(kind == _GIVEN)


def words(connection: Connection | Commit, now: float) -> Sequence[ListingWord]:
    """The word that was given last for each currency, also where it holds no more."""
    found = []
    voided = _voided(connection)
    for number, kind, who, why, at, kept in _last(connection).values():
        if kind == _GIVEN:
            word = _word(number, who, why, at, kept)
            found.append(_judged(word, now, is_voided=kept["voided"] != voided))
        else:
            given = connection.execute("SELECT who, why, at FROM resolution WHERE id = ?", (kept["of"],)).fetchone()
            word = _word(kept["of"], given[0], given[1], given[2], _kept(connection, kept["of"]))
            found.append(attrs.evolve(word, over=f"{who} has withdrawn it ({why})"))
    return found


def _voided(connection: Connection | Commit) -> float:
    """When the journal was last found to be copied or restored, or took over orders: no two such moments are equal."""
    (voided,) = connection.execute(f"SELECT {LAST_VOIDED}").fetchone()
    return float(voided)


def _kept(connection: Connection | Commit, number: int) -> dict[str, Any]:
    """The terms of a decision."""
    (kept,) = connection.execute("SELECT evidence FROM resolution WHERE id = ?", (number,)).fetchone()
    terms: dict[str, Any] = json.loads(kept)
    return terms


def _last(connection: Connection | Commit) -> dict[str, tuple[Any, ...]]:
    """What was decided last of each currency: number, kind, who, why, when and terms."""
    found = connection.execute(
        """SELECT id, kind, who, why, at, evidence FROM resolution WHERE order_id IS NULL AND run IS NULL
        AND kind IN (?, ?) ORDER BY id""",
        (_GIVEN, _WITHDRAWN),
    ).fetchall()
    kept = [(*facts, json.loads(evidence)) for *facts, evidence in found]
    return {one[-1]["currency"]: one for one in kept}


def _word(number: int, who: str, why: str, at: float, kept: dict[str, Any]) -> ListingWord:
    deadline = ListingDeadline(
        within=float(kept["within"]),
        until=float(kept["until"]),
        orders=int(kept["orders"]),
        amount=Decimal(kept["amount"]),
        total=Decimal(kept["total"]),
        currency=kept["currency"] or None,
    )
    sent, spent = int(kept.get("sent", 0)), Decimal(kept.get("spent", 0))
    return ListingWord(number=number, deadline=deadline, who=who, why=why, at=at, sent=sent, spent=spent)


def _judged(word: ListingWord, now: float, *, is_voided: bool) -> ListingWord:
    """With the reason why it holds no more, if it does not."""
    over = None
    if is_voided:
        over = (
            "the journal was copied or restored since, took over orders, or began a batch in quarantine: give it again"
        )
    elif now >= word.deadline.until:
        over = f"it ended on {datetime.fromtimestamp(word.deadline.until, UTC):%Y-%m-%d at %H:%M} UTC"
    elif word.sent >= word.deadline.orders:
        over = f"{word.sent} orders were sent again by it, and it allows no more"
    return attrs.evolve(word, over=over)


def _word_for(
    commit: Commit, row: Row, since: float, remembered: Sequence[ApprovalRule]
) -> tuple[ListingWord | None, str | None]:
    """The word by which an order is sent again; else why it is not, where there was a word for its currency."""
    currency, amount = currency_key(currency_of(row.body)), Decimal(row.amount)
    given = {currency_key(word.deadline.currency): word for word in words(commit, max(commit.now, since))}
    if (word := given.get(currency)) is None:
        return None, None
    deadline, sent_at = word.deadline, row.permitted_at or row.updated_at
    why_not = word.over
    if why_not is None and amount > deadline.amount:
        why_not = f"it is for orders of {deadline.amount:,f} at most"
    if why_not is None and word.spent + amount > deadline.total:
        why_not = f"with {word.spent:,f} that were sent again by it, this would be more than {deadline.total:,f}"
    if why_not is None and is_forgotten(commit, row):
        why_not = "the order was sent before the journal was copied or restored, or took over orders"
    if why_not is None and sent_at + deadline.waits > since:
        why_not = f"no two lists are known to be read {deadline.waits:g} s after it was sent, by the service's clock"
    if why_not is None and not (is_silent(commit, row) and not _may_be_told(commit, row)):
        why_not = "something else speaks of the order, or of one whose id its own begins with"
    if why_not is None:
        try:
            check_approvals(commit, _kept(commit, word.number)["digest"], remembered)
        except NotApproved as error:
            why_not = error.message
    return (word, None) if why_not is None else (None, why_not)


def _may_be_told(commit: Commit, row: Row) -> bool:
    """Whether what was told of another may be about this order: ids may be cut off, or left out."""
    key, amount = plain_id(row.request_id), Decimal(row.amount)
    marks, keys = marks_for([key[:length] for length in range(1, len(key) + 1)])
    shorter = commit.execute(
        f"""SELECT o.amount FROM outbox o WHERE o.request_key IN ({marks}) AND o.id <> ? AND (o.conflict IS NOT NULL
        OR o.state {among(IN_DOUBT)} OR EXISTS (SELECT 1 FROM evidence v WHERE v.order_id = o.id
        AND v.before {among(IN_DOUBT)} AND v.after <> v.before AND v.news <> ?))
        UNION ALL SELECT amount FROM ipn_event WHERE request_key IS NULL AND order_id IS NULL""",  # noqa: S608 - marks
        (*keys, row.id, Signal.SWEPT_CLEAN_TWICE),
    ).fetchall()
    unmatched = commit.execute(
        f"SELECT 1 FROM ipn_event WHERE request_key IN ({marks}) AND order_id IS NULL LIMIT 1",  # noqa: S608 - marks
        keys,
    ).fetchone()
    return unmatched is not None or amount in {Decimal(told or amount).copy_abs() for (told,) in shorter}
