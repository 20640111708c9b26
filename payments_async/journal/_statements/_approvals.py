"""Approvals: what was proposed, who approved it, and whether that is enough for a batch to be begun."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import attrs
import msgspec

from payments_async.journal._approvals import (
    Approval,
    ApprovalRule,
    NotApproved,
    Proposal,
    Signature,
    is_one_person,
    kept_rule,
    rule_in_force,
    why_not_approved,
)
from payments_async.journal._statements._database import Connection
from payments_async.journal._statements._entries import Commit

_PROPOSAL = "digest, batch_id, orders, amount, currency, file, path, file_digest, options, who, login, machine, at"
_WITHDRAWN = "withdrawn_by, withdrawn_login, withdrawn_machine, withdrawn_at"
_APPROVAL = f"digest, note, who, login, machine, at, {_WITHDRAWN}"
_LATEST = " LIMIT 100"  # of all proposals, for a person who looks


def propose(commit: Commit, proposal: Proposal) -> None:
    """Write a proposal down; the same one by the same person is there once, and was made from the file named last."""
    by = proposal.by
    source = (proposal.path, proposal.file_digest, msgspec.json.encode(proposal.options).decode())
    known = commit.execute(
        "SELECT id FROM proposal WHERE digest = ? AND who = ? AND login = ? AND machine = ? AND withdrawn_at IS NULL",
        (proposal.digest, by.who, by.login, by.machine),
    ).fetchone()
    if known is not None:
        commit.execute("UPDATE proposal SET path = ?, file_digest = ?, options = ? WHERE id = ?", (*source, known[0]))
        return
    commit.execute(
        f"INSERT INTO proposal ({_PROPOSAL}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - names alone
        (
            *(proposal.digest, proposal.batch_id, proposal.orders, format(proposal.amount, "f")),
            *(proposal.currency, proposal.file, *source, by.who, by.login, by.machine, commit.now),
        ),
    )


def withdraw_proposal(commit: Commit, digest: str, by: Signature) -> Proposal:
    """Take back a proposal of one's own; where nobody else has made it too, its approvals end with it."""
    made = [one for one in proposals(commit, digest) if one.withdrawn is None]
    own = [one for one in made if is_one_person(by, one.by, shared_logins=True)]
    if not own:
        raise NotApproved(f"{by.who} has not proposed {digest}, or has taken that back")
    withdrawn = {"proposal": {one.by.who for one in own}}
    if len(own) == len(made):
        withdrawn["approval"] = {one.by.who for one in approvals(commit, digest)}
    for table, names in withdrawn.items():
        for name in names:
            commit.execute(
                f"""UPDATE {table} SET withdrawn_by = ?, withdrawn_login = ?, withdrawn_machine = ?, withdrawn_at = ?
                WHERE digest = ? AND who = ? AND withdrawn_at IS NULL""",  # noqa: S608 - a table
                (by.who, by.login, by.machine, commit.now, digest, name),
            )
    return attrs.evolve(own[-1], withdrawn=attrs.evolve(by, at=commit.now))


def proposals(
    connection: Connection | Commit, digest: str | None = None, file_digest: str | None = None
) -> Sequence[Proposal]:
    """All proposals of one plan, or all made from one file, else the latest; oldest first."""
    column, value = ("digest", digest) if file_digest is None else ("file_digest", file_digest)
    chosen, most, values = ("", _LATEST, ()) if value is None else (f"WHERE {column} = ?", "", (value,))
    found = connection.execute(
        f"SELECT {_PROPOSAL}, {_WITHDRAWN} FROM proposal {chosen} ORDER BY id DESC{most}",  # noqa: S608 - names alone
        values,
    ).fetchall()
    return [_proposal(*row) for row in reversed(found)]


def approve(commit: Commit, digest: str, by: Signature, note: str, remembered: Sequence[ApprovalRule] = ()) -> Approval:
    """Write an approval down, unless it is the maker's."""
    made = proposals(commit, digest)
    if all(one.withdrawn is not None for one in made):
        raise NotApproved(f"no plan was proposed with the digest {digest}")
    now_rule = rule_in_force(rule(commit), remembered)
    for maker in (one.by for one in made):
        if is_one_person(by, maker, shared_logins=now_rule.shared_logins):
            other = "by another name" if now_rule.shared_logins else "with a login of their own"
            raise NotApproved(f"{by} cannot approve what {maker} has proposed: it takes another person, {other}")
    for before in approvals(commit, digest):
        if before.withdrawn is None and is_one_person(by, before.by, shared_logins=True):
            return before
    commit.execute(
        "INSERT INTO approval (digest, note, who, login, machine, at) VALUES (?, ?, ?, ?, ?, ?)",
        (digest, note, by.who, by.login, by.machine, commit.now),
    )
    return approvals(commit, digest)[-1]


def withdraw(commit: Commit, digest: str, by: Signature) -> Approval:
    """Take back an approval of one's own."""
    for one in approvals(commit, digest):
        if one.withdrawn is None and is_one_person(by, one.by, shared_logins=True):
            commit.execute(
                """UPDATE approval SET withdrawn_by = ?, withdrawn_login = ?, withdrawn_machine = ?, withdrawn_at = ?
                WHERE digest = ? AND who = ? AND withdrawn_at IS NULL""",
                (by.who, by.login, by.machine, commit.now, digest, one.by.who),
            )
            return one
    raise NotApproved(f"{by.who} has not approved {digest}, or has taken that back")


def approvals(connection: Connection | Commit, digest: str) -> Sequence[Approval]:
    """All approvals of a plan, oldest first."""
    found = connection.execute(
        f"SELECT {_APPROVAL} FROM approval WHERE digest = ? ORDER BY id",  # noqa: S608 - names alone
        (digest,),
    ).fetchall()
    return [_approval(*row) for row in found]


def require(commit: Commit, wanted: ApprovalRule) -> None:
    """Have a rule from now on; those before stay on record."""
    if wanted.by is None or not wanted.why.strip():
        raise ValueError("by and why: a person's name and a reason")
    commit.execute(
        "INSERT INTO approval_rule (needed, shared_logins, why, who, login, machine, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            *(wanted.needed, wanted.shared_logins, wanted.why),
            *(wanted.by.who, wanted.by.login, wanted.by.machine, commit.now),
        ),
    )


def rule(connection: Connection | Commit) -> ApprovalRule:
    """The rule that was set last."""
    found = connection.execute(
        "SELECT needed, shared_logins, why, who, login, machine, at FROM approval_rule ORDER BY id DESC LIMIT 1"
    ).fetchone()
    return ApprovalRule() if found is None else kept_rule(*found)


def check_approved(
    commit: Commit, batch_id: str, given: str | None, needed: int, remembered: Sequence[ApprovalRule]
) -> None:
    """Refuse a batch that too few have approved.

    Args:
        given: Digest of its plan. For a batch that is complete, that which it was begun with counts.
        remembered: The rules of this journal, and of the account's others, as this machine knows them.

    Raises:
        NotApproved: They have not.
    """
    if not max(rule_in_force(rule(commit), remembered).needed, needed):
        return
    sql = "SELECT source_digest FROM run WHERE batch_id = ? AND state = 'ready'"
    found = commit.execute(sql, (batch_id,)).fetchone()
    digest = given if found is None or found[0] is None else found[0]
    check_approvals(commit, digest, remembered, needed)


def check_decision(commit: Commit, decision: Proposal, remembered: Sequence[ApprovalRule]) -> None:
    """Refuse what a person alone decides, where batches need others' approval. Raises ``NotApproved``."""
    try:
        check_approvals(commit, decision.digest, remembered)
    except NotApproved as refusal:
        refusal.proposal = decision
        raise


def check_approvals(commit: Commit, digest: str | None, remembered: Sequence[ApprovalRule], needed: int = 0) -> None:
    """Refuse what too few others approve by now. Raises ``NotApproved``."""
    held = rule_in_force(rule(commit), remembered)
    made, given = ((), ()) if digest is None else (proposals(commit, digest), approvals(commit, digest))
    refusal = why_not_approved(held, digest, made, given, needed)
    if refusal is not None:
        raise refusal


def _proposal(digest: str, batch_id: str, orders: int, amount: str, currency: str | None, *rest: Any) -> Proposal:
    file, path, file_digest, options, who, login, machine, at, *withdrawn = rest
    return Proposal(
        digest=digest,
        batch_id=batch_id,
        orders=orders,
        amount=Decimal(amount),
        currency=currency,
        file=file,
        by=Signature(who=who, login=login, machine=machine, at=at),
        path=path or "",
        file_digest=file_digest or "",
        options=msgspec.json.decode(options) if options else {},
        withdrawn=_signature(*withdrawn),
    )


def _approval(digest: str, note: str, who: str, login: str, machine: str, at: float, *withdrawn: Any) -> Approval:
    by = Signature(who=who, login=login, machine=machine, at=at)
    return Approval(digest=digest, note=note, by=by, withdrawn=_signature(*withdrawn))


def _signature(who: str, login: str, machine: str, at: float | None) -> Signature | None:
    return None if at is None else Signature(who=who, login=login, machine=machine, at=at)
