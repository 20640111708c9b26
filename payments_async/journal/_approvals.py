"""Approvals: who proposed a batch, who else approved it, and how many have to before it may be sent. Pure."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal

from payments_async._values.frozen import field, frozen
from payments_async.journal._faults import JournalRefused

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST = 100  # approvals that anybody may ask for


@frozen(kw_only=True)
class Signature:
    """Who did something, and where.

    Attributes:
        who: A person's name, as they state it.
        login: The account of the machine that they did it under; empty where that is not known.
        machine: Its name; empty likewise.
        at: Unix seconds by the database's clock; what is passed in is not looked at.
    """

    who: str
    login: str = ""
    machine: str = ""
    at: float = 0.0

    def __attrs_post_init__(self) -> None:
        if not _plain(self.who):
            raise ValueError("who: a person's name, not an empty text")

    def __str__(self) -> str:
        where = "@".join(filter(None, (self.login, self.machine)))
        return f"{self.who} ({where})" if where else self.who


@frozen(kw_only=True)
class Proposal:
    """What a person wants to be approved: one batch, as its plan came out.

    Attributes:
        digest: Of the plan: SHA-256 over all that the orders say, in hexadecimal digits.
        orders, amount, currency: What it comes to.
        file: What the batch was made from.
        by: Its maker.
        path: Where that file is on the maker's machine; empty where it is not known.
        file_digest: SHA-256 of its bytes, in hexadecimal digits; empty likewise.
        options: How it was read and checked, by the names of the options.
        withdrawn: Who has taken it back since, or ``None``.
    """

    digest: str
    batch_id: str
    orders: int
    amount: Decimal
    currency: str | None
    file: str
    by: Signature
    path: str = field(default="", repr=False)
    file_digest: str = ""
    options: Mapping[str, object] = field(factory=dict, repr=False)
    withdrawn: Signature | None = None

    def __attrs_post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.digest):
            raise ValueError("digest: the 64 hexadecimal digits that the plan shows")


class NotApproved(JournalRefused):
    """Too few persons other than its maker have approved the batch, or the decision. Nothing of it was done.

    Attributes:
        proposal: The decision, to be proposed (``Journal.propose``) and approved; ``None`` for a batch.
    """

    remedy = (
        "have the plan proposed (bulk plan --maker NAME; a decision is proposed when it is tried) and approved (bulk "
        "approve DIGEST --who NAME)"
    )
    proposal: Proposal | None = None


@frozen(kw_only=True)
class Approval:
    """One person's word that a batch may be sent.

    Attributes:
        note: What they looked at, in their words.
        by: Who gave it.
        withdrawn: Who has taken it back since, or ``None``.
    """

    digest: str
    note: str
    by: Signature
    withdrawn: Signature | None = None


@frozen(kw_only=True)
class ApprovalRule:
    """How many persons have to approve each batch of a journal before anything of it is sent.

    Attributes:
        needed: Persons other than the one who proposed it; 0 asks for none.
        shared_logins: Persons are told apart by their names alone, since they work under one login. Otherwise what
            comes from the login of the maker, or from that of another approval, does not count.
        why: The reason, in the words of who set it.
        by: Who set it; ``None`` if it was not set.
    """

    needed: int = 0
    shared_logins: bool = False
    why: str = ""
    by: Signature | None = None

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.needed <= _MOST:
            raise ValueError(f"needed: a number of persons from 0 to {_MOST}")


def kept_rule(needed: int, shared_logins: int, why: str, who: str, login: str, machine: str, at: float) -> ApprovalRule:
    """The rule that was written down so."""
    by = Signature(who=who, login=login, machine=machine, at=at)
    return ApprovalRule(needed=needed, shared_logins=bool(shared_logins), why=why, by=by)


def decision_proposal(
    what: str, parts: Sequence[str], *, batch_id: str, orders: int, amount: Decimal, by: Signature
) -> Proposal:
    """What a person decides that sends orders, as others approve it.

    Args:
        what: The decision in words: shown to who approves it.
        parts: All that it depends on; with another one it is another decision.
    """
    digest = hashlib.sha256("\0".join(("payments-async decision 1", *parts)).encode()).hexdigest()
    return Proposal(digest=digest, batch_id=batch_id, orders=orders, amount=amount, currency=None, file=what, by=by)


def is_one_person(one: Signature, other: Signature, *, shared_logins: bool) -> bool:
    """Whether two signatures may be one person's: the same name, however it is written, or the same login."""
    if _plain(one.who) == _plain(other.who):
        return True
    known = one.login and one.machine
    return bool(known) and not shared_logins and (one.login, one.machine) == (other.login, other.machine)


def counted_approvals(
    rule: ApprovalRule, proposals: Sequence[Proposal], approvals: Sequence[Approval]
) -> Sequence[Approval]:
    """The approvals that count: standing, by somebody other than the makers, and one for each person."""
    counted: list[Approval] = []
    for one in approvals:
        others = [proposal.by for proposal in proposals] + [before.by for before in counted]
        if one.withdrawn is None and not any(
            is_one_person(one.by, other, shared_logins=rule.shared_logins) for other in others
        ):
            counted.append(one)
    return counted


def is_forgotten(rule: ApprovalRule, remembered: ApprovalRule) -> bool:
    """Whether a rule that somebody remembers is missing from a journal: a stricter one than it has, and a later one."""
    if remembered.by is None or (rule.by is not None and rule.by.at >= remembered.by.at):
        return False
    is_looser = rule.shared_logins and not remembered.shared_logins
    return remembered.needed > rule.needed or bool(remembered.needed == rule.needed and rule.needed and is_looser)


def rule_in_force(rule: ApprovalRule, remembered: Sequence[ApprovalRule]) -> ApprovalRule:
    """The rule that holds: that of the journal, or a later and stricter one that its machine remembers.

    Args:
        remembered: Of this journal and of the account's others, oldest first.
    """
    for one in remembered:
        if is_forgotten(rule, one):
            rule = one
    return rule


def why_not_approved(
    rule: ApprovalRule, digest: str | None, proposals: Sequence[Proposal], approvals: Sequence[Approval], needed: int
) -> NotApproved | None:
    """Why a batch may not be sent, where it lacks an approval.

    Args:
        needed: How many the sender asks for; that of the journal counts where it is higher.
    """
    needed = max(needed, rule.needed)
    if not needed:
        return None
    of = f" (as {rule.by.who} has set: {rule.why})" if rule.by is not None and rule.needed == needed else ""
    if digest is None:
        return NotApproved(
            f"{_persons(needed)} must approve each batch, and of this one there is no digest to approve{of}"
        )
    if all(one.withdrawn is not None for one in proposals):
        return NotApproved(f"{_persons(needed)} must approve it, and it was not proposed: {digest}{of}")
    counted = counted_approvals(rule, proposals, approvals)
    if len(counted) >= needed:
        return None
    makers = ", ".join(sorted({proposal.by.who for proposal in proposals}))
    have = ", ".join(one.by.who for one in counted) or "nobody"
    own = [one.by for one in approvals if one.withdrawn is None and one not in counted]
    doubt = f"; not counted, as the maker's own or a second one: {', '.join(map(str, own))}" if own else ""
    return NotApproved(
        f"{_persons(needed)} other than {makers} must approve it; {have} has so far{doubt}. Its digest: {digest}{of}"
    )


def _persons(count: int) -> str:
    return "1 person" if count == 1 else f"{count} persons"


def _plain(name: str) -> str:
    """A name without regard to letters, blanks and dots."""
    letters = unicodedata.normalize("NFKD", name).casefold()
    return "".join(character for character in letters if character.isalnum())
