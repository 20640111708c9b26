"""Planning a batch: what it comes to, what speaks against it, and a digest that stands for exactly these payments."""

import asyncio
import time
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from bulk.files import MTN, row, write_csv

from payments_async import (
    BankAccount,
    Beneficiary,
    Credentials,
    Limits,
    MobileMoneyWallet,
    PaymentsSession,
    PayoutOrder,
)
from payments_async.bulk import Batch, Plan, PlanSettings, Share, plan, read_batch, run_batch
from payments_async.journal import Journal, NotCompared, RunIdentity, Signal, SqliteJournal
from payments_async.journal.contract import Outcome, Permit
from payments_async.sandbox import Sandbox, _records
from payments_async.testing import Testing

IDENTITY = RunIdentity(base_address="https://payments.example", key_fingerprint="0", user_id="u")


def order(number: int = 1, **changes: object) -> PayoutOrder:
    """A good order to a wallet of its own."""
    phone = f"+2567720{number:05}"
    good: dict[str, object] = {
        "request_id": f"RUN-{number}",
        "amount": Decimal(1000 * number),
        "destination": MobileMoneyWallet(phone),
        "product_item_id": MTN,
        "beneficiary": Beneficiary(name="Amber Brightwater", phone_number=phone),
        "currency": "UGX",
    }
    return PayoutOrder(**{**good, **changes})  # type: ignore[arg-type]


async def of_file(path: Path, *rows: dict[str, str], batch_id: str = "november") -> Batch:
    """A batch of these rows."""
    return await read_batch(write_csv(path / "batch.csv", *rows), batch_id=batch_id)


async def sent(journal: Journal, batch_id: str, *orders: PayoutOrder) -> None:
    """Orders that the journal holds as accepted."""
    await journal.open_run(batch_id, IDENTITY)
    await journal.load(batch_id, orders, owner="test")
    chunk = await journal.claim_chunk(batch_id, "test")
    assert chunk is not None
    for claimed in chunk.orders:
        permit = await journal.permit(chunk, claimed)
        assert isinstance(permit, Permit)
        await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=f"t-{permit.id}"))
    await journal.release_chunk(chunk)


def fields(made: Plan) -> list[tuple[str, str | None, int]]:
    """Field, first order and number of orders of each problem."""
    return [(one.field, one.request_id, one.orders) for one in made.problems]


async def test_a_plan_counts_and_sums_by_kind_and_item(payments: PaymentsSession, tmp_path: Path) -> None:
    """Sums are exact, to the last cent, and the balance stands beside them."""
    airtime = row(request_id="RUN-3", kind="airtime", amount="0.10")
    made = await plan(payments, await of_file(tmp_path, row(), row(request_id="RUN-2", amount="0.20"), airtime))
    assert made.is_clean
    assert (3, Decimal("150000.30")) == (made.count, made.total)
    expected = {
        "airtime": Share(count=1, total=Decimal("0.10")),
        "mobile_money": Share(count=2, total=Decimal("150000.20")),
    }
    assert expected == made.by_kind
    assert {MTN: 2, "MTNAIRTIMEUG_MTNAIRTIMEUG": 1} == {item: share.count for item, share in made.by_item.items()}
    assert (Decimal(1_000_000_000), "UGX", 3) == (made.balance, made.currency, made.open_count)
    assert made.seconds >= 1


async def test_the_digest_stands_for_exactly_these_payments(payments: PaymentsSession) -> None:
    """The same orders have the same digest; another cent, another wallet, another sequence have another."""
    ours = [order(1), order(2)]
    others = [
        [order(2), order(1)],
        [order(1), order(2, amount=Decimal("2000.01"))],
        [order(1), order(2, destination=MobileMoneyWallet("+256772000099"))],
        [order(1), order(2, message="again")],
        [order(1)],
    ]
    digest = (await plan(payments, ours)).digest
    assert digest == (await plan(payments, list(ours))).digest
    digests = {(await plan(payments, orders)).digest for orders in others}
    assert len(others) == len(digests - {digest})


async def test_what_the_service_does_not_sell_is_a_problem(payments: PaymentsSession) -> None:
    """An unknown product, an unknown item and a wrong fixed price are told, orders alike only once."""
    bundle = "AIRTELDATABUNDLESUG_24510766"
    orders = [
        order(1, product_item_id="NOBODY_NOBODY"),
        order(2, product_item_id="NOBODY_NOBODY"),
        order(3, product_item_id="MTNAIRTIMEUG_OTHER"),
        order(4, product_id="NOBODY"),
        order(5, product_item_id=bundle, amount=Decimal(1999)),
        order(6, product_item_id=bundle, amount=Decimal("2000.00")),
    ]
    made = await plan(payments, orders)
    expected = [
        ("product_item_id", "RUN-1", 2),
        ("product_item_id", "RUN-3", 1),
        ("product_id", "RUN-4", 1),
        ("amount", "RUN-5", 1),
    ]
    assert expected == fields(made)
    assert 5 == made.problem_count
    assert "costs exactly 2000.00" in made.problems[-1].remedy


@pytest.mark.parametrize("record", ["product_record", "item_record"])
async def test_what_is_not_active_is_a_problem(
    payments: PaymentsSession, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    """A product or an item that the service has switched off stops the batch, however many orders name it."""
    made_as = getattr(_records, record)
    monkeypatch.setattr(_records, record, lambda thing: {**made_as(thing), "isActive": False})
    made = await plan(payments, [order(1), order(2)])
    assert [("product_id" if record == "product_record" else "product_item_id", "RUN-1", 2)] == fields(made)
    assert "not active" in made.problems[0].remedy


async def test_products_and_items_are_read_once(payments: PaymentsSession, service: Sandbox) -> None:
    """Two thousand orders of two items cost three reads, besides the account and the login."""
    orders = [order(n, product_item_id=MTN if n % 2 else "MTNAIRTIMEUG_MTNAIRTIMEUG") for n in range(1, 2001)]
    await plan(payments, orders)
    assert 3 == len([one for one in service.requests if "/products" in one.path])


async def test_a_strange_pattern_only_warns(payments: PaymentsSession) -> None:
    """The service publishes patterns that are junk: they never block an order."""
    wallet = MobileMoneyWallet("+256752000001")
    bundle = order(1, destination=wallet, product_item_id="AIRTELDATABUNDLESUG_24510766", amount=Decimal(2000))
    made = await plan(payments, [bundle])
    assert made.is_clean
    assert ["destination"] == [one.field for one in made.warnings]


async def test_another_currency_than_the_accounts_is_a_problem(payments: PaymentsSession) -> None:
    """A thousand dollars are not a thousand shillings."""
    made = await plan(payments, [order(1), order(2, currency="KES"), order(3, currency="KES")])
    assert [("currency", "RUN-2", 2)] == fields(made)


async def test_too_little_on_the_account_is_a_problem(payments: PaymentsSession, service: Sandbox) -> None:
    """What is lacking is told to the cent."""
    service.balance = Decimal("2999.50")
    made = await plan(payments, [order(1), order(2)])
    assert "the batch, balance: 0.50 UGX short of what is to be sent; fund the account first" == str(made.problems[0])


async def test_nobody_to_pay_is_a_problem(payments: PaymentsSession) -> None:
    """An empty plan is no plan."""
    assert [("batch", None, 0)] == fields(await plan(payments, []))


async def test_a_beneficiary_who_is_paid_twice_is_shown(payments: PaymentsSession) -> None:
    """The same wallet, however it is punctuated, with the same amount first; its number is masked."""
    wallet = MobileMoneyWallet("+256 772-000001")
    orders = [order(1), order(2, destination=wallet), order(3), order(4, destination=wallet, amount=Decimal("1000.0"))]
    made = await plan(payments, orders)
    assert made.is_clean  # it may be meant
    assert (1, 1) == (made.duplicates.same_amount, made.duplicates.other_amount)
    told = [(one.request_id, one.other, one.same_amount) for one in made.duplicates.shown]
    assert [("RUN-4", "RUN-1", True), ("RUN-2", "RUN-1", False)] == told
    assert "772" not in str(made.duplicates)


@pytest.mark.parametrize("spelled", ["0772000001", "256772000001", "00256772000001", "+256 (772) 000-001", "772000001"])
async def test_a_telephone_number_in_another_form_is_the_same_wallet(payments: PaymentsSession, spelled: str) -> None:
    """Or a payee would get twice what is allowed to each."""
    twice = order(1), order(2, destination=MobileMoneyWallet(spelled), amount=Decimal(1000))
    made = await plan(payments, [attrs.evolve(twice[0], destination=MobileMoneyWallet("+256772000001")), twice[1]])
    assert 1 == made.duplicates.same_amount


async def test_who_was_paid_of_late_in_another_batch_is_shown(
    payments: PaymentsSession, journal: SqliteJournal
) -> None:
    """A file exported again with new ids shows as what it is, with the batch and state of the earlier payment."""
    await sent(journal, "october", order(1), order(2))
    again = [order(1, request_id="NEW-1"), order(3)]
    made = await plan(payments, again, journal=journal, batch_id="november")
    assert [("NEW-1", "RUN-1", True, "october", "accepted")] == [
        (one.request_id, one.other, one.same_amount, one.batch_id, one.state) for one in made.duplicates.shown
    ]
    assert (
        ()
        == (
            await plan(payments, again, journal=journal, batch_id="november", settings=PlanSettings(recent=-1.0))
        ).duplicates.shown
    )


@pytest.mark.parametrize(
    ("days", "others", "words"),
    [
        pytest.param(0.0, 0, ["2 of 2 orders pay whom batch october paid within the last hour"], id="just-now"),
        pytest.param(0.2, 0, ["2 of 2 orders pay whom batch october paid 5 h ago"], id="this-morning"),
        pytest.param(3.0, 2, ["2 of 4 orders pay whom batch october paid 3 days ago"], id="half-of-it"),
        pytest.param(3.0, 3, [], id="fewer-than-half"),
        pytest.param(6.9, 0, [], id="wages-by-the-week"),
    ],
)
async def test_the_same_month_again_under_another_name(
    payments: PaymentsSession, tmp_path: Path, days: float, others: int, words: list[str]
) -> None:
    """Somebody must have looked at it: nothing else tells it from another month, and all of it would be paid twice."""
    path = tmp_path / "journal.sqlite"
    async with SqliteJournal(path, testing=Testing(now=lambda: time.time() - days * 86_400)) as then:
        await sent(then, "october", order(1), order(2))
    again = [order(1, request_id="A"), order(2, request_id="B"), *(order(number) for number in range(5, 5 + others))]
    async with SqliteJournal(path) as journal:
        made = await plan(payments, again, journal=journal, batch_id="october-2")
        assert (words, not words) == ([one.remedy[: len(words[0])] for one in made.concerns], made.is_clean)
        looked_at = await plan(payments, again, journal=journal, batch_id="october-2", acknowledged=True)
        assert looked_at.is_clean


@pytest.mark.parametrize("days", [10, -10])
async def test_the_same_month_again_from_a_machine_whose_clock_is_wrong(
    payments: PaymentsSession, tmp_path: Path, days: int
) -> None:
    """How long ago the other batch was paid is told by the clock of the journal's server, and not by this machine's."""
    theirs = Testing(now=lambda: time.time() - days * 86_400)
    async with SqliteJournal(tmp_path / "journal.sqlite", testing=theirs) as journal:
        await sent(journal, "october", order(1), order(2))
        again = [order(1, request_id="A"), order(2, request_id="B")]
        made = await plan(payments, again, journal=journal, batch_id="other")
    words = "2 of 2 orders pay whom batch october paid within the last hour"
    assert [words] == [one.remedy[: len(words)] for one in made.concerns]


@pytest.mark.parametrize(
    ("name", "is_asked"),
    [("payroll-oct-2026-corrected", True), ("Corrected payroll 2026 Oct", True), ("payroll-nov-2026-corrected", False)],
)
async def test_a_corrected_file_of_a_month_that_was_paid_long_ago(
    payments: PaymentsSession, tmp_path: Path, name: str, is_asked: bool
) -> None:
    """Its name says that it is of the same month, however long ago that was paid."""
    path = tmp_path / "journal.sqlite"
    async with SqliteJournal(path, testing=Testing(now=lambda: time.time() - 20 * 86_400)) as then:
        await sent(then, "payroll-oct-2026", order(1), order(2))
    async with SqliteJournal(path) as journal:
        again = [order(1, request_id="A"), order(2, request_id="B")]
        made = await plan(payments, again, journal=journal, batch_id=name)
    assert is_asked == any("batch payroll-oct-2026 paid 20 days ago" in one.remedy for one in made.concerns)


async def test_two_copies_of_a_file_that_are_sent_at_the_same_moment(
    payments: PaymentsSession, journal: SqliteJournal, service: Sandbox
) -> None:
    """Both were planned before one was begun: one is paid, and nothing of the other before the two were compared."""
    copies = {name: [order(number, request_id=f"{name}-{number}") for number in (1, 2)] for name in ("a", "b")}
    plans = {name: await plan(payments, copy, journal=journal, batch_id=name) for name, copy in copies.items()}
    runs = [run_batch(payments, journal, name, made) for name, made in plans.items()]
    ended = dict(zip(copies, await asyncio.gather(*runs, return_exceptions=True), strict=True))
    refused = [name for name, one in ended.items() if isinstance(one, NotCompared)]
    assert (1, 2) == (len(refused), len(service.ledger)), ended
    with pytest.raises(NotCompared):
        await run_batch(payments, journal, refused[0], await plan(payments, copies[refused[0]]))  # with no journal
    again = await plan(payments, copies[refused[0]], journal=journal, batch_id=refused[0])
    assert (0, ["2 of 2 orders pay"]) == (again.recorded, [one.remedy[:17] for one in again.concerns])
    await run_batch(payments, journal, refused[0], again)
    assert 4 == len(service.ledger)


async def test_the_time_it_takes_knows_the_rate(payments: PaymentsSession, journal: SqliteJournal) -> None:
    """Its own, or the one that the journal keeps for all who send."""
    orders = [order(number) for number in range(1, 21)]
    await journal.request_rate("another run", 2.0, lease=60.0)
    assert 10 == (await plan(payments, orders, journal=journal, batch_id="b")).seconds
    assert 20 == (await plan(payments, orders, journal=journal, batch_id="b", settings=PlanSettings(rate=1.0))).seconds


async def test_the_time_it_takes_knows_the_rate_of_the_session(service: Sandbox) -> None:
    """Its limits hold back each call, so the estimate counts with them."""
    who = Credentials(app_key=service.app_key, app_password=service.app_password, user_id=service.user_id)
    async with PaymentsSession(service.base_url, who, limits=Limits(rate=20.0)) as slow:
        assert 10 == (await plan(slow, [order(number) for number in range(1, 201)])).seconds


async def test_warnings_and_concerns_beyond_the_first_thousand_are_counted(payments: PaymentsSession) -> None:
    """A plan keeps a thousand different ones, and tells how many there are."""
    codes = ["Bank of " + "".join(chr(65 + int(digit)) for digit in str(number)) for number in range(1000, 2101)]
    bank = "BANKTRANSFERUG_BANKTRANSFERUG"
    orders = [
        order(number, destination=BankAccount("0140001234", code), product_item_id=bank)
        for number, code in enumerate(codes, 1)
    ]
    made = await plan(payments, orders)
    assert (1000, 1101) == (len(made.concerns), made.concern_count)


async def test_a_batch_that_goes_on_is_not_asked_about_again(payments: PaymentsSession, journal: SqliteJournal) -> None:
    """Its orders are written down, and nobody can take them back."""
    for batch_id, name in (("october", "A"), ("november", "B")):
        await sent(journal, batch_id, order(1, request_id=name))
    assert () == (await plan(payments, [order(1, request_id="B")], journal=journal, batch_id="november")).concerns


async def test_a_request_id_of_another_batch_is_a_problem(payments: PaymentsSession, journal: SqliteJournal) -> None:
    """The remedy names that batch and how the order stands there."""
    await sent(journal, "october", order(1))
    made = await plan(payments, [order(1), order(2)], journal=journal, batch_id="november")
    assert [("request_id", "RUN-1", 1)] == fields(made)
    assert "in batch october, accepted" in made.problems[0].remedy


@pytest.mark.parametrize(
    ("held", "new"), [("PAY-1", "pay-1"), ("pay-1", "PAY-1"), ("Pay-1", "PAY-1"), ("PAY-1", "Pay-1")]
)
async def test_a_request_id_of_another_batch_in_other_letters_is_a_problem(
    payments: PaymentsSession, journal: SqliteJournal, held: str, new: str
) -> None:
    """The service may take both for one: what became of the one would be told of the other."""
    await sent(journal, "october", order(1, request_id=held))
    made = await plan(payments, [order(2, request_id=new)], journal=journal, batch_id="november")
    assert [f"the journal holds {held} in batch october, accepted"] == [
        problem.remedy.partition(", and")[0] for problem in made.problems
    ]


async def test_what_the_batch_holds_already_is_not_judged_again(
    payments: PaymentsSession, journal: SqliteJournal, service: Sandbox
) -> None:
    """A run that goes on needs only the balance for what is left, and keeps its digest."""
    orders = [order(1), order(2)]
    before = await plan(payments, orders, journal=journal, batch_id="november")
    await sent(journal, "november", *orders)
    service.balance = Decimal(0)
    made = await plan(payments, orders, journal=journal, batch_id="november")
    assert made.is_clean
    assert (2, 2, 0, before.digest) == (made.count, made.recorded, made.open_count, made.digest)


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        pytest.param([order(1)], "and that are not here: 1", id="one-less"),
        pytest.param([order(1), order(2), order(3)], "was begun without this order", id="one-more"),
        pytest.param([order(1), order(2, amount=Decimal(1))], "with the amount 2000", id="another-amount"),
        pytest.param([order(1), order(2, message="x")], "with other details", id="other-details"),
    ],
)
async def test_a_batch_that_was_begun_keeps_its_orders(
    payments: PaymentsSession, journal: SqliteJournal, orders: list[PayoutOrder], words: str
) -> None:
    """Another file under the same batch is refused before anything is sent, with what differs."""
    await sent(journal, "november", order(1), order(2))
    made = await plan(payments, orders, journal=journal, batch_id="november")
    assert any(words in one.remedy for one in made.problems), made.problems


async def test_validation_asks_each_question_once(payments: PaymentsSession, service: Sandbox) -> None:
    """Rows that are alike for the service are asked about once, and a no names neither person nor number."""
    orders = [order(1), order(1, request_id="SAME"), order(2), order(3, amount=Decimal(1))]
    made = await plan(payments, orders, validate=True)
    assert 3 == len([one for one in service.requests if one.path.endswith("/products/validation")])
    assert [("destination", "RUN-3", 1)] == fields(made)
    assert "the service would refuse it: amount must be from 500" in made.problems[0].remedy
    assert not [secret for secret in ("Amber", "25677200003") if secret in str(made.problems)]


async def test_bad_orders_can_be_left_out(payments: PaymentsSession, tmp_path: Path) -> None:
    """With skip_bad neither bad rows nor orders the service would refuse are in the plan; both are told."""
    rows = [row(), row(request_id="RUN-2", amount="-1"), row(request_id="RUN-3", product_item_id="NOBODY_NOBODY")]
    batch = await of_file(tmp_path, *rows)
    assert [None, "RUN-3"] == [one.request_id for one in (await plan(payments, batch)).problems]
    made = await plan(payments, batch, skip_bad=True)
    assert made.is_clean
    assert (1, 2, ["RUN-1"]) == (made.count, made.left_out, [one.request_id for one in made])
    assert ["amount", "product_item_id"] == [one.field for one in made.skipped]
    alone = await plan(payments, await of_file(tmp_path, row()))
    assert alone.digest == made.digest


async def test_an_id_that_comes_twice_is_a_problem(payments: PaymentsSession) -> None:
    """Of orders that come from no file, too."""
    assert [("request_id", "RUN-1", 1)] == fields(await plan(payments, [order(1), order(1, amount=Decimal(7))]))


@pytest.mark.parametrize("other", ["run-1", "\uff32\uff35\uff2e-1", "Run-1"])
async def test_ids_that_differ_in_letters_alone_are_a_problem(payments: PaymentsSession, other: str) -> None:
    """A list that shows them all in capitals would say of the one what became of the other."""
    made = await plan(payments, [order(), order(2, request_id=other)])
    assert [(1, other)] == [(one.orders, one.request_id) for one in made.problems]


async def test_an_iterator_is_refused(payments: PaymentsSession) -> None:
    """Planning would use it up, and there would be nothing left to send."""
    with pytest.raises(TypeError, match="iterator"):
        await plan(payments, iter([order(1)]))


async def test_a_plan_shows_no_person(payments: PaymentsSession, tmp_path: Path) -> None:
    """Its text may go into a log."""
    secret = row(name="=cmd()", phone_number="+256772000001")
    made = await plan(payments, await of_file(tmp_path, row(), secret | {"request_id": "RUN-2"}), validate=True)
    shown = repr(made) + "".join(map(str, made.problems))
    assert not [person for person in ("Amber", "cmd", "77200000") if person in shown]
