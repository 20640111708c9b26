"""The log of the package: every line is in the documentation, and says by itself what it is about.

The table of ``.github/docs/logs.md`` is what the source says: ``python tests/test_logs.py`` writes it anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "payments_async"
PAGE = ROOT / ".github" / "docs" / "logs.md"
LEVELS = ("debug", "info", "warning", "error", "exception")
INTRODUCTION = """# The log

What the package tells the standard library's `logging`, under `payments_async` and the loggers below it. Until an
application sets up a handler, nothing is shown.

Each line says in its message what it is about, so that any formatter will do. The same facts stand beside it, as
attributes of the record (`extra=`), for those who write JSON. No secret and no person is in either: words of the
service are masked, and of a path what tells of a person.

At DEBUG there is a line for each exchange, logins included; at any other level it costs one question to the logger.
`payments-async --log debug`, or `PAYMENTS_LOG=debug`, shows all of it on the command line. `from_env` reads it too.

`FactsFormatter` writes the facts behind the words, for any handler of yours; with `as_json=True` each line is a JSON
object with all of them:

```python
import logging

from payments_async import FactsFormatter

handler = logging.StreamHandler()
handler.setFormatter(FactsFormatter(as_json=True))  # {"at": "...", "level": "warning", ..., "request_id": "W-17"}
logging.basicConfig(handlers=[handler], level=logging.INFO)
```

This table is written by `python tests/test_logs.py`, from the source; a test compares it.

"""
HEAD = "| level | logger | line | facts beside it |\n|---|---|---|---|\n"
Function = ast.FunctionDef | ast.AsyncFunctionDef
_SAYS_ALL = {  # lines that there is one of: nothing beside them tells two of them apart
    "the server in front rewrites addresses from headers, so requests with them are refused",
    "this machine's clock is days away from the service's: set it; the list of its days was read too",
}


class Line(NamedTuple):
    """One line of the log, as the source has it: its texts, where there is a choice, and the facts beside it."""

    level: str
    logger: str
    texts: tuple[str, ...]
    facts: tuple[str, ...]
    place: str

    def rows(self) -> Iterator[str]:
        """Its rows in the table."""
        for text in self.texts:
            shown = ", ".join(f"`{fact}`" for fact in self.facts)
            yield f"| {self.level} | `{self.logger}` | {text.replace('|', chr(92) + '|')} | {shown} |"


def lines() -> list[Line]:
    """Every line that the package may log, but for the command line's own."""
    found = [line for path in sorted(PACKAGE.rglob("*.py")) for line in _lines_of(path)]
    assert found, "nothing is logged any more: does this test still read the source as it is?"
    return sorted(found, key=lambda line: (line.logger, LEVELS.index(line.level), line.texts))


def _lines_of(path: Path) -> Iterator[Line]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = _texts_by_name(tree.body)
    logger = next((_first_text(node) for node in ast.walk(tree) if _is_call(node, "getLogger")), "")
    for function in ast.walk(tree):
        if not isinstance(function, Function):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and (level := _level(node)) is not None:
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                texts = tuple(sorted(set(_texts(node.args[0], function, constants, path.parent))))
                extra = next((one.value for one in node.keywords if one.arg == "extra"), None)
                facts = () if extra is None else tuple(sorted(set(_names(extra, function, place))))
                assert texts, f"{place}: its text cannot be read from the source"
                yield Line(level, logger or "payments_async.ipn", texts, facts, place)


def _level(node: ast.Call) -> str | None:
    """The level of what is logged by a call, if it logs."""
    match node.func:
        case ast.Attribute(attr=level, value=ast.Name(id="_log") | ast.Attribute(attr="_log")) if level in LEVELS:
            return level
    return None


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def _first_text(node: ast.AST) -> str:
    match node:
        case ast.Call(args=[ast.Constant(value=str(text)), *_]):
            return text
    return ""


def _texts_by_name(body: list[ast.stmt]) -> dict[str, list[ast.expr]]:
    """What names are given in some statements, those below them too."""
    found: dict[str, list[ast.expr]] = {}
    for statement in body:
        for node in ast.walk(statement):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found.setdefault(name, []).append(value)
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                    for one, value in zip(names, values, strict=True):
                        if isinstance(one, ast.Name):
                            found.setdefault(one.id, []).append(value)
    return found


def _texts(node: ast.expr, function: Function, constants: dict[str, list[ast.expr]], room: Path) -> Iterator[str]:
    """What an expression may say."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from _texts(one, function, constants, room)
            yield from _texts(other, function, constants, room)
        case ast.BinOp(left=one, op=ast.Add(), right=other):
            for left in _texts(one, function, constants, room):
                for right in _texts(other, function, constants, room):
                    yield left + right
        case ast.Name(id=name):
            known = _texts_by_name(function.body).get(name) or constants.get(name) or []
            for value in known:
                yield from _texts(value, function, constants, room)
            if not known:
                yield from _given(name, function, room)


def _given(name: str, function: Function, room: Path) -> Iterator[str]:
    """The texts that a function is given under a name: by default, and where its room calls it."""
    names = [one.arg for one in function.args.args]
    if name not in names:
        return
    defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
    given = [defaults[name]] if name in defaults else []
    for path in room.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr=called), args=arguments, keywords=keywords) if (
                    called == function.name
                ):
                    given += arguments[names.index(name) - 1 :][:1]
                    given += [one.value for one in keywords if one.arg == name]
                case ast.Call(func=ast.Name(id="partial"), args=[ast.Attribute(attr=called), *_], keywords=more) if (
                    called == function.name
                ):
                    given += [one.value for one in more if one.arg == name]
    yield from (one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _names(node: ast.expr, function: Function, place: str) -> Iterator[str]:
    """The names of the facts of an ``extra``."""
    match node:
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value)
                elif key is None:
                    yield from _names(value, function, place)
        case ast.BinOp(left=one, op=ast.BitOr(), right=other):
            yield from _names(one, function, place)
            yield from _names(other, function, place)
        case ast.Name(id=name):
            for value in _texts_by_name(function.body).get(name, []):
                yield from _names(value, function, place)


def page(found: Iterable[Line]) -> str:
    """The page of the documentation, as the source would have it."""
    rows = dict.fromkeys(row for line in found for row in line.rows())
    return INTRODUCTION + HEAD + "\n".join(rows) + "\n"


@pytest.mark.slow
def test_every_line_of_the_log_is_in_the_documentation_and_tells_what_it_is_about() -> None:
    """An alarm is written from the page; a formatter that shows the message alone shows which order or batch it is.

    ``python tests/test_logs.py`` writes the page anew.
    """
    found = lines()
    assert PAGE.read_text(encoding="utf-8") == page(found)
    mute = [
        (line.place, text)
        for line in found
        for text in line.texts
        if line.facts and "%" not in text and text not in _SAYS_ALL
    ]
    assert [] == mute
    about_orders = [line for line in found if any("order %s" in text or "unknown: %s" in text for text in line.texts)]
    assert len(about_orders) > 3
    assert [] == [line.place for line in about_orders if "request_id" not in line.facts]


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(lines()), encoding="utf-8")
