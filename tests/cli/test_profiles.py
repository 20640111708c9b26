"""Profiles: settings by a name, secrets in the environment or the keyring alone, and where each setting is from."""

import json
import pwd
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from bulk.files import MTN
from cli.commands import CTRL_C, NO_SERVICE, Run
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoKeyring
from keyring.errors import KeyringLocked, PasswordDeleteError

from payments_async.sandbox import Sandbox

NO_SETTINGS: dict[str, str | None] = dict.fromkeys(
    ("PAYMENTS_BASE_URL", "PAYMENTS_APP_KEY", "PAYMENTS_APP_PASSWORD", "PAYMENTS_USER_ID")
)


class Drawer(KeyringBackend):
    """A keyring that is a dictionary."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.is_locked:
            raise KeyringLocked("it is locked")
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError


def write(file: Path, text: str) -> None:
    """Put profiles into their file."""
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def drawer() -> Iterator[Drawer]:
    """The keyring of this machine, for as long as the test runs."""
    before, drawer = keyring.get_keyring(), Drawer()
    keyring.set_keyring(drawer)
    yield drawer
    keyring.set_keyring(before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the profiles are, which is in the user's folder of settings."""
    path = tmp_path / "config" / "payments-async" / "profiles.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
async def kept(run: Run, sandbox: Sandbox, file: Path, drawer: Drawer) -> Drawer:
    """A default profile of the sandbox, its secrets in the keyring; and another one that leads nowhere."""
    ours = f'[default]\nbase_url = "{sandbox.base_url}"\nuser_id = "{sandbox.user_id}"\n'
    write(file, f'{ours}[away]\nbase_url = "{NO_SERVICE}"\n')
    for name, text in (("app_key", sandbox.app_key), ("app_password", sandbox.app_password)):
        assert 0 == (await run("profile", "set-secret", name, typed=f"{text}\n", **NO_SETTINGS)).status
    return drawer


async def test_a_profile_is_all_that_is_needed(run: Run, kept: Drawer) -> None:
    """Address and user from the file, secrets from the keyring, and nothing in the environment."""
    assert {("payments-async", "default/app_key"), ("payments-async", "default/app_password")} == set(kept.kept)
    ran = await run("account", **NO_SETTINGS)
    assert (0, True) == (ran.status, "1,000,000,000 UGX" in ran.out)


async def test_options_count_more_than_the_environment_and_that_more_than_a_profile(
    run: Run, sandbox: Sandbox, kept: Drawer
) -> None:
    """The doctor says of each setting where it is from, and shows no secret."""
    settings = {**NO_SETTINGS, "PAYMENTS_USER_ID": "somebody", "PAYMENTS_BASE_URL": NO_SERVICE}
    ran = await run("doctor", "--base-url", sandbox.base_url, "--json", **settings)
    origins = {one["setting"]: one["from"] for one in json.loads(ran.out)["settings"]}
    assert {
        "base_url": "--base-url",
        "app_key": "the keyring, for profile default",
        "app_password": "the keyring, for profile default",
        "user_id": "PAYMENTS_USER_ID",
    } == origins
    shown = await run("doctor", **NO_SETTINGS)
    assert (0, 2) == (shown.status, shown.out.count("from profile default"))
    assert sandbox.app_key not in shown.out


async def test_a_profile_is_chosen_by_its_name(run: Run, kept: Drawer) -> None:
    """By --profile or the environment; one that is not there names those that are."""
    assert "user_id" not in (await run("profile", "show", "away", **NO_SETTINGS)).out
    for chosen in ({"PAYMENTS_PROFILE": "away"}, {}):
        options = [] if chosen else ["--profile", "away"]
        ran = await run("account", *options, **NO_SETTINGS, **chosen)
        assert (2, True) == (ran.status, "nor in profile away" in ran.said)
    assert "no profile nowhere" in (missing := await run("account", "--profile", "nowhere")).said
    assert "it has default, away" in missing.said


async def test_a_journal_of_a_profile_is_that_of_every_command(run: Run, file: Path, tmp_path: Path) -> None:
    """It counts less than PAYMENTS_JOURNAL, as every setting of a profile."""
    write(file, f'[default]\njournal = "{tmp_path / "of.sqlite"}"\n')
    assert f"there is no file {tmp_path / 'of.sqlite'}" in (await run("bulk", "status")).said
    assert "no file other.sqlite" in (await run("bulk", "status", PAYMENTS_JOURNAL="other.sqlite")).said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param('app_password = "hush"', "set-secret app_password --profile default", id="a-password"),
        pytest.param('api_token = "hush"', "holds a secret, api_token", id="another-secret"),
        pytest.param('journal = "postgresql://me:hush@db/pay"', "holds a password", id="a-password-in-an-address"),
        pytest.param('journal = "postgresql://db/pay?password=hush"', "holds a password", id="as-a-parameter"),
        pytest.param('jurnal = "a"', "jurnal, which is not a setting; there are base_url", id="mistyped"),
        pytest.param('journal = "a.sqlite"', "must be a whole path", id="a-path-of-any-folder"),
        pytest.param("user_id = 17", "must be a text in quotes", id="a-number"),
        pytest.param("user_id = hush", "is not valid TOML", id="no-toml"),
        pytest.param(f"user_id = {'[' * 3000}", "is not valid TOML: it is nested too deeply", id="nested"),
    ],
)
async def test_what_a_file_must_not_hold_is_refused_with_the_remedy(
    run: Run, file: Path, line: str, words: str
) -> None:
    """Before anything is done with it, and without a secret in the words."""
    write(file, f"[default]\n{line}\n")
    ran = await run("account")
    assert (2, True) == (ran.status, words in ran.said)
    assert "hush" not in ran.said


async def test_a_secret_outside_of_a_profile_is_refused(run: Run, file: Path) -> None:
    """Nor is its name shown, which may be the secret itself."""
    write(file, 'app_password = "hush"\n')
    assert "a secret stands outside of a profile" in (await run("account")).said


async def test_a_secret_is_taken_out_again(run: Run, kept: Drawer) -> None:
    """Once; then there is none."""
    remove = ("profile", "set-secret", "app_key", "--remove")
    assert [0, 2] == [(await run(*remove)).status for _ in range(2)]
    assert {("payments-async", "default/app_password")} == set(kept.kept)


async def test_what_is_wrong_with_a_secret_is_said(run: Run, kept: Drawer) -> None:
    """None was given, it has no such name, or the keyring says no."""
    assert "nothing was given" in (await run("profile", "set-secret", "app_key")).said
    assert "must be one of app_key, app_password" in (await run("profile", "set-secret", "password")).said
    kept.is_locked = True
    ran = await run("account", **NO_SETTINGS)
    assert (2, True) == (ran.status, "the keyring does not give app_password of profile default" in ran.said)


async def test_a_machine_without_a_keyring(run: Run, kept: Drawer) -> None:
    """Secrets are in the environment there, and nothing else changes."""
    keyring.set_keyring(NoKeyring())
    assert "this machine has no keyring" in (await run("profile", "set-secret", "app_key", typed="x\n")).said
    assert "not set: PAYMENTS_APP_KEY" in (await run("account", **NO_SETTINGS)).said
    assert 0 == (await run("account")).status


@pytest.mark.slow
async def test_a_secret_is_typed_unseen(run_on_terminal: Run, file: Path) -> None:
    """Ctrl-C in its place changes nothing, and is no traceback."""
    write(file, "[default]\n")
    ran = await run_on_terminal(
        "profile",
        "set-secret",
        "app_key",
        typed=CTRL_C,
        when=lambda shown: "app_key of" in shown,
    )
    assert (5, True) == (ran.status, "stopped" in ran.out)
    assert "Traceback" not in ran.out


async def test_who_has_no_profile_is_told_how_to_begin(run: Run) -> None:
    """With a file that is right as it stands, but for its values."""
    shown = (await run("profile", "show")).out
    assert "has no profile yet" in shown
    assert "[default]" in shown


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """A user whom the system does not know, as in a container that runs under any number."""

    def unknown(user: int) -> object:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    return dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"))


async def test_a_user_without_a_home_needs_none(
    run: Run, homeless: dict[str, str | None], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given by options and the environment works; what is kept in a home says what to set."""
    monkeypatch.chdir(tmp_path)
    assert 0 == (await run("doctor", **homeless)).status
    shown = await run("profile", "show", **homeless)
    assert (0, True) == (shown.status, "this user has no home folder: set XDG_CONFIG_HOME" in shown.said)
    named = await run("account", "--profile", "test", **homeless)
    assert (2, True) == (named.status, "no profile test in $XDG_CONFIG_HOME" in named.said)
    pay = ("pay", "--request-id", "v", "--amount", "5000", "--wallet", "0772000017", "--name", "Ann", "--item", MTN)
    sent = await run(*pay, "--yes", "--journal", "j.sqlite", "--new-journal", **homeless)
    assert 0 == sent.status
    status = await run("outbox", "status", "--journal", "j.sqlite", **homeless)
    assert (2, True) == (status.status, "there is no outbox yet" in status.said)
    write(file, '[default]\njournal = "~/j.sqlite"\n')
    kept = await run("account", **{**homeless, "XDG_CONFIG_HOME": str(tmp_path / "config")})
    assert (2, True) == (kept.status, "must be a whole path" in kept.said)
    assert "report it" not in shown.said + named.said + sent.said + status.said + kept.said
