"""A session whose address and credentials are in the environment."""

from __future__ import annotations

import inspect
import logging
import traceback
from typing import get_type_hints

import pytest
from bulk.worlds import payout

from payments_async import PaymentsSession, RetryPolicy
from payments_async._session.session import SessionSettings
from payments_async.sandbox import Sandbox

NAMES = ("PAYMENTS_BASE_URL", "PAYMENTS_APP_KEY", "PAYMENTS_APP_PASSWORD", "PAYMENTS_USER_ID")


def variables(sandbox: Sandbox) -> dict[str, str]:
    """Those of a sandbox."""
    values = (sandbox.base_url, sandbox.app_key, sandbox.app_password, sandbox.user_id)
    return dict(zip(NAMES, values, strict=True))


async def test_a_session_of_the_process(monkeypatch: pytest.MonkeyPatch, service: Sandbox) -> None:
    """It pays, with the variables that the command line reads, and other settings as they are given."""
    for name, value in variables(service).items():
        monkeypatch.setenv(name, value)
    async with PaymentsSession.from_env(retry=RetryPolicy(attempts=1)) as payments:
        await payments.payouts.send(payout(1))
    assert 1 == service.executions(payout(1).request_id)


async def test_the_log_is_shown_by_a_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a level on, masked, on standard error; a handler of the application's own shows it in its place."""
    log = logging.getLogger("payments_async")
    monkeypatch.setattr(log, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(log, "propagate", False)
    monkeypatch.setenv("PAYMENTS_LOG", "debug")
    before = log.level
    try:
        async with Sandbox() as sandbox, PaymentsSession.from_env(variables(sandbox)) as payments:
            await payments.payouts.send(payout(1))
            PaymentsSession.from_env(variables(sandbox) | {"PAYMENTS_LOG": "warning"})
            given = variables(sandbox)
        assert (2, logging.WARNING) == (len(log.handlers), log.level)
        with pytest.raises(ValueError, match="PAYMENTS_LOG: expected debug, info, warning or error"):
            PaymentsSession.from_env(given | {"PAYMENTS_LOG": "loud"})
    finally:
        log.setLevel(before)
    said = capsys.readouterr().err
    assert "POST /api/transactions/payouts/mobilemoney: 200" in said
    assert "256772000017" not in said


async def test_a_session_of_a_mapping(monkeypatch: pytest.MonkeyPatch, service: Sandbox) -> None:
    """What is handed in takes the place of the environment, of which nothing is taken then."""
    monkeypatch.setenv("PAYMENTS_USER_ID", "somebody else")
    given = variables(service)
    async with PaymentsSession.from_env(given) as payments:
        await payments.log_in()
    del given["PAYMENTS_USER_ID"]
    with pytest.raises(ValueError, match=r"not set in the environment: PAYMENTS_USER_ID$"):
        PaymentsSession.from_env(given)


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_that_cannot_be_right(name: str) -> None:
    """The error says what is wrong, and neither it nor its frames show a secret."""
    given = dict.fromkeys(NAMES, "s3cr3t-value") | {"PAYMENTS_BASE_URL": "https://host"}
    given[name] = "ftp://s3cr3t-value " if name == "PAYMENTS_BASE_URL" else " s3cr3t-value"
    with pytest.raises(ValueError, match="must ") as caught:
        PaymentsSession.from_env(given)
    assert "s3cr3t" not in str(caught.value)
    if name == "PAYMENTS_BASE_URL":
        return  # an address is no secret
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)][1:]  # the first one is this test
    assert frames
    assert "s3cr3t" not in "".join(repr(frame.f_locals) for frame in frames)


def test_every_setting_of_a_session_can_be_given() -> None:
    """``from_env`` takes by name what the class takes, of the same types."""
    hints = get_type_hints(PaymentsSession.__init__)
    named = inspect.signature(PaymentsSession).parameters.values()
    keywords = {one.name: hints[one.name] for one in named if one.kind is one.KEYWORD_ONLY}
    assert keywords == get_type_hints(SessionSettings)
