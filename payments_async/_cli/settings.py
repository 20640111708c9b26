"""Settings of the connection: their options, and a remedy where one is missing or wrong."""

import os
import ssl
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import attrs
import typer

from payments_async import Credentials, Dialect, HttpConnection, Limits, PaymentsSession
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.journal import JournalPlace
from payments_async._cli.profiles import Profile
from payments_async._cli.remedies import reason_of
from payments_async._values.masking import mask

Scheme = Literal["Token", "Bearer", "auto"]

NO_OPTION = "no option"  # marks a field that is not an option of a command
BASE_URL, PASSWORD = "PAYMENTS_BASE_URL", "PAYMENTS_APP_PASSWORD"
APP_KEY, USER_ID = "PAYMENTS_APP_KEY", "PAYMENTS_USER_ID"
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
        profile: That fills in what is missing.
        filled: What it has filled in.
        app_password: Never an option: options show in the list of processes.
        kept_key: An application key that is in the keyring; of no use where another one was given.
    """

    base_url: Annotated[str | None, _connection("https://host:port/prefix", envvar=BASE_URL)] = None
    app_key: Annotated[str | None, _connection("Application key.", envvar=APP_KEY)] = attrs.field(
        default=None, repr=False
    )
    user_id: Annotated[str | None, _connection("The delegated user.", envvar=USER_ID)] = attrs.field(
        default=None, repr=False
    )
    password_file: Annotated[
        Path | None, _connection("A file with the application password, or - ; else PAYMENTS_APP_PASSWORD is read.")
    ] = None
    authorization: Annotated[
        str | None, _connection("How the token is sent: Token, Bearer or auto; Token by default.")
    ] = None
    proxy: Annotated[str | None, _connection("HTTP proxy; else those of the environment count.")] = attrs.field(
        default=None, repr=False
    )
    ca_file: Annotated[Path | None, _connection("Certificate authorities, as PEM.")] = None
    profile: Profile | None = attrs.field(default=None, metadata={NO_OPTION: True}, repr=False)
    filled: Collection[str] = attrs.field(default=(), metadata={NO_OPTION: True})
    app_password: str | None = attrs.field(init=False, repr=False)
    kept_key: str | None = attrs.field(init=False, repr=False)

    @app_password.default
    def _(self) -> str | None:
        return _read_password(self.password_file) or self._kept("app_password")

    @kept_key.default
    def _(self) -> str | None:
        return None if self.app_key else self._kept("app_key")

    def _kept(self, name: str) -> str | None:
        return None if self.profile is None else self.profile.secret(name)

    @property
    def application(self) -> str:
        """The application key, wherever it is from; empty where there is none."""
        return self.app_key or self.kept_key or ""

    @property
    def origins(self) -> list[tuple[str, str, str]]:
        """Each setting that is set, as it may be shown, and where it is from."""
        password = self.app_password and "***"
        key = self.application and "***"
        known: dict[str, tuple[str | None, str]] = {
            "base_url": (self.base_url and _without_password(self.base_url), self._origin("base_url", BASE_URL)),
            "app_key": (key, self._origin("app_key", APP_KEY) if self.app_key else self._keyring),
            "app_password": (password, self._password_origin),
            "user_id": (self.user_id and mask(self.user_id), self._origin("user_id", USER_ID)),
            "authorization": (self.authorization, self._origin("authorization")),
            "proxy": (self.proxy and _without_password(self.proxy), self._origin("proxy")),
            "ca_file": (None if self.ca_file is None else str(self.ca_file), self._origin("ca_file")),
        }
        return [(name, shown, origin) for name, (shown, origin) in known.items() if shown]

    @property
    def _keyring(self) -> str:
        return f"the keyring, for profile {'' if self.profile is None else self.profile.name}"

    @property
    def _password_origin(self) -> str:
        if self.password_file is not None:
            return "--password-file"
        return PASSWORD if os.environ.get(PASSWORD) else self._keyring

    def _origin(self, name: str, variable: str = "") -> str:
        """Where a setting is from: an option counts more than the environment, and that more than a profile."""
        if name in self.filled and self.profile is not None:
            return f"profile {self.profile.name}"
        if variable and os.environ.get(variable) == getattr(self, name):
            return variable
        return f"--{name.replace('_', '-')}"

    @property
    def secrets(self) -> set[str]:
        """Texts that nothing may show."""
        return {text for text in (self.app_password, self.application, self.user_id) if text and len(text) > 3}

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
        needed = {
            "base_url": self.base_url,
            "app_key": self.application,
            "app_password": self.app_password,
            "user_id": self.user_id,
        }
        if missing := [_SOURCES[name] for name, value in needed.items() if not value]:
            where = ""
            if self.profile is not None and self.profile.is_there:
                where = (
                    f" (nor in profile {self.profile.name}, whose secrets `payments-async profile set-secret` keeps)"
                )
            raise BadInput(f"not set: {', '.join(missing)}{where}; {_TRY_SANDBOX}")
        try:
            credentials = Credentials(
                app_key=self.application, app_password=self.app_password or "", user_id=self.user_id or ""
            )
            return PaymentsSession(
                self.base_url or "",
                credentials,
                limits=limits,
                dialect=Dialect(authorization_scheme=cast(Scheme, self.authorization or "Token")),
                connection=HttpConnection(ssl=self.tls, proxy=self.proxy, trust_env=self.proxy is None),
            )
        except ValueError as error:
            raise BadInput(_named(str(error))) from error


def fill_in(given: dict[str, Any], profile: Profile) -> Collection[str]:
    """Take from a profile what neither an option nor the environment has given; tells what that was."""
    made: Mapping[str, Callable[[str], Any]] = {"ca_file": Path, "journal": JournalPlace}
    missing = [name for name in profile.values if name in given and given[name] is None]
    given |= {name: made.get(name, str)(profile.values[name]) for name in missing}
    return missing


def _without_password(address: str) -> str:
    """An address without whoever logs in there."""
    before, slashes, rest = address.partition("://")
    return f"{before}{slashes}{rest.rpartition('@')[2]}"


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
