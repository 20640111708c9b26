"""What one sandbox was asked to be: every contradiction of the specification as a switch, and its settings."""

import ssl as tls
from decimal import Decimal
from typing import Any, Literal

import attrs

DateShape = Literal["us", "spaced", "iso"]


def _one_of(*choices: object) -> Any:
    return attrs.field(default=choices[0], validator=attrs.validators.in_(choices))


@attrs.frozen(kw_only=True)
class Quirks:
    """Which reading of a contradictory or silent specification the sandbox follows; by default its plain one.

    A client should pass with every one of these set to any of its values: all of them are documented somewhere.

    Attributes:
        expect_continue: What becomes of a request that waits for `100 Continue`: it is told to go on, told nothing, or
            refused with 417.
        token_key: Where the token stands in the answer of a login; the refresh token follows its spelling.
        accepted_schemes: The authorization schemes that are let in, spelled exactly so.
        refresh_path: A path that takes `{"refreshToken": ...}` for a new token; None offers none.
        validation_needs_token: Whether validation asks for a token like everything else.
        acceptance_http: The HTTP status of an acceptance.
        acceptance_top_status: Whether an acceptance carries `status` beside `code`.
        created_on: How an acceptance writes its timestamp.
        repeated_request_id: What happens to a requestId that was used before. No idempotency is documented, so the
            default carries it out again: it pays twice.
        bank_code_keys: The keys that may carry the bank code of a bank transfer.
        enforces_bounds: Whether an order is held to the bounds that validation tells.
        record_has_status: Whether a transaction record carries `status` and `statusMessage`.
        success_word: How success is spelled where a status is shown.
        record_amount_sign: Which kind of order has a negative amount in records.
        record_account_number: The JSON type of a record's accountNumber.
        record_product_key: The second member of a record's product.
        record_beneficiary_data: Which of the two descriptions of a record's beneficiary is followed.
        single_record_names: The spelling of the single transaction's own members.
        list_swaps_product: Whether the list exchanges product and beneficiary.
        read_code: The `code` of a successful read.
        envelope_correlation_id: Whether envelopes carry `correlationId`.
        requests_path: Whether a transaction can be read at `/api/transactions/Requests/{requestId}`.
        final_after_answer: Whether an ended order still shows as processing until its notification was answered 200.
        newest_first: Whether lists begin with the newest transaction.
        next_page_lies: Whether `nextPage` says the opposite of the truth.
        unstable_pages: Whether, when the list changed since its first page was read, every later page begins one row
            too early or one too late in turn, so that rows repeat and go missing.
        ignores_status_filter: Whether `transactionStatus` is ignored.
        filter_words: Which words `transactionStatus` knows: those of the list of statuses, or others that were met.
        unknown_filter_word: What a word does that it does not know: a refusal, all transactions, or none.
        listed_after: How many further readings of a list pass before a new transaction is in any.
        repeats_first_page: Whether every page of transactions is the first.
        total_error: By how many rows `totalCount` of transactions is wrong; None leaves it out.
        request_id_case: How the list writes a requestId.
        request_id_length: How many characters of a requestId the list shows.
        ignores_date_filter: Whether the dates are ignored.
        dates_show_nothing: Whether no transaction is shown of any dates.
        date_keys: The pairs of query keys that filter by date; others are ignored.
        later_date_inclusive: Whether a later date without a time means the whole of that day.
        default_page_size: Rows of a page when a request names no number.
        max_page_size: The largest page; more is cut to it.
        validation_refusal_http: The HTTP status when a reference or an amount does not validate.
        card_success_flag: The `success` of a good card answer.
        ipn_spelling: The spelling of a notification's members.
        ipn_ids: The JSON type of a notification's account and subscription ids.
        ipn_query: Whether a notification repeats its ids in the query string.
        ipn_date: How a notification writes its timestamp.
        ipn_request_id: Where a notification names the requestId: in the body, only in `requestReference`, or only in
            the query string.
        ipn_reversal_code: The status code of a notification about a reversal; None sends none.

    >>> sandbox = Sandbox(quirks=Quirks(success_word="SUCCESSFUL", next_page_lies=True))
    """

    # Spec: silent
    expect_continue: Literal["answered", "ignored", "refused"] = _one_of("answered", "ignored", "refused")
    # Spec: "Response fields: Token (string, <ACCESS_TOKEN>), refreshToken"; integrations also met token and data.token
    token_key: Literal["Token", "token", "data.token"] = _one_of("Token", "token", "data.token")
    # Spec: "The login description shows the scheme Bearer <ACCESS_TOKEN>; every endpoint sample shows Token"
    accepted_schemes: tuple[str, ...] = ("Token",)
    # Spec: "The refresh call itself: not shown."
    refresh_path: str | None = None
    # Spec: "All endpoints except validation require the Authorization header"
    validation_needs_token: bool = False

    # Spec: "HTTP status codes other than 401 and 200: not shown."
    acceptance_http: Literal[200, 201] = _one_of(200, 201)
    # Spec: "Present on the post endpoints" and of a collection "the sample lacks `status` at top level"
    acceptance_top_status: bool = True
    # Spec: "shaped like month/day/year followed by a 12-hour time with AM or PM"
    created_on: DateShape = _one_of("us", "spaced", "iso")
    # Spec: "Client-side unique identifier of the transaction.", and nothing on what a second use does
    repeated_request_id: Literal["accept", "refuse_400", "same_transaction"] = _one_of(
        "accept", "refuse_400", "same_transaction"
    )
    # Spec: "The bank code key is `bankName` in the sample request and `bankCode` in the field list"
    bank_code_keys: tuple[str, ...] = ("bankName", "bankCode")
    # Spec: "Differ per provider and are checked through the validation endpoint; the numbers: not shown"
    enforces_bounds: bool = False

    # Spec: the transaction record has no status among its fields; an earlier edition returned one
    record_has_status: bool = False
    # Spec: "SUCCESSFULL (spelled exactly so)"
    success_word: str = "SUCCESSFULL"
    # Spec: "Decimal; payouts appear as negative numbers."
    record_amount_sign: Literal["payouts_negative", "collections_negative"] = _one_of(
        "payouts_negative", "collections_negative"
    )
    # Spec: "accountNumber | string" on transactions, "accountNumber | number" on the account
    record_account_number: Literal["string", "number"] = _one_of("string", "number")
    # Spec: "One description of the list endpoint names the second member `productItemId` instead of `name`."
    record_product_key: Literal["name", "productItemId"] = _one_of("name", "productItemId")
    # Spec: "Another description lists `PhoneNumber` and `memo` in `data`."
    record_beneficiary_data: Literal["customer", "phone"] = _one_of("customer", "phone")
    # Spec: "The description of that endpoint also uses snake_case names (transaction_id, clientreference_id, ...)"
    single_record_names: Literal["camel", "snake"] = _one_of("camel", "snake")
    # Spec: silent; in one list sample product and beneficiary stand in each other's place
    list_swaps_product: bool = False
    # Spec: "One description says 1 on success for some read endpoints; the examples all show 0."
    read_code: Literal[0, 1] = _one_of(0, 1)
    # Spec: silent; an earlier edition showed correlationId in envelopes
    envelope_correlation_id: bool = False
    # Spec: silent; an earlier edition had this path
    requests_path: bool = False
    # Spec: "A transaction counts as complete only when the client's IPN URL has answered with HTTP 200."
    final_after_answer: bool = False

    # Spec: "Date semantics and default paging: not shown."
    newest_first: bool = False
    next_page_lies: bool = False
    unstable_pages: bool = False
    ignores_status_filter: bool = False
    # Spec: "transactionStatus (string, one of ENQUEUED, PROCESSING, FAILED, SUCCESSFULL, REVERSED)"; others were met
    filter_words: Literal["documented", "other"] = _one_of("documented", "other")
    # Spec: silent
    unknown_filter_word: Literal["refused", "ignored", "empty"] = _one_of("refused", "ignored", "empty")
    listed_after: int = 0
    repeats_first_page: bool = False
    total_error: int | None = 0
    request_id_case: Literal["as_given", "upper"] = _one_of("as_given", "upper")
    request_id_length: int = 128
    ignores_date_filter: bool = False
    dates_show_nothing: bool = False
    # Spec: "The sample request instead uses `startDate` and `endDate` with a date shaped YYYY-MM-DD."
    date_keys: tuple[tuple[str, str], ...] = (("earlierDate", "laterDate"),)
    later_date_inclusive: bool = True
    # Spec: "Maximum page size and default page size: not shown."
    default_page_size: int = 20
    max_page_size: int = 100

    # Spec: "The response of validation when a reference or amount is invalid: not shown."
    validation_refusal_http: Literal[200, 400] = _one_of(200, 400)
    # Spec: "`success` (number, 1 if successful, 0 if not)"; its own sample shows 0 beside a full card
    card_success_flag: Literal[0, 1] = _one_of(1, 0)

    # Spec: "two spellings appear: PascalCase names in one description, camelCase in another"; snake_case existed once
    ipn_spelling: Literal["pascal", "camel", "snake"] = _one_of("pascal", "camel", "snake")
    # Spec: "AccountId / accountId | string (long in the camelCase description)"
    ipn_ids: Literal["string", "number"] = _one_of("string", "number")
    # Spec: "Query string of the call: transactionId, subscriptionId, accountId, requestId, Amount (double)."
    ipn_query: bool = True
    # Spec: "Shaped `YYYY-MM-DD HH:mm:ss` in the PascalCase description; datetime in the other."
    ipn_date: DateShape = _one_of("spaced", "iso", "us")
    # Spec: "requestReference | object | camelCase description only: `createdOn` (datetime), `requestId` (string)."
    ipn_request_id: Literal["body", "reference", "query"] = _one_of("body", "reference", "query")
    # Spec: "0 success, 1 processing, 2 error, others possible. Meaning of further values: not shown."
    ipn_reversal_code: int | None = None


# What routes and books are made of when a sandbox is; a switch would come too late for these.
FIXED = frozenset({"refresh_path", "validation_needs_token", "requests_path", "final_after_answer"})


def switched(quirks: Quirks, name: str, value: object) -> Quirks:
    """The same reading but for one quirk.

    Raises:
        ValueError: There is no such quirk, it holds from the opening on, or has no such value.
    """
    field = attrs.fields_dict(Quirks).get(name)
    if field is None or name in FIXED:
        raise ValueError(f"no quirk {name!r} can be switched")
    default = field.default
    choices = choices_of(name)
    is_fit = (
        any(value == one and type(value) is type(one) for one in choices) if choices else _is_like(value, default, name)
    )
    if not is_fit:
        raise ValueError(f"{name} cannot be {value!r}")
    changed: dict[str, Any] = {name: value}
    return attrs.evolve(quirks, **changed)


def choices_of(name: str) -> tuple[object, ...]:
    """The values of a quirk that has a few; none of one that has many."""
    field = attrs.fields_dict(Quirks)[name]
    if isinstance(field.default, bool):
        return (False, True)
    return tuple(getattr(field.validator, "options", ()))


_MAY_BE_NONE = frozenset({"total_error", "ipn_reversal_code"})
_LEAST = {"listed_after": 0, "default_page_size": 1, "max_page_size": 1, "request_id_length": 1}


def _is_like(value: object, default: object, name: str) -> bool:
    """Whether a value is of the kind that a quirk has which takes many: words, or a number."""
    if isinstance(default, str):
        return isinstance(value, str)
    if isinstance(default, tuple):
        return False
    if value is None:
        return name in _MAY_BE_NONE
    return isinstance(value, int) and not isinstance(value, bool) and value >= _LEAST.get(name, value)


@attrs.frozen(kw_only=True)
class Redelivery:
    """How the sandbox tries to deliver a notification.

    Attributes:
        attempts: Tries at one notification before it is given up.
        wait_initial: Wait before the second try; every further wait is twice as long.
        wait_max: The longest of these waits.
        timeout: How long an answer to a notification is waited for.
        concurrency: Notifications under way at once.

    >>> sandbox = Sandbox(redelivery=Redelivery(attempts=2, wait_initial=0.1))
    """

    attempts: int = 5
    wait_initial: float = 0.2
    wait_max: float = 60.0
    timeout: float = 5.0
    concurrency: int = 20


@attrs.frozen(kw_only=True)
class SandboxAccount:
    """The account of a sandbox.

    Attributes:
        balance: What it holds at first.
        currency: Of the account and of every transaction.
        number: Of the account.
        allowed_peers: Whitelisted addresses; None admits everybody.
        token_lifetime: How long a token is good. # Spec: "Token lifetime | 60 minutes"

    >>> sandbox = Sandbox(account=SandboxAccount(balance=Decimal(1000), currency="KES"))
    """

    balance: Decimal = Decimal(1_000_000_000)
    currency: str = "UGX"
    number: int = 6
    allowed_peers: tuple[str, ...] | None = None
    token_lifetime: float = 3600.0


@attrs.frozen(kw_only=True)
class SandboxServer:
    """Where a sandbox is served.

    Attributes:
        prefix: A path before every path.
        host: The address to serve on.
        port: The port to serve on; 0 finds a free one.
        ssl: Serves https with this context.

    >>> sandbox = Sandbox(server=SandboxServer(port=8099, prefix="/v1"))
    """

    prefix: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    ssl: tls.SSLContext | None = None


@attrs.define(kw_only=True)
class Settings:
    """All that a sandbox is told when it is made, but for its clock and its address. See `Sandbox`.

    Attributes:
        quirks: May be switched while it runs, but for those that are `FIXED`.
    """

    quirks: Quirks
    seed: int
    processing_delay: float
    redelivery: Redelivery
    account: SandboxAccount
    subscription_id: int = 1
    fast: bool
