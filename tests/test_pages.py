"""The pages of `.github/docs` say of the code what is true: each table is compared with what it describes."""

import importlib
import inspect
import itertools
import re
import typing
from functools import cache
from pathlib import Path

import attrs
import pytest
from test_public_names import PINNED

from payments_async import Dialect, State
from payments_async._cli.app import COMMANDS, load_command
from payments_async._cli.exit_codes import Exit
from payments_async._cli.profiles import SETTINGS
from payments_async._session.quirks import TOLD
from payments_async._wire.status_codes import STATUS_CODES, UNRECOGNISED
from payments_async.ipn import TransactionConflict, read_notification
from payments_async.journal import Signal
from payments_async.journal.contract import next_state
from payments_async.outbox._health import KINDS
from payments_async.sandbox import Fault, Quirks
from payments_async.sandbox._catalogue import ITEMS
from payments_async.sandbox._faults import OPTIONS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = ROOT / ".github" / "docs"
PAGES = sorted(DOCS.glob("*.md"))
DOCUMENTS = [README, *PAGES, *sorted((ROOT / ".github").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


def links(text: str) -> list[str]:
    """The targets of the links of a Markdown text that lead to a file or a heading of this project."""
    found = [match["target"] for match in LINK.finditer(FENCED.sub("", text))]
    return [target for target in found if "://" not in target]


@cache
def anchors(page: Path) -> frozenset[str]:
    """What links may name of a page: its headings, as they are named in the address."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


def leads_nowhere(page: Path, target: str) -> bool:
    """Whether there is no such file, or no such heading in it."""
    file, _, anchor = target.partition("#")
    there = (page.parent / file).resolve() if file else page
    return not there.exists() or bool(anchor and anchor not in anchors(there))


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in DOCUMENTS])
def test_no_link_leads_nowhere(page: Path) -> None:
    """Files and headings that links name are there."""
    assert [] == [target for target in links(page.read_text(encoding="utf-8")) if leads_nowhere(page, target)]


def test_every_page_is_found_from_the_readme() -> None:
    """A page that nobody is led to is not read."""
    led_to = {(ROOT / target.partition("#")[0]).resolve() for target in links(README.read_text(encoding="utf-8"))}
    assert [] == [page.name for page in PAGES if page not in led_to]


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    """The check above can fail, by a file as well as by a heading; what stands in code is no link."""
    page = tmp_path / "page.md"
    page.write_text("# One, two\n[a](#one-two) [b](#two) [c](gone.md) [d](https://host/x)\n```\n[e](e.md)\n```\n")
    targets = links(page.read_text(encoding="utf-8"))
    assert ["#one-two", "#two", "gone.md"] == targets
    assert ["#two", "gone.md"] == [target for target in targets if leads_nowhere(page, target)]


def columns(page: str, column: int = 0, *, heading: str | None = None) -> list[str]:
    """A column of all tables of a page, or of those below one heading, without the tables' own headings."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    if heading is not None:
        text = re.split(r"^## ", text, flags=re.MULTILINE)[
            1 + re.findall(r"^## (.+)$", text, re.MULTILINE).index(heading)
        ]
    tables = re.findall(r"^\|[^\n]*\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", text, re.MULTILINE)
    rows = [re.split(r"(?<!\\)\|", row)[1:-1] for table in tables for row in table.splitlines()]
    return [row[column].strip().replace("\\|", "|") for row in rows]


def plain(cells: list[str]) -> list[str]:
    """What stands in the cells, without the marks of code."""
    return [cell.replace("`", "") for cell in cells]


def raised_by(place: str) -> dict[str, type[BaseException]]:
    """The errors and warnings that a public place offers."""
    module = importlib.import_module(place)
    things = ((name, getattr(module, name)) for name in module.__all__)
    return {name: thing for name, thing in things if inspect.isclass(thing) and issubclass(thing, BaseException)}


def summary(thing: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split()).replace("``", "")


def test_the_page_of_the_outbox_has_all_problems() -> None:
    """Each that its health can list is there, with what the health says to do about it."""
    listed = zip(
        plain(columns("outbox", heading="Operate it")), columns("outbox", 2, heading="Operate it"), strict=True
    )
    assert [(code, kind.what_to_do) for code, kind in KINDS.items()] == list(listed)


PLACES_OF_ERRORS = tuple(f"payments_async{place}" for place in ("", ".journal", ".bulk", ".ipn", ".fleet"))


def test_the_page_of_errors_has_all_of_them() -> None:
    """Each that a public place offers is there once, with what it means; none is there that is gone."""
    raised = {name: error for place in PLACES_OF_ERRORS for name, error in raised_by(place).items()}
    described = zip(plain(columns("errors")), plain(columns("errors", 2)), strict=True)
    assert sorted((name, summary(error).replace("`", "")) for name, error in raised.items()) == sorted(described)


def test_no_other_place_offers_an_error() -> None:
    """Or the check above would pass it over."""
    elsewhere = [place for place in PINNED if place not in PLACES_OF_ERRORS]
    assert {} == {place: found for place in elsewhere if (found := raised_by(place))}


def test_the_page_of_errors_says_what_they_say() -> None:
    """What stands under "do" is what the error itself tells, and what it is stands in the package."""
    rows = zip(*(plain(columns("errors", column)) for column in (0, 1, 3)), strict=True)
    raised = {name: error for place in PLACES_OF_ERRORS for name, error in raised_by(place).items()}
    for name, parent, remedy in rows:
        error = raised[name]
        assert (name, parent or "Exception") == (name, error.__mro__[1].__name__)
        told = getattr(error, "next_step", getattr(error, "remedy", None))
        assert remedy if told is None else told.replace("`", "") == remedy


def test_the_page_of_quirks_has_all_of_them() -> None:
    """Each is there with its default, the other values that it takes, and what it is."""
    hints = typing.get_type_hints(Quirks)
    expected = []
    for field in attrs.fields(Quirks):
        kind = hints[field.name]
        choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
        others = [value for value in ((True, False) if kind is bool else choices) if value != field.default]
        expected.append((field.name, written(field.default), ", ".join(map(written, others))))
    shown = zip(*(plain(columns("quirks", column, heading="Quirks")) for column in (0, 1, 2)), strict=True)
    assert expected == list(shown)


def test_the_page_of_tests_has_the_items_of_the_sandbox() -> None:
    """A program that pays another kind finds its item there."""
    assert list(ITEMS) == plain(columns("testing", heading="Items of the sandbox"))


def written(value: object) -> str:
    """A value as it stands in a program, in double quotes."""
    return repr(value).replace("'", '"')


def test_the_page_of_quirks_says_what_they_are() -> None:
    """The words are those of the docstring."""
    described = " ".join((inspect.getdoc(Quirks) or "").replace("`", "").split())
    rows = zip(plain(columns("quirks", heading="Quirks")), plain(columns("quirks", 3, heading="Quirks")), strict=True)
    assert [] == [name for name, words in rows if f"{name}: {words}" not in described]


def test_the_page_of_quirks_names_those_that_are_told() -> None:
    """Those that one answer shows, in the sequence of the table."""
    text = (DOCS / "quirks.md").read_text(encoding="utf-8")
    told = re.findall(r"`(\w+)`", text.partition("These are reported:")[2].partition("Looking costs")[0])
    assert [name for name in plain(columns("quirks", heading="Quirks")) if name in TOLD] == told


def test_the_page_of_quirks_has_all_faults() -> None:
    """Each is there, and what a script may say of it is what a sandbox takes, with its default."""
    assert list(Fault.__members__) == plain(columns("quirks", heading="Faults"))
    shown = dict(zip(Fault, plain(columns("quirks", 2, heading="Faults")), strict=True))
    options = {fault: OPTIONS.get(fault, {}) for fault in Fault}
    assert {
        fault: ", ".join(f"{name}={written(value)}" for name, value in known.items())
        for fault, known in options.items()
    } == shown


def test_the_page_of_guesses_has_all_of_them() -> None:
    """Each field of the dialect is there, with its true default, and none that is gone."""
    true = {
        field.name: "{401, 429}" if field.name == "turned_away_unread" else str(getattr(Dialect(), field.name))
        for field in attrs.fields(Dialect)
    }
    shown = zip(plain(columns("guesses")), plain(columns("guesses", 1)), strict=True)
    assert {name: text.replace("'", '"') for name, text in true.items()} == {
        name: text.strip('"') for name, text in shown
    }


def test_the_page_of_states_has_all_of_them() -> None:
    """Each is there, in the order in which states are shown, with what it means and whether it may be paid again."""
    yes_or_no = {True: "yes", False: "no"}
    rows = zip(*(plain(columns("states", column, heading="What each means")) for column in range(4)), strict=True)
    assert [
        (str(state), state.meaning.short, yes_or_no[state.meaning.is_end], yes_or_no[state.meaning.may_be_paid_again])
        for state in State
    ] == list(rows)


def test_the_page_of_states_says_which_follows_which() -> None:
    """Its second table is what the table of states answers to all that can be learned of an order."""
    follow: dict[State, set[State]] = {}
    for state, signal in itertools.product(State, Signal):
        found = next_state(state, signal)
        if not found.conflict and found.state is not state:
            follow.setdefault(state, set()).add(found.state)
    of_page = zip(
        plain(columns("states", heading="Which state follows which")),
        plain(columns("states", 1, heading="Which state follows which")),
        strict=True,
    )
    assert {str(state): sorted(map(str, after)) for state, after in follow.items()} == {
        state: sorted(after.split(", ")) for state, after in of_page
    }


def test_the_page_of_events_has_all_of_them() -> None:
    """Each has its status code, whether it is final, and what becomes of an order that is being sent."""
    rows = zip(*(plain(columns("events", column, heading="Kinds")) for column in range(4)), strict=True)
    codes = {str(code): row for code, row in STATUS_CODES.items()} | {"any other": UNRECOGNISED}
    assert [
        (row.event, code, "yes" if row.is_final else "no", next_state(State.SENDING, Signal(row.signal)).state.value)
        for code, row in codes.items()
    ] == list(rows)


def test_the_page_of_events_has_all_fields() -> None:
    """A field of an event that is new or gone is noticed."""
    text = (DOCS / "events.md").read_text(encoding="utf-8").partition("## Fields")[2].partition("## Bodies")[0]
    shown = re.findall(r"`(\w+)`(?=[^|]*\|[^|]*\|$)", text, re.MULTILINE)
    assert {field.name for field in attrs.fields(TransactionConflict)} == {name for name in shown if name[0].islower()}


def test_the_bodies_of_the_page_of_events_are_read() -> None:
    """Each becomes the event that is named above it."""
    text = (DOCS / "events.md").read_text(encoding="utf-8").partition("## Bodies")[2]
    shown = re.findall(r"^`(\w+)`[^`]*(?:`([^`]+)`)?[^`]*```json\n(.*?)\n```", text, re.MULTILINE | re.DOTALL)
    assert 3 == len(shown)
    for name, query, body in shown:
        event = read_notification(body.encode(), query)
        assert (name, "withdrawal-17", 5000) == (type(event).__name__, event.request_id, event.amount)


def test_the_glossary_is_short() -> None:
    """A word of our own is a burden: thirty are enough."""
    words = columns("glossary")
    assert len(words) == len(set(words)) <= 30


def test_the_number_of_states_is_told() -> None:
    """The page and the README say how many there are."""
    assert 10 == len(State)
    for page in (README, DOCS / "states.md"):
        assert "ten states" in page.read_text(encoding="utf-8")


def variables_of_options() -> dict[str, set[str]]:
    """The variables of the environment that options are taken from, each with the names of these options."""
    found: dict[str, set[str]] = {}
    for name in COMMANDS:
        for parameter in load_command(name).params:
            for variable in [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or []:
                found.setdefault(variable, set()).update(one for one in parameter.opts if one.startswith("--"))
    return found


def test_the_page_of_settings_has_every_variable() -> None:
    """Each that the package names is there, with the option that counts more, and none that is gone."""
    shown = dict(
        zip(
            plain(columns("settings", heading="Environment")),
            columns("settings", 2, heading="Environment"),
            strict=True,
        )
    )
    sources = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "payments_async").rglob("*.py")))
    assert set(re.findall(r"\bPAYMENTS_[A-Z_]+\b", sources)) == set(shown)
    options = {name: set(re.findall(r"--[a-z-]+", cell)) for name, cell in shown.items()}
    # a secret is no option: the file that holds it is one; and tests have no command
    others = {"PAYMENTS_APP_PASSWORD": {"--password-file"}, "PAYMENTS_TEST_POSTGRES": set()}
    assert options == variables_of_options() | others


def test_the_page_of_settings_has_every_setting_of_a_profile() -> None:
    """What a profile may hold is what the page says, and nothing else."""
    assert sorted(SETTINGS) == sorted(plain(columns("settings", heading="Profiles")))


def test_the_page_of_exit_statuses_has_all_of_them() -> None:
    """Each has its row, and no table speaks of another one."""
    text = (DOCS / "exit-codes.md").read_text(encoding="utf-8")
    general = re.findall(r"^\| (\d) \| ([a-z ]+) \| .+\|$", text, re.MULTILINE)
    assert [(str(int(status)), status.name.lower().replace("_", " ")) for status in Exit] == general
    assert {str(int(status)) for status in Exit} == set(columns("exit-codes"))
