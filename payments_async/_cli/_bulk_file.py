"""A batch file on the command line: the options that say how to read it, and the command that reads it again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import attrs
import typer

from payments_async._cli._exits import BadInput
from payments_async._cli._program import command_line
from payments_async._cli._screen import Screen, clean
from payments_async.bulk import Batch, BatchChanged, read_batch

__all__ = [
    "Acknowledge", "BatchFile", "BatchId", "Currency", "Delimiter", "Derive", "Encoding", "FileKind", "Reading",
    "Sheet", "SkipBad", "Validate",
]  # fmt: skip

BatchFile = Annotated[Path, typer.Argument(help="CSV, JSON lines or XLSX.", show_default=False)]
BatchId = Annotated[str, typer.Option(help="Names the batch, once and for ever, as in payroll-2026-11.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out; else nothing is sent with one.")]
Acknowledge = Annotated[bool, typer.Option("--acknowledge", help="The concerns were looked at: send it all the same.")]
Derive = Annotated[
    bool, typer.Option("--derive-request-ids", help="Make stable ids, from what they pay, for rows without one.")
]
Validate = Annotated[bool, typer.Option("--validate", help="Ask the service about every row.")]
FileKind = Annotated[str | None, typer.Option("--kind", help="Kind of rows that name none.", show_default=False)]
Currency = Annotated[str | None, typer.Option(help="Currency of rows that name none.", show_default=False)]
Encoding = Annotated[str | None, typer.Option(help="Of a text file; guessed by default.", show_default=False)]
Delimiter = Annotated[str | None, typer.Option(help="Of a CSV file; guessed by default.", show_default=False)]
Sheet = Annotated[str | None, typer.Option(help="Of a workbook; the first by default.", show_default=False)]


@attrs.frozen(kw_only=True)
class Reading:
    """How a file is to be read. Its fields are the options of the same names."""

    batch_id: str
    derive_request_ids: bool = False
    kind: str | None = None
    currency: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None

    async def read(self, screen: Screen, path: Path) -> Batch:
        """The batch in a file; its notes are shown.

        Raises:
            BadInput: The file cannot be read at all.
        """
        try:
            batch = await read_batch(path, **attrs.asdict(self))
        except FileNotFoundError as error:
            raise BadInput(f"there is no file {path}; check the name") from error
        except (OSError, ValueError, ImportError, BatchChanged) as error:
            raise BadInput(f"{path.name or path} cannot be read: {clean(str(error))}") from error
        for note in batch.notes:
            screen.note(f"{path.name}: {note}")
        return batch

    def command_line(self, path: Path, journal: Path | None, **more: object) -> str:
        """The command that sends the file."""
        options = {"journal": journal or Path(f"{self.batch_id}.sqlite"), **attrs.asdict(self), **more}
        return command_line("bulk run", str(path), **options)
