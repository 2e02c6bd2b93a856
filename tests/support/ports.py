"""TCP ports for servers that other processes start."""

from __future__ import annotations

import random
import socket

EPHEMERAL_FROM = 32768
"""Linux gives ports from here on to clients, and to servers that bind port 0."""


def free_port() -> int:
    """A port of 127.0.0.1 that was free when this was called.

    It is below the ephemeral ports and chosen at random: until the server binds it, a client or another test's server
    can get an ephemeral port, and would be taken for the server.
    """
    while True:
        port = random.SystemRandom().randrange(20000, EPHEMERAL_FROM)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
