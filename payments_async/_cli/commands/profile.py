"""`payments-async profile show` and `set-secret`: settings under a name, and their secrets in the keyring."""

from typing import Annotated

import typer

from payments_async._cli.exit_codes import BadInput, Exit
from payments_async._cli.profiles import (
    DEFAULT,
    EXAMPLE,
    NO_HOME,
    SECRETS,
    keyring,
    profiles_file,
    read_profile,
    read_profiles,
)
from payments_async._cli.screen import Screen, quoted

_VARIABLES = {"app_key": "PAYMENTS_APP_KEY", "app_password": "PAYMENTS_APP_PASSWORD"}


async def profile_show(
    screen: Screen, name: Annotated[str | None, typer.Argument(help="Only this one.")] = None
) -> Exit:
    """Show the profiles, their settings and which of their secrets the keyring holds; or how to begin with one.

    A profile is a table of a file in TOML, with any of base_url, user_id, authorization, proxy, ca_file and journal.
    Options count more than the environment, and that more than a profile. Without --profile (or PAYMENTS_PROFILE) the
    one called default is used, if it is there. Secrets are never in the file: they are in the environment, or in the
    keyring. `doctor` shows where each setting is from.
    """
    profiles = read_profiles() if name is None else [read_profile(name)]
    path = profiles_file() or NO_HOME
    screen.say(f"{quoted(str(path))}{'' if profiles else ' has no profile yet. It may be begun as:'}")
    if not profiles:
        for line in EXAMPLE.splitlines():
            screen.command(line)
    told = []
    for one in profiles:
        kept = [secret for secret in SECRETS if one.secret(secret) is not None]
        screen.say(f"\n[bold]{quoted(one.name)}[/]")
        values = [(key, screen.person(value) if key == "user_id" else value) for key, value in one.values.items()]
        screen.fields([*values, *((secret, "*** in the keyring") for secret in kept)])
        told.append({"name": one.name, "settings": dict(values), "in_keyring": kept})
    if keyring() is None:
        screen.note("no keyring: install the extra, pip install 'payments-async[keyring]'")
    return screen.ended(Exit.FINE, {"file": str(path), "profiles": told})


async def profile_set_secret(
    screen: Screen,
    secret: Annotated[str, typer.Argument(help="app_key or app_password.")],
    name: Annotated[str, typer.Option("--profile", envvar="PAYMENTS_PROFILE", help="Of which profile.")] = DEFAULT,
    remove: Annotated[bool, typer.Option("--remove", help="Take it out of the keyring.")] = False,
) -> Exit:
    """Keep a secret of a profile in the keyring of this machine. It is typed unseen, or read from a pipe.

    Example: payments-async profile set-secret app_password --profile test
    """
    if secret not in SECRETS:
        raise BadInput(f"SECRET: must be one of {', '.join(SECRETS)}")
    profile = read_profile(name)
    if remove:
        profile.keep_secret(secret, None)
    else:
        text = screen.typed_unseen(f"{secret} of profile {profile.name}: ")
        if not text:
            raise BadInput(f"{secret}: nothing was given; type it, or pipe it in")
        screen.secrets.add(text)
        profile.keep_secret(secret, text)
    words = "is no longer in the keyring" if remove else "is in the keyring"
    screen.say(f"{secret} of profile {quoted(profile.name)} {words}; {_VARIABLES[secret]} counts more, where it is set")
    return screen.ended(Exit.FINE, {"profile": profile.name, "secret": secret, "kept": not remove})
