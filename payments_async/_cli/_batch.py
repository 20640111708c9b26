"""A batch file on the command line: its orders, or all of its problems at once."""

from __future__ import annotations

from pathlib import Path

import attrs

from payments_async import PayoutOrder
from payments_async._cli._exits import BadInput
from payments_async._cli._screen import Screen, clean
from payments_async.bulk import read_batch, sample_payroll

__all__ = ["Orders", "read_orders"]

_PROBLEMS_SHOWN = 20


@attrs.frozen(kw_only=True)
class Orders:
    """Every order of a file.

    Attributes:
        digest: Of the file's bytes.
    """

    orders: tuple[PayoutOrder, ...]
    digest: str


async def read_orders(screen: Screen, path: Path | None) -> Orders:
    """Every order of a batch file, or of the sample that ships with the package.

    Raises:
        BadInput: When the file cannot be read, is empty or holds a bad row; the message names each.
    """
    if path is not None:
        return await _orders(screen, path)
    with sample_payroll() as sample:
        return await _orders(screen, sample)


async def _orders(screen: Screen, path: Path) -> Orders:
    try:
        batch = await read_batch(path)
        orders = () if batch.problems else tuple(batch.orders)
    except FileNotFoundError as error:
        raise BadInput(f"--file: there is no file {path}; check the name") from error
    except (OSError, ValueError, ImportError) as error:
        raise BadInput(f"--file: {path.name} cannot be read: {clean(str(error))}") from error
    for note in batch.notes:
        screen.note(f"{path.name}: {note}")
    if batch.problems:
        count = len(batch.problems)
        lines = [str(problem) for problem in batch.problems[:_PROBLEMS_SHOWN]]
        lines += [f"and {count - _PROBLEMS_SHOWN:,} more"] if count > _PROBLEMS_SHOWN else []
        said = "1 problem" if count == 1 else f"{count:,} problems"
        raise BadInput("\n  ".join([f"--file: {path.name} has {said}; nothing was sent", *lines]))
    return Orders(orders=orders, digest=batch.digest)
