"""The one question before money moves, or before somebody takes responsibility. Only a clear yes is one."""

from __future__ import annotations

import signal
import sys

from payments_async._cli._exits import BadInput
from payments_async._cli._screen import Screen

__all__ = ["confirmed"]


def confirmed(screen: Screen, question: str, *, otherwise: str = "nothing was done", option: str = "--yes") -> bool:
    """Whether the person at the terminal says yes.

    Args:
        otherwise: What became of it where nobody can be asked.
        option: What says yes there.

    Raises:
        BadInput: There is no terminal to ask at.
    """
    if screen.as_json or not sys.stdin.isatty() or not sys.stdout.isatty():
        raise BadInput(f"{option}: needed where there is no terminal to ask at; {otherwise}")
    # asyncio's own handler would let the question stand until a second Ctrl-C
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input(f"\n{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
    except KeyboardInterrupt:
        screen.say()  # what comes next begins on a line of its own
        screen.trouble(otherwise)
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
