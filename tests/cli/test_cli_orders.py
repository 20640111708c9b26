"""`pay` and `collect`: one order, only with an id of its own, only once confirmed, and the truth afterwards."""

import json
from decimal import Decimal

import pytest
from cli.commands import CTRL_C, NO_SERVICE, Run

from payments_async.sandbox import Fault, Sandbox

PAY = (
    "pay",
    "--amount",
    "150000.50",
    "--item",
    "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
    "--name",
    "Grace Akello",
    "--wallet",
    "+256772000017",
)
OURS = ("--request-id", "voucher-17")


async def test_a_payout_is_sent_once_and_shown_masked(run: Run, sandbox: Sandbox) -> None:
    """With --yes it is sent; neither name nor number of the beneficiary is on the screen."""
    ran = await run(*PAY, *OURS, "--yes")
    assert (0, 1) == (ran.status, sandbox.executions("voucher-17"))
    assert "150,000.50 UGX" in ran.out  # the account's currency, which the order keeps
    assert "Accepted is not paid" in ran.out
    assert not [person for person in ("Grace", "Akello", "0772000", "256772000") if person in ran.out + ran.err]


async def test_show_personal_shows_whom_it_goes_to(run: Run) -> None:
    """Who asks for it sees the name and the number."""
    ran = await run(*PAY, *OURS, "--yes", "--show-personal")
    assert "Grace Akello" in ran.out
    assert "+256772000017" in ran.out


async def test_waiting_tells_how_it_ended(run: Run, sandbox: Sandbox) -> None:
    """--wait ends with the final status: 0 for paid, 3 for failed."""
    paid = json.loads((await run(*PAY, *OURS, "--yes", "--wait", "20", "--json")).out)
    assert ("voucher-17", "successful") == (paid["request_id"], paid["state"])
    sandbox.script(Fault.FAILS)
    assert 3 == (await run(*PAY, "--request-id", "voucher-18", "--yes", "--wait", "20")).status


async def test_a_payout_without_an_id_is_refused(run: Run, sandbox: Sandbox) -> None:
    """A generated id would turn a second run into a second payment."""
    ran = await run(*PAY, "--yes")
    assert (2, "", 0) == (ran.status, ran.out, len(sandbox.ledger))
    assert "--request-id: name the order yourself" in ran.said


@pytest.mark.slow(covered=True)
async def test_an_item_that_follows_from_the_number(run: Run, run_on_terminal: Run, sandbox: Sandbox) -> None:
    """It is a guess: a person sees it and agrees to it; without a question it has to be named."""
    guessed = (*PAY[:3], *PAY[5:], *OURS)
    refused = await run(*guessed, "--yes")
    assert (2, 0, True) == (refused.status, len(sandbox.ledger), f"name it ({PAY[4]})" in refused.said)
    asked = await run_on_terminal(*guessed, typed="y\n")
    assert (0, 1, True) == (asked.status, len(sandbox.ledger), "people keep numbers" in asked.said), asked.said
    other = await run(*guessed, "--item", "AIRTELMOBILEMONEYPAYOUTUG_AIRTELMOBILEMONEYPAYOUTUG", "--yes")
    assert (2, 1, True) == (other.status, len(sandbox.ledger), "is the id of another order" in other.said)
    again = json.loads((await run(*guessed, "--item", PAY[4], "--yes", "--json")).out)  # the currency was kept
    assert ("UGX", 1) == (again["currency"], len(sandbox.ledger))


async def test_nobody_to_ask_means_nothing_is_sent(run: Run, sandbox: Sandbox) -> None:
    """In a pipe the question cannot be put: --yes is asked for, and nothing leaves."""
    ran = await run(*PAY, *OURS, typed="y\n")
    assert (2, 0) == (ran.status, len(sandbox.ledger))
    assert "--yes: needed where there is no terminal" in ran.said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ahead", "typed", "status", "executions"),
    [
        pytest.param("", "y\n", 0, 1, id="yes"),
        pytest.param("y\n", "n\n", 5, 0, id="no-after-a-yes-typed-ahead"),
        pytest.param("", "\n", 5, 0, id="nothing"),
    ],
)
async def test_a_terminal_is_asked(
    run_on_terminal: Run, sandbox: Sandbox, ahead: str, typed: str, status: int, executions: int
) -> None:
    """Only a clear yes to the question as it stands there sends it, and what is to be checked is shown in full."""
    ran = await run_on_terminal(*PAY, *OURS, "--message", "dismissed - last pay", ahead=ahead, typed=typed)
    assert (status, executions) == (ran.status, sandbox.executions("voucher-17"))
    shown, asked, told = ran.out.partition("Send 150,000.50 UGX to wallet +256772000017? [y/N]")
    assert ("Grace Akello" in shown, "dismissed - last pay" in shown, bool(asked)) == (True, True, True)
    assert "Grace" not in told


@pytest.mark.slow
async def test_a_question_is_masked_where_that_is_asked_for(run_on_terminal: Run) -> None:
    """With --mask, as before others who look at the screen."""
    ran = await run_on_terminal(*PAY, *OURS, "--mask", typed="n\n")
    assert "Send 150,000.50 UGX to wallet ***017? [y/N]" in ran.out
    assert not [person for person in ("Grace", "Akello", "256772000") if person in ran.out]


@pytest.mark.slow
async def test_ctrl_c_at_the_question_says_that_nothing_was_sent(run_on_terminal: Run, sandbox: Sandbox) -> None:
    """Who breaks it off there is told so."""
    ran = await run_on_terminal(*PAY, *OURS, typed=CTRL_C)
    assert (5, 0) == (ran.status, len(sandbox.ledger))
    assert "nothing was sent" in ran.said
    assert "stopped" in ran.said


@pytest.mark.parametrize("amount", ["14,500/=", "Shs 14,500"])
async def test_shillings_are_those_of_the_currency_that_is_named(run: Run, sandbox: Sandbox, amount: str) -> None:
    """As in a batch file."""
    ran = await run(*PAY, *OURS, "--amount", amount, "--currency", "ugx", "--yes")
    assert 0 == ran.status, ran.said
    assert [Decimal(14_500)] == [one.amount.copy_abs() for one in sandbox.ledger]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param((*PAY, *OURS, "--amount", "1,5"), "--amount: ambiguous: the comma", id="amount"),
        pytest.param(
            (*PAY, *OURS, "--amount", "5/="), "--amount: in shillings of a country that is not", id="shillings"
        ),
        pytest.param(
            (*PAY, *OURS, "--amount", "5/-", "--currency", "usd"),
            "in shillings, but --currency says usd",
            id="of-dollars",
        ),
        pytest.param((*PAY, *OURS, "--amount", "0"), "--amount: zero; an amount is above zero", id="zero"),
        pytest.param((*PAY, *OURS, "--wallet", ""), "--wallet: must not be empty", id="phone"),
        pytest.param((*PAY, *OURS, "--airtime", "0772000017"), "with exactly one of --wallet", id="two-ways"),
        pytest.param((*PAY, *OURS, "--email", "nobody"), "--email: not an e-mail address", id="email"),
        pytest.param((*PAY, *OURS, "--currency", "KES"), "--currency: the account is kept in UGX", id="currency"),
        pytest.param(
            (
                "pay",
                "--amount",
                "1000",
                "--item",
                "NWSCWATERUG_NWSCWATERUG",
                "--name",
                "A B",
                "--utility",
                "1380755",
                *OURS,
            ),
            "--area: required for national water; as in --area Kampala",
            id="area",
        ),
        pytest.param(
            ("pay", "--amount", "1000", "--item", "BANK", "--name", "A B", "--bank-account", "0111957192655", *OURS),
            "--bank-code: must not be empty",
            id="bank-code",
        ),
    ],
)
async def test_a_wrong_option_is_named(run: Run, sandbox: Sandbox, options: tuple[str, ...], words: str) -> None:
    """What is wrong is told of the option that a person can change, with the remedy, before anything is sent."""
    ran = await run(*options, "--yes")
    assert (2, 0) == (ran.status, len(sandbox.ledger))
    assert words in ran.said


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        pytest.param(Fault.REFUSED, 3, id="rejected"),
        pytest.param(Fault.LOST_AFTER, 4, id="lost-after"),
        pytest.param(Fault.LOST_BEFORE, 4, id="lost-before"),
        pytest.param(Fault.HTML, 4, id="html"),
    ],
)
async def test_the_exit_status_tells_what_became_of_it(run: Run, sandbox: Sandbox, fault: Fault, status: int) -> None:
    """3 is a no of the service, 4 is unknown with the command that looks it up; JSON stays one document."""
    sandbox.script(fault, on="payout")
    ran = await run(*PAY, *OURS, "--yes", "--json")
    assert status == ran.status == json.loads(ran.out)["exit_status"]
    assert sandbox.executions("voucher-17") <= 1
    assert (status == 4) == ("payments-async transactions --request-id voucher-17" in ran.said)
    assert (status == 4) == ("never send it again" in ran.said)


async def test_no_service_means_it_was_not_sent(run: Run) -> None:
    """A connection that never stood is no unknown outcome."""
    ran = await run(*PAY, *OURS, "--yes", PAYMENTS_BASE_URL=NO_SERVICE)
    assert 3 == ran.status
    assert "it is safe to send it again" in ran.said
    assert "PAYMENTS_BASE_URL (--base-url)" in ran.said


async def test_a_collection_is_requested(run: Run, sandbox: Sandbox) -> None:
    """Money in goes the same way."""
    ran = await run(
        "collect",
        "--amount",
        "500",
        "--item",
        "MTNMOBILEMONEYUG_MTNMOBILEMONEYUG",
        "--name",
        "Grace Akello",
        "--payer",
        "0772000017",
        "--request-id",
        "bill-1",
        "--yes",
        "--json",
    )
    assert (0, 1) == (ran.status, sandbox.executions("bill-1"))
    assert "bill-1" == json.loads(ran.out)["request_id"]
