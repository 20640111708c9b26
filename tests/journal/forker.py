"""A process that is alive by its lock, forks, and dies; its child lives on: python forker.py JOURNAL."""

import os
import signal
import sys
from pathlib import Path

from payments_async.journal._sqlite._identity import Liveness

if __name__ == "__main__":
    alive = Liveness(Path(sys.argv[1]))
    alive.begin()
    if os.fork():
        os._exit(0)
    sys.stdout.write(f"{os.getpid()} holder={alive.holder}\n")
    sys.stdout.flush()
    signal.pause()
