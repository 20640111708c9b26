"""What a batch file says beside its orders, and orders found by the person they pay."""

import attrs
import pytest
from journal.conftest import Opens
from journal.factories import BATCH, IDENTITY, Clock, claimed, delivery, event, order, orders, permitted

from payments_async import Beneficiary, MobileMoneyWallet
from payments_async.journal import Journal, Particulars, Signal
from payments_async.journal.contract import Outcome

ZOE = attrs.evolve(order(1), beneficiary=Beneficiary(name="Zoe Müller"), destination=MobileMoneyWallet("+256772100629"))


async def loaded(journal: Journal) -> None:
    """A batch in which one order pays Zoe, whose staff number the file knows."""
    await journal.open_run(BATCH, IDENTITY)
    await journal.load(BATCH, [ZOE, *orders(5)[2:]], owner="test")
    told = Particulars(file_row=20, cells={"Staff No": "E1017", "Department": "Field"})
    await journal.note_particulars([(ZOE.request_id.upper(), told), ("never-loaded", told)])


@pytest.mark.parametrize("text", ["MULLER zoe", "Zoe  Müller", "0772 100 629", "+256772100629", "e1017", "field"])
async def test_a_person_is_found_by_what_one_knows_of_them(journal: Journal, text: str) -> None:
    """By name without case and accents, by a number however it is written, by a whole cell of the file."""
    await loaded(journal)
    assert [ZOE.request_id] == [entry.request_id async for entry in journal.find(text)]
    told = await journal.particulars(ZOE.request_id)
    assert told == Particulars(file_row=20, cells={"Staff No": "E1017", "Department": "Field"})
    assert "E1017" not in repr(told)


@pytest.mark.parametrize("text", ["", " ", "E101", "00629", "Mül", "Zoe Akello", "UGX"])
async def test_what_finds_nobody(journal: Journal, text: str) -> None:
    """Half a staff number, few digits, half a name: too little to take one person for another."""
    await loaded(journal)
    assert [] == [entry async for entry in journal.find(text, BATCH)]


async def test_accepted_orders_of_which_nothing_is_heard(opens: Opens, clock: Clock) -> None:
    """Since the oldest acceptance no notification has come, about whatever order; one ends that."""
    async with opens() as journal:
        chunk = await claimed(journal)
        assert await journal.unheard_since(BATCH) is None
        await journal.record(Outcome(permit=await permitted(journal, chunk, 0), signal=Signal.ACCEPTED))
        since = clock.now
        clock.pass_(600)
        assert (since, since) == (await journal.unheard_since(), await journal.unheard_since(BATCH))
        await journal.receive(delivery(at=clock.now), event(0, 2), owner="r", lease=30)
        assert await journal.unheard_since(BATCH) is None
