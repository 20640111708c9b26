"""Lines of the log with the facts that came beside them, masked: for people, or as JSON for machines."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from payments_async._values.masking import escape, redact

# What every record has, and a traceback, which is shown below; all else is a fact that came with its message.
_OWN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "traceback"})
LOG = "PAYMENTS_LOG"  # of the environment
_LEVELS = ("debug", "info", "warning", "error")
_NAMES_AN_ORDER = frozenset({"request_id", "transaction_id", "batch_id"})  # also where it looks like a telephone


class FactsFormatter(logging.Formatter):
    """Writes when, how grave and what, and after it the facts that came beside the message and are not in it.

    For any handler of the standard library's ``logging``, and for records of any logger: what stands in ``extra=`` is
    shown, long numbers and e-mail addresses are masked, control characters escaped. Times are in UTC.

    Args:
        secrets: Gives texts that are hidden wherever they would appear.
        as_json: Each line is a JSON object, with all facts by their names beside ``at``, ``level``, ``logger`` and
            ``message``; a traceback is ``traceback``.

    >>> handler = logging.StreamHandler()
    >>> handler.setFormatter(FactsFormatter(as_json=True))
    """

    def __init__(self, secrets: Callable[[], Iterable[str]] = tuple, *, as_json: bool = False) -> None:
        super().__init__()
        self._secrets = secrets
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """The line, and a traceback below it where the record has one; as JSON all of it is one line."""
        said = self._masked(record.getMessage())
        told = self.formatException(record.exc_info) if record.exc_info else getattr(record, "traceback", "")
        trace = list(map(self._masked, str(told).splitlines()))
        at = datetime.fromtimestamp(record.created, UTC)
        if self._as_json:
            about = {
                "at": at.isoformat(timespec="milliseconds"),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": said,
            }
            facts = {name: self._plain(name, value) for name, value in _facts_of(record) if name not in about}
            return json.dumps({**about, **facts, **({"traceback": "\n".join(trace)} if trace else {})})
        shown = " ".join((f"{at:%H:%M:%S.%f}"[:-3], record.levelname.lower(), said, *self._beside(record, said)))
        return "\n".join((shown, *trace))

    def _beside(self, record: logging.LogRecord, said: str) -> Iterator[str]:
        """What came beside a message and is not in it, as name=value."""
        for name, value in _facts_of(record):
            text = self._shown(name, value)
            if text not in said:
                yield f"{name}={text!r}" if " " in text else f"{name}={text}"

    def _plain(self, name: str, value: object) -> object:
        """A fact as JSON knows it, unless it has to be masked."""
        text = self._shown(name, value)
        if isinstance(value, float) and not math.isfinite(value):
            return text  # JSON knows no such number
        return value if isinstance(value, bool | int | float) and text == str(value) else text

    def _shown(self, name: str, value: object) -> str:
        return escape(str(value)) if name in _NAMES_AN_ORDER else self._masked(str(value))

    def _masked(self, text: str) -> str:
        return redact(text, self._secrets())


def show_log(level: str | None) -> None:
    """Show the log of the package from a level on, masked, on standard error; ``None`` leaves it as it is.

    Where the application has a handler already, of its root logger or of ours, that shows it.

    Raises:
        ValueError: There is no such level.
    """
    if not level:
        return
    if level.lower() not in _LEVELS:
        raise ValueError(f"{LOG}: expected {', '.join(_LEVELS[:-1])} or {_LEVELS[-1]}")
    log = logging.getLogger("payments_async")
    log.setLevel(level.upper())
    handlers = [*log.handlers, *(logging.getLogger().handlers if log.propagate else ())]
    if all(isinstance(handler, logging.NullHandler) for handler in handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(FactsFormatter())
        log.addHandler(handler)


def _facts_of(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    return ((name, value) for name, value in vars(record).items() if name not in _OWN and value not in (None, ""))
