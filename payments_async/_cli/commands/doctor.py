"""`payments-async doctor`: what stands between this machine and the service, in words, with the remedy."""

import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import attrs
from yarl import URL

from payments_async import PaymentsError, PaymentsSession
from payments_async._cli.batch_state import silence
from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.http import HttpAnswer, exchange
from payments_async._cli.journal import JournalFile, JournalPlace, opened
from payments_async._cli.remedies import exit_of, remedy_of
from payments_async._cli.screen import Screen, money, quoted
from payments_async._cli.settings import ConnectionSettings

_SKEW = 60.0  # seconds of difference that are worth a word
_EXPIRES_SOON = 14  # days
_CONTINUE = 100
_PATIENCE = 3.0  # seconds until a service that says nothing counts as one that does not answer
_LOGIN = "/auth/login"


@attrs.frozen(kw_only=True)
class Diagnosis:
    """What one look found.

    Attributes:
        status: What the command ends with because of it; ``FINE`` for a warning too.
        remedy: What to do; empty where all is well.
    """

    name: str
    words: str
    remedy: str = ""
    status: Exit = Exit.FINE


async def doctor(screen: Screen, settings: ConnectionSettings, journal: JournalFile = None) -> Exit:
    """Check settings, address, TLS, clock, login and account, and say what to do about what is wrong.

    Moves no money. Reads a page of transactions too, and says which contradictions of the specification the answers
    show, by the ids of the page of quirks. With --journal it says whether notifications are heard.
    """
    findings = [] if journal is None else [await _heard(journal)]
    findings += [finding async for finding in _examine(settings)]
    for finding in findings:
        mark = "[red]wrong[/]" if finding.status else "[yellow]look [/]" if finding.remedy else "[green]fine [/]"
        screen.say(f"{mark}  {finding.name:<9} {quoted(finding.words)}")
        if finding.remedy:
            screen.say(f"       {'':<9} [bold]{quoted(finding.remedy)}[/]")
    screen.fields([(f"  {name}", f"{value}  from {origin}") for name, value, origin in settings.origins])
    status = max((finding.status for finding in findings), default=Exit.FINE)
    origins = [{"setting": name, "value": value, "from": origin} for name, value, origin in settings.origins]
    return screen.ended(status, {"findings": findings, "settings": origins})


async def _heard(place: JournalPlace) -> Diagnosis:
    """Whether the journal hears of what was accepted."""
    async with opened(place) as journal:
        words = await silence(journal)
    name = "heard"
    if words is None:
        return Diagnosis(name=name, words="a notification has come since the oldest acceptance, or none is awaited")
    what, _, remedy = words.partition(": ")
    return Diagnosis(name=name, words=what, remedy=remedy)


async def _examine(settings: ConnectionSettings) -> AsyncIterator[Diagnosis]:
    """Look at one thing after the other, until one is so wrong that the next makes no sense."""
    try:
        payments = settings.session()
    except BadInput as error:
        yield Diagnosis(name="settings", words=str(error), remedy="correct what is named", status=Exit.BAD_INPUT)
        return
    yield Diagnosis(name="settings", words="all are set")
    if settings.proxy is None:
        url = URL(payments.base_url)
        try:
            answer = await exchange("HEAD", url, tls=settings.tls)
        except (OSError, ValueError) as error:
            yield _unreached(url, error)
            return
        for found in _answered(url, answer):
            yield found
    else:
        yield Diagnosis(name="address", words=f"{payments.base_url}, through a proxy: TLS and clock are not looked at")
    name = "login"
    try:
        async with payments:
            await payments.log_in()
            yield Diagnosis(name=name, words="the credentials are taken")
            name = "account"
            account = await payments.accounts.get()
            yield Diagnosis(name=name, words=f"holds {money(account.balance, account.currency)}")
            name = "list"
            page = await payments.transactions.page()
            count = len(page.collection) if page.total_count is None else page.total_count
            yield Diagnosis(name=name, words=f"shows {count:,} transactions")
            yield _spelled(payments)
            if settings.proxy is None:
                yield await _asked_first(payments, settings)
    except PaymentsError as error:
        yield Diagnosis(name=name, words=error.message, remedy=remedy_of(error), status=exit_of(error))


async def _asked_first(payments: PaymentsSession, settings: ConnectionSettings) -> Diagnosis:
    """Whether the service answers 100 Continue: a login is announced, and never sent."""
    login = URL(f"{payments.base_url}{payments.dialect.api_prefix}{_LOGIN}")
    try:
        answer = await exchange("POST", login, body=b"{}", tls=settings.tls, timeout=_PATIENCE, asks_first=True)
        known, status = answer.status == _CONTINUE, f"answers {answer.status}"
    except (OSError, ValueError):
        known, status = False, "does not answer"
    is_used, words = payments.dialect.expect_continue, "to a request that waits for 100 Continue"
    if known:
        return Diagnosis(name="continue", words="the service answers it: Dialect(expect_continue=True) may be used")
    remedy = "set Dialect(expect_continue=False): no order is sent with it" if is_used else ""
    return Diagnosis(name="continue", words=f"the service {status} {words}", remedy=remedy)


def _spelled(payments: PaymentsSession) -> Diagnosis:
    """Which of the specification's contradictions these answers have shown; all of them are understood."""
    shown = ", ".join(f"{quirk} ({value})" for quirk, value in sorted(payments.quirks_met.items()))
    return Diagnosis(name="quirks", words=f"{shown}: understood" if shown else "none in these answers")


def _answered(url: URL, answer: HttpAnswer) -> Iterator[Diagnosis]:
    """What an answer tells of the address, its certificate and the clock there."""
    yield Diagnosis(name="address", words=f"{url} answers")
    if url.scheme == "http":
        yield Diagnosis(name="TLS", words="not used, as this machine serves it")
    elif answer.expires is not None:
        days = (answer.expires - datetime.now(UTC)).days
        soon = "tell who runs the service, or your proxy" if days < _EXPIRES_SOON else ""
        yield Diagnosis(name="TLS", words=f"the certificate is good for {days:,} more days", remedy=soon)
    if answer.date is not None:
        skew = (datetime.now(UTC) - answer.date).total_seconds()
        words = f"{abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} the service's"
        remedy = "set this machine's clock (NTP): dates in listings depend on it" if abs(skew) > _SKEW else ""
        yield Diagnosis(name="clock", words=words if remedy else "agrees with the service's", remedy=remedy)


def _unreached(url: URL, error: Exception) -> Diagnosis:
    """What stands in the way to the address, and what to do about it."""
    setting, at, name = "PAYMENTS_BASE_URL (--base-url)", f"{url.host}:{url.port}", "address"
    match error:
        case ssl.SSLCertVerificationError():
            name, words = "TLS", f"the certificate of {url.host} is not trusted: {error.verify_message}"
            remedy = f"check {setting}; for an authority of your own name its file with --ca-file"
        case ssl.SSLError():
            name, words, remedy = "TLS", f"{at} does not speak TLS", f"check host and port in {setting}"
        case socket.gaierror():
            words, remedy = f"there is no host {url.host}", f"check the spelling of {setting}"
        case TimeoutError():
            words, remedy = f"{at} does not answer", f"check {setting}, the network and the firewall"
        case ValueError():
            words, remedy = f"{at} does not speak HTTP", f"check host and port in {setting}"
        case _:
            words, remedy = f"{at} refuses the connection", f"check host and port in {setting}, and the network"
    return Diagnosis(name=name, words=words, remedy=remedy, status=Exit.FAILED)
