"""Ports for servers that are started in order to be killed."""

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
