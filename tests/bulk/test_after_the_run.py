"""What is written after a run: a file of what to try again, a proof of one payment, lines for the books."""

import csv
import stat
import tempfile
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from browser import browsing, needs_browser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payments_async import (
    AirtimeLine,
    BankAccount,
    Beneficiary,
    Credentials,
    InternetLine,
    MobileMoneyWallet,
    PaymentsSession,
    PayoutOrder,
    UtilityAccount,
)
from payments_async.bulk import (
    PlanSettings,
    ReconcileSettings,
    Share,
    approval_sheet,
    later_tries,
    ledger,
    plan,
    read_batch,
    receipt,
    reconcile,
    report,
    retry_file,
    run_batch,
)
from payments_async.bulk._retry_ids import earlier_id, retried_id
from payments_async.journal import OrderUnknown, RunIdentity, RunUnknown, Signal, SqliteJournal
from payments_async.journal.contract import Evidence, Outcome, Permit
from payments_async.outbox._scans import account_of
from payments_async.sandbox import Fault, Quirks, Sandbox

IDENTITY = RunIdentity(base_address="https://payments.example", key_fingerprint="0", user_id="u")
ITEM = "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"
ENDINGS: dict[int, tuple[Signal, Signal | None]] = {
    1: (Signal.ACCEPTED, Signal.LOOKED_UP_SUCCESSFUL),
    2: (Signal.ACCEPTED, Signal.LOOKED_UP_FAILED),
    3: (Signal.REJECTED, None),
    4: (Signal.UNKNOWN, None),
    5: (Signal.ACCEPTED, Signal.LOOKED_UP_REVERSED),
    6: (Signal.ACCEPTED, None),
}


def order(number: int, **changes: object) -> PayoutOrder:
    """A good order."""
    good: dict[str, object] = {
        "request_id": f"RUN-{number}",
        "amount": Decimal(1000 * number),
        "destination": MobileMoneyWallet(f"+2567720{number:05}"),
        "product_item_id": ITEM,
        "beneficiary": Beneficiary(name="Amber Brightwater"),
        "currency": "UGX",
    }
    return PayoutOrder(**{**good, **changes})  # type: ignore[arg-type]


def lines(path: Path) -> list[dict[str, str]]:
    """The lines of a table, which spreadsheets read right."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    """A journal with one batch, in which every kind of end is to be found; order 7 was not sent."""
    async with SqliteJournal(tmp_path / "journal.sqlite") as held:
        await ended(held, [order(number) for number in range(1, 8)])
        yield held


async def ended(
    journal: SqliteJournal, orders: list[PayoutOrder], batch_id: str = "november", *, identity: RunIdentity = IDENTITY
) -> None:
    """A batch, of which the first orders ended as the table says."""
    await journal.open_run(batch_id, identity, source_digest="d1635")
    await journal.load(batch_id, orders, owner="test")
    chunk = await journal.claim_chunk(batch_id, "test")
    assert chunk is not None
    for (number, (answer, later)), claimed in zip(ENDINGS.items(), chunk.orders, strict=False):
        permit = await journal.permit(chunk, claimed)
        assert isinstance(permit, Permit)
        words = "=HYPERLINK(1)\n for +256772000003" if answer is Signal.REJECTED else None
        transaction = f"t-{number}" if answer is Signal.ACCEPTED else None
        await journal.record(Outcome(permit=permit, signal=answer, message=words, transaction_id=transaction))
        if later is not None:
            await found(journal, permit.request_id, permit.amount, later)
    await journal.release_chunk(chunk)


async def found(journal: SqliteJournal, request_id: str, amount: Decimal, signal: Signal) -> None:
    """What is found out about an order."""
    if signal is Signal.LOOKED_UP_REVERSED:
        await found(journal, request_id, amount, Signal.LOOKED_UP_SUCCESSFUL)
    await journal.apply_evidence(Evidence(signal=signal, source="list", request_id=request_id, amount=amount))


async def test_orders_that_name_no_currency_are_in_that_of_the_account(tmp_path: Path, service: Sandbox) -> None:
    """Without a proposal too: papers name it once the service's records show it, and guess nothing before."""
    async with SqliteJournal(tmp_path / "journal.sqlite", state_folder=None) as journal:
        who = Credentials(app_key=service.app_key, app_password=service.app_password, user_id=service.user_id)
        async with PaymentsSession(service.base_url, who) as payments:
            await run_batch(payments, journal, "november", [order(1, currency=None), order(2, currency=None)])
            assert None is await journal.account_currency("november")
            await service.settle()
            await reconcile(payments, journal, "november", settings=ReconcileSettings(grace=0.0))
        assert "UGX" == await journal.account_currency("november")
        await report(journal, "november", csv=tmp_path / "report.csv")
        await receipt(journal, "RUN-1", tmp_path / "receipt.html", payer="ACME")
    assert ["UGX", "UGX"] == [row["Currency"] for row in lines(tmp_path / "report.csv")]
    assert "1,000 UGX" in (tmp_path / "receipt.html").read_text(encoding="utf-8")


async def test_what_surely_was_not_paid_is_tried_again(journal: SqliteJournal, tmp_path: Path) -> None:
    """Rejected and failed orders, under ids of their own that name the old ones; the file reads as the same orders."""
    path = tmp_path / "retry.csv"
    made = await retry_file(journal, "november", path)
    assert (Share(count=2, total=Decimal(5000)), ()) == (made.written, made.left_out)
    batch = await read_batch(path)
    assert ((), ["RUN-2-R2", "RUN-3-R2"]) == (batch.problems, [one.request_id for one in batch.orders])
    assert {attrs.evolve(order(3), request_id="RUN-3-R2"), attrs.evolve(order(2), request_id="RUN-2-R2")} == {
        attrs.evolve(one, beneficiary=Beneficiary(name=one.beneficiary.name)) for one in batch.orders
    }
    rows = lines(path)
    assert ["RUN-2", "RUN-3"] == [row["earlier_request_id"] for row in rows]
    assert "rejected =HYPERLINK(1) for +256772000003" == rows[1]["why_not_paid"]
    assert stat.S_IRUSR | stat.S_IWUSR == stat.S_IMODE(path.stat().st_mode)


async def test_what_came_back_is_tried_again_when_asked_for(journal: SqliteJournal, tmp_path: Path) -> None:
    """It was paid once; so a person says that it is wanted."""
    made = await retry_file(journal, "november", tmp_path / "retry.csv", reversed_too=True)
    assert 3 == made.written.count


async def test_what_may_have_been_paid_is_left_out(journal: SqliteJournal, tmp_path: Path) -> None:
    """An order that failed, and of which something says that it did not."""
    await found(journal, "RUN-2", Decimal(2000), Signal.LOOKED_UP_SUCCESSFUL)
    made = await retry_file(journal, "november", tmp_path / "retry.csv")
    assert 1 == made.written.count
    assert [("RUN-2", True)] == [(one, "evidence contradicts" in why) for one, why in made.left_out]


async def test_an_order_that_was_tried_again_is_nobodys_to_pay_by_hand(journal: SqliteJournal, tmp_path: Path) -> None:
    """The report says what became of it; a second retry file leaves it out. Who failed again may still be paid."""
    retries = [order(8), order(9), order(2, request_id="RUN-2-R2"), order(3, request_id="RUN-3-R2")]
    await ended(journal, retries, "again")
    later = await later_tries(journal, ["RUN-1", "RUN-2", "RUN-3"])
    assert {"RUN-2": False, "RUN-3": True} == {one: found.may_be_paid for one, found in later.items()}
    steps: list[int] = []
    paths = {"csv": tmp_path / "r.csv", "html": tmp_path / "r.html"}
    written = await report(journal, "november", **paths, progress=steps.append)  # type: ignore[arg-type]
    assert [7] == steps
    assert (3, 1) == (written.unpaid, written.tried_again)
    told = {row["Request id"]: row["Not paid, and why"].split(": ")[0] for row in lines(tmp_path / "r.csv")}
    words = (
        "tried again as RUN-3-R2 of batch again, which is unknown; do not pay it in another way; the service refused it"
    )
    assert (words, "") == (told["RUN-3"], told["RUN-1"])
    assert told["RUN-2"].startswith("tried again as RUN-2-R2 of batch again, which is rejected; the service took it")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert ("do not pay it in another way" in page, "see below; 1 of them tried again" in page) == (True, True)
    made = await retry_file(journal, "november", tmp_path / "retry.csv")
    assert (0, ["RUN-2", "RUN-3"]) == (made.written.count, [one for one, _ in made.left_out])
    await retry_file(journal, "again", tmp_path / "third.csv")
    assert ["RUN-9-R2", "RUN-2-R3"] == [row["request_id"] for row in lines(tmp_path / "third.csv")]


async def test_a_batch_in_which_nothing_stayed_unpaid(tmp_path: Path) -> None:
    """No file is written."""
    async with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        await ended(journal, [order(1)])
        made = await retry_file(journal, "november", tmp_path / "retry.csv")
    assert (None, False) == (made.path, (tmp_path / "retry.csv").exists())


async def test_only_such_a_file_is_replaced(journal: SqliteJournal, tmp_path: Path) -> None:
    """Never the file that the batch was made from, nor the journal."""
    payroll = tmp_path / "payroll.csv"
    payroll.write_text("request_id,amount\n")
    for name in ("payroll.csv", "journal.sqlite"):
        with pytest.raises(ValueError, match=r"never replaced|is the journal"):
            await retry_file(journal, "november", tmp_path / name, overwrite=True)
    await retry_file(journal, "november", tmp_path / "retry.csv")
    with pytest.raises(FileExistsError):
        await retry_file(journal, "november", tmp_path / "retry.csv")
    await retry_file(journal, "november", tmp_path / "retry.csv", overwrite=True)
    with pytest.raises(RunUnknown):
        await retry_file(journal, "may", tmp_path / "other.csv")
    assert "request_id,amount\n" == payroll.read_text()


_words = st.text(st.characters(blacklist_categories=("Cc", "Cs", "Cf", "Zl", "Zp")), min_size=1, max_size=30)
_digits = st.text("0123456789", min_size=6, max_size=14)
_destinations = st.one_of(
    st.builds(MobileMoneyWallet, _digits.map(lambda digits: f"+256772{digits[:6]}")),
    st.builds(AirtimeLine, _digits.map(lambda digits: f"+256772{digits[:6]}")),
    st.builds(InternetLine, _digits.map(lambda digits: f"+256772{digits[:6]}")),
    st.builds(BankAccount, _digits, _digits),
    st.builds(UtilityAccount, _digits, st.just("Kampala")),
)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.tuples(_words, _destinations, st.decimals("0.01", "99999999", places=2), _words), min_size=1, max_size=6
    )
)
async def test_whatever_an_order_says_it_is_tried_again_word_for_word_or_left_out(
    tmp_path: Path, given_orders: list[tuple[str, PayoutOrder, Decimal, str]]
) -> None:
    """A name that is a formula, an amount that reads otherwise: nothing is ever paid to somebody else, or more."""
    orders = []
    for number, (name, destination, amount, message) in enumerate(given_orders):
        try:
            orders.append(
                order(
                    number,
                    beneficiary=Beneficiary(name=name),
                    destination=destination,
                    amount=amount,
                    message=message,
                )
            )
        except ValueError:
            continue  # no order at all
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    async with SqliteJournal(folder / "journal.sqlite", state_folder=None) as journal:
        await journal.open_run("b", IDENTITY)
        await journal.load("b", orders, owner="test")
        chunk = await journal.claim_chunk("b", "test")
        for claimed in chunk.orders if chunk else ():
            assert chunk is not None
            permit = await journal.permit(chunk, claimed)
            assert isinstance(permit, Permit)
            await journal.record(Outcome(permit=permit, signal=Signal.REJECTED))
        made = await retry_file(journal, "b", folder / "retry.csv")
    assert len(orders) == made.written.count + len(made.left_out)
    if made.path is None:
        return
    batch = await read_batch(made.path)
    assert () == batch.problems
    before = {one.request_id: one for one in orders}
    for again in batch.orders:
        first = before[again.request_id.removesuffix("-R2")]
        assert (first.amount, first.destination, first.beneficiary.name, first.message, first.product_item_id) == (
            again.amount,
            again.destination,
            again.beneficiary.name,
            again.message,
            again.product_item_id,
        )


@pytest.mark.slow
@given(st.text(min_size=1, max_size=20), st.integers(1, 12))
def test_the_ids_of_retries_lead_back_to_the_first(first: str, times: int) -> None:
    """One after the other, whatever the first is called."""
    chain = [first]
    for _ in range(times):
        chain.append(retried_id(chain[-1]))
    assert len(set(chain)) == len(chain)
    assert chain[:-1] == [earlier_id(later) for later in chain[1:]]


async def test_an_order_that_was_paid_after_all_is_not_tried_again(
    journal: SqliteJournal, payments: PaymentsSession, tmp_path: Path
) -> None:
    """The retry file is older than the evidence: the plan knows."""
    await retry_file(journal, "november", tmp_path / "retry.csv")
    batch = await read_batch(tmp_path / "retry.csv")
    assert () == (await plan(payments, batch, batch_id="again", journal=journal)).problems
    await found(journal, "RUN-2", Decimal(2000), Signal.LOOKED_UP_SUCCESSFUL)
    made = await plan(payments, batch, batch_id="again", journal=journal)
    assert [("RUN-2-R2", True)] == [(one.request_id, "may be paid twice" in one.remedy) for one in made.problems]


async def told_to_have_failed(journal: SqliteJournal, payments: PaymentsSession) -> None:
    """An order that the service took, and of which a notification says that it failed."""
    await journal.open_run("told", account_of(payments))
    await journal.load("told", [order(1)], owner="test")
    chunk = await journal.claim_chunk("told", "test")
    assert chunk is not None
    permit = await journal.permit(chunk, chunk.orders[0])
    assert isinstance(permit, Permit)
    taken = await payments.payouts.send(order(1))
    await journal.record(Outcome(permit=permit, signal=Signal.ACCEPTED, transaction_id=taken.transaction_id))
    failed = Evidence(
        signal=Signal.NOTIFIED_FAILED, source="notification 192.0.2.7", request_id="RUN-1", amount=Decimal(1000)
    )
    await journal.apply_evidence(failed)


@pytest.mark.parametrize("fault", [None, Fault.FAILS])
async def test_a_failure_that_was_only_notified(
    payments: PaymentsSession, service: Sandbox, tmp_path: Path, fault: Fault | None
) -> None:
    """It may have been forged: what the service lists as successful is not tried again, as failed it is."""
    if fault is not None:
        service.script(fault)
    async with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        await told_to_have_failed(journal, payments)
        await service.settle()
        await retry_file(journal, "told", tmp_path / "retry.csv")
        batch = await read_batch(tmp_path / "retry.csv")
        made = await plan(payments, batch, batch_id="again", journal=journal)
    if fault is None:
        assert [True] == ["SUCCESSFULL in the service's lists" in one.remedy for one in made.problems]
    else:
        assert ((), ()) == (made.problems, made.concerns)


async def test_a_failure_that_no_list_shows(tmp_path: Path) -> None:
    """The service does not filter, so nothing is known: somebody has to look at it before anything is sent."""
    async with (
        Sandbox(quirks=Quirks(ignores_status_filter=True)) as service,
        SqliteJournal(tmp_path / "journal.sqlite") as journal,
    ):
        who = Credentials(app_key=service.app_key, app_password=service.app_password, user_id=service.user_id)
        async with PaymentsSession(service.base_url, who) as payments:
            await told_to_have_failed(journal, payments)
            await retry_file(journal, "told", tmp_path / "retry.csv")
            made = await plan(payments, await read_batch(tmp_path / "retry.csv"), batch_id="again", journal=journal)
    assert (False, [True]) == (made.is_clean, ["ask it first" in one.remedy for one in made.concerns])


async def test_a_doubt_about_one_try_and_the_proof_of_another(
    payments: PaymentsSession, service: Sandbox, tmp_path: Path
) -> None:
    """No list shows how the second try ended; the first one was paid, by the lists: nothing may be sent."""
    async with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        await told_to_have_failed(journal, payments)
        await service.settle()
        again = [order(9), order(1, request_id="RUN-1-R2")]
        await ended(journal, again, "again", identity=account_of(payments))  # the second of them fails
        third = order(1, request_id="RUN-1-R3")
        made = await plan(payments, [third], batch_id="third", journal=journal)
    assert [("RUN-1-R3", True)] == [(one.request_id, "RUN-1 again" in one.remedy) for one in made.problems]


async def test_the_first_of_several_tries_was_paid_after_all(
    journal: SqliteJournal, payments: PaymentsSession, tmp_path: Path
) -> None:
    """However often it was tried again since, and failed: neither is a row written for it, nor a plan of it clean."""
    again = [order(number, request_id=f"RUN-{number}-R2") for number in (3, 2)]
    await ended(journal, again, "again")  # the first of them is paid, the second fails
    third = order(2, request_id="RUN-2-R3")
    assert () == (await plan(payments, [third], batch_id="third", journal=journal)).problems
    await found(journal, "RUN-2", Decimal(2000), Signal.LOOKED_UP_SUCCESSFUL)
    made = await retry_file(journal, "again", tmp_path / "retry.csv")
    assert (None, [("RUN-2-R2", True)]) == (made.path, [(one, "RUN-2 again" in why) for one, why in made.left_out])
    problems = (await plan(payments, [third], batch_id="third", journal=journal)).problems
    assert [("RUN-2-R3", True)] == [(one.request_id, "tries RUN-2 again" in one.remedy) for one in problems]


async def test_an_order_that_was_paid_after_all_when_the_batch_of_its_retry_goes_on(
    journal: SqliteJournal, payments: PaymentsSession
) -> None:
    """The batch holds the retry, which was not sent yet: a person has to look at it first."""
    again = [order(number, request_id=f"RUN-{number}-R2", batch_id="again") for number in (2, 3)]
    await journal.open_run("again", IDENTITY)
    await journal.load("again", again, owner="test")
    before = await plan(payments, again, batch_id="again", journal=journal)
    assert [] == [one for one in before.concerns if "paid twice" in one.remedy]
    await found(journal, "RUN-2", Decimal(2000), Signal.LOOKED_UP_SUCCESSFUL)
    made = await plan(payments, again, batch_id="again", journal=journal)
    assert ([("RUN-2-R2", True)], False, 0) == (
        [(one.request_id, True) for one in made.concerns if "paid twice" in one.remedy],
        made.is_clean,
        made.problem_count,
    )


@pytest.mark.parametrize("number", [1, 4, 6, 7])
async def test_an_order_that_did_not_fail_is_not_tried_again_by_hand(
    journal: SqliteJournal, payments: PaymentsSession, number: int
) -> None:
    """Paid, unknown, accepted or never sent: whoever writes such an id is told."""
    again = [order(number, request_id=f"RUN-{number}-R2")]
    made = await plan(payments, again, batch_id="again", journal=journal)
    assert [True] == ["tries RUN-" in one.remedy for one in made.problems]


async def test_the_proof_of_a_payment(journal: SqliteJournal, tmp_path: Path) -> None:
    """Says who was paid what, by which transaction, and what says so; in full, unless it is to be masked."""
    path = tmp_path / "receipt.html"
    await receipt(journal, "RUN-1", path)
    page = path.read_text()
    for words in ("1,000 UGX", "t-1", "successful", "d1635", "https://payments.example", "a look-up (list)"):
        assert words in page
    assert ("Amber Brightwater" in page, "772000001" in page) == (True, True)
    await receipt(journal, "RUN-1", path, personal=False, overwrite=True)
    masked = path.read_text()
    assert ("Brightwater" in masked, "772000001" in masked) == (False, False)
    with pytest.raises(FileExistsError):
        await receipt(journal, "RUN-1", path)


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 7])
async def test_no_proof_of_what_was_not_paid(journal: SqliteJournal, tmp_path: Path, number: int) -> None:
    """Nothing is written."""
    with pytest.raises(ValueError, match="there is no proof"):
        await receipt(journal, f"RUN-{number}", tmp_path / "receipt.html")
    with pytest.raises(OrderUnknown):
        await receipt(journal, "RUN-99", tmp_path / "receipt.html")
    assert not (tmp_path / "receipt.html").exists()


async def test_no_proof_of_what_evidence_contradicts(journal: SqliteJournal, tmp_path: Path) -> None:
    """Before a person has said what is true."""
    await found(journal, "RUN-1", Decimal(1000), Signal.LOOKED_UP_FAILED)
    with pytest.raises(ValueError, match="evidence contradicts"):
        await receipt(journal, "RUN-1", tmp_path / "receipt.html")


async def test_words_from_outside_are_no_markup(tmp_path: Path) -> None:
    """A name on a receipt stays a name."""
    async with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        await ended(journal, [order(1, beneficiary=Beneficiary(name='<b>"&Ñ\u202eandú</b>'))])
        await receipt(journal, "RUN-1", tmp_path / "receipt.html", personal=True)
    page = (tmp_path / "receipt.html").read_text()
    assert "&lt;b&gt;&#34;&amp;Ñ andú&lt;/b&gt;" in page
    assert "<b>" not in page.partition("</style>")[2].replace("<b>1,000 UGX</b>", "")


async def test_what_was_paid_as_lines_of_a_ledger(journal: SqliteJournal, tmp_path: Path) -> None:
    """Debit and credit are equal, what came back is booked back, and what is not final is in no line."""
    made = await ledger(journal, "november", tmp_path / "ledger.csv", debit="6000", credit="1200")
    assert (2, 1, 3) == (made.paid.count, made.reversed.count, made.open)
    rows = lines(tmp_path / "ledger.csv")
    assert ["RUN-1"] * 2 + ["RUN-5"] * 4 == [row["Reference"] for row in rows]
    sums = {
        account: sum(
            Decimal(row["Debit"] or 0) - Decimal(row["Credit"] or 0) for row in rows if row["Account"] == account
        )
        for account in ("6000", "1200")
    }
    assert {"6000": Decimal(1000), "1200": Decimal(-1000)} == sums
    assert all("Brightwater" not in row["Text"] for row in rows)


async def test_a_retry_and_a_ledger_as_workbooks(journal: SqliteJournal, tmp_path: Path) -> None:
    """The retry is a batch file again, with the same orders; a workbook is never replaced."""
    made = await retry_file(journal, "november", tmp_path / "retry.csv")
    book = await retry_file(journal, "november", tmp_path / "retry.xlsx")
    assert made.written == book.written
    read = [list((await read_batch(tmp_path / f"retry.{kind}")).orders) for kind in ("csv", "xlsx")]
    assert read[0] == read[1] != []
    paid = await ledger(journal, "november", tmp_path / "ledger.xlsx", debit="6000", credit="1200")
    assert 2 == paid.paid.count
    with pytest.raises(ValueError, match="never replaced"):
        await ledger(journal, "november", tmp_path / "ledger.xlsx", debit="6000", credit="1200", overwrite=True)


@pytest.mark.parametrize(("debit", "credit"), [("", "1"), ("1", " "), ("=1", "2"), ("1\n", "2"), ("1", "1")])
async def test_a_ledger_without_accounts(journal: SqliteJournal, tmp_path: Path, debit: str, credit: str) -> None:
    """It is refused before anything is written."""
    with pytest.raises(ValueError, match=r"debit|credit"):
        await ledger(journal, "november", tmp_path / "ledger.csv", debit=debit, credit=credit)
    assert not (tmp_path / "ledger.csv").exists()


async def _full_sheet(payments: PaymentsSession, path: Path) -> None:
    """A sheet with each kind of change since another batch, problems, and more concerns than it shows."""
    called = {number: Beneficiary(name=f"Person Longname {chr(64 + number)}") for number in range(1, 25)}
    orders = [order(number, beneficiary=called[number]) for number in called]
    orders += [order(60 + number, product_item_id="NONE_SUCH") for number in range(9)]
    bank = "BANKTRANSFERUG_BANKTRANSFERUG"
    orders += [
        order(80 + number, destination=BankAccount("0140001234", f"Bank of {chr(65 + number)}"), product_item_id=bank)
        for number in range(12)
    ]
    before = [order(number, request_id=f"OLD-{number}", amount=500) for number in range(6, 34) if number % 3]
    before += [
        order(number, request_id=f"OLD-{number}", amount=500, beneficiary=called[number]) for number in range(6, 24, 3)
    ]
    before += [
        order(50 + number, request_id=f"OLD-{50 + number}", beneficiary=called[number]) for number in range(1, 6)
    ]
    gone = ("Rita Lane", "Sam Hill", "Tom Wood", "Una Moor")
    before += [
        order(number, request_id=f"OLD-{number}", beneficiary=Beneficiary(name=name))
        for number, name in enumerate(gone, 96)
    ]
    made = await plan(payments, orders, batch_id="november", settings=PlanSettings(compare=before))
    assert made.comparison is not None
    assert all(made.comparison.counts.values())
    await approval_sheet(made, "november", path, file="payroll.csv", maker="A. Clerk")


@needs_browser
@pytest.mark.slow
async def test_no_paper_is_wider_than_a_telephone(
    journal: SqliteJournal, payments: PaymentsSession, tmp_path: Path
) -> None:
    """Report, receipt and approval sheet at 390 px: nothing sticks out. The sheet, however full, prints on one A4."""
    await report(journal, "november", html=tmp_path / "report.html")
    await receipt(journal, "RUN-1", tmp_path / "receipt.html")
    await _full_sheet(payments, tmp_path / "sheet.html")
    async with browsing(tmp_path / "browser") as tab:
        await tab.looks(width=390, dark=False)
        for name in ("report", "receipt", "sheet"):
            await tab.open((tmp_path / f"{name}.html").as_uri())
            widest = "Math.max(...[...document.querySelectorAll('main *')].map(e => e.getBoundingClientRect().right))"
            assert 390 >= await tab.value(widest), name
        assert 1 == await tab.pages_of_print(tmp_path / "sheet.pdf")


async def test_the_sheet_on_which_a_batch_is_approved(payments: PaymentsSession, tmp_path: Path) -> None:
    """It has the sums, the ten largest in full, the digest and a place to sign; and no person where it is masked."""
    orders = [
        order(number, beneficiary=Beneficiary(name=f"Person {'ABCDEFGHIJKL'[number]}"), message="last pay")
        for number in range(1, 12)
    ]
    made = await plan(payments, orders, batch_id="november")
    path = tmp_path / "sheet.html"
    await approval_sheet(made, "november", path, file="payroll.csv", maker="A. Clerk", personal=False)
    page = path.read_text()
    for words in ("66,000 UGX", made.digest, "payroll.csv", "A. Clerk", "RUN-11", "Approved by"):
        assert words in page
    assert ("RUN-1<", "Person L", False) == ("RUN-1<", "Person L", "RUN-1<" in page or "Person L" in page)
    assert "last pay" not in page
    before = [order(number, request_id=f"OLD-{number}", amount=500) for number in range(3, 14)]
    made = await plan(payments, orders, batch_id="november", settings=PlanSettings(compare=before))
    await approval_sheet(made, "november", path, overwrite=True)
    assert ("the same account under another name" in path.read_text(), "gone" in path.read_text()) == (True, True)
    assert ("Person L" in path.read_text(), "last pay" in path.read_text()) == (True, True)
