"""Where the package's log and warnings go: nowhere by default, to standard error with --debug."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from payments_async._cli._screen import Screen

__all__ = ["show_log"]

_FACTS = ("request_id", "sender", "why", "error", "transaction_id", "event_id", "handler")


class _OnScreen(logging.Handler):
    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        facts = " ".join(f"{name}={getattr(record, name)}" for name in _FACTS if hasattr(record, name))
        self._screen.note(f"{record.levelname.lower()}: {record.getMessage()} {facts}".rstrip())


def show_log(screen: Screen) -> None:
    """Send the log and the warnings of the package to a screen."""
    log = logging.getLogger("payments_async")
    log.handlers = [_OnScreen(screen) if screen.debug else logging.NullHandler()]
    log.setLevel(logging.DEBUG if screen.debug else logging.WARNING)
    log.propagate = False

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        screen.note(f"warning: {message}")

    warnings.showwarning = show
