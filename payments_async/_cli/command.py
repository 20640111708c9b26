"""How an async function becomes a command: its options, one event loop, errors to words and exit codes."""

import asyncio
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing
from decimal import localcontext
from functools import partial
from typing import Any, cast

import attrs
import typer
from typer.main import get_command

from payments_async import FactsFormatter, PaymentsError
from payments_async._cli.exit_codes import EXIT_CODES, BadInput, Declined, Exit
from payments_async._cli.help import PlainCommand
from payments_async._cli.profiles import SETTINGS, ProfileName, read_profile
from payments_async._cli.remedies import exit_of
from payments_async._cli.screen import LogLevel, Screen
from payments_async._cli.settings import NO_OPTION, ConnectionSettings, fill_in
from payments_async._cli.shortage import end_once_memory_lacks, remedy_of_shortage, words_of_shortage
from payments_async._cli.signals import interruptible, to_its_end

Command = Callable[..., Coroutine[Any, Any, Exit]]

_PROFILE = "profile"  # the option that every command has which takes something from a profile
_AGAIN = "nothing more was done; see how it stands, then give the same command again without a pipe"
_MEND = "mend what it names, then give the same command again"
_DIGITS = 100  # of sums: the usual 28 could round a great one


def made_command(name: str, function: Command) -> PlainCommand:
    """An async function as a command. Its docstring is the help, its parameters are the options.

    A parameter whose type is an attrs class brings the options that are the fields of the class. Those of ``screen``,
    which every command has, and of ``settings`` come last. Whatever a profile may fill in brings ``--profile``.
    """
    own = inspect.signature(function).parameters
    groups: dict[str, type] = {one.name: one.annotation for one in own.values() if attrs.has(one.annotation)}
    last = [own[name] for name in ("screen", "settings") if name in own]
    parameters: list[inspect.Parameter] = []
    for one in [one for one in own.values() if one not in last] + last:
        parameters += _options(groups[one.name]) if one.name in groups else [one]
    if any(one.name in SETTINGS for one in parameters):
        parameters.append(
            inspect.Parameter(_PROFILE, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ProfileName)
        )

    def run(**given: Any) -> None:
        raise typer.Exit(_run(function, groups, given))

    # typer builds the options from the signature
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    )
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    alone = typer.Typer(add_completion=False)
    alone.command(name, help=function.__doc__, epilog=EXIT_CODES, cls=PlainCommand)(run)
    made = cast(PlainCommand, get_command(alone))
    made.name_values(run.__annotations__)
    return made


def _options(group: type) -> list[inspect.Parameter]:
    """The options that are the fields of a class."""
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is attrs.NOTHING else field.default,
            annotation=field.type,
        )
        for field in attrs.fields(group)
        if field.init and not field.metadata.get(NO_OPTION)
    ]


def _run(function: Command, groups: dict[str, type], given: dict[str, Any]) -> int:
    """Run a command with what was given, and tell its exit status."""

    def gathered(group: type, **more: Any) -> Any:
        return group(**{option.name: given.pop(option.name) for option in _options(group)}, **more)

    acts = "yes" in given
    screen: Screen = gathered(Screen)
    show_log(screen)
    try:
        profile = read_profile(given.pop(_PROFILE)) if _PROFILE in given else None
        filled = {} if profile is None else fill_in(given, profile)
        for name, group in groups.items():
            more = {"profile": profile, "filled": filled} if group is ConnectionSettings else {}
            given[name] = screen if group is Screen else gathered(group, **more)
        _check_signed(given)
        if "settings" in groups:
            screen.secrets |= given["settings"].secrets
        do = partial(_attended, screen, function, given)
        # closed, where Ctrl-C comes before the loop has begun it: else Python would warn that nothing awaited it
        with interruptible(), localcontext(prec=_DIGITS), closing(to_its_end(do)) as work:
            return int(asyncio.run(work))
    except (BadInput, Declined) as error:
        return _refused(screen, error)
    except PaymentsError as error:
        if screen.debug:
            screen.traceback(error)
        screen.payments_error(error, exit_of(error))
        return exit_of(error)
    except BrokenPipeError:
        return _unread(screen, acts=acts)
    except Exception as error:  # noqa: BLE001 - Python's own traceback would not be masked
        return _failed(screen, error)
    except KeyboardInterrupt as error:
        return _told(screen, error, "stopped", Exit.STOPPED)


async def _attended(screen: Screen, function: Command, given: dict[str, Any]) -> Exit:
    """Do what a command does, in an event loop that does not wait for ever."""
    end_once_memory_lacks(partial(_failed, screen))
    return await function(**given)


def _unread(screen: Screen, *, acts: bool) -> int:
    """Tell on standard error that the reader of standard output has gone, unless the command only lists."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains again at its end
    if acts:
        screen.trouble("stopped: the reader of standard output has gone", _AGAIN)
    return Exit.STOPPED


def _refused(screen: Screen, error: BadInput | Declined) -> int:
    """Tell of what a command refuses, or cannot do for what the machine lacks; its exit status."""
    if remedy := remedy_of_shortage(error):
        return _told(screen, error, f"stopped: {error}", Exit.STOPPED, remedy)
    return _told(screen, error, str(error), error.status)


def _failed(screen: Screen, error: Exception) -> int:
    """Tell of an unforeseen error; its exit status."""
    from payments_async.journal import JournalError  # a help does not wait for it

    remedy = remedy_of_shortage(error)
    if isinstance(error, JournalError):
        return _told(screen, error, f"stopped: {error}", Exit.STOPPED, remedy or "")
    if remedy is None and not isinstance(error, OSError):
        screen.traceback(error)
        return _told(screen, error, f"an error of this program: {type(error).__name__}; please report it", 1)
    return _told(screen, error, f"stopped: {words_of_shortage(error)}", Exit.STOPPED, remedy or _MEND)


def _check_signed(given: Mapping[str, object]) -> None:
    """Refuse a decision without a name or a reason, whatever it decides."""
    signed = [given[name] for name in ("who", "why") if name in given]
    if len(signed) == 2 and any(isinstance(one, str) and not one.strip() for one in signed):
        raise BadInput("--who and --why: say who states it, and why; both are kept")


def _told(screen: Screen, error: BaseException, message: str, status: int, remedy: str = "") -> int:
    if screen.debug and status != 1:
        screen.traceback(error)
    screen.trouble(message, remedy)
    facts = {"kind": type(error).__name__, "message": message, **({"next_step": remedy} if remedy else {})}
    screen.document({"error": facts, "exit_status": status})
    return status


class _LogOnScreen(logging.Handler):
    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self.setFormatter(FactsFormatter(lambda: screen.secrets))

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.note(self.format(record))


def show_log(screen: Screen) -> None:
    """Send the log of the package, as far as somebody wants to see it, to standard error.

    Warnings of Python's, such as that of an incomplete listing, are shown in any case.
    """
    level = screen.log or (LogLevel.DEBUG if screen.debug else None)
    for name in ("payments_async", "asyncio"):  # whose own words would come with a traceback that nothing masks
        log = logging.getLogger(name)
        log.handlers = [logging.NullHandler() if level is None else _LogOnScreen(screen)]
        log.setLevel(logging.WARNING if level is None else level.upper())
        log.propagate = False

    warnings.showwarning = lambda message, *_, **__: screen.note(f"warning: {message}")
