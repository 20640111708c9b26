"""Persons whose signed approvals count: registered by a decision that needs the same approvals as a batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal

import attrs

from payments_async.journal._approvals import (
    Approval,
    ApprovalRule,
    NotApproved,
    Signature,
    decision_proposal,
    is_one_person,
)
from payments_async.journal._signed_approvals import Approver, SignedApproval, checked_key, fingerprint_of, is_as_asked
from payments_async.journal._statements import _approvals
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit
from payments_async.journal._statements._evidence import resolve

_REGISTERED, _WITHDRAWN = "approver registered", "approver withdrawn"


def register(
    commit: Commit, name: str, public_key: str, by: Signature, why: str, remembered: Sequence[ApprovalRule]
) -> Approver:
    """Register a person's key; it takes the place of the one before. Raises ``NotApproved``."""
    made = Approver(name=name, public_key=checked_key(public_key), by=attrs.evolve(by, at=commit.now), why=why)
    known = _named(commit, name)
    if known is not None and known.public_key == made.public_key:
        return known
    for other in _all_registered(commit):
        if other.public_key == made.public_key and not _is_named(other, name):
            raise NotApproved(f"this key was registered for {other.name}: each person signs with a key of their own")
    decision = decision_proposal(
        f"count approvals signed by {name} with the key {made.fingerprint} ({why})",
        ["approver", name, made.public_key, str(_last(commit))],
        batch_id="",
        orders=0,
        amount=Decimal(0),
        by=by,
    )
    _approvals.check_decision(commit, decision, remembered)
    facts = {"name": name, "public_key": made.public_key, "login": by.login, "machine": by.machine}
    resolve(commit, _REGISTERED, by.who, why, evidence=json.dumps(facts))
    return made


def withdraw(commit: Commit, name: str, by: Signature, why: str) -> bool:
    """No later answer of a person counts; tells whether one would have."""
    if (known := _named(commit, name)) is None:
        return False
    resolve(commit, _WITHDRAWN, by.who, why, evidence=json.dumps({"name": known.name}))
    return True


def approvers(connection: Connection | Commit) -> Sequence[Approver]:
    """The persons whose signed approvals count, in the sequence in which they were registered."""
    standing: list[Approver] = []
    for one, is_registered in _decisions(connection):
        standing = [before for before in standing if not _is_named(before, one.name)]
        if is_registered:
            standing.append(one)
    return standing


def _all_registered(commit: Commit) -> Sequence[Approver]:
    """Those too whose keys count no more: what they approved may stand."""
    return [one for one, is_registered in _decisions(commit) if is_registered]


def _decisions(connection: Connection | Commit) -> Sequence[tuple[Approver, bool]]:
    """Each decision about an approver, oldest first, and whether it registered them."""
    found = connection.execute(
        """SELECT kind, who, why, at, evidence FROM resolution WHERE order_id IS NULL AND run IS NULL
        AND kind IN (?, ?) ORDER BY id""",
        (_REGISTERED, _WITHDRAWN),
    ).fetchall()
    decisions: list[tuple[Approver, bool]] = []
    for kind, who, why, at, evidence in found:
        kept = json.loads(evidence)
        by = Signature(who=who, login=kept.get("login", ""), machine=kept.get("machine", ""), at=at)
        one = Approver(name=kept["name"], public_key=kept.get("public_key", ""), by=by, why=why)
        decisions.append((one, kind == _REGISTERED))
    return decisions


def approve(commit: Commit, answer: SignedApproval, remembered: Sequence[ApprovalRule] = ()) -> Approval:
    """Write down an approval that was signed elsewhere, once, where all that was signed still holds."""
    asked, digest = answer.proposal, answer.proposal.digest
    known = _named(commit, answer.by.who)
    if known is None or known.public_key != answer.public_key:
        raise NotApproved(
            f"the key {fingerprint_of(answer.public_key)} is not registered for {answer.by.who}: register it first "
            "(bulk approver)"
        )
    made = [one for one in _approvals.proposals(commit, digest) if one.withdrawn is None]
    if not any(is_as_asked(asked, one) for one in made):
        raise NotApproved(
            f"{answer.by.who} signed what is not proposed any more: the proposal, its file or its options are other "
            "ones, or it was withdrawn. Write a new request"
        )
    for maker in (one.by for one in made):
        if is_one_person(known.by, maker, shared_logins=True):
            raise NotApproved(
                f"{maker.who} proposed it, and registered the key of {known.name}: another person has to register it"
            )
    mark = f"answer {answer.reference}"
    for one in _approvals.approvals(commit, digest):
        if one.withdrawn is None or not _is_named(known, one.by.who):
            continue
        took_it_back = _is_named(known, one.withdrawn.who)  # ... herself, and not the maker with the proposal
        if mark in one.note or (took_it_back and answer.by.at <= one.withdrawn.at):
            raise NotApproved(f"this answer of {answer.by.who} was taken back; it takes a new one")
    note = f"{answer.note} [signed with the key {known.fingerprint}, {mark}]".strip()
    by = attrs.evolve(answer.by, who=known.name)
    return _approvals.approve(commit, digest, by, note, remembered)


def _named(connection: Connection | Commit, name: str) -> Approver | None:
    return next((one for one in approvers(connection) if _is_named(one, name)), None)


def _is_named(one: Approver, name: str) -> bool:
    return is_one_person(Signature(who=one.name), Signature(who=name), shared_logins=True)


def _last(connection: Connection | Commit) -> int:
    """The number of the last decision about approvers: an approval of one counts for no later one."""
    (number,) = connection.execute(
        "SELECT coalesce(max(id), 0) FROM resolution WHERE kind IN (?, ?)", (_REGISTERED, _WITHDRAWN)
    ).fetchone()
    return int(number)
