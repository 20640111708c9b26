"""Bytes and texts that are nearly right: samples that are cut, doubled, spliced and interspersed with traps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T", str, bytes)
BATCH = 20

TRAPS = (
    *('"', "'", "{", "}", "[", "]", ":", ",", ";", "\t", "|", "=", "&", "%", "#", "?", "/", "\\", "@", "<", ">", "!"),
    *("\r", "\n", "\r\n", "\x00", "\x1a", "\x7f", "\x85", "\xa0", "\u2028", "\u202e", "\ufeff", "\uff11", "\u0661"),
    *("\u0130", "\ufb01", "\u0345", "\U0001f600", "\\u0000", "\\ud800", "%00", "%ff", "%ud800", "%", "+", "-", "--"),
    *("NaN", "-Infinity", "1e999999999", "1E+30", "1e-30", "0x1", "1_000", "1,5", "1.500,50", ".5", "5.", "00", "-0"),
    *("null", "true", "false", "[]", "{}", '""', "9" * 400, "[" * 4000, '{"a":' * 4000, "a" * 5000, " " * 300),
    *("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "Thu, 01 Jan 0001 00:00:00 +2359", "2024-02-30"),
)


def _mutated(sample: T, traps: Sequence[T], seed: int, times: int) -> T:
    """A sample that was changed so many times, as the seed decides."""
    chance, text = random.Random(seed), sample
    for _ in range(times):
        at, end = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
        match chance.randrange(6):
            case 0:
                text = text[:at] + chance.choice(traps) + text[at:]
            case 1:
                text = text[:at] + text[min(end, at + chance.randint(1, 12)) :]
            case 2:
                text = text[:at] + chance.choice(traps) + text[at + 1 :]
            case 3:
                text = text[:end] + text[at : min(end, at + 200)] + text[end:]
            case 4:
                text = text[:at] + text[at : at + 3][::-1] + text[at + 3 :]
            case _:
                text = text[:at] if chance.random() < 0.2 else text[: at + 1] + text[at:]
    return text


class Batch(tuple[Any, ...]):
    """Several of one kind in one example: drawing an example takes longer than most parsers do."""


def _batch(sample: T, traps: Sequence[T], seed: int) -> Batch:
    return Batch(_mutated(sample, traps, seed + number, number % 7) for number in range(BATCH))


def many_texts(*samples: str, traps: Sequence[str] = ()) -> st.SearchStrategy[Batch]:
    """Batches of texts like these."""
    return st.builds(_batch, st.sampled_from(samples), st.just((*traps, *TRAPS)), st.integers(0, 2**48))


def many_octets(*samples: bytes, traps: Sequence[bytes] = ()) -> st.SearchStrategy[Batch]:
    """Batches of bytes like these."""
    return st.builds(_batch, st.sampled_from(samples), st.just(_wrong(traps)), st.integers(0, 2**48))


def texts(*samples: str, traps: Sequence[str] = TRAPS) -> st.SearchStrategy[str]:
    """Texts like these."""
    seeds, times = st.integers(0, 2**48), st.integers(0, 6)
    return st.builds(_mutated, st.sampled_from(samples), st.just((*traps, *TRAPS)), seeds, times) | st.text(max_size=40)


def octets(*samples: bytes, traps: Sequence[bytes] = ()) -> st.SearchStrategy[bytes]:
    """Bytes like these."""
    seeds, times = st.integers(0, 2**48), st.integers(0, 6)
    return st.builds(_mutated, st.sampled_from(samples), st.just(_wrong(traps)), seeds, times) | st.binary(max_size=80)


def _wrong(traps: Sequence[bytes]) -> tuple[bytes, ...]:
    encoded = (trap.encode() for trap in TRAPS)
    return (*traps, *encoded, b"\xff", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x00")
