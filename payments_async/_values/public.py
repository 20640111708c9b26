"""What users see of what is public: the name of the place where they import it, and errors without our locals."""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from enum import Enum
from functools import wraps
from pathlib import Path
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import Any, ForwardRef, TypeVar, cast

E = TypeVar("E", bound=BaseException)
# Whose locals are hidden: ours, and those of what we call. Frames of an application stay as they are.
_HIDDEN = (
    str(Path(__file__).parents[1]),
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)
_PACKAGE = __name__.partition(".")[0]
_CALLED_BY_PYTHON = frozenset({"__init__", "__aenter__", "__aexit__", "__anext__", "__call__"})


def name_publicly(place: dict[str, Any]) -> None:
    """Let what a module offers name this module as its own, in every ``repr`` and traceback, and hide our locals there.

    Names in the annotations of a class are looked up in the module that it names, so each annotation names where it was
    written. The price: ``inspect.getsource`` finds functions and methods, but no class as a whole.

    Args:
        place: The ``globals()`` of a module with ``__all__``. What another public module offers names that one.
    """
    for name in place["__all__"]:
        thing = place.get(name)  # what is imported when it is asked for names its place then
        if isinstance(thing, FunctionType):
            home = vars(sys.modules[thing.__module__])
            thing = place[name] = home[name] = hiding_locals(thing)
        elif isinstance(thing, type):
            _hide_locals_of(thing)
        if not isinstance(thing, type | FunctionType) or _is_offered(name, thing.__module__):
            continue
        if isinstance(thing, type) and (annotated := inspect.get_annotations(thing)):
            written_in = thing.__module__
            for member, kind in annotated.items():
                text = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind  # as a named tuple keeps it
                if isinstance(text, str):
                    annotated[member] = ForwardRef(text, module=written_in, is_class=True)
            thing.__annotations__ = annotated
        thing.__module__ = place["__name__"]


def _is_offered(name: str, module: str) -> bool:
    return "._" not in module and name in getattr(sys.modules[module], "__all__", ())


class Late(ModuleType):
    """A module that is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def without_locals(error: E) -> E:
    """The same error, and its chain, without our local variables: tools that report errors show those.

    They hold what is written to the service and to the database, word for word. Files, lines and functions stay.
    """
    chain: list[BaseException | None] = [error]
    seen: set[int] = set()
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = blank(link.__traceback__)
            chain += [link.__cause__, link.__context__, *getattr(link, "exceptions", ())]
    return error


def blank(trace: TracebackType | None) -> TracebackType | None:
    """A traceback whose frames, but for those of an application, have no local variables."""
    links = []
    while trace is not None:
        links.append(trace)
        trace = trace.tb_next
    for link in reversed(links):
        is_hidden = link.tb_frame.f_code.co_filename.startswith(_HIDDEN)
        frame, at = (_without(link.tb_frame), -1) if is_hidden else (link.tb_frame, link.tb_lasti)
        trace = TracebackType(trace, frame, at, link.tb_lineno)
    return trace


def _own_frame() -> FrameType:
    return sys._getframe()


def _without(frame: FrameType) -> FrameType:
    """A frame of the same file and function that has no local variables."""
    code = frame.f_code
    if code.co_code == _own_frame.__code__.co_code:
        return frame
    same = _own_frame.__code__.replace(
        co_filename=code.co_filename, co_name=code.co_name, co_firstlineno=code.co_firstlineno
    )
    return cast(FrameType, FunctionType(same, {"sys": sys, "__name__": frame.f_globals.get("__name__")})())


def warn(warning: Warning) -> None:
    """Warn whoever called this package, at their line."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HIDDEN[0]):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


def hiding_locals(function: FunctionType) -> FunctionType:
    """A public function whose errors leave without our local variables, its own arguments included."""
    flags = function.__code__.co_flags
    if flags & inspect.CO_GENERATOR or hasattr(function, "_hides_locals"):
        return function
    guarded: Any = _called(function)
    if flags & inspect.CO_ASYNC_GENERATOR:
        guarded = _iterated(function)
    elif flags & inspect.CO_COROUTINE:
        guarded = _awaited(function)
    guarded._hides_locals = True
    return cast(FunctionType, guarded)


def _iterated(function: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., AsyncIterator[Any]]:
    @wraps(function)
    async def guarded(*args: Any, **named: Any) -> AsyncIterator[Any]:
        try:
            async with aclosing(function(*args, **named)) as items:
                async for item in items:
                    yield item
        except BaseException as error:
            without_locals(error)
            raise

    return guarded


def _awaited(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(function)
    async def guarded(*args: Any, **named: Any) -> Any:
        try:
            return await function(*args, **named)
        except BaseException as error:
            without_locals(error)
            raise

    return guarded


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def guarded(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except BaseException as error:
            without_locals(error)
            raise

    return guarded


def _hide_locals_of(kind: type) -> None:
    """Let no public method of a class, or of what it is derived from, show our local variables."""
    if issubclass(kind, BaseException | Enum):
        return
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] != _PACKAGE or getattr(base, "_is_protocol", False):
            continue
        for name, member in list(vars(base).items()):
            if name.startswith("_") and name not in _CALLED_BY_PYTHON:
                continue
            if isinstance(member, FunctionType):
                setattr(base, name, hiding_locals(member))
            elif isinstance(member, classmethod | staticmethod):
                setattr(base, name, type(member)(hiding_locals(cast(FunctionType, member.__func__))))
