"""What importing each public place costs beside ``import aiohttp``: instructions (needs valgrind), ratios.

    python tests/benchmarks/bench_import.py [--only "... .bulk" "pay --help"]

Each is imported in a process of its own, whose start is taken off, from bytecode, as an installed package is. Only
ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# aiohttp is imported when the first session is made: what a program that pays imports
_MADE = (
    "from payments_async import PaymentsSession, Credentials; import payments_async.outbox; "
    "PaymentsSession('https://service.example', Credentials(app_key='key', app_password='secret', user_id='7'))"
)
_RUN = "import sys; sys.argv[1:] = {}; from payments_async.__main__ import main; main()"
PLACES = {
    "import aiohttp": "import aiohttp",
    "its dependencies": "import aiohttp, attrs, cattrs, msgspec",
    "payments_async": "import payments_async",
    "... PaymentsSession": "from payments_async import PaymentsSession",
    "... .journal": "import payments_async.journal",
    "... .ipn": "import payments_async.ipn",
    "... .outbox": "import payments_async.outbox",
    "... .bulk": "import payments_async.bulk",
    "... .outbox, a session": _MADE,
    "--help": _RUN.format(["--help"]),
    "pay --help": _RUN.format(["pay", "--help"]),
}


def instructions(statement: str, bytecode: str) -> int:
    """Of a process that runs this statement and ends at once; what it compiles is kept in the folder ``bytecode``."""
    environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or our modules were compiled each time, and aiohttp's were not
    command = [sys.executable, "-c", f"try: exec({statement!r})\nfinally: import os; os._exit(0)"]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        counted = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *command]
        subprocess.run(counted, check=True, capture_output=True, env=environment)
        found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
    assert found is not None
    return int(found.group(1))


def main() -> None:
    """Import one place after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PLACES, default=list(PLACES), help="beside aiohttp")
    wanted = dict.fromkeys(["import aiohttp", *parser.parse_args().only])
    with tempfile.TemporaryDirectory() as bytecode:
        start = instructions("pass", bytecode)
        costs = {name: instructions(PLACES[name], bytecode) - start for name in wanted}
    for name, cost in costs.items():
        print(f"{name:24s} {cost / 1e6:8.1f} M  {cost / costs['import aiohttp']:.2f}")


if __name__ == "__main__":
    main()
