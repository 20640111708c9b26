"""What lasts is said while it lasts, and that the service does not answer."""

import asyncio
import re
from pathlib import Path

import pytest
from cli.commands import NO_SERVICE, Run

from payments_async import Credentials, PaymentsSession, RetryPolicy, ServiceFault
from payments_async._cli.live_view import LiveView
from payments_async._cli.screen import Screen
from payments_async._cli.working import silence, working
from payments_async.bulk import ReconcileSettings, SearchProgress, reconcile
from payments_async.journal import SqliteJournal
from payments_async.sandbox import Fault, Sandbox
from payments_async.testing import Testing


class Time:
    """Seconds that pass when somebody sleeps, and no others; each sleep gives way once."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept = asyncio.Event()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.set()
        await asyncio.sleep(0)

    async def pass_once(self) -> None:
        self.slept.clear()
        await self.slept.wait()
        await asyncio.sleep(0)


def session(base_url: str, sandbox: Sandbox, time: Time) -> PaymentsSession:
    """One that tries once, on a clock of the test."""
    credentials = Credentials(app_key=sandbox.app_key, app_password=sandbox.app_password, user_id=sandbox.user_id)
    return PaymentsSession(base_url, credentials, retry=RetryPolicy(attempts=1), testing=Testing(clock=time.clock))


async def test_a_pipe_hears_every_ten_seconds_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with the seconds; what is over at once says nothing."""
    time = Time()
    async with working(Screen(), lambda: f"reading page {time.now:.0f}", clock=time.clock, sleep=time.sleep):
        await time.pass_once()
        await time.pass_once()
    said = capsys.readouterr()
    assert "reading page 110 (10 s)\n" in said.err
    assert "" == said.out
    async with working(Screen(), "asking"):
        pass
    assert ("", "") == capsys.readouterr()


async def test_a_service_that_does_not_answer_is_told_with_the_seconds(sandbox: Sandbox) -> None:
    """Counted from the first call that nothing has followed; whoever waits learns that it is tried again."""
    time = Time()
    async with session(NO_SERVICE, sandbox, time) as payments:
        assert (0.0, "") == (payments.silent_for, silence(payments))
        for _ in range(2):
            with pytest.raises(ServiceFault):
                await payments.log_in()
            time.now += 20
        assert (40.0, "the service has not answered for 40 s, trying again") == (
            payments.silent_for,
            silence(payments),
        )


async def test_a_run_in_a_pipe_says_that_nothing_answers(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, though no progress comes meanwhile."""
    time = Time()
    async with session(NO_SERVICE, sandbox, time) as payments:
        with pytest.raises(ServiceFault):
            await payments.log_in()
        with LiveView(Screen(), 400, "UGX", payments=payments) as view:
            async with view.attending(sleep=time.sleep):
                await time.pass_once()
    assert "the service has not answered for 10 s, trying again\n" in capsys.readouterr().err


async def test_the_silence_is_told_before_what_is_done(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    """A narrow terminal cuts the end of the line off."""
    time = Time()
    async with session(NO_SERVICE, sandbox, time) as payments:
        with pytest.raises(ServiceFault):
            await payments.log_in()
        async with working(Screen(), "looking", payments, clock=time.clock, sleep=time.sleep):
            await time.pass_once()
    assert "the service has not answered for 10 s, trying again; looking (10 s)\n" in capsys.readouterr().err


async def test_an_answer_ends_the_silence_but_no_error_of_the_service(sandbox: Sandbox) -> None:
    """A status of 500 and above is no answer that helps; any other is one."""
    time = Time()
    async with session(sandbox.base_url, sandbox, time) as payments:
        await payments.log_in()
        assert 0.0 == payments.silent_for
        sandbox.script(Fault.ERROR_BEFORE)
        with pytest.raises(ServiceFault):
            await payments.accounts.get()
        time.now += 7
        assert 7.0 == payments.silent_for
        await payments.accounts.get()
        assert 0.0 == payments.silent_for


@pytest.mark.slow
async def test_a_reconciliation_tells_how_far_it_is(run: Run, sandbox: Sandbox, tmp_path: Path) -> None:
    """Pages, single records and waits are told one by one, and never go down."""
    path = tmp_path / "j.sqlite"
    pay = "pay --amount 1000 --item MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG --name G --wallet +256772000017 --yes"
    await run(*pay.split(), "--request-id", "v-1", "--journal", str(path), "--new-journal")
    signal: list[SearchProgress] = []
    async with SqliteJournal(path) as journal, session(sandbox.base_url, sandbox, Time()) as payments:
        await reconcile(payments, journal, progress=signal.append, settings=ReconcileSettings(interval=0))
    assert signal
    assert [one.pages for one in signal] == sorted(one.pages for one in signal)
    assert 1 <= signal[-1].pages
    ran = await run("bulk", "reconcile", "--journal", str(path))
    assert re.search(r"settled: ", ran.out)
