"""No secret and no person in any log, text, repr or traceback, whatever goes wrong and however loud the logs are."""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from session.conftest import Open
from session.wires import (
    ACCOUNT,
    CARD,
    EMAIL,
    NAME,
    PHONE,
    SECRET,
    Request,
    Wire,
    accepted,
    collection,
    payout,
    raw_reply,
    reply,
    until,
)

from payments_async import BankAccount, Limits, PaymentsError, PaymentsSession, RetryPolicy
from payments_async._session.auth import Token
from payments_async._session.session import executor_of
from payments_async._session.transport import TransportFailure
from payments_async._values.masking import Secret
from payments_async._wire.call import Reply
from payments_async._wire.endpoints import send_order
from payments_async._wire.replies import Login

PIN = "739164"
PROXY_PASSWORD = "proxy-osprey-password"
TOKEN = "token-gannet-5577"
REFRESH = "refresh-dunlin-8899"
HIDDEN = (
    SECRET.app_password, SECRET.app_key, SECRET.user_id, TOKEN, REFRESH, PROXY_PASSWORD, PIN, NAME, "Akello", EMAIL,
    PHONE, PHONE[1:], "0772000017", ACCOUNT,
)  # fmt: skip
GOSSIP = (
    f"{NAME} ({NAME.upper()}, {EMAIL}, {PHONE}, {PHONE[1:]}, 0772000017, 0772 000 017, {ACCOUNT}) with PIN {PIN}; "
    f"{SECRET.app_key} {SECRET.app_password} {SECRET.user_id} {TOKEN} {REFRESH}"
)
BANK: dict[str, Any] = {
    "destination": BankAccount(ACCOUNT, "BANKUG"),
    "product_item_id": "BANKTRANSFERUG_BANKTRANSFERUG",
}
CALLS: dict[str, Callable[[PaymentsSession], Awaitable[Any]]] = {
    "payout": lambda payments: payments.payouts.send(payout()),
    "bank": lambda payments: payments.payouts.send(payout(**BANK)),
    "collection": lambda payments: payments.collections.request(collection()),
    "pin": lambda payments: payments.cards.reset_pin(CARD, PIN),
    "validation": lambda payments: payments.products.validate("ITEM_ITEM", PHONE, 1500),
    "read": lambda payments: payments.accounts.get(),
}


def told(call: str) -> str:
    """What a service that has seen this call could blurt out."""
    match call:
        case "payout":
            return f"{NAME}, {NAME.upper()}, {EMAIL}, {PHONE}, {PHONE[1:]}, 0772000017, 0772 000 017"
        case "bank":
            return f"{NAME}, {EMAIL}, {PHONE}, {ACCOUNT}"
        case "collection":
            return f"{NAME}, {PHONE}, {PHONE[1:]}"
        case "pin":
            return f"the PIN {PIN} is too simple"
        case "validation":
            return f"{PHONE} is no customer"
        case _:
            return "no"


ANSWERS: dict[str, Callable[[str], bytes | None]] = {
    "cut": lambda _: None,
    "refused": lambda words: reply({"code": 7, "message": words}, 400),
    "refused at length": lambda words: reply({"code": 7, "message": "x" * 480 + words * 20}, 400),
    "refused with 200": lambda words: reply({"code": 7, "message": words}),
    "fault": lambda words: reply({"code": 7, "message": words}, 500),
    "busy": lambda words: reply({"code": 7, "message": words}, 429),
    "token refused": lambda words: reply({"code": 7, "message": words}, 401),
    "redirect": lambda words: reply({}, 302, Location=f"/{words}"),
    "page": lambda words: raw_reply(f"<html>{words}</html>".encode(), 200, {"Content-Type": "text/html"}),
    "no JSON": lambda words: raw_reply(b'{"message": "' + words.encode()),
    "no code": lambda words: reply({"code": words, "data": {"transactionId": "t"}}),
    "a list": lambda words: reply([words]),
    "half": lambda words: reply({"message": words})[:-4],
    "no HTTP": lambda words: b"HTTP/1.1 " + words.encode() + b"\r\n\r\n",
    "bad header": lambda words: b"HTTP/1.1 200 OK\r\n" + words.encode() + b"\x00\r\n\r\n",
    "bad chunk": lambda words: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + words.encode() + b"\r\n",
    "badly packed": lambda words: raw_reply(words.encode(), 200, {"Content-Encoding": "gzip"}),
    "too large": lambda words: reply({"code": 0, "message": words * 2000}),
}


CHANCE = {"created", "msecs", "relativeCreated", "thread", "process"}  # digits that may be those of a secret


class Overheard(logging.Handler):
    """Everything that any logger says, with its extra fields."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.words: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        facts = {name: value for name, value in vars(record).items() if name not in CHANCE}
        self.words += [self.format(record), repr(facts)]


@pytest.fixture
def overheard() -> Iterator[Overheard]:
    """Every logger at its loudest, aiohttp's and asyncio's too."""
    overheard, root = Overheard(), logging.getLogger()
    level = root.level
    loud = [logging.getLogger(name) for name in (*logging.root.manager.loggerDict, "aiohttp.client", "asyncio")]
    before = [logger.level for logger in loud]
    for logger in loud:
        logger.setLevel(logging.DEBUG)
    root.setLevel(logging.DEBUG)
    root.addHandler(overheard)
    yield overheard
    root.removeHandler(overheard)
    root.setLevel(level)
    for logger, old in zip(loud, before, strict=True):
        logger.setLevel(old)


@pytest.fixture
async def telling(wire: Wire, overheard: Overheard) -> Wire:
    """A wire with tokens that are easy to recognise, in a loop that tells all it can."""
    asyncio.get_running_loop().set_debug(True)

    async def login(_: Request) -> bytes:
        return reply({"Token": TOKEN, "refreshToken": REFRESH, "success": True})

    wire.login = login
    return wire


def shown(error: BaseException) -> str:
    """All that a careless logger could show of an error, its whole chain and its attributes."""
    pieces = ["".join(traceback.format_exception(error))]
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        pieces += [str(link), repr(link), repr(link.args), repr(getattr(link, "__notes__", ""))]
        if isinstance(link, PaymentsError | TransportFailure):
            pieces.append(repr(vars(link)))
        chain += [link.__cause__, link.__context__]
    return "\n".join(pieces)


def leaks(text: str) -> set[str]:
    """What must not be seen, and is."""
    return {hidden for hidden in HIDDEN if hidden.lower() in text.lower()}


async def failure(call: Awaitable[Any]) -> PaymentsError | None:
    """What a call raises."""
    try:
        await call
    except PaymentsError as error:
        return error
    return None


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_failed_call(opened: Open, telling: Wire, overheard: Overheard, call: str, answer: str) -> None:
    """Nothing is seen of credentials or persons, although the service blurts them out."""

    async def blurt(request: Request) -> bytes | None:
        reply_ = ANSWERS[answer](told(call))
        if reply_ is not None:
            request.writer.write(reply_)
            await request.writer.drain()
            request.writer.close()
        return None if reply_ is None else b""

    telling.answer = blurt
    payments = await opened(telling, limits=Limits(reply_bytes=20_000))
    error = await failure(CALLS[call](payments))
    if error is None:
        assert call in ("validation", "pin", "read"), "a no is an answer"
    else:
        assert set() == leaks(shown(error))
        assert answer != "refused" or call == "read" or "***" in str(error)
    assert set() == leaks("\n".join(overheard.words))


@pytest.mark.parametrize("answer", [name for name in ANSWERS if name != "cut"])
@pytest.mark.parametrize("status", [200, 400, 401, 403, 500])
async def test_a_failed_login(opened: Open, telling: Wire, overheard: Overheard, answer: str, status: int) -> None:
    """The service repeats our credentials; nobody else does."""
    secrets = f"{SECRET.app_key} {SECRET.app_password} {SECRET.user_id}"

    async def blurt(request: Request) -> bytes | None:
        words = ANSWERS[answer](secrets) or b""
        if answer.startswith("refused"):
            words = reply({"success": False, "message": secrets, "code": 3}, status)
        request.writer.write(words)
        await request.writer.drain()
        request.writer.close()
        return b""

    telling.login = blurt
    payments = await opened(telling, limits=Limits(reply_bytes=20_000))
    for call in (payments.payouts.send(payout()), payments.accounts.get(), payments.log_in()):
        with pytest.raises(PaymentsError) as caught:
            await call
        assert set() == leaks(shown(caught.value))
    assert set() == leaks("\n".join(overheard.words))


async def test_a_connection_that_fails(opened: Open, telling: Wire, overheard: Overheard) -> None:
    """Before and after the login."""
    payments = await opened(telling, timeout=aiohttp.ClientTimeout(total=60))
    await payments.log_in()
    await telling.stop()
    for call in CALLS.values():
        with pytest.raises(PaymentsError) as caught:
            await call(payments)
        assert set() == leaks(shown(caught.value))
    assert set() == leaks("\n".join(overheard.words))


async def test_a_proxy_with_a_password(opened: Open, telling: Wire, overheard: Overheard) -> None:
    """Whether it is there or not; through a tunnel or without."""
    proxy = f"http://user:{PROXY_PASSWORD}@127.0.0.1:{telling.port}"

    async def refuse(_: Request) -> bytes | None:
        return raw_reply(b"", 407)

    telling.answer = refuse
    plain = await opened("http://127.0.0.1:9", proxy=proxy)
    tunnel = await opened("https://payments.test", proxy=proxy)
    for _ in range(2):
        for payments in (plain, tunnel):
            with pytest.raises(PaymentsError) as caught:
                await payments.payouts.send(payout())
            assert set() == leaks(shown(caught.value) + repr(payments))
        await telling.stop()
    assert set() == leaks("\n".join(overheard.words))


async def test_a_timeout_and_a_cancellation(opened: Open, telling: Wire, overheard: Overheard) -> None:
    """The note on a cancellation names the order by its request id alone."""

    async def never(_: Request) -> bytes | None:
        await asyncio.Event().wait()
        return None

    telling.answer = never
    hurried, payments = await opened(telling, timeout=aiohttp.ClientTimeout(total=0.3)), await opened(telling)
    with pytest.raises(PaymentsError) as caught:
        await hurried.payouts.send(payout())
    assert set() == leaks(shown(caught.value))
    begun = len(telling.orders)
    call = asyncio.ensure_future(payments.payouts.send(payout("r-2")))
    await until(lambda: len(telling.orders) > begun)
    call.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await call
    assert "r-2" in shown(cancelled.value)
    assert set() == leaks(shown(cancelled.value) + "\n".join(overheard.words))


async def test_a_middleware_that_blurts(
    opened: Open, telling: Wire, overheard: Overheard, stack: AsyncExitStack
) -> None:
    """Its words stay out, and so does the request it holds in its hand."""
    if "middlewares" not in aiohttp.ClientSession.__init__.__code__.co_varnames:
        pytest.skip("this aiohttp knows no client middlewares")

    async def blurt(request: Any, handler: Any) -> Any:
        if "payouts" in str(request.url):
            raise RuntimeError(GOSSIP + repr(request.headers))
        return await handler(request)

    http = await stack.enter_async_context(aiohttp.ClientSession(middlewares=(blurt,)))
    payments = await opened(telling, http=http)
    with pytest.raises(PaymentsError) as caught:
        await payments.payouts.send(payout())
    assert set() == leaks(shown(caught.value) + "\n".join(overheard.words))


async def test_a_call_that_goes_well(opened: Open, telling: Wire, overheard: Overheard) -> None:
    """Neither logs nor the values that come and go show anything."""

    async def good(_: Request) -> bytes | None:
        return accepted()

    telling.answer = good
    payments = await opened(telling, retry=RetryPolicy(attempts=1))
    order = payout(**BANK, message=f"for {NAME}", metadata=PHONE, account_number=ACCOUNT)
    values = [
        order,
        await payments.payouts.send(order),
        payments,
        executor_of(payments).credentials,
        executor_of(payments),
        collection(),
    ]
    values += [Login(Secret(TOKEN), Secret(REFRESH)), Reply(200, GOSSIP.encode()), send_order(order, payments.dialect)]
    token = Token(authorization=Secret(f"Token {TOKEN}"), generation=1, renew_at=1, expires_at=2)
    assert set() == leaks(repr([*values, token]) + "\n".join(overheard.words))


@pytest.mark.parametrize(
    "make",
    [
        lambda: payout(beneficiary=None),
        lambda: payout(destination=BankAccount(ACCOUNT, "")),
        lambda: payout(amount=1500.5),
        lambda: payout(amount=f"{PHONE},50"),
        lambda: payout(currency=NAME),
        lambda: payout(request_id=f"\n{NAME}"),
        lambda: payout(account_number=f" {ACCOUNT} "),
        lambda: payout(destination=PHONE),
    ],
)
def test_a_wrong_order(make: Callable[[], object]) -> None:
    """The message names the field, not what it holds."""
    with pytest.raises((ValueError, TypeError)) as caught:
        make()
    assert set() == leaks(shown(caught.value))
