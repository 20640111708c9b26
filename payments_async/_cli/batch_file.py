"""A batch file on the command line: the options that say how to read it, and its problems as those of an option."""

import hashlib
import json
import os
import shlex
import sys
import tempfile
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

from payments_async._cli.exit_codes import BadInput
from payments_async._cli.journal import JournalPlace, folder_of_user
from payments_async._cli.remedies import reason_of
from payments_async._cli.screen import Screen, clean, counted, flags, money
from payments_async._cli.working import LatestWords, working
from payments_async.bulk import Batch, BatchChanged, FileFormat, Guess, read_batch
from payments_async.journal import SqliteJournal

_OURS = frozenset(["outcome", "when(utc)", "transaction", "whatiswrong", "row"])  # of a file that was given back


class ColumnMemory:
    """What was said of files, by their headers: which heading stands for which column, and the options.

    Args:
        journal: Whose files they are; without one nothing is kept, and nothing known.
    """

    def __init__(self, journal: JournalPlace | None) -> None:
        self.path = None if journal is None else _path(journal)
        self._kept = {} if self.path is None else _read(self.path)

    def __call__(self, headings: Sequence[str]) -> Mapping[str, str]:
        """What was said of these headings; nothing where it is another header."""
        mapping = self._known(headings).get("mapping")
        if not isinstance(mapping, dict) or not all(isinstance(heading, str) for heading in mapping.values()):
            return {}
        return mapping

    def options(self, headings: Sequence[str]) -> Mapping[str, object]:
        """The options with which a file with these headings was read, but for those that say nothing."""
        kept = self._known(headings).get("options")
        return kept if isinstance(kept, dict) else {}

    def since(self, headings: Sequence[str]) -> str:
        """The day on which that was said."""
        return str(self._known(headings).get("kept_on", "some day"))

    def _known(self, headings: Sequence[str]) -> Mapping[str, object]:
        known = self._kept.get(_key(headings))
        return known if isinstance(known, dict) else {}

    def forget(self, headings: Sequence[str]) -> None:
        """Forget what was said of files with this header, as far as that can be written."""
        if self._kept.pop(_key(headings), None) is not None:
            self._write()

    def keep(self, headings: Sequence[str], mapping: Mapping[str, str], options: Mapping[str, object]) -> bool:
        """Keep what was said of a file with this header; tells whether that could be done."""
        if self.path is None:
            return False
        self._kept[_key(headings)] = {
            "headings": list(headings),
            "mapping": dict(mapping),
            "options": dict(options),
            "kept_on": date.today().isoformat(),  # noqa: DTZ011 - the day of whoever reads it
        }
        return self._write()

    def _write(self) -> bool:
        """Write all of it; tells whether that could be done."""
        try:
            if self.path is not None:
                _write(self.path, json.dumps(self._kept, indent=1, ensure_ascii=False))
        except OSError:
            return False
        return self.path is not None


def _path(journal: JournalPlace) -> Path | None:
    """Beside the file of a journal; in the user's folder where it is in a database."""
    held = journal.unopened()
    if isinstance(held, SqliteJournal):
        return Path(f"{held.place}.columns.json")
    with suppress(BadInput):
        return folder_of_user() / f"{hashlib.sha256(str(held.place).encode()).hexdigest()[:12]}.columns.json"
    return None


def _read(path: Path) -> dict[str, dict[str, object]]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadInput(f"{path}: what was kept of columns cannot be read ({reason_of(error)})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: what was kept of columns cannot be read ({type(error).__name__}); delete it"
        ) from error
    return kept if isinstance(kept, dict) else {}


def _write(path: Path, text: str) -> None:
    """Put a file in place as a whole, or leave the one that is there."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # readable by its owner alone
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _key(headings: Sequence[str]) -> str:
    """What a header is known by; a file that we gave back has its own, and columns of ours behind them."""
    words = ["".join(unicodedata.normalize("NFKC", heading).casefold().split()) for heading in headings]
    words = [word for word in words if word not in _OURS]
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()


BatchFile = Annotated[Path, typer.Argument(help="CSV, JSON lines or XLSX.")]
BatchId = Annotated[
    str | None, typer.Option(help="Names the batch, once and for ever; after the file and its month by default.")
]
# Of files with this header. Never a sheet: the one that was named may be that of a month before.
_REMEMBERED = ("kind", "item", "guess_items", "derive_request_ids", "currency")
_OPTIONS = {"mapping": "--map", "item": "--item", "encoding": "--encoding", "delimiter": "--delimiter"}
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
class FormatOptions:
    """How a file is written, where it does not say so itself."""

    kind: Annotated[str | None, typer.Option(help="Kind of rows that name none.")] = None
    item: Annotated[str | None, typer.Option(help="Item of rows that name none.")] = None
    guess_items: Annotated[
        bool, typer.Option("--guess-items", help="Else guess it by the operator of the phone number; to be looked at.")
    ] = False
    mapped: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="COLUMN=HEADING",
            help="Which heading is which, as in name='Employee Name'; kept beside the journal.",
        ),
    ] = None
    currency: Annotated[str | None, typer.Option(help="Currency of rows that name none.")] = None
    encoding: Annotated[str | None, typer.Option(help="Of a text file; guessed by default.")] = None
    delimiter: Annotated[str | None, typer.Option(help="Of a CSV file; guessed by default.")] = None
    sheet: Annotated[str | None, typer.Option(help="Of a workbook; the one with known headings by default.")] = None
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget how a file with this header was read; say it anew.")
    ] = False

    def mapping(self) -> dict[str, str]:
        """The headings by column.

        Raises:
            BadInput: One is written otherwise.
        """
        found: dict[str, str] = {}
        for text in self.mapped or ():
            column, sign, heading = text.partition("=")
            if not sign or not heading.strip() or column.strip() in found:
                raise BadInput(f"--map {clean(text)}: write it once, as in --map name='Employee Name'")
            found[column.strip()] = heading.strip()
        return found


@attrs.frozen(kw_only=True)
class PaymentsFile:
    """A file that was read, and how.

    Attributes:
        how: The options that read it in the same way again.
    """

    batch: Batch
    how: Mapping[str, object]


async def read_payments(
    screen: Screen,
    path: Path,
    batch_id: str | None,
    rows: RowOptions,
    file_format: FormatOptions,
    journal: JournalPlace | None,
    *,
    is_exact: bool = False,
) -> PaymentsFile:
    """The payments in a file, by the columns that were said to be which, now or once before.

    Where rows name no item and somebody can be asked, they are asked about guesses.

    Args:
        is_exact: All is said already: nothing is asked, remembered or kept.

    Raises:
        BadInput: The file cannot be read at all.
    """
    said = file_format.mapping()
    memory = ColumnMemory(journal)
    known = ColumnMemory(None) if file_format.forget or is_exact else memory
    how: dict[str, Any] = {
        "batch_id": batch_id,
        "derive_request_ids": rows.derive_request_ids,
        **attrs.asdict(file_format, filter=lambda field, _: field.name not in ("mapped", "forget")),
    }
    mapping = said or known
    batch = await read_file(screen, path, mapping=mapping, **how)
    if file_format.forget:
        memory.forget(batch.headings)
    kept = {name: known.options(batch.headings).get(name) for name in _REMEMBERED if not how[name]}
    if kept := {name: value for name, value in kept.items() if isinstance(value, str | bool)}:
        how |= kept
        batch = await read_file(screen, path, mapping=mapping, **how)
    told: dict[str, object] = dict(kept)
    told["map"] = None if said or is_exact else [f"{column}={heading}" for column, heading in batch.mapping.items()]
    if words := flags(told):
        screen.note(f"read as on {known.since(batch.headings)}: {shlex.join(words)}; --forget forgets that")
    if not is_exact and how["item"] is None and not how["guess_items"] and _lacks_items(batch) and _can_ask(screen):
        guessed = await read_file(screen, path, mapping=mapping, **{**how, "guess_items": True})
        show_guesses(screen, guessed.guesses)
        if guessed.guesses and screen.confirmed("Rows name no item. Take these guesses?"):
            batch, how["guess_items"] = guessed, True
    show_notes(screen, path, batch)
    if not is_exact:
        _tell_columns(screen, memory, said, batch, _said(how))
    return PaymentsFile(batch=batch, how={**how, "map": [f"{column}={said[column]}" for column in said] or None})


async def read_compared(
    screen: Screen, path: Path, file_format: FormatOptions, journal: JournalPlace | None, option: str
) -> Batch:
    """The payments in a file that others are compared with: nothing of it is sent, so nobody is asked.

    Raises:
        BadInput: The file cannot be read at all.
    """
    said, memory = file_format.mapping(), ColumnMemory(journal)

    def mapping(headings: Sequence[str]) -> Mapping[str, str]:
        return said if said and set(said.values()) <= {heading.strip() for heading in headings} else memory(headings)

    how = attrs.asdict(file_format, filter=lambda field, _: field.name not in {"mapped", "forget", "guess_items"})
    batch = await read_file(
        screen, path, option, mapping=mapping, guess_items=True, derive_request_ids=True, batch_id="compared", **how
    )
    if left_out := batch.rows - len(batch.orders):
        screen.note(f"{path.name}: {counted(left_out, 'row')} cannot be read, and not compared")
    return batch


_OF_THE_FILE = {field.name for field in attrs.fields(FileFormat)}


async def read_file(screen: Screen, path: Path, option: str = "", **how: Any) -> Batch:
    """The batch in a file.

    Args:
        option: That named the file.
        how: Arguments of ``read_batch`` and of ``FileFormat``.

    Raises:
        BadInput: The file cannot be read at all.
    """
    named = f"{option}: " if option else ""
    try:
        step = LatestWords(f"reading {path.name}")
        async with working(screen, step):
            file = FileFormat(**{name: how.pop(name) for name in _OF_THE_FILE & how.keys()})
            return await read_batch(path, file=file, progress=step.rows(path.name), **how)
    except FileNotFoundError as error:
        raise BadInput(f"{named}there is no file {path}; check the name") from error
    except (OSError, ValueError, ImportError, BatchChanged) as error:
        argument, _, what = str(error).partition(": ")
        if argument in _OPTIONS:
            raise BadInput(f"{_OPTIONS[argument]}: {clean(what)}") from error
        raise BadInput(f"{named}{path.name or path} cannot be read: {clean(str(error))}") from error


def show_guesses(screen: Screen, guesses: tuple[Guess, ...]) -> None:
    """Write which items were guessed of whose telephone numbers."""
    if not guesses:
        return
    screen.say(
        "[bold yellow]Guessed[/] by the operators that numbers were given to; people keep theirs when they change:"
    )
    rows = [[one.operator, one.kind, one.product_item_id, f"{one.orders:,}", money(one.total)] for one in guesses]
    screen.table(["Numbers of", "Kind", "Item", "Orders", "Sum"], rows, right=["Orders", "Sum"])
    screen.say()


def check_guesses(batch: Batch, approved: str | None, *, yes: bool) -> None:
    """Refuse guesses that nobody looks at.

    Raises:
        BadInput: Nobody is asked, and nobody has approved them.
    """
    if batch.guesses and yes and approved is None:
        raise BadInput(
            "--guess-items: a person has to look at the guesses: plan the file, and name the digest that was approved "
            "(--plan), or leave out --yes"
        )


def _lacks_items(batch: Batch) -> bool:
    return any(one.column == "product_item_id" and not one.value for one in batch.problems)


def _can_ask(screen: Screen) -> bool:
    return screen.is_live and sys.stdin.isatty()


def show_notes(screen: Screen, path: Path, batch: Batch) -> None:
    """Write what a person should know of a file."""
    if batch.notes:
        screen.note(f"{path.name}: {'; '.join(batch.notes)}")


def _said(how: Mapping[str, object]) -> dict[str, object]:
    """The options that next month's file needs as well, as far as they say something."""
    return {name: how[name] for name in _REMEMBERED if how[name]}


def _tell_columns(
    screen: Screen, memory: ColumnMemory, said: Mapping[str, str], batch: Batch, options: Mapping[str, object]
) -> None:
    """Keep what was said of a file, once all of it was found."""
    known = memory.options(batch.headings)
    if not said and options and options != known and not batch.problems and memory.path is not None:
        memory.keep(batch.headings, batch.mapping, options)
    if said and batch.headings and len(batch.mapping) == len(said):
        if memory.keep(batch.headings, batch.mapping, options or known):
            screen.note(f"kept in {memory.path}: a file with this header is read so from now on")
        elif memory.path is not None:
            screen.note(f"{memory.path} cannot be written: next time say --map again")
        else:
            screen.note("without --journal nothing is kept: next time say --map again")
