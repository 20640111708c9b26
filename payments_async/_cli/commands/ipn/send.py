"""`payments-async ipn send`: a made-up notification in any documented spelling, to try a receiver out."""

import enum
import json
import re
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

import typer
from yarl import URL

from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.http import exchange
from payments_async._cli.remedies import reason_of
from payments_async._cli.screen import Screen, quoted

_AMOUNT = "AMOUNT-GOES-HERE"  # the standard JSON writer cannot write an exact number
_SNAKE = {"AccountId": "account_number", "RequestId": "client_referenceId"}  # the others as they are called
_WORDS = {0: "Transaction completed successfully", 1: "Transaction is being processed", 2: "Transaction failed"}


class MemberSpelling(enum.StrEnum):
    """How a notification spells its members."""

    PASCAL = "pascal"
    CAMEL = "camel"
    SNAKE = "snake"


async def ipn_send(
    screen: Screen,
    url: Annotated[str, typer.Argument(help="The IPN URL of a receiver of yours.")],
    request_id: Annotated[str, typer.Option(help="Of the order.")] = "demo-000001",
    transaction_id: Annotated[str | None, typer.Option(help="Random by default.")] = None,
    amount: Annotated[str, typer.Option(help="As in 1500.50.")] = "1500.50",
    currency: Annotated[str, typer.Option(help="Of the amount.")] = "UGX",
    status_code: Annotated[int, typer.Option(help="0 success, 1 processing, 2 error.")] = 0,
    spelling: Annotated[MemberSpelling, typer.Option(help="How the members are spelled.")] = MemberSpelling.PASCAL,
    times: Annotated[int, typer.Option(min=1, max=1000, help="Send it so often: a repetition must do no harm.")] = 1,
) -> Exit:
    """Send a made-up notification to a receiver, to try it out. It says nothing to the service."""
    address = URL(url)
    if address.scheme not in ("http", "https") or not address.host:
        raise BadInput("URL: must begin with http:// or https:// and name a host, as in http://127.0.0.1:8080/ipn")
    try:
        exact = Decimal(amount)
    except ArithmeticError as error:
        raise BadInput("--amount: not a number; write it as in 1500.50") from error
    named = transaction_id or str(uuid.uuid4())
    members: dict[str, object] = {
        "AccountId": "6",
        "SubscriptionId": "1",
        "TransactionId": named,
        "BatchId": "demo",
        "RequestId": request_id,
        "StatusMessage": _WORDS.get(status_code, "Something else"),
        "StatusCode": status_code,
        "CorrelationId": f"corr-{named}",
        "CreatedOn": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "Amount": _AMOUNT,
    }
    if spelling is not MemberSpelling.SNAKE:  # which knows no currency
        members["CurrencyCode"] = currency
    text = json.dumps({_spelled(name, spelling): value for name, value in members.items()})
    body = text.replace(f'"{_AMOUNT}"', f"{exact:f}").encode()
    query = {"transactionId": named, "requestId": request_id, "accountId": "6", "subscriptionId": "1"}
    address = address.with_query({**query, "Amount": f"{exact:f}"})
    try:
        answers = [await exchange("POST", address, body=body) for _ in range(times)]
    except (OSError, ValueError) as error:
        screen.trouble(f"{address.host}:{address.port} did not take it ({reason_of(error)})", "is a receiver there?")
        return Exit.FAILED
    told = [{"status": answer.status, "body": answer.body.decode("utf-8", "replace")} for answer in answers]
    for one in told:
        screen.say(quoted(f"{one['status']}  {one['body']}"))
    if any(300 <= answer.status < 400 for answer in answers):
        screen.trouble(
            "a redirect is not an answer to a notification: the service counts only a 200",
            "let the receiver answer at this very path; a mount in Starlette or FastAPI needs a route beside it",
        )
    screen.document({"transaction_id": named, "answers": told})
    return Exit.FINE if all(answer.status == 200 for answer in answers) else Exit.FAILED


def _spelled(name: str, spelling: MemberSpelling) -> str:
    match spelling:
        case MemberSpelling.PASCAL:
            return name
        case MemberSpelling.CAMEL:
            return name[0].lower() + name[1:]
        case MemberSpelling.SNAKE:
            return _SNAKE.get(name) or re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
