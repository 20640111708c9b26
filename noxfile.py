"""The checks, one session each. `.ci/run` needs no nox; this is for whoever works on the package."""

from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"  # whichever is there
nox.options.sessions = ["lint", "typing", "tests", "examples"]
nox.options.error_on_missing_interpreters = False

PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)  # the classifiers
OLDEST = PYTHONS[0]
WITH_SLOW = ["-m", "slow or not slow"]  # pyproject.toml leaves them out
EXTRAS = ",".join(
    extra for extra in PYPROJECT["project"]["optional-dependencies"] if extra not in {"all", "test", "dev"}
)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests, the slow ones too; on the oldest Python, measure what they cover."""
    session.install("-e", f".[{EXTRAS},test]")
    coverage = ["--cov", "--cov-report=term-missing:skip-covered"]
    # a chosen part of the tests cannot reach the bound of all of them
    measured = coverage if session.python == OLDEST and not session.posargs else []
    session.run("python", "-m", "pytest", *WITH_SLOW, *measured, *session.posargs)


@nox.session(python=OLDEST)
def lint(session: nox.Session) -> None:
    """Look for mistakes and for formatting."""
    session.install(*_dev("ruff"))
    session.run("python", "-m", "ruff", "check", *(session.posargs or ["."]))
    session.run("python", "-m", "ruff", "format", "--check", ".")


@nox.session(python=OLDEST)
def typing(session: nox.Session) -> None:
    """Check the types inside, that every public name shows one, and that a wrong use of them is refused."""
    # not editable: pyright looks at the package as those who install it get it
    session.install(f".[{EXTRAS},test]", *_dev("mypy", "pyright"))
    session.run("python", "-m", "mypy", "--strict", "payments_async", "examples")
    session.run("python", "-m", "pytest", "tests/typing", *WITH_SLOW)


@nox.session(python=OLDEST)
def examples(session: nox.Session) -> None:
    """Run the code blocks of the README and its pages, and every example as its reader would."""
    session.install("-e", f".[{EXTRAS},test]")
    tests = ("tests/test_readme.py", "tests/test_pages.py", "tests/test_examples.py", "tests/test_withdrawals.py")
    session.run("python", "-m", "pytest", *WITH_SLOW, *tests)


@nox.session(python=OLDEST)
def docs(session: nox.Session) -> None:
    """Build the site of pages and reference, in build/site; a warning and a dead link are errors."""
    session.install("-e", f".[{EXTRAS}]", *_dev("zensical", "mkdocstrings"))
    session.run("python", ".ci/site.py", *session.posargs)


@nox.session(python=OLDEST)
def benchmarks(session: nox.Session) -> None:
    """Print the table of speed, with its aims and what others take, in fifteen minutes: `-- --only import`."""
    session.install("-e", f".[{EXTRAS},test]")
    for peer in ("procrastinate", "huey", "stripe", "openai"):  # PGQueuer is an extra of ours
        session.run("python", "-m", "pip", "install", "-q", peer, success_codes=(0, 1))
    session.run("python", "tests/benchmarks/table.py", *session.posargs)


@nox.session(python=OLDEST)
def mutation(session: nox.Session) -> None:
    """Take the guards on the path of money away, one by one: each has to be noticed. Takes hours."""
    session.install("-e", f".[{EXTRAS},test]")
    with session.chdir("tests"):
        session.run("python", "-m", "mutation", *session.posargs)


@nox.session(python=OLDEST)
def fuzz(session: nox.Session) -> None:
    """Give every parser of outside input what is nearly right, for a minute: `-- --minutes 60`, `-- --guided`."""
    session.install("-e", f".[{EXTRAS},test]")
    if "--guided" in session.posargs:
        session.install("atheris")
    session.run("python", "tests/fuzz", *session.posargs)


@nox.session(python=OLDEST)
def soak(session: nox.Session) -> None:
    """Pay for two minutes and measure what is held meanwhile; `-- --minutes 60`."""
    session.install("-e", f".[{EXTRAS},test]")
    session.run("python", "tests/soak", *session.posargs)


@nox.session(python=OLDEST, venv_backend="uv")
def minimums(session: nox.Session) -> None:
    """Run the tests, the slow ones too, on the oldest versions that pyproject.toml admits."""
    session.install("--resolution=lowest-direct", "-e", f".[{EXTRAS},test]")
    session.run("python", "-m", "pytest", *WITH_SLOW, *session.posargs)


@nox.session(python=OLDEST)
def security(session: nox.Session) -> None:
    """Look for insecure code and known holes in what is needed; `-- PyPI.zip` audits offline, from osv.dev's export."""
    session.install("-e", f".[{EXTRAS}]", "packaging", *_dev("ruff", "bandit", "pip-audit"))
    session.run("python", "-m", "ruff", "check", "--select", "S", ".")
    session.run("python", "-m", "bandit", "-q", "-c", "pyproject.toml", "-r", "payments_async")
    if session.posargs:
        session.run("python", ".ci/audit.py", *session.posargs)
        return
    frozen = Path(session.create_tmp()) / "installed.txt"
    frozen.write_text(str(session.run("python", "-m", "pip", "freeze", "--exclude-editable", silent=True)))
    # strict: what could not be audited, as when no service answers, is a failure and no silence
    session.run("python", "-m", "pip_audit", "--strict", "--no-deps", "--disable-pip", "-r", str(frozen))


def _dev(*tools: str) -> list[str]:
    """The requirements of these tools, with the versions of the `dev` extra."""
    wanted = PYPROJECT["project"]["optional-dependencies"]["dev"]
    return [requirement for requirement in wanted if requirement.startswith(tools)]


@nox.session(python=OLDEST)
def release(session: nox.Session) -> None:
    """Build sdist and wheel into dist, and list what the wheel with every extra brings (CycloneDX)."""
    session.install("build", "twine", "cyclonedx-bom")
    session.run("python", "-m", "build", "--outdir", "dist")
    session.run("python", "-m", "twine", "check", "--strict", *map(str, Path("dist").glob("payments_async-*")))
    session.run("python", "-m", "venv", "--clear", "build/released")
    session.run("build/released/bin/python", "-m", "pip", "install", "-q", ".[all]", external=True)
    session.run("cyclonedx-py", "environment", "build/released/bin/python", "-o", "dist/sbom.cdx.json")
    session.install("-e", ".[cli,xlsx,test]", "pyinstaller")
    session.run("python", "-m", "pytest", "-n", "0", "-m", "slow or not slow", "tests/cli/test_one_file.py")
