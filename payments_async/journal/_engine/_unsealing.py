"""How the seal is taken off a journal whose new place is lost for ever: by a named person, and never off two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from payments_async._values.frozen import frozen
from payments_async.journal._engine._database import JournalDatabase
from payments_async.journal._engine._journal import Journal
from payments_async.journal._engine._memory import Memory, TakenBack
from payments_async.journal._faults import JournalCorrupt, JournalUnavailable, MoveStands, NotAJournal, NotMoved
from payments_async.journal._records import check_named
from payments_async.journal._statements._moving import (
    Moved,
    facts_of,
    forget_move,
    moved_of,
    moves_to,
    note_unsealed,
)


@frozen(kw_only=True)
class Unsealed:
    """A journal that goes on where it was before it was moved.

    Attributes:
        place: Where it is.
        given_up: Where it had gone.
        was_asked: That place was asked, and there is no such journal any more. Otherwise it is a person's word.
        is_remembered: This machine remembers which place was given up, and refuses to open a journal there. On other
            machines nothing does.
    """

    place: str
    given_up: str
    was_asked: bool
    is_remembered: bool


async def unseal_journal(
    source: Journal,
    destination: Journal,
    *,
    who: str,
    why: str,
    is_lost: bool = False,
    crash_at: Callable[[str], None] = lambda point: None,
) -> Unsealed:
    """Let a journal that was moved go on in its old place, for the new one is lost for ever, as a named person states.

    What was sent from the new place is forgotten with it: everything that is not at its end is in quarantine, and the
    service's list is read before anything is sent. This cannot be taken back: the journal is refused in its new place
    from then on by each machine that knows of it.

    Args:
        source: Where it was, sealed; not open.
        destination: Where it went, as it was named then; not open. While a journal is there nothing is done.
        who: A person's name.
        why: The reason, in their words.
        is_lost: That the new place is gone though it cannot be asked, such as a server that does not answer.
        crash_at: Called with the name of every point between two steps, for tests that kill there.

    Raises:
        NotMoved: It was not moved, or not to that place. Nothing was done.
        MoveStands: The journal is there, or may be; or it has gone on from there, or in another copy of the old place.
            Nothing was done.
        JournalError: With what to do about it.
    """
    check_named(who, why)
    here, there = source.new_database(), destination.new_database()
    done = await asyncio.to_thread(_unsealed, here, there, who, why, is_lost, crash_at)
    async with source:  # now it is in quarantine, and this machine knows that it is here
        crash_at("unseal.known")
    return done


def _unsealed(
    here: JournalDatabase,
    there: JournalDatabase,
    who: str,
    why: str,
    is_lost: bool,
    crash_at: Callable[[str], None],
) -> Unsealed:
    facts = here.facts()
    if not facts:
        raise NotAJournal(f"{here.named}: there is no journal")
    with _remembering(here, facts) as memory:
        moved = _moved_to(facts, here, there)
        was_asked = _check_gone(moved, facts, here, there, memory, is_lost=is_lost)
        _check_not_gone_on(moved, facts, here, memory)
        with here.retired() as connection:
            still = _moved_to(facts_of(connection), here, there)
            if still.move != moved.move:
                raise NotMoved(f"{here.named}: it was moved again meanwhile")
            if memory is not None:  # before it counts here: there is no moment in which both places may send
                now = here.now()
                back = memory.registry.take_back(moved.move, TakenBack(here.address, who, why, now))
                if back.place != here.address:
                    raise MoveStands(f"{here.named}: this is a copy of what {back}")
            crash_at("unseal.remembered")
            here.unseal_tables(connection)
            forget_move(connection)
            note_unsealed(connection, moved, who=who, why=why, at=here.now())
            connection.execute("COMMIT")
    crash_at("unseal.done")
    return Unsealed(place=here.named, given_up=moved.to, was_asked=was_asked, is_remembered=memory is not None)


@contextmanager
def _remembering(here: JournalDatabase, facts: Mapping[str, str]) -> Iterator[Memory | None]:
    """What this machine remembers of a journal, if it is to be remembered."""
    memory = here.recall() if facts.get("remembers") == "yes" else None
    try:
        yield memory
    finally:
        if memory is not None:
            memory.close()


def _moved_to(facts: Mapping[str, str], here: JournalDatabase, there: JournalDatabase) -> Moved:
    """By which move a journal has gone to a place. Raises ``NotMoved``."""
    moved = moved_of(facts)
    if moved is None:
        raise NotMoved(f"{here.named}: it was not moved")
    if moved.to != there.address:
        raise NotMoved(f"{here.named}: it was moved to {moved.to}, and not to {there.address}")
    return moved


def _check_gone(
    moved: Moved,
    facts: Mapping[str, str],
    here: JournalDatabase,
    there: JournalDatabase,
    memory: Memory | None,
    *,
    is_lost: bool,
) -> bool:
    """Whether the new place was asked, and has no such journal any more; what cannot be asked has to be stated.

    Raises:
        MoveStands: It is there, or may be.
    """
    try:
        found = there.facts()
    except (NotAJournal, JournalCorrupt):
        return True  # nobody could send anything from there
    except JournalUnavailable as error:
        if is_lost:
            return False
        raise MoveStands(
            f"{here.named}: whether the journal is still at {moved.to} cannot be known from here ({error.message}); "
            "somebody who knows that it is gone for ever has to state it"
        ) from error
    if moved.move in moves_to(found) or found.get("journal_id") == facts["journal_id"]:
        back = None if memory is None else memory.registry.taken_back([moved.move])
        if memory is not None and back is not None and back.place == here.address:
            memory.registry.let_stand(moved.move)  # who took it back did not live to take the seal off, and it is there
        raise MoveStands(f"{here.named}: the journal is at {moved.to}, which answers")
    return True


def _check_not_gone_on(moved: Moved, facts: Mapping[str, str], here: JournalDatabase, memory: Memory | None) -> None:
    """Raise ``MoveStands`` where the journal has left the new place by another move."""
    place = None if memory is None else memory.registry.gone_on(facts["journal_id"], moved.to, moved.at)
    if place is not None:
        raise MoveStands(f"{here.named}: the journal has gone on from {moved.to} to {place}")
