"""The name under which users know a class or function: that of the place where they import it."""

from __future__ import annotations

import inspect
import sys
from types import FunctionType
from typing import Any, get_type_hints


def name_publicly(place: dict[str, Any]) -> None:
    """Let what a module offers name this module as its own, in every ``repr`` and traceback.

    Names in the annotations of a class are looked up in the module that it names, so they are looked up before. The
    price: ``inspect.getsource`` finds functions and methods, but no class as a whole.

    Args:
        place: The ``globals()`` of a module with ``__all__``. What another public module offers names that one.
    """
    for name in place["__all__"]:
        thing = place.get(name)  # what is imported when it is asked for names its place then
        if not isinstance(thing, type | FunctionType) or _is_offered(name, thing.__module__):
            continue
        if isinstance(thing, type) and (annotated := inspect.get_annotations(thing)):
            hints = get_type_hints(thing, include_extras=True)
            thing.__annotations__ = {member: hints[member] for member in annotated}
        thing.__module__ = place["__name__"]


def _is_offered(name: str, module: str) -> bool:
    return "._" not in module and name in getattr(sys.modules[module], "__all__", ())
