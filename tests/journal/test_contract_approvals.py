"""Approvals: a batch is begun only when as many others as the journal asks for have approved its plan."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal.conftest import Home, Opens
from journal.factories import BATCH, IDENTITY, Clock, claimed, order, orders, permitted

from payments_async import PayoutOrder
from payments_async.bulk import lift_quarantine, send_again, send_again_all
from payments_async.journal import (
    Approval,
    ApprovalRule,
    ApproverKey,
    HeldElsewhere,
    Journal,
    LoadBusy,
    NotApproved,
    Proposal,
    RunUnknown,
    Signal,
    Signature,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
    approval_request,
    read_request,
)
from payments_async.journal._approvals import counted_approvals, is_forgotten, why_not_approved
from payments_async.journal.contract import Evidence, Outcome

DIGEST, OTHER = "a" * 64, "b" * 64
MAKER = Signature(who="A. Clerk", login="clerk", machine="desk-1")
CHECKER = Signature(who="B. Head", login="head", machine="desk-2")
THIRD = Signature(who="C. Board", login="board", machine="desk-2")


def proposal(digest: str = DIGEST, by: Signature = MAKER) -> Proposal:
    """What somebody wants to be approved."""
    return Proposal(
        digest=digest, batch_id=BATCH, orders=3, amount=Decimal("3003.50"), currency="UGX", file="may.csv", by=by
    )


async def ruled(journal: Journal, needed: int = 1, *, shared_logins: bool = False) -> None:
    """A journal that asks for so many approvals."""
    rule = ApprovalRule(needed=needed, shared_logins=shared_logins, why="four eyes", by=THIRD)
    await journal.require_approvals(rule)


async def test_a_journal_asks_for_no_approval_by_itself(journal: Journal) -> None:
    """As long as nobody has set a rule."""
    assert ApprovalRule() == await journal.approval_rule()
    assert not (await journal.open_run(BATCH, IDENTITY)).ready


async def test_an_answer_that_was_signed_on_another_machine(journal: Journal) -> None:
    """It is exactly what is proposed, in any database, and counts once, from a key that another person registered."""
    key = ApproverKey.create("B. Head")
    await journal.register_approver("B. Head", key.public_key, by=THIRD, why="she told me")
    await ruled(journal)
    await journal.propose(attrs.evolve(proposal(), file_digest=OTHER, options={"map": ["name=Jina"], "skip_bad": True}))
    (asked,) = await journal.proposals(DIGEST)
    ahead = attrs.evolve(CHECKER, at=1e10)  # by the clock of the other machine
    answer = key.sign(read_request(approval_request(asked)), by=ahead, note="compared")
    of_another_key = ApproverKey.create("B. Head").sign(asked, by=CHECKER, note="compared")
    with pytest.raises(NotApproved, match="is not registered for B"):
        await journal.approve_signed(of_another_key)
    given = [await journal.approve_signed(answer) for _ in range(2)]
    assert given[0] == given[1] == (await journal.approvals(DIGEST))[0]
    assert (CHECKER.who, CHECKER.login, CHECKER.machine) == (given[0].by.who, given[0].by.login, given[0].by.machine)
    assert [one.public_key for one in await journal.approvers()] == [key.public_key]
    await journal.withdraw_approval(DIGEST, by=CHECKER)
    with pytest.raises(NotApproved, match="was taken back"):
        await journal.approve_signed(answer)
    await journal.withdraw_proposal(DIGEST, by=MAKER)
    await journal.propose(proposal())
    with pytest.raises(NotApproved, match="signed what is not proposed any more"):
        await journal.approve_signed(answer)


async def test_a_batch_that_nobody_has_approved(journal: Journal) -> None:
    """It is not even begun, and the error names the digest, the maker and who is wanted."""
    await ruled(journal)
    with pytest.raises(NotApproved, match=f"it was not proposed: {DIGEST}"):
        await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    await journal.propose(proposal())
    with pytest.raises(NotApproved, match=r"1 person other than A\. Clerk must approve it; nobody has so far"):
        await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    assert [] == list(await journal.runs())


async def test_a_proposal_that_its_maker_takes_back(journal: Journal) -> None:
    """Nobody can approve it any more, and what was approved counts no more, also where it is proposed again."""
    await ruled(journal)
    made = attrs.evolve(
        proposal(), path="/pay/may.csv", file_digest=OTHER, options={"sheet": "Staff", "skip_bad": True}
    )
    await journal.propose(made)
    await journal.approve(DIGEST, by=CHECKER, note="")
    with pytest.raises(NotApproved, match=r"B\. Head has not proposed"):
        await journal.withdraw_proposal(DIGEST, by=CHECKER)
    gone = await journal.withdraw_proposal(DIGEST, by=MAKER)
    assert gone.withdrawn is not None
    (kept,) = await journal.proposals(file_digest=OTHER)
    assert (made.path, made.options, "A. Clerk") == (kept.path, kept.options, kept.withdrawn and kept.withdrawn.who)
    with pytest.raises(NotApproved, match="no plan was proposed"):
        await journal.approve(DIGEST, by=CHECKER, note="")
    await journal.propose(made)
    with pytest.raises(NotApproved, match="nobody has so far"):
        await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    await journal.approve(DIGEST, by=CHECKER, note="")
    assert BATCH == (await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)).batch_id


async def test_orders_that_were_loaded_before_another_plan_was_approved(journal: Journal) -> None:
    """They are none of that plan, though it was begun under the same name while they were loaded."""
    await journal.open_run(BATCH, IDENTITY, source_digest=OTHER)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[PayoutOrder]:
        for one in orders(1001):
            if one.request_id == order(1000).request_id:
                begun.set()
                await goes_on.wait()
            yield one

    loading = asyncio.ensure_future(journal.load(BATCH, slowly(), owner="a"))
    await begun.wait()
    await ruled(journal)
    await journal.propose(proposal())
    await journal.approve(DIGEST, by=CHECKER, note="")
    await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    with pytest.raises(LoadBusy):
        await journal.load(BATCH, orders(2), owner="b")
    goes_on.set()
    with pytest.raises(NotApproved, match=f"it was not proposed: {OTHER}"):
        await loading
    with pytest.raises(RunUnknown):
        await journal.claim_chunk(BATCH, "worker")
    assert 2 == (await journal.load(BATCH, orders(2), owner="b")).total
    assert DIGEST == (await journal.run(BATCH)).source_digest


async def test_a_batch_that_somebody_else_has_approved(journal: Journal) -> None:
    """It is begun, and its story says who proposed and who approved it, and when."""
    await ruled(journal)
    await journal.propose(proposal())
    approval = await journal.approve(DIGEST, by=CHECKER, note="seen with the list of May")
    await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    assert [approval] == list(await journal.approvals(DIGEST))
    story = await journal.decisions(BATCH)
    assert ["proposed: may.csv", "approved: seen with the list of May"] == [one.detail for one in story]
    assert [str(MAKER), str(CHECKER)] == [one.by for one in story]
    assert all(one.at > 0 for one in story)


async def test_the_maker_cannot_approve(journal: Journal) -> None:
    """Neither under another spelling of the name, nor under another name and the same login."""
    await journal.propose(proposal())
    for name in ("A. Clerk", "a clerk", "A.CLERK "):
        with pytest.raises(NotApproved, match="it takes another person"):
            await journal.approve(DIGEST, by=Signature(who=name, login="x", machine="y"), note="")
    with pytest.raises(NotApproved, match="a login of their own"):
        await journal.approve(DIGEST, by=attrs.evolve(MAKER, who="B. Head"), note="")
    assert [] == list(await journal.approvals(DIGEST))


async def test_persons_who_share_a_login(journal: Journal) -> None:
    """Their names tell them apart where the journal says that logins are shared, and its refusal asks for no login."""
    await ruled(journal, shared_logins=True)
    await journal.propose(proposal())
    with pytest.raises(NotApproved, match="it takes another person, by another name"):
        await journal.approve(DIGEST, by=attrs.evolve(MAKER, login="x"), note="")
    await journal.approve(DIGEST, by=attrs.evolve(MAKER, who="B. Head"), note="")
    await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)


async def test_an_approval_of_another_plan(journal: Journal) -> None:
    """One payment more, and it is another digest, which nobody has approved."""
    await ruled(journal)
    for digest in (DIGEST, OTHER):
        await journal.propose(proposal(digest))
    await journal.approve(OTHER, by=CHECKER, note="")
    with pytest.raises(NotApproved, match=DIGEST):
        await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    with pytest.raises(NotApproved, match="there is no digest to approve"):
        await journal.open_run(BATCH, IDENTITY)


async def test_an_approval_that_was_taken_back(journal: Journal) -> None:
    """It counts no more, stays on record, and may be given again."""
    await ruled(journal)
    await journal.propose(proposal())
    await journal.approve(DIGEST, by=CHECKER, note="")
    await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    await journal.withdraw_approval(DIGEST, by=CHECKER)
    with pytest.raises(NotApproved, match="nobody has so far"):
        await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    with pytest.raises(NotApproved, match="has not approved"):
        await journal.withdraw_approval(DIGEST, by=CHECKER)
    await journal.approve(DIGEST, by=CHECKER, note="again")
    await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    assert [True, False] == [one.withdrawn is not None for one in await journal.approvals(DIGEST)]


async def test_the_same_person_twice(journal: Journal) -> None:
    """One approval, and where two are needed one more person is."""
    await ruled(journal, 2)
    await journal.propose(proposal())
    first = await journal.approve(DIGEST, by=CHECKER, note="")
    assert first == await journal.approve(DIGEST, by=attrs.evolve(CHECKER, who="b head"), note="again")
    with pytest.raises(NotApproved, match=r"2 persons other than A\. Clerk must approve it; B\. Head has so far"):
        await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    await journal.approve(DIGEST, by=THIRD, note="")
    await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)


async def test_whoever_sends_may_ask_for_more(journal: Journal) -> None:
    """Never for less than the journal."""
    await ruled(journal)
    await journal.propose(proposal())
    await journal.approve(DIGEST, by=CHECKER, note="")
    with pytest.raises(NotApproved):
        await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST, approvals=2)
    await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST, approvals=0)


async def test_a_complete_batch_needs_the_approval_of_what_it_holds(journal: Journal) -> None:
    """Not of what somebody says that it was made from."""
    await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    await journal.load(BATCH, orders(3), owner="loader")
    await ruled(journal)
    await journal.propose(proposal(OTHER))
    await journal.approve(OTHER, by=CHECKER, note="")
    with pytest.raises(NotApproved, match=DIGEST):
        await journal.open_run(BATCH, IDENTITY, source_digest=OTHER)


async def test_a_batch_whose_loading_was_interrupted(journal: Journal) -> None:
    """Until it is complete, it is what whoever loads it says: that has to be approved, and is noted."""
    await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
    await ruled(journal)
    await journal.propose(proposal(OTHER))
    await journal.approve(OTHER, by=CHECKER, note="")
    with pytest.raises(NotApproved, match="no digest to approve"):
        await journal.open_run(BATCH, IDENTITY)
    assert OTHER == (await journal.open_run(BATCH, IDENTITY, source_digest=OTHER)).source_digest


async def test_a_rule_is_kept_and_signed(opens: Opens, clock: Clock) -> None:
    """By the file, for every process; the latest counts, and nobody can set one without a reason."""
    async with opens() as journal:
        await ruled(journal, 2)
        with pytest.raises(ValueError, match="by and why"):
            await journal.require_approvals(ApprovalRule(needed=0, by=THIRD))
        with pytest.raises(ValueError, match="by and why"):
            await journal.require_approvals(ApprovalRule(needed=0, why="quicker"))
    async with opens() as journal:
        rule = await journal.approval_rule()
        assert (2, "four eyes", "C. Board") == (rule.needed, rule.why, rule.by and rule.by.who)


async def test_all_that_was_proposed(journal: Journal) -> None:
    """The same by the same person is there once, however often others proposed it since and took that back."""
    for digest in (DIGEST, OTHER, DIGEST):
        await journal.propose(proposal(digest))
    await journal.approve(DIGEST, by=CHECKER, note="compared")
    await journal.propose(proposal(by=THIRD))
    assert [DIGEST, OTHER, DIGEST] == [one.digest for one in await journal.proposals()]
    assert [MAKER.who, THIRD.who] == [one.by.who for one in await journal.proposals(DIGEST)]
    assert Decimal("3003.50") == (await journal.proposals(OTHER))[0].amount
    await ruled(journal)
    for _ in range(100):
        await journal.withdraw_proposal(DIGEST, by=THIRD)
        await journal.propose(proposal(by=THIRD))
    await journal.withdraw_proposal(DIGEST, by=THIRD)
    await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)


@pytest.mark.parametrize("digest", ["", "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_a_digest_that_is_none(digest: str) -> None:
    """It is refused where it enters."""
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        proposal(digest)


@pytest.mark.parametrize("who", ["", " ", "...", "\u200b"])
def test_a_signature_without_a_name(who: str) -> None:
    """Blanks and dots are no name."""
    with pytest.raises(ValueError, match="a person's name"):
        Signature(who=who)


@pytest.mark.parametrize("needed", [-1, 101])
def test_a_rule_that_makes_no_sense(needed: int) -> None:
    """It is refused where it enters."""
    with pytest.raises(ValueError, match="from 0 to 100"):
        ApprovalRule(needed=needed)


_people = st.builds(
    Signature, who=st.sampled_from("ABCDE"), login=st.sampled_from(["x", "y", "z", ""]), machine=st.just("m")
)


@given(st.lists(_people, max_size=3), st.lists(_people, max_size=6), st.booleans(), st.integers(1, 3))
def test_nobody_counts_twice_and_no_maker_counts(
    makers: list[Signature], approvers: list[Signature], shared: bool, needed: int
) -> None:
    """Whoever signs what, under whatever login."""
    rule = ApprovalRule(needed=needed, shared_logins=shared)
    made = [proposal(by=by) for by in makers]
    given_for = [Approval(digest=DIGEST, note="", by=by) for by in approvers]
    counted = [one.by for one in counted_approvals(rule, made, given_for)]
    assert len({one.who for one in counted}) == len(counted)
    assert {one.who for one in counted}.isdisjoint(one.who for one in makers)
    if not shared:
        logins = [one.login for one in counted if one.login]
        assert len(set(logins)) == len(logins)
        assert set(logins).isdisjoint(one.login for one in makers if one.login)
    refused = why_not_approved(rule, DIGEST, made, given_for, 0)
    assert (refused is None) == (bool(makers) and len(counted) >= needed)


async def test_a_backup_of_before_the_rule(home: Home) -> None:
    """Put back with no order moved since, it has forgotten the rule; this machine has not, and says who set it."""
    async with home.opens() as journal:
        await journal.propose(proposal())
    from_before = home.copied()
    async with home.opens() as journal:
        await ruled(journal, 2)
        assert 2 == (await journal.approval_rule()).needed
    async with from_before() as journal:
        with pytest.raises(NotApproved, match=r"2 persons other than .* \(as C\. Board has set: four eyes\)"):
            await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
        assert 2 == (await journal.approval_rule()).needed
        assert [] == list(await journal.runs())


async def test_a_rule_that_was_forgotten_is_set_again(home: Home) -> None:
    """Whoever is in charge says what holds, and also that none does: nobody is kept out for ever."""
    async with home.opens():
        pass
    from_before = home.copied()
    async with home.opens() as journal:
        await ruled(journal, 2)
    async with from_before() as journal:
        await ruled(journal, 1)
        with pytest.raises(NotApproved, match="it was not proposed"):
            await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)
        await ruled(journal, 0)
        assert not (await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)).ready
    async with from_before() as journal:
        assert 0 == (await journal.approval_rule()).needed


async def test_a_machine_that_only_looked_remembers_the_rule(home: Home, tmp_path: Path) -> None:
    """Wherever it was set, whoever has opened the journal since knows of it; a backup from before is refused there."""
    async with home.opens():
        pass
    from_before = home.copied()
    async with home.opens(state_folder=tmp_path / "elsewhere") as journal:
        await ruled(journal)
    async with home.opens():
        pass
    async with from_before() as journal:
        with pytest.raises(NotApproved):
            await journal.open_run(BATCH, IDENTITY, source_digest=DIGEST)


@pytest.mark.parametrize(
    ("held", "remembered", "is_missing"),
    [
        pytest.param((0, False, 0), (1, False, 5), True, id="none-any-more"),
        pytest.param((1, False, 4), (2, False, 5), True, id="fewer"),
        pytest.param((1, True, 4), (1, False, 5), True, id="looser"),
        pytest.param((2, False, 4), (1, False, 5), False, id="stricter-all-the-same"),
        pytest.param((0, False, 6), (1, False, 5), False, id="taken-back-since"),
        pytest.param((1, False, 5), (1, False, 5), False, id="the-same"),
    ],
)
def test_a_rule_is_missing_where_a_later_and_stricter_one_is_known(
    held: tuple[int, bool, float], remembered: tuple[int, bool, float], is_missing: bool
) -> None:
    """And in no other case: a rule that somebody has changed since is no forgotten one."""
    rules = [
        ApprovalRule(needed=needed, shared_logins=shared, why="why", by=attrs.evolve(THIRD, at=at) if at else None)
        for needed, shared, at in (held, remembered)
    ]
    assert is_missing is is_forgotten(*rules)


# --- decisions of persons that send orders ----------------------------------------------------------------------------


async def parked(journal: Journal, count: int = 2) -> list[str]:
    """Orders that nobody found; two pairs of eyes are asked for since they were sent."""
    chunk = await claimed(journal, count)
    names = [order(number).request_id for number in range(count)]
    for place, name in enumerate(names):
        await journal.record(Outcome(permit=await permitted(journal, chunk, place), signal=Signal.UNKNOWN))
        await journal.park(name, detail="not in two lists")
    await ruled(journal)
    return names


async def states(journal: Journal, names: list[str]) -> set[State]:
    """Where orders stand."""
    return {entry.state for entry in (await journal.entries_of(names)).values()}


async def refused(decision: Awaitable[object]) -> Proposal:
    """What has to be approved first."""
    with pytest.raises(NotApproved, match="1 person") as error:
        await decision
    assert error.value.proposal is not None
    return error.value.proposal


async def test_sending_again_asks_for_the_approvals_that_sending_asks_for(journal: Journal) -> None:
    """One person alone sends nothing again: the decision is proposed, somebody else approves it, then it is done."""
    names = await parked(journal)
    asked = await refused(send_again_all(journal, names, MAKER, "the service's letter"))
    assert ({State.PARKED}, 2, Decimal(2002)) == (await states(journal, names), asked.orders, asked.amount)
    assert [MAKER.who] == [one.by.who for one in await journal.proposals(asked.digest)]
    assert ("the service's letter" in asked.file, names[0] in asked.file) == (True, True)
    with pytest.raises(NotApproved, match=r"cannot approve what A\. Clerk"):
        await journal.approve(asked.digest, by=MAKER, note="")
    await refused(send_again_all(journal, names, CHECKER, "I say so too"))
    await journal.approve(asked.digest, by=CHECKER, note="read the letter")
    await refused(send_again(journal, names[0], MAKER, "this one alone is another decision"))
    done = await send_again_all(journal, names, MAKER, "the service's letter")
    assert [State.PLANNED] * 2 == [entry.state for entry in done]


async def test_an_approval_to_send_again_is_of_what_was_known(journal: Journal) -> None:
    """What was learned of an order since makes it another decision, and so does sending it once more."""
    names = await parked(journal)
    asked = await refused(send_again_all(journal, names, MAKER, "never arrived"))
    await journal.approve(asked.digest, by=CHECKER, note="")
    another_amount = Evidence(
        signal=Signal.LOOKED_UP_PROCESSING, source="list", request_id=names[0], transaction_id="t-1", amount=Decimal(1)
    )
    await journal.apply_evidence(another_amount)
    await refused(send_again_all(journal, names, MAKER, "never arrived"))
    assert {State.PARKED} == await states(journal, names)


async def test_lifting_a_quarantine_asks_for_them_too(home: Home, tmp_path: Path) -> None:
    """It sends what a journal that may have forgotten calls planned, also where a person names each order."""
    async with SqliteJournal(tmp_path / "lost.db") as lost:
        await lost.open_run(BATCH, IDENTITY)
        await lost.load(BATCH, orders(3), owner="loader")
    async with home.opens() as journal:
        await journal.open_run(BATCH, IDENTITY)
        await journal.load(BATCH, orders(3), owner="loader", adoption=TakeoverAuthorisation(who="A. Clerk", why="lost"))
        named = [one.request_id for one in orders(3)]
        await ruled(journal)
        asked = await refused(lift_quarantine(journal, BATCH, MAKER, "looked up", request_ids=named))
        assert (3, 1) == (asked.orders, (await journal.run(BATCH)).quarantined)
        await journal.approve(asked.digest, by=CHECKER, note="")
        assert 1 == await lift_quarantine(journal, BATCH, MAKER, "looked up", request_ids=named)


async def test_an_order_that_is_adopted_alone(home: Home, tmp_path: Path) -> None:
    """Nothing is sent by that, so one person says it. To send it later, once it is parked, takes two."""
    two = TakeoverAuthorisation(who="A. Clerk", why="two shops")
    async with SqliteJournal(tmp_path / "lost.db") as lost:
        await lost.open_outbox("shop", IDENTITY)
        await lost.put("shop", order())
    async with home.opens(second_journal=two) as journal:
        await journal.open_outbox("desk", IDENTITY)
        await ruled(journal)
        with pytest.raises(HeldElsewhere):
            await journal.put("desk", order())
        placed = await journal.put("desk", order(), adoption=two)
        assert (True, State.UNKNOWN, None) == (placed.is_new, placed.entry.state, placed.permit)
        request_id = order().request_id
        await journal.park(request_id, detail="not in two lists")
        asked = await refused(send_again(journal, request_id, MAKER, "two shops"))
        assert 1 == asked.orders
