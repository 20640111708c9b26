"""Make the reference: a page for each public place, from the docstrings. `python .ci/reference.py [FOLDER]`.

A warning is an error, and so is a public name that has no entry.
"""

import importlib
import os
import sys
import typing
import warnings
from inspect import Parameter, Signature
from pathlib import Path
from types import FunctionType

import attrs
import pdoc
import pdoc.render

from payments_async._values import public as _public

PACKAGE = "payments_async"
ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "reference"  # git ignores it
NAMESPACES = ("payouts", "collections", "transactions", "products", "accounts", "cards")


def public_places() -> list[str]:
    """The modules that no part of their path marks as private."""
    paths = (path.relative_to(ROOT).with_suffix("").parts for path in sorted((ROOT / PACKAGE).rglob("*.py")))
    modules = (parts[:-1] if parts[-1] == "__init__" else parts for parts in paths)
    return [".".join(parts) for parts in modules if not any(part.startswith("_") for part in parts)]


def tell_constructor(thing: object) -> None:
    """Give data a constructor that says what it takes: the one that was made for it knows no name of its module."""
    if isinstance(thing, type) and issubclass(thing, tuple):
        thing.__new__.__annotations__.update(typing.get_type_hints(thing))
    if not isinstance(thing, type) or not attrs.has(thing):
        return
    made = vars(thing).get("__init__")
    if isinstance(made, FunctionType) and not made.__code__.co_filename.startswith("<attrs"):
        return  # somebody has written it
    fields = [field for field in attrs.fields(attrs.resolve_types(thing)) if field.init]
    parameters = [
        Parameter(
            field.alias,
            Parameter.KEYWORD_ONLY if field.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if field.default is attrs.NOTHING else _default(field.default),
            annotation=field.type,
        )
        for field in sorted(fields, key=lambda field: bool(field.kw_only))
    ]

    def constructor(self: object, *given: object, **named: object) -> None: ...

    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    vars(constructor).update(__signature__=Signature([itself, *parameters]))
    constructor.__module__, constructor.__qualname__ = thing.__module__, f"{thing.__qualname__}.__init__"
    type.__setattr__(thing, "__init__", constructor)


def _default(value: object) -> object:
    return Ellipsis if isinstance(value, attrs.Factory) else value  # type: ignore[arg-type]


def missing(places: list[str], folder: Path) -> list[str]:
    """The public names, and the namespaces of a session, that have no entry."""
    absent = []
    for place in places:
        page = folder.joinpath(*place.split(".")).with_suffix(".html").read_text(encoding="utf-8")
        names = [name for name in importlib.import_module(place).__all__ if name != "__version__"]
        if place == PACKAGE:
            names += [f"PaymentsSession.{name}" for name in NAMESPACES]
        absent += [f"{place}.{name}" for name in names if f'id="{name}"' not in page]
    return absent


def main(folder: Path) -> None:
    """Make the pages."""
    # what names the place that users import it from hides the module whose names its annotations are made of
    _public.name_publicly = lambda place: None
    places = public_places()
    # before pdoc, which lets nothing start a process while it imports
    modules = [importlib.import_module(place) for place in places]
    things = [getattr(module, name) for module in modules for name in module.__all__]
    for thing in things:
        tell_constructor(thing)
    warnings.simplefilter("error")
    pdoc.render.configure(docformat="google", show_source=False, footer_text=PACKAGE)
    pdoc.pdoc(*places, output_directory=folder)
    if absent := missing(places, folder):
        sys.exit(f"without an entry: {', '.join(absent)}")
    print(f"{sum(1 for _ in folder.rglob('*.html'))} pages in {os.path.relpath(folder)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
