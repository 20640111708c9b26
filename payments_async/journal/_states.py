"""The life of an order as one table: state x news -> state. A journal writes down what it answers.

To edit the table: an order becomes ``planned`` again only by proof that nothing of its last attempt left, or by a named
person where it is ``parked``, or would be (a listing deadline). No other way leads back: each is a second payment.
A cancelled order that was sent before is ``parked``: it may have been paid then. After a takeover the proof counts only
where no earlier attempt is open and nothing else speaks of the order: that is decided before. Nothing that is only
notified settles an order that was never sent: a forged notification would leave it unpaid. Every pair is written out; a
missing one fails the import.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from itertools import product
from typing import Literal, NamedTuple

from payments_async._values.spelled import Spelled


class State(Spelled):
    """Where an order stands; in the order in which states are shown.

    It equals its text in any letter case, and the ``TransactionStatus`` of the same name.

    >>> State.UNKNOWN.meaning.may_be_paid_again
    False
    """

    PLANNED = "planned"
    SENDING = "sending"
    ACCEPTED = "accepted"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    REVERSED = "reversed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    PARKED = "parked"

    @property
    def meaning(self) -> Meaning:
        """What it means to a person, and to a program that has to go on."""
        return _MEANINGS[self]


Figure = Literal["paid", "on the way", "not paid", "needs a person"]


class Meaning(NamedTuple):
    """What a state means.

    Attributes:
        short: In a few words.
        now: What is known of the order, as a clause.
        again: Whether it may be paid once more, in sentences.
        need: What a person must do, as a clause; empty where nothing is needed.
        colour: On a terminal.
        is_end: The service is not asked about it any more.
        was_paid: The service paid it; it may have come back since.
        may_be_paid_again: Under another request id, as long as no evidence contradicts.
        is_confirmed: The service has said that it has the order.
    """

    short: str
    now: str
    again: str
    colour: str
    need: str = ""
    is_end: bool = False
    was_paid: bool = False
    may_be_paid_again: bool = False
    is_confirmed: bool = False

    @property
    def figure(self) -> Figure:
        """In which of the four figures of a batch the order is counted."""
        if self.need:
            return "needs a person"
        if self.may_be_paid_again:
            return "not paid"
        return "paid" if self.is_end else "on the way"

    @property
    def sentence(self) -> str:
        """What is known of the order, and what a person must do."""
        rest = self.need or ("it was not paid" if self.is_end and not self.was_paid else "")
        words = f"{self.now}: {rest}" if rest else self.now
        return f"{words[0].upper()}{words[1:]}."


_MEANINGS: Mapping[State, Meaning] = {
    State.PLANNED: Meaning(
        short="not sent",
        now="it was not sent, or surely did not arrive",
        again="No: it lies here to be sent, once. Under another id it would be paid twice.",
        colour="dim",
    ),
    State.SENDING: Meaning(
        short="being sent",
        now="a worker holds the permit to send it, or died with it",
        again="No: it may have left already.",
        colour="cyan",
    ),
    State.ACCEPTED: Meaning(
        short="accepted, not settled",
        now="the service has it; its end is not known yet",
        again="No: the service has it.",
        colour="cyan",
        is_confirmed=True,
    ),
    State.SUCCESSFUL: Meaning(
        short="paid",
        now="it was paid",
        again="No: it was paid.",
        colour="green",
        is_end=True,
        was_paid=True,
        is_confirmed=True,
    ),
    State.FAILED: Meaning(
        short="failed: not paid",
        now="the service took it, and then it failed",
        again="Yes, under a new request id: this one is used up.",
        colour="red",
        is_end=True,
        may_be_paid_again=True,
        is_confirmed=True,
    ),
    State.REVERSED: Meaning(
        short="paid, and came back",
        now="it was paid, and the money came back",
        again="Yes, once you know why it came back; under a new request id.",
        colour="yellow",
        is_end=True,
        was_paid=True,
        may_be_paid_again=True,
        is_confirmed=True,
    ),
    State.REJECTED: Meaning(
        short="refused: not paid",
        now="the service refused it",
        again="Yes, once what it was refused for is mended; under a new request id.",
        colour="red",
        is_end=True,
        may_be_paid_again=True,
    ),
    State.CANCELLED: Meaning(
        short="cancelled: not paid",
        now="a person or the application cancelled it before it was sent",
        again="Yes, under a new request id: this one is used up.",
        colour="dim",
        is_end=True,
        may_be_paid_again=True,
    ),
    State.UNKNOWN: Meaning(
        short="may have been paid",
        now="it may have been paid",
        again="No: it may have been paid.",
        colour="magenta",
        need="reconcile; never send it again under another id",
    ),
    State.PARKED: Meaning(
        short="not found",
        now="it may have been paid, and two clean list scans did not find it",
        again="No. If the service surely never had it, write it off: then it is sent again, under its own id.",
        colour="magenta",
        need="ask the service, then write it off or wait for evidence",
    ),
}
# Lists of states, each in the order in which states are shown.
FINAL = frozenset(state for state in State if state.meaning.is_end)
CONFIRMED = frozenset(state for state in State if state.meaning.is_confirmed)
AGAIN = tuple(state for state in State if state.meaning.may_be_paid_again)  # over, and the payee has no money
UNPAID = tuple(state for state in AGAIN if state is not State.CANCELLED)  # ... though somebody wants them to have it
UNSENT = (State.PLANNED, State.SENDING)  # on the way: there is nothing to tell yet
UNSETTLED = tuple(state for state in State if state not in {*UNSENT, *FINAL, *CONFIRMED})  # may have been paid
IN_DOUBT = (State.SENDING, *UNSETTLED)  # may have left, and nothing confirms it
OPEN = (*UNSETTLED, State.ACCEPTED)  # the service is asked about them


class Signal(enum.StrEnum):
    """What was learned of an order."""

    PERMITTED = "permitted"
    NOT_SENT = "not_sent"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    LEASE_EXPIRED = "lease_expired"
    NOTIFIED_PROCESSING = "notified_processing"
    NOTIFIED_SUCCESSFUL = "notified_successful"
    NOTIFIED_FAILED = "notified_failed"
    NOTIFIED_REVERSED = "notified_reversed"
    NOTIFIED_UNRECOGNISED = "notified_unrecognised"
    LOOKED_UP_PROCESSING = "looked_up_processing"
    LOOKED_UP_SUCCESSFUL = "looked_up_successful"
    LOOKED_UP_FAILED = "looked_up_failed"
    LOOKED_UP_REVERSED = "looked_up_reversed"
    SWEPT_CLEAN_TWICE = "swept_clean_twice"
    WRITTEN_OFF = "written_off"
    CANCELLED = "cancelled"


class Transition(NamedTuple):
    """What news does to an order.

    Attributes:
        state: The state from now on.
        conflict: It contradicts what is known: a person has to look. The state never follows a contradiction.
        ignored: It changes nothing and contradicts nothing.
    """

    state: State
    conflict: bool = False
    ignored: bool = False


# What anybody may bring. The rest is a permit, an answer to one, or what the journal or a person decides.
EVIDENCE = frozenset(
    {
        Signal.ACCEPTED, Signal.SWEPT_CLEAN_TWICE,
        Signal.NOTIFIED_PROCESSING, Signal.NOTIFIED_SUCCESSFUL, Signal.NOTIFIED_FAILED, Signal.NOTIFIED_REVERSED,
        Signal.NOTIFIED_UNRECOGNISED,
        Signal.LOOKED_UP_PROCESSING, Signal.LOOKED_UP_SUCCESSFUL, Signal.LOOKED_UP_FAILED, Signal.LOOKED_UP_REVERSED,
    }
)  # fmt: skip

# What somebody who brings it says of an order, in a few words.
SAID: Mapping[Signal, str] = {
    Signal.ACCEPTED: "the service has it",
    Signal.REJECTED: "the service refused it",
    Signal.NOT_SENT: "it was not sent",
    Signal.NOTIFIED_PROCESSING: "it is being processed",
    Signal.NOTIFIED_SUCCESSFUL: "it was paid",
    Signal.NOTIFIED_FAILED: "it failed",
    Signal.NOTIFIED_REVERSED: "it was reversed",
    Signal.NOTIFIED_UNRECOGNISED: "something undocumented happened to it",
    Signal.LOOKED_UP_PROCESSING: "it is being processed",
    Signal.LOOKED_UP_SUCCESSFUL: "it was paid",
    Signal.LOOKED_UP_FAILED: "it failed",
    Signal.LOOKED_UP_REVERSED: "it was reversed",
}

# The rule that decides, in a few words; shown by `explain`.
RULES: Mapping[Signal, str] = {
    Signal.PERMITTED: "a POST happens only after a committed permit",
    Signal.NOT_SENT: "planned again only by the last permit's holder, with proof that no byte left, or none was read",
    Signal.ACCEPTED: "evidence is never fenced and moves forward only",
    Signal.REJECTED: "the service said no to this very attempt, and no earlier one is open",
    Signal.UNKNOWN: "no usable answer: only evidence settles it",
    Signal.LEASE_EXPIRED: "an expired lease never returns an order to planned",
    Signal.NOTIFIED_PROCESSING: "evidence is never fenced and moves forward only",
    Signal.NOTIFIED_SUCCESSFUL: "evidence is never fenced and moves forward only",
    Signal.NOTIFIED_FAILED: "a notified failure never leads to a second payment by itself",
    Signal.NOTIFIED_REVERSED: "a success may be reversed later",
    Signal.NOTIFIED_UNRECOGNISED: "the service knows the order; what it says of it is undocumented",
    Signal.LOOKED_UP_PROCESSING: "evidence is never fenced and moves forward only",
    Signal.LOOKED_UP_SUCCESSFUL: "evidence is never fenced and moves forward only",
    Signal.LOOKED_UP_FAILED: "evidence is never fenced and moves forward only",
    Signal.LOOKED_UP_REVERSED: "a success may be reversed later",
    Signal.SWEPT_CLEAN_TWICE: "not in the list is not proof: parked for a person, never resent",
    Signal.WRITTEN_OFF: "planned again only by a named person, with a reason",
    Signal.CANCELLED: "only what was never sent can be cancelled",
}

# Cells: a state moves there; "=" changes nothing; "!" is a contradiction, kept and shown, and the state stays;
# "!state" moves there and is shown as well: the service knows an order that this journal says was never sent. Where a
# slash parts two, the first is for what was looked up, the second for what was notified.
# A star marks an order that a person had sent again: a second one may exist, so a refusal proves nothing and
# evidence is believed as if the order were unknown. A minus marks one that was never sent, and is parked because
# something contradicts that.
#
# The columns, in this order.
_COLUMNS = (
    (Signal.PERMITTED,), (Signal.NOT_SENT,), (Signal.ACCEPTED,), (Signal.REJECTED,), (Signal.UNKNOWN,),
    (Signal.LEASE_EXPIRED,),
    (Signal.LOOKED_UP_PROCESSING, Signal.NOTIFIED_PROCESSING), (Signal.NOTIFIED_UNRECOGNISED,),
    (Signal.LOOKED_UP_SUCCESSFUL, Signal.NOTIFIED_SUCCESSFUL), (Signal.LOOKED_UP_FAILED, Signal.NOTIFIED_FAILED),
    (Signal.LOOKED_UP_REVERSED, Signal.NOTIFIED_REVERSED), (Signal.SWEPT_CLEAN_TWICE,), (Signal.WRITTEN_OFF,),
    (Signal.CANCELLED,),
)  # fmt: skip
_TABLE = """
            permit   not_sent accepted   rejected unknown expired processing         strange   success             failed          reversed           swept  written_off cancelled
planned     sending  =        !accepted  =        unknown =       !accepted/!parked  !parked   !successful/!parked !failed/!parked !reversed/!parked  =      =           cancelled
planned*    sending  =        accepted   =        unknown =       accepted           accepted  successful          failed          reversed           =      =           parked
sending     =        planned  accepted   rejected unknown unknown accepted           accepted  successful          failed          reversed           =      =           =
sending*    =        planned  accepted   unknown  unknown unknown accepted           accepted  successful          failed          reversed           =      =           =
unknown     =        planned  accepted   rejected =       =       accepted           accepted  successful          failed          reversed           parked =           =
unknown*    =        =        accepted   =        =       =       accepted           accepted  successful          failed          reversed           parked =           =
parked      =        planned  accepted   rejected =       =       accepted           accepted  successful          failed          reversed           =      planned     =
parked*     =        =        accepted   =        =       =       accepted           accepted  successful          failed          reversed           =      planned     =
parked-     =        =        !accepted  =        =       =       !accepted/!        !         !successful/!       !failed/!       !reversed/!        =      planned     =
accepted    =        !        =          !        =       =       =                  =         successful          failed          reversed           =      =           =
successful  =        !        =          !        =       =       =                  !         =                   !               reversed           =      =           =
failed      =        =        =          =        =       =       =                  !         !                   =               !                  =      =           =
reversed    =        !        =          !        =       =       =                  !         =                   !               =                  =      =           =
rejected    =        =        !          =        =       =       !                  !         !                   =               !                  =      =           =
cancelled   =        =        !          =        =       =       !                  !         !                   =               !                  =      =           =
"""  # noqa: E501 - a table that wraps cannot be read


def next_state(state: State, signal: Signal, *, sent_before: bool = False, unsent: bool = False) -> Transition:
    """What news does to an order in this state.

    Whether the news is about this order at all (request id, magnitude, currency) is decided before.

    Args:
        sent_before: A person had it sent again; the first one may have been carried out.
        unsent: No attempt of ours can have been carried out: none was made, or each is proved not to have left. It
            matters to an order that is planned again or parked.
    """
    return _VERDICTS[state, sent_before, unsent, signal]


def _verdict(state: State, cell: str) -> Transition:
    match cell:
        case "=":
            return Transition(state, ignored=True)
        case "!":
            return Transition(state, conflict=True)
        case _ if cell.startswith("!"):
            return Transition(State(cell[1:]), conflict=True)
        case _:
            return Transition(State(cell))


def _verdicts() -> dict[tuple[State, bool, bool, Signal], Transition]:
    rows = {name: cells for name, *cells in map(str.split, _TABLE.strip().splitlines()[1:])}
    found = {}
    for state, sent_before, unsent in product(State, (False, True), (False, True)):
        star = rows.get(f"{state}*", rows[state]) if sent_before else rows[state]
        cells = rows.get(f"{state}-", rows[state] if state is State.PLANNED else star) if unsent else star
        for column, cell in zip(_COLUMNS, cells, strict=True):
            for signal, part in zip(column, cell.split("/") if "/" in cell else [cell] * len(column), strict=True):
                found[state, sent_before, unsent, signal] = _verdict(state, part)
    if len(found) != 4 * len(State) * len(Signal):
        raise AssertionError("a pair of state and news is undecided")
    return found


_VERDICTS = _verdicts()
