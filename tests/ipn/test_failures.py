"""A handler that fails is seen at once: in the log, by a hook, and in the health, until it has succeeded."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable

import attrs
import pytest
from ipn.notifications import notification

from payments_async import FactsFormatter
from payments_async.ipn import HandlerFailure, HandlerPolicy, Receiver, TransactionEvent
from payments_async.journal import SqliteJournal

US = ["127.0.0.1"]
WALLETS: dict[str, str] = {}
SOON = HandlerPolicy(wait_initial=0.01, wait_max=0.01, poll=0.01)
LATER = HandlerPolicy(wait_initial=900.0)


@attrs.define
class Failures:
    """What a hook was told."""

    told: asyncio.Queue[HandlerFailure] = attrs.field(factory=asyncio.Queue)

    async def next(self) -> HandlerFailure:
        async with asyncio.timeout(60):
            return await self.told.get()


def failing(receiver: Receiver) -> Failures:
    """A receiver whose handler looks up what is not there."""
    failures = Failures()
    receiver.error(failures.told.put)

    @receiver.on(TransactionEvent, name="shop.paid")
    async def paid(event: TransactionEvent) -> None:
        secret_of_grace = "Grace Akello"
        assert secret_of_grace
        look_up(event)

    return failures


def look_up(event: TransactionEvent) -> str:
    """Fails, in a line of the application."""
    return WALLETS["+256772000017"]


async def test_the_hook_is_told_of_each_round(journal: SqliteJournal) -> None:
    """Which handler, where, of what, and the exception itself; the round counts as before."""
    failures = failing(receiver := Receiver(journal, US, policy=SOON))
    async with receiver:
        await receiver.take(notification(), "", {}, "127.0.0.1")
        first, second = await failures.next(), await failures.next()
    assert ("shop.paid", "t-1", KeyError) == (first.handler, first.fact.transaction_id, type(first.cause))
    assert (first.error, first.place) == (second.error, second.place)
    assert first.place.startswith("test_failures.py:")
    assert first.error.startswith(f"KeyError in {first.place}: ")


async def test_the_log_shows_a_masked_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Types, files, lines and functions, whole in our formatter; no text and no local variable."""
    failures = failing(receiver := Receiver(senders=US))
    async with receiver:
        assert 500 == (await receiver.take(notification(), "", {}, "127.0.0.1")).status
    (record,) = [record for record in caplog.records if record.getMessage().startswith("a handler failed")]
    assert f"KeyError in {(await failures.next()).place}" in record.getMessage()
    for formatter in (FactsFormatter(), FactsFormatter(as_json=True)):
        said = formatter.format(record)
        assert ("in look_up" in said, "in paid" in said) == (True, True)
        assert [] == [secret for secret in ("256772000017", "Akello") if secret in said]
    assert {"look_up", "traceback"} <= {*json.loads(said), "look_up"}
    assert FactsFormatter().format(record).count("\n") > 2


async def test_what_it_was_raised_from_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    """A database's error, wrapped by the application: both are named, and the application's line is the place."""
    receiver = Receiver(senders=US)

    @receiver.on(TransactionEvent)
    async def paid(event: TransactionEvent) -> None:
        try:
            json.loads("{")
        except ValueError as error:
            raise RuntimeError("the book of +256772000017 is damaged") from error

    async with receiver:
        await receiver.take(notification(), "", {}, "127.0.0.1")
    (record,) = [record for record in caplog.records if record.getMessage().startswith("a handler failed")]
    trace = str(vars(record)["traceback"])
    assert trace.index("JSONDecodeError") < trace.index("RuntimeError")
    assert "256772000017" not in trace


async def test_a_hook_that_fails_or_hangs_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is told of in the log; the service is answered as without it, and the other hooks are told."""
    failures = failing(receiver := Receiver(senders=US, policy=HandlerPolicy(timeout=0.2)))

    @receiver.error
    def wrong(failure: HandlerFailure) -> None:
        raise LookupError("no pager for +256772000017")

    @receiver.error
    async def hangs(failure: HandlerFailure) -> None:
        await asyncio.Event().wait()

    receiver.error(failures.told.put)
    async with receiver:
        assert 500 == (await receiver.take(notification(), "", {}, "127.0.0.1")).status
    assert (await failures.next()).handler == (await failures.next()).handler
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert ["LookupError", "TimeoutError"] == [line.split(": ")[1] for line in said]
    assert "256772000017" not in "".join(said)


async def cancels(failure: HandlerFailure) -> None:
    """Waits for something that was cancelled."""
    given_up = asyncio.get_running_loop().create_future()
    given_up.cancel()
    await given_up


def ends_the_program(failure: HandlerFailure) -> None:
    """Calls ``sys.exit``."""
    sys.exit("no pager")


@pytest.mark.parametrize("hook", [cancels, ends_the_program])
async def test_a_hook_that_is_cancelled_or_exits_changes_nothing(
    hook: Callable[[HandlerFailure], object], journal: SqliteJournal
) -> None:
    """The handler is run again, and the failure is on record meanwhile."""
    receiver = Receiver(journal, US, policy=SOON)
    receiver.error(hook)
    failures = failing(receiver)
    async with receiver:
        await receiver.take(notification(), "", {}, "127.0.0.1")
        assert (await failures.next()).handler == (await failures.next()).handler


async def test_an_exception_that_cannot_say_what_it_is(journal: SqliteJournal) -> None:
    """Is told by its type; the handler is run again as after any other."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise LookupError

    receiver, failures = Receiver(journal, US, policy=SOON), Failures()
    receiver.error(failures.told.put)

    @receiver.on(TransactionEvent)
    async def paid(event: TransactionEvent) -> None:
        raise Mute

    async with receiver:
        await receiver.take(notification(), "", {}, "127.0.0.1")
        await failures.next()
        again = await failures.next()
    assert again.error.startswith("Mute in test_failures.py:")
    assert "cannot be had (LookupError)" in again.traceback


async def test_health_shows_no_words_of_an_exception(journal: SqliteJournal) -> None:
    """Anybody may ask for it, and a library's words may name persons: type and place are told, words are logged."""
    receiver, failures = Receiver(journal, US, policy=LATER), Failures()
    receiver.error(failures.told.put)

    @receiver.on(TransactionEvent, name="shop.paid")
    async def paid(event: TransactionEvent) -> None:
        raise LookupError("no row: [parameters: {'name': 'Grace Akello'}]")

    async with receiver:
        await receiver.take(notification(), "", {}, "127.0.0.1")
        failure = await failures.next()
        async with asyncio.timeout(60):
            while not (told := await receiver.health()).failing:  # noqa: ASYNC110 - it is on its way
                await asyncio.sleep(0.01)
    assert told.problems[0].what.endswith(f" UTC (1 wait for it): shop.paid: LookupError in {failure.place}")
    assert "Grace Akello" in failure.error


async def test_health_says_since_when_and_where_before_it_gives_up(journal: SqliteJournal) -> None:
    """Any process reads it in the journal; once the handler succeeds it is over."""
    failures = failing(receiver := Receiver(journal, US, policy=LATER))
    async with receiver:
        await receiver.take(notification(), "", {}, "127.0.0.1")
        place = (await failures.next()).place
        async with asyncio.timeout(60):
            while (trouble := (await journal.backlog()).trouble) is None:  # noqa: ASYNC110 - it is on its way
                await asyncio.sleep(0.01)
        told = await receiver.health()
    assert trouble.startswith("handlers fail since 20")
    assert f" UTC (1 wait for it): shop.paid: KeyError in {place}" in trouble
    assert (True, 1, trouble) == (told.is_well, told.failing, told.problems[0].what)
    mended, heard = Receiver(journal, US), asyncio.Event()

    @mended.on(TransactionEvent, name="shop.paid")
    async def paid(event: TransactionEvent) -> None:
        heard.set()

    (number,) = [one.event_id async for one in journal.unmatched()]
    await journal.finish(number, "dead", error="given up")
    async with mended, asyncio.timeout(60):
        await mended.replay()
        await heard.wait()
    backlog = await journal.backlog()
    assert (0, 0, None) == (backlog.pending, backlog.failing, backlog.trouble)
