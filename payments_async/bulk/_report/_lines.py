"""One order of a journal as a line of a report: outcome, since when, what evidence, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

from payments_async._values.frozen import frozen
from payments_async._values.masking import mask, redact
from payments_async._wire.kinds import item_of, reference_of
from payments_async._wire.orders import BankAccount, CollectionOrder
from payments_async.bulk._retry_ids import LaterTry
from payments_async.journal._records import Entry, Happening, OutcomeWithHistory
from payments_async.journal._states import FINAL, UNPAID, State

# A parked order of which no attempt was ever made: something contradicted that, and so it was not sent.
_NEVER_SENT = "not sent, for something says that it was: ask the service; if it has no such transaction, send it again"
_DECIDED: Mapping[str, str] = {
    "written_off": "sent again: a person states that it never reached the service",
    "acknowledged": "contradiction acknowledged",
    "cancelled": "cancelled: it is not sent",
}
_CONFLICT = "evidence contradicts: ask the service what is true, then acknowledge it"
_WORDS = {
    "planned": "the plan",
    "permit": "the permit to send",
    "answer": "the service's answer",
    "notification": "a notification",
    "evidence": "a look-up",
    "takeover": "a worker that stopped while sending",
    "resolution": "a decision",
}


@frozen(kw_only=True)  # created in half the time; of these there is one for every order
class ReportLine:
    """What a report says of one order. Personal values are masked unless they were asked for.

    Attributes:
        at: When the order came to where it stands, in UTC.
        evidence: What says so.
        payee: The number of the wallet, account or line.
        need: What a person must do; empty for most orders.
        unpaid: Why it ended without being paid; empty for most orders.
        decisions: What persons decided about it: who, when and why; empty for most orders.
    """

    request_id: str
    kind: str
    name: str
    payee: str
    bank_code: str
    amount: Decimal
    currency: str
    item: str
    state: State
    at: datetime | None
    evidence: str
    transaction_id: str
    attempts: int
    code: str
    message: str
    need: str
    unpaid: str
    decisions: str


@frozen(kw_only=True)
class ReportDecision:
    """What a named person decided.

    Attributes:
        about: The order, or the batch.
        what, why: In words.
        at: When, in UTC.
    """

    about: str
    who: str
    what: str
    why: str
    at: datetime | None

    def __str__(self) -> str:
        moment = "" if self.at is None else f" on {moment_text(self.at)} UTC"
        return f"{self.what}, by {self.who}{moment}: {self.why}"


def standing_words(counts: Mapping[State, int]) -> str:
    """Whether a batch is final, and what it waits for otherwise."""
    waits = [f"{counts[state]:,} {state.meaning.short}" for state in State if state not in FINAL and counts.get(state)]
    return f"not final yet: {', '.join(waits)}" if waits else "final"


def decided(happening: Happening, about: str, *, personal: bool) -> ReportDecision:
    """What a person decided about an order or a batch."""
    kind, _, why = (happening.detail or "").partition(": ")
    return ReportDecision(
        about=about,
        who=happening.by or "",
        what=_DECIDED.get(kind, kind),
        why=why if personal else redact(why),
        at=_moment(happening.at),
    )


def line_of(
    standing: OutcomeWithHistory, *, personal: bool, later: LaterTry | None = None, currency: str = ""
) -> ReportLine:
    """The line of an order; where nothing has happened to it, what the order itself tells.

    Args:
        later: The order by which it was tried again at last.
        currency: Of an order that names none.
    """
    entry, decision = standing.entry, standing.decision
    order = entry.order
    name, payee = order.beneficiary.name, reference_of(order)
    bank = None if isinstance(order, CollectionOrder) else order.destination
    message = "" if not entry.message else redact(entry.message, () if personal else (name, payee, *name.split()))
    code = "" if entry.code is None else str(entry.code)
    return ReportLine(
        request_id=entry.request_id,
        kind=order.kind,
        name=name if personal else mask(name),
        payee=payee if personal else mask(payee),
        bank_code=bank.bank_code if isinstance(bank, BankAccount) else "",
        amount=entry.amount,
        currency=order.currency or currency,
        item=item_of(order),
        state=entry.state,
        at=_moment(decision.at if decision else entry.updated_at),
        evidence=evidence_words(decision) if decision else "",
        transaction_id=entry.transaction_id or "",
        attempts=entry.attempt,
        code=code,
        message=message,
        need=need_of(entry),
        unpaid="; ".join(filter(None, ("" if later is None else str(later), _unpaid(entry.state, code, message)))),
        decisions="; ".join(str(decided(one, entry.request_id, personal=personal)) for one in standing.persons),
    )


def need_of(entry: Entry) -> str:
    """What a person must do about an order, or nothing."""
    needs = [f"{_CONFLICT} ({entry.conflict})"] if entry.conflict else []
    meaning = entry.state.meaning
    if entry.state is State.PARKED and not entry.attempt:
        needs.append(_NEVER_SENT)
    elif meaning.need:
        needs.append(f"{meaning.now}: {meaning.need}")
    return "; ".join(needs)


def _unpaid(state: State, code: str, message: str) -> str:
    why = state.meaning.now if state in UNPAID else ""
    said = " ".join(filter(None, (code and f"code {code}:", message)))
    return f"{why}: {said}" if why and said else why


def evidence_words(happening: Happening) -> str:
    """What a happening is called, and who brought it."""
    words = _WORDS.get(happening.what, happening.what)
    match happening.what:
        case "notification" if happening.by:
            return f"{words} from {happening.by.removeprefix('notification ')}"
        case "evidence" if happening.by:
            return f"{words} ({happening.by})"
        case "resolution" if happening.by:
            return f"{words} by {happening.by}"
        case _:
            return words


def moment_text(moment: datetime) -> str:
    """Day and time to the second."""
    return moment.isoformat(" ", "seconds")[:19]


def _moment(at: float) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at else None
