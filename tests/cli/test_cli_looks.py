"""Commands that only look: what they show, what they hide, and what they say of a bad setting."""

import importlib.util
import inspect
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from cli.commands import NO_SERVICE, Run, send

import payments_async._cli
from payments_async import Beneficiary, MobileMoneyWallet, PayoutOrder, __version__
from payments_async._cli.app import COMMANDS, about, load_command
from payments_async._cli.screen import evenly
from payments_async.sandbox import Sandbox

PAY = (
    "pay",
    "--amount",
    "1000",
    "--item",
    "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG",
    "--name",
    "Grace Akello",
    "--wallet",
    "+256772000017",
    "--yes",
    "--request-id",
)
OF_ORDER = ("--request-id", "v-1")


async def test_the_account_shows_its_balance(run: Run) -> None:
    """Every digit for people, a text with every digit for machines."""
    assert "1,000,000,000 UGX" in (await run("account")).out
    assert "1000000000" == json.loads((await run("account", "--json")).out)["balance"]


async def test_amounts_stand_under_each_other(run: Run) -> None:
    """In one column each has as many decimals; what is no amount stays as it is."""
    for amount in ("1000", "1000.5", "20.25"):
        ordered = [word if word != "1000" else amount for word in PAY]
        assert 0 == (await run(*ordered, f"v-{amount}")).status
    shown = (await run("transactions")).out
    amounts = re.findall(r"-([0-9,.]+) UGX", shown)
    assert {"1,000.00", "1,000.50", "20.25"} == set(amounts)


@pytest.mark.parametrize(
    ("texts", "even"),
    [
        pytest.param(["1,000", "17.5", "-3.125"], ["1,000.000", "17.500", "-3.125"], id="decimals"),
        pytest.param(["1 UGX", "2.50 UGX"], ["1.00 UGX", "2.50 UGX"], id="currency"),
        pytest.param(["400", "1,200"], ["400", "1,200"], id="counts"),
        pytest.param(["any", "", "1.50"], ["any", "", "1.50"], id="words"),
        pytest.param([], [], id="none"),
    ],
)
def test_decimals_are_filled_up(texts: list[str], even: list[str]) -> None:
    """With zeros alone: no digit is changed, and none is lost."""
    assert even == evenly(texts)


async def test_products_are_listed_and_one_is_shown_with_its_items(run: Run) -> None:
    """A list of all, or one with its items and fixed amounts."""
    assert "MTNAIRTIMEUG" in (await run("products")).out
    assert "20,000.00" in (await run("products", "AIRTELDATABUNDLESUG")).out


@pytest.mark.parametrize(("amount", "status"), [("1000", 0), ("1", 3), ("1.000,0", 2)])
async def test_validation_answers_with_its_status(run: Run, amount: str, status: int) -> None:
    """0 is a yes, 3 a no of the service, 2 an amount that is none."""
    assert status == (await run("validate", "MTNAIRTIMEUG_MTNAIRTIMEUG", "0772000017", amount)).status


async def test_transactions_are_listed_found_and_masked(run: Run) -> None:
    """An order is found by its request id; people are masked unless asked for."""
    await run(*PAY, "v-1")
    listed = await run("transactions")
    assert "v-1" in listed.out
    assert "Grace" not in listed.out
    assert "Grace Akello" in (await run("transactions", "--show-personal")).out
    (found,) = json.loads((await run("transactions", "--request-id", "v-1", "--json")).out)
    assert "v-1" == found["request_id"]


async def test_json_masks_whom_a_table_masks(run: Run) -> None:
    """Account, list, record and validation: --show-personal shows people in both, and without it neither does."""
    await run(*PAY, "v-1")
    (listed,) = json.loads((await run("transactions", "--json")).out)
    assert "***llo" == listed["beneficiary"]["name"]
    looks = (("account",), ("transactions",), ("transactions", listed["transaction_id"]), ("transactions", *OF_ORDER))
    for look in looks:
        masked, full = (await run(*look, "--json")).out, (await run(*look, "--json", "--show-personal")).out
        assert json.loads(masked) != json.loads(full)
        assert not [person for person in ("Grace", "Akello", "772000017") if person in masked]
    assert "Grace Akello" in full


async def test_every_transaction_of_an_order_is_shown(run: Run, sandbox: Sandbox) -> None:
    """Two under one request id are two payments: both are shown, with status 4."""
    order = PayoutOrder(
        request_id="v-1",
        amount=Decimal(1000),
        destination=MobileMoneyWallet("+256772000017"),
        product_item_id=PAY[4],
        beneficiary=Beneficiary(name="Grace Akello"),
    )
    for _ in range(2):
        await send(sandbox, order)
    ran = await run("transactions", "--request-id", "v-1")
    found = json.loads((await run("transactions", "--request-id", "v-1", "--json")).out)
    assert (4, 2, 2) == (ran.status, len(found), sandbox.executions("v-1"))
    assert "2 transactions carry request id v-1" in ran.said
    assert [] == [one["transaction_id"] for one in found if one["transaction_id"] not in ran.out]


async def test_an_order_the_lists_do_not_show_stays_unknown(run: Run) -> None:
    """Absence is not proof: status 4, and a warning not to send it again."""
    ran = await run("transactions", "--request-id", "v-9")
    assert 4 == ran.status
    assert "which proves nothing" in ran.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(("--status", "done"), "--status: must be one of ENQUEUED", id="status"),
        pytest.param(("--since", "2026-11-02", "--until", "2026-11-01"), "--until: lies before --since", id="days"),
        pytest.param(("--since", "yesterday"), "'yesterday' is not a day; write it as in 2026-11-22", id="no-day"),
        pytest.param(("--authorization", "Basic"), "--authorization: must be one of Token, Bearer, auto", id="scheme"),
    ],
)
async def test_a_wrong_option_is_bad_input(run: Run, options: tuple[str, ...], words: str) -> None:
    """It is named with what may stand there."""
    ran = await run("transactions", *options)
    assert (2, "") == (ran.status, ran.out)
    assert words in ran.said


SETTINGS = [
    pytest.param({"PAYMENTS_APP_PASSWORD": "not-the-password"}, 5, "check PAYMENTS_APP_KEY", id="wrong-password"),
    pytest.param({"PAYMENTS_BASE_URL": None}, 2, "not set: PAYMENTS_BASE_URL (--base-url)", id="no-address"),
    pytest.param(
        {"PAYMENTS_APP_KEY": None, "PAYMENTS_APP_PASSWORD": None},
        2,
        "not set: PAYMENTS_APP_KEY (--app-key), PAYMENTS_APP_PASSWORD (--password-file)",
        id="no-credentials",
    ),
    pytest.param({"PAYMENTS_APP_PASSWORD": " blank "}, 2, "PAYMENTS_APP_PASSWORD (--password-file):", id="blanks"),
    pytest.param(
        {"PAYMENTS_BASE_URL": "http://payments.example.org"}, 2, "PAYMENTS_BASE_URL (--base-url): plain http", id="http"
    ),
    pytest.param(
        {"PAYMENTS_BASE_URL": "https://me:hidden-word@payments.example.org"},
        2,
        "PAYMENTS_BASE_URL (--base-url): must not contain a user or a password",
        id="password-in-address",
    ),
    pytest.param({"PAYMENTS_BASE_URL": "payments.example.org"}, 2, "PAYMENTS_BASE_URL (--base-url):", id="no-scheme"),
    pytest.param({"PAYMENTS_BASE_URL": NO_SERVICE}, 3, "PAYMENTS_BASE_URL (--base-url)", id="nobody-there"),
    pytest.param({"PAYMENTS_BASE_URL": "https://no.invalid"}, 3, "PAYMENTS_BASE_URL (--base-url)", id="typo-in-host"),
]


@pytest.mark.parametrize("command", ["account", "doctor"])
@pytest.mark.parametrize(("settings", "status", "words"), SETTINGS)
async def test_a_bad_setting_is_named_with_the_remedy(
    run: Run, command: str, settings: dict[str, str | None], status: int, words: str
) -> None:
    """What the user sees names the setting as he set it; no secret, no traceback."""
    ran = await run(command, **settings)
    assert (status, True) == (ran.status, words in ran.said), ran.said
    assert "Traceback" not in ran.err
    assert "hidden-word" not in ran.said


async def test_a_wrong_path_in_the_address_is_told_apart_from_credentials(run: Run, sandbox: Sandbox) -> None:
    """A service that knows no login at this path is a matter of the address."""
    ran = await run("doctor", PAYMENTS_BASE_URL=f"{sandbox.base_url}/elsewhere")
    assert 2 == ran.status
    assert "check the path in PAYMENTS_BASE_URL" in ran.said


async def test_the_doctor_finds_nothing_wrong(run: Run) -> None:
    """With good settings every look is fine, to people and machines."""
    ran = await run("doctor")
    assert 0 == ran.status
    assert 9 == ran.out.count("fine ")
    assert ("shows 0 transactions" in ran.out, "none in these answers" in ran.out) == (True, True)
    told = json.loads((await run("doctor", "--json")).out)
    assert {0} == {finding["status"] for finding in told["findings"]}


async def test_the_doctor_tells_quirks(run: Run, sandbox: Sandbox) -> None:
    """Those that the answers show, by their ids; they are understood, and nothing is wrong."""
    sandbox.switch("token_key", "data.token")
    sandbox.switch("read_code", 1)
    ran = await run("doctor")
    assert (0, True) == (ran.status, "read_code (1), token_key (data.token): understood" in ran.out)


async def test_the_doctor_finds_out_whether_a_service_asks_for_bodies(run: Run, sandbox: Sandbox) -> None:
    """A login is announced and not sent: nobody is logged in by it, and no order is touched."""
    assert "Dialect(expect_continue=True) may be used" in (await run("doctor")).out
    before = len(sandbox.requests)
    sandbox.switch("expect_continue", "refused")
    assert "answers 417 to a request that waits" in (await run("doctor")).out
    assert ([], True) == (list(sandbox.ledger), len(sandbox.requests) > before)


async def test_the_doctor_knows_http_from_tls(run: Run, sandbox: Sandbox) -> None:
    """https:// to a port that speaks none is told as that."""
    ran = await run("doctor", PAYMENTS_BASE_URL=sandbox.base_url.replace("http:", "https:"))
    assert (3, True) == (ran.status, "does not speak TLS" in ran.said)


async def test_the_password_comes_from_a_file_or_a_pipe(run: Run, sandbox: Sandbox, tmp_path: Path) -> None:
    """Never from an option: options show in the list of processes."""
    path = tmp_path / "password"
    path.write_text(f"{sandbox.app_password}\n")
    assert 0 == (await run("account", "--password-file", str(path), PAYMENTS_APP_PASSWORD=None)).status
    piped = await run("account", "--password-file", "-", typed=f"{sandbox.app_password}\n", PAYMENTS_APP_PASSWORD=None)
    assert 0 == piped.status
    assert "--app-password" not in (await run("account", "--help")).out


async def test_debug_shows_a_masked_traceback(run: Run) -> None:
    """The traceback is there, the secrets are not (which every run checks)."""
    ran = await run("account", "--debug", PAYMENTS_APP_PASSWORD="not-the-password")
    assert "AuthenticationFailed" in ran.err
    assert "Traceback" in ran.err
    assert "demo-app-key" not in ran.said


async def test_help_tells_the_exit_codes(run: Run) -> None:
    """Every command tells them, in the same words."""
    for command in ((), ("demo",), ("pay",), ("ipn", "serve")):
        assert "4 the outcome is unknown" in (await run(*command, "--help")).said.replace("│ ", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_list_of_commands_says_what_the_help_of_each_begins_with(name: str) -> None:
    """What is known of a command before it is imported is the first paragraph of its own help."""
    command = load_command(name)
    assert (name.rpartition(" ")[2], about(name)) == (
        command.name,
        inspect.cleandoc(command.help or "").split("\n\n")[0],
    )


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_flag_is_shown_as_a_flag(run: Run, name: str) -> None:
    """What goes with an option is named in words, never as Python calls it, and with a flag goes nothing."""
    shown = (await run(*name.split(), "-h", COLUMNS="160", TERMINAL_WIDTH="160")).out
    assert [] == re.findall(r"<(?:bool|str|int|float|path|list|datetime)[^>]*>|BOOLEAN", shown)
    assert re.search(r"--json +One JSON document", shown)
    assert re.search(r"--help +-h +Show this message", shown)


async def test_the_version_is_told(run: Run) -> None:
    """A line with the name and the version, by no other import."""
    assert (0, f"payments-async {__version__}\n") == attrs.astuple(await run("--version"))[:2]


@pytest.mark.slow
def test_a_shell_completes_commands_and_their_options() -> None:
    """By what --install-completion puts in place, which asks the program itself."""

    def offered(typed: str) -> list[str]:
        asks = {"_PAYMENTS_ASYNC_COMPLETE": "complete_bash", "COMP_WORDS": f"payments-async {typed}"}
        where = {"COMP_CWORD": str(len(typed.split()))}
        command = [sys.executable, "-m", "payments_async"]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=os.environ | asks | where
        ).stdout.split()

    assert ["run", "report", "retry-file", "receipt", "reconcile"] == offered("bulk r")
    assert ["--amount", "--airtime", "--area", "--app-key", "--authorization"] == offered("pay --a")


@pytest.mark.slow
def test_help_imports_no_command() -> None:
    """Whoever asks what there is does not wait for all of it; whoever names a command waits for that one's options."""
    ask = (
        "import sys; from payments_async._cli import main; sys.argv[1:] = {!r}.split()\n"
        "try: main()\n"
        "finally: print(*(one for one in sys.modules if '_cli.commands.' in one or '.bulk' in one), file=sys.stderr)"
    )
    loaded = {}
    for line in ("--help", "pay --help"):
        done = subprocess.run([sys.executable, "-c", ask.format(line)], check=False, capture_output=True, text=True)
        loaded[line] = [word for word in done.stderr.split() if word.startswith("payments_async.")]
    assert {"--help": [], "pay --help": ["payments_async._cli.commands.pay"]} == loaded


def test_a_missing_extra_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Without the extra the command names it instead of a traceback."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))  # the command line has others, and they end with the test
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "typer" else ssl)
    monkeypatch.setattr(sys, "argv", ["payments-async"])
    with pytest.raises(SystemExit) as ended:
        payments_async._cli.main()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as it was before the command line took it
    said = capfd.readouterr().err
    assert (2, 1) == (ended.value.code, said.count("\n"))
    assert "pip install 'payments-async[cli]'" in said


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_standard_files_that_were_closed(tmp_path: Path, closed: str) -> None:
    """As by a scheduler. The status is what it would be, and no other file comes to stand in their place."""
    look = 'exec "$0" -m payments_async bulk status --journal none.sqlite --batch-id none'
    done = subprocess.run(["sh", "-c", f"{look} {closed}", sys.executable], check=False, cwd=tmp_path)
    assert 2 == done.returncode
    code = "import os, sys; from payments_async import _cli; _cli._fill_standard_files(); print(file=sys.stderr); "
    code += "os._exit(os.open(os.devnull, os.O_RDONLY))"
    files = subprocess.run(["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code], check=False)
    assert files.returncode > 2


async def test_what_few_need_is_shown_by_another_help(run: Run) -> None:
    """The usual one fits on a screen, and says where the rest is; every option works in any case."""
    usual, whole = [(await run("bulk", "run", which, COLUMNS="110")).out for which in ("--help", "--help-all")]
    for option in ("--batch-id", "--journal", "--plan", "--skip-bad", "--yes", "--listen"):
        assert option in usual
    for option in ("--max-total", "--without-looking", "--base-url", "--map"):
        assert (option in usual, option in whole) == (False, True)
    assert re.search(r"--help-all shows \d+ options more", " ".join(usual.replace("│", " ").split()))
