"""Request ids that differ in letters alone are one id, whichever way orders get in and whatever is told of them."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from journal.conftest import Opens
from journal.factories import BATCH, IDENTITY, Clock, delivery, event, in_outbox, order, permitted, transaction_id

from payments_async import PayoutOrder
from payments_async._values.request_ids import plain_id
from payments_async.journal import (
    HeldElsewhere,
    Journal,
    OrdersArchived,
    OrdersDiffer,
    Signal,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
)
from payments_async.journal.contract import Evidence, Outcome

SHOP = "shop"
MEANT = TakeoverAuthorisation(who="Grace", why="two branches")
ALIKE = [("Voucher-17", "voucher-17"), ("\u00c9a-1", "\u00e9a-1"), ("\uff30\uff21\uff39-1", "pay-1")]
Pipeline = Callable[[Journal, PayoutOrder], Coroutine[Any, Any, object]]


def named(request_id: str, number: int = 1) -> PayoutOrder:
    """An order of that id."""
    return attrs.evolve(order(number), request_id=request_id)


async def put(journal: Journal, one: PayoutOrder) -> object:
    """One order, by itself."""
    await journal.open_outbox(SHOP, IDENTITY)
    return await journal.put(SHOP, one)


async def load(journal: Journal, one: PayoutOrder) -> object:
    """A batch of its own."""
    batch = f"batch of {one.request_id}"
    await journal.open_run(batch, IDENTITY)
    return await journal.load(batch, [one], owner="loader")


async def load_into_the_outbox(journal: Journal, one: PayoutOrder) -> object:
    """A batch that whoever works the outbox sends, as a fleet is given it."""
    batch = f"batch of {one.request_id}"
    await journal.open_outbox(SHOP, IDENTITY)
    await journal.open_run(batch, IDENTITY, outbox=SHOP)
    return await journal.load(batch, [one], owner="loader")


WAYS: list[Pipeline] = [put, load, load_into_the_outbox]


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
async def test_the_second_of_two_ids_that_differ_in_letters_alone_is_refused(
    journal: Journal, first: Pipeline, second: Pipeline
) -> None:
    """The second one is not written down, whichever way each of them came, in every alphabet."""
    for one, other in ALIKE:
        await first(journal, named(one))
        with pytest.raises(OrdersDiffer, match=f"request id {other} differs from {one}"):
            await second(journal, named(other))
        entry = await journal.entry(other)
        assert entry is not None
        assert one == entry.request_id
    assert len(ALIKE) == (await journal.progress()).counts[State.PLANNED]


async def test_one_batch_with_an_id_in_two_spellings(journal: Journal) -> None:
    """The batch is refused as a whole, in one block and after an interrupted load."""
    await journal.open_run(BATCH, IDENTITY)
    with pytest.raises(OrdersDiffer, match="request id pay-1 differs from PAY-1"):
        await journal.load(BATCH, [named("PAY-1"), named("pay-1", 2)], owner="loader")

    def broken_off() -> Any:
        yield from (named(f"x-{number}") for number in range(1000))
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        await journal.load(BATCH, broken_off(), owner="loader")
    with pytest.raises(OrdersDiffer, match="request id X-7 differs from x-7"):
        await journal.load(BATCH, [named("X-7")], owner="loader")


async def test_what_has_left_for_an_archive_is_known_in_any_letters(journal: Journal, clock: Clock) -> None:
    """A second order under its id is refused."""
    chunk = await in_outbox(journal, 1)
    await journal.record(Outcome(permit=await permitted(journal, chunk), signal=Signal.REJECTED))
    clock.pass_(1e7)
    archive = await journal.begin_archive("file", who="Grace", why="old")
    async for page in journal.old_orders(older_than=1e6):
        assert 1 == await journal.prune_orders(archive, page)
    again = named(order(0, batch=SHOP).request_id.upper())
    with pytest.raises(OrdersDiffer, match="request id SHOP-000000 differs from shop-000000"):
        await put(journal, again)
    with pytest.raises(OrdersArchived, match="request id shop-000000 of these orders ended long ago"):
        await load(journal, again)


@pytest.mark.parametrize("second", WAYS)
async def test_an_id_that_another_journal_of_this_machine_holds(opens: Opens, tmp_path: Path, second: Pipeline) -> None:
    """The second journal refuses it in whatever letters: what this machine remembers is known by the same key."""
    async with SqliteJournal(tmp_path / "first.db") as first:
        await put(first, named("Voucher-17"))
    async with opens(second_journal=MEANT) as journal:
        with pytest.raises(HeldElsewhere, match="may have been sent already"):
            await second(journal, named("voucher-17"))


async def test_what_an_older_version_has_registered(tmp_path: Path) -> None:
    """It wrote the ids themselves: they are known by their keys once the registry was opened."""
    state = tmp_path / "state"
    async with SqliteJournal(tmp_path / "first.db", state_folder=state) as first:
        await put(first, named("Voucher-17"))
    with closing(sqlite3.connect(state / "registry.sqlite", isolation_level=None)) as registry:
        registry.execute("UPDATE request SET request_id = 'Voucher-17'")
        registry.execute("PRAGMA user_version = 0")
    async with SqliteJournal(tmp_path / "second.db", state_folder=state, second_journal=MEANT) as second:
        with pytest.raises(HeldElsewhere):
            await put(second, named("voucher-17"))


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("way", WAYS)
async def test_a_notification_in_other_letters_is_about_the_order(
    journal: Journal, way: Pipeline, *, is_first: bool
) -> None:
    """Nobody here has sent the order that it names: a person has to look, whichever of both came first."""
    told = attrs.evolve(event(0, 1), request_id="VOUCHER-17")
    if is_first:
        await journal.receive(delivery(), told, owner="receiver", lease=30)
    await way(journal, named("voucher-17"))
    if not is_first:
        await journal.receive(delivery(), told, owner="receiver", lease=30)
    entry = await journal.entry("voucher-17")
    assert entry is not None
    assert State.PARKED is entry.state
    assert 0 == await journal.unmatched_events()


async def test_what_a_list_has_shown_in_other_letters_is_not_sent(journal: Journal) -> None:
    """Also where small letters of another alphabet were listed."""
    seen = Evidence(
        source="list",
        request_id="\u00e9a-1",
        transaction_id=transaction_id(),
        signal=Signal.LOOKED_UP_SUCCESSFUL,
        amount=order().amount,
        currency="UGX",
    )
    await journal.note_observed([seen])
    await put(journal, named("\u00c9a-1"))
    entry = await journal.entry("\u00c9a-1")
    assert entry is not None
    assert State.SUCCESSFUL is entry.state


async def test_evidence_in_other_letters_is_about_the_order(journal: Journal) -> None:
    """The list shows the id in letters of its own."""
    await put(journal, named("Voucher-17"))
    finding = await journal.apply_evidence(
        Evidence(
            signal=Signal.LOOKED_UP_SUCCESSFUL,
            source="list",
            request_id="VOUCHER-17",
            transaction_id=transaction_id(),
            amount=order().amount,
        )
    )
    assert finding is not None
    assert ("Voucher-17", State.SUCCESSFUL) == (finding.request_id, finding.state)


@pytest.mark.slow(covered=True)
def test_the_key_of_a_key_is_the_key() -> None:
    """For every character there is: what is known by its key is found by it."""
    for number in range(sys.maxunicode + 1):
        key = plain_id(f"a{chr(number)}-1")
        assert key == plain_id(key), hex(number)
