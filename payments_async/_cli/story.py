"""What happened to an order, as somebody would tell it."""

from collections.abc import Mapping, Sequence

from payments_async.journal import Entry, Happening, Signal
from payments_async.journal.contract import SAID

_ANSWERS: Mapping[Signal, str] = {
    Signal.ACCEPTED: "The service accepted it",
    Signal.REJECTED: "The service refused it",
    Signal.UNKNOWN: "No usable answer: it may have been carried out",
    Signal.NOT_SENT: "It was surely not carried out",
}
_SOURCES: Mapping[str, str] = {
    "list": "The list of transactions",
    "record": "The transaction's own record",
    "stored notification": "A notification that was stored",
}
_DECIDED: Mapping[str, str] = {
    "written_off": "it never reached the service, and may be sent again",
    "acknowledged": "the contradiction is known, and may rest",
    "cancelled": "it is not to be sent",
}
# of an order that the journal does not hold
_ELSEWHERE: Mapping[str, str] = {
    "laid": "It lies in the tray of the outbox {by}, and was not taken yet{also}.",
    "registered": "The journal {by} has it, in {detail}, and may have sent it.",
    "forgotten": "This very journal had it, in {detail}, before it was restored; it may have sent it.",
}


def sentence(happening: Happening) -> str:
    """One thing in the life of an order, as somebody would tell it."""
    signal, by, detail = (
        happening.signal or Signal.PERMITTED,
        happening.by or "an unnamed source",
        happening.detail or "",
    )
    also = f": {detail}" if detail else ""
    match happening.what:
        case "planned":
            return f"Written down as {detail}."
        case "permit":
            return f"{by} was permitted to send it ({detail}); it may have left from here on."
        case "answer" if signal in _ANSWERS:
            named = f" It calls that exchange {happening.correlation_id}." if happening.correlation_id else ""
            return f"{_ANSWERS[signal]}{also}.{named}"
        case "delivery":
            return f"A notification came in from {by}. It is {detail}."
        case "notification" if signal in SAID:
            return f"A notification from {by.removeprefix('notification ')} says that {SAID[signal]}{also}."
        case "evidence" if signal in SAID:
            return f"{_source(by)} shows that {SAID[signal]}{also}."
        case "evidence" if signal is Signal.SWEPT_CLEAN_TWICE:
            return f"It is not to be found{also}."
        case "takeover":
            who = worker_of(by.removeprefix("lease of "))
            return f"The process that was sending it fell silent, and its lease ran out: {who}."
        case "resolution":
            return f"{by} decided: {_decided(detail)}."
        case other:
            kind = "forgotten" if other == "registered" and happening.by is None else other
            return _ELSEWHERE.get(kind, f"{other} by {{by}}{{also}}.").format(by=by, detail=detail, also=also)


def _source(by: str) -> str:
    """Where evidence was found."""
    if by.startswith("list "):
        return f"The list of {by.removeprefix('list ')} transactions"
    return _SOURCES.get(by, f"A look-up ({by})")


def _decided(detail: str) -> str:
    kind, separator, why = detail.partition(": ")
    return f"{_DECIDED.get(kind, kind)}{separator}{why}"


def service_words(entry: Entry) -> str:
    """What the service said of an order."""
    return " ".join(filter(None, ("" if entry.code is None else f"code {entry.code}:", entry.message or "")))


def open_contradictions(story: Sequence[Happening]) -> list[str]:
    """All that nobody has acknowledged yet."""
    found: list[str] = []
    for happening in story:
        if happening.is_acknowledgement:
            found = []
        elif happening.conflict and happening.conflict not in found:
            found.append(happening.conflict)
    return found


def worker_of(owner: str) -> str:
    """Which process has a lease, for a person.

    >>> worker_of("desk-1:4711:0f3c19ab")
    'process 4711 on desk-1'
    """
    machine, _, rest = owner.partition(":")
    process = rest.partition(":")[0]
    return f"process {process} on {machine}" if process.isdecimal() else owner
