"""Files that a command writes: what they are called, and what keeps them from being written."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from payments_async._cli.exit_codes import BadInput
from payments_async._cli.screen import clean

_SMALL = 10_000_000  # bytes


@contextmanager
def complaints(path: Path) -> Iterator[None]:
    """Say what keeps a file from being written as somebody at the command line can mend it."""
    try:
        yield
    except FileExistsError as error:
        raise BadInput(
            f"{clean(str(error)).partition(';')[0]}; nothing was written; --overwrite replaces it"
        ) from error
    except ModuleNotFoundError as error:
        raise BadInput(clean(str(error))) from error
    except ValueError as error:
        raise BadInput(f"{clean(str(error))}; nothing was written") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {clean(str(error))}") from error


def stem_of(name: str) -> str:
    """The beginning of a file's name."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "batch"


def read_small(path: Path) -> bytes:
    """All of a file that must not be long.

    Raises:
        BadInput: It cannot be read, or is too long.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_SMALL + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {clean(error.strerror or str(error))}") from error
    if len(text) > _SMALL:
        raise BadInput(f"{path} is too long to be what was asked for")
    return text
