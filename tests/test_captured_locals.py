"""Every public function and method: what it fails with shows nobody's number and no secret in a frame of ours."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from outbox.banks import LIBRARIES, bank
from session.captured import captured
from session.wires import EMAIL, NAME, PHONE, SECRET, Request, Wire, credentials, payout, reply

from payments_async import BankAccount, Beneficiary, PaymentsError, PaymentsSession, PayoutOrder, RetryPolicy
from payments_async._values.public import without_locals
from payments_async.bulk import run_batch
from payments_async.journal import JournalUnavailable, OrdersDiffer, PostgresJournal, SqliteJournal
from payments_async.outbox import Outbox
from payments_async.sandbox import Sandbox

MODULES = ("", ".journal", ".journal.contract", ".outbox", ".bulk", ".ipn", ".otel", ".fleet", ".testing")
PLANTED = "planted-walrus-7731"


class Breaks:
    """Whatever is asked of it fails, as a journal, a connection or a wire may."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise LookupError("broken")

    def __iter__(self) -> Iterator[str]:
        raise LookupError("broken")

    def __aiter__(self) -> Any:
        raise LookupError("broken")

    def __bool__(self) -> bool:
        raise LookupError("broken")


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each public function, and each public method of a public class, as it is called without an object of it."""
    for module in MODULES:
        place = importlib.import_module(f"payments_async{module}")
        for name in place.__all__:
            thing = getattr(place, name)
            if inspect.isfunction(thing):
                yield f"{module}.{name}", thing
            if not inspect.isclass(thing) or issubclass(thing, BaseException | Enum) or "_is_protocol" in vars(thing):
                continue
            for member, method in inspect.getmembers(thing, inspect.isfunction):
                is_ours = getattr(method, "__module__", "").startswith("payments_async")
                if is_ours and (not member.startswith("_") or member in ("__init__", "__aenter__")):
                    yield f"{module}.{name}.{member}", method


async def failure(call: Callable[..., Any], arguments: dict[str, Any]) -> BaseException | None:
    """What a call fails with, if it does."""
    try:
        given = call(**arguments)
        if inspect.isasyncgen(given):
            async for _ in given:
                pass
        elif inspect.isawaitable(given):
            await given
    except Exception as error:  # noqa: BLE001 - that is what is looked at
        return error
    return None


def arguments_of(call: Callable[..., Any]) -> dict[str, Any]:
    """Secrets and persons wherever text may be, and what breaks wherever it may not."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if name == "self" or parameter.default is parameter.empty or "str" in str(parameter.annotation):
            found[name] = PLANTED if "str" in str(parameter.annotation) else Breaks()
    return {name: value for name, value in found.items() if may_be_named(call, name)}


def may_be_named(call: Callable[..., Any], name: str) -> bool:
    """Whether a parameter can be given by its name."""
    return inspect.signature(call).parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY


ALL = dict(public())


async def test_a_public_function_that_fails() -> None:
    """Its arguments, and what it made of them, are in no frame of this package, nor of what that calls."""
    failed, shown = 0, {}
    for name, call in sorted(ALL.items()):
        if (error := await failure(call, arguments_of(call))) is not None:
            failed += 1
            shown[name] = [
                line for line in captured(error).splitlines() if PLANTED in line and PLANTED not in str(error)
            ]
    assert {} == {name: lines for name, lines in shown.items() if lines}
    assert failed > len(ALL) / 2


def test_all_of_them_hide_their_locals() -> None:
    """One that was forgotten would be no failure above, where it does not fail."""
    plain = [name for name, call in ALL.items() if not hasattr(call, "_hides_locals")]
    assert [] == [name for name in plain if not inspect.isgeneratorfunction(ALL[name])]


def test_an_order_that_cannot_be() -> None:
    """The check that refuses one field holds it in its hand, and the order the others."""
    with pytest.raises(ValueError, match="amount") as caught:
        PayoutOrder(
            request_id="r-1",
            amount=-1,
            product_item_id="item",
            beneficiary=Beneficiary(name=PLANTED),
            destination=BankAccount(PLANTED, "bank"),
        )
    assert PLANTED not in captured(caught.value)


def test_what_stays_of_a_frame() -> None:
    """File, function and line, and all of a frame of the application's own."""

    def application() -> None:
        held = PLANTED
        raise LookupError(len(held))

    try:
        application()
    except LookupError as error:
        before = error.__traceback__
        trace = without_locals(error).__traceback__
    assert before is not None
    assert trace is not None
    assert trace.tb_next is not None
    assert PLANTED == trace.tb_next.tb_frame.f_locals["held"]


PIN, CARD = "90214477", "5123********7788"
CALLS: dict[str, Callable[[PaymentsSession], Awaitable[Any]]] = {
    "reset pin": lambda payments: payments.cards.reset_pin(CARD, PIN),
    "enable card": lambda payments: payments.cards.enable(CARD),
    "get card": lambda payments: payments.cards.get("card-1", CARD),
    "validate": lambda payments: payments.products.validate("item", PHONE, 500),
    "send": lambda payments: payments.payouts.send(payout()),
}


@pytest.mark.parametrize("answer", [None, reply({"code": 7, "message": "no"}, 400), b"\x00\x01 no HTTP\r\n\r\n"])
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_fails(name: str, answer: bytes | None) -> None:
    """A PIN, the number of a card and that of a telephone."""

    async def answering(_: Request) -> bytes | None:
        return answer

    async with (
        Wire(answering) as wire,
        PaymentsSession(wire.base_url, SECRET, retry=RetryPolicy(attempts=1)) as payments,
    ):
        with pytest.raises(PaymentsError) as caught:
            await CALLS[name](payments)
    text = captured(caught.value)
    assert [] == [hidden for hidden in (PIN, CARD, PHONE, NAME) if hidden in text]


@pytest.mark.parametrize("more", ["", "?scram_client_key=%s", "?dbname=postgresql://u:%s@h/d", "?port=5433x%s"])
async def test_a_database_that_cannot_be_reached(more: str) -> None:
    """Its password, wherever that stands in a DSN, and in the words of the error."""
    dsn = f"postgresql://user:{PLANTED}@127.0.0.1:1/name{more.replace('%s', PLANTED)}"
    with pytest.raises((JournalUnavailable, ValueError)) as caught:
        async with PostgresJournal(dsn):
            raise AssertionError("nothing listens there")
    assert PLANTED not in captured(caught.value)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_an_order_within_a_transaction_that_has_failed(library: str) -> None:
    """The library holds the order, word for word, in frames of its own."""
    order = payout("r-1")
    with bank(library) as shop:
        async with (
            Sandbox() as sandbox,
            PostgresJournal(shop.dsn, schema=shop.journal) as journal,
            PaymentsSession(sandbox.base_url, credentials(sandbox)) as payments,
            Outbox(payments, journal) as outbox,
        ):

            async def within() -> None:
                async with shop.begin() as connection:
                    with suppress(Exception):
                        await shop.run(connection, "SELECT 1/0")
                    await outbox.put(order, connection=connection)

            text = captured(await failure(within, {}) or AssertionError(f"it should have failed: {order}"))
    assert [] == [hidden for hidden in (NAME, PHONE, EMAIL) if hidden in text]


@pytest.mark.parametrize("how", ["run_batch", "put_batch"])
async def test_a_batch_with_an_order_that_differs(how: str, tmp_path: Path, service: Sandbox) -> None:
    """Neither the one that the journal holds nor the other."""
    first, other = payout("r-1"), payout("r-1", amount=Decimal(7))
    async with (
        SqliteJournal(tmp_path / "journal.db") as journal,
        PaymentsSession(service.base_url, credentials(service)) as payments,
        Outbox(payments, journal) as outbox,
    ):
        put = outbox.put_batch if how == "put_batch" else partial(run_batch, payments, journal)
        await put("batch", [first])
        with pytest.raises(OrdersDiffer) as caught:
            await put("batch", [other])
    text = captured(caught.value)
    assert [] == [hidden for hidden in (NAME, PHONE, EMAIL) if hidden in text]
