"""How an async function becomes a command: common options, one event loop, errors to words and exit codes."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from payments_async import PaymentsError
from payments_async._cli._exits import EXIT_CODES, BadInput, Exit, exit_of
from payments_async._cli._log import show_log
from payments_async._cli._screen import Screen
from payments_async._cli._settings import Settings, read_password

__all__ = ["command"]

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Exit]])
_CONNECTION = "Connection"


def command(app: typer.Typer, name: str) -> Callable[[Handler], Handler]:
    """Add an async function as a command. Its docstring is the help, its parameters are the options.

    Two parameters are special: ``screen``, which every command has, brings ``--json``, ``--show-personal`` and
    ``--debug``; ``settings`` brings the options of the connection.
    """

    def add(function: Handler) -> Handler:
        own = inspect.signature(function, eval_str=True).parameters
        connects = "settings" in own
        shared = _SCREEN | (_SETTINGS if connects else {})
        parameters = [one for one in own.values() if one.name not in ("screen", "settings")] + list(shared.values())

        def run(**given: Any) -> None:
            raise typer.Exit(_run(function, connects, given))

        # typer builds the options from the signature
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        )
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        app.command(name, help=function.__doc__, epilog=EXIT_CODES)(run)
        return function

    return add


def _run(function: Callable[..., Awaitable[Exit]], connects: bool, given: dict[str, Any]) -> int:
    screen = Screen(**{name: given.pop(name) for name in _SCREEN})
    show_log(screen)
    try:
        if connects:
            given["settings"] = _settings(screen, given)
        return int(asyncio.run(_awaited(function, screen, given)))
    except BadInput as error:
        return _told(screen, error, str(error), Exit.BAD_INPUT)
    except PaymentsError as error:
        if screen.debug:
            screen.traceback(error)
        screen.payments_error(error, exit_of(error))
        return exit_of(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again at its end
        return Exit.STOPPED
    except Exception as error:  # noqa: BLE001 - Python's own traceback would not be masked
        screen.traceback(error)
        return _told(screen, error, f"an error of this program: {type(error).__name__}; please report it", 1)
    except KeyboardInterrupt as error:
        return _told(screen, error, "stopped", Exit.STOPPED)


def _told(screen: Screen, error: BaseException, message: str, status: int) -> int:
    if screen.debug and status != 1:
        screen.traceback(error)
    screen.trouble(message)
    screen.document({"error": {"kind": type(error).__name__, "message": message}, "exit_status": status})
    return status


async def _awaited(function: Callable[..., Awaitable[Exit]], screen: Screen, given: dict[str, Any]) -> Exit:
    return await function(screen=screen, **given)


def _settings(screen: Screen, given: dict[str, Any]) -> Settings:
    chosen = {name: given.pop(name) for name in _SETTINGS}
    password = read_password(chosen.pop("password_file"))
    screen.secrets |= {text for text in (password, chosen["app_key"], chosen["user_id"]) if text and len(text) > 3}
    return Settings(app_password=password, **chosen)


def _option(name: str, annotation: object, default: object = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _table(*options: inspect.Parameter) -> dict[str, inspect.Parameter]:
    return {option.name: option for option in options}


def _connection(flag: str, about: str, **more: Any) -> Any:
    return typer.Option(flag, help=about, rich_help_panel=_CONNECTION, show_default=False, **more)


_SCREEN = _table(
    _option("as_json", Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")], False),
    _option(
        "show_personal",
        Annotated[bool, typer.Option("--show-personal", help="Names and numbers in full, not masked.")],
        False,
    ),
    _option("debug", Annotated[bool, typer.Option("--debug", help="A traceback with an error, masked.")], False),
)
_SETTINGS = _table(
    _option(
        "base_url",
        Annotated[str | None, _connection("--base-url", "https://host:port/prefix", envvar="PAYMENTS_BASE_URL")],
    ),
    _option("app_key", Annotated[str | None, _connection("--app-key", "Application key.", envvar="PAYMENTS_APP_KEY")]),
    _option(
        "user_id", Annotated[str | None, _connection("--user-id", "The delegated user.", envvar="PAYMENTS_USER_ID")]
    ),
    _option(
        "password_file",
        Annotated[
            Path | None,
            _connection(
                "--password-file", "A file with the application password, or - ; else PAYMENTS_APP_PASSWORD is read."
            ),
        ],
    ),
    _option(
        "authorization",
        Annotated[str, _connection("--authorization", "How the token is sent: Token, Bearer or auto.")],
        "Token",
    ),
    _option("proxy", Annotated[str | None, _connection("--proxy", "HTTP proxy; else those of the environment count.")]),
    _option("ca_file", Annotated[Path | None, _connection("--ca-file", "Certificate authorities, as PEM.")]),
)
