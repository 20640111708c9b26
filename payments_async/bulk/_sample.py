"""The batch file that comes with the package: 200 payouts of every kind to people who do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

__all__ = ["sample_payroll"]


@contextmanager
def sample_payroll() -> Iterator[Path]:
    """Where the sample is, for as long as the ``with`` block lasts.

    A package in a zip file has it unpacked for that time, so read the orders within the block.
    """
    with as_file(files("payments_async.bulk") / "sample_payroll.csv") as path:
        yield path
