"""Characters that steer a terminal, end a line or turn the writing: none reaches a log, an error or a repr as it is."""

import logging
from typing import Any

import pytest
from session.wires import Request, Wire, collection, payout, reply

from payments_async import (
    BankAccount,
    Beneficiary,
    OutcomeUnknown,
    PaymentsError,
    PaymentsSession,
    Rejected,
    TransactionStatus,
    UtilityAccount,
)
from payments_async._values.masking import escape, has_controls, redact

CONTROLS = {
    "escape": "\x1b[2J",
    "newline": "\n",
    "return": "\r",
    "null": "\0",
    "delete": "\x7f",
    "next line": "\x85",
    "control sequence": "\x9b",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "right to left": "\u202e",
    "isolate": "\u2066",
    "zero width": "\u200b",
    "mark": "\ufeff",
    "tag": "\U000e0041",
}


def controls(text: str) -> set[str]:
    """The control characters in a text."""
    return {character for character in text if has_controls(character) and character != "\n"}


@pytest.mark.parametrize("name", CONTROLS)
def test_a_text_with_control_characters(name: str) -> None:
    """They are written out."""
    text = f"gone{CONTROLS[name]}back"
    assert not has_controls(escape(text))
    assert not has_controls(redact(text))
    assert escape(text).startswith("gone\\")


@pytest.mark.parametrize(
    "text", ["", "plain words", "Grace Akello-Nsubuga", "naïve 日本語 ١٢٣", "a\u00a0b", "100 % 👍"]
)
def test_a_text_without(text: str) -> None:
    """It stays as it is, blanks of any kind included."""
    assert text == escape(text) == redact(text)


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
async def test_words_of_the_service(
    payments: PaymentsSession, wire: Wire, caplog: pytest.LogCaptureFixture, name: str, status: int
) -> None:
    """In a message, a correlation id or the name of a transaction."""
    caplog.set_level(logging.DEBUG)
    bad = f"no{CONTROLS[name]}yes"

    async def answer(_: Request) -> bytes | None:
        return reply({"code": 7, "message": bad, "correlationId": bad, "data": {"transactionId": bad}}, status)

    wire.answer = answer
    with pytest.raises(OutcomeUnknown) as caught:
        await payments.payouts.send(payout())
    shown = [str(caught.value), repr(caught.value), caught.value.message, str(caught.value.args)]
    shown += [f"{record.getMessage()} {record.__dict__!r}" for record in caplog.records if record.name != "asyncio"]
    assert (set(), False) == (controls("".join(shown)), "\n" in "".join(shown))


async def test_words_of_a_login(payments: PaymentsSession, wire: Wire) -> None:
    """It fails with them too."""

    async def answer(_: Request) -> bytes | None:
        return reply({"success": False, "message": "\x1b]0;owned\x07\u202e"}, 401)

    wire.login = answer
    with pytest.raises(Rejected, match=r"x1b\]0;owned") as caught:
        await payments.payouts.send(payout())
    assert not has_controls(str(caught.value))


@pytest.mark.parametrize("name", CONTROLS)
def test_an_identifier_with_control_characters(name: str) -> None:
    """It is refused: it would be shown and looked for everywhere."""
    bad = f"r{CONTROLS[name]}1"
    makers: list[Any] = [
        lambda: payout(bad),
        lambda: payout(batch_id=bad),
        lambda: payout(product_item_id=bad),
        lambda: payout(account_number=bad),
        lambda: collection(bad),
        lambda: BankAccount(bad, "BANK01"),
        lambda: BankAccount("0041", bad),
        lambda: UtilityAccount(bad),
        lambda: Beneficiary(name="Ann", id=bad),
    ]
    for make in makers:
        with pytest.raises(ValueError, match="control characters") as caught:
            make()
        assert not has_controls(str(caught.value))


@pytest.mark.parametrize("name", CONTROLS)
def test_values_in_a_log(name: str) -> None:
    """A status nobody knows, and a name, are escaped in a repr."""
    bad = f"PAID{CONTROLS[name]}OUT"
    assert not has_controls(repr(TransactionStatus(bad)))
    assert not has_controls(repr(Beneficiary(name=bad)))
    assert bad == TransactionStatus(bad), "the value itself stays as the service said it"


def test_an_error_made_elsewhere() -> None:
    """Whoever makes it, its words are escaped."""
    error = PaymentsError("a\x1bb", request_id="r\n1", correlation_id="\x9bc")
    assert "a\\x1bb [request r\\n1, correlation \\x9bc]" == str(error)


def test_the_id_of_a_beneficiary() -> None:
    """It is masked, as all that tells who it is."""
    assert "4711" not in repr(Beneficiary(name="Grace Akello", id="CM-4711-0815"))
