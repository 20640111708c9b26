"""What the XML of a workbook says of a sheet, and its reader does not tell: what is hidden. Reads no value."""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from xml.parsers import expat

import attrs

__all__ = ["SheetLook", "look_at_sheet"]

_PIECE = 2**16
_DAMAGED = "the workbook is damaged, or no workbook; open it in a spreadsheet and save it as XLSX again"
_OLD = (
    "an old workbook (.xls), or one protected by a password; open it in a spreadsheet and save it as XLSX, without a "
    "password"
)
_OLD_BEGINS = b"\xd0\xcf\x11\xe0"
_RELATIONS = "officeDocument"
_YES = frozenset({"1", "true"})


@attrs.frozen(kw_only=True)
class SheetLook:
    """A sheet as somebody sees it who opens the workbook.

    Attributes:
        name: Of the sheet.
        is_hidden: The sheet itself is.
        rows: Numbers of hidden rows with something in them, by hand or by a filter.
        columns: Positions of hidden columns, from 0.
    """

    name: str
    is_hidden: bool
    rows: frozenset[int]
    columns: frozenset[int]


def look_at_sheet(data: bytes, sheet: str | None) -> SheetLook:
    """Look at a sheet; the first one by default.

    Raises:
        ValueError: The workbook cannot be opened, or has no such sheet.
    """
    with _opened(data) as book:
        place = _place_of_book(book)
        sheets = _sheets(book, place)
        if not sheets:
            raise ValueError("the workbook has no sheet")
        names = [name for name, _, _ in sheets]
        if sheet is not None and sheet not in names:
            raise ValueError(f"sheet: the workbook has no sheet {sheet!r}; it has {', '.join(map(repr, names))}")
        name, state, relation = sheets[0 if sheet is None else names.index(sheet)]
        seen = _Seen()
        _parse(book, _relations(book, place).get(relation, ""), seen.begin)
        return SheetLook(
            name=name,
            is_hidden=state in ("hidden", "veryHidden"),
            rows=frozenset(seen.rows),
            columns=frozenset(seen.columns),
        )


class _Seen:
    """What was seen of a sheet so far."""

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self.columns: set[int] = set()
        self._row = 0
        self._is_hidden = False
        self._by_default = False

    def begin(self, tag: str, values: Mapping[str, str]) -> None:
        """Take the beginning of an element."""
        match tag:
            case "c":
                if self._is_hidden:
                    self.rows.add(self._row)
            case "row":
                self._row = _number(values.get("r")) or self._row + 1
                self._is_hidden = _is_hidden(values, "ht", by_default=self._by_default)
            case "col" if _is_hidden(values, "width"):
                first = max(_number(values.get("min")), 1)
                self.columns.update(range(first - 1, min(max(_number(values.get("max")), first), first + _PIECE)))
            case "sheetFormatPr":
                self._by_default = values.get("zeroHeight") in _YES
            case _:
                pass


def _is_hidden(values: Mapping[str, str], size: str, *, by_default: bool = False) -> bool:
    told = values.get("hidden")
    if told is None:
        return by_default or values.get(size) in ("0", "0.0")
    return told in _YES or values.get(size) in ("0", "0.0")


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 8 else 0


@contextmanager
def _opened(data: bytes) -> Iterator[zipfile.ZipFile]:
    """The archive of a workbook; whatever is wrong with it is bad input."""
    if data.startswith(_OLD_BEGINS):
        raise ValueError(_OLD)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as book:
            yield book
    except (zipfile.BadZipFile, zlib.error, expat.ExpatError, KeyError, EOFError, NotImplementedError) as error:
        raise ValueError(_DAMAGED) from error
    except RuntimeError as error:  # what zipfile raises for a member with a password
        raise ValueError("the workbook is protected by a password; save it without one") from error


def _place_of_book(book: zipfile.ZipFile) -> str:
    for kind, target in _targets(book, "_rels/.rels", "").values():
        if kind.endswith(_RELATIONS):
            return target
    raise ValueError(_DAMAGED)


def _sheets(book: zipfile.ZipFile, place: str) -> list[tuple[str, str, str]]:
    """Name, visibility and relation of each sheet."""
    found: list[tuple[str, str, str]] = []

    def begin(tag: str, values: Mapping[str, str]) -> None:
        if tag == "sheet":
            relation = next((text for name, text in values.items() if name.rpartition(":")[2] == "id"), "")
            found.append((values.get("name", ""), values.get("state", "visible"), relation))

    _parse(book, place, begin)
    return found


def _relations(book: zipfile.ZipFile, place: str) -> dict[str, str]:
    folder, name = posixpath.split(place)
    return {
        id_: target
        for id_, (_, target) in _targets(book, posixpath.join(folder, "_rels", f"{name}.rels"), folder).items()
    }


def _targets(book: zipfile.ZipFile, place: str, folder: str) -> dict[str, tuple[str, str]]:
    """Kind and place of each part that another one names."""
    found: dict[str, tuple[str, str]] = {}

    def begin(tag: str, values: Mapping[str, str]) -> None:
        if tag == "Relationship":
            target = values.get("Target", "")
            inside = target[1:] if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
            found[values.get("Id", "")] = values.get("Type", ""), inside

    _parse(book, place, begin)
    return found


def _parse(book: zipfile.ZipFile, place: str, begin: Callable[[str, Mapping[str, str]], None]) -> None:
    """Read a part a piece at a time. Definitions of its own are refused: they can grow without end."""

    def refuse(*_: object) -> None:
        raise ValueError("the workbook defines entities (DOCTYPE), as no spreadsheet does; ask where it came from")

    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda tag, values: begin(tag.rpartition(":")[2], values)
    parser.StartDoctypeDeclHandler = refuse
    with book.open(_member(book, place)) as part:
        while piece := part.read(_PIECE):
            parser.Parse(piece, False)
        parser.Parse(b"", True)


def _member(book: zipfile.ZipFile, place: str) -> str:
    """The member of the archive, whose case some programs get wrong."""
    names = book.namelist()
    return place if place in names else next((name for name in names if name.casefold() == place.casefold()), place)
