"""What tools that report errors show: the locals of every frame of an error and its chain, taken apart as they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from types import TracebackType
from typing import Any

import attrs
import msgspec

_TESTS = str(Path(__file__).parent.parent)
_DEEPEST = 6


def captured(error: BaseException) -> str:
    """Everything of an error and its chain: words, arguments, notes, and the locals of every frame but the tests'."""
    pieces: list[str] = []
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        pieces += [str(link), repr(link), *taken_apart(link.args), *taken_apart(vars(link))]
        pieces += frames(link.__traceback__)
        chain += [link.__cause__, link.__context__]
    return "\n".join(pieces)


def frames(trace: TracebackType | None) -> list[str]:
    """The locals of the frames of a traceback."""
    pieces: list[str] = []
    while trace is not None:
        frame = trace.tb_frame
        if not frame.f_code.co_filename.startswith(_TESTS):
            pieces.append(f"-- {frame.f_code.co_filename}:{trace.tb_lineno}")
            pieces += taken_apart(dict(frame.f_locals))
        trace = trace.tb_next
    return pieces


def taken_apart(value: Any, depth: int = 0) -> list[str]:
    """The ``repr`` of a value, and of all that collections and records hold, as deep as such tools go and deeper."""
    pieces = [repr(value)]
    if depth > _DEEPEST:
        return pieces
    if isinstance(value, str | bytes | bytearray):
        return [*pieces, repr(value[:80])]  # long ones are cut before they are shown
    if isinstance(value, Mapping):
        inner: list[Any] = [item for pair in value.items() for item in pair]
    elif isinstance(value, Sequence | Set):
        inner = list(value)
    elif attrs.has(type(value)):
        inner = [getattr(value, field.name) for field in attrs.fields(type(value)) if field.repr is True]
    elif isinstance(value, msgspec.Struct):
        inner = [item for _, item in value.__rich_repr__()]
    else:
        inner = []
    for item in inner:
        pieces += taken_apart(item, depth + 1)
    return pieces
