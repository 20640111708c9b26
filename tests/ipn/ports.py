"""Ports for servers that are started in order to be killed, or whose address has to be known before they start."""

import itertools
import random
import socket

# Below the ports that the system gives to whoever asks for any, so that nobody gets one of them by chance.
_LOWEST, _COUNT = 10_000, 20_000
_places = itertools.count(random.SystemRandom().randrange(_COUNT))  # other tests run in other processes meanwhile


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on; another one each time."""
    while True:
        port = _LOWEST + next(_places) % _COUNT
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        return port
