"""A plan against last month's, against limits, and against what is odd about who is paid."""

from decimal import Decimal
from pathlib import Path

import pytest
from bulk.files import row, write_csv
from bulk.test_plan import fields, of_file, order, sent

from payments_async import Beneficiary, MobileMoneyWallet, PaymentsSession, PayoutOrder
from payments_async.bulk import Comparison, Plan, PlanProgress, PlanSettings, plan, read_batch
from payments_async.bulk._file._buckets import Buckets
from payments_async.journal import SqliteJournal, StateFolder
from payments_async.outbox._scans import account_of


def person(number: int, name: str = "", **changes: object) -> PayoutOrder:
    """An order to somebody of a name of their own."""
    return order(number, beneficiary=Beneficiary(name=name or f"Person {chr(64 + number)}"), **changes)


OCTOBER = [person(n, request_id=f"OCT-{n}", amount=Decimal(1000)) for n in range(1, 8)]
NOVEMBER = [
    person(1, amount=Decimal(1000)),
    person(2, amount=Decimal("1200.00")),
    person(3, amount=Decimal("1200.01")),
    person(4, "Other Name", amount=Decimal(1000)),
    person(5, amount=Decimal(900), destination=MobileMoneyWallet("+256752000005")),
    person(8, amount=Decimal(7)),
    person(9, "b PERSON", amount=Decimal(5), destination=MobileMoneyWallet("+256 772-000002")),
]


def told(found: Comparison | None) -> list[tuple[str, str, Decimal | None, Decimal | None]]:
    """What is shown of a comparison."""
    assert found is not None
    return [(one.kind, one.request_id, one.before, one.now) for one in found.shown]


EXPECTED = [
    ("other account", "RUN-5", Decimal(1000), Decimal(900)),
    ("other name", "RUN-4", Decimal(1000), Decimal(1000)),
    ("amount", "RUN-2", Decimal(1000), Decimal(1205)),
    ("amount", "RUN-3", Decimal(1000), Decimal("1200.01")),
    ("new", "RUN-8", None, Decimal(7)),
    ("gone", "OCT-7", Decimal(1000), None),
    ("gone", "OCT-6", Decimal(1000), None),
]


async def test_a_batch_is_compared_with_one_of_the_journal(payments: PaymentsSession, journal: SqliteJournal) -> None:
    """New, gone, changed by more than a fifth, known by another name or at another account; nobody is named."""
    await sent(journal, "october", *OCTOBER)
    made = await plan(
        payments, NOVEMBER, journal=journal, batch_id="november", settings=PlanSettings(compare="october")
    )
    found = made.comparison
    assert found is not None
    assert sorted(EXPECTED, key=str) == sorted(told(found), key=str)
    kinds = ["other account", "other name", "amount", "new", "gone"]
    assert (kinds, [1, 1, 2, 1, 2]) == (list(found.counts), list(found.counts.values()))
    assert ("october", 7, Decimal(7000), 1) == (found.other, found.count, found.total, found.same)
    assert "772000" not in str(found)
    assert "Person" not in str(found)


async def test_a_batch_is_compared_with_a_file_or_orders(payments: PaymentsSession, tmp_path: Path) -> None:
    """The file is named, and all of it may be the same."""
    batch = await of_file(tmp_path, row(), row(request_id="RUN-2", phone_number="+256772000002"))
    same = await plan(payments, batch, settings=PlanSettings(compare=await read_batch(batch.path)))
    found = same.comparison
    assert found is not None
    assert ("batch.csv", 2, 2, []) == (found.other, found.count, found.same, told(found))
    other = await plan(payments, NOVEMBER, settings=PlanSettings(compare=OCTOBER))
    assert sorted(EXPECTED, key=str) == sorted(told(other.comparison), key=str)
    assert other.comparison is not None
    before = {one.kind: (one.name_before, one.account_before) for one in other.comparison.shown}
    assert (("Person D", None), (None, "+256772000005")) == (before["other name"], before["other account"])


@pytest.mark.parametrize(("change", "numbers"), [(0, {"RUN-2", "RUN-3"}), (Decimal("20.4"), {"RUN-2"}), (21, set())])
async def test_how_much_is_a_change_can_be_said(
    payments: PaymentsSession, change: Decimal | int, numbers: set[str]
) -> None:
    """In per cent of what it was, exactly."""
    made = await plan(payments, NOVEMBER, settings=PlanSettings(compare=OCTOBER, compare_change=change))
    assert numbers == {request_id for kind, request_id, *_ in told(made.comparison) if kind == "amount"}


async def test_what_cannot_be_compared_is_refused(payments: PaymentsSession, journal: SqliteJournal) -> None:
    """A batch that the journal does not hold, and a percentage that is not exact."""
    with pytest.raises(ValueError, match="no batch october"):
        await plan(payments, NOVEMBER, journal=journal, settings=PlanSettings(compare="october"))
    with pytest.raises(TypeError, match="compare_change"):
        await plan(payments, NOVEMBER, settings=PlanSettings(compare=OCTOBER, compare_change=0.2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_each"):
        await plan(payments, NOVEMBER, settings=PlanSettings(max_each=-1))


async def test_a_limit_for_each_counts_all_that_a_payee_gets(payments: PaymentsSession) -> None:
    """Two small orders to one wallet are a large one; exactly the limit is within it."""
    orders = [order(1), order(2), order(3, destination=MobileMoneyWallet("+256772000001"), amount=Decimal(1001))]
    made = await plan(payments, orders, settings=PlanSettings(max_each=2000))
    assert [("amount", "RUN-1", 1)] == fields(made)
    assert "more than the 2,000 allowed to each" in made.problems[0].remedy
    assert 0 == (await plan(payments, orders, settings=PlanSettings(max_each=2001))).problem_count


async def test_a_limit_in_total_is_not_left_out(payments: PaymentsSession) -> None:
    """Leaving bad orders out does not do away with it."""
    made = await plan(payments, [order(1), order(2)], settings=PlanSettings(max_total=2999), skip_bad=True)
    assert [("batch", None, 0)] == fields(made)
    assert "1 above the 2,999 allowed" in made.problems[0].remedy
    assert (await plan(payments, [order(1), order(2)], settings=PlanSettings(max_total=3000))).is_clean


async def test_a_total_that_does_not_agree_is_not_left_out(payments: PaymentsSession, tmp_path: Path) -> None:
    """Bad rows may be; that rows are missing or doubled stays a problem."""
    path = write_csv(tmp_path / "b.csv", row(), row(request_id="2", amount="-1"))
    with path.open("a", encoding="utf-8") as file:
        file.write(f"TOTAL,,150001{',' * 12}\n")
    made = await plan(payments, await read_batch(path), skip_bad=True)
    assert [("total", None)] == [(one.field, one.request_id) for one in made.problems]
    assert ["amount"] == [one.field for one in made.skipped]


def about_names(made: Plan) -> list[tuple[str, int, tuple[str, ...]]]:
    """What is said of names."""
    return [(one.remedy.partition(";")[0], one.orders, one.examples) for one in made.warnings if one.field == "name"]


async def test_one_account_under_two_names_is_shown(payments: PaymentsSession) -> None:
    """However the name is written, and with some of the orders; it may be meant."""
    wallet = MobileMoneyWallet("+256772000001")
    orders = [person(1, "Ann Lee"), person(2, "LEE, Ann", destination=wallet), person(3, "Bo Li", destination=wallet)]
    made = await plan(payments, orders)
    assert made.is_clean
    assert [("one wallet, account or line is paid under two names", 1, ("RUN-1",))] == about_names(made)
    assert [] == about_names(await plan(payments, orders[:2]))


async def test_two_accounts_for_one_name_are_shown(payments: PaymentsSession) -> None:
    """Salary and airtime for one person are none; what is rare comes before what is frequent."""
    wallet = MobileMoneyWallet("+256772000009")
    twins = [person(n, name) for n, name in enumerate(["Ann Lee", "Ann Lee", "Bo Li", "Li Bo"], 1)]
    made = await plan(payments, [*twins, person(5, "Cy", destination=wallet), person(6, "Di", destination=wallet)])
    expected = [
        ("one wallet, account or line is paid under two names", 1, ("RUN-5",)),
        ("one name is paid at two wallets, accounts or lines", 2, ("RUN-1", "RUN-3")),
    ]
    assert expected == about_names(made)


async def test_an_operator_that_does_not_fit_the_item_is_a_concern(payments: PaymentsSession, tmp_path: Path) -> None:
    """It is sent only once somebody has looked: people keep their numbers. Unknown numbers and items are nobody's."""
    rows = [row(), row(request_id="2", phone_number="0752000001"), row(request_id="3", phone_number="0752000002")]
    batch = await of_file(tmp_path, *rows, row(request_id="4", phone_number="+256392000001"))
    made = await plan(payments, batch)
    assert not made.is_clean
    assert [("product_item_id", "2", 2)] == [(one.field, one.request_id, one.orders) for one in made.concerns]
    assert "an item of MTN, and the number was given out by Airtel" in made.concerns[0].remedy
    assert ("2", "3") == made.concerns[0].examples
    assert (await plan(payments, batch, acknowledged=True)).is_clean


async def test_guesses_are_part_of_the_plan_and_of_its_digest(payments: PaymentsSession, tmp_path: Path) -> None:
    """The digest that is approved stands for the items that were guessed."""
    named = await of_file(tmp_path, row(), row(request_id="2"))
    whole = await plan(payments, named)
    path = write_csv(tmp_path / "bare.csv", row(product_item_id=""), row(request_id="2", product_item_id=""))
    made = await plan(payments, await read_batch(path, guess_items=True, batch_id="november"))
    assert made.is_clean
    assert (whole.digest, ()) == (made.digest, whole.guesses)
    assert [("MTN", 2)] == [(one.operator, one.orders) for one in made.guesses]


async def test_the_odd_repeats_come_before_all_of_last_months(
    payments: PaymentsSession, journal: SqliteJournal
) -> None:
    """Within the batch first, then the few with some batch, and the many with another one at last."""
    await sent(journal, "october", *(order(n, request_id=f"OCT-{n}") for n in range(1, 31)))
    await sent(journal, "extra", order(7, request_id="EXTRA-7", amount=Decimal(5)))
    again = order(31, destination=MobileMoneyWallet("+256772000012"), amount=Decimal(3))
    made = await plan(payments, [*(order(n) for n in range(1, 31)), again], journal=journal, batch_id="november")
    groups = [(one.batch_id, one.same_amount, one.count) for one in made.duplicates.groups]
    assert [(None, False, 1), ("extra", False, 1), ("october", True, 30)] == groups
    assert ["RUN-31", "RUN-7", "RUN-1"] == [one.request_id for one in made.duplicates.shown[:3]]


async def test_a_new_journal_is_told_to_know_nothing(payments: PaymentsSession, journal: SqliteJournal) -> None:
    """In words; once it holds a batch, that is over."""
    made = await plan(payments, [order(1)], journal=journal, batch_id="november")
    assert ["journal"] == [one.field for one in made.warnings]
    assert "knows no earlier payment" in made.warnings[0].remedy
    await sent(journal, "october", order(2))
    assert () == (await plan(payments, [order(1)], journal=journal, batch_id="november")).warnings


async def test_what_another_journal_of_this_machine_may_have_sent_is_a_problem(
    payments: PaymentsSession, journal: SqliteJournal, tmp_path: Path
) -> None:
    """With its place; also for who has no journal yet. Where nothing is remembered, nothing is known."""
    await journal.open_run("october", account_of(payments))
    await journal.load("october", [order(1)], owner="test")
    orders = [order(1), order(2)]
    async with SqliteJournal(tmp_path / "other.sqlite") as other:
        for held in (other, None):
            made = await plan(
                payments,
                orders,
                journal=held,
                batch_id="november",
                settings=PlanSettings(state_folder=StateFolder.OF_USER),
            )
            assert [("request_id", "RUN-1", 1)] == fields(made)
            assert f"the journal {tmp_path / 'journal.db'} holds it in batch october" in made.problems[0].remedy
        nothing = await plan(
            payments, orders, journal=other, settings=PlanSettings(state_folder=tmp_path / "nobody was here")
        )
        assert nothing.is_clean
    own = await plan(
        payments,
        orders[:1],
        journal=journal,
        batch_id="october",
        settings=PlanSettings(state_folder=StateFolder.OF_USER),
    )
    assert (True, 1) == (own.is_clean, own.recorded)


async def test_how_far_a_plan_is_can_be_followed(payments: PaymentsSession, journal: SqliteJournal) -> None:
    """Each step with its number of orders."""
    await sent(journal, "october", *OCTOBER)
    seen: list[PlanProgress] = []
    await plan(
        payments,
        NOVEMBER,
        journal=journal,
        batch_id="november",
        settings=PlanSettings(compare="october"),
        progress=seen.append,
    )
    steps = [(one.step, one.done, one.total) for one in seen]
    assert [("orders", 7, 7), ("other batch", 7, None), ("paid of late", 7, None), ("summed up", 0, 7)] == steps


def test_buckets_keep_the_sequence_beyond_memory() -> None:
    """Whatever went to the temporary file and whatever stayed."""
    for memory in (1, 50, 10_000):
        with Buckets(memory=memory) as buckets:
            for number in range(1000):
                buckets.add([number.to_bytes(2, "big")], 1)
            found = [[int.from_bytes(one[n : n + 2], "big") for n in range(0, len(one), 2)] for one in buckets.each()]
        assert [list(range(bucket, 1000, 256)) for bucket in range(256)] == found
