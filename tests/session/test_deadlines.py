"""One timer for all exchanges: whoever stays too long is told so, and cancellation from elsewhere stays what it is."""

import asyncio
import subprocess
import sys
import time

import pytest

from payments_async._values.deadlines import Deadlines, steady_seconds

SOON = 0.02  # seconds of the loop's own clock: nothing here waits longer for a verdict


async def stay_for_ever(deadlines: Deadlines) -> None:
    """A block that does not end by itself."""
    with deadlines.stay():
        await asyncio.Event().wait()


async def test_whoever_stays_too_long_gets_a_timeout_and_is_not_left_cancelled() -> None:
    """The task goes on as after ``asyncio.timeout``."""
    deadlines = Deadlines(SOON)

    async def late() -> int:
        with pytest.raises(TimeoutError):
            await stay_for_ever(deadlines)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert [0, 0, 0] == list(await asyncio.gather(late(), late(), late()))


async def test_whoever_leaves_in_time_hears_nothing() -> None:
    """The timer rings for those that are still there, and for nobody else."""
    deadlines = Deadlines(SOON)
    with deadlines.stay():
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await stay_for_ever(deadlines)  # the timer of the first block found it gone and was wound again


async def test_a_cancellation_from_elsewhere_stays_a_cancellation() -> None:
    """It comes before the time is up, or in the very same moment: both times it wins."""
    deadlines = Deadlines(SOON)
    early = asyncio.create_task(stay_for_ever(deadlines))
    await asyncio.sleep(0)
    early.cancel()
    with pytest.raises(asyncio.CancelledError):
        await early

    both = asyncio.create_task(stay_for_ever(deadlines))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(SOON, both.cancel)
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both


async def test_an_outer_timeout_that_is_shorter_is_the_one_that_tells() -> None:
    """``asyncio.timeout`` around an exchange ends as its own, once."""
    deadlines = Deadlines(60.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SOON):
            await stay_for_ever(deadlines)
    deadlines.close()


async def test_the_error_of_a_block_passes_unchanged() -> None:
    """Only our own cancellation becomes a timeout."""
    deadlines = Deadlines(60.0)
    with pytest.raises(KeyError), deadlines.stay():
        raise KeyError("mine")
    deadlines.close()


def test_the_clock_of_leases_goes_on_while_the_machine_sleeps() -> None:
    """Seen in a namespace whose machine has slept for ten hours: the usual clock does not tell."""
    code = (
        "import time; from payments_async._values.deadlines import steady_seconds as steady; "
        "print(steady() - time.monotonic())"
    )
    asleep = ["unshare", "--user", "--map-root-user", "--time", "--fork", "--boottime", "36000"]
    before = steady_seconds() - time.monotonic()
    try:
        done = subprocess.run([*asleep, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no namespaces of time here")
    if done.returncode:
        pytest.skip("no namespace of time can be made here")
    assert 36_000.0 == pytest.approx(float(done.stdout) - before, abs=60.0)
