"""Every example is run as its reader would run it, and says what it promises."""

import asyncio
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from ipn.nginx import GENUINE, INNER, STRANGER, needs_nginx, nginx, post
from ipn.notifications import notification
from ipn.ports import free_port
from journal import postgres

from payments_async.sandbox import Sandbox

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
needs_fastapi = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn")),
    reason="fastapi or uvicorn is not installed",
)

needs_gunicorn = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("gunicorn", "uvicorn_worker")),
    reason="gunicorn or uvicorn-worker is not installed",
)
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def environment() -> dict[str, str]:
    """Ours, with every warning an error."""
    return {**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": str(ROOT)}


def printed(example: str) -> list[str]:
    """The lines an example prints; it must end well and complain of nothing."""
    program = [sys.executable, str(EXAMPLES / example)]
    done = subprocess.run(program, env=environment(), capture_output=True, check=False, text=True, timeout=120)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.splitlines()


@asynccontextmanager
async def running(*arguments: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python program that runs until the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(120):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: asyncio.subprocess.Process) -> str:
    """The next line it prints."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().rstrip("\n")


def test_each_example_has_a_test() -> None:
    """A new one is named below, or this fails; `withdrawals` has its tests in `test_withdrawals.py`."""
    programs = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}
    withdrawals = {f"withdrawals/{name}.py" for name in ("ledger", "test_paid_once", "with_aiohttp", "with_fastapi")}
    alone = {"payouts.py", "ipn_aiohttp.py", "ipn_fastapi.py", "ipn_flask.py", "ipn_behind_nginx/app.py"}
    shop = {f"tested_shop/{name}.py" for name in ("conftest", "refunds", "test_refunds")}
    workers = {"workers/aiohttp_workers.py", "workers/fastapi_workers.py"}
    synchronous = {"synchronous/views.py", "synchronous/worker.py"}
    bank = {f"django_bank/bank/{name}.py" for name in ("__init__", "models", "payments", "settings", "views")}
    bank |= {f"django_bank/{name}.py" for name in ("gunicorn.conf", "manage", "test_bank", "worker_of_bank")}
    folders = {"collecting/shop.py", "network/own_network.py", "tenants/two_tenants.py"}
    assert alone | bank | folders | shop | synchronous | workers | withdrawals == programs


@pytest.mark.slow
def test_payouts() -> None:
    """Each of the three is settled; the answer that was lost is found in the list."""
    first, second, third = printed("payouts.py")
    assert [True, True] == ["SUCCESSFULL, says the list of SUCCESSFULL" in line for line in (first, third)]
    assert re.search(r" the answer was lost, and the service has it as \S+$", second)


@pytest.mark.slow
def test_collecting() -> None:
    """Each invoice is heard of once, in whichever sequence; the one that was asked for twice as well."""
    expected = [
        "invoice-1 40000 paid: ship it",
        "invoice-2 15000 not paid (failed): remind",
        "invoice-3 500 paid: ship it",
    ]
    assert expected == sorted(printed("collecting/shop.py"))


@pytest.mark.slow
def test_two_tenants() -> None:
    """The same request id is paid once for each of them, and neither is worked with the other one's journal."""
    expected = [f"{name}: successful, paid 1 time" for name in ("north", "south")] + ["refused: WrongAccount"]
    assert expected == printed("tenants/two_tenants.py")


@pytest.mark.slow
@needs_openssl
def test_a_network_of_its_own() -> None:
    """Both calls go through the proxy and are told to the hook; who shows no certificate gets no answer."""
    expected = [
        "hook: POST /api/auth/login 200",
        "hook: GET /api/accounts 200",
        "account in UGX, through the proxy: True",
        "without a certificate: ServiceFault",
    ]
    assert expected == printed("network/own_network.py")


@pytest.mark.slow
def test_the_tests_of_a_shop_pass(tmp_path: Path) -> None:
    """They run as their reader runs them, and none is left out."""
    assert {"passed": 10} == outcomes_of_shop(tmp_path)


@pytest.mark.slow
def test_the_tests_of_a_shop_notice_one_that_pays_by_chance(tmp_path: Path) -> None:
    """With an id that is another one each time, a second click pays twice: two of its tests say so."""
    changed = ('f"refund-{purchase}"', "f\"refund-{purchase}-{id(object())}-{__import__('time').time_ns()}\"")
    assert outcomes_of_shop(tmp_path, changed)["failed"] > 1


@pytest.mark.slow
def test_the_tests_of_a_bank_in_django_pass(tmp_path: Path) -> None:
    """Debit and order are one transaction, and what is not paid is credited once."""
    folder = shutil.copytree(EXAMPLES / "django_bank", tmp_path / "b", ignore=shutil.ignore_patterns("__pycache__"))
    alone = {name: value for name, value in environment().items() if not name.startswith("PYTEST_")}
    alone |= {"PAYMENTS_TEST_POSTGRES": postgres.dsn()}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, check=False, text=True, timeout=300)
    assert "4 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
@needs_gunicorn
async def test_a_bank_in_django(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its views under gunicorn put, its worker sends and hears, by the commands that its reader is told."""
    folder, web, ipn = EXAMPLES / "django_bank", free_port(), free_port()
    place = postgres.new_database()
    async with Sandbox(ipn_url=f"http://127.0.0.1:{ipn}/ipn") as service, aiohttp.ClientSession() as http:
        for name, value in (service.variables | {"PAYMENTS_JOURNAL": place, "IPN_PORT": str(ipn)}).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "bank.settings")
        account = "Account.objects.create(name='Grace', phone_number='+256772000017', balance=10_000)"
        shell = f"import django; django.setup(); from bank.models import Account; {account}"
        for command in (["manage.py", "migrate", "--run-syncdb"], ["-c", shell]):
            async with running(*command, folder=folder) as process:
                _, words = await process.communicate()
                assert 0 == process.returncode, words.decode()
        gunicorn = ["-m", "gunicorn", "--workers", "2", "--threads", "8", "--bind", f"127.0.0.1:{web}"]
        async with running(*gunicorn, folder=folder) as shop, running("worker_of_bank.py", folder=folder) as worker:
            assert shop.stderr is not None
            while b"Booting worker" not in (line := await shop.stderr.readline()):
                assert line, "it ended without listening"
            address = f"http://127.0.0.1:{web}/withdrawals/w-1"
            for _ in range(4):
                async with http.post(address, data={"account": "Grace", "amount": "4000"}) as answer:
                    assert 200 == answer.status, await answer.text()
            said = ""
            while said != "successful":
                async with http.get(address) as answer:
                    said = await answer.text()
                await asyncio.sleep(0.05)
            for process in (shop, worker):
                process.send_signal(signal.SIGTERM)
                _, words = await process.communicate()
                assert 0 == process.returncode, words.decode()
        assert 1 == service.executions("w-1")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a simulation needs Linux")
def test_withdrawals_that_are_killed_at_every_point(tmp_path: Path) -> None:
    """Its own test passes: each withdrawal is paid once, and the balance follows."""
    folder = shutil.copytree(EXAMPLES / "withdrawals", tmp_path / "w", ignore=shutil.ignore_patterns("__pycache__"))
    alone = {name: value for name, value in environment().items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, check=False, text=True, timeout=600)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def outcomes_of_shop(folder: Path, changed: tuple[str, str] = ("", "")) -> dict[str, int]:
    """How the tests of the shop end, with its code changed in one place."""
    shop = shutil.copytree(EXAMPLES / "tested_shop", folder / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    code = (shop / "refunds.py").read_text(encoding="utf-8")
    assert changed[0] in code
    (shop / "refunds.py").write_text(code.replace(*changed) if changed[0] else code, encoding="utf-8")
    alone = {name: value for name, value in environment().items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=shop, env=alone, capture_output=True, check=False, text=True, timeout=120)
    return {outcome: int(count) for count, outcome in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)}


def test_the_receiver_in_an_aiohttp_application() -> None:
    """The handler runs before the answer, as there is no inbox; then whoever waits has the event."""
    moved, answer, kind = printed("ipn_aiohttp.py")
    assert "payroll-2026-11-000017: 150000 UGX has moved" == moved
    assert answer.startswith('200 {"TransactionId":"672b00f8-a02c-5e41-9fd0-4f0c4c74308d"')
    assert "TransactionSucceeded" == kind


@pytest.mark.slow
@needs_fastapi
def test_the_receiver_in_a_fastapi_application() -> None:
    """The same through ASGI."""
    moved, answer = printed("ipn_fastapi.py")
    assert "r-1: 150000 UGX has moved" == moved
    assert answer.startswith('200 {"TransactionId":"t-1"')


@pytest.mark.slow
def test_the_receiver_in_a_flask_application() -> None:
    """A view hands in what came, from a thread; the receiver works in a thread of its own."""
    answer, moved = printed("ipn_flask.py")
    assert answer.startswith('200 {"TransactionId":"t-1"')
    assert "r-1: 150000 UGX has moved" == moved


@pytest.mark.slow
@needs_fastapi
async def test_the_fastapi_application_served_by_its_own_command() -> None:
    """As its docstring says; with and without a trailing slash, and it ends when it is told to."""
    told = re.search(r"`uvicorn (.+)`", (EXAMPLES / "ipn_fastapi.py").read_text(encoding="utf-8"))
    assert told is not None
    command = ["-m", "uvicorn", "--port", "0", *told.group(1).split()]
    async with running(*command, folder=ROOT) as process, aiohttp.ClientSession() as http:
        assert process.stderr is not None
        while b"running on" not in (line := await process.stderr.readline()):
            assert line, "it ended without listening"
        address = re.search(rb"http://[\d.:]+", line)
        assert address is not None
        for path, name in (("/ipn", "t-1"), ("/ipn/", "t-2")):
            url = address.group().decode() + path
            async with http.post(url, data=notification(name, CurrencyCode="UGX"), allow_redirects=False) as answer:
                assert 200 == answer.status
            assert f"r-{name}: 500 UGX has moved" == await line_of(process)
        process.send_signal(signal.SIGTERM)
        await process.wait()


def commands_of_workers() -> list[list[str]]:
    """The command lines that the workers' docstrings tell."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((EXAMPLES / "workers").glob("*.py"))]
    return [
        line.split() for text in texts for line in re.findall(r"^    ((?:gunicorn|uvicorn) .+)$", text, re.MULTILINE)
    ]


@pytest.mark.slow
@needs_fastapi
@needs_gunicorn
@pytest.mark.parametrize("command", commands_of_workers(), ids=lambda words: f"{words[0]} {words[-1]}")
async def test_workers_of_one_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """As the docstring says: what reaches any of them, and reaches them twice, is handled once by all of them."""
    port = free_port()
    monkeypatch.setenv("INBOX", str(tmp_path / "inbox.sqlite"))
    monkeypatch.setenv("SENDERS", "127.0.0.1")
    words = [word.replace("8080", str(port)) for word in command]
    assert words != command
    # their own warnings are none of ours: gunicorn's worker hands aiohttp what it has deprecated
    monkeypatch.setattr(sys.modules[__name__], "environment", lambda: {**os.environ, "PYTHONPATH": str(ROOT)})
    async with running("-m", *words, folder=EXAMPLES / "workers") as process, aiohttp.ClientSession() as http:
        assert process.stderr is not None
        booted = b""
        while booted.count(b"Booting worker") + booted.count(b"Application startup complete") < 2:
            line = await process.stderr.readline()
            assert line, booted
            booted += line
        names = [f"t-{number}" for number in range(20)]
        for name in names + names:
            body = notification(name, CurrencyCode="UGX")
            async with http.post(f"http://127.0.0.1:{port}/ipn", data=body, headers={"Connection": "close"}) as answer:
                assert 200 == answer.status
        heard = [await line_of(process) for _ in names]
        assert sorted(f"r-{name}: 500 UGX has moved" for name in names) == sorted(heard)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert b"" == await process.stdout.read()  # nothing twice
        await process.stderr.read()
        assert 0 == await process.wait()


@pytest.mark.slow
@needs_gunicorn
async def test_a_synchronous_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked by many threads of two forked workers at once, each order is paid once, and a function is told of it."""
    folder = EXAMPLES / "synchronous"
    (command,) = re.findall(r"^    (gunicorn .+)$", (folder / "views.py").read_text(encoding="utf-8"), re.MULTILINE)
    web, ipn = free_port(), free_port()
    words = [*command.replace("examples/synchronous", ".").split(), "--bind", f"127.0.0.1:{web}"]
    async with Sandbox(ipn_url=f"http://127.0.0.1:{ipn}/ipn") as service, aiohttp.ClientSession() as http:
        known = {"BASE_URL": service.base_url, "APP_KEY": service.app_key, "APP_PASSWORD": service.app_password}
        for name, value in (known | {"USER_ID": service.user_id, "JOURNAL": str(tmp_path / "payments.sqlite")}).items():
            monkeypatch.setenv(f"PAYMENTS_{name}", value)
        monkeypatch.setenv("IPN_PORT", str(ipn))

        async def ask(method: str, **query: str) -> tuple[int, str]:
            async with http.request(method, f"http://127.0.0.1:{web}/", params=query) as answer:
                return answer.status, await answer.text()

        async with running("-m", *words, folder=folder) as shop, running("worker.py", folder=folder) as worker:
            assert shop.stderr is not None
            while b"Booting worker" not in (line := await shop.stderr.readline()):
                assert line, "it ended without listening"
            wish = {"phone_number": "+256772000017", "amount": "5000"}
            ids = [f"w-{number}" for number in range(5)]
            answers = await asyncio.gather(*(ask("POST", id=name, **wish) for name in ids * 4))
            assert {200} == {status for status, _ in answers}
            assert sorted(f"{name}: successful" for name in ids) == sorted([await line_of(worker) for _ in ids])
            assert (200, "successful") == await ask("GET", id="w-0")
            assert (409, "another withdrawal has this id") == await ask("POST", id="w-0", **wish | {"amount": "5001"})
            status, words_of_it = await ask("POST", id="w-9", **wish | {"amount": "5.0e3"})
            assert (422, True) == (status, words_of_it.startswith("amount: "))
            assert (404, "nobody asked for that") == await ask("GET", id="w-9")
            for process in (shop, worker):
                process.send_signal(signal.SIGTERM)
                await process.communicate()
                assert 0 == process.returncode
        assert [1] * len(ids) == [service.executions(name) for name in ids]


UNITS = EXAMPLES / "systemd"


def settings_of(unit: str, name: str) -> list[str]:
    """What a unit says under this name, each time."""
    return re.findall(rf"^{name}=(.+)$", (UNITS / unit).read_text(encoding="utf-8"), re.MULTILINE)


def on_this_machine(text: str, folder: Path, ports: Mapping[str, int]) -> str:
    """A unit, or a line of it, with the paths of this test in the place of those of a machine."""
    for theirs, ours in {"/var/lib/payments": folder, "/etc/payments": folder, "%H": "host", **ports}.items():
        text = text.replace(str(theirs), str(ours))
    return text


@pytest.mark.slow
async def test_the_units_of_systemd_run(tmp_path: Path) -> None:
    """By the environment and the commands of the units, in their sequence, after the one that makes the journal."""
    ports = {"8080": free_port(), "8081": free_port()}
    async with Sandbox(ipn_url=f"http://127.0.0.1:{ports['8080']}/ipn") as service, aiohttp.ClientSession() as http:
        (tmp_path / "app_password").write_text(service.app_password)
        known = {"BASE_URL": service.base_url, "APP_KEY": service.app_key, "USER_ID": service.user_id}
        lines = (UNITS / "payments.env").read_text(encoding="utf-8").splitlines()
        told = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        told = {name: on_this_machine(value, tmp_path, {}) for name, value in told.items()}
        assert {f"PAYMENTS_{name}" for name in known} < told.keys()
        settings = os.environ | {"PYTHONPATH": str(ROOT)} | told | {f"PAYMENTS_{n}": v for n, v in known.items()}

        async def started(command: str) -> asyncio.subprocess.Process:
            words = on_this_machine(command, tmp_path, ports).removeprefix("/opt/payments/bin/payments-async ").split()
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "payments_async",
                *words,
                env=settings,
                cwd=tmp_path,
                stderr=asyncio.subprocess.PIPE,
            )

        async def works(process: asyncio.subprocess.Process) -> None:
            assert process.stderr is not None
            while b"its health at" not in (line := await process.stderr.readline()):
                assert line, "it ended without working"
            async with http.get(f"http://127.0.0.1:{ports['8081']}/health") as answer:
                assert 200 == answer.status

        async def ended(process: asyncio.subprocess.Process) -> tuple[int, str]:
            _, complaint = await process.communicate()
            assert process.returncode is not None
            return process.returncode, complaint.decode()

        (sends,) = settings_of("payments-outbox.service", "ExecStart")
        (hears,) = settings_of("payments-ipn.service", "ExecStart")
        (asks,) = settings_of("payments-status.service", "ExecStart")
        async with asyncio.timeout(120):
            status, complaint = await ended(await started(sends))
            assert (2, True) == (status, "--new-journal: needed" in complaint)  # by no service: by a person, once
            assert ["2"] == settings_of("payments-outbox.service", "RestartPreventExitStatus")
            for command in (f"{sends} --new-journal", sends):
                outbox = await started(command)
                await works(outbox)
                if command == sends:
                    receiver = await started(hears)
                    assert receiver.stderr is not None
                    assert b"listening at" in await receiver.stderr.readline()
                    assert 0 == (await ended(await started(asks)))[0]
                    receiver.terminate()
                    assert 0 == (await ended(receiver))[0]
                outbox.terminate()
                assert 0 == (await ended(outbox))[0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_units_of_systemd_are_understood(tmp_path: Path) -> None:
    """It knows every setting of them; the program that they start is made up."""
    program = tmp_path / "payments-async"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    names = [path.name for path in sorted(UNITS.glob("payments-*")) if path.suffix in {".service", ".timer"}]
    for name in names:
        text = (UNITS / name).read_text(encoding="utf-8").replace("/opt/payments/bin/payments-async", str(program))
        (tmp_path / name).write_text(text.replace("User=payments", "User=root"))
    command = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in names)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    assert [] == [line for line in done.stderr.splitlines() if str(tmp_path) in line or "payments-" in line]
    assert len(names) == 4


@pytest.mark.slow
@needs_nginx
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_receiver_behind_nginx(tmp_path: Path, number: signal.Signals) -> None:
    """Through real nginx with TLS: genuine senders are heard, strangers are not, and a stop drains."""
    port = free_port(INNER)
    program = str(EXAMPLES / "ipn_behind_nginx" / "app.py")
    async with running(program, str(port), GENUINE, folder=tmp_path) as process:
        assert "listening" == await line_of(process)
        async with nginx(tmp_path / "nginx", upstream=port, listen=INNER) as outside:
            paid, other = notification("t-1", CurrencyCode="UGX"), notification("t-1", 2)
            assert 403 == await post(INNER, outside, STRANGER, ("X-Forwarded-For", GENUINE), body=paid)
            assert 200 == await post(INNER, outside, GENUINE, body=paid)
            assert "r-t-1: 500 UGX has moved" == await line_of(process)
            assert 200 == await post(INNER, outside, GENUINE, body=other)
            assert re.search(r"^r-t-1: .+; a person should look at it$", await line_of(process))
        process.send_signal(number)
        assert "drained" == await line_of(process)
        assert 0 == await process.wait()
