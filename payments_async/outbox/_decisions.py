"""What a named person decides of orders and journals; where the journal asks for approvals, it is proposed first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from payments_async.journal import Journal, ListingDeadline, NotApproved, Signature
from payments_async.journal._records import Entry


@asynccontextmanager
async def proposing(journal: Journal) -> AsyncIterator[None]:
    """Propose a decision that others have to approve, unless a person has; the ``NotApproved`` goes on."""
    try:
        yield
    except NotApproved as refusal:
        made = () if refusal.proposal is None else await journal.proposals(refusal.proposal.digest)
        if refusal.proposal is not None and all(one.withdrawn is not None for one in made):
            await journal.propose(refusal.proposal)
        raise


async def send_again(
    journal: Journal, request_id: str, who: str | Signature, why: str, *, seen: float | None = None
) -> Entry:
    """State, as a named person, that a parked order never arrived: it is planned again, and sent by the next run.

    What contradicted that until now, such as a forged notification, is called false with it. Evidence that comes later
    still counts: should both arrive, the journal shows a conflict.

    Args:
        seen: ``Entry.updated_at`` of the order as that person saw it.

    Raises:
        NotApproved: The journal asks for approvals: the decision is proposed now. Once as many others as the rule says
            have approved it, the same call carries it out, unless something was learned of the order meanwhile.
        NotParked: It is not parked, or something was learned of it since it was seen.
        OrderUnknown: The journal holds no such order.
    """
    async with proposing(journal):
        return await journal.send_again(request_id, who=who, why=why, seen=seen)


async def send_again_all(
    journal: Journal,
    request_ids: Sequence[str],
    who: str | Signature,
    why: str,
    *,
    seen: Mapping[str, float] | None = None,
) -> Sequence[Entry]:
    """Have several orders sent again by one decision, as ``send_again`` does one: all of them or none.

    Args:
        seen: ``Entry.updated_at`` of the orders as that person saw them, by request id.

    Raises:
        NotApproved, NotParked, OrderUnknown: As ``send_again``.
    """
    async with proposing(journal):
        return await journal.send_again_all(request_ids, who=who, why=why, seen=seen)


async def acknowledge(journal: Journal, request_id: str, who: str, why: str, *, seen: float | None = None) -> Entry:
    """State, as a named person, that the contradiction about an order was looked into: it is shown no more.

    The same evidence again is not a new contradiction; any other is.

    Args:
        seen: ``Entry.updated_at`` of the order as that person saw it: one that came since then stands.

    Raises:
        OrderUnknown: The journal holds no such order.
    """
    return await journal.acknowledge(request_id, who=who, why=why, seen=seen)


async def lift_quarantine(
    journal: Journal,
    batch_id: str,
    who: str | Signature,
    why: str,
    *,
    seen: float | None = None,
    request_ids: Collection[str] | None = None,
) -> int:
    """State, as a named person, that the orders in quarantine were looked up: they may be sent. Tells how many chunks.

    Args:
        seen: ``Run.quarantined_at`` of the batch as that person saw it: one that came since then stands.
        request_ids: The planned orders, each by name, of which that person knows that the service never had them.
            Nothing is awaited then (``Run.awaits``), and that is recorded.

    Raises:
        NotApproved: As ``send_again``.
        NotLookedFor: Something is still awaited, or planned orders were not named.
        RunUnknown: The journal holds no such batch.
    """
    async with proposing(journal):
        return await journal.lift_quarantine(batch_id, who=who, why=why, seen=seen, request_ids=request_ids)


async def give_listing_deadline(journal: Journal, deadline: ListingDeadline, who: str | Signature, why: str) -> None:
    """State, as a named person, that the service lists in time what it has carried out.

    From then on an unknown order that two clean lists after that time do not show is sent again, once, by that word.
    Where the word is wrong, it is paid twice.

    Raises:
        NotApproved: As ``send_again``.
    """
    async with proposing(journal):
        await journal.give_listing_deadline(deadline, who=who, why=why)
