"""Since when orders may have been sent: what is asked of few rows is what all rows of their attempts say."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from journal.conftest import Home
from journal.factories import IDENTITY, Clock, order, transaction_id

from payments_async.journal import Journal, JournalError, Signal, SqliteJournal, State, TakeoverAuthorisation
from payments_async.journal.contract import Evidence, Outcome, Permit

SHOP = "shop"
ORDERS = 6
STEPS = 80
ANN = TakeoverAuthorisation(who="Ann", why="the disk burnt")
ENDS = (Signal.ACCEPTED, Signal.REJECTED, Signal.UNKNOWN, Signal.NOT_SENT, Signal.NOT_SENT)
ALL_ROWS = """SELECT min(o.permitted_at), min(a.permitted_at) FROM outbox o LEFT JOIN attempt a ON a.order_id = o.id
    WHERE o.state = '{}' AND o.attempt > 0 AND o.permitted_at > {!r}"""


async def _put(journal: Journal, clock: Clock, chance: random.Random, permits: list[Permit]) -> None:
    """Put an order, that a session may have sent by itself, or another journal, or both."""
    one, at = order(chance.randrange(ORDERS)), clock.now - chance.choice([0.0, 50.0, 900_000.0])
    signal = chance.choice([None, None, Signal.ACCEPTED, Signal.UNKNOWN])
    about = {"source": "session", "request_id": one.request_id, "transaction_id": transaction_id(), "at": at}
    placed = await journal.put(
        SHOP,
        one,
        owner=chance.choice(["worker", None]),
        permits=chance.random() < 0.5,
        adoption=chance.choice([None, ANN]),
        sent=None if signal is None else Evidence(signal=signal, **about),
    )
    if placed.permit is not None:
        permits.append(placed.permit)


async def _work(journal: Journal, clock: Clock, chance: random.Random, permits: list[Permit]) -> None:
    """Send an order, learn how one ended, have one sent again, or let a lease run out."""
    request_id = order(chance.randrange(ORDERS)).request_id
    match chance.randrange(5):
        case 0:
            chunk = await journal.claim_chunk(SHOP, "worker", lease=1_000.0)
            for claimed in () if chunk is None else chunk.orders:
                granted = await journal.permit(chunk, claimed)
                if isinstance(granted, Permit):
                    permits.append(granted)
        case 1 if permits:
            permit = permits.pop(chance.randrange(len(permits)))
            await journal.record(Outcome(permit=permit, signal=chance.choice(ENDS), message="told"))
        case 2:
            await journal.park(request_id, detail="not in two lists")
            await journal.send_again(request_id, who="Ann", why="the statement does not show it")
        case 3:
            clock.pass_(chance.choice([10.0, 2_000.0]))
            await journal.expire_chunks()
        case 4:
            signal = chance.choice([Signal.LOOKED_UP_SUCCESSFUL, Signal.LOOKED_UP_FAILED])
            await journal.apply_evidence(
                Evidence(signal=signal, source="list", request_id=request_id, transaction_id=transaction_id())
            )


async def _first_of_all_rows(home: Home, journal: Journal, state: State, after: float) -> float | None:
    found = home.rows(ALL_ROWS.format(state.value, after))
    return min((moment for row in found for moment in row if moment is not None), default=None)


@pytest.mark.parametrize("seed", range(12))
async def test_a_history_of_any_kind(home: Home, seed: int) -> None:
    """Orders that were sent again, elsewhere, or by a session before: none is younger than its earliest permit."""
    clock, chance, permits = Clock(), random.Random(seed), list[Permit]()
    earlier = 0
    async with home.opens(clock=clock) as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        for _ in range(STEPS if isinstance(journal, SqliteJournal) else STEPS // 2):
            with suppress(JournalError):
                await chance.choice([_put, _work])(journal, clock, chance, permits)
            state, after = chance.choice(list(State)), chance.choice([0.0, clock.now - 1_000.0])
            for one in (state, State.UNKNOWN):
                asked = await journal.sent_since(chance.choice([None, SHOP]), (one,), after=after)
                assert asked == await _first_of_all_rows(home, journal, one, after)
                earlier += asked is not None and asked < clock.now - 40_000.0
    assert earlier
