"""What a command shows and asks: words, tables and commands for people, one JSON document for machines, a yes or no."""

import ast
import enum
import getpass
import json
import re
import shlex
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from payments_async import PaymentsError
from payments_async._cli.exit_codes import BadInput, Declined, Exit
from payments_async._cli.remedies import remedy_of
from payments_async._values.masking import mask, redact

_NAME = "payments-async"
_SHORT_NUMBER = 8  # digits; longer ones may be a telephone or an account
_PIPED_WIDTH = 200  # a pipe has no width; a narrow default would break lines
_TWO_DAYS = 2 * 86_400.0  # seconds
LISTED = 20  # lines; the rest is for machines
_COMMAND = re.compile(r"payments-async [a-z]+ .*--")  # with options: somebody may copy it

_NUMBER = re.compile(r"(?P<whole>-?[0-9,]+)(?P<decimals>\.[0-9]+)?(?P<rest>(?: [A-Z]{3})?)")
_MONEY = re.compile(r"(?P<whole>-?[0-9,]+)(?P<decimals>\.[0-9]+)?(?P<rest> [A-Z]{3})")


class LogLevel(enum.StrEnum):
    """The least that a line of the log must be to be shown."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _Console(Console):
    """A console of rich that lets the command end as others do, where the reader of a pipe has gone."""

    def on_broken_pipe(self) -> None:
        """Raise the ``BrokenPipeError`` again: rich would end with status 1, which stands for our own errors."""
        raise  # noqa: PLE0704 - this is called while that one is handled


@attrs.define(kw_only=True, eq=False)
class Screen:
    """Where a command writes to.

    Attributes:
        as_json: One JSON document on standard output and nothing else.
        show_personal: Names, telephone and account numbers in full, or masked. By default they are masked, but in full
            where a person is asked at a terminal, and on the papers that a person signs.
        debug: Tracebacks, and the whole log.
        log: The least that a line of the log must be to be shown, or ``None``.
        secrets: Texts that are hidden wherever they would appear.
        out, err: Standard output and standard error.
    """

    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False
    show_personal: Annotated[
        bool | None,
        typer.Option(
            "--show-personal/--mask",
            help="Names and numbers in full, or masked everywhere; by default in full where you are asked or sign.",
        ),
    ] = None
    debug: Annotated[bool, typer.Option("--debug", help="A traceback with an error, and the log; both masked.")] = False
    log: Annotated[
        LogLevel | None,
        typer.Option(
            envvar="PAYMENTS_LOG",
            case_sensitive=False,
            help="Show the log on standard error, from this level on; masked.",
        ),
    ] = None
    secrets: set[str] = attrs.field(factory=set, init=False)
    out: Console = attrs.field(init=False)
    err: Console = attrs.field(init=False)
    _noted: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        width = None if sys.stdout.isatty() else _PIPED_WIDTH
        self.out = _Console(highlight=False, emoji=False, width=width)
        self.err = _Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)

    @property
    def is_live(self) -> bool:
        """Whether somebody watches: a terminal, and no JSON."""
        return self.out.is_terminal and not self.as_json

    @property
    def can_ask(self) -> bool:
        """Whether a question can be put: both ends are a terminal, and no machine reads along."""
        return not self.as_json and sys.stdin.isatty() and sys.stdout.isatty()

    @property
    def signs_in_full(self) -> bool:
        """Whether a paper that a person signs shows names and numbers in full."""
        return self.show_personal is not False

    def person(self, text: str | None, *, is_asked: bool = False) -> str:
        """A personal value as this screen may show it.

        Args:
            is_asked: It belongs to a question: whoever answers has to check it.
        """
        if not text:
            return ""
        return clean(text) if self.shows_people(is_asked=is_asked) else mask(clean(text))

    def shows_people(self, *, is_asked: bool) -> bool:
        """Whether personal values are shown in full; ``is_asked`` as for ``person``."""
        return is_asked and self.can_ask if self.show_personal is None else self.show_personal

    def people(self, value: object) -> Any:
        """A record of the service as JSON knows it, its personal values as a table of this screen would show them."""
        return plain(value) if self.show_personal else _without_people(value)

    def say(self, markup: str = "") -> None:
        """Write a line for people; the brackets of rich are understood. Silent with ``--json``."""
        if not self.as_json:
            self.out.print(markup, soft_wrap=not self.is_live)

    def hanging(self, lead: str, markup: str) -> None:
        """Write a line for people whose words stand beside its beginning, also where a terminal has to wrap it."""
        if self.as_json:
            return
        if not self.is_live:
            self.out.print(f"{lead}{markup}", soft_wrap=True)
            return
        grid = Table.grid()
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(lead, markup)
        self.out.print(grid)

    def line(self, text: str) -> None:
        """Write a line as it is, at once: for what comes while the command runs, with ``--json`` too."""
        sys.stdout.write(clean(text) + "\n")
        sys.stdout.flush()

    def command(self, line: str) -> None:
        """Write a command that can be typed: a terminal may wrap it, but no line end of ours is in it."""
        if not self.as_json:
            self.out.print(f"  {quoted(line)}", soft_wrap=True)

    def note(self, text: str) -> None:
        """Write a line about the command itself, not its result, to standard error."""
        self.err.print(quoted(text), style="dim", soft_wrap=self._is_one_line(text))
        self._noted += -(-len(text) // self.out.width)

    def document(self, value: object) -> None:
        """Write the JSON document, with ``--json``. Amounts are texts, so that every digit stays."""
        if self.as_json:
            sys.stdout.write(json.dumps(plain(value), indent=2) + "\n")
            sys.stdout.flush()  # the sandbox goes on after its document

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Sequence[str] = ()) -> None:
        """Write a table for people, without its empty columns. Those named in ``right`` hold numbers."""
        if self.as_json:
            return
        rows = _even_columns(list(rows), [number for number, name in enumerate(columns) if name in right])
        kept = [number for number, _ in enumerate(columns) if not rows or any(str(row[number]) for row in rows)]
        shape = box.SIMPLE_HEAD if self.out.is_terminal else None
        table = Table(box=shape, show_edge=False, pad_edge=False, header_style="bold")
        for name in (columns[number] for number in kept):
            # a number or an id is never broken; words are
            table.add_column(name, justify="right" if name in right else "left", no_wrap=name in right, overflow="fold")
        for row in rows:
            cells = (row[number] for number in kept)
            table.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in cells))
        self._print(table)

    def listing(self, title: str, lines: Iterable[str], count: int, *, most: int = LISTED) -> None:
        """Write a title, which may have brackets of rich, and the first of so many lines; nothing if there are none.

        Args:
            most: Lines that are shown; with none of them, the title has their number.
        """
        if not count:
            return
        self.say(title if most else f"{count:>7,}  {title}")
        for line in islice(lines, most):
            self.say(f"  {quoted(line)}")
        if most and count > most:
            self.say(f"  and {count - most:,} more; --json shows them")

    def fit(self, lines: int, writers: Sequence[Callable[[], None]]) -> None:
        """Write the first of these that takes at most so many lines of a terminal, or the last; a pipe has room.

        Args:
            lines: With those of the notes that were written before.
        """
        for write in writers[:-1] if self.is_live else ():
            with self.out.capture() as captured:
                write()
            if captured.get().count("\n") + self._noted <= lines:
                write()
                return
        writers[-1 if self.is_live else 0]()

    def fields(self, pairs: Iterable[tuple[str, str | None]]) -> None:
        """Write one thing: a name and a value on each line, empty values left out."""
        if self.as_json:
            return
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        shown = [(name, value) for name, value in pairs if value]
        for (name, _), value in zip(shown, evenly([value for _, value in shown], _MONEY), strict=True):
            grid.add_row(name, Text(clean(value)))
        self._print(grid)

    def _print(self, table: Table) -> None:
        if self.out.is_terminal:
            self.out.print(table)
            return
        with self.out.capture() as captured:  # a pipe wants no blanks that fill up a column
            self.out.print(table)
        for line in captured.get().splitlines():
            self.line(line.rstrip())

    def trouble(self, message: str, next_step: str = "") -> None:
        """Write what went wrong, and what to do, to standard error."""
        said = quoted(self._hidden(message))
        self.err.print(f"[bold red]payments-async:[/] {said}", soft_wrap=self._is_one_line(message))
        if next_step:
            self.err.print(f"  {quoted(self._hidden(next_step))}", soft_wrap=self._is_one_line(next_step))

    def _is_one_line(self, text: str) -> bool:
        """Whether no line end of ours may be in it: for a pipe, and where a command may be taken out of it."""
        return not self.err.is_terminal or _COMMAND.search(text) is not None

    def payments_error(self, error: PaymentsError, status: int) -> None:
        """Write an error of the package with its next step; with ``--json`` as a document too."""
        remedy = remedy_of(error)
        self.trouble(str(error).removesuffix(f" -> {error.next_step}"), remedy)
        names = ("message", "request_id", "transaction_id", "status", "code", "correlation_id")
        facts = {"kind": type(error).__name__, "next_step": remedy, **{name: getattr(error, name) for name in names}}
        self.document({"error": facts, "exit_status": status})

    def traceback(self, error: BaseException) -> None:
        """Write a traceback, without secrets, telephone numbers and addresses."""
        lines = "".join(traceback.format_exception(error)).splitlines()
        self.err.print(escape("\n".join(redact(self._hidden(line)) for line in lines)), style="dim")

    def confirmed(self, question: str, *, otherwise: str = "nothing was done", option: str = "--yes") -> bool:
        """Whether the person at the terminal says yes. Only a clear yes is one.

        Args:
            otherwise: What became of it where nobody can be asked.
            option: What says yes there.

        Raises:
            BadInput: There is no terminal to ask at.
        """
        return self.typed(f"{question} [y/N]", otherwise=otherwise, option=option).lower() in ("y", "yes")

    def typed(self, question: str, *, otherwise: str, option: str = "--yes") -> str:
        """What the person at the terminal types once the question is shown; nothing where the input ends.

        Raises:
            BadInput: There is no terminal to ask at.
        """
        if not self.can_ask:
            raise BadInput(
                f"{option}: needed where there is no terminal to ask at; {otherwise}. Run it at a terminal, or add "
                f"{option} once you know what it does"
            )
        try:
            with _asking():
                _discard_typed_ahead()
                return input(f"\n{question} ").strip()
        except EOFError:
            return ""
        except KeyboardInterrupt:
            self.say()  # what comes next begins on a line of its own
            self.trouble(otherwise)
            raise

    def confirm(self, question: str, *, yes: bool, otherwise: str = "nothing was changed") -> None:
        """Ask, unless the yes was given with the command.

        Raises:
            Declined: It is a no.
            BadInput: There is no terminal to ask at.
        """
        if not yes and not self.confirmed(question, otherwise=otherwise):
            raise Declined(otherwise)

    def ended(self, status: Exit, facts: Mapping[str, object]) -> Exit:
        """Write the JSON document of a command that is through, with ``--json``; tells its exit status."""
        self.document({**facts, "exit_status": status})
        return status

    def typed_unseen(self, prompt: str) -> str:
        """What the person at the terminal types, which is not shown; or a line of the pipe."""
        if not sys.stdin.isatty():
            return sys.stdin.readline().strip("\r\n")
        try:
            with _asking():
                return getpass.getpass(clean(prompt))
        except EOFError:
            return ""

    def _hidden(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


@contextmanager
def _asking() -> Iterator[None]:
    """Let Ctrl-C end the reading: asyncio's own handler would let the question stand until a second one."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _discard_typed_ahead() -> None:
    """Discard what was typed before a question is shown: it is the answer to another one, or a second stroke."""
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def clean(text: str) -> str:
    """Words from outside, fit for a terminal: control characters cannot move the cursor or set colours."""
    return "".join(character if character.isprintable() or character == "\n" else " " for character in text)


def quoted(text: str) -> str:
    """Words from outside, fit for ``say``: their brackets are not markup either."""
    return escape(clean(text))


def money(amount: Decimal | None, currency: str | None = None) -> str:
    """An amount as people read it, every digit kept."""
    if amount is None:
        return ""
    return f"{amount:,f} {clean(currency)}" if currency else f"{amount:,f}"


def evenly(texts: Sequence[str], pattern: re.Pattern[str] = _NUMBER) -> list[str]:
    """These amounts with as many decimals each, so that they stand under each other; other texts as they are.

    >>> evenly(["1,000", "17.50", "", "any"])
    ['1,000.00', '17.50', '', 'any']
    """
    found = [pattern.fullmatch(text) for text in texts]
    decimals = max((len(one["decimals"] or "") for one in found if one is not None), default=0)
    return [
        text if one is None or not decimals else f"{one['whole']}{(one['decimals'] or '.'):0<{decimals}}{one['rest']}"
        for text, one in zip(texts, found, strict=True)
    ]


def _even_columns(rows: list[Sequence[str | Text]], numbers: Sequence[int]) -> list[Sequence[str | Text]]:
    """Rows whose columns of these numbers show as many decimals in each cell."""
    columns = [evenly([str(row[number]) for row in rows]) for number in numbers]
    changed = [list(row) for row in rows]
    for number, column in zip(numbers, columns, strict=True):
        for row, text in zip(changed, column, strict=True):
            row[number] = row[number] if isinstance(row[number], Text) else text
    return [*changed]


def shortened(text: str, most: int = 140) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 3].rstrip()}..."


def counted(count: int, thing: str) -> str:
    """A number of things, in words."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """A length of time, in the unit in which people would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < _TWO_DAYS else f"{seconds / 86_400:,.0f} days"


def _without_people(value: object) -> Any:
    """A record whose personal fields are masked as they are in its ``repr``; what the ``repr`` hides, text by text."""
    if isinstance(value, list | tuple):
        return [_without_people(member) for member in value]
    fields = getattr(type(value), "__attrs_attrs__", None)
    if not fields:
        return plain(value)
    return {field.name: _shown(getattr(value, field.name), field.repr) for field in fields}


def _shown(value: object, is_shown: bool | Callable[[Any], str]) -> Any:
    if is_shown is False:
        return _hidden_texts(plain(value))
    if is_shown is True or not isinstance(value, str):
        return _without_people(value)
    return ast.literal_eval(is_shown(value))  # a personal field writes the repr of its masked text


def _hidden_texts(value: Any) -> Any:
    """What nobody documented: every text may be a person's, and every long number."""
    match value:
        case dict():
            return {name: _hidden_texts(member) for name, member in value.items()}
        case list():
            return [_hidden_texts(member) for member in value]
        case str():
            return mask(clean(value))
        case int() | float() if not isinstance(value, bool) and len(str(value)) > _SHORT_NUMBER:
            return mask(str(value))
        case _:
            return value


def plain(value: object) -> Any:
    """A value as JSON knows it."""
    match value:
        case None | bool() | int() | float():
            return value
        case enum.Enum():
            return value.value
        case str():
            return value
        case Decimal():
            return format(value, "f")
        case datetime() | date():
            return value.isoformat()
        case Mapping():
            return {str(name): plain(member) for name, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(member) for member in value]
        case _:
            fields = getattr(type(value), "__attrs_attrs__", ())
            return {field.name: plain(getattr(value, field.name)) for field in fields} if fields else str(value)


def command_line(command: str, *arguments: str, **options: object) -> str:
    """A command of this program, without the options that say nothing, as it can be typed here."""
    return f"{_called()} {shlex.join([*command.split(), *arguments, *flags(options)])}"


def flags(options: Mapping[str, object]) -> list[str]:
    """Options as they are typed, without those that say nothing."""
    flags = []
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        for one in values:
            if one is not None and one is not False:
                flags.append(f"--{name.replace('_', '-')}")
                flags += [] if one is True else [str(one)]
    return flags


def _called() -> str:
    """The program's name, or its path where the name alone would not be found."""
    script = Path(sys.argv[0])
    if script.parts[-2:] == ("payments_async", "__main__.py"):
        return f"{_shortest(sys.executable, Path(sys.executable).name)} -m payments_async"
    is_one_file = getattr(sys, "frozen", False) or script.suffix == ".pyz"
    return _shortest(sys.argv[0], script.name) if is_one_file or script.stem == _NAME else _NAME


def _shortest(path: str, name: str) -> str:
    found = shutil.which(name)
    return name if found is not None and Path(found).absolute() == Path(path).absolute() else shlex.quote(path)
