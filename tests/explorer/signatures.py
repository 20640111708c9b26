"""A small world of approvals that are signed elsewhere: whose key is registered, what was signed, what was taken back.

Which answer is good is known beside the journal: by the person whose key it is, what was proposed as they signed, and
what they have taken back since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import partial
from typing import TypeAlias

import attrs
from explorer.desks import ANN, BEN, CY, DIGEST, DORA, NOON, Desk, Step
from explorer.journals import at_once
from journal.factories import BATCH

from payments_async.journal import ApprovalRule, ApproverKey, JournalError, NotApproved, Proposal, Signature
from payments_async.journal._signed_approvals import read_answer
from payments_async.journal._statements import _approvers

EVE = Signature(who="Eve Guest", login="eve", machine="desk-5")
BENS, EVES = (ApproverKey(name=one.who, private_key=digit * 64) for one, digit in ((BEN, "1"), (EVE, "2")))
IN_BENS_NAME = ApproverKey(name=BEN.who, private_key=EVES.private_key)


@attrs.frozen(kw_only=True)
class Answer:
    """What was signed: of which proposal, by whose key, when; the text that is brought."""

    of: int
    key: str
    at: float
    text: str


@attrs.frozen(kw_only=True)
class Signed:
    """What is known beside the journal.

    Attributes:
        proposed: The number of the proposal that stands; 0 where none does.
        made: How many there were.
        keys: By name, the key that counts and who registered it.
        holders: By key, the name for which it was registered first.
        answers: Those that were signed.
        counts: The one by which Ben's approval stands.
        used: Those whose approval was taken back, and when Ben last did that.
        approved: A decision was approved.
    """

    now: float = NOON
    proposed: int = 0
    made: int = 0
    keys: tuple[tuple[str, str, str], ...] = ()
    holders: tuple[tuple[str, str], ...] = ()
    answers: tuple[Answer, ...] = ()
    counts: Answer | None = None
    used: frozenset[Answer] = frozenset()
    back_at: float = 0.0
    approved: frozenset[str] = frozenset()
    acted: frozenset[str] = frozenset()


Act: TypeAlias = Callable[[Signed], "Signed | None"]


class Signatures(Desk):
    """A maker, a person who approves on a machine of her own, and those who register keys."""

    def __init__(self, name: str, *, may: Iterable[str], needed: int = 0) -> None:
        super().__init__(name)
        self._may, self._needed, self.brought, self.wrongly = tuple(may), needed, None, ""

    def first(self) -> Signed:
        """Nothing is registered or proposed."""
        if self._needed:
            at_once(self.journal.require_approvals(ApprovalRule(needed=self._needed, why="four eyes", by=DORA)))
        return Signed()

    def steps(self, facts: Signed) -> Iterator[Step]:
        """Each once; answers are signed twice."""
        for words, act in self._acts(facts):
            if words not in facts.acted:
                yield words, partial(self._done, words, act, facts)

    def _done(self, words: str, act: Act, facts: Signed) -> Signed | None:
        self.brought, self.wrongly = None, ""
        try:
            return act(attrs.evolve(facts, acted=facts.acted | {words}))
        except (JournalError, ValueError):
            return None

    def _acts(self, facts: Signed) -> Iterator[tuple[str, Act]]:
        acts: dict[str, Act] = {
            "Ann proposes": self._propose, "Ann proposes it of another file": partial(self._propose, file="b" * 64),
            "Ann takes it back": self._take_back,
            "Dora registers Ben's key": partial(self._register, BENS, BEN.who, DORA),
            "Ann registers Ben's key": partial(self._register, BENS, BEN.who, ANN),
            "Dora registers Ben's key for Eve": partial(self._register, BENS, EVE.who, DORA),
            "a decision is approved": self._approve, "Ben's key is withdrawn": self._withdraw_key,
            "Ben signs": partial(self._sign, BENS), "Ben signs once more": partial(self._sign, BENS),
            "Ben signs, whose clock is ahead": partial(self._sign, BENS, ahead=1000.0),
            "Eve signs in Ben's name": partial(self._sign, IN_BENS_NAME),
            "Ben takes his approval back": self._take_approval_back,
            "an answer that was changed is brought": partial(self._bring, -1, changed=True),
        }  # fmt: skip
        for words in self._may:
            yield words, acts[words]
        for number in range(len(facts.answers)):
            yield f"answer {number + 1} is brought", partial(self._bring, number)
            if number == 0:
                yield "answer 1 is brought again", partial(self._bring, number)

    # what happens

    def _propose(self, facts: Signed, *, file: str = "a" * 64) -> Signed:
        self.journal.moment.now = facts.now
        by = attrs.evolve(ANN, at=facts.now)
        at_once(
            self.journal.propose(
                Proposal(
                    digest=DIGEST, batch_id=BATCH, orders=1, amount=Decimal(1), currency=None, file="pay.csv", by=by,
                    file_digest=file,
                )
            )
        )  # fmt: skip
        return attrs.evolve(facts, proposed=facts.made + 1, made=facts.made + 1)

    def _take_back(self, facts: Signed) -> Signed:
        self.journal.moment.now = facts.now
        at_once(self.journal.withdraw_proposal(DIGEST, by=ANN))
        used = facts.used | ({facts.counts} if facts.counts else set())
        return attrs.evolve(facts, proposed=0, counts=None, used=used)

    def _register(self, key: ApproverKey, name: str, by: Signature, facts: Signed) -> Signed | None:
        self.journal.moment.now = facts.now
        before = self.journal.connection.execute("SELECT count(*) FROM resolution").fetchone()
        try:
            at_once(self.journal.register_approver(name, key.public_key, by=by, why="known"))
        except NotApproved as refusal:
            if refusal.proposal is None or not self._needed:
                raise
            at_once(self.journal.propose(refusal.proposal))
            return attrs.evolve(facts, acted=facts.acted - {f"{by.who.split()[0]} registers Ben's key"})
        if before == self.journal.connection.execute("SELECT count(*) FROM resolution").fetchone():
            return facts  # it stood already
        held = dict(facts.holders)
        if held.get(key.public_key, name) != name:
            self.wrongly = f"one key is registered for {held[key.public_key]} and for {name}"
        if self._needed and not facts.approved:
            self.wrongly = "a key is registered by one person alone"
        keys = [one for one in facts.keys if one[0] != name]
        holders = {key.public_key: name} | held
        return attrs.evolve(
            facts, keys=tuple(sorted([*keys, (name, key.public_key, by.who)])), holders=tuple(sorted(holders.items()))
        )

    def _approve(self, facts: Signed) -> Signed | None:
        made = [one for one in at_once(self.journal.proposals()) if one.digest not in facts.approved | {DIGEST}]
        if not made:
            return None
        at_once(self.journal.approve(made[0].digest, by=CY, note=""))
        return attrs.evolve(facts, approved=facts.approved | {made[0].digest})

    def _withdraw_key(self, facts: Signed) -> Signed | None:
        self.journal.moment.now = facts.now
        if not at_once(self.journal.withdraw_approver(BEN.who, by=DORA, why="he left")):
            return None
        return attrs.evolve(facts, keys=tuple(one for one in facts.keys if one[0] != BEN.who))

    def _sign(self, key: ApproverKey, facts: Signed, *, ahead: float = 0.0) -> Signed | None:
        made = [one for one in at_once(self.journal.proposals(DIGEST)) if one.withdrawn is None]
        if not made:
            return None
        text = key.sign(made[-1], by=attrs.evolve(BEN, at=facts.now + ahead), note="seen")
        answer = Answer(of=facts.proposed, key=key.public_key, at=facts.now + ahead, text=text)
        return attrs.evolve(facts, answers=(*facts.answers, answer), now=facts.now + 1.0)

    def _bring(self, number: int, facts: Signed, *, changed: bool = False) -> Signed | None:
        if not facts.answers:
            return None
        self.journal.moment.now = facts.now
        answer = facts.answers[number]
        signed = read_answer(answer.text.replace("seen", "sent") if changed else answer.text)
        had = {one.by.who for one in at_once(self.journal.approvals(DIGEST)) if one.withdrawn is None}
        at_once(self.journal._submit("approve_signed", _approvers.approve, signed, ()))
        if BEN.who in had:
            return facts  # it counts once, by the answer that came first
        self.brought = answer
        if changed:
            self.wrongly = "an answer counts that was changed since it was signed"
        return attrs.evolve(facts, counts=answer)

    def _take_approval_back(self, facts: Signed) -> Signed | None:
        if facts.counts is None:
            return None
        self.journal.moment.now = facts.now
        at_once(self.journal.withdraw_approval(DIGEST, by=BEN))
        return attrs.evolve(
            facts, counts=None, used=facts.used | {facts.counts}, back_at=facts.now, now=facts.now + 1.0
        )

    # rules

    def wrong(self, before: Signed, after: Signed) -> Iterator[str]:
        """An answer counts if its person's registered key signed what stands now, and it was not taken back."""
        if self.wrongly:
            yield self.wrongly
        answer = self.brought
        if answer is None:
            return
        registered = {name: (key, by) for name, key, by in before.keys}.get(BEN.who)
        if registered is None or registered[0] != answer.key:
            yield "an answer counts whose key is not registered for its person"
        elif registered[1] == ANN.who:
            yield "an answer counts by a key that the maker registered"
        if answer.of != before.proposed:
            yield "an answer counts that was signed for another proposal"
        if answer in before.used:
            yield "an answer counts again that was taken back"
        elif answer.at <= before.back_at:
            yield "an answer counts that was signed before another one was taken back"


def desks() -> tuple[Callable[[], Desk], ...]:
    """All worlds of signed approvals, to be made one by one."""
    key, proposed, signs = "Dora registers Ben's key", "Ann proposes", "Ben signs"
    return (
        partial(
            Signatures, "keys of persons",
            may=(key, proposed, signs, "Ann registers Ben's key", "Ben's key is withdrawn", "Eve signs in Ben's name"),
        ),
        partial(
            Signatures, "answers that were taken back",
            may=(key, proposed, signs, "Ben signs once more", "Ben takes his approval back", "Ann takes it back",
                 "Ann proposes it of another file"),
        ),
        partial(
            Signatures, "a key of two persons",
            may=(key, proposed, signs, "Dora registers Ben's key for Eve", "an answer that was changed is brought"),
        ),
        partial(
            Signatures, "a clock that is ahead",
            may=(key, proposed, "Ben signs, whose clock is ahead", "Ben takes his approval back"),
        ),
        partial(Signatures, "a key, by two persons", may=(key, "a decision is approved"), needed=1),
    )  # fmt: skip
