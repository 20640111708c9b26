"""The example of a fleet: its plain commands are run, its grants suffice, and its compose file names what there is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from cli.commands import surroundings
from fleet.machines import by_pgqueuer, clerk
from fleet.test_dispatch import accepted, batch
from ipn.nginx import INNER, certificate, needs_nginx, post
from ipn.ports import free_port
from journal import postgres
from outbox.desks import A_MINUTE, until

from payments_async._cli.app import load_command
from payments_async.fleet import status, submit
from payments_async.journal import PostgresJournal, State
from payments_async.sandbox import Sandbox

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet"


@pytest.fixture
def dsn() -> str:
    """Of an empty database."""
    return postgres.new_database()


async def up(process: asyncio.subprocess.Process, words: bytes, times: int = 1) -> None:
    """Wait until a program has said something so often."""
    assert process.stdout is not None
    async with asyncio.timeout(A_MINUTE):
        while times:
            line = await process.stdout.readline()
            assert line, "it ended"
            times -= words in line


@pytest.mark.slow
@needs_nginx
async def test_the_plain_commands(dsn: str, tmp_path: Path, service: Sandbox) -> None:
    """Three workers send a batch, what nginx passes to two receivers settles it, and SIGTERM ends all of them."""
    certificate(tmp_path)
    port, first, health = (free_port() for _ in range(3))
    there = {"PAYMENTS_JOURNAL": dsn, "PORT": str(port), "FIRST_PORT": str(first), "HEALTH_PORT": str(health)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
    process = await asyncio.create_subprocess_exec(
        str(EXAMPLE / "plain.sh"),
        cwd=tmp_path,
        env=surroundings(service, {**there, "SENDER": INNER, "PATH": path}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        await up(process, b"the fleet is up")
        async with clerk(service, PostgresJournal(dsn, state_folder=tmp_path / "clerk")) as putting:
            await submit(putting, "batch", batch(0, 6))
            journal = putting.journal
            await until(accepted(journal), 6)
            async for entry in journal.entries("batch"):
                told = {"RequestId": entry.request_id, "Amount": int(entry.amount), "CurrencyCode": "UGX"}
                body = json.dumps({"TransactionId": entry.transaction_id, "StatusCode": 0, **told}).encode()
                for _ in range(2):
                    await until(lambda body=body: post(INNER, port, INNER, body=body), 200)
            counts = (await journal.progress("batch")).counts
            assert (6, []) == (counts[State.SUCCESSFUL], service.duplicates())
        process.terminate()
        assert process.stdout is not None
        async with asyncio.timeout(A_MINUTE):
            left = (await process.stdout.read()).decode()
            assert (0, 3) == (await process.wait(), left.count("stopped; outbox holds")), left
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
async def test_the_grants(dsn: str, tmp_path: Path) -> None:
    """One role makes all tables, and another one works with them: a batch is put, handed out, sent and shown."""
    async with PostgresJournal(dsn, state_folder=tmp_path / "owner") as journal:
        await status(journal)  # makes those of PGQueuer
    role = f"payer_{os.getpid()}"
    grants = re.sub(r"^--.*$", "", (EXAMPLE / "grants.sql").read_text(encoding="utf-8"), flags=re.MULTILINE)
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN".encode())
        owner.execute(grants.replace(':"role"', role).encode())
    try:
        theirs = dsn.replace("postgres@", f"{role}@")
        worker, putting = (PostgresJournal(theirs, state_folder=tmp_path / name) for name in ("worker", "clerk"))
        async with Sandbox() as sandbox, clerk(sandbox, putting) as outbox, by_pgqueuer(sandbox, worker):
            await submit(outbox, "batch", batch(0))
            await until(accepted(putting), 5)
            assert "refill outbox" in (await status(putting)).due
    finally:
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute(f"DROP OWNED BY {role}".encode())
            owner.execute(f"DROP ROLE {role}".encode())


def commands() -> list[tuple[str, ...]]:
    """What the compose file and the script start of us."""
    composed = (EXAMPLE / "compose.yaml").read_text(encoding="utf-8")
    found = [json.loads(line) for line in re.findall(r"command:\s+(\[.+\])", composed)]
    script = (EXAMPLE / "plain.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    found += [re.sub(r"[;&|>].*", "", line).split() for line in re.findall(r"payments-async (.+)", script)]
    ours = ("fleet", "ipn", "outbox")
    return [tuple(words) for words in found if words[0] in ours]


@pytest.mark.parametrize("words", commands(), ids=lambda words: " ".join(words[:2]))
def test_what_the_example_starts_there_is(words: tuple[str, ...]) -> None:
    """Each command, with each of its options."""
    command = load_command(" ".join(words[:2]))
    known = {option for parameter in command.params for option in parameter.opts}
    assert set() == {word for word in words if re.fullmatch("--[a-z-]+", word)} - known


def test_there_is_something_to_compare() -> None:
    """The test above would else be about nothing."""
    assert {"fleet worker", "fleet schedule", "ipn serve"} <= {" ".join(words[:2]) for words in commands()}
