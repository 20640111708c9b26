"""Where a batch comes from: the name that its file gives it, and the file and options that its proposal keeps."""

import asyncio
import hashlib
import re
import unicodedata
from calendar import month_abbr, month_name
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import attrs

from payments_async._cli.agreement import login, signature
from payments_async._cli.batch_file import FormatOptions, RowOptions
from payments_async._cli.batch_plan import PlanChecks
from payments_async._cli.batch_state import in_words
from payments_async._cli.exit_codes import BadInput
from payments_async._cli.screen import Screen, clean, command_line, counted, money, quoted
from payments_async._cli.written import complaints
from payments_async.bulk import Plan
from payments_async.journal import FINAL, Journal, Progress, Proposal, Run, Signature, State, approval_request

FEWEST = 8  # digits of a digest: by fewer nobody would compare them
DIGITS = 64  # of all of it
_IS_MONTH = frozenset(name.lower() for name in (*month_name, *month_abbr, "Sept") if name)
_YEAR = re.compile(r"(?<!\d)20\d\d(?!\d)")
_YEAR_AND_MONTH = re.compile(r"(?<!\d)(?:20\d\d[-_. ]?(?:0[1-9]|1[0-2])|(?:0[1-9]|1[0-2])[-_. ]?20\d\d)(?!\d)")


def batch_name(file: Path, today: date) -> str:
    """What a batch is called after its file; where the file's name lacks the month or the year, those of today.

    >>> batch_name(Path("Payroll October 2026.xlsx"), date(2026, 11, 1)), batch_name(Path("pay.csv"), date(2026, 11, 1))
    ('payroll-october-2026', 'pay-2026-11')
    """
    name = plain_name(file)
    if _YEAR_AND_MONTH.search(name):
        return name
    has_month = bool(_IS_MONTH.intersection(re.split(r"[^a-z]+", name)))
    if has_month:
        return name if _YEAR.search(name) else f"{name}-{today:%Y}"
    return f"{name}-{today:%Y-%m}"


def plain_name(file: Path) -> str:
    """The name of a file in small letters and digits, without its ending."""
    letters = unicodedata.normalize("NFKD", file.stem).casefold().encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-") or "batch"


def is_of_series(file: str, other: str) -> bool:
    """Whether two files are called the same, but for month, year and other numbers: last month's and this one's."""

    def series(name: str) -> Sequence[str]:
        words = plain_name(Path(name)).split("-")
        return [word for word in words if word not in _IS_MONTH and not any(map(str.isdigit, word))]

    return series(file) == series(other)


async def named_batch(screen: Screen, journal: Journal | None, file: Path, batch_id: str | None) -> str:
    """The batch that was named; or that which this very file made before, on whatever day; or a name after the file.

    So the same file is the same batch for ever. Its bytes decide, as the journal keeps them with the proposal.

    Raises:
        BadInput: The file cannot be read, made several batches, or would make a second one before the first is through.
    """
    if batch_id is not None:
        return batch_id
    digest = await asyncio.to_thread(file_digest, file)
    made = () if journal is None else await journal.proposals(file_digest=digest)
    names = list(dict.fromkeys(one.batch_id for one in made))
    if len(names) > 1:
        raise BadInput(f"--batch-id: {file.name} made several batches: name one of {', '.join(map(clean, names))}")
    if names:
        screen.note(f"batch {names[0]}, which this very file has made before; for a new one, name it (--batch-id)")
        return names[0]
    name = batch_name(file, date.today())  # noqa: DTZ011 - the month of whoever sits here
    dated = re.compile(rf"{re.escape(plain_name(file))}-[0-9]{{4}}(?:-[0-9]{{2}})?")
    runs = () if journal is None else await journal.runs()
    for run in runs:
        assert journal is not None
        is_alike = run.batch_id != name and dated.fullmatch(run.batch_id)
        if is_alike and _open(await journal.progress(run.batch_id)):
            raise BadInput(
                f"--batch-id: batch {run.batch_id} is called after this file too, and is not through. Go on with it "
                f"(--batch-id {run.batch_id}), or name the new one"
            )
    screen.note(f"batch {name}, after the file's name (--batch-id changes it)")
    return name


async def with_last_month(checks: PlanChecks, journal: Journal | None, file: Path, batch_id: str) -> PlanChecks:
    """The checks, compared with the latest batch of a file that is called the same but for its month."""
    if journal is None or checks.compare is not None:
        return checks
    runs = [run.batch_id for run in await journal.runs() if run.batch_id != batch_id and run.ready]
    made = [one.batch_id for one in await journal.proposals() if is_of_series(one.file, file.name)]
    alike = [name for name in runs if name in made]
    return attrs.evolve(checks, compare=alike[-1]) if alike else checks


def _open(progress: Progress) -> int:
    """How many orders of a batch may still change by themselves: not what is final, nor what waits for a person."""
    return sum(progress.counts[state] for state in State if state not in FINAL and state is not State.PARKED)


def file_digest(file: Path) -> str:
    """SHA-256 of a file's bytes. Raises ``BadInput`` where it cannot be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise BadInput(f"there is no file {file}; check the name") from error
    except OSError as error:
        raise BadInput(f"{file.name or file} cannot be read: {clean(str(error))}") from error


def kept_options(how: Mapping[str, object], rows: RowOptions, checks: PlanChecks, plan: Plan) -> dict[str, object]:
    """How a file was read and checked, as its proposal keeps it: the same again gives the same orders.

    Args:
        how: The options that read it, also those of last month.
        plan: Of it, whose columns tell what stood for what.
    """
    mapped = [f"{one.column}={one.heading}" for one in plan.columns if one.is_mapped]
    known = {**how, "map": mapped, **attrs.asdict(rows), **checks.flags()}
    known |= {"derive_request_ids": how.get("derive_request_ids"), "concerns": list(map(str, plan.concerns))}
    known |= {"concern_count": plan.concern_count}  # also of those that are not listed
    return {name: value for name, value in known.items() if value and name != "batch_id"}


def options_of(proposal: Proposal) -> tuple[RowOptions, FormatOptions, PlanChecks]:
    """The options that a proposal keeps, as they were given."""
    kept = dict(proposal.options)
    kept["mapped"] = kept.pop("map", None)
    return _filled(RowOptions, kept), _filled(FormatOptions, kept), _filled(PlanChecks, kept)


def _filled(group: type[Any], kept: Mapping[str, object]) -> Any:
    return group(**{field.name: kept[field.name] for field in attrs.fields(group) if kept.get(field.name) is not None})


def show_proposal(screen: Screen, proposal: Proposal) -> None:
    """Write what is to be approved."""
    looked_at = proposal.options.get("concerns")
    screen.fields(
        [
            ("batch", proposal.batch_id),
            ("orders", f"{proposal.orders:,}"),
            ("sum", money(proposal.amount, proposal.currency)),
            ("made from", proposal.file),
            ("proposed by", f"{proposal.by}, on {datetime.fromtimestamp(proposal.by.at, UTC):%Y-%m-%d %H:%M} UTC"),
            ("digest", proposal.digest),
        ]
    )
    if isinstance(looked_at, list | tuple):
        screen.listing("[bold yellow]concerns that its maker looked at[/]", list(map(clean, looked_at)), len(looked_at))


async def write_request(screen: Screen, proposal: Proposal, path: Path) -> None:
    """Write what is to be approved, for another machine."""
    with complaints(path):
        await asyncio.to_thread(path.write_text, approval_request(proposal), encoding="utf-8")
    screen.say(f"\nwrote {quoted(str(path))}. Pass it on with a copy of the batch file; on the other machine:")
    screen.command(f"{command_line('bulk sign', path.name)} --file COPY --who NAME")


def signed_here(maker: str | None) -> Signature:
    """Whose plan it is: that of the name given, or of the login."""
    return signature(login() if maker is None else maker)


def proposal_of(
    plan: Plan, batch_id: str, file: Path, file_digest: str, options: Mapping[str, object], by: Signature
) -> Proposal:
    """A plan, as it is kept until it is sent."""
    return Proposal(
        digest=plan.digest,
        batch_id=batch_id,
        orders=plan.count,
        amount=plan.total,
        currency=plan.currency,
        file=file.name,
        by=by,
        path=str(file.absolute()),
        file_digest=file_digest,
        options=options,
    )


async def whole_digest(journal: Journal | None, approved: str | None) -> str | None:
    """The digest that was approved, of which the first eight digits are enough where it was proposed.

    Raises:
        BadInput: Nothing that was proposed begins so, or several do.
    """
    digits = (approved or "").strip().lower()
    if approved is None or len(digits) >= DIGITS:
        return approved
    made = () if journal is None else await journal.proposals()
    found = {one.digest for one in made if len(digits) >= FEWEST and one.digest.startswith(digits)}
    if len(found) != 1:
        raise BadInput(f"--plan: no one plan that was proposed has a digest that begins so; name all {DIGITS} digits")
    return found.pop()


@attrs.frozen(kw_only=True)
class OpenBatch:
    """A batch that can be sent without naming its file.

    Attributes:
        run: How it stands in the journal; ``None`` where it was not begun, or its orders are not all there.
        proposal: What it was made from; ``None`` where nobody proposed it.
        about: How it stands, in words.
        is_sent: All of it has been sent, and some of it has not ended.
    """

    batch_id: str
    run: Run | None
    proposal: Proposal | None
    about: str
    is_sent: bool = False

    @property
    def digest(self) -> str:
        """Of its plan; empty where it was begun without one."""
        return self.proposal.digest if self.proposal is not None else (self.run and self.run.source_digest) or ""


async def open_batch(journal: Journal, batch_id: str | None, approved: str | None) -> OpenBatch:
    """The batch that is meant where no file is named: the only one that is not through, or the one named.

    Args:
        approved: The digest of its plan, or the first eight digits or more.

    Raises:
        BadInput: There is none, or several.
    """
    digits = (approved or "").strip().lower()
    if approved is not None and len(digits) < FEWEST:
        raise BadInput(f"--plan: {FEWEST} digits of the digest, or all of it")
    there = list(await _open_batches(journal, is_named=batch_id is not None))
    found = [one for one in there if batch_id in (None, one.batch_id) and one.digest.startswith(digits)]
    found = [one for one in found if not one.is_sent] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"several can be sent: name one (--batch-id, --plan): {'; '.join(one.about for one in found)}")
    if there:
        named = f"--plan {clean(digits)}" if batch_id is None else f"--batch-id {clean(batch_id)}"
        raise BadInput(f"{named}: it names none of what can be sent: {'; '.join(one.about for one in there)}")
    raise BadInput(
        "FILE: nothing is proposed and nothing begun is left to send; name the batch file, or propose it "
        "(`payments-async bulk plan FILE --maker NAME`)"
    )


async def _open_batches(journal: Journal, *, is_named: bool) -> Iterable[OpenBatch]:
    runs = {run.batch_id: run for run in await journal.runs() if run.outbox is None}
    made = {(one.batch_id, one.digest): one for one in await journal.proposals() if one.path and one.withdrawn is None}
    found = []
    for name, run in runs.items():
        progress = await journal.progress(name)
        if run.ready and (is_named or _open(progress)):
            proposal = made.get((name, run.source_digest or ""))
            is_sent = not (progress.counts[State.PLANNED] or progress.counts[State.SENDING])
            about = f"{name}: {in_words(progress)}"
            found.append(OpenBatch(batch_id=name, run=run, proposal=proposal, about=about, is_sent=is_sent))
    for (name, digest), one in made.items():
        if name not in runs or not runs[name].ready:
            about = f"{name}: {counted(one.orders, 'order')} as {one.by.who} proposed, {digest[:FEWEST]}"
            found.append(OpenBatch(batch_id=name, run=None, proposal=one, about=clean(about)))
    return found
