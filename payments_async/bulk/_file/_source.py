"""The bytes of a batch file: their digest, their encoding, and proof that they are still the same. Knows no rows."""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

import attrs

__all__ = ["BatchChanged", "CheckedFile", "Fingerprint", "check_unchanged", "fingerprint", "text_encoding"]

BLOCK = 2**20
_MARK = 16  # bytes of digest kept for each block, so 16 MB for a file of 1 TB
_HEAD = 4096
_BYTE_ORDER_MARKS = (  # UTF-32 begins as UTF-16 does, so it comes first
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)


class BatchChanged(RuntimeError):
    """The file is not the one that ``read_batch`` checked: read it again, and look at its problems again."""


@attrs.frozen(kw_only=True)
class Fingerprint:
    """What identifies the content of a file.

    Attributes:
        size: Its length in bytes.
        modified: When it was last written, in nanoseconds.
        digest: SHA-256 of its bytes, in hexadecimal digits.
        blocks: A short digest of each MiB, one after the other.
        head: The first 4096 bytes.
        is_utf8: Whether the whole file is valid UTF-8.
        ends_a_line: Whether the last line is complete.
    """

    size: int
    modified: int
    digest: str
    blocks: bytes = attrs.field(repr=False)
    head: bytes = attrs.field(repr=False)
    is_utf8: bool
    ends_a_line: bool


def fingerprint(path: Path, *, between: Callable[[], None] = lambda: None) -> Fingerprint:
    """Read the file once, a MiB at a time.

    Args:
        between: Called between two blocks; it may raise to stop the reading.

    Raises:
        ValueError: When the path is no regular file, such as a pipe, which cannot be read twice.
    """
    _check_regular(path.stat())  # before it is opened: a pipe that nobody writes to would be waited for
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        _check_regular(about)
        whole, utf8, marks, head, tail, size = hashlib.sha256(), _Utf8(), bytearray(), b"", b"", 0
        while block := file.read(BLOCK):
            between()
            whole.update(block)
            utf8.feed(block)
            marks += _mark(block)
            head = head or block[:_HEAD]
            tail = block[-4:]
            size += len(block)
    return Fingerprint(
        size=size,
        modified=about.st_mtime_ns,
        digest=whole.hexdigest(),
        blocks=bytes(marks),
        head=head,
        is_utf8=utf8.ends_well(),
        ends_a_line=tail.rstrip(b"\0")[-1:] in (b"\n", b"\r"),
    )


def _check_regular(about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise ValueError("path: not a regular file, and a batch is read more than once; save it to disk first")


def check_unchanged(path: Path, known: Fingerprint) -> None:
    """Compare the file with what is known of it; its content is read only if its time stamp differs.

    Raises:
        BatchChanged: When it has another content.
    """
    about = path.stat()
    if about.st_size == known.size and about.st_mtime_ns == known.modified:
        return  # what is read is still compared, block by block
    if about.st_size != known.size or fingerprint(path).digest != known.digest:
        raise BatchChanged(f"{path.name} was changed since it was checked; call read_batch again")


def text_encoding(known: Fingerprint) -> tuple[str, str | None]:
    """The encoding of a text file, and a note where it had to be guessed."""
    for byte_order_mark, encoding in _BYTE_ORDER_MARKS:
        if known.head.startswith(byte_order_mark):
            return encoding, None
    nulls = known.head[0::2].count(0), known.head[1::2].count(0)
    if max(nulls) * 4 > len(known.head):  # letters of western languages are half nulls in UTF-16
        encoding = "utf-16-be" if nulls[0] > nulls[1] else "utf-16-le"
        return encoding, f"the file does not say its encoding; read as {encoding.upper()}: check a few names"
    if known.is_utf8:
        return "utf-8", None
    return "cp1252", "the file is not UTF-8; read as CP1252 (Windows, western Europe): check names with accents"


class CheckedFile(io.RawIOBase):
    """A file that hands out no byte before the block it is in was found unchanged.

    Raises:
        BatchChanged: On reading, when a block is not what it was.
    """

    def __init__(self, path: Path, known: Fingerprint) -> None:
        self._file = path.open("rb")
        self._name = path.name
        self._marks = known.blocks
        self._number = 0
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Whether it can be read: yes."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # what BufferedReader passes
        """Fill the buffer from the block at hand, or from the next one."""
        if not self._rest:
            self._rest = memoryview(self._next_block())
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def _next_block(self) -> bytes:
        block = self._file.read(BLOCK)
        expected = self._marks[self._number * _MARK : (self._number + 1) * _MARK]
        if (_mark(block) if block else b"") != expected:
            raise BatchChanged(f"{self._name} was changed since it was checked; call read_batch again")
        self._number += 1
        return block


class _Utf8:
    """Whether bytes are valid UTF-8, piece by piece."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._valid = True

    def feed(self, block: bytes, *, final: bool = False) -> None:
        if self._valid:
            try:
                self._decoder.decode(block, final)
            except UnicodeDecodeError:
                self._valid = False

    def ends_well(self) -> bool:
        self.feed(b"", final=True)
        return self._valid


def _mark(block: bytes) -> bytes:
    return hashlib.blake2b(block, digest_size=_MARK).digest()
