"""The log on the command line: asked for by a setting, each line with its facts, and nobody in it."""

import json
import logging
import re
import sys

import pytest
from cli.commands import NO_SERVICE, Run

from payments_async import FactsFormatter
from payments_async.sandbox import Fault, Sandbox

PAY = "pay --amount 1000 --item MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG --name Grace --wallet +256772000017 --yes"


async def test_a_line_for_each_exchange(run: Run) -> None:
    """Method, path, status, seconds and the request id: enough to see at night what was asked, and of whom."""
    said = (await run(*PAY.split(), "--request-id", "772000018", PAYMENTS_LOG="debug")).err
    exchange = r"debug POST /api/transactions/payouts/mobilemoney: 20. after \d\.\d+ s request_id=772000018"
    assert re.search(exchange, said)
    assert re.search(r"debug POST /api/auth/login: 200 after", said)
    assert not [person for person in ("Grace", "772000017") if person in said]


async def test_a_line_tells_what_it_is_about(run: Run, sandbox: Sandbox) -> None:
    """An unknown outcome names its order and the reason, in the line itself."""
    sandbox.script(Fault.LOST_AFTER, on="payout")
    said = (await run(*PAY.split(), "--request-id", "v-1", PAYMENTS_LOG="WARNING")).err
    (line,) = [line for line in said.splitlines() if "outcome unknown" in line]
    assert re.search(r"warning outcome unknown: v-1: POST /api/transactions/payouts/mobilemoney: \w+", line)
    assert "debug" not in said


async def test_an_exchange_without_an_answer_says_why(run: Run) -> None:
    """In place of the status stands what was in the way."""
    said = (await run("account", "--log", "debug", PAYMENTS_BASE_URL=NO_SERVICE)).err
    assert re.search(r"debug POST /api/auth/login: [a-z].* after \d", said)


async def test_nothing_is_logged_unasked(run: Run) -> None:
    """What a command says is for people; the log is for those who look for something."""
    assert "" == (await run("account")).err
    assert "--log" in (await run("account", PAYMENTS_LOG="loud")).err


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        pytest.param({"request_id": "v-1", "attempt": 2}, "trying again request_id=v-1 attempt=2", id="facts"),
        pytest.param({"why": "no answer came"}, "trying again why='no answer came'", id="words"),
        pytest.param({"request_id": None, "error": ""}, "trying again", id="nothing-known"),
        pytest.param({"error": "called 0772000017"}, "trying again error='called ***017'", id="a-person"),
        pytest.param({"request_id": "0772000017"}, "trying again request_id=0772000017", id="an-id-like-a-telephone"),
        pytest.param({"error": "key-of-ours said"}, "trying again error='*** said'", id="a-secret"),
        pytest.param({"error": "\x1b[2J"}, r"trying again error=\x1b[2J", id="controls"),
        pytest.param({"what": "again"}, "trying again", id="said-already"),
    ],
)
def test_facts_stand_behind_the_words(facts: dict[str, object], line: str) -> None:
    """Each once, masked as everywhere."""
    record = logging.makeLogRecord({"msg": "trying again", "levelname": "INFO", **facts})
    assert f"info {line}" == FactsFormatter(lambda: {"key-of-ours"}).format(record).partition(" ")[2]


def test_a_line_for_machines_has_every_fact_by_its_name() -> None:
    """What is in the message too; numbers stay numbers, what may be a person's is masked, and it is one line."""
    formatter = FactsFormatter(lambda: {"key-of-ours"}, as_json=True)
    facts = {"request_id": "0772000017", "attempt": 2, "seconds": 0.5, "error": "called 0772000017", "phone": 772000017}
    known = {"msg": "trying again: %s\n", "args": ("key-of-ours",), "levelname": "INFO", "name": "payments_async"}
    line = formatter.format(logging.makeLogRecord({**known, "created": 0.5, "why": None, **facts}))
    assert "\n" not in line
    assert {
        "at": "1970-01-01T00:00:00.500+00:00",
        "level": "info",
        "logger": "payments_async",
        "message": r"trying again: ***\n",
        "request_id": "0772000017",
        "attempt": 2,
        "seconds": 0.5,
        "error": "called ***017",
        "phone": "***017",
    } == json.loads(line)


def test_a_number_that_json_does_not_know() -> None:
    """It is a text, or whoever reads the lines could read none of this one."""
    facts = {"rate": float("inf"), "share": float("nan"), "large": 10**400}
    line = FactsFormatter(as_json=True).format(logging.makeLogRecord({"msg": "pace", **facts}))
    told = json.loads(line, parse_constant=pytest.fail)
    assert ("inf", "nan") == (told["rate"], told["share"])


def test_a_traceback_for_machines_is_in_the_line() -> None:
    """Masked, as everywhere."""
    try:
        raise RuntimeError("called +256772000017")
    except RuntimeError:
        record = logging.makeLogRecord({"msg": "it failed", "exc_info": sys.exc_info()})
    told = json.loads(FactsFormatter(as_json=True).format(record))
    assert ("it failed", True, False) == (
        told["message"], "RuntimeError: called ***017" in told["traceback"], "772000017" in told["traceback"],
    )  # fmt: skip
