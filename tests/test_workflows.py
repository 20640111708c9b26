"""The workflows say of the project what is true, as far as their text tells."""

import re
import tomllib
from pathlib import Path

import pytest

import payments_async

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CI = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


def job(name: str) -> str:
    """The text of one job of the main workflow."""
    found = re.search(rf"^  {name}:\n(?:(?:    .*|\s*)\n)+", CI, re.MULTILINE)
    assert found is not None
    return found.group()


def pythons(text: str) -> list[str]:
    """The versions of Python that a job names."""
    return re.findall(r'"(3\.\d+)"', text)


@pytest.mark.parametrize("workflow", [pytest.param(path, id=path.name) for path in WORKFLOWS])
def test_every_action_is_of_one_version(workflow: Path) -> None:
    """What is used is named with its version, and one action has one version."""
    used = re.findall(r"uses: ([^.\s]\S*)", workflow.read_text(encoding="utf-8"))  # others are workflows of ours
    assert [] == [action for action in used if not re.fullmatch(r"[\w./-]+@v\d+", action)]
    assert len({action.partition("@")[0] for action in used}) == len(set(used))


def test_the_pythons_that_the_package_names_are_checked() -> None:
    """A change is held up by each version of the classifiers, and by no other."""
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert named == pythons(job("checks"))


def test_other_systems_see_the_same_pythons_and_the_next() -> None:
    """MacOS and Windows run the quick tests on all of them."""
    elsewhere = job("elsewhere")
    assert {*pythons(job("checks")), "3.14"} == set(pythons(elsewhere))
    assert {"macos-latest", "windows-latest", "ubuntu-latest"} == set(re.findall(r"\w+-latest", elsewhere))


@pytest.mark.parametrize("workflow", [pytest.param(path, id=path.name) for path in WORKFLOWS])
def test_what_is_installed_is_offered(workflow: Path) -> None:
    """Each extra that is named is one of the package's."""
    installed = re.findall(r"install .*?\.\[([\w,]+)\]", workflow.read_text(encoding="utf-8"))
    named = {extra for extras in installed for extra in extras.split(",")}
    assert set() == named - set(PROJECT["optional-dependencies"])


def test_the_version_stands_in_the_package_too() -> None:
    """What a release is called is what an installed package says."""
    assert PROJECT["version"] == payments_async.__version__


def test_all_is_every_extra_of_users() -> None:
    """A new extra is in ``all``, but for those of people who work on the package."""
    (everything,) = PROJECT["optional-dependencies"]["all"]
    named = set(everything.partition("[")[2].rstrip("]").split(","))
    rest = set(PROJECT["optional-dependencies"]) - {"all", "test", "dev"}
    assert rest - named == {"pages"}  # which is a part of cli


def test_a_release_waits_for_all_checks() -> None:
    """The workflow that publishes calls the one that checks, and is told by a tag."""
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "uses: ./.github/workflows/ci.yml" in release
    assert "needs: checks" in release
    assert "workflow_call" in CI
