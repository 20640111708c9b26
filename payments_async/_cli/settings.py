"""Settings of the connection: their options, and a remedy where one is missing or wrong."""

import os
import ssl
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import attrs
import typer

from payments_async import Credentials, Dialect, Limits, PaymentsSession
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.remedies import reason_of

Scheme = Literal["Token", "Bearer", "auto"]

BASE_URL, PASSWORD = "PAYMENTS_BASE_URL", "PAYMENTS_APP_PASSWORD"
_SOURCES = {
    "base_url": f"{BASE_URL} (--base-url)",
    "app_key": "PAYMENTS_APP_KEY (--app-key)",
    "app_password": f"{PASSWORD} (--password-file)",
    "user_id": "PAYMENTS_USER_ID (--user-id)",
    "proxy": "--proxy",
    "authorization_scheme": "--authorization",
}
_IN_OUR_WORDS = {
    "pass Credentials": "set PAYMENTS_APP_KEY and PAYMENTS_APP_PASSWORD instead",
    " (or set Dialect(api_prefix=''))": "",
}
_TRY_SANDBOX = "without a service at hand, `payments-async sandbox` starts a simulated one and prints its settings"


def _connection(about: str, **more: Any) -> Any:
    return typer.Option(help=about, rich_help_panel="Connection", show_default=False, **more)


@attrs.frozen(kw_only=True)
class ConnectionSettings:
    """How to reach the service and who we are there.

    Attributes:
        app_password: Never an option: options show in the list of processes.
    """

    base_url: Annotated[str | None, _connection("https://host:port/prefix", envvar=BASE_URL)] = None
    app_key: Annotated[str | None, _connection("Application key.", envvar="PAYMENTS_APP_KEY")] = attrs.field(
        default=None, repr=False
    )
    user_id: Annotated[str | None, _connection("The delegated user.", envvar="PAYMENTS_USER_ID")] = attrs.field(
        default=None, repr=False
    )
    password_file: Annotated[
        Path | None, _connection("A file with the application password, or - ; else PAYMENTS_APP_PASSWORD is read.")
    ] = None
    authorization: Annotated[str, _connection("How the token is sent: Token, Bearer or auto.")] = "Token"
    proxy: Annotated[str | None, _connection("HTTP proxy; else those of the environment count.")] = attrs.field(
        default=None, repr=False
    )
    ca_file: Annotated[Path | None, _connection("Certificate authorities, as PEM.")] = None
    app_password: str | None = attrs.field(init=False, repr=False)

    @app_password.default
    def _(self) -> str | None:
        return _read_password(self.password_file)

    @property
    def secrets(self) -> set[str]:
        """Texts that nothing may show."""
        return {text for text in (self.app_password, self.app_key, self.user_id) if text and len(text) > 3}

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS settings, or ``None`` for the usual ones.

        Raises:
            BadInput: When ``--ca-file`` holds no certificate.
        """
        if self.ca_file is None:
            return None
        try:
            return ssl.create_default_context(cafile=str(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            raise BadInput(f"--ca-file: {self.ca_file} holds no certificate in PEM form") from error

    def session(self, limits: Limits | None = None) -> PaymentsSession:
        """An unopened session.

        Args:
            limits: In place of the usual ones, for whoever sends many.

        Raises:
            BadInput: When a setting is missing or cannot be right.
        """
        needed = ("base_url", "app_key", "app_password", "user_id")
        if missing := [_SOURCES[name] for name in needed if not getattr(self, name)]:
            raise BadInput(f"not set: {', '.join(missing)}; {_TRY_SANDBOX}")
        try:
            credentials = Credentials(
                app_key=self.app_key or "", app_password=self.app_password or "", user_id=self.user_id or ""
            )
            return PaymentsSession(
                self.base_url or "",
                credentials,
                limits=limits,
                dialect=Dialect(authorization_scheme=cast(Scheme, self.authorization)),
                ssl=self.tls,
                proxy=self.proxy,
                trust_env=self.proxy is None,
            )
        except ValueError as error:
            raise BadInput(_named(str(error))) from error


def _named(message: str) -> str:
    """A complaint of the package with its field replaced by the setting a person can change."""
    for theirs, ours in _IN_OUR_WORDS.items():
        message = message.replace(theirs, ours)
    field, colon, rest = message.partition(":")
    return f"{_SOURCES[field]}:{rest}" if colon and field in _SOURCES else message


def _read_password(path: Path | None) -> str | None:
    """The password from a file, the environment, or a person at the terminal.

    Args:
        path: ``--password-file``; ``-`` is standard input.

    Raises:
        BadInput: When the file cannot be read or is empty.
    """
    if path is None:
        return os.environ.get(PASSWORD) or None
    try:
        text = sys.stdin.readline() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise BadInput(f"--password-file: {path} cannot be read ({reason_of(error)})") from error
    password = text.strip("\r\n")
    if not password:
        raise BadInput(f"--password-file: {path} is empty")
    return password
