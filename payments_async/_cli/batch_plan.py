"""A plan of a batch: made from a file, shown to whoever approves it, and told to machines."""

import asyncio
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Annotated

import attrs
import typer

from payments_async import PaymentsSession
from payments_async._cli.batch_file import FormatOptions, RowOptions, read_compared, show_guesses
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.journal import JournalPlace
from payments_async._cli.limits import read_limit
from payments_async._cli.screen import Screen, clean, counted, duration, money, quoted, shortened
from payments_async._cli.working import LatestWords, working
from payments_async.bulk import (
    Batch,
    BatchChanged,
    Comparison,
    Duplicate,
    DuplicateGroup,
    FileColumn,
    Issue,
    PayeeChange,
    Plan,
    PlanSettings,
    Share,
    plan,
)
from payments_async.journal import Journal

_LISTED = 20  # lines of a list
_VALUES = 3  # of a field that is wrong
_CHANGE_TOLD = "20"  # per cent
_PLAIN = 6  # headings that are the names of fields, each of which is told
_ROOM, _ROOM_FOR_PROBLEMS = 17, 20  # lines of a screen of 25, with the notes above: what follows takes the others
_GOES_TO = {None: "stays in the file", "service": "the service", "beneficiary": "the service and the beneficiary"}
_CHANGES = {
    "other account": "Known name, other account than last time, which is not paid any more",
    "other name": "Known account, other name than last time",
    "amount": "Other amount than last time",
    "new": "New",
    "gone": "Gone",
}
_IN_SHORT = {"other account": "to another account", "other name": "under another name", "amount": "other amounts"}


@attrs.frozen(kw_only=True)
class PlanChecks:
    """What a batch is held against."""

    compare: Annotated[
        str | None, typer.Option(metavar="BATCH|FILE", help="Compare with this, as with last month's.")
    ] = None
    compare_change: Annotated[
        str, typer.Option(metavar="PERCENT", help="... and tell of amounts that changed by more.")
    ] = _CHANGE_TOLD
    max_each: Annotated[str | None, typer.Option(help="What one payee may get in all; more is a problem.")] = None
    max_total: Annotated[str | None, typer.Option(help="What all of it may come to; with more, nothing is sent.")] = (
        None
    )

    def flags(self) -> dict[str, object]:
        """The options that make a run hold it against the same, but for the comparison, which only shows."""
        return {"max_each": self.max_each, "max_total": self.max_total}

    def comparison(self) -> dict[str, object]:
        """The other options, as they are given again."""
        return {
            "compare": self.compare,
            "compare_change": None if self.compare_change == _CHANGE_TOLD else self.compare_change,
        }

    def amounts(self) -> PlanSettings:
        """Those that are numbers, as settings of ``plan``.

        Raises:
            BadInput: One of them is none.
        """
        return PlanSettings(
            compare_change=_percent(self.compare_change),
            max_each=read_limit("--max-each", self.max_each),
            max_total=read_limit("--max-total", self.max_total),
        )

    async def chosen(
        self,
        screen: Screen,
        held: Journal | None,
        file_format: FormatOptions,
        journal: JournalPlace | None,
    ) -> PlanSettings:
        """All of them as settings of ``plan``; a file to compare with is read.

        Raises:
            BadInput: One of them is wrong.
        """
        return attrs.evolve(self.amounts(), compare=await self._other(screen, held, file_format, journal))

    async def _other(
        self,
        screen: Screen,
        held: Journal | None,
        file_format: FormatOptions,
        journal: JournalPlace | None,
    ) -> str | Batch | None:
        if self.compare is None or await self.is_batch(held):
            return self.compare
        return await read_compared(screen, Path(self.compare), file_format, journal, "--compare")

    async def is_batch(self, held: Journal | None) -> bool:
        """Whether the journal holds what it is to be compared with.

        Raises:
            BadInput: There is no such file either.
        """
        if self.compare is None:
            return False
        names = [] if held is None else [run.batch_id for run in await held.runs()]
        if self.compare not in names and not _is_file(Path(self.compare)):
            known = f"it has {', '.join(map(clean, names[-10:]))}" if names else "it has none"
            raise BadInput(f"--compare: there is neither a batch in the journal ({known}) nor a file {self.compare}")
        return self.compare in names


def _is_file(path: Path) -> bool:
    return path.is_file()


def _percent(text: str) -> Decimal:
    try:
        number = Decimal(text.strip().removesuffix("%"))
    except InvalidOperation:
        number = Decimal(-1)
    if not number.is_finite() or number < 0:
        raise BadInput(f"--compare-change: {clean(text)} is not a percentage; write it as in 20")
    return number


async def make_plan(
    screen: Screen,
    payments: PaymentsSession,
    batch: Batch,
    batch_id: str,
    journal: Journal | None,
    rows: RowOptions,
    checks: PlanSettings = PlanSettings(),
    *,
    validate: bool,
    concurrency: int = 50,
    rate: float | None = None,
) -> Plan:
    """The plan of a batch; how far it is shows meanwhile.

    Args:
        checks: As ``PlanChecks`` made them.

    Raises:
        BadInput: The file was changed meanwhile.
    """
    try:
        step = LatestWords("reading the account and the products")
        async with working(screen, step, payments):
            return await plan(
                payments,
                batch,
                batch_id=batch_id,
                journal=journal,
                validate=validate,
                skip_bad=rows.skip_bad,
                acknowledged=rows.acknowledge,
                settings=attrs.evolve(checks, concurrency=concurrency, rate=rate),
                progress=step.plan,
            )
    except BatchChanged as error:
        raise BadInput("the file was changed while it was read; begin again") from error


async def names_shown(screen: Screen, made: Plan, file: Path, *, is_asked: bool) -> Mapping[str, str]:
    """What the orders that a plan names are called for whoever looks for them in the file.

    Args:
        is_asked: A question follows: whoever answers has to check the numbers that are paid.

    Raises:
        BadInput: The file was changed meanwhile.
    """
    named = {one for issue in (*made.problems, *made.concerns, *made.skipped, *made.warnings) for one in issue.examples}
    named |= {one for pair in made.duplicates.shown for one in (pair.request_id, pair.other)}
    named |= {one.request_id for one in made.comparison.shown} if made.comparison is not None else set()
    try:
        async with working(screen, f"looking up rows of {file.name}"):
            return await asyncio.to_thread(made.named, named, personal=screen.shows_people(is_asked=is_asked))
    except BatchChanged as error:
        raise BadInput("the file was changed while it was read; begin again") from error


def show_plan(
    screen: Screen,
    made: Plan,
    title: str,
    *,
    everything: bool = False,
    is_brief: bool = False,
    names: Mapping[str, str] | None = None,
    is_asked: bool = True,
) -> None:
    """Write the summary of a plan.

    Args:
        everything: All that is known, and not the first of what is alike.
        is_brief: What fits on a screen; not where a question follows.
        names: What orders are called, where that is not their id.
        is_asked: A question follows, or a person looks whom it pays: at a terminal, changes name them in full.
    """
    show = partial(_show, screen, made, title, names or {}, is_asked=is_asked)
    if everything or not is_brief:
        show(_Detail() if everything else _DETAILS[0])
    else:
        screen.fit(_ROOM_FOR_PROBLEMS if made.problem_count else _ROOM, [partial(show, one) for one in _DETAILS])


@attrs.frozen
class _Detail:
    """How much is shown of what is alike: groups, and examples of each; without an example a group has few lines."""

    groups: int | None = None
    examples: int | None = None
    lines: int = 1

    @property
    def is_short(self) -> bool:
        """Whether these lines have to do."""
        return self.examples == 0

    @property
    def gap(self) -> str:
        """What stands before a heading: an empty line, where there is room."""
        return "" if self.is_short else "\n"


_DETAILS = (_Detail(5, 3), _Detail(5, 1), _Detail(3, 1), *(_Detail(3, 0, lines) for lines in (3, 2, 1)))


def _show(screen: Screen, made: Plan, title: str, names: Mapping[str, str], detail: _Detail, *, is_asked: bool) -> None:
    """Write a plan with so much detail."""

    def shown(request_id: str) -> str:
        return names.get(request_id, request_id)

    total = quoted(money(made.total, made.currency))
    screen.say(f"[bold]{quoted(title)}[/]: {counted(made.count, 'payout')}, [bold]{total}[/]{detail.gap}")
    everything = detail.groups is None
    if everything:
        _show_shares(screen, "Kind", made.by_kind, made)
        _show_shares(screen, "Item", made.by_item, made)
    if not detail.is_short:
        show_guesses(screen, made.guesses)
    guessed = ", ".join(f"{one.orders:,} of {one.operator}'s numbers" for one in made.guesses)
    balance, left = (money(one, made.currency) for one in (made.balance, made.balance - made.open_total))
    open_ = (
        f"{made.open_count:,}, {money(made.open_total, made.currency)}; {made.recorded:,} are in the journal already"
    )
    screen.fields(
        [
            ("kind", None if everything or (guessed and detail.is_short) else _shares(made.by_kind)),
            ("item", None if everything or len(made.by_item) != 1 or made.guesses else _shares(made.by_item)),
            ("guessed", f"the item of {guessed} (--all)" if guessed and detail.is_short else None),
            ("balance", f"{balance}, and {left} after this"),
            ("to be sent", open_ if made.recorded else None),
            ("takes about", None if detail.is_short else duration(made.seconds)),
            ("digest", None if made.problem_count and detail.is_short else made.digest),
        ]
    )
    screen.fields(() if everything else _columns(made.columns))
    if not detail.is_short:
        _show_columns(screen, made.columns, everything=everything)
    issues = _IssueList(screen, shown, detail)
    problems = f"{counted(made.problem_count, 'problem')}: nothing can be sent as it is"
    issues.show(problems, "red", made.problems, made.problem_count)
    looked = "looked at" if made.acknowledged else "look at it; nothing is sent without --acknowledge"
    concerns = f"{counted(len(made.concerns), 'concern')}: {looked}"
    issues.show(concerns, "yellow", made.concerns, made.concern_count)
    issues.show(f"{made.left_out:,} left out", "yellow", made.skipped, made.skipped_count)
    _show_duplicates(screen, made, shown, detail)
    if made.comparison is not None:
        _show_comparison(screen, made.comparison, made.currency, shown, detail, is_asked=is_asked)
    issues.show("Look at this", "yellow", made.warnings, made.warning_count)


def check_plan(made: Plan, approved: str | None) -> None:
    """Refuse a plan that is not clean, or not the one that was approved. Raises ``BadInput``."""
    if not made.is_clean and not made.problem_count:
        raise BadInput(
            f"{counted(len(made.concerns), 'concern')}, first: {made.concerns[0]}\n"
            "  nothing was sent; look at them, mend what is wrong, and send the rest with --acknowledge"
        )
    if not made.is_clean:
        raise BadInput(
            f"{counted(made.problem_count, 'problem')}, first: {made.problems[0]}\n"
            "  nothing was sent; mend them, or leave bad rows out with --skip-bad"
        )
    if approved is not None and approved.strip().lower() != made.digest:
        raise BadInput(
            f"--plan: these are not the payments that were approved: their digest is {made.digest}; "
            "nothing was sent. Plan the file again with the same options, and have that approved"
        )


def plan_document(made: Plan) -> dict[str, object]:
    """A plan for machines, which names nobody."""
    known = attrs.asdict(made, recurse=False, filter=lambda field, _: field.name != "orders")
    if made.comparison is not None:
        shown = [
            attrs.evolve(one, name="", account="", account_before=None, name_before=None)
            for one in made.comparison.shown
        ]
        known["comparison"] = attrs.evolve(made.comparison, shown=tuple(shown))
    return {"clean": made.is_clean, **known}


def _columns(columns: Sequence[FileColumn]) -> Iterator[tuple[str, str]]:
    """What becomes of each column of a file, and who gets what stands there, in a few lines."""
    known = [one for one in columns if one.column is not None]
    plain = [one.heading for one in known if one.heading == one.column]
    renamed = [f"{one.heading} as {_read_as(one)}" for one in known if one.heading != one.column]
    if len(plain) > _PLAIN:
        plain = [f"{len(plain)} columns by their own names"]
    yield "read", ", ".join((*renamed, *plain))
    yield "not read", ", ".join(one.heading for one in columns if one.column is None)
    yield "seen by the beneficiary", ", ".join(one.heading for one in columns if one.goes_to == "beneficiary")


def _show_columns(screen: Screen, columns: Sequence[FileColumn], *, everything: bool) -> None:
    """Write the same in a table, and how a free text would get to the beneficiary."""
    if everything and columns:
        screen.say()
        rows = [[one.heading, _read_as(one), _GOES_TO[one.goes_to]] for one in columns]
        screen.table(["Column of the file", "Read as", "Goes to"], rows)
    if free := next((one for one in columns if one.is_free_text), None):
        option = shlex.join(["--map", f"message={free.heading}"])
        screen.say(f"To send {quoted(free.heading)} to the beneficiary, add {quoted(option)}")


def _read_as(one: FileColumn) -> str:
    if one.column is None:
        return "not read"
    return f"{one.column} (--map)" if one.is_mapped else one.column


def _shares(shares: Mapping[str, Share]) -> str:
    if len(shares) == 1:
        return next(iter(shares))
    return "; ".join(f"{key} {share.count:,} of {money(share.total)}" for key, share in shares.items())


def _show_shares(screen: Screen, name: str, shares: Mapping[str, Share], made: Plan) -> None:
    total = f"Sum {made.currency}" if made.currency else "Sum"
    rows = [[key, f"{share.count:,}", money(share.total)] for key, share in shares.items()]
    if rows:
        screen.table([name, "Orders", total], rows, right=["Orders", total])
        screen.say()


@attrs.frozen
class _IssueList:
    """Writes issues; of those that are alike the first, and how many more."""

    _screen: Screen
    _name: Callable[[str], str]
    _detail: _Detail

    def show(self, title: str, style: str, issues: Sequence[Issue], count: int = 0) -> None:
        """Write issues that are alike as one, what is rare before what is frequent.

        Args:
            count: Of all issues, where more are counted than are kept.
        """
        groups: dict[tuple[str, str], list[Issue]] = {}
        for issue in issues:
            groups.setdefault((issue.field, issue.remedy), []).append(issue)
        if not groups:
            return
        self._screen.say(f"{self._detail.gap}[bold {style}]{title}[/]")
        alike = sorted(groups.values(), key=_weight)
        for one in alike[: self._detail.groups]:
            self._write(one)
        if rest := () if self._detail.groups is None else alike[self._detail.groups :]:
            others = sum(_size(one) for one in rest)
            self._screen.say(f"{others:>7,} for {counted(len(rest), 'other reason')}; --all shows them")
        if (left := count - sum(map(_size, alike))) > 0:
            self._screen.say(f"{left:>7,} more that are not listed: look at these first")

    def _write(self, alike: Sequence[Issue]) -> None:
        """Write one group: how many, what is wrong, and the first of them."""
        first, places = alike[0], list(self._places(alike))
        examples = self._detail.examples
        values = list(dict.fromkeys(repr(one.value) for one in alike if one.value and one.row is None))
        more = ", ..." if len(values) > _VALUES else ""
        field = "" if first.field == "batch" else first.field or "whole row"
        what = " ".join(filter(None, (field, ", ".join(values[:_VALUES]) + more)))
        number = f"{_size(alike):>7,} " if places else " " * 8
        said = f"{what}: {first.remedy}" if what else first.remedy
        lines = self._detail.lines + (2 if first.field == "batch" else 0)  # what is said of all of it needs more
        width = (self._screen.out.width - len(number) - 4) * lines
        if self._detail.is_short:
            place = f" ({places[0]})" if places else ""
            said = shortened(said, max(width - len(place), width // 2)) + shortened(place, width // 2)
        self._screen.hanging(number, quoted(said))
        shown = places[:examples]
        if shown:
            left = _size(alike) - len(shown)
            rest = f" and {left:,} more" if left > 0 else ""
            self._screen.hanging(" " * 8, f"[dim]{quoted(', '.join(shown))}{rest}[/]")

    def _places(self, alike: Sequence[Issue]) -> Iterator[str]:
        for one in alike:
            if one.row is not None:
                yield f"row {one.row} {one.value!r}" if one.value else f"row {one.row}"
            yield from map(self._name, one.examples)


def _size(alike: Sequence[Issue]) -> int:
    """How many orders or rows it is about."""
    return sum(one.orders or 1 for one in alike)


def _weight(alike: Sequence[Issue]) -> tuple[bool, int]:
    """What concerns all of the batch comes first, then what is rare."""
    return any(one.row is not None or one.orders for one in alike), _size(alike)


def _show_duplicates(screen: Screen, made: Plan, name: Callable[[str], str], detail: _Detail) -> None:
    """Who is paid twice: what is odd first, and last month's payees, who are many, last."""
    found = made.duplicates
    if not found.groups:
        return
    screen.say(
        f"{detail.gap}[bold yellow]Paid twice?[/] Same beneficiary and amount: {found.same_amount:,}; "
        f"same beneficiary, another amount: {found.other_amount:,}"
    )
    shown: dict[tuple[str | None, bool], list[Duplicate]] = {}
    for one in found.shown:
        shown.setdefault((one.batch_id, one.same_amount), []).append(one)
    for group in () if detail.is_short else found.groups[:_LISTED]:
        members = shown.get((group.batch_id, group.same_amount), [])
        screen.say(f"  {quoted(_group(group))}")
        told = members[: detail.examples]
        for one in told:
            screen.hanging("    ", quoted(_duplicate(one, name)))
        if group.count > len(told):
            screen.say(f"    and {group.count - len(told):,} more")


def _group(group: DuplicateGroup) -> str:
    amounts = "the same amount" if group.same_amount else "another amount"
    where = f"paid by batch {group.batch_id} of late, too" if group.batch_id else "twice within this batch"
    return f"{group.count:,} {where}, {amounts}:"


def _show_comparison(
    screen: Screen,
    found: Comparison,
    currency: str | None,
    name: Callable[[str], str],
    detail: _Detail,
    *,
    is_asked: bool,
) -> None:
    """What is not as it was."""
    changes = {kind: count for kind, count in found.counts.items() if count}
    total = (
        " (--all)"
        if detail.is_short
        else f" ({counted(found.count, 'payout')}, {quoted(money(found.total, currency))})"
    )
    same = f"[bold]Compared with {quoted(found.other)}[/]{total}: {counted(found.same, 'payee')} as before"
    screen.say(f"{detail.gap}{same}")
    if detail.is_short and changes:
        words = "; ".join(f"{count:,} {_IN_SHORT.get(kind, kind)}" for kind, count in changes.items())
        screen.say(words)
    for kind, count in () if detail.is_short else changes.items():
        members = [one for one in found.shown if one.kind == kind]
        screen.say(f"  {_changed(kind, count)}:")
        told = members[: detail.examples]
        for one in told:
            screen.hanging("    ", quoted(_change(screen, one, name, is_asked=is_asked)))
        if count > len(told):
            screen.say(f"    and {count - len(told):,} more")


def _changed(kind: str, count: int) -> str:
    return f"{count:,} {_CHANGES[kind][0].lower()}{_CHANGES[kind][1:]}"


def _change(screen: Screen, one: PayeeChange, name: Callable[[str], str], *, is_asked: bool) -> str:
    amounts = " -> ".join(f"{amount:,f}" for amount in (one.before, one.now) if amount is not None)
    if one.before and one.now is not None and one.before != one.now:
        amounts += f" ({(one.now - one.before) * 100 / one.before:+.0f} %)"
    account, person = one.payee, ""
    if screen.shows_people(is_asked=is_asked):
        account, person = one.account, f" {one.name}"
        person += f", before {one.name_before}" if one.name_before is not None else ""
        account += f", before {one.account_before}" if one.account_before is not None else ""
    return f"{name(one.request_id)}{person}: {amounts} to {account}"


def _duplicate(one: Duplicate, name: Callable[[str], str]) -> str:
    where = f" of batch {one.batch_id}, {one.state}" if one.batch_id else ""
    again = "the same amount" if one.same_amount else "another amount"
    other = one.other if one.batch_id else name(one.other)
    return f"{name(one.request_id)}: {one.amount:,f} to {one.payee}, and {again} by {other}{where}"
