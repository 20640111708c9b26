"""What leaves a journal for an archive, what stays of it, and that nothing that has left is ever sent again."""

import asyncio
import gzip
import json
import stat
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pytest
from journal import postgres
from journal.conftest import Home, Opens
from journal.factories import (
    BATCH,
    IDENTITY,
    Clock,
    claimed,
    delivery,
    event,
    in_outbox,
    order,
    orders,
    permitted,
    transaction_id,
)

from payments_async._wire.orders import PayoutOrder
from payments_async.journal import (
    ArchivedOrders,
    Happening,
    HeldElsewhere,
    Journal,
    OrdersArchived,
    OrdersDiffer,
    OrderUnknown,
    Particulars,
    PostgresJournal,
    Signal,
    SqliteJournal,
    State,
    TakeoverAuthorisation,
    archive_orders,
)
from payments_async.journal.contract import Arrival, Doubt, Evidence, OrderEvent, Outcome, Permit, Receipt
from payments_async.testing import Testing

DAY = 86_400.0
SHOP = "shop"
SIGNED = {"who": "A. Clerk", "why": "ninety days are over"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the archive goes."""
    return tmp_path / "old.jsonl.gz"


def is_there(file: Path) -> bool:
    """Whether there is such a file."""
    return file.exists()


def fill(file: Path) -> None:
    """Somebody else has a file of that name."""
    file.write_bytes(b"mine")


def content(file: Path) -> bytes:
    """What is in it."""
    return file.read_bytes()


async def archive(journal: Journal, file: Path, days: float = 90) -> ArchivedOrders:
    """What was not changed for so many days leaves."""
    return await archive_orders(journal, file, older_than=days * DAY, **SIGNED)


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The orders in an archive, without what stands around them."""
    with gzip.open(file, "rt", encoding="utf-8") as text:
        found = [json.loads(line) for line in text]
    return [line for line in found if "request_id" in line]


async def end(journal: Journal, count: int, signal: Sequence[Signal] = (Signal.LOOKED_UP_SUCCESSFUL,)) -> None:
    """A batch of so many orders, sent, accepted, and ended."""
    chunk = await claimed(journal, count)

    async def end_one(place: int) -> None:
        permit = await permitted(journal, chunk, place)
        await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(place)))
        await found(journal, place, signal[place % len(signal)])

    await asyncio.gather(*map(end_one, range(count)))
    await journal.release_chunk(chunk)


async def found(
    journal: Journal, number: int, signal: Signal, *, amount: str | None = None, batch: str = BATCH
) -> None:
    """What the service's list shows of one order."""
    about = order(number, amount, batch=batch)
    await journal.apply_evidence(
        Evidence(
            signal=signal,
            source="list",
            request_id=about.request_id,
            transaction_id=transaction_id(number),
            amount=about.amount,
            currency="UGX",
        )
    )


async def test_what_a_file_says_leaves_with_its_order(journal: Journal, clock: Clock, file: Path) -> None:
    """It is in the archive, and nothing that names a person stays in the journal."""
    await end(journal, 2)
    told = Particulars(file_row=20, cells={"Staff No": "E1017"})
    await journal.note_particulars([(order(1).request_id, told)])
    clock.pass_(91 * DAY)
    await archive(journal, file)
    assert [None, told.cells] == [line.get("cells") for line in lines_of(file)]
    assert await journal.particulars(order(1).request_id) is None
    assert [] == [entry async for entry in journal.find("E1017")]
    assert () == (await journal.examine()).flaws


async def put(
    journal: Journal,
    count: int,
    *,
    ended: Sequence[int] = (),
    signal: Sequence[Signal] = (Signal.LOOKED_UP_SUCCESSFUL,),
) -> None:
    """Single orders of an outbox, some of which were sent and have ended."""
    await journal.open_outbox(SHOP, IDENTITY)
    for number in range(count):
        await journal.put(SHOP, order(number, batch=SHOP))
    chunk = await journal.claim_chunk(SHOP, "worker")
    assert chunk is not None
    for place in ended:
        outcome = Outcome(
            permit=await permitted(journal, chunk, place), signal=Signal.ACCEPTED, transaction_id=transaction_id(place)
        )
        await journal.record(outcome)
        await found(journal, place, signal[place % len(signal)], batch=SHOP)
    await journal.release_chunk(chunk)


async def test_a_batch_that_ended_long_ago_leaves(journal: Journal, clock: Clock, file: Path) -> None:
    """With all that is known of it; the journal counts it as before, and says where it is."""
    await end(journal, 3, (Signal.LOOKED_UP_SUCCESSFUL, Signal.LOOKED_UP_FAILED))
    before, run = await journal.progress(BATCH), await journal.run(BATCH)
    stories = {f"{BATCH}-{n:06d}": await journal.history(f"{BATCH}-{n:06d}") for n in range(3)}
    clock.pass_(91 * DAY)
    assert ArchivedOrders(path=file, orders=3) == await archive(journal, file)
    assert before == await journal.progress(BATCH)
    assert attrs.evolve(run, archived=3) == await journal.run(BATCH)
    assert [] == [entry async for entry in journal.entries(BATCH)]
    lines = lines_of(file)
    assert [f"{BATCH}-{n:06d}" for n in range(3)] == [line["request_id"] for line in lines]
    for number, line in enumerate(lines):
        told = [attrs.asdict(one, filter=lambda _, value: value is not None) for one in stories[line["request_id"]]]
        assert told == line["story"]
        assert (str(order(number).amount), "UGX", BATCH) == (line["amount"], line["currency"], line["batch_id"])
        assert "Grace Akello" == line["order"]["beneficiary"]["name"]
    (kept,) = await journal.archives()
    assert (str(file), 3, "A. Clerk", clock.now) == (kept.path, kept.orders, kept.who, kept.ended)
    (gone,) = (await journal.archived_of([order(1).request_id, "nobody"])).values()
    assert (State.FAILED, order(1).amount, "UGX", kept) == (gone.state, gone.amount, gone.currency, gone.archive)
    with pytest.raises(OrderUnknown):
        await journal.history(order(1).request_id)


async def test_an_archive_is_readable_by_its_owner_alone_and_never_replaced(
    journal: Journal, clock: Clock, file: Path
) -> None:
    """A file or a link that is there stays as it is, and nothing leaves; without old orders none is made."""
    await end(journal, 1)
    assert ArchivedOrders(path=None) == await archive(journal, file)
    assert not is_there(file)
    clock.pass_(91 * DAY)
    fill(file)
    with pytest.raises(FileExistsError, match="never replaced"):
        await archive(journal, file)
    assert b"mine" == content(file)
    link = file.with_name("link")
    link.symlink_to(file.with_name("nowhere"))
    with pytest.raises(FileExistsError):
        await archive(journal, link)
    other = file.with_name("other.gz")
    await archive(journal, other)
    assert 0o600 == stat.S_IMODE(other.stat().st_mode)
    with gzip.open(other, "rt", encoding="utf-8") as text:
        head, _, foot = (json.loads(line) for line in text)
    assert ("payments-async archive 1", "A. Clerk") == (head["format"], head["who"])
    assert (True, 1, 1) == (foot["end"], foot["orders"], foot["left_the_journal"])


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"older_than": 7 * DAY}, id="too-young"),
        pytest.param({"older_than": float("nan")}, id="no-age"),
        pytest.param({"who": " "}, id="nobody"),
        pytest.param({"why": ""}, id="no-reason"),
    ],
)
async def test_nothing_leaves_by_mistake(journal: Journal, clock: Clock, file: Path, wrong: dict[str, Any]) -> None:
    """What a plan compares with stays, and a person answers for the rest."""
    await end(journal, 1)
    clock.pass_(91 * DAY)
    with pytest.raises(ValueError, match=r"older_than|who and why"):
        await archive_orders(journal, file, **{"older_than": 90 * DAY, **SIGNED, **wrong})
    assert ([], False) == (list(await journal.archives()), is_there(file))


@pytest.mark.parametrize("batch_id", [BATCH, "another"])
async def test_a_batch_that_has_left_is_not_taken_again(
    journal: Journal, clock: Clock, file: Path, batch_id: str
) -> None:
    """Neither under its own name nor under another, nor with one new order: nothing of it can be claimed."""
    await end(journal, 2)
    clock.pass_(91 * DAY)
    await archive(journal, file)
    await journal.open_run(batch_id, IDENTITY)
    for again in (orders(2), [order(7), *orders(2)]):
        with pytest.raises(OrdersArchived, match=r"payroll-000000 and 1 or more .* archive .*old\.jsonl\.gz"):
            await journal.load(batch_id, again, owner="loader")
    assert 2 == (await journal.progress()).total
    adoption = TakeoverAuthorisation(who="A. Clerk", why="the other one is lost")
    with pytest.raises(OrdersArchived):  # also for whoever calls it lost
        await journal.load(batch_id, orders(1), owner="loader", adoption=adoption)
    if batch_id == BATCH:
        with pytest.raises(OrdersArchived, match="2 orders of it left the journal for an archive"):
            await journal.load(batch_id, [], owner="loader")
    (run,) = [run for run in await journal.runs() if run.batch_id == batch_id]
    if run.ready:
        assert await journal.claim_chunk(batch_id, "worker") is None


async def test_a_single_order_that_has_left_is_put_again_and_not_sent(
    journal: Journal, clock: Clock, file: Path
) -> None:
    """The same gives its entry as it ended; another under its id is refused; the others of its chunk stay."""
    await put(journal, 3, ended=[0, 2])
    clock.pass_(91 * DAY)
    assert 2 == (await archive(journal, file)).orders
    placed = await journal.put(SHOP, order(0, batch=SHOP), owner="worker")
    assert (False, State.SUCCESSFUL, None) == (placed.is_new, placed.entry.state, placed.claimed)
    assert (order(0, batch=SHOP), transaction_id(0)) == (placed.entry.order, placed.entry.transaction_id)
    with pytest.raises(OrdersDiffer, match="archived, successful"):
        await journal.put(SHOP, order(0, "7", batch=SHOP))
    entry = await journal.entry(order(1, batch=SHOP).request_id)
    assert entry is not None
    assert State.PLANNED is entry.state
    with pytest.raises(OrdersArchived):
        await load_again(journal, order(2, batch=SHOP))


async def test_what_names_a_person_leaves(home: Home, opens: Opens, clock: Clock, file: Path) -> None:
    """Putting the same order again does not bring it back; its neighbours keep theirs."""
    async with opens() as journal:
        await put(journal, 2, ended=[0])
        clock.pass_(91 * DAY)
        assert 1 == (await archive(journal, file)).orders
        await journal.put(SHOP, order(0, batch=SHOP))
        with pytest.raises(OrdersArchived):
            await load_again(journal, order(0, batch=SHOP))
    told = [b"Grace Akello" in body for (body,) in home.rows("SELECT body FROM outbox ORDER BY id")]
    assert [False, True] == told
    assert [(None,)] == home.rows("SELECT put_at FROM outbox WHERE archive IS NOT NULL")


async def load_again(journal: Journal, about: PayoutOrder) -> None:
    """Into a batch of its own."""
    await journal.open_run("file", IDENTITY, outbox=SHOP)
    await journal.load("file", [about], owner="loader")


async def test_no_number_is_given_twice(journal: Journal, clock: Clock, file: Path) -> None:
    """The last orders of a chunk have left; what is put into it next is told apart from them."""
    await put(journal, 3, ended=[0, 1, 2])
    clock.pass_(91 * DAY)
    assert 3 == (await archive(journal, file)).orders
    await journal.put(SHOP, order(3, batch=SHOP))
    chunk = await journal.claim_chunk(SHOP, "worker")
    assert chunk is not None
    (claimed_order,) = chunk.orders
    assert order(3, batch=SHOP).request_id == claimed_order.request_id
    progress = await journal.progress(outbox=SHOP)
    assert (4, 3) == (progress.total, progress.counts[State.SUCCESSFUL])
    outcome = Outcome(permit=await permitted(journal, chunk), signal=Signal.ACCEPTED, transaction_id=transaction_id(3))
    assert ["planned", "permit"] == [one.what for one in await journal.history(claimed_order.request_id)]
    await journal.record(outcome)
    await found(journal, 3, Signal.LOOKED_UP_SUCCESSFUL, batch=SHOP)
    await journal.release_chunk(chunk)
    clock.pass_(91 * DAY)
    assert 1 == (await archive(journal, file.with_name("later.jsonl.gz"))).orders
    gone = await journal.archived_of([order(number, batch=SHOP).request_id for number in range(4)])
    assert 4 == len(gone)


async def test_what_somebody_waits_for_stays(journal: Journal, clock: Clock, file: Path) -> None:
    """What is open or contradicted, what a handler has still to hear of, or with a notification that waits or failed.

    They leave once that is over.
    """
    await journal.hear(SHOP, [State.REJECTED])
    await journal.open_outbox(SHOP, IDENTITY)
    for number in range(6):
        await journal.put(SHOP, order(number, batch=SHOP))
    chunk = await journal.claim_chunk(SHOP, "worker")
    assert chunk is not None
    ends = (Signal.REJECTED, Signal.ACCEPTED, Signal.ACCEPTED, Signal.ACCEPTED, Signal.ACCEPTED, Signal.UNKNOWN)
    for place, signal in enumerate(ends):
        named = transaction_id(place) if signal is Signal.ACCEPTED else None
        await journal.record(
            Outcome(permit=await permitted(journal, chunk, place), signal=signal, transaction_id=named)
        )
    for number in (1, 2, 3, 4):
        await found(journal, number, Signal.LOOKED_UP_SUCCESSFUL, batch=SHOP)
    await found(journal, 1, Signal.LOOKED_UP_FAILED, batch=SHOP)  # contradicts
    waits = await receive(journal, 2)
    await receive(journal, 3, doubt=Doubt.UNCONFIRMED)
    clock.pass_(91 * DAY)
    assert 1 == (await archive(journal, file)).orders
    assert [order(4, batch=SHOP).request_id] == [line["request_id"] for line in lines_of(file)]
    (change,) = await journal.claim_changes(SHOP, [State.REJECTED], "app", lease=30, limit=10)
    await journal.finish_changes([change.id])
    await journal.finish(waits.event_id, "handled")
    more = file.with_name("more.gz")
    assert 2 == (await archive(journal, more)).orders
    assert [0, 2] == [int(line["request_id"][-6:]) for line in lines_of(more)]


async def receive(
    journal: Journal, number: int, code: int = 0, *, doubt: Doubt | None = None, batch: str = SHOP, **about: Any
) -> Receipt:
    """A notification about an order, which waits for a handler."""
    told = attrs.evolve(event(code, number, **about), request_id=order(number, batch=batch).request_id)
    arrival = Arrival(delivery=delivery(b"%d" % number), event=told, lease=0, doubt=doubt)
    (receipt,) = await journal.receive_all((arrival,), owner="receiver")
    assert isinstance(receipt, Receipt)
    return receipt


async def test_a_batch_leaves_as_a_whole(journal: Journal, clock: Clock, file: Path) -> None:
    """While one order of it is open, or was changed of late, the same file still goes on with it."""
    await end(journal, 2)
    await journal.open_run("other", IDENTITY)
    await journal.load("other", orders(2, batch="other"), owner="loader")
    chunk = await journal.claim_chunk("other", "worker")
    assert chunk is not None
    await journal.record(Outcome(permit=await permitted(journal, chunk, 0), signal=Signal.REJECTED))
    permit = await permitted(journal, chunk, 1)
    clock.pass_(91 * DAY)
    assert 2 == (await archive(journal, file)).orders
    assert 2 == (await journal.load("other", orders(2, batch="other"), owner="loader")).total
    await journal.record(Outcome(permit=permit, signal=Signal.REJECTED))
    assert ArchivedOrders(path=None) == await archive(journal, file.with_name("2.gz"))
    clock.pass_(91 * DAY)
    assert 2 == (await archive(journal, file.with_name("2.gz"))).orders


async def test_what_agrees_with_an_archived_order_is_no_stranger_and_changes_nothing(
    journal: Journal, clock: Clock, file: Path
) -> None:
    """Its notification once more, after the first was forgotten too; and the list."""
    await end(journal, 2)
    clock.pass_(91 * DAY)
    await archive(journal, file)
    before = await journal.progress(BATCH)
    receipt = await receive(journal, 0, batch=BATCH)
    assert (None, 0) == (receipt.conflict, await journal.unmatched_events())
    await found(journal, 1, Signal.LOOKED_UP_SUCCESSFUL)
    assert before == await journal.progress(BATCH)
    assert [()] * 2 == [
        gone.late for gone in (await journal.archived_of([order(n).request_id for n in (0, 1)])).values()
    ]
    await receive(journal, 50, batch=BATCH)
    assert 1 == await journal.unmatched_events()


async def test_a_reversal_of_an_archived_order_counts(journal: Journal, clock: Clock, file: Path) -> None:
    """The money came back: sums, what is known of the order, and the feed of its outbox say so."""
    await journal.hear(SHOP, [State.REVERSED])
    await put(journal, 2, ended=[0, 1])
    clock.pass_(91 * DAY)
    assert 2 == (await archive(journal, file)).orders
    last = await journal.last_change()
    clock.pass_(DAY)
    await found(journal, 1, Signal.LOOKED_UP_REVERSED, batch=SHOP)
    progress = await journal.progress(outbox=SHOP)
    assert (1, 1) == (progress.counts[State.SUCCESSFUL], progress.counts[State.REVERSED])
    assert order(1, batch=SHOP).amount == progress.sums[State.REVERSED]
    gone = (await journal.archived_of([order(1, batch=SHOP).request_id]))[order(1, batch=SHOP).request_id]
    assert (State.REVERSED, clock.now) == (gone.state, gone.updated_at)
    (told,) = gone.late
    assert isinstance(told, Happening)
    assert (Signal.LOOKED_UP_REVERSED, State.REVERSED) == (told.signal, told.state)
    (change,) = await journal.changes_after(SHOP, last)
    assert isinstance(change, OrderEvent)
    assert (order(1, batch=SHOP).request_id, State.REVERSED) == (change.request_id, change.state)
    # what it was is archived, so that no handler can be given it: it is a dead letter, which a person is shown
    assert [] == list(await journal.claim_changes(SHOP, [State.REVERSED], "app", lease=30, limit=10))
    (dead,) = [dead async for dead in journal.dead_changes()]
    assert (order(1, batch=SHOP).request_id, True) == (dead.request_id, "left for an archive" in (dead.error or ""))


async def test_what_a_list_has_shown_of_an_order_leaves_with_it(
    home: Home, opens: Opens, clock: Clock, file: Path
) -> None:
    """That is known again by what stays of it; of one that nobody has put it stays, and keeps that from being sent."""
    async with opens() as journal:
        seen = [order(number, batch=SHOP) for number in (0, 7)]
        await journal.open_outbox(SHOP, IDENTITY)
        await journal.note_observed(
            [
                Evidence(source="list", request_id=one.request_id.upper(), transaction_id=transaction_id(place),
                         amount=one.amount, currency="UGX", signal=Signal.LOOKED_UP_SUCCESSFUL)
                for place, one in enumerate(seen)
            ]
        )  # fmt: skip
        assert State.SUCCESSFUL is (await journal.put(SHOP, seen[0])).entry.state
        await journal.acknowledge(seen[0].request_id, **SIGNED)
        clock.pass_(91 * DAY)
        assert 1 == (await archive(journal, file)).orders
        assert [(seen[1].request_id,)] == home.rows("SELECT request_key FROM sighting")
        assert State.SUCCESSFUL is (await journal.put(SHOP, seen[1])).entry.state


async def test_what_contradicts_an_archived_order_is_kept_and_moves_nothing(
    journal: Journal, clock: Clock, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure after its success, another amount, another transaction: told, logged, and shown with the order."""
    await end(journal, 3)
    clock.pass_(91 * DAY)
    await archive(journal, file)
    before = await journal.progress(BATCH)
    failed = await receive(journal, 0, 2, batch=BATCH)
    assert failed.conflict is not None
    await found(journal, 1, Signal.LOOKED_UP_SUCCESSFUL, amount="7")
    await found(journal, 1, Signal.LOOKED_UP_SUCCESSFUL, amount="7")
    other = await receive(journal, 2, batch=BATCH, transaction=transaction_id(99))
    assert (before, True) == (await journal.progress(BATCH), other.conflict is not None)
    gone = await journal.archived_of([order(n).request_id for n in range(3)])
    assert [1, 1, 1] == [len(one.late) for one in gone.values()]
    assert all(one.late[0].conflict for one in gone.values())
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert 3 == sum("new evidence about an archived order" in said for said in errors)


async def test_what_is_listed_is_what_is_here(journal: Journal, clock: Clock, file: Path) -> None:
    """Of orders that left none is listed, compared or looked for, whatever its end; they are known by their ids."""
    ends = (Signal.LOOKED_UP_SUCCESSFUL, Signal.LOOKED_UP_FAILED, Signal.LOOKED_UP_REVERSED)
    await put(journal, 4, ended=[0, 1, 2], signal=ends)
    await end(journal, 3, ends)
    clock.pass_(91 * DAY)
    assert 6 == (await archive(journal, file)).orders
    left = order(3, batch=SHOP).request_id
    assert [left] == [entry.request_id async for entry in journal.entries()]
    assert {left: State.PLANNED} == {
        entry.request_id: state for state in State async for entry in journal.entries(None, state)
    }
    assert [] == [page async for page in journal.standings(BATCH)]
    assert [] == [entry async for entry in journal.conflicts()]
    assert [left] == [entry.request_id async for page in journal.paid_since(0.0) for entry in page]
    assert [] == [
        one
        for state in State
        async for page in journal.open_orders(SHOP, state)
        for one in page
        if state is not State.PLANNED
    ]
    assert None is await journal.sent_since(None, tuple(State))
    ids = [order(number, batch=batch).request_id for batch in (SHOP, BATCH) for number in range(4)]
    known = await journal.orders_of(ids)
    assert [left] == list(await journal.entries_of(ids))
    assert known.keys() - {left} == (await journal.archived_of(ids)).keys() == {*ids} - {left, ids[-1]}
    assert (await journal.examine()).is_sound


async def test_a_transaction_that_an_archived_order_and_one_that_is_here_have(
    journal: Journal, clock: Clock, file: Path
) -> None:
    """What names it alone counts for the one that is here."""
    await put(journal, 2, ended=[0])
    clock.pass_(91 * DAY)
    assert 1 == (await archive(journal, file)).orders
    chunk = await journal.claim_chunk(SHOP, "worker")
    assert chunk is not None
    permit = await permitted(journal, chunk)
    await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=transaction_id(0)))
    late = Evidence(signal=Signal.LOOKED_UP_SUCCESSFUL, source="record", transaction_id=transaction_id(0))
    told = await journal.apply_evidence(late)
    assert told is not None
    assert (order(1, batch=SHOP).request_id, State.SUCCESSFUL) == (told.request_id, told.state)


@pytest.mark.parametrize("signal", [Signal.NOT_SENT, Signal.REJECTED, Signal.UNKNOWN, Signal.ACCEPTED])
async def test_an_answer_that_comes_when_its_order_has_left(
    journal: Journal, clock: Clock, file: Path, signal: Signal
) -> None:
    """From a worker that stood still for months: the order stands as it ended, and stays out of all hands."""
    await put(journal, 1)
    chunk = await journal.claim_chunk(SHOP, "stands still", lease=1.0)
    assert chunk is not None
    permit = await permitted(journal, chunk)
    await found(journal, 0, Signal.LOOKED_UP_SUCCESSFUL, batch=SHOP)
    clock.pass_(91 * DAY)
    assert 1 == (await archive(journal, file)).orders
    other = transaction_id(9) if signal is Signal.ACCEPTED else None
    told = await journal.record(Outcome(permit=permit, signal=signal, transaction_id=other))
    assert State.SUCCESSFUL is told.state
    assert not isinstance(await journal.permit(chunk, chunk.orders[0]), Permit)
    assert await journal.claim_chunk(SHOP, "worker") is None
    (gone,) = (await journal.archived_of([permit.request_id])).values()
    assert (State.SUCCESSFUL, signal is not Signal.UNKNOWN) == (gone.state, bool(gone.late))
    assert [] == [entry async for entry in journal.entries()]
    assert (await journal.examine()).is_sound


async def test_what_was_notified_of_an_archived_order_is_called_false(
    journal: Journal, clock: Clock, file: Path
) -> None:
    """It asks for no acknowledgement."""
    await end(journal, 2)
    clock.pass_(91 * DAY)
    await archive(journal, file)
    receipt = await receive(journal, 0, batch=BATCH)
    await journal.finish(receipt.event_id, "disputed", error="the record says otherwise")
    assert (0, []) == ((await journal.progress(BATCH)).conflicts, [entry async for entry in journal.conflicts()])


async def test_a_notification_that_comes_again_under_the_id_of_an_archived_order(
    journal: Journal, clock: Clock, file: Path
) -> None:
    """It contradicts, and is kept with that order."""
    await end(journal, 2)
    clock.pass_(91 * DAY)
    await archive(journal, file)
    await receive(journal, 0, batch=BATCH)
    again = attrs.evolve(event(0, 0), request_id=order(1).request_id)
    arrival = Arrival(delivery=delivery(b"again"), event=again, lease=0)
    (receipt,) = await journal.receive_all((arrival,), owner="receiver")
    assert isinstance(receipt, Receipt)
    assert "was notified of before, as that of request id" in (receipt.conflict or "")
    gone = await journal.archived_of([order(n).request_id for n in range(2)])
    assert [0, 1] == [len(one.late) for one in gone.values()]


async def test_a_copy_knows_what_has_left(home: Home, clock: Clock, file: Path) -> None:
    """Once it is released as well."""
    async with home.opens(clock=clock) as journal:
        await put(journal, 2, ended=[0])
        clock.pass_(91 * DAY)
        assert 1 == (await archive(journal, file)).orders
    async with home.copied()(clock=clock) as journal:
        await journal.open_outbox(SHOP, IDENTITY)
        for one in (order(0, batch=SHOP), attrs.evolve(order(0, batch=SHOP), request_id="SHOP-000000")):
            with suppress(OrdersDiffer):
                placed = await journal.put(SHOP, one, owner="worker", permits=True)
                assert (State.SUCCESSFUL, None, None) == (placed.entry.state, placed.permit, placed.claimed)
        assert (2, 1) == ((await journal.progress()).total, (await journal.run(SHOP)).archived)


async def test_an_order_of_an_archive_that_an_application_lays_in_its_own_transaction(
    journal: Journal, clock: Clock, file: Path
) -> None:
    """The same is there as it ended; another one under its id is refused; nothing lies in the tray."""
    if not isinstance(journal, PostgresJournal):
        with pytest.raises(ValueError, match="use a PostgresJournal"):
            await journal.lay(SHOP, order(0, batch=SHOP), object())
        return
    await put(journal, 1, ended=[0])
    clock.pass_(91 * DAY)
    assert 1 == (await archive(journal, file)).orders
    async with await psycopg.AsyncConnection.connect(postgres.dsn()) as connection:
        entry = await journal.lay(SHOP, order(0, batch=SHOP), connection)
        with pytest.raises(OrdersDiffer):
            await journal.lay(SHOP, order(0, "7", batch=SHOP), connection)
        with pytest.raises(OrdersDiffer, match="SHOP-000000 differs from shop-000000"):
            await journal.lay(SHOP, attrs.evolve(order(0, batch=SHOP), request_id="SHOP-000000"), connection)
    assert (State.SUCCESSFUL, order(0, batch=SHOP)) == (entry.state, entry.order)
    assert [] == list(await journal.laid(SHOP))


async def test_an_order_of_which_more_was_learned_meanwhile_stays(journal: Journal, clock: Clock, file: Path) -> None:
    """Between the reading of a page and its leaving: what is in the file is not all any more."""
    await put(journal, 2, ended=[0, 1])
    clock.pass_(91 * DAY)
    number = await journal.begin_archive(str(file), **SIGNED)
    (page,) = [page async for page in journal.old_orders(older_than=90 * DAY)]
    await found(journal, 0, Signal.LOOKED_UP_REVERSED, batch=SHOP)
    assert 1 == await journal.prune_orders(number, page)
    assert 0 == await journal.prune_orders(number, page)  # again: it has left
    assert [order(0, batch=SHOP).request_id] == [entry.request_id async for entry in journal.entries(SHOP)]
    assert (1, 2) == ((await journal.run(SHOP)).archived, (await journal.progress(SHOP)).total)


@pytest.mark.slow
async def test_an_archiving_that_is_cancelled_can_be_done_again(journal: Journal, clock: Clock, file: Path) -> None:
    """Whenever that was: each order is in the journal or whole in a file."""
    await end(journal, 400)
    clock.pass_(91 * DAY)
    seen = set[str]()
    for turn in range(6):
        some = file.with_name(f"{turn}.gz")
        task = asyncio.ensure_future(archive(journal, some))
        for _ in range(8 * turn):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if is_there(some):
            seen |= {line["request_id"] for line in lines_of(some)}
        left = {entry.request_id async for entry in journal.entries()}
        assert {order(number).request_id for number in range(400)} == left | seen
    if left:
        await archive(journal, file)
    assert [] == [entry async for entry in journal.entries()]
    assert 400 == (await journal.progress()).counts[State.SUCCESSFUL]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["removed", "replaced", "emptied"])
async def test_a_file_that_another_program_changes_meanwhile(
    journal: Journal, clock: Clock, file: Path, how: str
) -> None:
    """Nothing more leaves for it: what did not leave before stays in the journal."""
    await end(journal, 300)
    clock.pass_(91 * DAY)

    def change(_: int) -> None:
        if how == "emptied":
            file.write_bytes(b"")
            return
        file.unlink()
        if how == "replaced":
            file.write_bytes(b"theirs")

    with pytest.raises(OSError, match=r"old\.jsonl\.gz"):
        await archive_orders(journal, file, older_than=90 * DAY, **SIGNED, progress=change)
    assert 50 == len([entry async for entry in journal.entries()])
    done = await archive(journal, file.with_name("other.gz"))
    assert (50, 0) == (done.orders, done.stayed)


async def test_ids_in_other_letters_are_known_again(journal: Journal, clock: Clock, file: Path) -> None:
    """As a list may show them."""
    await end(journal, 1)
    clock.pass_(91 * DAY)
    await archive(journal, file)
    asked = [f" {order(0).request_id.upper()} "]
    found = await journal.archived_of(asked)
    assert {asked[0]: order(0).request_id} == {one: gone.request_id for one, gone in found.items()}


async def test_another_journal_cannot_send_what_has_left_this_one(
    opens: Opens, tmp_path: Path, clock: Clock, file: Path
) -> None:
    """This machine remembers the ids as it did before."""
    async with opens() as journal:
        await end(journal, 2)
        clock.pass_(91 * DAY)
        await archive(journal, file)
    async with SqliteJournal(tmp_path / "second.db", testing=Testing(now=clock)) as second:
        await second.open_run(BATCH, IDENTITY)
        with pytest.raises(HeldElsewhere):
            await second.load(BATCH, orders(2), owner="loader")


@pytest.mark.slow
async def test_what_left_amounts_to_what_was_there(journal: Journal, clock: Clock, file: Path) -> None:
    """More than a page, in more than one batch and an outbox: each order once, sums as before."""
    await end(journal, 400)
    chunk = await in_outbox(journal, 300)
    permits = await asyncio.gather(*(permitted(journal, chunk, place) for place in range(300)))
    await asyncio.gather(*(journal.record(Outcome(permit=one, signal=Signal.REJECTED)) for one in permits))
    before = await journal.progress()
    clock.pass_(91 * DAY)
    told: list[int] = []
    done = await archive_orders(journal, file, older_than=90 * DAY, progress=told.append, **SIGNED)
    assert (700, 700, sorted(told)) == (done.orders, told[-1], told)
    lines = lines_of(file)
    assert (700, 700) == (len(lines), len({line["request_id"] for line in lines}))
    assert before == await journal.progress()
    assert sum(before.sums.values()) == sum((Decimal(line["amount"]) for line in lines), Decimal(0))
