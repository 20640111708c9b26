"""One order of the command line: its options, and its way through a journal, sent once and told of ever after."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated

import attrs
import typer

from payments_async import CollectionOrder, PaymentsError, PaymentsSession, PayoutOrder
from payments_async._cli.agreement import paid_to
from payments_async._cli.exit_codes import BadInput, Declined, Exit
from payments_async._cli.journal import (
    JournalPlace,
    SecondJournal,
    WithoutLooking,
    check_doubt,
    introduce,
    journal_option,
    make_own_folder,
    may_be_made,
    named_or_none,
    opened,
    own_journal,
    seconded,
)
from payments_async._cli.live_view import looking
from payments_async._cli.screen import Screen, clean, command_line, money
from payments_async._cli.settings import ConnectionSettings
from payments_async._cli.signals import Stop, draining
from payments_async._cli.story import service_words, worker_of
from payments_async._cli.working import working
from payments_async.journal import FINAL, UNSETTLED, Entry, Journal, JournalUnavailable, RunIdentity, State

if TYPE_CHECKING:  # a help imports no more than it shows
    from payments_async.bulk import RunProgress

Order = PayoutOrder | CollectionOrder

_PATIENCE = 30.0  # seconds without any answer, after which the order stays unsent
_LEASE = 10.0  # seconds after which a process that died while sending is taken for dead
_LOOK_AGAIN = 2.0  # seconds between two looks for an order whose outcome is unknown
_LOOK_FIRST, _LOOK_LAST = 1.0, 30.0  # ... for one that was accepted, doubled each time
_LOOKED_UP = (State.ACCEPTED, State.UNKNOWN)
_TO_RUN = {*State} - {*FINAL, State.ACCEPTED, State.PARKED}  # a run has something to do for it
_MAY_HAVE_LEFT = "it may have been carried out; never send it again under another id. The same command looks it up"
_PLAIN = frozenset({"amount", "currency", "batch_id", "product_id", "product_item_id", "provider_item_id", "bank_code"})


_REQUEST_ID = (
    "--request-id: name the order yourself, unique for ever, such as your voucher number; "
    "a generated one would turn a second run into a second payment"
)
_OPTIONS = {
    "request_id": "--request-id",
    "amount": "--amount",
    "product_item_id": "--item",
    "provider_item_id": "--item",
    "product_id": "--product",
    "batch_id": "--batch-id",
    "account_number": "--from-account",
    "currency": "--currency",
    "message": "--message",
    "metadata": "--metadata",
    "beneficiary.name": "--name",
    "beneficiary.phone_number": "--phone",
    "beneficiary.email_address": "--email",
    "destination.account_number": "--bank-account",
    "destination.bank_code": "--bank-code",
    "destination.customer_reference": "--utility",
    "destination.area": "--area",
}

RequestId = Annotated[str | None, typer.Option(help="Identifier of this order, unique for ever.")]


@attrs.frozen(kw_only=True)
class OrderBasics:
    """What every order needs."""

    amount: Annotated[str, typer.Option(help="As in 150000 or 1,500.50, in units of the account's currency.")]
    name: Annotated[str, typer.Option(help="Name of the person who is paid, or who pays.")]


@attrs.frozen(kw_only=True)
class OrderNotes:
    """What may go with an order."""

    message: Annotated[str | None, typer.Option(help="Free text that goes with the order.")] = None
    metadata: Annotated[str | None, typer.Option(help="Further data that goes with it.")] = None
    currency: Annotated[str | None, typer.Option(help="What you mean, as in UGX; compared with the account's.")] = None


@attrs.frozen(kw_only=True)
class Sending:
    """The options that say how one order is sent.

    Attributes:
        journal: The place somebody named, or ``None`` for the account's own.
    """

    journal: Annotated[
        JournalPlace | None,
        journal_option("The journal's file or DSN; by default the one in this folder, or the account's own."),
    ] = None
    new_journal: Annotated[
        bool, typer.Option("--new-journal", help="Make the file that --journal names. It knows no earlier payment.")
    ] = False
    second_journal: SecondJournal = None
    without_looking: WithoutLooking = False
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the final status; 0 does not wait.")] = 0.0
    yes: Annotated[bool, typer.Option("--yes", help="Send without asking.")] = False


def own_id(request_id: str | None) -> str:
    """The request id, which a person has to choose.

    Raises:
        BadInput: There is none.
    """
    if not request_id:
        raise BadInput(_REQUEST_ID)
    return request_id


def read_amount(amount: str, currency: str | None) -> tuple[Decimal, str | None]:
    """The amount, read as in a batch file, and its currency."""
    from payments_async.bulk import read_money

    try:
        value, beside = read_money(amount.strip(), currency and currency.upper())
    except ValueError as error:
        raise BadInput(f"--amount: {error}") from error
    if beside == "SHS" and not currency:
        raise BadInput("--amount: in shillings of a country that is not told; name the currency (--currency)")
    if beside and currency and beside != currency.upper():
        told = "shillings" if beside == "SHS" else beside
        raise BadInput(f"--amount: in {told}, but --currency says {currency}; correct one of them")
    return value, currency or beside


@contextmanager
def naming(destination: str) -> Iterator[None]:
    """Turn a complaint about a field into one about the option that filled it."""
    try:
        yield
    except ValueError as error:
        field, colon, rest = str(error).partition(":")
        option = destination if field == "destination.phone_number" else _OPTIONS.get(field)
        rest = rest.replace("pass UtilityAccount(..., area='Kampala')", "as in --area Kampala")
        raise BadInput(f"{option}:{rest}" if colon and option else str(error)) from error


@attrs.frozen(kw_only=True)
class SingleOrder:
    """What somebody asked for with `pay` or `collect`.

    Attributes:
        where: What kind of place the money goes to or comes from.
    """

    screen: Screen
    order: Order
    where: str
    sending: Sending

    @property
    def batch_id(self) -> str:
        """What the journal calls the batch that holds this order alone."""
        return f"{'pay' if isinstance(self.order, PayoutOrder) else 'collect'}-{self.order.request_id}"

    async def carry_out(self, settings: ConnectionSettings) -> Exit:
        """Send the order, unless it was sent before, and tell what became of it."""
        async with AsyncExitStack() as stack:
            payments = await stack.enter_async_context(settings.session())
            identity = RunIdentity.of(payments.base_url, app_key=settings.application, user_id=settings.user_id or "")
            path = seconded(
                self.sending.journal or named_or_none(None) or own_journal(identity), self.sending.second_journal
            )
            assert path is not None
            if await path.exists():
                journal = await stack.enter_async_context(opened(path))
                entry = await self._known(journal, identity)
            else:
                journal, entry = None, None
            ordered = self.order if entry is None else entry.order
            if entry is None or entry.state is State.PLANNED:
                try:  # what is wrong with the credentials or the way there is found out before anything can have left
                    currency = await self._agree(payments, path)
                except (PaymentsError, asyncio.CancelledError):
                    self.screen.trouble("not sent: it is safe to send it again, with the same command")
                    raise
                ordered = attrs.evolve(ordered, currency=currency) if entry is None else ordered
            if journal is None:
                try:
                    journal = await stack.enter_async_context(opened(path, new=True))
                except JournalUnavailable as error:
                    raise BadInput(f"--journal: {clean(str(error))}; nothing was sent") from error
                introduce(self.screen, path, journal)
            if self.sending.without_looking:
                await check_doubt(journal)
            asked = attrs.evolve(self, order=ordered)
            return await _OrderRun(asked=asked, payments=payments, journal=journal, path=path).run(entry)

    async def _known(self, journal: Journal, identity: RunIdentity) -> Entry | None:
        """What the journal holds under this request id.

        Raises:
            BadInput: Another order, one of a batch, or one of another account.
        """
        request_id = self.order.request_id
        entry = await journal.entry(request_id)
        if entry is None:
            return None
        run = await journal.run(entry.batch_id)
        if run.identity != identity:
            raise BadInput(
                f"--journal: it belongs to user {clean(run.identity.user_id)} at {clean(run.identity.base_address)}; "
                "name the journal of this account, or leave the option out"
            )
        ours = self.order if self.order.currency else attrs.evolve(self.order, currency=entry.order.currency)
        if entry.order != ours:  # an order without a currency may have been given the account's
            differences = "; ".join(_differences(self.screen, entry.order, ours))
            raise BadInput(
                f"--request-id: {clean(request_id)} is the id of another order, {_standing(entry)}: {differences}. "
                "Nothing was sent; a request id names one order for ever, so name a new order with a new one"
            )
        if entry.batch_id != self.batch_id and entry.state in _TO_RUN:
            raise BadInput(
                f"--request-id: {clean(request_id)} belongs to batch {clean(entry.batch_id)}, {_standing(entry)}; "
                "`payments-async bulk run` goes on with that"
            )
        return entry

    async def _agree(self, payments: PaymentsSession, path: JournalPlace) -> str | None:
        """Show the order as it would be sent, and ask for a yes unless it was given. Raises ``Declined``.

        Returns:
            The currency: the order's, else the account's where the service names a code.
        """
        screen, order = self.screen, self.order
        asks = not self.sending.yes and screen.can_ask
        async with working(screen, "asking for the account", payments):
            account = await payments.accounts.get()
        theirs = (account.currency or "").strip().upper()
        currency = order.currency or theirs or None  # who approves it sees it, and the order keeps it
        if currency is not None and theirs not in ("", currency.upper()):
            raise BadInput(f"--currency: the account is kept in {clean(theirs)}, not {clean(currency)}")
        payout, person = isinstance(order, PayoutOrder), partial(screen.person, is_asked=asks)
        where = f"{self.where} {paid_to(screen, order, is_asked=asks)}"
        screen.fields(
            [
                ("pay" if payout else "collect", money(order.amount, currency)),
                ("to" if payout else "from", where),
                ("beneficiary" if payout else "payer", person(order.beneficiary.name)),
                ("telephone", person(order.beneficiary.phone_number)),
                ("e-mail", person(order.beneficiary.email_address)),
                ("message to them", person(order.message)),
                ("metadata", person(order.metadata)),
                ("from account" if payout else "to account", person(order.account_number)),
                ("item", order.product_item_id if isinstance(order, PayoutOrder) else order.provider_item_id),
                ("request id", order.request_id),
                ("service", payments.base_url),
                ("journal", str(path)),
            ]
        )
        if self.sending.journal is None:
            make_own_folder(path)
        elif not await may_be_made(screen, path, is_wanted=self.sending.new_journal):
            raise Declined("nothing was sent")
        verb, way = ("Send", "to") if payout else ("Request", "from")
        question = f"{verb} {money(order.amount, currency)} {way} {where}?"
        screen.confirm(question, yes=self.sending.yes, otherwise="nothing was sent")
        return currency if order.currency or (len(theirs) == 3 and theirs.isalpha()) else None


@attrs.frozen(kw_only=True)
class _OrderRun:
    """A single order on its way."""

    asked: SingleOrder
    payments: PaymentsSession
    journal: Journal
    path: JournalPlace
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    waited_for: set[str] = attrs.field(factory=set)

    async def run(self, before: Entry | None) -> Exit:
        """Send the order unless it may have left before, wait where that is asked for, and tell.

        Args:
            before: The order as an earlier command left it.
        """
        screen, request_id = self.asked.screen, self.asked.order.request_id
        stopped: str | None = "it was broken off"  # unless it gets further
        try:
            with draining(screen) as stop:
                stopped = await self._go_through(before, stop)
            entry = await self.journal.entry(request_id)
        except JournalUnavailable as error:
            screen.trouble(f"the journal cannot be used: {clean(str(error))}", _MAY_HAVE_LEFT)
            return screen.ended(Exit.UNKNOWN, {"request_id": request_id, "error": str(error)})
        if entry is None:
            screen.trouble(f"not sent: {stopped}")
            return Exit.STOPPED
        status = _exit_of(entry)
        if entry.state is State.PLANNED and (stop.drain.is_set() or not self.payments.is_logged_in):
            status = Exit.STOPPED
        self._tell(entry, before, stopped, status)
        return status

    async def _go_through(self, before: Entry | None, stop: Stop) -> str | None:
        """Send or look up, and wait. Tells why the order was not sent, or ``None``."""
        screen, entry, stopped = self.asked.screen, before, None
        if before is None or before.state in _TO_RUN:
            if before is not None and before.state is not State.PLANNED:
                screen.note(f"{_standing(before)}: looking it up; it is not sent again")
            stopped, entry = await self._sent(stop)
            if _is_left_behind(before, entry) and not stop.drain.is_set():
                stopped, entry = await self._sent(stop)  # its lease ran out meanwhile: now it is looked up
        if entry is not None and self.asked.sending.wait and not stop.drain.is_set():
            await self._wait(entry, stop)
        return stopped

    async def _sent(self, stop: Stop) -> tuple[str | None, Entry | None]:
        """Send what is planned, look up what may have left. Tells why it was not sent, and how it stands."""
        from payments_async.bulk import RunSettings, run_batch

        async with working(self.asked.screen, "looking and sending", self.payments):
            progress = await run_batch(
                self.payments,
                self.journal,
                self.asked.batch_id,
                [self.asked.order],
                settings=RunSettings(
                    concurrency=1,
                    look_first="never" if self.asked.sending.without_looking else "always",
                    patience=_PATIENCE,
                    lease=_LEASE,
                ),
                stop=stop.drain,
                progress=self._tell_wait,
            )
        if progress.looked is not None:
            self.asked.screen.note(looking(progress.looked))
        return progress.stopped, await self.journal.entry(self.asked.order.request_id)

    def _tell_wait(self, progress: "RunProgress") -> None:
        """Say once for whom it is waited."""
        if progress.waits_for is not None and not self.waited_for:
            self.waited_for.add(progress.waits_for)
            self.asked.screen.note(
                f"another command, {worker_of(progress.waits_for)}, may be sending it, or died: its lease ends in "
                f"{progress.lease_left:.0f} s"
            )

    async def _wait(self, entry: Entry, stop: Stop) -> None:
        """Wait until the order has ended, the time is up, or somebody has had enough."""
        wait = self.asked.sending.wait
        looking, asked = asyncio.ensure_future(self._look(entry)), asyncio.ensure_future(stop.drain.wait())
        try:
            async with working(self.asked.screen, f"waiting up to {wait:g} s for the final status", self.payments):
                done, _ = await asyncio.wait((looking, asked), timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if looking in done:
                looking.result()
        except PaymentsError as error:
            self.asked.screen.note(f"not looked up to the end: {error.message}")
        finally:
            for task in (looking, asked):
                task.cancel()
            await asyncio.gather(looking, asked, return_exceptions=True)
        now = await self.journal.entry(entry.request_id) or entry
        if now.state in (State.SENDING, *_LOOKED_UP) and not stop.drain.is_set():
            self.asked.screen.note(f"no final status within {wait:g} s; it may end at any time")

    async def _look(self, entry: Entry) -> None:
        """Reconcile until the order has ended, or is given into the hands of a person."""
        from payments_async.bulk import reconcile

        pause = _LOOK_FIRST
        while entry.state in _LOOKED_UP:
            await reconcile(self.payments, self.journal, request_id=entry.request_id)
            entry = await self.journal.entry(entry.request_id) or entry
            if entry.state is State.UNKNOWN:
                await self.sleep(_LOOK_AGAIN)
            elif entry.state is State.ACCEPTED:  # every look reads several lists
                await self.sleep(pause)
                pause = min(_LOOK_LAST, 2 * pause)

    def _tell(self, entry: Entry, before: Entry | None, stopped: str | None, status: Exit) -> None:
        """Tell how the order stands now, to people and machines."""
        screen = self.asked.screen
        is_news = entry.attempt > (0 if before is None else before.attempt)  # it left now, and not before
        screen.say()
        if not is_news and entry.state is not State.PLANNED:
            screen.say("[bold yellow]Nothing was sent[/]: that was done before.")
        screen.fields(
            [
                ("outcome", entry.state),
                ("transaction", entry.transaction_id),
                ("request id", entry.request_id),
                ("batch", None if entry.batch_id == self.asked.batch_id else entry.batch_id),
                ("sent", _moment(entry.permitted_at)),
                ("since", _moment(entry.updated_at)),
                ("the service", service_words(entry)),
                ("journal", str(self.path)),
            ]
        )
        if entry.state is State.ACCEPTED and status is Exit.FINE:
            screen.say("[dim]Accepted is not paid: the final status comes as a notification, or with --wait.[/]")
        elif status is not Exit.FINE:
            self._tell_trouble(entry, stopped)
        screen.document(
            {
                **{name: getattr(entry, name) for name in ("request_id", "batch_id", "state", "amount")},
                "currency": entry.order.currency,
                **{name: getattr(entry, name) for name in ("transaction_id", "code", "message", "conflict")},
                "sent_by_this_command": is_news,
                "sent_at": _at(entry.permitted_at),
                "since": _at(entry.updated_at),
                "stopped": stopped,
                "journal": str(self.path),
                "exit_status": status,
            }
        )

    def _tell_trouble(self, entry: Entry, stopped: str | None) -> None:
        """Tell what is wrong with the order, and what to do."""
        screen, request_id = self.asked.screen, entry.request_id
        if entry.conflict:
            line = command_line("explain", request_id, journal=self.path)
            screen.trouble(f"evidence contradicts: {entry.conflict}", f"ask the service what is true; see {line}")
        elif entry.state in (State.SENDING, State.UNKNOWN):
            look = command_line("transactions", request_id=request_id)
            screen.trouble(f"the outcome is unknown: {_MAY_HAVE_LEFT}", f"or look it up with: {look}")
        elif entry.state is State.PLANNED:
            again = "it is safe to send it again: the same command does"
            screen.trouble(f"not sent: {stopped or entry.message}", again)
        else:
            why = service_words(entry) or "no reason was given"
            meaning = entry.state.meaning
            screen.trouble(f"{entry.state}: {why}", f"{meaning.sentence} May it be paid again? {meaning.again}")


def _exit_of(entry: Entry) -> Exit:
    """The exit status that an order deserves as it stands."""
    if entry.conflict or entry.state in (State.SENDING, *UNSETTLED):
        return Exit.UNKNOWN
    return Exit.FINE if entry.state in (State.ACCEPTED, State.SUCCESSFUL) else Exit.FAILED


def _is_left_behind(before: Entry | None, now: Entry | None) -> bool:
    """Whether an earlier command died while it was sending the order, as it turned out."""
    if before is None or now is None or before.state is not State.SENDING:
        return False
    return now.state is State.UNKNOWN and now.attempt == before.attempt


def _standing(entry: Entry) -> str:
    """Where an order stands, in the middle of a sentence."""
    moment = f" since {_moment(entry.updated_at)}" if entry.updated_at else ""
    named = f", transaction {clean(entry.transaction_id)}" if entry.transaction_id else ""
    return f"{entry.state}{moment}{named}"


def _at(at: float | None) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at else None


def _moment(at: float | None) -> str | None:
    moment = _at(at)
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _differences(screen: Screen, known: Order, asked: Order) -> Iterator[str]:
    """What two orders differ in; personal values are masked."""
    then, now = _fields(known), _fields(asked)
    for name in dict.fromkeys((*then, *now)):
        if then.get(name) != now.get(name):
            before, after = (_shown(screen, name, fields.get(name)) for fields in (then, now))
            yield f"{name.replace('_', ' ').replace('.', ' ')} was {before}, is {after} now"


def _fields(order: Order) -> dict[str, object]:
    found: dict[str, object] = {"kind": "a payout" if isinstance(order, PayoutOrder) else "a collection"}
    for name, value in attrs.asdict(order).items():
        nested = isinstance(value, dict)  # a beneficiary, a destination
        found |= {f"{name}.{member}": text for member, text in value.items()} if nested else {name: value}
    return found


def _shown(screen: Screen, name: str, value: object) -> str:
    match value:
        case None:
            return "missing"
        case Decimal():
            return money(value)
        case _ if name.rpartition(".")[2] in _PLAIN or name == "kind":
            return clean(str(value))
        case _:
            return screen.person(str(value))
