"""The log of the package on standard error: each line with its facts, masked."""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from payments_async._cli.screen import LogLevel, Screen
from payments_async._masking import escape, redact

# What every record has; all else is a fact that came with its message.
_OWN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
_NAMES_AN_ORDER = frozenset({"request_id", "transaction_id", "batch_id"})  # also where it looks like a telephone


class FactsFormatter(logging.Formatter):
    """Writes when, how grave and what, and after it the facts that came beside the message and are not in it.

    Args:
        secrets: Gives texts that are hidden wherever they would appear.
    """

    def __init__(self, secrets: Callable[[], Iterable[str]] = tuple) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """The line, and a traceback below it where the record has one."""
        said = self._masked(record.getMessage())
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        lines = [" ".join((at, record.levelname.lower(), said, *self._facts(record, said)))]
        if record.exc_info:
            lines += map(self._masked, self.formatException(record.exc_info).splitlines())
        return "\n".join(lines)

    def _facts(self, record: logging.LogRecord, said: str) -> Iterator[str]:
        """What came beside a message and is not in it, as name=value."""
        for name, value in vars(record).items():
            text = escape(str(value)) if name in _NAMES_AN_ORDER else self._masked(str(value))
            if name not in _OWN and value not in (None, "") and text not in said:
                yield f"{name}={text!r}" if " " in text else f"{name}={text}"

    def _masked(self, text: str) -> str:
        return redact(text, self._secrets())


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
