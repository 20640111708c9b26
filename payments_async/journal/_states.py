"""The life of an order as one table: state x news -> state. A journal writes down what it answers.

For whoever edits the table: an order becomes ``planned`` again only by proof that nothing of its last attempt left, or
by a named person where it is ``parked``, or would be (a listing deadline). No other way leads back: each would be a
second payment. After a takeover the proof counts only where no earlier attempt is open and nothing else speaks of the
order: that is decided before. Nothing that is only notified settles an order that was never sent: a forged notification
would leave it unpaid. Every pair is written out; a missing one fails the import.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from itertools import product
from typing import NamedTuple


class State(enum.StrEnum):
    """Where an order stands."""

    PLANNED = "planned"
    SENDING = "sending"
    ACCEPTED = "accepted"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    REVERSED = "reversed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    PARKED = "parked"


class News(enum.StrEnum):
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


class Verdict(NamedTuple):
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
        News.ACCEPTED, News.SWEPT_CLEAN_TWICE,
        News.NOTIFIED_PROCESSING, News.NOTIFIED_SUCCESSFUL, News.NOTIFIED_FAILED, News.NOTIFIED_REVERSED,
        News.NOTIFIED_UNRECOGNISED,
        News.LOOKED_UP_PROCESSING, News.LOOKED_UP_SUCCESSFUL, News.LOOKED_UP_FAILED, News.LOOKED_UP_REVERSED,
    }
)  # fmt: skip
FINAL = frozenset({State.SUCCESSFUL, State.FAILED, State.REVERSED, State.REJECTED})

# What somebody who brings it says of an order, in a few words.
SAID: Mapping[News, str] = {
    News.ACCEPTED: "the service has it",
    News.REJECTED: "the service refused it",
    News.NOT_SENT: "it was not sent",
    News.NOTIFIED_PROCESSING: "it is being processed",
    News.NOTIFIED_SUCCESSFUL: "it was paid",
    News.NOTIFIED_FAILED: "it failed",
    News.NOTIFIED_REVERSED: "it was reversed",
    News.NOTIFIED_UNRECOGNISED: "something nobody documented happened to it",
    News.LOOKED_UP_PROCESSING: "it is being processed",
    News.LOOKED_UP_SUCCESSFUL: "it was paid",
    News.LOOKED_UP_FAILED: "it failed",
    News.LOOKED_UP_REVERSED: "it was reversed",
}

# The rule that decides, in a few words; shown by `explain`.
RULES: Mapping[News, str] = {
    News.PERMITTED: "a POST happens only after a committed permit",
    News.NOT_SENT: "planned again only by the last permit's holder, who proves that no byte left or that it was unread",
    News.ACCEPTED: "evidence is never fenced and moves forward only",
    News.REJECTED: "the service said no to this very attempt, and no earlier one is open",
    News.UNKNOWN: "no usable answer: only evidence settles it",
    News.LEASE_EXPIRED: "an expired lease never returns an order to planned",
    News.NOTIFIED_PROCESSING: "evidence is never fenced and moves forward only",
    News.NOTIFIED_SUCCESSFUL: "evidence is never fenced and moves forward only",
    News.NOTIFIED_FAILED: "a notified failure never leads to a second payment by itself",
    News.NOTIFIED_REVERSED: "a success may be reversed later",
    News.NOTIFIED_UNRECOGNISED: "the service knows the order; what it says of it is undocumented",
    News.LOOKED_UP_PROCESSING: "evidence is never fenced and moves forward only",
    News.LOOKED_UP_SUCCESSFUL: "evidence is never fenced and moves forward only",
    News.LOOKED_UP_FAILED: "evidence is never fenced and moves forward only",
    News.LOOKED_UP_REVERSED: "a success may be reversed later",
    News.SWEPT_CLEAN_TWICE: "not in the list is no proof: parked for a person, never resent",
    News.WRITTEN_OFF: "planned again only by a named person, with a reason",
}

# Cells: a state moves there; "=" changes nothing; "!" is a contradiction, kept and shown, and the state stays;
# "!state" moves there and is shown as well: the service knows an order that this journal says was never sent. Where a
# slash parts two, the first is for what was looked up, the second for what was notified.
# A star marks an order that was written off after it was sent: a second one may exist, so a refusal proves nothing and
# evidence is believed as if the order were unknown. A minus marks one that was never sent, and is parked because
# something contradicts that.
#
# The columns, in this order.
_COLUMNS = (
    (News.PERMITTED,), (News.NOT_SENT,), (News.ACCEPTED,), (News.REJECTED,), (News.UNKNOWN,), (News.LEASE_EXPIRED,),
    (News.LOOKED_UP_PROCESSING, News.NOTIFIED_PROCESSING), (News.NOTIFIED_UNRECOGNISED,),
    (News.LOOKED_UP_SUCCESSFUL, News.NOTIFIED_SUCCESSFUL), (News.LOOKED_UP_FAILED, News.NOTIFIED_FAILED),
    (News.LOOKED_UP_REVERSED, News.NOTIFIED_REVERSED), (News.SWEPT_CLEAN_TWICE,), (News.WRITTEN_OFF,),
)  # fmt: skip
_TABLE = """
            permit   not_sent accepted   rejected unknown expired processing         strange   success             failed          reversed           swept  written_off
planned     sending  =        !accepted  =        unknown =       !accepted/!parked  !parked   !successful/!parked !failed/!parked !reversed/!parked  =      =
planned*    sending  =        accepted   =        unknown =       accepted           accepted  successful          failed          reversed           =      =
sending     =        planned  accepted   rejected unknown unknown accepted           accepted  successful          failed          reversed           =      =
sending*    =        planned  accepted   unknown  unknown unknown accepted           accepted  successful          failed          reversed           =      =
unknown     =        planned  accepted   rejected =       =       accepted           accepted  successful          failed          reversed           parked =
unknown*    =        =        accepted   =        =       =       accepted           accepted  successful          failed          reversed           parked =
parked      =        planned  accepted   rejected =       =       accepted           accepted  successful          failed          reversed           =      planned
parked*     =        =        accepted   =        =       =       accepted           accepted  successful          failed          reversed           =      planned
parked-     =        =        !accepted  =        =       =       !accepted/!        !         !successful/!       !failed/!       !reversed/!        =      planned
accepted    =        !        =          !        =       =       =                  =         successful          failed          reversed           =      =
successful  =        !        =          !        =       =       =                  !         =                   !               reversed           =      =
failed      =        =        =          =        =       =       =                  !         !                   =               !                  =      =
reversed    =        !        =          !        =       =       =                  !         =                   !               =                  =      =
rejected    =        =        !          =        =       =       !                  !         !                   =               !                  =      =
"""  # noqa: E501 - a table that wraps cannot be read


def next_state(state: State, news: News, *, sent_before: bool = False, unsent: bool = False) -> Verdict:
    """What news does to an order in this state.

    Whether the news is about this order at all (request id, magnitude, currency) is decided before.

    Args:
        sent_before: The order was written off once and may have been carried out then.
        unsent: No attempt of ours can have been carried out: none was made, or each is proved not to have left. It
            matters to an order that is planned again or parked.
    """
    return _VERDICTS[state, sent_before, unsent, news]


def _verdict(state: State, cell: str) -> Verdict:
    match cell:
        case "=":
            return Verdict(state, ignored=True)
        case "!":
            return Verdict(state, conflict=True)
        case _ if cell.startswith("!"):
            return Verdict(State(cell[1:]), conflict=True)
        case _:
            return Verdict(State(cell))


def _verdicts() -> dict[tuple[State, bool, bool, News], Verdict]:
    rows = {name: cells for name, *cells in map(str.split, _TABLE.strip().splitlines()[1:])}
    found = {}
    for state, sent_before, unsent in product(State, (False, True), (False, True)):
        star = rows.get(f"{state}*", rows[state]) if sent_before else rows[state]
        cells = rows.get(f"{state}-", rows[state] if state is State.PLANNED else star) if unsent else star
        for column, cell in zip(_COLUMNS, cells, strict=True):
            for news, part in zip(column, cell.split("/") if "/" in cell else [cell] * len(column), strict=True):
                found[state, sent_before, unsent, news] = _verdict(state, part)
    if len(found) != 4 * len(State) * len(News):
        raise AssertionError("a pair of state and news is undecided")
    return found


_VERDICTS = _verdicts()
