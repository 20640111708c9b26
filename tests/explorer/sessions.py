"""A small world of one session: callers of one order, what becomes of each request, and what is found out elsewhere.

In place of the HTTP client stands a wire that writes a request's body as that client does, and answers as it is told.
Each history is run from its beginning, on a loop of its own; those that lead to the same books go on once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import attrs
from explorer.desks import Report
from journal.factories import order, transaction_id
from multidict import CIMultiDict

from payments_async import Credentials, Dialect, PaymentsSession
from payments_async._session.session import executor_of
from payments_async._values.errors import InvalidOrder, NotSent, PaymentsError, Rejected
from payments_async._values.testing import Testing
from payments_async._wire.endpoints import send_order
from payments_async._wire.models import Acceptance, Transaction, TransactionStatus

ONE, OTHER = order(1), attrs.evolve(order(1), amount=order(1).amount + 1)
OURS = transaction_id(1)
_DEPTH, _TURNS = 4, 30  # steps of a history; turns of the loop after which all waits
_ACCEPTED = {
    "code": 0, "status": "success",
    "data": {"requestId": ONE.request_id, "batchId": "b", "transactionId": OURS, "status": "PROCESSING",
             "message": "queued", "createdOn": "2026-11-01T10:00:00"},
}  # fmt: skip
_REFUSED, _NAMED = {"code": 17, "message": "No"}, {"message": "No", "data": {"transactionId": OURS}}
# What becomes of a request whose body has left: the answer, and whether the service may have acted on it.
ANSWERS: dict[str, tuple[int, dict[str, Any], bool]] = {
    "is accepted": (200, _ACCEPTED, True), "is refused": (400, _REFUSED, False),
    "is refused at the door": (401, _REFUSED, False), "is turned away": (429, _REFUSED, False),
    "is refused at the door, and has a transaction": (401, _NAMED, True),
    "is turned away, and has a transaction": (429, _NAMED, True),
    "is answered by a failure": (500, {}, True), "is redirected": (307, {}, True),
}  # fmt: skip
HANGS_UP, CLOCK_FAILS = "is lost as its caller hangs up", "is lost, and the clock fails"
BREAKS = {
    "is lost": ConnectionResetError, "is lost in the client": ValueError, CLOCK_FAILS: ConnectionResetError,
    HANGS_UP: asyncio.CancelledError,
}  # fmt: skip
# ... and before the body leaves, or instead.
EARLY = (
    "never connects",
    "finds an answer of before",
    "is answered before it is asked for",
    "is sent by the client twice",
)
_SHORT = "is accepted", "is lost", "never connects"  # after the first exchange


@attrs.define(eq=False)
class Exchange:
    """One request, as the service sees it.

    Attributes:
        caller: Number of the one who made it.
        is_needless: The service was known to have the order when it was made.
        left: How often its body has left.
        may_be_done: The service may have acted on it.
        fate: What is to become of it; set by ``decided``.
    """

    caller: int
    decided: asyncio.Future[str]
    is_needless: bool
    left: int = 0
    may_be_done: bool = False
    is_over: bool = False
    fate: str = ""


class _Answer:
    """As the HTTP client gives one."""

    def __init__(self, status: int, body: Any, *, expects: bool = False) -> None:
        self.version: str | None = "1.1"
        self.status, self._body = status, json.dumps(body).encode()
        self.headers = CIMultiDict({"Content-Type": "application/json"})
        self.content_length = len(self._body)
        self.request_info = SimpleNamespace(headers={"Expect": "100-continue"} if expects else {})

    async def read(self) -> bytes:
        return self._body

    def close(self) -> None:
        """Nothing is held."""


class _Writer:
    """Where a body is written to; notes that it leaves."""

    def __init__(self, leaves: Callable[[], None], *, has_answer: bool) -> None:
        self.transport = SimpleNamespace(is_closing=lambda: False)
        self._protocol = SimpleNamespace(_buffer=[b"an answer"] if has_answer else [])
        self._leaves = leaves

    async def write(self, _: bytes) -> None:
        self._leaves()


@attrs.define(eq=False)
class World:
    """A session and its callers; ``wrong`` is what went wrong first."""

    exchanges: list[Exchange] = attrs.field(factory=list)
    callers: list[tuple[str, asyncio.Task[Any]]] = attrs.field(factory=list)
    evidence: str = ""  # what was found out elsewhere last, of what had ended
    wrong: str = ""
    closed: bool = False
    seconds: float = 1000.0  # by the session's clock
    clock_fails: bool = False
    session: PaymentsSession = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        who = Credentials(app_key="key", app_password="word", user_id="user")

        async def sleep(seconds: float) -> None:
            self.seconds += seconds

        def clock() -> float:
            if self.clock_fails:
                raise OSError("a clock that was passed in")
            return self.seconds

        # an order's body waits until it is asked for, which shows what was answered before
        testing = Testing(clock=clock, sleep=sleep)
        self.session = PaymentsSession(
            "http://127.0.0.1:9", who, dialect=Dialect(expect_continue=True), testing=testing
        )
        vars(executor_of(self.session).transport)["_http"] = self

    # in place of the HTTP client

    async def request(self, _method: str, url: Any, *, data: Any, allow_redirects: bool, **_: Any) -> _Answer:
        """Make a request; its fate is decided from outside."""
        if "ogin" in str(url):
            await data.write_with_length(_Writer(lambda: None, has_answer=False), None)
            answer = _Answer(200, {"Token": "token", "success": True})
            answer.version = None  # whether a login had left is asked by no rule
            return answer
        caller = asyncio.current_task()
        assert caller is not None
        exchange = Exchange(int(caller.get_name()), asyncio.get_running_loop().create_future(), self.is_known)
        self.exchanges.append(exchange)
        try:
            return await self._made(exchange, data, follows=allow_redirects)
        finally:
            exchange.is_over = True

    async def _made(self, exchange: Exchange, data: Any, *, follows: bool) -> _Answer:
        fate = exchange.fate = await exchange.decided
        if fate == "never connects":
            raise ConnectionRefusedError
        if fate == "is answered before it is asked for":
            return _Answer(403, _REFUSED, expects=True)  # by a proxy, which has kept the request
        await self._write(exchange, data, has_answer=fate == "finds an answer of before")
        if fate == "is sent by the client twice":
            await self._write(exchange, data)
        if follows and fate == "is redirected":
            return _Answer(404, _REFUSED)  # a page that has nothing to do with it
        self.clock_fails = fate == CLOCK_FAILS
        if fate == HANGS_UP:
            self.callers[exchange.caller][1].cancel()
            await asyncio.get_running_loop().create_future()
        if fate in BREAKS:
            raise BREAKS[fate]
        status, body, exchange.may_be_done = ANSWERS.get(fate, ANSWERS["is accepted"])
        return _Answer(status, body)

    async def _write(self, exchange: Exchange, data: Any, *, has_answer: bool = False) -> None:
        def leaves() -> None:
            exchange.left += 1
            exchange.may_be_done = True
            if has_answer:
                self.wrong = self.wrong or "a request leaves where an answer of before is to be read"
            if exchange.left > 1:
                self.wrong = self.wrong or "the body of one request leaves twice"
            self._check_leaving(exchange)

        await data.write_with_length(_Writer(leaves, has_answer=has_answer), None)

    def _check_leaving(self, exchange: Exchange) -> None:
        kind = self.callers[exchange.caller][0]
        earlier = [one for one in self.exchanges if one is not exchange and one.may_be_done]
        if kind == "forbidden":
            self.wrong = self.wrong or "a request leaves that may not leave any more"
        if exchange.is_needless or any(not one.is_over for one in earlier):
            self.wrong = self.wrong or "the order is sent again, and is under way or known to have been taken"
        if kind != "again" and earlier and self.evidence != "it never arrived":
            self.wrong = self.wrong or "the order is sent again, and may have been carried out"

    @property
    def is_known(self) -> bool:
        """The service is known to have the order."""
        return self.evidence == "it was taken" or any(map(_is_taken, self.exchanges))

    # what may happen next

    @property
    def pending(self) -> Exchange | None:
        """The first request whose fate is open."""
        return next((one for one in self.exchanges if not one.is_over and not one.decided.done()), None)

    def steps(self) -> Iterator[str]:
        """By their names."""
        if (one := self.pending) is not None:
            yield from (*ANSWERS, *BREAKS, *EARLY) if one is self.exchanges[0] else _SHORT
            yield "its caller hangs up"
        if len(self.callers) < 3:
            yield from ("once more", "again", "another" if self.callers else "forbidden")
        if self.callers:
            yield from ("it never arrived", "another amount was found")
            if "another" not in {self.callers[one.caller][0] for one in self.exchanges}:
                yield "it was taken"

    def take(self, step: str) -> None:
        """Let it happen."""
        one, executor, self.clock_fails = self.pending, executor_of(self.session), False
        match step:
            case "once more" | "again" | "another" | "forbidden":
                call = send_order(OTHER if step == "another" else ONE, executor.dialect, sent_before=step == "again")
                made = executor.execute(call, may_leave=(lambda: False) if step == "forbidden" else None)
                task = asyncio.get_running_loop().create_task(made, name=str(len(self.callers)))
                self.callers.append((step, task))
            case "its caller hangs up" if one is not None:
                one.fate = step
                self.callers[one.caller][1].cancel()
            case "it was taken" | "another amount was found":
                amount = ONE.amount if step == "it was taken" else Decimal(77)
                found = Transaction(
                    transaction_id=OURS, request_id=ONE.request_id, amount=amount, status=TransactionStatus.PROCESSING
                )
                executor.note_evidence(ONE.request_id, found)
                self.evidence = step if step == "it was taken" else self.evidence
            case "it never arrived":
                executor.note_evidence(ONE.request_id)
                for ended in self.exchanges:
                    if ended.is_over and not _is_taken(ended):
                        ended.may_be_done = False
            case _ if one is not None:
                one.decided.set_result(step)

    def key(self) -> Any:
        """What the next steps depend on."""
        books = executor_of(self.session).books
        opened = [(type(one).__name__, getattr(one, "amount", None)) for one in books._open.values()]
        known = [(one.acceptance.transaction_id, type(one.print_).__name__) for one in books._accepted.values()]
        made = [(one.caller, one.left, one.may_be_done, one.is_over) for one in self.exchanges]
        ended = [(kind, task.done() and _word(task)) for kind, task in self.callers]
        return str((opened, known, made, ended, self.is_known, self.evidence))

    # rules

    def check(self) -> str:
        """What is wrong by now."""
        if self.wrong:
            return self.wrong
        for number, (kind, task) in enumerate(self.callers):
            if task.done() and (found := self._of_result(number, kind, task)):
                return found
        is_open = any(one.may_be_done for one in self.exchanges) and not self.is_known
        if is_open and ONE.request_id not in self.session.unsettled:
            return "the order may have been carried out, and the session counts it as settled"
        return ""

    def _of_result(self, number: int, kind: str, task: asyncio.Task[Any]) -> str:
        if task in self._judged:
            return ""
        self._judged.add(task)
        if task.cancelled():
            return ""
        error = task.exception()
        own = [one for one in self.exchanges if one.caller == number]
        others = [] if kind == "again" else [one for one in self.exchanges if one.is_over]
        if isinstance(error, NotSent | Rejected) and not isinstance(error, InvalidOrder):
            if any(one.may_be_done for one in (*own, *others)):
                return f"{type(error).__name__}, and the order may have been carried out"
            if isinstance(error, Rejected) and own and not own[-1].left:
                return "an order counts as refused that the service has not asked for"
            if kind == "again" and isinstance(error, Rejected) and own and error.status not in (401, 403):
                return "an order that was sent before counts as refused"
        elif error is not None and not isinstance(error, PaymentsError):
            return f"a caller is told {error!r}"
        elif isinstance(error, InvalidOrder) and own:
            return "an order is invalid, and was sent"
        elif error is None:
            was_taken = self.is_known or self.evidence
            if not isinstance(task.result(), Acceptance) or not was_taken:
                return "a caller is told that the order was accepted, and nothing shows so"
            taken = {self.callers[one.caller][0] for one in self.exchanges if _is_taken(one)}
            if kind == "another" and "another" not in taken:
                return "another order under the same id is told to have been accepted"
        return ""

    _judged: set[asyncio.Task[Any]] = attrs.field(factory=set)


def _is_taken(one: Exchange) -> bool:
    return one.fate == "is accepted" and one.is_over and bool(one.left)


def _word(task: asyncio.Task[Any]) -> str:
    return "cancelled" if task.cancelled() else type(task.exception() or task.result()).__name__


async def _run(history: tuple[str, ...]) -> tuple[World, str]:
    """A history from its beginning; what is wrong at its end."""
    world = World()
    await world.session.__aenter__()
    wrong = ""
    for step in history:
        world.take(step)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        wrong = wrong or world.check()
    return world, wrong


async def _end(world: World) -> None:
    """Nothing of it goes on."""
    tasks = [task for _, task in world.callers]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def search() -> Report:
    """See all histories of a few steps."""
    began, loop = time.perf_counter(), asyncio.new_event_loop()
    known, line, done = set[str](), [tuple[str, ...]()], set[str]()

    def told(wrong: str = "", history: tuple[str, ...] = ()) -> Report:
        seconds = time.perf_counter() - began
        return Report(
            name="a session", states=len(known), seconds=seconds, done=frozenset(done), wrong=wrong, history=history
        )

    try:
        for history in line:
            world, wrong = loop.run_until_complete(_run(history))
            key, further = world.key(), tuple(world.steps())
            loop.run_until_complete(_end(world))
            if wrong:
                return told(wrong, history)
            done.update(history)
            if key in known:
                continue
            known.add(key)
            if len(history) < _DEPTH:
                line += [(*history, step) for step in further]
    finally:
        loop.close()
    return told()
