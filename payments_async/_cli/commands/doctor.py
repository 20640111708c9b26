"""`payments-async doctor`: what stands between this machine and the service, in words, with the remedy."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import attrs
from rich.markup import escape
from yarl import URL

from payments_async import PaymentsError, PaymentsSession
from payments_async._cli.exit_codes import BadInput, Exit, exit_of, remedy_of
from payments_async._cli.http import exchange
from payments_async._cli.screen import Screen, clean, money
from payments_async._cli.settings import ConnectionSettings

__all__ = ["doctor"]

_SKEW = 60.0  # seconds of difference that are worth a word
_EXPIRES_SOON = 14  # days


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


async def doctor(screen: Screen, settings: ConnectionSettings) -> Exit:
    """Check settings, address, TLS, clock, login and account, and say what to do about what is wrong.

    Moves no money.
    """
    findings = []
    async for finding in _examine(settings):
        findings.append(finding)
        mark = "[red]wrong[/]" if finding.status else "[yellow]look [/]" if finding.remedy else "[green]fine [/]"
        screen.say(f"{mark}  {finding.name:<9} {escape(clean(finding.words))}")
        if finding.remedy:
            screen.say(f"       {'':<9} [bold]{escape(clean(finding.remedy))}[/]")
    status = max((finding.status for finding in findings), default=Exit.FINE)
    screen.document({"findings": findings, "exit_status": status})
    return status


async def _examine(settings: ConnectionSettings) -> AsyncIterator[Diagnosis]:
    """Look at one thing after the other, until one is so wrong that the next makes no sense."""
    try:
        payments = settings.session()
    except BadInput as error:
        yield Diagnosis(name="settings", words=str(error), remedy="correct what is named", status=Exit.BAD_INPUT)
        return
    yield Diagnosis(name="settings", words="all are set")
    if settings.proxy is None:
        async for finding in _reach(URL(payments.base_url), settings):
            yield finding
            if finding.status:
                return
    else:
        yield Diagnosis(name="address", words=f"{payments.base_url}, through a proxy: TLS and clock are not looked at")
    async with payments:
        async for finding in _enter(payments):
            yield finding


async def _reach(url: URL, settings: ConnectionSettings) -> AsyncIterator[Diagnosis]:
    try:
        answer = await exchange("HEAD", url, tls=settings.tls)
    except (OSError, ValueError) as error:
        yield _unreached(url, error)
        return
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
    setting = "PAYMENTS_BASE_URL (--base-url)"
    match error:
        case ssl.SSLCertVerificationError():
            words = f"the certificate of {url.host} is not trusted: {error.verify_message}"
            remedy = f"check {setting}; for an authority of your own name its file with --ca-file"
            return Diagnosis(name="TLS", words=words, remedy=remedy, status=Exit.FAILED)
        case ssl.SSLError():
            words = f"{url.host}:{url.port} does not speak TLS"
            remedy = f"check host and port in {setting}"
            return Diagnosis(name="TLS", words=words, remedy=remedy, status=Exit.FAILED)
        case socket.gaierror():
            words, remedy = f"there is no host {url.host}", f"check the spelling of {setting}"
        case TimeoutError():
            words, remedy = f"{url.host}:{url.port} does not answer", f"check {setting}, the network and the firewall"
        case ValueError():
            words, remedy = f"{url.host}:{url.port} does not speak HTTP", f"check host and port in {setting}"
        case _:
            words = f"{url.host}:{url.port} refuses the connection"
            remedy = f"check host and port in {setting}, and the network"
    return Diagnosis(name="address", words=words, remedy=remedy, status=Exit.FAILED)


async def _enter(payments: PaymentsSession) -> AsyncIterator[Diagnosis]:
    try:
        await payments.log_in()
        yield Diagnosis(name="login", words="the credentials are taken")
    except PaymentsError as error:
        yield _refused("login", error)
        return
    try:
        account = await payments.accounts.get()
    except PaymentsError as error:
        yield _refused("account", error)
        return
    yield Diagnosis(name="account", words=f"holds {money(account.balance, account.currency)}")


def _refused(name: str, error: PaymentsError) -> Diagnosis:
    return Diagnosis(name=name, words=error.message, remedy=remedy_of(error), status=exit_of(error))
