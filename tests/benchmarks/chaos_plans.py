"""What the chaos commands share: options that are the fields of a plan, and the verdict on what it came to."""

from __future__ import annotations

import argparse
import typing
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

import attrs

P = TypeVar("P")


class Reckoning(Protocol):
    """What became of all orders, by the journal and by the service's ledger."""

    duplicates: list[str]
    contradictions: list[str]
    states: Counter[str]
    parked: Counter[str]
    executions: int


def plan_of(kind: type[P], about: str | None, **defaults: int) -> P:
    """The plan that the command line asks for: each field is an option.

    Args:
        about: What the help says.
        defaults: Other ones than the plan's own.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    types = typing.get_type_hints(kind)
    for field in attrs.fields(kind):  # type: ignore[arg-type] - it is a class of attrs
        option = f"--{field.name.replace('_', '-')}"
        if types[field.name] is bool:
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=types[field.name], default=defaults.get(field.name, field.default))
    return kind(**vars(parser.parse_args()))


def faults(toll: Reckoning, *, orders: int, broken: bool) -> Iterator[str]:
    """What went wrong.

    Args:
        orders: How many went in.
        broken: Rule 2 was broken on purpose: then something has to.
    """
    if broken:
        if not toll.duplicates:
            yield "rule 2 was broken and nothing was carried out twice: this proves nothing"
        return
    if toll.duplicates:
        yield f"{len(toll.duplicates)} orders were carried out twice, such as {toll.duplicates[0]}"
    if toll.contradictions:
        yield f"{len(toll.contradictions)} things are wrong, such as: {toll.contradictions[0]}"
    if orders != toll.states.total():
        yield f"{orders} orders went in, {toll.states.total()} are there"


def show(toll: Reckoning) -> None:
    """Print what all came to."""
    print(f"{toll.executions} executions, {len(toll.duplicates)} duplicates, {dict(toll.states)}")
    print(f"parked: {dict(toll.parked)}")


def end(problems: Iterable[str]) -> int:
    """Print what went wrong; the exit status."""
    words = "\n".join(problems)
    print(words or "all is well")
    return 1 if words else 0
