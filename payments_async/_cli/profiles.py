"""Profiles: settings under a name, in a file of the user's, and their secrets in the keyring and never in the file."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import attrs
import typer

from payments_async._cli.exit_codes import BadInput
from payments_async._cli.remedies import reason_of

DEFAULT = "default"  # is used where none is named
SECRETS = ("app_key", "app_password")
SETTINGS = ("base_url", "user_id", "authorization", "proxy", "ca_file", "journal")
EXAMPLE = """[default]
base_url = "https://host:port/prefix"
user_id = "USER"
journal = "~/payroll.sqlite"
"""
NO_HOME = "$XDG_CONFIG_HOME/payments-async/profiles.toml (this user has no home folder: set XDG_CONFIG_HOME)"
_SERVICE = "payments-async"  # what our secrets are called in a keyring
_TELLING = ("key", "password", "secret", "token")  # in the name of what is not a setting, but a secret
_FILES = ("journal", "ca_file")

ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile", envvar="PAYMENTS_PROFILE", help="Settings of this name; see `payments-async profile show`."
    ),
]


@attrs.frozen(kw_only=True)
class Profile:
    """Settings under a name.

    Attributes:
        values: By the names of ``SETTINGS``.
        is_there: The file has it.
    """

    name: str
    values: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    is_there: bool = True

    def secret(self, name: str) -> str | None:
        """A secret from the keyring; ``None`` where there is no profile, no keyring or no such secret.

        Raises:
            BadInput: The keyring is there, and says no.
        """
        library = keyring() if self.is_there else None
        if library is None:
            return None
        try:
            found: str | None = library.get_password(_SERVICE, f"{self.name}/{name}")
        except library.errors.NoKeyringError:
            return None
        except library.errors.KeyringError as error:
            raise BadInput(f"the keyring does not give {name} of profile {self.name}: {reason_of(error)}") from error
        return found or None

    def keep_secret(self, name: str, text: str | None) -> None:
        """Put a secret into the keyring, or take it out.

        Raises:
            BadInput: There is no keyring, or it says no.
        """
        library = keyring()
        if library is None:
            raise BadInput("there is no keyring; install the extra: pip install 'payments-async[keyring]'")
        try:
            if text is None:
                library.delete_password(_SERVICE, f"{self.name}/{name}")
            else:
                library.set_password(_SERVICE, f"{self.name}/{name}", text)
        except library.errors.PasswordDeleteError as error:
            raise BadInput(f"the keyring has no {name} of profile {self.name}") from error
        except library.errors.NoKeyringError as error:
            raise BadInput("this machine has no keyring; set the variables of the environment instead") from error
        except library.errors.KeyringError as error:
            raise BadInput(f"the keyring does not keep it: {reason_of(error)}") from error


def keyring() -> ModuleType | None:
    """The library that speaks to the keyring of this machine, which is an extra."""
    try:
        import keyring as library
        import keyring.errors
    except ModuleNotFoundError:
        return None
    return library


def user_folder(kind: Literal["config", "data"]) -> Path | None:
    """A folder of this user's; ``None`` where the user has no home."""
    import platformdirs  # a help needs none

    find = platformdirs.user_config_path if kind == "config" else platformdirs.user_data_path
    try:
        folder = find("payments-async", appauthor=False)
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None  # older versions of that library leave the ~ in it


def profiles_file() -> Path | None:
    """Where profiles are; ``None`` where the user has no home."""
    folder = user_folder("config")
    return None if folder is None else folder / "profiles.toml"


def read_profile(name: str | None) -> Profile:
    """A profile; the default one, which need not be there, where none is named.

    Raises:
        BadInput: There is none of that name, or the file cannot be right.
    """
    found = {one.name: one for one in read_profiles()}
    if name is None:
        return found.get(DEFAULT, Profile(name=DEFAULT, is_there=False))
    if name not in found:
        there = f"it has {', '.join(found)}" if found else "it has none, or is not there"
        where = profiles_file() or NO_HOME
        raise BadInput(f"--profile: no profile {name} in {where}; {there}")
    return found[name]


def read_profiles() -> list[Profile]:
    """All profiles.

    Raises:
        BadInput: The file cannot be read, or holds what it must not: a secret, or what is not a setting.
    """
    path = profiles_file()
    if path is None:
        return []
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, UnicodeError) as error:
        raise BadInput(f"{path} cannot be read ({reason_of(error)})") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BadInput(f"{path} is not valid TOML: {reason}") from error
    return [Profile(name=name, values=dict(_settings(path, name, table))) for name, table in tables.items()]


def _settings(path: Path, name: str, table: Any) -> Iterator[tuple[str, str]]:
    """The settings of one profile."""
    if not isinstance(table, dict):
        raise BadInput(f"{path}: {_shown(name)} stands outside of a profile; write it below a line such as [{DEFAULT}]")
    for setting, value in table.items():
        if setting not in SETTINGS and any(word in setting.lower() for word in _TELLING):
            raise BadInput(
                f"{path}: [{name}] holds a secret, {setting}, which anybody may read who reads the file. Take it out, "
                "have it changed if others may have seen it, and keep it with `payments-async profile set-secret "
                f"app_password --profile {name}`, or in PAYMENTS_APP_KEY and PAYMENTS_APP_PASSWORD"
            )
        if setting not in SETTINGS:
            raise BadInput(f"{path}: [{name}] holds {setting}, which is not a setting; there are {', '.join(SETTINGS)}")
        if not isinstance(value, str) or not value:
            raise BadInput(f'{path}: [{name}] {setting} must be a text in quotes, as in {setting} = "..."')
        if _has_password(value):
            raise BadInput(
                f"{path}: the address in [{name}] {setting} holds a password, which anybody may read who reads the "
                "file. Take it out; for a database it may stand in ~/.pgpass"
            )
        yield setting, _in_full(path, name, setting, value) if setting in _FILES else value


def _in_full(path: Path, name: str, setting: str, value: str) -> str:
    """A path that means the same in every folder; an address as it is."""
    if "://" in value:
        return value
    with suppress(RuntimeError):  # the user has no home
        value = str(Path(value).expanduser())
    file = Path(value)
    if not file.is_absolute():
        raise BadInput(f"{path}: [{name}] {setting} must be a whole path, as in ~/payroll.sqlite, or an address")
    return str(file)


def _has_password(value: str) -> bool:
    """Whether an address names somebody with a password."""
    _, is_address, rest = value.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    return bool(is_address) and ((bool(at) and ":" in user) or "password=" in rest)


def _shown(name: str) -> str:
    return "a secret" if any(word in name.lower() for word in _TELLING) else name
