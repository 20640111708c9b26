"""The log of the package on standard error: each line with its facts, masked."""

import logging
import warnings

from payments_async import FactsFormatter
from payments_async._cli.screen import LogLevel, Screen


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
    log = logging.getLogger("payments_async")
    log.handlers = [logging.NullHandler() if level is None else _LogOnScreen(screen)]
    log.setLevel(logging.WARNING if level is None else level.upper())
    log.propagate = False

    warnings.showwarning = lambda message, *_, **__: screen.note(f"warning: {message}")
