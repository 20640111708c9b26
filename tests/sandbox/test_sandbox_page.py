"""The sandbox's page for people, and what its buttons do: end, fail, put off, reverse, notify again, switch."""

import sys
from pathlib import Path
from typing import Any

import pytest
from browser import browsing, needs_browser
from sandbox.calls import Caller, Inbox, payout

from payments_async.sandbox import Fault, Sandbox, Status, SystemClock, _sandbox


async def transaction_id(caller: Caller, request_id: str = "r-1") -> str:
    """An order that is under way."""
    assert 200 == (await caller.pay(request_id))[0]
    return caller.sandbox.ledger[-1].transaction_id


async def do(caller: Caller, transaction: str, **body: Any) -> tuple[int, Any]:
    """What a button does."""
    return await caller.call("POST", f"/_sandbox/transactions/{transaction}", json=body)


async def page(caller: Caller, path: str = "") -> tuple[int, str]:
    """The page, and its status."""
    async with caller.send("GET", f"/_sandbox/{path}") as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize(("deed", "status"), [("settle", Status.SUCCESSFULL), ("fail", Status.FAILED)])
async def test_an_order_ends_when_it_is_told(caller: Caller, inbox: Inbox, deed: str, status: Status) -> None:
    """At once, once, and notified; the clock has not moved."""
    one = await transaction_id(caller)
    before = caller.sandbox.balance
    assert (200, {}) == await do(caller, one, do=deed)
    assert status is caller.sandbox.ledger[0].status
    assert (1500 if status is Status.SUCCESSFULL else 0) == before - caller.sandbox.balance
    await caller.sandbox.settle()
    assert 1 == len(caller.sandbox.deliveries)
    again, told = await do(caller, one, do=deed)
    assert (400, "this transaction is not under way") == (again, told["error"])


async def test_an_order_is_put_off(caller: Caller) -> None:
    """It ends that much later, and not when it would have."""
    one = await transaction_id(caller)
    await do(caller, one, do="delay", seconds=60)
    await caller.sandbox.advance(59)
    assert Status.PROCESSING is caller.sandbox.ledger[0].status
    await caller.sandbox.advance(1)
    assert Status.SUCCESSFULL is caller.sandbox.ledger[0].status


async def test_what_was_to_end_later_keeps_nobody_waiting(opened: Any) -> None:
    """Once it is ended by hand, nothing is due any more, on the computer's clock too."""
    caller = await opened(clock=SystemClock(), processing_delay=3600.0)
    await do(caller, await transaction_id(caller), do="settle")
    await caller.sandbox.settle()
    assert Status.SUCCESSFULL is caller.sandbox.ledger[0].status


async def test_a_transaction_is_reversed(caller: Caller) -> None:
    """Its money comes back; one that has not succeeded cannot be."""
    before = caller.sandbox.balance
    one = await transaction_id(caller)
    assert 400 == (await do(caller, one, do="reverse"))[0]
    await do(caller, one, do="settle")
    assert 200 == (await do(caller, one, do="reverse"))[0]
    assert (Status.REVERSED, before) == (caller.sandbox.ledger[0].status, caller.sandbox.balance)


async def test_a_notification_is_sent_again(caller: Caller) -> None:
    """With the same words and the next number; of a reversal there is one only where a quirk gives it a code."""
    one = await transaction_id(caller)
    await caller.sandbox.settle()
    await do(caller, one, do="repeat")
    await caller.sandbox.settle()
    first, second = caller.sandbox.deliveries
    assert (first.body, 1, 2) == (second.body, first.n, second.n)
    await do(caller, one, do="reverse")
    assert 400 == (await do(caller, one, do="repeat"))[0]
    await caller.call("POST", "/_sandbox/quirks", json={"ipn_reversal_code": 3})
    assert 200 == (await do(caller, one, do="repeat"))[0]


@pytest.mark.parametrize("body", [{}, {"do": "dance"}, {"do": "delay"}, {"do": "delay", "seconds": -1}])
async def test_what_is_no_deed(caller: Caller, body: dict[str, Any]) -> None:
    """It is 400, and nothing happens."""
    one = await transaction_id(caller)
    assert 400 == (await do(caller, one, **body))[0]
    assert Status.PROCESSING is caller.sandbox.ledger[0].status


async def test_a_quirk_is_switched_while_it_runs(caller: Caller) -> None:
    """It holds from then on, and is told."""
    assert 200 == (await caller.pay("r-1"))[0]
    changed = {"acceptance_http": 201, "newest_first": True, "success_word": "DONE", "total_error": None}
    assert (200, {}) == await caller.call("POST", "/_sandbox/quirks", json=changed)
    assert 201 == (await caller.pay("r-2"))[0]
    assert ["r-2", "r-1"] == await caller.listed()
    _, told = await caller.call("GET", "/_sandbox/quirks")
    assert changed == {name: told[name] for name in changed}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nonsense", 1),
        ("requests_path", True),
        ("read_code", True),
        ("newest_first", 1),
        ("acceptance_http", 500),
        ("max_page_size", 0),
        ("max_page_size", None),
        ("total_error", "none"),
        ("success_word", 7),
        ("bank_code_keys", ["x"]),
    ],
)
async def test_what_is_no_quirk(caller: Caller, name: str, value: object) -> None:
    """It is 400, and all of them stay."""
    before = caller.sandbox.quirks
    assert 400 == (await caller.call("POST", "/_sandbox/quirks", json={name: value}))[0]
    assert before == caller.sandbox.quirks


async def test_what_the_page_shows(caller: Caller) -> None:
    """Transactions with what can be done about them, notifications with their answers, what will strike."""
    await transaction_id(caller, "r-<b>1")
    await caller.sandbox.settle()
    await transaction_id(caller, "r-2")
    caller.sandbox.script(Fault.LOST_AFTER, times=2)
    caller.sandbox.chaos({Fault.FAILS: 0.25})
    status, words = await page(caller)
    assert 200 == status
    wanted = ("r-&lt;b&gt;1", "r-2", "Reverse", "Settle", "999,998,500 UGX", "lost_after 2 times", ">200<")
    assert [] == [one for one in wanted if one not in words]
    assert ("r-<b>" in words, '<option value="0.25" selected>' in words) == (False, True)


async def test_a_page_of_another_site_steers_nothing(caller: Caller) -> None:
    """What a browser sends for one is refused; programs, which name no origin, are not."""
    for origin, status in (("http://evil.example", 403), (caller.sandbox.base_url, 200)):
        assert (
            status == (await caller.call("POST", "/_sandbox/chaos", json={"rates": {}}, headers={"Origin": origin}))[0]
        )


async def test_there_is_no_jinja2(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says what is missing; everything else works."""
    _sandbox._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    status, words = await page(caller)
    assert (501, True) == (status, "pip install jinja2" in words)
    assert 200 == (await caller.call("GET", "/_sandbox/state"))[0]


async def test_a_load_test_has_a_page_too(opened: Any) -> None:
    """Of what there is; no notification is remembered."""
    caller = await opened(fast=True)
    await transaction_id(caller)
    assert (200, True) == ((found := await page(caller))[0], "With --fast none is remembered" in found[1])


@needs_browser
@pytest.mark.slow
async def test_somebody_presses_the_buttons(opened: Any, tmp_path: Path) -> None:
    """An order is ended by the keyboard, another one fails at the next press, a switch is turned: all of it happens."""
    caller = await opened(clock=SystemClock(), processing_delay=3600.0)
    sandbox: Sandbox = caller.sandbox
    one, two = await transaction_id(caller, "r-1"), await transaction_id(caller, "r-2")
    async with browsing(tmp_path) as tab:
        await tab.looks(width=1200)
        await tab.open(f"{sandbox.base_url}/_sandbox/")
        await tab.value(f"document.querySelector('[data-key=\"settle {one}\"]').focus()")
        await tab.press("Enter")
        await tab.until("document.body.innerText.includes('SUCCESSFULL')")
        await tab.value(f"document.querySelector('[data-key=\"fail {two}\"]').click()")
        await tab.until("document.body.innerText.includes('FAILED')")
        quirk = "document.getElementById('quirk-newest_first')"
        await tab.value(f"{quirk}.value = 'true'; {quirk}.dispatchEvent(new Event('change', {{bubbles: true}}))")
        await tab.until("document.querySelectorAll('.changed').length")
        fault = "document.getElementById('fault-fails')"
        await tab.value(f"{fault}.value = '1.0'; {fault}.dispatchEvent(new Event('change', {{bubbles: true}}))")
        await caller.pay("r-3")  # it shows by itself
        await tab.until("document.body.innerText.includes('r-3')")
        assert ([], True) == (tab.complaints, sandbox.quirks.newest_first)
    assert [Status.SUCCESSFULL, Status.FAILED] == [each.status for each in sandbox.ledger[:2]]
    assert payout("r-3")["requestId"] == sandbox.ledger[2].request_id


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
async def test_the_page_on_every_screen(caller: Caller, tmp_path: Path, width: int, dark: bool) -> None:
    """Nothing sticks out on a phone, and the policy refuses nothing of its own."""
    for number in range(3):
        await transaction_id(caller, f"r-{number}")
    await caller.sandbox.settle()
    await transaction_id(caller, "r-1")
    async with browsing(tmp_path) as tab:
        await tab.looks(width=width, dark=dark)
        await tab.open(f"{caller.sandbox.base_url}/_sandbox/")
        await tab.screenshot(tmp_path / "page.png")
        assert width >= await tab.value("document.documentElement.scrollWidth")
        assert [] == tab.complaints
