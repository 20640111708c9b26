"""Files that are traps, made anew each time: workbooks that reach too far or unpack to too much, lines without end."""

import random
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bulk.files import edit_workbook, row, write_workbook

SHEET = "xl/worksheets/sheet1.xml"
PEOPLE = [row(request_id=f"R-{n}", phone_number=f"+25677200000{n}") for n in (1, 2, 3)]
HEADER = b"request_id,kind,amount,name,phone,product_item_id,message\n"
GOOD = b"R-1,mobile_money,1500,Amber Brightwater,+256772000001,MTN_MTN,"


def sound_workbook(path: Path) -> Path:
    """A workbook of three payouts."""
    return write_workbook(path, [list(PEOPLE[0]), *(list(one.values()) for one in PEOPLE)])


def far_cell(path: Path, place: str) -> Path:
    """A workbook with one more cell, far away."""
    number = place.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    far = f'<row r="{number}"><c r="{place}"><v>1</v></c></row></sheetData>'
    return edit_workbook(sound_workbook(path), SHEET, "</sheetData>", far)


def bomb(path: Path, part: str, size: int, fill: bytes) -> Path:
    """A workbook with a part that is small on disk, and of so many mebibytes unpacked."""
    with zipfile.ZipFile(sound_workbook(path)) as book:
        parts = {name: book.read(name) for name in book.namelist() if name != part}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as book:
        for name, content in parts.items():
            book.writestr(name, content)
        with book.open(part, "w", force_zip64=True) as file:
            for _ in range(size):
                file.write(fill * (2**20 // len(fill)))
    return path


def many_cells(path: Path, rows: int, columns: int) -> Path:
    """A workbook whose sheet is full of cells, each of them small."""
    with zipfile.ZipFile(sound_workbook(path)) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    head, tail = parts.pop(SHEET).split(b"</sheetData>")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in parts.items():
            book.writestr(name, content)
        with book.open(SHEET, "w", force_zip64=True) as file:
            file.write(head)
            for number in range(5, rows + 5):
                cells = b"".join(b"<c><v>%d</v></c>" % (number * 7919 % 99991 + column) for column in range(columns))
                file.write(b'<row r="%d">%b</row>' % (number, cells))
            file.write(b"</sheetData>" + tail)
    return path


def definitions(path: Path) -> Path:
    """A workbook that defines entities of its own."""
    doctype = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><worksheet'
    return edit_workbook(sound_workbook(path), SHEET, "<worksheet", doctype)


def endless(path: Path, start: bytes, fill: bytes, size: int) -> Path:
    """A text file of so many mebibytes whose line does not end."""
    with path.open("wb") as file:
        file.write(start)
        for _ in range(size):
            file.write(fill * (2**20 // len(fill)))
    return path


def spoiled_workbooks(path: Path, times: int, seed: int) -> Iterator[Path]:
    """A workbook spoiled in another way each time: its bytes, or those of one of its parts."""
    chance, whole = random.Random(seed), sound_workbook(path).read_bytes()
    with zipfile.ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    for number in range(times):
        if number % 3:
            name = chance.choice(sorted(parts))
            with zipfile.ZipFile(path, "w") as book:
                for part, content in parts.items():
                    book.writestr(part, spoiled(chance, content) if part == name else content)
        else:
            path.write_bytes(spoiled(chance, whole))
        yield path


def spoiled(chance: random.Random, content: bytes) -> bytes:
    """Some bytes of it changed, cut off, taken out or repeated."""
    copy, place = bytearray(content), chance.randrange(len(content))
    match chance.randrange(4):
        case 0:
            for _ in range(chance.randrange(1, 8)):
                copy[chance.randrange(len(copy))] = chance.randrange(256)
        case 1:
            del copy[place:]
        case 2:
            del copy[place : place + chance.randrange(1, 40)]
        case _:
            copy[place:place] = copy[place : place + 40]
    return bytes(copy)


# What a command measures, by what it is called.
TRAPS: Mapping[str, Callable[[Path], Path]] = {
    "a sound workbook": sound_workbook,
    "one cell at XFD1048576": lambda path: far_cell(path, "XFD1048576"),
    "one cell at CZ1048576": lambda path: far_cell(path, "CZ1048576"),
    "one cell at A1048576": lambda path: far_cell(path, "A1048576"),
    "a sheet of 4 GiB of blanks": lambda path: bomb(path, SHEET, 4096, b" "),
    "2 GiB of texts": lambda path: bomb(path, "xl/sharedStrings.xml", 2048, b"a"),
    "16 million cells": lambda path: many_cells(path, 400_000, 40),
    "9 million cells that are let through": lambda path: many_cells(path, 600_000, 15),
    "a DOCTYPE": definitions,
    "a CSV line of 1 GiB": lambda path: endless(path, HEADER + GOOD, b"x", 1024),
    "a CSV cell of 100 MiB": lambda path: endless(path, HEADER + GOOD + b'"', b"xxxxxxx\n", 100),
    "a JSON line of 1 GiB": lambda path: endless(path, b'{"amount": ', b"9", 1024),
}
