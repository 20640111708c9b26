"""Where an exception was raised, told without what it holds: types, files, lines, functions; no local variable."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from payments_async._values.masking import redact

_OURS = str(Path(__file__).parents[1])
_PATHS = sysconfig.get_paths()
_STANDARD = tuple({_PATHS["stdlib"], _PATHS["platstdlib"], "<"})
_INSTALLED = tuple({_PATHS["purelib"], _PATHS["platlib"]})
_LONGEST = 8_000


def place_of(error: BaseException) -> str:
    """File and line of the application's own code that it came through last, as ``shop.py:31``; else of any code."""
    frames = [frame for one in _chain(error) for frame in reversed(traceback.extract_tb(one.__traceback__))]
    for foreign in ((_OURS, *_STANDARD, *_INSTALLED), (_OURS, *_STANDARD), ()):
        for frame in frames:
            if not (foreign and frame.filename.startswith(foreign)):
                return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""


def words_of(error: BaseException) -> str:
    """The text of an exception, though its class cannot write it."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - it is an application's class
        return f"its text cannot be had ({type(another).__name__})"


def masked_traceback(error: BaseException, private: Sequence[str] = ()) -> str:
    """The traceback, and those of what it was raised from, with each exception's text masked and no source line."""
    parts = []
    for one in reversed(tuple(_chain(error))):
        frames = traceback.extract_tb(one.__traceback__)
        lines = [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in frames]
        parts.append("\n".join([*lines, f"{type(one).__qualname__}: {redact(words_of(one), private)}"]))
    return "\n\n".join(parts)[-_LONGEST:]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and what it was raised from, newest first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
