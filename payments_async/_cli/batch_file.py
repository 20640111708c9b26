"""A batch file on the command line: the options that say how to read it, and its problems as those of an option."""

from pathlib import Path
from typing import Annotated

import attrs
import typer

from payments_async._cli.exit_codes import BadInput
from payments_async._cli.screen import Screen, clean
from payments_async.bulk import Batch, BatchChanged, read_batch

BatchFile = Annotated[Path, typer.Argument(help="CSV, JSON lines or XLSX.")]
BatchId = Annotated[str, typer.Option(help="Names the batch, once and for ever, as in payroll-2026-11.")]
Validate = Annotated[bool, typer.Option("--validate", help="Ask the service about every row.")]


@attrs.frozen(kw_only=True)
class RowOptions:
    """What becomes of rows that are not as they should be."""

    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out; else nothing is sent with one.")] = (
        False
    )
    acknowledge: Annotated[
        bool, typer.Option("--acknowledge", help="The concerns were looked at: send it all the same.")
    ] = False
    derive_request_ids: Annotated[
        bool, typer.Option("--derive-request-ids", help="Make stable ids, from what they pay, for rows without one.")
    ] = False


@attrs.frozen(kw_only=True)
class FileFormat:
    """How a file is written, where it does not say so itself."""

    kind: Annotated[str | None, typer.Option(help="Kind of rows that name none.")] = None
    currency: Annotated[str | None, typer.Option(help="Currency of rows that name none.")] = None
    encoding: Annotated[str | None, typer.Option(help="Of a text file; guessed by default.")] = None
    delimiter: Annotated[str | None, typer.Option(help="Of a CSV file; guessed by default.")] = None
    sheet: Annotated[str | None, typer.Option(help="Of a workbook; the first by default.")] = None


async def read_file(screen: Screen, path: Path, option: str = "", **how: object) -> Batch:
    """The batch in a file; its notes are shown.

    Args:
        option: That named the file.
        how: Arguments of ``read_batch``.

    Raises:
        BadInput: The file cannot be read at all.
    """
    named = f"{option}: " if option else ""
    try:
        batch = await read_batch(path, **how)  # type: ignore[arg-type]
    except FileNotFoundError as error:
        raise BadInput(f"{named}there is no file {path}; check the name") from error
    except (OSError, ValueError, ImportError, BatchChanged) as error:
        raise BadInput(f"{named}{path.name or path} cannot be read: {clean(str(error))}") from error
    for note in batch.notes:
        screen.note(f"{path.name}: {note}")
    return batch
